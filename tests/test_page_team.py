"""Two people at once: nobody gets another's item, and nobody's answer is lost."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import Watched, browser, playwright, stored
from serving import serving
from tagstream.serve.tokens import Tokens

__all__ = ["browser"]  # a fixture
expect = playwright.expect

SKY = ("sea", "soup", "salt", "sun")


def pool_of(n: int) -> list[dict[str, str]]:
    return [{"id": f"{i}", "text": f"words {i} and {i * 7919 % 1013}"} for i in range(n)]


@pytest.fixture
def team(browser: Any, tmp_path: Path, request: Any) -> Iterator[tuple[Any, Watched, Watched]]:
    """A service with tokens, and a window for each of two people."""
    n = getattr(request, "param", 6)
    tokens = Tokens(tmp_path / "tokens.json")
    secrets = {name: tokens.add(name, "admin") for name in ("anna", "ben")}
    with serving(tmp_path) as client:
        client.headers["Authorization"] = f"Bearer {secrets['anna']}"
        client.secrets = secrets
        items = pool_of(n)
        for i in range(0, n, 1000):
            part = {"items": items[i : i + 1000]}
            assert client.post("/v1/pool", json=part).status_code == 200
        windows = [Watched(browser, client.url, token=secrets[name]) for name in secrets]
        yield client, *windows
        for window in windows:
            window.close()


def number_of(text: str) -> str:
    """Return the id of an item, which its text names."""
    return text.split()[1]


def test_two_people_get_different_items(team):
    client, anna, ben = team
    hers, his = anna.item(), ben.item()
    assert hers != his
    assert client.service.leases.holder(number_of(hers)).who == "anna"
    assert client.service.leases.holder(number_of(his)).who == "ben"
    for _ in range(2):
        for window, other in ((anna, ben), (ben, anna)):
            before = window.item()
            window.press("0")
            expect(window.page.locator("#item, .empty")).not_to_have_text(before)
            assert window.page.locator("#item").all_inner_texts() != [other.item()]


def test_a_conflict_shows_both_answers_and_overwrites_nothing(team):
    client, anna, ben = team
    text = anna.item()
    name = number_of(text)
    anna.choose("Find or add a tag", "sea")
    body = {"id": name, "text": text, "y": ["soup"]}
    his = {"Authorization": f"Bearer {client.secrets['ben']}"}
    assert client.post("/v1/learn", json={"items": [body]}, headers=his).status_code == 200
    anna.press("Escape", "Enter")
    conflict = anna.page.locator(".conflict")
    expect(conflict).to_contain_text(re.compile("ben.*soup.*You, not saved.*sea", re.DOTALL))
    assert stored(client, name)["y"] == ["soup"]
    anna.press("g", "p")  # it waits until somebody decides
    anna.press("g", "t")
    anna.button("Save both").click()
    anna.says(re.compile("^Saved: "))
    expect(conflict).to_have_count(0)
    assert {*stored(client, name)["y"]} == {"sea", "soup"}
    ben.item()


def test_undo_never_undoes_somebody_elses_answer(team):
    client, anna, _ = team
    name = number_of(anna.item())
    anna.choose("Find or add a tag", "sea")
    anna.button("Save").click()
    anna.says("Saved: sea")
    body = {"id": name, "text": stored(client, name)["text"], "y": ["soup"]}
    his = {"Authorization": f"Bearer {client.secrets['ben']}"}
    assert client.post("/v1/learn", json={"items": [body]}, headers=his).status_code == 200
    anna.press("u")
    expect(anna.page.locator(".message.bad")).to_contain_text("was not undone")
    assert stored(client, name)["y"] == ["soup"]


class Rules:
    """What must be stored after each answer and each undo, said without the service."""

    def __init__(self) -> None:
        self.tags: dict[str, set[str]] = {}
        self.undo: dict[str, list[tuple[str, set[str] | None]]] = {"anna": [], "ben": []}

    def answer(self, who: str, name: str, tags: set[str]) -> None:
        self.undo[who].append((name, self.tags.get(name)))
        self.tags[name] = tags

    def take_back(self, who: str) -> str:
        name, before = self.undo[who].pop()
        if before is None:
            del self.tags[name]
        else:
            self.tags[name] = before
        return name


def act(rng: random.Random, who: str, window: Watched, rules: Rules) -> None:
    """Do one thing that a person may do, and say the same to the rules."""
    what = rng.choices(["answer", "none", "skip", "undo"], [6, 1, 1, 2])[0]
    if what == "undo" and not rules.undo[who]:
        what = "answer"
    item = window.page.locator("#item")
    before = window.item()
    if what == "undo":
        name = rules.take_back(who)
        window.press("u")
        expect(item).to_have_text(re.compile(rf"^words {name} "))
        return
    if what == "skip":
        window.press("s")
    elif what == "none":
        window.press("0")
        rules.answer(who, number_of(before), set())
    else:
        window.press("a")
        window.type(rng.choice(SKY))
        window.press("Enter", "Escape")
        rules.answer(who, number_of(before), window.ticked())
        window.press("Enter")
    expect(item).not_to_have_text(before)


def play(team: Any, n: int, seed: int) -> None:
    client, *windows = team
    rng, rules = random.Random(seed), Rules()
    people = dict(zip(("anna", "ben"), windows, strict=True))
    for i in range(n):
        who = rng.choice(["anna", "ben"])
        act(rng, who, people[who], rules)
        shown = [window.page.locator("#item").inner_text() for window in windows]
        assert shown[0] != shown[1], i
    for window in windows:
        window.saved()
    assert tagged(client) == rules.tags.keys()
    assert {name: {*stored(client, name)["y"]} for name in rules.tags} == rules.tags


def tagged(client: Any) -> set[str]:
    """Return all items that have an answer, as the service lists them."""
    found: set[str] = set()
    cursor = ""
    while cursor is not None:
        query = {"state": "tagged", "n": 200, **({"cursor": cursor} if cursor else {})}
        told = client.get("/v1/items", params=query).json()
        found |= {item["id"] for item in told["items"]}
        cursor = told["next"]
    return found


@pytest.mark.parametrize("team", [2000], indirect=True)
def test_a_hundred_random_actions_of_two_people_lose_no_answer(team):
    play(team, 100, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("team", [20_000], indirect=True)
def test_five_hundred_random_actions_of_two_people_lose_no_answer(team):
    play(team, 500, seed=2)
