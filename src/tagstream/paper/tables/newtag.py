"""Table of a new tag before and after the next fit (:func:`tagstream.paper.scenarios.survive`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.paper.results import Results, as_text
from tagstream.paper.table import Table

__all__ = ["newtag_tables"]

Values = npt.NDArray[np.float64]
# Of the looks at a data set, by number of examples and measure: values before and after the fit.
Found = dict[tuple[str, int], dict[str, tuple[Values, Values]]]

NAMES = ("recall_at_same_price", "recall", "false_alarms")


def newtag_tables(results: Results) -> dict[str, Table | str]:
    """Return the table and the sentence on new tags and fits, by name."""
    found = _found(results)
    if not found:
        return {}
    return {"newtag": _table(found), "verdict_newtag": _verdict(found)}


def _found(results: Results) -> Found:
    looks: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in results.part("newtag"):
        result = record["result"]
        for look in result["looks"]:
            for k, count in enumerate(result["counts"]):
                pair = {when: look[when][k] for when in ("before", "after")}
                looks.setdefault((record["dataset"], count), []).append(pair)
    return {
        at: {
            name: (
                np.array([pair["before"][name] for pair in some]),
                np.array([pair["after"][name] for pair in some]),
            )
            for name in NAMES
        }
        for at, some in looks.items()
    }


def _gap(before: Values, after: Values) -> tuple[float, float]:
    """Return the mean gain by the fit, and twice its standard error."""
    gaps = after - before
    return float(gaps.mean()), float(2 * gaps.std(ddof=min(1, len(gaps) - 1)) / len(gaps) ** 0.5)


def _table(found: Found) -> Table:
    rows = []
    for (dataset, count), values in found.items():
        before, after = values["recall_at_same_price"]
        gap, error = _gap(before, after)
        cells = [f"{as_text(before.mean())} → {as_text(after.mean())}", f"{gap:+.3f} ± {error:.3f}"]
        before, after = values["recall"]
        cells.append(f"{as_text(before.mean())} → {as_text(after.mean())}")
        before, after = values["false_alarms"]
        cells.append(f"{before.mean():.2%} → {after.mean():.2%}")
        rows.append((dataset, str(count), str(len(before)), *cells))
    return Table(
        (
            *("data set", "examples", "looks", "recall at 1 % of false alarms", "by the fit"),
            *("recall, default decision", "its false alarms"),
        ),
        tuple(rows),
        "Before → after the fit that follows the examples; means over the looks, which are tags "
        "and orders of the items. By the fit: mean difference ± two standard errors.",
    )


def _verdict(found: Found) -> str:
    gaps = {at: _gap(*values["recall_at_same_price"]) for at, values in found.items()}
    lower = [
        f"{dataset}, {count} examples ({gap:+.3f} ± {error:.3f})"
        for (dataset, count), (gap, error) in gaps.items()
        if gap + error < 0
    ]
    n_kept = sum(gap >= 0 for gap, _ in gaps.values())
    told = f"at equal false alarms recall does not fall in {n_kept} of {len(gaps)} cells"
    if not lower:
        return f"**A new tag survives the fit**: {told}, and nowhere beyond chance."
    return f"**A new tag does not survive everywhere**: {told}; beyond chance: {'; '.join(lower)}."
