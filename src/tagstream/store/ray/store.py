"""The store whose full segments are on shards, and sums over what it holds."""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.checks import Bools, Bytes, Rows
from tagstream.core.products import gather_votes
from tagstream.core.similarity import Nearest
from tagstream.execution.steps import PAUSE, Steps
from tagstream.labels.read import Labels
from tagstream.store import sums as _examples
from tagstream.store.local import LocalStore
from tagstream.store.protocol import Coded, Neighbors
from tagstream.store.ray.home import Asked, Home, Part, Segment, parcel
from tagstream.store.ray.segments import Dump, Held, joined, link, plain_id, write_segment
from tagstream.store.ray.shard import (
    bits_of,
    contents_of,
    dump_of,
    gathered,
    import_ray,
    last_correction,
    n_bytes,
    nearest_by,
    partial_sum,
    search_all,
    similar_of,
    twins_of,
    write_to,
)
from tagstream.store.sums import Examples, Mapped, Summand, Sums, Tree, add_in_tree

if TYPE_CHECKING:
    from tagstream.store.protocol import Store

    def _has_the_face_of_a_store(store: ShardedStore) -> Store:
        return store


__all__ = ["ShardedExamples", "ShardedMapped", "ShardedStore", "saving"]

Positions = npt.NDArray[np.int64]
Distances = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

CHANGES = 32  # of a segment until it is written again


# Where a model is being saved to; a store then writes its segments there instead of gathering them.
saving: ContextVar[Path | None] = ContextVar("saving", default=None)


class ShardedStore:
    """The store that :class:`~tagstream.cluster.RayStore` opens.

    What its methods do is said by :class:`~tagstream.store.protocol.Store`.

    Parameters
    ----------
    home : Home
        The shards and where segments are written.
    opened : LocalStore
        The open segment.
    size : int
        Examples per segment.
    window : int or None
    """

    def __init__(self, home: Home, opened: LocalStore, size: int, window: int | None) -> None:
        self.window = window
        self.n_features = opened.n_features
        self.n_forgotten = 0
        self._size = size
        self._home = home
        self._open = opened
        self._segments: list[Segment] = []
        self._held = Held()
        self._frozen = False  # a snapshot

    def __len__(self) -> int:
        return sum(map(len, self._segments)) + len(self._open)

    @property
    def n_seen(self) -> int:
        """Examples that were ever appended: the number of the next."""
        return self._open.n_seen

    @property
    def n_labels(self) -> int:
        """Labels per example."""
        return self._open.n_labels

    @property
    def nbytes(self) -> int:
        """Bytes held on the shards and here, spare room included."""
        return self._open.nbytes + int(sum(self._ask_all(n_bytes, lambda _: ())))

    @property
    def code_width(self) -> int | None:
        """Numbers per code; None while there are no codes."""
        return self._open.code_width

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The sealed segments, oldest first."""
        return tuple(self._segments)

    @property
    def actors(self) -> list[Any]:
        """The shards' actor handles."""
        return self._home.shards

    # ------------------------------------------------------------------ talk to the shards
    def _send(
        self, function: Callable[..., Any], parts: list[Part], *shared: Any, **options: Any
    ) -> Asked:
        """Ask shards for a function of segments; see :meth:`Home.send`."""
        self._free()
        return self._home.send(function, parts, shared, **options)

    def _ask(self, function: Callable[..., Any], parts: list[Part], *shared: Any) -> list[Any]:
        return self._home.collect(self._send(function, parts, *shared))

    def _ask_all(
        self, function: Callable[..., Any], own: Callable[[Segment], tuple[Any, ...]], *shared: Any
    ) -> list[Any]:
        return self._ask(function, [(s, own(s)) for s in self._segments if len(s)], *shared)

    def _free(self) -> None:
        """Let the shards forget what snapshots and fits that are gone have used."""
        home = self._home
        if self._frozen or not (home.unpinned or home.unmapped):
            return
        with home.lock:
            current = {segment.key for segment in self._segments}
            while home.unpinned:
                for segment in home.unpinned.popleft():
                    home.pins[segment.key] -= 1
                    if not home.pins[segment.key]:
                        del home.pins[segment.key]
                        if segment.key not in current:
                            home.shards[segment.shard].free.remote([segment.key], [])
            while home.unmapped:
                name = home.unmapped.popleft()
                for shard in home.shards:
                    shard.free.remote([], [name])

    # ------------------------------------------------------------------ where things are
    def _offsets(self) -> Positions:
        """Return the position of each segment's first example, of the open one's, and the end."""
        lengths = [*map(len, self._segments), len(self._open)]
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    def _positions(self, positions: Any) -> Positions:
        n = len(self)
        if isinstance(positions, slice):
            return np.arange(*positions.indices(n))
        at = np.asarray(positions, np.int64)
        at = np.where(at < 0, at + n, at)
        if at.size and not 0 <= at.min() <= at.max() < n:
            raise IndexError(f"positions must lie within 0 to {n - 1}")
        return at

    def _gather(
        self, positions: Positions, function: Callable[..., Any]
    ) -> list[tuple[Positions, Any]]:
        """Return where in flat ``positions`` each part belongs, and what the function gives."""
        offsets = self._offsets()
        which = np.searchsorted(offsets, positions, side="right") - 1
        # A segment of which all is gone has the offset of its successor.
        order = np.argsort(which, kind="stable")
        cuts = np.flatnonzero(np.diff(which[order])) + 1
        groups = [group for group in np.split(order, cuts) if len(group)]
        parts, here = [], None
        places = []
        for group in groups:
            number = int(which[group[0]])
            local = positions[group] - offsets[number]
            if number == len(self._segments):
                here = (group, local)
            else:
                segment = self._segments[number]
                parts.append((segment, (local + segment.start,)))
                places.append(group)
        asked = self._send(function, parts)
        answers = [] if here is None else [(here[0], function(self._open, here[1]))]
        return [*zip(places, self._home.collect(asked), strict=True), *answers]

    def _locate(self, position: int) -> tuple[int, int]:
        """Return the segment, or how many there are for the open one, and the place in it."""
        offsets = self._offsets()
        number = int(np.searchsorted(offsets[:-1], position, side="right")) - 1
        local = position - int(offsets[number])
        if number < len(self._segments):
            local += self._segments[number].start
        return number, local

    # ------------------------------------------------------------------ change
    def _change(self, number: int, kind: str, change: Any, n_less: int = 0) -> None:
        """Make the next version of a segment, here and on its shard."""
        self._free()
        old = self._segments[number]
        new = old.changed(kind, change, old.n - n_less)
        keep = self._home.pins[old.key] > 0
        self._home.shards[new.shard].change.remote(old.key, new.key, change, keep)
        self._segments[number] = new
        if len(new.changes) > CHANGES:
            self._segments[number] = self._rewritten(new)

    def _change_all(self, kind: str, function: Callable[..., Any], *arguments: Any) -> None:
        if self._segments:
            change = parcel((function, arguments))
            for number in range(len(self._segments)):
                self._change(number, kind, change)
        function(self._open, *arguments)

    def _new_path(self, number: int) -> str:
        return str(self._home.folder / f"{number:08d}-{uuid.uuid4().hex[:12]}.npz")

    def _rewritten(self, segment: Segment) -> Segment:
        """Have a shard write its segment to a new file, so that no changes need to be kept."""
        path = self._new_path(segment.number)
        self._ask(write_to, [(segment, (path,))])
        if not any(name == segment.name for name, _ in self._home.pins):
            Path(segment.path).unlink(missing_ok=True)
        return replace(segment, path=path, changes=())

    def _seal(self) -> None:
        """Give the open segment to a shard, and open the next."""
        full = self._open
        self._open = full.successor()
        if len(full):
            self.add_sealed(full, (full.n_seen - 1) // self._size)

    def add_sealed(self, store: LocalStore, number: int) -> None:
        """Write a segment to a file, and have a shard load it."""
        path = self._new_path(number)
        write_segment(path, store.dump())
        shard = number % len(self._home.shards)
        segment = Segment(uuid.uuid4().hex, 0, shard, number, path, (), len(store))
        self._home.hold(segment)
        self._segments.append(segment)

    def add_file(self, path: Path, entry: dict[str, int]) -> None:
        """Take over a segment's file of a saved folder."""
        own = self._new_path(entry["number"])
        link(path, Path(own))
        shard = entry["number"] % len(self._home.shards)
        segment = Segment(
            uuid.uuid4().hex, 0, shard, entry["number"], own, (), entry["n"], entry["start"]
        )
        self._home.get(self._home.hold(segment), shard)
        self._segments.append(segment)

    def set_open(self, store: LocalStore) -> None:
        """Take over the open segment."""
        self._open = store

    def set_past(self, held: Held, n_forgotten: int) -> None:
        """Take over what was there before."""
        self._held, self.n_forgotten = held, n_forgotten

    def grow(self, q: int) -> None:
        """Keep ``q`` labels per example; of the new ones, the stored examples have none."""
        self._change_all("grow", LocalStore.grow, q)

    def append(
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None = None,
        codes: Singles | None = None,
    ) -> None:
        """Add examples; what no longer fits the window stays until :meth:`forget`."""
        n, done = rows.shape[0], 0
        self._held.unknown |= labels.known is not None
        self._held.names |= ids is not None
        if ids is not None:
            for name in ids:
                plain_id(name)  # what cannot be written is refused before anything is changed
        while done < n:
            room = self._size - self._open.n_seen % self._size
            part = slice(done, min(done + room, n))
            known = None if labels.known is None else labels.known[part]
            self._open.append(
                rows[part],
                Labels(labels.Y[part], known),
                None if ids is None else ids[part],
                None if codes is None else codes[part],
            )
            done = part.stop
            if self._open.n_seen % self._size == 0:
                self._seal()

    def forget(self) -> None:
        """Drop what lies before the window."""
        excess = 0 if self.window is None else len(self) - self.window
        if excess <= 0:
            return
        self.n_forgotten += excess
        while excess and self._segments:
            oldest = self._segments[0]
            less = min(excess, len(oldest))
            excess -= less
            # Nothing is sent: the shard need not know, until all of the segment is gone.
            self._segments[0] = replace(oldest, start=oldest.start + less)
            if not len(self._segments[0]):
                self._drop_segment(self._segments.pop(0))
        if excess:
            self._open.drop(excess)

    def _drop_segment(self, segment: Segment) -> None:
        if not self._home.pins[segment.key]:
            self._home.shards[segment.shard].free.remote([segment.key], [])
            Path(segment.path).unlink(missing_ok=True)

    def remove(self, position: int) -> Labels:
        """Take one example out, and return its labels."""
        gone = self.labels([position])
        self._held.gaps = self._held.names = True
        number, local = self._locate(position)
        if number == len(self._segments):
            self._open.remove(local)
        else:
            self._change(number, "remove", parcel((LocalStore.remove, (local,))), 1)
        return gone

    def relabel(self, position: int, labels: Labels) -> Labels:
        """Give one example other labels, mark it as corrected, and return the old ones."""
        old = self.labels([position])
        self._held.unknown |= labels.known is not None
        self._held.corrected = True
        newest = self._ask_all(last_correction, lambda segment: (segment.start,))
        which = 1 + max([self._open.last_correction, *newest])
        number, local = self._locate(position)
        if number == len(self._segments):
            self._open.relabel(local, labels, which)
        else:
            change = parcel((LocalStore.relabel, (local, labels, which)))
            self._change(number, "relabel", change)
        return old

    def corrected_twins(self, rows: Rows) -> Positions | None:
        """Return where the example is that equals each row and was corrected last."""
        if not self._held.corrected:
            return None
        best: Positions = np.full(rows.shape[0], -1, np.int64)
        which = best.copy()
        segments = [
            (segment, int(first))
            for segment, first in zip(self._segments, self._offsets()[:-2], strict=True)
            if len(segment)
        ]
        asked = self._send(twins_of, [(segment, (segment.start,)) for segment, _ in segments], rows)
        here = (int(self._offsets()[-2]), twins_of(self._open, 0, rows))
        told = self._home.collect(asked)
        for first, (at, corrections) in [*zip((f for _, f in segments), told, strict=True), here]:
            better = (at >= 0) & (corrections >= which)
            best[better], which[better] = at[better] + first, corrections[better]
        return best

    def map_labels(self, columns: Sequence[Sequence[int]]) -> None:
        """Make each label anew as the union of old ones, given by their columns."""
        self._change_all("map", LocalStore.map_labels, columns)

    def encode(self, encode: Callable[[Rows], Singles]) -> None:
        """Give every stored example the code that ``encode(rows)`` makes."""
        self._change_all("encode", LocalStore.encode, encode)

    def encoding(self, encode: Callable[[Rows], Singles], *, dear: bool = False) -> Steps[Coded]:
        """Return nothing yet: shards make their codes when these are taken over."""
        yield PAUSE
        return Coded(np.empty(0, np.int64), [])

    def adopt(self, coded: Coded, encode: Callable[[Rows], Singles]) -> None:
        """Give every stored example the code that ``encode(rows)`` makes."""
        self.encode(encode)

    def widen_codes(self, d: int) -> None:
        """Append zeros to all codes, up to ``d`` numbers."""
        width = self._open.code_width
        if width is not None and width < d:
            self._change_all("widen", LocalStore.widen_codes, d)

    # ------------------------------------------------------------------ look
    def search_rows(
        self, queries: Rows, k: int, lo: Positions | None = None, hi: Positions | None = None
    ) -> tuple[Distances, Positions]:
        """Return squared distances and positions, (m, k), of the nearest rows of each query."""
        return self._search(False, queries, k, lo, hi)

    def search_codes(
        self, queries: Singles, k: int, lo: Positions | None = None, hi: Positions | None = None
    ) -> tuple[Distances, Positions]:
        """Return squared distances and positions, (m, k), of the nearest codes of each query."""
        return self._search(True, queries, k, lo, hi)

    def _search(
        self, codes: bool, queries: Any, k: int, lo: Positions | None, hi: Positions | None
    ) -> tuple[Distances, Positions]:
        m, offsets = queries.shape[0], self._offsets()
        lo = np.zeros(m, np.int64) if lo is None else np.asarray(lo)
        hi = np.full(m, offsets[-1]) if hi is None else np.asarray(hi)
        if not m:
            return np.full((0, k), np.inf), np.full((0, k), -1, np.int64)
        least, most = int(lo.min()), int(hi.max())
        parts = [
            (segment, (segment.start, int(first)))
            for segment, first in zip(self._segments, offsets[:-2], strict=True)
            if len(segment) and first < most and first + len(segment) > least
        ]
        return self._merged(search_all, parts, k, codes, queries, k, lo, hi)

    def _merged(
        self, search: Callable[..., Any], parts: list[Part], k: int, *shared: Any
    ) -> tuple[Distances, Positions]:
        """Search on the shards and in the open segment; return the k nearest of all."""
        asked = self._send(search, parts, *shared, together=True)
        mine = [(self._open, 0, int(self._offsets()[-2]))] if len(self._open) else []
        here: tuple[Distances, Positions] = search(mine, *shared)
        found = [*self._home.collect(asked), here]
        if len(found) == 1:
            return here
        squares, at = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
        order = np.lexsort((at, squares), axis=1)[:, :k]
        return np.take_along_axis(squares, order, 1), np.take_along_axis(at, order, 1)

    def nearest_by(
        self,
        encode: Callable[[Rows], Singles],
        asked: Sequence[tuple[Singles, int]],
        *,
        dear: bool = False,
    ) -> Steps[list[Positions]]:
        """Return the k nearest of queries among codes that ``encode(rows)`` makes, (m, k)."""
        yield PAUSE
        parts = [
            (segment, (segment.start, int(first)))
            for segment, first in zip(self._segments, self._offsets()[:-2], strict=True)
            if len(segment)
        ]
        return [self._merged(nearest_by, parts, k, encode, queries, k)[1] for queries, k in asked]

    def contents(self) -> npt.NDArray[np.uint64]:
        """Return a digest of each stored row; see :mod:`tagstream.store.contents`."""
        sealed = self._ask_all(contents_of, lambda segment: (segment.start,))
        return np.concatenate([*sealed, self._open.contents()])

    def positions_of(self, numbers: Positions) -> Positions:
        """Return where examples are stored, given by their numbers; −1 if they are not."""
        n = len(self)
        stored = self.numbers(np.arange(n))
        if not n:
            return np.full(len(numbers), -1)
        at = np.minimum(np.searchsorted(stored, numbers), n - 1)
        return np.where(stored[at] == numbers, at, -1)

    def _bits(self, positions: Positions) -> tuple[Bytes, Bytes | None, Bools | None]:
        n, width = len(positions), -(-self.n_labels // 8)
        labels = np.empty((n, width), np.uint8)
        known = np.full((n, width), 255, np.uint8) if self._held.unknown else None
        corrected = np.zeros(n, np.bool_) if self._held.corrected else None
        for places, (bits, sure, marks) in self._gather(positions, bits_of):
            labels[places] = bits
            if known is not None and sure is not None:
                known[places] = sure
            if corrected is not None and marks is not None:
                corrected[places] = marks
        return labels, known, corrected

    def neighbors(self, *positions: Positions) -> Neighbors:
        """Return the labels of the examples at arrays of positions, gathered from the shards."""
        flat = np.concatenate([at.ravel() for at in positions])
        there = flat >= 0
        wanted, place = np.unique(flat[there], return_inverse=True)
        at = np.full(len(flat), -1, np.int64)
        at[there] = place
        ends = np.cumsum([part.size for part in positions])
        rows = tuple(
            part.reshape(shape.shape)
            for part, shape in zip(np.split(at, ends[:-1]), positions, strict=True)
        )
        labels, known, corrected = self._bits(wanted)
        return Neighbors(
            rows,
            labels,
            np.empty((0, 0), np.uint8) if known is None else known,
            np.empty(0, np.bool_) if corrected is None else corrected,
        )

    def similar(self, rows: Rows, candidates: Positions, factor: Distances | None) -> Nearest:
        """Return which of its candidates is most similar to each row, the newest of equals."""
        m, offsets = len(candidates), self._offsets()
        parts, whose, shifts = [], [], []
        for number in range(len(offsets) - 1):
            first, stop = offsets[number], offsets[number + 1]
            mine = (candidates >= first) & (candidates < stop)
            who = np.flatnonzero(mine.any(axis=1))
            if len(who):
                start = 0 if number == len(self._segments) else self._segments[number].start
                local = np.where(mine[who], candidates[who] - first + start, -1)
                whose.append(who)
                shifts.append(first - start)
                parts.append((number, (who, local)))
        sealed = [(self._segments[n], own) for n, own in parts if n < len(self._segments)]
        asked = self._send(similar_of, sealed, rows, factor)
        here = [
            similar_of(self._open, *own, rows, factor)
            for n, own in parts
            if n == len(self._segments)
        ]
        best, alike = np.full(m, -1, np.int64), np.full(m, -np.inf)
        answers = [*self._home.collect(asked), *here]
        for who, shift, nearest in zip(whose, shifts, answers, strict=True):
            at = nearest.positions + shift
            better = (nearest.positions >= 0) & (nearest.similarities >= alike[who])
            best[who[better]], alike[who[better]] = at[better], nearest.similarities[better]
        return Nearest(best, alike)

    def votes(self, found: Positions) -> Distances:
        """Return, for neighbours (m, k), the share of each label among those that know it."""
        out = np.empty((len(found), self.n_labels))
        (rows,), labels, known, _ = self.neighbors(found)
        gather_votes(rows, labels, known, out)
        return out

    def take(self, positions: Any) -> Rows:
        """Return the rows at some positions."""
        at = self._positions(positions)
        parts = self._gather(at, LocalStore.take)
        if not parts:
            return self._open.take(slice(0, 0))
        order = np.argsort(np.concatenate([places for places, _ in parts]))
        rows = [part for _, part in parts]
        if sp.issparse(rows[0]):
            return sp.vstack(rows, format="csr")[order]
        return np.concatenate(rows)[order]

    def labels(self, positions: Any = slice(None)) -> Labels:
        """Return the labels at some positions, by default of all."""
        bits, sure, _ = self._bits(self._positions(positions))
        Y = np.unpackbits(bits, axis=1, count=self.n_labels)
        if sure is None:
            return Labels(Y, None)
        return Labels(Y, np.unpackbits(sure, axis=1, count=self.n_labels).view(np.bool_))

    def ids(self, positions: Positions) -> list[Hashable]:
        """Return the names at some positions; by default, numbers in the stream."""
        at = self._positions(positions)
        names: list[Hashable] = [None] * len(at)
        for places, some in self._gather(at, LocalStore.ids):
            for place, name in zip(places.tolist(), some, strict=True):
                names[place] = name
        return names

    def numbers(self, positions: Positions) -> Positions:
        """Return the numbers in the stream."""
        at = np.asarray(positions)
        if not self._held.gaps:
            return at + (self._open.n_seen - len(self))
        flat = self._positions(at.ravel())
        out = np.empty(len(flat), np.int64)
        for places, some in self._gather(flat, LocalStore.numbers):
            out[places] = some
        return out.reshape(at.shape)

    def corrected(self, positions: Any = slice(None)) -> Bools:
        """Return which of the examples at some positions, by default of all, were relabelled."""
        at = self._positions(positions)
        marks = self._bits(at)[2]
        return np.zeros(len(at), np.bool_) if marks is None else marks

    def position_of(self, id: Hashable) -> int | None:
        """Return where the newest example of that name is stored; None if it is not."""
        offsets = self._offsets()
        place = self._open.position_of(id)
        if place is not None:
            return place + int(offsets[-2])
        segments = [number for number, segment in enumerate(self._segments) if len(segment)]
        parts: list[Any] = [(self._segments[number], (id,)) for number in segments]
        answers = self._ask(LocalStore.position_of, parts)
        for number, place in reversed([*zip(segments, answers, strict=True)]):
            start = self._segments[number].start
            if place is not None and place >= start:
                return int(offsets[number] + place - start)
        return None

    def examples(self) -> Examples:
        """Return what is stored, for sums over it."""
        return ShardedExamples(self)

    def block_size(self, most: int) -> int:
        """Return how many examples may be appended at a time: few beside those of the window."""
        return most if self.window is None else min(most, self.window // 16 + 1)

    def first_seen(self, positions: Positions) -> Positions:
        """Return the first position inside the window of items that come at ``positions``."""
        if self.window is None:
            return np.zeros_like(positions)
        return np.maximum(positions - self.window, 0)

    # ------------------------------------------------------------------ sums
    @property
    def sparse(self) -> bool:
        """Whether rows are kept as CSR."""
        return bool(sp.issparse(self._open.take(slice(0, 0))))

    def _along(self, along: Any) -> Iterator[tuple[Segment, tuple[Any, ...]]]:
        """Yield the segments that have examples, with where they start and what goes with them."""
        offsets = self._offsets()
        for segment, first in zip(self._segments, offsets[:-2], strict=True):
            if len(segment):
                part = None if along is None else along[first : first + len(segment)]
                # A sum over the other memory order may differ in the last bit.
                columns = part is not None and along.flags.f_contiguous
                yield segment, (segment.start, np.asfortranarray(part) if columns else part)

    def sum(self, summand: Summand, along: Any, leaf: int, mapped: ShardedMapped | None) -> Sums:
        """Return the sum over all leaves: one partial sum for each segment, added in the tree."""
        parts = [*self._along(along)]
        if mapped is None:
            asked = self._send(partial_sum, parts, summand, leaf)
        else:
            shared = (summand, leaf, mapped.kept)
            asked = self._send(partial_sum, parts, *shared, mapping=(mapped.parcel,))
        last = []
        if len(self._open):
            rest = None if along is None else along[int(self._offsets()[-2]) :]
            here = self._open_examples(leaf) if mapped is None else mapped.here
            number = int(self._open.numbers(np.array([0]))[0]) // self._size
            last = [(number, here.sum(summand, rest))]
        sums = [
            (segment.number, tuple(np.array(part) for part in answer))
            for (segment, _), answer in zip(parts, self._home.collect(asked), strict=True)
        ]
        return add_in_tree([*sums, *last])

    def _open_examples(self, leaf: int) -> Examples:
        here = self._open.examples()
        here.leaf = leaf
        return here

    def gather(self, function: Callable[[Rows], Any], leaf: int, mapped: ShardedMapped) -> Any:
        """Return a function of mapped rows, one below the other."""
        parts = [(segment, (segment.start,)) for segment in self._segments if len(segment)]
        shared = (function, leaf, mapped.kept)
        asked = self._send(gathered, parts, *shared, mapping=(mapped.parcel,))
        here = [mapped.here.gather(function)] if len(self._open) else []
        return np.concatenate([*self._home.collect(asked), *here])

    # ------------------------------------------------------------------ keep
    def snapshot(self) -> ShardedStore:
        """Return an immutable picture; shards copy what it shows before they change it."""
        twin = object.__new__(ShardedStore)
        twin.__dict__.update(self.__dict__)
        twin._segments, twin._open = list(self._segments), self._open.snapshot()
        twin._held, twin._frozen = replace(self._held), True
        with self._home.lock:
            self._home.pins.update(segment.key for segment in twin._segments)
        weakref.finalize(twin, self._home.unpinned.append, list(twin._segments))
        return twin

    def dump(self) -> Dump:
        """Return the contents as plain values: all of them, or the names of their files."""
        folder = saving.get()
        if folder is not None:
            return self._save(folder)
        dumps = self._ask_all(dump_of, lambda segment: (segment.start,))
        return joined([*dumps, self._open.dump()], self._held, self.n_forgotten)

    def _save(self, folder: Path) -> Dump:
        """Write what is not in files yet, and link the files into ``folder``."""
        stale = [n for n, segment in enumerate(self._segments) if segment.changes]
        paths = {n: self._new_path(self._segments[n].number) for n in stale}
        self._ask(write_to, [(self._segments[n], (paths[n],)) for n in stale])
        for n in stale:
            self._segments[n] = replace(self._segments[n], path=paths[n], changes=())
        entries = []
        for segment in self._segments:
            name = os.path.basename(segment.path)
            link(Path(segment.path), folder / name)
            entries.append(
                {"file": name, "number": segment.number, "n": segment.n, "start": segment.start}
            )
        return {
            "segments": entries,
            "segment": self._size,
            "open": self._open.dump(),
            "held": dict(vars(self._held)),
            "n_forgotten": self.n_forgotten,
        }


class ShardedExamples(Examples):
    """The examples of a sharded store: sums are made where the rows are."""

    def __init__(self, store: ShardedStore) -> None:
        self.store, self.leaf = store, _examples.LEAF
        self.shape, self.sparse = (len(store), store.n_features), store.sparse

    def summing(self, summand: Summand, along: npt.NDArray[Any] | None = None) -> Steps[Sums]:
        """Return the sum of ``summand(rows, labels, some of along)`` over all leaves."""
        yield PAUSE
        return self.store.sum(summand, along, self.leaf, None)

    def map(self, function: Callable[[Rows], Rows], keep: bool, dear: bool = False) -> Mapped:
        """Return examples with ``function(rows)`` for rows."""
        return ShardedMapped(self, function, keep, dear)

    def take(self, positions: Positions) -> tuple[Rows, Labels]:
        """Return the rows and labels at some positions."""
        return self.store.take(positions), self.store.labels(positions)

    def every(self) -> tuple[Rows, Labels]:
        """Return all rows and labels, brought here."""
        return self.take(np.arange(len(self)))


class ShardedMapped(Mapped):
    """A function of the rows of a sharded store; shards keep what they made, if asked to."""

    def __init__(
        self, source: ShardedExamples, function: Callable[[Rows], Rows], keep: bool, dear: bool
    ) -> None:
        self.store = source.store
        self.here = self.store._open_examples(source.leaf).map(function, keep, dear)
        self.leaf = self.here.leaf
        self.parcel = import_ray().put(import_ray().cloudpickle.dumps(function))
        self.kept = uuid.uuid4().hex if keep else None
        if self.kept is not None:
            weakref.finalize(self, self.store._home.unmapped.append, self.kept)

    def summing(
        self,
        summand: Summand,
        along: npt.NDArray[Any] | None = None,
        before: Tree | None = None,
    ) -> Steps[Sums]:
        """Return the sum of ``summand(rows, labels, some of along)`` over all leaves."""
        yield PAUSE
        return self.store.sum(summand, along, self.leaf, self)

    def gathering(self, function: Callable[[Rows], npt.NDArray[Any]]) -> Steps[npt.NDArray[Any]]:
        """Return ``function(rows)`` of all leaves, one below the other."""
        yield PAUSE
        made: npt.NDArray[Any] = self.store.gather(function, self.leaf, self)
        return made
