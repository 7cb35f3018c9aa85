"""Files in and out of the service: imports that go on, previews, exports."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from fake_tagger import FakeTagger
from serving import serving
from tagstream.serve import imports
from tagstream.serve.tokens import Tokens
from tagstream.serve.writer import Service


@pytest.fixture
def client(tmp_path):
    with serving(tmp_path) as made:
        yield made


def send(client: Any, content: Any, status: int = 200, **params: Any) -> Any:
    answer = client.post("/v1/import", content=content, params=params)
    assert answer.status_code == status, answer.text
    return answer.json()


def waiting(client: Any) -> list[str]:
    return [*client.service.pool.all()]


def sheet(rows: list[list[Any]]) -> bytes:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def lines(n: int, first: int = 0) -> bytes:
    rows = ({"id": f"{i}", "text": f"text {i}"} for i in range(first, first + n))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


# ---------------------------------------------------------------------- the pool
@pytest.mark.parametrize("kind", ["application/x-ndjson", "text/csv"])
def test_a_body_of_any_size_goes_into_the_pool_in_whole_groups(client, kind):
    n = 2500
    if kind == "text/csv":
        content = "id,text\n" + "".join(f'{i},"text, {i}\nof two lines"\n' for i in range(n))
    else:
        content = lines(n).decode()
    headers = {"content-type": kind}
    told = client.post("/v1/pool?import=a", content=content, headers=headers).json()
    assert (told["lines"], told["n"], told["import"]) == (n, n, "a")
    assert len(client.service.pool) == n
    marks = client.service.imports.get("a").marks
    assert [*marks] == [1000, 2000, 2500]
    again = client.post("/v1/pool?import=a", content=content, headers=headers).json()
    assert (again["n"], again["duplicates"]) == (0, n)


def test_a_large_body_is_not_held_in_memory_nor_turned_away(client):
    text = "x" * 50_000

    def parts():
        for i in range(400):  # 20 MB, more than any other body may have
            yield json.dumps({"id": f"{i}", "text": f"{i} {text}"}).encode() + b"\n"

    headers = {"content-type": "application/x-ndjson"}
    told = client.post("/v1/pool", content=parts(), headers=headers)
    assert told.status_code == 200, told.text
    assert told.json()["n"] == 400


def test_a_body_that_broke_off_goes_on_where_it_stopped(tmp_path):
    class Broken(Exception):
        pass

    def broken():
        yield lines(2300)
        yield b'{"id": "2300", "te'
        raise Broken

    headers = {"content-type": "application/x-ndjson"}
    with serving(tmp_path) as client:
        with pytest.raises(Broken):
            client.post("/v1/pool?import=a", content=broken(), headers=headers)
        # The end of the body is seen a moment later; the writer then has nothing left to do.
        while (
            client.service.imports.get("a") is None or client.service.imports.get("a").rows < 2000
        ):
            client.get("/v1/info")
        assert client.service.imports.get("a").rows == 2000  # whole groups only
        assert client.get("/v1/imports").json()["imports"][0]["lines"] == 2000
    with serving(tmp_path) as client:  # also after a restart
        told = client.post("/v1/pool?import=a", content=lines(3000), headers=headers).json()
        assert (told["n"], told["duplicates"], told["lines"]) == (1000, 2000, 3000)
        assert sorted(map(int, waiting(client))) == [*range(3000)]


def test_another_file_under_the_name_is_noticed(client):
    send(client, lines(1200), name="a.jsonl", id="id")
    other = send(client, lines(1200, 5), 409, name="a.jsonl", id="id")
    assert other["field"] == "name"
    longer = send(client, lines(1300), name="a.jsonl", id="id")  # the same, with more at its end
    assert (longer["n"], longer["duplicates"]) == (100, 1200)
    send(client, lines(1300), 409, name="a.jsonl", id="id", tags="y", **{"as": "learnt"})


def test_an_import_that_is_cut_anywhere_ends_as_one_that_was_not(tmp_path, monkeypatch):
    monkeypatch.setattr(imports, "GROUP_ROWS", 10)
    rows = [{"id": f"{i}", "text": f"text {i}", "y": [f"t{i % 3}"] if i % 4 else None}
            for i in range(57)]  # fmt: skip
    whole = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    params = {"name": "a.jsonl", "id": "id", "tags": "y", "as": "learnt"}
    states = []
    for name, cuts in (("one", []), ("many", [7, 130, 700, 1500, 2100])):
        (tmp_path / name).mkdir()
        for cut in [*cuts, len(whole)]:
            kept = whole
            if cut < len(whole):  # what is left of a body that broke off: whole groups
                there = whole[:cut].splitlines(keepends=True)
                kept = b"".join(there[: (len(there) - 1) // 10 * 10])
            with serving(tmp_path / name) as client:  # a start each time
                if kept:
                    send(client, kept, **params)
                states.append((client.service._tagger.state(), sorted(waiting(client))))
    assert states[0] == states[-1]


# ---------------------------------------------------------------------- imports
def test_columns_are_mapped_and_items_learnt_or_put_in_the_pool(client):
    content = "Nr;Title;Body;Labels\n1;Low tide;at noon;sea|mud\n2;Rain;;sky\n3;Quiet;;\n"
    told = send(
        client, content.encode(), name="a.csv", id="Nr", text=["Title", "Body"], tags="Labels",
        separator="|", **{"as": "learnt"},
    )  # fmt: skip
    assert (told["n"], told["lines"], told["n_bad"]) == (3, 3, 0)
    assert client.get("/v1/items/1").json()["text"] == "Low tide\nat noon"
    assert client.get("/v1/items/1").json()["y"] == ["sea", "mud"]
    assert client.get("/v1/items/2").json()["source"] == "import"
    assert waiting(client) == ["3"]
    assert client.post("/v1/undo").status_code == 409  # an import is no step of a person


def test_items_without_an_id_are_called_after_the_import_and_the_row(client):
    send(client, b"Low tide\n\nRain\n", name="notes.txt")
    assert waiting(client) == ["notes.txt:1", "notes.txt:2"]


def test_numbers_are_columns_of_their_own(client):
    send(client, b"a,b,y\n1,2.5,sea\n3,4,\n", name="n.csv", x=["a", "b"], tags="y",
         **{"as": "learnt"})  # fmt: skip
    assert client.get("/v1/items/n.csv:1").json()["x"] == {"a": 1.0, "b": 2.5}


def test_the_first_bad_row_ends_the_import_or_is_passed_over(client):
    content = b'{"id": "1", "text": "low tide"}\n{"id": "2"}\n[3]\n{"id": "4", "text": "rain"}\n'
    told = send(client, content, 422, name="a.jsonl", id="id")
    assert told["line"] == 2
    assert "line 2" in told["error"]
    assert waiting(client) == []
    told = send(client, content, name="a.jsonl", id="id", skip_bad=True)
    assert (told["n"], told["n_bad"], [one["line"] for one in told["bad"]]) == (2, 2, [2, 3])
    assert waiting(client) == ["1", "4"]


def test_a_workbook_is_imported(client):
    pytest.importorskip("python_calamine")
    content = sheet([["id", "title", "tags"], [1, "Low tide", "sea;mud"], [2, "Rain", None]])
    told = client.post("/v1/import/preview?name=a.xlsx", content=content).json()
    assert [one["name"] for one in told["columns"]] == ["id", "title", "tags"]
    assert told["guess"] == {"id": "id", "text": ["title"], "tags": "tags", "separator": ";"}
    send(client, content, name="a.xlsx", id="id", text="title", tags="tags", separator=";",
         **{"as": "learnt"})  # fmt: skip
    assert client.get("/v1/items/1").json()["y"] == ["sea", "mud"]
    assert waiting(client) == ["2"]
    client.post("/v1/import/preview?name=b.xlsx", content=b"no book").json()
    assert client.post("/v1/import?name=b.xlsx", content=b"no book").status_code == 422


def test_a_preview_tells_columns_rows_and_what_they_probably_are(client):
    content = b"key,title,keywords\n" + b"".join(b'%d,"A, b",x|y\n' % i for i in range(50))
    told = client.post("/v1/import/preview?name=A.CSV", content=content).json()
    assert told["format"] == "csv"
    assert told["columns"][1] == {"name": "title", "samples": ["A, b"]}
    assert (len(told["rows"]), told["n_rows"]) == (20, 50)
    assert told["guess"] == {"id": "key", "text": ["title"], "tags": "keywords", "separator": "|"}
    array = json.dumps([{"text": "low tide", "tags": ["sea"]}, {"text": "rain"}]).encode()
    told = client.post("/v1/import/preview?name=a.json", content=array).json()
    assert told["rows"] == [{"text": "low tide", "tags": ["sea"]}, {"text": "rain"}]
    assert client.service.read().position == 0  # nothing was changed
    assert client.post("/v1/import/preview?name=a.pdf", content=b"x").status_code == 422
    assert client.post("/v1/import/preview?name=a.csv", content=b"").status_code == 422


@pytest.mark.parametrize(
    ("params", "field"),
    [({"name": "a.csv", "as": "learnt"}, "tags"), ({"name": "a.bin"}, "format"),
     ({}, "name"), ({"name": " a.csv"}, "name"), ({"name": "a.csv", "as": "eaten"}, "as")],
)  # fmt: skip
def test_what_cannot_be_imported_is_told(client, params, field):
    assert send(client, b"text\nlow tide\n", 422, **params)["field"] == field


def test_an_import_needs_a_token_that_may_write(tmp_path):
    secret = Tokens(tmp_path / "tokens.json").add("eve", "read")
    with serving(tmp_path) as client:
        headers = {"Authorization": f"Bearer {secret}"}
        for path in ("/v1/import?name=a.txt", "/v1/import/preview?name=a.txt", "/v1/pool"):
            for sent, status in ((headers, 403), ({}, 401)):
                sent = {**sent, "content-type": "text/csv"}
                assert client.post(path, content=b"text\nx\n", headers=sent).status_code == status


# ---------------------------------------------------------------------- exports
@pytest.fixture
def filled(client):
    items = [
        {"id": "1", "text": 'Low tide, "now"\nat the =beach', "y": ["sea", "mud"]},
        {"id": "2", "text": "Rain", "y": [], "no": ["sea"]},
    ]
    assert client.post("/v1/learn", json={"items": items}).status_code == 200
    client.post("/v1/pool", json={"items": [{"id": "3", "text": "waits"}]})
    return client


def test_items_are_exported_with_who_and_when(filled):
    answer = filled.get("/v1/export")
    assert "items.jsonl" in answer.headers["content-disposition"]
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert [one["id"] for one in told] == ["2", "1"]
    assert (told[1]["y"], told[1]["who"], told[0]["no"]) == (["sea", "mud"], "local", ["sea"])
    assert told[0]["when"].startswith("20")
    every = filled.get("/v1/export", params={"state": "all"}).text.splitlines()
    assert json.loads(every[-1]) == {"id": "3", "text": "waits", "state": "waiting", "version": 0}
    only = filled.get("/v1/export", params={"tag": "sea"}).text.splitlines()
    assert [json.loads(line)["id"] for line in only] == ["1"]


def test_a_table_holds_the_same_as_the_lines(filled):
    openpyxl = pytest.importorskip("openpyxl")
    table = [*csv.DictReader(io.StringIO(filled.get("/v1/export?format=csv").text, newline=""))]
    assert [row["id"] for row in table] == ["2", "1"]
    assert table[1]["text"] == 'Low tide, "now"\nat the =beach'
    assert (table[1]["y"], table[0]["y"], table[0]["no"]) == ("sea|mud", "", "sea")
    book = openpyxl.load_workbook(io.BytesIO(filled.get("/v1/export?format=xlsx").content))
    head, *rows = book.active.iter_rows(values_only=True)
    found = [dict(zip(head, row, strict=True)) for row in rows]
    for one, other in zip(found, table, strict=True):
        assert {name: str(cell) for name, cell in one.items() if cell is not None} == {
            name: cell for name, cell in other.items() if cell != ""
        }


def test_an_export_is_an_import(filled, tmp_path):
    content = filled.get("/v1/export").content
    with serving(tmp_path / "other") as other:
        send(other, content, name="items.jsonl", id="id", tags="y", no="no", **{"as": "learnt"})
        assert other.get("/v1/items/1").json()["y"] == ["sea", "mud"]
        assert other.get("/v1/items/2").json()["no"] == ["sea"]


def test_an_import_survives_a_kill_after_any_group(tmp_path, monkeypatch):
    """A group is in the log with what says so, or it is not there at all."""
    monkeypatch.setattr(imports, "GROUP_ROWS", 5)
    with serving(tmp_path) as client:
        send(client, lines(20), name="a.jsonl", id="id")
        positions = [event.position for event in client.service.log.of_kinds("import")]
        assert [client.service.log.end_of_group(position) for position in positions] == positions
    with Service(tmp_path, FakeTagger) as service:
        assert service.imports.get("a.jsonl").rows == 20
        assert len(service.pool) == 20
