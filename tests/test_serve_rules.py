"""Two people at once over random actions, against a model of the rules: no answer is lost."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from serving import serving
from tagstream.serve.tokens import Tokens

TAGS = ("sea", "soup", "salt", "sand")
State = list[str] | None


@dataclass(eq=False)
class Made:
    """A change: who made it, how each item was before, what it took out of the pool."""

    who: str
    before: dict[str, State]
    took: set[str]
    undone: bool = False


@dataclass
class Rules:
    """What must hold, with nothing of the service in it."""

    tags: dict[str, list[str]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    leases: dict[str, str] = field(default_factory=dict)
    made: list[Made] = field(default_factory=list)

    def change(self, who: str, after: dict[str, State]) -> None:
        before = {name: self.tags.get(name) for name in after}
        took = {name for name, y in after.items() if y is not None} & self.waiting
        self.made.append(Made(who, before, took))
        self._set(after)
        self.waiting -= took

    def _set(self, after: dict[str, State]) -> None:
        for name, y in after.items():
            if y is None:
                self.tags.pop(name, None)
                self.versions[name] = 0
            else:
                self.tags[name] = y
                self.leases.pop(name, None)

    def undoable(self, who: str) -> Made | None:
        return next((m for m in reversed(self.made) if m.who == who and not m.undone), None)

    def is_free(self, made: Made) -> bool:
        """Whether nobody has changed the items of a change since."""
        later = self.made[self.made.index(made) + 1 :]
        return not any({*m.before} & {*made.before} for m in later if not m.undone)

    def undo(self, made: Made) -> None:
        made.undone = True
        self._set(made.before)
        self.waiting |= made.took
        self.waiting -= {*self.tags}  # what got its tags back does not wait


class Team:
    """Two people who act at random; every answer of the service is compared with the rules."""

    def __init__(self, client: Any, secrets: dict[str, str], seed: int) -> None:
        self.client, self.secrets = client, secrets
        self.rng = random.Random(seed)
        self.rules = Rules()
        self.seen: dict[tuple[str, str], int] = {}
        self.names = [f"item {i}" for i in range(6)]
        self.n_done = dict.fromkeys(
            ("put", "look", "answer", "forget", "retag", "undo", "lease", "skip", "next"), 0
        )

    def call(self, who: str, method: str, path: str, status: int, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.secrets[who]}"}
        answer = self.client.request(method, path, headers=headers, **more)
        assert answer.status_code == status, (who, method, path, more, answer.text)
        return answer.json()

    def act(self) -> None:
        who, name = self.rng.choice(["anna", "ben"]), self.rng.choice(self.names)
        kinds = ["put", "look", "answer", "answer", "answer", "forget", "retag", "undo", "undo",
                 "lease", "skip", "next"]  # fmt: skip
        kind = self.rng.choice(kinds)
        getattr(self, kind)(who, name)
        self.n_done[kind] += 1
        self.check(name)

    def put(self, who: str, name: str) -> None:
        items = [{"id": name, "text": f"text of {name}"}]
        done = self.call(who, "POST", "/v1/pool", 200, json={"items": items})
        is_new = name not in self.rules.tags and name not in self.rules.waiting
        assert done["n"] == is_new
        if is_new:
            self.rules.waiting.add(name)

    def look(self, who: str, name: str) -> None:
        there = name in self.rules.tags or name in self.rules.waiting
        found = self.call(who, "GET", f"/v1/items/{name}", 200 if there else 404)
        self.seen[who, name] = found["version"] if there else 0

    def answer(self, who: str, name: str) -> None:
        rules = self.rules
        y = sorted(self.rng.sample(TAGS, self.rng.randint(0, 2)))
        version = self.seen.get((who, name), 0)
        now = rules.versions.get(name, 0)
        same = name in rules.tags and set(rules.tags[name]) == set(y)
        status = 200 if same or version == now else 409
        item = {"id": name, "text": f"text of {name}", "y": y, "version": version}
        told = self.call(who, "POST", "/v1/learn", status, json={"items": [item]})
        if status == 409:
            there = told["now"]
            assert (there and set(there["y"])) == (set(rules.tags[name]) if now else None)
            self.seen[who, name] = there["version"] if there else 0
        elif not same:
            rules.change(who, {name: y})
            rules.versions[name] = self.seen[who, name] = told["position"]

    def forget(self, who: str, name: str) -> None:
        there = name in self.rules.tags
        done = self.call(who, "POST", "/v1/forget", 200, json={"ids": [name]})
        assert done["n"] == there
        if there:
            self.rules.change(who, {name: None})

    def retag(self, who: str, name: str) -> None:
        rules = self.rules
        ids = sorted({name, *self.rng.sample(self.names, 2)})
        add, remove = self.rng.sample(TAGS, 2)
        body = {"ids": ids, "add": [add], "remove": [remove]}
        done = self.call(who, "POST", "/v1/items/tags", 200, json=body)
        assert done["missing"] == [one for one in ids if one not in rules.tags]
        after = {one: self._retagged(one, add, remove) for one in ids if one in rules.tags}
        changed = {one: y for one, y in after.items() if set(y) != set(rules.tags[one])}
        assert done["n"] == len(changed)
        if changed:
            rules.change(who, {**changed})
            for one in changed:
                found = self.call(who, "GET", f"/v1/items/{one}", 200)
                rules.versions[one] = found["version"]

    def _retagged(self, name: str, add: str, remove: str) -> list[str]:
        kept = [tag for tag in self.rules.tags[name] if tag != remove]
        return [*kept, *([] if add in kept else [add])]

    def undo(self, who: str, _: str) -> None:
        rules = self.rules
        made = rules.undoable(who)
        if made is None:
            self.call(who, "POST", "/v1/undo", 404)
            return
        free = rules.is_free(made)
        told = self.call(who, "POST", "/v1/undo", 200 if free else 409)
        if free:
            rules.undo(made)
            for one in made.before:
                if one in rules.tags:
                    rules.versions[one] = self.call(who, "GET", f"/v1/items/{one}", 200)["version"]
        else:
            assert "changed the item since" in told["error"]

    def lease(self, who: str, name: str) -> None:
        other = self.rules.leases.get(name, who)
        self.call(who, "POST", "/v1/lease", 200 if other == who else 409, json={"id": name})
        self.rules.leases[name] = other

    def skip(self, who: str, name: str) -> None:
        mine = self.rules.leases.get(name) == who
        told = self.call(who, "POST", "/v1/skip", 200, json={"id": name})
        assert told["released"] == mine
        if mine:
            del self.rules.leases[name]

    def next(self, who: str, _: str) -> None:
        others = {name for name, other in self.rules.leases.items() if other != who}
        told = self.call(who, "GET", "/v1/next", 200, params={"n": 100})
        assert {one["id"] for one in told["items"]} == self.rules.waiting - others
        assert told["n_pool"] == len(self.rules.waiting)

    def check(self, name: str) -> None:
        """Compare an item, and the search, with the rules."""
        rules = self.rules
        there = name in rules.tags or name in rules.waiting
        found = self.call("anna", "GET", f"/v1/items/{name}", 200 if there else 404)
        if name in rules.tags:
            assert set(found["y"]) == set(rules.tags[name])
            assert found["version"] == rules.versions[name]
        params = {"q": f'"text of {name}"', "state": "all"}
        listed = self.call("anna", "GET", "/v1/items", 200, params=params)["items"]
        assert [one["id"] for one in listed] == ([name] if there else [])


def play(folder: Any, seed: int, n: int) -> Team:
    tokens = Tokens(folder / "tokens.json")
    secrets = {name: tokens.add(name, "write") for name in ("anna", "ben")}
    with serving(folder) as client:
        team = Team(client, secrets, seed)
        for _ in range(n):
            team.act()
        for name in team.names:
            team.check(name)
    with serving(folder) as client:  # and after a restart
        team.client = client
        team.rules.leases.clear()
        for name in team.names:
            team.check(name)
        team.next("anna", "")
    return team


@pytest.mark.parametrize("seed", range(2))
def test_two_people_keep_the_rules_over_a_hundred_actions(tmp_path, seed):
    team = play(tmp_path, seed, 100)
    assert min(team.n_done.values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 105))
def test_two_people_keep_the_rules_over_five_hundred_actions(tmp_path, seed):
    play(tmp_path, seed, 500)


def test_answers_at_the_same_moment_are_each_there_or_refused(tmp_path):
    """Each acknowledged answer stands in the history right after the one that its person saw."""
    tokens = Tokens(tmp_path / "tokens.json")
    secrets = {name: tokens.add(name, "write") for name in ("anna", "ben")}
    acknowledged: list[tuple[str, int, int, str]] = []
    failed: list[BaseException] = []

    def tag(client: Any, who: str) -> None:
        rng = random.Random(who)
        headers = {"Authorization": f"Bearer {secrets[who]}"}
        seen = {"x": 0, "y": 0}
        for i in range(40):
            name = rng.choice("xy")
            body = {"id": name, "text": name, "y": [f"{who} {i}"], "version": seen[name]}
            answer = client.post("/v1/learn", json={"items": [body]}, headers=headers)
            if answer.status_code == 200:
                position = answer.json()["position"]
                acknowledged.append((name, seen[name], position, f"{who} {i}"))
                seen[name] = position
            else:
                assert answer.status_code == 409, answer.text
                seen[name] = answer.json()["now"]["version"]

    def guarded(client: Any, who: str) -> None:
        try:
            tag(client, who)
        except BaseException as error:
            failed.append(error)

    with serving(tmp_path) as client:
        threads = [threading.Thread(target=guarded, args=(client, who)) for who in secrets]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert len(acknowledged) > 40
        for name in "xy":
            history = client.service.log.history(name, 1000)
            told = {event.position: event.body["y"] for event in history}
            order = [0, *told]
            mine = [entry for entry in acknowledged if entry[0] == name]
            assert {position: [tags] for _, _, position, tags in mine} == told
            for _, seen, position, _ in mine:
                assert order[order.index(position) - 1] == seen
