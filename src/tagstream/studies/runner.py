"""One learner on one stream, predicted and then learnt item by item, under both evaluators.

The two studies walk through a stream in the same way and differ in how they count, so one run
gives the numbers of both.  A learner that gives scores and can decide by several rules is measured
by each of them in the same run: what it learns does not depend on the decision.

Time is processor time of this process, so other work on the machine does not count.  It includes
what the evaluators take, the same for all learners.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream import records as data
from tagstream.evaluation import evaluate
from tagstream.evaluation.evaluators import EVALUATORS, Evaluator
from tagstream.paper.record_files import versions
from tagstream.studies.learners import Learner
from tagstream.studies.records import add_record, key_of, read_folder

__all__ = ["DEFAULT", "LIMIT", "OutOfTime", "Watcher", "load_stream", "run_stream", "run_streams"]

LIMIT = 600.0  # seconds of processor time that a learner has for a stream
N_WARM = 640  # items that have everything compiled: choices of a fit, and the way of single items
DEFAULT = "default"  # the decision of ``predict``
SHOWN = ("micro_f1", "macro_f1", "example_f1", "hamming_loss", "subset_accuracy")


class OutOfTime(Exception):
    """The learner has taken longer than it may."""


class Watcher:
    """What is given to ``prequential`` as ``watch``: counts predictions, and looks at the clock.

    Parameters
    ----------
    model : learner
        Asked for the labels of other decisions.
    rules : sequence of str
    limit : float
        Seconds of processor time after which :class:`OutOfTime` is raised.
    """

    def __init__(self, model: Any, rules: Sequence[str], limit: float) -> None:
        self.model = model
        self.limit = limit
        self.n_items = 0
        self.counted: dict[str, dict[str, Evaluator]] = {
            rule: {name: make() for name, make in EVALUATORS.items()} for rule in (DEFAULT, *rules)
        }
        self._start = process_time()

    def __call__(self, Y_true: npt.NDArray[Any], Y_pred: Any, scores: Any) -> None:
        """Count a block, by every decision."""
        for rule, evaluators in self.counted.items():
            labels = Y_pred
            if rule != DEFAULT and Y_pred.shape[1]:
                labels = self.model.labels_of(scores, rule, next=True)
            for evaluator in evaluators.values():
                evaluator.update(Y_true, np.asarray(labels))
        self.n_items += len(Y_true)
        if process_time() - self._start > self.limit:
            raise OutOfTime

    def measures(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return the measures by decision and evaluator."""
        found = {
            rule: {name: evaluator.measures() for name, evaluator in evaluators.items()}
            for rule, evaluators in self.counted.items()
        }
        return {
            rule: {
                name: {m: value for m, value in measures.items() if m in SHOWN}
                for name, measures in by_name.items()
            }
            for rule, by_name in found.items()
        }


def load_stream(name: str) -> data.Dataset:
    """Return a data set by name, dense if most of its entries are there."""
    return data.load(name).dense_if_full()


def run_stream(
    learner: Learner, stream: data.Dataset, *, seed: int = 0, limit: float = LIMIT
) -> dict[str, Any]:
    """Run a learner through a stream; return its record.

    A learner that raises an error or runs out of time has a record too: it says so in ``failed``,
    and its measures are those of the items before.
    """
    n, p = stream.X.shape
    record: dict[str, Any] = {
        "key": _key(learner, stream, seed),
        "part": "studies",
        "stream": stream.name,
        "n": n,
        "p": p,
        "q": stream.Y.shape[1],
        "cardinality": float(stream.cardinality),
        "learner": learner.name,
        "title": learner.title,
        "family": learner.family,
        "seed": seed,
        "limit": limit,
        "versions": versions("river", "capymoa"),
        "failed": None,
    }
    watch: Watcher | None = None
    start = process_time()
    model = None
    try:
        model = learner.make(seed)
        warm_up(model, learner, stream, seed)
        start = process_time()
        watch = Watcher(model, learner.rules, limit)
        evaluate.prequential(model, stream.X, stream.Y, watch=watch, every=n, window=1)
    except OutOfTime:
        record["failed"] = f"out of time after {limit:.0f} s"
    except Exception as error:
        record["failed"] = f"{type(error).__name__}: {error}"[:200]
    seconds = process_time() - start
    n_items = 0 if watch is None else watch.n_items
    return record | {
        "n_items": n_items,
        "seconds": seconds,
        "seconds_per_item": seconds / n_items if n_items else None,
        "nbytes": memory_of(model),
        "result": {} if watch is None else watch.measures(),
    }


def warm_up(model: Any, learner: Learner, stream: data.Dataset, seed: int) -> None:
    """Have code compiled, on another learner, before the clock starts."""
    if learner.family == "tagstream" or hasattr(model, "to_state"):
        some = slice(0, min(N_WARM, len(stream.Y)))
        evaluate.prequential(learner.make(seed), stream.X[some], stream.Y[some])


def memory_of(model: Any) -> int | None:
    """Return the bytes of a learner: what it says itself, else the length of its pickle."""
    try:
        nbytes = getattr(model, "nbytes_", None)
        return len(pickle.dumps(model)) if nbytes is None else int(nbytes)
    except Exception:  # not fitted, or what cannot be pickled
        return None


def _key(learner: Learner, stream: data.Dataset, seed: int) -> str:
    n, p = stream.X.shape
    return key_of(
        {"stream": stream.name, "n": n, "p": p, "q": stream.Y.shape[1]}
        | {"learner": learner.name, "rules": learner.rules, "seed": seed}
    )


def run_streams(
    folder: str | os.PathLike[str],
    streams: Sequence[str],
    learners: Sequence[Learner],
    *,
    seed: int = 0,
    limit: float = LIMIT,
    fresh: bool = False,
    progress: Any = None,
    load: Callable[[str], data.Dataset] = load_stream,
) -> list[dict[str, Any]]:
    """Run learners on streams, one after the other; what has a record already is not run again.

    Parameters
    ----------
    folder : path
        Gets one file for each stream.
    streams : sequence of str
        Names of data sets; they must be there.
    learners : sequence of Learner
    seed : int
    limit : float
        Seconds for each learner on each stream.
    fresh : bool
        Run again what has a record.
    progress : callable, optional
        Called with (cells done, cells in all) and what comes next.
    load : callable
        Makes a stream of its name.

    Returns
    -------
    list of dict
        The records of these streams and learners.
    """
    kept = {record["key"]: record for record in read_folder(folder)}
    done: list[dict[str, Any]] = []
    for name in streams:
        stream = load(name)
        for learner in learners:
            if progress is not None:
                progress(len(done), len(streams) * len(learners), f"{learner.title} on {name}")
            record = None if fresh else kept.get(_key(learner, stream, seed))
            if record is None:
                record = run_stream(learner, stream, seed=seed, limit=limit)
                add_record(Path(folder) / f"{name}.jsonl", record)
            done.append(record)
    return done
