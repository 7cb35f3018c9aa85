"""A benchmark of new, late and missing labels.

Streams of real taggers are incomplete in three ways, and each has a knob with three positions:

* **new**: half of the labels, drawn by the seed, come into being after 0, ¼ or ½ of the stream.
  Before, nobody has used them: they are absent, in what is taught and in what is measured.
* **late**: labels are learnt 0, 100 or 1,000 items after their item was predicted.
* **missing**: 0, 30 or 60 % of the entries that are taught are not known, drawn by the seed.
  Answers are measured against all labels.  What is missing at 30 % is also missing at 60 %.

That makes 27 settings for each stream.  Each item is predicted, then learnt when its labels come,
in the order of the file.  Items before the first labels come are not measured, since nothing can
be known; afterwards an item without an answer counts as one for which nothing was suggested.  A
learner that cannot be told "not known" is told "absent".
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream import records as data
from tagstream.evaluation import evaluate
from tagstream.evaluation.evaluators import PlainScores
from tagstream.paper.record_files import versions
from tagstream.studies.learners import Learner
from tagstream.studies.records import add_record, key_of, read_folder
from tagstream.studies.runner import OutOfTime, load_stream, memory_of, warm_up

__all__ = [
    "LATE",
    "LIMIT",
    "MISSING",
    "NEW",
    "SETTINGS",
    "STREAMS",
    "Incomplete",
    "Setting",
    "one_knob",
    "run",
]

NEW = (0.0, 0.25, 0.5)
LATE = (0, 100, 1000)
MISSING = (0.0, 0.3, 0.6)
STREAMS = {"yeast": 2000, "scene": 2000, "enron": 1702}  # the first items of each
LIMIT = 600.0  # seconds of processor time for each cell
SEED = 20  # of what is new and what is missing: the same for everyone

Labels = npt.NDArray[np.float64]


@dataclass(frozen=True, order=True)
class Setting:
    """How labels are incomplete; see the module."""

    new: float = 0.0
    late: int = 0
    missing: float = 0.0


SETTINGS = tuple(Setting(*knobs) for knobs in product(NEW, LATE, MISSING))


def one_knob() -> tuple[Setting, ...]:
    """Return the settings in which at most one knob is turned.

    Examples
    --------
    >>> len(one_knob()), len(SETTINGS)
    (7, 27)
    """
    return tuple(s for s in SETTINGS if sum(map(bool, asdict(s).values())) <= 1)


@dataclass(frozen=True)
class Incomplete:
    """The labels of a stream under a setting.

    Attributes
    ----------
    Y : array of shape (n, q)
        By which answers are measured.
    taught : array of shape (n, q)
        What is learnt: NaN where it is not known.
    new : array of int
        The labels that come into being.
    start : int
        The item at which they do.
    """

    Y: npt.NDArray[np.uint8]
    taught: Labels
    new: npt.NDArray[np.int64]
    start: int

    @classmethod
    def of(cls, Y: npt.NDArray[Any], setting: Setting, seed: int = SEED) -> Incomplete:
        """Hide labels of a stream.

        Examples
        --------
        >>> Y = np.ones((8, 2), np.uint8)
        >>> hidden = Incomplete.of(Y, Setting(new=0.5, missing=0.3))
        >>> hidden.Y[:, hidden.new].ravel().tolist(), hidden.start
        ([0, 0, 0, 0, 1, 1, 1, 1], 4)
        >>> int(np.isnan(hidden.taught).sum())
        6
        """
        rng = np.random.default_rng(seed)
        n, q = Y.shape
        new = np.sort(rng.permutation(q)[: q // 2])
        start = round(setting.new * n)
        true = np.array(Y, np.uint8)
        true[:start, new] = 0
        taught = true.astype(np.float64)
        taught[rng.random((n, q)) < setting.missing] = np.nan
        return cls(true, taught, new if start else new[:0], start)


def run_cell(
    learner: Learner,
    stream: data.Dataset,
    setting: Setting,
    *,
    seed: int = 0,
    limit: float = LIMIT,
) -> dict[str, Any]:
    """Run a learner on a stream under a setting; return its record."""
    hidden = Incomplete.of(np.asarray(stream.Y), setting)
    taught = hidden.taught if learner.takes_unknown else np.nan_to_num(hidden.taught)
    everything, of_new = PlainScores(), PlainScores()
    n_items = 0
    start = process_time()

    def watch(Y_true: npt.NDArray[Any], Y_pred: Any, scores: Any) -> None:
        nonlocal n_items
        predicted = np.zeros(Y_true.shape, np.uint8)  # no answer: nothing suggested
        predicted[:, : Y_pred.shape[1]] = Y_pred
        if n_items > setting.late:
            everything.update(Y_true, predicted)
            if len(hidden.new) and n_items >= hidden.start:
                of_new.update(Y_true[:, hidden.new], predicted[:, hidden.new])
        n_items += len(Y_true)
        if process_time() - start > limit:
            raise OutOfTime

    failed, model = None, None
    try:
        model = learner.make(seed)
        start = process_time()
        evaluate.prequential(
            *(model, stream.X, hidden.Y),
            taught=taught if np.isnan(taught).any() else taught.astype(np.uint8),
            delay=setting.late,
            every=len(hidden.Y),
            window=1,
            watch=watch,
        )
    except OutOfTime:
        failed = f"out of time after {limit:.0f} s"
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"[:200]
    seconds = process_time() - start
    measures = everything.measures()
    if failed is None and not measures:
        failed = "no labels came before the end"
    return {
        "key": _key(learner, stream, setting, seed),
        "part": "benchmark",
        "stream": stream.name,
        "n": len(hidden.Y),
        **asdict(setting),
        "learner": learner.name,
        "title": learner.title,
        "family": learner.family,
        "seed": seed,
        "versions": versions("river", "capymoa"),
        "failed": failed,
        "n_items": n_items,
        "seconds_per_item": seconds / n_items if n_items else None,
        "nbytes": memory_of(model),
        "micro_f1": measures.get("micro_f1"),
        "macro_f1": measures.get("macro_f1"),
        "hamming_loss": measures.get("hamming_loss"),
        "new_f1": of_new.measures().get("micro_f1"),
    }


def _key(learner: Learner, stream: data.Dataset, setting: Setting, seed: int) -> str:
    named = {"stream": stream.name, "n": len(np.asarray(stream.Y)), "learner": learner.name}
    return key_of({**named, **asdict(setting), "seed": seed, "of": SEED})


def benchmark_stream(name: str) -> data.Dataset:
    """Return the part of a data set that the benchmark uses."""
    whole = load_stream(name)
    n = STREAMS[name]
    return replace(whole, X=whole.X[:n], Y=whole.Y[:n])


def run(
    folder: str | os.PathLike[str],
    learners: Sequence[Learner],
    *,
    streams: Sequence[str] = (),
    settings: Sequence[Setting] = SETTINGS,
    seed: int = 0,
    limit: float = LIMIT,
    fresh: bool = False,
    progress: Any = None,
) -> list[dict[str, Any]]:
    """Run learners through the benchmark; what has a record already is not run again.

    Parameters
    ----------
    folder : path
        Gets one file for each learner: what to send with a pull request.
    learners : sequence of Learner
    streams : sequence of str
        Names of :data:`STREAMS`; all by default.
    settings : sequence of Setting
    seed : int
        Of the learners.
    limit : float
        Seconds of processor time for each cell.
    fresh : bool
        Run again what has a record.
    progress : callable, optional
        Called with (cells done, cells in all) and what comes next.
    """
    kept = {record["key"]: record for record in read_folder(folder)}
    names = tuple(streams) or tuple(STREAMS)
    done: list[dict[str, Any]] = []
    for name in names:
        stream = benchmark_stream(name)
        for learner in learners:
            warm = False
            for setting in settings:
                if progress is not None:
                    total = len(names) * len(learners) * len(settings)
                    progress(len(done), total, f"{learner.title} on {name}, {setting}")
                record = None if fresh else kept.get(_key(learner, stream, setting, seed))
                if record is None:
                    if not warm:
                        warm_up(None, learner, stream, seed)
                        warm = True
                    record = run_cell(learner, stream, setting, seed=seed, limit=limit)
                    add_record(Path(folder) / f"{_file(learner.name)}.jsonl", record)
                done.append(record)
    return done


def _file(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)
