"""Live news for windows that are open: what has changed, as server-sent events.

The writer wakes the streams; each then tells the newest numbers and the items that were changed.  A
stream that nobody reads keeps nothing but its position, so a slow reader costs no memory.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from tagstream.serve.changes import Busy
from tagstream.serve.served import Served

__all__ = ["Live"]

MOST = 500  # streams at a time
LIFETIME_SECONDS = 600.0  # then the reader connects again
ALIVE_SECONDS = 15.0  # between two signs of life
GAP_SECONDS = 0.25  # between two messages
MOST_ITEMS = 100  # of a message


class Live:
    """The open streams of one service.

    Parameters
    ----------
    service : Served
    lifetime, alive, gap : float
        Seconds: how long a stream lasts, how often it gives a sign of life, how often it speaks.
    """

    def __init__(
        self,
        service: Served,
        lifetime: float = LIFETIME_SECONDS,
        alive: float = ALIVE_SECONDS,
        gap: float = GAP_SECONDS,
    ) -> None:
        self.service = service
        self.lifetime, self.alive, self.gap = lifetime, alive, gap
        self._wakes: set[asyncio.Event] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        service.on_change = self.wake

    def __len__(self) -> int:
        return len(self._wakes)

    def wake(self) -> None:
        """Let all streams look for news; any thread may call."""
        with self._lock:
            loop = self._loop
            if loop is not None and not loop.is_closed():
                loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for wake in self._wakes:
            wake.set()

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        self.wake()

    def forget_loop(self) -> None:
        """Wake nobody any more: the loop ends."""
        with self._lock:
            self._loop = None

    def open(
        self,
        may_go_on: Callable[[], bool],
        reading: Callable[[Callable[[], Any]], Awaitable[Any]],
        after: int | None = None,
    ) -> AsyncIterator[str]:
        """Return the messages of a new stream.

        Parameters
        ----------
        may_go_on : callable
            Returns whether the reader may still ask; looked at before each sign of life.
        reading : callable
            Runs a function in a thread that reads.
        after : int, optional
            The position that the reader knows.

        Raises
        ------
        Busy
            There are too many streams.
        """
        if len(self._wakes) >= MOST:
            raise Busy(5)
        known = self.service.read().position
        self._loop = asyncio.get_running_loop()
        return self._messages(may_go_on, reading, known if after is None else min(after, known))

    async def _messages(
        self,
        may_go_on: Callable[[], bool],
        reading: Callable[[Callable[[], Any]], Awaitable[Any]],
        position: int,
    ) -> AsyncIterator[str]:
        wake = asyncio.Event()
        self._wakes.add(wake)
        end = time.monotonic() + self.lifetime
        told: dict[str, Any] = {}
        try:
            while not self._is_closed and time.monotonic() < end:
                state = self._state()
                if state["position"] > position:
                    since, position = position, state["position"]
                    news = await reading(lambda since=since: self._news(since))  # type: ignore[misc]
                    if news["items"]:
                        yield _message("items", news, position)
                if state != told:
                    told = state
                    yield _message("state", state, position)
                    await asyncio.sleep(self.gap)
                try:
                    await asyncio.wait_for(wake.wait(), self.alive)
                    wake.clear()
                except (TimeoutError, asyncio.TimeoutError):
                    if not may_go_on():
                        break
                    yield ":\n\n"
            yield _message("end", {}, position)
        finally:
            self._wakes.discard(wake)

    def _state(self) -> dict[str, Any]:
        service = self.service
        published = service.read()
        return {
            "position": published.position,
            "n_items": published.n_items,
            "n_tags": len(published.view.tags),
            "n_pool": len(service.pool),
            "n_queued": service.n_queued,
            "micro_f1": service.progress.f1(),
            "n_quarantined": len(service.quarantined),
        }

    def _news(self, since: int) -> dict[str, Any]:
        """Return the items that were changed, the latest first."""
        rows = self.service.log.items_since(since, MOST_ITEMS + 1)
        items = [
            {"id": item, "kind": kind, "who": who or None, "source": source, "position": position}
            for position, kind, item, who, source in rows[:MOST_ITEMS]
        ]
        return {"items": items, "more": len(rows) > MOST_ITEMS}


def _message(event: str, data: dict[str, Any], position: int) -> str:
    return f"id: {position}\nevent: {event}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
