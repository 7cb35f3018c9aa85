"""The service killed at any moment: nothing acknowledged is lost, nothing is learnt twice.

A driver process imports everything once and then forks the services that are killed, so that many
kills cost little time.  Run as a script, this file is that driver.  Its children take changes from
several threads at once and write a line for each acknowledgement into a pipe; a child that died is
followed by another on the same folder, which tries again what was not acknowledged, with the same
keys.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from changes import change_of
from fake_tagger import FakeTagger
from tagstream.serve import writer
from tagstream.serve.log import EventLog
from tagstream.serve.writer import Service
from tagstream.tagger import Tagger

# What is served: one that is quick, so that the kills hit the log, and the real one.
TAGGERS: dict[str, Any] = {"fake": FakeTagger, "real": Tagger}


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
            waiting[service.submit(change_of(i))] = i
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
    writer.warm_up(TAGGERS[kind])
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
    tagger = TAGGERS[kind]()
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
    learnt = {i for i in told["acknowledged"] if change_of(i).kind == "learn"}
    missing = {f"k{i}" for i in learnt - set(told["refused"])} - set(keys)
    assert not missing
    with Service(folder, TAGGERS[kind]) as service:
        served = state_of(service._tagger, tmp_path / "served")
        assert served == state_of(undisturbed, tmp_path / "undisturbed")
        if kind == "fake":
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


if __name__ == "__main__":
    print(json.dumps(drive(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
