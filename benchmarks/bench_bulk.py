"""In bulk: ``partial_fit`` on blocks against ``learn_one``, and whether the state is the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.timed import Timed
from benchmarks.timing import Section, claim, race, seconds
from tagstream import KNN, make_stream

P, Q, BLOCK = 100, 14, 1000


def same(a: Any, b: Any) -> bool:
    """Tell whether two states, nested dicts of arrays and plain values, are equal bit for bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return bool(a == b)


def _one_by_one(model: Any, X: Any, Y: Any) -> None:
    model.partial_fit(X[:1], Y[:1])
    for x, y in zip(X[1:], Y[1:], strict=True):
        model.learn_one(x, y)


def _in_blocks(model: Any, X: Any, Y: Any, size: int) -> None:
    for i in range(0, len(X), size):
        model.partial_fit(X[i : i + size], Y[i : i + size])


def _row(best: dict[str, float], made: dict[str, Any], n: int) -> dict[str, Any]:
    refits = {way: getattr(model, "renewing", 0.0) for way, (_, model) in made.items()}
    states = [model.to_state() for _, model in made.values()]
    one, bulk = "learn_one", "blocks of 1,000"
    return {
        **{f"{way}, µs": t / n * 1e6 for way, t in best.items()},
        "of it refits, µs": refits[bulk] / n * 1e6,
        "ratio": best[one] / best[bulk],
        "ratio without refits": (best[one] - refits[one]) / (best[bulk] - refits[bulk]),
        "state identical": all(same(states[0], state) for state in states[1:]),
    }


def _claims(case: str, row: dict[str, Any]) -> list[dict[str, Any]]:
    bulk, refits = row["blocks of 1,000, µs"], row["of it refits, µs"]
    if not refits:
        return [
            claim(
                f"{case}: rate in bulk over one at a time",
                row["ratio"],
                10,
                at_least=True,
                limit="checking and copying the rows",
            )
        ]
    return [
        claim(
            f"{case}: rate in bulk over one at a time, all included",
            row["ratio"],
            10,
            at_least=True,
            limit="refits of P, which both ways pay alike",
            limit_value=refits,
            limit_unit="µs per row",
            distance=bulk / refits,
        ),
        claim(
            f"{case}: rate in bulk over one at a time, refits taken out of both",
            row["ratio without refits"],
            10,
            at_least=True,
            limit="search, rounds and storage in compiled loops",
            limit_value=bulk - refits,
            limit_unit="µs per row",
        ),
    ]


def run(quick: bool) -> Section:
    n, turns = (2000, 1) if quick else (20_000, 3)
    stream = make_stream(n, p=P, q=Q, seed=2)
    X, Y = stream.X.astype(np.float32), stream.Y
    learners = {
        "OML": lambda window: Timed(window=window, random_state=0),
        "KNN": lambda window: KNN(window=window),
    }
    ways = {
        "learn_one": _one_by_one,
        "blocks of 100": lambda m, X, Y: _in_blocks(m, X, Y, 100),
        "blocks of 1,000": lambda m, X, Y: _in_blocks(m, X, Y, BLOCK),
    }
    rows, claims = [], []
    for name, make in learners.items():
        for window in (1000, None):
            made = dict.fromkeys(ways, (math.inf, None))

            def contender(
                way: str, make: Any = make, window: Any = window, made: Any = made
            ) -> float:
                model = make(window)
                taken = seconds(lambda: ways[way](model, X, Y))
                made[way] = min(made[way], (taken, model), key=lambda pair: pair[0])
                return taken

            best = race({way: lambda way=way: contender(way) for way in ways}, turns)
            rows.append({"learner": name, "window": window, **_row(best, made, n)})
            where = "no window" if window is None else f"window {window:,}"
            claims += _claims(f"{name}, {where}", rows[-1])
    claims.append(
        claim(
            "state after blocks equals state after single calls, share of the cases above",
            float(np.mean([row["state identical"] for row in rows])),
            1,
            unit="",
            at_least=True,
            limit="compared bit for bit",
        )
    )
    return {
        "title": "In bulk: partial_fit on blocks against learn_one",
        "equal": f"The same {n:,} rows ({P} dense features, {Q} labels) from an empty model, one "
        "thread; learning only.",
        "differs": "Only the cut of the stream into calls.",
        "rows": rows,
        "claims": claims,
    }
