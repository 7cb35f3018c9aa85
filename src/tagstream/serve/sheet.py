"""Workbooks, written row by row: one sheet of texts and numbers, as Excel and LibreOffice read it.

An .xlsx file is a ZIP of XML (ECMA-376).  Cells hold their text themselves ("inlineStr"), so
nothing has to be kept until the end, and no text is ever taken for a formula.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Sequence
from typing import IO, Any
from xml.sax.saxutils import escape

__all__ = ["MAX_CELL", "write_sheet"]

MAX_CELL = 32_767  # letters; Excel reads no more
# What XML 1.0 cannot hold.
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_OPEN = "http://schemas.openxmlformats.org"
_PARTS = {
    "[Content_Types].xml": f'<Types xmlns="{_OPEN}/package/2006/content-types">'
    '<Default Extension="rels" '
    'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Override PartName="/xl/workbook.xml" ContentType="application/'
    'vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>'
    '<Override PartName="/xl/worksheets/sheet1.xml" ContentType="application/'
    'vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/></Types>',
    "_rels/.rels": f'<Relationships xmlns="{_OPEN}/package/2006/relationships">'
    f'<Relationship Id="rId1" Type="{_OPEN}/officeDocument/2006/relationships/officeDocument" '
    'Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'<workbook xmlns="{_OPEN}/spreadsheetml/2006/main" '
    f'xmlns:r="{_OPEN}/officeDocument/2006/relationships"><sheets>'
    '<sheet name="items" sheetId="1" r:id="rId1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_OPEN}/package/2006/relationships">'
    f'<Relationship Id="rId1" Type="{_OPEN}/officeDocument/2006/relationships/worksheet" '
    'Target="worksheets/sheet1.xml"/></Relationships>',
}


def write_sheet(file: IO[bytes], rows: Iterable[Sequence[Any]]) -> None:
    """Write a workbook of one sheet.  Texts are cut after :data:`MAX_CELL` letters.

    Parameters
    ----------
    file : binary file
    rows : iterable of sequences
        Texts, numbers, or None for an empty cell.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as book:
        for name, content in _PARTS.items():
            book.writestr(name, _HEAD + content)
        with book.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as sheet:
            start = f'<worksheet xmlns="{_OPEN}/spreadsheetml/2006/main"><sheetData>'
            sheet.write((_HEAD + start).encode())
            for row in rows:
                cells = "".join(map(_cell, row))
                sheet.write(f"<row>{cells}</row>".encode())
            sheet.write(b"</sheetData></worksheet>")


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "<c/>"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"<c><v>{value!r}</v></c>"
    text = escape(_FORBIDDEN.sub("", str(value))[:MAX_CELL])
    return f'<c t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'
