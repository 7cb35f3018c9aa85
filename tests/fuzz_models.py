"""A fuzzer of model files that knows their structure.

A case takes a sound file, changes its header or its arrays here and there, and writes it with
correct checksums, as someone would who wants to do harm.  Then the file must either be refused with
:class:`DataError`, or give a model with which everything works: predicting, learning, explaining,
correcting, saving and loading again, with scores between 0 and 1.

Case ``n`` is the same whenever it is run::

    python tests/fuzz_models.py 2000              # cases 0 to 1999, in a child with limits
    python tests/fuzz_models.py 2000 --first 5000
    python tests/fuzz_models.py --case 1234       # one case in this process, with its traceback
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

HERE = Path(__file__).parent
PREFIX = struct.Struct("<8sII32s")
MEMORY = 4 << 30  # bytes of address space; the libraries alone take more than one
CPU_START, CPU_EACH = 300, 5  # seconds of a child, and of each of its cases: generous
WIDEST = 100_000  # dense features for which rows are made
LARGEST = 1 << 22  # entries of an array that the fuzzer itself makes

NUMBERS = [
    0, 1, -1, 2, 3, 7, 8, 9, 63, 64, 100, 255, 256, 1000, 10**6, 2**24, 2**31 - 1, 2**31, 2**32,
    2**48, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, 10**400, -(2**63), 0.0, -0.0, 0.5, 1e-3, 1.5,
    -0.5, 1e-12, 5e-324, 1e-300, 1e15, 1e30, 1e100, 1e300, 1.7e308, math.inf, -math.inf, math.nan,
]  # fmt: skip
VALUES: list[Any] = [
    *NUMBERS, None, True, False, "", "a", "map", "majority", "auto", "kernel", "fourier", "unit",
    "standard", "exact", "convex", "top3", "f1", "\ud800", "ü" * 500, [], {}, [1], [[]],
    [None] * 70, {"a": 1}, {"$tuple": [1, 2]}, {"$tuple": []}, {"$array": 0}, {"$array": -1},
    {"$list": {}},
]  # fmt: skip
DTYPES = ["|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"]
CLASSES = ["OML", "KNN", "OSMLELM", "OLANSGD", "PublishedOML", "oml", "Evil"]


# ---------------------------------------------------------------------- files
def take_apart(data: bytes) -> tuple[int, dict[str, Any], list[np.ndarray]]:
    """Return the format, the header and the arrays of a model file."""
    _, version, length, _ = PREFIX.unpack(data[: PREFIX.size])
    header = json.loads(data[PREFIX.size : PREFIX.size + length])
    body, arrays = data[PREFIX.size + length :], []
    for dtype, order, shape in header["arrays"]:
        n = math.prod(shape) * np.dtype(dtype).itemsize
        arrays.append(np.frombuffer(body[:n], dtype).reshape(shape, order=order).copy(order))
        body = body[n:]
    return version, header, arrays


def put_together(version: int, header: dict[str, Any], arrays: list[np.ndarray]) -> bytes:
    """Return a file with correct lengths and checksums, whatever it says."""
    parts = [np.asfortranarray(a) if order(a) == "F" else a for a in arrays]
    body = b"".join(a.tobytes(order(a)) for a in parts)
    if isinstance(header.get("arrays"), list):
        header["arrays"] = [[a.dtype.str, order(a), list(a.shape)] for a in arrays]
    header["body_bytes"] = len(body)
    header["body_sha256"] = hashlib.sha256(body).hexdigest()
    text = json.dumps(header).encode()
    return PREFIX.pack(b"tagstrm\n", version, len(text), hashlib.sha256(text).digest()) + (
        text + body
    )


def order(array: np.ndarray) -> str:
    return "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"


# ---------------------------------------------------------------------- changes
def places(tree: Any) -> list[tuple[Any, Any]]:
    """Return every place of a tree, as a holder and a key."""
    found: list[tuple[Any, Any]] = []
    todo = [tree]
    while todo:
        holder = todo.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], (dict, list)):
                todo.append(holder[key])
    return found


def numeric(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def change_header(rng: random.Random, header: dict[str, Any], arrays: list[np.ndarray]) -> None:
    """Change one value of the header, most often one of the state."""
    every = [(holder, key) for holder, key in places(header) if key not in ("arrays", "$array")]
    kind = rng.random()
    numbers = [(holder, key) for holder, key in every if numeric(holder[key])]
    holder, key = rng.choice(numbers if kind < 0.4 else every)
    old = holder[key]
    if numeric(old) and kind < 0.4:
        near = [old + 1, old - 1, 2 * old, -old, old * 10**9]
        near += [old + 0.5, old / 3] if abs(old) < 2**1000 else []
        holder[key] = rng.choice(NUMBERS if rng.random() < 0.5 else near)
    elif kind < 0.7:
        holder[key] = rng.choice(VALUES)
    elif kind < 0.8:
        other, place = rng.choice(every)
        holder[key], other[place] = other[place], old
    elif kind < 0.85 and isinstance(holder, dict):
        del holder[key]
    elif kind < 0.9:
        if isinstance(old, list):
            old.extend(rng.choice([old * 2, [rng.choice(VALUES)], old[:1]]))
        elif isinstance(old, dict):
            old[rng.choice(["x", "$array", "later", key])] = rng.choice(VALUES)
    elif kind < 0.95:
        header["class"] = rng.choice(CLASSES)
    else:
        state = header.get("state")
        if isinstance(state, dict):
            flag = rng.choice(["sparse", "single"])
            state[flag] = not state.get(flag)


def odd_values(rng: random.Random, dtype: np.dtype[Any]) -> Any:
    """Return a value that is odd for arrays of this dtype."""
    if dtype.kind == "b":
        return rng.random() < 0.5
    if dtype.kind == "f":
        most = float(np.finfo(dtype).max)
        return rng.choice(
            [0, -0.0, 1, -1, 1e-3, 1e6, 1e12, -1e12, 1e15, 1.1e15, -1e15, 1e30, -1e30, 1e38, 1e59,
             1e99, -1e99, 1e101, 1e199, 1e-30, 1e-300, 5e-324, most, -most, 1.7e308, math.inf,
             math.nan, rng.gauss(0, 1), rng.gauss(0, 1e9)]
        )  # fmt: skip
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    near = [0, 1, 2, 3, 7, 8, 10, 30, 100, 1000, 2**20, 2**31, 2**48, 2**62, -1, -2, -100]
    return max(low, min(high, rng.choice([low, high, high - 1, *near])))


def change_values(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """Return the array with some or all of its entries changed."""
    out = array.copy("K")
    if not out.size:
        return out
    flat = out.reshape(-1)  # a view, or a copy of an array in the other order
    kind = rng.random()
    with np.errstate(all="ignore"):
        if kind < 0.5:
            for _ in range(rng.choice([1, 1, 1, 3, 20])):
                flat[rng.randrange(flat.size)] = odd_values(rng, out.dtype)
        elif kind < 0.65:
            flat[:] = odd_values(rng, out.dtype)
        elif kind < 0.8 and out.dtype.kind == "f":
            flat *= flat.dtype.type(rng.choice([0, -1, 1e-30, 1e-6, 1e3, 1e6, 1e12, 1e14, 1e30]))
        elif kind < 0.9:
            flat[:] = flat[::-1].copy()
        elif out.dtype.kind in "iu":
            flat += out.dtype.type(rng.choice([1, 2, 7, 100]))
        else:
            flat[rng.randrange(flat.size) :] = flat[0]
    return flat.reshape(out.shape)


def change_shape(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """Return the array with another shape."""
    kind = rng.randrange(9)
    if kind == 0:
        return array.T
    if kind == 1:
        return array.reshape(-1)
    if kind == 2:
        return array[None]
    if kind == 3 and array.ndim:
        return array[: rng.randrange(len(array) + 1)]
    if kind == 4 and array.ndim:
        return np.concatenate([array, array[: rng.randrange(len(array) + 1)]])
    if kind == 5 and array.ndim > 1:
        return array[:, : rng.randrange(array.shape[1] + 1)]
    if kind == 6 and array.ndim > 1:
        return np.concatenate([array, array[:, :1]], axis=1)
    if kind == 7:
        shape = [rng.choice([1, 2**20, 2**22, 2**40]) for _ in array.shape or (1,)]
        shape[rng.randrange(len(shape))] = 0
        with contextlib.suppress(ValueError):  # too large even for nothing
            return np.empty(shape, array.dtype)
    shape = tuple(rng.choice([n, n + 1, 2 * n]) for n in array.shape)
    return array if math.prod(shape) > LARGEST else np.zeros(shape, array.dtype)


def change_array(rng: random.Random, header: dict[str, Any], arrays: list[np.ndarray]) -> None:
    """Change one array, or two of them for one another."""
    if not arrays:
        return
    i, j = rng.randrange(len(arrays)), rng.randrange(len(arrays))
    kind = rng.random()
    if kind < 0.7:
        arrays[i] = change_values(rng, arrays[i])
    elif kind < 0.82:
        arrays[i] = change_shape(rng, arrays[i])
    elif kind < 0.88:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arrays[i] = arrays[i].astype(rng.choice(DTYPES))
    elif kind < 0.94:
        arrays[i], arrays[j] = arrays[j], arrays[i]
    else:
        for holder, key in rng.sample(places(header), k=len(places(header))):
            if key == "$array":
                holder[key] = j
                break


def make_case(number: int, seeds: list[Path], target: Path) -> str:
    """Write case ``number`` and return which file it came from."""
    rng = random.Random(number)
    path = seeds[number % len(seeds)]
    version, header, arrays = take_apart(path.read_bytes())
    for _ in range(rng.choice([1, 1, 1, 1, 2, 3, 5])):
        rng.choice([change_header, change_array, change_array])(rng, header, arrays)
    if rng.random() < 0.02:
        version = rng.choice([0, 1, 2, 3])
    target.write_bytes(put_together(version, header, arrays))
    return path.stem


def seed_files() -> list[Path]:
    """Return the sound files that cases are made of."""
    return sorted([*(HERE / "format1").glob("*.tgs"), *(HERE / "format2").glob("*.tgs")])


# ---------------------------------------------------------------------- what must work
def rows_for(model: Any, n: int, rng: np.random.Generator) -> Any:
    p = model.n_features_in_
    if not model._sparse:
        return rng.normal(size=(n, p))
    k = min(p, 6)
    columns = np.stack([np.sort(rng.choice(min(p, 5000), k, replace=False)) for _ in range(n)])
    indptr = np.arange(n + 1) * k
    return sp.csr_matrix((rng.normal(size=n * k), columns.ravel(), indptr), shape=(n, p))


def check_scores(model: Any, X: Any, what: str) -> None:
    scores = model.predict_proba(X)
    assert scores.shape == (X.shape[0], len(model.classes_)), f"{what}: shape {scores.shape}"
    assert np.isfinite(scores).all(), f"{what}: scores that are not finite"
    assert scores.size == 0 or 0 <= scores.min() <= scores.max() <= 1, f"{what}: beyond 0 and 1"
    model.predict(X)


def exercise(path: Path, again: Path) -> str:
    """Load a file and do everything with the model; return "refused" or "sound"."""
    from tagstream import Tagger
    from tagstream.checks import DataError
    from tagstream.files import persist

    with contextlib.suppress(DataError):
        persist.inspect(path)
    with contextlib.suppress(DataError):
        tagger = Tagger.open(path)
        if tagger.featurizer.name == "text":
            told = tagger.suggest({"text": "swimming in the city"})
            assert all(0 <= score <= 1 for score in told.scores.values()), "suggested beyond 0 to 1"
            tagger.explain({"text": "swimming in the city"})
    try:
        model, extra = persist.load_with_extra(path)
    except DataError as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert "\n" not in message, "a message of several lines"
        assert len(message) < 600 + len(str(path)), "a long message"
        return "refused"
    if not model._sparse and model.n_features_in_ > WIDEST:
        return "sound"
    rng = np.random.default_rng(0)
    X = rows_for(model, 23, rng)
    check_scores(model, X[:3], "loaded")
    check_explanation(model, X[:2])
    names = model.classes_.tolist()
    if model._single:
        if model.classes_.dtype.kind not in "biuU":  # no scikit-learn would take it
            return "sound"
        Y: Any = np.resize(model.classes_, 20)
    else:
        Y = [{name for name in names[:50] if rng.random() < 0.3} for _ in range(20)]
        Y[7] |= {"a label that is new"}
        Y[9] = None
    model.partial_fit(X[3:], Y, ids=[("new", i) for i in range(20)])
    check_scores(model, X[:3], "learnt")
    if hasattr(model, "relabel"):
        for i in (3, 11, 19):
            if model.has_item(("new", i)) and not model._single:
                model.relabel(("new", i), {"a label that is new"})
        if model.has_item(("new", 18)):
            model.forget(("new", 18))
        model.kneighbors(X[:2])
        check_scores(model, X[:3], "corrected")
        check_explanation(model, X[:2])
    check_scores(model.view(), X[:1], "viewed")
    try:
        persist.save(model, again, extra=extra)
    except ValueError as error:
        # A number at the very edge of what a file may say has gone beyond it; that is told.
        if "the model could not be loaded again: " not in str(error):
            raise
        return "sound"
    check_scores(persist.load(again), X[:3], "saved and loaded")
    return "sound"


def check_explanation(model: Any, X: Any) -> None:
    if hasattr(model, "explain"):
        for told in model.explain(X):
            assert all(0 <= score <= 1 for score in told.scores.values()), "explained beyond 0 to 1"
            parts = [part for of_label in told.parts.values() for part in of_label.values()]
            assert np.isfinite(parts).all(), "parts that are not finite"


# ---------------------------------------------------------------------- runs
def limit(n_cases: int) -> None:
    """Bound the memory and the processor time of this process, where that can be done."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    seconds = CPU_START + CPU_EACH * n_cases
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def run_child(first: int, n: int) -> None:
    """Run cases in this process; say which one is under way, and what became of it."""
    warnings.simplefilter("ignore")
    limit(n)
    seeds = seed_files()
    with tempfile.TemporaryDirectory() as folder:
        path, again = Path(folder, "case.tgs"), Path(folder, "again.tgs")
        for number in range(first, first + n):
            print(json.dumps({"case": number}), flush=True)
            name = make_case(number, seeds, path)
            try:
                outcome = exercise(path, again)
            except Exception as error:  # what a case may find is any of them
                last = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(last.filename).name}:{last.lineno}"
                what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                outcome = f"{name}: {where}: {what}"
            print(json.dumps({"outcome": outcome}), flush=True)


def run(
    n: int,
    first: int = 0,
    env: dict[str, str] | None = None,
    tell: Callable[[str], None] = lambda failure: None,
) -> tuple[Counter[str], list[str]]:
    """Run ``n`` cases in child processes; return counts, and a line for each that failed.

    A child that dies is followed by another, which goes on behind the case that killed it.
    """
    counts: Counter[str] = Counter()
    failures: list[str] = []

    def note(kind: str, failure: str) -> None:
        counts[kind] += 1
        failures.append(failure)
        tell(failure)

    stop = first + n
    while first < stop:
        command = [sys.executable, __file__, "--child", str(stop - first), "--first", str(first)]
        case = None
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                command, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=errors,
                text=True,
            ) as child,
        ):  # fmt: skip
            assert child.stdout is not None
            for line in child.stdout:
                said = json.loads(line)
                if "case" in said:
                    case = said["case"]
                    first = case + 1
                elif said["outcome"] in ("refused", "sound"):
                    counts[said["outcome"]] += 1
                else:
                    note("failed", f"case {case}: {said['outcome']}")
            child.wait()
            errors.seek(0)
            last_words = errors.read().strip()[-500:]
        if case is None:
            raise RuntimeError(f"the fuzzer itself failed: {last_words}")
        if child.returncode:
            note("died", f"case {case}: the process ended ({child.returncode}): {last_words}")
    return counts, failures


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz model files.")
    parser.add_argument("n", type=int, nargs="?", default=1000, help="how many cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run this one case here, with its traceback")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        run_child(args.first, args.child)
    elif args.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "case.tgs")
            print(make_case(args.case, seed_files(), path))
            print(exercise(path, Path(folder, "again.tgs")))
    else:
        counts, failures = run(args.n, args.first, tell=print)
        print(json.dumps(counts))
        return bool(failures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
