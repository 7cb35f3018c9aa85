"""Folds of multi-label data in which every label is spread evenly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.checks import check_number

__all__ = ["check_labels", "iterative_folds"]

Ints = npt.NDArray[np.int64]


def iterative_folds(Y: Any, folds: int = 5, seed: int | Sequence[int] = 0) -> Ints:
    """Deal rows into folds so that every label is spread evenly (Sechidis et al., ECML 2011).

    Labels are taken rarest first; each of their rows goes to the fold that still lacks most rows of
    that label, then to the fold that lacks most rows at all, then to a random one.

    Parameters
    ----------
    Y : array-like or sparse of shape (n, q)
        0/1 labels; an unknown entry (NaN) counts as 0.
    folds : int, default=5
    seed : int or sequence of int, default=0
        Same seed, same folds.

    Returns
    -------
    ndarray of shape (n,)
        The fold of each row, from 0 to ``folds`` − 1. Cost O(folds · (number of ones + n) + q²).

    Examples
    --------
    >>> Y = np.array([[1, 0]] * 8 + [[0, 1]] * 4)
    >>> fold = iterative_folds(Y, folds=4, seed=1)
    >>> [Y[fold == f].sum(axis=0).tolist() for f in range(4)]
    [[2, 1], [2, 1], [2, 1], [2, 1]]
    """
    check_number("folds", folds, kind=int, least=2)
    Y = check_labels(Y)
    n = Y.shape[0]
    if n < folds:
        raise ValueError(f"Y must have at least {folds} rows for {folds} folds, got {n}")
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    tie = rng.random((n, folds)).tolist()
    labels_of, rows_of = _index_lists(Y, order)
    n_left = np.array([len(rows) for rows in rows_of], dtype=np.int64)
    lacks = np.repeat(n_left[:, None] / folds, folds, axis=1)  # of each label, in each fold
    room = [n / folds] * folds
    fold_of = np.full(n, -1, dtype=np.int64)

    def deal(i: int, wanted: Sequence[float]) -> None:
        best = max(range(folds), key=lambda f: (wanted[f], room[f], tie[i][f]))
        fold_of[i] = best
        room[best] -= 1
        lacks[labels_of[i], best] -= 1
        n_left[labels_of[i]] -= 1

    while n_left.any():
        label = int(np.where(n_left > 0, n_left, n + 1).argmin())
        for i in rows_of[label]:
            if fold_of[i] < 0:
                deal(i, lacks[label].tolist())
    for i in order:
        if fold_of[i] < 0:
            deal(i, room)
    return fold_of


def _index_lists(Y: Any, order: Ints) -> tuple[list[Ints], list[list[int]]]:
    """Labels of each row, and rows of each label in the given order."""
    n, q = Y.shape
    at = np.empty(n, dtype=np.int64)
    at[order] = np.arange(n)
    row, label = (Y == 1).nonzero()
    by_row = np.lexsort((label, row))
    labels_of = np.split(label[by_row], np.searchsorted(row[by_row], np.arange(1, n)))
    by_label = np.lexsort((at[row], label))
    rows_of = np.split(row[by_label], np.searchsorted(label[by_label], np.arange(1, max(q, 1))))
    return labels_of, [rows.tolist() for rows in rows_of]


def check_labels(Y: Any) -> Any:
    """Return labels as CSR or array of bytes, or of floats when some are NaN."""
    if hasattr(Y, "tocsr"):
        Y = Y.tocsr()
        values = Y.data
    else:
        try:
            Y = np.ma.filled(Y.astype(float), np.nan) if np.ma.isMaskedArray(Y) else np.asarray(Y)
            Y = values = Y.astype(np.float64) if Y.dtype == object else Y
        except (TypeError, ValueError):
            raise ValueError(f"Y must be a 0/1 array of shape (n, q), got {Y!r:.60}") from None
    if Y.ndim != 2 or Y.shape[0] == 0:
        raise ValueError(f"Y must have shape (n, q) with n > 0, got {Y.shape}")
    if values.dtype == np.uint8 and (not values.size or values.max() <= 1):
        return Y
    unknown = values != values  # NaN, for any dtype
    odd = ~(unknown | (values == 0) | (values == 1))
    if odd.any():
        raise ValueError(f"Y must hold only 0, 1 and NaN, got {values[odd][0]}")
    return Y.astype(np.float64 if unknown.any() else np.uint8)
