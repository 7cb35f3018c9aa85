"""What each kind of event does: one table.

The log stores events of any kind.  This table says what a kind does to the tagger, to the table of
items and to the names of tags.  A new kind is a new line here, and a method of the tagger if it
changes the tagger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tagstream.records.record import CHANGES

__all__ = ["KINDS", "Kind", "check_known"]


def _moves_nothing(body: Mapping[str, Any]) -> dict[str, str | None]:
    return {}


@dataclass(frozen=True)
class Kind:
    """What events of one kind do.

    Attributes
    ----------
    changes : bool
        Whether it changes the tagger.  Only such events are exported.
    item : "", "sets", "drops" or "notes"
        Whether ``body["id"]`` names an item: one whose newest state this event is, one that is
        gone after it, or one of which it only keeps something.
    moves : callable
        Returns for the body of an event which tags it renames: old name to new name, or to None
        for a tag that is removed.
    voids : bool
        Whether it takes another event, ``body["position"]``, out of the replay.
    """

    changes: bool = True
    item: Literal["", "sets", "drops", "notes"] = ""
    moves: Callable[[Mapping[str, Any]], dict[str, str | None]] = _moves_nothing
    voids: bool = False

    @property
    def renames(self) -> bool:
        """Whether it may change the names of tags."""
        return self.moves is not _moves_nothing


KINDS: dict[str, Kind] = {
    "learn": Kind(item="sets"),
    **dict.fromkeys(CHANGES, Kind()),
    "forget": Kind(item="drops"),
    "rename": Kind(moves=lambda body: {body["old"]: body["new"]}),
    "merge": Kind(moves=lambda body: dict.fromkeys(body["tags"], body["into"])),
    "remove": Kind(moves=lambda body: {body["tag"]: None}),
    # Tags that were applied without asking.  The learner never sees them.
    "auto": Kind(changes=False, item="sets"),
    # The tagger raised an error of its own on an event; it is never tried again by itself.
    "quarantine": Kind(changes=False, voids=True),
    # The tagger did not take an event, for a reason that concerns whoever sent it.
    "reject": Kind(changes=False, voids=True),
    # What one person says of an item, where several are asked; y is None if it is withdrawn.
    "answer": Kind(changes=False, item="notes"),
    # How far an import has come, committed with its rows.
    "import": Kind(changes=False),
    # What the model of the beginning knew of an item, before its first change.
    "began": Kind(changes=False, item="notes"),
    # The events from body["first"] to body["last"] are one change, which is undone as one.
    "together": Kind(changes=False),
    # The events of body["of"] were taken back by those of body["by"]: first and last position each.
    "undo": Kind(changes=False),
    # Events from body["first"] to body["last"] are lost.  Its position is that of the last one.
    "gap": Kind(changes=False),
}


def check_known(kind: str, position: int, where: object) -> None:
    """Refuse to go on from an event whose kind this version does not know.

    Raises
    ------
    OSError
        It would not be known what the event does; nothing was changed.
    """
    if kind not in KINDS:
        raise OSError(
            f"{where} has an event of the kind {kind!r} at position {position}, which this version "
            "does not know; install a newer tagstream. Nothing was changed."
        )
