"""The loops of the fast map; :mod:`tagstream.evidence.fastmap` has the formulas.

``fast`` is a :class:`~tagstream.core.structs.FastMaps`; its ``table``, ``scale`` and ``basis`` are
handed over beside it, so that what would be done with one that is None is not compiled.  ``rows``
are indptr, indices and data of sparse inputs, which have a table, or the array of dense ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.core.compilation import compiled, inlined, inner, with_twin
from tagstream.core.inputs import Inputs, Maybe
from tagstream.core.products import add_scaled_rows
from tagstream.core.simd import lines

__all__ = [
    "add_correction",
    "has_room",
    "insert_features",
    "pass_inputs",
    "residual",
    "scratch_of",
    "step",
    "sum_squares",
]

RATE = 8.0  # η
LARGEST_WEIGHT = 1e30  # of D, in single precision
UNSEEN = 0.02  # residual of one of many labels that the head, which clips z⁺, does not see
BLIND = 2  # of a label of which a reduced P knows nothing at all

# Columns of the counters: rows of D in use, and rows that a snapshot shares.
USED, FROZEN = 0, 1
EMPTY = -1  # in a table

Vector = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Table = npt.NDArray[np.int32]


@inner
def _find(keys: Table, feature: Any) -> int:
    """Return the place in the table where ``feature`` is, or belongs."""
    mask = keys.shape[0] - 1
    place = (feature * 2654435761 >> 7) & mask
    while keys[place] != EMPTY and keys[place] != feature:
        place = (place + 1) & mask
    return int(place)


@inner
def scratch_of(D: Singles, q: int, rows: Any, table: Maybe, basis: Maybe) -> Any:
    """Return room to work in: of reduced labels coordinates and labels; rows of D and gains.

    With an entry for each feature of an input, or of all inputs if they are sparse.
    """
    n = np.int64(D.shape[0])
    if table is not None:
        n = np.int64(rows[1].shape[0])
    n_seen = np.int64(0)
    if basis is not None:
        n_seen = np.int64(q)
    coordinates = np.empty(D.shape[1] if n_seen else 0)
    return coordinates, np.empty(n_seen, np.int64), np.empty(n, np.int64), np.empty(n)


@inner
def has_room(D: Singles, rows: Any, table: Maybe, i: int) -> bool:
    """Whether each feature of sparse input ``i`` can have a row of D."""
    if table is not None:
        keys, _, counters = table
        indptr, _, _ = rows
        need = counters[USED] + indptr[i + 1] - indptr[i]
        return bool(need <= D.shape[0] and 2 * need <= keys.shape[0])
    return True


@inner
def add_correction(
    D: Singles, rows: Any, table: Maybe, scale: Maybe, basis: Maybe, i: int, room: Any, z: Vector
) -> None:
    """Add Dᵀx of input ``i``, or B(Dᵀx), to ``z`` (q,), feature by feature.

    ``room`` is that of :func:`scratch_of`.
    """
    coordinates, _, own, gain = room
    total = z
    if basis is not None:
        total = coordinates
        for k in range(D.shape[1]):
            total[k] = 0.0
    if scale is not None:
        shift, factor = scale
        for e in range(D.shape[0]):
            gain[e] = (np.float64(rows[i, e]) - shift[e]) * factor[e]
        add_scaled_rows(total, D, None, gain, 0, D.shape[0])
    if table is not None:
        keys, slots, _ = table
        indptr, indices, data = rows
        n = 0
        for e in range(indptr[i], indptr[i + 1]):
            place = _find(keys, np.int64(indices[e]))
            if keys[place] != EMPTY:
                own[n], gain[n] = slots[place], data[e]
                n += 1
        add_scaled_rows(total, D, own, gain, 0, n)
    if basis is not None:
        add_scaled_rows(z, basis[1], None, total, 0, D.shape[1])


@inner
def _own_row(
    D: Singles,
    added: Vector,
    keys: Table,
    slots: Table,
    counters: npt.NDArray[np.int64],
    feature: Any,
    place: int,
) -> int:
    """Return a new row for ``feature``, which is, or belongs, at ``place`` in the table.

    It is empty, or a copy of one that is shared.  Most features have a row of their own already.
    """
    new = int(counters[USED])
    if keys[place] == EMPTY:
        keys[place] = feature
        for j in range(D.shape[1]):  # a loop: numba takes seconds over a slice
            D[new, j] = 0.0
        added[new] = 0.0
    else:
        row = int(slots[place])
        for j in range(D.shape[1]):
            D[new, j] = D[row, j]
        added[new] = added[row]
    slots[place] = new
    counters[USED] = new + 1
    return new


@inner
def _take_gains(
    fast: Any, rows: Any, table: Maybe, scale: Maybe, i: int, own: Any, gain: Vector
) -> tuple[int, float]:
    """Add input ``i`` to s; return how many features it has, and h, their gains being written."""
    D, added, s, rho = fast.D, fast.added, fast.s, fast.rho
    n, h = 0, 0.0
    if scale is not None:
        shift, factor = scale
        n = D.shape[0]
        for e in range(n):
            x = (np.float64(rows[i, e]) - shift[e]) * factor[e]
            part = x / (rho[0] + s[e] + added[e])
            gain[e] = part
            h += x * part
            added[e] += x * x
    if table is not None:
        keys, slots, counters = table
        indptr, indices, data = rows
        n = indptr[i + 1] - indptr[i]
        for e in range(n):
            feature, x = np.int64(indices[indptr[i] + e]), np.float64(data[indptr[i] + e])
            place = _find(keys, feature)
            row = np.int64(slots[place])
            if keys[place] == EMPTY or row < counters[FROZEN]:
                row = np.int64(_own_row(D, added, keys, slots, counters, feature, place))
            own[e] = row
            part = x / (rho[0] + s[feature] + added[row])
            gain[e] = part
            h += x * part
            added[row] += x * x
    return n, h


@inner
def step(
    fast: Any, rows: Any, table: Maybe, scale: Maybe, basis: Maybe, i: int, room: Any, r: Vector
) -> None:
    """Learn input ``i``, whose residuals are ``r`` (q,), 0 for what is not to be learnt.

    ``r`` is used up; ``room`` is that of :func:`scratch_of`.
    """
    coordinates, seen, own, gain = room
    D = fast.D
    move = r
    if basis is not None:
        B, _ = basis
        move = coordinates
        for k in range(D.shape[1]):
            move[k] = 0.0
        n_seen = 0
        for j in range(B.shape[0]):
            if abs(r[j]) > UNSEEN:
                seen[n_seen], r[n_seen] = j, r[j]
                n_seen += 1
        add_scaled_rows(move, B, seen, r, 0, n_seen)
    n, h = _take_gains(fast, rows, table, scale, i, own, gain)
    share = RATE / (1.0 + RATE * h)
    for j in range(D.shape[1]):
        move[j] *= share
    if scale is not None:
        _move_rows(D, None, gain, n, move)
    if table is not None:
        _move_rows(D, own, gain, n, move)


@inner
def _move_rows(D: Singles, rows: Maybe, gain: Vector, n: int, move: Vector) -> None:
    """Add gain_e ``move`` to the row of D of each of n features, ``rows`` or the first ones."""
    m = D.shape[1]
    for b in range(0, m, 2 * lines.WIDTH):
        n0, n1, b1 = m - b, m - b - lines.WIDTH, b + lines.WIDTH
        move0, move1 = lines.load(move, b, n0), lines.load(move, b1, n1)
        for e in range(n):
            row = np.int64(e)
            if rows is not None:
                row = np.int64(rows[e])
            part, at = lines.spread(gain[e]), row * m
            moved0 = lines.add(lines.load(D, at + b, n0), lines.multiply(part, move0))
            moved1 = lines.add(lines.load(D, at + b1, n1), lines.multiply(part, move1))
            # What is left of a quotient of extremes is no sum.
            lines.store_small(D, at + b, n0, moved0, LARGEST_WEIGHT)
            lines.store_small(D, at + b1, n1, moved1, LARGEST_WEIGHT)


@inlined
def residual(y: int, z: float) -> float:
    """Return y − z, but 0 where z is beyond y already."""
    return 0.0 if (y == 1 and z > 1.0) or (y == 0 and z < 0.0) else y - z


@with_twin
def pass_inputs(fast: Any, rows: Any, Z: Vector, Y: Maybe, known: Maybe) -> None:
    """Make Z (m, q) z⁺ and, if there are labels, learn each item; Z is then used up."""
    room = scratch_of(fast.D, Z.shape[1], rows, fast.table, fast.basis)
    for i in range(Z.shape[0]):
        z = Z[i]
        add_correction(fast.D, rows, fast.table, fast.scale, fast.basis, i, room, z)
        if Y is not None:
            for j in range(z.shape[0]):
                z[j] = residual(Y[i, j], z[j])
                if known is not None and not known[i, j]:
                    z[j] = 0.0
            step(fast, rows, fast.table, fast.scale, fast.basis, i, room, z)


@with_twin
def insert_features(keys: Table, slots: Table, features: Table) -> None:
    """Put features into an empty table, with a row each in their order."""
    for row in range(features.shape[0]):
        place = _find(keys, np.int64(features[row]))
        keys[place] = features[row]
        slots[place] = row


@compiled
def sum_squares(inputs: Inputs, shift: Vector, factor: Vector, s: Vector) -> None:
    """Add the squares of inputs to ``s`` (p,), one after another."""
    if inputs.indptr.shape[0]:
        for e in range(inputs.indices.shape[0]):
            s[inputs.indices[e]] += np.float64(inputs.data[e]) ** 2
    else:
        for i in range(inputs.dense.shape[0]):
            for k in range(s.shape[0]):
                s[k] += ((np.float64(inputs.dense[i, k]) - shift[k]) * factor[k]) ** 2
