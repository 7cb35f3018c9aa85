"""Memory: bytes per stored example, and the peak of a wide sparse stream."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
import tracemalloc
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.timing import Section, claim, peak, tell
from tagstream import KNN, OML, make_stream

WIDTH, ENTRIES, LABELS = 2**18, 50, 20


def _stored(model: Any, n: int, p: int, q: int) -> dict[str, Any]:
    """Learn n rows in blocks; return bytes per example as counted, as traced, and as must be."""
    stream = make_stream(n, p=p, q=q, cardinality=1.5, seed=7)
    X, Y = stream.X.astype(np.float32), stream.Y
    gc.collect()
    tracemalloc.start()
    for i in range(0, n, 1000):
        model.partial_fit(X[i : i + 1000], Y[i : i + 1000])
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    d = 0 if isinstance(model, KNN) else model.V_.shape[1]
    needed = 4 * p + 4 * d + -(-q // 8)
    return {
        "learner": type(model).__name__,
        "n": n,
        "p": p,
        "q": q,
        "needed, bytes": needed,
        "counted, bytes": model.nbytes_ / n,
        "traced, bytes": traced / n,
        "traced over needed": traced / n / needed,
    }


def _few() -> tuple[Any, Any]:
    stream = make_stream(3000, seed=0)
    return stream.X.astype(np.float32), stream.Y


def hashed_rows(n: int, seed: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """Draw rows of hashed text: each of its labels lends a row some of its 50 words."""
    rng = np.random.default_rng(seed)
    words = np.random.default_rng(0).integers(WIDTH, size=(LABELS, 400))
    Y = (rng.random((n, LABELS)) < 0.1).astype(np.uint8)
    Y[np.arange(n), rng.integers(LABELS, size=n)] = 1
    topic = np.argmax(rng.random((n, ENTRIES, LABELS), dtype=np.float32) * Y[:, None], axis=2)
    own = words[topic, rng.integers(words.shape[1], size=topic.shape)]
    noise = rng.integers(WIDTH, size=topic.shape)
    indices = np.where(rng.random(topic.shape) < 0.5, own, noise)
    indptr = np.arange(0, indices.size + 1, ENTRIES)
    rows = sp.csr_matrix(
        (np.ones(indices.size, np.float32), indices.ravel().astype(np.int32), indptr),
        shape=(n, WIDTH),
    )
    rows.sum_duplicates()
    return rows, Y


def sparse_stream(n: int) -> None:
    """Learn n rows of hashed text and print the peak memory of this process; run on its own."""
    size = 10_000
    before = peak()
    model = OML(random_state=0)
    start = time.perf_counter()
    for first in range(0, n, size):
        model.partial_fit(*hashed_rows(min(size, n - first), 1 + first))
    learnt = time.perf_counter() - start
    X, Y = hashed_rows(1000, 10**6)
    hit = float(((model.predict(X) > 0) & (Y > 0)).sum() / Y.sum())
    answer = {
        "start": before,
        "peak": peak(),
        "seconds": learnt,
        "recall": hit,
        "model": model.nbytes_ / 1e9,
    }
    print(json.dumps(answer))


def run(quick: bool) -> Section:
    n, n_sparse = (5000, 2000) if quick else (50_000, 200_000)
    OML(lift="kernel", random_state=0).fit(*_few())  # compile, so that only data is traced
    KNN().fit(*_few())
    rows = []
    for p, q in ((100, 14), (294, 5)):
        for model in (OML(random_state=0), KNN()):
            rows.append(_stored(model, n, p, q))
            tell(".")
    code = f"from benchmarks.bench_memory import sparse_stream; sparse_stream({n_sparse})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    sparse = json.loads(done.stdout)
    claims = [
        claim(
            f"{row['learner']}, p = {row['p']}, q = {row['q']}: memory over what must be kept",
            row["traced over needed"],
            1.25,
            limit="raw row in single precision, codes, packed labels",
            limit_value=row["needed, bytes"],
            limit_unit="bytes per example",
            distance=row["traced over needed"],
        )
        for row in rows
    ]
    entries = n_sparse * (ENTRIES * 8 + 8) / 1e9
    claims.append(
        claim(
            f"peak memory, {n_sparse:,} sparse rows of 2^18 features, {ENTRIES} entries each",
            sparse["peak"],
            2,
            unit="GB",
            limit="the rows themselves as CSR, single precision",
            limit_value=entries,
            limit_unit="GB",
            distance=sparse["peak"] / entries,
        )
    )
    return {
        "title": "Memory",
        "equal": f"{n:,} dense rows in blocks of 1,000; what the allocators hold afterwards, "
        "P, V and spare room included.",
        "differs": "The sparse stream runs in a process of its own, which draws each block as it "
        f"goes; {LABELS} labels.",
        "rows": rows,
        "tables": {"The sparse stream, sizes in GB": sparse},
        "claims": claims,
    }
