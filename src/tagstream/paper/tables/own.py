"""The sentence on the runs, and tables of evaluations of one's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tagstream.paper.results import CALIBRATION, MEASURES, Results, Run, as_text
from tagstream.paper.table import Table, each, tabulate

__all__ = ["own_tables"]

NOTES = {
    "holdout": "Hold-out: mean ± standard deviation over the folds.",
    "stream": "Test, then train: measured over all items of the stream.",
}


def own_tables(results: Results) -> dict[str, Table | str]:
    """Return one table of the hold-outs and one of the streams, and what was run."""
    made: dict[str, Table | str] = {"run": _run_sentence(results)}
    for kind, note in NOTES.items():
        runs = [run for run in results.runs if run.is_holdout == (kind == "holdout")]
        if runs:
            titles = {**MEASURES, **CALIBRATION}
            columns = (
                ("data", lambda run: run.data or "–"),
                ("method", lambda run: run.name),
                *each(titles, titles.__getitem__, _value),
                ("per item", lambda run: f"{_micros(run.result):,.0f} µs"),
            )
            made[f"own_{kind}"] = tabulate(runs, columns, note)
    return made


def _value(run: Run, measure: str) -> str:
    values = run.result["mean" if run.is_holdout else "measures"]
    if measure not in values:
        return "–"
    spread = run.result.get("std", {})
    deviation = f" ± {as_text(spread[measure], measure)}" if measure in spread else ""
    return as_text(values[measure], measure) + deviation


def _micros(result: Mapping[str, Any]) -> float:
    """Microseconds per item inside the learner."""
    if "folds" not in result:
        return 1e6 * float(result["seconds_per_item"])
    seconds = sum(fold["learn_seconds"] + fold["predict_seconds"] for fold in result["folds"])
    n_items = sum(fold["n_train"] + fold["n_test"] for fold in result["folds"])
    return float(1e6 * seconds / max(n_items, 1))


def _run_sentence(results: Results) -> str:
    records = [record for some in results.records.values() for record in some]
    if not records:
        return f"{len(results.runs):,} runs."
    versions = sorted({json.dumps(r["versions"], sort_keys=True) for r in records})
    said = "; ".join(
        ", ".join(f"{name} {number}" for name, number in json.loads(text).items())
        for text in versions
    )
    seconds = sum(r["seconds"] for r in records)
    return f"{len(records):,} records, {seconds / 60:.1f} minutes of computing; {said}."
