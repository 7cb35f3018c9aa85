"""The estimator that all learners share.

Every learner is a :class:`StreamClassifier`.  What users pass (arrays, sparse matrices, data
frames, lists of label sets) becomes two plain things, rows ``X`` and
:class:`~tagstream.labels.Labels`, with which the learner's hooks are called.  All checks happen
before the first change of state, so that a rejected call leaves the model exactly as it was.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tagstream.checks import LARGEST_VALUE, Floats, Rows, check_rows
from tagstream.labels import Batch, Labels, as_array, is_label_sets, n_dims, plain, read_labels

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["StreamClassifier"]


class StreamClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """The contract of all learners: scikit-learn's estimator interface over a stream.

    A subclass gives these hooks: ``_check_params``; ``_start`` (make the empty state for
    ``n_features_in_`` features and, when ``_sparse``, sparse rows); ``_grow`` (``q`` labels from
    now on, new ones to the right); ``_learn`` (a checked batch; ``n_seen_`` is still the count
    before it); ``_proba`` (scores in [0, 1] of checked rows); ``_dump`` and ``_load`` (the state
    as plain values, and back; ``_load`` checks names, shapes and dtypes).

    Attributes
    ----------
    classes_ : array of shape (q,)
        Label names in the order of the columns of every ``(n, q)`` array.
    n_features_in_ : int
    n_seen_ : int
        How many examples have been learnt.
    """

    threshold: float = 0.5
    classes_: npt.NDArray[Any]
    n_features_in_: int
    n_seen_: int

    # ------------------------------------------------------------------ hooks of a subclass
    def _check_params(self) -> None:
        raise NotImplementedError

    def _start(self) -> None:
        raise NotImplementedError

    def _grow(self, q: int) -> None:
        raise NotImplementedError

    def _learn(self, X: Rows, labels: Labels, ids: Sequence[Hashable] | None) -> None:
        raise NotImplementedError

    def _proba(self, X: Rows) -> npt.NDArray[np.float64]:
        raise NotImplementedError

    def _dump(self) -> dict[str, Any]:
        raise NotImplementedError

    def _load(self, state: dict[str, Any]) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------------ learning
    def fit(self, X: Any, Y: Any) -> Self:
        """Forget everything, then learn the rows of ``X`` in order.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (n, p)
        Y : labels of the n items
            A 0/1 array, CSR matrix or data frame of shape (n, q), where NaN (or a masked entry)
            means "not known"; a list of n sets of label names (None: nothing is known); or a 1-D
            array that names one label per item.
        """
        self._check_params()
        rows = check_rows(X, self)
        classes = None
        if not sp.issparse(Y) and not is_label_sets(Y) and n_dims(Y) == 1:
            classes = np.unique(np.asarray(Y))  # scikit-learn: classes_ of a 1-D y are sorted
        batch = self._read_batch(rows, Y, classes, [])
        self._begin(X, rows, batch)
        self._absorb(rows, batch, None)
        return self

    def partial_fit(
        self, X: Any, Y: Any, classes: Any = None, ids: Sequence[Hashable] | None = None
    ) -> Self:
        """Learn the rows of ``X`` in order, after all that was learnt before.

        How a stream is cut into calls does not matter.

        Parameters
        ----------
        X, Y
            As in :meth:`fit`.  Labels that were not seen before are added to ``classes_``.
        classes : sequence of label names, optional
            For a 0/1 ``Y``: the names of its columns.  Otherwise: names to reserve in advance.
        ids : sequence of n hashable values, optional
            Names of the items, shown by ``explain``; by default their number in the stream.
        """
        self._check_params()
        rows = check_rows(X, self)
        first = not hasattr(self, "n_features_in_")
        if not first:
            self._check_width(X)
            rows = self._as_stored(rows)
        batch = self._read_batch(rows, Y, classes, [] if first else self.classes_.tolist())
        if not first and batch.single != self._single:
            form = "a 1-D y" if self._single else "a label matrix or label sets"
            raise ValueError(f"Y must be {form} as in earlier calls, got another form")
        if ids is not None and len(ids) != rows.shape[0]:
            raise ValueError(f"ids must have {rows.shape[0]} entries, got {len(ids)}")
        if first:
            self._begin(X, rows, batch)
        self._absorb(rows, batch, ids)
        return self

    def learn_one(self, x: Any, y: Any, *, id: Hashable = None) -> Self:
        """Learn one item: ``x`` of shape (p,), ``y`` a 0/1 vector, a label set or a label."""
        row = self._fast_row(x)
        labels = self._fast_labels(y) if row is not None else None
        if row is None or labels is None:
            return self.partial_fit(_one_row(x), _one_label(y), ids=None if id is None else [id])
        self._learn(row, labels, None if id is None else [id])
        self.n_seen_ += 1
        return self

    def _read_batch(self, rows: Rows, Y: Any, classes: Any, names: list[Hashable]) -> Batch:
        batch = read_labels(Y, classes, names)
        if len(batch.labels.Y) != rows.shape[0]:
            raise ValueError(
                f"Y must have as many rows as X ({rows.shape[0]}), got {len(batch.labels.Y)}"
            )
        return batch

    def _begin(self, X: Any, rows: Rows, batch: Batch) -> None:
        validate_data(self, X, reset=True, skip_check_array=True)
        self._sparse = bool(sp.issparse(rows))
        self._single = batch.single
        self._dtype = batch.dtype
        self.n_seen_ = 0
        self.classes_ = np.empty(0, np.int64)
        self._start()

    def _absorb(self, rows: Rows, batch: Batch, ids: Sequence[Hashable] | None) -> None:
        """Learn a batch; a label that is only met on the way is added where it is met.

        So the number of labels at any time does not depend on how the stream was cut.
        """
        Y, known = batch.labels
        width = len(batch.names)
        needed = np.full(len(Y), batch.declared)
        if batch.declared < width:
            last = width - np.argmax(Y[:, ::-1], axis=1)
            needed = np.maximum.accumulate(
                np.where(Y.any(axis=1), np.maximum(last, needed), needed)
            )
        cut = needed[1:] != needed[:-1]
        if batch.blank is not None:
            # Before the first label, a mask of no columns stands for items of one kind only:
            # those of which nothing is known.
            cut |= (needed[1:] == 0) & (batch.blank[1:] != batch.blank[:-1])
        bounds = [0, *(np.flatnonzero(cut) + 1).tolist(), len(Y)]
        for first, stop in pairwise(bounds):
            q = int(needed[first])
            self._set_names(batch.names[:q])
            mask = known
            if q == 0 and batch.blank is not None and not batch.blank[first]:
                mask = None
            part = Labels(
                np.ascontiguousarray(Y[first:stop, :q]),
                None if mask is None else np.ascontiguousarray(mask[first:stop, :q]),
            )
            self._learn(rows[first:stop], part, None if ids is None else ids[first:stop])
            self.n_seen_ += stop - first

    def _set_names(self, names: list[Hashable]) -> None:
        if len(names) == len(self.classes_):
            return
        self.classes_ = as_array(names)
        self._grow(len(names))

    # ------------------------------------------------------------------ prediction
    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the score of each label, an array of shape (n, q) in [0, 1].

        When the model was given a 1-D y, the rows sum to one.
        """
        check_is_fitted(self)
        return self._scores(self._check_query(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return 0/1 labels of shape (n, q); of shape (n,) when the model was given a 1-D y.

        The dtype is that of the first ``Y`` if that was an integer or boolean array, else uint8.
        """
        return self.decide(self.predict_proba(X))

    def decide(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return the predictions that scores of :meth:`predict_proba` stand for."""
        if self._single:
            best: npt.NDArray[Any] = self.classes_[scores.argmax(axis=1)]
            return best
        return (scores >= self.threshold).astype(self._dtype)

    def predict_one(self, x: Any) -> Any:
        """Return the prediction for one item ``x`` of shape (p,)."""
        return self.decide(self._scores(self._one_query(x)))[0]

    def predict_proba_one(self, x: Any) -> npt.NDArray[np.float64]:
        """Return the scores of one item ``x`` of shape (p,), an array of shape (q,)."""
        scores: npt.NDArray[np.float64] = self._scores(self._one_query(x))[0]
        return scores

    def predict_sets(self, X: Any) -> list[set[Any]]:
        """Return the predicted label names of each item as a set."""
        Y = self.decide(self.predict_proba(X))
        if self._single:
            return [{plain(name)} for name in Y]
        return [{plain(name) for name in self.classes_[row.astype(bool)]} for row in Y]

    def _scores(self, rows: Rows) -> npt.NDArray[np.float64]:
        scores = self._proba(rows)
        if self._single:
            total = scores.sum(axis=1, keepdims=True)
            even = np.full_like(scores, 1 / scores.shape[1])
            scores = np.divide(scores, total, out=even, where=total > 0)
        return scores

    # ------------------------------------------------------------------ checks
    def _check_width(self, X: Any) -> None:
        validate_data(self, X, reset=False, skip_check_array=True)

    def _check_query(self, X: Any) -> Rows:
        rows = check_rows(X, self)
        self._check_width(X)
        return self._as_stored(rows)

    def _as_stored(self, rows: Rows) -> Rows:
        """Return rows in the form, sparse or dense, that the model keeps."""
        if self._sparse:
            return rows if sp.issparse(rows) else sp.csr_matrix(rows)
        return rows.toarray() if sp.issparse(rows) else rows

    def _one_query(self, x: Any) -> Rows:
        row = self._fast_row(x)
        if row is None:
            check_is_fitted(self)
            row = self._check_query(_one_row(x))
        return row

    def _fast_row(self, x: Any) -> Floats | None:
        """Return a plain valid row as (1, p); None sends the caller to the thorough checks."""
        if (
            type(x) is not np.ndarray
            or x.ndim != 1
            or x.dtype.kind != "f"
            or x.dtype.itemsize not in (4, 8)
            or self.__dict__.get("n_features_in_") != x.shape[0]
            or self._sparse
            or "feature_names_in_" in self.__dict__
        ):
            return None
        # NaN and infinity fail the comparison.  Rows that only might be out of range, and those
        # whose square overflows single precision, get the thorough checks.
        if not np.dot(x, x) <= LARGEST_VALUE:
            return None
        return x.reshape(1, -1)

    def _fast_labels(self, y: Any) -> Labels | None:
        if type(y) is not np.ndarray or y.dtype != np.uint8 or self._single:
            return None
        # Taking all 0 and 1 out of the bytes costs a fifth of looking for the largest.
        if y.shape != self.classes_.shape or y.tobytes().translate(None, b"\0\1"):
            return None
        return Labels(y.reshape(1, -1), None)

    # ------------------------------------------------------------------ state as plain values
    def to_state(self) -> dict[str, Any]:
        """Return parameters and state as nested dicts of arrays, numbers, strings and None."""
        check_is_fitted(self)
        params = self.get_params(deep=False)
        if not isinstance(params.get("random_state"), (int, np.integer, type(None))):
            params["random_state"] = None  # a generator was only used to draw the seed
        return {
            "params": {k: v.item() if isinstance(v, np.generic) else v for k, v in params.items()},
            "n_features": self.n_features_in_,
            "feature_names": getattr(self, "feature_names_in_", np.empty(0, object)).tolist(),
            "names": self.classes_.tolist(),
            "n_seen": self.n_seen_,
            "sparse": self._sparse,
            "single": self._single,
            "dtype": self._dtype.str,
            "learner": self._dump(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the model that :meth:`to_state` described; it goes on as that one would."""
        model = cls(**state["params"])
        model._check_params()
        model.n_features_in_ = state["n_features"]
        if state["feature_names"]:
            model.feature_names_in_ = np.array(state["feature_names"], dtype=object)
        model._sparse, model._single = state["sparse"], state["single"]
        model._dtype = np.dtype(state["dtype"])
        model.n_seen_ = state["n_seen"]
        model.classes_ = np.empty(0, np.int64)
        model._start()
        model._set_names(state["names"])
        model._load(state["learner"])
        return model

    # ------------------------------------------------------------------ scikit-learn
    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_seen_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        tags.input_tags.sparse = True
        return tags


def _one_row(x: Any) -> Any:
    if sp.issparse(x):
        return x.reshape(1, -1) if getattr(x, "ndim", 2) == 1 else x
    row = np.asarray(x)
    if row.ndim != 1:
        raise ValueError(f"x must have 1 dimension, got {row.ndim}")
    return row.reshape(1, -1)


def _one_label(y: Any) -> Any:
    if sp.issparse(y):
        return y
    return [y] if isinstance(y, (set, frozenset, list, tuple)) or y is None else np.asarray([y])
