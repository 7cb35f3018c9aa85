"""The log of schema 2: upgraded from schema 1, chained, open to kinds, with who and when."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_tagger import FakeTagger
from tagstream import cli
from tagstream.records.record import CHANGES
from tagstream.serve import log as module
from tagstream.serve.kinds import KINDS
from tagstream.serve.log import Event, EventLog, LogFull, Row
from tagstream.serve.names import TagNames
from tagstream.serve.recovery import open_log
from tagstream.serve.writer import Change, Refused, Service

LOG_1 = Path(__file__).parent / "log1"


def item(name: str, text: str, *tags: str) -> dict[str, Any]:
    return {"id": name, "text": text, "y": [*tags]}


def learn(service: Service, *items: dict[str, Any], keys: Any = None, **more: Any) -> Any:
    change = Change("learn", [*items], keys or [None] * len(items), **more)
    return service.submit(change).result(timeout=60)


def log_of_0_2(folder: Path) -> Path:
    """A database that version 0.2 wrote, with all kinds of events, refusals and a gap."""
    folder.mkdir(exist_ok=True)
    path = folder / "events.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript((LOG_1 / "events.sql").read_text(encoding="utf-8"))
        database.execute("PRAGMA journal_mode=WAL")
    return path


def lines_of(log: EventLog) -> list[dict[str, Any]]:
    return [event.line() for event in log.after(0) if event.does.changes]


EXPORTED_BY_0_2 = [
    json.loads(line) for line in (LOG_1 / "export.jsonl").read_text("utf-8").splitlines()
]


# ---------------------------------------------------------------------- schema 1
def check_upgraded(log: EventLog) -> None:
    assert lines_of(log) == EXPORTED_BY_0_2
    assert log.position == 15
    (gap,) = log.of_kinds("gap")
    assert (gap.position, gap.body["first"], gap.body["last"]) == (13, 13, 13)
    assert log.find_key("bad").refused == "text must not be p0ison"
    assert log.find_key("late").refused == ""
    assert [(event.position, event.body["id"]) for event in log.states()] == [
        (1, "1"), (3, "3"), (5, "p1"), (7, "2"), (12, "5"), (15, "7"),
    ]  # fmt: skip
    assert log.pool() == [("p2", {"text": "mend a tyre"})]
    assert log.find(3).time == 1.79500524027212238304e09
    assert (log.find(3).who, log.find(3).source) == ("", "")


def test_a_log_of_0_2_is_upgraded_and_served_as_before(tmp_path):
    path = log_of_0_2(tmp_path)
    log, losses = open_log(path)
    assert losses == []
    check_upgraded(log)
    log.close()
    undisturbed = FakeTagger()
    undisturbed.learn(EXPORTED_BY_0_2[:5])
    for line in EXPORTED_BY_0_2[5:]:
        if "event" in line:
            undisturbed.change(**line)
        else:
            undisturbed.learn(line)
    with Service(tmp_path, FakeTagger) as service:
        assert service._tagger.state() == undisturbed.state()
        assert service.n_lost == 1
        with pytest.raises(Refused, match=r"^text must not be p0ison$"):
            learn(service, item("4", "p0ison", "x"), keys=["bad"])
        assert learn(service, item("8", "more", "code")).position == 16


def test_a_log_of_0_2_is_exported_without_being_changed(tmp_path, capfd):
    path = log_of_0_2(tmp_path)
    before = path.read_bytes()
    assert cli.main(["log", "export", str(tmp_path)]) == 0
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert told == EXPORTED_BY_0_2
    assert path.read_bytes() == before


class Steps:
    """Keeps a copy of a folder at every statement of SQLite: what a kill there would leave."""

    def __init__(self, folder: Path, copies: Path, monkeypatch: Any) -> None:
        self.folder, self.copies, self.n = folder, copies, 0
        usual = module.connect

        def connect(target: Any) -> Any:
            connection = usual(target)
            connection.set_trace_callback(lambda _: self.keep())
            return connection

        monkeypatch.setattr(module, "connect", connect)

    def keep(self) -> None:
        self.n += 1
        shutil.copytree(self.folder, self.copies / f"{self.n}")


def test_a_kill_at_any_statement_of_the_upgrade_loses_nothing(tmp_path, monkeypatch):
    path = log_of_0_2(tmp_path / "folder")
    with monkeypatch.context() as patch:
        steps = Steps(tmp_path / "folder", tmp_path / "copies", patch)
        EventLog(path).close()
    assert steps.n > 50
    for i in range(1, steps.n + 1):
        log, losses = open_log(tmp_path / "copies" / f"{i}" / "events.db")
        assert losses == []
        check_upgraded(log)
        log.close()


def test_a_full_disk_leaves_a_log_of_0_2_as_it_was(tmp_path, monkeypatch):
    path = log_of_0_2(tmp_path)
    usual = module.connect

    def connect(target: Any) -> Any:
        connection = usual(target)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(module, "connect", connect)
        with pytest.raises(LogFull, match="full"):
            EventLog(path)
    log = EventLog(path)
    check_upgraded(log)
    log.close()


def test_a_damaged_log_of_0_2_is_not_upgraded_before_the_loss_is_accepted(tmp_path):
    path = log_of_0_2(tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE events SET body = '{}' WHERE position = 5")
    for accept in (False, True):
        log, losses = open_log(path, accept_loss=accept)
        gaps = [(gap.body["first"], gap.body["last"]) for gap in log.of_kinds("gap")]
        assert gaps == [(5, 5), (13, 13)]
        assert lines_of(log) == EXPORTED_BY_0_2[:4] + EXPORTED_BY_0_2[5:]
        assert log.pool() == [("p2", {"text": "mend a tyre"})]
        assert [(loss.first, loss.last) for loss in losses] == ([] if accept else [(5, 5)])
        log.close()
        with contextlib.closing(sqlite3.connect(path)) as database:
            schema = database.execute("PRAGMA user_version").fetchone()[0]
        assert schema == (2 if accept else 1)


# ---------------------------------------------------------------------- newer versions
def test_a_log_of_a_newer_version_is_refused_and_not_changed(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, item("1", "t", "a"))
    path = tmp_path / "events.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 3")
    before = path.read_bytes()
    with pytest.raises(OSError, match="schema 2 or older, got 3: a newer version has written it"):
        Service(tmp_path, FakeTagger)
    assert cli.main(["log", "export", str(tmp_path)]) == 1
    assert path.read_bytes() == before


def test_a_kind_that_is_not_known_stops_the_start_and_loses_nothing(tmp_path, capfd):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, item("1", "t", "a"))
        with service.log.transaction():
            service.log.append(Event("of a later version", "k", {"tag": "sea", "about": "water"}))
    path = tmp_path / "events.db"
    before = path.read_bytes()
    words = "kind 'of a later version' at position 2, which this version does not"
    with pytest.raises(OSError, match=words):
        Service(tmp_path, FakeTagger)
    assert path.read_bytes() == before
    assert cli.main(["log", "export", str(tmp_path)]) == 0
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert told[1] == {"event": "of a later version", "tag": "sea", "about": "water"}


def test_every_change_of_a_tagger_is_a_kind_of_event():
    assert set(CHANGES) < set(KINDS)
    assert all(KINDS[kind].changes for kind in CHANGES)


# ---------------------------------------------------------------------- the chain
def chained(folder: Path) -> Path:
    """A log of twelve events in six groups."""
    log = EventLog(folder / "events.db")
    for i in range(0, 12, 2):
        with log.transaction():
            for k in (i, i + 1):
                log.append(Event("learn", f"k{k}", item(f"{k}", f"word{k}", "a")))
    log.close()
    return folder / "events.db"


def altered(path: Path, how: str, *values: Any) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(how, values)


def with_a_true_checksum(path: Path) -> None:
    """Change an event so that only the chain can tell."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        found = database.execute(
            f"SELECT {', '.join(Row._fields)} FROM events WHERE position = 5"
        ).fetchone()
        row = Row(*found)._replace(body=json.dumps(item("4", "forged", "a")))
        database.execute(
            "UPDATE events SET body = ?, checksum = ? WHERE position = 5",
            (row.body, zlib.crc32(row.packed())),
        )


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        (lambda p: altered(p, "DELETE FROM events WHERE position = 5"), [(5, 5)]),
        (lambda p: altered(p, "DELETE FROM events WHERE position IN (5, 6, 9)"), [(5, 6), (9, 9)]),
        (lambda p: altered(p, "DELETE FROM events WHERE position < 3"), [(1, 2)]),
        (lambda p: altered(p, "DELETE FROM events WHERE position = 12"), [(12, 12)]),
        (lambda p: altered(p, "UPDATE events SET who = 'eve' WHERE position = 5"), [(5, 5)]),
        (lambda p: altered(p, "UPDATE events SET time = 0 WHERE position = 12"), [(12, 12)]),
        (lambda p: altered(p, "UPDATE events SET digest = x'00' WHERE position = 6"), [(5, 6)]),
        (with_a_true_checksum, [(5, 6)]),
    ],
)
def test_missing_and_changed_events_are_noticed_and_become_gaps(tmp_path, damage, lost):
    path = chained(tmp_path)
    damage(path)
    log, losses = open_log(path)
    log.close()
    found = [(loss.first, loss.last) for loss in losses]
    if damage is not with_a_true_checksum and lost == [(5, 6)]:
        # A digest that is wrong also breaks the group after it.
        lost = [(5, 6), (7, 8)]
    assert found == lost
    log, losses = open_log(path, accept_loss=True)
    assert losses == []
    assert [(gap.body["first"], gap.body["last"]) for gap in log.of_kinds("gap")] == lost
    log.close()
    log, losses = open_log(path)  # the accepted loss is not told again
    assert losses == []
    log.close()


def test_a_log_that_ends_before_a_snapshot_is_noticed(tmp_path):
    path = chained(tmp_path)
    altered(path, "DELETE FROM events WHERE position > 8")
    log, losses = open_log(path)
    assert losses == []  # whole groups are gone, and nothing else knows them
    log.close()
    log, losses = open_log(path, known=12)
    assert [(loss.first, loss.last) for loss in losses] == [(9, 12)]
    log.close()


def test_positions_stay_consecutive_after_a_transaction_that_failed(tmp_path):
    log = EventLog(tmp_path / "events.db")

    def fail() -> None:
        with log.transaction():
            log.append(Event("learn", "a", item("1", "t", "a")))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with log.transaction():
        assert log.append(Event("learn", "b", item("1", "t", "a"))) == 1
    log.close()
    log, losses = open_log(tmp_path / "events.db")
    assert (log.position, losses) == (1, [])
    log.close()


# ---------------------------------------------------------------------- names of tags
def renamed(
    tags: list[str], changes: list[tuple[int, dict[str, str | None]]], at: int
) -> list[str]:
    """The slow, obvious way: follow each tag through each change."""
    now: list[str | None] = [*tags]
    for position, moves in changes:
        if position > at:
            now = [moves.get(tag, tag) if tag is not None else None for tag in now]
    return [*dict.fromkeys(tag for tag in now if tag is not None)]


moves = st.one_of(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("abcde")).map(lambda p: {p[0]: p[1]}),
    st.tuples(st.lists(st.sampled_from("abcd"), min_size=1), st.sampled_from("abcde")).map(
        lambda p: dict.fromkeys(p[0], p[1])
    ),
    st.sampled_from("abcd").map(lambda tag: {tag: None}),
)


@given(changes=st.lists(moves, max_size=12), tags=st.lists(st.sampled_from("abcde"), unique=True))
def test_names_follow_tags_as_one_change_after_the_other_does(changes, tags):
    names = TagNames()
    numbered = [*enumerate(changes, 1)]
    for position, change in numbered:
        names.add(position, change)
    for at in range(len(changes) + 1):
        assert names.now(tags, at) == renamed(tags, numbered, at)


def n_steps(function: Any) -> int:
    """How many lines of Python a call runs."""
    n = 0

    def count(frame: Any, event: str, _: Any) -> Any:
        nonlocal n
        n += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        function()
    finally:
        sys.settrace(before)
    return n


def test_the_work_for_the_tags_of_an_item_does_not_grow_with_the_renames(tmp_path):
    def steps(n_renames: int) -> int:
        with Service(tmp_path / f"{n_renames}", FakeTagger) as service:
            learn(service, item("1", "t", "tag 0", "other"))
            for i in range(n_renames):
                body = {"old": f"tag {i}", "new": f"tag {i + 1}"}
                service.submit(Change("rename", [body], [None])).result(60)
            event = service.log.newest("1")
            assert service.tags_now(event) == [f"tag {n_renames}", "other"]
            return n_steps(lambda: service.tags_now(event))

    assert steps(3) == steps(150)


@pytest.mark.parametrize("again", [["py", "lists"], ["lists", "python"]])
def test_the_same_item_sent_again_after_a_merge_is_a_duplicate(tmp_path, again):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, item("1", "sort a list", "py", "lists"), item("2", "t", "python3"))
        body = {"tags": ["py", "python3"], "into": "python"}
        service.submit(Change("merge", [body], [None])).result(60)
        done = learn(service, item("1", "sort a list", *again))
        assert (done.n, done.duplicates) == (0, 1)
        assert learn(service, item("3", "another", "py")).n == 1
        # Now "py" is a tag again, so the item gets it.
        assert learn(service, item("1", "sort a list", "py", "lists")).n == 1
        assert service.read().view.counts == {"py": 2, "lists": 1, "python": 1}


def test_the_same_item_sent_again_after_a_removal_is_a_duplicate(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, item("1", "t", "a", "b"))
        service.submit(Change("remove", [{"tag": "b"}], [None])).result(60)
        assert learn(service, item("1", "t", "a", "b")).duplicates == 1
        assert learn(service, item("1", "t", "a")).duplicates == 1
        assert learn(service, item("1", "t")).n == 1


# ---------------------------------------------------------------------- who, when, source
def test_an_event_says_who_made_it_when_and_through_what(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        learn(service, item("1", "t", "a"), who="anna", source="page")
        learn(service, item("2", "t", "a"))
        first, second = service.log.after(0)
        assert (first.who, first.source) == ("anna", "page")
        assert (second.who, second.source) == ("local", "library")
        assert first.time <= second.time


# ---------------------------------------------------------------------- reading only
READ_AS_NOBODY = """
import os, sys
from pathlib import Path
from tagstream.serve.log import EventLog
if os.geteuid() == 0:
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
log = EventLog(Path(sys.argv[1]), read_only=True)
print(sum(event.does.changes for event in log.after(0)))
log.close()
"""


@pytest.mark.parametrize("state", ["closed", "killed", "schema 1"])
def test_a_log_in_a_folder_that_cannot_be_written_is_exported(tmp_path_factory, state):
    # A folder that other users can reach: the superuser writes wherever it wants.
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    try:
        if state == "schema 1":
            log_of_0_2(folder)
            wanted = len(EXPORTED_BY_0_2)
        else:
            log = EventLog(folder / "events.db")
            with log.transaction():
                log.append(Event("learn", "k", item("1", "t", "a")))
            if state == "killed":
                assert (folder / "events.db-wal").stat().st_size
                killed = tmp_path_factory.mktemp("killed")
                shutil.copytree(folder, killed, dirs_exist_ok=True)
                (killed / "events.db-shm").unlink()
                log.close()
                shutil.copytree(killed, folder, dirs_exist_ok=True)
            else:
                log.close()
            wanted = 1
        folder.chmod(0o555)
        for path in folder.iterdir():
            path.chmod(0o444)
        done = subprocess.run(
            [sys.executable, "-c", READ_AS_NOBODY, str(folder / "events.db")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout.strip()) == (0, f"{wanted}"), done.stderr
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)
