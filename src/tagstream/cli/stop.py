"""Signals that ask to stop: heeded at once, or after a change of state that is under way."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

__all__ = ["STOP", "Stop", "Stopped"]


class Stopped(BaseException):
    """A signal asked to stop while nothing was being changed."""


class Stop:
    """Turns SIGINT and SIGTERM into `Stopped`, while it is entered.

    Attributes
    ----------
    asked : int
        The number of the signal that came, 0 if none did.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._busy = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        self.asked, self._busy = 0, False
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):  # not in the main thread
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    @property
    def exit_code(self) -> int:
        """What a process that was stopped returns."""
        return 128 + (self.asked or signal.SIGINT)

    def _note(self, number: int, frame: FrameType | None) -> None:
        twice, self.asked = bool(self.asked), number
        if twice or not self._busy:
            raise Stopped

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Finish what is inside before a signal is heeded; a second signal does not wait."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        if self.asked:
            raise Stopped


STOP = Stop()
