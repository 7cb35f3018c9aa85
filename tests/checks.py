"""The contract of all learners: ``check_*(make)`` takes a function that makes a fresh model.

``make(**params)`` must make small models: whatever a learner does at fixed times (a first block,
a refit) should happen within the 60 examples of :func:`stream`.
"""

from __future__ import annotations

import copy
import itertools
import pickle
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_checks
from sklearn.utils.fixes import parse_version

from tagstream.decision import Seen, decide

Make = Callable[..., Any]

N, P, Q = 60, 6, 4


def stream(n: int = N, p: int = P, q: int = Q, seed: int = 0) -> tuple[Any, Any]:
    """Return rows of shape (n, p) and labels (n, q) that depend on them; every label occurs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    Y = (X @ rng.normal(size=(p, q)) + 0.3 * rng.normal(size=(n, q)) > 0.3).astype(np.uint8)
    Y[:q][np.eye(q, dtype=bool)] = 1
    return X, Y


def binary_stream(n: int = N) -> tuple[Any, Any]:
    """Return 0/1 features, which no learner scales or centres, and labels."""
    X, Y = stream(n, 12)
    return (X > 0.5).astype(float), Y


def as_sets(Y: Any, names: str = "abcdefgh") -> list[set[str]]:
    return [{names[j] for j in np.flatnonzero(row)} for row in Y]


def assert_same_state(a: Any, b: Any, where: str = "state") -> None:
    """Compare nested states bit for bit."""
    assert type(a) is type(b), where
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_same_state(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, (u, v) in enumerate(zip(a, b, strict=True)):
            assert_same_state(u, v, f"{where}[{i}]")
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, where
        assert a.shape == b.shape, where
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(a, b, err_msg=where, strict=True)
        else:
            assert a.tolist() == b.tolist(), where
    elif isinstance(a, float):
        assert a == b or (a != a and b != b), where
    else:
        assert a == b, where


def feed(model: Any, X: Any, Y: Any, cuts: list[int]) -> Any:
    """Learn rows cut at ``cuts``; a piece of one row goes through ``learn_one``."""
    edges = sorted({0, *cuts, len(Y)})
    for start, stop in itertools.pairwise(edges):
        if stop == start + 1:
            model.learn_one(X[start], Y[start])
        else:
            model.partial_fit(X[start:stop], Y[start:stop])
    return model


# ------------------------------------------------------------------ one stream, one state
def check_chunking(make: Make) -> None:
    X, Y = stream()
    whole = make().partial_fit(X, Y)

    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.integers(1, N - 1), max_size=20))
    def holds(cuts: list[int]) -> None:
        assert_same_state(feed(make(), X, Y, cuts).to_state(), whole.to_state())

    holds()
    assert_same_state(feed(make(), X, Y, list(range(N))).to_state(), whole.to_state())


def check_chunking_of_sparse_rows(make: Make) -> None:
    X, Y = binary_stream()
    whole = make().partial_fit(sp.csr_matrix(X), Y)
    for cuts in ([7, 8, 30], [1, 2, 3, 59]):
        edges = [0, *cuts, N]
        model = make()
        for start, stop in itertools.pairwise(edges):
            model.partial_fit(sp.csr_matrix(X[start:stop]), Y[start:stop])
        assert_same_state(model.to_state(), whole.to_state())


def check_chunking_of_label_sets(make: Make) -> None:
    """New names may turn up within a call or between calls: the state is the same."""
    X, Y = stream()
    Y[:20, 2:] = 0
    Y[20:35, 3] = 0
    sets = as_sets(Y, "cadb")
    first_met: list[str] = []  # in the order of the rows; of one row, in that of the names
    for names in sets:
        first_met += sorted(names - set(first_met))
    whole = make().partial_fit(X, sets)
    assert whole.classes_.tolist() == first_met != sorted(first_met)
    for cuts in ([5, 20, 21, 40], list(range(N))):
        assert_same_state(feed(make(), X, sets, cuts).to_state(), whole.to_state())


@st.composite
def dull_streams(draw: st.DrawFn) -> tuple[Any, Any, list[int]]:
    """Draw rows of one to three kinds, dense or sparse, their labels, and cuts."""
    n, p, q = draw(st.integers(1, N)), draw(st.integers(1, 3)), draw(st.integers(0, 3))
    values = [0.0, 1.0, -1.0, 1 / 3, 7.0, 1e6, 1e-20, 1e-44, 1e15]
    of = st.lists(
        st.sampled_from(draw(st.sampled_from([[v] for v in values]))), min_size=p, max_size=p
    )
    some = draw(st.lists(of | st.just([0.0] * p), min_size=1, max_size=3))
    labels = draw(
        st.lists(
            st.lists(st.sampled_from([0.0, 1.0, np.nan]), min_size=q, max_size=q),
            min_size=1,
            max_size=2,
        )
    )
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    X, Y = (
        np.array(some)[rng.integers(len(some), size=n)],
        np.array(labels)[rng.integers(len(labels), size=n)],
    )
    rows = sp.csr_matrix(X) if draw(st.booleans()) else X
    return rows, Y.reshape(n, q), draw(st.lists(st.integers(1, N), max_size=3))


def check_dull_data(make: Make) -> None:
    """Equal rows, rows of zeros, one column, one label or none: all is learnt, saved and loaded."""

    @settings(max_examples=25, deadline=None)
    @given(dull_streams())
    def holds(drawn: tuple[Any, Any, list[int]]) -> None:
        X, Y, cuts = drawn
        model = make()
        for start, stop in itertools.pairwise(
            sorted({0, *(c for c in cuts if c < len(Y)), len(Y)})
        ):
            model.partial_fit(X[start:stop], Y[start:stop])
            state = model.to_state()
            assert_same_state(type(model).from_state(copy.deepcopy(state)).to_state(), state)
        assert_same_state(make().partial_fit(X, Y).to_state(), state)
        scores = model.predict_proba(X)
        assert ((scores >= 0) & (scores <= 1)).all()

    holds()


def check_seed_reproduces(make: Make) -> None:
    X, Y = stream()
    assert_same_state(make().fit(X, Y).to_state(), make().fit(X, Y).to_state())


def check_fit_forgets(make: Make) -> None:
    X, Y = stream()
    model = make().fit(X[:, :3], Y[:, :2])
    assert_same_state(model.fit(X, Y).to_state(), make().fit(X, Y).to_state())


def check_prediction_leaves_the_state(make: Make) -> None:
    X, Y = stream()
    for n in (3, N):
        model = make().partial_fit(X[:n], Y[:n])
        before = copy.deepcopy(model.to_state())
        model.predict(X)
        model.predict_proba(X)
        model.predict_one(X[0])
        model.predict_proba_one(X[0])
        model.predict_sets(X)
        model.view().predict(X)
        for ask in ("explain", "kneighbors", "transform"):
            if hasattr(model, ask):
                getattr(model, ask)(X[:5])
                getattr(model.view(), ask)(X[:5])
        assert_same_state(model.to_state(), before)


def check_learning_leaves_the_input(make: Make) -> None:
    X, Y = stream()
    X_before, Y_before = X.copy(), Y.copy()
    model = make().partial_fit(X, Y)
    before = copy.deepcopy(model.to_state())
    np.testing.assert_array_equal(X, X_before)
    np.testing.assert_array_equal(Y, Y_before)
    X[:], Y[:] = 99, 0  # the caller may reuse its memory
    assert_same_state(model.to_state(), before)


def check_one_row_like_many(make: Make) -> None:
    X, Y = stream()
    for n in (5, N):
        model = make().partial_fit(X[:n], Y[:n])
        together = model.predict_proba(X, next=True)
        alone = np.array([model.predict_proba_one(x) for x in X])
        np.testing.assert_allclose(alone, together, rtol=1e-9, atol=1e-12)
        labels = np.array([model.predict_one(x) for x in X])
        np.testing.assert_array_equal(labels, model.predict(X, next=True))
        of_any = np.array([model.predict_proba(x[None])[0] for x in X])
        np.testing.assert_allclose(of_any, model.predict_proba(X), rtol=1e-9, atol=1e-12)


def check_scores(make: Make) -> None:
    X, Y = stream()
    for n in (1, 3, N):
        model = make().partial_fit(X[:n], Y[:n])
        scores = model.predict_proba(X)
        assert scores.shape == (N, Q)
        assert scores.dtype == np.float64
        assert ((scores >= 0) & (scores <= 1)).all()
        seen = Seen(model.n_seen_, model.n_empty_)
        np.testing.assert_array_equal(model.predict(X), decide(scores, model.decide, seen=seen))
        for rule in ("f1", "hamming", "top2", 0.3):
            np.testing.assert_array_equal(model.predict(X, decide=rule), decide(scores, rule))
            np.testing.assert_array_equal(model.labels_of(scores, rule), decide(scores, rule))
        if getattr(model, "head", False):
            by_label = decide(scores, "macro", model._bars("macro", next=False))
            np.testing.assert_array_equal(model.predict(X, decide="macro"), by_label)
            np.testing.assert_array_equal(model.view().predict(X, decide="macro"), by_label)
        else:
            with pytest.raises(ValueError, match="'macro' for a learner without a head"):
                model.predict(X, decide="macro")
        names = [set(np.flatnonzero(row)) for row in model.predict(X)]
        assert model.predict_sets(X) == names
    single = make().fit(X, np.array(["no", "yes"])[Y[:, 0]])
    np.testing.assert_allclose(single.predict_proba(X).sum(axis=1), 1)
    assert set(single.predict(X)) <= {"no", "yes"}


def check_learns(make: Make) -> None:
    """Far better than the most frequent answer on an easy stream."""
    X, Y = stream(400)
    model = make().partial_fit(X[:300], Y[:300])
    mistakes = (model.predict(X[300:]) != Y[300:]).mean()
    assert mistakes < 0.6 * min(Y.mean(), 1 - Y.mean()), mistakes


# ------------------------------------------------------------------ rejected calls
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


def check_rejected_calls_change_nothing(make: Make) -> None:
    X, Y = stream()
    for n in (5, N):
        model = make().partial_fit(X[:n], Y[:n])
        before = copy.deepcopy(model.to_state())
        scores = model.predict_proba(X)
        for what, call in _bad_calls(X[:8], Y[:8]):
            with pytest.raises((ValueError, TypeError)):
                call(model)
            assert_same_state(model.to_state(), before, what)
        np.testing.assert_array_equal(model.predict_proba(X), scores)


def check_rejected_first_call(make: Make) -> None:
    """A model whose first call fails is still unfitted and can start afterwards."""
    X, Y = stream()
    model = make()
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full_like(X, np.nan), Y)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(NotFittedError):
        model.to_state()
    assert_same_state(model.partial_fit(X, Y).to_state(), make().partial_fit(X, Y).to_state())


def check_bad_parameters(make: Make) -> None:
    """Every parameter refuses a value of no meaning, before anything happens."""
    X, Y = stream()
    for name in make().get_params(deep=False):
        model = make().set_params(**{name: "no such value"})
        with pytest.raises((ValueError, TypeError)):
            model.fit(X, Y)
        if name == "random_state":
            continue  # was only needed to start
        fitted = make().fit(X, Y)
        before = copy.deepcopy(fitted.to_state()["learner"])
        fitted.set_params(**{name: "no such value"})
        with pytest.raises((ValueError, TypeError)):
            fitted.partial_fit(X, Y)
        assert_same_state(fitted.to_state()["learner"], before, name)


# ------------------------------------------------------------------ labels
def check_growth_by_wider_array(make: Make) -> None:
    X, Y = stream()
    for n in (6, 40):
        model = make().partial_fit(X[:n], Y[:n, :3])
        old = model.predict_proba(X)
        grown = copy.deepcopy(model)
        grown._set_names([0, 1, 2, 3, 4])  # the moment of growth, before anything is learnt
        np.testing.assert_allclose(grown.predict_proba(X)[:, :3], old, rtol=0, atol=1e-12)
        assert not grown.predict(X)[:, 3:].any()
        grown.partial_fit(X[n:], np.hstack([Y[n:], Y[n:, :1]]))
        assert grown.predict_proba(X).shape == (N, 5)
        with pytest.raises(ValueError, match="columns"):
            grown.partial_fit(X, Y)


def check_growth_by_names(make: Make) -> None:
    X, Y = stream()
    model = make().partial_fit(X[:30], as_sets(Y[:30, :2]))
    old = model.predict_proba(X)
    announced = copy.deepcopy(model).partial_fit(X[:1], [set()], classes=["new"])
    assert announced.classes_.tolist()[-1] == "new"
    assert announced.n_seen_ == 31
    model.partial_fit(X[30:], [{*names, "c"} for names in as_sets(Y[30:, :2])])
    assert "c" in model.classes_.tolist()
    assert model.predict_proba(X).shape == (N, old.shape[1] + 1)
    assert model.predict_proba(X)[:, -1].max() > 0


def check_a_new_label_is_learnt(make: Make) -> None:
    X, Y = stream(400)
    Y[:100, 3] = 0
    model = make().partial_fit(X[:100], Y[:100, :3])
    model.partial_fit(X[100:300], Y[100:300])
    mistakes = (model.predict(X[300:])[:, 3] != Y[300:, 3]).mean()
    assert mistakes < 0.35, mistakes


def check_unknown_items_teach_nothing(make: Make) -> None:
    """NaN and masked entries are read alike, and an item of unknown labels moves no score."""
    X, Y = stream()
    for n in (6, 40):
        model = make().partial_fit(X[:n], Y[:n])
        scores = model.predict_proba(X)
        none = copy.deepcopy(model).partial_fit(X[40:43], np.full((3, Q), np.nan))
        if not hasattr(model, "n_neighbors"):  # a stored item takes the place of a neighbour
            np.testing.assert_array_equal(none.predict_proba(X), scores)
        assert none.n_seen_ == n + 3
        masked = np.ma.masked_array(Y[40:43], mask=np.ones((3, Q), bool))
        other = copy.deepcopy(model).partial_fit(X[40:43], masked)
        assert_same_state(other.to_state(), none.to_state())


def check_unknown_entries_pull_nothing(make: Make) -> None:
    """What stands under an unknown entry does not matter."""
    X, Y = stream()
    mask = np.random.default_rng(5).random(Y.shape) < 0.3
    zeros = np.ma.masked_array(np.where(mask, 0, Y), mask=mask)
    ones = np.ma.masked_array(np.where(mask, 1, Y), mask=mask)
    a, b = make().partial_fit(X, zeros), make().partial_fit(X, ones)
    assert_same_state(a.to_state(), b.to_state())
    c = make().partial_fit(X, np.where(mask, np.nan, Y))
    np.testing.assert_array_equal(c.predict_proba(X), a.predict_proba(X))
    sets = as_sets(Y)
    nan = np.vstack([Y[:10], np.full((1, Q), np.nan)])
    named = make().partial_fit(X[:11], [*sets[:10], None], classes=list("abcd"))
    np.testing.assert_array_equal(
        named.predict_proba(X), make().partial_fit(X[:11], nan).predict_proba(X)
    )


def check_label_permutation_commutes(make: Make, rtol: float = 1e-6) -> None:
    X, Y = stream()
    order = np.array([2, 0, 3, 1])
    a = make().partial_fit(X, Y).predict_proba(X)
    b = make().partial_fit(X, Y[:, order]).predict_proba(X)
    np.testing.assert_allclose(b, a[:, order], rtol=rtol, atol=rtol)


def check_empty_label_sets(make: Make) -> None:
    """Items without labels, and labels that no item has, are data like any other."""
    X, Y = stream()
    model = make().partial_fit(X, np.zeros_like(Y))
    assert not model.predict(X).any()
    assert np.isfinite(make().partial_fit(X, np.ones_like(Y)).predict_proba(X)).all()


# ------------------------------------------------------------------ saving
def check_state_round_trip(make: Make) -> None:
    X, Y = stream()
    binary, labels = binary_stream()
    for rows, Z in ((X, Y), (sp.csr_matrix(binary), labels)):
        for n in (1, 7, 30):
            model = make().partial_fit(rows[:n], Z[:n])
            again = type(model).from_state(copy.deepcopy(model.to_state()))
            assert_same_state(again.to_state(), model.to_state())
            np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
            wide = np.hstack([Z[n:], Z[n:, :1]])
            for m in (model, again):
                m.partial_fit(rows[n:], wide)
            assert_same_state(again.to_state(), model.to_state())
            np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))


def check_state_is_a_copy(make: Make) -> None:
    """What is done to a saved state does not reach the model, nor the other way round."""
    X, Y = stream()
    for n in (5, N):
        model = make().partial_fit(X[:n], Y[:n])
        scores = model.predict_proba(X)
        state = model.to_state()
        kept = copy.deepcopy(state)
        model.partial_fit(X, Y)
        assert_same_state(state, kept)
        again = type(model).from_state(state)
        _spoil(state)
        np.testing.assert_array_equal(again.predict_proba(X), scores)


def _spoil(state: Any) -> None:
    for value in state.values() if isinstance(state, dict) else state:
        if isinstance(value, (dict, list)):
            _spoil(value)
        elif isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.flags.writeable:
            value[...] = 0


def _arrays(state: Any, path: tuple[Any, ...] = ()) -> Any:
    for key, value in state.items() if isinstance(state, dict) else enumerate(state):
        if isinstance(value, (dict, list)):
            yield from _arrays(value, (*path, key))
        elif isinstance(value, np.ndarray):
            yield (*path, key), value


def _changed(state: Any, path: tuple[Any, ...], value: Any) -> Any:
    state = copy.deepcopy(state)
    inner = state
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return state


def check_hostile_states_are_refused(make: Make) -> None:
    """Arrays of another shape or type, and missing or added parts, are not loaded."""
    X, Y = stream()
    for rows in (X, sp.csr_matrix(binary_stream()[0])):
        for n in (5, N):
            model = make().partial_fit(rows[:n], Y[:n])
            state = model.to_state()
            spoilt = [
                _changed(state, ("learner",), {}),
                _changed(state, ("learner", "surplus"), 1),
                _changed(state, ("n_features",), rows.shape[1] + 1),
                _changed(state, ("names",), [*range(Q + 1)]),
            ]
            for path, array in _arrays(state["learner"]):
                path = ("learner", *path)
                spoilt += [
                    _changed(state, path, array[None]),
                    _changed(state, path, array.astype(np.complex128)),
                    _changed(state, path, "text"),
                    _changed(state, path, None),
                ]
            for bad in spoilt:
                # Whatever is raised, `persist.load` reports it as a damaged file.
                with pytest.raises((ValueError, KeyError, TypeError)):
                    type(model).from_state(bad)


def check_pickle_and_deepcopy(make: Make) -> None:
    X, Y = stream()
    for n in (5, N):
        model = make().partial_fit(X[:n], Y[:n])
        for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert_same_state(again.to_state(), model.to_state())
            np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def check_nbytes(make: Make) -> None:
    X, Y = stream()
    for n in (5, N):
        model = make().partial_fit(X[:n], Y[:n])
        stored = sum(array.nbytes for _, array in _arrays(model.to_state()["learner"]))
        assert isinstance(model.nbytes_, int)
        assert model.nbytes_ >= 0.5 * stored


# ------------------------------------------------------------------ views
def _forms_of_rows() -> list[tuple[str, Any, Any]]:
    """Dense and sparse rows with labels that appear on the way."""
    X, Y = stream(150)
    binary, Z = binary_stream(150)
    Y[:50, 3] = Z[:70, 2:] = 0
    Y[:2, :3] = Z[:2, :2] = 1
    return [("dense", X, as_sets(Y)), ("sparse", sp.csr_matrix(binary), as_sets(Z))]


def check_a_view_stays_as_it_was(make: Make) -> None:
    for _, X, sets in _forms_of_rows():
        model = make()
        taken = []
        for start, stop in itertools.pairwise([0, 3, 20, 21, 22, 60, 61, 100, 150]):
            model.partial_fit(X[start:stop], sets[start:stop])
            view = model.view()
            assert view.n_seen_ == stop
            np.testing.assert_array_equal(view.predict_proba(X), model.predict_proba(X))
            taken.append((view, view.predict_proba(X), view.predict_sets(X), view.classes_.copy()))
        if hasattr(model, "relabel"):
            model.relabel(149, {"a", "another"})
            model.forget(148)
        model.rename_label("a", "A")
        if hasattr(model, "relabel") and type(model).__name__ != "PublishedOML":
            model.merge_labels(["b", "c"], "b")
            model.remove_label("d")
        for view, scores, suggested, names in taken:
            np.testing.assert_array_equal(view.predict_proba(X), scores)
            assert view.predict_sets(X) == suggested
            assert view.classes_.tolist() == names.tolist()
        with pytest.raises(AttributeError, match="can only be read"):
            view.partial_fit(X, sets)


def _read_beside(
    model: Any, asked: Any, done: threading.Event, answers: list[Any], failures: list[Any]
) -> None:
    """Ask view after view until the learner is done, and once more."""
    try:
        while True:
            last = done.is_set()
            view = model.view()
            mine = view.n_seen_, view.predict_proba(asked), view.predict_sets(asked)
            told = view.explain(asked[:1]) if hasattr(model, "explain") else None
            answers.append((*mine, view.classes_.tolist(), told))
            if last:
                return
    except BaseException as error:  # shown by the thread that started this one
        failures.append(error)


def check_readers_beside_a_learner(make: Make) -> None:
    """Every answer that readers get while a thread learns is that of a replayed state."""
    for form, X, sets in _forms_of_rows():
        model = make().partial_fit(X[:5], sets[:5])
        asked = X[::10]
        answers: list[Any] = []
        failures: list[Any] = []
        done = threading.Event()

        everything = model, asked, done, answers, failures
        readers = [threading.Thread(target=_read_beside, args=everything) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            for start, stop in itertools.pairwise([*range(5, 80, 3), *range(80, 150, 10), 150]):
                model.partial_fit(X[start:stop], sets[start:stop])
        finally:
            done.set()
            for reader in readers:
                reader.join()
        assert not failures, (form, failures)
        replayed: dict[int, Any] = {}
        for n, scores, suggested, names, told in answers:
            if n not in replayed:
                replayed[n] = make().partial_fit(X[:n], sets[:n])
            again = replayed[n]
            assert again.classes_.tolist() == names, form
            np.testing.assert_array_equal(again.predict_proba(asked), scores, err_msg=form)
            assert again.predict_sets(asked) == suggested
            if told is not None:
                assert again.explain(asked[:1]) == told
        assert {answer[0] for answer in answers} >= {150}


# ------------------------------------------------------------------ corrections as events
Event = tuple[Any, ...]


def _is_corrigible(make: Make) -> bool:
    return hasattr(make(), "relabel")


def _events(names: bool) -> list[Event]:
    """A stream with corrections in it: ("learn", start, stop) or (method, arguments…)."""
    changes: list[Event] = [
        ("merge_labels", ["b", "new"], "b"),
        ("remove_label", "c"),
        ("merge_labels", ["a"], "A"),
    ]
    return [
        ("learn", 0, 12),
        ("relabel", 3, {"a", "d"}),
        ("forget", 7),
        ("learn", 12, 30),
        ("relabel", 28, {"new"}),
        ("relabel", 28, {"new", "a"}),
        ("forget", 29),
        ("learn", 30, 44),
        ("rename_label", "d", "D"),
        *(changes if names else []),
        ("forget", 43),
        ("relabel", 41, np.array([1.0, np.nan, 0.0])) if names else ("relabel", 41, {"a"}),
        ("learn", 44, 50),
        ("forget", 33),
        ("learn", 50, 55),
        ("relabel", 53, {"D"}),
        ("learn", 55, 60),
    ]


def _play(
    model: Any, events: list[Event], X: Any, sets: Any, step: int, *, asks: bool = False
) -> Any:
    """Let a model live through events; ``asks``: it is always asked about the next item before."""
    for what, *how in events:
        if what != "learn":
            getattr(model, what)(*how)
            continue
        start, stop = how
        for first in range(start, stop, step):
            last = min(first + step, stop)
            if step == 1 and not sp.issparse(X):
                model.learn_one(X[first], sets[first])
            else:
                model.partial_fit(X[first:last], sets[first:last])
            if asks and last < X.shape[0]:
                model.predict_proba(X[last : last + 1])
    return model


def _renamed(sets: list[set[str]]) -> list[set[str]]:
    """Labels as they are called when half of the stream is over."""
    names = {"d": "D", "a": "A"}
    late = [{names.get(name, name) for name in one if name != "c"} for one in sets[44:]]
    return [*sets[:44], *late]


def check_corrections_are_events_of_the_stream(make: Make) -> None:
    """Wherever the calls between them are cut, and though it is saved in between."""
    if not _is_corrigible(make):
        return
    X, Y = stream()
    binary, Z = binary_stream()
    names = "merge_labels" in dir(make()) and type(make()).__name__ != "PublishedOML"
    for rows, labels in ((X, Y), (sp.csr_matrix(binary), Z)):
        sets = as_sets(labels)
        if names:
            sets = _renamed(sets)
        else:
            sets = [*sets[:44], *({"D" if n == "d" else n for n in one} for one in sets[44:])]
        events = _events(names)
        whole = _play(make(), events, rows, sets, 60)
        for step in (1, 5):
            assert_same_state(_play(make(), events, rows, sets, step).to_state(), whole.to_state())
        # What was found for an answer is used again in learning, unless something came between.
        asked = _play(make(), events, rows, sets, 1, asks=True)
        assert_same_state(asked.to_state(), whole.to_state())
        half = _play(make(), events[:8], rows, sets, 60)
        again = type(half).from_state(copy.deepcopy(half.to_state()))
        assert_same_state(again.to_state(), half.to_state())
        _play(again, events[8:], rows, sets, 60)
        assert_same_state(again.to_state(), whole.to_state())
        final = type(whole).from_state(copy.deepcopy(whole.to_state()))
        np.testing.assert_array_equal(final.predict_proba(rows), whole.predict_proba(rows))


def check_rejected_corrections_change_nothing(make: Make) -> None:
    if not _is_corrigible(make):
        return
    X, Y = stream()
    for n in (5, N):
        model = make().partial_fit(X[:n], as_sets(Y[:n]), ids=[f"i{i}" for i in range(n)])
        before = copy.deepcopy(model.to_state())
        last = f"i{n - 1}"
        calls: list[Callable[[], Any]] = [
            lambda m=model: m.relabel("nobody", {"a"}),
            lambda m=model: m.relabel(0, {"a"}),  # it has a name
            lambda m=model: m.relabel([1], {"a"}),
            lambda m=model, i=last: m.relabel(i, None),
            lambda m=model, i=last: m.relabel(i, "a"),
            lambda m=model, i=last: m.relabel(i, np.array([0, 1])),
            lambda m=model, i=last: m.relabel(i, np.array([0, 1, 2, 0])),
            lambda m=model, i=last: m.relabel(i, np.eye(4)),
            lambda m=model, i=last: m.relabel(i, {("x", 1): 2}),
            lambda m=model: m.forget("nobody"),
            lambda m=model: m.forget([1]),
            lambda m=model: m.merge_labels(["a", "nothing"], "a"),
            lambda m=model: m.merge_labels([], "a"),
            lambda m=model: m.merge_labels(["a"], ["unhashable"]),
            lambda m=model: m.merge_labels(["a"], " "),
            lambda m=model: m.remove_label("nothing"),
            lambda m=model: m.rename_label("nothing", "b"),
            lambda m=model: m.rename_label("a", "b"),
            lambda m=model: m.rename_label("a", " "),
            lambda m=model: m.rename_label("a", ["unhashable"]),
            lambda m=model: m.partial_fit(X[:1], [{"a"}], ids=[["unhashable"]]),
        ]  # fmt: skip
        for i, call in enumerate(calls):
            with pytest.raises((ValueError, KeyError, TypeError)):
                call()
            assert_same_state(model.to_state(), before, f"call {i}")


def check_what_is_forgotten_is_gone(make: Make) -> None:
    if not _is_corrigible(make):
        return
    X, Y = stream()
    for n in (15, N):
        model = make().partial_fit(X[:n], as_sets(Y[:n]))
        gone = [n - 1, n - 7, n - 12]
        for item in gone:
            assert model.has_item(item)
            model.forget(item)
            assert not model.has_item(item)
            with pytest.raises(KeyError, match="no stored item"):
                model.item(item)
        window = n if model.window is None else min(model.window, n)
        rest = [i for i in range(n - window, n) if i not in gone]
        names = model.classes_.tolist()
        counts = [sum(name in as_sets(Y)[i] for i in rest) for name in names]
        assert model.label_counts_.tolist() == counts
        assert set(model.kneighbors(X, n, return_distance=False).ravel().tolist()) == set(rest)
        for why in model.explain(X[:5]):
            assert not {near.id for near in why.neighbors} & set(gone)


def check_all_items_may_go_and_others_come(make: Make) -> None:
    if not _is_corrigible(make):
        return
    X, Y = stream()
    for n in (5, 40):
        model = make().partial_fit(X[:n], as_sets(Y[:n]))
        for item in range(n):
            if model.has_item(item):
                model.forget(item)
        scores = model.predict_proba(X)
        assert np.isfinite(scores).all()
        assert not model.predict(X).any()
        assert model.explain(X[:1])[0].neighbors == ()
        again = type(model).from_state(copy.deepcopy(model.to_state()))
        if type(model).__name__ != "PublishedOML":
            for one in (model, again):
                one.remove_label("a")
                one.merge_labels(["b", "c"], "d")
        for one in (model, again):
            one.partial_fit(X[n:], [names - set("abc") for names in as_sets(Y[n:])])
        assert_same_state(again.to_state(), model.to_state())
        assert np.isfinite(model.predict_proba(X)).all()


def check_a_correction_holds_at_once(make: Make) -> None:
    """Asked for the very item again, its new labels are the answer, though it is learnt no more."""
    if not _is_corrigible(make):
        return
    X, Y = stream()
    model = make(n_neighbors=1).partial_fit(X, as_sets(Y))
    item = N - 5
    model.relabel(item, {"a", "brand new"})
    row, labels, unknown = model.item(item)
    np.testing.assert_array_equal(np.asarray(row), X[item : item + 1].astype(np.float32))
    assert (labels, unknown) == ({"a", "brand new"}, set())
    if getattr(model, "vote", "majority") == "majority":
        assert model.predict_sets(X[item : item + 1]) == [{"a", "brand new"}]
    assert model.classes_.tolist()[-1] == "brand new"
    assert model.label_counts_[-1] == 1
    assert model.n_seen_ == N


def check_merged_labels_are_their_union(make: Make) -> None:
    if not _is_corrigible(make) or type(make()).__name__ == "PublishedOML":
        return
    X, Y = stream()
    for into, order in (("b", "bcd"), ("d", "cbd"), ("all", "ball")):
        for n in (10, N):
            model = make().partial_fit(X[:n], as_sets(Y[:n]), classes=list("abcd"))
            before = model.label_counts_
            stored = [model.item(i)[1] for i in range(n) if model.has_item(i)]
            model.merge_labels(["b", "d"], into)
            assert set(model.classes_.tolist()) == {"a", "c", into}, order
            after = [model.item(i)[1] for i in range(n) if model.has_item(i)]
            for old, new in zip(stored, after, strict=True):
                assert new == (old - {"b", "d"}) | ({into} if old & {"b", "d"} else set())
            counts = dict(zip(model.classes_.tolist(), model.label_counts_.tolist(), strict=True))
            assert counts["a"] == before[0]
            assert counts[into] == sum(bool(old & {"b", "d"}) for old in stored)
            assert np.isfinite(model.predict_proba(X)).all()
            model.remove_label(into)
            assert set(model.classes_.tolist()) == {"a", "c"}
            model.remove_label("a").remove_label("c")
            assert model.predict_proba(X).shape == (N, 0)
            assert model.predict_sets(X) == [set()] * N
            again = type(model).from_state(copy.deepcopy(model.to_state()))
            for one in (model, again):
                one.partial_fit(X, as_sets(Y, "wxyz"))
            assert_same_state(again.to_state(), model.to_state())
            assert set(model.classes_.tolist()) == set("wxyz")


def check_explanations_tell_what_is_predicted(make: Make) -> None:
    if not hasattr(make(), "explain"):
        return
    X, Y = stream()
    single = np.array(["no", "yes"])[Y[:, 0]]
    for labels in (as_sets(Y), single):
        for n in (1, 7, N):
            model = make().partial_fit(X[:n], labels[:n])
            names = model.classes_.tolist()
            scores, suggested = model.predict_proba(X[:20]), model.predict_sets(X[:20])
            for i, why in enumerate(model.explain(X[:20])):
                assert set(why.voters) == suggested[i]
                for name, score in why.scores.items():
                    assert score == scores[i, names.index(name)]
                assert list(why.scores.values()) == sorted(why.scores.values(), reverse=True)
                for name, voters in why.voters.items():
                    has = [near.id for near in why.neighbors if name in near.labels]
                    assert list(voters) == has
                assert set(why.parts) in (set(), suggested[i])
                if labels is single:
                    continue
                for name, parts in why.parts.items():  # they add up to the log-odds
                    p = why.scores[name]
                    if 0 < p < 1:
                        assert sum(parts.values()) == pytest.approx(np.log(p / (1 - p)), abs=1e-6)


# ------------------------------------------------------------------ memory that is only read
def check_read_only_memory(make: Make) -> None:
    """A model that joblib maps into memory read-only goes on learning."""
    X, Y = stream()
    binary, Z = binary_stream()
    with tempfile.TemporaryDirectory() as home:
        for rows, labels in ((X, Y), (sp.csr_matrix(binary), Z)):
            for n in (7, 40):
                masked = labels.astype(float)
                masked[3, 1] = np.nan
                model = make().partial_fit(rows[:n], masked[:n])
                path = Path(home) / f"{n}.joblib"
                joblib.dump(model, path)
                again = joblib.load(path, mmap_mode="r")
                for one in (model, again):
                    one.partial_fit(rows[n:], np.hstack([labels[n:], labels[n:, :1]]))
                    if _is_corrigible(make):
                        one.relabel(N - 1, np.ones(Q + 1))
                        one.forget(N - 2)
                assert_same_state(again.to_state(), model.to_state())
                del again


# ------------------------------------------------------------------ forms of input
def check_sparse_like_dense(make: Make) -> None:
    X, Y = binary_stream()
    dense = make().partial_fit(X, Y)
    for form in (sp.csr_matrix, sp.csc_matrix, sp.csr_array, sp.coo_matrix):
        model = make().partial_fit(form(X), Y)
        np.testing.assert_allclose(
            model.predict_proba(form(X)), dense.predict_proba(X), rtol=1e-5, atol=1e-6
        )
    np.testing.assert_array_equal(
        make().partial_fit(X, sp.csr_matrix(Y)).predict_proba(X), dense.predict_proba(X)
    )


def check_frames_like_arrays(make: Make) -> None:
    X, Y = stream()
    want = make().partial_fit(X, Y).predict_proba(X)
    columns = [f"x{j}" for j in range(P)]
    names = list("abcd")
    for frame in (pd.DataFrame, lambda values, columns: pl.DataFrame(values, schema=columns)):
        model = make().partial_fit(frame(X, columns=columns), frame(Y, columns=names))
        np.testing.assert_array_equal(model.predict_proba(frame(X, columns=columns)), want)
        assert model.classes_.tolist() == names
        # Older releases of scikit-learn do not see the names of newer polars frames.
        if frame is pd.DataFrame or parse_version(sklearn.__version__) >= parse_version("1.8"):
            assert model.feature_names_in_.tolist() == columns


def check_lists_like_arrays(make: Make) -> None:
    X, Y = stream()
    want = make().partial_fit(X, Y)
    model = make().partial_fit(X.tolist(), Y.tolist())
    np.testing.assert_array_equal(model.predict_proba(X), want.predict_proba(X))
    named = make().partial_fit(X, as_sets(Y), classes=list("abcd"))
    np.testing.assert_array_equal(named.predict_proba(X), want.predict_proba(X))
    assert named.predict_sets(X) == as_sets(want.predict(X))
    floats = make().partial_fit(X, Y.astype(float))
    np.testing.assert_array_equal(floats.predict_proba(X), want.predict_proba(X))
    views = make().partial_fit(np.asfortranarray(X)[::1], np.asfortranarray(Y))
    np.testing.assert_array_equal(views.predict_proba(X), want.predict_proba(X))


# ------------------------------------------------------------------ scikit-learn
def check_clone(make: Make) -> None:
    X, Y = stream()
    model = make()
    params = model.get_params()
    assert clone(model).get_params() == params
    assert type(model)().set_params(**params).get_params() == params
    fresh = clone(model.fit(X, Y))
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    assert_same_state(fresh.fit(X, Y).to_state(), model.to_state())


def check_scikit_learn(make: Make) -> None:
    """Run scikit-learn's own checks: none may fail, skipped ones are skipped by themselves.

    One of them expects `predict` to round the probabilities, which is the rule "hamming". A learner
    whose default is another rule passes that one with this rule.
    """
    rounds = "check_classifier_multioutput"
    model = make()
    other = "decide" in model.get_params() and model.decide != "hamming"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = estimator_checks.check_estimator(
            model,
            on_fail=None,
            expected_failed_checks={rounds: "the decision is another"} if other else {},
        )
        if other:
            estimator_checks.check_classifier_multioutput(
                type(model).__name__, model.set_params(decide="hamming")
            )
    failed = [
        f"{r['check_name']}: {r['exception']!r}"
        for r in results
        if r["status"] not in ("passed", "skipped")
        and (r["status"], r["check_name"]) != ("xfail", rounds)
    ]
    assert not failed, "\n".join(failed)
    assert sum(r["status"] == "passed" for r in results) > 40


# What is compared to the last bit.
EXACT = {
    check_dull_data,
    check_chunking,
    check_chunking_of_sparse_rows,
    check_chunking_of_label_sets,
    check_seed_reproduces,
    check_fit_forgets,
    check_a_view_stays_as_it_was,
    check_readers_beside_a_learner,
    check_corrections_are_events_of_the_stream,
    check_state_round_trip,
    check_read_only_memory,
}

ALL = [
    check
    for name, check in sorted(globals().items())
    if name.startswith("check_") and name != "check_estimator"
]
