"""Workbooks: the rows of a sheet of Excel or LibreOffice, read as those of a CSV file are."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Iterator
from typing import IO, Any

from tagstream.checks import DataError
from tagstream.records.arff_header import short
from tagstream.records.dataset import Batch
from tagstream.records.record import IdsField
from tagstream.records.tabular import Labels, batches_of_table

__all__ = ["columns_of_sheet", "iter_xlsx"]


def iter_xlsx(
    source: str | os.PathLike[str] | IO[bytes],
    *,
    labels: Labels = None,
    sep: str | None = None,
    text: str | None = None,
    ids: IdsField = None,
    sheet: str | None = None,
    chunk: int = 256,
    missing: float = math.nan,
) -> Iterator[Batch]:
    """Read a sheet of a workbook in batches; needs the extra ``tagstream[excel]``.

    The first row that is not empty holds the names of the columns.  Cells are read as they would
    stand in a CSV file: 17.0 as 17, a date as 2024-05-01, an empty cell as nothing.

    Parameters
    ----------
    source : path or binary file object
        A file, not a pipe: .xlsx, .xlsm, .xls or .ods.
    sheet : str or None
        The name of the sheet.  None: the first one.
    labels, sep, text, ids, chunk, missing
        See `iter_csv`.

    Yields
    ------
    Batch
        At most ``chunk`` records.

    Raises
    ------
    DataError
        Naming path and row, when the sheet breaks one of the rules.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    place = SheetPlace(source)
    rows = rows_of_sheet(place, source, sheet)
    yield from batches_of_table(place, rows, labels, sep, text, ids, missing, chunk)


def columns_of_sheet(source: str | os.PathLike[str], sheet: str | None = None) -> list[str]:
    """Return the names of the columns of a sheet; none if it is empty."""
    header = next(rows_of_sheet(SheetPlace(source), source, sheet), [])
    return [name.strip() for name in header]


class SheetPlace:
    """The row of a workbook that is being read."""

    def __init__(self, source: Any) -> None:
        is_path = isinstance(source, (str, os.PathLike))
        self.path = os.fspath(source) if is_path else str(getattr(source, "name", "<stream>"))
        self.number = 0

    def error(self, message: str, number: int | None = None) -> DataError:
        number = self.number if number is None else number
        shown = "".join(c if c.isprintable() else " " for c in message)
        return DataError(f"{self.path}:{number}: {shown}" if number else f"{self.path}: {shown}")


def rows_of_sheet(place: SheetPlace, source: Any, sheet: str | None) -> Iterator[list[str]]:
    """Yield the rows that are not empty, their cells as texts."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook, WorksheetNotFound
    except ImportError as error:
        raise ImportError(
            "reading workbooks needs python-calamine; install tagstream[excel]"
        ) from error
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb"):  # what cannot be opened is told as for every file
            pass
    try:
        with CalamineWorkbook.from_object(source) as book:
            names = book.sheet_names
            if sheet is not None and sheet not in names:
                shown = short(", ".join(names))
                raise place.error(f"must have a sheet {sheet!r}, got {shown}", 0)
            page = book.get_sheet_by_index(0) if sheet is None else book.get_sheet_by_name(sheet)
            for number, row in enumerate(page.iter_rows(), 1):
                place.number = number
                cells = [_as_text(cell) for cell in row]
                if any(cells):
                    yield cells
    except (CalamineError, WorksheetNotFound) as error:
        raise place.error(f"must be a workbook, got {short(str(error))}", 0) from error


def _as_text(cell: Any) -> str:
    """Return a cell as a CSV file would have it."""
    if isinstance(cell, bool):
        return "1" if cell else "0"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else repr(cell)
    if isinstance(cell, datetime.datetime):
        return cell.isoformat(" ")
    if isinstance(cell, (datetime.date, datetime.time)):
        return cell.isoformat()
    return str(cell)
