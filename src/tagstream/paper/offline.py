"""Offline learners of scikit-learn, for hold-outs: what one gives up by learning as it streams.

One classifier per label (one forest for all), on standardised columns if the rows are dense, with
scikit-learn's defaults.  They see the whole training part at once, as often as they like.  The
threshold on their scores, one for all labels, is tuned on the training part alone: on a fifth of it
that the classifiers did not see, or, for the forest, on the trees that did not see the row.  For
texts there is :class:`TfidfLogistic`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if

from tagstream.checks import check_choice

__all__ = ["KINDS", "Offline", "TfidfLogistic"]

Floats = npt.NDArray[np.float64]

KINDS = ("logistic", "linear-svm", "rbf-svm", "forest")
N_TREES = 100
HELD_BACK = 0.2  # of the training part, to tune the threshold on
INNER_FOLDS = 5  # of the training part, to choose what TfidfLogistic is made with


class Offline(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """One of four offline learners, with a threshold for F1 and one for Hamming loss.

    Parameters
    ----------
    kind : {"logistic", "linear-svm", "rbf-svm", "forest"}
    random_state : int
        Decides what is held back, and the trees.

    Attributes
    ----------
    thresholds_ : dict of str to float
        By what they are best for, in the data held back: ``"f1"`` (micro-F1) and ``"hamming"``.
        ``predict`` uses the first.
    """

    def __init__(self, kind: str = "logistic", random_state: int = 0) -> None:
        self.kind = kind
        self.random_state = random_state

    def fit(self, X: Any, Y: npt.NDArray[Any]) -> Offline:
        """Fit all labels, and the thresholds."""
        check_choice("kind", self.kind, KINDS)
        Y = np.asarray(Y).astype(np.int64)
        if self.kind == "forest":
            forest = _Forest(X, Y, self.random_state)
            self.thresholds_ = best_thresholds(Y, forest.unseen())
            self.scorer_: _PerLabel | _Forest = forest
            return self
        order = np.random.default_rng(self.random_state).permutation(len(Y))
        back, rest = np.split(order, [max(1, round(HELD_BACK * len(Y)))])
        inner = _PerLabel(self.kind, X[rest], Y[rest])
        self.thresholds_ = best_thresholds(Y[back], inner.scores(X[back]))
        self.scorer_ = _PerLabel(self.kind, X, Y)
        return self

    def scores(self, X: Any) -> Floats:
        """Return one score for each row and label, of shape (n, q)."""
        return self.scorer_.scores(X)

    @available_if(lambda self: self.kind in ("logistic", "forest"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return the scores of those whose scores are probabilities."""
        return self.scores(X)

    def predict(self, X: Any, best_for: str = "f1") -> npt.NDArray[np.uint8]:
        """Return the labels whose score reaches the threshold."""
        labels: npt.NDArray[np.uint8] = (self.scores(X) >= self.thresholds_[best_for]).view(
            np.uint8
        )
        return labels


class TfidfLogistic(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """TF-IDF of words and pairs of words, and one logistic regression for each tag.

    The strength C and the threshold on the probabilities, one for all tags, are those with the
    highest micro-F1 over five folds within what it is fitted to: each text is scored by
    classifiers, and by word weights, that did not see it.

    Parameters
    ----------
    strengths : sequence of float
        What C may be.  1, the usual one, is far too small for short texts.

    Attributes
    ----------
    threshold_ : float
    chosen_ : dict of str to float
        C, the threshold, and the micro-F1 within the folds that they were chosen for.

    Examples
    --------
    >>> texts = ["a quiet beach", "sort a list", "a sandy beach", "sort the words"] * 3
    >>> Y = np.array([[1, 0], [0, 1], [1, 0], [0, 1]] * 3)
    >>> TfidfLogistic().fit(texts, Y).predict(["a beach", "sort the list"])
    array([[1, 0],
           [0, 1]], dtype=uint8)
    """

    def __init__(self, strengths: Sequence[float] = (1.0, 3.0, 10.0, 30.0, 100.0)) -> None:
        self.strengths = strengths

    def fit(self, texts: Sequence[str], Y: npt.NDArray[Any]) -> TfidfLogistic:
        """Choose C and the threshold, then fit all tags to all texts."""
        texts, Y = list(texts), np.asarray(Y).astype(np.int64)
        fold_of = np.arange(len(texts)) % INNER_FOLDS
        scores = {C: np.zeros(Y.shape) for C in self.strengths}
        for fold in range(INNER_FOLDS):
            rest, back = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
            words = _words().fit([texts[i] for i in rest])
            seen, unseen = (words.transform([texts[i] for i in some]) for some in (rest, back))
            for C in self.strengths:
                scores[C][back] = _PerLabel("logistic", seen, Y[rest], C).scores(unseen)
        thresholds = {C: best_thresholds(Y, scores[C])["f1"] for C in self.strengths}
        f1 = {C: _micro_f1(Y, scores[C] >= thresholds[C]) for C in self.strengths}
        best = max(self.strengths, key=f1.__getitem__)
        self.threshold_ = thresholds[best]
        self.chosen_ = {"C": best, "threshold": self.threshold_, "micro_f1": f1[best]}
        self.words_ = _words().fit(texts)
        self.scorer_ = _PerLabel("logistic", self.words_.transform(texts), Y, best)
        return self

    def predict_proba(self, texts: Sequence[str]) -> Floats:
        """Return one probability for each text and tag, of shape (n, q)."""
        return self.scorer_.scores(self.words_.transform(list(texts)))

    def predict(self, texts: Sequence[str]) -> npt.NDArray[np.uint8]:
        """Return the tags whose probability reaches the threshold."""
        labels: npt.NDArray[np.uint8] = (self.predict_proba(texts) >= self.threshold_).view(
            np.uint8
        )
        return labels


def _words() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(ngram_range=(1, 2))


def _micro_f1(Y: npt.NDArray[np.int64], predicted: npt.NDArray[np.bool_]) -> float:
    return float(2 * (Y * predicted).sum() / max(Y.sum() + predicted.sum(), 1))


def best_thresholds(Y: npt.NDArray[Any], scores: Floats) -> dict[str, float]:
    """Return the thresholds with the highest micro-F1 and the lowest Hamming loss.

    With the k highest of all scores predicted, h of them rightly, and P relevant entries, micro-F1
    is 2h / (k + P) and the number of wrong entries k + P − 2h: one sort finds the best of all cuts.

    Examples
    --------
    >>> best_thresholds(np.array([[1, 0, 1], [1, 0, 0]]), np.array([[0.9, 0.3, 0.4], [0.2, 0, 0]]))
    {'f1': 0.2, 'hamming': 0.4}
    """
    order = np.argsort(-scores, axis=None, kind="stable")
    s, y = scores.ravel()[order], np.asarray(Y).ravel()[order]
    h, k, P = np.cumsum(y), np.arange(1, len(y) + 1), y.sum()
    last = np.append(s[1:] != s[:-1], True)  # equal scores are predicted together
    f1 = np.where(last, 2 * h / (k + P), -1.0)
    right = np.where(last, 2 * h - k, -np.inf)
    nothing = float(np.nextafter(s[0], np.inf))
    return {
        "f1": float(s[np.argmax(f1)]),
        "hamming": float(s[np.argmax(right)]) if right.max() > 0 else nothing,
    }


class _Scorer:
    """Columns made alike, and labels that are always or never there set aside."""

    def __init__(self, X: Any, Y: npt.NDArray[np.int64]) -> None:
        self.q = Y.shape[1]
        self.varied = np.flatnonzero(Y.any(axis=0) & ~Y.all(axis=0))
        self.always = np.flatnonzero(Y.all(axis=0))
        if not sp.issparse(X):
            self.mean = X.mean(axis=0)
            spread = X.std(axis=0)
            self.spread = np.where(spread > 1e-12, spread, 1.0)

    def rows(self, X: Any) -> Any:
        return X if sp.issparse(X) else (X - self.mean) / self.spread

    def wide(self, scores: Floats) -> Floats:
        out = np.full((len(scores), self.q), min(0.0, float(scores.min(initial=0.0))))
        out[:, self.always] = max(1.0, float(scores.max(initial=1.0)))
        out[:, self.varied] = scores
        return out


class _PerLabel(_Scorer):
    def __init__(self, kind: str, X: Any, Y: npt.NDArray[np.int64], C: float = 1.0) -> None:
        super().__init__(X, Y)
        rows = self.rows(X)
        self.kernel = _Kernel(rows) if kind == "rbf-svm" else None
        seen = self.kernel(rows) if self.kernel else rows
        self.each = [
            classifier.fit(seen, Y[:, j])
            for j, classifier in zip(self.varied, _classifiers(kind, C), strict=False)
        ]

    def scores(self, X: Any) -> Floats:
        rows = self.rows(X)
        seen = self.kernel(rows) if self.kernel else rows
        columns = [
            one.predict_proba(seen)[:, 1]
            if hasattr(one, "predict_proba")
            else one.decision_function(seen)
            for one in self.each
        ]
        return self.wide(np.array(columns).T.reshape(X.shape[0], len(columns)))


def _classifiers(kind: str, C: float) -> Iterator[Any]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC, LinearSVC

    while True:
        if kind == "logistic":
            yield LogisticRegression(C=C, solver="liblinear", max_iter=1000)
        elif kind == "linear-svm":
            yield LinearSVC(C=C, max_iter=5000)
        else:
            yield SVC(C=C, kernel="precomputed")


class _Kernel:
    """exp(−γ‖x − x'‖²) with SVC's own γ = 1 / (p · variance); made once for all labels."""

    def __init__(self, rows: Any) -> None:
        mean = rows.mean()
        square = rows.multiply(rows).mean() if sp.issparse(rows) else (rows**2).mean()
        self.rows = rows
        self.gamma = 1.0 / (rows.shape[1] * max(float(square - mean**2), 1e-12))

    def __call__(self, rows: Any) -> Floats:
        from sklearn.metrics.pairwise import rbf_kernel

        values: Floats = rbf_kernel(rows, self.rows, gamma=self.gamma)
        return values


class _Forest(_Scorer):
    def __init__(self, X: Any, Y: npt.NDArray[np.int64], seed: int) -> None:
        from sklearn.ensemble import RandomForestClassifier

        super().__init__(X, Y)
        self.forest = RandomForestClassifier(N_TREES, oob_score=True, random_state=seed)
        self.forest.fit(self.rows(X), Y[:, self.varied])

    def scores(self, X: Any) -> Floats:
        each = self.forest.predict_proba(self.rows(X))
        if not isinstance(each, list):  # of one label
            each = [each]
        return self.wide(np.array([p[:, 1] for p in each]).T)

    def unseen(self) -> Floats:
        """Return what the trees say about the rows that they were not grown from."""
        said = np.asarray(self.forest.oob_decision_function_)[:, 1].reshape(-1, len(self.varied))
        return self.wide(np.nan_to_num(said))
