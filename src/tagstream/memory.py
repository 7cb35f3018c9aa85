"""Stored examples: rows, codes, labels and names, with an optional window, and exact search.

Everything is kept oldest first in contiguous arrays that grow at one end and are dropped at the
other, so a position is an age, a slice is a matrix, and a window needs no modular arithmetic.
An array has at most an eighth of spare room.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.checks import Bytes, Rows, expect, expect_indptr, expect_keys
from tagstream.kernels import dense_squares, gather_votes, row_squares, scan, scan_one, scan_sparse
from tagstream.labels import Labels

__all__ = ["DenseRows", "Memory", "SparseRows"]

Positions = npt.NDArray[np.int64]

_NOTHING = np.empty((0, 0), np.uint8)

# A tile of products, queries by stored rows, stays in cache between being made and being
# scanned; wide rows want more queries at a time.
WIDE = 64
TILE, WIDE_TILE = (128, 2048), (512, 2048)


class _Sliding:
    """An array whose rows are appended at the end and dropped at the front, kept contiguous."""

    def __init__(self, width: int | None, dtype: npt.DTypeLike) -> None:
        self._array = np.zeros((0,) if width is None else (0, width), dtype)
        self._start = self._stop = 0

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def live(self) -> npt.NDArray[Any]:
        return self._array[self._start : self._stop]

    @property
    def nbytes(self) -> int:
        return self._array.nbytes

    def append(self, block: npt.NDArray[Any]) -> None:
        self.room(len(block))[:] = block

    def room(self, n: int) -> npt.NDArray[Any]:
        """Make ``n`` new rows at the end and return them to be written."""
        if self._stop + n > len(self._array):
            need = len(self) + n
            fits = need <= len(self._array) * 8 // 9
            array = self._array if fits else self._empty(need + need // 8 + 8)
            array[: len(self)] = self.live  # numpy copies overlapping ranges safely
            self._start, self._stop, self._array = 0, len(self), array
        self._stop += n
        return self._array[self._stop - n : self._stop]

    def drop(self, n: int) -> None:
        self._start += n

    def replace(self, rows: npt.NDArray[Any]) -> None:
        """Put other rows in the place of all."""
        self._array, self._start, self._stop = rows, 0, len(rows)

    def widen(self, width: int, fill: int = 0) -> None:
        """Give every row more columns, filled with ``fill``."""
        old = self.live
        if old.shape[1] == width:
            return
        self._array = np.full((len(old) + len(old) // 8 + 8, width), fill, old.dtype)
        self._array[: len(old), : old.shape[1]] = old
        self._start, self._stop = 0, len(old)

    def _empty(self, n: int) -> npt.NDArray[Any]:
        return np.empty((n, *self._array.shape[1:]), self._array.dtype)


def _seen(
    n: int, m: int, lo: Positions | None, hi: Positions | None
) -> tuple[Positions, Positions]:
    return (
        np.zeros(m, np.int64) if lo is None else lo,
        np.full(m, n, np.int64) if hi is None else hi,
    )


class DenseRows:
    """Rows of single-precision numbers with exact nearest-neighbour search.

    Parameters
    ----------
    width : int
        Numbers per row.
    """

    def __init__(self, width: int) -> None:
        self._rows = _Sliding(width, np.float32)
        self._norms = _Sliding(None, np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def live(self) -> npt.NDArray[np.float32]:
        """The rows, (n, width), oldest first."""
        return self._rows.live

    @property
    def norms(self) -> npt.NDArray[np.float32]:
        """Their squared lengths, (n,)."""
        return self._norms.live

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        return self._rows.nbytes + self._norms.nbytes

    def append(self, rows: npt.NDArray[np.floating[Any]]) -> None:
        """Add rows at the end."""
        new = self._rows.room(len(rows))
        new[:] = rows
        dense_squares(new, self._norms.room(len(rows)))

    def extend(self) -> None:
        """Add a row that the caller writes, and its squared length."""
        self._rows.room(1)
        self._norms.room(1)

    def drop(self, n: int) -> None:
        """Forget the ``n`` oldest rows."""
        self._rows.drop(n)
        self._norms.drop(n)

    def replace(self, rows: npt.NDArray[np.float32]) -> None:
        """Put other rows, as many and perhaps of another width, in the place of all."""
        self._rows.replace(rows)
        self._norms.replace(_squares(rows))

    def search(
        self,
        queries: npt.NDArray[np.float32],
        k: int,
        lo: Positions | None = None,
        hi: Positions | None = None,
    ) -> tuple[npt.NDArray[np.float64], Positions]:
        """Return squared distances and positions, (m, k), of the nearest rows of each query.

        Sorted by distance, then by age, older first; infinity and −1 where fewer than ``k`` rows
        are seen.  Query i sees the positions ``lo[i] <= position < hi[i]``.  Costs O(m n width).
        """
        m, codes, norms = len(queries), self._rows.live, self._norms.live
        best, found = np.empty((m, k)), np.empty((m, k), np.int64)
        best.fill(np.inf)
        found.fill(-1)
        if not len(codes):
            return best, found
        if m == 1:
            first, last = 0 if lo is None else lo[0], len(codes) if hi is None else hi[0]
            scan_one(codes, norms, queries[0], first, last, best[0], found[0])
            return best, found
        lo, hi = _seen(len(self), m, lo, hi)
        slack = _slack(queries, norms)
        height, width = WIDE_TILE if codes.shape[1] > WIDE else TILE
        for i in range(0, m, height):
            block = slice(i, i + height)
            for j in range(int(lo[block].min()), int(hi[block].max()), width):
                dots = queries[block] @ codes[j : j + width].T
                scan(
                    dots, j, codes, norms, queries[block], slack[block],
                    lo[block], hi[block], best[block], found[block],
                )  # fmt: skip
        return best, found


def _squares(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    squares = np.empty(len(rows), np.float32)
    dense_squares(rows, squares)
    return squares


def _slack(queries: npt.NDArray[np.float32], norms: npt.NDArray[np.float32]) -> Any:
    """Bound the error of ‖c‖² − 2 q·c in single precision over all stored c, per query.

    A product of length d errs by at most (d + 1)·ε‖q‖‖c‖, ε = 2⁻²³, in whatever order it is
    summed; the two norms and the subtraction add a few ε of the size of their operands.
    """
    largest = float(norms.max())
    size = np.sqrt(_squares(queries).astype(np.float64) * largest)
    return 2.0**-23 * (2 * (queries.shape[1] + 4) * size + 4 * largest)


class SparseRows:
    """CSR rows of single-precision numbers with exact nearest-neighbour search."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._ends = _Sliding(None, np.int64)  # of each row, counted from the first entry ever
        self._indices = _Sliding(None, np.int32)
        self._data = _Sliding(None, np.float32)
        self._norms = _Sliding(None, np.float64)
        self._dropped = 0  # entries before the first live one

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def live(self) -> sp.csr_matrix:
        """The rows as a CSR matrix (n, width), oldest first; it shares the stored entries."""
        rows = sp.csr_matrix((len(self), self.width), dtype=np.float32)
        rows.data, rows.indices, rows.indptr = self._data.live, self._indices.live, self._indptr()
        rows.has_canonical_format = True
        return rows

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        parts = (self._ends, self._indices, self._data, self._norms)
        return sum(part.nbytes for part in parts)

    def append(self, rows: sp.csr_matrix) -> None:
        """Add rows at the end."""
        indptr = rows.indptr.astype(np.int64)
        self._ends.append(self._dropped + len(self._data) + indptr[1:])
        self._indices.append(rows.indices)
        new = self._data.room(len(rows.data))
        new[:] = rows.data
        row_squares(indptr, new, self._norms.room(rows.shape[0]))

    def drop(self, n: int) -> None:
        """Forget the ``n`` oldest rows."""
        if n:
            entries = int(self._ends.live[n - 1]) - self._dropped
            self._dropped += entries
            self._indices.drop(entries)
            self._data.drop(entries)
            self._ends.drop(n)
            self._norms.drop(n)

    def search(
        self,
        queries: sp.csr_matrix,
        k: int,
        lo: Positions | None = None,
        hi: Positions | None = None,
    ) -> tuple[npt.NDArray[np.float64], Positions]:
        """Return squared distances and positions of the nearest rows, as :class:`DenseRows`."""
        m = queries.shape[0]
        lo, hi = _seen(len(self), m, lo, hi)
        best, found = np.full((m, k), np.inf), np.full((m, k), -1, np.int64)
        scan_sparse(
            self._indptr(), self._indices.live, self._data.live, self._norms.live,
            queries.indptr.astype(np.int64), queries.indices.astype(np.int32, copy=False),
            queries.data.astype(np.float32, copy=False), self.width, lo, hi, best, found,
        )  # fmt: skip
        return best, found

    def _indptr(self) -> Positions:
        return np.concatenate(([0], self._ends.live - self._dropped))


class Memory:
    """The examples a learner can look back on.

    Parameters
    ----------
    n_features : int
        Width of the rows.
    sparse : bool
        Whether rows are kept as CSR.
    window : int or None
        How many examples are kept; None keeps all.

    Attributes
    ----------
    rows : DenseRows or SparseRows
        The inputs.
    codes : DenseRows or None
        What the learner made of the inputs, searched instead of them; None until it sets them.
    """

    def __init__(self, n_features: int, *, sparse: bool, window: int | None = None) -> None:
        self.window = window
        self.n_features = n_features
        self.rows: DenseRows | SparseRows = (SparseRows if sparse else DenseRows)(n_features)
        self.codes: DenseRows | None = None
        self.n_labels = 0
        self.n_forgotten = 0
        self._labels = _Sliding(0, np.uint8)
        self._known: _Sliding | None = None
        self._ids: _Sliding | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        parts = (self.rows, self.codes, self._labels, self._known, self._ids)
        return sum(part.nbytes for part in parts if part is not None)

    def grow(self, q: int) -> None:
        """Keep ``q`` labels per example; of the new ones, the stored examples have none.

        Only of those of which nothing is known, that is not known either.
        """
        old, self.n_labels = self.n_labels, q
        self._labels.widen(-(-q // 8))
        if self._known is not None:
            self._known.widen(-(-q // 8), fill=255)
            bits = np.unpackbits(self._known.live, axis=1)
            if old:
                bits[bits[:, :old].sum(axis=1) == 0, old:q] = 0
                self._known.live[:] = np.packbits(bits, axis=1)

    def append(
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None = None,
        codes: npt.NDArray[np.float32] | None = None,
    ) -> None:
        """Add examples; what no longer fits the window stays until :meth:`forget`."""
        n = rows.shape[0]
        if labels.known is not None and self._known is None:
            self._known = _Sliding(self._labels.live.shape[1], np.uint8)
            self._known.room(len(self))[:] = 255
        if ids is not None and self._ids is None:
            self._ids = _Sliding(None, object)
            self._ids.room(len(self))[:] = np.arange(len(self)) + self.n_forgotten
        if self._ids is not None:
            first = self.n_forgotten + len(self)
            self._ids.room(n)[:] = list(range(first, first + n)) if ids is None else list(ids)
        self.rows.append(rows)
        self._labels.append(np.packbits(labels.Y, axis=1))
        if self._known is not None:
            unpadded = np.ones(labels.Y.shape, bool) if labels.known is None else labels.known
            # A bit beyond the last label counts as known, so that growth needs no repair.
            spare = -labels.Y.shape[1] % 8
            padded = np.pad(unpadded, ((0, 0), (0, spare)), constant_values=True)
            self._known.append(np.packbits(padded, axis=1))
        if self.codes is not None and codes is not None:
            self.codes.append(codes)

    def extend(self) -> None:
        """Add an example that the caller writes: the last row of all the arrays, names excepted."""
        assert isinstance(self.rows, DenseRows)
        assert self.codes is not None
        self.rows.extend()
        self.codes.extend()
        self._labels.room(1)

    def start_codes(self, codes: npt.NDArray[np.float32]) -> None:
        """Give each stored example its code, (n, d), for the first time."""
        self.codes = DenseRows(codes.shape[1])
        self.codes.append(codes)

    def block_size(self, most: int) -> int:
        """Return how many examples may be appended at a time: few beside those of the window."""
        return most if self.window is None else min(most, self.window // 16 + 1)

    def forget(self) -> None:
        """Drop what lies before the window."""
        excess = 0 if self.window is None else max(len(self) - self.window, 0)
        if excess:
            for part in (self.rows, self.codes, self._labels, self._known, self._ids):
                if part is not None:
                    part.drop(excess)
            self.n_forgotten += excess

    def first_seen(self, positions: Positions) -> Positions:
        """Return the first position inside the window of items that come at ``positions``."""
        if self.window is None:
            return np.zeros_like(positions)
        return np.maximum(positions - self.window, 0)

    def labels(self, positions: Any = slice(None)) -> Labels:
        """Return the labels of the examples at ``positions``, by default of all."""
        q = self.n_labels
        Y = np.unpackbits(self._labels.live[positions], axis=1, count=q)
        if self._known is None:
            return Labels(Y, None)
        known = np.unpackbits(self._known.live[positions], axis=1, count=q)
        return Labels(Y, known.view(np.bool_))

    def ids(self, positions: Positions) -> list[Hashable]:
        """Return the names of the examples at ``positions``; by default, numbers in the stream."""
        if self._ids is None:
            numbers: list[Hashable] = (np.asarray(positions) + self.n_forgotten).tolist()
            return numbers
        return list(self._ids.live[positions])

    @property
    def plain(self) -> bool:
        """Whether every label is known and no item was given a name."""
        return self._known is None and self._ids is None

    @property
    def bits(self) -> tuple[Bytes, Bytes]:
        """The packed labels, (n, ⌈q/8⌉), and which of them are known; the latter empty if all."""
        return self._labels.live, _NOTHING if self._known is None else self._known.live

    def votes(self, positions: Positions) -> npt.NDArray[np.float64]:
        """Return, for neighbours (m, k), the share of each label among those that know it."""
        out = np.empty((len(positions), self.n_labels))
        gather_votes(positions, *self.bits, out)
        return out

    def dump(self) -> dict[str, Any]:
        """Return the contents as plain values."""
        rows: Any = self.rows.live
        stored = (
            {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
            if isinstance(self.rows, SparseRows)
            else {"dense": rows}
        )
        return {
            "rows": {name: np.array(part) for name, part in stored.items()},
            "codes": None if self.codes is None else np.array(self.codes.live),
            "labels": np.array(self._labels.live),
            "known": None if self._known is None else np.array(self._known.live),
            "ids": None if self._ids is None else list(self._ids.live),
            "n_forgotten": self.n_forgotten,
            "shape": [self.n_features, self.n_labels],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`dump` gave, into an empty memory that has its labels."""
        expect_keys(
            "memory", state, "rows", "codes", "labels", "known", "ids", "n_forgotten", "shape"
        )
        if state["shape"] != [self.n_features, self.n_labels]:
            raise ValueError(
                f"memory must have {self.n_features} features and {self.n_labels} labels, "
                f"got {state['shape']}"
            )
        rows, n = _read_rows(state["rows"], self.rows)
        width = -(-self.n_labels // 8)
        bits = {"labels": expect("labels", state["labels"], np.uint8, (n, width))}
        if state["known"] is not None:
            bits["known"] = expect("known", state["known"], np.uint8, (n, width))
        if self.window is not None and n > self.window:
            raise ValueError(f"rows must be at most the window of {self.window}, got {n}")
        forgotten = state["n_forgotten"]
        if not isinstance(forgotten, int) or forgotten < 0:
            raise ValueError(f"n_forgotten must be a count, got {forgotten!r}")
        ids = state["ids"]
        if ids is not None and len(ids) != n:
            raise ValueError(f"ids must have {n} entries, got {len(ids)}")
        self.rows.append(rows)
        self._labels.append(bits["labels"])
        if "known" in bits:
            self._known = _Sliding(width, np.uint8)
            self._known.append(bits["known"])
        if ids is not None:
            self._ids = _Sliding(None, object)
            self._ids.room(n)[:] = ids
        if state["codes"] is not None:
            self.start_codes(expect("codes", state["codes"], np.float32, (n, None)))
        self.n_forgotten = forgotten


def _read_rows(state: dict[str, Any], into: DenseRows | SparseRows) -> tuple[Rows, int]:
    dense_rows = isinstance(into, DenseRows)
    expect_keys("rows", state, *(("dense",) if dense_rows else ("data", "indices", "indptr")))
    if isinstance(into, DenseRows):
        dense = expect("rows", state["dense"], np.float32, (None, into.live.shape[1]))
        return dense, len(dense)
    indptr = expect("indptr", state["indptr"], np.int64, (None,))
    data = expect("data", state["data"], np.float32, (None,))
    indices = expect("indices", state["indices"], np.int32, (len(data),))
    expect_indptr(indptr, len(data))
    if len(indices) and not (indices.min() >= 0 and indices.max() < into.width):
        raise ValueError(f"indices must lie in 0 to {into.width - 1}")
    rows = sp.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, into.width))
    return rows, len(indptr) - 1
