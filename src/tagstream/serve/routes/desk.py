"""What all routes need: the service, threads that read, the way to make a change."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import Header

from tagstream.serve import schema
from tagstream.serve.changes import Busy, Change, Done, Refused
from tagstream.serve.lists import Lists
from tagstream.serve.served import Served
from tagstream.serve.tokens import ORIGIN, Tokens

__all__ = [
    "ADMIN",
    "OPEN",
    "READ",
    "ROLE",
    "WRITE",
    "Desk",
    "IdempotencyKey",
    "Waited",
    "answer_of",
    "keys_of",
    "one_key",
]

T = TypeVar("T")

READERS = 4
# Answers that may wait for a reader before a request is turned away.
MAX_WAITING = 256
ROLE = "x-role"  # where OpenAPI keeps it
# What a caller must be allowed to do, said at each route.  The gate asks before a body is read.
OPEN, READ, WRITE, ADMIN = ({ROLE: role} for role in ("open", "read", "write", "admin"))

IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=schema.MAX_NAME,
        description="The same as key in the body. Of several items, the n-th has KEY:n.",
    ),
]


class Waited(Exception):
    """The answer took too long; the change may or may not be made yet."""

    def __init__(self, is_undone: bool) -> None:
        super().__init__()
        self.is_undone = is_undone


class Desk:
    """Where routes ask and change.

    Parameters
    ----------
    service : Served
    tokens : Tokens
    is_open : bool
        Whether everyone may do everything as long as there are no tokens.
    seconds : float
        How long a request may take.
    """

    def __init__(self, service: Served, tokens: Tokens, is_open: bool, seconds: float) -> None:
        self.service, self.tokens, self.is_open, self.seconds = service, tokens, is_open, seconds
        self.lists = Lists(service)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="tagstream-reader")
        self._waiting = 0

    async def reading(self, function: Callable[[], T]) -> T:
        """Run in a reader thread what takes a moment."""
        if self._waiting >= MAX_WAITING:
            raise Busy(1)
        self._waiting += 1
        try:
            run = contextvars.copy_context().run  # who asks is known there, too
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(self._readers, run, function)
            return await asyncio.wait_for(future, self.seconds)
        except (TimeoutError, asyncio.TimeoutError):
            raise Waited(is_undone=True) from None
        finally:
            self._waiting -= 1

    async def changed(self, future: Future[T]) -> T:
        """Wait for what another thread does."""
        done, _ = await asyncio.wait([asyncio.wrap_future(future)], timeout=self.seconds)
        if not done:
            raise Waited(is_undone=future.cancel())
        return done.pop().result()

    async def change(
        self,
        kind: str,
        bodies: list[dict[str, Any]],
        keys: Sequence[str | None],
        versions: Sequence[int | None] = (),
        source: str = "",
        is_one: bool = False,
    ) -> Done:
        """Make a change, and return when it is durable and learnt."""
        made = Change(kind, bodies, [*keys], [*versions], is_one=is_one)
        if source:
            made.source = source
        return await self.changed(self.service.submit(made))

    def close(self) -> None:
        """Begin nothing more."""
        self.lists.close()

    def end(self) -> None:
        """End the threads."""
        self._readers.shutdown()

    @property
    def who(self) -> str:
        """Who asks."""
        return ORIGIN.get()[0]

    @property
    def role(self) -> str:
        """What the one who asks may do."""
        found = (token.role for token in self.tokens.all if token.name == self.who)
        return next(found, "admin" if self.is_open and not len(self.tokens) else "read")


def answer_of(done: Done) -> dict[str, int]:
    """Return the answer to a change."""
    return {"n": done.n, "duplicates": done.duplicates, "position": done.position}


def one_key(key: str | None, header: str | None) -> str | None:
    """Return the key of a change, which may come in two places."""
    if key is not None and header is not None and key != header:
        raise Refused(f"Idempotency-Key must be the key of the body, got {header!r}", "key")
    return key if header is None else _checked(header)


def keys_of(keys: Sequence[str | None], header: str | None) -> list[str | None]:
    """Return the keys of items: their own, or those that follow from a header."""
    if header is None:
        return [*keys]
    if len(keys) == 1:
        return [one_key(keys[0], header)]
    header = _checked(header)
    return [key if key is not None else f"{header}:{i}" for i, key in enumerate(keys)]


def _checked(header: str) -> str:
    if header != header.strip() or not header.isprintable():
        raise Refused("Idempotency-Key must be printable, got other signs", "Idempotency-Key")
    return header
