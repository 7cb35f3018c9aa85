"""A call that is refused changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from tagstream.testing.data import N, stream
from tagstream.testing.rules import Make, refused, rule
from tagstream.testing.states import assert_same_state

__all__: list[str] = []


def _bad_calls(X: Any, Y: Any) -> list[tuple[str, Callable[[Any], Any]]]:
    def with_value(value: float) -> Any:
        bad = X.copy()
        bad[1, 2] = value
        return bad

    def label(value: float) -> Any:
        bad = Y.astype(float)
        bad[1, 1] = value
        return bad

    text = X.astype(object)
    text[0, 0] = "a word"
    n = len(X)
    return [
        ("NaN", lambda m: m.partial_fit(with_value(np.nan), Y)),
        ("infinity", lambda m: m.partial_fit(with_value(np.inf), Y)),
        ("out of range", lambda m: m.partial_fit(with_value(1e30), Y)),
        ("narrow", lambda m: m.partial_fit(X[:, 1:], Y)),
        ("wide", lambda m: m.partial_fit(np.hstack([X, X]), Y)),
        ("1-D X", lambda m: m.partial_fit(X[0], Y[:1])),
        ("3-D X", lambda m: m.partial_fit(X[None], Y[None])),
        ("label 2", lambda m: m.partial_fit(X, label(2))),
        ("label -1", lambda m: m.partial_fit(X, label(-1))),
        ("label 0.5", lambda m: m.partial_fit(X, label(0.5))),
        ("label inf", lambda m: m.partial_fit(X, label(np.inf))),
        ("text label", lambda m: m.partial_fit(X, np.full(Y.shape, "a"))),
        ("ragged Y", lambda m: m.partial_fit(X[:2], [[0, 1, 0, 0], [1]])),
        ("narrow Y", lambda m: m.partial_fit(X, Y[:, :2])),
        ("short Y", lambda m: m.partial_fit(X, Y[:-1])),
        ("no Y", lambda m: m.partial_fit(X, None)),
        ("empty", lambda m: m.partial_fit(X[:0], Y[:0])),
        ("text X", lambda m: m.partial_fit(text, Y)),
        ("complex X", lambda m: m.partial_fit(X + 1j, Y)),
        ("1-D y after a matrix", lambda m: m.partial_fit(X, Y[:, 0])),
        ("classes of wrong length", lambda m: m.partial_fit(X, Y, classes=["a", "b"])),
        ("repeated classes", lambda m: m.partial_fit(X, Y, classes=[0, 1, 2, 2])),
        ("ids of wrong length", lambda m: m.partial_fit(X, Y, ids=list(range(n - 1)))),
        ("NaN in one", lambda m: m.learn_one(with_value(np.nan)[1], Y[1])),
        ("narrow one", lambda m: m.learn_one(X[1, 1:], Y[1])),
        ("label 2 in one", lambda m: m.learn_one(X[1], label(2)[1])),
        ("matrix as one", lambda m: m.learn_one(X, Y)),
        ("NaN query", lambda m: m.predict(with_value(np.nan))),
        ("narrow query", lambda m: m.predict_proba(X[:, 1:])),
        ("narrow query of one", lambda m: m.predict_one(X[0, 1:])),
        ("bad fit", lambda m: m.fit(with_value(np.nan), Y)),
        ("bad fit labels", lambda m: m.fit(X, label(2))),
    ]  # fmt: skip


@rule("to_state")
def check_rejected_calls_change_nothing(make: Make) -> None:
    """A call that is refused leaves the model as it was."""
    X, Y = stream()
    for n in (5, N):
        model = make().partial_fit(X[:n], Y[:n])
        before = copy.deepcopy(model.to_state())
        scores = model.predict_proba(X)
        for what, call in _bad_calls(X[:8], Y[:8]):
            with refused():
                call(model)
            assert_same_state(model.to_state(), before, what)
        np.testing.assert_array_equal(model.predict_proba(X), scores)


@rule("to_state")
def check_rejected_first_call(make: Make) -> None:
    """A model whose first call fails is still unfitted and can start afterwards."""
    X, Y = stream()
    model = make()
    with refused(ValueError, saying="NaN"):
        model.partial_fit(np.full_like(X, np.nan), Y)
    with refused(NotFittedError):
        model.predict(X)
    with refused(NotFittedError):
        model.to_state()
    assert_same_state(model.partial_fit(X, Y).to_state(), make().partial_fit(X, Y).to_state())


@rule("to_state", "get_params")
def check_bad_parameters(make: Make) -> None:
    """Every parameter refuses a value of no meaning, before anything happens."""
    X, Y = stream()
    for name in make().get_params(deep=False):
        model = make().set_params(**{name: "no such value"})
        with refused():
            model.fit(X, Y)
        if name == "random_state":
            continue  # was only needed to start
        fitted = make().fit(X, Y)
        before = copy.deepcopy(fitted.to_state()["learner"])
        fitted.set_params(**{name: "no such value"})
        with refused():
            fitted.partial_fit(X, Y)
        assert_same_state(fitted.to_state()["learner"], before, name)
