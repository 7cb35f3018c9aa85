"""Many labels: P, metric, codes and fast map in the leading directions of the labels.

Most claims are held with few labels, by letting the reduction begin early.
"""

from __future__ import annotations

import copy
import itertools
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

import reference as slow
from tagstream import OML, load_model, make_stream, save_model
from tagstream.core.inputs import inputs_of
from tagstream.evidence.fastmap import BLIND, FastMap
from tagstream.files.upgrade import from_format_2
from tagstream.labels.read import Labels
from tagstream.limits import Limits
from tagstream.metric.space import ConvexSpace, Coordinates, Space
from tagstream.projection import Reduction
from tagstream.store.sums import LocalExamples
from tagstream.testing import assert_same_state, rules_for
from tagstream.testing.data import as_sets

VOTES = {"head": False, "decide": 0.5}
PLAIN = {"scale": None, "lift": None, "ridge": 2.0}


@pytest.fixture
def early(limits):
    """Reduce more than 4 labels, to at most 4 directions."""
    limits(many_labels=4, rank=4)


@pytest.fixture
def whole(limits):
    """Reduce more than 4 labels, to as many directions as there are."""
    limits(many_labels=4)


def draw(n=150, p=8, q=9, seed=0, sparse=False):
    made = make_stream(n, p=p, q=q, n_factors=5, cardinality=2.5, sparse=sparse, seed=seed)
    X = made.X if sparse else np.asarray(made.X, np.float64)
    return X, np.asarray(made.Y.toarray() if sp.issparse(made.Y) else made.Y, np.uint8)


def zipf_labels(n, q, seed=0):
    """Labels of a few topics, most of them rare."""
    rng = np.random.default_rng(seed)
    topics = rng.random((30, q)) ** 12
    return (rng.random((n, q)) < topics[rng.integers(0, 30, n)]).astype(np.uint8)


def examples_of(Y, known=None, **limits):
    rows = np.zeros((len(Y), 1), np.float32)
    return LocalExamples.of(rows, Labels(Y, known), limits=Limits(**limits))


def feed(model, X, Y, cuts):
    for first, stop in itertools.pairwise(sorted({0, *cuts, len(Y)})):
        model.partial_fit(X[first:stop], Y[first:stop])
    return model


# ---------------------------------------------------------------------- directions


@pytest.mark.parametrize("begun", [None, 5, 300])
def test_directions_are_orthonormal_and_carry_nearly_the_most_variance(begun):
    Y = zipf_labels(3000, 300)
    last = None  # of a few examples with fewer labels, or of half of them
    if begun is not None:
        last = Reduction.of(examples_of(Y[: 5 * begun, :250], rank=20), seed=0)
        last = Reduction(last.B[:, :begun], last.middle)
    made = Reduction.of(examples_of(Y, rank=20), seed=0, last=last)
    B = made.B.astype(float)
    assert B.shape == (300, 20)
    np.testing.assert_allclose(B.T @ B, np.eye(20), atol=1e-6)
    T = Y - Y.mean(axis=0)
    carried = ((T @ B) ** 2).sum(axis=0) / (T**2).sum()
    assert carried.sum() > 0.97 * slow.leading_variance(Y, 20)
    assert (np.diff(carried) < 1e-6).all()  # the largest first
    np.testing.assert_allclose(made.middle, Y.mean(axis=0))


@pytest.mark.parametrize("masked", [False, True])
def test_there_are_no_directions_without_variance(masked):
    rng = np.random.default_rng(1)
    Y = np.repeat((rng.random((40, 3)) < 0.5).astype(np.uint8), 5, axis=1)
    known = np.ones(Y.shape, bool) if masked else None
    B = Reduction.of(examples_of(Y, known), seed=0).B
    assert B.shape == (15, 3)
    T = Y - Y.mean(axis=0)
    np.testing.assert_allclose(T @ B @ B.T, T, atol=1e-5)
    assert Reduction.of(examples_of(np.zeros_like(Y)), seed=0).r == 1


@pytest.mark.exact
def test_directions_follow_from_examples_and_seed_alone():
    Y = zipf_labels(300, 40)
    one = Reduction.of(examples_of(Y, leaf=64), seed=3)
    other = Reduction.of(examples_of(Y, leaf=64), seed=3)
    np.testing.assert_array_equal(one.B, other.B)
    assert (Reduction.of(examples_of(Y, leaf=64), seed=4).B != one.B).any()


def test_coordinates_and_labels_are_the_products_that_they_stand_for():
    rng = np.random.default_rng(2)
    Y, C = zipf_labels(50, 30), rng.normal(size=(7, 5))
    B = np.linalg.qr(rng.normal(size=(30, 5)))[0].astype(np.float32)
    made = Reduction(B, Y.mean(axis=0))
    T = Y - Y.mean(axis=0)
    np.testing.assert_allclose(made.targets(Labels(Y, None)), T @ B, atol=1e-12)
    known = rng.random(Y.shape) < 0.7
    np.testing.assert_allclose(
        made.targets(Labels(Y * known, known)), np.where(known, T, 0) @ B, atol=1e-12
    )
    np.testing.assert_allclose(made.labels(C, 30), made.middle + C @ B.T, atol=1e-12)
    wide = made.labels(C, 33)  # three labels have come since
    np.testing.assert_array_equal(wide[:, :30], made.labels(C, 30))
    assert not wide[:, 30:].any()


@pytest.mark.exact
def test_the_labels_of_an_item_do_not_depend_on_the_others():
    rng = np.random.default_rng(3)
    made = Reduction.of(examples_of(zipf_labels(60, 300)), seed=0)
    C, Y = rng.normal(size=(9, made.r)), zipf_labels(9, 300, seed=4)
    whole = made.labels(C, 300), made.targets(Labels(Y, None))
    for i in range(9):
        np.testing.assert_array_equal(made.labels(C[i : i + 1], 300)[0], whole[0][i])
        one = made.targets(Labels(Y[i : i + 1], None))
        np.testing.assert_array_equal(one[0], whole[1][i])


# ---------------------------------------------------------------------- rounds


@pytest.mark.parametrize("masked", [False, True])
def test_a_round_in_coordinates_equals_the_naive_one(masked):
    rng = np.random.default_rng(5)
    q, r, n = 9, 4, 30
    B = np.linalg.qr(rng.normal(size=(q, r)))[0].astype(np.float32)
    made, R, total = Reduction(B, rng.random(q)), np.eye(r), 0.0
    C = rng.normal(size=(n, r))
    Z = made.labels(C, q)
    Y, Y_nn = ((rng.random((n, q)) < 0.4).astype(np.uint8) for _ in range(2))
    known = rng.random((n, q)) < 0.8 if masked else None
    mine = Labels(Y, known)
    space = Space()
    space.change(np.zeros((r, 0)))
    space.play(
        C, *map(Coordinates, made.pairs(Z, C, mine, Labels(Y_nn, None))), np.zeros(n, bool),
        step_max=0.05,
    )  # fmt: skip
    for t in range(n):
        sure = None if known is None else known[t]
        about = slow.reduced_pair(B.astype(float), Z[t], Y[t], Y_nn[t], sure)
        R, suffered = slow.play_reduced(R, about, 0.05)
        total += suffered
    np.testing.assert_allclose(space.V, R, atol=1e-5)  # B has single precision
    np.testing.assert_allclose(space.cumulative_loss, total, rtol=1e-5)
    assert np.abs(R - np.eye(r)).max() > 0.01


def test_a_perfect_z_has_no_loss():
    """‖Bᵀ(y_t − y)‖² is the margin: what the directions do not see is not asked for."""
    Y = zipf_labels(40, 30)
    made = Reduction.of(examples_of(Y), seed=0)
    B = made.targets(Labels(Y, None))
    space = Space()
    space.change(np.zeros((made.r, 0)))
    space.play(B[:20], Coordinates(B[:20]), Coordinates(B[20:]), np.zeros(20, bool), step_max=1.0)
    assert space.cumulative_loss == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("cls", [Space, ConvexSpace])
@pytest.mark.parametrize("d", [None, 3])
def test_what_the_metric_has_learnt_is_carried_over_in_coordinates(cls, d):
    rng = np.random.default_rng(6)
    old, new = (np.linalg.qr(rng.normal(size=(9, r)))[0] for r in (5, 6))
    space = cls(d)
    space.change(np.zeros((5, 0)))
    pairs = [Coordinates(rng.normal(size=(40, 5))) for _ in range(2)]
    space.play(rng.normal(size=(40, 5)), *pairs, np.zeros(40, bool), step_max=0.05)
    space.renew()
    VVt = old @ space.V @ space.V.T @ old.T
    V, E = old @ space.V, old @ space.basis
    space.change(new.T @ old)
    space.renew()
    got = new @ space.V
    assert space.V.shape == (6, 6 if d is None else 3)
    E_new = new @ space.basis
    if cls is Space:
        expected = E_new + new @ new.T @ (V - E) @ (E.T @ E_new)
        np.testing.assert_allclose(got, expected, atol=1e-12)
    else:
        K = E_new.T @ E
        Q = np.eye(len(K)) + K @ (E.T @ VVt @ E - np.eye(K.shape[1])) @ K.T
        np.testing.assert_allclose(E_new.T @ got @ got.T @ E_new, Q, atol=1e-9)
        assert np.linalg.eigvalsh(space.Q)[0] >= space.tally[0]


# ---------------------------------------------------------------------- the fast map


@pytest.mark.parametrize("sparse", [False, True])
def test_the_fast_map_in_coordinates_equals_the_naive_one(sparse):
    rng = np.random.default_rng(7)
    p, q, r, n = 6, 9, 4, 40
    B = np.linalg.qr(rng.normal(size=(q, r)))[0].astype(np.float32)
    B[2] = 0  # a label that nobody has had
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.6)
    s = rng.random(p) + 1
    fast, naive = FastMap(sparse=sparse), slow.SlowReducedFastMap(s, 0.5, B.astype(float))
    fast.grow(q)
    fast.reset(s, 0.5, counts=np.full(q, 50), basis=(B, np.ascontiguousarray(B.T)))
    fast.grow(q + 2)
    assert fast.state.fresh.tolist() == [0, 0, BLIND, *[0] * 6, BLIND, BLIND]
    for x in X:
        z, y = rng.random(q + 2), (rng.random(q + 2) < 0.4).astype(np.uint8)
        z[q:] = y[q:] = 0
        inputs = inputs_of(sp.csr_matrix(x.astype(np.float32)) if sparse else x[None])
        expected = naive(x.astype(np.float32).astype(float), z[:q])
        np.testing.assert_allclose(fast(inputs, z[None])[0, :q], expected, atol=1e-4)
        fast.learn(inputs, z[None], y[None])
        naive.learn(x.astype(np.float32).astype(float), z[:q], y[:q].astype(float))
    assert fast.state.D.shape[1] == r


# ---------------------------------------------------------------------- the learner


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("how", [{}, {"step": "convex"}, {"window": 60}])
def test_with_a_direction_for_every_label_it_is_the_learner_without_a_reduction(
    whole, limits, sparse, how
):
    """Up to rounding: B has single precision, and so have codes."""
    X, Y = draw(sparse=sparse)
    reduced = OML(random_state=0, **PLAIN, **VOTES, **how).partial_fit(X, Y)
    limits(many_labels=512)
    full = OML(random_state=0, **PLAIN, **VOTES, **how).partial_fit(X, Y)
    assert reduced._embedding.reduction is not None
    assert full._embedding.reduction is None
    np.testing.assert_allclose(reduced.P_, full.P_, atol=2e-4)
    metrics = [model.V_ @ model.V_.T for model in (reduced, full)]
    np.testing.assert_allclose(*metrics, atol=2e-4)
    np.testing.assert_allclose(reduced.kneighbors(X[:20])[0], full.kneighbors(X[:20])[0], atol=2e-3)
    assert (reduced.predict(X) == full.predict(X)).mean() > 0.999
    assert reduced.cumulative_loss_ == pytest.approx(full.cumulative_loss_, rel=1e-3)


SETTINGS = {
    "default": {},
    "votes": VOTES,
    "kernel": {"lift": "kernel"},
    "window": {"window": 45},
    "late": {"lag": 5, "window": 60},
    "convex": {"step": "convex"},
    "narrow": {"n_components": 2},
}


@pytest.mark.exact
@pytest.mark.parametrize("form", ["dense", "sparse", "unknown"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_state_does_not_depend_on_the_cuts(early, limits, setting, form):
    limits(lift_size=40)
    X, Y = draw(120, sparse=form == "sparse")
    if form == "unknown":
        Y = np.where(np.random.default_rng(8).random(Y.shape) < 0.1, np.nan, Y)
    whole = OML(random_state=1, **SETTINGS[setting]).partial_fit(X, Y)
    assert whole._embedding.reduction.r == 4
    for cuts in ([1, 19, 20, 21, 22, 80], range(0, 120, 7)):
        other = feed(OML(random_state=1, **SETTINGS[setting]), X, Y, cuts)
        assert_same_state(other.to_state(), whole.to_state())


CHECKS = [
    rule
    for rule in rules_for(OML())
    # Directions are drawn label by label, an unknown entry counts as the mean, and scikit-learn has
    # few labels.
    if rule.name not in ("label_permutation_commutes", "scikit_learn", "sparse_like_dense")
]
VARIANTS = {
    "default": {"random_state": 0},
    "convex": {"random_state": 0, "step": "convex", "window": 40, "lag": 3},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("rule", CHECKS, ids=lambda rule: rule.name)
def test_the_contract_of_all_learners_holds(limits, rule, variant):
    limits(many_labels=2)
    params = VARIANTS[variant]
    if rule.name in ("learns", "a_new_label_is_learnt"):
        params = params | {"window": 200} if "window" in params else params
    rule.check(lambda **more: OML(**{**params, **more}))


# ---------------------------------------------------------------------- growth


def growing_sets(n=140, seed=9):
    """Label sets of a stream in which a third of the labels comes late."""
    X, Y = draw(n, seed=seed)
    Y[: n // 2, 3:] = 0
    return X, as_sets(Y, "abcdefghi")


@pytest.mark.exact
@pytest.mark.parametrize("setting", ["default", "convex", "narrow", "window"])
def test_a_stream_may_grow_past_the_threshold(early, setting):
    X, sets = growing_sets()
    model, switched = OML(random_state=0, **SETTINGS[setting]), []
    for i, one in enumerate(sets):
        fits = i + 1 == (model._embedding.next_fit if i else 20)
        model.partial_fit(X[i : i + 1], [one])
        assert np.isfinite(model.predict_proba(X[i : i + 1])).all()
        if model._embedding.reduction is not None:
            switched.append(fits)
        else:
            assert not (fits and len(model.classes_) > 4)
    assert switched[0]  # at a fit, and not before
    assert len(model.classes_) == 9
    assert model.V_.shape == (9, 2 if setting == "narrow" else 4)
    assert model.P_.shape[1] == 9
    at_once = OML(random_state=0, **SETTINGS[setting]).partial_fit(X, sets)
    assert_same_state(at_once.to_state(), model.to_state())


def test_a_label_that_comes_between_two_turns_is_learnt_by_votes_and_copies(early):
    X, Y = draw(200)
    model = OML(random_state=0).partial_fit(X[:170], Y[:170])
    turns = model._embedding.next_choice
    item = X[190]
    for i in range(4):
        wide = np.pad(Y[170 + i : 171 + i] * 0, ((0, 0), (0, 1)), constant_values=1)
        model.partial_fit(item[None] + 0.01 * i, wide)
    assert model._embedding.next_choice == turns
    assert model._belief.fast.state.fresh[9] == BLIND
    assert model.predict_proba_one(item)[9] > 0.5
    assert model.predict_proba(X[:100])[:, 9].mean() < 0.2


def test_with_few_labels_left_there_is_no_reduction(early):
    X, Y = draw()
    model = OML(random_state=0).partial_fit(X, Y)
    V, full = model.V_, None
    for name in (8, 7, 6):
        model.remove_label(name)
        assert model._embedding.reduction is not None
        B = model._embedding.reduction.B
        np.testing.assert_allclose(B.T @ B, np.eye(B.shape[1]), atol=1e-6)
    for name in (5, 4):
        model.remove_label(name)
    full = model.V_
    assert model._embedding.reduction is None
    assert full.shape == (4, 4)
    assert V.shape == (9, 4)
    model.partial_fit(X, Y[:, :4])
    assert np.isfinite(model.predict_proba(X)).all()


# ---------------------------------------------------------------------- files and views


def test_what_is_saved_goes_on_as_if_it_had_not_been(early, tmp_path):
    X, sets = growing_sets()
    model = OML(random_state=0).partial_fit(X[:117], sets[:117])
    save_model(model, tmp_path / "model.tgs")
    again = load_model(tmp_path / "model.tgs")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    for one in (model, again):
        one.partial_fit(X[117:], sets[117:])
    assert_same_state(again.to_state(), model.to_state())


def test_a_state_from_before_there_was_a_reduction_is_read(limits):
    X, Y = draw()
    state = OML(random_state=0).partial_fit(X, Y).to_state()
    assert state["learner"].pop("reduction") is None
    limits(many_labels=4)  # its labels are many by now
    for name in ("n_fits", "fitted_at"):
        del state["learner"][name]
    for name in ("any", "drawn"):
        del state["learner"]["belief"][name]
    del state["learner"]["store"]["corrections"]
    model = OML.from_state(from_format_2("OML", state))
    assert model._embedding.reduction is None
    model.partial_fit(X, Y)
    assert model._embedding.reduction is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("B", np.zeros((9, 4))),
        ("B", np.zeros((10, 4), np.float32)),
        ("B", np.zeros((9, 3), np.float32)),
        ("B", np.full((9, 4), 2, np.float32)),
        ("middle", np.zeros(8)),
        ("middle", np.full(9, 1.5)),
        ("middle", np.full(9, np.nan)),
    ],
)
def test_a_reduction_of_no_meaning_is_refused(early, name, value):
    X, Y = draw()
    state = copy.deepcopy(OML(random_state=0).partial_fit(X, Y).to_state())
    state["learner"]["reduction"][name] = value
    with pytest.raises(ValueError, match="must"):
        OML.from_state(state)


def test_a_view_stays_while_its_model_learns_on(early):
    X, sets = growing_sets()
    model = OML(random_state=0).partial_fit(X[:120], sets[:120])
    view = model.view()
    before = view.predict_proba(X)
    model.partial_fit(X[120:], sets[120:])
    model.partial_fit(X, sets)
    np.testing.assert_array_equal(view.predict_proba(X), before)


# ---------------------------------------------------------------------- size


def many(n, q, p=40, seed=10):
    rng = np.random.default_rng(seed)
    X = sp.random(n, p, 0.2, "csr", np.float32, random_state=rng)
    columns = np.unique(rng.integers(0, q, 3 * n) * n + np.repeat(np.arange(n), 3))
    Y = sp.csr_matrix((np.ones(len(columns), np.uint8), (columns % n, columns // n)), (n, q))
    return X, Y


@pytest.mark.parametrize("step", ["exact", "convex"])
def test_nothing_has_the_size_of_labels_times_labels(limits, step):
    limits(rank=32)
    q = 8000
    X, Y = many(130, q)
    OML(random_state=0, step=step).partial_fit(*many(60, q)).predict_sets(X[:2])  # compile
    tracemalloc.start()
    model = OML(random_state=0, step=step).partial_fit(X, Y)
    model.predict_sets(X[:9])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < q * q  # bytes: not even a bit mask of eight would fit twice
    assert model.nbytes_ < q * q / 8


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("cells", [1, 2000])
def test_sparse_labels_are_learnt_like_dense_ones_and_stay_sparse(limits, named, cells):
    X, Y = many(90, 40)
    dense = Y.toarray()
    if named:
        sets = [{f"{j:02}" for j in row.indices} for row in Y]
        sets[7] = None
        whole = OML(random_state=0).partial_fit(X, sets).to_state()
        limits(dense_cells=cells)
        other = OML(random_state=0).partial_fit(X, sets).to_state()
    else:
        names = [f"{j:02}" for j in range(39, -1, -1)]
        first = dense[:30], names[::-1]
        whole = OML(random_state=0).partial_fit(X[:30], *first)
        whole = whole.partial_fit(X[30:], dense[30:], classes=names).to_state()
        limits(dense_cells=cells)
        other = OML(random_state=0).partial_fit(X[:30], *first)
        other = other.partial_fit(X[30:], Y[30:], classes=names).to_state()
    assert_same_state(other, whole)


def test_sparse_labels_that_are_not_labels_change_nothing(limits):
    limits(dense_cells=10)
    X, Y = many(60, 40)
    model = OML(random_state=0).partial_fit(X, Y)
    before = model.to_state()
    wrong = Y.copy()
    wrong.data[-1] = 3
    for bad in (wrong, Y[:, :30], Y[:50]):
        with pytest.raises(ValueError, match="must"):
            model.partial_fit(X, bad)
    assert_same_state(model.to_state(), before)


def test_labels_are_predicted_in_parts_where_scores_would_be_too_many(monkeypatch):
    X, Y = draw()
    model = OML(random_state=0).partial_fit(X, Y)
    whole, sets = model.predict(X), model.predict_sets(X)
    monkeypatch.setattr("tagstream.learners.estimator.MOST_SCORES", 50)
    np.testing.assert_array_equal(model.predict(X), whole)
    assert model.predict_sets(X) == sets
