"""Many labels: time per example, peak memory and accuracy at 159 to 30,000 labels.

Each stream runs in a process of its own, so that the peak is its own.  Real streams need their
files (``TAGSTREAM_DATA``); the made ones have topics, each with words and labels of its own, most
of them rare.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.timing import Section, best_of, claim, installed, peak, tell
from tagstream import OML, load, load_model, save_model
from tagstream.projection.reduction import RANK

TOPICS, WORDS = 200, 60
BLOCK = 1000  # examples that are learnt at a time
# Labels, features and examples of the made streams.
MADE = {"5,000 labels": (5000, 2000, 5000), "30,000 labels": (30_000, 5000, 5000)}
REAL = ("bibtex", "delicious")


def made_stream(n: int, p: int, q: int, seed: int = 0) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Draw rows of words and labels, both sparse, of which a topic has some to itself."""
    rng = np.random.default_rng(seed)
    words = rng.integers(p, size=(TOPICS, WORDS))
    labels = rng.integers(q, size=(TOPICS, max(5, 3 * q // TOPICS)))
    topic = rng.integers(TOPICS, size=n)
    own = words[topic[:, None], rng.integers(WORDS, size=(n, 15))]
    rank = np.minimum(rng.pareto(0.7, (n, 4)).astype(int), labels.shape[1] - 1)
    X = _indicator(np.hstack([own, rng.integers(p, size=(n, 10))]), p)
    return X.astype(np.float32), _indicator(labels[topic[:, None], rank], q)


def _indicator(columns: np.ndarray, width: int) -> sp.csr_matrix:
    n, k = columns.shape
    ones = np.ones(columns.size, np.uint8)
    rows = sp.csr_matrix((ones, columns.ravel(), np.arange(0, n * k + 1, k)), (n, width))
    rows.sum_duplicates()
    rows.data[:] = 1
    return rows


def stream(name: str, quick: bool) -> tuple[Any, sp.csr_matrix]:
    """Return the rows and labels of a stream by its name, in an order of its own."""
    if name in MADE:
        q, p, n = MADE[name]
        return made_stream(n // 5 if quick else n, p, q)
    data = load(name)
    n = 1500 if quick else data.X.shape[0]
    order = np.random.default_rng(0).permutation(data.X.shape[0])[:n]
    return data.X[order], sp.csr_matrix(data.Y)[order]


def precision(Y: sp.csr_matrix, scores: np.ndarray, k: int) -> float:
    """Return the share of the k highest scores that are right."""
    top = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    return float(np.mean([np.isin(t, y.indices).mean() for t, y in zip(top, Y, strict=True)]))


def _judge(Y: sp.csr_matrix, scores: np.ndarray, said: np.ndarray) -> dict[str, float]:
    truth = Y.toarray() > 0
    f1 = 2 * (said & truth).sum() / max(said.sum() + truth.sum(), 1)
    return {"micro-F1": float(f1)} | {f"P@{k}": precision(Y, scores, k) for k in (1, 3, 5)}


def oml(name: str, quick: bool) -> dict[str, Any]:
    """Learn nine tenths in blocks, predict the rest, save, load, predict again."""
    X, Y = stream(name, quick)
    n = X.shape[0] * 9 // 10
    OML(random_state=0).partial_fit(X[:60], Y[:60]).predict(X[:2])  # compile
    model, start = OML(random_state=0), time.process_time()
    for i in range(0, n, BLOCK):
        model.partial_fit(X[i : min(i + BLOCK, n)], Y[i : min(i + BLOCK, n)])
    learning = time.process_time() - start
    start = time.process_time()
    scores = model.predict_proba(X[n:])
    predicting = time.process_time() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tgs"
        save_model(model, path)
        again, size = load_model(path), path.stat().st_size
    if (again.predict_proba(X[n : n + 20]) != scores[:20]).any():
        raise RuntimeError("a model that was saved and loaded must predict the same")
    return {
        "learn, ms": 1e3 * learning / n,
        "predict, ms": 1e3 * predicting / (X.shape[0] - n),
        "peak, GB": peak(),
        "file, MB": size / 1e6,
        **_judge(Y[n:], scores, model.labels_of(scores) > 0),
    }


def napkin(name: str, quick: bool) -> dict[str, Any]:
    """Train napkinXC's probabilistic label tree on the same nine tenths."""
    from napkinxc.models import PLT

    X, Y = stream(name, quick)
    n, q = X.shape[0] * 9 // 10, Y.shape[1]
    sets = [row.indices.tolist() for row in Y[:n]]
    with tempfile.TemporaryDirectory() as folder:
        model = PLT(folder, threads=1, seed=0)
        start = time.process_time()
        model.fit(sp.csr_matrix(X[:n]), sets)
        learning = time.process_time() - start
        start = time.process_time()
        found = model.predict_proba(sp.csr_matrix(X[n:]), top_k=min(q, 100))
        predicting = time.process_time() - start
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    scores = np.zeros((X.shape[0] - n, q))
    for row, pairs in zip(scores, found, strict=True):
        for label, score in pairs:
            row[int(label)] = score
    return {
        "learn, ms": 1e3 * learning / n,
        "predict, ms": 1e3 * predicting / (X.shape[0] - n),
        "peak, GB": peak(),
        "file, MB": size / 1e6,
        **_judge(Y[n:], scores, scores >= 0.5),
    }


def _apart(job: str, name: str, quick: bool) -> dict[str, Any]:
    """Do a job in a process of its own."""
    code = (
        "import json; from benchmarks import bench_labels as b; "
        f"print(json.dumps(b.{job}({name!r}, {quick})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    tell(".")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _product(q: int) -> float:
    """Return the ms per item of the bare product that makes scores of q labels of directions."""
    B, C = np.ones((RANK, q), np.float32), np.ones((64, RANK), np.float32)
    return best_of(lambda: C @ B) / 64 * 1e3


def run(quick: bool) -> Section:
    there, missing = installed(napkinXC="napkinxc")
    home = os.environ.get("TAGSTREAM_DATA")
    real = [name for name in REAL if home is not None and (Path(home) / name).exists()]
    rows: list[dict[str, Any]] = []
    for name in (*real, *MADE):
        contenders = {"OML": "oml"} | ({"napkinXC PLT": "napkin"} if there else {})
        for contender, job in contenders.items():
            rows.append({"stream": name, "learner": contender, **_apart(job, name, quick)})
    of = {row["stream"]: row for row in rows if row["learner"] == "OML"}
    claims = []
    for name, learn, room in (("5,000 labels", 10, 2), ("30,000 labels", None, 4)):
        q = MADE[name][0]
        if learn is not None:
            floor = _product(q)
            claims.append(
                claim(
                    f"{name}: learning an example, refits included", of[name]["learn, ms"], learn,
                    unit="ms", limit=f"product of {RANK} directions with all labels",
                    limit_value=floor, limit_unit="ms",
                    distance=of[name]["learn, ms"] / floor,
                )
            )  # fmt: skip
        kept = 4 * RANK * q / 1e9
        claims.append(
            claim(
                f"{name}: peak memory", of[name]["peak, GB"], room, unit="GB",
                limit="directions of the labels, single precision", limit_value=kept,
                limit_unit="GB", distance=of[name]["peak, GB"] / kept,
            )
        )  # fmt: skip
    return {
        "title": "Many labels",
        "equal": "The same rows in the same order, nine tenths of them to learn and the rest to "
        "predict; one thread, a process for each. bibtex has 159 labels, delicious 983; the made "
        "streams 2,000 and 5,000 features, 5,000 rows.",
        "differs": "OML learns in one pass, in blocks of 1,000, and could have predicted after "
        "each; napkinXC goes over all rows again and again, and suggests what is at least as "
        "likely as not. Peaks include Python, the data, and all scores of the last tenth.",
        "skipped": missing,
        "rows": rows,
        "claims": claims,
    }
