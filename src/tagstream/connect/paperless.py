"""The interface of paperless-ngx, as far as a connector needs it (versions 9 and 10 of its API).

Tags are changed by ``bulk_edit`` only: it adds, where PATCH replaces the whole list and with it
what others set meanwhile and what this user may not see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPMessage
from typing import Any

from tagstream.connect.web import Web, WebError

__all__ = ["ACCEPT", "Document", "Paperless", "PaperlessTag"]

ACCEPT = "application/json; version=10"
OLDER = "application/json; version=9"
FIELDS = "id,title,content,modified,tags,notes"
PAGE = 250  # documents; a model file is saved after each page
LONGEST_PAGE = 100_000
BY_HAND = 0  # the matching algorithm of tags that neither rules nor the classifier set


@dataclass(frozen=True)
class PaperlessTag:
    """A tag, as this user sees it."""

    id: int
    name: str
    parent: int | None
    is_inbox: bool


@dataclass(frozen=True)
class Document:
    """A document.  ``tags`` are ids, some perhaps of tags that this user may not see."""

    id: int
    title: str
    content: str
    modified: str
    tags: frozenset[int]
    notes: tuple[tuple[int, str], ...] = ()

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Document:
        """Return what the JSON of an answer says."""
        notes = said.get("notes") or ()
        return cls(
            int(said["id"]),
            str(said.get("title") or ""),
            str(said.get("content") or ""),
            str(said["modified"]),
            frozenset(map(int, said["tags"])),
            tuple((int(one["id"]), str(one["note"])) for one in notes),
        )


class Paperless:
    """A server.

    Parameters
    ----------
    web : Web
        With the header ``Accept`` of :data:`ACCEPT`, and "Token" before its token.
    dry : bool
        Send no change.
    """

    def __init__(self, web: Web, dry: bool = False) -> None:
        self.web, self.dry = web, dry
        self.version = ""

    # ------------------------------------------------------------------ reading
    def tags(self) -> list[PaperlessTag]:
        """Return the tags that this user may see."""
        found, page = [], 1
        while True:
            said, headers = self._first_page() if page == 1 else self._tags_page(page)
            self.version = headers.get("X-Version", self.version)
            for one in said["results"]:
                parent = one.get("parent")
                found.append(
                    PaperlessTag(
                        int(one["id"]),
                        str(one["name"]),
                        None if parent is None else int(parent),
                        bool(one.get("is_inbox_tag")),
                    )
                )
            if not said.get("next"):
                return [*{one.id: one for one in found}.values()]
            page += 1  # not what ``next`` names: behind a proxy that may be another host

    def _tags_page(self, page: int) -> tuple[Any, HTTPMessage]:
        return self.web.ask_all("GET", "/api/tags/", page=page, page_size=LONGEST_PAGE)

    def _first_page(self) -> tuple[Any, HTTPMessage]:
        """Ask for version 10 of the interface first, then for 9."""
        try:
            return self._tags_page(1)
        except WebError as error:
            if error.status != 406:
                raise
            self.web.set_header("Accept", OLDER)
            return self._tags_page(1)

    def documents(
        self, since: str | None = None, fields: str = FIELDS, size: int = PAGE
    ) -> Iterator[list[Document]]:
        """Yield pages of the documents modified at ``since`` or later, those modified first first.

        A page begins where the one before ended, by time and not by number: documents that are
        modified meanwhile move behind and would push others over the edge of a page.  So a document
        may come twice, and none is passed over.
        """
        met: set[tuple[int, str]] = set()
        while True:
            query = {"ordering": "modified,id", "fields": fields, "page_size": size}
            if since is not None:
                query["modified__gte"] = since
            said = self.web.ask("GET", "/api/documents/", **query)
            page = [Document.of(one) for one in said["results"]]
            self._check_order(page, since)
            new = [one for one in page if (one.id, one.modified) not in met]
            if new:
                yield new
            if not said.get("next"):
                return
            if since == page[-1].modified:  # all at one time
                if size >= LONGEST_PAGE:
                    raise OSError(f"{self.web.root} has too many documents of one time, {since}")
                size = min(2 * size, LONGEST_PAGE)
            since = page[-1].modified
            met = {(one.id, one.modified) for one in page if one.modified == since}

    def _check_order(self, page: list[Document], since: str | None) -> None:
        """Notice a server that ignores the filter or the order; it would not say so."""
        times = [_instant(one.modified) for one in page]
        if times != sorted(times) or (since is not None and times and times[0] < _instant(since)):
            raise OSError(
                f"{self.web.root} must list documents by the time of their change, got another "
                "order; is this a version of paperless-ngx that is not known here?"
            )

    def some(self, ids: Sequence[int]) -> list[Document]:
        """Return documents by their ids; those that are gone or not to be seen are left out."""
        found = []
        for start in range(0, len(ids), PAGE):
            chosen = ids[start : start + PAGE]
            said = self.web.ask(
                "GET",
                "/api/documents/",
                id__in=",".join(map(str, chosen)),
                fields=FIELDS,
                page_size=PAGE,
            )
            wanted = {*chosen}  # the filter might be ignored
            found += [Document.of(one) for one in said["results"] if one["id"] in wanted]
        return found

    def is_set_by_server(self, id: int) -> bool | None:
        """Tell whether the server itself, by rules or its classifier, changed the tags last.

        None where this user may not read the history, or none is kept.
        """
        try:
            entries = self.web.ask("GET", f"/api/documents/{id}/history/")
        except WebError as error:
            if error.status in (400, 403, 404):
                return None
            raise
        changed = [one for one in entries if "tags" in (one.get("changes") or {})]
        return bool(changed) and changed[0].get("actor") is None  # the newest comes first

    # ------------------------------------------------------------------ writing
    def add_tags(self, id: int, tags: Sequence[int]) -> None:
        """Add tags to a document; the server adds the tags above them."""
        edit = {"add_tags": [*tags], "remove_tags": []}
        body = {"documents": [id], "method": "modify_tags", "parameters": edit}
        if not self.dry:
            self.web.ask("POST", "/api/documents/bulk_edit/", body)

    def create_tag(self, name: str) -> int:
        """Create a tag that neither rules nor the classifier of the server set."""
        if self.dry:
            return -1
        said = self.web.ask("POST", "/api/tags/", {"name": name, "matching_algorithm": BY_HAND})
        return int(said["id"])

    def add_note(self, id: int, text: str) -> int | None:
        """Add a note to a document; return the id of the note."""
        if self.dry:
            return None
        path = f"/api/documents/{id}/notes/"
        self.web.ask("POST", path, {"note": text})  # the answer may be the list as it was before
        ids = [int(one["id"]) for one in self.web.ask("GET", path) if one["note"] == text]
        if not ids:
            raise OSError(f"{self.web.root} did not keep a note of document {id}")
        return max(ids)

    def remove_note(self, id: int, note: int) -> None:
        """Remove a note of a document, if it is still there and this user may."""
        if not self.dry:
            try:
                self.web.ask("DELETE", f"/api/documents/{id}/notes/", id=note)
            except WebError as error:
                if error.status not in (403, 404):
                    raise


def _instant(time: str) -> str:
    """Return a time so that times compare as strings.

    Examples
    --------
    >>> _instant("2026-11-18T11:33:37Z") < _instant("2026-11-18T11:33:37.608828Z")
    True
    """
    from datetime import datetime, timezone

    text = re.sub(r"Z$", "+00:00", time)
    return datetime.fromisoformat(text).astimezone(timezone.utc).isoformat(timespec="microseconds")
