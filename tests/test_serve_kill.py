"""The service killed at any moment: nothing acknowledged is lost, nothing is learnt twice.

The recovery of a damaged log is killed too: whatever could be read is there in the end.

A driver process imports everything once and then forks the services that are killed, so that many
kills cost little time.  Run as a script, this file is that driver.  Its children take changes from
several threads at once and write a line for each acknowledgement into a pipe; a child that died is
followed by another on the same folder, which tries again what was not acknowledged, with the same
keys.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from changes import change_of
from fake_tagger import FakeTagger
from tagstream.serve import writer
from tagstream.serve.index import Query
from tagstream.serve.log import Event, EventLog
from tagstream.serve.recovery import open_log, remove_copy
from tagstream.serve.writer import Change, Service
from tagstream.tagger import Tagger, warm_up


class FrailTagger(FakeTagger):
    """Fails on some items, after it has changed half of its state: they are quarantined."""

    def learn(self, records: Any, **more: Any) -> int:
        for record in [records] if isinstance(records, dict) else records:
            super().learn(record)
            if record["text"].startswith("tent"):
                self.items.clear()
                raise IndexError("a fault in a fit")
        return len(records)


# What is served: one that is quick, so that the kills hit the log; one that fails; the real one.
TAGGERS: dict[str, Any] = {"fake": FakeTagger, "frail": FrailTagger, "real": Tagger}


def any_change_of(i: int) -> Change:
    """The i-th change; some are those of a team: many items at once, an undo, rows of a file."""
    rng = random.Random(i)
    if i % 19 == 11:
        ids = [f"{n}" for n in rng.sample(range(i), 5)]
        bodies = [{"id": name, "add": ["bulk"], "remove": ["soup"]} for name in ids]
        return Change("retag", bodies, [f"k{i}:{name}" for name in ids], is_one=True)
    if i % 31 == 21:
        return Change("undo", [{"position": None}], [f"k{i}"])
    if i % 43 == 35:
        items = [{"id": f"file {i}:{n}", "text": f"sea {n}", "y": ["sea"]} for n in range(3)]
        del items[1]["y"]  # it waits
        body = {"import": f"file {i}", "as": "learnt", "first": 1, "last": 3, "digest": "d"}
        return Change("import", [{**body, "items": items}], [None], source="import")
    return change_of(i)


def state_of(tagger: Any, scratch: Path) -> bytes:
    """All that a tagger knows, as a file."""
    tagger.save(scratch)
    return scratch.read_bytes()


def work(kind: str, folder: str, todo: list[int], acknowledge: int) -> None:
    """Serve a folder and send changes, many at a time; write the number of each that is done."""
    service = Service(Path(folder), TAGGERS[kind], snapshot_events=23).start()
    os.write(acknowledge, b"ready\n")
    waiting: dict[Any, int] = {}
    left = iter(todo)
    while True:
        while len(waiting) < 8 and (i := next(left, None)) is not None:
            waiting[service.submit(any_change_of(i))] = i
        if not waiting:
            break
        done, _ = wait(waiting, return_when=FIRST_COMPLETED)
        lines = ""
        for future in done:
            # "refused" is an answer as well: a tag that is not there cannot be merged.
            refused = isinstance(future.exception(), writer.Refused)
            assert refused or future.exception() is None
            lines += f"{waiting.pop(future)} {int(refused)}\n"
        os.write(acknowledge, lines.encode())
    service.close()


def run_once(
    kind: str, folder: str, todo: list[int], moment: tuple[int, float] | None
) -> tuple[set[int], set[int], int]:
    """Run a child; return what it acknowledged, what it refused, and its status.

    It is killed at a moment: after so many lines from it, the first of which says that it is
    ready, and then so many seconds.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        work(kind, folder, todo, write)
        os._exit(0)
    os.close(write)
    seen = []
    timer = None
    with os.fdopen(read) as pipe:
        while True:
            if moment is not None and len(seen) == moment[0]:
                timer = threading.Timer(moment[1], os.kill, (pid, signal.SIGKILL))
                timer.start()
            if not (line := pipe.readline()):
                break
            seen.append(line)
    if timer is not None:
        timer.join()  # the child stays a zombie until it was waited for: no other gets its number
    status = os.waitpid(pid, 0)[1]
    told = [line.split() for line in seen[1:] if line.endswith("\n")]
    answered = {int(i) for i, _ in told}
    return answered, {int(i) for i, refused in told if refused == "1"}, status


def drive(kind: str, folder: str, seed: int, kills: int) -> dict[str, Any]:
    """Kill a service again and again while it learns; return what happened."""
    rng = random.Random(seed)
    acknowledged: set[int] = set()
    refused: set[int] = set()
    killed = working = 0
    warm_up(TAGGERS[kind])
    assert threading.active_count() == 1  # a fork keeps only this thread
    while killed < kills:
        # Each child gets a fresh stretch of work and whatever the last one did not answer.
        first = max(acknowledged, default=-1) + 1
        todo = [i for i in range(first + 40) if i not in acknowledged]
        moment = (rng.randrange(1, 30), 0.02 * rng.random())
        if rng.random() < 0.3:  # while it starts
            moment = (0, 0.2 * rng.random())
        answered, not_done, status = run_once(kind, folder, todo, moment)
        acknowledged |= answered
        refused |= not_done
        killed += os.WIFSIGNALED(status)
        working += bool(answered) and os.WIFSIGNALED(status)
    rest = [i for i in range(max(acknowledged, default=-1) + 1) if i not in acknowledged]
    answered, not_done, status = run_once(kind, folder, rest, None)
    acknowledged |= answered
    refused |= not_done
    return {
        "status": status,
        "killed": killed,
        "working": working,
        "acknowledged": sorted(acknowledged),
        "refused": sorted(refused),
    }


def replay(kind: str, folder: Path) -> tuple[list[str], Any]:
    """The keys of the log and the tagger of an undisturbed run over it."""
    log = EventLog(folder / "events.db")
    events = [*log.after(0)]
    tagger = Tagger() if kind == "real" else FakeTagger()
    for event in events:
        writer.apply_events(tagger, [event])
    log.close()
    return [event.key for event in events], tagger


def check(kind: str, tmp_path: Path, seed: int, kills: int) -> dict[str, Any]:
    folder = tmp_path / "folder"
    script = [sys.executable, __file__, kind, str(folder), str(seed), str(kills)]
    told: dict[str, Any] = json.loads(subprocess.run(script, check=True, stdout=PIPE).stdout)
    assert told["status"] == 0
    assert told["killed"] == kills
    assert told["working"] >= kills / 2  # while they answered, not only while they started
    keys, undisturbed = replay(kind, folder)
    assert len(keys) == len(set(keys))
    made = set(told["acknowledged"]) - set(told["refused"])
    kept = {i for i in made if any_change_of(i).kind in ("learn", "undo")}
    assert not {f"k{i}" for i in kept} - set(keys)
    files = {i for i in made if any_change_of(i).kind == "import"}
    assert not {f"import:file {i}:3" for i in files} - set(keys)
    assert any(key.startswith("together:") for key in keys)
    with Service(folder, TAGGERS[kind]) as service:
        found = service.index.find(Query(state="all"), 1000)
        listed = {*service.pool.all(), *(event.body["id"] for event in service.log.states())}
        assert sorted(found.ids) == sorted(listed)
        served = state_of(service._tagger, tmp_path / "served")
        assert served == state_of(undisturbed, tmp_path / "undisturbed")
        if kind == "frail":
            assert service.log.of_kinds("quarantine")
        if kind != "real":
            stored = {name: sorted(item["y"]) for name, item in undisturbed.items.items()}
            assert service.read().view.n_items == len(stored)
            newest = {name: service.log.newest(name) for name in stored}
            assert {n: sorted(service.tags_now(e)) for n, e in newest.items()} == stored
    return told


@pytest.mark.parametrize("kind", TAGGERS)
def test_thirty_kills_lose_nothing_and_repeat_nothing(tmp_path, kind):
    check(kind, tmp_path, seed=1, kills=30)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TAGGERS)
@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_kills_lose_nothing_and_repeat_nothing(tmp_path, kind, seed):
    check(kind, tmp_path, seed=100 + seed, kills=100)


# ---------------------------------------------------------------------- recovery
def damaged(folder: Path, how: int) -> None:
    """Make a folder whose log was not closed and is damaged, in one of several ways."""
    folder.mkdir(parents=True)
    scratch = folder / "scratch"
    scratch.mkdir()
    log = EventLog(scratch / "events.db")
    for i in range(40):
        with log.transaction():
            log.append(Event("learn", f"k{i}", {"id": f"{i % 30}", "text": f"w{i}", "y": ["a"]}))
            log.put_in_pool([(f"p{i}", {"text": f"waiting {i}"})])
    for path in scratch.iterdir():  # as a kill leaves it: the last events are in the -wal
        shutil.copy(path, folder)
    log.close()
    shutil.rmtree(scratch)
    path = folder / "events.db"
    statement = (
        "DELETE FROM events WHERE position IN (7, 8, 30)",
        "UPDATE events SET body = '{}' WHERE position = 20",
        "UPDATE events SET who = 'eve' WHERE position > 35",
        "DELETE FROM pool",  # and the file is no database, see below
    )[how]
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    with connection:
        connection.execute(statement)
    for ending in ("", "-wal"):  # again, as if it were not closed
        shutil.copy(f"{path}{ending}", f"{path}{ending}.kept")
    connection.close()
    for ending in ("-wal", ""):
        os.replace(f"{path}{ending}.kept", f"{path}{ending}")
    if how == 3:  # as version 0.2 leaves it if it is killed while it recovers
        for ending in ("-wal", ""):
            os.rename(f"{path}{ending}", f"{path}.damaged-1{ending}")


def what_is_left(path: Path) -> tuple[list[Any], list[Any], list[str]]:
    """The events, the pool, and the files of a log."""
    log, losses = open_log(path)
    assert losses == []
    events = [event.line() for event in log.after(0)]
    pool = log.pool()
    log.close()
    return events, pool, sorted(p.name for p in path.parent.iterdir())


def drive_recovery(folder: Path, seed: int, kills: int) -> dict[str, int]:
    """Kill recoveries again and again; each must end as an undisturbed one does."""
    rng = random.Random(seed)
    killed = held = decided = rounds = 0
    wanted = []
    for how in range(4):
        damaged(folder / f"{how}" / "undisturbed", how)
        start = time.perf_counter()
        path = folder / f"{how}" / "undisturbed" / "events.db"
        open_log(path, accept_loss=True)[0].close()
        wanted.append((what_is_left(path), time.perf_counter() - start))
        assert len(wanted[-1][0][0]) > 30
    while killed < kills:
        how = rounds % 4
        rounds += 1
        path = folder / "round" / "events.db"
        damaged(path.parent, how)
        expected, seconds = wanted[how]
        while True:
            pid = os.fork()
            if pid == 0:
                signal.setitimer(signal.ITIMER_REAL, rng.random() * 2 * seconds + 1e-6)
                open_log(path, accept_loss=True)[0].close()
                signal.setitimer(signal.ITIMER_REAL, 0)
                os._exit(0)
            rng.random()  # the child has its own: the next moment is another one
            if not os.WIFSIGNALED(os.waitpid(pid, 0)[1]):
                break
            killed += 1
            if rng.random() < 0.5:  # a start that accepts nothing, in between
                log, losses = open_log(path)
                log.close()
                held += bool(losses)
                decided += not losses
                remove_copy(path)
        assert what_is_left(path) == expected, how
        shutil.rmtree(path.parent)
    return {"killed": killed, "held": held, "decided": decided, "rounds": rounds}


def check_recovery(tmp_path: Path, seed: int, kills: int) -> None:
    script = [sys.executable, __file__, "recovery", str(tmp_path / "f"), str(seed), str(kills)]
    told = json.loads(subprocess.run(script, check=True, stdout=PIPE).stdout)
    assert told["killed"] >= kills
    assert told["held"] > 0


def test_thirty_kills_of_a_recovery_are_harmless(tmp_path):
    check_recovery(tmp_path, seed=1, kills=30)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_kills_of_a_recovery_are_harmless(tmp_path, seed):
    check_recovery(tmp_path, seed=100 + seed, kills=100)


if __name__ == "__main__":
    kind, where, *numbers = sys.argv[1:]
    if kind == "recovery":
        logging.disable(logging.CRITICAL)
        print(json.dumps(drive_recovery(Path(where), *map(int, numbers))))
    else:
        print(json.dumps(drive(kind, where, *map(int, numbers))))
