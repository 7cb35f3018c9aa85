"""Batch prediction: many queries against many stored items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers import K
from benchmarks.timing import Section, claim, installed, race, seconds
from tagstream import KNN, OML, make_stream
from tagstream.store.rows import DenseRows

P, Q, D = 294, 5, 32


def _faiss(stored: Any, queries: Any) -> Any:
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatL2(stored.shape[1])
    index.add(stored)
    return lambda: index.search(queries, K)[1]


def _raw(n: int, m: int, here: set[str]) -> dict[str, Any]:
    """Return predictions of the same queries from the same stored rows, one function each."""
    from sklearn.neighbors import KNeighborsClassifier

    stream = make_stream(n + m, p=P, q=Q, n_factors=4, cardinality=1.2, seed=3)
    X, Y, queries = stream.X[:n].astype(np.float32), stream.Y[:n], stream.X[n:].astype(np.float32)
    oml = OML(random_state=0).fit(X, Y)
    knn = KNN(n_neighbors=K).fit(X, Y)
    brute = KNeighborsClassifier(K, algorithm="brute").fit(X, Y)
    double = KNeighborsClassifier(K, algorithm="brute").fit(stream.X[:n], Y)
    calls = {
        "tagstream OML.predict": lambda: oml.predict(queries),
        "tagstream KNN.predict": lambda: knn.predict(queries),
        "scikit-learn KNeighborsClassifier.predict, brute": lambda: brute.predict(queries),
        "the same, double precision": lambda: double.predict(stream.X[n:]),
        "bare matrix product": _product(queries, X),
    }
    if "faiss" in here:
        calls["faiss IndexFlatL2, search only"] = _faiss(X, queries)
    if "skmultilearn" in here:
        from skmultilearn.adapt import BRkNNaClassifier

        peer = BRkNNaClassifier(k=K)
        peer.fit(X, Y)
        calls["scikit-multilearn-ng BRkNNaClassifier.predict"] = lambda: peer.predict(queries)
    return calls


def _codes(n: int, m: int, here: set[str]) -> dict[str, Any]:
    """Return searches of the same codes."""
    stream = make_stream(n + m, p=P, q=D, seed=4)
    model = OML(lift=None, random_state=0).fit(stream.X[:2000], stream.Y[:2000])
    codes = model.transform(stream.X)
    stored, queries = codes[:n], codes[n:]
    rows = DenseRows(D)
    rows.append(stored)
    calls = {
        "tagstream, exact search": lambda: rows.search(queries, K)[1],
        "bare matrix product": _product(queries, stored),
    }
    if "faiss" in here:
        calls["faiss IndexFlatL2"] = _faiss(stored, queries)
    return calls


def _product(queries: np.ndarray, rows: np.ndarray) -> Callable[[], Any]:
    """Multiply into memory that is there already: the limit is the product, not the allocation."""
    out = np.zeros((len(queries), len(rows)), np.float32)
    return lambda: np.matmul(queries, rows.T, out=out)


def run(quick: bool) -> Section:
    n, m, turns = (4000, 400, 2) if quick else (20_000, 2000, 7)
    here, missing = installed(faiss="faiss-cpu", skmultilearn="scikit-multilearn-ng")
    cases = {
        f"predict from {P} raw features, {Q} labels": _raw(n, m, here),
        f"search codes of d = {D}": _codes(n, m, here),
    }
    rows, times = [], []
    for case, calls in cases.items():
        for call in calls.values():
            call()
        best = race({name: lambda c=call: seconds(c) for name, call in calls.items()}, turns)
        times.append(best)
        for name, t in best.items():
            ours = next(iter(best.values()))
            rows.append({"case": case, "who": name, "ms": t * 1e3, "time over ours": t / ours})
    raw, codes = times
    found = [
        call() for name, call in cases[f"search codes of d = {D}"].items() if "bare" not in name
    ]
    agree = float(np.mean(found[0] == found[-1])) if "faiss" in here else None
    return {
        "title": "Batch prediction",
        "equal": f"{n:,} stored rows, {m:,} queries, k = {K}, single precision unless said, one "
        "thread, data already in place; brute force, exact.",
        "differs": "OML searches its codes, of which there are as many numbers as labels, instead "
        "of the raw features; that is the method's advantage, and KNN beside it does without. "
        "faiss returns neighbours only, a predict also counts votes and checks its input.",
        "rows": rows,
        "notes": []
        if agree is None
        else [f"Neighbours that faiss names at the same place: {agree:.2%}."],
        "claims": _claims(raw, codes),
        "skipped": missing,
    }


def _claims(raw: dict[str, float], codes: dict[str, float]) -> list[dict[str, Any]]:
    brute = raw["scikit-learn KNeighborsClassifier.predict, brute"]
    product, ours = codes["bare matrix product"], codes["tagstream, exact search"]
    claims = [
        claim(
            f"{name} over scikit-learn's brute-force kNN, p = {P}",
            brute / raw[f"tagstream {name}.predict"],
            5,
            at_least=True,
            limit=limit,
            limit_value=raw["bare matrix product"] * 1e3,
            limit_unit="ms, bare product of the raw features",
            distance=raw[f"tagstream {name}.predict"] / raw["bare matrix product"],
        )
        for name, limit in {
            "OML": "projection of the queries, then the scan of short codes",
            "KNN": "matrix product; scikit-learn itself is near it",
        }.items()
    ]
    limit = {
        "limit": "matrix product",
        "limit_value": product * 1e3,
        "limit_unit": "ms",
        "distance": ours / product,
    }
    if "faiss IndexFlatL2" in codes:
        ratio = ours / codes["faiss IndexFlatL2"]
        claims.append(
            claim(f"search of the same codes, d = {D}, time over faiss", ratio, 1.25, **limit)
        )
    claims.append(
        claim(
            f"search of the same codes, d = {D}, time over the bare product",
            ours / product,
            2,
            **limit,
        )
    )
    return claims
