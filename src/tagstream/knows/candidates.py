"""Which stored items should have this tag?

Each stored item that is not known to have the tag is asked about without itself.  Those with the
highest score come first.  What speaks for an item is its neighbours that have the tag.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tagstream.learners.neighbors import Neighbor

__all__ = ["Candidate", "find_candidates"]

LEAST = 0.01  # score of a candidate


@dataclass(frozen=True)
class Candidate:
    """A stored item that should perhaps have a tag.

    Attributes
    ----------
    id : hashable
    score : float
        Probability that it should, asked without the item itself.
    tags : tuple
        The tags that it has.
    why : tuple of Neighbor
        Its nearest neighbours that have the tag.
    text : str or None
        Its text, if it is kept.
    """

    id: Hashable
    score: float
    tags: tuple[Any, ...]
    why: tuple[Neighbor, ...] = ()
    text: str | None = None


def find_candidates(
    model: Any,
    tag: Any,
    n: int,
    refused: Mapping[Hashable, Any],
    texts: Mapping[Hashable, str],
    progress: Callable[[int, int], None] | None = None,
    excluded_by: Collection[Any] = (),
) -> list[Candidate]:
    """Return at most ``n`` stored items without a tag that most likely should have it.

    Parameters
    ----------
    model : learner that keeps items, or a view of one
    tag : a label of it
    n : int
    refused : mapping
        Items for which a person has refused the tag are left out.
    texts : mapping
    progress : callable (done, total), optional
    excluded_by : collection of labels
        Items with one of these must not have the tag, and are left out.
    """
    names = model.classes_.tolist()
    if tag not in names:
        raise ValueError(f"tag must be one that was learnt, got {tag!r}")
    column, total = names.index(tag), int(model.n_stored_)
    rivals = [j for j, name in enumerate(names) if name in excluded_by]
    scores = np.full(total, -1.0)
    for block in model.ask_stored():
        has = (block.Y > 0) & block.known
        no = has[:, column] | has[:, rivals].any(axis=1)
        scores[block.positions] = np.where(no, -1.0, block.scores[:, column])
        if progress is not None:
            progress(int(block.positions[-1]) + 1, total)
    found: list[Candidate] = []
    order = np.argsort(-scores, kind="stable")
    for name, at in zip(model.ids_at(order), order.tolist(), strict=True):
        if len(found) == n or scores[at] < LEAST:
            break
        if tag not in refused.get(name, ()):
            tags = tuple(sorted(model.item(name).labels, key=str))
            why = _why(model, at, tag, texts)
            found.append(Candidate(name, round(float(scores[at]), 6), tags, why, texts.get(name)))
    return found


def _why(
    model: Any, position: int, tag: Any, texts: Mapping[Hashable, str]
) -> tuple[Neighbor, ...]:
    return tuple(
        Neighbor(near.id, near.distance, near.labels, texts.get(near.id))
        for near in model.neighbors_of(position)
        if tag in near.labels
    )
