"""One at a time: predict the next item, then learn it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.timing import Section, claim, installed, race, tell
from tagstream import KNN, OML, make_stream

WINDOW, P, Q = 1000, 100, 14
VW = "vowpalwabbit multilabel_oaa"


def _rounds(pair: peers.Pair, warm: range, measured: range) -> tuple[float, np.ndarray]:
    """Return the processor time of all rounds, and the wall time of each call in them."""
    predict, learn = pair
    for i in warm:
        learn(i)
    times = np.empty((len(measured), 3))
    clock, start = time.perf_counter, time.process_time()
    for row, i in enumerate(measured):
        times[row, 0] = clock()
        predict(i)
        times[row, 1] = clock()
        learn(i)
        times[row, 2] = clock()
    return time.process_time() - start, np.diff(times, axis=1)


def _bulk(model: Any, X: Any, Y: Any, warm: range, measured: range) -> float:
    """Return the time of the same work without a call per item: predict and learn in blocks."""
    model.partial_fit(X[: len(warm)], Y[: len(warm)])
    start = time.process_time()
    for i in range(measured.start, measured.stop, WINDOW):
        block = slice(i, min(i + WINDOW, measured.stop))
        model.predict(X[block])
        model.partial_fit(X[block], Y[block])
    return time.process_time() - start


def run(quick: bool) -> Section:
    n = WINDOW + (1000 if quick else 20_000)
    stream = make_stream(n, p=P, q=Q, seed=1)
    X, Y = stream.X.astype(np.float32), stream.Y
    here, missing = installed(river="river", vw="vowpalwabbit")
    warm, all_rows = range(WINDOW), range(WINDOW, n)
    few = range(WINDOW, WINDOW + (50 if quick else 300))
    makers: dict[str, tuple[Callable[[], peers.Pair], range]] = {
        "tagstream OML": (
            lambda: peers.tagstream_pair(OML(window=WINDOW, random_state=0), X, Y),
            all_rows,
        ),
        "tagstream KNN": (lambda: peers.tagstream_pair(KNN(window=WINDOW), X, Y), all_rows),
        "tagstream KNN, by predict and partial_fit": (
            lambda: peers.batch_of_one(KNN(window=WINDOW), X, Y),
            few,
        ),
    }
    if "vw" in here:
        for how, make in {
            "ready lines, read twice": peers.vw_lines,
            "ready lines, read once": peers.vw_lines_once,
            "from array rows": peers.vw_arrays,
        }.items():
            makers[f"{VW}, {how}"] = (lambda make=make: make(X, Y)), all_rows
    if "river" in here:
        for engine in ("LazySearch", "SWINN"):
            makers[f"river MultiClassEncoder(KNNClassifier), {engine}"] = (
                lambda engine=engine: peers.river_knn(X[: few.stop], Y, WINDOW, engine),
                few,
            )
    makers["scikit-learn MultiOutputClassifier(SGDClassifier)"] = (
        lambda: peers.sklearn_sgd(X, Y),
        few,
    )
    kept: dict[str, tuple[float, np.ndarray]] = {}

    def contender(name: str) -> float:
        make, rows = makers[name]
        result = _rounds(make(), warm if "scikit" not in name else range(20), rows)
        if name not in kept or result[0] < kept[name][0]:
            kept[name] = result
        return result[0]

    race({name: lambda name=name: contender(name) for name in makers}, 2 if quick else 4, 90)
    tell(" bulk ")
    bulk = {
        "tagstream OML": lambda: _bulk(OML(window=WINDOW, random_state=0), X, Y, warm, all_rows),
        "tagstream KNN": lambda: _bulk(KNN(window=WINDOW), X, Y, warm, all_rows),
    }
    bulk_time = {name: t / len(all_rows) * 1e6 for name, t in race(bulk, 2 if quick else 5).items()}
    rows = []
    for name, (total, times) in kept.items():
        each = times.sum(axis=1)
        rows.append(
            {
                "learner": name,
                "rows": len(each),
                "µs, mean": total / len(each) * 1e6,
                "µs, median": float(np.median(each)) * 1e6,
                "predict, median": float(np.median(times[:, 0])) * 1e6,
                "learn, median": float(np.median(times[:, 1])) * 1e6,
                "worst ms": float(each.max()) * 1e3,
                "in bulk, µs": bulk_time.get(name),
            }
        )
    return {
        "title": "One at a time: predict, then learn",
        "equal": f"The same rows ({P} dense features, {Q} labels) in the same order, {WINDOW:,} "
        f"learnt before the clock starts, k = {peers.K} and a window of {WINDOW:,} where there are "
        "neighbours, one thread, inputs converted beforehand to what each learner likes best.",
        "differs": "The linear models keep no window. Slow peers are timed on fewer rows, which "
        "their constant rate allows. OML's mean includes every refit and choice it makes.",
        "rows": rows,
        "claims": _claims(rows),
        "skipped": missing,
    }


def _claims(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    mean = {row["learner"]: row["µs, mean"] for row in rows}
    bulk = {row["learner"]: row["in bulk, µs"] for row in rows}
    targets = {
        "river": ("river's kNN, its faster engine", 20),
        "scikit": ("scikit-learn's SGD", 50),
        f"{VW}, ready lines, read twice": ("Vowpal Wabbit, ready lines read at each call", 1),
        f"{VW}, ready lines, read once": ("Vowpal Wabbit, ready lines read once", 1),
        f"{VW}, from array rows": ("Vowpal Wabbit, from the same array rows", 1),
    }
    claims = []
    for ours in ("tagstream OML", "tagstream KNN"):
        for peer, (what, target) in targets.items():
            times = [t for name, t in mean.items() if name.startswith(peer)]
            if times:
                claims.append(
                    claim(
                        f"{ours.split()[1]} one at a time, rate over {what}",
                        min(times) / mean[ours],
                        target,
                        at_least=True,
                        limit="Python calls: the same rows in blocks take",
                        limit_value=bulk[ours],
                        limit_unit="µs per row",
                        distance=mean[ours] / bulk[ours],
                    )
                )
    return claims
