"""The label metric as a convex problem: rounds on Q = VVᵀ, and a loss bound that holds.

Symbols of a round (vectors in label space ℝ^q; the letters of :mod:`tagstream.metric`):

    z          Pᵀx_t, the item in label space
    y_t, y     its labels, and those of its nearest stored neighbour
    u, w       z − y and z − y_t
    e, s       u − w = y_t − y, with entries 0 and ±1, and u + w = 2z − y − y_t
    A          uuᵀ − wwᵀ = ½(esᵀ + seᵀ)
    Δ          ‖y_t − y‖₁, the margin
    loss       l_t = max(0, Δ − ⟨A, Q⟩),  ⟨A, Q⟩ = uᵀQu − wᵀQw = eᵀQs

A step goes from Q to Q + τA, with τ = l/(‖A‖² + 1/(2C)) (kind "PA-II") or min(C, l/‖A‖²) ("PA-I").
In e and s nothing cancels, and everything about A is in three numbers:

    ‖A‖²       = ½(‖e‖²‖s‖² + (eᵀs)²)
    μ±         = ½(eᵀs ± ‖e‖‖s‖), its two non-zero eigenvalues

By Weyl the least eigenvalue of Q falls by at most τ|μ₋|.  The sum of these falls is kept; only
when it has used up what was there is Q looked at, and moved to the nearest positive semidefinite
matrix if it has left the cone.  A step costs O(Δq), a look O(q³).  ``docs/math.md`` has the bound
and its proof, which lets the looks come late: a round costs O(q²) on average.

All sums run in a fixed order in compiled code of our own, eigenvalues included, so results do
not depend on BLAS, and not on how rounds are cut into calls.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from tagstream.core.compilation import compiled

__all__ = [
    "KINDS",
    "Hindsight",
    "Rounds",
    "Tally",
    "best_metric",
    "bound_for",
    "convex_step",
    "decompose",
    "factor",
    "grow",
    "losses_of",
    "new_tally",
    "pair_vectors",
    "project",
    "run_rounds_convex",
    "settle",
]

KINDS = ("PA-II", "PA-I")

# A round whose ‖A‖² is beyond this is left out: it would leave the range of double precision.
LARGEST = 1e180
EPSILON = float(np.finfo(np.float64).eps)

Vector = npt.NDArray[np.float64]


class Tally(NamedTuple):
    """What is kept beside Q, as an array of floats in this order (:func:`new_tally`).

    ``least`` bounds the least eigenvalue of Q from below, ``n_moves`` counts the steps since Q was
    last looked at; the rest speaks of all rounds so far.

    Examples
    --------
    >>> Tally.of(new_tally()).least
    1.0
    """

    least: float
    n_moves: float
    n_decompositions: float
    squared_loss: float  # Σ l_t²
    weighted_loss: float  # Σ τ_t l_t
    identity_squared: float  # Σ l_t(I)²
    identity_loss: float  # Σ l_t(I)
    largest: float  # R² = max ‖A_t‖² over the rounds with a loss

    @classmethod
    def of(cls, tally: Vector) -> Tally:
        """Return the array by names."""
        return cls(*tally.tolist())

    def bound(self, C: float, kind: str = "PA-II") -> float:
        """Return what the identity's loss promises, the right side of the bound for U = I.

        It bounds ``squared_loss`` for "PA-II", ``weighted_loss`` for "PA-I".
        """
        if kind == "PA-I":
            return 2.0 * C * self.identity_loss
        return (1.0 + 2.0 * C * self.largest) * self.identity_squared


# Places in the array, as constants of the compiled code.
LEAST, MOVES, DECOMPOSITIONS, SQUARED, WEIGHTED, I_SQUARED, I_LOSS, R_SQUARED = range(8)


def new_tally() -> Vector:
    """Return the tally of a run that starts at Q = I, an array of shape (8,)."""
    return np.array([1.0, 0, 0, 0, 0, 0, 0, 0])


def grow(Q: Vector, tally: Vector, q: int) -> Vector:
    """Return Q (q, q) with the identity for new labels; ``tally`` is brought up to date.

    The eigenvalues of diag(Q, I) are those of Q and 1.

    Examples
    --------
    >>> grow(np.array([[3.0]]), tally := new_tally(), 2).tolist()
    [[3.0, 0.0], [0.0, 1.0]]
    """
    old = len(Q)
    if q == old:
        return Q
    out = np.eye(q)
    out[:old, :old] = Q
    tally[LEAST] = min(tally[LEAST], 1.0)
    return out


# ---------------------------------------------------------------------- the round


@compiled
def convex_step(
    e: Vector,
    s: Vector,
    delta: float,
    Q: Vector,
    C: float,
    first: bool,
    patience: int,
    tally: Vector,
    work: Vector,
) -> tuple[float, float, bool]:
    """Play one round in place; return loss, step τ and whether Q could not move.

    ``e`` and ``s`` are any two vectors (d,): the labels themselves, or their coordinates in a
    reduced space, in which Q is (d, d).  ``first`` asks for PA-I.  ``work`` is (d,) of scratch
    space.  Q is looked at (:func:`settle`) when its least eigenvalue may be negative, but not
    before ``patience`` steps have been made since the last look; with 1 it is positive semidefinite
    after each round, with d the work of a round is O(d²) on average whatever the stream.
    """
    d = len(e)
    ee = ss = es = 0.0
    for i in range(d):
        ee += e[i] * e[i]
        ss += s[i] * s[i]
        es += e[i] * s[i]
    norm = 0.5 * (ee * ss + es * es)  # ‖A‖²
    if delta == 0.0 or not norm < LARGEST:
        return 0.0, 0.0, True
    work[:] = 0.0  # Qe
    for i in range(d):
        if e[i] != 0.0:
            for j in range(d):
                work[j] += e[i] * Q[i, j]
    gain = 0.0
    for j in range(d):
        gain += work[j] * s[j]
    still = max(0.0, delta - es)  # the loss of the identity
    tally[I_LOSS] += still
    tally[I_SQUARED] += still * still
    loss = delta - gain
    if not loss > 0.0:
        return 0.0, 0.0, False
    tally[SQUARED] += loss * loss
    tally[R_SQUARED] = max(tally[R_SQUARED], norm)
    if norm == 0.0:  # u = −w: no Q does better
        return loss, 0.0, True
    tau = min(C, loss / norm) if first else loss / (norm + 0.5 / C)
    tally[WEIGHTED] += tau * loss
    for i in range(d):
        if e[i] != 0.0:
            scale = 0.5 * tau * e[i]
            for j in range(d):
                Q[i, j] += scale * s[j]
            for j in range(d):  # the same numbers in the same order: Q stays symmetric
                Q[j, i] += scale * s[j]
    tally[LEAST] -= tau * max(0.0, 0.5 * (np.sqrt(ee) * np.sqrt(ss) - es))  # τ|μ₋|
    tally[MOVES] += 1.0
    if tally[LEAST] < 0.0 and tally[MOVES] >= patience:
        settle(Q, tally)
    return loss, tau, False


@compiled
def run_rounds_convex(
    Z: Vector,
    Y: npt.NDArray[Any],
    Y_nn: npt.NDArray[Any],
    known: npt.NDArray[np.bool_],
    lonely: npt.NDArray[np.bool_],
    Q: Vector,
    C: float,
    first: bool,
    patience: int,
    tally: Vector,
    losses: Vector,
    steps: Vector,
    degenerate: npt.NDArray[np.bool_],
) -> None:
    """Play the rounds of a block in order, changing Q (q, q) and ``tally`` in place.

    Z, Y and Y_nn are (n, q); ``known`` is (n, q), or (0, 0) when all is known: labels that are
    unknown of either item are left out of the round.  ``lonely`` marks items without a neighbour,
    which have no round.  The last three arrays, (n,), are results.

    Examples
    --------
    >>> import numpy as np
    >>> Q, tally, results = np.eye(2), new_tally(), (np.empty(1), np.empty(1), np.empty(1, bool))
    >>> Y, Y_nn = np.array([[1, 0]], np.uint8), np.array([[0, 1]], np.uint8)
    >>> everything, one = np.empty((0, 0), bool), np.zeros(1, bool)
    >>> Z = np.array([[0.2, 0.7]])
    >>> run_rounds_convex(Z, Y, Y_nn, everything, one, Q, 1.0, False, 1, tally, *results)
    >>> results[0].tolist(), results[1].round(4).tolist()
    ([3.0], [1.9737])
    >>> Tally.of(tally).squared_loss <= Tally.of(tally).bound(1.0)
    True
    """
    q = Z.shape[1]
    e, s, work = np.empty(q), np.empty(q), np.empty(q)
    everything = np.empty(0, np.bool_)
    for t in range(Z.shape[0]):
        if lonely[t]:
            losses[t], steps[t], degenerate[t] = 0.0, 0.0, False
            continue
        mask = known[t] if known.shape[0] else everything
        delta = pair_vectors(Z[t], Y[t], Y_nn[t], mask, e, s)
        losses[t], steps[t], degenerate[t] = convex_step(
            e, s, delta, Q, C, first, patience, tally, work
        )


@compiled
def run_rounds_reduced(
    Z: Vector,
    Y: npt.NDArray[Any],
    Y_nn: npt.NDArray[Any],
    known: npt.NDArray[np.bool_],
    lonely: npt.NDArray[np.bool_],
    B: Vector,
    Q: Vector,
    C: float,
    patience: int,
    tally: Vector,
    losses: Vector,
    steps: Vector,
    degenerate: npt.NDArray[np.bool_],
) -> None:
    """Play the rounds (PA-II) in the coordinates Bᵀu, Bᵀw of a basis B (q, d), with Q (d, d)."""
    q, d = B.shape
    e, s, work = np.empty(q), np.empty(q), np.empty(d)
    along, across = np.empty(d), np.empty(d)
    everything = np.empty(0, np.bool_)
    for t in range(Z.shape[0]):
        if lonely[t]:
            losses[t], steps[t], degenerate[t] = 0.0, 0.0, False
            continue
        mask = known[t] if known.shape[0] else everything
        delta = pair_vectors(Z[t], Y[t], Y_nn[t], mask, e, s)
        for j in range(d):
            along[j] = across[j] = 0.0
        for i in range(q):
            for j in range(d):
                along[j] += e[i] * B[i, j]
                across[j] += s[i] * B[i, j]
        losses[t], steps[t], degenerate[t] = convex_step(
            along, across, delta, Q, C, False, patience, tally, work
        )


@compiled
def pair_vectors(
    z: Vector,
    y: npt.NDArray[Any],
    y_nn: npt.NDArray[Any],
    known: npt.NDArray[np.bool_],
    e: Vector,
    s: Vector,
) -> float:
    """Write e and s of one round, (q,), and return Δ; ``known`` is (q,), or (0,) for all.

    Labels, or coordinates in a reduced label space, with Δ = ‖y_t − y‖².
    """
    delta = 0.0
    for i in range(len(z)):
        if known.shape[0] and not known[i]:
            e[i] = s[i] = 0.0
        else:
            e[i] = np.float64(y[i]) - np.float64(y_nn[i])
            s[i] = (z[i] - y_nn[i]) + (z[i] - y[i])
            delta += e[i] * e[i]
    return delta


# ---------------------------------------------------------------------- the cone


@compiled
def settle(Q: Vector, tally: Vector) -> Vector:
    """Make Q positive semidefinite, in place, and return its factor V (:func:`factor`).

    Only where ``tally`` cannot promise that it is, and Cholesky's factor, which exists where all
    eigenvalues are positive, tells that it is not, are the eigenvalues needed.
    """
    V = factor(Q)
    if tally[LEAST] < 0.0:
        least = 0.0
        for k in range(len(Q)):
            if V[k, k] == 0.0:
                least = project(Q)
                tally[DECOMPOSITIONS] += 1.0
                V = factor(Q)
                break
        tally[LEAST] = max(least, 0.0)
        tally[MOVES] = 0.0
    return V


@compiled
def project(Q: Vector) -> float:
    """Move Q to the nearest positive semidefinite matrix, in place; return the least
    eigenvalue it had.

    The nearest one in the Frobenius norm is Q without its negative eigenvalues.
    """
    q, least = len(Q), np.inf
    values, vectors = decompose(Q)
    for k in range(q):
        least = min(least, values[k])
        if values[k] < 0.0:
            for i in range(q):
                scale = values[k] * vectors[k, i]
                for j in range(i + 1):
                    Q[i, j] -= scale * vectors[k, j]
                    Q[j, i] = Q[i, j]
    return least


@compiled
def decompose(Q: Vector) -> tuple[Vector, Vector]:
    """Return eigenvalues (q,), in no order, and unit eigenvectors, the rows of a (q, q) array.

    Householder's reflections make Q tridiagonal, implicit QL steps make that diagonal (Golub and
    Van Loan, *Matrix Computations*, sections 8.3.1 and 8.3.3).  Inner loops run along rows, so that
    they are fast although no sum is reordered.
    """
    q = len(Q)
    T = Q.copy()
    diagonal, beside = np.empty(q), np.zeros(q)
    mirrors = np.zeros((q, q))  # row k: v of I − βvvᵀ, zero up to k
    betas = np.zeros(q)
    p = np.empty(q)
    for k in range(q - 2):
        v = mirrors[k]
        square = 0.0
        for i in range(k + 1, q):
            v[i] = T[k, i]
            square += v[i] * v[i]
        length = -np.sqrt(square) if v[k + 1] > 0.0 else np.sqrt(square)
        rest = square - length * v[k + 1]  # vᵀv/2 once v[k+1] is shifted
        beside[k] = length
        if not rest > 0.0:
            beside[k] = T[k, k + 1]
            v[:] = 0.0
            continue
        v[k + 1] -= length
        betas[k] = 1.0 / rest
        p[:] = 0.0
        for i in range(k + 1, q):
            scale = betas[k] * v[i]
            for j in range(k + 1, q):
                p[j] += scale * T[i, j]
        half = 0.0
        for i in range(k + 1, q):
            half += 0.5 * betas[k] * p[i] * v[i]
        for i in range(k + 1, q):
            p[i] -= half * v[i]
        for i in range(k + 1, q):
            v_i, p_i = v[i], p[i]
            for j in range(k + 1, q):
                T[i, j] -= v_i * p[j] + p_i * v[j]
    if q > 1:
        beside[q - 2] = T[q - 2, q - 1]
    for k in range(q):
        diagonal[k] = T[k, k]
    # The product of the reflections, from the last to the first: only corners are touched.
    basis = np.eye(q)
    for k in range(q - 3, -1, -1):
        v = mirrors[k]
        p[:] = 0.0
        for i in range(k + 1, q):
            for j in range(k + 1, q):
                p[j] += v[i] * basis[i, j]
        for i in range(k + 1, q):
            scale = betas[k] * v[i]
            for j in range(k + 1, q):
                basis[i, j] -= scale * p[j]
    vectors = basis.T.copy()
    _diagonalise(diagonal, beside, vectors)
    return diagonal, vectors


@compiled
def _diagonalise(diagonal: Vector, beside: Vector, vectors: Vector) -> None:
    """Turn a tridiagonal matrix into its eigenvalues, in place, and turn ``vectors``' rows along.

    ``beside`` has the q − 1 entries beside the diagonal and a zero.
    """
    q = len(diagonal)
    for k in range(q):
        for _ in range(60):  # two or three are usual
            m = k
            while m < q - 1:
                size = abs(diagonal[m]) + abs(diagonal[m + 1])
                if abs(beside[m]) <= EPSILON * size:
                    break
                m += 1
            if m == k:
                break
            # Wilkinson's shift: the eigenvalue of the corner's 2 × 2 matrix next to its corner.
            g = (diagonal[k + 1] - diagonal[k]) / (2.0 * beside[k])
            r = np.hypot(g, 1.0)
            g = diagonal[m] - diagonal[k] + beside[k] / (g + (r if g >= 0.0 else -r))
            sine = cosine = 1.0
            shift = 0.0
            i = m - 1
            while i >= k:
                f, b = sine * beside[i], cosine * beside[i]
                r = np.hypot(f, g)
                beside[i + 1] = r
                if r == 0.0:  # the matrix has come apart here
                    diagonal[i + 1] -= shift
                    beside[m] = 0.0
                    break
                sine, cosine = f / r, g / r
                g = diagonal[i + 1] - shift
                r = (diagonal[i] - g) * sine + 2.0 * cosine * b
                shift = sine * r
                diagonal[i + 1] = g + shift
                g = cosine * r - b
                upper, lower = vectors[i], vectors[i + 1]
                for j in range(q):
                    old = lower[j]
                    lower[j] = sine * upper[j] + cosine * old
                    upper[j] = cosine * upper[j] - sine * old
                i -= 1
            if i >= k:
                continue
            diagonal[k] -= shift
            beside[k] = g
            beside[m] = 0.0


@compiled
def factor(Q: Vector) -> Vector:
    """Return V (q, q), lower triangular, with VVᵀ = Q, for Q positive semidefinite.

    Cholesky's factor.  Any other is this one times a rotation, which distances do not see.  It is
    the cheapest, it is the identity for the identity, and it changes smoothly with a regular Q.
    New labels are appended: the factor of diag(Q, I) is diag(V, I).  Where Q is singular to
    rounding, the column is zero.

    Examples
    --------
    >>> factor(np.array([[4.0, 2.0], [2.0, 2.0]])).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    q = len(Q)
    rest, V = Q.copy(), np.zeros((q, q))
    column = np.empty(q)
    for k in range(q):
        if not rest[k, k] > q * EPSILON * Q[k, k]:
            continue
        root = np.sqrt(rest[k, k])
        for i in range(k, q):
            column[i] = rest[k, i] / root
            V[i, k] = column[i]
        for i in range(k + 1, q):
            scale = column[i]
            for j in range(i, q):
                rest[i, j] -= scale * column[j]
    return V


# ---------------------------------------------------------------------- a recorded run


class Rounds(NamedTuple):
    """The rounds of a run as a metric sees them: e, s and Δ of each.

    Labels that came later are zero coordinates of earlier rounds.

    Examples
    --------
    >>> Y, Y_nn = np.array([[1, 0]], np.uint8), np.array([[0, 1]], np.uint8)
    >>> rounds = Rounds.of(np.array([[0.2, 0.7]]), Y, Y_nn)
    >>> losses_of(np.eye(2), rounds).tolist()
    [3.0]
    """

    E: csr_array  # (T, q)
    S: Vector  # (T, q)
    delta: Vector  # (T,)

    @classmethod
    def of(
        cls,
        Z: Vector,
        Y: npt.NDArray[Any],
        Y_nn: npt.NDArray[Any],
        known: npt.NDArray[np.bool_] | None = None,
        lonely: npt.NDArray[np.bool_] | None = None,
    ) -> Rounds:
        """Record what :func:`run_rounds_convex` is given."""
        E = Y.astype(np.float64) - Y_nn
        S = (Z - Y_nn) + (Z - Y)
        if known is not None and len(known):
            E, S = np.where(known, E, 0.0), np.where(known, S, 0.0)
        if lonely is not None:
            E, S = E[~lonely], S[~lonely]
        return cls(csr_array(E), S, (E * E).sum(axis=1))

    @classmethod
    def joined(cls, parts: list[Rounds]) -> Rounds:
        """Return the rounds of several calls as one, as wide as the widest."""
        q = max(part.S.shape[1] for part in parts)
        wide = [csr_array((p.E.data, p.E.indices, p.E.indptr), (len(p.S), q)) for p in parts]
        return cls(
            csr_array(vstack(wide)),
            np.concatenate([np.pad(p.S, ((0, 0), (0, q - p.S.shape[1]))) for p in parts]),
            np.concatenate([p.delta for p in parts]),
        )

    @property
    def norms(self) -> Vector:
        """‖A_t‖² of each round."""
        es = np.asarray(self.E.multiply(self.S).sum(axis=1)).ravel()
        ee = np.asarray(self.E.multiply(self.E).sum(axis=1)).ravel()
        norms: Vector = 0.5 * (ee * (self.S**2).sum(axis=1) + es**2)
        return norms


class Hindsight(NamedTuple):
    """The metric that makes the bound least, the bound, and by how much it can be off at most."""

    U: Vector
    bound: float
    gap: float


def losses_of(U: Vector, rounds: Rounds) -> Vector:
    """Return l_t(U) of each round, (T,), for a metric U (q, q) that does not move."""
    gains = np.einsum("ij,ij->i", rounds.E @ U, rounds.S)
    losses: Vector = np.maximum(0.0, rounds.delta - gains)
    return losses


def bound_for(
    U: Vector, rounds: Rounds, C: float, *, kind: str = "PA-II", largest: float | None = None
) -> float:
    """Return the right side of the loss bound for a positive semidefinite U (q, q).

    It bounds Σ l_t² ("PA-II") or Σ τ_t l_t ("PA-I") of the run.  ``largest`` is R², by default that
    of all recorded rounds; that of the rounds with a loss (:class:`Tally`) is enough.

    Examples
    --------
    >>> Y, Y_nn = np.array([[1, 0]], np.uint8), np.array([[0, 1]], np.uint8)
    >>> rounds = Rounds.of(np.array([[0.2, 0.7]]), Y, Y_nn)
    >>> round(bound_for(np.eye(2), rounds, C=1.0), 6)  # (1 + 2 · 1.02) · 3²
    27.36
    """
    away = float(((np.eye(len(U)) - U) ** 2).sum())
    losses = losses_of(U, rounds)
    if kind == "PA-I":
        return away + 2.0 * C * float(losses.sum())
    return _scale(rounds, C, largest) * (away + 2.0 * C * float((losses**2).sum()))


def _scale(rounds: Rounds, C: float, largest: float | None) -> float:
    """Return R² + 1/(2C)."""
    R_squared = float(rounds.norms.max(initial=0.0)) if largest is None else largest
    return R_squared + 0.5 / C


def best_metric(
    rounds: Rounds,
    C: float,
    *,
    largest: float | None = None,
    tolerance: float = 1e-3,
    most: int = 1000,
) -> Hindsight:
    """Return the U ⪰ 0 for which the bound of PA-II is least, found in hindsight.

    F(U) = ‖I − U‖² + 2C Σ l_t(U)² is smooth, and F − ‖·‖² is convex; so projected gradient steps
    with momentum get there (Nesterov; the momentum starts again where F rises).  The step size is
    halved where the quadratic above F fails.  From a step of size 1/L to U, of length ‖U − B‖, the
    least F is at most L²‖U − B‖²/4 below F(U): the search ends when this is ``tolerance`` of F.
    The gap that was reached is reported; ``most`` limits the iterations.

    Examples
    --------
    >>> Y, Y_nn = np.array([[1, 0]], np.uint8), np.array([[0, 1]], np.uint8)
    >>> rounds = Rounds.of(np.array([[0.2, 0.7]]), Y, Y_nn)
    >>> best = best_metric(rounds, C=1.0)
    >>> best.bound < bound_for(np.eye(2), rounds, C=1.0)
    True
    """
    q = rounds.S.shape[1]
    S, Et = rounds.S, csr_array(rounds.E.T)
    identity = np.eye(q)

    def cost(U: Vector) -> tuple[float, Vector]:
        losses = losses_of(U, rounds)
        return float(((U - identity) ** 2).sum() + 2.0 * C * (losses**2).sum()), losses

    def slope(U: Vector, losses: Vector) -> Vector:
        half = Et @ (losses[:, None] * S)
        down: Vector = 2.0 * (U - identity) - 2.0 * C * (half + half.T)
        return down

    U = ahead = identity
    now, losses = cost(U)
    L, momentum, gap = 4.0, 1.0, np.inf
    F, there = now, losses
    for _ in range(most):
        down = slope(ahead, there)
        while True:
            new = _on_the_cone(ahead - down / L)
            move = new - ahead
            F_new, losses = cost(new)
            square = float((move**2).sum())
            if F_new <= F + float((down * move).sum()) + 0.5 * L * square + 1e-12 * abs(F):
                break
            L *= 2.0
        gap = 0.25 * L * L * square
        if F_new > now and momentum > 1.0:  # the momentum leads astray: begin again from U
            ahead, momentum = U, 1.0
            F, there = cost(U)
            continue
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = new + (momentum - 1.0) / following * (new - U)
        U, now, momentum = new, F_new, following
        if gap <= tolerance * now:
            break
        F, there = cost(ahead)
        L *= 0.9
    scale = _scale(rounds, C, largest)
    return Hindsight(U, scale * now, scale * gap)


def _on_the_cone(M: Vector) -> Vector:
    """Return the nearest positive semidefinite matrix, by LAPACK: a report needs no last bits."""
    values, vectors = np.linalg.eigh(0.5 * (M + M.T))
    positive = values > 0.0
    root = vectors[:, positive] * np.sqrt(values[positive])
    nearest: Vector = root @ root.T
    return nearest
