"""An event on which the tagger fails: it is put in quarantine, and everything else goes on."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

pytest.importorskip("fastapi")

from fake_tagger import FakeTagger
from serving import serving
from tagstream import cli
from tagstream.serve import writer
from tagstream.serve.follow import Follower
from tagstream.serve.log import EventLog, LogFull
from tagstream.serve.writer import Change, Held, Refused, Service
from tagstream.tagger import Tagger


class Frail(FakeTagger):
    """Fails on some texts and tags, after it has changed half of its state."""

    errors: ClassVar[dict[str, type[Exception]]] = {
        "venom": IndexError, "singular": np.linalg.LinAlgError, "large": MemoryError,
    }  # fmt: skip
    calls: ClassVar[list[str]] = []

    def learn(self, records: Any, **more: Any) -> int:
        records = [records] if isinstance(records, dict) else [*records]
        for record in records:
            for word, error in self.errors.items():
                if word in record["text"]:
                    self.items.clear()
                    self.calls.append(record["text"])
                    raise error("a fault in a fit")
            super().learn(record)
        return len(records)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if new == "venom":
            raise IndexError("a fault in a fit")


class FrailReal(Tagger):
    """The real tagger, with a fault in the middle of a call."""

    def learn(self, records: Any, **more: Any) -> Any:
        told = super().learn(records)
        if any("venom" in record["text"] for record in records):
            raise IndexError("a fault in a fit")
        return told


def item(name: str, text: str, *tags: str) -> dict[str, Any]:
    return {"id": name, "text": text, "y": [*tags]}


def learn(service: Service, *items: dict[str, Any], keys: Any = None) -> Any:
    change = Change("learn", [*items], keys or [None] * len(items))
    return service.submit(change).result(timeout=60)


def state_without(folder: Path, kind: Any = FakeTagger) -> Any:
    """The state that the log gives to a tagger that knows nothing of faults."""
    log = EventLog(folder / "events.db", read_only=True)
    tagger = kind()
    for event in log.after(0):
        writer.apply_events(tagger, [event])
    log.close()
    return tagger


@pytest.mark.parametrize("word", Frail.errors)
def test_the_state_is_that_of_a_log_without_the_event(tmp_path, word, caplog):
    with Service(tmp_path, Frail, snapshot_events=4) as service:
        for i in range(6):
            learn(service, item(f"{i}", f"word{i}", "a"))
        with pytest.raises(Refused, match="event 7 is written down, but the tagger failed") as told:
            learn(service, item("2", f"some {word}", "b"), keys=["k"])
        assert "tagstream log retry DIR 7" in str(told.value)
        learn(service, item("6", "word6", "b"))
        assert service.read().n_items == 7
        assert service.log.newest("2").position == 3
        assert [position for position, _ in service.quarantined] == [7]
        assert service.failure is None
        assert service._tagger.state() == state_without(tmp_path).state()
        assert [event.body["position"] for event in service.log.of_kinds("quarantine")] == [7]
        again = pytest.raises(Refused, match="event 7 is written down")
        with again:  # with the same key: the same answer, and no second event
            learn(service, item("2", f"some {word}", "b"), keys=["k"])
        assert service.log.position == 9
    assert "the tagger failed on event 7" in caplog.text


def test_a_real_tagger_has_the_same_bits_as_without_the_event(tmp_path):
    with Service(tmp_path / "folder", FrailReal, snapshot_events=30) as service:
        for i in range(50):
            learn(service, item(f"{i}", f"word{i % 7} text{i % 5}", f"t{i % 3}"))
            if i in (3, 40):
                with pytest.raises(Refused):
                    learn(service, item("x", "venom text1", "t1"))
        service._tagger.save(tmp_path / "served")
    undisturbed = Tagger()
    for i in range(50):
        undisturbed.learn([item(f"{i}", f"word{i % 7} text{i % 5}", f"t{i % 3}")])
    undisturbed.save(tmp_path / "undisturbed")
    assert (tmp_path / "served").read_bytes() == (tmp_path / "undisturbed").read_bytes()


def test_only_the_poisonous_events_of_a_group_are_quarantined(tmp_path):
    with Service(tmp_path, Frail) as service:
        learn(service, item("first", "t", "a"))
        with service._wake:  # so that they make one group
            futures = [
                service.submit(Change("learn", [item(f"{i}", text, "a")], [None]))
                for i, text in enumerate(["one", "venom", "two", "large", "three"])
            ]
        failed = [future.exception(60) for future in futures]
        assert [error is None for error in failed] == [True, False, True, False, True]
        assert [position for position, _ in service.quarantined] == [3, 5]
        assert service.read().n_items == 4
        assert service._tagger.state() == state_without(tmp_path).state()


def test_a_change_of_tags_can_be_quarantined(tmp_path):
    with Service(tmp_path, Frail) as service:
        learn(service, item("1", "t", "a"))
        with pytest.raises(Refused, match="event 2 is written down"):
            service.submit(Change("rename", [{"old": "a", "new": "venom"}], [None])).result(60)
        assert service.read().view.tags == ["a"]
        assert service.tags_now(service.log.newest("1")) == ["a"]
        assert service._tagger.state() == state_without(tmp_path).state()


def test_an_item_of_the_pool_waits_again_if_it_could_not_be_learnt(tmp_path):
    with Service(tmp_path, Frail) as service:
        bodies = [{"id": n, "item": {"text": t}} for n, t in [("1", "venom"), ("2", "good")]]
        service.submit(Change("pool", bodies, [None, None])).result(60)
        learn(service, item("2", "good", "a"))
        with pytest.raises(Refused):
            learn(service, item("1", "venom", "a"))
        assert len(service.pool) == 1
        learn(service, item("3", "more", "a"))
        assert [name for name, _ in service.log.pool()] == ["1"]


def kill_before_learning(folder: Path, *texts: str) -> None:
    """Leave events in the log as a writer that is killed right after the commit."""
    with Service(folder, FakeTagger) as service:
        learn(service, item("first", "t", "a"))
        service.submit(Change("snapshot", [], [])).result(60)
        service.on_failure = lambda: None
        for i, text in enumerate(texts):
            learn(service, item(f"{i}", text, "a"))
    for path in (folder / "snapshots").iterdir():
        path.unlink()


def test_a_replay_at_the_start_passes_over_what_fails_and_writes_it_down(tmp_path):
    kill_before_learning(tmp_path, "one", "venom", "two", "large", "three")
    Frail.calls.clear()
    with Service(tmp_path, Frail) as service:
        assert service._tagger.state() == state_without(tmp_path).state()
        assert [position for position, _ in service.quarantined] == [3, 5]
        assert learn(service, item("new", "t", "a")).n == 1
    assert "venom" in Frail.calls
    Frail.calls.clear()
    for path in (tmp_path / "snapshots").iterdir():
        path.unlink()
    with Service(tmp_path, Frail) as service:  # never tried again by itself
        assert Frail.calls == []
        assert [position for position, _ in service.quarantined] == [3, 5]


def test_what_cannot_be_written_down_now_is_written_before_the_next_change(tmp_path, monkeypatch):
    with Service(tmp_path, Frail) as service:
        learn(service, item("1", "t", "a"))
        usual = service.log.append

        def full(event: Any) -> int:
            if event.kind == "quarantine":
                raise LogFull("the disk is full")
            return usual(event)

        with monkeypatch.context() as patch:
            patch.setattr(service.log, "append", full)
            with pytest.raises(Refused, match="quarantined"):
                learn(service, item("2", "venom", "a"))
            with pytest.raises(LogFull):
                learn(service, item("3", "t", "a"))
            with pytest.raises(LogFull):  # a snapshot would hide the event from a replay
                service.submit(Change("snapshot", [], [])).result(60)
        learn(service, item("3", "t", "a"))
        kinds = [service.log.find(position).kind for position in (2, 3, 4)]
        assert kinds == ["learn", "quarantine", "learn"]
        assert service._tagger.state() == state_without(tmp_path).state()


def test_if_almost_everything_fails_nothing_is_quarantined_and_changes_are_refused(tmp_path):
    kill_before_learning(tmp_path, *(f"venom {i}" for i in range(writer.MOST_FAILED + 5)))
    with Service(tmp_path, Frail) as service:
        assert "this version or this machine" in service.held
        assert service.read().view.suggest([{"text": "t"}])[0].tags == ["a"]
        with pytest.raises(Held, match="Nothing is lost"):
            learn(service, item("new", "t", "a"))
        assert service.log.of_kinds("quarantine") == []
    with Service(tmp_path, FakeTagger) as service:  # the version before
        assert service.read().n_items == writer.MOST_FAILED + 6


def test_a_state_that_cannot_be_made_again_ends_the_service_and_loses_nothing(tmp_path):
    with Service(tmp_path, Frail) as service:
        learn(service, item("1", "t", "a"), item("2", "u", "b"))
        ended = threading.Event()
        service.on_failure = ended.set
        usual = dict(Frail.errors)
        Frail.errors["t"] = IndexError  # what was learnt before fails now
        try:
            with pytest.raises(writer.Closed):
                learn(service, item("3", "venom", "a"))
            assert ended.wait(60)
        finally:
            Frail.errors.pop("t")
        assert Frail.errors == usual
    with Service(tmp_path, Frail) as service:
        assert service.read().n_items == 2


# ---------------------------------------------------------------------- told to people
def test_health_metrics_and_answers_tell_of_it(tmp_path):
    with serving(tmp_path, tagger=Frail) as client:
        assert client.get("/health/ready").json() == {"status": "ready"}
        body = {"items": [{"id": "1", "text": "my secret venom", "y": ["a"]}]}
        answer = client.post("/v1/learn", json=body)
        assert answer.status_code == 422
        assert "quarantined" in answer.json()["error"]
        told = client.get("/health/ready")
        assert told.status_code == 200
        assert "1 changes could not be learnt and are quarantined, at position 1" in told.text
        assert "secret" not in told.text
        assert "tagstream_quarantined_events 1.0" in client.get("/metrics").text
        body["items"][0]["text"] = "better"
        assert client.post("/v1/learn", json=body).json()["n"] == 1
        assert client.get("/health/ready").json() == {"status": "ready"}  # the item has its tags


# ---------------------------------------------------------------------- trying again
def test_a_quarantined_event_is_tried_again_by_a_command(tmp_path, capfd):
    with Service(tmp_path, Frail) as service:
        learn(service, item("1", "t", "a"))
        with pytest.raises(Refused):
            learn(service, item("2", "venom", "b"))
        assert cli.main(["log", "retry", str(tmp_path), "2"]) == 1
        assert "stop the service first" in capfd.readouterr().err
    assert cli.main(["log", "retry", str(tmp_path), "1"]) == 1
    told = capfd.readouterr().err
    assert "POSITION must be that of a quarantined event, got 1; quarantined: 2" in told
    assert cli.main(["log", "retry", str(tmp_path), "2"]) == 0
    assert "event 2 is appended as event 4" in capfd.readouterr().err
    with Service(tmp_path, Frail) as service:  # not mended yet
        assert [position for position, _ in service.quarantined] == [4]
    assert cli.main(["log", "retry", str(tmp_path), "4"]) == 0
    with Service(tmp_path, FakeTagger) as service:  # mended
        assert service.quarantined == []
        newest = service.log.newest("2")
        assert (newest.body, newest.who, newest.source) == (
            item("2", "venom", "b"), "local", "command",
        )  # fmt: skip
        assert service.read().view.counts == {"a": 1, "b": 1}
    assert cli.main(["log", "retry", str(tmp_path / "nowhere"), "1"]) == 1


def test_a_retry_does_not_undo_what_came_after(tmp_path, capfd):
    with Service(tmp_path, Frail) as service:
        with pytest.raises(Refused):
            learn(service, item("1", "venom", "b"))
        learn(service, item("1", "better", "c"))
    assert cli.main(["log", "retry", str(tmp_path), "1"]) == 1
    assert "must not have changed since, got event 3" in capfd.readouterr().err


# ---------------------------------------------------------------------- replicas
def published(follower: Follower) -> threading.Event:
    """An event that is set by each further look of a replica at the log."""
    looked, look = threading.Event(), follower._look

    def noted() -> None:
        try:
            look()
        finally:
            looked.set()

    follower._look = noted
    return looked


def test_a_replica_passes_over_what_the_writer_has_quarantined(tmp_path):
    with Service(tmp_path, Frail) as service:
        learn(service, item("1", "t", "a"))
        with Follower(tmp_path, Frail, every=0.01) as replica:
            looked = published(replica)
            with pytest.raises(Refused):
                learn(service, item("2", "venom", "a"))
            learn(service, item("3", "t", "a"))
            while replica.read().position < 4:
                looked.clear()
                assert looked.wait(60)
            assert replica._tagger.state() == service._tagger.state()
            assert replica.ready


def test_a_replica_that_fails_where_the_writer_did_not_stops_and_says_so(tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    with Service(tmp_path, FakeTagger) as service:
        learn(service, item("1", "t", "a"), item("2", "t", "a"))
        with Follower(tmp_path, Frail, every=0.01) as replica:
            looked = published(replica)
            learn(service, item("3", "good", "a"), item("4", "venom", "a"), item("5", "t", "a"))
            while replica.read().position < 3:
                looked.clear()
                assert looked.wait(60)
            assert replica.ready  # the writer may still quarantine it
            learn(service, item("6", "t", "a"))
            replica._thread.join(60)
            assert not replica._thread.is_alive()
            assert not replica.ready
            assert replica.failure is None
            (told,) = replica.warnings
            assert "stopped at position 3: its tagger failed on event 4 (IndexError)" in told
            assert replica.read().n_items == 3
            assert replica.read().view.suggest([{"text": "good"}])[0].tags == ["a"]
    assert "This replica stopped" in caplog.text
    assert json.dumps(replica.warnings)


# ---------------------------------------------------------------------- snapshots
@pytest.mark.parametrize("error", [ValueError("ridge must be positive"), OSError(28, "full")])
def test_a_snapshot_that_fails_is_reported_and_is_not_the_end(tmp_path, monkeypatch, error):
    def fail(self: FakeTagger, path: Any) -> None:
        raise error

    with serving(tmp_path, tagger=FakeTagger) as client:
        service = client.service
        service.snapshot_events = 2
        with monkeypatch.context() as patch:
            patch.setattr(FakeTagger, "save", fail)
            for i in range(5):
                learn(service, item(f"{i}", "t", "a"))
            answer = client.post("/v1/snapshot", json={})
            assert answer.status_code == (507 if isinstance(error, OSError) else 500)
            assert "the snapshot cannot be written" in answer.json()["error"]
            assert service.n_snapshots_failed == 3
            assert "tagstream_snapshots_failed 3.0" in client.get("/metrics").text
            told = client.get("/health/ready").json()
            assert "The last snapshot could not be written" in told["warnings"][0]
        assert client.post("/v1/snapshot", json={}).status_code == 200
        assert client.get("/health/ready").json() == {"status": "ready"}
    with Service(tmp_path, FakeTagger) as again:
        assert again.read().n_items == 5
