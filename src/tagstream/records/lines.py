"""The lines of a file, a pipe or a stream: unpacked, counted, and in bounded memory.

However small a packed file is, what comes out of it can be endless. So a line has a limit, and so
has what is read at a time: whoever asks for many long lines gets fewer of them.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import logging
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice, takewhile
from typing import IO, Any, TypeAlias

from tagstream.checks import DataError
from tagstream.records.transcode import as_lines, as_utf8, first_bytes

__all__ = ["Lines", "Source", "Tally"]

Source: TypeAlias = "str | os.PathLike[str] | IO[bytes] | IO[str] | Tally"

_MAX_LINE = 1 << 24  # bytes; a longer line is a damaged file or a decompression bomb
_MAX_CHUNK = 1 << 24  # bytes after which no further lines are read at a time
_PIECE = 1 << 18  # bytes read of a line at a time
_MAX_PIECES = 64  # read without looking at their size: 16 MiB
_LONGEST_MESSAGE = 400  # characters of an error
OTHER = "cp1252"  # what is taken for the encoding of texts that are no UTF-8

logger = logging.getLogger("tagstream.records")


class Lines:
    """The lines of a source, as bytes, with the number of the line last read.

    Opens plain, gzip and bzip2 files (told apart by their first bytes, not by their name),
    standard input (``"-"``) and file objects, and turns every way in which reading can fail into a
    `DataError`. A path is opened once, so it may be a pipe.

    Parameters
    ----------
    source : str, path, file object or Tally
    encoding : str or None
        That of the bytes.  None: UTF-16 if its mark comes first, else UTF-8.
    guess : bool
        Take a file for cp1252, the usual encoding of older Windows programs, if its first bytes
        beyond ASCII are no UTF-8.  A warning is logged.
    arrays : bool
        Take the elements of a JSON array for lines.  Then the number of a line is that of a record.

    Examples
    --------
    >>> with Lines(io.BytesIO(b"one\\ntwo\\nthree")) as lines:
    ...     lines.take(2), lines.number, lines.take(2), lines.number
    ([b'one\\n', b'two\\n'], 2, [b'three'], 3)
    """

    def __init__(
        self,
        source: Source,
        encoding: str | None = None,
        *,
        guess: bool = False,
        arrays: bool = False,
    ) -> None:
        self.number = 0
        file, self.path, self._close, _ = _open(source, encoding, arrays)
        self._guess = guess and encoding is None
        self._encoding = "utf-8"
        self._read: Callable[[], Any] = partial(file.readline, _PIECE)
        self._pieces = takewhile(bool, iter(self._read, None))
        self._failure: tuple[str, Exception | None] | None = None

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):  # a read error has been reported already
            self._close()

    def __iter__(self) -> Iterator[bytes]:
        while lines := self.take(1):
            yield lines[0]

    def take(self, n: int) -> list[bytes]:
        """Return up to ``n`` further lines with their line ends; none at the end of the source.

        They are fewer than ``n`` when they are long. What stands before a line that cannot be read
        is returned first, so that the first bad line of a file is the one that is blamed, however
        many are read at a time.
        """
        lines: list[bytes] = []
        n_bytes = 0
        while len(lines) < n and n_bytes < _MAX_CHUNK and self._failure is None:
            block = self._take_block(min(n - len(lines), _MAX_PIECES))
            if not block:
                break
            n_bytes += sum(map(len, block))
            lines += block
        if not lines and self._failure is not None:
            message, cause = self._failure
            self.number += 1
            raise self.error(message) from cause
        if lines and self.number == 0:
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        self.number += len(lines)
        return lines

    def _take_block(self, n: int) -> list[bytes]:
        """Return up to ``n`` lines, and note why the next one cannot be read."""
        pieces: list[Any] = []
        try:
            # without a loop in Python; what was read before an error stays in the list
            pieces.extend(islice(self._pieces, n))
        except (OSError, EOFError, zlib.error, UnicodeError) as error:
            self._fail(error)
        if pieces and isinstance(pieces[0], str):
            pieces = self._encode(pieces)
        if pieces and max(map(len, pieces)) >= _PIECE:
            pieces = self._join(pieces)
        return pieces

    def _fail(self, error: Exception) -> None:
        self._failure = (f"must be readable to its end, got {error}", error)

    def _encode(self, pieces: list[str]) -> list[bytes]:
        encoded: list[bytes] = []
        try:
            encoded.extend(piece.encode("utf-8") for piece in pieces)
        except UnicodeError as error:
            self._fail(error)
        return encoded

    def _join(self, pieces: list[bytes]) -> list[bytes]:
        """Return whole lines made of pieces; the last one is read to its end."""
        lines: list[bytes] = []
        line: list[bytes] = []
        for piece in pieces:
            line.append(piece)
            if piece.endswith(b"\n"):
                lines.append(b"".join(line))
                line = []
        if not line:
            return lines
        n_bytes = sum(map(len, line))
        while n_bytes <= _MAX_LINE and not line[-1].endswith(b"\n") and self._failure is None:
            more = self._take_piece()
            if not more:
                break
            line.append(more)
            n_bytes += len(more)
        if n_bytes > _MAX_LINE:
            rule = f"a line must have at most {_MAX_LINE} bytes; is this a text file?"
            self._failure = (rule, None)
        elif self._failure is None:
            lines.append(b"".join(line))
        return lines

    def _take_piece(self) -> bytes:
        try:
            piece = self._read()
            return piece.encode("utf-8") if isinstance(piece, str) else bytes(piece)
        except (OSError, EOFError, zlib.error, UnicodeError) as error:
            self._fail(error)
            return b""

    def decode(self, line: bytes, number: int | None = None) -> str:
        """Return the line as text, or say where it is not UTF-8."""
        try:
            text = line.decode(self._encoding)
        except UnicodeDecodeError as error:
            text = self._decode_otherwise(line, number, error)
        if self._guess and not text.isascii():
            self._guess = False  # the first bytes beyond ASCII have told the encoding
        if "\0" in text:
            raise self.error(
                "must be UTF-8 text, got a NUL byte; is this a text file? "
                "If it is UTF-16, say encoding='utf-16' (--encoding utf-16)",
                number,
            )
        return text

    def _decode_otherwise(self, line: bytes, number: int | None, error: UnicodeDecodeError) -> str:
        if self._guess:
            with contextlib.suppress(UnicodeDecodeError):
                text = line.decode(OTHER)
                self._encoding, place = OTHER, self.error("", number)
                logger.warning(
                    "%sis no UTF-8 and is read as %s; if letters look wrong, say encoding='…' "
                    "(--encoding …)",
                    place,
                    OTHER,
                )
                return text
        bad, known = line[error.start : error.start + 1], self._encoding.replace("utf", "UTF")
        hint = "if it is in another encoding, say encoding='…' (--encoding …)"
        raise self.error(f"must be {known} text, got the byte {bad!r}; {hint}", number) from error

    def error(self, message: str, number: int | None = None) -> DataError:
        """Return a `DataError` that names the path and the line, the last one unless told.

        A message may quote names of the file, which can be long and hold anything: it is one line
        of characters that can be printed, and not too many of them.
        """
        if len(message) > _LONGEST_MESSAGE:
            message = message[:_LONGEST_MESSAGE] + " ..."
        message = "".join(c if c.isprintable() else " " for c in message)
        number = self.number if number is None else number
        place = f"{self.path}:{number}" if number else self.path  # before the first line
        return DataError(f"{place}: {message}")


class Tally:
    """A source that counts and digests the lines it has given, so that a reader can go on later.

    Give it to a reader in the place of a path. Between two batches, `so_far` tells what the
    batches so far were made of, which is never more than the lines they needed.

    Parameters
    ----------
    source : str, path, or binary file object
        Unpacked like every source; what counts is what comes out.
    position : mapping, optional
        What `so_far` told of a source before: `matches` tells whether this one begins with it.
    encoding, arrays
        As in `Lines`.  What counts is UTF-8, and the elements of an array.

    Attributes
    ----------
    matches : bool
        Whether the lines given so far begin with those of ``position``.  The last of them may have
        got the line end that it lacked; it must not have grown.

    Examples
    --------
    >>> tally = Tally(io.BytesIO(b"one\\ntwo\\nthr"))
    >>> Lines(tally).take(2)
    [b'one\\n', b'two\\n']
    >>> tally.n_bytes
    8
    >>> again = Tally(io.BytesIO(b"one\\ntwo\\nthree\\n"), tally.so_far())
    >>> before, _, after = again.matches, Lines(again).take(2), again.matches
    >>> before, after
    (False, True)
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        position: Mapping[str, Any] | None = None,
        *,
        encoding: str | None = None,
        arrays: bool = False,
    ) -> None:
        self._file, self.name, self._close, self._packed = _open(source, encoding, arrays)
        self._position: Mapping[str, Any] = position or {"bytes": 0, "sha256": ""}
        self.matches = self._position["bytes"] == 0
        self._first: bytes | None = None
        self._unfinished: list[bytes] = []
        self._digest = hashlib.sha256()
        self.n_bytes = 0

    def readline(self, limit: int = -1) -> bytes:
        """Return the next line, or its next ``limit`` bytes."""
        if self._first is None:
            piece: bytes = self._file.readline(limit)
        else:
            cut = len(self._first) if limit < 0 else limit
            piece, self._first = self._first[:cut], self._first[cut:] or None
        self._unfinished.append(piece)
        if piece.endswith(b"\n") or len(piece) != limit:
            self._count(b"".join(self._unfinished))
            self._unfinished.clear()
        return piece

    def _count(self, line: bytes) -> None:
        left = self._position["bytes"] - self.n_bytes
        if 0 < left <= len(line) and line[left:] in (b"", b"\n", b"\r\n"):
            digest = self._digest.copy()
            digest.update(line[:left])
            self.matches = digest.hexdigest() == self._position["sha256"]
        self._digest.update(line)
        self.n_bytes += len(line)

    def first_line(self) -> bytes:
        """Return the first line, at most 16 MiB of it, without using it up."""
        if self._first is None and self.n_bytes == 0:
            self._first = self._file.readline(_MAX_LINE) or None
        return self._first or b""

    @property
    def share(self) -> float | None:
        """How much of a file was read, from 0 to 1; None of what has no known size."""
        if self._packed is None or self._packed.closed:
            return None
        size = os.fstat(self._packed.fileno()).st_size
        return min(self._packed.tell() / size, 1.0) if size and self._packed.seekable() else None

    def so_far(self) -> dict[str, Any]:
        """Return length and digest of the complete lines that were given, as plain values."""
        return {"bytes": self.n_bytes, "sha256": self._digest.hexdigest()}

    def close(self) -> None:
        """Close what was opened here."""
        self._close()


def _open(
    source: Source, encoding: str | None = None, arrays: bool = False
) -> tuple[Any, str, Callable[[], None], Any]:
    """Return an unpacked file, its name, what closes it if it was opened here, and what was."""
    if not isinstance(source, (str, os.PathLike)):
        file = _lines_of(source, encoding, arrays)
        return file, str(getattr(source, "name", "<stream>")), lambda: None, None
    if os.fspath(source) == "-":
        return _lines_of(sys.stdin.buffer, encoding, arrays), "<stdin>", lambda: None, None
    packed = open(source, "rb")  # noqa: SIM115  # closed by what is returned
    try:
        file = _lines_of(packed, encoding, arrays)
    except BaseException:
        packed.close()
        raise

    def close() -> None:
        with packed:
            file.close()

    return file, os.fspath(source), close, packed


def _lines_of(file: Any, encoding: str | None, arrays: bool) -> Any:
    """Return the file unpacked, as UTF-8 and, if it may be one, a JSON array as lines."""
    if isinstance(file, (Tally, io.TextIOBase)):
        return file  # a tally is all that already; what gives texts gives lines
    file = _unpacked(file)
    try:
        file = as_utf8(file, encoding)
        return as_lines(file) if arrays else file
    except (OSError, EOFError, zlib.error, UnicodeError) as error:
        return _Damaged(file, error)


class _Damaged:
    """A file that cannot be read from its start; this is told when its first line is read."""

    def __init__(self, file: Any, error: Exception) -> None:
        self.close, self._error = file.close, error

    def readline(self, limit: int = -1) -> bytes:
        raise self._error


def _unpacked(file: Any) -> Any:
    """Return the file, through gzip or bzip2 if its first bytes say so.

    They are looked at without using them up: the file may be a pipe.
    """
    first = b""
    with contextlib.suppress(OSError, EOFError, zlib.error):  # told when the line is read
        first = first_bytes(file, 3)
    if first[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=file)
    return bz2.BZ2File(file) if first[:3] == b"BZh" else file
