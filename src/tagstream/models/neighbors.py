"""What the learners that ask stored neighbours share: store, search, vote, explanation, events."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from tagstream.base import StreamClassifier
from tagstream.checks import Rows, check_number
from tagstream.decision import decide
from tagstream.labels import Labels, read_labels
from tagstream.memory import LocalStore, Store

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Explanation", "Neighbor", "NeighborClassifier"]


@dataclass(frozen=True)
class Neighbor:
    """A stored item that voted: its name, its distance, its labels."""

    id: Hashable
    distance: float
    labels: tuple[Hashable, ...]


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
    """

    neighbors: tuple[Neighbor, ...]
    scores: dict[Hashable, float]
    voters: dict[Hashable, tuple[Hashable, ...]]


class Located(NamedTuple):
    """Items and what is near them.

    Attributes
    ----------
    distances, found : arrays of shape (m, k)
        Of the nearest stored items, nearest first; infinity and −1 where there are fewer.
    """

    distances: npt.NDArray[np.float64]
    found: npt.NDArray[np.int64]


class NeighborClassifier(StreamClassifier):
    """A learner that stores examples and lets the nearest ones vote.

    A subclass makes ``_store`` and says in ``_locate`` what is near.
    """

    n_neighbors: int
    window: int | None
    store: Any = None
    _store: Store

    def _locate(self, X: Rows, k: int) -> Located:
        """Return the k nearest stored items of each row."""
        raise NotImplementedError

    def _check_store(self) -> None:
        if self.store is not None and not hasattr(self.store, "open"):
            raise ValueError(f"store must be None or have open(), got {self.store!r}")

    def _open_store(self) -> Store:
        """Return an empty store."""
        if self.store is None:
            return LocalStore(self.n_features_in_, sparse=self._sparse, window=self.window)
        made: Store = self.store.open(self.n_features_in_, sparse=self._sparse, window=self.window)
        return made

    def _load_store(self, state: Any) -> LocalStore:
        """Return the stored examples that a file holds."""
        store = LocalStore.load(state, sparse=self._sparse, window=self.window)
        if (store.n_features, store.n_labels) != (self.n_features_in_, len(self.classes_)):
            raise ValueError(
                f"the store must have {self.n_features_in_} features and {len(self.classes_)} "
                f"labels, got {store.n_features} and {store.n_labels}"
            )
        return store

    def _voters(self) -> int:
        """Return how many items vote: k, or all if there are fewer."""
        if not self.n_neighbors >= 1:  # changed since it was last checked
            self._check_params()
        return min(self.n_neighbors, max(len(self._store), 1))

    def _proba(self, X: Rows) -> npt.NDArray[np.float64]:
        return self._scored(self._locate(X, self._voters()))

    def _scored(self, located: Located) -> npt.NDArray[np.float64]:
        """Return the scores of located items."""
        return self._store.votes(located.found)

    # ------------------------------------------------------------------ corrections
    def relabel(self, id: Hashable, labels: Any) -> Self:
        """Give a stored item other labels: a correction.

        Parameters
        ----------
        id
            The name it was learnt with, by default its number in the stream.  Of several items of
            that name, the newest.
        labels : set of label names, or 0/1 vector
            All the labels that it has.  New names are added to ``classes_``.
        """
        with self._lock:
            position = self._position(id)
            self._check_params()
            names = self.classes_.tolist()
            named = isinstance(labels, (set, frozenset, list, tuple))
            form: Any = [labels] if named else np.atleast_2d(labels)
            batch = read_labels(form, None, names)
            if len(batch.labels.Y) != 1 or batch.single:
                raise ValueError("labels must be those of one item")
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
        raise NotImplementedError

    def _relabel(self, position: int, labels: Labels) -> None:
        raise NotImplementedError

    def _forget(self, position: int) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------------ what is stored
    @property
    def label_counts_(self) -> npt.NDArray[np.int64]:
        """How many of the stored items have each label, in the order of ``classes_``."""
        counts: npt.NDArray[np.int64] = self._store.labels().Y.sum(axis=0, dtype=np.int64)
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
            rows = self._check_query(X)
            k = self.n_neighbors if n_neighbors is None else n_neighbors
            check_number("n_neighbors", k, kind=int, least=1)
            located = self._locate(rows, min(k, len(self._store)))
            numbers = self._store.numbers(located.found)
        return (located.distances, numbers) if return_distance else numbers

    def explain(self, X: Any) -> list[Explanation]:
        """Tell for each row which stored items voted, how near they are, and for what."""
        with self._lock:
            check_is_fitted(self)
            located = self._locate(self._check_query(X), self._voters())
            scores = self._scored(located)
            chosen = decide(scores, self.decide)
            return [
                self._explain_one(*one)
                for one in zip(located.distances, located.found, scores, chosen, strict=True)
            ]

    def _explain_one(self, distances: Any, found: Any, scores: Any, chosen: Any) -> Explanation:
        names = self.classes_.tolist()
        found = found[found >= 0]
        labels = self._store.labels(found).Y.astype(bool)
        ids = self._store.ids(found)
        neighbors = tuple(
            Neighbor(i, float(far), tuple(names[j] for j in np.flatnonzero(has)))
            for i, far, has in zip(ids, distances, labels, strict=False)
        )
        order = np.argsort(-scores, kind="stable").tolist()
        voters = {
            names[j]: tuple(i for i, has in zip(ids, labels, strict=True) if has[j])
            for j in order
            if chosen[j]
        }
        shown = {names[j]: float(scores[j]) for j in order if chosen[j] or labels[:, j].any()}
        return Explanation(neighbors, shown, voters)
