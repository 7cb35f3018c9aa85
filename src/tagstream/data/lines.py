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
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice, takewhile
from typing import IO, Any, TypeAlias

from tagstream.checks import DataError

__all__ = ["Lines", "Source", "Tally"]

Source: TypeAlias = "str | os.PathLike[str] | IO[bytes] | IO[str] | Tally"

_MAX_LINE = 1 << 24  # bytes; a longer line is a damaged file or a decompression bomb
_MAX_CHUNK = 1 << 24  # bytes after which no further lines are read at a time
_PIECE = 1 << 18  # bytes read of a line at a time
_MAX_PIECES = 64  # read without looking at their size: 16 MiB
_LONGEST_MESSAGE = 400  # characters of an error


class Lines:
    """The lines of a source, as bytes, with the number of the line last read.

    Opens plain, gzip and bzip2 files (told apart by their first bytes, not by their name),
    standard input (``"-"``) and file objects, and turns every way in which reading can fail into a
    `DataError`. A path is opened once, so it may be a pipe.

    Parameters
    ----------
    source : str, path, file object or Tally

    Examples
    --------
    >>> with Lines(io.BytesIO(b"one\\ntwo\\nthree")) as lines:
    ...     lines.take(2), lines.number, lines.take(2), lines.number
    ([b'one\\n', b'two\\n'], 2, [b'three'], 3)
    """

    def __init__(self, source: Source) -> None:
        self.number = 0
        file, self.path, self._close = _open(source)
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
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            bad = line[error.start : error.start + 1]
            raise self.error(
                f"must be UTF-8 text, got the byte {bad!r}; save it as UTF-8", number
            ) from error
        if "\0" in text:
            raise self.error("must be UTF-8 text, got a NUL byte; is this a text file?", number)
        return text

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
    ) -> None:
        self._file, self.name, self._close = _open(source)
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

    def so_far(self) -> dict[str, Any]:
        """Return length and digest of the complete lines that were given, as plain values."""
        return {"bytes": self.n_bytes, "sha256": self._digest.hexdigest()}

    def close(self) -> None:
        """Close what was opened here."""
        self._close()


def _open(source: Source) -> tuple[Any, str, Callable[[], None]]:
    """Return an unpacked file, its name, and what closes it if it was opened here."""
    if not isinstance(source, (str, os.PathLike)):
        return _unpacked(source), str(getattr(source, "name", "<stream>")), lambda: None
    if os.fspath(source) == "-":
        return _unpacked(sys.stdin.buffer), "<stdin>", lambda: None
    packed = open(source, "rb")  # noqa: SIM115  # closed by what is returned
    file = _unpacked(packed)

    def close() -> None:
        with packed:
            file.close()

    return file, os.fspath(source), close


def _unpacked(file: Any) -> Any:
    """Return the file, through gzip or bzip2 if its first bytes say so.

    They are looked at without using them up: the file may be a pipe.
    """
    first = b""
    with contextlib.suppress(OSError, EOFError, zlib.error):  # told when the line is read
        if hasattr(file, "peek"):
            first = file.peek(3)
        elif isinstance(file, io.BytesIO):
            start = file.tell()
            first = file.read(3)
            file.seek(start)
    if first[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=file)
    return bz2.BZ2File(file) if first[:3] == b"BZh" else file
