"""The same bits with any number of BLAS threads, in real processes, and how the limit is kept."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits

from shell import tagstream, write_jsonl
from tagstream.execution.threads import ONE_BLAS_THREAD, in_threads

COUNTS = (1, 2, 4)  # threads of BLAS that processes begin with


def limits():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def environment(n):
    """Return that of a process whose BLAS libraries have ``n`` threads."""
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, str(n))}


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """Rows with so many columns and tags that BLAS shares out the products of a fit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 80)).round(3)
    Y = X @ rng.normal(size=(80, 40)) + 3 * rng.normal(size=(400, 40)) > 6
    tags = [[f"t{j}" for j in np.flatnonzero(y)] for y in Y]
    records = [
        {"id": i, "x": x.tolist(), "y": y} for i, (x, y) in enumerate(zip(X, tags, strict=True))
    ]
    return write_jsonl(tmp_path_factory.mktemp("numbers") / "d.jsonl", records)


# ---------------------------------------------------------------------- processes


LEARN = ("learn", "DATA", "-m", "m.tgs")
CHAINS = {
    "oml": [LEARN, ("tags", "merge", "m.tgs", "t0", "t1", "--into", "t2")],
    "narrow": [(*LEARN, "-p", "n_components=5", "-p", "step=convex")],
    "osml-elm": [(*LEARN, "--method", "osml-elm")],
    "stable": [(*LEARN, "--method", "osml-elm", "-p", "ridge=auto")],
    "published": [(*LEARN, "--method", "oml-published")],
}


@pytest.mark.exact
@pytest.mark.parametrize("chain", CHAINS)
def test_commands_write_the_same_file_with_any_number_of_blas_threads(chain, numbers, tmp_path):
    for n in COUNTS:
        (tmp_path / f"{n}").mkdir()
    for command in CHAINS[chain]:
        args = [numbers if part == "DATA" else part for part in command]
        running = [tagstream(*args, cwd=tmp_path / f"{n}", env=environment(n)) for n in COUNTS]
        for process in running:
            _, err = process.communicate()
            assert process.returncode == 0, err
    files = [(tmp_path / f"{n}" / "m.tgs").read_bytes() for n in COUNTS]
    assert len({hashlib.sha256(data).hexdigest() for data in files}) == 1


SERVICE = """
import hashlib, json, sys, threading
from pathlib import Path
from tagstream.cli.light import start_light
start_light()
from tagstream.serve.writer import Change, Service
records, folder = [json.loads(line) for line in open(sys.argv[1])], Path(sys.argv[2])
ended = threading.Event()
import tagstream
tagstream.KNN().fit([[0.0]], [{"a"}]).label_counts_  # which limits the threads in the main thread
with Service(folder) as service:
    service.submit(Change("learn", records[:30], [None] * 30)).result(600)
    def read():  # which limits the threads again and again, beside the fits
        while not ended.is_set():
            service.view.counts
    reader = threading.Thread(target=read)
    reader.start()
    for first in range(30, 400, 37):
        some = records[first : first + 37]
        service.submit(Change("learn", some, [None] * len(some))).result(600)
    ended.set()
    reader.join()
newest = max((folder / "snapshots").glob("*.tgs"))
print(hashlib.sha256(newest.read_bytes()).hexdigest())
"""


@pytest.mark.exact
def test_a_service_comes_to_the_same_bits_with_any_number_of_blas_threads(numbers, tmp_path):
    pytest.importorskip("fastapi")
    told = [
        subprocess.Popen(
            [sys.executable, "-c", SERVICE, numbers, str(tmp_path / f"{n}")],
            env=environment(n), stdout=-1, stderr=-1, text=True,
        )
        for n in COUNTS
    ]  # fmt: skip
    digests = set()
    for process in told:
        out, err = process.communicate()
        assert process.returncode == 0, err
        digests.add(out)
    assert len(digests) == 1


def test_a_library_that_is_loaded_within_the_limit_is_limited_at_once():
    program = """
from tagstream.cli.light import start_light
start_light()
import json, sys
import tagstream.models
from threadpoolctl import threadpool_info
from tagstream.execution.threads import ONE_BLAS_THREAD
import scipy.linalg
def now():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
seen = [now()]
with ONE_BLAS_THREAD:
    scipy.linalg.eigh  # which loads it
    seen.append(now())
seen.append(now())
print(json.dumps([seen, "scipy.linalg._flapack" in sys.modules]))
"""
    args = [sys.executable, "-c", program]
    done = subprocess.run(args, env=environment(2), capture_output=True, text=True, check=False)
    (before, inside, after), loaded = json.loads(done.stdout or done.stderr)
    assert loaded
    assert set(inside) == {1}
    assert set(before) == set(after) == {2}
    assert len(before) <= len(inside) == len(after)  # SciPy may share NumPy's library


# ---------------------------------------------------------------------- the limit


@pytest.fixture
def two():
    """Let BLAS have two threads, as a user would."""
    assert scipy.linalg.lapack  # which has been loaded
    with threadpool_limits(2, "blas"):
        yield


def test_within_the_limit_blas_has_one_thread_and_afterwards_what_it_had(two):
    assert limits() == {2}
    with ONE_BLAS_THREAD:
        assert limits() == {1}
        with ONE_BLAS_THREAD:
            assert limits() == {1}
        assert limits() == {1}
    assert limits() == {2}


def test_the_limit_is_left_when_something_is_raised(two):
    with pytest.raises(ValueError, match="within"), ONE_BLAS_THREAD:
        raise ValueError("within")
    assert limits() == {2}


def test_who_leaves_early_does_not_lift_the_limit_of_others(two):
    entered, leave, seen = threading.Event(), threading.Event(), []

    def first():
        with ONE_BLAS_THREAD:
            entered.set()
            leave.wait()

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait()
    with ONE_BLAS_THREAD:  # who entered first leaves first
        leave.set()
        thread.join()
        seen.append(limits())
    assert seen == [{1}]
    assert limits() == {2}


def test_every_thread_can_set_the_limit_whoever_has_set_it_before(two):
    with ONE_BLAS_THREAD:
        pass
    seen = []

    def other():
        with ONE_BLAS_THREAD:
            seen.append(limits())
        seen.append(limits())

    for _ in range(2):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    with ONE_BLAS_THREAD:
        seen.append(limits())
    assert seen == [{1}, {2}, {1}, {2}, {1}]


def test_helpers_are_limited_and_the_limit_ends_with_their_work(two):
    made = list(in_threads(lambda _: limits(), range(6), worth=True))
    assert all(one == {1} for one in made) or len(os.sched_getaffinity(0)) < 2
    assert limits() == {2}
