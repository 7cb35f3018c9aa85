"""The items of a folder as they are now: those of its log, and of the model that it began with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tagstream.files import persist
from tagstream.learners.keeping import keeps_items
from tagstream.serve.kinds import KINDS
from tagstream.serve.log import EventLog
from tagstream.serve.names import TagNames

__all__ = ["items_now", "items_of_model"]


def items_now(folder: Path, log: EventLog) -> Iterator[dict[str, Any] | None]:
    """Yield the items with their tags of today, oldest first.

    An item that came with a model is made of what that keeps of it: its text, or its numbers in
    single precision.  Where it keeps neither, None stands for the item.
    """
    names = TagNames()
    for event in log.of_kinds(*(name for name, kind in KINDS.items() if kind.renames)):
        names.add(event.position, event.does.moves(event.body))
    base = folder / "base.tgs"
    if base.exists():
        changed = log.changed_items()
        for name, item in items_of_model(base):
            if name not in changed:
                yield None if item is None else {**item, "y": names.now(item["y"], 0)}
    for event in log.states():
        if event.kind == "auto":  # nobody has said so
            continue
        state = dict(event.body)
        for key in {"y", "no"} & state.keys():
            state[key] = names.now(state[key], event.position)
        yield state


def items_of_model(path: Path) -> Iterator[tuple[Any, dict[str, Any] | None]]:
    """Yield the ids of the items of a model file, each with what is kept of the item."""
    learner: Any
    learner, extra = persist.load_with_extra(path)
    saved = extra.get("tagger")
    if saved is None or not keeps_items(learner):
        yield from [(None, None)] * learner.n_seen_
        return
    texts = dict(zip(saved["text_ids"], saved["texts"], strict=True))
    is_numbers = saved["featurizer"]["name"] == "columns"
    names = learner.classes_.tolist()
    for name in learner.ids_:
        row, tags = learner.item(name)[:2]
        kept: dict[str, Any] = {}
        if name in texts:
            kept = {"text": texts[name]}
        elif is_numbers and isinstance(row, np.ndarray):
            kept = {"x": row[0].tolist()}
        y = [tag for tag in names if tag in tags]
        yield name, {"id": name, **kept, "y": y} if kept else None
