"""Tables of the experiments on what the model knows (:mod:`tagstream.paper.knowing`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tagstream.paper.results import Results
from tagstream.paper.table import Table

__all__ = ["knowing_tables"]

Record = dict[str, Any]
AT = ("250", "500", "1000")


def knowing_tables(results: Results) -> dict[str, Table | str]:
    """Return the tables of those experiments that have records, by name."""
    made: dict[str, Table | str] = {}
    makers = {
        "review": _review,
        "promise": _promise,
        "drift": _drift,
        "next": _next,
    }
    for part, make in makers.items():
        records = results.part(part)
        if records:
            made[f"knowing_{part}"] = make(records)
    return made


def _by(records: list[Record], *keys: str) -> dict[tuple[Any, ...], list[Record]]:
    found: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        at = tuple(record["setting"].get(key, record.get(key)) for key in keys)
        found.setdefault(at, []).append(record["result"])
    return found


def _mean(values: list[float]) -> str:
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def _review(records: list[Record]) -> Table:
    rows = []
    for (name,), some in _by(records, "dataset").items():
        ranks = [
            _mean([r[key] for r in some if key in r]) for key in ("doubt", "lowest", "cleanlab")
        ]
        base = f"{np.mean([r['base'] for r in some]):.3f}"
        seconds = f"{max(r['seconds'] for r in some):.1f}"
        rows.append((name, str(len(some)), *ranks, base, f"{some[0]['n']:,}", seconds))
    head = (
        *("data set", "seeds", "doubt", "lowest score", "cleanlab, five folds", "share spoilt"),
        *("items", "seconds at most"),
    )
    return Table(
        head,
        tuple(rows),
        "Average precision of finding the items of which one tag was replaced by a random other; "
        "mean and deviation over seeds. *Lowest score*: by the given tag that the model believes "
        "least. *cleanlab*: its multi-label ranking, on probabilities of five folds by the same "
        "learner. Seconds are those of asking about all items.",
    )


def _promise(records: list[Record]) -> Table:
    rows = []
    for (name, rolled), (result, *_) in _by(records, "dataset", "rolled").items():
        cells = []
        for question in ("next", "any"):
            found = result[question]
            kept = "–" if found["kept"] is None else f"{found['kept']:.3f}"
            missed = f"{len(found['missed'])} of {found['n_labels']}"
            cells += [f"{found['n_applied']:,}", kept, missed]
        rows.append((name, "rolled" if rolled else "as it is", f"{result['n']:,}", *cells))
    head = (
        *("stream", "labels", "items", "next item: applied", "right", "missed"),
        *("any item: applied", "right", "missed"),
    )
    return Table(
        head,
        tuple(rows),
        "Labels that were applied under a promise of .95, and the share that was right. *Missed*: "
        "labels with at least 100 applied of which fewer than .95 less two standard errors were "
        "right, or fewer than .90 within some 500 in a row. *Rolled*: at half of the stream each "
        "label takes the place of the next. The first 5,000 items, in the order of the file.",
    )


def _drift(records: list[Record]) -> Table:
    found = _by(records, "dataset", "rolled")
    rows = []
    for name in dict.fromkeys(at[0] for at in found):
        plain, rolled = found.get((name, False)), found.get((name, True))
        if plain is None or rolled is None:
            continue
        one, other = plain[0], rolled[0]
        delays = other["delays"]
        middle = f"{np.median(delays):.0f}" if delays else "–"
        found_of = f"{other['found']} of {other['watched']}"
        rows.append(
            (name, f"{one['n']:,}", str(one["watched"]), str(one["false"]), found_of, middle)
        )
    head = (
        *("stream, shuffled", "items", "labels watched", "false alarms"),
        *("labels found after the roll", "decisions until then, median"),
    )
    return Table(
        head,
        tuple(rows),
        "*Watched*: labels with at least 50 decisions in the first half. Where decisions about a "
        "label were wrong often before, a roll changes their rate of errors little.",
    )


def _next(records: list[Record]) -> Table:
    found = _by(records, "dataset", "order")
    rows = []
    for name in dict.fromkeys(at[0] for at in found):
        fair, mixed = found.get((name, "random"), []), found.get((name, "mixed"), [])
        n = min(len(fair), len(mixed))
        if not n:
            continue
        cells = []
        for at in AT:
            gaps = [
                m[at]["micro_f1"] - r[at]["micro_f1"] for m, r in zip(mixed, fair, strict=False)
            ]
            spread = f" ± {np.std(gaps, ddof=1):.3f}" if n > 1 else ""
            level = np.mean([r[at]["micro_f1"] for r in fair[:n]])
            cells.append(f"{level:.3f}, {np.mean(gaps):+.3f}{spread}")
        rows.append((name, str(n), *cells))
    return Table(
        ("data set", "seeds", *(f"{at} tagged" for at in AT)),
        tuple(rows),
        "Micro-F1 on other items after so many were tagged in random order, and what the default "
        "order adds; mean and deviation over seeds. From a pool of at most 4,000, 50 at a time.",
    )
