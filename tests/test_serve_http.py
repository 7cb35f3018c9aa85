"""The service over HTTP: shapes, roles, limits, errors that name the field, the page's headers."""

from __future__ import annotations

import hmac
import json
import logging
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
pytest.importorskip("prometheus_client")
pytest.importorskip("uvicorn")

from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_tagger import FakeTagger
from serving import serving
from tagstream import OML
from tagstream.serve import gate, schema, writer
from tagstream.serve.app import create_app, roles_of
from tagstream.serve.example import example_changes
from tagstream.serve.routes import desk
from tagstream.serve.run import JsonLines, address, check_host
from tagstream.serve.tokens import Tokens
from tagstream.serve.writer import Change, Service
from tagstream.tagger import Tagger

# What each route needs; docs/service.md has the same table.
ROLES = {
    "open": """GET / GET /docs GET /page/{file} GET /health/live GET /health/ready""",
    "read": """POST /v1/suggest POST /v1/explain GET /v1/items GET /v1/tags GET /v1/next
        GET /v1/items/{id} GET /v1/items/{id}/history GET /v1/people
        GET /v1/me GET /v1/undo GET /v1/exclusive GET /v1/quarantine GET /v1/events
        GET /v1/agreement GET /v1/conflicts GET /v1/imports GET /v1/export
        POST /v1/tags/merge/preview GET /v1/review GET /v1/candidates GET /v1/promises
        GET /v1/tags/similar GET /v1/tags/health GET /v1/duplicates
        GET /v1/progress GET /v1/info GET /metrics GET /openapi.json""",
    "write": """POST /v1/learn POST /v1/forget POST /v1/pool POST /v1/pool/remove GET /ls GET /ls/
        POST /v1/candidates POST /v1/apply POST /v1/lease POST /v1/lease/release
        POST /v1/import POST /v1/import/preview POST /v1/undo POST /v1/skip POST /v1/items/tags
        GET /ls/health GET /ls/versions POST /ls/setup POST /ls/predict POST /ls/webhook""",
    "admin": """GET /v1/tokens POST /v1/tokens POST /v1/tokens/revoke
        POST /v1/tags/declare POST /v1/tags/describe POST /v1/tags/rename
        POST /v1/tags/merge POST /v1/tags/remove POST /v1/refit
        POST /v1/tags/exclusive POST /v1/tags/promise
        POST /v1/snapshot POST /v1/label-studio/pull""",
}
NEEDED = {
    (method, path): role
    for role, routes in ROLES.items()
    for method, path in zip(routes.split()[::2], routes.split()[1::2], strict=True)
}


@pytest.fixture
def client(tmp_path):
    with serving(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("shared")) as made:
        yield made


def item(name: str, text: str, *tags: str) -> dict[str, Any]:
    return {"id": name, "text": text, "y": [*tags]}


def learn(client: Any, *items: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/v1/learn", json={"items": [*items]})
    assert answer.status_code == 200, answer.text
    return answer.json()


# ---------------------------------------------------------------------- the loop
def test_suggest_correct_learn(client):
    assert learn(client, item("1", "sort a list", "python"), item("2", "swim", "sea")) == {
        "n": 2,
        "duplicates": 0,
        "position": 2,
    }
    told = client.post("/v1/suggest", json={"items": [{"text": "sort this list"}]}).json()
    assert told["items"][0]["tags"] == ["python"]
    assert next(iter(told["items"][0]["scores"])) == "python"
    learn(client, item("1", "sort a list", "lists"))
    told = client.post("/v1/suggest", json={"items": [{"text": "sort this list"}], "top": 1})
    assert told.json()["items"][0]["tags"] == ["lists"]
    assert learn(client, item("1", "sort a list", "lists"))["duplicates"] == 1


def test_why_has_the_neighbours_text_and_what_spoke_for_each_tag(client):
    learn(client, item("1", "sort a list", "python"))
    told = client.post("/v1/explain", json={"items": [{"text": "sort"}]}).json()["items"][0]
    assert told["neighbours"][0]["text"] == "sort a list"
    assert told["neighbours"][0]["tags"] == ["python"]
    assert set(told["parts"]) == {"python"}


def test_the_next_item_is_another_question_than_any_item(client):
    learn(client, item("1", "sort a list", "python"), item("2", "swim", "sea"))
    items = {"items": [{"text": "sort this list"}]}
    for asked, tag in (({}, "python"), ({"next": False}, "python"), ({"next": True}, "sea")):
        told = client.post("/v1/suggest", json={**items, **asked}).json()["items"][0]
        assert told["tags"] == [tag]
        why = client.post("/v1/explain", json={**items, **asked}).json()["items"][0]
        assert why["tags"] == [tag]
        assert [*why["parts"]] == [tag]


def test_the_item_that_is_asked_about_by_its_id_speaks_first(client):
    learn(client, item("1", "sort a list", "python"), item("2", "sort a list", "lists"))
    for name, tag in (("1", "python"), ("2", "lists")):
        asked = {"items": [{"id": name, "text": "sort a list"}]}
        assert client.post("/v1/suggest", json=asked).json()["items"][0]["tags"] == [tag]
        assert client.post("/v1/explain", json=asked).json()["items"][0]["tags"] == [tag]


def test_numbers_and_named_values_are_items_too(client):
    numbers = [{"id": 1, "x": [0.5, 2], "y": ["a"]}, {"id": "2", "x": [3, 4.5], "y": []}]
    assert learn(client, *numbers)["n"] == 2
    told = client.post("/v1/suggest", json={"items": [{"x": [0.5, 2]}]})
    assert told.status_code == 200
    wrong = client.post("/v1/suggest", json={"items": [{"text": "t"}]})
    assert (wrong.status_code, wrong.json()["field"]) == (422, "items")


def test_items_tell_who_gave_their_tags_when_and_through_what(tmp_path):
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.add("anna", "write")
    with serving(tmp_path, is_open=False) as client:
        client.headers["Authorization"] = f"Bearer {secret}"
        learn(client, item("1", "a b", "py"))
        client.headers["X-Tagstream-Source"] = "page"
        learn(client, item("2", "b c", "python"))
        body = {
            "action": "ANNOTATION_CREATED",
            "project": {
                "id": 1,
                "label_config": '<View><Text name="t" value="$text"/>'
                '<Choices name="c" toName="t"><Choice value="sea"/></Choices></View>',
            },
            "task": {"id": 5, "data": {"text": "swim"}},
            "annotation": {"id": 7, "updated_at": "2026-11-16T10:00:09Z", "result": []},
        }
        assert client.post("/ls/webhook", json=body).status_code == 201
        third, second, first = client.get("/v1/items").json()["items"]
        assert (first["who"], first["source"]) == ("anna", "http")
        assert (second["who"], second["source"]) == ("anna", "page")
        assert (third["who"], third["source"]) == ("anna", "label studio")
        assert first["when"] <= second["when"] <= third["when"]
        assert first["when"].endswith("+00:00")


def test_without_tokens_changes_are_made_by_local(client):
    learn(client, item("1", "a b", "py"))
    (found,) = client.get("/v1/items").json()["items"]
    assert (found["who"], found["source"]) == ("local", "http")


def test_forget_and_tags(client):
    learn(client, item("1", "a b", "py"), item("2", "b c", "python"), item("3", "d", "sea"))
    assert client.post("/v1/forget", json={"ids": ["3", "nobody"]}).json()["n"] == 1
    merged = {"tags": ["py"], "into": "python", "key": "m"}
    assert client.post("/v1/tags/merge", json=merged).json()["n"] == 1
    assert client.post("/v1/tags/merge", json=merged).json() == {
        "n": 0,
        "duplicates": 1,
        "position": 6,
    }
    renamed = {"old": "python", "new": "snake"}
    assert client.post("/v1/tags/rename", json=renamed).json()["n"] == 1
    again = client.post("/v1/tags/rename", json=renamed)
    assert (again.status_code, again.json()["field"]) == (404, "old")
    tags = client.get("/v1/tags").json()["tags"]
    assert [(tag["tag"], tag["count"]) for tag in tags] == [("snake", 2)]
    assert set(tags[0]["lately"]) == {"n", "precision", "recall", "f1"}
    assert client.get("/v1/items").json()["items"][0]["y"] == ["snake"]
    assert client.get("/v1/items?tag=sea").json()["items"] == []
    assert client.post("/v1/tags/remove", json={"tag": "snake"}).json()["n"] == 1
    assert client.get("/v1/tags").json() == {"tags": []}


def test_tags_are_declared_and_described(tmp_path):
    with serving(tmp_path, tagger=Tagger) as client:
        declared = {"tags": {"travel": "train, hotel", "music": ""}, "key": "d"}
        assert client.post("/v1/tags/declare", json=declared).json()["n"] == 1
        assert client.post("/v1/tags/declare", json=declared).json()["duplicates"] == 1
        assert client.post("/v1/tags/declare", json={"tags": ["sport"]}).json()["n"] == 1
        about = {"tag": "sport", "about": "football"}
        assert client.post("/v1/tags/describe", json=about).json()["n"] == 1
        found = {tag["tag"]: tag["about"] for tag in client.get("/v1/tags").json()["tags"]}
        assert found == {"travel": "train, hotel", "music": "", "sport": "football"}
        asked = {"items": [{"text": "a cheap hotel"}]}
        (said,) = client.post("/v1/suggest", json=asked).json()["items"]
        assert next(iter(said["scores"])) == "travel"
        unknown = client.post("/v1/tags/describe", json={"tag": "x", "about": "y"})
        assert (unknown.status_code, unknown.json()["field"]) == (404, "tag")
        for bad in ({"tags": []}, {"tags": {}}, {"tags": {"a": 3}}, {"tags": {"": "x"}}, {}):
            assert client.post("/v1/tags/declare", json=bad).status_code == 422


def test_info_progress_snapshot_and_metrics(client, tmp_path):
    learn(client, item("1", "sort a list", "python"), item("2", "sort a list now", "python"))
    info = client.get("/v1/info").json()
    assert (info["n_items"], info["position"], info["n_tags"]) == (2, 3, 1)
    assert info["model_version"].endswith("+3")  # two items, and the end of their group
    assert client.get("/v1/progress").json()["curve"][-1]["position"] == 2
    assert client.post("/v1/snapshot").json()["position"] == 3
    assert (tmp_path / "snapshots" / "000000000003.tgs").exists()
    metrics = client.get("/metrics").text
    names = {line.split("{")[0].split()[0] for line in metrics.splitlines() if line[0] != "#"}
    assert {"tagstream_items", "tagstream_requests_total", "tagstream_log_position"} <= names
    assert all(name.startswith("tagstream_") for name in names)


def test_a_bound_is_among_the_metrics(tmp_path):
    def gauges(client):
        lines = client.get("/metrics").text.splitlines()
        found = dict(
            line.split() for line in lines if line.startswith("tagstream_") and "{" not in line
        )
        return float(found["tagstream_squared_loss"]), float(found["tagstream_loss_bound"])

    rng = np.random.default_rng(0)
    some = [
        {"id": str(i), "x": rng.normal(size=3).tolist(), "y": [f"t{rng.integers(4)}"]}
        for i in range(60)
    ]
    start = Tagger(OML(step="convex", random_state=0))
    start.learn(some)
    (tmp_path / "convex").mkdir()
    start.save(tmp_path / "convex" / "base.tgs")
    with serving(tmp_path / "plain") as client:
        assert np.isnan(gauges(client)).all()
    with serving(tmp_path / "convex", tagger=Tagger) as client:
        assert gauges(client) == start.loss_and_bound
        assert 0 < start.loss_and_bound[0] <= start.loss_and_bound[1]


def test_what_to_tag_next(client):
    learn(client, item("1", "sort list", "a"), item("2", "swim sea", "b"))
    pool = [{"id": "p1", "text": "sort list"}, {"id": "p2", "text": "sort swim salt"}]
    assert client.post("/v1/pool", json={"items": pool}).json()["n"] == 2
    told = client.get("/v1/next?n=2&order=unsure").json()
    assert [found["id"] for found in told["items"]] == ["p2", "p1"]
    assert told["items"][0]["certainty"] < told["items"][1]["certainty"]
    learn(client, item("p2", "sort swim salt", "b"))
    assert client.get("/v1/next").json()["n_pool"] == 1
    client.post("/v1/pool/remove", json={"ids": ["p1"]})
    assert client.get("/v1/next").json() == {"items": [], "n_pool": 0}


def test_an_item_that_does_not_fit_cannot_wait_for_tags(tmp_path):
    with serving(tmp_path, tagger=Tagger) as client:
        # Nothing is learnt yet, so that anything may wait.
        early = {"items": [{"id": "p0", "x": [1, 2, 3]}]}
        assert client.post("/v1/pool", json=early).json()["n"] == 1
        learn(client, {"id": "1", "x": [0, 1], "y": ["a"]}, {"id": "2", "x": [1, 0], "y": ["b"]})
        bad = {"items": [{"id": "p1", "x": [1, 2]}, {"id": "p2", "x": [1, 2, 3]}]}
        answer = client.post("/v1/pool", json=bad)
        assert (answer.status_code, answer.json()["field"]) == (422, "items[1]")
        assert "must have 2 values, got 3" in answer.json()["error"]
        good = {"items": [{"id": "p1", "x": [1, 2]}]}
        assert client.post("/v1/pool", json=good).json()["n"] == 1
        for _ in range(2):
            told = client.get("/v1/next")
            assert told.status_code == 200
            assert [found["id"] for found in told.json()["items"]] == ["p1"]


def test_an_item_that_waits_is_replaced(client):
    def put(text: str) -> Any:
        return client.post("/v1/pool", json={"items": [{"id": "p", "text": text}]}).json()

    assert put("swim")["n"] == 1
    assert (put("swim")["n"], put("swim")["duplicates"]) == (0, 1)
    assert put("dive")["n"] == 1
    assert [found["text"] for found in client.get("/v1/next").json()["items"]] == ["dive"]
    learn(client, item("p", "dive", "sea"))
    assert put("sail")["duplicates"] == 1
    assert client.get("/v1/next").json()["items"] == []


def test_methods_that_nobody_knows_are_one_label(client):
    for method in ("GET", "BREW", "WHEN"):
        client.request(method, "/v1/info")
    metrics = client.get("/metrics").text
    assert 'method="GET",route="/v1/info"' in metrics
    assert 'method="other"' in metrics
    assert "BREW" not in metrics
    assert "WHEN" not in metrics


def test_the_example_fills_a_new_folder_once(tmp_path):
    for _ in range(2):
        service = Service(tmp_path, FakeTagger)
        service.first = example_changes()
        with service:
            assert (service.log.position, len(service.pool)) == (157, 30)
    service = Service(tmp_path, FakeTagger).start()
    service.submit(Change("forget", [{"id": "example-1"}], [None])).result(60)
    service.close()


# ---------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("path", "body", "status", "field", "message"),
    [
        ("suggest", {"items": []}, 422, "items", "items must have at least 1 item"),
        ("suggest", {"items": [{}]}, 422, "items[0]", "items[0] must have either text or x"),
        (
            "suggest",
            {"items": [{"text": 3}]},
            422,
            "items[0].text",
            "valid string, got 3",
        ),
        ("suggest", {"items": [{"text": "a", "x": [1]}]}, 422, "items[0]", "either text or x"),
        ("suggest", {"items": [{"text": "a"}, {"x": [1]}]}, 422, "items", "must be all texts"),
        ("suggest", {"items": [{"text": "a"}], "next": "yes"}, 422, "next", "valid boolean"),
        ("explain", {"items": [{"text": "a"}], "next": 1}, 422, "next", "valid boolean"),
        ("suggest", {"items": [{"text": "a"}], "top": 0}, 422, "top", "must be greater than"),
        ("suggest", {"items": [{"text": "a", "z": 1}]}, 422, "items[0].z", "must not be there"),
        ("suggest", {"items": [{"x": ["a"]}]}, 422, "items[0].x[0]", "must be a valid number"),
        ("suggest", {"items": [{"x": [1e300]}]}, 422, "items[0].x[0]", "less than or equal"),
        ("learn", {"items": [{"text": "a", "y": []}]}, 422, "items[0].id", "must be there"),
        ("learn", {"items": [{"id": "1", "text": "a"}]}, 422, "items[0]", "must have y or no"),
        ("learn", {"items": [item("1", "a", "")]}, 422, "items[0].y[0]", "at least 1 character"),
        ("learn", {"items": [item("1", "a", " b")]}, 422, "items[0].y[0]", "begin or end"),
        ("learn", {"items": [item("1", "a", "b\n")]}, 422, "items[0].y[0]", "printable"),
        ("learn", {"items": [item("1" * 300, "a")]}, 422, "items[0].id", "at most 200"),
        ("learn", {"items": [item("1", "a" * 100_001)]}, 422, "items[0].text", "at most 100000"),
        (
            "learn",
            {"items": [item("1", "a")] * 1001},
            422,
            "items",
            "at most 1000",
        ),
        ("forget", {"ids": "1"}, 422, "ids", "must be a valid list"),
        ("tags/rename", {"old": "a"}, 422, "new", "must be there"),
        ("tags/remove", {"tag": "a"}, 404, "tag", "tag must be known, got 'a'"),
        ("pool", {"items": [{"text": "a"}]}, 422, "items[0].id", "must be there"),
        ("suggest", {"items": [{"x": {"a": None}}]}, 422, "items[0].x.a", "valid number"),
        ("suggest", {"items": [{"x": "1"}]}, 422, "items[0].x", "must be"),
        ("forget", {"ids": [True]}, 422, "ids[0]", "must be a valid"),
        ("pool", [1], 422, "", "the body must be"),
    ],
)
def test_bad_input_is_answered_clearly_and_changes_nothing(
    shared, path, body, status, field, message
):
    answer = shared.post(f"/v1/{path}", json=body)
    told = answer.json()
    assert answer.status_code == status
    assert told.get("field", "") == field
    assert message in told["error"]
    assert shared.get("/v1/info").json()["position"] == 0


@pytest.mark.parametrize(
    "body",
    [
        b"{", b'{"items": [{"text": "\\ud800"}]}', b'{"items": [{"x": [NaN]}]}', b"\xff\xfe", b"",
        b'{"items": [{"x": [1e999]}]}', b"[" * 100_000, b'{"items": ' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_what_is_no_proper_json_is_answered_clearly(shared, body):
    answer = shared.post("/v1/suggest", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]


def test_a_body_that_is_no_json_is_told_where(shared):
    body = b'{"items": [{"text": "a"}],}'
    answer = shared.post("/v1/suggest", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    told = answer.json()
    assert told.keys() == {"error"}
    assert told["error"].startswith("the body must be JSON: ")
    assert told["error"].endswith((" at character 26", " at character 27"))  # as Python counts


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
names = """items id text x y top ids old new tags into tag key project schema label_config tasks
action annotation task annotations data result"""
fields = st.sampled_from(names.split())
bodies = st.recursive(
    st.dictionaries(fields, json_values, max_size=4),
    lambda inner: st.dictionaries(fields, inner | st.lists(inner, max_size=2), max_size=4),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(path=st.sampled_from(sorted({path for _, path in NEEDED})), body=bodies | json_values)
def test_no_body_makes_the_service_fail(shared, path, body):
    content = json.dumps(body).encode()
    answer = shared.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code < 500
    if answer.status_code >= 400:
        assert answer.json()["error"]


def test_limits_on_size_type_and_time(tmp_path, monkeypatch):
    monkeypatch.setattr(schema, "MAX_BODY", 1000)
    with serving(tmp_path) as client:
        large = client.post("/v1/suggest", json={"items": [{"text": "a" * 2000}]})
        assert large.status_code == 413

        def chunks() -> Any:
            for _ in range(30):
                yield b" " * 100

        streamed = client.post(
            "/v1/suggest", content=chunks(), headers={"content-type": "application/json"}
        )
        assert streamed.status_code == 413
        plain = client.post("/v1/learn", content=b"{}", headers={"content-type": "text/plain"})
        assert (plain.status_code, plain.json()["field"]) == (415, "Content-Type")


def test_a_full_queue_says_when_to_come_again(client, monkeypatch):
    monkeypatch.setattr(writer, "QUEUE_ITEMS", 1)
    answer = client.post("/v1/learn", json={"items": [item("1", "a"), item("2", "b")]})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 0
    monkeypatch.setattr(desk, "MAX_WAITING", 0)
    assert client.post("/v1/suggest", json={"items": [{"text": "a"}]}).status_code == 429


def test_a_full_disk_is_told_and_changes_nothing(client):
    learn(client, item("1", "t", "a"))
    connection = client.service.log._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    answer = client.post("/v1/learn", json={"items": [item("2", "word " * 10_000, "a")]})
    assert answer.status_code == 507
    assert "nothing was changed" in answer.json()["error"]
    assert client.get("/v1/info").json()["n_items"] == 1


def test_a_writer_that_takes_long_is_not_waited_for(tmp_path, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    usual = FakeTagger.learn

    def slow(self: FakeTagger, records: Any, **more: Any) -> int:
        if any(record["id"] == "slow" for record in records):
            begun.set()
            go_on.wait(60)
        return usual(self, records)

    monkeypatch.setattr(FakeTagger, "learn", slow)
    with serving(tmp_path, seconds=0.2) as client:
        learn(client, item("1", "sort a list", "python"))
        body = {"items": [{**item("slow", "t", "a"), "key": "k"}]}
        assert client.post("/v1/learn", json=body).status_code == 504
        assert begun.is_set()
        # Meanwhile readers are answered, and another change is turned away undone.
        told = client.post("/v1/suggest", json={"items": [{"text": "sort"}]})
        assert told.json()["items"][0]["tags"] == ["python"]
        waits = client.post("/v1/learn", json={"items": [item("3", "t", "a")]})
        assert (waits.status_code, waits.json()["error"][-17:]) == (503, " nothing was done")
        go_on.set()
        client.service.submit(Change("snapshot", [], [])).result(60)
        assert client.post("/v1/learn", json=body).json()["duplicates"] == 1
        assert client.get("/v1/info").json()["n_items"] == 2


def test_it_is_not_ready_before_the_state_is_there(tmp_path):
    with serving(tmp_path, start=False) as client:
        assert client.get("/health/live").status_code == 200
        ready = client.get("/health/ready")
        assert (ready.status_code, ready.headers["retry-after"]) == (503, "1")
        assert client.post("/v1/suggest", json={"items": [{"text": "a"}]}).status_code == 503
        assert client.post("/v1/learn", json={"items": [item("1", "a")]}).status_code == 503
        client.service.start()
        assert client.get("/health/ready").json() == {"status": "ready"}


# ---------------------------------------------------------------------- who may
def test_roles(tmp_path):
    tokens = Tokens(tmp_path / "tokens.json")
    secrets = {role: tokens.add(role, role) for role in ("read", "write", "admin")}
    bodies = {
        "/v1/suggest": {"items": [{"text": "a"}]},
        "/v1/explain": {"items": [{"text": "a"}]},
        "/v1/learn": {"items": [item("1", "a", "t")]},
        "/v1/forget": {"ids": ["1"]},
        "/v1/pool": {"items": [{"id": "1", "text": "a"}]},
        "/v1/pool/remove": {"ids": ["1"]},
        "/v1/snapshot": {},
    }
    order = ["open", "read", "write", "admin"]
    with serving(tmp_path, is_open=False) as client:
        for (method, path), needed in NEEDED.items():
            for role in order:
                headers = {"Authorization": f"Bearer {secrets[role]}"} if role in secrets else {}
                body = None if method == "GET" else bodies.get(path, {})
                with client.stream(method, path, json=body, headers=headers) as answer:
                    status = answer.status_code
                if order.index(role) >= order.index(needed):
                    assert status not in (401, 403, 500), path
                else:
                    assert status == (401 if role == "open" else 403), path
        wrong = {"Authorization": "Bearer tgs_wrong"}
        assert client.get("/v1/info", headers=wrong).status_code == 401
        assert client.get("/health/ready").status_code == 200
        assert client.get("/").status_code == 200
        tokens.revoke("read")
        gone = {"Authorization": f"Bearer {secrets['read']}"}
        assert client.get("/v1/info", headers=gone).status_code == 401


def test_every_token_is_compared_in_constant_time_whether_one_fits_or_not(tmp_path, monkeypatch):
    tokens = Tokens(tmp_path / "tokens.json")
    secrets = [tokens.add(f"{i}", "read") for i in range(5)]
    compared: list[tuple[str, str]] = []
    usual = hmac.compare_digest

    def compare(a: str, b: str) -> bool:
        compared.append((a, b))
        return usual(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for guess in (secrets[0], secrets[-1], secrets[0][:-1] + "!", "tgs_", "é", ""):
        compared.clear()
        found = tokens.find(guess)
        assert (found is not None) == (guess in secrets)
        assert [a for a, _ in compared] == [token.digest for token in tokens.all]
        assert {len(b) for _, b in compared} == {64}  # digests, never the secrets


def test_a_closed_service_without_tokens_lets_nobody_in(tmp_path):
    with serving(tmp_path, is_open=False) as client:
        assert client.get("/v1/info").status_code == 401


def test_without_tokens_only_loopback_is_served(tmp_path):
    tokens = Tokens(tmp_path / "tokens.json")
    assert check_host("127.0.0.1", tokens)
    assert check_host("localhost", tokens)
    with pytest.raises(ValueError, match=r"host must be 127\.0\.0\.1 without tokens"):
        check_host("0.0.0.0", tokens)
    tokens.add("anna", "read")
    assert not check_host("0.0.0.0", tokens)


def test_pages_elsewhere_cannot_use_an_open_service(client):
    rebound = client.get("/v1/info", headers={"host": "evil.example:8080"})
    assert (rebound.status_code, rebound.json()["field"]) == (403, "Host")
    crossed = client.post(
        "/v1/learn", json={"items": [item("1", "a")]}, headers={"origin": "http://evil.example"}
    )
    assert (crossed.status_code, crossed.json()["field"]) == (403, "Origin")
    own = client.post(
        "/v1/suggest", json={"items": [{"text": "a"}]}, headers={"origin": client.url}
    )
    assert own.status_code == 200
    assert "access-control-allow-origin" not in own.headers


@pytest.mark.parametrize("path", ["/", "/docs", "/page/app.js", "/v1/info", "/nowhere"])
def test_every_answer_has_the_security_headers_and_a_request_id(shared, path):
    answer = shared.get(path, headers={"x-request-id": "abc-1"})
    for name, value in gate.HEADERS.items():
        assert answer.headers[name] == value
    assert answer.headers["x-request-id"] == "abc-1"
    assert "'unsafe-inline'" not in answer.headers["content-security-policy"]
    assert shared.get(path, headers={"x-request-id": "a b"}).headers["x-request-id"] != "a b"


def test_the_pages_ask_no_third_party(shared):
    for path in ("/", "/docs", "/page/app.js", "/page/app.css", "/page/docs.js"):
        text = shared.get(path).text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text
        assert "innerHTML" not in text


def test_requests_are_logged_as_json_without_secrets(tmp_path, caplog):
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.add("anna", "write")
    with caplog.at_level(logging.INFO), serving(tmp_path, is_open=False) as client:
        client.get("/v1/info", headers={"Authorization": f"Bearer {secret}", "x-request-id": "r1"})
        client.get(f"/ls/key/{secret}/health")
    ours = [record for record in caplog.records if record.name != "httpx"]
    lines = [json.loads(JsonLines().format(record)) for record in ours]
    found = next(line for line in lines if line.get("request_id") == "r1")
    assert (found["path"], found["status"], found["who"]) == ("/v1/info", 200, "anna")
    assert any(line.get("path") == "/ls/health" and line["status"] == 200 for line in lines)
    assert secret not in json.dumps(lines)


def test_unknown_paths_and_methods_are_json_errors(shared):
    assert shared.get("/nowhere").json() == {"error": "not found"}
    assert shared.get("/v1/learn").status_code == 405
    assert shared.put("/v1/learn", json={}).status_code == 405


def test_addresses():
    assert address("0.0.0.0", 80) == "http://localhost:80/"
    assert gate.is_loopback("127.0.0.1")
    assert not gate.is_loopback("127.evil.example")


def test_every_route_says_its_role_as_the_table_and_the_docs_do(shared):
    with_gate = create_app(shared.service)
    roles = {
        (method, path.replace(":path}", "}")): r for (method, path), r in with_gate.roles.items()
    }
    assert roles == NEEDED
    page = (Path(__file__).parents[1] / "docs" / "service.md").read_text(encoding="utf-8")
    told = {}
    for role, routes in re.findall(r"^\| (none|`\w+`) \| (`[A-Z]+ /.*) \|$", page, re.MULTILINE):
        for method, path in re.findall(r"`([A-Z]+) (/\S*)`", routes):
            told[method, path] = "open" if role == "none" else role.strip("`")
    assert told == NEEDED
    listed = shared.get("/openapi.json").json()["paths"]
    shown = {(method.upper(), path): found["x-role"] for path, methods in listed.items()
             for method, found in methods.items()}  # fmt: skip
    assert shown.items() <= NEEDED.items()
    assert len(shown) > 20


@pytest.mark.parametrize("path", ["/silent", "/items/{id}"])
def test_a_route_without_a_role_does_not_start(path):
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.get(path)(lambda: None)
    with pytest.raises(RuntimeError, match="must say its role"):
        roles_of(app)


def test_a_malformed_origin_is_answered_clearly(client):
    for origin in ("http://[", "http://[x]", "//["):
        for method, path in (("GET", "/v1/info"), ("POST", "/v1/learn")):
            answer = client.request(method, path, json={}, headers={"origin": origin})
            assert (answer.status_code, answer.json()["field"]) == (400, "Origin")
    assert client.get("/v1/info", headers={"origin": "null"}).status_code == 200


def test_a_token_in_a_path_that_is_nearly_right_is_not_logged(tmp_path, caplog):
    secret = Tokens(tmp_path / "tokens.json").add("label studio", "write")
    quoted = "".join(f"%{ord(letter):02x}" for letter in secret)
    paths = [
        f"/ls/kye/{secret}/webhook", f"/LS/key/{secret}/webhook", f"//ls/key/{secret}/webhook",
        f"/ls/key//{secret}", f"/ls//key/{secret}/health", f"/key/{secret}", f"/{secret}",
        f"/ls/key{secret}/health", f"/ls/{secret}/health", f"/ls/kye/{quoted}/webhook",
        f"/v1/info/{secret}", f"/v1/info?token={secret}", f"/ls/key/{secret}/{secret}",
        "/a" * 2000, f"/ls/health;{secret}",
    ]  # fmt: skip
    with caplog.at_level(logging.INFO), serving(tmp_path, is_open=False) as client:
        for path in paths:
            for method in ("GET", "POST", "PUT"):
                client.request(method, path, headers={"x-request-id": secret})
        client.request(secret, "/v1/info")
    ours = [record for record in caplog.records if record.name.startswith("tagstream")]
    lines = [json.loads(JsonLines().format(record)) for record in ours]
    text = json.dumps(lines)
    assert len(lines) >= 3 * len(paths)
    assert secret not in text
    assert secret[4:] not in text
    shown = {line["path"] for line in lines if "path" in line}
    assert {"/ls/*/*/webhook", "/*", "/v1/info"} <= shown
    assert max(map(len, shown)) < 100


def test_a_path_with_a_slash_too_many_is_not_there(client):
    assert client.get("/v1/info/").status_code == 404
    assert client.post("/v1/learn/", json={}).status_code == 404
