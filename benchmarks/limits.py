"""What the machine can do: memory bandwidth, matrix products, calls."""

from __future__ import annotations

import timeit

import numba
import numpy as np

from benchmarks.timing import Section, best_of

MEGABYTES = 256  # of each array, far beyond the caches


@numba.njit
def _nothing(x: np.ndarray) -> None:
    pass


def run(quick: bool) -> Section:
    """Measure the limits, one thread."""
    rng = np.random.default_rng(0)
    size = (MEGABYTES // (8 if quick else 1)) * 2**20
    source = rng.random(size // 4, dtype=np.float32)
    target = np.empty_like(source)
    m = 512 if quick else 1536
    A, B = rng.random((m, m)), rng.random((m, m))
    a, b = A.astype(np.float32), B.astype(np.float32)
    row = np.zeros(1)
    _nothing(row)
    values = {
        "copy": ("GB/s, read and written", 2 * size / best_of(lambda: np.copyto(target, source))),
        "read": ("GB/s, one array", size / best_of(lambda: source @ source)),
        "sgemm": ("GFlop/s, single precision", 2 * m**3 / best_of(lambda: a @ b)),
        "dgemm": ("GFlop/s, double precision", 2 * m**3 / best_of(lambda: A @ B)),
    }
    calls = {
        "python call": lambda: None,
        "compiled call, one array": lambda: _nothing(row),
        "smallest numpy reduction": row.max,
        "smallest numpy product": lambda: row @ row,
    }
    rows = [
        {"limit": name, "value": value / 1e9, "unit": unit}
        for name, (unit, value) in values.items()
    ]
    for name, call in calls.items():
        number = 20_000
        time = min(timeit.repeat(call, number=number, repeat=5)) / number
        rows.append({"limit": name, "value": time * 1e6, "unit": "µs"})
    return {
        "title": "Limits of the machine",
        "equal": "One thread, best of five.",
        "differs": "",
        "rows": rows,
        "claims": [],
    }
