"""Tools for agents, through the SDK's own client: over a pipe, and over HTTP on the loopback."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters

from shell import is_one_line, posts, write_jsonl
from tagstream import cli
from tagstream.connect.agent import create_server
from tagstream.connect.model_file import FileTarget
from tagstream.connect.target import Lesson
from tagstream.tagger import Tagger

READS = {"suggest_tags", "explain_tags", "list_tags", "find_items", "candidates", "review"}
WRITES = {"learn", "correct"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("agent") / "m.tgs"
    FileTarget(path).learn(
        [Lesson(p["id"], p["text"], tuple(p["y"])) for p in posts(60)], [None] * 60
    )
    return path


@pytest.fixture
def copied(model, tmp_path):
    path = tmp_path / "m.tgs"
    path.write_bytes(model.read_bytes())
    return path


def with_client(server: Any, talk: Callable[[Client], Awaitable[Any]]) -> Any:
    async def go() -> Any:
        async with Client(server, read_timeout_seconds=300) as client:
            return await talk(client)

    return asyncio.run(go())


def ask(path: Any, tool: str, write: bool = True, **given: Any) -> Any:
    """Call a tool in this process; return what it answers, or its error as a string."""

    async def talk(client: Client) -> Any:
        return await client.call_tool(tool, given)

    told = with_client(create_server(FileTarget(path), write), talk)
    return told.content[0].text if told.is_error else told.structured_content


# ---------------------------------------------------------------------- two ways to talk
async def conversation(client: Client) -> dict[str, Any]:
    listed = await client.list_tools()
    told = await client.call_tool("suggest_tags", {"texts": ["swim at the beach"]})
    wrong = await client.call_tool("candidates", {"tag": "see"})
    return {
        "tools": {one.name: one.annotations for one in listed.tools},
        "told": told.structured_content,
        "wrong": wrong.content[0].text,
        "instructions": client.instructions,
    }


def check_conversation(said: dict[str, Any], tools: set[str]) -> None:
    assert said["tools"].keys() == tools
    for name, hints in said["tools"].items():
        assert hints.read_only_hint == (name in READS)
        assert hints.destructive_hint == (name in WRITES)
        assert hints.idempotent_hint
        assert not hints.open_world_hint
    (item,) = said["told"]["items"]
    assert item["tags"] == ["sea"]
    assert item["known"]
    assert "did you mean 'sea'?" in said["wrong"]
    assert "do not make up others" in said["instructions"]


def test_an_agent_talks_over_a_pipe(model):
    command = ["-m", "tagstream", "mcp", str(model)]
    started = StdioServerParameters(command=sys.executable, args=command, env={**os.environ})
    said = with_client(started, conversation)
    check_conversation(said, READS)
    assert "read-only" in said["instructions"]


def test_an_agent_talks_over_http(model):
    command = [sys.executable, "-m", "tagstream", "mcp", str(model)]
    command += ["--http", "--port", "0", "--write"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:")
            check_conversation(with_client(url, conversation), READS | WRITES)
            assert posted(url, Host="evil.example") in (403, 421)
            assert posted(url, Origin="http://evil.example") == 403
        finally:
            process.terminate()
    assert process.returncode in (0, 143, -15)


def posted(url: str, **headers: str) -> int:
    """Return the status of a request that a page in a browser might make."""
    from tagstream.serve.fetch import Host

    said = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    root, _, path = url.rpartition("/")
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}'
    return Host(root).answer("POST", f"/{path}", {**said, **headers}, body).status


# ---------------------------------------------------------------------- the tools
def test_without_write_there_is_no_tool_that_changes_anything(copied):
    before = copied.read_bytes()
    for tool, given in (
        ("learn", {"items": [{"id": "n", "text": "t", "tags": ["sea"]}]}),
        ("correct", {"id": "p1", "add": ["sea"]}),
    ):
        assert "unknown tool" in str(ask(copied, tool, write=False, **given)).lower()
    assert copied.read_bytes() == before


def test_explain_tells_similar_items_and_words(model):
    told = ask(model, "explain_tags", text="swim at the beach")
    assert told["tags"] == ["sea"]
    assert "sea" in told["similar"][0]["tags"]
    assert {*told["words"]["sea"]} & {"swim", "beach"}


def test_tags_and_items_are_found(model):
    assert ask(model, "list_tags", contains="SE") == {
        "tags": [{"tag": "sea", "count": Tagger.open(model).counts["sea"], "about": ""}],
        "total": 1,
    }
    found = ask(model, "find_items", words="beach", tag="sea", n=2)["items"]
    assert len(found) == 2
    assert all("beach" in one["text"] and "sea" in one["tags"] for one in found)
    assert "needs words or a tag" in ask(model, "find_items")


def test_candidates_and_review_tell_what_to_do(copied):
    FileTarget(copied).learn([Lesson("odd", "swim beach wave sand tide", ("code",))], [None])
    (first, *_) = ask(copied, "review", n=3)["items"]
    assert (first["id"], first["remove"], first["add"]) == ("odd", ["code"], ["sea"])
    assert first["like"]
    (first, *_) = ask(copied, "candidates", tag="sea")["items"]
    assert first["id"] == "odd"


def test_an_agent_corrects_what_it_was_told_to(copied):
    FileTarget(copied).learn([Lesson("odd", "swim beach wave", ("code",))], [None])
    told = ask(copied, "correct", id="odd", add=["sea"], remove=["code"])
    assert told == {"id": "odd", "tags": ["sea"]}
    assert Tagger.open(copied).item("odd").tags == ["sea"]
    assert "no stored item is called 'nobody'" in ask(copied, "correct", id="nobody", add=["sea"])
    assert "neither" in ask(copied, "correct", id="odd")
    assert "in both" in ask(copied, "correct", id="odd", add=["sea"], remove=["sea"])


def test_an_agent_makes_up_no_tags(copied):
    item = {"id": "new", "text": "waves", "tags": ["ocean"]}
    before = copied.read_bytes()
    assert "no tag is called 'ocean'; list_tags lists all" in ask(copied, "learn", items=[item])
    assert "nothing was changed" in ask(copied, "learn", items=[item])
    assert copied.read_bytes() == before
    assert ask(copied, "learn", items=[item], allow_new_tags=True) == {"learnt": ["new"]}
    assert Tagger.open(copied).item("new").tags == ["ocean"]


def test_arguments_that_are_wrong_are_told(model):
    assert "texts" in ask(model, "suggest_tags", texts=[])
    assert "100" in ask(model, "list_tags", n=1000)


def test_a_service_that_is_away_is_told(tmp_path):
    from tagstream.connect.service import ServiceTarget
    from tagstream.connect.web import Web

    async def talk(client: Client) -> Any:
        return await client.call_tool("list_tags", {})

    away = ServiceTarget(Web("http://127.0.0.1:9"))
    told = with_client(create_server(away), talk)
    assert told.is_error
    assert "http://127.0.0.1:9 cannot be reached" in told.content[0].text


def test_a_model_that_is_not_there(run):
    code, _, err = run("mcp", "nowhere.tgs")
    assert code == 1
    assert is_one_line(err)


def test_the_tools_follow_a_file_that_changes(copied, tmp_path):
    target = FileTarget(copied)

    async def talk(client: Client) -> Any:
        before = await client.call_tool("list_tags", {})
        path = write_jsonl(tmp_path / "more.jsonl", [{"id": "z", "text": "x", "y": ["zoo"]}])
        code = await asyncio.to_thread(cli.main, ["learn", path, "-m", str(copied), "-q"])
        assert code == 0
        after = await client.call_tool("list_tags", {})
        return before.structured_content["total"], after.structured_content["total"]

    assert with_client(create_server(target), talk) == (3, 4)
