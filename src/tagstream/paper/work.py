"""What the cells do: each part is a function from a cell to its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import cache, lru_cache
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.evaluation import evaluate
from tagstream.evaluation.metrics import MultiLabelScores
from tagstream.evaluation.paired import blocks_of
from tagstream.features import Text
from tagstream.paper import young
from tagstream.paper.bound import bound
from tagstream.paper.guarantee import guarantee
from tagstream.paper.knowing import drift_alarms, promised_stream, review_spoilt, tag_in_order
from tagstream.paper.orders import arranged, divided, measured
from tagstream.paper.plan import (
    CORRECTIONS,
    DRAWS,
    EVERY,
    EXAMPLES,
    FADING,
    FOLDS,
    INIT,
    LEARNT_BEFORE_CORRECTIONS,
    LEARNT_BEFORE_TAG,
    METHODS,
    MOST_LEARNT,
    MOST_OTHERS,
    N_ORDINARY,
    N_OTHERS,
    N_TIMED_TEST,
    NEW_TAG_EXAMPLES,
    NEW_TAG_LABELS,
    PROMISED_LENGTH,
    TEXTS,
    Cell,
    Method,
)
from tagstream.paper.record_files import versions
from tagstream.paper.rivals import run_rival
from tagstream.paper.scenarios import correct, introduce, read_text, some_labels, survive
from tagstream.paper.texts import holdout_of_text, stream_of_text
from tagstream.records import DATASETS, Dataset, make_stream
from tagstream.records import load as load_data

__all__ = ["RUNNERS", "load", "run_cell"]

Vector = npt.NDArray[np.float64]

KEPT = ("micro_f1", "macro_f1", "example_f1", "hamming_loss")


@lru_cache(maxsize=2)
def load(name: str, home: str | None) -> Dataset:
    """Return a data set, dense if most entries are there however they are written; two are kept."""
    return load_data(name, data_home=home).dense_if_full()


def _datasets(cell: Cell, home: str | None) -> dict[str, Any]:
    found = load(cell.dataset, home)
    n, p = found.X.shape
    return {
        "n": n,
        "p": p,
        "q": found.Y.shape[1],
        "cardinality": found.cardinality,
        "density": found.cardinality / found.Y.shape[1],
        "distinct_sets": len(np.unique(found.Y, axis=0)),
        "sparse": bool(sp.issparse(found.X)),
        "domain": DATASETS[cell.dataset].domain,
    }


@lru_cache(maxsize=2)
def _folds(name: str, home: str | None, again: int) -> npt.NDArray[np.int64]:
    return evaluate.iterative_folds(load(name, home).Y, FOLDS, (0, again))


def _standardised(X: Any, train: npt.NDArray[np.int64]) -> Any:
    """Divide the columns by their standard deviation over the rows ``train``."""
    rows = X[train]
    if sp.issparse(X):
        mean = np.asarray(rows.mean(axis=0)).ravel()
        variance = np.asarray(rows.multiply(rows).mean(axis=0)).ravel() - mean**2
    else:
        variance = rows.var(axis=0)
    spread = np.sqrt(np.maximum(variance, 0))
    spread[spread <= 1e-12] = 1.0
    return sp.csr_matrix(X @ sp.diags(1 / spread)) if sp.issparse(X) else X / spread


def _tested(
    cell: Cell,
    X: Any,
    Y: Any,
    train: Any,
    test: Any,
    init: float,
    seed: int,
    scores: bool = False,
    **numbers: Any,
) -> dict[str, Any]:
    """One fold, as a dict; also the counts with the other threshold or the other decisions."""
    method = METHODS[cell.part][cell.method]
    if method.standardise:
        X = _standardised(X, train)
    made: list[Any] = []

    def make(n_init: int) -> Any:
        made.append(method.make(n_init, seed))
        return made[0]

    fold = evaluate.train_test(make, *(X, Y, train, test), init=init, scores=scores, **numbers)
    if method.rules:
        found = made[0].predict_proba(X[test])
        by_rule = {rule: _counts(Y[test], made[0].labels_of(found, rule)) for rule in method.rules}
        return asdict(fold) | {"by_rule": by_rule}
    if not method.offline:
        return asdict(fold)
    predicted = made[0].predict(X[test], best_for="hamming")
    counts = _counts(Y[test], predicted)
    return asdict(fold) | {"hamming_counts": counts, "thresholds": made[0].thresholds_}


def _counts(Y: Any, predicted: Any) -> dict[str, Any]:
    return MultiLabelScores().update(Y, predicted).to_counts()


def _one_fold(
    cell: Cell, home: str | None, again: int, fold: int, scores: bool = False
) -> dict[str, Any]:
    # The same rows, in the same order, as `evaluate.holdout(..., folds=5, repeats=…, seed=0)`.
    found, fold_of = load(cell.dataset, home), _folds(cell.dataset, home, again)
    train = np.random.default_rng((0, again, fold)).permutation(np.flatnonzero(fold_of != fold))
    test = np.flatnonzero(fold_of == fold)
    return _tested(cell, found.X, found.Y, train, test, INIT, fold, scores, repeat=again, fold=fold)


def _holdout(cell: Cell, home: str | None) -> dict[str, Any]:
    return _one_fold(cell, home, 0, cell.fold, scores=True)


def _repeats(cell: Cell, home: str | None) -> dict[str, Any]:
    """Run all folds of another division of the data; the sums of their labels are not kept."""
    folds = [_one_fold(cell, home, cell.fold, fold) for fold in range(FOLDS)]
    result: dict[str, Any] = _kept([fold["counts"] for fold in folds])
    rules = METHODS["repeats"][cell.method].rules
    if rules:
        by_rule = {rule: [fold["by_rule"][rule] for fold in folds] for rule in rules}
        result["by_rule"] = {rule: _kept(counts) for rule, counts in by_rule.items()}
    return result


def _kept(folds: list[dict[str, Any]]) -> dict[str, list[float]]:
    measures = [MultiLabelScores.from_counts(counts).as_dict() for counts in folds]
    return {name: [round(fold[name], 6) for fold in measures] for name in KEPT}


def _splits(cell: Cell, home: str | None) -> dict[str, Any]:
    found = load(cell.dataset, home)
    assert found.n_train is not None
    first, last = np.split(np.arange(len(found.Y)), [found.n_train])
    if dict(cell.setting)["larger_first"]:
        first, last = last, first
    if cell.method != "knn":  # for which file order decides among equally near items
        first = np.random.default_rng(cell.fold).permutation(first)
    return _tested(cell, found.X, found.Y, first, last, 0, cell.fold)


def _prequential(cell: Cell, home: str | None) -> dict[str, Any]:
    found = load(cell.dataset, home)
    first = slice(0, dict(cell.setting).get("first"))
    X, Y = found.X[first], found.Y[first]
    n = len(Y)
    course = evaluate.prequential(
        METHODS["prequential"][cell.method].make(0, cell.fold),
        *(X, Y),
        every=EVERY,
        window=max(1, n // 10),
        fading=FADING,
    )
    return {
        "n_items": course.n_items,
        "counts": course.counts,
        "fading": course.fading,
        "seconds_per_item": course.seconds_per_item,
        "nbytes": course.curve[-1].nbytes,
        "window": max(1, n // 10),
        "blocks": blocks_of(course, Y),
        "curve": {
            "n_items": [point.n_items for point in course.curve],
            "recent": {m: [round(point.recent[m], 5) for point in course.curve] for m in KEPT},
            "cumulative": {
                m: [round(point.cumulative[m], 5) for point in course.curve] for m in KEPT
            },
        },
    }


def _labels(cell: Cell, home: str | None) -> dict[str, Any]:
    """Learn a whole data set, and look at Q = VVᵀ beside how labels go together in the data."""
    found = load(cell.dataset, home)
    order = np.random.default_rng(0).permutation(len(found.Y))
    model = METHODS["labels"]["oml"].make(0, 0).fit(found.X[order], found.Y[order])
    Q = model.V_ @ model.V_.T
    size = np.sqrt(np.diag(Q))
    some = np.flatnonzero((size > 0) & found.Y.any(axis=0) & ~found.Y.all(axis=0))
    C = Q[np.ix_(some, some)] / np.outer(size[some], size[some])
    phi: Any = np.corrcoef(found.Y[:, some].T.astype(np.float64))
    i, j = np.triu_indices(len(some), 1)
    names = [found.label_names[s] for s in some]
    by_pull = np.argsort(C[i, j], kind="stable")

    def pairs(which: Any) -> list[list[Any]]:
        return [
            [names[i[r]], names[j[r]], round(C[i[r], j[r]], 5), round(phi[i[r], j[r]], 5)]
            for r in which
        ]

    frequent = np.sort(np.argsort(-found.Y[:, some].sum(axis=0), kind="stable")[:30])
    return {
        "n_labels": len(some),
        "d": model.V_.shape[1],
        "labels": [names[f] for f in frequent],
        "cosine": np.round(C[np.ix_(frequent, frequent)], 5).tolist(),
        "phi": np.round(phi[np.ix_(frequent, frequent)], 5).tolist(),
        "nearest": pairs(by_pull[::-1][:10]),
        "farthest": pairs(by_pull[:10]),
        "rank_correlation": _rank_correlation(C[i, j], phi[i, j]),
        "n_pairs": len(i),
    }


def _bound(cell: Cell, home: str | None) -> dict[str, Any]:
    found = load(cell.dataset, home)
    return bound(found.X, found.Y, METHODS["bound"][cell.method].make(0, 0))


def _rank_correlation(a: Vector, b: Vector) -> float | None:
    from scipy.stats import spearmanr

    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(spearmanr(a, b).statistic)


def _scaling(cell: Cell, home: str | None) -> dict[str, Any]:
    sizes = dict(cell.setting)
    n, p, q, d = (sizes[name] for name in "npqd")
    stream = make_stream(n + N_TIMED_TEST, p=p, q=q, seed=0)
    method = METHODS["scaling"][cell.method]
    _time(method, make_stream(400, p=p, q=q, seed=1), 200, d)  # compile first
    timed = [_time(method, stream, n, d) for _ in range(3)]
    return {"learn": min(t[0] for t in timed), "predict": min(t[1] for t in timed), **sizes}


def _time(method: Method, stream: Dataset, n: int, d: int) -> tuple[float, float]:
    """Seconds per round over the second half of n examples, and per prediction after them."""
    model = method.make(round(INIT * n), 0)
    if method.learner in ("OML", "PublishedOML"):
        model.set_params(n_components=d)
    model.partial_fit(stream.X[: n // 2], stream.Y[: n // 2])
    start = perf_counter()
    for first in range(n // 2, n, 256):
        rows = slice(first, min(first + 256, n))
        model.partial_fit(stream.X[rows], stream.Y[rows])
    learned = perf_counter()
    model.predict(stream.X[n : n + N_TIMED_TEST])
    end = perf_counter()
    return (learned - start) / (n - n // 2), (end - learned) / len(stream.X[n : n + N_TIMED_TEST])


def _scenarios(cell: Cell, home: str | None) -> dict[str, Any]:
    records, tag = read_text(cell.dataset), dict(cell.setting).get("tag")
    learner = METHODS["scenarios"][cell.method].make(0, 0)
    if tag is None:
        return correct(
            *(records, learner),
            n_learnt=LEARNT_BEFORE_CORRECTIONS,
            counts=CORRECTIONS,
            n_others=N_OTHERS,
            seed=cell.fold,
        )
    return introduce(
        *(records, learner, tag),
        n_learnt=LEARNT_BEFORE_TAG,
        counts=EXAMPLES,
        n_test=N_ORDINARY,
        n_draws=DRAWS,
    )


def _delays(cell: Cell, home: str | None) -> dict[str, Any]:
    found, setting = load(cell.dataset, home), dict(cell.setting)
    method = METHODS["delays"][cell.method]
    first = slice(0, setting["first"])
    course = evaluate.prequential(
        method.make(0, 0),
        *(found.X[first], found.Y[first]),
        delay=setting["delay"],
        tell_lag=method.told_lag,
        scores=False,
    )
    measures = MultiLabelScores.from_counts(course.counts).as_dict()
    return {"n_items": course.n_items, **{name: measures[name] for name in KEPT}}


def _guarantee(cell: Cell, home: str | None) -> dict[str, Any]:
    found = load(cell.dataset, home)
    return guarantee(found.X, found.Y, METHODS["guarantee"][cell.method].make(0, 0))


def _text(cell: Cell, home: str | None) -> dict[str, Any]:
    records = read_text(cell.dataset)
    learner = METHODS["text"][cell.method].make(0, cell.fold)
    if cell.setting:
        return stream_of_text(records, learner)
    return holdout_of_text(records, learner, folds=FOLDS, fold=cell.fold)


@lru_cache(maxsize=2)
def _rows_and_labels(name: str, home: str | None) -> tuple[Any, npt.NDArray[np.uint8]]:
    """Return a data set, or the texts of a file with their features."""
    if name not in TEXTS:
        found = load(name, home)
        return found.X, np.asarray(found.Y, np.uint8)
    records = read_text(name)
    tags = sorted({tag for record in records for tag in record["y"]})
    Y = np.array([[tag in record["y"] for tag in tags] for record in records], np.uint8)
    return Text().rows([record["text"] for record in records]), Y


def _order(cell: Cell, home: str | None) -> dict[str, Any]:
    X, Y = _rows_and_labels(cell.dataset, home)
    train, test = divided(len(Y), cell.fold)
    rows = train[arranged(dict(cell.setting)["order"], Y[train], cell.fold)]
    model = METHODS[cell.part][cell.method].make(0, cell.fold)
    start, is_next = perf_counter(), cell.method == "oml-next"
    if is_next:
        model.partial_fit(X[rows], Y[rows])
    else:
        model.fit(X[rows], Y[rows])
    seconds = perf_counter() - start
    scores = model.predict_proba(X[test], next=is_next)
    found = measured(Y[test], model.labels_of(scores, next=is_next), scores)
    return {**found, "n": len(rows), "learn_seconds": seconds}


@cache
def _encoder() -> Any:
    """Return the encoder, which encodes each text once for all cells of a process."""
    from tagstream.features import Encoder

    return Encoder("use")


def _young(cell: Cell, home: str | None) -> dict[str, Any]:
    records = read_text(cell.dataset)
    if cell.dataset == "packages":  # the first were used to choose start weights
        records = records[young.USED :]
    encoder = _encoder() if cell.method in young.ENCODED else None
    return young.curve(records, cell.method, cell.fold, encoder)


def _newtag(cell: Cell, home: str | None) -> dict[str, Any]:
    X, Y = _rows_and_labels(cell.dataset, home)
    labels = some_labels(Y, NEW_TAG_LABELS, 3 * max(NEW_TAG_EXAMPLES))
    looks = []
    for label in labels:
        n = int((Y[:, label] == 0).sum())
        n_test = min(n // 3, MOST_OTHERS)
        found = survive(
            *(X, Y, METHODS[cell.part][cell.method].make(0, cell.fold), label),
            counts=NEW_TAG_EXAMPLES,
            n_learnt=min(n - n_test, MOST_LEARNT),
            n_test=n_test,
            seed=cell.fold,
        )
        looks.append(found)
    return {"labels": labels, "counts": list(NEW_TAG_EXAMPLES), "looks": looks}


def _rivals(cell: Cell, home: str | None) -> dict[str, Any]:
    return run_rival(cell.dataset, cell.method, cell.fold, dict(cell.setting)["n"])


def _review(cell: Cell, home: str | None) -> dict[str, Any]:
    X, Y = _rows_and_labels(cell.dataset, home)
    learner = METHODS["review"][cell.method].make(0, cell.fold)
    return review_spoilt(X, Y, learner, seed=cell.fold, cleanlab=True)


def _promise(cell: Cell, home: str | None) -> dict[str, Any]:
    X, Y = _rows_and_labels(cell.dataset, home)
    learner = METHODS["promise"][cell.method].make(0, 0)
    rolled = bool(dict(cell.setting)["rolled"])
    return promised_stream(X[:PROMISED_LENGTH], Y[:PROMISED_LENGTH], learner, rolled=rolled)


def _drift(cell: Cell, home: str | None) -> dict[str, Any]:
    X, Y = _rows_and_labels(cell.dataset, home)
    learner = METHODS["drift"][cell.method].make(0, 0)
    first, rolled = slice(PROMISED_LENGTH), bool(dict(cell.setting)["rolled"])
    return drift_alarms(X[first], Y[first], learner, rolled=rolled, seed=0)


def _next(cell: Cell, home: str | None) -> dict[str, Any]:
    X, Y = _rows_and_labels(cell.dataset, home)
    learner = METHODS["next"][cell.method].make(0, cell.fold)
    return tag_in_order(X, Y, learner, order=dict(cell.setting)["order"], seed=cell.fold)


RUNNERS: dict[str, Callable[[Cell, str | None], dict[str, Any]]] = {
    "datasets": _datasets,
    "holdout": _holdout,
    "repeats": _repeats,
    "splits": _splits,
    "prequential": _prequential,
    "labels": _labels,
    "bound": _bound,
    "scaling": _scaling,
    "scenarios": _scenarios,
    "delays": _delays,
    "guarantee": _guarantee,
    "text": _text,
    "order": _order,
    "young": _young,
    "newtag": _newtag,
    "rivals": _rivals,
    "review": _review,
    "promise": _promise,
    "drift": _drift,
    "next": _next,
}


def run_cell(cell: Cell, home: str | None) -> dict[str, Any]:
    """Return the record of one cell."""
    start = perf_counter()
    result = RUNNERS[cell.part](cell, home)
    method = METHODS[cell.part].get(cell.method)
    return {
        "key": cell.key,
        "part": cell.part,
        "dataset": cell.dataset,
        "method": cell.method,
        "title": method.title if method else "",
        "fold": cell.fold,
        "setting": dict(cell.setting),
        "params": cell.params,
        "versions": versions(),
        "seconds": round(perf_counter() - start, 3),
        "result": result,
    }
