"""The service as an ASGI application: its routes, its errors, its measures."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from tagstream.serve.changes import Busy, Closed, Conflict, Refused
from tagstream.serve.door import Door
from tagstream.serve.gate import App, Gate
from tagstream.serve.live import Live
from tagstream.serve.log import LogFull
from tagstream.serve.problems import PROBLEM, error_body
from tagstream.serve.served import Served
from tagstream.serve.tokens import ROLES as TOKEN_ROLES
from tagstream.serve.tokens import Tokens
from tagstream.version import __version__

try:
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import Response
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
    from starlette.exceptions import HTTPException
except ImportError as error:
    raise ImportError(
        f"the service needs {error.name}; install it with: pip install 'tagstream[serve]'"
    ) from error

from tagstream.serve import schema
from tagstream.serve.routes.agreement import add_agreement
from tagstream.serve.routes.answers import item_now
from tagstream.serve.routes.choosing import add_choosing
from tagstream.serve.routes.data import STREAMED, add_data
from tagstream.serve.routes.desk import ROLE, Desk, Waited
from tagstream.serve.routes.items import add_items
from tagstream.serve.routes.knows import add_knows, drifting_tags
from tagstream.serve.routes.labelstudio import add_label_studio
from tagstream.serve.routes.live import add_live
from tagstream.serve.routes.people import add_people
from tagstream.serve.routes.running import add_page, add_running
from tagstream.serve.routes.tagging import add_tagging
from tagstream.serve.routes.tags import add_tags

__all__ = ["create_app", "roles_of"]

REQUEST_SECONDS = 60.0
# How long a thread that computes in Python keeps another waiting. An answer waits a dozen times,
# once for each compiled loop that it comes back from.
SWITCH_SECONDS = 0.0005
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {"type": "string"},
        "field": {"type": "string"},
        "now": {"type": ["object", "null"], "description": "409: the item as it is now."},
    },
}
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "field": {"type": "string"},
    },
}
ERROR = {
    "description": "What is wrong, and with which field.",
    "content": {"application/json": {"schema": _ERROR}, PROBLEM: {"schema": _PROBLEM}},
}
STATUSES = (400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 502, 503, 504, 507)
ERRORS: dict[int | str, dict[str, Any]] = dict.fromkeys(STATUSES, ERROR)
TAGS = {
    "tagging": "Suggest, explain, learn, undo.",
    "items": "Browse, search, change many.",
    "people": "Who tags what.",
    "tags": "The tags themselves.",
    "choosing": "What is worth tagging next.",
    "knowing": "What the model knows of stored items and tags.",
    "data": "Files in and out.",
    "running": "State, measures, health.",
    "label studio": "The backend of Label Studio.",
}


def create_app(
    service: Served,
    is_open: bool = True,
    seconds: float = REQUEST_SECONDS,
    door: Door | None = None,
) -> App:
    """Return the service as an ASGI application.

    Parameters
    ----------
    service : Served
        It is closed when the application shuts down.
    is_open : bool
        Whether everyone may do everything as long as there are no tokens; for loopback.
    seconds : float
        How long a request may take.
    door : Door, optional
        The listening socket, which is told of requests.
    """
    registry = CollectorRegistry()
    requests = Counter(
        "tagstream_requests", "Requests.", ["method", "route", "status"], registry=registry
    )
    took = Histogram(
        "tagstream_request_seconds", "Time of requests.", ["route"], buckets=BUCKETS,
        registry=registry,
    )  # fmt: skip
    _add_gauges(service, registry)

    def count(method: str, route: str, status: int, spent: float) -> None:
        known = route != "other"
        requests.labels(method if known else "other", route, str(status)).inc()
        took.labels(route).observe(spent)

    tokens = Tokens(service.folder / "tokens.json")
    live = Live(service)
    if door is not None:
        door.on_close = live.close
    app = _routes(Desk(service, tokens, is_open, seconds), live, registry)
    roles = roles_of(app)
    return Gate(app, tokens, roles, is_open, schema.MAX_BODY, seconds, count, door, STREAMED)


def roles_of(app: FastAPI) -> dict[tuple[str, str], str]:
    """Return the role that each method and path needs.

    Raises
    ------
    RuntimeError
        A route does not say its role.
    """
    roles: dict[tuple[str, str], str] = {}
    for route in app.routes:
        path, said = getattr(route, "path", ""), getattr(route, "openapi_extra", None) or {}
        if said.get(ROLE) not in ("open", *TOKEN_ROLES):
            raise RuntimeError(f"the route {path!r} must say its role")
        roles |= {(method, path): said[ROLE] for method in getattr(route, "methods", ())}
    return roles


def _add_gauges(service: Served, registry: CollectorRegistry) -> None:
    def items() -> float:
        return service.published.n_items if service.published else 0

    def guarantee(which: int) -> float:
        view = service.published.view if service.published else None
        found = getattr(view, "loss_and_bound", None)
        return math.nan if found is None else float(found[which])

    gauges: dict[str, tuple[str, Callable[[], float]]] = {
        "items": ("Items that the tagger knows.", items),
        "log_position": ("Events in the log.", lambda: service.log.position),
        "behind_events": ("Events that a replica has not read yet.", lambda: service.n_behind),
        "queue_items": ("Items that wait to be learnt.", lambda: service.n_queued),
        "pool_items": ("Items that wait for tags.", lambda: len(service.pool)),
        "learnt_items": ("Items learnt since the start.", lambda: service.n_learnt),
        "duplicate_items": ("Retries not learnt again.", lambda: service.n_duplicates),
        "snapshots": ("Snapshots written since the start.", lambda: service.n_snapshots),
        "snapshots_failed": (
            "Snapshots that could not be written since the start.",
            lambda: service.n_snapshots_failed,
        ),
        "quarantined_events": (
            "Events on which the tagger failed, and that nobody has tried again.",
            lambda: len(service.quarantined),
        ),
        "rejected_events": (
            "Events that the tagger did not take since the start.",
            lambda: service.n_rejected,
        ),
        "lost_events": ("Events that are missing from the log.", lambda: service.n_lost),
        "held": ("1 if changes are refused until somebody decides.", lambda: bool(service.held)),
        "micro_f1": (
            "Micro-F1 of the last suggestions before learning.",
            lambda: service.progress.f1() or 0.0,
        ),
        "drifting_tags": (
            "Tags that are no longer used as they were; see GET /v1/tags/health.",
            lambda: drifting_tags(service),
        ),
        "squared_loss": ("Of the metric's rounds; NaN without a bound.", lambda: guarantee(0)),
        "loss_bound": ("What the squared loss can be at most.", lambda: guarantee(1)),
    }
    for name, (text, value) in gauges.items():
        Gauge(f"tagstream_{name}", text, registry=registry).set_function(value)


def _routes(desk: Desk, live: Live, registry: CollectorRegistry) -> FastAPI:
    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        yield
        live.close()
        live.forget_loop()
        desk.close()
        await asyncio.to_thread(desk.service.close)
        desk.end()
        sys.setswitchinterval(before)

    app = FastAPI(
        title="tagstream",
        version=__version__,
        description="Suggest tags for a stream of items, and learn from every correction.",
        openapi_url=None,  # it is a route, with a role
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses=ERRORS,
        openapi_tags=[{"name": name, "description": text} for name, text in TAGS.items()],
    )
    _add_handlers(app, desk.service)
    add_tagging(app, desk)
    add_items(app, desk)
    add_people(app, desk)
    add_agreement(app, desk)
    add_tags(app, desk)
    add_choosing(app, desk)
    add_knows(app, desk)
    add_data(app, desk)
    add_live(app, desk, live)
    add_running(app, desk, registry)
    add_label_studio(app, desk)
    add_page(app)
    return app


def _add_handlers(app: FastAPI, service: Served) -> None:
    def error(
        request: Request,
        status: int,
        message: str,
        more: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        body, kind = error_body(request.headers.get("accept", ""), status, message, more)
        return Response(body, status, dict(headers or {}), kind)

    def with_field(field: str) -> dict[str, Any]:
        return {"field": field} if field else {}

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, found: RequestValidationError) -> Response:
        field, message = schema.error_of(found.errors())
        return error(request, 422, message, with_field(field))

    @app.exception_handler(Refused)
    async def refused(request: Request, found: Refused) -> Response:
        return error(request, found.status, str(found), with_field(found.field) | found.more)

    @app.exception_handler(Conflict)
    async def conflict(request: Request, found: Conflict) -> Response:
        now = await asyncio.to_thread(item_now, service, found.item)
        now = now if now is not None and now["state"] in ("tagged", "applied") else None
        return error(request, 409, str(found), with_field(found.field) | {"now": now})

    @app.exception_handler(ValueError)
    async def not_taken(request: Request, found: ValueError) -> Response:
        return error(request, 422, str(found), with_field("items"))

    @app.exception_handler(Busy)
    async def busy(request: Request, found: Busy) -> Response:
        headers = {"Retry-After": str(found.retry_after)}
        return error(request, 429, str(found), headers=headers)

    @app.exception_handler(Closed)
    async def closed(request: Request, found: Closed) -> Response:
        return error(request, 503, str(found), headers={"Retry-After": "1"})

    @app.exception_handler(LogFull)
    async def full(request: Request, found: LogFull) -> Response:
        headers = {"Retry-After": "60"}
        return error(request, 507, f"{found}; nothing was changed", headers=headers)

    @app.exception_handler(Waited)
    async def waited(request: Request, found: Waited) -> Response:
        if found.is_undone:
            headers = {"Retry-After": "1"}
            return error(request, 503, "it took too long; nothing was done", headers=headers)
        message = "it takes long, and may yet be done; a retry with the same key is safe"
        return error(request, 504, message)

    @app.exception_handler(HTTPException)
    async def http(request: Request, found: HTTPException) -> Response:
        return error(request, found.status_code, str(found.detail).lower(), headers=found.headers)
