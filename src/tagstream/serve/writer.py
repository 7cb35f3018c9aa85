"""The one thread that changes the tagger, and what it publishes for everyone else.

A change goes through one queue.  The writer takes what waits there, checks it, commits it to the
event log as one group, learns it, publishes a new view, and only then answers.  Readers take the
published view and never wait for the writer.

If the tagger raises an error on an event, the writer goes back to the state before that event,
voids the event in the log, and goes on without it.

A start opens the newest snapshot that is whole and replays the events after it.  Because the state
of a tagger is a function of its events in order, and not of how they were grouped, the result is
that of a run without interruption.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import shutil
import sqlite3
import threading
import time
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tagstream.files import locks
from tagstream.knows.next_items import is_random
from tagstream.serve.kinds import KINDS
from tagstream.serve.leases import Leases
from tagstream.serve.log import Event, EventLog, LogFull
from tagstream.serve.names import TagNames
from tagstream.serve.pool import Pool
from tagstream.serve.progress import KEPT, Outcome, Progress
from tagstream.serve.recovery import Loss, open_log, remove_copy
from tagstream.serve.snapshots import Snapshots
from tagstream.serve.tokens import ORIGIN
from tagstream.tagger import warm_up

__all__ = [
    "Busy",
    "Change",
    "Closed",
    "Done",
    "Held",
    "Published",
    "Refused",
    "Service",
    "apply_events",
    "retry",
]

# A group is answered together, so a larger one makes its first change wait longer.
GROUP_ITEMS = 256
# Items that may wait in the queue before a change is turned away.
QUEUE_ITEMS = 10_000
SNAPSHOT_EVENTS = 10_000
REPLAY_ITEMS = 512
# One item in so many whose tags were applied without asking is offered to a person.
CHECKED = 20
# If more events than this fail in one replay, the machine or the version is to blame, not they.
MOST_FAILED = 20
# How long an end waits for a replay, which may be in the middle of a long fit.
LEAVE_SECONDS = 0.2

logger = logging.getLogger(__name__)


class Refused(ValueError):
    """The change cannot be made; nothing was changed.

    Attributes
    ----------
    field : str
        What of the request is wrong.
    status : int
        The HTTP status that says so.
    """

    def __init__(self, message: str, field: str = "", status: int = 422) -> None:
        super().__init__(message)
        self.field = field
        self.status = status


class Conflict(Refused):
    """Somebody else has changed the item since; nothing was changed.

    Attributes
    ----------
    item : str
        Which item.
    """

    def __init__(self, item: str, version: int, now: int) -> None:
        super().__init__(
            f"version of item {item!r} must be {now}, got {version}: "
            "somebody has changed the item since",
            "version",
            409,
        )
        self.item = item


class Busy(Exception):
    """Too much waits; try again after ``retry_after`` seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many changes wait; try again in {retry_after} s")
        self.retry_after = retry_after


class Closed(Exception):
    """The service is starting, stopping, or has failed."""


class Held(Closed):
    """The service answers questions and takes no changes, until somebody decides."""


class _Stopped(Exception):
    """The service is to end while it is starting."""


class _TooManyFailed(Exception):
    """So many events fail in a replay that it cannot be their fault."""


class View(Protocol):
    """What readers need of a tagger: an unchanging picture of it."""

    @property
    def tags(self) -> list[str]:
        """All tags."""

    @property
    def counts(self) -> dict[str, int]:
        """How many items have each."""

    @property
    def descriptions(self) -> dict[str, str]:
        """What is said about tags."""

    @property
    def n_items(self) -> int:
        """How many items were learnt."""

    def suggest(
        self, records: Any, top: int | None = None, decide: Any = None, *, next: bool = False
    ) -> Any:
        """Return suggestions."""

    def explain(self, record: Any, *, next: bool = False) -> Any:
        """Return why."""


class Tagger(Protocol):
    """What the writer needs of a tagger."""

    learner: Any

    def learn(self, records: Any) -> Any:
        """Learn records."""

    def change(self, event: str, **what: Any) -> None:
        """Forget an item; rename, merge or remove tags."""

    def save(self, path: Any) -> None:
        """Save to a file, as a whole or not at all."""

    def view(self) -> View:
        """Return an unchanging picture."""


class TaggerType(Protocol):
    """A class of taggers."""

    def __call__(self) -> Tagger:
        """Return an empty tagger."""

    def open(self, path: Any) -> Tagger:
        """Return the tagger of a file."""


@dataclass
class Change:
    """What is asked of the writer.

    Attributes
    ----------
    kind : str
        A kind of event; or ``pool``, ``unpool``, ``snapshot``, which change no model.
    bodies : list of dict
        One for each event.
    keys : list of (str or None)
        The keys of the events; None where the caller gave none.
    versions : list of (int or None)
        The versions of the items that the caller has seen; None where it does not matter.  Empty
        if it does not matter anywhere.
    done : Future
        Set when the change is durable, learnt and published.
    who, source : str
        Who makes it and what it came through; by default those of the request under way.
    """

    kind: str
    bodies: list[dict[str, Any]]
    keys: list[str | None]
    versions: list[int | None] = field(default_factory=list)
    done: Future[Done] = field(default_factory=Future)
    who: str = field(default_factory=lambda: ORIGIN.get()[0])
    source: str = field(default_factory=lambda: ORIGIN.get()[1])


@dataclass(frozen=True)
class Done:
    """The answer to a change: events written, events that were there already, last position."""

    n: int
    duplicates: int
    position: int


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


@dataclass
class _Plan:
    """The events that a change would write, and which of them are new items."""

    change: Change
    events: list[Event] = field(default_factory=list)
    is_new: list[bool] = field(default_factory=list)
    duplicates: int = 0


class Service:
    """A folder that is served: its log, its tagger, its pool, and the thread that changes them.

    Parameters
    ----------
    folder : Path
        Made if it is not there; one service at a time.
    tagger : type, optional
        The class of the tagger; by default :class:`tagstream.tagger.Tagger`.
    model : Path, optional
        A model file to start from; for a new folder.
    snapshot_events : int
        A snapshot is written after so many events, and at the end.
    accept_loss : bool
        Go on without the events that are missing from the log, if some are.

    Attributes
    ----------
    first : list of Change
        Made before anything else, if the folder is new.
    doing : str
        What takes its time while it is not ready yet.
    held : str
        Why no changes are taken; empty if they are.
    quarantined : list of (int, str)
        Position and reason of events on which the tagger failed, as long as nobody tried them again
        or tagged their item anew.

    Raises
    ------
    OSError
        Another service has the folder, or it cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        tagger: TaggerType | None = None,
        model: Path | None = None,
        snapshot_events: int = SNAPSHOT_EVENTS,
        accept_loss: bool = False,
    ) -> None:
        self.folder = folder
        self.accept_loss = accept_loss
        self.snapshot_events = snapshot_events
        self.progress = Progress()
        self.pool = Pool()
        self.leases = Leases()
        self.first: list[Change] = []
        self.on_failure: Callable[[], None] = lambda: None
        self._type: TaggerType = tagger if tagger is not None else _usual_tagger()
        self.snapshots = Snapshots(folder)
        self.log: EventLog
        self.held = ""
        self.n_lost = 0
        self._open_folder(model)
        self.published: Published | None = None
        self.failure: BaseException | None = None
        self.n_duplicates = self.n_learnt = self.n_snapshots = 0
        self.n_rejected = self.n_snapshots_failed = 0
        self.snapshot_problem = ""
        self.quarantined: list[tuple[int, str]] = []
        self.replayed = 0
        self.doing = "starting"
        self.names = TagNames()
        self._tagger: Tagger
        self._snapshot_at = 0
        self._unmarked: dict[int, Exception] = {}  # failed events that the log does not void yet
        self._queue: deque[Change] = deque()
        self._n_queued = 0
        self._seconds_per_item = 0.002
        self._wake = threading.Condition()
        self._closing = False
        self._ready = threading.Event()
        self._has_ended = self._is_left = False
        self._thread = threading.Thread(target=self._work, name="tagstream-writer", daemon=True)

    def _open_folder(self, model: Path | None) -> None:
        self.snapshots.folder.mkdir(parents=True, exist_ok=True)
        self._lock_file = _lock(self.folder)
        try:
            self._remove_leftovers()
            self._keep_base(model)
            known = self.snapshots.last_known()
            self.log, losses = open_log(self.folder / "events.db", known, self.accept_loss)
        except BaseException:
            self._lock_file.close()
            raise
        if losses:
            self.held = _loss_words(losses)
            logger.error("%s", self.held)

    # ------------------------------------------------------------------ life
    def start(self, wait: bool = True) -> Service:
        """Start the writer; by default return when it is ready."""
        self._thread.start()
        if wait:
            self._ready.wait()
            if self.failure is not None:
                self.close()
                raise self.failure
        return self

    @property
    def ready(self) -> bool:
        """Whether there is a view and changes are taken."""
        return self._ready.is_set() and self.failure is None and not self._closing

    @property
    def is_cut_off(self) -> bool:
        """Whether it was closed before it was ready; its thread may still be at work then."""
        return self._closing and self.published is None and self.failure is None

    def close(self) -> None:
        """Do what waits, write a snapshot, and let the folder go."""
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

    def _release(self) -> None:
        self.log.close()
        if self.log.path != self.folder / "events.db":
            remove_copy(self.folder / "events.db")
        self._lock_file.close()

    def __enter__(self) -> Service:
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
    def n_behind(self) -> int:
        """How many events of the log are not in what is published."""
        return 0

    @property
    def n_queued(self) -> int:
        """How many items wait for the writer."""
        return self._n_queued

    @property
    def warnings(self) -> list[str]:
        """What somebody should look at; without any text of an item."""
        found = [self.held] if self.held else []
        if self.quarantined:
            first = ", ".join(str(position) for position, _ in self.quarantined[:10])
            more = ", …" if len(self.quarantined) > 10 else ""
            found.append(
                f"{len(self.quarantined)} changes could not be learnt and are quarantined, at "
                f"position {first}{more}. The log of the service says why; "
                "tagstream log retry DIR POSITION tries one again."
            )
        if self.snapshot_problem:
            found.append(
                f"The last snapshot could not be written ({self.snapshot_problem}). Nothing is "
                "lost, but the next start takes longer."
            )
        return found

    def submit(self, change: Change) -> Future[Done]:
        """Queue a change; the future is set when it is durable and learnt.

        Raises
        ------
        Busy
            The queue is full.
        Closed
            The service does not take changes now.
        """
        with self._wake:
            if not self.ready:
                raise Closed("the service is starting or stopping")
            if self.held:
                raise Held(self.held)
            if self._n_queued + len(change.bodies) > QUEUE_ITEMS:
                raise Busy(min(60, math.ceil(self._n_queued * self._seconds_per_item)))
            self._queue.append(change)
            self._n_queued += len(change.bodies)
            self._wake.notify()
        return change.done

    def tags_now(self, event: Event) -> list[str]:
        """Return the tags of a learn event as they are called now."""
        return self.names.now(event.body.get("y", ()), event.position)

    def state_of(self, name: str) -> dict[str, Any] | None:
        """Return a stored item as a learn event would have it now, tags by their present names.

        Of an item that came with a model the text must be kept.  None if there is no such item.
        """
        newest = self.log.newest(name)
        if newest is not None:
            return self._state(newest) if newest.kind == "learn" else None
        kept = getattr(self.read().view, "stored", lambda _: None)(name)
        return None if kept is None else {"id": name, **kept}

    def _state(self, event: Event) -> dict[str, Any]:
        state = dict(event.body)
        for key in {"y", "no"} & state.keys() if event.position else ():
            state[key] = self.names.now(state[key], event.position)
        return state

    def _with_tags(self, body: dict[str, Any], newest: Event | None) -> dict[str, Any]:
        """Return a body that only refuses tags with the tags that its item has, if it has some."""
        if newest is None or "y" in body:
            return body
        state = self._state(newest)
        if "y" not in state or _record(state) != _record(body):
            return body
        tags = [tag for tag in state["y"] if tag not in body["no"]]
        no = [*dict.fromkeys([*state.get("no", ()), *body["no"]])]
        return {**state, "y": tags, "no": no}

    # ------------------------------------------------------------------ the thread
    def _work(self) -> None:
        self._run()
        with self._wake:
            self._has_ended = True
        if self._is_left:
            self._release()

    def _run(self) -> None:
        try:
            self._load()
            self._ready.set()
            while group := self._take():
                start = time.perf_counter()
                self._do(group)
                n = sum(len(change.bodies) for change in group)
                pace = (time.perf_counter() - start) / max(1, n)
                self._seconds_per_item += 0.1 * (pace - self._seconds_per_item)
                if self.log.position - self._snapshot_at >= self.snapshot_events:
                    self._try_snapshot()
            self._try_snapshot()
        except _Stopped:
            self._ready.set()
        except BaseException as error:
            logger.exception("the writer failed")
            self.failure = error
            self._ready.set()
            with self._wake:
                waiting, self._closing = [*self._queue], True
                self._queue.clear()
            for change in waiting:
                if change.done.set_running_or_notify_cancel():
                    change.done.set_exception(Closed("the service has failed"))
            self.on_failure()

    def _take(self) -> list[Change]:
        """Wait for changes and return those to do together; nothing at the end."""
        with self._wake:
            while True:
                while not self._queue and not self._closing:
                    self._wake.wait()
                group = self._next_group()
                if group or (self._closing and not self._queue):
                    return group

    def _next_group(self) -> list[Change]:
        """Take learn changes up to a size, or one other change; drop those that were cancelled."""
        group: list[Change] = []
        n = 0
        while self._queue:
            change = self._queue[0]
            # The first item of all decides what items are: those after it are checked against it.
            alone = change.kind != "learn" or not self.read().view.n_items
            if group and (alone or n + len(change.bodies) > GROUP_ITEMS):
                break
            self._queue.popleft()
            self._n_queued -= len(change.bodies)
            # From here on it can no longer be cancelled: what is begun is finished.
            if not change.done.set_running_or_notify_cancel():
                continue
            group.append(change)
            n += len(change.bodies)
            if alone:
                break
        return group

    def _do(self, group: list[Change]) -> None:
        """Make the changes durable, learn them, publish, answer."""
        kind = group[0].kind
        try:
            if kind == "snapshot":
                self._do_snapshot(group[0])
            elif kind in ("pool", "unpool"):
                self._do_pool(group[0])
            else:
                self._do_events(group)
        except BaseException as error:
            answer: BaseException = Closed("the service has failed")
            if isinstance(error, LogFull):
                logger.error("nothing was changed: %s", error)
                answer = error
            for change in group:
                if not change.done.done():
                    change.done.set_exception(answer)
            if answer is not error:
                raise

    def _do_snapshot(self, change: Change) -> None:
        error = self._try_snapshot()
        if error is None:
            change.done.set_result(Done(1, 0, self.log.position))
        elif isinstance(error, OSError):
            change.done.set_exception(LogFull(f"the snapshot cannot be written: {error}"))
        else:
            words = f"the snapshot cannot be written: {_words(error)}; nothing else is changed"
            change.done.set_exception(Refused(words, status=500))

    def _do_pool(self, change: Change) -> None:
        ids = [body["id"] for body in change.bodies]
        if change.kind == "unpool":
            with self.log.transaction():
                n = self.log.take_from_pool(ids)
            self.pool.take(ids)
        else:
            try:
                self._check_fit([body["item"] for body in change.bodies])
            except Exception as error:  # whatever it is, it concerns this change only
                change.done.set_exception(error)
                return
            items = [(b["id"], b["item"]) for b in change.bodies if not self._is_known(b["id"])]
            with self.log.transaction():
                n = self.log.put_in_pool(items)
            self.pool.put(items)
        change.done.set_result(Done(n, len(ids) - n, self.log.position))

    def _check_fit(self, items: list[dict[str, Any]], first: int = 0) -> None:
        """Refuse items that the tagger cannot take; the first such one is named."""
        try:
            self.read().view.suggest(items)
        except ValueError as error:
            if len(items) == 1:
                raise Refused(f"items[{first}]: {error}", f"items[{first}]") from error
            for i, item in enumerate(items):
                self._check_fit([item], i)

    def _do_events(self, group: list[Change]) -> None:
        written: list[tuple[_Plan, list[Event]]] = []
        refused: list[tuple[Change, Exception]] = []
        told = self._suggest_together(group)
        self._void_failed()
        with self.log.transaction():
            self.log.tidy_pool()
            for change in group:
                try:
                    plan = self._plan(change, told)
                except sqlite3.OperationalError:
                    raise
                except Exception as error:  # whatever it is, it concerns this change only
                    if not isinstance(error, Refused):
                        logger.exception("a change could not be planned")
                    refused.append((change, error))
                    continue
                events = []
                for event in plan.events:
                    position = self.log.append(event)
                    events.append(replace(event, position=position))
                    if event.kind == "auto" and is_checked(event.body["id"]):
                        self.log.put_in_pool([(event.body["id"], _record(event.body))])
                written.append((plan, events))
        for change, why in refused:
            change.done.set_exception(why)
        all_events = [event for _, events in written for event in events if event.refused is None]
        failed = self._apply(all_events)
        with contextlib.suppress(LogFull):  # before the next change at the latest
            self._void_failed()
        self._note(all_events, failed)
        self._publish()
        for plan, events in written:
            self.n_duplicates += plan.duplicates
            errors = [event.position for event in events if event.position in failed]
            if errors:
                words = _told(errors[0], failed[errors[0]])
                plan.change.done.set_exception(Refused(words))
            else:
                last = events[-1].position if events else self.log.position
                n = sum(event.refused is None for event in events)
                plan.change.done.set_result(Done(n, plan.duplicates, last))

    # ------------------------------------------------------------------ checking
    def _plan(self, change: Change, told: dict[int, Any]) -> _Plan:
        """Return the events of a change, or refuse it as a whole."""
        plan = _Plan(change)
        planned: dict[str, Event] = {}
        known_keys: dict[str, Event] = {}
        versions = change.versions or [None] * len(change.bodies)
        for body, key, version in zip(change.bodies, change.keys, versions, strict=True):
            if change.kind == "learn" and "y" not in body:
                newest = planned.get(body["id"]) or self.log.newest(body["id"], own=True)
                body = self._with_tags(body, newest)
            if key is not None and self._is_answered(key, change.kind, body, known_keys):
                plan.duplicates += 1
                continue
            is_new, refused = False, None
            now = None if body.get("id") in planned else self._newer(body, version)
            if change.kind == "learn":
                newest = planned.get(body["id"]) or self.log.newest(body["id"], own=True)
                newest = None if newest is not None and newest.kind == "auto" else newest
                is_new = not self._will_be_stored(body["id"], newest)
                is_same = not is_new and newest is not None and self._is_same(newest, body)
                # Two people who say the same do not contradict each other.
                if is_same and (key is None or now is not None):
                    plan.duplicates += 1
                    continue
            elif not self._is_possible(change.kind, body):
                plan.duplicates += 1
                if key is None:
                    continue
                refused = ""  # the key is kept: should the item come later, a retry is no other
            if version is not None and now is not None and refused is None:
                raise Conflict(body["id"], version, now)
            event = Event(
                change.kind, key or f"auto:{uuid.uuid4().hex}", body, refused=refused,
                who=change.who, source=change.source,
            )  # fmt: skip
            plan.events.append(event)
            plan.is_new.append(is_new)
            known_keys[event.key] = event
            if change.kind == "learn":
                planned[body["id"]] = event
        if change.kind == "learn" and plan.events:
            self._suggest_first(plan, told)
        return plan

    def _newer(self, body: dict[str, Any], version: int | None) -> int | None:
        """Return the version of an item, if it is another than the caller has seen."""
        if version is None:
            return None
        newest = self.log.newest(body["id"], own=True)
        now = 0 if newest is None else newest.position
        return now if now != version else None

    def _is_answered(
        self, key: str, kind: str, body: dict[str, Any], planned: dict[str, Event]
    ) -> bool:
        """Return whether a change was made under its key; refuse it again if it was refused."""
        try:
            before = planned.get(key) or self.log.find_key(key)
        except OSError as error:
            raise Refused(f"key must be new: {error}", "key", 409) from error
        if before is None:
            return False
        if (before.kind, before.body) != (kind, body):
            raise Refused(f"key must be new for another change, got {key!r}", "key", 409)
        if before.refused:
            raise Refused(before.refused)
        return True

    def _is_same(self, newest: Event, body: dict[str, Any]) -> bool:
        """Return whether learning ``body`` would change nothing.

        It is the same also if it names its tags as they were called when it was learnt, unless
        another tag has such a name now.
        """
        if "y" not in body or "y" not in newest.body:
            return newest.body == body
        if {**newest.body, "y": None} != {**body, "y": None}:
            return False
        given, then = set(body["y"]), set(newest.body["y"])
        now = set(self.tags_now(newest)) if newest.position else then
        return given == now or (given == then and not (then - now) & {*self.read().view.tags})

    def _is_possible(self, kind: str, body: dict[str, Any]) -> bool:
        """Return whether there is something to do; refuse what cannot be."""
        known_tags = self.read().view.tags
        if kind == "auto":  # what a person has said stands
            newest = self.log.newest(body["id"], own=True)
            same = newest is not None and newest.body == body
            learnt = newest is not None and newest.kind == "learn"
            return not same and not learnt and not self._is_stored(body["id"])
        if kind == "refit":
            return self.read().view.n_items > 0
        if kind == "forget":
            newest = self.log.newest(body["id"], own=True)
            if newest is None:
                return self._is_stored(body["id"])
            if newest.kind == "auto":
                words = "the tags of {!r} were applied without asking; tag it to replace them"
                raise Refused(words.format(body["id"]), "ids")
            if hasattr(self._tagger.learner, "has_item") and not self._is_stored(body["id"]):
                raise Refused(f"no stored item is called {body['id']!r}", "ids")  # a window lost it
            return True
        named = {
            "rename": [body.get("old")],
            "merge": body.get("tags"),
            "remove": [body.get("tag")],
            "exclusive": body.get("tags"),
            "promise": [body.get("tag")],
            "describe": [body.get("tag")],
        }
        for tag in named.get(kind) or ():
            if tag not in known_tags:
                where = {"rename": "old", "merge": "tags", "exclusive": "tags"}.get(kind, "tag")
                raise Refused(f"{where} must be known, got {tag!r}", where, 404)
        if kind == "rename" and body["new"] in known_tags:
            raise Refused(
                f"new must not be a tag that is there, got {body['new']!r}; merge them", "new", 409
            )
        return True

    def _is_known(self, name: str) -> bool:
        """Return whether the log or the learner has an item.

        The log knows what a window has lost, the learner what came with the model that the folder
        began with.
        """
        return self.log.newest(name, own=True) is not None or self._is_stored(name)

    def _is_stored(self, name: str) -> bool:
        has_item = getattr(self._tagger.learner, "has_item", None)
        return has_item is not None and bool(has_item(name))

    def _will_be_stored(self, name: str, newest: Event | None) -> bool:
        """Return whether the learner has an item, or will once the events before are learnt."""
        is_learnt = newest is None or 0 < newest.position <= self.read().position
        if is_learnt and hasattr(self._tagger.learner, "has_item"):
            return self._is_stored(name)
        return newest is not None

    def _suggest_together(self, group: Sequence[Change]) -> dict[int, Any]:
        """Return what is suggested for each body of several changes, by its identity.

        Nothing for one change, or if one of them cannot be: then each is asked for by itself.
        """
        if len(group) < 2:
            return {}
        bodies = [body for change in group for body in change.bodies]
        try:
            told = self.read().view.suggest([_record(body) for body in bodies])
        except Exception:
            return {}
        return {id(body): suggestion for body, suggestion in zip(bodies, told, strict=True)}

    def _suggest_first(self, plan: _Plan, together: dict[int, Any]) -> None:
        """Keep what is suggested for new items before they are learnt; refuse what cannot be."""
        if together and all(id(event.body) in together for event in plan.events):
            told = [together[id(event.body)] for event in plan.events]
        else:
            try:
                told = self.read().view.suggest([_record(event.body) for event in plan.events])
            except ValueError as error:
                raise Refused(str(error), "items") from error
        for i, suggestion in enumerate(told):
            if plan.is_new[i]:
                plan.events[i] = replace(plan.events[i], suggested=[*suggestion.tags])

    # ------------------------------------------------------------------ learning
    def _apply(self, events: Sequence[Event]) -> dict[int, Exception]:
        """Change the tagger; return the events on which it failed, with the errors.

        Afterwards the state is that of a log without these events.
        """
        error = try_events(self._tagger, events)
        if error is None:
            return {}
        if len(events) == 1:
            return self._pass_over(events[0], error)
        self._go_back(events[0].position)
        failed: dict[int, Exception] = {}
        for event in events:
            error = try_events(self._tagger, [event])
            if error is not None:
                failed |= self._pass_over(event, error)
        return failed

    def _pass_over(self, event: Event, error: Exception) -> dict[int, Exception]:
        """Report an event on which the tagger failed, and restore the state before it."""
        self._report(event, error)
        self._unmarked[event.position] = error
        self._go_back(event.position)
        return {event.position: error}

    def _report(self, event: Event, error: Exception) -> None:
        if _is_refusal(error):
            self.n_rejected += 1
            logger.warning("the tagger did not take event %d: %s", event.position, _words(error))
        else:
            logger.error(
                "the tagger failed on event %d (%s), which is quarantined: %s",
                event.position, event.kind, _words(error), exc_info=error,
            )  # fmt: skip

    def _go_back(self, position: int) -> None:
        """Restore the state before an event: a snapshot, and the events between."""
        self._tagger, at = self.snapshots.newest(self._type, below=position)
        if position - at > REPLAY_ITEMS:  # soon a snapshot, lest the next time takes as long
            self._snapshot_at = -self.snapshot_events
        with contextlib.closing(self.log.after(at)) as events:
            for run in blocks(events):
                self._stop_if_closing()
                before = (event for event in run if event.position < position)
                again = [event for event in before if event.position not in self._unmarked]
                error = try_events(self._tagger, again)
                if error is not None:
                    raise RuntimeError(
                        f"events {again[0].position} to {again[-1].position} were learnt before "
                        "and cannot be learnt again"
                    ) from error
                if run[-1].position >= position:
                    return

    def _stop_if_closing(self) -> None:
        if self._closing and not self._ready.is_set():
            raise _Stopped

    def _void_failed(self) -> None:
        """Write down which events failed, so that no replay tries them again.

        Raises
        ------
        LogFull
            It cannot be written now.
        """
        if not self._unmarked:
            return
        with self.log.transaction():
            for position, error in self._unmarked.items():
                kind = "reject" if _is_refusal(error) else "quarantine"
                body = {"position": position, "why": _told(position, error)}
                key = f"{kind}:{position}"
                self.log.append(Event(kind, key, body, source="service"))
        self._unmarked.clear()
        self.quarantined = self.log.quarantined()

    def _note(self, events: Sequence[Event], failed: dict[int, Exception]) -> None:
        """Keep what follows from events: outcomes, names of tags, the pool."""
        done = [event for event in events if event.position not in failed]
        self.n_learnt += sum(event.kind == "learn" for event in done)
        for event in done:
            self.names.add(event.position, event.does.moves(event.body))
        learnt = [event.body for event in done if event.kind == "learn"]
        self.pool.take(body["id"] for body in learnt if "y" in body)
        for body in learnt:
            self.leases.end(body["id"])
        applied = [event.body for event in done if event.kind == "auto"]
        self.pool.take(body["id"] for body in applied if not is_checked(body["id"]))
        self.pool.put((b["id"], _record(b)) for b in applied if is_checked(b["id"]))
        self.progress.add(outcomes(done))
        if self.quarantined:
            self.quarantined = self.log.quarantined()

    def _publish(self) -> None:
        view = self._tagger.view()
        stored = getattr(self._tagger.learner, "n_stored_", view.n_items)
        self.published = Published(view, self.log.position, int(stored))

    # ------------------------------------------------------------------ snapshots
    def _load(self) -> None:
        """Open the newest whole snapshot and replay what came after it."""
        try:
            self._restore()
            with contextlib.suppress(LogFull):  # before the next change at the latest
                self._void_failed()
        except _TooManyFailed as error:
            self.held = str(error)
            logger.error("%s", error)
        self._read_names()
        self.quarantined = self.log.quarantined()
        self.n_lost = sum(
            event.body["last"] - event.body["first"] + 1 for event in self.log.of_kinds("gap")
        )
        self.pool.put(self.log.pool())
        self.progress.add(outcomes(self.log.last_suggested(KEPT)))
        self.doing = "warming up (the first start after an installation compiles)"
        warm_up(self._type)
        self._publish()
        self.doing = "learning what a new folder begins with"
        is_new = self.log.position == 0 and not len(self.pool)
        if is_new and not self.held and self._tagger.view().n_items == 0:
            for change in self.first:
                self._do([change])

    def _read_names(self, until: int | None = None) -> None:
        """Read all changes of the names of tags, up to a position."""
        self.names = TagNames()
        for event in self.log.of_kinds(*(name for name, kind in KINDS.items() if kind.renames)):
            if event.position not in self._unmarked and (until is None or event.position <= until):
                self.names.add(event.position, event.does.moves(event.body))

    def _restore(self) -> None:
        self.doing = "opening the newest snapshot"
        self._tagger, position = self.snapshots.newest(self._type)
        self._snapshot_at = position
        self.replayed = 0
        with contextlib.closing(self.log.after(position)) as events:
            for run in blocks(events):
                self._stop_if_closing()
                self.doing = f"replaying the log, {self.replayed:,} events"
                self._apply(run)
                self.replayed += len(run)
                if len(self._unmarked) > MOST_FAILED:
                    self._unmarked.clear()
                    raise _TooManyFailed(
                        f"More than {MOST_FAILED} changes of the log cannot be learnt, so this "
                        "version or this machine is to blame and not the changes. Questions are "
                        f"answered as of position {run[-1].position}; changes are refused. "
                        "Nothing is lost: the log of the service says what went wrong."
                    )
        logger.info("state at position %d, %d events replayed", self.log.position, self.replayed)

    def _try_snapshot(self) -> Exception | None:
        """Write a snapshot; if that fails, report it and return the error."""
        if self.held:
            return None
        position = self.log.position
        try:
            self._void_failed()  # a snapshot would hide them from the next replay
            if position and self.read().view.n_items:
                self.n_snapshots += self.snapshots.save(self._tagger, self.log.position)
            self.snapshot_problem = ""
        except Exception as error:  # whatever it is, the log has everything
            logger.error(
                "the snapshot was not written, and is not needed to go on: %s",
                _words(error), exc_info=error,
            )  # fmt: skip
            self.n_snapshots_failed += 1
            self.snapshot_problem = type(error).__name__
            return error
        finally:
            self._snapshot_at = self.log.position  # not again at once
        return None

    def _remove_leftovers(self) -> None:
        """Remove what a kill left behind in the middle of writing a file."""
        names = ("base.new", "tokens.json.new", "label-studio.new")
        for path in (*(self.folder / n for n in names), *self.snapshots.folder.glob("*.new")):
            path.unlink(missing_ok=True)

    def _keep_base(self, model: Path | None) -> None:
        """Copy the model file to start from, once."""
        base = self.folder / "base.tgs"
        if model is None:
            return
        if base.exists():
            if _digest(base) != _digest(model):
                raise OSError(f"{self.folder} must be new to start from {model}, got a model in it")
            return
        if (self.folder / "events.db").exists():
            raise OSError(f"{self.folder} must be new to start from {model}, got events in it")
        self._type.open(model)  # not a damaged one
        new = base.with_suffix(".new")
        try:
            shutil.copyfile(model, new)
            with open(new, "rb") as file:
                os.fsync(file.fileno())
            os.replace(new, base)
        finally:
            new.unlink(missing_ok=True)


def _usual_tagger() -> TaggerType:
    from tagstream.tagger import Tagger as usual

    made: TaggerType = usual
    return made


def _words(error: Exception) -> str:
    """Return what an error says; that of a KeyError stands in quotes otherwise."""
    said = error.args[0] if isinstance(error, KeyError) and error.args else error
    return str(said) or type(error).__name__


def _is_refusal(error: Exception) -> bool:
    """Return whether the tagger says that an event cannot be, and has not just failed on it."""
    return isinstance(error, (ValueError, KeyError)) and not isinstance(
        error, np.linalg.LinAlgError
    )


def _told(position: int, error: Exception) -> str:
    """Return what the sender of an event is told on which the tagger failed."""
    if _is_refusal(error):
        return _words(error)
    return (
        f"event {position} is written down, but the tagger failed on it "
        f"({type(error).__name__}: {_words(error)[:300]}); it is quarantined, and the service goes "
        f"on without it. To try it again, stop the service: tagstream log retry DIR {position}"
    )


def _loss_words(losses: Sequence[Loss]) -> str:
    """Return what is missing, and what to do."""
    n = sum(loss.last - loss.first + 1 for loss in losses)
    where = ", ".join(map(str, losses[:5])) + (", …" if len(losses) > 5 else "")
    return (
        f"At least {n} events are missing from the log or damaged: {where}. Questions are answered "
        "from what is left; changes are refused. Put a good copy of events.db back; or, to go on "
        "without these events: tagstream serve DIR --accept-loss"
    )


def is_checked(name: str) -> bool:
    """Return whether a person checks the tags that are applied to an item: one item in twenty."""
    return zlib.crc32(name.encode()) % CHECKED == 0


def blocks(events: Iterator[Event]) -> Iterator[list[Event]]:
    while block := [*islice(events, REPLAY_ITEMS)]:
        yield block


def _record(body: dict[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in ("text", "x") if name in body}


def runs(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Cut events into runs of learn events and single others."""
    run: list[Event] = []
    for event in events:
        if event.kind == "learn":
            run.append(event)
            continue
        if run:
            yield run
        yield [event]
        run = []
    if run:
        yield run


def apply_events(tagger: Tagger, run: Sequence[Event]) -> None:
    """Make the change of one event, or of a run of learn events, on a tagger."""
    if run[0].kind == "learn":
        tagger.learn([event.body for event in run])
    elif run[0].does.changes:
        tagger.change(run[0].kind, **run[0].body)


def try_events(tagger: Tagger, events: Sequence[Event]) -> Exception | None:
    """Make the changes of events on a tagger; return the error if it fails, whatever it is.

    The tagger may be half changed then.
    """
    try:
        for run in runs(events):
            apply_events(tagger, run)
    except Exception as error:
        return error
    return None


def outcomes(events: Sequence[Event]) -> list[Outcome]:
    """Return what was suggested for the items of the random half, and their tags.

    The other half is offered because the model is unsure of it, so it would look worse than it is.
    """
    return [
        Outcome(event.position, frozenset(event.suggested), frozenset(event.body["y"]))
        for event in events
        if event.suggested is not None and "y" in event.body and is_random(event.body["id"])
    ]


def retry(folder: Path, position: int) -> int:
    """Append a quarantined event anew, for the next start to learn; return its new position.

    The service must not run meanwhile.

    Raises
    ------
    OSError
        The folder is in use, or its log is damaged.
    ValueError
        There is no such event, or its item was changed since.
    """
    path = folder / "events.db"
    if not path.exists():
        raise OSError(f"{folder} must be the folder of a service, got no events.db in it")
    with contextlib.closing(_lock(folder, "stop the service first")):
        log, losses = open_log(path, Snapshots(folder).last_known())
        try:
            if losses:
                raise OSError(_loss_words(losses))
            return _append_again(log, position)
        finally:
            log.close()
            remove_copy(path)


def _append_again(log: EventLog, position: int) -> int:
    event = log.find(position)
    if event is None or not event.is_quarantined:
        known = ", ".join(str(found) for found, _ in log.quarantined()) or "none"
        raise ValueError(
            f"POSITION must be that of a quarantined event, got {position}; quarantined: {known}"
        )
    newest = None if event.item is None else log.last_of_item(event.item)
    if newest is not None and newest > position:
        raise ValueError(
            f"the item of event {position} must not have changed since, got event {newest}; "
            "a retry would undo that"
        )
    n = len(log.keys(f"retry:{position}:"))
    again = Event(
        event.kind, f"retry:{position}:{n + 1}", event.body, who="local", source="command"
    )
    with log.transaction():
        return log.append(again)


def _lock(folder: Path, what_to_do: str = "") -> Any:
    """Return a file that is locked as long as it is open."""
    file = open(folder / "lock", "a+")  # noqa: SIM115 - it stays open while the service lives
    try:
        locks.lock(file.fileno())
    except OSError as error:
        file.seek(0)
        owner = file.read().strip() or "another process"
        file.close()
        hint = f"; {what_to_do}" if what_to_do else ""
        raise OSError(f"{folder} must not be served twice, got a lock of {owner}{hint}") from error
    file.truncate(0)
    file.write(f"process {os.getpid()}")
    file.flush()
    return file


def _digest(path: Path) -> bytes:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).digest()
