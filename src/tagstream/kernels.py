"""The compiled loops: row-wise products, exact nearest rows, votes.

Two rules make the state of a learner independent of how its stream was cut into calls.  First,
each output element of a product is summed in the order of the features, one at a time, whatever
rows stand beside it (a BLAS product may sum in another order for another block shape).  Second,
a search may *skip* rows by a fast approximate distance, but what it returns is decided by
:func:`pair_distance` alone, ties going to the older row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba.core import event

__all__ = [
    "add_rows",
    "column_products",
    "compiled",
    "compiled_inside",
    "compiled_loosely",
    "dense_squares",
    "embed",
    "gather_votes",
    "pair_distance",
    "project_dense",
    "project_sparse",
    "row_squares",
    "scan",
    "scan_one",
    "scan_sparse",
    "spread_rows",
]

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = 256  # of a product that are made at a time
RUN = 16  # distances looked at together

# Weight of an imaginary neighbour that is three quarters for every label.  It keeps scores
# strictly between 0 and 1, as scikit-learn asks, and makes an even vote count as yes.
PRIOR = 1e-6


def compiled(function: F, **options: Any) -> F:
    """Compile with numba, cached on disk where a cache directory can be written."""
    try:
        return cast(F, numba.njit(cache=True, nogil=True, **options)(function))
    except RuntimeError:  # no cache directory is writable
        return cast(F, numba.njit(nogil=True, **options)(function))


def compiled_inside(function: F) -> F:
    """Compile a function that only compiled ones call: without a door, a call from Python crashes.

    The door, which unpacks the arguments, is a fifth to a third of the compilation.
    """
    return compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


class _Announcer(event.Listener):
    """Says why the first call takes so long; loading from the cache is no compilation."""

    said = False

    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]  # of anyone's function, made in any way
        module = getattr(getattr(dispatcher, "py_func", None), "__module__", None)
        if not self.said and str(module).startswith("tagstream."):
            self.said = True
            cached = dispatcher.stats.cache_path is not None
            when = "this once" if cached else "in every process, as no cache can be written"
            logging.getLogger(__name__).warning("compiling kernels, %s: some seconds…", when)

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Announcer())  # type: ignore[no-untyped-call]


def compiled_loosely(function: F) -> F:
    """Compile with leave to reorder sums, for numbers that decide nothing."""
    return compiled(function, fastmath={"reassoc", "contract", "nsz"})


@compiled
def project_dense(
    X: npt.NDArray[np.floating[Any]],
    W: npt.NDArray[np.floating[Any]],
    c: npt.NDArray[np.floating[Any]],
    out: npt.NDArray[np.floating[Any]],
) -> None:
    """``out = X W + c`` for X (n, p), W (p, m), c (m,), out (n, m), in the precision of ``out``.

    Blocks of columns stay in the first-level cache; two rows take turns at four features, which
    are added one after the other.
    """
    n, p = X.shape
    m = W.shape[1]
    number = out.dtype.type
    whole = p - p % 4
    for left in range(0, m, COLUMNS):
        right = min(left + COLUMNS, m)
        for i in range(0, n, 2):
            i2 = min(i + 1, n - 1)  # the last of an odd number stands alone
            a, b = out[i, left:right], out[i2, left:right]
            for j in range(right - left):
                a[j] = c[left + j]
                b[j] = c[left + j]
            for k in range(0, whole if i2 > i else 0, 4):
                x0, x1 = number(X[i, k]), number(X[i, k + 1])
                x2, x3 = number(X[i, k + 2]), number(X[i, k + 3])
                y0, y1 = number(X[i2, k]), number(X[i2, k + 1])
                y2, y3 = number(X[i2, k + 2]), number(X[i2, k + 3])
                w0, w1 = W[k, left:right], W[k + 1, left:right]
                w2, w3 = W[k + 2, left:right], W[k + 3, left:right]
                for j in range(right - left):
                    a[j] = (((a[j] + x0 * w0[j]) + x1 * w1[j]) + x2 * w2[j]) + x3 * w3[j]
                    b[j] = (((b[j] + y0 * w0[j]) + y1 * w1[j]) + y2 * w2[j]) + y3 * w3[j]
            for k in range(whole if i2 > i else 0, p):
                x, y, w = number(X[i, k]), number(X[i2, k]), W[k, left:right]
                for j in range(right - left):
                    a[j] += x * w[j]
                if i2 > i:
                    for j in range(right - left):
                        b[j] += y * w[j]


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
def embed(
    X: npt.NDArray[np.float32],
    P: npt.NDArray[np.floating[Any]],
    c: npt.NDArray[np.float64],
    codec: npt.NDArray[np.float64],
    most: float,
    Z: npt.NDArray[np.float64],
    codes: npt.NDArray[np.float32],
) -> None:
    """``Z = X P + c`` and ``codes = Z codec``, both kept within ±``most``.

    Sums are made in the order of :func:`project_dense`.
    """
    project_dense(X, P, c, Z)
    for i in range(Z.shape[0]):
        for j in range(Z.shape[1]):
            Z[i, j] = max(min(Z[i, j], most), -most)
    wide = np.empty(codes.shape)
    project_dense(Z, codec, np.zeros(codec.shape[1]), wide)
    for i in range(codes.shape[0]):
        for j in range(codes.shape[1]):
            codes[i, j] = max(min(wide[i, j], most), -most)


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


@compiled_inside
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
def scan(
    dots: npt.NDArray[np.float32],
    offset: int,
    codes: npt.NDArray[np.float32],
    norms: npt.NDArray[np.float32],
    queries: npt.NDArray[np.float32],
    slack: npt.NDArray[np.float64],
    lo: npt.NDArray[np.int64],
    hi: npt.NDArray[np.int64],
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Merge one tile of stored rows into the k nearest of each query.

    ``dots[i, j]`` is the single-precision product of query i and stored row ``offset + j``;
    ``slack[i]`` bounds how far ‖c‖² − 2 q·c made from it may lie above the truth, so that no row
    which belongs to the k nearest is skipped.  Query i sees rows ``lo[i] <= row < hi[i]`` only.
    ``best`` and ``rows``, (m, k), are sorted and start as infinity and −1.
    """
    k = best.shape[1]
    for i in range(dots.shape[0]):
        square = 0.0
        for j in range(queries.shape[1]):
            square += np.float64(queries[i, j]) ** 2
        limit = np.float32(min(best[i, k - 1] - square + slack[i], 3.4e38))
        first = max(lo[i] - offset, 0)
        last = min(hi[i] - offset, dots.shape[1])
        row, squares = dots[i], norms[offset : offset + dots.shape[1]]
        start = first
        while start < last:
            stop = min(start + RUN, last)
            # Most runs hold nothing near, which is found without a branch; a run of fixed
            # length is unrolled by the compiler.
            near = stop - start < RUN
            if not near:
                for j in range(RUN):
                    near |= squares[start + j] - np.float32(2.0) * row[start + j] <= limit
            if near:
                for j in range(start, stop):
                    if squares[j] - np.float32(2.0) * row[j] <= limit:
                        distance = pair_distance(codes[offset + j], queries[i])
                        if distance < best[i, k - 1]:
                            _insert(distance, offset + j, best[i], rows[i])
                            limit = np.float32(min(best[i, k - 1] - square + slack[i], 3.4e38))
            start = stop


@compiled_loosely
def _rough_dot(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> np.float32:
    total = np.float32(0.0)
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return total


@compiled
def scan_one(
    codes: npt.NDArray[np.float32],
    norms: npt.NDArray[np.float32],
    query: npt.NDArray[np.float32],
    lo: int,
    hi: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Find the k nearest of the rows ``lo <= row < hi`` for one query.

    As in :func:`scan`, ‖c‖² − 2 q·c in single precision tells which rows to skip.  It errs by at
    most ε(‖q‖² + ‖c‖²), ε = (d + 8) 2⁻²², which is taken off ‖c‖² and added to the limit.
    """
    k, d = best.shape[0], query.shape[0]
    square = 0.0
    for j in range(d):
        square += np.float64(query[j]) ** 2
    error = (d + 8) * 2.0**-22
    shrunk = np.float32(1.0 - error)
    limit = _limit(best[k - 1], square, error)
    for row in range(lo, hi):
        if norms[row] * shrunk - np.float32(2.0) * _rough_dot(codes[row], query) <= limit:
            distance = pair_distance(codes[row], query)
            if distance < best[k - 1]:
                _insert(distance, row, best, rows)
                limit = _limit(best[k - 1], square, error)


@compiled_inside
def _limit(worst: float, square: float, error: float) -> np.float32:
    limit = worst - square + error * (square + abs(worst))
    return np.float32(min(limit, 3.4e38))


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
