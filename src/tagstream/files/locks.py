"""Locks on files: one process at a time.

The system releases a lock when the process that holds it ends, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

__all__ = ["held", "lock", "take"]

_LOCKED_BYTE = 1 << 30  # on Windows, where the locked part of a file cannot be read by others


def lock(handle: int) -> None:
    """Lock an open file, or raise BlockingIOError if another process has locked it."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError from error
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def take(place: str) -> int:
    """Create and lock a file that its holder removes in the end; return its descriptor."""
    while True:
        handle = os.open(place, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            lock(handle)
        except BaseException:
            os.close(handle)
            raise
        # Its last holder may have removed the file between the two calls.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(place)):
                return handle
        os.close(handle)


@contextlib.contextmanager
def held(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a model file: nobody else may change it until this is left.

    The lock is on a file beside it, which is removed in the end.  One that a killed process left
    is free: the system lets go of a lock when its holder dies.

    Raises
    ------
    BlockingIOError
        Another process holds it.
    """
    folder, name = os.path.split(os.path.realpath(path))
    place = os.path.join(folder, f".{name}.lock")
    handle = take(place)
    try:
        yield
    finally:
        if os.name != "nt":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(place)
        os.close(handle)
