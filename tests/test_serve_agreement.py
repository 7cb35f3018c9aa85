"""Several people answer the same items: answers are kept, and the majority is learnt."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from fake_tagger import FakeTagger
from serving import serving
from tagstream.serve.agreement import alpha
from tagstream.serve.tokens import Tokens
from tagstream.serve.writer import Service

PEOPLE = ("anna", "ben", "cleo", "dora")


class Team:
    def __init__(self, client: Any, secrets: dict[str, str]) -> None:
        self.client, self.secrets = client, secrets

    def call(self, who: str, method: str, path: str, status: int = 200, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.secrets[who]}"}
        answer = self.client.request(method, path, headers=headers, **more)
        assert answer.status_code == status, answer.text
        return answer.json()

    def say(self, who: str, name: str, *tags: str, **more: Any) -> Any:
        item = {"id": name, "text": f"text of {name}", "y": [*tags], **more}
        return self.call(who, "POST", "/v1/learn", json={"items": [item]})

    def item(self, name: str) -> Any:
        return self.call("anna", "GET", f"/v1/items/{name}")

    def offered(self, who: str) -> list[str]:
        return sorted(one["id"] for one in self.call(who, "GET", "/v1/next")["items"])


def serving_team(folder: Any, agree: int = 2) -> Any:
    return serving(folder, service=Service(folder, FakeTagger, agree=agree))


@pytest.fixture
def secrets(tmp_path):
    tokens = Tokens(tmp_path / "tokens.json")
    return {name: tokens.add(name, "write") for name in PEOPLE}


@pytest.fixture
def team(tmp_path, secrets):
    with serving_team(tmp_path) as client:
        yield Team(client, secrets)


def test_each_answer_is_kept_and_the_majority_is_learnt(team):
    team.say("anna", "1", "sea", "mud")
    team.say("ben", "1", "sea")
    told = team.item("1")
    assert [(one["who"], one["y"]) for one in told["answers"]] == [
        ("anna", ["sea", "mud"]), ("ben", ["sea"]),
    ]  # fmt: skip
    assert (told["y"], told["conflict"]) == (["sea", "mud"], ["mud"])  # what was learnt stands
    team.say("cleo", "1", "sea")
    assert (team.item("1")["y"], team.item("1")["conflict"]) == (["sea"], [])
    assert team.client.service.state_of("1")["y"] == ["sea"]
    kinds = [one["kind"] for one in team.call("anna", "GET", "/v1/items/1/history")["items"]]
    assert kinds == ["answer", "learn", "answer", "answer", "learn"]


def test_my_second_answer_replaces_my_first_and_no_other(team):
    team.say("anna", "1", "sea")
    team.say("ben", "1", "sky")
    team.say("anna", "1", "sky", version=0)  # what others have said is no conflict
    assert team.item("1")["y"] == ["sky"]
    assert {one["who"]: one["y"] for one in team.item("1")["answers"]} == {
        "anna": ["sky"], "ben": ["sky"],
    }  # fmt: skip
    assert team.say("ben", "1", "sky")["duplicates"] == 1


def test_an_item_is_offered_until_enough_have_answered_and_agree(team):
    team.call("anna", "POST", "/v1/pool", json={"items": [{"id": "1", "text": "text of 1"}]})
    team.say("anna", "1", "sea")
    assert (team.offered("anna"), team.offered("ben")) == ([], ["1"])
    team.say("ben", "1", "mud")
    assert team.call("anna", "GET", "/v1/conflicts")["items"][0]["conflict"] == ["sea", "mud"]
    assert (team.offered("ben"), team.offered("cleo")) == ([], ["1"])
    team.say("cleo", "1", "mud")
    assert [team.offered(who) for who in PEOPLE] == [[], [], [], []]
    assert team.call("anna", "GET", "/v1/conflicts") == {"items": []}
    assert team.item("1")["y"] == ["mud"]


def test_undo_takes_back_my_answer_only(team):
    team.call("anna", "POST", "/v1/pool", json={"items": [{"id": "1", "text": "text of 1"}]})
    team.say("anna", "1", "sea")
    team.say("anna", "1", "mud")
    team.say("ben", "1", "mud")
    team.call("anna", "POST", "/v1/undo")
    assert {one["who"]: one["y"] for one in team.item("1")["answers"]} == {
        "anna": ["sea"], "ben": ["mud"],
    }  # fmt: skip
    team.call("anna", "POST", "/v1/undo")
    assert [one["who"] for one in team.item("1")["answers"]] == ["ben"]
    assert team.item("1")["y"] == ["mud"]
    assert team.offered("anna") == ["1"]
    team.call("ben", "POST", "/v1/undo")
    assert team.item("1")["state"] == "waiting"
    team.call("ben", "POST", "/v1/undo", 404)


def test_answers_survive_a_restart_and_renames_and_end_with_the_item(tmp_path, secrets):
    root = Tokens(tmp_path / "tokens.json").add("root", "admin")
    with serving_team(tmp_path) as client:
        team = Team(client, {**secrets, "root": root})
        team.say("anna", "1", "sea")
        team.say("ben", "1", "mud")
        team.say("ben", "2", "mud")
        team.call("root", "POST", "/v1/tags/rename", json={"old": "mud", "new": "silt"})
        team.call("ben", "POST", "/v1/forget", json={"ids": ["2"]})
        before = team.item("1")
        assert before["conflict"] == ["sea", "silt"]
        offered = team.offered("cleo")
    with serving_team(tmp_path) as client:
        team = Team(client, {**secrets, "root": root})
        assert team.item("1") == before
        assert team.offered("cleo") == offered
        assert team.client.service.answers.of("ben") == {"1"}


@pytest.mark.parametrize("seed", range(3))
def test_any_answers_lead_to_what_the_rules_say(tmp_path, secrets, seed):
    rng = random.Random(seed)
    said: dict[str, dict[str, list[str]]] = {}
    learnt: dict[str, set[str]] = {}
    with serving_team(tmp_path, agree=3) as client:
        team = Team(client, secrets)
        for _ in range(50):
            who, name = rng.choice(PEOPLE), rng.choice("xyz")
            y = rng.sample(["a", "b", "c"], rng.randint(0, 3))
            team.say(who, name, *y)
            given = said.setdefault(name, {})
            given[who] = y
            votes = {tag: sum(tag in one for one in given.values()) for tag in "abc"}
            learnt[name] = {
                tag
                for tag, n in votes.items()
                if 2 * n > len(given) or (2 * n == len(given) and tag in learnt.get(name, ()))
            }
            told = team.item(name)
            assert set(told["y"]) == learnt[name]
            assert {one["who"]: set(one["y"]) for one in told["answers"]} == {
                who: set(one) for who, one in given.items()
            }
            assert set(told["conflict"]) == {t for t, n in votes.items() if 2 * n == len(given) > 0}


# ---------------------------------------------------------------------- alpha
def alpha_by_coincidences(units: list[tuple[int, int]]) -> float | None:
    """Krippendorff's alpha as he writes it: a matrix of coincidences of pairs of values."""
    matrix = [[0.0, 0.0], [0.0, 0.0]]
    for k, m in units:
        values = [1] * k + [0] * (m - k)
        for i, one in enumerate(values):
            for j, other in enumerate(values):
                if i != j and m > 1:
                    matrix[one][other] += 1 / (m - 1)
    totals = [sum(row) for row in matrix]
    n = sum(totals)
    observed = matrix[0][1] + matrix[1][0]
    expected = 2 * totals[0] * totals[1] / (n - 1) if n > 1 else 0.0
    return 1 - observed / expected if expected else None


def test_alpha_is_that_of_the_matrix_of_coincidences():
    rng = random.Random(0)
    for _ in range(200):
        sizes = [rng.randint(0, 5) for _ in range(rng.randint(1, 12))]
        units = [(rng.randint(0, m), m) for m in sizes]
        found, expected = alpha(units), alpha_by_coincidences(units)
        assert (found is None) == (expected is None)
        if expected is not None:
            assert found == pytest.approx(expected, abs=1e-12)


def test_agreement_is_told_for_each_tag(team):
    for name, anna, ben in (
        ("1", ["a", "b"], ["a"]), ("2", ["a"], ["a", "b"]), ("3", ["b"], ["b"]), ("4", [], ["a"]),
    ):  # fmt: skip
        team.say("anna", name, *anna)
        team.say("ben", name, *ben)
    team.say("anna", "5", "a")  # answered by one only
    told = team.call("anna", "GET", "/v1/agreement")
    units = {"a": [(2, 2), (2, 2), (0, 2), (1, 2)], "b": [(1, 2), (1, 2), (2, 2), (0, 2)]}
    assert told["n_items"] == 4
    for one in told["tags"]:
        assert one["alpha"] == pytest.approx(alpha_by_coincidences(units[one["tag"]]), abs=1e-6)
    every = alpha_by_coincidences([unit for of_tag in units.values() for unit in of_tag])
    assert told["alpha"] == pytest.approx(every, abs=1e-6)


def test_without_the_option_the_last_answer_counts(tmp_path, secrets):
    with serving_team(tmp_path, agree=0) as client:
        team = Team(client, secrets)
        team.say("anna", "1", "sea")
        team.say("ben", "1", "mud")
        assert team.item("1")["y"] == ["mud"]
        assert "answers" not in team.item("1")
        assert team.call("anna", "GET", "/v1/agreement")["alpha"] is None
