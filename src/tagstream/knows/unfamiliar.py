"""What has come of which nothing is known?

A record is *unfamiliar* if no tag has a score of at least :data:`LEAST` that is also higher than
the share of the stored items that have the tag.  Unfamiliar records that resemble each other are a
group, which may be the beginning of a new tag.  Two records resemble each other if the cosine of
their words, each with the weight ln(1 + n/n_w), is above :data:`ALIKE`; n_w of the n records have
the word, stored ones included.  What resembles a record of a group belongs to the group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

__all__ = ["ALIKE", "LEAST", "Unfamiliar", "find_unfamiliar"]

LEAST = 0.2  # score from which a tag is something that is known
ALIKE = 0.2
N_WORDS = 5  # of a group that are named


@dataclass(frozen=True)
class Unfamiliar:
    """A group of records of which nothing is known.

    Attributes
    ----------
    places : tuple of int
        Where they stand among the records that were given.
    words : tuple
        What at least half of them have in common, first what others have least; of one record,
        nothing.
    score : float
        The highest score of any tag for any of them, of those above the tag's share.
    """

    places: tuple[int, ...]
    words: tuple[Any, ...]
    score: float


def find_unfamiliar(
    features: Sequence[frozenset[Any]],
    best: Sequence[float],
    n: int,
    least: float = LEAST,
    stored: Iterable[frozenset[Any]] = (),
) -> list[Unfamiliar]:
    """Return at most ``n`` groups of unfamiliar records, the largest first.

    Parameters
    ----------
    features : sequence of frozenset
        What each record has: its words.
    best : sequence of float
        The highest score of any tag for each, of those above the tag's share.
    n : int
    least : float
    stored : iterable of frozenset
        What the items have that are known: what is frequent there joins nothing.

    Examples
    --------
    >>> words = [frozenset(t.split()) for t in ("drone battery", "low tide", "lost drone", "chess")]
    >>> for group in find_unfamiliar(words, [0.1, 0.9, 0.0, 0.0], 5):
    ...     print(group)
    Unfamiliar(places=(0, 2), words=('drone',), score=0.1)
    Unfamiliar(places=(3,), words=(), score=0.0)
    """
    some = [i for i, score in enumerate(best) if score < least]
    everything = [*features, *stored]
    counts = Counter(one for every in everything for one in every)
    _, group_of = connected_components(
        _resemblance([features[i] for i in some], counts, len(everything))
    )
    groups: dict[int, list[int]] = {}
    for i, group in zip(some, group_of.tolist(), strict=True):
        groups.setdefault(group, []).append(i)
    largest = sorted(groups.values(), key=lambda group: -len(group))[:n]
    return [
        Unfamiliar(
            tuple(group),
            _words_of([features[i] for i in group], counts),
            max(float(best[i]) for i in group),
        )
        for group in largest
    ]


def _resemblance(features: Sequence[frozenset[Any]], counts: Counter[Any], total: int) -> Any:
    """Return a graph (m, m) in which records that resemble each other are joined."""
    column = {one: j for j, one in enumerate({one: 0 for some in features for one in some})}
    weight = np.array([np.log1p(total / counts[one]) for one in column])
    at = [(i, column[one]) for i, some in enumerate(features) for one in some]
    rows, columns = np.array(at, np.int64).reshape(-1, 2).T
    made = sp.csr_matrix((weight[columns], (rows, columns)), (len(features), len(column)))
    lengths = np.sqrt(np.asarray(made.multiply(made).sum(axis=1)).ravel())
    made = sp.diags(1.0 / np.where(lengths > 0, lengths, 1.0)) @ made
    alike = (made @ made.T).tocsr()
    return alike > ALIKE


def _words_of(group: Sequence[frozenset[Any]], counts: Counter[Any]) -> tuple[Any, ...]:
    within = Counter(one for some in group for one in some)
    shared = [one for one, k in within.items() if k > 1 and 2 * k >= len(group)]
    shared.sort(key=lambda one: (-within[one] / counts[one], -within[one], str(one)))
    return tuple(shared[:N_WORDS])
