"""Tables and a figure's data of the experiment on young models (:mod:`tagstream.paper.young`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.paper.paired import CHANCE
from tagstream.paper.results import Results, as_text
from tagstream.paper.table import Table

__all__ = ["SETS", "young_curves", "young_tables"]

Curves = dict[str, dict[str, dict[str, npt.NDArray[np.float64]]]]  # data set, method, measure

SETS = {"goemotions-dev": "comments", "packages": "package descriptions"}
MEASURES = {
    "p_at_1": "Share of items whose first tag is right (P@1).",
    "micro_f1": "Micro-F1 of what is suggested.",
    "example_f1": "Mean F1 of items.",
    "log_loss": "Log loss per item, probabilities kept within .001 and .999; smaller is better.",
    "silent": "Share of items for which nothing is suggested.",
}
RIVALS = ("tfidf-logistic", "encoder-logistic", "encoder-knn", "constant")


def young_curves(results: Results) -> tuple[list[int], Curves]:
    """Return the sizes, and each measure as an array of shape (shuffles, sizes).

    Shuffles are those that all methods of a data set have; NaN where there is nothing to measure.
    """
    runs: dict[str, dict[str, dict[int, dict[str, Any]]]] = {}
    sizes: set[int] = set()
    for record in results.part("young"):
        of_set = runs.setdefault(record["dataset"], {})
        of_set.setdefault(record["method"], {})[record["fold"]] = record["result"]
        sizes |= {int(n) for n in record["result"]}
    rising, curves = sorted(sizes), {}
    for name, methods in runs.items():
        whole = sorted(set.intersection(*({*some} for some in methods.values())))
        curves[name] = {
            method: {
                measure: np.array(
                    [[some[k].get(str(n), {}).get(measure, np.nan) for n in rising] for k in whole]
                )
                for measure in MEASURES
            }
            for method, some in methods.items()
            if whole
        }
    return rising, {name: methods for name, methods in curves.items() if methods}


def young_tables(results: Results) -> dict[str, Table | str]:
    """Return the tables and the verdict on young models, by name."""
    sizes, curves = young_curves(results)
    if not curves:
        return {}
    made: dict[str, Table | str] = {
        f"young_{measure}": _table(results, sizes, curves, measure) for measure in MEASURES
    }
    made["verdict_young"] = _verdict(results, sizes, curves)
    return made


def _table(results: Results, sizes: list[int], curves: Curves, measure: str) -> Table:
    rows = []
    for name in SETS:
        for method, values in curves.get(name, {}).items():
            means = values[measure].mean(axis=0)
            cells = ["–" if np.isnan(mean) else as_text(mean, measure) for mean in means]
            rows.append((SETS[name], results.titles[method], *cells))
    shuffles = ", ".join(
        f"{len(next(iter(curves[name].values()))[measure])} of the {SETS[name]}"
        for name in SETS
        if name in curves
    )
    return Table(
        ("data", "method", *(f"{n:,} items" for n in sizes)),
        tuple(rows),
        f"{MEASURES[measure]} 1,000 other items; means over random orders: {shuffles}.",
    )


def _verdict(results: Results, sizes: list[int], curves: Curves) -> str:
    """Say where each of ours is behind each of the others, and which of that is beyond chance."""
    said = []
    for ours, others in (
        ("words", ("tfidf-logistic",)),
        ("names", ("words", "tfidf-logistic", "constant")),
        ("encoder-names", ("encoder-logistic", "encoder-knn", "constant")),
    ):
        for other in others:
            behind, n_cells = [], 0
            for name in (name for name in SETS if name in curves):
                by_method = curves[name]
                if ours not in by_method or other not in by_method:
                    continue
                for measure in ("p_at_1", "micro_f1", "example_f1"):
                    gaps = by_method[ours][measure] - by_method[other][measure]
                    for at, n in enumerate(sizes):
                        if n < 20:
                            continue
                        n_cells += 1
                        gap = float(gaps[:, at].mean())
                        if gap < 0:
                            behind.append(
                                f"{SETS[name]}, {n}, {measure}: {gap:+.3f}{_luck(gaps[:, at])}"
                            )
            title, beside = results.titles[ours], results.titles[other]
            if n_cells:
                listed = f": {'; '.join(behind)}" if behind else ""
                said.append(
                    f"*{title}* is ahead of *{beside}* in {n_cells - len(behind)} of {n_cells} "
                    f"cells from 20 items on (P@1 and both F1){listed}."
                )
    return " ".join(said)


def _luck(gaps: npt.NDArray[np.float64]) -> str:
    """Return a mark if a mean difference may be chance, as far as the shuffles can tell."""
    n = len(gaps)
    if n < 2:
        return ""
    half = CHANCE[min(n, 10)] * gaps.std(ddof=1) / n**0.5
    return " (within chance)" if abs(gaps.mean()) <= half else ""
