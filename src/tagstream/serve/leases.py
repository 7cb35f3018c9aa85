"""Leases: who is tagging which item right now, so that two people do not get the same one.

Leases live in memory only.  A lease that is not renewed ends by itself, and a restart ends all.
A lease keeps nobody from changing an item: versions do that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Lease", "Leases", "Skipped"]

SECONDS = 300.0
MOST = 100_000  # leases at a time; beyond that the oldest ends


@dataclass(frozen=True)
class Lease:
    """Who has an item, and until when.

    Attributes
    ----------
    who : str
        The person.
    tab : str
        Which of the person's windows; a person may tag in two of them.
    until : float
        When it ends, by the clock of :class:`Leases`.
    """

    who: str
    tab: str
    until: float


class Skipped:
    """Which items each person leaves to others.  In memory only; any thread may call.

    Examples
    --------
    >>> skipped = Skipped()
    >>> skipped.add("anna", "7"); skipped.of("anna"), skipped.of("ben")
    ({'7'}, set())
    """

    def __init__(self) -> None:
        self._items: dict[str, dict[str, None]] = {}
        self._lock = threading.Lock()

    def add(self, who: str, item: str) -> None:
        """Let an item come last for a person; of very many the oldest is forgotten."""
        with self._lock:
            items = self._items.setdefault(who, {})
            items.pop(item, None)
            items[item] = None
            if len(items) > MOST:
                del items[next(iter(items))]

    def of(self, who: str) -> set[str]:
        """Return the items that a person has skipped."""
        with self._lock:
            return {*self._items.get(who, ())}


class Leases:
    """The leases of one service.  Any thread may call.

    Parameters
    ----------
    seconds : float
        How long a lease holds.
    clock : callable
        Returns a time in seconds that only rises.

    Examples
    --------
    >>> leases = Leases()
    >>> leases.take("7", "anna", "a") is None, leases.take("7", "ben", "b").who
    (True, 'anna')
    >>> leases.release("7", "anna", "a"), leases.take("7", "ben", "b") is None
    (True, True)
    """

    def __init__(
        self, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._leases: dict[str, Lease] = {}
        self._lock = threading.Lock()

    def take(self, item: str, who: str, tab: str) -> Lease | None:
        """Take or renew the lease of an item; return that of somebody else if there is one."""
        with self._lock:
            held = self._held(item)
            if held is not None and (held.who, held.tab) != (who, tab):
                return held
            self._leases.pop(item, None)
            self._leases[item] = Lease(who, tab, self._clock() + self.seconds)
            while len(self._leases) > MOST:
                del self._leases[next(iter(self._leases))]
            return None

    def release(self, item: str, who: str, tab: str) -> bool:
        """End a lease; return whether there was one of this person."""
        with self._lock:
            held = self._held(item)
            if held is None or (held.who, held.tab) != (who, tab):
                return False
            del self._leases[item]
            return True

    def end(self, item: str) -> None:
        """End the lease of an item that has its tags, whoever has it."""
        with self._lock:
            self._leases.pop(item, None)

    def of_others(self, who: str, tab: str) -> set[str]:
        """Return the items that somebody else is tagging."""
        with self._lock:
            items = [*self._leases]
            held = {item: self._held(item) for item in items}
        return {
            item
            for item, lease in held.items()
            if lease is not None and (lease.who, lease.tab) != (who, tab)
        }

    def holder(self, item: str) -> Lease | None:
        """Return the lease of an item, if there is one."""
        with self._lock:
            return self._held(item)

    def _held(self, item: str) -> Lease | None:
        lease = self._leases.get(item)
        if lease is not None and lease.until <= self._clock():
            del self._leases[item]
            return None
        return lease
