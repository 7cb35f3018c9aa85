"""What is said of a claim: in how many cases it holds, and in how many it must."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tagstream.paper.results import Wins

__all__ = ["Verdict", "all_of", "promises", "wins_most"]


@dataclass(frozen=True)
class Verdict:
    """A claim, a count and its threshold; as text: whether the claim reproduces.

    Examples
    --------
    >>> print(Verdict("As published", 31, threshold=31))
    **As published: it reproduces**
    >>> print(Verdict("", 30, threshold=31))
    **It does not reproduce.**
    >>> Verdict("The bound", 15, threshold=16).said("holds", "does not hold")
    '**The bound does not hold**'
    """

    claim: str
    count: int
    threshold: int

    @property
    def holds(self) -> bool:
        """Whether the claim holds often enough."""
        return self.count >= self.threshold

    def said(self, yes: str, no: str) -> str:
        """Return the claim, and which of two things is so."""
        return f"**{self.claim} {yes if self.holds else no}**"

    def __str__(self) -> str:
        words = "it reproduces" if self.holds else "it does not reproduce"
        return f"**{self.claim}: {words}**" if self.claim else f"**{words.capitalize()}.**"


def wins_most(claim: str, wins: Wins) -> Verdict:
    """Return the verdict that a method wins on most of the data sets."""
    return Verdict(claim, wins.datasets, wins.n_datasets // 2 + 1)


def all_of(claim: str, *verdicts: Verdict) -> Verdict:
    """Return the verdict that all of several hold."""
    return Verdict(claim, sum(verdict.holds for verdict in verdicts), len(verdicts))


def promises(n: int, missed: Sequence[str]) -> str:
    """Say how many of ``n`` promises are kept, and which are not.

    Examples
    --------
    >>> promises(3, ["false alarms 2 %"])
    '**Kept: 2 of 3 promises.** Not: false alarms 2 %.'
    """
    kept = f"**Kept: {n - len(missed)} of {n} promises.**"
    return f"{kept} Not: {'; '.join(missed)}." if missed else kept
