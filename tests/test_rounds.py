"""Very long streams with a window: every number stays finite, V and the memory do not grow.

TAGSTREAM_ROUNDS=2000000 python -m pytest -m "" -s tests/test_rounds.py
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import tagstream as ts
from tagstream.data import make_stream

ROUNDS = int(os.environ.get("TAGSTREAM_ROUNDS", "10000000"))
WINDOW = 500
SIZES = (1, 3, 64, 256, 1000, 1000, 1000)  # of calls


def stream(n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield ``n`` examples in calls of several sizes; what the labels mean changes in between."""
    number = given = 0
    while given < n:
        data = make_stream(20_000, p=6, q=5, cardinality=1.5, drift="abrupt", seed=number % 50)
        scale = 10.0 ** (number % 5 - 2)  # and so do the units of the features
        start = 0
        while start < len(data.Y) and given < n:
            stop = min(start + SIZES[(number + start) % len(SIZES)], len(data.Y), start + n - given)
            yield scale * data.X[start:stop], data.Y[start:stop]
            given += stop - start
            start = stop
        number += 1


def follow(n: int) -> list[dict[str, float]]:
    """Learn ``n`` rounds; return a line of figures for each tenth of them."""
    model = ts.OML(window=WINDOW, random_state=0)
    told: list[dict[str, float]] = []
    for X, Y in stream(n):
        if hasattr(model, "n_seen_") and len(X) < 100:
            scores = model.predict_proba(X)
            assert np.isfinite(scores).all()
            assert 0 <= scores.min() <= scores.max() <= 1
        model.partial_fit(X, Y)
        if model.n_seen_ * 10 >= n * (len(told) + 1):
            assert np.isfinite(model.V_).all()
            assert np.isfinite(model.P_).all()
            told.append(
                {
                    "rounds": model.n_seen_,
                    "V": float(np.linalg.norm(model.V_, 2)),
                    "model": model.nbytes_,
                    "process": resident(),
                }
            )
    return told


def resident() -> int:
    """Return the bytes of memory that this process has in use; 0 where that is not told."""
    if sys.platform != "linux":
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def check(told: list[dict[str, float]], n: int) -> None:
    assert told[-1]["rounds"] == n
    assert len(told) == 10
    # A step moves V by at most M and only where a margin is missed: it must not run away.
    assert max(line["V"] for line in told) < 100
    # Flat after the first tenth, in which everything is compiled and buffers get their size.
    assert max(line["model"] for line in told) < 2 * min(line["model"] for line in told)
    assert max(line["process"] for line in told) - told[0]["process"] < 64 << 20


def test_a_long_stream_with_a_window_stays_as_it_is():
    check(follow(20_000), 20_000)


@pytest.mark.slow
def test_a_very_long_stream_with_a_window_stays_as_it_is():
    told = follow(ROUNDS)
    for line in told:
        print(line)
    check(told, ROUNDS)
