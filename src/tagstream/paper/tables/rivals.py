"""Tables of the experiment with what people would use instead (:mod:`tagstream.paper.rivals`)."""

from __future__ import annotations

import numpy as np

from tagstream.paper.results import Results, as_text
from tagstream.paper.table import Table

__all__ = ["rival_tables"]

TITLES = {"goemotions-dev": "comments", "packages": "packages"}
OURS = ("tagger", "tagger-encoder")
Found = dict[tuple[str, str, int], dict[str, list[float]]]  # data set, method, texts learnt


def rival_tables(results: Results) -> dict[str, Table | str]:
    """Return the tables and the sentence on rivals, by name."""
    found: Found = {}
    titles: dict[str, str] = {}
    version = ""
    for record in results.part("rivals"):
        at = record["dataset"], record["method"], record["setting"]["n"]
        for measure in ("micro_f1", "precision_at_1"):
            found.setdefault(at, {}).setdefault(measure, []).append(record["result"][measure])
        titles[record["method"]] = record["title"]
        version = record["versions"]["tagstream"]
    if not found:
        return {}
    return {
        "rivals": _table(found, titles, "micro_f1", "Micro-F1"),
        "rivals_at_1": _table(
            found, titles, "precision_at_1", "Share of texts whose best tag is right"
        ),
        "verdict_rivals": _verdict(found, titles, version),
    }


def _mean(found: Found, name: str, method: str, n: int, measure: str) -> float | None:
    values = found.get((name, method, n), {}).get(measure)
    return None if values is None else float(np.mean(values))


def _columns(found: Found) -> list[tuple[str, int]]:
    sizes = sorted({n for _, _, n in found})
    return [(name, n) for name in TITLES for n in sizes if (name, OURS[0], n) in found]


def _table(found: Found, titles: dict[str, str], measure: str, what: str) -> Table:
    columns = _columns(found)
    methods = [m for m in titles if any((name, m, n) in found for name, n in columns)]
    best = {
        at: max(v for m in methods if (v := _mean(found, at[0], m, at[1], measure)) is not None)
        for at in columns
    }
    rows = []
    for method in methods:
        cells = []
        for at in columns:
            value = _mean(found, at[0], method, at[1], measure)
            text = "–" if value is None else as_text(value, measure)
            cells.append(f"**{text}**" if value == best[at] else text)
        rows.append((titles[method], *cells))
    head = ("", *(f"{TITLES[name]}, {n:,} learnt" for name, n in columns))
    draws = sorted({len(values["micro_f1"]) for values in found.values()})
    shown = f"{draws[0]}" if len(draws) == 1 else f"{draws[0]} to {draws[-1]}"
    note = (
        f"{what} on a fifth of the texts that was not learnt; means over {shown} random "
        "division(s); the highest is bold."
    )
    return Table(head, tuple(rows), note)


def _verdict(found: Found, titles: dict[str, str], version: str) -> str:
    ahead, behind = 0, []
    for name, n in _columns(found):
        rivals = {
            m: v
            for m in titles
            if m not in OURS and (v := _mean(found, name, m, n, "micro_f1")) is not None
        }
        ours = {m: v for m in OURS if (v := _mean(found, name, m, n, "micro_f1")) is not None}
        if len(rivals) + len(ours) < len(titles):
            continue  # somebody's run is missing
        best, mine = max(rivals.values()), max(ours.values())
        rival = max(rivals, key=rivals.__getitem__)
        if mine >= best:
            ahead += 1
        else:
            behind.append(f"{TITLES[name]}, {n:,} learnt ({titles[rival]}: {best - mine:+.3f})")
    n_cells = ahead + len(behind)
    text = (
        f"**The better of the two taggers is ahead of all rivals in {ahead} of {n_cells} columns.**"
    )
    if behind:
        text += f" It is behind in {'; '.join(behind)}."
    return f"{text} Made by tagstream {version}."
