"""``tagstream learn``: a stream into a model file, safe against any interruption."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagstream.cli.options import (
    METHODS,
    ChunkOption,
    DataArgument,
    ModelOption,
    ParamOption,
    QuietOption,
    SeedOption,
    complete,
    new_model,
    params_of,
    reads,
    settings,
)
from tagstream.cli.output import Bar, Failed, say, show_compiling
from tagstream.cli.records import (
    Chunk,
    Reading,
    check_features,
    download,
    is_data_set,
    name_of,
    skip,
)

if TYPE_CHECKING:
    from tagstream.base import StreamClassifier

# How many sources a model remembers the positions of.
MOST_SOURCES = 1000


class Stopped(BaseException):
    """A signal asked to stop while nothing was being changed."""


class Stop:
    """Signals that wait while a change of state is under way."""

    def __init__(self) -> None:
        self.asked = 0
        self._busy = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):  # not in the main thread
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        twice, self.asked = self.asked, number
        if twice:
            raise KeyboardInterrupt
        if not self._busy:
            raise Stopped

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Finish what is inside before a signal is heeded."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        if self.asked:
            raise Stopped


class Keeper:
    """Saves a model as it learns, and remembers how far each source was read."""

    def __init__(self, model: StreamClassifier, extra: dict[str, Any], path: str, every: int):
        self.model, self.extra, self.path, self.every = model, extra, path, every
        self.whole = True
        self._n_since = 0
        self._saved_at, self._cost = time.monotonic(), 0.0
        self._stamp = self._look()

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def learn(self, chunk: Chunk, source: str, position: dict[str, Any] | None) -> int:
        """Learn records and note how far ``source`` was read; save when it is time.

        Records without labels are passed over; return how many were learnt.
        """
        known = chunk.labelled()
        self.whole = False
        if len(known):
            ids = known.ids
            if ids is not None:
                first = getattr(self.model, "n_seen_", 0)
                ids = [first + i if name is None else name for i, name in enumerate(ids)]
            try:
                self.model.partial_fit(known.X, known.Y, classes=known.classes, ids=ids)
            except ValueError:
                self.whole = True  # a rejected call changes nothing
                raise
        sources = self.extra["sources"]
        if position is not None:
            sources.pop(source, None)
            sources[source] = position
        for oldest in [*sources][:-MOST_SOURCES]:
            del sources[oldest]
        self._n_since += len(chunk)
        self.whole = True
        # Saving a large model takes long: it may cost a fifth of the time at most.
        if self._n_since >= self.every and time.monotonic() - self._saved_at >= 4 * self._cost:
            self.save()
        return len(known)

    def save(self) -> None:
        """Save, unless there is nothing new or a learning step was broken off."""
        from tagstream import persist

        if not self.whole or not hasattr(self.model, "n_seen_") or self._n_since == 0:
            return
        if self._look() != self._stamp:
            raise Failed(
                f"{self.path}: another process has written this model meanwhile; "
                "what was learnt since the last checkpoint is not saved"
            )
        start = time.monotonic()
        persist.save(self.model, self.path, extra=self.extra)
        self._stamp, self._n_since = self._look(), 0
        self._saved_at = time.monotonic()
        self._cost = self._saved_at - start


def _open_model(
    path: str, method: str | None, params: dict[str, Any], seed: int, asked: Reading
) -> tuple[StreamClassifier, dict[str, Any]]:
    """Return the model to go on with, or a new one, and what is saved with it."""
    from tagstream import persist
    from tagstream.data import Hashing

    folder = Path(os.path.realpath(path)).parent
    if not os.access(folder, os.W_OK):
        raise Failed(f"{path}: the model cannot be saved: {folder} is no directory to write to")
    persist.remove_leftovers(path)
    extra: dict[str, Any] = {"reading": {}, "sources": {}}
    if not Path(path).exists():
        extra["hashing"] = asdict(Hashing(**asked.hashing))
        return new_model(method or "oml", params, seed), extra
    model, saved = persist.load_with_extra(path)
    extra |= {"hashing": asdict(Hashing()), **saved}
    if method is not None and METHODS.get(method) != type(model).__name__:
        raise typer.BadParameter(
            f"the learner of {path} must stay {type(model).__name__}, got --method {method}"
        )
    has = {**model.get_params(deep=False), **extra["hashing"]}
    for key, value in (settings(method or "", params) | asked.hashing).items():
        if key not in has or has[key] != value:
            raise typer.BadParameter(
                f"{key} of {path} must stay {has.get(key)!r}, got {value!r}; it is for a new model"
            )
    return model, extra


def _n_done(data: str, before: dict[str, Any] | None, quiet: bool) -> int:
    """Return how many records of DATA the model has learnt, by the position it remembers."""
    if before is None:
        return 0
    from tagstream.data import Tally

    if not is_data_set(data) and not Tally.begins_with(data, before):
        say(f"{data} is not the file learnt before; it is read from its start", quiet)
        return 0
    done = int(before["records"])
    say(f"{done:,} records of {data} were learnt before", quiet)
    return done


@reads(hashing=True)
def learn(
    data: DataArgument,
    model: ModelOption,
    reading: Reading,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="|".join(METHODS),
            help="The learner of a new model.  [default: oml]",
            autocompletion=complete([*METHODS]),
        ),
    ] = None,
    param: ParamOption = None,
    every: Annotated[
        int, typer.Option("--every", min=1, help="Save after so many records.")
    ] = 1000,
    again: Annotated[
        bool, typer.Option("--again", help="Learn DATA from its start, though it was learnt.")
    ] = False,
    n_features: Annotated[
        int | None, typer.Option("--features", min=1, help="LIBSVM on standard input: how many.")
    ] = None,
    chunk: ChunkOption = 256,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Learn from DATA; make the model file, or go on with it.

    The model is saved as it learns. When a run is stopped or killed, the same command goes on
    after the last record saved: no record of a file is learnt twice, and the model in the end is
    the one of an undisturbed run. What was added to a file later is learnt by the same command too.
    Records without labels are passed over.

    \b
    Examples:
      tagstream learn posts.jsonl --model m.tgs
      cat more.jsonl | tagstream learn - --model m.tgs
      tagstream learn songs.csv --labels -6 --method knn -p n_neighbors=5 -m songs.tgs
      tagstream learn posts.csv --text body --labels tags --sep "|" -m posts.tgs

    \b
    A record of posts.jsonl is one line:
      {"id": 7, "text": "Where to swim in May?", "y": ["travel", "sea"]}
    "x" in the place of "text" may hold a list of numbers or an object of named values.
    """
    learner, extra = _open_model(model, method, params_of(param), seed, reading)
    reading = replace(reading, hashing=extra["hashing"]).merged(extra["reading"])
    download(data, quiet)
    by_name = is_data_set(data)
    source = f"data set {data.lower()}" if by_name else os.path.realpath(data)
    n_done = 0 if again or data == "-" else _n_done(data, extra["sources"].get(source), quiet)
    n_features = getattr(learner, "n_features_in_", n_features)
    if n_features is None and data != "-" and not by_name and reading.kind(data) == "libsvm":
        n_features = reading.width(data)
    from tagstream.data import Tally

    tally = None if by_name else Tally(data)
    keeper = Keeper(learner, extra, model, every)
    show_compiling(quiet)
    n_read, n_learnt, stopped = n_done, 0, 0
    with Stop() as stop, Bar("learning", quiet) as bar:
        try:
            for part in skip(reading.chunks(data, chunk, n_features, tally=tally), n_done):
                check_features(part, learner, extra, data)
                with stop.held():
                    if n_learnt == 0:
                        extra["reading"] |= reading.to_save(data, part)
                        if part.features is not None:
                            extra["features"] = list(part.features)
                    n_read += len(part)
                    position = {"records": n_read} | (tally.so_far() if tally else {})
                    n_learnt += keeper.learn(part, source, None if data == "-" else position)
                bar(n_read)
        except (Stopped, KeyboardInterrupt):
            stopped = stop.asked or signal.SIGINT
        finally:
            with contextlib.suppress(Stopped), stop.held():
                keeper.save()
    if hasattr(learner, "n_seen_"):
        passed = n_read - n_done - n_learnt
        note = f" ({passed:,} without labels passed over)" if passed else ""
        knows = f"{model} has seen {learner.n_seen_:,} and knows {len(learner.classes_):,} labels"
        say(f"{n_learnt:,} records learnt{note}; {knows}", quiet)
    elif not stopped:
        raise Failed(f"{name_of(data)}: must hold at least one record with labels, got none")
    if stopped:
        how = "the same command without --again" if again else "the same command"
        then = "what was learnt is kept" if data == "-" else f"{how} goes on from here"
        say(f"stopped; {then}", quiet)
        raise typer.Exit(128 + stopped)
