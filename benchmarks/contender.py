"""One job for one version of tagstream: ``python contender.py JOB``, by that version's interpreter.

It knows both versions and imports nothing of this folder, so that the previous version, which
lives in an environment of its own, runs the very same lines.  It prints one JSON line.
"""

from __future__ import annotations

import functools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import tagstream as ts

NEW = hasattr(ts, "Tagger")
DIVISIONS = int(os.environ.get("TAGSTREAM_BENCH_DIVISIONS", "1"))
SIZE = float(os.environ.get("TAGSTREAM_BENCH_SIZE", "1"))


def sized(n: int) -> int:
    return max(200, int(n * SIZE))


def made_texts(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Make n comments: the first half of a real one, and the second half of one tagged alike."""
    real = Path(os.environ["TAGSTREAM_TEXT"]) / "goemotions-dev.jsonl"
    records = [json.loads(line) for line in real.read_text(encoding="utf-8").splitlines()]
    alike: dict[str, list[list[str]]] = {}
    for record in records:
        alike.setdefault("|".join(record["y"]), []).append(record["text"].split())
    rng, out = random.Random(seed), []
    if seed:
        rng.shuffle(records)
    for i in range(n):
        record = records[i % len(records)]
        one, other = (rng.choice(alike["|".join(record["y"])]) for _ in range(2))
        words = one[: (len(one) + 1) // 2] + other[len(other) // 2 :]
        out.append({"id": str(i), "text": " ".join(words), "y": record["y"]})
    return out


def clock(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    out = function()
    return time.process_time() - start, out


def f1(truth: Any, predicted: Any) -> float:
    truth, predicted = np.asarray(truth, bool), np.asarray(predicted, bool)
    return float(2 * (truth & predicted).sum() / max(truth.sum() + predicted.sum(), 1))


# ---------------------------------------------------------------------- streams
def dense(n: int, p: int = 100, q: int = 14, seed: int = 1) -> tuple[Any, Any]:
    stream = ts.make_stream(n, p=p, q=q, seed=seed)
    return stream.X.astype(np.float32), stream.Y


load = functools.cache(ts.load)


def of_file(name: str, seed: int) -> tuple[Any, Any]:
    data = load(name)
    order = np.random.default_rng(seed).permutation(data.X.shape[0])[: sized(data.X.shape[0])]
    X = data.X[order]
    if not isinstance(X, np.ndarray) and 2 * X.nnz > X.shape[0] * X.shape[1]:
        X = X.toarray()  # mediamill's sparse file has no zero
    return X, np.asarray(data.Y)[order]


# ---------------------------------------------------------------------- jobs
def text(seed: int) -> dict[str, float]:
    """20,000 records from a file into a model, then 1,000 more are predicted."""
    n = sized(20_000)
    records = made_texts(n + 1000, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.jsonl"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(r) + "\n" for r in records[:n])
        rest = Path(folder) / "rest.jsonl"
        with rest.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(r) + "\n" for r in records[n:])
        tags = sorted({tag for r in records for tag in r["y"]})
        truth = np.array([[tag in r["y"] for tag in tags] for r in records[n:]])

        if NEW:

            def learn() -> Any:
                tagger = ts.Tagger()
                with path.open(encoding="utf-8") as file:
                    tagger.learn(map(json.loads, file))
                return tagger

            if not seed:
                learn()  # compiles
            taken, tagger = clock(learn)
            said = tagger.suggest(records[n:])
            predicted = np.array([[tag in s.tags for tag in tags] for s in said])
        else:

            def learn() -> Any:
                data = ts.load(path)
                return data, ts.OML(random_state=0).partial_fit(
                    data.X, data.Y, classes=data.label_names
                )

            if not seed:
                learn()  # compiles
            taken, (_, model) = clock(learn)
            columns = [list(model.classes_).index(tag) for tag in tags]
            predicted = model.predict(ts.load(rest).X)[:, columns]
    return {"per s": n / taken, "micro-F1": f1(truth, predicted)}


def one_at_a_time(seed: int) -> dict[str, float]:
    """Predict and learn one after the other under a window of 1,000."""
    n = sized(21_000)
    X, Y = dense(n, seed=1 + seed)
    model = ts.OML(window=1000, random_state=0)
    said = np.zeros((n, Y.shape[1]), bool)
    for i in range(1000):
        model.learn_one(X[i], Y[i])
    start = time.process_time()
    for i in range(1000, n):
        said[i] = model.predict_one(X[i])
        model.learn_one(X[i], Y[i])
    taken = time.process_time() - start
    return {"per s": (n - 1000) / taken, "micro-F1": f1(Y[1000:], said[1000:])}


def _stream(X: Any, Y: Any) -> dict[str, float]:
    """Learn nine tenths in blocks of 1,000, predict the rest."""
    n = X.shape[0] * 9 // 10
    model = ts.OML(random_state=0)

    def learn() -> None:
        for i in range(0, n, 1000):
            model.partial_fit(X[i : min(i + 1000, n)], Y[i : min(i + 1000, n)])

    taken, _ = clock(learn)
    searching, predicted = clock(lambda: model.predict(X[n:]))
    return {
        "per s": n / taken,
        "micro-F1": f1(Y[n:], predicted),
        "predicted per s": (X.shape[0] - n) / searching,
    }


def growing(seed: int) -> dict[str, float]:
    """A dense stream of 50,000."""
    return _stream(*dense(sized(50_000), seed=1 + seed))


def mediamill(seed: int) -> dict[str, float]:
    return _stream(*of_file("mediamill", seed))


def scene(seed: int) -> dict[str, float]:
    return _stream(*of_file("scene", seed))


def image(seed: int) -> dict[str, float]:
    return _stream(*of_file("image", seed))


def delicious(seed: int) -> dict[str, float]:
    X, Y = of_file("delicious", seed)
    n = sized(3000)
    return _stream(X[:n], Y[:n])


def bibtex(seed: int) -> dict[str, float]:
    return _stream(*of_file("bibtex", seed))


def _longest(model: Any, X: Any, Y: Any, n: int) -> dict[str, float]:
    """Learn n at once, then one by one past the next fit; return the longest call."""
    model.partial_fit(X[:n], Y[:n])
    times = []
    for i in range(n, X.shape[0]):
        start = time.process_time()
        model.learn_one(X[i], Y[i])
        times.append(time.process_time() - start)
    return {"longest ms": 1e3 * max(times), "median ms": 1e3 * float(np.median(times))}


def longest_dense() -> dict[str, float]:
    """The longest learn_one at 20,000 stored, with a lift if it is chosen."""
    return _longest_dense(sized(18_000))


def longest_dense_100k() -> dict[str, float]:
    return _longest_dense(sized(90_000))


def _longest_dense(n: int) -> dict[str, float]:
    X, Y = dense(n + n // 3)
    return _longest(ts.OML(lift="kernel", random_state=0), X, Y, n)


def longest_text() -> dict[str, float]:
    return _longest_text(sized(18_000))


def longest_text_100k() -> dict[str, float]:
    return _longest_text(sized(90_000))


def _longest_text(n: int) -> dict[str, float]:
    records = made_texts(n + n // 3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.jsonl"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(r) + "\n" for r in records)
        data = ts.load(path)
    return _longest(ts.OML(random_state=0), data.X, np.asarray(data.Y), n)


def first_call() -> dict[str, float]:
    """Compile what a small dense stream needs; give it an empty NUMBA_CACHE_DIR."""
    X, Y = dense(300)

    def calls() -> None:
        model = ts.OML(random_state=0).partial_fit(X[:200], Y[:200])
        for x, y in zip(X[200:], Y[200:], strict=True):
            model.predict_one(x)
            model.learn_one(x, y)

    return {"seconds": clock(calls)[0]}


def one_line() -> dict[str, float]:
    """``tagstream predict`` of one line, all of its process, after one that wrote the caches."""
    with tempfile.TemporaryDirectory() as folder:
        path, model = Path(folder) / "texts.jsonl", str(Path(folder) / "model.tgs")
        lines = [json.dumps(record) + "\n" for record in made_texts(300)]
        path.write_text("".join(lines), encoding="utf-8")
        command = [sys.executable, "-m", "tagstream"]

        def run(*arguments: str) -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [*command, *arguments], input=lines[0], capture_output=True, text=True, check=True
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        run("learn", str(path), "--model", model)
        return {"seconds": min(run("predict", "-", "--model", model) for _ in range(4))}


def flat() -> dict[str, float]:
    """A million dense examples under a window: how much more an example costs per doubling."""
    n, model, costs = sized(1_000_000), ts.OML(window=1000, random_state=0), []
    X, Y = dense(50_000)
    done, stop = 0, 15_625
    while stop <= n:
        start, first = time.process_time(), done
        while done < stop:
            at = done % len(X)
            size = min(1000, stop - done, len(X) - at)
            model.partial_fit(X[at : at + size], Y[at : at + size])
            done += size
        costs.append((time.process_time() - start) / (done - first))
        stop *= 2
    steps = [b / a for a, b in pairwise(costs)]
    return {"worst": max(steps, default=1.0), "first us": 1e6 * costs[0], "us": 1e6 * costs[-1]}


def divided(job: Callable[[int], dict[str, float]]) -> dict[str, Any]:
    """Do a job with several divisions of its data, or other made data: lists of what it measures.

    The speed is that of all of them together.
    """
    made = [job(seed) for seed in range(DIVISIONS)]
    out: dict[str, Any] = {name: [one[name] for one in made] for name in made[0]}
    return out | {"per s": DIVISIONS / sum(1 / speed for speed in out["per s"])}


STREAMS = {
    job.__name__: job
    for job in (text, one_at_a_time, growing, mediamill, scene, image, delicious, bibtex)
}
JOBS: dict[str, Callable[[], dict[str, float]]] = {
    job.__name__: job
    for job in (
        longest_dense, longest_text, longest_dense_100k, longest_text_100k, first_call, one_line,
        flat,
    )
}  # fmt: skip

if __name__ == "__main__":
    name = sys.argv[1]
    if name != "first_call":  # compile before the clock runs
        X, Y = dense(60)
        warm = ts.OML(random_state=0).partial_fit(X, Y)
        warm.predict(X)
        warm.learn_one(X[0], Y[0]).predict_one(X[1])
    print(json.dumps(divided(STREAMS[name]) if name in STREAMS else JOBS[name]()))
