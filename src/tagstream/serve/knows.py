"""The routes of what the model knows: review, candidates, exclusive tags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse, Response

from tagstream.serve import schema
from tagstream.serve.lists import LONGEST, Lists
from tagstream.serve.writer import Refused, Service

__all__ = ["add_knows", "drifting", "drifting_tags"]

READ, WRITE, ADMIN = ({"x-role": role} for role in ("read", "write", "admin"))
N = Query(20, ge=1, le=LONGEST)
TAG = Query(max_length=schema.MAX_NAME)


def add_knows(
    app: FastAPI,
    service: Service,
    lists: Lists,
    reading: Any,
    change: Any,
    done: Callable[[Any], dict[str, int]],
) -> None:
    """Add the routes to an application.

    ``reading`` runs a function in a reader thread, ``change`` makes events, ``done`` is the answer
    to a change.
    """

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
    async def answer(request: schema.AnswerRequest) -> dict[str, int]:
        """Give a tag to stored items, and refuse it for others: all of it, or nothing."""
        bodies, versions = await reading(lambda: _answers(service, request))
        keys = [None if request.key is None else f"{request.key}:{b['id']}" for b in bodies]
        return done(await change("learn", bodies, keys, versions))

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
        found = await reading(lambda: _health(view))
        return JSONResponse({"tags": found})

    @app.get("/v1/promises", openapi_extra=READ, tags=["knowing"])
    async def promises() -> Response:
        """List the tags that are not simply suggested, and how promises about them are kept."""
        view = service.read().view
        found = await reading(lambda: [asdict(kept) for kept in getattr(view, "promises", ())])
        return JSONResponse({"promises": found})

    @app.post("/v1/tags/promise", openapi_extra=ADMIN, tags=["tags"])
    async def promise(request: schema.PromiseRequest) -> dict[str, int]:
        """Say whether a tag may be applied without asking, and with which precision."""
        body = request.model_dump(exclude={"key"})
        return done(await change("promise", [body], [request.key]))

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
            made = done(await change("auto", bodies, [None] * len(bodies), source="auto"))
        answers = [
            {"id": item.id, "tags": [*one.tags], "auto": [*getattr(one, "auto", ())]}
            for item, one in zip(request.items, told, strict=True)
        ]
        return JSONResponse({**made, "items": answers})

    @app.post("/v1/tags/exclusive", openapi_extra=ADMIN, tags=["tags"])
    async def exclusive(request: schema.ExclusiveRequest) -> dict[str, int]:
        """Say that an item has at most one of some tags, or that it may have several again."""
        kind = "not_exclusive" if request.undo else "exclusive"
        return done(await change(kind, [{"tags": request.tags}], [request.key]))


def _health(view: Any) -> list[dict[str, Any]]:
    """Return the health of the tags; of a tagger that cannot tell, none."""
    if not view.n_items or not hasattr(view, "tag_health"):
        return []
    try:
        return [asdict(one) for one in view.tag_health()]
    except ValueError:  # a learner without a head
        return []


def drifting(view: Any) -> list[str]:
    """Return the tags that drift."""
    return [str(one["tag"]) for one in _health(view) if one["drifting"]]


def drifting_tags(service: Service) -> float:
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


def _answers(
    service: Service, request: schema.AnswerRequest
) -> tuple[list[dict[str, Any]], list[int | None]]:
    """Return the items of an answer as learn events have them, and the versions that were seen."""
    bodies: list[dict[str, Any]] = []
    versions: list[int | None] = []
    both = {*request.accept} & {*request.refuse}
    if both:
        raise Refused(f"an id must be accepted or refused, got {min(both)!r} in both", "refuse")
    for ids, accepts in ((request.accept, True), (request.refuse, False)):
        for name in dict.fromkeys(ids):
            body = service.state_of(str(name))
            if body is None:
                where = "accept" if accepts else "refuse"
                raise Refused(f"no stored item is called {name!r}", where, 404)
            tags = [tag for tag in body.get("y") or [] if tag != request.tag]
            no = [tag for tag in body.get("no", ()) if tag != request.tag]
            if accepts:
                tags.append(request.tag)
            else:
                no.append(request.tag)
            kept = {key: value for key, value in body.items() if key != "no"}
            bodies.append({**kept, "y": tags, **({"no": no} if no else {})})
            versions.append(service.log.last_of_item(str(name)) or 0)
    return bodies, versions
