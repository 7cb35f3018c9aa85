"""``--ray``: bulk prediction with Ray Data, and learning with the examples on shards.

This module holds what ``predict`` and ``learn`` call when the option is given; nothing of it is
imported otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagstream.cli.output import Failed

if TYPE_CHECKING:
    from tagstream.learners.estimator import StreamClassifier

HERE = "here"

RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="here|ADDRESS",
        help="Use a Ray cluster: one started on this machine, or a running one.",
    ),
]
ShardsOption = Annotated[
    int, typer.Option("--shards", min=1, help="With --ray: over how many processes.")
]


def _ray() -> Any:
    try:
        import ray.data
    except ImportError:
        raise Failed("--ray needs Ray Data; pip install 'tagstream[ray]'") from None
    return ray


def connect(address: str) -> Callable[[], None]:
    """Connect to a cluster, and return what ends the connection."""
    ray = _ray()
    if ray.is_initialized():
        return lambda: None
    if address == HERE:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    else:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    end: Callable[[], None] = ray.shutdown
    return end


class _Worker:
    """Makes its function once, loading the model, and applies it to one batch after another."""

    def __init__(self, make: Callable[[], Callable[[Any], str]]) -> None:
        self._answer = make()

    def __call__(self, table: dict[str, Any]) -> dict[str, Any]:
        ray = _ray()
        return {"text": [self._answer(ray.cloudpickle.loads(part)) for part in table["batch"]]}


def in_order(
    read: Callable[[], Iterator[Any]],
    make: Callable[[], Callable[[Any], str]],
    address: str,
    shards: int,
) -> Iterator[str]:
    """Yield ``make()(batch)`` of each batch of ``read()``, in the order of the file.

    Ray Data runs ``read`` in one process, which parses the file as a stream, and the rest in
    ``shards`` others, each of which calls ``make`` once.  At most a few batches per process are
    under way, so the file may be larger than the memory.
    """
    ray = _ray()
    end = connect(address)
    try:
        from ray.data import DataContext, Datasource, ReadTask
        from ray.data.block import BlockMetadata

        class Records(Datasource):  # type: ignore[misc]
            def estimate_inmemory_data_size(self) -> int | None:
                return None

            def get_read_tasks(self, *_: Any, **__: Any) -> list[Any]:
                nothing_known = BlockMetadata(None, None, None)
                return [ReadTask(lambda: _blocks(read), nothing_known)]

        context = DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        made = ray.data.read_datasource(Records(), override_num_blocks=1).map_batches(
            _Worker, fn_constructor_args=(make,), batch_size=1, batch_format="numpy",
            num_cpus=0, concurrency=shards,
        )  # fmt: skip
        for row in made.iter_rows():
            yield row["text"]
    finally:
        end()


def _blocks(read: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in read():
        yield pa.table({"batch": [_ray().cloudpickle.dumps(batch)]})


def on_shards(
    learner: StreamClassifier, address: str, shards: int, folder: str | None = None
) -> tuple[StreamClassifier, Any]:
    """Return the learner with its examples on shards, and the store, to be closed in the end.

    What it learns, and the file that it is saved to, do not differ from those of one process.
    """
    from tagstream.files.ray import RayStore

    if "store" not in learner.get_params(deep=False):
        raise Failed(f"--ray needs a learner that stores examples, got {type(learner).__name__}")
    _ray()
    where = None if address == HERE else address
    store = RayStore(shards, folder=None if folder is None else os.fspath(folder), address=where)
    if not hasattr(learner, "n_seen_"):
        learner.set_params(store=store)
        return learner, store
    state = learner.to_state()
    state["params"]["store"] = store
    return type(learner).from_state(state), store
