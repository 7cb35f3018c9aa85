"""One dense item at a time: asked about, then learnt, with little Python around the loops.

What :class:`~tagstream.learners.oml.OML` does with a block of rows takes some hundred calls of
Python around a dozen compiled loops, whose price does not depend on the size of the block.  For a
single row it is most of the time.  Here two compiled functions call the same loops on the same
arrays, one to ask about an item and one to learn it: results and state are those of a block of one
row, to the last bit.  The arrays of the learner are handed to them as one object (:class:`State`),
which is made again when one of them was replaced; those of the store, which move with every item,
one by one.

It serves the plain case only (:meth:`Single.ready`): dense rows in a store of this process, a head,
the exact step, labels that are known and come at once.  For all else there is the block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import is_not
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.experimental import structref

from tagstream.checks import LARGEST_VALUE
from tagstream.core.compilation import compiled, inlined
from tagstream.core.products import project_rows
from tagstream.core.search import pack, scan_one
from tagstream.core.similarity import find_similar
from tagstream.engine.embedding import Embedding
from tagstream.evidence.copies import blend_items, learn_copies
from tagstream.evidence.head import pass_items, stored_labels
from tagstream.evidence.honest import entries_of
from tagstream.evidence.scoring import NEAR, Belief
from tagstream.metric.rounds import run_rounds
from tagstream.metric.space import Space
from tagstream.store.local import LocalStore

__all__ = ["Single"]

Vector = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Maybe = Any  # an array, or None

_NOTHING = np.empty((0, 0), np.uint8)

FIELDS = (
    # of the embedding, and one over the deviations of the columns
    "P", "c", "codec", "V", "columns",
    # of the head: weights, aims, history, votes
    "w", "A", "d", "a", "hits", "sizes", "n", "missing", "t", "last", "recent", "longer",
    "votes", "near_votes", "half_log",
    # of the fast map and of the copies
    "D", "added", "s", "shift", "factor", "rho", "fresh", "K",
    # what is found out about an item, which stays until it is learnt: in label space (1, q), its
    # code (1, d), its scaled row (1, p), positions of the nearest stored items by code (1, 30), and
    # of the latest by row (1, 10), of the most similar one, and how similar that is (1,)
    "z", "code", "scaled", "found", "near", "copy_of", "similarity",
)  # fmt: skip


@structref.register
class _StateType(types.StructRef):
    """The type of :class:`State` in compiled code: its fields have the types of the arrays."""


class State(structref.StructRefProxy):
    """The arrays of a learner that compiled functions work on, held by reference.

    To hand them over one by one takes longer than most of the work that is done with them.
    """


structref.define_boxing(_StateType, State)  # type: ignore[no-untyped-call]
structref.define_constructor(State, _StateType, FIELDS)  # type: ignore[no-untyped-call]


@compiled
def _make_state(*arrays: Any) -> Any:
    """Return arrays as one object, in the order of ``FIELDS``."""
    return State(*arrays)  # type: ignore[no-untyped-call]


@inlined
def _nearest(
    stored: Singles, panels: Singles, skip: int, query: Singles, best: Vector, found: Ints
) -> None:
    """Write the positions of the nearest of all stored rows."""
    first: Any = np.int64(0)  # for a constant, all would be compiled once more
    for a in range(found.shape[0]):
        best[a], found[a] = np.inf, -1
    scan_one(stored, panels, skip, query, first, stored.shape[0], best, found)


@inlined
def _weigh(
    s: Any,
    learning: bool,
    most: int,
    inputs: Singles,
    labels: Bytes,
    kept: Maybe,
    gone: Maybe,
    Y: Bytes,
    first: int,
    p: Vector,
) -> None:
    """Have the head score the item or learn it, see :func:`tagstream.evidence.head.pass_items`."""
    pass_items(
        learning, most, s.w, s.A, s.d, s.a, s.hits, s.sizes, s.n, s.missing, s.t, s.last, s.recent,
        s.longer, None, None, None, None, None, None, None, None, s.D, s.added, s.s, None, None,
        None, s.shift, s.factor, s.rho, None, None, None, None, None, inputs, None, None, None,
        np.empty(s.D.shape[0]), s.fresh, s.found, s.near, labels, None, s.z, None, None, s.votes,
        s.near_votes, s.half_log, kept, gone, Y, first, p, None, None,
    )  # fmt: skip


@compiled
def _ask(
    s: Any,
    row: Singles,
    inputs: Singles,
    rows: Singles,
    codes: Singles,
    panels: Singles,
    skip: int,
    labels: Bytes,
    corrected: Bools,
    recent: Singles,
    recent_panels: Singles,
    recent_skip: int,
    nothing: Bytes,
    most: int,
    looks: bool,
    p: Vector,
) -> None:
    """Write the probabilities ``p`` (1, q) of the item ``row`` (1, p), which P takes as ``inputs``.

    If one ``looks``, what there is to know about it is found out first.  No more than ``most``
    neighbours vote; if it is 0, nothing is written.
    """
    if looks:
        z, code, scaled, found, near = s.z, s.code, s.scaled, s.found, s.near
        d, n, m = code.shape[1], found.shape[1], near.shape[1]
        x, none, wide = np.empty((1, inputs.shape[1])), np.empty(d), np.empty((1, d))
        best, candidates = np.empty(max(n, m) + 1), np.empty((1, n + 1), np.int64)
        for k in range(x.shape[1]):
            x[0, k] = inputs[0, k]
        project_rows(x, s.P, s.c, z)
        for j in range(z.shape[1]):
            z[0, j] = max(min(z[0, j], LARGEST_VALUE), -LARGEST_VALUE)
        for j in range(d):
            none[j] = 0.0
        project_rows(z, s.codec, none, wide)
        for j in range(d):
            code[0, j] = max(min(wide[0, j], LARGEST_VALUE), -LARGEST_VALUE)
        _nearest(codes, panels, skip, code[0], best[:n], found[0])
        for k in range(row.shape[1]):
            scaled[0, k] = np.float64(row[0, k]) * s.columns[k]
        _nearest(recent, recent_panels, recent_skip, scaled[0], best[:m], near[0])
        for a in range(m):
            if near[0, a] >= 0:
                near[0, a] += rows.shape[0] - recent.shape[0]
        for a in range(n):
            candidates[0, a] = found[0, a]
        candidates[0, n] = near[0, 0]
        s.copy_of[0], s.similarity[0] = -1, -np.inf
        find_similar(rows, row, s.columns, candidates, best, s.copy_of, s.similarity)
    if most:
        first: Any = np.int64(0)
        _weigh(s, first != 0, most, inputs, labels, None, None, nothing, first, p)
        blend_items(s.K, s.copy_of, s.similarity, corrected, labels, nothing, p, np.empty(1))


@compiled
def _learn(
    s: Any,
    row: Singles,
    inputs: Singles,
    rows: Singles,
    codes: Singles,
    panels: Singles,
    at: int,
    labels: Bytes,
    corrected: Bools,
    recent: Singles,
    recent_panels: Singles,
    recent_at: int,
    nothing: Bytes,
    most: int,
    step_max: float,
    window: int,
    kept: Maybe,
    gone: Maybe,
    Y: Bytes,
    p: Vector,
) -> tuple[float, float, bool]:
    """Learn the item that was looked at, with labels ``Y`` (1, q); write what ``p`` (1, q) it had.

    Its own place is the last in all that is stored, ``at`` in panels, and is written here.  With a
    window, ``kept`` (2,) and ``gone`` (1, q) are room to work in.  Return loss and step of the
    round, and whether V could not move.
    """
    zero: Any = np.int64(0)
    n, q = rows.shape[0] - 1, Y.shape[1]
    theirs = np.empty((1, q), np.uint8)
    stored_labels(labels, None, s.found[0, 0], theirs)
    for k in range(row.shape[1]):
        rows[n, k] = row[0, k]
        recent[recent.shape[0] - 1, k] = s.scaled[0, k]
    for k in range(codes.shape[1]):
        codes[n, k] = s.code[0, k]
    for b in range(labels.shape[1]):
        labels[n, b] = 0
    for j in range(q):
        labels[n, j >> 3] |= Y[0, j] << (7 - (j & 7))
    pack(s.code, panels, at)
    pack(s.scaled, recent_panels, recent_at)
    losses, steps, degenerate = np.empty(1), np.empty(1), np.empty(1, np.bool_)
    alone = np.empty(1, np.bool_)
    alone[0] = False
    run_rounds(
        s.z, Y, theirs, np.empty((0, 0), np.bool_), alone, s.V, None, zero != 0,
        0.0, step_max, losses, steps, degenerate,
    )  # fmt: skip
    if kept is not None:
        kept[0], kept[1] = max(n - window, 0), max(n + 1 - window, 0)
    _weigh(s, zero == 0, most, inputs, labels, kept, gone, Y, zero, p)
    learn_copies(
        s.K, s.copy_of, s.similarity, corrected, labels, nothing, p, Y, np.empty((0, 0), np.bool_)
    )
    return losses[0], steps[0], degenerate[0]


class Single:
    """The short way of one learner.

    It keeps the state that it handed over last, and what it found out about the last item: in a
    stream the item that is asked about is learnt next.  It is for one thread at a time.
    """

    def __init__(self, embedding: Embedding, store: LocalStore, belief: Belief) -> None:
        self.store, self._embedding, self._belief = store, embedding, belief
        self._state: State | None = None  # None unless this is the plain case
        self._parts: tuple[Any, ...] = (None,) * 9  # that it was made of
        self._shape: tuple[int, ...] = ()
        self._looked: tuple[npt.NDArray[Any], ...] = ()
        self._asked: tuple[bytes, int, int] | None = None  # bits of the item, seen, stored
        self._inputs = np.empty((0, 0), np.float32)
        self._kept, self._gone = np.empty(2, np.int64), _NOTHING

    def ready(self, *, learning: bool) -> bool:
        """Tell whether this is the plain case, with enough stored, and get ready for it."""
        store, belief = self.store, self._belief
        if belief.plain or belief.naming is not None or not store.plain:
            return False
        if learning and belief.watches:
            return False
        if len(store) <= belief.n_votes or len(belief.latest) < NEAR:
            return False
        space, head, fast = self._embedding.space, belief.head, belief.fast
        if learning:
            fast.own()
        parts = (
            self._embedding.projection, space.codec, space.V, belief.factor, head.weights,
            head.aims, head.now, fast.state, belief.copies.K,
        )  # fmt: skip
        if any(map(is_not, parts, self._parts)):
            self._renew(parts)
        return self._state is not None

    def _renew(self, parts: tuple[Any, ...]) -> None:
        """Make the state of other parts than before, if it is one of the plain case."""
        embedding, belief = self._embedding, self._belief
        project, head, fast = embedding.projection, belief.head, belief.fast.state
        if project is not self._parts[0]:
            self._asked = None
        self._state, self._parts = None, parts
        if (
            project is None
            or project.columns is not None
            or embedding.reduction is not None
            or type(embedding.space) is not Space
            or belief.lag
            or not project.P.shape[1]
        ):
            return
        codec, V = embedding.space.codec, embedding.space.V
        q, d, p = *codec.shape, len(belief.factor)
        if (q, d) != self._shape:
            self._shape, self._asked = (q, d), None
            self._gone = np.empty((1, q), np.uint8)
            self._looked = (
                np.empty((1, q)), np.empty((1, d), np.float32), np.empty((1, p), np.float32),
                np.empty((1, belief.n_votes), np.int64), np.empty((1, NEAR), np.int64),
                np.empty(1, np.int64), np.empty(1),
            )  # fmt: skip
        self._state = _make_state(
            project.P, project.c, codec, V, belief.factor, *head.weights, *head.aims, *head.now,
            head.sizes, head.near_sizes, head.half_log, fast.D, fast.added, fast.s, fast.shift,
            fast.factor, fast.rho, fast.fresh, belief.copies.K, *self._looked,
        )  # fmt: skip

    def score(self, row: Singles) -> Vector:
        """Return the probabilities of an item (1, p), an array of shape (1, q)."""
        return self._ask(_own(row), self._belief.head.n_voting(learning=False))

    def _ask(self, row: Singles, most: int) -> Vector:
        """Find out about an item, unless it was the last one; return its probabilities, if any."""
        project, store, latest = self._embedding.projection, self.store, self._belief.latest
        asked = row.tobytes(), store.facts.n_seen, len(store)
        looks, p = asked != self._asked, np.empty((1, self._shape[0]))
        if looks:
            assert project is not None
            self._asked = None  # until all is found out
            # Of a copy: what is kept must not change with the array that it was given in.
            self._inputs = project.inputs(row.copy())
        if looks or most:
            _ask(
                self._state, row, self._inputs, *store.arrays(), latest.live, *latest.panels,
                _NOTHING, most, looks, p,
            )  # fmt: skip
            self._asked = asked
        return p

    def learn(
        self, row: Singles, Y: Bytes, ids: Sequence[Hashable] | None, step_max: float
    ) -> None:
        """Store an item with its labels, and learn it; what leaves the window stays for now."""
        row, store, latest = _own(row), self.store, self._belief.latest
        self._ask(row, 0)
        at, latest_at = store.make_room(ids), latest.make_room()
        rows, codes, panels, _, labels, corrected = store.arrays()
        window = store.window
        kept, gone = (None, None) if window is None else (self._kept, self._gone)
        p = np.empty((1, self._shape[0]))
        loss, step, degenerate = _learn(
            self._state, row, self._inputs, rows, codes, panels, at, labels, corrected, latest.live,
            latest.panels[0], latest_at, _NOTHING, self._belief.n_votes, step_max, window or 0,
            kept, gone, _own(Y), p,
        )  # fmt: skip
        self._belief.honest_next.add(entries_of(p, Y))
        self._embedding.space.note([loss], [step], [degenerate])
        self._belief.trim(store)


def _own(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of the one kind that functions are compiled for, whatever it was cut from."""
    return array if array.flags.carray else array.copy()
