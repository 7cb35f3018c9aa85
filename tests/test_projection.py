"""The projection P against literal refits and scikit-learn's ridge regression."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge
from sklearn.metrics import f1_score

import reference as slow
from tagstream import projection
from tagstream.execution.steps import finish
from tagstream.labels.read import Labels
from tagstream.limits import LIMITS, Limits
from tagstream.projection import LIFTS, Choice, choice, choose, first_block
from tagstream.projection.choice import (
    FACTORS,
    Smoother,
    Tridiagonal,
    Votes,
    primal_ridge,
    sketched,
)
from tagstream.projection.features import (
    FILLED,
    Joined,
    centre,
    column_gram,
    inner_products,
    make_features,
    moments,
    transposed_times,
    unit_rows,
)
from tagstream.projection.ridge import Design
from tagstream.store.sums import LocalExamples

ITERATIVE = Limits(direct=10, primal=10)  # hardly anything is solved directly


def draw(seed, n, p, q, *, kept=1.0, noise=0.5):
    """Rows and labels that depend on them linearly, rare and frequent labels mixed."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, p)) < kept, rng.normal(size=(n, p)), 0).astype(np.float32)
    scores = X @ rng.normal(size=(p, q)) / np.sqrt(p * kept) + noise * rng.normal(size=(n, q))
    return X, (scores > rng.uniform(-0.5, 1, q)).astype(np.uint8)


def fitted(examples, choice, *, lift_size=LIMITS.lift_size, seed=0, start=None):
    """Return the projection of examples, and how they are spread."""
    features = finish(make_features(examples, choice, lift_size, seed))
    design = finish(Design.of(examples, features))
    return finish(projection.fit(design, choice.ridge, start=start))


def fit(rows, labels, choice, limits=LIMITS, **how):
    """Fit whole arrays, and leave out how they are spread."""
    return fitted(LocalExamples.of(rows, labels, limits=limits), choice, **how)[0]


def leading_directions(labels, d):
    rows = np.zeros((len(labels.Y), 1), np.float32)
    return projection.leading_directions(LocalExamples.of(rows, labels), d)


def whitened(X, choice, size):
    """Return the centred features whose weights the ridge holds down."""
    examples = LocalExamples.of(X, Labels(np.zeros((len(X), 1), np.uint8), None))
    features = finish(make_features(examples, choice, size, 0))
    return finish(finish(Design.of(examples, features)).times(np.eye(size)))


def centred(X):
    X = X.astype(np.float64)
    return X - X.mean(axis=0)


def plain(rho):
    return Choice(None, ridge=rho)


def auto(X, Y, limits=LIMITS, **changes):
    how = {"scale": None, "lift": None, "ridge": "auto", "n_neighbors": 5, "rule": 0.5}
    examples = LocalExamples.of(X, Labels(Y, None), limits=limits)
    size = changes.pop("size", 300)
    return finish(choose(examples, lift_size=size, seed=0, **(how | changes)))[0]


def smoother(X, Y):
    return Smoother.of_kernel(centred(X) @ centred(X).T, Y - Y.mean(axis=0))


# ---------------------------------------------------------------------- leave-one-out


@pytest.mark.parametrize(("n", "p"), [(25, 4), (12, 30)])
@pytest.mark.parametrize("rho", [0.3, 20.0])
def test_leave_one_out_equals_fitting_again_without_the_row(n, p, rho):
    X, Y = draw(1, n, p, 3)
    _, fitted, left_out = smoother(X, Y).fitted(rho)
    P, c = slow.ridge(X.astype(float), Y.astype(float), rho)
    literal = slow.left_out_predictions(X.astype(float), Y.astype(float), rho)
    np.testing.assert_allclose(fitted + Y.mean(axis=0), X @ P + c, atol=1e-9)
    np.testing.assert_allclose(left_out + Y.mean(axis=0), literal, atol=1e-9)


@pytest.mark.parametrize(("n", "p"), [(25, 4), (12, 30)])
@pytest.mark.parametrize("rho", [0.3, 20.0])
def test_left_out_distances_are_those_of_fits_that_never_saw_the_row(n, p, rho):
    X, Y = (a.astype(float) for a in draw(1, n, p, 3))
    made = smoother(X, Y)
    distances, left_out = made.left_out_distances(rho), made.fitted(rho)[2]
    for i in range(n):
        others = np.arange(n) != i
        P, _ = slow.ridge(X[others], Y[others], rho)
        gaps = ((X[others] - X[i]) @ P) ** 2
        own = (left_out[i] ** 2).sum()
        np.testing.assert_allclose(distances[i, others] + own, gaps.sum(axis=1), atol=1e-9)
        assert distances[i, i] == np.inf


def generalised_error(X, Y, rho):
    """n‖(I − H)Y‖²/(n − tr H)², H made by regressing each unit vector; and (n − tr H)/n."""
    X, n = X.astype(float), len(X)
    P, c = slow.ridge(X, np.eye(n), rho)
    left = np.eye(n) - (X @ P + c)
    return n * ((left @ Y) ** 2).sum() / np.trace(left) ** 2, np.trace(left) / n


def test_few_features_and_their_kernel_matrix_make_the_same_smoother():
    X, Y = draw(4, 60, 9, 5)
    X = X.astype(np.float64)
    X[:, 3] = X[:, 2]  # of less than full rank
    T = Y - Y.mean(axis=0)
    wide, thin = smoother(X, Y), Smoother.of_rows(X + 5.0, T)
    assert thin.ridge == pytest.approx(wide.ridge, rel=1e-9)
    for rho in (1e-3, 1.0, 100.0):  # with less, the kernel matrix' own rounding shows
        for a, b in zip(thin.fitted(rho), wide.fitted(rho), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize("p", [3, 40, 300])
@pytest.mark.parametrize("rho", [0.0, 1e-9, 1e-3, 10.0])
def test_an_inverse_and_eigenvectors_make_the_same_smoother(p, rho):
    X, Y = draw(2, 80, p, 4)
    K, T = centred(X) @ centred(X).T, Y - Y.mean(axis=0)
    direct, exact = Smoother.of_kernel(K, T), Smoother.of_eigenvectors(K, T)
    assert type(direct) is not type(exact)
    assert direct.ridge == pytest.approx(exact.ridge, rel=1e-9)
    for a, b in zip(direct.fitted(rho), exact.fitted(rho), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("n", [50, 90])
def test_normal_equations_and_examples_have_the_same_validated_ridge(n):
    X, Y = draw(3, n, 40, 3)
    X, T = centred(X), Y - Y.mean(axis=0)
    ridge = primal_ridge(X.T @ X, X.T @ T, float((T**2).sum()), n)
    assert ridge == pytest.approx(Smoother.of_kernel(X @ X.T, T).ridge, rel=1e-9)


def test_a_tridiagonal_form_answers_for_its_matrix():
    A, B = (a.astype(np.float64) for a in draw(4, 40, 60, 5))
    A = A @ A.T
    made = Tridiagonal.of(A)
    np.testing.assert_allclose(made.values, np.linalg.eigvalsh(A), atol=1e-10 * np.trace(A))
    turned = made.turned(B)
    np.testing.assert_allclose((turned**2).sum(), (B**2).sum())
    expected = B.T @ np.linalg.solve(A + 0.5 * np.eye(40), B)
    np.testing.assert_allclose(turned.T @ made.solve(0.5, turned), expected, atol=1e-8)
    for rho in (1e-6 * np.trace(A), 0.5, 1e3):
        trace = np.trace(np.linalg.inv(A + rho * np.eye(40)))
        assert made.inverse_trace(rho) == pytest.approx(trace, rel=1e-8)


def test_votes_are_counted_by_distances_of_single_precision_where_the_ridge_is_strong():
    X, Y = draw(6, 90, 30, 4)
    X, T = centred(X), Y - Y.mean(axis=0)
    made, others = (Smoother.of_kernel(X @ X.T, T), Smoother.of_rows(X, T)), ~np.eye(90, dtype=bool)
    for share, kind, error in (
        (2e-4, np.float32, 2e-3),
        (1e-2, np.float32, 1e-5),
        (5e-5, float, 1e-9),
    ):
        rho = share * (X**2).sum()
        H, F, L = made[1].fitted(rho)
        gaps = F[None] - H[:, :, None] * (T - L)[:, None] - L[:, None]
        expected = (gaps**2).sum(axis=2)[others]
        for one in made:
            distances = one.left_out_distances(rho)
            assert distances.dtype == kind
            assert not np.isfinite(distances[~others]).any()
            distances = (distances + (L**2).sum(axis=1)[:, None])[others]
            np.testing.assert_allclose(distances, expected, atol=error * expected.max())


def test_many_targets_are_added_up_to_few_of_the_same_squared_length():
    X, Y = draw(7, 120, 300, 300)
    T = Y - Y.mean(axis=0)
    some = sketched(T)
    assert some.shape == (120, 64)
    assert np.array_equal(sketched(T[:, :64]), T[:, :64])
    for part in (slice(0, 60), slice(60, 120)):
        assert (some[part] ** 2).sum() == pytest.approx((T[part] ** 2).sum(), rel=0.05)
    errors = {rho: generalised_error(X, T, rho)[0] for rho in (smoother(X, Y).ridge, 30.0, 3e3)}
    assert min(errors.values()) * 1.01 > next(iter(errors.values()))


def test_rows_that_are_all_the_same_have_a_smoother():
    Y = draw(5, 20, 3, 4)[1]
    made = Smoother.of_rows(np.ones((20, 3)), Y - Y.mean(axis=0))
    assert np.isfinite(made.ridge)
    assert not made.fitted(made.ridge)[1].any()


@pytest.mark.parametrize(("n", "p"), [(60, 12), (40, 55)])
def test_the_ridge_has_the_least_generalised_cross_validation_error(n, p):
    X, Y = draw(2, n, p, 4, noise=1.0)
    chosen = smoother(X, Y).ridge
    step = 10**0.25
    errors = {r: generalised_error(X, Y, r)[0] for r in (chosen / step, chosen, chosen * step)}
    assert min(errors, key=errors.get) == chosen


def left_out_error(X, Y, rho):
    return np.mean((smoother(X, Y).fitted(rho)[2] - (Y - Y.mean(axis=0))) ** 2)


@pytest.mark.parametrize("sample", [50, 512])
@pytest.mark.parametrize("p", [20, 90])
def test_the_chosen_ridge_is_nearly_as_good_as_the_left_out_best(p, sample):
    X, Y = draw(4, 120, p, 4, noise=1.5)
    total = (centred(X) ** 2).sum()
    best = min(left_out_error(X, Y, total * r) for r in 10.0 ** np.arange(-4, 1, 0.5))
    chosen = auto(X, Y, sample=sample).ridge  # below n the ridge is sought once more
    assert min(left_out_error(X, Y, chosen / factor) for factor in (1.0, *FACTORS)) < 1.01 * best
    careless = max(left_out_error(X, Y, total * r) for r in (1e-8, 10.0))
    assert careless > 1.1 * best  # there was something to choose


def test_near_interpolation_nothing_is_trusted():
    # Loud columns that are the labels beside many faint ones: the less ridge, the smaller the
    # quotient of generalised cross-validation, down to where both its sides vanish.
    rng = np.random.default_rng(3)
    Y = (rng.random((30, 3)) < 0.4).astype(np.uint8)
    X = np.hstack([10.0 * Y, rng.normal(size=(30, 40))]).astype(np.float32)
    least = (centred(X) ** 2).sum() * 1e-8
    assert generalised_error(X, Y, least)[1] < 1e-3
    chosen = smoother(X, Y).ridge
    assert generalised_error(X, Y, least)[0] < generalised_error(X, Y, chosen)[0]
    assert generalised_error(X, Y, chosen)[1] >= 0.05


# ---------------------------------------------------------------------- what is chosen


def left_out_micro_f1(X, Y, rho, k, threshold):
    """Micro-F1 of votes among codes of a ridge regression that never saw the row."""
    X, votes = X.astype(float), np.empty(Y.shape)
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        P, _ = slow.ridge(X[others], Y[others].astype(float), rho)
        gaps = (((X[others] - X[i]) @ P) ** 2).sum(axis=1)
        votes[i] = Y[others][np.argsort(gaps, kind="stable")[:k]].mean(axis=0)
    return f1_score(Y, votes >= threshold, average="micro", zero_division=0)


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_the_ridge_is_changed_only_where_left_out_votes_get_better(threshold, seed):
    X, Y = draw(50 + seed, 40, 25, 4, noise=0.3)
    first = smoother(X, Y).ridge
    factors = (1.0, *FACTORS)
    f1 = {factor: left_out_micro_f1(X, Y, factor * first, 5, threshold) for factor in factors}
    found = auto(X, Y, rule=threshold).ridge / first
    assert f1[min(factors, key=lambda one: abs(one - found))] == max(f1.values())


def test_scaling_is_chosen_by_left_out_votes():
    X, Y = draw(53, 50, 6, 4)
    X *= np.float32(10) ** np.arange(-1, 2, 0.5, dtype=np.float32)
    scaled = {None: X, "standard": (centred(X) / X.std(axis=0, dtype=float)).astype(np.float32)}
    f1 = {
        scale: left_out_micro_f1(rows, Y, smoother(rows, Y).ridge, 5, 0.5)
        for scale, rows in scaled.items()
    }
    assert f1[None] != f1["standard"]
    assert auto(X, Y, scale="auto").scale == max(f1, key=f1.get)


def ring(seed, n):
    """A label that no linear map can tell: the inside of a circle."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    inside = (X**2).sum(axis=1) < 1.2
    return X.astype(np.float32), np.column_stack([inside, ~inside]).astype(np.uint8)


def test_a_lift_is_taken_where_a_line_cannot_tell_and_only_if_allowed():
    X, Y = ring(5, 150)
    assert auto(X, Y, lift="auto").lift == "kernel"
    assert auto(X, Y, lift=None).lift is None
    for asked in ("kernel", "fourier"):
        assert auto(*draw(6, 80, 6, 3), lift=asked).lift == asked


def test_beyond_the_sample_a_lift_must_be_better_by_more_than_chance():
    # Where a line is as good as any curve, luck alone decides, on each stream anew.
    drawn = [draw(seed, 200, 5, 3) for seed in range(70, 90)]

    def lifts(caution, sample):
        limits = Limits(caution=caution)
        made = [auto(X, Y, limits, lift="auto", scale="standard", sample=sample) for X, Y in drawn]
        return sum(one.lift is not None for one in made)

    assert lifts(0.0, 50) > lifts(0.25, 50) > lifts(2.0, 50) == 0
    assert lifts(2.0, 200) == lifts(0.0, 200) > 0
    assert auto(*ring(5, 150), lift="auto", sample=75).lift == "kernel"


def test_the_caution_is_measured_in_standard_errors_of_the_difference():
    X, Y = draw(87, 300, 4, 5, noise=1.0)
    distances = [smoother(X, Y).left_out_distances(rho) for rho in (1.0, 3e3)]
    votes = [Votes.of(one, Labels(Y, None), 10, 0.5) for one in distances]
    told = [Y[np.argsort(one, axis=1)[:, :10]].mean(axis=1) >= 0.5 for one in distances]

    def f1(predictions, some=slice(None)):
        return f1_score(Y[some], predictions[some], average="micro")

    assert [one.f1 for one in votes] == pytest.approx([f1(one) for one in told])
    # Draw examples again and again: so widely does the difference spread.
    rng = np.random.default_rng(86)
    drawn = (rng.integers(300, size=300) for _ in range(400))
    spread = np.std([f1(told[0], some) - f1(told[1], some) for some in drawn])
    lead = f1(told[1]) - f1(told[0])
    better, worse = (votes[1], votes[0]) if lead > 0 else (votes[0], votes[1])
    assert better.better_than(worse, 0.8 * abs(lead) / spread)
    assert not better.better_than(worse, 1.25 * abs(lead) / spread)
    assert not worse.better_than(better, 0.0)


@pytest.mark.parametrize(("n", "k"), [(60, 7), (40, 300), (1, 3)])
@pytest.mark.parametrize("masked", [False, True])
def test_votes_are_counted_for_what_is_known_also_among_equals(n, k, masked):
    rng = np.random.default_rng(88)
    distances = rng.integers(1, 1000, (n, n)).astype(np.float64)
    distances[: n // 4] = 1.0  # all are equally far
    np.fill_diagonal(distances, np.inf)
    Y = (rng.random((n, 9)) < 0.4).astype(np.uint8)
    known = rng.random(Y.shape) < 0.7 if masked else None
    made = Votes.of(distances, Labels(Y, known), k, 0.5)
    k, sure = min(k, n - 1), np.ones(Y.shape, np.bool_) if known is None else known
    near = np.argpartition(distances, k - 1, axis=1)[:, :k]
    votes, there = Y[near].sum(axis=1) * sure, Y * sure
    chosen = (votes / max(k, 1) >= 0.5) & sure
    assert made.f1 == pytest.approx(f1_score(there, chosen, average="micro", zero_division=0))
    assert made.error == ((votes - k * there) ** 2).sum()
    assert made.shares.sum() == pytest.approx(0, abs=1e-9)


def test_of_many_examples_lifts_are_tried_near_the_last_choice():
    many = Limits(many_examples=150)
    median = 2.0
    for last, factors in (
        (None, choice.BANDWIDTHS),
        (Choice(None), choice.BANDWIDTHS[1:3]),
        (Choice(None, "kernel", 1.9 * median), choice.BANDWIDTHS[:2]),
        (Choice(None, "kernel", 0.7 * median), choice.BANDWIDTHS[1:]),
        (Choice("standard", "kernel", 0.7 * median), ()),
    ):
        assert choice._nearby(last, None, median) == factors
    X, Y = draw(7, 200, 4, 3)
    Y = (np.hypot(X[:, :3], X[:, 1:]) < 1).astype(np.uint8)
    first = auto(X, Y, many, lift="auto")
    assert first.lift == "kernel"
    assert auto(X, Y, many, lift="auto", last=first) == first  # judged again, and found best again
    far = Choice(None, "kernel", 100 * first.bandwidth)
    assert auto(X, Y, many, lift="auto", last=far).bandwidth > first.bandwidth
    fewer = Limits(many_examples=200)
    assert auto(X, Y, fewer, lift="auto", last=far) == first  # not so many: all are tried


def test_of_a_larger_sample_the_two_best_lifts_of_half_of_it_are_judged(monkeypatch):
    X, Y = draw(8, 100, 3, 3)
    Y = (np.hypot(X, X[:, [1, 2, 0]]) < 1).astype(np.uint8)
    judged = []
    original = choice.Panel.judge

    def judge(panel, one):
        judged.append((panel, one, original(panel, one)))
        return judged[-1][2]

    monkeypatch.setattr(choice.Panel, "judge", judge)
    auto(X, Y, lift="auto", sample=100)
    first = judged[0][0]
    on_half = [(one, made) for panel, one, made in judged if panel is first]
    on_all = [one for panel, one, _ in judged if panel is not first]
    assert [one.choice.bandwidth for one, _ in on_half] == sorted(
        (one.choice.bandwidth for one, _ in on_half), reverse=True
    )
    assert len(on_half) == len(choice.BANDWIDTHS)
    best = sorted(on_half, key=lambda pair: pair[1].votes.rank)[: choice.FINALISTS]
    assert {(one.choice, one.ridge) for one in on_all[1:]} == {
        (one.choice, made.ridge) for one, made in best
    }
    assert on_all[0].choice.lift is None
    assert on_all[0].ridge is None  # which is then sought on all
    judged.clear()
    auto(X[:60], Y[:60], lift="auto")  # a small sample is not halved
    assert len(judged) == 1 + len(choice.BANDWIDTHS)
    assert len({id(panel) for panel, _, _ in judged}) == 1


def test_without_a_lift_the_ridge_is_sought_on_more_than_the_sample():
    X, Y = draw(60, 150, 20, 3)

    def found(lift, limits=LIMITS):
        examples = LocalExamples.of(X, Labels(Y, None), limits=limits)
        how = {"scale": None, "ridge": "auto", "n_neighbors": 5, "rule": 0.5}
        return finish(choose(examples, sample=50, lift=lift, lift_size=300, seed=0, **how))

    def is_that_of(made, size):
        rows, labels = LocalExamples.of(X, Labels(Y, None)).sample(size).every()
        ratio = made.ridge / smoother(rows, labels.Y).ridge
        return min(abs(ratio - factor) for factor in (1.0, *FACTORS)) < 1e-9

    made, design = found(None)
    assert design is not None
    assert is_that_of(made, 150)
    assert not is_that_of(made, 50)
    assert found("kernel")[1] is None
    made, design = found(None, Limits(sample=10, ridge_sample=100))  # too many features
    assert design is None
    assert is_that_of(made, 100)
    assert not is_that_of(made, 150)


def test_one_product_of_sparse_rows_does_for_rows_as_they_are_and_of_unit_length():
    X, Y = texts(43, 40, longest=30)
    X = sp.csr_matrix(X.toarray() * (np.arange(40) != 3)[:, None], dtype=np.float32)
    few = LocalExamples.of(X, Labels(Y, None))
    _, (plain, unit) = choice._inner_products(few, (None, "unit"), 10, 0)
    _, (same,) = choice._inner_products(few, ("unit",), 10, 0)
    np.testing.assert_allclose(plain, (X @ X.T).toarray())
    np.testing.assert_allclose(unit, same, atol=1e-6)
    assert not unit[3].any()
    few = LocalExamples.of(unit_rows(X), Labels(Y, None))
    _, (alone,) = choice._inner_products(few, (None, "unit"), 10, 0)  # the other changes nothing
    np.testing.assert_allclose(alone, unit, atol=1e-6)
    assert auto(unit_rows(X), Y, scale="auto").scale is None


def test_features_are_standardised_where_it_helps_and_only_if_allowed():
    X, Y = draw(7, 150, 5, 3, noise=0.1)
    X = np.column_stack([X, 1e4 * np.random.default_rng(8).normal(size=(150, 3))])
    X = X.astype(np.float32)
    X[:, :5] *= 1e-2
    assert auto(X, Y, scale="auto").scale == "standard"
    assert auto(X, Y, scale=None).scale is None
    for asked in ("standard", "unit"):
        assert auto(*draw(9, 50, 4, 3), scale=asked).scale == asked


def texts(seed, n, longest):
    """Rows of counts: what a text is about shows in the shares of its words."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(30, 0.2), size=3)
    topic = rng.integers(3, size=n)
    length = rng.integers(5, longest + 1, size=n)
    X = np.array([rng.multinomial(m, shares[k]) for m, k in zip(length, topic, strict=True)])
    return sp.csr_matrix(X, dtype=np.float32), np.eye(3, dtype=np.uint8)[topic]


def test_sparse_rows_get_unit_length_where_it_helps_and_only_if_allowed():
    X, Y = texts(40, 200, longest=400)
    assert auto(X, Y, scale="auto").scale == "unit"
    assert auto(X, Y, scale=None).scale is None
    same = X.multiply(1 / np.sqrt(X.multiply(X).sum(axis=1))).tocsr().astype(np.float32)
    assert auto(same, Y, scale="auto").scale is None  # the simpler of equals


@pytest.mark.parametrize("kind", [sp.csr_matrix, np.asarray])
@pytest.mark.parametrize("lift", LIFTS)
def test_rows_of_unit_length_are_those_divided_by_their_length(kind, lift):
    X, Y = draw(41, 40, 6, 3)
    X[3] = 0.0  # which has no direction
    length = np.where((X == 0).all(axis=1), 1, np.linalg.norm(X.astype(float), axis=1))
    unit = (X / length[:, None]).astype(np.float32)
    made = fit(kind(X), Labels(Y, None), Choice("unit", lift, 0.7, 0.5), lift_size=20)
    expected = fit(kind(unit), Labels(Y, None), Choice(None, lift, 0.7, 0.5), lift_size=20)
    np.testing.assert_allclose(made(kind(X)), expected(kind(unit)), atol=1e-5)
    np.testing.assert_array_equal(made(kind(X[5:9])), made(kind(X))[5:9])
    np.testing.assert_array_equal(made(kind(4 * X)), made(kind(X)))


def test_a_lift_is_judged_by_the_features_it_really_has():
    # Fine stripes need a narrow kernel, of which a handful of random features say nothing.
    X = np.random.default_rng(42).normal(size=(400, 2)).astype(np.float32)
    stripe = np.sin(6 * X[:, 0]) > 0
    Y = np.column_stack([stripe, ~stripe]).astype(np.uint8)
    few, many = (auto(X, Y, lift="fourier", size=size).bandwidth for size in (10, 1000))
    assert few > many


def test_sparse_rows_are_neither_standardised_nor_lifted_unasked():
    X, Y = ring(10, 100)
    X = sp.csr_matrix(np.where(np.abs(X) > 0.3, X, 0) * [1, 100])
    chosen = auto(X.astype(np.float32), Y, scale="auto", lift="auto")
    assert chosen.scale != "standard"
    assert chosen.lift is None


@pytest.mark.parametrize("n", [20, 40, 300])
@pytest.mark.parametrize("size", [1e-12, 1 / 3, 1.0, 1e9])
def test_of_equal_features_the_ridge_is_positive_and_the_kernel_matrix_zero(n, size):
    X = np.full((n, 3), size) * [1.0, 0.1, 0.7]
    K = centre(X @ X.T)
    assert not K.any()
    T = draw(19, n, 4, 3)[1].astype(float)
    assert Smoother.of_kernel(K, T - T.mean(axis=0)).ridge > 0
    assert auto(sp.csr_matrix(X), T.astype(np.uint8)).ridge > 0


@pytest.mark.parametrize("scale", [None, "standard"])
@pytest.mark.parametrize("size", [1e-20, 1e-30, 1e-44])
def test_very_small_sparse_features_have_weights_of_single_precision(scale, size):
    X, Y = draw(20, 80, 3, 2, kept=0.3)
    X, Y = sp.csr_matrix((X > 0) * np.float32(size)), (X[:, :2] > 0).astype(np.uint8)
    made = fit(X, Labels(Y, None), auto(X, Y, scale=scale))
    assert np.isfinite(made.P).all()
    assert np.isfinite(made(X)).all()
    if size > 1e-38:  # smaller ones need larger weights than there are
        np.testing.assert_array_equal(made(X) > 0.5, Y)


@pytest.mark.parametrize("size", [1e-60, 1e-40, 1e30])
def test_votes_do_not_depend_on_the_unit_of_the_features(size):
    X, Y = draw(21, 80, 3, 2)
    X, T = centred(X), Y - Y.mean(axis=0)
    ridge = float((X**2).sum())
    plain = Smoother.of_kernel(X @ X.T, T).left_out_distances(ridge)
    other = Smoother.of_kernel(X @ X.T * size, T).left_out_distances(ridge * size)
    np.testing.assert_allclose(other, plain, rtol=1e-4, atol=1e-4)


def test_without_features_there_is_a_ridge_all_the_same():
    assert primal_ridge(np.zeros((0, 0)), np.zeros((0, 2)), 3.0, 10) > 0


def test_a_given_ridge_is_kept():
    for lift in LIFTS:
        assert auto(*draw(11, 80, 4, 3), ridge=0.7, lift=lift).ridge == 0.7


@pytest.mark.parametrize(
    "spoil",
    [
        lambda X, Y: (np.zeros_like(X), Y),
        lambda X, Y: (np.ones_like(X) * 1e6, Y),
        lambda X, Y: (X, np.zeros_like(Y)),
        lambda X, Y: (X, np.ones_like(Y)),
        lambda X, Y: (X[:1], Y[:1]),
        lambda X, Y: (X[:2], Y[:2]),
        lambda X, Y: (np.repeat(X[:2], 15, axis=0), np.repeat(Y[:2], 15, axis=0)),
        lambda X, Y: (X * np.float32(1e14), Y),
        lambda X, Y: (X * np.float32(1e-30), Y),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("lift", ["auto", "kernel", "fourier"])
def test_poor_data_give_a_finite_projection(spoil, sparse, lift):
    X, Y = spoil(*draw(12, 30, 5, 3))
    rows = sp.csr_matrix(X) if sparse else np.ascontiguousarray(X)
    labels = Labels(np.ascontiguousarray(Y), None)
    chosen = auto(rows, labels.Y, scale="auto", lift=lift, size=50)
    Z = fit(rows, labels, chosen, lift_size=50)(rows)
    assert np.isfinite(Z).all()
    assert np.abs(Z).max() < 10


# ---------------------------------------------------------------------- the fit


@pytest.mark.parametrize(("n", "p"), [(60, 8), (20, 40)])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("rho", [1e-3, 1.0, 100.0])
def test_fit_equals_ridge_regression_with_an_intercept(n, p, sparse, rho):
    X, Y = draw(13, n, p, 4, kept=0.4)
    X += np.float32(0.5) * (X != 0)  # columns with a mean
    made = fit(sp.csr_matrix(X) if sparse else X, Labels(Y, None), plain(rho))
    oracle = Ridge(alpha=rho, solver="svd", tol=1e-12).fit(X.astype(np.float64), Y)
    tolerance = 1e-5 if sparse else 1e-8  # behind sparse rows P is kept in single precision
    np.testing.assert_allclose(made.dense, oracle.coef_.T, atol=tolerance)
    np.testing.assert_allclose(made.c, oracle.intercept_, atol=tolerance)
    Z = made(sp.csr_matrix(X) if sparse else X)
    np.testing.assert_allclose(Z, oracle.predict(X.astype(np.float64)), atol=10 * tolerance)


def test_standardising_is_ridge_regression_on_standardised_features():
    X, Y = draw(14, 70, 6, 3)
    X = X * np.float32(10.0) ** np.arange(-2, 4, dtype=np.float32)
    X[:, 2] = 7  # constant: nothing to divide by
    made = fit(X, Labels(Y, None), Choice("standard", ridge=2.0))
    wide = X.astype(np.float64)
    scale = np.where(np.arange(6) == 2, 1, wide.std(axis=0))
    oracle = Ridge(alpha=2.0).fit((wide - wide.mean(axis=0)) / scale, Y)
    expected = oracle.predict((wide - wide.mean(axis=0)) / scale)
    np.testing.assert_allclose(made(X), expected, atol=1e-9)


@pytest.mark.parametrize(("n", "p"), [(60, 8), (25, 40)])
@pytest.mark.parametrize("sparse", [False, True])
def test_with_unknown_entries_each_label_is_regressed_on_the_examples_that_know_it(n, p, sparse):
    X, Y = draw(15, n, p, 4)
    known = np.random.default_rng(16).random(Y.shape) < [1.0, 0.9, 0.5, 0.3]
    rows = sp.csr_matrix(X) if sparse else X
    made = fit(rows, Labels(Y * known, known), plain(3.0))
    for j in range(4):
        seen = known[:, j]
        oracle = Ridge(alpha=3.0, tol=1e-12).fit(X[seen].astype(np.float64), Y[seen, j])
        np.testing.assert_allclose(made.dense[:, j], oracle.coef_, atol=1e-6)
        np.testing.assert_allclose(made.c[j], oracle.intercept_, atol=1e-6)


def test_a_label_nobody_knows_is_projected_to_zero():
    X, Y = draw(17, 30, 5, 3)
    known = np.ones(Y.shape, bool)
    known[:, 1] = False
    made = fit(X, Labels(Y * known, known), plain(1.0))
    assert not made(X)[:, 1].any()
    np.testing.assert_allclose(
        made(X)[:, [0, 2]], fit(X, Labels(Y[:, [0, 2]], None), plain(1.0))(X), atol=1e-8
    )


@pytest.mark.parametrize(("n", "p"), [(120, 60), (60, 300)])
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("kind", [sp.csr_matrix, np.asarray])
def test_the_iterative_solution_is_close_to_the_direct_one(n, p, unknown, kind):
    X, Y = draw(18, n, p, 5, kept=0.1)
    known = np.random.default_rng(19).random(Y.shape) < 0.8 if unknown else None
    labels = Labels(Y if known is None else Y * known, known)
    rows = kind(X)
    direct = fit(rows, labels, plain(5.0))
    close = fit(rows, labels, plain(5.0), ITERATIVE)
    again = fit(rows, labels, plain(5.0), ITERATIVE, start=close)
    scale = direct(rows).std()
    assert 0 < np.abs(close(rows) - direct(rows)).max() < 0.02 * scale
    assert np.abs(again(rows) - direct(rows)).max() < 0.02 * scale


@pytest.mark.parametrize(("constant", "share"), [(7, 1e-8), (1000, 1e-4)])
def test_a_constant_column_does_not_spoil_the_iterative_solution(constant, share):
    X, Y = draw(43, 400, 300, 3, kept=0.1)
    X[:, 0] = constant
    rows, labels = sp.csr_matrix(X), Labels(Y, None)
    rho = share * float((centred(X) ** 2).sum())
    direct = fit(rows, labels, plain(rho))
    close = fit(rows, labels, plain(rho), ITERATIVE)
    assert np.abs(close(rows) - direct(rows)).max() < 0.1
    assert np.isfinite(fit(rows, labels, plain(1e-60), ITERATIVE)(rows)).all()


def test_of_many_examples_too_warm_rounds_set_out_from_the_last_fit():
    X, Y = draw(12, 300, 400, 3, kept=0.1)
    X, labels = sp.csr_matrix(X), Labels(Y, None)
    start = fit(X[:240], Labels(Y[:240], None), plain(5.0), ITERATIVE)
    made = []
    for many in (300, 299):
        limits = replace(ITERATIVE, many_examples=many)
        made.append(fit(X, labels, plain(5.0), limits, start=start))
    np.testing.assert_allclose(made[0].P, made[1].P, atol=1e-5)
    np.testing.assert_allclose(made[0].c, made[1].c, atol=1e-5)
    assert not np.allclose(made[0].P, start.P, atol=1e-3)


@pytest.mark.parametrize("n_filled", [0, FILLED + 3])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_warm_start_is_improved_by_textbook_rounds_over_all_leaves(rounds, n_filled):
    limits = replace(ITERATIVE, many_examples=10, warm_rounds=rounds, leaf=64)
    X, Y = draw(13, 300, 400, 3, kept=0.1)
    X[:, :n_filled] += 0.5
    rows, rho = sp.csr_matrix(X), 5.0
    examples = LocalExamples.of(rows, Labels(Y, None), limits=limits)
    start = fit(rows[:200], Labels(Y[:200], None), plain(rho), limits)
    made = fitted(examples, plain(rho), start=start)[0]

    X, T = centred(X.astype(float)), Y - Y.mean(axis=0)
    A = X.T @ X + rho * np.eye(400)
    P = start.dense.astype(float)
    R = X.T @ T - A @ P
    D = Z = R / np.diag(A)[:, None]
    for _ in range(rounds):
        length = (R * Z).sum(axis=0) / (D * (A @ D)).sum(axis=0)
        P, old, energy = P + length * D, R, (R * Z).sum(axis=0)
        R = old - length * (A @ D)
        Z = R / np.diag(A)[:, None]
        D = Z + (R * Z).sum(axis=0) / energy * D
    np.testing.assert_allclose(made.dense, P, atol=1e-5)


def test_wide_dense_rows_too_are_solved_by_rounds():
    X, Y = draw(14, 300, 400, 3)
    direct = fit(X, Labels(Y, None), plain(100.0))
    made = fit(X, Labels(Y, None), plain(100.0), Limits(direct=10))
    assert 0 < np.abs(made(X) - direct(X)).max() < 0.01


def test_the_papers_projection_is_least_squares_of_least_norm_without_intercept():
    for n, p in [(50, 6), (10, 30)]:
        X, Y = draw(20, n, p, 3)
        X += 1
        for rows in (X, sp.csr_matrix(X)):
            made = first_block(LocalExamples.of(rows, Labels(Y, None)))
            expected = np.linalg.pinv(X.astype(float)) @ Y
            np.testing.assert_allclose(made.dense, expected, atol=1e-6)
            assert not made.c.any()
            assert made.lift is None


# ---------------------------------------------------------------------- the map


@pytest.mark.exact
@pytest.mark.parametrize("kind", ["dense", "sparse", "kernel", "fourier"])
def test_a_rows_projection_does_not_depend_on_the_other_rows(kind):
    X, Y = draw(21, 61, 17, 6, kept=0.5)
    rows = sp.csr_matrix(X) if kind == "sparse" else X
    choice = Choice(None, kind if kind in LIFTS else None, 3.0, 1.0)
    made = fit(rows, Labels(Y, None), choice, lift_size=37)
    whole = made(rows)
    for cuts in ([1], [30, 31, 60], range(1, 61)):
        parts = [made(rows[np.arange(a, b)]) for a, b in itertools.pairwise([0, *cuts, 61])]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_a_sparse_feature_that_no_stored_example_has_counts_for_nothing():
    X, Y = draw(29, 40, 12, 3, kept=0.5)
    X[:, [0, 4, 11]] = 0
    rows = sp.csr_matrix(X)
    made = fit(rows, Labels(Y, None), plain(1.0))
    asked = X.copy()
    asked[:, [0, 4, 11]] = 100
    np.testing.assert_array_equal(made(sp.csr_matrix(asked)), made(rows))
    assert made.dense.shape == (12, 3)
    assert not made.dense[[0, 4, 11]].any()


def test_a_grown_projection_says_the_same_and_zero():
    X, Y = draw(22, 30, 5, 3)
    made = fit(X, Labels(Y, None), plain(1.0))
    Z = made.grown(5)(X)
    np.testing.assert_array_equal(Z[:, :3], made(X))
    assert not Z[:, 3:].any()


# ---------------------------------------------------------------------- the lift


def lifted(X, Y, kind, bandwidth, size, seed=0, standardise=False):
    choice = Choice("standard" if standardise else None, kind, bandwidth, 1.0)
    return fit(X, Labels(Y, None), choice, lift_size=size, seed=seed).lift


def gaussian(X, others, bandwidth):
    gaps = ((X.astype(float)[:, None] - others.astype(float)[None]) ** 2).sum(axis=2)
    return np.exp(-gaps / (2 * bandwidth**2))


@pytest.mark.parametrize("standardise", [False, True])
@pytest.mark.parametrize("size", [9, 40, 100])
def test_the_kernel_lift_is_the_gaussian_kernel_with_evenly_spaced_stored_rows(size, standardise):
    X, Y = draw(23, 40, 6, 2)
    X = X * np.array([1, 2, 0.5, 1, 1, 3], np.float32) + 50
    stored = X[np.arange(size) * 40 // size] if size < 40 else X
    scale = X.std(axis=0, dtype=float) if standardise else 1
    made = lifted(X, Y, "kernel", 2.0, size, standardise=standardise)
    np.testing.assert_allclose(made(X), gaussian(X / scale, stored / scale, 2.0), atol=1e-5)
    np.testing.assert_allclose(made.at_once(X), made(X), atol=1e-5)


@pytest.mark.parametrize("bandwidth", [0.5, 2.0, 20.0])
@pytest.mark.parametrize("rho", [1e-2, 1.0])
def test_with_all_rows_the_kernel_lift_gives_kernel_ridge_regression(bandwidth, rho):
    X, Y = draw(54, 60, 4, 3)
    asked = draw(55, 30, 4, 3)[0]
    made = fit(X, Labels(Y, None), Choice(None, "kernel", bandwidth, rho))
    # With an intercept: centre the kernel, and the labels.
    K, A = gaussian(X, X, bandwidth), gaussian(asked, X, bandwidth)
    middle = K.mean(axis=0)
    A = A - A.mean(axis=1, keepdims=True) - middle + middle.mean()
    K = K - middle - middle[:, None] + middle.mean()
    expected = A @ np.linalg.solve(K + rho * np.eye(60), Y - Y.mean(axis=0)) + Y.mean(axis=0)
    np.testing.assert_allclose(made(asked), expected, atol=2e-3)


def test_with_few_stored_rows_it_is_the_best_of_their_combinations():
    X, Y = draw(56, 80, 3, 2)
    made = fit(X, Labels(Y, None), Choice(None, "kernel", 1.5, 0.3), lift_size=20)
    K = gaussian(X, X[np.arange(20) * 4], 1.5)
    T, F = Y - Y.mean(axis=0), K - K.mean(axis=0)
    penalty = gaussian(X[np.arange(20) * 4], X[np.arange(20) * 4], 1.5)
    P = np.linalg.solve(F.T @ F + 0.3 * penalty, F.T @ T)
    np.testing.assert_allclose(made(X), F @ P + Y.mean(axis=0), atol=3e-4)
    assert made.P.shape == (20, 2)


@pytest.mark.parametrize("kind", ["kernel", "fourier"])
def test_many_rows_are_lifted_in_blocks(kind, monkeypatch):
    X, Y = draw(57, 200, 5, 3)
    choice = Choice("standard", kind, 2.0, 0.5)
    whole = fit(X, Labels(Y, None), choice, lift_size=30)(X)
    made = fit(X, Labels(Y, None), choice, Limits(leaf=64), lift_size=30)
    np.testing.assert_allclose(made(X, at_a_time=64), whole, atol=1e-6)


@pytest.mark.parametrize("kind", ["kernel", "fourier"])
def test_behind_a_lift_too_a_label_is_regressed_on_the_examples_that_know_it(kind):
    X, Y = draw(58, 60, 4, 3)
    known = np.random.default_rng(59).random(Y.shape) < [1.0, 0.7, 0.4]
    choice = Choice(None, kind, 1.5, 0.5)
    made = fit(X, Labels(Y * known, known), choice, lift_size=15)
    phi = whitened(X, choice, 15)
    for j in range(3):
        oracle = Ridge(alpha=0.5, tol=1e-12).fit(phi[known[:, j]], Y[known[:, j], j])
        np.testing.assert_allclose(made(X)[:, j], oracle.predict(phi), atol=1e-4)


@pytest.mark.parametrize("kind", ["kernel", "fourier"])
def test_a_row_far_from_all_others_has_finite_features(kind):
    X, Y = draw(60, 30, 4, 2)
    X[7] = [3e38, -3e38, 0, 1e30]
    made = fit(X, Labels(Y, None), Choice(None, kind, 1.0, 0.1), lift_size=30)
    assert np.isfinite(made(X)).all()
    assert np.isfinite(made(-X)).all()
    assert np.abs(made(X)).max() < 10


def test_of_the_kernel_stored_rows_say_more_than_as_many_random_directions():
    X, _ = draw(61, 150, 10, 2)
    K = gaussian(X, X, 3.0)
    errors = {}
    for kind in ("kernel", "fourier"):
        F = whitened(X, Choice(None, kind, 3.0), 100)
        centred_K = K - K.mean(axis=0) - K.mean(axis=0)[:, None] + K.mean()
        errors[kind] = np.abs(F @ F.T - centred_K).mean()
    assert errors["kernel"] < 0.2 * errors["fourier"]


@pytest.mark.parametrize("standardise", [False, True])
def test_inner_products_of_the_lift_approximate_the_gaussian_kernel(standardise):
    X, Y = draw(23, 40, 6, 2)
    X = X * np.array([1, 2, 0.5, 1, 1, 3], np.float32) + 5
    scaled = X.astype(float) / (X.std(axis=0, dtype=float) if standardise else 1)
    bandwidth = np.median(np.linalg.norm(scaled[:, None] - scaled[None], axis=2))
    kernel = gaussian(scaled, scaled, bandwidth)
    errors = {}
    for size in (100, 900):
        inner = [
            phi @ phi.T
            for phi in (
                lifted(X, Y, "fourier", bandwidth, size, s, standardise)(X) for s in range(12)
            )
        ]
        errors[size] = np.sqrt(np.mean((np.array(inner) - kernel) ** 2))
        # Without bias: over the seeds the mean comes near.
        assert np.abs(np.mean(inner, axis=0) - kernel).mean() < 0.5 * errors[size]
    assert errors[100] < 1 / np.sqrt(100)
    assert errors[100] / errors[900] == pytest.approx(3, rel=0.25)  # falls as 1/√D


def test_a_lift_of_many_features_draws_no_more_than_it_needs():
    # p × p numbers would not fit into any memory.
    X = sp.random(30, 2**15, density=0.01, format="csr", random_state=0, dtype=np.float32)
    Y = (np.random.default_rng(1).random((30, 2)) < 0.5).astype(np.uint8)
    made = fit(X, Labels(Y, None), Choice(None, "fourier", 5.0, 0.1), lift_size=40)
    assert made.lift.W.shape == (2**15, 40)
    W = made.lift.W.astype(float)
    np.testing.assert_allclose(W.T @ W, np.diag(np.diag(W.T @ W)), atol=0.3)
    assert np.diag(W.T @ W).mean() == pytest.approx(2**15, rel=0.05)
    np.testing.assert_allclose(made.lift.u, 1 / 5, rtol=1e-6)


def test_the_lift_is_drawn_by_its_seed():
    X, Y = draw(24, 20, 4, 2)
    same, other = (lifted(X, Y, "fourier", 1.0, 50, seed).W for seed in (1, 2))
    np.testing.assert_array_equal(lifted(X, Y, "fourier", 1.0, 50, 1).W, same)
    assert (same != other).any()


def test_a_lift_tells_the_inside_of_a_circle():
    X, Y = ring(25, 200)
    test_X, test_Y = ring(26, 200)
    right = {
        lift: (
            (fit(X, Labels(Y, None), auto(X, Y, lift=lift))(test_X)[:, 0] > 0.5) == test_Y[:, 0]
        ).mean()
        for lift in LIFTS
    }
    assert right[None] < 0.7
    assert right["kernel"] > 0.9
    assert right["fourier"] > 0.9


# ---------------------------------------------------------------------- the spread


@pytest.mark.parametrize("kind", ["dense", "standard", "sparse", "sparse standard", "kernel"])
@pytest.mark.parametrize(("n", "p"), [(60, 8), (20, 40)])
def test_the_spread_of_a_fit_is_that_of_what_p_is_multiplied_with(kind, n, p):
    X, Y = draw(62, n, p, 3, kept=0.5)
    X += np.float32(0.5) * (X != 0)
    sparse, lift = "sparse" in kind, "kernel" if kind == "kernel" else None
    rows = sp.csr_matrix(X) if sparse else X
    chosen = Choice("standard" if "standard" in kind else None, lift, 2.0, 1.0)
    examples = LocalExamples.of(rows, Labels(Y, None))
    made, spread = fitted(examples, chosen, lift_size=15)
    inputs = made.inputs(rows)
    inputs = np.asarray(inputs.toarray() if sparse else inputs, np.float64)
    if sparse:  # as they come
        assert spread.shift is None
        assert spread.mean is None
        np.testing.assert_allclose(spread.squares, (inputs**2).sum(axis=0), rtol=1e-5)
        return
    np.testing.assert_allclose(
        spread.squares, (((inputs - spread.shift) * spread.factor) ** 2).sum(axis=0), rtol=2e-4
    )
    np.testing.assert_allclose(spread.shift, inputs.mean(axis=0), atol=1e-6)
    both = finish(moments(examples))
    for told, expected in zip((spread.mean, spread.deviation), both, strict=True):
        np.testing.assert_array_equal(told, expected)


# ---------------------------------------------------------------------- the sums


@pytest.mark.exact
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("lift", [None, "kernel"])
@pytest.mark.parametrize("unknown", [False, True])
def test_a_fit_depends_on_the_examples_alone_not_on_how_they_are_held(sparse, lift, unknown):
    X, Y = draw(63, 70, 6, 3, kept=0.5)
    known = np.random.default_rng(64).random(Y.shape) < 0.8 if unknown else None
    labels = Labels(Y if known is None else Y * known, known)
    rows = sp.csr_matrix(X) if sparse else X
    whole = fit(rows, labels, Choice("standard", lift, 2.0, 1.0), lift_size=20)

    def some(part):
        return Labels(labels.Y[part], None if known is None else known[part])

    for numbers in (np.arange(70), np.arange(0, 4 * 70, 4), 7):
        held = LocalExamples(rows, some, numbers)
        made = fitted(held, Choice("standard", lift, 2.0, 1.0), lift_size=20)[0]
        np.testing.assert_array_equal(made.P, whole.P)
        np.testing.assert_array_equal(made.c, whole.c)


@pytest.mark.parametrize("kind", ["dense", "sparse", "kernel"])
def test_examples_of_several_leaves_are_fitted_like_those_of_one(kind):
    X, Y = draw(65, 90, 6, 3, kept=0.5)
    rows, labels = sp.csr_matrix(X) if kind == "sparse" else X, Labels(Y, None)
    chosen = Choice(None, "kernel" if kind == "kernel" else None, 2.0, 1.0)
    whole = fit(rows, labels, chosen, lift_size=20)
    leaf = LIMITS.dear_leaf if kind == "kernel" else LIMITS.leaf
    far = np.arange(90) * (leaf // 8)  # eight to a leaf
    held = LocalExamples(rows, lambda part: Labels(Y[part], None), far)
    made = fitted(held, chosen, lift_size=20)[0]
    np.testing.assert_allclose(made(rows), whole(rows), atol=1e-6 if kind == "sparse" else 1e-8)


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("kind", ["kernel", "fourier"])
def test_a_lift_wider_than_what_is_solved_directly_works(kind, unknown):
    X, Y = draw(66, 120, 4, 3)
    known = np.random.default_rng(67).random(Y.shape) < 0.8 if unknown else None
    labels = Labels(Y if known is None else Y * known, known)
    chosen = Choice(None, kind, 2.0, 5.0)
    direct = fit(X, labels, chosen, lift_size=80)
    close = fit(X, labels, chosen, Limits(direct=40), lift_size=80)
    assert np.abs(close(X) - direct(X)).max() < 0.05


# ---------------------------------------------------------------------- leading directions


def test_leading_directions_are_orthonormal_and_carry_the_most_variance():
    rng = np.random.default_rng(27)
    Y = (rng.normal(size=(200, 3)) @ rng.normal(size=(3, 9)) > 0.5).astype(np.uint8)
    made = leading_directions(Labels(Y, None), 4)
    np.testing.assert_allclose(made.T @ made, np.eye(4), atol=1e-12)
    T = Y - Y.mean(axis=0)
    carried = ((T @ made) ** 2).sum()
    top = np.linalg.svd(T, compute_uv=False)[:4]
    assert carried == pytest.approx((top**2).sum(), rel=1e-10)
    for _ in range(50):
        other = np.linalg.qr(rng.normal(size=(9, 4)))[0]
        assert ((T @ other) ** 2).sum() < carried


def test_leading_directions_ignore_unknown_entries():
    rng = np.random.default_rng(28)
    Y = (rng.random((80, 6)) < 0.4).astype(np.uint8)
    known = np.ones(Y.shape, bool)
    known[:, 5] = False  # whatever stands there
    one, other = (
        leading_directions(Labels(np.where(known, Y, filler).astype(np.uint8), known), 3)
        for filler in (0, 1)
    )
    np.testing.assert_array_equal(one, other)
    assert np.abs(one[5]).max() < 1e-12


def beside(filled, n, p, q=3):
    """Sparse rows of which most have ``filled`` columns from the tenth on, and labels."""
    X, Y = draw(70 + filled, n, p, q, kept=0.05)
    rng = np.random.default_rng(filled)
    X[:, 10 : 10 + filled] = rng.normal(size=(n, filled)) + 0.5
    X[::4, 10 : 10 + filled] = 0  # not all
    return X, Y


@pytest.mark.parametrize("scale", [None, "unit", "standard"])
@pytest.mark.parametrize("filled", [0, FILLED - 1, FILLED, 50])
def test_filled_columns_are_a_dense_block_and_products_of_two_blocks_add(filled, scale):
    X, Y = beside(filled, 70, 300)
    examples = LocalExamples.of(sp.csr_matrix(X), Labels(Y, None))
    features = finish(make_features(examples, Choice(scale), 10, 0))
    made = features(examples.every()[0])
    assert isinstance(made, Joined) == (filled >= FILLED) == (features.n_filled > 0)
    if filled >= FILLED:
        assert made.dense.shape == (70, filled)
        assert made.rest.nnz < 0.1 * made.rest.shape[0] * made.rest.shape[1]
        whole = np.hstack([made.dense, made.rest.toarray()]).astype(np.float64)
        np.testing.assert_allclose(inner_products(made), whole @ whole.T, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(column_gram(made), whole.T @ whole, rtol=1e-12, atol=1e-12)
    wide = X.astype(np.float64)
    if scale == "unit":
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    if scale == "standard":
        wide /= np.where(wide.any(axis=0), wide.std(axis=0), 1)
    wide = wide[:, features.columns]
    np.testing.assert_allclose(inner_products(made), wide @ wide.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(column_gram(made), wide.T @ wide, rtol=1e-5, atol=1e-5)
    R = np.random.default_rng(1).normal(size=(70, 2))
    np.testing.assert_allclose(transposed_times(made, R), wide.T @ R, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("n", "p"), [(150, 90), (60, 300)])
@pytest.mark.parametrize("scale", [None, "standard"])
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("iterative", [False, True])
def test_a_fit_of_two_blocks_is_that_of_the_dense_rows(n, p, scale, unknown, iterative):
    X, Y = beside(40, n, p)
    known = np.random.default_rng(19).random(Y.shape) < 0.8 if unknown else None
    labels, rows = Labels(Y if known is None else Y * known, known), sp.csr_matrix(X)
    chosen = Choice(scale, ridge=5.0)
    expected = fit(X, labels, chosen)
    limits = replace(ITERATIVE, rounds=200) if iterative else LIMITS
    made, spread = fitted(LocalExamples.of(rows, labels, limits=limits), chosen)
    again = fit(rows, labels, chosen, limits, start=made)
    np.testing.assert_array_equal(made.columns, np.flatnonzero(X.any(axis=0)))
    close = 0.02 if iterative else 1e-4
    np.testing.assert_allclose(made(rows), expected(X), atol=close)
    np.testing.assert_allclose(again(rows), expected(X), atol=close)
    np.testing.assert_allclose(spread.squares, (X.astype(float) ** 2).sum(axis=0), rtol=1e-5)
