"""The projection P: from inputs into label space, by ridge regression that keeps learning.

    z = Pᵀφ(x) + c        φ(x) = x, or √(2/D) cos(Wᵀx + b), a lift by random Fourier features

P and c minimise ‖Y − ΦP − 1cᵀ‖² + ρ‖P‖² over the stored examples (Choice C2: the paper's least
squares has no ρ, and with p near the number of examples sits on the interpolation peak).  The
intercept is what remains of centring both sides, which needs no dense copy of sparse rows.

Three things are chosen by looking at how well examples are predicted by the others, in closed
form (leave-one-out): how to scale, whether to lift and with which bandwidth, and ρ.
With the centred kernel matrix K = ΦΦᵀ = UΛUᵀ, the fitted values are HY with
H = U diag(Λ/(Λ + ρ))Uᵀ + 11ᵀ/n, and leaving example i out changes its residual to
(Y − HY)_i / (1 − H_ii).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp

from tagstream.base import Labels, Rows
from tagstream.kernels import project_dense, project_sparse, row_squares

__all__ = [
    "SCALES",
    "Choice",
    "Lift",
    "Projection",
    "choose",
    "first_block",
    "fit",
    "leading_directions",
    "leave_one_out",
    "next_fit",
    "validated_ridge",
]

Matrix = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

FIRST_FIT = 20  # examples before the first fit
GROWTH = 8  # a fit follows when an eighth more examples have been seen,
LARGE, LARGE_GROWTH = 4096, 4  # or a quarter where there are many, or as many as the window holds
SAMPLE = 512  # examples on which choices are made: their cost stays constant
RIDGE_SAMPLE = 1500  # the same for the ridge alone
LIFT_SIZE = 1000  # random features of a lift
BANDWIDTHS = (2.0, 1.0, 0.5, 0.25)  # of the lift, times the median distance
SCALES = ("standard", "unit", None)  # divide columns by their deviation, rows by their length
INTERPOLATION = 0.05  # share of free residuals below which a fit is not trusted
BLOCK = 4096  # rows that are lifted at a time
CACHED = 2**21  # numbers of a lift that are kept between fits instead of being drawn again
DIRECT = 3000  # smaller side of the features up to which normal equations are formed


def next_fit(t: int, window: int | None) -> int:
    """Return the next time after ``t`` examples at which P is fitted again.

    The gaps grow with what is stored, so the work per example stays constant on average.
    """
    if t < FIRST_FIT:
        return FIRST_FIT
    if window is not None and t > window:
        return t + max(1, window // LARGE_GROWTH)
    return t + t // (GROWTH if t < LARGE else LARGE_GROWTH)


@dataclass(frozen=True)
class Choice:
    """What was chosen by leave-one-out error."""

    scale: str | None  # one of SCALES
    bandwidth: float | None = None  # None: no lift
    ridge: float = 0.0


@dataclass(frozen=True)
class Lift:
    """Random Fourier features √(2/D) cos(Wᵀ(x − m) + b), W (p, D), b (D,), m (p,).

    All in single precision, whose products and cosines are cheap; m takes the common part out of
    the rows before anything can be lost of what tells them apart.
    """

    W: Singles
    b: Singles
    m: Singles

    def __call__(self, rows: Singles) -> Singles:
        """Return the features, (n, D); those of a row do not depend on the other rows."""
        phase = np.empty((len(rows), len(self.b)), np.float32)
        project_dense(rows - self.m, self.W, self.b, phase)
        return self._wave(phase)

    def at_once(self, rows: Singles) -> Singles:
        """Return the same up to rounding, which may depend on the other rows, but faster."""
        return self._wave(np.asarray((rows - self.m) @ self.W + self.b, np.float32))

    def _wave(self, phase: Singles) -> Singles:
        np.cos(phase, out=phase)
        phase *= np.float32(np.sqrt(2 / len(self.b)))
        return phase

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.W.nbytes + self.b.nbytes + self.m.nbytes

    def dump(self) -> dict[str, Singles]:
        """Return its arrays, copied."""
        return {"W": self.W.copy(), "b": self.b.copy(), "m": self.m.copy()}


@dataclass(frozen=True)
class Projection:
    """The map z = Pᵀφ(x) + c.

    Attributes
    ----------
    P : array of shape (p, q), or (D, q) behind a lift
        For sparse inputs (a + 1, q): a row for each of the ``a`` features that stored examples
        have, and a row of zeros for all others, of which there may be very many.
    c : array of shape (q,)
    lift : Lift or None
    columns : int array of shape (a,), or None
        Of sparse inputs, the features that have a row, in order.
    p : int
        Number of features.
    unit : bool
        Whether rows are divided by their length first.
    """

    P: npt.NDArray[np.floating[Any]]
    c: Matrix
    lift: Lift | None = None
    columns: npt.NDArray[np.int32] | None = None
    p: int = 0
    unit: bool = False

    @cached_property
    def _row_of(self) -> npt.NDArray[np.int32]:
        assert self.columns is not None
        row_of = np.full(self.p, len(self.columns), np.int32)
        row_of[self.columns] = np.arange(len(self.columns), dtype=np.int32)
        return row_of

    @property
    def dense(self) -> npt.NDArray[np.floating[Any]]:
        """P with a row for every feature, (p, q), or (D, q) behind a lift."""
        return self.P if self.columns is None else self.P[self._row_of]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        lift = 0 if self.lift is None else self.lift.nbytes
        return self.P.nbytes + self.c.nbytes + lift + 4 * self.p

    def __call__(self, rows: Rows) -> Matrix:
        """Return z for each row, (n, q); a row's result does not depend on the other rows."""
        out = np.empty((rows.shape[0], len(self.c)))
        if self.columns is not None:
            rows = _unit_rows(rows) if self.unit else rows
            project_sparse(
                rows.indptr.astype(np.int64), self._row_of[rows.indices],
                rows.data.astype(np.float32, copy=False), self.P, self.c, out,
            )  # fmt: skip
        else:
            for first in range(0, rows.shape[0], BLOCK):  # lifted rows are wide: not all at once
                part = slice(first, first + BLOCK)
                some = rows[part].toarray() if sp.issparse(rows) else rows[part]
                project_dense(self.features(some), self.P, self.c, out[part])
        return out

    def features(self, rows: Singles) -> Singles:
        """Return what P is multiplied with, of dense rows."""
        rows = _unit_rows(rows) if self.unit else rows
        return rows if self.lift is None else self.lift(rows)

    def grown(self, q: int) -> Projection:
        """Return the same map with further labels, of which nothing is known yet: z = 0."""
        more = q - len(self.c)
        return replace(self, P=np.pad(self.P, ((0, 0), (0, more))), c=np.pad(self.c, (0, more)))


def _of_columns(
    P: Matrix, c: Matrix, columns: npt.NDArray[np.int32], p: int, unit: bool = False
) -> Projection:
    """Return the projection of sparse inputs from the rows of P that are not zero."""
    return Projection(np.pad(P, ((0, 1), (0, 0))).astype(np.float32), c, None, columns, p, unit)


def _unit_rows(rows: Rows) -> Rows:
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


def _targets(labels: Labels) -> tuple[Matrix, Matrix]:
    """Return the labels minus their mean, unknown entries as 0, and the mean."""
    Y = labels.Y.astype(np.float64)
    if labels.known is None:
        mean: Matrix = Y.mean(axis=0)
        return Y - mean, mean
    count = np.maximum(labels.known.sum(axis=0), 1)
    mean = (Y * labels.known).sum(axis=0) / count
    return np.where(labels.known, Y - mean, 0.0), mean


def _moments(rows: Rows) -> tuple[Matrix, Matrix]:
    """Return the mean and standard deviation of each column; a constant column has 1."""
    if sp.issparse(rows):
        rows = rows.astype(np.float64)  # the mean of scipy's single precision rows is single too
        mean = np.asarray(rows.mean(axis=0)).ravel()
        square = np.asarray(rows.power(2).mean(axis=0)).ravel()
        deviation = np.sqrt(np.maximum(square - mean**2, 0))
    else:
        mean = rows.mean(axis=0, dtype=np.float64)
        deviation = rows.std(axis=0, dtype=np.float64)
    # Below this a column is constant up to the rounding of single precision.
    flat = deviation <= 1e-6 * np.abs(mean)
    return mean, np.where(flat, 1.0, deviation)


def _centre(K: Matrix) -> Matrix:
    """Return the kernel matrix of the same features, centred."""
    mean = K.mean(axis=0)
    return np.asarray(K - mean - mean[:, None] + mean.mean())


def validated_ridge(values: Matrix, energy: Matrix, rest: float, n: int, ridges: Matrix) -> float:
    """Return the ridge of least generalised cross-validation error, n‖(I − H)T‖²/(n − tr H)².

    Parameters
    ----------
    values : eigenvalues of the centred kernel matrix
    energy : ‖u_kᵀT‖² of its eigenvectors u_k
    rest : what of ‖T‖² lies outside of all u_k
    n : number of examples
    ridges : candidate strengths
    """
    left = ridges[:, None] / (values + ridges[:, None])  # share of a direction that is not fitted
    freedom = n - 1 - (1 - left).sum(axis=1)
    errors = (rest + left**2 @ energy) / np.maximum(freedom, 1e-9 * n) ** 2
    # Near interpolation both sides of the fraction vanish and it says nothing.
    errors[freedom < INTERPOLATION * n] = np.inf
    return float(ridges[np.argmin(errors)]) if np.isfinite(errors).any() else float(ridges[-1])


def leave_one_out(K: Matrix, T: Matrix, ridge: float | None = None) -> tuple[float, Matrix, Matrix]:
    """Predict each example by the others, in closed form.

    Parameters
    ----------
    K : centred kernel matrix, (n, n)
    T : centred targets, (n, q)
    ridge : strength; None takes that of least generalised cross-validation error

    Returns
    -------
    ridge, fitted values (n, q), left-out predictions (n, q)
    """
    values, U = scipy.linalg.eigh(K, driver="evd")
    values = np.maximum(values, 0)
    C = U.T @ T
    if ridge is None:
        ridges = _grid(float(values.sum()))
        ridge = validated_ridge(values, (C**2).sum(axis=1), 0.0, len(K), ridges)
    shrink = values / (values + max(ridge, 1e-300))
    fitted = U @ (shrink[:, None] * C)
    own = np.minimum((U * U) @ shrink + 1 / len(K), 1 - 1e-6)
    return ridge, fitted, T - (T - fitted) / (1 - own)[:, None]


def _vote_error(left_out: Matrix, fitted: Matrix, labels: Labels, k: int) -> int:
    """Return k² times the squared error of the vote, each example looked up left out.

    A whole number: candidates whose votes agree are equal, whatever was rounded on the way.
    """
    squares = np.einsum("ij,ij->i", fitted, fitted)
    distance = squares - 2 * left_out @ fitted.T
    np.fill_diagonal(distance, np.inf)
    k = min(k, len(fitted) - 1)
    near = np.argpartition(distance, k - 1, axis=1)[:, :k]
    Y = labels.Y.astype(np.int64)
    gaps = Y[near].sum(axis=1) - k * Y
    if labels.known is not None:
        gaps *= labels.known
    return int((gaps**2).sum())


def _bandwidths(inner: Matrix) -> list[float]:
    """Return multiples of the median distance of rows with these inner products, wide to narrow."""
    squares = np.diag(inner)
    distance = np.maximum(squares + squares[:, None] - 2 * inner, 0)
    pairs = distance[np.triu_indices(len(distance), 1)]
    median = float(np.sqrt(np.median(pairs))) if len(pairs) else 0.0
    return [factor * median for factor in BANDWIDTHS] if median > 0 else []


def choose(
    rows: Rows,
    labels: Labels,
    *,
    scale: str | None,
    lift: str | None,
    ridge: float | str,
    n_neighbors: int,
    lift_size: int,
    seed: int,
    sample: int = SAMPLE,
) -> Choice:
    """Choose scaling and lift on at most ``sample`` evenly spaced examples, then the ridge.

    Within a candidate the ridge has the least squared error; the candidate has the least error
    of the vote, since what is regressed is not what is wanted in the end.
    """
    few, few_labels = _sample(rows, labels, sample)
    T, _ = _targets(few_labels)
    strength = None if ridge == "auto" else float(ridge)

    def kernel(candidate: Choice) -> Matrix:
        X = _features(few, candidate, lift_size, seed, keep=True)[0].X.astype(np.float64)
        K = X @ X.T
        return np.asarray(K.toarray() if sp.issparse(K) else K)

    def judge(candidate: Choice, K: Matrix) -> tuple[int, Choice]:
        found, fitted, left_out = leave_one_out(_centre(K), T, strength)
        error = _vote_error(left_out, fitted, few_labels, n_neighbors) if len(K) > 1 else 0
        return error, replace(candidate, ridge=found)

    # Sparse rows are neither standardised nor lifted unless asked: both would fill them in.  Their
    # lengths, which tell long from short texts and little else, may be taken out.
    sparse = sp.issparse(rows)
    scales = (scale,) if scale != "auto" else (None, "unit") if sparse else (None, "standard")
    linear, lifted = [], []
    for one in scales:
        inner = kernel(Choice(one))
        linear.append(judge(Choice(one), inner))
        before: float = np.inf
        for bandwidth in _bandwidths(inner) if lift == "fourier" or (lift and not sparse) else ():
            candidate = Choice(one, bandwidth)
            lifted.append(judge(candidate, kernel(candidate)))
            if lifted[-1][0] > before:
                break  # narrower ones are worse still
            before = lifted[-1][0]
    judged = (lifted or linear) if lift == "fourier" else linear + lifted
    choice = min(judged, key=lambda one: one[0])[1]  # the first, and simplest, of equals
    if strength is not None or (rows.shape[0] <= sample and choice.bandwidth is None):
        return choice
    return replace(choice, ridge=_ridge_of_all(rows, labels, choice, lift_size, seed))


def _sample(rows: Rows, labels: Labels, size: int) -> tuple[Rows, Labels]:
    """Return at most ``size`` evenly spaced examples."""
    n = rows.shape[0]
    if n <= size:
        return rows, labels
    some = np.arange(size) * n // size
    known = None if labels.known is None else labels.known[some]
    return rows[some], Labels(labels.Y[some], known)


def _grid(trace: float) -> Matrix:
    """Return candidate ridges, relative to the total variance of the features."""
    grid: Matrix = (trace or 1.0) * 10.0 ** np.arange(-8, 0.51, 0.25)
    return grid


def _ridge_of_all(rows: Rows, labels: Labels, choice: Choice, lift_size: int, seed: int) -> float:
    """Return the ridge of least validation error on the very features that P is fitted on."""
    if min(rows.shape) > RIDGE_SAMPLE:
        rows, labels = _sample(rows, labels, RIDGE_SAMPLE)
    T, _ = _targets(labels)
    X = _features(rows, choice, lift_size, seed)[0]
    inner, right = X.equations(T)
    values, U = scipy.linalg.eigh(inner, driver="evd", overwrite_a=True)
    values = np.maximum(values, 0.0)
    if X.primal:
        energy = ((U.T @ right) ** 2).sum(axis=1)
        energy /= np.maximum(values, 1e-12 * values[-1] + 1e-300)
    else:
        energy = ((U.T @ (T - T.mean(axis=0))) ** 2).sum(axis=1)
    rest = max(float((T**2).sum() - energy.sum()), 0.0)
    return validated_ridge(values, energy, rest, X.shape[0], _grid(float(values.sum())))


class _Centred:
    """Features minus their mean, X̃ = X − 1 midᵀ, never formed: X may be sparse.

    Products are made in double precision, in blocks of rows.  With a lift, X are the rows, and
    their features are made block by block, so that they never take more room than one block.
    """

    def __init__(
        self, X: Any, mid: Matrix, offset: Matrix | float = 0.0, lift: Lift | None = None
    ) -> None:
        self.X, self.mid, self.lift = X, mid, lift
        self.offset = offset  # what has been taken off the features already
        self.shape = (X.shape[0], len(mid))
        self.primal = self.shape[1] <= self.shape[0]

    @classmethod
    def lifted(cls, rows: Rows, lift: Lift, keep: bool) -> _Centred:
        """Return the features of a lift; kept, they are made once."""
        if not keep and rows.shape[0] > BLOCK:
            return cls(rows, np.full(len(lift.b), np.nan), lift=lift)  # until they are first seen
        features = _lift_some(lift, rows)
        return cls(features, features.mean(axis=0, dtype=np.float64))

    @property
    def mean(self) -> Matrix:
        """Mean of the features."""
        return np.asarray(self.mid + self.offset)

    def _blocks(self) -> Iterator[tuple[slice, Any]]:
        for first in range(0, self.shape[0], BLOCK):
            part = slice(first, first + BLOCK)
            some = self.X[part] if self.lift is None else _lift_some(self.lift, self.X[part])
            yield part, some.astype(np.float64)

    def __matmul__(self, P: Matrix) -> Matrix:
        out = np.concatenate([np.asarray(block @ P) for _, block in self._blocks()])
        return np.asarray(out - self.mid @ P)

    def transposed(self, R: Matrix) -> Matrix:
        """Return X̃ᵀR."""
        out = sum(np.asarray(block.T @ R[part]) for part, block in self._blocks())
        return np.asarray(out - np.outer(self.mid, R.sum(axis=0)))

    def equations(self, T: Matrix) -> tuple[Matrix, Matrix]:
        """Return X̃ᵀX̃ and X̃ᵀT (primal), or X̃X̃ᵀ and T, whichever is smaller, in one pass."""
        n, p = self.shape
        if not self.primal:
            X = self.X.astype(np.float64)
            inner = X @ X.T
            return _centre(inner.toarray() if sp.issparse(inner) else inner), T
        inner, right, total = np.zeros((p, p)), np.zeros((p, T.shape[1])), np.zeros(p)
        for part, block in self._blocks():
            square = block.T @ block
            inner += square.toarray() if sp.issparse(square) else square
            right += block.T @ T[part]
            total += np.asarray(block.sum(axis=0)).ravel()
        if self.lift is not None:
            self.mid = total / n
        inner -= n * np.outer(self.mid, self.mid)
        right -= np.outer(self.mid, T.sum(axis=0))
        return inner, right

    def variances(self) -> Matrix:
        """Return the diagonal of X̃ᵀX̃."""
        squares = self.X.power(2) if sp.issparse(self.X) else self.X**2
        total = np.asarray(squares.sum(axis=0, dtype=np.float64)).ravel()
        return np.asarray(np.maximum(total - self.shape[0] * self.mid**2, 0.0))


def _lift_some(lift: Lift, rows: Rows) -> Singles:
    return lift.at_once(rows.toarray() if sp.issparse(rows) else rows)


def fit(
    rows: Rows,
    labels: Labels,
    choice: Choice,
    *,
    lift_size: int = LIFT_SIZE,
    seed: int = 0,
    start: Projection | None = None,
) -> Projection:
    """Return the projection of all the given examples for what was chosen.

    ``start`` is an earlier projection of the same kind, from which an iterative solution sets
    out; the direct ones do not need it.
    """
    T, mean = _targets(labels)
    columns, p = None, rows.shape[1]
    if sp.issparse(rows) and choice.bandwidth is None:
        columns = np.flatnonzero(rows.getnnz(axis=0)).astype(np.int32)
        rows = rows[:, columns]
    X, deviation, lift = _features(rows, choice, lift_size, seed, keep=labels.known is not None)
    guess = None
    if columns is not None and start is not None and start.columns is not None:
        guess = start.P[start._row_of[columns]] * deviation[:, None]
    P, shift = _solve(X, T, labels.known, choice.ridge, guess)
    c = mean + shift - X.mean @ P
    unit = choice.scale == "unit"
    if lift is not None:
        return Projection(P, c, lift, unit=unit)
    P /= deviation[:, None]
    if columns is None:
        return Projection(P, c, unit=unit)
    return _of_columns(P, c, columns, p, unit)


def _features(
    rows: Rows, choice: Choice, lift_size: int, seed: int, keep: bool = False
) -> tuple[_Centred, Matrix, Lift | None]:
    """Return what P is fitted on, the scale of the inputs, and the lift.

    ``keep`` holds the features of a lift, for those who look at them again and again.
    """
    rows = _unit_rows(rows) if choice.scale == "unit" else rows
    centre, deviation = _moments(rows)
    standard = choice.scale == "standard"
    if not standard:
        deviation = np.ones_like(deviation)
    if choice.bandwidth is None:
        if sp.issparse(rows):
            if not standard:
                return _Centred(rows, centre), deviation, None
            X = rows @ sp.diags(1 / deviation, dtype=np.float32)
            mid = _moments(X)[0]  # of the rounded numbers, so that centring leaves nothing behind
            return _Centred(X, mid, offset=centre / deviation - mid), deviation, None
        X = (rows - centre) / deviation
        return _Centred(X, X.mean(axis=0), offset=centre / deviation), deviation, None
    lift = _draw_lift(centre, deviation, choice.bandwidth, lift_size, seed)
    return _Centred.lifted(rows, lift, keep), deviation, lift


def _draw_lift(centre: Matrix, deviation: Matrix, bandwidth: float, size: int, seed: int) -> Lift:
    p = len(centre)
    draw = _directions if p * size <= CACHED else _directions.__wrapped__
    directions, b = draw(p, size, seed)
    W = directions / (bandwidth * deviation[:, None])
    # Rows that differ by next to nothing ask for weights beyond the range of single precision;
    # so large a weight is as good as any, and no later row makes its phase infinite.
    largest = 1e22 / p
    return Lift(np.clip(W, -largest, largest).astype(np.float32), b, centre.astype(np.float32))


@lru_cache(maxsize=2)
def _directions(p: int, size: int, seed: int) -> tuple[Matrix, Singles]:
    """Draw the features; the directions are orthogonal in blocks, which lowers their variance."""
    generator = np.random.default_rng(seed)
    blocks = []
    width = min(p, size)
    for _ in range(-(-size // width)):
        Q, _ = np.linalg.qr(generator.standard_normal((p, width)))
        # Columns of a normal matrix have chi-distributed lengths; orthogonal ones get the same.
        blocks.append(Q * np.sqrt(generator.chisquare(p, width)))
    directions = np.concatenate(blocks, axis=1)[:, :size]
    b = generator.uniform(0, 2 * np.pi, size).astype(np.float32)
    directions.setflags(write=False)  # they are shared by all that have the same seed
    b.setflags(write=False)
    return directions, b


def _solve(
    X: _Centred,
    T: Matrix,
    known: npt.NDArray[np.bool_] | None,
    ridge: float,
    start: Matrix | None,
) -> tuple[Matrix, Matrix]:
    """Minimise ‖T − X̃P − 1sᵀ‖² + ρ‖P‖² over the known entries of T; return P and s.

    When all is known, s = 0 and P solves (X̃ᵀX̃ + ρI)P = X̃ᵀT.  Otherwise each label has
    equations of its own, solved for all labels at once by conjugate gradients, for which the
    common solution is the preconditioner.
    """
    n, p = X.shape
    ridge = max(ridge, 1e-300)
    none = np.zeros(T.shape[1])
    if min(n, p) <= DIRECT:
        inner, right = X.equations(T)
        # Centring leaves eigenvalues of about this size below zero.
        ridge = max(ridge, 1e-12 * float(np.trace(inner) + n * X.mid @ X.mid))
        inner[np.diag_indices(len(inner))] += ridge
        factor = scipy.linalg.cho_factor(inner, overwrite_a=True)
        P = scipy.linalg.cho_solve(factor, right)
        if not X.primal:
            P = X.transposed(P)
        if known is None:
            return np.asarray(P), none
        start, tolerance, rounds = P, 1e-10, 500

        def apply_inverse(B: Matrix) -> Matrix:
            if X.primal:
                return np.asarray(scipy.linalg.cho_solve(factor, B))
            return np.asarray((B - X.transposed(scipy.linalg.cho_solve(factor, X @ B))) / ridge)

    else:
        variances, ridge = X.variances(), max(ridge, 1e-30)  # within single precision
        # A constant column has nothing but rounding errors to offer.
        flat = variances <= 1e-6 * n * X.mid**2
        diagonal = np.where(flat, np.inf, variances + ridge)[:, None]
        start = np.zeros((p, T.shape[1])) if start is None else np.where(flat[:, None], 0.0, start)
        tolerance, rounds = 1e-3, 25
        if known is None:
            return _solve_by_passes(X, T, ridge, diagonal, start, tolerance, rounds), none

        def apply_inverse(B: Matrix) -> Matrix:
            return B / diagonal

    mask, count = known.astype(np.float64), np.maximum(known.sum(axis=0), 1)

    def normal(V: Matrix) -> Matrix:
        P, s = V[:-1], V[-1]
        R = (X @ P + s) * mask
        return np.vstack([X.transposed(R) + ridge * P, R.sum(axis=0)])

    def precondition(V: Matrix) -> Matrix:
        return np.vstack([apply_inverse(V[:-1]), V[-1] / count])

    right = np.vstack([X.transposed(T), T.sum(axis=0)])
    V = _conjugate_gradients(
        normal, precondition, right, np.vstack([start, none]), tolerance, rounds
    )
    return V[:-1], V[-1]


def _solve_by_passes(
    X: _Centred,
    T: Matrix,
    ridge: float,
    diagonal: Matrix,
    start: Matrix,
    tolerance: float,
    rounds: int,
) -> Matrix:
    """Solve (X̃ᵀX̃ + ρI)P = X̃ᵀT by passes over X, in its own precision.

    What is multiplied by X̃ᵀ has columns of sum zero, for which X̃ᵀ and Xᵀ are the same.
    """
    single = X.X.dtype
    scale = diagonal.astype(single)

    def normal(P: Any) -> Any:
        R = X.X @ P
        R -= R.mean(axis=0, dtype=np.float64).astype(single)
        A = X.X.T @ R
        A += single.type(ridge) * P
        return A

    right = X.X.T @ T.astype(single)
    return _conjugate_gradients(
        normal, lambda B: B / scale, right, start.astype(single), tolerance, rounds
    )


def _conjugate_gradients(
    apply: Callable[[Any], Any],
    precondition: Callable[[Any], Any],
    right: Any,
    start: Any,
    tolerance: float,
    rounds: int,
) -> Matrix:
    """Solve one positive definite system per column, all columns in step; sums are double."""

    def products(A: Any, B: Any) -> Matrix:
        return np.asarray((A * B).sum(axis=0, dtype=np.float64))

    def share(A: Matrix, B: Matrix) -> Any:
        return np.divide(A, B, out=np.zeros_like(A), where=B > 0).astype(right.dtype)

    V = start.copy()
    R = right - apply(V)
    Z = precondition(R)
    D = Z.copy()
    energy = products(R, Z)
    enough = tolerance**2 * np.maximum(products(right, precondition(right)), 1e-300)
    for _ in range(rounds):
        if (energy <= enough).all():
            break
        A = apply(D)
        length = share(energy, products(D, A))
        V += length * D
        A *= length
        R -= A
        Z = precondition(R)
        new = products(R, Z)
        D *= share(new, energy)
        D += Z
        energy = new
    return np.asarray(V, np.float64)


def first_block(rows: Rows, labels: Labels) -> Projection:
    """Return the paper's projection: plain least squares, of least norm where p ≥ n."""
    X = rows.toarray() if sp.issparse(rows) else rows
    P = np.zeros((X.shape[1], labels.Y.shape[1]))
    if P.size:  # somebody has named a label
        # Without a cutoff for the rank, copies of a column get weights of 10¹².
        cutoff = max(X.shape) * float(np.finfo(np.float64).eps)
        P = scipy.linalg.lstsq(X.astype(np.float64), labels.Y.astype(np.float64), cond=cutoff)[0]
    c = np.zeros(P.shape[1])
    if not sp.issparse(rows):
        return Projection(P, c)
    return _of_columns(P, c, np.arange(len(P), dtype=np.int32), len(P))


def leading_directions(labels: Labels, d: int) -> Matrix:
    """Return the d directions of largest variance of the labels, an orthonormal (q, d)."""
    T, _ = _targets(labels)
    q = T.shape[1]
    U: Matrix = scipy.linalg.eigh(T.T @ T, subset_by_index=(q - d, q - 1))[1][:, ::-1]
    return np.ascontiguousarray(U)
