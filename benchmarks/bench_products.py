"""Search and projection beside the bare products of BLAS, and two threads beside one."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.peers import K
from benchmarks.timing import Section, claim, race, seconds
from tagstream import OML, make_stream
from tagstream.core.products import project_dense
from tagstream.execution import threads
from tagstream.store.rows import DenseRows

WIDTHS = (14, 32, 101)
TILES = ((128, 2048), (512, 2048), (512, 4096))  # of the bare product; the best counts
# Rows, features, outputs, precision: a lift, and P after it or without one.
SHAPES = (
    (1000, 100, 512, np.float32),
    (1000, 294, 1000, np.float32),
    (1000, 512, 14, np.float64),
    (1000, 100, 32, np.float64),
    (1000, 512, 101, np.float64),
)


def _tiled(queries: np.ndarray, rows: np.ndarray, height: int, width: int) -> Callable[[], None]:
    out = np.zeros((height, width), np.float32)

    def multiply() -> None:
        for i in range(0, len(queries), height):
            some = queries[i : i + height]
            for j in range(0, len(rows), width):
                part = rows[j : j + width]
                np.matmul(some, part.T, out=out[: len(some), : len(part)])

    return multiply


def _search(d: int, n: int, m: int, turns: int, *, few: bool) -> tuple[float, float]:
    """Return the times of our search and of the best bare tiled product.

    Rows vary alike in all directions, so that every product must be made, or in ``few`` as the
    codes of a learner do, so that most of them can be spared.
    """
    rng = np.random.default_rng(d)
    scale = 0.7 ** np.arange(d) if few else 1.0
    draw = [(rng.normal(size=(size, d)) * scale).astype(np.float32) for size in (n, m)]
    stored, queries = draw
    rows = DenseRows(d)
    rows.replace(stored)
    calls: dict[str, Any] = {"ours": lambda: rows.search(queries, K)}
    for height, width in TILES:
        calls[f"{height} x {width}"] = _tiled(queries, stored, height, width)
    best = _raced(calls, turns)
    return best.pop("ours"), min(best.values())


def _projection(shape: Any, turns: int) -> tuple[float, float]:
    n, p, m, dtype = shape
    rng = np.random.default_rng(p)
    X = rng.normal(size=(n, p)).astype(np.float32)
    W, c, out = rng.normal(size=(p, m)).astype(dtype), np.zeros(m, dtype), np.zeros((n, m), dtype)
    wide = X.astype(dtype)
    calls = {
        "ours": lambda: project_dense(X, W, c, out),
        "BLAS": lambda: np.matmul(wide, W, out=out),
    }
    best = _raced(calls, turns)
    return best["ours"], best["BLAS"]


def _raced(calls: dict[str, Any], turns: int) -> dict[str, float]:
    for call in calls.values():
        call()
    return race({name: lambda call=call: seconds(call) for name, call in calls.items()}, turns)


def _by_the_clock(job: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = job()
    return time.perf_counter() - start, result


@contextmanager
def _busy(processes: int) -> Iterator[None]:
    """Keep that many processors busy with nothing; each stops by itself after some minutes."""
    spin = "import time\nend = time.time() + 600\nwhile time.time() < end: pass"
    others = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _threads(n: int, m: int, turns: int) -> dict[str, tuple[list[float], list[float], bool]]:
    """Return seconds of one thread and of two, and whether their results are the same bits.

    Two numbers of each: the best turn as it is, and all turns together while each processor has
    another process that wants it as well.
    """
    stream = make_stream(n + m, p=100, q=14, seed=5)
    X = stream.X.astype(np.float32)
    model = OML(random_state=0).fit(X[:n], stream.Y[:n])
    lifted = OML(lift="kernel", random_state=0).fit(X[:n], stream.Y[:n])
    model.refit()
    lifted.refit()
    jobs: dict[str, Callable[[], Any]] = {
        "predict": lambda: model.predict_proba(X[n:]),
        "refit behind a lift": lambda: lifted.refit().P_,
        "refit": lambda: model.refit().P_,
    }
    usual, made = threads.n_threads, {}

    def turn(job: Callable[[], Any]) -> tuple[list[float], list[Any]]:
        taken, results = [0.0, 0.0], [None, None]
        for i in range(2):
            threads.n_threads = lambda i=i: i + 1
            taken[i], results[i] = _by_the_clock(job)
        return taken, results

    try:
        for name, job in jobs.items():
            alone = [turn(job) for _ in range(turns)]
            with _busy(2):
                beside = [turn(job) for _ in range(turns)]
            same = all(np.array_equal(*results) for _, results in alone + beside)
            one, two = (
                [min(t[i] for t, _ in alone), sum(t[i] for t, _ in beside) / turns]
                for i in range(2)
            )
            made[name] = one, two, same
    finally:
        threads.n_threads = usual
    return made


def run(quick: bool) -> Section:
    n, m, turns = (4000, 400, 2) if quick else (20_000, 2000, 7)
    rows, claims = [], []
    for d, few in itertools.product(WIDTHS, (False, True)):
        ours, bare = _search(d, n, m, turns, few=few)
        name = f"search, d = {d}" + (", rows that vary in few directions" if few else "")
        rows.append({"what": name, "ms": ours * 1e3, "beside, ms": bare * 1e3})
        claims.append(
            claim(
                f"{name}, time over the bare tiled product",
                ours / bare,
                1.6,
                limit="the product by BLAS in its best tiles",
                limit_value=bare * 1e3,
                limit_unit="ms",
                distance=ours / bare,
            )
        )
    for shape in SHAPES:
        ours, bare = _projection(shape, turns)
        name = f"projection, {shape[0]:,} x {shape[1]} by {shape[2]}, {np.dtype(shape[3])}"
        rows.append({"what": name, "ms": ours * 1e3, "beside, ms": bare * 1e3})
        claims.append(
            claim(
                f"{name}: rate over that of BLAS",
                bare / ours,
                0.5,
                at_least=True,
                limit="BLAS, which may sum in any order and fuse",
                limit_value=bare * 1e3,
                limit_unit="ms",
                distance=ours / bare,
            )
        )
    for name, (one, two, same) in _threads(n, 2 * m, turns).items():
        for i, when in enumerate(("", ", on busy processors")):
            rows.append({"what": f"{name}, two threads beside one{when}", "ms": two[i] * 1e3,
                         "beside, ms": one[i] * 1e3})  # fmt: skip
        claims += [
            claim(
                f"{name} in two threads, rate over one, by the clock",
                one[0] / two[0],
                1.6,
                at_least=True,
                limit="two idle processors",
                limit_value=2.0,
                limit_unit="x",
            ),
            claim(
                f"{name} in two threads, rate over one, on busy processors",
                one[1] / two[1],
                1,
                at_least=True,
                limit="one thread, beside the same others",
                limit_value=one[1] * 1e3,
                limit_unit="ms",
            ),
            claim(
                f"{name} in two threads, share of the results that are the same bits",
                float(same),
                1,
                unit="",
                at_least=True,
                limit="compared bit for bit",
            ),
        ]
    for row in rows:
        row["ratio"] = row["ms"] / row["beside, ms"]
    return {
        "title": "Products, and both cores",
        "equal": f"{n:,} stored rows, {m:,} queries, k = {K}, normal random numbers; the same "
        "shapes and precision for BLAS, one thread, processor time.",
        "differs": "BLAS only multiplies, and that all rows. Of rows that vary in few directions a "
        "search skips most: that is no faster product. Threads are timed by the clock, so others "
        "on the machine count; busy processors have one more process each.",
        "rows": rows,
        "claims": claims,
    }
