"""Golden states: digests of what learners are after fixed streams, to hold while code is moved.

A change that is meant to keep every bit must keep these digests.  They depend on the processor and
on the versions of the numeric libraries, so the file says what it was made with, and
``tests/test_golden.py`` compares only where that is the same.

    python tests/golden.py          # compare with tests/golden.json, part by part
    python tests/golden.py --write  # after a change that is meant to change the bits

To compare two versions on another processor, write the file with the older one and compare with the
newer one.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import scipy
import scipy.sparse as sp
import threadpoolctl

import tagstream as ts

FILE = Path(__file__).with_name("golden.json")
SIZES = (60, 500, 2000)

OML: dict[str, dict[str, Any]] = {
    "default": {},
    "votes": {"head": False, "decide": 0.5},
    "window": {"window": 250},
    "late": {"lag": 5},
    "late window": {"lag": 5, "window": 300, "n_components": 2},
    "convex": {"step": "convex"},
    "convex narrow": {"step": "convex", "n_components": 2},
    "macro": {"decide": "macro"},
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "OSMLELM": ("OSMLELM", {"n_hidden": 12, "random_state": 0}),
    "OSMLELM stable": (
        "OSMLELM",
        {"n_hidden": 12, "ridge": "auto", "solver": "qr", "random_state": 0},
    ),
    "OLANSGD": ("OLANSGD", {"first_block": 24}),
    "OLANSGD threshold": (
        "OLANSGD",
        {"alpha": 0.01, "rule": "threshold", "first_block": 1, "scale": None},
    ),
    "KNN": ("KNN", {}),
    "KNN map window": ("KNN", {"vote": "map", "window": 250}),
    "KNN head": ("KNN", {"head": True, "decide": "balanced"}),
    "KNN head late": ("KNN", {"head": True, "decide": "f1", "lag": 4, "window": 300}),
    "PublishedOML": ("PublishedOML", {"first_block": 24, "random_state": 0}),
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"OML {key}": ("OML", {**params, "random_state": 0}) for key, params in OML.items()},
    **OTHERS,
}


def stream(n: int, q: int, sparse: bool, seed: int) -> tuple[Any, Any]:
    """Return rows and labels; some rows come twice, and every label occurs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 9))
    X[7::11] = X[3 : 3 + len(X[7::11])]
    noisy = X @ rng.normal(size=(9, q)) + 0.5 * rng.normal(size=(n, q))
    Y = (noisy > np.quantile(noisy, 1 - min(0.3, 4 / q), axis=0)).astype(np.uint8)
    if sparse:
        X = np.where(X > 0.4, np.round(X, 2), 0.0)
        return sp.csr_matrix(X), Y
    return X, Y


def learn(model: Any, X: Any, Y: Any) -> None:
    """Learn in blocks and one by one; every fifth block has labels that are not known."""
    n, start = len(Y), 0
    for i, size in enumerate(_sizes(n)):
        part, labels = X[start : start + size], Y[start : start + size]
        if i % 5 == 4:
            labels = labels.astype(float)
            labels[:: max(1, size // 3), 0] = np.nan
        if size == 1 and not sp.issparse(X):
            model.learn_one(part[0], labels[0])
        else:
            model.partial_fit(part, labels)
        start += size


def _sizes(n: int) -> Iterator[int]:
    sizes, left, i = (40, 1, 1, 17, 64, 1, 128), n, 0
    while left:
        size = min(left, sizes[i % len(sizes)])
        yield size
        left -= size
        i += 1


def change(model: Any, Y: Any) -> None:
    """Correct and forget a few stored items, where a learner keeps them."""
    if hasattr(model, "forget"):
        numbers = list(model.ids_[-20:])
        for number, labels in zip(numbers[:3], Y[:3], strict=True):
            model.relabel(number, labels)
        for number in numbers[5:8]:
            model.forget(number)


def states() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the digests of the parts of each state, by the name of the case."""
    for form in ("dense", "sparse"):
        for key, (name, params) in VARIANTS.items():
            for n in SIZES:
                X, Y = stream(n, 5, form == "sparse", n)
                model = getattr(ts, name)(**params)
                learn(model, X, Y)
                change(model, Y)
                yield f"{key}, {form}, {n}", parts(model.to_state())
        for n in SIZES:
            X, Y = stream(n, 600, form == "sparse", n)
            model = ts.OML(random_state=0)
            learn(model, X, Y)
            yield f"OML 600 labels, {form}, {n}", parts(model.to_state())
    for n in SIZES:
        tagger = ts.Tagger(ts.OML(random_state=0))
        tagger.learn(texts(n))
        tagger.refit()
        yield f"texts, {n}", parts(tagger.learner.to_state())


def texts(n: int) -> list[dict[str, Any]]:
    """Return records of made-up words, the first of which say the tag."""
    rng = np.random.default_rng(n)
    words = [f"w{k}" for k in range(400)]
    return [
        {
            "id": f"t{i}",
            "text": " ".join([f"tag{k}", *rng.choice(words, 8)]),
            "y": [f"tag{k}"] + ([f"tag{k + 1}"] if k % 3 == 0 else []),
        }
        for i, k in enumerate(rng.integers(0, 12, n).tolist())
    ]


def parts(state: dict[str, Any], depth: int = 3) -> dict[str, str]:
    """Return a digest for each part of a state, down to three levels."""
    found: dict[str, str] = {}
    for key, value in state.items():
        if isinstance(value, dict) and depth > 1:
            found.update({f"{key}.{k}": v for k, v in parts(value, depth - 1).items()})
        else:
            found[key] = _digest(value)
    return found


def _digest(value: Any) -> str:
    made = hashlib.sha256()
    for piece in _bytes(value):
        made.update(piece)
    return made.hexdigest()[:8]


def _bytes(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield repr(key).encode()
            yield from _bytes(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _bytes(inner)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode()
        yield repr(value.tolist()).encode() if value.dtype == object else value.tobytes()
    else:
        yield repr(value).encode()


def made_with() -> dict[str, str]:
    """Return what the bits depend on besides this library."""
    blas = {str(i.get("architecture")) for i in threadpoolctl.threadpool_info()}
    return {
        "processor": llvmlite.binding.get_host_cpu_name(),
        "kernels": " ".join(sorted(blas)),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
    }


def differences(golden: dict[str, dict[str, str]]) -> list[str]:
    """Return the parts that differ from the golden ones."""
    found = dict(states())
    names = sorted({*found, *golden})
    return [
        f"{name}: {part}"
        for name in names
        for part in sorted({*found.get(name, {}), *golden.get(name, {})})
        if found.get(name, {}).get(part) != golden.get(name, {}).get(part)
    ]


def main() -> int:
    if "--write" in sys.argv:
        made = {"made_with": made_with(), "states": dict(states())}
        FILE.write_text(json.dumps(made, indent=0, sort_keys=True) + "\n")
        return 0
    golden = json.loads(FILE.read_text())
    if golden["made_with"] != made_with():
        print(f"made with {golden['made_with']}, here is {made_with()}", file=sys.stderr)
    different = differences(golden["states"])
    print("\n".join(different) or "all golden states are the same")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
