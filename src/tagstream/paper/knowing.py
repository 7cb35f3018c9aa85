"""Does the model know what it says it knows?  Four experiments that are not of the paper.

*review*: 5 % of the items get one tag replaced by a random other.  How early do these items come in
a list of doubtful ones?  Beside ours stand the lowest score of a given tag, and cleanlab's ranking
on probabilities of five folds by the same learner.

*promise*: each stream, as it is and with its labels rolled by one at half, is learnt in blocks.  At
which scores would labels have been applied, and how many of these were right?

*drift*: the same streams in random order.  How many false alarms are there about labels, and how
many decisions after the roll does the right one come?

*next*: 1,000 of 4,000 items are tagged, in the order in which they are offered, and the rest of the
items is then asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.evaluation.metrics import MultiLabelScores
from tagstream.evidence.promise import track_precision
from tagstream.knows.health import find_alarms
from tagstream.knows.next_items import order_items
from tagstream.knows.review import doubts_of

__all__ = [
    "N_REVIEWED",
    "PROMISE",
    "drift_alarms",
    "promised_stream",
    "review_spoilt",
    "spoil",
    "tag_in_order",
]

N_REVIEWED, SPOILT = 4000, 0.05
PROMISE = 0.95
BLOCK = 20  # items that are asked about before they are learnt together
LEAST_CASES, LONG = 100, 500
N_POOL, N_TEST, N_TAGGED, N_AT_ONCE, N_SCORED = 4000, 1000, 1000, 50, 1000

Labels = npt.NDArray[np.uint8]


# ---------------------------------------------------------------------- review
def spoil(Y: Labels, seed: int) -> tuple[Labels, npt.NDArray[np.bool_]]:
    """Return labels of which one in twenty items has one replaced by another, and which have.

    Examples
    --------
    >>> Y = np.eye(3, dtype=np.uint8)[np.arange(600) % 3]
    >>> spoilt, which = spoil(Y, 0)
    >>> bool((spoilt.sum(axis=1) == 1).all()), bool(((spoilt != Y).any(axis=1) == which).all())
    (True, True)
    """
    rng, Y = np.random.default_rng((20261118, seed)), Y.copy()
    which = (rng.random(len(Y)) < SPOILT) & Y.any(axis=1) & ~Y.all(axis=1)
    for i in np.flatnonzero(which):
        old, new = rng.choice(np.flatnonzero(Y[i])), rng.choice(np.flatnonzero(Y[i] == 0))
        Y[i, old], Y[i, new] = 0, 1
    return Y, which


def review_spoilt(X: Any, Y: Labels, learner: Any, *, seed: int, cleanlab: bool) -> dict[str, Any]:
    """Return the average precision of each ranking, and what it took."""
    from sklearn.base import clone
    from sklearn.metrics import average_precision_score

    some = np.random.default_rng((20261118, seed, 1)).permutation(len(Y))[:N_REVIEWED]
    X, (Y, which) = X[some], spoil(Y[some], seed)
    model = clone(learner).fit(X, Y)
    start = perf_counter()
    blocks = [*model.ask_stored()]
    scores = np.concatenate([block.scores for block in blocks])
    doubts = doubts_of(scores, Y, np.ones(Y.shape, np.bool_))
    seconds = perf_counter() - start
    made = {
        "doubt": float(average_precision_score(which, doubts)),
        "lowest": float(average_precision_score(which, ((1 - scores) * (Y > 0)).max(axis=1))),
        "base": float(which.mean()),
        "n": len(Y),
        "seconds": seconds,
    }
    if cleanlab:
        made["cleanlab"] = float(average_precision_score(which, -_cleanlab(X, Y, learner, seed)))
    return made


def _cleanlab(X: Any, Y: Labels, learner: Any, seed: int) -> npt.NDArray[np.float64]:
    """Return cleanlab's quality of each item's labels, by probabilities of five folds."""
    from sklearn.base import clone

    try:
        from cleanlab.multilabel_classification import get_label_quality_scores
    except ImportError as error:
        raise ImportError("this experiment needs cleanlab: pip install cleanlab") from error
    fold = np.random.default_rng((20261118, seed, 2)).integers(0, 5, len(Y))
    p = np.empty(Y.shape)
    for k in range(5):
        p[fold == k] = clone(learner).fit(X[fold != k], Y[fold != k]).predict_proba(X[fold == k])
    given = [np.flatnonzero(row).tolist() for row in Y]
    return np.asarray(get_label_quality_scores(given, p))


# ---------------------------------------------------------------------- promise
def promised_stream(X: Any, Y: Labels, learner: Any, *, rolled: bool) -> dict[str, Any]:
    """Return what was applied of a stream, and how much of it was right.

    For the next item: the decisions that follow from the honest scores, one after the other.  For
    any item: each block is asked about before it is learnt.
    """
    Y = Y.copy()
    if rolled:
        Y[len(Y) // 2 :] = np.roll(Y[len(Y) // 2 :], 1, axis=1)
    promises = np.full(Y.shape[1], PROMISE)
    hits: dict[int, list[int]] = {}
    for first in range(0, len(Y), BLOCK):
        part = slice(first, first + BLOCK)
        if first:
            p = learner.predict_proba(X[part])
            bars = learner.promised(dict(enumerate(promises))).bars
            for i, j in zip(*np.nonzero((p >= bars) & (p >= 0.5)), strict=True):
                hits.setdefault(int(j), []).append(int(Y[part][i, j]))
            learner.partial_fit(X[part], Y[part])
        else:
            learner.partial_fit(X[part], Y[part], classes=[*range(Y.shape[1])])
            learner.watch()
    entries = learner.honest_scores(next=True)
    applied = track_precision(entries, promises).applied
    of_next: dict[int, list[int]] = {}
    for j, hit in zip(entries.columns[applied], entries.hits[applied], strict=True):
        of_next.setdefault(int(j), []).append(int(hit))
    return {"n": len(Y), "n_labels": int(Y.sum()), "any": _kept(hits), "next": _kept(of_next)}


def _kept(hits: dict[int, list[int]]) -> dict[str, Any]:
    """Return how many labels were applied, and of which the promise was not kept."""
    missed, n_labels = [], 0
    for j, found in sorted(hits.items()):
        n = len(found)
        if n < LEAST_CASES:
            continue
        n_labels += 1
        share, error = float(np.mean(found)), float(np.sqrt(PROMISE * (1 - PROMISE) / n))
        worst = 1.0
        if n >= LONG:
            worst = float(np.convolve(found, np.ones(LONG) / LONG, "valid").min())
        if share < PROMISE - 2 * error or worst < PROMISE - 0.05:
            missed.append({"label": j, "n": n, "kept": share, "worst": worst})
    every = [hit for found in hits.values() for hit in found]
    return {
        "n_applied": len(every),
        "kept": float(np.mean(every)) if every else None,
        "n_labels": n_labels,
        "missed": missed,
    }


def drift_alarms(X: Any, Y: Labels, learner: Any, *, rolled: bool, seed: int) -> dict[str, Any]:
    """Return the alarms about the labels of a shuffled stream, and how late those of a roll came.

    A false alarm is one before half of the stream; a label that nobody has after the roll, or
    before it, cannot be told from one that is rare.
    """
    order = np.random.default_rng((20261118, seed, 4)).permutation(len(Y))
    X, Y, half = X[order], Y[order].copy(), len(Y) // 2
    if rolled:
        Y[half:] = np.roll(Y[half:], 1, axis=1)
    every = [*range(Y.shape[1])]
    learner.partial_fit(X[:half], Y[:half], classes=every)
    n = learner.honest_scores(next=True)
    before = np.bincount(n.columns[(n.scores >= 0.5) | (n.hits > 0)], minlength=Y.shape[1])
    learner.partial_fit(X[half:], Y[half:])
    alarms = find_alarms(learner.honest_scores(next=True), Y.shape[1])
    late = alarms.decisions - before[alarms.columns]
    watched = int((before >= 50).sum())
    found = {"n": len(Y), "watched": watched, "false": int((late <= 0).sum())}
    if not rolled:
        return {**found, "false": len(late)}
    first: dict[int, int] = {}
    for j, delay in zip(alarms.columns.tolist(), late.tolist(), strict=True):
        if delay > 0:
            first.setdefault(j, delay)
    return {**found, "found": len(first), "delays": sorted(first.values())}


# ---------------------------------------------------------------------- what to tag next
def tag_in_order(
    X: Any, Y: Labels, learner: Any, *, order: str, seed: int, at: Sequence[int] = (250, 500, 1000)
) -> dict[str, Any]:
    """Return micro-F1 on other items after so many were tagged in an order."""
    rows = np.random.default_rng((20261118, seed, 3)).permutation(len(Y))
    n_test = min(N_TEST, len(Y) // 5)
    test, pool = rows[:n_test], rows[n_test : n_test + N_POOL].tolist()
    names = [f"{seed}-{i}" for i in range(len(Y))]  # other halves for other seeds
    found: dict[str, Any] = {"n_pool": len(pool), "n_test": n_test}
    tagged, every = 0, [*range(Y.shape[1])]
    while tagged < N_TAGGED and pool:
        some = pool[:N_SCORED]
        if order == "random" or not tagged:
            chosen = pool[:N_AT_ONCE]
        else:
            p, counts = learner.predict_proba(X[some]), learner.label_counts_
            places = order_items([names[i] for i in some], p, every, counts, order)
            chosen = [some[i] for i in places[:N_AT_ONCE]]
        learner.partial_fit(X[chosen], Y[chosen], classes=every if not tagged else None)
        gone = {*chosen}
        pool = [i for i in pool if i not in gone]
        tagged += len(chosen)
        if tagged in at:
            model = type(learner).from_state(learner.to_state())
            predicted = model.refit().predict(X[test])
            scores = MultiLabelScores().update(Y[test], predicted).as_dict()
            found[str(tagged)] = {k: scores[k] for k in ("micro_f1", "macro_f1")}
    return found
