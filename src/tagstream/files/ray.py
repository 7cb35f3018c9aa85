"""Where a user begins: the parameters of a cluster, and models saved in folders."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tagstream.checks import check_number, expect_keys
from tagstream.files import persist
from tagstream.learners.estimator import StreamClassifier
from tagstream.limits import LIMITS, Limits
from tagstream.store.local import LocalStore
from tagstream.store.ray.home import Home
from tagstream.store.ray.segments import Held, cut, n_rows, numbers_of
from tagstream.store.ray.shard import import_ray
from tagstream.store.ray.store import ShardedStore, saving

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RayStore", "load", "save"]

SEGMENT = 1 << 16
STATE = "state.tgs"  # of a saved folder


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

    _limits: ClassVar[Limits] = LIMITS

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
        self._homes: weakref.WeakSet[Home] = weakref.WeakSet()
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
        ray = import_ray()
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
            import_ray().shutdown()
            self._started = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_segment(self) -> None:
        leaves, rest = divmod(self.segment, self._limits.leaf)
        if rest or leaves.bit_count() != 1:
            raise ValueError(
                f"segment must be {self._limits.leaf} times a power of two, got {self.segment}"
            )

    def open(self, n_features: int, *, sparse: bool, window: int | None = None) -> ShardedStore:
        """Return an empty store."""
        self._check_segment()
        self.connect()
        home = Home(self.shards, self.folder, self.timeout, self.cpus)
        self._homes.add(home)
        first = LocalStore(n_features, sparse=sparse, limits=self._limits)
        return ShardedStore(home, first, self.segment, window)

    def load(self, state: Any, *, sparse: bool, window: int | None) -> ShardedStore:
        """Return a store with what a file or a saved folder holds."""
        if isinstance(state, dict) and "segments" in state:
            return self._load_folder(state, sparse=sparse, window=window)
        LocalStore.load(state, sparse=sparse, window=window)  # it must make sense as a whole
        n, p = n_rows(state), state["shape"][0]
        made = self.open(p, sparse=sparse, window=window)
        numbers, size = numbers_of(state), self.segment
        made.set_past(
            Held(
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
            part = LocalStore.load(cut(state, start, stop), sparse=sparse, window=None)
            made.add_sealed(part, number)
            start = stop
        rest = cut(state, start, n)
        made.set_open(LocalStore.load(rest, sparse=sparse, window=None, limits=self._limits))
        return made

    def _load_folder(self, state: Any, *, sparse: bool, window: int | None) -> ShardedStore:
        expect_keys(
            "the sharded store", state, "segments", "segment", "open", "held", "n_forgotten",
            "folder",
        )  # fmt: skip
        if state["segment"] != self.segment:
            raise ValueError(f"segment must be {state['segment']} as saved, got {self.segment}")
        rest = LocalStore.load(state["open"], sparse=sparse, window=None, limits=self._limits)
        held = Held(**{name: bool(value) for name, value in state["held"].items()})
        made = self.open(rest.facts.n_features, sparse=sparse, window=window)
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
    file is :func:`tagstream.save_model`.
    """
    target = Path(folder).absolute()
    target.mkdir(parents=True, exist_ok=True)
    token = saving.set(target)
    try:
        state = model.to_state()
    finally:
        saving.reset(token)
    stored = state["learner"].get("store")
    if not isinstance(stored, dict) or "segments" not in stored:
        raise ValueError(
            f"model must keep its examples in a RayStore, got {type(model).__name__} which does "
            "not; use tagstream.save_model"
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
            raise ValueError("it must be the state of a sharded model; use tagstream.load_model")
        stored["folder"] = str(source)
        kept = RayStore(segment=stored["segment"]) if store is None else store
        return {**state, "params": {**state["params"], "store": kept}}

    return persist.load_state(source / STATE, restore)
