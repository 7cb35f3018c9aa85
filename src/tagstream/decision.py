"""From scores to labels: the one place where it is decided what to suggest.

With p_1 ≥ p_2 ≥ … the probabilities of an item's labels, suggesting the first m of them gives an
F1 of about 2·Σ_{i≤m} p_i/(m + Σ p) (expected hits over expected sizes), and suggesting nothing is
right with probability Π(1 − p_i).  F is the best of these.  Label j is suggested if

    p_j ≥ (1 − β)/2 + βF/2.

β = 0 is the rule of least Hamming loss, p_j ≥ ½.  β = 1 is that of the highest F1: one more label
raises 2S/(m + Σp) as long as its p is at least half the quotient.  β = ½, p_j ≥ (1 + F)/4, is half
way between: it suggests more than the first where nothing is sure, and less than the second.

That nothing may be right raises the bar, but no rule stops there: the bar is F/2 and not "nothing
or all".  With a single label, "f1" suggests it from p = ⅓ on.  For F1 over many items (micro, macro
by label), where nothing suggested for nothing true counts for nothing, that is right if an F1 of ⅔
can be had.  For the mean F1 of items, where it counts as 1, p ≥ ½ would be: that is "hamming".

These rules look at one item and treat its labels alike.  For the mean F1 of labels (macro-F1) it is
the other way round: label j is suggested wherever p_j ≥ F_j/2, F_j the best expected F1 of *its*
suggestions over many items, which the head keeps (:mod:`tagstream.head`).  That is "macro": rare
and vague labels are suggested from a low p on, common and clear ones from a high one.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from tagstream.checks import check_number
from tagstream.compilation import compiled
from tagstream.kernels import PRIOR

__all__ = ["MACRO", "RULES", "check_rule", "decide"]

RULES = {"balanced": 0.5, "f1": 1.0, "hamming": 0.0}  # β
MACRO = "macro"  # by label
TOP = re.compile(r"top([1-9][0-9]{0,8})")


def check_rule(name: str, rule: object, *, none: bool = False) -> None:
    """Raise unless ``rule`` is something that :func:`decide` understands."""
    if none and rule is None:
        return
    if isinstance(rule, str):
        if rule not in (*RULES, MACRO) and TOP.fullmatch(rule) is None:
            named = ", ".join(map(repr, (*RULES, MACRO)))
            raise ValueError(
                f"{name} must be one of {named}, 'top' and a number, such as 'top3', "
                f"or a threshold between 0 and 1, got {rule!r}"
            )
        return
    check_number(name, rule, least=0, most=1)


def decide(
    scores: npt.NDArray[np.float64],
    rule: str | float,
    bars: npt.NDArray[np.float64] | None = None,
) -> npt.NDArray[np.bool_]:
    """Return which labels to suggest, an array of shape (n, q).

    Parameters
    ----------
    scores : array of shape (n, q)
        Scores in [0, 1]; for the named rules, probabilities.
    rule : {"balanced", "f1", "hamming", "macro"}, "top1", "top2", …, or float
        One of the named rules; that number of highest scores, equals in the order of the columns,
        but never a score of 0; or a threshold, where a score that equals it counts.
    bars : array of shape (q,), optional
        For "macro": the score from which each label is suggested.

    Examples
    --------
    >>> scores = np.array([[0.9, 0.4, 0.3, 0.0]])
    >>> decide(scores, "hamming").tolist(), decide(scores, "f1").tolist()
    ([[True, False, False, False]], [[True, True, False, False]])
    >>> decide(scores, "top3").tolist(), decide(scores, 0.3).tolist()
    ([[True, True, True, False]], [[True, True, True, False]])
    """
    scores = np.asarray(scores, np.float64, order="C")
    if not isinstance(rule, str):
        return scores >= rule - PRIOR
    if rule in RULES:
        chosen, rising = np.empty(scores.shape, np.bool_), scores.copy()
        rising.sort(axis=1)
        _suggest(scores, rising, RULES[rule], chosen)
        return chosen
    if rule == MACRO:
        if bars is None:
            raise ValueError("decide must not be 'macro' for a learner without a head")
        return scores >= bars[: scores.shape[1]] - PRIOR
    match = TOP.fullmatch(rule)
    assert match is not None
    chosen = np.zeros(scores.shape, np.bool_)
    best = np.argsort(-scores, axis=1, kind="stable")[:, : int(match[1])]
    np.put_along_axis(chosen, best, True, axis=1)
    return chosen & (scores > 0)


@compiled
def _suggest(
    scores: npt.NDArray[np.float64],
    rising: npt.NDArray[np.float64],
    beta: float,
    chosen: npt.NDArray[np.bool_],
) -> None:
    """Write which labels of each item reach (1 − β)/2 + βF/2; a row knows nothing of others.

    F is the F1 that can be expected at best, made of the same scores, sorted.
    """
    n, q = scores.shape
    for i in range(n):
        total, nothing = 0.0, 1.0
        for j in range(q - 1, -1, -1):
            total += rising[i, j]
            nothing *= 1.0 - rising[i, j]
        best, hits = nothing, 0.0
        for j in range(q - 1, -1, -1):
            hits += rising[i, j]
            best = max(best, 2.0 * hits / (q - j + total))
        cut = best * (0.5 * beta) + 0.5 * (1.0 - beta) - PRIOR
        for j in range(q):
            chosen[i, j] = scores[i, j] >= cut
