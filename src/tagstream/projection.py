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

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp

from tagstream.base import Labels, Rows
from tagstream.kernels import project_dense, project_sparse

__all__ = ["Choice", "Projection", "choose", "first_block", "fit", "next_fit"]

Matrix = npt.NDArray[np.float64]

FIRST_FIT = 20  # examples before the first fit
GROWTH = 4  # a fit follows when a quarter more examples have been seen
SAMPLE = 512  # examples on which choices are made: their cost stays constant
LIFT_SIZE = 1000  # random features of a lift, at most
BANDWIDTHS = (0.25, 0.5, 1.0, 2.0)  # of the lift, times the median distance
DIRECT = 4000  # unknowns per label up to which the normal equations are formed


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
    return K - mean - mean[:, None] + mean.mean()


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


def _vote_error(left_out: Matrix, fitted: Matrix, Y: Matrix, k: int) -> float:
    """Return the squared error of the vote of k neighbours, each example looked up left out."""
    squares = np.einsum("ij,ij->i", fitted, fitted)
    distance = squares - 2 * left_out @ fitted.T
    np.fill_diagonal(distance, np.inf)
    k = min(k, len(Y) - 1)
    near = np.argpartition(distance, k - 1, axis=1)[:, :k]
    return float(np.mean((Y[near].mean(axis=1) - Y) ** 2))


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
    seed: int,
) -> Choice:
    """Choose scaling and lift on at most ``SAMPLE`` evenly spaced examples, the ridge on all.

    Within a candidate the ridge has the least squared error; the candidate has the least error
    of the vote, since what is regressed is not what is wanted in the end.
    """
    n = rows.shape[0]
    some = np.arange(min(n, SAMPLE)) * n // min(n, SAMPLE)
    few, few_labels = rows[some], Labels(labels.Y[some], _at(labels.known, some))
    T, mean = _targets(few_labels)
    best, best_error = Choice(scale == "standard", None, 1.0), np.inf
    for standardise, bandwidth, K in _candidates(few, scale, lift):
        ridges = _grid(float(np.trace(K))) if ridge == "auto" else np.array([float(ridge)])
        strength, error, fitted, left_out = leave_one_out(K, T, ridges)
        if len(K) > 2:
            error = _vote_error(left_out, fitted, T + mean, n_neighbors)
        if error < best_error:
            best, best_error = Choice(standardise, bandwidth, strength), error
    if ridge != "auto" or (n <= SAMPLE and best.bandwidth is None):
        return best
    return replace(best, ridge=_validated_ridge(rows, labels, best, seed))


def _at(mask: npt.NDArray[np.bool_] | None, positions: Any) -> npt.NDArray[np.bool_] | None:
    return None if mask is None else mask[positions]


def _grid(trace: float) -> Matrix:
    """Return candidate ridges, relative to the total variance of the features."""
    grid: Matrix = (trace or 1.0) * 10.0 ** np.arange(-8, 0.51, 0.25)
    return grid


def _validated_ridge(rows: Rows, labels: Labels, choice: Choice, seed: int) -> float:
    """Return the ridge of least generalised cross-validation error, n‖(I − H)T‖²/(n − tr H)²."""
    T, _ = _targets(labels)
    X, mid, _, _ = _features(rows, choice, seed)
    n, p = X.shape
    gram = _inner(X, mid, p <= n)
    values, U = scipy.linalg.eigh(gram, driver="evd")
    values = np.maximum(values, 0.0)
    # ‖U_kᵀT‖² of the left singular vectors U_k of the centred features.
    if p <= n:
        C = U.T @ (X.T @ T - np.outer(mid, T.sum(axis=0)))
        energy = (C**2).sum(axis=1) / np.maximum(values, 1e-12 * values[-1] + 1e-300)
    else:
        energy = ((U.T @ (T - T.mean(axis=0))) ** 2).sum(axis=1)
    rest = max(float((T**2).sum() - energy.sum()), 0.0)
    ridges = _grid(float(values.sum()))
    keep = ridges[:, None] / (values + ridges[:, None])  # share of a direction that is left over
    freedom = n - 1 - (1 - keep).sum(axis=1)
    errors = (rest + keep**2 @ energy) / np.maximum(freedom, 1e-9 * n) ** 2
    return float(ridges[np.argmin(errors)])


def fit(rows: Rows, labels: Labels, choice: Choice, seed: int) -> Projection:
    """Return the projection of all the given examples for what was chosen."""
    T, mean = _targets(labels)
    X, mid, deviation, lift = _features(rows, choice, seed)
    P = _solve(X, mid, T, choice.ridge)
    c = mean - mid @ P
    if lift is not None:
        return Projection(P, c, lift)
    P = P / deviation[:, None]
    return Projection(P.astype(np.float32) if sp.issparse(rows) else P, c)


def _features(rows: Rows, choice: Choice, seed: int) -> tuple[Any, Matrix, Matrix, Lift | None]:
    """Return what P is fitted on, (n, D), its mean, the scale of the inputs, and the lift."""
    centre, deviation = _moments(rows)
    if not choice.standardise:
        deviation = np.ones_like(deviation)
    if choice.bandwidth is None:
        X = rows @ sp.diags(1 / deviation) if sp.issparse(rows) else rows / deviation
        return X, centre / deviation, deviation, None
    lift = _draw_lift(centre, deviation, choice.bandwidth, rows.shape[0], seed)
    features = lift(rows.toarray() if sp.issparse(rows) else rows)
    return features, features.mean(axis=0), deviation, lift


def _draw_lift(centre: Matrix, deviation: Matrix, bandwidth: float, n: int, seed: int) -> Lift:
    generator = np.random.default_rng(seed)
    size = min(LIFT_SIZE, max(100, n))
    W = generator.standard_normal((LIFT_SIZE, len(centre)))[:size].T / (
        bandwidth * deviation[:, None]
    )
    b = generator.uniform(0, 2 * np.pi, LIFT_SIZE)[:size]
    return Lift(np.ascontiguousarray(W), b - centre @ W)


def _inner(X: Any, mid: Matrix, primal: bool) -> Matrix:
    """Return X̃ᵀX̃ (primal) or X̃X̃ᵀ of the centred features X̃ = X − 1 midᵀ, without forming X̃."""
    inner = X.T @ X if primal else X @ X.T
    inner = inner.toarray().astype(np.float64) if sp.issparse(inner) else inner
    return inner - X.shape[0] * np.outer(mid, mid) if primal else _centre(inner)


def _solve(X: Any, mid: Matrix, T: Matrix, ridge: float) -> Matrix:
    """Solve (X̃ᵀX̃ + ρI)P = X̃ᵀT in whichever of its two forms is smaller."""
    n, p = X.shape
    inner = _inner(X, mid, p <= n)
    inner[np.diag_indices(len(inner))] += max(ridge, 1e-12 * np.trace(inner), 1e-300)
    if p <= n:
        right = X.T @ T - np.outer(mid, T.sum(axis=0))
        return np.asarray(scipy.linalg.solve(inner, right, assume_a="pos"))
    D = scipy.linalg.solve(inner, T - T.mean(axis=0), assume_a="pos")
    return np.asarray(X.T @ D - np.outer(mid, D.sum(axis=0)))


def first_block(rows: Rows, labels: Labels) -> Projection:
    """Return the paper's projection: plain least squares, of least norm where p ≥ n."""
    X = rows.toarray() if sp.issparse(rows) else rows
    P = scipy.linalg.lstsq(X.astype(np.float64), labels.Y.astype(np.float64))[0]
    return Projection(P.astype(np.float32) if sp.issparse(rows) else P, np.zeros(P.shape[1]))
