"""The stream of news."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Header, Query
from fastapi.responses import Response, StreamingResponse

from tagstream.serve.live import Live
from tagstream.serve.routes.desk import READ, Desk

__all__ = ["add_live"]


def add_live(app: FastAPI, desk: Desk, live: Live) -> None:
    """Add the route to an application."""

    @app.get(
        "/v1/events",
        openapi_extra=READ,
        tags=["running"],
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def events(
        after: int | None = Query(None, ge=0, le=1 << 62),
        last_event_id: Annotated[int | None, Header(ge=0, le=1 << 62)] = None,
    ) -> Response:
        """Tell what changes, as server-sent events: ``state``, ``items``, at last ``end``.

        ``state`` has the position of the log and some numbers, ``items`` the items that were
        changed. The stream ends after ten minutes, when the token is revoked, and when the service
        ends; then connect again, with the last ``id`` as ``Last-Event-ID`` or ``after``.
        """
        who = desk.who
        was_open = desk.is_open and not len(desk.tokens)

        def may_go_on() -> bool:
            if not len(desk.tokens):
                return desk.is_open
            return not was_open and any(token.name == who for token in desk.tokens.all)

        messages = live.open(may_go_on, desk.reading, after if after is not None else last_event_id)
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(messages, media_type="text/event-stream", headers=headers)
