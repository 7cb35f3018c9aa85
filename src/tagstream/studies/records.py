"""Records as files of JSON lines: one line per cell, the last of a key counts."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tagstream.version import __version__

__all__ = ["add_record", "key_of", "read_folder", "versions"]


def key_of(definition: Mapping[str, Any]) -> str:
    """Return a digest of what defines a cell.

    Examples
    --------
    >>> key_of({"stream": "scene"}) == key_of({"stream": "yeast"})
    False
    """
    text = json.dumps(definition, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of this library, of Python and of some packages that are there."""
    found = {"tagstream": __version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", "numba", "scikit-learn", *packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # noqa: PERF203
            continue
    return found


def add_record(path: str | os.PathLike[str], record: Mapping[str, Any]) -> None:
    """Add a record to a file, in the place of one with the same key; whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    records = {old["key"]: old for old in _lines(path)} | {record["key"]: record}
    lines = [
        json.dumps(one, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n"
        for one in records.values()
    ]
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text("".join(lines), encoding="utf-8")
    temporary.replace(path)


def read_folder(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the records of all ``*.jsonl`` files of a folder; of a key the last one."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(Path(folder).glob("*.jsonl")):
        found |= {record["key"]: record for record in _lines(path)}
    return list(found.values())


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file; a line that was not written whole is passed over."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("key"), str):
            yield record
