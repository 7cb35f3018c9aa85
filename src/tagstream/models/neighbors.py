"""What the learners that ask stored neighbours share: store, search, vote, explanation, events."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from tagstream.base import StreamClassifier, check_name
from tagstream.belief import PARTS, Belief, Items, Reasons
from tagstream.checks import Rows, check_choice, check_number, cut_rows
from tagstream.decision import MACRO, check_rule, decide
from tagstream.examples import count_labels
from tagstream.fastmap import Basis
from tagstream.labels import Labels, as_array, read_labels
from tagstream.memory import LocalStore, Store
from tagstream.threads import in_threads

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["BLOCK", "Explanation", "Item", "Located", "Neighbor", "NeighborClassifier"]

Positions = npt.NDArray[np.int64]

BLOCK = 4096  # examples that are embedded and looked up at a time,
CELLS = 1 << 22  # or fewer where there are many labels,
SHARED = 512  # or where threads share them


@dataclass(frozen=True)
class Neighbor:
    """A stored item that voted: its name, its distance, its labels, and its text if it is kept."""

    id: Hashable
    distance: float
    labels: tuple[Hashable, ...]
    text: str | None = None


@dataclass(frozen=True)
class Explanation:
    """Why an item got its labels.

    Attributes
    ----------
    neighbors : tuple of Neighbor
        The stored items that voted, nearest first.
    scores : dict
        Label name to score, for each label that is suggested or that any neighbour has, highest
        first.
    voters : dict
        Suggested label name to the names of the neighbours that voted for it.
    parts : dict
        Suggested label name to what each source adds to its log-odds: votes, regression, fast
        map, prior, recent labels, copy.  Empty for learners without a head.
    copy_of : Neighbor or None
        The stored item that is nearly the same, feature by feature, and lent its labels.  It need
        not be among the nearest, whose distances are those of what matters to labels.
    corrected : bool
        Whether that item was corrected.
    """

    neighbors: tuple[Neighbor, ...]
    scores: dict[Hashable, float]
    voters: dict[Hashable, tuple[Hashable, ...]]
    parts: dict[Hashable, dict[str, float]] = field(default_factory=dict)
    copy_of: Neighbor | None = None
    corrected: bool = False


class Item(NamedTuple):
    """A stored item.

    Attributes
    ----------
    row : array or CSR matrix of shape (1, p)
    labels : set
        The names of the labels that it is known to have.
    unknown : set
        Of which it is not known whether it has them.
    """

    row: Rows
    labels: set[Hashable]
    unknown: set[Hashable]


class Located(NamedTuple):
    """Items, and what is near them.

    Attributes
    ----------
    items : Items
    squares : array of shape (m, k)
        Squared distances of the stored items at ``items.found``, nearest first; infinity where
        there are fewer.
    scale : float
        What their roots are to be multiplied by.
    """

    items: Items
    squares: npt.NDArray[np.float64]
    scale: float = 1.0

    @property
    def distances(self) -> npt.NDArray[np.float64]:
        """Distances of the nearest stored items, (m, k)."""
        distances: npt.NDArray[np.float64] = np.sqrt(self.squares) * self.scale
        return distances

    @property
    def found(self) -> npt.NDArray[np.int64]:
        """Positions of the nearest stored items, (m, k); −1 where there are fewer."""
        assert self.items.found is not None
        return self.items.found


class NeighborClassifier(StreamClassifier):
    """A learner that stores examples and lets the nearest ones vote.

    A subclass makes ``_store`` and says in ``_locate`` what is near.
    """

    n_neighbors: int
    window: int | None
    store: Any = None
    head: bool = False
    lag: int = 0
    _store: Store
    _belief: Belief | None = None

    def _locate(
        self, rows: Rows, k: int, lo: Positions | None = None, hi: Positions | None = None
    ) -> Located:
        """Return the k nearest of all stored items, or of those at [lo, hi), of each row.

        Rows are of single precision.
        """
        raise NotImplementedError

    def _check_neighbors(self) -> None:
        """Check the parameters that all of them have."""
        check_number("n_neighbors", self.n_neighbors, kind=int, least=1, most=1e6)
        check_number("window", self.window, kind=int, least=1, none=True)
        check_rule("decide", self.decide)
        check_choice("head", self.head, (True, False))
        if self.decide == MACRO and not self.head:
            raise ValueError("decide must not be 'macro' without a head; set head=True")
        check_number("lag", self.lag, kind=int, least=0, most=1e6)
        if self.store is not None and not hasattr(self.store, "open"):
            raise ValueError(f"store must be None or have open(), got {self.store!r}")

    def _open_store(self) -> Store:
        """Return an empty store."""
        if self.store is None:
            return LocalStore(self.n_features_in_, sparse=self._sparse, window=self.window)
        made: Store = self.store.open(self.n_features_in_, sparse=self._sparse, window=self.window)
        return made

    def _bars(self) -> npt.NDArray[np.float64] | None:
        return None if self._belief is None else self._belief.head.bars

    def _new_belief(self) -> Belief | None:
        """Return a head that has learnt nothing, if there is to be one.

        It looks at the votes of a third of the neighbours, of all, and of three times as many.
        """
        if not self.head:
            return None
        k = self.n_neighbors
        votes = (max(1, (3 * k + 5) // 10), k, 3 * k)
        return Belief(self.n_features_in_, sparse=self._sparse, votes=votes, lag=self.lag)

    def _load_belief(
        self, state: Any, *, wide: bool, width: int = 0, basis: Basis | None = None
    ) -> None:
        """Take over the head that a file holds.

        ``wide``: the regression takes sparse rows; ``width``: so many features, 0 before there is
        one; ``basis``: that of reduced labels.
        """
        self._belief = self._new_belief()
        if (self._belief is None) != (state is None):
            raise ValueError("there must be a head if and only if it is asked for")
        if self._belief is not None:
            self._belief.load(
                state, len(self.classes_), self._store,
                wide=wide, width=width, n_seen=self.n_seen_, basis=basis,
            )  # fmt: skip

    def _load_store(self, state: Any) -> Store:
        """Return the stored examples that a file holds."""
        load = LocalStore.load if self.store is None else self.store.load
        store: Store = load(state, sparse=self._sparse, window=self.window)
        if (store.n_features, store.n_labels) != (self.n_features_in_, len(self.classes_)):
            raise ValueError(
                f"the store must have {self.n_features_in_} features and {len(self.classes_)} "
                f"labels, got {store.n_features} and {store.n_labels}"
            )
        if store.n_seen != self.n_seen_:
            raise ValueError(f"the store must have seen {self.n_seen_} rows, got {store.n_seen}")
        return store

    def _n_asked(self) -> int:
        """Return how many neighbours are looked up: those that vote, or that the head asks."""
        if not self.n_neighbors >= 1:  # changed since it was last checked
            self._check_params()
        if self._belief is not None:
            return self._belief.n_asked(self._store)
        return min(self.n_neighbors, max(len(self._store), 1))

    def _proba(self, X: Rows) -> npt.NDArray[np.float64]:
        rows = X.astype(np.float32, copy=False)
        if not len(self._store):
            return np.zeros((rows.shape[0], len(self.classes_)))
        k, size = self._n_asked(), self._block()
        shared = rows.shape[0] >= 2 * SHARED and isinstance(self._store, LocalStore)
        size = min(size, SHARED) if shared else size

        def score(first: int) -> npt.NDArray[np.float64]:
            return self._scored(self._locate(cut_rows(rows, first, first + size), k))

        starts = range(0, max(rows.shape[0], 1), size)
        parts = list(in_threads(score, starts, worth=shared))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _block(self) -> int:
        """Return how many examples are looked at together."""
        return min(BLOCK, 1 + CELLS // max(len(self.classes_), 1))

    def _scored(self, located: Located) -> npt.NDArray[np.float64]:
        """Return the scores of located items."""
        if self._belief is None:
            return self._store.votes(located.found)
        return self._belief.scores(self._to_weigh(located), self._store)

    def _to_weigh(self, located: Located) -> Items:
        """Return items as the head is to see them."""
        return located.items

    # ------------------------------------------------------------------ learning
    def _next_stop(self, seen: int) -> int:
        """Return the count of examples, above ``seen``, at which a block has to end."""
        raise NotImplementedError

    def _stop(self, seen: int) -> None:
        """Do what is to be done when so many examples are learnt."""
        raise NotImplementedError

    def _learn_block(
        self, rows: Rows, labels: Labels, ids: Sequence[Hashable] | None, seen: int
    ) -> None:
        """Learn some rows of single precision, ``seen`` examples having been learnt before."""
        raise NotImplementedError

    def _learn(self, X: Rows, labels: Labels, ids: Sequence[Hashable] | None) -> None:
        rows = X.astype(np.float32, copy=False)
        n, seen, done = rows.shape[0], self.n_seen_, 0
        while done < n:
            stop = self._next_stop(seen)
            size = 1
            if n > 1:
                size = min(n - done, stop - seen, self._store.block_size(self._block()))
            if size == n:
                self._learn_block(rows, labels, ids, seen)
            else:
                part = slice(done, done + size)
                known = None if labels.known is None else labels.known[part]
                named = None if ids is None else ids[part]
                self._learn_block(rows[part], Labels(labels.Y[part], known), named, seen)
            self._store.forget()
            done, seen = done + size, seen + size
            if seen == stop:
                self._stop(seen)

    # ------------------------------------------------------------------ corrections
    def item(self, id: Hashable) -> Item:
        """Return a stored item: its row, and its labels."""
        with self._lock:
            position = self._position(id)
            (has,), known = self._store.labels([position])
            row = self._store.take(slice(position, position + 1))
            unsure = np.zeros(len(has), np.bool_) if known is None else ~known[0]
            return Item(row.copy(), self._named(has), self._named(unsure))

    def _named(self, chosen: Any) -> set[Hashable]:
        """Return the names of some labels."""
        names = self.classes_.tolist()
        return {names[j] for j in np.flatnonzero(chosen)}

    def relabel(self, id: Hashable, labels: Any, classes: Any = None) -> Self:
        """Give a stored item other labels: a correction.

        Parameters
        ----------
        id
            The name it was learnt with, by default its number in the stream.  Of several items of
            that name, the newest.
        labels : set of label names, or 0/1 vector
            All the labels that it has.  New names are added to ``classes_``.
        classes : sequence of label names, optional
            For a 0/1 vector: the names of its entries.
        """
        with self._lock:
            position = self._position(id)
            self._check_params()
            if self._single and not isinstance(labels, (set, frozenset, list, tuple, np.ndarray)):
                labels = {labels}  # the one that it has
            named = isinstance(labels, (set, frozenset, list, tuple))
            if not named and not isinstance(labels, np.ndarray):
                raise ValueError(f"labels must be a set of names or a 0/1 vector, got {labels!r}")
            form: Any = [labels] if named else np.atleast_2d(labels)
            batch = read_labels(form, classes, self.classes_.tolist())
            if len(batch.labels.Y) != 1 or batch.single:
                raise ValueError("labels must be those of one item")
            if self._single and batch.labels.Y.sum() != 1:
                raise ValueError(f"labels must be one label as in earlier calls, got {labels!r}")
            self._set_names(batch.names)
            self._relabel(position, batch.labels)
        return self

    def forget(self, id: Hashable) -> Self:
        """Take a stored item out, as if it had never been stored."""
        with self._lock:
            self._forget(self._position(id))
        return self

    def merge_labels(self, names: Sequence[Hashable], into: Hashable) -> Self:
        """Make several labels one: an item has it if it had any of them.

        ``into`` may be one of them, another label, or a new name.
        """
        with self._lock:
            check_is_fitted(self)
            into = check_name("into", into)
            merged = {self._column(name) for name in names}
            if not merged:
                raise ValueError("names must hold at least one label, got none")
            known = self.classes_.tolist()
            if into in known:
                merged.add(self._column(into))
            target = known.index(into) if into in known else min(merged)
            columns = [
                sorted(merged) if j == target else [j]
                for j in range(len(known))
                if j == target or j not in merged
            ]
            kept = [known[c[0]] if len(c) == 1 else into for c in columns]
            kept[[target in c for c in columns].index(True)] = into
            self._change_labels(columns, kept)
        return self

    def remove_label(self, name: Hashable) -> Self:
        """Take a label away from all items, and out of ``classes_``."""
        with self._lock:
            check_is_fitted(self)
            gone = self._column(name)
            known = self.classes_.tolist()
            columns = [[j] for j in range(len(known)) if j != gone]
            self._change_labels(columns, [n for n in known if n != name])
        return self

    def _position(self, id: Hashable) -> int:
        check_is_fitted(self)
        position = self._store.position_of(id) if isinstance(id, Hashable) else None
        if position is None:
            raise KeyError(f"no stored item is called {id!r}")
        return position

    def has_item(self, id: Hashable) -> bool:
        """Tell whether an item of that name is stored."""
        with self._lock:
            return hasattr(self, "n_seen_") and self._store.position_of(id) is not None

    def _change_labels(self, columns: list[list[int]], names: list[Hashable]) -> None:
        """Make label j the union of the old ``columns[j]``, and call it ``names[j]``."""
        self._store.map_labels(columns)
        self.classes_ = as_array(names)
        if self._belief is not None:
            self._belief.keep(columns, self._store)

    def _relabel(self, position: int, labels: Labels) -> None:
        """Give the item at a position other labels."""
        old = self._store.relabel(position, labels)
        if self._belief is not None:
            row = self._store.take(slice(position, position + 1))
            self._belief.relabel(self._locate(row, 1).items, old, labels)

    def _forget(self, position: int) -> None:
        """Take the item at a position out."""
        old = self._store.remove(position)
        if self._belief is not None:
            self._belief.forget(position, old, self._store)

    # ------------------------------------------------------------------ what is stored
    @property
    def n_stored_(self) -> int:
        """How many items are stored."""
        return len(self._store)

    @property
    def ids_(self) -> list[Hashable]:
        """The names of the stored items, oldest first."""
        with self._lock:
            return self._store.ids(np.arange(len(self._store)))

    @property
    def label_counts_(self) -> npt.NDArray[np.int64]:
        """How many of the stored items have each label, in the order of ``classes_``."""
        if not len(self._store):
            return np.zeros(len(self.classes_), np.int64)
        counts: npt.NDArray[np.int64] = self._store.examples().sum(count_labels)[0]
        return counts

    def kneighbors(
        self, X: Any, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """Return the nearest stored items of each row.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (m, p)
        n_neighbors : int, optional
        return_distance : bool

        Returns
        -------
        distances : array of shape (m, k), if asked for
        numbers : int array of shape (m, k)
            The items' places in the stream, counted from 0.
        """
        with self._lock:
            check_is_fitted(self)
            rows = self._check_query(X).astype(np.float32, copy=False)
            k = self.n_neighbors if n_neighbors is None else n_neighbors
            check_number("n_neighbors", k, kind=int, least=1)
            located = self._locate(rows, min(k, len(self._store)))
            numbers = self._store.numbers(located.found)
        return (located.distances, numbers) if return_distance else numbers

    def explain(self, X: Any) -> list[Explanation]:
        """Tell for each row why it gets its labels: who is near, and what spoke for each label."""
        with self._lock:
            check_is_fitted(self)
            rows = self._check_query(X).astype(np.float32, copy=False)
            located = self._locate(rows, self._n_asked())
            reasons = None
            if not len(self._store):
                scores = np.zeros((rows.shape[0], len(self.classes_)))
            elif self._belief is None:
                scores = self._scored(located)
            else:
                reasons = self._belief.reasons(self._to_weigh(located), self._store)
                scores = reasons.p
            scores = self._shares(scores)
            if self._single:
                chosen = scores.argmax(axis=1)[:, None] == np.arange(scores.shape[1])
            else:
                chosen = decide(scores, self.decide, self._bars())
            return [
                self._explain_one(located, scores[i], chosen[i], reasons, i)
                for i in range(rows.shape[0])
            ]

    def _explain_one(
        self, located: Located, scores: Any, chosen: Any, reasons: Reasons | None, i: int
    ) -> Explanation:
        names = self.classes_.tolist()
        found = located.found[i, : self.n_neighbors]
        found = found[found >= 0]
        neighbors = self._neighbors(found, np.sqrt(located.squares[i]) * located.scale)
        labels = self._store.labels(found).Y.astype(bool)
        order = np.argsort(-scores, kind="stable").tolist()
        suggested = [j for j in order if chosen[j]]
        voters = {
            names[j]: tuple(n.id for n, has in zip(neighbors, labels, strict=True) if has[j])
            for j in suggested
        }
        shown = {names[j]: float(scores[j]) for j in order if chosen[j] or labels[:, j].any()}
        if reasons is None:
            return Explanation(neighbors, shown, voters)
        parts = {
            names[j]: dict(zip(PARTS, reasons.parts[i, j].tolist(), strict=True)) for j in suggested
        }
        copied = int(reasons.copy_of[i])
        if copied < 0:
            return Explanation(neighbors, shown, voters, parts)
        alone = np.array([copied])
        distance = self._locate(
            cut_rows(located.items.rows, i, i + 1), 1, alone, alone + 1
        ).distances
        (copy_of,) = self._neighbors(alone, distance[0])
        corrected = bool(self._store.corrected([copied])[0])
        return Explanation(neighbors, shown, voters, parts, copy_of, corrected)

    def _neighbors(self, found: npt.NDArray[np.int64], distances: Any) -> tuple[Neighbor, ...]:
        names = self.classes_.tolist()
        labels = self._store.labels(found).Y
        return tuple(
            Neighbor(i, float(far), tuple(names[j] for j in np.flatnonzero(has)))
            for i, far, has in zip(self._store.ids(found), distances, labels, strict=False)
        )
