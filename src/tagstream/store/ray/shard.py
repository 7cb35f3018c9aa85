"""What runs on the shards: the actor, and the functions that it applies to its segments."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from tagstream.checks import Bools, Bytes, Distances, Positions
from tagstream.limits import Limits
from tagstream.store.local import LocalStore
from tagstream.store.protocol import Piece
from tagstream.store.ray.segments import Dump, cut, read_segment, write_segment
from tagstream.store.rows import DenseRows
from tagstream.store.sums import LocalExamples, LocalMapped, Summand, Sums

__all__ = [
    "Key",
    "Missing",
    "Shard",
    "bits_of",
    "dump_of",
    "gathered",
    "import_ray",
    "last_correction",
    "nearest_by",
    "partial_sum",
    "write_to",
]

Key = tuple[str, int]  # name and version of a segment


def import_ray() -> Any:
    """Return Ray, or say how to get it."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("RayStore needs ray; pip install 'tagstream[ray]'") from error
    return ray


class Missing(NamedTuple):
    """A shard's answer when it was restarted and has not got what it is asked about."""

    keys: list[Key]


class Shard:
    """The actor: runs functions on the segments it holds, each a :class:`LocalStore`.

    Arguments come as bytes and are unpacked here: arrays that Ray shares between processes cannot
    be written to, and compiled functions would be compiled a second time for them.
    """

    def __init__(self) -> None:
        self._stores: dict[Key, LocalStore] = {}

    def hold(self, key: Key, path: str, changes: list[Any]) -> None:
        """Load a segment's file and change it as it was changed since."""
        ray = import_ray()
        if key in self._stores:
            return
        store = read_segment(path)
        for change in changes:
            _apply(store, ray.get(change) if isinstance(change, ray.ObjectRef) else change)
        self._stores[key] = store

    def change(self, old: Key, new: Key, change: bytes, keep: bool) -> None:
        """Make the next version of a segment; ``keep`` the one before for those who look at it."""
        store = None if new in self._stores else self._stores.pop(old, None)
        if store is not None:  # else it was done before a restart, or will be told after one
            if keep:
                self._stores[old] = store.snapshot()
            _apply(store, change)
            self._stores[new] = store

    def free(self, keys: list[Key], maps: list[str]) -> None:
        """Let go what nobody asks for any more."""
        for key in keys:
            self._stores.pop(key, None)
        for name in maps:
            _kept.pop(name, None)

    def ask(self, own: bytes, shared: bytes, mapping: bytes | None = None) -> Any:
        """Return ``function(store, *own arguments, *shared arguments)`` of some segments.

        A function of all of them ``together`` gets a list of pieces, and no other arguments.
        """
        loads = import_ray().cloudpickle.loads
        parts = loads(own)
        missing = [key for key, _ in parts if key not in self._stores]
        if missing:
            return Missing(missing)
        function, arguments, together = loads(shared)
        if together:
            return function([Piece(self._stores[key], *own) for key, own in parts], *arguments)
        more = () if mapping is None else (mapping,)
        return [function(self._stores[key], *own, *arguments, *more) for key, own in parts]

    def pid(self) -> int:
        """Return the number of the process."""
        return os.getpid()


def _apply(store: LocalStore, change: bytes) -> None:
    function, arguments, named = import_ray().cloudpickle.loads(change)
    function(store, *arguments, **named)


_kept: dict[str, dict[int, LocalMapped]] = {}  # of this process: what is passed over many times


def nearest_by(
    pieces: list[Piece], encode: Any, queries: Any, k: int
) -> tuple[Distances, Positions]:
    """Search codes that are made of the rows of one piece after the other, and not kept."""
    best, found = np.full((len(queries), k), np.inf), np.full((len(queries), k), -1, np.int64)
    for store, start, offset, _ in pieces:
        codes = DenseRows(queries.shape[1])
        codes.replace(encode(store.rows.live[start:]))
        # Positions found before are below −1 meanwhile, to be told from those of this piece.
        found = np.where(found >= 0, -2 - found, found)
        best, found = codes.search(queries, k, None, None, (best, found))
        found = np.where(found >= 0, found + offset, np.where(found < -1, -2 - found, -1))
    return best, found


def bits_of(store: LocalStore, positions: Positions) -> tuple[Bytes, Bytes | None, Bools | None]:
    """Return packed labels, what is known of them, and which were corrected."""
    labels, marks = store.labels, store.corrections
    return (
        labels.yes[positions],
        None if labels.all_known else labels.known[positions],
        marks.at(positions) if marks.any else None,
    )


def last_correction(pieces: list[Piece]) -> int:
    """Return the largest number of a correction of what is still stored."""
    return max(
        (int(p.store.corrections.which(slice(p.start, None)).max(initial=0)) for p in pieces),
        default=0,
    )


def partial_sum(
    store: LocalStore,
    start: int,
    along: Any,
    summand: Summand,
    limits: Limits,
    keep: str | None = None,
    mapping: bytes | None = None,
) -> Sums:
    """Return the sum over one segment: a node of the tree."""
    if mapping is None:
        return _examples(store, start, limits).sum(summand, along)
    return _mapped(store, start, limits, keep, mapping).sum(summand, along)


def _examples(store: LocalStore, start: int, limits: Limits) -> LocalExamples:
    """Return the examples of one segment from ``start`` on, with the limits of the whole store."""
    held = store.examples(start)
    held.limits = limits
    return held


def gathered(
    store: LocalStore, start: int, function: Any, limits: Limits, keep: str | None, mapping: bytes
) -> Any:
    """Return a function of the mapped rows of one segment."""
    return _mapped(store, start, limits, keep, mapping).gather(function)


def _mapped(
    store: LocalStore, start: int, limits: Limits, keep: str | None, mapping: bytes
) -> LocalMapped:
    kept = {} if keep is None else _kept.setdefault(keep, {})
    if id(store) not in kept:
        held = _examples(store, start, limits)
        kept[id(store)] = held.map(import_ray().cloudpickle.loads(mapping), keep is not None)
    return kept[id(store)]


def dump_of(store: LocalStore, start: int) -> Dump:
    """Return the contents of one segment from ``start`` on."""
    return cut(store.dump(), start, len(store))


def write_to(store: LocalStore, path: str) -> None:
    """Write a segment as it is now to a file."""
    write_segment(path, store.dump())
