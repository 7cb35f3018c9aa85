"""Tables over several divisions into folds: which differences are more than chance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tagstream.paper.paired import CHANCE, Paired
from tagstream.paper.results import (
    ELM,
    FITTING,
    KNN,
    LOWER_IS_BETTER,
    MEASURES,
    OLANSGD,
    ONLINE,
    Results,
    Values,
    as_text,
    spread_of,
)
from tagstream.paper.table import Table, each, tabulate

__all__ = ["repeat_tables"]

KINDS = {"kNN": KNN, "OSML-ELM": ELM, "OLANSGD": OLANSGD}
PAIRS = {
    "repeats_head": ("oml", "oml-vote"),
    "repeats_fitting": (FITTING, "oml-vote"),
    "repeats_convex": ("oml-convex", "oml"),
    "repeats_convex_vote": ("convex-vote", "oml-vote"),
}
Cell = tuple[str, str]  # data set, measure


def repeat_tables(results: Results) -> dict[str, Table | str]:
    """Return the tables, by name; one whose methods were not run is empty."""
    if not results.part("repeats"):
        return {}
    return {
        "repeats": _repeats_table(results),
        "repeats_rivals": _rivals_table(results),
        "trade": _trade_table(results),
        **{name: _paired_table(results, *pair) for name, pair in PAIRS.items()},
    }


def _divisions(results: Results, name: str, method: str) -> dict[str, Values] | None:
    """The mean of each division; the first of them is the hold-out, which may be the only one."""
    if (name, method) in results.repeats:
        return results.repeats[name, method]
    if (name, method) not in results.holdout:
        return None
    return {m: v.mean(keepdims=True) for m, v in results.holdout[name, method].items()}


def _better(rivals: Iterable[dict[str, Values]], measure: str) -> Values:
    """The values of the rival with the best mean."""
    sign = -1 if measure in LOWER_IS_BETTER else 1
    return max((rival[measure] for rival in rivals), key=lambda v: float(sign * v.mean()))


def _cells(names: Iterable[str]) -> list[Cell]:
    return [(name, measure) for name in names for measure in MEASURES]


def _named(cells: Iterable[Cell]) -> str:
    return ", ".join(f"{name} {MEASURES[measure]}" for name, measure in cells)


def _repeats_table(results: Results) -> Table:
    found: dict[Cell, Paired] = {}
    for name in results.datasets:
        rivals = [results.repeats[name, m] for m in KNN if (name, m) in results.repeats]
        if rivals and (name, "oml") in results.repeats:
            for measure in MEASURES:
                ours = results.repeats[name, "oml"][measure]
                found[name, measure] = Paired(ours, _better(rivals, measure), measure)

    def value(name: str, measure: str) -> str:
        pair = found[name, measure]
        mean = as_text(pair.ours.mean(), measure)
        mean = f"**{mean}**" if pair.is_always_better else mean
        spread, theirs = spread_of(pair.ours), pair.theirs.mean()
        return f"{mean} ± {as_text(spread, measure)} ({as_text(theirs, measure)})"

    times = max((len(v["micro_f1"]) for v in results.repeats.values()), default=0)
    better, every = _counts(found.values())
    return tabulate(
        dict.fromkeys(name for name, _ in found),
        (("data set", str), *each(MEASURES, MEASURES.__getitem__, value)),
        f"OML: mean over {times} divisions into five folds ± standard deviation of the {times} "
        f"means; in brackets the better kNN. OML is better in {better} of {len(found)} cells; "
        f"bold: in every single division, {every} cells.",
    )


def _counts(pairs: Iterable[Paired]) -> tuple[int, int]:
    """Count where ours is better, and where it always is."""
    pairs = [*pairs]
    return sum(p.is_better for p in pairs), sum(p.is_always_better for p in pairs)


# ---------------------------------------------------------------------- beside each kind of rival
class _Beside(NamedTuple):
    """Of one data set and measure: ours, and each of ours beside the better of each kind."""

    name: str
    measure: str
    means: dict[str, str]  # of ours by method, of the others by kind
    pairs: dict[tuple[str, str], Paired]  # by method and kind


def _beside(results: Results) -> Iterator[_Beside]:
    methods = ("oml", FITTING)
    for name in results.datasets:
        found = {}
        for method in (*methods, *KNN, *ELM, *OLANSGD):
            values = _divisions(results, name, method)
            if values is not None:
                found[method] = values
        if len(found) < len((*methods, *KNN, *ELM, *OLANSGD)):
            continue
        for measure in MEASURES:
            best = {kind: _better((found[m] for m in ms), measure) for kind, ms in KINDS.items()}
            values = {m: found[m][measure] for m in methods} | best
            yield _Beside(
                name,
                measure,
                {key: as_text(some.mean(), measure) for key, some in values.items()},
                {
                    (method, kind): Paired(values[method], best[kind], measure)
                    for method in methods
                    for kind in KINDS
                },
            )


def _rivals_table(results: Results) -> Table | str:
    """OML, by default and deciding for the measure, beside the better of each kind of rival."""
    rows = [*_beside(results)]
    if not rows:
        return ""
    columns = (
        ("data set", lambda row: row.name),
        ("measure", lambda row: MEASURES[row.measure]),
        *each(("oml", FITTING), results.titles.__getitem__, _mean_of),
        *each(KINDS, str, _mean_of),
    )
    told = " ".join(_told(results, rows, method) for method in ("oml", FITTING))
    return tabulate(
        rows,
        columns,
        "Means over divisions into five folds; of kNN (raw, standardised), OSML-ELM (released, "
        f"stable) and OLANSGD (threshold, top k) the better one. {told}",
    )


def _mean_of(row: _Beside, key: str) -> str:
    return row.means[key]


def _told(results: Results, rows: list[_Beside], method: str) -> str:
    """Say how often a method is better than each kind of rival, and over how many divisions."""
    fewest: dict[str, int] = {}
    for row in rows:
        n = min(row.pairs[method, kind].n for kind in KINDS)
        fewest[row.name] = min(n, fewest.get(row.name, n))
    most = max(fewest.values())
    fewer = "".join(f", {n} on {name}" for name, n in fewest.items() if n < most)
    counted = []
    for kind in KINDS:
        better, every = _counts(row.pairs[method, kind] for row in rows)
        lost = [(r.name, r.measure) for r in rows if not r.pairs[method, kind].is_better]
        counted.append(
            f"than the better {kind} in {better} of {len(rows)} cells, in every single "
            f"division in {every}" + (f", not in: {_named(lost)}" if lost else "")
        )
    divisions = f"{most} division{'s' if most > 1 else ''}{fewer}"
    return f"{results.titles[method]} ({divisions}) is better {'; '.join(counted)}."


# ---------------------------------------------------------------------- two methods
def _trade_table(results: Results) -> Table | str:
    """Show what each decision makes of the cells in which the default is worse than the votes."""
    methods = ("oml-vote", *ONLINE)
    found: dict[Cell, dict[str, Values]] = {}
    for name in results.datasets:
        values = {m: v for m in methods if (v := _divisions(results, name, m)) is not None}
        if len(values) < len(methods):
            continue
        for measure in MEASURES:
            pair = Paired(values["oml"][measure], values["oml-vote"][measure], measure)
            if pair.n > 1 and not pair.is_better and pair.is_beyond_chance:
                found[name, measure] = {m: values[m][measure] for m in methods}
    if not found:
        return ""

    def mean(cell: Cell, method: str) -> str:
        return as_text(found[cell][method].mean(), cell[1])

    return tabulate(
        found,
        (("cell", lambda cell: _named([cell])), *each(methods, results.titles.__getitem__, mean)),
        "The cells in which OML with its default decision is worse than the votes alone beyond "
        "chance, and what the other decisions make of the probabilities: means over the divisions "
        "that each was run on, as above.",
    )


def _paired_table(results: Results, ours: str, theirs: str) -> Table | str:
    """Compare two methods division by division."""
    names = [
        name
        for name in results.datasets
        if (name, ours) in results.repeats and (name, theirs) in results.repeats
    ]
    if not names:
        return ""
    both = {m: {name: results.repeats[name, m] for name in names} for m in (ours, theirs)}
    pairs = {
        (name, m): Paired(both[ours][name][m], both[theirs][name][m], m)
        for name, m in _cells(names)
    }
    one, other = (results.titles.get(method, method) for method in (ours, theirs))
    beyond = {cell: pair for cell, pair in pairs.items() if pair.is_beyond_chance}
    better, _ = _counts(pairs.values())
    above, _ = _counts(beyond.values())
    below = [cell for cell, pair in beyond.items() if not pair.is_better]
    return tabulate(
        names,
        (("data set", str), *each(MEASURES, MEASURES.__getitem__, _difference(pairs))),
        f"{one} minus {other}: mean difference over the same divisions ± its standard "
        f"error; bold beyond {CHANCE[10]:g} standard errors. {one} is better in {better} of "
        f"{len(pairs)} cells, beyond chance in {above}, and worse beyond chance in "
        f"{len(below)}{f': {_named(below)}' if below else ''}.",
    )


def _difference(pairs: dict[Any, Paired]) -> Callable[[str, str], str]:
    def cell(name: str, measure: str) -> str:
        pair = pairs[name, measure]
        sign = "+" if pair.mean > 0 else "−" if pair.mean < 0 else ""
        text = f"{sign}{as_text(abs(pair.mean), measure)} ± {as_text(pair.error, measure)}"
        return f"**{text}**" if pair.is_beyond_chance else text

    return cell
