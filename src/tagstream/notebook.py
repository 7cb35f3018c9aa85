"""What notebooks show of answers: small tables of HTML, in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from itertools import islice
from typing import Any

__all__ = ["explanation_html", "scores_html", "summary_html"]

MOST_SCORES = 10
LONGEST_TEXT = 100


def _cell(value: Any) -> str:
    return f"<td style='text-align:left'>{escape(str(value))}</td>"


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    top = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def scores_html(tags: Iterable[Any], scores: Mapping[Any, float], known: bool = True) -> str:
    """Return suggested tags and the highest scores.

    Examples
    --------
    >>> "&lt;b&gt;" in scores_html(["<b>"], {"<b>": 0.9})
    True
    """
    suggested = {*tags}
    best = islice(scores.items(), MOST_SCORES)
    rows = [[tag, f"{score:.2f}", "✓" if tag in suggested else ""] for tag, score in best]
    note = "" if known else "<p>nothing in it was met before</p>"
    return note + _table(["tag", "score", "suggested"], rows)


def explanation_html(why: Any) -> str:
    """Return scores, and the items near, with the beginning of their texts."""
    scores = scores_html(why.voters, why.scores)
    rows = []
    for near in why.neighbors:
        text = (near.text or "")[:LONGEST_TEXT]
        rows.append([near.id, ", ".join(map(str, near.labels)), f"{near.distance:.3g}", text])
    return scores + _table(["item near", "its tags", "distance", "text"], rows)


def summary_html(facts: Mapping[str, Any]) -> str:
    """Return what something is, one fact per row."""
    return _table(["what", "value"], facts.items())
