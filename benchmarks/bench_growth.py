"""Growth: time per example against what is stored, features, labels and dimension.

Everything here is timed in blocks of 200 examples, so that the work is seen and not the call, and
without refits, which have a benchmark of their own; the best of several blocks counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from benchmarks import limits
from benchmarks.timed import Timed
from benchmarks.timing import Section, claim, seconds, slope, tell
from tagstream import KNN, make_stream

BLOCK = 200


def block_times(model: Any, X: Any, Y: Any, turns: int) -> tuple[float, float]:
    """Return the best times per example of predicting and of learning the rows in blocks."""
    predicting, learning = [], []
    for turn in range(turns):
        rows = slice(turn * BLOCK, (turn + 1) * BLOCK)
        predicting.append(seconds(lambda rows=rows: model.predict(X[rows])))
        before = getattr(model, "renewing", 0.0)
        whole = seconds(lambda rows=rows: model.partial_fit(X[rows], Y[rows]))
        learning.append(whole - getattr(model, "renewing", 0.0) + before)
    return min(predicting) / BLOCK, min(learning) / BLOCK


def _sweep(
    name: str,
    values: Iterable[int],
    make: Callable[[int], tuple[Any, Any, Any, int]],
    turns: int,
) -> list[dict[str, Any]]:
    """Time a model at each value; ``make`` returns it with a stream and how much of it to store."""
    rows = []
    for value in values:
        model, X, Y, stored = make(value)
        model.partial_fit(X[:stored], Y[:stored])
        predict, learn = block_times(model, X[stored:], Y[stored:], turns)
        rows.append(
            {"curve": name, "at": value, "predict, µs": predict * 1e6, "learn, µs": learn * 1e6}
        )
        tell(".")
    return rows


def _stream(n: int, p: int = 100, q: int = 14, seed: int = 5) -> tuple[Any, Any]:
    stream = make_stream(
        n, p=p, q=q, n_factors=min(4, q - 1), cardinality=min(2.5, q / 3), seed=seed
    )
    return stream.X.astype(np.float32), stream.Y


def _oml(**settings: Any) -> Timed:
    return Timed(lift=None, random_state=0, **settings)


def run(quick: bool) -> Section:
    turns = 4 if quick else 12
    extra = turns * BLOCK
    most = 10_000 if quick else 100_000
    X, Y = _stream(most + extra)
    sizes = [n for n in (1000, 3000, 10_000, 30_000, 100_000) if n <= most]
    widths = [16, 64, 256] if quick else [16, 32, 64, 128, 256, 512, 1024]
    labels = [4, 16, 64] if quick else [4, 8, 16, 32, 64, 128, 256]
    window = 1000

    def of_n(learner: Any) -> Callable[[int], tuple[Any, Any, Any, int]]:
        return lambda n: (learner(), X[: n + extra], Y[: n + extra], n)

    def of_p(p: int) -> tuple[Any, Any, Any, int]:
        return (_oml(window=window), *_stream(2000 + extra, p=p), 2000)

    def of_q(q: int) -> tuple[Any, Any, Any, int]:
        return (_oml(window=window), *_stream(2000 + extra, q=q), 2000)

    def of_d(d: int) -> tuple[Any, Any, Any, int]:
        return (_oml(window=window, n_components=d), *_stream(2000 + extra, q=max(labels)), 2000)

    rows = [
        *_sweep("OML, n stored", sizes, of_n(_oml), turns),
        *_sweep("KNN, n stored", sizes, of_n(KNN), turns),
        *_sweep("OML, n seen, window 1,000", sizes, of_n(lambda: _oml(window=window)), turns),
        *_sweep("KNN, n seen, window 1,000", sizes, of_n(lambda: KNN(window=window)), turns),
        *_sweep("OML, p, window 1,000", widths, of_p, turns),
        *_sweep("OML, q, window 1,000", labels, of_q, turns),
        *_sweep("OML, d, window 1,000", labels, of_d, turns),
    ]
    return {
        "title": "Growth of the time per example",
        "equal": "Single precision, 100 features, 14 labels (256 for d) and 2,000 learnt unless "
        f"they are what grows; blocks of {BLOCK}, one thread, best of {turns} blocks.",
        "differs": "Refits are left out, see the next section; no lift.",
        "rows": rows,
        "claims": _claims(rows, limits.run(True)),
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


def _claims(rows: list[dict[str, Any]], machine: Section) -> list[dict[str, Any]]:
    claims = []
    for name in dict.fromkeys(row["curve"] for row in rows):
        part = [row for row in rows if row["curve"] == name]
        at = [row["at"] for row in part]
        for action in ("predict", "learn"):
            times = [row[f"{action}, µs"] for row in part]
            if "n seen" in name:
                claims.append(
                    claim(
                        f"{name}: slowest over fastest, {action}",
                        max(times) / min(times),
                        1.1,
                        limit="nothing grows: noise of the clock",
                    )
                )
                continue
            learner, what = name.split(", ", 1)
            reads = {"OML": 14 * 4, "KNN": 100 * 4}[learner] if what == "n stored" else None
            bandwidth = limits.value(machine, "sgemm")
            product = 2 * reads / 4 * at[-1] / bandwidth / 1e3 if reads else None
            claims.append(
                claim(
                    f"{name}: exponent, {action}",
                    slope(at, times),
                    1.05,
                    unit="",
                    limit="product and scan of all stored codes"
                    if reads
                    else "a product of that width",
                    limit_value=product,
                    limit_unit=f"µs, product alone at {at[-1]:,}",
                    distance=times[-1] / product if product else None,
                )
            )
    return claims
