"""What is believed of an item: the evidence gathered from a store, weighed by the head.

Three learners on three time scales work together here.  The head (:mod:`tagstream.head`) learns
whom to believe; the fast map (:mod:`tagstream.fastmap`) learns at once what the projection learns
at its next fit; copies (:mod:`tagstream.copies`) let a stored item that is nearly the same speak
for itself, above all one that was corrected.

Corrections are kept away from the head: one that is fed its errors only unlearns its weights.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.checks import Bools, Rows, bits_of, expect, expect_counts, expect_keys
from tagstream.copies import Copies, Nearest
from tagstream.fastmap import Basis, FastMap, Inputs
from tagstream.head import Evidence, Head
from tagstream.labels import Labels
from tagstream.memory import DenseRows, Store
from tagstream.projection.ridge import Spread

__all__ = ["NEAR", "PARTS", "Belief", "Items", "Reasons"]

PARTS = ("votes", "regression", "fast map", "prior", "recent labels", "copy")
RECENT = 1000  # items among which the nearest in input space are looked up
ADDED = 512  # items that are added to them at a time: there is no more room than these need
RECOUNTED = 1 << 24  # labels of items that are counted at a time
NEAR = 10  # of the latest items that are looked at in input space
FLATTEST = 1e-30  # deviation up to which a column is constant
LARGEST_LAG, MOST_VOTES = 10**6, 3 * 10**6  # that parameters can ask for

Vector = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

_NO_POSITIONS = np.empty((0, 0), np.int64)
_NONE_GONE = np.empty(0, np.int64)
_NO_Z = np.empty((0, 0))


class Reasons(NamedTuple):
    """Probabilities and what they are made of, for m items.

    Attributes
    ----------
    p : array of shape (m, q)
    parts : array of shape (m, q, 6)
        What each of ``PARTS`` adds to the log-odds of p.
    copy_of : int array of shape (m,)
        Position of the stored item that lent its labels, −1 if none did.
    """

    p: Vector
    parts: Vector
    copy_of: Positions


class Items(NamedTuple):
    """Items and what the learner has found out about them.

    Attributes
    ----------
    rows : array or CSR matrix of shape (m, p), single precision
    found : int array of shape (m, k), or None
        The nearest stored items of each; None before there is a metric, when they are looked up in
        input space.
    Z : array of shape (m, q), or None
        The regression.
    inputs : Inputs
        The rows as the regression takes them.
    """

    rows: Rows
    found: Positions | None
    Z: Vector | None
    inputs: Inputs

    def part(self, part: slice) -> Items:
        """Return some of the items."""
        if part.start == 0 and part.stop == self.rows.shape[0]:
            return self
        found = None if self.found is None else self.found[part]
        Z = None if self.Z is None else self.Z[part]
        return Items(self.rows[part], found, Z, _part_of(self.inputs, part))


class _Looked(NamedTuple):
    """What a store says about items; rows count its labels, positions what it stores."""

    evidence: Evidence
    nearest: Positions  # position of the most similar stored item
    copied: Nearest  # the same as a row, and how similar
    corrected: Bools
    kept: Positions | None  # row of the first item that is kept when item i comes, and at the end


class _Asked(NamedTuple):
    """A single item that was asked about, and what was found: in a stream it is learnt next."""

    bits: Hashable  # of its row
    seen: int  # examples that were learnt before
    found: Positions
    near: Positions
    scaled: npt.NDArray[np.float32] | None  # the row, where rows are dense
    nearest: Nearest


class Belief:
    """Head, fast map and copies over one store.

    Parameters
    ----------
    n_features : int
    sparse : bool
        Whether rows are sparse.
    votes : tuple of int
        How many neighbours vote, see :class:`~tagstream.head.Head`.
    lag : int
        How many items late labels come.
    """

    def __init__(self, n_features: int, *, sparse: bool, votes: tuple[int, ...], lag: int) -> None:
        self.n_features, self.sparse = n_features, sparse
        self.head = Head(votes, near=not sparse, lag=lag)
        self.fast = FastMap(sparse=sparse)
        self.copies = Copies()
        self._factor = np.ones(0 if sparse else n_features)  # one over the columns' deviations
        self._recent = None if sparse else DenseRows(n_features)  # the latest rows, scaled
        self._asked: _Asked | None = None

    @property
    def lag(self) -> int:
        """How many items late labels come."""
        return self.head.lag

    @property
    def factor(self) -> Vector:
        """One over the deviations of dense columns, (p,)."""
        return self._factor

    @property
    def latest(self) -> DenseRows:
        """The latest rows, scaled, where rows are dense."""
        assert self._recent is not None
        return self._recent

    @property
    def n_votes(self) -> int:
        """How many neighbours vote."""
        return self.head.votes[-1]

    def n_asked(self, store: Store) -> int:
        """Return how many neighbours are to be looked up: those that vote, if there are so many."""
        return min(self.n_votes, max(len(store), 1))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        recent = 0 if self._recent is None else self._recent.nbytes
        parts = (self.head, self.fast, self.copies)
        return recent + self._factor.nbytes + sum(part.nbytes for part in parts)

    def recall(self, rows: Rows, seen: int) -> Positions | None:
        """Return the neighbours of the item that was asked about last, if it is the one to learn.

        Nothing may have been learnt since: ``seen`` examples are stored.
        """
        asked = self._asked_about(rows, seen)
        return None if asked is None else asked.found

    def _asked_about(self, rows: Rows, seen: int) -> _Asked | None:
        asked = self._asked
        if asked is None or asked.seen != seen or rows.shape[0] != 1:
            return None
        return asked if asked.bits == bits_of(rows) else None

    def grow(self, q: int) -> None:
        """Have ``q`` labels from now on."""
        self.head.grow(q)
        self.fast.grow(q)

    # ------------------------------------------------------------------ learning
    def learn(self, items: Items, labels: Labels, store: Store, seen: int) -> None:
        """Learn the latest examples of the store, which has them already, in order.

        ``items.found`` must be older than the item by more than the lag.  Examples learnt before
        these: ``seen``.
        """
        m, done = items.rows.shape[0], 0
        first = len(store) - m
        while done < m:
            stop = m
            if items.Z is None:  # columns are scaled anew after 1, 2, 4, 8, … examples
                stop = min(m, (1 << (seen + done).bit_length()) - seen)
            part = slice(done, stop)
            some = labels
            if stop - done < m:
                known = None if labels.known is None else labels.known[part]
                some = Labels(labels.Y[part], known)
            positions = np.arange(first + done, first + stop)
            self._learn_part(items.part(part), some, store, positions, seen + done)
            done = stop
            if items.Z is None and (seen + done).bit_count() == 1:
                self._scale(store, first + done)

    def _learn_part(
        self, items: Items, labels: Labels, store: Store, positions: Positions, seen: int
    ) -> None:
        asked, nearest = self._asked_about(items.rows, seen), None
        if asked is not None:
            near, nearest = asked.near, asked.nearest
            items = Items(items.rows, asked.found, items.Z, items.inputs)
            if self._recent is not None:
                assert asked.scaled is not None
                self._recent.append(asked.scaled)
        else:
            items, near = self._look_before(items, store, positions)
        self.trim(store)
        self._asked = kept = None
        if store.window is not None:
            kept = store.first_seen(np.arange(positions[0], positions[-1] + 2))
        looked = self._look_up(items, store, near, kept, nearest)
        p = self.head.learn(looked.evidence, self.fast, labels.Y, labels.known, looked.kept)
        self.copies.learn(
            p, looked.copied, looked.evidence.labels, looked.evidence.known, labels.Y, labels.known,
            corrected=looked.corrected,
        )  # fmt: skip

    def _look_before(
        self, items: Items, store: Store, positions: Positions
    ) -> tuple[Items, Positions]:
        """Look up what was near items when they came."""
        lo, ends = store.first_seen(positions), positions - self.lag
        if self._recent is not None:
            scaled, low, near = self._scaled(items.rows), np.maximum(lo, ends - RECENT), []
            many = items.found is not None and len(self._recent) >= RECENT
            size = ADDED if many else len(scaled)
            for first in range(0, len(scaled), size):
                part = slice(first, first + size)
                end, some = int(positions[part][-1]) + 1, (low[part], ends[part])
                self._recent.append(scaled[part])
                if items.found is None:
                    items = items._replace(found=self._near(scaled, self.n_votes, end, *some))
                near.append(self._near(scaled[part], NEAR, end, *some))
                self.trim(store)
            return items, near[0] if len(near) == 1 else np.concatenate(near)
        if items.found is None:
            found = store.search_rows(items.rows, self.n_asked(store), lo, np.maximum(ends, lo))[1]
            items = items._replace(found=found)
        return items, _NO_POSITIONS

    def _near(
        self,
        scaled: npt.NDArray[np.float32],
        k: int,
        end: int,
        lo: Positions | None = None,
        hi: Positions | None = None,
    ) -> Positions:
        """Return the k nearest of the latest rows, which end before position ``end``.

        All of them, or those at [lo, hi).
        """
        assert self._recent is not None
        shift = end - len(self._recent)
        k = min(k, max(len(self._recent), 1))  # there are no more, and room for all takes some
        if lo is not None and hi is not None:
            lo = np.maximum(lo - shift, 0)
            hi = np.maximum(hi - shift, lo)
        found = self._recent.search(scaled, k, lo, hi)[1]
        if shift:
            np.add(found, shift, out=found, where=found >= 0)
        return found

    def _n_recent(self, store: Store) -> int:
        """Return how many of the latest rows are kept here: never more than the store keeps."""
        n = RECENT + self.lag
        return n if store.window is None else min(n, store.window)

    def trim(self, store: Store) -> None:
        """Let go of rows that are no longer among the latest."""
        if self._recent is not None:
            excess = len(self._recent) - self._n_recent(store)
            if excess > 0:
                self._recent.drop(excess)

    def _scaled(self, rows: Rows) -> npt.NDArray[np.float32]:
        scaled: npt.NDArray[np.float32] = (rows * self._factor).astype(np.float32)
        return scaled

    def _scale(self, store: Store, n: int) -> None:
        """Divide columns by their deviation over what is stored before position ``n``."""
        if self._recent is None:
            return
        first = int(store.first_seen(np.array([n]))[0])
        rows = store.take(slice(first, n)).astype(np.float64)
        # One after another, so that the order of the sums follows from the rows alone.
        mean = np.add.accumulate(rows, axis=0)[-1] / len(rows)
        square = np.add.accumulate((rows - mean) ** 2, axis=0)[-1] / len(rows)
        self._set_factor(np.sqrt(square), mean, store, n)

    def _set_factor(self, deviation: Vector, mean: Vector, store: Store, n: int) -> None:
        flat = deviation <= 1e-6 * np.abs(mean) + FLATTEST
        self._factor = 1 / np.where(flat, 1.0, deviation)
        kept = min(n, self._n_recent(store))
        self._recent = DenseRows(self.n_features)
        self._recent.append(self._scaled(store.take(slice(n - kept, n))))

    def take_over(self, fast: FastMap, spread: Spread, store: Store) -> None:
        """Go on with another fast map after a fit of the projection."""
        self._asked = None  # found by the old codes
        self.fast = fast
        if spread.deviation is not None and spread.mean is not None:
            self._set_factor(spread.deviation, spread.mean, store, len(store))

    # ------------------------------------------------------------------ corrections
    def relabel(self, item: Items, old: Labels, new: Labels) -> None:
        """Learn that one stored item has other labels."""
        self.head.recount(old.Y, -1, old.known)
        self.head.recount(new.Y, 1, new.known)
        if item.Z is not None:
            self.fast.correct(item.inputs, item.Z, new.Y[0] > old.Y[0])

    def forget(self, position: int, old: Labels, store: Store) -> None:
        """Take one item out, which the store has lost already."""
        self._asked = None  # found at the old positions
        self.head.recount(old.Y, -1, old.known)
        if self._recent is not None:
            at = position - (len(store) + 1 - len(self._recent))
            if at >= 0:
                self._recent.remove(at)

    def keep(self, columns: list[list[int]], store: Store) -> None:
        """Make each label anew of old ones, and count those of the stored items again."""
        self.head.keep(columns)
        size = 1 + RECOUNTED // max(store.n_labels, 1)
        for first in range(0, len(store), size):
            labels = store.labels(slice(first, min(first + size, len(store))))
            self.head.recount(labels.Y, 1, labels.known)
        self.fast.keep([c[0] for c in columns])

    # ------------------------------------------------------------------ scores
    def scores(self, items: Items, store: Store) -> Vector:
        """Return the probabilities of m items, (m, q)."""
        items, near, scaled = self._look(items, store)
        looked = self._look_up(items, store, near)
        # Where labels come late, or all that is stored votes, what is learnt from is another thing.
        if items.rows.shape[0] == 1 and not self.lag and len(store) > self.n_votes:
            assert items.found is not None
            nearest = Nearest(looked.nearest, looked.copied.similarities)
            bits = bits_of(items.rows)
            self._asked = _Asked(bits, store.n_seen, items.found, near, scaled, nearest)
        return self._blend(self.head.score(looked.evidence, self.fast), looked)[0]

    def reasons(self, items: Items, store: Store) -> Reasons:
        """Return the probabilities of m items with what they are made of."""
        items, near, _ = self._look(items, store)
        looked = self._look_up(items, store, near)
        of_head = self.head.explain(looked.evidence, self.fast)
        p, kappas = self._blend(of_head.p, looked)
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.log(p) - np.log1p(-p) - of_head.log_odds
        gain = np.where(np.isfinite(gain) & (kappas > 0)[:, None], gain, 0.0)
        parts = np.concatenate([of_head.parts, gain[:, :, None]], axis=2)
        return Reasons(p, parts, np.where(kappas > 0, looked.nearest, -1))

    def _look(
        self, items: Items, store: Store
    ) -> tuple[Items, Positions, npt.NDArray[np.float32] | None]:
        """Look up what is near items that are not stored; return their scaled rows, too."""
        n, lo, hi = len(store), None, None
        if self._recent is None:
            if items.found is None:
                found = store.search_rows(items.rows, self.n_asked(store))[1]
                items = items._replace(found=found)
            return items, _NO_POSITIONS, None
        scaled = self._scaled(items.rows)
        if len(self._recent) > RECENT:  # where labels come late
            lo, hi = np.full(len(scaled), n - RECENT), np.full(len(scaled), n)
        if items.found is None:
            items = items._replace(found=self._near(scaled, self.n_votes, n, lo, hi))
        return items, self._near(scaled, NEAR, n, lo, hi), scaled

    def _look_up(
        self,
        items: Items,
        store: Store,
        near: Positions,
        kept: Positions | None = None,
        nearest: Nearest | None = None,
    ) -> _Looked:
        """Ask the store for labels; those before ``kept`` fall out of the window.

        ``nearest`` is the most similar stored item of each, if that is known already.
        """
        assert items.found is not None
        if nearest is None:
            candidates = items.found
            if near.size:
                candidates = np.concatenate([candidates, near[:, :1]], axis=1)
            nearest = store.similar(items.rows, candidates, None if self.sparse else self._factor)
        gone = _NONE_GONE if kept is None else np.arange(kept[0], kept[-1])
        there = store.neighbors(items.found, near, nearest.positions, gone)
        found, near, copied, gone = there.rows
        if kept is not None:
            kept = kept - kept[0] + (gone[0] if len(gone) else 0)
        Z = _NO_Z if items.Z is None else items.Z
        evidence = Evidence(found, near, there.labels, there.known, Z, items.inputs)
        copy_of = Nearest(copied, nearest.similarities)
        return _Looked(evidence, nearest.positions, copy_of, there.corrected, kept)

    def _blend(self, p: Vector, looked: _Looked) -> tuple[Vector, Vector]:
        evidence = looked.evidence
        return self.copies.blend(
            p, looked.copied, evidence.labels, evidence.known, corrected=looked.corrected
        )

    # ------------------------------------------------------------------ state
    def snapshot(self) -> Belief:
        """Return an immutable picture."""
        twin = object.__new__(Belief)
        twin.__dict__.update(self.__dict__)
        twin.head, twin.fast = self.head.snapshot(), self.fast.snapshot()
        twin.copies = self.copies.snapshot()
        twin._recent = None if self._recent is None else self._recent.snapshot()
        return twin

    def dump(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "head": self.head.dump(),
            "fast": self.fast.dump(),
            "copies": self.copies.dump(),
            "factor": self._factor.copy(),
            "n_recent": 0 if self._recent is None else len(self._recent),
            "votes": list(self.head.votes),
            "lag": self.lag,
        }

    def load(
        self,
        state: Any,
        q: int,
        store: Store,
        *,
        wide: bool,
        width: int,
        n_seen: int,
        basis: Basis | None = None,
    ) -> None:
        """Take over what :meth:`dump` gave, of a stream of ``n_seen`` examples.

        ``wide``: the regression takes sparse rows; ``width``: so many features, 0 before there is
        one; ``basis``: that of reduced labels.
        """
        keys = ("head", "fast", "copies", "factor", "n_recent", "votes", "lag")
        expect_keys("the belief", state, *keys)
        # Its own, which parameters that were changed since do not change.
        (lag,) = expect_counts("lag", state["lag"], most=LARGEST_LAG)
        votes = state["votes"]
        if type(votes) is not list or len(votes) != len(self.head.votes):
            raise ValueError(f"votes must be {len(self.head.votes)} counts, got {votes!r}")
        expect_counts("votes", *votes, most=MOST_VOTES)
        if votes[0] < 1 or votes != sorted(votes):
            raise ValueError(f"votes must rise from at least 1, got {votes}")
        near = not self.sparse
        self.head = Head.load(state["head"], q, votes=tuple(votes), near=near, lag=lag)
        for past in (self.head.now, self.head.behind):
            if max(np.abs(counts).max(initial=0) for counts in past[:3]) > n_seen:
                raise ValueError(f"the head must count at most the {n_seen} examples seen")
        self.fast = FastMap.load(state["fast"], q, sparse=wide, width=width, basis=basis)
        self.copies = Copies.load(state["copies"])
        shape = self._factor.shape
        self._factor = expect(
            "factor", state["factor"], np.float64, shape, least=0, most=1 / FLATTEST
        )
        (n,) = expect_counts("n_recent", state["n_recent"])
        if n > (min(len(store), self._n_recent(store)) if near else 0):
            raise ValueError(f"n_recent must be a count of stored rows, got {n}")
        if self._recent is not None:
            self._recent.append(self._scaled(store.take(slice(len(store) - n, None))))


def _part_of(inputs: Inputs, part: slice) -> Inputs:
    """Return some of the rows."""
    if len(inputs.indptr):
        bounds = inputs.indptr[part.start : part.stop + 1]
        entries = slice(bounds[0], bounds[-1])
        return inputs._replace(
            indptr=bounds - bounds[0], indices=inputs.indices[entries], data=inputs.data[entries]
        )
    return inputs._replace(dense=inputs.dense[part]) if len(inputs.dense) else inputs
