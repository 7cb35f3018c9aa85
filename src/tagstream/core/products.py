"""The compiled loops of row-wise products and of votes.

The state of a learner must not depend on how its stream was cut into calls.  So each output element
of a product is summed in the order of the features, one at a time, whatever rows stand beside it (a
BLAS product may sum in another order for another block shape).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.extending import overload

from tagstream.core.compilation import compiled, inner
from tagstream.core.simd import lines
from tagstream.core.simd.tiles import (
    LANES,
    LINE,
    TOGETHER,
    add_line,
    add_lines,
    products,
    spread_line,
    spread_lines,
)

__all__ = [
    "add_columns",
    "add_inner_products",
    "add_products",
    "add_rows",
    "add_scaled_rows",
    "add_transposed_products",
    "column_products",
    "gather_votes",
    "line_zeros",
    "multiply_columns",
    "project_dense",
    "project_rows",
    "project_sparse",
    "split_columns",
    "spread_rows",
]

WIDE = 64  # columns up to which a sum of rows is made in registers
MANY = 16  # rows for which it is worth to lay a matrix out for tiles
AT_ONCE = 4096  # rows that are converted to another precision at a time


# Weight of an imaginary neighbour that is three quarters for every label.  It keeps scores
# strictly between 0 and 1, as scikit-learn asks, and makes an even vote count as yes.
PRIOR = 1e-6


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


@inner
def add_scaled_rows(
    total: npt.NDArray[np.float64],
    W: npt.NDArray[np.floating[Any]],
    rows: Any,
    x: npt.NDArray[np.floating[Any]],
    first: int,
    last: int,
) -> None:
    """Add x_e W[rows_e] to ``total`` for e from ``first`` to ``last``, one after the other.

    Where ``rows`` is None the row of e is e.  W may have fewer columns than ``total``.
    """
    m = W.shape[1]
    if m > WIDE:  # a row of many columns is better read at once
        for e in range(first, last):
            row = np.int64(e)
            if rows is not None:
                row = np.int64(rows[e])
            factor = np.float64(x[e])
            for j in range(m):
                total[j] += factor * W[row, j]
        return
    for b in range(0, m, 4 * lines.WIDTH):
        n0 = m - b
        n1, n2, n3 = n0 - lines.WIDTH, n0 - 2 * lines.WIDTH, n0 - 3 * lines.WIDTH
        b1, b2, b3 = b + lines.WIDTH, b + 2 * lines.WIDTH, b + 3 * lines.WIDTH
        a0, a1 = lines.load(total, b, n0), lines.load(total, b1, n1)
        a2, a3 = lines.load(total, b2, n2), lines.load(total, b3, n3)
        for e in range(first, last):
            row = np.int64(e)
            if rows is not None:
                row = np.int64(rows[e])
            factor, at = lines.spread(np.float64(x[e])), row * m
            a0 = lines.add(a0, lines.multiply(factor, lines.load(W, at + b, n0)))
            a1 = lines.add(a1, lines.multiply(factor, lines.load(W, at + b1, n1)))
            a2 = lines.add(a2, lines.multiply(factor, lines.load(W, at + b2, n2)))
            a3 = lines.add(a3, lines.multiply(factor, lines.load(W, at + b3, n3)))
        lines.store(total, b, n0, a0)
        lines.store(total, b1, n1, a1)
        lines.store(total, b2, n2, a2)
        lines.store(total, b3, n3, a3)


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
    for i in range(out.shape[0]):
        for j in range(W.shape[1]):
            out[i, j] = c[j]
        add_scaled_rows(out[i], W, indices, data, indptr[i], indptr[i + 1])


def line_zeros(n: int, width: int) -> npt.NDArray[np.float32]:
    """Return zeros, n rows of at least ``width`` numbers, each of whole lines of the cache.

    What is read and written line by line takes half as long again where lines are cut in two.
    """
    width = -(-width // LANES) * LANES
    room = np.zeros((n * width + LANES) * 4, np.uint8)
    start = -room.ctypes.data % LINE
    return room[start : start + 4 * n * width].view(np.float32).reshape(n, width)


@compiled
def add_products(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    data: npt.NDArray[np.float32],
    W: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None:
    """``out += X W`` for CSR rows X (n, p), W (p, w) and out (n, w) of whole lines."""
    w = W.shape[1]
    for i in range(out.shape[0]):
        for j in range(0, w - LANES, 2 * LANES):
            add_lines(indices, data, indptr[i], indptr[i + 1], out[i], W, j)
        if w % (2 * LANES):
            add_line(indices, data, indptr[i], indptr[i + 1], out[i], W, w - LANES)


@compiled
def add_transposed_products(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    data: npt.NDArray[np.float32],
    R: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None:
    """``out += Xᵀ R`` for CSR rows X (n, p), R (n, w) and out (p, w) of whole lines."""
    w = R.shape[1]
    for i in range(R.shape[0]):
        for j in range(0, w - LANES, 2 * LANES):
            spread_lines(indices, data, indptr[i], indptr[i + 1], R[i], out, j)
        if w % (2 * LANES):
            spread_line(indices, data, indptr[i], indptr[i + 1], R[i], out, w - LANES)


@compiled
def add_columns(
    indices: npt.NDArray[np.int32],
    data: npt.NDArray[np.float32],
    sums: npt.NDArray[np.float64],
    squares: npt.NDArray[np.float64],
) -> None:
    """Add the entries of CSR rows to the sums of their columns, (p,), and their squares."""
    for e in range(data.shape[0]):
        x, k = np.float64(data[e]), indices[e]
        sums[k] += x
        squares[k] += x * x


@compiled
def add_inner_products(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    data: npt.NDArray[np.float32],
    starts: npt.NDArray[np.int64],
    out: npt.NDArray[np.float64],
) -> None:
    """``out = X Xᵀ`` for CSR rows X (n, p), out (n, n) of zeros.

    Each row is multiplied with those before it that share a column, which are listed as they come,
    those of column k from place ``starts[k]`` on.
    """
    rows, values = np.empty(data.shape[0], np.int32), np.empty(data.shape[0], np.float32)
    ends = starts.copy()
    for i in range(out.shape[0]):
        products = out[i]
        for e in range(indptr[i], indptr[i + 1]):
            k, x = indices[e], np.float64(data[e])
            end = ends[k]
            rows[end], values[end], ends[k] = i, data[e], end + 1
            for a in range(starts[k], end + 1):
                products[rows[a]] += x * np.float64(values[a])
    for i in range(out.shape[0]):
        for j in range(i):
            out[j, i] = out[i, j]


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
    named = np.empty(q + 1, np.int64)
    for i in range(out.shape[0]):
        row, n = out[i], 0
        for j in range(q):  # without a branch to be guessed wrong
            named[n] = j
            n += Y[i, j] != 0
        for k in range(r):
            row[k] = c[k]
        whole = n - n % 4
        for a in range(0, whole, 4):
            b0, b1, b2, b3 = B[named[a]], B[named[a + 1]], B[named[a + 2]], B[named[a + 3]]
            for k in range(r):
                row[k] = (((row[k] + b0[k]) + b1[k]) + b2[k]) + b3[k]
        for a in range(whole, n):
            b = B[named[a]]
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
def multiply_columns(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    data: npt.NDArray[np.float64],
    out: npt.NDArray[np.float64],
) -> None:
    """``out += Xᵀ X`` for CSR rows X (n, p), out (p, p) symmetric."""
    for i in range(indptr.shape[0] - 1):
        for a in range(indptr[i], indptr[i + 1]):
            x, k = data[a], indices[a]
            for b in range(indptr[i], a + 1):
                out[max(k, indices[b]), min(k, indices[b])] += x * data[b]
    for j in range(out.shape[0]):
        for k in range(j):
            out[k, j] = out[j, k]


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
