"""Records as files of JSON lines: one line per cell, the last of a key counts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tagstream.paper.record_files import read_records, write_records

__all__ = ["add_record", "key_of", "read_folder"]


def key_of(definition: Mapping[str, Any]) -> str:
    """Return a digest of what defines a cell.

    Examples
    --------
    >>> key_of({"stream": "scene"}) == key_of({"stream": "yeast"})
    False
    """
    text = json.dumps(definition, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def add_record(path: str | os.PathLike[str], record: Mapping[str, Any]) -> None:
    """Add a record to a file, in the place of one with the same key; whole or not at all."""
    path = Path(path)
    records = {old["key"]: old for old in read_records(path)} | {record["key"]: record}
    write_records(path, records.values())


def read_folder(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the records of all ``*.jsonl`` files of a folder; of a key the last one."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(Path(folder).glob("*.jsonl")):
        found |= {record["key"]: record for record in read_records(path)}
    return list(found.values())
