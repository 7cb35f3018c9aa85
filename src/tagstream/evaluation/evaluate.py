"""Two ways to judge an online learner: hold-out, and prequential (test, then train).

A learner is any object with ``partial_fit(X, Y)`` and ``predict(X)``; ``predict_proba(X)`` adds the
measures made of scores, and ``labels_of(scores)``, the labels that ``predict`` makes of them, saves
a second look at each row. It is seen through these calls only. Some habits of scikit-learn are met
half-way: a learner that must hear of all ``classes`` in its first call is told, scores that come as
a list of q arrays (n, 2) become one array (n, q), and a learner that only has ``fit`` can be held
against the others in a hold-out.

The two protocols ask two questions.  :func:`holdout` asks about *any item*: the test part stands
for items that may come at any time.  :func:`prequential` asks about *the next item* of the stream,
for which the latest labels are evidence too.  A learner whose ``predict``, ``predict_proba`` or
``labels_of`` has a parameter ``next`` is told so; others are asked without it.

A learner must predict one column for each of the q labels. One that takes labels as they come may
have met fewer, or more: then ``classes_`` must name each of its columns.

Results hold raw counts; measures follow from them (:class:`tagstream.metrics.MultiLabelScores`).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.checks import check_number
from tagstream.decision import BALANCED, MACRO, check_rule
from tagstream.decision import decide as decided
from tagstream.evaluation.folds import check_labels, iterative_folds
from tagstream.evaluation.metrics import MultiLabelScores
from tagstream.evaluation.runs import LabelRuns, label_runs
from tagstream.labels.read import is_label_sets, n_dims, read_labels

__all__ = [
    "Checkpoint",
    "Fold",
    "HoldoutResult",
    "LabelRuns",
    "PrequentialResult",
    "holdout",
    "iterative_folds",
    "label_runs",
    "prequential",
    "train_test",
]

Ints = npt.NDArray[np.int64]
Progress = Callable[[int, int], object]
Watch = Callable[[npt.NDArray[Any], Any, Any], object]

_BUFFER = 512  # predictions kept before they are counted: counting in blocks is cheap
_CELLS = 1 << 24  # scores of a test part that are held at a time


@dataclass(frozen=True)
class Fold:
    """One training part learned, one test part predicted.

    Attributes
    ----------
    repeat, fold : int
        Which one it is.
    n_init, n_train, n_test : int
        Rows of the initial block, of the whole training part, of the test part.
    counts : dict
        Raw counts of the test part; see :meth:`tagstream.metrics.MultiLabelScores.to_counts`.
    learn_seconds, predict_seconds : float
        Time spent inside the learner.
    nbytes : int or None
        The learner's ``nbytes_`` at the end, if it has that.
    fitted : str
        ``"stream"`` if the training part was learned in its order by ``partial_fit``; ``"batch"``
        if the learner only has ``fit`` and got it all at once: then ``n_init`` is ``n_train``.
    """

    repeat: int
    fold: int
    n_init: int
    n_train: int
    n_test: int
    counts: dict[str, Any]
    learn_seconds: float
    predict_seconds: float
    nbytes: int | None
    fitted: str = "stream"

    @property
    def measures(self) -> dict[str, float]:
        """Every measure of the test part, by name."""
        return MultiLabelScores.from_counts(self.counts).as_dict()


@dataclass(frozen=True)
class HoldoutResult:
    """Folds of a hold-out evaluation, and the mean and spread of their measures."""

    folds: tuple[Fold, ...]

    @property
    def mean(self) -> dict[str, float]:
        """Mean of each measure, by name, over the folds; one without a known label is left out."""
        return {name: float(np.mean(values)) for name, values in self._columns().items()}

    @property
    def std(self) -> dict[str, float]:
        """Sample standard deviation (n − 1) over the folds; 0 when there is only one."""
        columns = self._columns().items()
        return {name: float(np.std(v, ddof=min(1, len(v) - 1))) for name, v in columns}

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain lists and numbers, for a JSON record."""
        return {"folds": [asdict(fold) for fold in self.folds], "mean": self.mean, "std": self.std}

    def _columns(self) -> dict[str, list[float]]:
        rows = [measures for fold in self.folds if (measures := fold.measures)]
        common = [name for name in rows[0] if all(name in row for row in rows)] if rows else []
        return {name: [row[name] for row in rows] for name in common}


@dataclass(frozen=True)
class Checkpoint:
    """State of a prequential run after ``n_items`` predictions.

    Attributes
    ----------
    n_items : int
        Items predicted so far.
    recent, cumulative : dict of str to float
        Measures over the last ``window`` items, and over all.
    fading : dict of str to float, or None
        ``micro_f1`` and ``hamming_loss`` of counts that fade.
    learn_seconds, predict_seconds : float
        Time spent inside the learner so far.
    nbytes : int or None
        The learner's ``nbytes_``, if it has that.
    """

    n_items: int
    recent: dict[str, float]
    cumulative: dict[str, float]
    fading: dict[str, float] | None
    learn_seconds: float
    predict_seconds: float
    nbytes: int | None


@dataclass(frozen=True)
class PrequentialResult:
    """Course and outcome of a prequential run.

    Attributes
    ----------
    n_items, n_learned : int
        Items predicted; items whose labels arrived and were learned, the initial block included.
    counts : dict
        Raw counts over all predicted items.
    curve : tuple of Checkpoint
        The last one is the end of the stream.
    """

    n_items: int
    n_learned: int
    counts: dict[str, Any]
    curve: tuple[Checkpoint, ...]

    @property
    def measures(self) -> dict[str, float]:
        """Every measure over all predicted items, by name."""
        return MultiLabelScores.from_counts(self.counts).as_dict()

    @property
    def fading(self) -> dict[str, float] | None:
        """Fading measures averaged over the checkpoints, as in published stream comparisons."""
        rows = [point.fading for point in self.curve if point.fading is not None]
        if not rows:
            return None
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}

    @property
    def seconds_per_item(self) -> float:
        """Time inside the learner, predicting and learning, per predicted item."""
        end = self.curve[-1]
        return (end.learn_seconds + end.predict_seconds) / self.n_items

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain lists and numbers, for a JSON record."""
        return {
            **asdict(self),
            "measures": self.measures,
            "fading": self.fading,
            "seconds_per_item": self.seconds_per_item,
        }


def train_test(
    model: Any,
    X: Any,
    Y: Any,
    train: npt.ArrayLike,
    test: npt.ArrayLike,
    *,
    init: float = 0.2,
    chunk: int = 256,
    scores: bool = True,
    decide: str | float | None = None,
    k: int | Sequence[int] = (1, 3, 5),
    refit: bool = False,
    repeat: int = 0,
    fold: int = 0,
) -> Fold:
    """Learn the rows ``train`` in that order, then predict the rows ``test``: one fold.

    The learner is asked about any item, not about the next one of a stream.

    Parameters
    ----------
    model, init, chunk, scores, decide, k
        As in :func:`holdout`.
    X, Y
        As in :func:`holdout`.
    train, test : array-like of int
        Row numbers.
    refit : bool, default=False
        Call ``refit`` of the learner after the last row of ``train``, if it has that.  ``fit`` and
        the command ``learn`` end so; then the order of ``train`` does not matter.
    repeat, fold : int
        Copied into the result.

    Returns
    -------
    Fold
    """
    check_number("chunk", chunk, kind=int, least=1)
    X, Y = _checked_stream(X, Y)
    train, test = np.asarray(train), np.asarray(test)
    for name, part in (("train", train), ("test", test)):
        if part.ndim != 1 or part.size == 0 or part.dtype.kind not in "iu":
            raise ValueError(f"{name} must be row numbers, got shape {part.shape} of {part.dtype}")
    n_init = _n_init(init, len(train))
    learner = _Learner(_fresh(model, n_init), Y.shape[1], scores, decide, batch_too=True)
    if learner.fitted == "batch":
        n_init = len(train)
    for start, stop in pairwise([0, *range(n_init, len(train), chunk), len(train)]):
        rows = train[start:stop]
        learner.learn(_take(X, rows), _labels(Y, rows))
    if refit:
        learner.refit()
    measured, size = MultiLabelScores(k=k), max(_CELLS // max(Y.shape[1], 1), 1)
    for start in range(0, len(test), size):
        rows = test[start : start + size]
        measured.update(_labels(Y, rows), *learner.predict(_take(X, rows)))
    return Fold(
        repeat=repeat,
        fold=fold,
        n_init=n_init,
        n_train=len(train),
        n_test=len(test),
        counts=measured.to_counts(),
        learn_seconds=learner.learn_seconds,
        predict_seconds=learner.predict_seconds,
        nbytes=learner.nbytes,
        fitted=learner.fitted,
    )


def holdout(
    model: Any,
    X: Any,
    Y: Any,
    *,
    folds: int = 5,
    init: float = 0.2,
    seed: int = 0,
    repeats: int = 1,
    chunk: int = 256,
    shuffle: bool = True,
    scores: bool = True,
    decide: str | float | None = None,
    k: int | Sequence[int] = (1, 3, 5),
    progress: Progress | None = None,
) -> HoldoutResult:
    """Stream the training part once, then predict the test part; for each of several folds.

    The learner is asked about any item, not about the next one of a stream.  Every fold is the test
    part once. The training part is shuffled, its first ``init`` is learned in one call, the rest in
    chunks.

    Parameters
    ----------
    model : learner, or callable
        Each fold gets its own: ``sklearn.base.clone`` where that applies, else a deep copy. A
        callable is called with the size of the initial block and returns the learner. One that
        has ``fit`` but no ``partial_fit`` is given the whole training part at once; the folds then
        say ``fitted="batch"``.
    X : array, CSR matrix or data frame of shape (n, p)
    Y : array, CSR matrix or data frame of shape (n, q), n label sets, or n labels
        0/1 labels, NaN where unknown. Label sets and single labels, which ``fit`` takes too, become
        0/1 labels in the order in which they are met. Learners are given unsigned bytes, or floats
        with NaN.
    folds : int, default=5
        Parts of the data, dealt by :func:`iterative_folds`.
    init : float or int, default=0.2
        Initial block: a share of the training part if below 1, else a number of rows.
    seed : int, default=0
        Decides folds and order.
    repeats : int, default=1
        How often to deal anew.
    chunk : int, default=256
        Rows per call after the initial block.
    shuffle : bool, default=True
        False keeps the training part in file order.
    scores : bool, default=True
        Also call ``predict_proba``, if there is one.
    decide : str or float, optional
        Make the predicted labels of the scores by this rule, instead of calling ``predict``: a
        threshold, ``"top3"``, ``"balanced"``, ``"f1"`` or ``"hamming"``; see
        :func:`tagstream.decision.decide`.  ``"macro"`` is for learners that have a head.
    k : int or sequence of int
        Depths of the measures "at k".
    progress : callable, optional
        Called with (folds done, folds in all).

    Returns
    -------
    HoldoutResult

    Examples
    --------
    >>> from sklearn.linear_model import SGDClassifier
    >>> from sklearn.multioutput import MultiOutputClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 4))
    >>> Y = (X[:, :3] > 0).astype(int)
    >>> model = MultiOutputClassifier(SGDClassifier(loss="log_loss", random_state=0))
    >>> result = holdout(model, X, Y, folds=4, seed=1)
    >>> round(result.mean["micro_f1"], 2), len(result.folds), result.folds[0].n_init
    (0.92, 4, 30)
    """
    check_number("repeats", repeats, kind=int, least=1)
    check_number("seed", seed, kind=int, least=0)
    X, Y = _checked_stream(X, Y)
    done: list[Fold] = []
    for repeat in range(repeats):
        fold_of = iterative_folds(Y, folds, (seed, repeat))
        for fold in range(folds):
            train = np.flatnonzero(fold_of != fold)
            if shuffle:
                train = np.random.default_rng((seed, repeat, fold)).permutation(train)
            result = train_test(
                model,
                X,
                Y,
                train,
                np.flatnonzero(fold_of == fold),
                init=init,
                chunk=chunk,
                scores=scores,
                decide=decide,
                k=k,
                repeat=repeat,
                fold=fold,
            )
            done.append(result)
            if progress is not None:
                progress(len(done), repeats * folds)
    return HoldoutResult(tuple(done))


def prequential(
    model: Any,
    X: Any,
    Y: Any,
    *,
    delay: int | npt.ArrayLike = 0,
    batch: int = 1,
    init: int = 0,
    every: int = 1000,
    window: int = 1000,
    fading: float | None = None,
    scores: bool = True,
    decide: str | float | None = None,
    tell_lag: bool = True,
    k: int | Sequence[int] = (1, 3, 5),
    taught: Any = None,
    watch: Watch | None = None,
    progress: Progress | None = None,
) -> PrequentialResult:
    """Predict each item, then learn from it, in the order of the rows.

    Every item is asked about as the next one of the stream: ``next=True``, where the learner has
    that parameter.  The result holds for items that go on in this order, and not for items that
    come in another one; those are for :func:`holdout`.

    The model itself learns: it goes on from the state it is in, and afterwards holds what it has
    learned. Items before the first learned one are predicted as empty if it cannot predict yet. An
    item of which no label is known is predicted, but neither measured nor learned.

    A learner that also has ``learn_one(x, y)``, ``predict_one(x)`` and, if it gives scores,
    ``predict_proba_one(x)``, all for rows of shape (p,), is driven by these when ``X`` is a dense
    array and ``batch`` is 1.  A learner with ``ask``, whose calls that learn take ``asked``, is
    asked by it, and gets its answers back with their labels: see :meth:`tagstream.OML.ask`.

    Parameters
    ----------
    model : learner, or callable
        A callable is called with ``init`` and returns the learner.
    X, Y
        As in :func:`holdout`.
    delay : int or array-like of shape (n,), default=0
        Labels of item i are learned right after item i + delay[i] was predicted; inf or NaN: never.
        Labels due after the last item are not learned. All items are measured when predicted.
    batch : int, default=1
        Predict this many items before learning those whose labels are due.  This is faster, but it
        loses recency: for the last item of a block, the latest labels known are those before the
        block.  Where neighbours in the stream share labels, the measures get worse with its size.
    init : int, default=0
        This many items at the start are learned in one call, and not predicted.
    every : int, default=1000
        Items between two checkpoints of the curve.
    window : int, default=1000
        Items behind the measures called recent.
    fading : float, optional
        Also measure with counts multiplied by this factor at each item, e.g. 0.995.
    scores, decide, k
        As in :func:`holdout`. Items are predicted once, not twice, with ``decide``, without
        ``scores``, or if the learner has ``labels_of``.
    tell_lag : bool, default=True
        A learner that uses what came just before must know how late labels are. If it has the
        parameter ``lag``, has not learned anything yet, and all labels are equally late
        (``delay`` above 0), then ``lag`` is set to ``delay``. False leaves it as it is.
    taught : array, CSR matrix or data frame of shape (n, q), optional
        The labels that are learned, where they differ from ``Y``, by which predictions are
        measured: incomplete ones, for example. ``Y`` by default.
    watch : callable, optional
        Called with the true labels, the predicted labels and the scores (or None) of each block,
        before it is learned. Labels of width 0 mean that the learner could not answer yet. What it
        raises ends the run.
    progress : callable, optional
        Called with (items done, items in all) at each checkpoint.

    Returns
    -------
    PrequentialResult

    Examples
    --------
    >>> from sklearn.linear_model import SGDClassifier
    >>> from sklearn.multioutput import MultiOutputClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 4))
    >>> Y = (X[:, :3] > 0).astype(int)
    >>> model = MultiOutputClassifier(SGDClassifier(loss="log_loss", random_state=0))
    >>> result = prequential(model, X, Y, batch=10, every=100, window=100)
    >>> [(point.n_items, round(point.recent["micro_f1"], 1)) for point in result.curve]
    [(100, 0.8), (200, 0.9), (300, 1.0)]
    """
    X, Y = _checked_stream(X, Y)
    T = Y if taught is None else _checked_stream(X, taught)[1]
    if T.shape != Y.shape:
        raise ValueError(f"taught must have the shape {Y.shape} of Y, got {T.shape}")
    n = Y.shape[0]
    for name, count in (("batch", batch), ("every", every), ("window", window)):
        check_number(name, count, kind=int, least=1)
    check_number("init", init, kind=int, least=0, most=n - 1)
    check_number("fading", fading, least=0, most=1, none=True)
    arrival = _arrivals(delay, n, init)
    order = np.argsort(arrival, kind="stable")
    arrival = arrival[order]

    learner = _Learner(_called(model, init), Y.shape[1], scores, decide, next=True)
    if batch == 1 and isinstance(X, np.ndarray) and X.ndim == 2:
        learner.by_one = _has_single_calls(learner.model)
    meter = _Meter(window, fading, k)
    if tell_lag:  # after everything was checked: it changes the learner
        _tell_lag(learner.model, delay)
    curve: list[Checkpoint] = []
    if init:
        learner.learn(_take(X, np.arange(init)), _labels(T, np.arange(init)))
    n_due = init
    for start in range(init, n, batch):
        stop = min(start + batch, n)
        rows = np.arange(start, stop)
        told = _labels(Y, rows), *learner.predict(_take(X, rows))
        meter.add(*told)
        if watch is not None:
            watch(*told)
        n_before, n_due = n_due, int(np.searchsorted(arrival, stop))
        if n_due > n_before:
            due = order[n_before:n_due]
            learner.learn(_take(X, due), _labels(T, due), at_once=np.array_equal(due, rows))
        if stop == n or (stop - init) // every > (start - init) // every:
            curve.append(meter.checkpoint(stop - init, learner))
            if progress is not None:
                progress(stop - init, n - init)
    return PrequentialResult(
        n - init, learner.n_learned, meter.cumulative.to_counts(), tuple(curve)
    )


class _Learner:
    """A learner behind three verbs, with a stop-watch."""

    def __init__(
        self,
        model: Any,
        q: int,
        scores: bool,
        rule: str | float | None,
        *,
        batch_too: bool = False,
        next: bool = False,
    ) -> None:
        check_rule("decide", rule, none=True)
        self.fitted = "stream"
        if batch_too and not _has(model, "partial_fit") and _has(model, "fit"):
            self.fitted = "batch"
        learns = "partial_fit" if self.fitted == "stream" else "fit"
        for method in (learns, "predict" if rule is None else "predict_proba"):
            if not _has(model, method):
                raise ValueError(f"model must have {method}, got {type(model).__name__}")
        self.model = model
        self.q = q
        self.scores = scores
        self.rule = rule
        self.by_one = False
        asked = ("predict", "predict_proba", "labels_of") if next else ()
        self._as_next = {name for name in asked if _takes(model, name, "next")}
        self._asks = next and _takes_back(model)
        self._asked: Any = None  # what the model found out when it was asked last
        self.n_learned = 0
        self.learn_seconds = 0.0
        self.predict_seconds = 0.0

    @property
    def nbytes(self) -> int | None:
        nbytes = getattr(self.model, "nbytes_", None)
        return None if nbytes is None else int(nbytes)

    def learn(self, X: Any, Y: npt.NDArray[Any], *, at_once: bool = False) -> None:
        """Learn the rows of which something is known; ``at_once``: they were asked about last."""
        asked, self._asked = self._asked if at_once else None, None
        if Y.dtype.kind == "f":
            some = ~np.isnan(Y).all(axis=1)
            if not some.all():
                X, Y, asked = _take(X, np.flatnonzero(some)), Y[some], None
        if len(Y) == 0:
            return
        start = perf_counter()
        if self.fitted == "batch":
            self.model.fit(X, Y)
        elif self.n_learned == 0 and asked is None:
            _first_fit(self.model, X, Y, self.q)
        elif self.by_one:
            for x, y in zip(X, Y, strict=True):
                self.model.learn_one(x, y, **({} if asked is None else {"asked": asked}))
        else:
            self.model.partial_fit(X, Y, **({} if asked is None else {"asked": asked}))
        self.learn_seconds += perf_counter() - start
        self.n_learned += len(Y)

    def refit(self) -> None:
        """Have the model fit now what it fits now and then, if it has learnt and does so."""
        if self.n_learned and _has(self.model, "refit"):
            start = perf_counter()
            self.model.refit()
            self.learn_seconds += perf_counter() - start

    def predict(self, X: Any) -> tuple[Any, Any]:
        """Labels, and scores or None; rows of width 0 while the model has nothing to say."""
        start = perf_counter()
        try:
            labels, scores = self._predict(X)
        except AttributeError:  # scikit-learn's NotFittedError is one
            if self.n_learned:
                raise
            nothing = np.zeros((X.shape[0], 0))
            return nothing, nothing if self._gives_scores() else None
        finally:
            self.predict_seconds += perf_counter() - start
        self._check_widths(labels.shape[1], labels.shape[1] if scores is None else scores.shape[1])
        return labels, scores if self.scores else None

    def _check_widths(self, width: int, of_scores: int) -> None:
        if width != of_scores:
            raise ValueError(
                "predict and predict_proba of the model must have the same number of columns, "
                f"got {width} and {of_scores}"
            )
        if width == self.q or (width == 0 and not self.n_learned):
            return
        names = getattr(self.model, "classes_", None)
        if names is None or len(names) != width:
            raise ValueError(
                f"model must predict {self.q} columns, one for each label of Y, got {width}; "
                "a learner that has met other labels must name them in classes_"
            )

    def _gives_scores(self) -> bool:
        return self.scores and hasattr(self.model, "predict_proba")

    def _predict(self, X: Any) -> tuple[Any, Any]:
        scores = None
        if self._asks or self.rule is not None or self._gives_scores():
            if self._asks:
                self._asked = self.model.ask(X[0] if self.by_one else X, next=True)
                scores = self._asked.scores
            elif self.by_one:
                scores = np.asarray(self.model.predict_proba_one(X[0]), np.float64)[None]
            else:
                scores = _one_array(self._ask("predict_proba", X), self.model)
            if self.rule in (MACRO, BALANCED) and _has(self.model, "labels_of"):
                return np.asarray(self._ask("labels_of", scores, self.rule)), scores
            if self.rule is not None:
                return decided(scores, self.rule), scores
            if _has(self.model, "labels_of"):
                return np.asarray(self._ask("labels_of", scores)), scores
        if self.by_one:
            return np.asarray(self.model.predict_one(X[0]))[None], scores
        labels = _dense(self._ask("predict", X))
        return labels.reshape(len(labels), -1), scores

    def _ask(self, method: str, *args: Any) -> Any:
        """Call a method of the model, with ``next=True`` if that is asked for and understood."""
        how = {"next": True} if method in self._as_next else {}
        return getattr(self.model, method)(*args, **how)


class _Meter:
    """Recent, cumulative and fading measures of one stream; predictions are counted in blocks."""

    def __init__(self, window: int, fading: float | None, k: int | Sequence[int]) -> None:
        self.recent = MultiLabelScores(window=window, k=k)
        self.cumulative = MultiLabelScores(k=k)
        self.factor = fading
        self.faded = np.zeros(5)  # hits, relevant, predicted, unknown entries; rows
        self._waiting: list[tuple[Any, Any, Any]] = []

    def add(self, Y_true: Any, Y_pred: Any, scores: Any) -> None:
        self._waiting.append((Y_true, Y_pred, scores))
        if len(self._waiting) >= _BUFFER:
            self._count()

    def _count(self) -> None:
        if not self._waiting:
            return
        trues, preds, scores = zip(*self._waiting, strict=True)
        self._waiting = []
        Y_true, Y_pred = _stack(trues, 0), _stack(preds, 0)
        S = None
        if any(part is not None for part in scores):  # some learners have none before they learn
            some = zip(preds, scores, strict=True)
            S = _stack([np.zeros((len(p), 0)) if s is None else s for p, s in some], -np.inf)
        self.cumulative.update(Y_true, Y_pred, S)
        self.recent.update(Y_true, Y_pred, S)
        if self.factor is not None:
            self._fade(Y_true, Y_pred)

    def _fade(self, Y_true: npt.NDArray[Any], Y_pred: npt.NDArray[Any]) -> None:
        assert self.factor is not None
        some = ~np.isnan(Y_true).all(axis=1)
        q = max(Y_true.shape[1], Y_pred.shape[1])
        true, pred = (_stack([M[some], np.zeros((0, q))], 0) for M in (Y_true, Y_pred))
        unknown = np.isnan(true)
        true, pred = true == 1, (pred == 1) & ~unknown
        counts = [M.sum(axis=1) for M in (true & pred, true, pred, unknown)]
        weight = self.factor ** np.arange(len(true) - 1, -1, -1.0)
        self.faded *= self.factor ** len(true)
        self.faded += [*(weight @ count for count in counts), weight.sum()]

    def checkpoint(self, n_items: int, learner: _Learner) -> Checkpoint:
        self._count()
        faded = None
        if self.factor is not None:
            hit, true, pred, unknown, n = self.faded.tolist()
            n_known = n * self.cumulative.n_labels - unknown
            faded = {
                "micro_f1": 2 * hit / (true + pred) if true + pred else 0.0,
                "hamming_loss": (true + pred - 2 * hit) / n_known if n_known else 0.0,
            }
        return Checkpoint(
            n_items=n_items,
            recent=self.recent.as_dict(),
            cumulative=self.cumulative.as_dict(),
            fading=faded,
            learn_seconds=learner.learn_seconds,
            predict_seconds=learner.predict_seconds,
            nbytes=learner.nbytes,
        )


def _has(model: Any, method: str) -> bool:
    return callable(getattr(model, method, None))


def _takes_back(model: Any) -> bool:
    """Tell whether a learner can be asked, and learns with what it found out then."""
    learns = ["partial_fit", "learn_one"] if _has(model, "learn_one") else ["partial_fit"]
    takes = all(_takes(model, name, "asked") for name in learns)
    return takes and _takes(model, "ask", "next") and _ask_speaks_for(model, *learns)


def _ask_speaks_for(model: Any, *learns: str) -> bool:
    """Tell whether ``ask`` answers as the learner does: a subclass may have answers of its own."""
    classes = type(model).__mro__

    def place(name: str) -> int:
        return next((i for i, some in enumerate(classes) if name in vars(some)), -1)

    asks = place("ask")
    others = ("predict", "predict_proba", "labels_of", *learns)
    return asks >= 0 and all(place(name) >= asks for name in others)


def _takes(model: Any, method: str, parameter: str) -> bool:
    """Tell whether a method has a parameter of that name; ``**kwargs`` does not count."""
    try:
        return parameter in inspect.signature(getattr(model, method)).parameters
    except (AttributeError, TypeError, ValueError):  # no such method, or one without a signature
        return False


def _tell_lag(model: Any, delay: Any) -> None:
    """Tell a learner that knows the word how late its labels will be."""
    steps = np.asarray(delay, dtype=np.float64).ravel()
    if not (np.isfinite(steps).all() and steps[0] > 0 and (steps == steps[0]).all()):
        return
    if not _has(model, "get_params") or "lag" not in model.get_params(deep=False):
        return
    if not _is_fitted(model):
        model.set_params(lag=int(steps[0]))


def _is_fitted(model: Any) -> bool:
    """Whether it has fitted attributes, as scikit-learn tells them."""
    says = getattr(model, "__sklearn_is_fitted__", None)
    if callable(says):
        return bool(says())
    return any(name.endswith("_") and name[0] != "_" for name in vars(model))


def _has_single_calls(model: Any) -> bool:
    names = ["learn_one", "predict_one"]
    if hasattr(model, "predict_proba"):
        names.append("predict_proba_one")
    return all(_has(model, name) for name in names)


def _first_fit(model: Any, X: Any, Y: npt.NDArray[Any], q: int) -> None:
    """First call of ``partial_fit``, with the classes if the learner asks for them."""
    try:
        model.partial_fit(X, Y)
        return
    except (TypeError, ValueError) as error:
        takes_classes = "classes" in inspect.signature(model.partial_fit).parameters
        if not takes_classes or "classes" not in str(error):
            raise
    # Either each label has the classes 0 and 1, or the labels are the classes. Tried on a copy, as
    # a learner that rejects the one may be unable to take the other.
    classes: Any = [np.array([0, 1])] * q
    try:
        copy.deepcopy(model).partial_fit(X, Y, classes=classes)
    except (IndexError, TypeError, ValueError):
        classes = np.arange(q)
    model.partial_fit(X, Y, classes=classes)


def _one_array(scores: Any, model: Any) -> Any:
    """Scores as an array (n, q), also when they come as q arrays (n, number of classes)."""
    if not isinstance(scores, list):
        return np.asarray(_dense(scores), np.float64)
    columns = [np.asarray(column) for column in scores]
    for j, column in enumerate(columns):
        if column.ndim == 2 and column.shape[1] == 1:  # only one class was ever seen: 0 or 1
            columns[j] = column[:, 0] * float(model.classes_[j][0] == 1)
        elif column.ndim == 2:
            columns[j] = column[:, 1]
    return np.column_stack(columns)


def _fresh(model: Any, n_init: int) -> Any:
    """A learner that shares nothing with ``model``."""
    learner = _called(model, n_init)
    if learner is not model:
        return learner
    if hasattr(model, "get_params"):
        from sklearn.base import clone

        return clone(model)
    return copy.deepcopy(model)


def _called(model: Any, n_init: int) -> Any:
    if isinstance(model, type):
        raise ValueError(f"model must be a learner, got the class {model.__name__}; make one of it")
    return model if hasattr(model, "partial_fit") or not callable(model) else model(n_init)


def _arrivals(delay: Any, n: int, init: int) -> Ints:
    """Item after whose prediction the labels of each item are learned; n if they never are."""
    steps = np.asarray(delay, dtype=np.float64)
    if steps.shape not in ((), (n,)):
        raise ValueError(f"delay must be a number or {n} numbers, got shape {steps.shape}")
    steps = np.broadcast_to(np.where(np.isnan(steps), np.inf, steps), (n,))
    whole = steps[np.isfinite(steps)]
    if (whole < 0).any() or (whole != np.floor(whole)).any():
        bad = whole[(whole < 0) | (whole != np.floor(whole))][0]
        raise ValueError(f"delay must hold whole numbers of at least 0, inf or NaN, got {bad:g}")
    arrival = np.minimum(np.arange(n) + steps, n).astype(np.int64)
    arrival[:init] = -1
    return arrival


def _n_init(init: float, n_train: int) -> int:
    check_number("init", init, least=0, most=n_train)
    return round(init * n_train) if init < 1 else int(init)


def _checked_stream(X: Any, Y: Any) -> tuple[Any, Any]:
    X = X.tocsr() if hasattr(X, "tocsr") else X if hasattr(X, "iloc") else np.asarray(X)
    Y = check_labels(_as_matrix(Y))
    if X.shape[0] != Y.shape[0]:
        raise ValueError(f"Y must have {X.shape[0]} rows like X, got {Y.shape[0]}")
    return X, Y


def _as_matrix(Y: Any) -> Any:
    """Return label sets, or one label per item, as a 0/1 matrix; a column for each as it is met."""
    if sp.issparse(Y) or not (is_label_sets(Y) or n_dims(Y) == 1):
        return Y
    batch = read_labels(Y, None, [])
    found, blank = batch.labels.Y, batch.blank
    if blank is None or not blank.any():
        return found
    values = _dense(found).astype(np.float64)
    values[blank] = np.nan
    return values


def _labels(Y: Any, rows: Ints) -> npt.NDArray[Any]:
    """Some rows of the labels, dense; bytes wherever nothing in them is unknown."""
    part = _dense(Y[rows])
    return part if part.dtype == np.uint8 or np.isnan(part).any() else part.astype(np.uint8)


def _take(X: Any, rows: Ints) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _dense(M: Any) -> npt.NDArray[Any]:
    dense: npt.NDArray[Any] = M.toarray() if hasattr(M, "toarray") else np.asarray(M)
    return dense


def _stack(blocks: Sequence[npt.NDArray[Any]], fill: float) -> npt.NDArray[Any]:
    """Blocks of rows one below the other, each filled up on the right to the widest."""
    q = max(block.shape[1] for block in blocks)
    n = sum(len(block) for block in blocks)
    out = np.full((n, q), fill, dtype=np.result_type(*{block.dtype for block in blocks}))
    start = 0
    for block in blocks:
        out[start : start + len(block), : block.shape[1]] = block
        start += len(block)
    return out
