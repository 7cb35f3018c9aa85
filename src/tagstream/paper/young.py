"""What is suggested while little is known: after 0, 5, 10, … texts.

Not of the paper.  Some texts are kept back to ask about; the others come in random order.  After
each size every learner is asked about all that are kept back.  The tags are given to those that use
their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from tagstream.decision import decide
from tagstream.evaluation.metrics import MultiLabelScores
from tagstream.paper.offline import TfidfLogistic, best_thresholds
from tagstream.paper.texts import label_matrix
from tagstream.tagger import Tagger

__all__ = ["ENCODED", "METHODS", "N_TEST", "SIZES", "TITLES", "USED", "Recipe", "curve"]

Record = Mapping[str, Any]
Floats = npt.NDArray[np.float64]

SIZES = (0, 5, 10, 20, 50, 100, 200, 500, 1000)
N_TEST = 1000
SEED = 20261119
USED = 3000  # package descriptions by which start weights were chosen: none of them is in a curve
LEAST = 1e-3  # probability that a logarithm is taken of
STRENGTHS = (3.0, 30.0)  # C of logistic regressions, chosen on inner folds like the threshold
FOLDS = 5
NEIGHBORS = 10


class Recipe(BaseEstimator):  # type: ignore[misc]
    """One of ``METHODS`` by name, as the grid has methods."""

    def __init__(self, method: str = "words") -> None:
        self.method = method


class Answers(NamedTuple):
    """Which tags are suggested for each item, and their scores; arrays of shape (n, q)."""

    chosen: npt.NDArray[Any]
    scores: Floats


class Texts(NamedTuple):
    """Records, their labels (n, q), the tags, and what is to be encoded once for all."""

    records: Sequence[Record]
    Y: npt.NDArray[np.uint8]
    tags: list[str]
    encoder: Any  # a featurizer, whose embeddings are remembered


Asked = Callable[[Texts, npt.NDArray[np.int64], npt.NDArray[np.int64]], Iterator[Answers]]


def curve(
    records: Sequence[Record], method: str, shuffle: int, encoder: Any = None
) -> dict[str, dict[str, float]]:
    """Return the measures after each size, by name.

    Parameters
    ----------
    records : sequence of mappings
    method : str
        One of ``METHODS``.
    shuffle : int
        Number of the random order.
    encoder : Encoder, optional
        For those that need one.
    """
    Y, column = label_matrix(records)
    texts = Texts(records, Y, list(column), encoder)
    order = np.random.default_rng((SEED, shuffle)).permutation(len(records))
    test, train = order[:N_TEST], order[N_TEST : N_TEST + SIZES[-1]]
    answers = METHODS[method](texts, train, test)
    return {
        str(n): measured(Y[test], *one)
        for n, one in zip(SIZES, answers, strict=True)
        if one is not None
    }


def measured(Y: Any, chosen: Any, scores: Floats) -> dict[str, float]:
    """Return the two F1, precision of the first tag, log loss per item, and the silent share."""
    made = MultiLabelScores(k=(1,)).update(Y, chosen.astype(np.uint8), scores).as_dict()
    p, y = np.clip(scores, LEAST, 1 - LEAST), np.asarray(Y) > 0
    return {
        "micro_f1": made["micro_f1"],
        "example_f1": made["example_f1"],
        "p_at_1": float(made["precision_at_1"]),
        "log_loss": float(-np.log(np.where(y, p, 1 - p)).sum(axis=1).mean()),
        "silent": float((~chosen.astype(bool).any(axis=1)).mean()),
    }


# ---------------------------------------------------------------------- taggers
def _streamed(
    texts: Texts, train: Any, test: Any, tagger: Tagger, *, old: bool = False
) -> Iterator[Answers]:
    """Learn in order, and ask at each size; ``old``: as version 0.2 answered and decided."""
    asked = [{"text": texts.records[i]["text"]} for i in test]
    column = {tag: j for j, tag in enumerate(texts.tags)}
    done = 0
    for n in SIZES:
        tagger.learn([_of(texts, i) for i in train[done:n]])
        done = n
        said = tagger.suggest(asked, next=old)
        scores, chosen = np.zeros((2, len(asked), len(column)))
        for i, one in enumerate(said):
            scores[i, [column[tag] for tag in one.scores]] = list(one.scores.values())
            chosen[i, [column[tag] for tag in one.tags]] = 1
        if old:
            known = np.array([one.known for one in said])
            chosen = decide(scores, "balanced") & known[:, None]
        yield Answers(chosen, scores)


def _of(texts: Texts, i: int) -> dict[str, Any]:
    return {"text": texts.records[i]["text"], "y": texts.records[i]["y"]}


def _old(texts: Texts, train: Any, test: Any) -> Iterator[Answers]:
    return _streamed(texts, train, test, Tagger(names=False, keep_text=False), old=True)


def _words(texts: Texts, train: Any, test: Any) -> Iterator[Answers]:
    return _streamed(texts, train, test, Tagger(names=False, keep_text=False))


def _names(texts: Texts, train: Any, test: Any) -> Iterator[Answers]:
    return _streamed(texts, train, test, Tagger(tags=texts.tags, keep_text=False))


def _encoder(texts: Texts, train: Any, test: Any) -> Iterator[Answers]:
    tagger = Tagger(featurizer=texts.encoder, names=False, keep_text=False)
    return _streamed(texts, train, test, tagger)


def _encoder_names(texts: Texts, train: Any, test: Any) -> Iterator[Answers]:
    tagger = Tagger(featurizer=texts.encoder, tags=texts.tags, keep_text=False)
    return _streamed(texts, train, test, tagger)


# ---------------------------------------------------------------------- what people use instead
def _constant(texts: Texts, train: Any, test: Any) -> Iterator[Answers]:
    """Suggest always the most frequent tags, as many as an item has on average."""
    for n in SIZES:
        Y = texts.Y[train[:n]]
        shares = Y.mean(axis=0) if n else np.zeros(Y.shape[1])
        m = max(1, round(float(Y.sum() / max(n, 1))))
        scores = np.tile(shares, (len(test), 1))
        yield Answers(decide(scores, f"top{m}"), scores)


def _tfidf_logistic(texts: Texts, train: Any, test: Any) -> Iterator[Answers | None]:
    words = [texts.records[i]["text"] for i in train]
    asked = [texts.records[i]["text"] for i in test]
    for n in SIZES:
        if n < FOLDS:
            yield None
            continue
        model = TfidfLogistic(STRENGTHS).fit(words[:n], texts.Y[train[:n]])
        scores = model.predict_proba(asked)
        yield Answers(scores >= model.threshold_, scores)


def _encoder_logistic(texts: Texts, train: Any, test: Any) -> Iterator[Answers | None]:
    X, asked = _embedded(texts, train), _embedded(texts, test)
    for n in SIZES:
        if n < FOLDS:
            yield None
            continue
        scores, threshold = _logistic(X[:n], texts.Y[train[:n]], asked)
        yield Answers(scores >= threshold, scores)


def _logistic(X: Floats, Y: npt.NDArray[np.uint8], asked: Floats) -> tuple[Floats, float]:
    """Return probabilities and the threshold, with C and threshold of the best inner micro-F1."""
    fold_of, best = np.arange(len(X)) % FOLDS, (-1.0, 0.0, 0.0)
    for C in STRENGTHS:
        held = np.zeros(Y.shape)
        for fold in range(FOLDS):
            back = fold_of == fold
            held[back] = _probabilities(X[~back], Y[~back], X[back], C)
        cut = best_thresholds(Y, held)["f1"]
        f1 = 2 * (Y * (held >= cut)).sum() / max(Y.sum() + (held >= cut).sum(), 1)
        best = max(best, (float(f1), C, cut))
    return _probabilities(X, Y, asked, best[1]), best[2]


def _probabilities(X: Floats, Y: npt.NDArray[np.uint8], asked: Floats, C: float) -> Floats:
    """Return those of one logistic regression per tag; what never or always occurs is constant."""
    from sklearn.linear_model import LogisticRegression

    # Turned into the span of the rows, which changes nothing and saves most of the work.
    turn = np.linalg.svd(X, full_matrices=False)[2].T
    X, asked = X @ turn, asked @ turn
    out = np.tile(Y[:1].astype(float), (len(asked), 1))
    for j in np.flatnonzero(Y.any(axis=0) & ~Y.all(axis=0)):
        model = LogisticRegression(C=C, solver="liblinear", max_iter=1000)
        out[:, j] = model.fit(X, Y[:, j]).predict_proba(asked)[:, 1]
    return out


def _encoder_neighbors(texts: Texts, train: Any, test: Any) -> Iterator[Answers | None]:
    """Share of the ten most similar; the threshold is that of the best inner micro-F1."""
    X, asked = _embedded(texts, train), _embedded(texts, test)
    for n in SIZES:
        if n < FOLDS:
            yield None
            continue
        Y = texts.Y[train[:n]]
        own = X[:n] @ X[:n].T
        np.fill_diagonal(own, -np.inf)
        cut = best_thresholds(Y, _shares(own, Y, n - 1))["f1"]
        scores = _shares(asked @ X[:n].T, Y, n)
        yield Answers(scores >= max(cut, 1e-9), scores)


def _shares(similar: Floats, Y: npt.NDArray[np.uint8], most: int) -> Floats:
    k = min(NEIGHBORS, most)
    nearest = np.argsort(-similar, axis=1, kind="stable")[:, :k]
    return np.asarray(Y[nearest].mean(axis=1))


def _embedded(texts: Texts, some: Any) -> Floats:
    made = texts.encoder.encode([texts.records[i]["text"] for i in some])
    return np.asarray(made, np.float64)


TITLES = {
    "0.2": "answers and decision of 0.2",
    "words": "words",
    "names": "words and names",
    "encoder": "encoder",
    "encoder-names": "encoder and names",
    "tfidf-logistic": "TF-IDF + logistic regression",
    "encoder-logistic": "encoder + logistic regression",
    "encoder-knn": "encoder + kNN",
    "constant": "the most frequent tags",
}
ENCODED = ("encoder", "encoder-names", "encoder-logistic", "encoder-knn")
METHODS: dict[str, Any] = {
    "0.2": _old,
    "words": _words,
    "names": _names,
    "encoder": _encoder,
    "encoder-names": _encoder_names,
    "tfidf-logistic": _tfidf_logistic,
    "encoder-logistic": _encoder_logistic,
    "encoder-knn": _encoder_neighbors,
    "constant": _constant,
}
