"""One dense item at a time: asked about, then learnt, with little Python around the loops.

What :class:`~tagstream.models.oml.OML` does with a block of rows takes some hundred calls of Python
around a dozen compiled loops, whose price does not depend on the size of the block.  For a single
row it is most of the time.  Here the same loops are called on the same arrays without what only
blocks need: results and state are those of a block of one row, to the last bit.  What comes before
the head is one compiled function; to put the head into one as well would save another tenth, and
take as long to compile as all the rest.

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
from tagstream.fastmap import Inputs, inputs_of
from tagstream.head import Evidence
from tagstream.kernels import compiled, inner, project_rows, scan_one
from tagstream.labels import Labels
from tagstream.memory import LocalStore, Store
from tagstream.space import Space

__all__ = ["Asked", "learn", "look", "plain_case", "score"]

Vector = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_NOTHING, _NO_MASK = np.empty((0, 0), np.uint8), np.empty((0, 0), np.bool_)
_NOT_ALONE = np.zeros(1, np.bool_)


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


@inner
def _nearest(
    stored: Singles,
    panels: Singles,
    skip: int,
    query: Singles,
    first: int,
    best: Vector,
    found: Ints,
) -> None:
    """Write the positions of the nearest of all stored rows from ``first`` on."""
    for a in range(found.shape[0]):
        best[a], found[a] = np.inf, -1
    scan_one(stored, panels, skip, query, first, stored.shape[0], best, found)


@compiled
def _look(
    row: Singles,
    inputs: Vector,
    P: Vector,
    c: Vector,
    codec: Vector,
    none: Vector,
    factor: Vector,
    rows: Singles,
    codes: Singles,
    panels: Singles,
    skip: int,
    recent: Singles,
    recent_panels: Singles,
    recent_skip: int,
    first: int,
    wide: Vector,
    best: Vector,
    candidates: Ints,
    z: Vector,
    code: Singles,
    scaled: Singles,
    found: Ints,
    near: Ints,
    copy_of: Ints,
    similarity: Vector,
) -> None:
    """Write what there is to know about the item ``row`` (1, p), which P takes as ``inputs``.

    The stored rows, their codes and the latest ones scaled are followed by room to work in and by
    what is written, see :class:`Looked`; ``none`` is zeros.  ``first`` is 0: as a constant it would
    have everything compiled once more.
    """
    project_rows(inputs, P, c, z)
    for j in range(z.shape[1]):
        z[0, j] = max(min(z[0, j], LARGEST_VALUE), -LARGEST_VALUE)
    project_rows(z, codec, none, wide)
    for j in range(code.shape[1]):
        code[0, j] = max(min(wide[0, j], LARGEST_VALUE), -LARGEST_VALUE)
    n = found.shape[1]
    _nearest(codes, panels, skip, code[0], first, best[:n], found[0])
    for k in range(row.shape[1]):
        scaled[0, k] = np.float64(row[0, k]) * factor[k]
    _nearest(recent, recent_panels, recent_skip, scaled[0], first, best[: near.shape[1]], near[0])
    for a in range(n):
        candidates[0, a] = found[0, a]
    for a in range(near.shape[1]):
        if near[0, a] >= 0:
            near[0, a] += rows.shape[0] - recent.shape[0]
    candidates[0, n] = near[0, 0]
    copy_of[0], similarity[0] = -1, -np.inf
    find_similar(rows, row, factor, candidates, best, copy_of, similarity)


class Asked(NamedTuple):
    """An item that was looked at, and when: in a stream it is learnt next."""

    key: tuple[Hashable, int, int]  # the bits of its row, examples seen, examples stored
    projection: object  # by which it was looked at
    inputs: Inputs  # what P takes
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
    recent, inputs, codec = belief.recent, project.inputs(row), embedding.space.codec
    looked = Looked(
        np.empty((1, len(project.c))),
        np.empty((1, codec.shape[1]), np.float32),
        np.empty(row.shape, np.float32),
        np.empty((1, belief.n_votes), np.int64),
        np.empty((1, min(NEAR, len(recent))), np.int64),
        np.empty(1, np.int64),
        np.empty(1),
    )
    arrays: Any = (
        row, inputs.astype(np.float64), project.P, project.c, codec, np.zeros(codec.shape[1]),
        belief.factor, *store.arrays(), recent.live, *recent.panels, 0,
        np.empty((1, codec.shape[1])), np.empty(max(belief.n_votes, NEAR) + 1),
        np.empty((1, belief.n_votes + 1), np.int64), *looked,
    )  # fmt: skip
    _look(*arrays)
    return Asked(key, project, inputs_of(inputs), looked)


def score(store: LocalStore, belief: Belief, asked: Asked) -> Vector:
    """Return the probabilities of an item, (1, q)."""
    looked, (_, labels, known, corrected) = asked.looked, store.neighbors()
    p = belief.head.score(_evidence(asked, labels), belief.fast)
    blend_items(
        belief.copies.K, looked.copy_of, looked.similarity, corrected, labels, known, p, np.empty(1)
    )
    return p


def _evidence(asked: Asked, labels: Bytes) -> Evidence:
    z, _, _, found, near, _, _ = asked.looked
    return Evidence(found, near, labels, _NOTHING, z, asked.inputs)


def learn(
    embedding: Embedding,
    store: LocalStore,
    belief: Belief,
    row: Singles,
    labels: Labels,
    ids: Sequence[Hashable] | None,
    asked: Asked,
    step_max: float,
) -> None:
    """Store an item with its labels, and learn it; what leaves the window stays for now."""
    n, window, kept = len(store), store.window, None
    if window is not None:
        kept = np.array([max(n - window, 0), max(n + 1 - window, 0)], np.int64)
    looked = asked.looked
    assert belief.recent is not None
    theirs = store.labels(looked.found[:, 0])
    store.append(row, labels, ids, looked.codes)
    belief.recent.append(looked.scaled)
    embedding.space.play(looked.Z, labels, theirs, _NOT_ALONE, step_max=step_max)
    _, packed, known, corrected = store.neighbors()
    p = belief.head.learn(_evidence(asked, packed), belief.fast, labels.Y, None, kept)
    learn_copies(
        belief.copies.K, looked.copy_of, looked.similarity, corrected, packed, known, p, labels.Y,
        _NO_MASK,
    )  # fmt: skip
    belief.trim(store)
