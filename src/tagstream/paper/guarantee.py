"""The loss bound of ``OML(step="convex")`` along a run, beside the best metric in hindsight.

The letters are those of :mod:`tagstream.metric.convex`; ``docs/math.md`` has the theorem and its
proof.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.labels.read import Labels
from tagstream.learners.oml import OML
from tagstream.metric import convex
from tagstream.metric.space import ConvexSpace, Coordinates

__all__ = ["RecordedOML", "guarantee"]

LOOKS = 60  # points of the curves


class _RecordedSpace(ConvexSpace):
    """A space that keeps what its rounds were given."""

    def __init__(self, n_components: int | None = None) -> None:
        super().__init__(n_components)
        self.parts: list[convex.Rounds] = []

    def play(
        self,
        Z: npt.NDArray[np.float64],
        mine: Labels | Coordinates,
        theirs: Labels | Coordinates,
        alone: npt.NDArray[np.bool_],
        **how: Any,
    ) -> None:
        """Play the rounds, and keep them; all labels must be known."""
        assert mine.known is None
        assert theirs.known is None
        self.parts.append(convex.Rounds.of(Z, mine.Y, theirs.Y, lonely=alone))
        super().play(Z, mine, theirs, alone, **how)


class RecordedOML(OML):
    """``OML(step="convex")`` that keeps its rounds, for a report."""

    def _start(self) -> None:
        super()._start()
        self._embedding.space = space = _RecordedSpace(self.n_components)
        self._parts = space.parts

    @property
    def rounds_(self) -> convex.Rounds | None:
        """All rounds so far; None before the first."""
        return convex.Rounds.joined(self._parts) if self._parts else None

    @property
    def n_rounds_(self) -> int:
        """Rounds so far."""
        return sum(len(part.S) for part in self._parts)

    @property
    def tally_(self) -> convex.Tally:
        """What is kept beside Q."""
        assert isinstance(self._embedding.space, ConvexSpace)
        return convex.Tally.of(self._embedding.space.tally)


def guarantee(X: Any, Y: npt.NDArray[np.uint8], model: OML) -> dict[str, Any]:
    """Learn a stream in its order; return the loss, its bounds, and both along the run.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, p)
    Y : array of shape (n, q)
    model : OML
        A new learner with ``step="convex"``.

    Returns
    -------
    dict
        ``squared_loss`` Σ l_t², ``identity_loss`` that of the metric that does not move, ``bound``
        for U = I; ``best``: the U whose bound is least in hindsight, its loss and distance from I.
    """
    run = RecordedOML(**model.get_params())
    cuts = np.unique(np.linspace(0, len(Y), LOOKS + 1).astype(int))
    looks: list[tuple[int, int, convex.Tally]] = []
    for start, stop in pairwise(cuts):
        run.partial_fit(X[start:stop], Y[start:stop])
        looks.append((int(stop), run.n_rounds_, run.tally_))
    C, end = float(run.step_max), looks[-1][2]
    rounds = run.rounds_
    if rounds is None:
        raise ValueError(f"there must be rounds, got none in {len(Y)} items")
    best = convex.best_metric(rounds, C, largest=end.largest)
    theirs = convex.losses_of(best.U, rounds) ** 2
    away = float(((best.U - np.eye(len(best.U))) ** 2).sum())
    so_far = np.concatenate([[0.0], np.cumsum(theirs)])
    return {
        "T": len(theirs),
        "q": Y.shape[1],
        "C": C,
        "largest": end.largest,
        "squared_loss": end.squared_loss,
        "bound": end.bound(C),
        "identity_loss": end.identity_squared,
        "n_decompositions": int(end.n_decompositions),
        "best": {
            "bound": best.bound,
            "gap": best.gap,
            "loss": float(theirs.sum()),
            "distance": away,
        },
        "curve": {
            "n_items": [n for n, _, _ in looks],
            "squared_loss": [round(tally.squared_loss, 4) for _, _, tally in looks],
            "bound": [round(tally.bound(C), 4) for _, _, tally in looks],
            "identity_loss": [round(tally.identity_squared, 4) for _, _, tally in looks],
            "best_bound": [
                round((tally.largest + 0.5 / C) * (away + 2 * C * float(so_far[t])), 4)
                for _, t, tally in looks
            ],
        },
    }
