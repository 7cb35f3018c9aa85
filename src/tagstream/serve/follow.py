"""Readers beside the writer: a replica that follows the log of a folder, and changes nothing.

A replica opens the newest snapshot, replays the events after it, and goes on reading the log.  The
state of a tagger is a function of its events in order, so at every position the replica answers
exactly as the writer did there.  It is behind by what it has not read yet, which it can tell.

The folder must be seen as a local disk: SQLite's log is read through memory that processes share,
which network file systems do not have.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from concurrent.futures import Future
from pathlib import Path

from tagstream.serve.log import Event, EventLog
from tagstream.serve.progress import KEPT, Progress
from tagstream.serve.writer import (
    REPLAY_ITEMS,
    Change,
    Done,
    Refused,
    Service,
    Tagger,
    TaggerType,
    outcomes,
    warm_up,
)

__all__ = ["Follower"]

EVERY = 0.1  # seconds between two looks at the log

logger = logging.getLogger(__name__)


class Follower(Service):
    """A read-only replica of a folder that another process serves.

    Parameters
    ----------
    path : Path
        The folder, or one of its snapshots to begin with instead of the newest.
    tagger : type, optional
        The class of the tagger; by default :class:`tagstream.tagger.Tagger`.
    every : float
        Seconds between two looks at the log.

    Raises
    ------
    OSError
        It is not the folder of a service.
    """

    def __init__(self, path: Path, tagger: TaggerType | None = None, every: float = EVERY) -> None:
        self._first_snapshot = path if path.is_file() else None
        self._every = every
        self._end = 0  # of the log, when it was last read
        super().__init__(path.parent.parent if path.is_file() else path, tagger)

    def _open_folder(self, model: Path | None) -> None:
        events = self.folder / "events.db"
        if not events.exists():
            raise OSError(f"{self.folder} must be the folder of a service, got no events.db in it")
        self.log = EventLog(events, read_only=True)

    def close(self) -> None:
        """Stop following."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self.log.close()

    def submit(self, change: Change) -> Future[Done]:
        """Refuse every change."""
        raise Refused("changes must go to the writer, got one for a replica", "", 403)

    @property
    def n_behind(self) -> int:
        """How many events of the log are not in what is published."""
        known = 0 if self.published is None else self.published.position
        return max(self.log.last_position() - known, 0)

    # ------------------------------------------------------------------ the thread
    def _run(self) -> None:
        try:
            warm_up(self._type)
            self._begin()
            self._ready.set()
            while not self._closing:
                if self.log.last_position() < self._end:
                    logger.error("the log was recovered from damage; beginning again")
                    self._first_snapshot = None
                    self._begin()
                else:
                    self._follow()
                with self._wake:
                    if not self._closing:
                        self._wake.wait(self._every)
        except BaseException as error:
            logger.exception("the replica failed")
            self.failure = error
            self._ready.set()
            self.on_failure()

    def _begin(self) -> None:
        """Open a snapshot and replay what came after it."""
        self._end = 0
        self._tagger, self.log.position = self._newest_snapshot()
        self._snapshot_at = self.log.position
        self._follow()
        known = self.log.position
        self._tag_changes = [e for e in self.log.tag_changes() if e.position <= known]
        self.progress = Progress()
        tested = [e for e in self.log.last_suggested(KEPT) if e.position <= known]
        self.progress.add(outcomes(tested))
        self._publish()
        logger.info("replica at position %d", known)

    def _newest_snapshot(self) -> tuple[Tagger, int]:
        given = [] if self._first_snapshot is None else [self._first_snapshot]
        for path in given or sorted((self.folder / "snapshots").glob("*.tgs"), reverse=True):
            if path.stem.isdigit():
                # The writer may have removed it meanwhile; one that is damaged it will see to.
                with contextlib.suppress(ValueError, OSError):
                    return self._type.open(path), int(path.stem)
        if given:
            raise OSError(f"{given[0]} must be a whole snapshot of a service")
        base = self.folder / "base.tgs"
        return (self._type.open(base) if base.exists() else self._type()), 0

    def _follow(self) -> None:
        """Learn what has been written since, in groups, and publish after each."""
        end = self.log.last_position()
        run: list[Event] = []
        try:
            for event in self.log.after(self.log.position):
                run.append(event)
                if len(run) == REPLAY_ITEMS:
                    self._learn_run(run, run[-1].position)
                    run = []
        except sqlite3.OperationalError as error:  # the writer holds the database for a moment
            logger.warning("the log cannot be read now: %s", error)
            end = 0
        last = run[-1].position if run else self.log.position
        if run or end > last:  # the last events may be ones that were refused
            self._learn_run(run, max(last, end))
        self._end = max(self._end, end)

    def _learn_run(self, run: list[Event], position: int) -> None:
        failed = self._apply(run)  # what the writer refused is refused here for the same reason
        self._note(run, failed)
        self.log.position = position
        self.replayed += len(run)
        self._publish()
