"""Targets: where a connector learns and asks, whatever it is.

All answers are plain values, the same from a service and from a model file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["LONGEST_TEXT", "Lesson", "Refused", "Suggested", "Target", "clean_tag", "clean_text"]

LONGEST_TEXT = 100_000  # characters that a service takes
LONGEST_TAG = 200


class Refused(ValueError):
    """A target did not take something; the message says why."""


@dataclass(frozen=True)
class Lesson:
    """An item and its tags.

    Attributes
    ----------
    id : str
    text : str
    tags : tuple of str, or None
        None: only what ``no`` says is known.
    no : tuple of str
        Tags that a person took away or refused.
    """

    id: str
    text: str
    tags: tuple[str, ...] | None
    no: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A digest of all but the id.

        Examples
        --------
        >>> Lesson("1", "low tide", ("sea",)).digest == Lesson("2", "low tide", ("sea",)).digest
        True
        """
        tags = None if self.tags is None else sorted(self.tags)
        said = json.dumps([self.text, tags, sorted(self.no)])
        return hashlib.sha256(said.encode()).hexdigest()[:32]

    def record(self) -> dict[str, Any]:
        """Return it as a tagger takes it."""
        told: dict[str, Any] = {"id": self.id, "text": self.text}
        if self.tags is not None:
            told["y"] = [*self.tags]
        return {**told, "no": [*self.no]} if self.no else told


@dataclass(frozen=True)
class Suggested:
    """What a target suggests for one item.

    Attributes
    ----------
    tags : list of str
        The highest score first.
    scores : dict
        Tag to score.
    known : bool
        Whether anything in the item was met before.
    auto : list of str
        Those of the tags that may be applied without asking, because their promise is kept.
    """

    tags: list[str]
    scores: dict[str, float]
    known: bool = True
    auto: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, said: dict[str, Any]) -> Suggested:
        """Return what the JSON of a service says."""
        scores = {str(tag): float(score) for tag, score in said["scores"].items()}
        return cls([*said["tags"]], scores, bool(said["known"]), [*said.get("auto", ())])


class Target(Protocol):
    """A service or a model file.

    A call that changes something has taken effect for good when it returns.
    """

    @property
    def name(self) -> str:
        """What it is called in messages."""
        ...

    def mark(self) -> int:
        """Return how much it has learnt: a number that only grows."""
        ...

    def suggest(self, items: Sequence[dict[str, Any]]) -> list[Suggested]:
        """Suggest tags for items, each with ``text`` and perhaps an ``id``."""
        ...

    def explain(self, item: dict[str, Any]) -> dict[str, Any]:
        """Say why: ``tags``, ``scores``, ``neighbours``, ``words``."""
        ...

    def learn(self, lessons: Sequence[Lesson], keys: Sequence[str | None]) -> None:
        """Learn all lessons or none; one whose key is known was learnt before."""
        ...

    def forget(self, ids: Sequence[str]) -> None:
        """Forget items; ids that are not known are passed over."""
        ...

    def refit(self) -> bool:
        """Fit what is stored; return whether that was allowed."""
        ...

    def correct(self, id: str, add: Sequence[str], remove: Sequence[str]) -> list[str]:
        """Add tags to a stored item and take tags away; return its tags then."""
        ...

    def tags(self) -> list[dict[str, Any]]:
        """List the tags: ``tag``, ``count``, ``about``; the most frequent first."""
        ...

    def find(self, words: Sequence[str], tag: str | None, n: int) -> list[dict[str, Any]]:
        """List stored items that have all the words, and the tag: ``id``, ``text``, ``tags``."""
        ...

    def candidates(self, tag: str, n: int) -> list[dict[str, Any]]:
        """List stored items without a tag that most likely should have it."""
        ...

    def review(self, n: int) -> list[dict[str, Any]]:
        """List stored items whose tags look wrong."""
        ...


def clean_text(*parts: str) -> str:
    """Return the parts as one text that every target takes.

    Examples
    --------
    >>> clean_text("Invoice", "", " May \\ud800 ")
    'Invoice\\nMay ?'
    """
    text = "\n".join(part.strip() for part in parts if part.strip())
    return text.encode("utf-8", "replace").decode()[:LONGEST_TEXT].strip()


def clean_tag(name: str) -> str:
    """Return the name of a tag as every target takes it; "" if nothing is left.

    Examples
    --------
    >>> clean_tag(" car \\t insurance\\x00 ")
    'car insurance'
    """
    words = name.encode("utf-8", "replace").decode().split()
    return "".join(sign for sign in " ".join(words) if sign.isprintable())[:LONGEST_TAG].strip()
