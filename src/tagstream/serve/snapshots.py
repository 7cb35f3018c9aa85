"""Snapshots of the tagger: files named after the position of the log that they know."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from pathlib import Path
from typing import Any, Protocol

__all__ = ["SNAPSHOTS_KEPT", "Snapshots"]

SNAPSHOTS_KEPT = 3

logger = logging.getLogger(__name__)


class _Saves(Protocol):
    def save(self, path: Any) -> None: ...


class Snapshots:
    """The snapshots of one folder.

    Parameters
    ----------
    folder : Path
        The folder of the service; they are in ``snapshots`` in it.
    read_only : bool
        Beside a service that runs: damaged ones are passed over, and stay where they are.
    """

    def __init__(self, folder: Path, read_only: bool = False) -> None:
        self.folder = folder / "snapshots"
        self.base = folder / "base.tgs"
        self.read_only = read_only

    def paths(self) -> list[Path]:
        """Return the snapshots, newest first."""
        found = (path for path in self.folder.glob("*.tgs") if path.stem.isdigit())
        return sorted(found, reverse=True)

    def last_known(self) -> int:
        """Return the highest position that a snapshot knows."""
        return max((int(path.stem) for path in self.paths()), default=0)

    def newest(self, kind: Any, below: int | None = None) -> tuple[Any, int]:
        """Open the newest whole snapshot; return the tagger and its position.

        Without one, that is the model that the folder began with, or a new tagger.

        Parameters
        ----------
        kind : type
            The class of the tagger.
        below : int, optional
            It must not know this position.
        """
        for path in self.paths():
            if below is not None and int(path.stem) >= below:
                continue
            try:
                return kind.open(path), int(path.stem)
            except (ValueError, OSError) as error:
                if self.read_only:  # the writer may have removed it, and will see to damage
                    continue
                logger.error("snapshot %s is damaged (%s); using the one before", path, error)
                os.replace(path, path.with_suffix(".damaged"))
        return (kind.open(self.base) if self.base.exists() else kind()), 0

    def save(self, tagger: _Saves, position: int) -> bool:
        """Write a snapshot and remove old ones; return False if it is there already."""
        path = self.folder / f"{position:012d}.tgs"
        if path.exists():
            return False
        start = time.perf_counter()
        tagger.save(path)
        for old in self.paths()[SNAPSHOTS_KEPT:]:
            with contextlib.suppress(FileNotFoundError):
                old.unlink()
        took = time.perf_counter() - start
        logger.info("snapshot at position %d written in %.2f s", position, took)
        return True
