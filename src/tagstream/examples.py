"""Stored examples as a fit sees them: sums over leaves of fixed size, added in a fixed tree.

A sum of floating point numbers depends on the order of its additions.  Here that order follows
from the examples alone: example number i belongs to leaf i // 4096, each leaf is summed on its own,
and the sums of leaves are added as a binary tree over leaf numbers prescribes: a node is the sum of
its left and its right half, or the one that is there.  So one machine and any division of the
leaves among several, or among threads, give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.checks import Rows
from tagstream.labels import Labels
from tagstream.threads import in_threads

__all__ = ["LEAF", "Examples", "Mapped", "Summand", "Sums", "add_in_tree", "count_labels", "evenly"]

LEAF = 4096  # examples that are summed at a time

T = TypeVar("T")
Sums = tuple[npt.NDArray[Any], ...]
Part = slice
# Of rows, their labels, and of what else was given ``along`` with them, else None.
Summand = Callable[[Rows, Labels, Any], Sums]


def add_in_tree(leaves: Iterable[tuple[int, Sums]]) -> Sums:
    """Add the sums of leaves, given with their numbers in rising order, as the tree prescribes.

    Two neighbouring sums are joined as soon as what comes next lies outside of the smallest node
    that holds them both.  The arrays of the left one are changed in place.

    Examples
    --------
    >>> ones = [(i, (np.ones(1),)) for i in (0, 1, 2, 5)]
    >>> add_in_tree(ones)[0].tolist()
    [4.0]
    """
    open_nodes: list[tuple[int, Sums]] = []

    def join() -> None:
        _, right = open_nodes.pop()
        for a, b in zip(open_nodes[-1][1], right, strict=True):
            np.add(a, b, out=a)

    for number, sums in leaves:
        while len(open_nodes) > 1 and _level(open_nodes[-2][0], open_nodes[-1][0]) < _level(
            open_nodes[-1][0], number
        ):
            join()
        open_nodes.append((number, sums))
    if not open_nodes:
        raise ValueError("there must be at least one leaf to sum")
    while len(open_nodes) > 1:
        join()
    return open_nodes[0][1]


def _level(a: int, b: int) -> int:
    """Return the height of the smallest node that holds two leaves."""
    return (a ^ b).bit_length()


def evenly(n: int, size: int) -> npt.NDArray[np.int64]:
    """Return ``size`` evenly spaced numbers below n, or all of them."""
    return np.arange(min(n, size)) * n // min(n, size) if n else np.arange(0)


class Examples:
    """Rows and labels, oldest first, cut into leaves.

    Parameters
    ----------
    rows : array or CSR matrix of shape (n, p)
    labels : callable
        Gives the :class:`~tagstream.labels.Labels` of a slice or of an array of positions.
    numbers : int array of shape (n,), or int
        The examples' numbers in the stream, which decide to which leaf they belong; an integer is
        the number of the first one, the others following without a gap.
    """

    def __init__(
        self,
        rows: Rows,
        labels: Callable[[Any], Labels],
        numbers: npt.NDArray[np.int64] | int = 0,
    ) -> None:
        self._rows, self._labels, self._numbers = rows, labels, numbers
        self.leaf = LEAF
        self.shape: tuple[int, int] = rows.shape
        self.sparse = bool(sp.issparse(rows))

    @classmethod
    def of(cls, rows: Rows, labels: Labels, numbers: npt.NDArray[np.int64] | int = 0) -> Examples:
        """Return examples made of whole arrays."""

        def some(part: Any) -> Labels:
            known = None if labels.known is None else labels.known[part]
            return Labels(labels.Y[part], known)

        return cls(rows, some, numbers)

    def __len__(self) -> int:
        return self.shape[0]

    def leaves(self) -> Iterator[tuple[int, Part]]:
        """Yield the number of each leaf that has examples, and their positions."""
        n, numbers = len(self), self._numbers
        start = 0
        while start < n:
            first = int(numbers + start if isinstance(numbers, int) else numbers[start])
            leaf = first // self.leaf
            if isinstance(numbers, int):
                stop = min(start + (leaf + 1) * self.leaf - first, n)
            else:
                stop = int(np.searchsorted(numbers, (leaf + 1) * self.leaf))
            yield leaf, slice(start, stop)
            start = stop

    def sum(self, summand: Summand, along: npt.NDArray[Any] | None = None) -> Sums:
        """Return the sum of ``summand(rows, labels, some of along)`` over all leaves.

        The summand may be called where the rows are: it must be a function of a module, or a
        ``functools.partial`` of one, and hold no more than it needs.
        """
        return add_in_tree(
            (leaf, summand(self.rows_of(part), self._labels(part), _some(along, part)))
            for leaf, part in self.leaves()
        )

    def rows_of(self, part: Part) -> Rows:
        """Return the rows of a leaf; nothing is copied."""
        rows = self._rows
        if not self.sparse:
            return rows[part]
        if part.start == 0 and part.stop == len(self):
            return rows
        first, last = rows.indptr[part.start], rows.indptr[part.stop]
        made = sp.csr_matrix((part.stop - part.start, rows.shape[1]), dtype=rows.dtype)
        made.indptr = rows.indptr[part.start : part.stop + 1] - first
        made.indices, made.data = rows.indices[first:last], rows.data[first:last]
        made.has_canonical_format = True
        return made

    def map(self, function: Callable[[Rows], Rows], keep: bool, shared: bool = False) -> Mapped:
        """Return examples with ``function(rows)`` for rows, made leaf by leaf.

        ``keep`` holds what was made, for those who look at it again and again.  ``shared``: a leaf
        is so much work that it is worth a thread.
        """
        return Mapped(self, function, keep, shared)

    def take(self, positions: npt.NDArray[np.int64]) -> tuple[Rows, Labels]:
        """Return the rows and labels at some positions."""
        return self._rows[positions], self._labels(positions)

    def every(self) -> tuple[Rows, Labels]:
        """Return all rows and labels."""
        return self._rows, self._labels(slice(None))

    def sample(self, size: int) -> Examples:
        """Return at most ``size`` evenly spaced examples, as a stream of their own."""
        return self if len(self) <= size else Examples.of(*self.take(evenly(len(self), size)))


class Mapped:
    """Examples whose rows are a function of other rows: what can be summed, and gathered."""

    def __init__(
        self, source: Examples, function: Callable[[Rows], Rows], keep: bool, shared: bool = False
    ) -> None:
        self._source, self._function, self._shared = source, function, shared
        self._kept: dict[int, Rows] | None = {} if keep else None

    def _leaf(self, leaf: int, part: Part) -> Rows:
        if self._kept is None:
            return self._function(self._source.rows_of(part))
        if leaf not in self._kept:
            self._kept[leaf] = self._function(self._source.rows_of(part))
        return self._kept[leaf]

    def sum(self, summand: Summand, along: npt.NDArray[Any] | None = None) -> Sums:
        """Return the sum of ``summand(rows, labels, some of along)`` over all leaves."""
        labels = self._source._labels

        def summed(at: tuple[int, Part]) -> tuple[int, Sums]:
            leaf, part = at
            return leaf, summand(self._leaf(leaf, part), labels(part), _some(along, part))

        return add_in_tree(self._of_leaves(summed))

    def gather(self, function: Callable[[Rows], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return ``function(rows)`` of all leaves, one below the other."""
        return np.concatenate(list(self._of_leaves(lambda at: function(self._leaf(*at)))))

    def _of_leaves(self, function: Callable[[tuple[int, Part]], T]) -> Iterator[T]:
        worth = self._shared and len(self._source) > self._source.leaf
        return in_threads(function, self._source.leaves(), worth=worth)


def _some(along: npt.NDArray[Any] | None, part: Part) -> npt.NDArray[Any] | None:
    return None if along is None else along[part]


def count_labels(rows: Rows, labels: Labels, _: None) -> tuple[npt.NDArray[np.int64], ...]:
    """Count each label, how many examples know it, and the unknown entries."""
    yes = labels.Y.sum(axis=0, dtype=np.int64)
    if labels.known is None:
        return yes, np.full(len(yes), len(labels.Y)), np.zeros(1, np.int64)
    known = labels.known.sum(axis=0, dtype=np.int64)
    return yes, known, np.array([labels.known.size - known.sum()])
