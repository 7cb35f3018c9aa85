"""What P is fitted on: rows as they are, scaled, or lifted.

A lift makes a linear map of its features a curved one of the rows:

    kernel    φ_j(x) = exp(−½‖(x − l_j)u‖²)      Gaussian kernel with stored rows l_j (Nyström)
    fourier   φ_j(x) = √(2/D) cos(w_jᵀ(x − m)u + b_j)      random features of the same kernel

with u = 1/bandwidth, divided by the deviation of each column if they are standardised.  Of the
kernel, a thousand stored rows say far more than a thousand random directions; the latter need no
rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp

from tagstream.checks import (
    LARGEST_VALUE,
    Rows,
    check_choice,
    check_number,
    expect,
    expect_keys,
)
from tagstream.core.products import (
    add_columns,
    add_inner_products,
    add_products,
    add_transposed_products,
    line_zeros,
    multiply_columns,
    project_dense,
    split_columns,
)
from tagstream.core.search import dense_squares, row_squares
from tagstream.execution.steps import Steps
from tagstream.labels.read import Labels
from tagstream.store.sums import Examples, evenly

Matrix = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

SCALES = ("standard", "unit", None)  # divide columns by their deviation, rows by their length
LIFTS = ("kernel", "fourier", None)
CACHED = 2**21  # random numbers that are kept between fits instead of being drawn again
FARTHEST = 1e3  # from the middle, in bandwidths: beyond, a coordinate is as good as there
STEEPEST = 1e30  # one over the bandwidth
LARGEST_WEIGHT = 1e6  # of a lift in a file; a coordinate, or a normal number times √p
FILLED = 32  # columns that most sparse rows have, from which on they are a dense block
ROUNDING = 1e-12  # of a sum of squares: what is less after centring may be rounding errors only
JITTER = 1e-6  # on the diagonal of a kernel matrix, of which features have single precision


@dataclass(frozen=True)
class Choice:
    """How rows are scaled and lifted, and the strength of P's ridge."""

    scale: str | None  # one of SCALES
    lift: str | None = None  # one of LIFTS
    bandwidth: float = 1.0  # of the lift
    ridge: float = 0.0
    low: int = 0  # first column of sparse rows that is used,
    high: int = 0  # and the one before which they end; 0: the last one is used

    @classmethod
    def load(cls, state: Any) -> Choice:
        """Return the choice that a file holds, if it could have been made."""
        if isinstance(state, dict) and "low" not in state:  # of an older version
            state = {**state, "low": 0, "high": 0}
        expect_keys("the choice", state, *cls.__dataclass_fields__)
        check_choice("scale", state["scale"], SCALES)
        check_choice("lift", state["lift"], LIFTS)
        check_number("bandwidth", state["bandwidth"], least=1e-300, most=1e300)
        check_number("ridge", state["ridge"], least=0, most=1e300)
        for name in ("low", "high"):
            check_number(name, state[name], kind=int, least=0, most=2.0**31)
        return cls(**state)


_ARRAYS = ("W", "b", "m", "u")


@dataclass(frozen=True)
class Lift:
    """The features of a lift, all in single precision, whose products are cheap.

    ``m`` takes the common part out of the rows before anything can be lost of what tells them
    apart.
    """

    kind: str  # "kernel" or "fourier"
    W: Singles  # (p, D): the stored rows (l_j − m)u, or random directions
    b: Singles  # (D,): −½‖(l_j − m)u‖², or random phases
    m: Singles  # (p,)
    u: Singles  # (p,)

    def __call__(self, rows: Singles) -> Singles:
        """Return the features, (n, D); those of a row do not depend on the other rows."""
        scaled = _scaled(rows, self.m, self.u)
        out = np.empty((len(rows), len(self.b)), np.float32)
        project_dense(scaled, self.W, self.b, out)
        return self._curved(out, scaled)

    def at_once(self, rows: Rows) -> Singles:
        """Return the same up to rounding, which may depend on the other rows, but faster."""
        scaled = _scaled(rows.toarray() if sp.issparse(rows) else rows, self.m, self.u)
        out = scaled @ self.W
        out += self.b
        return self._curved(out, scaled)

    def _curved(self, out: Singles, scaled: Singles) -> Singles:
        if self.kind == "fourier":
            np.cos(out, out=out)
            out *= np.float32(np.sqrt(2 / len(self.b)))
            return out
        out -= _half_squares(scaled)[:, None]
        # No more than 1 where rounding left something of a distance of zero; and nothing so small
        # that processors take long over it.
        out.clip(-80, 0, out=out)
        return np.exp(out, out=out)

    def kernel(self) -> Matrix | None:
        """Return the matrix K (D, D) of a kernel's stored rows; None of other features."""
        if self.kind != "kernel":
            return None
        wide = np.ascontiguousarray(self.W.T).astype(np.float64)
        K = squared_distances(wide @ wide.T)
        K *= -0.5
        np.exp(K, out=K)
        K[np.diag_indices(len(K))] += JITTER
        return K

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.W.nbytes + self.b.nbytes + self.m.nbytes + self.u.nbytes

    def dump(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {"kind": self.kind} | {name: getattr(self, name).copy() for name in _ARRAYS}

    @classmethod
    def load(cls, state: Any, p: int) -> Lift:
        """Return what :meth:`dump` described, for rows of ``p`` features."""
        expect_keys("the lift", state, "kind", *_ARRAYS)
        if state["kind"] not in LIFTS[:2]:
            raise ValueError(f"a lift must be one of {LIFTS[:2]}, got {state['kind']!r}")
        b = expect("lift b", state["b"], np.float32, (None,), least=-1e16, most=1e16)
        if not len(b):
            raise ValueError("a lift must have features, got none")
        rest = {
            name: expect(f"lift {name}", state[name], np.float32, shape, least=-most, most=most)
            for name, shape, most in (
                ("W", (p, len(b)), LARGEST_WEIGHT),
                ("m", (p,), LARGEST_VALUE),
                ("u", (p,), STEEPEST),
            )
        }
        return cls(state["kind"], rest["W"], b, rest["m"], rest["u"])


def _scaled(rows: Singles, m: Singles, u: Singles) -> Singles:
    scaled = rows - m
    scaled *= u
    return scaled.clip(-FARTHEST, FARTHEST, out=scaled)


def _half_squares(scaled: Singles) -> Singles:
    """Return ½‖x‖² of each row; it does not depend on the other rows."""
    squares = np.empty(len(scaled), np.float32)
    dense_squares(scaled, squares)
    squares *= np.float32(0.5)
    return squares


@dataclass(frozen=True, eq=False)
class Features:
    """The map from rows to what P is fitted on, immutable.

    Attributes
    ----------
    unit : bool
        Whether rows are divided by their length first.
    middle, deviation : arrays of shape (p,), or None
        What dense rows are shifted and divided by; of sparse rows only the latter, for each column
        that has an entry.
    columns : int array of shape (a,), or None
        Of sparse rows without a lift, the columns that are kept: the filled ones, then the others,
        the most common first.
    n_filled : int
        How many columns most sparse rows have, if they are a block of their own; else 0.
    lift : Lift or None
    n_features : int
        How many there are.
    moments : pair of arrays of shape (p,), or None
        Mean and deviation of dense rows.
    n_inputs : int
        Width p of sparse rows.
    whole : bool
        Whether a kernel's stored rows are all the examples, in their order.
    low, high : int
        Of sparse rows, which columns are used: see :class:`Choice`.
    """

    unit: bool
    middle: Matrix | None
    deviation: Matrix | None
    columns: npt.NDArray[np.int32] | None
    lift: Lift | None
    n_features: int
    moments: tuple[Matrix, Matrix] | None = None
    n_inputs: int = 0
    n_filled: int = 0
    whole: bool = False
    low: int = 0
    high: int = 0

    def __call__(self, rows: Rows) -> Any:
        """Return the features of rows: an array; or of single precision, CSR or `Joined`."""
        rows = used_columns(rows, self.low, self.high)
        rows = unit_rows(rows) if self.unit else rows
        if self.lift is not None:
            return self.lift.at_once(rows)
        if self.columns is None:
            shifted = rows - self.middle
            return shifted if self.deviation is None else shifted / self.deviation
        return self._kept(rows)

    def _kept(self, rows: sp.csr_matrix) -> Any:
        """Return the kept columns of sparse rows, renumbered; the filled ones are dense."""
        assert self.columns is not None
        a, n, indptr = self.n_filled, rows.shape[0], rows.indptr.astype(np.int64)
        dense, ends = np.zeros((n, a), np.float32), np.empty(n + 1, np.int64)
        indices, data = np.empty(rows.nnz, np.int32), np.empty(rows.nnz, np.float32)
        own = rows.indices.astype(np.int32, copy=False), rows.data.astype(np.float32, copy=False)
        split_columns(indptr, *own, self._place, dense, ends, indices, data)
        indices, data = indices[: ends[-1]], data[: ends[-1]]
        if self.deviation is not None:
            dense = (dense / self.deviation[:a]).astype(np.float32)
            data = (data / self.deviation[a:][indices]).astype(np.float32)
        kept = sp.csr_matrix((n, len(self.columns) - a), dtype=np.float32)
        kept.data, kept.indices, kept.indptr = data, indices, ends.astype(rows.indptr.dtype)
        return Joined(dense, kept) if a else kept

    @cached_property
    def _place(self) -> npt.NDArray[np.int32]:
        """Where each column of sparse rows went; −1 for those that are not kept."""
        assert self.columns is not None
        place = np.full(self.n_inputs, -1, np.int32)
        place[self.columns] = np.arange(len(self.columns), dtype=np.int32)
        return place

    @cached_property
    def kernel(self) -> Matrix | None:
        """Of a kernel's stored rows, the matrix K (D, D)."""
        return None if self.lift is None else self.lift.kernel()

    @property
    def offset(self) -> Matrix | float:
        """What has been taken off the features."""
        if self.middle is None:
            return 0.0
        return self.middle if self.deviation is None else self.middle / self.deviation

    @cached_property
    def factor(self) -> Matrix | None:
        """The factor L of K = LLᵀ: a kernel's features Φ are not at right angles, ΦL⁻ᵀ are."""
        if self.kernel is None:
            return None
        return np.asarray(scipy.linalg.cholesky(self.kernel, lower=True))

    def original(self, P: Matrix) -> Matrix:
        """Return the weights L⁻ᵀP of the features themselves."""
        if self.factor is None:
            return P
        return np.asarray(scipy.linalg.solve_triangular(self.factor, P, trans=1, lower=True))

    def turned_both(self, A: Matrix) -> Matrix:
        """Return L⁻¹AL⁻ᵀ of a symmetric A."""
        if self.factor is None:
            return A
        half = np.tril(scipy.linalg.lapack.dsygst(A.T, self.factor, lower=1)[0])
        return np.asarray(half + np.tril(half, -1).T)

    def turned(self, R: Matrix) -> Matrix:
        """Return L⁻¹R."""
        if self.factor is None:
            return R
        return np.asarray(scipy.linalg.solve_triangular(self.factor, R, lower=True))


def make_features(examples: Examples, choice: Choice, lift_size: int, seed: int) -> Steps[Features]:
    """Return the features that were chosen, made of these examples, in steps."""
    p, unit = examples.shape[1], choice.scale == "unit"
    if examples.sparse and choice.lift is None:
        columns, n_filled = yield from _used_columns(examples, choice.low, choice.high or p)
        own = None
        if choice.scale == "standard":
            own = (yield from moments(examples, unit))[1][columns]
        return Features(
            unit, None, own, columns, None, len(columns), None, p, n_filled,
            low=choice.low, high=choice.high,
        )  # fmt: skip
    both = yield from moments(examples, unit)
    if choice.lift is None:
        return dense_features(choice, None, both)
    # Rows that differ by next to nothing ask for numbers beyond the range of single precision.
    deviation = both[1] if choice.scale == "standard" else np.ones(p)
    u = np.minimum(1 / (choice.bandwidth * deviation), STEEPEST)
    lift = _make_lift(examples, choice.lift, unit, both[0], u, lift_size, seed)
    made = dense_features(choice, lift, None if examples.sparse else both)
    return replace(made, whole=lift.kind == "kernel" and len(lift.b) == len(examples))


def dense_features(
    choice: Choice, lift: Lift | None, moments: tuple[Matrix, Matrix] | None
) -> Features:
    """Return the features of dense rows with these moments, or behind that lift."""
    unit = choice.scale == "unit"
    if lift is not None:
        return Features(unit, None, None, None, lift, len(lift.b), moments)
    assert moments is not None
    middle, deviation = moments
    spread = deviation if choice.scale == "standard" else None
    return Features(unit, middle, spread, None, None, len(middle), moments)


def used_columns(rows: Rows, low: int, high: int) -> Rows:
    """Return sparse rows without the entries that lie outside of [low, high); high 0: no end."""
    if not low and not high:
        return rows
    used = rows.indices >= low
    if high:
        used &= rows.indices < high
    ends = np.zeros(len(used) + 1, rows.indptr.dtype)
    np.cumsum(used, out=ends[1:])
    return sp.csr_matrix((rows.data[used], rows.indices[used], ends[rows.indptr]), rows.shape)


def _used_columns(
    examples: Examples, low: int, high: int
) -> Steps[tuple[npt.NDArray[np.int32], int]]:
    """Return the columns in [low, high) with an entry, and how many, the first, are filled."""
    (used,) = yield from examples.summing(_entries)
    used[:low] = used[high:] = 0
    filled = used > len(examples) / 2
    if np.count_nonzero(filled) < FILLED:
        filled[:] = False
    first, others = np.flatnonzero(filled), np.flatnonzero((used > 0) & ~filled)
    # Weights of common columns lie together and stay in the cache.  Short numbers sort at once.
    others = others[np.argsort(~np.minimum(used[others], 65535).astype(np.uint16), kind="stable")]
    return np.concatenate([first, others]).astype(np.int32), len(first)


def _entries(rows: Rows, labels: Labels, _: None) -> tuple[npt.NDArray[np.integer[Any]], ...]:
    return (rows.getnnz(axis=0),)


def moments(examples: Examples, unit: bool = False) -> Steps[tuple[Matrix, Matrix]]:
    """Return the mean and standard deviation of each column; a constant column has 1."""
    n = len(examples)
    mean = (yield from examples.summing(partial(_column_sums, unit)))[0] / n
    square = (yield from examples.summing(partial(_column_squares, unit, mean)))[0] / n
    deviation = np.sqrt(np.maximum(square - mean**2, 0) if examples.sparse else square)
    # Below this a column is constant up to the rounding of single precision.
    flat = deviation <= 1e-6 * np.abs(mean)
    return mean, np.where(flat, 1.0, deviation)


def _wide(unit: bool, rows: Rows) -> Any:
    return (unit_rows(rows) if unit else rows).astype(np.float64)


def _column_sums(unit: bool, rows: Rows, labels: Labels, _: None) -> tuple[Matrix, ...]:
    return (np.asarray(_wide(unit, rows).sum(axis=0)).ravel(),)


def _column_squares(
    unit: bool, mean: Matrix, rows: Rows, labels: Labels, _: None
) -> tuple[Matrix, ...]:
    rows = _wide(unit, rows)
    if sp.issparse(rows):
        return (np.asarray(rows.power(2).sum(axis=0)).ravel(),)
    return (((rows - mean) ** 2).sum(axis=0),)


def _make_lift(
    examples: Examples, kind: str, unit: bool, middle: Matrix, u: Any, size: int, seed: int
) -> Lift:
    p, u = len(middle), u.astype(np.float32)
    if kind == "fourier":
        draw = _directions if p * size <= CACHED else _directions.__wrapped__
        return Lift(kind, *draw(p, size, seed), middle.astype(np.float32), u)
    stored = examples.take(evenly(len(examples), size))[0]
    stored = unit_rows(stored) if unit else stored
    stored = stored.toarray() if sp.issparse(stored) else stored
    m = np.median(stored, axis=0).astype(np.float32)  # which no row far off can move
    scaled = _scaled(stored, m, u)
    return Lift(kind, np.ascontiguousarray(scaled.T), -_half_squares(scaled), m, u)


@lru_cache(maxsize=2)
def _directions(p: int, size: int, seed: int) -> tuple[Singles, Singles]:
    """Draw random features; their directions are orthogonal in blocks, for less variance."""
    generator = np.random.default_rng(seed)
    blocks = []
    width = min(p, size)
    for _ in range(-(-size // width)):
        Q, _ = np.linalg.qr(generator.standard_normal((p, width)))
        # Columns of a normal matrix have chi-distributed lengths; orthogonal ones get the same.
        blocks.append(Q * np.sqrt(generator.chisquare(p, width)))
    W = np.concatenate(blocks, axis=1)[:, :size].astype(np.float32)
    b = generator.uniform(0, 2 * np.pi, size).astype(np.float32)
    W.setflags(write=False)  # they are shared by all that have the same seed
    b.setflags(write=False)
    return W, b


def unit_rows(rows: Rows) -> Rows:
    """Return rows divided by their Euclidean length; a row of zeros stays."""
    if sp.issparse(rows):
        squares = np.empty(rows.shape[0])
        row_squares(rows.indptr.astype(np.int64), rows.data, squares)
        lengths = np.repeat(np.sqrt(np.where(squares > 0, squares, 1.0)), np.diff(rows.indptr))
        data = (rows.data / lengths).astype(np.float32)
        return sp.csr_matrix((data, rows.indices, rows.indptr), rows.shape)
    # One by one from the left, so that a row's result does not depend on the other rows.
    squares = np.add.accumulate(rows.astype(np.float64) ** 2, axis=1)[:, -1:]
    return (rows / np.sqrt(np.where(squares > 0, squares, 1.0))).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Joined:
    """Rows as two blocks side by side, such as an embedding and hashed words.

    They are never one wide matrix: what is made of both is made of each and added, and the dense
    block costs next to nothing.  Entry by entry it would cost more than all the rest of a fit.
    """

    dense: npt.NDArray[np.floating[Any]]  # (n, a)
    rest: sp.csr_matrix  # (n, b)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and of columns of both blocks."""
        return self.dense.shape[0], self.dense.shape[1] + self.rest.shape[1]

    def astype(self, dtype: npt.DTypeLike) -> Joined:
        """Return the same in another precision."""
        return Joined(self.dense.astype(dtype), self.rest.astype(dtype))

    def sum(self, axis: int) -> npt.NDArray[Any]:
        """Return the sum of each column, (a + b,)."""
        rest = np.asarray(self.rest.sum(axis=axis)).ravel()
        return np.concatenate([self.dense.sum(axis=axis), rest])

    def __matmul__(self, P: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return XP."""
        a = self.dense.shape[1]
        out: npt.NDArray[Any] = self.dense @ P[:a]
        out += self.rest @ P[a:]
        return out

    def transposed_times(self, R: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return XᵀR."""
        return np.concatenate([self.dense.T @ R, self.rest.T @ R])


def transposed_times(X: Any, R: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return XᵀR of rows, dense, CSR or joined."""
    return X.transposed_times(R) if isinstance(X, Joined) else np.asarray(X.T @ R)


def column_sums(X: Any) -> tuple[Matrix, Matrix]:
    """Return the sums of the columns of X, dense, CSR or joined, and those of their squares."""
    if isinstance(X, Joined):
        both = zip(column_sums(X.dense), column_sums(X.rest), strict=True)
        total, squares = (np.concatenate(two) for two in both)
        return total, squares
    if sp.issparse(X):
        total, squares = np.zeros((2, X.shape[1]))
        add_columns(X.indices, X.data, total, squares)
        return total, squares
    X = X.astype(np.float64)
    return X.sum(axis=0), (X * X).sum(axis=0)


# Matrices in single precision with rows of whole lines of the cache, of features that are sparse.


def in_lines(A: npt.NDArray[Any]) -> Singles:
    """Return A (n, q) with zeros beyond its columns."""
    out = line_zeros(*A.shape)
    out[:, : A.shape[1]] = A
    return out


def times_lines(X: Any, P: Singles, shift: Singles) -> Singles:
    """Return XP less a shift of each row, for X dense, CSR or joined."""
    out = line_zeros(X.shape[0], P.shape[1])
    out -= shift
    dense, rest = _blocks(X)
    a = dense.shape[1]
    if a:
        out += dense @ P[:a]
    if rest is not None:
        add_products(rest.indptr.astype(np.int64), rest.indices, rest.data, P[a:], out)
    return out


def transposed_lines(X: Any, R: Singles) -> Singles:
    """Return XᵀR for X dense, CSR or joined."""
    out = line_zeros(X.shape[1], R.shape[1])
    dense, rest = _blocks(X)
    a = dense.shape[1]
    if a:
        out[:a] = dense.T @ R
    if rest is not None:
        add_transposed_products(rest.indptr.astype(np.int64), rest.indices, rest.data, R, out[a:])
    return out


def _blocks(X: Any) -> tuple[npt.NDArray[Any], sp.csr_matrix | None]:
    """Return the dense columns of X, and the others."""
    if isinstance(X, Joined):
        return X.dense, X.rest
    return (np.zeros((X.shape[0], 0)), X) if sp.issparse(X) else (X, None)


def inner_products(X: Any) -> Matrix:
    """Return XXᵀ of rows, dense, CSR or joined, in double precision."""
    if isinstance(X, Joined):
        return inner_products(X.dense) + inner_products(X.rest)
    if sp.issparse(X) and X.format == "csr" and X.dtype == np.float32:
        starts = np.zeros(X.shape[1] + 1, np.int64)
        np.cumsum(np.bincount(X.indices, minlength=X.shape[1]), out=starts[1:])
        K = np.zeros((X.shape[0], X.shape[0]))
        add_inner_products(X.indptr.astype(np.int64), X.indices, X.data, starts, K)
        return K
    X = X.astype(np.float64)
    K = X @ X.T
    return np.asarray(K.toarray() if sp.issparse(K) else K)


def column_gram(X: Any) -> Matrix:
    """Return XᵀX of rows, dense, CSR or joined, in double precision."""
    if isinstance(X, Joined):
        X = X.astype(np.float64)
        mixed = X.rest.T @ X.dense
        return np.block([[column_gram(X.dense), mixed.T], [mixed, column_gram(X.rest)]])
    if not sp.issparse(X):
        return inner_products(X.T)
    out = np.zeros((X.shape[1], X.shape[1]))
    indices, data = X.indices.astype(np.int32, copy=False), X.data.astype(np.float64, copy=False)
    multiply_columns(X.indptr.astype(np.int64), indices, data, out)
    return out


def squared_distances(inner: Matrix) -> Matrix:
    """Return those of rows with these inner products."""
    squares = np.diag(inner)
    out = -2 * inner
    out += squares
    out += squares[:, None]
    return np.asarray(np.maximum(out, 0, out=out))


def centre(K: Matrix) -> Matrix:
    """Return the kernel matrix of the same features, centred; zero if all of them are equal."""
    mean = K.mean(axis=0)
    out = K - mean
    out -= (mean - mean.mean())[:, None]
    # Of equal features only rounding errors are left, and their trace may be negative.
    if np.trace(out) <= ROUNDING * np.trace(K):
        out[:] = 0.0
    return np.asarray(out)
