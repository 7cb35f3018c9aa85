"""A server that behaves as paperless-ngx 3.0.5 was recorded to, its traps included.

``paperless-3.0.5.json`` holds the recorded exchanges.  A test replays them here, and, where the
source of paperless-ngx is at hand, on the real server.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "4d5d-paperless-token"
START = datetime(2026, 11, 18, 11, 33, 37, 608828, timezone.utc)
VERSIONS = (9, 10)


class Answered(Exception):
    def __init__(self, status: int, answer: Any) -> None:
        super().__init__()
        self.status, self.answer = status, answer


class FakePaperless:
    """The documents and tags of a server, and what people and the server do with them."""

    def __init__(self) -> None:
        self.tags: dict[int, dict[str, Any]] = {}
        self.documents: dict[int, dict[str, Any]] = {}
        self.trash: dict[int, dict[str, Any]] = {}
        self.notes: dict[int, list[dict[str, Any]]] = {}
        self.history: dict[int, list[dict[str, Any]]] = {}
        self.hidden: set[int] = set()  # tags that our user may not see
        self.late: list[int] = []  # documents whose time moves when the worker runs
        self.works = True  # whether the worker runs
        self.forbidden: set[int] = set()  # documents that our user may only read
        self.ignores_filters = False
        self.may_read_history = True
        self.versions = VERSIONS
        self.requests: list[tuple[str, str, Any]] = []
        self.n_down = 0  # requests that are answered 503 first
        self.after_page: Any = None  # called after each page of documents
        self._ticks, self._ids = 0, 0
        self.lock = threading.RLock()

    # ------------------------------------------------------------------ people and the server
    def tag(self, name: str, parent: int | None = None, **more: Any) -> int:
        id = len(self.tags) + 1
        told = {"is_inbox_tag": False, "matching_algorithm": 1, **more}
        self.tags[id] = {"id": id, "name": name, "parent": parent, **told}
        return id

    def upload(self, title: str, content: str, tags: Any = (), by: str | None = "anna") -> int:
        """Add a document; its tags were set by a person, or with ``by=None`` by rules."""
        self._ids += 1
        id = self._ids
        self.documents[id] = {"id": id, "title": title, "content": content, "tags": [*tags]}
        self.history[id] = []
        self._told(id, by, [*tags]) if tags else None
        self._touch(id)
        return id

    def set_tags(self, id: int, tags: Any, by: str | None = "anna", moves: bool = True) -> None:
        """Change the tags of a document; ``moves`` says whether that moves its time."""
        self.documents[id]["tags"] = [*tags]
        self._told(id, by, [*tags])
        if moves:
            self._touch(id)

    def reprocess(self, id: int, content: str) -> None:
        """Read the text again: nothing but the text changes."""
        self.documents[id]["content"] = content

    def delete_tag(self, id: int) -> None:
        del self.tags[id]
        for one in self.documents.values():
            one["tags"] = [tag for tag in one["tags"] if tag != id]

    def delete(self, id: int) -> None:
        self.trash[id] = self.documents.pop(id)

    def restore(self, id: int) -> None:
        self.documents[id] = self.trash.pop(id)
        self._touch(id)

    def run_worker(self) -> None:
        for id in self.late:
            self._touch(id)
        self.late = []

    def names(self, id: int) -> set[str]:
        return {self.tags[tag]["name"] for tag in self.documents[id]["tags"]}

    def note_texts(self, id: int) -> list[str]:
        return [note["note"] for note in self.notes.get(id, [])]

    def writes(self) -> list[tuple[str, str, Any]]:
        return [one for one in self.requests if one[0] != "GET"]

    def _touch(self, id: int) -> None:
        self._ticks += 1
        when = START + timedelta(minutes=self._ticks)
        self.documents[id]["modified"] = when.isoformat().replace("+00:00", "Z")

    def _told(self, id: int, by: str | None, tags: list[int]) -> None:
        actor = None if by is None else {"id": 7, "username": by}
        self.history[id].insert(0, {"changes": {"tags": [0, tags]}, "actor": actor})

    # ------------------------------------------------------------------ requests
    def answer(self, method: str, path: str, headers: Any, body: Any) -> tuple[int, Any]:
        with self.lock:
            self.requests.append((method, path, body))
            if self.n_down:
                self.n_down -= 1
                return 503, {"detail": "down"}
            try:
                self._check(headers)
                parts = urlsplit(path)
                query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
                return self._route(method, parts.path, query, body)
            except Answered as told:
                return told.status, told.answer

    def _check(self, headers: Any) -> None:
        said = headers.get("Authorization", "")
        if said != f"Token {TOKEN}":
            wrong = "Invalid token."
            none = "Authentication credentials were not provided."
            raise Answered(401, {"detail": wrong if said else none})
        version = re.search(r"version=(\d+)", headers.get("Accept", ""))
        if version is not None and int(version[1]) not in self.versions:
            raise Answered(406, {"detail": 'Invalid version in "Accept" header.'})

    def _route(self, method: str, path: str, query: Any, body: Any) -> tuple[int, Any]:
        if path == "/api/tags/":
            return self._list_tags(query) if method == "GET" else self._new_tag(body)
        if path == "/api/documents/":
            return self._list(query)
        if path == "/api/documents/bulk_edit/":
            return self._bulk_edit(body)
        match = re.fullmatch(r"/api/documents/(\d+)/(notes/|history/)?", path)
        if match is None or int(match[1]) not in self.documents:
            raise Answered(404, {"detail": "No Document matches the given query."})
        id, what = int(match[1]), match[2]
        if what == "history/":
            if not self.may_read_history:
                raise Answered(403, "Insufficient permissions")
            return 200, self.history[id]
        if what == "notes/":
            return self._note(method, id, query, body)
        if method == "PATCH":
            return self._patch(id, body)
        assert method == "DELETE"
        self.delete(id)
        return 204, None

    def _list_tags(self, query: Any) -> tuple[int, Any]:
        rows = [{**tag, "children": []} for id, tag in self.tags.items() if id not in self.hidden]
        return 200, _page(sorted(rows, key=lambda tag: tag["name"].lower()), query)

    def _new_tag(self, body: Any) -> tuple[int, Any]:
        if any(tag["name"] == body["name"] for tag in self.tags.values()):
            raise Answered(400, {"error": "Object violates owner / name unique constraint"})
        told = {"parent": None, **body}
        return 201, self.tags[self.tag(**told)]

    def _list(self, query: Any) -> tuple[int, Any]:
        rows = [{**one, "notes": self.notes.get(id, [])} for id, one in self.documents.items()]
        since = query.get("modified__gte") or query.get("modified__gt")
        for name in ("modified__gte", "modified__gt"):
            if name in query and not query[name][:4].isdigit():
                raise Answered(400, {name: ["Enter a valid date/time."]})
        if since is not None and not self.ignores_filters:
            rows = [one for one in rows if one["modified"] >= since]
        if "id__in" in query:
            wanted = {*map(int, query["id__in"].split(","))}
            rows = [one for one in rows if one["id"] in wanted]
        if query.get("ordering") == "modified,id":
            rows.sort(key=lambda one: (one["modified"], one["id"]))
        else:
            rows.sort(key=lambda one: -one["id"])
        if "fields" in query:
            fields = query["fields"].split(",")
            rows = [{name: one[name] for name in fields if name in one} for one in rows]
        page = _page(rows, query)
        if self.after_page is not None:
            self.after_page()
        return 200, page

    def _bulk_edit(self, body: Any) -> tuple[int, Any]:
        edit = body["parameters"]
        for name in ("add_tags", "remove_tags"):
            if name not in edit:
                raise Answered(400, {"non_field_errors": [f"{name} not specified"]})
        if any(id not in self.documents for id in body["documents"]):
            text = "Some documents in documents don't exist or were specified twice."
            raise Answered(400, {"documents": [text]})
        for id in body["documents"]:
            before = {*self.documents[id]["tags"]}
            after = before | {*edit["add_tags"]} | self._above(edit["add_tags"])
            after -= {*edit["remove_tags"]} | self._below(edit["remove_tags"])
            if after != before:
                self.documents[id]["tags"] = sorted(after)
                self._told(id, "bot", sorted(after))
                self.late.append(id)
        if self.works:
            self.run_worker()
        return 200, {"result": "OK"}

    def _patch(self, id: int, body: Any) -> tuple[int, Any]:
        for tag in body["tags"]:
            if tag not in self.tags:
                text = f'Invalid pk "{tag}" - object does not exist.'
                raise Answered(400, {"tags": [text]})
        before = {*self.documents[id]["tags"]}
        after = {*body["tags"]} | (self._above(body["tags"]) - before)
        gone = before - after
        after -= gone | self._below(gone)  # with a parent, its children go
        self.set_tags(id, sorted(after), "bot")
        return 200, self.documents[id]

    def _above(self, tags: Any) -> set[int]:
        found: set[int] = set()
        for id in tags:
            while id in self.tags and self.tags[id]["parent"] is not None:
                id = self.tags[id]["parent"]
                found.add(id)
        return found

    def _below(self, tags: Any) -> set[int]:
        return {id for id in self.tags if self._above([id]) & {*tags}}

    def _note(self, method: str, id: int, query: Any, body: Any) -> tuple[int, Any]:
        notes = self.notes.setdefault(id, [])
        before = [*notes]
        if method == "GET":
            return 200, notes
        if id in self.forbidden:
            raise Answered(403, "Insufficient permissions to create notes")
        if method == "DELETE":
            notes[:] = [note for note in notes if note["id"] != int(query["id"])]
        else:
            number = 1 + max((n["id"] for some in self.notes.values() for n in some), default=0)
            user = {"id": 2, "username": "admin"}
            notes.append({"id": number, "note": body["note"], "user": user})
        self._touch(id)
        return 200, before  # the list was read before the change was made


def _page(rows: list[Any], query: Any) -> dict[str, Any]:
    size, page = int(query.get("page_size", 25)), int(query.get("page", 1))
    if page > 1 and (page - 1) * size >= len(rows):
        raise Answered(404, {"detail": "Invalid page."})
    has_next = page * size < len(rows)
    where = f"http://elsewhere.example/?page={page + 1}&page_size={size}" if has_next else None
    found = rows[(page - 1) * size : page * size]
    return {"count": len(rows), "next": where, "previous": None, "results": found}


@contextlib.contextmanager
def json_server(answer: Any, headers: dict[str, str] | None = None) -> Iterator[str]:
    """Serve JSON on the loopback: ``answer(method, path, headers, body)``; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            status, told, *more = answer(self.command, self.path, self.headers, body)
            content = b"" if told is None else json.dumps(told).encode()
            if "identity" not in self.headers.get("Accept-Encoding", ""):
                content = b"(zstd)"  # what a client gets that does not say that it cannot
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            for name, value in {**(headers or {}), **(more[0] if more else {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_DELETE = _do

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def serving_paperless(paperless: FakePaperless) -> Iterator[str]:
    """Serve it on the loopback; yield the address."""
    with json_server(paperless.answer, {"X-Version": "3.0.5", "X-Api-Version": "10"}) as url:
        yield url
