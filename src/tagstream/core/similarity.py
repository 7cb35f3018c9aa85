"""Which stored row is most similar to an item, in input space.

Similarity is the cosine of sparse rows, and 1 − d²/(2p) of dense ones, d² the squared distance in
columns divided by their standard deviation; the newest of equals wins.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.core.compilation import compiled, inner, inner_loosely
from tagstream.core.inputs import Inputs
from tagstream.core.simd.tiles import LANES, fetch

__all__ = ["Nearest", "find_similar", "most_similar"]

HASH = 2654435761  # spreads features over a table
WIDEST = 1 << 20  # columns up to which each has a place of its own,
MANY = 32  # if that many items ask: the places have to be made
ROUNDING = 1e-9  # of d²/2p: where it is less, similarities near 1 may be equal

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
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


@compiled
def _find_by_cosine(
    stored: Singles, queries: Singles, candidates: Ints, best: Ints, similarities: Vector
) -> None:
    """Write what :func:`most_similar` returns of dense rows by their cosines."""
    for i in range(candidates.shape[0]):
        mine = 0.0
        for k in range(queries.shape[1]):
            mine += np.float64(queries[i, k]) ** 2
        for c in range(candidates.shape[1]):
            a = candidates[i, c]
            if a < 0:
                continue
            dot, theirs = 0.0, 0.0
            for k in range(queries.shape[1]):
                x = np.float64(stored[a, k])
                theirs += x * x
                dot += np.float64(queries[i, k]) * x
            product = math.sqrt(mine * theirs)
            alike = dot / product if product > 0.0 else 0.0
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
        By which dense columns are multiplied, one over their standard deviation.  Without it,
        rows are compared by their cosine, as sparse ones are.

    Examples
    --------
    >>> from tagstream.core.inputs import inputs_of
    >>> rows = inputs_of(np.array([[0.0, 1.0], [0.0, 1.0], [3.0, 1.0]]))
    >>> query, all_of_them = inputs_of(np.array([[0.0, 0.5]])), np.array([[2, 1, 0, -1]])
    >>> most_similar(rows, query, all_of_them, np.ones(2))
    Nearest(positions=array([1]), similarities=array([0.9375]))
    >>> most_similar(rows, query, all_of_them)
    Nearest(positions=array([1]), similarities=array([1.]))
    """
    best, similarities = np.empty(len(candidates), np.int64), np.empty(len(candidates))
    best.fill(-1)
    similarities.fill(-np.inf)
    rows = np.asarray(candidates)
    if len(queries.indptr):
        _find_sparse(*stored[:3], *queries[:3], rows, best, similarities)
    elif factor is None:
        _find_by_cosine(stored.dense, queries.dense, rows, best, similarities)
    else:
        rough = np.empty(rows.shape[1])
        find_similar(stored.dense, queries.dense, factor, rows, rough, best, similarities)
    return Nearest(best, similarities)
