"""The any-head: weighs the evidence for the labels of any item, in whatever order items came.

:mod:`tagstream.evidence.head` learns from each example as it comes.  So its weights answer the
question "which labels has the next item of the stream?".  If the stream is sorted, the latest
labels are the best evidence for the next ones, and its weights say so.  For any other item such
weights are useless.  The any-head is the same online logistic model with weights of its own.  It
has no evidence of recent labels, and it learns from examples that a fit of P has left out
(:mod:`tagstream.evidence.replay`).

Its evidence for label j is, in the notation of :mod:`tagstream.evidence.head`,

    one, L_3, L_10, L_30 in the codes, ⅛(logit z + logit z⁺), ¼ ln((n_j + ½)/(t_j − n_j + ½)),

and L_3 and L_10 among a sample of stored rows in input space, where there is one, and what the
names of labels say as in that module, where they are evidence.  z and z⁺ share a
column, because an example that is left out cannot tell them apart: the fast map is empty then.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.checks import expect_keys
from tagstream.core.heads import pass_any
from tagstream.evidence.head import (
    NEAR,
    NO_LABELS,
    PARTS,
    Aims,
    Evidence,
    History,
    Scores,
    Weights,
    copied,
    n_voting,
    struct_of_model,
)

__all__ = ["AnyHead"]

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_NOTHING_LESS = np.empty((0, 0), np.int64), np.empty((0, 0), np.int64), np.empty(0, np.int64)


def _start_weights(votes: tuple[int, ...], near: bool) -> Vector:
    """Return the weights before anything is learnt."""
    by_votes = [0.4] * (len(votes) - 1) + [1.0]
    return np.array([-0.3, *by_votes, 2.0, -0.8, *([0.2] * len(NEAR) if near else [])])


class AnyHead:
    """The online logistic model over the evidence for any item.

    Parameters
    ----------
    votes : tuple of int
        How many neighbours in the codes vote, rising.
    near : bool
        Whether there are neighbours in input space too.
    names : bool
        Whether the names of labels are evidence.
    """

    def __init__(self, votes: tuple[int, ...], *, near: bool, names: bool = False) -> None:
        self.votes, self.near = votes, near
        self._sizes, self._near_sizes = np.array(votes, np.int64), np.array(NEAR, np.int64)
        self.weights = Weights.starting(_start_weights(votes, near))
        if names:
            self.weights = self.weights.with_names()
        self.aims = Aims(np.zeros(0), np.zeros(0))
        self._renew()

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return len(self.aims.hits)

    @property
    def bars(self) -> Vector:
        """The probability from which each label is suggested for its own highest F1, (q,)."""
        return self.aims.bars

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        return sum(part.nbytes for part in (*self.weights, *self.aims))

    def grow(self, q: int) -> None:
        """Make room for ``q`` labels; the new ones are as if nobody ever had them."""
        more = q - self.n_labels
        if more > 0:
            self.weights, self.aims = self.weights.grown(more), self.aims.grown(more)
            self._renew()

    def use_names(self) -> None:
        """Have names be evidence from now on."""
        self.weights = self.weights.with_names()
        self._renew()

    def keep(self, columns: list[int]) -> None:
        """Leave out all labels but those at ``columns``."""
        self.weights, self.aims = self.weights.kept(columns), self.aims.kept(columns)
        self._renew()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has, too: all but the object that refers to arrays of this head."""
        return {k: v for k, v in self.__dict__.items() if k != "_model"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._renew()

    def _renew(self) -> None:
        """Hand other arrays to the compiled loops from now on."""
        self._model = struct_of_model(self.weights, self.aims, self._sizes, self._near_sizes)

    def learn(
        self,
        evidence: Evidence,
        counts: History,
        less: tuple[Ints, Ints, Ints] | None,
        fresh: Bytes,
        Y: Bytes,
    ) -> Vector:
        """Learn m items in order; return their probabilities before each was learnt, (m, q).

        Parameters
        ----------
        evidence : Evidence
            Of other items only.
        counts : History
            Of the stored items.
        less : tuple of int64 arrays of shapes (m, q), (m, q) and (m,), optional
            What is to be taken off these counts for each item: the item itself, if it is stored.
            The items that have each label; of which it is not known; of which anything is known.
        fresh : uint8 array of shape (q,)
            See :class:`~tagstream.evidence.fastmap.FastState`.
        Y : uint8 array of shape (m, q)
            Labels of 0, 1 and 2, which stands for "not known".
        """
        p = np.empty(Y.shape)
        self._pass(evidence, evidence.Z, counts, less, fresh, Y, p)
        return p

    def score(
        self,
        evidence: Evidence,
        z_plus: Vector,
        counts: History,
        fresh: Bytes,
        less: tuple[Ints, Ints, Ints] | None = None,
    ) -> Vector:
        """Return the probabilities of m items, (m, q), given z⁺ of the fast map, (m, q).

        ``less``, as in :meth:`learn`, is what stored items take off the counts when they are asked
        about as if they were not stored.
        """
        p = np.empty((len(evidence.found), self.n_labels))
        self._pass(evidence, z_plus, counts, less, fresh, NO_LABELS, p)
        return p

    def explain(self, evidence: Evidence, z_plus: Vector, counts: History, fresh: Bytes) -> Scores:
        """Return the probabilities of m items with the parts that add up to their log-odds."""
        shape = len(evidence.found), self.n_labels
        scores = Scores(np.empty(shape), np.empty(shape), np.zeros((*shape, len(PARTS))))
        reasons = scores.log_odds, scores.parts
        self._pass(evidence, z_plus, counts, None, fresh, NO_LABELS, scores.p, reasons)
        return scores

    def _pass(
        self,
        evidence: Evidence,
        z_plus: Vector,
        counts: History,
        less: tuple[Ints, Ints, Ints] | None,
        fresh: Bytes,
        Y: Bytes,
        p: Vector,
        reasons: tuple[Vector, Vector] | None = None,
    ) -> None:
        n_others = int(counts.t[0]) - (less is not None)
        most = self.votes[-1] if len(Y) else n_voting(n_others, self.votes)
        less = _NOTHING_LESS if less is None else less
        counted, seen = tuple(counts[:3]), evidence.seen(near=self.near)
        pass_any(self._model, counted, less, fresh, seen, z_plus, Y, most, p, reasons)

    def snapshot(self) -> AnyHead:
        """Return a head that stays as this one is now."""
        other = copy(self)
        other.weights = Weights(**copied(self.weights))
        other.aims = Aims(**copied(self.aims))
        other._renew()
        return other

    # ------------------------------------------------------------------ state as plain values
    def dump(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {**self.weights.dump(), **copied(self.aims)}

    @classmethod
    def load(
        cls, state: Any, q: int, *, votes: tuple[int, ...], near: bool, names: bool = False
    ) -> AnyHead:
        """Return what :meth:`dump` described, for ``q`` labels."""
        expect_keys("the any-head", state, *Weights._fields, *Aims._fields)
        head = cls(votes, near=near, names=names)
        head.weights = Weights.load(state, q, len(head.weights.w))
        head.aims = Aims.load(state, q)
        head._renew()
        return head
