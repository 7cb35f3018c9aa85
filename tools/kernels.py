"""Compare what the learners have learnt under several kernels of OpenBLAS.

    python tools/kernels.py Haswell Nehalem SkylakeX

Each kernel runs in a process of its own, on the same made-up stream.  Printed are, for each learner
and against the first kernel: whether the state is the same to the last bit, the largest difference
of a score, and how many predicted labels differ.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import scipy.sparse as sp

import tagstream as ts

N_TRAIN = 420
LEARNERS: dict[str, tuple[Any, bool]] = {  # and whether rows are sparse
    "OML": (ts.OML(random_state=0), False),
    "OML, sparse rows": (ts.OML(random_state=0), True),
    'OML, step="convex"': (ts.OML(step="convex", random_state=0), False),
    "PublishedOML": (ts.PublishedOML(random_state=0), False),
    "KNN": (ts.KNN(), False),
    "KNN, with a head": (ts.KNN(head=True), False),
    "OSMLELM": (ts.OSMLELM(random_state=0), False),
    "OLANSGD": (ts.OLANSGD(), False),
}


def digest(value: Any) -> str:
    """Return the SHA-256 of a state of plain values and arrays."""
    if isinstance(value, dict):
        text = "".join(f"{key}={digest(value[key])};" for key in sorted(value, key=str))
    elif isinstance(value, (list, tuple)):
        text = ",".join(map(digest, value))
    else:
        text = value.tobytes().hex() if isinstance(value, np.ndarray) else repr(value)
    return hashlib.sha256(text.encode()).hexdigest()


def learn() -> dict[str, Any]:
    """Return, for each learner, the digest of its state, its scores and its predictions."""
    stream = ts.make_stream(500, p=24, q=8, seed=3)
    rare = np.random.default_rng(0).random(stream.X.shape) < 0.2
    found = {}
    for name, (learner, sparse) in LEARNERS.items():
        X = sp.csr_matrix(np.abs(stream.X) * rare) if sparse else stream.X
        model = learner.partial_fit(X[:N_TRAIN], stream.Y[:N_TRAIN])
        scores, chosen = model.predict_proba(X[N_TRAIN:]), model.predict(X[N_TRAIN:])
        found[name] = [digest(model.to_state()), scores.tolist(), chosen.tolist()]
    return found


def run(kernel: str) -> dict[str, Any]:
    """Return what :func:`learn` finds in a process with that kernel."""
    env = {**os.environ, "OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--child"]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(kernels: list[str]) -> None:
    """Print the comparison."""
    first, *others = [(kernel, run(kernel)) for kernel in kernels]
    for name in LEARNERS:
        state, scores, chosen = first[1][name]
        for kernel, found in others:
            same = "same bits" if found[name][0] == state else "other bits"
            far = np.abs(np.subtract(found[name][1], scores)).max()
            wrong = int((np.array(found[name][2]) != chosen).sum())
            print(f"{name:20} {kernel:9} {same:10} {far:.1e} {wrong}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        json.dump(learn(), sys.stdout)
    else:
        main(sys.argv[1:] or ["Haswell", "Nehalem"])
