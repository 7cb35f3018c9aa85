"""Rows in the order in which a search reads them, and groups of rows that it can skip."""

from __future__ import annotations

import numpy as np

from tagstream.checks import Distances, Singles
from tagstream.core.search import (
    BOX,
    GROUP,
    Groups,
    cast_shadows,
    group_rows,
    group_shadows,
    pack,
)
from tagstream.core.simd.tiles import LANES
from tagstream.execution.threads import ONE_BLAS_THREAD
from tagstream.limits import LIMITS, Limits
from tagstream.store.columns import Sliding

__all__ = ["Panels", "axes_of"]


SHADOW = 16  # numbers of a shadow,
UNSEEN = 1e-3  # or fewer, if they leave out no more than this share of the variance
SAMPLED = 4096  # rows that tell in which directions all of them vary

_NO_AXES = np.empty((0, 0))


class Panels:
    """Rows as a search reads them: side by side in panels of sixteen, one number of each per line.

    See :func:`tagstream.core.search.scan`.  If there are groups, panels hold only the latest
    rows.  Of arrays that are shared with a snapshot, only places that it does not look at are
    written.

    Parameters
    ----------
    rows : array of shape (n, d)
    axes : array of shape (d + 1, r), optional
        Those of shadows, to make groups: of these rows, and again when many more have come.
    limits : Limits, optional
    """

    def __init__(
        self, rows: Singles, axes: Distances | None = None, limits: Limits = LIMITS
    ) -> None:
        self._limits = limits
        self.grouped = axes is not None
        self._axes = _NO_AXES if axes is None else axes
        r = self._axes.shape[1]
        self._groups = Sliding((r + 1, LANES), np.float32)
        self._order = Sliding(None, np.int32)
        self._boxes = np.empty((2 * min(r, BOX), 0), np.float32)
        self._latest = Sliding((rows.shape[1] + 1, LANES), np.float32)
        # Rows are counted from the first ever: how many were dropped, which one has the first place
        # of the latest panels, and which comes next.
        self._gone = self._first = self._next = 0
        if self.grouped:
            self._next = len(rows)
            self.group(rows)
        else:
            self.append(rows)

    @property
    def live(self) -> tuple[Singles, int]:
        """The latest panels, and how many places of them come before the first row."""
        return self._latest.live, self._gone - self._first

    @property
    def groups(self) -> Groups:
        """The groups."""
        panels, order = self._groups.live, self._order.live
        return Groups(self._axes, panels, order, self._boxes, self._gone)

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        parts = (self._axes, self._groups, self._order, self._boxes, self._latest)
        return sum(part.nbytes for part in parts)

    @property
    def many(self) -> bool:
        """Whether so many rows have come that they should be grouped."""
        return self._next - max(self._first, self._gone) >= self._limits.grouped

    @property
    def stale(self) -> bool:
        """Whether half of what is in groups was dropped."""
        return 2 * self._gone > len(self._order)

    def snapshot(self) -> Panels:
        """Return an immutable picture."""
        twin = object.__new__(Panels)
        twin.__dict__.update(self.__dict__)
        twin._groups, twin._order = self._groups.snapshot(), self._order.snapshot()
        twin._latest = self._latest.snapshot()
        return twin

    def append(self, rows: Singles) -> None:
        """Add rows at the end."""
        at = self.make_room(len(rows))
        pack(rows, self._latest.live, at)

    def make_room(self, n: int) -> int:
        """Make places for ``n`` more rows, to be packed there; return the first."""
        at = self._next - self._first
        missing = -(-(at + n) // LANES) - len(self._latest)
        if missing > 0:
            new = self._latest.room(missing)
            new.fill(0)
            new[:, 0] = -np.inf  # no row is there yet
        self._next += n
        return at

    def group(self, rows: Singles) -> None:
        """Make groups of the latest of all rows, but for the last few."""
        start = max(self._first - self._gone, 0)
        n, r = (len(rows) - start) // GROUP * GROUP, self._axes.shape[1]
        shadows, slack = np.empty((n, r), np.float32), np.empty(n, np.float32)
        cast_shadows(rows[start : start + n], self._axes, shadows, slack)
        order, boxes = np.empty(n, np.int32), np.empty((len(self._boxes), n // GROUP), np.float32)
        group_rows(shadows[:, : len(boxes) // 2].copy(), order)
        group_shadows(shadows, slack, order, self._groups.room(n // LANES), boxes)
        self._order.append(order + np.int32(self._gone + start))
        self._boxes = np.concatenate([self._boxes, boxes], axis=1)
        self._put_latest(rows[start + n :])

    def _put_latest(self, rows: Singles) -> None:
        self._latest = Sliding((rows.shape[1] + 1, LANES), np.float32)
        self._first = self._next = self._next - len(rows)
        self.append(rows)

    def drop(self, n: int) -> None:
        """Forget the ``n`` oldest rows."""
        self._gone += n
        if self._gone > self._first:
            panels = (self._gone - self._first) // LANES
            self._latest.drop(panels)
            self._first += panels * LANES

    def remove(self, position: int, rows: Singles) -> None:
        """Take one row out; ``rows`` are those that are left."""
        number, self._next = self._gone + position, self._next - 1
        if number >= self._first:
            self._put_latest(rows[max(self._first - self._gone, 0) :])
            return
        order, groups = self._order.live.copy(), self._groups.live.copy()
        place = int(np.flatnonzero(order == number)[0])
        groups[place // LANES, 0, place % LANES] = -np.inf  # no row is there any more
        order[place] = -1
        order[order > number] -= 1
        self._order.replace(order)
        self._groups.replace(groups)
        self._first -= 1


def axes_of(rows: Singles, limits: Limits = LIMITS) -> Distances | None:
    """Return the directions in which rows vary most, and below what brings their mean to 0.

    None if they vary in too many directions for groups to be told apart.
    """
    some = rows[:: max(1, len(rows) // SAMPLED)].astype(np.float64)
    mean = some.mean(axis=0)
    some -= mean
    with ONE_BLAS_THREAD:  # threads that wait for each other cost more than they save
        variances, directions = np.linalg.eigh(some.T @ some)
    left = np.cumsum(np.maximum(variances, 0.0))  # by the directions up to there, smallest first
    few = int(np.searchsorted(left, UNSEEN * left[-1], side="right"))
    r = min(max(len(variances) - few, 1), SHADOW)
    for share, n in ((limits.in_box, BOX), (limits.in_shadow, SHADOW)):
        if n < len(left) and left[-n - 1] > (1.0 - share) * left[-1]:
            return None
    # A little shortened, so that no rounding makes a distance longer.
    axes = np.ascontiguousarray(directions[:, : -r - 1 : -1]) * (1.0 - 2.0**-40)
    return np.vstack([axes, -(mean @ axes)])
