"""What is known of an item's tags: which of them a person has looked at, and which we set.

The connectors keep these notes for each item of their source (:attr:`Known.about`):

``tags``
    as they were when the item was last seen, or as we left them;
``text``
    a digest of its text;
``reviewed``
    its tags when a person last set or confirmed them; None if nobody did;
``ours``
    those of its tags that we set;
``refused``
    those that we set and a person took away.

Only what is reviewed or refused is taught, so that a tagger does not learn from itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tagstream.connect.state import Known
from tagstream.connect.target import Lesson

__all__ = ["is_open", "lesson_of", "new_item", "seen_again"]

Names = Callable[[Iterable[Any]], tuple[str, ...]]


def _seen(tags: Iterable[Any], text: str) -> dict[str, Any]:
    return {"tags": sorted(tags), "text": hashlib.sha256(text.encode()).hexdigest()[:32]}


def new_item(tags: Iterable[Any], text: str, *, is_reviewed: bool, waits: bool) -> Known:
    """Return the notes of an item that was not seen before.

    Examples
    --------
    >>> known = new_item(["sea"], "low tide", is_reviewed=True, waits=False)
    >>> known.about["reviewed"], known.waits
    (['sea'], False)
    """
    tags = sorted(tags)
    about = {"reviewed": tags if is_reviewed else None, "ours": [], "refused": []}
    return Known(waits=waits and not is_reviewed, about={**about, **_seen(tags, text)})


def seen_again(
    known: Known,
    tags: Iterable[Any],
    text: str,
    *,
    in_inbox: bool,
    is_by_machine: Callable[[], bool],
) -> Known:
    """Return the notes of an item that was seen before.

    Parameters
    ----------
    known : Known
    tags, text
        As they are now.
    in_inbox : bool
        Whether the item still waits for a person: then only what was taken away is known.
    is_by_machine : callable
        Tells, when it matters, whether a machine changed the tags.

    Examples
    --------
    >>> known = new_item([], "low tide", is_reviewed=False, waits=True)
    >>> known = seen_again(known, ["sea"], "low tide", in_inbox=False, is_by_machine=lambda: False)
    >>> known.about["reviewed"], known.waits
    (['sea'], False)
    """
    now, about = {*tags}, {key: value for key, value in known.about.items() if key != "gone"}
    before, seen = {*about["tags"]}, _seen(now, text)
    if now != before and not is_by_machine():
        gone = {tag for tag in about["ours"] if tag in before - now}
        about["refused"] = sorted({*about["refused"], *gone} - now)
        if not in_inbox:
            about["reviewed"] = sorted(now)
    about["ours"] = [tag for tag in about["ours"] if tag in now]
    is_new_text = about["text"] != seen["text"]
    waits = about["reviewed"] is None and (known.waits or is_new_text)
    return replace(known, waits=waits, about={**about, **seen})


def is_open(known: Known) -> bool:
    """Tell whether nobody has reviewed an item."""
    return known.about.get("reviewed") is None


def lesson_of(id: str, text: str, known: Known, labels: Names, names: Names) -> Lesson | None:
    """Return what an item teaches, if it does.

    Parameters
    ----------
    labels : callable
        From the reviewed tags to those that are learnt.
    names : callable
        From tags to what they are called.
    """
    reviewed = known.about["reviewed"]
    tags = None if reviewed is None else labels(reviewed)
    no = tuple(tag for tag in names(known.about["refused"]) if tag not in (tags or ()))
    return None if tags is None and not no else Lesson(id, text, tags, no)
