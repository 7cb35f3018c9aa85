"""Table of streams beside the version before (:mod:`tagstream.evaluation.paired`)."""

from __future__ import annotations

from typing import Any

from tagstream.evaluation.paired import Difference, micro_f1_difference
from tagstream.paper.results import Results
from tagstream.paper.table import Table

__all__ = ["version_tables"]

OLD = "prequential-0.2"


def version_tables(results: Results) -> dict[str, Table | str]:
    """Return the table and the sentence on streams of this version and of 0.2, by name."""
    old = {(r["dataset"], r["method"]): r["result"] for r in results.part(OLD)}
    new = {
        at: record["result"]
        for record in results.part("prequential")
        if "blocks" in record["result"] and (at := (record["dataset"], record["method"])) in old
    }
    if not new:
        return {}
    differs = [at for at, result in new.items() if not _is_same(result, old[at])]
    found = {
        at: micro_f1_difference(new[at]["blocks"], old[at]["blocks"])
        for at in differs
        if "blocks" in old[at]
    }
    missing = [at for at in differs if at not in found]
    return {
        "versions": _table(results, found),
        "verdict_versions": _verdict(found, len(new) - len(differs), missing),
    }


def _is_same(new: dict[str, Any], old: dict[str, Any]) -> bool:
    """Return whether every label was relevant, predicted and hit as often as with 0.2."""
    return bool(new["counts"]["labels"] == old["labels"])


def _table(results: Results, found: dict[tuple[str, str], Difference]) -> Table:
    rows = tuple(
        (name, results.titles[method], f"{gap.value:+.4f}", f"{gap.least:+.4f} … {gap.most:+.4f}")
        for (name, method), gap in found.items()
    )
    return Table(
        ("data set", "learner", "micro-F1 beside 0.2", "95 % interval"),
        rows,
        "Streams in which the hits or predictions of any label differ from those of 0.2. Test, "
        "then train; micro-F1 over all items. Interval: paired bootstrap over blocks of 100 items.",
    )


def _verdict(
    found: dict[tuple[str, str], Difference], n_same: int, missing: list[tuple[str, str]]
) -> str:
    worse = [
        f"{name}, {method} ({gap.value:+.4f})"
        for (name, method), gap in found.items()
        if gap.most < 0
    ]
    n_better = sum(gap.least > 0 for gap in found.values())
    n = n_same + len(found) + len(missing)
    told = (
        f"Of {n} streams, {n_same} have the hits and predictions of 0.2 for every label. Of the "
        f"others, {n_better} are better beyond chance, {len(worse)} worse"
    )
    if worse:
        told += f": {'; '.join(worse)}"
    if missing:
        names = "; ".join(f"{name}, {method}" for name, method in missing)
        told += f"; not compared yet: {names}"
    word = "**Nothing is worse than 0.2 beyond chance.**" if not worse else "**Some are worse.**"
    return f"{word} {told}."
