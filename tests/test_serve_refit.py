"""A refit as an event: in the list of changes, in the log, over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from fake_tagger import FakeTagger
from serving import serving
from tagstream.checks import DataError
from tagstream.serve.log import EventLog
from tagstream.serve.tokens import Tokens
from tagstream.serve.writer import Change, Service, apply_events
from tagstream.tagger import Tagger


def item(i: int) -> dict[str, Any]:
    return {"id": f"{i}", "text": f"word{i % 7} text{i % 5} more", "y": [f"t{i % 3}"]}


def state_of(tagger: Tagger, scratch: Path) -> bytes:
    tagger.extra = {}
    tagger.save(scratch)
    return scratch.read_bytes()


@pytest.mark.parametrize("n", [1, 19, 20, 60])
def test_a_refit_in_a_list_of_records_is_made_in_its_place(tmp_path, n):
    records = [item(i) for i in range(n)]
    by_hand, by_log = Tagger(), Tagger()
    by_hand.learn(records)
    by_hand.refit()
    by_hand.learn(item(n))
    by_log.learn([*records, {"event": "refit"}, item(n)])
    assert state_of(by_log, tmp_path / "log") == state_of(by_hand, tmp_path / "hand")
    by_hand.change("refit")  # legal whatever the size


def test_a_refit_says_nothing_else():
    with pytest.raises(DataError, match="refit must have no other fields, got the fields now"):
        Tagger().learn([item(1), {"event": "refit", "now": True}])


def test_a_refit_of_a_service_is_an_event_of_its_log(tmp_path, run):
    folder, model = tmp_path / "folder", tmp_path / "m.tgs"
    with serving(folder, tagger=Tagger) as client:
        assert client.post("/v1/refit").json() == {"n": 0, "duplicates": 1, "position": 0}
        body = {"items": [item(i) for i in range(50)]}
        assert client.post("/v1/learn", json=body).status_code == 200
        told = client.post("/v1/refit", json={"key": "nightly"})
        assert told.json() == {"n": 1, "duplicates": 0, "position": 52}
        again = client.post("/v1/refit", json={"key": "nightly"})
        assert again.json() == {"n": 0, "duplicates": 1, "position": 52}
        assert client.post("/v1/refit").json()["position"] == 53
        served = state_of(client.service._tagger, tmp_path / "served")
    log = EventLog(folder / "events.db", read_only=True)
    tagger = Tagger()
    for event in log.after(0):
        apply_events(tagger, [event])
    log.close()
    assert state_of(tagger, tmp_path / "replayed") == served
    code, exported, _ = run("log", "export", folder)
    assert code == 0
    assert json.loads(exported.splitlines()[-1]) == {"event": "refit"}
    assert run("learn", "-", "--model", model, stdin=exported)[0] == 0
    assert state_of(Tagger.open(model), tmp_path / "learnt") == served


def test_a_refit_needs_an_administrator(tmp_path):
    tokens = Tokens(tmp_path / "tokens.json")
    secrets = {role: tokens.add(role, role) for role in ("write", "admin")}
    with serving(tmp_path, is_open=False) as client:
        for role, status in (("write", 403), ("admin", 200)):
            headers = {"Authorization": f"Bearer {secrets[role]}"}
            assert client.post("/v1/refit", headers=headers).status_code == status


def test_a_refit_is_refused_while_events_are_missing(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        service.submit(Change("learn", [item(1)], [None])).result(60)
    (tmp_path / "events.db").unlink()
    with serving(tmp_path) as client:
        assert client.post("/v1/refit").status_code == 503
