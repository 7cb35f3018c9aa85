"""The estimator that all learners share.

Every learner is a :class:`StreamClassifier`.  What users pass (arrays, sparse matrices, data
frames, lists of label sets) becomes two plain things, rows ``X`` and
:class:`~tagstream.labels.Labels`, with which the learner's hooks are called.  All checks happen
before the first change of state, so that a rejected call leaves the model exactly as it was.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tagstream import decision
from tagstream.checks import LARGEST_VALUE, Floats, Rows, cut_rows
from tagstream.decision import check_rule
from tagstream.engine.asked import Asked
from tagstream.execution.signals import HELD
from tagstream.labels.read import Batch, Labels, as_array, is_label_sets, n_dims, plain, read_labels
from tagstream.learners.inputs import check_input
from tagstream.limits import LIMITS, Limits

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["StreamClassifier", "View"]

MOST_SCORES = 1 << 24  # that are made at a time, where labels are what is asked for


class StreamClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """The contract of all learners: scikit-learn's estimator interface over a stream.

    A subclass gives these hooks: ``_check_params``; ``_start`` (make the empty state for
    ``n_features_in_`` features and, when ``_sparse``, sparse rows); ``_grow`` (``q`` labels from
    now on, new ones to the right); ``_learn`` (a checked batch; ``n_seen_`` is still the count
    before it); ``_proba`` (scores in [0, 1] of checked rows) and, where the next item of the
    stream has others, ``_next_proba``; ``_freeze`` (give a twin that is only read its own copy of
    what learning changes in place); ``_dump`` and ``_load`` (the state
    as plain values, and back: ``_load`` is called instead of ``_start`` and ``_grow``, takes
    nothing for granted but the vocabulary, and checks names, shapes, types and ranges).

    No question changes anything.  Calls from several threads wait for each other, because one of
    them may learn.  Those who must not wait read a :meth:`view`.

    There are two questions.  *Any item*: which labels does this item have, whenever it came?
    ``predict``, ``predict_proba``, ``predict_sets`` and ``explain`` answer it.  *The next item*:
    which labels does the item have that comes next in the stream?  There the latest labels are
    evidence too.  ``predict_one`` and ``predict_proba_one`` answer it, and the other methods do so
    with ``next=True``.  Learners that do not tell the two apart give one answer to both.

    A call takes effect as a whole or not at all: Ctrl+C waits until it is whole.  After an error in
    the middle of a change, such as a lack of memory, or a second Ctrl+C, the learner can only be
    read, and says so.

    Attributes
    ----------
    classes_ : array of shape (q,)
        Label names in the order of the columns of every ``(n, q)`` array.
    n_features_in_ : int
    n_seen_ : int
        How many examples have been learnt.
    n_empty_ : int
        How many of them had no label, although all of their labels were known.  Neither a window
        nor ``forget`` changes these two counts.
    """

    decide: str | float = 0.5
    _params: ClassVar[tuple[str, ...]] = ()
    _limits: ClassVar[Limits] = LIMITS
    classes_: npt.NDArray[Any]
    n_features_in_: int
    n_seen_: int
    n_empty_: int

    _checked: tuple[Any, ...] = ()  # the parameters as they were when they were last checked
    _columns: tuple[Any, dict[Hashable, int]] = (None, {})  # of the names in some ``classes_``
    _broken = ""  # the error that left half of a change
    _lock: AbstractContextManager[Any]
    _state: object  # stands for the present state: every change makes another

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Give every model its lock, however it is made."""
        model: Self = super().__new__(cls)
        model._lock, model._state = threading.RLock(), object()
        return model

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Look up the names of the parameters once: scikit-learn does it by inspection."""
        super().__init_subclass__(**kwargs)
        cls._params = tuple(cls._get_param_names())

    # ------------------------------------------------------------------ hooks of a subclass
    def _check_params(self) -> None:
        raise NotImplementedError

    def _start(self) -> None:
        raise NotImplementedError

    def _grow(self, q: int) -> None:
        raise NotImplementedError

    def _learn(self, X: Rows, labels: Labels, ids: Sequence[Hashable] | None) -> None:
        raise NotImplementedError

    def _learn_asked(
        self, X: Rows, labels: Labels, ids: Sequence[Hashable] | None, asked: Asked
    ) -> None:
        """Learn items that were asked about, in the state that there is now."""
        self._learn(X, labels, ids)

    def _proba(self, X: Rows) -> npt.NDArray[np.float64]:
        raise NotImplementedError

    def _next_proba(self, X: Rows) -> npt.NDArray[np.float64]:
        return self._proba(X)

    def _end_fit(self) -> None:
        """Do what is to be done when all of a data set is learnt."""

    def _freeze(self, twin: Self) -> None:
        raise NotImplementedError

    def _dump(self) -> dict[str, Any]:
        raise NotImplementedError

    def _load(self, state: dict[str, Any]) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------------ learning
    def fit(self, X: Any, Y: Any) -> Self:
        """Forget everything, then learn the rows of ``X`` in order.

        A learner that fits something now and then (:class:`~tagstream.OML`) fits it once more at
        the end, so that the order of the rows does not matter to answers for any item.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (n, p)
        Y : labels of the n items
            A 0/1 array, CSR matrix or data frame of shape (n, q), where NaN (or a masked entry)
            means "not known"; a list or series of n sets of label names (None: nothing is known);
            or a 1-D array that names one label per item.
        """
        self._check_params()
        rows = check_input(X, self)
        classes = None
        if not sp.issparse(Y) and not is_label_sets(Y) and n_dims(Y) == 1:
            classes = np.unique(np.asarray(Y))  # scikit-learn: classes_ of a 1-D y are sorted
        batch = self._read_batch(rows, Y, classes, [])
        with self._lock:
            self._broken = ""  # what there was is forgotten
            with Change(self):
                self._begin(X, rows, batch)
                self._absorb(rows, batch, None)
                self._end_fit()
        return self

    def partial_fit(
        self,
        X: Any,
        Y: Any,
        classes: Any = None,
        ids: Sequence[Hashable] | None = None,
        *,
        asked: Asked | None = None,
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
        asked : Asked, optional
            What :meth:`ask` returned for the same rows.  Learning is faster with it and comes to
            the same.  It is used only if nothing was learnt or changed in between.
        """
        self._check_params()
        _check_asked(asked)
        rows = check_input(X, self)
        if ids is not None:
            ids = check_ids(ids, rows.shape[0])
        with self._lock:
            if hasattr(self, "n_features_in_"):
                self._check_width(X)
                self._go_on(rows, Y, classes, ids, asked)
            else:
                batch = self._read_batch(rows, Y, classes, [])
                with Change(self):
                    self._begin(X, rows, batch)
                    self._absorb(rows, batch, ids)
        return self

    def start_empty(self, n_features: int, *, sparse: bool) -> Self:
        """Begin a stream of rows of so many columns, before its first example comes.

        Nothing is known yet; ``classes_`` is empty.  A learner that has begun cannot begin again.
        """
        self._check_params()
        with self._lock:
            if hasattr(self, "n_seen_"):
                raise ValueError("the learner must be new, got one that has begun")
            with Change(self):
                self.n_features_in_ = int(n_features)
                self._sparse, self._single, self._dtype = sparse, False, np.dtype(np.uint8)
                self.n_seen_ = self.n_empty_ = 0
                self.classes_ = np.empty(0, np.int64)
                self._start()
        return self

    def learn_rows(
        self,
        rows: Rows,
        Y: Any,
        classes: Any = None,
        ids: Sequence[Hashable] | None = None,
        *,
        asked: Asked | None = None,
    ) -> Self:
        """Learn as :meth:`partial_fit` does rows that only their width is checked of.

        Parameters
        ----------
        rows : float array in C order or canonical CSR matrix, of shape (n, p)
            As :func:`tagstream.checks.check_rows` returns them.
        Y, classes, ids, asked
            As in :meth:`partial_fit`.
        """
        with self._lock:
            if not hasattr(self, "n_features_in_"):
                return self.partial_fit(rows, Y, classes, ids)
            self._check_changed_params()
            self._check_rows_width(rows)
            ids = None if ids is None else check_ids(ids, rows.shape[0])
            self._go_on(rows, Y, classes, ids, asked)
        return self

    def _go_on(
        self,
        rows: Rows,
        Y: Any,
        classes: Any,
        ids: Sequence[Hashable] | None,
        asked: Asked | None,
    ) -> None:
        """Learn checked rows after others."""
        rows = self._as_stored(rows)
        asked = self._still(asked, rows)
        if rows.shape[0] == 1 and classes is None and type(Y) is list and len(Y) == 1:
            labels = self._fast_labels(Y[0])
            if labels is not None:
                with Change(self):
                    self._learn_part(rows, labels, ids, asked)
                return
        batch = self._read_batch(rows, Y, classes, self.classes_.tolist())
        if batch.single != self._single:
            form = "a 1-D y" if self._single else "a label matrix or label sets"
            raise ValueError(f"Y must be {form} as in earlier calls, got another form")
        with Change(self):
            self._absorb(rows, batch, ids, asked)

    def learn_one(self, x: Any, y: Any, *, id: Hashable = None, asked: Asked | None = None) -> Self:
        """Learn one item: ``x`` of shape (p,), ``y`` a 0/1 vector, a label set or a label.

        ``asked`` is what :meth:`ask` returned for it, if it was asked about.  Learning is faster
        with it and comes to the same.
        """
        _check_asked(asked)
        ids = None if id is None else [id]
        with self._lock:
            row = self._fast_row(x)
            labels = self._fast_labels(y) if row is not None else None
            if row is None or labels is None:
                return self.partial_fit(_one_row(x), _one_label(y), ids=ids, asked=asked)
            self._check_changed_params()
            names = None if ids is None else check_ids(ids, 1)
            with Change(self):
                self._learn_part(row, labels, names, self._still(asked, row))
        return self

    def _still(self, asked: Asked | None, rows: Rows) -> Asked | None:
        """Return what was asked about these rows if it still holds; None if it does not."""
        if asked is None or not asked.holds(self._as_kept(rows), self._state):
            return None
        return asked

    def _as_kept(self, rows: Rows) -> Rows:
        """Return rows as they are when they are asked about."""
        return rows

    def _learn_part(
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None,
        asked: Asked | None = None,
    ) -> None:
        """Learn checked items that bring no new labels."""
        if asked is None:
            self._learn(rows, labels, ids)
        else:
            self._learn_asked(rows, labels, ids, asked)
        self._count_learnt(labels)

    def _count_learnt(self, labels: Labels) -> None:
        """Count examples that were learnt."""
        self.n_seen_ += len(labels.Y)
        self.n_empty_ += labels.n_empty

    def _check_changed_params(self) -> None:
        """Check the parameters if one was set since this was last done."""
        now = map(self.__dict__.__getitem__, self._params)
        if not self._checked or any(map(operator.is_not, now, self._checked)):
            self._check_params()
            self._checked = tuple([self.__dict__[name] for name in self._params])

    def _read_batch(self, rows: Rows, Y: Any, classes: Any, names: list[Hashable]) -> Batch:
        batch = read_labels(Y, classes, names, self._limits)
        if batch.n != rows.shape[0]:
            raise ValueError(f"Y must have as many rows as X ({rows.shape[0]}), got {batch.n}")
        return batch

    def _begin(self, X: Any, rows: Rows, batch: Batch) -> None:
        validate_data(self, X, reset=True, skip_check_array=True)
        self._sparse = bool(sp.issparse(rows))
        self._single = batch.single
        self._dtype = batch.dtype
        self.n_seen_ = self.n_empty_ = 0
        self.classes_ = np.empty(0, np.int64)
        self._start()

    def _absorb(
        self,
        rows: Rows,
        batch: Batch,
        ids: Sequence[Hashable] | None,
        asked: Asked | None = None,
    ) -> None:
        """Learn a batch; a label that is only met on the way is added where it is met.

        So the number of labels at any time does not depend on how the stream was cut.
        """
        needed = np.full(batch.n, batch.declared)
        if batch.declared < len(batch.names):
            needed = np.maximum.accumulate(np.maximum(batch.widths(), needed))
        cut = needed[1:] != needed[:-1]
        if batch.blank is not None:
            # Before the first label, a mask of no columns stands for items of one kind only:
            # those of which nothing is known.
            cut |= (needed[1:] == 0) & (batch.blank[1:] != batch.blank[:-1])
        cut[batch.most - 1 :: batch.most] = True
        # One array for all: made anew at each label that is met, many would take long.
        grows = len(batch.names) > len(self.classes_)
        names = as_array(batch.names) if grows else self.classes_
        bounds = [0, *(np.flatnonzero(cut) + 1).tolist(), batch.n]
        if grows or len(bounds) > 2:  # it was asked about as a whole, and without new labels
            asked = None
        for first, stop in pairwise(bounds):
            q = int(needed[first])
            self._set_names(names[:q])
            part = batch.part(first, stop, q)
            if q == 0 and batch.blank is not None and not batch.blank[first]:
                part = Labels(part.Y, None)
            some = None if ids is None else ids[first:stop]
            self._learn_part(cut_rows(rows, first, stop), part, some, asked)

    def _set_names(self, names: list[Hashable] | npt.NDArray[Any]) -> None:
        if len(names) == len(self.classes_):
            return
        self.classes_ = as_array(names) if isinstance(names, list) else names
        self._grow(len(names))

    def rename_label(self, old: Hashable, new: Hashable) -> Self:
        """Call a label by another name from now on."""
        with self._lock:
            check_is_fitted(self)
            names = self.classes_.tolist()
            column = self._column(old)
            new = check_name("new", new)
            if new in names and new != old:
                raise ValueError(f"new must be a name that is not taken, got {new!r}; merge them")
            self._state = object()
            self.classes_ = as_array([*names[:column], new, *names[column + 1 :]])
        return self

    def _column(self, name: Hashable) -> int:
        """Return the column of a label."""
        try:
            return int(self.classes_.tolist().index(name))
        except ValueError:
            raise ValueError(f"the label must be one that was learnt, got {name!r}") from None

    # ------------------------------------------------------------------ prediction
    def view(self) -> View:
        """Return an immutable picture of the model as it is now.

        It predicts and explains as the model does at this moment, however much that learns
        afterwards, in another thread or in this one.  Making it takes constant time in the number
        of stored items.

        Examples
        --------
        >>> from tagstream import KNN
        >>> model = KNN(1).fit([[0.0], [1.0]], [{"low"}, {"high"}])
        >>> before = model.view()
        >>> _ = model.partial_fit([[1.0]], [{"late"}])
        >>> before.n_seen_, before.predict_sets([[1.0]]), len(model.classes_)
        (2, [{'high'}], 3)
        """
        with self._lock:
            check_is_fitted(self)
            twin = type(self).__new__(type(self))
            twin.__dict__.update(self.__dict__)
            twin._lock = nullcontext()  # nothing that can be asked of it writes
            self._freeze(twin)
        return View(twin)

    def ask(
        self,
        X: Any,
        *,
        next: bool = False,
        ids: Sequence[Hashable | None] | None = None,
    ) -> Asked:
        """Return the scores of some items with all that was found out about them, as a value.

        Hand it to :meth:`learn_one` or :meth:`partial_fit` with the labels of these items, and to
        ``explain``: then nothing is computed twice.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (n, p); or one item, of shape (p,)
        next : bool
            Answer for the next item of the stream instead of any item.
        ids : sequence, optional
            As in :meth:`scores_of`.

        Examples
        --------
        >>> from tagstream import OML
        >>> model = OML(random_state=0).fit([[0.0], [1.0]] * 20, [{"low"}, {"high"}] * 20)
        >>> asked = model.ask([[0.9]])
        >>> model.labels_of(asked.scores).tolist(), model.classes_.tolist()
        ([[0, 1]], ['low', 'high'])
        >>> model.partial_fit([[0.9]], [{"high"}], asked=asked).n_seen_
        41
        """
        with self._lock:
            one = type(X) is np.ndarray and X.ndim == 1
            rows = self._one_query(X) if one else None
            if rows is None:
                check_is_fitted(self)
                rows = self._check_query(X)
            return self._ask(self._own(rows, X), next=next, ids=ids)

    def ask_rows(
        self,
        rows: Rows,
        *,
        next: bool = False,
        ids: Sequence[Hashable | None] | None = None,
    ) -> Asked:
        """Return what :meth:`ask` returns, for rows that only their width is checked of.

        The rows must not change afterwards.
        """
        with self._lock:
            self._check_rows_width(rows)
            return self._ask(self._as_kept(self._as_stored(rows)), next=next, ids=ids)

    def _own(self, rows: Rows, X: Any) -> Rows:
        """Return rows as they are kept, which do not change with what they were made of."""
        kept = self._as_kept(rows)
        shared = sp.issparse(kept) or np.may_share_memory(kept, X)
        return kept.copy() if shared else kept

    def _ask(self, rows: Rows, *, next: bool, ids: Sequence[Hashable | None] | None) -> Asked:
        return Asked(rows, next, self._scores(rows, next=next), ids, state=self._state)

    def is_as_asked(self, asked: Asked) -> bool:
        """Tell whether nothing was learnt or changed since something was asked."""
        return asked.state is self._state

    def _asked(self, asked: Asked) -> Asked:
        """Return what was asked; anew, if the learner has changed since."""
        if self.is_as_asked(asked):
            return asked
        self._check_rows_width(asked.rows)
        return self._ask(self._as_kept(self._as_stored(asked.rows)), next=asked.next, ids=asked.ids)

    def predict_proba(self, X: Any, *, next: bool = False) -> npt.NDArray[np.float64]:
        """Return the score of each label, an array of shape (n, q) in [0, 1].

        When the model was given a 1-D y, the rows sum to one.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (n, p)
        next : bool
            Answer for the next item of the stream instead of any item.
        """
        with self._lock:
            check_is_fitted(self)
            return self._scores(self._check_query(X), next=next)

    def scores_of(
        self,
        rows: Rows,
        *,
        next: bool = False,
        ids: Sequence[Hashable | None] | None = None,
    ) -> npt.NDArray[np.float64]:
        """Return what :meth:`predict_proba` returns, for rows that only their width is checked of.

        For one row, scikit-learn's checks take as long as the answer.

        Parameters
        ----------
        rows : float array in C order or canonical CSR matrix, of shape (n, p)
            As :func:`tagstream.checks.check_rows` returns them.
        next : bool
            As in :meth:`predict_proba`.
        ids : sequence, optional
            The names of the items, None where one has none.  If an item of that name is stored and
            its row is the same, it speaks before other stored items with that row.  Only learners
            with a head that keep items use it.
        """
        with self._lock:
            self._check_rows_width(rows)
            return self._scores(self._as_stored(rows), next=next)

    def predict(
        self, X: Any, decide: str | float | None = None, *, next: bool = False
    ) -> npt.NDArray[Any]:
        """Return 0/1 labels of shape (n, q); of shape (n,) when the model was given a 1-D y.

        The dtype is that of the first ``Y`` if that was an integer or boolean array, else uint8.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (n, p)
        decide : optional
            How to decide this time, as the parameter of the same name says.
        next : bool
            Answer for the next item of the stream instead of any item.
        """
        with self._lock:
            check_is_fitted(self)
            blocks = self._score_blocks(X, next=next)
            parts = [self.labels_of(scores, decide, next=next) for scores in blocks]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _score_blocks(self, X: Any, *, next: bool) -> Iterator[npt.NDArray[np.float64]]:
        """Yield the scores of rows, of so many rows at a time as fit."""
        rows = self._check_query(X)
        size = max(1, MOST_SCORES // max(len(self.classes_), 1))
        for first in range(0, max(rows.shape[0], 1), size):
            yield self._scores(rows[first : first + size], next=next)

    def labels_of(
        self,
        scores: npt.NDArray[np.float64],
        decide: str | float | None = None,
        *,
        next: bool = False,
    ) -> npt.NDArray[Any]:
        """Return the predictions that scores of :meth:`predict_proba` stand for.

        ``next`` must be what the scores were asked with: ``decide="macro"`` has its own thresholds
        for each question.
        """
        if decide is not None:
            check_rule("decide", decide)
        if self._single:
            best: npt.NDArray[Any] = self.classes_[scores.argmax(axis=1)]
            return best
        rule = self.decide if decide is None else decide
        bars = self._bars(rule, next=next)
        seen = decision.Seen(self.n_seen_, self.n_empty_)
        return decision.decide(scores, rule, bars, seen).astype(self._dtype)

    def _bars(self, rule: str | float, *, next: bool) -> npt.NDArray[np.float64] | None:
        """Return the score from which each label is suggested by a rule, if that has such bars."""
        return None

    def predict_one(self, x: Any, decide: str | float | None = None) -> Any:
        """Return the prediction for the next item of the stream, ``x`` of shape (p,)."""
        with self._lock:
            scores = self._scores(self._one_query(x), next=True)
            return self.labels_of(scores, decide, next=True)[0]

    def predict_proba_one(self, x: Any) -> npt.NDArray[np.float64]:
        """Return the scores of the next item of the stream, ``x`` of shape (p,).

        They are those of ``predict_proba([x], next=True)[0]``, an array of shape (q,).
        """
        with self._lock:
            scores: npt.NDArray[np.float64] = self._scores(self._one_query(x), next=True)[0]
        return scores

    def predict_sets(
        self, X: Any, decide: str | float | None = None, *, next: bool = False
    ) -> list[set[Any]]:
        """Return the predicted label names of each item as a set; see :meth:`predict`."""
        with self._lock:
            check_is_fitted(self)
            names, out = self.classes_, []
            for scores in self._score_blocks(X, next=next):
                Y = self.labels_of(scores, decide, next=next)
                if self._single:
                    out += [{plain(name)} for name in Y]
                else:
                    out += [{plain(name) for name in names[row.astype(bool)]} for row in Y]
        return out

    def _scores(self, rows: Rows, *, next: bool) -> npt.NDArray[np.float64]:
        return self._shares(self._next_proba(rows) if next else self._proba(rows))

    def _shares(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return scores that sum to one where each item has one label, and others as they are."""
        if self._single:
            total = scores.sum(axis=1, keepdims=True)
            even = np.full_like(scores, 1 / scores.shape[1])
            scores = np.divide(scores, total, out=even, where=total > 0)
        return scores

    # ------------------------------------------------------------------ checks
    def _check_width(self, X: Any) -> None:
        validate_data(self, X, reset=False, skip_check_array=True)

    def _check_rows_width(self, rows: Rows) -> None:
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(f"rows must have {self.n_features_in_} features, got {rows.shape[1]}")

    def _check_query(self, X: Any) -> Rows:
        rows = check_input(X, self)
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
        if not x.dot(x) <= LARGEST_VALUE:
            return None
        return x[None]

    def _fast_labels(self, y: Any) -> Labels | None:
        """Return plain labels of one item, (1, q); None sends the caller to their reader."""
        if self._single:
            return None
        if type(y) is not np.ndarray:
            return self._fast_names(y)
        if y.dtype != np.uint8 or y.shape != self.classes_.shape:
            return None
        # Taking all 0 and 1 out of the bytes costs a fifth of looking for the largest.
        if y.tobytes().translate(None, b"\0\1"):
            return None
        return Labels(y[None], None)

    def _fast_names(self, y: Any) -> Labels | None:
        """Return the labels of an item that has them by name, if none of them is new."""
        names = type(y) in (set, frozenset) or (type(y) in (list, tuple) and _are_texts(y))
        if not names or not len(self.classes_):
            return None
        known, columns = self._columns
        if known is not self.classes_:
            columns = {name: j for j, name in enumerate(self.classes_.tolist())}
            self._columns = self.classes_, columns
        values = np.zeros((1, len(self.classes_)), np.uint8)
        for name in y:
            j = columns.get(name)
            if j is None:
                return None
            values[0, j] = 1
        return Labels(values, None)

    # ------------------------------------------------------------------ state as plain values
    def to_state(self) -> dict[str, Any]:
        """Return parameters and state as nested dicts of arrays, numbers, strings and None."""
        with self._lock, HELD:  # what is left of a fit under way is done
            check_is_fitted(self)
            check_whole(self)
            params = self.get_params(deep=False)
            for name in ("random_state", "store"):
                # A generator was only used to draw the seed; what a store holds is in the state.
                if not isinstance(params.get(name), (int, np.integer, type(None))):
                    params[name] = None
            return {
                "params": {k: _plain_param(v) for k, v in params.items()},
                "n_features": self.n_features_in_,
                "feature_names": getattr(self, "feature_names_in_", np.empty(0, object)).tolist(),
                "names": self.classes_.tolist(),
                "n_seen": self.n_seen_,
                "n_empty": self.n_empty_,
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
        model._restore(state)
        return model

    def _restore(self, state: dict[str, Any]) -> None:
        self.n_features_in_ = state["n_features"]
        if state["feature_names"]:
            self.feature_names_in_ = np.array(state["feature_names"], dtype=object)
        self._sparse, self._single = state["sparse"], state["single"]
        self._dtype = np.dtype(state["dtype"])
        self.n_seen_, self.n_empty_ = state["n_seen"], state["n_empty"]
        self.classes_ = as_array(state["names"])
        self._load(state["learner"])

    def __getstate__(self) -> dict[str, Any]:
        kept: dict[str, Any] = super().__getstate__()
        if "n_seen_" not in kept:
            return {key: value for key, value in kept.items() if key not in ("_lock", "_state")}
        # Plain values, so that whatever comes back, from read-only memory too, is made anew.
        own = {*self._get_param_names(), "_sklearn_version"}
        params = {key: value for key, value in kept.items() if key in own}
        return {**params, "_fitted": self.to_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        fitted = state.get("_fitted")
        super().__setstate__({key: value for key, value in state.items() if key != "_fitted"})
        if fitted is not None:
            self._restore(fitted)

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


def check_whole(model: StreamClassifier) -> None:
    """Raise if a change of the learner was left half-way."""
    if model._broken:
        raise ValueError(
            f"the learner must be whole, got one of which a call ended half-way "
            f"({model._broken}); load the model that was last saved"
        )


class Change:
    """A change of a learner: signals wait until it is whole, and it is noted if it fails."""

    __slots__ = ("_model",)

    def __init__(self, model: StreamClassifier) -> None:
        self._model = model

    def __enter__(self) -> None:
        check_whole(self._model)
        HELD.__enter__()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._model._broken = kind.__name__
        self._model._state = object()
        HELD.__exit__()


_READS = frozenset(
    {
        "ask", "ask_rows", "ask_stored", "bound_", "classes_", "explain", "has_item",
        "honest_scores", "ids_", "ids_at", "is_as_asked", "item", "kneighbors", "label_counts_",
        "labels_at", "labels_of", "n_features_in_",
        "n_seen_", "n_stored_", "near_copies", "neighbors_of", "predict", "predict_one",
        "predict_proba", "predict_proba_one", "predict_sets", "promised", "scores_of",
        "squared_loss_", "transform",
    }
)  # fmt: skip


class View:
    """What can be read of a learner, as it was when :meth:`StreamClassifier.view` was called.

    It has the reading half of the learner's methods: ``predict``, ``predict_proba``,
    ``predict_sets``, ``predict_one``, ``predict_proba_one``, ``labels_of``, and where the learner
    has them ``explain``, ``kneighbors``, ``transform``; and ``classes_``, ``n_seen_``,
    ``n_features_in_``.
    """

    def __init__(self, model: StreamClassifier) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        if name not in _READS:
            raise AttributeError(f"a view has no {name!r}; it can only be read")
        return getattr(self._model, name)

    def __dir__(self) -> list[str]:
        return sorted(name for name in _READS if hasattr(self._model, name))


def _check_asked(asked: Any) -> None:
    if asked is not None and not isinstance(asked, Asked):
        raise ValueError(f"asked must be what ask() returned, got {type(asked).__name__}")


def check_name(what: str, name: Any) -> Hashable:
    """Return the name of a label, if it can be one."""
    if not isinstance(name, Hashable) or (isinstance(name, str) and not name.strip()):
        raise ValueError(f"{what} must be hashable and not blank, got {name!r}")
    return plain(name)


def check_ids(ids: Sequence[Hashable], n: int) -> list[Hashable]:
    """Return the names of ``n`` items as a list, if they can be looked up."""
    if len(ids) != n:
        raise ValueError(f"ids must have {n} entries, got {len(ids)}")
    names = [plain(name) for name in ids]
    for name in names:
        if not isinstance(name, Hashable):
            raise ValueError(f"ids must be hashable, got {type(name).__name__}")
    return names


def _plain_param(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _are_texts(names: Sequence[Any]) -> bool:
    """Whether a list is one of names, and not of zeros and ones."""
    return len(names) > 0 and all(type(name) is str for name in names)


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
