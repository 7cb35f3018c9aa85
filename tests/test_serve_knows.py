"""What the model knows, over HTTP: lists from the background, answers, refusals."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
pytest.importorskip("prometheus_client")
pytest.importorskip("uvicorn")

from serving import serving
from shell import posts
from tagstream.serve.export import items_now
from tagstream.tagger import Tagger


@pytest.fixture
def client(tmp_path):
    with serving(tmp_path, tagger=Tagger) as made:
        records = posts(120, seed=1)
        records[5]["y"] = ["code"] if records[5]["y"] != ["code"] else ["sea"]
        answer = made.post("/v1/learn", json={"items": records})
        assert answer.status_code == 200, answer.text
        made.records = records
        yield made


def asked(client, path):
    """Ask until the list knows all that was learnt."""
    now = client.get("/v1/info").json()["position"]
    for _ in range(600):
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        if answer.json()["complete"] and answer.json()["position"] >= now:
            return answer.json()["items"]
        time.sleep(0.05)
    raise AssertionError(f"{path} is never complete")


def test_review_is_made_in_the_background_and_loses_what_was_changed(client):
    first = client.get("/v1/review").json()
    assert first["items"] == [] or first["complete"]
    found = asked(client, "/v1/review?n=200")
    one = found[0]
    assert one["id"] == "p5"
    assert all(one[key] for key in ("remove", "add", "text", "neighbours"))
    record = client.records[5]
    fixed = [*(set(one["tags"]) - set(one["remove"])), *one["add"]]
    client.post("/v1/learn", json={"items": [{**record, "y": fixed}]})
    left = client.get("/v1/review?n=200").json()["items"]  # of the old list
    assert "p5" not in [entry["id"] for entry in left]


def test_candidates_are_answered_many_at_once(client):
    ids = [r["id"] for r in client.records if "sea" not in r["y"]][:4]
    answer = client.post(
        "/v1/candidates", json={"tag": "sea", "accept": ids[:2], "refuse": ids[2:], "key": "a1"}
    )
    assert answer.json()["n"] == 4, answer.text
    again = client.post(
        "/v1/candidates", json={"tag": "sea", "accept": ids[:2], "refuse": ids[2:], "key": "a1"}
    )
    assert again.json()["n"] == 0
    with_tag = {entry["id"] for entry in client.get("/v1/items?n=200&tag=sea").json()["items"]}
    assert {*ids[:2]} <= with_tag
    assert not {*ids[2:]} & with_tag
    assert not {*ids} & {entry["id"] for entry in asked(client, "/v1/candidates?tag=sea&n=200")}


def test_refusals_alone_keep_what_is_known_and_a_new_item_waits_on(client):
    record = client.records[0]
    client.post("/v1/pool", json={"items": [{"id": "new", "text": "swim wave beach tide"}]})
    refusing = [
        {"id": record["id"], "text": record["text"], "no": record["y"][:1]},
        {"id": "new", "text": "swim wave beach tide", "no": ["sea"]},
    ]
    answer = client.post("/v1/learn", json={"items": refusing})
    assert answer.json()["n"] == 2, answer.text
    (shown,) = [e for e in client.get("/v1/items?n=5").json()["items"] if e["id"] == record["id"]]
    assert shown["y"] == record["y"][1:]
    assert shown["no"] == record["y"][:1]
    assert client.get("/v1/info").json()["n_pool"] == 1  # its tags are not known yet
    told = client.post(
        "/v1/suggest",
        json={"items": [refusing[1]["text"] and {"id": "new", "text": "swim wave beach tide"}]},
    ).json()["items"][0]
    assert "sea" not in told["tags"]
    exported = {r["id"]: r for r in items_now(client.service.folder, client.service.log)}
    assert exported["new"]["no"] == ["sea"]
    assert "y" not in exported["new"]


def test_errors_name_the_field_and_change_nothing(client):
    before = client.get("/v1/info").json()["position"]
    for path, body, status, words in (
        ("/v1/learn", {"items": [{"id": "a", "text": "b"}]}, 422, "must have y or no"),
        ("/v1/learn", {"items": [{"id": "a", "text": "b", "y": ["c"], "no": ["c"]}]}, 422, "both"),
        ("/v1/candidates", {"tag": "sea", "accept": ["nobody"]}, 404, "nobody"),
        ("/v1/candidates", {"tag": "sea", "accept": ["p1"], "refuse": ["p1"]}, 422, "both"),
        ("/v1/candidates", {"tag": "sea"}, 422, "accept or in refuse"),
        ("/v1/tags/exclusive", {"tags": ["sea"]}, 422, "at least two"),
        ("/v1/tags/exclusive", {"tags": ["sea", "sae"]}, 404, "sae"),
    ):
        answer = client.post(path, json=body)
        assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text
    assert client.get("/v1/candidates?tag=sae").status_code == 404
    assert client.get("/v1/info").json()["position"] == before


def test_exclusive_tags_are_events_that_a_restart_replays(client, tmp_path):
    answer = client.post("/v1/tags/exclusive", json={"tags": ["sea", "food"]})
    assert answer.json()["n"] == 1, answer.text
    bad = {"id": "b", "text": "swim soup", "y": ["sea", "food"]}
    refused = client.post("/v1/learn", json={"items": [bad]})
    assert refused.status_code == 422
    assert "at most one of sea and food" in refused.json()["error"]
    other = Tagger()
    for event in client.service.log.after(0):
        from tagstream.serve.writer import apply_events

        apply_events(other, [event])
    assert other.exclusive_groups == [("sea", "food")]


def test_twins_copies_and_what_is_next(client):
    record = client.records[7]
    client.post("/v1/learn", json={"items": [{**record, "id": "c1", "y": []}]})
    groups = [{*entry["ids"]} for entry in asked(client, "/v1/duplicates")]
    assert any({"p7", "c1"} <= group for group in groups)
    assert all(len(entry["pair"]) == 2 for entry in asked(client, "/v1/tags/similar"))
    new = [{"id": r["id"], "text": r["text"]} for r in posts(30, seed=9, first=700)]
    client.post("/v1/pool", json={"items": new})
    for order in ("mixed", "arrival", "random", "unsure", "sure", "tag:sea"):
        answer = client.get("/v1/next", params={"n": 5, "order": order})
        assert len(answer.json()["items"]) == 5, answer.text
    arrived = client.get("/v1/next", params={"n": 3, "order": "arrival"}).json()["items"]
    assert {entry["id"] for entry in arrived} <= {r["id"] for r in new[:12]}
    answer = client.get("/v1/next", params={"order": "best"})
    assert (answer.status_code, answer.json()["field"]) == (422, "order")


def test_tags_are_applied_where_promised_and_never_learnt(client):
    answer = client.post("/v1/tags/promise", json={"tag": "sea", "promise": 0.8})
    assert answer.status_code == 200, answer.text
    more = posts(300, seed=3, first=200)
    assert client.post("/v1/learn", json={"items": more}).status_code == 200
    (kept,) = client.get("/v1/promises").json()["promises"]
    assert (kept["tag"], kept["promise"], kept["why"]) == ("sea", 0.8, "")
    n_items = client.get("/v1/info").json()["n_items"]
    new = [{"id": r["id"], "text": r["text"]} for r in posts(200, seed=4, first=900)]
    told = client.post("/v1/apply", json={"items": new}).json()
    applied = [entry for entry in told["items"] if entry["auto"]]
    assert told["n"] == len(applied) > 20
    assert all({*entry["auto"]} <= {*entry["tags"]} for entry in applied)
    info = client.get("/v1/info").json()
    assert info["n_items"] == n_items  # nothing was learnt
    assert 0 < info["n_pool"] < len(applied) / 5  # one in twenty is for a person
    listed = client.get("/v1/items?n=200&tag=sea").json()["items"]
    by_machine = [entry for entry in listed if entry["source"] == "auto"]
    assert len(by_machine) == len(applied)
    again = client.post("/v1/apply", json={"items": new}).json()
    assert (again["n"], again["duplicates"]) == (0, len(applied))
    person = {**new[0], "y": ["food"]}
    assert client.post("/v1/learn", json={"items": [person]}).json()["n"] == 1
    assert client.post("/v1/apply", json={"items": new[:1]}).json()["n"] == 0
    exported = {r["id"] for r in items_now(client.service.folder, client.service.log)}
    assert not exported & {entry["id"] for entry in applied if entry["id"] != new[0]["id"]}
    assert client.post("/v1/forget", json={"ids": [applied[1]["id"]]}).status_code == 422


def test_health_and_drift_are_told(client):
    found = client.get("/v1/tags/health").json()["tags"]
    assert {one["tag"] for one in found} == {"sea", "food", "code"}
    assert not any(one["drifting"] for one in found)
    assert "tagstream_drifting_tags 0.0" in client.get("/metrics").text
