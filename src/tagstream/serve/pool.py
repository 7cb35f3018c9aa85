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


def _suggestions(view: _View, items: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what is suggested for items, by their names; without those that are not taken."""
    if not items:
        return {}
    try:
        return dict(zip(items, view.suggest([*items.values()]), strict=True))
    except ValueError:
        if len(items) == 1:
            return {}
    single = (_suggestions(view, {name: body}) for name, body in items.items())
    return {name: told for found in single for name, told in found.items()}


class Pool:
    """Items that wait for tags.  Any thread may ask; the writer adds and takes.

    The score of an item ages while the tagger learns.  Each call of :meth:`next` scores the items
    anew that wait longest for it, among them all new ones, and the least certain ones; so a call
    costs the same whatever the size of the pool.
    """

    def __init__(self) -> None:
        self._items: dict[str, dict[str, Any]] = {}
        self._scores: dict[str, tuple[int, float]] = {}  # turn of the score, certainty
        self._unfit: set[str] = set()  # items that the tagger does not take
        self._turn = 0
        self._offered: deque[tuple[str, frozenset[Any]]] = deque(maxlen=REMEMBERED)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, items: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Add items, or replace those that are there."""
        with self._lock:
            for name, body in items:
                if self._items.get(name) != body:
                    self._drop(name)
                    self._items[name] = body

    def take(self, ids: Iterable[str]) -> None:
        """Remove items that are there."""
        with self._lock:
            for name in ids:
                self._drop(name)

    def _drop(self, name: str) -> None:
        self._items.pop(name, None)
        self._scores.pop(name, None)
        self._unfit.discard(name)

    def next(self, view: _View, n: int) -> list[dict[str, Any]]:
        """Return at most ``n`` items with their certainty and suggestions, least certain first.

        Items that do not fit what the tagger has learnt meanwhile are passed over.
        """
        with self._lock:
            self._turn += 1
            turn = self._turn
            chosen = self._to_score()
        suggestions = _suggestions(view, chosen)
        sure = {name: certainty(told.scores.values()) for name, told in suggestions.items()}
        with self._lock:
            there = {name for name in chosen if self._items.get(name) is chosen[name]}
            self._unfit |= there - sure.keys()
            order = sorted(there & sure.keys(), key=lambda name: (sure[name], name))
            self._scores |= {name: (turn, sure[name]) for name in order}
            picked = self._without_copies(order, n)
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
        fit = [name for name in self._items if name not in self._unfit]
        scored = [name for name in fit if name in self._scores]
        least = sorted(scored, key=lambda name: (self._scores[name][1], name))
        oldest = sorted(fit, key=lambda name: self._scores.get(name, (0, 0.0))[0])
        names = dict.fromkeys([*least[: SCORED_PER_CALL // 2], *oldest])
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
