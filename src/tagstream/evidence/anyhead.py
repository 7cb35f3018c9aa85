"""The any-head: weighs the evidence for the labels of any item, in whatever order items came.

:mod:`tagstream.evidence.head` learns from each example as it comes.  So its weights answer the
question "which labels has the next item of the stream?".  If the stream is sorted, the latest
labels are the best evidence for the next ones, and its weights say so.  For any other item such
weights are useless.  The any-head is the same online logistic model with weights of its own.  It
has no evidence of recent labels, and it learns from examples that a fit of P has left out
(:mod:`tagstream.evidence.replay`).

Its evidence for label j is, in the notation of :mod:`tagstream.evidence.head`,

    one, L_3, L_10, L_30 in the codes, ⅛(logit z + logit z⁺), ¼ ln((n_j + ½)/(t_j − n_j + ½)),

and L_3 and L_10 among a sample of stored rows in input space, where there is one, and what the
names of labels say as in that module, where they are evidence.  z and z⁺ share a
column, because an example that is left out cannot tell them apart: the fast map is empty then.
"""

from __future__ import annotations

import math
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.checks import expect_keys
from tagstream.core.compilation import compiled
from tagstream.core.inputs import Maybe
from tagstream.core.simd import lines
from tagstream.evidence.fastmap import BLIND
from tagstream.evidence.head import (
    NEAR,
    PARTS,
    ROOM,
    WIDTH,
    Aims,
    Evidence,
    History,
    Scores,
    Weights,
    copied,
    count_votes,
    half_logs,
    has_a_score,
    is_known,
    n_voting,
    newton_step,
    odds,
    write_names,
)

__all__ = ["AnyHead"]

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# Columns of the evidence behind the votes in the codes.
Z, SHARE, N_OTHERS = 0, 1, 2

_NO_LABELS = np.empty((0, 0), np.uint8)
_NOTHING_LESS = np.empty((0, 0), np.int64)


@compiled
def _pass_items(
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
    less: Ints,
    less_missing: Ints,
    less_t: Ints,
    fresh: Bytes,
    found: Ints,
    near: Maybe,
    labels: Bytes,
    known: Maybe,
    z: Vector,
    z_plus: Vector,
    names: Maybe,
    declared: Maybe,
    sizes: Ints,
    near_sizes: Ints,
    half_log: Vector,
    Y: Bytes,
    p: Vector,
    log_odds: Maybe,
    parts: Maybe,
) -> None:
    """Write the probabilities of items; if ``learning``, learn them one after the other.

    ``less``, ``less_missing`` and ``less_t`` are taken off the counts for each item, if they are
    not empty.  The other arguments are the arrays of :class:`~tagstream.evidence.head.Weights`,
    :class:`~tagstream.evidence.head.Aims`, :class:`~tagstream.evidence.head.History` and
    :class:`~tagstream.evidence.head.Evidence`.
    """
    q, m = d.shape[0], w.shape[0]
    stride = (q + lines.WIDTH - 1) // lines.WIDTH * lines.WIDTH  # labels, in whole lines
    f, counts = np.zeros((q, ROOM)), np.empty((3, stride), np.int64)
    logs, sums, n_now = np.empty(2 * stride), np.zeros(stride), np.empty(q, np.int64)
    C, g, S = np.empty((m, m)), np.empty(m), np.zeros((m, ROOM))
    for j in range(logs.shape[0]):
        logs[j] = 1.0
    eighth, quarter = lines.spread(0.125), lines.spread(0.25)
    votes: Any = np.int64(1)  # for a constant, which 1 is, all would be compiled once more
    column = votes + sizes.shape[0]
    regressed = z.shape[0] > 0
    for i in range(p.shape[0]):
        count_votes(found, i, labels, known, sizes, most, half_log, counts, f, votes)
        if near is not None:
            count_votes(
                near, i, labels, known, near_sizes, most, half_log, counts, f, column + N_OTHERS
            )
        # As in `head.pass_items`, a weight says nothing beyond the range in which it was learnt.
        mean = A[0, column + SHARE] / A[0, 0]
        deviation = math.sqrt(max(A[column + SHARE, column + SHARE] / A[0, 0] - mean * mean, 0.0))
        low, high = mean - WIDTH * deviation, mean + WIDTH * deviation
        for j in range(q):
            n_j, known_j = n[j], t[0] - missing[j]
            if less.shape[0]:
                n_j -= less[i, j]
                known_j += less_missing[i, j] - less_t[i]
            others = max(known_j - n_j, 0)
            if n_j <= 0:
                n_j = 0
                if not has_a_score(n_j, declared, j):
                    others = 0  # nobody asks for it
            n_now[j] = n_j
            if not regressed or fresh[j] == BLIND:
                share = odds((n_j + 0.5) / (n_j + others + 1.0))
                logs[j] = share * share
            else:
                plus = odds(z_plus[i, j])
                logs[j] = plus * (plus if fresh[j] else odds(z[i, j]))
            logs[stride + j] = (n_j + 0.5) / (others + 0.5)
        if names is not None:
            first_near = column + N_OTHERS if near is not None else 0
            write_names(names, i, n_now, declared, sizes, near_sizes, half_log, f, m, first_near)
        for b in range(0, stride, lines.WIDTH):
            line = lines.logarithm(lines.load(logs, b, lines.WIDTH))
            lines.store(logs, b, lines.WIDTH, lines.multiply(eighth, line))
            line = lines.logarithm(lines.load(logs, stride + b, lines.WIDTH))
            lines.store(logs, stride + b, lines.WIDTH, lines.multiply(quarter, line))
        w0, w1 = lines.load(w, 0, m), lines.load(w, lines.WIDTH, m - lines.WIDTH)
        for j in range(q):
            f[j, 0] = 1.0
            f[j, column + Z] = logs[j]
            f[j, column + SHARE] = min(max(logs[stride + j], low), high)
            at, after = j * ROOM, j * ROOM + lines.WIDTH
            own0, own1 = lines.load(d, at, lines.WIDTH), lines.load(d, after, lines.WIDTH)
            own0 = lines.multiply(lines.add(w0, own0), lines.load(f, at, lines.WIDTH))
            own1 = lines.multiply(lines.add(w1, own1), lines.load(f, after, lines.WIDTH))
            sums[j] = lines.total(lines.add(own0, own1))
        for b in range(0, q, lines.WIDTH):
            line = lines.sigmoid(lines.load(sums, b, lines.WIDTH))
            lines.store(logs, b, lines.WIDTH, line)
        for j in range(q):
            scored = has_a_score(n_now[j], declared, j)
            p[i, j] = logs[j] if scored else 0.0
            logs[j] = 1.0
            if log_odds is not None:
                log_odds[i, j] = sums[j] if scored else -np.inf
            if parts is not None and scored:
                for c in range(m):
                    part = (w[c] + d[j, c]) * f[j, c]
                    if names is not None and c >= m - 2:
                        parts[i, j, 5] += part
                    elif c == 0 or c == column + SHARE:
                        parts[i, j, 3] += part
                    elif c != column + Z:
                        parts[i, j, 0] += part
                    elif not regressed or fresh[j] == BLIND:
                        parts[i, j, 1] += part
                    else:  # what the fast map changes is its own
                        alone = 0.0 if fresh[j] else 0.25 * math.log(odds(z[i, j]))
                        alone *= w[c] + d[j, c]
                        parts[i, j, 1] += alone
                        parts[i, j, 2] += part - alone
        if learning and is_known(Y, i):
            newton_step(w, A, d, a, hits, hit_sizes, n_now, f, p, Y, i, C, g, S, declared)


def _start_weights(votes: tuple[int, ...], near: bool) -> Vector:
    """Return the weights before anything is learnt."""
    by_votes = [0.4] * (len(votes) - 1) + [1.0]
    return np.array([-0.3, *by_votes, 2.0, -0.8, *([0.2] * len(NEAR) if near else [])])


class AnyHead:
    """The online logistic model over the evidence for any item.

    Parameters
    ----------
    votes : tuple of int
        How many neighbours in the codes vote, rising.
    near : bool
        Whether there are neighbours in input space too.
    names : bool
        Whether the names of labels are evidence.
    """

    def __init__(self, votes: tuple[int, ...], *, near: bool, names: bool = False) -> None:
        self.votes, self.near = votes, near
        self._sizes, self._near_sizes = np.array(votes, np.int64), np.array(NEAR, np.int64)
        self._half_log = half_logs(max(*votes, *NEAR))
        self.weights = Weights.starting(_start_weights(votes, near))
        if names:
            self.weights = self.weights.with_names()
        self.aims = Aims(np.zeros(0), np.zeros(0))

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return len(self.aims.hits)

    @property
    def bars(self) -> Vector:
        """The probability from which each label is suggested for its own highest F1, (q,)."""
        return self.aims.bars

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        return sum(part.nbytes for part in (*self.weights, *self.aims))

    def grow(self, q: int) -> None:
        """Make room for ``q`` labels; the new ones are as if nobody ever had them."""
        more = q - self.n_labels
        if more > 0:
            self.weights, self.aims = self.weights.grown(more), self.aims.grown(more)

    def keep(self, columns: list[int]) -> None:
        """Leave out all labels but those at ``columns``."""
        self.weights, self.aims = self.weights.kept(columns), self.aims.kept(columns)

    def learn(
        self,
        evidence: Evidence,
        counts: History,
        less: tuple[Ints, Ints, Ints] | None,
        fresh: Bytes,
        Y: Bytes,
    ) -> Vector:
        """Learn m items in order; return their probabilities before each was learnt, (m, q).

        Parameters
        ----------
        evidence : Evidence
            Of other items only.
        counts : History
            Of the stored items.
        less : tuple of int64 arrays of shapes (m, q), (m, q) and (m,), optional
            What is to be taken off these counts for each item: the item itself, if it is stored.
            The items that have each label; of which it is not known; of which anything is known.
        fresh : uint8 array of shape (q,)
            See :class:`~tagstream.evidence.fastmap.FastState`.
        Y : uint8 array of shape (m, q)
            Labels of 0, 1 and 2, which stands for "not known".
        """
        p = np.empty(Y.shape)
        self._pass(evidence, evidence.Z, counts, less, fresh, Y, p, None, None)
        return p

    def score(
        self,
        evidence: Evidence,
        z_plus: Vector,
        counts: History,
        fresh: Bytes,
        less: tuple[Ints, Ints, Ints] | None = None,
    ) -> Vector:
        """Return the probabilities of m items, (m, q), given z⁺ of the fast map, (m, q).

        ``less``, as in :meth:`learn`, is what stored items take off the counts when they are asked
        about as if they were not stored.
        """
        p = np.empty((len(evidence.found), self.n_labels))
        self._pass(evidence, z_plus, counts, less, fresh, None, p, None, None)
        return p

    def explain(self, evidence: Evidence, z_plus: Vector, counts: History, fresh: Bytes) -> Scores:
        """Return the probabilities of m items with the parts that add up to their log-odds."""
        shape = len(evidence.found), self.n_labels
        scores = Scores(np.empty(shape), np.empty(shape), np.zeros((*shape, len(PARTS))))
        self._pass(evidence, z_plus, counts, None, fresh, None, *scores)
        return scores

    def _pass(
        self,
        evidence: Evidence,
        z_plus: Vector,
        counts: History,
        less: tuple[Ints, Ints, Ints] | None,
        fresh: Bytes,
        Y: Bytes | None,
        p: Vector,
        log_odds: Vector | None,
        parts: Vector | None,
    ) -> None:
        learning = Y is not None
        n_others = int(counts.t[0]) - (less is not None)
        most = self.votes[-1] if learning else n_voting(n_others, self.votes)
        found, near, labels, known, z, *_ = evidence
        if less is None:
            less = _NOTHING_LESS, _NOTHING_LESS, _NOTHING_LESS[0:0, 0:0].reshape(0)
        _pass_items(
            learning, most, *self.weights, *self.aims, *counts[:3], *less, fresh, found,
            near if self.near else None, labels, known if len(known) else None, z, z_plus,
            *evidence.by_name, self._sizes, self._near_sizes, self._half_log,
            _NO_LABELS if Y is None else Y, p, log_odds, parts,
        )  # fmt: skip

    def snapshot(self) -> AnyHead:
        """Return a head that stays as this one is now."""
        other = copy(self)
        other.weights = Weights(**copied(self.weights))
        other.aims = Aims(**copied(self.aims))
        return other

    # ------------------------------------------------------------------ state as plain values
    def dump(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {**self.weights.dump(), **copied(self.aims)}

    @classmethod
    def load(
        cls, state: Any, q: int, *, votes: tuple[int, ...], near: bool, names: bool = False
    ) -> AnyHead:
        """Return what :meth:`dump` described, for ``q`` labels."""
        expect_keys("the any-head", state, *Weights._fields, *Aims._fields)
        head = cls(votes, near=near, names=names)
        head.weights = Weights.load(state, q, len(head.weights.w))
        head.aims = Aims.load(state, q)
        return head
