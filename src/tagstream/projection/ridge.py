"""The fit of P, and the map that it makes.

P and c minimise ‖Y − ΦP − 1cᵀ‖² + ρ‖P‖² over the stored examples (Choice C2: the paper's least
squares has no ρ, and with p near the number of examples sits on the interpolation peak).  The
intercept is what remains of centring both sides, which needs no dense copy of sparse rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp

from tagstream.checks import Rows
from tagstream.kernels import project_dense, project_sparse
from tagstream.labels import Labels
from tagstream.projection.features import (
    BLOCK,
    LIFT_SIZE,
    Centred,
    Choice,
    Lift,
    Matrix,
    Singles,
    features,
    targets,
    unit_rows,
)

FIRST_FIT = 20  # examples before the first fit
GROWTH = 8  # a fit follows when an eighth more examples have been seen,
LARGE, LARGE_GROWTH = 4096, 4  # or a quarter where there are many, or as many as the window holds
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
            rows = unit_rows(rows) if self.unit else rows
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
        rows = unit_rows(rows) if self.unit else rows
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
    T, mean = targets(labels)
    columns, p = None, rows.shape[1]
    if sp.issparse(rows) and choice.lift is None:
        columns = np.flatnonzero(rows.getnnz(axis=0)).astype(np.int32)
        rows = rows[:, columns]
    X, deviation, lift = features(rows, choice, lift_size, seed, keep=labels.known is not None)
    guess = None
    if columns is not None and start is not None and start.columns is not None:
        guess = start.P[start._row_of[columns]] * deviation[:, None]
    P, shift = _solve(X, T, labels.known, choice.ridge, guess)
    P = np.ascontiguousarray(X.original(P))  # in the one order that kernels are compiled for
    c = mean + shift - X.mean @ P
    unit = choice.scale == "unit"
    if lift is not None:
        return Projection(P, c, lift, unit=unit)
    P /= deviation[:, None]
    if columns is None:
        return Projection(P, c, unit=unit)
    return _of_columns(P, c, columns, p, unit)


def _solve(
    X: Centred,
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
        ridge = max(ridge, X.rounding)
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
    X: Centred,
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
    T, _ = targets(labels)
    q = T.shape[1]
    U: Matrix = scipy.linalg.eigh(T.T @ T, subset_by_index=(q - d, q - 1))[1][:, ::-1]
    return np.ascontiguousarray(U)
