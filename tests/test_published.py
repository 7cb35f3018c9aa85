"""The paper's variant of OML against a naive pass of its Algorithm 1, and claim by claim."""

from __future__ import annotations

import copy
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import reference as slow
from tagstream import KNN, PublishedOML, load, make_stream
from tagstream.data import DATASETS
from tagstream.testing import assert_same_state


def draw(n=200, p=8, q=5, seed=0):
    made = make_stream(n, p=p, q=q, seed=seed, n_factors=3, cardinality=min(2.5, q / 3))
    return np.asarray(made.X, np.float32), np.asarray(made.Y, np.uint8)


def about(model):
    """Return the counters that the rounds leave behind."""
    return model.to_state()["learner"]["space"]


def feed(model, X, Y, cuts):
    for start, stop in itertools.pairwise(sorted({0, *cuts, len(Y)})):
        if stop == start + 1:
            model.learn_one(X[start], Y[start])
        else:
            model.partial_fit(X[start:stop], Y[start:stop])
    return model


def least_squares_map(X, Y):
    P = np.linalg.pinv(X.astype(float)) @ Y
    return lambda x: x.astype(float) @ P


def naive_votes(run, X, Y, queries, k, lo=0):
    codes, asked = run.codes(X[lo:], fresh=True), run.codes(queries, fresh=True)
    return np.array([slow.votes(slow.nearest(codes, c, k)[1], Y[lo:]) for c in asked])


# ---------------------------------------------------------------------- against a naive pass


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize(
    ("step", "update", "most"),
    [
        ("cubic", "inverse", 0.05),
        ("printed", "inverse", 0.05),
        ("exact", "inverse", 1e-3),
        ("exact", "linear", 1e-2),
        ("cubic", "linear", 1e-2),
    ],
)
def test_a_run_equals_a_naive_pass_of_algorithm_1(step, update, most, window):
    X, Y = draw(110, p=5, seed=2)
    how = {"step": step, "update": update, "window": window}
    model = PublishedOML(first_block=40, step_max=most, random_state=3, **how)
    V_1 = copy.deepcopy(model).partial_fit(X[:40], Y[:40]).V_
    model.partial_fit(X[:90], Y[:90])
    least = 0 if step == "exact" else 1e-5
    naive = slow.run(
        X[:90], Y[:90], V_1, fit=least_squares_map, fit_at=[40], neighbor="input", least=least,
        most=most, **how,
    )  # fmt: skip
    np.testing.assert_allclose(model.V_, naive.V, rtol=1e-6, atol=1e-6)
    assert len(naive.losses) == 50
    assert about(model)["cumulative_loss"] == pytest.approx(sum(naive.losses), rel=1e-6)
    assert about(model)["n_updates"] == sum(lam > 0 for lam in naive.steps)
    expected = naive_votes(naive, X[:90], Y[:90], X[90:], 10, 0 if window is None else 50)
    np.testing.assert_allclose(model.predict_proba(X[90:]), expected, atol=1e-6)
    np.testing.assert_array_equal(model.predict(X[90:]), expected >= 0.5)


def test_with_unknown_labels_a_run_equals_the_naive_run_over_the_known_ones():
    # P is fixed by the first block, which is known; then a third of the entries is not.
    X, Y = draw(100, p=5, seed=4)
    known = np.random.default_rng(5).random(Y.shape) < 0.7
    known[:40] = True
    given = np.where(known, Y, np.nan)
    model = PublishedOML(first_block=40, step="exact", step_min=0, step_max=1e-3, random_state=0)
    V_1 = copy.deepcopy(model).partial_fit(X[:40], given[:40]).V_
    model.partial_fit(X, given)
    naive = slow.run(
        X, Y * known, V_1, fit=least_squares_map, fit_at=[40], neighbor="input",
        known=known, step="exact", update="inverse", least=0, most=1e-3,
    )  # fmt: skip
    np.testing.assert_allclose(model.V_, naive.V, atol=1e-8)
    assert about(model)["cumulative_loss"] == pytest.approx(sum(naive.losses), rel=1e-8)
    assert (model.V_ != V_1).any()


# ---------------------------------------------------------------------- the first block


def test_the_first_block_is_exactly_as_long_as_asked_however_it_arrives():
    X, Y = draw(80, seed=8)
    for cuts in ([], [10, 30], [49], [50], [51], range(80)):
        model = PublishedOML(first_block=50, random_state=0)
        feed(model, X[:49], Y[:49], [c for c in cuts if c < 49])
        assert not model.P_.any()
        assert about(model)["n_updates"] == about(model)["cumulative_loss"] == 0
        V_1 = model.V_.copy()
        model.learn_one(X[49], Y[49])  # the fiftieth fills the block and has no round
        expected = np.linalg.pinv(X[:50].astype(float)) @ Y[:50]
        np.testing.assert_allclose(model.P_, expected, atol=1e-6)
        np.testing.assert_array_equal(model.V_, V_1)
        assert about(model)["n_updates"] == 0
        P = model.P_.copy()
        feed(model, X[50:], Y[50:], [c - 50 for c in cuts if c > 50])
        np.testing.assert_array_equal(model.P_, P)  # never fitted again
        assert (model.V_ != V_1).any()
        assert about(model)["n_updates"] + about(model)["n_degenerate"] <= 30


def test_it_learns_from_the_very_example_after_the_first_block():
    X, Y = draw(60, seed=9)
    learned = []
    for t in range(50, 60):
        model = PublishedOML(first_block=t, random_state=0).partial_fit(X[:t], Y[:t])
        assert about(model)["loss"] == 0
        now = about(model.learn_one(X[t], Y[t]))
        if now["n_degenerate"]:  # nothing to tell apart: no loss, no step
            assert now["n_updates"] == now["loss"] == now["step"] == 0
        else:
            assert (now["n_updates"] == 1) == (now["loss"] > 0) == (now["step"] > 0)
        learned.append(now["n_updates"])
    assert model.n_seen_ == 60
    assert 0 < sum(learned) < 10  # some examples teach it, some it has right


def test_until_the_first_block_is_full_prediction_is_plain_nearest_neighbours():
    X, Y = draw(60, seed=10)
    model = PublishedOML(first_block=50).partial_fit(X[:49], Y[:49])
    plain = KNN().partial_fit(X[:49], Y[:49])
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    more = (X[49:50], Y[49:50])
    full, plain = model.partial_fit(*more), plain.partial_fit(*more)
    assert (full.kneighbors(X)[0] != plain.kneighbors(X)[0]).any()


def test_v_1_is_standard_normal_with_fewer_columns_than_rows():
    X, Y = draw(60, q=12, seed=11)
    drawn = [
        PublishedOML(first_block=50, random_state=s).partial_fit(X[:50], Y[:50]).V_
        for s in range(60)
    ]
    assert {V.shape for V in drawn} == {(12, 6)}
    numbers = np.ravel(drawn)
    assert abs(numbers.mean()) < 4 / np.sqrt(len(numbers))
    assert abs(numbers.var() - 1) < 4 * np.sqrt(2 / len(numbers))
    assert abs((numbers**4).mean() - 3) < 4 * np.sqrt(96 / len(numbers))
    assert PublishedOML(first_block=50, n_components=3).partial_fit(X, Y).V_.shape == (12, 3)


def test_the_defaults_are_the_papers_setting():
    expected = {
        "step": "cubic", "step_min": 1e-5, "step_max": 1e5, "update": "inverse",
        "first_block": 200, "n_neighbors": 10, "decide": 0.5, "window": None,
        "n_components": None,
    }  # fmt: skip
    assert expected.items() <= PublishedOML().get_params().items()


# ---------------------------------------------------------------------- errata


def test_e3_misprinted_v_vanishes_but_distances_and_votes_stay_finite():
    X, Y = draw(400, seed=12)
    model = PublishedOML(first_block=60, step="printed", random_state=0).partial_fit(X, Y)
    assert 0 < np.abs(model.V_).max() < 1e-9
    assert np.isfinite(model.predict_proba(X[:9])).all()
    distances = model.kneighbors(X[:9])[0]
    assert np.isfinite(distances).all()
    assert (distances[:, -1] > distances[:, 0]).all()  # tiny V does not flatten the order


@pytest.mark.parametrize(("name", "p", "q"), [("image", 294, 5), ("slashdot", 1079, 22)])
def test_e4_sizes_that_the_paper_misprints(name, p, q):
    printed = (103, 14)
    assert (DATASETS["yeast"].p, DATASETS["yeast"].q) == printed  # another data set's row
    assert (DATASETS[name].p, DATASETS[name].q) == (p, q) != printed
    home = os.environ.get("TAGSTREAM_DATA")
    if home and (Path(home) / name).is_dir():
        data = load(name, data_home=home)
        assert (data.X.shape[1], data.Y.shape[1]) == (p, q)


# ---------------------------------------------------------------------- one stream, one state


@pytest.mark.exact
@pytest.mark.parametrize("window", [None, 45])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_state_does_not_depend_on_the_cuts_while_labels_appear(window, sparse):
    X, Y = draw(160, q=9, seed=15)
    Y[:70, 5:] = 0
    sets = [{"abcdefghi"[j] for j in np.flatnonzero(row)} for row in Y]
    rows = sp.csr_matrix(np.where(X > 0.5, X, 0)) if sparse else X
    made = []
    for cuts in ([], [39, 40, 41], range(0, 160, 13)):
        model = PublishedOML(first_block=40, window=window, random_state=1)
        for start, stop in itertools.pairwise(sorted({0, *cuts, 160})):
            model.partial_fit(rows[start:stop], sets[start:stop])
            model.predict(rows[:2])
        made.append(model.to_state())
    assert_same_state(made[1], made[0])
    assert_same_state(made[2], made[0])
    assert len(made[0]["names"]) == 9


def test_the_seed_draws_v():
    X, Y = draw(90, seed=20)
    one, same, other = (PublishedOML(first_block=40, random_state=s).fit(X, Y) for s in (1, 1, 2))
    assert_same_state(one.to_state(), same.to_state())
    assert (one.V_ != other.V_).any()
    assert (one.predict_proba(X) != other.predict_proba(X)).any()


def test_neighbours_are_the_nearest_codes_with_the_present_v():
    X, Y = draw(160, seed=42)
    model = PublishedOML(first_block=50, step_max=0.05, random_state=0)
    model.partial_fit(X[:140], Y[:140])
    codes, asked = (rows.astype(float) @ model.P_ @ model.V_ for rows in (X[:140], X[140:]))
    distances, numbers = model.kneighbors(X[140:], n_neighbors=7)
    for i, code in enumerate(asked):
        squares, positions = slow.nearest(codes, code, 7)
        assert numbers[i].tolist() == positions
        np.testing.assert_allclose(distances[i], np.sqrt(squares), rtol=1e-4)


# ---------------------------------------------------------------------- events


def test_items_can_be_corrected_and_forgotten_but_labels_stay():
    X, Y = draw(80, seed=43)
    sets = [{"abcde"[j] for j in np.flatnonzero(row)} for row in Y]
    model = PublishedOML(n_neighbors=1, first_block=40, random_state=0).partial_fit(X, sets)
    model.relabel(7, {"a", "e"})
    assert model.predict_sets(X[7:8]) == [{"a", "e"}]
    model.forget(7)
    assert 7 not in model.kneighbors(X, 79, return_distance=False)
    assert model.kneighbors(X, 100)[1].shape == (80, 79)
    before = model.to_state()
    for call in (lambda: model.remove_label("a"), lambda: model.merge_labels(["a", "b"], "c")):
        with pytest.raises(ValueError, match="use OML"):
            call()
    assert_same_state(model.to_state(), before)


@pytest.mark.parametrize("all_gone", [False, True])
def test_a_first_block_of_which_items_were_forgotten_is_fitted_on_the_others(all_gone):
    X, Y = draw(60, seed=44)
    model = PublishedOML(first_block=40, random_state=0).partial_fit(X[:39], Y[:39])
    for i in range(39) if all_gone else (3, 20):
        model.forget(i)
    model.partial_fit(X[39:40], Y[39:40])
    rest = [39] if all_gone else [i for i in range(40) if i not in (3, 20)]
    expected = np.linalg.pinv(X[rest].astype(float)) @ Y[rest]
    np.testing.assert_allclose(model.P_, expected, atol=1e-6)
    assert np.isfinite(model.partial_fit(X[40:], Y[40:]).predict_proba(X)).all()


# ---------------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": "newton"}, "step must be one of 'exact', 'cubic', 'printed', got 'newton'"),
        ({"update": None}, "update must be one of"),
        ({"step_min": 1.0, "step_max": 0.5}, "step_max must be a number of at least 1, got 0.5"),
        ({"first_block": 0}, "first_block must be"),
        ({"n_components": 0}, "n_components must be"),
        ({"window": -1}, "window must be an integer of at least 1 or None, got -1"),
        ({"decide": 1.5}, "decide must be a number between 0 and 1, got 1.5"),
    ],
)
def test_a_parameter_of_no_meaning_is_named_and_changes_nothing(changes, message):
    X, Y = draw(60, seed=51)
    with pytest.raises(ValueError, match=message):
        PublishedOML(**changes).fit(X, Y)
    model = PublishedOML(first_block=30, random_state=0).partial_fit(X, Y)
    before = copy.deepcopy(model.to_state()["learner"])
    good = model.get_params()
    model.set_params(**changes)
    for call in (model.partial_fit, model.fit):
        with pytest.raises(ValueError, match=message):
            call(X, Y)
    with pytest.raises(ValueError, match=message):
        model.learn_one(X[0], Y[0])
    assert_same_state(model.set_params(**good).to_state()["learner"], before)
