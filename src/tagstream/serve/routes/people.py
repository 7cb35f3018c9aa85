"""People: who may do what, who tags which item now."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

from tagstream.serve import schema
from tagstream.serve.changes import Refused
from tagstream.serve.routes.answers import when
from tagstream.serve.routes.desk import ADMIN, READ, WRITE, Desk

__all__ = ["add_people"]


def add_people(app: FastAPI, desk: Desk) -> None:
    """Add the routes to an application."""
    service, tokens = desk.service, desk.tokens

    @app.get("/v1/me", openapi_extra=READ, tags=["people"])
    async def me() -> Response:
        """Tell who you are to the service, and what you may do."""
        is_open = desk.is_open and not len(tokens)
        told = {"who": desk.who, "role": desk.role, "open": is_open, "agree": service.agree}
        return JSONResponse(told)

    @app.get("/v1/people", openapi_extra=READ, tags=["people"])
    async def people() -> Response:
        """List who may change items or has done so, with the number of items that each tagged."""
        return JSONResponse({"people": await desk.reading(lambda: _people(desk))})

    @app.get("/v1/tokens", openapi_extra=ADMIN, tags=["people"])
    async def listed() -> Response:
        """List the tokens, without their secrets."""
        made = [{"name": t.name, "role": t.role, "made": when(t.made)} for t in tokens.all]
        return JSONResponse({"tokens": made})

    @app.post("/v1/tokens", openapi_extra=ADMIN, tags=["people"], status_code=201)
    async def create(request: schema.TokenRequest) -> Response:
        """Make a token for a person. It is shown this once.

        The first token must be an admin's: from then on the service is closed to everybody who has
        none.
        """
        secret = await desk.reading(lambda: _create(desk, request))
        told = {"name": request.name, "role": request.role, "token": secret}
        return JSONResponse(told, 201)

    @app.post("/v1/tokens/revoke", openapi_extra=ADMIN, tags=["people"])
    async def revoke(request: schema.RevokeRequest) -> Response:
        """Take a token back, at once.

        The last admin's token stays: only the command ``tagstream token revoke`` takes it back.
        """
        await desk.reading(lambda: _revoke(desk, request.name))
        return JSONResponse({"revoked": True})

    @app.post("/v1/lease", openapi_extra=WRITE, tags=["people"])
    async def lease(request: schema.LeaseRequest) -> Response:
        """Say that you are tagging an item, for five minutes; again to renew it.

        Others are not offered the item meanwhile. If somebody else has it, the answer is 409.
        """
        other = service.leases.take(str(request.id), desk.who, request.tab)
        if other is not None:
            raise Refused(f"the item must be free, got one that {other.who} is tagging", "id", 409)
        return JSONResponse({"seconds": service.leases.seconds})

    @app.post("/v1/lease/release", openapi_extra=WRITE, tags=["people"])
    async def release(request: schema.LeaseRequest) -> dict[str, bool]:
        """Say that you no longer tag an item."""
        return {"released": service.leases.release(str(request.id), desk.who, request.tab)}

    @app.post("/v1/skip", openapi_extra=WRITE, tags=["people"])
    async def skip(request: schema.LeaseRequest) -> dict[str, bool]:
        """Leave an item to others: its lease ends, and all other items come first for you."""
        service.skipped.add(desk.who, str(request.id))
        return {"released": service.leases.release(str(request.id), desk.who, request.tab)}


def _people(desk: Desk) -> list[dict[str, Any]]:
    """Return who has a token and who made changes."""
    roles = {token.name: token.role for token in desk.tokens.all}
    active = {who: (n, at) for who, n, at in desk.service.log.people()}
    return [
        {
            "who": who,
            "role": roles.get(who),
            "n_items": int(active.get(who, (0, 0.0))[0]),
            "last": when(active[who][1]) if who in active else None,
        }
        for who in sorted({*roles, *active})
    ]


def _create(desk: Desk, request: schema.TokenRequest) -> str:
    with desk.tokens.lock:
        if not len(desk.tokens) and request.role != "admin":
            raise Refused("role must be admin for the first token, got another", "role", 409)
        if any(token.name == request.name for token in desk.tokens.all):
            raise Refused(f"name must be new, got {request.name!r}", "name", 409)
        return desk.tokens.add(request.name, request.role)


def _revoke(desk: Desk, name: str) -> None:
    with desk.tokens.lock:
        found = [token for token in desk.tokens.all if token.name == name]
        if not found:
            raise Refused(f"name must be that of a token, got {name!r}", "name", 404)
        admins = [token for token in desk.tokens.all if token.role == "admin"]
        if admins == found:
            raise Refused("the last admin's token must stay, got it", "name", 409)
        desk.tokens.revoke(name)
