"""Whether learners differ over several streams: ranks, Friedman's test, Wilcoxon's with Holm.

With N streams and k learners, rank the learners of each stream (1 is best, ties share their mean).

* **Friedman's test** asks whether the mean ranks differ at all.
* **Wilcoxon's signed-rank test**, for each pair, asks whether one learner is better over the
  streams.  The k(k − 1)/2 p-values are adjusted by **Holm's** procedure: sorted, the i-th smallest
  is multiplied by (number of tests − i + 1), and made no smaller than the one before.
* **Nemenyi's critical difference**, q_α √(k(k + 1)/(6N)), is what two mean ranks must differ by in
  the diagrams that most studies print.  q_α is the studentized range for k means, over √2.

Wilcoxon's test on N streams cannot give a p below 2/2ᴺ.  If even that, times the number of tests,
is above α, no pair can be told apart, however large the difference: :attr:`Significance.note` says
so.  Figures of a pair do not depend on which others are compared, except through Holm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["LEAST_LEARNERS", "LEAST_STREAMS", "Significance", "holm", "significance"]

LEAST_LEARNERS = 3  # for Friedman's test
LEAST_STREAMS = 5  # below, Wilcoxon's least p is above .05 for a single pair already

Values = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Significance:
    """What the tests say of some learners on some streams.

    Attributes
    ----------
    learners : tuple of str
        Best mean rank first.
    streams : tuple of str
        Those on which all learners have a value.
    ranks : dict of str to float
        Mean ranks.
    statistic, p : float or None
        Friedman's; None if there are too few.
    pairs : dict of (str, str) to float
        Adjusted p-values of Wilcoxon's tests, the better rank first.
    critical_difference : float or None
        Nemenyi's, at ``alpha``.
    alpha : float
    note : str
        What was left out, what there is too little of, and what cannot be told with so few streams.
    """

    learners: tuple[str, ...]
    streams: tuple[str, ...]
    ranks: dict[str, float]
    statistic: float | None
    p: float | None
    pairs: dict[tuple[str, str], float] = field(default_factory=dict)
    critical_difference: float | None = None
    alpha: float = 0.05
    note: str = ""

    @property
    def enough(self) -> bool:
        """Whether there were enough learners and streams for the tests."""
        return self.p is not None


def significance(
    values: Values, *, lower_is_better: bool = False, alpha: float = 0.05
) -> Significance:
    """Test whether learners differ.

    Parameters
    ----------
    values : mapping of stream to mapping of learner to number
        A learner that has no value on some stream is left out, and named in the note.
    lower_is_better : bool
    alpha : float

    Returns
    -------
    Significance

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> values = {
    ...     f"s{i}": {"good": 0.7 + v, "fair": 0.6 + v, "poor": 0.5 + v}
    ...     for i, v in enumerate(rng.normal(0, 0.1, 12))
    ... }
    >>> found = significance(values)
    >>> found.ranks
    {'good': 1.0, 'fair': 2.0, 'poor': 3.0}
    >>> found.p < 0.001, round(found.pairs["good", "poor"], 4)
    (True, 0.0015)
    >>> significance({name: values[name] for name in ("s0", "s1")}).note
    'Too few streams for the tests: 2, where 5 are needed.'
    """
    streams = tuple(name for name, row in values.items() if row)
    everyone = list(dict.fromkeys(learner for name in streams for learner in values[name]))
    learners = [who for who in everyone if all(who in values[name] for name in streams)]
    notes = [
        f"Left out, because it has no value on some stream: {who}."
        for who in everyone
        if who not in learners
    ]
    table = np.array([[values[name][who] for who in learners] for name in streams])
    table = table.reshape(len(streams), len(learners))
    by_stream = _ranks(table if lower_is_better else -table)
    means = by_stream.mean(axis=0) if len(streams) else np.zeros(len(learners))
    best_first = np.argsort(means, kind="stable")
    names = tuple(learners[j] for j in best_first)
    ranks = {learners[j]: float(means[j]) for j in best_first}
    for kind, n, least in (
        ("learners", len(learners), LEAST_LEARNERS),
        ("streams", len(streams), LEAST_STREAMS),
    ):
        if n < least:
            notes.append(f"Too few {kind} for the tests: {n}, where {least} are needed.")
            return Significance(
                names, streams, ranks, None, None, alpha=alpha, note=" ".join(notes)
            )
    statistic, p = _friedman(table)
    pairs = _pairs(table[:, best_first], names)
    least_p = min(2.0 ** (1 - len(streams)) * len(pairs), 1.0)
    if least_p > alpha:
        notes.append(
            f"With {len(streams)} streams and {len(pairs)} pairs, Holm's least p is "
            f"{least_p:.2g}: no pair can be told apart at {alpha:g}."
        )
    return Significance(
        *(names, streams, ranks, statistic, p, pairs),
        critical_difference=_nemenyi(len(learners), len(streams), alpha),
        alpha=alpha,
        note=" ".join(notes),
    )


def holm(p_values: Iterable[float]) -> npt.NDArray[np.float64]:
    """Return p-values adjusted for the number of tests, in the given order.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.fromiter(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1.0)


def _ranks(table: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    from scipy.stats import rankdata

    return np.asarray(rankdata(table, axis=1) if table.size else table, np.float64)


def _friedman(table: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return Friedman's statistic and p; (0, 1) if all ranks are tied."""
    from scipy.stats import friedmanchisquare

    if (table == table[:, :1]).all():
        return 0.0, 1.0
    found = friedmanchisquare(*table.T)
    return float(found.statistic), float(found.pvalue)


def _pairs(table: npt.NDArray[np.float64], names: tuple[str, ...]) -> dict[tuple[str, str], float]:
    """Return Wilcoxon's p of each pair, adjusted by Holm; columns in the order of the names."""
    from scipy.stats import wilcoxon

    found: dict[tuple[str, str], float] = {}
    for i, a in enumerate(names):
        for j in range(i + 1, len(names)):
            gap = table[:, i] - table[:, j]
            # Equal values say nothing; all equal is no difference at all.
            found[a, names[j]] = float(wilcoxon(gap).pvalue) if gap.any() else 1.0
    adjusted = holm(found.values())
    return dict(zip(found, adjusted.tolist(), strict=True))


def _nemenyi(k: int, n: int, alpha: float) -> float:
    return _studentized_range(k, alpha) / math.sqrt(2) * math.sqrt(k * (k + 1) / (6 * n))


def _studentized_range(k: int, alpha: float) -> float:
    """Return what the range of k standard normal draws exceeds with probability ``alpha``.

    P(range ≤ q) = k ∫ φ(z) (Φ(z) − Φ(z − q))ᵏ⁻¹ dz: one integral, on a fine grid.  scipy's
    ``studentized_range`` is for any degrees of freedom and takes minutes for many learners.

    Examples
    --------
    >>> round(_studentized_range(10, 0.05), 3)  # 4.474 in printed tables
    4.474
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    z = np.linspace(-9, 9, 4001)
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    def excess(q: float) -> float:
        inside = density * (ndtr(z) - ndtr(z - q)) ** (k - 1)
        return float(k * inside.sum() * (z[1] - z[0])) - (1 - alpha)

    return float(brentq(excess, 0.0, 20.0))
