"""Opening a log that may be damaged or incomplete, so that nothing is lost silently.

A damaged log is not touched until somebody accepts the loss.  Until then the service reads a copy
of what is left, answers questions, and refuses changes.  When the loss is accepted:

1. The new log is built as ``events.db.new``, with an event for each gap, and synced.
2. It is renamed to ``events.db.recovered-N``.  From here on the recovery is decided.
3. The old files are renamed to ``events.db.damaged-N``.
4. ``events.db.recovered-N`` is renamed to ``events.db``.

A kill before step 2 leaves the old log as it was.  A kill after it is harmless too: the next start
finds ``events.db.recovered-N`` and repeats steps 3 and 4.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagstream.serve.kinds import check_known
from tagstream.serve.log import (
    GENESIS,
    SCHEMA,
    Damaged,
    EventLog,
    Row,
    connect,
    read_pool,
    read_rows,
)

__all__ = ["Loss", "open_log", "remove_copy"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loss:
    """Events that are missing or damaged: from the first position to the last, and why."""

    first: int
    last: int
    why: str

    def __str__(self) -> str:
        where = f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"
        return f"{where} ({self.why})"


class _Remains:
    """What can be read of a log of schema 1 or 2, whole or damaged; nothing is written.

    Attributes
    ----------
    losses : list of Loss
        What is missing or damaged; known after :meth:`rows` has ended.
    broken : list of Loss
        Those of them whose events are there, though the chain says that they are not the ones that
        were written.
    last : int
        Position of the last event that could be read.
    seen : int
        Position of the last event, damaged or not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.losses: list[Loss] = []
        self.broken: list[Loss] = []
        self.last = self.seen = 0
        self._torn = ""  # what SQLite says about the file

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        connection = connect(f"{_padded(self.path).absolute().as_uri()}?mode=ro")
        try:
            yield connection
        finally:
            connection.close()

    def rows(self) -> Iterator[tuple[Row, bool]]:
        """Yield the whole rows in order, and for each whether it ends its group."""
        self.losses, self.broken, self.last, self.seen, self._torn = [], [], 0, 0, ""
        with self._connection() as connection:
            try:
                schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
            except sqlite3.DatabaseError as error:
                self.losses.append(Loss(1, 1, f"the file cannot be read: {error}"))
                self.seen = 1
                return
            if schema == 0:
                return
            chain = _Chain()
            n_bad = 0  # damaged rows since the last whole one; their positions may be damaged too
            for row, is_whole, digest in self._read(connection, schema):
                if not is_whole or row.position <= self.last:
                    chain.skip()
                    n_bad += 1
                    continue
                is_next = row.covers(self.last)
                if not is_next and (n_bad or schema == SCHEMA):  # schema 1 left gaps
                    why = "damaged" if n_bad else "not in the log"
                    self.losses.append(Loss(self.last + 1, row.position - 1, why))
                broken = chain.add(row, digest, is_next) if schema == SCHEMA else None
                if broken is not None:
                    self.losses.append(broken)
                    self.broken.append(broken)
                self.last, n_bad = row.position, 0
                yield row, schema == 1 or digest is not None
            self.seen = self.last + n_bad
            if n_bad:
                self.losses.append(Loss(self.last + 1, self.seen, "damaged"))
            elif chain.is_open:
                self.seen += 1
                self.losses.append(Loss(self.seen, self.seen, "the last group is not complete"))
            self._lose_the_end(connection)

    def _read(
        self, connection: sqlite3.Connection, schema: int
    ) -> Iterator[tuple[Row, bool, bytes | None]]:
        """Yield the rows up to damage of the file, and then those behind it."""
        last = 0
        try:
            for found in read_rows(connection, schema):
                last = found[0].position
                yield found
            return
        except sqlite3.DatabaseError as error:
            self._torn = str(error)
        behind: list[tuple[Row, bool, bytes | None]] = []
        with contextlib.suppress(sqlite3.DatabaseError):
            for found in read_rows(connection, schema, order="DESC"):
                if found[0].position <= last:
                    break
                behind.append(found)
        yield from reversed(behind)

    def _lose_the_end(self, connection: sqlite3.Connection) -> None:
        """If the file is damaged, events behind the last one may be lost: at least one."""
        if not self._torn or any(loss.last > self.last for loss in self.losses):
            return
        end = None
        with contextlib.suppress(sqlite3.DatabaseError):
            end = connection.execute("SELECT max(position) FROM events").fetchone()[0]
        if end is None or end > self.last:
            self.seen = max(end or 0, self.last + 1)
            self.losses.append(Loss(self.last + 1, self.seen, self._torn))

    def pool(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the items that wait for tags, as far as they can be read."""
        found: list[tuple[str, dict[str, Any]]] = []
        with self._connection() as connection, contextlib.suppress(sqlite3.DatabaseError):
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            found.extend(read_pool(connection, where="" if version == 1 else "WHERE taken IS NULL"))
        return found


class _Chain:
    """Follows the digests of a log.

    After a damaged or missing event the next digest cannot be checked; the chain goes on from it.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256(GENESIS)
        self._first = 1
        self._can_check = True
        self.is_open = False  # whether the last event does not end its group

    def add(self, row: Row, digest: bytes | None, is_next: bool) -> Loss | None:
        """Take in an event; return its group if the chain is broken there."""
        self._can_check = self._can_check and is_next
        self._hash.update(row.packed())
        self.is_open = digest is None
        if digest is None:
            return None
        is_broken = self._can_check and self._hash.digest() != digest
        lost = Loss(self._first, row.position, "the chain is broken") if is_broken else None
        self._hash = hashlib.sha256(digest)
        self._first, self._can_check = row.position + 1, True
        return lost

    def skip(self) -> None:
        """Pass over a damaged event, whose digest is not to be trusted either."""
        self._can_check = self.is_open = False


def open_log(path: Path, known: int = 0, accept_loss: bool = False) -> tuple[EventLog, list[Loss]]:
    """Open the log of a folder; say what is missing.

    Parameters
    ----------
    path : Path
        The database; made if it is not there.
    known : int
        The highest position that a snapshot knows.
    accept_loss : bool
        Go on without what is missing: put the damaged log aside and begin a new one with all that
        is left.

    Returns
    -------
    log : EventLog
        If events are missing and that is not accepted, a copy of what is left, to be read only.
    losses : list of Loss
        What is missing and not accepted.

    Raises
    ------
    OSError
        The log cannot be opened, a newer version has written it, or it has events of a kind that
        this version does not know.  Nothing was changed.
    """
    _finish(path)
    remove_copy(path)
    log = None
    try:
        log = EventLog(path)  # makes it, or upgrades it
    except Damaged as error:
        logger.error("%s", error)
    try:
        remains = _survey(path, known)
        if log is not None and not remains.losses:
            return log, []
    except BaseException:
        if log is not None:
            log.close()
        raise
    if log is not None:
        log.close()
    new = _copy_of(path)
    try:
        _rebuild(remains, new, known)
        if remains.losses and not accept_loss:
            return EventLog(new), remains.losses
        _sync(new)
        _sync(path.parent)
        number = 1
        while any(_numbered(path, what, number).exists() for what in ("damaged", "recovered")):
            number += 1
        os.rename(new, _numbered(path, "recovered", number))
    except BaseException:
        remove_copy(path)
        raise
    _sync(path.parent)
    _finish(path)
    remove_copy(path)
    logger.error(
        "%s was recovered: %d events could be read; lost: %s; the damaged file is kept as %s",
        path, remains.last, "; ".join(map(str, remains.losses)) or "nothing",
        _numbered(path, "damaged", number),
    )  # fmt: skip
    return EventLog(path), []


def _survey(path: Path, known: int) -> _Remains:
    """Read a log to its end, or in its place one that an earlier version put aside."""
    remains = _Remains(path)
    _read_all(remains)
    if remains.last == 0:
        # Schema 1 renamed a damaged log before it had a new one: a kill left an empty log.
        numbers = [n for p in path.parent.glob(f"{path.name}.damaged-*") if (n := _number(p))]
        if numbers:
            remains = _Remains(_numbered(path, "damaged", max(numbers)))
            _read_all(remains)
            why = f"the log was empty beside {remains.path.name}"
            remains.losses.append(Loss(remains.seen + 1, max(known, remains.seen + 1), why))
            return remains
    if remains.seen < known:
        before = [loss for loss in remains.losses if loss.first <= remains.last]
        remains.losses = [*before, Loss(remains.last + 1, known, "a snapshot knows them")]
    return remains


def _read_all(remains: _Remains) -> None:
    for row, _ in remains.rows():
        check_known(row.kind, row.position, remains.path)


def _rebuild(remains: _Remains, target: Path, known: int) -> None:
    """Write all that is left into a new log, with an event for each gap."""
    losses = remains.losses
    log = EventLog(target)
    try:
        with log.transaction():
            for row, ends_group in remains.rows():
                log.copy(row, "damaged, and the loss was accepted")
                if ends_group:
                    log.end_group()
            for loss in losses:
                if loss in remains.broken or loss.last > log.position:
                    log.append_gap(loss.first, loss.last, f"{loss.why}, and that was accepted")
            log.put_in_pool(remains.pool())
    finally:
        log.close()
        remains.losses = losses


def _finish(path: Path) -> None:
    """Put a log that was recovered in the place of the damaged one, as often as it takes."""
    for ready in sorted(path.parent.glob(f"{path.name}.recovered-*")):
        aside = _numbered(path, "damaged", _number(ready))
        # Its -wal must be gone before the new log is there: SQLite would read it into that.
        for ending in ("-wal", ""):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{path}{ending}", f"{aside}{ending}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}-shm")
        _sync(path.parent)
        os.rename(ready, path)
        _sync(path.parent)


def _padded(path: Path) -> Path:
    """Return a log that SQLite reads: if its end was cut off, a copy with zeros for that.

    SQLite reads nothing of a file that is shorter than its header says.
    """
    with open(path, "rb") as file:
        head = file.read(32)
    size = int.from_bytes(head[16:18], "big") * int.from_bytes(head[28:32], "big")
    if not head.startswith(b"SQLite format 3") or path.stat().st_size >= size:
        return path
    copy = path.with_name(f"{path.name}.padded.new")
    if not copy.exists():
        for ending in ("-wal", ""):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")
        os.truncate(copy, size)
    return copy


def _copy_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def remove_copy(path: Path) -> None:
    """Remove the copies of what is left of a log, if there are some."""
    for found in path.parent.glob(f"{path.name}*.new*"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(found)


def _numbered(path: Path, what: str, number: int) -> Path:
    return path.with_name(f"{path.name}.{what}-{number}")


def _number(path: Path) -> int:
    """Return the number at the end of a name, 0 if there is none."""
    found = re.search(r"-(\d+)$", path.name)
    return int(found[1]) if found else 0


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
