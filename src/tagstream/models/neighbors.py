"""What the learners that ask stored neighbours share: search, vote, explanation."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from tagstream.base import StreamClassifier
from tagstream.checks import Rows, check_number
from tagstream.kernels import PRIOR
from tagstream.memory import Memory

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
        Label name to score, for each label that any neighbour has, highest first.
    voters : dict
        Suggested label name to the names of the neighbours that voted for it.
    """

    neighbors: tuple[Neighbor, ...]
    scores: dict[Hashable, float]
    voters: dict[Hashable, tuple[Hashable, ...]]


class NeighborClassifier(StreamClassifier):
    """A learner that stores examples and lets the nearest ones vote.

    A subclass makes ``_memory`` and says in ``_search`` what is near.
    """

    n_neighbors: int
    _memory: Memory

    def _search(self, X: Rows, k: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return distances and positions, (m, k), of the nearest stored items."""
        raise NotImplementedError

    def _voters(self) -> int:
        """Return how many items vote: k, or all if there are fewer."""
        if not self.n_neighbors >= 1:  # changed since it was last checked
            self._check_params()
        return min(self.n_neighbors, max(len(self._memory), 1))

    def _nearest(self, X: Rows) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return distances and positions of the items that vote."""
        return self._search(X, self._voters())

    def _proba(self, X: Rows) -> npt.NDArray[np.float64]:
        return self._memory.votes(self._nearest(X)[1])

    def decide(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return the predictions that scores of ``predict_proba`` stand for."""
        if self._single:
            return super().decide(scores)
        # A share that equals the threshold counts, whatever the imaginary neighbour took from it.
        return (scores >= self.threshold - PRIOR).astype(self._dtype)

    @property
    def label_counts_(self) -> npt.NDArray[np.int64]:
        """How many of the stored items have each label, in the order of ``classes_``."""
        counts: npt.NDArray[np.int64] = self._memory.labels().Y.sum(axis=0, dtype=np.int64)
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
        check_is_fitted(self)
        rows = self._check_query(X)
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        check_number("n_neighbors", k, kind=int, least=1)
        distances, found = self._search(rows, min(k, len(self._memory)))
        numbers = found + self._memory.n_forgotten
        return (distances, numbers) if return_distance else numbers

    def explain(self, X: Any) -> list[Explanation]:
        """Tell for each row which stored items voted, how near they are, and for what."""
        check_is_fitted(self)
        rows = self._check_query(X)
        distances, found = self._nearest(rows)
        scores = self._proba(rows)
        return [self._explain_one(*one) for one in zip(distances, found, scores, strict=True)]

    def _explain_one(self, distances: Any, found: Any, scores: Any) -> Explanation:
        names = self.classes_.tolist()
        labels = self._memory.labels(found).Y.astype(bool)
        ids = self._memory.ids(found)
        neighbors = tuple(
            Neighbor(i, float(far), tuple(names[j] for j in np.flatnonzero(has)))
            for i, far, has in zip(ids, distances, labels, strict=True)
        )
        order = [j for j in np.argsort(-scores, kind="stable") if labels[:, j].any()]
        voters = {
            names[j]: tuple(i for i, has in zip(ids, labels, strict=True) if has[j])
            for j in order
            if scores[j] >= self.threshold - PRIOR
        }
        return Explanation(neighbors, {names[j]: float(scores[j]) for j in order}, voters)
