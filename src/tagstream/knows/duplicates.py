"""Which stored items are nearly the same and have different tags?

Of each item the most similar other one among its neighbours is looked up, feature by feature: the
cosine of sparse rows, 1 − d²/2p of dense ones.  Items that are at least :data:`LEAST` alike, and
those that are like them in turn, are a group.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LEAST", "Duplicates", "find_duplicates"]

LEAST = 0.9


@dataclass(frozen=True)
class Duplicates:
    """A group of stored items that are nearly the same.

    Attributes
    ----------
    ids : tuple
    tags : tuple of tuple
        The tags of each.
    differing : tuple
        The tags that some of them have and others do not.
    similarity : float
        The lowest by which two of them were joined.
    texts : tuple of (str or None)
    """

    ids: tuple[Hashable, ...]
    tags: tuple[tuple[Any, ...], ...]
    differing: tuple[Any, ...]
    similarity: float
    texts: tuple[str | None, ...]


def find_duplicates(
    model: Any,
    n: int,
    texts: Mapping[Hashable, str],
    *,
    least: float = LEAST,
    conflicting: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[Duplicates]:
    """Return at most ``n`` groups of near copies, those with most differing tags first."""
    group: dict[int, int] = {}

    def root(at: int) -> int:
        while group.get(at, at) != at:
            at = group[at]
        return at

    lowest: dict[int, float] = {}
    for position, other, alike in model.near_copies(least, progress):
        a, b = sorted((root(position), root(other)))
        group[b] = group.setdefault(a, a)
        lowest[a] = min(lowest.get(a, 1.0), lowest.pop(b, 1.0) if b != a else 1.0, alike)
    members: dict[int, list[int]] = {}
    for at in group:
        members.setdefault(root(at), []).append(at)
    found = [
        _group(model, sorted(some), lowest.get(at, least), texts) for at, some in members.items()
    ]
    if conflicting:
        found = [one for one in found if one.differing]
    found.sort(key=lambda one: (-len(one.differing), -one.similarity))
    return found[:n]


def _group(
    model: Any, positions: list[int], similarity: float, texts: Mapping[Hashable, str]
) -> Duplicates:
    ids = model.ids_at(positions)
    names, labels = model.classes_.tolist(), model.labels_at(positions)
    tags = tuple(tuple(names[j] for j in row.nonzero()[0]) for row in labels)
    some, every = labels.any(axis=0), labels.all(axis=0)
    differing = tuple(names[j] for j in (some & ~every).nonzero()[0])
    return Duplicates(
        tuple(ids), tags, differing, round(float(similarity), 6), tuple(map(texts.get, ids))
    )
