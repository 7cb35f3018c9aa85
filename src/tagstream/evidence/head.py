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

Where labels have names that are evidence (:mod:`tagstream.evidence.naming`) there are two more
columns at the end, c_j and c_j/(1 + n_j/5), with c_j the cosine of the item's row and the row of
the label's name: what a name says is the more worth the fewer examples a label has.

z and z⁺ (:mod:`tagstream.evidence.fastmap`) are clipped to [.02, .98]; before P exists both are
(n_j + ½)/(t_j + 1), and of a label that had fewer than 10 examples at the last fit P says nothing,
so that z⁺ stands for z.  A label's share, ¼ ln(…), is kept within three deviations of the mean over
what was learnt, both read off A: a weight says nothing beyond the range in which it was learnt.
last is the label vector of the newest example, fast and slow are means with rates .2 and .02.

For decisions that are to serve each label alike (macro-F1) the head also keeps, for each label, the
F1 that can be expected if it is suggested from p_j ≥ F_j/2 on: with s_j = [p_j ≥ F_j/2],

    hits_j ← γ hits_j + (1 − γ)/2 + 2 p_j s_j ;   sizes_j ← γ sizes_j + (1 − γ) + p_j + s_j,

F_j = hits_j/sizes_j, which starts at ½.  Nothing else depends on it.

A label that no stored example has gets p = 0 and teaches nothing, so that it makes no difference
when it is first heard of.  One that was *declared* speaks by its name from the start: nobody votes
for it yet, so all k of L_k count as votes against it, however few are stored.  A label that is not
known for an item teaches nothing either: w, A, d_j, a_j, last_j, fast_j, slow_j stay as they are.
An item of which nothing is known is passed over.

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
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.checks import LARGEST_COUNT, check_number, expect, expect_keys
from tagstream.core.compilation import compiled, inlined, inner
from tagstream.core.inputs import Inputs, Maybe
from tagstream.core.simd import lines
from tagstream.evidence.fastmap import BLIND, USED, FastMap, add_correction, residual, step

__all__ = [
    "FADING",
    "NAMES",
    "NEAR",
    "PARTS",
    "ROOM",
    "VERY_FEW",
    "VOTES",
    "WIDTH",
    "Aims",
    "Evidence",
    "Head",
    "History",
    "Queue",
    "Scores",
    "Weights",
    "copied",
    "count_votes",
    "half_logs",
    "has_a_score",
    "is_known",
    "marked_labels",
    "n_voting",
    "newton_step",
    "odds",
    "pass_items",
    "stored_labels",
]

VOTES = (3, 10, 30)  # neighbours in the codes
NEAR = (3, 10)  # neighbours in input space
DECAY = 0.999  # γ
SPREAD = 1.0  # λ
OWN_SPREAD = 10.0  # μ
FAST, SLOW = 0.2, 0.02  # rates of the means of recent labels
START_F1, START_SIZE = 0.5, 1.0  # of a label's F1, before there is an example
CLIP = 0.02
WIDTH = 3.0  # deviations from the mean within which a label's frequency is believed
NAMES = 2  # columns of what a label's name says, the last ones
FADING = 5.0  # examples of a label after which half of what only its name says is left
NAME_WEIGHTS = (6.0, 6.0)  # that they start with
VERY_FEW = 12  # stored examples, of which not all vote

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Singles = npt.NDArray[np.float32]

# Columns of the evidence behind the votes in the codes.
Z, Z_PLUS, SHARE, LAST, RECENT, LONGER, N_OTHERS = 0, 1, 2, 3, 4, 5, 6

# What spoke for a label, in the order in which it is told.
PARTS = ("votes", "regression", "fast map", "prior", "recent labels", "name")

UNKNOWN = 2  # in a queue of labels
ROOM = 2 * lines.WIDTH  # numbers of a label's evidence, zeros included: two lines
# The bits of a byte, the most significant first, as eight bytes of a number, the least first.
BITS_AS_BYTES = np.array(
    [sum((v >> (7 - j) & 1) << 8 * j for j in range(8)) for v in range(256)], np.int64
)
_NO_LABELS = np.empty((0, 0), np.uint8)
_NO_COSINES, _NONE_DECLARED = np.empty((0, 0)), np.empty(0, np.uint8)

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
    names : float64 array of shape (m, q), or (0, 0)
        The cosine of each row and that of each label's name, if names are evidence.
    declared : uint8 array of shape (q,), or (0,)
        Which labels have a score even if no stored item has them; all if names are evidence.
    """

    found: Ints
    near: Ints
    labels: Bytes
    known: Bytes
    Z: Vector
    inputs: Inputs
    names: Vector = _NO_COSINES
    declared: Bytes = _NONE_DECLARED

    @property
    def by_name(self) -> tuple[Vector | None, Bytes | None]:
        """What names say, for compiled loops: None where they say nothing."""
        if not len(self.declared):
            return None, None
        return self.names, self.declared


class Scores(NamedTuple):
    """Probabilities, log-odds, and what they are made of.

    Attributes
    ----------
    p : array of shape (m, q)
    log_odds : array of shape (m, q)
        Minus infinity where no stored example has the label.
    parts : array of shape (m, q, 6)
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
    """What the head learns: w (m,), A (m, m), d and a (q, 16), of which m are used."""

    w: Vector
    A: Vector
    d: Vector
    a: Vector

    @classmethod
    def starting(cls, w: Vector) -> Weights:
        """Return those of no labels, before anything is learnt."""
        return cls(w, SPREAD * np.eye(len(w)), np.zeros((0, ROOM)), np.zeros((0, ROOM)))

    def grown(self, more: int) -> Weights:
        """Return the same with more labels."""
        below = ((0, more), (0, 0))
        a = np.pad(self.a, below, constant_values=OWN_SPREAD)
        return self._replace(d=np.pad(self.d, below), a=a)

    def kept(self, labels: list[int]) -> Weights:
        """Return the same with some of the labels only."""
        return self._replace(d=self.d[labels], a=self.a[labels])

    def with_names(self) -> Weights:
        """Return the same with columns for what names say, about which nothing is learnt yet."""
        m, more = len(self.w), NAMES
        A = SPREAD * np.eye(m + more)
        A[:m, :m] = self.A
        return self._replace(w=np.append(self.w, NAME_WEIGHTS), A=A)

    def dump(self) -> dict[str, Any]:
        """Return them as plain values."""
        m = len(self.w)
        return copied(self._replace(d=self.d[:, :m], a=self.a[:, :m]))

    @classmethod
    def load(cls, state: dict[str, Any], q: int, m: int) -> Weights:
        """Return what :meth:`dump` described, for ``q`` labels and ``m`` columns of evidence."""
        largest = {"least": -LARGEST_WEIGHT, "most": LARGEST_WEIGHT}
        w = expect("w", state["w"], np.float64, (m,), **largest)
        A = expect("A", state["A"], np.float64, (m, m), most=LARGEST_CURVATURE)
        # Curvature only adds to λI, and decays towards it.
        if (A != A.T).any() or np.linalg.eigvalsh(A)[0] < 0.9 * SPREAD:
            raise ValueError(f"A must be symmetric with eigenvalues of at least {SPREAD:g}")
        d = expect("d", state["d"], np.float64, (q, m), **largest)
        least = 0.9 * OWN_SPREAD
        a = expect("a", state["a"], np.float64, (q, m), least=least, most=LARGEST_CURVATURE)
        room = ((0, 0), (0, ROOM - m))
        return cls(w, A, np.pad(d, room), np.pad(a, room, constant_values=OWN_SPREAD))


class Aims(NamedTuple):
    """The F1 that can be expected of each label, as a quotient; arrays of shape (q,)."""

    hits: Vector
    sizes: Vector

    @property
    def bars(self) -> Vector:
        """The probability from which each label is suggested for its own highest F1, (q,)."""
        return 0.5 * self.hits / self.sizes

    def grown(self, more: int) -> Aims:
        """Return the same with more labels."""
        start = START_F1 * START_SIZE, START_SIZE
        return Aims(*(np.append(a, np.full(more, s)) for a, s in zip(self, start, strict=True)))

    def kept(self, labels: list[int]) -> Aims:
        """Return the same with some of the labels only."""
        return Aims(self.hits[labels], self.sizes[labels])

    @classmethod
    def load(cls, state: dict[str, Any], q: int) -> Aims:
        """Return those of ``q`` labels that a state holds."""
        # Decayed towards where they start; an item adds at most 2.
        most = 2.1 / (1.0 - DECAY)
        hits, sizes = state["hits"], state["sizes"]
        return cls(
            expect("hits", hits, np.float64, (q,), least=0.9 * START_F1 * START_SIZE, most=most),
            expect("sizes", sizes, np.float64, (q,), least=0.9 * START_SIZE, most=most),
        )


class Queue(NamedTuple):
    """The labels of the last ``lag`` items: (lag, q) of 0, 1 and 2; next place and number."""

    labels: Bytes
    at: Ints


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


@inlined
def has_a_score(n: int, declared: Maybe, j: int) -> bool:
    """Whether label ``j``, which ``n`` stored items have, gets a score."""
    if declared is not None and declared[j]:
        return True
    return n > 0


@inlined
def write_names(
    names: Vector,
    i: int,
    n: Ints,
    declared: Bytes,
    sizes: Ints,
    near_sizes: Ints,
    half_log: Vector,
    f: Vector,
    m: int,
    near: int,
) -> None:
    """Write what names say about item ``i`` into the last of ``m`` columns of the evidence.

    For a declared label that no stored item has, all votes count as votes against it; those in
    input space are in the columns from ``near`` on, if it is not 0.
    """
    for j in range(f.shape[0]):
        f[j, m - 2] = names[i, j]
        f[j, m - 1] = names[i, j] / (1.0 + max(n[j], 0) / FADING)
        if n[j] <= 0 and declared[j]:
            for c in range(sizes.shape[0]):
                f[j, 1 + c] = half_log[0] - half_log[sizes[c]]
            if near:
                for c in range(near_sizes.shape[0]):
                    f[j, near + c] = half_log[0] - half_log[near_sizes[c]]


@inlined
def odds(z: float) -> float:
    """Return z/(1 − z), with z kept away from 0 and 1."""
    z = min(max(z, CLIP), 1.0 - CLIP)
    return z / (1.0 - z)


@inlined
def _solve(A: Vector, C: Vector, g: Vector) -> None:
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
def _aim(hits: Vector, sizes: Vector, j: int, p: float) -> None:
    """Count what suggesting label ``j`` from half its F1 on would have brought, by its own p."""
    says = 1.0 if 2.0 * p * sizes[j] >= hits[j] else 0.0
    hits[j] = DECAY * hits[j] + ((1.0 - DECAY) * START_F1 * START_SIZE + 2.0 * p * says)
    sizes[j] = DECAY * sizes[j] + ((1.0 - DECAY) * START_SIZE + p + says)


@inlined
def newton_step(
    w: Vector,
    A: Vector,
    d: Vector,
    a: Vector,
    hits: Vector,
    hit_sizes: Vector,
    n: Ints,
    f: Vector,
    p: Vector,
    Y: Bytes,
    i: int,
    C: Vector,
    g: Vector,
    S: Vector,
    declared: Maybe,
) -> None:
    """Take the Newton step of item ``i`` with labels of 0, 1 and 2 (not known).

    ``C``, ``g`` and ``S`` (m, 16) are scratch space.
    """
    q, m = d.shape[0], w.shape[0]
    for r in range(m):
        for c in range(m):
            S[r, c] = DECAY * A[r, c]
        S[r, r] += (1.0 - DECAY) * SPREAD
    g0 = g1 = lines.spread(0.0)
    decay, start = lines.spread(DECAY), lines.spread((1.0 - DECAY) * OWN_SPREAD)
    for j in range(q):
        if Y[i, j] == UNKNOWN or not has_a_score(n[j], declared, j):
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
        _aim(hits, hit_sizes, j, p_j)
    for r in range(m):
        for c in range(r + 1):
            A[r, c] = A[c, r] = S[r, c]
    lines.store(g, 0, m, g0)
    lines.store(g, lines.WIDTH, m - lines.WIDTH, g1)
    _solve(A, C, g)
    for c in range(m):
        w[c] += g[c]


@inlined
def is_known(Y: Bytes, i: int) -> bool:
    """Whether anything is known of item ``i`` with labels of 0, 1 and 2."""
    for j in range(Y.shape[1]):
        if Y[i, j] != UNKNOWN:
            return True
    return bool(Y.shape[1] == 0)


@inlined
def _absorb(
    n: Ints,
    missing: Ints,
    t: Ints,
    last: Vector,
    recent: Vector,
    longer: Vector,
    Y: Bytes,
    i: int,
) -> None:
    """Add example ``i``, with labels of 0, 1 and 2, to the history, unless nothing is known."""
    if not is_known(Y, i):
        return
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
def _count(n: Ints, missing: Ints, t: Ints, Y: Bytes, i: int, sign: int) -> None:
    """Count example ``i``, with labels of 0, 1 and 2, once more or once less; no history."""
    if is_known(Y, i):
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


@compiled
def pass_items(
    learning: bool,
    most: int,
    w: Vector,
    A: Vector,
    d: Vector,
    a: Vector,
    hits: Vector,
    hit_sizes: Vector,
    n: Ints,
    missing: Ints,
    t: Ints,
    last: Vector,
    recent: Vector,
    longer: Vector,
    n_behind: Maybe,
    missing_behind: Maybe,
    t_behind: Maybe,
    last_behind: Maybe,
    recent_behind: Maybe,
    longer_behind: Maybe,
    late: Maybe,
    late_at: Maybe,
    D: Singles,
    added: Vector,
    s: Vector,
    keys: Maybe,
    slots: Maybe,
    counters: Maybe,
    shift: Maybe,
    factor: Maybe,
    rho: Vector,
    B: Maybe,
    B_rows: Maybe,
    indptr: Maybe,
    indices: Maybe,
    data: Maybe,
    dense: Maybe,
    coordinates: Maybe,
    seen: Maybe,
    own: Maybe,
    gain: Vector,
    fresh: Bytes,
    found: Ints,
    near: Maybe,
    labels: Bytes,
    known: Maybe,
    z: Vector,
    names: Maybe,
    declared: Maybe,
    sizes: Ints,
    near_sizes: Ints,
    half_log: Vector,
    first_kept: Maybe,
    gone: Maybe,
    Y: Bytes,
    start: int,
    p: Vector,
    log_odds: Maybe,
    parts: Maybe,
) -> int:
    """Write the probabilities of items ``start``, ``start`` + 1, …; if ``learning``, learn them.

    Return where the fast map wants room, or how many items there are.  No more than ``most``
    neighbours vote.  Arguments are the arrays of :class:`Weights`, :class:`Aims`, of two
    :class:`History`, now and behind, of :class:`Queue`,
    :class:`~tagstream.evidence.fastmap.FastState` and :class:`Evidence`, one by one, None for what
    there is not: what is not there is not compiled, and to take arrays out of named tuples would
    take three times as long.
    """
    q, m = d.shape[0], w.shape[0]
    stride = (q + lines.WIDTH - 1) // lines.WIDTH * lines.WIDTH  # labels, in whole lines
    f, counts = np.zeros((q, ROOM)), np.empty((3, stride), np.int64)
    z_plus, logs, sums = np.empty(q), np.empty(4 * stride), np.zeros(stride)
    C, g, S = np.empty((m, m)), np.empty(m), np.zeros((m, ROOM))
    for j in range(logs.shape[0]):
        logs[j] = 1.0
    quarter = lines.spread(0.25)
    votes: Any = np.int64(1)  # for a constant, which 1 is, all would be compiled once more
    column = votes + sizes.shape[0]
    regressed = z.shape[0] > 0
    active = regressed and s.shape[0] > 0
    n_past, missing_past, t_past = n, missing, t
    last_past, recent_past, longer_past = last, recent, longer
    if late is not None:
        n_past, missing_past, t_past = n_behind, missing_behind, t_behind
        last_past, recent_past, longer_past = last_behind, recent_behind, longer_behind
    for i in range(start, p.shape[0]):
        if indptr is not None and learning and active:
            need = counters[USED] + indptr[i + 1] - indptr[i]
            if need > D.shape[0] or 2 * need > keys.shape[0]:
                return i
        count_votes(found, i, labels, known, sizes, most, half_log, counts, f, votes)
        if near is not None:
            count_votes(
                near, i, labels, known, near_sizes, most, half_log, counts, f, column + N_OTHERS
            )
        if names is not None:
            first_near = column + N_OTHERS if near is not None else 0
            write_names(names, i, n_past, declared, sizes, near_sizes, half_log, f, m, first_near)
        if regressed:
            for j in range(q):
                z_plus[j] = z[i, j]
            if active:
                add_correction(
                    D, keys, slots, shift, factor, B_rows, indptr, indices, data, dense, i,
                    coordinates, own, gain, z_plus,
                )  # fmt: skip
        # The range in which the weight of the share was learnt: mean ± 3 deviations.  A has what
        # it takes: the decayed sums of h, of h times the evidence, of h times its square.
        mean = A[0, column + SHARE] / A[0, 0]
        deviation = math.sqrt(max(A[column + SHARE, column + SHARE] / A[0, 0] - mean * mean, 0.0))
        for j in range(q):
            n_j, others, odds_z = n_past[j], max(t_past[0] - missing_past[j] - n_past[j], 0), 1.0
            if n_j <= 0:
                n_j = 0
                if not has_a_score(n_j, declared, j):
                    others = 0  # nobody asks for it
            if not regressed or fresh[j] == BLIND:
                z_plus[j] = (n_j + 0.5) / (n_j + others + 1.0)
            logs[j] = odds(z_plus[j])
            if regressed and not fresh[j]:
                odds_z = odds(z[i, j])
            logs[stride + j] = odds_z
            logs[2 * stride + j] = (n_j + 0.5) / (others + 0.5)
            logs[3 * stride + j] = (recent_past[j] + 0.02) / (1.02 - recent_past[j])
        for b in range(0, 4 * stride, lines.WIDTH):
            line = lines.logarithm(lines.load(logs, b, lines.WIDTH))
            lines.store(logs, b, lines.WIDTH, lines.multiply(quarter, line))
        w0, w1 = lines.load(w, 0, m), lines.load(w, lines.WIDTH, m - lines.WIDTH)
        low, high = mean - WIDTH * deviation, mean + WIDTH * deviation
        for j in range(q):
            f[j, 0] = 1.0
            f[j, column + Z_PLUS] = f[j, column + Z] = logs[j]
            if regressed and not fresh[j]:
                f[j, column + Z] = logs[stride + j]
            f[j, column + SHARE] = min(max(logs[2 * stride + j], low), high)
            f[j, column + LAST] = last_past[j]
            f[j, column + RECENT] = logs[3 * stride + j]
            f[j, column + LONGER] = longer_past[j]
            at, after = j * ROOM, j * ROOM + lines.WIDTH
            own0, own1 = lines.load(d, at, lines.WIDTH), lines.load(d, after, lines.WIDTH)
            own0 = lines.multiply(lines.add(w0, own0), lines.load(f, at, lines.WIDTH))
            own1 = lines.multiply(lines.add(w1, own1), lines.load(f, after, lines.WIDTH))
            sums[j] = lines.total(lines.add(own0, own1))
        for b in range(0, q, lines.WIDTH):
            line = lines.sigmoid(lines.load(sums, b, lines.WIDTH))
            lines.store(logs, b, lines.WIDTH, line)
        for j in range(q):
            scored = has_a_score(n_past[j], declared, j)
            p[i, j] = logs[j] if scored else 0.0
            if log_odds is not None:
                log_odds[i, j] = sums[j] if scored else -np.inf
            if parts is not None and scored:
                for c in range(m):
                    part = 0  # votes
                    if names is not None and c >= m - 2:
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
        if not learning:
            continue
        if is_known(Y, i):
            newton_step(w, A, d, a, hits, hit_sizes, n_past, f, p, Y, i, C, g, S, declared)
            if active:
                for j in range(q):
                    z_plus[j] = 0.0 if Y[i, j] == UNKNOWN else residual(Y[i, j], z_plus[j])
                step(
                    D, added, s, keys, slots, counters, shift, factor, rho, B, indptr, indices,
                    data, dense, i, coordinates, seen, own, gain, z_plus,
                )  # fmt: skip
        _absorb(n, missing, t, last, recent, longer, Y, i)
        if late is not None:
            at = late_at[0]
            if late_at[1] == late.shape[0]:
                _absorb(
                    n_behind, missing_behind, t_behind, last_behind, recent_behind, longer_behind,
                    late, at,
                )  # fmt: skip
            else:
                late_at[1] += 1
            for j in range(q):
                late[at, j] = Y[i, j]
            late_at[0] = (at + 1) % late.shape[0]
        if first_kept is not None:
            for row in range(first_kept[i], first_kept[i + 1]):
                stored_labels(labels, known, row, gone)
                _count(n, missing, t, gone, 0, -1)
                if late is not None:
                    _count(n_behind, missing_behind, t_behind, gone, 0, -1)
    return len(p)


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
    names : bool
        Whether the names of labels are evidence.

    Examples
    --------
    >>> from tagstream.core.inputs import inputs_of
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

    def __init__(
        self, votes: tuple[int, ...] = VOTES, *, near: bool, lag: int = 0, names: bool = False
    ) -> None:
        self.votes, self.near, self.lag = votes, near, lag
        self.sizes, self.near_sizes = np.array(votes, np.int64), np.array(NEAR, np.int64)
        self.half_log = half_logs(max(*votes, *NEAR))
        self.weights = Weights.starting(start_weights(votes, near, lag))
        if names:
            self.weights = self.weights.with_names()
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
        return self.aims.bars

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        parts: list[npt.NDArray[Any]] = [*self.weights, *self.aims, *self.now, *self._queue]
        parts += self.behind if self.lag else ()
        return sum(part.nbytes for part in parts)

    def grow(self, q: int) -> None:
        """Make room for ``q`` labels; the new ones are as if nobody ever had them."""
        more = q - self.n_labels
        if not more:
            return
        self.weights, self.aims = self.weights.grown(more), self.aims.grown(more)
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
        first = [c[0] for c in columns]
        self.weights, self.aims = self.weights.kept(first), self.aims.kept(first)
        self.now = _kept(self.now, first)
        self.behind = _kept(self.behind, first) if self.lag else self.now
        labels, at = self._queue
        merged = np.zeros((self.lag, len(columns)), np.uint8)
        for j, c in enumerate(columns):
            part = labels[:, c]
            unsure = np.where((part == UNKNOWN).any(axis=1), UNKNOWN, 0)
            merged[:, j] = np.where((part == 1).any(axis=1), 1, unsure)
        self._queue = Queue(merged, at)
        for i in range(at[1]):
            _count(*self.behind[:3], merged, i, -1)

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
        fast.own()
        done, gone = 0, None if first_kept is None else np.empty((1, self.n_labels), np.uint8)
        while True:
            done = self._pass(evidence, fast, first_kept, gone, marked, done, out)
            if done == len(Y):
                return out
            inputs = evidence.inputs
            fast.make_room(int(inputs.indptr[done + 1] - inputs.indptr[done]))

    def score(self, evidence: Evidence, fast: FastMap) -> Vector:
        """Return the probabilities of m items, (m, q); nothing changes."""
        p = np.empty((len(evidence.found), self.n_labels))
        self._pass(evidence, fast, None, None, None, 0, p)
        return p

    def explain(self, evidence: Evidence, fast: FastMap) -> Scores:
        """Return the probabilities of m items with the parts that add up to their log-odds."""
        shape = len(evidence.found), self.n_labels
        scores = Scores(np.empty(shape), np.empty(shape), np.zeros((*shape, len(PARTS))))
        self._pass(evidence, fast, None, None, None, 0, *scores)
        return scores

    def _pass(
        self,
        evidence: Evidence,
        fast: FastMap,
        first_kept: Ints | None,
        gone: Bytes | None,
        Y: Bytes | None,
        start: int,
        p: Vector,
        log_odds: Vector | None = None,
        parts: Vector | None = None,
    ) -> int:
        """Score items from ``start`` on and, where there are labels, learn them."""
        learning = Y is not None
        most = self.n_voting(learning=learning)
        late = self.lag and learning  # predictions are made of what is known now
        behind = (*self.behind, *self._queue) if late else (None,) * 8
        found, near, labels, known, Z, inputs, *_ = evidence
        arrays: Any = (
            learning, most, *self.weights, *self.aims, *self.now, *behind, *fast.arrays(inputs),
            fast.state.fresh, found, near if len(near) else None, labels,
            known if len(known) else None, Z, *evidence.by_name, self.sizes, self.near_sizes,
            self.half_log, first_kept, gone, Y if learning else _NO_LABELS, start, p, log_odds,
            parts,
        )  # fmt: skip
        return pass_items(*arrays)

    def n_voting(self, *, learning: bool) -> int:
        """Return how many of the nearest vote at most."""
        return self.votes[-1] if learning else n_voting(int(self.now.t[0]), self.votes)

    def recount(self, Y: Bytes, sign: int, known: npt.NDArray[np.bool_] | None = None) -> None:
        """Count examples once more (``sign`` = 1) or once less (−1), and learn nothing.

        For a correction: the old labels once less, the new ones once more; for an item that is
        forgotten: once less.
        """
        marked = marked_labels(Y, known)
        for i in range(len(Y)):
            _count(*self.now[:3], marked, i, sign)
            if self.lag:
                _count(*self.behind[:3], marked, i, sign)

    def snapshot(self) -> Head:
        """Return a head that stays as this one is now."""
        other = copy(self)
        other.weights = self.weights._replace(**copied(self.weights))
        other.aims = self.aims._replace(**copied(self.aims))
        other.now = other.behind = self.now._replace(**copied(self.now))
        other.lag, other._queue = 0, Queue(np.zeros((0, self.n_labels), np.uint8), self._queue.at)
        return other

    # ------------------------------------------------------------------ state as plain values
    def dump(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            **self.weights.dump(),
            **copied(self.aims),
            "now": copied(self.now),
            "behind": copied(self.behind) if self.lag else None,
            "queue": self._queue.labels.copy(),
            "queue_at": self._queue.at.copy(),
        }

    @classmethod
    def load(
        cls,
        state: Any,
        q: int,
        *,
        votes: tuple[int, ...] = VOTES,
        near: bool,
        lag: int = 0,
        names: bool = False,
    ) -> Head:
        """Return what :meth:`dump` described, for ``q`` labels; older states know no aims."""
        head = cls(votes, near=near, lag=lag, names=names)
        head.grow(q)
        if isinstance(state, dict) and not state.keys() & set(Aims._fields):
            state = {**copied(head.aims), **state}
        keys = (*Weights._fields, *Aims._fields, "now", "behind", "queue", "queue_at")
        expect_keys("the head", state, *keys)
        head.weights = Weights.load(state, q, len(head.weights.w))
        head.aims = Aims.load(state, q)
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


@lru_cache(maxsize=4)
def half_logs(most: int) -> Vector:
    """Return ½ ln(v + ½) for v = 0, 1, … up to ``most``; the array is shared."""
    return np.asarray(0.5 * np.log(np.arange(most + 1) + 0.5))


def n_voting(t: int, votes: tuple[int, ...]) -> int:
    """Return how many of the nearest of ``t`` stored items vote at most, when a score is asked."""
    if t >= VERY_FEW:
        return votes[-1]
    return max(t // 3, 1)  # of very few, the nearest third: if all vote, it tells nothing


def marked_labels(Y: Bytes, known: npt.NDArray[np.bool_] | None) -> Bytes:
    """Return labels of 0 and 1 with a 2 where they are not known."""
    if known is None:
        return Y
    return np.where(known, Y, np.uint8(UNKNOWN))


def copied(parts: Weights | Aims | History) -> dict[str, npt.NDArray[Any]]:
    """Return copies of arrays by their names."""
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
