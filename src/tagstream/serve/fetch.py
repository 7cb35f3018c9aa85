"""JSON from one named host, bounded in size and time.

``urllib`` follows redirects to any host, with all headers, and asks through the proxy that the
environment names.  Both can carry an access token to a stranger.  This module therefore opens the
connection itself and sends nothing to any other host.
"""

from __future__ import annotations

import codecs
import contextlib
import http.client
import io
import json
import os
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import SplitResult, urljoin, urlsplit

__all__ = ["Answer", "Host", "Limits"]

PORTS = {"http": 80, "https": 443}
REDIRECTS = (301, 302, 303, 307, 308)
MAX_REDIRECTS = 5
READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Limits:
    """What an answer may cost.

    Attributes
    ----------
    answer_bytes : int
        Size of a whole answer.
    element_bytes : int
        Size of one element of a list, and of an answer that is no list.
    seconds : float
        From the first byte sent to the last byte received, redirects included.
    silence : float
        Seconds without a single byte.
    """

    answer_bytes: int = 256 << 20
    element_bytes: int = 8 << 20
    seconds: float = 600.0
    silence: float = 60.0


@dataclass(frozen=True)
class Answer:
    """What a host said: status, headers and body."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Host:
    """A host that is asked for JSON.  Nothing is sent to any other host.

    Parameters
    ----------
    root : str
        ``http://`` or ``https://``, a name, and perhaps a port and a path.
    limits : Limits, optional

    Raises
    ------
    ValueError
        The address is not of this form.
    """

    def __init__(self, root: str, limits: Limits | None = None) -> None:
        self.root, self.limits = root.rstrip("/"), limits or Limits()
        self._origin = _origin(self.root)

    def elements(self, path: str, headers: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Yield the objects of a list, one by one, after the whole answer has come.

        The answer is kept in a temporary file, so a large one does not fill the memory.

        Raises
        ------
        OSError
            The answer is no list of objects, is not whole, is too large or takes too long.
        """
        with tempfile.SpooledTemporaryFile(max_size=self.limits.element_bytes) as kept:
            self._get(path, headers, None, kept, self.limits.answer_bytes)
            kept.seek(0)
            try:
                yield from _elements(_texts(kept), self.limits.element_bytes)
            except (ValueError, RecursionError) as error:
                raise OSError(f"{self.root}{path} must answer a list of objects: {error}") from None

    def value(self, path: str, headers: Mapping[str, str], data: bytes | None = None) -> Any:
        """Return a short answer; ``data`` is sent by POST.

        Raises
        ------
        OSError
            The answer is no JSON, is not whole, is too large or takes too long.
        """
        with tempfile.SpooledTemporaryFile(max_size=self.limits.element_bytes) as kept:
            self._get(path, headers, data, kept, self.limits.element_bytes)
            kept.seek(0)
            try:
                return json.load(kept)
            except (ValueError, RecursionError):
                raise OSError(f"{self.root}{path} must answer JSON") from None

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], data: bytes | None = None
    ) -> Answer:
        """Return an answer of any status.  Only GET follows redirects, and only on this host.

        Raises
        ------
        OSError
            The answer is not whole, is too large or takes too long.
        """
        kept = io.BytesIO()
        status, told = self._exchange(
            method, path, headers, data, kept, self.limits.answer_bytes, any_status=True
        )
        return Answer(status, told, kept.getvalue())

    # ------------------------------------------------------------------ one answer
    def _get(
        self,
        path: str,
        headers: Mapping[str, str],
        data: bytes | None,
        kept: IO[bytes],
        most: int,
    ) -> None:
        """Write an answer of status 200 to ``kept``, at most so many bytes."""
        method = "GET" if data is None else "POST"
        self._exchange(method, path, headers, data, kept, most, any_status=False)

    def _exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        data: bytes | None,
        kept: IO[bytes],
        most: int,
        *,
        any_status: bool,
    ) -> tuple[int, http.client.HTTPMessage]:
        """Write an answer to ``kept``, at most so many bytes; return its status and headers."""
        url = self.root + path
        end = time.monotonic() + self.limits.seconds
        try:
            for _ in range(MAX_REDIRECTS):
                status, told = self._ask(method, url, headers, data, kept, most, end, any_status)
                if status not in REDIRECTS or method != "GET":
                    return status, told
                url = self._same_host(url, told.get("Location", ""))
        except (http.client.HTTPException, ValueError) as error:
            # The words of such an error can quote a header, and with it the token.
            raise OSError(f"{url} gave no proper answer ({type(error).__name__})") from None
        raise OSError(f"{url} redirects more than {MAX_REDIRECTS} times")

    def _ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        data: bytes | None,
        kept: IO[bytes],
        most: int,
        end: float,
        any_status: bool,
    ) -> tuple[int, http.client.HTTPMessage]:
        """Ask once; return the status and the headers.  A redirect's body is not read."""
        late = OSError(f"{url} must answer within {self.limits.seconds:g} s")
        with self._connection(end, late) as connection:
            connection.request(method, _target(url), data, {**headers})
            with contextlib.closing(connection.getresponse()) as answer:
                if answer.status in REDIRECTS and method == "GET":
                    return answer.status, answer.headers
                if answer.status != 200 and not any_status:
                    raise OSError(f"{url} answered {answer.status}")
                n = 0
                while part := answer.read(READ_BYTES):
                    n += len(part)
                    if n > most:
                        raise OSError(f"{url} must answer at most {most:,} bytes, got more")
                    kept.write(part)
        return answer.status, answer.headers

    @contextlib.contextmanager
    def _connection(self, end: float, late: OSError) -> Iterator[http.client.HTTPConnection]:
        """Open a connection that is cut off at the end of the time, whatever it does then."""
        scheme, name, port = self._origin
        left = end - time.monotonic()
        if left <= 0:
            raise late
        silence = min(self.limits.silence, left)
        is_cut = threading.Event()
        with contextlib.ExitStack() as cleanup:
            try:
                opened = cleanup.enter_context(socket.create_connection((name, port), silence))
            except OSError as error:
                raise OSError(f"{self.root} cannot be reached: {error}") from None
            # A second descriptor of the connection: it can be shut down while TLS is reading.
            twin = cleanup.enter_context(socket.socket(fileno=os.dup(opened.fileno())))

            def cut() -> None:
                is_cut.set()
                with contextlib.suppress(OSError):
                    twin.shutdown(socket.SHUT_RDWR)

            timer = threading.Timer(max(end - time.monotonic(), 0), cut)
            timer.daemon = True
            timer.start()
            cleanup.callback(timer.join)
            cleanup.callback(timer.cancel)
            try:
                connection = http.client.HTTPConnection(name, port)
                if scheme == "https":
                    connection = http.client.HTTPSConnection(name, port)
                    opened = ssl.create_default_context().wrap_socket(opened, server_hostname=name)
                    cleanup.enter_context(opened)
                connection.sock = opened
                yield connection
            except TimeoutError:
                raise OSError(f"{self.root} was silent for {silence:g} s") from None
            except (OSError, http.client.HTTPException, ValueError):
                if is_cut.is_set():
                    raise late from None
                raise
            if is_cut.is_set():
                raise late

    def _same_host(self, url: str, location: str) -> str:
        """Return where a redirect leads, or refuse it."""
        there = urljoin(url, location)
        if _origin(there) != self._origin:
            scheme, name, port = _origin(there)
            raise OSError(
                f"{self.root} redirects to {scheme}://{name}:{port}, which was not followed; "
                "if that is the right address, give it instead"
            )
        return there


def _origin(url: str) -> tuple[str, str, int]:
    """Return scheme, name and port of an address.

    Examples
    --------
    >>> _origin("https://Label.Example/studio"), _origin("http://[::1]:8080")
    (('https', 'label.example', 443), ('http', '::1', 8080))
    """
    parts: SplitResult = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname or "@" in parts.netloc:
        raise ValueError(f"an address must be http:// or https:// and a name, got {url[:100]!r}")
    return parts.scheme, parts.hostname, parts.port or PORTS[parts.scheme]


def _target(url: str) -> str:
    """Return what a request line says of an address."""
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


# ---------------------------------------------------------------------- lists
def _texts(file: IO[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    while part := file.read(READ_BYTES):
        yield decoder.decode(part)
    yield decoder.decode(b"", final=True)


def _elements(texts: Iterator[str], most: int) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON list that comes in parts, each at most ``most`` characters.

    Examples
    --------
    >>> [*_elements(iter(['[{"id": 1}, {"i', 'd": 2}', ']']), 100)]
    [{'id': 1}, {'id': 2}]
    """
    decoder = json.JSONDecoder()
    text = _Window(texts)
    if text.next_sign() != "[":
        raise ValueError("it must begin with a bracket")
    text.skip()
    sign = text.next_sign()
    while sign != "]":
        if sign != "{":
            raise ValueError("an element must be an object")
        yield text.decode(decoder, most)
        sign = text.next_sign()
        if sign == ",":
            text.skip()
            sign = "{" if text.next_sign() == "{" else ""
        elif sign != "]":
            raise ValueError("it must end with a bracket, got a part of the list")
    text.skip()
    if text.next_sign():
        raise ValueError("nothing may come after the list")


class _Window:
    """The part of a long text that is being read."""

    def __init__(self, texts: Iterator[str]) -> None:
        self._texts, self._text, self._at = texts, "", 0

    def next_sign(self) -> str:
        """Return the next character that is no blank, and stay before it; "" at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in " \t\r\n":
                    return self._text[self._at]
                self._at += 1
            if not self._grow(1):
                return ""

    def skip(self) -> None:
        """Go past one character."""
        self._at += 1

    def decode(self, decoder: json.JSONDecoder, most: int) -> Any:
        """Return the value that begins here, and go past it."""
        try:
            value, self._at = decoder.raw_decode(self._text, self._at)
            return value
        except json.JSONDecodeError:
            # Twice as much each time, so that a long value is not parsed again and again.
            there = len(self._text) - self._at
            if there > most:
                raise ValueError(f"an element must have at most {most:,} characters") from None
            if not self._grow(there):
                raise
        return self.decode(decoder, most)

    def _grow(self, n: int) -> bool:
        """Read at least ``n`` characters more; return whether there were any."""
        parts, found = [self._text[self._at :]], 0
        while found < max(n, 1):
            part = next(self._texts, None)
            if part is None:
                break
            parts.append(part)
            found += len(part)
        self._text, self._at = "".join(parts), 0
        return found > 0
