"""How well it suggests: what was suggested before an item was learnt, against its tags."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Outcome", "Progress", "micro_f1"]

# The picture shows the last KEPT items; each of its points looks back over WINDOW of them.
KEPT = 2000
WINDOW = 200
POINTS = 120
SPARKS = 12


@dataclass(frozen=True)
class Outcome:
    """One item: its position in the log, the tags suggested before it was learnt, its tags, who."""

    position: int
    suggested: frozenset[str]
    tags: frozenset[str]
    who: str = ""


def micro_f1(hits: int, n_suggested: int, n_tags: int) -> float | None:
    """Return 2·hits / (suggested + tags), or None where nothing was suggested nor there.

    Examples
    --------
    >>> micro_f1(hits=1, n_suggested=2, n_tags=2)
    0.5
    """
    return 2 * hits / (n_suggested + n_tags) if n_suggested + n_tags else None


def _f1_of(outcomes: Sequence[Outcome]) -> float | None:
    return micro_f1(
        sum(len(o.suggested & o.tags) for o in outcomes),
        sum(len(o.suggested) for o in outcomes),
        sum(len(o.tags) for o in outcomes),
    )


class Progress:
    """The last outcomes, and the measures made of them.  Any thread may read.

    Examples
    --------
    >>> progress = Progress()
    >>> progress.add([Outcome(1, frozenset(), frozenset("a")),
    ...               Outcome(2, frozenset("a"), frozenset("a"))])
    >>> progress.f1()
    0.6666666666666666
    >>> progress.by_tag()["a"]
    {'n': 2, 'precision': 1.0, 'recall': 0.5, 'f1': 0.6666666666666666}
    """

    def __init__(self) -> None:
        self._last: deque[Outcome] = deque(maxlen=KEPT)
        self._lock = threading.Lock()

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Add outcomes, in the order of the log."""
        with self._lock:
            self._last.extend(outcomes)

    def last(self, n: int = KEPT) -> list[Outcome]:
        """Return the last ``n`` outcomes, oldest first."""
        with self._lock:
            kept = [*self._last]
        return kept[-n:]

    def f1(self) -> float | None:
        """Return the micro-F1 of the last :data:`WINDOW` outcomes."""
        return _f1_of(self.last(WINDOW))

    def by_person(self) -> dict[str, tuple[int, float | None]]:
        """Return for each person the number of outcomes, and the micro-F1 of the last ones."""
        of_person: dict[str, list[Outcome]] = {}
        for o in self.last():
            of_person.setdefault(o.who, []).append(o)
        return {who: (len(found), _f1_of(found[-WINDOW:])) for who, found in of_person.items()}

    def curve(self) -> list[tuple[int, float]]:
        """Return at most :data:`POINTS` points (position, micro-F1 of the window before it)."""
        last = self.last()
        sums = [(0, 0, 0)]
        for o in last:
            hits, suggested, tags = sums[-1]
            sums.append(
                (hits + len(o.suggested & o.tags), suggested + len(o.suggested), tags + len(o.tags))
            )
        n = len(last)
        step = max(1, -(-n // POINTS))
        points = []
        for end in range(n, 0, -step):
            start = sums[max(0, end - WINDOW)]
            value = micro_f1(*(b - a for a, b in zip(start, sums[end], strict=True)))
            if value is not None:
                points.append((last[end - 1].position, value))
        return points[::-1]

    def sparks(self) -> dict[str, list[float | None]]:
        """Return for each tag its F1 in twelve equal parts of the last outcomes, oldest first.

        None stands where a part has no such tag.

        Examples
        --------
        >>> progress = Progress()
        >>> progress.add([Outcome(i, frozenset("a"), frozenset("a")) for i in range(12)])
        >>> progress.sparks()["a"][:2]
        [1.0, 1.0]
        """
        last = self.last()
        sums: dict[str, list[list[int]]] = {}
        for i, o in enumerate(last):
            part = i * SPARKS // len(last)
            for tag in o.suggested | o.tags:
                cell = sums.setdefault(tag, [[0, 0, 0] for _ in range(SPARKS)])[part]
                cell[0] += tag in o.suggested and tag in o.tags
                cell[1] += tag in o.suggested
                cell[2] += tag in o.tags
        return {tag: [micro_f1(*cell) for cell in parts] for tag, parts in sums.items()}

    def by_tag(self) -> dict[str, dict[str, float | None]]:
        """Return for each tag seen lately how often, and precision, recall and F1."""
        hits: Counter[str] = Counter()
        suggested: Counter[str] = Counter()
        there: Counter[str] = Counter()
        for o in self.last():
            hits.update(o.suggested & o.tags)
            suggested.update(o.suggested)
            there.update(o.tags)
        return {
            tag: {
                "n": there[tag],
                "precision": hits[tag] / suggested[tag] if suggested[tag] else None,
                "recall": hits[tag] / there[tag] if there[tag] else None,
                "f1": micro_f1(hits[tag], suggested[tag], there[tag]),
            }
            for tag in suggested | there
        }
