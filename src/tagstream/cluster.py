"""The memory on several machines: full segments live on Ray actors, bit-equal to one machine.

The stream is cut into segments of consecutive examples.  This process, the driver, holds the one
that is still open, and all that is small: metric, projection, head, vocabulary.  A full segment is
*sealed*: written to a file once, and given to one of the shards, an actor that loads it.  A shard
has nothing that cannot be made again: what a segment is, is a file and the changes since (other
labels, an example taken out, new codes), and the driver knows both.  So a shard that was killed
comes back empty, says what it misses, is told, and answers.

Why the bits are the same: a search returns exact distances, with ties going to the older example,
so the best of the best is the best of all; counts are whole numbers; and every sum over examples
follows one tree (:mod:`tagstream.examples`), of which a segment, a power of two of its leaves, is a
node.

Ray is the extra ``tagstream[ray]``.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import threading
import uuid
import weakref
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream import examples as _examples
from tagstream import persist
from tagstream.base import StreamClassifier
from tagstream.checks import Bools, Bytes, DataError, Rows, check_number, expect_keys
from tagstream.copies import Nearest
from tagstream.examples import Examples, Mapped, Summand, Sums, add_in_tree
from tagstream.kernels import gather_votes
from tagstream.labels import Labels
from tagstream.memory import LocalStore, Neighbors

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RayStore", "ShardLostError", "ShardedStore", "load", "save"]

Positions = npt.NDArray[np.int64]
Distances = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Key = tuple[str, int]  # name and version of a segment
Dump = dict[str, Any]  # of a LocalStore

SEGMENT = 1 << 16
CHANGES = 32  # of a segment until it is written again
INLINE = 1 << 16  # bytes from which an argument for several shards is put into the object store
STATE = "state.tgs"  # of a saved folder

# Where a model is being saved to; a store then writes its segments there instead of gathering them.
_saving: ContextVar[Path | None] = ContextVar("_saving", default=None)


class ShardLostError(RuntimeError):
    """A shard did not answer in time."""


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError("RayStore needs ray; pip install 'tagstream[ray]'") from error
    return ray


# ---------------------------------------------------------------------- files of segments
def _write_segment(path: str, dump: Dump) -> None:
    """Write what a :class:`LocalStore` holds: an .npz of plain arrays, whole or not at all."""
    arrays = {f"rows.{name}": part for name, part in dump["rows"].items()}
    names = ("codes", "labels", "known", "numbers", "corrected")
    arrays |= {name: dump[name] for name in names if dump[name] is not None}
    arrays["counts"] = np.array([dump["n_seen"], dump["n_forgotten"], *dump["shape"]], np.int64)
    if dump["ids"] is not None:
        text = json.dumps([_plain_id(name) for name in dump["ids"]])
        arrays["ids"] = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "xb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read_segment(path: str) -> LocalStore:
    """Return the store that a file describes, after checking that it makes sense."""
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        n_seen, n_forgotten, p, q = arrays.pop("counts").tolist()
        rows = {n[5:]: arrays.pop(n) for n in [*arrays] if n.startswith("rows.")}
        text, ids = arrays.pop("ids", None), None
        if text is not None:
            ids = [_read_id(i) for i in json.loads(text.tobytes().decode("utf-8", "surrogatepass"))]
        dump: Dump = {"rows": rows, "ids": ids, "n_seen": n_seen, "n_forgotten": n_forgotten}
        dump["shape"] = [p, q]
        for name in ("codes", "labels", "known", "numbers", "corrected"):
            dump[name] = arrays.pop(name, None)
        if arrays:
            raise ValueError(f"it must have no more parts, got {sorted(arrays)}")
        return LocalStore.load(dump, sparse="dense" not in rows, window=None)
    except OSError:
        raise
    except Exception as error:  # a damaged file may fail in any way
        raise DataError(f"{path}: not a whole segment: {error}") from error


def _plain_id(name: Any) -> Any:
    if isinstance(name, tuple):
        return {"t": [_plain_id(part) for part in name]}
    if name is None or isinstance(name, (bool, int, float, str)):
        return name
    raise ValueError(
        "ids must be numbers, strings or tuples of them to be kept on shards, "
        f"got {type(name).__name__}"
    )


def _read_id(name: Any) -> Hashable:
    return tuple(_read_id(part) for part in name["t"]) if isinstance(name, dict) else name


# ---------------------------------------------------------------------- dumps, cut and joined
def _cut(dump: Dump, start: int, stop: int) -> Dump:
    """Return the dump of the examples ``start <= position < stop``."""
    part = slice(start, stop)
    cut: Dump = {
        name: None if dump[name] is None else dump[name][part]
        for name in ("codes", "labels", "known", "ids", "numbers")
    }
    rows = dump["rows"]
    if "dense" in rows:
        cut["rows"] = {"dense": rows["dense"][part]}
    else:
        ends = rows["indptr"][start : stop + 1]
        entries = slice(int(ends[0]), int(ends[-1]))
        cut["rows"] = {
            "data": rows["data"][entries],
            "indices": rows["indices"][entries],
            "indptr": ends - ends[0],
        }
    marks = dump["corrected"]
    if marks is not None:
        cut["corrected"] = marks[(marks >= start) & (marks < stop)] - start
    else:
        cut["corrected"] = None
    cut["shape"] = dump["shape"]
    cut["n_seen"], cut["n_forgotten"] = dump["n_seen"], dump["n_forgotten"]
    if dump["numbers"] is None:  # then they follow without a gap
        cut["n_forgotten"] += start
        cut["n_seen"] -= _n_rows(dump) - stop
    return cut


def _n_rows(dump: Dump) -> int:
    return len(dump["labels"])


def _numbers(dump: Dump) -> Positions:
    if dump["numbers"] is None:
        return np.arange(dump["n_forgotten"], dump["n_seen"])
    numbers: Positions = dump["numbers"]
    return numbers


def _joined(dumps: list[Dump], held: _Held, n_forgotten: int) -> Dump:
    """Return the dump of one store that holds all of them."""
    last = dumps[-1]
    sizes = [_n_rows(dump) for dump in dumps]
    rows = {
        name: np.concatenate([dump["rows"][name] for dump in dumps])
        for name in last["rows"]
        if name != "indptr"
    }
    if "indptr" in last["rows"]:
        lengths = [np.diff(dump["rows"]["indptr"]) for dump in dumps]
        rows["indptr"] = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    whole: Dump = {
        "rows": rows,
        "labels": np.concatenate([dump["labels"] for dump in dumps]),
        "codes": None,
        "known": None,
        "ids": None,
        "numbers": None,
        "corrected": None,
        "n_seen": last["n_seen"],
        "n_forgotten": n_forgotten,
        "shape": last["shape"],
    }
    if last["codes"] is not None:
        whole["codes"] = np.concatenate([dump["codes"] for dump in dumps])
    if held.unknown:
        whole["known"] = np.concatenate(
            [np.full_like(d["labels"], 255) if d["known"] is None else d["known"] for d in dumps]
        )
    if held.gaps:
        whole["numbers"] = np.concatenate([_numbers(dump) for dump in dumps])
    if held.names:
        whole["ids"] = []
        for dump in dumps:
            whole["ids"] += _numbers(dump).tolist() if dump["ids"] is None else dump["ids"]
    if held.corrected:
        firsts = np.cumsum([0, *sizes])[:-1]
        marks = [
            dump["corrected"] + first
            for dump, first in zip(dumps, firsts, strict=True)
            if dump["corrected"] is not None
        ]
        whole["corrected"] = np.concatenate([np.empty(0, np.int64), *marks])
    return whole


@dataclass
class _Held:
    """What a store has ever held besides rows and labels; a store of one process keeps room."""

    unknown: bool = False
    names: bool = False
    gaps: bool = False
    corrected: bool = False


# ---------------------------------------------------------------------- on the shards
class _Missing(NamedTuple):
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
        ray = _ray()
        if key in self._stores:
            return
        store = _read_segment(path)
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

        A function of all of them ``together`` gets a list of stores with their own arguments.
        """
        loads = _ray().cloudpickle.loads
        parts = loads(own)
        missing = [key for key, _ in parts if key not in self._stores]
        if missing:
            return _Missing(missing)
        function, arguments, together = loads(shared)
        if together:
            return function([(self._stores[key], *own) for key, own in parts], *arguments)
        more = () if mapping is None else (mapping,)
        return [function(self._stores[key], *own, *arguments, *more) for key, own in parts]

    def pid(self) -> int:
        """Return the number of the process."""
        return os.getpid()


def _apply(store: LocalStore, change: bytes) -> None:
    function, arguments = _ray().cloudpickle.loads(change)
    function(store, *arguments)


_kept: dict[str, dict[int, Mapped]] = {}  # of this process: what is passed over many times


def _search_all(
    parts: list[tuple[LocalStore, int, int]],
    codes: bool,
    queries: Any,
    k: int,
    lo: Positions,
    hi: Positions,
) -> tuple[Distances, Positions]:
    """Search one segment after the other, oldest first; what was found bounds what follows."""
    best, found = np.full((len(lo), k), np.inf), np.full((len(lo), k), -1, np.int64)
    for store, start, offset in parts:
        shift, n = offset - start, len(store)
        first = np.clip(lo - shift, start, n)
        last = np.maximum(np.clip(hi - shift, start, n), first)
        # Positions found before are below −1 meanwhile, to be told from those of this segment.
        found = np.where(found >= 0, -2 - found, found)
        search = store.search_codes if codes else store.search_rows
        best, found = search(queries, k, first, last, (best, found))
        found = np.where(found >= 0, found + shift, np.where(found < -1, -2 - found, -1))
    return best, found


def _bits(store: LocalStore, positions: Positions) -> tuple[Bytes, Bytes | None, Bools | None]:
    _, labels, known, corrected = store.neighbors()
    return (
        labels[positions],
        known[positions] if len(known) else None,
        corrected[positions] if len(corrected) else None,
    )


def _similar(
    store: LocalStore, who: Positions, candidates: Positions, rows: Rows, factor: Any
) -> Nearest:
    return store.similar(rows[who], candidates, factor)


def _partial(
    store: LocalStore,
    start: int,
    along: Any,
    summand: Summand,
    leaf: int,
    keep: str | None = None,
    mapping: bytes | None = None,
) -> Sums:
    """Return the sum over one segment: a node of the tree."""
    if mapping is None:
        held = store.examples(start)
        held.leaf = leaf
        return held.sum(summand, along)
    return _mapped(store, start, leaf, keep, mapping).sum(summand, along)


def _gathered(
    store: LocalStore, start: int, function: Any, leaf: int, keep: str | None, mapping: bytes
) -> Any:
    return _mapped(store, start, leaf, keep, mapping).gather(function)


def _mapped(store: LocalStore, start: int, leaf: int, keep: str | None, mapping: bytes) -> Mapped:
    kept = {} if keep is None else _kept.setdefault(keep, {})
    if id(store) not in kept:
        held = store.examples(start)
        held.leaf = leaf
        kept[id(store)] = held.map(_ray().cloudpickle.loads(mapping), keep is not None)
    return kept[id(store)]


def _dump_of(store: LocalStore, start: int) -> Dump:
    return _cut(store.dump(), start, len(store))


def _write_to(store: LocalStore, path: str) -> None:
    _write_segment(path, store.dump())


def _n_bytes(store: LocalStore) -> int:
    return store.nbytes


# ---------------------------------------------------------------------- on the driver
@dataclass(frozen=True)
class Segment:
    """What the driver knows of a sealed segment; another version is another object."""

    name: str
    version: int
    shard: int
    number: int  # of the segment in the stream
    path: str
    changes: tuple[tuple[str, Any], ...]  # since the file was written: their kind and what to apply
    n: int  # examples in it
    start: int = 0  # of which so many have left the window

    def __len__(self) -> int:
        return self.n - self.start

    @property
    def key(self) -> Key:
        return self.name, self.version

    def changed(self, kind: str, change: Any, n: int) -> Segment:
        """Return the next version, without changes that the new one makes void."""
        old = self.changes
        if kind == "encode":
            old = tuple(c for c in old if c[0] not in ("encode", "widen"))
        elif kind == "widen":
            old = tuple(c for c in old if c[0] != "widen")
        elif kind == "grow" and old and old[-1][0] == "grow":
            old = old[:-1]
        return replace(self, version=self.version + 1, changes=(*old, (kind, change)), n=n)


class _Home:
    """The actors and the folder of one store, which its snapshots share."""

    def __init__(self, cluster: RayStore) -> None:
        ray = _ray()
        cluster.connect()
        self.timeout = cluster.timeout
        if cluster.folder is not None:
            Path(cluster.folder).mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="store-", dir=cluster.folder)).absolute()
        actor = ray.remote(Shard).options(
            num_cpus=cluster.cpus, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD"
        )
        self.shards = [actor.remote() for _ in range(cluster.shards)]
        self.lock = threading.RLock()
        self.pins: Counter[Key] = Counter()  # how many snapshots show a version
        self.unpinned: deque[list[Segment]] = deque()
        self.unmapped: deque[str] = deque()
        self._end = weakref.finalize(self, _end, self.shards, self.folder)

    def close(self) -> None:
        self._end()

    def get(self, reference: Any, shard: int) -> Any:
        ray = _ray()
        try:
            return ray.get(reference, timeout=self.timeout)
        except (ray.exceptions.GetTimeoutError, ray.exceptions.RayActorError) as error:
            raise ShardLostError(
                f"shard {shard} must answer within {self.timeout:g} s, got nothing; its node may "
                "be gone and no other have room: start a node (ray start --address=…) or raise "
                f"timeout=, and ask again; its segments are safe in {self.folder}"
            ) from error


def _end(shards: list[Any], folder: Path) -> None:
    ray = _ray()
    if ray.is_initialized():
        for shard in shards:
            ray.kill(shard)
    shutil.rmtree(folder, ignore_errors=True)


class _Asked(NamedTuple):
    """A question that was sent to shards."""

    shared: Any
    mapping: tuple[Any, ...]
    sent: list[tuple[int, list[int], bytes, Any]]  # shard, places of its parts, own, reference
    parts: list[tuple[Segment, tuple[Any, ...]]]
    together: bool


def _parcel(value: Any) -> Any:
    """Return a value as bytes, large ones in the object store, for several shards to read."""
    ray = _ray()
    packed = ray.cloudpickle.dumps(value)
    return packed if len(packed) < INLINE else ray.put(packed)


class RayStore:
    """Where examples are kept: on the shards of a Ray cluster; given to a learner as ``store=``.

    Parameters
    ----------
    shards : int
        Actors among which full segments are shared out.
    segment : int
        Examples per segment: 4,096 times a power of two.
    folder : path, optional
        Where segments are written; all nodes must see it under this path.  Each store makes its
        own directory in it, and removes it in the end.  By default a temporary directory, which is
        right for one machine.
    address : str, optional
        Of a running cluster, as ``ray.init`` takes it.  By default the one this process is
        connected to; if it is not, one is started on this machine, and ended by :meth:`close`.
    timeout : float
        Seconds that a shard may take to answer; restarting one and loading its segments again
        takes some of them.
    cpus : float
        Processors that each shard reserves for itself.  With 0 a shard goes wherever there is a
        node, and after the loss of one to any other; with 1 only where a processor is free.

    Examples
    --------
    >>> from tagstream import OML
    >>> store = RayStore(shards=2, segment=65536)
    >>> OML(store=store).store is store
    True
    """

    def __init__(
        self,
        shards: int = 2,
        segment: int = SEGMENT,
        folder: str | os.PathLike[str] | None = None,
        address: str | None = None,
        timeout: float = 120.0,
        cpus: float = 0.0,
    ) -> None:
        check_number("shards", shards, kind=int, least=1, most=1e4)
        check_number("segment", segment, kind=int, least=1)
        check_number("timeout", timeout, least=1e-3)
        check_number("cpus", cpus, least=0, most=1e4)
        self.cpus = cpus
        self.shards, self.segment, self.address, self.timeout = shards, segment, address, timeout
        self.folder = None if folder is None else os.fspath(folder)
        self._homes: weakref.WeakSet[_Home] = weakref.WeakSet()
        self._started = False

    def __repr__(self) -> str:
        named = ("shards", "segment", "folder", "address", "timeout", "cpus")
        return f"RayStore({', '.join(f'{n}={getattr(self, n)!r}' for n in named)})"

    def __deepcopy__(self, memo: Any) -> RayStore:
        return self  # learners that are cloned share the cluster, not what they store

    def __reduce__(self) -> Any:
        parts = self.shards, self.segment, self.folder, self.address, self.timeout, self.cpus
        return RayStore, parts

    def connect(self) -> None:
        """Connect to the cluster; this is done when it is first needed."""
        ray = _ray()
        if not ray.is_initialized():
            if self.address is not None:
                ray.init(address=self.address, log_to_driver=False)
            else:
                # The dashboard would cost a process and some hundred megabytes.
                ray.init(include_dashboard=False, log_to_driver=False)
            self._started = True

    def close(self) -> None:
        """End the shards of all stores made here, and the cluster if it was started here."""
        for home in list(self._homes):
            home.close()
        if self._started:
            _ray().shutdown()
            self._started = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_segment(self) -> None:
        leaves, rest = divmod(self.segment, _examples.LEAF)
        if rest or leaves.bit_count() != 1:
            raise ValueError(
                f"segment must be {_examples.LEAF} times a power of two, got {self.segment}"
            )

    def open(self, n_features: int, *, sparse: bool, window: int | None = None) -> ShardedStore:
        """Return an empty store."""
        self._check_segment()
        home = _Home(self)
        self._homes.add(home)
        return ShardedStore(self, home, LocalStore(n_features, sparse=sparse), window)

    def load(self, state: Any, *, sparse: bool, window: int | None) -> ShardedStore:
        """Return a store with what a file or a saved folder holds."""
        if isinstance(state, dict) and "segments" in state:
            return self._load_folder(state, sparse=sparse, window=window)
        LocalStore.load(state, sparse=sparse, window=window)  # it must make sense as a whole
        n, p = _n_rows(state), state["shape"][0]
        made = self.open(p, sparse=sparse, window=window)
        numbers, size = _numbers(state), self.segment
        made.set_past(
            _Held(
                unknown=state["known"] is not None,
                names=state["ids"] is not None,
                gaps=state["numbers"] is not None,
                corrected=state["corrected"] is not None,
            ),
            state["n_forgotten"],
        )
        start = 0
        first_open = state["n_seen"] - state["n_seen"] % size
        while start < n and numbers[start] < first_open:
            number = int(numbers[start]) // size
            stop = int(np.searchsorted(numbers, (number + 1) * size))
            part = LocalStore.load(_cut(state, start, stop), sparse=sparse, window=None)
            made.add_sealed(part, number)
            start = stop
        rest = _cut(state, start, n)
        made.set_open(LocalStore.load(rest, sparse=sparse, window=None))
        return made

    def _load_folder(self, state: Any, *, sparse: bool, window: int | None) -> ShardedStore:
        expect_keys(
            "the sharded store", state, "segments", "segment", "open", "held", "n_forgotten",
            "folder",
        )  # fmt: skip
        if state["segment"] != self.segment:
            raise ValueError(f"segment must be {state['segment']} as saved, got {self.segment}")
        rest = LocalStore.load(state["open"], sparse=sparse, window=None)
        held = _Held(**{name: bool(value) for name, value in state["held"].items()})
        made = self.open(rest.n_features, sparse=sparse, window=window)
        made.set_past(held, state["n_forgotten"])
        for entry in state["segments"]:
            expect_keys("a segment", entry, "file", "number", "n", "start")
            for count in ("number", "n", "start"):
                check_number(count, entry[count], kind=int, least=0)
            name = entry["file"]
            if not isinstance(name, str) or os.path.basename(name) != name:
                raise ValueError(f"a segment's file must be a plain name, got {name!r}")
            made.add_file(Path(state["folder"]) / name, entry)
        made.set_open(rest)
        return made


class ShardedStore:
    """The store that :class:`RayStore` opens; see :class:`~tagstream.memory.Store`."""

    def __init__(
        self, cluster: RayStore, home: _Home, opened: LocalStore, window: int | None
    ) -> None:
        self.window = window
        self.n_features = opened.n_features
        self.n_forgotten = 0
        self._size = cluster.segment
        self._home = home
        self._open = opened
        self._segments: list[Segment] = []
        self._held = _Held()
        self._frozen = False  # a snapshot

    def __len__(self) -> int:
        return sum(map(len, self._segments)) + len(self._open)

    @property
    def n_labels(self) -> int:
        """Labels per example."""
        return self._open.n_labels

    @property
    def nbytes(self) -> int:
        """Bytes held on the shards and here, spare room included."""
        return self._open.nbytes + int(sum(self._ask_all(_n_bytes, lambda _: ())))

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
        self,
        function: Callable[..., Any],
        parts: list[tuple[Segment, tuple[Any, ...]]],
        shared: tuple[Any, ...] = (),
        *,
        together: bool = False,
        mapping: tuple[Any, ...] = (),
    ) -> _Asked:
        """Ask for ``function(store, *own, *shared)`` of segments; see :meth:`_collect`."""
        self._free()
        ray = _ray()
        parcel = _parcel((function, shared, together)) if parts else None
        by_shard: dict[int, list[int]] = {}
        for place, (segment, _) in enumerate(parts):
            by_shard.setdefault(segment.shard, []).append(place)
        sent = []
        for shard, places in by_shard.items():
            own = ray.cloudpickle.dumps([(parts[i][0].key, parts[i][1]) for i in places])
            reference = self._home.shards[shard].ask.remote(own, parcel, *mapping)
            sent.append((shard, places, own, reference))
        return _Asked(parcel, mapping, sent, parts, together)

    def _collect(self, asked: _Asked) -> list[Any]:
        """Return an answer for each segment, or for each shard that was asked of all together."""
        home, answers = self._home, [None] * len(asked.parts)
        combined = []
        for shard, places, own, reference in asked.sent:
            answer = home.get(reference, shard)
            while isinstance(answer, _Missing):
                self._tell(shard, answer.keys, [asked.parts[i][0] for i in places])
                again = home.shards[shard].ask.remote(own, asked.shared, *asked.mapping)
                answer = home.get(again, shard)
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
                self._home.get(self._hold(segment), shard)

    def _hold(self, segment: Segment) -> Any:
        changes = [change for _, change in segment.changes]
        shard = self._home.shards[segment.shard]
        return shard.hold.remote(segment.key, segment.path, changes)

    def _ask(
        self,
        function: Callable[..., Any],
        parts: list[tuple[Segment, tuple[Any, ...]]],
        *shared: Any,
    ) -> list[Any]:
        return self._collect(self._send(function, parts, shared))

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
        return [*zip(places, self._collect(asked), strict=True), *answers]

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
            change = _parcel((function, arguments))
            for number in range(len(self._segments)):
                self._change(number, kind, change)
        function(self._open, *arguments)

    def _new_path(self, number: int) -> str:
        return str(self._home.folder / f"{number:08d}-{uuid.uuid4().hex[:12]}.npz")

    def _rewritten(self, segment: Segment) -> Segment:
        """Have a shard write its segment to a new file, so that no changes need to be kept."""
        path = self._new_path(segment.number)
        self._ask(_write_to, [(segment, (path,))])
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
        _write_segment(path, store.dump())
        shard = number % len(self._home.shards)
        segment = Segment(uuid.uuid4().hex, 0, shard, number, path, (), len(store))
        self._hold(segment)
        self._segments.append(segment)

    def add_file(self, path: Path, entry: dict[str, int]) -> None:
        """Take over a segment's file of a saved folder."""
        own = self._new_path(entry["number"])
        _link(path, Path(own))
        shard = entry["number"] % len(self._home.shards)
        segment = Segment(
            uuid.uuid4().hex, 0, shard, entry["number"], own, (), entry["n"], entry["start"]
        )
        self._home.get(self._hold(segment), shard)
        self._segments.append(segment)

    def set_open(self, store: LocalStore) -> None:
        """Take over the open segment."""
        self._open = store

    def set_past(self, held: _Held, n_forgotten: int) -> None:
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
                _plain_id(name)  # what cannot be written is refused before anything is changed
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

    def forget(self) -> Labels | None:
        """Drop what lies before the window, and return its labels; None if nothing does."""
        excess = 0 if self.window is None else len(self) - self.window
        if excess <= 0:
            return None
        gone = self.labels(slice(excess))
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
        return gone

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
            self._change(number, "remove", _parcel((LocalStore.remove, (local,))), 1)
        return gone

    def relabel(self, position: int, labels: Labels) -> Labels:
        """Give one example other labels, mark it as corrected, and return the old ones."""
        old = self.labels([position])
        self._held.unknown |= labels.known is not None
        self._held.corrected = True
        number, local = self._locate(position)
        if number == len(self._segments):
            self._open.relabel(local, labels)
        else:
            self._change(number, "relabel", _parcel((LocalStore.relabel, (local, labels))))
        return old

    def map_labels(self, columns: Sequence[Sequence[int]]) -> None:
        """Make each label anew as the union of old ones, given by their columns."""
        self._change_all("map", LocalStore.map_labels, columns)

    def encode(self, encode: Callable[[Rows], Singles]) -> None:
        """Give every stored example the code that ``encode(rows)`` makes."""
        self._change_all("encode", LocalStore.encode, encode)

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
        shared = (codes, queries, k, lo, hi)
        asked = self._send(_search_all, parts, shared, together=True)
        mine = [(self._open, 0, int(offsets[-2]))] if len(self._open) else []
        here = _search_all(mine, *shared)
        found = [*self._collect(asked), here]
        if len(found) == 1:
            return here
        squares, at = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
        order = np.lexsort((at, squares), axis=1)[:, :k]
        return np.take_along_axis(squares, order, 1), np.take_along_axis(at, order, 1)

    def _bits(self, positions: Positions) -> tuple[Bytes, Bytes | None, Bools | None]:
        n, width = len(positions), -(-self.n_labels // 8)
        labels = np.empty((n, width), np.uint8)
        known = np.full((n, width), 255, np.uint8) if self._held.unknown else None
        corrected = np.zeros(n, np.bool_) if self._held.corrected else None
        for places, (bits, sure, marks) in self._gather(positions, _bits):
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
        asked = self._send(_similar, sealed, (rows, factor))
        here = [
            _similar(self._open, *own, rows, factor) for n, own in parts if n == len(self._segments)
        ]
        best, alike = np.full(m, -1, np.int64), np.full(m, -np.inf)
        answers = [*self._collect(asked), *here]
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
        return _ShardedExamples(self)

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

    def sum(self, summand: Summand, along: Any, leaf: int, mapped: _ShardedMapped | None) -> Sums:
        """Return the sum over all leaves: one partial sum for each segment, added in the tree."""
        parts = [*self._along(along)]
        if mapped is None:
            asked = self._send(_partial, parts, (summand, leaf))
        else:
            shared = (summand, leaf, mapped.kept)
            asked = self._send(_partial, parts, shared, mapping=(mapped.parcel,))
        last = []
        if len(self._open):
            rest = None if along is None else along[int(self._offsets()[-2]) :]
            here = self._open_examples(leaf) if mapped is None else mapped.here
            number = int(self._open.numbers(np.array([0]))[0]) // self._size
            last = [(number, here.sum(summand, rest))]
        sums = [
            (segment.number, tuple(np.array(part) for part in answer))
            for (segment, _), answer in zip(parts, self._collect(asked), strict=True)
        ]
        return add_in_tree([*sums, *last])

    def _open_examples(self, leaf: int) -> Examples:
        here = self._open.examples()
        here.leaf = leaf
        return here

    def gather(self, function: Callable[[Rows], Any], leaf: int, mapped: _ShardedMapped) -> Any:
        """Return a function of mapped rows, one below the other."""
        parts = [(segment, (segment.start,)) for segment in self._segments if len(segment)]
        shared = (function, leaf, mapped.kept)
        asked = self._send(_gathered, parts, shared, mapping=(mapped.parcel,))
        here = [mapped.here.gather(function)] if len(self._open) else []
        return np.concatenate([*self._collect(asked), *here])

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
        folder = _saving.get()
        if folder is not None:
            return self._save(folder)
        dumps = self._ask_all(_dump_of, lambda segment: (segment.start,))
        return _joined([*dumps, self._open.dump()], self._held, self.n_forgotten)

    def _save(self, folder: Path) -> Dump:
        """Write what is not in files yet, and link the files into ``folder``."""
        stale = [n for n, segment in enumerate(self._segments) if segment.changes]
        paths = {n: self._new_path(self._segments[n].number) for n in stale}
        self._ask(_write_to, [(self._segments[n], (paths[n],)) for n in stale])
        for n in stale:
            self._segments[n] = replace(self._segments[n], path=paths[n], changes=())
        entries = []
        for segment in self._segments:
            name = os.path.basename(segment.path)
            _link(Path(segment.path), folder / name)
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


def _link(source: Path, target: Path) -> None:
    """Make a file appear in another folder too; files of segments are never written again."""
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:  # another file system
        temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex}.tmp")
        shutil.copyfile(source, temporary)
        os.replace(temporary, target)


class _ShardedExamples(Examples):
    """The examples of a sharded store: sums are made where the rows are."""

    def __init__(self, store: ShardedStore) -> None:
        self.store, self.leaf = store, _examples.LEAF
        self.shape, self.sparse = (len(store), store.n_features), store.sparse

    def sum(self, summand: Summand, along: npt.NDArray[Any] | None = None) -> Sums:
        return self.store.sum(summand, along, self.leaf, None)

    def map(self, function: Callable[[Rows], Rows], keep: bool) -> Mapped:
        return _ShardedMapped(self, function, keep)

    def take(self, positions: Positions) -> tuple[Rows, Labels]:
        return self.store.take(positions), self.store.labels(positions)

    def every(self) -> tuple[Rows, Labels]:
        return self.take(np.arange(len(self)))


class _ShardedMapped(Mapped):
    """A function of the rows of a sharded store; shards keep what they made, if asked to."""

    def __init__(
        self, source: _ShardedExamples, function: Callable[[Rows], Rows], keep: bool
    ) -> None:
        self.store, self.leaf = source.store, source.leaf
        self.here = self.store._open_examples(self.leaf).map(function, keep)
        self.parcel = _ray().put(_ray().cloudpickle.dumps(function))
        self.kept = uuid.uuid4().hex if keep else None
        if self.kept is not None:
            weakref.finalize(self, self.store._home.unmapped.append, self.kept)

    def sum(self, summand: Summand, along: npt.NDArray[Any] | None = None) -> Sums:
        return self.store.sum(summand, along, self.leaf, self)

    def gather(self, function: Callable[[Rows], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        made: npt.NDArray[Any] = self.store.gather(function, self.leaf, self)
        return made


# ---------------------------------------------------------------------- models in folders
def save(
    model: StreamClassifier,
    folder: str | os.PathLike[str],
    *,
    extra: dict[str, Any] | None = None,
) -> None:
    """Write a model that keeps its examples in a :class:`RayStore` to a folder.

    The folder gets the segments' files, which are linked rather than copied where the file system
    can, and ``state.tgs`` with all the rest.  Saving again into the same folder writes what has
    changed only; until ``state.tgs`` is replaced, the older model stays whole.  All of it in one
    file is :func:`tagstream.save`.
    """
    target = Path(folder).absolute()
    target.mkdir(parents=True, exist_ok=True)
    token = _saving.set(target)
    try:
        state = model.to_state()
    finally:
        _saving.reset(token)
    stored = state["learner"].get("store")
    if not isinstance(stored, dict) or "segments" not in stored:
        raise ValueError(
            f"model must keep its examples in a RayStore, got {type(model).__name__} which does "
            "not; use tagstream.save"
        )
    persist.write_state(target / STATE, type(model).__name__, state, extra)
    used = {entry["file"] for entry in stored["segments"]}
    for path in target.glob("*.npz"):
        if path.name not in used:
            path.unlink(missing_ok=True)


def load(
    folder: str | os.PathLike[str], store: RayStore | None = None
) -> tuple[StreamClassifier, dict[str, Any]]:
    """Return the model that a folder holds, and the ``extra`` values saved with it.

    Parameters
    ----------
    folder : path
    store : RayStore, optional
        Where its examples are to be kept; by default two shards on this machine.  Their number
        may differ from that of the model which was saved, the size of segments may not.
    """
    source = Path(folder).absolute()

    def restore(state: dict[str, Any]) -> dict[str, Any]:
        stored = state["learner"].get("store")
        if not isinstance(stored, dict) or "segments" not in stored:
            raise ValueError("it must be the state of a sharded model; use tagstream.load")
        stored["folder"] = str(source)
        kept = RayStore(segment=stored["segment"]) if store is None else store
        return {**state, "params": {**state["params"], "store": kept}}

    return persist.load_state(source / STATE, restore)
