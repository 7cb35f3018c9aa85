"""The backend of Label Studio."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, TypeAlias

from fastapi import Body, FastAPI
from fastapi.responses import JSONResponse, Response

from tagstream.serve import schema
from tagstream.serve.labelstudio import LabelStudio
from tagstream.serve.projects import Projects
from tagstream.serve.routes.desk import ADMIN, WRITE, Desk, answer_of

__all__ = ["add_label_studio"]

Json: TypeAlias = Annotated[dict[str, Any], Body()]


def add_label_studio(app: FastAPI, desk: Desk) -> None:
    """Add the routes to an application."""
    service, reading, changed = desk.service, desk.reading, desk.changed
    # A replica shares the folder with its writer, and writes nothing into it.
    projects = Projects(service.folder, read_only=not service.takes_changes)
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
        return {"n": 0, "duplicates": 0} if future is None else answer_of(await changed(future))

    @app.post("/v1/label-studio/pull", openapi_extra=ADMIN, tags=tags)
    async def ls_pull(request: schema.PullRequest) -> dict[str, int]:
        """Fetch the annotations of a project now, and learn what was missed.

        With ``forget_missing`` also forget the items that Label Studio does not have any more.
        """
        future = backend.start_pull(str(request.project), request.forget_missing)
        pulled = await changed(future)
        return dataclasses.asdict(pulled)

    @app.get("/ls/versions", openapi_extra=WRITE, tags=tags)
    async def ls_versions() -> dict[str, list[str]]:
        """List the model's version."""
        return {"versions": [f"tagstream-{service.read().position}"]}
