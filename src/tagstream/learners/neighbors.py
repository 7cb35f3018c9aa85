"""What the learners that ask stored neighbours share: store, search, vote, explanation, events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from tagstream.checks import Positions, Rows, check_choice, check_number, cut_rows
from tagstream.decision import MACRO, Seen, check_rule, decide, promise_of
from tagstream.engine.asked import Asked
from tagstream.engine.embedding import Embedded
from tagstream.evidence.fastmap import Basis
from tagstream.evidence.honest import Entries
from tagstream.evidence.promise import Tracked
from tagstream.evidence.scoring import PARTS, Belief, Items, Looked, Reasons, without_self
from tagstream.execution.threads import in_threads
from tagstream.labels.read import Batch, Labels, as_array, read_labels
from tagstream.learners.estimator import Change, StreamClassifier, check_name
from tagstream.notebook import explanation_html
from tagstream.store import changes, lookup
from tagstream.store.contents import digests
from tagstream.store.local import LocalStore
from tagstream.store.protocol import CORRECTED, IDS, LABELS, NUMBERS, ROWS, Store
from tagstream.store.sums import count_labels

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "BLOCK",
    "Explanation",
    "Item",
    "Located",
    "Neighbor",
    "NeighborClassifier",
    "StoredBlock",
]

NameRows = Callable[[list[Any]], Rows]  # names of labels to rows, (n, p)

BLOCK = 4096  # examples that are embedded and looked up at a time,
CELLS = 1 << 22  # or fewer where there are many labels,
SHOWN = 60  # characters of a text in an explanation


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
        map, prior, recent labels, copy, and name where names are evidence.  Empty for learners
        without a head.
    copy_of : Neighbor or None
        The stored item that is nearly the same, feature by feature, and lent its labels.  It need
        not be among the nearest, whose distances are those of what matters to labels.
    corrected : bool
        Whether that item was corrected.
    words : dict
        Label name to the words that spoke for it, and against it (below zero): what its log-odds
        lose if the word is left out, the strongest first.  A tagger fills it in for texts and named
        values.
    """

    neighbors: tuple[Neighbor, ...]
    scores: dict[Hashable, float]
    voters: dict[Hashable, tuple[Hashable, ...]]
    parts: dict[Hashable, dict[str, float]] = field(default_factory=dict)
    copy_of: Neighbor | None = None
    corrected: bool = False
    words: dict[Hashable, dict[str, float]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return what a person wants to read: one line for each suggested label, and why."""
        lines = [self._line(label) for label in self.voters] or ["No label is suggested."]
        if not self.voters and self.scores:
            label, score = max(self.scores.items(), key=lambda pair: pair[1])
            lines.append(f"The likeliest is {label} ({score:.0%}).")
        if self.copy_of is not None:
            mark = ", which was corrected" if self.corrected else ""
            has = ", ".join(map(str, self.copy_of.labels)) or "no label"
            lines.append(f"It is nearly the same as item {self.copy_of.id}{mark}: {has}.")
        return "\n".join(lines)

    def _line(self, label: Hashable) -> str:
        words, voters = self.words.get(label, {}), self.voters[label]
        said = [f"{label} ({self.scores[label]:.0%})"]
        for what, sign in (("for it", 1), ("against it", -1)):
            some = [word for word, change in words.items() if change * sign > 0]
            if some:
                said.append(f"{what}: {', '.join(some)}")
        n = len(self.neighbors)
        near = f"{len(voters)} of the {n} nearest items have it"
        if voters:
            first = next(one for one in self.neighbors if one.id == voters[0])
            text = "" if first.text is None else f' "{_beginning(first.text)}"'
            near += f", the nearest is {first.id}{text}"
        return "; ".join([*said, near]) + "."

    def _repr_html_(self) -> str:
        return explanation_html(self)


def _joined(parts: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """Return arrays one below the other; a single one as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _beginning(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"


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


class StoredBlock(NamedTuple):
    """Stored items that were asked about, each without itself.

    Attributes
    ----------
    positions : int array of shape (m,)
        Where they are stored, oldest first.
    scores : array of shape (m, q)
        As for any item that is not stored.
    Y : uint8 array of shape (m, q)
        Their labels.
    known : bool array of shape (m, q)
        Which of them are known.
    found : int array of shape (m, k)
        Where the nearest other items are stored, nearest first; −1 where there are fewer.
    """

    positions: Positions
    scores: npt.NDArray[np.float64]
    Y: npt.NDArray[np.uint8]
    known: npt.NDArray[np.bool_]
    found: Positions


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
    embedded : Embedded or None
        The items in the metric space, once there is one.
    """

    items: Items
    squares: npt.NDArray[np.float64]
    scale: float = 1.0
    embedded: Embedded | None = None

    def named(self, ids: Sequence[Hashable | None] | None) -> Located:
        """Return the same items with their names, None where one has none."""
        return self._replace(items=self.items._replace(ids=ids))

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


class Found(NamedTuple):
    """Some items that were asked about, with what is near them and what they are answered by.

    Attributes
    ----------
    located : Located
    looked : Looked or None
        Where there is a head.
    scores : array of shape (m, q)
    """

    located: Located
    looked: Looked | None
    scores: npt.NDArray[np.float64]


class NeighborClassifier(StreamClassifier):
    """A learner that stores examples and lets the nearest ones vote.

    A subclass makes ``_store`` and says in ``_locate`` what is near.
    """

    n_neighbors: int
    window: int | None
    store: Any = None
    head: bool = False
    lag: int = 0
    n_since_fit_: Any  # where there is a head: how many examples came since the last fit
    _store: Store
    _belief: Belief | None = None
    _rows_of_names: NameRows | None = None  # if the names of labels are evidence

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
        if (self.decide == MACRO or promise_of(self.decide)) and not self.head:
            raise ValueError(f"decide must not be {self.decide!r} without a head; set head=True")
        check_number("lag", self.lag, kind=int, least=0, most=1e6)
        if self.store is not None and not hasattr(self.store, "open"):
            raise ValueError(f"store must be None or have open(), got {self.store!r}")

    def _open_store(self) -> Store:
        """Return an empty store."""
        if self.store is None:
            return LocalStore(
                self.n_features_in_,
                sparse=self._sparse,
                window=self.window,
                limits=self._limits,
            )
        made: Store = self.store.open(self.n_features_in_, sparse=self._sparse, window=self.window)
        return made

    def _bars(self, rule: str | float, *, next: bool) -> npt.NDArray[np.float64] | None:
        belief, said = self._belief, promise_of(rule)
        if belief is None or (rule != MACRO and said is None):
            return None
        if said is None:
            return belief.bars(next=next)
        what, share = said
        if what == "recall":
            return belief.recall_bars(share, next=next)
        return belief.tracked(np.full(len(self.classes_), share), next=next).bars

    def watch(self) -> None:
        """Ask about each example as any item too before it is learnt, from now on.

        So promises about any item notice at once if examples change; by themselves they notice at
        the next fit.  Learning takes a little longer.
        """
        with self._lock:
            check_is_fitted(self)
            if self._belief is not None:
                self._belief.watch()

    def honest_scores(self, *, next: bool = False) -> Entries:
        """Return the latest scores that were made before their items were learnt, oldest first."""
        with self._lock:
            check_is_fitted(self)
            belief = self._belief
            if belief is None:
                raise ValueError("honest scores need a learner with a head")
            return (belief.honest_next if next else belief.honest_any).entries

    def promised(self, promises: Mapping[Hashable, float], *, next: bool = False) -> Tracked:
        """Return how promised precisions of some labels are kept.

        See :mod:`tagstream.evidence.promise`.

        Parameters
        ----------
        promises : mapping
            Label to promised precision.
        next : bool
            Of the scores for the next item of the stream, instead of those for any item.
        """
        with self._lock:
            check_is_fitted(self)
            if self._belief is None:
                raise ValueError(
                    "a promise needs a learner with a head; use OML, or KNN(head=True)"
                )
            values = [promises.get(name, 1.0) for name in self.classes_.tolist()]
            return self._belief.tracked(np.array(values, np.float64), next=next)

    @property
    def _plain(self) -> bool:
        """Whether the head takes rows as they are: it neither scales nor centres columns."""
        return self._sparse

    def _new_belief(self) -> Belief | None:
        """Return a head that has learnt nothing, if there is to be one.

        It looks at the votes of a third of the neighbours, of all, and of three times as many.
        """
        if not self.head:
            return None
        k = self.n_neighbors
        votes = (max(1, (3 * k + 5) // 10), k, 3 * k)
        names = ""
        if self._rows_of_names is not None:
            names = "sparse" if self._sparse else "dense"
        made = Belief(
            self.n_features_in_, plain=self._plain, votes=votes, lag=self.lag, names=names,
            window=self.window,
        )  # fmt: skip
        made.watches = promise_of(self.decide) is not None
        return made

    def _begin(self, X: Any, rows: Rows, batch: Batch) -> None:
        if rows.shape[1] != getattr(self, "n_features_in_", rows.shape[1]):
            self._forget_columns()
        super()._begin(X, rows, batch)

    def _forget_columns(self) -> None:
        """Forget what was said about columns: rows have others from now on."""
        self._rows_of_names = None

    # ------------------------------------------------------------------ names as evidence
    def use_names(self, rows_of_names: NameRows) -> Self:
        """Have the names of labels be evidence (:mod:`tagstream.evidence.naming`).

        Parameters
        ----------
        rows_of_names : callable
            Returns for a list of n names their rows, (n, p), made as rows of items are.  It is
            asked once for each label, when that is first met.
        """
        with self._lock:
            self._rows_of_names = rows_of_names
            belief = self._belief
            if hasattr(self, "n_seen_") and belief is not None and belief.naming is None:
                with Change(self):
                    self._renewal_is_void()
                    belief.take_names(self._named_rows(self.classes_.tolist()))
        return self

    @property
    def names_count_(self) -> bool:
        """Whether the names of labels are evidence."""
        return self._belief is not None and self._belief.naming is not None

    def declare_labels(self, names: Sequence[Hashable]) -> Self:
        """Make labels known before they have an example; they get scores by their names.

        Needs :meth:`use_names`, and at least one call that says how many columns rows have.
        """
        with self._lock:
            check_is_fitted(self)
            if not self.names_count_:
                raise ValueError("labels must have names that are evidence to be declared")
            known, checked = self.classes_.tolist(), [check_name("a label", n) for n in names]
            new = [name for name in dict.fromkeys(checked) if name not in set(known)]
            with Change(self):
                self._set_names([*known, *new])
                assert self._belief is not None
                self._belief.declare([self._column(name) for name in checked])
        return self

    def rename_label(self, old: Hashable, new: Hashable) -> Self:
        """Call a label by another name from now on."""
        with self._lock:
            super().rename_label(old, new)
            return self.renew_name(new)

    def renew_name(self, name: Hashable) -> Self:
        """Ask again for the row of a label's name, of which something else is said now."""
        with self._lock:
            check_is_fitted(self)
            j = self._column(name)
            if self._belief is not None and self.names_count_:
                self._state = object()
                self._belief.rename(j, self._named_rows([name]))
        return self

    def _named_rows(self, names: list[Hashable]) -> Rows:
        """Return the rows of names, (n, p); of a model without who makes them, they are empty."""
        if self._rows_of_names is not None and names:
            return self._as_stored(self._rows_of_names(names))
        shape = len(names), self.n_features_in_
        return sp.csr_matrix(shape, dtype=np.float32) if self._sparse else np.zeros(shape)

    def _grow_belief(self, q: int) -> None:
        """Have the head know ``q`` labels, and the names of the new ones."""
        belief = self._belief
        if belief is not None:
            rows = None
            if belief.naming is not None:
                rows = self._named_rows(self.classes_[belief.naming.n_labels : q].tolist())
            belief.grow(q, rows)

    def _renewal_is_void(self) -> None:
        """Give up a fit that is under way: it was begun with other evidence."""

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
                wide=wide, width=width, n_seen=self.n_seen_, sparse=self._sparse, basis=basis,
            )  # fmt: skip

    def _load_store(self, state: Any) -> Store:
        """Return the stored examples that a file holds."""
        ours = partial(LocalStore.load, limits=self._limits)
        load = ours if self.store is None else self.store.load
        store: Store = load(state, sparse=self._sparse, window=self.window)
        p, q, n_seen = store.facts[:3]
        if (p, q) != (self.n_features_in_, len(self.classes_)):
            raise ValueError(
                f"the store must have {self.n_features_in_} features and {len(self.classes_)} "
                f"labels, got {p} and {q}"
            )
        if n_seen != self.n_seen_:
            raise ValueError(f"the store must have seen {self.n_seen_} rows, got {n_seen}")
        return store

    def _n_asked(self) -> int:
        """Return how many neighbours are looked up: those that vote, or that the head asks."""
        if not self.n_neighbors >= 1:  # changed since it was last checked
            self._check_params()
        if self._belief is not None:
            return self._belief.n_asked(self._store)
        return min(self.n_neighbors, max(len(self._store), 1))

    def _proba(self, X: Rows) -> npt.NDArray[np.float64]:
        return self._answers(X, next=False)

    def _next_proba(self, X: Rows) -> npt.NDArray[np.float64]:
        return self._answers(X, next=True)

    def scores_of(
        self,
        rows: Rows,
        *,
        next: bool = False,
        ids: Sequence[Hashable | None] | None = None,
    ) -> npt.NDArray[np.float64]:
        """Return the scores of rows that only their width is checked of; see the base class."""
        with self._lock:
            self._check_rows_width(rows)
            return self._shares(self._answers(self._as_stored(rows), next=next, ids=ids))

    def _as_kept(self, rows: Rows) -> Rows:
        return rows.astype(np.float32, copy=False)

    def _answers(
        self, X: Rows, *, next: bool, ids: Sequence[Hashable | None] | None = None
    ) -> npt.NDArray[np.float64]:
        rows = self._as_kept(X)
        if not len(self._store) and not self.names_count_:
            return np.zeros((rows.shape[0], len(self.classes_)))
        return _joined([found.scores for found in self._find(rows, next=next, ids=ids)])

    def _ask(self, rows: Rows, *, next: bool, ids: Sequence[Hashable | None] | None) -> Asked:
        if not len(self._store) and not self.names_count_:
            scores = np.zeros((rows.shape[0], len(self.classes_)))
            return Asked(rows, next, self._shares(scores), ids, state=self._state)
        found = tuple(self._find(rows, next=next, ids=ids))
        scores = _joined([one.scores for one in found])
        return Asked(rows, next, self._shares(scores), ids, found, self._state)

    def _find(
        self, rows: Rows, *, next: bool, ids: Sequence[Hashable | None] | None
    ) -> Iterator[Found]:
        """Yield what is found about items, and their scores, some items at a time."""
        k, size = self._n_asked(), self._block()
        shared = rows.shape[0] >= 2 * self._limits.shared and self._store.facts.in_process
        size = min(size, self._limits.shared) if shared else size

        def find(first: int) -> Found:
            located = self._locate(cut_rows(rows, first, first + size), k)
            if ids is not None:
                located = located.named(ids[first : first + size])
            return self._found(located, next=next)

        return in_threads(find, range(0, max(rows.shape[0], 1), size), worth=shared)

    def ask_stored(self, positions: Any = None) -> Iterator[StoredBlock]:
        """Ask about stored items as if each were not stored: all of them, or those at positions.

        Yields
        ------
        StoredBlock
            Some items at a time, in the order of the positions.
        """
        with self._lock:
            check_is_fitted(self)
            where = np.arange(len(self._store)) if positions is None else np.asarray(positions)
            size = min(self._block(), self._limits.shared)
        for first in range(0, len(where), size):
            with self._lock:
                block = self._ask_stored(where[first : first + size].astype(np.int64))
            yield block

    def _ask_stored(self, positions: Positions) -> StoredBlock:
        store, belief = self._store, self._belief
        rows = store.take(ROWS, positions)
        located = self._locate(rows, min(self._n_asked() + 1, len(store)))
        found = without_self(located.found, positions)
        if belief is None:
            scores = self._votes(located._replace(items=located.items._replace(found=found)))
        else:
            fitted_at = self.n_seen_ - self.n_since_fit_
            scores = belief.scores_without(self._to_weigh(located), positions, store, fitted_at)
        Y, known = store.take(LABELS, positions)
        sure = np.ones(Y.shape, np.bool_) if known is None else known
        return StoredBlock(positions, self._shares(scores), Y, sure, found[:, : self.n_neighbors])

    def neighbors_of(self, position: int) -> tuple[Neighbor, ...]:
        """Return the nearest other items of the stored item at a position, nearest first."""
        with self._lock:
            row = self._store.take(ROWS, slice(position, position + 1))
            located = self._locate(row, min(self.n_neighbors + 1, len(self._store)))
            own = located.found[0] != position
            keep = np.flatnonzero(own)[: located.found.shape[1] - 1]
            return self._neighbors(located.found[0, keep], located.distances[0, keep])

    def labels_at(self, positions: Any) -> npt.NDArray[np.uint8]:
        """Return the labels of the stored items at some positions, 0/1 of shape (m, q)."""
        with self._lock:
            labels = self._store.take(LABELS, np.asarray(positions, np.int64))
            return labels.Y if labels.known is None else labels.Y * labels.known

    def near_copies(
        self, least: float, progress: Callable[[int, int], None] | None = None
    ) -> Iterator[tuple[int, int, float]]:
        """Yield stored items with the most similar of their neighbours, if they are that alike.

        Positions of both, and the similarity.
        """
        with self._lock:
            check_is_fitted(self)
            n, size = len(self._store), min(self._block(), self._limits.shared)
        for first in range(0, n, size):
            with self._lock:
                positions = np.arange(first, min(first + size, n))
                rows = self._store.take(ROWS, positions)
                located = self._locate(rows, min(self._n_asked() + 1, n))
                others = without_self(located.found, positions)
                plain = self._belief is None or self._belief.plain
                factor = None
                if not self._sparse:
                    of_rows = np.ones(rows.shape[1])
                    factor = of_rows if plain or self._belief is None else self._belief.factor
                nearest = lookup.similar(self._store, rows, others, factor)
            if progress is not None:
                progress(int(positions[-1]) + 1, n)
            pairs = zip(positions.tolist(), *map(np.ndarray.tolist, nearest), strict=True)
            yield from (pair for pair in pairs if pair[1] >= 0 and pair[2] >= least)

    def ids_at(self, positions: Any) -> list[Hashable]:
        """Return the names of the stored items at some positions."""
        with self._lock:
            return self._store.take(IDS, np.asarray(positions, np.int64))

    def _block(self) -> int:
        """Return how many examples are looked at together."""
        return min(BLOCK, 1 + CELLS // max(len(self.classes_), 1))

    def _found(self, located: Located, *, next: bool) -> Found:
        """Return the scores of located items, and what they are made of."""
        if self._belief is None:
            return Found(located, None, self._votes(located))
        looked = self._belief.look(self._to_weigh(located), self._store, next=next)
        return Found(located, looked, self._belief.scores(looked))

    def _votes(self, located: Located) -> npt.NDArray[np.float64]:
        """Return the scores of located items where there is no head."""
        return lookup.votes(self._store, located.found)

    @staticmethod
    def _found_before(found: Found | None, k: int) -> Positions | None:
        """Return the k nearest of a single item that was asked about, if so many were found."""
        if found is None:
            return None
        near = found.located.found
        return near[:, :k] if near.shape[0] == 1 and near.shape[1] >= k else None

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
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None,
        seen: int,
        found: Found | None,
    ) -> None:
        """Learn some rows of single precision, ``seen`` examples having been learnt before.

        ``found``: what was found about them when they were asked about, if nothing was learnt or
        changed since.
        """
        raise NotImplementedError

    def _learn(self, X: Rows, labels: Labels, ids: Sequence[Hashable] | None) -> None:
        self._learn_found(self._as_kept(X), labels, ids, None)

    def _learn_asked(
        self, X: Rows, labels: Labels, ids: Sequence[Hashable] | None, asked: Asked
    ) -> None:
        found = asked.found[0] if len(asked.found) == 1 else None
        self._learn_found(asked.rows, labels, ids, found)

    def _learn_found(
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None,
        found: Found | None,
    ) -> None:
        n, seen, done = rows.shape[0], self.n_seen_, 0
        while done < n:
            stop = self._next_stop(seen)
            size = 1
            if n > 1:
                size = min(n - done, stop - seen, lookup.block_size(self._store, self._block()))
            if size == n:
                self._learn_block(rows, labels, ids, seen, found)
            else:
                part = slice(done, done + size)
                known = None if labels.known is None else labels.known[part]
                named = None if ids is None else ids[part]
                self._learn_block(rows[part], Labels(labels.Y[part], known), named, seen, None)
            changes.forget(self._store)
            done, seen = done + size, seen + size
            if seen == stop:
                self._stop(seen)

    # ------------------------------------------------------------------ corrections
    def item(self, id: Hashable) -> Item:
        """Return a stored item: its row, and its labels."""
        with self._lock:
            position = self._position(id)
            (has,), known = self._store.take(LABELS, [position])
            row = self._store.take(ROWS, slice(position, position + 1))
            unsure = np.zeros(len(has), np.bool_) if known is None else ~known[0]
            return Item(row.copy(), self._named(has), self._named(unsure))

    def are_stored(
        self, ids: Sequence[Hashable], X: Rows, labels: Sequence[Collection[Hashable]]
    ) -> npt.NDArray[np.bool_]:
        """Tell which items are stored under these names with these very rows and labels.

        Rows are compared by digests of 64 bits.

        Parameters
        ----------
        ids : sequence of names
        X : array or CSR matrix of shape (m, p)
        labels : sequence of collections of label names
        """
        with self._lock:
            same = np.zeros(len(ids), np.bool_)
            if not hasattr(self, "n_seen_"):
                return same
            at = lookup.positions_named(self._store, ids)
            stored = np.flatnonzero(at >= 0)
            alike = stored[lookup.contents(self._store)[at[stored]] == digests(X[stored])]
            column = {name: j for j, name in enumerate(self.classes_.tolist())}
            size = 1 + CELLS // max(len(column), 1)
            for first in range(0, len(alike), size):
                some = alike[first : first + size]
                same[some] = self._have_labels(at[some], [labels[i] for i in some], column)
            return same

    def _have_labels(
        self,
        positions: npt.NDArray[np.int64],
        labels: list[Collection[Hashable]],
        column: dict[Hashable, int],
    ) -> npt.NDArray[np.bool_]:
        """Tell which stored items have exactly these labels, and none that is not known."""
        stored = self._store.take(LABELS, positions)
        Y, strange = np.zeros_like(stored.Y), np.zeros(len(labels), np.bool_)
        for i, names in enumerate(labels):
            found = [column.get(name, -1) for name in names]
            strange[i] = -1 in found
            Y[i, found] = 1
        same: npt.NDArray[np.bool_] = (Y == stored.Y).all(axis=1) & ~strange
        return same if stored.known is None else same & stored.known.all(axis=1)

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
            batch = read_labels(form, classes, self.classes_.tolist(), self._limits)
            if len(batch.labels.Y) != 1 or batch.single:
                raise ValueError("labels must be those of one item")
            if self._single and batch.labels.Y.sum() != 1:
                raise ValueError(f"labels must be one label as in earlier calls, got {labels!r}")
            with Change(self):
                self._set_names(batch.names)
                self._relabel(position, batch.labels)
        return self

    def forget(self, id: Hashable) -> Self:
        """Take a stored item out, as if it had never been stored."""
        with self._lock:
            position = self._position(id)
            with Change(self):
                self._forget(position)
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
            self._check_changeable()
            with Change(self):
                self._change_labels(columns, kept)
        return self

    def remove_label(self, name: Hashable) -> Self:
        """Take a label away from all items, and out of ``classes_``."""
        with self._lock:
            check_is_fitted(self)
            gone = self._column(name)
            known = self.classes_.tolist()
            columns = [[j] for j in range(len(known)) if j != gone]
            self._check_changeable()
            with Change(self):
                self._change_labels(columns, [n for n in known if n != name])
        return self

    def _position(self, id: Hashable) -> int:
        check_is_fitted(self)
        position = lookup.position_of(self._store, id) if isinstance(id, Hashable) else None
        if position is None:
            raise KeyError(f"no stored item is called {id!r}")
        return position

    def has_item(self, id: Hashable) -> bool:
        """Tell whether an item of that name is stored."""
        with self._lock:
            return hasattr(self, "n_seen_") and lookup.position_of(self._store, id) is not None

    def _check_changeable(self) -> None:
        """Raise if labels of this learner must stay as they are."""

    def _change_labels(self, columns: list[list[int]], names: list[Hashable]) -> None:
        """Make label j the union of the old ``columns[j]``, and call it ``names[j]``."""
        changes.map_labels(self._store, columns)
        self.classes_ = as_array(names)
        if self._belief is not None:
            self._belief.keep(columns, self._store)

    def _relabel(self, position: int, labels: Labels) -> None:
        """Give the item at a position other labels."""
        old = self._store.relabel(position, labels)
        if self._belief is not None:
            row = self._store.take(ROWS, slice(position, position + 1))
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
    def answers_any_(self) -> bool:
        """Whether any item has an answer of its own.

        A model that an older version saved answers for any item as for the next one of the stream,
        until its next fit.
        """
        return self._belief is None or self._belief.any is not None

    @property
    def ids_(self) -> list[Hashable]:
        """The names of the stored items, oldest first."""
        with self._lock:
            return self._store.take(IDS, np.arange(len(self._store)))

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
            numbers = self._store.take(NUMBERS, located.found)
        return (located.distances, numbers) if return_distance else numbers

    def explain(
        self,
        X: Any,
        *,
        next: bool = False,
        ids: Sequence[Hashable | None] | None = None,
    ) -> list[Explanation]:
        """Tell for each row why it gets its labels: who is near, and what spoke for each label.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (m, p), or Asked
            What :meth:`ask` returned is explained without another look, as the answer to its own
            question, unless the learner has changed since.
        next : bool
            As the next item of the stream, instead of as any item.
        ids : sequence, optional
            The names of the items, as in :meth:`scores_of`.
        """
        with self._lock:
            check_is_fitted(self)
            if isinstance(X, Asked):
                asked = self._asked(X)
            else:
                asked = self._ask(self._as_kept(self._check_query(X)), next=next, ids=ids)
            parts = asked.found or [self._find_nothing(asked.rows)]
            return [why for found in parts for why in self._reasons(found, next=asked.next)]

    def _find_nothing(self, rows: Rows) -> Found:
        """Return what is found where nothing is stored."""
        located = self._locate(rows, self._n_asked())
        return Found(located, None, np.zeros((rows.shape[0], len(self.classes_))))

    def _reasons(self, found: Found, *, next: bool) -> list[Explanation]:
        """Return why items get their labels."""
        located, looked, scores = found
        reasons = None
        if looked is not None and self._belief is not None:
            reasons = self._belief.reasons(looked)
            scores = reasons.p
        scores = self._shares(scores)
        if self._single:
            chosen = scores.argmax(axis=1)[:, None] == np.arange(scores.shape[1])
        else:
            seen = Seen(self.n_seen_, self.n_empty_)
            bars = self._bars(self.decide, next=next)
            chosen = decide(scores, self.decide, bars, seen)
        return [
            self._explain_one(located, scores[i], chosen[i], reasons, i) for i in range(len(scores))
        ]

    def _explain_one(
        self, located: Located, scores: Any, chosen: Any, reasons: Reasons | None, i: int
    ) -> Explanation:
        names = self.classes_.tolist()
        found = located.found[i, : self.n_neighbors]
        found = found[found >= 0]
        neighbors = self._neighbors(found, np.sqrt(located.squares[i]) * located.scale)
        labels = self._store.take(LABELS, found).Y.astype(bool)
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
        if not self.names_count_:
            for part in parts.values():
                del part["name"]
        copied = int(reasons.copy_of[i])
        if copied < 0:
            return Explanation(neighbors, shown, voters, parts)
        (copy_of,) = self._neighbors(np.array([copied]), [self._distance(located, i, copied)])
        corrected = bool(self._store.take(CORRECTED, [copied])[0])
        return Explanation(neighbors, shown, voters, parts, copy_of, corrected)

    def _distance(self, located: Located, i: int, position: int) -> float:
        """Return how far one of some items is from the stored item at a position."""
        lo = np.array([position])
        row = cut_rows(located.items.rows, i, i + 1)
        return float(self._locate(row, 1, lo, lo + 1).distances[0, 0])

    def _neighbors(self, found: npt.NDArray[np.int64], distances: Any) -> tuple[Neighbor, ...]:
        names = self.classes_.tolist()
        labels, ids = self._store.take(LABELS, found).Y, self._store.take(IDS, found)
        return tuple(
            Neighbor(i, float(far), tuple(names[j] for j in np.flatnonzero(has)))
            for i, far, has in zip(ids, distances, labels, strict=False)
        )
