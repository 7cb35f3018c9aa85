"""How good suggestions are on items whose tags are known: per tag, at the top, and calibration.

Intervals.  With h right suggestions, a wrong ones and m tags missed, F1 = 2h/(2h + a + m) is an
increasing function of J = h/(h + a + m), F1 = 2J/(1 + J).  So Wilson's 95 % interval of the share J
becomes one of F1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Bin", "Quality", "TagQuality", "measure"]

Z = 1.959964  # of a normal distribution, 95 % lies within ± Z
N_BINS = 10
DEPTHS = (1, 3)


@dataclass(frozen=True)
class TagQuality:
    """How one tag fares.

    Attributes
    ----------
    n_items : int
        Items that have it.
    n_suggested, n_right : int
        Items for which it was suggested, and those of them that have it.
    """

    n_items: int
    n_suggested: int
    n_right: int

    @property
    def precision(self) -> float:
        """Share of the suggestions that are right; 0 without suggestions."""
        return self.n_right / self.n_suggested if self.n_suggested else 0.0

    @property
    def recall(self) -> float:
        """Share of the items that have it for which it was suggested."""
        return self.n_right / self.n_items if self.n_items else 0.0

    @property
    def f1(self) -> float:
        """F1; 0 if no item has the tag and none got it."""
        both = self.n_items + self.n_suggested
        return 2 * self.n_right / both if both else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Where F1 lies with 95 % certainty, given the items as a sample."""
        low, high = wilson(self.n_right, self.n_items + self.n_suggested - self.n_right)
        return 2 * low / (1 + low), 2 * high / (1 + high)


@dataclass(frozen=True)
class Bin:
    """Scores between two bounds: how many, their mean, and the share that was right."""

    low: float
    high: float
    n: int
    mean: float
    right: float


@dataclass(frozen=True)
class Quality:
    """Suggestions beside the truth.

    Attributes
    ----------
    n_items : int
    tags : dict of tag to TagQuality
        The most frequent tags first.
    all : TagQuality
        All tags together: its F1 is micro-F1.
    precision_at : dict of int to float
        Share of right tags among the 1 and the 3 highest scores.
    bins : list of Bin
        Scores of 0.1 and more, by tenths; tenths without a score are left out.
    """

    n_items: int
    tags: dict[Any, TagQuality]
    all: TagQuality
    precision_at: dict[int, float]
    bins: list[Bin]

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the tags that some item has."""
        found = [tag.f1 for tag in self.tags.values() if tag.n_items]
        return sum(found) / len(found) if found else 0.0

    @property
    def calibration_error(self) -> float:
        """Mean distance between score and share right, over the scores in the bins."""
        n = sum(part.n for part in self.bins)
        gaps = sum(part.n * abs(part.mean - part.right) for part in self.bins)
        return gaps / n if n else 0.0


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share.

    Examples
    --------
    >>> [round(bound, 3) for bound in wilson(8, 10)]
    [0.49, 0.943]
    """
    if n == 0:
        return 0.0, 1.0
    share, z2 = hits / n, Z * Z / n
    middle = (share + z2 / 2) / (1 + z2)
    half = Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n)) / (1 + z2)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def measure(
    truth: Sequence[Iterable[Any]],
    suggested: Sequence[Iterable[Any]],
    scores: Sequence[Mapping[Any, float]],
) -> Quality:
    """Compare suggestions with the truth, item by item.

    Parameters
    ----------
    truth, suggested : sequences of n collections of tags
    scores : sequence of n mappings of tag to score, the highest first
        A tag without a score counts as zero.

    Examples
    --------
    >>> found = measure([["sea"], ["sun"]], [["sea"], ["sea"]], [{"sea": 0.9}, {"sea": 0.7}])
    >>> found.all.f1, found.tags["sea"].precision, found.precision_at[1]
    (0.5, 0.5, 0.5)
    """
    has: Counter[Any] = Counter()
    got: Counter[Any] = Counter()
    right: Counter[Any] = Counter()
    at = dict.fromkeys(DEPTHS, 0)
    sums = [[0, 0.0, 0] for _ in range(N_BINS)]
    for true, found, values in zip(map(set, truth), map(set, suggested), scores, strict=True):
        has.update(true)
        got.update(found)
        right.update(true & found)
        best = [*values][: max(DEPTHS)]
        for k in DEPTHS:
            at[k] += len(true.intersection(best[:k]))
        for tag, score in values.items():
            entry = sums[min(int(N_BINS * score), N_BINS - 1)]
            entry[0] += 1
            entry[1] += score
            entry[2] += tag in true
    names = sorted({*has, *got}, key=lambda tag: (-has[tag], str(tag)))
    n = len(truth)
    return Quality(
        n,
        {tag: TagQuality(has[tag], got[tag], right[tag]) for tag in names},
        TagQuality(has.total(), got.total(), right.total()),
        {k: hits / (k * n) if n else 0.0 for k, hits in at.items()},
        [
            Bin(i / N_BINS, (i + 1) / N_BINS, int(m), total / m, hits / m)
            for i, (m, total, hits) in enumerate(sums)
            if i and m
        ],
    )
