"""Try a quarantined event again, while the service does not run."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tagstream.serve.folder import lock_folder, loss_words
from tagstream.serve.log import Event, EventLog
from tagstream.serve.recovery import open_log, remove_copy
from tagstream.serve.snapshots import Snapshots

__all__ = ["retry"]


def retry(folder: Path, position: int) -> int:
    """Append a quarantined event anew, for the next start to learn; return its new position.

    The service must not run meanwhile.

    Raises
    ------
    OSError
        The folder is in use, or its log is damaged.
    ValueError
        There is no such event, or its item was changed since.
    """
    path = folder / "events.db"
    if not path.exists():
        raise OSError(f"{folder} must be the folder of a service, got no events.db in it")
    with contextlib.closing(lock_folder(folder, "stop the service first")):
        log, losses = open_log(path, Snapshots(folder).last_known())
        try:
            if losses:
                raise OSError(loss_words(losses))
            return _append_again(log, position)
        finally:
            log.close()
            remove_copy(path)


def _append_again(log: EventLog, position: int) -> int:
    event = log.find(position)
    if event is None or not event.is_quarantined:
        known = ", ".join(str(found) for found, _ in log.quarantined()) or "none"
        raise ValueError(
            f"POSITION must be that of a quarantined event, got {position}; quarantined: {known}"
        )
    newest = None if event.item is None else log.last_of_item(event.item)
    if newest is not None and newest > position:
        raise ValueError(
            f"the item of event {position} must not have changed since, got event {newest}; "
            "a retry would undo that"
        )
    n = len(log.keys(f"retry:{position}:"))
    again = Event(
        event.kind, f"retry:{position}:{n + 1}", event.body, who="local", source="command"
    )
    with log.transaction():
        return log.append(again)
