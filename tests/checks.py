"""The contract of all learners: ``check_*(make)`` takes a function that makes a fresh model.

``make(**params)`` must make small models: whatever a learner does at fixed times (a first block,
a refit) should happen within the 60 examples of :func:`stream`.
"""

from __future__ import annotations

import copy
import itertools
import pickle
import warnings
from collections.abc import Callable
from typing import Any

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
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.fixes import parse_version

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
        together = model.predict_proba(X)
        alone = np.array([model.predict_proba_one(x) for x in X])
        np.testing.assert_allclose(alone, together, rtol=1e-9, atol=1e-12)


def check_scores(make: Make) -> None:
    X, Y = stream()
    for n in (1, 3, N):
        model = make().partial_fit(X[:n], Y[:n])
        scores = model.predict_proba(X)
        assert scores.shape == (N, Q)
        assert scores.dtype == np.float64
        assert ((scores >= 0) & (scores <= 1)).all()
        np.testing.assert_array_equal(model.predict(X), scores >= model.threshold)
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
        if name == "memory":
            continue  # an object of the caller's
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
    """Run scikit-learn's own checks: none may fail, skipped ones are skipped by themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(make(), on_fail=None)
    failed = [
        f"{r['check_name']}: {r['exception']!r}"
        for r in results
        if r["status"] not in ("passed", "skipped")
    ]
    assert not failed, "\n".join(failed)
    assert sum(r["status"] == "passed" for r in results) > 40


ALL = [
    check
    for name, check in sorted(globals().items())
    if name.startswith("check_") and name != "check_estimator"
]
