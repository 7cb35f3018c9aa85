"""What the head and the fast map cost: time per label, in blocks and without refits."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.timed import FittedOnce
from benchmarks.timing import Section, claim, tell
from tagstream import make_stream

N, BLOCK = 6000, 1000
CASES = ((14, 100, 2.0), (101, 120, None), (374, 500, 0.5))  # labels, features, target in µs


def _cost(q: int, p: int, turns: int) -> tuple[float, float]:
    """Return µs per label and example of head and fast map together, and of all learning."""
    stream = make_stream(N, p=p, q=q, n_factors=4, cardinality=2.5, seed=3)
    X, Y = stream.X.astype(np.float32), stream.Y
    best = [np.inf, np.inf]
    for _ in range(turns):
        model = FittedOnce(lift=None, scale=None, ridge=10.0, random_state=0)
        model.partial_fit(X[:BLOCK], Y[:BLOCK])
        assert model._belief is not None
        head, spent = model._belief.head, 0.0
        plain = head.learn

        def timed(*given: Any, plain: Any = plain) -> Any:
            nonlocal spent
            start = time.process_time()
            out = plain(*given)
            spent += time.process_time() - start
            return out

        head.learn = timed  # type: ignore[method-assign]
        start = time.process_time()
        for i in range(BLOCK, N, BLOCK):
            model.partial_fit(X[i : i + BLOCK], Y[i : i + BLOCK])
        whole = time.process_time() - start
        per = 1e6 / ((N - BLOCK) * q)
        best = [min(best[0], spent * per), min(best[1], whole * per)]
    tell(".")
    return best[0], best[1]


def run(quick: bool) -> Section:
    rows, claims = [], []
    for q, p, target in CASES:
        own, whole = _cost(q, p, 1 if quick else 5)
        rows.append(
            {"labels": q, "features": p, "head and fast map, µs per label": own,
             "all of learning, µs per label": whole, "share": own / whole}
        )  # fmt: skip
        if target is not None:
            claims.append(
                claim(
                    f"head and fast map at {q} labels, µs per label",
                    own,
                    target,
                    unit="µs",
                    limit="fast map: features times labels, twice",
                    limit_value=2 * p * 1e-3,
                    limit_unit="µs at one a nanosecond",
                )
            )
    return {
        "title": "What the head costs",
        "equal": f"{N - BLOCK:,} dense examples in blocks of {BLOCK:,}, one thread.",
        "differs": "No refits: P is fitted once.",
        "rows": rows,
        "claims": claims,
    }
