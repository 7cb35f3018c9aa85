"""The column of names: what stored examples are called, and their numbers in the stream."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from tagstream.checks import Positions, expect
from tagstream.store.columns import Sliding

__all__ = ["Names"]


class Names:
    """Names and numbers of stored examples, oldest first.

    Numbers count the whole stream, from 0.  They are kept once an example was taken out of the
    middle; until then they follow from how many have come.  An example without a name is called by
    its number.

    Parameters
    ----------
    first : int
        Number of the first example.
    """

    def __init__(self, first: int = 0) -> None:
        self.n_seen = first  # examples that ever came: the number of the next
        self._n = 0
        self._names: Sliding | None = None
        self._numbers: Sliding | None = None
        self._index: dict[Hashable, int] | None = None  # names to numbers, once asked for

    def __len__(self) -> int:
        return self._n

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        return sum(part.nbytes for part in (self._names, self._numbers) if part is not None)

    @property
    def gaps(self) -> bool:
        """Whether an example was taken out of the middle."""
        return self._numbers is not None

    @property
    def first(self) -> int | Positions:
        """The numbers of all examples, or that of the first one where they follow without a gap."""
        return self.n_seen - self._n if self._numbers is None else self._numbers.live

    def numbers(self, positions: Positions) -> Positions:
        """Return the numbers in the stream."""
        if self._numbers is None:
            return np.asarray(positions) + (self.n_seen - self._n)
        numbers: Positions = self._numbers.live[positions]
        return numbers

    def names(self, positions: Positions) -> list[Hashable]:
        """Return the names at some positions; by default, numbers in the stream."""
        if self._names is None:
            numbers: list[Hashable] = self.numbers(positions).tolist()
            return numbers
        return list(self._names.live[positions])

    def position_of(self, name: Hashable) -> int | None:
        """Return where the newest example of that name is; None if it is not here."""
        if self._index is None:
            every = np.arange(self._n)
            self._index = dict(zip(self.names(every), self.numbers(every).tolist(), strict=True))
        number = self._index.get(name)
        if number is None:
            return None
        if self._numbers is None:
            return number - (self.n_seen - self._n)
        return int(np.searchsorted(self._numbers.live, number))

    def positions_of(self, numbers: Positions) -> Positions:
        """Return where examples are, given by their numbers; −1 if they are not here."""
        n = self._n
        if self._numbers is None:
            at = numbers - (self.n_seen - n)
            return np.where((at >= 0) & (at < n), at, -1)
        if not n:
            return np.full(len(numbers), -1)
        at = np.minimum(np.searchsorted(self._numbers.live, numbers), n - 1)
        return np.where(self._numbers.live[at] == numbers, at, -1)

    def append(self, n: int, names: Sequence[Hashable] | None) -> None:
        """Count and name ``n`` more examples."""
        first = self.n_seen
        if names is not None and self._names is None:
            self._name_all()
        if self._names is not None:
            self._names.room(n)[:] = list(range(first, first + n)) if names is None else list(names)
        if self._index is not None:
            given = range(first, first + n) if names is None else names
            self._index.update(zip(given, range(first, first + n), strict=True))
        if self._numbers is not None:
            self._numbers.append(np.arange(first, first + n))
        self.n_seen += n
        self._n += n

    def _name_all(self) -> None:
        """Call all examples by their numbers."""
        numbers = self.numbers(np.arange(self._n))
        self._names = Sliding(None, object)
        self._names.append(numbers.astype(object))

    def drop(self, n: int) -> None:
        """Forget the ``n`` oldest examples."""
        if self._index is not None:
            oldest = np.arange(n)
            for name, number in zip(self.names(oldest), self.numbers(oldest).tolist(), strict=True):
                if self._index.get(name) == number:
                    del self._index[name]
        for part in (self._names, self._numbers):
            if part is not None:
                part.drop(n)
        self._n -= n

    def remove(self, position: int) -> None:
        """Take one example out."""
        if self._numbers is None:
            self._numbers = Sliding(None, np.int64)
            self._numbers.append(np.arange(self.n_seen - self._n, self.n_seen))
        if self._names is None:
            self._name_all()
        self._index = None  # an older example of the same name may come to light
        for part in (self._names, self._numbers):
            if part is not None:
                part.remove(position, position + 1)
        self._n -= 1

    def snapshot(self) -> Names:
        """Return an immutable picture."""
        twin = Names(self.n_seen)
        twin._n = self._n
        twin._names = None if self._names is None else self._names.snapshot()
        twin._numbers = None if self._numbers is None else self._numbers.snapshot()
        return twin  # without the index: it goes on changing here

    def dump(self) -> dict[str, Any]:
        """Return the contents as plain values."""
        return {
            "ids": None if self._names is None else list(self._names.live),
            "numbers": None if self._numbers is None else np.array(self._numbers.live),
        }

    @classmethod
    def load(cls, state: Any, n: int, n_seen: int, n_forgotten: int) -> Names:
        """Return the names that :meth:`dump` described, after checking that they make sense."""
        made = cls(n_seen)
        made._n = n
        if state["ids"] is not None:
            if not isinstance(state["ids"], list) or len(state["ids"]) != n:
                raise ValueError(f"ids must be a list of {n} names")
            made._names = Sliding(None, object)
            made._names.room(n)[:] = state["ids"]
            hash(tuple(state["ids"]))  # all of them must be hashable
        if state["numbers"] is not None:
            numbers = expect("numbers", state["numbers"], np.int64, (n,))
            rising = np.diff(numbers, prepend=-1, append=n_seen)
            if (rising <= 0).any() or n_seen >= 1 << 62 or numbers.min(initial=0) < 0:
                raise ValueError(f"numbers must rise within 0 to {n_seen - 1}")
            made._numbers = Sliding(None, np.int64)
            made._numbers.replace(numbers)
        elif n != n_seen - n_forgotten:
            raise ValueError(f"the store must hold {n_seen - n_forgotten} rows, got {n}")
        return made
