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

**While little is known.**  A young head is unsure of everything, so every p is low and "balanced"
would say nothing.  A guess that is wrong costs little then, and one that is right or corrected
teaches.  So after n items "balanced" is the rule with

    β = ½ + ½/(1 + (n/200)²),

that of the highest F1 at first, and half way between from some 500 items on.  And the empty set
raises the bar only as often as items without labels were seen: with n_empty of n items of which all
was known and which had nothing, min(Π(1 − p_i), (n_empty + ½)/(n + 1)) stands for Π(1 − p_i).

These rules look at one item and treat its labels alike.  For the mean F1 of labels (macro-F1) it is
the other way round: label j is suggested wherever p_j ≥ F_j/2, F_j the best expected F1 of *its*
suggestions over many items, which the head keeps (:mod:`tagstream.evidence.head`).  That is
"macro": rare and vague labels are suggested from a low p on, common and clear ones from a high one.
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.checks import check_number
from tagstream.core.compilation import compiled
from tagstream.core.products import PRIOR

__all__ = [
    "BALANCED",
    "MACRO",
    "RULES",
    "Seen",
    "TagScores",
    "check_rule",
    "decide",
    "highest_first",
    "promise_of",
]

RULES = {"balanced": 0.5, "f1": 1.0, "hamming": 0.0}  # β
MACRO = "macro"  # by label
BALANCED = "balanced"
YOUNG = 200.0  # items after which half of the boldness of a young head is gone
TOP = re.compile(r"top([1-9][0-9]{0,8})")
SHOWN = 6  # decimals of a score
ZERO = 5e-7  # up to here a score that is rounded to them is zero
PROMISED = re.compile(r"(precision|recall)([5-9][0-9])")


def promise_of(rule: object) -> tuple[str, float] | None:
    """Return what a rule promises, and how much of it; None if it promises nothing.

    Examples
    --------
    >>> promise_of("precision95"), promise_of("f1")
    (('precision', 0.95), None)
    """
    match = PROMISED.fullmatch(rule) if isinstance(rule, str) else None
    return None if match is None else (match[1], int(match[2]) / 100)


class Seen(NamedTuple):
    """How many items were learnt, and how many of these had no label though all was known."""

    n: int
    n_empty: int


def highest_first(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the places of the scores that are shown, the highest first, equals in their order."""
    shown = np.flatnonzero(scores > ZERO)
    return shown[np.argsort(-scores[shown], kind="stable")]


class TagScores(Mapping[Any, float]):
    """The scores of one item: tag to score, highest first, for all tags that have one above zero.

    Scores are rounded to six decimals.  They are sorted only when somebody goes through them: of
    many tags that takes longer than to make them.

    Parameters
    ----------
    names : object array of shape (q,)
    scores : array of shape (q,)

    Examples
    --------
    >>> scores = TagScores(np.array(["sea", "bread", "soup"], object), np.array([0.25, 0.0, 0.5]))
    >>> scores, len(scores), scores["sea"], "bread" in scores
    ({'soup': 0.5, 'sea': 0.25}, 2, 0.25, False)
    """

    def __init__(self, names: npt.NDArray[Any], scores: npt.NDArray[np.float64]) -> None:
        self._names, self._scores = names, scores

    @cached_property
    def _order(self) -> list[int]:
        order: list[int] = highest_first(self._scores).tolist()
        return order

    @cached_property
    def _columns(self) -> dict[Any, int]:
        shown = np.flatnonzero(self._scores > ZERO)
        return dict(zip(self._names[shown].tolist(), shown.tolist(), strict=True))

    def _at(self, column: int) -> float:
        return round(float(self._scores[column]), SHOWN)

    def __getitem__(self, tag: Any) -> float:
        return self._at(self._columns[tag])

    def __iter__(self) -> Iterator[Any]:
        return (self._names[column] for column in self._order)

    def __len__(self) -> int:
        return int(np.count_nonzero(self._scores > ZERO))

    def items(self) -> ItemsView[Any, float]:
        """Return tags with their scores."""
        return _Pairs(self)

    def pairs(self) -> Iterator[tuple[Any, float]]:
        """Go through tags with their scores."""
        return ((self._names[column], self._at(column)) for column in self._order)

    def __repr__(self) -> str:
        return repr(dict(self.pairs()))


class _Pairs(ItemsView[Any, float]):
    """The pairs of scores, without looking each tag up."""

    _mapping: TagScores

    def __iter__(self) -> Iterator[tuple[Any, float]]:
        return self._mapping.pairs()


def check_rule(name: str, rule: object, *, none: bool = False) -> None:
    """Raise unless ``rule`` is something that :func:`decide` understands."""
    if none and rule is None:
        return
    if isinstance(rule, str):
        known = rule in (*RULES, MACRO) or TOP.fullmatch(rule) or PROMISED.fullmatch(rule)
        if not known:
            named = ", ".join(map(repr, (*RULES, MACRO)))
            raise ValueError(
                f"{name} must be one of {named}, 'top' and a number, such as 'top3', 'precision' "
                f"or 'recall' and 50 to 99, such as 'precision95', "
                f"or a threshold between 0 and 1, got {rule!r}"
            )
        return
    check_number(name, rule, least=0, most=1)


def decide(
    scores: npt.NDArray[np.float64],
    rule: str | float,
    bars: npt.NDArray[np.float64] | None = None,
    seen: Seen | None = None,
) -> npt.NDArray[np.bool_]:
    """Return which labels to suggest, an array of shape (n, q).

    Parameters
    ----------
    scores : array of shape (n, q)
        Scores in [0, 1]; for the named rules, probabilities.
    rule : {"balanced", "f1", "hamming", "macro"}, "top1", …, "precision95", "recall90", …, or float
        One of the named rules; that number of highest scores, equals in the order of the columns,
        but never a score of 0; what keeps a promised precision or recall of each label; or a
        threshold, where a score that equals it counts.
    bars : array of shape (q,), optional
        For "macro", "precision95", "recall90" and the like: the score from which each label is
        suggested.
    seen : Seen, optional
        For "balanced": what was learnt before.  Without it, the rule is that of very much.

    Examples
    --------
    >>> scores = np.array([[0.9, 0.4, 0.3, 0.0]])
    >>> decide(scores, "hamming").tolist(), decide(scores, "f1").tolist()
    ([[True, False, False, False]], [[True, True, False, False]])
    >>> decide(scores, "top3").tolist(), decide(scores, 0.3).tolist()
    ([[True, True, True, False]], [[True, True, True, False]])

    A head that has seen little speaks sooner:

    >>> unsure = np.array([[0.3, 0.1, 0.1]])
    >>> decide(unsure, "balanced", seen=Seen(20, 0)).tolist(), decide(unsure, "balanced").tolist()
    ([[True, False, False]], [[False, False, False]])
    """
    scores = np.asarray(scores, np.float64, order="C")
    if not isinstance(rule, str):
        return scores >= rule - PRIOR
    if rule in RULES:
        chosen, rising = np.empty(scores.shape, np.bool_), scores.copy()
        rising.sort(axis=1)
        beta, empty = RULES[rule], 1.0
        if rule == BALANCED and seen is not None:
            beta = 0.5 + 0.5 / (1.0 + (seen.n / YOUNG) ** 2)
            empty = (seen.n_empty + 0.5) / (seen.n + 1.0)
        _suggest(scores, rising, beta, empty, chosen)
        return chosen
    if rule == MACRO or PROMISED.fullmatch(rule):
        if bars is None:
            raise ValueError(f"decide must not be {rule!r} for a learner without a head")
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
    empty: float,
    chosen: npt.NDArray[np.bool_],
) -> None:
    """Write which labels of each item reach (1 − β)/2 + βF/2; a row knows nothing of others.

    F is the F1 that can be expected at best, made of the same scores, sorted.  That nothing is
    right is no more likely than ``empty``.
    """
    n, q = scores.shape
    for i in range(n):
        total, nothing = 0.0, 1.0
        for j in range(q - 1, -1, -1):
            total += rising[i, j]
            nothing *= 1.0 - rising[i, j]
        best, hits = min(nothing, empty), 0.0
        for j in range(q - 1, -1, -1):
            hits += rising[i, j]
            best = max(best, 2.0 * hits / (q - j + total))
        cut = best * (0.5 * beta) + 0.5 * (1.0 - beta) - PRIOR
        for j in range(q):
            chosen[i, j] = scores[i, j] >= cut
