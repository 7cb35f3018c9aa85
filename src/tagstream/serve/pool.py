"""What is worth tagging next: items without tags, those first that the tagger is least sure of."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

__all__ = ["Pool", "certainty"]

# A call scores at most so many items anew; the others keep the score that they had.
SCORED_PER_CALL = 200
# Near copies of the last items that were offered wait: tagging them teaches little.
REMEMBERED = 30
NEAR_COPY = 0.7

_WORDS = re.compile(r"\w+")


class _Suggestion(Protocol):
    @property
    def scores(self) -> Mapping[str, float]: ...


class _View(Protocol):
    def suggest(self, records: Any, /) -> Any: ...


def certainty(scores: Iterable[float]) -> float:
    """Return the expected F1 of the best tag set, if scores are probabilities.

    With p₁ ≥ p₂ ≥ …, the best set is empty or the first m, and its expected F1 is close to
    max(∏(1 − pⱼ), max_m 2·Σ_{j≤m} pⱼ / (m + Σ pⱼ)).

    Examples
    --------
    >>> certainty([1.0, 0.0]), certainty([0.5]), certainty([])
    (1.0, 0.6666666666666666, 1.0)
    """
    ordered = sorted(scores, reverse=True)
    total, nothing, best, first = sum(ordered), 1.0, 0.0, 0.0
    for m, p in enumerate(ordered, 1):
        nothing *= 1 - min(p, 1.0)
        first += p
        best = max(best, 2 * first / (m + total))
    return max(nothing, best)


def _features(body: Mapping[str, Any]) -> frozenset[Any]:
    """Return what two items are compared by: words, named values, or numbers in their columns."""
    if "text" in body:
        return frozenset(_WORDS.findall(body["text"].lower()))
    x = body["x"]
    return frozenset(x.items() if isinstance(x, Mapping) else enumerate(x))


def _is_near(a: frozenset[Any], b: frozenset[Any]) -> bool:
    return len(a & b) >= NEAR_COPY * len(a | b)


class Pool:
    """Items that wait for tags.  Any thread may ask; the writer adds and takes.

    The score of an item ages while the tagger learns.  Each call of :meth:`next` scores the items
    anew that wait longest for it, among them all new ones, and the least certain ones; so a call
    costs the same whatever the size of the pool.
    """

    def __init__(self) -> None:
        self._items: dict[str, dict[str, Any]] = {}
        self._scores: dict[str, tuple[int, float]] = {}  # turn of the score, certainty
        self._turn = 0
        self._offered: deque[tuple[str, frozenset[Any]]] = deque(maxlen=REMEMBERED)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, items: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Add items; those that are there already stay as they are."""
        with self._lock:
            for name, body in items:
                self._items.setdefault(name, body)

    def take(self, ids: Iterable[str]) -> None:
        """Remove items that are there."""
        with self._lock:
            for name in ids:
                self._items.pop(name, None)
                self._scores.pop(name, None)

    def next(self, view: _View, n: int) -> list[dict[str, Any]]:
        """Return at most ``n`` items with their certainty and suggestions, least certain first."""
        with self._lock:
            self._turn += 1
            turn = self._turn
            chosen = self._to_score()
        suggestions = dict(zip(chosen, view.suggest([*chosen.values()]) if chosen else [],
                               strict=True))  # fmt: skip
        sure = {name: certainty(told.scores.values()) for name, told in suggestions.items()}
        with self._lock:
            for name in sure:
                if name in self._items:
                    self._scores[name] = (turn, sure[name])
            order = sorted(sure, key=lambda name: (sure[name], name))
            picked = self._without_copies([name for name in order if name in self._items], n)
            return [
                {
                    "id": name,
                    **self._items[name],
                    "certainty": sure[name],
                    "suggestion": suggestions[name],
                }
                for name in picked
            ]

    def _to_score(self) -> dict[str, dict[str, Any]]:
        if len(self._items) <= SCORED_PER_CALL:
            return dict(self._items)
        least = sorted(self._scores, key=lambda name: (self._scores[name][1], name))
        oldest = sorted(self._items, key=lambda name: self._scores.get(name, (0, 0.0))[0])
        half = SCORED_PER_CALL // 2
        names = dict.fromkeys([*least[:half], *oldest])
        return {name: self._items[name] for name in [*names][:SCORED_PER_CALL]}

    def _without_copies(self, order: list[str], n: int) -> list[str]:
        """Return the first ``n`` that resemble neither each other nor what was offered before."""
        picked: list[str] = []
        waiting: list[str] = []
        seen = [*self._offered]
        for name in order:
            if len(picked) == n:
                break
            features = _features(self._items[name])
            if any(other != name and _is_near(features, known) for other, known in seen):
                waiting.append(name)
                continue
            picked.append(name)
            seen.append((name, features))
        picked += waiting[: n - len(picked)]  # better a near copy than nothing
        for name in picked:
            entry = (name, _features(self._items[name]))
            if entry not in self._offered:
                self._offered.append(entry)
        return picked
