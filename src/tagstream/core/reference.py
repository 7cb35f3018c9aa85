"""The slow, obvious twins of the compiled loops of heads, fast map and copies, in NumPy.

``TAGSTREAM_CORE=reference`` in the environment takes them in the place of the compiled ones, so
that an idea can be tried in Python before it is compiled.  They take the same arguments and agree
to rounding.  Search, products and rounds stay compiled.
"""

from __future__ import annotations

from itertools import takewhile
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.core import fastmap, heads, structs

__all__ = [
    "blend_items",
    "fast_maps",
    "head_model",
    "histories",
    "insert_features",
    "learn_copies",
    "pass_any",
    "pass_inputs",
    "pass_next",
]

Vector = npt.NDArray[np.float64]
Array = npt.NDArray[Any]


def head_model(*fields: Any) -> Any:
    """Return an object with the fields of a :class:`~tagstream.core.structs.HeadModel`."""
    return SimpleNamespace(**dict(zip(structs.MODEL, fields, strict=True)))


def histories(*fields: Any) -> Any:
    """Return an object with the fields of a :class:`~tagstream.core.structs.Histories`."""
    return SimpleNamespace(**dict(zip(structs.HISTORIES, fields, strict=True)))


def fast_maps(*fields: Any) -> Any:
    """Return an object with the fields of a :class:`~tagstream.core.structs.FastMaps`."""
    return SimpleNamespace(**dict(zip(structs.FAST, fields, strict=True)))


# ---------------------------------------------------------------------- the fast map
def _features(fast: Any, rows: Any, i: int) -> tuple[list[int], Vector]:
    """Return the features of input ``i`` and their values."""
    if fast.table is None:
        shift, factor = fast.scale
        return list(range(len(fast.D))), (rows[i].astype(float) - shift) * factor
    indptr, indices, data = rows
    part = slice(indptr[i], indptr[i + 1])
    return indices[part].tolist(), data[part].astype(float)


def _row_of(fast: Any, feature: int) -> int:
    """Return the row of D of a feature, −1 if it has none."""
    if fast.table is None:
        return feature
    keys, slots, _ = fast.table
    at = np.flatnonzero(keys == feature)
    return int(slots[at[0]]) if len(at) else -1


def _own_row(fast: Any, feature: int) -> int:
    """Return the row of D of a feature that may be written: a new one where there is none."""
    row = _row_of(fast, feature)
    if fast.table is None:
        return row
    keys, slots, counters = fast.table
    if row >= counters[fastmap.FROZEN]:
        return row
    new = int(counters[fastmap.USED])
    if row < 0:
        keys[np.flatnonzero(keys == fastmap.EMPTY)[0]] = feature
        fast.D[new], fast.added[new] = 0, 0
    else:
        fast.D[new], fast.added[new] = fast.D[row], fast.added[row]
    slots[keys == feature] = new
    counters[fastmap.USED] += 1
    return new


def _corrected(fast: Any, rows: Any, i: int, z: Vector) -> Vector:
    """Return z⁺ = z + Dᵀx, or z + B(Dᵀx)."""
    total = np.zeros(fast.D.shape[1])
    for feature, x in zip(*_features(fast, rows, i), strict=True):
        row = _row_of(fast, feature)
        if row >= 0:
            total += x * fast.D[row].astype(float)
    if fast.basis is not None:
        B = fast.basis[0].astype(float)
        total = np.pad(B @ total, (0, len(z) - len(B)))
    return z + total


def _step(fast: Any, rows: Any, i: int, r: Vector) -> None:
    """Learn input ``i`` with residuals ``r``."""
    features, x = _features(fast, rows, i)
    at = np.array([_own_row(fast, feature) for feature in features], np.int64)
    gain = x / (fast.rho[0] + fast.s[features] + fast.added[at])
    h = float(x @ gain)
    fast.added[at] += x * x
    if fast.basis is not None:
        B = fast.basis[0].astype(float)
        r = np.where(np.abs(r) > fastmap.UNSEEN, r, 0.0)[: len(B)] @ B
    moved = fast.D[at] + np.outer(gain, r * (fastmap.RATE / (1 + fastmap.RATE * h)))
    fast.D[at] = np.where(np.abs(moved) <= fastmap.LARGEST_WEIGHT, moved, fast.D[at])


def _residuals(y: Array, z: Vector, known: Array) -> Vector:
    """Return y − z, but 0 where z is beyond y already and where y is not known."""
    beyond = ((y == 1) & (z > 1)) | ((y == 0) & (z < 0))
    return np.where(known & ~beyond, y - z, 0.0)


def pass_inputs(fast: Any, rows: Any, Z: Vector, Y: Array | None, known: Array | None) -> None:
    """See :func:`tagstream.core.fastmap.pass_inputs`."""
    for i in range(len(Z)):
        Z[i] = _corrected(fast, rows, i, Z[i])
        if Y is not None:
            sure = np.ones(len(Z[i]), np.bool_) if known is None else known[i]
            _step(fast, rows, i, _residuals(Y[i].astype(float), Z[i], sure))


def insert_features(keys: Array, slots: Array, features: Array) -> None:
    """See :func:`tagstream.core.fastmap.insert_features`; here a table has no order."""
    keys[: len(features)], slots[: len(features)] = features, np.arange(len(features))


# ---------------------------------------------------------------------- the heads
def _bits(packed: Array, row: int, q: int) -> Array:
    return np.unpackbits(packed[row], count=q).astype(np.int64)


def _votes(found: Array, sizes: Array, most: int, seen: Any, q: int) -> list[Vector]:
    """Return L_k of each label for each k of ``sizes``."""
    logs = []
    for k in sizes.tolist():
        voters = [*takewhile(lambda row: row >= 0, found[: min(k, most)].tolist())]
        yes, sure = np.zeros(q), np.zeros(q)
        for row in voters:
            known = np.ones(q, np.int64) if seen.known is None else _bits(seen.known, row, q)
            yes += _bits(seen.labels, row, q) & known
            sure += known
        logs.append(0.5 * np.log((yes + 0.5) / (sure - yes + 0.5)))
    return logs


def _logit(z: Vector) -> Vector:
    z = np.clip(z, heads.CLIP, 1 - heads.CLIP)
    return np.asarray(np.log(z / (1 - z)))


def _share(model: Any, column: int, n: Vector, others: Vector) -> Vector:
    """Return how common labels are, within the range in which its weight was learnt."""
    A = model.A
    mean = A[0, column] / A[0, 0]
    wide = heads.WIDTH * np.sqrt(max(A[column, column] / A[0, 0] - mean**2, 0))
    return np.clip(np.log((n + 0.5) / (others + 0.5)) / 4, mean - wide, mean + wide)


def _evidence(model: Any, seen: Any, i: int, n: Array, most: int, others: list[Vector]) -> Vector:
    """Return the evidence of each label, (q, 16), zeros included."""
    q, f = len(n), np.zeros((len(n), heads.ROOM))
    columns = [np.ones(q), *_votes(seen.found[i], model.sizes, most, seen, q), *others]
    if seen.near is not None:
        columns += _votes(seen.near[i], model.near_sizes, most, seen, q)
    f[:, : len(columns)] = np.column_stack(columns)
    if seen.names is not None:
        cosines, declared = seen.names
        m, nobody = len(model.w), (n <= 0) & (declared > 0)
        f[:, m - 2] = cosines[i]
        f[:, m - 1] = cosines[i] / (1 + np.maximum(n, 0) / heads.FADING)
        against = [*enumerate(model.sizes.tolist(), 1)]
        if seen.near is not None:
            against += enumerate(model.near_sizes.tolist(), 1 + len(model.sizes) + len(others))
        for c, k in against:
            f[nobody, c] = -0.5 * np.log(2 * k + 1)
    return f


def _scored(n: Array, seen: Any) -> Array:
    return np.asarray((n > 0) if seen.names is None else (n > 0) | (seen.names[1] > 0))


def _sums(model: Any, f: Vector, scored: Array) -> tuple[Vector, Vector]:
    """Return the log-odds and the probabilities of labels."""
    m = len(model.w)
    sums = ((model.w + model.d[:, :m]) * f[:, :m]).sum(axis=1)
    return np.where(scored, sums, -np.inf), np.where(scored, 1 / (1 + np.exp(-sums)), 0.0)


def _newton_step(model: Any, f: Vector, scored: Array, p: Vector, y: Array) -> None:
    w, A, m = model.w, model.A, len(model.w)
    A[:] = heads.DECAY * A + (1 - heads.DECAY) * heads.SPREAD * np.eye(m)
    gradient = np.zeros(m)
    for j in np.flatnonzero(scored & (y != heads.UNKNOWN)):
        x, a = f[j], model.a[j].copy()
        e, h = float(y[j]) - p[j], p[j] * (1 - p[j])
        A += h * np.outer(x[:m], x[:m])
        gradient += e * x[:m]
        model.d[j] += (e * x / a) / (1 + h * (x * x / a).sum())
        model.a[j] = heads.DECAY * a + (1 - heads.DECAY) * heads.OWN_SPREAD + h * x * x
        says = float(2 * p[j] * model.hit_sizes[j] >= model.hits[j])
        left, start = heads.DECAY, (1 - heads.DECAY) * heads.START_SIZE
        model.hits[j] = left * model.hits[j] + start * heads.START_F1 + 2 * p[j] * says
        model.hit_sizes[j] = left * model.hit_sizes[j] + start + p[j] + says
    w += np.linalg.solve(A, gradient)


def _absorb(history: Any, y: Array) -> None:
    n, missing, t, last, fast, slow = history
    known = y != heads.UNKNOWN
    if not known.any() and len(y):
        return
    t += 1
    missing += ~known
    n += np.where(known, y, 0)
    last[known] = y[known]
    fast[known] += heads.FAST * (y[known] - fast[known])
    slow[known] += heads.SLOW * (y[known] - slow[known])


def _has_room(fast: Any, rows: Any, i: int) -> bool:
    if fast.table is None:
        return True
    keys, _, counters = fast.table
    need = counters[fastmap.USED] + rows[0][i + 1] - rows[0][i]
    return bool(need <= len(fast.D) and 2 * need <= len(keys))


def pass_next(
    model: Any,
    history: Any,
    fast: Any,
    rows: Any,
    seen: Any,
    Y: Array,
    kept: Array | None,
    most: int,
    start: int,
    p: Vector,
    reasons: Any,
) -> int:
    """See :func:`tagstream.core.heads.pass_next`."""
    learning, regressed = len(Y) > 0, len(seen.z) > 0
    active, column = regressed and len(fast.s) > 0, 1 + len(model.sizes)
    n, missing, t, last, recent, slow = history.behind if learning else history.now
    for i in range(start, len(p)):
        if learning and active and not _has_room(fast, rows, i):
            return i
        scored, has = _scored(n, seen), np.maximum(n, 0)
        others = np.where(scored, np.maximum(t[0] - missing - n, 0), 0)
        z = z_plus = prior = (has + 0.5) / (has + others + 1)
        if regressed:
            z_plus = _corrected(fast, rows, i, seen.z[i]) if active else seen.z[i].copy()
            z_plus = np.where(fast.fresh == fastmap.BLIND, prior, z_plus)
            z = np.where(fast.fresh > 0, z_plus, seen.z[i])
        log_fast = np.log((recent + 0.02) / (1.02 - recent)) / 4
        share = _share(model, column + heads.SHARE, has, others)
        own = [_logit(z) / 4, _logit(z_plus) / 4, share, last, log_fast, slow]
        f = _evidence(model, seen, i, n, most, own)
        log_odds, p[i] = _sums(model, f, scored)
        if reasons is not None:
            _reason(reasons, i, model, f, scored, log_odds, _parts_of_next(model, seen, fast))
        if not learning:
            continue
        known = Y[i] != heads.UNKNOWN
        if known.any() or not len(known):
            _newton_step(model, f, scored, p[i], Y[i])
            if active:
                _step(fast, rows, i, _residuals(Y[i].astype(float), z_plus, known))
        _absorb(history.now, Y[i])
        _wait(history, Y[i])
        for row in range(kept[i], kept[i + 1]) if kept is not None else ():
            _take_off(history, seen, row)
    return len(p)


def _wait(history: Any, y: Array) -> None:
    """Have late labels wait in the queue; absorb those that leave it."""
    if history.queue is None:
        return
    late, at = history.queue
    if at[1] == len(late):
        _absorb(history.behind, late[at[0]])
    else:
        at[1] += 1
    late[at[0]] = y
    at[0] = (at[0] + 1) % len(late)


def _take_off(history: Any, seen: Any, row: int) -> None:
    """Count a stored item once less."""
    q = len(history.now[0])
    y = _bits(seen.labels, row, q)
    known = np.ones(q, np.int64) if seen.known is None else _bits(seen.known, row, q)
    if known.any() or not q:
        for n, missing, t, *_ in (
            history.now,
            *([] if history.queue is None else [history.behind]),
        ):
            n -= y * known
            missing -= 1 - known
            t -= 1


def _parts_of_next(model: Any, seen: Any, fast: Any) -> Array:
    """Return to which part each column of each label's evidence belongs, (q, m)."""
    m, column = len(model.w), 1 + len(model.sizes)
    parts = np.zeros((len(model.d), m), np.int64)
    parts[:, [0, column + heads.SHARE]] = 3
    parts[:, column + heads.Z] = np.where((fast.fresh > 0) & (len(seen.z) > 0), 2, 1)
    parts[:, column + heads.Z_PLUS] = 2
    parts[:, column + heads.LAST : column + heads.LONGER + 1] = 4
    if seen.names is not None:
        parts[:, m - 2 :] = 5
    return parts


def _reason(
    reasons: Any, i: int, model: Any, f: Vector, scored: Array, log_odds: Vector, parts: Array
) -> None:
    reasons[0][i] = log_odds
    added = (model.w + model.d[:, : len(model.w)]) * f[:, : len(model.w)]
    for j in np.flatnonzero(scored):
        np.add.at(reasons[1][i, j], parts[j], added[j])


def pass_any(
    model: Any,
    counted: Any,
    less: Any,
    fresh: Array,
    seen: Any,
    z_plus: Vector,
    Y: Array,
    most: int,
    p: Vector,
    reasons: Any,
) -> None:
    """See :func:`tagstream.core.heads.pass_any`."""
    n, missing, t = counted
    regressed, column = len(seen.z) > 0, 1 + len(model.sizes)
    for i in range(len(p)):
        has, known = n.copy(), t[0] - missing
        if len(less[0]):
            has, known = has - less[0][i], known + less[1][i] - less[2][i]
        scored, others = _scored(has, seen), np.maximum(known - has, 0)
        has, others = np.maximum(has, 0), np.where(scored, others, 0)
        both = 2 * _logit((has + 0.5) / (has + others + 1))
        alone = np.zeros(len(has))
        if regressed:
            alone = np.where(fresh > 0, 0.0, _logit(seen.z[i]))
            plus = _logit(z_plus[i])
            both = np.where(fresh == fastmap.BLIND, both, plus + np.where(fresh > 0, plus, alone))
        own = [both / 8, _share(model, column + heads.ANY_SHARE, has, others)]
        f = _evidence(model, seen, i, has, most, own)
        log_odds, p[i] = _sums(model, f, scored)
        if reasons is not None:
            parts = np.zeros((len(has), len(model.w)), np.int64)
            parts[:, [0, column + heads.ANY_SHARE]] = 3
            parts[:, column] = np.where((fresh == fastmap.BLIND) | (not regressed), 1, 2)
            if seen.names is not None:
                parts[:, len(model.w) - 2 :] = 5
            _reason(reasons, i, model, f, scored, log_odds, parts)
            if regressed:  # what the fast map changes is its own
                weight = model.w[column] + model.d[:, column]
                own_part = np.where(scored & (fresh != fastmap.BLIND), alone / 4 * weight, 0.0)
                reasons[1][i, :, 1] += own_part
                reasons[1][i, :, 2] -= own_part
        if len(Y) and ((Y[i] != heads.UNKNOWN).any() or not len(Y[i])):
            _newton_step(model, f, scored, p[i], Y[i])


# ---------------------------------------------------------------------- copies
def _copy_of(
    K: Vector, at: Array, alike: Vector, corrected: Array, i: int, bins: Vector
) -> tuple[int, Vector | None]:
    """Return the row of the item that ``i`` copies and its K; None where there is none."""
    row, b = int(at[i]), int((alike[i] >= bins).sum()) - 1
    if row < 0 or b < 0:
        return row, None
    return row, K[int(corrected[row]) if len(corrected) else 0, b]


def blend_items(
    K: Vector,
    positions: Array,
    similarities: Vector,
    corrected: Array,
    labels: Array,
    known: Array,
    p: Vector,
    kappas: Vector,
) -> None:
    """See :func:`tagstream.core.copies.blend_items`."""
    for i in range(len(p)):
        row, counts = _copy_of(K, positions, similarities, corrected, i, _bins())
        kappas[i] = 0.0
        if counts is not None:
            kappas[i] = counts[0] / counts.sum()
            p[i] = _blended(p[i], kappas[i], labels, known, row)


def _bins() -> Vector:
    from tagstream.core.copies import BINS

    return BINS


def _blended(p: Vector, kappa: float, labels: Array, known: Array, row: int) -> Vector:
    sure = np.ones(len(p)) if not len(known) else _bits(known, row, len(p))
    return np.where(sure > 0, kappa * _bits(labels, row, len(p)) + (1 - kappa) * p, p)


def learn_copies(
    K: Vector,
    positions: Array,
    similarities: Vector,
    corrected: Array,
    labels: Array,
    known: Array,
    p: Vector,
    Y: Array,
    mask: Array,
) -> None:
    """See :func:`tagstream.core.copies.learn_copies`."""
    for i in range(len(p)):
        row, counts = _copy_of(K, positions, similarities, corrected, i, _bins())
        if counts is None:
            continue
        q = p.shape[1]
        sure = np.ones(q, np.bool_) if not len(mask) else mask[i].copy()
        if len(known):
            sure &= _bits(known, row, q) > 0
        if not sure.any():
            continue
        kappa = counts[0] / counts.sum()
        likelihood = np.prod(np.where(Y[i], p[i], 1 - p[i])[sure])
        equal = (Y[i] == _bits(labels, row, q))[sure].all()
        R = kappa / (kappa + (1 - kappa) * likelihood) if equal else 0.0
        p[i] = _blended(p[i], kappa, labels, known, row)
        counts += [R, 1 - R]
