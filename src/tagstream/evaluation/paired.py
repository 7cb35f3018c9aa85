"""Two runs over the same stream, compared block by block.

Items of a stream resemble those beside them, so that single items are no independent trials.
Blocks of neighbours nearly are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Difference", "blocks_of", "micro_f1_difference"]

DRAWS = 10_000


class Difference(NamedTuple):
    """How much larger a measure is for one of two, with a 95 % interval."""

    value: float
    least: float
    most: float


def blocks_of(course: Any, Y: Any) -> dict[str, list[int]]:
    """Return the counts of each block of a prequential run, one block for each checkpoint.

    Parameters
    ----------
    course : PrequentialResult
        Of all rows of ``Y``, none of them learnt before.
    Y : array of shape (n, q)
        0/1 labels, all known.

    Returns
    -------
    dict of str to list of int
        ``hit``, ``true`` and ``pred``: entries that are right, relevant, predicted.
    """
    ends = np.array([point.n_items for point in course.curve])
    true = np.cumsum(np.asarray(Y.sum(axis=1)).ravel().astype(np.int64))[ends - 1]
    recall = np.array([point.cumulative["micro_recall"] for point in course.curve])
    loss = np.array([point.cumulative["hamming_loss"] for point in course.curve])
    hit = np.rint(recall * true).astype(np.int64)
    wrong = np.rint(loss * ends * Y.shape[1]).astype(np.int64)
    sums = {"hit": hit, "true": true, "pred": wrong - true + 2 * hit}
    return {name: np.diff(values, prepend=0).tolist() for name, values in sums.items()}


def micro_f1_difference(
    ours: Mapping[str, Sequence[int]], theirs: Mapping[str, Sequence[int]], *, seed: int = 0
) -> Difference:
    """Return how much larger micro-F1 is for one of two runs over the same stream.

    The interval is a paired bootstrap: blocks are drawn with replacement, the same ones for both.

    Parameters
    ----------
    ours, theirs : mappings of str to sequences of int
        As :func:`blocks_of` returns them.
    seed : int
        Of the draws.

    Examples
    --------
    >>> ours = {"hit": [9, 8, 9], "true": [10, 10, 10], "pred": [10, 10, 10]}
    >>> theirs = {"hit": [8, 8, 8], "true": [10, 10, 10], "pred": [10, 10, 10]}
    >>> tuple(round(float(value), 2) for value in micro_f1_difference(ours, theirs))
    (0.07, 0.0, 0.1)
    """
    both = [_twice_hits_and_sizes(ours), _twice_hits_and_sizes(theirs)]
    n = len(both[0])
    if not n or len(both[1]) != n or list(ours["true"]) != list(theirs["true"]):
        raise ValueError("both runs must be over the same blocks of the same stream")
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(n, np.full(n, 1 / n), size=DRAWS)
    gaps = _micro_f1(drawn @ both[0]) - _micro_f1(drawn @ both[1])
    value = _micro_f1(both[0].sum(axis=0)) - _micro_f1(both[1].sum(axis=0))
    least, most = np.quantile(gaps, (0.025, 0.975))
    return Difference(float(value), float(least), float(most))


def _twice_hits_and_sizes(blocks: Mapping[str, Sequence[int]]) -> npt.NDArray[np.int64]:
    hit, true, pred = (np.asarray(blocks[name], np.int64) for name in ("hit", "true", "pred"))
    return np.stack([2 * hit, true + pred], axis=1)


def _micro_f1(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return 2·hits / sizes, 0 where there is nothing."""
    made: npt.NDArray[np.float64] = sums[..., 0] / np.maximum(sums[..., 1], 1)
    return made
