"""The tags themselves: quality, policy, names."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

from tagstream.serve import schema
from tagstream.serve.changes import Refused
from tagstream.serve.routes.answers import item_now
from tagstream.serve.routes.desk import ADMIN, READ, Desk, IdempotencyKey, answer_of, one_key
from tagstream.serve.routes.knows import health_of, promises_of

__all__ = ["add_tags"]

EXAMPLES = 5


def add_tags(app: FastAPI, desk: Desk) -> None:
    """Add the routes to an application."""
    service = desk.service

    async def made(kind: str, body: dict[str, Any], key: str | None, header: str | None) -> Any:
        return answer_of(await desk.change(kind, [body], [one_key(key, header)]))

    @app.get("/v1/tags", openapi_extra=READ, tags=["tags"])
    async def tags() -> Response:
        """List the tags: how many items have each, how well each is suggested, what holds for it.

        ``precision`` and ``recall`` have an interval of 95 %; ``spark`` is the F1 of twelve equal
        parts of the last outcomes, oldest first; ``mode`` and ``promise`` say what may be done
        with the tag, ``kept`` how that was kept; ``exclusive`` lists the groups of which an item
        has one tag only.
        """
        return JSONResponse({"tags": await desk.reading(lambda: _tags(desk))})

    @app.post("/v1/tags/declare", openapi_extra=ADMIN, tags=["tags"])
    async def declare(
        request: schema.DeclareRequest, idempotency: IdempotencyKey = None
    ) -> dict[str, int]:
        """Make tags known before they have an example; texts get them by their names."""
        answer: dict[str, int] = await made("declare", request.body(), request.key, idempotency)
        return answer

    @app.post("/v1/tags/describe", openapi_extra=ADMIN, tags=["tags"])
    async def describe(
        request: schema.DescribeRequest, idempotency: IdempotencyKey = None
    ) -> dict[str, int]:
        """Say what a tag is about; it speaks for the tag like its name."""
        body = request.model_dump(exclude={"key"})
        answer: dict[str, int] = await made("describe", body, request.key, idempotency)
        return answer

    @app.post("/v1/tags/rename", openapi_extra=ADMIN, tags=["tags"])
    async def rename(
        request: schema.RenameRequest, idempotency: IdempotencyKey = None
    ) -> dict[str, int]:
        """Give a tag another name."""
        body = request.model_dump(exclude={"key"})
        answer: dict[str, int] = await made("rename", body, request.key, idempotency)
        return answer

    @app.post("/v1/tags/merge", openapi_extra=ADMIN, tags=["tags"])
    async def merge(
        request: schema.MergeRequest, idempotency: IdempotencyKey = None
    ) -> dict[str, int]:
        """Make several tags one."""
        body = request.model_dump(exclude={"key"})
        answer: dict[str, int] = await made("merge", body, request.key, idempotency)
        return answer

    @app.post("/v1/tags/merge/preview", openapi_extra=READ, tags=["tags"])
    async def preview(request: schema.MergeRequest) -> Response:
        """Tell what a merge would do: how many items have the tags, and some that have several."""
        return JSONResponse(await desk.reading(lambda: _preview(desk, request)))

    @app.post("/v1/tags/remove", openapi_extra=ADMIN, tags=["tags"])
    async def remove(
        request: schema.RemoveRequest, idempotency: IdempotencyKey = None
    ) -> dict[str, int]:
        """Remove a tag from all items."""
        body = request.model_dump(exclude={"key"})
        answer: dict[str, int] = await made("remove", body, request.key, idempotency)
        return answer

    @app.post("/v1/tags/promise", openapi_extra=ADMIN, tags=["tags"])
    async def promise(
        request: schema.PromiseRequest, idempotency: IdempotencyKey = None
    ) -> dict[str, int]:
        """Say whether a tag may be applied without asking, and with which precision."""
        body = request.model_dump(exclude={"key"})
        answer: dict[str, int] = await made("promise", body, request.key, idempotency)
        return answer

    @app.post("/v1/tags/exclusive", openapi_extra=ADMIN, tags=["tags"])
    async def exclusive(
        request: schema.ExclusiveRequest, idempotency: IdempotencyKey = None
    ) -> dict[str, int]:
        """Say that an item has at most one of some tags, or that it may have several again."""
        kind = "not_exclusive" if request.undo else "exclusive"
        body = {"tags": request.tags}
        answer: dict[str, int] = await made(kind, body, request.key, idempotency)
        return answer

    @app.get("/v1/exclusive", openapi_extra=READ, tags=["tags"])
    async def groups() -> Response:
        """List the groups of tags of which an item has at most one."""
        return JSONResponse({"groups": _groups(service.read().view)})

    @app.post("/v1/refit", openapi_extra=ADMIN, tags=["tags"])
    async def refit(
        request: schema.RefitRequest | None = None, idempotency: IdempotencyKey = None
    ) -> dict[str, int]:
        """Fit all that is stored, now instead of at its next time; good after a bulk load."""
        key = request.key if request else None
        answer: dict[str, int] = await made("refit", {}, key, idempotency)
        return answer


def _groups(view: Any) -> list[list[str]]:
    return [[*group] for group in getattr(view, "exclusive_groups", ())]


def _tags(desk: Desk) -> list[dict[str, Any]]:
    service = desk.service
    view = service.read().view
    measures, about = service.progress.by_tag(), view.descriptions
    sparks = service.progress.sparks()
    health = {one["tag"]: one for one in health_of(view)}
    promises = {one["tag"]: one for one in promises_of(view)}
    groups = _groups(view)
    nothing = {"n": 0, "precision": None, "recall": None, "f1": None}
    found = []
    for tag, n in sorted(view.counts.items(), key=lambda pair: (-pair[1], pair[0])):
        known, kept = health.get(tag, {}), promises.get(tag, {})
        found.append(
            {
                "tag": tag,
                "count": n,
                "about": about.get(tag, ""),
                "lately": measures.get(tag, nothing),
                "spark": sparks.get(tag, []),
                "decisions": known.get("decisions", 0),
                **{name: known.get(name) for name in ("precision", "recall", "trend")},
                "drifting": known.get("drifting", False),
                "mode": kept.get("mode", "suggest"),
                **{name: kept.get(name) for name in ("promise", "kept", "bar")},
                "n_kept": kept.get("n", 0),
                "why": kept.get("why", ""),
                "exclusive": [[t for t in group if t != tag] for group in groups if tag in group],
            }
        )
    return found


def _preview(desk: Desk, request: schema.MergeRequest) -> dict[str, Any]:
    service = desk.service
    known = service.read().view.tags
    for tag in request.tags:
        if tag not in known:
            raise Refused(f"tags must be known, got {tag!r}", "tags", 404)
    tags = [*dict.fromkeys([*request.tags, request.into])]
    try:
        counts, n_after, n_both, ids = service.index.overlap(tags, EXAMPLES)
    except OSError as error:
        raise Refused(f"a merge cannot be previewed now: {error}", "", 503) from error
    examples = [item_now(service, name) for name in ids]
    return {
        "into": request.into,
        "counts": counts,
        "n_after": n_after,
        "n_both": n_both,
        "examples": [one for one in examples if one is not None],
    }
