"""Part 2 of docs/try-out.md is played: two people with tokens import, tag, meet and export.

The commands are those of the page.  What the people do in their browsers is done by the requests
that the page makes; test_serve_page.py has the same conflict in two real browsers.
"""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi")
pytest.importorskip("python_calamine")
openpyxl = pytest.importorskip("openpyxl")

# ruff: noqa: E402 - imports that need what is looked for first
from serving import serving
from tagstream.tagger import Tagger
from test_docs import blocks, run_tagstream

PAGE = "docs/try-out.md"


def shell_lines() -> list[list[str]]:
    """Return the commands of the page's blocks for the shell, in words."""
    text = "".join(text for _, kind, _, text in blocks(PAGE) if kind == "sh")
    return [shlex.split(line) for line in text.replace("\\\n", " ").splitlines()]


def curl(client: Any, words: list[str], tokens: dict[str, str]) -> Any:
    """Make the request of a command, of somebody whose token is named in it."""
    header = words[words.index("-H") + 1]
    name = re.search(r"\$(\w+)", header)[1].lower()
    headers = {"Authorization": f"Bearer {tokens[name]}"}
    url = urlsplit(words[-1])
    path = f"{url.path}?{url.query}"
    if "--data-binary" not in words:
        return client.get(path, headers=headers)
    content = Path(words[words.index("--data-binary") + 1].removeprefix("@")).read_bytes()
    return client.post(path, headers=headers, content=content)


def test_two_people_import_tag_meet_and_export(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    made: dict[str, Any] = {}
    exec(next(text for _, kind, _, text in blocks(PAGE) if kind == "python"), made)
    truth = {post["id"]: post["y"] for post in made["board"]}
    lines = shell_lines()
    tokens = {
        words[4]: run_tagstream(words[1:], b"").strip()
        for words in lines
        if words[:3] == ["tagstream", "token", "add"]
    }
    assert set(tokens) == {"anna", "ben"}
    assert ["tagstream", "serve", "team"] in lines
    board, new, export = (words for words in lines if words[0] == "curl")
    with serving(tmp_path / "team", tagger=Tagger) as client:
        assert client.get("/v1/next").status_code == 401
        assert curl(client, board, tokens).json()["n"] == 93
        assert curl(client, new, tokens).json()["n"] == 31
        people = {
            name: httpx.Client(
                base_url=client.url,
                headers={"Authorization": f"Bearer {token}"},
                timeout=60,
                trust_env=False,
            )
            for name, token in tokens.items()
        }
        tag_all(people, truth)
        meet(people)
        file = curl(client, export, tokens)
        for person in people.values():
            person.close()
    check_export(openpyxl.load_workbook(io.BytesIO(file.content)).active, truth)


def tag_all(people: dict[str, Any], truth: dict[str, list[str]]) -> None:
    """Tag what waits, in turns; nobody is offered what the other is looking at."""
    for turn in range(31):
        name, other = ("anna", "ben") if turn % 2 else ("ben", "anna")
        (item, *_) = people[name].get("/v1/next?n=1").json()["items"]
        assert people[name].post("/v1/lease", json={"id": item["id"]}).status_code == 200
        offered = people[other].get("/v1/next?n=100").json()["items"]
        assert item["id"] not in [one["id"] for one in offered]
        (found,) = (
            people[name]
            .post("/v1/suggest", json={"items": [{"text": item["text"]}]})
            .json()["items"]
        )
        assert len(found["scores"]) >= 9
        answer = {"id": item["id"], "text": item["text"], "y": truth[item["id"]]}
        assert people[name].post("/v1/learn", json={"items": [answer]}).status_code == 200
    assert people["anna"].get("/v1/next").json()["items"] == []


def meet(people: dict[str, Any]) -> None:
    """Both open the same item; the second to answer is shown the first one's tags."""
    seen = people["anna"].get("/v1/items/p1").json()
    assert seen == people["ben"].get("/v1/items/p1").json()

    def answer(name: str, tags: list[str], version: int) -> Any:
        item = {"id": "p1", "text": seen["text"], "y": tags, "version": version}
        return people[name].post("/v1/learn", json={"items": [item]})

    assert answer("ben", ["sale"], seen["version"]).status_code == 200
    refused = answer("anna", ["repair"], seen["version"])
    assert refused.status_code == 409
    now = refused.json()["now"]
    assert (now["y"], now["by"]) == (["sale"], "ben")
    assert answer("anna", ["repair", "sale"], now["version"]).status_code == 200


def check_export(sheet: Any, truth: dict[str, list[str]]) -> None:
    """All posts are there, with their tags, and who gave them."""
    head, *rows = sheet.iter_rows(values_only=True)
    found = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert set(found) == set(truth)
    tags = {id: re.split("[|;] ?", one["y"]) for id, one in found.items()}
    assert tags.pop("p1") == ["repair", "sale"]
    assert {id: sorted(some) for id, some in tags.items()} == {
        id: sorted(some) for id, some in truth.items() if id != "p1"
    }
    assert {one["who"] for one in found.values()} == {"anna", "ben"}
