"""The loops of copies; :mod:`tagstream.evidence.copies` has the formulas."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tagstream.core.compilation import inner, with_twin

__all__ = ["BINS", "blend_items", "learn_copies"]

BINS = np.array([0.8, 0.9, 0.97, 0.9999])  # lower ends, of similarity

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@inner
def _bin(similarity: float) -> int:
    """Return the bin of a similarity, −1 below all of them."""
    found = -1
    for b in range(BINS.shape[0]):
        if similarity >= BINS[b]:
            found = b
    return found


@inner
def _bit(packed: Bytes, row: int, j: int) -> int:
    return int(packed[row, j >> 3] >> (7 - (j & 7)) & 1)


@with_twin
def blend_items(
    K: Vector,
    positions: Ints,
    similarities: Vector,
    corrected: npt.NDArray[np.bool_],
    labels: Bytes,
    known: Bytes,
    p: Vector,
    kappas: Vector,
) -> None:
    """Blend copies into ``p`` (m, q), and write κ of each item; see `Copies.blend`."""
    for i in range(p.shape[0]):
        row, b = positions[i], _bin(similarities[i])
        kappas[i] = 0.0
        if row < 0 or b < 0:
            continue
        k = np.int64(corrected[row]) if corrected.shape[0] else 0
        kappas[i] = kappa = K[k, b, 0] / (K[k, b, 0] + K[k, b, 1])
        for j in range(p.shape[1]):
            if known.shape[0] == 0 or _bit(known, row, j):
                p[i, j] = kappa * _bit(labels, row, j) + (1.0 - kappa) * p[i, j]


@with_twin
def learn_copies(
    K: Vector,
    positions: Ints,
    similarities: Vector,
    corrected: npt.NDArray[np.bool_],
    labels: Bytes,
    known: Bytes,
    p: Vector,
    Y: Bytes,
    mask: npt.NDArray[np.bool_],
) -> None:
    """Learn items in order, changing ``K``; blend copies into ``p``; see `Copies.learn`."""
    for i in range(p.shape[0]):
        row, b = positions[i], _bin(similarities[i])
        if row < 0 or b < 0:
            continue
        equal, log_likelihood, n = True, 0.0, 0
        for j in range(p.shape[1]):
            if (mask.shape[0] and not mask[i, j]) or (known.shape[0] and not _bit(known, row, j)):
                continue
            n += 1
            equal = equal and Y[i, j] == _bit(labels, row, j)
            own = p[i, j] if Y[i, j] else 1.0 - p[i, j]
            log_likelihood += math.log(own) if own > 0.0 else -np.inf
        if n == 0:
            continue
        k = np.int64(corrected[row]) if corrected.shape[0] else 0
        kappa = K[k, b, 0] / (K[k, b, 0] + K[k, b, 1])
        R = kappa / (kappa + (1.0 - kappa) * math.exp(log_likelihood)) if equal else 0.0
        for j in range(p.shape[1]):
            if known.shape[0] == 0 or _bit(known, row, j):
                p[i, j] = kappa * _bit(labels, row, j) + (1.0 - kappa) * p[i, j]
        K[k, b, 0] += R
        K[k, b, 1] += 1.0 - R
