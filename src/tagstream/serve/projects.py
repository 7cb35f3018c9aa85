"""How to reach each Label Studio project: a small database that only its owner can read."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from tagstream.serve.log import LogFull
from tagstream.serve.writer import Refused

__all__ = ["Project", "Projects"]

MAX_PROJECTS = 1000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS projects (
    project      TEXT PRIMARY KEY,
    schema       TEXT NOT NULL,
    hostname     TEXT NOT NULL,
    access_token TEXT NOT NULL
) WITHOUT ROWID
"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Project:
    """One project.

    Attributes
    ----------
    schema : str
        The labelling configuration, XML.
    hostname : str
        The address of Label Studio.
    access_token : str
        What Label Studio gave for its own API.
    """

    schema: str
    hostname: str
    access_token: str


class Projects:
    """The projects of one folder.  Any thread may read and write.

    A damaged file is put aside, and the projects are set up anew when Label Studio next asks for a
    prediction.  The file ``label-studio.json`` of version 0.2 is taken over and removed.

    Parameters
    ----------
    folder : Path
    read_only : bool
        Nothing is read or written; for a replica.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> Projects(Path(folder.name)).put("1", Project("<View/>", "http://localhost:8080", "t"))
    >>> Projects(Path(folder.name)).get("1").hostname
    'http://localhost:8080'
    >>> folder.cleanup()
    """

    def __init__(self, folder: Path, read_only: bool = False) -> None:
        self.path, self.read_only = folder / "label-studio.db", read_only
        self._lock = threading.Lock()
        self._known: dict[str, Project] = {}
        if read_only:
            return
        if self.path.exists():
            self._known = self._load()
        old = folder / "label-studio.json"
        if old.exists():
            self._take_over(old)

    def get(self, project: str) -> Project | None:
        """Return how to reach a project, if it was set up."""
        return self._known.get(project)

    def put(self, project: str, found: Project) -> None:
        """Keep how to reach a project.

        Raises
        ------
        Refused
            There are too many projects.
        LogFull
            It cannot be written; nothing was changed.
        """
        if self.read_only or self._known.get(project) == found:
            return
        with self._lock:
            if project not in self._known and len(self._known) >= MAX_PROJECTS:
                raise Refused(f"there must be at most {MAX_PROJECTS} projects", "project", 409)
            try:
                self._write({project: found})
            except (sqlite3.Error, OSError) as error:
                raise LogFull(f"{self.path.name} cannot be written: {error}") from error
            self._known[project] = found

    # ------------------------------------------------------------------ the file
    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # SQLite would make the file readable for others; its journal gets the mode of the file.
        number = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        with contextlib.closing(os.fdopen(number)):
            os.fchmod(number, 0o600)
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            connection.text_factory = _decoded
            yield connection

    def _load(self) -> dict[str, Project]:
        try:
            with self._open() as connection:
                if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                    raise sqlite3.DatabaseError("malformed")
                connection.execute(_SCHEMA)
                rows = connection.execute("SELECT * FROM projects").fetchall()
        except (sqlite3.DatabaseError, OSError) as error:
            self._put_aside(self.path, error)
            return {}
        return {str(row[0]): Project(*map(str, row[1:])) for row in rows}

    def _write(self, changed: dict[str, Project]) -> None:
        """Write projects in one transaction; a file that was damaged meanwhile is made anew."""
        try:
            self._insert(changed)
        except sqlite3.DatabaseError as error:
            if not any(words in str(error) for words in ("malformed", "not a database")):
                raise
            self._put_aside(self.path, error)
            self._insert({**self._known, **changed})

    def _insert(self, projects: dict[str, Project]) -> None:
        rows = [(name, *astuple(project)) for name, project in projects.items()]
        with self._open() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_SCHEMA)
            connection.executemany("INSERT OR REPLACE INTO projects VALUES (?, ?, ?, ?)", rows)

    def _take_over(self, old: Path) -> None:
        """Read the settings of version 0.2, which are newer than ours if they are there."""
        try:
            kept = json.loads(old.read_text(encoding="utf-8"))
            found = {str(name): _project(entry) for name, entry in kept.items()}
        except (ValueError, AttributeError, OSError) as error:
            self._put_aside(old, error)
            return
        try:
            self._write(found)
        except (sqlite3.Error, OSError) as error:
            logger.error("%s was read and could not be taken over: %s", old, error)
        else:
            # Its own temporary file, too: both hold access tokens.
            for path in (old, old.with_suffix(".new")):
                path.unlink(missing_ok=True)
        self._known.update(found)

    def _put_aside(self, path: Path, error: Exception) -> None:
        number = 1
        while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
            number += 1
        try:
            os.replace(path, aside)
            path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
        except OSError as why:
            logger.error("%s cannot be read (%s), nor put aside (%s)", path, error, why)
            return
        logger.error(
            "%s was damaged (%s) and is kept as %s; Label Studio sets its projects up again with "
            "the next prediction", path, error, aside.name,
        )  # fmt: skip


def _project(entry: Any) -> Project:
    values = [entry.get(name) for name in ("schema", "hostname", "access_token")]
    if not all(isinstance(value, str) for value in values):
        raise ValueError("a project must have schema, hostname and access_token")
    return Project(*values)


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")
