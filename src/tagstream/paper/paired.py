"""Two methods on the same divisions of the data."""

from __future__ import annotations

from dataclasses import dataclass

from tagstream.paper.results import LOWER_IS_BETTER, Values, spread_of

__all__ = ["CHANCE", "Paired"]

# Standard errors of n differences that chance exceeds in one case of twenty; 10 stands for more.
CHANCE = {2: 12.7, 3: 4.3, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}


@dataclass(frozen=True)
class Paired:
    """Values of one method and of another; of the longer, those that both have.

    Examples
    --------
    >>> import numpy as np
    >>> gap = Paired(np.array([0.1, 0.2, 0.3]), np.array([0.2, 0.2]), "hamming_loss")
    >>> round(gap.mean, 3), gap.is_better, gap.is_always_better
    (-0.05, True, False)
    """

    ours: Values
    theirs: Values
    measure: str

    @property
    def n(self) -> int:
        """How many pairs there are."""
        return min(len(self.ours), len(self.theirs))

    @property
    def gaps(self) -> Values:
        """Ours minus theirs."""
        return self.ours[: self.n] - self.theirs[: self.n]

    @property
    def mean(self) -> float:
        """The mean of the gaps."""
        return float(self.gaps.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return spread_of(self.gaps) / float(self.n**0.5)

    @property
    def _sign(self) -> int:
        return -1 if self.measure in LOWER_IS_BETTER else 1

    @property
    def is_better(self) -> bool:
        """Whether ours is better on average."""
        return self._sign * self.mean > 0

    @property
    def is_always_better(self) -> bool:
        """Whether ours is better in every single pair."""
        return bool((self._sign * self.gaps > 0).all())

    @property
    def is_beyond_chance(self) -> bool:
        """Whether the mean is farther from zero than that of ten equal ones in one of 20 cases."""
        return abs(self.mean) > CHANCE[10] * self.error
