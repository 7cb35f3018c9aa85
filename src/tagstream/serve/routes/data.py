"""Files in and out: the pool, imports with a preview, exports."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import IO, Annotated, Any, Literal, TypeAlias

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from tagstream.checks import DataError
from tagstream.records.cells import FileRow, iter_cells
from tagstream.serve import schema
from tagstream.serve.changes import Busy, Refused
from tagstream.serve.imports import (
    SHOWN,
    Columns,
    Feed,
    Report,
    columns_of,
    guess,
    run_import,
)
from tagstream.serve.index import Query as Wanted
from tagstream.serve.routes.answers import item_now, when
from tagstream.serve.routes.desk import READ, WRITE, Desk, IdempotencyKey, answer_of
from tagstream.serve.routes.items import OneName, State, When, Words, query_of
from tagstream.serve.sheet import write_sheet

__all__ = ["STREAMED", "add_data"]

POOL_TYPES = {"application/x-ndjson": "jsonl", "application/jsonl": "jsonl", "text/csv": "csv"}
# Routes whose bodies may be of any size, with their types; None: of any type.
STREAMED: dict[tuple[str, str], tuple[str, ...] | None] = {
    ("POST", "/v1/pool"): (*POOL_TYPES,),
    ("POST", "/v1/import"): None,
    ("POST", "/v1/import/preview"): None,
}
PREVIEWED = 8 << 20  # bytes
MOST_IMPORTS = 8  # at a time
KEPT = 100  # imports that are listed
PAGE = 500  # items that an export reads at a time
IN_MEMORY = 4 << 20  # bytes of a workbook; a larger one is put on the disk
ENDINGS = {
    ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json",
    ".txt": "text", ".text": "text", ".md": "text", ".xlsx": "xlsx", ".xlsm": "xlsx",
    ".xls": "xlsx", ".ods": "xlsx",
}  # fmt: skip
MEDIA = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}

Format: TypeAlias = Literal["auto", "csv", "jsonl", "json", "text", "xlsx"]
Many: TypeAlias = Annotated[list[str], Query(max_length=100)]
ImportName: TypeAlias = Annotated[str, Query(min_length=1, max_length=150)]


def add_data(app: FastAPI, desk: Desk) -> None:
    """Add the routes to an application."""
    service = desk.service
    under_way = asyncio.Semaphore(MOST_IMPORTS)
    pool_body = {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": _json_schema()},
                **{kind: {"schema": {"type": "string"}} for kind in POOL_TYPES},
            },
        }
    }
    file_body = {
        "requestBody": {
            "required": True,
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    }

    async def imported(
        request: Request, name: str, way: str, format: str, columns: Columns, skips_bad: bool
    ) -> Report:
        if under_way.locked():
            raise Busy(5)
        async with under_way:
            if name != name.strip() or not name.isprintable():
                raise Refused(f"name must be printable, got {name!r}", "name")
            known = service.imports.get(name)

            def run(file: IO[bytes]) -> Report:
                rows = _rows(file, format)
                return run_import(
                    rows, name, way, columns, known, service.submit, skips_bad=skips_bad
                )

            told: Report = await _with_body(request, run, format == "xlsx")
            return told

    @app.post("/v1/pool", openapi_extra={**WRITE, **pool_body}, tags=["choosing"])
    async def pool(
        request: Request,
        import_: Annotated[str | None, Query(alias="import", max_length=150)] = None,
        idempotency: IdempotencyKey = None,
    ) -> Response:
        """Put items without tags in, or replace them there.

        Those that have tags, or are there already like that, are duplicates.  As
        ``application/x-ndjson`` or ``text/csv`` the body may be of any size; it is an import then,
        see ``POST /v1/import``.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in POOL_TYPES:
            name = import_ or idempotency or _some_name()
            told = await imported(
                request, name, "waiting", POOL_TYPES[kind], Columns(id="id"), False
            )
            return JSONResponse({**told.told(), "import": name})
        asked = _pool_of(await request.body())
        bodies = [{"id": item.id, "item": item.record()} for item in asked.items]
        done = await desk.change("pool", bodies, [None] * len(bodies))
        return JSONResponse(answer_of(done))

    @app.post("/v1/import", openapi_extra={**WRITE, **file_body}, tags=["data"])
    async def file_in(
        request: Request,
        name: ImportName,
        way: Annotated[Literal["waiting", "learnt"], Query(alias="as")] = "waiting",
        format: Format = "auto",
        id: Annotated[str, Query(max_length=schema.MAX_NAME)] = "",
        text: Many = ["text"],  # noqa: B006 - FastAPI copies it
        x: Many = [],  # noqa: B006
        tags: Annotated[str, Query(max_length=schema.MAX_NAME)] = "",
        no: Annotated[str, Query(max_length=schema.MAX_NAME)] = "",
        separator: Annotated[str, Query(min_length=1, max_length=5)] = "|",
        skip_bad: bool = False,
    ) -> Response:
        """Import a file: the body as it is, of any size.

        The columns say what is what.  Rows are committed in whole groups of 1,000, so a file that
        broke off can be sent again under its name and goes on.  ``as=learnt`` learns the items
        that have tags; those whose cell of tags is empty wait.  ``skip_bad`` passes over rows that
        are no items; otherwise the first of them ends the import.
        """
        if way == "learnt" and not tags:
            raise Refused("tags must name a column of items that are learnt, got none", "tags")
        columns = Columns(id, tuple(text), tuple(x), tags, no, separator)
        told = await imported(request, name, way, _format_of(format, name), columns, skip_bad)
        return JSONResponse(told.told())

    @app.post("/v1/import/preview", openapi_extra={**WRITE, **file_body}, tags=["data"])
    async def preview(request: Request, name: ImportName, format: Format = "auto") -> Response:
        """Tell the columns of a file, its first rows, and what the columns probably are.

        Of other files than workbooks the first 8 MiB are enough.
        """
        kind = _format_of(format, name)
        found = await _with_body(request, lambda file: _preview(file, kind), kind == "xlsx")
        return JSONResponse(found)

    @app.get("/v1/imports", openapi_extra=READ, tags=["data"])
    async def imports() -> Response:
        """List the imports, the latest first, and how far each has come."""
        told = [
            {
                "name": one.name,
                "lines": one.rows,
                "n": one.n,
                "as": one.way,
                "who": one.who or None,
                "when": when(one.time),
            }
            for one in service.imports.last(KEPT)
        ]
        return JSONResponse({"imports": told})

    files = {kind.partition(";")[0]: {"schema": {"type": "string"}} for kind in MEDIA.values()}

    @app.get(
        "/v1/export",
        openapi_extra=READ,
        tags=["data"],
        response_class=StreamingResponse,
        responses={200: {"content": files}},
    )
    async def export(
        format: Literal["jsonl", "csv", "xlsx"] = "jsonl",
        q: Words = "",
        tag: OneName = None,
        without_tag: OneName = None,
        who: OneName = None,
        source: OneName = None,
        since: When = None,
        until: When = None,
        state: State = "",
    ) -> Response:
        """Return items as a file, with who gave them their tags, when and through what.

        The filters are those of ``GET /v1/items``.  A workbook holds at most 32,767 letters of a
        text.
        """
        query = query_of(q, tag, without_tag, who, source, since, until, state)
        await desk.reading(lambda: _ids(desk, query, None))  # an error comes before the file
        headers = {"Content-Disposition": f'attachment; filename="items.{format}"'}
        if format == "xlsx":
            file = await asyncio.to_thread(lambda: _workbook(desk, query))
            parts: Iterable[bytes] = _parts(file)
        else:
            parts = _lines(desk, query, format)
        return StreamingResponse(parts, media_type=MEDIA[format], headers=headers)


def _json_schema() -> dict[str, Any]:
    """Return the schema of items for the pool; what it refers to stands with the other routes."""
    made = schema.PoolRequest.model_json_schema(ref_template="#/components/schemas/{model}")
    return {name: value for name, value in made.items() if name != "$defs"}


# ---------------------------------------------------------------------- in
def _format_of(format: str, name: str) -> str:
    """Return the format of a file, by its name if nobody says it."""
    if format != "auto":
        return format
    found = ENDINGS.get(os.path.splitext(name.lower())[1])
    if found is None:
        known = ", ".join(dict.fromkeys(ENDINGS.values()))
        raise Refused(f"format must be one of {known} for a file {name!r}, got none", "format")
    return found


def _some_name() -> str:
    return f"pool {os.urandom(6).hex()}"


def _pool_of(body: bytes) -> schema.PoolRequest:
    """Return the items of a JSON body."""
    try:
        content = json.loads(body)
    except json.JSONDecodeError as error:
        told = {"type": "json_invalid", "loc": ("body", error.pos), "ctx": {"error": error.msg}}
        raise RequestValidationError([{**told, "msg": "JSON decode error"}]) from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"the body must be JSON: {error}", "") from None
    try:
        return schema.PoolRequest.model_validate(content)
    except ValidationError as error:
        found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        raise RequestValidationError(found) from None


async def _with_body(request: Request, read: Callable[[IO[bytes]], Any], is_whole: bool) -> Any:
    """Return what a function makes of the body, which it reads in a thread as a file.

    Parameters
    ----------
    request : Request
    read : callable
    is_whole : bool
        Whether the file must be there as a whole before it is read.
    """
    if is_whole:
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as spooled:
            async for part in request.stream():
                await asyncio.to_thread(spooled.write, part)
            spooled.seek(0)
            return await asyncio.to_thread(_guarded, read, spooled)
    feed = Feed()
    reading = asyncio.create_task(asyncio.to_thread(_left, read, feed))
    try:
        async for part in request.stream():
            if reading.done():
                break
            if part:
                await asyncio.to_thread(feed.feed, part)
        else:
            await asyncio.to_thread(feed.feed, None)
    except ClientDisconnect:
        await asyncio.to_thread(feed.feed, OSError("the body must come as a whole, got a part"))
    except BaseException:
        await asyncio.to_thread(feed.feed, OSError("the body must come in time"))
        await asyncio.wait([reading])
        raise
    return await reading


def _left(read: Callable[[IO[bytes]], Any], feed: Feed) -> Any:
    try:
        return _guarded(read, io.BufferedReader(feed, 1 << 16))
    finally:
        feed.leave()


def _guarded(read: Callable[[IO[bytes]], Any], file: Any) -> Any:
    try:
        return read(file)
    except DataError as error:
        words = str(error).replace("<body>", "the file").replace("<stream>", "the file")
        raise Refused(words) from None
    except ImportError as error:
        raise Refused(str(error), "format") from error


def _rows(file: IO[bytes], format: str) -> Iterator[FileRow]:
    return iter_cells(file, format)


def _preview(file: IO[bytes], format: str) -> dict[str, Any]:
    """Return what is told of a file before it is imported."""
    if format != "xlsx":
        content = file.read(PREVIEWED + 1)
        is_cut = len(content) > PREVIEWED
        file = io.BytesIO(content[: content.rfind(b"\n") + 1] if is_cut else content)
    found = iter_cells(file, format)
    rows: list[FileRow] = []
    n_rows: int | None = 0
    try:
        rows = [*islice(found, SHOWN)]
        n_rows = len(rows) + sum(1 for _ in found)
    except DataError:
        if not rows:
            raise
        n_rows = None
    if format != "xlsx" and is_cut:
        n_rows = None
    whole = [row for row in rows if not row.problem]
    return {
        "format": format,
        "columns": columns_of(whole),
        "rows": [row.cells for row in whole],
        "problems": [{"line": row.number, "error": row.problem} for row in rows if row.problem],
        "n_rows": n_rows,
        "guess": guess(whole),
    }


# ---------------------------------------------------------------------- out
COLUMNS = ("id", "text", "x", "y", "no", "state", "who", "when", "source", "version")


def _ids(desk: Desk, query: Wanted, after: tuple[int, int] | None) -> Any:
    try:
        return desk.service.index.find(query, PAGE, after)
    except OSError as error:
        raise Refused(f"items cannot be listed now: {error}", "", 503) from error


def _items(desk: Desk, query: Wanted) -> Iterator[dict[str, Any]]:
    """Yield the items of an export; one that is changed meanwhile comes as it is then."""
    after = None
    while True:
        found = _ids(desk, query, after)
        for name in found.ids:
            item = item_now(desk.service, name)
            if item is not None:
                yield {column: item[column] for column in COLUMNS if item.get(column) is not None}
        after = found.next
        if after is None:
            return


def _lines(desk: Desk, query: Wanted, format: str) -> Iterator[bytes]:
    """Yield a file of lines in parts."""
    if format == "jsonl":
        for item in _items(desk, query):
            yield json.dumps(item, ensure_ascii=False).encode() + b"\n"
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    for row in _table(desk, query):
        writer.writerow(["" if cell is None else cell for cell in row])
        if text.tell() > 1 << 16:
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode()


def _table(desk: Desk, query: Wanted) -> Iterator[list[Any]]:
    """Yield the rows of a table, the names of its columns first."""
    tags = desk.service.read().view.tags
    sep = next((sep for sep in ("|", ";", ",") if not any(sep in tag for tag in tags)), None)
    yield [*COLUMNS]
    for item in _items(desk, query):
        yield [_cell(item.get(column), sep) for column in COLUMNS]


def _cell(value: Any, sep: str | None) -> Any:
    if isinstance(value, list) and sep is not None and all(isinstance(v, str) for v in value):
        return sep.join(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value


def _workbook(desk: Desk, query: Wanted) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - it is read after this
    try:
        write_sheet(file, _table(desk, query))
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _parts(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while part := file.read(1 << 16):
            yield part
