"""Work that is shared out among threads, with results that do not depend on how."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tagstream.checks import blas_threads

__all__ = ["in_threads", "n_threads"]

T = TypeVar("T")
R = TypeVar("R")

_shared = threading.local()  # whether this thread is one of several already


def n_threads() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _helper() -> None:
    _shared.helper = True


def in_threads(function: Callable[[T], R], items: Iterable[T], *, worth: bool) -> Iterator[R]:
    """Yield ``function(item)`` of each item, in their order, made in threads if ``worth`` it.

    Each thread takes the next item when it is done with its last, so one that has to wait for a
    processor holds up no more than one item.  BLAS is kept to one thread in each: two that wait for
    each other on a busy machine take ten times as long.  A few results at most wait to be taken.
    Inside of ``function`` nothing is shared out again.
    """
    size = n_threads()
    if not worth or size < 2 or getattr(_shared, "helper", False):
        yield from map(function, items)
        return
    with blas_threads(0.0), ThreadPoolExecutor(size, initializer=_helper) as threads:
        waiting: deque[Future[R]] = deque()
        try:
            for item in items:
                waiting.append(threads.submit(function, item))
                if len(waiting) > size:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
