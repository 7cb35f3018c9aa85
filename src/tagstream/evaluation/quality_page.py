"""A page of HTML about the quality of suggestions: figures, pictures, a table. It needs no network.

Pictures are SVG that is written here; names of tags are escaped.
"""

from __future__ import annotations

from html import escape

from tagstream.evaluation.quality import Quality, TagQuality

__all__ = ["quality_page"]

MOST_BARS = 40
STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse}
td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}svg text{fill:#ddd}}
"""
BLUE, GREY = "#2b6cb0", "#999"


def quality_page(quality: Quality, title: str) -> str:
    """Return the page.

    Examples
    --------
    >>> from tagstream.evaluation.quality import measure
    >>> page = quality_page(measure([["<sea>"]], [["<sea>"]], [{"<sea>": 0.9}]), "m.tgs")
    >>> "&lt;sea&gt;" in page and "<sea>" not in page
    True
    """
    figures = {
        "items": f"{quality.n_items:,}",
        "micro-F1": _with_interval(quality.all),
        "macro-F1": f"{quality.macro_f1:.3f}",
        "precision@1": f"{quality.precision_at[1]:.3f}",
        "precision@3": f"{quality.precision_at[3]:.3f}",
        "calibration error": f"{quality.calibration_error:.3f}",
    }
    facts = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in figures.items())
    head = "".join(f"<th>{name}</th>" for name in ("tag", "items", "precision", "recall", "F1"))
    rows = "".join(_row(str(tag), found) for tag, found in quality.tags.items())
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<style>{STYLE}</style><h1>{escape(title)}</h1><table>{facts}</table>"
        "<h2>Are the scores right?</h2><p>Of the tags with a score near 0.7, about 70 % should be "
        "right: the dots should lie on the line. Large dots stand for many scores.</p>"
        f"{_reliability(quality)}<h2>F1 of each tag</h2><p>Lines are 95 % intervals.</p>"
        f"{_bars(quality)}<table><tr>{head}</tr>{rows}</table></html>\n"
    )


def _with_interval(found: TagQuality) -> str:
    low, high = found.interval
    return f"{found.f1:.3f} ({low:.3f} to {high:.3f})"


def _row(tag: str, found: TagQuality) -> str:
    cells = [
        escape(tag),
        f"{found.n_items:,}",
        f"{found.precision:.3f}",
        f"{found.recall:.3f}",
        _with_interval(found),
    ]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _reliability(quality: Quality) -> str:
    size, edge = 320, 40
    most = max((part.n for part in quality.bins), default=1)

    def x(value: float) -> float:
        return edge + value * size

    def y(value: float) -> float:
        return edge / 2 + (1 - value) * size

    marks = [f"<line x1='{x(0)}' y1='{y(0)}' x2='{x(1)}' y2='{y(1)}' stroke='{GREY}'/>"]
    for i in range(0, 11, 2):
        at = i / 10
        marks.append(f"<text x='{x(at)}' y='{y(0) + 18}' text-anchor='middle'>{at:.1f}</text>")
        marks.append(f"<text x='{x(0) - 6}' y='{y(at) + 4}' text-anchor='end'>{at:.1f}</text>")
    for part in quality.bins:
        radius = 3 + 9 * (part.n / most) ** 0.5
        note = f"{part.n:,} scores of {part.mean:.2f} on average, {part.right:.0%} right"
        marks.append(
            f"<circle cx='{x(part.mean):.1f}' cy='{y(part.right):.1f}' r='{radius:.1f}' "
            f"fill='{BLUE}'><title>{note}</title></circle>"
        )
    words = f"<text x='{x(0.5)}' y='{y(0) + 36}' text-anchor='middle'>score; upwards: right</text>"
    return _svg(size + 2 * edge, size + 2 * edge, [*marks, words])


def _bars(quality: Quality) -> str:
    width, step, left = 420, 20, 220
    marks = []
    for i, (tag, found) in enumerate([*quality.tags.items()][:MOST_BARS]):
        top, (low, high) = i * step, found.interval
        middle = top + step / 2
        name = escape(str(tag) if len(str(tag)) <= 30 else str(tag)[:29] + "…")
        marks += [
            f"<text x='{left - 8}' y='{top + 14}' text-anchor='end' font-size='13'>{name}</text>",
            f"<rect x='{left}' y='{top + 3}' width='{width * found.f1:.1f}' height='{step - 6}' "
            f"fill='{BLUE}' opacity='.6'/>",
            f"<line x1='{left + width * low:.1f}' y1='{middle}' x2='{left + width * high:.1f}' "
            f"y2='{middle}' stroke='{GREY}' stroke-width='2'/>",
        ]
    return _svg(left + width + 10, step * min(len(quality.tags), MOST_BARS) + 4, marks)


def _svg(width: int, height: int, marks: list[str]) -> str:
    return (
        f"<svg viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
        f"font-family='sans-serif' font-size='12'>{''.join(marks)}</svg>"
    )
