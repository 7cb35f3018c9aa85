"""This version beside the previous one, which is built into an environment of its own."""

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

from benchmarks import contender
from benchmarks.timing import Section, claim, installed, tell

ROOT = Path(__file__).resolve().parent.parent
PREVIOUS = "c695a08"  # 0.1.0
HOME = ROOT / ".cache" / f"previous-{PREVIOUS}"

# Job, what is compared, times the previous version that are asked for, and of what.
JOBS = {
    "text": ("text, 20,000 records from a file", 4.0),
    "one_at_a_time": ("one at a time, window 1,000", 3.0),
    "growing": ("dense, 50,000 examples", 2.0),
    "mediamill": ("mediamill", 3.0),
    "scene": ("scene", 3.0),
    "image": ("image", 3.0),
    "delicious": ("delicious, 3,000 examples", 5.0),
    "bibtex": ("bibtex", 1.0),
}
LONGEST = {  # job, stored, what, milliseconds asked for
    "longest_dense": ("20,000", "dense with a lift", 25),
    "longest_text": ("20,000", "text", 25),
    "longest_dense_100k": ("100,000", "dense with a lift", 100),
    "longest_text_100k": ("100,000", "text", 100),
}
DIVISIONS = 10


def previous() -> Path:
    """Return the interpreter of the previous version; build its environment where there is none."""
    python = HOME / "env" / "bin" / "python"
    if not (HOME / "built").exists():
        source = HOME / "source"
        source.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(
            ["git", "archive", PREVIOUS], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
        subprocess.run([sys.executable, "-m", "venv", str(HOME / "env")], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(source)], check=True)
        (HOME / "built").touch()
    return python


def _run(python: Path | str, job: str, size: float, **more: str) -> dict[str, Any]:
    """Let one version do one job in a process of its own, with one thread."""
    environment = {
        **os.environ,
        "TAGSTREAM_BENCH_SIZE": str(size),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        **more,
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as users have it
    if str(python) != sys.executable:
        environment.pop("PYTHONPATH", None)  # which might lead to this version
    script = str(Path(contender.__file__))
    done = subprocess.run(
        [str(python), script, job], env=environment, capture_output=True, text=True, check=False
    )
    tell(".")
    if done.returncode:
        raise RuntimeError(f"{job}: {done.stderr[-2000:]}")
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def _vowpal(n: int) -> float:
    """Return how many of the same records Vowpal Wabbit learns per second, parsing included."""
    import vowpalwabbit

    records = contender.made_texts(n)
    tags = {tag: j for j, tag in enumerate(sorted({t for r in records for t in r["y"]}))}
    lines = [json.dumps(record) for record in records]
    model = vowpalwabbit.Workspace(f"--multilabel_oaa {len(tags)} --quiet")
    start = time.process_time()
    for line in lines:
        record = json.loads(line)
        words = record["text"].replace("|", " ").replace(":", " ")
        model.learn(",".join(str(tags[t]) for t in record["y"]) + " |w " + words)
    return n / (time.process_time() - start)


def run(quick: bool) -> Section:
    size = 0.05 if quick else 1.0
    versions = {"previous": previous(), "this": Path(sys.executable)}
    divisions = {"TAGSTREAM_BENCH_DIVISIONS": "2" if quick else str(DIVISIONS)}
    rows: list[dict[str, Any]] = []
    claims = []
    speeds: dict[str, dict[str, float]] = {}
    for job, (what, target) in JOBS.items():
        for python in versions.values():
            _run(python, job, 0.05)  # compiles, and keeps what it compiled
        old, new = (_run(versions[name], job, size, **divisions) for name in ("previous", "this"))
        gain = np.subtract(new["micro-F1"], old["micro-F1"])
        error = float(gain.std(ddof=1) / len(gain) ** 0.5)
        speeds[job] = {"previous": old["per s"], "this": new["per s"]}
        rows.append(
            {
                "job": what,
                "previous, examples/s": old["per s"],
                "this, examples/s": new["per s"],
                "ratio": new["per s"] / old["per s"],
                "micro-F1, previous": float(np.mean(old["micro-F1"])),
                "micro-F1, this": float(np.mean(new["micro-F1"])),
                "difference": float(gain.mean()),
                "its standard error": error,
            }
        )
        claims.append(
            claim(
                f"{what}: learning, times the previous version",
                new["per s"] / old["per s"],
                target,
                at_least=True,
                limit="the head, the fast map and the copies learn at every example, too",
                limit_value=1e6 / new["per s"],
                limit_unit="µs per example",
            )
        )
        claims.append(
            claim(
                f"{what}: micro-F1 above the previous version's, in standard errors",
                float(gain.mean()) / max(error, 1e-9),
                -2,
                at_least=True,
                unit="",
                limit="chance, over divisions",
                limit_value=error,
                limit_unit="of micro-F1",
            )
        )
    for job, (stored, what, target) in LONGEST.items():
        times = {name: _run(python, job, size) for name, python in versions.items()}
        claims.append(
            claim(
                f"longest learn_one at {stored} stored, {what} "
                f"(previous: {times['previous']['longest ms']:.0f} ms)",
                times["this"]["longest ms"],
                target,
                unit="ms",
                limit="the median of a call",
                limit_value=times["this"]["median ms"],
                limit_unit="ms",
            )
        )
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        first = {
            name: _run(python, "first_call", 1, NUMBA_CACHE_DIR=folder)["seconds"]
            for (name, python), folder in zip(versions.items(), (one, other), strict=True)
        }
    claims.append(
        claim(
            f"first call after installation (previous: {first['previous']:.1f} s)",
            first["this"],
            5,
            unit="s",
            limit="numba types, lowers and optimises about 55 functions",
        )
    )
    lines = {name: _run(python, "one_line", 1)["seconds"] for name, python in versions.items()}
    claims.append(
        claim(
            f"tagstream predict of one line, times the previous version's "
            f"{lines['previous']:.2f} s",
            lines["this"] / lines["previous"],
            0.5,
            limit="imports of numpy, scipy.sparse, scikit-learn and numba",
            limit_value=lines["this"],
            limit_unit="s, all of it",
        )
    )
    flat = _run(versions["this"], "flat", size)
    claims.append(
        claim(
            "window 1,000, a million examples: cost of an example, a doubling over the one before",
            flat["worst"],
            1.5,
            limit="first and last doubling",
            limit_value=flat["us"],
            limit_unit=f"µs per example at the end, {flat['first us']:.0f} at the start",
        )
    )
    here, missing = installed(vw="vowpalwabbit")
    if here:
        vowpal = _vowpal(contender.sized(20_000) if not quick else 1000)
        claims.append(
            claim(
                "text: time of this version over Vowpal Wabbit's",
                vowpal / speeds["text"]["this"],
                4,
                limit="one pass of a linear model",
                limit_value=1e6 / vowpal,
                limit_unit="µs per record",
            )
        )
    return {
        "title": "This version and the previous one",
        "equal": "The same lines of Python, each job in a process of its own with one thread, one "
        "version after the other. Streams are learnt in blocks of 1,000 "
        "but for “one at a time”, where each item is predicted first. Accuracy is that of a tenth "
        "that is not learnt, or of each item before it is learnt; speed and accuracy are those of "
        f"{DIVISIONS} divisions, or made streams, the same for both.",
        "differs": f"The previous version ({PREVIOUS}) has no head, no fast map and no copies. The "
        "texts are made: the first half of a real comment and the second half of one with the "
        "same tags.",
        "rows": rows,
        "claims": claims,
        "skipped": missing,
    }
