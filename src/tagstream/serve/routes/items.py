"""Items: browse, search, one item, its history, many items at once."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse, Response

from tagstream.serve import index, schema
from tagstream.serve.changes import Refused
from tagstream.serve.routes.answers import item_now, past
from tagstream.serve.routes.desk import READ, WRITE, Desk, IdempotencyKey, answer_of, one_key

__all__ = ["OneName", "State", "When", "Words", "add_items", "query_of"]

State: TypeAlias = Literal["", "tagged", "applied", "waiting", "began", "untagged", "all"]
Words: TypeAlias = Annotated[
    str,
    Query(
        max_length=1000,
        description='Words that an item has, all of them; a "phrase" in quotes. The last word may '
        "be the beginning of one.",
    ),
]
OneName: TypeAlias = Annotated[str | None, Query(max_length=schema.MAX_NAME)]
When: TypeAlias = Annotated[
    str | None, Query(max_length=40, description="A date or a time, ISO 8601.")
]


def add_items(app: FastAPI, desk: Desk) -> None:
    """Add the routes to an application."""
    service = desk.service

    @app.get("/v1/items", openapi_extra=READ, tags=["items"])
    async def items(
        n: int = Query(20, ge=1, le=200),
        q: Words = "",
        tag: OneName = None,
        without_tag: OneName = None,
        who: OneName = None,
        source: OneName = None,
        since: When = None,
        until: When = None,
        state: State = "",
        before: int | None = Query(None, ge=0, le=1 << 62),
        cursor: str | None = Query(None, max_length=50),
    ) -> Response:
        """List items, those that were changed last first, with their tags as they are now.

        Without ``state`` items that wait for tags are left out. Items of the model that the
        service began with come last. ``next`` is the ``cursor`` of the items that follow.
        """
        query = query_of(q, tag, without_tag, who, source, since, until, state, before)
        after = None if cursor is None else _place(cursor)
        found = await desk.reading(lambda: _found(desk, query, n, after))
        return JSONResponse(found)

    @app.post("/v1/items/tags", openapi_extra=WRITE, tags=["items"])
    async def retag(request: schema.RetagRequest, idempotency: IdempotencyKey = None) -> Response:
        """Give tags to many stored items and take others from them, and leave the rest as it is.

        It is one change, which can be undone as one. What others change meanwhile stays.
        """
        key = one_key(request.key, idempotency)
        ids = [*dict.fromkeys(request.ids)]
        bodies = [{"id": name, "add": request.add, "remove": request.remove} for name in ids]
        keys = [None if key is None else f"{key}:{name}" for name in ids]
        done = await desk.change("retag", bodies, keys, is_one=True)
        return JSONResponse({**answer_of(done), "missing": [*done.missing]})

    @app.get("/v1/items/{id:path}/history", openapi_extra=READ, tags=["items"])
    async def history(id: str, n: int = Query(100, ge=1, le=1000)) -> Response:
        """List the changes of an item, oldest first: who, when, through what, and the tags."""
        found = await desk.reading(lambda: service.log.history(id, n))
        if not found:
            raise Refused(f"id must be that of an item that was learnt here, got {id!r}", "id", 404)
        return JSONResponse({"items": [past(event) for event in found]})

    @app.get("/v1/items/{id:path}", openapi_extra=READ, tags=["items"])
    async def item(id: str) -> Response:
        """Return an item as it is now, with its version and who changed it last."""
        found = await desk.reading(lambda: item_now(service, id))
        if found is None:
            raise Refused(f"id must be that of an item that is known, got {id!r}", "id", 404)
        return JSONResponse(found, headers={"ETag": f'"{found["version"]}"'})


def query_of(
    words: str,
    tag: str | None,
    without_tag: str | None,
    who: str | None,
    source: str | None,
    since: str | None,
    until: str | None,
    state: str,
    before: int | None = None,
) -> index.Query:
    """Return what is asked for.

    Raises
    ------
    Refused
        A date is none.
    """
    return index.Query(
        words, tag, without_tag, who, source,
        _seconds(since, "since"), _seconds(until, "until"), before, state,
    )  # fmt: skip


def _seconds(given: str | None, field: str) -> float | None:
    if given is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(given.replace("Z", "+00:00"))
    except ValueError:
        raise Refused(f"{field} must be a date or a time, got {given!r}", field) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return moment.timestamp()


def _place(cursor: str) -> tuple[int, int]:
    rank, _, number = cursor.partition("-")
    if not (rank.isdecimal() and number.isdecimal() and len(cursor) < 40):
        raise Refused(f"cursor must be one that was given, got {cursor!r}", "cursor")
    return min(int(rank), 1 << 62), min(int(number), 1 << 62)


def _found(desk: Desk, query: index.Query, n: int, after: tuple[int, int] | None) -> dict[str, Any]:
    try:
        found = desk.service.index.find(query, n, after)
    except OSError as error:
        raise Refused(f"items cannot be listed now: {error}", "", 503) from error
    items = (item_now(desk.service, name) for name in found.ids)
    return {
        "items": [one for one in items if one is not None],
        "next": None if found.next is None else "{}-{}".format(*found.next),
        "n_found": found.n,
        "capped": found.capped,
    }
