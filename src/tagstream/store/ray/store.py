"""The store whose full segments are on shards, and sums over what it holds."""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt

from tagstream.checks import Bools, Bytes, Positions, Rows, Singles
from tagstream.execution.steps import PAUSE, Steps
from tagstream.labels.read import Labels
from tagstream.store.coded import Coded
from tagstream.store.local import LocalStore
from tagstream.store.lookup import merged
from tagstream.store.protocol import LABELS, NUMBERS, ROWS, Column, Facts, Neighbors, Piece
from tagstream.store.ray.home import Asked, Home, Part, Segment, parcel
from tagstream.store.ray.segments import Dump, Held, joined, link, plain_id, write_segment
from tagstream.store.ray.shard import (
    bits_of,
    dump_of,
    gathered,
    import_ray,
    last_correction,
    nearest_by,
    partial_sum,
    write_to,
)
from tagstream.store.rows import SparseRows
from tagstream.store.sums import (
    Examples,
    LocalExamples,
    Summand,
    Sums,
    Tree,
    add_in_tree,
    sampled,
)

if TYPE_CHECKING:
    from tagstream.store.protocol import Store
    from tagstream.store.sums import Mapped

    def _is_a_store(store: ShardedStore) -> Store:
        return store

    def _are_examples(examples: ShardedExamples) -> Examples:
        return examples

    def _are_mapped(mapped: ShardedMapped) -> Mapped:
        return mapped


__all__ = ["ShardedExamples", "ShardedMapped", "ShardedStore", "saving"]

T = TypeVar("T")
P = ParamSpec("P")

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
    def facts(self) -> Facts:
        """What there is to say about all of it."""
        held = self._held
        return self._open.facts._replace(
            unknown=held.unknown, gaps=held.gaps, corrected=held.corrected, in_process=False
        )

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
    def _change(self, number: int, how: Callable[..., Any], change: Any, n_less: int = 0) -> None:
        """Make the next version of a segment, here and on its shard."""
        self._free()
        old = self._segments[number]
        new = old.changed(how, change, old.n - n_less)
        keep = self._home.pins[old.key] > 0
        self._home.shards[new.shard].change.remote(old.key, new.key, change, keep)
        self._segments[number] = new
        if len(new.changes) > CHANGES:
            self._segments[number] = self._rewritten(new)

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
            self.add_sealed(full, (full.names.n_seen - 1) // self._size)

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

    def append(
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None = None,
        codes: Singles | None = None,
    ) -> None:
        """Add examples; those that no longer fit the window stay until they are dropped."""
        n, done = rows.shape[0], 0
        self._held.unknown |= labels.known is not None
        self._held.names |= ids is not None
        if ids is not None:
            for name in ids:
                plain_id(name)  # what cannot be written is refused before anything is changed
        while done < n:
            room = self._size - self._open.names.n_seen % self._size
            part = slice(done, min(done + room, n))
            known = None if labels.known is None else labels.known[part]
            self._open.append(
                rows[part],
                Labels(labels.Y[part], known),
                None if ids is None else ids[part],
                None if codes is None else codes[part],
            )
            done = part.stop
            if self._open.names.n_seen % self._size == 0:
                self._seal()

    def drop(self, n: int) -> None:
        """Drop the ``n`` oldest examples."""
        self.n_forgotten += n
        while n and self._segments:
            oldest = self._segments[0]
            less = min(n, len(oldest))
            n -= less
            # Nothing is sent: the shard need not know, until all of the segment is gone.
            self._segments[0] = replace(oldest, start=oldest.start + less)
            if not len(self._segments[0]):
                self._drop_segment(self._segments.pop(0))
        if n:
            self._open.drop(n)

    def _drop_segment(self, segment: Segment) -> None:
        if not self._home.pins[segment.key]:
            self._home.shards[segment.shard].free.remote([segment.key], [])
            Path(segment.path).unlink(missing_ok=True)

    def remove(self, position: int) -> Labels:
        """Take one example out, and return its labels."""
        gone = self.take(LABELS, [position])
        self._held.gaps = self._held.names = True
        number, local = self._locate(position)
        if number == len(self._segments):
            self._open.remove(local)
        else:
            self._change(number, LocalStore.remove, parcel((LocalStore.remove, (local,), {})), 1)
        return gone

    def relabel(self, position: int, labels: Labels) -> Labels:
        """Give one example other labels, mark it as corrected, and return the old ones."""
        old = self.take(LABELS, [position])
        self._held.unknown |= labels.known is not None
        self._held.corrected = True
        which = 1 + max(self.ask(last_correction))
        number, local = self._locate(position)
        if number == len(self._segments):
            self._open.relabel(local, labels, which)
        else:
            change = parcel((LocalStore.relabel, (local, labels, which), {}))
            self._change(number, LocalStore.relabel, change)
        return old

    def change(
        self, how: Callable[Concatenate[LocalStore, P], None], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Change all examples in the same way."""
        if self._segments:
            change = parcel((how, args, kwargs))
            for number in range(len(self._segments)):
                self._change(number, how, change)
        how(self._open, *args, **kwargs)

    # ------------------------------------------------------------------ look
    def ask(
        self, function: Callable[..., T], *shared: Any, among: Positions | slice | None = None
    ) -> list[T]:
        """Return ``function(pieces, *shared)``, one answer of each shard and one of this process.

        Only of segments that have examples ``among`` some positions.
        """
        offsets = self._offsets()
        parts = [
            (segment, (segment.start, int(first)))
            for segment, first in zip(self._segments, offsets[:-2], strict=True)
            if len(segment) and _any_within(among, int(first), int(first) + len(segment))
        ]
        asked = self._send(function, parts, *shared, together=True)
        mine = [Piece(self._open, 0, int(offsets[-2]))] if len(self._open) else []
        here = [function(mine, *shared)]
        return [*self._home.collect(asked), *here]

    def take(self, column: Column[T], positions: Any = slice(None)) -> T:
        """Return a column's values at some positions, by default of all examples."""
        if column is NUMBERS and not self._held.gaps:
            at = self._positions(positions) if isinstance(positions, slice) else positions
            return cast(T, np.asarray(at) + (self.facts.n_seen - len(self)))
        at = self._positions(positions)
        parts = self._gather(at.ravel(), column.read)
        if not parts:
            return column.read(self._open, np.empty(0, np.int64))
        made = column.join(at.size, parts, self.facts)
        return made if at.ndim == 1 else cast(T, np.reshape(cast(Any, made), at.shape))

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
        return Neighbors(rows, *self._bits(wanted))

    def _bits(self, positions: Positions) -> tuple[Bytes, Bytes, Bools]:
        """Return packed labels, what is known of them, and which examples were corrected."""
        n, width = len(positions), -(-self.facts.n_labels // 8)
        labels = np.empty((n, width), np.uint8)
        known = np.full((n, width) if self._held.unknown else (0, 0), 255, np.uint8)
        corrected = np.zeros(n if self._held.corrected else 0, np.bool_)
        for places, (bits, sure, marks) in self._gather(positions, bits_of):
            labels[places] = bits
            if self._held.unknown and sure is not None:
                known[places] = sure
            if self._held.corrected and marks is not None:
                corrected[places] = marks
        return labels, known, corrected

    def examples(self) -> ShardedExamples:
        """Return what is stored, as a fit sees it."""
        return ShardedExamples(self)

    # ------------------------------------------------------------------ sums
    @property
    def sparse(self) -> bool:
        """Whether rows are kept as CSR."""
        return isinstance(self._open.rows, SparseRows)

    def _along(self, along: Any) -> Iterator[tuple[Segment, tuple[Any, ...]]]:
        """Yield the segments that have examples, with where they start and what goes with them."""
        offsets = self._offsets()
        for segment, first in zip(self._segments, offsets[:-2], strict=True):
            if len(segment):
                part = None if along is None else along[first : first + len(segment)]
                # A sum over the other memory order may differ in the last bit.
                columns = part is not None and along.flags.f_contiguous
                yield segment, (segment.start, np.asfortranarray(part) if columns else part)

    def sum(self, summand: Summand, along: Any, mapped: ShardedMapped | None) -> Sums:
        """Return the sum over all leaves: one partial sum for each segment, added in the tree."""
        parts = [*self._along(along)]
        if mapped is None:
            asked = self._send(partial_sum, parts, summand, self._open.limits)
        else:
            shared = (summand, mapped.limits, mapped.kept)
            asked = self._send(partial_sum, parts, *shared, mapping=(mapped.parcel,))
        last = []
        if len(self._open):
            rest = None if along is None else along[int(self._offsets()[-2]) :]
            here = self.open_examples() if mapped is None else mapped.here
            number = int(self._open.names.numbers(np.array([0]))[0]) // self._size
            last = [(number, here.sum(summand, rest))]
        sums = [
            (segment.number, tuple(np.array(part) for part in answer))
            for (segment, _), answer in zip(parts, self._home.collect(asked), strict=True)
        ]
        return add_in_tree([*sums, *last])

    def open_examples(self) -> LocalExamples:
        """Return the examples of the open segment."""
        return self._open.examples()

    def gather(self, function: Callable[[Rows], Any], mapped: ShardedMapped) -> Any:
        """Return a function of mapped rows, one below the other."""
        parts = [(segment, (segment.start,)) for segment in self._segments if len(segment)]
        shared = (function, mapped.limits, mapped.kept)
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
        parts: list[Part] = [(s, (s.start,)) for s in self._segments if len(s)]
        dumps = self._ask(dump_of, parts)
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


def _any_within(among: Positions | slice | None, first: int, stop: int) -> bool:
    """Tell whether a position lies within ``first <= position < stop``."""
    if among is None:
        return True
    if isinstance(among, slice):
        return (among.stop is None or first < among.stop) and stop > (among.start or 0)
    return bool(((among >= first) & (among < stop)).any())


class ShardedExamples:
    """The examples of a sharded store: sums are made where the rows are."""

    def __init__(self, store: ShardedStore) -> None:
        facts = store.facts
        self.store, self.limits = store, facts.limits
        self.shape, self.sparse = (len(store), facts.n_features), store.sparse

    def __len__(self) -> int:
        return self.shape[0]

    def sum(self, summand: Summand, along: npt.NDArray[Any] | None = None) -> Sums:
        """Return the sum of ``summand(rows, labels, some of along)`` over all leaves."""
        return self.store.sum(summand, along, None)

    def summing(self, summand: Summand, along: npt.NDArray[Any] | None = None) -> Steps[Sums]:
        """Return the same in steps."""
        yield PAUSE
        return self.sum(summand, along)

    def map(
        self, function: Callable[[Rows], Rows], keep: bool, dear: bool = False
    ) -> ShardedMapped:
        """Return examples with ``function(rows)`` for rows."""
        return ShardedMapped(self, function, keep, dear)

    def encoding(self, encode: Callable[[Rows], Singles], dear: bool = False) -> Steps[Coded]:
        """Return nothing yet: shards make their codes when these are taken over."""
        yield PAUSE
        return Coded()

    def nearest_by(
        self,
        encode: Callable[[Rows], Singles],
        asked: Sequence[tuple[Singles, int]],
        dear: bool = False,
    ) -> Steps[list[Positions]]:
        """Return the k nearest of queries (m, d) among codes that shards make, (m, k)."""
        yield PAUSE
        return [merged(self.store.ask(nearest_by, encode, *one), one[1])[1] for one in asked]

    def take(self, positions: Positions) -> tuple[Rows, Labels]:
        """Return the rows and labels at some positions, brought here."""
        return self.store.take(ROWS, positions), self.store.take(LABELS, positions)

    def every(self) -> tuple[Rows, Labels]:
        """Return all rows and labels, brought here."""
        return self.take(np.arange(len(self)))

    def sample(self, size: int, among: Positions | None = None) -> Examples:
        """Return at most ``size`` evenly spaced examples, as a stream of their own."""
        return sampled(self, size, among)


class ShardedMapped:
    """A function of the rows of a sharded store; shards keep what they made, if asked to."""

    def __init__(
        self, source: ShardedExamples, function: Callable[[Rows], Rows], keep: bool, dear: bool
    ) -> None:
        self.store = source.store
        self.here = self.store.open_examples().map(function, keep, dear)
        # One partial sum of a shard is a node of the tree only if leaves are as large there.
        self.limits = replace(source.limits, leaf=self.here.leaf)
        self.parcel = import_ray().put(import_ray().cloudpickle.dumps(function))
        self.kept = uuid.uuid4().hex if keep else None
        if self.kept is not None:
            weakref.finalize(self, self.store._home.unmapped.append, self.kept)

    def sum(self, summand: Summand, along: npt.NDArray[Any] | None = None) -> Sums:
        """Return the sum of ``summand(rows, labels, some of along)`` over all leaves."""
        return self.store.sum(summand, along, self)

    def summing(
        self,
        summand: Summand,
        along: npt.NDArray[Any] | None = None,
        before: Tree | None = None,
    ) -> Steps[Sums]:
        """Return the same in steps; sums of ``before`` are made again."""
        yield PAUSE
        return self.sum(summand, along)

    def gather(self, function: Callable[[Rows], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return ``function(rows)`` of all leaves, one below the other."""
        made: npt.NDArray[Any] = self.store.gather(function, self)
        return made

    def gathering(self, function: Callable[[Rows], npt.NDArray[Any]]) -> Steps[npt.NDArray[Any]]:
        """Return the same in steps."""
        yield PAUSE
        return self.gather(function)
