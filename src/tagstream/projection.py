"""The projection P: from inputs into label space, by ridge regression that keeps learning.

    z = Pᵀφ(x) + c        φ(x) = x, or √(2/D) cos(Wᵀx + b), a lift by random Fourier features

P and c minimise ‖Y − ΦP − 1cᵀ‖² + ρ‖P‖² over the stored examples (Choice C2: the paper's least
squares has no ρ, and with p near the number of examples sits on the interpolation peak).  The
intercept is what remains of centring both sides, which needs no dense copy of sparse rows.

Three things are chosen by looking at how well examples are predicted by the others, in closed
form (leave-one-out): whether to standardise, whether to lift and with which bandwidth, and ρ.
With the centred kernel matrix K = ΦΦᵀ = UΛUᵀ, the fitted values are HY with
H = U diag(Λ/(Λ + ρ))Uᵀ + 11ᵀ/n, and leaving example i out changes its residual to
(Y − HY)_i / (1 − H_ii).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp

from tagstream.base import Labels, Rows
from tagstream.kernels import project_dense, project_sparse

__all__ = [
    "Choice",
    "Lift",
    "Projection",
    "choose",
    "first_block",
    "fit",
    "leading_directions",
    "leave_one_out",
    "next_fit",
]

Matrix = npt.NDArray[np.float64]

FIRST_FIT = 20  # examples before the first fit
GROWTH = 4  # a fit follows when a quarter more examples have been seen
SAMPLE = 512  # examples on which choices are made: their cost stays constant
RIDGE_SAMPLE = 1500  # the same for the ridge alone
LIFT_SIZE = 1000  # random features of a lift
BANDWIDTHS = (0.25, 0.5, 1.0, 2.0)  # of the lift, times the median distance
DIRECT = 4000  # smaller side of the features up to which normal equations are formed


def next_fit(t: int, window: int | None) -> int:
    """Return the next time after ``t`` examples at which P is fitted again.

    The gaps grow with what is stored, so the work per example stays constant on average.
    """
    if t < FIRST_FIT:
        return FIRST_FIT
    held = t if window is None else min(t, window)
    return t + max(1, held // GROWTH)


@dataclass(frozen=True)
class Choice:
    """What was chosen by leave-one-out error."""

    standardise: bool
    bandwidth: float | None  # None: no lift
    ridge: float


@dataclass(frozen=True)
class Lift:
    """Random Fourier features √(2/D) cos(Wᵀx + b), W (p, D), b (D,)."""

    W: Matrix
    b: Matrix

    def __call__(self, rows: npt.NDArray[np.float32]) -> Matrix:
        """Return the features, (n, D)."""
        phase = np.empty((len(rows), len(self.b)))
        project_dense(rows, self.W, self.b, phase)
        features: Matrix = np.cos(phase)
        features *= np.sqrt(2 / len(self.b))
        return features


@dataclass(frozen=True)
class Projection:
    """The map z = Pᵀφ(x) + c.

    Attributes
    ----------
    P : array of shape (p, q), or (D, q) behind a lift
    c : array of shape (q,)
    lift : Lift or None
    """

    P: npt.NDArray[np.floating[Any]]
    c: Matrix
    lift: Lift | None = None

    def __call__(self, rows: Rows) -> Matrix:
        """Return z for each row, (n, q); a row's result does not depend on the other rows."""
        out = np.empty((rows.shape[0], len(self.c)))
        if sp.issparse(rows):
            project_sparse(
                rows.indptr.astype(np.int64), rows.indices.astype(np.int32, copy=False),
                rows.data.astype(np.float32, copy=False), self.P, self.c, out,
            )  # fmt: skip
        elif self.lift is None:
            project_dense(rows, self.P, self.c, out)
        else:
            project_dense(self.lift(rows), self.P, self.c, out)
        return out

    def grown(self, q: int) -> Projection:
        """Return the same map with further labels, of which nothing is known yet: z = 0."""
        more = q - len(self.c)
        P = np.pad(self.P, ((0, 0), (0, more)))
        return Projection(P, np.pad(self.c, (0, more)), self.lift)


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
        mean = np.asarray(rows.mean(axis=0), np.float64).ravel()
        square = np.asarray(rows.multiply(rows).mean(axis=0), np.float64).ravel()
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


def leave_one_out(K: Matrix, T: Matrix, ridges: Matrix) -> tuple[float, float, Matrix, Matrix]:
    """Choose the ridge by leave-one-out squared error.

    Parameters
    ----------
    K : centred kernel matrix, (n, n)
    T : centred targets, (n, q)
    ridges : candidate strengths, (r,)

    Returns
    -------
    ridge, mean squared error, fitted values (n, q), left-out predictions (n, q)
    """
    values, U = scipy.linalg.eigh(K, driver="evd")
    values = np.maximum(values, 0)
    C = U.T @ T
    best: tuple[float, float, Matrix, Matrix] | None = None
    for ridge in ridges:
        shrink = values / (values + ridge)
        fitted = U @ (shrink[:, None] * C)
        own = np.minimum((U * U) @ shrink + 1 / len(K), 1 - 1e-6)
        residual = (T - fitted) / (1 - own)[:, None]
        error = float(np.mean(residual**2))
        if best is None or error < best[1]:
            best = float(ridge), error, fitted, T - residual
    assert best is not None
    return best


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


def _candidates(
    rows: Rows, scale: str | None, lift: str | None
) -> Iterator[tuple[bool, float | None, Matrix]]:
    """Yield (standardise, bandwidth, centred kernel matrix) of each thing there is to choose."""
    sparse = sp.issparse(rows)
    # Sparse rows are neither standardised nor lifted unless asked: both would fill them in.
    scales = {"auto": (False,) if sparse else (False, True), "standard": (True,), None: (False,)}
    mean, deviation = _moments(rows)
    for standardise in scales[scale]:
        if sparse:
            X = rows @ sp.diags(1 / deviation) if standardise else rows
            inner = (X @ X.T).toarray().astype(np.float64)
        else:
            X = rows.astype(np.float64) - mean
            X = X / deviation if standardise else X
            inner = X @ X.T
        if lift != "fourier":
            yield standardise, None, _centre(inner)
        if lift == "fourier" or (lift == "auto" and not sparse):
            squares = np.diag(inner)
            distance = np.maximum(squares + squares[:, None] - 2 * inner, 0)
            median = float(np.sqrt(np.median(distance[np.triu_indices(len(distance), 1)])))
            for factor in BANDWIDTHS if median > 0 else ():
                width = factor * median
                yield standardise, width, _centre(np.exp(distance / (-2 * width**2)))


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
) -> Choice:
    """Choose scaling and lift on at most ``SAMPLE`` evenly spaced examples, then the ridge.

    Within a candidate the ridge has the least squared error; the candidate has the least error
    of the vote, since what is regressed is not what is wanted in the end.
    """
    few, few_labels = _sample(rows, labels, SAMPLE)
    best, best_error = Choice(scale == "standard", None, 1.0), np.inf
    T, _ = _targets(few_labels)
    for standardise, bandwidth, K in _candidates(few, scale, lift):
        ridges = _grid(float(np.trace(K))) if ridge == "auto" else np.array([float(ridge)])
        strength, error, fitted, left_out = leave_one_out(K, T, ridges)
        if len(K) > 2:
            error = _vote_error(left_out, fitted, few_labels, n_neighbors)
        if error < best_error:
            best, best_error = Choice(standardise, bandwidth, strength), error
    if ridge != "auto" or (rows.shape[0] <= SAMPLE and best.bandwidth is None):
        return best
    return replace(best, ridge=_validated_ridge(rows, labels, best, lift_size, seed))


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


def _validated_ridge(
    rows: Rows, labels: Labels, choice: Choice, lift_size: int, seed: int
) -> float:
    """Return the ridge of least generalised cross-validation error, n‖(I − H)T‖²/(n − tr H)²."""
    if min(rows.shape) > RIDGE_SAMPLE:
        rows, labels = _sample(rows, labels, RIDGE_SAMPLE)
    T, _ = _targets(labels)
    X = _features(rows, choice, lift_size, seed)[0]
    values, U = scipy.linalg.eigh(X.inner(), driver="evd", overwrite_a=True)
    values = np.maximum(values, 0.0)
    # energy[k] = ‖u_kᵀT‖² for the left singular vectors u_k of the centred features.
    if X.primal:
        energy = ((U.T @ X.transposed(T)) ** 2).sum(axis=1)
        energy /= np.maximum(values, 1e-12 * values[-1] + 1e-300)
    else:
        energy = ((U.T @ (T - T.mean(axis=0))) ** 2).sum(axis=1)
    rest = max(float((T**2).sum() - energy.sum()), 0.0)
    ridges = _grid(float(values.sum()))
    left = ridges[:, None] / (values + ridges[:, None])  # share of a direction that is not fitted
    n = X.shape[0]
    freedom = n - 1 - (1 - left).sum(axis=1)
    errors = (rest + left**2 @ energy) / np.maximum(freedom, 1e-9 * n) ** 2
    return float(ridges[np.argmin(errors)])


class _Centred:
    """Features minus their mean, X̃ = X − 1 midᵀ, never formed: X may be sparse."""

    def __init__(self, X: Any, mid: Matrix) -> None:
        self.X, self.mid, self.shape = X, mid, X.shape
        self.primal = X.shape[1] <= X.shape[0]

    def __matmul__(self, P: Matrix) -> Matrix:
        return np.asarray(self.X @ P) - self.mid @ P

    def transposed(self, R: Matrix) -> Matrix:
        """Return X̃ᵀR."""
        return np.asarray(self.X.T @ R) - np.outer(self.mid, R.sum(axis=0))

    def inner(self) -> Matrix:
        """Return X̃ᵀX̃ (primal) or X̃X̃ᵀ, whichever is smaller."""
        inner = self.X.T @ self.X if self.primal else self.X @ self.X.T
        inner = inner.toarray().astype(np.float64) if sp.issparse(inner) else inner
        if self.primal:
            return np.asarray(inner - self.shape[0] * np.outer(self.mid, self.mid))
        return _centre(inner)

    def variances(self) -> Matrix:
        """Return the diagonal of X̃ᵀX̃."""
        square = self.X.multiply(self.X) if sp.issparse(self.X) else self.X**2
        total = np.asarray(square.sum(axis=0), np.float64).ravel()
        return np.asarray(np.maximum(total - self.shape[0] * self.mid**2, 0.0))


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
    X, deviation, lift = _features(rows, choice, lift_size, seed)
    guess = None
    if start is not None and start.lift is None and lift is None:
        guess = start.P.astype(np.float64) * deviation[:, None]
    P, shift = _solve(X, T, labels.known, choice.ridge, guess)
    c = mean + shift - X.mid @ P
    if lift is not None:
        return Projection(P, c, lift)
    P = P / deviation[:, None]
    return Projection(P.astype(np.float32) if sp.issparse(rows) else P, c)


def _features(
    rows: Rows, choice: Choice, lift_size: int, seed: int
) -> tuple[_Centred, Matrix, Lift | None]:
    """Return what P is fitted on, the scale of the inputs, and the lift."""
    centre, deviation = _moments(rows)
    if not choice.standardise:
        deviation = np.ones_like(deviation)
    if choice.bandwidth is None:
        X = rows @ sp.diags(1 / deviation) if sp.issparse(rows) else rows / deviation
        return _Centred(X, centre / deviation), deviation, None
    lift = _draw_lift(centre, deviation, choice.bandwidth, lift_size, seed)
    features = lift(rows.toarray() if sp.issparse(rows) else rows)
    return _Centred(features, features.mean(axis=0)), deviation, lift


def _draw_lift(centre: Matrix, deviation: Matrix, bandwidth: float, size: int, seed: int) -> Lift:
    """Draw the features; the directions are orthogonal in blocks, which lowers their variance."""
    p = len(centre)
    generator = np.random.default_rng(seed)
    blocks = []
    for _ in range(-(-size // p)):
        Q, _ = np.linalg.qr(generator.standard_normal((p, p)))
        # Columns of a normal matrix have chi-distributed lengths; orthogonal ones get the same.
        blocks.append(Q * np.sqrt(generator.chisquare(p, p)))
    W = np.concatenate(blocks, axis=1)[:, :size] / (bandwidth * deviation[:, None])
    b = generator.uniform(0, 2 * np.pi, size)
    return Lift(np.ascontiguousarray(W), b - centre @ W)


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
        apply_inverse = _inverse(X, ridge)
        P = apply_inverse(X.transposed(T))
        if known is None:
            return P, none
        start, tolerance, rounds = P, 1e-10, 500
    else:
        diagonal = (X.variances() + ridge)[:, None]

        def apply_inverse(B: Matrix) -> Matrix:
            return B / diagonal

        start = np.zeros((p, T.shape[1])) if start is None else start
        tolerance, rounds = 1e-3, 25
    mask = 1.0 if known is None else known.astype(np.float64)
    count = np.full(T.shape[1], float(n)) if known is None else np.maximum(known.sum(axis=0), 1)

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


def _inverse(X: _Centred, ridge: float) -> Callable[[Matrix], Matrix]:
    """Return B ↦ (X̃ᵀX̃ + ρI)⁻¹B, by way of the smaller of the two inner products."""
    inner = X.inner()
    # Rounding leaves eigenvalues of about this size below zero.
    ridge = max(ridge, 1e-12 * float(np.trace(inner)))
    inner[np.diag_indices(len(inner))] += ridge
    factor = scipy.linalg.cho_factor(inner, overwrite_a=True)
    if X.primal:
        return lambda B: np.asarray(scipy.linalg.cho_solve(factor, B))
    return lambda B: (B - X.transposed(scipy.linalg.cho_solve(factor, X @ B))) / ridge


def _conjugate_gradients(
    apply: Callable[[Matrix], Matrix],
    precondition: Callable[[Matrix], Matrix],
    right: Matrix,
    start: Matrix,
    tolerance: float,
    rounds: int,
) -> Matrix:
    """Solve one positive definite system per column, all columns in step."""
    V = start.copy()
    R = right - apply(V)
    Z = precondition(R)
    D = Z.copy()
    energy = (R * Z).sum(axis=0)
    enough = tolerance**2 * np.maximum((right * precondition(right)).sum(axis=0), 1e-300)
    for _ in range(rounds):
        if (energy <= enough).all():
            break
        A = apply(D)
        curvature = (D * A).sum(axis=0)
        length = np.divide(energy, curvature, out=np.zeros_like(energy), where=curvature > 0)
        V += length * D
        R -= length * A
        Z = precondition(R)
        new = (R * Z).sum(axis=0)
        D = Z + np.divide(new, energy, out=np.zeros_like(new), where=energy > 0) * D
        energy = new
    return V


def first_block(rows: Rows, labels: Labels) -> Projection:
    """Return the paper's projection: plain least squares, of least norm where p ≥ n."""
    X = rows.toarray() if sp.issparse(rows) else rows
    P = scipy.linalg.lstsq(X.astype(np.float64), labels.Y.astype(np.float64))[0]
    return Projection(P.astype(np.float32) if sp.issparse(rows) else P, np.zeros(P.shape[1]))


def leading_directions(labels: Labels, d: int) -> Matrix:
    """Return the d directions of largest variance of the labels, an orthonormal (q, d)."""
    T, _ = _targets(labels)
    q = T.shape[1]
    U: Matrix = scipy.linalg.eigh(T.T @ T, subset_by_index=(q - d, q - 1))[1][:, ::-1]
    return np.ascontiguousarray(U)
