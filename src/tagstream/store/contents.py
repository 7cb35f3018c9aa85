"""Contents: which stored items are copies of each other, and which are drawn by a hash.

Two items have the same *content* if their rows are equal, number by number, in single precision.
A digest of 64 bits stands for the content.  It is made of the entries that are not zero, so dense
and sparse rows of the same numbers have the same digest.

Samples of stored items are drawn by hashing: those whose hash is smallest are in the sample.  So a
sample depends on the items alone, and not on where or in which order they are stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.checks import Digests, Positions, Rows
from tagstream.core.compilation import compiled, inlined

__all__ = ["EMPTY", "Sample", "digests", "draw", "left_out", "n_left_out", "newest_of_each"]


MOST_LEFT_OUT = 512
FEW = 4096  # items up to which contents are counted, not items
SPARE = 64  # copies among the smallest hashes that are expected before more are looked at

# Of splitmix64, by Steele, Lea and Flood (2014).
STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
LONG, MIDDLE, SHORT = np.uint64(30), np.uint64(27), np.uint64(31)
HALF = np.uint64(32)

EMPTY = int(STEP)  # the digest of a row without entries


@inlined
def _mixed(x: Any) -> Any:
    x = (x ^ (x >> LONG)) * FIRST
    x = (x ^ (x >> MIDDLE)) * SECOND
    return x ^ (x >> SHORT)


@inlined
def _added(digest: Any, column: Any, bits: Any) -> Any:
    return _mixed((digest ^ (np.uint64(column) << HALF | np.uint64(bits))) + STEP)


@compiled
def _digest_dense(bits: npt.NDArray[np.uint32], zero: npt.NDArray[np.bool_], out: Digests) -> None:
    for i in range(bits.shape[0]):
        digest = STEP
        for k in range(bits.shape[1]):
            if not zero[i, k]:
                digest = _added(digest, k, bits[i, k])
        out[i] = digest


@compiled
def _digest_sparse(
    indptr: Positions,
    indices: npt.NDArray[np.int32],
    bits: npt.NDArray[np.uint32],
    zero: npt.NDArray[np.bool_],
    out: Digests,
) -> None:
    for i in range(out.shape[0]):
        digest = STEP
        for e in range(indptr[i], indptr[i + 1]):
            if not zero[e]:
                digest = _added(digest, indices[e], bits[e])
        out[i] = digest


def digests(rows: Rows) -> Digests:
    """Return the digest of each row, of single precision, an array of shape (n,).

    Examples
    --------
    >>> rows = np.array([[0, 1.5], [2, 0], [-0.0, 1.5]], np.float32)
    >>> a, b, c = digests(rows).tolist()
    >>> a == c != b, digests(sp.csr_matrix(rows)).tolist() == [a, b, c]
    (True, True)
    """
    out = np.empty(rows.shape[0], np.uint64)
    if sp.issparse(rows):
        data = np.ascontiguousarray(rows.data, np.float32)
        indices = rows.indices.astype(np.int32, copy=False)
        _digest_sparse(rows.indptr.astype(np.int64), indices, data.view(np.uint32), data == 0, out)
    else:
        dense = np.ascontiguousarray(rows, np.float32)
        _digest_dense(dense.view(np.uint32), dense == 0, out)
    return out


def _hashes(values: npt.NDArray[Any], *salts: int) -> Digests:
    """Return a hash of each value, another one for other salts."""
    start = np.zeros(1, np.uint64)
    for salt in salts:
        start = _mixed_all(start + np.uint64(salt % (1 << 64)) + STEP)
    return _mixed_all(_mixed_all(values.astype(np.uint64) + STEP) + start)


def _mixed_all(x: Digests) -> Digests:
    x = (x ^ (x >> LONG)) * FIRST
    x = (x ^ (x >> MIDDLE)) * SECOND
    return x ^ (x >> SHORT)


def draw(numbers: Positions, size: int, seed: int) -> Positions:
    """Return the positions of the ``size`` numbers with the smallest hash, in rising order.

    Examples
    --------
    >>> draw(np.arange(10), 3, seed=0).tolist()
    [6, 8, 9]
    >>> draw(np.arange(10)[::-1], 3, seed=0).tolist()
    [0, 1, 3]
    """
    if len(numbers) <= size:
        return np.arange(len(numbers))
    return np.sort(np.argpartition(_hashes(numbers, seed), size - 1)[:size])


def newest_of_each(contents: Digests) -> Positions:
    """Return the position of the newest item of each content, in rising order.

    Examples
    --------
    >>> newest_of_each(np.array([5, 7, 5, 9], np.uint64)).tolist()
    [1, 2, 3]
    """
    _, from_the_end = np.unique(contents[::-1], return_index=True)
    return np.sort(len(contents) - 1 - from_the_end)


def n_left_out(n: int) -> int:
    """Return how many contents a fit of ``n`` examples leaves out.

    Examples
    --------
    >>> [n_left_out(n) for n in (2, 20, 100, 1000, 10_000, 100_000)]
    [1, 2, 12, 79, 360, 512]
    """
    return min(MOST_LEFT_OUT, max(1, n // 8), 48 + n // 32)


class Sample(NamedTuple):
    """The contents that a fit leaves out, in the order of their hash.

    Attributes
    ----------
    newest : int array of shape (m,)
        The position of the newest item of each content.
    every : int array of shape (k,)
        The positions of all their items, in the same order; k ≥ m.
    whose : int array of shape (k,)
        To which of the m contents each of these belongs.
    """

    newest: Positions
    every: Positions
    whose: Positions


def left_out(contents: Digests, seed: int, n_fits: int) -> Sample:
    """Return what the fit number ``n_fits`` of items with these contents leaves out.

    The contents with the smallest hash of seed, number of the fit, and content; another sample for
    each fit.  All items of a content go together, or one would tell about the others.

    Examples
    --------
    >>> contents = np.array([5, 7, 5, 9, 5, 7], np.uint64)
    >>> left_out(contents, seed=0, n_fits=1)
    Sample(newest=array([5]), every=array([1, 5]), whose=array([0, 0]))
    """
    n = len(contents)
    # Where there are many items, counting their contents takes longer than it is worth.
    size = n_left_out(n if n > FEW else len(np.unique(contents)))
    hashes = _hashes(contents, seed, n_fits)
    looked = size + SPARE
    while True:
        some = np.arange(n)
        if looked < n:  # sorting a few is enough, unless these are copies of each other
            some = np.argpartition(hashes, looked - 1)[:looked]
        smallest = np.unique(hashes[some])
        if len(smallest) > size or looked >= n:
            break
        looked *= 4
    # Something must be left to fit.
    smallest = smallest[: min(size, max(len(smallest) - 1, 0)) if looked >= n else size]
    every = np.flatnonzero(hashes <= smallest[-1]) if len(smallest) else np.empty(0, np.int64)
    whose = np.searchsorted(smallest, hashes[every])
    order = np.argsort(whose, kind="stable")
    every, whose = every[order], whose[order]
    last = np.flatnonzero(np.diff(whose, append=len(smallest)))
    return Sample(every[last], every, whose)
