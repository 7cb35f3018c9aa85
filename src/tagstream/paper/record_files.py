"""Records as files of JSON lines, and the versions that they name."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tagstream.version import __version__

__all__ = ["append_record", "read_records", "versions", "write_records"]


def read_records(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield the records of a file of JSON lines; a line that was not written whole is passed over.

    A file that does not exist has no records.
    """
    path = Path(path)
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("key"), str):
            yield record


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Add a record on a line of its own, also behind a line that was cut off."""
    line = _line(record)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of this library, of Python and of some packages that are there."""
    found = {"tagstream": __version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", "numba", "scikit-learn", *packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # noqa: PERF203
            continue
    return found


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a file of records, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text("".join(map(_line, records)), encoding="utf-8")
    temporary.replace(path)


def _line(record: Mapping[str, Any]) -> str:
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text + "\n"
