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
import pickle
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import binding
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.environment import Environment, lookup_environment
from numba.core.registry import CPUDispatcher
from numba.core.runtime import _nrt_python  # type: ignore[attr-defined]  # not typed
from numba.extending import overload

from tagstream import lines
from tagstream.tiles import (
    AHEAD,
    LANES,
    LINE,
    TOGETHER,
    above_bulk,
    above_one,
    add_line,
    add_lines,
    highest,
    lowest,
    products,
    spread_line,
    spread_lines,
)

__all__ = [
    "BOX",
    "GROUP",
    "Groups",
    "add_columns",
    "add_inner_products",
    "add_products",
    "add_rows",
    "add_scaled_rows",
    "add_transposed_products",
    "cast_shadows",
    "column_products",
    "compiled",
    "compiled_loosely",
    "dense_squares",
    "gather_votes",
    "group_rows",
    "group_shadows",
    "inlined",
    "inner",
    "line_zeros",
    "multiply_columns",
    "pack",
    "pair_distance",
    "project_dense",
    "project_rows",
    "project_sparse",
    "row_squares",
    "scan",
    "scan_groups",
    "scan_one",
    "scan_rows",
    "scan_sparse",
    "split_columns",
    "spread_rows",
]

F = TypeVar("F", bound=Callable[..., Any])

WIDE = 64  # columns up to which a sum of rows is made in registers
MANY = 16  # rows for which it is worth to lay a matrix out for tiles
AT_ONCE = 4096  # rows that are converted to another precision at a time

GROUP = AHEAD * LANES  # rows of a group, which a search skips as a whole
BOX = 4  # directions in which a group has bounds
TINY = 1e-30  # more than what single precision loses where it has no smaller numbers
LOOKED = 64  # panels, per slot, that a search looks at first, if they are not half of all

# Weight of an imaginary neighbour that is three quarters for every label.  It keeps scores
# strictly between 0 and 1, as scikit-learn asks, and makes an even vote count as yes.
PRIOR = 1e-6


@cache
def _know_runtime() -> None:
    """Let machine code find the functions that manage memory."""
    for name, address in _nrt_python.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def _environment(module: str, constants: list[Any], name: str) -> Any:
    """Return what a compiled function knows of its module; it needs no more than its constants."""
    if lookup_environment(name) is None:  # type: ignore[no-untyped-call]
        made = Environment({"__name__": module})
        made.consts[:], made.env_name = constants, name
        Environment._memo[name] = made
    return lookup_environment(name)  # type: ignore[no-untyped-call]


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _environment if name == "_rebuild_env" else super().find_class(module, name)


class _Files(IndexDataCacheFile):
    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:  # type: ignore[no-untyped-call]
            return _Unpickler(file).load()


class _Loading(FunctionCache):
    """Loads compiled functions without all that numba needs to compile others.

    That is done when something is compiled; code that is there wants its memory manager only, and
    not the modules of numba in which parts of it were written.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file.__class__ = _Files

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        _know_runtime()
        try:
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except (AttributeError, ImportError):  # another version's, whose types are no longer there
            self._cache_file.flush()  # type: ignore[no-untyped-call]
            return None


class _Cache:
    """The cache of a function, whose place is looked for when it is first called.

    That is to write a file, and most functions are not called.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @cached_property
    def found(self) -> Any:
        try:
            return _Loading(self.function)
        except RuntimeError:  # no cache directory is writable
            return NullCache()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.found, name)


class Groups(NamedTuple):
    """Stored rows that lie near each other, as shadows, which a search may skip as a whole.

    The shadow of a row x (d,) is x A + a, (r,), where A has orthonormal columns, a little
    shortened: two shadows are never farther apart than their rows.

    Attributes
    ----------
    axes : array of shape (d + 1, r)
        A, and a below it.
    panels : array of shape (AHEAD G, r + 1, LANES)
        Shadows as :func:`pack` would write them, AHEAD panels for each group of GROUP rows.
    order : int array of shape (GROUP G,)
        Which row has which place in the panels, counted from ``gone`` rows before the first.
    boxes : array of shape (2 BOX, G)
        Least and largest number of the shadows of each group, in each of their first directions.
    gone : int
    """

    axes: npt.NDArray[np.float64]
    panels: npt.NDArray[np.float32]
    order: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.float32]
    gone: int


class _Own(CPUDispatcher):
    """A function that needs none of the extensions of numba which others may have installed."""

    def _compilation_chain_init_hook(self) -> None:
        pass  # to look for them takes as long as to load all that is compiled


def compiled(function: F, **options: Any) -> F:
    """Compile with numba, cached on disk where a cache directory can be written."""
    made: Any = numba.njit(nogil=True, **options)(function)
    if hasattr(made, "_cache"):  # not if numba is told to compile nothing
        made.__class__, made._cache = _Own, _Cache(function)
    return cast(F, made)


class _Inner(_Own):
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


@inner
def _insert(
    distance: float,
    row: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Put a row into the sorted list of the k nearest, older ones first, if it belongs there."""
    j = best.shape[0] - 1
    if best[j] < distance or (best[j] == distance and rows[j] < row):
        return
    while j > 0 and (best[j - 1] > distance or (best[j - 1] == distance and rows[j - 1] > row)):
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
def group_rows(points: npt.NDArray[np.float32], order: npt.NDArray[np.int32]) -> None:
    """Write an order of points (n, BOX at most), n a multiple of GROUP, in which groups are near.

    They are halved again and again, each time in the direction in which they vary most.
    """
    n, width = points.shape
    keys = np.empty(n, np.float32)
    parts = [(0, n)]
    for i in range(n):
        order[i] = i
    while len(parts):
        start, stop = parts.pop()
        if stop - start <= GROUP:
            continue
        widest, most = 0, -1.0
        step = max(1, (stop - start) // 256)  # some of them tell
        for j in range(width):
            total = square = 0.0
            for i in range(start, stop, step):
                x = np.float64(points[order[i], j])
                total += x
                square += x * x
            spread = square - total * total / (1 + (stop - start - 1) // step)
            if spread > most:
                widest, most = j, spread
        for i in range(start, stop):
            keys[i] = points[order[i], widest]
        middle = start + (stop - start) // GROUP // 2 * GROUP
        _halve(keys, order, start, stop - 1, middle)
        parts.append((start, middle))
        parts.append((middle, stop))


@inner
def _halve(
    keys: npt.NDArray[np.float32], order: npt.NDArray[np.int32], first: int, last: int, middle: int
) -> None:
    """Reorder both from ``first`` to ``last`` so that no key before the middle is larger."""
    while first < last:
        pivot = keys[(first + last) // 2]
        a, b = first, last
        while a <= b:
            while keys[a] < pivot:
                a += 1
            while keys[b] > pivot:
                b -= 1
            if a <= b:
                keys[a], keys[b] = keys[b], keys[a]
                order[a], order[b] = order[b], order[a]
                a += 1
                b -= 1
        if middle <= b:
            last = b
        elif middle >= a:
            first = a
        else:
            break


@compiled
def _error(d: int) -> float:
    return (d + 8) * 2.0**-22


@inner
def _limit(most: float, square: float, error: float, slack: float = 0.0) -> np.float32:
    """Return what a sum of :func:`scan` must reach for its row to be as near as ``most``."""
    limit = 0.5 * (square - most)
    # Where no row is, the sum is minus infinity, which reaches no limit.
    return np.float32(max(limit - error * (square + slack + abs(limit)) - TINY, -3.4e38))


@compiled_loosely
def _rough_distance(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> np.float32:
    total = np.float32(0.0)
    for j in range(a.shape[0]):
        gap = a[j] - b[j]
        total += gap * gap
    return total


@compiled
def _at_least(values: npt.NDArray[np.float32], size: int, k: int) -> np.float32:
    """Return a number that k of the first values do not exceed, hardly more than the k-th smallest.

    By halves, which has no branches to be guessed wrong.
    """
    low = high = values[0]
    for a in range(size):
        low = values[a] if values[a] < low else low
        high = values[a] if values[a] > high else high
    for _ in range(12):
        middle = np.float32(0.5) * low + np.float32(0.5) * high
        n = np.int32(0)
        for a in range(size):
            n += np.int32(values[a] <= middle)
        if n >= k:
            high = middle
        else:
            low = middle
    return np.float32(high)


@inner
def _settle(
    codes: npt.NDArray[np.float32],
    query: npt.NDArray[np.float32],
    waiting: npt.NDArray[np.int64],
    n: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Merge n waiting rows into the k nearest, by the sums of :func:`pair_distance`."""
    k = best.shape[0]
    distances = np.empty(n + 3)
    for a in range(0, n, 4):  # four sums do not wait for each other
        r0, r1 = waiting[a], waiting[min(a + 1, n - 1)]
        r2, r3 = waiting[min(a + 2, n - 1)], waiting[min(a + 3, n - 1)]
        d0 = d1 = d2 = d3 = 0.0
        for j in range(query.shape[0]):
            x = np.float64(query[j])
            g0, g1 = np.float64(codes[r0, j]) - x, np.float64(codes[r1, j]) - x
            g2, g3 = np.float64(codes[r2, j]) - x, np.float64(codes[r3, j]) - x
            d0 += g0 * g0
            d1 += g1 * g1
            d2 += g2 * g2
            d3 += g3 * g3
        distances[a], distances[a + 1] = d0, d1
        distances[a + 2], distances[a + 3] = d2, d3
    if best[0] < np.inf:
        for a in range(n):
            _insert(distances[a], waiting[a], best, rows)
        return
    for a in range(n):  # each has as many before it as its place says
        distance, row, place = distances[a], waiting[a], 0
        for b in range(n):
            place += (distances[b] < distance) | ((distances[b] == distance) & (waiting[b] < row))
        if place < k:
            best[place], rows[place] = distance, row


@inner
def _sift(
    codes: npt.NDArray[np.float32],
    query: npt.NDArray[np.float32],
    near: npt.NDArray[np.float32],
    waiting: npt.NDArray[np.int64],
    n: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> tuple[int, float]:
    """Send away those of n waiting rows that cannot be among the k nearest.

    ``near`` are their distances in single precision, off by less than ε of themselves.  Return how
    many are left, and what the k-th distance is at most.  If they leave no room for another group,
    as where many are equally near, they are settled.
    """
    k, error = best.shape[0], _error(query.shape[0])
    most = best[k - 1] + TINY
    if n >= k:
        most = min(most, _at_least(near, n, k) * (1.0 + error) + 2.0 * TINY)
    kept: Any = np.int64(0)  # for a constant, which 0 is, all would be compiled once more
    for a in range(n):
        rough, row = near[a], waiting[a]
        near[kept], waiting[kept] = rough, row
        kept += rough * (1.0 - error) <= most
    if kept > waiting.shape[0] - GROUP:
        _settle(codes, query, waiting, kept, best, rows)
        kept, most = np.int64(0), best[k - 1] + TINY
    return kept, most


@inner
def _room(k: int) -> int:
    """Return for how many rows there is room to wait; some are left when they are sifted."""
    return 2 * k + LANES + GROUP


@inner
def _measure(
    codes: npt.NDArray[np.float32],
    query: npt.NDArray[np.float32],
    near: npt.NDArray[np.float32],
    waiting: npt.NDArray[np.int64],
    first: int,
    n: int,
    most: float,
) -> int:
    """Measure the last waiting rows, from ``first`` on; return how many wait that are near enough.

    All are measured before one is sent away, so that the memory is asked for all of them at once.
    """
    error = _error(query.shape[0])
    for a in range(first, n):
        near[a] = _rough_distance(codes[waiting[a]], query)
    kept = first
    for a in range(first, n):
        rough, row = near[a], waiting[a]
        near[kept], waiting[kept] = rough, row
        kept += rough * (1.0 - error) <= most
    return kept


@compiled
def cast_shadows(
    rows: npt.NDArray[np.float32],
    axes: npt.NDArray[np.float64],
    shadows: npt.NDArray[np.float32],
    slack: npt.NDArray[np.float32],
) -> None:
    """Write the shadows of rows, (n, r), and the slack that their distances need, (n,).

    A shadow is made in double precision with an error of at most √r (d + 1) 2⁻⁵³ (‖x‖ + ‖a‖), and
    rounded once.  What both may add to ½‖q̃ − c̃‖² is, for r ≤ 16 and d ≤ 1024, less than half of
    ε(s(q) + s(c)), s(x) = ‖x̃‖² + 2⁻²⁰(‖x‖² + ‖a‖²), ε = (r + 8) 2⁻²²; slack is the second term.
    """
    n, d = rows.shape
    wide = np.empty(shadows.shape)
    project_dense(rows, axes[:d], axes[d], wide)
    shift = 0.0
    for j in range(axes.shape[1]):
        shift += axes[d, j] * axes[d, j]
    for i in range(n):
        for j in range(axes.shape[1]):
            shadows[i, j] = wide[i, j]
        square = shift
        for j in range(d):
            square += np.float64(rows[i, j]) ** 2
        slack[i] = 2.0**-20 * square


@compiled
def group_shadows(
    shadows: npt.NDArray[np.float32],
    slack: npt.NDArray[np.float32],
    order: npt.NDArray[np.int32],
    panels: npt.NDArray[np.float32],
    boxes: npt.NDArray[np.float32],
) -> None:
    """Write shadows into panels, and the boxes of groups, in an order of :func:`group_rows`.

    The first line is as that of :func:`pack`, with the room that shadows need.
    """
    n, r = shadows.shape
    for j in range(boxes.shape[0] // 2):
        for g in range(n // GROUP):
            boxes[2 * j, g], boxes[2 * j + 1, g] = np.inf, -np.inf
    for i in range(n):
        b, lane, g, square = i // LANES, i % LANES, i // GROUP, 0.0
        for j in range(r):
            x = shadows[order[i], j]
            panels[b, j + 1, lane] = x
            square += np.float64(x) * np.float64(x)
            if 2 * j < boxes.shape[0]:
                boxes[2 * j, g] = min(boxes[2 * j, g], x)
                boxes[2 * j + 1, g] = max(boxes[2 * j + 1, g], x)
        panels[b, 0, lane] = -0.5 * (square - _error(r) * (square + slack[order[i]]))


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
    skipped.  Rows that are not skipped are measured in single precision and wait; what is returned
    is decided by the sums of :func:`pair_distance`.
    """
    m, d = queries.shape
    k = best.shape[1]
    tiles = -(-m // TOGETHER)
    together = np.zeros((tiles, d, TOGETHER), np.float32)
    squares, most = np.zeros(m), np.empty(m)
    start, stop = lo[0], hi[0]
    for i in range(m):
        for j in range(d):
            together[i // TOGETHER, j, i % TOGETHER] = queries[i, j]
            squares[i] += np.float64(queries[i, j]) ** 2
        most[i] = best[i, k - 1] + TINY
        start, stop = min(start, lo[i]), max(stop, hi[i])
    first = max((start + skip) // LANES, 0)
    last = min(-(-(stop + skip) // LANES), panels.shape[0])
    _look_first(together, panels, first, last, squares, skip, lo, hi, k, most)

    error = _error(d)
    limits = np.empty((tiles, TOGETHER), np.float32)
    for c in range(TOGETHER):
        limits[tiles - 1, c] = 3.4e38  # nothing is near to no query
    masks, sums = np.empty(TOGETHER, np.uint16), np.empty((TOGETHER, LANES), np.float32)
    near, waiting = np.empty((m, _room(k)), np.float32), np.empty((m, _room(k)), np.int64)
    n_waiting = np.zeros(m, np.int64)
    for i in range(m):
        limits[i // TOGETHER, i % TOGETHER] = _limit(most[i], squares[i], error)
    for b in range(first, last):
        for g in range(tiles):
            if not above_bulk(together, g, panels, b, limits, masks, sums):
                continue
            for c in range(min(TOGETHER, m - g * TOGETHER)):
                reached = np.int64(masks[c])
                if not reached:
                    continue
                i = g * TOGETHER + c
                n = n_waiting[i]
                while reached:
                    row = b * LANES - skip + lowest(reached)
                    reached &= reached - 1
                    if lo[i] <= row < hi[i]:
                        rough = _rough_distance(codes[row], queries[i])
                        near[i, n], waiting[i, n] = rough, row
                        n += rough * (1.0 - error) <= most[i]
                if n > waiting.shape[1] - GROUP:
                    n, most[i] = _sift(codes, queries[i], near[i], waiting[i], n, best[i], rows[i])
                    limits[g, c] = _limit(most[i], squares[i], error)
                n_waiting[i] = n
    for i in range(m):
        n, _ = _sift(codes, queries[i], near[i], waiting[i], n_waiting[i], best[i], rows[i])
        _settle(codes, queries[i], waiting[i], n, best[i], rows[i])


@inner
def _look_first(
    together: npt.NDArray[np.float32],
    panels: npt.NDArray[np.float32],
    first: int,
    last: int,
    squares: npt.NDArray[np.float64],
    skip: int,
    lo: npt.NDArray[np.int64],
    hi: npt.NDArray[np.int64],
    k: int,
    most: npt.NDArray[np.float64],
) -> None:
    """Lower what the k-th distance of each query is at most, by a look at some panels.

    Their sums are dealt out to at least 2k slots, and the highest of each slot is kept: k slots
    stand for k different rows.  With the bounds of :func:`scan`, a row whose sum is s has
    D(1 − 4ε) ≤ ‖q‖²(1 + 4ε) − 2s, since s is too high by at most ε(¾‖c‖² + ⅛‖q‖²) and
    ‖c‖² ≤ 2‖q‖² + 2D.
    """
    m, tiles, error = squares.shape[0], together.shape[0], _error(together.shape[1])
    sets = -(-2 * k // LANES)
    n = min((last - first) // 2, LOOKED * sets)
    if n < 4 * sets:  # that many sums would tell little
        return
    begin, end = np.empty(tiles, np.int64), np.empty(tiles, np.int64)
    known = np.empty(tiles, np.bool_)
    for g in range(tiles):
        begin[g], end[g], known[g] = first, last, True
    for i in range(m):  # of a tile, what all its queries see
        g = i // TOGETHER
        begin[g] = max(begin[g], -(-(lo[i] + skip) // LANES))
        end[g] = min(end[g], (hi[i] + skip) // LANES)
        known[g] &= most[i] < np.inf
    for g in range(tiles):
        if known[g]:
            begin[g] = end[g]
    slots = np.empty((tiles * sets, TOGETHER, LANES), np.float32)
    slots.fill(-np.inf)
    for c in range(n):
        for g in range(tiles):
            b = end[g] - 1 - c
            if b >= begin[g]:
                highest(together, g, panels, b, slots, g * sets + c % sets)
    gaps = np.empty(sets * LANES, np.float32)
    for i in range(m):
        g, c = i // TOGETHER, i % TOGETHER
        if end[g] - begin[g] < sets:
            continue
        for a in range(sets):
            for lane in range(LANES):
                gaps[a * LANES + lane] = -slots[g * sets + a, c, lane]
        gap = 2.0 * np.float64(_at_least(gaps, gaps.shape[0], k))
        nearest = (squares[i] * (1.0 + 4.0 * error) + gap) / (1.0 - 4.0 * error)
        most[i] = min(most[i], nearest + 2.0 * TINY)


@compiled
def scan_groups(
    codes: npt.NDArray[np.float32],
    groups: Groups,
    queries: npt.NDArray[np.float32],
    lo: npt.NDArray[np.int64],
    hi: npt.NDArray[np.int64],
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Merge the rows of groups into the k nearest of each query, as :func:`scan` does."""
    m = queries.shape[0]
    shadows, slack = np.empty((m, groups.axes.shape[1]), np.float32), np.empty(m, np.float32)
    cast_shadows(queries, groups.axes, shadows, slack)
    for i in range(m):
        _scan_near_groups(
            codes, groups, queries[i], shadows[i], slack[i], lo[i], hi[i], best[i], rows[i]
        )


@inner
def _scan_near_groups(
    codes: npt.NDArray[np.float32],
    groups: Groups,
    query: npt.NDArray[np.float32],
    shadow: npt.NDArray[np.float32],
    slack: float,
    lo: int,
    hi: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Do it for one query: near groups first, far ones not at all.

    The sums are those of :func:`scan`, of shadows: there the other half of ε is for their own
    errors, and their slack is added, see :func:`cast_shadows`.

    The distance of a shadow from a group's box is at most that from each shadow in it.  Those of
    the k nearest have ‖c̃‖² ≤ 2‖q̃‖² + 2w and the like, so 4ε(s(q) + w) is more than single
    precision and :func:`cast_shadows` can take off.
    """
    n_groups, k, r = groups.order.shape[0] // GROUP, best.shape[0], shadow.shape[0]
    bounds = np.zeros(n_groups, np.float32)
    zero = np.float32(0.0)
    for j in range(groups.boxes.shape[0] // 2):
        x, least, largest = shadow[j], groups.boxes[2 * j], groups.boxes[2 * j + 1]
        for g in range(n_groups):
            below, above = least[g] - x, x - largest[g]
            gap = below if below > above else above
            gap = gap if gap > zero else zero
            bounds[g] += gap * gap

    most, square, error = best[k - 1] + TINY, 0.0, _error(r)
    n: Any = np.int64(0)  # no constant
    limits, masks = np.empty((1, 1), np.float32), np.empty(AHEAD, np.uint16)
    sums, alone = np.empty((AHEAD, LANES), np.float32), np.empty((1, r, 1), np.float32)
    near, waiting = np.empty(_room(k), np.float32), np.empty(_room(k), np.int64)
    for j in range(r):
        alone[0, j, 0] = shadow[j]
        square += np.float64(shadow[j]) ** 2
    limits[0, 0] = _limit(most, square, error, slack)
    turns = np.empty(n_groups + 1, np.int64)
    n_seeds = min(-(-k // GROUP), n_groups)
    for a in range(n_seeds):  # the nearest groups, which hold k rows
        nearest = 0
        for g in range(n_groups):
            nearest = g if bounds[g] < bounds[nearest] else nearest
        turns[a], bounds[nearest] = nearest, np.inf
    for a in range(n_seeds):
        bounds[turns[a]] = np.nan  # within no reach: they have had their turn
    n_turns, turn, reach = n_seeds, 0, np.float32(np.inf)
    while turn < n_turns:
        g = turns[turn]
        turn += 1
        if turn > n_seeds and bounds[g] > reach:
            continue
        if above_one(alone, 0, groups.panels, g * AHEAD, limits, masks, sums):
            first = n
            for c in range(AHEAD):
                reached = np.int64(masks[c])
                place = (g * AHEAD + c) * LANES
                while reached:
                    row = int(groups.order[place + lowest(reached)]) - groups.gone
                    reached &= reached - 1
                    waiting[n] = row
                    n += lo <= row < hi
            n = _measure(codes, query, near, waiting, first, n, most)
        if turn == n_seeds or n > waiting.shape[0] - GROUP:
            n, most = _sift(codes, query, near, waiting, n, best, rows)
            limits[0, 0] = _limit(most, square, error, slack)
            reach = np.float32(most + 4.0 * error * (square + slack + most) + TINY)
        if turn == n_seeds:  # now it is known how near a group must be
            for g in range(n_groups):
                turns[n_turns] = g
                n_turns += bounds[g] <= reach
            _sort_turns(turns[n_seeds:n_turns], bounds)
    n, most = _sift(codes, query, near, waiting, n, best, rows)
    _settle(codes, query, waiting, n, best, rows)


@inner
def _sort_turns(turns: npt.NDArray[np.int64], bounds: npt.NDArray[np.float32]) -> None:
    """Put groups into the order of their bounds, if they are few."""
    if turns.shape[0] > 256:
        return
    for a in range(1, turns.shape[0]):
        g, b = turns[a], a
        while b > 0 and bounds[turns[b - 1]] > bounds[g]:
            turns[b] = turns[b - 1]
            b -= 1
        turns[b] = g


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
    """Do the same for one query."""
    d, k = query.shape[0], best.shape[0]
    most, square, error = best[k - 1] + TINY, 0.0, _error(d)
    n: Any = np.int64(0)  # no constant
    limits, masks = np.empty((1, 1), np.float32), np.empty(AHEAD, np.uint16)
    sums, alone = np.empty((AHEAD, LANES), np.float32), np.empty((1, d, 1), np.float32)
    near, waiting = np.empty(_room(k), np.float32), np.empty(_room(k), np.int64)
    for j in range(d):
        alone[0, j, 0] = query[j]
        square += np.float64(query[j]) ** 2
    limits[0, 0] = _limit(most, square, error)
    for b in range(max((lo + skip) // LANES, 0), -(-(hi + skip) // LANES), AHEAD):
        if above_one(alone, 0, panels, b, limits, masks, sums):
            first = n
            for c in range(AHEAD):
                reached = np.int64(masks[c])
                while reached:
                    row = (b + c) * LANES - skip + lowest(reached)
                    reached &= reached - 1
                    waiting[n] = row
                    n += lo <= row < hi
            n = _measure(codes, query, near, waiting, first, n, most)
            if n > waiting.shape[0] - GROUP:
                n, most = _sift(codes, query, near, waiting, n, best, rows)
                limits[0, 0] = _limit(most, square, error)
    n, most = _sift(codes, query, near, waiting, n, best, rows)
    _settle(codes, query, waiting, n, best, rows)


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
        if kept * _rough_distance(stored[row], query) <= best[k - 1] + TINY:
            _insert(pair_distance(stored[row], query), row, best, rows)


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
