"""What a team does through the API: undo, many items at once, search, tokens, skipping, news."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from fake_tagger import FakeTagger
from serving import serving
from tagstream.knows.next_items import is_random
from tagstream.serve.live import Live
from tagstream.serve.tokens import Tokens
from tagstream.serve.writer import Change, Service


def team_of(folder: Any, client: Any, tokens: dict[str, str]) -> Any:
    def call(who: str, method: str, path: str, status: int = 200, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {tokens[who]}", **more.pop("headers", {})}
        answer = client.request(method, path, headers=headers, **more)
        assert answer.status_code == status, answer.text
        return answer.json()

    call.client, call.tokens, call.folder = client, tokens, folder
    return call


def tokens_in(folder: Any) -> dict[str, str]:
    made = Tokens(folder / "tokens.json")
    return {
        name: made.add(name, role)
        for name, role in (("anna", "write"), ("ben", "write"), ("eve", "read"), ("root", "admin"))
    }


@pytest.fixture
def team(tmp_path):
    """A service with a team; returns a function that calls it as one of them."""
    tokens = tokens_in(tmp_path)
    with serving(tmp_path) as client:
        yield team_of(tmp_path, client, tokens)


def learn(call: Any, who: str, *items: tuple[str, str, list[str]], status: int = 200) -> Any:
    bodies = [{"id": name, "text": text, "y": y} for name, text, y in items]
    return call(who, "POST", "/v1/learn", status, json={"items": bodies})


def tags_of(call: Any, name: str) -> list[str] | None:
    answer = call.client.get(
        f"/v1/items/{name}", headers={"Authorization": f"Bearer {call.tokens['eve']}"}
    )
    return answer.json().get("y") if answer.status_code == 200 else None


def found(call: Any, **query: Any) -> list[str]:
    return [one["id"] for one in call("eve", "GET", "/v1/items", params=query)["items"]]


# ---------------------------------------------------------------------- undo
def test_undo_takes_back_my_own_last_change_and_then_the_one_before(team):
    learn(team, "anna", ("1", "low tide", ["sea"]))
    learn(team, "anna", ("1", "low tide", ["mud"]))
    learn(team, "ben", ("2", "rain", ["sky"]))
    assert team("anna", "GET", "/v1/undo")["change"]["ids"] == ["1"]
    assert team("anna", "POST", "/v1/undo")["ids"] == ["1"]
    assert tags_of(team, "1") == ["sea"]
    assert team("anna", "POST", "/v1/undo", json={})["n"] == 1
    assert tags_of(team, "1") is None
    assert tags_of(team, "2") == ["sky"]
    assert team("anna", "GET", "/v1/undo")["change"] is None
    team("anna", "POST", "/v1/undo", 404)
    team("eve", "POST", "/v1/undo", 403)


def test_undo_is_refused_if_somebody_changed_the_item_since(team):
    position = learn(team, "anna", ("1", "low tide", ["sea"]))["position"]
    learn(team, "ben", ("1", "low tide", ["mud"]))
    told = team("anna", "POST", "/v1/undo", 409)
    assert (told["now"]["y"], told["now"]["by"]) == (["mud"], "ben")
    team("ben", "POST", "/v1/undo", 404, json={"position": position})  # not ben's
    team("ben", "POST", "/v1/undo")
    team("anna", "POST", "/v1/undo")  # nothing of ben is left
    assert tags_of(team, "1") is None


def test_what_was_undone_already_is_not_undone_twice_and_a_retry_is_safe(team):
    position = learn(team, "anna", ("1", "low tide", ["sea"]))["position"]
    first = team("anna", "POST", "/v1/undo", json={"key": "once"})
    again = team("anna", "POST", "/v1/undo", headers={"Idempotency-Key": "once"})
    assert (first["n"], again["n"], again["duplicates"]) == (1, 0, 1)
    team("anna", "POST", "/v1/undo", 409, json={"position": position})


def test_an_undone_item_waits_again_if_it_waited(team):
    team("anna", "POST", "/v1/pool", json={"items": [{"id": "1", "text": "low tide"}]})
    learn(team, "anna", ("1", "low tide", ["sea"]), ("2", "rain", ["sky"]))
    assert found(team, state="waiting") == []
    team("anna", "POST", "/v1/undo")
    assert found(team, state="waiting") == ["1"]
    assert [one["id"] for one in team("anna", "GET", "/v1/next")["items"]] == ["1"]
    assert tags_of(team, "2") is None


def test_a_rename_is_undone_and_a_merge_is_not(team):
    learn(team, "root", ("1", "low tide", ["sea"]), ("2", "rain", ["sky"]))
    team("root", "POST", "/v1/tags/rename", json={"old": "sea", "new": "ocean"})
    team("root", "POST", "/v1/undo")
    assert tags_of(team, "1") == ["sea"]
    team("root", "POST", "/v1/tags/merge", json={"tags": ["sky"], "into": "sea"})
    assert "merge" in team("root", "POST", "/v1/undo", 409)["error"]
    assert tags_of(team, "2") == ["sea"]


def test_an_item_gets_its_tags_back_by_their_present_names(team):
    learn(team, "anna", ("1", "low tide", ["sea"]), ("2", "reef", ["sea"]))
    team("anna", "POST", "/v1/forget", json={"ids": ["1", "2"]})
    learn(team, "ben", ("3", "surf", ["sea"]))
    team("root", "POST", "/v1/tags/rename", json={"old": "sea", "new": "ocean"})
    assert sorted(team("anna", "POST", "/v1/undo")["ids"]) == ["1", "2"]
    assert tags_of(team, "1") == tags_of(team, "2") == ["ocean"]


def test_undo_survives_a_restart(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        bodies = [{"id": str(i), "text": f"text {i}", "y": ["a"]} for i in range(3)]
        service.submit(Change("learn", bodies, [None] * 3, is_one=True)).result(60)
    with Service(tmp_path, FakeTagger) as service:
        done = service.submit(Change("undo", [{"position": None}], [None])).result(60)
        assert sorted(done.ids) == ["0", "1", "2"]
        state = service._tagger.state()
    with Service(tmp_path, FakeTagger) as service:
        assert service._tagger.state() == state
        assert service._tagger.items == {}
        assert service.spans.is_undo(1)


# ---------------------------------------------------------------------- many at once
def test_many_items_get_and_lose_tags_in_one_change(team):
    learn(team, "anna", ("1", "low tide", ["sea"]), ("2", "rain", ["sky"]), ("3", "reef", ["sea"]))
    before = team.client.service.read().position
    told = team(
        "ben", "POST", "/v1/items/tags",
        json={"ids": ["1", "2", "3", "9"], "add": ["wet"], "remove": ["sky"], "key": "all"},
    )  # fmt: skip
    assert (told["n"], told["missing"]) == (3, ["9"])
    assert [tags_of(team, name) for name in "123"] == [["sea", "wet"], ["wet"], ["sea", "wet"]]
    again = {"ids": ["1", "2", "3"], "add": ["wet"], "remove": ["sky"], "key": "all"}
    assert team("ben", "POST", "/v1/items/tags", json=again)["duplicates"] == 3
    assert team.client.service.log.end_of_group(before + 1) == before + 4  # one group
    assert team("ben", "POST", "/v1/undo")["n"] == 3
    assert [tags_of(team, name) for name in "123"] == [["sea"], ["sky"], ["sea"]]


def test_a_bulk_change_keeps_what_others_have_said_meanwhile(team):
    learn(team, "anna", ("1", "low tide", ["sea"]))
    learn(team, "ben", ("1", "low tide", ["sea", "moon"]))
    team("anna", "POST", "/v1/items/tags", json={"ids": ["1"], "add": ["wet"]})
    assert tags_of(team, "1") == ["sea", "moon", "wet"]


def test_candidates_are_answered_and_undone_as_one(team):
    learn(team, "anna", ("1", "low tide", ["mud"]), ("2", "reef", []), ("3", "surf", ["sea"]))
    body = {"tag": "sea", "accept": ["1", "2"], "refuse": ["3"]}
    assert team("ben", "POST", "/v1/candidates", json=body)["n"] == 3
    assert team("eve", "GET", "/v1/items/3")["no"] == ["sea"]
    team("ben", "POST", "/v1/undo")
    assert [tags_of(team, name) for name in "123"] == [["mud"], [], ["sea"]]
    assert "no" not in team("eve", "GET", "/v1/items/3")
    team("ben", "POST", "/v1/candidates", 404, json={"tag": "sea", "accept": ["1", "none"]})
    assert tags_of(team, "1") == ["mud"]


def test_the_first_change_of_an_item_of_the_beginning_can_be_undone(tmp_path):
    pytest.importorskip("numba")
    from tagstream import OML
    from tagstream.tagger import Tagger

    tagger = Tagger(OML(n_neighbors=3, random_state=0))
    tagger.learn([{"id": f"{i}", "text": f"low tide {i}", "y": ["sea"]} for i in range(30)])
    tagger.save(tmp_path / "m.tgs")
    folder = tmp_path / "served"
    with Service(folder, model=tmp_path / "m.tgs") as service:
        assert service.index.find(index_query("tide 7"), 5).ids == ("7",)
        body = {"id": "7", "text": "low tide 7", "y": ["moon"]}
        assert service.submit(Change("learn", [body], [None])).result(60).n == 1
        assert service.state_of("7")["y"] == ["moon"]
        service.submit(Change("forget", [{"id": "8"}], [None])).result(60)
        assert service.index.find(index_query("tide 8"), 5).ids == ()
        for _ in range(2):
            service.submit(Change("undo", [{"position": None}], [None])).result(60)
        assert service.state_of("7")["y"] == service.state_of("8")["y"] == ["sea"]
        assert service.index.find(index_query("tide 8"), 5).ids == ("8",)


def index_query(words: str) -> Any:
    from tagstream.serve.index import Query

    return Query(words)


# ---------------------------------------------------------------------- search
def test_items_are_found_by_words_tags_people_and_state(team):
    learn(team, "anna", ("1", "Low tide at the beach", ["sea"]), ("2", "Café by the sea", []))
    learn(team, "ben", ("3", "Heavy rain", ["sky", "wet"]))
    team("ben", "POST", "/v1/pool", json={"items": [{"id": "4", "text": "the tide turns"}]})
    assert found(team) == ["3", "2", "1"]
    assert found(team, q="tide") == ["1"]
    assert found(team, q="tide", state="all") == ["1", "4"]
    assert found(team, q='"low tide" bea') == ["1"]
    assert found(team, q="cafe") == ["2"]
    for signs in ("*(", "\0", '"', "NEAR(", "a\0b", "\ufffe"):
        assert found(team, q=signs) == []
    assert found(team, tag="wet") == ["3"]
    assert found(team, without_tag="wet") == ["2", "1"]
    assert found(team, who="anna", state="untagged") == ["2"]
    assert found(team, source="http", n=1) == ["3"]
    assert found(team, since="2001-01-01") == ["3", "2", "1"]
    assert found(team, until="2001-01-01T00:00:00Z") == []
    team("eve", "GET", "/v1/items", 422, params={"since": "yesterday"})
    team("eve", "GET", "/v1/items", 422, params={"cursor": "x"})


def test_all_items_come_once_however_many_come_at_a_time(team):
    learn(team, "anna", *((f"{i}", f"text {i}", ["a"]) for i in range(23)))
    seen, cursor = [], None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        told = team("eve", "GET", "/v1/items", params={"n": 5, "q": "text", **more})
        seen += [one["id"] for one in told["items"]]
        assert (told["n_found"], told["capped"]) == (23, False)
        cursor = told["next"]
        if cursor is None:
            break
    assert seen == [f"{i}" for i in reversed(range(23))]


def test_a_forgotten_item_leaves_the_search_at_once(team):
    learn(team, "anna", ("1", "zanzibar", ["sea"]), ("2", "rain", ["sky"]))
    assert found(team, q="zanzibar") == ["1"]
    team("anna", "POST", "/v1/forget", json={"ids": ["1"]})
    assert found(team, q="zanzibar") == found(team, q="zanzibar", state="all") == []


def test_the_search_follows_tags_that_change(team):
    learn(
        team, "root", ("1", "low tide", ["sea", "mud"]), ("2", "reef", ["sea"]), ("3", "x", ["b"])
    )
    preview = team(
        "eve", "POST", "/v1/tags/merge/preview", json={"tags": ["sea", "mud"], "into": "shore"}
    )
    assert (preview["counts"], preview["n_after"], preview["n_both"]) == (
        {"sea": 2, "mud": 1, "shore": 0}, 2, 1,
    )  # fmt: skip
    assert [one["id"] for one in preview["examples"]] == ["1"]
    team("root", "POST", "/v1/tags/merge", json={"tags": ["sea", "mud"], "into": "shore"})
    assert found(team, tag="shore") == ["2", "1"]
    assert found(team, tag="sea") == []
    team("root", "POST", "/v1/tags/remove", json={"tag": "shore"})
    assert found(team, state="untagged") == ["2", "1"]
    team("eve", "POST", "/v1/tags/merge/preview", 404, json={"tags": ["none"], "into": "b"})


def rows_of(service: Service) -> list[Any]:
    with contextlib.closing(sqlite3.connect(service.index.path)) as database:
        items = "SELECT id, rank, who, source, state, waits, stamp FROM items ORDER BY id"
        tags = "SELECT i.id, t.tag FROM tags t JOIN items i ON i.number = t.item ORDER BY 1, 2"
        texts = (
            "SELECT i.id, x.id, x.text FROM texts x JOIN items i ON i.number = x.rowid ORDER BY 1"
        )
        return [database.execute(sql).fetchall() for sql in (items, tags, texts)]


def change_all(service: Service, n: int) -> None:
    """Changes of all kinds that the search follows."""

    def do(kind: str, *bodies: dict[str, Any]) -> None:
        service.submit(Change(kind, [*bodies], [None] * len(bodies))).result(60)

    do(
        "learn",
        *({"id": f"{n}.{i}", "text": f"word{i} {n}", "y": ["a", f"t{i}"]} for i in range(5)),
    )
    do("pool", *({"id": f"p{n}.{i}", "item": {"text": f"waits {i}"}} for i in range(4)))
    do("learn", {"id": f"p{n}.0", "text": "waits 0", "y": ["b"]})
    do("unpool", {"id": f"p{n}.1"})
    do("auto", {"id": f"auto{n}", "text": "applied", "y": ["a"]})
    do("forget", {"id": f"{n}.1"})
    do("rename", {"old": "t2", "new": "two"})
    do("merge", {"tags": ["t3", "two"], "into": "many"})
    do("undo", {"position": None}) if n % 2 else do("remove", {"tag": "many"})


@pytest.mark.parametrize("damage", ["none", "missing", "damaged", "old", "of another log"])
def test_the_search_is_made_anew_from_the_log_whatever_happened_to_it(tmp_path, damage):
    with Service(tmp_path, FakeTagger) as service:
        change_all(service, 0)
        old = service.index.path.with_name("old.db")
        now, copy = sqlite3.connect(service.index.path), sqlite3.connect(old)
        with contextlib.closing(now), contextlib.closing(copy):
            now.backup(copy)
        service.submit(
            Change("learn", [{"id": "last", "text": "last", "y": ["many2"]}], [None])
        ).result(60)
        expected = rows_of(service)
        path = service.index.path
    if damage == "missing":
        path.unlink()
    elif damage == "damaged":
        content = bytearray(path.read_bytes())
        content[len(content) // 3 : len(content) // 3 + 5000] = b"\xff" * 5000
        path.write_bytes(content)
    elif damage == "old":
        old.replace(path)
    elif damage == "of another log":
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE known SET digest = x'00'")
            database.execute("UPDATE items SET who = 'nobody'")
    with Service(tmp_path, FakeTagger) as service:
        assert rows_of(service) == expected


def test_a_search_that_cannot_be_written_stops_nothing_and_comes_back(team, monkeypatch):
    service = team.client.service
    learn(team, "anna", ("1", "low tide", ["sea"]))
    monkeypatch.setattr(
        service.index, "put", lambda *_: (_ for _ in ()).throw(sqlite3.OperationalError("full"))
    )
    learn(team, "anna", ("2", "rain", ["sky"]))
    team("eve", "GET", "/v1/items", 503)
    monkeypatch.undo()
    learn(team, "anna", ("3", "reef", ["sea"]))  # the first try was long ago enough
    assert found(team) == ["3", "2", "1"]


# ---------------------------------------------------------------------- people
def test_who_one_is(team):
    assert team("anna", "GET", "/v1/me").items() >= {"who": "anna", "role": "write"}.items()
    assert team("root", "GET", "/v1/me").items() >= {"role": "admin", "open": False}.items()


def test_without_tokens_one_is_local_and_the_first_token_is_an_admins(tmp_path):
    with serving(tmp_path) as client:
        assert client.get("/v1/me").json().items() >= {
            "who": "local", "role": "admin", "open": True,
        }.items()  # fmt: skip
        assert client.post("/v1/tokens", json={"name": "a", "role": "write"}).status_code == 409
        made = client.post("/v1/tokens", json={"name": "root", "role": "admin"})
        assert made.status_code == 201
        assert client.get("/v1/me").status_code == 401
        headers = {"Authorization": f"Bearer {made.json()['token']}"}
        assert client.get("/v1/me", headers=headers).json()["who"] == "root"


def test_tokens_are_made_listed_and_revoked(team):
    made = team("root", "POST", "/v1/tokens", 201, json={"name": "dora", "role": "read"})
    assert made["token"].startswith("tgs_")
    listed = team("root", "GET", "/v1/tokens")["tokens"]
    assert [one["name"] for one in listed] == ["anna", "ben", "eve", "root", "dora"]
    assert made["token"] not in json.dumps(listed)
    team.tokens["dora"] = made["token"]
    assert team("dora", "GET", "/v1/me")["role"] == "read"
    team("root", "POST", "/v1/tokens", 409, json={"name": "dora"})
    assert team("root", "POST", "/v1/tokens/revoke", json={"name": "dora"}) == {"revoked": True}
    team("dora", "GET", "/v1/me", 401)
    team("root", "POST", "/v1/tokens/revoke", 404, json={"name": "dora"})
    team("root", "POST", "/v1/tokens/revoke", 409, json={"name": "root"})
    team("anna", "GET", "/v1/tokens", 403)


def test_a_skipped_item_comes_last_for_whoever_skipped_it(team):
    items = [{"id": name, "text": f"{name} {name}{name}"} for name in ("ox", "ant", "bee")]
    team("anna", "POST", "/v1/pool", json={"items": items})
    first = team("anna", "GET", "/v1/next", params={"n": 1, "order": "arrival"})["items"][0]["id"]
    assert first == "ox"
    team("anna", "POST", "/v1/lease", json={"id": "ox"})
    assert team("anna", "POST", "/v1/skip", json={"id": "ox"}) == {"released": True}

    def order(who: str) -> list[str]:
        told = team(who, "GET", "/v1/next", params={"order": "arrival"})["items"]
        return [one["id"] for one in told]

    assert order("anna") == ["ant", "bee", "ox"]
    assert order("ben") == ["ox", "ant", "bee"]


# ---------------------------------------------------------------------- tags, errors, quarantine
def test_the_list_of_tags_has_their_quality_and_policy(team):
    learn(team, "anna", *((f"{i}", f"low tide {i % 3}", ["sea"]) for i in range(30)))
    listed = team("eve", "GET", "/v1/tags")["tags"]
    assert [one["tag"] for one in listed] == ["sea"]
    assert listed[0]["count"] == 30
    assert listed[0]["mode"] == "suggest"
    assert len(listed[0]["spark"]) == 12
    assert team("eve", "GET", "/v1/exclusive") == {"groups": []}


def test_progress_is_told_for_each_person(team):
    learn(team, "anna", *((f"{i}", f"low tide {i % 3}", ["sea"]) for i in range(30)))
    learn(team, "ben", *((f"b{i}", "heavy rain", ["sky"]) for i in range(10)))
    told = {one["who"]: one for one in team("eve", "GET", "/v1/progress")["people"]}
    assert {who: one["n"] for who, one in told.items()} == {
        "anna": sum(is_random(f"{i}") for i in range(30)),
        "ben": sum(is_random(f"b{i}") for i in range(10)),
    }
    assert told["ben"]["micro_f1"] == 0.0  # nobody had said sky before


def test_errors_are_problem_details_for_whoever_asks_so(team):
    learn(team, "anna", ("1", "low tide", ["sea"]))
    body = {"items": [{"id": "1", "text": "low tide", "y": ["mud"], "version": 0}]}
    headers = {
        "Accept": "application/problem+json",
        "Authorization": f"Bearer {team.tokens['ben']}",
    }
    answer = team.client.post("/v1/learn", json=body, headers=headers)
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert (told["type"], told["title"], told["status"]) == ("about:blank", "Conflict", 409)
    assert told["now"]["y"] == ["sea"]
    assert "version of item '1'" in told["detail"]
    for status, made in (
        (401, {"Authorization": "Bearer none"}),
        (422, {"content": b'{"items": 3}', "content-type": "application/json"}),
    ):
        content = made.pop("content", b"")
        refused = team.client.post("/v1/learn", content=content, headers={**headers, **made})
        assert (refused.status_code, refused.json()["status"]) == (status, status)


def test_a_header_may_hold_the_key(team):
    body = {"items": [{"id": "1", "text": "low tide", "y": ["sea"]}]}
    headers = {"Idempotency-Key": "mine"}
    assert team("anna", "POST", "/v1/learn", json=body, headers=headers)["n"] == 1
    assert team("anna", "POST", "/v1/learn", json=body, headers=headers)["duplicates"] == 1
    body["items"][0]["y"] = ["mud"]
    team("anna", "POST", "/v1/learn", 409, json=body, headers=headers)
    body["items"].append({"id": "2", "text": "reef", "y": ["sea"]})
    told = team("anna", "POST", "/v1/learn", json=body, headers={"Idempotency-Key": "two"})
    assert told["n"] == 2
    assert team.client.service.log.find_key("two:1").item == "2"
    other = {"ids": ["1"], "key": "a"}
    team("anna", "POST", "/v1/forget", 422, json=other, headers={"Idempotency-Key": "b"})


def test_quarantined_changes_are_listed(team, monkeypatch):
    usual = FakeTagger.learn

    def failing(self: FakeTagger, records: Any, **more: Any) -> int:
        if any("venom" in record["text"] for record in records):
            raise RuntimeError("a fault")
        return usual(self, records)

    monkeypatch.setattr(FakeTagger, "learn", failing)
    learn(team, "anna", ("1", "venom", ["sea"]), status=422)
    told = team("eve", "GET", "/v1/quarantine")["events"]
    assert [(one["id"], one["who"], one["text"]) for one in told] == [("1", "anna", "venom")]
    assert "a fault" in told[0]["why"]


# ---------------------------------------------------------------------- news
class Stream:
    """Reads a stream of news as a window does."""

    def __init__(self, call: Any, who: str = "eve", **params: Any) -> None:
        headers = {"Authorization": f"Bearer {call.tokens[who]}"}
        self._context = call.client.stream("GET", "/v1/events", headers=headers, params=params)
        self.answer = self._context.__enter__()
        self._lines = self.answer.iter_lines()

    def next(self) -> tuple[str, Any]:
        told: dict[str, str] = {}
        for line in self._lines:
            if line.startswith(":"):
                continue
            if not line and told:
                return told["event"], json.loads(told["data"])
            name, _, value = line.partition(": ")
            if name:
                told[name] = value
        return "closed", None

    def until(self, kind: str) -> Any:
        while True:
            event, data = self.next()
            if event == kind:
                return data
            assert event != "closed"

    def close(self) -> None:
        self._context.__exit__(None, None, None)


def test_news_tell_what_others_change(team):
    stream = Stream(team)
    assert stream.answer.headers["content-type"].startswith("text/event-stream")
    assert stream.next()[1]["n_items"] == 0
    learn(team, "anna", ("1", "low tide", ["sea"]))
    items = stream.until("items")["items"]
    assert [(one["id"], one["kind"], one["who"]) for one in items] == [("1", "learn", "anna")]
    assert stream.until("state")["n_items"] == 1
    team("anna", "POST", "/v1/pool", json={"items": [{"id": "2", "text": "rain"}]})
    assert stream.until("state")["n_pool"] == 1
    stream.close()
    again = Stream(team, after=0)
    assert [one["id"] for one in again.until("items")["items"]] == ["1"]
    again.close()


def test_the_news_end_when_the_service_ends(tmp_path):
    tokens = tokens_in(tmp_path)
    import httpx

    with contextlib.ExitStack() as stack:
        with serving(tmp_path) as client:
            window = stack.enter_context(httpx.Client(base_url=client.url, trust_env=False))
            stream = Stream(team_of(tmp_path, window, tokens))
            stream.next()
        # The service has ended, and did not wait for the window.
        assert [stream.next()[0] for _ in range(2)] == ["end", "closed"]


def test_news_need_a_token_and_end_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tagstream.serve.live.ALIVE_SECONDS", 0.01)
    monkeypatch.setattr(Live.__init__, "__defaults__", (600.0, 0.01, 0.0))
    tokens = tokens_in(tmp_path)
    with serving(tmp_path) as client:
        team = team_of(tmp_path, client, tokens)
        assert client.get("/v1/events").status_code == 401
        stream = Stream(team, "ben")
        stream.next()
        team("root", "POST", "/v1/tokens/revoke", json={"name": "ben"})
        assert stream.until("end") == {}
        stream.close()


def test_streams_leave_memory_and_descriptors_as_they_were(team):
    """Windows that are opened, told of changes and closed, again and again."""
    sizes = []
    for i in range(120):
        streams = [Stream(team) for _ in range(3)]
        for stream in streams:
            stream.next()
        learn(team, "anna", (f"{i % 5}", f"low tide {i}", ["sea"]))
        for stream in streams:
            stream.until("items")
            stream.close()
        if i % 20 == 19:
            live = team.client.service.on_change.__self__
            while len(live):  # the server sees a moment later that they are gone
                team("eve", "GET", "/v1/info")
            sizes.append(len(os.listdir("/proc/self/fd")))
    assert max(sizes[1:]) - min(sizes[1:]) <= 8  # those that are being closed


def test_there_are_not_more_streams_than_is_good(team, monkeypatch):
    monkeypatch.setattr("tagstream.serve.live.MOST", 2)
    streams = [Stream(team) for _ in range(2)]
    for stream in streams:
        stream.next()
    assert team("eve", "GET", "/v1/events", 429)["error"]
    for stream in streams:
        stream.close()
