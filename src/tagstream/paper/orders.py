"""Does the order of the training data matter, or copies in it?

A learner is given a training part in some arrangement, and asked about the other items as they come
to a user: any item.  The arrangements are the order of a random draw, that of the file, and the
items sorted by their first label, as people export them; and each item three times, one after the
other or anywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.evaluation.metrics import MultiLabelScores

__all__ = ["COPIED", "ONCE", "arranged", "divided", "measured"]

ONCE = ("shuffled", "file order", "sorted")
COPIED = ("three in a row", "three shuffled")
SEED = 20261118  # of the divisions
TEST_SHARE = 0.2
BINS = 15  # of the calibration error
LEAST = 1e-7  # probability that a logarithm is taken of

Positions = npt.NDArray[np.int64]


def divided(n: int, division: int) -> tuple[Positions, Positions]:
    """Return the training part of a division, in the order of the file, and the other items."""
    order = np.random.default_rng((SEED, division)).permutation(n)
    n_test = round(TEST_SHARE * n)
    return np.sort(order[n_test:]), order[:n_test]


def arranged(name: str, Y: Any, division: int) -> Positions:
    """Return the rows of a training part with labels ``Y`` (n, q), in that arrangement.

    Examples
    --------
    >>> Y = np.array([[0, 1], [1, 0], [0, 1], [0, 0]])
    >>> arranged("sorted", Y, 0).tolist(), arranged("three in a row", Y[:2], 0).tolist()
    ([1, 0, 2, 3], [0, 0, 0, 1, 1, 1])
    """
    n, draw = len(Y), np.random.default_rng((SEED, division, 1))
    if name == "sorted":  # those without a label come last
        first = np.where(Y.any(axis=1), Y.argmax(axis=1), Y.shape[1])
        return np.argsort(first, kind="stable")
    if name == "file order":
        return np.arange(n)
    if name == "three in a row":
        return np.repeat(np.arange(n), 3)
    copies = 3 if name == "three shuffled" else 1
    return draw.permutation(np.repeat(np.arange(n), copies))


def measured(Y: Any, predicted: Any, scores: Any) -> dict[str, float]:
    """Return the four measures, log loss per item, and the calibration error.

    The calibration error is Σ|mean of p − share of hits| over bins of p, weighted by their size,
    divided by the mean share of a label.
    """
    made = MultiLabelScores().update(Y, predicted).as_dict()
    kept = {name: made[name] for name in ("micro_f1", "macro_f1", "example_f1", "hamming_loss")}
    p, y = np.clip(scores, LEAST, 1 - LEAST), np.asarray(Y) > 0
    kept["log_loss"] = float(-np.log(np.where(y, p, 1 - p)).sum(axis=1).mean())
    bins = np.minimum((scores * BINS).astype(int), BINS - 1).ravel()
    gaps = np.bincount(bins, (scores - y).ravel(), minlength=BINS)
    kept["calibration_error"] = float(np.abs(gaps).sum() / max(y.sum(), 1))
    return kept
