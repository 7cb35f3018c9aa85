"""The head: who is to be believed.  A small online logistic model over the evidence for a label.

All labels share the weights w; label j has a deviation d_j of its own.  With f_j the evidence for
label j of an item (the columns of ``PARTS``, in that order),

    p_j = σ((w + d_j)ᵀf_j),   e_j = y_j − p_j,   h_j = p_j(1 − p_j).

After each example, with forgetting γ = .999, λ = 1, μ = 10,

    A ← γA + (1 − γ)λI + Σ_j h_j f_j f_jᵀ ;      w ← w + A⁻¹ Σ_j e_j f_j
    d_ji ← d_ji + (e_j f_ji/a_ji)/(1 + h_j Σ_i f_ji²/a_ji) ;   a_ji ← γa_ji + (1 − γ)μ + h_j f_ji².

That is one Newton step of the log loss of the item, with A the decayed curvature of all before.

Evidence, with t_j the stored examples that know label j, n_j of them having it, and
L_k = ½ ln((v + ½)/(k′ − v + ½)) when v of the k′ ≤ k nearest that know the label have it:

    one, L_3, L_10, L_30 in the codes, ¼ logit z, ¼ logit z⁺, ¼ ln((n_j + ½)/(t_j − n_j + ½)),
    last_j, ¼ ln((fast_j + .02)/(1.02 − fast_j)), slow_j, and for dense rows L_3 and L_10 among
    the latest items in input space.  Of fewer than 12 stored items only the nearest third vote when
    a score is asked for.

z and z⁺ (:mod:`tagstream.fastmap`) are clipped to [.02, .98]; before P exists both are
(n_j + ½)/(t_j + 1), and of a label that had fewer than 10 examples at the last fit P says nothing,
so that z⁺ stands for z.  A label's share, ¼ ln(…), is kept within three deviations of the mean over
what was learnt, both read off A: a weight says nothing beyond the range in which it was learnt.
last is the label vector of the newest example, fast and slow are means with rates .2 and .02.

For decisions that are to serve each label alike (macro-F1) the head also keeps, for each label, the
F1 that can be expected if it is suggested from p_j ≥ F_j/2 on: with s_j = [p_j ≥ F_j/2],

    hits_j ← γ hits_j + (1 − γ)/2 + 2 p_j s_j ;   sizes_j ← γ sizes_j + (1 − γ) + p_j + s_j,

F_j = hits_j/sizes_j, which starts at ½.  Nothing else depends on it.

A label that no stored example has gets p = 0 and teaches nothing, so that it makes no difference
when it is first heard of.  A label that is not known for an item teaches nothing either: w, A, d_j,
a_j, last_j, fast_j, slow_j stay as they are.  An item of which nothing is known is passed over.

**Late labels.**  If labels come ``lag`` items late, an item is predicted from what was learnt
``lag`` items before.  The head must learn from evidence of the same age.  It keeps n, t, last,
fast and slow twice: as they are now, for predictions, and as they were ``lag`` items ago, for
learning, with the labels in between in a queue.  The caller sees to the neighbours: for learning,
an item at position i may see positions below i − lag only.  The first ``lag`` items teach the head
nothing, and labels that are so old say little of the next ones: w₀ of last and fast is divided by
1 + lag.  P and the fast map have no such memory:
that they know the items in between was measured to cost .001 of micro-F1 (``docs/math.md``).
"""

from __future__ import annotations

import math
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.checks import LARGEST_COUNT, check_number, expect, expect_keys
from tagstream.fastmap import (
    BLIND,
    FastMap,
    FastState,
    Inputs,
    add_correction,
    has_room,
    residual,
    step,
)
from tagstream.kernels import compiled

__all__ = ["NEAR", "PARTS", "VOTES", "Evidence", "Head", "Scores"]

VOTES = (3, 10, 30)  # neighbours in the codes
NEAR = (3, 10)  # neighbours in input space
DECAY = 0.999  # γ
SPREAD = 1.0  # λ
OWN_SPREAD = 10.0  # μ
FAST, SLOW = 0.2, 0.02  # rates of the means of recent labels
START_F1, START_SIZE = 0.5, 1.0  # of a label's F1, before there is an example
CLIP = 0.02
WIDTH = 3.0  # deviations from the mean within which a label's frequency is believed
VERY_FEW = 12  # stored examples, of which not all vote

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# Columns of the evidence behind the votes in the codes.
Z, Z_PLUS, SHARE, LAST, RECENT, LONGER, N_OTHERS = 0, 1, 2, 3, 4, 5, 6

# What spoke for a label, in the order in which it is told.
PARTS = ("votes", "regression", "fast map", "prior", "recent labels")

UNKNOWN = 2  # in a queue of labels

# Of a head in a file: far beyond what evidence of a few units can make of it.
LARGEST_WEIGHT = 1e12
LARGEST_CURVATURE = 1e15


class Evidence(NamedTuple):
    """What is found about m items, for the compiled loops.

    Attributes
    ----------
    found : int64 array of shape (m, 30)
        Positions of the nearest stored items in the codes, −1 where there are no more.
    near : int64 array of shape (m, 10), or (0, 0)
        The same in input space among the latest items.
    labels, known : uint8 arrays of shape (n, ⌈q/8⌉)
        Packed labels of the stored items, most significant bit first, and which of them are
        known; ``known`` is of shape (0, 0) when all are.
    Z : float64 array of shape (m, q), or (0, 0)
        The regression, if there is one.
    inputs : Inputs
        The rows as the fast map takes them.
    """

    found: Ints
    near: Ints
    labels: Bytes
    known: Bytes
    Z: Vector
    inputs: Inputs


class Scores(NamedTuple):
    """Probabilities, log-odds, and what they are made of.

    Attributes
    ----------
    p : array of shape (m, q)
    log_odds : array of shape (m, q)
        Minus infinity where no stored example has the label.
    parts : array of shape (m, q, 5)
        What each of ``PARTS`` adds to the log-odds.
    """

    p: Vector
    log_odds: Vector
    parts: Vector


class History(NamedTuple):
    """The labels of what was learnt, in a few numbers each; arrays of shape (q,), t of (1,)."""

    n: Ints  # stored examples that have the label
    missing: Ints  # stored examples of which something is known, but not this label
    t: Ints  # stored examples of which something is known
    last: Vector
    fast: Vector
    slow: Vector


class Weights(NamedTuple):
    """What the head learns: w (m,), A (m, m), d (q, m), a (q, m)."""

    w: Vector
    A: Vector
    d: Vector
    a: Vector


class Aims(NamedTuple):
    """The F1 that can be expected of each label, as a quotient; arrays of shape (q,)."""

    hits: Vector
    sizes: Vector


class Queue(NamedTuple):
    """The labels of the last ``lag`` items: (lag, q) of 0, 1 and 2; next place and number."""

    labels: Bytes
    at: Ints


@compiled
def _count_votes(
    found: Ints,
    labels: Bytes,
    known: Bytes,
    sizes: tuple[int, ...],
    most: int,
    half_log: Vector,
    f: Vector,
    first: int,
) -> None:
    """Write L_k into the columns of ``f`` from ``first`` on, one for each k of ``sizes``.

    No more than ``most`` neighbours vote.
    """
    q = f.shape[0]
    yes, unknown = np.zeros(q, np.int64), np.zeros(q, np.int64)
    voters = 0
    for c in range(len(sizes)):
        while voters < min(sizes[c], most, found.shape[0]) and found[voters] >= 0:
            row = found[voters]
            for b in range(labels.shape[1]):
                sure = known[row, b] if known.shape[0] else np.uint8(255)
                have = labels[row, b] & sure
                if have:  # most bytes say nothing
                    for j in range(8 * b, min(8 * b + 8, q)):
                        yes[j] += have >> (7 - (j & 7)) & 1
                if sure != 255:
                    for j in range(8 * b, min(8 * b + 8, q)):
                        unknown[j] += (255 - sure) >> (7 - (j & 7)) & 1
            voters += 1
        for j in range(q):
            f[j, first + c] = half_log[yes[j]] - half_log[voters - unknown[j] - yes[j]]


@compiled
def _quarter_logit(z: float) -> float:
    z = min(max(z, CLIP), 1.0 - CLIP)
    return 0.25 * math.log(z / (1.0 - z))


@compiled
def _range_seen(A: Vector, column: int) -> tuple[float, float]:
    """Return the range in which the weight of some evidence was learnt: mean ± 3 deviations.

    A has what it takes: the decayed sums of h, of h times the evidence, of h times its square.
    """
    mean = A[0, column] / A[0, 0]
    deviation = math.sqrt(max(A[column, column] / A[0, 0] - mean * mean, 0.0))
    return mean - WIDTH * deviation, mean + WIDTH * deviation


@compiled
def _gather(
    weights: Weights,
    evidence: Evidence,
    i: int,
    sizes: tuple[int, ...],
    most: int,
    half_log: Vector,
    past: History,
    fast: FastState,
    z_plus: Vector,
    f: Vector,
) -> None:
    """Write the evidence of item ``i`` into ``f`` (q, m), and z⁺ into ``z_plus`` (q,).

    No more than ``most`` neighbours vote.
    """
    q = f.shape[0]
    for j in range(q):
        f[j, 0] = 1.0
    _count_votes(evidence.found[i], evidence.labels, evidence.known, sizes, most, half_log, f, 1)
    column = 1 + len(sizes)
    regressed = evidence.Z.shape[0] > 0
    if regressed:
        for j in range(q):
            z_plus[j] = evidence.Z[i, j]
        add_correction(fast, evidence.inputs, i, z_plus)
    least, largest = _range_seen(weights.A, column + SHARE)
    for j in range(q):
        n = max(past.n[j], 0)
        if n == 0:
            continue  # nobody asks for it
        others = max(past.t[0] - past.missing[j] - n, 0)
        if not regressed or fast.fresh[j] == BLIND:
            z_plus[j] = (n + 0.5) / (n + others + 1.0)
        plus = _quarter_logit(z_plus[j])
        f[j, column + Z] = _quarter_logit(evidence.Z[i, j]) if regressed else plus
        if fast.fresh[j]:
            f[j, column + Z] = plus
        f[j, column + Z_PLUS] = plus
        share = 0.25 * math.log((n + 0.5) / (others + 0.5))
        f[j, column + SHARE] = min(max(share, least), largest)
        f[j, column + LAST] = past.last[j]
        f[j, column + RECENT] = 0.25 * math.log((past.fast[j] + 0.02) / (1.02 - past.fast[j]))
        f[j, column + LONGER] = past.slow[j]
    if evidence.near.shape[0]:
        _count_votes(
            evidence.near[i],
            evidence.labels,
            evidence.known,
            NEAR,
            most,
            half_log,
            f,
            column + N_OTHERS,
        )


@compiled
def _log_odds(weights: Weights, f: Vector, j: int) -> float:
    total = 0.0
    for c in range(f.shape[1]):
        total += (weights.w[c] + weights.d[j, c]) * f[j, c]
    return total


@compiled
def _probability(log_odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-log_odds))


@compiled
def _solve(A: Vector, g: Vector) -> Vector:
    """Return A⁻¹g for a small positive definite A, by its Cholesky factor."""
    m = g.shape[0]
    C, x = np.empty((m, m)), np.empty(m)
    for i in range(m):
        for j in range(i + 1):
            total = A[i, j]
            for k in range(j):
                total -= C[i, k] * C[j, k]
            C[i, j] = math.sqrt(total) if i == j else total / C[j, j]
    for i in range(m):
        total = g[i]
        for k in range(i):
            total -= C[i, k] * x[k]
        x[i] = total / C[i, i]
    for i in range(m - 1, -1, -1):
        total = x[i]
        for k in range(i + 1, m):
            total -= C[k, i] * x[k]
        x[i] = total / C[i, i]
    return x


@compiled
def _update(weights: Weights, f: Vector, p: Vector, y: Bytes, past: History) -> None:
    """Take the Newton step of one item with labels ``y`` (q,) of 0, 1 and 2 (not known)."""
    w, A, d, a = weights
    q, m = f.shape
    for r in range(m):
        for c in range(m):
            A[r, c] *= DECAY
        A[r, r] += (1.0 - DECAY) * SPREAD
    g = np.zeros(m)
    scaled = np.empty(m)
    for j in range(q):
        if y[j] == UNKNOWN or past.n[j] <= 0:
            continue
        e, h = y[j] - p[j], p[j] * (1.0 - p[j])
        x, own, deviation = f[j], a[j], d[j]
        for c in range(m):
            g[c] += e * x[c]
            scaled[c] = x[c] / own[c]
        for r in range(m):
            row = A[r]
            for c in range(m):
                row[c] += h * (x[r] * x[c])  # in this order A stays symmetric to the bit
        total = 0.0
        for c in range(m):
            total += x[c] * scaled[c]
        share = e / (1.0 + h * total)
        for c in range(m):
            deviation[c] += share * scaled[c]
            own[c] = DECAY * own[c] + ((1.0 - DECAY) * OWN_SPREAD + h * x[c] * x[c])
    move = _solve(A, g)
    for c in range(m):
        w[c] += move[c]


@compiled
def _aim(aims: Aims, p: Vector, y: Bytes, past: History) -> None:
    """Count what suggesting labels from half their F1 on would have brought, by their own p."""
    for j in range(len(p)):
        if y[j] == UNKNOWN or past.n[j] <= 0:
            continue
        says = 1.0 if 2.0 * p[j] * aims.sizes[j] >= aims.hits[j] else 0.0
        aims.hits[j] = DECAY * aims.hits[j] + (
            (1.0 - DECAY) * START_F1 * START_SIZE + 2.0 * p[j] * says
        )
        aims.sizes[j] = DECAY * aims.sizes[j] + ((1.0 - DECAY) * START_SIZE + p[j] + says)


@compiled
def _is_known(y: Bytes) -> bool:
    """Whether anything is known of an item with labels ``y`` of 0, 1 and 2."""
    for j in range(y.shape[0]):
        if y[j] != UNKNOWN:
            return True
    return len(y) == 0


@compiled
def _absorb(past: History, y: Bytes) -> None:
    """Add an example with labels ``y`` (q,) of 0, 1 and 2 to the history."""
    if not _is_known(y):
        return
    past.t[0] += 1
    for j in range(y.shape[0]):
        if y[j] == UNKNOWN:
            past.missing[j] += 1
        else:
            past.n[j] += y[j]
            past.last[j] = y[j]
            past.fast[j] += FAST * (y[j] - past.fast[j])
            past.slow[j] += SLOW * (y[j] - past.slow[j])


@compiled
def _count(past: History, y: Bytes, sign: int) -> None:
    """Count an example with labels ``y`` of 0, 1 and 2 once more or once less; no history."""
    if _is_known(y):
        past.t[0] += sign
        for j in range(y.shape[0]):
            if y[j] == UNKNOWN:
                past.missing[j] += sign
            else:
                past.n[j] += sign * y[j]


@compiled
def _stored_labels(labels: Bytes, known: Bytes, row: int, y: Bytes) -> None:
    """Unpack the labels of the stored item ``row`` into ``y`` of 0, 1 and 2."""
    for j in range(y.shape[0]):
        shift = 7 - (j & 7)
        y[j] = labels[row, j >> 3] >> shift & 1
        if known.shape[0] and not known[row, j >> 3] >> shift & 1:
            y[j] = UNKNOWN


@compiled
def _learn(
    weights: Weights,
    aims: Aims,
    now: History,
    behind: History,
    queue: Queue,
    fast: FastState,
    evidence: Evidence,
    sizes: tuple[int, ...],
    half_log: Vector,
    first_kept: Ints,
    Y: Bytes,
    start: int,
    out: Vector,
) -> int:
    """Learn items ``start``, ``start`` + 1, … in order; return where the fast map wants room."""
    m, q = len(Y), Y.shape[1]
    lag = queue.labels.shape[0]
    f = np.zeros((q, weights.w.shape[0]))
    z_plus, gone = np.zeros(q), np.zeros(q, np.uint8)
    for i in range(start, m):
        if not has_room(fast, evidence.inputs, i):
            return i
        y = Y[i]
        _gather(weights, evidence, i, sizes, sizes[-1], half_log, behind, fast, z_plus, f)
        for j in range(q):
            out[i, j] = _probability(_log_odds(weights, f, j)) if behind.n[j] > 0 else 0.0
        if _is_known(y):
            _update(weights, f, out[i], y, behind)
            _aim(aims, out[i], y, behind)
            if evidence.Z.shape[0]:
                for j in range(q):
                    z_plus[j] = 0.0 if y[j] == UNKNOWN else residual(y[j], z_plus[j])
                step(fast, evidence.inputs, i, z_plus)
        _absorb(now, y)
        if lag:
            at = queue.at[0]
            if queue.at[1] == lag:
                _absorb(behind, queue.labels[at])
            else:
                queue.at[1] += 1
            for j in range(q):
                queue.labels[at, j] = y[j]
            queue.at[0] = (at + 1) % lag
        if first_kept.shape[0]:
            for row in range(first_kept[i], first_kept[i + 1]):
                _stored_labels(evidence.labels, evidence.known, row, gone)
                _count(now, gone, -1)
                if lag:
                    _count(behind, gone, -1)
    return m


@compiled
def _score(
    weights: Weights,
    now: History,
    fast: FastState,
    evidence: Evidence,
    sizes: tuple[int, ...],
    half_log: Vector,
    p: Vector,
    log_odds: Vector,
    parts: Vector,
) -> None:
    """Write the probabilities of all items and, where there is room, what they are made of."""
    q = p.shape[1]
    f, z_plus = np.zeros((q, weights.w.shape[0])), np.zeros(q)
    column = 1 + len(sizes)
    # Of very few, the nearest third: if all of them vote, votes tell nothing.
    most = max(now.t[0] // 3, 1) if now.t[0] < VERY_FEW else sizes[-1]
    for i in range(p.shape[0]):
        _gather(weights, evidence, i, sizes, most, half_log, now, fast, z_plus, f)
        for j in range(q):
            known = now.n[j] > 0
            total = _log_odds(weights, f, j) if known else -np.inf
            p[i, j] = _probability(total)
            if parts.shape[0] == 0:
                continue
            log_odds[i, j] = total
            for c in range(f.shape[1] if known else 0):
                part = 0  # votes
                if c == 0 or c == column + SHARE:
                    part = 3
                elif c == column + Z:
                    part = 2 if fast.fresh[j] and evidence.Z.shape[0] else 1
                elif c == column + Z_PLUS:
                    part = 2
                elif column + LAST <= c <= column + LONGER:
                    part = 4
                parts[i, j, part] += (weights.w[c] + weights.d[j, c]) * f[j, c]


def start_weights(votes: tuple[int, ...], near: bool, lag: int = 0) -> Vector:
    """Return the weights w₀ before anything is learnt; the older recent labels are, the less."""
    by_votes = [0.4] * (len(votes) - 1) + [1.0]
    others = [1.0, 1.0, -1.6, 0.2 / (1 + lag), 0.8 / (1 + lag), 0.0]
    return np.array([-0.3, *by_votes, *others, *([0.2] * len(NEAR) if near else [])])


class Head:
    """The online logistic model over the evidence, its state and its two ways: learn, score.

    Parameters
    ----------
    votes : tuple of int
        How many neighbours in the codes vote, rising.
    near : bool
        Whether there are neighbours in input space too (dense rows).
    lag : int
        How many items late labels come.

    Examples
    --------
    >>> from tagstream.fastmap import inputs_of
    >>> head, none = Head(near=False), FastMap(sparse=True)
    >>> head.grow(1); none.grow(1)
    >>> labels = np.array([[128], [128]], np.uint8)  # two stored items that have the one label
    >>> def about(found):
    ...     return Evidence(np.array([found]), np.empty((0, 0), int), labels,
    ...                     np.empty((0, 0), np.uint8), np.empty((0, 0)), inputs_of(None))
    >>> _ = head.learn(about([-1] * 30), none, np.ones((1, 1), np.uint8))
    >>> before = head.score(about([0] + [-1] * 29), none)[0, 0]
    >>> _ = head.learn(about([0] + [-1] * 29), none, np.ones((1, 1), np.uint8))
    >>> bool(head.score(about([0, 1] + [-1] * 28), none)[0, 0] > before)
    True
    """

    def __init__(self, votes: tuple[int, ...] = VOTES, *, near: bool, lag: int = 0) -> None:
        self.votes, self.near, self.lag = votes, near, lag
        self._half_log = 0.5 * np.log(np.arange(max(*votes, *NEAR) + 1) + 0.5)
        w = start_weights(votes, near, lag)
        m = len(w)
        self.weights = Weights(w, SPREAD * np.eye(m), np.zeros((0, m)), np.zeros((0, m)))
        self.aims = Aims(np.zeros(0), np.zeros(0))
        self.now = _empty_history()
        self.behind = _empty_history() if lag else self.now
        self._queue = Queue(np.zeros((lag, 0), np.uint8), np.zeros(2, np.int64))

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return len(self.now.n)

    @property
    def counts(self) -> Ints:
        """How many stored examples have each label, (q,)."""
        return self.now.n.copy()

    @property
    def bars(self) -> Vector:
        """The probability from which each label is suggested for its own highest F1, (q,)."""
        return 0.5 * self.aims.hits / self.aims.sizes

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        behind = sum(part.nbytes for part in self.behind) if self.lag else 0
        parts: list[npt.NDArray[Any]] = [*self.weights, *self.aims, *self.now, *self._queue]
        return behind + sum(part.nbytes for part in parts)

    def grow(self, q: int) -> None:
        """Make room for ``q`` labels; the new ones are as if nobody ever had them."""
        more = q - self.n_labels
        if not more:
            return
        w, A, d, a = self.weights
        below = ((0, more), (0, 0))
        self.weights = Weights(w, A, np.pad(d, below), np.pad(a, below, constant_values=OWN_SPREAD))
        start = START_F1 * START_SIZE, START_SIZE
        self.aims = Aims(
            *(np.append(a, np.full(more, s)) for a, s in zip(self.aims, start, strict=True))
        )
        self.now = _grown(self.now, more)
        self.behind = _grown(self.behind, more) if self.lag else self.now
        labels, at = self._queue
        new = np.zeros((self.lag, more), np.uint8)
        if labels.shape[1]:  # of whom nothing is known, that is not known either
            new[(labels == UNKNOWN).all(axis=1)] = UNKNOWN
        self._queue = Queue(np.hstack([labels, new]), at)

    def keep(self, columns: list[list[int]]) -> None:
        """Make each label anew of old ones, and count from nothing.

        A label is the union of those at its ``columns``, and goes on as the first of them.  Who
        counts afterwards counts all that is stored: what still waits in the queue is therefore
        taken off beforehand.
        """
        w, A, d, a = self.weights
        first = [c[0] for c in columns]
        self.weights = Weights(w, A, d[first], a[first])
        self.aims = Aims(*(part[first] for part in self.aims))
        self.now = _kept(self.now, first)
        self.behind = _kept(self.behind, first) if self.lag else self.now
        labels, at = self._queue
        merged = np.zeros((self.lag, len(columns)), np.uint8)
        for j, c in enumerate(columns):
            part = labels[:, c]
            unsure = np.where((part == UNKNOWN).any(axis=1), UNKNOWN, 0)
            merged[:, j] = np.where((part == 1).any(axis=1), 1, unsure)
        self._queue = Queue(merged, at)
        for y in merged[: at[1]]:
            _count(self.behind, y, -1)

    def learn(
        self,
        evidence: Evidence,
        fast: FastMap,
        Y: Bytes,
        known: npt.NDArray[np.bool_] | None = None,
        first_kept: Ints | None = None,
    ) -> Vector:
        """Learn m items in order, and the fast map with them.

        Parameters
        ----------
        evidence : Evidence
            Of earlier items only; with late labels, of items that were learnt ``lag`` items ago.
        fast : FastMap
        Y : uint8 array of shape (m, q)
        known : bool array of shape (m, q), optional
        first_kept : int64 array of shape (m + 1,), optional
            With a window: the first position that is still kept when item i comes, and at the
            end.  The labels of the others are taken out of the counts.

        Returns
        -------
        array of shape (m, q)
            The probabilities of each item before it was learnt.
        """
        marked = marked_labels(Y, known)
        out = np.empty(Y.shape)
        kept = np.empty(0, np.int64) if first_kept is None else first_kept
        fast.own()
        done = 0
        while True:
            done = _learn(
                self.weights, self.aims, self.now, self.behind, self._queue, fast.state,
                evidence, self.votes, self._half_log, kept, marked, done, out,
            )  # fmt: skip
            if done == len(Y):
                return out
            inputs = evidence.inputs
            fast.make_room(int(inputs.indptr[done + 1] - inputs.indptr[done]))

    def score(self, evidence: Evidence, fast: FastMap) -> Vector:
        """Return the probabilities of m items, (m, q); nothing changes."""
        p = np.empty((len(evidence.found), self.n_labels))
        self._score(evidence, fast, p, np.empty((0, 0)), np.empty((0, 0, 0)))
        return p

    def explain(self, evidence: Evidence, fast: FastMap) -> Scores:
        """Return the probabilities of m items with the parts that add up to their log-odds."""
        shape = len(evidence.found), self.n_labels
        scores = Scores(np.empty(shape), np.empty(shape), np.zeros((*shape, len(PARTS))))
        self._score(evidence, fast, *scores)
        return scores

    def _score(self, evidence: Evidence, fast: FastMap, *out: Vector) -> None:
        _score(
            self.weights, self.now, fast.state, evidence, self.votes, self._half_log, *out
        )  # fmt: skip

    def recount(self, Y: Bytes, sign: int, known: npt.NDArray[np.bool_] | None = None) -> None:
        """Count examples once more (``sign`` = 1) or once less (−1), and learn nothing.

        For a correction: the old labels once less, the new ones once more; for an item that is
        forgotten: once less.
        """
        for y in marked_labels(Y, known):
            _count(self.now, y, sign)
            if self.lag:
                _count(self.behind, y, sign)

    def snapshot(self) -> Head:
        """Return a head that stays as this one is now."""
        other = copy(self)
        other.weights = self.weights._replace(**_copied(self.weights))
        other.aims = self.aims._replace(**_copied(self.aims))
        other.now = other.behind = self.now._replace(**_copied(self.now))
        other.lag, other._queue = 0, Queue(np.zeros((0, self.n_labels), np.uint8), self._queue.at)
        return other

    # ------------------------------------------------------------------ state as plain values
    def dump(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            **_copied(self.weights),
            **_copied(self.aims),
            "now": _copied(self.now),
            "behind": _copied(self.behind) if self.lag else None,
            "queue": self._queue.labels.copy(),
            "queue_at": self._queue.at.copy(),
        }

    @classmethod
    def load(
        cls, state: Any, q: int, *, votes: tuple[int, ...] = VOTES, near: bool, lag: int = 0
    ) -> Head:
        """Return what :meth:`dump` described, for ``q`` labels; older states know no aims."""
        head = cls(votes, near=near, lag=lag)
        head.grow(q)
        if isinstance(state, dict) and not state.keys() & set(Aims._fields):
            state = {**_copied(head.aims), **state}
        keys = (*Weights._fields, *Aims._fields, "now", "behind", "queue", "queue_at")
        expect_keys("the head", state, *keys)
        m = len(head.weights.w)
        largest = {"least": -LARGEST_WEIGHT, "most": LARGEST_WEIGHT}
        w = expect("w", state["w"], np.float64, (m,), **largest)
        A = expect("A", state["A"], np.float64, (m, m), most=LARGEST_CURVATURE)
        # Curvature only adds to λI, and decays towards it.
        if (A != A.T).any() or np.linalg.eigvalsh(A)[0] < 0.9 * SPREAD:
            raise ValueError(f"A must be symmetric with eigenvalues of at least {SPREAD:g}")
        d = expect("d", state["d"], np.float64, (q, m), **largest)
        least = 0.9 * OWN_SPREAD
        a = expect("a", state["a"], np.float64, (q, m), least=least, most=LARGEST_CURVATURE)
        head.weights = Weights(w, A, d, a)
        # Decayed towards where they start; an item adds at most 2.
        most = 2.1 / (1.0 - DECAY)
        hits, sizes = state["hits"], state["sizes"]
        head.aims = Aims(
            expect("hits", hits, np.float64, (q,), least=0.9 * START_F1 * START_SIZE, most=most),
            expect("sizes", sizes, np.float64, (q,), least=0.9 * START_SIZE, most=most),
        )
        head.now = head.behind = _load_history(state["now"], q)
        if lag:
            head.behind = _load_history(state["behind"], q)
        elif state["behind"] is not None:
            raise ValueError("the history must be kept once where labels are not late, got twice")
        labels = expect("queue", state["queue"], np.uint8, (lag, q))
        at = expect("queue_at", state["queue_at"], np.int64, (2,))
        if (labels > UNKNOWN).any():
            raise ValueError("queue must hold 0, 1 and 2 only")
        check_number("queue_at[0]", int(at[0]), kind=int, least=0, most=max(lag - 1, 0))
        check_number("queue_at[1]", int(at[1]), kind=int, least=0, most=lag)
        head._queue = Queue(labels, at)
        return head


def marked_labels(Y: Bytes, known: npt.NDArray[np.bool_] | None) -> Bytes:
    """Return labels of 0 and 1 with a 2 where they are not known."""
    if known is None:
        return Y
    return np.where(known, Y, np.uint8(UNKNOWN))


def _copied(parts: Weights | Aims | History) -> dict[str, npt.NDArray[Any]]:
    return {name: part.copy() for name, part in parts._asdict().items()}


def _empty_history() -> History:
    counts = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(1, np.int64))
    return History(*counts, np.zeros(0), np.zeros(0), np.zeros(0))


def _grown(past: History, more: int) -> History:
    grown = {name: np.pad(part, (0, more)) for name, part in past._asdict().items() if name != "t"}
    return past._replace(**grown)


def _kept(past: History, columns: list[int]) -> History:
    none = np.zeros(len(columns), np.int64)
    recent = (getattr(past, name)[columns] for name in ("last", "fast", "slow"))
    return History(none, none.copy(), np.zeros(1, np.int64), *recent)


def _load_history(state: Any, q: int) -> History:
    expect_keys("the history", state, *History._fields)
    # With late labels an item may be forgotten before it is counted.
    counts = {"least": -LARGEST_COUNT, "most": LARGEST_COUNT}
    return History(
        expect("n", state["n"], np.int64, (q,), **counts),
        expect("missing", state["missing"], np.int64, (q,), **counts),
        expect("t", state["t"], np.int64, (1,), **counts),
        expect("last", state["last"], np.float64, (q,), least=0, most=1),
        expect("fast", state["fast"], np.float64, (q,), least=0, most=1),
        expect("slow", state["slow"], np.float64, (q,), least=0, most=1),
    )
