"""How well is each tag suggested, does that get better or worse, and does the tag change?

Everything is read from honest scores (:mod:`tagstream.evidence.honest`): what was said of each
arriving item before it was learnt.  A *decision* about a tag is an item that has it or whose score
reached ½; it is an error if only one of the two holds.

**Drift.**  Let r be the running mean of errors of the tag, over some 500 decisions, and r₀ this
plus two standard errors.  If the rate of errors is at most r₀, then the likelihood ratio of the
rate r₁ = (1 + r₀)/2 to r₀ has a mean of at most 1 at each decision.  Its logarithms are summed,
W ← max(0, W + ln ratio).  By Ville's inequality, from any start W reaches ln 10⁴ with a probability
of at most 10⁻⁴: on average there is at most one false alarm in 10,000 decisions.  An alarm starts
everything anew, and no tag is alarmed about in its first 50 decisions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.core.compilation import compiled
from tagstream.evidence.honest import Entries

__all__ = ["Alarms", "TagHealth", "find_alarms", "tag_health"]

LATELY = 200  # decisions that quality is measured on
REFERENCE = 500.0
FEWEST = 50
ALARM = math.log(1e4)
Z = 1.96  # of the interval

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TagHealth:
    """How a tag is suggested lately.

    Attributes
    ----------
    tag : hashable
    n : int
        Stored items that have it.
    decisions : int
        Decisions that the measures are made of, at most 200.
    precision, recall : tuple of (value, low, high), or None
        With a 95 % interval; None where nothing was suggested, or nothing had it.
    trend : float or None
        F1 of the later half of these decisions minus that of the earlier one.
    drifting : bool
        Whether there was an alarm within them: the tag is no longer used as it was.
    """

    tag: Any
    n: int
    decisions: int
    precision: tuple[float, float, float] | None
    recall: tuple[float, float, float] | None
    trend: float | None
    drifting: bool


class Alarms(NamedTuple):
    """Alarms: the labels, and after how many decisions about the label each came."""

    columns: Ints
    decisions: Ints


@compiled
def _watch(
    columns: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
    hits: npt.NDArray[np.uint8],
    rates: Vector,
    weights: Vector,
    W: Vector,
    n: Ints,
    total: Ints,
    alarms: npt.NDArray[np.bool_],
) -> None:
    """Mark the entries at which there is an alarm."""
    for i in range(columns.shape[0]):
        j, said = columns[i], scores[i] >= 0.5
        if not said and not hits[i]:
            continue
        error = 1.0 if said != (hits[i] == 1) else 0.0
        total[j] += 1
        if n[j] >= FEWEST:
            r = rates[j]
            r0 = min(r + 2.0 * math.sqrt(max(r * (1.0 - r), 0.01) / weights[j]), 0.95)
            r1 = 0.5 * (1.0 + r0)
            W[j] += math.log(r1 / r0) if error else math.log((1.0 - r1) / (1.0 - r0))
            W[j] = max(W[j], 0.0)
            if W[j] >= ALARM:
                alarms[i] = True
                rates[j], weights[j], W[j], n[j] = 0.0, 0.0, 0.0, 0
        n[j] += 1
        weights[j] = min(weights[j] + 1.0, REFERENCE)
        rates[j] += (error - rates[j]) / weights[j]


def _alarms(entries: Entries, q: int) -> npt.NDArray[np.bool_]:
    marks = np.zeros(len(entries.columns), np.bool_)
    rates, weights, W = np.zeros((3, q))
    n, total = np.zeros((2, q), np.int64)
    _watch(*entries, rates, weights, W, n, total, marks)
    return marks


def find_alarms(entries: Entries, q: int) -> Alarms:
    """Return the alarms about ``q`` labels.

    Examples
    --------
    >>> hits = np.r_[np.ones(300), np.zeros(60)].astype(np.uint8)
    >>> entries = Entries(np.zeros(360, np.int32), np.full(360, 0.9, np.float32), hits)
    >>> find_alarms(entries, 1).decisions.tolist()
    [303]
    """
    marks = _alarms(entries, q)
    decided = (entries.scores >= 0.5) | (entries.hits > 0)
    at = np.flatnonzero(marks)
    columns = entries.columns[at].astype(np.int64)
    counts = [
        int((decided[: i + 1] & (entries.columns[: i + 1] == j)).sum())
        for i, j in zip(at, columns, strict=True)
    ]
    return Alarms(columns, np.array(counts, np.int64))


def tag_health(model: Any) -> list[TagHealth]:
    """Return how each tag of a model is suggested lately, in the order of its tags."""
    names, counts = model.classes_.tolist(), model.label_counts_.tolist()
    entries = model.honest_scores(next=True)
    alarms = _alarms(entries, len(names))
    said, has = entries.scores >= 0.5, entries.hits > 0
    decided = np.flatnonzero(said | has)
    order = decided[np.argsort(entries.columns[decided], kind="stable")]
    bounds = np.searchsorted(entries.columns[order], np.arange(len(names) + 1))
    made = []
    for j, name in enumerate(names):
        last = order[bounds[j] : bounds[j + 1]][-LATELY:]
        s, y = said[last], has[last]
        half = len(last) // 2
        trend = None
        if half >= FEWEST // 2:
            trend = round(_f1(s[half:], y[half:]) - _f1(s[:half], y[:half]), 6)
        hits = int((s & y).sum())
        made.append(
            TagHealth(
                name,
                int(counts[j]),
                len(last),
                _share(hits, int(s.sum())),
                _share(hits, int(y.sum())),
                trend,
                bool(alarms[last].any()),
            )
        )
    return made


def _f1(said: Any, has: Any) -> float:
    return float(2 * (said & has).sum() / max(said.sum() + has.sum(), 1))


def _share(hits: int, n: int) -> tuple[float, float, float] | None:
    """Return a share with its interval by Wilson, None of nothing.

    Examples
    --------
    >>> _share(9, 10)
    (0.9, 0.595844, 0.982124)
    """
    if not n:
        return None
    p, z = hits / n, Z
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    width = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return round(p, 6), round(max(middle - width, 0.0), 6), round(min(middle + width, 1.0), 6)
