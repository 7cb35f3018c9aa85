"""Several people at one service: versions, conflicts, leases, history."""

from __future__ import annotations

import random
from typing import Any

import pytest

from serving import serving
from tagstream.serve.leases import Leases
from tagstream.serve.tokens import Tokens


@pytest.fixture
def people(tmp_path):
    """A service with two people; returns a function that calls it as one of them."""
    tokens = Tokens(tmp_path / "tokens.json")
    secrets = {name: tokens.add(name, "write") for name in ("anna", "ben")}
    secrets["root"] = tokens.add("root", "admin")
    with serving(tmp_path) as client:

        def call(who: str, method: str, path: str, status: int = 200, **more: Any) -> Any:
            headers = {"Authorization": f"Bearer {secrets[who]}", **more.pop("headers", {})}
            answer = client.request(method, path, headers=headers, **more)
            assert answer.status_code == status, answer.text
            return answer.json()

        call.client = client
        yield call


def learn(call: Any, who: str, name: str, *tags: str, status: int = 200, **more: Any) -> Any:
    item = {"id": name, "text": f"text {name}", "y": [*tags], **more}
    return call(who, "POST", "/v1/learn", status, json={"items": [item]})


def test_a_stale_answer_is_refused_and_told_what_is_there(people):
    first = learn(people, "anna", "7", "sea", version=0)["position"]
    told = learn(people, "ben", "7", "soup", version=0, status=409)
    assert told["field"] == "version"
    assert (told["now"]["y"], told["now"]["version"], told["now"]["by"]) == (["sea"], first, "anna")
    assert people("ben", "GET", "/v1/items/7")["y"] == ["sea"]
    second = learn(people, "ben", "7", "soup", version=first)["position"]
    found = people("anna", "GET", "/v1/items/7")
    assert (found["y"], found["version"], found["by"]) == (["soup"], second, "ben")


def test_two_people_who_say_the_same_do_not_contradict_each_other(people):
    learn(people, "anna", "7", "sea", version=0)
    assert learn(people, "ben", "7", "sea", version=0)["duplicates"] == 1
    assert people("ben", "GET", "/v1/items/7")["by"] == "anna"


def test_an_answer_without_a_version_replaces_as_before(people):
    learn(people, "anna", "7", "sea")
    learn(people, "ben", "7", "soup")
    assert people("ben", "GET", "/v1/items/7")["y"] == ["soup"]


def test_the_version_may_come_in_a_header(people):
    learn(people, "anna", "7", "sea")
    body = {"items": [{"id": "7", "text": "text 7", "y": ["soup"]}]}
    people("ben", "POST", "/v1/learn", 409, json=body, headers={"If-Match": '"0"'})
    version = people("ben", "GET", "/v1/items/7")["version"]
    people("ben", "POST", "/v1/learn", json=body, headers={"If-Match": f'"{version}"'})
    people("ben", "POST", "/v1/learn", 422, json=body, headers={"If-Match": "*"})


def test_nobody_forgets_what_somebody_else_has_changed(people):
    mine = learn(people, "anna", "7", "sea")["position"]
    learn(people, "ben", "7", "soup")
    people("anna", "POST", "/v1/forget", 409, json={"ids": ["7"], "version": mine})
    assert people("anna", "GET", "/v1/items/7")["y"] == ["soup"]
    now = people("anna", "GET", "/v1/items/7")["version"]
    people("anna", "POST", "/v1/forget", json={"ids": ["7"], "version": now})
    people("anna", "GET", "/v1/items/7", 404)
    both = {"ids": ["7", "8"], "version": 1}
    assert "one id" in people("anna", "POST", "/v1/forget", 422, json=both)["error"]


def test_one_stale_item_refuses_the_whole_change(people):
    learn(people, "anna", "1", "sea")
    items = [
        {"id": name, "text": f"text {name}", "y": ["soup"], "version": 0} for name in ("2", "1")
    ]
    assert people("ben", "POST", "/v1/learn", 409, json={"items": items})["now"]["id"] == "1"
    people("ben", "GET", "/v1/items/2", 404)


def test_a_retry_of_an_answer_that_arrived_is_no_conflict(people):
    learn(people, "anna", "7", "sea", version=0, key="k1")
    assert learn(people, "anna", "7", "sea", version=0, key="k1")["duplicates"] == 1


def test_the_history_of_an_item_says_who_when_and_through_what(people):
    learn(people, "anna", "a/b", "sea")
    learn(people, "ben", "a/b", "sea", "soup")
    people("ben", "POST", "/v1/forget", json={"ids": ["a/b"]})
    found = people("anna", "GET", "/v1/items/a%2Fb/history")["items"]
    assert [(e["who"], e["kind"], e["tags"]) for e in found] == [
        ("anna", "learn", ["sea"]),
        ("ben", "learn", ["sea", "soup"]),
        ("ben", "forget", None),
    ]
    assert [e["position"] for e in found] == sorted(e["position"] for e in found)
    people("anna", "GET", "/v1/items/nobody/history", 404)


def test_people_are_those_with_a_token_and_those_who_changed_something(people):
    learn(people, "anna", "7", "sea")
    found = {p["who"]: p for p in people("ben", "GET", "/v1/people")["people"]}
    assert {who: p["role"] for who, p in found.items()} == {
        "anna": "write", "ben": "write", "root": "admin",
    }  # fmt: skip
    assert (found["anna"]["n_items"], found["ben"]["last"]) == (1, None)


def test_an_item_that_somebody_is_tagging_is_not_offered_to_others(people):
    items = [{"id": f"{i}", "text": f"words {i} {i * 7}"} for i in range(4)]
    people("anna", "POST", "/v1/pool", json={"items": items})
    people("anna", "POST", "/v1/lease", json={"id": "2", "tab": "a"})

    def offered(who: str, tab: str) -> set[str]:
        told = people(who, "GET", f"/v1/next?n=10&tab={tab}")
        return {item["id"] for item in told["items"]}

    assert offered("ben", "b") == {"0", "1", "3"}
    assert offered("anna", "other") == {"0", "1", "3"}
    assert offered("anna", "a") == {"0", "1", "2", "3"}
    error = people("ben", "POST", "/v1/lease", 409, json={"id": "2", "tab": "b"})["error"]
    assert "anna is tagging" in error
    assert people("ben", "POST", "/v1/lease/release", json={"id": "2"}) == {"released": False}
    people("anna", "POST", "/v1/lease/release", json={"id": "2", "tab": "a"})
    assert offered("ben", "b") == {"0", "1", "2", "3"}
    people("ben", "POST", "/v1/lease", json={"id": "2", "tab": "b"})
    learn(people, "ben", "2", "sea")
    assert people.client.service.leases.holder("2") is None


def test_a_lease_ends_by_itself_unless_it_is_renewed():
    now = 0.0
    leases = Leases(seconds=300, clock=lambda: now)
    assert leases.take("7", "anna", "") is None
    now = 200.0
    assert leases.take("7", "anna", "") is None
    now = 499.0
    assert leases.of_others("ben", "") == {"7"}
    now = 500.0
    assert leases.of_others("ben", "") == set()
    assert leases.take("7", "ben", "") is None


@pytest.mark.parametrize("seed", range(3))
def test_no_answer_of_anybody_is_lost(people, seed):
    """Random actions against the rules: an answer counts unless it was refused as stale."""
    rng = random.Random(seed)
    true: dict[str, tuple[list[str], int]] = {}
    seen: dict[tuple[str, str], int] = {}
    for _ in range(60):
        who, name = rng.choice(["anna", "ben"]), rng.choice("xyz")
        act = rng.choice(["look", "answer", "answer", "forget"])
        now = true.get(name)
        if act == "look":
            found = people(who, "GET", f"/v1/items/{name}", 200 if now else 404)
            if now:
                assert (found["y"], found["version"]) == now
            seen[who, name] = found["version"] if now else 0
            continue
        version = seen.get((who, name), 0)
        current = now[1] if now else 0
        if act == "forget":
            body = {"ids": [name], "version": version}
            status = 200 if now is None or version == current else 409
            people(who, "POST", "/v1/forget", status, json=body)
            if status == 200 and now is not None:
                del true[name]
                seen[who, name] = 0
            continue
        tags = [rng.choice(["sea", "soup", "salt"])]
        same = now is not None and now[0] == tags
        status = 200 if version == current or same else 409
        told = learn(people, who, name, *tags, version=version, status=status)
        if status == 200 and not same:
            true[name] = (tags, told["position"])
            seen[who, name] = told["position"]
        elif status == 409:
            seen[who, name] = told["now"]["version"] if told["now"] else 0
