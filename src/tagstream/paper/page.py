"""Documents: marked regions of Markdown files, and self-contained pages."""

from __future__ import annotations

import html
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tagstream.paper.figures import make_figures
from tagstream.paper.ranks import draw_rankings, rank_table, rankings
from tagstream.paper.results import (
    ELM,
    KNN,
    MEASURES,
    OLANSGD,
    PAPER_DATA,
    Results,
    count_wins,
)
from tagstream.paper.table import Table, inline
from tagstream.paper.tables import make_tables

__all__ = ["build", "update_markers"]

_MARK = re.compile(r"(<!-- begin:([\w-]+) -->\n).*?(<!-- end:\2 -->)", re.DOTALL)


def update_markers(path: str | os.PathLike[str], fragments: Mapping[str, Table | str]) -> bool:
    """Rewrite the marked regions of a Markdown file.

    A region lies between ``<!-- begin:NAME -->`` and ``<!-- end:NAME -->``; one whose name is not
    among the fragments is left as it is.

    Parameters
    ----------
    path : path
    fragments : mapping of str to Table or str
        What to put into the regions, by name.

    Returns
    -------
    bool
        Whether the file has changed.
    """
    path = Path(path)
    before = path.read_text(encoding="utf-8")
    begun, ended = (re.findall(rf"<!-- {w}:([\w-]+) -->", before) for w in ("begin", "end"))
    if begun != ended:
        raise ValueError(f"{path}: each begin must have its end, got {begun} and {ended}")

    def fill(match: re.Match[str]) -> str:
        fragment = fragments.get(match[2])
        if fragment is None:
            return match[0]
        text = fragment.markdown() if isinstance(fragment, Table) else fragment
        return f"{match[1]}{text}\n{match[3]}"

    after = _MARK.sub(fill, before)
    if after != before:
        path.write_text(after, encoding="utf-8")
    return after != before


def build(
    results_dir: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    *,
    documents: Iterable[str | os.PathLike[str]] = (),
) -> Path:
    """Make figures, tables and the page from the records of a results directory.

    Parameters
    ----------
    results_dir : path
        Records of the paper's experiments, or evaluations of one's own
        (:func:`tagstream.paper.results.runs_of` says in which form), or both.
    out_dir : path
        Gets ``index.html``, ``figures/`` and ``tables/``.
    documents : paths of Markdown files
        Their marked regions are rewritten (see :func:`update_markers`), and the figures they show
        as ``figures/<name>.png`` or ``.svg`` are copied beside them.

    Returns
    -------
    Path
        The page: one file with everything in it.
    """
    out = Path(out_dir)
    results = Results.read(results_dir)
    tables = make_tables(results)
    captions = make_figures(results, out / "figures")
    tests = list(rankings(results))
    tables |= {test.name: rank_table(test.found, test.title) for test in tests}
    captions |= draw_rankings(
        tests, out / "figures", [title for m, title in results.titles.items() if m == "oml"]
    )
    folder = out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        text = table.markdown() if isinstance(table, Table) else table
        (folder / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    for document in documents:
        document = Path(document)
        update_markers(document, tables)
        shown = re.findall(r"(figures/[\w-]+\.(?:png|svg))\b", document.read_text(encoding="utf-8"))
        folders = re.findall(r"([\w./-]*)figures/[\w-]+\.(?:png|svg)", document.read_text("utf-8"))
        for figure, prefix in zip(shown, folders, strict=True):
            if (out / figure).exists():
                target = document.parent / prefix / figure
                target.parent.mkdir(parents=True, exist_ok=True)
                if target.resolve() != (out / figure).resolve():
                    shutil.copyfile(out / figure, target)
    page = out / "index.html"
    page.write_text(_page(results, tables, captions, out / "figures"), encoding="utf-8")
    return page


# ---------------------------------------------------------------------- the page
_CSS = """
:root { --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --blue: #0072B2; --pale: #f4f7fa; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.5rem 4rem; color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { margin: 3rem 0 .6rem; padding-top: .8rem; border-top: 2px solid var(--line);
  font-size: 1.4rem; }
h3 { margin: 1.8rem 0 .4rem; font-size: 1.05rem; }
p { max-width: 52rem; }
nav a { margin-right: .8rem; white-space: nowrap; color: var(--blue); text-decoration: none; }
nav a:hover { text-decoration: underline; }
.lead { color: var(--soft); font-size: 1.05rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: 1rem;
  margin: 1.5rem 0; }
.card { background: var(--pale); border-left: 4px solid var(--blue); padding: .8rem 1rem; }
.card b { display: block; font-size: 1.7rem; line-height: 1.2; }
.card span { color: var(--soft); font-size: .9rem; }
.verdict { background: var(--pale); border-left: 4px solid var(--blue); padding: .6rem 1rem; }
figure { margin: 1.4rem 0; }
figure svg { max-width: 100%; height: auto; }
figcaption, .note { color: var(--soft); font-size: .87rem; max-width: 60rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums;
  margin: .6rem 0; }
th, td { padding: .3rem .6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th, td.text { white-space: normal; min-width: 3.5rem; }
td.text { min-width: 6rem; }
td.text:first-child { min-width: 9rem; }
th { border-bottom: 2px solid var(--ink); vertical-align: bottom; font-weight: 600; }
th.text, td.text { text-align: left; }
th:first-child, td:first-child { position: sticky; left: 0; background: white; }
tbody tr:hover td { background: var(--pale); }
footer { margin-top: 3rem; color: var(--soft); font-size: .87rem; }
@media print {
  @page { size: A4; margin: 12mm; }
  body { font-size: 10.5pt; max-width: none; padding: 0; }
  nav { display: none; }
  h2 { break-after: avoid; } h3 { break-after: avoid; }
  figure, table, .card, .verdict { break-inside: avoid; }
  .wide { overflow: visible; } table { font-size: 6.3pt; } th, td { padding: .1rem .22rem; }
  th, td.text, td.text:first-child { min-width: 0; }
}
"""


class _Section(NamedTuple):
    """A section of the page: its anchor and title, and the names of what is in it."""

    anchor: str
    title: str
    verdicts: tuple[str, ...]
    figures: tuple[str, ...]
    tables: tuple[str, ...]


_SECTIONS = (
    _Section("claims", "The paper's claims", ("verdict_knn", "verdict_unseen",
             "verdict_competitors", "verdict_comparable", "verdict_everything"), ("scoreboard",),
             ("claims", "repeats", "repeats_rivals", "repeats_head", "repeats_fitting", "trade")),
    _Section("figures", "Figures 1 to 8", (), tuple(f"figure-{k}" for k in range(1, 9)),
             tuple(MEASURES)),
    _Section("offline", "Beside offline learners", (), (), ("offline",)),
    _Section("calibration", "Can the probabilities be trusted?", (), (), ("calibration",)),
    _Section("ablation", "What each ingredient does", ("verdict_ablation",), ("ablation",),
             ("ablation", *(f"ablation_{m}" for m in MEASURES))),
    _Section("stream", "As a stream: test, then train", ("verdict_prequential", "verdict_versions"),
             ("prequential",), ("prequential", "versions")),
    _Section("text", "Tagging text", ("verdict_text",), (), ("text",)),
    _Section("order", "The order of the training data", ("verdict_order", "verdict_copies"), (),
             ("order", "order_others", "order_copies")),
    _Section("at-once", "Learning at once", ("verdict_corrections", "verdict_new_tags",
             "verdict_new_tags_ranked", "verdict_newtag"), (),
             ("corrections", "new_tags", "new_tags_ranked", "newtag")),
    _Section("delays", "Labels that come late", ("verdict_delays",), (), ("delays",)),
    _Section("labels", "What the metric says about labels", ("verdict_labels",),
             tuple(f"labels-{name}" for name in PAPER_DATA), ("labels",)),
    _Section("bound", "Loss and bound", ("verdict_bound",), ("bound",), ("bound", "lemma")),
    _Section("guarantee", "A bound that holds", ("verdict_guarantee",), ("guarantee",),
             ("guarantee", "repeats_convex", "repeats_convex_vote", "prequential_convex")),
    _Section("time", "Time", ("verdict_complexity",), ("scaling",), ("complexity", "cost")),
    _Section("data", "Data sets", ("verdict_datasets",), (), ("datasets",)),
    _Section("baselines", "The competitors, checked", ("verdict_splits",), (), ("splits",)),
)  # fmt: skip


def _svg(path: Path) -> str:
    """Return a drawing to be put into a page: without prolog, and with names of its own."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r'(<image[^>]*?) id="[^"]*"', r"\1", text[text.index("<svg") :])
    ids = {name: f"{path.stem}-{name}" for name in re.findall(r'\bid="([^"]+)"', text)}
    text = re.sub(r'\bid="([^"]+)"', lambda m: f'id="{ids[m[1]]}"', text)
    text = re.sub(r"url\(#([^)]+)\)", lambda m: f"url(#{ids.get(m[1], m[1])})", text)
    return re.sub(r'xlink:href="#([^"]+)"', lambda m: f'xlink:href="#{ids.get(m[1], m[1])}"', text)


def _figure(name: str, caption: str, folder: Path) -> str:
    return (
        f'<figure role="img" aria-label="{html.escape(caption, quote=True)}">'
        f"{_svg(folder / f'{name}.svg')}<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def _whole_page(title: str, body: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_CSS}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def _page(
    results: Results,
    tables: Mapping[str, Table | str],
    captions: Mapping[str, str],
    folder: Path,
) -> str:
    parts = []
    anchors = []
    own = _Section(
        *("own", "Your results", ()),
        tuple(name for name in captions if name.startswith("own-")),
        ("own_holdout", "own_stream"),
    )
    ranks = _Section(
        *("ranks", "Are the differences significant?", ()),
        tuple(name for name in captions if name.startswith("ranks-")),
        tuple(name for name in tables if name.startswith("ranks-")),
    )
    for section in (own, ranks, *_SECTIONS):
        verdicts = [tables[name] for name in section.verdicts if name in tables]
        figures = [name for name in section.figures if name in captions]
        shown = [table for name in section.tables if isinstance(table := tables.get(name), Table)]
        if not (verdicts or figures or shown):
            continue
        anchors.append(f'<a href="#{section.anchor}">{section.title}</a>')
        parts.append(f'<h2 id="{section.anchor}">{section.title}</h2>')
        parts += [f'<p class="verdict">{inline(str(v)).replace("`", "")}</p>' for v in verdicts]
        parts += [_figure(name, captions[name], folder) for name in figures]
        parts += [table.html() for table in shown]
    title, lead = (
        (
            "Online metric learning for multi-label streams",
            "The experiments of Gong, Yang, Yuan and Bao (AAAI 2020) run again with tagstream: the "
            "method as published, the method corrected, and its competitors. ",
        )
        if results.records
        else ("Multi-label learners compared", "")
    )
    head = (
        f'<h1>{title}</h1><p class="lead">{lead}'
        "Everything on this page is computed from the records in the results directory.</p>"
        f"<nav>{' '.join(anchors)}</nav>{_cards(results)}"
    )
    foot = f"<footer>{html.escape(str(tables['run']))}</footer>"
    return _whole_page("tagstream: report", head + "".join(parts) + foot)


def _cards(results: Results) -> str:
    cards = []

    def add(method: str, rivals: Sequence[str], words: str) -> None:
        if results.methods([method]) and results.methods(rivals):
            wins = count_wins(results, method, rivals)
            cards.append(f"<b>{wins.cells} of {wins.total}</b><span>{html.escape(words)}</span>")

    add("oml", KNN, "cells in which OML is better than the better kNN")
    add("oml", ELM, "cells in which OML is better than the better OSML-ELM")
    add("oml", OLANSGD, "cells in which OML is better than the better OLANSGD")
    add("oml-published", ("knn",), "cells in which OML as published is better than kNN")
    return f'<div class="cards">{"".join(f"<div class=card>{c}</div>" for c in cards)}</div>'
