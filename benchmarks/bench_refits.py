"""Refits amortised: 100,000 examples, and where their time goes."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.timed import FittedOnce, Timed
from benchmarks.timing import Section, best_of, claim, seconds, slope, tell
from tagstream import make_stream

P, Q, BLOCK = 100, 14, 1000


def _learn(model: Any, X: Any, Y: Any) -> float:
    return sum(
        seconds(lambda i=i: model.partial_fit(X[i : i + BLOCK], Y[i : i + BLOCK]))
        for i in range(0, len(X), BLOCK)
    )


def _cumulated(refits: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    """Return times t and all refit seconds until then, from where the stream is past its start."""
    at = [t for t, _ in refits]
    total = np.cumsum([spent for _, spent in refits])
    return at, total.tolist()


def _product(model: Any) -> float:
    """Return the time of the last fit's product of features with themselves, were it alone."""
    n = min(model.refits[-1][0], model.window or model.n_seen_)
    features = np.ones((min(n, 4096), model.P_.shape[0]))
    return best_of(lambda: features.T @ features, 3) * n / len(features)


def run(quick: bool) -> Section:
    n = 5000 if quick else 100_000
    stream = make_stream(n, p=P, q=Q, seed=6)
    X, Y = stream.X.astype(np.float32), stream.Y
    rows, claims, curves = [], [], []
    for name, settings in {
        "default": {},
        "no lift": {"lift": None},
        "window 1,000": {"window": 1000},
    }.items():
        model = Timed(random_state=0, **settings)
        total = _learn(model, X, Y)
        tell(".")
        at, spent = _cumulated(model.refits)
        # The same rounds without any refit: the first P is kept.
        plain = {"lift": None, "scale": None, "ridge": 1.0, "window": settings.get("window")}
        rounds = _learn(FittedOnce(**plain, random_state=0), X, Y)
        tell(".")
        late = [i for i, t in enumerate(at) if t >= n // 50]
        exponent = slope([at[i] for i in late], [spent[i] for i in late])
        rows.append(
            {
                "OML": name,
                "total s": total,
                "refits s": spent[-1],
                "rounds alone s": rounds,
                "refits": len(at),
                "last refit s": model.refits[-1][1],
                "its bare product s": _product(model),
                "µs per example": total / n * 1e6,
                "total over rounds alone": total / rounds,
                "exponent of refit time": exponent,
            }
        )
        claims += [
            claim(
                f"{name}, {n:,} examples: total over rounds alone + refits",
                total / (rounds + spent[-1]),
                1.3,
                limit="the two parts, timed apart",
                limit_value=rounds + spent[-1],
                limit_unit="s",
                distance=total / (rounds + spent[-1]),
            ),
            claim(
                f"{name}: exponent of the accumulated refit time in examples seen",
                exponent,
                1.05,
                unit="",
                limit="1: constant work per example",
            ),
        ]
        curves.append(
            {
                "plot": "refits",
                "panel": "all refits so far",
                "line": name,
                "x": at,
                "y": spent,
                "xlabel": "examples seen",
                "ylabel": "seconds",
            }
        )
    return {
        "title": "Refits are amortised",
        "equal": f"The same {n:,} rows (p = {P}, q = {Q}), blocks of {BLOCK:,}, one thread.",
        "differs": "“Rounds alone” learns the same rows with a projection that is never refitted "
        "and has no lift. One pass each, no repeats.",
        "rows": rows,
        "claims": claims,
        "curves": curves,
    }
