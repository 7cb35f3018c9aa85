"""The event log: every change of the tagger, in SQLite, committed before it is acknowledged.

Events are numbered 1, 2, 3, …; this number is the *position*.  The state of the service is a
function of the events in order, so the log is the truth and everything else can be made again from
it.  No event is ever changed or removed.  If the tagger could not take an event, a later event
voids it, and a replay passes it over.

Schema 2.  ``events`` holds the events.  Two tables follow from it: ``items`` says which event holds
the newest state of an item, ``voided`` which events a replay passes over.  ``pool`` holds items
that wait for tags.  The events of one transaction are a *group*.  The last event of a group carries
a SHA-256 of the group and of the digest before it, so the digests form a chain, and a missing or
changed event breaks it.  Each event also has a checksum of its own, so that one event can be read
without the others.

The database is in WAL mode with ``synchronous=FULL``: a commit is on the disk when it returns, and
SQLite drops a commit that was torn by a crash as a whole.  This module notices damage of the disk;
:mod:`tagstream.serve.recovery` mends it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import sqlite3
import tempfile
import threading
import time
import zlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tagstream.serve.kinds import KINDS, Kind

__all__ = ["SCHEMA", "Damaged", "Event", "EventLog", "LogFull", "Row", "connect", "read_rows"]

SCHEMA = 2
# A second process that only reads (an export) may hold the database for a moment.
BUSY_SECONDS = 10.0
# A change can be undone as long as it is among the last so many events.
UNDONE = 100_000
# The digest before the first group.
GENESIS = b"tagstream log, schema 2"

_TABLES = (
    """CREATE TABLE events (
        position  INTEGER PRIMARY KEY,
        key       TEXT NOT NULL UNIQUE,
        time      REAL NOT NULL,
        kind      TEXT NOT NULL,
        who       TEXT NOT NULL,
        source    TEXT NOT NULL,
        item      TEXT,
        body      TEXT NOT NULL,
        suggested TEXT,
        refused   TEXT,
        checksum  INTEGER NOT NULL,
        digest    BLOB
    )""",
    "CREATE INDEX events_of_item ON events (item, position) WHERE item IS NOT NULL",
    "CREATE INDEX events_of_kind ON events (kind, position) WHERE kind != 'learn'",
    "CREATE TABLE voided (position INTEGER PRIMARY KEY, kind TEXT NOT NULL, why TEXT NOT NULL)",
    "CREATE TABLE items (id TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX items_by_position ON items (position)",
    # "taken" is the position of the event that gave the item tags.
    """CREATE TABLE pool (
        number INTEGER PRIMARY KEY,
        id     TEXT NOT NULL UNIQUE,
        body   TEXT NOT NULL,
        taken  INTEGER
    )""",
    "CREATE INDEX pool_taken ON pool (taken) WHERE taken IS NOT NULL",
)

logger = logging.getLogger(__name__)


class LogFull(OSError):
    """The event could not be written; nothing was changed."""


class Damaged(OSError):
    """The log is not what was written, or events are missing."""


class Row(NamedTuple):
    """The columns of an event that are written once; checksum and digest are made of them."""

    position: int
    key: str
    time: float
    kind: str
    who: str
    source: str
    item: str | None
    body: str
    suggested: str | None
    refused: str | None

    def packed(self) -> bytes:
        """Return the row as bytes."""
        return _dumps(self).encode()

    def covers(self, position: int) -> bool:
        """Return whether it may follow an event: it is the next one, or the gap after it."""
        if self.position == position + 1:
            return True
        return self.kind == "gap" and bool(json.loads(self.body)["first"] <= position + 1)


_N = len(Row._fields)
_EVENTS = f"SELECT {', '.join(f'e.{name}' for name in Row._fields)}, e.checksum, v.kind, v.why FROM"
_VALID = "e.refused IS NULL AND v.position IS NULL"
_VOIDED = "LEFT JOIN voided v ON v.position = e.position"
_NOTES = ", ".join(f"'{name}'" for name, kind in KINDS.items() if kind.item == "notes")
_CHANGES_ITEM = f"e.kind NOT IN ({_NOTES})"
_STATES = f"{_EVENTS} items i JOIN events e ON e.position = i.position {_VOIDED}"
_EVENTS = f"{_EVENTS} events e {_VOIDED}"


@dataclass(frozen=True)
class Event:
    """One change.

    Attributes
    ----------
    kind : str
        What it does, see :data:`tagstream.serve.kinds.KINDS`.
    key : str
        Unique; an event whose key is known is not written again.
    body : dict
        All that is needed to do it again: ``id``, ``text`` or ``x``, ``y`` (learn); ``id``
        (forget); ``old``, ``new`` (rename); ``tags``, ``into`` (merge); ``tag`` (remove);
        ``position``, ``why`` (quarantine, reject); ``first``, ``last``, ``why`` (gap).
    suggested : list of str, optional
        Learn: what was suggested for the item before it was learnt, if it was new.
    refused : str, optional
        Why a replay passes it over: the words of the tagger, or nothing ("") if there was nothing
        to do.
    position : int
        Its number; 0 before it is written.
    time : float
        When it was made: seconds since 1970.
    who : str
        Who made it: the name of a token, or ``local``.  Empty if that is not known.
    source : str
        What it came through, such as ``page``, ``http``, ``label studio`` or ``command``.
    is_quarantined : bool
        Whether a replay passes it over because the tagger failed on it.
    """

    kind: str
    key: str
    body: dict[str, Any]
    suggested: list[str] | None = None
    refused: str | None = None
    position: int = 0
    time: float = field(default_factory=time.time)
    who: str = ""
    source: str = ""
    is_quarantined: bool = False

    @property
    def does(self) -> Kind:
        """What its kind does; of an unknown kind only that it changes the tagger is known."""
        return KINDS.get(self.kind, Kind())

    @property
    def item(self) -> str | None:
        """The item that it is about, if it is about one."""
        return self.body["id"] if self.does.item else None

    def line(self) -> dict[str, Any]:
        """Return the event as a line of the exported log.

        Examples
        --------
        >>> Event("learn", "k", {"id": "7", "text": "sort a list", "y": ["python"]}).line()
        {'id': '7', 'text': 'sort a list', 'y': ['python']}
        >>> Event("rename", "k", {"old": "a", "new": "b"}).line()
        {'event': 'rename', 'old': 'a', 'new': 'b'}
        """
        return self.body if self.kind == "learn" else {"event": self.kind, **self.body}

    def row(self, position: int) -> Row:
        """Return its row in the table."""
        told = None if self.suggested is None else _dumps(self.suggested)
        return Row(
            position, self.key, float(self.time), self.kind, self.who, self.source, self.item,
            _dumps(self.body), told, self.refused,
        )  # fmt: skip


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _is_whole(row: Row, checksum: Any) -> bool:
    try:
        return bool(zlib.crc32(row.packed()) == checksum)
    except (TypeError, ValueError):
        return False


def _is_whole_1(row: Row, checksum: Any) -> bool:
    """Return whether a row of schema 1 is what was written."""
    try:
        json.loads(row.suggested or "null")
        told = "\x1f".join((str(row.position), row.key, row.kind, row.body)).encode()
        return bool(zlib.crc32(told) == checksum and isinstance(row.time, float))
    except (TypeError, ValueError):
        return False


def _event(found: tuple[Any, ...]) -> Event:
    """Return the event of a row of ``_EVENTS``.

    Raises
    ------
    Damaged
        It is not what was written.
    """
    row, (checksum, voided_by, why) = Row(*found[:_N]), found[_N:]
    if not _is_whole(row, checksum):
        raise Damaged(f"event {row.position} is not what was written")
    return Event(
        row.kind, row.key, json.loads(row.body),
        None if row.suggested is None else json.loads(row.suggested),
        row.refused if why is None else why, row.position, row.time, row.who, row.source,
        is_quarantined=voided_by == "quarantine",
    )  # fmt: skip


def read_rows(
    connection: sqlite3.Connection, schema: int = SCHEMA, table: str = "events", order: str = ""
) -> Iterator[tuple[Row, bool, bytes | None]]:
    """Yield all rows, in the order of positions: the row, whether it is whole, its digest."""
    names = ", ".join(Row._fields)
    if schema == 1:  # it kept neither who nor source, and had no digests
        names = names.replace("who, source", "'', ''")
    last = ", NULL" if schema == 1 else ", digest"
    is_whole = _is_whole_1 if schema == 1 else _is_whole
    for found in connection.execute(
        f"SELECT {names}, checksum{last} FROM {table} ORDER BY position {order}"
    ):
        row = Row(*found[:_N])
        yield row, is_whole(row, found[_N]), found[_N + 1]


def read_pool(
    connection: sqlite3.Connection, table: str = "pool", where: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the items that wait for tags; an item that is no JSON any more is left out."""
    for name, body in connection.execute(f"SELECT id, body FROM {table} {where} ORDER BY number"):
        with contextlib.suppress(ValueError):
            yield name, json.loads(body)


def _decoded(text: bytes) -> str:
    """Return a text of the database; one that is no UTF-8 any more fails its checksum."""
    return text.decode("utf-8", "replace")


def connect(target: Path | str) -> sqlite3.Connection:
    """Return a connection to a path or a URI that any thread may use, one at a time."""
    connection = sqlite3.connect(
        target,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        uri=isinstance(target, str),
    )
    connection.text_factory = _decoded
    return connection


class EventLog:
    """The log of one folder.  One thread writes; any thread reads.

    Parameters
    ----------
    path : Path
        The database; made if it is not there.  A log of schema 1 is upgraded, in one transaction.
    read_only : bool
        Beside a service that runs, or in a folder that cannot be written: nothing is changed.

    Attributes
    ----------
    position : int
        Position of the last committed event.
    is_copy : bool
        Whether it reads a copy of its own, because the file could not be read as it is.

    Raises
    ------
    Damaged
        The database is damaged.  :func:`tagstream.serve.recovery.open_log` mends it.
    OSError
        It cannot be opened, or a newer version has written it.

    Examples
    --------
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = EventLog(Path(folder.name) / "events.db")
    >>> with log.transaction():
    ...     log.append(Event("learn", "first", {"id": "7", "text": "sort a list", "y": ["python"]}))
    1
    >>> log.find_key("first").position, log.newest("7").body["text"]
    (1, 'sort a list')
    >>> log.close(); folder.cleanup()
    """

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self.path = path
        self.is_copy = False
        self.position = 0
        self._target: Path | str = path
        self._temporary: str | None = None
        self._told: set[int] = set()  # damaged events that were told of
        self._readers = threading.local()
        self._open_readers: list[sqlite3.Connection] = []
        self._connection: sqlite3.Connection
        self._chain = GENESIS
        self._group = hashlib.sha256(GENESIS)
        self._n_in_group = 0
        try:
            if read_only:
                self._open_to_read()
            else:
                self._open()
            self.position = self.last_position()
            self._chain = self._last_digest()
        except sqlite3.DatabaseError as error:
            self.close()
            if isinstance(error, sqlite3.OperationalError) and not _is_damage(error):
                raise OSError(f"{path}: {error}") from error
            raise Damaged(f"{path} is damaged: {error}") from error
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------ opening
    def _open(self) -> None:
        self._connection = connect(self._target)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        version = self._version()
        found = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise Damaged(f"{self.path} is damaged: {found}")
        if version < SCHEMA:
            self._upgrade(version)

    def _open_to_read(self) -> None:
        """Open the file, or a copy if it is of schema 1 or its folder cannot be written."""
        try:
            self._connection = self._reader()
            version = self._version()
        except sqlite3.OperationalError:
            if os.access(self.path.parent, os.W_OK):
                raise
            self._close_readers()
            if not Path(f"{self.path}-wal").exists():  # all is in the file, and nobody writes
                self._target = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
                self._connection = self._reader()
                version = self._version()
            else:
                version = 0
        if version < SCHEMA:
            self._read_copy()

    def _read_copy(self) -> None:
        """Read a copy of the file, which is removed at the end."""
        self._close_readers()
        self.is_copy = True
        self._temporary = tempfile.mkdtemp(prefix="tagstream-")
        copy = Path(self._temporary) / "events.db"
        if os.access(self.path.parent, os.W_OK):  # a service may be writing it
            old, new = connect(self.path), connect(copy)
            with contextlib.closing(old), contextlib.closing(new):
                old.backup(new)
        else:
            for ending in ("", "-wal"):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(f"{self.path}{ending}", f"{copy}{ending}")
        self._target = copy
        self._open()

    def _version(self) -> int:
        version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        if version > SCHEMA:
            raise OSError(
                f"{self.path} must be of schema {SCHEMA} or older, got {version}: a newer version "
                "has written it; install a newer tagstream. Nothing was changed."
            )
        return version

    def _upgrade(self, version: int) -> None:
        """Make the tables, and fill them with the events of schema 1: all or nothing."""
        run = self._connection.execute
        with self.transaction():
            if version == 1:
                logger.info("%s: upgrading the log to schema %d", self.path, SCHEMA)
                run("ALTER TABLE events RENAME TO events_1")
                run("ALTER TABLE pool RENAME TO pool_1")
            for name in ("events_of_item", "events_of_tags", "items_by_position"):
                run(f"DROP INDEX IF EXISTS {name}")
            # A start of schema 1 that was killed may have left some tables without a version.
            for name in ("events", "items", "pool"):
                run(f"DROP TABLE IF EXISTS {name}")
            for statement in _TABLES:
                run(statement)
            if version == 1:
                for row, is_whole, _ in read_rows(self._connection, 1, "events_1"):
                    if not is_whole:
                        raise Damaged(f"{self.path} is damaged: event {row.position}")
                    self.copy(row, "an earlier version lost these events")
                    self.end_group()
                self.put_in_pool([*read_pool(self._connection, "pool_1")])
                run("DROP TABLE events_1")
                run("DROP TABLE pool_1")
            run(f"PRAGMA user_version = {SCHEMA}")

    def last_position(self) -> int:
        """Return the position of the last event that is committed, by anyone."""
        found = self._connection.execute("SELECT max(position) FROM events").fetchone()[0]
        return int(found or 0)

    def _last_digest(self) -> bytes:
        found = self._connection.execute(
            "SELECT digest FROM events ORDER BY position DESC LIMIT 1"
        ).fetchone()
        return GENESIS if found is None else found[0] or b""

    def digest_at(self, position: int) -> bytes:
        """Return the digest of the group that ends at a position; empty if there is none."""
        found = self._fetch("SELECT digest FROM events WHERE position = ?", (position,), own=False)
        return b"" if not found else found[0][0] or b""

    def close(self) -> None:
        """Close the database; what was committed is in one file then."""
        self._close_readers()
        if hasattr(self, "_connection"):
            self._connection.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _close_readers(self) -> None:
        for connection in self._open_readers:
            connection.close()
        self._open_readers.clear()
        self._readers = threading.local()

    # ------------------------------------------------------------------ writing
    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all that is written inside durable together, or nothing of it.

        Raises
        ------
        LogFull
            The disk is full or cannot be written; nothing was changed.
        """
        before = self.position, self._chain
        self._begin_group(self._chain)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self.end_group()
            self._connection.execute("COMMIT")
        except BaseException as error:
            self.position, self._chain = before
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                raise LogFull(f"the event log cannot be written: {error}") from error
            raise

    def append(self, event: Event) -> int:
        """Write an event, inside a transaction; return its position."""
        self._insert(event.row(self.position + 1), event)
        return self.position

    def append_gap(self, first: int, last: int, why: str) -> None:
        """Write that events are lost, inside a transaction; the next position is behind them."""
        body = {"first": first, "last": last, "why": why}
        event = Event("gap", f"gap:{first}:{last}:{self.position}", body, source="service")
        self._insert(event.row(max(last, self.position + 1)), event)

    def copy(self, row: Row, why_gap: str) -> None:
        """Write a row of another log at its own position, inside a transaction."""
        if not row.covers(self.position):
            self.append_gap(self.position + 1, row.position - 1, why_gap)
        event = Event(row.kind, row.key, json.loads(row.body), refused=row.refused)
        self._insert(row, event)

    def _insert(self, row: Row, event: Event) -> None:
        packed = row.packed()
        marks = ", ".join("?" * (_N + 1))
        self._connection.execute(
            f"INSERT INTO events ({', '.join(Row._fields)}, checksum) VALUES ({marks})",
            (*row, zlib.crc32(packed)),
        )
        self._group.update(packed)
        self._n_in_group += 1
        self.position = row.position
        if event.does.voids:
            self._void(event.body["position"], event.kind, event.body["why"])
        elif event.does.item in ("sets", "drops") and event.refused is None:
            self._connection.execute("DELETE FROM items WHERE id = ?", (event.item,))
            if event.does.item == "sets":
                at = (event.item, row.position)
                self._connection.execute("INSERT INTO items VALUES (?, ?)", at)
                if "y" in event.body:  # an item of which only refusals are known goes on waiting
                    self._take(self.position, str(event.item))

    def _take(self, position: int, item: str) -> None:
        """Say that an item of the pool has its tags by an event; the first one counts."""
        self._connection.execute(
            "UPDATE pool SET taken = ? WHERE id = ? AND taken IS NULL", (position, item)
        )

    def _void(self, position: int, kind: str, why: str) -> None:
        """Let a replay pass an event over, and undo what it did to the tables."""
        run = self._connection.execute
        run("INSERT OR REPLACE INTO voided VALUES (?, ?, ?)", (position, kind, why))
        run("UPDATE pool SET taken = NULL WHERE taken = ?", (position,))
        found = run("SELECT item FROM events WHERE position = ?", (position,)).fetchone()
        item = None if found is None else found[0]
        if item is None:
            return
        run("DELETE FROM items WHERE id = ?", (item,))
        before = run(
            f"SELECT e.position, e.kind, e.body FROM events e {_VOIDED} "
            f"WHERE e.item = ? AND {_CHANGES_ITEM} AND e.refused IS NULL AND v.position IS NULL "
            "ORDER BY e.position DESC LIMIT 1",
            (item,),
        ).fetchone()
        if before is not None and KINDS[before[1]].item == "sets":
            run("INSERT INTO items VALUES (?, ?)", (item, before[0]))
            if "y" in json.loads(before[2]):
                self._take(before[0], item)

    def _begin_group(self, chain: bytes) -> None:
        self._chain = chain
        self._group = hashlib.sha256(chain)
        self._n_in_group = 0

    def end_group(self) -> None:
        """End the group with its digest; a transaction does it at its end."""
        if self._n_in_group:
            digest = self._group.digest()
            self._connection.execute(
                "UPDATE events SET digest = ? WHERE position = ?", (digest, self.position)
            )
            self._begin_group(digest)

    def put_in_pool(self, items: Iterable[tuple[str, dict[str, Any]]]) -> int:
        """Add items that wait for tags, or replace them, inside a transaction.

        Return how many are not there like that already.
        """
        n_before = self._connection.total_changes
        for name, body in items:
            self._connection.execute(
                "INSERT INTO pool (id, body) VALUES (?, ?) ON CONFLICT (id) DO UPDATE "
                "SET body = excluded.body, taken = NULL "
                "WHERE body != excluded.body OR taken IS NOT NULL",
                (name, _dumps(body)),
            )
        return self._connection.total_changes - n_before

    def take_from_pool(self, ids: Iterable[str]) -> int:
        """Remove items from the pool, inside a transaction; return how many were there."""
        n = 0
        for name in ids:
            there = "DELETE FROM pool WHERE id = ? AND taken IS NULL"
            n += self._connection.execute(there, (name,)).rowcount
        return n

    def settle(self, ids: Iterable[str], position: int) -> None:
        """Say that items of the pool have their tags by an event, inside a transaction."""
        for name in ids:
            self._take(position, name)

    def tidy_pool(self) -> None:
        """Drop items that have had their tags for long, inside a transaction.

        Others are kept aside, for whoever takes the tags back.
        """
        self._connection.execute("DELETE FROM pool WHERE taken < ?", (self.position - UNDONE,))

    def wait_again(self, first: int, last: int) -> list[tuple[str, dict[str, Any]]]:
        """Put the items back in the pool that some events took from it, inside a transaction."""
        where = "WHERE taken BETWEEN ? AND ?"
        run = self._connection.execute
        rows = run(f"SELECT id, body FROM pool {where}", (first, last)).fetchall()
        run(f"UPDATE pool SET taken = NULL {where}", (first, last))
        return [(name, json.loads(body)) for name, body in rows]

    # ------------------------------------------------------------------ reading
    def _reader(self) -> sqlite3.Connection:
        """Return the connection of this thread, which sees what is committed."""
        connection = getattr(self._readers, "connection", None)
        if connection is None:
            connection = connect(self._target)
            self._readers.connection = connection
            self._open_readers.append(connection)
            connection.execute("PRAGMA query_only=ON")
        return connection

    def close_reader(self) -> None:
        """Close the connection of this thread, which reads no more."""
        connection = getattr(self._readers, "connection", None)
        if connection is not None:
            del self._readers.connection
            self._open_readers.remove(connection)
            connection.close()

    def _fetch(self, sql: str, values: tuple[Any, ...], own: bool) -> list[tuple[Any, ...]]:
        return (self._connection if own else self._reader()).execute(sql, values).fetchall()

    def _whole(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[Event]:
        """Yield the events of rows; those that are damaged are left out."""
        return (event for event in map(self._try_event, rows) if event is not None)

    def _try_event(self, row: tuple[Any, ...]) -> Event | None:
        """Return the event of a row; a damaged one is told of, once."""
        try:
            return _event(row)
        except Damaged:
            if row[0] not in self._told:
                logger.error("%s: event %d is damaged and left out", self.path, row[0])
            self._told.add(row[0])
            return None

    def find(self, position: int) -> Event | None:
        """Return the event at a position."""
        rows = self._fetch(f"{_EVENTS} WHERE e.position = ?", (position,), own=False)
        return next(self._whole(rows), None)

    def find_key(self, key: str) -> Event | None:
        """Return the event of a key, also one that is not committed yet (writer only).

        Raises
        ------
        Damaged
            The event is not what was written.
        """
        rows = self._fetch(f"{_EVENTS} WHERE e.key = ?", (key,), own=True)
        try:
            return _event(rows[0]) if rows else None
        except Damaged:
            raise Damaged(f"the event of the key {key!r} is damaged") from None

    def newest(self, item: str, own: bool = False) -> Event | None:
        """Return the event that holds the newest state of an item, if it is known.

        ``own`` is for the writer: it sees what is not committed yet.
        """
        rows = self._fetch(f"{_STATES} WHERE i.id = ?", (item,), own)
        return next(self._whole(rows), None)

    def newest_key(self, item: str) -> str | None:
        """Return the key of the event that holds the newest state of an item, if it is known."""
        rows = self._fetch(f"{_STATES} WHERE i.id = ?", (item,), own=False)
        return str(rows[0][1]) if rows else None

    def keys(self, start: str) -> list[tuple[str, str | None]]:
        """Return the keys that begin with ``start``, with the items of their events, in order."""
        end = start[:-1] + chr(ord(start[-1]) + 1)
        return self._fetch(
            "SELECT key, item FROM events WHERE key >= ? AND key < ? ORDER BY position",
            (start, end),
            own=False,
        )

    def changed_items(self) -> set[str]:
        """Return the ids of all items that were learnt or forgotten."""
        found = (
            f"SELECT DISTINCT e.item FROM events e {_VOIDED} "
            "WHERE e.item IS NOT NULL AND e.refused IS NULL AND v.position IS NULL"
        )
        return {row[0] for row in self._fetch(found, (), own=False)}

    def ids(self, start: str) -> list[str]:
        """Return the known items whose id begins with ``start``."""
        end = start[:-1] + chr(ord(start[-1]) + 1)
        rows = self._fetch("SELECT id FROM items WHERE id >= ? AND id < ?", (start, end), own=False)
        return [row[0] for row in rows]

    def recent(self, n: int, before: int | None = None) -> list[Event]:
        """Return the newest states of items, newest first, of positions below ``before``."""
        rows = self._fetch(
            f"{_STATES} WHERE i.position < ? ORDER BY i.position DESC LIMIT ?",
            (before if before is not None else 1 << 62, n),
            own=False,
        )
        return [*self._whole(rows)]

    def states(self) -> Iterator[Event]:
        """Yield the newest state of each item, in the order of the log."""
        yield from self._whole(self._reader().execute(f"{_STATES} ORDER BY i.position"))

    def of_kinds(self, *kinds: str) -> list[Event]:
        """Return the events of some kinds other than learn that were not refused, in order."""
        rows = self._fetch(
            f"{_EVENTS} WHERE e.kind != 'learn' AND e.kind IN ({', '.join('?' * len(kinds))}) "
            "AND e.refused IS NULL AND v.position IS NULL ORDER BY e.position",
            kinds,
            own=False,
        )
        return [*self._whole(rows)]

    def quarantined(self) -> list[tuple[int, str]]:
        """Return position and reason of the events that are quarantined, in order.

        An event that was tried again, or whose item was changed since, is not among them.
        """
        found = self._fetch(
            "SELECT v.position, v.why, e.item FROM voided v JOIN events e ON e.position = "
            "v.position WHERE v.kind = 'quarantine' ORDER BY v.position",
            (),
            own=False,
        )
        return [
            (position, why)
            for position, why, item in found
            if not self.keys(f"retry:{position}:")
            and (item is None or (self.last_of_item(item) or 0) < position)
        ]

    def history(self, item: str, n: int) -> list[Event]:
        """Return the last ``n`` events about an item that were not refused, oldest first."""
        rows = self._fetch(
            f"{_EVENTS} WHERE e.item = ? AND e.refused IS NULL AND v.position IS NULL "
            "ORDER BY e.position DESC LIMIT ?",
            (item, n),
            own=False,
        )
        return [*self._whole(reversed(rows))]

    def between(self, first: int, last: int, own: bool = True) -> list[Event]:
        """Return the events of some positions that were not refused, in order."""
        where = f"{_EVENTS} WHERE {_VALID} AND e.position BETWEEN ? AND ? ORDER BY e.position"
        return [*self._whole(self._fetch(where, (first, last), own))]

    def state_before(self, item: str, position: int) -> Event | None:
        """Return the last event before a position that says how an item was (writer only)."""
        where = (
            "e.item = ? AND e.position < ? AND e.kind != 'answer' ORDER BY e.position DESC LIMIT 1"
        )
        return next(iter(self._own(where, (item, position))), None)

    def changes_after(self, item: str, position: int) -> list[Event]:
        """Return the events after a position that change an item (writer only)."""
        where = f"e.item = ? AND e.position > ? AND {_CHANGES_ITEM} ORDER BY e.position"
        return self._own(where, (item, position))

    def answer_before(self, item: str, who: str, position: int) -> Event | None:
        """Return what a person had answered before a position (writer only)."""
        where = "e.item = ? AND e.who = ? AND e.position < ? AND e.kind = 'answer'"
        found = self._own(f"{where} ORDER BY e.position DESC LIMIT 1", (item, who, position))
        return found[0] if found else None

    def made_by(self, who: str, before: int, n: int) -> list[Event]:
        """Return the last ``n`` events of a person below a position, newest first.

        Only the last :data:`UNDONE` positions are looked at.
        """
        where = "e.who = ? AND e.position < ? AND e.position > ? ORDER BY e.position DESC LIMIT ?"
        values = (who, before, self.position - UNDONE, n)
        rows = self._fetch(f"{_EVENTS} WHERE {_VALID} AND {where}", values, own=False)
        return [*self._whole(rows)]

    def _own(self, where: str, values: tuple[Any, ...]) -> list[Event]:
        """Return the events that were not refused, also those that are not committed yet."""
        return [
            *self._whole(self._fetch(f"{_EVENTS} WHERE {_VALID} AND {where}", values, own=True))
        ]

    def items_since(self, position: int, n: int) -> list[tuple[int, str, str, str, str]]:
        """Return the last events about items after a position: position, kind, item, who, source.

        The newest comes first.
        """
        return self._fetch(
            f"SELECT e.position, e.kind, e.item, e.who, e.source FROM events e {_VOIDED} WHERE "
            f"e.position > ? AND e.item IS NOT NULL AND e.kind != 'began' AND {_VALID} "
            "ORDER BY e.position DESC LIMIT ?",
            (position, n),
            own=False,
        )

    def people(self) -> list[tuple[str, int, float]]:
        """Return who made changes, how many items each has tagged, and when the last time."""
        return self._fetch(
            "SELECT who, count(DISTINCT CASE WHEN kind IN ('learn', 'answer') THEN item END), "
            "max(time) FROM events WHERE who != '' "
            "AND source != 'service' GROUP BY who ORDER BY who",
            (),
            own=False,
        )

    def last_of_item(self, item: str) -> int | None:
        """Return the position of the last event about an item that was not refused."""
        rows = self._fetch(
            f"SELECT e.position FROM events e {_VOIDED} WHERE e.item = ? AND e.refused IS NULL "
            "AND v.position IS NULL ORDER BY e.position DESC LIMIT 1",
            (item,),
            own=False,
        )
        return int(rows[0][0]) if rows else None

    def last_suggested(self, n: int) -> list[Event]:
        """Return the last ``n`` learn events for which a suggestion was kept, in order."""
        rows = self._fetch(
            f"{_EVENTS} WHERE e.suggested IS NOT NULL AND e.refused IS NULL "
            "AND v.position IS NULL ORDER BY e.position DESC LIMIT ?",
            (n,),
            own=True,
        )
        return [*self._whole(reversed(rows))]

    def pool(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the items that wait for tags, oldest first."""
        return [*read_pool(self._connection, where="WHERE taken IS NULL")]

    def end_of_group(self, position: int) -> int:
        """Return the position of the last event that was committed together with this one."""
        found = "SELECT min(position) FROM events WHERE position >= ? AND digest IS NOT NULL"
        return int(self._fetch(found, (position,), own=False)[0][0] or position)

    def after(self, position: int) -> Generator[Event, None, None]:
        """Yield the events after a position, in order; those that are refused are left out.

        Raises
        ------
        Damaged
            An event is damaged or missing; the message says which.
        """
        rows = self._reader().execute(
            f"{_EVENTS} WHERE e.position > ? ORDER BY e.position", (position,)
        )
        while True:
            try:
                found = rows.fetchone()
                if found is None:
                    return
                event = _event(found)
            except (sqlite3.DatabaseError, Damaged) as error:
                raise Damaged(f"{self.path} is damaged after position {position}") from error
            if not Row(*found[:_N]).covers(position):
                raise Damaged(f"{self.path}: events are missing after position {position}")
            position = event.position
            if event.refused is None:
                yield event


def _is_damage(error: sqlite3.Error) -> bool:
    # Python 3.10 has no error codes: the texts are those of SQLite's documentation.
    return any(words in str(error) for words in ("malformed", "not a database", "disk I/O"))
