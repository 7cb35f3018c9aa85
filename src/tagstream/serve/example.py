"""Some short texts to begin with: questions of a neighbourhood, written for this project."""

from __future__ import annotations

import json
from importlib import resources

from tagstream.serve.writer import Change

__all__ = ["example_changes"]

TAGS = {
    "bike": "bicycle, cycling, wheel",
    "computer": "laptop, printer, software, internet",
    "family": "children, parents, baby",
    "garden": "plants, compost, flowers",
    "health": "doctor, sleep, pain, medicine",
    "kitchen": "cooking, pan, knife, recipe",
    "money": "bank, price, insurance, tax",
    "school": "homework, exam, maths, teacher",
    "travel": "train, hotel, trip, holiday",
}


def example_changes() -> list[Change]:
    """Return the changes that put the example into a new folder.

    Its tags are declared; then some items are learnt, and some wait.

    Examples
    --------
    >>> tags, *learnt, pool = example_changes()
    >>> tags.kind, sum(len(change.bodies) for change in learnt), pool.kind, len(pool.bodies)
    ('declare', 156, 'pool', 30)
    """
    text = resources.files("tagstream.serve").joinpath("example.jsonl").read_text("utf-8")
    items = [json.loads(line) for line in text.splitlines()]
    learnt = [item for item in items if "y" in item]
    waiting = [
        {"id": item["id"], "item": {"text": item["text"]}} for item in items if "y" not in item
    ]
    # One by one, so that how well it suggests can be seen from the start.
    return [
        Change("declare", [{"tags": TAGS}], ["example-tags"], source="example"),
        *(Change("learn", [item], [item["id"]], source="example") for item in learnt),
        Change("pool", waiting, [None] * len(waiting)),
    ]
