"""A folder that is served: what questions need of it, whether this process changes it or not.

There is one thread that makes events happen on a tagger, and publishes an unchanging view of it
after each group.  Readers take the published view and never wait for the thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tagstream.learners.keeping import keeps_items
from tagstream.serve.agreement import Answers
from tagstream.serve.changes import Change, Closed, Done
from tagstream.serve.imports import Imports
from tagstream.serve.index import Index
from tagstream.serve.kinds import KINDS
from tagstream.serve.leases import Leases, Skipped
from tagstream.serve.log import Event, EventLog
from tagstream.serve.names import TagNames
from tagstream.serve.pool import Pool
from tagstream.serve.progress import Progress
from tagstream.serve.replay import is_checked, outcomes, record_of, try_events
from tagstream.serve.snapshots import Snapshots
from tagstream.serve.taggers import Tagger, TaggerType, View, usual_tagger
from tagstream.serve.undo import Spans

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Published", "Served", "Stopped"]

# How long an end waits for a replay, which may be in the middle of a long fit.
LEAVE_SECONDS = 0.2

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """The service is to end while it is starting."""


@dataclass(frozen=True)
class Published:
    """What readers see; swapped as a whole after each group.

    Attributes
    ----------
    view : View
    position : int
        Of the last event that it knows.
    n_items : int
        Items that the learner stores; if it stores none, those that it has learnt.
    """

    view: View
    position: int
    n_items: int


class Served(ABC):
    """A folder that is served: its log, its tagger, its pool, and the thread that has the tagger.

    A subclass opens log, snapshots and search index, says what the thread does, and takes changes
    or refuses them.

    Parameters
    ----------
    folder : Path
    tagger : type, optional
        The class of the tagger; by default :class:`tagstream.tagger.Tagger`.

    Attributes
    ----------
    doing : str
        What takes its time while it is not ready yet.
    held : str
        Why no changes are taken; empty if they are.
    quarantined : list of (int, str)
        Position and reason of events on which the tagger failed, as long as nobody tried them again
        or tagged their item anew.
    agree : int
        How many people are asked about each item; 0: the last answer replaces those before.
    takes_changes : bool
        Whether it writes into the folder.
    replay_items : int
        Events that are replayed together.
    """

    replay_items: ClassVar[int] = 512
    takes_changes: ClassVar[bool]
    log: EventLog
    index: Index
    snapshots: Snapshots
    _tagger: Tagger

    def __init__(self, folder: Path, tagger: TaggerType | None = None) -> None:
        self.folder = folder
        self.progress = Progress()
        self.pool = Pool()
        self.leases = Leases()
        self.skipped = Skipped()
        self.on_change: Callable[[], None] = lambda: None
        self.on_failure: Callable[[], None] = lambda: None
        self._type: TaggerType = tagger if tagger is not None else usual_tagger()
        self.held = ""
        self.n_lost = 0
        self.published: Published | None = None
        self.failure: BaseException | None = None
        self.n_duplicates = self.n_learnt = self.n_snapshots = 0
        self.n_rejected = self.n_snapshots_failed = 0
        self.quarantined: list[tuple[int, str]] = []
        self.replayed = 0
        self.doing = "starting"
        self.names = TagNames()
        self.spans = Spans()
        self.imports = Imports()
        self.answers = Answers(self.names_now)
        self.agree = 0
        self._snapshot_at = 0
        self._wake = threading.Condition()
        self._closing = False
        self._ready = threading.Event()
        self._has_ended = self._is_left = False
        self._thread = threading.Thread(target=self._work, name="tagstream-writer", daemon=True)

    # ------------------------------------------------------------------ what a subclass says
    @abstractmethod
    def _run(self) -> None:
        """Do the work of the thread: set ``_ready`` when questions can be answered."""

    @abstractmethod
    def _release(self) -> None:
        """Close all files."""

    @abstractmethod
    def submit(self, change: Change) -> Future[Done]:
        """Queue a change, or refuse it."""

    @property
    @abstractmethod
    def n_behind(self) -> int:
        """How many events of the log are not in what is published."""

    @property
    def n_queued(self) -> int:
        """How many items wait for the thread."""
        return 0

    @property
    def warnings(self) -> list[str]:
        """What somebody should look at; without any text of an item."""
        return []

    # ------------------------------------------------------------------ life
    def start(self, wait: bool = True) -> Self:
        """Start the thread; by default return when it is ready."""
        self._thread.start()
        if wait:
            self._ready.wait()
            if self.failure is not None:
                self.close()
                raise self.failure
        return self

    @property
    def ready(self) -> bool:
        """Whether there is a view and questions are answered."""
        return self._ready.is_set() and self.failure is None and not self._closing

    @property
    def is_cut_off(self) -> bool:
        """Whether it was closed before it was ready; its thread may still be at work then."""
        return self._closing and self.published is None and self.failure is None

    def close(self) -> None:
        """Finish what is begun, and let the folder go."""
        if self._is_left:
            return
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join(LEAVE_SECONDS)
            with self._wake:
                self._is_left = not self._has_ended and not self._ready.is_set()
            if self._is_left:
                # A replay changes nothing, so the end of the process may cut it off.
                logger.warning("ending in the middle of a replay; the next start begins it again")
                return
            self._thread.join()
        self._release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ asking
    def read(self) -> Published:
        """Return what is published.

        Raises
        ------
        Closed
            It is not ready yet.
        """
        published = self.published
        if published is None:
            raise Closed("the service is starting")
        return published

    @property
    def learner(self) -> Any:
        """The learner of the tagger; for the thread of the service only."""
        return self._tagger.learner

    def names_now(self, tags: Iterable[str], position: int) -> list[str]:
        """Return the present names of tags that were given at a position."""
        return self.names.now(tags, position)

    def tags_now(self, event: Event) -> list[str]:
        """Return the tags of a learn event as they are called now."""
        return self.names.now(event.body.get("y", ()), event.position)

    def state_of(self, name: str) -> dict[str, Any] | None:
        """Return a stored item as a learn event would have it now, tags by their present names.

        Of an item that came with a model the text must be kept.  None if there is no such item.
        """
        return self.state_now(name, self.log.newest(name))

    def state_now(self, name: str, newest: Event | None) -> dict[str, Any] | None:
        """Return the same, where the newest event of the item is known."""
        if newest is not None:
            return self.state(newest) if newest.kind == "learn" else None
        kept = getattr(self.read().view, "stored", lambda _: None)(name)
        return None if kept is None else {"id": name, **kept}

    def state(self, event: Event) -> dict[str, Any]:
        """Return the body of an event about an item, tags by their present names."""
        state = dict(event.body)
        for key in {"y", "no"} & state.keys() if event.position else ():
            state[key] = self.names.now(state[key], event.position)
        return state

    # ------------------------------------------------------------------ the thread
    def _work(self) -> None:
        self._run()
        with self._wake:
            self._has_ended = True
        if self._is_left:
            self._release()

    def _go_back(self, position: int) -> int:
        """Restore the state before an event: a snapshot, and the events between.

        Return the position of the snapshot.
        """
        self._tagger, at = self.snapshots.newest(self._type, below=position)
        with contextlib.closing(self.log.after(at)) as events:
            for run in self._blocks(events):
                self._stop_if_closing()
                before = (event for event in run if event.position < position)
                again = [event for event in before if not self._is_void(event.position)]
                error = try_events(self._tagger, again)
                if error is not None:
                    raise RuntimeError(
                        f"events {again[0].position} to {again[-1].position} were learnt before "
                        "and cannot be learnt again"
                    ) from error
                if run[-1].position >= position:
                    break
        return at

    def _is_void(self, position: int) -> bool:
        """Tell whether the tagger failed on an event that the log does not void yet."""
        return False

    def _blocks(self, events: Iterator[Event]) -> Iterator[list[Event]]:
        """Cut events into blocks that are replayed together."""
        while block := [*islice(events, self.replay_items)]:
            yield block

    def _stop_if_closing(self) -> None:
        if self._closing and not self._ready.is_set():
            raise Stopped

    def _note(self, events: Sequence[Event], failed: dict[int, Exception]) -> None:
        """Keep what follows from events: outcomes, names of tags, the pool."""
        done = [event for event in events if event.position not in failed]
        self.n_learnt += sum(event.kind == "learn" for event in done)
        for event in done:
            self.names.add(event.position, event.does.moves(event.body))
            self.spans.add(event)
            self.imports.add(event)
            self.answers.add(event)
        learnt = [event.body for event in done if event.kind == "learn"]
        self.pool.take(body["id"] for body in learnt if "y" in body)
        for body in learnt:
            self.leases.end(body["id"])
        applied = [event.body for event in done if event.kind == "auto"]
        self.pool.take(body["id"] for body in applied if not is_checked(body["id"]))
        self.pool.put((b["id"], record_of(b)) for b in applied if is_checked(b["id"]))
        self.progress.add(outcomes(done))
        if self.quarantined:
            self.quarantined = self.log.quarantined()

    def _publish(self) -> None:
        view = self._tagger.view()
        learner, n_items = self._tagger.learner, view.n_items
        stored = learner.n_stored_ if n_items and keeps_items(learner) else n_items
        self.published = Published(view, self.log.position, stored)
        self.on_change()

    def _read_names(self, until: int | None = None) -> None:
        """Read all changes of the names of tags, up to a position."""
        self.names = TagNames()
        for event in self.log.of_kinds(*(name for name, kind in KINDS.items() if kind.renames)):
            if not self._is_void(event.position) and (until is None or event.position <= until):
                self.names.add(event.position, event.does.moves(event.body))
        self.spans = Spans(self.log.of_kinds("together", "undo"))
        self.imports = Imports(self.log.of_kinds("import"))
        self.answers = Answers(self.names_now)
        for event in self.log.of_kinds("answer", "forget"):
            self.answers.add(event)
