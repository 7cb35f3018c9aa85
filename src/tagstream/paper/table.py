"""A table of the report: how it is specified, and its form as Markdown and as HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

__all__ = ["Column", "Table", "each", "inline", "tabulate"]

Row = TypeVar("Row")
Key = TypeVar("Key")
Column = tuple[str, Callable[[Row], str]]  # its title, and the text of its cell in a row


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


def tabulate(rows: Iterable[Row], columns: Iterable[Column[Row]], note: str = "") -> Table:
    """Return the table of some rows, which may be anything that the columns make text of.

    Examples
    --------
    >>> columns = [("number", str), *each((2, 3), "power {}".format, lambda x, k: f"{x**k}")]
    >>> print(tabulate((3, 10), columns).markdown())
    | number | power 2 | power 3 |
    | --- | ---: | ---: |
    | 3 | 9 | 27 |
    | 10 | 100 | 1000 |
    """
    columns = tuple(columns)
    filled = (tuple(cell(row) for _, cell in columns) for row in rows)
    return Table(tuple(title for title, _ in columns), tuple(filled), note)


def each(
    keys: Iterable[Key], title: Callable[[Key], str], cell: Callable[[Row, Key], str]
) -> Iterator[Column[Row]]:
    """Yield a column for each key."""
    for key in keys:
        yield title(key), partial(_swapped, cell, key)


def _swapped(cell: Callable[[Row, Key], str], key: Key, row: Row) -> str:
    return cell(row, key)


def inline(text: str) -> str:
    """Return text as HTML, with its bold parts."""
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(text))
