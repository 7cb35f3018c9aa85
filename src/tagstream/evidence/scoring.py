"""What is believed of an item: the evidence gathered from a store, weighed by the head.

Several learners on their own time scales work together here.  Two heads weigh the evidence for each
label: one for the next item of the stream (:mod:`tagstream.evidence.head`), which learns from every
example, and one for any item (:mod:`tagstream.evidence.anyhead`), which learns at each fit of the
projection.  The fast map (:mod:`tagstream.evidence.fastmap`) learns at once what the projection
learns at its next fit.  Copies (:mod:`tagstream.evidence.copies`) let a stored item that is nearly
the same speak for itself, above all one that was corrected.

Corrections are kept away from the heads: a head that is fed its errors only unlearns its weights.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from tagstream.checks import Bools, Rows, expect, expect_counts, expect_keys
from tagstream.core.inputs import Inputs
from tagstream.core.similarity import Nearest
from tagstream.evidence.anyhead import AnyHead
from tagstream.evidence.copies import BINS, Copies
from tagstream.evidence.fastmap import Basis, FastMap
from tagstream.evidence.head import (
    VERY_FEW,
    Evidence,
    Head,
    History,
    Scores,
    copied,
    marked_labels,
)
from tagstream.evidence.honest import Entries, HonestScores, entries_of, load_entries
from tagstream.evidence.naming import Naming
from tagstream.evidence.promise import Tracked, track_precision, track_recall
from tagstream.evidence.replay import (
    DRAWN,
    FLATTEST,
    NEAR,
    Replay,
    Replayed,
    column_factor,
    counted,
    scaled_rows,
)
from tagstream.execution.schedule import FIRST_FIT
from tagstream.labels.read import Labels
from tagstream.projection.ridge import Spread
from tagstream.store import lookup
from tagstream.store.protocol import CORRECTED, LABELS, NUMBERS, ROWS, Store
from tagstream.store.rows import DenseRows

__all__ = ["NEAR", "PARTS", "Belief", "Items", "Looked", "Reasons", "without_self"]

PARTS = ("votes", "regression", "fast map", "prior", "recent labels", "name", "copy")
RECENT = 1000  # items among which the nearest in input space are looked up
ADDED = 512  # items that are added to them at a time: there is no more room than these need
RECOUNTED = 1 << 24  # labels of items that are counted at a time
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
    parts : array of shape (m, q, 7)
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
    ids : sequence or None
        Of items that are asked about: their names, None where one has none.
    """

    rows: Rows
    found: Positions | None
    Z: Vector | None
    inputs: Inputs
    ids: Sequence[Hashable | None] | None = None

    def part(self, part: slice) -> Items:
        """Return some of the items."""
        if part.start == 0 and part.stop == self.rows.shape[0]:
            return self
        found = None if self.found is None else self.found[part]
        Z = None if self.Z is None else self.Z[part]
        return Items(self.rows[part], found, Z, _part_of(self.inputs, part))


class Gathered(NamedTuple):
    """What a store says about items; rows count its labels, positions what it stores."""

    evidence: Evidence
    nearest: Positions  # position of the most similar stored item
    copied: Nearest  # the same as a row, and how similar
    corrected: Bools
    kept: Positions | None  # row of the first item that is kept when item i comes, and at the end


class Recent(NamedTuple):
    """What is near an item among the latest rows, if learning it would find the same.

    Attributes
    ----------
    near : int array of shape (1, k)
        Positions of the nearest of them, where rows are dense.
    scaled : array of shape (1, p), or None
        The row, where rows are dense.
    nearest : Nearest
        The most similar stored item.
    """

    near: Positions
    scaled: npt.NDArray[np.float32] | None
    nearest: Nearest


class Looked(NamedTuple):
    """All that m items are answered by, for one of the two questions.

    Attributes
    ----------
    items : Items
        With the positions of their neighbours.
    gathered : Gathered
        What the store says about these.
    z_plus : array of shape (m, q), or None
        What the fast map makes of the regression, for any item; None for the next one.
    recent : Recent or None
        Of a single item.
    """

    items: Items
    gathered: Gathered
    z_plus: Vector | None
    recent: Recent | None


class _Drawn(NamedTuple):
    """A sample of the rows that were stored at the last fit, and those that were there later."""

    numbers: Positions  # in the stream, rising; of all that were drawn
    rows: DenseRows  # scaled; of those that were stored when this was made
    at: Positions  # where they were
    n_stored: int  # how many items were stored then,
    n_seen: int  # and had been learnt


class Belief:
    """The two heads, fast map and copies over one store.

    Parameters
    ----------
    n_features : int
    plain : bool
        Take rows as they are, as sparse ones always are: columns are neither scaled nor centred,
        and nobody looks for neighbours among them.  So dense and sparse rows of the same numbers
        have the same answers.
    votes : tuple of int
        How many neighbours vote, see :class:`~tagstream.evidence.head.Head`.
    lag : int
        How many items late labels come.
    names : "sparse", "dense" or ""
        Whether the names of labels are evidence, and of which kind their rows are.
    window : int, optional
        How many items the store keeps.
    """

    def __init__(
        self,
        n_features: int,
        *,
        plain: bool,
        votes: tuple[int, ...],
        lag: int,
        names: str = "",
        window: int | None = None,
    ) -> None:
        self.n_features, self.plain = n_features, plain
        self.naming: Naming | None = None
        if names:
            self.naming = Naming.empty(n_features, sparse=names == "sparse")
        self.head = Head(votes, near=not plain, lag=lag, names=bool(names))
        # None in a model of an older version, and where all items are equal, until a fit that can
        # leave something out.  Any item is then answered as the next one.
        self.any: AnyHead | None = AnyHead(votes, near=not plain, names=bool(names))
        self.fast = FastMap(sparse=plain)
        self.copies = Copies()
        self.honest_next, self.honest_any = HonestScores(window), HonestScores(window)
        # Whether each example is also asked about as any item before it is learnt, for promises.
        self.watches = False
        self._counted = History(**copied(self.head.now))  # labels at the last fit, for that
        self._factor = np.ones(0 if plain else n_features)  # one over the columns' deviations
        self._recent = None if plain else DenseRows(n_features)  # the latest rows, scaled
        self._drawn: _Drawn | None = None  # rows for the any-head, scaled, once there was a fit

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
        recent: int = 0 if self._recent is None else self._recent.nbytes
        if self._drawn is not None:
            recent += self._drawn.rows.nbytes
        recent += 0 if self.any is None else self.any.nbytes
        recent += 0 if self.naming is None else self.naming.nbytes
        parts = (self.head, self.fast, self.copies, self.honest_next, self.honest_any)
        return recent + self._factor.nbytes + sum(part.nbytes for part in parts)

    def grow(self, q: int, rows: Rows | None = None) -> None:
        """Have ``q`` labels from now on; the names of new ones have these rows, if any do."""
        if self.naming is not None:
            assert rows is not None
            self.naming = self.naming.grown(rows, q)
        self.head.grow(q)
        if self.any is not None:
            self.any.grow(q)
        self.fast.grow(q)

    # ------------------------------------------------------------------ names
    def take_names(self, rows: Rows) -> None:
        """Have the names of labels be evidence from now on; they have these rows, (q, p)."""
        assert self.naming is None
        naming = Naming.empty(self.n_features, sparse=issparse(rows))
        self.naming = naming.grown(rows, self.head.n_labels)
        self.head.use_names()
        if self.any is not None:
            self.any.use_names()

    def rename(self, j: int, row: Rows) -> None:
        """Have the name of label ``j`` have another row, (1, p)."""
        if self.naming is not None:
            self.naming = self.naming.renewed(j, row)

    def declare(self, labels: list[int]) -> None:
        """Give labels a score even if nothing has them."""
        assert self.naming is not None
        self.naming = self.naming.with_declared(labels)

    def _say_names(self, evidence: Evidence, rows: Rows, before: Looked | None) -> Evidence:
        """Return the evidence with what names say about these rows, as was found ``before``."""
        if self.naming is None:
            return evidence
        names = self.naming.cosines(rows) if before is None else before.gathered.evidence.names
        return evidence._replace(names=names, declared=self.naming.declared)

    # ------------------------------------------------------------------ learning
    def learn(
        self,
        items: Items,
        labels: Labels,
        store: Store,
        seen: int,
        looked: Looked | None = None,
    ) -> None:
        """Learn the latest examples of the store, which has them already, in order.

        ``items.found`` must be older than the item by more than the lag.  Examples learnt before
        these: ``seen``.  ``looked``: what :meth:`look` found about a single item, if nothing was
        changed since.
        """
        m, done = items.rows.shape[0], 0
        first = len(store) - m
        while done < m:
            stop = m
            if items.Z is None:  # columns are scaled anew after 1, 2, 4, 8, … examples
                stop = min(m, (1 << (seen + done).bit_length()) - seen)
            if seen + done < FIRST_FIT:  # each of the first may teach the any-head
                stop = done + 1
            part = slice(done, stop)
            some = labels
            if stop - done < m:
                known = None if labels.known is None else labels.known[part]
                some = Labels(labels.Y[part], known)
            positions = np.arange(first + done, first + stop)
            self._learn_part(items.part(part), some, store, positions, seen + done, looked)
            done = stop
            if items.Z is None and (seen + done).bit_count() == 1:
                self._scale(store, first + done)

    def _learn_part(
        self,
        items: Items,
        labels: Labels,
        store: Store,
        positions: Positions,
        seen: int,
        looked: Looked | None,
    ) -> None:
        recent = None if looked is None else looked.recent
        if looked is not None and recent is not None:
            near, nearest = recent.near, recent.nearest
            items = items._replace(found=looked.items.found)
            if self._recent is not None:
                assert recent.scaled is not None
                self._recent.append(recent.scaled)
        else:
            items, near = self._look_before(items, store, positions)
            nearest = None
        self.trim(store)
        kept = None
        if store.window is not None:
            kept = lookup.first_seen(store, np.arange(positions[0], positions[-1] + 2))
        if nearest is None:
            nearest = self._most_similar(items, store, near)
        there = self._gather(items, store, near, nearest, kept, before=looked)
        if self.watches and self.any is not None and items.Z is not None:
            self._watch(there.evidence, labels)
        # Of very few items those of another label are always in the majority: that is no evidence.
        if VERY_FEW <= seen < FIRST_FIT:
            self._learn_first(there, items, labels, store, positions)
        p = self.head.learn(there.evidence, self.fast, labels.Y, labels.known, there.kept)
        p = self.copies.learn(
            p, there.copied, there.evidence.labels, there.evidence.known, labels.Y, labels.known,
            corrected=there.corrected,
        )  # fmt: skip
        self.honest_next.add(entries_of(p, marked_labels(labels.Y, labels.known)))

    def watch(self) -> None:
        """Ask about each example as any item too, from now on."""
        if not self.watches:
            self.watches, self._counted = True, History(**copied(self.head.now))

    def _watch(self, evidence: Evidence, labels: Labels) -> None:
        """Note how examples would be answered as any item, before they are learnt.

        Nearly so: without the fast map and copies, and with the counts of the last fit, which do
        not depend on how many examples are learnt together.
        """
        assert self.any is not None
        counts = _widened(self._counted, self.any.n_labels)
        p = self.any.score(evidence, evidence.Z, counts, self.fast.state.fresh)
        self.honest_any.add(entries_of(p, marked_labels(labels.Y, labels.known)))

    def _learn_first(
        self, there: Gathered, items: Items, labels: Labels, store: Store, positions: Positions
    ) -> None:
        """Have the any-head learn an example that came before there was a fit."""
        if self.any is None:
            return
        if self.lag:  # which is nothing to the any-head
            lo = lookup.first_seen(store, positions)
            if self._recent is None:
                asked = self.n_asked(store)
                found = lookup.nearest_rows(store, items.rows, asked, lo, positions)[1]
                near = _NO_POSITIONS
            else:
                end, scaled = int(positions[-1]) + 1, self._scaled(items.rows)
                found = self._near(scaled, self.n_votes, end, lo, positions)
                near = self._near(scaled, NEAR, end, lo, positions)
            items = items._replace(found=found)
            there = self._gather(items, store, near, self._most_similar(items, store, near))
        Y = marked_labels(labels.Y, labels.known)
        evidence = there.evidence._replace(Z=_NO_Z)
        self.any.learn(evidence, self.head.now, None, self.fast.state.fresh, Y)

    def _look_before(
        self, items: Items, store: Store, positions: Positions
    ) -> tuple[Items, Positions]:
        """Look up what was near items when they came."""
        lo, ends = lookup.first_seen(store, positions), positions - self.lag
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
            asked, ends = self.n_asked(store), np.maximum(ends, lo)
            found = lookup.nearest_rows(store, items.rows, asked, lo, ends)[1]
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
        return scaled_rows(rows, self._factor)

    def _scale(self, store: Store, n: int) -> None:
        """Divide columns by their deviation over what is stored before position ``n``."""
        if self._recent is None:
            return
        first = int(lookup.first_seen(store, np.array([n]))[0])
        rows = store.take(ROWS, slice(first, n)).astype(np.float64)
        # One after another, so that the order of the sums follows from the rows alone.
        mean = np.add.accumulate(rows, axis=0)[-1] / len(rows)
        square = np.add.accumulate((rows - mean) ** 2, axis=0)[-1] / len(rows)
        self._set_factor(mean, np.sqrt(square), store, n)

    def _set_factor(self, mean: Vector, deviation: Vector, store: Store, n: int) -> None:
        self._factor = column_factor(mean, deviation)
        kept = min(n, self._n_recent(store))
        self._recent = DenseRows(self.n_features)
        self._recent.append(self._scaled(store.take(ROWS, slice(n - kept, n))))
        if self._drawn is not None:
            self._draw(self._drawn.numbers, store)

    def replay(self, seed: int) -> Replay:
        """Return what the any-head is to be taught with at a fit that begins now."""
        head = self.any
        if head is None:
            head = AnyHead(self.head.votes, near=not self.plain, names=self.naming is not None)
            head.grow(self.head.n_labels)
        return Replay(head, self.head.now, seed, self.naming)

    def take_over(
        self, fast: FastMap | None, spread: Spread | None, replayed: Replayed | None, store: Store
    ) -> None:
        """Go on after a fit: with another fast map, and with what the any-head has learnt."""
        if fast is not None:
            self.fast = fast
        columns = None if spread is None or self.plain else spread.columns
        if columns is not None:
            self._set_factor(*columns, store, len(store))
        if replayed is None:  # all items are equal: one cannot tell about the others
            self.any = self._drawn = None
        else:
            self.any = replayed.head
            self.any.grow(self.head.n_labels)
            self._draw(replayed.drawn, store)
            for entries in replayed.honest:
                self.honest_any.add(entries)
        self._counted = History(**copied(self.head.now))

    def _draw(self, numbers: Positions, store: Store) -> None:
        """Keep the rows of these numbers for the any-head, as far as they are stored."""
        if self._recent is None:
            return
        at = lookup.positions_of(store, numbers)
        rows = DenseRows(self.n_features)
        rows.append(self._scaled(store.take(ROWS, at[at >= 0])))
        self._drawn = _Drawn(numbers, rows, at[at >= 0], len(store), store.facts.n_seen)

    # ------------------------------------------------------------------ corrections
    def relabel(self, item: Items, old: Labels, new: Labels) -> None:
        """Learn that one stored item has other labels."""
        self.head.recount(old.Y, -1, old.known)
        self.head.recount(new.Y, 1, new.known)
        if item.Z is not None:
            self.fast.correct(item.inputs, item.Z, new.Y[0] > old.Y[0])

    def forget(self, position: int, old: Labels, store: Store) -> None:
        """Take one item out, which the store has lost already."""
        self.head.recount(old.Y, -1, old.known)
        if self._recent is not None:
            at = position - (len(store) + 1 - len(self._recent))
            if at >= 0:
                self._recent.remove(at)
        if self._drawn is not None:
            self._draw(self._drawn.numbers, store)

    def keep(self, columns: list[list[int]], store: Store) -> None:
        """Make each label anew of old ones, and count those of the stored items again."""
        self.head.keep(columns)
        if self.any is not None:
            self.any.keep([c[0] for c in columns])
        if self.naming is not None:
            self.naming = self.naming.kept(columns)
        self.honest_next.keep(columns)
        self.honest_any.keep(columns)
        size = 1 + RECOUNTED // max(store.facts.n_labels, 1)
        for first in range(0, len(store), size):
            labels = store.take(LABELS, slice(first, min(first + size, len(store))))
            self.head.recount(labels.Y, 1, labels.known)
        self.fast.keep([c[0] for c in columns])
        self._counted = History(**copied(self.head.now))

    # ------------------------------------------------------------------ scores
    def bars(self, *, next: bool) -> Vector:
        """Return the probability from which each label is suggested for its own F1, (q,)."""
        return self.head.bars if next or self.any is None else self.any.bars

    def tracked(self, promises: Vector, *, next: bool) -> Tracked:
        """Return from which score each label keeps its promised precision, (q,); 1: none is made.

        For any item, scores come at fits only, so the gate of the next item's scores, which come
        with every example, must be open too.
        """
        found = track_precision(self.honest_next.entries, promises)
        if next or self.any is None:
            return found
        of_any = track_precision(self.honest_any.entries, promises)
        closed = of_any.closed | found.closed
        return of_any._replace(bars=np.where(closed, np.inf, of_any.bars), closed=closed)

    def recall_bars(self, recall: float, *, next: bool) -> Vector:
        """Return the score that so many of the items of each label reach, (q,)."""
        honest = self.honest_next if next or self.any is None else self.honest_any
        return track_recall(honest.entries, self.head.n_labels, recall)

    def look(self, items: Items, store: Store, *, next: bool) -> Looked:
        """Look up what m items that are not stored are answered by, as the next item or as any."""
        as_any, near, scaled = not next and self.any is not None, _NO_POSITIONS, None
        drawn = self._drawn if as_any else None
        if drawn is not None:
            near = self._near_drawn(drawn, items.rows, store)
        else:
            items, near, scaled = self._look(items, store)
        nearest = self._most_similar(items, store, near)
        recent = None
        if drawn is None and items.rows.shape[0] == 1 and self._is_whole(store):
            recent = Recent(near, scaled, nearest)
        there = self._gather(items, store, near, nearest)
        z_plus = None
        if as_any:
            z_plus = _NO_Z if items.Z is None else self.fast(items.inputs, items.Z)
        return Looked(items, there, z_plus, recent)

    def _is_whole(self, store: Store) -> bool:
        """Tell whether what is looked up about an item is what learning it would look up.

        Where labels come late, or all that is stored votes, that is another thing.
        """
        n_rows = self.n_votes if self._recent is None else len(self._recent)
        return not self.lag and len(store) > self.n_votes and n_rows >= max(self.n_votes, NEAR)

    def scores(self, looked: Looked) -> Vector:
        """Return the probabilities of m items, (m, q), by what was looked up."""
        evidence = looked.gathered.evidence
        if looked.z_plus is not None:
            assert self.any is not None
            counts, fresh = self.head.now, self.fast.state.fresh
            p = self.any.score(evidence, looked.z_plus, counts, fresh)
        else:
            p = self.head.score(evidence, self.fast)
        return self._blend(p, looked.gathered)[0]

    def scores_without(
        self, items: Items, positions: Positions, store: Store, fitted_at: int
    ) -> Vector:
        """Return the probabilities of stored items, (m, q), each asked about without itself.

        Neighbours, near votes, copies and counts leave the item out.  The fast map speaks only
        about what it has not learnt from the item: neither about items that came since the fit
        after ``fitted_at`` examples or were corrected, nor about young labels that an item has.

        Parameters
        ----------
        items : Items
            The stored items; ``found`` has one neighbour more than vote, or is None.
        positions : int array of shape (m,)
        """
        labels, found = store.take(LABELS, positions), items.found
        if found is None:
            found = self._all_near(items.rows, store)
        candidates = without_self(found, positions)
        items = items._replace(found=candidates)
        near = _NO_POSITIONS
        if self._drawn is not None:
            near = self._near_drawn(self._drawn, items.rows, store, NEAR + 1)
        elif self._recent is not None:
            near = self._near(self._scaled(items.rows), NEAR + 1, len(store))
        if near.size:
            near = without_self(near, positions)
        if near.size:
            candidates = np.concatenate([candidates, near[:, :1]], axis=1)
        nearest = lookup.similar(
            store, items.rows, candidates, None if self.plain else self._factor
        )
        twins = lookup.corrected_twins(store, items.rows)
        if twins is not None:
            there = (twins >= 0) & (twins != positions)
            nearest = Nearest(
                np.where(there, twins, nearest.positions),
                np.where(there, 1.0, nearest.similarities),
            )
        there = self._gather(items, store, near, nearest, twins=False)
        head, fresh = self.any, self.fast.state.fresh
        if head is None:
            head = AnyHead(self.head.votes, near=not self.plain, names=self.naming is not None)
            head.grow(self.head.n_labels)
        Y = marked_labels(labels.Y, labels.known)
        Z = _NO_Z
        if items.Z is not None:
            learnt = store.take(NUMBERS, positions) >= fitted_at
            learnt |= store.take(CORRECTED, positions)
            young = (fresh[: Y.shape[1]] > 0) & (Y == 1)
            Z = np.where(learnt[:, None] | young, items.Z, self.fast(items.inputs, items.Z))
        less = counted(Y, np.arange(len(Y)), len(Y))
        p = head.score(there.evidence, Z, self.head.now, fresh, less)
        return self._blend(p, there)[0]

    def _all_near(self, rows: Rows, store: Store) -> Positions:
        """Return one neighbour more than vote, in input space, before there is a metric."""
        if self._recent is None:
            return lookup.nearest_rows(store, rows, min(self.n_votes + 1, len(store)))[1]
        return self._near(self._scaled(rows), self.n_votes + 1, len(store))

    def reasons(self, looked: Looked) -> Reasons:
        """Return the probabilities of m items with what they are made of."""
        of_head: Scores
        there = looked.gathered
        if looked.z_plus is not None:
            assert self.any is not None
            counts, fresh = self.head.now, self.fast.state.fresh
            of_head = self.any.explain(there.evidence, looked.z_plus, counts, fresh)
        else:
            of_head = self.head.explain(there.evidence, self.fast)
        p, kappas = self._blend(of_head.p, there)
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.log(p) - np.log1p(-p) - of_head.log_odds
        gain = np.where(np.isfinite(gain) & (kappas > 0)[:, None], gain, 0.0)
        parts = np.concatenate([of_head.parts, gain[:, :, None]], axis=2)
        return Reasons(p, parts, np.where(kappas > 0, there.nearest, -1))

    def _look(
        self, items: Items, store: Store
    ) -> tuple[Items, Positions, npt.NDArray[np.float32] | None]:
        """Look up what is near items that are not stored; return their scaled rows, too."""
        n, lo, hi = len(store), None, None
        if not n:
            nobody = np.full((items.rows.shape[0], self.n_votes), -1, np.int64)
            near = _NO_POSITIONS if self._recent is None else nobody[:, :1]
            return items._replace(found=nobody), near, None
        if self._recent is None:
            if items.found is None:
                found = lookup.nearest_rows(store, items.rows, self.n_asked(store))[1]
                items = items._replace(found=found)
            return items, _NO_POSITIONS, None
        scaled = self._scaled(items.rows)
        if len(self._recent) > RECENT:  # where labels come late
            lo, hi = np.full(len(scaled), n - RECENT), np.full(len(scaled), n)
        if items.found is None:
            items = items._replace(found=self._near(scaled, self.n_votes, n, lo, hi))
        return items, self._near(scaled, NEAR, n, lo, hi), scaled

    def _near_drawn(self, drawn: _Drawn, rows: Rows, store: Store, k: int = NEAR) -> Positions:
        """Return the k nearest of the drawn rows, (m, k)."""
        # Since they were drawn, items have only been added at the end, and dropped by the window.
        dropped = drawn.n_stored + store.facts.n_seen - drawn.n_seen - len(store)
        at, m, lo, hi = drawn.at - dropped, rows.shape[0], None, None
        if dropped and len(at) and at[0] < 0:
            gone = int(np.count_nonzero(at < 0))
            lo, hi = np.full(m, gone), np.full(m, len(at))
        found = drawn.rows.search(self._scaled(rows), min(k, max(len(at), 1)), lo, hi)[1]
        return np.where(found >= 0, at[np.maximum(found, 0)], -1) if len(at) else found

    def _most_similar(self, items: Items, store: Store, near: Positions) -> Nearest:
        """Return the most similar of the neighbours of each item."""
        assert items.found is not None
        if not len(store):
            m = items.rows.shape[0]
            return Nearest(np.full(m, -1, np.int64), np.full(m, -np.inf))
        candidates = items.found
        if near.size:
            candidates = np.concatenate([candidates, near[:, :1]], axis=1)
        factor = None if self.plain else self._factor
        return lookup.similar(store, items.rows, candidates, factor)

    def _gather(
        self,
        items: Items,
        store: Store,
        near: Positions,
        nearest: Nearest,
        kept: Positions | None = None,
        *,
        before: Looked | None = None,
        twins: bool = True,
    ) -> Gathered:
        """Ask the store for labels; those before ``kept`` fall out of the window.

        ``nearest`` is the most similar stored item of each.  Of stored items that equal it, the one
        that was corrected last takes its place, if ``twins``.  ``before``: what was found about
        the same items when they were asked about.
        """
        assert items.found is not None
        if twins:
            nearest = self._corrected_first(nearest, items.rows, store, kept)
        nearest = _named_first(nearest, items, store)
        gone = _NONE_GONE if kept is None else np.arange(kept[0], kept[-1])
        there = store.neighbors(items.found, near, nearest.positions, gone)
        found, near, copied, gone = there.rows
        if kept is not None:
            kept = kept - kept[0] + (gone[0] if len(gone) else 0)
        Z = _NO_Z if items.Z is None else items.Z
        evidence = Evidence(found, near, there.labels, there.known, Z, items.inputs)
        evidence = self._say_names(evidence, items.rows, before)
        copy_of = Nearest(copied, nearest.similarities)
        return Gathered(evidence, nearest.positions, copy_of, there.corrected, kept)

    @staticmethod
    def _corrected_first(
        nearest: Nearest, rows: Rows, store: Store, kept: Positions | None
    ) -> Nearest:
        """Of stored items that equal a row, take the one that was corrected last."""
        twins = lookup.corrected_twins(store, rows, None if kept is None else kept[:-1])
        if twins is None:
            return nearest
        there = twins >= 0
        return Nearest(
            np.where(there, twins, nearest.positions), np.where(there, 1.0, nearest.similarities)
        )

    def _blend(self, p: Vector, there: Gathered) -> tuple[Vector, Vector]:
        evidence = there.evidence
        return self.copies.blend(
            p, there.copied, evidence.labels, evidence.known, corrected=there.corrected
        )

    # ------------------------------------------------------------------ state
    def snapshot(self) -> Belief:
        """Return an immutable picture."""
        twin = object.__new__(Belief)
        twin.__dict__.update(self.__dict__)
        twin.head, twin.fast = self.head.snapshot(), self.fast.snapshot()
        twin.copies = self.copies.snapshot()
        twin.honest_next = self.honest_next.snapshot()
        twin.honest_any = self.honest_any.snapshot()
        twin.any = None if self.any is None else self.any.snapshot()
        twin._recent = None if self._recent is None else self._recent.snapshot()
        return twin

    def dump(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "head": self.head.dump(),
            "any": None if self.any is None else self.any.dump(),
            "drawn": _NONE_GONE if self._drawn is None else self._drawn.numbers.copy(),
            "fast": self.fast.dump(),
            "copies": self.copies.dump(),
            "naming": None if self.naming is None else self.naming.dump(),
            "honest_next": self.honest_next.dump(),
            "honest_any": self.honest_any.dump(),
            "watched": copied(self._counted) if self.watches else None,
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
        sparse: bool,
        basis: Basis | None = None,
    ) -> None:
        """Take over what :meth:`dump` gave, of a stream of ``n_seen`` examples.

        ``wide``: the regression takes sparse rows; ``width``: so many features, 0 before there is
        one; ``sparse``: rows are; ``basis``: that of reduced labels.
        """
        keys = ("head", "any", "drawn", "fast", "copies", "factor", "n_recent", "votes", "lag")
        expect_keys("the belief", state, *keys, "naming", "honest_next", "honest_any", "watched")
        # Its own, which parameters that were changed since do not change.
        (lag,) = expect_counts("lag", state["lag"], most=LARGEST_LAG)
        votes = state["votes"]
        if type(votes) is not list or len(votes) != len(self.head.votes):
            raise ValueError(f"votes must be {len(self.head.votes)} counts, got {votes!r}")
        expect_counts("votes", *votes, most=MOST_VOTES)
        if votes[0] < 1 or votes != sorted(votes):
            raise ValueError(f"votes must rise from at least 1, got {votes}")
        near, named = not self.plain, state["naming"] is not None
        self.naming = None
        if named:
            self.naming = Naming.load(state["naming"], q, self.n_features, sparse=sparse)
        of: Any = {"votes": tuple(votes), "near": near, "names": named}
        self.head = Head.load(state["head"], q, lag=lag, **of)
        self.any = None if state["any"] is None else AnyHead.load(state["any"], q, **of)
        for past in (self.head.now, self.head.behind):
            if max(np.abs(counts).max(initial=0) for counts in past[:3]) > n_seen:
                raise ValueError(f"the head must count at most the {n_seen} examples seen")
        self.fast = FastMap.load(state["fast"], q, sparse=wide, width=width, basis=basis)
        self.copies = Copies.load(state["copies"])
        self.honest_next = HonestScores.load(state["honest_next"], q, store.window)
        self.honest_any = HonestScores.load(state["honest_any"], q, store.window)
        self.watches = state["watched"] is not None
        if self.watches:
            self._counted = _load_counts(state["watched"], q, n_seen)
        shape = self._factor.shape
        self._factor = expect(
            "factor", state["factor"], np.float64, shape, least=0, most=1 / FLATTEST
        )
        (n,) = expect_counts("n_recent", state["n_recent"])
        if n > (min(len(store), self._n_recent(store)) if near else 0):
            raise ValueError(f"n_recent must be a count of stored rows, got {n}")
        if self._recent is not None:
            self._recent.append(self._scaled(store.take(ROWS, slice(len(store) - n, None))))
        drawn = self._numbers_drawn(state["drawn"], store)
        if len(drawn):
            self._draw(drawn, store)

    def load_replayed(self, head: Any, drawn: Any, honest: Any, q: int, store: Store) -> Replayed:
        """Return what the any-head has learnt at a fit under way, as a file holds it."""
        named = self.naming is not None
        made = AnyHead.load(head, q, votes=self.head.votes, near=not self.plain, names=named)
        entries: list[Entries] = [load_entries(some, q) for some in honest]
        return Replayed(made, self._numbers_drawn(drawn, store), entries)

    def _numbers_drawn(self, drawn: Any, store: Store) -> Positions:
        numbers: Positions = expect("drawn", drawn, np.int64, (None,))
        if len(numbers) > (0 if self.plain else DRAWN):
            raise ValueError(f"drawn must be at most {DRAWN} numbers of dense rows")
        n_seen = store.facts.n_seen
        if (np.diff(numbers, prepend=-1) <= 0).any() or numbers.max(initial=-1) >= n_seen:
            raise ValueError(f"drawn must rise within 0 to {n_seen - 1}")
        return numbers


def _widened(counts: History, q: int) -> History:
    """Return counts of ``q`` labels; of new ones there is nothing yet."""
    more = q - len(counts.n)
    if not more:
        return counts
    wide = {k: v if k == "t" else np.pad(v, (0, more)) for k, v in counts._asdict().items()}
    return History(**wide)


def _load_counts(state: Any, q: int, n_seen: int) -> History:
    """Return the counts of labels that a file holds."""
    expect_keys("the watched counts", state, *History._fields)
    whole = {
        name: expect(name, state[name], np.int64, (None,), least=0, most=n_seen)
        for name in ("n", "missing", "t")
    }
    rest = {
        name: expect(name, state[name], np.float64, (None,), least=0, most=1)
        for name in ("last", "fast", "slow")
    }
    counts = History(**whole, **rest)
    sizes = {len(part) for i, part in enumerate(counts) if i != 2}
    if len(counts.t) != 1 or len(sizes) != 1 or max(sizes) > q:
        raise ValueError("the watched counts must be of the labels that there are")
    return counts


def without_self(found: Positions, positions: Positions) -> Positions:
    """Return neighbours (m, k) of stored items without the items themselves, (m, k − 1).

    Where older copies of the item crowd it out of its own list, the last one goes.

    Examples
    --------
    >>> without_self(np.array([[4, 2, 7], [1, 3, 5]]), np.array([2, 9])).tolist()
    [[4, 7], [1, 3]]
    """
    own = found == positions[:, None]
    own[~own.any(axis=1), -1] = True
    others: Positions = found[~own].reshape(len(found), found.shape[1] - 1)
    return others


def _named_first(nearest: Nearest, items: Items, store: Store) -> Nearest:
    """Have the stored item of the same name speak before others that have the same row.

    A name alone decides nothing: the row of the stored item must be the same.
    """
    if items.ids is None:
        return nearest
    # Where nothing is nearly the same, no stored row is the same: there is nothing to look up.
    alike = np.flatnonzero(nearest.similarities >= BINS[-1]).tolist()
    named = {
        i: lookup.position_of(store, name) for i in alike if (name := items.ids[i]) is not None
    }
    who = [i for i, at in named.items() if at is not None]
    if not who:
        return nearest
    at = np.array([named[i] for i in who])
    same = np.asarray((store.take(ROWS, at) != items.rows[who]).sum(axis=1)).ravel() == 0
    positions, similarities = nearest.positions.copy(), nearest.similarities.copy()
    positions[np.array(who)[same]], similarities[np.array(who)[same]] = at[same], 1.0
    return Nearest(positions, similarities)


def _part_of(inputs: Inputs, part: slice) -> Inputs:
    """Return some of the rows."""
    if len(inputs.indptr):
        bounds = inputs.indptr[part.start : part.stop + 1]
        entries = slice(bounds[0], bounds[-1])
        return inputs._replace(
            indptr=bounds - bounds[0], indices=inputs.indices[entries], data=inputs.data[entries]
        )
    return inputs._replace(dense=inputs.dense[part]) if len(inputs.dense) else inputs
