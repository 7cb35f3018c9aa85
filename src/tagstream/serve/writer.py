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
import logging
import math
import sqlite3
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from tagstream.checks import DataError
from tagstream.serve.changes import Busy, Change, Closed, Conflict, Done, Held, Refused
from tagstream.serve.export import items_of_model
from tagstream.serve.folder import keep_base, lock_folder, loss_words, remove_leftovers
from tagstream.serve.index import Index
from tagstream.serve.log import Event, LogFull
from tagstream.serve.planning import Plan, Planner
from tagstream.serve.progress import KEPT
from tagstream.serve.recovery import open_log, remove_copy
from tagstream.serve.replay import (
    apply_events,
    error_words,
    failure_words,
    is_checked,
    is_refusal,
    outcomes,
    record_of,
    try_events,
)
from tagstream.serve.served import Published, Served, Stopped
from tagstream.serve.snapshots import Snapshots
from tagstream.serve.taggers import TaggerType, View
from tagstream.tagger import warm_up

__all__ = [
    "Busy",
    "Change",
    "Closed",
    "Conflict",
    "Done",
    "Held",
    "Published",
    "Refused",
    "Service",
    "TaggerType",
    "View",
    "apply_events",
    "outcomes",
    "try_events",
]

# A group is answered together, so a larger one makes its first change wait longer.
GROUP_ITEMS = 256
# Items that may wait in the queue before a change is turned away.
QUEUE_ITEMS = 10_000
SNAPSHOT_EVENTS = 10_000
# Events that come with others, and are no changes of their own.
NOTES = ("began", "together", "undo", "import")
# If more events than this fail in one replay, the machine or the version is to blame, not they.
MOST_FAILED = 20

logger = logging.getLogger(__name__)


class _TooManyFailed(Exception):
    """So many events fail in a replay that it cannot be their fault."""


class Service(Served):
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
    agree : int
        How many people are asked about each item; 0: the last answer replaces those before.

    Attributes
    ----------
    first : list of Change
        Made before anything else, if the folder is new.

    Raises
    ------
    OSError
        Another service has the folder, or it cannot be written.
    """

    takes_changes = True

    def __init__(
        self,
        folder: Path,
        tagger: TaggerType | None = None,
        model: Path | None = None,
        snapshot_events: int = SNAPSHOT_EVENTS,
        accept_loss: bool = False,
        agree: int = 0,
    ) -> None:
        super().__init__(folder, tagger)
        self.agree = agree
        self.accept_loss = accept_loss
        self.snapshot_events = snapshot_events
        self.first: list[Change] = []
        self.snapshots = Snapshots(folder)
        self.index = Index(folder / "search.db")
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._open_folder(model)
        self.snapshot_problem = ""
        self.plans = Planner(self)
        self._unmarked: dict[int, Exception] = {}  # failed events that the log does not void yet
        self._queue: deque[Change] = deque()
        self._n_queued = 0
        self._seconds_per_item = 0.002

    def _open_folder(self, model: Path | None) -> None:
        self.snapshots.folder.mkdir(parents=True, exist_ok=True)
        self._lock_file = lock_folder(self.folder)
        try:
            remove_leftovers(self.folder, self.snapshots)
            keep_base(self.folder, model, self._type)
            known = self.snapshots.last_known()
            self.log, losses = open_log(self.folder / "events.db", known, self.accept_loss)
        except BaseException:
            self._lock_file.close()
            raise
        if losses:
            self.held = loss_words(losses)
            logger.error("%s", self.held)

    def _release(self) -> None:
        self.index.close()
        if self._scratch is not None:
            self._scratch.cleanup()
        self.log.close()
        if self.log.path != self.folder / "events.db":
            remove_copy(self.folder / "events.db")
        self._lock_file.close()

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
        except Stopped:
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
            words = f"the snapshot cannot be written: {error_words(error)}; nothing else is changed"
            change.done.set_exception(Refused(words, status=500))

    def _do_pool(self, change: Change) -> None:
        ids = [body["id"] for body in change.bodies]
        if change.kind == "unpool":
            with self.log.transaction():
                n = self.log.take_from_pool(ids)
            self.pool.take(ids)
            self._index([], ids)
        else:
            try:
                self.check_fit([body["item"] for body in change.bodies])
            except Exception as error:  # whatever it is, it concerns this change only
                change.done.set_exception(error)
                return
            items = [
                (b["id"], b["item"]) for b in change.bodies if not self.plans.is_known(b["id"])
            ]
            with self.log.transaction():
                n = self.log.put_in_pool(items)
            self.pool.put(items)
            self._index([], [name for name, _ in items])
        self.on_change()
        change.done.set_result(Done(n, len(ids) - n, self.log.position))

    def check_fit(self, items: list[dict[str, Any]], first: int = 0) -> None:
        """Refuse items that the tagger cannot take; the first such one is named."""
        try:
            self.read().view.ask(items)
        except ValueError as error:
            if len(items) == 1:
                raise Refused(f"items[{first}]: {error}", f"items[{first}]") from error
            for i, item in enumerate(items):
                self.check_fit([item], i)

    def _do_events(self, group: list[Change]) -> None:
        written: list[tuple[Plan, list[Event]]] = []
        refused: list[tuple[Change, Exception]] = []
        together = self.plans.suggest_together(group)
        self._void_failed()
        with self.log.transaction():
            self.log.tidy_pool()
            for change in group:
                try:
                    plan = self.plans.plan(change, together)
                except sqlite3.OperationalError:
                    raise
                except Exception as error:  # whatever it is, it concerns this change only
                    if not isinstance(error, Refused):
                        logger.exception("a change could not be planned")
                    refused.append((change, error))
                    continue
                written.append((plan, self._write(plan)))
        for change, why in refused:
            change.done.set_exception(why)
        all_events = [event for _, events in written for event in events if event.refused is None]
        asked = together.asked
        if len(group) == 1 and written:
            asked = written[0][0].asked
        failed = self._apply(all_events, asked)
        with contextlib.suppress(LogFull):  # before the next change at the latest
            self._void_failed()
        self._note(all_events, failed)
        waiting = [one for plan, _ in written for one in plan.waiting]
        settled = [name for plan, _ in written for name in plan.settled]
        self.pool.put(waiting)
        self.pool.take(settled)
        self._publish()
        done = [event for event in all_events if event.position not in failed]
        self._index(done, [*settled, *(name for name, _ in waiting)])
        for plan, events in written:
            self.n_duplicates += plan.duplicates
            errors = [event.position for event in events if event.position in failed]
            if errors:
                words = failure_words(errors[0], failed[errors[0]])
                plan.change.done.set_exception(Refused(words))
            else:
                plan.change.done.set_result(self._answer(plan, events))

    def _write(self, plan: Plan) -> list[Event]:
        """Write the events of a plan, inside a transaction; return them with their positions."""
        events = []
        for event in plan.events:
            events.append(replace(event, position=self.log.append(event)))
            if event.kind == "auto" and is_checked(event.body["id"]):
                self.log.put_in_pool([(event.body["id"], record_of(event.body))])
        self.log.put_in_pool(plan.waiting)
        self.log.settle(plan.settled, self.log.position)
        if plan.change.is_one and len(events) > 1:
            first, last = events[0].position, events[-1].position
            span = Event(
                "together", f"together:{first}", {"first": first, "last": last},
                who=plan.change.who, source=plan.change.source,
            )  # fmt: skip
            events.append(replace(span, position=self.log.append(span)))
        return events

    def _answer(self, plan: Plan, events: Sequence[Event]) -> Done:
        made = [event for event in events if event.kind not in NOTES]
        n = sum(event.refused is None for event in made) + plan.n_waiting
        ids: tuple[str, ...] = ()
        if plan.change.kind == "undo":
            ids = (*dict.fromkeys(event.item for event in made if event.item is not None),)
            n = len(ids) or n
        last = (made or events)[-1].position if events else self.log.position
        return Done(n, plan.duplicates, last, ids, (*plan.missing,))

    # ------------------------------------------------------------------ learning
    def _apply(self, events: Sequence[Event], asked: Any = None) -> dict[int, Exception]:
        """Change the tagger; return the events on which it failed, with the errors.

        Afterwards the state is that of a log without these events.  ``asked`` is what was found out
        about the items when something was suggested for them.
        """
        error = try_events(self._tagger, events, asked)
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
        if is_refusal(error):
            self.n_rejected += 1
            logger.warning(
                "the tagger did not take event %d: %s", event.position, error_words(error)
            )
        else:
            logger.error(
                "the tagger failed on event %d (%s), which is quarantined: %s",
                event.position, event.kind, error_words(error), exc_info=error,
            )  # fmt: skip

    def _go_back(self, position: int) -> int:
        """Restore the state before an event, and see to it that the next time is short."""
        at = super()._go_back(position)
        if position - at > self.replay_items:  # soon a snapshot, lest the next time takes as long
            self._snapshot_at = -self.snapshot_events
        return at

    def _is_void(self, position: int) -> bool:
        return position in self._unmarked

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
                kind = "reject" if is_refusal(error) else "quarantine"
                body = {"position": position, "why": failure_words(position, error)}
                key = f"{kind}:{position}"
                self.log.append(Event(kind, key, body, source="service"))
        self._unmarked.clear()
        self.quarantined = self.log.quarantined()

    # ------------------------------------------------------------------ the search index
    def _index(self, events: Sequence[Event], ids: Sequence[str] = ()) -> None:
        """Bring the search index up to date with events, and with items of the pool."""
        if self.index.is_broken:
            if self.index.may_try():
                self._make_index()
            return
        touched = [event.item for event in events if event.item is not None]
        with self.index.writing(self.log.position, self.log.digest_at(self.log.position)):
            for event in events:
                self.index.add(event)
            for name in dict.fromkeys([*touched, *ids]):
                self.index.set_waiting(name, self.pool.get(name))

    def _open_index(self, is_known: bool) -> None:
        """Open the search index and bring it up to date, or make it anew."""
        self.doing = "bringing the search index up to date"
        if self.held:  # nothing of the folder is touched
            self._scratch = tempfile.TemporaryDirectory(prefix="tagstream-")
            self.index = Index(Path(self._scratch.name) / "search.db")
        known = self.index.open()
        if known is None or not is_known or self.log.digest_at(known[0]) != known[1]:
            self._make_index()
            return
        pool = self.pool.all()
        with (
            contextlib.closing(self.log.after(known[0])) as events,
            self.index.writing(self.log.position, self.log.digest_at(self.log.position)),
        ):
            for run in self._blocks(events):
                self._stop_if_closing()
                for event in run:
                    if not self._is_void(event.position):
                        self.index.add(event)
            for name in self.index.not_as(pool):
                self.index.set_waiting(name, pool.get(name))

    def _make_index(self) -> None:
        self.doing = "making the search index"
        try:
            self.index.begin_anew()
            with self.index.writing(self.log.position, self.log.digest_at(self.log.position)):
                self._fill_index()
        except (sqlite3.Error, OSError) as error:
            logger.error("the search index cannot be made: %s", error)
            self.index.close()

    def _fill_index(self) -> None:
        for kept in self._items_of_base():
            self.index.put(kept, "began")
        for event in self.log.states():
            state = "applied" if event.kind == "auto" else "tagged"
            self.index.put(self.state(event), state, event)
        for name, body in self.pool.all().items():
            self.index.set_waiting(name, body)

    def _items_of_base(self) -> Iterator[dict[str, Any]]:
        """Yield the items that are as the model of the beginning has them, if it keeps them."""
        base = self.folder / "base.tgs"
        if not base.exists():
            return
        changed = self.log.changed_items()
        try:
            for name, kept in items_of_model(base):
                if kept is not None and name not in changed:
                    yield {**kept, "id": str(name), "y": self.names.now(kept["y"], 0)}
        except DataError as error:  # another type of tagger
            logger.warning("the items of %s are not listed: %s", base.name, error)

    # ------------------------------------------------------------------ snapshots
    def _load(self) -> None:
        """Open the newest whole snapshot and replay what came after it."""
        has_failed = False
        try:
            self._restore()
            has_failed = bool(self._unmarked)
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
        self._open_index(is_known=not has_failed)
        self.doing = "warming up (the first start after an installation compiles)"
        warm_up(self._type)
        self._publish()
        self.doing = "learning what a new folder begins with"
        is_new = self.log.position == 0 and not len(self.pool)
        if is_new and not self.held and self._tagger.view().n_items == 0:
            for change in self.first:
                self._do([change])

    def _restore(self) -> None:
        self.doing = "opening the newest snapshot"
        self._tagger, position = self.snapshots.newest(self._type)
        self._snapshot_at = position
        self.replayed = 0
        with contextlib.closing(self.log.after(position)) as events:
            for run in self._blocks(events):
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
                error_words(error), exc_info=error,
            )  # fmt: skip
            self.n_snapshots_failed += 1
            self.snapshot_problem = type(error).__name__
            return error
        finally:
            self._snapshot_at = self.log.position  # not again at once
        return None
