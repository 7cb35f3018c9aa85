"""The synthetic stream has the structure it says it has."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.metrics import f1_score
from sklearn.neighbors import KNeighborsClassifier

from tagstream.data import make_stream
from tagstream.records.synthetic import parents


def explained(X, Y, fit_on, test_on) -> float:
    """Return how much of the labels' variance a linear map explains on other rows."""
    model = Ridge().fit(X[fit_on], Y[fit_on])
    residual = Y[test_on] - model.predict(X[test_on])
    return 1 - residual.var() / (Y[test_on] - Y[test_on].mean(0)).var()


def test_the_same_seed_gives_the_same_stream():
    a, b, c = make_stream(50, seed=5), make_stream(50, seed=5), make_stream(50, seed=6)
    np.testing.assert_array_equal(a.X, b.X)
    np.testing.assert_array_equal(a.Y, b.Y)
    assert (a.Y != c.Y).any()


def test_shapes_names_and_cardinality():
    data = make_stream()
    assert (data.X.shape, data.Y.shape) == ((3000, 30), (3000, 12))
    assert (len(data.feature_names), len(data.label_names)) == (30, 12)
    assert data.Y.dtype == np.uint8
    assert 2.3 < data.cardinality < 3.1
    assert data.Y.any(0).all()


def test_every_special_case_implies_its_parent():
    Y = make_stream(q=15).Y.astype(bool)
    assert len(parents(15)) == 5
    for child, parent in parents(15).items():
        assert Y[:, child].any()
        assert not (Y[:, child] & ~Y[:, parent]).any()
        assert (Y[:, parent] & ~Y[:, child]).any()


def test_labels_keep_company_beyond_the_implications():
    """With independent labels no correlation would leave ±4/√n; here most of them do."""
    roots = make_stream(n=4000, q=10).Y[:, :7].astype(float)
    correlation = np.corrcoef(roots.T)[np.triu_indices(7, 1)]
    assert (np.abs(correlation) > 4 / np.sqrt(4000)).mean() > 0.5


def test_the_labels_lie_in_a_space_of_few_dimensions():
    """The covariance of x and y has rank r, up to the noise of its estimate."""
    data = make_stream(n=20_000, n_factors=3, cardinality=4)
    singular = np.linalg.svd(data.X.T @ (data.Y - data.Y.mean(0)), compute_uv=False)
    assert singular[2] > 8 * singular[3]


def test_neighbours_are_decent_and_a_linear_map_makes_them_better():
    data = make_stream()
    train, test = slice(0, 2000), slice(2000, None)

    def f1(X) -> float:
        knn = KNeighborsClassifier(10).fit(X[train], data.Y[train])
        return f1_score(data.Y[test], knn.predict(X[test]), average="micro")

    plain = f1(data.X)
    mapped = f1(Ridge().fit(data.X[train], data.Y[train]).predict(data.X))
    assert 0.5 < plain < 0.75
    assert mapped > plain + 0.1


def test_an_abrupt_drift_changes_the_meaning_at_one_half():
    data = make_stream(drift="abrupt")
    X, Y = data.X, data.Y
    assert explained(X, Y, slice(0, 1000), slice(1000, 1500)) > 0.3
    assert explained(X, Y, slice(0, 1000), slice(1500, 2000)) < 0.1
    assert explained(X, Y, slice(2000, 3000), slice(1500, 2000)) > 0.3


def test_a_recurring_drift_comes_back():
    data = make_stream(drift="recurring")
    first = slice(0, 750)
    scores = [explained(data.X, data.Y, first, slice(k * 750, (k + 1) * 750)) for k in (1, 2, 3)]
    assert scores[0] < 0.1 < 0.3 < scores[1]
    assert scores[2] < 0.1


def test_a_gradual_drift_passes_through_a_mixture():
    data = make_stream(6000, drift="gradual")
    first = slice(0, 2000)
    scores = [explained(data.X, data.Y, first, slice(k, k + 1000)) for k in (2000, 3000, 4500)]
    assert scores[0] > scores[1] > scores[2]
    assert scores[2] < 0.1


def test_label_noise_exchanges_labels_and_keeps_their_number():
    clean, noisy = make_stream(seed=2), make_stream(seed=2, label_noise=0.2)
    np.testing.assert_array_equal(clean.X, noisy.X)
    kept = (clean.Y & noisy.Y).sum() / clean.Y.sum()
    assert 0.78 < kept < 0.86
    assert abs(noisy.cardinality - clean.cardinality) < 0.15


def test_late_labels_appear_one_after_the_other_in_the_middle_third():
    data = make_stream(n_late=3)
    first_seen = data.Y.argmax(0)
    assert (first_seen[:9] < 1000).all()
    assert (np.diff(first_seen[9:]) > 0).all()
    assert (first_seen[9:] >= [1000, 1333, 1666]).all()
    assert (first_seen[9:] < 2000).all()


def test_a_sparse_stream_is_mostly_zero_and_still_says_something():
    data = make_stream(sparse=True)
    assert sparse.issparse(data.X)
    assert data.X.nnz == pytest.approx(0.1 * 3000 * 30, rel=0.01)
    assert explained(data.X.toarray(), data.Y, slice(0, 2000), slice(2000, None)) > 0.1


@pytest.mark.parametrize(
    "options",
    [
        {"n": 0},
        {"n_factors": 12},
        {"n_factors": 0},
        {"cardinality": 7},
        {"label_noise": 2},
        {"n_late": 12},
        {"drift": "sudden"},
    ],
)
def test_nonsense_is_refused(options):
    with pytest.raises(ValueError, match="must be"):
        make_stream(**options)
