"""Tables and sentences on streams: test, then train; labels at once or late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tagstream.paper.results import (
    DELAY_ORDER,
    LOWER_IS_BETTER,
    MEASURES,
    STREAM_ORDER,
    Results,
    as_text,
    best_published,
    delays_of,
    published,
    streams_of,
)
from tagstream.paper.table import Table, each, tabulate
from tagstream.paper.verdict import Verdict

__all__ = ["stream_tables"]

COUNTED = ("micro_f1", "hamming_loss")  # measures of the published study
CONVEX_TITLES = {
    "oml-convex": "convex",
    "oml": "exact",
    "convex-vote": "convex, votes alone",
    "oml-vote": "exact, votes alone",
}
MOST_HOLDERS = 3  # of a best published value; more are only counted
Streams = Mapping[str, Mapping[str, Any]]
Cell = tuple[str, str]  # data set, measure


def stream_tables(results: Results) -> dict[str, Table | str]:
    """Return the tables and sentences, by name."""
    made: dict[str, Table | str] = {}
    if results.part("prequential"):
        made["prequential"] = _streams_table(results)
        made["verdict_prequential"] = _streams_verdict(results)
        made["prequential_convex"] = _convex_table(results)
    if results.part("delays"):
        made["delays"] = _delays_table(results)
        made["verdict_delays"] = _delays_verdict(results)
    return made


def _n_published() -> int:
    """How many methods the published study has."""
    values = published()["prequential"]["values"]
    return max(len(methods) for methods in values.values())


def _is_ahead(streams: Streams, method: str, cell: Cell) -> bool:
    """Whether a method is at least as good as the best published one, to three decimals."""
    name, measure = cell
    best = best_published(name, measure)
    if best is None or method not in streams[name]:
        return False
    value, theirs = round(streams[name][method]["fading"][measure], 3), round(best[0], 3)
    return bool(value <= theirs if measure in LOWER_IS_BETTER else value >= theirs)


def _streams_table(results: Results) -> Table:
    streams = streams_of(results)

    def value(cell: Cell, method: str) -> str:
        if method not in streams[cell[0]]:
            return ""
        text = f"{streams[cell[0]][method]['fading'][cell[1]]:.3f}"
        return f"**{text}**" if _is_ahead(streams, method, cell) else text

    def best(cell: Cell) -> str:
        found = best_published(*cell)
        return "–" if found is None else f"{found[0]:.3f}"

    def holders(cell: Cell) -> str:
        found = best_published(*cell)
        if found is None:
            return "–"
        return ", ".join(found[1]) if len(found[1]) <= MOST_HOLDERS else f"{len(found[1])} methods"

    methods = [m for m in STREAM_ORDER if any(m in by for by in streams.values())]
    columns = (
        ("data set", lambda cell: cell[0]),
        ("measure", lambda cell: MEASURES[cell[1]]),
        *each(methods, results.titles.__getitem__, value),
        ("best published", best),
        ("held by", holders),
    )
    return tabulate(
        ((name, measure) for name in streams for measure in COUNTED),
        columns,
        "Fading measures (factor 0.995) averaged over checkpoints, one every 100 items and one at "
        "the end, as in the published study. Bold: at least as good as the best of "
        f"{_n_published()} published methods, to three decimals. Published values: "
        f"{published()['prequential']['source']}.{_shortened(results)}",
    )


def _shortened(results: Results) -> str:
    """Say which streams were cut."""
    cut = {
        r["dataset"]: r["setting"]["first"]
        for r in results.part("prequential")
        if "first" in r["setting"]
    }
    said = ", ".join(f"{name}: the first {first:,} items" for name, first in cut.items())
    return f" Of {said}." if said else ""


def _streams_verdict(results: Results) -> str:
    streams = streams_of(results)
    cells = [(name, m) for name in streams for m in COUNTED if best_published(name, m)]
    ours, window = (
        [cell for cell in cells if _is_ahead(streams, method, cell)]
        for method in ("oml", "oml-window")
    )
    said = ", ".join(f"{name} {MEASURES[measure]}" for name, measure in ours)
    recent = [
        name
        for name, by in streams.items()
        if {"oml", "oml-window"} <= set(by)
        and by["oml-window"]["fading"]["micro_f1"] > by["oml"]["fading"]["micro_f1"]
    ]
    return (
        f"Not a claim of the paper. `OML()` is at least as good as the best of {_n_published()} "
        f"published methods in {len(ours)} of {len(cells)} cells"
        + (f" ({said})" if said else "")
        + f", with a window of 200 items in {len(window)}"
        + (f"; forgetting makes it better on {', '.join(recent)}." if recent else ".")
    )


def _convex_table(results: Results) -> Table | str:
    """The exact and the convex step on the streams, with the head and without it."""
    streams = streams_of(results)
    there = [name for name, by in streams.items() if set(CONVEX_TITLES) <= set(by)]
    rows = [(name, measure) for name in there for measure in COUNTED]
    if not rows:
        return ""

    def value(cell: Cell, method: str) -> float:
        return float(streams[cell[0]][method]["fading"][cell[1]])

    def text(cell: Cell, method: str) -> str:
        return f"{value(cell, method):.4f}"

    def wins(convex: str, exact: str) -> int:
        sign = {cell: -1 if cell[1] in LOWER_IS_BETTER else 1 for cell in rows}
        return sum(sign[cell] * (value(cell, convex) - value(cell, exact)) > 0 for cell in rows)

    columns = (
        ("data set", lambda cell: cell[0]),
        ("measure", lambda cell: MEASURES[cell[1]]),
        *each(CONVEX_TITLES, CONVEX_TITLES.__getitem__, text),
    )
    return tabulate(
        rows,
        columns,
        "Fading measures as in the table of streams. The convex step is better in "
        f"{wins('oml-convex', 'oml')} of {len(rows)} cells with the head, and in "
        f"{wins('convex-vote', 'oml-vote')} without it.",
    )


# ---------------------------------------------------------------------- labels that come late
def _delays_table(results: Results) -> Table:
    found = delays_of(results)

    def value(at: tuple[str, int], method: str) -> str:
        return as_text(found[at][method]) if method in found[at] else "–"

    columns = (
        ("data set", lambda at: at[0]),
        ("delay", lambda at: f"{at[1]:,}"),
        *each(
            [m for m in DELAY_ORDER if any(m in by for by in found.values())],
            results.titles.__getitem__,
            value,
        ),
    )
    return tabulate(
        found,
        columns,
        "Micro-F1 over all items, predicted when they come; labels come so many items later.",
    )


def _delays_verdict(results: Results) -> str:
    found = delays_of(results)
    told = {at: by for at, by in found.items() if {"oml", "oml-vote"} <= set(by)}
    unaware = [by for by in told.values() if "oml-unaware" in by]
    worse = [
        f"{name}, delay {delay:,} ({as_text(by['oml'])} against {as_text(by['oml-vote'])})"
        for (name, delay), by in told.items()
        if by["oml"] < by["oml-vote"]
    ]
    n_unaware = sum(by["oml-unaware"] < by["oml-vote"] for by in unaware)
    verdict = Verdict("Told of the delay, the head is", len(told) - len(worse), len(told))
    said = verdict.said(
        "never worse than the plain vote",
        f"worse than the plain vote in {len(worse)} of {len(told)} cells",
    )
    listed = f": {'; '.join(worse)}" if worse else ""
    return f"{said}{listed}. Not told, it is worse in {n_unaware} of {len(unaware)}."
