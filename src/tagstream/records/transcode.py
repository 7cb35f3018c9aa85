"""Bytes of any encoding as UTF-8, and a JSON array as lines: what comes before the lines of a file.

Both are files to read from, with ``readline`` and ``peek``.  They take no more from their source
than they need for the next line, so the source may be a pipe.
"""

from __future__ import annotations

import codecs
import json
from typing import Any

__all__ = ["ArrayLines", "Utf8", "as_lines", "as_utf8", "check_encoding", "first_bytes"]

MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
PIECE = 1 << 18  # bytes that are read at a time
LONGEST_RECORD = 1 << 24  # characters of one element of an array; a longer one is refused as a line
BLANKS = " \t\r\n\ufeff"


def check_encoding(encoding: str) -> str:
    """Return the name of an encoding of texts, or refuse it.

    Examples
    --------
    >>> check_encoding("cp1252")
    'cp1252'
    """
    try:
        "".encode(encoding)
    except LookupError:
        raise ValueError(
            f"encoding must be one that Python knows, such as cp1252 or utf-16, got {encoding!r}"
        ) from None
    return encoding


def first_bytes(file: Any, n: int) -> bytes:
    """Return some of the next bytes of a binary file without using them up; none if it cannot."""
    if hasattr(file, "peek"):
        return bytes(file.peek(n)[:n])
    if hasattr(file, "getbuffer"):  # bytes in memory
        start = file.tell()
        found = bytes(file.read(n))
        file.seek(start)
        return found
    return b""


def as_utf8(file: Any, encoding: str | None) -> Any:
    """Return the file through a decoder: of ``encoding``, or of UTF-16 if its mark comes first."""
    if encoding is None:
        encoding = MARKS.get(first_bytes(file, 2))
    return file if encoding is None else Utf8(file, check_encoding(encoding))


def as_lines(file: Any) -> Any:
    """Return the file, or if a JSON array begins in it, one that has a line for each element."""
    begins = first_bytes(file, 64).decode("utf-8", "replace").lstrip(BLANKS)
    return ArrayLines(file) if begins.startswith("[") else file


class Utf8:
    """A binary file of another encoding, read as UTF-8.

    Examples
    --------
    >>> import io
    >>> Utf8(io.BytesIO("é\\n".encode("utf-16")), "utf-16").readline().decode()
    'é\\n'
    """

    def __init__(self, file: Any, encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._bytes = b""
        self._error: UnicodeDecodeError | None = None
        self._ended = False

    def peek(self, n: int) -> bytes:
        """Return up to ``n`` bytes without using them up."""
        while not self._bytes and self._read():
            pass
        return self._bytes[:n]

    def readline(self, limit: int = -1) -> bytes:
        """Return the next line, or its next ``limit`` bytes."""
        looked = 0
        while (end := self._bytes.find(b"\n", looked) + 1) == 0:
            looked = len(self._bytes)
            if 0 <= limit <= looked or not self._read():
                end = len(self._bytes)
                break
        if self._error is not None and not self._bytes[:end].endswith(b"\n"):
            raise self._error  # half of a line is none
        if 0 <= limit < end:
            end = limit
        line, self._bytes = self._bytes[:end], self._bytes[end:]
        return line

    def _read(self) -> bool:
        """Read some more; an error waits until all before it was handed out."""
        if self._ended:
            return False
        more = self._file.read1(PIECE)
        self._ended = not more
        try:
            text = self._decoder.decode(more, final=self._ended)
        except UnicodeDecodeError as error:
            self._error, self._ended = error, True
            text = self._decoder.decode(error.object[len(error.object) - len(more) : error.start])
        self._bytes += text.encode()
        return not self._ended

    def close(self) -> None:
        """Close the file below."""
        self._file.close()


class ArrayLines:
    """The elements of a JSON array, one per line, each as it stands in the file.

    What is no element is handed out as a line too: whoever reads the line says what is wrong.

    Examples
    --------
    >>> import io
    >>> lines = ArrayLines(io.BytesIO(b'[{"a": 1},\\n {"a":\\n2}]'))
    >>> lines.readline(), lines.readline(), lines.readline()
    (b'{"a": 1}\\n', b'{"a": 2}\\n', b'')
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        # what is no UTF-8 goes through as it is
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._text, self._at = "", 0
        self._ended = False
        self._expects = "["  # what must come before the next element
        self._line = b""

    def readline(self, limit: int = -1) -> bytes:
        """Return the next element and a line end, or its next ``limit`` bytes."""
        if not self._line:
            element = self._next()
            if element:
                plain = element.replace("\n", " ").replace("\r", " ")
                self._line = plain.encode("utf-8", "surrogateescape") + b"\n"
        cut = len(self._line) if limit < 0 else limit
        piece, self._line = self._line[:cut], self._line[cut:]
        return piece

    def _next(self) -> str:
        """Return the next element as it is written; nothing after the last one."""
        found = self._skip()
        if self._expects == "":  # the array has ended
            return self._rest() if found else ""
        if found == "]" and self._expects != "[":
            self._at, self._expects = self._at + 1, ""
            return self._next()
        if found == "":
            raise EOFError("an array that does not end; is the file whole?")
        if found != self._expects:
            return self._rest()
        self._at += 1
        if self._skip() == "]":
            if self._expects == "[":
                self._at, self._expects = self._at + 1, ""
                return self._next()
            return self._rest()
        self._expects = ","
        return self._element()

    def _element(self) -> str:
        # Twice as much each time: a long element is scanned a few times, not many.
        while (end := self._end_of_element()) is None:
            if len(self._text) - self._at > LONGEST_RECORD or not self._read_twice():
                return self._rest()
        element, self._at = self._text[self._at : end], end
        return element

    def _end_of_element(self) -> int | None:
        """Return where the element ends that begins here; None if it is not whole."""
        try:
            return json.JSONDecoder().raw_decode(self._text, self._at)[1]
        except (ValueError, RecursionError):
            return None

    def _skip(self) -> str:
        """Pass over blanks and return what comes next."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in BLANKS:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read():
                return ""

    def _rest(self) -> str:
        rest, self._text, self._at, self._expects = self._text[self._at :], "", 0, ""
        return rest

    def _read_twice(self) -> bool:
        wanted, has_more = 2 * (len(self._text) - self._at), True
        while has_more and len(self._text) - self._at <= wanted:
            has_more = self._read()
        return has_more or len(self._text) - self._at > wanted // 2

    def _read(self) -> bool:
        if self._ended:
            return False
        more = self._file.readline(PIECE)
        self._ended = not more
        self._text = self._text[self._at :] + self._decoder.decode(more, final=self._ended)
        self._at = 0
        return not self._ended

    def close(self) -> None:
        """Close the file below."""
        self._file.close()
