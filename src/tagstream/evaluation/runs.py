"""Whether labels come in runs: how many labels neighbours in a stream share, beside chance.

Symbols: item a of n has the labels y_a, a 0/1 row; s_ab = Σ_j y_aj y_bj counts the labels that two
items share; n_j counts the items with label j.  The statistic is A = Σ_t s_{t,t+1}, the number of
labels that items share with the one before them.  Its mean and variance over all n! orders of the
same items are exact (``docs/math.md``, section 23); labels that go together are no obstacle, as
items are moved as a whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagstream.evaluation.folds import check_labels

__all__ = ["LabelRuns", "label_runs"]

# Standard deviations above the mean from which on labels come in runs.  A random order goes so far
# with probability 1/(1 + 5²) < 0.04 at most, whatever the items are (Cantelli's inequality).
DEVIATIONS = 5.0
EXCESS = 0.02  # and the share of labels beyond the mean: in a long stream less is beyond chance too


@dataclass(frozen=True)
class LabelRuns:
    """How many labels items share with the one before them, and what a random order would have.

    Attributes
    ----------
    shared : float
        Share of the labels of items that the item before has too, A / Σ_j n_j.
    expected : float
        The mean of that over all orders of the same items.
    deviations : float
        By how many standard deviations A lies above its mean; 0 if all orders have the same A.
    """

    shared: float
    expected: float
    deviations: float

    @property
    def found(self) -> bool:
        """Whether labels come in runs: beyond chance, and by enough to matter."""
        return self.deviations > DEVIATIONS and self.shared - self.expected > EXCESS


def label_runs(Y: Any) -> LabelRuns:
    """Tell whether the labels of a stream come in runs.

    Takes time in proportion to Σ_a |y_a|², and never makes sparse labels dense.

    Parameters
    ----------
    Y : array, CSR matrix or data frame of shape (n, q)
        0/1 labels, NaN where unknown; what is unknown is not shared.

    Returns
    -------
    LabelRuns

    Examples
    --------
    >>> sorted_by_label = np.repeat(np.eye(3, dtype=int), 40, axis=0)
    >>> runs = label_runs(sorted_by_label)
    >>> round(runs.shared, 3), round(runs.expected, 3), runs.found
    (0.975, 0.325, True)
    >>> label_runs(sorted_by_label[np.random.default_rng(0).permutation(120)]).found
    False
    """
    Y = check_labels(Y)
    has = sp.csr_array(Y == 1, dtype=np.float64)
    n, n_each = has.shape[0], np.asarray(has.sum(axis=0)).ravel()
    total = float(n_each.sum())
    if n < 2 or not total:
        return LabelRuns(0.0, 0.0, 0.0)
    A = float(has[:-1].multiply(has[1:]).sum())
    size = np.asarray(has.sum(axis=1)).ravel()
    # S₁ = Σ s_ab, S₂ = Σ s_ab², S₃ = Σ_a (Σ_b s_ab)² over a ≠ b.  S₂ is made of YᵀY, not of YYᵀ:
    # the two have the same norm, and labels that never go together take no room in the first.
    together = has.T @ has
    S1 = float(n_each @ (n_each - 1))
    S2 = float(together.multiply(together).sum() - size @ size)
    S3 = float(np.sum((has @ (n_each - 1)) ** 2))
    mean = S1 / n
    variance = S2 / n - 2 * S3 / (n * (n - 1)) + S1**2 / (n**2 * (n - 1))
    # A variance of zero leaves a trace of rounding.
    deviation = math.sqrt(variance) if variance > 1e-9 * (S2 / n) else 0.0
    return LabelRuns(A / total, mean / total, (A - mean) / deviation if deviation else 0.0)
