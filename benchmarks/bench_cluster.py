"""The memory on Ray beside that of one process: search, learning, memory, start, recovery.

Wall times on a machine with fewer cores than processes say little; what can be compared is the
processor time of all processes together.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Section, claim, tell, version
from tagstream import OML, make_stream
from tagstream.labels.read import Labels
from tagstream.store import changes, lookup
from tagstream.store.local import LocalStore

WIDTH, K, SHARDS = 32, 30, 2


def _cpu(pids: list[int]) -> float:
    """Return the processor seconds of this process and others so far."""
    spent = time.process_time()
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return spent


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e9


def _timed(function: Callable[[], Any], pids: list[int], turns: int) -> tuple[float, float]:
    """Return the least wall and the least processor seconds of some turns."""
    walls, costs = [], []
    for _ in range(turns):
        start, before = time.perf_counter(), _cpu(pids)
        function()
        costs.append(_cpu(pids) - before)
        walls.append(time.perf_counter() - start)
    return min(walls), min(costs)


def _fill(stores: list[Any], n: int) -> None:
    for store in stores:
        changes.grow_labels(store, 8)
    for i, first in enumerate(range(0, n, 1 << 16)):
        rng = np.random.default_rng(i)
        size = min(1 << 16, n - first)
        rows = rng.standard_normal((size, WIDTH), dtype=np.float32)
        labels = Labels((rng.random((size, 8)) < 0.2).astype(np.uint8), None)
        for store in stores:
            store.append(rows, labels)


def _search(ray: Any, n: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    from tagstream.cluster import RayStore

    cluster = RayStore(SHARDS, timeout=3600.0)  # however busy the machine
    start = time.perf_counter()
    shards, local = cluster.open(WIDTH, sparse=False), LocalStore(WIDTH, sparse=False)
    pids = ray.get([actor.pid.remote() for actor in shards.actors])
    ready = time.perf_counter() - start
    _fill([local, shards], n)
    rows = []
    for m in (1, 64, 512):
        queries = np.random.default_rng(1).standard_normal((m, WIDTH), dtype=np.float32)
        one, many = lookup.nearest_rows(local, queries, K), lookup.nearest_rows(shards, queries, K)
        for mine, theirs in zip(one, many, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        turns = 5 if n * m < 1e8 else 2
        wall, cpu = _timed(lambda q=queries: lookup.nearest_rows(local, q, K), pids, turns)
        far_wall, far_cpu = _timed(lambda q=queries: lookup.nearest_rows(shards, q, K), pids, turns)
        rows.append(
            {
                "stored": n,
                "queries": m,
                "one process, CPU ms": 1e3 * cpu,
                "shards, CPU ms": 1e3 * far_cpu,
                "CPU, times": far_cpu / cpu,
                "one process, wall ms": 1e3 * wall,
                "shards, wall ms": 1e3 * far_wall,
            }
        )
        tell(".")
    trips = []
    for _ in range(50):
        start = time.perf_counter()
        ray.get([actor.pid.remote() for actor in shards.actors])
        trips.append(1e3 * (time.perf_counter() - start))
    held = lookup.n_bytes(shards) / SHARDS / 1e9
    facts = {
        "stored": n,
        "shards ready, s": ready,
        "empty round trip to all, median ms": statistics.median(trips),
        "held per shard, GB": held,
        "resident per shard, GB": max(map(_resident, pids)),
    }
    start = time.perf_counter()
    os.kill(pids[0], signal.SIGKILL)
    again = lookup.nearest_rows(shards, queries, K)
    facts["killed, restarted, loaded, answered, s"] = time.perf_counter() - start
    np.testing.assert_array_equal(again[1], many[1])
    cluster.close()
    return rows, facts


def _learning(ray: Any, n: int) -> dict[str, Any]:
    """Learn in blocks; the first third, in which all is compiled and loaded, does not count."""
    from tagstream.cluster import RayStore

    stream = make_stream(n, p=WIDTH, q=16, seed=5)
    X, Y = stream.X.astype(np.float32), stream.Y
    few = OML(random_state=0, lift=None).partial_fit(X[:3000], Y[:3000])  # compile
    few.predict(X[:10])
    cluster = RayStore(SHARDS, segment=8192)
    costs = {}
    for name, store in (("one process", None), ("shards", cluster)):
        model = OML(random_state=0, lift=None, store=store).partial_fit(X[: n // 3], Y[: n // 3])
        pids = [] if store is None else ray.get([a.pid.remote() for a in model._store.actors])
        start, before = time.perf_counter(), _cpu(pids)
        for first in range(n // 3, n, 4096):
            model.partial_fit(X[first : first + 4096], Y[first : first + 4096])
        done = n - n // 3
        costs[name] = (_cpu(pids) - before) / done, (time.perf_counter() - start) / done
        tell(".")
    cluster.close()
    (cpu, wall), (far_cpu, far_wall) = costs["one process"], costs["shards"]
    return {
        "examples": n,
        "one process, CPU µs each": 1e6 * cpu,
        "shards, CPU µs each": 1e6 * far_cpu,
        "overhead, CPU µs each": 1e6 * (far_cpu - cpu),
        "CPU, times": far_cpu / cpu,
        "one process, wall µs each": 1e6 * wall,
        "shards, wall µs each": 1e6 * far_wall,
    }


def run(quick: bool) -> Section:
    title = "The memory on Ray"
    if version("ray") is None:
        return {"title": title, "equal": "Ray is not installed.", "rows": [], "claims": []}
    import ray

    start = time.perf_counter()
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=500_000_000
    )
    started = time.perf_counter() - start
    rows, facts = [], {}
    for n in (200_000,) if quick else (1_000_000, 10_000_000):
        some, fact = _search(ray, n)
        rows += some
        facts[f"Start, memory, recovery with {n:,} stored"] = {"Ray started, s": started, **fact}
    learning = _learning(ray, 20_000 if quick else 60_000)
    ray.shutdown()
    claims = [
        claim(
            f"search of {row['queries']:,} queries among {row['stored']:,} codes on {SHARDS} "
            "shards, CPU of all over one process",
            row["CPU, times"],
            1.3,
            limit="the same search in one process",
            limit_value=row["one process, CPU ms"],
            limit_unit="ms",
            distance=row["CPU, times"],
        )
        for row in rows
        if row["queries"] > 1
    ]
    return {
        "title": title,
        "equal": f"The same rows of {WIDTH} numbers, the same queries, {K} neighbours; distances "
        "and positions are compared to the bit. Segments of 65,536.",
        "differs": f"{SHARDS} shards on {os.cpu_count()} cores which other programs use too: "
        "processor times can be compared, wall times only tell what was met.",
        "rows": rows,
        "tables": {**facts, "Learning in blocks of 4,096": learning},
        "claims": claims,
    }
