"""Tables and the sentence on time: of the hold-out, and its growth with each size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tagstream.paper.results import (
    AXES,
    MAIN,
    PRINTED_FOR,
    Results,
    published,
    scaling_curves,
)
from tagstream.paper.table import Table, each, tabulate
from tagstream.paper.verdict import Verdict

__all__ = ["timing_tables"]

DOING = {"learn": "a round", "predict": "a prediction"}
# Exponent of n in the printed orders; n log n counts as 1.
PRINTED_IN_N = {
    ("oml-published", "learn"): 1,
    ("oml-published", "predict"): 1,
    ("knn", "predict"): 1,
    ("osml-elm", "learn"): 1,
    ("osml-elm", "predict"): 1,
    ("olansgd", "learn"): 1,
    ("olansgd", "predict"): 0,
}
LAST = 3  # sizes through which the growth with n is measured


def timing_tables(results: Results) -> dict[str, Table | str]:
    """Return the tables and the sentence, by name."""
    made: dict[str, Table | str] = {}
    if results.part("holdout"):
        made["cost"] = _cost_table(results)
    if results.part("scaling"):
        made["complexity"] = _complexity_table(results)
        made["verdict_complexity"] = _complexity_verdict(results)
    return made


def _cost_table(results: Results) -> Table:
    micros: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for record in results.part("holdout"):
        r = record["result"]
        micros[record["dataset"], record["method"]].append(
            (1e6 * r["learn_seconds"] / r["n_train"], 1e6 * r["predict_seconds"] / r["n_test"])
        )

    def medians(name: str, method: str) -> str:
        if (name, method) not in micros:
            return ""
        learn, predict = np.median(micros[name, method], axis=0)
        return f"{learn:,.0f} / {predict:,.0f}"

    return tabulate(
        results.datasets,
        (("data set", str), *each(results.methods(MAIN), results.titles.__getitem__, medians)),
        "Microseconds per example: learning / predicting, median over the folds, in chunks, on "
        "one thread.",
    )


# ---------------------------------------------------------------------- growth
@dataclass(frozen=True)
class _Growth:
    """How the time of a method's round or prediction grows, and its value at the largest n."""

    method: str
    doing: str
    printed: str
    slopes: dict[str, float]
    largest: tuple[int, float] | None


def _slope(points: Sequence[tuple[int, float]]) -> float:
    """Exponent of the growth, by least squares through the logarithms."""
    x, y = np.log(np.array(points, dtype=np.float64)).T
    return float(np.polyfit(x, y, 1)[0])


def _growths(results: Results) -> Iterator[_Growth]:
    curves, printed = scaling_curves(results), published()["paper"]["complexity"]
    for method, said in PRINTED_FOR.items():
        there = [axis for axis in AXES if (method, axis) in curves]
        for (what, doing), order in zip(DOING.items(), printed[said], strict=True):
            points = {axis: curves[method, axis][what] for axis in there}
            if there:
                yield _Growth(
                    results.titles[method],
                    doing,
                    "–" if order == "–" else f"O({order})",
                    {axis: _slope(some) for axis, some in points.items() if len(some) > 1},
                    points["n"][-1] if "n" in there else None,
                )


def _complexity_table(results: Results) -> Table:
    def slope(growth: _Growth, axis: str) -> str:
        return f"{growth.slopes[axis]:+.2f}" if axis in growth.slopes else "–"

    def largest(growth: _Growth) -> str:
        if growth.largest is None:
            return ""
        n, seconds = growth.largest
        return f"{1e6 * seconds:,.0f} µs (n = {n:,})"

    columns = (
        ("method", lambda growth: growth.method),
        ("time of", lambda growth: growth.doing),
        ("printed", lambda growth: growth.printed),
        *each(
            AXES,
            "exponent of {}".format,
            slope,
        ),
        ("measured", largest),
    )
    return tabulate(
        _growths(results),
        columns,
        "Exponents: slope of log time over log size, one size growing at a time. A round is the "
        "mean over the second half of a stream of n items, refits included; sizes in the figure. "
        "OML itself chooses whether to lift its features, and its time jumps where that changes.",
    )


def _complexity_verdict(results: Results) -> str:
    curves = scaling_curves(results)
    agrees: list[str] = []
    differs: list[str] = []
    for (method, what), order in PRINTED_IN_N.items():
        points = curves.get((method, "n"), {}).get(what, [])
        if len(points) > 1:
            slope = _slope(points[-LAST:])
            some = agrees if abs(slope - order) < 0.5 else differs
            some.append(f"{results.titles[method]}, {DOING[what]} ({slope:+.2f}, printed {order})")
    verdict = Verdict("", len(agrees), len(agrees) + len(differs))
    return (
        f"{verdict} Growth with n, exponent over the last three sizes: it is nearer to "
        f"the printed one than to another whole number for {'; '.join(agrees) or 'none'}"
        + (f". It is not for {'; '.join(differs)}." if differs else ".")
    )
