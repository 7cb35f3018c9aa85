"""Tables of the experiment on the order of the training data (:mod:`tagstream.paper.orders`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.paper.orders import COPIED, ONCE
from tagstream.paper.paired import CHANCE
from tagstream.paper.results import Results, as_text
from tagstream.paper.table import Table

__all__ = ["order_tables"]

Values = npt.NDArray[np.float64]
Found = dict[tuple[str, str, str], dict[str, Values]]  # data set, method, arrangement

SHUFFLED = ONCE[0]
RIVALS = {"oml-vote": "votes", "knn": "kNN"}
MEASURES = {
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "example_f1": "example-F1",
    "hamming_loss": "Hamming loss",
}


def order_tables(results: Results) -> dict[str, Table | str]:
    """Return the tables and sentences on the order of the training data, by name."""
    found = _found(results)
    names = [name for name in dict.fromkeys(key[0] for key in found) if _has(found, name)]
    if not names:
        return {}
    return {
        "order": _micro_table(found, names),
        "order_others": _others_table(found, names),
        "order_copies": _copies_table(found, names),
        "verdict_order": _verdict(found, names),
        "verdict_copies": _copies_verdict(found, names),
    }


def _found(results: Results) -> Found:
    """Return the measures of those divisions of a data set for which every run is there.

    With copies there may be fewer divisions, the first ones.
    """
    runs: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = {}
    for record in results.part("order"):
        at = record["dataset"], record["method"], record["setting"]["order"]
        runs.setdefault(at, {})[record["fold"]] = record["result"]
    whole: dict[str, set[int]] = {}
    for (name, _, order), some in runs.items():
        if order in ONCE:
            whole[name] = whole.get(name, set(some)) & set(some)
    found: Found = {}
    for at, some in runs.items():
        divisions = sorted(whole.get(at[0], set()) & set(some))
        if divisions:
            names = some[divisions[0]]
            found[at] = {m: np.array([some[k][m] for k in divisions]) for m in names}
    return found


def _has(found: Found, name: str) -> bool:
    return all((name, "oml", order) in found for order in ONCE)


def _mean(
    found: Found, name: str, method: str, order: str, measure: str, n: int | None = None
) -> str:
    """Return the mean over all divisions, or over the first ``n``."""
    values = found.get((name, method, order))
    return "–" if values is None else as_text(values[measure][:n].mean(), measure)


def _difference(ours: Values, theirs: Values) -> tuple[float, float]:
    """Return the mean difference, division by division, and half of its 95 % interval."""
    n = min(len(ours), len(theirs))
    gaps = ours[:n] - theirs[:n]
    if n < 2:
        return float(gaps.mean()), float("inf")
    return float(gaps.mean()), float(CHANCE[min(n, 10)] * gaps.std(ddof=1) / n**0.5)


def _micro_table(found: Found, names: list[str]) -> Table:
    rows = []
    for name in names:
        cells = [str(len(found[name, "oml", SHUFFLED]["micro_f1"]))]
        cells += [_mean(found, name, "oml", order, "micro_f1") for order in ONCE]
        cells.append(_mean(found, name, "oml-next", SHUFFLED, "micro_f1"))
        for rival in RIVALS:
            values = [_mean(found, name, rival, order, "micro_f1") for order in ONCE]
            cells.append(" / ".join(values))
        rows.append((name, *cells))
    rivals = (f"{rival}, the same" for rival in RIVALS.values())
    head = ("data set", "divisions", *ONCE, "next item, shuffled", *rivals)
    return Table(
        head,
        tuple(rows),
        "Micro-F1 on the items left, after `fit` on 80 % in that order; means over so many random "
        "divisions. *Next item*: the weights for the next item of the stream, learnt in random "
        "order. These are the answers that version 0.2 gave to every question. *Votes*: "
        "`OML(head=False)`.",
    )


def _others_table(found: Found, names: list[str]) -> Table:
    rows = []
    for name in names:
        for measure, title in list(MEASURES.items())[1:]:
            cells = [_mean(found, name, "oml", order, measure) for order in ONCE]
            cells += [_mean(found, name, rival, "sorted", measure) for rival in RIVALS]
            rows.append((name, title, *cells))
    head = ("data set", "measure", *ONCE, *(f"{r}, sorted" for r in RIVALS.values()))
    return Table(head, tuple(rows), "The other three measures of the same runs.")


def _copies_table(found: Found, names: list[str]) -> Table:
    rows = []
    for name in names:
        if (name, "oml", COPIED[0]) not in found:
            continue
        n = len(found[name, "oml", COPIED[0]]["micro_f1"])
        cells = [_mean(found, name, "oml", o, "micro_f1", n) for o in (SHUFFLED, *COPIED)]
        for measure in ("log_loss", "calibration_error"):
            cells.append(_mean(found, name, "oml-next", SHUFFLED, measure, n))
            cells += [_mean(found, name, "oml", o, measure, n) for o in (SHUFFLED, COPIED[0])]
        rows.append((name, *cells))
    head = (
        *("data set", "micro-F1, once", *COPIED, "log loss, next item", "any item"),
        *("three in a row", "calibration error, next item", "any item", "three in a row"),
    )
    return Table(
        head,
        tuple(rows),
        "Each training item once or three times, over the same divisions, three at most. Log loss "
        "per item, and calibration error over the mean share of a label: smaller is better. *Next "
        "item*: as above, each item once.",
    )


def _worse(found: Found, names: list[str], better: Any) -> Iterator[tuple[str, float, float]]:
    """Yield cells in which OML is worse than another, beyond chance."""
    for name in names:
        for order in ONCE:
            ours, theirs = found[name, "oml", order]["micro_f1"], better(name, order)
            if theirs is None:
                continue
            gap, half = _difference(ours, theirs)
            if gap + half < 0:
                yield f"{name}, {order}", gap, half


def _verdict(found: Found, names: list[str]) -> str:
    drops = {
        (name, order): found[name, "oml", order]["micro_f1"].mean()
        - found[name, "oml", SHUFFLED]["micro_f1"].mean()
        for name in names
        for order in ONCE[1:]
    }
    (name, order), least = min(drops.items(), key=lambda item: item[1])
    n_kept = sum(gap >= -0.01 for gap in drops.values())

    def rival(name: str, order: str) -> Values | None:
        some = [found[name, m, order]["micro_f1"] for m in RIVALS if (name, m, order) in found]
        return max(some, key=lambda values: float(values.mean())) if some else None

    def of_next(name: str, order: str) -> Values | None:
        values = found.get((name, "oml-next", SHUFFLED))
        return None if values is None or order != SHUFFLED else values["micro_f1"]

    said = [
        f"**In {n_kept} of {len(drops)} cells the order of the file, or sorting by label, costs at "
        f"most .01 of micro-F1**; the worst is {name}, {order}: {least:+.3f}."
    ]
    for what, better in (
        ("the better of votes alone and kNN", rival),
        ("the answers of 0.2 in random order", of_next),
    ):
        worse = [
            f"{cell} ({gap:+.3f} ± {half:.3f})" for cell, gap, half in _worse(found, names, better)
        ]
        said.append(
            f"It is nowhere worse than {what} beyond chance."
            if not worse
            else f"It is worse than {what} beyond chance in {len(worse)}: {'; '.join(worse)}."
        )
    return " ".join(said)


def _same_divisions(found: Found, name: str, order: str) -> float:
    """Return the mean of shuffled items, each once, over the divisions there are of an order."""
    n = len(found[name, "oml", order]["micro_f1"])
    return float(found[name, "oml", SHUFFLED]["micro_f1"][:n].mean())


def _copies_verdict(found: Found, names: list[str]) -> str:
    drops = {
        (name, order): found[name, "oml", order]["micro_f1"].mean()
        - _same_divisions(found, name, order)
        for name in names
        for order in COPIED
        if (name, "oml", order) in found
    }
    if not drops:
        return "The runs with copies are missing."
    (name, order), least = min(drops.items(), key=lambda item: item[1])
    n_kept = sum(gap >= -0.02 for gap in drops.values())
    return (
        f"**In {n_kept} of {len(drops)} cells three copies of each item cost at most .02 of "
        f"micro-F1 on new items**; the worst is {name}, {order}: {least:+.3f}."
    )
