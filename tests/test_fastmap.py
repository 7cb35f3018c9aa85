"""The fast map against full matrices; its snapshots, its table, its file form."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import reference as slow
from tagstream.core import fastmap as loops
from tagstream.core.inputs import inputs_of
from tagstream.evidence.fastmap import FastMap, sums_of_squares


def thinned(rng, n, p, kept=0.3):
    return np.where(rng.random((n, p)) < kept, rng.normal(size=(n, p)), 0).astype(np.float32)


def stream(seed, sparse, n=40, p=12, q=5):
    rng = np.random.default_rng(seed)
    X = thinned(rng, n, p) if sparse else rng.normal(2, 3, size=(n, p)).astype(np.float32)
    Y = (rng.random((n, q)) < 0.4).astype(np.uint8)
    return X, rng.normal(0.3, 0.5, (n, q)), Y, rng.random((n, q)) < 0.8


def made(sparse, q=5, p=12, counts=None):
    fast = FastMap(sparse=sparse)
    fast.grow(q)
    s = np.linspace(0, 9, p)
    about = {} if sparse else {"shift": np.full(p, 2.0), "factor": np.linspace(0.1, 1, p)}
    fast.reset(s, 0.7, counts=counts, **about)
    return fast, s


def rows_of(X, sparse):
    return inputs_of(sp.csr_matrix(X) if sparse else X)


def taught(fast, X, Z, Y, known, sparse, rows=None):
    for i in range(len(X)) if rows is None else rows:
        fast.learn(rows_of(X[i : i + 1], sparse), Z[i : i + 1], Y[i : i + 1], known[i : i + 1])
    return fast


@pytest.mark.parametrize("sparse", [False, True])
def test_the_map_is_that_of_full_matrices(sparse):
    X, Z, Y, known = stream(1, sparse)
    fast, s = made(sparse)
    naive = slow.SlowFastMap(s, 0.7, 5, None)
    ready = X.astype(float) if sparse else (X.astype(float) - 2) * np.linspace(0.1, 1, 12)
    for i in range(len(X)):
        np.testing.assert_allclose(
            fast(rows_of(X[i : i + 1], sparse), Z[i : i + 1])[0], naive(ready[i], Z[i]),
            rtol=1e-4, atol=1e-5,
        )  # fmt: skip
        taught(fast, X, Z, Y, known, sparse, [i])
        naive.learn(ready[i], Z[i], Y[i], known[i])
    assert np.abs(naive.D).max() > 0.1  # something was learnt


@given(st.integers(0, 10**6), st.booleans(), st.floats(1e-6, 1e6))
@settings(max_examples=50, deadline=None)
def test_a_step_goes_towards_the_labels_and_never_past_them(seed, sparse, rho):
    X, Z, Y, known = stream(seed, sparse, n=6)
    fast = FastMap(sparse=sparse)
    fast.grow(5)
    fast.reset(np.zeros(12), rho)
    for i in range(len(X)):
        x, z = rows_of(X[i : i + 1], sparse), Z[i : i + 1]
        before = fast(x, z)[0]
        fast.learn(x, z, Y[i : i + 1], known[i : i + 1])
        after = fast(x, z)[0]
        slack = 1e-5 * (1 + np.abs(before))
        target = Y[i].astype(float)
        beyond = np.where(Y[i] == 1, before > 1, before < 0) | ~known[i]
        np.testing.assert_allclose(after[beyond], before[beyond], atol=1e-9)
        low, high = np.minimum(before, target) - slack, np.maximum(before, target) + slack
        assert ((low <= after) & (after <= high))[~beyond].all()


@pytest.mark.parametrize("sparse", [False, True])
def test_a_correction_moves_the_labels_that_it_adds_and_no_others(sparse):
    fast, X = made(sparse)[0], stream(8, sparse)[0]
    x, z = rows_of(X[20:21], sparse), np.full((1, 5), 0.3)
    before, added = fast(x, z)[0], np.array([True, False, False, True, False])
    fast.correct(x, z, added)
    after = fast(x, z)[0]
    np.testing.assert_array_equal(after[~added], before[~added])
    assert (after[added] > before[added]).all()


def test_before_the_first_fit_there_is_no_map():
    X, Z, Y, known = stream(2, True)
    fast = FastMap(sparse=True)
    fast.grow(5)
    assert not fast.active
    taught(fast, X, Z, Y, known, True)
    np.testing.assert_array_equal(fast(rows_of(X, True), Z), Z)


def test_only_touched_features_have_a_row():
    fast = FastMap(sparse=True)
    fast.grow(2)
    fast.reset(np.ones(1 << 20), 1.0)
    row = sp.csr_matrix(([1.0, 2.0], ([0, 0], [5, 1 << 19])), shape=(1, 1 << 20))
    fast.learn(inputs_of(row), np.zeros((1, 2)), np.array([[1, 0]], np.uint8))
    assert fast.dump()["features"].tolist() == [5, 1 << 19]
    assert fast.state.D.nbytes < 10_000


@pytest.mark.parametrize("sparse", [False, True])
def test_a_snapshot_stays_and_the_map_goes_on_as_if_none_had_been_taken(sparse):
    X, Z, Y, known = stream(3, sparse)
    plain = taught(made(sparse)[0], X, Z, Y, known, sparse)
    fast, seen = made(sparse)[0], []
    inputs = rows_of(X, sparse)
    for i in range(len(X)):
        if i % 3 == 0:
            view = fast.snapshot()
            seen.append((view, view(inputs, Z)))
        taught(fast, X, Z, Y, known, sparse, [i])
    for view, before in seen:
        np.testing.assert_array_equal(view(inputs, Z), before)
    for name, value in plain.dump().items():
        np.testing.assert_array_equal(fast.dump()[name], value, err_msg=name)


@pytest.mark.parametrize("sparse", [False, True])
def test_new_labels_are_as_if_nobody_ever_had_them(sparse):
    X, Z, Y, known = stream(4, sparse)
    known[:] = True
    Y[:20, 3:], Z[:20, 3:] = 0, 0
    whole, part = made(sparse, counts=np.array([19, 10, 9, 0, 0]))[0], FastMap(sparse=sparse)
    part.grow(3)
    about = {} if sparse else {"shift": np.full(12, 2.0), "factor": np.linspace(0.1, 1, 12)}
    part.reset(np.linspace(0, 9, 12), 0.7, counts=np.array([19, 10, 9]), **about)
    taught(whole, X, Z, Y, known, sparse)
    taught(part, X, Z[:, :3], Y[:, :3], known[:, :3], sparse, range(20))
    part.grow(5)
    taught(part, X, Z, Y, known, sparse, range(20, 40))
    for name, value in whole.dump().items():
        np.testing.assert_array_equal(part.dump()[name], value, err_msg=name)
    assert whole.state.fresh.tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("sparse", [False, True])
def test_a_loaded_map_goes_on_to_the_bit(sparse):
    X, Z, Y, known = stream(5, sparse)
    fast = taught(made(sparse)[0], X, Z, Y, known, sparse, range(20))
    again = FastMap.load(fast.dump(), 5, sparse=sparse, width=len(fast.state.s))
    for one in (fast, again):
        taught(one, X, Z, Y, known, sparse, range(20, 40))
    for name, value in fast.dump().items():
        np.testing.assert_array_equal(again.dump()[name], value, err_msg=name)
    assert again.nbytes > 0


def test_an_empty_map_is_saved_and_loaded():
    empty = FastMap(sparse=True)
    empty.grow(2)
    assert not FastMap.load(empty.dump(), 2, sparse=True, width=0).active


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("D", np.zeros((3, 9), np.float32), "D must be float32"),
        ("fresh", np.full(5, 3, np.uint8), "fresh must hold 0 and 1"),
        ("features", np.zeros(0, np.int32), "features must be int32"),
        ("seen", np.array([3, 3], np.int32), "seen must rise"),
        ("rho", 0.0, "rho must be"),
        ("width", -1, "the fast map must have .* features, got -1"),
        ("s", np.full(12, 1e300), "s must"),
    ],
)
def test_a_damaged_state_is_refused(part, value, message):
    X, Z, Y, known = stream(6, True)
    state = taught(made(True)[0], X, Z, Y, known, True).dump()
    with pytest.raises(ValueError, match=message):
        FastMap.load(state | {part: value}, 5, sparse=True, width=state["width"])
    with pytest.raises(ValueError, match="the fast map"):
        FastMap.load({}, 5, sparse=True, width=3)


def test_sums_of_squares_are_those_of_the_columns():
    X = thinned(np.random.default_rng(7), 30, 6)
    expected = (X.astype(float) ** 2).sum(axis=0)
    np.testing.assert_allclose(sums_of_squares(X), expected)
    np.testing.assert_array_equal(sums_of_squares(sp.csr_matrix(X)), sums_of_squares(X))
    shifted = sums_of_squares(X, np.full(6, 0.5), np.full(6, 2.0))
    np.testing.assert_allclose(shifted, ((X.astype(float) - 0.5) ** 2 * 4).sum(axis=0))


def test_a_dense_map_never_trusts_a_direction_that_hardly_varies():
    fast = FastMap(sparse=False)
    fast.grow(1)
    fast.reset(np.array([1000.0, 0.0]), 1e-9)
    assert fast.state.rho[0] == pytest.approx(0.5)
    assert loops.RATE == 8
