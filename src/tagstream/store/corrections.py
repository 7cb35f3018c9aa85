"""The column of corrections: which stored examples were given other labels, and in which order."""

from __future__ import annotations

from typing import Any

import numpy as np

from tagstream.checks import Bools, Positions, Rows, expect
from tagstream.store.columns import Sliding, filled
from tagstream.store.contents import EMPTY, digests

__all__ = ["Corrections"]


_NOBODY = np.empty(0, np.bool_)


class Corrections:
    """Which examples were corrected; nothing is kept until one is."""

    def __init__(self, n: int = 0) -> None:
        self._n = n
        self._marks: Sliding | None = None
        self._which = filled(0, None, np.int64, 0)  # which correction it was, 1, 2, …; 0 if none
        # Of corrected rows: digest to places, those corrected later first.  A place is a position
        # plus how many examples were dropped since.
        self._twins: dict[int, list[int]] | None = None
        self._n_dropped = 0

    @property
    def any(self) -> bool:
        """Whether an example was ever corrected."""
        return self._marks is not None

    @property
    def marks(self) -> Bools:
        """Which examples were corrected; of length 0 when none ever was."""
        return _NOBODY if self._marks is None else self._marks.live

    @property
    def last(self) -> int:
        """The largest number of a correction; 0 if there was none."""
        return 0 if self._marks is None else int(self._which.live.max(initial=0))

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        return 0 if self._marks is None else self._marks.nbytes + self._which.nbytes

    def at(self, positions: Any) -> Bools:
        """Return which of the examples at some positions were corrected."""
        every = np.broadcast_to(np.False_, self._n) if self._marks is None else self._marks.live
        marks: Bools = every[positions]
        return marks

    def which(self, positions: Any) -> Positions:
        """Return which correction the examples at some positions had last; 0 if none."""
        every = np.broadcast_to(np.int64(0), self._n) if self._marks is None else self._which.live
        return np.asarray(every[positions])

    def mark(self, position: int, which: int | None) -> None:
        """Mark an example as corrected; ``which`` is the number, by default the next."""
        if self._marks is None:
            self._marks = filled(self._n, None, np.bool_, False)
            self._which = filled(self._n, None, np.int64, 0)
        self._marks.write(position, True)
        self._which.write(position, self.last + 1 if which is None else which)
        self._twins = None

    def twins(self, queries: Rows, rows: Rows, lo: Positions) -> Positions:
        """Return where the example is that equals each query and was corrected last; −1 if none.

        Query i sees the positions from ``lo[i]`` on.  ``rows`` are those of all examples.
        """
        if self._twins is None:
            self._twins, self._n_dropped = self._find_twins(rows), 0
        found: Positions = np.full(len(lo), -1, np.int64)
        least = np.maximum(lo, 0) + self._n_dropped
        for i, content in enumerate(digests(queries).tolist()):
            for place in self._twins.get(content, ()):
                if place >= least[i]:
                    found[i] = place - self._n_dropped
                    break
        return found

    def _find_twins(self, rows: Rows) -> dict[int, list[int]]:
        marks = np.flatnonzero(self.marks)
        marks = marks[np.argsort(-self.which(marks))]
        found: dict[int, list[int]] = {}
        for content, at in zip(digests(rows[marks]).tolist(), marks.tolist(), strict=True):
            places = found.setdefault(content, [])
            if not places or at > places[-1]:  # who sees an older one sees the one before it too
                places.append(at)
        found.pop(EMPTY, None)  # rows that say nothing are nobody's twins
        return found

    def append(self, n: int) -> None:
        """Add ``n`` examples."""
        self._n += n
        if self._marks is not None:
            self._marks.room(n)[:] = False
            self._which.room(n)[:] = 0

    def drop(self, n: int) -> None:
        """Forget the ``n`` oldest examples."""
        self._n -= n
        self._n_dropped += n
        if self._marks is not None:
            self._marks.drop(n)
            self._which.drop(n)

    def remove(self, position: int) -> None:
        """Take one example out."""
        self._n -= 1
        self._twins = None
        if self._marks is not None:
            self._marks.remove(position, position + 1)
            self._which.remove(position, position + 1)

    def snapshot(self) -> Corrections:
        """Return an immutable picture."""
        twin = Corrections(self._n)
        if self._marks is not None:
            twin._marks, twin._which = self._marks.snapshot(), self._which.snapshot()
        twin._twins, twin._n_dropped = self._twins, self._n_dropped  # made anew, never changed
        return twin

    def dump(self) -> dict[str, Any]:
        """Return the contents as plain values."""
        marks = None if self._marks is None else np.flatnonzero(self._marks.live)
        return {"corrected": marks, "corrections": None if marks is None else self.which(marks)}

    @classmethod
    def load(cls, state: Any, n: int) -> Corrections:
        """Return what :meth:`dump` described, after checking that it makes sense."""
        made = cls(n)
        if state["corrected"] is not None:
            marks = expect("corrected", state["corrected"], np.int64, (None,))
            if (np.diff(marks, prepend=-1) <= 0).any() or marks.max(initial=0) >= max(n, 1):
                raise ValueError(f"corrected must rise within 0 to {n - 1}")
            which = expect(
                "corrections", state["corrections"], np.int64, marks.shape, least=1, most=2.0**60
            )
            made._marks = filled(n, None, np.bool_, False)
            made._marks.live[marks] = True
            made._which = filled(n, None, np.int64, 0)
            made._which.live[marks] = which
        elif state["corrections"] is not None:
            raise ValueError("there must be no corrections where nothing was corrected")
        return made
