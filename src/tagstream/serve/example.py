"""Some short texts to begin with: questions of a neighbourhood, written for this project."""

from __future__ import annotations

import json
from importlib import resources

from tagstream.serve.writer import Change

__all__ = ["example_changes"]


def example_changes() -> list[Change]:
    """Return the changes that put the example into a new folder: some learnt, some waiting.

    Examples
    --------
    >>> *learnt, pool = example_changes()
    >>> sum(len(change.bodies) for change in learnt), pool.kind, len(pool.bodies)
    (156, 'pool', 30)
    """
    text = resources.files("tagstream.serve").joinpath("example.jsonl").read_text("utf-8")
    items = [json.loads(line) for line in text.splitlines()]
    learnt = [item for item in items if "y" in item]
    waiting = [
        {"id": item["id"], "item": {"text": item["text"]}} for item in items if "y" not in item
    ]
    # One by one, so that how well it suggests can be seen from the start.
    return [
        *(Change("learn", [item], [item["id"]]) for item in learnt),
        Change("pool", waiting, [None] * len(waiting)),
    ]
