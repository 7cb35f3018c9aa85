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
import os
import sqlite3
from concurrent.futures import Future
from pathlib import Path

from tagstream.serve.changes import Change, Done, Refused
from tagstream.serve.index import Index
from tagstream.serve.kinds import check_known
from tagstream.serve.log import Event, EventLog
from tagstream.serve.progress import KEPT, Progress
from tagstream.serve.replay import outcomes, try_events
from tagstream.serve.served import Served
from tagstream.serve.snapshots import Snapshots
from tagstream.serve.taggers import TaggerType
from tagstream.tagger import warm_up

__all__ = ["Follower"]

EVERY = 0.1  # seconds between two looks at the log

logger = logging.getLogger(__name__)


class _Diverged(Exception):
    """The tagger failed here where the writer's did not; the message says where."""


class Follower(Served):
    """A read-only replica of a folder that another process serves.

    If its tagger fails on an event, it waits for what the writer makes of that event.  If the
    writer voids it, the replica passes it over too.  If the writer goes on after it, the replica
    stops there: it answers as of the event before, says so, and is not ready any more.

    Parameters
    ----------
    path : Path
        The folder, or one of its snapshots to begin with instead of the newest.
    tagger : type, optional
        The class of the tagger; by default :class:`tagstream.tagger.Tagger`.
    every : float
        Seconds between two looks at the log.

    Attributes
    ----------
    stopped : str
        Why it does not follow any more; empty if it does.

    Raises
    ------
    OSError
        It is not the folder of a service.
    """

    takes_changes = False

    def __init__(self, path: Path, tagger: TaggerType | None = None, every: float = EVERY) -> None:
        self._first_snapshot = path if path.is_file() else None
        self._every = every
        self._end = 0  # of the log, when it was last read
        self._undecided: tuple[int, Exception] | None = None  # an event that failed here
        self.stopped = ""
        super().__init__(path.parent.parent if path.is_file() else path, tagger)
        self.snapshots = Snapshots(self.folder, read_only=True)
        self.index = Index(self.folder / "search.db", read_only=True)
        self._open_log()

    def _open_log(self) -> None:
        path = self.folder / "events.db"
        if not path.exists():
            raise OSError(f"{self.folder} must be the folder of a service, got no events.db in it")
        self._file = os.stat(path).st_ino
        self.log = EventLog(path, read_only=True)
        if self.log.is_copy:
            self.log.close()
            raise OSError(
                f"{path} must be a log of this version; serve {self.folder} with it once, "
                "without --follow"
            )

    def _release(self) -> None:
        self.log.close()

    @property
    def ready(self) -> bool:
        """Whether there is a view, and it follows the writer."""
        return super().ready and not self.stopped

    @property
    def warnings(self) -> list[str]:
        """What somebody should look at."""
        return [*super().warnings, *([self.stopped] if self.stopped else [])]

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
            while self._waited():
                self._look()
        except _Diverged as error:
            self.stopped = str(error)
            logger.error("%s", error)
            self._ready.set()
        except BaseException as error:
            if not self._closing:
                logger.exception("the replica failed")
                self.failure = error
            self._ready.set()
            self.on_failure()

    def _waited(self) -> bool:
        """Wait for the time of the next look; return whether there is to be one."""
        with self._wake:
            if not self._closing:
                self._wake.wait(self._every)
            return not self._closing

    def _look(self) -> None:
        """Read what was written since the last look."""
        if os.stat(self.folder / "events.db").st_ino != self._file:
            logger.error("the log was recovered from damage; beginning again")
            self.log.close()
            self._open_log()
            self._first_snapshot = None
            self._begin()
        elif self.log.last_position() < self._end:
            logger.error("the log is shorter than before; beginning again")
            self._first_snapshot = None
            self._begin()
        else:
            self._follow()

    def _begin(self) -> None:
        """Open a snapshot and replay what came after it."""
        self._end, self._undecided = 0, None
        if self._first_snapshot is None:
            self._tagger, self.log.position = self.snapshots.newest(self._type)
        else:
            try:
                self._tagger = self._type.open(self._first_snapshot)
                self.log.position = int(self._first_snapshot.stem)
            except ValueError as error:
                raise OSError(
                    f"{self._first_snapshot} must be a whole snapshot of a service"
                ) from error
        self._snapshot_at = self.log.position
        self._follow()
        known = self.log.position
        self._read_names(known)
        self.progress = Progress()
        tested = [e for e in self.log.last_suggested(KEPT) if e.position <= known]
        self.progress.add(outcomes(tested))
        self._publish()
        logger.info("replica at position %d", known)

    def _follow(self) -> None:
        """Learn what has been written since, in groups, and publish after each."""
        if not self._is_decided():
            return
        end = self.log.last_position()
        last = self.log.position
        try:
            with contextlib.closing(self.log.after(last)) as events:
                for run in self._blocks(events):
                    self._stop_if_closing()
                    for event in run:
                        check_known(event.kind, event.position, self.log.path)
                    self._learn_run(run)
                    if self._undecided is not None:
                        return
        except sqlite3.OperationalError as error:  # the writer holds the database for a moment
            logger.warning("the log cannot be read now: %s", error)
            end = 0
        if end > self.log.position:  # the last events may be ones that were refused
            self.log.position = end
            self._publish()
        self._end = max(self._end, end)

    def _is_decided(self) -> bool:
        """Return whether it can go on: no event failed here, or the writer voided that event.

        Raises
        ------
        _Diverged
            The writer went on after that event, so it did not fail there.
        """
        if self._undecided is None:
            return True
        position, error = self._undecided
        event = self.log.find(position)
        if event is None or event.refused is not None:
            self._undecided = None
            return True
        if self.log.last_position() > self.log.end_of_group(position):
            raise _Diverged(
                f"This replica stopped at position {position - 1}: its tagger failed on event "
                f"{position} ({type(error).__name__}), and the writer's did not."
            ) from error
        return False

    def _learn_run(self, run: list[Event]) -> None:
        """Learn events up to the first one that fails, and publish."""
        last = run[-1].position
        if try_events(self._tagger, run) is not None:
            self._go_back(run[0].position)
            for event in run:
                error = try_events(self._tagger, [event])
                if error is not None:
                    logger.error("the tagger failed on event %d; waiting", event.position)
                    self._undecided = event.position, error
                    self._go_back(event.position)
                    last = event.position - 1
                    break
        done = [event for event in run if event.position <= last]
        self._note(done, {})
        self.log.position = last
        self.replayed += len(done)
        self._publish()
