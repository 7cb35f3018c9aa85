"""river: our learners as river models, river's multi-label models in our evaluation.

Needs the extra ``tagstream[river]``.

Columns.  river's items are dicts whose keys come and go; our learners take rows of fixed width.
:class:`RiverClassifier` reserves ``n_features`` columns and gives each new feature name the next
free one, so nothing is fitted again when a feature appears.  A name keeps its column for ever.
When all are taken, further names are hashed onto the columns that exist, half of them with a minus
sign: two features in one column can no longer be told apart, and their values add up or cancel.
No name is dropped and no memory grows; make ``n_features`` larger than the vocabulary to have no
collision at all.

Questions.  river asks about the next item of a stream.  So does :class:`RiverClassifier`: all its
answers are those of ``next=True``, for which the latest labels are evidence.  Asking about many
items at once loses recency: for the last of them, the latest labels known are those before the
first.

Asked and learnt.  In river an item is asked about, then learnt.  The adapter keeps what was found
out about the item asked last and hands it to the learner with its labels: nothing is computed
twice, and what is learnt does not depend on it.

Labels.  A label that is missing from a dict of labels is *unknown* for that item, not absent.
The one exception: items that came before a label was first mentioned are taken not to have it.
"""

from __future__ import annotations

import numbers
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.base import clone as fresh_copy
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from tagstream.checks import check_number, check_rows
from tagstream.engine.asked import Asked
from tagstream.labels.read import read_indicator, sorted_names
from tagstream.learners.estimator import StreamClassifier
from tagstream.learners.inputs import check_input
from tagstream.learners.keeping import keeps_items

try:
    from river import base
except ImportError as error:
    raise ImportError(
        "tagstream.compat.river needs river; install it with: pip install 'tagstream[river]'"
    ) from error

if TYPE_CHECKING:
    from typing_extensions import Self

    from tagstream.learners.neighbors import Explanation

__all__ = ["FromRiver", "Labels", "Probabilities", "RiverClassifier"]


class Labels(dict[Hashable, bool]):
    """A prediction: every label seen so far, True or False.

    Looking up any other label gives False, for a label that was never heard of is not predicted.
    river's multi-label metrics look up each true label, and would raise ``KeyError`` when one
    appears for the first time.

    Examples
    --------
    >>> labels = Labels(sea=True, sun=False)
    >>> labels["snow"], "snow" in labels, len(labels)
    (False, False, 2)
    """

    def __missing__(self, label: Hashable) -> bool:
        return False


class Probabilities(dict[Hashable, dict[bool, float]]):
    """The probabilities of True and False of every label seen so far; of others, 0 and 1."""

    def __missing__(self, label: Hashable) -> dict[bool, float]:
        return {False: 1.0, True: 0.0}


class RiverClassifier(base.MultiLabelClassifier):
    """Any learner of this library as a river multi-label classifier.

    Parameters
    ----------
    model
        An ``OML``, ``KNN``, ``OSMLELM`` or ``OLANSGD``. It is a pattern: a fresh copy of it
        learns, and is found in :attr:`learner`.
    n_features
        Columns reserved for features. A word (a value that is a string) takes a column per value,
        like river's one-hot encoder.

    Examples
    --------
    >>> from tagstream import KNN
    >>> model = RiverClassifier(KNN(n_neighbors=1))
    >>> model.predict_one({"wind": 3.0})
    {}
    >>> model.learn_one({"wind": 3.0}, {"sail": True})
    >>> model.learn_one({"sky": "clear"}, {"sail": False, "swim": True})
    >>> model.predict_one({"wind": 2.0, "a feature never seen": 1.0})
    {'sail': True, 'swim': False}
    >>> round(model.predict_proba_one({"sky": "clear"})["swim"][True], 3)
    1.0
    """

    def __init__(self, model: Any, n_features: int = 2**14) -> None:
        check_number("n_features", n_features, kind=int, least=1, most=2**31 - 1)
        if not isinstance(model, StreamClassifier):
            raise ValueError(f"model must be a learner of tagstream, got {type(model).__name__}")
        self.model = model
        self.n_features = n_features
        self._learner: StreamClassifier | None = None
        self._asked: Asked | None = None
        self._columns: dict[Hashable, int] = {}
        self._labels: dict[Hashable, int] = {}

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from tagstream.learners.knn import KNN
        from tagstream.learners.oml import OML
        from tagstream.paper.methods.olansgd import OLANSGD
        from tagstream.paper.methods.osml_elm import OSMLELM

        for model in (OML(random_state=0), KNN(), OSMLELM(n_hidden=20, random_state=0), OLANSGD()):
            yield {"model": model, "n_features": 128}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_asked": None}

    @property
    def learner(self) -> StreamClassifier | None:
        """The learner behind; None before the first example."""
        return self._learner

    # ------------------------------------------------------------------ learning
    def learn_one(self, x: dict[Any, Any], y: dict[Any, bool]) -> None:
        """Learn one item.

        Parameters
        ----------
        x
            Feature name to number, truth value or string; None and NaN are as good as no entry,
            and a feature without entry is 0.
        y
            Label to truth value; None and NaN are as good as no entry: it is not known whether the
            item has the label. An item of which no label is known is passed over.
        """
        self.learn_many([x], [y])

    def learn_many(self, X: Any, Y: Any) -> None:
        """Learn items in their order, exactly as repeated :meth:`learn_one` does, but faster.

        Parameters
        ----------
        X, Y
            Dicts as for :meth:`learn_one`, or data frames of pandas or polars.
        """
        items, answers = _records(X), [_known(y) for y in _records(Y)]
        if len(items) != len(answers):
            raise ValueError(f"Y must have as many items as X ({len(items)}), got {len(answers)}")
        items = [_features(x) for x, y in zip(items, answers, strict=True) if y]
        answers = [y for y in answers if y]
        if not items:
            return
        n_columns, n_labels = len(self._columns), len(self._labels)
        try:
            rows = check_rows(self._rows(items, learning=True))
            for part in self._parts(answers):
                self._learn(rows[part], answers[part])
        except Exception:  # a rejected call changes nothing
            for index, n in ((self._columns, n_columns), (self._labels, n_labels)):
                for name in list(index)[n:]:
                    del index[name]
            raise

    def _parts(self, answers: list[dict[Hashable, bool]]) -> list[slice]:
        """Cut items into runs; an item that brings a new label begins one."""
        cuts, heard = [0], set(self._labels)
        for i, y in enumerate(answers):
            if i and not heard.issuperset(y):
                cuts.append(i)
            heard.update(y)
        return [slice(*ends) for ends in zip(cuts, [*cuts[1:], len(answers)], strict=True)]

    def _learn(self, rows: Any, answers: list[dict[Hashable, bool]]) -> None:
        """Learn items of which only the first may bring new labels."""
        for label in sorted_names(label for label in answers[0] if label not in self._labels):
            self._labels[label] = len(self._labels)
        Y = np.full((len(answers), len(self._labels)), np.nan)
        for row, y in zip(Y, answers, strict=True):
            row[[self._labels[label] for label in y]] = list(y.values())
        learner = fresh_copy(self.model) if self._learner is None else self._learner
        learner.partial_fit(
            rows,
            Y if np.isnan(Y).any() else Y.astype(np.uint8),
            classes=list(self._labels),
            asked=self._asked,
        )
        self._learner, self._asked = learner, None

    def _rows(self, items: Iterable[dict[Hashable, float]], learning: bool) -> Any:
        """Return items as sparse rows; only learning gives columns to new features."""
        data: list[float] = []
        indices: list[int] = []
        indptr = [0]
        for values in items:
            if learning:
                new = [name for name in values if name not in self._columns]
                for name in sorted_names(new)[: self.n_features - len(self._columns)]:
                    self._columns[name] = len(self._columns)
            row: dict[int, float] = {}
            for name, value in values.items():
                column = self._columns.get(name)
                if column is None:
                    # Before the columns are full, a feature never learnt says nothing.
                    if len(self._columns) < self.n_features:
                        continue
                    spread = zlib.crc32(repr(name).encode())
                    column, value = (spread >> 1) % self.n_features, value * (1 - 2 * (spread & 1))
                row[column] = row.get(column, 0.0) + value
            for column in sorted(row):
                indices.append(column)
                data.append(row[column])
            indptr.append(len(data))
        return sp.csr_matrix(
            (np.array(data, np.float64), indices, indptr), shape=(len(indptr) - 1, self.n_features)
        )

    # ------------------------------------------------------------------ prediction
    def predict_one(self, x: dict[Any, Any], **kwargs: Any) -> Labels:
        """Return all labels seen so far, True for those the item is predicted to have."""
        return self.predict_many([x])[0]

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> Probabilities:
        """Return ``{label: {False: …, True: …}}`` of all labels seen so far."""
        return self.predict_proba_many([x])[0]

    def predict_many(self, X: Any) -> list[Labels]:
        """Return :meth:`predict_one` of each of some dicts, or rows of a data frame.

        Each one is asked about as if it came next.
        """
        items = _records(X)
        if self._learner is None or not items:
            return [Labels() for _ in items]
        scores = self._scores(self._learner, items)
        Y = self._learner.labels_of(scores, next=True).astype(bool)
        return [Labels(zip(self._labels, row, strict=True)) for row in Y.tolist()]

    def _scores(self, learner: StreamClassifier, items: list[Any]) -> npt.NDArray[np.float64]:
        """Return the scores of items; what was found out about a single one is kept."""
        rows = self._rows(map(_features, items), learning=False)
        if len(items) > 1:
            return learner.predict_proba(rows, next=True)
        asked = self._asked = learner.ask(rows, next=True)
        return asked.scores

    def predict_proba_many(self, X: Any) -> list[Probabilities]:
        """Return :meth:`predict_proba_one` of each of some dicts, or rows of a data frame.

        Each one is asked about as if it came next.
        """
        items = _records(X)
        if self._learner is None or not items:
            return [Probabilities() for _ in items]
        scores = self._scores(self._learner, items)
        return [
            Probabilities(
                (label, {False: 1.0 - score, True: score})
                for label, score in zip(self._labels, row, strict=True)
            )
            for row in scores.tolist()
        ]

    def explain_one(self, x: dict[Any, Any]) -> Explanation:
        """Tell which stored items voted, how near they are, and for what (OML and KNN).

        Like :meth:`predict_one`, it answers for the next item of the stream.
        """
        if not keeps_items(self._learner):
            name = type(self.model).__name__
            raise ValueError(f"model must have learnt and keep its items to explain, got {name}")
        why: Explanation = self._learner.explain(
            self._rows([_features(x)], learning=False), next=True
        )[0]
        return why


def _records(items: Any) -> list[Any]:
    """Return dicts, or the rows of a data frame, as a list of dicts."""
    if hasattr(items, "to_dicts"):  # polars
        return list(items.to_dicts())
    if hasattr(items, "to_dict") and hasattr(items, "columns"):  # pandas
        return list(items.to_dict("records"))
    return list(items)


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, numbers.Real) and bool(value != value))


def _known(y: Any) -> dict[Hashable, bool]:
    """Return the labels of which something is known."""
    if not isinstance(y, Mapping):
        raise ValueError(f"y must be a dict of labels, got {y!r:.60}")
    known = {label: value for label, value in y.items() if not _is_missing(value)}
    for label, value in known.items():
        if value not in (0, 1):
            raise ValueError(f"y must hold True, False or None, got {value!r} of {label!r}")
    return {label: bool(value) for label, value in known.items()}


def _features(x: Any) -> dict[Hashable, float]:
    """Return the features that are there as numbers; a word is a feature of its own."""
    if not isinstance(x, Mapping):
        raise ValueError(f"x must be a dict of features, got {x!r:.60}")
    values: dict[Hashable, float] = {}
    for name, value in x.items():
        if isinstance(value, str):
            values[f"{name}={value}"] = 1.0
        elif isinstance(value, (numbers.Real, np.bool_)):
            number = float(value)
            if number == number and number != 0.0:
                values[name] = number
        elif value is not None:
            raise ValueError(f"x must hold numbers, strings or None, got {value!r:.60} of {name!r}")
    return values


def _gives_probabilities(wrapper: FromRiver) -> bool:
    model = wrapper.model
    while hasattr(model, "_last_step"):  # a pipeline
        model = model._last_step
    own: Callable[..., Any] | None = getattr(type(model), "predict_proba_one", None)
    return own is not None and own is not base.MultiLabelClassifier.predict_proba_one


class FromRiver(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A river multi-label model as a learner for :mod:`tagstream.evaluate`.

    Rows become dicts: dense ones with all their values, sparse ones with those that are stored.
    Keys are the columns' names, or numbers. Entries of ``Y`` that are NaN are left out.

    Parameters
    ----------
    model : river.base.MultiLabelClassifier
        A pattern, or a pipeline that ends in one: a fresh copy of it learns, and is found in
        ``model_``.

    Attributes
    ----------
    model_ : the river model that has learnt
    classes_ : array of shape (q,)
    n_features_in_ : int

    Examples
    --------
    >>> from river import linear_model, multioutput, preprocessing
    >>> from tagstream import make_stream, prequential
    >>> stream = make_stream(300, seed=0)
    >>> chain = multioutput.ClassifierChain(linear_model.LogisticRegression())
    >>> model = FromRiver(preprocessing.StandardScaler() | chain)
    >>> result = prequential(model, stream.X, stream.Y)
    >>> bool(result.measures["hamming_loss"] < stream.Y.mean())
    True
    """

    model_: Any
    classes_: npt.NDArray[Any]
    _names: list[Hashable]

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: Any, Y: Any) -> Self:
        """Forget everything, then learn the rows in order."""
        for name in ("model_", "classes_", "_names"):
            self.__dict__.pop(name, None)
        return self.partial_fit(X, Y)

    def partial_fit(self, X: Any, Y: Any, classes: Any = None) -> Self:
        """Learn the rows in order.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (n, p)
        Y : array, CSR matrix or data frame of shape (n, q)
            0/1 labels, NaN where unknown.
        classes : sequence of label names, optional
            Names of the columns of ``Y``.
        """
        first = not hasattr(self, "model_")
        rows = check_input(X, self)
        batch = read_indicator(Y, classes, [] if first else self._names)
        values, known = batch.labels
        if len(values) != rows.shape[0]:
            raise ValueError(f"Y must have as many rows as X ({rows.shape[0]}), got {len(values)}")
        validate_data(self, X, reset=first, skip_check_array=True)
        if first:
            self.model_ = self.model.clone()
        self._names = batch.names
        self.classes_ = np.array(batch.names)
        known = np.ones(values.shape, np.bool_) if known is None else known
        for x, y, there in zip(self._dicts(rows), values.tolist(), known.tolist(), strict=True):
            named = zip(self._names, y, there, strict=True)
            self.model_.learn_one(x, {name: bool(has) for name, has, said in named if said})
        return self

    def predict(self, X: Any) -> npt.NDArray[np.uint8]:
        """Return 0/1 labels of shape (n, q); a label the model does not mention is 0."""
        rows = self._check_query(X)
        Y = np.zeros((rows.shape[0], len(self._names)), np.uint8)
        for row, x in zip(Y, self._dicts(rows), strict=True):
            answer = self.model_.predict_one(x) or {}
            row[:] = [answer.get(name) in (True, 1) for name in self._names]
        return Y

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the probability of each label, (n, q); of one the model does not mention, 0."""
        rows = self._check_query(X)
        scores = np.zeros((rows.shape[0], len(self._names)))
        for row, x in zip(scores, self._dicts(rows), strict=True):
            answer = self.model_.predict_proba_one(x) or {}
            row[:] = [(answer.get(name) or {}).get(True, 0.0) for name in self._names]
        return scores

    @property
    def nbytes_(self) -> int:
        """Bytes of the model by river's own reckoning."""
        check_is_fitted(self, "model_")
        return int(self.model_._raw_memory_usage)

    def _check_query(self, X: Any) -> Any:
        check_is_fitted(self, "model_")
        rows = check_input(X, self)
        validate_data(self, X, reset=False, skip_check_array=True)
        return rows

    def _dicts(self, rows: Any) -> Iterable[dict[Hashable, float]]:
        names = getattr(self, "feature_names_in_", np.arange(self.n_features_in_)).tolist()
        if not sp.issparse(rows):
            return (dict(zip(names, row, strict=True)) for row in rows.tolist())
        parts = zip(rows.indptr, rows.indptr[1:], strict=False)
        columns, values = rows.indices.tolist(), rows.data.tolist()
        return (
            {names[j]: v for j, v in zip(columns[a:b], values[a:b], strict=True)} for a, b in parts
        )
