"""The run of the grid: records, time left, processes."""

from __future__ import annotations

import logging
import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from tagstream.checks import DataError
from tagstream.paper.plan import Cell, grid
from tagstream.paper.record_files import append_record, read_records, write_records
from tagstream.paper.scenarios import TEXTS, text_path
from tagstream.paper.work import run_cell
from tagstream.records import DATASETS, fetch

__all__ = ["Summary", "run"]

log = logging.getLogger(__name__)

Progress = Callable[[int, int, float], object]


def _tidy(path: Path, keys: Sequence[str]) -> None:
    """Write a file anew: the records of the grid in its order, no others; whole or not at all."""
    records = {record["key"]: record for record in read_records(path)}
    write_records(path, (records[key] for key in keys if key in records))


@dataclass
class Summary:
    """What a run did.

    Attributes
    ----------
    n_run, n_kept : int
        Cells run, and cells whose records were there already.
    missing : dict of str to str
        Data sets that are not there, and how to get them.
    failed : dict of Cell to str
        Cells that raised an error; they have no record and are run again next time.
    seconds : float
    """

    n_run: int = 0
    n_kept: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[Cell, str] = field(default_factory=dict)
    seconds: float = 0.0


class _Clock:
    """Seconds left, from the measured seconds of cells of the same kind, by their size."""

    def __init__(self, todo: Iterable[Cell], done: Mapping[Cell, float], jobs: int) -> None:
        self.left = set(todo)
        self.jobs = jobs
        self._sums: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for cell, seconds in done.items():
            self._learn(cell, seconds)

    def finish(self, cell: Cell, seconds: float) -> None:
        self.left.discard(cell)
        self._learn(cell, seconds)

    def _learn(self, cell: Cell, seconds: float) -> None:
        for kind in _kinds(cell):
            self._sums[kind][0] += seconds
            self._sums[kind][1] += cell.size

    def _estimate(self, cell: Cell) -> float:
        for kind in _kinds(cell):
            if kind in self._sums:
                seconds, size = self._sums[kind]
                return seconds / size * cell.size
        return math.nan

    def seconds_left(self) -> float:
        """NaN as long as nothing has been measured."""
        estimates = [self._estimate(cell) for cell in self.left] or [0.0]
        shared = math.fsum(estimates) / max(self.jobs, 1)
        return shared if math.isnan(shared) else max(shared, *estimates)


def _kinds(cell: Cell) -> tuple[tuple[str, ...], ...]:
    """What a cell's speed is judged by, best first."""
    return (cell.part, cell.method, cell.dataset), (cell.part, cell.method), (cell.part,), ()


def run(
    results_dir: str | os.PathLike[str],
    *,
    quick: bool = False,
    jobs: int = 2,
    data_home: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    downloads: Any = False,
    only: Collection[str] | None = None,
    fresh: bool = False,
) -> Summary:
    """Run the cells of the grid that have no record yet.

    It can be stopped at any moment and called again: records are complete lines, written one by
    one as cells finish.

    Parameters
    ----------
    results_dir : path
        Made if it is not there.
    quick : bool
        Only a small part of the grid: two data sets, two folds.  Its records are also part of the
        whole grid's.
    jobs : int
        Processes, each with one thread; 0 runs everything in this one.  Timing cells are always
        run one at a time.
    data_home : path or None
        Where the data sets are; see :func:`tagstream.data.data_home`.  Texts are looked for in the
        folder that the variable TAGSTREAM_TEXT names.
    progress : callable, optional
        Called with (cells done, cells in all, estimated seconds left; NaN while unknown).
    downloads : bool or object
        What shows the download of missing data sets; see :func:`tagstream.data.fetch`.
    only : collection of str, optional
        Names of parts, data sets and methods; of each kind that is named, only these.
    fresh : bool
        Drop the records of the selected cells first.

    Returns
    -------
    Summary
    """
    start = perf_counter()
    folder = Path(results_dir)
    folder.mkdir(parents=True, exist_ok=True)
    everything = grid()
    keys = {cell: cell.key for cell in everything}
    cells = _selected(grid(quick=quick), only)
    home = None if data_home is None else str(data_home)
    summary = Summary(missing=_missing({cell.dataset for cell in cells} - {""}, home, downloads))
    cells = [cell for cell in cells if cell.dataset not in summary.missing]
    for name, how in summary.missing.items():
        log.warning("%s is left out: %s", name, how)

    files = sorted({cell.file for cell in cells})
    if fresh:
        kept = set(everything) - set(cells)
        for file in files:
            _tidy(folder / file, [keys[c] for c in everything if c.file == file and c in kept])
    found = {r["key"]: r["seconds"] for file in files for r in read_records(folder / file)}
    done = {cell: float(found[keys[cell]]) for cell in cells if keys[cell] in found}
    todo = [cell for cell in cells if cell not in done]
    summary.n_kept = len(done)
    clock = _Clock(todo, done, jobs)
    if progress is not None:
        progress(len(done), len(cells), clock.seconds_left())
    for cell, outcome in _outcomes(_in_order(todo), home, jobs):
        if isinstance(outcome, BaseException):
            summary.failed[cell] = f"{type(outcome).__name__}: {outcome}"
            clock.left.discard(cell)
            log.error("%s failed: %s", cell, summary.failed[cell])
        else:
            append_record(folder / cell.file, outcome)
            summary.n_run += 1
            clock.finish(cell, outcome["seconds"])
        if progress is not None:
            progress(len(cells) - len(clock.left), len(cells), clock.seconds_left())
    for file in files:
        _tidy(folder / file, [keys[cell] for cell in everything if cell.file == file])
    summary.seconds = perf_counter() - start
    return summary


def _selected(cells: Sequence[Cell], only: Collection[str] | None) -> list[Cell]:
    if not only:
        return list(cells)
    names = ("part", "dataset", "method")
    kinds = {name: {getattr(cell, name) for cell in grid()} for name in names}
    known = set().union(*kinds.values()) - {""}
    if not set(only) <= known:
        wrong = sorted(set(only) - known)
        raise ValueError(f"only must hold names of {', '.join(sorted(known))}, got {wrong}")
    wanted = {kind: names & set(only) for kind, names in kinds.items() if names & set(only)}
    return [cell for cell in cells if all(getattr(cell, k) in w for k, w in wanted.items())]


def _missing(names: Collection[str], home: str | None, downloads: Any) -> dict[str, str]:
    missing = {}
    for name in sorted(names):
        try:
            if name in TEXTS:
                text_path(name)
            else:
                fetch(name, data_home=home, progress=downloads)
        except (OSError, ImportError, DataError) as error:  # noqa: PERF203
            missing[name] = str(error)
    return missing


def _in_order(cells: Sequence[Cell]) -> list[Cell]:
    """Large data sets first, so that the last cells are short; cells of one data set together."""

    def rank(cell: Cell) -> tuple[bool, bool, float, str]:
        sizes = {**TEXTS, "": 0}
        name = cell.dataset
        largest = sizes[name] if name in sizes else DATASETS[name].n
        return cell.part == "scaling", cell.part != "prequential", -largest, cell.dataset

    return sorted(cells, key=rank)


def _outcomes(
    cells: Sequence[Cell], home: str | None, jobs: int
) -> Iterator[tuple[Cell, dict[str, Any] | BaseException]]:
    """Yield each cell with its record, or with the error it raised, as they finish."""
    if jobs == 0:
        for cell in cells:
            try:
                yield cell, run_cell(cell, home)
            except Exception as error:  # noqa: PERF203
                yield cell, error
        return
    together = [cell for cell in cells if cell.part != "scaling"]
    alone = [cell for cell in cells if cell.part == "scaling"]
    for some, workers in ((together, jobs), (alone, 1)):
        if some:
            yield from _in_processes(some, home, workers)


def _in_processes(
    cells: Sequence[Cell], home: str | None, workers: int
) -> Iterator[tuple[Cell, dict[str, Any] | BaseException]]:
    before = set(multiprocessing.active_children())
    with _one_thread():
        pool = ProcessPoolExecutor(
            min(workers, len(cells)), multiprocessing.get_context("spawn"), _start_worker
        )
        try:
            waiting: dict[Future[dict[str, Any]], Cell] = {
                pool.submit(run_cell, cell, home): cell for cell in cells
            }
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    cell = waiting.pop(future)
                    yield cell, future.exception() or future.result()
        except BaseException:
            for process in set(multiprocessing.active_children()) - before:
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        pool.shutdown()


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes started inside have one thread each for linear algebra."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start_worker() -> None:
    """Leave interrupts and messages to the parent, and end with it however it ends."""
    logging.getLogger("tagstream").addHandler(logging.NullHandler())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
