"""The routes: JSON in, JSON out, and the page."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import datetime
import math
import mimetypes
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import resources
from itertools import islice
from typing import Annotated, Any, TypeAlias, TypeVar

from tagstream.serve.door import Door
from tagstream.serve.follow import Follower
from tagstream.serve.gate import App, Gate
from tagstream.serve.log import Event, LogFull
from tagstream.serve.tokens import ORIGIN, Tokens
from tagstream.serve.tokens import ROLES as TOKEN_ROLES
from tagstream.serve.writer import Busy, Change, Closed, Conflict, Done, Refused, Service, View
from tagstream.version import __version__

try:
    from fastapi import Body, FastAPI, Header, Query, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse, PlainTextResponse, Response
    from prometheus_client import (
        CONTENT_TYPE_LATEST,
        CollectorRegistry,
        Counter,
        Gauge,
        Histogram,
        generate_latest,
    )
    from starlette.exceptions import HTTPException
except ImportError as error:
    raise ImportError(
        f"the service needs {error.name}; install it with: pip install 'tagstream[serve]'"
    ) from error

from tagstream.serve import schema
from tagstream.serve.knows import add_knows, drifting_tags
from tagstream.serve.labelstudio import LabelStudio
from tagstream.serve.lists import Lists
from tagstream.serve.projects import Projects

__all__ = ["create_app", "roles_of"]

T = TypeVar("T")
Json: TypeAlias = Annotated[dict[str, Any], Body()]
IfMatch: TypeAlias = Annotated[str | None, Header(max_length=40)]

READERS = 4
# Answers that may wait for a reader before a request is turned away.
MAX_WAITING = 256
REQUEST_SECONDS = 60.0
# How long a thread that computes in Python keeps another waiting. An answer waits a dozen times,
# once for each compiled loop that it comes back from.
SWITCH_SECONDS = 0.0005
ROLE = "x-role"  # where OpenAPI keeps it
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

# What a caller must be allowed to do, said at each route.  The gate asks before a body is read.
OPEN, READ, WRITE, ADMIN = ({ROLE: role} for role in ("open", "read", "write", "admin"))
ERROR = {
    "description": "What is wrong, and with which field.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["error"],
                "properties": {"error": {"type": "string"}, "field": {"type": "string"}},
            }
        }
    },
}
STATUSES = (400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 502, 503, 504, 507)
ERRORS: dict[int | str, dict[str, Any]] = dict.fromkeys(STATUSES, ERROR)


class _Waited(Exception):
    """The answer took too long; the change may or may not be made yet."""

    def __init__(self, is_undone: bool) -> None:
        super().__init__()
        self.is_undone = is_undone


def create_app(
    service: Service,
    is_open: bool = True,
    seconds: float = REQUEST_SECONDS,
    door: Door | None = None,
) -> App:
    """Return the service as an ASGI application.

    Parameters
    ----------
    service : Service
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

    app = _routes(service, registry, seconds)
    tokens = Tokens(service.folder / "tokens.json")
    return Gate(app, tokens, roles_of(app), is_open, schema.MAX_BODY, seconds, count, door)


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


def _add_gauges(service: Service, registry: CollectorRegistry) -> None:
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


def _page() -> dict[str, tuple[bytes, str]]:
    """Return the files of the page: path to content and type."""
    files = {}
    for file in resources.files("tagstream.serve").joinpath("page").iterdir():
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        text = "; charset=utf-8" if kind.startswith("text/") else ""
        files[file.name] = (file.read_bytes(), kind + text)
    return files


def _routes(service: Service, registry: CollectorRegistry, seconds: float) -> FastAPI:
    readers = ThreadPoolExecutor(READERS, thread_name_prefix="tagstream-reader")
    lists = Lists(service)
    waiting = 0

    async def reading(function: Callable[[], T]) -> T:
        """Run in a reader thread what takes a moment."""
        nonlocal waiting
        if waiting >= MAX_WAITING:
            raise Busy(1)
        waiting += 1
        try:
            run = contextvars.copy_context().run  # who asks is known there, too
            future = asyncio.get_running_loop().run_in_executor(readers, run, function)
            return await asyncio.wait_for(future, seconds)
        except (TimeoutError, asyncio.TimeoutError):
            raise _Waited(is_undone=True) from None
        finally:
            waiting -= 1

    async def changed(future: Future[T]) -> T:
        """Wait for what another thread does."""
        done, _ = await asyncio.wait([asyncio.wrap_future(future)], timeout=seconds)
        if not done:
            raise _Waited(is_undone=future.cancel())
        return done.pop().result()

    def change(
        kind: str,
        bodies: list[dict[str, Any]],
        keys: list[str | None],
        versions: Sequence[int | None] = (),
        source: str = "",
    ) -> Any:
        made = Change(kind, bodies, keys, [*versions])
        if source:
            made.source = source
        return changed(service.submit(made))

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        yield
        lists.close()
        await asyncio.to_thread(service.close)
        readers.shutdown()
        sys.setswitchinterval(before)

    app = FastAPI(
        title="tagstream",
        version=__version__,
        description="Suggest tags for a stream of items, and learn from every correction.",
        openapi_url=None,  # it is a route below, with a role
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses=ERRORS,
        openapi_tags=[
            {"name": "tagging", "description": "Suggest, explain, learn."},
            {"name": "people", "description": "Who tags what."},
            {"name": "tags", "description": "The tags themselves."},
            {"name": "choosing", "description": "What is worth tagging next."},
            {"name": "knowing", "description": "What the model knows of stored items and tags."},
            {"name": "running", "description": "State, measures, health."},
            {"name": "label studio", "description": "The backend of Label Studio."},
        ],
    )
    _add_handlers(app, service)

    # -------------------------------------------------------------- tagging
    @app.post("/v1/suggest", openapi_extra=READ, tags=["tagging"])
    async def suggest(request: schema.SuggestRequest) -> Response:
        """Suggest tags, with their scores, highest first."""
        view = service.read().view
        records = [item.question() for item in request.items]
        told = await reading(lambda: view.suggest(records, top=request.top, next=request.next))
        return JSONResponse({"items": [_suggestion(t, request.top) for t in told]})

    @app.post("/v1/explain", openapi_extra=READ, tags=["tagging"])
    async def explain(request: schema.ExplainRequest) -> Response:
        """Say why: the nearest items, with their text, and what spoke for each tag."""
        view = service.read().view

        def explained() -> list[dict[str, Any]]:
            return [_explanation(view, item.question(), request.next) for item in request.items]

        return JSONResponse({"items": await reading(explained)})

    @app.post("/v1/learn", openapi_extra=WRITE, tags=["tagging"])
    async def learn(request: schema.LearnRequest, if_match: IfMatch = None) -> dict[str, int]:
        """Learn items with their tags; answered when they are on the disk and learnt.

        An item may name the ``version`` that you have seen, or the header ``If-Match`` that of a
        single item. If somebody has changed the item since, the answer is 409 with what is there
        now, and nothing is changed.
        """
        bodies = [item.body() for item in request.items]
        versions = [item.version for item in request.items]
        if if_match is not None:
            versions = _matching(if_match, versions)
        done = await change("learn", bodies, [item.key for item in request.items], versions)
        return _done(done)

    @app.post("/v1/forget", openapi_extra=WRITE, tags=["tagging"])
    async def forget(request: schema.ForgetRequest) -> dict[str, int]:
        """Forget items; ids that are not known are passed over."""
        ids = [*dict.fromkeys(request.ids)]
        keys = [None if request.key is None else f"{request.key}:{name}" for name in ids]
        bodies = [{"id": name} for name in ids]
        return _done(await change("forget", bodies, keys, [request.version] * len(ids)))

    @app.get("/v1/items", openapi_extra=READ, tags=["tagging"])
    async def items(
        n: int = Query(20, ge=1, le=200),
        before: int | None = Query(None, ge=0, le=1 << 62),
        tag: str | None = Query(None, max_length=schema.MAX_NAME),
    ) -> Response:
        """List the items learnt last, with their tags as they are now.

        Items of a model that the service began with are listed once they were learnt here.
        """
        found = await reading(lambda: _recent(service, n, before, tag))
        return JSONResponse({"items": found})

    @app.get("/v1/items/{id:path}/history", openapi_extra=READ, tags=["tagging"])
    async def history(id: str, n: int = Query(100, ge=1, le=1000)) -> Response:
        """List the changes of an item, oldest first: who, when, through what, and the tags."""
        found = await reading(lambda: service.log.history(id, n))
        if not found:
            raise Refused(f"id must be that of an item that was learnt here, got {id!r}", "id", 404)
        return JSONResponse({"items": [_past(event) for event in found]})

    @app.get("/v1/items/{id:path}", openapi_extra=READ, tags=["tagging"])
    async def item(id: str) -> Response:
        """Return an item as it is now, with its version and who changed it last."""
        found = await reading(lambda: _item(service, id))
        if found is None:
            raise Refused(f"id must be that of an item that was learnt here, got {id!r}", "id", 404)
        return JSONResponse(found, headers={"ETag": f'"{found["version"]}"'})

    # -------------------------------------------------------------- people
    @app.get("/v1/people", openapi_extra=READ, tags=["people"])
    async def people() -> Response:
        """List who may change items or has done so, with the number of items that each tagged."""
        found = await reading(lambda: _people(service))
        return JSONResponse({"people": found})

    @app.post("/v1/lease", openapi_extra=WRITE, tags=["people"])
    async def lease(request: schema.LeaseRequest) -> Response:
        """Say that you are tagging an item, for five minutes; again to renew it.

        Others are not offered the item meanwhile. If somebody else has it, the answer is 409.
        """
        other = service.leases.take(str(request.id), ORIGIN.get()[0], request.tab)
        if other is not None:
            raise Refused(f"the item must be free, got one that {other.who} is tagging", "id", 409)
        return JSONResponse({"seconds": service.leases.seconds})

    @app.post("/v1/lease/release", openapi_extra=WRITE, tags=["people"])
    async def release(request: schema.LeaseRequest) -> dict[str, bool]:
        """Say that you no longer tag an item."""
        return {"released": service.leases.release(str(request.id), ORIGIN.get()[0], request.tab)}

    # -------------------------------------------------------------- tags
    @app.get("/v1/tags", openapi_extra=READ, tags=["tags"])
    async def tags() -> Response:
        """List the tags: how many items have each, and how well each was suggested lately."""
        view = service.read().view

        def listed() -> list[dict[str, Any]]:
            measures, about = service.progress.by_tag(), view.descriptions
            nothing = {"n": 0, "precision": None, "recall": None, "f1": None}
            return [
                {
                    "tag": tag,
                    "count": n,
                    "about": about.get(tag, ""),
                    "lately": measures.get(tag, nothing),
                }
                for tag, n in sorted(view.counts.items(), key=lambda pair: (-pair[1], pair[0]))
            ]

        return JSONResponse({"tags": await reading(listed)})

    @app.post("/v1/tags/declare", openapi_extra=ADMIN, tags=["tags"])
    async def declare(request: schema.DeclareRequest) -> dict[str, int]:
        """Make tags known before they have an example; texts get them by their names."""
        return _done(await change("declare", [request.body()], [request.key]))

    @app.post("/v1/tags/describe", openapi_extra=ADMIN, tags=["tags"])
    async def describe(request: schema.DescribeRequest) -> dict[str, int]:
        """Say what a tag is about; it speaks for the tag like its name."""
        body = request.model_dump(exclude={"key"})
        return _done(await change("describe", [body], [request.key]))

    @app.post("/v1/tags/rename", openapi_extra=ADMIN, tags=["tags"])
    async def rename(request: schema.RenameRequest) -> dict[str, int]:
        """Give a tag another name."""
        return _done(await change("rename", [request.model_dump(exclude={"key"})], [request.key]))

    @app.post("/v1/tags/merge", openapi_extra=ADMIN, tags=["tags"])
    async def merge(request: schema.MergeRequest) -> dict[str, int]:
        """Make several tags one."""
        return _done(await change("merge", [request.model_dump(exclude={"key"})], [request.key]))

    @app.post("/v1/tags/remove", openapi_extra=ADMIN, tags=["tags"])
    async def remove(request: schema.RemoveRequest) -> dict[str, int]:
        """Remove a tag from all items."""
        return _done(await change("remove", [request.model_dump(exclude={"key"})], [request.key]))

    @app.post("/v1/refit", openapi_extra=ADMIN, tags=["tags"])
    async def refit(request: schema.RefitRequest | None = None) -> dict[str, int]:
        """Fit all that is stored, now instead of at its next time; good after a bulk load."""
        return _done(await change("refit", [{}], [request.key if request else None]))

    # -------------------------------------------------------------- choosing
    @app.post("/v1/pool", openapi_extra=WRITE, tags=["choosing"])
    async def pool(request: schema.PoolRequest) -> dict[str, int]:
        """Put items without tags in, or replace them there.

        Those that have tags, or are there already like that, are duplicates.
        """
        bodies = [{"id": item.id, "item": item.record()} for item in request.items]
        return _done(await change("pool", bodies, [None] * len(bodies)))

    @app.post("/v1/pool/remove", openapi_extra=WRITE, tags=["choosing"])
    async def unpool(request: schema.ForgetRequest) -> dict[str, int]:
        """Take items out of the pool, untagged."""
        bodies = [{"id": name} for name in dict.fromkeys(request.ids)]
        return _done(await change("unpool", bodies, [None] * len(bodies)))

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
        left out.
        """
        view = service.read().view
        others = service.leases.of_others(ORIGIN.get()[0], tab)
        try:
            found = await reading(lambda: service.pool.next(view, n, others, order))
        except ValueError as error:
            raise Refused(str(error), "order") from error
        for item in found:
            item["suggestion"] = _suggestion(item["suggestion"], 20)
        return JSONResponse({"items": found, "n_pool": len(service.pool)})

    # -------------------------------------------------------------- running
    @app.get("/v1/progress", openapi_extra=READ, tags=["running"])
    async def progress() -> Response:
        """Tell how well it suggested lately, before learning: a curve of micro-F1."""
        published = service.read()
        curve = await reading(service.progress.curve)
        return JSONResponse(
            {
                "n_items": published.n_items,
                "micro_f1": service.progress.f1(),
                "curve": [{"position": p, "micro_f1": f} for p, f in curve],
            }
        )

    @app.get("/v1/info", openapi_extra=READ, tags=["running"])
    async def info() -> dict[str, Any]:
        """Tell how many items are known, the position of the log, and versions."""
        published = service.read()
        return {
            "n_items": published.n_items,
            "n_tags": len(published.view.tags),
            "n_pool": len(service.pool),
            "n_queued": service.n_queued,
            "position": published.position,
            "model_version": f"{__version__}+{published.position}",
            "tagstream": __version__,
        }

    @app.post("/v1/snapshot", openapi_extra=ADMIN, tags=["running"])
    async def snapshot(request: schema.SnapshotRequest | None = None) -> dict[str, int]:
        """Write a snapshot now; a start after it replays nothing before it."""
        return _done(await change("snapshot", [], []))

    @app.get("/metrics", openapi_extra=READ, tags=["running"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Measures for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/health/live", openapi_extra=OPEN, tags=["running"])
    async def live() -> Response:
        """Tell that the process answers."""
        failed = service.failure is not None
        return JSONResponse({"status": "failed" if failed else "live"}, 500 if failed else 200)

    @app.get("/health/ready", openapi_extra=OPEN, tags=["running"])
    async def ready() -> Response:
        """Tell whether it takes requests: state restored, everything compiled.

        ``warnings`` says what somebody should look at.
        """
        warnings = {"warnings": service.warnings} if service.warnings else {}
        if service.ready:
            return JSONResponse({"status": "ready", **warnings})
        return JSONResponse({"status": "not ready", **warnings}, 503, {"Retry-After": "1"})

    @app.get("/openapi.json", openapi_extra=READ, include_in_schema=False)
    async def openapi() -> Response:
        return JSONResponse(app.openapi())

    add_knows(app, service, lists, reading, change, _done)
    _add_label_studio(app, service, reading, changed)
    _add_page(app)
    return app


def _add_label_studio(app: FastAPI, service: Service, reading: Any, changed: Any) -> None:
    # A replica shares the folder with its writer, and writes nothing into it.
    projects = Projects(service.folder, read_only=isinstance(service, Follower))
    backend = LabelStudio(service, projects)
    tags: list[Any] = ["label studio"]

    @app.get("/ls/health", openapi_extra=WRITE, tags=tags)
    @app.get("/ls", openapi_extra=WRITE, tags=tags, include_in_schema=False)
    @app.get("/ls/", openapi_extra=WRITE, tags=tags, include_in_schema=False)
    async def ls_health() -> dict[str, str]:
        """Tell Label Studio that the backend is up."""
        service.read()
        return {"status": "UP", "model_class": "tagstream"}

    @app.post("/ls/setup", openapi_extra=WRITE, tags=tags)
    async def ls_setup(body: Json) -> Response:
        """Take the address and the configuration of a project; tell the model's version."""
        return JSONResponse(await reading(lambda: backend.setup(body)))

    @app.post("/ls/predict", openapi_extra=WRITE, tags=tags)
    async def ls_predict(body: Json) -> Response:
        """Suggest choices for tasks."""
        return JSONResponse(await reading(lambda: backend.predict(body)))

    @app.post("/ls/webhook", openapi_extra=WRITE, tags=tags, status_code=201)
    async def ls_webhook(body: Json) -> dict[str, int]:
        """Learn, replace or forget what was annotated."""
        future = await reading(lambda: backend.webhook(body))
        return {"n": 0, "duplicates": 0} if future is None else _done(await changed(future))

    @app.post("/v1/label-studio/pull", openapi_extra=ADMIN, tags=tags)
    async def ls_pull(request: schema.PullRequest) -> dict[str, int]:
        """Fetch the annotations of a project now, and learn what was missed.

        With ``forget_missing`` also forget the items that Label Studio does not have any more.
        """
        future = backend.start_pull(str(request.project), request.forget_missing)
        return dataclasses.asdict(await changed(future))

    @app.get("/ls/versions", openapi_extra=WRITE, tags=tags)
    async def ls_versions() -> dict[str, list[str]]:
        """List the model's version."""
        return {"versions": [f"tagstream-{service.read().position}"]}


def _add_page(app: FastAPI) -> None:
    def serve(content: bytes, kind: str) -> Callable[[], Any]:
        async def file() -> Response:
            return Response(content, media_type=kind)

        return file

    for name, (content, kind) in _page().items():
        path = {"index.html": "/", "docs.html": "/docs"}.get(name, f"/page/{name}")
        app.get(path, openapi_extra=OPEN, include_in_schema=False)(serve(content, kind))


def _add_handlers(app: FastAPI, service: Service) -> None:
    def error(
        status: int, message: str, field: str = "", headers: Mapping[str, str] | None = None
    ) -> Response:
        content = {"error": message, **({"field": field} if field else {})}
        return JSONResponse(content, status, dict(headers or {}))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, found: RequestValidationError) -> Response:
        field, message = schema.error_of(found.errors())
        return error(422, message, field)

    @app.exception_handler(Refused)
    async def refused(_: Request, found: Refused) -> Response:
        return error(found.status, str(found), found.field)

    @app.exception_handler(Conflict)
    async def conflict(_: Request, found: Conflict) -> Response:
        now = await asyncio.to_thread(_item, service, found.item)
        return JSONResponse({"error": str(found), "field": found.field, "now": now}, 409)

    @app.exception_handler(ValueError)
    async def not_taken(_: Request, found: ValueError) -> Response:
        return error(422, str(found), "items")

    @app.exception_handler(Busy)
    async def busy(_: Request, found: Busy) -> Response:
        return error(429, str(found), headers={"Retry-After": str(found.retry_after)})

    @app.exception_handler(Closed)
    async def closed(_: Request, found: Closed) -> Response:
        return error(503, str(found), headers={"Retry-After": "1"})

    @app.exception_handler(LogFull)
    async def full(_: Request, found: LogFull) -> Response:
        return error(507, f"{found}; nothing was changed", headers={"Retry-After": "60"})

    @app.exception_handler(_Waited)
    async def waited(_: Request, found: _Waited) -> Response:
        if found.is_undone:
            return error(503, "it took too long; nothing was done", headers={"Retry-After": "1"})
        return error(504, "it takes long, and may yet be done; a retry with the same key is safe")

    @app.exception_handler(HTTPException)
    async def http(_: Request, found: HTTPException) -> Response:
        return error(found.status_code, str(found.detail).lower(), headers=found.headers)


# ---------------------------------------------------------------------- answers
def _done(done: Done) -> dict[str, int]:
    return {"n": done.n, "duplicates": done.duplicates, "position": done.position}


def _suggestion(told: Any, top: int) -> dict[str, Any]:
    scores = {tag: round(float(score), 6) for tag, score in islice(told.scores.items(), top)}
    auto = [*getattr(told, "auto", ())]
    said = {"tags": [*told.tags], "scores": scores, "known": bool(told.known)}
    return {**said, "auto": auto} if auto else said


def _explanation(view: View, record: dict[str, Any], as_next: bool) -> dict[str, Any]:
    told = _suggestion(view.suggest(record, next=as_next), schema.MAX_TAGS)
    if not view.n_items:
        return {**told, "neighbours": [], "parts": {}, "copy_of": None, "words": {}}
    why = view.explain(record, next=as_next)
    return {
        **told,
        "neighbours": [_neighbour(neighbour) for neighbour in why.neighbors],
        "parts": {tag: _plain(why.parts[tag]) for tag in told["tags"] if tag in why.parts},
        "copy_of": None if why.copy_of is None else _neighbour(why.copy_of),
        "words": _plain(getattr(why, "words", {})),
    }


def _neighbour(neighbour: Any) -> dict[str, Any]:
    entry = {
        "id": str(neighbour.id),
        "distance": round(float(neighbour.distance), 6),
        "tags": [*neighbour.labels],
    }
    return entry if neighbour.text is None else {**entry, "text": neighbour.text}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, (str, int, bool)) or value is None:
        return value
    return round(float(value), 6)


def _origin(event: Event) -> dict[str, str | None]:
    """Return who made a change, when, and through what."""
    return {
        "who": event.who or None,
        "when": _when(event.time),
        "source": event.source or None,
    }


def _when(seconds: float) -> str:
    when = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return when.isoformat(timespec="milliseconds")


def _item(service: Service, id: str) -> dict[str, Any] | None:
    """Return an item as it is now; None if it was not learnt here, or was forgotten."""
    event = service.log.newest(id)
    if event is None:
        return None
    by = _origin(event)
    lease = service.leases.holder(id)
    return {
        **event.body,
        "y": service.tags_now(event),
        "version": event.position,
        "by": by["who"],
        "at": by["when"],
        "source": by["source"],
        "lease": None if lease is None else lease.who,
    }


def _past(event: Event) -> dict[str, Any]:
    """Return what one change made of an item; its tags are called what they were called then."""
    tags = event.body.get("y")
    return {"position": event.position, "kind": event.kind, "tags": tags, **_origin(event)}


def _people(service: Service) -> list[dict[str, Any]]:
    """Return who has a token and who made changes."""
    roles = {token.name: token.role for token in Tokens(service.folder / "tokens.json").all}
    active = {who: (n, at) for who, n, at in service.log.people()}
    return [
        {
            "who": who,
            "role": roles.get(who),
            "n_items": int(active.get(who, (0, 0.0))[0]),
            "last": _when(active[who][1]) if who in active else None,
        }
        for who in sorted({*roles, *active})
    ]


def _matching(if_match: str, versions: list[int | None]) -> list[int | None]:
    """Return the versions that a header names, for a request of a single item."""
    given = if_match.strip().removeprefix("W/").strip('"')
    if len(versions) > 1 or not given.isdigit():
        raise Refused(
            f"If-Match must be the version of a single item, got {if_match!r}", "If-Match"
        )
    return [int(given[:19])]


def _recent(service: Service, n: int, before: int | None, tag: str | None) -> list[dict[str, Any]]:
    events: list[Event] = service.log.recent(n if tag is None else 5000, before)
    found = []
    for event in events:
        tags = service.tags_now(event)
        if tag is None or tag in tags:
            found.append({**event.body, "y": tags, "position": event.position, **_origin(event)})
        if len(found) == n:
            break
    return found
