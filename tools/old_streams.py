"""Write down what an older version did on the streams of the report, to be compared with.

The records of 0.2 hold sums over whole streams.  Where this version has other sums, a paired
comparison needs the counts of each block of 100 items, so the older code runs again on the data
sets that are named.  From the top folder of the repository::

    git worktree add ../old 69c8570                  # 0.2
    PYTHONPATH=../old/src python tools/old_streams.py results/prequential-0.2.jsonl medical enron

What has a line in the file already is not run again.  The records of this version have their blocks
from ``tagstream reproduce results --only prequential``.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import tagstream
from tagstream import evaluate
from tagstream.paper import plan, work

METHODS = ("oml", "oml-vote", "oml-window", "oml-convex", "convex-vote", "knn")
PART = "prequential-0.2"


def of_this_version() -> ModuleType:
    """Return the module of this version that counts blocks, whichever version is imported."""
    path = Path(__file__).parents[1] / "src" / "tagstream" / "evaluation" / "paired.py"
    spec = importlib.util.spec_from_file_location("blocks_of_this_version", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line(dataset: str, method: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return a record."""
    return {
        "key": f"{PART}/{dataset}/{method}", "part": PART, "dataset": dataset, "method": method,
        "title": plan.METHODS["prequential"][method].title, "fold": 0, "setting": {},
        "versions": work._versions(), "seconds": 0, "result": result,
    }  # fmt: skip


def old_records() -> Iterator[dict[str, Any]]:
    """Yield the sums of the records that the older version was committed with."""
    path = Path(tagstream.__file__).parents[2] / "results" / "prequential.jsonl"
    for record in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if record["method"] in METHODS:
            labels = record["result"]["counts"]["labels"]
            yield line(record["dataset"], record["method"], {"labels": labels})


def run_again(cell: plan.Cell, blocks: ModuleType) -> dict[str, Any]:
    """Run one stream with the version that is imported."""
    found, first = work.load(cell.dataset, None), slice(0, dict(cell.setting).get("first"))
    X, Y = found.X[first], found.Y[first]
    learner = plan.METHODS["prequential"][cell.method].make(0, cell.fold)
    course = evaluate.prequential(learner, X, Y, every=plan.EVERY, window=plan.EVERY)
    result = {"labels": course.counts["labels"], "blocks": blocks.blocks_of(course, Y)}
    return line(cell.dataset, cell.method, result)


def main() -> None:
    """Write what is not there yet, short streams first."""
    path, names, blocks = Path(sys.argv[1]), sys.argv[2:], of_this_version()
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    there = {record["key"]: record for record in map(json.loads, lines)}
    made = {record["key"]: record for record in old_records()} | there
    cells = [c for c in plan.grid() if c.part == "prequential" and c.method in METHODS]
    for cell in sorted(cells, key=lambda cell: cell.size):
        key = f"{PART}/{cell.dataset}/{cell.method}"
        if cell.dataset in names and "blocks" not in made[key]["result"]:
            made[key] = run_again(cell, blocks)
            print(cell.dataset, cell.method, flush=True)
        text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in made.values())
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
