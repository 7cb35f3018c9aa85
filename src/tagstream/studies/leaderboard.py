"""The leaderboard of the benchmark: tables made of record files that anyone can contribute."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tagstream.paper.results import as_text
from tagstream.paper.table import Table
from tagstream.studies.benchmark import LATE, MISSING, NEW, SETTINGS, STREAMS
from tagstream.studies.records import read_folder

__all__ = ["check_records", "leaderboard_tables", "read_leaderboard"]

Record = Mapping[str, Any]
Cell = tuple[str, float, int, float]

_NEEDED = ("stream", "new", "late", "missing", "learner", "title", "family", "failed", "micro_f1")
_KNOBS = {"new": NEW, "late": LATE, "missing": MISSING}


def check_records(records: Sequence[Record]) -> None:
    """Raise unless records are such as ``tagstream benchmark`` writes.

    Raises
    ------
    ValueError
        It names the record and what is wrong with it.
    """
    for record in records:
        who = record.get("key", record)
        lacks = [name for name in _NEEDED if name not in record]
        if lacks:
            raise ValueError(f"the record {who} must have {', '.join(lacks)}")
        if record["stream"] not in STREAMS:
            raise ValueError(
                f"the record {who} must be of {', '.join(STREAMS)}, got {record['stream']!r}"
            )
        for knob, allowed in _KNOBS.items():
            if record[knob] not in allowed:
                raise ValueError(
                    f"the record {who} must have {knob} among {allowed}, got {record[knob]!r}"
                )
        value = record["micro_f1"]
        if record["failed"] is None and not (value is not None and 0 <= value <= 1):
            raise ValueError(f"the record {who} must have a micro_f1 from 0 to 1, got {value!r}")


def read_leaderboard(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the records of a folder, checked."""
    records = [r for r in read_folder(folder) if r.get("part") == "benchmark"]
    if not records:
        raise FileNotFoundError(
            f"{os.fspath(folder)} must hold records of the benchmark (*.jsonl), got none; "
            "make some with `tagstream benchmark`"
        )
    check_records(records)
    return records


def leaderboard_tables(records: Sequence[Record]) -> dict[str, Table]:
    """Return the tables of the page: by learner, and by position of each knob."""
    scores = _scores(records)
    shared = _shared(scores)
    order = sorted(scores, key=lambda who: (-len(scores[who]), -_mean(scores[who], shared)))
    tables = {"leaderboard": _overall(records, scores, shared, order)}
    tables["leaderboard-knobs"] = _by_knob(records, scores, order)
    return tables


def _scores(records: Sequence[Record]) -> dict[str, dict[Cell, float]]:
    """Micro-F1 by learner and cell; a failed cell counts 0."""
    found: dict[str, dict[Cell, float]] = defaultdict(dict)
    for r in records:
        cell = r["stream"], float(r["new"]), int(r["late"]), float(r["missing"])
        found[r["learner"]][cell] = 0.0 if r["failed"] else float(r["micro_f1"])
    return found


def _shared(scores: Mapping[str, Mapping[Cell, float]]) -> list[Cell]:
    """Return the cells that every learner has been run on."""
    everyone = list(scores.values())
    return [cell for cell in everyone[0] if all(cell in one for one in everyone)]


def _mean(of: Mapping[Cell, float], cells: Sequence[Cell]) -> float:
    return float(np.mean([of[cell] for cell in cells])) if cells else 0.0


def _overall(
    records: Sequence[Record],
    scores: Mapping[str, Mapping[Cell, float]],
    shared: Sequence[Cell],
    order: Sequence[str],
) -> Table:
    titles = {r["learner"]: (r["title"], r["family"]) for r in records}
    total = len(STREAMS) * len(SETTINGS)
    rows = []
    for who in order:
        mine = [r for r in records if r["learner"] == who]
        new = [r["new_f1"] for r in mine if r.get("new_f1") is not None]
        times = [r["seconds_per_item"] for r in mine if r.get("seconds_per_item")]
        n_failed = sum(bool(r["failed"]) for r in mine)
        ranks = [1 + sum(scores[o][c] > scores[who][c] for o in order) for c in shared]
        rows.append(
            (
                *titles[who],
                f"{len(scores[who])} of {total}" + (f", {n_failed} failed" if n_failed else ""),
                as_text(_mean(scores[who], shared)) if shared else "-",
                f"{np.mean(ranks):.1f}" if shared else "-",
                as_text(_mean(scores[who], list(scores[who]))),
                as_text(float(np.mean(new))) if new else "-",
                f"{1e3 * float(np.median(times)):.2f}" if times else "-",
            )
        )
    head = (
        *("learner", "from", "cells run", "micro-F1, shared cells", "mean rank"),
        *("micro-F1, its cells", "F1 of new labels", "ms per item"),
    )
    note = (
        f"Shared cells: the {len(shared)} that every learner on this page was run on; by these "
        "learners can be compared. A failed cell counts 0. Time: processor time, median of cells."
    )
    return Table(head, tuple(rows), note)


def _by_knob(
    records: Sequence[Record], scores: Mapping[str, Mapping[Cell, float]], order: Sequence[str]
) -> Table:
    """Mean micro-F1 at each position of each knob, over the cells that a learner was run on."""
    titles = {r["learner"]: f"{r['title']} ({r['family']})" for r in records}
    knobs = [(j, value) for j, values in enumerate(_KNOBS.values(), 1) for value in values]
    rows = []
    for who in order:
        cells = [[c for c in scores[who] if c[j] == value] for j, value in knobs]
        rows.append((titles[who], *(as_text(_mean(scores[who], c)) if c else "-" for c in cells)))
    head = (
        "learner",
        *(f"new at {value:.0%}" for value in NEW),
        *(f"late by {value:,}" for value in LATE),
        *(f"missing {value:.0%}" for value in MISSING),
    )
    return Table(head, tuple(rows), "Mean micro-F1 over the cells with that position of one knob.")
