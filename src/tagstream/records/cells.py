"""The rows of a file as they stand there, for whoever says later what each column is."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from tagstream.checks import DataError
from tagstream.records.lines import Lines
from tagstream.records.record import parse_record
from tagstream.records.sheets import SheetPlace, rows_of_sheet
from tagstream.records.tabular import MAX_CELL, Place, csv_rows

__all__ = ["CELL_FORMATS", "FileRow", "iter_cells"]

CELL_FORMATS = ("csv", "jsonl", "json", "text", "xlsx")


@dataclass(frozen=True)
class FileRow:
    """A row of a file.

    Attributes
    ----------
    number : int
        Its line, or the number of the record in an array.
    cells : dict
        Column to what stands there; texts, but for JSON.
    problem : str
        What is wrong with the row, if something is; then it has no cells.
    """

    number: int
    cells: dict[str, Any]
    problem: str = ""


def iter_cells(source: IO[bytes], format: str) -> Iterator[FileRow]:
    """Read the rows of a file: one of :data:`CELL_FORMATS`.

    A table begins with the names of its columns.  Of plain text each line is a row with one
    column, ``text``.  Rows that are empty are passed over.

    Raises
    ------
    DataError
        The file cannot be read on.

    Examples
    --------
    >>> import io
    >>> [row.cells for row in iter_cells(io.BytesIO(b"id,body\\n7,Low tide\\n"), "csv")]
    [{'id': '7', 'body': 'Low tide'}]
    >>> [row.problem[:44] for row in iter_cells(io.BytesIO(b"{}\\n[1]\\n"), "jsonl")]
    ['', '<stream>:2: must be one JSON object per line']
    """
    if format == "xlsx":
        place = SheetPlace(source)
        yield from _table(place, rows_of_sheet(place, source, None))
        return
    with Lines(source, None, guess=True, arrays=format in ("jsonl", "json")) as lines:
        if format == "csv":
            csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL))
            yield from _table(lines, csv_rows(lines, None))
            return
        for line in lines:
            if not line.strip():
                continue
            if format == "text":
                yield FileRow(lines.number, {"text": lines.decode(line).strip()})
                continue
            try:
                yield FileRow(lines.number, parse_record(line, lines, lines.number))
            except DataError as error:
                yield FileRow(lines.number, {}, str(error))


def _table(place: Place, rows: Iterator[list[str]]) -> Iterator[FileRow]:
    header = [name.strip() for name in next(rows, [])]
    if not header:
        raise place.error("must not be empty")
    twice = next((name for i, name in enumerate(header) if name and name in header[:i]), None)
    if twice is not None:
        raise place.error(f"column names must differ, got {twice!r} twice")
    for row in rows:
        if len(row) > len(header) or (len(row) < len(header) and not isinstance(place, SheetPlace)):
            words = f"a row must have {len(header)} values, got {len(row)}"
            yield FileRow(place.number, {}, str(place.error(words)))
            continue
        cells = [*row, *[""] * (len(header) - len(row))]
        yield FileRow(place.number, dict(zip(header, cells, strict=True)))
