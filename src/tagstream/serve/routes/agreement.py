"""Whether people agree: conflicts, and agreement beyond chance."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse, Response

from tagstream.serve.agreement import alphas, ties
from tagstream.serve.routes.answers import item_now
from tagstream.serve.routes.desk import READ, Desk

__all__ = ["add_agreement"]


def add_agreement(app: FastAPI, desk: Desk) -> None:
    """Add the routes to an application."""

    @app.get("/v1/agreement", openapi_extra=READ, tags=["people"])
    async def agreement() -> Response:
        """Tell how far people agree on items that several have answered: Krippendorff's alpha.

        1 is perfect agreement, 0 what chance would give. A tag that all answers have, or none, has
        no alpha.
        """
        return JSONResponse(await desk.reading(lambda: alphas(desk.service.answers.all())))

    @app.get("/v1/conflicts", openapi_extra=READ, tags=["people"])
    async def conflicts(n: int = Query(20, ge=1, le=200)) -> Response:
        """List items on a tag of which exactly half of the answers agree.

        They wait for somebody who has not answered them yet.
        """
        return JSONResponse({"items": await desk.reading(lambda: _conflicts(desk, n))})


def _conflicts(desk: Desk, n: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, given in desk.service.answers.all().items():
        if len(found) == n:
            break
        if ties([(answer.y, answer.no) for answer in given.values()]):
            item = item_now(desk.service, name)
            found += [] if item is None else [item]
    return found
