"""The pool, and which of its items to tag next."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse, Response

from tagstream.serve import schema
from tagstream.serve.changes import Refused
from tagstream.serve.routes.answers import suggestion
from tagstream.serve.routes.desk import READ, WRITE, Desk, answer_of

__all__ = ["add_choosing"]


def add_choosing(app: FastAPI, desk: Desk) -> None:
    """Add the routes to an application."""
    service = desk.service

    @app.post("/v1/pool/remove", openapi_extra=WRITE, tags=["choosing"])
    async def unpool(request: schema.ForgetRequest) -> dict[str, int]:
        """Take items out of the pool, untagged."""
        bodies = [{"id": name} for name in dict.fromkeys(request.ids)]
        return answer_of(await desk.change("unpool", bodies, [None] * len(bodies)))

    @app.get("/v1/next", openapi_extra=READ, tags=["choosing"])
    async def next_items(
        n: int = Query(10, ge=1, le=100),
        order: str = Query("mixed", max_length=schema.MAX_NAME + len("tag:")),
        tab: str = Query("", pattern=r"^[A-Za-z0-9_-]{0,64}$"),
    ) -> Response:
        """List what should be tagged next; near copies wait.

        By default a fair draw, half of the items by a hash of their id, takes turns with what the
        model is unsure of in tags that are rare. ``order`` may also be ``arrival``, ``random``,
        ``unsure``, ``sure``, or ``tag:`` and a tag. Items that somebody else is tagging now are
        left out, and items that you have skipped come last.
        """
        try:
            found = await desk.reading(lambda: _next(desk, n, order, tab))
        except ValueError as error:
            raise Refused(str(error), "order") from error
        for item in found:
            item["suggestion"] = suggestion(item["suggestion"], 20)
        return JSONResponse({"items": found, "n_pool": len(service.pool)})


def _next(desk: Desk, n: int, order: str, tab: str) -> list[dict[str, Any]]:
    """Return items to tag for whoever asks; those that this person skipped come last."""
    service, who = desk.service, desk.who
    view = service.read().view
    others = service.leases.of_others(who, tab) | service.answers.of(who)
    skipped = service.skipped.of(who)
    found: list[dict[str, Any]] = service.pool.next(view, n, others | skipped, order)
    if len(found) < n and skipped:
        there = {item["id"] for item in found}
        again = service.pool.next(view, n, others | there, order)
        found += [item for item in again if item["id"] in skipped][: n - len(found)]
    return found
