"""`tagstream learn` killed at any moment goes on as if nothing had happened.

A driver process imports everything once and then forks the learners that are killed, so that many
kills cost little time.  Run as a script, this file is that driver.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tagstream import cli
from tagstream.cli.model import Keeper
from tagstream.data import make_stream, write_csv
from tagstream.files import persist

METHODS = ("oml", "knn", "osml-elm", "olansgd")
CHUNK = 16
EVERY = 48
POINTS = ("before_fsync", "before_rename", "after_rename", "between_chunks", "half_written")
REFIT = ("before_refit", "after_refit")  # between the last record and the end


# ------------------------------------------------------------------ the driver
def learn(path: str, model: str, method: str, *more: str) -> list[str]:
    chunking = ["--chunk", str(CHUNK), "--every", str(EVERY), "--quiet"]
    labels = ["--labels", "-5"] if path.endswith(".csv") else ["--hash-bits", "12"]
    return ["learn", path, "--model", model, "--method", method, *chunking, *labels, *more]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def set_trap(point: str, countdown: int) -> None:
    """Make this process kill itself at a place in the code, the ``countdown``-th time."""
    left = [countdown]

    def trap() -> None:
        left[0] -= 1
        if left[0] < 0:
            die()

    fsync, replace, learn_chunk, to_write, refit = (
        os.fsync,
        os.replace,
        Keeper.learn,
        persist._write_atomically,
        Keeper.refit,
    )
    if point == "before_fsync":
        persist.os.fsync = lambda handle: (trap(), fsync(handle))
    elif point == "before_rename":
        persist.os.replace = lambda a, b: (trap(), replace(a, b))
    elif point == "after_rename":
        persist.os.replace = lambda a, b: (replace(a, b), trap())
    elif point == "between_chunks":
        Keeper.learn = lambda *args: (learn_chunk(*args), trap())[0]
    elif point == "before_refit":
        Keeper.refit = lambda keeper: (trap(), refit(keeper))
    elif point == "after_refit":
        Keeper.refit = lambda keeper: (refit(keeper), trap())
    elif point == "half_written":

        def write_half(path: str, parts: list[bytes]) -> None:
            left[0] -= 1
            if left[0] < 0:
                limit = sum(map(len, parts)) // 2
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # the kernel kills at the limit
            to_write(path, parts)

        persist._write_atomically = write_half


def in_child(argv: list[str], point: str | None = None, countdown: int = 0) -> int:
    pid = os.fork()
    if pid == 0:
        if point is not None:
            set_trap(point, countdown)
        os._exit(cli.main(argv))
    return pid


def n_seen(model: str) -> int:
    return persist.load(model).n_seen_ if os.path.exists(model) else 0


def drive(path: str, folder: str, method: str, seed: int, kills: int) -> dict[str, Any]:
    """Kill ``learn`` so many times; return what happened.

    A model that is complete is compared with an undisturbed one, and another one is begun.
    """
    rng = random.Random(seed)
    whole, model = f"{folder}/whole.tgs", f"{folder}/m.tgs"
    start = time.perf_counter()
    assert os.waitpid(in_child(learn(path, whole, method)), 0)[1] == 0
    duration = time.perf_counter() - start
    argv = learn(path, model, method)
    points = (*POINTS, *REFIT) if method == "oml" else POINTS
    by_point = dict.fromkeys([*points, "any"], 0)
    seen, complete = 0, 0
    while sum(by_point.values()) < kills or not complete:
        point = next((one for one in points if not by_point[one]), "any")  # each at least once
        if sum(by_point.values()) >= kills:
            pid, point = in_child(argv), "none"
        elif point != "any" or rng.random() < 0.5:
            later = 0 if point != "any" else rng.randrange(3)
            point = rng.choice(points) if point == "any" else point
            pid = in_child(argv, point, later)
        else:
            pid = in_child(argv)
            time.sleep(rng.random() * duration * 0.5)
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        before, seen = seen, n_seen(model)  # whatever happened, the file is whole,
        assert seen >= before, (point, before, seen)  # and a kill never loses what was saved
        if os.WIFSIGNALED(status):
            by_point[point] += 1
            continue
        assert status == 0, (point, status)
        # byte for byte: nothing left out, nothing learnt twice; and half-written files are gone
        assert Path(model).read_bytes() == Path(whole).read_bytes()
        assert sorted(os.listdir(folder)) == ["m.tgs", "whole.tgs"]
        os.remove(model)
        seen, complete = 0, complete + 1
    return {"by_point": by_point, "complete": complete}


# ------------------------------------------------------------------ the tests
def table(path: Path, n: int) -> str:
    write_csv(make_stream(n, p=6, q=5, cardinality=1.5, seed=1), path)
    return str(path)


def posts(path: Path, n: int) -> str:
    rng = random.Random(2)
    words = {tag: [f"{tag}{i}" for i in range(8)] for tag in ("code", "food", "sea", "winter")}
    with path.open("w") as file:
        for i in range(n):
            tags = rng.sample(sorted(words)[: 3 if 2 * i < n else 4], rng.choice([1, 1, 2]))
            text = " ".join(rng.choice(words[tag]) for tag in tags for _ in range(4))
            known = tags if rng.random() < 0.9 else None
            file.write(json.dumps({"id": f"p{i}", "text": text, "y": known}) + "\n")
    return str(path)


def driven(path: str, folder: Path, method: str, kills: int, seed: int) -> dict[str, Any]:
    folder.mkdir()
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, path, str(folder), method, str(seed), str(kills)],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def check(report: dict[str, Any], kills: int) -> None:
    by_point = report["by_point"]
    assert sum(by_point.values()) == kills
    assert all(n for point, n in by_point.items() if point != "any")
    assert report["complete"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_stream_of_text_ends_as_an_undisturbed_one(tmp_path):
    report = driven(posts(tmp_path / "posts.jsonl", 700), tmp_path / "run", "oml", 12, seed=7)
    check(report, 12)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", METHODS)
def test_every_learner_ends_as_an_undisturbed_one_after_many_kills(tmp_path, method, seed):
    report = driven(table(tmp_path / "table.csv", 3000), tmp_path / "run", method, 50, seed)
    check(report, 50)


def test_a_full_disk_while_learning_keeps_the_last_good_model(tmp_path):
    """A limit on file sizes stands in for the full disk."""
    path, model = posts(tmp_path / "posts.jsonl", 2000), tmp_path / "m.tgs"
    code = """if True:
        import resource, sys
        from tagstream.cli import main
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        sys.exit(main(sys.argv[1:]))
    """
    argv, whole = learn(path, str(model), "knn"), tmp_path / "whole.tgs"
    # Before there is a limit: what is compiled is written to numba's cache, too.
    assert cli.main(learn(path, str(whole), "knn")) == 0
    # Coverage would write its own file, and fail.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"tagstream: {model}: the model cannot be saved: File too large\n"
    assert sorted(os.listdir(tmp_path)) == ["m.tgs", "posts.jsonl", "whole.tgs"]
    position = persist.inspect(model).extra["sources"][os.path.realpath(path)]
    assert 0 < position["records"] < 2000
    assert position["records"] % CHUNK == 0
    # with room again, the same command completes the model
    assert cli.main(argv) == 0
    assert model.read_bytes() == whole.read_bytes()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a directory root cannot write")
def test_a_directory_that_cannot_be_written_is_told_in_one_line(tmp_path, capsys):
    argv = learn(posts(tmp_path / "posts.jsonl", 50), "/proc/m.tgs", "knn")
    assert cli.main(argv) == 1
    err = capsys.readouterr().err
    assert err.startswith("tagstream: /proc/m.tgs: the model cannot be saved: ")
    assert err.count("\n") == 1


if __name__ == "__main__":
    path, folder, method, seed, kills = sys.argv[1:]
    print(json.dumps(drive(path, folder, method, int(seed), int(kills))))
