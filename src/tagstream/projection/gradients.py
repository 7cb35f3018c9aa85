"""P of very many sparse features: conjugate gradients in single precision.

(X̃ᵀX̃ + ρI)P = X̃ᵀT is solved for all targets in step, with the diagonal as preconditioner.  Rounds
read and write arrays of the size of P again and again.  So each pass over them does all that can be
done at once, their rows are padded to whole lines of the cache, and sums over all features or
examples are made in double precision on the way.  With A = (X̃ᵀX̃ + ρI)D,

    D·A = ‖X̃D‖² + ρ‖D‖²

so the last round, which needs no new residual, needs no product with X̃ᵀ either.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tagstream.core.compilation import compiled
from tagstream.core.products import line_zeros
from tagstream.execution.steps import PAUSE, Steps
from tagstream.projection.features import Matrix, Singles

__all__ = ["Normal", "conjugate_gradients", "weighted_sum"]


class Normal(Protocol):
    """The normal equations, by what passes over the examples in steps.

    Weights and directions have rows of whole lines; ``shift`` is what centring takes off each row
    of XD, which is mᵀD with the features' mean m.
    """

    def right(self) -> Steps[Singles]:
        """Return X̃ᵀT."""
        ...

    def residual(self, P: Singles, shift: Singles) -> Steps[Singles]:
        """Return X̃ᵀ(T − X̃P)."""
        ...

    def applied(self, D: Singles, shift: Singles) -> Steps[tuple[Singles, Matrix]]:
        """Return X̃ᵀX̃D, and ‖X̃D‖² of each column."""
        ...

    def squares(self, D: Singles, shift: Singles) -> Steps[Matrix]:
        """Return ‖X̃D‖² of each column."""
        ...


def conjugate_gradients(
    normal: Normal,
    P: Singles,
    diagonal: Matrix,
    mid: Matrix,
    ridge: float,
    rounds: int,
    tolerance: float,
) -> Steps[None]:
    """Improve the weights P, in place, by so many rounds.

    Parameters
    ----------
    normal : Normal
    P : array of shape (p, w), of whole lines
        Where to set out from.
    diagonal : array of shape (p,)
        Of X̃ᵀX̃ + ρI; infinite where weights stay as they are.
    mid : array of shape (p,)
        Mean of the features.
    ridge : float
    rounds : int
    tolerance : float
        Of the residual, by which rounds may be spared; 0 makes them all.
    """
    w, rho = P.shape[1], np.float32(ridge)
    inverse = (1 / diagonal).astype(np.float32)
    shift = np.zeros(w)
    enough = np.zeros(w)
    if tolerance:
        right = yield from normal.right()
        _energy(right, inverse, enough)
        enough = tolerance**2 * np.maximum(enough, 1e-300)
    if tolerance and not P.any():
        R = right
    else:
        weighted_sum(mid, P, shift)
        R = yield from normal.residual(P, shift.astype(np.float32))
        R -= rho * P
        yield PAUSE
    D, none = line_zeros(*P.shape), np.zeros(w, np.float32)
    energy, square = np.zeros(w), np.zeros(w)
    _energy(R, inverse, energy)
    _turn(R, inverse, none, D, mid, square, shift)
    for left in range(rounds - 1, -1, -1):
        if (energy <= enough).all():
            break
        yield PAUSE
        if not left:
            across = yield from normal.squares(D, shift.astype(np.float32))
            P += _share(energy, across + ridge * square) * D
            break
        A, across = yield from normal.applied(D, shift.astype(np.float32))
        length = _share(energy, across + ridge * square)
        new = np.zeros(w)
        _go(P, D, R, A, length, rho, inverse, new)
        _turn(R, inverse, _share(new, energy), D, mid, square, shift)
        energy = new


def _share(a: Matrix, b: Matrix) -> Singles:
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0).astype(np.float32)


@compiled
def weighted_sum(
    weights: npt.NDArray[np.float64], W: npt.NDArray[np.float32], out: npt.NDArray[np.float64]
) -> None:
    """``out = weightsᵀ W`` for weights (p,), W (p, w), in double precision."""
    w = W.shape[1]
    out[:] = 0.0
    for i in range(W.shape[0]):
        x = weights[i]
        for j in range(w):
            out[j] += x * W[i, j]


@compiled
def _energy(R: Any, inverse: Any, out: Any) -> None:
    """Add R·M⁻¹R of each column, M the diagonal."""
    for i in range(R.shape[0]):
        x, r = inverse[i], R[i]
        for j in range(R.shape[1]):
            out[j] += np.float64(r[j]) * np.float64(x * r[j])


@compiled
def _go(P: Any, D: Any, R: Any, A: Any, length: Any, rho: Any, inverse: Any, energy: Any) -> None:
    """Go a length along D, whose product with the equations is A + ρD; add R·M⁻¹R."""
    w = P.shape[1]
    for i in range(P.shape[0]):
        x, p, d, r, a = inverse[i], P[i], D[i], R[i], A[i]
        for j in range(w):
            p[j] += length[j] * d[j]
        for j in range(w):
            a[j] += rho * d[j]
        for j in range(w):
            r[j] -= length[j] * a[j]
        for j in range(w):
            energy[j] += np.float64(r[j]) * np.float64(x * r[j])


@compiled
def _turn(R: Any, inverse: Any, share: Any, D: Any, mid: Any, square: Any, shift: Any) -> None:
    """Turn D to M⁻¹R plus a share of what it was; write ‖D‖² of each column, and mᵀD."""
    w = D.shape[1]
    square[:] = 0.0
    shift[:] = 0.0
    for i in range(D.shape[0]):
        x, m, d, r = inverse[i], mid[i], D[i], R[i]
        for j in range(w):
            d[j] = x * r[j] + share[j] * d[j]
        for j in range(w):
            square[j] += np.float64(d[j]) * np.float64(d[j])
        for j in range(w):
            shift[j] += m * np.float64(d[j])
