"""A tagger beside the usual way to tag text: TF-IDF and one logistic regression per tag.

Not of the paper.  The tagger sees each comment once, in a stream; the other one sees all of them
as often as it likes.  What it has to choose it chooses inside the training part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.evaluation.folds import iterative_folds
from tagstream.evaluation.metrics import MultiLabelScores
from tagstream.tagger import Suggestion, Tagger

__all__ = ["holdout_of_text", "stream_of_text"]

Record = Mapping[str, Any]

DEPTHS = (1, 3)  # of precision among the best


def label_matrix(records: Sequence[Record]) -> tuple[npt.NDArray[np.uint8], dict[str, int]]:
    """Return Y of shape (n, q) and the column of each tag, tags in alphabetical order.

    Examples
    --------
    >>> label_matrix([{"y": ["b"]}, {"y": ["a", "b"]}])
    (array([[0, 1],
           [1, 1]], dtype=uint8), {'a': 0, 'b': 1})
    """
    tags = sorted({tag for record in records for tag in record["y"]})
    column = {tag: j for j, tag in enumerate(tags)}
    Y = np.zeros((len(records), len(tags)), np.uint8)
    for i, record in enumerate(records):
        Y[i, [column[tag] for tag in record["y"]]] = 1
    return Y, column


def holdout_of_text(
    records: Sequence[Record], learner: Any, *, folds: int, fold: int
) -> dict[str, Any]:
    """Learn all folds but one, in random order, then suggest tags for that one.

    Parameters
    ----------
    records : sequence of mappings
    learner : learner that has learnt nothing, or classifier of texts with ``fit``
    folds, fold : int
        Folds in all, and the number of the one that is suggested for.

    Returns
    -------
    dict
        ``counts`` of :class:`~tagstream.metrics.MultiLabelScores`; ``n_train``, ``n_test``,
        ``learn_seconds`` and ``predict_seconds``; of a classifier also ``chosen``.
    """
    Y, column = label_matrix(records)
    fold_of = iterative_folds(Y, folds, (0, 0))
    train = np.random.default_rng((0, 0, fold)).permutation(np.flatnonzero(fold_of != fold))
    test = np.flatnonzero(fold_of == fold)
    known = [records[int(i)] for i in train]
    asked = [{"text": records[int(i)]["text"]} for i in test]
    start = perf_counter()
    chosen: dict[str, float] = {}
    if hasattr(learner, "labels_of"):
        tagger = Tagger(learner, keep_text=False)
        tagger.learn(known)
        learnt = perf_counter()
        predicted, scores = _columns(tagger.suggest(asked), column)
    else:
        learner.fit([record["text"] for record in known], Y[train])
        learnt = perf_counter()
        scores = learner.predict_proba([record["text"] for record in asked])
        predicted, chosen = (scores >= learner.threshold_).view(np.uint8), learner.chosen_
    counts = MultiLabelScores(k=DEPTHS).update(Y[test], predicted, scores).to_counts()
    return {
        "counts": counts,
        "n_train": len(train),
        "n_test": len(test),
        "learn_seconds": learnt - start,
        "predict_seconds": perf_counter() - learnt,
        "chosen": chosen,
    }


def stream_of_text(records: Sequence[Record], learner: Any) -> dict[str, Any]:
    """Suggest tags for each record as the next one of the stream, then learn it, in their order.

    Parameters
    ----------
    records : sequence of mappings
    learner : learner that has learnt nothing

    Returns
    -------
    dict
        ``counts`` over all records, ``n_items`` and ``seconds_per_item``.
    """
    Y, column = label_matrix(records)
    tagger = Tagger(learner, keep_text=False)
    measured = MultiLabelScores(k=DEPTHS)
    start = perf_counter()
    for record, labels in zip(records, Y, strict=True):
        predicted, scores = _columns([tagger.suggest({"text": record["text"]}, next=True)], column)
        measured.update(labels[None], predicted, scores)
        tagger.learn(record)
    return {
        "counts": measured.to_counts(),
        "n_items": len(records),
        "seconds_per_item": (perf_counter() - start) / max(len(records), 1),
    }


def _columns(
    said: Sequence[Suggestion], column: Mapping[str, int]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float64]]:
    """Return the suggested tags and the scores as arrays; what has no score has the score 0."""
    predicted = np.zeros((len(said), len(column)), np.uint8)
    scores = np.zeros((len(said), len(column)))
    for i, one in enumerate(said):
        predicted[i, [column[tag] for tag in one.tags]] = 1
        scores[i, [column[tag] for tag in one.scores]] = list(one.scores.values())
    return predicted, scores
