"""Records of ``tagstream reproduce`` as records of a study, so that nothing has to be run twice.

Its test-then-train part walks through streams as the studies do and keeps raw counts and fading
measures.  Two differences remain: only the default decision was measured, and the first item,
which had no answer, was counted as one for which nothing was suggested.
"""

from __future__ import annotations

import os
from typing import Any

from tagstream import records as data
from tagstream.paper.results import Results, measures_of
from tagstream.studies.learners import LEARNERS

__all__ = ["reproduced_records"]


def reproduced_records(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return what the test-then-train part of a results directory says, as records of a study."""
    found = []
    for record in Results.read(folder).part("prequential"):
        result, name = record["result"], record["dataset"]
        if record["method"] not in LEARNERS or record["method"] == "oml-window":
            continue  # a variant of the paper's ablation
        counts = result["counts"]
        found.append(
            {
                "key": record["key"],
                "part": "studies",
                "stream": name,
                "n": result["n_items"],
                "p": data.DATASETS[name].p,
                "q": len(counts["labels"]["true"]),
                "cardinality": sum(counts["labels"]["true"]) / result["n_items"],
                "learner": record["method"],
                "title": record["title"],
                "family": "tagstream",
                "versions": record["versions"],
                "failed": None,
                "n_items": result["n_items"],
                "seconds": record["seconds"],
                "seconds_per_item": result["seconds_per_item"],
                "nbytes": result["nbytes"],
                "result": {
                    "default": {"fading": result["fading"], "plain": measures_of(counts)},
                },
            }
        )
    return found
