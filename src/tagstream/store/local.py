"""The store of one process: rows, codes, labels and names, with an optional window.

A learner knows its :class:`~tagstream.store.protocol.Store` by that face alone.  Everything is kept
oldest first in contiguous arrays (:mod:`tagstream.store.columns`), so a position is an age, a slice
is a matrix, and a window needs no modular arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.checks import (
    LARGEST_VALUE,
    Bools,
    Bytes,
    Rows,
    expect,
    expect_counts,
    expect_indptr,
    expect_keys,
)
from tagstream.core.inputs import inputs_of
from tagstream.core.products import gather_votes
from tagstream.core.similarity import Nearest, most_similar
from tagstream.execution.steps import Steps, Work, finish
from tagstream.labels.read import Labels
from tagstream.store.columns import Sliding, filled
from tagstream.store.contents import EMPTY, digests
from tagstream.store.protocol import Coded, Neighbors
from tagstream.store.rows import DenseRows, SparseRows
from tagstream.store.sums import Examples

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["LocalStore"]

Positions = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]
Distances = npt.NDArray[np.float64]
Found = tuple[Distances, Positions]
Digests = npt.NDArray[np.uint64]

_NOTHING = np.empty((0, 0), np.uint8)
_NOBODY = np.empty(0, np.bool_)

ENCODED = 512  # rows whose codes are made at a time
ASKED = 16  # queries that are looked up at a time, among codes that are not kept
SHARED_CODES = 8192  # rows from which on it is worth a second thread
UNPACKED = 1 << 24  # labels of rows that are unpacked at a time

# Numbers whose squares stay in single precision.
_SQUARES = {"least": -LARGEST_VALUE, "most": LARGEST_VALUE}


class LocalStore:
    """The store of one process.

    Parameters
    ----------
    n_features : int
        Width of the rows.
    sparse : bool
        Whether rows are kept as CSR.
    window : int or None
        How many examples are kept; None keeps all.
    first : int
        Number of the first example in the stream.
    """

    def __init__(
        self, n_features: int, *, sparse: bool, window: int | None = None, first: int = 0
    ) -> None:
        self.window = window
        self.n_features = n_features
        self.n_labels = 0
        self.n_forgotten = first  # examples that came before those of the window
        self._rows: DenseRows | SparseRows = (
            SparseRows(n_features) if sparse else DenseRows(n_features, packed=False)
        )
        self._codes: DenseRows | None = None
        self._labels = Sliding(0, np.uint8)
        self._known: Sliding | None = None
        self._ids: Sliding | None = None
        self._corrected: Sliding | None = None
        self._corrections: Sliding | None = None  # which correction it was, 1, 2, …; 0 if none
        self._twins: dict[int, int] | None = None  # of corrected rows: digest to number
        self._numbers: Sliding | None = None  # once an example was taken out of the middle
        self._contents = Sliding(None, np.uint64)  # of the oldest; others are made when asked for
        self._index: dict[Hashable, int] | None = None  # names to numbers, once asked for
        self._n_seen = first

    def __len__(self) -> int:
        return len(self._rows)

    def _parts(self) -> tuple[Any, ...]:
        """Return all that is kept, None for what there is not."""
        return (
            self._rows, self._codes, self._labels, self._known, self._ids, self._corrected,
            self._corrections, self._numbers,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        parts = (*self._parts(), self._contents)
        return sum(part.nbytes for part in parts if part is not None)

    @property
    def n_seen(self) -> int:
        """Examples that were ever appended."""
        return self._n_seen

    @property
    def code_width(self) -> int | None:
        """Numbers per code; None while there are no codes."""
        return None if self._codes is None else int(self._codes.live.shape[1])

    # ------------------------------------------------------------------ change
    def grow(self, q: int) -> None:
        """Keep ``q`` labels per example; of the new ones, the stored examples have none.

        Only of those of which nothing is known, that is not known either.
        """
        old, self.n_labels = self.n_labels, q
        self._labels.widen(-(-q // 8))
        if self._known is not None:
            bits = np.unpackbits(self._known.live, axis=1, count=old)
            bits = np.pad(bits, ((0, 0), (0, -(-q // 8) * 8 - old)), constant_values=1)
            if old:
                bits[bits[:, :old].sum(axis=1) == 0, old:q] = 0
            self._known.replace(np.packbits(bits, axis=1))

    def append(
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None = None,
        codes: Singles | None = None,
    ) -> None:
        """Add examples; what no longer fits the window stays until :meth:`forget`."""
        if labels.known is not None and self._known is None:
            self._known = filled(len(self), self._labels.live.shape[1], np.uint8, 255)
        self._name(rows.shape[0], ids)
        self._rows.append(rows)
        self._labels.append(np.packbits(labels.Y, axis=1))
        if self._known is not None:
            self._known.append(_packed_known(labels))
        if self._codes is not None and codes is not None:
            self._codes.append(codes)

    def _name(self, n: int, ids: Sequence[Hashable] | None) -> None:
        """Count and name the ``n`` examples that are about to be added."""
        first = self._n_seen
        if ids is not None and self._ids is None:
            numbers = self.numbers(np.arange(len(self)))
            self._ids = Sliding(None, object)
            self._ids.append(numbers.astype(object))
        if self._ids is not None:
            self._ids.room(n)[:] = list(range(first, first + n)) if ids is None else list(ids)
        if self._index is not None:
            names = range(first, first + n) if ids is None else ids
            self._index.update(zip(names, range(first, first + n), strict=True))
        if self._numbers is not None:
            self._numbers.append(np.arange(first, first + n))
        if self._corrected is not None and self._corrections is not None:
            self._corrected.room(n)[:] = False
            self._corrections.room(n)[:] = 0
        self._n_seen += n

    @property
    def plain(self) -> bool:
        """Whether rows are dense and have codes, all labels are known, and none was corrected."""
        # Codes in groups are not plain: `arrays` shows only the latest of them.
        return (
            self._known is None
            and self._corrected is None
            and self._codes is not None
            and self._codes.groups is None
            and type(self._rows) is DenseRows
        )

    def arrays(self) -> tuple[Singles, Singles, Singles, int, Bytes, Bools]:
        """Return plain rows, their codes, these as a search reads them, labels, and corrections.

        To be read only, but for what :meth:`make_room` has made.
        """
        assert isinstance(self._rows, DenseRows)
        assert self._codes is not None
        corrected = _NOBODY if self._corrected is None else self._corrected.live
        labels = self._labels.live
        return self._rows.live, self._codes.live, *self._codes.panels, labels, corrected

    def make_room(self, ids: Sequence[Hashable] | None) -> int:
        """Make room for one plain example at the end; return where its code is to be packed."""
        assert isinstance(self._rows, DenseRows)
        assert self._codes is not None
        self._name(1, ids)
        self._rows.make_room()
        self._labels.make_room(1)
        return self._codes.make_room()

    def forget(self) -> None:
        """Drop what lies before the window."""
        excess = 0 if self.window is None else len(self) - self.window
        if excess > 0:
            self.drop(excess)

    def drop(self, n: int) -> None:
        """Drop the ``n`` oldest examples."""
        if self._index is not None:
            oldest = np.arange(n)
            for name, number in zip(self.ids(oldest), self.numbers(oldest).tolist(), strict=True):
                if self._index.get(name) == number:
                    del self._index[name]
        for part in self._parts():
            if part is not None:
                part.drop(n)
        self._contents.drop(min(n, len(self._contents)))
        self._twins = None
        self.n_forgotten += n

    def remove(self, position: int) -> Labels:
        """Take one example out, and return its labels."""
        gone = self.labels([position])
        if self._numbers is None:
            self._numbers = Sliding(None, np.int64)
            self._numbers.append(np.arange(self._n_seen - len(self), self._n_seen))
        if self._ids is None:
            self._ids = Sliding(None, object)
            self._ids.append(self._numbers.live.astype(object))
        self._index = self._twins = None  # an older example of the same name may come to light
        for part in self._parts():
            if isinstance(part, Sliding):
                part.remove(position, position + 1)
            elif part is not None:
                part.remove(position)
        if position < len(self._contents):
            self._contents.remove(position, position + 1)
        return gone

    def relabel(self, position: int, labels: Labels, which: int | None = None) -> Labels:
        """Give one example other labels, mark it as corrected, and return the old ones.

        ``which``: the number of the correction, by default the next.
        """
        old = self.labels([position])
        if labels.known is not None and self._known is None:
            self._known = filled(len(self), self._labels.live.shape[1], np.uint8, 255)
        self._labels.write(position, np.packbits(labels.Y, axis=1)[0])
        if self._known is not None:
            self._known.write(position, _packed_known(labels)[0])
        if self._corrected is None or self._corrections is None:
            self._corrected = filled(len(self), None, np.bool_, False)
            self._corrections = filled(len(self), None, np.int64, 0)
        self._corrected.write(position, True)
        self._corrections.write(position, self.last_correction + 1 if which is None else which)
        self._twins = None
        return old

    def corrected_twins(self, rows: Rows) -> Positions | None:
        """Return where the example is that equals each row and was corrected last."""
        if self._corrections is None:
            return None
        if self._twins is None:
            marks = np.flatnonzero(self._corrections.live)
            marks = marks[np.argsort(self._corrections.live[marks])]
            contents = digests(self._rows.live[marks]).tolist()
            self._twins = dict(zip(contents, self.numbers(marks).tolist(), strict=True))
            self._twins.pop(EMPTY, None)  # rows that say nothing are nobody's twins
        found = [self._twins.get(one, -1) for one in digests(rows).tolist()]
        return self.positions_of(np.array(found, np.int64))

    @property
    def last_correction(self) -> int:
        """The largest number of a correction of what is stored; 0 if there was none."""
        return 0 if self._corrections is None else int(self._corrections.live.max(initial=0))

    def corrections(self, positions: Positions) -> Positions:
        """Return which correction the examples at some positions had last; 0 if none."""
        if self._corrections is None:
            return np.zeros(len(positions), np.int64)
        return np.asarray(self._corrections.live[positions])

    def map_labels(self, columns: Sequence[Sequence[int]]) -> None:
        """Make each label anew as the union of old ones, given by their columns."""
        size = max(1, UNPACKED // max(self.n_labels, 1))
        parts = [
            _united(self.labels(slice(i, i + size)), columns)
            for i in range(0, max(len(self), 1), size)
        ]
        self.n_labels = len(columns)
        self._labels.replace(np.concatenate([np.packbits(new.Y, axis=1) for new in parts]))
        if self._known is not None:
            self._known.replace(np.concatenate([_packed_known(new) for new in parts]))

    def encode(self, encode: Callable[[Rows], Singles]) -> None:
        """Give every stored example the code that ``encode(rows)`` makes."""
        self.adopt(finish(self.encoding(encode)), encode)

    def encoding(self, encode: Callable[[Rows], Singles], *, dear: bool = False) -> Steps[Coded]:
        """Make such codes in steps, for :meth:`adopt`, of a picture that stays as it is."""
        examples, n = self.examples(), len(self)
        parts: list[Singles] = []

        def made(first: int) -> Singles:
            return encode(examples.rows_of(slice(first, min(first + ENCODED, n))))

        yield Work(made, range(0, max(n, 1), ENCODED), parts.append, dear and n > SHARED_CODES)
        return Coded(self.numbers(np.arange(len(self))), parts)

    def adopt(self, coded: Coded, encode: Callable[[Rows], Singles]) -> None:
        """Take over codes that were made ahead by ``encode``, of what is still stored."""
        codes = coded.of(self.numbers(np.arange(len(self))))
        self._codes = self._codes or DenseRows(codes.shape[1])
        self._codes.replace(codes)

    def widen_codes(self, d: int) -> None:
        """Append zeros to all codes, up to ``d`` numbers."""
        if self._codes is not None and self._codes.live.shape[1] < d:
            old = self._codes.live
            self._codes.replace(np.pad(old, ((0, 0), (0, d - old.shape[1]))))

    # ------------------------------------------------------------------ look
    def search_rows(
        self,
        queries: Rows,
        k: int,
        lo: Positions | None = None,
        hi: Positions | None = None,
        before: Found | None = None,
    ) -> Found:
        """Return squared distances and positions, (m, k), of the nearest rows of each query.

        For ``before`` see :meth:`DenseRows.search`.
        """
        return self._rows.search(queries, k, lo, hi, before)

    def search_codes(
        self,
        queries: Singles,
        k: int,
        lo: Positions | None = None,
        hi: Positions | None = None,
        before: Found | None = None,
    ) -> Found:
        """Return squared distances and positions, (m, k), of the nearest codes of each query."""
        assert self._codes is not None
        return self._codes.search(queries, k, lo, hi, before)

    def neighbors(self, *positions: Positions) -> Neighbors:
        """Return the labels of the examples at arrays of positions; nothing is copied."""
        known = _NOTHING if self._known is None else self._known.live
        corrected = _NOBODY if self._corrected is None else self._corrected.live
        return Neighbors(positions, self._labels.live, known, corrected)

    def similar(self, rows: Rows, candidates: Positions, factor: Distances | None) -> Nearest:
        """Return which of its candidates is most similar to each row, the newest of equals."""
        return most_similar(self._rows.inputs, inputs_of(rows), candidates, factor)

    def votes(self, found: Positions) -> Distances:
        """Return, for neighbours (m, k), the share of each label among those that know it."""
        out = np.empty((len(found), self.n_labels))
        (rows,), labels, known, _ = self.neighbors(found)
        gather_votes(rows, labels, known, out)
        return out

    def take(self, positions: Any) -> Rows:
        """Return the rows at some positions."""
        return self._rows.live[positions]

    def labels(self, positions: Any = slice(None)) -> Labels:
        """Return the labels at some positions, by default of all."""
        q = self.n_labels
        Y = np.unpackbits(self._labels.live[positions], axis=1, count=q)
        if self._known is None:
            return Labels(Y, None)
        known = np.unpackbits(self._known.live[positions], axis=1, count=q)
        return Labels(Y, known.view(np.bool_))

    def ids(self, positions: Positions) -> list[Hashable]:
        """Return the names at some positions; by default, numbers in the stream."""
        if self._ids is None:
            numbers: list[Hashable] = self.numbers(positions).tolist()
            return numbers
        return list(self._ids.live[positions])

    def numbers(self, positions: Positions) -> Positions:
        """Return the numbers in the stream."""
        if self._numbers is None:
            return np.asarray(positions) + (self._n_seen - len(self))
        numbers: Positions = self._numbers.live[positions]
        return numbers

    def corrected(self, positions: Any = slice(None)) -> Bools:
        """Return which of the examples at some positions, by default of all, were relabelled."""
        every = (
            np.broadcast_to(np.False_, len(self))
            if self._corrected is None
            else self._corrected.live
        )
        marks: Bools = every[positions]
        return marks

    def position_of(self, id: Hashable) -> int | None:
        """Return where the newest example of that name is stored; None if it is not."""
        if self._index is None:
            every = np.arange(len(self))
            self._index = dict(zip(self.ids(every), self.numbers(every).tolist(), strict=True))
        number = self._index.get(id)
        if number is None:
            return None
        if self._numbers is None:
            return number - (self._n_seen - len(self))
        return int(np.searchsorted(self._numbers.live, number))

    def examples(self, start: int = 0) -> Examples:
        """Return what is stored, from position ``start`` on, for sums over it."""
        first = self._n_seen - len(self) if self._numbers is None else self._numbers.live
        if not start:
            return Examples(self._rows.live, self.labels, first)
        first = first + start if isinstance(first, int) else first[start:]
        every = self.labels(slice(start, None))
        return Examples.of(self._rows.live[start:], every, first)

    def contents(self) -> Digests:
        """Return a digest of each stored row; see :mod:`tagstream.store.contents`."""
        done = len(self._contents)
        if done < len(self):
            self._contents.append(digests(self._rows.live[done:]))
        return np.array(self._contents.live)

    def positions_of(self, numbers: Positions) -> Positions:
        """Return where examples are stored, given by their numbers; −1 if they are not."""
        n = len(self)
        if self._numbers is None:
            at = numbers - (self._n_seen - n)
            return np.where((at >= 0) & (at < n), at, -1)
        if not n:
            return np.full(len(numbers), -1)
        at = np.minimum(np.searchsorted(self._numbers.live, numbers), n - 1)
        return np.where(self._numbers.live[at] == numbers, at, -1)

    def nearest_by(
        self,
        encode: Callable[[Rows], Singles],
        asked: Sequence[tuple[Singles, int]],
        *,
        dear: bool = False,
    ) -> Steps[list[Positions]]:
        """Return the k nearest of queries among codes that ``encode(rows)`` makes, (m, k)."""
        coded = yield from self.encoding(encode, dear=dear)
        made = coded.of(self.numbers(np.arange(len(self))))
        codes = DenseRows(made.shape[1])
        codes.replace(made)
        found = []
        for queries, k in asked:
            parts = [np.empty((0, k), np.int64)]
            starts = range(0, len(queries), ASKED)
            search = partial(_found, codes, queries, k)
            yield Work(search, starts, parts.append, len(self) > SHARED_CODES)
            found.append(np.concatenate(parts))
        return found

    def block_size(self, most: int) -> int:
        """Return how many examples may be appended at a time: few beside those of the window."""
        return most if self.window is None else min(most, self.window // 16 + 1)

    def first_seen(self, positions: Positions) -> Positions:
        """Return the first position inside the window of items that come at ``positions``."""
        if self.window is None:
            return np.zeros_like(positions)
        return np.maximum(positions - self.window, 0)

    # ------------------------------------------------------------------ keep
    def successor(self) -> LocalStore:
        """Return an empty store for the examples that come after these."""
        sparse = isinstance(self._rows, SparseRows)
        made = LocalStore(self.n_features, sparse=sparse, first=self._n_seen)
        made.grow(self.n_labels)
        if self.code_width is not None:
            made._codes = DenseRows(self.code_width)
        return made

    def snapshot(self) -> LocalStore:
        """Return an immutable picture, in constant time."""
        twin = object.__new__(LocalStore)
        twin.__dict__.update(self.__dict__)
        for name, part in self.__dict__.items():
            if isinstance(part, (Sliding, DenseRows, SparseRows)):
                setattr(twin, name, part.snapshot())
        twin._index = None  # the owner's goes on changing
        return twin

    def dump(self) -> dict[str, Any]:
        """Return the contents as plain values."""
        rows: Any = self._rows.live
        stored = (
            {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
            if isinstance(self._rows, SparseRows)
            else {"dense": rows}
        )
        marks = None if self._corrected is None else np.flatnonzero(self._corrected.live)
        return {
            "rows": {name: np.array(part) for name, part in stored.items()},
            "codes": None if self._codes is None else np.array(self._codes.live),
            "labels": np.array(self._labels.live),
            "known": None if self._known is None else np.array(self._known.live),
            "ids": None if self._ids is None else list(self._ids.live),
            "numbers": None if self._numbers is None else np.array(self._numbers.live),
            "corrected": marks,
            "corrections": None if marks is None else self.corrections(marks),
            "n_seen": self._n_seen,
            "n_forgotten": self.n_forgotten,
            "shape": [self.n_features, self.n_labels],
        }

    @classmethod
    def load(cls, state: Any, *, sparse: bool, window: int | None) -> Self:
        """Return the store that :meth:`dump` described, after checking that it makes sense."""
        expect_keys(
            "the store", state, "rows", "codes", "labels", "known", "ids", "numbers", "corrected",
            "corrections", "n_seen", "n_forgotten", "shape",
        )  # fmt: skip
        p, q = expect_counts("shape", *state["shape"])
        n_seen, n_forgotten = expect_counts(
            "n_seen and n_forgotten", state["n_seen"], state["n_forgotten"]
        )
        rows, n = _read_rows(state["rows"], p, sparse)
        width = -(-q // 8)
        labels = expect("labels", state["labels"], np.uint8, (n, width))
        spare = np.uint8((1 << (-q % 8)) - 1)  # bits of the last byte that stand for no label
        if width and (labels[:, -1] & spare).any():
            raise ValueError(f"labels must have {q} bits per example, got more")
        if n > (n_seen if window is None else min(n_seen, window)) or n_forgotten > n_seen - n:
            raise ValueError(f"the store must hold at most what was seen and fits, got {n} rows")
        made = cls(p, sparse=sparse, window=window)
        made.n_labels, made.n_forgotten, made._n_seen = q, n_forgotten, n_seen
        made._rows.append(rows)
        made._labels.replace(labels)
        if state["known"] is not None:
            known = expect("known", state["known"], np.uint8, (n, width))
            if (labels & ~known).any():
                raise ValueError("labels must be 0 where they are not known")
            if width:
                known[:, -1] |= spare
            made._known = Sliding(width, np.uint8)
            made._known.replace(known)
        if state["ids"] is not None:
            if not isinstance(state["ids"], list) or len(state["ids"]) != n:
                raise ValueError(f"ids must be a list of {n} names")
            made._ids = Sliding(None, object)
            made._ids.room(n)[:] = state["ids"]
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
        if state["corrected"] is not None:
            marks = expect("corrected", state["corrected"], np.int64, (None,))
            if (np.diff(marks, prepend=-1) <= 0).any() or marks.max(initial=0) >= max(n, 1):
                raise ValueError(f"corrected must rise within 0 to {n - 1}")
            which = expect(
                "corrections", state["corrections"], np.int64, marks.shape, least=1, most=2.0**60
            )
            made._corrected = filled(n, None, np.bool_, False)
            made._corrected.live[marks] = True
            made._corrections = filled(n, None, np.int64, 0)
            made._corrections.live[marks] = which
        elif state["corrections"] is not None:
            raise ValueError("there must be no corrections where nothing was corrected")
        if state["codes"] is not None:
            codes = expect("codes", state["codes"], np.float32, (n, None), **_SQUARES)
            made._codes = DenseRows(codes.shape[1])
            made._codes.replace(codes)
        return made


def _found(codes: DenseRows, queries: Singles, k: int, first: int) -> Positions:
    """Return the nearest codes of some queries, from ``first`` on."""
    return codes.search(queries[first : first + ASKED], k)[1]


def _united(labels: Labels, columns: Sequence[Sequence[int]]) -> Labels:
    """Return each label anew as the union of old ones, given by their columns."""
    Y, known = labels
    # A union is known where one of its parts is known to be there, or all are known.
    sure = np.ones(Y.shape, np.bool_) if known is None else known
    unions = [Y[:, c].any(axis=1) for c in columns]
    kept = [u | sure[:, c].all(axis=1) for u, c in zip(unions, columns, strict=True)]
    return Labels(
        np.stack(unions, axis=1).astype(np.uint8) if columns else Y[:, :0],
        None if known is None else np.stack(kept, axis=1) if columns else known[:, :0],
    )


def _packed_known(labels: Labels) -> Bytes:
    """Pack what is known; a bit beyond the last label counts as known."""
    known = np.ones(labels.Y.shape, bool) if labels.known is None else labels.known
    spare = -labels.Y.shape[1] % 8
    return np.packbits(np.pad(known, ((0, 0), (0, spare)), constant_values=True), axis=1)


def _read_rows(state: Any, p: int, sparse: bool) -> tuple[Rows, int]:
    expect_keys("rows", state, *(("data", "indices", "indptr") if sparse else ("dense",)))
    if not sparse:
        dense = expect("rows", state["dense"], np.float32, (None, p), **_SQUARES)
        return dense, len(dense)
    indptr = expect("indptr", state["indptr"], np.int64, (None,))
    data = expect("data", state["data"], np.float32, (None,), **_SQUARES)
    indices = expect("indices", state["indices"], np.int32, (len(data),))
    expect_indptr(indptr, len(data))
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    inside = not len(indices) or (indices.min() >= 0 and indices.max() < p)
    if not inside or ((np.diff(row) == 0) & (np.diff(indices) <= 0)).any():
        raise ValueError(f"indices must rise within 0 to {p - 1} in each row")
    rows = sp.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, p))
    return rows, len(indptr) - 1
