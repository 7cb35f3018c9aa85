"""Checks at the door, the label vocabulary, and the estimator that all learners share.

Every learner is a :class:`StreamClassifier`.  This module turns whatever users pass (arrays,
sparse matrices, data frames, lists of label sets) into two plain things, rows ``X`` and
:class:`Labels`, and calls the learner's four hooks with them.  All checks happen before the
first change of state, so that a rejected call leaves the model exactly as it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "DataError",
    "Labels",
    "StreamClassifier",
    "blas_threads",
    "check_choice",
    "check_number",
    "check_rows",
    "expect",
    "expect_indptr",
    "expect_keys",
]

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Bools: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = Any  # a C-ordered float array or a canonical CSR matrix, of shape (n, p)

SMALL_PRODUCT = 1e10  # multiplications that one thread does in about a second

# Rows are stored as float32; squares of larger values would leave its range.
LARGEST_VALUE = 1e15


class DataError(ValueError):
    """A data file does not say what its format requires.

    The message reads ``path:line: what was expected, what was found``.
    """


class Labels(NamedTuple):
    """Labels of a batch of items, in the columns of the learner's vocabulary.

    Attributes
    ----------
    Y : uint8 array of shape (n, q)
        1 where the item has the label, else 0 (also where that is not known).
    known : bool array of shape (n, q), or None
        False where it is not known whether the item has the label; None when all is known.
    """

    Y: Bytes
    known: Bools | None


def check_number(
    name: str,
    value: object,
    *,
    kind: type = float,
    least: float = -np.inf,
    most: float = np.inf,
    none: bool = False,
) -> None:
    """Raise unless ``value`` is a number of the kind and range that parameter ``name`` needs."""
    allowed = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
    ok = isinstance(value, allowed) and not isinstance(value, bool)
    if (none and value is None) or (ok and least <= float(value) <= most):  # type: ignore[arg-type]
        return
    word = "an integer" if kind is int else "a number"
    span = f" between {least:g} and {most:g}" if most < np.inf else f" of at least {least:g}"
    raise ValueError(f"{name} must be {word}{span}{' or None' if none else ''}, got {value!r}")


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise unless ``value`` is one of the ``choices`` of parameter ``name``."""
    if not any(value is c or (isinstance(value, str) and value == c) for c in choices):
        listed = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")


def expect_keys(what: str, state: Any, *names: str) -> None:
    """Raise unless the loaded ``state`` of ``what`` is a dict with exactly these keys."""
    if not isinstance(state, dict) or set(state) != set(names):
        got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise ValueError(f"the state of {what} must have {sorted(names)}, got {got}")


def expect(
    name: str, array: Any, dtype: npt.DTypeLike, shape: tuple[int | None, ...]
) -> npt.NDArray[Any]:
    """Return a copy of a stored array if it has the dtype and shape it must, and is finite."""
    ok = isinstance(array, np.ndarray) and array.dtype == dtype and array.ndim == len(shape)
    if not ok or any(want not in (None, got) for want, got in zip(shape, array.shape, strict=True)):
        got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array)
        raise ValueError(f"{name} must be {np.dtype(dtype)} of shape {shape}, got {got}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return np.array(array, order="C")


def expect_indptr(indptr: npt.NDArray[np.int64], n_entries: int) -> None:
    """Raise unless the row bounds of a stored CSR matrix rise from 0 to ``n_entries``."""
    # Compared, not subtracted: the difference of two large numbers can wrap around.
    falls = (indptr[1:] < indptr[:-1]).any()
    if not len(indptr) or indptr[0] != 0 or indptr[-1] != n_entries or falls:
        raise ValueError(f"indptr must rise from 0 to {n_entries}")


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


def blas_threads(work: float) -> AbstractContextManager[Any]:
    """Keep BLAS to one thread while products of so many multiplications are made, unless many.

    Threads that wait for each other cost more than they save on small products, and far more on a
    busy machine.
    """
    if work > SMALL_PRODUCT:
        return nullcontext()
    limited: AbstractContextManager[Any] = _thread_pools().limit(limits=1, user_api="blas")
    return limited


def check_rows(X: Any, estimator: Any = None) -> Rows:
    """Return ``X`` as a finite 2-D float array or canonical CSR matrix; never change the input."""
    rows = check_array(
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        order="C",
        input_name="X",
        estimator=estimator,
    )
    if sp.issparse(rows):
        rows = sp.csr_matrix(rows)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
    values = rows.data if sp.issparse(rows) else rows
    if values.size and max(values.max(), -values.min()) > LARGEST_VALUE:
        raise ValueError(
            f"X must stay within ±{LARGEST_VALUE:g}, got {float(np.abs(values).max()):g}; "
            "scale the features"
        )
    return rows


class _Batch(NamedTuple):
    """What the label reader found: nothing of the model has changed yet."""

    labels: Labels
    names: list[Hashable]  # the vocabulary after this batch; the old one is a prefix of it
    declared: int  # so many of them are there from the first row on; the rest as they occur
    single: bool  # every item has exactly one label, given as a 1-D y
    dtype: np.dtype[Any]  # of the predictions


def _sorted_names(names: Iterable[Hashable]) -> list[Hashable]:
    """Sort names of any types; the order within one item's label set must not matter."""
    return sorted(
        names, key=lambda s: (str(type(s)), s if isinstance(s, (int, float)) else 0, str(s))
    )


def _plain(name: Any) -> Hashable:
    """Return numpy scalars as the Python values they stand for."""
    value: Hashable = name.item() if isinstance(name, np.generic) else name
    return value


def _is_label_sets(Y: Any) -> bool:
    """Tell a list of label sets from a list of indicator rows."""
    if not isinstance(Y, (list, tuple)) or not Y:
        return False

    def named(item: Any) -> bool:
        if item is None or isinstance(item, (set, frozenset)):
            return True
        return isinstance(item, (list, tuple)) and (not item or isinstance(item[0], str))

    return all(named(item) for item in Y) and any(item is not None for item in Y)


def _read_sets(Y: Sequence[Any], classes: Any, names: list[Hashable]) -> _Batch:
    names = list(names)
    column = {name: j for j, name in enumerate(names)}
    for name in () if classes is None else classes:
        column.setdefault(_plain(name), len(column))
    declared = len(column)
    columns: list[list[int] | None] = []
    for item in Y:
        if item is None:
            columns.append(None)
            continue
        for name in _sorted_names(map(_plain, item)):
            column.setdefault(name, len(column))
        columns.append([column[_plain(name)] for name in item])
    values = np.zeros((len(Y), len(column)), np.uint8)
    for i, c in enumerate(columns):
        values[i, c or []] = 1
    known = None
    if None in columns:
        known = np.repeat([[c is not None] for c in columns], values.shape[1], axis=1)
    return _Batch(Labels(values, known), list(column), declared, False, np.dtype(np.uint8))


def _read_single(y: Any, classes: Any, names: list[Hashable]) -> _Batch:
    y = np.asarray(y)
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        what = "NaN" if np.isnan(y).any() else "infinity"
        raise ValueError(f"Input y contains {what}; a 1-D y must name one label per item")
    check_classification_targets(y)
    column = {name: j for j, name in enumerate(names)}
    for name in () if classes is None else classes:
        column.setdefault(_plain(name), len(column))
    declared = len(column)
    found, first, inverse = np.unique(y, return_index=True, return_inverse=True)
    for j in np.argsort(first):
        column.setdefault(_plain(found[j]), len(column))
    values = np.zeros((len(y), len(column)), np.uint8)
    to_column = np.array([column[_plain(name)] for name in found])
    values[np.arange(len(y)), to_column[inverse.ravel()]] = 1
    return _Batch(Labels(values, None), list(column), declared, True, y.dtype)


def _as_indicator(Y: Any) -> tuple[npt.NDArray[Any], Bools | None]:
    """Return an indicator matrix as an array, and where its entries are known."""
    if sp.issparse(Y):
        if not np.isin(Y.data, (0, 1)).all():
            raise ValueError(f"Y must hold 0 and 1 only, got {_first_other(Y.data)}")
        return sp.csr_matrix(Y, dtype=np.uint8).toarray(), None
    known = None
    if isinstance(Y, np.ma.MaskedArray):
        known = ~np.ma.getmaskarray(Y)
        Y = Y.filled(0)
    try:
        values = np.asarray(Y.to_numpy() if hasattr(Y, "to_numpy") else Y)
    except ValueError:
        raise ValueError("Y must have rows of equal length, got a ragged list") from None
    if values.dtype.kind == "O":
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"Y must hold 0, 1 or NaN, got {_first_odd(values)!r}") from None
    return values, known


def _first_odd(values: npt.NDArray[Any]) -> object:
    return next((v for v in values.ravel() if not isinstance(v, (int, float))), values.ravel()[0])


def _first_other(values: npt.NDArray[Any]) -> object:
    return values[~np.isin(values, (0, 1))].ravel()[0]


def _read_indicator(Y: Any, classes: Any, names: list[Hashable]) -> _Batch:
    if classes is None and hasattr(Y, "columns"):
        classes = list(Y.columns)
    values, known = _as_indicator(Y)
    if values.ndim != 2:
        raise ValueError(f"Y must have 2 dimensions, got {values.ndim}")
    dtype = values.dtype if values.dtype.kind in "biu" else np.dtype(np.uint8)
    if values.dtype.kind == "f":
        missing = np.isnan(values)
        if missing.any():
            known = ~missing if known is None else known & ~missing
            values = np.where(missing, 0, values)
    elif values.dtype.kind not in "biu":
        raise ValueError(f"Y must hold 0, 1 or NaN, got {values.ravel()[:1].tolist()[0]!r}")
    if not np.isin(values, (0, 1)).all():
        raise ValueError(f"Y must hold 0 and 1 only, got {_first_other(values)}")
    width, old = values.shape[1], len(names)
    if classes is None:
        numbered = names == list(range(old))
        if width != old and not (numbered and width > old):
            hint = "" if numbered else "; name the columns with classes="
            raise ValueError(f"Y must have {old} columns, got {width}{hint}")
        columns = np.arange(width)
        new: list[Hashable] = [*range(width)] if numbered else names
    else:
        given = [_plain(name) for name in classes]
        if len(given) != width or len(set(given)) != width:
            raise ValueError(
                f"classes must name the {width} columns of Y, got {len(set(given))} names"
            )
        column = {name: j for j, name in enumerate(names)}
        for name in given:
            column.setdefault(name, len(column))
        columns, new = np.array([column[name] for name in given], int), list(column)
    if len(new) == width and (columns == np.arange(width)).all():
        labels = Labels(np.ascontiguousarray(values, np.uint8), known)
        return _Batch(labels, new, len(new), False, dtype)
    placed = np.zeros((len(values), len(new)), np.uint8)
    placed[:, columns] = values
    if known is not None:
        mask = np.ones(placed.shape, np.bool_)
        mask[:, columns] = known
        known = mask
    return _Batch(Labels(placed, known), new, len(new), False, dtype)


def _read_labels(Y: Any, classes: Any, names: list[Hashable]) -> _Batch:
    """Read labels of any accepted form against the vocabulary ``names``."""
    if Y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None")
    if _is_label_sets(Y):
        return _read_sets(Y, classes, names)
    if not sp.issparse(Y) and not isinstance(Y, np.ma.MaskedArray):
        try:
            array = np.asarray(Y)
        except ValueError:
            raise ValueError("Y must have rows of equal length, got a ragged list") from None
        if array.ndim == 1 and not any(isinstance(v, (set, list, tuple)) for v in array[:1]):
            return _read_single(array, classes, names)
        column = array.ndim == 2 and array.shape[1] == 1 and array.dtype.kind in "iuUS"
        if column and not np.isin(array, (0, 1)).all():
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected; "
                "it is read as one label per item",
                DataConversionWarning,
                stacklevel=4,
            )
            return _read_single(array[:, 0], classes, names)
    return _read_indicator(Y, classes, names)


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
        if not sp.issparse(Y) and not _is_label_sets(Y) and _n_dims(Y) == 1:
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

    def _read_batch(self, rows: Rows, Y: Any, classes: Any, names: list[Hashable]) -> _Batch:
        batch = _read_labels(Y, classes, names)
        if len(batch.labels.Y) != rows.shape[0]:
            raise ValueError(
                f"Y must have as many rows as X ({rows.shape[0]}), got {len(batch.labels.Y)}"
            )
        return batch

    def _begin(self, X: Any, rows: Rows, batch: _Batch) -> None:
        validate_data(self, X, reset=True, skip_check_array=True)
        self._sparse = bool(sp.issparse(rows))
        self._single = batch.single
        self._dtype = batch.dtype
        self.n_seen_ = 0
        self.classes_ = np.empty(0, np.int64)
        self._start()

    def _absorb(self, rows: Rows, batch: _Batch, ids: Sequence[Hashable] | None) -> None:
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
        bounds = [0, *(np.flatnonzero(np.diff(needed)) + 1).tolist(), len(Y)]
        for first, stop in pairwise(bounds):
            q = int(needed[first])
            self._set_names(batch.names[:q])
            part = Labels(
                np.ascontiguousarray(Y[first:stop, :q]),
                None if known is None else np.ascontiguousarray(known[first:stop, :q]),
            )
            self._learn(rows[first:stop], part, None if ids is None else ids[first:stop])
            self.n_seen_ += stop - first

    def _set_names(self, names: list[Hashable]) -> None:
        if len(names) == len(self.classes_):
            return
        self.classes_ = _as_array(names)
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
            return [{_plain(name)} for name in Y]
        return [{_plain(name) for name in self.classes_[row.astype(bool)]} for row in Y]

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


def _as_array(names: list[Hashable]) -> npt.NDArray[Any]:
    """Return names as a 1-D array, of objects unless they are all texts or all numbers."""
    if len({type(name) for name in names}) == 1 and isinstance(names[0], (str, bool, int, float)):
        array = np.array(names)
        kept = array.tolist()
        if kept == names and type(kept[0]) is type(names[0]):  # large integers may become floats
            return array
    array = np.empty(len(names), object)
    array[:] = names
    return array


def _n_dims(Y: Any) -> int:
    """Return the number of dimensions; a ragged list has none."""
    try:
        return np.asarray(Y).ndim
    except ValueError:
        return 0


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
