"""From lessons to the target, each once: what a connector does with what it has pulled."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tagstream.connect.state import Known, State
from tagstream.connect.target import Lesson, Refused, Target

__all__ = ["Report", "Teacher"]


@dataclass
class Report:
    """What was done, or would be in a dry run.

    Attributes
    ----------
    counts : Counter
        How often each thing was done.
    tags : Counter
        How many lessons had each tag.
    pushed : list of dict
        What was told the source: ``item``, ``does``, ``tags``, ``why``.
    warnings : list of str
        What somebody should know.
    """

    counts: Counter[str] = field(default_factory=Counter)
    tags: Counter[str] = field(default_factory=Counter)
    pushed: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def warn(self, message: str) -> None:
        """Note something, once."""
        if message not in self.warnings:
            self.warnings.append(message)

    def push(self, item: str, does: str, tags: Iterable[str], why: str = "") -> None:
        """Note what was told the source."""
        self.pushed.append({"item": item, "does": does, "tags": [*tags], "why": why})


class Teacher:
    """Teaches a target what it does not have yet, and remembers what it has.

    Parameters
    ----------
    target : Target
    state : State
    space : str
        Stands before the ids of the source, so that several sources share one target.
    report : Report
    """

    def __init__(self, target: Target, state: State, space: str, report: Report) -> None:
        self.target, self.state, self.space, self.report = target, state, space, report

    def name(self, id: str) -> str:
        """Return what an item of the source is called in the target.

        Examples
        --------
        >>> Teacher(None, None, "paperless", Report()).name("12")
        'paperless/12'
        """
        return f"{self.space}/{id}"

    def id(self, name: str) -> str | None:
        """Return the id in the source of an item of the target; None if it is of another."""
        start = f"{self.space}/"
        return name.removeprefix(start) if name.startswith(start) else None

    def check(self) -> bool:
        """Notice a target that was lost or set back; then all is to be taught again."""
        mark = self.target.mark()
        is_lost = bool(mark < self.state.fact("mark", 0))
        if is_lost:
            self.report.warn(f"{self.target.name} knows less than before; it is taught again")
            self.state.begin_again({"mark": mark})
        return is_lost

    def teach(
        self,
        lessons: Sequence[Lesson],
        seen: Mapping[str, Known] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Teach what is new or has changed; when the target has it, remember all at once.

        Parameters
        ----------
        lessons : sequence of Lesson
        seen : mapping, optional
            What else is to be remembered of items, with or without a lesson.
        facts : mapping, optional
        """
        seen = {**(seen or {})}
        new: list[tuple[Lesson, Known]] = []
        for lesson in lessons:
            known = seen.get(lesson.id) or self.state.item(lesson.id) or Known()
            if lesson.text and known.digest != lesson.digest:
                new.append((lesson, known))
        done = self._taught(new)
        for lesson, was in done:
            seen[lesson.id] = replace(was, digest=lesson.digest, changes=was.changes + 1)
            self.report.counts["learnt" if was.changes == 0 else "corrected"] += 1
            self.report.tags.update(lesson.tags or ())
        mark = {"mark": self.target.mark()} if done else {}
        self.state.put(seen, {**mark, **(facts or {})})

    def _taught(self, new: list[tuple[Lesson, Known]]) -> list[tuple[Lesson, Known]]:
        """Teach lessons, in halves if they are not taken together; return those taken."""
        if not new:
            return []
        lessons = [replace(lesson, id=self.name(lesson.id)) for lesson, _ in new]
        keys = [self._key(lesson, known) for lesson, known in new]
        try:
            self.target.learn(lessons, keys)
            return new
        except Refused as error:
            if len(new) == 1:
                self.report.counts["refused"] += 1
                self.report.warn(f"{lessons[0].id} was not learnt: {error}")
                return []
        half = len(new) // 2
        return self._taught(new[:half]) + self._taught(new[half:])

    def _key(self, lesson: Lesson, known: Known) -> str:
        """Return the key of a lesson.

        It is made of the id, of text and tags, and of how often they changed before: tags that are
        set back to what they were are a lesson of their own.
        """
        id = hashlib.sha256(lesson.id.encode()).hexdigest()[:32]
        return f"{id}:{known.changes}:{lesson.digest}"

    def forget(self, ids: Iterable[str]) -> None:
        """Forget items that are gone.  What was noted of them stays: they may come back."""
        known = {name: self.state.item(name) for name in ids}
        gone = {name: one for name, one in known.items() if one is not None}
        stored = [self.name(name) for name, one in gone.items() if one.digest is not None]
        if stored:
            self.target.forget(stored)
            self.report.counts["forgotten"] += len(stored)
        gone = {name: replace(one, digest=None, waits=False) for name, one in gone.items()}
        self.state.put(
            {name: replace(one, about={**one.about, "gone": True}) for name, one in gone.items()}
        )
