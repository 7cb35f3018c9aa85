"""The folder of a service: its lock, the model that it began with, what a kill left behind."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tagstream.files import locks
from tagstream.serve.recovery import Loss
from tagstream.serve.snapshots import Snapshots
from tagstream.serve.taggers import TaggerType

__all__ = ["keep_base", "lock_folder", "loss_words", "remove_leftovers"]


def remove_leftovers(folder: Path, snapshots: Snapshots) -> None:
    """Remove what a kill left behind in the middle of writing a file."""
    names = ("base.new", "tokens.json.new", "label-studio.new")
    for path in (*(folder / n for n in names), *snapshots.folder.glob("*.new")):
        path.unlink(missing_ok=True)


def keep_base(folder: Path, model: Path | None, tagger: TaggerType) -> None:
    """Copy the model file to start from, once."""
    base = folder / "base.tgs"
    if model is None:
        return
    if base.exists():
        if _digest(base) != _digest(model):
            raise OSError(f"{folder} must be new to start from {model}, got a model in it")
        return
    if (folder / "events.db").exists():
        raise OSError(f"{folder} must be new to start from {model}, got events in it")
    tagger.open(model)  # not a damaged one
    new = base.with_suffix(".new")
    try:
        shutil.copyfile(model, new)
        with open(new, "rb") as file:
            os.fsync(file.fileno())
        os.replace(new, base)
    finally:
        new.unlink(missing_ok=True)


def lock_folder(folder: Path, what_to_do: str = "") -> Any:
    """Return a file that is locked as long as it is open."""
    file = open(folder / "lock", "a+")  # noqa: SIM115 - it stays open while the service lives
    try:
        locks.lock(file.fileno())
    except OSError as error:
        file.seek(0)
        owner = file.read().strip() or "another process"
        file.close()
        hint = f"; {what_to_do}" if what_to_do else ""
        raise OSError(f"{folder} must not be served twice, got a lock of {owner}{hint}") from error
    file.truncate(0)
    file.write(f"process {os.getpid()}")
    file.flush()
    return file


def _digest(path: Path) -> bytes:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).digest()


def loss_words(losses: Sequence[Loss]) -> str:
    """Return what is missing, and what to do."""
    n = sum(loss.last - loss.first + 1 for loss in losses)
    where = ", ".join(map(str, losses[:5])) + (", …" if len(losses) > 5 else "")
    return (
        f"At least {n} events are missing from the log or damaged: {where}. Questions are answered "
        "from what is left; changes are refused. Put a good copy of events.db back; or, to go on "
        "without these events: tagstream serve DIR --accept-loss"
    )
