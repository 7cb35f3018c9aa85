"""What is done with the issues of a repository: learn labels, suggest labels, follow what changes.

The labels that a person sets, takes away, or leaves when closing an issue are learnt.  New issues
get suggestions in one comment, which is edited and never repeated.  An event of an action is taken
first; then what changed since the last run is pulled, because runs that wait are dropped when many
issues come at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tagstream.connect.github import CLOSED, LABELLED, GitHub, Issue, is_bot
from tagstream.connect.reviewing import is_open, lesson_of, new_item, seen_again
from tagstream.connect.state import Known
from tagstream.connect.target import Suggested, clean_tag, clean_text
from tagstream.connect.teaching import Teacher
from tagstream.connect.web import WebError

__all__ = ["IssueSettings", "Issues"]

MARK = "<!-- tagstream -->"
MOST_OFFERED = 5
MOST_WORDS = 4
MOST_ALIKE = 3
LEARNS = ("labeled", "unlabeled", "closed")
SUGGESTS = ("opened", "reopened", "edited")
FORGETS = ("deleted", "transferred")

Progress = Callable[[int, "int | None"], None]


@dataclass(frozen=True)
class IssueSettings:
    """What a connector may do.

    Attributes
    ----------
    set_labels : bool
        Set all suggested labels, not only those that may be set without asking.
    create_tags : bool
        Create labels that the target knows and the repository does not.
    inbox : frozenset of str
        Labels that mean that nobody has looked at the issue yet.
    """

    set_labels: bool = False
    create_tags: bool = False
    inbox: frozenset[str] = frozenset()


class Issues:
    """Follows the issues of a repository.

    Parameters
    ----------
    github : GitHub
    teacher : Teacher
    settings : IssueSettings, optional
    progress : callable (done, total), optional
    """

    def __init__(
        self,
        github: GitHub,
        teacher: Teacher,
        settings: IssueSettings | None = None,
        progress: Progress = lambda done, total: None,
    ) -> None:
        self.github, self.teacher = github, teacher
        self.settings = settings or IssueSettings()
        self.state, self.report, self.progress = teacher.state, teacher.report, progress
        self._labels: set[str] = set()
        self._issues: dict[str, Issue] = {}  # that were seen in this run

    def go(self, event: Mapping[str, Any] | None = None) -> None:
        """Do one round.

        Parameters
        ----------
        event : mapping, optional
            The event that an action was started by.
        """
        self._labels = self.github.labels()
        if self.teacher.check():
            self.state.set_facts({"since": None})
        is_first = self.state.fact("since") is None
        if not is_first:
            self._take_event(event or {})
        self._pull(is_first=is_first)
        if is_first:
            if self.report.counts["learnt"]:
                self.teacher.target.refit()
            self._take_event(event or {})
        self._suggest()

    # ------------------------------------------------------------------ reading
    def _pull(self, *, is_first: bool) -> None:
        """Take in what has changed since the last run; the first time, all there is."""
        n = 0
        since = self.state.fact("since" if not is_first else "begun")
        for page in self.github.issues(since):
            facts = {"begun": page[-1].updated}
            self._take(page, facts if is_first else {"since": page[-1].updated}, is_first=is_first)
            n += len(page)
            self.progress(n, None)
        if is_first:
            begun = self.state.fact("begun", "1970-01-01T00:00:00Z")
            self.state.set_facts({"since": begun, "mark": self.teacher.target.mark()})

    def _take_event(self, event: Mapping[str, Any]) -> None:
        """Take in what an event says, if it is about an issue."""
        action, told = event.get("action"), event.get("issue")
        if not isinstance(told, Mapping) or "pull_request" in told:
            return
        where = (event.get("repository") or {}).get("full_name", self.github.repository)
        if where != self.github.repository:
            raise ValueError(f"the event must be of {self.github.repository}, got one of {where}")
        if action in FORGETS:
            self.teacher.forget([str(told["number"])])
        elif action in LEARNS + SUGGESTS:
            issue = Issue.of(told)
            by_bot = is_bot(event.get("sender"))
            self._take([issue], by_bot=by_bot, is_new=action == "opened")
            if action in LEARNS[:2] and not by_bot:
                self._confirm(issue)
            if action in SUGGESTS:
                self._let_wait(issue)

    def _confirm(self, issue: Issue) -> None:
        """Take the labels of an issue as reviewed, though they were seen before."""
        known = self.state.item(str(issue.number)) or Known()
        if not issue.labels & self.settings.inbox and is_open(known):
            known = replace(known, waits=False)
            known = replace(known, about={**known.about, "reviewed": sorted(issue.labels)})
            self._teach([(issue, known)])

    def _let_wait(self, issue: Issue) -> None:
        known = self.state.item(str(issue.number)) or Known()
        if is_open(known) and not issue.is_closed:
            self.state.put({str(issue.number): replace(known, waits=True)})

    def _take(
        self,
        page: list[Issue],
        facts: Mapping[str, Any] | None = None,
        *,
        is_first: bool = False,
        is_new: bool = False,
        by_bot: bool | None = None,
    ) -> None:
        pairs = []
        for issue in page:

            def is_by_bot(events: Sequence[str], number: int = issue.number) -> bool:
                return self.github.is_by_bot(number, events) if by_bot is None else by_bot

            known = self._known(issue, is_by_bot, is_first=is_first, is_new=is_new)
            pairs.append((issue, known))
        self._teach(pairs, facts)

    def _teach(
        self, pairs: list[tuple[Issue, Known]], facts: Mapping[str, Any] | None = None
    ) -> None:
        lessons = []
        for issue, known in pairs:
            id = str(issue.number)
            self._issues[id] = issue
            lesson = lesson_of(id, _text(issue), known, self._learnable, self._learnable)
            lessons += [] if lesson is None else [lesson]
        self.teacher.teach(lessons, {str(issue.number): known for issue, known in pairs}, facts)

    def _known(
        self,
        issue: Issue,
        is_by_bot: Callable[[Sequence[str]], bool],
        *,
        is_first: bool,
        is_new: bool,
    ) -> Known:
        """Return what is to be remembered of an issue."""
        known = self.state.item(str(issue.number))
        labels, text = issue.labels, _text(issue)
        in_inbox = bool(labels & self.settings.inbox)
        if known is None:
            is_reviewed = bool(self._learnable(labels)) and not in_inbox and not is_new
            if is_reviewed and not is_first:
                is_reviewed = not is_by_bot(LABELLED)
            waits = not is_first and not issue.is_closed
            known = new_item(labels, text, is_reviewed=is_reviewed, waits=waits)
        else:
            known = seen_again(
                known,
                labels,
                text,
                in_inbox=in_inbox,
                is_by_machine=lambda: is_by_bot(LABELLED),
            )
        if issue.is_closed and self._learnable(labels) and not known.about.get("closed"):
            if not is_first and not is_by_bot(CLOSED):  # who closes an issue has seen its labels
                known = replace(known, about={**known.about, "reviewed": sorted(labels)})
            known = replace(known, waits=False)
        return replace(known, about={**known.about, "closed": issue.is_closed})

    def _learnable(self, labels: Iterable[str]) -> tuple[str, ...]:
        """Return the labels that are learnt."""
        names = (clean_tag(label) for label in labels if label not in self.settings.inbox)
        return tuple(sorted({name for name in names if name}))

    # ------------------------------------------------------------------ suggesting
    def _suggest(self) -> None:
        """Push suggestions for the issues that wait for them."""
        waiting = [self._issues[id] for id in self.state.waiting() if id in self._issues]
        waiting = [issue for issue in waiting if _text(issue)]
        asked = [self._question(issue) for issue in waiting]
        told = self.teacher.target.suggest(asked) if asked else []
        for issue, said in zip(waiting, told, strict=True):
            self._try_to_push(issue, said)

    def _question(self, issue: Issue) -> dict[str, Any]:
        return {"id": self.teacher.name(str(issue.number)), "text": _text(issue)}

    def _try_to_push(self, issue: Issue, said: Suggested) -> None:
        """Push suggestions; an issue that is locked or gone does not stop the others."""
        try:
            self._push(issue, said)
        except WebError as error:
            if error.status not in (403, 404, 410) or "rate limit" in str(error):
                raise
            self.report.warn(f"#{issue.number} is left alone: {error}")
            self._let_go(issue)

    def _let_go(self, issue: Issue) -> None:
        known = self.state.item(str(issue.number)) or Known()
        self.state.put({str(issue.number): replace(known, waits=False)})

    def _push(self, issue: Issue, said: Suggested) -> None:
        offered = [label for label in said.tags if self._may_offer(label, issue)][:MOST_OFFERED]
        chosen = [label for label in offered if self.settings.set_labels or label in said.auto]
        why = self._why(issue, offered) if offered else ""
        if chosen:
            self._set_labels(issue, chosen)
        self._comment(issue, _comment(offered, chosen, said, why))
        if offered:
            shown = [f"{label} {said.scores.get(label, 0.0):.2f}" for label in offered]
            self.report.push(f"#{issue.number} {issue.title}", "comment", shown, why)
        self._let_go(issue)

    def _may_offer(self, label: str, issue: Issue) -> bool:
        exists = label in self._labels or self.settings.create_tags
        return exists and label not in issue.labels | self.settings.inbox

    def _set_labels(self, issue: Issue, labels: list[str]) -> None:
        self.github.add_labels(issue.number, labels)
        self.report.counts["labelled"] += 1
        self.report.counts["created"] += sum(label not in self._labels for label in labels)
        self.report.push(f"#{issue.number} {issue.title}", "labels", labels)
        known = self.state.item(str(issue.number)) or Known()
        after = sorted({*issue.labels, *labels})
        ours = sorted({*known.about["ours"], *labels})
        about = {**known.about, "tags": after, "ours": ours}
        self.state.put({str(issue.number): replace(known, about=about)})

    def _comment(self, issue: Issue, text: str) -> None:
        """Write our comment, or edit it; an issue gets no comment to say that there is nothing."""
        ours = self.github.our_comment(issue.number, MARK)
        if ours is not None and ours[1] != text:
            self.github.edit_comment(ours[0], text or f"{MARK}\nNo label is suggested any more.")
            self.report.counts["comments edited"] += 1
        elif ours is None and text:
            self.github.add_comment(issue.number, text)
            self.report.counts["commented"] += 1

    def _why(self, issue: Issue, labels: list[str]) -> str:
        """Return the reason in a few words."""
        why = self.teacher.target.explain(self._question(issue))
        spoke = why.get("words", {}).get(labels[0], {})
        words = sorted((word for word in spoke if spoke[word] > 0), key=lambda w: -spoke[w])
        ids = [self.teacher.id(near["id"]) for near in why["neighbours"][:MOST_ALIKE]]
        like = ", ".join(f"`#{id}`" for id in ids if id is not None)
        said = ", ".join(_code(word) for word in words[:MOST_WORDS])
        parts = [f"words: {said}" if said else "", f"similar: {like}" if like else ""]
        return "; ".join(part for part in parts if part)


def _comment(offered: list[str], chosen: list[str], said: Suggested, why: str) -> str:
    """Return the comment on an issue; "" if there is nothing to say.

    Names and words stand between backticks, so that nobody is mentioned and no link is made.
    """
    if not offered:
        return ""
    others = [label for label in offered if label not in chosen]
    lines = [MARK]
    for what, labels in (("Labels set", chosen), ("Suggested labels", others)):
        if labels:
            shown = (f"{_code(label)} {said.scores.get(label, 0.0):.2f}" for label in labels)
            lines.append(f"{what}: {', '.join(shown)}  ")
    return "\n".join(lines) + (f"\n<sub>{why}</sub>" if why else "")


def _code(text: str) -> str:
    """Return a text as code of one line.

    Examples
    --------
    >>> _code("a`b\\n@c <x>")
    '`ab @c x`'
    """
    return f"`{' '.join(re.sub('[`<>]', '', text).split())}`"


def _text(issue: Issue) -> str:
    body = re.sub(r"<!--.*?-->", "", issue.body, flags=re.DOTALL)  # of templates
    return clean_text(issue.title, body)
