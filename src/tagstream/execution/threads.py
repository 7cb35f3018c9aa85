"""Work that is shared out among threads, with results that do not depend on how.

BLAS and LAPACK add in another order when they use another number of threads, and the last bit of a
sum changes.  So everything that they compute for a state is computed by one thread of theirs, see
:data:`ONE_BLAS_THREAD`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["ONE_BLAS_THREAD", "in_threads", "n_threads"]

T = TypeVar("T")
R = TypeVar("R")

_shared = threading.local()  # whether this thread is one of several already


def _set_threads(pool: Any, n: int) -> None:
    """Set the limit of a library, whichever thread has set it before.

    From version 3.8 on, threadpoolctl gives one thread the control of OpenBLAS.  What another
    thread sets has then no effect, and nothing says so.
    """
    pool.set_num_threads(n)
    if pool.get_num_threads() != n:
        _give_up_control(pool)
        pool.set_num_threads(n)


def _give_up_control(pool: Any) -> None:
    """Let every thread set the limit of a library."""
    if hasattr(pool, "clear_controlling_thread"):
        pool.clear_controlling_thread(force=True)


class _OneBlasThread:
    """A context in which every BLAS library of this process uses one thread.

    NumPy and SciPy each bring a library, and a library may be loaded at any time.  The limits of
    these libraries hold for the whole process.  So the first one to enter notes the limits, all
    who enter set them to one, and the last one to leave restores them.  Two threads that enter and
    leave as they please never undo each other's limit, which they do with threadpoolctl's own.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside = 0
        self._pools: list[Any] = []  # threadpoolctl's controllers of the libraries
        self._before: dict[str, int] = {}  # the limit of each library when it was first set
        self._n_modules = 0  # that were loaded when the libraries were looked for

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            self._limit()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                before, self._before = self._before, {}
                for pool in self._pools:
                    _set_threads(pool, before.get(pool.filepath, 1))
                    _give_up_control(pool)

    def look_again(self) -> None:
        """Limit also what was loaded since, and this thread, if anybody is inside."""
        with self._lock:
            if self._inside:
                self._limit()

    def _limit(self) -> None:
        # A library comes with a module.  To look for libraries takes about a millisecond.
        if self._n_modules != len(sys.modules):
            found = ThreadpoolController().lib_controllers
            self._pools = [pool for pool in found if pool.user_api == "blas"]
            self._n_modules = len(sys.modules)
        for pool in self._pools:
            if pool.filepath not in self._before:
                self._before[pool.filepath] = pool.get_num_threads()
            _set_threads(pool, 1)  # by each thread: some libraries have a limit for each


ONE_BLAS_THREAD = _OneBlasThread()


def n_threads() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _helper() -> None:
    _shared.helper = True
    ONE_BLAS_THREAD.look_again()


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
    with ONE_BLAS_THREAD, ThreadPoolExecutor(size, initializer=_helper) as threads:
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
