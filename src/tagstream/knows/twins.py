"""Which two tags are one?

Two tags mean the same if their items look the same.  All stored items are asked about without
themselves.  Let R_ab be the mean score of tag b on the items that have tag a, and N_ab the share of
their neighbours that have b.  What P and the head take two tags for, and their shared neighbours,
are compared with what each tag is to itself:

    (R_ab + R_ba)/(R_aa + R_bb),        (N_ab + N_ba)/(N_aa + N_bb),        1 at most.

*Meaning* is the mean of the two.  *Name* is how alike the names are written.  The pairs are ordered
by 1 − (1 − meaning)(1 − name⁴).  Tags that stand on the same items are not thereby one: where most
items of the rarer tag have both, the pair is left out.  Nothing is ever merged by itself.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["TagPair", "find_twins", "name_similarity"]

FEWEST = 3  # items of a tag
TOGETHER = 0.5  # share of the rarer tag's items that have both, from which they are two things
EXAMPLES = 3
MOST_PAIRS = 2000  # pairs whose names are compared, best meaning first

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TagPair:
    """Two tags that may be one, and what merging them would do.

    Attributes
    ----------
    pair : tuple
        The more frequent tag first: into this one the other would be merged.
    score : float
        How much speaks for it, from 0 to 1.
    meaning, name : float
        How alike their items and their names are.
    counts : tuple of int
        How many items have each.
    n_both : int
        How many have both.
    n_merged : int
        How many items would have the merged tag.
    examples : dict
        Tag to some items that have it and not the other: pairs of id and text.
    """

    pair: tuple[Any, Any]
    score: float
    meaning: float
    name: float
    counts: tuple[int, int]
    n_both: int
    n_merged: int
    examples: dict[Any, list[tuple[Hashable, str | None]]]


def name_similarity(a: Any, b: Any) -> float:
    """Return how alike two names are written, from 0 to 1; case, signs and a last s do not count.

    Examples
    --------
    >>> name_similarity("Web-Apps", "webapp"), round(name_similarity("mtg", "meeting"), 2)
    (1.0, 0.6)
    """
    plain = [re.sub(r"[\W_]+", "", str(name).casefold()) for name in (a, b)]
    first, second = (name[:-1] if len(name) > 3 and name.endswith("s") else name for name in plain)
    if not first or not second:
        return 0.0
    return difflib.SequenceMatcher(None, first, second).ratio()


def find_twins(
    model: Any,
    n: int,
    texts: Mapping[Hashable, str],
    progress: Callable[[int, int], None] | None = None,
) -> list[TagPair]:
    """Return at most ``n`` pairs of tags that may be one, the likeliest first."""
    names, total = model.classes_.tolist(), int(model.n_stored_)
    q = len(names)
    scored, near, both = np.zeros((q, q)), np.zeros((q, q)), np.zeros((q, q))
    labels = model.labels_at(np.arange(total))
    for block in model.ask_stored():
        Y = block.Y.astype(np.float64)
        scored += Y.T @ block.scores
        theirs = labels[np.maximum(block.found, 0)] * (block.found >= 0)[:, :, None]
        near += Y.T @ (theirs.sum(axis=1) / np.maximum((block.found >= 0).sum(axis=1), 1)[:, None])
        both += Y.T @ Y
        if progress is not None:
            progress(int(block.positions[-1]) + 1, total)
    counts = np.diag(both)
    meaning = (_alike(scored, counts) + _alike(near, counts)) / 2
    return _pairs(model, names, meaning, both, labels, texts)[:n]


def _alike(sums: Vector, counts: Vector) -> Vector:
    """Return (R_ab + R_ba)/(R_aa + R_bb), at most 1, given sums over the items of each tag."""
    mean = sums / np.maximum(counts, 1)[:, None]
    own = np.diag(mean)
    total = own[:, None] + own
    return np.minimum((mean + mean.T) / np.where(total > 0, total, 1), 1.0)


def _pairs(
    model: Any,
    names: list[Any],
    meaning: Vector,
    both: Vector,
    labels: Any,
    texts: Mapping[Hashable, str],
) -> list[TagPair]:
    counts = np.diag(both)
    a, b = np.triu_indices(len(names), 1)
    fewer = np.minimum(counts[a], counts[b])
    some = (fewer >= FEWEST) & (both[a, b] < TOGETHER * fewer)
    a, b = a[some], b[some]
    order = np.argsort(-meaning[a, b], kind="stable")
    if len(order) > MOST_PAIRS:
        order = order[:MOST_PAIRS]
    made = []
    for i, j in zip(a[order].tolist(), b[order].tolist(), strict=True):
        alike = name_similarity(names[i], names[j])
        score = 1 - (1 - float(meaning[i, j])) * (1 - alike**4)
        made.append((score, float(meaning[i, j]), alike, i, j))
    made.sort(key=lambda one: -one[0])
    return [_pair(model, names, one, both, labels, texts) for one in made[:200]]


def _pair(
    model: Any, names: list[Any], found: Any, both: Vector, labels: Any, texts: Any
) -> TagPair:
    score, meaning, alike, i, j = found
    if both[j, j] > both[i, i]:
        i, j = j, i
    n_both = int(both[i, j])
    counts = int(both[i, i]), int(both[j, j])
    examples = {}
    for own, other in ((i, j), (j, i)):
        at = np.flatnonzero((labels[:, own] > 0) & (labels[:, other] == 0))[:EXAMPLES]
        examples[names[own]] = [(name, texts.get(name)) for name in model.ids_at(at)]
    return TagPair(
        (names[i], names[j]), round(score, 6), round(meaning, 6), round(alike, 6), counts, n_both,
        sum(counts) - n_both, examples,
    )  # fmt: skip
