"""Imports: files of any size, put into the pool or learnt in whole groups of 1,000 rows.

An import has a name.  Each group is committed together with an event that says how far the import
has come, and a digest of all rows so far.  So a file that broke off can be sent again under its
name: what is there already is passed over, and another file is noticed.
"""

from __future__ import annotations

import hashlib
import io
import json
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pydantic import ValidationError

from tagstream.records.cells import FileRow
from tagstream.records.record import split_tags
from tagstream.serve import schema
from tagstream.serve.changes import Busy, Change, Done, Refused
from tagstream.serve.log import Event

__all__ = ["Columns", "Feed", "Imports", "Report", "Started", "columns_of", "guess", "run_import"]

GROUP_ROWS = 1000
SHOWN = 20  # rows of a preview, and bad rows that are named
SAMPLES = 5
CHUNKS = 16  # parts of a body that wait to be read
# Names of columns, the likeliest first.
ID_NAMES = ("id", "key", "uuid", "number", "nr")
TEXT_NAMES = ("text", "title", "body", "content", "description", "subject", "message", "name")
TAG_NAMES = ("tags", "labels", "y", "tag", "label", "categories", "category", "keywords")
SEPARATORS = ("|", ";", ",")


@dataclass(frozen=True)
class Columns:
    """What each column of a file is.

    Attributes
    ----------
    id : str
        Identifiers; without one, an item is called after the import and its row.
    text : tuple of str
        Texts, which are joined by a line end.
    x : tuple of str
        Numbers, in place of a text.
    tags, no : str
        Tags that an item has, and that it does not have; "" if there is no such column.
    separator : str
        What stands between tags.
    """

    id: str = ""
    text: tuple[str, ...] = ("text",)
    x: tuple[str, ...] = ()
    tags: str = ""
    no: str = ""
    separator: str = "|"

    def body(self, row: FileRow, name: str, number: int) -> dict[str, Any]:
        """Return the item of a row; without ``y`` if nothing is said about its tags.

        Raises
        ------
        ValueError
            It is not one; the message says why.
        """
        if row.problem:
            raise ValueError(row.problem)
        cells = row.cells
        item: dict[str, Any] = {"id": f"{name}:{number}"}
        if self.id and cells.get(self.id) not in (None, ""):
            item["id"] = cells[self.id]
        if not self.x and "x" in cells and not any(column in cells for column in self.text):
            item["x"] = cells["x"]
        elif self.x:
            item["x"] = {column: _number(column, cells.get(column)) for column in self.x}
        else:
            parts = (cells.get(column) for column in self.text)
            item["text"] = "\n".join(str(part) for part in parts if part not in (None, ""))
        y = self._tags(cells.get(self.tags)) if self.tags else None
        no = self._tags(cells.get(self.no)) if self.no else None
        if no:
            item["no"] = no
        try:
            if y is None and not no:
                return _named(item)
            return schema.TaggedItem(**item, y=y).body()
        except ValidationError as error:
            raise ValueError(schema.error_of(error.errors())[1]) from None

    def _tags(self, cell: Any) -> list[str] | None:
        """Return the tags of a cell; None if it is empty."""
        if cell is None or cell == "":
            return None
        if isinstance(cell, list):
            return [str(tag).strip() for tag in cell]
        return [*split_tags(str(cell), self.separator)]


def _named(item: dict[str, Any]) -> dict[str, Any]:
    made = schema.NamedItem(**item)
    return {"id": made.id, **made.record()}


def _number(column: str, cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        raise ValueError(f"{column} must be a number, got {cell!r}") from None


# ---------------------------------------------------------------------- what is known
@dataclass
class Started:
    """An import: how many rows it has committed, and the digests at the ends of its groups."""

    name: str
    way: str
    who: str
    rows: int = 0
    n: int = 0
    time: float = 0.0
    marks: dict[int, str] = field(default_factory=dict)


class Imports:
    """The imports of a log.  The writer adds; any thread asks."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._known: dict[str, Started] = {}
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Take in an event; only those of imports say something."""
        if event.kind != "import":
            return
        body = event.body
        known = self._known.pop(body["import"], None) or Started(
            body["import"], body["as"], event.who
        )
        known.rows, known.time = body["last"], event.time
        known.n += body["n"]
        known.marks[body["last"]] = body["digest"]
        self._known[body["import"]] = known

    def get(self, name: str) -> Started | None:
        """Return an import by its name."""
        return self._known.get(name)

    def last(self, n: int) -> list[Started]:
        """Return the imports that went on last, the newest first."""
        return [*self._known.values()][: -n - 1 : -1]


# ---------------------------------------------------------------------- doing it
@dataclass
class Report:
    """What an import has done so far."""

    rows: int = 0
    n: int = 0
    duplicates: int = 0
    n_bad: int = 0
    position: int = 0
    bad: list[dict[str, Any]] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "lines": self.rows,
            "n": self.n,
            "duplicates": self.duplicates,
            "n_bad": self.n_bad,
            "bad": self.bad,
            "position": self.position,
        }


def run_import(
    rows: Iterator[FileRow],
    name: str,
    way: str,
    columns: Columns,
    known: Started | None,
    submit: Callable[[Change], Future[Done]],
    skips_bad: bool = False,
) -> Report:
    """Commit rows in whole groups; return what was done.

    Parameters
    ----------
    rows : iterator of FileRow
    name : str
    way : {"waiting", "learnt"}
        Where items with tags go.  Items without always wait.
    columns : Columns
    known : Started, optional
        How far the import came before.
    submit : callable
        Queues a change.
    skips_bad : bool
        Pass over rows that are no items, and name the first of them.

    Raises
    ------
    Refused
        A row is no item, or the name stands for another file.  Groups before it are committed.
    """
    if known is not None and known.way != way:
        raise Refused(f"as must be {known.way} as before, got {way}", "as", 409)
    report, digest = Report(), hashlib.sha256(repr(columns).encode())
    done = 0 if known is None else known.rows
    while group := _group(rows, report, known):
        first = report.rows + 1
        for row in group:
            digest.update(json.dumps([row.cells, row.problem], default=str).encode())
        last, mark = first + len(group) - 1, digest.hexdigest()
        if last <= done and known is not None:
            if known.marks.get(last) != mark:
                words = f"name must be new for another file, got {name!r}"
                raise Refused(words, "name", 409, {"lines": done})
            report.duplicates += len(group)
            report.rows = last
            continue
        items = _items(group, name, first, columns, report, skips_bad)
        body = {"import": name, "as": way, "first": first, "last": last, "digest": mark}
        change = Change("import", [{**body, "items": items}], [None], source="import")
        made = _patiently(submit, change)
        report.rows, report.position = last, made.position
        report.n += made.n
        report.duplicates += made.duplicates
    return report


def _group(rows: Iterator[FileRow], report: Report, known: Started | None) -> list[FileRow]:
    """Return the next rows; groups that were committed before keep their ends."""
    ends = sorted(last for last in (known.marks if known else ()) if last > report.rows)
    n = ends[0] - report.rows if ends else GROUP_ROWS
    return [*islice(rows, n)]


def _items(
    group: Sequence[FileRow],
    name: str,
    first: int,
    columns: Columns,
    report: Report,
    skips_bad: bool,
) -> list[dict[str, Any]]:
    items = []
    for number, row in enumerate(group, first):
        item, problem = _item(row, name, number, columns)
        if not problem:
            items.append(item)
            continue
        if not skips_bad:
            more = {"line": row.number, "lines": report.rows}
            raise Refused(f"line {row.number}: {problem}", "", 422, more)
        report.n_bad += 1
        if len(report.bad) < SHOWN:
            report.bad.append({"line": row.number, "error": problem})
    return items


def _item(row: FileRow, name: str, number: int, columns: Columns) -> tuple[dict[str, Any], str]:
    """Return the item of a row, and what is wrong with it."""
    try:
        return columns.body(row, name, number), ""
    except ValueError as error:
        return {}, str(error)


def _patiently(submit: Callable[[Change], Future[Done]], change: Change) -> Done:
    """Make a change, and wait while others fill the queue."""
    while True:
        try:
            return submit(change).result()
        except Busy as error:  # noqa: PERF203 - it waits anyway
            time.sleep(max(error.retry_after, 1) / 10)


# ---------------------------------------------------------------------- a body as a file
class Feed(io.RawIOBase):
    """A file that is read in one thread while another one feeds it."""

    name = "<body>"

    def __init__(self) -> None:
        self._parts: queue.Queue[bytes | OSError | None] = queue.Queue(CHUNKS)
        self._rest = b""
        self._is_left = False

    def feed(self, part: bytes | OSError | None) -> None:
        """Add a part; None at the end, an error if there is no more though it is not the end."""
        while not self._is_left and not self._put(part):
            pass

    def _put(self, part: bytes | OSError | None) -> bool:
        try:
            self._parts.put(part, timeout=0.1)
        except queue.Full:
            return False
        return True

    def leave(self) -> None:
        """Read no more; whoever feeds it need not wait."""
        self._is_left = True

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes; 0 at the end."""
        if not self._rest:
            part = self._parts.get()
            if isinstance(part, OSError):
                self._parts.put(part)
                raise part
            if not part:
                self._parts.put(None)
                return 0
            self._rest = part
        n = min(len(buffer), len(self._rest))
        buffer[:n], self._rest = self._rest[:n], self._rest[n:]
        return n


# ---------------------------------------------------------------------- a preview
def columns_of(rows: Sequence[FileRow]) -> list[dict[str, Any]]:
    """Return the columns of some rows, with examples of what stands in them."""
    names = dict.fromkeys(name for row in rows for name in row.cells)
    return [{"name": name, "samples": _samples(rows, name)} for name in names]


def _samples(rows: Sequence[FileRow], name: str) -> list[str]:
    cells = (row.cells.get(name) for row in rows)
    told = (c if isinstance(c, str) else json.dumps(c) for c in cells if c not in (None, ""))
    return [*islice(dict.fromkeys(text[:200] for text in told), SAMPLES)]


def guess(rows: Sequence[FileRow]) -> dict[str, Any]:
    """Return what the columns of some rows probably are.

    Examples
    --------
    >>> guess([FileRow(2, {"nr": "7", "title": "Low tide", "labels": "sea;mud"})])
    {'id': 'nr', 'text': ['title'], 'tags': 'labels', 'separator': ';'}
    """
    names = [*dict.fromkeys(name for row in rows for name in row.cells)]
    found: dict[str, Any] = {}
    by_lower = {name.lower(): name for name in names}
    tags = next((by_lower[name] for name in TAG_NAMES if name in by_lower), None)
    called = next((by_lower[name] for name in ID_NAMES if name in by_lower), None)
    if called is not None:
        found["id"] = called
    left = [name for name in names if name not in (tags, called)]
    texts = [by_lower[name] for name in TEXT_NAMES if by_lower.get(name) in left]
    longest = sorted(left, key=lambda name: -_length(rows, name))
    found["text"] = texts[:1] or longest[:1]
    if tags is not None:
        found["tags"] = tags
    found["separator"] = _separator(rows, tags)
    return found


def _length(rows: Sequence[FileRow], name: str) -> int:
    return sum(len(str(row.cells.get(name) or "")) for row in rows)


def _separator(rows: Sequence[FileRow], tags: str | None) -> str:
    cells = [row.cells.get(tags) for row in rows] if tags is not None else []
    told = [cell for cell in cells if isinstance(cell, str)]
    return max(SEPARATORS, key=lambda sep: sum(sep in text for text in told))
