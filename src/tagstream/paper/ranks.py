"""Tests of significance as tables and pictures: mean ranks, and critical-difference diagrams.

The diagram is drawn by scikit-posthocs (``pip install tagstream[rank]``); everything else needs
matplotlib only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tagstream.evaluation.significance import Significance, significance
from tagstream.paper.figures import new_figure, save
from tagstream.paper.results import LOWER_IS_BETTER, MAIN, MEASURES, Results
from tagstream.paper.table import Table

__all__ = [
    "Ranking",
    "draw_rankings",
    "draw_ranks",
    "has_diagrams",
    "rank_table",
    "rankings",
    "verdict",
]

_OURS, _OTHERS = "#0072B2", "#8c959f"


class Ranking(NamedTuple):
    """Learners of one folder of records, tested on one measure."""

    name: str  # of its table and picture
    title: str
    found: Significance


def rankings(results: Results) -> Iterator[Ranking]:
    """Yield the tests that the records of a folder allow, or say why not.

    The paper's hold-out is one group of records, hold-outs of one's own are another, and streams of
    one's own a third.  A group with a single learner is passed over.
    """
    groups: dict[str, dict[str, dict[str, dict[str, float]]]] = {
        kind: defaultdict(lambda: defaultdict(dict)) for kind in ("holdout", "own", "own-stream")
    }
    for name in results.datasets:
        for method in results.methods(MAIN):
            for measure, values in results.holdout.get((name, method), {}).items():
                title = results.titles.get(method, method)
                groups["holdout"][measure][name][title] = float(values.mean())
    for run in results.runs:
        kind = "own" if run.is_holdout else "own-stream"
        for measure, value in run.result["mean" if run.is_holdout else "measures"].items():
            groups[kind][measure][run.data][run.name] = value
    for kind, by_measure in groups.items():
        for measure, title in MEASURES.items():
            scores = by_measure.get(measure, {})
            if len({who for row in scores.values() for who in row}) > 1:
                found = significance(scores, lower_is_better=measure in LOWER_IS_BETTER)
                yield Ranking(f"ranks-{kind}-{measure.replace('_', '-')}", title, found)


def has_diagrams() -> bool:
    """Whether critical-difference diagrams can be drawn."""
    from importlib.util import find_spec

    return all(find_spec(name) is not None for name in ("scikit_posthocs", "matplotlib"))


def verdict(found: Significance, what: str) -> str:
    """Say in words what the tests found."""
    if found.p is None:
        return f"{what}: {found.note}"
    best = found.learners[0]
    told = [b for a, b in found.pairs if a == best and found.pairs[a, b] <= found.alpha]
    better = (
        f"{best} is significantly better than {len(told)} of the {len(found.learners) - 1} others "
        "(Wilcoxon, Holm)"
        if told
        else f"{best} has the best mean rank, but no pair with it is significant (Wilcoxon, Holm)"
    )
    return (
        f"{what}: {len(found.learners)} learners on {len(found.streams)} streams. Friedman's test: "
        f"p = {found.p:.2g}. {better}. Nemenyi's critical difference is "
        f"{found.critical_difference:.2f} ranks. {found.note}"
    ).strip()


def rank_table(found: Significance, what: str) -> Table:
    """Mean ranks, best first, and whether the best one is better than each."""
    best = found.learners[0] if found.learners else ""
    rows = [
        (
            who,
            f"{rank:.2f}",
            f"{found.pairs[best, who]:.3g}" if (best, who) in found.pairs else "-",
        )
        for who, rank in found.ranks.items()
    ]
    return Table(("learner", "mean rank", f"p against {best}"), tuple(rows), verdict(found, what))


def draw_ranks(
    found: Significance, folder: Path, name: str, what: str, ours: Collection[str] = ()
) -> list[str]:
    """Draw mean ranks, and the critical-difference diagram if it can be drawn.

    Parameters
    ----------
    found : Significance
        Of at least three learners on five streams.
    folder : path
    name : str
        Files are ``<name>.svg`` and ``.png``, and ``<name>-cd.svg`` and ``.png``.
    what : str
        The title.
    ours : collection of str
        Learners that are marked.

    Returns
    -------
    list of str
        The names of what was drawn.
    """
    if not found.enough:
        raise ValueError(f"ranks must be of enough learners and streams, got: {found.note}")
    folder.mkdir(parents=True, exist_ok=True)
    save(lambda: _ranks(found, what, ours), folder, name)
    if not has_diagrams():
        return [name]
    save(lambda: _diagram(found, what, ours), folder, f"{name}-cd")
    return [name, f"{name}-cd"]


def draw_rankings(some: Collection[Ranking], folder: Path, ours: Collection[str]) -> dict[str, str]:
    """Draw one picture for each test; return captions by name.

    It is the critical-difference diagram if that can be drawn, else the mean ranks.
    """
    draw = _diagram if has_diagrams() else _ranks
    drawn = {}
    for name, title, found in some:
        if found.enough:
            save(lambda f=found, t=title: draw(f, t, ours), folder, name)  # type: ignore[misc]
            drawn[name] = verdict(found, title)
    return drawn


def _ranks(found: Significance, what: str, ours: Collection[str]) -> Any:
    """Dots at the mean ranks, best on top, with a bar as long as the critical difference."""
    figure = new_figure(7.0, 1.1 + 0.21 * len(found.learners))
    axes = figure.subplots()
    for y, (who, rank) in enumerate(found.ranks.items()):
        mine = who in ours
        color, marker = (_OURS, "D") if mine else (_OTHERS, "o")
        axes.plot(rank, y, marker, color=color, markersize=7 if mine else 5)
        axes.annotate(f"{rank:.1f}", (rank, y), (8, -3), textcoords="offset points", fontsize=8)
    axes.set_yticks(range(len(found.ranks)), list(found.ranks))
    for label in axes.get_yticklabels():
        if label.get_text() in ours:
            label.set(fontweight="bold", color=_OURS)
    axes.invert_yaxis()
    axes.set_xlim(0.5, len(found.learners) + 0.5)
    start = len(found.learners) - (found.critical_difference or 0)
    axes.plot([start, len(found.learners)], [0, 0], color="#333333", linewidth=2)
    axes.annotate(
        f"critical difference {found.critical_difference:.1f}",
        *((start, 0), (0, -12)),
        textcoords="offset points",
        fontsize=8,
    )
    axes.set_xlabel(f"mean rank over {len(found.streams)} streams; 1 is best")
    axes.set_title(what, loc="left")
    return figure


def _diagram(found: Significance, what: str, ours: Collection[str]) -> Any:
    """Who stands apart: a bar joins learners of which no pair differs (Wilcoxon, Holm)."""
    import pandas as pd
    import scikit_posthocs

    p = pd.DataFrame(1.0, index=list(found.learners), columns=list(found.learners))
    for (a, b), value in found.pairs.items():
        p.loc[a, b] = p.loc[b, a] = value
    figure = new_figure(8.0, 1.0 + 0.16 * len(found.learners))
    axes = figure.subplots()
    axes.grid(False)
    colors = {who: _OURS if who in ours else "#333333" for who in found.learners}
    drawn = scikit_posthocs.critical_difference_diagram(
        *(pd.Series(found.ranks), p),
        ax=axes,
        alpha=found.alpha,
        label_fmt_left="{label} ({rank:.1f})",
        label_fmt_right="({rank:.1f}) {label}",
        color_palette=colors,
        label_props={"fontsize": 8},
        crossbar_props={"color": "#333333"},
    )
    _settle([bar for (bar,) in drawn["crossbars"]])
    axes.set_title(f"{what}: joined = not told apart at {found.alpha:g}", loc="left", pad=20)
    return figure


def _settle(bars: list[Any]) -> None:
    """Stack the bars in an order of their own: the package takes sets as they come."""
    spans = sorted((min(bar.get_xdata()), max(bar.get_xdata())) for bar in bars)
    ends: list[float] = []  # of the last bar of each level
    for bar, (low, high) in zip(bars, spans, strict=True):
        level = next((k for k, end in enumerate(ends) if end < low), len(ends))
        ends[level : level + 1] = [high]
        bar.set_data([low, high], [-level - 1] * 2)
