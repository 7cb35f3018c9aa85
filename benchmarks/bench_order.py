"""What a second set of weights costs: learning time beside version 0.2, which had one.

Both versions run the same lines with the same interpreter and one thread, in processes of their
own that take turns.  A time is the processor time of ``partial_fit`` on all examples, after another
model has learnt so that everything is compiled.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.timing import Section, claim, tell

ROOT = Path(__file__).resolve().parent.parent
PREVIOUS = "69c8570"  # 0.2.0
HOME = ROOT / ".cache" / f"source-{PREVIOUS}"
TURNS = 2
SIZES = {800: 1.5, 4000: 1.3, 20_000: 1.15}  # examples, and the ratio that is asked for
DATA = ("dense", "lifted", "text")

JOB = """
import sys, time
import numpy as np
import tagstream as ts
kind, n = sys.argv[1], int(sys.argv[2])
if kind == "text":
    from tagstream.text import Text
    words = np.random.default_rng(0).zipf(1.3, (n, 12)) % 5000
    topic = np.random.default_rng(1).integers(0, 20, n)
    texts = [" ".join(f"w{w}" for w in row) + f" t{t} u{t % 7}" for row, t in zip(words, topic)]
    X = Text().rows(texts)
    Y = np.zeros((n, 20), np.uint8)
    Y[np.arange(n), topic] = 1
else:
    stream = ts.make_stream(n, p=100, q=14, seed=1)
    X, Y = stream.X.astype(np.float32), stream.Y
make = lambda: ts.OML(lift="kernel" if kind == "lifted" else None, random_state=0)
make().partial_fit(X[:1200], Y[:1200]).predict(X[:10])
start = time.process_time()
make().partial_fit(X, Y)
print(time.process_time() - start)
"""


def previous() -> Path:
    """Return where the source of the previous version is; unpack it where it is not."""
    if not (HOME / "src").exists():
        HOME.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(
            ["git", "archive", PREVIOUS, "src"], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(HOME)], input=archive.stdout, check=True)
    return HOME / "src"


def _seconds(source: Path, kind: str, n: int) -> float:
    one = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(source)}
    run = subprocess.run(
        [sys.executable, "-c", JOB, kind, str(n)],
        capture_output=True, text=True, check=True, env={**os.environ, **one},
    )  # fmt: skip
    tell(".")
    return float(run.stdout.split()[-1])


def run(quick: bool) -> Section:
    sources = {"new": ROOT / "src", "old": previous()}
    rows, claims = [], []
    for kind in DATA:
        for n, target in SIZES.items():
            if quick and n > 1000:
                continue
            times: dict[str, list[float]] = {name: [] for name in sources}
            for _ in range(1 if quick else TURNS):
                for name, source in sources.items():
                    times[name].append(_seconds(source, kind, n))
            new, old = (min(times[name]) for name in sources)
            spread = float(np.ptp([a / b for a, b in zip(times["new"], times["old"], strict=True)]))
            rows.append(
                {"data": kind, "examples": n, "0.2 s": old, "now s": new, "ratio": new / old,
                 "spread of the ratio": spread}
            )  # fmt: skip
            claims.append(
                claim(f"learning {n:,} examples, {kind}, over 0.2", new / old, target,
                      limit="the time of 0.2", limit_value=old, limit_unit="s",
                      distance=new / old)
            )  # fmt: skip
    return {
        "title": "The price of two sets of weights",
        "equal": "The same examples, lines, interpreter and one thread; processes take turns, the "
        "better of two.",
        "differs": "0.2 learns one set of weights, and its answers for any item depend on the "
        "order of the stream.",
        "rows": rows,
        "claims": claims,
    }
