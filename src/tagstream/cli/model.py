"""Model files as commands use them: opened with care, changed by one process at a time."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tagstream.cli.output import Failed
from tagstream.cli.records import check_saved
from tagstream.learners.keeping import keeps_items

if TYPE_CHECKING:
    from tagstream.records import Batch
    from tagstream.tagger import Learnt, Tagger

# How many sources a model remembers the positions of.
MOST_SOURCES = 1000
DUE = "refit_due"  # under this name a model remembers that it is to be fitted
SHARE = 64  # a fit is worth it when more than a 64th of the stored items came since the last one
LONGEST_NAME = 217  # bytes; a file system takes 255, a temporary file's name has 38 more


def open_tagger(path: str, encoder: str | None = None) -> Tagger:
    """Return the tagger of a model file, with what is saved beside it checked."""
    from tagstream.checks import DataError
    from tagstream.tagger import Tagger

    _find_functions(encoder)
    tagger = Tagger.open(path, encoder=encoder)
    reading = tagger.extra.setdefault("reading", {})
    sources = tagger.extra.setdefault("sources", {})
    is_sound = check_saved(reading) and _are_positions(sources)
    if not is_sound or tagger.extra.get(DUE, True) is not True:
        raise DataError(f"{path}: what is saved about reading does not make sense")
    return tagger


def find_item(tagger: Tagger, written: str) -> Any:
    """Return the id that was written, a string or else a number; None if no item has it."""
    learner = tagger.learner
    if not keeps_items(learner):
        return None
    for kind in (str, int, float):
        with contextlib.suppress(ValueError):
            if learner.has_item(kind(written)):
                return kind(written)
    return None


def _find_functions(encoder: str | None) -> None:
    """Let ``module:function`` be found in the folder where the command is given."""
    if encoder is not None and ":" in encoder and "" not in sys.path:
        sys.path.insert(0, "")


def new_encoder(name: str) -> Any:
    """Return the encoder of that name."""
    from tagstream.features import Encoder

    _find_functions(name)
    return Encoder(name)


def _are_positions(sources: object) -> bool:
    if not isinstance(sources, dict):
        return False
    for position in sources.values():
        if not isinstance(position, dict) or "records" not in position:
            return False
        for key, value in position.items():
            if key == "sha256":
                if not isinstance(value, str):
                    return False
            elif key not in ("records", "bytes") or type(value) is not int or value < 0:
                return False
        if ("sha256" in position) != ("bytes" in position):
            return False
    return True


# ---------------------------------------------------------------------- one process at a time
@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold a model file: nobody else may change it until this is left."""
    from tagstream.files import locks, persist

    folder, name = os.path.split(os.path.realpath(path))
    if len(os.fsencode(name)) > LONGEST_NAME:
        raise Failed(
            f"{path}: the name of a model must have at most {LONGEST_NAME} bytes, "
            f"got {len(os.fsencode(name))}"
        )
    if not os.access(folder, os.W_OK):
        raise Failed(f"{path}: the model cannot be saved: {folder} is no directory to write to")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locks.held(path))
        except BlockingIOError:
            raise Failed(
                f"{path}: another process is changing this model; try again when it is done"
            ) from None
        except OSError as error:
            raise Failed(f"{path}: the model cannot be saved: {error.strerror}") from error
        persist.remove_leftovers(path)
        yield


@contextlib.contextmanager
def changed(path: str, encoder: str | None = None) -> Iterator[Tagger]:
    """Open a model, let it be changed, and save it: all of it or nothing.

    What a change refuses is told as a failure.
    """
    if not Path(path).exists():
        raise Failed(f"{path}: must be a model file, got nothing of that name")
    with locked(path):
        tagger = open_tagger(path, encoder)
        try:
            yield tagger
        except (KeyError, ValueError) as error:
            raise Failed(f"{path}: {error.args[0] if error.args else error}") from error
        tagger.save(path)


# ---------------------------------------------------------------------- learning
class Keeper:
    """Saves a tagger as it learns, and remembers how far each source was read.

    Parameters
    ----------
    tagger : Tagger
    path : str
    every : int
        Records between two saves.
    refits : bool or None
        Whether the run ends with a refit; None: if it is worth it.

    Attributes
    ----------
    done : Learnt
        What became of the records so far.
    """

    def __init__(
        self, tagger: Tagger, path: str, every: int, *, refits: bool | None = False
    ) -> None:
        from tagstream.tagger import Learnt

        self.tagger, self.path, self.every, self.refits = tagger, path, every, refits
        self.done = Learnt()
        self.whole = True
        self.has_saved = False
        self._n_since, self._is_changed = 0, False  # records, and whether there is anything new
        self._saved_at, self._cost = time.monotonic(), 0.0
        self._stamp = self._look()

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def learn(self, batch: Batch, source: str, position: dict[str, Any] | None) -> Learnt:
        """Learn records and note how far ``source`` was read; return what became of them."""
        self.whole = False
        done = self.tagger.learn(batch)
        sources = self.tagger.extra["sources"]
        if position is not None:
            sources.pop(source, None)
            sources[source] = position
        for oldest in [*sources][:-MOST_SOURCES]:
            del sources[oldest]
        self.done += done
        self._is_changed = True
        self._n_since += len(batch) - done.unchanged
        self.whole = True
        return done

    def forget(self, ids: list[Any]) -> None:
        """Forget items."""
        self.whole = False
        for name in ids:
            self.tagger.forget(name)
        self._n_since += len(ids)
        self._is_changed = True
        self.whole = True

    @property
    def refit_is_due(self) -> bool:
        """Whether the run is to end with a refit, if no more records come.

        By itself it does if something was learnt or corrected, by this run or by one that was
        killed before its refit, and if much of what is stored came since the last fit.
        """
        from tagstream.execution.schedule import FIRST_FIT

        learner: Any = self.tagger.learner
        if self.refits is not None or not self.tagger.n_items:
            return bool(self.refits and self.tagger.n_items)
        is_changed = self.done.new or self.done.corrected or self.tagger.extra.get(DUE, False)
        if not is_changed or not hasattr(learner, "refit"):
            return False
        n = learner.n_stored_
        return bool(n >= FIRST_FIT and SHARE * learner.n_since_fit_ > n)

    def refit(self) -> None:
        """Fit the model to all its items.

        Save before: a run that is killed meanwhile leaves a file that says that a refit is due.
        """
        self.whole = False
        self.tagger.refit()
        self.tagger.extra.pop(DUE, None)
        self.refits = False  # it is done
        self._is_changed = True
        self.whole = True

    @property
    def is_due(self) -> bool:
        """Whether it is time to save; a large model takes long, a fifth of the time at most."""
        rested = time.monotonic() - self._saved_at >= 4 * self._cost
        return self._n_since >= self.every and rested

    def save(self) -> None:
        """Save, unless there is nothing new or a learning step was broken off."""
        if not self.whole or not self.tagger.n_items or not self._is_changed:
            return
        if self._look() != self._stamp:
            raise Failed(
                f"{self.path}: another process has written this model meanwhile; "
                "what was learnt since the last checkpoint is not saved"
            )
        if self.refits is not False:
            is_due = self.refit_is_due
            self.tagger.extra.pop(DUE, None)
            self.tagger.extra |= {DUE: True} if is_due else {}
        start = time.monotonic()
        self.tagger.save(self.path)
        self._stamp, self.has_saved = self._look(), True
        self._n_since, self._is_changed = 0, False
        self._saved_at = time.monotonic()
        self._cost = self._saved_at - start
