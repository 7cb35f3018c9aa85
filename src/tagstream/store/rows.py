"""Stored rows, dense or sparse, with exact nearest-neighbour search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.checks import Distances, Positions, Singles
from tagstream.core.inputs import Inputs, inputs_of
from tagstream.core.search import (
    Groups,
    row_squares,
    scan,
    scan_groups,
    scan_one,
    scan_rows,
    scan_sparse,
)
from tagstream.core.simd.tiles import TOGETHER
from tagstream.execution.threads import in_threads
from tagstream.limits import LIMITS, Limits
from tagstream.store.columns import Sliding
from tagstream.store.index import Panels, axes_of

__all__ = ["DenseRows", "SparseRows"]

Found = tuple[Distances, Positions]

FEW = 8  # queries for which it is not worth it
WIDEST = 1024  # numbers of a row that may have a shadow
SHARED_WORK = 2e8  # multiplications from which a search is worth a second thread


def _seen(
    n: int, m: int, lo: Positions | None, hi: Positions | None
) -> tuple[Positions, Positions]:
    return (
        np.zeros(m, np.int64) if lo is None else lo,
        np.full(m, n, np.int64) if hi is None else hi,
    )


def _nothing_found(m: int, k: int) -> Found:
    best, found = np.empty((m, k)), np.empty((m, k), np.int64)
    best.fill(np.inf)
    found.fill(-1)
    return best, found


class DenseRows:
    """Rows of single-precision numbers with exact nearest-neighbour search.

    Parameters
    ----------
    width : int
        Numbers per row.
    packed : bool
        Whether to hold a second copy of the rows, in the order in which a search reads them.  A
        single query is faster for it; many queries at a time make their own.  Of rows that are in
        groups, see :meth:`replace`, only shadows are held twice.
    limits : Limits, optional
        From which numbers of rows and queries on a search takes another way.
    """

    _panels: Panels | None

    def __init__(self, width: int, *, packed: bool = True, limits: Limits = LIMITS) -> None:
        self._rows = Sliding(width, np.float32)
        self._packed, self._limits = packed, limits
        self._pack()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def live(self) -> Singles:
        """The rows, (n, width), oldest first."""
        return self._rows.live

    @property
    def panels(self) -> tuple[Singles, int]:
        """The rows once more, as a search reads them, and how many places come before the first.

        If there are groups, only the latest, and the number of places is negative.
        """
        assert self._panels is not None
        return self._panels.live

    @property
    def groups(self) -> Groups | None:
        """Groups of all other rows, if there are any."""
        return self._panels.groups if self._panels is not None and self._panels.grouped else None

    @property
    def inputs(self) -> Inputs:
        """The same in the form of the compiled loops."""
        return inputs_of(self.live)

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        return self._rows.nbytes + (0 if self._panels is None else self._panels.nbytes)

    def snapshot(self) -> DenseRows:
        """Return an immutable picture."""
        twin = object.__new__(DenseRows)
        twin._rows, twin._packed, twin._limits = self._rows.snapshot(), self._packed, self._limits
        twin._panels = None if self._panels is None else self._panels.snapshot()
        return twin

    def append(self, rows: npt.NDArray[np.floating[Any]]) -> None:
        """Add rows at the end."""
        new = self._rows.room(len(rows))
        new[:] = rows
        if self._panels is not None:
            self._panels.append(new)
            if self._panels.grouped and self._panels.many:
                self._panels.group(self.live)

    def drop(self, n: int) -> None:
        """Forget the ``n`` oldest rows."""
        self._rows.drop(n)
        if self._panels is not None:
            self._panels.drop(n)
            if self._panels.grouped and self._panels.stale:
                self._pack(grouped=True)

    def remove(self, position: int) -> None:
        """Take one row out."""
        self._rows.remove(position, position + 1)
        if self._panels is not None:
            self._panels.remove(position, self.live)

    def replace(self, rows: Singles) -> None:
        """Put other rows, as many and perhaps of another width, in the place of all.

        If they are many and vary in few directions, they are searched in groups from there on.
        """
        self._rows.replace(rows)
        self._pack(grouped=True)

    def _pack(self, *, grouped: bool = False) -> None:
        n, d = self.live.shape
        # Before there is a label, codes have no numbers.
        if self._packed and d > 0:
            many = grouped and n >= self._limits.grouped and d <= WIDEST
            axes = axes_of(self.live, self._limits) if many else None
            self._panels = Panels(self.live, axes, self._limits)
        else:
            self._panels = None

    def search(
        self,
        queries: Singles,
        k: int,
        lo: Positions | None = None,
        hi: Positions | None = None,
        before: Found | None = None,
    ) -> Found:
        """Return squared distances and positions, (m, k), of the nearest rows of each query.

        See :func:`tagstream.store.lookup.nearest_rows`.  Costs O(m n width), in groups usually far
        less.  What was found ``before`` in older rows takes part, is changed in place, and goes
        first among equals.
        """
        m, rows = len(queries), self.live
        best, found = _nothing_found(m, k) if before is None else before
        if not len(rows):
            return best, found
        groups = self.groups
        if (
            self._panels is not None
            and groups is None
            and (m == 1 or m * len(rows) <= self._limits.little)
        ):
            panels, skip = self._panels.live
            queries = np.ascontiguousarray(queries)
            for i in range(m):
                first, last = 0 if lo is None else lo[i], len(rows) if hi is None else hi[i]
                scan_one(rows, panels, skip, queries[i], first, last, best[i], found[i])
            return best, found
        lo, hi = _seen(len(rows), m, lo, hi)
        if self._panels is None and (m < FEW or not rows.shape[1]):
            for i in range(m):
                scan_rows(rows, queries[i], lo[i], hi[i], best[i], found[i])
            return best, found
        queries = np.ascontiguousarray(queries)
        # Queries do not know each other, so blocks of them may be shared out with equal results.
        height = max(TOGETHER, self._limits.scanned // rows.shape[1] // TOGETHER * TOGETHER)
        blocks = [slice(i, i + height) for i in range(0, m, height)]

        for panels, skip in self._parts(int(lo.min()), int(hi.max())):

            def scan_block(block: slice, panels: Singles = panels, skip: int = skip) -> None:
                part = queries[block], lo[block], hi[block], best[block], found[block]
                if groups is not None:
                    scan_groups(rows, groups, *part)
                if m == 1:
                    scan_one(rows, panels, skip, *(values[0] for values in part))
                else:
                    scan(rows, panels, skip, *part)

            work = float(m) * (panels.size + (0 if groups is None else groups.panels.size / 8))
            worth = len(blocks) > 1 and work > SHARED_WORK
            for _ in in_threads(scan_block, blocks, worth=worth):
                pass
        return best, found

    def _parts(self, first: int, stop: int) -> Iterator[tuple[Singles, int]]:
        """Yield panels that hold, one after the other, the rows from ``first`` to ``stop``.

        Those that are in no groups.
        """
        if self._panels is not None:
            yield self._panels.live
            return
        packed = self._limits.packed
        for i in range(first, stop, packed):
            panels, skip = Panels(self.live[i : min(i + packed, stop)]).live
            yield panels, skip - i


class SparseRows:
    """CSR rows of single-precision numbers with exact nearest-neighbour search."""

    def __init__(self, width: int) -> None:
        self.width = width
        # Where each row begins, and where the last ends, counted from the first entry ever.
        self._bounds = Sliding(None, np.int64)
        self._bounds.append(np.zeros(1, np.int64))
        self._indices = Sliding(None, np.int32)
        self._data = Sliding(None, np.float32)
        self._norms = Sliding(None, np.float64)
        self._dropped = 0  # entries before the first live one

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @property
    def live(self) -> sp.csr_matrix:
        """The rows as a CSR matrix (n, width), oldest first; it shares the stored entries."""
        rows = sp.csr_matrix((len(self), self.width), dtype=np.float32)
        rows.data, rows.indices, rows.indptr = self._data.live, self._indices.live, self._indptr()
        rows.has_canonical_format = True
        return rows

    @property
    def inputs(self) -> Inputs:
        """The same in the form of the compiled loops, without a matrix around it."""
        none = np.empty((0, 0), np.float32)
        return Inputs(self._indptr(), self._indices.live, self._data.live, none)

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        parts = (self._bounds, self._indices, self._data, self._norms)
        return sum(part.nbytes for part in parts)

    def snapshot(self) -> SparseRows:
        """Return an immutable picture."""
        twin = object.__new__(SparseRows)
        twin.width, twin._dropped = self.width, self._dropped
        twin._bounds, twin._norms = self._bounds.snapshot(), self._norms.snapshot()
        twin._indices, twin._data = self._indices.snapshot(), self._data.snapshot()
        return twin

    def append(self, rows: sp.csr_matrix) -> None:
        """Add rows at the end."""
        indptr = rows.indptr.astype(np.int64)
        self._bounds.append(self._dropped + len(self._data) + indptr[1:])
        self._indices.append(rows.indices)
        new = self._data.room(len(rows.data))
        new[:] = rows.data
        row_squares(indptr, new, self._norms.room(rows.shape[0]))

    def drop(self, n: int) -> None:
        """Forget the ``n`` oldest rows."""
        if n:
            entries = int(self._bounds.live[n]) - self._dropped
            self._dropped += entries
            self._indices.drop(entries)
            self._data.drop(entries)
            self._bounds.drop(n)
            self._norms.drop(n)

    def remove(self, position: int) -> None:
        """Take one row out."""
        bounds = self._indptr()
        first, stop = int(bounds[position]), int(bounds[position + 1])
        bounds = np.delete(self._bounds.live, position + 1)
        bounds[position + 1 :] -= stop - first
        self._bounds.replace(bounds)
        self._norms.remove(position, position + 1)
        self._indices.remove(first, stop)
        self._data.remove(first, stop)

    def search(
        self,
        queries: sp.csr_matrix,
        k: int,
        lo: Positions | None = None,
        hi: Positions | None = None,
        before: Found | None = None,
    ) -> Found:
        """Return squared distances and positions of the nearest rows, as :class:`DenseRows`."""
        m = queries.shape[0]
        lo, hi = _seen(len(self), m, lo, hi)
        best, found = _nothing_found(m, k) if before is None else before
        scan_sparse(
            self._indptr(), self._indices.live, self._data.live, self._norms.live,
            queries.indptr.astype(np.int64), queries.indices.astype(np.int32, copy=False),
            queries.data.astype(np.float32, copy=False), self.width, lo, hi, best, found,
        )  # fmt: skip
        return best, found

    def _indptr(self) -> Positions:
        bounds: Positions = self._bounds.live
        # While nothing was dropped they are what is asked for: no copy for every item that comes.
        return bounds - self._dropped if self._dropped else bounds
