"""Segments as files, and the contents of stores cut into segments and joined again."""

from __future__ import annotations

import io
import json
import os
import shutil
import uuid
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tagstream.checks import DataError, Positions
from tagstream.store.local import LocalStore

__all__ = [
    "Dump",
    "Held",
    "cut",
    "joined",
    "link",
    "n_rows",
    "numbers_of",
    "plain_id",
    "read_segment",
    "write_segment",
]

Dump = dict[str, Any]  # of a LocalStore


@dataclass
class Held:
    """What a store has ever held besides rows and labels; a store of one process keeps room."""

    unknown: bool = False
    names: bool = False
    gaps: bool = False
    corrected: bool = False


def write_segment(path: str, dump: Dump) -> None:
    """Write what a :class:`LocalStore` holds: an .npz of plain arrays, whole or not at all."""
    arrays = {f"rows.{name}": part for name, part in dump["rows"].items()}
    names = ("codes", "labels", "known", "numbers", "corrected", "corrections")
    arrays |= {name: dump[name] for name in names if dump[name] is not None}
    arrays["counts"] = np.array([dump["n_seen"], dump["n_forgotten"], *dump["shape"]], np.int64)
    if dump["ids"] is not None:
        text = json.dumps([plain_id(name) for name in dump["ids"]])
        arrays["ids"] = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "xb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_segment(path: str) -> LocalStore:
    """Return the store that a file describes, after checking that it makes sense."""
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        n_seen, n_forgotten, p, q = arrays.pop("counts").tolist()
        rows = {n[5:]: arrays.pop(n) for n in [*arrays] if n.startswith("rows.")}
        text, ids = arrays.pop("ids", None), None
        if text is not None:
            ids = [_read_id(i) for i in json.loads(text.tobytes().decode("utf-8", "surrogatepass"))]
        dump: Dump = {"rows": rows, "ids": ids, "n_seen": n_seen, "n_forgotten": n_forgotten}
        dump["shape"] = [p, q]
        for name in ("codes", "labels", "known", "numbers", "corrected", "corrections"):
            dump[name] = arrays.pop(name, None)
        if dump["corrected"] is not None and dump["corrections"] is None:  # of an older version
            dump["corrections"] = np.ones(len(dump["corrected"]), np.int64)
        if arrays:
            raise ValueError(f"it must have no more parts, got {sorted(arrays)}")
        return LocalStore.load(dump, sparse="dense" not in rows, window=None)
    except OSError:
        raise
    except Exception as error:  # a damaged file may fail in any way
        raise DataError(f"{path}: not a whole segment: {error}") from error


def plain_id(name: Any) -> Any:
    """Return a name as JSON values."""
    if isinstance(name, tuple):
        return {"t": [plain_id(part) for part in name]}
    if name is None or isinstance(name, (bool, int, float, str)):
        return name
    raise ValueError(
        "ids must be numbers, strings or tuples of them to be kept on shards, "
        f"got {type(name).__name__}"
    )


def _read_id(name: Any) -> Hashable:
    return tuple(_read_id(part) for part in name["t"]) if isinstance(name, dict) else name


# ---------------------------------------------------------------------- dumps, cut and joined
def cut(dump: Dump, start: int, stop: int) -> Dump:
    """Return the dump of the examples ``start <= position < stop``."""
    part = slice(start, stop)
    cut: Dump = {
        name: None if dump[name] is None else dump[name][part]
        for name in ("codes", "labels", "known", "ids", "numbers")
    }
    rows = dump["rows"]
    if "dense" in rows:
        cut["rows"] = {"dense": rows["dense"][part]}
    else:
        ends = rows["indptr"][start : stop + 1]
        entries = slice(int(ends[0]), int(ends[-1]))
        cut["rows"] = {
            "data": rows["data"][entries],
            "indices": rows["indices"][entries],
            "indptr": ends - ends[0],
        }
    marks = dump["corrected"]
    cut["corrected"] = cut["corrections"] = None
    if marks is not None:
        some = (marks >= start) & (marks < stop)
        cut["corrected"], cut["corrections"] = marks[some] - start, dump["corrections"][some]
    cut["shape"] = dump["shape"]
    cut["n_seen"], cut["n_forgotten"] = dump["n_seen"], dump["n_forgotten"]
    if dump["numbers"] is None:  # then they follow without a gap
        cut["n_forgotten"] += start
        cut["n_seen"] -= n_rows(dump) - stop
    return cut


def n_rows(dump: Dump) -> int:
    """Return how many examples a dump has."""
    return len(dump["labels"])


def numbers_of(dump: Dump) -> Positions:
    """Return the numbers in the stream of a dump's examples."""
    if dump["numbers"] is None:
        return np.arange(dump["n_forgotten"], dump["n_seen"])
    numbers: Positions = dump["numbers"]
    return numbers


def joined(dumps: list[Dump], held: Held, n_forgotten: int) -> Dump:
    """Return the dump of one store that holds all of them, in the same order."""
    last = dumps[-1]
    sizes = [n_rows(dump) for dump in dumps]
    rows = {
        name: np.concatenate([dump["rows"][name] for dump in dumps])
        for name in last["rows"]
        if name != "indptr"
    }
    if "indptr" in last["rows"]:
        lengths = [np.diff(dump["rows"]["indptr"]) for dump in dumps]
        rows["indptr"] = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    whole: Dump = {
        "rows": rows,
        "codes": None,
        "labels": np.concatenate([dump["labels"] for dump in dumps]),
        "known": None,
        "ids": None,
        "numbers": None,
        "corrected": None,
        "corrections": None,
        "n_seen": last["n_seen"],
        "n_forgotten": n_forgotten,
        "shape": last["shape"],
    }
    if last["codes"] is not None:
        whole["codes"] = np.concatenate([dump["codes"] for dump in dumps])
    if held.unknown:
        whole["known"] = np.concatenate(
            [np.full_like(d["labels"], 255) if d["known"] is None else d["known"] for d in dumps]
        )
    if held.gaps:
        whole["numbers"] = np.concatenate([numbers_of(dump) for dump in dumps])
    if held.names:
        whole["ids"] = []
        for dump in dumps:
            whole["ids"] += numbers_of(dump).tolist() if dump["ids"] is None else dump["ids"]
    if held.corrected:
        firsts = np.cumsum([0, *sizes])[:-1]
        marks = [
            dump["corrected"] + first
            for dump, first in zip(dumps, firsts, strict=True)
            if dump["corrected"] is not None
        ]
        whole["corrected"] = np.concatenate([np.empty(0, np.int64), *marks])
        which = [dump["corrections"] for dump in dumps if dump["corrections"] is not None]
        whole["corrections"] = np.concatenate([np.empty(0, np.int64), *which])
    return whole


def link(source: Path, target: Path) -> None:
    """Make a file appear in another folder too; files of segments are never written again."""
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:  # another file system
        temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex}.tmp")
        shutil.copyfile(source, temporary)
        os.replace(temporary, target)
