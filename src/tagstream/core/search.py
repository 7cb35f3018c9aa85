"""Exact nearest rows: the compiled loops of a search.

A search may *skip* rows by a fast approximate distance, or groups of them by a box, but what it
returns is decided by :func:`pair_distance` alone, ties going to the older row.  So it does not
depend on tiles, on groups or on threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.core.compilation import compiled, inner, inner_loosely
from tagstream.core.products import project_dense
from tagstream.core.simd.tiles import AHEAD, LANES, TOGETHER, above_bulk, above_one, highest, lowest

__all__ = [
    "BOX",
    "GROUP",
    "Groups",
    "cast_shadows",
    "dense_squares",
    "group_rows",
    "group_shadows",
    "pack",
    "pair_distance",
    "pair_distance_sparse",
    "row_squares",
    "scan",
    "scan_groups",
    "scan_one",
    "scan_rows",
    "scan_sparse",
]

GROUP = AHEAD * LANES  # rows of a group, which a search skips as a whole
BOX = 4  # directions in which a group has bounds
TINY = 1e-30  # more than what single precision loses where it has no smaller numbers
LOOKED = 64  # panels, per slot, that a search looks at first, if they are not half of all


class Groups(NamedTuple):
    """Stored rows that lie near each other, as shadows, which a search may skip as a whole.

    The shadow of a row x (d,) is x A + a, (r,), where A has orthonormal columns, a little
    shortened: two shadows are never farther apart than their rows.

    Attributes
    ----------
    axes : array of shape (d + 1, r)
        A, and a below it.
    panels : array of shape (AHEAD G, r + 1, LANES)
        Shadows as :func:`pack` would write them, AHEAD panels for each group of GROUP rows.
    order : int array of shape (GROUP G,)
        Which row has which place in the panels, counted from ``gone`` rows before the first.
    boxes : array of shape (2 BOX, G)
        Least and largest number of the shadows of each group, in each of their first directions.
    gone : int
    """

    axes: npt.NDArray[np.float64]
    panels: npt.NDArray[np.float32]
    order: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.float32]
    gone: int


@compiled
def pair_distance(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    """Return ‖a − b‖² in double precision, summed in the order of the entries."""
    total = 0.0
    for j in range(a.shape[0]):
        gap = np.float64(a[j]) - np.float64(b[j])
        total += gap * gap
    return total


@compiled
def dense_squares(rows: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
    """Write ‖x‖² of rows, summed in double precision."""
    for i in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            total += np.float64(rows[i, j]) ** 2
        out[i] = total


@compiled
def row_squares(
    indptr: npt.NDArray[np.int64],
    data: npt.NDArray[np.float32],
    out: npt.NDArray[np.float64],
) -> None:
    """Write ‖x‖² of CSR rows, summed in the order of the entries."""
    for i in range(out.shape[0]):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[e]) ** 2
        out[i] = total


@inner
def _insert(
    distance: float,
    row: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Put a row into the sorted list of the k nearest, older ones first, if it belongs there."""
    j = best.shape[0] - 1
    if best[j] < distance or (best[j] == distance and rows[j] < row):
        return
    while j > 0 and (best[j - 1] > distance or (best[j - 1] == distance and rows[j - 1] > row)):
        best[j] = best[j - 1]
        rows[j] = rows[j - 1]
        j -= 1
    best[j] = distance
    rows[j] = row


@compiled
def pack(rows: npt.NDArray[np.float32], panels: npt.NDArray[np.float32], at: int) -> None:
    """Write rows into panels (·, d + 1, LANES), from place ``at`` on; see :func:`scan`.

    The first line of a panel holds −½‖c‖², nearer to zero by what the sums of :func:`scan` may err,
    and minus infinity where no row is.
    """
    n, d = rows.shape
    kept = 1.0 - _error(d)
    for i in range(n):
        b, lane = (at + i) // LANES, (at + i) % LANES
        square = 0.0
        for j in range(d):
            x = rows[i, j]
            panels[b, j + 1, lane] = x
            square += np.float64(x) * np.float64(x)
        panels[b, 0, lane] = -0.5 * square * kept


@compiled
def group_rows(points: npt.NDArray[np.float32], order: npt.NDArray[np.int32]) -> None:
    """Write an order of points (n, BOX at most), n a multiple of GROUP, in which groups are near.

    They are halved again and again, each time in the direction in which they vary most.
    """
    n, width = points.shape
    keys = np.empty(n, np.float32)
    parts = [(0, n)]
    for i in range(n):
        order[i] = i
    while len(parts):
        start, stop = parts.pop()
        if stop - start <= GROUP:
            continue
        widest, most = 0, -1.0
        step = max(1, (stop - start) // 256)  # some of them tell
        for j in range(width):
            total = square = 0.0
            for i in range(start, stop, step):
                x = np.float64(points[order[i], j])
                total += x
                square += x * x
            spread = square - total * total / (1 + (stop - start - 1) // step)
            if spread > most:
                widest, most = j, spread
        for i in range(start, stop):
            keys[i] = points[order[i], widest]
        middle = start + (stop - start) // GROUP // 2 * GROUP
        _halve(keys, order, start, stop - 1, middle)
        parts.append((start, middle))
        parts.append((middle, stop))


@inner
def _halve(
    keys: npt.NDArray[np.float32], order: npt.NDArray[np.int32], first: int, last: int, middle: int
) -> None:
    """Reorder both from ``first`` to ``last`` so that no key before the middle is larger."""
    while first < last:
        pivot = keys[(first + last) // 2]
        a, b = first, last
        while a <= b:
            while keys[a] < pivot:
                a += 1
            while keys[b] > pivot:
                b -= 1
            if a <= b:
                keys[a], keys[b] = keys[b], keys[a]
                order[a], order[b] = order[b], order[a]
                a += 1
                b -= 1
        if middle <= b:
            last = b
        elif middle >= a:
            first = a
        else:
            break


@inner
def _error(d: int) -> float:
    return (d + 8) * 2.0**-22


@inner
def _limit(most: float, square: float, error: float, slack: float = 0.0) -> np.float32:
    """Return what a sum of :func:`scan` must reach for its row to be as near as ``most``."""
    limit = 0.5 * (square - most)
    # Where no row is, the sum is minus infinity, which reaches no limit.
    return np.float32(max(limit - error * (square + slack + abs(limit)) - TINY, -3.4e38))


@inner_loosely
def _rough_distance(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> np.float32:
    total = np.float32(0.0)
    for j in range(a.shape[0]):
        gap = a[j] - b[j]
        total += gap * gap
    return total


@inner
def _at_least(values: npt.NDArray[np.float32], size: int, k: int) -> np.float32:
    """Return a number that k of the first values do not exceed, hardly more than the k-th smallest.

    By halves, which has no branches to be guessed wrong.
    """
    low = high = values[0]
    for a in range(size):
        low = values[a] if values[a] < low else low
        high = values[a] if values[a] > high else high
    for _ in range(12):
        middle = np.float32(0.5) * low + np.float32(0.5) * high
        n = np.int32(0)
        for a in range(size):
            n += np.int32(values[a] <= middle)
        if n >= k:
            high = middle
        else:
            low = middle
    return np.float32(high)


@inner
def _settle(
    codes: npt.NDArray[np.float32],
    query: npt.NDArray[np.float32],
    waiting: npt.NDArray[np.int64],
    n: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Merge n waiting rows into the k nearest, by the sums of :func:`pair_distance`."""
    k = best.shape[0]
    distances = np.empty(n + 3)
    for a in range(0, n, 4):  # four sums do not wait for each other
        r0, r1 = waiting[a], waiting[min(a + 1, n - 1)]
        r2, r3 = waiting[min(a + 2, n - 1)], waiting[min(a + 3, n - 1)]
        d0 = d1 = d2 = d3 = 0.0
        for j in range(query.shape[0]):
            x = np.float64(query[j])
            g0, g1 = np.float64(codes[r0, j]) - x, np.float64(codes[r1, j]) - x
            g2, g3 = np.float64(codes[r2, j]) - x, np.float64(codes[r3, j]) - x
            d0 += g0 * g0
            d1 += g1 * g1
            d2 += g2 * g2
            d3 += g3 * g3
        distances[a], distances[a + 1] = d0, d1
        distances[a + 2], distances[a + 3] = d2, d3
    if best[0] < np.inf:
        for a in range(n):
            _insert(distances[a], waiting[a], best, rows)
        return
    for a in range(n):  # each has as many before it as its place says
        distance, row, place = distances[a], waiting[a], 0
        for b in range(n):
            place += (distances[b] < distance) | ((distances[b] == distance) & (waiting[b] < row))
        if place < k:
            best[place], rows[place] = distance, row


@inner
def _sift(
    codes: npt.NDArray[np.float32],
    query: npt.NDArray[np.float32],
    near: npt.NDArray[np.float32],
    waiting: npt.NDArray[np.int64],
    n: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> tuple[int, float]:
    """Send away those of n waiting rows that cannot be among the k nearest.

    ``near`` are their distances in single precision, off by less than ε of themselves.  Return how
    many are left, and what the k-th distance is at most.  If they leave no room for another group,
    as where many are equally near, they are settled.
    """
    k, error = best.shape[0], _error(query.shape[0])
    most = best[k - 1] + TINY
    if n >= k:
        most = min(most, _at_least(near, n, k) * (1.0 + error) + 2.0 * TINY)
    kept: Any = np.int64(0)  # for a constant, which 0 is, all would be compiled once more
    for a in range(n):
        rough, row = near[a], waiting[a]
        near[kept], waiting[kept] = rough, row
        kept += rough * (1.0 - error) <= most
    if kept > waiting.shape[0] - GROUP:
        _settle(codes, query, waiting, kept, best, rows)
        kept, most = np.int64(0), best[k - 1] + TINY
    return kept, most


@inner
def _room(k: int) -> int:
    """Return for how many rows there is room to wait; some are left when they are sifted."""
    return 2 * k + LANES + GROUP


@inner
def _measure(
    codes: npt.NDArray[np.float32],
    query: npt.NDArray[np.float32],
    near: npt.NDArray[np.float32],
    waiting: npt.NDArray[np.int64],
    first: int,
    n: int,
    most: float,
) -> int:
    """Measure the last waiting rows, from ``first`` on; return how many wait that are near enough.

    All are measured before one is sent away, so that the memory is asked for all of them at once.
    """
    error = _error(query.shape[0])
    for a in range(first, n):
        near[a] = _rough_distance(codes[waiting[a]], query)
    kept = first
    for a in range(first, n):
        rough, row = near[a], waiting[a]
        near[kept], waiting[kept] = rough, row
        kept += rough * (1.0 - error) <= most
    return kept


@compiled
def cast_shadows(
    rows: npt.NDArray[np.float32],
    axes: npt.NDArray[np.float64],
    shadows: npt.NDArray[np.float32],
    slack: npt.NDArray[np.float32],
) -> None:
    """Write the shadows of rows, (n, r), and the slack that their distances need, (n,).

    A shadow is made in double precision with an error of at most √r (d + 1) 2⁻⁵³ (‖x‖ + ‖a‖), and
    rounded once.  What both may add to ½‖q̃ − c̃‖² is, for r ≤ 16 and d ≤ 1024, less than half of
    ε(s(q) + s(c)), s(x) = ‖x̃‖² + 2⁻²⁰(‖x‖² + ‖a‖²), ε = (r + 8) 2⁻²²; slack is the second term.
    """
    n, d = rows.shape
    wide = np.empty(shadows.shape)
    project_dense(rows, axes[:d], axes[d], wide)
    shift = 0.0
    for j in range(axes.shape[1]):
        shift += axes[d, j] * axes[d, j]
    for i in range(n):
        for j in range(axes.shape[1]):
            shadows[i, j] = wide[i, j]
        square = shift
        for j in range(d):
            square += np.float64(rows[i, j]) ** 2
        slack[i] = 2.0**-20 * square


@compiled
def group_shadows(
    shadows: npt.NDArray[np.float32],
    slack: npt.NDArray[np.float32],
    order: npt.NDArray[np.int32],
    panels: npt.NDArray[np.float32],
    boxes: npt.NDArray[np.float32],
) -> None:
    """Write shadows into panels, and the boxes of groups, in an order of :func:`group_rows`.

    The first line is as that of :func:`pack`, with the room that shadows need.
    """
    n, r = shadows.shape
    for j in range(boxes.shape[0] // 2):
        for g in range(n // GROUP):
            boxes[2 * j, g], boxes[2 * j + 1, g] = np.inf, -np.inf
    for i in range(n):
        b, lane, g, square = i // LANES, i % LANES, i // GROUP, 0.0
        for j in range(r):
            x = shadows[order[i], j]
            panels[b, j + 1, lane] = x
            square += np.float64(x) * np.float64(x)
            if 2 * j < boxes.shape[0]:
                boxes[2 * j, g] = min(boxes[2 * j, g], x)
                boxes[2 * j + 1, g] = max(boxes[2 * j + 1, g], x)
        panels[b, 0, lane] = -0.5 * (square - _error(r) * (square + slack[order[i]]))


@compiled
def scan(
    codes: npt.NDArray[np.float32],
    panels: npt.NDArray[np.float32],
    skip: int,
    queries: npt.NDArray[np.float32],
    lo: npt.NDArray[np.int64],
    hi: npt.NDArray[np.int64],
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Merge the rows that lie in panels into the k nearest of each query.

    Row i has place ``skip + i`` in the panels, written by :func:`pack`; with a negative ``skip``
    the first rows have none.  Query i sees rows ``lo[i] <= row < hi[i]`` only.  ``best`` and
    ``rows``, (m, k), are sorted and start as infinity and −1.

    ‖q − c‖² < w if and only if q·c − ½‖c‖² > ½(‖q‖² − w), which is compared in single precision.
    The left side, summed from −½‖c‖² on, errs by at most (d + 3) u (‖q‖‖c‖ + ½‖c‖²), u = 2⁻²⁴, and
    so by no more than half of ε(‖q‖² + ½‖c‖²), ε = (d + 8) 2⁻²².  The second part is added to
    −½‖c‖² and the first taken off the limit, so that no row which belongs to the k nearest is
    skipped.  Rows that are not skipped are measured in single precision and wait; what is returned
    is decided by the sums of :func:`pair_distance`.
    """
    m, d = queries.shape
    k = best.shape[1]
    tiles = -(-m // TOGETHER)
    together = np.zeros((tiles, d, TOGETHER), np.float32)
    squares, most = np.zeros(m), np.empty(m)
    start, stop = lo[0], hi[0]
    for i in range(m):
        for j in range(d):
            together[i // TOGETHER, j, i % TOGETHER] = queries[i, j]
            squares[i] += np.float64(queries[i, j]) ** 2
        most[i] = best[i, k - 1] + TINY
        start, stop = min(start, lo[i]), max(stop, hi[i])
    first = max((start + skip) // LANES, 0)
    last = min(-(-(stop + skip) // LANES), panels.shape[0])
    _look_first(together, panels, first, last, squares, skip, lo, hi, k, most)

    error = _error(d)
    limits = np.empty((tiles, TOGETHER), np.float32)
    for c in range(TOGETHER):
        limits[tiles - 1, c] = 3.4e38  # nothing is near to no query
    masks, sums = np.empty(TOGETHER, np.uint16), np.empty((TOGETHER, LANES), np.float32)
    near, waiting = np.empty((m, _room(k)), np.float32), np.empty((m, _room(k)), np.int64)
    n_waiting = np.zeros(m, np.int64)
    for i in range(m):
        limits[i // TOGETHER, i % TOGETHER] = _limit(most[i], squares[i], error)
    for b in range(first, last):
        for g in range(tiles):
            if not above_bulk(together, g, panels, b, limits, masks, sums):
                continue
            for c in range(min(TOGETHER, m - g * TOGETHER)):
                reached = np.int64(masks[c])
                if not reached:
                    continue
                i = g * TOGETHER + c
                n = n_waiting[i]
                while reached:
                    row = b * LANES - skip + lowest(reached)
                    reached &= reached - 1
                    if lo[i] <= row < hi[i]:
                        rough = _rough_distance(codes[row], queries[i])
                        near[i, n], waiting[i, n] = rough, row
                        n += rough * (1.0 - error) <= most[i]
                if n > waiting.shape[1] - GROUP:
                    n, most[i] = _sift(codes, queries[i], near[i], waiting[i], n, best[i], rows[i])
                    limits[g, c] = _limit(most[i], squares[i], error)
                n_waiting[i] = n
    for i in range(m):
        n, _ = _sift(codes, queries[i], near[i], waiting[i], n_waiting[i], best[i], rows[i])
        _settle(codes, queries[i], waiting[i], n, best[i], rows[i])


@inner
def _look_first(
    together: npt.NDArray[np.float32],
    panels: npt.NDArray[np.float32],
    first: int,
    last: int,
    squares: npt.NDArray[np.float64],
    skip: int,
    lo: npt.NDArray[np.int64],
    hi: npt.NDArray[np.int64],
    k: int,
    most: npt.NDArray[np.float64],
) -> None:
    """Lower what the k-th distance of each query is at most, by a look at some panels.

    Their sums are dealt out to at least 2k slots, and the highest of each slot is kept: k slots
    stand for k different rows.  With the bounds of :func:`scan`, a row whose sum is s has
    D(1 − 4ε) ≤ ‖q‖²(1 + 4ε) − 2s, since s is too high by at most ε(¾‖c‖² + ⅛‖q‖²) and
    ‖c‖² ≤ 2‖q‖² + 2D.
    """
    m, tiles, error = squares.shape[0], together.shape[0], _error(together.shape[1])
    sets = -(-2 * k // LANES)
    n = min((last - first) // 2, LOOKED * sets)
    if n < 4 * sets:  # that many sums would tell little
        return
    begin, end = np.empty(tiles, np.int64), np.empty(tiles, np.int64)
    known = np.empty(tiles, np.bool_)
    for g in range(tiles):
        begin[g], end[g], known[g] = first, last, True
    for i in range(m):  # of a tile, what all its queries see
        g = i // TOGETHER
        begin[g] = max(begin[g], -(-(lo[i] + skip) // LANES))
        end[g] = min(end[g], (hi[i] + skip) // LANES)
        known[g] &= most[i] < np.inf
    for g in range(tiles):
        if known[g]:
            begin[g] = end[g]
    slots = np.empty((tiles * sets, TOGETHER, LANES), np.float32)
    slots.fill(-np.inf)
    for c in range(n):
        for g in range(tiles):
            b = end[g] - 1 - c
            if b >= begin[g]:
                highest(together, g, panels, b, slots, g * sets + c % sets)
    gaps = np.empty(sets * LANES, np.float32)
    for i in range(m):
        g, c = i // TOGETHER, i % TOGETHER
        if end[g] - begin[g] < sets:
            continue
        for a in range(sets):
            for lane in range(LANES):
                gaps[a * LANES + lane] = -slots[g * sets + a, c, lane]
        gap = 2.0 * np.float64(_at_least(gaps, gaps.shape[0], k))
        nearest = (squares[i] * (1.0 + 4.0 * error) + gap) / (1.0 - 4.0 * error)
        most[i] = min(most[i], nearest + 2.0 * TINY)


@compiled
def scan_groups(
    codes: npt.NDArray[np.float32],
    groups: Groups,
    queries: npt.NDArray[np.float32],
    lo: npt.NDArray[np.int64],
    hi: npt.NDArray[np.int64],
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Merge the rows of groups into the k nearest of each query, as :func:`scan` does."""
    m = queries.shape[0]
    shadows, slack = np.empty((m, groups.axes.shape[1]), np.float32), np.empty(m, np.float32)
    cast_shadows(queries, groups.axes, shadows, slack)
    for i in range(m):
        _scan_near_groups(
            codes, groups, queries[i], shadows[i], slack[i], lo[i], hi[i], best[i], rows[i]
        )


@inner
def _scan_near_groups(
    codes: npt.NDArray[np.float32],
    groups: Groups,
    query: npt.NDArray[np.float32],
    shadow: npt.NDArray[np.float32],
    slack: float,
    lo: int,
    hi: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Do it for one query: near groups first, far ones not at all.

    The sums are those of :func:`scan`, of shadows: there the other half of ε is for their own
    errors, and their slack is added, see :func:`cast_shadows`.

    The distance of a shadow from a group's box is at most that from each shadow in it.  Those of
    the k nearest have ‖c̃‖² ≤ 2‖q̃‖² + 2w and the like, so 4ε(s(q) + w) is more than single
    precision and :func:`cast_shadows` can take off.
    """
    n_groups, k, r = groups.order.shape[0] // GROUP, best.shape[0], shadow.shape[0]
    bounds = np.zeros(n_groups, np.float32)
    zero = np.float32(0.0)
    for j in range(groups.boxes.shape[0] // 2):
        x, least, largest = shadow[j], groups.boxes[2 * j], groups.boxes[2 * j + 1]
        for g in range(n_groups):
            below, above = least[g] - x, x - largest[g]
            gap = below if below > above else above
            gap = gap if gap > zero else zero
            bounds[g] += gap * gap

    most, square, error = best[k - 1] + TINY, 0.0, _error(r)
    n: Any = np.int64(0)  # no constant
    limits, masks = np.empty((1, 1), np.float32), np.empty(AHEAD, np.uint16)
    sums, alone = np.empty((AHEAD, LANES), np.float32), np.empty((1, r, 1), np.float32)
    near, waiting = np.empty(_room(k), np.float32), np.empty(_room(k), np.int64)
    for j in range(r):
        alone[0, j, 0] = shadow[j]
        square += np.float64(shadow[j]) ** 2
    limits[0, 0] = _limit(most, square, error, slack)
    turns = np.empty(n_groups + 1, np.int64)
    n_seeds = min(-(-k // GROUP), n_groups)
    for a in range(n_seeds):  # the nearest groups, which hold k rows
        nearest = 0
        for g in range(n_groups):
            nearest = g if bounds[g] < bounds[nearest] else nearest
        turns[a], bounds[nearest] = nearest, np.inf
    for a in range(n_seeds):
        bounds[turns[a]] = np.nan  # within no reach: they have had their turn
    n_turns, turn, reach = n_seeds, 0, np.float32(np.inf)
    while turn < n_turns:
        g = turns[turn]
        turn += 1
        if turn > n_seeds and bounds[g] > reach:
            continue
        if above_one(alone, 0, groups.panels, g * AHEAD, limits, masks, sums):
            first = n
            for c in range(AHEAD):
                reached = np.int64(masks[c])
                place = (g * AHEAD + c) * LANES
                while reached:
                    row = int(groups.order[place + lowest(reached)]) - groups.gone
                    reached &= reached - 1
                    waiting[n] = row
                    n += lo <= row < hi
            n = _measure(codes, query, near, waiting, first, n, most)
        if turn == n_seeds or n > waiting.shape[0] - GROUP:
            n, most = _sift(codes, query, near, waiting, n, best, rows)
            limits[0, 0] = _limit(most, square, error, slack)
            reach = np.float32(most + 4.0 * error * (square + slack + most) + TINY)
        if turn == n_seeds:  # now it is known how near a group must be
            for g in range(n_groups):
                turns[n_turns] = g
                n_turns += bounds[g] <= reach
            _sort_turns(turns[n_seeds:n_turns], bounds, reach)
    n, most = _sift(codes, query, near, waiting, n, best, rows)
    _settle(codes, query, waiting, n, best, rows)


@inner
def _sort_turns(
    turns: npt.NDArray[np.int64], bounds: npt.NDArray[np.float32], reach: np.float32
) -> None:
    """Put groups into the order of their bounds, as sixteenths of the reach: no finer is needed."""
    starts, unsorted = np.zeros(17, np.int64), turns.copy()
    places = np.empty(turns.shape[0], np.int64)
    scale = np.float32(16.0) / reach
    for a in range(turns.shape[0]):
        share = bounds[turns[a]] * scale  # neither where both are infinite or zero
        places[a] = np.int64(share) if share < np.float32(15.0) else 15
        starts[places[a] + 1] += 1
    for b in range(16):
        starts[b + 1] += starts[b]
    for a in range(turns.shape[0]):
        turns[starts[places[a]]] = unsorted[a]
        starts[places[a]] += 1


@compiled
def scan_one(
    codes: npt.NDArray[np.float32],
    panels: npt.NDArray[np.float32],
    skip: int,
    query: npt.NDArray[np.float32],
    lo: int,
    hi: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Do the same for one query."""
    d, k = query.shape[0], best.shape[0]
    most, square, error = best[k - 1] + TINY, 0.0, _error(d)
    n: Any = np.int64(0)  # no constant
    limits, masks = np.empty((1, 1), np.float32), np.empty(AHEAD, np.uint16)
    sums, alone = np.empty((AHEAD, LANES), np.float32), np.empty((1, d, 1), np.float32)
    near, waiting = np.empty(_room(k), np.float32), np.empty(_room(k), np.int64)
    for j in range(d):
        alone[0, j, 0] = query[j]
        square += np.float64(query[j]) ** 2
    limits[0, 0] = _limit(most, square, error)
    for b in range(max((lo + skip) // LANES, 0), -(-(hi + skip) // LANES), AHEAD):
        if above_one(alone, 0, panels, b, limits, masks, sums):
            first = n
            for c in range(AHEAD):
                reached = np.int64(masks[c])
                while reached:
                    row = (b + c) * LANES - skip + lowest(reached)
                    reached &= reached - 1
                    waiting[n] = row
                    n += lo <= row < hi
            n = _measure(codes, query, near, waiting, first, n, most)
            if n > waiting.shape[0] - GROUP:
                n, most = _sift(codes, query, near, waiting, n, best, rows)
                limits[0, 0] = _limit(most, square, error)
    n, most = _sift(codes, query, near, waiting, n, best, rows)
    _settle(codes, query, waiting, n, best, rows)


@compiled
def scan_rows(
    stored: npt.NDArray[np.float32],
    query: npt.NDArray[np.float32],
    lo: int,
    hi: int,
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Merge the rows ``lo <= row < hi``, which lie in no panels, into the k nearest of a query.

    ‖q − c‖² in single precision tells which to skip: all its terms are positive, so it errs by
    less than (d + 8) 2⁻²² of itself.
    """
    k = best.shape[0]
    kept = 1.0 - _error(query.shape[0])
    for row in range(lo, hi):
        if kept * _rough_distance(stored[row], query) <= best[k - 1] + TINY:
            _insert(pair_distance(stored[row], query), row, best, rows)


@compiled
def pair_distance_sparse(
    a_indices: npt.NDArray[np.int32],
    a_data: npt.NDArray[np.float32],
    b_indices: npt.NDArray[np.int32],
    b_data: npt.NDArray[np.float32],
) -> float:
    """Return ‖a − b‖² of sorted sparse rows, equal to the bit to that of the dense rows."""
    total = 0.0
    i = j = 0
    while i < a_indices.shape[0] or j < b_indices.shape[0]:
        if j == b_indices.shape[0] or (i < a_indices.shape[0] and a_indices[i] < b_indices[j]):
            gap = np.float64(a_data[i])
            i += 1
        elif i == a_indices.shape[0] or b_indices[j] < a_indices[i]:
            gap = np.float64(b_data[j])
            j += 1
        else:
            gap = np.float64(a_data[i]) - np.float64(b_data[j])
            i += 1
            j += 1
        total += gap * gap
    return total


@compiled
def scan_sparse(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    data: npt.NDArray[np.float32],
    norms: npt.NDArray[np.float64],
    q_indptr: npt.NDArray[np.int64],
    q_indices: npt.NDArray[np.int32],
    q_data: npt.NDArray[np.float32],
    p: int,
    lo: npt.NDArray[np.int64],
    hi: npt.NDArray[np.int64],
    best: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
) -> None:
    """Find the k nearest stored CSR rows of each CSR query.

    ‖c‖² + ‖q‖² − 2 q·c in double precision, less a bound of its error, tells which rows to skip.
    """
    k = best.shape[1]
    dense = np.zeros(p)
    for i in range(best.shape[0]):
        first, last = q_indptr[i], q_indptr[i + 1]
        square = 0.0
        for e in range(first, last):
            x = np.float64(q_data[e])
            dense[q_indices[e]] = x
            square += x * x
        slack = 2.0**-50 * (last - first + 4)
        for row in range(lo[i], hi[i]):
            dot = 0.0
            for e in range(indptr[row], indptr[row + 1]):
                dot += np.float64(data[e]) * dense[indices[e]]
            size = norms[row] + square
            error = (slack + 2.0**-50 * (indptr[row + 1] - indptr[row])) * size
            if size - 2.0 * dot - error < best[i, k - 1]:
                distance = pair_distance_sparse(
                    indices[indptr[row] : indptr[row + 1]],
                    data[indptr[row] : indptr[row + 1]],
                    q_indices[first:last],
                    q_data[first:last],
                )
                _insert(distance, row, best[i], rows[i])
        for e in range(first, last):
            dense[q_indices[e]] = 0.0
