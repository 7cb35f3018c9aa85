"""What people have said about tags besides giving them: refusals, exclusive tags, promises.

* A **refusal** says that an item does not have a tag.  It is kept with the item, and the tag is not
  offered for it again until the item's content changes.
* Of a group of **exclusive** tags an item has at most one, and only the one with the highest score
  may be suggested.
* A tag's **mode** says what may be done with it: ``suggest`` it, apply it by itself (``auto``, with
  a promised precision), or ``never`` suggest it.

A tagger holds one policy.  All of it follows the tags through renames, merges and removals.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.checks import DataError, check_choice, check_number
from tagstream.knows import MODES

__all__ = ["MODES", "PROMISE", "Mode", "Policy"]

PROMISE = 0.95  # by default
LEAST_PROMISE, MOST_PROMISE = 0.5, 0.999

Bools = npt.NDArray[np.bool_]


class Mode(NamedTuple):
    """What may be done with a tag, and the precision that is promised where it is applied."""

    mode: str = "suggest"
    promise: float = PROMISE


class Policy:
    """Refusals, exclusive tags and modes.

    Attributes
    ----------
    refused : dict
        Id of a stored item to the tags that were refused for it, in the order of refusal.
    exclusive : list of tuple
        Groups of tags of which an item has at most one; a tag is in one group at most.
    modes : dict
        Tag to its mode, for those that are not simply suggested.

    Examples
    --------
    >>> policy = Policy()
    >>> policy.add_exclusive(["bug", "feature"])
    >>> policy.check(["bug", "feature"])
    Traceback (most recent call last):
    ...
    tagstream.checks.DataError: an item must have at most one of bug and feature, got both
    """

    def __init__(self) -> None:
        self.refused: dict[Hashable, tuple[Any, ...]] = {}
        self.exclusive: list[tuple[Any, ...]] = []
        self.modes: dict[Any, Mode] = {}

    def __bool__(self) -> bool:
        return bool(self.refused or self.exclusive or self.modes)

    def copy(self) -> Policy:
        """Return a policy that does not change with this one."""
        twin = Policy()
        twin.refused, twin.exclusive = dict(self.refused), list(self.exclusive)
        twin.modes = dict(self.modes)
        return twin

    # ------------------------------------------------------------------ what is said
    def refuse(self, id: Hashable, tags: Iterable[Any]) -> bool:
        """Note that an item does not have some tags; return whether that is new."""
        old = self.refused.get(id, ())
        new = tuple(dict.fromkeys([*old, *tags]))
        if new:
            self.refused[id] = new
        return new != old

    def given(self, id: Hashable, tags: Iterable[Any]) -> None:
        """Note that an item has some tags: they are no longer refused."""
        old = self.refused.get(id)
        if old is not None:
            self._put(id, tuple(tag for tag in old if tag not in {*tags}))

    def forget(self, id: Hashable) -> None:
        """Drop what was refused for an item that is gone, or whose content has changed."""
        self.refused.pop(id, None)

    def _put(self, id: Hashable, tags: tuple[Any, ...]) -> None:
        if tags:
            self.refused[id] = tags
        else:
            self.refused.pop(id, None)

    def add_exclusive(self, tags: Sequence[Any]) -> None:
        """Make tags exclusive; groups that share a tag with them become one with them.

        Fewer than two tags raise an error.
        """
        new = dict.fromkeys(tags)
        if len(new) < 2:
            raise ValueError(f"tags must hold at least two different tags, got {[*tags]}")
        for group in self.exclusive:
            if {*group} & {*new}:
                new |= dict.fromkeys(group)
        self.exclusive = [g for g in self.exclusive if not {*g} & {*new}] + [tuple(new)]

    def remove_exclusive(self, tags: Iterable[Any]) -> None:
        """Take tags out of their groups."""
        gone = {*tags}
        groups = (tuple(tag for tag in group if tag not in gone) for group in self.exclusive)
        self.exclusive = [group for group in groups if len(group) > 1]

    def set_mode(self, tag: Any, mode: str, promise: float) -> None:
        """Say what may be done with a tag."""
        check_choice("mode", mode, MODES)
        check_number("promise", promise, least=LEAST_PROMISE, most=MOST_PROMISE)
        self.modes.pop(tag, None)
        if mode != "suggest":
            self.modes[tag] = Mode(mode, float(promise))

    @property
    def promises(self) -> dict[Any, float]:
        """Tag to promised precision, for those that are applied without asking."""
        return {tag: mode.promise for tag, mode in self.modes.items() if mode.mode == "auto"}

    # ------------------------------------------------------------------ tags change
    def rename(self, old: Any, new: Any) -> None:
        """Follow a tag to its new name."""
        self.merge([old], new)

    def merge(self, tags: Iterable[Any], into: Any) -> None:
        """Follow tags that become one.

        Of their modes the most careful one stays: never, suggest, then auto with the highest
        promise.
        """
        old = {*tags}

        def moved(group: Iterable[Any]) -> tuple[Any, ...]:
            return tuple(dict.fromkeys(into if tag in old else tag for tag in group))

        self.refused = {id: moved(group) for id, group in self.refused.items()}
        groups, self.exclusive = self.exclusive, []
        for group in map(moved, groups):
            if len(group) > 1:
                self.add_exclusive(group)
        all_modes = [
            self.modes.pop(tag, Mode())
            for tag in sorted({*old, into}, key=str)
            if tag != into or tag in old or into in self.modes
        ]
        rank = {"never": 0, "suggest": 1, "auto": 2}
        mode = min(all_modes, key=lambda m: (rank[m.mode], -m.promise))
        self.set_mode(into, mode.mode, mode.promise)

    def remove(self, tag: Any) -> None:
        """Forget a tag that is gone."""
        for id, tags in [*self.refused.items()]:
            self._put(id, tuple(other for other in tags if other != tag))
        self.remove_exclusive([tag])
        self.modes.pop(tag, None)

    # ------------------------------------------------------------------ what follows
    def rivals(self, tag: Any) -> list[Any]:
        """Return the tags that an item with this one must not have."""
        return [
            other for group in self.exclusive if tag in group for other in group if other != tag
        ]

    def check(self, tags: Iterable[Any], who: str = "an item") -> None:
        """Refuse a record that has two tags of an exclusive group.

        Raises
        ------
        DataError
            It names both.
        """
        if not self.exclusive:
            return
        given = {*tags}
        for group in self.exclusive:
            both = [tag for tag in group if tag in given]
            if len(both) > 1:
                raise DataError(f"{who} must have at most one of {both[0]} and {both[1]}, got both")

    def limit(self, names: Sequence[Any], scores: Any, chosen: Bools) -> Bools:
        """Return which of the chosen tags (n, q) may be suggested, by groups and modes."""
        columns = {name: j for j, name in enumerate(names)}
        chosen = chosen.copy()
        for group in self.exclusive:
            some = np.array([columns[tag] for tag in group if tag in columns], np.intp)
            if len(some) > 1:
                best = some[scores[:, some].argmax(axis=1)]
                chosen[:, some] &= some == best[:, None]
        never = [
            columns[tag] for tag, m in self.modes.items() if m.mode == "never" and tag in columns
        ]
        chosen[:, never] = False
        return chosen

    # ------------------------------------------------------------------ state
    def to_state(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "ids": [*self.refused],
            "refused": [[*tags] for tags in self.refused.values()],
            "exclusive": [[*group] for group in self.exclusive],
            "tags": [*self.modes],
            "modes": [[mode.mode, mode.promise] for mode in self.modes.values()],
        }

    @classmethod
    def from_state(cls, state: Any) -> Policy:
        """Return what :meth:`to_state` described."""
        policy = cls()
        if not isinstance(state, dict) or {*state} != {*policy.to_state()}:
            raise ValueError("the policy must have ids, refused, exclusive, tags and modes")
        for id, tags in zip(state["ids"], state["refused"], strict=True):
            policy.refuse(id, _tags(tags))
        for group in state["exclusive"]:
            policy.add_exclusive(_tags(group))
        for tag, mode in zip(_tags(state["tags"]), state["modes"], strict=True):
            policy.set_mode(tag, *mode)
        return policy


def _tags(tags: Any) -> list[Any]:
    if not isinstance(tags, list):
        raise ValueError(f"tags must be a list, got {type(tags).__name__}")
    return tags
