"""Growth: time per example against what is stored, features, labels and dimension.

Everything here is timed in blocks of 200 examples, so that the work is seen and not the call, and
without refits, which have a benchmark of their own; the best of several blocks counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.timed import Timed
from benchmarks.timing import Section, best_of, claim, seconds, slope, tell
from tagstream import KNN, make_stream

BLOCK, START, WINDOW = 200, 1500, 1000


Case = tuple[Any, Any, Any, int]  # a model, a stream X and Y, and how much of it is learnt before


def best_blocks(cases: list[Case], turns: int) -> list[tuple[float, float]]:
    """Return for each case the best µs per example of predicting and of learning a block.

    The cases take turns, each going on through its stream block by block; refits do not count.
    """
    for model, X, Y, n in cases:
        model.partial_fit(X[:n], Y[:n])
    best = np.full((len(cases), 2), np.inf)
    for turn in range(turns):
        for i, (model, X, Y, n) in enumerate(cases):
            rows = slice(n + turn * BLOCK, n + (turn + 1) * BLOCK)
            predicting = seconds(lambda m=model, x=X[rows]: m.predict(x))
            before = getattr(model, "renewing", 0.0)
            learning = seconds(lambda m=model, x=X[rows], y=Y[rows]: m.partial_fit(x, y))
            learning -= getattr(model, "renewing", 0.0) - before
            best[i] = np.minimum(best[i], (predicting, learning))
    return [(float(p), float(q)) for p, q in best / BLOCK * 1e6]


def _sweep(
    name: str, values: list[int], make: Callable[[int], Case], turns: int
) -> list[dict[str, Any]]:
    """Time the model that ``make`` makes at each value."""
    times = best_blocks([make(value) for value in values], turns)
    tell(".")
    return [
        {"curve": name, "at": value, "predict, µs": predict, "learn, µs": learn}
        for value, (predict, learn) in zip(values, times, strict=True)
    ]


def _stream(n: int, p: int = 100, q: int = 14, seed: int = 5) -> tuple[Any, Any]:
    stream = make_stream(
        n, p=p, q=q, n_factors=min(4, q - 1), cardinality=min(2.5, q / 3), seed=seed
    )
    return stream.X.astype(np.float32), stream.Y


def _oml(**settings: Any) -> Timed:
    return Timed(lift=None, random_state=0, **settings)


def run(quick: bool) -> Section:
    turns = 3 if quick else 20
    extra = turns * BLOCK
    most = 10_000 if quick else 100_000
    X, Y = _stream(most + extra)
    sizes = [n for n in (1000, 3000, 10_000, 30_000, 100_000) if n <= most]
    widths = [16, 64, 256] if quick else [16, 32, 64, 128, 256, 512, 1024]
    labels = [4, 16, 64] if quick else [4, 8, 16, 32, 64, 128, 256]

    def of_n(learner: Any) -> Callable[[int], Case]:
        return lambda n: (learner(), X[: n + extra], Y[: n + extra], n)

    def of_p(p: int) -> Case:
        return (_oml(window=WINDOW), *_stream(START + extra, p=p), START)

    def of_q(q: int) -> Case:
        return (_oml(window=WINDOW), *_stream(START + extra, q=q), START)

    def of_d(d: int) -> Case:
        return (_oml(window=WINDOW, n_components=d), *_stream(START + extra, q=max(labels)), START)

    rows = [
        *_sweep("OML, n stored", sizes, of_n(_oml), turns),
        *_sweep("KNN, n stored", sizes, of_n(KNN), turns),
        *_sweep("OML, n seen, window 1,000", sizes, of_n(lambda: _oml(window=WINDOW)), turns),
        *_sweep("KNN, n seen, window 1,000", sizes, of_n(lambda: KNN(window=WINDOW)), turns),
        *_sweep("OML, p, window 1,000", widths, of_p, turns),
        *_sweep("OML, q, window 1,000", labels, of_q, turns),
        *_sweep("OML, d, window 1,000", labels, of_d, turns),
    ]
    return {
        "title": "Growth of the time per example",
        "equal": f"Single precision, 100 features, 14 labels (256 for d) and {START:,} learnt "
        f"unless they are what grows; blocks of {BLOCK}, one thread, best of {turns} blocks. "
        "Exponents are fitted to the three largest sizes.",
        "differs": "Refits are left out, see the next section; no lift.",
        "rows": rows,
        "claims": _claims(rows),
        "curves": _curves(rows),
    }


def _curves(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {
        "n stored": "examples stored",
        "n seen": "examples seen, window 1,000",
        "p": "features",
        "q": "labels = dimension",
        "d": "dimension",
    }
    curves = []
    for name in dict.fromkeys(row["curve"] for row in rows):
        learner, what, *_ = name.split(", ")
        part = [row for row in rows if row["curve"] == name]
        curves += [
            {
                "plot": "growth",
                "panel": names[what],
                "line": f"{learner} {action}",
                "x": [row["at"] for row in part],
                "y": [row[f"{action}, µs"] for row in part],
                "xlabel": what,
                "ylabel": "µs per example",
            }
            for action in ("predict", "learn")
        ]
    return curves


def _product(n: int, width: int) -> float:
    """Return the µs per query of the bare product of a block of queries and n stored rows."""
    stored, queries = np.ones((n, width), np.float32), np.ones((BLOCK, width), np.float32)
    return best_of(lambda: queries @ stored.T) / BLOCK * 1e6


def _claims(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    claims = []
    for name in dict.fromkeys(row["curve"] for row in rows):
        part = [row for row in rows if row["curve"] == name]
        at = [row["at"] for row in part]
        for action in ("predict", "learn"):
            times = [row[f"{action}, µs"] for row in part]
            if "n seen" in name:
                ratio = max(times) / min(times)
                limit = "nothing grows: noise of the clock"
                claims.append(
                    claim(f"{name}: slowest over fastest, {action}", ratio, 1.1, limit=limit)
                )
                continue
            if "n stored" in name and (name, action) != ("KNN, n stored", "learn"):
                limit = f"product with all stored codes, at {at[-1]:,}"
                floor = _product(at[-1], 14 if name.startswith("OML") else 100)
            else:
                limit, floor = f"what does not grow: time at {at[0]:,}", times[0]
            claims.append(
                claim(
                    f"{name}: exponent, {action}",
                    slope(at[-3:], times[-3:]),
                    1.05,
                    unit="",
                    limit=limit,
                    limit_value=floor,
                    limit_unit="µs per example",
                    distance=times[-1] / floor,
                )
            )
    return claims
