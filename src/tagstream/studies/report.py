"""A comparison as files: tables in Markdown, pictures of the ranks of all methods."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tagstream.paper.page import update_markers
from tagstream.paper.ranks import draw_ranks, rank_table
from tagstream.studies.compare import Comparison
from tagstream.studies.published import MEASURES

__all__ = ["comparison_tables", "draw_comparison", "update_document", "write_comparison"]


def _ours(found: Comparison) -> tuple[list[str], list[str]]:
    """Return the columns that are ranked with the published methods, and their titles.

    These are this library's learners with their default decision, each once.
    """
    titles = found.columns()
    families = {record["learner"]: record["family"] for record in found.records}
    mine = [
        column
        for column in titles
        if families[column.split("/")[0]] == "tagstream" and column.endswith("/default")
    ]
    return mine, [titles[column] for column in mine]


def comparison_tables(found: Comparison) -> dict[str, str]:
    """Return the tables of a comparison in Markdown, by name."""
    name = found.study.name
    many = len(found.columns()) > 3
    tables = {f"{name}-cost": found.cost_table().markdown()}
    if many:
        for measure in found.study.measures:
            tables[f"{name}-{measure}"] = found.wide_table(measure).markdown()
    else:
        tables[name] = found.table().markdown()
    columns, _ = _ours(found)
    for measure in found.study.measures:
        ranks = found.significance(measure, columns)
        tables[f"{name}-ranks-{measure}"] = rank_table(ranks, MEASURES[measure]).markdown()
    return tables


def draw_comparison(
    found: Comparison, folder: Path, measures: Sequence[str] = ()
) -> dict[str, str]:
    """Draw the ranks of all methods of the study and of ours; return captions by name."""
    columns, titles = _ours(found)
    drawn: dict[str, str] = {}
    for measure in measures or found.study.measures:
        ranks = found.significance(measure, columns)
        if ranks.enough:
            what = f"{found.study.title}: {MEASURES[measure]}"
            names = draw_ranks(ranks, folder, _picture(found, measure), what, titles)
            drawn |= dict.fromkeys(names, what)
    return drawn


def update_document(found: Comparison, path: Path) -> None:
    """Rewrite the marked regions of a Markdown file, and draw the pictures of ranks it shows."""
    update_markers(path, comparison_tables(found))
    text = path.read_text(encoding="utf-8")
    shown = set(re.findall(r"figures/(ranks-[\w-]+\.(?:png|svg))\b", text))
    measures = [m for m in found.study.measures if any(_picture(found, m) in f for f in shown)]
    if not measures:
        return
    with tempfile.TemporaryDirectory() as folder:
        draw_comparison(found, Path(folder), measures)
        (path.parent / "figures").mkdir(exist_ok=True)
        for drawn in Path(folder).iterdir():
            if drawn.name in shown:
                shutil.copyfile(drawn, path.parent / "figures" / drawn.name)


def _picture(found: Comparison, measure: str) -> str:
    return f"ranks-{found.study.name}-{measure.replace('_', '-')}"


def write_comparison(found: Comparison, folder: Path) -> Path:
    """Write tables and pictures into a folder; return it."""
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    for name, text in comparison_tables(found).items():
        (folder / "tables" / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    draw_comparison(found, folder / "figures")
    return folder
