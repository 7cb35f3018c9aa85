"""The one thread that changes the tagger, and what it publishes for everyone else.

A change goes through one queue.  The writer takes what waits there, checks it, commits it to the
event log as one group, learns it, publishes a new view, and only then answers.  Readers take the
published view and never wait for the writer.

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
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tagstream.serve.log import Event, EventLog, LogFull, renamed
from tagstream.serve.pool import Pool
from tagstream.serve.progress import KEPT, Outcome, Progress

__all__ = ["Busy", "Change", "Closed", "Done", "Published", "Refused", "Service", "apply_events"]

# A group is answered together, so a larger one makes its first change wait longer.
GROUP_ITEMS = 256
# Items that may wait in the queue before a change is turned away.
QUEUE_ITEMS = 10_000
SNAPSHOT_EVENTS = 10_000
SNAPSHOTS_KEPT = 3
REPLAY_ITEMS = 512

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


class Busy(Exception):
    """Too much waits; try again after ``retry_after`` seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many changes wait; try again in {retry_after} s")
        self.retry_after = retry_after


class Closed(Exception):
    """The service is starting, stopping, or has failed."""


class View(Protocol):
    """What readers need of a tagger: an unchanging picture of it."""

    @property
    def tags(self) -> list[str]:
        """All tags."""

    @property
    def counts(self) -> dict[str, int]:
        """How many items have each."""

    @property
    def n_items(self) -> int:
        """How many items were learnt."""

    def suggest(self, records: Any, top: int | None = None, decide: Any = None) -> Any:
        """Return suggestions."""

    def explain(self, record: Any) -> Any:
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
    done : Future
        Set when the change is durable, learnt and published.
    """

    kind: str
    bodies: list[dict[str, Any]]
    keys: list[str | None]
    done: Future[Done] = field(default_factory=Future)


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

    Attributes
    ----------
    first : list of Change
        Made before anything else, if the folder is new.
    doing : str
        What takes its time while it is not ready yet.

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
    ) -> None:
        self.folder = folder
        self.snapshot_events = snapshot_events
        self.progress = Progress()
        self.pool = Pool()
        self.first: list[Change] = []
        self.on_failure: Callable[[], None] = lambda: None
        self._type: TaggerType = tagger if tagger is not None else _usual_tagger()
        self._snapshots = folder / "snapshots"
        self.log: EventLog
        self._open_folder(model)
        self.published: Published | None = None
        self.failure: BaseException | None = None
        self.n_duplicates = self.n_learnt = self.n_snapshots = 0
        self.replayed = 0
        self.doing = "starting"
        self._tagger: Tagger
        self._snapshot_at = 0
        self._tag_changes: list[Event] = []
        self._queue: deque[Change] = deque()
        self._n_queued = 0
        self._seconds_per_item = 0.002
        self._wake = threading.Condition()
        self._closing = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tagstream-writer", daemon=True)

    def _open_folder(self, model: Path | None) -> None:
        self._snapshots.mkdir(parents=True, exist_ok=True)
        self._lock_file = _lock(self.folder)
        try:
            self._keep_base(model)
            self.log = EventLog(self.folder / "events.db")
        except BaseException:
            self._lock_file.close()
            raise

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

    def close(self) -> None:
        """Do what waits, write a snapshot, and let the folder go."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self.log.close()
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
            if self._n_queued + len(change.bodies) > QUEUE_ITEMS:
                raise Busy(min(60, math.ceil(self._n_queued * self._seconds_per_item)))
            self._queue.append(change)
            self._n_queued += len(change.bodies)
            self._wake.notify()
        return change.done

    def tags_now(self, event: Event) -> list[str]:
        """Return the tags of a learn event as they are called now."""
        later = [change for change in self._tag_changes if change.position > event.position]
        return renamed(event.body["y"], later)

    # ------------------------------------------------------------------ the thread
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
        try:
            self._snapshot()
        except OSError as error:
            change.done.set_exception(LogFull(f"the snapshot cannot be written: {error}"))
        else:
            change.done.set_result(Done(1, 0, self.log.position))

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
        with self.log.transaction():
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
                    events.append(_at(event, position))
                written.append((plan, events))
        for change, why in refused:
            change.done.set_exception(why)
        all_events = [event for _, events in written for event in events if event.refused is None]
        failed = self._apply(all_events)
        self._note(all_events, failed)
        self._publish()
        for plan, events in written:
            self.n_duplicates += plan.duplicates
            errors = [failed[event.position] for event in events if event.position in failed]
            if errors:
                plan.change.done.set_exception(Refused(_words(errors[0])))
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
        for body, key in zip(change.bodies, change.keys, strict=True):
            if key is not None and self._is_answered(key, change.kind, body, known_keys):
                plan.duplicates += 1
                continue
            is_new, refused = False, None
            if change.kind == "learn":
                newest = planned.get(body["id"]) or self.log.newest(body["id"], own=True)
                is_new = not self._will_be_stored(body["id"], newest)
                if key is None and not is_new and newest and self._is_same(newest, body):
                    plan.duplicates += 1
                    continue
            elif not self._is_possible(change.kind, body):
                plan.duplicates += 1
                if key is None:
                    continue
                refused = ""  # the key is kept: should the item come later, a retry is no other
            event = Event(change.kind, key or f"auto:{uuid.uuid4().hex}", body, refused=refused)
            plan.events.append(event)
            plan.is_new.append(is_new)
            known_keys[event.key] = event
            if change.kind == "learn":
                planned[body["id"]] = event
        if change.kind == "learn" and plan.events:
            self._suggest_first(plan, told)
        return plan

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
        """Return whether learning ``body`` would change nothing."""
        now = {**newest.body, "y": self.tags_now(newest) if newest.position else newest.body["y"]}
        return {**now, "y": sorted(now["y"])} == {**body, "y": sorted(body["y"])}

    def _is_possible(self, kind: str, body: dict[str, Any]) -> bool:
        """Return whether there is something to do; refuse what cannot be."""
        known_tags = self.read().view.tags
        if kind == "forget":
            return self._is_known(body["id"])
        named = {
            "rename": [body.get("old")],
            "merge": body.get("tags"),
            "remove": [body.get("tag")],
        }
        for tag in named[kind] or ():
            if tag not in known_tags:
                where = {"rename": "old", "merge": "tags", "remove": "tag"}[kind]
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
        if together:
            told = [together[id(event.body)] for event in plan.events]
        else:
            try:
                told = self.read().view.suggest([_record(event.body) for event in plan.events])
            except ValueError as error:
                raise Refused(str(error), "items") from error
        for i, suggestion in enumerate(told):
            if plan.is_new[i]:
                event = plan.events[i]
                plan.events[i] = Event(
                    event.kind, event.key, event.body, [*suggestion.tags], time=event.time
                )

    # ------------------------------------------------------------------ learning
    def _apply(self, events: Sequence[Event]) -> dict[int, Exception]:
        """Change the tagger; return the events that it did not take, with the reasons."""
        failed: dict[int, Exception] = {}
        for run in _runs(events):
            failed.update(self._apply_run(run))
        for position, error in failed.items():
            # Where that cannot be written, a replay finds out again.
            with contextlib.suppress(LogFull):
                self.log.refuse(position, _words(error))
        return failed

    def _apply_run(self, run: list[Event]) -> dict[int, Exception]:
        try:
            apply_events(self._tagger, run)
        except (ValueError, KeyError) as error:
            if len(run) == 1:
                return {run[0].position: error}
            # A rejected call changes nothing, so the events of the run can go one by one.
            single = (self._apply_run([event]) for event in run)
            return {position: why for failed in single for position, why in failed.items()}
        return {}

    def _note(self, events: Sequence[Event], failed: dict[int, Exception]) -> None:
        """Keep what follows from events: outcomes, tag changes, the pool."""
        done = [event for event in events if event.position not in failed]
        self.n_learnt += sum(event.kind == "learn" for event in done)
        self._tag_changes += [event for event in done if event.kind not in ("learn", "forget")]
        self.pool.take(event.body["id"] for event in done if event.kind == "learn")
        self.progress.add(outcomes(done))

    def _publish(self) -> None:
        view = self._tagger.view()
        stored = getattr(self._tagger.learner, "n_stored_", view.n_items)
        self.published = Published(view, self.log.position, int(stored))

    # ------------------------------------------------------------------ snapshots
    def _load(self) -> None:
        """Open the newest whole snapshot and replay what came after it."""
        try:
            self._restore()
        except OSError as error:
            # An event in the middle is damaged: keep those before it.
            logger.error("%s", error)
            self.log.recover()
            self._restore()
        self._tag_changes = self.log.tag_changes()
        self.pool.put(self.log.pool())
        self.progress.add(outcomes(self.log.last_suggested(KEPT)))
        self.doing = "warming up (the first start after an installation compiles)"
        warm_up(self._type)
        self._publish()
        self.doing = "learning what a new folder begins with"
        if self.log.position == 0 and not len(self.pool) and self._tagger.view().n_items == 0:
            for change in self.first:
                self._do([change])

    def _restore(self) -> None:
        self.doing = "opening the newest snapshot"
        self._tagger, position = self._newest_snapshot()
        self._snapshot_at = position
        self.log.skip_to(position)
        self.replayed = 0
        run: list[Event] = []
        expected = position
        for event in self.log.after(position):
            run.append(event)
            self.replayed += 1
            self.doing = f"replaying the log, {self.replayed:,} events"
            expected = event.position
            if len(run) == REPLAY_ITEMS:
                self._apply(run)
                run = []
        self._apply(run)
        logger.info("state at position %d, %d events replayed", expected, self.replayed)

    def _newest_snapshot(self) -> tuple[Tagger, int]:
        for path in sorted(self._snapshots.glob("*.tgs"), reverse=True):
            if not path.stem.isdigit():
                continue
            try:
                return self._type.open(path), int(path.stem)
            except (ValueError, OSError) as error:
                logger.error("snapshot %s is damaged (%s); using the one before", path, error)
                os.replace(path, path.with_suffix(".damaged"))
        base = self.folder / "base.tgs"
        return (self._type.open(base) if base.exists() else self._type()), 0

    def _try_snapshot(self) -> None:
        try:
            self._snapshot()
        except OSError as error:
            logger.error("the snapshot was not written, and is not needed to go on: %s", error)
            self._snapshot_at = self.log.position  # not again at once

    def _snapshot(self) -> None:
        position = self.log.position
        path = self._snapshots / f"{position:012d}.tgs"
        if position == 0 or path.exists() or not self.read().view.n_items:
            return
        start = time.perf_counter()
        self._tagger.save(path)
        self._snapshot_at = position
        self.n_snapshots += 1
        kept = sorted(p for p in self._snapshots.glob("*.tgs") if p.stem.isdigit())
        for old in kept[:-SNAPSHOTS_KEPT]:
            old.unlink()
        took = time.perf_counter() - start
        logger.info("snapshot at position %d written in %.2f s", position, took)

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
        shutil.copyfile(model, new)
        with open(new, "rb") as file:
            os.fsync(file.fileno())
        os.replace(new, base)


def _usual_tagger() -> TaggerType:
    from tagstream.tagger import Tagger as usual

    made: TaggerType = usual
    return made


def _at(event: Event, position: int) -> Event:
    return Event(
        event.kind, event.key, event.body, event.suggested, event.refused, position, event.time
    )


def _words(error: Exception) -> str:
    """Return what an error says; that of a KeyError stands in quotes otherwise."""
    said = error.args[0] if isinstance(error, KeyError) and error.args else error
    return str(said) or type(error).__name__


def _record(body: dict[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in ("text", "x") if name in body}


def _runs(events: Sequence[Event]) -> Iterator[list[Event]]:
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
    else:
        tagger.change(run[0].kind, **run[0].body)


def outcomes(events: Sequence[Event]) -> list[Outcome]:
    return [
        Outcome(event.position, frozenset(event.suggested), frozenset(event.body["y"]))
        for event in events
        if event.suggested is not None
    ]


def warm_up(tagger: TaggerType) -> None:
    """Learn and suggest with a tagger of its own, so that what must be compiled is compiled."""
    scratch = tagger()
    words = ("sort", "list", "sea", "swim", "soup", "salt")
    scratch.learn(
        [
            {"id": f"{i}", "text": f"{words[i % 6]} {words[i // 6 % 6]}", "y": [words[i % 3]]}
            for i in range(64)
        ]
    )
    view = scratch.view()
    view.suggest([{"text": "sort a list"}])
    view.explain({"text": "sort a list"})


def _lock(folder: Path) -> Any:
    """Return a file that is locked as long as it is open."""
    import fcntl

    file = open(folder / "lock", "a+")  # noqa: SIM115 - it stays open while the service lives
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        owner = file.read().strip() or "another process"
        file.close()
        raise OSError(f"{folder} must not be served twice, got a lock of {owner}") from error
    file.truncate(0)
    file.write(f"process {os.getpid()}")
    file.flush()
    return file


def _digest(path: Path) -> bytes:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).digest()
