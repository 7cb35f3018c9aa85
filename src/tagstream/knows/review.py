"""Which stored tags are wrong?

Each stored item is asked about without itself, which gives a probability p_j for each tag.  A set S
of tags has an expected F1 of about

    E(S) = 2·Σ_{j∈S} p_j / (|S| + Σ_j p_j),        E(∅) = Π_j (1 − p_j)

(expected hits over expected sizes; :mod:`tagstream.decision`).  The doubt about an item is

    max_S E(S) − E(tags that it has).

It is zero where the model would give the same tags, small where it is not sure of anything, and
large where it is sure of other tags.  Tags that are not known are left out of both.  So are those
that no other item has: without the item nothing is known of them.

Of exclusive tags S holds only the one with the highest p.  Items that have two of them come first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.learners.neighbors import Neighbor, StoredBlock

__all__ = ["Doubt", "best_sets", "doubts_of", "expected_f1", "find_doubts"]

Vector = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Progress = Callable[[int, int], None]
Refused = Mapping[Hashable, Any]  # id to the tags that were refused


@dataclass(frozen=True)
class Doubt:
    """A stored item whose tags look wrong.

    Attributes
    ----------
    id : hashable
    doubt : float
        Expected F1 of the best tags minus that of the present ones.
    tags : tuple
        The tags that it has.
    remove, add : tuple
        The tags that should go, and those that are missing; the surest first.
    scores : dict
        Score of each of these, asked without the item itself.
    neighbors : tuple of Neighbor
        The nearest other items: the reason.
    text : str or None
        Its text, if it is kept.
    """

    id: Hashable
    doubt: float
    tags: tuple[Any, ...]
    remove: tuple[Any, ...]
    add: tuple[Any, ...]
    scores: dict[Any, float]
    neighbors: tuple[Neighbor, ...] = ()
    text: str | None = None


class _Sets(NamedTuple):
    """The best sets of tags, (m, q), and their expected F1, (m,)."""

    chosen: Bools
    f1: Vector


def expected_f1(p: Vector, chosen: Bools) -> Vector:
    """Return the expected F1 of sets of tags, (m,), given probabilities (m, q).

    Examples
    --------
    >>> p = np.array([[0.8, 0.2], [0.8, 0.2]])
    >>> expected_f1(p, np.array([[True, False], [False, False]])).round(3).tolist()
    [0.8, 0.16]
    """
    hits, sizes = (p * chosen).sum(axis=1), chosen.sum(axis=1)
    nothing = np.prod(1 - p, axis=1)
    total = sizes + p.sum(axis=1)
    f1: Vector = np.where(sizes > 0, 2 * hits / np.where(total > 0, total, 1), nothing)
    return f1


def best_sets(p: Vector, allowed: Bools | None = None) -> _Sets:
    """Return for each row of probabilities the set with the highest expected F1.

    It is empty or has the m tags with the highest p, of those that are ``allowed`` (m, q).

    Examples
    --------
    >>> chosen, f1 = best_sets(np.array([[0.8, 0.2, 0.5], [0.1, 0.0, 0.1]]))
    >>> chosen.tolist(), f1.round(3).tolist()
    ([[True, False, True], [False, False, False]], [0.743, 0.81])
    """
    n, q = p.shape
    open_to = p if allowed is None else np.where(allowed, p, 0.0)
    order = np.argsort(-open_to, axis=1, kind="stable")
    hits = np.cumsum(np.take_along_axis(open_to, order, axis=1), axis=1)
    f1 = 2 * hits / (np.arange(1, q + 1) + p.sum(axis=1, keepdims=True))
    f1 = np.concatenate([np.prod(1 - p, axis=1, keepdims=True), f1], axis=1)
    size = f1.argmax(axis=1)
    chosen = np.zeros((n, q), np.bool_)
    np.put_along_axis(chosen, order, np.arange(q) < size[:, None], axis=1)
    return _Sets(chosen, f1[np.arange(n), size])


def doubts_of(p: Vector, Y: Any, known: Bools, allowed: Bools | None = None) -> Vector:
    """Return max E(S) − E(Y) of each item, (m,), for sets S of the ``allowed`` tags."""
    p = np.where(known, p, 0.0)
    return best_sets(p, allowed).f1 - expected_f1(p, (np.asarray(Y) > 0) & known)


def find_doubts(
    model: Any,
    n: int,
    refused: Refused,
    texts: Mapping[Hashable, str],
    progress: Progress | None = None,
    exclusive: Sequence[tuple[Any, ...]] = (),
) -> list[Doubt]:
    """Return the ``n`` stored items with the largest doubt, most doubtful first.

    Before them come those that have two tags which exclude each other.

    Parameters
    ----------
    model : learner that keeps items, or a view of one
    n : int
    refused : mapping
        Tags that a person has refused for an item are not proposed again.
    texts : mapping
    progress : callable (done, total), optional
    exclusive : sequence of tuple
        Groups of tags of which an item has at most one.
    """
    total, groups = int(model.n_stored_), _columns_of(model, exclusive)
    values, breaks = np.empty(total), np.zeros(total, np.bool_)
    for block in model.ask_stored():
        part = _without_refused(model, block, refused)
        allowed = _allowed(part.scores, groups)
        values[part.positions] = doubts_of(part.scores, part.Y, _judged(model, part), allowed)
        breaks[part.positions] = _breaks(part, groups)
        if progress is not None:
            progress(int(part.positions[-1]) + 1, total)
    worst = np.lexsort((-values, ~breaks))[:n]
    worst = worst[(values[worst] > 0) | breaks[worst]]
    found: list[Doubt] = []
    for block in model.ask_stored(worst):
        part = _without_refused(model, block, refused)
        judged = _judged(model, part)
        part = part._replace(scores=np.where(judged, part.scores, 0.0))
        chosen = best_sets(part.scores, _allowed(part.scores, groups)).chosen
        wrong = judged & (chosen != (part.Y > 0))
        found += [
            _doubt(model, part, i, wrong[i], float(values[part.positions[i]]), texts)
            for i in range(len(part.positions))
        ]
    return found


def _judged(model: Any, block: StoredBlock) -> Bools:
    """Return of which tags something is known without the item, (m, q)."""
    alone = (block.Y > 0) & (model.label_counts_ == 1)
    judged: Bools = block.known & ~alone
    return judged


def _columns_of(model: Any, exclusive: Sequence[tuple[Any, ...]]) -> list[list[int]]:
    """Return the columns of each group of exclusive tags, of those that are known."""
    at = {name: j for j, name in enumerate(model.classes_.tolist())} if exclusive else {}
    groups = [[at[tag] for tag in group if tag in at] for group in exclusive]
    return [group for group in groups if len(group) > 1]


def _allowed(p: Vector, groups: list[list[int]]) -> Bools | None:
    """Return which tags a set may hold, (m, q): of a group the one with the highest p."""
    if not groups:
        return None
    allowed = np.ones(p.shape, np.bool_)
    for group in groups:
        best = np.array(group)[p[:, group].argmax(axis=1)]
        allowed[:, group] = np.array(group) == best[:, None]
    return allowed


def _breaks(block: StoredBlock, groups: list[list[int]]) -> Bools:
    """Return which items have two tags of a group, (m,)."""
    has = (block.Y > 0) & block.known
    found = np.zeros(len(has), np.bool_)
    for group in groups:
        found |= has[:, group].sum(axis=1) > 1
    return found


def _without_refused(model: Any, block: StoredBlock, refused: Refused) -> StoredBlock:
    """Return the block with the score 0 for what was refused."""
    if not refused:
        return block
    names, scores = model.classes_.tolist(), block.scores.copy()
    for i, name in enumerate(model.ids_at(block.positions)):
        for tag in refused.get(name, ()):
            if tag in names:
                scores[i, names.index(tag)] = 0.0
    return block._replace(scores=scores)


def _doubt(
    model: Any,
    block: StoredBlock,
    i: int,
    wrong: Bools,
    value: float,
    texts: Mapping[Hashable, str],
) -> Doubt:
    """Return the doubt about an item of a block, of which these tags are wrong."""
    names, p, has = model.classes_.tolist(), block.scores[i], (block.Y[i] > 0) & block.known[i]
    (name,) = model.ids_at(block.positions[i : i + 1])
    go = sorted(np.flatnonzero(wrong & has).tolist(), key=lambda j: p[j])
    come = sorted(np.flatnonzero(wrong & ~has).tolist(), key=lambda j: -p[j])
    near = model.neighbors_of(int(block.positions[i]))
    return Doubt(
        name,
        max(value, 0.0),
        tuple(names[j] for j in np.flatnonzero(has)),
        tuple(names[j] for j in go),
        tuple(names[j] for j in come),
        {names[j]: round(float(p[j]), 6) for j in (*go, *come)},
        tuple(_with_text(neighbor, texts) for neighbor in near),
        texts.get(name),
    )


def _with_text(neighbor: Neighbor, texts: Mapping[Hashable, str]) -> Neighbor:
    return Neighbor(neighbor.id, neighbor.distance, neighbor.labels, texts.get(neighbor.id))
