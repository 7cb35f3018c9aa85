"""Multi-label kNN over a stream: the paper's third competitor, and ML-kNN's Bayesian vote.

Symbols (Zhang and Zhou, *ML-kNN*, Pattern Recognition 2007), for a label j:

    C_j          how many of an item's k neighbours have the label
    κ_j[r]       how many stored items *with* the label have C_j = r, κ̃_j[r] those without it
    s = 1        smoothing
    P(H_j)       = (s + Σ_r κ_j[r]) / (2s + Σ_r κ_j[r] + κ̃_j[r])
    P(r | H_j)   = (s + κ_j[r]) / (s(k + 1) + Σ κ_j),   with κ̃_j likewise for P(r | ¬H_j)
    score        P(H_j)P(C_j | H_j) / (P(H_j)P(C_j | H_j) + P(¬H_j)P(C_j | ¬H_j))

An item enters the tables with the neighbours it had when it came; at geometrically growing times
all stored items are counted again among each other, an item not being its own neighbour.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from tagstream.checks import Positions, Rows, check_choice, check_number, expect, expect_keys
from tagstream.core.inputs import inputs_of
from tagstream.evidence.replay import Left
from tagstream.evidence.scoring import Items
from tagstream.execution.schedule import FIRST_FIT, next_fit
from tagstream.execution.steps import finish
from tagstream.labels.read import Labels
from tagstream.learners.estimator import Change
from tagstream.learners.neighbors import BLOCK, Found, Located, NeighborClassifier
from tagstream.store import changes, lookup
from tagstream.store.contents import left_out
from tagstream.store.protocol import LABELS, ROWS

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["KNN"]

NO_Z = np.empty((0, 0))
SEED = 0  # by which items are drawn that teach the head
FIRST_COUNT = 20  # stored examples at the first recount of the tables


class KNN(NeighborClassifier):
    """k nearest neighbours in the input space, Euclidean, with a growing or sliding memory.

    Parameters
    ----------
    n_neighbors : int
        How many stored items vote.
    vote : {"majority", "map"}
        The share of the neighbours that have a label, or its posterior probability given that
        share (ML-kNN), kept up to date online.
    window : int, optional
        Keep only that many examples.
    decide : {"balanced", "f1", "hamming", "macro"}, "top1", "top2", …, or float
        From scores to labels, see :func:`tagstream.decision.decide`; "macro" needs a head; a number
        is the score from which a label is predicted.
    head : bool
        Weigh the votes, together with how frequent and how recent labels are, by an online logistic
        model whose probabilities are the scores (:mod:`tagstream.evidence.head`); for majority
        votes only.
    lag : int
        How many items late labels come, for the head.
    store : optional
        Where examples are kept: something whose ``open`` makes a
        :class:`~tagstream.store.protocol.Store`; by default this process.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [0.1], [1.0], [1.1]])
    >>> model = KNN(n_neighbors=2).fit(X, [{"low"}, {"low"}, {"high"}, {"high", "odd"}])
    >>> model.predict_sets(np.array([[1.2]]))[0] == {"high", "odd"}
    True
    >>> model.predict_proba(np.array([[0.0]])).round(3)
    array([[1., 0., 0.]])
    """

    def __init__(
        self,
        n_neighbors: int = 10,
        *,
        vote: str = "majority",
        window: int | None = None,
        decide: str | float = 0.5,
        head: bool = False,
        lag: int = 0,
        store: Any = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.vote = vote
        self.window = window
        self.decide = decide
        self.head = head
        self.lag = lag
        self.store = store

    def _check_params(self) -> None:
        self._check_neighbors()
        check_choice("vote", self.vote, ("majority", "map"))
        if self.head and self.vote == "map":
            raise ValueError("head must be False for vote='map', got True")

    def _start(self) -> None:
        self._store, self._belief = self._open_store(), self._new_belief()
        # _tables[h, r, j]: stored items of which C_j = r, without (h = 0) or with the label.
        self._tables = np.zeros((2, self.n_neighbors + 1, 0), np.int64)
        self._counts: list[npt.NDArray[np.int32]] = []  # C_j of each stored item, oldest first
        self._next_count = FIRST_COUNT
        self._next_replay, self._n_fits, self._fitted_at = FIRST_FIT, 0, 0

    def _grow(self, q: int) -> None:
        old = self._tables.shape[2]
        changes.grow_labels(self._store, q)
        self._grow_belief(q)
        if self.vote == "map":
            self._tables = np.pad(self._tables, ((0, 0), (0, 0), (0, q - old)))
            # No stored item has a new label, hence none of its neighbours does.
            known = self._store.take(LABELS).known
            who = len(self._store) if known is None else known[:, old:].sum(axis=0)
            self._tables[0, 0, old:] = who
            self._counts = [np.pad(c, (0, q - old)) for c in self._counts]

    def _next_stop(self, seen: int) -> int:
        if self._belief is not None:
            return self._next_replay
        return self._next_count if self.vote == "map" else sys.maxsize

    def _stop(self, seen: int) -> None:
        if self._belief is not None:
            self._next_replay = next_fit(seen, self.window)
            self._replay(seen)
            return
        self._recount()
        self._next_count += max(len(self._store) // 4, 1)

    def _replay(self, seen: int) -> None:
        """Teach the any-head some stored items, left out one by one."""
        store, belief = self._store, self._belief
        if belief is None or not len(store):
            return
        self._n_fits, self._fitted_at = self._n_fits + 1, seen
        contents = lookup.contents(store)
        sample = left_out(contents, SEED, self._n_fits)
        if not len(sample.newest):
            return
        left = Left.of(sample, contents, store)
        found = np.empty((len(sample.newest), belief.n_votes), np.int64)
        for part, k in left.groups(belief.n_votes, len(store)):
            found[part] = left.others(
                lookup.nearest_rows(store, left.rows[part], k)[1], part, belief.n_votes
            )
        factor = None if self._sparse else belief.factor
        replayed = finish(belief.replay(SEED).learn(left, store, found, NO_Z, factor))
        belief.take_over(None, None, replayed, store)

    def refit(self) -> Self:
        """Learn now what the head learns now and then, on all that is stored."""
        with self._lock:
            check_is_fitted(self)
            with Change(self):
                self._end_fit()
        return self

    @property
    def n_since_fit_(self) -> int:
        """How many examples came since the head last learnt about any item."""
        return self.n_seen_ - self._fitted_at if self._belief is not None else 0

    def _end_fit(self) -> None:
        if len(self._store) >= FIRST_FIT:
            self._replay(self.n_seen_)

    def _learn_block(
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None,
        seen: int,
        found: Found | None,
    ) -> None:
        store = self._store
        positions = len(store) + np.arange(rows.shape[0])
        store.append(rows, labels, ids)
        lo = lookup.first_seen(store, positions)
        belief = self._belief
        if belief is not None:
            ends, k = np.maximum(positions - belief.lag, lo), belief.n_asked(store)
            near = None if belief.lag else self._found_before(found, k)
            if near is None:
                near = lookup.nearest_rows(store, rows, k, lo, ends)[1]
            items = Items(rows, near, None, inputs_of(None))
            looked = None if found is None or rows.shape[0] > 1 else found.looked
            belief.learn(items, labels, store, seen, looked)
        if self.vote == "map":
            k = min(self.n_neighbors, len(store))
            near = self._found_before(found, k)
            if near is None:
                near = lookup.nearest_rows(store, rows, k, lo, positions)[1]
            self._enter(self._count(near), labels)

    def _locate(
        self, rows: Rows, k: int, lo: Positions | None = None, hi: Positions | None = None
    ) -> Located:
        squares, found = lookup.nearest_rows(self._store, rows, k, lo, hi)
        return Located(Items(rows, found, None, inputs_of(None)), squares)

    # ------------------------------------------------------------------ corrections
    def _relabel(self, position: int, labels: Labels) -> None:
        super()._relabel(position, labels)
        self._count_again()

    def _forget(self, position: int) -> None:
        super()._forget(position)
        self._count_again()

    def _change_labels(self, columns: list[list[int]], names: list[Hashable]) -> None:
        super()._change_labels(columns, names)
        if self.vote == "map":
            self._tables = np.zeros((*self._tables.shape[:2], len(names)), np.int64)
        self._count_again()

    def _count_again(self) -> None:
        if self.vote == "map":
            self._recount()

    # ------------------------------------------------------------------ the Bayesian vote
    def _count(self, found: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return C_j, (m, q), of items whose neighbours are at ``found``, −1 being none."""
        Y = self._store.take(LABELS, np.maximum(found, 0).ravel()).Y
        Y = Y.reshape(*found.shape, self._store.facts.n_labels) * (found >= 0)[:, :, None]
        counts: npt.NDArray[np.int32] = Y.sum(axis=1, dtype=np.int32)
        return counts

    def _enter(self, counts: npt.NDArray[np.int32], labels: Labels) -> None:
        """Add items to the tables, and take those out that the window is about to lose."""
        self._tally(counts, labels, 1)
        self._counts.extend(counts)
        excess = 0 if self.window is None else max(len(self._store) - self.window, 0)
        if excess:
            oldest = self._store.take(LABELS, slice(excess))
            self._tally(np.array(self._counts[:excess]), oldest, -1)
            del self._counts[:excess]

    def _tally(self, counts: npt.NDArray[np.int32], labels: Labels, sign: int) -> None:
        known = np.ones(labels.Y.shape, bool) if labels.known is None else labels.known
        item, label = np.nonzero(known)
        np.add.at(self._tables, (labels.Y[item, label], counts[item, label], label), sign)

    def _recount(self) -> None:
        """Count every stored item among all others."""
        n = len(self._store)
        k = min(self.n_neighbors, n - 1)
        self._counts = []
        self._tables[:] = 0
        for first in range(0, n, BLOCK):
            positions = np.arange(first, min(first + BLOCK, n))
            found = lookup.nearest_rows(self._store, self._store.take(ROWS, positions), k + 1)[1]
            # Where older copies of the item crowd it out of its own list, the last one goes.
            own = found == positions[:, None]
            own[~own.any(axis=1), -1] = True
            found = found[~own].reshape(len(positions), k)
            counts = self._count(found)
            self._counts.extend(counts)
            self._tally(counts, self._store.take(LABELS, positions), 1)

    def _votes(self, located: Located) -> npt.NDArray[np.float64]:
        if self.vote == "majority":
            return super()._votes(located)
        counts, k = self._count(located.found), self.n_neighbors
        with_label = self._tables.sum(axis=1)  # (2, q)
        prior = (1 + with_label) / (2 + with_label.sum(axis=0))
        likelihood = (1 + self._tables) / (k + 1 + with_label)[:, None, :]
        columns = np.arange(counts.shape[1])
        no = prior[0] * likelihood[0, counts, columns]
        yes = prior[1] * likelihood[1, counts, columns]
        scores: npt.NDArray[np.float64] = yes / (yes + no)
        return scores

    # ------------------------------------------------------------------ state
    @property
    def nbytes_(self) -> int:
        """Bytes of the stored examples and tables."""
        belief = 0 if self._belief is None else self._belief.nbytes
        tables = self._tables.nbytes + sum(c.nbytes for c in self._counts)
        return lookup.n_bytes(self._store) + belief + tables

    def _dump(self) -> dict[str, Any]:
        q = len(self.classes_)
        return {
            "store": self._store.dump(),
            "belief": None if self._belief is None else self._belief.dump(),
            "tables": self._tables.copy(),
            "counts": np.array(self._counts, np.int32).reshape(len(self._counts), q),
            "next_count": self._next_count,
            "next_replay": self._next_replay,
            "n_fits": self._n_fits,
            "fitted_at": self._fitted_at,
        }

    def _freeze(self, twin: KNN) -> None:
        twin._store, twin._tables = self._store.snapshot(), self._tables.copy()
        twin._belief = None if self._belief is None else self._belief.snapshot()

    def _load(self, state: dict[str, Any]) -> None:
        keys = ("tables", "counts", "next_count", "next_replay", "n_fits", "fitted_at")
        expect_keys("KNN", state, "store", "belief", *keys)
        self._store = self._load_store(state["store"])
        self._load_belief(state["belief"], wide=self._sparse)
        bayesian = self.vote == "map"
        q, n, k = len(self.classes_), len(self._store) if bayesian else 0, self.n_neighbors
        shape = (2, k + 1, q if bayesian else 0)
        # A majority has no tables, so the number of neighbours may have been changed.
        wanted = shape if bayesian else (2, None, 0)
        stored = expect("tables", state["tables"], np.int64, wanted)
        counts = expect("counts", state["counts"], np.int32, (n, q), least=0, most=k)
        # The tables are what the counts add up to: no number of theirs is taken on trust.
        self._tables = np.zeros(shape, np.int64)
        if bayesian:
            self._tally(counts, self._store.take(LABELS), 1)
            if (stored != self._tables).any():
                raise ValueError("tables must be the sums of the counts")
        check_number("next_count", state["next_count"], kind=int, least=1, most=2.0**60)
        if bayesian and state["next_count"] <= self.n_seen_:
            raise ValueError(f"next_count must lie after {self.n_seen_} examples")
        for name in ("n_fits", "fitted_at"):
            check_number(name, state[name], kind=int, least=0, most=2.0**60)
        check_number("next_replay", state["next_replay"], kind=int, least=1, most=2.0**60)
        self._counts = list(counts)
        self._next_count = state["next_count"]
        self._n_fits, self._fitted_at = state["n_fits"], state["fitted_at"]
        # A file of an older version does not say when.
        self._next_replay = state["next_replay"]
        while self._belief is not None and self._next_replay <= self.n_seen_:
            self._next_replay = next_fit(self._next_replay, self.window)
