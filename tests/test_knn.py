"""KNN against scikit-learn's votes, ML-kNN against tables counted by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.neighbors import KNeighborsClassifier

import reference as slow
from tagstream import KNN
from tagstream.testing import assert_same_state


def draw(seed, n=120, p=5, q=4):
    """Rows without ties and labels that depend on them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)).astype(np.float32)
    Y = (X @ rng.normal(size=(p, q)) + 0.5 * rng.normal(size=(n, q)) > 0.4).astype(np.uint8)
    Y[0], Y[1] = 0, 1  # both values of every label occur
    return X, Y


def next_recounts(n, window=None):
    """The counts of examples after which the tables are made anew."""
    t, out = 20, []
    while t <= n:
        out.append(t)
        t += max((t if window is None else min(t, window)) // 4, 1)
    return out


# ---------------------------------------------------------------------- the plain vote


@pytest.mark.exact
@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("sparse", [False, True])
def test_votes_equal_those_of_scikit_learn(k, sparse):
    X, Y = draw(1, 160)
    rows = sp.csr_matrix(X) if sparse else X
    model = KNN(n_neighbors=k).fit(rows[:120], Y[:120])
    oracle = KNeighborsClassifier(k, algorithm="brute").fit(X[:120].astype(float), Y[:120])
    shares = np.stack([p[:, 1] for p in oracle.predict_proba(X[120:].astype(float))], axis=1)
    np.testing.assert_allclose(model.predict_proba(rows[120:]), shares, atol=1e-6)
    np.testing.assert_array_equal(model.predict(rows[120:]), shares >= 0.5)
    distances, numbers = model.kneighbors(rows[120:])
    expected = oracle.kneighbors(X[120:].astype(float))
    np.testing.assert_array_equal(numbers, expected[1])
    np.testing.assert_allclose(distances, expected[0], rtol=1e-6)


def test_an_even_vote_is_a_yes_where_scikit_learn_says_no():
    # Choice C5 of docs/math.md: at least half of the votes.
    X, Y = np.zeros((2, 1)), np.array([[1, 0], [0, 0]])
    assert KNN(n_neighbors=2).fit(X, Y).predict(X[:1]).tolist() == [[1, 0]]


@pytest.mark.exact
@pytest.mark.parametrize("vote", ["majority", "map"])
def test_a_windowed_model_equals_one_that_saw_only_the_window(vote):
    X, Y = draw(2, 150)
    slid = KNN(n_neighbors=5, window=20, vote=vote).partial_fit(X[:120], Y[:120])
    fresh = KNN(n_neighbors=5, vote=vote).partial_fit(X[100:120], Y[100:120])
    numbers = slid.kneighbors(X[120:], return_distance=False)
    assert numbers.min() >= 100
    np.testing.assert_array_equal(numbers - 100, fresh.kneighbors(X[120:], return_distance=False))
    if vote == "majority":
        np.testing.assert_array_equal(slid.predict_proba(X[120:]), fresh.predict_proba(X[120:]))


@pytest.mark.parametrize("vote", ["majority", "map"])
def test_a_window_that_holds_all_is_no_window(vote):
    X, Y = draw(3)
    free = KNN(vote=vote).fit(X, Y).to_state()["learner"]
    assert_same_state(KNN(vote=vote, window=len(X)).fit(X, Y).to_state()["learner"], free)


def test_copies_of_an_item_vote_oldest_first():
    X = np.zeros((12, 2))
    Y = np.repeat([[1, 0], [0, 1]], 6, axis=0)
    model = KNN(n_neighbors=4).fit(X, Y)
    assert model.kneighbors(X[:1], return_distance=False).tolist() == [[0, 1, 2, 3]]
    assert model.predict(X[:1]).tolist() == [[1, 0]]


# ---------------------------------------------------------------------- the Bayesian vote


def tables(model):
    return model.to_state()["learner"]["tables"]


@pytest.mark.parametrize("k", [1, 4, 10])
@pytest.mark.parametrize("sparse", [False, True])
def test_right_after_a_recount_the_tables_are_those_of_ml_knn(k, sparse):
    n = next_recounts(100)[-1]
    X, Y = draw(4, n + 15)
    rows = sp.csr_matrix(X) if sparse else X
    model = KNN(n_neighbors=k, vote="map").fit(rows[:n], Y[:n])
    expected = slow.mlknn_tables(X[:n], Y[:n], k)
    np.testing.assert_array_equal(tables(model), expected)
    assert (expected.sum(axis=(0, 1)) == n).all()
    scores = model.predict_proba(rows[n:])
    for i, x in enumerate(X[n:]):
        near = slow.nearest(X[:n], x, k)[1]
        posterior = slow.mlknn_score(expected, Y[near].sum(axis=0), k)
        np.testing.assert_allclose(scores[i], posterior, rtol=1e-12)


def test_an_item_counts_no_copy_of_itself_but_its_twins():
    # Ties and exact copies: an item is left out by its place, not by its distance.
    rng = np.random.default_rng(5)
    X = rng.integers(0, 2, (20, 2)).astype(np.float32)
    Y = rng.integers(0, 2, (20, 3)).astype(np.uint8)
    model = KNN(n_neighbors=3, vote="map").fit(X, Y)
    np.testing.assert_array_equal(tables(model), slow.mlknn_tables(X, Y, 3))


def test_between_recounts_an_item_enters_with_the_neighbours_it_had_when_it_came():
    X, Y = draw(6, 30)
    first, second = next_recounts(30)[:2]
    model = KNN(n_neighbors=3, vote="map").fit(X[:first], Y[:first])
    expected = slow.mlknn_tables(X[:first], Y[:first], 3)
    for t in range(first, second - 1):
        model.learn_one(X[t], Y[t])
        near = slow.nearest(X[:t], X[t], 3)[1]
        for j, r in enumerate(Y[near].sum(axis=0)):
            expected[Y[t, j], r, j] += 1
        np.testing.assert_array_equal(tables(model), expected)
    model.learn_one(X[second - 1], Y[second - 1])
    np.testing.assert_array_equal(tables(model), slow.mlknn_tables(X[:second], Y[:second], 3))


def test_with_a_window_the_tables_count_the_windows_items_only():
    X, Y = draw(7, 130)
    for window in (15, 40):
        model = KNN(n_neighbors=3, vote="map", window=window)
        for t in range(130):
            model.learn_one(X[t], Y[t])
            assert (tables(model).sum(axis=(0, 1)) == min(t + 1, window)).all()
            assert (tables(model) >= 0).all()
            if t + 1 in next_recounts(130, window):
                lo = max(t + 1 - window, 0)
                expected = slow.mlknn_tables(X[lo : t + 1], Y[lo : t + 1], 3)
                np.testing.assert_array_equal(tables(model), expected)


@pytest.mark.exact
@pytest.mark.parametrize("window", [None, 33])
def test_the_tables_do_not_depend_on_the_cuts(window):
    X, Y = draw(8, 200)
    sets = [{"abcd"[j] for j in np.flatnonzero(row)} for row in Y]
    whole = KNN(n_neighbors=4, vote="map", window=window).partial_fit(X, sets).to_state()
    for cuts in ([1, 2, 3], [19, 20, 21, 150], range(0, 200, 7)):
        model = KNN(n_neighbors=4, vote="map", window=window)
        for start, stop in itertools.pairwise(sorted({0, *cuts, 200})):
            model.partial_fit(X[start:stop], sets[start:stop])
        assert_same_state(model.to_state(), whole)


def test_unknown_entries_enter_no_table():
    X, Y = draw(9, 60)
    known = np.random.default_rng(10).random(Y.shape) < 0.7
    model = KNN(n_neighbors=3, vote="map").fit(X, np.where(known, Y, np.nan))
    np.testing.assert_array_equal(tables(model).sum(axis=(0, 1)), known.sum(axis=0))
    by_label = tables(model).sum(axis=1)
    np.testing.assert_array_equal(by_label[1], (Y * known).sum(axis=0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vote": "bayes"}, "vote must be one of 'majority', 'map', got 'bayes'"),
        ({"n_neighbors": 2.5}, "n_neighbors must be an integer"),
        ({"window": -3}, "window must be an integer of at least 1 or None, got -3"),
        ({"decide": "half"}, "decide must be one of 'balanced', 'f1', 'hamming'"),
        ({"decide": "macro"}, "decide must not be 'macro' without a head; set head=True"),
        ({"decide": 2}, "decide must be a number between 0 and 1, got 2"),
        ({"vote": "map", "head": True}, "head must be False for vote='map', got True"),
    ],
)
def test_parameters_of_no_meaning_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        KNN(**changes).fit(np.zeros((2, 1)), np.ones((2, 1), int))


def test_the_labels_of_what_is_stored_are_counted():
    X = np.arange(10.0).reshape(5, 2)
    model = KNN(window=3).partial_fit(X, [{"a"}, {"a", "b"}, {"b"}, set(), {"c", "b"}])
    assert dict(zip(model.classes_.tolist(), model.label_counts_.tolist(), strict=True)) == {
        "a": 0,
        "b": 2,
        "c": 1,
    }


# ---------------------------------------------------------------------- corrections


@pytest.mark.exact
@pytest.mark.parametrize("window", [None, 30])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_forgotten_item_was_never_there(window, sparse):
    X, Y = draw(11, 60)
    rows = sp.csr_matrix(X) if sparse else X
    sets = [{"abcd"[j] for j in np.flatnonzero(row)} for row in Y]
    gone = [35, 50, 59]
    model = KNN(n_neighbors=5, window=window).partial_fit(rows, sets, classes=list("abcd"))
    for item in gone:
        model.forget(item)
    first = 0 if window is None else 30
    rest = [i for i in range(first, 60) if i not in gone]
    other = KNN(n_neighbors=5).partial_fit(
        rows[rest], [sets[i] for i in rest], classes=list("abcd")
    )
    np.testing.assert_array_equal(model.predict_proba(rows), other.predict_proba(rows))
    numbers = np.array(rest)[other.kneighbors(rows, return_distance=False)]
    np.testing.assert_array_equal(model.kneighbors(rows, return_distance=False), numbers)


@pytest.mark.exact
def test_a_relabelled_item_was_learnt_with_its_new_labels():
    X, Y = draw(12, 60)
    new = Y.copy()
    new[[3, 40]] = 1 - new[[3, 40]]
    model, other = (KNN(n_neighbors=5).partial_fit(X, labels) for labels in (Y, new))
    for item in (3, 40):
        model.relabel(item, new[item])
    np.testing.assert_array_equal(model.predict_proba(X), other.predict_proba(X))
    assert model.label_counts_.tolist() == other.label_counts_.tolist()


def test_after_a_correction_the_tables_are_those_of_what_is_stored():
    X, Y = draw(13, 50)
    model = KNN(n_neighbors=3, vote="map").partial_fit(X, Y)
    Y[7] = 1 - Y[7]
    model.relabel(7, Y[7])
    np.testing.assert_array_equal(tables(model), slow.mlknn_tables(X, Y, 3))
    model.forget(20)
    rest = np.arange(50) != 20
    np.testing.assert_array_equal(tables(model), slow.mlknn_tables(X[rest], Y[rest], 3))
    model.remove_label(1)
    kept = [0, 2, 3]
    np.testing.assert_array_equal(tables(model), slow.mlknn_tables(X[rest], Y[rest][:, kept], 3))


def test_of_several_items_of_one_name_the_newest_is_meant():
    model = KNN(n_neighbors=1).partial_fit([[0.0], [9.0]], [{"a"}, {"b"}], ids=["x", "x"])
    model.relabel("x", {"c"})
    assert model.predict_sets([[0.0], [9.0]]) == [{"a"}, {"c"}]
    model.forget("x")
    assert model.item("x")[1] == {"a"}


def test_an_item_of_one_label_gets_another_one():
    X, Y = draw(14, 30)
    model = KNN(n_neighbors=1).partial_fit(X, np.array(["no", "yes"])[Y[:, 0]])
    model.relabel(4, "perhaps")
    assert model.predict(X[4:5]).tolist() == ["perhaps"]
    model.relabel(4, {"no"})
    assert model.predict(X[4:5]).tolist() == ["no"]
    before = model.to_state()
    for bad in ({"no", "yes"}, set(), np.array([1, 1, 0])):
        with pytest.raises(ValueError, match="labels must be one label"):
            model.relabel(4, bad)
    assert_same_state(model.to_state(), before)
