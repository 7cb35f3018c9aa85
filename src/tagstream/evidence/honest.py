"""Honest scores: what was said of an item before it was learnt, beside what turned out to be true.

A score that is made after an item was learnt says little about the next item.  These are made
before: for the next item of the stream, by the head when an example arrives; for any item, of the
examples that a fit has left out.  They tell which precision a score is worth
(:mod:`tagstream.evidence.promise`).

Kept are the latest scores of at least :data:`LEAST`, and those of all labels that an item turned
out to have.  A model with a window keeps fewer of them, so that its memory stays flat early on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.checks import expect, expect_keys
from tagstream.core.compilation import compiled

__all__ = ["LEAST", "MOST", "Entries", "HonestScores", "entries_of", "load_entries"]

LEAST = 0.3  # score from which it is kept, whatever turned out
MOST = 1 << 15  # entries that are kept;
FEWEST, PER_ITEM = 1 << 12, 8  # with a window: so many for each of its items, and at least so many
UNKNOWN = 2  # in labels of 0, 1 and 2

Vector = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]


class Entries(NamedTuple):
    """Some scores, in order; arrays of shape (n,).

    Attributes
    ----------
    columns : int32
        The labels.
    scores : float32
    hits : uint8
        1 where the item has the label.
    """

    columns: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]
    hits: Bytes


@compiled
def _note(
    p: Vector,
    Y: Bytes,
    columns: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
    hits: Bytes,
) -> int:
    """Write the entries of items (m, q) with labels of 0, 1 and 2; return how many there are."""
    n = 0
    for i in range(p.shape[0]):
        for j in range(p.shape[1]):
            if Y[i, j] != 2 and (Y[i, j] == 1 or p[i, j] >= 0.3):
                if n < columns.shape[0]:
                    columns[n], scores[n], hits[n] = j, p[i, j], Y[i, j]
                n += 1
    return n


def entries_of(p: Vector, Y: Bytes) -> Entries:
    """Return what is kept of scores (m, q) of items with labels of 0, 1 and 2.

    Examples
    --------
    >>> entries_of(np.array([[0.5, 0.1], [0.2, 0.1]]), np.array([[0, 1], [2, 0]], np.uint8))
    Entries(columns=array([0, 1], dtype=int32), scores=array([0.5, 0.1], dtype=float32), \
hits=array([0, 1], dtype=uint8))
    """
    room = 16 + 2 * len(p)
    while True:
        made = Entries(np.empty(room, np.int32), np.empty(room, np.float32), np.empty(room, "u1"))
        n = _note(p, np.ascontiguousarray(Y), *made)
        if n <= room:
            return Entries(made.columns[:n].copy(), made.scores[:n].copy(), made.hits[:n].copy())
        room = n


class HonestScores:
    """The latest honest scores of a learner.

    Parameters
    ----------
    window : int, optional
        How many items the learner keeps.

    Attributes
    ----------
    n : int
        How many there were in all.
    """

    def __init__(self, window: int | None = None) -> None:
        self.n = 0
        self._most = MOST if window is None else min(MOST, max(FEWEST, PER_ITEM * window))
        self._parts: list[Entries] = []  # oldest first
        self._n_kept = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the entries."""
        return 9 * self._n_kept

    def add(self, entries: Entries) -> None:
        """Add entries, and let go of the oldest."""
        if not len(entries.columns):
            return
        self._parts.append(entries)
        self.n += len(entries.columns)
        self._n_kept += len(entries.columns)
        if self._n_kept >= 2 * self._most or len(self._parts) >= 512:
            self._tidy()

    def _tidy(self) -> None:
        """Make one part of all, of those that are kept."""
        if len(self._parts) != 1 or self._n_kept > self._most:
            whole = [np.concatenate(some)[-self._most :] for some in zip(*self._parts, strict=True)]
            self._parts = [Entries(*whole)] if whole else []
            self._n_kept = len(whole[0]) if whole else 0

    @property
    def entries(self) -> Entries:
        """The latest entries, oldest first."""
        if not self._parts:
            return Entries(np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.uint8))
        whole = [np.concatenate(some)[-self._most :] for some in zip(*self._parts, strict=True)]
        return Entries(*whole)

    def keep(self, columns: list[list[int]]) -> None:
        """Make each label anew of old ones; the first of them has the entries."""
        if not self._parts:
            return
        old = self.entries
        new = np.full(max(int(old.columns.max(initial=0)), *(c[0] for c in columns), 0) + 1, -1)
        new[[c[0] for c in columns]] = np.arange(len(columns))
        moved = new[old.columns]
        some = moved >= 0
        self._parts = [Entries(moved[some].astype(np.int32), old.scores[some], old.hits[some])]
        self._n_kept = int(some.sum())

    def snapshot(self) -> HonestScores:
        """Return those of now, which stay as they are."""
        other = HonestScores()
        other._most = self._most
        other.n, other._n_kept, other._parts = self.n, self._n_kept, [*self._parts]
        return other

    def dump(self) -> dict[str, Any]:
        """Return them as plain values."""
        return {"n": self.n, **{k: v.copy() for k, v in self.entries._asdict().items()}}

    @classmethod
    def load(cls, state: Any, q: int, window: int | None = None) -> HonestScores:
        """Return what :meth:`dump` described, for ``q`` labels; None stands for no scores."""
        made = cls(window)
        if state is None:
            return made
        expect_keys("honest scores", state, "n", *Entries._fields)
        entries = load_entries({k: v for k, v in state.items() if k != "n"}, q)
        if type(state["n"]) is not int or not len(entries.columns) <= state["n"]:
            raise ValueError("n must be at least the number of honest scores that are kept")
        made.add(entries)
        made.n = state["n"]
        return made


def load_entries(state: Any, q: int) -> Entries:
    """Return entries that a file holds, for ``q`` labels."""
    expect_keys("honest scores", state, *Entries._fields)
    columns = expect("columns", state["columns"], np.int32, (None,), least=0, most=max(q - 1, 0))
    if (len(columns) and not q) or len(columns) > MOST:
        raise ValueError(f"honest scores must be at most {MOST}, of labels that there are")
    shape = (len(columns),)
    return Entries(
        columns,
        expect("scores", state["scores"], np.float32, shape, least=0, most=1),
        expect("hits", state["hits"], np.uint8, shape, least=0, most=1),
    )
