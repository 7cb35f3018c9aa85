"""The paper's table of complexities, measured: per round of training, per instance of testing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.bench_growth import BLOCK, Case, best_blocks
from benchmarks.timed import Timed
from benchmarks.timing import Section, slope, tell
from tagstream import KNN, OLANSGD, OSMLELM, PublishedOML, make_stream

# (training per round, testing per instance) as the paper states them.
PRINTED = {
    "OSML-ELM": ("n p² q", "n p q"),
    "OLANSGD": ("n log n", "p q"),
    "kNN": ("—", "n p"),
    "OML, as published": ("n p + d p q", "d p q + n d"),
    "OML": ("—", "—"),
}


def _learners() -> dict[str, Callable[[], Any]]:
    return {
        "OSML-ELM": lambda: OSMLELM(random_state=0),
        "OLANSGD": OLANSGD,
        "kNN": KNN,
        "OML, as published": lambda: PublishedOML(random_state=0),
        "OML": lambda: Timed(lift=None, random_state=0),
    }


def run(quick: bool) -> Section:
    base = {"n": 1500 if quick else 3000, "p": 100, "q": 15}
    grids = {
        "n": [1000, 4000] if quick else [1000, 3000, 10_000, 30_000],
        "p": [30, 300] if quick else [30, 100, 300, 1000],
        "q": [5, 50] if quick else [5, 15, 50, 150],
    }
    turns = 3 if quick else 8
    rows, curves = [], []
    for name, make in _learners().items():
        row: dict[str, Any] = {"method": name}
        row["training, printed"], row["testing, printed"] = PRINTED[name]
        times: dict[str, dict[str, list[float]]] = {"training": {}, "testing": {}}
        for variable, values in grids.items():
            cases = [_case(make(), base | {variable: value}, turns) for value in values]
            pairs = best_blocks(cases, turns)
            times["testing"][variable] = [test for test, _ in pairs]
            times["training"][variable] = [train for _, train in pairs]
            tell(".")
        for phase, by in times.items():
            for variable, y in by.items():
                x = grids[variable]
                row[f"{phase}: {variable}^"] = slope(x[-2:], y[-2:])
                curves.append(
                    {
                        "plot": "paper",
                        "panel": f"{phase} against {variable}",
                        "line": name,
                        "x": x,
                        "y": y,
                        "xlabel": variable,
                        "ylabel": "µs per example",
                    }
                )
            row[f"{phase}, µs"] = by["n"][1]
        rows.append(row)
    return {
        "title": "The paper's complexity table, measured",
        "equal": f"{base['n']:,} rows learnt, p = {base['p']}, q = {base['q']} unless it is what "
        f"grows; synthetic rows, blocks of {BLOCK}, best of {turns} blocks, one thread. Exponents "
        "are those between the two largest sizes.",
        "differs": "n is what was learnt before; refits of OML are left out, and it has no lift.",
        "rows": rows,
        "claims": [],
        "curves": curves,
    }


def _case(model: Any, size: dict[str, int], turns: int) -> Case:
    n, p, q = size["n"], size["p"], size["q"]
    stream = make_stream(n + turns * BLOCK, p=p, q=q, cardinality=min(2.5, q / 3), seed=8)
    return model, stream.X.astype(np.float32), stream.Y, n
