"""A log that is damaged or incomplete: nothing is thrown away, and nobody is left in the dark."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from fake_tagger import FakeTagger
from serving import serving
from tagstream.serve import log as log_module
from tagstream.serve import recovery
from tagstream.serve.log import EventLog, LogFull
from tagstream.serve.recovery import open_log
from tagstream.serve.writer import Change, Held, Service


def item(name: str, text: str, *tags: str) -> dict[str, Any]:
    return {"id": name, "text": text, "y": [*tags]}


def learn(service: Service, *items: dict[str, Any], keys: Any = None) -> Any:
    change = Change("learn", [*items], keys or [None] * len(items))
    return service.submit(change).result(timeout=60)


def fill(folder: Path, n: int = 30, snapshots: bool = False) -> dict[str, Any]:
    with Service(folder, FakeTagger) as service:
        bodies = [{"id": "w", "item": {"text": "wait"}}]
        service.submit(Change("pool", bodies, [None])).result(60)
        for i in range(n):
            learn(service, item(f"{i % 20}", f"word{i}", f"tag{i % 4}"), keys=[f"k{i}"])
        state: dict[str, Any] = service._tagger.state()
    if not snapshots:
        shutil.rmtree(folder / "snapshots")
    return state


def damage(folder: Path, how: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / "events.db")) as database, database:
        assert database.execute(how).rowcount


def truncate(folder: Path) -> None:
    path = folder / "events.db"
    os.truncate(path, path.stat().st_size * 2 // 3)


def overwrite(folder: Path) -> None:
    (folder / "events.db").write_bytes(b"no database at all" * 100)


def break_page(folder: Path) -> None:
    """Overwrite a page in the middle of the table of events."""
    path = folder / "events.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        root = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'events'"
        ).fetchone()[0]
        size = database.execute("PRAGMA page_size").fetchone()[0]
    with open(path, "r+b") as file:
        file.seek((root - 1) * size)
        head = file.read(size)
        # An interior page: behind its header come pointers to cells, which begin with a child.
        assert head[0] == 5
        cell = int.from_bytes(head[12 + 2 : 12 + 4], "big")
        child = int.from_bytes(head[cell : cell + 4], "big")
        file.seek((child - 1) * size)
        file.write(b"\xff" * size)


DAMAGES: dict[str, Any] = {
    "an event": lambda f: damage(
        f, "UPDATE events SET body = replace(body, 'word', 'w0rd') WHERE position = 25"
    ),
    "no UTF-8": lambda f: damage(
        f, "UPDATE events SET body = CAST(x'7bff22' AS TEXT) WHERE position = 25"
    ),
    "suggestions": lambda f: damage(f, "UPDATE events SET suggested = '[' WHERE position = 25"),
    "a gap": lambda f: damage(f, "DELETE FROM events WHERE position IN (7, 8)"),
    "a page": break_page,
    "the end": truncate,
    "no database": overwrite,
}


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name != "lock"}


# ---------------------------------------------------------------------- held until accepted
@pytest.mark.parametrize("snapshots", [False, True])
@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_told_and_nothing_is_touched_until_it_is_accepted(
    tmp_path, what, snapshots, caplog
):
    n = 300 if what in ("a page", "the end") else 30
    before = fill(tmp_path, n, snapshots)
    DAMAGES[what](tmp_path)
    left = files(tmp_path)
    if what in ("a page", "the end"):
        left.pop("events.db")  # SQLite may write what is in memory
    with caplog.at_level(logging.ERROR), Service(tmp_path, FakeTagger) as service:
        assert "tagstream serve DIR --accept-loss" in service.held
        with pytest.raises(Held, match="changes are refused"):
            learn(service, item("next", "t", "a"))
        with pytest.raises(Held):
            service.submit(Change("pool", [{"id": "p", "item": {"text": "t"}}], [None]))
        if snapshots:
            assert service._tagger.state() == before
        assert service.n_lost > 0
    assert "are missing from the log or damaged" in caplog.text
    assert files(tmp_path).items() >= left.items()
    assert not [*tmp_path.glob("*.new*")]
    with Service(tmp_path, FakeTagger, accept_loss=True) as service:
        assert service.held == ""
        assert service.n_lost > 0
        if snapshots:
            assert service._tagger.state() == before
        done = learn(service, item("next", "t", "a"))
        state = service._tagger.state()
        if what == "an event":
            lost = [event.body for event in service.log.of_kinds("gap")]
            assert [(gap["first"], gap["last"]) for gap in lost] == [(25, 25)]
            assert done.position == 31
            assert service.log.position == 31  # those behind the damage are kept
    assert (tmp_path / "events.db.damaged-1").exists()
    assert not [*tmp_path.glob("*.new*")]
    with Service(tmp_path, FakeTagger) as service:  # and that was that
        assert service.held == ""
        assert service._tagger.state() == state


@pytest.mark.parametrize("what", ["a page", "the end"])
def test_of_a_damaged_file_all_that_can_be_read_is_kept(tmp_path, what):
    fill(tmp_path, 300)
    DAMAGES[what](tmp_path)
    log, _ = open_log(tmp_path / "events.db", accept_loss=True)
    positions = [event.position for event in log.after(0) if event.kind == "learn"]
    # Of the end a third was cut off; of a page in the middle only that page is lost.
    assert len(positions) > (60 if what == "the end" else 260)
    assert what == "the end" or positions[-1] == 300
    log.close()


def test_damage_that_lost_nothing_needs_nobody(tmp_path, caplog):
    before = fill(tmp_path)
    path = tmp_path / "events.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        root = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'events_of_item'"
        ).fetchone()[0]
        size = database.execute("PRAGMA page_size").fetchone()[0]
    with open(path, "r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    with caplog.at_level(logging.ERROR), Service(tmp_path, FakeTagger) as service:
        assert service.held == ""
        assert service._tagger.state() == before
        assert learn(service, item("next", "t", "a")).position == 31
    assert "lost: nothing" in caplog.text


def test_a_log_that_ends_before_the_snapshot_is_held(tmp_path):
    before = fill(tmp_path, snapshots=True)
    damage(tmp_path, "DELETE FROM events WHERE position > 20")
    with Service(tmp_path, FakeTagger) as service:
        assert "21 to 30 (a snapshot knows them)" in service.held
        assert service._tagger.state() == before
    (tmp_path / "events.db").unlink()
    with Service(tmp_path, FakeTagger) as service:
        assert "1 to 30 (a snapshot knows them)" in service.held
        assert service._tagger.state() == before
    with Service(tmp_path, FakeTagger, accept_loss=True) as service:
        assert learn(service, item("next", "t", "a")).position == 31


def test_an_empty_log_beside_a_damaged_one_is_held_and_that_is_read(tmp_path):
    """As version 0.2 leaves it if it is killed while it recovers."""
    before = fill(tmp_path)
    os.rename(tmp_path / "events.db", tmp_path / "events.db.damaged-1")
    with Service(tmp_path, FakeTagger) as service:
        assert "the log was empty beside events.db.damaged-1" in service.held
        assert service._tagger.state() == before
    with Service(tmp_path, FakeTagger, accept_loss=True) as service:
        assert service._tagger.state() == before
        assert [name for name, _ in service.log.pool()] == ["w"]
        assert learn(service, item("next", "t", "a")).position == 32  # behind the gap
    assert (tmp_path / "events.db.damaged-1").exists()


def test_a_held_service_answers_questions_and_refuses_changes_with_503(tmp_path):
    fill(tmp_path)
    DAMAGES["a gap"](tmp_path)
    with serving(tmp_path) as client:
        body = {"items": [{"id": "1", "text": "word3", "y": ["a"]}]}
        for path, sent in (
            ("/v1/learn", body),
            ("/v1/forget", {"ids": ["1"]}),
            ("/v1/tags/rename", {"old": "tag1", "new": "one"}),
            ("/v1/pool", {"items": [{"id": "p", "text": "t"}]}),
        ):
            answer = client.post(path, json=sent)
            assert answer.status_code == 503
            assert "tagstream serve DIR --accept-loss" in answer.json()["error"]
        asked = client.post("/v1/suggest", json={"items": [{"text": "word23"}]})
        assert asked.json()["items"][0]["tags"] == ["tag3"]
        assert len(client.get("/v1/items").json()["items"]) == 20
        ready = client.get("/health/ready")
        assert ready.status_code == 200
        assert "2 events are missing" in ready.json()["warnings"][0]
        told = client.get("/metrics").text
        assert "tagstream_held 1.0" in told
        assert "tagstream_lost_events 2.0" in told


# ---------------------------------------------------------------------- a kill at any step
class Steps:
    """Keeps a copy of a folder before every step that changes a file: what a kill would leave."""

    def __init__(self, folder: Path, copies: Path, monkeypatch: Any) -> None:
        self.folder, self.copies = folder, copies
        self.n = 0
        connect = log_module.connect

        def noting(target: Any) -> Any:
            connection = connect(target)
            connection.set_trace_callback(lambda _: self.keep())
            return connection

        monkeypatch.setattr(log_module, "connect", noting)
        monkeypatch.setattr(recovery, "connect", noting)
        for name in ("rename", "unlink", "fsync", "truncate"):
            monkeypatch.setattr(os, name, self.before(getattr(os, name)))

    def before(self, function: Any) -> Any:
        def stepped(*args: Any, **more: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                self.keep()
            return function(*args, **more)

        return stepped

    def keep(self) -> None:
        self.n += 1
        shutil.copytree(self.folder, self.copies / f"{self.n}")


@pytest.mark.parametrize("what", ["an event", "a gap", "no database"])
def test_a_kill_at_any_step_of_a_recovery_is_harmless(tmp_path, monkeypatch, what):
    folder, copies = tmp_path / "folder", tmp_path / "copies"
    fill(folder, 30)
    # A log that was not closed: its last events are only in the file beside it.
    log = EventLog(folder / "events.db")
    with log.transaction():
        log.append(log_module.Event("learn", "last", item("last", "t", "a")))
    shutil.copytree(folder, tmp_path / "killed")
    log.close()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "killed", folder)
    assert (folder / "events.db-wal").stat().st_size
    DAMAGES[what](folder)
    with monkeypatch.context() as patch:
        steps = Steps(folder, copies, patch)
        log, _ = open_log(folder / "events.db", accept_loss=True)
    wanted = [event.line() for event in log.after(0)]
    log.close()
    assert len(wanted) > (0 if what == "no database" else 5)
    n_held = 0
    for i in range(1, steps.n + 1):
        path = copies / f"{i}" / "events.db"
        log, losses = open_log(path)
        log.close()
        if losses:  # not decided yet: nothing may be gone
            n_held += 1
        log, losses = open_log(path, accept_loss=True)
        assert losses == []
        now = [event.line() for event in log.after(0)]
        log.close()
        assert now == wanted, i
        left = {p.name for p in path.parent.glob("events.db*")}
        assert left <= {"events.db", "events.db.damaged-1", "events.db.damaged-1-wal"}, i
    assert 0 < n_held < steps.n


@pytest.mark.parametrize("name", ["rename", "fsync"])
def test_an_error_at_any_step_of_a_recovery_is_harmless(tmp_path, monkeypatch, name):
    fill(tmp_path)
    DAMAGES["a gap"](tmp_path)
    usual = getattr(os, name)
    for stop in range(1, 20):
        n = 0

        def failing(*args: Any, stop: int = stop) -> Any:
            nonlocal n
            n += 1
            if n == stop:
                raise OSError(28, "No space left on device")
            return usual(*args)

        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            try:
                log, losses = open_log(tmp_path / "events.db", accept_loss=True)
            except OSError:
                continue
        assert losses == []
        assert len([event for event in log.after(0) if event.kind == "learn"]) == 28
        log.close()
        return
    raise AssertionError("it never came through")


def test_a_full_disk_during_a_recovery_loses_nothing(tmp_path, monkeypatch):
    fill(tmp_path, 300)
    DAMAGES["a gap"](tmp_path)
    before = (tmp_path / "events.db").read_bytes()
    usual = log_module.connect

    def small(target: Any) -> Any:
        connection = usual(target)
        if str(target).endswith(".new"):
            connection.execute("PRAGMA max_page_count = 12")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(log_module, "connect", small)
        for accept in (False, True):
            with pytest.raises(LogFull, match="full"):
                Service(tmp_path, FakeTagger, accept_loss=accept)
    assert (tmp_path / "events.db").read_bytes() == before
    assert not [*tmp_path.glob("*.new*")]
    with Service(tmp_path, FakeTagger, accept_loss=True) as service:
        assert service.n_lost == 2
        assert learn(service, item("next", "t", "a")).position == 301


# ---------------------------------------------------------------------- ending and leaving
def test_an_end_during_a_replay_does_not_wait_for_it(tmp_path, monkeypatch):
    fill(tmp_path)
    learning, release = threading.Event(), threading.Event()

    def slow(self: FakeTagger, records: Any, **more: Any) -> int:
        learning.set()
        assert release.wait(60)
        return 0

    monkeypatch.setattr(FakeTagger, "learn", slow)
    service = Service(tmp_path, FakeTagger)
    service.start(wait=False)
    assert learning.wait(60)
    service.close()  # returns while the tagger is still at work
    assert not release.is_set()
    assert service._thread.is_alive()
    release.set()
    service._thread.join(60)
    assert not service.ready
    assert service.failure is None


STUCK = """
import sys, threading
from pathlib import Path
from fake_tagger import FakeTagger
from tagstream.serve import run
from tagstream.serve.writer import Service

class Stuck(FakeTagger):
    def learn(self, records, **more):
        print("learning", flush=True)
        threading.Event().wait()

run.log_to()
sys.exit(run.serve(Service(Path(sys.argv[1]), Stuck), "127.0.0.1", 0))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_service_whose_replay_would_never_end(tmp_path, number):
    fill(tmp_path)
    command = [sys.executable, "-c", STUCK, str(tmp_path)]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "learning\n"
        process.send_signal(number)
        told = process.communicate(timeout=120)[1]
    assert process.returncode == 0
    assert "ending in the middle of a replay" in told
    with Service(tmp_path, FakeTagger) as service:
        assert service.read().position == 30


CUT_OFF = """
import atexit, sys, time
from fake_tagger import FakeTagger
from tagstream import cli
from tagstream.serve import served
from tagstream.serve.writer import Service

closed = []

class Slow(FakeTagger):
    def learn(self, records, **more):
        print("learning", flush=True)
        while not (sys.argv[2] == "stops" and closed and closed[0]._closing):
            time.sleep(0.01)
        return super().learn(records)

def close(service, usual=Service.close):
    closed.append(service)
    usual(service)

served.usual_tagger, Service.replay_items, Service.close = lambda: Slow, 1, close
atexit.register(print, "taken apart")
sys.exit(cli.main(["serve", sys.argv[1], "--port", "0"]))
"""


@pytest.mark.parametrize("replay", ["stops", "goes on"])  # once it is told to end
def test_a_command_that_is_ended_in_a_replay_does_not_take_python_apart(tmp_path, replay):
    fill(tmp_path)
    command = [sys.executable, "-c", CUT_OFF, str(tmp_path), replay]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "learning\n"
        process.send_signal(signal.SIGTERM)
        said, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    assert "taken apart" not in said
    assert said.count("learning") == 0  # no event after the signal
    assert "Finished server process" in told  # what was logged is out
    with Service(tmp_path, FakeTagger) as service:
        assert service.read().position == 30


def test_a_replay_that_is_to_end_stops_before_its_next_block(tmp_path, monkeypatch):
    fill(tmp_path)
    monkeypatch.setattr(Service, "replay_items", 5)
    service = Service(tmp_path, FakeTagger)
    usual = FakeTagger.learn

    def ended(self: FakeTagger, records: Any, **more: Any) -> int:
        service._closing = True
        return usual(self, records)

    monkeypatch.setattr(FakeTagger, "learn", ended)
    service.start()
    service.close()
    assert service.replayed == 5
    assert service.failure is None


def test_what_a_kill_left_half_written_is_removed_at_the_next_start(tmp_path):
    fill(tmp_path, snapshots=True)
    names = ["base.new", "tokens.json.new", "events.db.new", "snapshots/000000000009.tgs.77.new"]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    with Service(tmp_path, FakeTagger):
        pass
    assert not [*tmp_path.rglob("*.new*")]
