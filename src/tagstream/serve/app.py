"""The routes: JSON in, JSON out, and the page."""

from __future__ import annotations

import asyncio
import contextlib
import math
import mimetypes
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import resources
from typing import Annotated, Any, TypeAlias, TypeVar

from tagstream import __version__
from tagstream.serve.gate import App, Gate
from tagstream.serve.log import Event, LogFull
from tagstream.serve.tokens import Tokens
from tagstream.serve.writer import Busy, Change, Closed, Done, Refused, Service, View

try:
    from fastapi import Body, FastAPI, Query, Request
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
from tagstream.serve.labelstudio import LabelStudio

__all__ = ["create_app"]

T = TypeVar("T")
Json: TypeAlias = Annotated[dict[str, Any], Body()]

READERS = 4
# Answers that may wait for a reader before a request is turned away.
MAX_WAITING = 256
REQUEST_SECONDS = 60.0
# How long a thread that computes in Python keeps another waiting. An answer waits a dozen times,
# once for each compiled loop that it comes back from.
SWITCH_SECONDS = 0.0005
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

ROLES = {
    "/v1/suggest": "read",
    "/v1/explain": "read",
    "/v1/tags": "read",
    "/v1/info": "read",
    "/v1/next": "read",
    "/v1/items": "read",
    "/v1/progress": "read",
    "/metrics": "read",
    "/v1/learn": "write",
    "/v1/forget": "write",
    "/v1/pool": "write",
    "/v1/pool/remove": "write",
    "/ls": "write",
    "/ls/": "write",
    "/ls/health": "write",
    "/ls/setup": "write",
    "/ls/predict": "write",
    "/ls/webhook": "write",
    "/ls/versions": "write",
    "/v1/tags/rename": "admin",
    "/v1/tags/merge": "admin",
    "/v1/tags/remove": "admin",
    "/v1/snapshot": "admin",
}
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
STATUSES = (400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 503, 504, 507)
ERRORS: dict[int | str, dict[str, Any]] = dict.fromkeys(STATUSES, ERROR)


class _Waited(Exception):
    """The answer took too long; the change may or may not be made yet."""

    def __init__(self, is_undone: bool) -> None:
        super().__init__()
        self.is_undone = is_undone


def create_app(service: Service, is_open: bool = True, seconds: float = REQUEST_SECONDS) -> App:
    """Return the service as an ASGI application.

    Parameters
    ----------
    service : Service
        It is closed when the application shuts down.
    is_open : bool
        Whether everyone may do everything as long as there are no tokens; for loopback.
    seconds : float
        How long a request may take.
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
        known = method in METHODS and route != "other"
        requests.labels(method if known else "other", route, str(status)).inc()
        took.labels(route).observe(spent)

    app = _routes(service, registry, seconds)
    tokens = Tokens(service.folder / "tokens.json")
    return Gate(app, tokens, ROLES, is_open, schema.MAX_BODY, seconds, count)


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
        "micro_f1": (
            "Micro-F1 of the last suggestions before learning.",
            lambda: service.progress.f1() or 0.0,
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
    waiting = 0

    async def reading(function: Callable[[], T]) -> T:
        """Run in a reader thread what takes a moment."""
        nonlocal waiting
        if waiting >= MAX_WAITING:
            raise Busy(1)
        waiting += 1
        try:
            future = asyncio.get_running_loop().run_in_executor(readers, function)
            return await asyncio.wait_for(future, seconds)
        except (TimeoutError, asyncio.TimeoutError):
            raise _Waited(is_undone=True) from None
        finally:
            waiting -= 1

    async def changed(future: Future[Done]) -> Done:
        """Wait for the writer."""
        done, _ = await asyncio.wait([asyncio.wrap_future(future)], timeout=seconds)
        if not done:
            raise _Waited(is_undone=future.cancel())
        return done.pop().result()

    def change(kind: str, bodies: list[dict[str, Any]], keys: list[str | None]) -> Any:
        return changed(service.submit(Change(kind, bodies, keys)))

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        yield
        await asyncio.to_thread(service.close)
        readers.shutdown()
        sys.setswitchinterval(before)

    app = FastAPI(
        title="tagstream",
        version=__version__,
        description="Suggest tags for a stream of items, and learn from every correction.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=ERRORS,
        openapi_tags=[
            {"name": "tagging", "description": "Suggest, explain, learn."},
            {"name": "tags", "description": "The tags themselves."},
            {"name": "choosing", "description": "What is worth tagging next."},
            {"name": "running", "description": "State, measures, health."},
            {"name": "label studio", "description": "The backend of Label Studio."},
        ],
    )
    _add_handlers(app)

    # -------------------------------------------------------------- tagging
    @app.post("/v1/suggest", tags=["tagging"])
    async def suggest(request: schema.SuggestRequest) -> Response:
        """Suggest tags, with their scores, highest first."""
        view = service.read().view
        records = [item.record() for item in request.items]
        told = await reading(lambda: view.suggest(records, top=request.top))
        return JSONResponse({"items": [_suggestion(t, request.top) for t in told]})

    @app.post("/v1/explain", tags=["tagging"])
    async def explain(request: schema.ExplainRequest) -> Response:
        """Say why: the nearest items, with their text, and what spoke for each tag."""
        view = service.read().view

        def explained() -> list[dict[str, Any]]:
            return [_explanation(view, item.record()) for item in request.items]

        return JSONResponse({"items": await reading(explained)})

    @app.post("/v1/learn", tags=["tagging"])
    async def learn(request: schema.LearnRequest) -> dict[str, int]:
        """Learn items with their tags; answered when they are on the disk and learnt."""
        bodies = [item.body() for item in request.items]
        done = await change("learn", bodies, [item.key for item in request.items])
        return _done(done)

    @app.post("/v1/forget", tags=["tagging"])
    async def forget(request: schema.ForgetRequest) -> dict[str, int]:
        """Forget items; ids that are not known are passed over."""
        ids = [*dict.fromkeys(request.ids)]
        keys = [None if request.key is None else f"{request.key}:{name}" for name in ids]
        return _done(await change("forget", [{"id": name} for name in ids], keys))

    @app.get("/v1/items", tags=["tagging"])
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

    # -------------------------------------------------------------- tags
    @app.get("/v1/tags", tags=["tags"])
    async def tags() -> Response:
        """List the tags: how many items have each, and how well each was suggested lately."""
        view = service.read().view

        def listed() -> list[dict[str, Any]]:
            measures = service.progress.by_tag()
            nothing = {"n": 0, "precision": None, "recall": None, "f1": None}
            return [
                {"tag": tag, "count": n, "lately": measures.get(tag, nothing)}
                for tag, n in sorted(view.counts.items(), key=lambda pair: (-pair[1], pair[0]))
            ]

        return JSONResponse({"tags": await reading(listed)})

    @app.post("/v1/tags/rename", tags=["tags"])
    async def rename(request: schema.RenameRequest) -> dict[str, int]:
        """Give a tag another name."""
        return _done(await change("rename", [request.model_dump(exclude={"key"})], [request.key]))

    @app.post("/v1/tags/merge", tags=["tags"])
    async def merge(request: schema.MergeRequest) -> dict[str, int]:
        """Make several tags one."""
        return _done(await change("merge", [request.model_dump(exclude={"key"})], [request.key]))

    @app.post("/v1/tags/remove", tags=["tags"])
    async def remove(request: schema.RemoveRequest) -> dict[str, int]:
        """Remove a tag from all items."""
        return _done(await change("remove", [request.model_dump(exclude={"key"})], [request.key]))

    # -------------------------------------------------------------- choosing
    @app.post("/v1/pool", tags=["choosing"])
    async def pool(request: schema.PoolRequest) -> dict[str, int]:
        """Put items without tags in, or replace them there.

        Those that have tags, or are there already like that, are duplicates.
        """
        bodies = [{"id": item.id, "item": item.record()} for item in request.items]
        return _done(await change("pool", bodies, [None] * len(bodies)))

    @app.post("/v1/pool/remove", tags=["choosing"])
    async def unpool(request: schema.ForgetRequest) -> dict[str, int]:
        """Take items out of the pool, untagged."""
        bodies = [{"id": name} for name in dict.fromkeys(request.ids)]
        return _done(await change("unpool", bodies, [None] * len(bodies)))

    @app.get("/v1/next", tags=["choosing"])
    async def next_items(n: int = Query(10, ge=1, le=100)) -> Response:
        """List what is worth tagging next: least certain first, no near copies."""
        view = service.read().view
        found = await reading(lambda: service.pool.next(view, n))
        for item in found:
            item["suggestion"] = _suggestion(item["suggestion"], 20)
        return JSONResponse({"items": found, "n_pool": len(service.pool)})

    # -------------------------------------------------------------- running
    @app.get("/v1/progress", tags=["running"])
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

    @app.get("/v1/info", tags=["running"])
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

    @app.post("/v1/snapshot", tags=["running"])
    async def snapshot(request: schema.SnapshotRequest | None = None) -> dict[str, int]:
        """Write a snapshot now; a start after it replays nothing before it."""
        return _done(await change("snapshot", [], []))

    @app.get("/metrics", tags=["running"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Measures for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/health/live", tags=["running"])
    async def live() -> Response:
        """Tell that the process answers."""
        failed = service.failure is not None
        return JSONResponse({"status": "failed" if failed else "live"}, 500 if failed else 200)

    @app.get("/health/ready", tags=["running"])
    async def ready() -> Response:
        """Tell whether it takes requests: state restored, everything compiled."""
        if service.ready:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready"}, 503, {"Retry-After": "1"})

    _add_label_studio(app, service, reading, changed)
    _add_page(app)
    return app


def _add_label_studio(app: FastAPI, service: Service, reading: Any, changed: Any) -> None:
    backend = LabelStudio(service, service.folder / "label-studio.json")
    tags: list[Any] = ["label studio"]

    @app.get("/ls/health", tags=tags)
    @app.get("/ls", tags=tags, include_in_schema=False)
    @app.get("/ls/", tags=tags, include_in_schema=False)
    async def ls_health() -> dict[str, str]:
        """Tell Label Studio that the backend is up."""
        service.read()
        return {"status": "UP", "model_class": "tagstream"}

    @app.post("/ls/setup", tags=tags)
    async def ls_setup(body: Json) -> Response:
        """Take the address and the configuration of a project; tell the model's version."""
        return JSONResponse(await reading(lambda: backend.setup(body)))

    @app.post("/ls/predict", tags=tags)
    async def ls_predict(body: Json) -> Response:
        """Suggest choices for tasks."""
        return JSONResponse(await reading(lambda: backend.predict(body)))

    @app.post("/ls/webhook", tags=tags, status_code=201)
    async def ls_webhook(body: Json) -> dict[str, int]:
        """Learn, replace or forget what was annotated."""
        future = await reading(lambda: backend.webhook(body))
        return {"n": 0, "duplicates": 0} if future is None else _done(await changed(future))

    @app.get("/ls/versions", tags=tags)
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
        app.get(path, include_in_schema=False)(serve(content, kind))


def _add_handlers(app: FastAPI) -> None:
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
    scores = {tag: round(float(score), 6) for tag, score in [*told.scores.items()][:top]}
    return {"tags": [*told.tags], "scores": scores, "known": bool(told.known)}


def _explanation(view: View, record: dict[str, Any]) -> dict[str, Any]:
    told = _suggestion(view.suggest(record), schema.MAX_TAGS)
    if not view.n_items:
        return {**told, "neighbours": [], "parts": {}, "copy_of": None}
    why = view.explain(record)
    return {
        **told,
        "neighbours": [_neighbour(neighbour) for neighbour in why.neighbors],
        "parts": {tag: _plain(why.parts[tag]) for tag in told["tags"] if tag in why.parts},
        "copy_of": None if why.copy_of is None else _neighbour(why.copy_of),
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


def _recent(service: Service, n: int, before: int | None, tag: str | None) -> list[dict[str, Any]]:
    events: list[Event] = service.log.recent(n if tag is None else 5000, before)
    found = []
    for event in events:
        tags = service.tags_now(event)
        if tag is None or tag in tags:
            found.append({**event.body, "y": tags, "position": event.position})
        if len(found) == n:
            break
    return found
