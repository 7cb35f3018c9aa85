"""A table of the report, as Markdown and as HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Table", "inline"]


@dataclass(frozen=True)
class Table:
    """Text in rows; ``**bold**`` is understood by both outputs.

    Examples
    --------
    >>> print(Table(("data set", "n"), (("scene", "**2407**"),)).markdown())
    | data set | n |
    | --- | ---: |
    | scene | **2407** |
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rule = ["---" if text else "---:" for text in self._is_text]
        lines = [f"| {' | '.join(row)} |" for row in (self.head, rule, *self.rows)]
        return "\n".join(lines) + (f"\n\n{self.note}" if self.note else "")

    def html(self) -> str:
        """Return the table as HTML."""

        def cells(row: Sequence[str], tag: str) -> str:
            left = (' class="text"' if text else "" for text in self._is_text)
            pairs = zip(row, left, strict=True)
            return "".join(f"<{tag}{side}>{inline(text)}</{tag}>" for text, side in pairs)

        body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in self.rows)
        note = f'<p class="note">{inline(self.note)}</p>' if self.note else ""
        head = f"<thead><tr>{cells(self.head, 'th')}</tr></thead>"
        return f'<div class="wide"><table>{head}<tbody>{body}</tbody></table></div>{note}'

    @property
    def _is_text(self) -> list[bool]:
        """Whether a column is words, which stand on the left: the first one, and some others."""
        words = []
        for j in range(len(self.head)):
            starts = sum(bool(re.match(r"[A-Za-z(]", row[j])) for row in self.rows)
            longest = max((len(row[j]) for row in self.rows), default=0)
            words.append(starts > len(self.rows) / 2 or longest > 30)
        return [True, *words[1:]]


def inline(text: str) -> str:
    """Return text as HTML, with its bold parts."""
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(text))
