"""State, measures, health, the files of the page."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable
from importlib import resources
from importlib.abc import Traversable
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from tagstream.serve import schema
from tagstream.serve.changes import Refused
from tagstream.serve.routes.answers import origin
from tagstream.serve.routes.desk import ADMIN, OPEN, READ, Desk, answer_of
from tagstream.version import __version__

__all__ = ["add_page", "add_running"]


def add_running(app: FastAPI, desk: Desk, registry: CollectorRegistry) -> None:
    """Add the routes to an application."""
    service = desk.service

    @app.get("/v1/progress", openapi_extra=READ, tags=["running"])
    async def progress() -> Response:
        """Tell how well it suggested lately, before learning: a curve, and for each person."""
        published = service.read()
        curve = await desk.reading(service.progress.curve)
        return JSONResponse(
            {
                "n_items": published.n_items,
                "micro_f1": service.progress.f1(),
                "curve": [{"position": p, "micro_f1": f} for p, f in curve],
                "people": [
                    {"who": who or None, "n": n, "micro_f1": f}
                    for who, (n, f) in sorted(service.progress.by_person().items())
                ],
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

    @app.get("/v1/quarantine", openapi_extra=READ, tags=["running"])
    async def quarantine() -> Response:
        """List the changes on which the tagger failed, and that nobody has made anew."""
        return JSONResponse({"events": await desk.reading(lambda: _quarantined(desk))})

    @app.post("/v1/snapshot", openapi_extra=ADMIN, tags=["running"])
    async def snapshot(request: schema.SnapshotRequest | None = None) -> dict[str, int]:
        """Write a snapshot now; a start after it replays nothing before it."""
        return answer_of(await desk.change("snapshot", [], []))

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


def _quarantined(desk: Desk) -> list[dict[str, Any]]:
    found = []
    for position, why in desk.service.quarantined:
        event = desk.service.log.find(position)
        if event is None:
            continue
        told = {"position": position, "why": why, "kind": event.kind, "id": event.item}
        text = event.body.get("text")
        found.append({**told, **origin(event), **({} if text is None else {"text": text})})
    return found


def add_page(app: FastAPI) -> None:
    """Add the files of the page."""

    def serve(content: bytes, kind: str) -> Callable[[], Any]:
        async def file() -> Response:
            return Response(content, media_type=kind)

        return file

    files = _files(resources.files("tagstream.serve").joinpath("page"))
    for name, path in (("index.html", "/"), ("docs.html", "/docs")):
        app.get(path, openapi_extra=OPEN, include_in_schema=False)(serve(*files[name]))

    @app.get("/page/{file:path}", openapi_extra=OPEN, include_in_schema=False)
    async def file(file: str) -> Response:
        found = files.get(file)
        if found is None:
            raise Refused(f"the page has no file {file[:100]!r}", "", 404)
        return Response(found[0], media_type=found[1])


def _files(folder: Traversable, before: str = "") -> dict[str, tuple[bytes, str]]:
    """Return the files of the page: path to content and type."""
    files: dict[str, tuple[bytes, str]] = {}
    for file in folder.iterdir():
        if file.is_dir():
            files |= _files(file, f"{before}{file.name}/")
            continue
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        text = "; charset=utf-8" if kind.startswith("text/") else ""
        files[before + file.name] = (file.read_bytes(), kind + text)
    return files
