"""What the any-head learns at a fit of P: examples that this fit has left out.

A fit leaves a few stored examples out (:func:`tagstream.store.contents.left_out`).  P′ is fitted
on all others, every stored example gets a code by P′, and then each example that was left out is
asked about as if it came now: its neighbours, its regression P′ᵀx and the counts of labels are
those without it and its copies.  That is the evidence which a question has, so the weights that
are learnt from it hold for questions, in whatever order the examples came
(:mod:`tagstream.evidence.anyhead`).  Afterwards P is fitted on all examples.

A learner without P does the same with neighbours in input space.

Everything here follows from a snapshot of the store, the seed and the number of fits so far.  So it
runs in the steps of a fit, and does not depend on when they are done.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.checks import Digests, Rows
from tagstream.core.inputs import inputs_of
from tagstream.evidence.anyhead import AnyHead
from tagstream.evidence.fastmap import Basis, young_labels
from tagstream.evidence.head import Evidence, History, copied, marked_labels
from tagstream.evidence.honest import Entries, entries_of
from tagstream.evidence.naming import Naming
from tagstream.execution.steps import PAUSE, Steps
from tagstream.store.contents import Sample, draw
from tagstream.store.protocol import LABELS, NUMBERS, ROWS, Store
from tagstream.store.rows import DenseRows

__all__ = [
    "NEAR",
    "Left",
    "Replay",
    "Replayed",
    "column_factor",
    "counted",
    "scaled_rows",
    "without_copies",
]

NEAR = 10  # neighbours in input space
DRAWN = 1000  # stored rows among which they are looked up
TOGETHER = 32  # examples that are learnt in one step
FLATTEST = 1e-30  # deviation up to which a column is constant
MANY = 32  # copies of an example, from which on it is looked up apart

Positions = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

UNKNOWN = 2  # in labels of 0, 1 and 2


class Left(NamedTuple):
    """The examples that a fit leaves out.

    Attributes
    ----------
    sample : Sample
        Where they are stored.
    contents : uint64 array of shape (n,)
        The contents of all stored examples.
    rows : array or CSR matrix of shape (m, p)
        One row of each content that is left out.
    """

    sample: Sample
    contents: Digests
    rows: Rows

    @classmethod
    def of(cls, sample: Sample, contents: Digests, store: Store) -> Left:
        """Return a sample of what is stored."""
        return cls(sample, contents, store.take(ROWS, sample.newest))

    @property
    def n_copies(self) -> Positions:
        """How often each content is stored, (m,)."""
        return np.bincount(self.sample.whose, minlength=len(self.sample.newest))

    def groups(self, votes: int, n: int) -> list[tuple[Positions, int]]:
        """Return which contents are looked up together, and how many neighbours to ask for.

        So many that ``votes`` are left when the item and its copies are taken out.
        """
        copies = self.n_copies
        parts = (np.flatnonzero(copies <= MANY), np.flatnonzero(copies > MANY))
        return [(part, min(votes + int(copies[part].max()), n)) for part in parts if len(part)]

    def others(self, found: Positions, part: Positions, votes: int) -> Positions:
        """Return the first ``votes`` of those found that do not have the item's content."""
        own = self.contents[self.sample.newest[part]]
        return without_copies(found, self.contents, own, votes)


def without_copies(found: Positions, contents: Digests, own: Digests, votes: int) -> Positions:
    """Return the first ``votes`` neighbours (m, k) whose content is not the item's own (m,).

    −1 stands where there are fewer.
    """
    out = np.full((len(found), votes), -1, np.int64)
    other = (found >= 0) & (contents[np.maximum(found, 0)] != own[:, None])
    place = np.cumsum(other, axis=1) - 1
    item, at = np.nonzero(other & (place < votes))
    out[item, place[item, at]] = found[item, at]
    return out


class Replayed(NamedTuple):
    """What came of it.

    Attributes
    ----------
    head : AnyHead
    drawn : int array
        The numbers of the sample of rows in input space.
    honest : list of Entries
        The scores of the examples that were left out, before each was learnt.
    """

    head: AnyHead
    drawn: Positions
    honest: list[Entries]


class Replay:
    """What the any-head is taught with at one fit.

    Parameters
    ----------
    head : AnyHead
        As it is when the fit begins; it is not changed.
    counts : History
        Of the labels of what is stored.
    seed : int
        By which the sample of rows is drawn.
    naming : Naming, optional
        If the names of labels are evidence.
    """

    def __init__(
        self, head: AnyHead, counts: History, seed: int, naming: Naming | None = None
    ) -> None:
        self._head, self._seed, self._naming = head.snapshot(), seed, naming
        self._counts = History(**copied(counts))

    @property
    def n_votes(self) -> int:
        """How many neighbours vote."""
        return self._head.votes[-1]

    @property
    def near(self) -> bool:
        """Whether neighbours in input space vote, too."""
        return self._head.near

    def learn(
        self,
        left: Left,
        store: Store,
        found: Positions,
        Z: Vector,
        factor: Vector | None,
        basis: Basis | None = None,
    ) -> Steps[Replayed]:
        """Teach the examples that were left out, in the order of their hash.

        Parameters
        ----------
        left : Left
        store : Store
            As it was when the fit began.
        found : int array of shape (m, votes)
            The neighbours of each, without its copies.
        Z : array of shape (m, q), or (0, 0)
            The regression, if there is one.
        factor : array of shape (p,), or None
            By which dense columns are multiplied in input space; None: it is not looked at.
        basis : optional
            That of reduced labels.
        """
        head, drawn = self._head, np.empty(0, np.int64)
        honest: list[Entries] = []
        near = np.empty((0, 0), np.int64)
        if factor is not None:
            numbers = store.take(NUMBERS, np.arange(len(store)))
            at = draw(numbers, DRAWN, self._seed)
            drawn = numbers[at]
            yield PAUSE
            near = self._near(left, store, at, factor)
            yield PAUSE
        fresh = young_labels(self._counts.n, basis)
        sample, m = left.sample, len(left.sample.newest)
        bounds = np.searchsorted(sample.whose, np.arange(m + 1))
        for first in range(0, m, TOGETHER):
            part = slice(first, min(first + TOGETHER, m))
            copies = slice(bounds[part.start], bounds[part.stop])
            (voters, nearby), labels, known, _ = store.neighbors(found[part], near[part])
            evidence = Evidence(voters, nearby, labels, known, Z[part], inputs_of(None))
            if self._naming is not None:
                cosines = self._naming.cosines(left.rows[part])
                evidence = evidence._replace(names=cosines, declared=self._naming.declared)
            every = store.take(LABELS, sample.every[copies])
            Y = marked_labels(every.Y, every.known)
            less = counted(Y, sample.whose[copies] - first, part.stop - first)
            newest = bounds[part.start + 1 : part.stop + 1] - 1 - bounds[part.start]
            labels_of = np.ascontiguousarray(Y[newest])
            p = head.learn(evidence, self._counts, less, fresh, labels_of)
            honest.append(entries_of(p, labels_of))
            yield PAUSE
        return Replayed(head, drawn, honest)

    def _near(self, left: Left, store: Store, at: Positions, factor: Vector) -> Positions:
        """Return the nearest of a sample of stored rows in input space, without copies."""
        rows = DenseRows(store.facts.n_features)
        rows.append(scaled_rows(store.take(ROWS, at), factor))
        contents, own = left.contents[at], left.contents[left.sample.newest]
        same = np.isin(contents, own)
        most = int(np.unique(contents[same], return_counts=True)[1].max(initial=0))
        queries = scaled_rows(left.rows, factor)
        found = rows.search(queries, min(NEAR + most, max(len(at), 1)))[1]
        found = without_copies(found, contents, own, NEAR)
        return np.where(found >= 0, at[np.maximum(found, 0)], -1) if len(at) else found


def column_factor(mean: Vector, deviation: Vector) -> Vector:
    """Return one over the deviation of each column, 1 for one that is constant."""
    flat = deviation <= 1e-6 * np.abs(mean) + FLATTEST
    return np.asarray(1 / np.where(flat, 1.0, deviation))


def scaled_rows(rows: Rows, factor: Vector) -> Singles:
    """Return dense rows in input space: columns times a factor each."""
    scaled: Singles = (rows * factor).astype(np.float32)
    return scaled


def counted(Y: npt.NDArray[np.uint8], whose: Positions, m: int) -> Any:
    """Return what items with labels of 0, 1 and 2 add to the counts, for each of m contents."""
    some = (Y != UNKNOWN).any(axis=1)
    if Y.shape[1] == 0:
        some[:] = True
    yes, missing = np.zeros((2, m, Y.shape[1]), np.int64)
    np.add.at(yes, whose, (Y == 1).astype(np.int64))
    np.add.at(missing, whose[some], (Y[some] == UNKNOWN).astype(np.int64))
    return yes, missing, np.bincount(whose[some], minlength=m)
