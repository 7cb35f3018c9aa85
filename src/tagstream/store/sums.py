"""Stored examples as a fit sees them: sums over leaves of fixed size, added in a fixed tree.

A sum of floating point numbers depends on the order of its additions.  Here that order follows
from the examples alone: example number i belongs to leaf i // 4096, each leaf is summed on its own,
and the sums of leaves are added as a binary tree over leaf numbers prescribes: a node is the sum of
its left and its right half, or the one that is there.  So one machine and any division of the
leaves among several, or among threads, give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.checks import Positions, Rows, Singles
from tagstream.execution.steps import Steps, Work, finish
from tagstream.labels.read import Labels
from tagstream.limits import LIMITS, Limits
from tagstream.store.coded import Coded
from tagstream.store.rows import DenseRows

__all__ = [
    "Examples",
    "LocalExamples",
    "LocalMapped",
    "Mapped",
    "Summand",
    "Sums",
    "Tree",
    "add_in_tree",
    "count_labels",
    "evenly",
    "sampled",
]

ENCODED = 512  # rows whose codes are made at a time
ASKED = 16  # queries that are looked up at a time, among codes that are not kept
SHARED_CODES = 8192  # rows from which on it is worth a second thread


Sums = tuple[npt.NDArray[Any], ...]
Part = slice
# Of rows, their labels, and of what else was given ``along`` with them, else None.
Summand = Callable[[Rows, Labels, Any], Sums]


def add_in_tree(leaves: Iterable[tuple[int, Sums]]) -> Sums:
    """Add the sums of leaves, given with their numbers in rising order, as the tree prescribes.

    Examples
    --------
    >>> ones = [(i, (np.ones(1),)) for i in (0, 1, 2, 5)]
    >>> add_in_tree(ones)[0].tolist()
    [4.0]
    """
    tree = Tree()
    for leaf in leaves:
        tree.add(leaf)
    return tree.total()


class Tree:
    """Sums of leaves that are added as they come, in rising order of their numbers.

    Two neighbouring sums are joined as soon as what comes next lies outside of the smallest node
    that holds them both; so of n leaves no more than log n sums are held.
    """

    def __init__(self) -> None:
        self._nodes: list[tuple[int, Sums]] = []  # what is not joined yet, by its first leaf
        self.last = -1  # leaf that was added

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(part.nbytes for _, sums in self._nodes for part in sums)

    def add(self, leaf: tuple[int, Sums]) -> None:
        """Add the sums of a leaf, which may be changed from now on."""
        self._join(leaf[0])
        self._nodes.append(leaf)
        self.last = leaf[0]

    def _join(self, number: int) -> None:
        """Join nodes that the leaf of that number, and all that follow it, lie outside of."""
        nodes = self._nodes
        while len(nodes) > 1 and _level(nodes[-2][0], nodes[-1][0]) < _level(nodes[-1][0], number):
            _, right = nodes.pop()
            for a, b in zip(nodes[-1][1], right, strict=True):
                np.add(a, b, out=a)

    def total(self, *rest: tuple[int, Sums]) -> Sums:
        """Return the sum of all leaves, and of one more, whose arrays may be changed."""
        if rest:
            self._join(rest[0][0])
        nodes = [*self._nodes, *rest]
        if not nodes:
            raise ValueError("there must be at least one leaf to sum")
        *others, (_, last) = nodes
        total = last if rest else tuple(part.copy() for part in last)
        # From the right, as open nodes are joined: what is held here stays as it is.
        for _, left in reversed(others):
            for a, b in zip(left, total, strict=True):
                np.add(a, b, out=b)
        return total

    def widen(self, part: int, width: int) -> None:
        """Give an array of all sums, by its place, more columns, of zeros."""
        for i, (number, sums) in enumerate(self._nodes):
            old = sums[part]
            more = [(0, 0)] * (old.ndim - 1) + [(0, width - old.shape[-1])]
            self._nodes[i] = number, (*sums[:part], np.pad(old, more), *sums[part + 1 :])


def _level(a: int, b: int) -> int:
    """Return the height of the smallest node that holds two leaves."""
    return (a ^ b).bit_length()


def evenly(n: int, size: int) -> npt.NDArray[np.int64]:
    """Return ``size`` evenly spaced numbers below n, or all of them."""
    return np.arange(min(n, size)) * n // min(n, size) if n else np.arange(0)


class Mapped(Protocol):
    """Examples whose rows are a function of other rows: what can be summed, and gathered."""

    def sum(self, summand: Summand, along: npt.NDArray[Any] | None = None) -> Sums:
        """Return the sum of ``summand(rows, labels, some of along)`` over all leaves."""

    def summing(
        self,
        summand: Summand,
        along: npt.NDArray[Any] | None = None,
        before: Tree | None = None,
    ) -> Steps[Sums]:
        """Return the same in steps.

        ``before`` has what was summed of the same examples when they were fewer: their full
        leaves.  It is given those that are full now.
        """

    def gather(self, function: Callable[[Rows], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return ``function(rows)`` of all leaves, one below the other."""

    def gathering(self, function: Callable[[Rows], npt.NDArray[Any]]) -> Steps[npt.NDArray[Any]]:
        """Return the same in steps."""


class Examples(Protocol):
    """What a fit sees of stored examples, oldest first, wherever they are.

    Attributes
    ----------
    shape : tuple of int
        Examples, and numbers per row.
    sparse : bool
        Whether rows are CSR.
    limits : Limits
        From which sizes on a fit does things in another way.
    """

    shape: tuple[int, int]
    sparse: bool
    limits: Limits

    def __len__(self) -> int: ...

    def sum(self, summand: Summand, along: npt.NDArray[Any] | None = None) -> Sums:
        """Return the sum of ``summand(rows, labels, some of along)`` over all leaves.

        The summand may be called where the rows are: it must be a function of a module, or a
        ``functools.partial`` of one, and hold no more than it needs.
        """

    def summing(self, summand: Summand, along: npt.NDArray[Any] | None = None) -> Steps[Sums]:
        """Return the same in steps."""

    def map(self, function: Callable[[Rows], Rows], keep: bool, dear: bool = False) -> Mapped:
        """Return examples with ``function(rows)`` for rows, made leaf by leaf.

        ``keep`` holds what was made, for those who look at it again and again.  ``dear``: what is
        made of rows is so much work that leaves are smaller, and worth a thread.
        """

    def encoding(self, encode: Callable[[Rows], Singles], dear: bool = False) -> Steps[Coded]:
        """Make the code ``encode(rows)`` of each example, in steps."""

    def nearest_by(
        self,
        encode: Callable[[Rows], Singles],
        asked: Sequence[tuple[Singles, int]],
        dear: bool = False,
    ) -> Steps[list[Positions]]:
        """Return the k nearest of queries (m, d) among such codes, (m, k), in steps.

        For each pair of queries and k.  The codes are not kept.
        """

    def take(self, positions: Positions) -> tuple[Rows, Labels]:
        """Return the rows and labels at some positions."""

    def every(self) -> tuple[Rows, Labels]:
        """Return all rows and labels."""

    def sample(self, size: int, among: Positions | None = None) -> Examples:
        """Return at most ``size`` evenly spaced examples, as a stream of their own.

        Of all, or of those ``among`` some positions, which rise.
        """


def sampled(examples: Examples, size: int, among: Positions | None) -> Examples:
    """Return at most ``size`` evenly spaced examples; see :meth:`Examples.sample`."""
    n = len(examples) if among is None else len(among)
    if n <= size and n == len(examples):
        return examples
    places = evenly(n, size)
    some = examples.take(places if among is None else among[places])
    return LocalExamples.of(*some, limits=examples.limits)


class LocalExamples:
    """Rows and labels in this process, oldest first, cut into leaves.

    Parameters
    ----------
    rows : array or CSR matrix of shape (n, p)
    labels : callable
        Gives the :class:`~tagstream.labels.Labels` of a slice or of an array of positions.
    numbers : int array of shape (n,), or int
        The examples' numbers in the stream, which decide to which leaf they belong; an integer is
        the number of the first one, the others following without a gap.
    limits : Limits, optional
    """

    def __init__(
        self,
        rows: Rows,
        labels: Callable[[Any], Labels],
        numbers: Positions | int = 0,
        limits: Limits = LIMITS,
    ) -> None:
        self._rows, self._labels, self._numbers = rows, labels, numbers
        self.limits = limits
        self.shape: tuple[int, int] = rows.shape
        self.sparse = bool(sp.issparse(rows))

    @classmethod
    def of(
        cls,
        rows: Rows,
        labels: Labels,
        numbers: Positions | int = 0,
        limits: Limits = LIMITS,
    ) -> LocalExamples:
        """Return examples made of whole arrays."""

        def some(part: Any) -> Labels:
            known = None if labels.known is None else labels.known[part]
            return Labels(labels.Y[part], known)

        return cls(rows, some, numbers, limits)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def end(self) -> int:
        """The number in the stream of the example that comes next."""
        numbers = self._numbers
        return numbers + len(self) if isinstance(numbers, int) else int(numbers[-1]) + 1

    @property
    def numbers(self) -> Positions:
        """The numbers in the stream."""
        numbers = self._numbers
        return numbers + np.arange(len(self)) if isinstance(numbers, int) else numbers

    def leaves(self, size: int | None = None) -> Iterator[tuple[int, Part]]:
        """Yield the number of each leaf that has examples, and their positions."""
        n, numbers = len(self), self._numbers
        size, start = size or self.limits.leaf, 0
        while start < n:
            first = int(numbers + start if isinstance(numbers, int) else numbers[start])
            leaf = first // size
            if isinstance(numbers, int):
                stop = min(start + (leaf + 1) * size - first, n)
            else:
                stop = int(np.searchsorted(numbers, (leaf + 1) * size))
            yield leaf, slice(start, stop)
            start = stop

    def sum(self, summand: Summand, along: npt.NDArray[Any] | None = None) -> Sums:
        """Return the sum of ``summand(rows, labels, some of along)`` over all leaves."""
        return finish(self.summing(summand, along))

    def summing(self, summand: Summand, along: npt.NDArray[Any] | None = None) -> Steps[Sums]:
        """Return the same in steps."""

        def of_leaf(at: tuple[int, Part]) -> tuple[int, Sums]:
            leaf, part = at
            return leaf, summand(self.rows_of(part), self.labels_of(part), _some(along, part))

        tree = Tree()
        yield Work(of_leaf, self.leaves(), tree.add)
        return tree.total()

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

    def labels_of(self, part: Part) -> Labels:
        """Return the labels of a leaf."""
        return self._labels(part)

    def map(self, function: Callable[[Rows], Rows], keep: bool, dear: bool = False) -> LocalMapped:
        """Return examples with ``function(rows)`` for rows, made leaf by leaf."""
        return LocalMapped(self, function, keep, dear)

    def encoding(self, encode: Callable[[Rows], Singles], dear: bool = False) -> Steps[Coded]:
        """Make the code ``encode(rows)`` of each example, in steps."""
        n, parts = len(self), list[Singles]()

        def made(first: int) -> Singles:
            return encode(self.rows_of(slice(first, min(first + ENCODED, n))))

        yield Work(made, range(0, max(n, 1), ENCODED), parts.append, dear and n > SHARED_CODES)
        return Coded(self.numbers, parts)

    def nearest_by(
        self,
        encode: Callable[[Rows], Singles],
        asked: Sequence[tuple[Singles, int]],
        dear: bool = False,
    ) -> Steps[list[Positions]]:
        """Return the k nearest of queries among such codes, (m, k), in steps."""
        made = (yield from self.encoding(encode, dear)).of(self.numbers)
        codes = DenseRows(made.shape[1], limits=self.limits)
        codes.replace(made)
        found = []
        for queries, k in asked:
            parts = [np.empty((0, k), np.int64)]
            search = partial(_found, codes, queries, k)
            starts = range(0, len(queries), ASKED)
            yield Work(search, starts, parts.append, len(self) > SHARED_CODES)
            found.append(np.concatenate(parts))
        return found

    def take(self, positions: Positions) -> tuple[Rows, Labels]:
        """Return the rows and labels at some positions."""
        return self._rows[positions], self._labels(positions)

    def every(self) -> tuple[Rows, Labels]:
        """Return all rows and labels."""
        return self._rows, self._labels(slice(None))

    def sample(self, size: int, among: Positions | None = None) -> Examples:
        """Return at most ``size`` evenly spaced examples, as a stream of their own."""
        return sampled(self, size, among)


class LocalMapped:
    """A function of rows in this process."""

    def __init__(
        self,
        source: LocalExamples,
        function: Callable[[Rows], Rows],
        keep: bool,
        dear: bool = False,
    ) -> None:
        self._source, self._function, self._dear = source, function, dear
        self._kept: dict[int, Rows] | None = {} if keep else None
        leaf, dear_leaf = source.limits.leaf, source.limits.dear_leaf
        self.leaf = min(leaf, dear_leaf) if dear else leaf

    def _leaf(self, leaf: int, part: Part) -> Rows:
        if self._kept is None:
            return self._function(self._source.rows_of(part))
        if leaf not in self._kept:
            self._kept[leaf] = self._function(self._source.rows_of(part))
        return self._kept[leaf]

    def sum(self, summand: Summand, along: npt.NDArray[Any] | None = None) -> Sums:
        """Return the sum of ``summand(rows, labels, some of along)`` over all leaves."""
        return finish(self.summing(summand, along))

    def summing(
        self,
        summand: Summand,
        along: npt.NDArray[Any] | None = None,
        before: Tree | None = None,
    ) -> Steps[Sums]:
        """Return the same in steps, going on from full leaves that were summed ``before``."""
        source, size = self._source, self.leaf

        def of_leaf(at: tuple[int, Part]) -> tuple[int, Sums]:
            leaf, part = at
            some = _some(along, part)
            return leaf, summand(self._leaf(leaf, part), source.labels_of(part), some)

        tree = Tree() if before is None else before
        leaves = [at for at in source.leaves(size) if at[0] > tree.last]
        full = leaves if source.end % size == 0 else leaves[:-1]
        yield self._of_leaves(of_leaf, full, tree.add)
        rest: list[tuple[int, Sums]] = []
        yield self._of_leaves(of_leaf, leaves[len(full) :], rest.append)
        return tree.total(*rest)

    def gather(self, function: Callable[[Rows], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return ``function(rows)`` of all leaves, one below the other."""
        return finish(self.gathering(function))

    def gathering(self, function: Callable[[Rows], npt.NDArray[Any]]) -> Steps[npt.NDArray[Any]]:
        """Return the same in steps."""
        parts: list[npt.NDArray[Any]] = []
        leaves = [*self._source.leaves(self.leaf)]
        yield self._of_leaves(lambda at: function(self._leaf(*at)), leaves, parts.append)
        return np.concatenate(parts)

    def _of_leaves(
        self,
        function: Callable[[tuple[int, Part]], Any],
        leaves: list[tuple[int, Part]],
        take: Callable[[Any], None],
    ) -> Work:
        return Work(function, leaves, take, self._dear and len(leaves) > 1)


def _some(along: npt.NDArray[Any] | None, part: Part) -> npt.NDArray[Any] | None:
    return None if along is None else along[part]


def _found(codes: DenseRows, queries: Singles, k: int, first: int) -> Positions:
    """Return the nearest codes of some queries, from ``first`` on."""
    return codes.search(queries[first : first + ASKED], k)[1]


def count_labels(rows: Rows, labels: Labels, _: None) -> tuple[npt.NDArray[np.int64], ...]:
    """Count each label, how many examples know it, and the unknown entries."""
    yes = labels.Y.sum(axis=0, dtype=np.int32).astype(np.int64)  # twice as fast
    if labels.known is None:
        return yes, np.full(len(yes), len(labels.Y)), np.zeros(1, np.int64)
    known = labels.known.sum(axis=0, dtype=np.int64)
    return yes, known, np.array([labels.known.size - known.sum()])
