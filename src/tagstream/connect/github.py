"""The interface of GitHub, as far as a connector for issues needs it.

Adding a label that a repository does not have would create it, so labels are compared with the
list of the repository first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tagstream.connect.web import Web, WebError

__all__ = ["CLOSED", "HEADERS", "LABELLED", "GitHub", "Issue"]

HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
PAGE = 100
BOT = "github-actions[bot]"  # as whom an action writes
LABELLED, CLOSED = ("labeled", "unlabeled"), ("closed",)  # events


@dataclass(frozen=True)
class Issue:
    """An issue."""

    number: int
    title: str
    body: str
    labels: frozenset[str]
    is_closed: bool
    updated: str

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Issue:
        """Return what the JSON of an answer or of an event says."""
        labels = (one if isinstance(one, str) else one["name"] for one in said["labels"])
        return cls(
            int(said["number"]),
            str(said.get("title") or ""),
            str(said.get("body") or ""),
            frozenset(map(str, labels)),
            said.get("state") == "closed",
            str(said["updated_at"]),
        )


class GitHub:
    """The issues of a repository.

    Parameters
    ----------
    web : Web
        With :data:`HEADERS`.
    repository : str
        ``owner/name``.
    dry : bool
        Send no change.
    """

    def __init__(self, web: Web, repository: str, dry: bool = False) -> None:
        self.web, self.repository, self.dry = web, repository, dry
        self._path = f"/repos/{quote(repository)}"
        self._me: str | None = None

    # ------------------------------------------------------------------ reading
    def labels(self) -> set[str]:
        """Return the labels of the repository."""
        return {str(one["name"]) for one in self._all(f"{self._path}/labels")}

    def _all(self, path: str) -> Iterator[dict[str, Any]]:
        page, n = 1, PAGE
        while n == PAGE:
            said = self.web.ask("GET", path, per_page=PAGE, page=page)
            yield from said
            page, n = page + 1, len(said)

    def issues(self, since: str | None = None) -> Iterator[list[Issue]]:
        """Yield pages of the issues updated at ``since`` or later, those updated first first.

        A page begins at the time where the one before ended, so that issues that are updated
        meanwhile push none over its edge.  Pull requests are left out.
        """
        met: set[tuple[int, str]] = set()
        page = 1
        while True:
            query: dict[str, Any] = {"state": "all", "sort": "updated", "direction": "asc"}
            if since is not None:
                query["since"] = since
            said = self.web.ask("GET", f"{self._path}/issues", per_page=PAGE, page=page, **query)
            found = [Issue.of(one) for one in said if "pull_request" not in one]
            new = [one for one in found if (one.number, one.updated) not in met]
            if new:
                yield new
            if len(said) < PAGE:
                return
            last = str(said[-1]["updated_at"])
            page = page + 1 if last == since else 1  # more of one second than a page holds
            met = (met if last == since else set()) | {
                (one.number, one.updated) for one in found if one.updated == last
            }
            since = last

    def is_by_bot(self, number: int, events: Sequence[str]) -> bool:
        """Tell whether the last of some events of an issue was a bot's."""
        found = self._all(f"{self._path}/issues/{number}/events")
        actors = [one.get("actor") for one in found if one.get("event") in events]
        return bool(actors) and is_bot(actors[-1])  # the newest comes last

    def our_comment(self, number: int, mark: str) -> tuple[int, str] | None:
        """Return number and text of the comment that we wrote, known by a mark in it.

        A mark alone does not make it ours: anybody could write it.
        """
        for one in self._all(f"{self._path}/issues/{number}/comments"):
            author = (one.get("user") or {}).get("login")
            if mark in str(one.get("body")) and author == self._who():
                return int(one["id"]), str(one["body"])
        return None

    def _who(self) -> str:
        """Return as whom we write.  The token of an action may not ask."""
        if self._me is None:
            try:
                self._me = str(self.web.ask("GET", "/user")["login"])
            except WebError as error:
                if error.status not in (401, 403, 404):
                    raise
                self._me = BOT
        return self._me

    # ------------------------------------------------------------------ writing
    def add_labels(self, number: int, labels: Sequence[str]) -> None:
        """Add labels to an issue; those that the repository has not got are created."""
        self._send("POST", f"{self._path}/issues/{number}/labels", {"labels": [*labels]})

    def add_comment(self, number: int, text: str) -> None:
        """Comment on an issue."""
        self._send("POST", f"{self._path}/issues/{number}/comments", {"body": text})

    def edit_comment(self, comment: int, text: str) -> None:
        """Put another text in the place of a comment."""
        self._send("PATCH", f"{self._path}/issues/comments/{comment}", {"body": text})

    def _send(self, method: str, path: str, body: Any) -> None:
        if not self.dry:
            self.web.ask(method, path, body)


def is_bot(actor: Any) -> bool:
    """Tell whether somebody is a bot.

    Examples
    --------
    >>> is_bot({"login": "dependabot[bot]", "type": "Bot"}), is_bot({"type": "User"}), is_bot(None)
    (True, False, False)
    """
    return isinstance(actor, Mapping) and (
        actor.get("type") == "Bot" or str(actor.get("login", "")).endswith("[bot]")
    )
