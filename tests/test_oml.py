"""OML as a whole: against a naive pass over the stream, and claim by claim."""

from __future__ import annotations

import copy
import itertools
import threading
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

import reference as slow
from tagstream import KNN, OML, make_stream, projection
from tagstream.execution.schedule import next_choice, next_fit
from tagstream.store.local import LocalStore
from tagstream.store.protocol import Neighbors
from tagstream.testing import assert_same_state

PLAIN = {"scale": None, "lift": None, "ridge": 2.0}  # nothing is chosen, nothing is drawn
VOTES = {"head": False, "decide": 0.5}  # the share of the votes is the score
HEAD = {"head": True, "decide": "balanced"}  # what users get


def voting(*args, **params):
    return OML(*args, **(VOTES | params))


@pytest.fixture(autouse=True)
def small_lifts(limits):
    """Lifts of 40 features: the claims do not depend on their number, the time does."""
    limits(lift_size=40)


class Gathering(LocalStore):
    """A store as that of a cluster: it sends the labels of neighbours, and only those."""

    def neighbors(self, *positions):
        wanted, place = np.unique(
            np.concatenate([at.ravel() for at in positions]), return_inverse=True
        )
        rows = np.split(place - (wanted[0] < 0), np.cumsum([at.size for at in positions])[:-1])
        labels = super().neighbors().labels[wanted[wanted >= 0]]
        rows = tuple(r.reshape(at.shape) for r, at in zip(rows, positions, strict=True))
        return Neighbors(rows, labels, np.empty((0, 0), np.uint8), np.empty(0, bool))


def draw(n=200, p=8, q=5, seed=0, sparse=False, **how):
    how = {"n_factors": min(3, p, q - 1), "cardinality": min(2.5, q / 3), "sparse": sparse} | how
    made = make_stream(n, p=p, q=q, seed=seed, **how)
    X = made.X if sparse else np.asarray(made.X, np.float64)
    return X, np.asarray(made.Y.toarray() if sp.issparse(made.Y) else made.Y, np.uint8)


@pytest.mark.parametrize("window", [None, 60])
def test_asking_before_learning_changes_nothing_wherever_examples_are_kept(window):
    class Home:
        def open(self, p, *, sparse, window):
            return Gathering(p, sparse=sparse, window=window)

    X, Y = draw(90)
    plain = OML(3, random_state=0, window=window).partial_fit(X, Y)
    model = OML(3, random_state=0, window=window, store=Home()).partial_fit(X[:40], Y[:40])
    for x, y in zip(X[40:], Y[40:], strict=True):
        model.predict_one(x)
        model.learn_one(x, y)
    assert_same_state(model.to_state()["learner"], plain.to_state()["learner"])


@pytest.mark.parametrize("make", [partial(OML, random_state=0), KNN])
def test_a_lag_that_is_set_later_is_for_the_next_fit(make):
    X, Y = draw(90)
    plain, asked = (make(head=True).partial_fit(X[:40], Y[:40]).set_params(lag=3) for _ in range(2))
    same = make(head=True).partial_fit(X, Y)
    for x, y in zip(X[40:], Y[40:], strict=True):
        asked.predict_one(x)
        asked.learn_one(x, y)
        plain.learn_one(x, y)
    for model in plain, asked:
        assert_same_state(model.to_state()["learner"], same.to_state()["learner"])


def as_sets(Y, names="abcdefghijkl"):
    return [{names[j] for j in np.flatnonzero(row)} for row in Y]


def fits(n, window=None):
    t, out = 0, []
    while (t := next_fit(t, window)) <= n:
        out.append(t)
    return out


def feed(model, X, Y, cuts):
    """Learn the rows cut at ``cuts``; single rows go through ``learn_one``."""
    for start, stop in itertools.pairwise(sorted({0, *cuts, len(Y)})):
        if stop == start + 1 and not sp.issparse(X):
            model.learn_one(X[start], Y[start])
        else:
            model.partial_fit(X[start:stop], Y[start:stop])
    return model


# ---------------------------------------------------------------------- against a naive pass


def ridge_map(rho):
    def fit(X, Y):
        P, c = slow.ridge(X.astype(float), Y.astype(float), rho)
        return lambda x: x.astype(float) @ P + c

    return fit


def naive_votes(run, X, Y, queries, k, *, fresh, lo=0):
    codes, asked = run.codes(X[lo:], fresh=fresh), run.codes(queries, fresh=fresh)
    return np.array([slow.votes(slow.nearest(codes, c, k)[1], Y[lo:]) for c in asked])


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("most", [1e-3, 1e-2, 1e9])
def test_a_run_equals_the_naive_run(window, most):
    X, Y = draw(120, seed=1)
    X = X.astype(np.float32)
    model = voting(n_neighbors=5, step_max=most, window=window, **PLAIN)
    model.partial_fit(X[:100], Y[:100])
    naive = slow.run(
        X[:100], Y[:100], np.eye(5), fit=ridge_map(2.0), fit_at=fits(100, window), least=0,
        most=most, neighbor="embedding", window=window, step="exact", update="inverse",
    )  # fmt: skip
    np.testing.assert_allclose(model.V_, naive.V, rtol=0, atol=1e-8)
    assert model.cumulative_loss_ == pytest.approx(sum(naive.losses), rel=1e-8)
    assert model.n_updates_ == sum(lam > 0 for lam in naive.steps) > 20
    assert model.loss_ == pytest.approx(naive.losses[-1], abs=1e-8)
    assert model.step_ == pytest.approx(naive.steps[-1], abs=1e-8)
    lo = 0 if window is None else 100 - window
    expected = naive_votes(naive, X[:100], Y[:100], X[100:], 5, fresh=False, lo=lo)
    np.testing.assert_allclose(model.predict_proba(X[100:]), expected, atol=1e-6)
    np.testing.assert_array_equal(model.predict(X[100:]), expected >= 0.5)


@pytest.mark.exact
@pytest.mark.parametrize("window", [None, 40])
def test_the_head_does_not_touch_the_metric(window):
    # P, V and codes follow from the examples; who is believed is another matter.
    X, Y = draw(150, seed=1)
    one, other = (make(random_state=0, window=window).partial_fit(X, Y) for make in (OML, voting))
    for name in ("store", "space", "projection"):
        assert_same_state(one.to_state()["learner"][name], other.to_state()["learner"][name])


# ---------------------------------------------------------------------- the beginning


def test_it_answers_from_the_first_example_on():
    X, Y = draw(30, seed=6)
    Y[0] = [1, 0, 1, 0, 0]
    model = voting(n_neighbors=3).learn_one(X[0], Y[0])
    np.testing.assert_array_equal(model.predict(X[:4]), np.tile(Y[0], (4, 1)))
    for t in range(1, 30):
        votes = model.predict_proba(X[t : t + 1])[0]
        assert model.kneighbors(X[t : t + 1])[1].shape == (1, min(3, t))
        assert ((votes >= 0) & (votes <= 1)).all()
        model.learn_one(X[t], Y[t])


def test_before_the_first_fit_it_is_plain_nearest_neighbours():
    X, Y = draw(40, seed=7)
    model, plain = voting(n_neighbors=4), KNN(n_neighbors=4)
    for t in range(1, 20):
        model.learn_one(X[t], Y[t])
        plain.learn_one(X[t], Y[t])
        np.testing.assert_array_equal(model.predict_proba(X[20:]), plain.predict_proba(X[20:]))
    assert not model.P_.any()
    assert not model.transform(X).any()


def test_fewer_than_k_stored_examples_vote_among_themselves():
    X = np.array([[0.0], [1.0], [2.0]])
    Y = np.array([[1, 0], [1, 1], [0, 0]])
    votes = voting(n_neighbors=10).partial_fit(X, Y).predict_proba([[5.0]])
    np.testing.assert_allclose(votes, [[2 / 3, 1 / 3]], atol=1e-6)


def test_ties_go_to_the_older_item():
    X = np.zeros((30, 2))
    Y = np.repeat([[1, 0], [0, 1]], 15, axis=0)
    model = voting(n_neighbors=4, **PLAIN).partial_fit(X, Y)
    assert model.kneighbors([[0.0, 0.0]], return_distance=False).tolist() == [[0, 1, 2, 3]]
    assert model.predict([[0.0, 0.0]]).tolist() == [[1, 0]]


def test_an_even_vote_is_a_yes():
    X = np.zeros((4, 1))
    model = voting(n_neighbors=4).partial_fit(X, np.array([[1, 1], [1, 0], [0, 0], [0, 0]]))
    assert model.predict([[0.0]]).tolist() == [[1, 0]]


@pytest.mark.parametrize("threshold", [0.2, 0.4, 0.6, 0.8, 1.0])
def test_the_threshold_is_a_share_of_the_votes_and_includes_itself(threshold):
    X = np.zeros((5, 1))
    Y = np.array([[1] * (j + 1) + [0] * (4 - j) for j in range(5)]).T  # shares 1/5, …, 5/5
    for model in (voting(5, 5, decide=threshold), KNN(5, decide=threshold)):
        shares = np.arange(1, 6) / 5
        predicted = model.partial_fit(X, Y).predict([[0.0]])[0]
        assert predicted.tolist() == (shares >= threshold - 1e-9).astype(int).tolist()


# ---------------------------------------------------------------------- one stream, one state

CUTS = [[19, 20, 21], [1, 7, 100, 101, 102, 180], range(0, 200, 13)]
SETTINGS = {
    "default": {},
    "linear": {"lift": None},
    "kernel": {"lift": "kernel"},
    "fourier": {"lift": "fourier"},
    "windowed": {"window": 45},
    "kernel window": {"lift": "kernel", "window": 60},
    "fourier window": {"lift": "fourier", "window": 60},
    "narrow": {"n_components": 2, "lift": None},
    "uncapped": {"step_max": 1e9},
    "head": HEAD,
    "head window": HEAD | {"window": 45},
    "head lag": HEAD | {"lag": 7},
    "head lag window": HEAD | {"lag": 9, "window": 30},
    "head lifted": HEAD | {"lift": "kernel", "window": 60},
    "head narrow": HEAD | {"n_components": 2, "lift": None},
}


@pytest.mark.exact
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_state_does_not_depend_on_the_cuts(setting):
    X, Y = draw(200, seed=13)
    whole = voting(random_state=1, **SETTINGS[setting]).partial_fit(X, Y).to_state()
    for cuts in CUTS:
        other = feed(voting(random_state=1, **SETTINGS[setting]), X, Y, cuts).to_state()
        assert_same_state(other, whole)


@pytest.mark.exact
def test_learn_one_two_hundred_times_is_one_partial_fit():
    X, Y = draw(200, seed=14)
    for model in (voting(random_state=0), OML(random_state=0)):
        whole = copy.deepcopy(model).partial_fit(X, Y).to_state()
        assert_same_state(feed(model, X, Y, range(200)).to_state(), whole)


@pytest.mark.exact
@pytest.mark.parametrize("setting", SETTINGS)
def test_asking_before_learning_changes_nothing(setting):
    # What was found out about a row is used again when the same row is learnt.
    X, Y = draw(120, q=6, n_late=2, seed=57)
    names = np.array(list("abcdef"))
    silent, asked, misled = (voting(random_state=1, **SETTINGS[setting]) for _ in range(3))
    for t in range(120):
        y = set(names[Y[t] == 1])
        silent.learn_one(X[t], y)
        if t:
            asked.predict_one(X[t])
            misled.predict_one(X[t - 1])
        asked.learn_one(X[t], y)
        misled.learn_one(X[t], y)
    assert_same_state(asked.to_state(), silent.to_state())
    assert_same_state(misled.to_state(), silent.to_state())


@pytest.mark.exact
@pytest.mark.parametrize("setting", SETTINGS)
def test_one_row_is_answered_as_among_many(setting):
    X, Y = draw(150, seed=55)
    model = voting(random_state=1, **SETTINGS[setting])
    for start, stop in [(0, 10), (10, 60), (60, 120)]:
        model.partial_fit(X[start:stop], Y[start:stop])
        together = model.predict_proba(X[100:], next=True)
        alone = [model.predict_proba_one(x) for x in X[100:]]
        np.testing.assert_array_equal(alone, together)


@pytest.mark.exact
@pytest.mark.parametrize(
    "setting",
    ["default", "windowed", "narrow", "kernel", "fourier", "head", "head window", "head lag"],
)
def test_the_state_does_not_depend_on_the_cuts_while_labels_appear(setting):
    X, Y = draw(200, q=9, n_late=4, seed=15)
    sets = as_sets(Y)
    whole = voting(random_state=1, **SETTINGS[setting]).partial_fit(X, sets).to_state()
    assert len(whole["names"]) == 9
    for cuts in CUTS:
        other = feed(voting(random_state=1, **SETTINGS[setting]), X, sets, cuts).to_state()
        assert_same_state(other, whole)


@pytest.mark.exact
@pytest.mark.parametrize(
    "setting", ["default", "windowed", "kernel", "fourier", "head", "head window", "head lag"]
)
def test_the_state_does_not_depend_on_the_cuts_with_unknown_labels(setting):
    X, Y = draw(200, seed=16)
    Y = np.where(np.random.default_rng(17).random(Y.shape) < 0.2, np.nan, Y)
    whole = voting(random_state=1, **SETTINGS[setting]).partial_fit(X, Y).to_state()
    for cuts in CUTS[1:]:
        other = feed(voting(random_state=1, **SETTINGS[setting]), X, Y, cuts).to_state()
        # Before the first unknown entry no mask is kept: rows cut off before it have none.
        assert_same_state(other, whole)


@pytest.mark.exact
@pytest.mark.parametrize(
    "setting", ["default", "windowed", "narrow", "head", "head window", "head lag"]
)
def test_the_state_does_not_depend_on_the_cuts_of_sparse_rows(setting):
    X, Y = draw(200, p=40, sparse=True, seed=18)
    whole = voting(random_state=1, **SETTINGS[setting]).partial_fit(X, Y).to_state()
    for cuts in CUTS:
        other = feed(voting(random_state=1, **SETTINGS[setting]), X, Y, cuts).to_state()
        assert_same_state(other, whole)


@pytest.mark.exact
@pytest.mark.parametrize("setting", ["default", "head"])
def test_questions_in_between_change_nothing(setting):
    X, Y = draw(150, seed=19)
    silent, asked = (voting(random_state=0, **SETTINGS[setting]) for _ in range(2))
    for start in range(0, 150, 10):
        part = slice(start, start + 10)
        silent.partial_fit(X[part], Y[part])
        asked.partial_fit(X[part], Y[part])
        asked.predict(X[:3])
        asked.kneighbors(X[:3])
        asked.transform(X[:3])
        asked.explain(X[:1])
    assert_same_state(asked.to_state(), silent.to_state())


def test_the_same_seed_gives_the_same_model_and_another_seed_another():
    X, Y = draw(150, seed=20)
    one, same, other = (voting(lift="fourier", random_state=s).fit(X, Y) for s in (1, 1, 2))
    assert_same_state(one.to_state(), same.to_state())
    assert (one.V_ != other.V_).any()
    assert (one.predict_proba(X) != other.predict_proba(X)).any()


def test_where_nothing_is_drawn_the_seed_does_not_matter():
    X, Y = draw(150, seed=21)
    one, other = (voting(lift=None, random_state=seed).fit(X, Y) for seed in (1, 2))
    np.testing.assert_array_equal(one.V_, other.V_)
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


# ---------------------------------------------------------------------- symmetries


@pytest.mark.parametrize(
    "setting", ["default", "linear", "kernel", "fourier", "windowed", "narrow", "head"]
)
def test_permuting_the_labels_permutes_the_predictions(setting):
    X, Y = draw(260, q=6, seed=22)
    order = np.array([3, 0, 5, 1, 4, 2])
    model, permuted = (
        voting(random_state=0, **SETTINGS[setting]).fit(X[:200], labels)
        for labels in (Y[:200], Y[:200][:, order])
    )
    np.testing.assert_array_equal(permuted.predict(X[200:]), model.predict(X[200:])[:, order])
    np.testing.assert_allclose(
        permuted.predict_proba(X[200:]), model.predict_proba(X[200:])[:, order], atol=1e-12
    )
    if setting != "narrow":  # there the axes of the metric space are not the labels
        np.testing.assert_allclose(permuted.V_, model.V_[np.ix_(order, order)], atol=1e-9)
    assert permuted.cumulative_loss_ == pytest.approx(model.cumulative_loss_, rel=1e-9)


@pytest.mark.exact
@pytest.mark.parametrize("setting", ["default", "linear", "kernel", "fourier", "narrow"])
@pytest.mark.parametrize("power", [-12, 9])
def test_scaling_the_features_by_a_power_of_two_scales_p_back_and_nothing_else(setting, power):
    X, Y = draw(220, seed=23)
    factor = 2.0**power
    model, scaled = (
        voting(random_state=0, **SETTINGS[setting]).fit(rows[:180], Y[:180])
        for rows in (X, factor * X)
    )
    np.testing.assert_array_equal(scaled.V_, model.V_)
    np.testing.assert_array_equal(scaled.transform(factor * X), model.transform(X))
    np.testing.assert_array_equal(scaled.predict_proba(factor * X), model.predict_proba(X))
    assert scaled.cumulative_loss_ == model.cumulative_loss_
    if model.P_.shape[0] == X.shape[1]:
        np.testing.assert_array_equal(scaled.P_ * factor, model.P_)


def test_scaling_each_feature_does_not_matter_once_they_are_standardised():
    X, Y = draw(200, seed=24)
    factors = 2.0 ** np.arange(-4, 4)
    model, scaled = (
        voting(scale="standard", random_state=0).fit(rows, Y) for rows in (X, factors * X)
    )
    np.testing.assert_allclose(scaled.transform(factors * X), model.transform(X), atol=1e-5)


# ---------------------------------------------------------------------- the window


@pytest.mark.exact
@pytest.mark.parametrize("setting", ["default", "linear", "kernel", "fourier", "narrow", "head"])
def test_a_window_that_holds_all_is_no_window(setting, limits):
    limits(lift_size=300)  # more than a window of 180 would get
    X, Y = draw(180, seed=25)
    free = voting(random_state=0, **SETTINGS[setting]).fit(X, Y).to_state()["learner"]
    for window in (180, 10**6):
        model = voting(random_state=0, window=window, **SETTINGS[setting]).fit(X, Y)
        assert_same_state(model.to_state()["learner"], free)


def test_what_left_the_window_is_neither_found_nor_voted_for_nor_in_p():
    # The first half of the stream has labels 0 and 1 only, the second 2 and 3 only.
    rng = np.random.default_rng(26)
    X = rng.normal(size=(300, 6))
    halves = np.repeat([[1, 1, 0, 0], [0, 0, 1, 1]], 150, axis=0)
    Y = halves * (rng.random((300, 4)) < 0.7)
    model = voting(window=50, random_state=0).partial_fit(X, Y)
    found = model.kneighbors(X, n_neighbors=50, return_distance=False)
    assert set(found.ravel()) == set(range(250, 300))
    assert (model.predict_proba(X)[:, :2] < 1e-6).all()
    assert not model.predict(X)[:, :2].any()
    assert np.abs(model.P_[:, :2]).max() < 1e-12
    for why in model.explain(X[:20]):
        assert all(near.id >= 250 for near in why.neighbors)


def test_p_is_fitted_on_the_windows_rows_alone():
    X, Y = draw(200, seed=27)
    X = X.astype(np.float32)
    for window in (30, 77):
        model = voting(window=window, **PLAIN).partial_fit(X, Y)
        last = max(t for t in fits(200, window))
        P, _ = slow.ridge(X[last - window : last].astype(float), Y[last - window : last], 2.0)
        np.testing.assert_allclose(model.P_, P, atol=1e-9)


@pytest.mark.exact
def test_two_streams_with_the_same_end_hold_the_same_memory():
    X, Y = draw(200, seed=28)
    Z = np.random.default_rng(29).permutation(100)
    one, other = voting(window=50, **PLAIN), voting(window=50, **PLAIN)
    one.partial_fit(X, Y)
    other.partial_fit(np.concatenate([X[Z], X[100:]]), np.concatenate([Y[Z], Y[100:]]))
    a, b = (model.to_state()["learner"]["store"] for model in (one, other))
    assert_same_state(a["rows"], b["rows"])
    assert_same_state(a["labels"], b["labels"])
    assert_same_state(one.P_, other.P_)


def test_the_window_bounds_the_memory():
    X, Y = draw(3000, p=40, q=12, seed=30)
    model = voting(window=1000, **PLAIN).partial_fit(X, Y)
    raw = 1000 * (4 * 40 + 8 * 12 + 2)  # codes are held twice
    fixed = model.P_.nbytes + 3 * model.V_.nbytes + 8 * 12
    # An eighth for the block that is being learnt, an eighth of spare room, a norm a row.
    assert model.nbytes_ - fixed <= (9 / 8) ** 2 * 1000 * (raw / 1000 + 4) + 2000


def test_choices_are_made_again_when_the_stream_has_doubled(monkeypatch):
    at, choose = [], projection.choose

    def spy(examples, **kwargs):
        at.append(len(examples))
        return choose(examples, **kwargs)

    monkeypatch.setattr(projection, "choose", spy)
    X, Y = draw(200, seed=56)
    voting(**PLAIN).partial_fit(X, Y)
    expected = [20]
    while doubled := [t for t in fits(200) if t >= 2 * expected[-1]]:
        expected.append(doubled[0])
    assert at == expected == [20, 41, 91, 182]


def test_in_a_full_window_choices_follow_when_it_was_filled_anew_four_times(monkeypatch):
    at, renew = [], OML._stop

    def spy(self, t):
        before = self._embedding.next_choice
        renew(self, t)
        at.extend([t] if self._embedding.next_choice != before else [])

    monkeypatch.setattr(OML, "_stop", spy)
    X, Y = draw(1000, seed=58)
    voting(window=40, **PLAIN).partial_fit(X, Y)
    expected = [20]
    while later := [t for t in fits(1000, 40) if t >= next_choice(expected[-1], 40)]:
        expected.append(later[0])
    assert at == expected
    assert all(160 <= b - a < 170 for a, b in itertools.pairwise(at[1:]))


def test_choices_follow_the_window_when_the_data_change():
    # From here on the features are a hundred times as large.
    X, Y = draw(3400, seed=59)
    X[2000:] *= 100
    slid = voting(window=300, random_state=0).partial_fit(X[:3200], Y[:3200])
    fresh = voting(random_state=0).partial_fit(X[2900:3200], Y[2900:3200])
    mistakes, least = ((m.predict(X[3200:]) != Y[3200:]).mean() for m in (slid, fresh))
    assert mistakes < 1.25 * least + 0.01


@pytest.mark.parametrize("window", [1, 2, 3, 5])
@pytest.mark.parametrize("make", [voting, OML])
def test_tiny_windows_work(window, make):
    X, Y = draw(60, seed=31)
    model = make(window=window, random_state=0).partial_fit(X, Y)
    assert model.kneighbors(X[:1], 10)[1].shape == (1, window)
    assert np.isfinite(model.predict_proba(X)).all()


# ---------------------------------------------------------------------- the metric


def test_v_starts_as_an_isometry_so_that_a_perfect_z_has_the_margin_of_the_labels():
    X, Y = draw(20, q=6, seed=32)
    square = voting(**PLAIN).partial_fit(X, Y).V_
    np.testing.assert_array_equal(square, np.eye(6))
    for y, y_nn in itertools.combinations(Y[:8], 2):
        about = slow.pair(y, y, y_nn)  # z = y_t
        assert slow.gain(square, about) == about.delta
        assert slow.loss(square, about) == 0
    narrow = voting(n_components=3, **PLAIN).partial_fit(X, Y).V_
    np.testing.assert_allclose(narrow.T @ narrow, np.eye(3), atol=1e-12)


def test_a_narrow_metric_starts_with_the_leading_directions_of_the_labels():
    X, Y = draw(20, q=8, seed=33)
    V = voting(n_components=3, **PLAIN).partial_fit(X, Y).V_
    top = np.linalg.svd(Y - Y.mean(axis=0))[2][:3].T
    np.testing.assert_allclose(V @ V.T, top @ top.T, atol=1e-9)


def test_what_a_narrow_metric_has_learnt_survives_the_turn_to_new_directions():
    # The directions are chosen again at the first fit from t = 40 on.  Of that example nothing is
    # known, so it has no round, and all that happens to V is the turn.
    X, Y = draw(60, q=6, seed=34)
    turn = next(t for t in fits(60) if t >= 40)
    model = voting(n_components=3, step_max=0.1, **PLAIN).partial_fit(X[: turn - 1], Y[: turn - 1])
    V, B = model.V_.copy(), model.to_state()["learner"]["space"]["basis"]
    np.testing.assert_allclose(B.T @ B, np.eye(3), atol=1e-12)
    assert np.abs(V - B).max() > 0.01  # something has been learnt
    model.partial_fit(X[turn - 1 : turn], np.full((1, 6), np.nan))
    top = np.linalg.svd(Y[: turn - 1] - Y[: turn - 1].mean(axis=0))[2][:3].T
    turned = model.to_state()["learner"]["space"]["basis"]
    np.testing.assert_allclose(turned @ turned.T, top @ top.T, atol=1e-9)
    np.testing.assert_allclose(model.V_, turned + (V - B) @ (B.T @ turned), atol=1e-12)


def test_a_cap_of_zero_learns_nothing():
    X, Y = draw(100, seed=36)
    model = voting(step_max=0.0).partial_fit(X, Y)
    np.testing.assert_array_equal(model.V_, np.eye(5))
    assert model.n_updates_ == 0
    assert model.cumulative_loss_ > 0


# ---------------------------------------------------------------------- labels that appear


@pytest.mark.exact
@pytest.mark.parametrize("setting", ["default", "linear", "kernel", "fourier", "narrow", "head"])
@pytest.mark.parametrize("n", [10, 100])
def test_old_labels_do_not_jump_when_a_new_one_appears(setting, n):
    X, Y = draw(140, seed=37)
    model = voting(random_state=0, **SETTINGS[setting]).partial_fit(X[:n], as_sets(Y[:n]))
    before, old = model.predict_proba(X), model.classes_.tolist()
    V, P = model.V_.copy(), model.P_.copy()
    model._set_names([*old, "new", "newer"])
    after = model.predict_proba(X)
    np.testing.assert_array_equal(after[:, : len(old)], before)
    assert (after[:, len(old) :] < 1e-6).all()
    assert model.classes_.tolist() == [*old, "new", "newer"]
    np.testing.assert_array_equal(model.V_[: V.shape[0], : V.shape[1]], V)
    np.testing.assert_array_equal(model.P_[:, : P.shape[1]], P)


def test_a_new_label_is_learnt():
    X, Y = draw(600, q=6, seed=38)
    new = X[:, 0] + 0.2 * np.random.default_rng(39).normal(size=600) > 0.3
    Y = np.column_stack([Y, new * (np.arange(600) >= 150)])
    sets = as_sets(Y)
    model = voting(scale=None, lift=None).partial_fit(X[:150], sets[:150])
    assert "g" not in model.classes_.tolist()
    model.partial_fit(X[150:400], sets[150:400])
    j = model.classes_.tolist().index("g")
    right = model.predict(X[400:])[:, j] == Y[400:, 6]
    assert right.mean() > 0.75
    assert model.V_.shape == (7, 7)
    assert (model.V_[j] != np.eye(7)[j]).any()


def test_labels_keep_the_order_in_which_they_appeared():
    model = voting()
    model.learn_one([0.0, 1.0], {"b"})
    model.learn_one([0.5, 1.0], {"c", "a"})  # within an item: sorted
    model.partial_fit([[0.0, 0.0]], [{"b", "a"}])
    assert model.classes_.tolist() == ["b", "a", "c"]


# ---------------------------------------------------------------------- unknown labels


def test_an_item_of_unknown_labels_has_no_loss_and_moves_no_v():
    X, Y = draw(120, seed=40)
    model = voting(**PLAIN).partial_fit(X[:100], Y[:100])
    V, total, updates = model.V_.copy(), model.cumulative_loss_, model.n_updates_
    model.partial_fit(X[100:105], np.full((5, 5), np.nan))
    np.testing.assert_array_equal(model.V_, V)
    assert model.cumulative_loss_ == total
    assert model.n_updates_ == updates
    assert model.n_seen_ == 105


def test_a_wholly_unknown_label_does_not_touch_the_others():
    X, Y = draw(150, seed=41)
    some = Y.astype(float)
    some[:, 2] = np.nan
    rest = [0, 1, 3, 4]
    with_it, without = voting(lift=None).fit(X, some), voting(lift=None).fit(X, Y[:, rest])
    np.testing.assert_allclose(
        with_it.predict_proba(X)[:, rest], without.predict_proba(X), atol=1e-12
    )
    assert with_it.cumulative_loss_ == pytest.approx(without.cumulative_loss_, rel=1e-9)
    np.testing.assert_allclose(with_it.V_[np.ix_(rest, rest)], without.V_, atol=1e-9)
    np.testing.assert_array_equal(with_it.V_[2], np.eye(5)[2])
    assert not with_it.predict_proba(X)[:, 2].any()


def test_a_neighbour_that_does_not_know_a_label_does_not_vote_on_it():
    X = np.arange(6.0)[:, None]
    Y = np.array([[1, 1], [1, np.nan], [np.nan, np.nan], [0, np.nan], [0, 0], [0, 1]])
    votes = voting(n_neighbors=6).partial_fit(X, Y).predict_proba([[2.0]])
    np.testing.assert_allclose(votes, [[2 / 5, 2 / 3]], atol=1e-6)


# ---------------------------------------------------------------------- questions


@pytest.mark.parametrize(
    "make",
    [
        lambda: voting(random_state=0),
        lambda: voting(random_state=0, window=70),
        lambda: OML(random_state=0),
    ],
)
def test_neighbours_are_the_nearest_codes(make):
    X, Y = draw(160, seed=42)
    model = make().partial_fit(X[:140], Y[:140])
    first = 0 if model.window is None else 70
    codes, asked = model.transform(X[first:140]), model.transform(X[140:])
    assert codes.dtype == np.float32
    assert codes.shape[1] == model.V_.shape[1]
    distances, numbers = model.kneighbors(X[140:], n_neighbors=7)
    for i, code in enumerate(asked):
        squares, positions = slow.nearest(codes, code, 7)
        np.testing.assert_array_equal(numbers[i], np.array(positions) + first)
        np.testing.assert_allclose(distances[i], np.sqrt(squares), rtol=1e-6)
    np.testing.assert_array_equal(
        model.kneighbors(X[140:], n_neighbors=7, return_distance=False), numbers
    )
    assert model.kneighbors(X[:2], n_neighbors=1000)[1].shape == (2, 140 - first)


def test_an_explanation_tells_who_voted_for_what():
    X, Y = draw(120, seed=43)
    names = [f"item {i}" for i in range(120)]
    model = voting(n_neighbors=5, random_state=0)
    model.partial_fit(X, as_sets(Y), ids=names)
    asked = X[:15] + 0.01
    distances, numbers = model.kneighbors(asked)
    scores, predicted = model.predict_proba(asked), model.predict_sets(asked)
    for i, why in enumerate(model.explain(asked)):
        assert [near.id for near in why.neighbors] == [names[j] for j in numbers[i]]
        np.testing.assert_array_equal([near.distance for near in why.neighbors], distances[i])
        assert [set(near.labels) for near in why.neighbors] == [as_sets(Y)[j] for j in numbers[i]]
        assert set(why.voters) == predicted[i]
        for label, voters in why.voters.items():
            has = [near.id for near in why.neighbors if label in near.labels]
            assert list(voters) == has
            assert len(has) >= 2.5
        for label, score in why.scores.items():
            assert score == scores[i, model.classes_.tolist().index(label)]
        assert list(why.scores.values()) == sorted(why.scores.values(), reverse=True)


def test_predicted_sets_are_the_names_of_the_predicted_columns():
    X, Y = draw(100, seed=44)
    model = voting(random_state=0).partial_fit(X, Y, classes=list("vwxyz"))
    expected = [{"vwxyz"[j] for j in np.flatnonzero(row)} for row in model.predict(X)]
    assert model.predict_sets(X) == expected


def test_codes_come_as_a_named_frame_when_asked():
    X, Y = draw(60, seed=45)
    model = voting(random_state=0).fit(X, Y).set_output(transform="pandas")
    frame = model.transform(X)
    assert isinstance(frame, pd.DataFrame)
    assert frame.columns.tolist() == [f"oml{j}" for j in range(5)]
    plain = voting(random_state=0).fit(X, Y).transform(X)
    np.testing.assert_array_equal(frame.to_numpy(), plain)
    np.testing.assert_array_equal(voting(random_state=0).fit_transform(X, Y), plain)


def test_attributes():
    X, Y = draw(100, p=7, q=4, seed=46)
    model = voting(lift=None).partial_fit(X[:80], Y[:80])
    assert model.P_.shape == (7, 4)
    assert model.V_.shape == (4, 4)
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.n_features_in_ == 7
    assert model.n_seen_ == 80
    assert 0 < model.n_updates_ <= 60
    assert 0 <= model.n_degenerate_ <= 60 - model.n_updates_
    total = model.cumulative_loss_
    for t in range(80, 100):
        model.learn_one(X[t], Y[t])
        total += model.loss_
        assert 0 <= model.step_ <= model.step_max
        assert (model.step_ > 0) <= (model.loss_ > 0)
    assert model.cumulative_loss_ == pytest.approx(total, rel=1e-12)
    assert voting(lift="fourier").fit(X, Y).P_.shape[1] == 4


# ---------------------------------------------------------------------- forms of input


@pytest.mark.exact
def test_every_form_of_the_same_data_gives_the_same_model():
    X, Y = draw(120, seed=47)
    X = X.astype(np.float32)
    columns = [f"f{j}" for j in range(X.shape[1])]
    expected = voting(random_state=0).fit(X, Y).predict_proba(X)
    forms = {
        "double": (X.astype(np.float64), Y.astype(np.int64)),
        "column order": (np.asfortranarray(X), np.asfortranarray(Y)),
        "pandas": (pd.DataFrame(X, columns=columns), pd.DataFrame(Y)),
        "polars": (pl.DataFrame(X, schema=columns), pl.DataFrame(Y, schema=list("abcde"))),
        "lists": (X.tolist(), Y.tolist()),
        "sparse labels": (X, sp.csr_matrix(Y)),
        "booleans": (X, Y.astype(bool)),
        "floats": (X, Y.astype(float)),
        "strided": (np.repeat(X, 2, axis=1)[:, ::2], np.repeat(Y, 2, axis=0)[::2]),
    }
    for name, (rows, labels) in forms.items():
        model = voting(random_state=0).fit(rows, labels)
        np.testing.assert_array_equal(model.predict_proba(rows), expected, err_msg=name)
    sets = voting(random_state=0).partial_fit(X, as_sets(Y), classes=list("abcde")).refit()
    np.testing.assert_array_equal(sets.predict_proba(X), expected)


def test_sparse_rows_give_what_dense_rows_give():
    X, Y = draw(150, p=30, sparse=True, seed=48)
    dense, sparse = voting(**PLAIN), voting(**PLAIN)
    dense.fit(X.toarray(), Y)
    sparse.fit(X, Y)
    np.testing.assert_allclose(sparse.P_, dense.P_, atol=1e-6)
    agree = sparse.predict(X) == dense.predict(X.toarray())
    assert agree.mean() > 0.99  # P is kept in single precision there
    np.testing.assert_array_equal(sparse.predict_proba(X.toarray()), sparse.predict_proba(X))


def test_hashed_text_of_many_columns_works_without_a_dense_copy():
    rng = np.random.default_rng(49)
    topics = rng.integers(0, 4, 300)
    words = topics[:, None] * 50 + rng.integers(0, 50, (300, 12))
    columns = (words * 2654435761 % 2**18).astype(np.int32)
    indptr = np.arange(0, 12 * 300 + 1, 12)
    X = sp.csr_matrix((np.ones(3600), columns.ravel(), indptr), shape=(300, 2**18))
    Y = np.eye(4, dtype=int)[topics]
    model = voting(random_state=0).partial_fit(X[:250], Y[:250])
    assert (model.predict(X[250:]) == Y[250:]).mean() > 0.95
    assert model.P_.shape == (2**18, 4)


# ---------------------------------------------------------------------- rejected calls

X_OK, Y_OK = draw(6, p=8, seed=50)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window": -1}, "window must be an integer of at least 1 or None, got -1"),
        ({"window": 0}, "window must be"),
        ({"window": 2.5}, "window must be an integer"),
        ({"window": True}, "window must be"),
        ({"n_neighbors": 0}, r"n_neighbors must be an integer between 1 and 1e\+06, got 0"),
        ({"n_components": 0}, "n_components must be"),
        ({"step_max": -0.5}, "step_max must be a number of at least 0, got -0.5"),
        ({"step_max": np.nan}, "step_max must be"),
        ({"ridge": -1.0}, "ridge must be"),
        ({"ridge": "none"}, "ridge must be"),
        ({"scale": "minmax"}, "scale must be one of 'auto', 'standard', 'unit', None"),
        ({"lift": "poly"}, "lift must be one of"),
        ({"decide": 1.5}, "decide must be a number between 0 and 1, got 1.5"),
        (
            {"decide": "best"},
            "decide must be one of 'balanced', .* 'macro', 'top'.*'best'",
        ),
        ({"decide": "top0"}, "decide must be one of"),
        ({"head": "no"}, "head must be one of True, False, got 'no'"),
        ({"lag": -1}, "lag must be an integer"),
        ({"store": "here"}, r"store must be None or have open\(\), got 'here'"),
    ],
)
def test_a_parameter_of_no_meaning_is_named_and_changes_nothing(changes, message):
    X, Y = draw(60, seed=51)
    with pytest.raises(ValueError, match=message):
        voting(**changes).fit(X, Y)
    model = voting(random_state=0).partial_fit(X, Y)
    before = copy.deepcopy(model.to_state()["learner"])
    model.set_params(**changes)
    for call in (model.partial_fit, model.fit):
        with pytest.raises(ValueError, match=message):
            call(X, Y)
    assert_same_state(model.to_state()["learner"], before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.partial_fit(X_OK * np.nan, Y_OK), "NaN"),
        (lambda m: m.partial_fit(X_OK[:, :7], Y_OK), "7 features.*8"),
        (lambda m: m.partial_fit(X_OK, 2 * Y_OK), "Y must hold 0 and 1 only, got 2"),
        (lambda m: m.partial_fit(X_OK, Y_OK[:5]), r"as many rows as X \(6\), got 5"),
        (lambda m: m.partial_fit(X_OK, Y_OK[:, :3]), "Y must have 5 columns, got 3"),
        (lambda m: m.partial_fit(X_OK[:2], [[1, 0], [1]]), "ragged"),
        (lambda m: m.partial_fit(X_OK * 1e20, Y_OK), "within ±1e\\+15"),
        (lambda m: m.partial_fit(sp.csr_matrix(X_OK)[:, :3], Y_OK), "3 features"),
        (lambda m: m.learn_one(X_OK[0], np.array([0, 1, 2, 0, 0], np.uint8)), "got 2"),
        (lambda m: m.learn_one(np.full(8, np.inf), Y_OK[0]), "infinity"),
        (lambda m: m.learn_one(X_OK, Y_OK), "1 dimension, got 2"),
        (lambda m: m.predict_one(X_OK[0, :4]), "4 features"),
        (lambda m: m.kneighbors(X_OK, n_neighbors=0), "n_neighbors must be"),
        (lambda m: m.transform(X_OK[:, :4]), "4 features"),
        (lambda m: m.explain(X_OK * np.nan), "NaN"),
    ],
)
def test_a_rejected_call_says_why_and_leaves_every_array(call, message):
    X, Y = draw(100, p=8, seed=52)
    for n in (3, 100):
        model = voting(random_state=0, window=80).partial_fit(X[:n], Y[:n])
        before = copy.deepcopy(model.to_state())
        with pytest.raises(ValueError, match=message):
            call(model)
        assert_same_state(model.to_state(), before)


def test_a_batch_is_rejected_whole_though_only_its_last_row_is_bad():
    X, Y = draw(300, seed=53)
    model = voting(random_state=0).partial_fit(X[:100], Y[:100])
    before = copy.deepcopy(model.to_state())
    X[299, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(X[100:], Y[100:])
    assert_same_state(model.to_state(), before)


# ---------------------------------------------------------------------- does it help?


def test_the_default_beats_plain_nearest_neighbours_on_a_stream_with_nuisance_features():
    X, Y = draw(700, p=20, q=8, seed=54)
    mistakes = {
        name: (model.fit(X[:400], Y[:400]).predict(X[400:]) != Y[400:]).mean()
        for name, model in [("oml", voting(random_state=0)), ("knn", KNN())]
    }
    assert mistakes["oml"] < 0.85 * mistakes["knn"]


# ---------------------------------------------------------------------- found by review


@pytest.mark.parametrize(
    "how", [{"scale": "unit"}, {"lift": "kernel"}, {"lift": "fourier"}, {"scale": "standard"}]
)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_without_a_ridge_scale_and_lift_still_count_and_are_kept(how, kind):
    X, Y = draw(120, seed=60)
    X = kind(np.where(np.abs(X) > 0.5, X, 0) * np.linspace(0.1, 9, 120)[:, None])
    bare = {"ridge": 0, "scale": None, "lift": None, "random_state": 0}
    model = voting(**(bare | how)).partial_fit(X[:90], Y[:90])
    again = OML.from_state(model.to_state())
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    plain = voting(**bare).partial_fit(X[:90], Y[:90])
    if how == {"scale": "standard"}:  # least squares are the same in any scale
        assert model.to_state()["learner"]["choice"]["scale"] == "standard"
        np.testing.assert_allclose(model.transform(X), plain.transform(X), atol=1e-4)
    else:
        assert np.abs(plain.predict_proba(X) - model.predict_proba(X)).max() > 0


def test_standardised_sparse_rows_may_lie_far_from_zero():
    X, Y = draw(200, seed=61)
    X[:, 0] += 1e4
    dense = voting(scale="standard", lift=None, random_state=0).partial_fit(X, Y)
    sparse = voting(scale="standard", lift=None, random_state=0).partial_fit(sp.csr_matrix(X), Y)
    np.testing.assert_allclose(sparse.transform(sp.csr_matrix(X)), dense.transform(X), atol=5e-3)


@pytest.mark.parametrize(
    "bad", [{"lag": "bad"}, {"step_max": "bad"}, {"step_max": -1.0}, {"n_neighbors": 0}]
)
def test_a_parameter_spoilt_between_calls_is_named_and_changes_nothing(bad):
    X, Y = draw(80, seed=62)
    model = voting(random_state=0).partial_fit(X[:60], Y[:60])
    ((name, value),) = bad.items()
    before, good = model.to_state(), getattr(model, name)
    ask = name == "n_neighbors"
    model.set_params(**bad)
    with pytest.raises(ValueError, match=f"{name} must be .*{value!r}"):
        model.predict_one(X[60]) if ask else model.learn_one(X[60], Y[60].astype(np.uint8))
    assert_same_state(model.set_params(**{name: good}).to_state(), before)


@pytest.mark.parametrize("lift", ["kernel", "fourier"])
def test_nobody_gets_hold_of_the_arrays_of_a_lift(lift):
    X, Y = draw(80, seed=63)
    model = voting(random_state=0, lift=lift).partial_fit(X[:60], Y[:60])
    before = model.predict_proba(X)
    for array in model.to_state()["learner"]["projection"]["lift"].values():
        if not isinstance(array, str):
            array[:] = 0
    np.testing.assert_array_equal(model.predict_proba(X), before)
    fresh = voting(random_state=0, lift=lift).partial_fit(X[:60], Y[:60])
    np.testing.assert_array_equal(fresh.predict_proba(X), before)


def test_what_is_asked_in_another_thread_changes_nothing():
    X, Y = draw(200, seed=64)
    model, silent = (OML(random_state=0, window=40).partial_fit(X[:60], Y[:60]) for _ in range(2))
    done = threading.Event()

    def ask():
        while not done.is_set():
            for x in X[60:]:
                model.predict_one(x)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for t in range(60, 200):
            model.learn_one(X[t], Y[t])
    finally:
        done.set()
        asking.join()
    for t in range(60, 200):
        silent.learn_one(X[t], Y[t])
    assert_same_state(model.to_state(), silent.to_state())


@pytest.mark.parametrize("lift", ["kernel", "fourier"])
def test_a_row_far_beyond_all_others_does_not_end_a_lifted_stream(lift):
    X, Y = draw(90, seed=65)
    model = voting(random_state=0, lift=lift, scale=None)
    model.partial_fit(X[:60] * np.float32(1e-25), Y[:60])
    model.partial_fit(np.full((1, X.shape[1]), 1e14), Y[60:61])
    model.partial_fit(X[61:] * np.float32(1e-25), Y[61:])
    assert np.isfinite(model.predict_proba(X)).all()


def test_least_squares_waits_for_the_first_label():
    model = voting(ridge=0, scale=None, lift=None, random_state=0)
    X, _ = draw(40, seed=66)
    model.partial_fit(X[:30], [set()] * 30)
    model.partial_fit(X[30:], [{"a"}] * 10)
    assert model.classes_.tolist() == ["a"]


# ---------------------------------------------------------------------- corrections


@pytest.mark.exact
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("how", [{}, {"lift": None}, {"n_components": 2}, {"window": 15}])
def test_what_was_forgotten_before_the_first_fit_was_never_there(sparse, how):
    X, Y = draw(60, p=20, seed=70, sparse=sparse)
    rest = [i for i in range(15) if i not in (3, 14)]
    model = voting(random_state=0, **how).partial_fit(X[:15], Y[:15])
    other = voting(random_state=0, **how).partial_fit(X[rest], Y[rest])
    for item in (3, 14):
        model.forget(item)
    for one in (model, other):
        one.refit()
    np.testing.assert_array_equal(model.P_, other.P_)
    np.testing.assert_array_equal(model.V_, other.V_)
    np.testing.assert_array_equal(model.predict_proba(X), other.predict_proba(X))


@pytest.mark.exact
@pytest.mark.parametrize("make", [voting, OML])
@pytest.mark.parametrize("sparse", [False, True])
def test_after_the_next_fit_p_is_that_of_the_items_that_are_stored(make, sparse):
    X, Y = draw(90, p=20, seed=71, sparse=sparse)
    rest = [i for i in range(80) if i not in (3, 50, 79)]
    new = Y.copy()
    new[[7, 60]] = 1 - new[[7, 60]]
    model = make(**PLAIN).partial_fit(X[:80], Y[:80])
    other = make(**PLAIN).partial_fit(X[rest], new[rest])
    for item in (3, 50, 79):
        model.forget(item)
    for item in (7, 60):
        model.relabel(item, new[item])
    for one in (model, other):
        one.refit()
    np.testing.assert_array_equal(model.P_, other.P_)
    assert model.label_counts_.tolist() == other.label_counts_.tolist() == new[rest].sum(0).tolist()
    if make is voting:
        return
    counts = [one.to_state()["learner"]["belief"]["head"]["now"]["n"] for one in (model, other)]
    assert counts[0].tolist() == counts[1].tolist() == new[rest].sum(axis=0).tolist()


@pytest.mark.parametrize("sparse", [False, True])
def test_a_correction_leaves_the_head_alone(sparse):
    # One that is fed its errors only unlearns its weights.
    X, Y = draw(120, p=200 if sparse else 20, seed=72, sparse=sparse)  # no two rows alike
    model = OML(random_state=0).partial_fit(X, Y)
    before = model.to_state()["learner"]["belief"]
    for item in range(100, 120):
        model.relabel(item, 1 - Y[item])
    after = model.to_state()["learner"]["belief"]
    for name in ("w", "A", "d", "a", "queue"):
        np.testing.assert_array_equal(after["head"][name], before["head"][name])
    for name in ("last", "fast", "slow"):
        np.testing.assert_array_equal(after["head"]["now"][name], before["head"]["now"][name])
    assert_same_state(after["copies"], before["copies"])
    right = (model.predict(X[100:]) == 1 - Y[100:]).all(axis=1)
    assert right.mean() > 0.9


@pytest.mark.exact
@pytest.mark.parametrize("window", [None, 70, 100, 200, 300])
@pytest.mark.parametrize("row", [[0.0, 0.0], [0.5, 0.3], [1e-40, 0.0], [1e15, 1e15]])
@pytest.mark.parametrize("sparse", [False, True])
def test_equal_rows_are_fitted_and_what_is_made_of_them_can_be_loaded(window, row, sparse):
    # A ridge of no features at all once raised, and that of equal ones was negative by rounding.
    n = 2 * (window or 300)
    X = np.tile(row, (n, 1))
    Y = (np.random.default_rng(0).random((n, 1)) < 1 / 3).astype(np.uint8)
    rows = sp.csr_matrix(X) if sparse else X
    model = OML(window=window, random_state=0)
    for first in range(0, n, 50):
        model.partial_fit(rows[first : first + 50], Y[first : first + 50])
        assert_same_state(OML.from_state(model.to_state()).to_state(), model.to_state())
    assert 0.1 < model.predict_proba(rows[:1])[0, 0] < 0.6  # as often as it was met


def test_a_first_fit_without_any_label_waits_for_one():
    X, Y = draw(60, seed=73)
    for make in (voting, OML):
        model = make(random_state=0).partial_fit(X[:30], [set()] * 30)
        assert model.transform(X[:2]).shape == (2, 0)
        model.partial_fit(X[30:], as_sets(Y[30:]))
        assert np.isfinite(model.predict_proba(X)).all()
        assert model.transform(X).any()


# ---- how much came since the last fit ----


@pytest.mark.parametrize("window", [None, 150])
@pytest.mark.parametrize("refit_at", [None, 301])
def test_examples_since_the_fit_in_effect_are_counted(window, refit_at):
    stream = make_stream(460, p=6, q=5, cardinality=1.5, seed=11)
    model, began = OML(window=window, random_state=0), {"under way": 0, "in effect": 0}
    begin, take_effect = model._begin_fit, model._take_effect

    def begin_fit(seen, later):
        began["under way"] = seen
        begin(seen, later)

    def takes_effect():
        began["in effect"] = began["under way"]
        take_effect()

    model._begin_fit, model._take_effect = begin_fit, takes_effect
    waited = False
    for seen in range(1, 461):
        model.partial_fit(stream.X[seen - 1 : seen], stream.Y[seen - 1 : seen])
        if seen == refit_at:
            model.refit()
        assert model.n_since_fit_ == seen - began["in effect"], seen
        waited |= model._renewal is not None
    assert waited == (window is None)
    again = OML.from_state(model.to_state())
    assert again.n_since_fit_ == model.n_since_fit_
