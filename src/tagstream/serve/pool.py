"""Items without tags, and which should be tagged next (:mod:`tagstream.knows.next_items`)."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any, Protocol

from tagstream.knows.next_items import (
    TAG,
    check_order,
    features_of,
    hash_of,
    is_near,
    is_random,
    take_turns,
)

__all__ = ["Pool", "certainty"]

# A call scores at most so many items anew; the others keep the score that they had.
SCORED_PER_CALL = 200
# Near copies of the last items that were offered wait: tagging them teaches little.
REMEMBERED = 30
REMEMBERED_SCORES = 20  # of each item, the highest


class _Suggestion(Protocol):
    @property
    def scores(self) -> Mapping[str, float]: ...


class _View(Protocol):
    @property
    def counts(self) -> dict[str, int]: ...

    @property
    def tags(self) -> list[str]: ...

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


def _unsureness(scores: Mapping[str, float], counts: Mapping[str, int]) -> float:
    """Return Σ H(p)/√(1 + n) over the tags of an item; see :mod:`tagstream.knows.next_items`."""
    total = 0.0
    for tag, p in scores.items():
        if 0.0 < p < 1.0:
            entropy = -p * math.log(p) - (1 - p) * math.log1p(-p)
            total += entropy / math.sqrt(1 + counts.get(tag, 0))
    return total


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
        self._scores: dict[str, tuple[int, float]] = {}  # turn of the score, how unsure
        self._told: dict[str, dict[str, float]] = {}  # the highest scores
        self._unfit: set[str] = set()  # items that the tagger does not take
        self._turn = 0
        self._offered: deque[tuple[str, frozenset[Any]]] = deque(maxlen=REMEMBERED)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    def get(self, name: str) -> dict[str, Any] | None:
        """Return an item that waits, if it does."""
        return self._items.get(name)

    def all(self) -> dict[str, dict[str, Any]]:
        """Return all items that wait."""
        with self._lock:
            return dict(self._items)

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
        self._told.pop(name, None)
        self._unfit.discard(name)

    def next(
        self,
        view: _View,
        n: int,
        without: Collection[str] = frozenset(),
        order: str = "mixed",
    ) -> list[dict[str, Any]]:
        """Return at most ``n`` items to be tagged next, with their certainty and suggestions.

        Items that do not fit what the tagger has learnt meanwhile are passed over, and so are those
        named by ``without``.

        Parameters
        ----------
        view : View
        n : int
        without : collection of str
        order : str
            As in :func:`tagstream.knows.next_items.order_items`.

        Raises
        ------
        ValueError
            There is no such order.
        """
        check_order(order, view.tags if order.startswith(TAG) else None)
        with self._lock:
            self._turn += 1
            turn = self._turn
            chosen = self._to_score(order, n, without)
        suggestions, counts = _suggestions(view, chosen), view.counts
        sure = {name: certainty(told.scores.values()) for name, told in suggestions.items()}
        unsure = {name: _unsureness(told.scores, counts) for name, told in suggestions.items()}
        with self._lock:
            there = {name for name in chosen if self._items.get(name) is chosen[name]}
            self._unfit |= there - sure.keys()
            for name in there & sure.keys():
                self._scores[name] = turn, unsure[name]
                best = islice(suggestions[name].scores.items(), REMEMBERED_SCORES)
                self._told[name] = dict(best)
            known = self._ordered(order, {*(there & sure.keys())})
            picked = self._without_copies(known, n)
            return [
                {
                    "id": name,
                    **self._items[name],
                    "certainty": sure[name],
                    "suggestion": suggestions[name],
                }
                for name in picked
            ]

    def _ordered(self, order: str, names: set[str]) -> list[str]:
        """Return items in an order; those that were scored have a score."""
        if order == "arrival":
            return [name for name in self._items if name in names]
        if order.startswith(TAG):
            tag = order[len(TAG) :]
            known = {name: self._told.get(name, {}).get(tag, 0.0) for name in names}
            return sorted(names, key=lambda name: (-known[name], name))
        if order == "random":
            return sorted(names, key=hash_of)
        unsure = sorted(names, key=lambda name: (-self._scores.get(name, (0, 0.0))[1], name))
        if order != "mixed":
            return unsure[:: 1 if order == "unsure" else -1]
        fair = sorted((name for name in names if is_random(name)), key=hash_of)
        return take_turns([name for name in unsure if not is_random(name)], fair)

    def _to_score(self, order: str, n: int, without: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return the items that are scored anew: those that come first, and the longest unscored.

        New ones have no score yet, so they are among the latter.
        """
        fit = [name for name in self._items if name not in self._unfit and name not in without]
        scored = {name for name in fit if name in self._scores}
        if order in ("arrival", "random"):  # for which no score is needed
            scored = {*fit}
        elif order == "mixed":  # nor for its random half
            scored |= {name for name in fit if is_random(name)}
        first = self._ordered(order, scored)
        oldest = sorted(fit, key=lambda name: self._scores.get(name, (0, 0.0))[0])
        names = dict.fromkeys([*first[: SCORED_PER_CALL // 2], *oldest])
        return {name: self._items[name] for name in [*names][:SCORED_PER_CALL]}

    def _without_copies(self, order: list[str], n: int) -> list[str]:
        """Return the first ``n`` that resemble neither each other nor what was offered before."""
        picked: list[str] = []
        waiting: list[str] = []
        seen = [*self._offered]
        for name in order:
            if len(picked) == n:
                break
            features = features_of(self._items[name])
            if any(other != name and is_near(features, known) for other, known in seen):
                waiting.append(name)
                continue
            picked.append(name)
            seen.append((name, features))
        picked += waiting[: n - len(picked)]  # better a near copy than nothing
        for name in picked:
            entry = (name, features_of(self._items[name]))
            if entry not in self._offered:
                self._offered.append(entry)
        return picked
