"""Tags by the names that they have now, whenever they were given."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping

__all__ = ["TagNames"]


class TagNames:
    """Follows tags through renames, merges and removals.  One thread adds; any thread asks.

    A name can be used again after its tag was renamed, so a name has *uses*: the n-th use ends
    with the n-th change that takes the name away.  Each use belongs to a group, and a group has
    one present name.  A change moves the smaller of two groups into the larger, so a question
    costs the same however many changes there were.

    Examples
    --------
    >>> names = TagNames()
    >>> names.add(10, {"py": "python", "python3": "python"})
    >>> names.now(["py", "lists"], 7), names.now(["py", "lists"], 11)
    (['python', 'lists'], ['py', 'lists'])
    """

    def __init__(self) -> None:
        self._ends: dict[str, list[int]] = {}  # name to the positions at which its uses ended
        self._group: dict[tuple[str, int], int] = {}  # (name, use) to its group
        self._members: dict[int, list[tuple[str, int]]] = {}
        self._name: dict[int, str | None] = {}  # group to its present name, None if removed
        self._present: dict[str, int] = {}  # present name to its group
        self._next = 0
        self._lock = threading.Lock()

    def add(self, position: int, moves: Mapping[str, str | None]) -> None:
        """Take in a change at a position: old names to new names, or to None."""
        with self._lock:
            groups = []
            for old, new in moves.items():
                if old != new:
                    group = self._present_group(old)
                    del self._present[old]
                    self._ends.setdefault(old, []).append(position)
                    groups.append((group, new))
            for group, new in groups:
                self._move(group, new)

    def _present_group(self, name: str) -> int:
        """Return the group of the present use of a name."""
        if name not in self._present:
            use = (name, len(self._ends.get(name, ())))
            self._next += 1
            self._present[name] = self._group[use] = self._next
            self._members[self._next] = [use]
            self._name[self._next] = name
        return self._present[name]

    def _move(self, group: int, new: str | None) -> None:
        if new is None:
            self._name[group] = None
            return
        other = self._present_group(new)
        small, large = sorted((group, other), key=lambda g: len(self._members[g]))
        for use in self._members[small]:
            self._group[use] = large
        self._members[large] += self._members.pop(small)
        del self._name[small]
        self._name[large], self._present[new] = new, large

    def now(self, tags: Iterable[str], position: int) -> list[str]:
        """Return the present names of tags that were given at a position, each once."""
        with self._lock:
            found = (self._now(tag, position) for tag in tags)
            return [*dict.fromkeys(name for name in found if name is not None)]

    def _now(self, tag: str, position: int) -> str | None:
        ends = self._ends.get(tag)
        if ends is None:
            return tag
        # A change at p renames the tags of events before p: the use is that of the first end > p.
        use = (tag, bisect_left(ends, position + 1))
        group = self._group.get(use)
        return tag if group is None else self._name[group]
