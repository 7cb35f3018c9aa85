"""Undo: take back one's own last change, if nobody has changed its items since.

A change of many items is one change.  Nothing is removed from the log: an undo appends events that
put the items back as they were, and an event that says what was undone by what.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tagstream.serve.changes import Conflict, Refused
from tagstream.serve.log import Event

if TYPE_CHECKING:
    from tagstream.serve.served import Served

__all__ = ["Spans", "Undoable", "events_of_undo", "find_undoable"]

UNDONE_KINDS = ("learn", "forget", "rename")
# What a person does with one step at a time.  The others come in streams.
STREAMS = ("import", "label studio", "webhook")
LOOKED_AT = 200  # events at a time

Span = tuple[int, int]


class Spans:
    """Which events belong together, and which were undone or undo others.

    Examples
    --------
    >>> spans = Spans()
    >>> spans.add(Event("together", "a", {"first": 3, "last": 5}))
    >>> spans.add(Event("undo", "b", {"of": [3, 5], "by": [7, 9]}))
    >>> spans.of(4), spans.of(6), [spans.is_undo(p) for p in (2, 4, 8, 10)]
    ((3, 5), (6, 6), [False, True, True, False])
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._together: list[Span] = []
        self._undone: list[Span] = []
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Take in an event; only those of two kinds say something."""
        if event.kind == "together":
            insort(self._together, (event.body["first"], event.body["last"]))
        elif event.kind == "undo":
            for first, last in (event.body["of"], event.body["by"]):
                insort(self._undone, (first, last))

    def of(self, position: int) -> Span:
        """Return first and last position of the change that an event belongs to."""
        return _find(self._together, position) or (position, position)

    def is_undo(self, position: int) -> bool:
        """Return whether an event was undone, or undoes others."""
        return _find(self._undone, position) is not None


def _find(spans: list[Span], position: int) -> Span | None:
    """Return the span that holds a position; spans do not overlap."""
    i = bisect_right(spans, (position, 1 << 62)) - 1
    return spans[i] if i >= 0 and spans[i][0] <= position <= spans[i][1] else None


@dataclass(frozen=True)
class Undoable:
    """A change that can be undone: first and last position, its newest event."""

    span: Span
    event: Event


def find_undoable(service: Served, who: str, position: int | None = None) -> Undoable:
    """Return a person's last change that was not undone yet, or the one of a position.

    Raises
    ------
    Refused
        There is none, or it cannot be undone.
    """
    if position is not None:
        event = service.log.find(position)
        if event is None or event.refused is not None or event.who != who:
            raise Refused(f"position must be that of a change of {who}, got {position}",
                          "position", 404)  # fmt: skip
        if service.spans.is_undo(position):
            raise Refused("the change must not be undone already", "position", 409)
        return _checked(service, event)
    before = service.log.position + 1
    while events := service.log.made_by(who, before, LOOKED_AT):
        for event in events:
            is_change = event.does.changes or event.kind == "answer"
            if is_change and not service.spans.is_undo(event.position):
                return _checked(service, event)
        before = events[-1].position
    raise Refused(f"there must be a change of {who} that is not undone, got none", "", 404)


def _checked(service: Served, event: Event) -> Undoable:
    if event.kind not in (*UNDONE_KINDS, "answer"):
        raise Refused(f"the change must be one that can be undone, got: {event.kind}", "", 409)
    if event.source in STREAMS:
        raise Refused(f"the change must be a person's, got one of: {event.source}", "", 409)
    return Undoable(service.spans.of(event.position), event)


def events_of_undo(service: Served, change: Undoable) -> list[Event]:
    """Return the events that take a change back; they are not written yet (writer only).

    Raises
    ------
    Conflict
        An item was changed since.
    Refused
        A tag was changed since.
    """
    if change.event.kind == "rename":
        return [_renamed_back(service, change.event)]
    first, last = change.span
    touched: dict[str, int] = {}
    for event in service.log.between(first, last):
        if event.kind in UNDONE_KINDS and event.item is not None:
            touched.setdefault(event.item, event.position)
    made: list[Event] = []
    for item, position in touched.items():
        since = service.log.changes_after(item, last)
        others = [event for event in since if not service.spans.is_undo(event.position)]
        if others:
            raise Conflict(item, last, others[-1].position)
        made += _put_back(service, item, service.log.state_before(item, position))
    return made


def _put_back(service: Served, item: str, before: Event | None) -> list[Event]:
    """Return the events after which an item is as an event says."""
    now = service.log.newest(item, own=True)
    if before is None or before.kind == "forget":
        return [] if now is None else [_event("forget", {"id": item})]
    if before.kind == "auto":
        forgotten = [_event("forget", {"id": item})] if now is not None else []
        return [*forgotten, _event("auto", service.state(before))]
    return [_event("learn", service.state(before))]


def _renamed_back(service: Served, event: Event) -> Event:
    old, new = event.body["old"], event.body["new"]
    tags = service.read().view.tags
    if service.names.now([new], event.position) != [new] or new not in tags or old in tags:
        raise Refused("the tags must not have changed since, got other names", "", 409)
    return _event("rename", {"old": new, "new": old})


def _event(kind: str, body: dict[str, Any]) -> Event:
    return Event(kind, f"auto:{uuid.uuid4().hex}", body)
