"""What is asked of the writer, what it answers, and how it refuses."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from tagstream.serve.tokens import ORIGIN

__all__ = ["Busy", "Change", "Closed", "Conflict", "Done", "Held", "Refused"]


class Refused(ValueError):
    """The change cannot be made; nothing was changed.

    Attributes
    ----------
    field : str
        What of the request is wrong.
    status : int
        The HTTP status that says so.
    more : dict
        What else is told.
    """

    def __init__(
        self, message: str, field: str = "", status: int = 422, more: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.field = field
        self.status = status
        self.more = more or {}


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


@dataclass
class Change:
    """What is asked of the writer.

    Attributes
    ----------
    kind : str
        A kind of event; ``retag``, which adds and removes tags of stored items; ``undo``; or
        ``pool``, ``unpool``, ``snapshot``, which change no model.
    bodies : list of dict
        One for each event.
    keys : list of (str or None)
        The keys of the events; None where the caller gave none.
    versions : list of (int or None)
        The versions of the items that the caller has seen; None where it does not matter.  Empty
        if it does not matter anywhere.
    done : Future
        Set when the change is durable, learnt and published.
    is_one : bool
        Whether its events are undone together.
    who, source : str
        Who makes it and what it came through; by default those of the request under way.
    """

    kind: str
    bodies: list[dict[str, Any]]
    keys: list[str | None]
    versions: list[int | None] = field(default_factory=list)
    done: Future[Done] = field(default_factory=Future)
    is_one: bool = False
    who: str = field(default_factory=lambda: ORIGIN.get()[0])
    source: str = field(default_factory=lambda: ORIGIN.get()[1])


@dataclass(frozen=True)
class Done:
    """The answer to a change.

    Attributes
    ----------
    n, duplicates : int
        Events written, and events that were there already.
    position : int
        Of the last event.
    ids : tuple of str
        Undo: the items that are as they were before.
    missing : tuple of str
        The items that are not there.
    """

    n: int
    duplicates: int
    position: int
    ids: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
