"""What is asked about the examples of a store, whichever machine holds them.

Each function asks the pieces of the store, and joins their answers.  The answers are the same,
however the store is cut into pieces: distances are exact, with ties going to the older example, so
the best of the best is the best of all.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from tagstream.checks import Digests, Distances, Positions, Rows, Singles
from tagstream.core.inputs import inputs_of
from tagstream.core.products import gather_votes
from tagstream.core.similarity import Nearest, most_similar
from tagstream.store.protocol import Piece, Store

__all__ = [
    "block_size",
    "contents",
    "corrected_twins",
    "first_seen",
    "merged",
    "n_bytes",
    "nearest_codes",
    "nearest_rows",
    "position_of",
    "positions_named",
    "positions_of",
    "similar",
    "votes",
]

Found = tuple[Distances, Positions]
T = TypeVar("T")


# ---------------------------------------------------------------------- nearest
def nearest_rows(
    store: Store, queries: Rows, k: int, lo: Positions | None = None, hi: Positions | None = None
) -> Found:
    """Return squared distances and positions, (m, k), of the nearest rows of each query.

    Sorted by distance, then by age, older first; infinity and −1 where fewer than ``k`` rows are
    seen.  Query i sees the positions ``lo[i] <= position < hi[i]``.
    """
    return _nearest(store, False, queries, k, lo, hi)


def nearest_codes(
    store: Store, queries: Singles, k: int, lo: Positions | None = None, hi: Positions | None = None
) -> Found:
    """Return the same among the codes."""
    return _nearest(store, True, queries, k, lo, hi)


def _nearest(
    store: Store, codes: bool, queries: Any, k: int, lo: Positions | None, hi: Positions | None
) -> Found:
    if not queries.shape[0]:
        return np.empty((0, k)), np.empty((0, k), np.int64)
    seen = slice(0 if lo is None else int(lo.min()), None if hi is None else int(hi.max()))
    return merged(store.ask(_search, codes, queries, k, lo, hi, among=seen), k)


def merged(found: list[Found], k: int) -> Found:
    """Return the k nearest of what was found in several places."""
    if len(found) == 1:
        return found[0]
    squares, at = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    order = np.lexsort((at, squares), axis=1)[:, :k]
    return np.take_along_axis(squares, order, 1), np.take_along_axis(at, order, 1)


def _search(
    pieces: list[Piece],
    codes: bool,
    queries: Any,
    k: int,
    lo: Positions | None,
    hi: Positions | None,
) -> Found:
    """Search one piece after the other, oldest first; what was found bounds what follows."""
    if pieces and pieces[0].whole:
        nearest: Found = _stored(pieces[0], codes).search(queries, k, lo, hi)
        return nearest
    m = queries.shape[0]
    best, found = np.full((m, k), np.inf), np.full((m, k), -1, np.int64)
    for piece in pieces:
        shift, n = piece.offset - piece.start, len(piece.store)
        first = np.full(m, piece.start)
        if lo is not None:
            first = np.clip(lo - shift, piece.start, n)
        last = np.full(m, n) if hi is None else np.maximum(np.clip(hi - shift, 0, n), first)
        # Positions found before are below −1 meanwhile, to be told from those of this piece.
        found = np.where(found >= 0, -2 - found, found)
        search = _stored(piece, codes).search
        best, found = search(queries, k, first, last, (best, found))
        found = np.where(found >= 0, found + shift, np.where(found < -1, -2 - found, -1))
    return best, found


def _stored(piece: Piece, codes: bool) -> Any:
    """Return the codes or the rows of a piece."""
    if not codes:
        return piece.store.rows
    assert piece.store.codes is not None
    return piece.store.codes


# ---------------------------------------------------------------------- most similar
def similar(store: Store, rows: Rows, candidates: Positions, factor: Distances | None) -> Nearest:
    """Return which of its candidates (m, c) is most similar to each row, the newest of equals.

    See :func:`tagstream.core.similarity.most_similar`.
    """
    answers = store.ask(_similar, rows, candidates, factor, among=candidates)
    if len(answers) == 1:
        return answers[0]
    best, alike = np.full(len(candidates), -1, np.int64), np.full(len(candidates), -np.inf)
    for answer in answers:
        _keep_better(best, alike, answer, np.arange(len(candidates)))
    return Nearest(best, alike)


def _similar(pieces: list[Piece], rows: Rows, candidates: Positions, factor: Any) -> Nearest:
    if pieces and pieces[0].whole:
        return most_similar(pieces[0].store.rows.inputs, inputs_of(rows), candidates, factor)
    best, alike = np.full(len(candidates), -1, np.int64), np.full(len(candidates), -np.inf)
    for store, start, offset, _ in pieces:
        mine = (candidates >= offset) & (candidates < offset + len(store) - start)
        who = np.flatnonzero(mine.any(axis=1))
        if len(who):
            there = np.where(mine[who], candidates[who] - offset + start, -1)
            at, far = most_similar(store.rows.inputs, inputs_of(rows[who]), there, factor)
            _keep_better(best, alike, Nearest(np.where(at < 0, -1, at + offset - start), far), who)
    return Nearest(best, alike)


def _keep_better(best: Positions, alike: Distances, other: Nearest, who: Positions) -> None:
    """Put what is more similar, or as similar and newer, in the place of what was found before."""
    at, far = other
    better = (at >= 0) & ((far > alike[who]) | ((far == alike[who]) & (at > best[who])))
    best[who[better]], alike[who[better]] = at[better], far[better]


def corrected_twins(store: Store, rows: Rows, lo: Positions | None = None) -> Positions | None:
    """Return where the example is that equals each row and was corrected last.

    −1 where there is none; None if no example was corrected.  Row i sees the positions from
    ``lo[i]`` on, by default all.
    """
    if not store.facts.corrected:
        return None
    if lo is None:
        lo = np.zeros(rows.shape[0], np.int64)
    best: Positions = np.full(rows.shape[0], -1, np.int64)
    newest: Positions = np.full(rows.shape[0], -1, np.int64)
    for at, which in store.ask(_twins, rows, lo):
        better = which > newest
        best[better], newest[better] = at[better], which[better]
    return best


def _twins(pieces: list[Piece], rows: Rows, lo: Positions) -> tuple[Positions, Positions]:
    """Return where the twins of rows are, and which correction was their last; −1 for none."""
    best: Positions = np.full(rows.shape[0], -1, np.int64)
    newest: Positions = np.full(rows.shape[0], -1, np.int64)
    for store, start, offset, _ in pieces:
        if not store.corrections.any:
            continue
        at = store.corrections.twins(rows, store.rows.live, np.maximum(lo - offset, 0) + start)
        which = np.where(at >= 0, store.corrections.which(np.maximum(at, 0)), -1)
        better = which > newest
        best[better], newest[better] = at[better] + offset - start, which[better]
    return best, newest


def votes(store: Store, found: Positions) -> Distances:
    """Return, for neighbours (m, k), the share of each label among those that know it."""
    out = np.empty((len(found), store.facts.n_labels))
    (rows,), labels, known, _ = store.neighbors(found)
    gather_votes(rows, labels, known, out)
    return out


# ---------------------------------------------------------------------- where things are
def position_of(store: Store, id: Hashable) -> int | None:
    """Return where the newest example of that name is stored; None if it is not."""
    found = max(store.ask(_position_of, id), default=-1)
    return None if found < 0 else found


def _position_of(pieces: list[Piece], id: Hashable) -> int:
    for store, start, offset, _ in reversed(pieces):
        at = store.names.position_of(id)
        if at is not None and at >= start:
            return at + offset - start
    return -1


def positions_named(store: Store, ids: Sequence[Hashable]) -> Positions:
    """Return where the newest examples of some names are stored, (m,); −1 where there is none."""
    found: Positions = np.full(len(ids), -1)
    for some in store.ask(_positions_named, ids):
        found = np.maximum(found, some)
    return found


def _positions_named(pieces: list[Piece], ids: Sequence[Hashable]) -> Positions:
    found: Positions = np.full(len(ids), -1)
    for store, start, offset, _ in pieces:
        places = map(store.names.position_of, ids)
        at = np.array([-1 if place is None else place for place in places], np.int64)
        found = np.where(at >= start, at + offset - start, found)
    return found


def positions_of(store: Store, numbers: Positions) -> Positions:
    """Return where examples are stored, given by their numbers; −1 if they are not."""
    n, facts = len(store), store.facts
    if not facts.gaps:
        at = numbers - (facts.n_seen - n)
        return np.where((at >= 0) & (at < n), at, -1)
    found: Positions = np.full(len(numbers), -1)
    for some in store.ask(_positions_of, numbers):
        found = np.maximum(found, some)
    return found


def _positions_of(pieces: list[Piece], numbers: Positions) -> Positions:
    found: Positions = np.full(len(numbers), -1)
    for store, start, offset, _ in pieces:
        at = store.names.positions_of(numbers)
        found = np.where(at >= start, at + offset - start, found)
    return found


def contents(store: Store) -> Digests:
    """Return a digest of each stored row; see :mod:`tagstream.store.contents`."""
    parts = sorted((part for parts in store.ask(_contents) for part in parts), key=lambda p: p[0])
    return np.concatenate([np.empty(0, np.uint64), *(digests for _, digests in parts)])


def _contents(pieces: list[Piece]) -> list[tuple[int, Digests]]:
    return [(offset, store.contents()[start:]) for store, start, offset, _ in pieces]


def n_bytes(store: Store) -> int:
    """Return the bytes held, spare room included."""
    return sum(store.ask(_n_bytes))


def _n_bytes(pieces: list[Piece]) -> int:
    return sum(piece.store.nbytes for piece in pieces)


# ---------------------------------------------------------------------- the window
def block_size(store: Store, most: int) -> int:
    """Return how many examples may be appended at a time: few beside those of the window."""
    return most if store.window is None else min(most, store.window // 16 + 1)


def first_seen(store: Store, positions: Positions) -> Positions:
    """Return the first position inside the window of items that come at ``positions``."""
    if store.window is None:
        return np.zeros_like(positions)
    return np.maximum(positions - store.window, 0)
