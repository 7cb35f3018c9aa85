"""A folder of text files: each file is a record, and the folders it lies in are its tags."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tagstream.records.dataset import Batch, LabelSet
from tagstream.records.lines import Lines

__all__ = ["digest_of_folder", "iter_folder"]

LARGEST_BATCH = 1 << 24  # characters after which a batch is handed out


def iter_folder(
    source: str | os.PathLike[str], *, encoding: str | None = None, chunk: int = 256
) -> Iterator[Batch]:
    """Read the text files below a folder in batches, in the order of their paths.

    The id of a record is the path of its file in the folder, with ``/`` between its parts.  The
    names of the folders on this path are its tags; a file that lies in no sub-folder has none and
    is a record without labels.  Files and folders whose names begin with a dot are passed over.

    Parameters
    ----------
    source : path of a folder
    encoding : str or None
        See `iter_jsonl`; each file is looked at by itself.
    chunk : int
        Records per batch.

    Raises
    ------
    DataError
        Naming the file, when one is no text.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    top = Path(source)
    texts: list[str] = []
    tags: list[LabelSet | None] = []
    ids: list[str] = []
    n_characters = 0
    for path in _files(top):
        parts = path.relative_to(top).parts
        texts.append(_read(path, encoding))
        tags.append(tuple(dict.fromkeys(parts[:-1])) or None)
        ids.append("/".join(parts))
        n_characters += len(texts[-1])
        if len(texts) == chunk or n_characters > LARGEST_BATCH:
            yield Batch(texts, tags, ids=tuple(ids))
            texts, tags, ids, n_characters = [], [], [], 0
    if texts:
        yield Batch(texts, tags, ids=tuple(ids))


def digest_of_folder(source: str | os.PathLike[str]) -> dict[str, Any]:
    """Return size and digest of the files below a folder, with their names."""
    digest, n = hashlib.sha256(), 0
    top = Path(source)
    for path in _files(top):
        content = path.read_bytes()
        for part in ("/".join(path.relative_to(top).parts).encode("utf-8", "replace"), content):
            digest.update(hashlib.sha256(part).digest())
        n += len(content)
    return {"bytes": n, "sha256": digest.hexdigest()}


def _files(top: Path) -> list[Path]:
    """Return the files below a folder in the order of their paths, without hidden ones."""
    found = []
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(folder, name) for name in names if not name.startswith(".")]
    return sorted((path for path in found if path.is_file()), key=lambda path: path.parts)


def _read(path: Path, encoding: str | None) -> str:
    with Lines(path, encoding, guess=True) as lines:
        return "".join(lines.decode(line) for line in lines).strip()
