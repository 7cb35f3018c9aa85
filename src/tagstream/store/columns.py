"""Arrays whose rows are appended at the end and dropped at the front, and stay contiguous.

An array has at most an eighth of spare room.  What a snapshot shows never changes: rows are only
written behind those that it shows, and what would move or be rewritten is copied first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Sliding", "filled"]


class Sliding:
    """An array whose rows are appended at the end and dropped at the front, kept contiguous.

    Once it was shared with a snapshot, what the snapshot shows is not written any more.
    """

    def __init__(self, width: int | tuple[int, ...] | None, dtype: npt.DTypeLike) -> None:
        shape = width if isinstance(width, tuple) else () if width is None else (width,)
        self._array = np.zeros((0, *shape), dtype)
        self._start = self._stop = 0
        self._shared = False

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def live(self) -> npt.NDArray[Any]:
        """The rows, oldest first."""
        return self._array[self._start : self._stop]

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        return self._array.nbytes

    def snapshot(self) -> Sliding:
        """Return an immutable picture."""
        self._shared = True
        twin = object.__new__(Sliding)
        twin._array, twin._start, twin._stop = self._array, self._start, self._stop
        twin._shared = True
        return twin

    def append(self, block: npt.NDArray[Any]) -> None:
        """Add rows at the end."""
        self.room(len(block))[:] = block

    def room(self, n: int) -> npt.NDArray[Any]:
        """Make ``n`` new rows at the end and return them to be written."""
        self.make_room(n)
        return self._array[self._stop - n : self._stop]

    def make_room(self, n: int) -> None:
        """Make ``n`` new rows at the end, to be written."""
        if self._stop + n > len(self._array):
            need = len(self) + n
            fits = need <= len(self._array) * 8 // 9 and not self._shared
            array = self._array if fits else self._empty(need + need // 8 + 8)
            array[: len(self)] = self.live  # numpy copies overlapping ranges safely
            self._put(array, len(self))
        self._stop += n

    def drop(self, n: int) -> None:
        """Forget the ``n`` oldest rows."""
        self._start += n

    def remove(self, first: int, stop: int) -> None:
        """Take rows out of the middle."""
        kept = len(self) - (stop - first)
        if self._shared:
            array = self._empty(kept + kept // 8 + 8)
            array[:first] = self.live[:first]
            array[first:kept] = self.live[stop:]
            self._put(array, kept)
        else:
            self.live[first:kept] = self.live[stop:].copy()
            self._stop -= stop - first

    def write(self, position: int, row: Any) -> None:
        """Write one row anew."""
        if self._shared:
            self.replace(self.live.copy())
        self.live[position] = row

    def replace(self, rows: npt.NDArray[Any]) -> None:
        """Put other rows in the place of all."""
        self._put(rows, len(rows))

    def widen(self, width: int, fill: int = 0) -> None:
        """Give every row more columns, filled with ``fill``."""
        old = self.live
        if old.shape[1] == width:
            return
        array = np.full((len(old) + len(old) // 8 + 8, width), fill, old.dtype)
        array[: len(old), : old.shape[1]] = old
        self._put(array, len(old))

    def _put(self, array: npt.NDArray[Any], n: int) -> None:
        self._shared = self._shared and array is self._array
        self._array, self._start, self._stop = array, 0, n

    def _empty(self, n: int) -> npt.NDArray[Any]:
        return np.empty((n, *self._array.shape[1:]), self._array.dtype)


def filled(n: int, width: int | None, dtype: Any, value: Any) -> Sliding:
    """Return an array of ``n`` rows that hold one value."""
    made = Sliding(width, dtype)
    made.room(n)[:] = value
    return made
