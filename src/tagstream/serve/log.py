"""The event log: every change of the tagger, in SQLite, committed before it is acknowledged.

Events are numbered 1, 2, 3, …; this number is the *position*.  The state of the service is a
function of the events in order, so the log is the truth and everything else can be made again from
it.  The table ``items`` only says which event holds the newest state of an item; the table ``pool``
holds items that wait for tags.

The database is in WAL mode with ``synchronous=FULL``: a commit is on the disk when it returns, and
a commit that was torn by a crash is dropped as a whole by SQLite.  What SQLite does not see is
damage of the disk; each event carries a checksum, and :meth:`EventLog.open` keeps the events before
the first damaged one and puts the damaged file aside.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tagstream.data.records import CHANGES

__all__ = ["KINDS", "Event", "EventLog", "LogFull", "renamed"]

KINDS = ("learn", *CHANGES)
# A second process that only reads (an export) may hold the database for a moment.
BUSY_SECONDS = 10.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    position  INTEGER PRIMARY KEY,
    key       TEXT NOT NULL UNIQUE,
    time      REAL NOT NULL,
    kind      TEXT NOT NULL,
    item      TEXT,
    body      TEXT NOT NULL,
    suggested TEXT,
    refused   TEXT,
    checksum  INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS events_of_item ON events (item, position) WHERE item IS NOT NULL;
CREATE INDEX IF NOT EXISTS events_of_tags ON events (position)
    WHERE kind IN ('rename', 'merge', 'remove');
CREATE TABLE IF NOT EXISTS items (
    id       TEXT PRIMARY KEY,
    position INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS items_by_position ON items (position);
CREATE TABLE IF NOT EXISTS pool (
    number INTEGER PRIMARY KEY,
    id     TEXT NOT NULL UNIQUE,
    body   TEXT NOT NULL
);
PRAGMA user_version = 1;
"""

logger = logging.getLogger(__name__)


class LogFull(OSError):
    """The event could not be written; nothing was changed."""


@dataclass(frozen=True)
class Event:
    """One change.

    Attributes
    ----------
    kind : str
        One of :data:`KINDS`.
    key : str
        Unique; an event whose key is known is not written again.
    body : dict
        All that is needed to do it again: ``id``, ``text`` or ``x``, ``y`` (learn); ``id``
        (forget); ``old``, ``new`` (rename); ``tags``, ``into`` (merge); ``tag`` (remove).
    suggested : list of str, optional
        Learn: what was suggested for the item before it was learnt, if it was new.
    refused : str, optional
        Why the tagger did not take it, or nothing ("") if there was nothing to do; such an event
        only keeps its key, and is passed over.
    position : int
        Its number; 0 before it is written.
    time : float
        Seconds since 1970.
    """

    kind: str
    key: str
    body: dict[str, Any]
    suggested: list[str] | None = None
    refused: str | None = None
    position: int = 0
    time: float = field(default_factory=time.time)

    @property
    def item(self) -> str | None:
        """The item that it is about, if it is about one."""
        return self.body["id"] if self.kind in ("learn", "forget") else None

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


def _checksum(position: int, key: str, kind: str, body: str) -> int:
    return zlib.crc32("\x1f".join((str(position), key, kind, body)).encode())


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


_COLUMNS = "position, key, time, kind, body, suggested, refused, checksum"
_STATES = (
    f"SELECT {', '.join(f'e.{name}' for name in _COLUMNS.split(', '))} "
    "FROM items i JOIN events e ON e.position = i.position"
)


_POOL = "SELECT id, body FROM pool ORDER BY number"


class _Damaged(Exception):
    """A row is not what was written."""


def _event(row: tuple[Any, ...]) -> Event:
    position, key, when, kind, body, suggested, refused, checksum = row
    try:
        if kind not in KINDS or _checksum(position, key, kind, body) != checksum:
            raise _Damaged(position)
        told = None if suggested is None else json.loads(suggested)
        return Event(kind, key, json.loads(body), told, refused, position, when)
    except (TypeError, ValueError) as error:
        raise _Damaged(position) from error


def _waiting(rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the items of the pool; what is no JSON any more is left out."""
    for name, body in rows:
        with contextlib.suppress(ValueError):
            yield name, json.loads(body)


def _decoded(text: bytes) -> str:
    """Return a text of the database; one that is no UTF-8 any more fails its checksum."""
    return text.decode("utf-8", "replace")


class EventLog:
    """The log of one folder.  One thread writes; any thread reads.

    Parameters
    ----------
    path : Path
        The database; made if it is not there.
    read_only : bool
        Beside a service that runs: nothing is written or mended.

    Attributes
    ----------
    position : int
        Position of the last committed event.
    n_lost : int
        Whether and how damage was found on opening: the events from the first damaged one on are
        lost, as many as could be counted (at least 1).

    Examples
    --------
    >>> import tempfile
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
        self.n_lost = 0
        self._told: set[int] = set()  # damaged events that were told of
        self._readers = threading.local()
        self._open_readers: list[sqlite3.Connection] = []
        try:
            self._connection = self._reader() if read_only else self._open()
        except (sqlite3.DatabaseError, _Damaged) as error:
            if read_only or (isinstance(error, sqlite3.OperationalError) and not _is_damage(error)):
                raise OSError(f"{path}: {error}") from error
            self._recover(error)
        self.position = self.last_position()

    # ------------------------------------------------------------------ opening
    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.text_factory = _decoded
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _open(self) -> sqlite3.Connection:
        with contextlib.ExitStack() as cleanup:
            connection = self._connect()
            cleanup.callback(connection.close)
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > 1:
                raise OSError(f"{self.path} must be of version 1, got {version}; update tagstream")
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise _Damaged(found)
            if version == 0:
                connection.executescript(_SCHEMA)
            cleanup.pop_all()
        return connection

    def _recover(self, error: Exception) -> None:
        """Put the damaged database aside and begin a new one with what can be read of it."""
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.damaged-{number}")).exists():
            number += 1
        for ending in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{self.path}{ending}", f"{aside}{ending}")
        self._connection = self._open()
        n_read = n_seen = 0
        with contextlib.closing(sqlite3.connect(aside)) as old, self.transaction():
            with contextlib.suppress(sqlite3.DatabaseError):
                n_seen = old.execute("SELECT max(position) FROM events").fetchone()[0] or 0
            with contextlib.suppress(sqlite3.DatabaseError, _Damaged):
                for row in old.execute(f"SELECT {_COLUMNS} FROM events ORDER BY position"):
                    event = _event(row)
                    self._insert(event, event.position)
                    n_read = event.position
            with contextlib.suppress(sqlite3.DatabaseError):
                self.put_in_pool(_waiting(old.execute(_POOL)))
        self.n_lost = max(1, n_seen - n_read)
        logger.error(
            "%s was damaged (%s): %d events could be read, and go on from there; "
            "the damaged file is kept as %s",
            self.path, error, n_read, aside,
        )  # fmt: skip

    def last_position(self) -> int:
        """Return the position of the last event that is committed, by anyone."""
        found = self._connection.execute("SELECT max(position) FROM events").fetchone()[0]
        return int(found or 0)

    def close(self) -> None:
        """Close the database; what was committed is in one file then."""
        for connection in [*self._open_readers, self._connection]:
            connection.close()

    # ------------------------------------------------------------------ writing
    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all that is written inside durable together, or nothing of it.

        Raises
        ------
        LogFull
            The disk is full or cannot be written; nothing was changed.
        """
        before = getattr(self, "position", 0)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except BaseException as error:
            self.position = before
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                raise LogFull(f"the event log cannot be written: {error}") from error
            raise

    def append(self, event: Event) -> int:
        """Write an event, inside a transaction; return its position."""
        self.position += 1
        self._insert(event, self.position)
        return self.position

    def _insert(self, event: Event, position: int) -> None:
        body = _dumps(event.body)
        told = None if event.suggested is None else _dumps(event.suggested)
        self._connection.execute(
            f"INSERT INTO events (item, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (event.item, position, event.key, event.time, event.kind, body, told, event.refused,
             _checksum(position, event.key, event.kind, body)),
        )  # fmt: skip
        if event.refused is not None:
            return
        if event.kind in ("learn", "forget"):
            self._connection.execute("DELETE FROM items WHERE id = ?", (event.item,))
            if event.kind == "learn":
                self._connection.execute("INSERT INTO items VALUES (?, ?)", (event.item, position))
                self._connection.execute("DELETE FROM pool WHERE id = ?", (event.item,))

    def skip_to(self, position: int) -> None:
        """Number the next event ``position + 1``: events before it were lost by damage."""
        self.position = max(self.position, position)

    def refuse(self, position: int, why: str) -> None:
        """Note that the tagger did not take an event, so that a replay passes it over."""
        with self.transaction():
            row = self._connection.execute(
                f"SELECT {_COLUMNS} FROM events WHERE position = ?", (position,)
            ).fetchone()
            event = _event(row)
            self._connection.execute(
                "UPDATE events SET refused = ? WHERE position = ?", (why, position)
            )
            self._connection.execute(
                "DELETE FROM items WHERE id = ? AND position = ?", (event.item, position)
            )
            before = self._connection.execute(
                "SELECT position, kind FROM events WHERE item = ? AND refused IS NULL "
                "ORDER BY position DESC LIMIT 1",
                (event.item,),
            ).fetchone()
            if before is not None and before[1] == "learn":
                self._connection.execute(
                    "INSERT OR REPLACE INTO items VALUES (?, ?)", (event.item, before[0])
                )

    def put_in_pool(self, items: Iterable[tuple[str, dict[str, Any]]]) -> int:
        """Add items that wait for tags, or replace them, inside a transaction.

        Return how many are not there like that already.
        """
        n_before = self._connection.total_changes
        for name, body in items:
            self._connection.execute(
                "INSERT INTO pool (id, body) VALUES (?, ?) ON CONFLICT (id) "
                "DO UPDATE SET body = excluded.body WHERE body != excluded.body",
                (name, _dumps(body)),
            )
        return self._connection.total_changes - n_before

    def take_from_pool(self, ids: Iterable[str]) -> int:
        """Remove items from the pool, inside a transaction; return how many were there."""
        n_before = self._connection.total_changes
        for name in ids:
            self._connection.execute("DELETE FROM pool WHERE id = ?", (name,))
        return self._connection.total_changes - n_before

    # ------------------------------------------------------------------ reading
    def _reader(self) -> sqlite3.Connection:
        """Return the connection of this thread, which sees what is committed."""
        connection = getattr(self._readers, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.text_factory = _decoded
            connection.execute("PRAGMA query_only=ON")
            self._readers.connection = connection
            self._open_readers.append(connection)
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
        except _Damaged:
            if row[0] not in self._told:
                logger.error("%s: event %d is damaged and left out", self.path, row[0])
            self._told.add(row[0])
            return None

    def find_key(self, key: str) -> Event | None:
        """Return the event of a key, also one that is not committed yet (writer only).

        Raises
        ------
        OSError
            The event is damaged.
        """
        rows = self._fetch(f"SELECT {_COLUMNS} FROM events WHERE key = ?", (key,), own=True)
        try:
            return _event(rows[0]) if rows else None
        except _Damaged:
            raise OSError(f"the event of the key {key!r} is damaged") from None

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
        found = "SELECT DISTINCT item FROM events WHERE item IS NOT NULL AND refused IS NULL"
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

    def tag_changes(self) -> list[Event]:
        """Return all renames, merges and removals, in order."""
        rows = self._fetch(
            f"SELECT {_COLUMNS} FROM events WHERE kind IN ('rename', 'merge', 'remove') "
            "AND refused IS NULL ORDER BY position",
            (),
            own=True,
        )
        return [*self._whole(rows)]

    def last_suggested(self, n: int) -> list[Event]:
        """Return the last ``n`` learn events for which a suggestion was kept, in order."""
        rows = self._fetch(
            f"SELECT {_COLUMNS} FROM events WHERE suggested IS NOT NULL AND refused IS NULL "
            "ORDER BY position DESC LIMIT ?",
            (n,),
            own=True,
        )
        return [*self._whole(reversed(rows))]

    def pool(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the items that wait for tags, oldest first."""
        return [*_waiting(self._fetch(_POOL, (), own=True))]

    def after(self, position: int) -> Iterator[Event]:
        """Yield the events after a position, in order, those that were refused left out.

        Raises
        ------
        OSError
            An event is damaged; the message says which.
        """
        rows = self._reader().execute(
            f"SELECT {_COLUMNS} FROM events WHERE position > ? AND refused IS NULL "
            "ORDER BY position",
            (position,),
        )
        while True:
            try:
                row = rows.fetchone()
                if row is None:
                    return
                event = _event(row)
            except (sqlite3.DatabaseError, _Damaged) as error:
                raise OSError(f"{self.path} is damaged after position {position}") from error
            position = event.position
            yield event

    def recover(self) -> None:
        """Keep the events before the first damaged one; the damaged file is put aside."""
        self.close()
        self._open_readers.clear()
        self._readers = threading.local()
        self._recover(OSError("an event is not what was written"))
        self.position = self.last_position()


def _is_damage(error: sqlite3.Error) -> bool:
    # Python 3.10 has no error codes: the texts are those of SQLite's documentation.
    return any(words in str(error) for words in ("malformed", "not a database", "disk I/O"))


def renamed(tags: Iterable[str], changes: Iterable[Event]) -> list[str]:
    """Return tags as they are called after renames, merges and removals.

    Examples
    --------
    >>> change = Event("merge", "k", {"tags": ["py", "python3"], "into": "python"})
    >>> renamed(["py", "lists"], [change])
    ['python', 'lists']
    """
    now = [*tags]
    for change in changes:
        body = change.body
        if change.kind == "rename":
            now = [body["new"] if tag == body["old"] else tag for tag in now]
        elif change.kind == "merge":
            now = [body["into"] if tag in body["tags"] else tag for tag in now]
        else:
            now = [tag for tag in now if tag != body["tag"]]
    return [*dict.fromkeys(now)]
