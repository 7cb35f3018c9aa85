"""The routes of what the model knows: review, candidates, exclusive tags."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse, Response

from tagstream.serve import schema
from tagstream.serve.changes import Refused
from tagstream.serve.lists import LONGEST
from tagstream.serve.routes.desk import READ, WRITE, Desk, IdempotencyKey, answer_of, one_key
from tagstream.serve.served import Served

__all__ = ["add_knows", "drifting", "drifting_tags", "health_of", "promises_of"]

N = Query(20, ge=1, le=LONGEST)
TAG = Query(max_length=schema.MAX_NAME)


def add_knows(app: FastAPI, desk: Desk) -> None:
    """Add the routes to an application."""
    service, lists, reading = desk.service, desk.lists, desk.reading

    @app.get("/v1/review", openapi_extra=READ, tags=["knowing"])
    async def review(n: int = N) -> Response:
        """List stored items whose tags look wrong, with what should go and what is missing.

        The list is made in the background.  ``position`` says of which state, ``complete`` whether
        there is one yet.
        """

        def made(view: Any) -> list[dict[str, Any]]:
            return [_entry(doubt) for doubt in _can(view, "review")(LONGEST)]

        return JSONResponse(await reading(lambda: lists.ask(("review",), made, n)))

    @app.get("/v1/candidates", openapi_extra=READ, tags=["knowing"])
    async def candidates(tag: str = TAG, n: int = N) -> Response:
        """List stored items without a tag that most likely should have it.

        The list is made in the background, as that of ``/v1/review``.
        """
        if tag not in service.read().view.tags:
            raise Refused(f"tag must be known, got {tag!r}", "tag", 404)

        def made(view: Any) -> list[dict[str, Any]]:
            return [_entry(found) for found in _can(view, "candidates")(tag, LONGEST)]

        return JSONResponse(await reading(lambda: lists.ask(("candidates", tag), made, n)))

    @app.post("/v1/candidates", openapi_extra=WRITE, tags=["knowing"])
    async def answer(
        request: schema.AnswerRequest, idempotency: IdempotencyKey = None
    ) -> dict[str, int]:
        """Give a tag to stored items, and refuse it for others: all of it, or nothing.

        It is one change, which can be undone as one.
        """
        bodies, key = _answers(request), one_key(request.key, idempotency)
        keys = [None if key is None else f"{key}:{b['id']}" for b in bodies]
        return answer_of(await desk.change("retag", bodies, keys, is_one=True))

    @app.get("/v1/tags/similar", openapi_extra=READ, tags=["knowing"])
    async def similar(n: int = N) -> Response:
        """List pairs of tags that may be one, with what merging them would do.

        The list is made in the background, as that of ``/v1/review``.  Nothing is merged.
        """

        def made(view: Any) -> list[dict[str, Any]]:
            return [_entry(found) for found in _can(view, "similar_tags")(LONGEST)]

        return JSONResponse(await reading(lambda: lists.ask(("similar",), made, n)))

    @app.get("/v1/duplicates", openapi_extra=READ, tags=["knowing"])
    async def duplicates(n: int = N) -> Response:
        """List groups of stored items that are nearly the same and have different tags.

        The list is made in the background, as that of ``/v1/review``.
        """

        def made(view: Any) -> list[dict[str, Any]]:
            found = [_entry(group) for group in _can(view, "duplicates")(LONGEST)]
            return [{**group, "ids": [*map(str, group["ids"])]} for group in found]

        return JSONResponse(await reading(lambda: lists.ask(("duplicates",), made, n)))

    @app.get("/v1/tags/health", openapi_extra=READ, tags=["knowing"])
    async def health() -> Response:
        """Tell how each tag was suggested lately, before items were learnt, and if it drifts."""
        view = service.read().view
        found = await reading(lambda: health_of(view))
        return JSONResponse({"tags": found})

    @app.get("/v1/promises", openapi_extra=READ, tags=["knowing"])
    async def promises() -> Response:
        """List the tags that are not simply suggested, and how promises about them are kept."""
        view = service.read().view
        found = await reading(lambda: promises_of(view))
        return JSONResponse({"promises": found})

    @app.post("/v1/apply", openapi_extra=WRITE, tags=["tagging"])
    async def apply(request: schema.ApplyRequest) -> Response:
        """Apply tags where that was promised; what nobody may decide alone is only suggested.

        Applied tags are listed with the items and are never learnt from.  Items that a person has
        tagged are left alone.  One item in twenty is also put in the pool, for a person to check.
        """
        view = service.read().view
        records = [item.question() for item in request.items]
        told = await reading(lambda: view.suggest(records))
        bodies = [
            {"id": item.id, **item.record(), "y": [*told[i].auto]}
            for i, item in enumerate(request.items)
            if getattr(told[i], "auto", ())
        ]
        made = {"n": 0, "duplicates": 0, "position": service.read().position}
        if bodies:
            done = await desk.change("auto", bodies, [None] * len(bodies), source="auto")
            made = answer_of(done)
        answers = [
            {"id": item.id, "tags": [*one.tags], "auto": [*getattr(one, "auto", ())]}
            for item, one in zip(request.items, told, strict=True)
        ]
        return JSONResponse({**made, "items": answers})


def promises_of(view: Any) -> list[dict[str, Any]]:
    """Return how promises about tags are kept."""
    return [asdict(kept) for kept in getattr(view, "promises", ())]


def health_of(view: Any) -> list[dict[str, Any]]:
    """Return the health of the tags; of a tagger that cannot tell, none."""
    if not view.n_items or not hasattr(view, "tag_health"):
        return []
    try:
        return [asdict(one) for one in view.tag_health()]
    except ValueError:  # a learner without a head
        return []


def drifting(view: Any) -> list[str]:
    """Return the tags that drift."""
    return [str(one["tag"]) for one in health_of(view) if one["drifting"]]


def drifting_tags(service: Served) -> float:
    """Return how many tags drift."""
    return 0.0 if service.published is None else float(len(drifting(service.published.view)))


def _can(view: Any, name: str) -> Any:
    method = getattr(view, name, None)
    if method is None:
        raise ValueError("this tagger keeps no items to be asked about")
    return method


def _entry(found: Any) -> dict[str, Any]:
    """Return what was found as JSON has it."""
    entry: dict[str, Any] = {}
    for name, value in asdict(found).items():
        name = {"neighbors": "neighbours"}.get(name, name)
        if name in ("neighbours", "why"):
            value = [_neighbour(near) for near in value]
        elif name == "id":
            value = str(value)
        elif isinstance(value, tuple):
            value = [*value]
        elif isinstance(value, float):
            value = round(value, 6)
        if value is not None:
            entry[name] = value
    return entry


def _neighbour(near: dict[str, Any]) -> dict[str, Any]:
    entry = {
        "id": str(near["id"]),
        "distance": round(float(near["distance"]), 6),
        "tags": [*near["labels"]],
    }
    return entry if near["text"] is None else {**entry, "text": near["text"]}


def _answers(request: schema.AnswerRequest) -> list[dict[str, Any]]:
    """Return what each item gets or is refused."""
    both = {*request.accept} & {*request.refuse}
    if both:
        raise Refused(f"an id must be accepted or refused, got {min(both)!r} in both", "refuse")
    return [
        {"id": str(name), what: [request.tag], "must": field}
        for field, what, ids in (
            ("accept", "add", request.accept),
            ("refuse", "no", request.refuse),
        )
        for name in dict.fromkeys(ids)
    ]
