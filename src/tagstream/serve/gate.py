"""What every request passes: who may, how large, from where; and what every answer carries.

It is plain ASGI around the application, so that a request that is refused costs little and no body
is parsed before it is known who sends it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from tagstream.serve.door import Door
from tagstream.serve.problems import error_body
from tagstream.serve.tokens import ORIGIN, PREFIX, Token, Tokens

__all__ = ["HEADERS", "Gate", "is_loopback"]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
# Label Studio's webhooks carry no credentials, so its address may carry a token instead.
_LS_KEY = re.compile(r"^/ls/key/([^/]+)(/.*)?$")
_REQUEST_ID = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
_SAFE = ("GET", "HEAD", "OPTIONS")
_METHODS = (*_SAFE, "POST", "PUT", "PATCH", "DELETE")

logger = logging.getLogger("tagstream.serve.requests")


class _Stop(Exception):
    """The request ends here."""

    def __init__(self, status: int, message: str, field: str = "", **headers: str) -> None:
        super().__init__(message)
        self.status, self.message, self.field, self.headers = status, message, field, headers


def is_loopback(host: str) -> bool:
    """Return whether a host name means this machine only.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("[::1]"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    return host.strip("[]") in ("localhost", "::1") or bool(
        re.fullmatch(r"127\.\d{1,3}\.\d{1,3}\.\d{1,3}", host)
    )


def _pattern(path: str) -> re.Pattern[str]:
    """Return what requests for a path with parameters look like."""
    parts = re.split(r"\{[^}]*\}", path)
    return re.compile("(?s:.+)".join(re.escape(part) for part in parts) + r"\Z")


class Gate:
    """The application with limits, roles, headers, a log line and a count around it.

    Parameters
    ----------
    app : ASGI application
    tokens : Tokens
    roles : mapping of (method, path) to role
        What is not in it, the application answers with 404 or 405.
    is_open : bool
        Without tokens everyone may do everything; only for loopback.
    max_body : int
        Bytes.
    seconds : float
        The body must have come after so long.
    count : callable
        Called with method, route, status and seconds of each request.
    door : Door, optional
        Where connections come in; it is told of requests.
    streamed : mapping of (method, path) to types, optional
        Bodies of these types, or of any where it is None, may be of any size; the route reads
        them as they come.
    """

    def __init__(
        self,
        app: App,
        tokens: Tokens,
        roles: Mapping[tuple[str, str], str],
        is_open: bool,
        max_body: int,
        seconds: float,
        count: Callable[[str, str, int, float], None],
        door: Door | None = None,
        streamed: Mapping[tuple[str, str], Collection[str] | None] | None = None,
    ) -> None:
        self.streamed = streamed or {}
        self.app, self.tokens, self.roles = app, tokens, roles
        self.is_open, self.max_body, self.seconds = is_open, max_body, seconds
        self.count, self.door = count, door
        self._paths = {path for _, path in roles}
        self._with_parameters = [
            (method, _pattern(path), role) for (method, path), role in roles.items() if "{" in path
        ]
        self._words = {word for path in self._paths for word in path.split("/")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        under_way: contextlib.AbstractContextManager[bool] = contextlib.nullcontext(True)
        if self.door is not None:
            under_way = self.door.request(scope.get("client"), headers.get("x-forwarded-for"))
        with under_way as is_allowed:
            await self._handle(scope, receive, send, headers, is_allowed)

    async def _handle(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Mapping[str, str],
        is_allowed: bool,
    ) -> None:
        start = time.perf_counter()
        given = headers.get("x-request-id", "")
        is_good = _REQUEST_ID.match(given) and PREFIX not in given
        request_id = given if is_good else uuid.uuid4().hex
        status = 0
        accept = headers.get("accept", "")

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                has = {name for name, _ in message["headers"]}
                more = {**HEADERS, "x-request-id": request_id}
                message["headers"] = [
                    *message["headers"],
                    *((k.encode(), v.encode()) for k, v in more.items() if k.encode() not in has),
                ]
            await send(message)

        who = "-"
        try:
            secret = self._secret(scope, headers)
            if not is_allowed:
                raise _Stop(429, "too many requests of one address", **{"retry-after": "1"})
            role = self._role(scope["method"], scope["path"])
            who = self._admit(scope, headers, secret, role)
            is_page = headers.get("x-tagstream-source") == "page"
            ORIGIN.set(("local" if who == "-" else who, "page" if is_page else "http"))
            if role is not None and self._is_streamed(scope, headers):
                await self.app(scope, self._patient(receive), answer)
            else:
                body = b"" if role is None else await self._body(scope, headers, receive)
                await self.app(scope, _replay(body, receive), answer)
        except _Stop as stop:
            await _send_error(answer, stop, accept)
        except Exception:
            logger.exception("a request failed", extra={"request_id": request_id})
            if status == 0:
                await _send_error(
                    answer, _Stop(500, "something went wrong; it is in the log"), accept
                )
        finally:
            seconds = time.perf_counter() - start
            route = getattr(scope.get("route"), "path", None)
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self.count(method, route or "other", status, seconds)
            logger.info(
                "request",
                extra={
                    "request_id": request_id,
                    "method": method,
                    "path": self._shown(scope["path"]),
                    "status": status,
                    "ms": round(seconds * 1000, 2),
                    "who": who,
                },
            )

    def _role(self, method: str, path: str) -> str | None:
        """Return the role that a request needs; None if there is no such route."""
        found = self.roles.get((method, path))
        if found is not None:
            return found
        matching = (r for m, regex, r in self._with_parameters if m == method and regex.match(path))
        return next(matching, None)

    def _shown(self, path: str) -> str:
        """Return a path for the log: one of ours, or only those of its words that are ours.

        A mistyped address of Label Studio has a token in its path.
        """
        if path in self._paths:
            return path
        words = path[:1000].split("/")[:12]
        return "/".join(word if word in self._words else "*" for word in words)

    # ------------------------------------------------------------------ who
    def _secret(self, scope: Scope, headers: Mapping[str, str]) -> str | None:
        """Return the token of a request; one in the path is taken out of it."""
        found = _LS_KEY.match(scope["path"])
        if found:
            scope["path"] = "/ls" + (found[2] or "")
            scope["raw_path"] = scope["path"].encode()
            return found[1]
        scheme, _, value = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return value.strip()
        if scheme.lower() == "basic":
            try:
                decoded = base64.b64decode(value, validate=True).decode("utf-8", "replace")
            except (binascii.Error, ValueError):
                return ""
            return decoded.partition(":")[2]
        return None

    def _admit(
        self, scope: Scope, headers: Mapping[str, str], secret: str | None, role: str | None
    ) -> str:
        """Return who asks, or stop the request."""
        host = headers.get("host", "")
        origin = headers.get("origin")
        if origin is not None:
            try:
                is_own = urlsplit(origin).netloc == host
            except ValueError:
                raise _Stop(400, f"Origin must be an address, got {origin!r}", "Origin") from None
            if not is_own and scope["method"] not in _SAFE:
                raise _Stop(403, f"Origin must be this service, got {origin!r}", "Origin")
        if not len(self.tokens) and self.is_open:
            # A page elsewhere whose name was made to point to this machine must not get in.
            if not is_loopback(re.sub(r":\d+$", "", host)):
                raise _Stop(403, f"Host must be this machine, got {host!r}", "Host")
            return "-"
        token = self.tokens.find(secret) if secret else None
        if role not in (None, "open"):
            self._check_role(token, str(role))
        return token.name if token else "-"

    def _check_role(self, token: Token | None, role: str) -> None:
        if token is None:
            raise _Stop(
                401,
                "Authorization must be 'Bearer <token>' with a token of this service",
                "Authorization",
                **{"www-authenticate": "Bearer"},
            )
        if not token.may(role):
            raise _Stop(
                403, f"the token must have the role {role}, got {token.role}", "Authorization"
            )

    # ------------------------------------------------------------------ how much
    async def _body(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> bytes:
        if scope["method"] in _SAFE:
            return b""
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length[:20]) > self.max_body:
            raise _Stop(413, f"the body must have at most {self.max_body} bytes, got {length}")
        try:
            body = await asyncio.wait_for(self._read(receive), self.seconds)
        except (TimeoutError, asyncio.TimeoutError):
            raise _Stop(408, f"the body must come within {self.seconds:g} s") from None
        kind = _kind_of(headers)
        if body and kind != "application/json":
            raise _Stop(415, f"Content-Type must be application/json, got {kind!r}", "Content-Type")
        return body

    def _is_streamed(self, scope: Scope, headers: Mapping[str, str]) -> bool:
        kinds = self.streamed.get((scope["method"], scope["path"]), ())
        return kinds is None or _kind_of(headers) in kinds

    def _patient(self, receive: Receive) -> Receive:
        """Return a body that may be long, and each part of which must come in time."""
        is_done = False

        async def part() -> Message:
            nonlocal is_done
            if is_done:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), self.seconds)
            except (TimeoutError, asyncio.TimeoutError):
                words = f"each part of the body must come within {self.seconds:g} s"
                raise _Stop(408, words) from None
            is_done = not message.get("more_body")
            return message

        return part

    async def _read(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Stop(400, "the body must come as a whole, got a part")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.max_body:
                raise _Stop(413, f"the body must have at most {self.max_body} bytes, got more")
            if not message.get("more_body"):
                return b"".join(parts)


def _kind_of(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _replay(body: bytes, receive: Receive) -> Receive:
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _send_error(send: Send, stop: _Stop, accept: str) -> None:
    more = {"field": stop.field} if stop.field else {}
    body, kind = error_body(accept, stop.status, stop.message, more)
    fields = {"content-type": kind, "content-length": str(len(body)), **stop.headers}
    headers = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": stop.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
