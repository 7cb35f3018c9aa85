"""The peers, each wrapped to the two calls that are timed: predict one item, learn one item.

Every wrapper is made from all rows at once and converts them beforehand into what the peer likes
best, so that no peer pays for a conversion unless its name says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

K = 10
Call = Callable[[int], object]
Pair = tuple[Call, Call]  # predict and learn the row of a number


def tagstream_pair(model: Any, X: Any, Y: Any) -> Pair:
    return lambda i: model.predict_one(X[i]), lambda i: model.learn_one(X[i], Y[i])


def batch_of_one(model: Any, X: Any, Y: Any) -> Pair:
    """The calls for batches, which check all that scikit-learn asks for."""
    return (
        lambda i: model.predict(X[i : i + 1]),
        lambda i: model.partial_fit(X[i : i + 1], Y[i : i + 1]),
    )


def river_knn(X: Any, Y: Any, window: int, engine: str) -> Pair:
    """One nearest-neighbour search per item, each label set a class of its own."""
    from river import multioutput, neighbors

    search = (
        neighbors.LazySearch(window_size=window)
        if engine == "LazySearch"
        else neighbors.SWINN(maxlen=window)
    )
    model = multioutput.MultiClassEncoder(neighbors.KNNClassifier(n_neighbors=K, engine=search))
    items = [dict(enumerate(x.tolist())) for x in X]
    labels = [dict(enumerate(map(bool, y))) for y in Y]
    return lambda i: model.predict_one(items[i]), lambda i: model.learn_one(items[i], labels[i])


def sklearn_sgd(X: Any, Y: Any) -> Pair:
    from sklearn.linear_model import SGDClassifier
    from sklearn.multioutput import MultiOutputClassifier

    model = MultiOutputClassifier(SGDClassifier(random_state=0))
    model.partial_fit(X[:1], Y[:1], classes=[np.array([0, 1])] * Y.shape[1])
    return (
        lambda i: model.predict(X[i : i + 1]),
        lambda i: model.partial_fit(X[i : i + 1], Y[i : i + 1]),
    )


def _vw_line(x: Any, y: Any) -> str:
    labels = ",".join(map(str, np.flatnonzero(y)))
    return f"{labels} |f " + " ".join([f"{j}:{v:.6g}" for j, v in enumerate(x.tolist())])


def _vw(q: int) -> Any:
    import vowpalwabbit

    return vowpalwabbit.Workspace(f"--multilabel_oaa {q} --quiet")


def vw_lines(X: Any, Y: Any) -> Pair:
    """Text lines that are there already, read at both calls."""
    model = _vw(Y.shape[1])
    lines = [_vw_line(x, y) for x, y in zip(X, Y, strict=True)]
    queries = [line[line.index("|") :] for line in lines]
    return lambda i: model.predict(queries[i]), lambda i: model.learn(lines[i])


def vw_lines_once(X: Any, Y: Any) -> Pair:
    """Text lines that are there already, read once: learning reuses the predicted example."""
    model = _vw(Y.shape[1])
    lines = [_vw_line(x, y) for x, y in zip(X, Y, strict=True)]
    held: list[Any] = [None]

    def predict(i: int) -> object:
        held[0] = model.parse(lines[i])
        return model.predict(held[0])

    def learn(i: int) -> None:
        example = held[0] or model.parse(lines[i])
        model.learn(example)
        model.finish_example(example)
        held[0] = None

    return predict, learn


def vw_arrays(X: Any, Y: Any) -> Pair:
    """The same array rows as ours: the text is made at each call."""
    model = _vw(Y.shape[1])
    none = np.empty(0)
    return (
        lambda i: model.predict(_vw_line(X[i], none)),
        lambda i: model.learn(_vw_line(X[i], Y[i])),
    )
