"""Agreement: several people answer the same items, and the majority is learnt.

Each person's own answer is kept.  A tag is learnt if more than half of the answers have it.  If
exactly half have it, it is a conflict: what is learnt of it stays until somebody else answers.

Krippendorff's alpha says how far the answers agree beyond chance: 1 − Dₒ/Dₑ.  For one tag, an item
with m ≥ 2 answers, k of them yes, has k(m − k) pairs that differ, each of which counts 2/(m − 1).
With n answers in all, n₁ of them yes:

    Dₒ = (1/n) Σ 2k(m − k)/(m − 1),      Dₑ = 2 n₁ (n − n₁) / (n (n − 1))

(K. Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011; nominal, any missing answers.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tagstream.serve.log import Event

__all__ = ["Answer", "Answers", "alpha", "alphas", "majority", "ties"]


@dataclass(frozen=True)
class Answer:
    """What one person said of one item, at which position and time of the log."""

    y: tuple[str, ...]
    no: tuple[str, ...]
    position: int
    time: float


Names = Callable[[Iterable[str], int], list[str]]


class Answers:
    """The present answers of all people.  The writer adds; any thread asks.

    Parameters
    ----------
    names : callable
        Returns the present names of tags that were given at a position.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._of_item: dict[str, dict[str, Answer]] = {}
        self._of_person: dict[str, set[str]] = {}
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        """Take in an event: an answer, one that is withdrawn, or the end of an item."""
        if event.kind == "forget":
            with self._lock:
                for who in self._of_item.pop(str(event.item), {}):
                    self._of_person[who].discard(str(event.item))
        elif event.kind == "answer":
            name, y = event.body["id"], event.body["y"]
            with self._lock:
                given = self._of_item.setdefault(name, {})
                mine = self._of_person.setdefault(event.who, set())
                if y is None:
                    given.pop(event.who, None)
                    mine.discard(name)
                else:
                    no = tuple(event.body.get("no", ()))
                    given[event.who] = Answer(tuple(y), no, event.position, event.time)
                    mine.add(name)
                if not given:
                    del self._of_item[name]

    def of(self, who: str) -> set[str]:
        """Return the items that a person has answered."""
        with self._lock:
            return {*self._of_person.get(who, ())}

    def of_item(self, name: str) -> dict[str, Answer]:
        """Return the answers about an item, tags by their present names."""
        with self._lock:
            given = dict(self._of_item.get(name, {}))
        return {who: self._as_now(answer) for who, answer in given.items()}

    def _as_now(self, answer: Answer) -> Answer:
        y = tuple(self._names(answer.y, answer.position))
        no = tuple(self._names(answer.no, answer.position))
        return Answer(y, no, answer.position, answer.time)

    def all(self) -> dict[str, dict[str, Answer]]:
        """Return the answers about all items, the item that was answered first comes first."""
        with self._lock:
            names = [*self._of_item]
        return {name: given for name in names if (given := self.of_item(name))}


def majority(
    answers: Sequence[tuple[Iterable[str], Iterable[str]]], learnt: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the tags that more than half of some answers have, and those that they refuse.

    Parameters
    ----------
    answers : sequence of (y, no)
    learnt : sequence of str
        The tags that the item has; of a tag on which the answers are tied, that stands.

    Examples
    --------
    >>> majority([(["a", "b"], []), (["a"], ["b"]), (["a"], ["b"])], ["b"])
    (['a'], ['b'])
    >>> majority([(["a"], []), (["b"], [])], ["a"])
    (['a'], [])
    """
    tied = ties(answers)
    y = [
        tag
        for tag in dict.fromkeys(tag for given, _ in answers for tag in given)
        if _votes(answers, tag) * 2 > len(answers) or (tag in tied and tag in learnt)
    ]
    refused = dict.fromkeys(tag for _, no in answers for tag in no)
    no = [tag for tag in refused if sum(tag in n for _, n in answers) * 2 > len(answers)]
    return y, [tag for tag in no if tag not in y]


def ties(answers: Sequence[tuple[Iterable[str], Iterable[str]]]) -> list[str]:
    """Return the tags that exactly half of some answers have.

    Examples
    --------
    >>> ties([(["a", "b"], []), (["a"], [])])
    ['b']
    """
    every = dict.fromkeys(tag for given, _ in answers for tag in given)
    return [tag for tag in every if _votes(answers, tag) * 2 == len(answers)]


def _votes(answers: Sequence[tuple[Iterable[str], Iterable[str]]], tag: str) -> int:
    return sum(tag in given for given, _ in answers)


def alpha(units: Iterable[tuple[int, int]]) -> float | None:
    """Return Krippendorff's alpha of yes-or-no answers; None if all of them are the same.

    Parameters
    ----------
    units : iterable of (k, m)
        For each item how many of its answers are yes, and how many answers it has.  Items with
        fewer than two do not count.

    Examples
    --------
    Ten items, two people, from Krippendorff's own example of binary data:

    >>> alpha([(int(i) + int(j), 2) for i, j in zip("0100000000", "1110010100")])
    0.095...
    """
    n = ones = 0
    disagreement = 0.0
    for k, m in units:
        if m < 2:
            continue
        n, ones = n + m, ones + k
        disagreement += 2 * k * (m - k) / (m - 1)
    if not 0 < ones < n:
        return None
    return 1 - (disagreement / n) / (2 * ones * (n - ones) / (n * (n - 1)))


def alphas(answers: Mapping[str, Mapping[str, Answer]]) -> dict[str, Any]:
    """Return how far people agree: on all tags together, and on each tag."""
    several = [[*given.values()] for given in answers.values() if len(given) > 1]
    tags = dict.fromkeys(tag for given in several for answer in given for tag in answer.y)
    units = {
        tag: [(sum(tag in answer.y for answer in given), len(given)) for given in several]
        for tag in tags
    }
    told = [
        {
            "tag": tag,
            "n": sum(k > 0 for k, _ in of_tag),
            "alpha": None if (found := alpha(of_tag)) is None else round(found, 6),
        }
        for tag, of_tag in units.items()
    ]
    every = alpha(unit for of_tag in units.values() for unit in of_tag)
    return {
        "n_items": len(several),
        "alpha": None if every is None else round(every, 6),
        "tags": sorted(told, key=lambda one: (one["alpha"] is None, one["alpha"] or 0.0)),
    }
