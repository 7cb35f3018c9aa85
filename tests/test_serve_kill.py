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
from typing import Any

import pytest

from fake_tagger import FakeTagger
from tagstream.serve import writer
from tagstream.serve.log import EventLog
from tagstream.serve.writer import Change, Service

WORDS = ("sort", "list", "swim", "sea", "salt", "soup", "bike", "chain")


def change_of(i: int) -> Change:
    """The i-th change of the stream: mostly new items, some corrections, some others."""
    rng = random.Random(i)
    if i % 17 == 13:
        return Change("forget", [{"id": f"{rng.randrange(max(1, i))}"}], [f"k{i}"])
    if i % 23 == 19:
        return Change("merge", [{"tags": ["sea"], "into": "swim"}], [f"k{i}"])
    name = f"{i if rng.random() < 0.8 else rng.randrange(i + 1)}"
    words = rng.sample(WORDS, 3)
    body = {"id": name, "text": " ".join(words) + f" {i % 7}", "y": words[: rng.randrange(3)]}
    return Change("learn", [body], [f"k{i}"])


def work(folder: str, todo: list[int], acknowledge: int) -> None:
    """Serve a folder and send changes, many at a time; write the number of each that is done."""
    service = Service(Path(folder), FakeTagger, snapshot_events=23).start()
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


def run_once(folder: str, todo: list[int], seconds: float | None) -> tuple[set[int], set[int], int]:
    """Run a child, kill it after some time; return what it acknowledged, refused, its status."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        work(folder, todo, write)
        os._exit(0)
    os.close(write)
    if seconds is not None:
        threading.Timer(seconds, os.kill, (pid, signal.SIGKILL)).start()
    with os.fdopen(read) as lines:
        told = [line.split() for line in lines if line.endswith("\n")]
    status = os.waitpid(pid, 0)[1]
    answered = {int(i) for i, _ in told}
    return answered, {int(i) for i, refused in told if refused == "1"}, status


def drive(folder: str, seed: int, kills: int) -> dict[str, Any]:
    """Kill a service again and again while it learns; return what happened."""
    rng = random.Random(seed)
    acknowledged: set[int] = set()
    refused: set[int] = set()
    killed = 0
    for _ in range(kills):
        # Each child gets a fresh stretch of work and whatever the last one did not answer.
        first = max(acknowledged, default=-1) + 1
        todo = [i for i in range(first + 40) if i not in acknowledged]
        answered, not_done, status = run_once(folder, todo, 0.01 + 0.12 * rng.random())
        acknowledged |= answered
        refused |= not_done
        killed += os.WIFSIGNALED(status)
    rest = [i for i in range(max(acknowledged, default=-1) + 1) if i not in acknowledged]
    answered, not_done, status = run_once(folder, rest, None)
    acknowledged |= answered
    refused |= not_done
    return {
        "status": status,
        "killed": killed,
        "acknowledged": sorted(acknowledged),
        "refused": sorted(refused),
    }


def replay(folder: Path) -> tuple[list[str], dict[str, Any]]:
    """The keys of the log and the state of an undisturbed run over it."""
    log = EventLog(folder / "events.db")
    events = [*log.after(0)]
    tagger = FakeTagger()
    for event in events:
        writer.apply_events(tagger, [event])
    log.close()
    return [event.key for event in events], tagger.state()


def check(tmp_path: Path, seed: int, kills: int) -> None:
    script = [sys.executable, __file__, str(tmp_path), str(seed), str(kills)]
    told = json.loads(subprocess.run(script, check=True, capture_output=True).stdout)
    assert told["status"] == 0
    assert told["killed"] >= kills / 3
    keys, expected = replay(tmp_path)
    assert len(keys) == len(set(keys))
    learnt = {i for i in told["acknowledged"] if change_of(i).kind == "learn"}
    missing = {f"k{i}" for i in learnt - set(told["refused"])} - set(keys)
    assert not missing
    with Service(tmp_path, FakeTagger) as service:
        assert service._tagger.state() == expected
        view = service.read().view
        stored = {name: sorted(item["y"]) for name, item in expected["items"].items()}
        assert view.n_items == len(stored)
        newest = {name: service.log.newest(name) for name in stored}
        assert {n: sorted(service.tags_now(e)) for n, e in newest.items()} == stored


def test_thirty_kills_lose_nothing_and_repeat_nothing(tmp_path):
    check(tmp_path, seed=1, kills=30)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_kills_lose_nothing_and_repeat_nothing(tmp_path, seed):
    check(tmp_path, seed=100 + seed, kills=100)


if __name__ == "__main__":
    print(json.dumps(drive(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
