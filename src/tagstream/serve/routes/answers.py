"""Answers: what the service knows, as JSON has it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from itertools import islice
from typing import Any

from tagstream.serve import schema
from tagstream.serve.agreement import ties
from tagstream.serve.log import Event
from tagstream.serve.served import Served
from tagstream.serve.taggers import View

__all__ = ["explanation", "item_now", "neighbour", "origin", "past", "plain", "suggestion", "when"]


def suggestion(told: Any, top: int) -> dict[str, Any]:
    """Return what was suggested: tags, the highest scores."""
    scores = {tag: round(float(score), 6) for tag, score in islice(told.scores.items(), top)}
    auto = [*getattr(told, "auto", ())]
    said = {"tags": [*told.tags], "scores": scores, "known": bool(told.known)}
    return {**said, "auto": auto} if auto else said


def explanation(view: View, record: dict[str, Any], as_next: bool) -> dict[str, Any]:
    """Return what is suggested for an item, and why."""
    asked = view.ask([record], next=as_next)
    told = suggestion(view.suggest(asked)[0], schema.MAX_TAGS)
    if not view.n_items:
        return {**told, "neighbours": [], "parts": {}, "copy_of": None, "words": {}}
    why = view.explain(asked)
    return {
        **told,
        "neighbours": [neighbour(near) for near in why.neighbors],
        "parts": {tag: plain(why.parts[tag]) for tag in told["tags"] if tag in why.parts},
        "copy_of": None if why.copy_of is None else neighbour(why.copy_of),
        "words": plain(getattr(why, "words", {})),
    }


def neighbour(near: Any) -> dict[str, Any]:
    """Return a stored item that lies near."""
    entry = {
        "id": str(near.id),
        "distance": round(float(near.distance), 6),
        "tags": [*near.labels],
    }
    return entry if near.text is None else {**entry, "text": near.text}


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, (str, int, bool)) or value is None:
        return value
    return round(float(value), 6)


def origin(event: Event) -> dict[str, str | None]:
    """Return who made a change, when, and through what."""
    return {
        "who": event.who or None,
        "when": when(event.time),
        "source": event.source or None,
    }


def when(seconds: float) -> str:
    """Return a time as ISO 8601 has it."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return moment.isoformat(timespec="milliseconds")


def item_now(service: Served, name: str) -> dict[str, Any] | None:
    """Return an item as it is now; None if it is not known, or was forgotten.

    It may be one that was learnt, one that waits, or one of the model of the beginning.
    """
    event = service.log.newest(name)
    waiting = service.pool.get(name)
    at: dict[str, str | None] = {"who": None, "when": None, "source": None}
    if event is not None:
        state, at = ("applied" if event.kind == "auto" else "tagged"), origin(event)
        body = {**service.state(event), "y": service.tags_now(event)}
    elif waiting is not None:
        state, body = "waiting", {"id": name, **waiting}
    else:
        kept = service.state_now(name, None)
        if kept is None:
            return None
        state, body = "began", kept
    given = service.answers.of_item(name)
    if given:
        body["answers"] = [
            {"who": who, "y": [*one.y], "no": [*one.no], "when": when(one.time)}
            for who, one in given.items()
        ]
        body["conflict"] = ties([(one.y, one.no) for one in given.values()])
    lease = service.leases.holder(name)
    position = 0 if event is None else event.position
    return {
        **body,
        "version": position,
        "position": position,
        **at,
        "by": at["who"],
        "at": at["when"],
        "state": state,
        "waits": waiting is not None,
        "lease": None if lease is None else lease.who,
    }


def past(event: Event) -> dict[str, Any]:
    """Return what one change made of an item; its tags are called what they were called then."""
    tags = event.body.get("y")
    return {"position": event.position, "kind": event.kind, "tags": tags, **origin(event)}
