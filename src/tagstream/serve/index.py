"""The search index: all items with their words, in a database beside the log.

Everything in it follows from the log, the model of the beginning and the pool.  The writer brings
it up to date before it answers a change, so an item that was forgotten is gone at once.  If the
file is missing, damaged or of another log, it is made anew at the start.  If it cannot be written,
the service goes on without it and makes it anew later.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagstream.serve.log import Event, connect

__all__ = ["STATES", "Found", "Index", "Query"]

SCHEMA = 1
STATES = ("tagged", "applied", "waiting", "began", "untagged", "all")
MOST_COUNTED = 10_000
AGAIN_SECONDS = 60.0  # between two tries to make an index that cannot be written
_TABLES = """
CREATE TABLE known (position INTEGER NOT NULL, digest BLOB NOT NULL);
CREATE TABLE items (
    number INTEGER PRIMARY KEY,
    id     TEXT NOT NULL UNIQUE,
    rank   INTEGER NOT NULL,   -- position of the newest event; 0 without one
    time   REAL,
    who    TEXT NOT NULL,
    source TEXT NOT NULL,
    state  TEXT NOT NULL,      -- tagged, applied, began or waiting
    waits  INTEGER NOT NULL,   -- whether it is in the pool
    stamp  INTEGER NOT NULL    -- a checksum of what is in the pool
);
CREATE INDEX items_by_rank ON items (rank, number);
CREATE INDEX items_that_wait ON items (waits, number) WHERE waits;
CREATE TABLE tags (tag TEXT, item INTEGER, PRIMARY KEY (tag, item)) WITHOUT ROWID;
CREATE INDEX tags_of_item ON tags (item);
CREATE VIRTUAL TABLE texts USING fts5 (id, text, tokenize = "unicode61 remove_diacritics 2");
"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Query:
    """Which items are asked for; what is None or empty does not matter."""

    words: str = ""
    tag: str | None = None
    without_tag: str | None = None
    who: str | None = None
    source: str | None = None
    since: float | None = None
    until: float | None = None
    before: int | None = None
    state: str = ""


@dataclass(frozen=True)
class Found:
    """The ids that were found, where the next ones begin, and how many there are in all.

    ``capped`` says that there are more than ``n``.
    """

    ids: tuple[str, ...]
    next: tuple[int, int] | None
    n: int
    capped: bool


class Index:
    """The index of one folder.  The writer changes it; any thread asks.

    Parameters
    ----------
    path : Path
    read_only : bool
        For a replica: another process writes it.
    """

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self._connection: sqlite3.Connection | None = None
        self._tried = -AGAIN_SECONDS

    # ------------------------------------------------------------------ writing
    def open(self) -> tuple[int, bytes] | None:
        """Open the file; return the position and the digest that it knows, or None if it is new."""
        self.close()
        try:
            self._connection = connect(self.path)
            run = self._connection.execute
            run("PRAGMA journal_mode=WAL")
            run("PRAGMA synchronous=NORMAL")
            run("PRAGMA secure_delete=ON")
            if run("PRAGMA user_version").fetchone()[0] == SCHEMA:
                if run("PRAGMA quick_check(1)").fetchone()[0] == "ok":
                    position, digest = run("SELECT position, digest FROM known").fetchone()
                    return int(position), bytes(digest)
                logger.warning("%s is damaged, and made anew", self.path)
        except (sqlite3.Error, TypeError, ValueError) as error:
            logger.warning("%s cannot be read, and is made anew: %s", self.path, error)
        return None

    def begin_anew(self) -> None:
        """Make an empty index."""
        self.close()
        for ending in ("", "-wal", "-shm"):
            Path(f"{self.path}{ending}").unlink(missing_ok=True)
        self._connection = connect(self.path)
        run = self._connection.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=NORMAL")
        run("PRAGMA secure_delete=ON")
        self._connection.executescript(
            f"BEGIN; {_TABLES} INSERT INTO known VALUES (0, x''); PRAGMA user_version = {SCHEMA}; "
            "COMMIT;"
        )

    @property
    def is_broken(self) -> bool:
        """Whether it could not be written, and has to be made anew."""
        return self._connection is None

    def may_try(self) -> bool:
        """Return whether it is time to try to make a broken index anew."""
        now = time.monotonic()
        is_due = now - self._tried >= AGAIN_SECONDS
        self._tried = now if is_due else self._tried
        return is_due

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None

    @contextlib.contextmanager
    def writing(self, position: int, digest: bytes) -> Iterator[None]:
        """Make what is written inside take effect together; then the index knows a position.

        An index that cannot be written is closed.  That is no error: it can be made anew.
        """
        assert self._connection is not None
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute(
                "UPDATE known SET position = ?, digest = ?", (position, digest)
            )
            self._connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            logger.error("the search index cannot be written; it is made anew later: %s", error)
            self.close()
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    def _run(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        assert self._connection is not None
        return self._connection.execute(sql, values)

    def add(self, event: Event) -> None:
        """Take in an event, inside of :meth:`writing`."""
        if event.does.item == "sets":
            state = "applied" if event.kind == "auto" else "tagged"
            self.put(event.body, state, event)
        elif event.does.item == "drops":
            self._drop(str(event.item))
        for old, new in event.does.moves(event.body).items():
            if new is None:
                self._run("DELETE FROM tags WHERE tag = ?", (old,))
            elif new != old:
                self._run("UPDATE OR REPLACE tags SET tag = ? WHERE tag = ?", (new, old))

    def put(self, body: Mapping[str, Any], state: str, event: Event | None = None) -> None:
        """Put an item in, or replace it, inside of :meth:`writing`."""
        name = body["id"]
        number = self._number(name)
        at: tuple[Any, ...] = (0, None, "", "")
        if event is not None:
            at = (event.position, event.time, event.who, event.source)
        if number is None:
            new = "INSERT INTO items VALUES (NULL, ?, ?, ?, ?, ?, ?, 0, 0)"
            number = self._run(new, (name, *at, state)).lastrowid
        else:
            old = "UPDATE items SET rank = ?, time = ?, who = ?, source = ?, state = ?"
            self._run(f"{old} WHERE number = ?", (*at, state, number))
            self._run("DELETE FROM tags WHERE item = ?", (number,))
            self._run("DELETE FROM texts WHERE rowid = ?", (number,))
        self._run(
            "INSERT INTO texts (rowid, id, text) VALUES (?, ?, ?)",
            (number, name, body.get("text", "")),
        )
        for tag in dict.fromkeys(body.get("y") or ()):
            self._run("INSERT OR IGNORE INTO tags VALUES (?, ?)", (tag, number))

    def _number(self, name: str) -> int | None:
        found = self._run("SELECT number FROM items WHERE id = ?", (name,)).fetchone()
        return None if found is None else int(found[0])

    def _drop(self, name: str) -> None:
        number = self._number(name)
        if number is not None:
            self._run("DELETE FROM items WHERE number = ?", (number,))
            self._run("DELETE FROM tags WHERE item = ?", (number,))
            self._run("DELETE FROM texts WHERE rowid = ?", (number,))

    def set_waiting(self, name: str, body: Mapping[str, Any] | None) -> None:
        """Say that an item is in the pool, with what, or that it is not, inside a writing."""
        row = self._run("SELECT state, stamp FROM items WHERE id = ?", (name,)).fetchone()
        if body is None:
            if row is not None and row[0] == "waiting":
                self._drop(name)
            else:
                self._run("UPDATE items SET waits = 0, stamp = 0 WHERE id = ?", (name,))
            return
        stamp = _stamp(body)
        if row is None or (row[0] == "waiting" and row[1] != stamp):
            self.put({"id": name, **body}, "waiting")
        self._run("UPDATE items SET waits = 1, stamp = ? WHERE id = ?", (stamp, name))

    def not_as(self, pool: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return the items of which the index and the pool do not say the same."""
        there = dict(self._run("SELECT id, stamp FROM items WHERE waits").fetchall())
        changed = [name for name, body in pool.items() if there.get(name) != _stamp(body)]
        return [*changed, *(name for name in there if name not in pool)]

    # ------------------------------------------------------------------ asking
    def find(self, query: Query, n: int, after: tuple[int, int] | None = None) -> Found:
        """Return items, newest first.

        Raises
        ------
        OSError
            There is no index now.
        """
        where, values = _conditions(query)
        some = f"SELECT number, id, rank FROM items i WHERE {where}"
        start = "" if after is None else " AND (rank, number) < (?, ?)"
        place = after or ()
        with self._asking() as run:
            rows = run(
                f"{some}{start} ORDER BY rank DESC, number DESC LIMIT ?", (*values, *place, n + 1)
            ).fetchall()
            count = f"SELECT count(*) FROM (SELECT 1 FROM items i WHERE {where} LIMIT ?)"
            total = int(run(count, (*values, MOST_COUNTED + 1)).fetchone()[0])
        more = (rows[n - 1][2], rows[n - 1][0]) if len(rows) > n else None
        ids = tuple(str(row[1]) for row in rows[:n])
        return Found(ids, more, min(total, MOST_COUNTED), total > MOST_COUNTED)

    def overlap(self, tags: Sequence[str], n: int) -> tuple[dict[str, int], int, int, list[str]]:
        """Return the items of each tag, of any of them, of several, and some ids of the latter.

        Raises
        ------
        OSError
            There is no index now.
        """
        among = f"tag IN ({', '.join('?' * len(tags))})"
        with self._asking() as run:
            each = f"SELECT tag, count(*) FROM tags WHERE {among} GROUP BY tag"
            counts = {tag: int(k) for tag, k in run(each, tags)}
            several = f"SELECT item FROM tags WHERE {among} GROUP BY item HAVING count(*) > 1"
            n_any = run(f"SELECT count(DISTINCT item) FROM tags WHERE {among}", tags).fetchone()[0]
            n_both = run(f"SELECT count(*) FROM ({several})", tags).fetchone()[0]
            some = f"SELECT id FROM items WHERE number IN ({several}) ORDER BY rank DESC LIMIT ?"
            examples = [str(row[0]) for row in run(some, (*tags, n))]
        return {tag: counts.get(tag, 0) for tag in tags}, int(n_any), int(n_both), examples

    @contextlib.contextmanager
    def _asking(self) -> Iterator[Any]:
        if not self.path.exists() or (self._connection is None and not self.read_only):
            raise OSError("there is no search index now")
        try:
            with contextlib.closing(connect(f"{self.path.absolute().as_uri()}?mode=ro")) as asked:
                asked.execute("BEGIN")
                yield asked.execute
        except sqlite3.Error as error:
            raise OSError(f"the search index cannot be read: {error}") from error


def _stamp(body: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode()) or 1


def _conditions(query: Query) -> tuple[str, tuple[Any, ...]]:
    """Return the conditions of a query in SQL, and their values."""
    found: list[tuple[str, Iterable[Any]]] = []
    has = "EXISTS (SELECT 1 FROM tags t WHERE t.item = i.number"
    if query.words:
        match = match_of(query.words)
        if match:
            found.append(("number IN (SELECT rowid FROM texts WHERE texts MATCH ?)", [match]))
        else:
            found.append(("0", []))  # signs only
    if query.tag is not None:
        found.append((f"{has} AND t.tag = ?)", [query.tag]))
    if query.without_tag is not None:
        found.append((f"NOT {has} AND t.tag = ?)", [query.without_tag]))
    for name, value in (("who", query.who), ("source", query.source)):
        if value is not None:
            found.append((f"{name} = ?", [value]))
    if query.since is not None:
        found.append(("time >= ?", [query.since]))
    if query.until is not None:
        found.append(("time < ?", [query.until]))
    if query.before is not None:
        found.append(("rank > 0 AND rank < ?", [query.before]))
    if query.state in ("tagged", "applied", "began"):
        found.append(("state = ?", [query.state]))
    elif query.state == "untagged":
        found.append((f"state = 'tagged' AND NOT {has})", []))
    elif query.state == "waiting":
        found.append(("waits", []))
    elif query.state != "all":
        found.append(("state != 'waiting'", []))
    where = " AND ".join(condition for condition, _ in found) or "1"
    return where, tuple(value for _, values in found for value in values)


def match_of(words: str) -> str:
    """Return what somebody typed as FTS5 takes it: all words, phrases in quotes, a last prefix.

    Examples
    --------
    >>> match_of('sort "in place" li'), match_of('c++ "'), match_of('say "a b"')
    ('"sort" "in place" "li"*', '"c++"*', '"say" "a b"')
    """
    parts: list[str] = []
    is_phrase = False
    words = words.replace("\0", " ")  # where SQLite ends a text
    for phrase, word in re.findall(r'"([^"]*)"|([^\s"]+)', words):
        is_phrase = not word
        if any(letter.isalnum() for letter in phrase or word):
            parts.append(f'"{phrase or word}"')
    ends_open = bool(parts) and not is_phrase and not words[-1:].isspace()
    return " ".join(parts) + ("*" if ends_open else "")
