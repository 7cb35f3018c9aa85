"""From scores to labels: the one place where it is decided what is predicted.

A rule is one of

====================  ==========================================================================
a number t            every label whose score reaches t, 0 ≤ t ≤ 1
``"top3"``            the three labels with the highest scores, of equals the first; any number
``"hamming"``         scores are probabilities p: least expected Hamming loss (p ≥ ½)
``"f1"``              highest expected F1 of the row
``"balanced"``        half-way between these two
====================  ==========================================================================

Of the last three each predicts j if p_j ≥ (1 − β)/2 + βF/2 with β = 0, 1 and ½, where

    F = max(Π_j (1 − p_j), max_m 2·Σ_{m largest} p / (m + Σ_j p))

is the best expected F1 of the row: that of predicting nothing, which is right if nothing is
relevant, or of the m most likely labels. A label with score 0 or less is never predicted by these
nor by ``"topK"``.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tagstream.checks import check_number

__all__ = ["check_rule", "decide"]

Bools: TypeAlias = npt.NDArray[np.bool_]
Rule: TypeAlias = str | float

_BETA = {"hamming": 0.0, "balanced": 0.5, "f1": 1.0}
_SLACK = 1e-6  # a score that equals a threshold counts, however it was rounded


def check_rule(name: str, rule: object, *, none: bool = False) -> None:
    """Raise unless ``rule`` is one of the rules that parameter ``name`` may be."""
    if isinstance(rule, str):
        if rule in _BETA or _top(rule):
            return
        raise ValueError(
            f"{name} must be 'balanced', 'f1', 'hamming', 'top' with a number such as 'top3', "
            f"or a number between 0 and 1, got {rule!r}"
        )
    check_number(name, rule, least=0, most=1, none=none)


def decide(scores: Any, rule: Rule) -> Bools:
    """Return which labels to predict; cost O(n q log q) at most.

    Parameters
    ----------
    scores : array-like of shape (n, q)
        The larger, the more likely; −inf for a label without a score.
    rule : str or float
        See the module.

    Returns
    -------
    ndarray of bool of shape (n, q)

    Examples
    --------
    >>> p = np.array([[0.7, 0.4, 0.1]])
    >>> [decide(p, rule).astype(int).tolist() for rule in (0.4, "top1", "hamming", "f1")]
    [[[1, 1, 0]], [[1, 0, 0]], [[1, 0, 0]], [[1, 1, 0]]]
    """
    check_rule("rule", rule)
    s = np.asarray(scores, dtype=np.float64)
    if s.ndim != 2:
        raise ValueError(f"scores must have shape (n, q), got {s.shape}")
    if not isinstance(rule, str):
        reached: Bools = s >= rule - _SLACK
        return reached
    chosen: Bools = s > 0
    n_top = _top(rule)
    if n_top:
        place = np.argsort(np.argsort(-s, axis=1, kind="stable"), axis=1)
        return chosen & (place < n_top)
    p = np.clip(s, 0.0, 1.0)
    beta = _BETA[rule]
    least = (1 - beta) / 2 + beta / 2 * _best_f1(p)
    return chosen & (p >= least[:, None] - _SLACK)


def _top(rule: str) -> int:
    """The number of a rule "topK"; 0 if it is none."""
    found = re.fullmatch(r"top([1-9]\d{0,8})", rule)
    return int(found[1]) if found else 0


def _best_f1(p: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    n, q = p.shape
    if q == 0:
        return np.ones(n)
    most = np.cumsum(-np.sort(-p, axis=1), axis=1)
    some = 2 * most / (np.arange(1, q + 1) + most[:, -1:])
    nothing = np.cumprod(1 - p, axis=1)[:, -1]
    best: npt.NDArray[np.float64] = np.maximum(nothing, some.max(axis=1))
    return best
