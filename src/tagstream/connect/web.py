"""JSON from one host, with a token that goes nowhere else.

Connection, limits and redirects are those of :mod:`tagstream.serve.fetch`.  Here are the token, the
wait where a host asks for patience, and errors in one line that never hold the token.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from http.client import HTTPMessage
from typing import Any
from urllib.parse import urlencode, urlsplit

from tagstream.serve.fetch import Host, Limits
from tagstream.version import __version__

__all__ = ["Web", "WebError"]

TRIES = 4
LONGEST_WAIT = 60.0  # seconds; who asks for more is not waited for
BUSY = (429, 503)  # nothing was done
LONGEST_SAID = 300  # characters of what a host says about an error
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class WebError(OSError):
    """A host refused, with a status; ``said`` is the JSON of its answer, if it was JSON."""

    def __init__(self, message: str, status: int, said: Any) -> None:
        super().__init__(message)
        self.status, self.said = status, said


class Web:
    """A host that is asked with a token.

    Parameters
    ----------
    root : str
        Its address.
    token : str
        May be empty.
    scheme : str
        What stands before the token in the header.
    headers : mapping, optional
        For each request.
    limits : Limits, optional
    wait : callable
        Waits so many seconds.

    Raises
    ------
    ValueError
        The address or the token cannot be one.
    """

    def __init__(
        self,
        root: str,
        token: str = "",
        scheme: str = "Bearer",
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._token = token.strip()
        if not (self._token.isascii() and self._token.isprintable()) or " " in self._token:
            raise ValueError("a token must be letters, digits and signs without blanks")
        limits = limits or Limits(answer_bytes=64 << 20, seconds=120.0, silence=60.0)
        self.host = Host(root, limits)
        self.wait = wait
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",  # answers are read as they come
            "User-Agent": f"tagstream/{__version__}",
            **(headers or {}),
        }
        if self._token:
            self._headers["Authorization"] = f"{scheme} {self._token}"

    @property
    def root(self) -> str:
        """The address."""
        return self.host.root

    def set_header(self, name: str, value: str) -> None:
        """Send a header with each request from now on."""
        self._headers[name] = value

    @property
    def shows_token(self) -> bool:
        """Whether the token travels so that others on the way can read it."""
        parts = urlsplit(self.root)
        return bool(self._token) and parts.scheme == "http" and parts.hostname not in LOOPBACK

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Return the JSON of an answer; None where there is no body."""
        return self.ask_all(method, path, body, **query)[0]

    def ask_all(
        self, method: str, path: str, body: Any = None, **query: Any
    ) -> tuple[Any, HTTPMessage]:
        """Return the JSON of an answer, and its headers.

        Raises
        ------
        WebError
            The host refused, or asks for more patience than there is.
        OSError
            There was no whole answer.
        """
        where = path + (f"?{urlencode(query)}" if query else "")
        headers, data = self._headers, None
        if body is not None:
            headers, data = {**headers, "Content-Type": "application/json"}, _bytes(body)
        for left in reversed(range(TRIES)):
            answer = self.host.answer(method, where, headers, data)
            pause = _pause(answer.status, answer.headers)
            if pause is None or pause > LONGEST_WAIT or not left:
                break
            self.wait(pause)
        said = _value(answer.body)
        if 200 <= answer.status < 300 and (said is not None or not answer.body):
            return said, answer.headers
        raise WebError(self._told(method, path, answer.status, said), answer.status, said)

    def _told(self, method: str, path: str, status: int, said: Any) -> str:
        """Return one line about a refusal, without the token."""
        words = " ".join(_words(said).split())[:LONGEST_SAID]
        line = f"{self.root}{path} answered {status}" + (f": {words}" if words else "")
        if status == 401:
            line += "; give it a token that holds"
        elif 200 <= status < 300:
            line = f"{self.root}{path} must answer JSON to {method}"
        return line.replace(self._token, "…") if self._token else line


def _bytes(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _value(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except (ValueError, RecursionError):
        return None


def _words(said: Any) -> str:
    """Return what an error says, whatever its form.

    Examples
    --------
    >>> _words({"detail": "Invalid token."}), _words({"tags": ['Invalid pk "9"']})
    ('Invalid token.', 'Invalid pk "9"')
    """
    if isinstance(said, str):
        return said
    if isinstance(said, Mapping):
        for name in ("error", "detail", "message"):
            if isinstance(said.get(name), str):
                return str(said[name])
        said = [*said.values()]
    return next((_words(one) for one in said), "") if isinstance(said, list) else ""


def _pause(status: int, headers: HTTPMessage) -> float | None:
    """Return for how long a host asks to wait before the same is tried again."""
    said = headers.get("Retry-After", "")
    seconds = float(said) if said.isascii() and said.isdigit() else None
    if status in BUSY:
        return 1.0 if seconds is None else seconds
    # GitHub answers 403 where requests came too fast, and then says for how long.
    return seconds if status == 403 else None
