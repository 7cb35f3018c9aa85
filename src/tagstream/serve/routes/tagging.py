"""Suggest, explain, learn, forget, undo."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from fastapi import FastAPI, Header
from fastapi.responses import JSONResponse, Response

from tagstream.serve import schema
from tagstream.serve.changes import Refused
from tagstream.serve.routes.answers import explanation, suggestion, when
from tagstream.serve.routes.desk import (
    READ,
    WRITE,
    Desk,
    IdempotencyKey,
    answer_of,
    keys_of,
    one_key,
)
from tagstream.serve.undo import find_undoable

__all__ = ["add_tagging"]

IfMatch: TypeAlias = Annotated[str | None, Header(max_length=40)]
SHOWN = 20  # ids of a change that can be undone


def add_tagging(app: FastAPI, desk: Desk) -> None:
    """Add the routes to an application."""
    service = desk.service

    @app.post("/v1/suggest", openapi_extra=READ, tags=["tagging"])
    async def suggest(request: schema.SuggestRequest) -> Response:
        """Suggest tags, with their scores, highest first."""
        view = service.read().view
        records = [item.question() for item in request.items]
        told = await desk.reading(lambda: view.suggest(records, top=request.top, next=request.next))
        return JSONResponse({"items": [suggestion(t, request.top) for t in told]})

    @app.post("/v1/explain", openapi_extra=READ, tags=["tagging"])
    async def explain(request: schema.ExplainRequest) -> Response:
        """Say why: the nearest items, with their text, and what spoke for each tag."""
        view = service.read().view

        def explained() -> list[dict[str, Any]]:
            return [explanation(view, item.question(), request.next) for item in request.items]

        return JSONResponse({"items": await desk.reading(explained)})

    @app.post("/v1/learn", openapi_extra=WRITE, tags=["tagging"])
    async def learn(
        request: schema.LearnRequest, if_match: IfMatch = None, idempotency: IdempotencyKey = None
    ) -> dict[str, int]:
        """Learn items with their tags; answered when they are on the disk and learnt.

        An item may name the ``version`` that you have seen, or the header ``If-Match`` that of a
        single item. If somebody has changed the item since, the answer is 409 with what is there
        now, and nothing is changed.
        """
        bodies = [item.body() for item in request.items]
        versions = [item.version for item in request.items]
        if if_match is not None:
            versions = _matching(if_match, versions)
        keys = keys_of([item.key for item in request.items], idempotency)
        return answer_of(await desk.change("learn", bodies, keys, versions, is_one=True))

    @app.post("/v1/forget", openapi_extra=WRITE, tags=["tagging"])
    async def forget(
        request: schema.ForgetRequest, idempotency: IdempotencyKey = None
    ) -> dict[str, int]:
        """Forget items; ids that are not known are passed over."""
        ids = [*dict.fromkeys(request.ids)]
        key = one_key(request.key, idempotency)
        keys = [None if key is None else f"{key}:{name}" for name in ids]
        versions = [request.version] * len(ids)
        done = await desk.change(
            "forget", [{"id": name} for name in ids], keys, versions, is_one=True
        )
        return answer_of(done)

    @app.get("/v1/undo", openapi_extra=READ, tags=["tagging"])
    async def undoable() -> Response:
        """Tell what an undo would take back now: your own last change."""
        return JSONResponse({"change": await desk.reading(lambda: _undoable(desk))})

    @app.post("/v1/undo", openapi_extra=WRITE, tags=["tagging"])
    async def undo(
        request: schema.UndoRequest | None = None, idempotency: IdempotencyKey = None
    ) -> Response:
        """Take back your own last change, or your change at a position.

        A call that changed many items is one change. If an item was changed since, the answer is
        409 with what is there now, and nothing is changed. Items that waited wait again.
        """
        asked = request or schema.UndoRequest()
        key = one_key(asked.key, idempotency)
        done = await desk.change("undo", [{"position": asked.position}], [key])
        return JSONResponse({**answer_of(done), "ids": [*done.ids]})


def _undoable(desk: Desk) -> dict[str, Any] | None:
    service = desk.service
    try:
        found = find_undoable(service, desk.who)
    except Refused:
        return None
    first, last = found.span
    ids = dict.fromkeys(event.item for event in service.log.between(first, last, own=False))
    items = [name for name in ids if name is not None]
    return {
        "first": first,
        "last": last,
        "kind": found.event.kind,
        "n": max(len(items), 1),
        "ids": items[:SHOWN],
        "when": when(found.event.time),
        "source": found.event.source or None,
    }


def _matching(if_match: str, versions: list[int | None]) -> list[int | None]:
    """Return the versions that a header names, for a request of a single item."""
    given = if_match.strip().removeprefix("W/").strip('"')
    if len(versions) > 1 or not given.isdigit():
        raise Refused(
            f"If-Match must be the version of a single item, got {if_match!r}", "If-Match"
        )
    return [int(given[:19])]
