"""The compiled loops: row-wise products, exact nearest rows, votes.

Two rules make the state of a learner independent of how its stream was cut into calls.  First,
each output element of a product is summed in the order of the features, one at a time, whatever
rows stand beside it (a BLAS product may sum in another order for another block shape).  Second,
a search may *skip* rows by a fast approximate distance, but what it returns is decided by
:func:`pair_distance` alone, ties going to the older row.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba.core import event
from numba.core.caching import FunctionCache
from numba.core.registry import CPUDispatcher
from numba.core.runtime.nrt import rtsys
from numba.extending import overload

from tagstream.tiles import AHEAD, LANES, LINE, TOGETHER, above_bulk, above_one, products

__all__ = [
    "add_rows",
    "column_products",
    "compiled",
    "compiled_loosely",
    "dense_squares",
    "gather_votes",
    "inlined",
    "inner",
    "pack",
    "pair_distance",
    "project_dense",
    "project_rows",
    "project_sparse",
    "row_squares",
    "scan",
    "scan_one",
    "scan_rows",
    "scan_sparse",
    "split_columns",
    "spread_rows",
]

F = TypeVar("F", bound=Callable[..., Any])

MANY = 16  # rows for which it is worth to lay a matrix out for tiles
AT_ONCE = 4096  # rows that are converted to another precision at a time

# Weight of an imaginary neighbour that is three quarters for every label.  It keeps scores
# strictly between 0 and 1, as scikit-learn asks, and makes an even vote count as yes.
PRIOR = 1e-6


class _Cache(FunctionCache):
    """Loads compiled functions without all that numba needs to compile others.

    That is done when something is compiled; code that is there wants its memory manager only.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]


def compiled(function: F, **options: Any) -> F:
    """Compile with numba, cached on disk where a cache directory can be written."""
    made: Any = numba.njit(nogil=True, **options)(function)
    if hasattr(made, "_cache"):  # not if numba is told to compile nothing
        with suppress(RuntimeError):  # no cache directory is writable
            made._cache = _Cache(function)  # type: ignore[no-untyped-call]
    return cast(F, made)


class _Inner(CPUDispatcher):
    """A function that Python cannot call: it lacks the code to do so, and would be lost."""

    def __call__(self, *given: Any) -> Any:
        raise TypeError(
            f"{self.py_func.__name__} is for compiled functions; Python may call its py_func"
        )


def inner(function: F) -> F:
    """Compile what only compiled functions call: without the code by which Python would."""
    made: Any = compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    if hasattr(made, "_cache"):
        made.__class__ = _Inner
    return cast(F, made)


def inlined(function: F) -> F:
    """Compile as a part of each function that calls it; worth it for small ones, called once."""
    return compiled(function, inline="always")


class _Watcher(event.Listener):
    """Says why the first call takes so long; loading from the cache is no compilation.

    While it lasts no garbage is collected: looking through all of numba's objects again and again
    takes a tenth of the time, and finds next to nothing.
    """

    said = False
    depth = 0  # of functions that wait for others
    collecting = False

    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]  # of anyone's function, made in any way
        module = getattr(getattr(dispatcher, "py_func", None), "__module__", None)
        if not self.said and str(module).startswith("tagstream."):
            self.said = True
            cached = dispatcher.stats.cache_path is not None
            when = "this once" if cached else "in every process, as no cache can be written"
            logging.getLogger(__name__).warning("compiling kernels, %s: some seconds…", when)
        if self.depth == 0:
            self.collecting = gc.isenabled()
            gc.disable()
        self.depth += 1

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0 and self.collecting:
            gc.enable()


_WATCHER = _Watcher()
event.register("numba:compile", _WATCHER)  # type: ignore[no-untyped-call]


def compiled_loosely(function: F) -> F:
    """Compile with leave to reorder sums, for numbers that decide nothing."""
    return compiled(function, fastmath={"reassoc", "contract", "nsz"})


@compiled
def project_rows(
    X: npt.NDArray[np.floating[Any]],
    W: npt.NDArray[np.floating[Any]],
    c: npt.NDArray[np.floating[Any]],
    out: npt.NDArray[np.floating[Any]],
) -> None:
    """Do what :func:`project_dense` does in plain loops, for few rows and in compiled code."""
    p, m = W.shape
    number = out.dtype.type
    whole = p - p % 4
    for i in range(out.shape[0]):
        a = out[i]
        for j in range(m):
            a[j] = c[j]
        for k in range(0, whole, 4):
            x0, x1 = number(X[i, k]), number(X[i, k + 1])
            x2, x3 = number(X[i, k + 2]), number(X[i, k + 3])
            w0, w1, w2, w3 = W[k], W[k + 1], W[k + 2], W[k + 3]
            for j in range(m):
                a[j] = (((a[j] + x0 * w0[j]) + x1 * w1[j]) + x2 * w2[j]) + x3 * w3[j]
        for k in range(whole, p):
            x, w = number(X[i, k]), W[k]
            for j in range(m):
                a[j] += x * w[j]


@compiled
def _project_tiles(
    X: npt.NDArray[np.floating[Any]],
    panels: npt.NDArray[np.floating[Any]],
    together: npt.NDArray[np.floating[Any]],
    sums: npt.NDArray[np.floating[Any]],
    out: npt.NDArray[np.floating[Any]],
) -> None:
    n, p = X.shape
    m, lanes = out.shape[1], panels.shape[2]
    for i in range(0, n, TOGETHER):
        some = min(TOGETHER, n - i)
        for r in range(some):
            for k in range(p):
                together[0, k, r] = X[i + r, k]
        for b in range(panels.shape[0]):
            products(together, 0, panels, b, sums)
            for r in range(some):
                for j in range(min(lanes, m - b * lanes)):
                    out[i + r, b * lanes + j] = sums[r, j]


def project_dense(
    X: npt.NDArray[np.floating[Any]],
    W: npt.NDArray[np.floating[Any]],
    c: npt.NDArray[np.floating[Any]],
    out: npt.NDArray[np.floating[Any]],
) -> None:
    """``out = X W + c`` for X (n, p), W (p, m), c (m,), out (n, m), in the precision of ``out``.

    Each sum begins with c and adds one feature after the other, in tiles as in the plain loops that
    few rows are left to.
    """
    (n, p), m, number = X.shape, W.shape[1], out.dtype
    if n < MANY or not p or not m:
        project_rows(np.ascontiguousarray(X, number), W, c, out)
        return
    lanes = LINE // number.itemsize
    lines = np.zeros((p + 1, -(-m // lanes), lanes), number)
    lines.reshape(p + 1, -1)[0, :m], lines.reshape(p + 1, -1)[1:, :m] = c, W
    panels = np.ascontiguousarray(lines.transpose(1, 0, 2))
    together, sums = np.zeros((1, p, TOGETHER), number), np.empty((TOGETHER, lanes), number)
    for i in range(0, n, AT_ONCE):  # in one precision only: each would be compiled on its own
        some = np.ascontiguousarray(X[i : i + AT_ONCE], number)
        _project_tiles(some, panels, together, sums, out[i : i + AT_ONCE])


# What is compiled calls it for few rows.
overload(project_dense)(
    lambda X, W, c, out: lambda X, W, c, out: project_rows(X, W, c, out)  # noqa: PLW0108
)


@compiled
def project_sparse(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    data: npt.NDArray[np.float32],
    W: npt.NDArray[np.floating[Any]],
    c: npt.NDArray[np.float64],
    out: npt.NDArray[np.float64],
) -> None:
    """``out = X W + c`` for CSR rows X (n, p), W (p, m), c (m,), out (n, m)."""
    m = W.shape[1]
    for i in range(out.shape[0]):
        for j in range(m):
            out[i, j] = c[j]
        for e in range(indptr[i], indptr[i + 1]):
            x = np.float64(data[e])
            k = indices[e]
            for j in range(m):
                out[i, j] += x * W[k, j]


@compiled
def split_columns(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    data: npt.NDArray[np.float32],
    place: npt.NDArray[np.int32],
    dense: npt.NDArray[np.float32],
    kept_indptr: npt.NDArray[np.int64],
    kept_indices: npt.NDArray[np.int32],
    kept_data: npt.NDArray[np.float32],
) -> None:
    """Split CSR rows into a dense block (n, a) of zeros and CSR rows, which have room for all.

    Column k goes to ``place[k]``: below a it is dense, and −1 is left out.
    """
    a, n = dense.shape[1], 0
    kept_indptr[0] = 0
    for i in range(dense.shape[0]):
        for e in range(indptr[i], indptr[i + 1]):
            k = place[indices[e]]
            if k >= a:
                kept_indices[n], kept_data[n] = k - a, data[e]
                n += 1
            elif k >= 0:
                dense[i, k] = data[e]
        kept_indptr[i + 1] = n


@compiled
def add_rows(
    Y: npt.NDArray[np.uint8],
    B: npt.NDArray[np.floating[Any]],
    c: npt.NDArray[np.float64],
    out: npt.NDArray[np.float64],
) -> None:
    """``out = Y B + c`` for labels Y (n, at least q) of 0 and 1, B (q, r), c (r,), out (n, r)."""
    q, r = B.shape
    for i in range(out.shape[0]):
        row = out[i]
        for k in range(r):
            row[k] = c[k]
        for j in range(q):
            if Y[i, j]:
                b = B[j]
                for k in range(r):
                    row[k] += b[k]


@compiled
def spread_rows(
    Y: npt.NDArray[np.uint8], A: npt.NDArray[np.float64], out: npt.NDArray[np.float64]
) -> None:
    """``out += Yᵀ A`` for labels Y (n, q) of 0 and 1, A (n, r), out (q, r)."""
    for i in range(A.shape[0]):
        row = A[i]
        for j in range(out.shape[0]):
            if Y[i, j]:
                o = out[j]
                for k in range(A.shape[1]):
                    o[k] += row[k]


@compiled
def column_products(
    A: npt.NDArray[np.floating[Any]],
    B: npt.NDArray[np.floating[Any]],
    out: npt.NDArray[np.float64],
) -> None:
    """``out[j] += Σ_i A[i, j] B[i, j]``, summed in double precision."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            out[j] += np.float64(A[i, j]) * np.float64(B[i, j])


@compiled
def pair_distance(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    """Return ‖a − b‖² in double precision, summed in the order of the entries."""
    total = 0.0
    for j in range(a.shape[0]):
        gap = np.float64(a[j]) - np.float64(b[j])
        total += gap * gap
    return total


@compiled
def dense_squares(rows: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
    """Write ‖x‖² of rows, summed in double precision."""
    for i in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            total += np.float64(rows[i, j]) ** 2
        out[i] = total


@compiled
def row_squares(
    indptr: npt.NDArray[np.int64],
    data: npt.NDArray[np.float32],
    out: npt.NDArray[np.float64],
) -> None:
    """Write ‖x‖² of CSR rows, summed in the order of the entries."""
    for i in range(out.shape[0]):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[e]) ** 2
        out[i] = total


@compiled
def _insert(
    distance: float,
    row: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Put a candidate into a sorted list of k, behind its equals; the last one falls out."""
    j = best.shape[0] - 1
    while j > 0 and best[j - 1] > distance:
        best[j] = best[j - 1]
        rows[j] = rows[j - 1]
        j -= 1
    best[j] = distance
    rows[j] = row


@compiled
def pack(rows: npt.NDArray[np.float32], panels: npt.NDArray[np.float32], at: int) -> None:
    """Write rows into panels (·, d + 1, LANES), from place ``at`` on; see :func:`scan`.

    The first line of a panel holds −½‖c‖², nearer to zero by what the sums of :func:`scan` may err,
    and minus infinity where no row is.
    """
    n, d = rows.shape
    kept = 1.0 - _error(d)
    for i in range(n):
        b, lane = (at + i) // LANES, (at + i) % LANES
        square = 0.0
        for j in range(d):
            x = rows[i, j]
            panels[b, j + 1, lane] = x
            square += np.float64(x) * np.float64(x)
        panels[b, 0, lane] = -0.5 * square * kept


@compiled
def _error(d: int) -> float:
    return (d + 8) * 2.0**-22


@compiled
def _limit(worst: float, square: float, error: float) -> np.float32:
    """Return what a sum of :func:`scan` must reach for its row to be nearer than ``worst``."""
    limit = 0.5 * (square - worst)
    # The last term is for what is so small that single precision has no numbers for it.  Where no
    # row is, the sum is minus infinity, which reaches no limit.
    return np.float32(max(limit - error * (square + abs(limit)) - 1e-30, -3.4e38))


@compiled
def _merge(
    reached: int,
    sums: npt.NDArray[np.float32],
    limit: np.float32,
    row: int,
    codes: npt.NDArray[np.float32],
    query: npt.NDArray[np.float32],
    square: float,
    lo: int,
    hi: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> np.float32:
    """Merge those rows of a panel, which begins with ``row``, that reached the limit.

    Return the limit from there on.
    """
    k = best.shape[0]
    for lane in range(max(lo - row, 0), min(hi - row, LANES)):
        if reached >> lane & 1 and not sums[lane] < limit:
            distance = 0.0  # as in `pair_distance`, without handing over a row
            for j in range(query.shape[0]):
                gap = np.float64(codes[row + lane, j]) - np.float64(query[j])
                distance += gap * gap
            if distance < best[k - 1]:
                _insert(distance, row + lane, best, rows)
                limit = _limit(best[k - 1], square, _error(query.shape[0]))
    return limit


@compiled
def scan(
    codes: npt.NDArray[np.float32],
    panels: npt.NDArray[np.float32],
    skip: int,
    queries: npt.NDArray[np.float32],
    lo: npt.NDArray[np.int64],
    hi: npt.NDArray[np.int64],
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Merge the rows that lie in panels into the k nearest of each query.

    Row i has place ``skip + i`` in the panels, written by :func:`pack`; with a negative ``skip``
    the first rows have none.  Query i sees rows ``lo[i] <= row < hi[i]`` only.  ``best`` and
    ``rows``, (m, k), are sorted and start as infinity and −1.

    ‖q − c‖² < w if and only if q·c − ½‖c‖² > ½(‖q‖² − w), which is compared in single precision.
    The left side, summed from −½‖c‖² on, errs by at most (d + 3) u (‖q‖‖c‖ + ½‖c‖²), u = 2⁻²⁴, and
    so by no more than half of ε(‖q‖² + ½‖c‖²), ε = (d + 8) 2⁻²².  The second part is added to
    −½‖c‖² and the first taken off the limit, so that no row which belongs to the k nearest is
    skipped; what is returned is decided by :func:`pair_distance`.
    """
    m, d = queries.shape
    k = best.shape[1]
    groups = -(-m // TOGETHER)
    together = np.zeros((groups, d, TOGETHER), np.float32)
    limits = np.zeros((groups, TOGETHER), np.float32)
    squares = np.zeros(m)
    masks = np.empty(TOGETHER, np.uint16)
    sums = np.empty((TOGETHER, LANES), np.float32)
    start, stop = lo[0], hi[0]
    for i in range(m):
        g, r = i // TOGETHER, i % TOGETHER
        for j in range(d):
            together[g, j, r] = queries[i, j]
            squares[i] += np.float64(queries[i, j]) ** 2
        limits[g, r] = _limit(best[i, k - 1], squares[i], _error(d))
        start, stop = min(start, lo[i]), max(stop, hi[i])
    for i in range(m, groups * TOGETHER):
        limits[groups - 1, i % TOGETHER] = 3.4e38  # nothing is near to no query
    first = max((start + skip) // LANES, 0)
    last = min(-(-(stop + skip) // LANES), panels.shape[0])
    for b in range(first, last):
        for g in range(groups):
            if above_bulk(together, g, panels, b, limits, masks, sums):
                for r in range(min(TOGETHER, m - g * TOGETHER)):
                    if masks[r]:
                        i = g * TOGETHER + r
                        limits[g, r] = _merge(
                            masks[r], sums[r], limits[g, r], b * LANES - skip, codes, queries[i],
                            squares[i], lo[i], hi[i], best[i], rows[i],
                        )  # fmt: skip


@compiled
def scan_one(
    codes: npt.NDArray[np.float32],
    panels: npt.NDArray[np.float32],
    skip: int,
    query: npt.NDArray[np.float32],
    lo: int,
    hi: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Do the same for one query, all of whose rows are in the panels."""
    d = query.shape[0]
    square = 0.0
    for j in range(d):
        square += np.float64(query[j]) ** 2
    limits = np.empty((1, 1), np.float32)
    limits[0, 0] = _limit(best[best.shape[0] - 1], square, _error(d))
    masks = np.empty(AHEAD, np.uint16)
    sums = np.empty((AHEAD, LANES), np.float32)
    alone = np.empty((1, d, 1), np.float32)
    for j in range(d):
        alone[0, j, 0] = query[j]
    for b in range((lo + skip) // LANES, -(-(hi + skip) // LANES), AHEAD):
        if above_one(alone, 0, panels, b, limits, masks, sums):
            for c in range(AHEAD):
                if masks[c]:
                    limits[0, 0] = _merge(
                        masks[c], sums[c], limits[0, 0], (b + c) * LANES - skip, codes, query,
                        square, lo, hi, best, rows,
                    )  # fmt: skip


@compiled_loosely
def _rough_distance(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> np.float32:
    total = np.float32(0.0)
    for j in range(a.shape[0]):
        gap = a[j] - b[j]
        total += gap * gap
    return total


@compiled
def scan_rows(
    stored: npt.NDArray[np.float32],
    query: npt.NDArray[np.float32],
    lo: int,
    hi: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Merge the rows ``lo <= row < hi``, which lie in no panels, into the k nearest of a query.

    ‖q − c‖² in single precision tells which to skip: all its terms are positive, so it errs by
    less than (d + 8) 2⁻²² of itself.
    """
    k = best.shape[0]
    kept = 1.0 - _error(query.shape[0])
    for row in range(lo, hi):
        if kept * _rough_distance(stored[row], query) <= best[k - 1]:
            distance = pair_distance(stored[row], query)
            if distance < best[k - 1]:
                _insert(distance, row, best, rows)


@compiled
def pair_distance_sparse(
    a_indices: npt.NDArray[np.int32],
    a_data: npt.NDArray[np.float32],
    b_indices: npt.NDArray[np.int32],
    b_data: npt.NDArray[np.float32],
) -> float:
    """Return ‖a − b‖² of sorted sparse rows, equal to the bit to that of the dense rows."""
    total = 0.0
    i = j = 0
    while i < a_indices.shape[0] or j < b_indices.shape[0]:
        if j == b_indices.shape[0] or (i < a_indices.shape[0] and a_indices[i] < b_indices[j]):
            gap = np.float64(a_data[i])
            i += 1
        elif i == a_indices.shape[0] or b_indices[j] < a_indices[i]:
            gap = np.float64(b_data[j])
            j += 1
        else:
            gap = np.float64(a_data[i]) - np.float64(b_data[j])
            i += 1
            j += 1
        total += gap * gap
    return total


@compiled
def scan_sparse(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    data: npt.NDArray[np.float32],
    norms: npt.NDArray[np.float64],
    q_indptr: npt.NDArray[np.int64],
    q_indices: npt.NDArray[np.int32],
    q_data: npt.NDArray[np.float32],
    p: int,
    lo: npt.NDArray[np.int64],
    hi: npt.NDArray[np.int64],
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Find the k nearest stored CSR rows of each CSR query.

    ‖c‖² + ‖q‖² − 2 q·c in double precision, less a bound of its error, tells which rows to skip.
    """
    k = best.shape[1]
    dense = np.zeros(p)
    for i in range(best.shape[0]):
        first, last = q_indptr[i], q_indptr[i + 1]
        square = 0.0
        for e in range(first, last):
            x = np.float64(q_data[e])
            dense[q_indices[e]] = x
            square += x * x
        slack = 2.0**-50 * (last - first + 4)
        for row in range(lo[i], hi[i]):
            dot = 0.0
            for e in range(indptr[row], indptr[row + 1]):
                dot += np.float64(data[e]) * dense[indices[e]]
            size = norms[row] + square
            error = (slack + 2.0**-50 * (indptr[row + 1] - indptr[row])) * size
            if size - 2.0 * dot - error < best[i, k - 1]:
                distance = pair_distance_sparse(
                    indices[indptr[row] : indptr[row + 1]],
                    data[indptr[row] : indptr[row + 1]],
                    q_indices[first:last],
                    q_data[first:last],
                )
                if distance < best[i, k - 1]:
                    _insert(distance, row, best[i], rows[i])
        for e in range(first, last):
            dense[q_indices[e]] = 0.0


@compiled
def gather_votes(
    rows: npt.NDArray[np.int64],
    labels: npt.NDArray[np.uint8],
    known: npt.NDArray[np.uint8],
    votes: npt.NDArray[np.float64],
) -> None:
    """Write the share of each label among the neighbours that know it; 0 where none does.

    The share is (yes + ¾ε)/(voters + ε) with ε = 10⁻⁶, see ``PRIOR``.

    ``rows`` (m, k) are positions or −1; ``labels`` and ``known`` (n, ⌈q/8⌉) are packed bits, most
    significant first, ``known`` being of length 0 when all is known; ``votes`` is (m, q).
    """
    m, k = rows.shape
    q = votes.shape[1]
    counts = np.empty(q)  # of those that know the label
    for i in range(m):
        voters = 0
        while voters < k and rows[i, voters] >= 0:
            voters += 1
        for j in range(q):
            votes[i, j], counts[j] = 0.0, voters
        for a in range(voters):
            row = rows[i, a]
            for b in range(labels.shape[1]):
                sure = known[row, b] if known.shape[0] else np.uint8(255)
                have = labels[row, b] & sure
                if have:  # most bytes say nothing
                    for j in range(8 * b, min(8 * b + 8, q)):
                        votes[i, j] += have >> (7 - (j & 7)) & 1
                if sure != 255:
                    for j in range(8 * b, min(8 * b + 8, q)):
                        counts[j] -= (255 - sure) >> (7 - (j & 7)) & 1
        for j in range(q):
            if counts[j] > 0.0:
                votes[i, j] = (votes[i, j] + 0.75 * PRIOR) / (counts[j] + PRIOR)
