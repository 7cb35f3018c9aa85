"""One dense item at a time: asked about, then learnt, in a few compiled calls.

What :class:`~tagstream.models.oml.OML` does with a block of rows takes some hundred calls of Python
around a dozen compiled loops, whose price does not depend on the size of the block.  For a single
row it is most of the time.  Here the same loops are called with nothing in between, on the same
arrays: results and state are those of a block of one row, to the last bit.

It serves the plain case only (:func:`plain_case`): dense rows in a store of this process, a head,
the exact step, labels that are known and come at once.  For all else there is the block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.belief import NEAR, Belief
from tagstream.checks import LARGEST_VALUE, bits_of
from tagstream.copies import blend_items, find_similar, learn_copies
from tagstream.embedding import Embedding
from tagstream.fastmap import inputs_of
from tagstream.head import Evidence
from tagstream.kernels import compiled, embed, pack, scan_one
from tagstream.memory import Arrays, LocalStore, Store
from tagstream.metric import run_rounds
from tagstream.space import Space

__all__ = ["Asked", "learn", "look", "plain_case", "score"]

Vector = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

EXACT = 0  # of the steps of a round

_NOTHING, _NO_MASK = np.empty((0, 0), np.uint8), np.empty((0, 0), np.bool_)


class Looked(NamedTuple):
    """What is found out about one item.

    Attributes
    ----------
    Z, codes : arrays of shape (1, q) and (1, d)
        The item in label space, and its code.
    scaled : array of shape (1, p)
        Its row, columns divided by their deviation.
    found, near : int arrays of shape (1, 30) and (1, 10)
        Positions of the nearest stored items, by code, and of the latest by row.
    copy_of, similarity : arrays of shape (1,)
        Position of the stored item that is most similar, and how similar it is.
    """

    Z: Vector
    codes: Singles
    scaled: Singles
    found: Ints
    near: Ints
    copy_of: Ints
    similarity: Vector


@compiled
def _nearest(stored: Singles, panels: Singles, skip: int, query: Singles, found: Ints) -> None:
    """Write the positions of the nearest of all stored rows."""
    best = np.full(found.shape[0], np.inf)
    for a in range(found.shape[0]):
        found[a] = -1
    scan_one(stored, panels, skip, query, 0, stored.shape[0], best, found)


@compiled
def _append(row: Singles, rows: Singles) -> None:
    """Write ``row`` (1, p) into the last place."""
    for k in range(row.shape[1]):
        rows[rows.shape[0] - 1, k] = row[0, k]


@compiled
def _look(
    row: Singles,
    inputs: Singles,
    P: npt.NDArray[np.floating[Any]],
    c: Vector,
    codec: Vector,
    factor: Vector,
    rows: Singles,
    codes: Singles,
    panels: Singles,
    skip: int,
    recent: Singles,
    recent_panels: Singles,
    recent_skip: int,
    z: Vector,
    code: Singles,
    scaled: Singles,
    found: Ints,
    near: Ints,
    copy_of: Ints,
    similarity: Vector,
) -> None:
    """Write what there is to know about the item ``row`` (1, p), which P takes as ``inputs``.

    The stored rows, their codes and the latest ones scaled are followed by what is written, see
    :class:`Looked`.
    """
    embed(inputs, P, c, codec, LARGEST_VALUE, z, code)
    _nearest(codes, panels, skip, code[0], found[0])
    for k in range(row.shape[1]):
        scaled[0, k] = np.float64(row[0, k]) * factor[k]
    _nearest(recent, recent_panels, recent_skip, scaled[0], near[0])
    n = found.shape[1]
    candidates = np.empty((1, n + 1), np.int64)
    for a in range(n):
        candidates[0, a] = found[0, a]
    for a in range(near.shape[1]):
        if near[0, a] >= 0:
            near[0, a] += rows.shape[0] - recent.shape[0]
    candidates[0, n] = near[0, 0]
    copy_of[0], similarity[0] = -1, -np.inf
    none, nowhere, nothing = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
    find_similar(
        none, nowhere, nothing, rows, none, nowhere, nothing, row,
        factor, candidates, copy_of, similarity,
    )  # fmt: skip


@compiled
def _play(
    row: Singles,
    Y: Bytes,
    z: Vector,
    code: Singles,
    scaled: Singles,
    found: Ints,
    rows: Singles,
    codes: Singles,
    panels: Singles,
    skip: int,
    labels: Bytes,
    recent: Singles,
    recent_panels: Singles,
    recent_skip: int,
    V: Vector,
    step_max: float,
    losses: Vector,
    steps: Vector,
    degenerate: Bools,
) -> None:
    """Write the item where there is room for it, at the end of all, and play its round."""
    _append(row, rows)
    _append(code, codes)
    _append(scaled, recent)
    pack(code, panels, skip + codes.shape[0] - 1)
    pack(scaled, recent_panels, recent_skip + recent.shape[0] - 1)
    q, end, nearest = Y.shape[1], rows.shape[0] - 1, found[0, 0]
    theirs = np.empty((1, q), np.uint8)
    for b in range(labels.shape[1]):
        have = 0
        for j in range(8 * b, min(8 * b + 8, q)):
            have |= Y[0, j] << (7 - (j & 7))
            theirs[0, j] = labels[nearest, b] >> (7 - (j & 7)) & 1
        labels[end, b] = have
    nobody, everything = np.zeros(1, np.bool_), np.empty((0, 0), np.bool_)
    run_rounds(
        z, Y, theirs, everything, nobody, V, EXACT, False, 0.0, step_max, losses, steps, degenerate
    )


class Asked(NamedTuple):
    """An item that was looked at, and when: in a stream it is learnt next."""

    key: tuple[Hashable, int, int]  # the bits of its row, examples seen, examples stored
    projection: object  # by which it was looked at
    inputs: Singles  # what P takes
    looked: Looked


def plain_case(
    embedding: Embedding, store: Store, belief: Belief | None
) -> tuple[LocalStore, Belief] | None:
    """Return store and belief if this is the plain case, and enough is stored; None if not."""
    project = embedding.projection
    if (
        belief is not None
        and not belief.lag
        and project is not None
        and project.columns is None
        and embedding.reduction is None
        and type(embedding.space) is Space
        and type(store) is LocalStore
        and store.plain
        and len(store) > belief.n_votes
        and store.n_labels > 0
    ):
        return store, belief
    return None


def look(
    embedding: Embedding, store: LocalStore, belief: Belief, row: Singles, last: Asked | None
) -> Asked:
    """Find out what there is to know about an item (1, p), unless it was the ``last`` one."""
    project, key = embedding.projection, (bits_of(row), store.n_seen, len(store))
    if last is not None and last.projection is project and last.key == key:
        return last
    assert project is not None
    assert belief.recent is not None
    codec, recent = embedding.space.codec, belief.recent
    inputs = project.inputs(row)
    looked = Looked(
        np.empty((1, len(project.c))),
        np.empty((1, codec.shape[1]), np.float32),
        np.empty(row.shape, np.float32),
        np.empty((1, belief.n_votes), np.int64),
        np.empty((1, min(NEAR, len(recent))), np.int64),
        np.empty(1, np.int64),
        np.empty(1),
    )
    stored = store.arrays()
    arrays: Any = (
        row, inputs, project.P, project.c, codec, belief.factor, *stored[:4], recent.live,
        *recent.panels, *looked,
    )  # fmt: skip
    _look(*arrays)
    return Asked(key, project, inputs, looked)


def score(store: LocalStore, belief: Belief, asked: Asked) -> Vector:
    """Return the probabilities of an item, (1, q)."""
    looked, stored = asked.looked, store.arrays()
    p = belief.head.score(_evidence(asked, stored), belief.fast)
    blend_items(
        belief.copies.K, looked.copy_of, looked.similarity, stored.corrected, stored.labels,
        _NOTHING, p, np.empty(1),
    )  # fmt: skip
    return p


def _evidence(asked: Asked, stored: Arrays) -> Evidence:
    z, _, _, found, near, _, _ = asked.looked
    return Evidence(found, near, stored.labels, _NOTHING, z, inputs_of(asked.inputs))


def learn(
    embedding: Embedding,
    store: LocalStore,
    belief: Belief,
    row: Singles,
    Y: Bytes,
    ids: Sequence[Hashable] | None,
    asked: Asked,
    step_max: float,
) -> None:
    """Store an item with labels Y (1, q), and learn it; what leaves the window stays for now."""
    n, window, kept = len(store), store.window, None
    if window is not None:
        kept = np.array([max(n - window, 0), max(n + 1 - window, 0)], np.int64)
    looked, recent, space = asked.looked, belief.recent, embedding.space
    assert recent is not None
    recent.room()
    stored = store.room(ids)
    losses, steps, degenerate = np.empty(1), np.empty(1), np.empty(1, np.bool_)
    arrays: Any = (
        row, Y, *looked[:4], *stored[:-1], recent.live, *recent.panels, space.V, step_max,
        losses, steps, degenerate,
    )  # fmt: skip
    _play(*arrays)
    space.note(losses, steps, degenerate)
    p = belief.head.learn(_evidence(asked, stored), belief.fast, Y, None, kept)
    learn_copies(
        belief.copies.K, looked.copy_of, looked.similarity, stored.corrected, stored.labels,
        _NOTHING, p, Y, _NO_MASK,
    )  # fmt: skip
    belief.trim(store)
