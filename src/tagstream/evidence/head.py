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

from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.checks import LARGEST_COUNT, check_number, expect, expect_keys
from tagstream.core.heads import (
    DECAY,
    OWN_SPREAD,
    ROOM,
    SPREAD,
    START_F1,
    START_SIZE,
    UNKNOWN,
    count,
    pass_next,
)
from tagstream.core.inputs import Inputs
from tagstream.core.structs import Found, head_model, histories
from tagstream.evidence.fastmap import FastMap

__all__ = [
    "NAMES",
    "NEAR",
    "NO_LABELS",
    "PARTS",
    "VERY_FEW",
    "VOTES",
    "Aims",
    "Evidence",
    "Head",
    "History",
    "Queue",
    "Scores",
    "Weights",
    "copied",
    "half_logs",
    "marked_labels",
    "n_voting",
    "struct_of_model",
]

VOTES = (3, 10, 30)  # neighbours in the codes
NEAR = (3, 10)  # neighbours in input space
NAMES = 2  # columns of what a label's name says, the last ones
NAME_WEIGHTS = (6.0, 6.0)  # that they start with
VERY_FEW = 12  # stored examples, of which not all vote

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# What spoke for a label, in the order in which it is told.
PARTS = ("votes", "regression", "fast map", "prior", "recent labels", "name")

NO_LABELS = np.empty((0, 0), np.uint8)  # nothing is learnt
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

    def seen(self, *, near: bool) -> Found:
        """Return the same without the rows for the compiled loops; ``near``: is it evidence."""
        found, nearest, labels, known, Z, _, names, declared = self
        return Found(
            found,
            nearest if near else None,
            labels,
            known if len(known) else None,
            Z,
            (names, declared) if len(declared) else None,
        )


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
        self.weights = Weights.starting(start_weights(votes, near, lag))
        if names:
            self.weights = self.weights.with_names()
        self.aims = Aims(np.zeros(0), np.zeros(0))
        self.now = _empty_history()
        self.behind = _empty_history() if lag else self.now
        self._queue = Queue(np.zeros((lag, 0), np.uint8), np.zeros(2, np.int64))
        self._renew()

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
        self._renew()

    def use_names(self) -> None:
        """Have names be evidence from now on."""
        self.weights = self.weights.with_names()
        self._renew()

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
        self._renew()
        for i in range(at[1]):
            count(*self.behind[:3], merged, i, -1)

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
        marked, out, done = marked_labels(Y, known), np.empty(Y.shape), 0
        fast.own()
        while True:
            done = self._pass(evidence, fast, first_kept, marked, done, out)
            if done == len(Y):
                return out
            inputs = evidence.inputs
            fast.make_room(int(inputs.indptr[done + 1] - inputs.indptr[done]))

    def score(self, evidence: Evidence, fast: FastMap) -> Vector:
        """Return the probabilities of m items, (m, q); nothing changes."""
        p = np.empty((len(evidence.found), self.n_labels))
        self._pass(evidence, fast, None, NO_LABELS, 0, p)
        return p

    def explain(self, evidence: Evidence, fast: FastMap) -> Scores:
        """Return the probabilities of m items with the parts that add up to their log-odds."""
        shape = len(evidence.found), self.n_labels
        scores = Scores(np.empty(shape), np.empty(shape), np.zeros((*shape, len(PARTS))))
        self._pass(evidence, fast, None, NO_LABELS, 0, scores.p, (scores.log_odds, scores.parts))
        return scores

    def _pass(
        self,
        evidence: Evidence,
        fast: FastMap,
        first_kept: Ints | None,
        Y: Bytes,
        start: int,
        p: Vector,
        reasons: tuple[Vector, Vector] | None = None,
    ) -> int:
        """Score items from ``start`` on and, where there are labels, learn them."""
        most = self.n_voting(learning=len(Y) > 0)
        rows, seen = fast.rows_of(evidence.inputs), evidence.seen(near=len(evidence.near) > 0)
        return pass_next(
            self._model, self._history, fast.struct, rows, seen, Y, first_kept, most, start, p,
            reasons,
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has, too: all but the objects that refer to arrays of this head."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_model", "_history")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._renew()

    def _renew(self) -> None:
        """Hand other arrays to the compiled loops from now on."""
        queue = tuple(self._queue) if self.lag else None
        self._model = struct_of_model(self.weights, self.aims, self.sizes, self.near_sizes)
        self._history = histories(tuple(self.now), tuple(self.behind), queue)

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
            count(*self.now[:3], marked, i, sign)
            if self.lag:
                count(*self.behind[:3], marked, i, sign)

    def snapshot(self) -> Head:
        """Return a head that stays as this one is now."""
        other = copy(self)
        other.weights = self.weights._replace(**copied(self.weights))
        other.aims = self.aims._replace(**copied(self.aims))
        other.now = other.behind = self.now._replace(**copied(self.now))
        other.lag, other._queue = 0, Queue(np.zeros((0, self.n_labels), np.uint8), self._queue.at)
        other._renew()
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
        head._renew()
        return head


def struct_of_model(weights: Weights, aims: Aims, sizes: Ints, near_sizes: Ints) -> Any:
    """Return what a head learns as the compiled loops take it."""
    most = max(int(sizes[-1]), int(near_sizes[-1]))
    return head_model(*weights, *aims, sizes, near_sizes, half_logs(most))


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
