"""Events made to happen: on a tagger, one after the other, and what follows from them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tagstream.knows.next_items import is_random
from tagstream.serve.log import Event
from tagstream.serve.progress import Outcome
from tagstream.serve.taggers import Tagger

__all__ = [
    "apply_events",
    "error_words",
    "failure_words",
    "is_checked",
    "is_refusal",
    "outcomes",
    "record_of",
    "runs",
    "try_events",
]

# One item in so many whose tags were applied without asking is offered to a person.
CHECKED = 20


def error_words(error: Exception) -> str:
    """Return what an error says; that of a KeyError stands in quotes otherwise."""
    said = error.args[0] if isinstance(error, KeyError) and error.args else error
    return str(said) or type(error).__name__


def is_refusal(error: Exception) -> bool:
    """Return whether the tagger says that an event cannot be, and has not just failed on it."""
    return isinstance(error, (ValueError, KeyError)) and not isinstance(
        error, np.linalg.LinAlgError
    )


def failure_words(position: int, error: Exception) -> str:
    """Return what the sender of an event is told on which the tagger failed."""
    if is_refusal(error):
        return error_words(error)
    return (
        f"event {position} is written down, but the tagger failed on it "
        f"({type(error).__name__}: {error_words(error)[:300]}); it is quarantined, and the service "
        f"goes on without it. To try it again, stop the service: tagstream log retry DIR {position}"
    )


def is_checked(name: str) -> bool:
    """Return whether a person checks the tags that are applied to an item: one item in twenty."""
    return zlib.crc32(name.encode()) % CHECKED == 0


def record_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a body that a tagger is asked about."""
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


def apply_events(tagger: Tagger, run: Sequence[Event], asked: Any = None) -> None:
    """Make the change of one event, or of a run of learn events, on a tagger."""
    if run[0].kind == "learn":
        tagger.learn([event.body for event in run], asked=asked)
    elif run[0].does.changes:
        tagger.change(run[0].kind, **run[0].body)


def try_events(tagger: Tagger, events: Sequence[Event], asked: Any = None) -> Exception | None:
    """Make the changes of events on a tagger; return the error if it fails, whatever it is.

    The tagger may be half changed then.  ``asked`` is what was found out about the items when
    something was suggested for them.
    """
    try:
        for run in runs(events):
            apply_events(tagger, run, asked)
    except Exception as error:
        return error
    return None


def outcomes(events: Sequence[Event]) -> list[Outcome]:
    """Return what was suggested for the items of the random half, and their tags.

    The other half is offered because the model is unsure of it, so it would look worse than it is.
    """
    return [
        Outcome(event.position, frozenset(event.suggested), frozenset(event.body["y"]), event.who)
        for event in events
        if event.suggested is not None and "y" in event.body and is_random(event.body["id"])
    ]
