"""The round in Q = VVᵀ: against a naive one, its loss bound, its eigenvalues, its factor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import reference as slow
from tagstream.metric import convex
from tagstream.metric.convex import KINDS, Rounds, Tally, run_rounds_convex

ALL_KNOWN = np.empty((0, 0), bool)


def stream(seed, n=60, q=6, noise=0.5):
    """Items near their own labels, as a learner meets them: Z, Y, Y_nn."""
    rng = np.random.default_rng(seed)
    Y, Y_nn = rng.integers(0, 2, (2, n, q)).astype(np.uint8)
    return Y + noise * rng.normal(size=(n, q)), Y, Y_nn


def pairs_of(Z, Y, Y_nn, known=None):
    masks = itertools.repeat(None) if known is None else known
    return [slow.pair(*row) for row in zip(Z, Y, Y_nn, masks, strict=False)]


class Run:
    """A run of the compiled rounds that can be continued."""

    def __init__(self, q, *, C=0.1, kind="PA-II", patience=1):
        self.Q, self.tally = np.eye(q), convex.new_tally()
        self.C, self.kind, self.patience = C, kind, patience
        self.losses, self.steps, self.degenerate = [], [], []

    def play(self, Z, Y, Y_nn, known=ALL_KNOWN, lonely=None):
        n = len(Z)
        results = np.empty(n), np.empty(n), np.empty(n, bool)
        run_rounds_convex(
            Z, Y, Y_nn, known, np.zeros(n, bool) if lonely is None else lonely, self.Q,
            self.C, self.kind == "PA-I", self.patience, self.tally, *results,
        )  # fmt: skip
        for kept, new in zip((self.losses, self.steps, self.degenerate), results, strict=True):
            kept.extend(new)
        return self

    @property
    def kept(self):
        return Tally.of(self.tally)

    @property
    def left(self):
        """What the bound speaks of."""
        return self.kept.squared_loss if self.kind == "PA-II" else self.kept.weighted_loss


def random_metrics(rng, q, n):
    """Positive semidefinite matrices near and far, full and of low rank."""
    yield np.zeros((q, q))
    yield np.eye(q)
    for _ in range(n):
        B = rng.normal(size=(q, rng.integers(1, q + 1)))
        yield rng.choice([0.0, 0.5, 1.0]) * np.eye(q) + 10.0 ** rng.uniform(-3, 1) * B @ B.T


def below(left, right):
    return left <= right * (1 + 1e-9) + 1e-9


# ---------------------------------------------------------------------- fast = naive


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
def test_a_stream_equals_the_naive_one_that_projects_in_every_round(kind, C):
    Z, Y, Y_nn = stream(1, n=150, noise=1.0)
    run, Q = Run(6, C=C, kind=kind), np.eye(6)
    for t, about in enumerate(pairs_of(Z, Y, Y_nn)):
        run.play(Z[t : t + 1], Y[t : t + 1], Y_nn[t : t + 1])
        Q, loss, tau = slow.convex_play(Q, about, C=C, kind=kind)
        assert run.losses[t] == pytest.approx(loss, rel=1e-9, abs=1e-9)
        assert run.steps[t] == pytest.approx(tau, rel=1e-9, abs=1e-12)
        np.testing.assert_allclose(run.Q, Q, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(run.Q, run.Q.T)
    assert (np.array(run.losses) > 0).sum() > 40
    assert C < 1 or run.kept.n_decompositions > 10  # the cone took part


@pytest.mark.parametrize("patience", [2, 7, 10**9])
def test_with_patience_it_equals_the_naive_stream_that_projects_when_it_does(patience):
    Z, Y, Y_nn = stream(2, n=150, noise=1.0)
    run, Q = Run(6, C=1.0, patience=patience), np.eye(6)
    for t, about in enumerate(pairs_of(Z, Y, Y_nn)):
        before = run.kept.n_decompositions
        run.play(Z[t : t + 1], Y[t : t + 1], Y_nn[t : t + 1])
        projected = run.kept.n_decompositions > before
        Q, loss, _ = slow.convex_play(Q, about, C=1.0, kind="PA-II", project=projected)
        assert run.losses[t] == pytest.approx(loss, rel=1e-9, abs=1e-9)
        np.testing.assert_allclose(run.Q, Q, rtol=1e-9, atol=1e-9)
    moves = np.count_nonzero(run.steps)
    assert run.kept.n_decompositions <= moves / patience
    V = convex.settle(run.Q, run.tally)
    np.testing.assert_allclose(run.Q, slow.cone(Q), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(V, convex.factor(run.Q))
    before = run.Q.copy(), run.tally.copy()
    np.testing.assert_array_equal(convex.settle(run.Q, run.tally), V)
    np.testing.assert_array_equal(run.Q, before[0])  # once is enough
    np.testing.assert_array_equal(run.tally, before[1])


def test_unknown_labels_are_left_out_of_the_round():
    Z, Y, Y_nn = stream(3, n=100)
    known = np.random.default_rng(3).random(Z.shape) < 0.6
    run, Q = Run(6, C=0.05).play(Z, Y, Y_nn, known), np.eye(6)
    for t, about in enumerate(pairs_of(Z, Y, Y_nn, known)):
        Q, loss, _ = slow.convex_play(Q, about, C=0.05, kind="PA-II")
        assert run.losses[t] == pytest.approx(loss, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(run.Q, Q, rtol=1e-9, atol=1e-9)
    # What is not known may be anything.
    other = [np.where(known, a, b) for a, b in ((Z, -Z), (Y, 1 - Y), (Y_nn, Y))]
    np.testing.assert_array_equal(Run(6, C=0.05).play(*other, known).Q, run.Q)


def test_a_round_by_hand():
    # z = (0, ½), y_t = (1, 0), y = (0, 0): e = (1, 0), s = (−1, 1), A = [[−1, ½], [½, 0]],
    # loss = 1 + 1 = 2, ‖A‖² = 3/2, τ = 2/(3/2 + 1/2) = 1; Q = [[0, ½], [½, 1]] has the
    # eigenvalues ½ ± ½√2, and the negative one goes.
    run = Run(2, C=1.0)
    run.play(np.array([[0.0, 0.5]]), np.array([[1, 0]], np.uint8), np.array([[0, 0]], np.uint8))
    assert (run.losses, run.steps, run.degenerate) == ([2.0], [1.0], [False])
    top = 0.5 + 0.5 * np.sqrt(2)
    v = np.array([0.5, top]) / np.hypot(0.5, top)
    np.testing.assert_allclose(run.Q, top * np.outer(v, v), atol=1e-15)
    assert run.kept == Tally(0.0, 0.0, 1.0, 4.0, 2.0, 4.0, 2.0, 1.5)
    assert run.kept.bound(1.0) == 16.0
    assert run.kept.bound(1.0, "PA-I") == 4.0


def test_an_item_without_a_neighbour_and_one_with_equal_labels_have_no_round():
    Z, Y, Y_nn = stream(4, n=2)
    run = Run(6).play(Z, Y, Y_nn, lonely=np.ones(2, bool))
    run.play(Z, Y, Y)
    assert run.losses == run.steps == [0.0] * 4
    assert run.degenerate == [False, False, True, True]
    np.testing.assert_array_equal(run.Q, np.eye(6))
    np.testing.assert_array_equal(run.tally, convex.new_tally())


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_halfway_between_both_label_sets_moves_nothing(kind):
    Y, Y_nn = np.array([[1, 0]], np.uint8), np.array([[0, 0]], np.uint8)
    run = Run(2, kind=kind).play(np.array([[0.5, 0.0]]), Y, Y_nn)
    assert (run.losses, run.steps, run.degenerate) == ([1.0], [0.0], [True])
    np.testing.assert_array_equal(run.Q, np.eye(2))


@pytest.mark.parametrize("size", [1e95, 1e160, np.inf])
def test_a_round_beyond_double_precision_is_left_out(size):
    Z, Y, Y_nn = stream(5, n=1)
    run = Run(6).play(size * Z, Y, Y_nn)
    assert (run.losses, run.steps, run.degenerate) == ([0.0], [0.0], [True])
    np.testing.assert_array_equal(run.Q, np.eye(6))


@pytest.mark.parametrize("cuts", [[1] * 90, [7] * 12 + [6], [89, 1]])
def test_how_rounds_are_cut_into_calls_does_not_matter(cuts):
    Z, Y, Y_nn = stream(6, n=90, noise=1.0)
    whole = Run(6, C=1.0, patience=6).play(Z, Y, Y_nn)
    run, ends = Run(6, C=1.0, patience=6), np.cumsum([0, *cuts])
    for a, b in itertools.pairwise(ends):
        run.play(Z[a:b], Y[a:b], Y_nn[a:b])
    assert ends[-1] == 90
    assert whole.kept.n_decompositions > 0
    np.testing.assert_array_equal(run.Q, whole.Q)
    np.testing.assert_array_equal(run.tally, whole.tally)
    assert run.losses == whole.losses


# ---------------------------------------------------------------------- the bound

sizes = st.sampled_from([1e-6, 1e-2, 1.0, 30.0, 1e4])
plain = st.floats(-2, 2, allow_nan=False, width=32)


@st.composite
def streams(draw):
    """Z, Y, Y_nn and known: plain, huge or tiny items, unknown labels, rounds turned round."""
    q, n = draw(st.integers(1, 5)), draw(st.integers(1, 25))
    bits = hnp.arrays(np.uint8, (n, q), elements=st.integers(0, 1))
    Y, Y_nn = draw(bits), draw(bits)
    Z = draw(hnp.arrays(np.float64, (n, q), elements=plain)) * draw(sizes)
    if draw(st.booleans()):
        Z += Y
    known = draw(bits) == 1 if draw(st.booleans()) else np.ones((n, q), bool)
    if draw(st.booleans()):  # each round, then the same one with both label sets exchanged
        Z, known = np.repeat(Z, 2, axis=0), np.repeat(known, 2, axis=0)
        Y, Y_nn = (np.stack(a, axis=1).reshape(2 * n, q) for a in ((Y, Y_nn), (Y_nn, Y)))
    return Z, Y, Y_nn, known


@settings(max_examples=200, deadline=None)
@given(
    streams(),
    st.sampled_from(KINDS),
    st.sampled_from([1e-3, 0.1, 1.0, 1e3]),
    st.sampled_from([1, 3, 10**9]),
    st.integers(0, 10**6),
)
def test_the_bound_holds_for_every_stream_and_every_metric(rounds, kind, C, patience, seed):
    Z, Y, Y_nn, known = rounds
    run = Run(Z.shape[1], C=C, kind=kind, patience=patience).play(Z, Y, Y_nn, known)
    pairs, recorded = pairs_of(*rounds), Rounds.of(*rounds)
    metrics = [*random_metrics(np.random.default_rng(seed), Z.shape[1], 6), slow.cone(run.Q)]
    for U in metrics:
        right = slow.convex_bound(U, pairs, C=C, kind=kind)
        assert below(run.left, right)
        assert convex.bound_for(U, recorded, C, kind=kind) == pytest.approx(right, rel=1e-6)
        # R² of the rounds with a loss is enough.
        assert below(
            run.left, convex.bound_for(U, recorded, C, kind=kind, largest=run.kept.largest)
        )
    assert below(run.left, run.kept.bound(C, kind))


@settings(max_examples=100, deadline=None)
@given(streams(), st.sampled_from(KINDS), st.sampled_from([1e-3, 1.0, 1e3]), st.integers(0, 10**6))
def test_each_round_brings_q_nearer_to_every_metric_by_what_the_proof_says(rounds, kind, C, seed):
    # ‖Q − U‖² − ‖Q' − U‖² ≥ 2τ(l − l(U)) − τ²‖A‖², the one inequality that is summed.
    q = rounds[0].shape[1]
    metrics = list(random_metrics(np.random.default_rng(seed), q, 5))
    run = Run(q, C=C, kind=kind)
    for t, about in enumerate(pairs_of(*rounds)):
        before = run.Q.copy()
        run.play(*(part[t : t + 1] for part in rounds))
        loss, tau = run.losses[t], run.steps[t]
        for U in metrics:
            nearer = ((before - U) ** 2).sum() - ((run.Q - U) ** 2).sum()
            promised = 2 * tau * (loss - slow.convex_loss(U, about))
            promised -= tau**2 * (about.A**2).sum()
            size = ((before - U) ** 2).sum() + tau * (abs(about.A) * abs(U)).sum() + tau * loss
            assert nearer >= promised - 1e-9 * (1 + size)


def test_an_adversary_that_knows_q_does_not_break_the_bound():
    # In each round it plays, of many, the item and labels with the greatest loss.
    rng = np.random.default_rng(8)
    for kind, C in itertools.product(KINDS, (1e-2, 1.0)):
        run, played = Run(4, C=C, kind=kind, patience=4), []
        for _ in range(60):
            Y, Y_nn = rng.integers(0, 2, (2, 50, 4)).astype(np.uint8)
            Z = 2 * rng.normal(size=(50, 4))
            losses = [slow.convex_loss(run.Q, about) for about in pairs_of(Z, Y, Y_nn)]
            worst = slice(int(np.argmax(losses)), int(np.argmax(losses)) + 1)
            played.append((Z[worst], Y[worst], Y_nn[worst]))
            run.play(*played[-1])
        rounds = Rounds.joined([Rounds.of(*one) for one in played])
        for U in random_metrics(rng, 4, 50):
            assert below(run.left, convex.bound_for(U, rounds, C, kind=kind))
        assert below(run.left, run.kept.bound(C, kind))


def test_what_is_kept_beside_q_is_what_it_says():
    Z, Y, Y_nn = stream(9, n=80)
    run = Run(6, C=0.1, patience=6).play(Z, Y, Y_nn)
    losses, steps, pairs = np.array(run.losses), np.array(run.steps), pairs_of(Z, Y, Y_nn)
    still = np.array([slow.convex_loss(np.eye(6), about) for about in pairs])
    kept = run.kept
    assert kept.squared_loss == pytest.approx((losses**2).sum(), rel=1e-12)
    assert kept.weighted_loss == pytest.approx((steps * losses).sum(), rel=1e-12)
    assert kept.identity_squared == pytest.approx((still**2).sum(), rel=1e-12)
    assert kept.identity_loss == pytest.approx(still.sum(), rel=1e-12)
    largest = max((a.A**2).sum() for a, loss in zip(pairs, losses, strict=True) if loss > 0)
    assert kept.largest == pytest.approx(largest, rel=1e-12)
    rounds = Rounds.of(Z, Y, Y_nn)
    for kind in KINDS:
        there = convex.bound_for(np.eye(6), rounds, 0.1, kind=kind, largest=kept.largest)
        assert kept.bound(0.1, kind) == pytest.approx(there, rel=1e-12)
    np.testing.assert_allclose(rounds.norms, [(a.A**2).sum() for a in pairs], rtol=1e-12)


# ---------------------------------------------------------------------- eigenvalues


@settings(max_examples=100, deadline=None)
@given(streams(), st.sampled_from([1e-3, 1.0, 1e3]), st.sampled_from([1, 4, 10**9]))
def test_the_bound_of_the_least_eigenvalue_never_lies(rounds, C, patience):
    run = Run(rounds[0].shape[1], C=C, patience=patience)
    for t in range(len(rounds[0])):
        run.play(*(part[t : t + 1] for part in rounds))
        values = np.linalg.eigvalsh(run.Q)
        rounding = 1e-13 * max(1.0, np.abs(values).max())
        assert run.kept.least <= values[0] + rounding
        if patience == 1:
            assert values[0] >= -rounding
            assert run.kept.least >= 0


def test_a_step_makes_at_most_one_eigenvalue_negative():
    Z, Y, Y_nn = stream(10, n=100)
    run, negative = Run(6, C=1.0), 0
    for t, about in enumerate(pairs_of(Z, Y, Y_nn)):
        moved, _, _ = slow.convex_play(run.Q, about, C=1.0, kind="PA-II", project=False)
        count = (np.linalg.eigvalsh(moved) < -1e-12).sum()
        assert count <= 1
        negative += count
        run.play(Z[t : t + 1], Y[t : t + 1], Y_nn[t : t + 1])
    assert negative > 5


def matrices():
    """Symmetric matrices: dense, graded, of low rank, diagonal, with equal eigenvalues, zero."""
    rng = np.random.default_rng(11)
    for q in (1, 2, 3, 4, 7, 20, 65):
        M = rng.normal(size=(q, q))
        grades = 10.0 ** -np.arange(q)
        yield from (M + M.T, (M + M.T) * np.sqrt(np.outer(grades, grades)), np.zeros((q, q)))
        yield from (np.eye(q), np.diag(M.diagonal()), np.ones((q, q)), -M[:, :2] @ M[:, :2].T)
        yield np.block([[M + M.T, np.zeros((q, 2))], [np.zeros((2, q)), np.eye(2)]])
        yield np.eye(q, k=1) + np.eye(q, k=-1)


def rounding(M):
    return 1e-14 * len(M) * max(1.0, np.linalg.norm(M))


def test_the_decomposition_is_one():
    for M in matrices():
        values, vectors = convex.decompose(M)
        size = rounding(M)
        np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(M), rtol=0, atol=size)
        np.testing.assert_allclose(vectors @ vectors.T, np.eye(len(M)), atol=1e-13)
        np.testing.assert_allclose((vectors.T * values) @ vectors, M, rtol=0, atol=size)


def test_a_metric_of_no_labels_is_left_alone():
    Q = np.empty((0, 0))
    assert convex.project(Q) == np.inf
    assert convex.factor(Q).shape == (0, 0)


def test_projecting_gives_the_nearest_matrix_of_the_cone_and_stays_symmetric():
    for M in matrices():
        Q = M.copy()
        least = convex.project(Q)
        np.testing.assert_array_equal(Q, Q.T)
        np.testing.assert_allclose(Q, slow.cone(M), rtol=0, atol=rounding(M))
        assert least == pytest.approx(np.linalg.eigvalsh(M)[0], abs=rounding(M))


# ---------------------------------------------------------------------- codes


def test_the_factor_gives_the_distances_of_q():
    rng = np.random.default_rng(12)
    for q in (0, 1, 2, 5, 40):
        for rank in {q, (q + 1) // 2}:
            B = rng.normal(size=(q, rank))
            V = convex.factor(B @ B.T)
            # Where Q is singular, what is left out is of the size √ε.
            np.testing.assert_allclose(V @ V.T, B @ B.T, rtol=0, atol=1e-6 if rank < q else 1e-12)
    np.testing.assert_array_equal(convex.factor(np.eye(5)), np.eye(5))
    np.testing.assert_array_equal(convex.factor(np.zeros((3, 3))), np.zeros((3, 3)))


def test_the_factor_moves_little_when_q_does():
    run = Run(6, C=1e-3).play(*stream(13))
    V = convex.factor(run.Q)
    rng = np.random.default_rng(13)
    for size in (1e-3, 1e-6, 1e-9):
        E = size * rng.normal(size=(6, 6))
        assert np.abs(convex.factor(run.Q + E + E.T) - V).max() < 20 * size


# ---------------------------------------------------------------------- new labels


@pytest.mark.parametrize("patience", [1, 10**9])
def test_labels_may_come_late(patience):
    # A run that meets labels 4 and 5 late is the run that knew of them from the beginning, when
    # they were zero coordinates; so the bound speaks of it too.
    Z, Y, Y_nn = stream(14, n=90)
    for part in (Z, Y, Y_nn):
        part[:30, 4:] = 0
        part[30:60, 5:] = 0
    from_the_start = Run(6, C=0.3, patience=patience).play(Z, Y, Y_nn)
    run, parts = Run(4, C=0.3, patience=patience), []
    for a, q in ((0, 4), (30, 5), (60, 6)):
        run.Q = convex.grow(run.Q, run.tally, q)
        part = [np.ascontiguousarray(M[a : a + 30, :q]) for M in (Z, Y, Y_nn)]
        parts.append(Rounds.of(*part))
        run.play(*part)
    np.testing.assert_allclose(run.Q, from_the_start.Q, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(run.losses, from_the_start.losses, rtol=1e-11, atol=1e-11)
    rounds = Rounds.joined(parts)
    for U in random_metrics(np.random.default_rng(14), 6, 50):
        assert below(run.left, convex.bound_for(U, rounds, 0.3))
    assert run.kept.least <= np.linalg.eigvalsh(run.Q)[0] + 1e-12


def test_growing_adds_the_identity_and_leaves_codes_where_they_were():
    run = Run(3, C=0.1).play(*stream(15, q=3))
    run.tally[0] = 2.0  # a least eigenvalue above that of the identity
    Q = convex.grow(run.Q, run.tally, 5)
    assert run.kept.least == 1.0
    V = convex.factor(Q)
    np.testing.assert_array_equal(V[:3, :3], convex.factor(run.Q))
    np.testing.assert_array_equal(V[3:], np.eye(5)[3:])
    assert convex.grow(Q, run.tally, 5) is Q


# ---------------------------------------------------------------------- hindsight


def test_the_best_metric_of_one_round_is_known():
    # min κ²‖A‖² + 2C(l − κ‖A‖²)² on the line I + κA, which stays inside the cone for a small C.
    Z, Y, Y_nn = np.array([[0.2, 0.7]]), np.array([[1, 0]], np.uint8), np.array([[0, 1]], np.uint8)
    about, C = slow.pair(Z[0], Y[0], Y_nn[0]), 0.01
    loss, square = slow.convex_loss(np.eye(2), about), (about.A**2).sum()
    U = np.eye(2) + 2 * C * loss / (1 + 2 * C * square) * about.A
    best = convex.best_metric(Rounds.of(Z, Y, Y_nn), C, tolerance=1e-12)
    np.testing.assert_allclose(best.U, U, atol=1e-6)


@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
def test_no_metric_has_a_lower_bound_than_the_best_less_its_gap(C):
    Z, Y, Y_nn = stream(16, n=100)
    rounds, rng = Rounds.of(Z, Y, Y_nn), np.random.default_rng(16)
    best = convex.best_metric(rounds, C, tolerance=1e-5)
    assert best.bound == pytest.approx(convex.bound_for(best.U, rounds, C), rel=1e-9)
    assert np.linalg.eigvalsh(best.U)[0] > -1e-10
    assert 0 <= best.gap <= 1e-5 * best.bound
    run = Run(6, C=C).play(Z, Y, Y_nn)
    assert below(run.left, best.bound)
    near = [slow.cone(best.U + 10.0 ** rng.uniform(-4, 0) * M @ M.T * sign)
            for sign in (1, -1) for M in rng.normal(size=(40, 6, 6))]  # fmt: skip
    for U in [*random_metrics(rng, 6, 60), *near, run.Q]:
        assert convex.bound_for(U, rounds, C) >= best.bound - best.gap - 1e-9 * best.bound
