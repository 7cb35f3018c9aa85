"""Signals that wait while a state is being changed.

Python runs the handler of a signal between any two instructions of the main thread, and Ctrl+C
raises ``KeyboardInterrupt`` there.  In the middle of a change it would leave half of a change.  So
while :data:`HELD` is entered, a signal is noted, and its handler runs when the change is whole.
Someone who cannot wait sends the signal again: the second one is heeded at once.

Other threads get no such exceptions, and there is nothing to hold for them.
"""

from __future__ import annotations

import signal
import threading

# The functions of `signal` without their wrappers, which make an enum of each answer: a quarter of
# a microsecond instead of seven, on the way of every single item that is learnt.
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_signal
from types import FrameType
from typing import Any

__all__ = ["HELD"]

SIGNALS = (signal.SIGTERM, signal.SIGINT)  # those that ask to stop


class _Held:
    """A context, to be entered any number of times, in which signals wait."""

    def __init__(self) -> None:
        self._depth = 0
        self._handlers: dict[int, Any] = {}  # those of others, while ours is in their place
        self._waiting: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            return
        if not self._depth:
            self._waiting = []
            for number in SIGNALS:
                handler = getsignal(number)
                # Ours may have been left there by a signal that came in between.
                if callable(handler) and handler != self._note:
                    self._handlers[number] = handler
                    set_signal(number, self._note)
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            return
        self._depth -= 1
        if self._depth:
            return
        for number, handler in self._handlers.items():
            if getsignal(number) == self._note:
                set_signal(number, handler)
        self._heed()

    def _note(self, number: int, frame: FrameType | None) -> None:
        again = bool(self._waiting)
        self._waiting.append((number, frame))
        if again or not self._depth:
            self._heed()

    def _heed(self) -> None:
        """Run the handlers of the signals that wait."""
        waiting, self._waiting = self._waiting, []
        for number, frame in waiting:
            self._handlers[number](number, frame)


HELD = _Held()
