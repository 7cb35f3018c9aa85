"""The part of GitHub's interface that issues need, as its documentation describes it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fake_paperless import json_server

TOKEN = "ghs_0123456789"
REPOSITORY = "tide/tables"
START = datetime(2026, 11, 18, 9, 0, 0, tzinfo=timezone.utc)
PEOPLE = {
    name: {"login": name, "type": "Bot" if name.endswith("[bot]") else "User"}
    for name in ("anna", "github-actions[bot]", "mallory")
}
ME = "github-actions[bot]"


class FakeGitHub:
    """A repository: its labels and issues, and what people do with them."""

    def __init__(self, labels: Any = ("bug", "docs", "question", "triage")) -> None:
        self.labels = [*labels]
        self.issues: dict[int, dict[str, Any]] = {}
        self.events: dict[int, list[dict[str, Any]]] = {}
        self.comments: dict[int, list[dict[str, Any]]] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.limit: int | None = None  # requests before it asks to wait for an hour
        self.locked: set[int] = set()
        self._ticks = 0

    # ------------------------------------------------------------------ people
    def open(self, title: str, body: str = "", labels: Any = (), pull: bool = False) -> int:
        number = len(self.issues) + 1
        self.issues[number] = {
            "number": number,
            "title": title,
            "body": body or None,
            "labels": [],
            "state": "open",
            **({"pull_request": {"url": "…"}} if pull else {}),
        }
        self.events[number], self.comments[number] = [], []
        self._touch(number)
        for label in labels:
            self.label(number, label)
        return number

    def label(self, number: int, label: str, by: str = "anna", event: str = "labeled") -> None:
        names = [one["name"] for one in self.issues[number]["labels"] if one["name"] != label]
        names += [label] if event == "labeled" else []
        self.issues[number]["labels"] = [
            {"id": hash(name) & 0xFFFF, "name": name} for name in names
        ]
        told = {"event": event, "actor": PEOPLE[by], "label": {"name": label}}
        self.events[number].append(told)
        self._touch(number)

    def close(self, number: int, by: str = "anna") -> None:
        self.issues[number]["state"] = "closed"
        self.events[number].append({"event": "closed", "actor": PEOPLE[by]})
        self._touch(number)

    def comment(self, number: int, text: str, by: str = ME) -> None:
        id = 1 + sum(map(len, self.comments.values()))
        self.comments[number].append({"id": id, "body": text, "user": PEOPLE[by]})
        self._touch(number)

    def names(self, number: int) -> set[str]:
        return {one["name"] for one in self.issues[number]["labels"]}

    def texts(self, number: int) -> list[str]:
        return [one["body"] for one in self.comments[number]]

    def event(self, action: str, number: int, by: str = "anna", **more: Any) -> dict[str, Any]:
        """Return an event as an action finds it in its file."""
        return {
            "action": action,
            "issue": self.issues[number],
            "repository": {"full_name": REPOSITORY},
            "sender": PEOPLE[by],
            **more,
        }

    def writes(self) -> list[tuple[str, str, Any]]:
        return [one for one in self.requests if one[0] != "GET"]

    def _touch(self, number: int) -> None:
        self._ticks += 1
        when = START + timedelta(minutes=self._ticks)
        self.issues[number]["updated_at"] = when.strftime("%Y-%m-%dT%H:%M:%SZ")

    # ------------------------------------------------------------------ requests
    def answer(self, method: str, path: str, headers: Any, body: Any) -> tuple[Any, ...]:
        self.requests.append((method, path, body))
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"message": "Bad credentials"}
        if self.limit is not None and len(self.requests) > self.limit:
            return 403, {"message": "API rate limit exceeded"}, {"Retry-After": "3600"}
        parts = urlsplit(path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/user":
            return 403, {"message": "Resource not accessible by integration"}
        start = f"/repos/{REPOSITORY}"
        if not parts.path.startswith(start):
            return 404, {"message": "Not Found"}
        return self._route(method, parts.path[len(start) :], query, body)

    def _route(self, method: str, path: str, query: Any, body: Any) -> tuple[Any, ...]:
        if path == "/labels":
            return 200, _page([{"name": name} for name in self.labels], query)
        if path == "/issues":
            rows = [
                one for one in self.issues.values() if one["updated_at"] >= query.get("since", "")
            ]
            return 200, _page(sorted(rows, key=lambda one: one["updated_at"]), query)
        if (edit := re.fullmatch(r"/issues/comments/(\d+)", path)) is not None:
            return self._edit(int(edit[1]), body)
        match = re.fullmatch(r"/issues/(\d+)/(events|comments|labels)", path)
        assert match is not None, path
        number, what = int(match[1]), match[2]
        if method == "GET":
            return 200, _page(
                {"events": self.events, "comments": self.comments}[what][number], query
            )
        if number in self.locked:
            return 403, {"message": "Unable to create comment because issue is locked."}
        if what == "comments":
            self.comment(number, body["body"])
            return 201, self.comments[number][-1]
        for label in body["labels"]:
            self.labels += [] if label in self.labels else [label]  # GitHub creates it
            self.label(number, label, ME)
        return 200, self.issues[number]["labels"]

    def _edit(self, id: int, body: Any) -> tuple[Any, ...]:
        for number, comments in self.comments.items():
            for one in comments:
                if one["id"] == id:
                    one["body"] = body["body"]
                    self._touch(number)
                    return 200, one
        return 404, {"message": "Not Found"}


def _page(rows: list[Any], query: Any) -> list[Any]:
    size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
    return rows[(page - 1) * size : page * size]


@contextlib.contextmanager
def serving_github(github: FakeGitHub) -> Iterator[str]:
    """Serve it on the loopback; yield the address."""
    with json_server(github.answer) as url:
        yield url
