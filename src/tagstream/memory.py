"""Stored examples: rows, codes, labels and names, with an optional window, and exact search.

A learner is given its :class:`Store` and knows it by that face alone; :class:`LocalStore` keeps
everything in this process.  Everything is kept oldest first in contiguous arrays that grow at one
end and are dropped at the other, so a position is an age, a slice is a matrix, and a window needs
no modular arithmetic.  An array has at most an eighth of spare room.

What has been handed out by :meth:`Store.snapshot` never changes: rows are only written behind those
that it shows, and what would move or be rewritten is copied first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.checks import (
    LARGEST_VALUE,
    Bools,
    Bytes,
    Rows,
    blas_threads,
    expect,
    expect_counts,
    expect_indptr,
    expect_keys,
)
from tagstream.copies import Nearest, most_similar
from tagstream.examples import Examples
from tagstream.fastmap import Inputs, inputs_of
from tagstream.kernels import gather_votes
from tagstream.labels import Labels
from tagstream.search import (
    BOX,
    GROUP,
    Groups,
    cast_shadows,
    group_rows,
    group_shadows,
    pack,
    row_squares,
    scan,
    scan_groups,
    scan_one,
    scan_rows,
    scan_sparse,
)
from tagstream.steps import Steps, Work, finish
from tagstream.threads import in_threads
from tagstream.tiles import LANES, TOGETHER

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Coded", "DenseRows", "LocalStore", "Neighbors", "SparseRows", "Store"]

Positions = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]
Distances = npt.NDArray[np.float64]
Found = tuple[Distances, Positions]

_NOTHING = np.empty((0, 0), np.uint8)
_NOBODY = np.empty(0, np.bool_)
_NO_AXES = np.empty((0, 0))

# Numbers in the queries that pass over the stored rows together, and stay in a near cache.
SCANNED = 1 << 14
PACKED = 1 << 13  # rows that are packed at a time where none are stored so
FEW = 8  # queries for which it is not worth it
LITTLE = 1 << 13  # pairs for which it is not worth to wait for another loop to be compiled
GROUPED = 4096  # rows from which it is worth to group them
WIDEST = 1024  # numbers of a row that may have a shadow
SHADOW = 16  # numbers of a shadow,
UNSEEN = 1e-3  # or fewer, if they leave out no more than this share of the variance
IN_BOX, IN_SHADOW = (
    0.8,
    0.95,
)  # shares of it that bounds and shadows must hold, or it is not worth it
SAMPLED = 4096  # rows that tell in which directions all of them vary
SHARED_WORK = 2e8  # multiplications from which a search is worth a second thread

ENCODED = 512  # rows whose codes are made at a time
SHARED_CODES = 8192  # rows from which on it is worth a second thread
UNPACKED = 1 << 24  # labels of rows that are unpacked at a time

# Numbers whose squares stay in single precision.
_SQUARES = {"least": -LARGEST_VALUE, "most": LARGEST_VALUE}


class Neighbors(NamedTuple):
    """Labels of stored examples in the form that kernels take.

    Attributes
    ----------
    rows : tuple of int arrays
        For each array of positions that was given, where below the labels stand; −1 is none.
        Positions that follow each other stand one below the other.
    labels, known : uint8 arrays of shape (n, ⌈q/8⌉)
        Packed bits, most significant first; ``known`` is of length 0 when all is known.
    corrected : bool array of shape (n,)
        Which were relabelled; of length 0 when none was.
    """

    rows: tuple[Positions, ...]
    labels: Bytes
    known: Bytes
    corrected: Bools


class Coded:
    """Codes that were made ahead of stored examples, and of some that have come since.

    Parameters
    ----------
    numbers : int array of shape (n,)
        The numbers in the stream of the examples that were stored.
    parts : list of arrays
        Their codes, some rows each.
    """

    def __init__(self, numbers: Positions, parts: list[Singles]) -> None:
        self._numbers, self._parts = [numbers], parts

    def add(self, number: int, codes: Singles) -> None:
        """Add the codes of examples that came later, with the number of the first."""
        self._numbers.append(np.arange(number, number + len(codes)))
        self._parts.append(codes)

    def of(self, numbers: Positions) -> Singles:
        """Return the codes of examples by their numbers, which must be among these."""
        width = max(part.shape[1] for part in self._parts)  # labels may have come in between
        parts = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in self._parts]
        codes = np.concatenate(parts) if len(parts) > 1 else parts[0]
        if len(codes) == len(numbers):
            return codes
        kept: Singles = codes[np.searchsorted(np.concatenate(self._numbers), numbers)]
        return kept


class Store(Protocol):
    """What a learner needs of its memory.

    Positions count what is stored, oldest first; numbers count the whole stream, from 0.
    """

    window: int | None
    n_features: int

    def __len__(self) -> int: ...

    @property
    def n_labels(self) -> int:
        """Labels per example."""

    @property
    def n_seen(self) -> int:
        """Examples that were ever appended: the number of the next."""

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""

    @property
    def code_width(self) -> int | None:
        """Numbers per code; None while there are no codes."""

    # ---- change
    def grow(self, q: int) -> None:
        """Keep ``q`` labels per example; of the new ones, the stored examples have none."""

    def append(
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None = None,
        codes: Singles | None = None,
    ) -> None:
        """Add examples; what no longer fits the window stays until :meth:`forget`."""

    def forget(self) -> None:
        """Drop what lies before the window."""

    def remove(self, position: int) -> Labels:
        """Take one example out, and return its labels."""

    def relabel(self, position: int, labels: Labels) -> Labels:
        """Give one example other labels, mark it as corrected, and return the old ones."""

    def map_labels(self, columns: Sequence[Sequence[int]]) -> None:
        """Make each label anew as the union of old ones, given by their columns."""

    def encode(self, encode: Callable[[Rows], Singles]) -> None:
        """Give every stored example the code that ``encode(rows)`` makes."""

    def encoding(self, encode: Callable[[Rows], Singles], *, dear: bool = False) -> Steps[Coded]:
        """Make such codes in steps, for :meth:`adopt`, of a picture that stays as it is.

        ``dear``: some rows are so much work that they are worth a thread.
        """

    def adopt(self, coded: Coded, encode: Callable[[Rows], Singles]) -> None:
        """Take over codes that were made ahead by ``encode``, of what is still stored."""

    def widen_codes(self, d: int) -> None:
        """Append zeros to all codes, up to ``d`` numbers."""

    # ---- look
    def search_rows(
        self, queries: Rows, k: int, lo: Positions | None = None, hi: Positions | None = None
    ) -> tuple[Distances, Positions]:
        """Return squared distances and positions, (m, k), of the nearest rows of each query.

        Sorted by distance, then by age, older first; infinity and −1 where fewer than ``k`` rows
        are seen.  Query i sees the positions ``lo[i] <= position < hi[i]``.
        """

    def search_codes(
        self, queries: Singles, k: int, lo: Positions | None = None, hi: Positions | None = None
    ) -> tuple[Distances, Positions]:
        """Return the same among the codes."""

    def neighbors(self, *positions: Positions) -> Neighbors:
        """Return the labels of the examples at arrays of positions, as kernels take them."""

    def similar(self, rows: Rows, candidates: Positions, factor: Distances | None) -> Nearest:
        """Return which of its candidates is most similar to each row, the newest of equals.

        See :func:`tagstream.copies.most_similar`.
        """

    def votes(self, found: Positions) -> Distances:
        """Return, for neighbours (m, k), the share of each label among those that know it."""

    def take(self, positions: Any) -> Rows:
        """Return the rows at some positions."""

    def labels(self, positions: Any = slice(None)) -> Labels:
        """Return the labels at some positions, by default of all."""

    def ids(self, positions: Positions) -> list[Hashable]:
        """Return the names at some positions; by default, numbers in the stream."""

    def numbers(self, positions: Positions) -> Positions:
        """Return the numbers in the stream."""

    def corrected(self, positions: Any = slice(None)) -> Bools:
        """Return which of the examples at some positions, by default of all, were relabelled."""

    def position_of(self, id: Hashable) -> int | None:
        """Return where the newest example of that name is stored; None if it is not."""

    def examples(self) -> Examples:
        """Return what is stored, for sums over it."""

    def block_size(self, most: int) -> int:
        """Return how many examples may be appended at a time: few beside those of the window."""

    def first_seen(self, positions: Positions) -> Positions:
        """Return the first position inside the window of items that come at ``positions``."""

    # ---- keep
    def snapshot(self) -> Store:
        """Return an immutable picture, in constant time."""

    def dump(self) -> dict[str, Any]:
        """Return the contents as plain values."""


class _Sliding:
    """An array whose rows are appended at the end and dropped at the front, kept contiguous.

    Once it was shared with a snapshot, what the snapshot shows is not written any more.
    """

    def __init__(self, width: int | tuple[int, ...] | None, dtype: npt.DTypeLike) -> None:
        shape = width if isinstance(width, tuple) else () if width is None else (width,)
        self._array = np.zeros((0, *shape), dtype)
        self._start = self._stop = 0
        self._shared = False

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def live(self) -> npt.NDArray[Any]:
        return self._array[self._start : self._stop]

    @property
    def nbytes(self) -> int:
        return self._array.nbytes

    def snapshot(self) -> _Sliding:
        self._shared = True
        twin = object.__new__(_Sliding)
        twin._array, twin._start, twin._stop = self._array, self._start, self._stop
        twin._shared = True
        return twin

    def append(self, block: npt.NDArray[Any]) -> None:
        self.room(len(block))[:] = block

    def room(self, n: int) -> npt.NDArray[Any]:
        """Make ``n`` new rows at the end and return them to be written."""
        self.make_room(n)
        return self._array[self._stop - n : self._stop]

    def make_room(self, n: int) -> None:
        """Make ``n`` new rows at the end, to be written."""
        if self._stop + n > len(self._array):
            need = len(self) + n
            fits = need <= len(self._array) * 8 // 9 and not self._shared
            array = self._array if fits else self._empty(need + need // 8 + 8)
            array[: len(self)] = self.live  # numpy copies overlapping ranges safely
            self._put(array, len(self))
        self._stop += n

    def drop(self, n: int) -> None:
        self._start += n

    def remove(self, first: int, stop: int) -> None:
        """Take rows out of the middle."""
        kept = len(self) - (stop - first)
        if self._shared:
            array = self._empty(kept + kept // 8 + 8)
            array[:first] = self.live[:first]
            array[first:kept] = self.live[stop:]
            self._put(array, kept)
        else:
            self.live[first:kept] = self.live[stop:].copy()
            self._stop -= stop - first

    def write(self, position: int, row: Any) -> None:
        if self._shared:
            self.replace(self.live.copy())
        self.live[position] = row

    def replace(self, rows: npt.NDArray[Any]) -> None:
        """Put other rows in the place of all."""
        self._put(rows, len(rows))

    def widen(self, width: int, fill: int = 0) -> None:
        """Give every row more columns, filled with ``fill``."""
        old = self.live
        if old.shape[1] == width:
            return
        array = np.full((len(old) + len(old) // 8 + 8, width), fill, old.dtype)
        array[: len(old), : old.shape[1]] = old
        self._put(array, len(old))

    def _put(self, array: npt.NDArray[Any], n: int) -> None:
        self._shared = self._shared and array is self._array
        self._array, self._start, self._stop = array, 0, n

    def _empty(self, n: int) -> npt.NDArray[Any]:
        return np.empty((n, *self._array.shape[1:]), self._array.dtype)


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


class _Panels:
    """Rows as a search reads them: side by side in panels of sixteen, one number of each per line.

    See :func:`tagstream.search.scan`.  If there are groups, panels hold only the latest rows.  Of
    arrays that are shared with a snapshot, only places that it does not look at are written.

    Parameters
    ----------
    rows : array of shape (n, d)
    axes : array of shape (d + 1, r), optional
        Those of shadows, to make groups: of these rows, and again when many more have come.
    """

    def __init__(self, rows: Singles, axes: Distances | None = None) -> None:
        self.grouped = axes is not None
        self._axes = _NO_AXES if axes is None else axes
        r = self._axes.shape[1]
        self._groups = _Sliding((r + 1, LANES), np.float32)
        self._order = _Sliding(None, np.int32)
        self._boxes = np.empty((2 * min(r, BOX), 0), np.float32)
        self._latest = _Sliding((rows.shape[1] + 1, LANES), np.float32)
        # Rows are counted from the first ever: how many were dropped, which one has the first place
        # of the latest panels, and which comes next.
        self._gone = self._first = self._next = 0
        if self.grouped:
            self._next = len(rows)
            self.group(rows)
        else:
            self.append(rows)

    @property
    def live(self) -> tuple[Singles, int]:
        """The latest panels, and how many places of them come before the first row."""
        return self._latest.live, self._gone - self._first

    @property
    def groups(self) -> Groups:
        """The groups."""
        panels, order = self._groups.live, self._order.live
        return Groups(self._axes, panels, order, self._boxes, self._gone)

    @property
    def nbytes(self) -> int:
        parts = (self._axes, self._groups, self._order, self._boxes, self._latest)
        return sum(part.nbytes for part in parts)

    @property
    def many(self) -> bool:
        """Whether so many rows have come that they should be grouped."""
        return self._next - max(self._first, self._gone) >= GROUPED

    @property
    def stale(self) -> bool:
        """Whether half of what is in groups was dropped."""
        return 2 * self._gone > len(self._order)

    def snapshot(self) -> _Panels:
        twin = object.__new__(_Panels)
        twin.__dict__.update(self.__dict__)
        twin._groups, twin._order = self._groups.snapshot(), self._order.snapshot()
        twin._latest = self._latest.snapshot()
        return twin

    def append(self, rows: Singles) -> None:
        at = self.make_room(len(rows))
        pack(rows, self._latest.live, at)

    def make_room(self, n: int) -> int:
        """Make places for ``n`` more rows, to be packed there; return the first."""
        at = self._next - self._first
        missing = -(-(at + n) // LANES) - len(self._latest)
        if missing > 0:
            new = self._latest.room(missing)
            new.fill(0)
            new[:, 0] = -np.inf  # no row is there yet
        self._next += n
        return at

    def group(self, rows: Singles) -> None:
        """Make groups of the latest of all rows, but for the last few."""
        start = max(self._first - self._gone, 0)
        n, r = (len(rows) - start) // GROUP * GROUP, self._axes.shape[1]
        shadows, slack = np.empty((n, r), np.float32), np.empty(n, np.float32)
        cast_shadows(rows[start : start + n], self._axes, shadows, slack)
        order, boxes = np.empty(n, np.int32), np.empty((len(self._boxes), n // GROUP), np.float32)
        group_rows(shadows[:, : len(boxes) // 2].copy(), order)
        group_shadows(shadows, slack, order, self._groups.room(n // LANES), boxes)
        self._order.append(order + np.int32(self._gone + start))
        self._boxes = np.concatenate([self._boxes, boxes], axis=1)
        self._put_latest(rows[start + n :])

    def _put_latest(self, rows: Singles) -> None:
        self._latest = _Sliding((rows.shape[1] + 1, LANES), np.float32)
        self._first = self._next = self._next - len(rows)
        self.append(rows)

    def drop(self, n: int) -> None:
        self._gone += n
        if self._gone > self._first:
            panels = (self._gone - self._first) // LANES
            self._latest.drop(panels)
            self._first += panels * LANES

    def remove(self, position: int, rows: Singles) -> None:
        """Take one row out; ``rows`` are those that are left."""
        number, self._next = self._gone + position, self._next - 1
        if number >= self._first:
            self._put_latest(rows[max(self._first - self._gone, 0) :])
            return
        order, groups = self._order.live.copy(), self._groups.live.copy()
        place = int(np.flatnonzero(order == number)[0])
        groups[place // LANES, 0, place % LANES] = -np.inf  # no row is there any more
        order[place] = -1
        order[order > number] -= 1
        self._order.replace(order)
        self._groups.replace(groups)
        self._first -= 1


def _axes_of(rows: Singles) -> Distances | None:
    """Return the directions in which rows vary most, and below what brings their mean to 0.

    None if they vary in too many directions for groups to be told apart.
    """
    some = rows[:: max(1, len(rows) // SAMPLED)].astype(np.float64)
    mean = some.mean(axis=0)
    some -= mean
    with blas_threads(float(some.size) * some.shape[1]):
        variances, directions = np.linalg.eigh(some.T @ some)
    left = np.cumsum(np.maximum(variances, 0.0))  # by the directions up to there, smallest first
    few = int(np.searchsorted(left, UNSEEN * left[-1], side="right"))
    r = min(max(len(variances) - few, 1), SHADOW)
    for share, n in ((IN_BOX, BOX), (IN_SHADOW, SHADOW)):
        if n < len(left) and left[-n - 1] > (1.0 - share) * left[-1]:
            return None
    # A little shortened, so that no rounding makes a distance longer.
    axes = np.ascontiguousarray(directions[:, : -r - 1 : -1]) * (1.0 - 2.0**-40)
    return np.vstack([axes, -(mean @ axes)])


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
    """

    _panels: _Panels | None

    def __init__(self, width: int, *, packed: bool = True) -> None:
        self._rows = _Sliding(width, np.float32)
        self._packed = packed
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
        twin._rows, twin._packed = self._rows.snapshot(), self._packed
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

    def make_room(self) -> int:
        """Make room for a row at the end; return where it is to be packed in the panels."""
        self._rows.make_room(1)
        return 0 if self._panels is None else self._panels.make_room(1)

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
            many = grouped and n >= GROUPED and d <= WIDEST
            self._panels = _Panels(self.live, _axes_of(self.live) if many else None)
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

        See :meth:`Store.search_rows`.  Costs O(m n width), in groups usually far less.  What was
        found ``before`` in older rows takes part, is changed in place, and goes first among equals.
        """
        m, rows = len(queries), self.live
        best, found = _nothing_found(m, k) if before is None else before
        if not len(rows):
            return best, found
        groups = self.groups
        if self._panels is not None and groups is None and (m == 1 or m * len(rows) <= LITTLE):
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
        height = max(TOGETHER, SCANNED // rows.shape[1] // TOGETHER * TOGETHER)
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
        for i in range(first, stop, PACKED):
            panels, skip = _Panels(self.live[i : min(i + PACKED, stop)]).live
            yield panels, skip - i


class SparseRows:
    """CSR rows of single-precision numbers with exact nearest-neighbour search."""

    def __init__(self, width: int) -> None:
        self.width = width
        # Where each row begins, and where the last ends, counted from the first entry ever.
        self._bounds = _Sliding(None, np.int64)
        self._bounds.append(np.zeros(1, np.int64))
        self._indices = _Sliding(None, np.int32)
        self._data = _Sliding(None, np.float32)
        self._norms = _Sliding(None, np.float64)
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
        self._labels = _Sliding(0, np.uint8)
        self._known: _Sliding | None = None
        self._ids: _Sliding | None = None
        self._corrected: _Sliding | None = None
        self._numbers: _Sliding | None = None  # once an example was taken out of the middle
        self._index: dict[Hashable, int] | None = None  # names to numbers, once asked for
        self._n_seen = first

    def __len__(self) -> int:
        return len(self._rows)

    def _parts(self) -> tuple[Any, ...]:
        """Return all that is kept, None for what there is not."""
        return (
            self._rows, self._codes, self._labels, self._known, self._ids, self._corrected,
            self._numbers,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        return sum(part.nbytes for part in self._parts() if part is not None)

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
            self._known = _filled(len(self), self._labels.live.shape[1], np.uint8, 255)
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
            self._ids = _Sliding(None, object)
            self._ids.append(numbers.astype(object))
        if self._ids is not None:
            self._ids.room(n)[:] = list(range(first, first + n)) if ids is None else list(ids)
        if self._index is not None:
            names = range(first, first + n) if ids is None else ids
            self._index.update(zip(names, range(first, first + n), strict=True))
        if self._numbers is not None:
            self._numbers.append(np.arange(first, first + n))
        if self._corrected is not None:
            self._corrected.room(n)[:] = False
        self._n_seen += n

    @property
    def plain(self) -> bool:
        """Whether rows are dense and have codes, and all labels are known."""
        # Codes in groups are not plain: `arrays` shows only the latest of them.
        return (
            self._known is None
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
        self.n_forgotten += n

    def remove(self, position: int) -> Labels:
        """Take one example out, and return its labels."""
        gone = self.labels([position])
        if self._numbers is None:
            self._numbers = _Sliding(None, np.int64)
            self._numbers.append(np.arange(self._n_seen - len(self), self._n_seen))
        if self._ids is None:
            self._ids = _Sliding(None, object)
            self._ids.append(self._numbers.live.astype(object))
        self._index = None  # an older example of the same name may come to light
        for part in self._parts():
            if isinstance(part, _Sliding):
                part.remove(position, position + 1)
            elif part is not None:
                part.remove(position)
        return gone

    def relabel(self, position: int, labels: Labels) -> Labels:
        """Give one example other labels, mark it as corrected, and return the old ones."""
        old = self.labels([position])
        if labels.known is not None and self._known is None:
            self._known = _filled(len(self), self._labels.live.shape[1], np.uint8, 255)
        self._labels.write(position, np.packbits(labels.Y, axis=1)[0])
        if self._known is not None:
            self._known.write(position, _packed_known(labels)[0])
        if self._corrected is None:
            self._corrected = _filled(len(self), None, np.bool_, False)
        self._corrected.write(position, True)
        return old

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
            if isinstance(part, (_Sliding, DenseRows, SparseRows)):
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
            "n_seen": self._n_seen,
            "n_forgotten": self.n_forgotten,
            "shape": [self.n_features, self.n_labels],
        }

    @classmethod
    def load(cls, state: Any, *, sparse: bool, window: int | None) -> Self:
        """Return the store that :meth:`dump` described, after checking that it makes sense."""
        expect_keys(
            "the store", state, "rows", "codes", "labels", "known", "ids", "numbers", "corrected",
            "n_seen", "n_forgotten", "shape",
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
            made._known = _Sliding(width, np.uint8)
            made._known.replace(known)
        if state["ids"] is not None:
            if not isinstance(state["ids"], list) or len(state["ids"]) != n:
                raise ValueError(f"ids must be a list of {n} names")
            made._ids = _Sliding(None, object)
            made._ids.room(n)[:] = state["ids"]
            hash(tuple(state["ids"]))  # all of them must be hashable
        if state["numbers"] is not None:
            numbers = expect("numbers", state["numbers"], np.int64, (n,))
            rising = np.diff(numbers, prepend=-1, append=n_seen)
            if (rising <= 0).any() or n_seen >= 1 << 62 or numbers.min(initial=0) < 0:
                raise ValueError(f"numbers must rise within 0 to {n_seen - 1}")
            made._numbers = _Sliding(None, np.int64)
            made._numbers.replace(numbers)
        elif n != n_seen - n_forgotten:
            raise ValueError(f"the store must hold {n_seen - n_forgotten} rows, got {n}")
        if state["corrected"] is not None:
            marks = expect("corrected", state["corrected"], np.int64, (None,))
            if (np.diff(marks, prepend=-1) <= 0).any() or marks.max(initial=0) >= max(n, 1):
                raise ValueError(f"corrected must rise within 0 to {n - 1}")
            made._corrected = _filled(n, None, np.bool_, False)
            made._corrected.live[marks] = True
        if state["codes"] is not None:
            codes = expect("codes", state["codes"], np.float32, (n, None), **_SQUARES)
            made._codes = DenseRows(codes.shape[1])
            made._codes.replace(codes)
        return made


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


def _filled(n: int, width: int | None, dtype: Any, value: Any) -> _Sliding:
    made = _Sliding(width, dtype)
    made.room(n)[:] = value
    return made


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
