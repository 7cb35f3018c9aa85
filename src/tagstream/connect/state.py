"""What a connector remembers: one SQLite file, written after the target acknowledged.

For each item of the source: the digest of the lesson that the target has, how often that changed,
and whatever the connector itself notes about it.  Beside the items, a few facts such as how far the
source was read.  If the file is lost, everything is pulled again, which changes nothing that is the
same.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Known", "State"]

KIND = 0x74677363  # "tgsc": the application of the file
VERSION = 1
TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE items (
    id TEXT PRIMARY KEY, digest TEXT, changes INTEGER NOT NULL, waits INTEGER NOT NULL,
    about TEXT NOT NULL
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Known:
    """What is remembered of an item.

    Attributes
    ----------
    digest : str or None
        Of the lesson that the target has; None if it has none.
    changes : int
        How many lessons of this item were acknowledged.
    waits : bool
        Whether it is to get suggestions.
    about : dict
        What the connector noted.
    """

    digest: str | None = None
    changes: int = 0
    waits: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)


class State:
    """The file.  One process has it open at a time.

    Parameters
    ----------
    path : path
        It is made if it is not there.
    source, target : str
        What it belongs to.
    dry : bool
        Work on a copy in memory; the file is neither made nor changed.

    Raises
    ------
    OSError
        It is open elsewhere, belongs to something else, or is no such file.
    """

    def __init__(
        self, path: str | os.PathLike[str], source: str, target: str, dry: bool = False
    ) -> None:
        self.path = os.fspath(path)
        try:
            self._open(dry)
            self._check(source, target)
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise OSError(f"{self.path}: another connector has this state open") from None
            raise OSError(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise OSError(f"{self.path} must be the state of a connector: {error}") from error

    def _open(self, dry: bool) -> None:
        self._db = sqlite3.connect(":memory:" if dry else self.path, timeout=1)
        if dry and os.path.exists(self.path):
            whole = f"file:{os.path.abspath(self.path)}?mode=ro"
            with contextlib.closing(sqlite3.connect(whole, uri=True, timeout=1)) as kept:
                kept.backup(self._db)
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA synchronous = FULL")
        with self._db:
            self._db.execute("BEGIN EXCLUSIVE")
            kind = self._db.execute("PRAGMA application_id").fetchone()[0]
            is_empty = not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if is_empty:
                for table in TABLES.split(";")[:-1]:
                    self._db.execute(table)
                self._db.execute(f"PRAGMA application_id = {KIND}")
                self._db.execute(f"PRAGMA user_version = {VERSION}")
            elif kind != KIND:
                raise OSError(f"{self.path} must be the state of a connector, got another file")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version != VERSION:
            raise OSError(f"{self.path} must be of this version of tagstream, got {version}")

    def _check(self, source: str, target: str) -> None:
        """Refuse the state of another source or target, whose positions would be wrong here."""
        for name, value in (("source", source), ("target", target)):
            known = self.fact(name)
            if known is None:
                self.set_facts({name: value})
            elif known != value:
                self.close()
                raise OSError(
                    f"{self.path} belongs to {known}, got {value}; give another file with --state"
                )

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> State:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ reading
    def fact(self, name: str, default: Any = None) -> Any:
        """Return a fact."""
        found = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return default if found is None else json.loads(found[0])

    def item(self, id: str) -> Known | None:
        """Return what is remembered of an item."""
        return dict(self._items("WHERE id = ?", id)).get(id)

    def items(self) -> Iterator[tuple[str, Known]]:
        """Yield all items."""
        return self._items("")

    def waiting(self) -> dict[str, Known]:
        """Return the items that are to get suggestions."""
        return dict(self._items("WHERE waits"))

    def _items(self, where: str, *values: str) -> Iterator[tuple[str, Known]]:
        query = f"SELECT id, digest, changes, waits, about FROM items {where}"
        for name, digest, changes, waits, about in self._db.execute(query, values).fetchall():
            yield name, Known(digest, changes, bool(waits), json.loads(about))

    # ------------------------------------------------------------------ writing
    def put(self, items: Mapping[str, Known], facts: Mapping[str, Any] | None = None) -> None:
        """Remember items and facts, all or none."""
        rows = [
            (name, one.digest, one.changes, one.waits, json.dumps({**one.about}))
            for name, one in items.items()
        ]
        with self._db:
            self._db.executemany("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?)", rows)
            self._db.executemany(
                "INSERT OR REPLACE INTO facts VALUES (?, ?)",
                [(name, json.dumps(value)) for name, value in (facts or {}).items()],
            )

    def set_facts(self, facts: Mapping[str, Any]) -> None:
        """Remember facts."""
        self.put({}, facts)

    def begin_again(self, facts: Mapping[str, Any]) -> None:
        """Note that the target has lost what it learnt: everything is to be taught again."""
        with self._db:
            self._db.execute("UPDATE items SET digest = NULL")
        self.set_facts(facts)
