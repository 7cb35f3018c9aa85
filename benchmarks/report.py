"""From the JSON file to tables and plots: nothing in the document is typed by hand.

The document has places marked ``<!-- begin NAME -->`` … ``<!-- end -->``; what stands between is
replaced by the tables of section NAME, or by the ``summary`` or the ``machine``.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

PLACE = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def number(value: Any) -> str:
    """Write a value with three significant digits, or as it is."""
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def table(rows: list[dict[str, Any]]) -> str:
    """Write dicts of the same keys as a Markdown table."""
    if not rows:
        return ""
    keys = list(rows[0])
    numeric = [all(not isinstance(row[key], str) for row in rows) for key in keys]
    lines = [
        "| " + " | ".join(keys) + " |",
        "| " + " | ".join("---:" if right else "---" for right in numeric) + " |",
        *("| " + " | ".join(number(row[key]) for key in keys) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def missed_by(claim: dict[str, Any]) -> str:
    """Say how far a measured number is from its target."""
    value, target = claim["value"], claim["target"]
    if claim["met"]:
        return "met"
    if not value or not target:
        return "missed"
    return f"missed {number(max(value / target, target / value))}x"


def claims_table(claims: list[dict[str, Any]]) -> str:
    """Write measured numbers with targets and limits."""
    return table(
        [
            {
                "claim": c["what"],
                "measured": f"{number(c['value'])} {c['unit']}".strip(),
                "target": f"{c['sense']} {number(c['target'])} {c['unit']}".strip(),
                "": missed_by(c),
                "limited by": c["limit"],
                "limit, measured": (
                    "—"
                    if c["limit_value"] is None
                    else f"{number(c['limit_value'])} {c['limit_unit']}"
                ),
                "times the limit": number(c["distance"]),
            }
            for c in claims
        ]
    )


def _pivot(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Turn points of curves into one row per curve and action."""
    out = []
    for curve in dict.fromkeys(row["curve"] for row in rows):
        part = [row for row in rows if row["curve"] == curve]
        for action in ("predict, µs", "learn, µs"):
            times = ", ".join(f"{number(row['at'])}: {number(row[action])}" for row in part)
            out.append({"curve": curve, "": action, "size: time": times})
    return out


def section(one: dict[str, Any]) -> str:
    """Write a section: its terms, its table, its claims."""
    rows = one["rows"]
    when = f"*Measured with* {one['version']}, {one['date']}, load at start {one['load']:.1f}."
    parts = [f"{when} *Equal:* {one['equal']}"]
    if one.get("differs"):
        parts[0] += f" *Not equal:* {one['differs']}"
    if one.get("skipped"):
        parts.append(f"Not installed and skipped: {', '.join(one['skipped'])}.")
    parts.append(table(_pivot(rows) if rows and "curve" in rows[0] else rows))
    parts += [f"{key}: {table([value])}" for key, value in one.get("tables", {}).items()]
    for note in one.get("notes", []):
        parts.append(note)
    if one["claims"]:
        parts.append(claims_table(one["claims"]))
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def summary(results: dict[str, Any]) -> str:
    """Count the targets that are met, and name the others."""
    claims = [c for s in results["sections"].values() for c in s["claims"]]
    missed = [c for c in claims if not c["met"]]
    text = f"{len(claims) - len(missed)} of {len(claims)} targets are met."
    if missed:
        text += " Missed:\n\n" + claims_table(missed)
    return text.strip() + "\n"


def machine(results: dict[str, Any]) -> str:
    """Name the machine and the versions."""
    about = dict(results["about"])
    versions = about.pop("versions")
    listed = ", ".join(f"{name} {v}" for name, v in versions.items() if v)
    missing = ", ".join(name for name, v in versions.items() if not v)
    text = table([about]) + f"\nVersions: {listed}."
    return text + (f" Not installed: {missing}." if missing else "") + "\n"


def document(text: str, results: dict[str, Any]) -> str:
    """Fill the marked places of a document."""
    made = {name: section(one) for name, one in results["sections"].items()}
    made |= {"summary": summary(results), "machine": machine(results)}

    def fill(match: re.Match[str]) -> str:
        return match[1] + made.get(match[2], "Not measured in this run.\n") + match[3]

    return PLACE.sub(fill, text)


def plots(results: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the curves on logarithmic axes, one file per plot with a panel per variable."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    curves = [c for s in results["sections"].values() for c in s.get("curves", [])]
    made = []
    for plot in dict.fromkeys(c["plot"] for c in curves):
        mine = [c for c in curves if c["plot"] == plot]
        panels = list(dict.fromkeys(c["panel"] for c in mine))
        columns = min(len(panels), 3)
        height = -(-len(panels) // columns)
        figure, axes = pyplot.subplots(
            height, columns, figsize=(4 * columns + 1, 3.3 * height), squeeze=False
        )
        colours = dict(zip(dict.fromkeys(c["line"] for c in mine), range(10), strict=False))
        for axis, panel in zip(axes.flat, panels, strict=False):
            _panel(axis, [c for c in mine if c["panel"] == panel], panel, colours)
        for axis in axes.flat[len(panels) :]:
            axis.axis("off")
        handles = {
            label: handle
            for axis in axes.flat
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.tight_layout()
        figure.legend(handles.values(), handles, loc="upper left", bbox_to_anchor=(1, 0.97))
        made.append(folder / f"{plot}.png")
        figure.savefig(made[-1], dpi=100, bbox_inches="tight", metadata={"Software": None})
        pyplot.close(figure)
    return made


def _panel(axis: Any, curves: list[dict[str, Any]], title: str, colours: dict[str, int]) -> None:
    """Draw one panel, with the slope of proportional growth as a dotted line."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    for curve in curves:
        colour = colours[curve["line"]]
        axis.loglog(
            curve["x"],
            curve["y"],
            "osD^vP*Xhd"[colour] + "-",
            color=f"C{colour}",
            markersize=4,
            label=curve["line"],
        )
    x = sorted({value for curve in curves for value in curve["x"]})
    lowest, highest = (f(f(c["y"]) for c in curves) for f in (min, max))
    axis.set_ylim(lowest / 1.7, max(highest, 3 * lowest) * 1.7)
    axis.loglog([x[0], x[-1]], [lowest / 1.5, lowest / 1.5 * x[-1] / x[0]], "k:", label="∝ size")
    if len(x) <= 8:
        axis.set_xticks(x, [f"{v:,}" for v in x], fontsize=8)
    else:
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    for side in (axis.xaxis, axis.yaxis):
        side.set_minor_formatter(NullFormatter())
    axis.minorticks_off()
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(curves[0]["xlabel"])
    axis.set_ylabel(curves[0]["ylabel"])
    axis.grid(alpha=0.3)
