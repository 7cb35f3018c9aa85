"""Copies: a stored item that is nearly the same as the new one lends it its labels.

Of the neighbours that were found take the one most similar in input space, y_nn its labels.
The item is a copy of it with probability κ, or not, when the head's p holds:

    p_j ← κ y_nn,j + (1 − κ)p_j.

κ = K₀/(K₀ + K₁) is learnt, for ordinary items and for those that were corrected by hand, in four
bins of similarity, from counts that start as if some copies had been seen.  The probability that
an item with labels y was a copy is R = κ[y = y_nn]/(κ[y = y_nn] + (1 − κ)L), L the likelihood of y
under the head (two components, one step of expectation maximisation per item), and

    K₀ += R ;   K₁ += 1 − R.

Labels that are not known, of the item or of its neighbour, are left out of both.

Similarity is that of :mod:`tagstream.core.similarity`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.checks import LARGEST_COUNT, expect, expect_keys
from tagstream.core.copies import BINS, blend_items, learn_copies
from tagstream.core.similarity import Nearest

__all__ = ["BINS", "Copies"]

# κ before anything is learnt, and how many items it is worth: ordinary items, corrected ones.
PRIORS = np.array([[0.1, 0.2, 0.4, 0.5], [0.6, 0.8, 0.9, 0.97]])
STRENGTHS = np.array([[10.0], [20.0]])

Vector = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]


class Copies:
    """How far nearly equal items are to be believed, learnt.

    Attributes
    ----------
    K : array of shape (2, 4, 2)
        Ordinary or corrected; bin of similarity; K₀ and K₁.

    Examples
    --------
    >>> copies = Copies()
    >>> same = Nearest(np.array([0]), np.array([1.0]))
    >>> labels, nobody = np.array([[128]], np.uint8), np.array([False])
    >>> copies.blend(np.array([[0.2]]), same, labels, corrected=nobody)[0].tolist()
    [[0.6]]
    >>> copies.blend(np.array([[0.2]]), same, labels, corrected=~nobody)[0].round(3).tolist()
    [[0.976]]
    """

    def __init__(self) -> None:
        self.K = np.stack([STRENGTHS * PRIORS, STRENGTHS * (1 - PRIORS)], axis=2)

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        return self.K.nbytes

    def blend(
        self,
        p: Vector,
        nearest: Nearest,
        labels: Bytes,
        known: Bytes | None = None,
        *,
        corrected: npt.NDArray[np.bool_],
    ) -> tuple[Vector, Vector]:
        """Return the probabilities with the copies in them, (m, q), and κ of each item, (m,).

        Parameters
        ----------
        p : array of shape (m, q)
            Probabilities of the head.
        nearest : Nearest
        labels, known : uint8 arrays of shape (n, ⌈q/8⌉)
            Packed labels of the stored items, and which are known; None or (0, 0): all are.
        corrected : bool array of shape (n,)
            Which of the stored items were corrected; of length 0: none.
        """
        out, kappas = p.copy(), np.empty(len(p))
        blend_items(self.K, *nearest, corrected, labels, _packed(known), out, kappas)
        return out, kappas

    def learn(
        self,
        p: Vector,
        nearest: Nearest,
        labels: Bytes,
        known: Bytes | None,
        Y: Bytes,
        mask: npt.NDArray[np.bool_] | None = None,
        *,
        corrected: npt.NDArray[np.bool_],
    ) -> Vector:
        """Learn from m items in order: labels ``Y`` (m, q), known where ``mask`` says so.

        ``p`` are the head's probabilities of these items before it learnt them, and before copies.
        Return those with the copies in them, as far as these were known before each.
        """
        sure, out = np.empty((0, 0), np.bool_) if mask is None else mask, p.copy()
        learn_copies(self.K, *nearest, corrected, labels, _packed(known), out, Y, sure)
        return out

    def snapshot(self) -> Copies:
        """Return copies that stay as they are now."""
        other = Copies()
        other.K = self.K.copy()
        return other

    def dump(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {"K": self.K.copy()}

    @classmethod
    def load(cls, state: Any) -> Copies:
        """Return what :meth:`dump` described."""
        expect_keys("the copies", state, "K")
        made = cls()
        start = made.K
        made.K = expect("K", state["K"], np.float64, start.shape, most=float(LARGEST_COUNT))
        if (start > made.K).any():
            raise ValueError("K must be at least what it starts from, got less")
        return made


def _packed(known: Bytes | None) -> Bytes:
    return np.empty((0, 0), np.uint8) if known is None else known
