"""Copies: a stored item that is nearly the same as the new one lends it its labels.

Of the neighbours that were found take the one most similar in input space, y_nn its labels.
The item is a copy of it with probability κ, or not, when the head's p holds:

    p_j ← κ y_nn,j + (1 − κ)p_j.

κ = K₀/(K₀ + K₁) is learnt, for ordinary items and for those that were corrected by hand, in four
bins of similarity, from counts that start as if some copies had been seen.  The probability that
an item with labels y was a copy is R = κ[y = y_nn]/(κ[y = y_nn] + (1 − κ)L), L the likelihood of y
under the head (two components, one step of expectation maximisation per item), and

    K₀ += R ;   K₁ += 1 − R.

Labels that are not known, of the item or of its neighbour, are left out of both.

Similarity is the cosine of sparse rows, and 1 − d²/(2p) of dense ones, d² the squared distance in
columns divided by their standard deviation; the newest of equals wins.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.checks import LARGEST_COUNT, expect, expect_keys
from tagstream.compilation import compiled, inner, inner_loosely
from tagstream.fastmap import Inputs
from tagstream.tiles import LANES, fetch

__all__ = [
    "BINS",
    "Copies",
    "Nearest",
    "blend_items",
    "find_similar",
    "learn_copies",
    "most_similar",
]

BINS = np.array([0.8, 0.9, 0.97, 0.9999])  # lower ends

# κ before anything is learnt, and how many items it is worth: ordinary items, corrected ones.
PRIORS = np.array([[0.1, 0.2, 0.4, 0.5], [0.6, 0.8, 0.9, 0.97]])
STRENGTHS = np.array([[10.0], [20.0]])

HASH = 2654435761  # spreads features over a table
WIDEST = 1 << 20  # columns up to which each has a place of its own,
MANY = 32  # if that many items ask: the places have to be made
ROUNDING = 1e-9  # of d²/2p: where it is less, similarities near 1 may be equal

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Singles = npt.NDArray[np.float32]


class Nearest(NamedTuple):
    """The most similar of the stored items, for m items: positions or −1, and similarities."""

    positions: Ints
    similarities: Vector


@inner
def _remember(queries: Inputs, i: int, keys: Ints, values: Vector) -> float:
    """Write a sparse row into an open-addressing table; return the sum of its squares."""
    for place in range(keys.shape[0]):
        keys[place] = -1
    total, mask = 0.0, keys.shape[0] - 1
    for e in range(queries.indptr[i], queries.indptr[i + 1]):
        place = queries.indices[e] * HASH >> 7 & mask
        while keys[place] != -1:
            place = (place + 1) & mask
        keys[place], values[place] = queries.indices[e], queries.data[e]
        total += np.float64(queries.data[e]) ** 2
    return total


@inner
def _cosine(
    stored: Inputs, a: int, queries: Inputs, i: int, mine: float, keys: Ints, values: Vector
) -> float:
    """Return the cosine of a stored row and the one remembered, 0 if one of them is empty."""
    dot, theirs, mask = 0.0, 0.0, keys.shape[0] - 1
    g, e = stored.indptr[a], queries.indptr[i]
    last, end = stored.indptr[a + 1], queries.indptr[i + 1]
    # Columns that all rows have, such as those of an embedding, stand first and side by side.
    while g < last and e < end and stored.indices[g] == queries.indices[e]:
        x = np.float64(stored.data[g])
        theirs += x * x
        dot += np.float64(queries.data[e]) * x
        g += 1
        e += 1
    for other in range(g, last):
        x = np.float64(stored.data[other])
        theirs += x * x
        place = stored.indices[other] * HASH >> 7 & mask
        while keys[place] != -1:
            if keys[place] == stored.indices[other]:
                dot += values[place] * x
                break
            place = (place + 1) & mask
    product = math.sqrt(mine * theirs)
    return float(dot / product) if product > 0.0 else 0.0


@inner
def _write(queries: Inputs, i: int, places: npt.NDArray[np.float32]) -> float:
    """Write a sparse row to the places of its columns; return the sum of its squares."""
    total = 0.0
    for e in range(queries.indptr[i], queries.indptr[i + 1]):
        places[queries.indices[e]] = queries.data[e]
        total += np.float64(queries.data[e]) ** 2
    return total


@inner
def _quick_cosine(stored: Inputs, a: int, mine: float, places: npt.NDArray[np.float32]) -> float:
    """Return the same of a row whose numbers stand at the places of their columns.

    The last place, of all columns beyond, holds 0.  Numbers without a sign need no look at whether
    they count from the end.
    """
    dot, theirs, beyond = 0.0, 0.0, np.uint32(places.shape[0] - 1)
    for e in range(np.uint64(stored.indptr[a]), np.uint64(stored.indptr[a + 1])):
        x, column = np.float64(stored.data[e]), np.uint32(stored.indices[e])
        theirs += x * x
        dot += np.float64(places[min(column, beyond)]) * x
    product = math.sqrt(mine * theirs)
    return float(dot / product) if product > 0.0 else 0.0


@compiled
def _find_sparse(
    indptr: Ints,
    indices: npt.NDArray[np.int32],
    data: npt.NDArray[np.float32],
    q_indptr: Ints,
    q_indices: npt.NDArray[np.int32],
    q_data: npt.NDArray[np.float32],
    candidates: Ints,
    best: Ints,
    similarities: Vector,
) -> None:
    """Write what :func:`most_similar` returns of sparse rows."""
    nothing = np.empty((0, 0), np.float32)
    stored = Inputs(indptr, indices, data, nothing)
    queries = Inputs(q_indptr, q_indices, q_data, nothing)
    size, width = 4, 0
    for i in range(candidates.shape[0]):
        first, last = q_indptr[i], q_indptr[i + 1]
        while size < 4 * (last - first):
            size *= 2
        if last > first:
            width = max(width, q_indices[last - 1] + 1)
    keys, values = np.empty(size, np.int64), np.empty(size)
    quick = candidates.shape[0] >= MANY and width <= WIDEST
    places = np.zeros(width + 1 if quick else 0, np.float32)
    every = candidates.ravel()
    for i in range(candidates.shape[0]):
        mine = _write(queries, i, places) if quick else _remember(queries, i, keys, values)
        for c in range(candidates.shape[1]):
            a, soon = candidates[i, c], i * candidates.shape[1] + c + 1
            if soon < every.shape[0] and every[soon] >= 0:  # its row lies anywhere in memory
                for e in range(indptr[every[soon]], indptr[every[soon] + 1], LANES):
                    fetch(indices, e)
                    fetch(data, e)
            if a < 0:
                continue
            if quick:
                alike = _quick_cosine(stored, a, mine, places)
            else:
                alike = _cosine(stored, a, queries, i, mine, keys, values)
            newer = alike == similarities[i] and a > best[i]
            if alike > similarities[i] or newer:
                best[i], similarities[i] = a, alike
        if quick:
            for e in range(q_indptr[i], q_indptr[i + 1]):
                places[q_indices[e]] = 0.0


@inner
def _closeness(stored: Singles, a: int, queries: Singles, i: int, factor: Vector) -> float:
    """Return 1 − d²/(2p) of two dense rows whose columns are multiplied by ``factor``."""
    total = 0.0
    p = factor.shape[0]
    for k in range(p):
        gap = (np.float64(queries[i, k]) - np.float64(stored[a, k])) * factor[k]
        total += gap * gap
    return float(1.0 - total / (2.0 * p))


@inner_loosely
def _roughly(
    stored: Singles, a: int, queries: Singles, i: int, factor: npt.NDArray[np.float32]
) -> np.float32:
    """Return d² of the same, in single precision: all terms are positive, so it errs by a share."""
    total = np.float32(0.0)
    for k in range(factor.shape[0]):
        gap = np.float32(queries[i, k] - stored[a, k]) * factor[k]
        total += gap * gap
    return total


@compiled
def find_similar(
    stored: Singles,
    queries: Singles,
    factor: Vector,
    candidates: Ints,
    rough: Vector,
    best: Ints,
    similarities: Vector,
) -> None:
    """Write what :func:`most_similar` returns of dense rows; ``rough`` is room to work in."""
    p = factor.shape[0]
    narrow, error = np.empty(p, np.float32), (p + 8) * 2.0**-22
    for k in range(p):
        narrow[k] = factor[k]
    for i in range(candidates.shape[0]):
        least = np.inf
        for c in range(candidates.shape[1]):
            a = candidates[i, c]
            rough[c] = _roughly(stored, a, queries, i, narrow) if a >= 0 else np.inf
            least = min(least, rough[c])
        limit = least * (1.0 + 2.0 * error) + 2.0 * p * ROUNDING
        for c in range(candidates.shape[1]):
            a = candidates[i, c]
            if a < 0 or rough[c] * (1.0 - error) > limit:  # who is less similar than another
                continue
            alike = _closeness(stored, a, queries, i, factor)
            newer = alike == similarities[i] and a > best[i]
            if alike > similarities[i] or newer:
                best[i], similarities[i] = a, alike


def most_similar(
    stored: Inputs, queries: Inputs, candidates: Ints, factor: Vector | None = None
) -> Nearest:
    """Return which candidate is most similar to each query, the newest of equals.

    Parameters
    ----------
    stored, queries : Inputs
        The stored rows and those of m items, both CSR with sorted rows or both dense.
    candidates : int64 array of shape (m, c)
        Positions among the stored rows; −1 is passed over.
    factor : array of shape (p,), optional
        By which dense columns are multiplied, one over their standard deviation.

    Examples
    --------
    >>> from tagstream.fastmap import inputs_of
    >>> rows = inputs_of(np.array([[0.0, 1.0], [0.0, 1.0], [3.0, 1.0]]))
    >>> most_similar(rows, inputs_of(np.array([[0.0, 0.0]])), np.array([[2, 1, 0, -1]]))
    Nearest(positions=array([1]), similarities=array([0.75]))
    """
    best, similarities = np.empty(len(candidates), np.int64), np.empty(len(candidates))
    best.fill(-1)
    similarities.fill(-np.inf)
    if factor is None:
        factor = np.ones(stored.dense.shape[1])
    rows = np.asarray(candidates)
    if len(queries.indptr):
        _find_sparse(*stored[:3], *queries[:3], rows, best, similarities)
    else:
        rough = np.empty(rows.shape[1])
        find_similar(stored.dense, queries.dense, factor, rows, rough, best, similarities)
    return Nearest(best, similarities)


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


@compiled
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
    """Blend copies into ``p`` (m, q), and write κ of each item; see :meth:`Copies.blend`."""
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


@compiled
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
    """Learn items in order, changing ``K``; see :meth:`Copies.learn`."""
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
        K[k, b, 0] += R
        K[k, b, 1] += 1.0 - R


class Copies:
    """How far nearly equal items are to be believed, learnt.

    Attributes
    ----------
    K : array of shape (2, 4, 2)
        Ordinary or corrected; bin of similarity; K₀ and K₁.

    Examples
    --------
    >>> copies = Copies()
    >>> same = Nearest(np.array([0]), np.array([1.0]))
    >>> labels, nobody = np.array([[128]], np.uint8), np.array([False])
    >>> copies.blend(np.array([[0.2]]), same, labels, corrected=nobody)[0].tolist()
    [[0.6]]
    >>> copies.blend(np.array([[0.2]]), same, labels, corrected=~nobody)[0].round(3).tolist()
    [[0.976]]
    """

    def __init__(self) -> None:
        self.K = np.stack([STRENGTHS * PRIORS, STRENGTHS * (1 - PRIORS)], axis=2)

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        return self.K.nbytes

    def blend(
        self,
        p: Vector,
        nearest: Nearest,
        labels: Bytes,
        known: Bytes | None = None,
        *,
        corrected: npt.NDArray[np.bool_],
    ) -> tuple[Vector, Vector]:
        """Return the probabilities with the copies in them, (m, q), and κ of each item, (m,).

        Parameters
        ----------
        p : array of shape (m, q)
            Probabilities of the head.
        nearest : Nearest
        labels, known : uint8 arrays of shape (n, ⌈q/8⌉)
            Packed labels of the stored items, and which are known; None or (0, 0): all are.
        corrected : bool array of shape (n,)
            Which of the stored items were corrected; of length 0: none.
        """
        out, kappas = p.copy(), np.empty(len(p))
        blend_items(self.K, *nearest, corrected, labels, _packed(known), out, kappas)
        return out, kappas

    def learn(
        self,
        p: Vector,
        nearest: Nearest,
        labels: Bytes,
        known: Bytes | None,
        Y: Bytes,
        mask: npt.NDArray[np.bool_] | None = None,
        *,
        corrected: npt.NDArray[np.bool_],
    ) -> None:
        """Learn from m items in order: labels ``Y`` (m, q), known where ``mask`` says so.

        ``p`` are the head's probabilities of these items before it learnt them, and before copies.
        """
        sure = np.empty((0, 0), np.bool_) if mask is None else mask
        learn_copies(self.K, *nearest, corrected, labels, _packed(known), p, Y, sure)

    def snapshot(self) -> Copies:
        """Return copies that stay as they are now."""
        other = Copies()
        other.K = self.K.copy()
        return other

    def dump(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {"K": self.K.copy()}

    @classmethod
    def load(cls, state: Any) -> Copies:
        """Return what :meth:`dump` described."""
        expect_keys("the copies", state, "K")
        made = cls()
        start = made.K
        made.K = expect("K", state["K"], np.float64, start.shape, most=float(LARGEST_COUNT))
        if (start > made.K).any():
            raise ValueError("K must be at least what it starts from, got less")
        return made


def _packed(known: Bytes | None) -> Bytes:
    return np.empty((0, 0), np.uint8) if known is None else known
