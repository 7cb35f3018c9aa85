"""The loops of the two heads: from evidence to probabilities, and a Newton step for each item.

:mod:`tagstream.evidence.head` has the formulas.  ``model``, ``history`` and ``fast`` are the
objects of :mod:`tagstream.core.structs`, ``seen`` is a :class:`~tagstream.core.structs.Found`.
What a stream does not have is None, and what would be done with it is not compiled.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.core.compilation import compiled, inlined, inner, with_twin
from tagstream.core.fastmap import BLIND, add_correction, has_room, residual, scratch_of, step
from tagstream.core.inputs import Maybe
from tagstream.core.simd import lines

__all__ = [
    "BITS_AS_BYTES",
    "UNKNOWN",
    "count",
    "pass_any",
    "pass_next",
]

DECAY = 0.999  # γ
SPREAD = 1.0  # λ
OWN_SPREAD = 10.0  # μ
FAST, SLOW = 0.2, 0.02  # rates of the means of recent labels
START_F1, START_SIZE = 0.5, 1.0  # of a label's F1, before there is an example
CLIP = 0.02
WIDTH = 3.0  # deviations from the mean within which a label's frequency is believed
FADING = 5.0  # examples of a label after which half of what only its name says is left
UNKNOWN = 2  # in labels of 0 and 1
ROOM = 2 * lines.WIDTH  # numbers of a label's evidence, zeros included: two lines

# Columns of the evidence behind the votes in the codes: of the head for the next item,
Z, Z_PLUS, SHARE, LAST, RECENT, LONGER, N_OTHERS = 0, 1, 2, 3, 4, 5, 6
# and of the head for any item.
ANY_Z, ANY_SHARE, N_OTHERS_ANY = 0, 1, 2

# The bits of a byte, the most significant first, as eight bytes of a number, the least first.
BITS_AS_BYTES = np.array(
    [sum((v >> (7 - j) & 1) << 8 * j for j in range(8)) for v in range(256)], np.int64
)

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]


@inlined
def _take_votes(counts: Ints) -> None:
    """Add the votes that are counted in single bytes to those of each label."""
    for b in range(counts.shape[1] // 8):
        votes = counts[2, b]
        if votes:
            for j in range(8):
                counts[0, 8 * b + j] += votes >> 8 * j & 255
            counts[2, b] = 0


@inner
def count_votes(
    found: Ints,
    i: int,
    labels: Bytes,
    known: Maybe,
    sizes: Ints,
    most: int,
    half_log: Vector,
    counts: Ints,
    f: Vector,
    first: int,
) -> None:
    """Write L_k into the columns of ``f`` from ``first`` on, one for each k of ``sizes``.

    No more than ``most`` neighbours vote; ``counts`` (3, 8⌈q/8⌉) is scratch space.
    """
    q = f.shape[0]
    for j in range(counts.shape[1]):
        counts[0, j] = counts[1, j] = counts[2, j] = 0  # have it, are not known, and to count
    voters, most = 0, min(most, found.shape[1])
    for c in range(sizes.shape[0]):
        uncounted = 0
        while voters < min(sizes[c], most) and found[i, voters] >= 0:
            row = found[i, voters]
            for b in range(labels.shape[1]):
                have = labels[row, b]
                if known is not None:
                    sure = known[row, b]
                    have &= sure
                    if sure != 255:
                        for j in range(8 * b, min(8 * b + 8, q)):
                            counts[1, j] += (255 - sure) >> (7 - (j & 7)) & 1
                counts[2, b] += BITS_AS_BYTES[have]
            voters += 1
            uncounted += 1
            if uncounted == 255:  # a byte holds no more
                _take_votes(counts)
                uncounted = 0
        _take_votes(counts)
        for j in range(q):
            yes = counts[0, j]
            f[j, first + c] = half_log[yes] - half_log[voters - counts[1, j] - yes]


@inner
def _count_near(
    near: Maybe, i: int, seen: Any, model: Any, most: int, counts: Ints, f: Vector, first: int
) -> None:
    """Write the votes of the neighbours in input space, if there are such."""
    if near is not None:
        count_votes(
            near, i, seen.labels, seen.known, model.near_sizes, most, model.half_log, counts, f,
            first,
        )  # fmt: skip


@inner
def _mark_scored(n: Ints, names: Maybe, scored: Bools) -> None:
    """Write which labels get a score: those that stored items have, and declared ones."""
    for j in range(n.shape[0]):
        scored[j] = n[j] > 0
        if names is not None and names[1][j]:
            scored[j] = True


@inner
def _write_names(
    names: Maybe, near: Maybe, i: int, n: Ints, model: Any, f: Vector, first_near: int
) -> None:
    """Write what names say about item ``i`` into the last columns of the evidence.

    For a declared label that no stored item has, all votes count as votes against it; those in
    input space are in the columns from ``first_near`` on.
    """
    if names is not None:
        m, half_log = model.w.shape[0], model.half_log
        cosines, declared = names
        for j in range(f.shape[0]):
            f[j, m - 2] = cosines[i, j]
            f[j, m - 1] = cosines[i, j] / (1.0 + max(n[j], 0) / FADING)
            if n[j] <= 0 and declared[j]:
                for c in range(model.sizes.shape[0]):
                    f[j, 1 + c] = half_log[0] - half_log[model.sizes[c]]
                if near is not None:
                    for c in range(model.near_sizes.shape[0]):
                        f[j, first_near + c] = half_log[0] - half_log[model.near_sizes[c]]


@inlined
def _odds(z: float) -> float:
    """Return z/(1 − z), with z kept away from 0 and 1."""
    z = min(max(z, CLIP), 1.0 - CLIP)
    return z / (1.0 - z)


@inlined
def solve(A: Vector, C: Vector, g: Vector) -> None:
    """Make g A⁻¹g for a small positive definite A, by its Cholesky factor, written into C."""
    m = g.shape[0]
    for i in range(m):
        for j in range(i + 1):
            total = A[i, j]
            for k in range(j):
                total -= C[i, k] * C[j, k]
            C[i, j] = math.sqrt(total) if i == j else total / C[j, j]
    for i in range(m):
        total = g[i]
        for k in range(i):
            total -= C[i, k] * g[k]
        g[i] = total / C[i, i]
    for i in range(m - 1, -1, -1):
        total = g[i]
        for k in range(i + 1, m):
            total -= C[k, i] * g[k]
        g[i] = total / C[i, i]


@inlined
def aim(hits: Vector, sizes: Vector, j: int, p: float) -> None:
    """Count what suggesting label ``j`` from half its F1 on would have brought, by its own p."""
    says = 1.0 if 2.0 * p * sizes[j] >= hits[j] else 0.0
    hits[j] = DECAY * hits[j] + ((1.0 - DECAY) * START_F1 * START_SIZE + 2.0 * p * says)
    sizes[j] = DECAY * sizes[j] + ((1.0 - DECAY) * START_SIZE + p + says)


@inner
def _newton_step(
    model: Any, f: Vector, scored: Bools, p: Vector, Y: Bytes, i: int, scratch: Any
) -> None:
    """Take the Newton step of item ``i`` with labels of 0, 1 and 2 (not known).

    Labels that are not ``scored`` teach nothing; for ``scratch`` see :func:`newton_scratch`.
    """
    w, A, d, a = model.w, model.A, model.d, model.a
    hits, hit_sizes = model.hits, model.hit_sizes
    q, m = d.shape[0], w.shape[0]
    C, g, S = scratch
    for r in range(m):
        for c in range(m):
            S[r, c] = DECAY * A[r, c]
        S[r, r] += (1.0 - DECAY) * SPREAD
    g0 = g1 = lines.spread(0.0)
    decay, start = lines.spread(DECAY), lines.spread((1.0 - DECAY) * OWN_SPREAD)
    for j in range(q):
        if Y[i, j] == UNKNOWN or not scored[j]:
            continue
        p_j, at, after = p[i, j], j * ROOM, j * ROOM + lines.WIDTH
        e, h = Y[i, j] - p_j, p_j * (1.0 - p_j)
        x0, x1 = lines.load(f, at, lines.WIDTH), lines.load(f, after, lines.WIDTH)
        a0, a1 = lines.load(a, at, lines.WIDTH), lines.load(a, after, lines.WIDTH)
        scaled0, scaled1 = lines.divide(x0, a0), lines.divide(x1, a1)
        both = lines.add(lines.multiply(x0, scaled0), lines.multiply(x1, scaled1))
        weight = lines.spread(e)
        g0 = lines.add(g0, lines.multiply(weight, x0))
        g1 = lines.add(g1, lines.multiply(weight, x1))
        weight = lines.spread(h)
        for r in range(m):  # in this order both halves of A are the same to the bit
            x, b = lines.spread(f[j, r]), r * ROOM
            row = lines.multiply(weight, lines.multiply(x, x0))
            lines.store(S, b, lines.WIDTH, lines.add(lines.load(S, b, lines.WIDTH), row))
            if r >= lines.WIDTH:
                b += lines.WIDTH
                row = lines.multiply(weight, lines.multiply(x, x1))
                lines.store(S, b, lines.WIDTH, lines.add(lines.load(S, b, lines.WIDTH), row))
        share = lines.spread(e / (1.0 + h * lines.total(both)))
        d0 = lines.add(lines.load(d, at, lines.WIDTH), lines.multiply(share, scaled0))
        d1 = lines.add(lines.load(d, after, lines.WIDTH), lines.multiply(share, scaled1))
        lines.store(d, at, lines.WIDTH, d0)
        lines.store(d, after, lines.WIDTH, d1)
        x0 = lines.add(start, lines.multiply(lines.multiply(weight, x0), x0))
        x1 = lines.add(start, lines.multiply(lines.multiply(weight, x1), x1))
        lines.store(a, at, lines.WIDTH, lines.add(lines.multiply(decay, a0), x0))
        lines.store(a, after, lines.WIDTH, lines.add(lines.multiply(decay, a1), x1))
        aim(hits, hit_sizes, j, p_j)
    for r in range(m):
        for c in range(r + 1):
            A[r, c] = A[c, r] = S[r, c]
    lines.store(g, 0, m, g0)
    lines.store(g, lines.WIDTH, m - lines.WIDTH, g1)
    solve(A, C, g)
    for c in range(m):
        w[c] += g[c]


@inlined
def _is_known(Y: Bytes, i: int) -> bool:
    """Whether anything is known of item ``i`` with labels of 0, 1 and 2."""
    for j in range(Y.shape[1]):
        if Y[i, j] != UNKNOWN:
            return True
    return bool(Y.shape[1] == 0)


@inlined
def _absorb(history: Any, Y: Bytes, i: int) -> None:
    """Add example ``i``, with labels of 0, 1 and 2, to the history, unless nothing is known."""
    if not _is_known(Y, i):
        return
    n, missing, t, last, recent, longer = history
    t[0] += 1
    for j in range(Y.shape[1]):
        y = Y[i, j]
        if y == UNKNOWN:
            missing[j] += 1
        else:
            n[j] += y
            last[j] = y
            recent[j] += FAST * (y - recent[j])
            longer[j] += SLOW * (y - longer[j])


@compiled
def count(n: Ints, missing: Ints, t: Ints, Y: Bytes, i: int, sign: int) -> None:
    """Count example ``i``, with labels of 0, 1 and 2, once more or once less; no history."""
    if _is_known(Y, i):
        t[0] += sign
        for j in range(Y.shape[1]):
            if Y[i, j] == UNKNOWN:
                missing[j] += sign
            else:
                n[j] += sign * Y[i, j]


@inner
def stored_labels(labels: Bytes, known: Maybe, row: int, y: Bytes) -> None:
    """Unpack the labels of the stored item ``row`` into ``y`` (1, q) of 0, 1 and 2."""
    for j in range(y.shape[1]):
        shift = 7 - (j & 7)
        y[0, j] = labels[row, j >> 3] >> shift & 1
        if known is not None and not known[row, j >> 3] >> shift & 1:
            y[0, j] = UNKNOWN


@inner
def _absorb_late(queue: Maybe, behind: Any, Y: Bytes, i: int) -> None:
    """Put example ``i`` into the queue of late labels, and absorb the one that leaves it."""
    if queue is not None:
        late, late_at = queue
        at = late_at[0]
        if late_at[1] == late.shape[0]:
            _absorb(behind, late, at)
        else:
            late_at[1] += 1
        for j in range(late.shape[1]):
            late[at, j] = Y[i, j]
        late_at[0] = (at + 1) % late.shape[0]


@inner
def _take_off(kept: Maybe, history: Any, queue: Maybe, seen: Any, i: int) -> None:
    """Take off the counts what leaves the window before item ``i`` + 1."""
    if kept is not None:
        gone = np.empty((1, history.now[0].shape[0]), np.uint8)
        for row in range(kept[i], kept[i + 1]):
            stored_labels(seen.labels, seen.known, row, gone)
            n, missing, t, _, _, _ = history.now
            count(n, missing, t, gone, 0, -1)
            if queue is not None:
                n, missing, t, _, _, _ = history.behind
                count(n, missing, t, gone, 0, -1)


@inner
def _range_of_share(A: Vector, column: int) -> tuple[float, float]:
    """Return the range in which the weight of the share was learnt: mean ± 3 deviations.

    A has what it takes: the decayed sums of h, of h times the evidence, of h times its square.
    """
    mean = A[0, column] / A[0, 0]
    deviation = math.sqrt(max(A[column, column] / A[0, 0] - mean * mean, 0.0))
    return mean - WIDTH * deviation, mean + WIDTH * deviation


@inner
def _weigh(model: Any, f: Vector, sums: Vector, logs: Vector) -> None:
    """Write (w + d_j)ᵀf_j of each label into ``sums``, and σ of it into ``logs``."""
    w, d = model.w, model.d
    q, m = d.shape[0], w.shape[0]
    w0, w1 = lines.load(w, 0, m), lines.load(w, lines.WIDTH, m - lines.WIDTH)
    for j in range(q):
        at, after = j * ROOM, j * ROOM + lines.WIDTH
        own0, own1 = lines.load(d, at, lines.WIDTH), lines.load(d, after, lines.WIDTH)
        own0 = lines.multiply(lines.add(w0, own0), lines.load(f, at, lines.WIDTH))
        own1 = lines.multiply(lines.add(w1, own1), lines.load(f, after, lines.WIDTH))
        sums[j] = lines.total(lines.add(own0, own1))
    for b in range(0, q, lines.WIDTH):
        line = lines.sigmoid(lines.load(sums, b, lines.WIDTH))
        lines.store(logs, b, lines.WIDTH, line)


@inner
def _reason_next(
    reasons: Maybe, i: int, seen: Any, model: Any, fast: Any, scored: Bools, f: Vector, sums: Vector
) -> None:
    """Write the log-odds of item ``i`` for the next head and what each part adds to them."""
    if reasons is not None:
        log_odds, parts = reasons
        w, d, fresh = model.w, model.d, fast.fresh
        m, column = w.shape[0], 1 + model.sizes.shape[0]
        named = 2 if _are_there(seen.names) else 0
        regressed = seen.z.shape[0] > 0
        for j in range(d.shape[0]):
            log_odds[i, j] = sums[j] if scored[j] else -np.inf
            if not scored[j]:
                continue
            for c in range(m):
                part = 0  # votes
                if c >= m - named:
                    part = 5
                elif c == 0 or c == column + SHARE:
                    part = 3
                elif c == column + Z:
                    part = 2 if fresh[j] and regressed else 1
                elif c == column + Z_PLUS:
                    part = 2
                elif column + LAST <= c <= column + LONGER:
                    part = 4
                parts[i, j, part] += (w[c] + d[j, c]) * f[j, c]


@inner
def _are_there(names: Maybe) -> bool:
    """Whether names are evidence."""
    return names is not None


@with_twin
def pass_next(
    model: Any,
    history: Any,
    fast: Any,
    rows: Any,
    seen: Any,
    Y: Bytes,
    kept: Maybe,
    most: int,
    start: int,
    p: Vector,
    reasons: Maybe,
) -> int:
    """Write the probabilities of items ``start``, ``start`` + 1, …, and learn them if Y has labels.

    Return where the fast map wants room, or how many items there are.  No more than ``most``
    neighbours vote.

    Parameters
    ----------
    model, history, fast : HeadModel, Histories, FastMaps
    rows : tuple of CSR arrays, or array
        The items as the fast map takes them.
    seen : Found
    Y : uint8 array of shape (m, q), or (0, 0)
        Labels of 0, 1 and 2 (not known) to be learnt.
    kept : int64 array of shape (m + 1,), or None
        With a window: the first row that is still kept when item i comes, and at the end.
    most, start : int
    p : float64 array of shape (m, q)
        Written.
    reasons : pair of arrays of shapes (m, q) and (m, q, 6), or None
        Log-odds, written, and what each part adds to them, added.
    """
    learning, A, fresh, z = Y.shape[0] > 0, model.A, fast.fresh, seen.z
    q, m = model.d.shape[0], model.w.shape[0]
    stride = (q + lines.WIDTH - 1) // lines.WIDTH * lines.WIDTH  # labels, in whole lines
    f, counts = np.zeros((q, ROOM)), np.empty((3, stride), np.int64)
    z_plus, logs, sums = np.empty(q), np.empty(4 * stride), np.zeros(stride)
    scored, scratch = np.empty(q, np.bool_), (np.empty((m, m)), np.empty(m), np.zeros((m, ROOM)))
    for j in range(logs.shape[0]):
        logs[j] = 1.0
    quarter = lines.spread(0.25)
    votes: Any = np.int64(1)  # for a constant, which 1 is, all would be compiled once more
    column = votes + model.sizes.shape[0]
    regressed = z.shape[0] > 0
    active = regressed and fast.s.shape[0] > 0
    room = scratch_of(fast.D, q, rows, fast.table, fast.basis)
    n_past, missing_past, t_past, last_past, recent_past, longer_past = (
        history.behind if learning else history.now
    )
    for i in range(start, p.shape[0]):
        if learning and active and not has_room(fast.D, rows, fast.table, i):
            return i
        count_votes(
            seen.found, i, seen.labels, seen.known, model.sizes, most, model.half_log, counts, f,
            votes,
        )  # fmt: skip
        _count_near(seen.near, i, seen, model, most, counts, f, column + N_OTHERS)
        _write_names(seen.names, seen.near, i, n_past, model, f, column + N_OTHERS)
        _mark_scored(n_past, seen.names, scored)
        if regressed:
            for j in range(q):
                z_plus[j] = z[i, j]
            if active:
                add_correction(fast.D, rows, fast.table, fast.scale, fast.basis, i, room, z_plus)
        low, high = _range_of_share(A, column + SHARE)
        for j in range(q):
            n_j, others, odds_z = n_past[j], max(t_past[0] - missing_past[j] - n_past[j], 0), 1.0
            if n_j <= 0:
                n_j = 0
                if not scored[j]:
                    others = 0  # nobody asks for it
            if not regressed or fresh[j] == BLIND:
                z_plus[j] = (n_j + 0.5) / (n_j + others + 1.0)
            logs[j] = _odds(z_plus[j])
            if regressed and not fresh[j]:
                odds_z = _odds(z[i, j])
            logs[stride + j] = odds_z
            logs[2 * stride + j] = (n_j + 0.5) / (others + 0.5)
            logs[3 * stride + j] = (recent_past[j] + 0.02) / (1.02 - recent_past[j])
        for b in range(0, 4 * stride, lines.WIDTH):
            line = lines.logarithm(lines.load(logs, b, lines.WIDTH))
            lines.store(logs, b, lines.WIDTH, lines.multiply(quarter, line))
        for j in range(q):
            f[j, 0] = 1.0
            f[j, column + Z_PLUS] = f[j, column + Z] = logs[j]
            if regressed and not fresh[j]:
                f[j, column + Z] = logs[stride + j]
            f[j, column + SHARE] = min(max(logs[2 * stride + j], low), high)
            f[j, column + LAST] = last_past[j]
            f[j, column + RECENT] = logs[3 * stride + j]
            f[j, column + LONGER] = longer_past[j]
        _weigh(model, f, sums, logs)
        for j in range(q):
            p[i, j] = logs[j] if scored[j] else 0.0
        _reason_next(reasons, i, seen, model, fast, scored, f, sums)
        if not learning:
            continue
        if _is_known(Y, i):
            _newton_step(model, f, scored, p, Y, i, scratch)
            if active:
                for j in range(q):
                    z_plus[j] = 0.0 if Y[i, j] == UNKNOWN else residual(Y[i, j], z_plus[j])
                step(fast, rows, fast.table, fast.scale, fast.basis, i, room, z_plus)
        _absorb(history.now, Y, i)
        _absorb_late(history.queue, history.behind, Y, i)
        _take_off(kept, history, history.queue, seen, i)
    return len(p)


@inner
def _reason_any(
    reasons: Maybe,
    i: int,
    seen: Any,
    model: Any,
    fresh: Bytes,
    scored: Bools,
    f: Vector,
    sums: Vector,
) -> None:
    """Write the log-odds of item ``i`` for the any-head and what each part adds to them."""
    if reasons is not None:
        log_odds, parts = reasons
        w, d, z = model.w, model.d, seen.z
        m, column = w.shape[0], 1 + model.sizes.shape[0]
        named = 2 if _are_there(seen.names) else 0
        regressed = z.shape[0] > 0
        for j in range(d.shape[0]):
            log_odds[i, j] = sums[j] if scored[j] else -np.inf
            if not scored[j]:
                continue
            for c in range(m):
                part = (w[c] + d[j, c]) * f[j, c]
                if c >= m - named:
                    parts[i, j, 5] += part
                elif c == 0 or c == column + ANY_SHARE:
                    parts[i, j, 3] += part
                elif c != column + ANY_Z:
                    parts[i, j, 0] += part
                elif not regressed or fresh[j] == BLIND:
                    parts[i, j, 1] += part
                else:  # what the fast map changes is its own
                    alone = 0.0 if fresh[j] else 0.25 * math.log(_odds(z[i, j]))
                    alone *= w[c] + d[j, c]
                    parts[i, j, 1] += alone
                    parts[i, j, 2] += part - alone


@with_twin
def pass_any(
    model: Any,
    counted: Any,
    less: Any,
    fresh: Bytes,
    seen: Any,
    z_plus: Vector,
    Y: Bytes,
    most: int,
    p: Vector,
    reasons: Maybe,
) -> None:
    """Write the probabilities of any items, and learn them one after the other if Y has labels.

    Parameters
    ----------
    model : HeadModel
    counted : tuple of int64 arrays
        Of the stored items: n and missing (q,), and t (1,).
    less : tuple of int64 arrays of shapes (m, q), (m, q) and (m,), or empty
        What is to be taken off them for each item.
    fresh : uint8 array of shape (q,)
    seen : Found
    z_plus : float64 array of shape (m, q), or (0, 0)
    Y, most, p, reasons
        As in :func:`pass_next`.
    """
    learning, A, z = Y.shape[0] > 0, model.A, seen.z
    n, missing, t = counted
    less_n, less_missing, less_t = less
    q, m = model.d.shape[0], model.w.shape[0]
    stride = (q + lines.WIDTH - 1) // lines.WIDTH * lines.WIDTH  # labels, in whole lines
    f, counts = np.zeros((q, ROOM)), np.empty((3, stride), np.int64)
    logs, sums, n_now = np.empty(2 * stride), np.zeros(stride), np.empty(q, np.int64)
    scored, scratch = np.empty(q, np.bool_), (np.empty((m, m)), np.empty(m), np.zeros((m, ROOM)))
    for j in range(logs.shape[0]):
        logs[j] = 1.0
    eighth, quarter = lines.spread(0.125), lines.spread(0.25)
    votes: Any = np.int64(1)  # for a constant, which 1 is, all would be compiled once more
    column = votes + model.sizes.shape[0]
    regressed = z.shape[0] > 0
    for i in range(p.shape[0]):
        count_votes(
            seen.found, i, seen.labels, seen.known, model.sizes, most, model.half_log, counts, f,
            votes,
        )  # fmt: skip
        _count_near(seen.near, i, seen, model, most, counts, f, column + N_OTHERS_ANY)
        # As in `pass_next`, a weight says nothing beyond the range in which it was learnt.
        low, high = _range_of_share(A, column + ANY_SHARE)
        for j in range(q):
            n_now[j] = n[j] - less_n[i, j] if less_n.shape[0] else n[j]
        _mark_scored(n_now, seen.names, scored)
        for j in range(q):
            n_j, known_j = n_now[j], t[0] - missing[j]
            if less_n.shape[0]:
                known_j += less_missing[i, j] - less_t[i]
            others = max(known_j - n_j, 0)
            if n_j <= 0:
                n_j = 0
                if not scored[j]:
                    others = 0  # nobody asks for it
            n_now[j] = n_j
            if not regressed or fresh[j] == BLIND:
                share = _odds((n_j + 0.5) / (n_j + others + 1.0))
                logs[j] = share * share
            else:
                plus = _odds(z_plus[i, j])
                logs[j] = plus * (plus if fresh[j] else _odds(z[i, j]))
            logs[stride + j] = (n_j + 0.5) / (others + 0.5)
        _write_names(seen.names, seen.near, i, n_now, model, f, column + N_OTHERS_ANY)
        for b in range(0, stride, lines.WIDTH):
            line = lines.logarithm(lines.load(logs, b, lines.WIDTH))
            lines.store(logs, b, lines.WIDTH, lines.multiply(eighth, line))
            line = lines.logarithm(lines.load(logs, stride + b, lines.WIDTH))
            lines.store(logs, stride + b, lines.WIDTH, lines.multiply(quarter, line))
        for j in range(q):
            f[j, 0] = 1.0
            f[j, column + ANY_Z] = logs[j]
            f[j, column + ANY_SHARE] = min(max(logs[stride + j], low), high)
        _weigh(model, f, sums, logs)
        for j in range(q):
            p[i, j] = logs[j] if scored[j] else 0.0
            logs[j] = 1.0
        _reason_any(reasons, i, seen, model, fresh, scored, f, sums)
        if learning and _is_known(Y, i):
            _newton_step(model, f, scored, p, Y, i, scratch)
