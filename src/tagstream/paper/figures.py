"""The report's figures.

Colours are those of Okabe and Ito, which people with a colour-vision deficiency can tell apart;
hatches, markers and line styles say the same again.  matplotlib is imported when a figure is drawn.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tagstream.paper.results import (
    ABLATION,
    AXES,
    BARS,
    GROUPS,
    KNN,
    LOWER_IS_BETTER,
    MEASURES,
    PRINTED_FOR,
    STREAM_ORDER,
    Results,
    Run,
    as_text,
    best_published,
    change,
    scaling_curves,
    spread_of,
    streams_of,
)
from tagstream.paper.tables.young import SETS, young_curves

__all__ = ["make_figures"]


class Style(NamedTuple):
    """How a method looks, the same in every figure."""

    color: str
    hatch: str
    marker: str
    line: str


_STYLES = {
    "oml": Style("#0072B2", "", "o", "-"),
    "oml-vote": Style("#000000", "..", "d", ":"),
    "oml-published": Style("#D55E00", "xxx", "X", "--"),
    "oml-printed": Style("#A04000", "xx", "P", ":"),
    "oml-linear": Style("#56B4E9", "", "v", "--"),
    "oml-window": Style("#56B4E9", "", "v", "--"),
    "knn": Style("#E69F00", "///", "s", "-."),
    "knn-standard": Style("#F0C860", "\\\\\\", "D", ":"),
    "ml-knn": Style("#F0E442", "++", "p", ":"),
    "osml-elm": Style("#009E73", "++", "^", "--"),
    "osml-elm-stable": Style("#66C2A5", "+", "<", ":"),
    "olansgd": Style("#CC79A7", "---", "*", "-."),
    "olansgd-top": Style("#E3B4CE", "|||", ">", ":"),
}
_YOUNG = {
    "encoder-names": Style("#0072B2", "", "o", "-"),
    "names": Style("#56B4E9", "", "s", "-"),
    "words": Style("#009E73", "", "^", "-"),
    "0.2": Style("#000000", "", "d", ":"),
    "encoder-logistic": Style("#D55E00", "", "X", "--"),
    "encoder-knn": Style("#E69F00", "", "P", "--"),
    "tfidf-logistic": Style("#CC79A7", "", "v", "--"),
    "constant": Style("#999999", "", "*", ":"),
}
_MARKERS = "osD^v<>P"
_PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00"),
    *("#56B4E9", "#CC79A7", "#000000", "#B8A100"),
)


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of so many inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.07, w_pad=0.07)  # type: ignore[union-attr,call-arg]
    return figure


_RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",
}


def save(draw: Callable[[], Any], folder: Path, name: str) -> None:
    """Write SVG and PNG; the same figure gives the same files."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("figures need matplotlib; install tagstream[plot]") from error
    with matplotlib.rc_context({**_RC, "svg.hashsalt": name}):
        figure = draw()
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
        figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})


def _legend(figure: Any, handles: Sequence[Any]) -> None:
    """Put a legend below the panels, in as many rows as it needs."""
    rows = -(-len(handles) // max(1, int(figure.get_figwidth() / 1.55)))
    columns = -(-len(handles) // rows)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=9)


def _line(style: Style) -> dict[str, Any]:
    """What makes a line or its place in a legend look so."""
    return {
        "color": style.color,
        "linestyle": style.line,
        "marker": style.marker or None,
        "markersize": 4.5,
        "linewidth": 1.3,
    }


def _bar(method: str) -> dict[str, Any]:
    style, edge = _STYLES[method], "white" if method == "oml" else "#333333"
    return {"facecolor": style.color, "hatch": style.hatch, "edgecolor": edge, "linewidth": 0.4}


def make_figures(results: Results, folder: str | os.PathLike[str]) -> dict[str, str]:
    """Draw every figure the results allow, as SVG and PNG.

    Returns
    -------
    dict of str to str
        The captions by name; the files are ``<name>.svg`` and ``<name>.png``.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    captions = {}
    for name, caption, draw in _figures(results):
        save(draw, folder, name)
        captions[name] = caption
    return captions


def _figures(results: Results) -> Iterator[tuple[str, str, Any]]:
    """Yield name, caption and a function that draws, for each figure."""
    yield from _own_figures(results.runs)
    number = 0
    for group in GROUPS:
        for measure, title in MEASURES.items():
            number += 1
            there = [name for name in group if name in results.datasets]
            if there:
                arrow = "smaller" if measure in LOWER_IS_BETTER else "larger"
                names = ", ".join(there)
                caption = (
                    f"Figure {number} of the paper: {title} on {names}. Bars: mean over the "
                    f"folds; whiskers: standard deviation; {arrow} is better."
                )
                yield f"figure-{number}", caption, _Bars(results, measure, there)
    if results.methods(KNN) and results.methods(["oml"]):
        caption = (
            "OML against the better of kNN on raw and on standardised features: relative "
            "difference of each measure, with the sign turned for Hamming loss so that + is "
            "better. Hatched: OML is not better."
        )
        yield "scoreboard", caption, lambda: _draw_scoreboard(results)
    if results.methods(ABLATION) and results.methods(["oml"]):
        caption = (
            "One ingredient of OML switched off at a time: relative change of each measure on "
            "each data set, with the sign turned for Hamming loss, so that left of 0 is worse."
        )
        yield "ablation", caption, lambda: _draw_ablation(results)
    if results.part("prequential"):
        caption = (
            "Prequential micro-F1 over the last tenth of the items, in file order, labels at "
            "once. Dotted: best published mean of the faded measure."
        )
        yield "prequential", caption, lambda: _draw_prequential(results)
    if results.part("scaling"):
        caption = (
            "Measured time per round and per prediction while one size grows; both axes are "
            "logarithmic, so that a power is a straight line."
        )
        yield "scaling", caption, lambda: _draw_scaling(results)
    if results.part("bound"):
        caption = (
            "Cumulative loss per round, Σ l_t / t, of the paper's rounds (P fixed by the first "
            "block) under four rules, and of OML() itself, whose P keeps learning. Eq. 6 leaves "
            "the picture where it diverges."
        )
        yield "bound", caption, lambda: _draw_bound(results)
    if results.part("guarantee"):
        caption = (
            "The convex metric: cumulative squared loss in file order, that of the metric that "
            "does not move, the bound that is known while the stream runs (U = I), and the bound "
            "for the best metric in hindsight."
        )
        yield "guarantee", caption, lambda: _draw_guarantee(results)
    if results.part("young"):
        caption = (
            "What is suggested for 1,000 other items while little is known: the first tag right "
            "(P@1), and micro-F1, after so many items."
        )
        yield "young", caption, lambda: _draw_young(results)
    for record in results.part("labels"):
        name, r = record["dataset"], record["result"]
        shown = len(r["labels"])
        many = (
            f"the {shown} most frequent of {r['n_labels']} labels"
            if shown < r["n_labels"]
            else "all labels"
        )
        caption = (
            f"{name}: cosine of each pair of labels in the learned metric Q = VVᵀ (left) and "
            f"their correlation φ in the data (right), {many}."
        )
        yield f"labels-{name}", caption, _Heat(name, r)


def _own_figures(runs: Sequence[Run]) -> Iterator[tuple[str, str, Any]]:
    for holdout in (True, False):
        some = [run for run in runs if run.is_holdout == holdout]
        for k, name in enumerate(dict.fromkeys(run.data for run in some)):
            by_name = {run.name: run.result for run in some if run.data == name}
            on = f" on {name}" if name else ""
            if holdout:
                caption = f"Hold-out{on}. Bars: mean over the folds; whiskers: standard deviation."
                yield f"own-holdout-{k}", caption, partial(_draw_own_bars, by_name)
            else:
                caption = f"Test, then train{on}: the four measures over the most recent items."
                yield f"own-stream-{k}", caption, partial(_draw_own_stream, by_name)


def _draw_own_bars(runs: Mapping[str, Mapping[str, Any]]) -> Any:
    from matplotlib.patches import Patch

    looks: list[dict[str, Any]] = [
        {"facecolor": _PALETTE[k % len(_PALETTE)], "edgecolor": "#333333", "linewidth": 0.4}
        | {"hatch": "/" * (k // len(_PALETTE))}
        for k in range(len(runs))
    ]
    figure = new_figure(11, 3.2)
    panels = figure.subplots(1, len(MEASURES))
    for panel, (measure, title) in zip(panels, MEASURES.items(), strict=True):
        for x, (run, look) in enumerate(zip(runs.values(), looks, strict=True)):
            mean, spread = (run[what].get(measure, 0.0) for what in ("mean", "std"))
            panel.bar(x, mean, width=0.82, **look)
            panel.errorbar(x, mean, spread, color="black", capsize=2.5, elinewidth=0.9)
        panel.set_title(title + (" (smaller is better)" if measure in LOWER_IS_BETTER else ""))
        panel.set_xticks([])
        panel.set_ylim(bottom=0)
        panel.grid(axis="x", visible=False)
    _legend(figure, [Patch(label=name, **look) for name, look in zip(runs, looks, strict=True)])
    return figure


@dataclass(frozen=True)
class _Bars:
    """One of the paper's figures: a measure on four data sets."""

    results: Results
    measure: str
    names: Sequence[str]

    def __call__(self) -> Any:
        from matplotlib.patches import Patch

        results, measure = self.results, self.measure
        methods = results.methods(BARS)
        figure = new_figure(11, 3.5)
        panels = figure.subplots(1, len(self.names), squeeze=False)[0]
        for panel, name in zip(panels, self.names, strict=True):
            highest = 0.0
            for x, method in enumerate(methods):
                if (name, method) not in results.holdout:
                    continue
                values = results.holdout[name, method][measure]
                mean, spread = values.mean(), spread_of(values)
                panel.bar(x, mean, width=0.82, **_bar(method))
                panel.errorbar(x, mean, spread, color="black", capsize=2.5, elinewidth=0.9)
                weight = "bold" if method == "oml" else "normal"
                text = {"ha": "center", "rotation": 90, "fontsize": 7.5, "fontweight": weight}
                above = {"xytext": (0, 3), "textcoords": "offset points", **text}
                panel.annotate(as_text(mean, measure), (x, mean + spread), **above)
                highest = max(highest, mean + spread)
            panel.set_title(name)
            panel.set_xticks([])
            panel.set_ylim(0, 1.22 * highest or 1)
            panel.grid(axis="x", visible=False)
        arrow = "smaller is better" if measure in LOWER_IS_BETTER else "larger is better"
        panels[0].set_ylabel(f"{MEASURES[measure]} ({arrow})")
        _legend(figure, [Patch(label=results.titles[m], **_bar(m)) for m in methods])
        return figure


def _gain(results: Results, name: str, measure: str) -> tuple[float, float, float]:
    """Return OML's mean, that of the better kNN, and the relative gain; positive is better."""
    rival = results.best(name, KNN, measure)
    assert rival is not None
    ours, theirs = (results.holdout[name, m][measure].mean() for m in ("oml", rival))
    sign = -1 if measure in LOWER_IS_BETTER else 1
    return ours, theirs, float(sign * (ours - theirs) / theirs) if theirs else float("inf")


def _draw_scoreboard(results: Results) -> Any:
    from matplotlib.patches import Rectangle

    names = [n for n in results.datasets if (n, "oml") in results.holdout]
    figure = new_figure(7.4, 0.42 * len(names) + 0.9)
    panel = figure.subplots()
    for y, name in enumerate(names):
        for x, measure in enumerate(MEASURES):
            ours, theirs, gain = _gain(results, name, measure)
            depth = min(abs(gain), 1.0) ** 0.5
            face = (1 - 0.75 * depth, 1 - 0.35 * depth, 1 - 0.1 * depth)
            look: dict[str, Any] = {"facecolor": face, "edgecolor": face}
            box = None
            if gain <= 0:
                look = {"facecolor": "#F7D9C4", "edgecolor": "#D55E00", "hatch": "////"}
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            panel.add_patch(Rectangle((x, y), 0.96, 0.92, **look))
            said = f"{as_text(ours, measure)} vs {as_text(theirs, measure)}  ({_percent(gain)})"
            place = {"ha": "center", "va": "center", "fontsize": 8.5}
            panel.text(x + 0.48, y + 0.46, said, bbox=box, **place)
    panel.set_xlim(0, len(MEASURES))
    panel.set_ylim(len(names), 0)
    panel.set_xticks(np.arange(len(MEASURES)) + 0.48, MEASURES.values())
    panel.set_yticks(np.arange(len(names)) + 0.46, names)
    panel.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
    panel.grid(visible=False)
    panel.spines[:].set_visible(False)
    return figure


def _percent(share: float) -> str:
    if not np.isfinite(share):
        return "∞"
    return f"{100 * share:+.{0 if abs(share) >= 0.1 else 1}f} %".replace("-", "−")


def _draw_ablation(results: Results) -> Any:
    methods, names = results.methods(ABLATION), results.datasets
    looks = [Style(_PALETTE[k], "", _MARKERS[k], "") for k in range(len(names))]
    figure = new_figure(11, 0.38 * len(methods) + 1.6)
    panels = figure.subplots(1, len(MEASURES), sharey=True)
    for panel, (measure, title) in zip(panels, MEASURES.items(), strict=True):
        sign = -1 if measure in LOWER_IS_BETTER else 1
        worst, best = -100.0, 20.0
        for k, (name, look) in enumerate(zip(names, looks, strict=True)):
            there = [m for m in methods if (name, m) in results.holdout]
            changes = [100 * sign * change(results, name, m, measure) for m in there]
            shift = 0.08 * (k - (len(names) - 1) / 2)
            panel.plot(changes, [methods.index(m) + shift for m in there], **_line(look))
            worst, best = min([worst, *changes]), max([best, *changes])
        panel.axvline(0, color="black", linewidth=0.8)
        panel.set_title(title)
        panel.set_xscale("symlog", linthresh=5, linscale=0.8)
        panel.set_xticks([-100, -20, -5, 0, 5, 20], ["−100", "−20", "−5", "0", "5", "20"])
        panel.set_xlim(1.2 * worst, 1.2 * best)
        panel.set_xlabel("change, % (right: better)")
    panels[0].set_yticks(range(len(methods)), [results.titles[m] for m in methods])
    panels[0].set_ylim(len(methods) - 0.5, -0.5)
    _legend(figure, _handles(zip(names, looks, strict=True)))
    return figure


def _handles(looks: Iterable[tuple[str, Style]]) -> list[Any]:
    from matplotlib.lines import Line2D

    return [Line2D([], [], label=label, **_line(look)) for label, look in looks]


def _panels(n: int, height: float = 2.5) -> tuple[Any, list[Any]]:
    """Return a figure of n panels, four in a row."""
    columns = min(4, n)
    rows = -(-n // columns)
    figure = new_figure(2.75 * max(columns, 2), height * rows + 0.7)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels[n:]:
        panel.set_visible(False)
    return figure, panels[:n]


def _draw_prequential(results: Results) -> Any:
    streams = streams_of(results)
    methods = [m for m in STREAM_ORDER if any(m in by for by in streams.values())]
    published = Style("black", "", "", ":")
    figure, panels = _panels(len(streams))
    for panel, (name, by_method) in zip(panels, streams.items(), strict=True):
        for method in reversed([m for m in methods if m in by_method]):
            curve = by_method[method]["curve"]
            recent = curve["recent"]["micro_f1"]
            seldom = max(1, len(recent) // 6)
            panel.plot(curve["n_items"], recent, markevery=seldom, **_line(_STYLES[method]))
        best = best_published(name, "micro_f1")
        if best is not None:
            panel.axhline(best[0], **_line(published))
        panel.set_title(name)
        panel.set_ylim(bottom=0)
        panel.set_xlabel("items")
        panel.set_ylabel("micro-F1, recent items")
        panel.locator_params(axis="x", nbins=4)
    looks = [(results.titles[m], _STYLES[m]) for m in methods]
    _legend(figure, _handles([*looks, ("best published", published)]))
    return figure


def _draw_young(results: Results) -> Any:
    sizes, curves = young_curves(results)
    shown = [method for method in _YOUNG if any(method in by for by in curves.values())]
    figure, panels = _panels(2 * len(curves), 2.8)
    at = np.arange(len(sizes))
    cells = [(name, m) for name in curves for m in ("p_at_1", "micro_f1")]
    for panel, (name, measure) in zip(panels, cells, strict=True):
        for method in reversed([m for m in shown if m in curves[name]]):
            panel.plot(at, curves[name][method][measure].mean(axis=0), **_line(_YOUNG[method]))
        panel.set_title(SETS.get(name, name))
        panel.set_ylim(bottom=0)
        panel.set_xticks(at, [str(n) for n in sizes], fontsize=7)
        panel.set_xlabel("items learnt")
        panel.set_ylabel("P@1" if measure == "p_at_1" else "micro-F1")
    _legend(figure, _handles([(results.titles[m], _YOUNG[m]) for m in shown]))
    return figure


def _draw_scaling(results: Results) -> Any:
    curves = scaling_curves(results)
    axes = [a for a in AXES if any(axis == a for _, axis in curves)]
    methods = [m for m in PRINTED_FOR if any(method == m for method, _ in curves)]
    figure = new_figure(2.75 * max(len(axes), 2), 5.4)
    panels = figure.subplots(2, len(axes), squeeze=False, sharey="row")
    words = {"n": "items n", "p": "features p", "q": "labels q", "d": "dimension d"}
    for row, (what, title) in enumerate((("learn", "a round"), ("predict", "a prediction"))):
        for panel, axis in zip(panels[row], axes, strict=True):
            sizes: set[int] = set()
            for method in methods:
                points = curves[method, axis][what]
                x, y = [size for size, _ in points], [1e6 * seconds for _, seconds in points]
                panel.plot(x, y, **_line(_STYLES[method]))
                sizes |= set(x)
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_xticks(sorted(sizes), [f"{size:,}" for size in sorted(sizes)], fontsize=8)
            panel.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
            panel.set_xlabel(words[axis])
            panel.set_title(f"{title}, {axis} growing")
        panels[row, 0].set_ylabel("microseconds")
    _legend(figure, _handles((results.titles[m], _STYLES[m]) for m in methods))
    return figure


_RULE_LOOKS = {
    "paper": ("Algorithm 1 (cubic, inverse)", Style("#D55E00", "", "X", "--")),
    "proof": ("Eq. 6 (cubic, linear)", Style("#CC79A7", "", "P", ":")),
    "default step": ("exact step, capped, V₁ = I", Style("#009E73", "", "^", "-.")),
    "no learning": ("V = I, no learning", Style("#000000", "", "", ":")),
    "default": ("OML()", _STYLES["oml"]),
}


def _draw_bound(results: Results) -> Any:
    records = results.part("bound")
    figure, panels = _panels(len(records))
    for panel, record in zip(panels, records, strict=True):
        r = record["result"]
        lines = {run["name"]: (r["n_init"], run["curve"]) for run in r["runs"]}
        lines["default"] = (0, r["default"]["curve"])
        shown: list[float] = []
        for name, (start, curve) in lines.items():
            t = np.array(curve["t"])
            mean = np.array(curve["loss"]) / t
            some = (mean > 0) & (start + t >= r["n_init"])
            panel.plot((start + t)[some], mean[some], markevery=12, **_line(_RULE_LOOKS[name][1]))
            shown += [] if name == "proof" else mean[some].tolist()
        panel.set_title(record["dataset"])
        panel.set_yscale("log")
        # Eq. 6 diverges and would flatten all others.
        panel.set_ylim(min(shown, default=1) / 1.5, max(shown, default=1) * 3)
        panel.set_xlabel("items")
        panel.set_ylabel("loss per round, Σ l_t / t")
        panel.locator_params(axis="x", nbins=4)
    _legend(figure, _handles(_RULE_LOOKS.values()))
    return figure


_GUARANTEE_LOOKS = {
    "bound": ("bound, U = I", Style("#D55E00", "", "X", "--")),
    "best_bound": ("bound, best U in hindsight", Style("#CC79A7", "", "P", ":")),
    "identity_loss": ("loss of I, no learning", Style("#000000", "", "", ":")),
    "squared_loss": ("loss", _STYLES["oml"]),
}


def _draw_guarantee(results: Results) -> Any:
    records = results.part("guarantee")
    figure, panels = _panels(len(records))
    for panel, record in zip(panels, records, strict=True):
        curve = record["result"]["curve"]
        for name, (_, look) in _GUARANTEE_LOOKS.items():
            panel.plot(curve["n_items"], curve[name], markevery=12, **_line(look))
        panel.set_title(record["dataset"])
        panel.set_ylim(bottom=0)
        panel.set_xlabel("items")
        panel.set_ylabel("Σ l_t²")
        panel.locator_params(axis="x", nbins=4)
    _legend(figure, _handles(_GUARANTEE_LOOKS.values()))
    return figure


@dataclass(frozen=True)
class _Heat:
    """Two matrices over labels, side by side: the metric, and the data."""

    name: str
    result: Mapping[str, Any]

    def __call__(self) -> Any:
        labels = [_short(label) for label in self.result["labels"]]
        q = len(labels)
        side = max(2.4, 0.14 * q + 0.4)
        figure = new_figure(2 * side + 2.6, side + 1.1)
        panels = figure.subplots(1, 2)
        what = (("cosine", "learned: cosine in Q"), ("phi", "data: correlation φ"))
        for panel, (key, title) in zip(panels, what, strict=True):
            M = np.array(self.result[key], dtype=np.float64)
            np.fill_diagonal(M, np.nan)
            limit = max(float(np.nanmax(np.abs(M))), 1e-6)
            image = panel.imshow(M, cmap="PuOr_r", vmin=-limit, vmax=limit, interpolation="nearest")
            figure.colorbar(image, ax=panel, shrink=0.8)
            size = 9 if q <= 10 else 6.5
            panel.set_xticks(range(q), labels, rotation=90, fontsize=size)
            panel.set_yticks(range(q), labels if key == "cosine" else [], fontsize=size)
            panel.grid(visible=False)
            panel.set_title(
                f"{self.name}\n{title}" if key == "cosine" else f"\n{title}", loc="left"
            )
        return figure


def _short(label: str, most: int = 22) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


def _draw_own_stream(runs: Mapping[str, Mapping[str, Any]]) -> Any:
    """Draw the four measures over the recent items of some runs."""
    lines = ("-", "--", "-.", ":")
    looks = {
        name: Style(_PALETTE[k % len(_PALETTE)], "", _MARKERS[k % len(_MARKERS)], lines[k % 4])
        for k, name in enumerate(runs)
    }
    figure = new_figure(9, 5.6)
    for panel, (measure, title) in zip(figure.subplots(2, 2).flat, MEASURES.items(), strict=True):
        for name, run in reversed(list(runs.items())):
            recent = [point["recent"].get(measure, np.nan) for point in run["curve"]]
            panel.plot([point["n_items"] for point in run["curve"]], recent, **_line(looks[name]))
        low = measure in LOWER_IS_BETTER
        panel.set_title(f"{title} ({'smaller' if low else 'larger'} is better)")
        panel.set_ylim(bottom=0)
        panel.set_xlabel("items")
    _legend(figure, _handles(looks.items()))
    return figure
