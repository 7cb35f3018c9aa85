"""The driver's side of the shards: what segments are, and how shards are asked about them."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tagstream.store.changes import encode_piece, grow_piece, widen_piece
from tagstream.store.ray.shard import Key, Missing, Shard, import_ray

__all__ = ["Asked", "Home", "Part", "Segment", "ShardLostError", "parcel"]

INLINE = 1 << 16  # bytes from which an argument for several shards is put into the object store


class ShardLostError(RuntimeError):
    """A shard did not answer in time."""


@dataclass(frozen=True)
class Segment:
    """What the driver knows of a sealed segment; another version is another object."""

    name: str
    version: int
    shard: int
    number: int  # of the segment in the stream
    path: str
    changes: tuple[tuple[Callable[..., Any], Any], ...]  # since the file was written, and parcelled
    n: int  # examples in it
    start: int = 0  # of which so many have left the window

    def __len__(self) -> int:
        return self.n - self.start

    @property
    def key(self) -> Key:
        """Name and version."""
        return self.name, self.version

    def changed(self, how: Callable[..., Any], change: Any, n: int) -> Segment:
        """Return the next version, without changes that the new one makes void."""
        old = self.changes
        if how is encode_piece:
            old = tuple(c for c in old if c[0] not in (encode_piece, widen_piece))
        elif how is widen_piece:
            old = tuple(c for c in old if c[0] is not widen_piece)
        elif how is grow_piece and old and old[-1][0] is grow_piece:
            old = old[:-1]
        return replace(self, version=self.version + 1, changes=(*old, (how, change)), n=n)


Part = tuple[Segment, tuple[Any, ...]]  # a segment, and arguments for it alone


class Home:
    """The actors and the folder of one store, which its snapshots share."""

    def __init__(self, shards: int, folder: str | None, timeout: float, cpus: float) -> None:
        ray = import_ray()
        self.timeout = timeout
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="store-", dir=folder)).absolute()
        actor = ray.remote(Shard).options(
            num_cpus=cpus,
            max_restarts=-1,
            max_task_retries=-1,
            scheduling_strategy="SPREAD",
        )
        self.shards = [actor.remote() for _ in range(shards)]
        self.lock = threading.RLock()
        self.pins: Counter[Key] = Counter()  # how many snapshots show a version
        self.unpinned: deque[list[Segment]] = deque()
        self.unmapped: deque[str] = deque()
        self._end = weakref.finalize(self, _end, self.shards, self.folder)

    def close(self) -> None:
        """End the actors and remove the folder."""
        self._end()

    def get(self, reference: Any, shard: int) -> Any:
        """Return a shard's answer, or say what to do when none comes."""
        ray = import_ray()
        try:
            return ray.get(reference, timeout=self.timeout)
        except (ray.exceptions.GetTimeoutError, ray.exceptions.RayActorError) as error:
            raise ShardLostError(
                f"shard {shard} must answer within {self.timeout:g} s, got nothing; its node may "
                "be gone and no other have room: start a node (ray start --address=…) or raise "
                f"timeout=, and ask again; its segments are safe in {self.folder}"
            ) from error

    def send(
        self,
        function: Callable[..., Any],
        parts: list[Part],
        shared: tuple[Any, ...] = (),
        *,
        together: bool = False,
        mapping: tuple[Any, ...] = (),
    ) -> Asked:
        """Ask for ``function(store, *own, *shared)`` of segments; see :meth:`collect`."""
        ray = import_ray()
        packed = parcel((function, shared, together)) if parts else None
        by_shard: dict[int, list[int]] = {}
        for place, (segment, _) in enumerate(parts):
            by_shard.setdefault(segment.shard, []).append(place)
        sent = []
        for shard, places in by_shard.items():
            own = ray.cloudpickle.dumps([(parts[i][0].key, parts[i][1]) for i in places])
            reference = self.shards[shard].ask.remote(own, packed, *mapping)
            sent.append((shard, places, own, reference))
        return Asked(packed, mapping, sent, parts, together)

    def collect(self, asked: Asked) -> list[Any]:
        """Return an answer for each segment, or for each shard that was asked of all together."""
        answers: list[Any] = [None] * len(asked.parts)
        combined = []
        for shard, places, own, reference in asked.sent:
            answer = self.get(reference, shard)
            while isinstance(answer, Missing):
                self._tell(shard, answer.keys, [asked.parts[i][0] for i in places])
                again = self.shards[shard].ask.remote(own, asked.shared, *asked.mapping)
                answer = self.get(again, shard)
            if asked.together:
                combined.append(answer)
            else:
                for place, one in zip(places, answer, strict=True):
                    answers[place] = one
        return combined if asked.together else answers

    def _tell(self, shard: int, keys: list[Key], segments: list[Segment]) -> None:
        """Tell a shard what its segments are."""
        wanted = set(keys)
        for segment in segments:
            if segment.key in wanted:
                self.get(self.hold(segment), shard)

    def hold(self, segment: Segment) -> Any:
        """Have a shard load a segment, and return a reference to wait for."""
        changes = [change for _, change in segment.changes]
        shard = self.shards[segment.shard]
        return shard.hold.remote(segment.key, segment.path, changes)


def _end(shards: list[Any], folder: Path) -> None:
    ray = import_ray()
    if ray.is_initialized():
        for shard in shards:
            ray.kill(shard)
    shutil.rmtree(folder, ignore_errors=True)


class Asked(NamedTuple):
    """A question that was sent to shards."""

    shared: Any
    mapping: tuple[Any, ...]
    sent: list[tuple[int, list[int], bytes, Any]]  # shard, places of its parts, own, reference
    parts: list[Part]
    together: bool


def parcel(value: Any) -> Any:
    """Return a value as bytes, large ones in the object store, for several shards to read."""
    ray = import_ray()
    packed = ray.cloudpickle.dumps(value)
    return packed if len(packed) < INLINE else ray.put(packed)
