"""The round of V against the paper's problem, and the paper's errata E1, E2, E3, E5 and E6."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import reference as slow
from tagstream.metric.rounds import STEPS, UPDATES, cubic_step, exact_step, play_round, run_rounds

RULES = [(step, update) for step in STEPS for update in UPDATES]
LIMITS = {"exact": [np.inf, 1e-2], "cubic": [1e5, 1e-2], "printed": [1e5, 1e-2]}


def draw(rng, q=None, d=None, *, spread=1.0):
    """A metric, an item and a neighbour that differs from it in at least one label."""
    q = int(rng.integers(2, 10)) if q is None else q
    d = int(rng.integers(1, q + 1)) if d is None else d
    y, y_nn = rng.integers(0, 2, (2, q)).astype(np.uint8)
    y_nn[0] = 1 - y[0]
    return rng.normal(size=(q, d)), spread * rng.normal(size=q) + 0.3, y, y_nn


def draws(seed, n, **how):
    rng = np.random.default_rng(seed)
    return [draw(rng, **how) for _ in range(n)]


def active(seed, n, **how):
    """Draws on which the loss is positive, with the pair the paper's problem speaks of."""
    found = []
    for V, z, y, y_nn in draws(seed, 4 * n, **how):
        about = slow.pair(z, y, y_nn)
        if slow.loss(V, about) > 0.05 and len(found) < n:
            found.append((V, z, y, y_nn, about))
    assert len(found) == n
    return found


# ---------------------------------------------------------------------- fast = naive


@pytest.mark.parametrize(("step", "update"), RULES)
def test_one_round_equals_the_naive_one(step, update):
    for most in LIMITS[step]:
        for V, z, y, y_nn in draws(1, 150):
            rules = {"step": step, "update": update}
            V_new, what = play_round(V, z, y, y_nn, step_min=1e-5, step_max=most, **rules)
            V_ref, loss, lam = slow.play(V, z, y, y_nn, least=1e-5, most=most, **rules)
            assert not what.degenerate
            assert what.loss == pytest.approx(loss, rel=1e-10, abs=1e-10)
            assert what.lam == pytest.approx(lam, rel=1e-8)
            np.testing.assert_allclose(V_new, V_ref, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("step", "update"), RULES)
def test_a_stream_of_rounds_equals_the_naive_stream(step, update):
    # Items near their own labels, a metric that starts as an isometry: rounds as the learner
    # meets them.  The cap keeps V moderate, so that 1e-8 is a claim about every round.
    rng = np.random.default_rng(2)
    n, q, d, most = 60, 6, 4, 1e-2
    Y, Y_nn = rng.integers(0, 2, (2, n, q)).astype(np.uint8)
    Z = Y + 0.5 * rng.normal(size=(n, q))
    V = np.linalg.qr(rng.normal(size=(q, d)))[0]
    losses, steps, degenerate = np.empty(n), np.empty(n), np.empty(n, bool)
    fast = V.copy()
    run_rounds(
        Z, Y, Y_nn, np.empty((0, 0), bool), np.zeros(n, bool), fast,
        STEPS.index(step) or None, update == "linear", 1e-5, most, losses, steps, degenerate,
    )  # fmt: skip
    for t in range(n):
        V, loss, lam = slow.play(
            V, Z[t], Y[t], Y_nn[t], step=step, update=update, least=1e-5, most=most
        )
        assert losses[t] == pytest.approx(loss, rel=1e-8, abs=1e-8)
        assert steps[t] == pytest.approx(lam, rel=1e-8)
    np.testing.assert_allclose(fast, V, rtol=1e-8, atol=1e-8)
    assert (losses > 0).sum() > n / 2


def test_unknown_labels_are_left_out_of_the_round():
    rng = np.random.default_rng(3)
    n, q, d = 80, 7, 5
    Y, Y_nn = rng.integers(0, 2, (2, n, q)).astype(np.uint8)
    Z = rng.normal(size=(n, q))
    known = rng.random((n, q)) < 0.6
    losses, steps, degenerate = np.empty(n), np.empty(n), np.empty(n, bool)
    V = rng.normal(size=(q, d))
    fast = V.copy()
    for t in range(n):
        block = slice(t, t + 1)
        before = fast.copy()
        run_rounds(
            Z[block], Y[block], Y_nn[block], known[block], np.zeros(1, bool), fast,
            None, False, 1e-5, 1e-2, losses[block], steps[block], degenerate[block],
        )  # fmt: skip
        np.testing.assert_array_equal(fast[~known[t]], before[~known[t]])
        if degenerate[t]:  # nothing known differs, or one dimension is left
            np.testing.assert_array_equal(fast, before)
            continue
        V, loss, _ = slow.play(
            V, Z[t], Y[t], Y_nn[t],
            step="exact", update="inverse", least=1e-5, most=1e-2, known=known[t],
        )  # fmt: skip
        assert losses[t] == pytest.approx(loss, rel=1e-8, abs=1e-8)
        np.testing.assert_allclose(fast, V, rtol=1e-8, atol=1e-8)
    assert degenerate.sum() < n / 4


def test_an_item_without_a_neighbour_has_no_round():
    V = np.eye(3)
    results = np.ones(2), np.ones(2), np.ones(2, bool)
    Z, Y = np.full((2, 3), 0.4), np.array([[1, 0, 0], [0, 1, 1]], np.uint8)
    run_rounds(
        Z, Y, 1 - Y, np.empty((0, 0), bool), np.ones(2, bool), V,
        None, False, 0.0, np.inf, *results,
    )  # fmt: skip
    np.testing.assert_array_equal(V, np.eye(3))
    for result in results:
        assert not result.any()


# ---------------------------------------------------------------------- the problem itself


def test_v_satisfies_the_kkt_conditions_of_the_problem():
    for V, z, y, y_nn, about in active(4, 100):
        V_new, what = play_round(V, z, y, y_nn)
        scale = max(1.0, np.abs(V_new).max())
        stationary = V_new - V - 2 * what.lam * about.A @ V_new
        np.testing.assert_allclose(stationary, 0, atol=1e-9 * scale)
        assert what.lam > 0  # dual feasibility, strict
        room = slow.gain(V_new, about) - about.delta  # primal feasibility and slackness in one
        assert abs(room) < 1e-9 * scale**2 * max(1.0, float(about.u @ about.u))
        # I − 2λA is positive definite: the stationary point is the minimum, not another one.
        assert what.lam < slow.pole(about)


def test_no_feasible_v_is_nearer():
    # Feasible points are made by scaling random V' up the constraint's cone, and by moving from
    # the solution along its boundary; the projection must be at most as far as each of them.
    rng = np.random.default_rng(5)
    for V, z, y, y_nn, about in active(6, 25, q=4):
        V_new, _ = play_round(V, z, y, y_nn)
        best = ((V_new - V) ** 2).sum()
        tried = 0
        for near in (0.01, 0.1, 1.0):
            for base in (V, V_new):
                for _ in range(100):
                    other = base + near * rng.normal(size=V.shape)
                    gain = slow.gain(other, about)
                    if gain <= 0:
                        continue
                    other *= max(1.0, np.sqrt(about.delta / gain) * (1 + 1e-9))
                    assert slow.gain(other, about) >= about.delta
                    tried += 1
                    assert ((other - V) ** 2).sum() >= best * (1 - 1e-9)
        assert tried > 100


def test_the_loss_after_an_uncapped_exact_step_is_zero_to_rounding():
    for V, z, y, y_nn, about in active(7, 200):
        V_new, _ = play_round(V, z, y, y_nn)
        size = max(about.delta, ((V_new.T @ about.u) ** 2).sum())
        assert abs(slow.gain(V_new, about) - about.delta) < 1e-10 * size
        assert play_round(V_new, z, y, y_nn)[1].loss < 1e-10 * size


def test_the_constraint_rises_strictly_on_the_open_interval():
    # Existence and uniqueness of the root: g is below Δ at 0, beyond it near the pole, and rises.
    for V, _, _, _, about in active(8, 40):
        lams = slow.pole(about) * np.linspace(0, 0.999, 60)
        gains = [slow.gain(slow.inverse_update(V, about, lam), about) for lam in lams]
        assert (np.diff(gains) > 0).all()
        assert gains[0] < about.delta


@pytest.mark.parametrize("cap", [1e-4, 1e-3, 1e-2, 0.1])
def test_the_cap_is_respected_and_bites_only_before_the_root(cap):
    capped = 0
    for V, z, y, y_nn, about in active(9, 60):
        free = play_round(V, z, y, y_nn)[1].lam
        V_new, what = play_round(V, z, y, y_nn, step_max=cap)
        assert what.lam == pytest.approx(min(free, cap), rel=1e-12)
        if free > cap:
            capped += 1
            assert what.lam == cap
            assert 0 < slow.loss(V_new, about) < what.loss  # better, not yet good
    assert capped > 0


def test_a_capped_step_solves_the_softened_problem():
    # min ½‖V' − V‖² + C · loss(V'): no random V' does better, near the solution or far from it.
    rng = np.random.default_rng(33)
    for V, z, y, y_nn, about in active(34, 25, q=4):
        cap = 0.3 * play_round(V, z, y, y_nn)[1].lam

        def cost(other, V=V, about=about, cap=cap):
            return 0.5 * ((other - V) ** 2).sum() + cap * slow.loss(other, about)

        V_new, what = play_round(V, z, y, y_nn, step_max=cap)
        assert what.lam == cap
        for base, near in itertools.product((V, V_new), (1e-3, 0.1, 1.0)):
            for _ in range(50):
                assert cost(base + near * rng.normal(size=V.shape)) >= cost(V_new) - 1e-12


def test_the_exact_step_has_no_lower_bound():
    V, z, y, y_nn, about = active(10, 1)[0]
    nearly = np.sqrt(about.delta / slow.gain(play_round(V, z, y, y_nn)[0], about))
    V = play_round(V, z, y, y_nn)[0] * (1 - 1e-7) * nearly
    what = play_round(V, z, y, y_nn, step_min=1e-5)[1]
    assert 0 < what.lam < 1e-5


def test_a_round_by_hand():
    # V = I, z = (0, ½), y_t = (1, 0), y = (0, 0): u = (0, ½), w = (−1, ½), Δ = 1,
    # A = [[−1, ½], [½, 0]], loss = 1 − (¼ − 5/4) = 2, tr A³ = −7/4, ‖A‖² = 3/2:
    # f(λ) = 7λ³ − 3λ² + 2λ rises for ever (9 < 42), so Eq. (7) takes M.
    V, z = np.eye(2), np.array([0.0, 0.5])
    y, y_nn = np.array([1, 0], np.uint8), np.array([0, 0], np.uint8)
    V_new, what = play_round(V, z, y, y_nn, step="cubic", update="linear", step_max=0.25)
    assert what == (2.0, 0.25, False)
    np.testing.assert_allclose(V_new, [[0.5, 0.25], [0.25, 1.0]], atol=1e-15)


# ---------------------------------------------------------------------- V stays where it is


def test_v_is_unchanged_when_the_loss_is_zero():
    rng = np.random.default_rng(11)
    y, y_nn = np.array([1, 1, 0, 0], np.uint8), np.array([0, 1, 1, 0], np.uint8)
    z = y + 0.1 * rng.normal(size=4)
    V = 2 * np.linalg.qr(rng.normal(size=(4, 4)))[0]
    assert slow.loss(V, slow.pair(z, y, y_nn)) == 0
    for step, update in RULES:
        V_new, what = play_round(V, z, y, y_nn, step=step, update=update)
        assert what == (0.0, 0.0, False)
        np.testing.assert_array_equal(V_new, V)


def hopeless(case, q=4):
    """Rounds in which the paper's step is not defined: V, z, y_t, y."""
    y, y_nn = np.array([1, 1, 0, 0], np.uint8), np.array([0, 1, 1, 0], np.uint8)
    V = np.random.default_rng(12).normal(size=(q, 3))
    if case == "same labels":
        return V, np.full(q, 0.3), y, y
    if case == "u and w parallel":
        return V, y_nn + 0.25 * (y.astype(float) - y_nn), y, y_nn
    if case == "item on its own labels' opposite":  # w = 2u: parallel, and A negative
        return V, 2.0 * y_nn - y, y, y_nn
    if case == "V is zero":
        return np.zeros((q, 3)), np.full(q, 0.3), y, y_nn
    about = slow.pair(np.full(q, 0.3), y, y_nn)  # "no part of V along A's positive direction"
    top = np.linalg.eigh(about.A)[1][:, -1]
    return V - np.outer(top, top @ V), np.full(q, 0.3), y, y_nn


@pytest.mark.parametrize(("step", "update"), RULES)
@pytest.mark.parametrize(
    "case",
    [
        "same labels",
        "u and w parallel",
        "item on its own labels' opposite",
        "V is zero",
        "no part of V along A's positive direction",
    ],
)
def test_v_is_unchanged_on_degenerate_rounds_which_are_counted(case, step, update):
    V, z, y, y_nn = hopeless(case)
    V_new, what = play_round(V, z, y, y_nn, step=step, update=update)
    assert what.degenerate
    assert what.lam == 0
    assert what.loss == pytest.approx(slow.loss(V, slow.pair(z, y, y_nn)), abs=1e-12)
    np.testing.assert_array_equal(V_new, V)


def test_play_round_leaves_its_arguments_alone():
    V, z, y, y_nn, _ = active(13, 1)[0]
    copies = [a.copy() for a in (V, z, y, y_nn)]
    assert (play_round(V, z, y, y_nn)[0] != V).any()
    for now, then in zip((V, z, y, y_nn), copies, strict=True):
        np.testing.assert_array_equal(now, then)


# ---------------------------------------------------------------------- extreme inputs

sizes = st.sampled_from([0.0, 1e-300, 1e-160, 1e-30, 1e-17, 1e-8, 1.0, 1e5, 1e15, 1e40])
plain = st.floats(-2, 2, allow_nan=False, width=32)


@st.composite
def rounds(draw):
    q, d = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    V = draw(hnp.arrays(np.float64, (q, d), elements=plain)) * draw(sizes)
    z = draw(hnp.arrays(np.float64, q, elements=plain)) * draw(sizes)
    bits = hnp.arrays(np.uint8, q, elements=st.integers(0, 1))
    y, y_nn = draw(bits), draw(bits)
    if draw(st.booleans()):  # onto the line through both label vectors, or near it
        z = y_nn + draw(plain) * (y.astype(float) - y_nn) + draw(st.sampled_from([0, 1e-9])) * z
    return V, z, y, y_nn


@settings(max_examples=400, deadline=None)
@given(rounds(), st.sampled_from(RULES), st.sampled_from([1e-3, 1e5, np.inf]))
@example(
    (1e-17 * np.eye(2), np.array([0.2, 0.7]), np.array([1, 0]), np.array([0, 1])),
    ("exact", "inverse"),
    np.inf,
)
@example(
    (1e-160 * np.eye(2), np.array([0.2, 0.7]), np.array([1, 0]), np.array([0, 1])),
    ("exact", "inverse"),
    np.inf,
)
@example(  # what is lacking to the margin is lost in rounding: the root lay beyond 1
    (
        np.array([[0.0], [3.4375e14], [0.0]]),
        np.zeros(3),
        np.array([1, 1, 1], np.uint8),
        np.array([0, 1, 1], np.uint8),
    ),
    ("exact", "inverse"),
    1e-3,
)
def test_extreme_inputs_never_make_v_infinite_or_nan(case, rule, most):
    V, z, y, y_nn = case
    step, update = rule
    if most == np.inf and step != "exact":
        most = 1e5
    V_new, what = play_round(V, z, y, y_nn, step=step, update=update, step_max=most)
    assert np.isfinite(V_new).all()
    assert np.isfinite(what.lam)
    assert 0 <= what.lam <= most
    assert what.loss >= 0  # infinite only where V itself is beyond squaring
    if what.lam == 0:
        np.testing.assert_array_equal(V_new, V)


@pytest.mark.parametrize("size", [1e-3, 1e-8, 1e-17, 1e-40, 1e-80])
def test_small_v_is_mended_as_well_as_any(size):
    for V, z, y, y_nn, about in active(14, 20):
        V_new, what = play_round(size * V, z, y, y_nn)
        assert not what.degenerate
        reached = slow.gain(V_new, about)
        assert reached == pytest.approx(about.delta, abs=1e-10 * ((V_new.T @ about.u) ** 2).sum())


@pytest.mark.parametrize("away", [1e-2, 1e-4, 1e-6])
def test_nearly_parallel_u_and_w_cost_no_digits(away):
    # z almost on the line through y and y_t: the determinant of the Gram matrix of u and w
    # cancels, the coordinates along y_t − y and across it do not.
    rng = np.random.default_rng(31)
    y, y_nn = np.array([1, 0, 1, 0], np.uint8), np.array([0, 0, 1, 1], np.uint8)
    for share in (-0.4, 0.2, 0.4, 0.45):
        z = y_nn + share * (y.astype(float) - y_nn) + away * rng.normal(size=4)
        about = slow.pair(z, y, y_nn)
        V_new, what = play_round(np.eye(4), z, y, y_nn)
        assert not what.degenerate
        size = ((V_new.T @ about.u) ** 2).sum()
        assert slow.gain(V_new, about) == pytest.approx(about.delta, abs=1e-9 * size)


@pytest.mark.parametrize("far", [1e3, 1e6])
def test_items_far_from_all_labels_have_their_round_too(far):
    rng = np.random.default_rng(32)
    y, y_nn = np.array([1, 0, 1, 0], np.uint8), np.array([0, 0, 1, 1], np.uint8)
    for _ in range(30):
        z = far * rng.normal(size=4)
        about = slow.pair(z, y, y_nn)
        V_new, what = play_round(np.eye(4), z, y, y_nn)
        assert not what.degenerate
        e, both = V_new.T @ (about.u - about.w), V_new.T @ (about.u + about.w)
        size = np.sqrt((e @ e) * (both @ both))
        assert max(0, about.delta - e @ both) < 1e-12 * size


# ---------------------------------------------------------------------- the scalar steps


def test_exact_step_finds_the_root_of_its_equation():
    rng = np.random.default_rng(15)
    for _ in range(300):
        mu, alpha, nu, beta = 10.0 ** rng.uniform(-3, 3, 4)
        delta = max(mu * alpha - nu * beta, 0) + 10.0 ** rng.uniform(-3, 3)
        lam, r = exact_step(mu, alpha, nu, beta, delta, np.inf)
        assert 0 < lam < 1 / (2 * mu)
        assert 0 < r < 1
        assert lam == pytest.approx((1 - r) / (2 * mu), rel=1e-12)
        reached = mu * alpha / r**2 - nu * beta / (1 + 2 * lam * nu) ** 2
        # Half an ulp of r near 1 is ν/μ times as much in 1 + 2λν.
        tolerance = 1e-13 + 1e-15 * nu / mu
        assert abs(reached - delta) < tolerance * (mu * alpha / r**2 + nu * beta + delta)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (-1.0, 0.0, 1 / np.sqrt(3)),  # falls in the end: one maximum
        (-1.0, 1.0, 1.0),  # 3λ² − 2λ − 1 = 0
        (-1.0, -1.0, 1 / 3),  # 3λ² + 2λ − 1 = 0
        (1.0, -2.0, 1 / 3),  # 3λ² − 4λ + 1 = 0: rises to 1/3, falls to 1, rises for ever
        (0.0, -1.0, 0.5),  # a parabola
        (0.0, 1.0, 7.0),  # rises for ever: M
        (1.0, 1.0, 7.0),
        (1.0, -1.0, 7.0),  # no turning point
        (-1e6, 0.0, 0.01),  # maximum below m
        (-1e-6, 0.0, 7.0),  # maximum above M
    ],
)
def test_cubic_step_follows_the_cases_of_equation_7(a, b, expected):
    assert cubic_step(a, b, 1.0, 0.01, 7.0) == pytest.approx(expected, rel=1e-14)
    assert slow.cubic_lambda(a, b, 1.0, 0.01, 7.0) == pytest.approx(expected, rel=1e-12)


def test_cubic_step_takes_the_best_point_before_the_cubic_turns():
    rng = np.random.default_rng(16)
    for _ in range(200):
        a, b = rng.normal(size=2)
        c = rng.uniform(0.1, 2)
        beta = cubic_step(a, b, c, 0.0, 50.0)
        lams = np.linspace(0, beta, 400)
        values = a * lams**3 + b * lams**2 + c * lams
        assert (np.diff(values) > -1e-12).all()
        if beta < 50:
            after = beta * (1 + 1e-4)
            assert a * after**3 + b * after**2 + c * after < values[-1]


# ---------------------------------------------------------------------- errata


def test_e1_the_gradient_of_the_lagrangian_has_two_factors_w():
    # Finite differences of Eq. (5); the printed product (q, 1)(q, 1)(1, q) is not even defined.
    rng = np.random.default_rng(17)
    for V_t, _, _, _, about in active(18, 10, q=3, d=2):
        V, lam, h = V_t + 0.1 * rng.normal(size=V_t.shape), 0.3, 1e-6
        numeric = np.empty_like(V)
        for at in np.ndindex(*V.shape):
            move = np.zeros_like(V)
            move[at] = h
            up, down = (slow.lagrangian(V + s * move, V_t, about, lam) for s in (1, -1))
            numeric[at] = (up - down) / (2 * h)
        u, w = about.u[:, None], about.w[:, None]
        np.testing.assert_allclose(
            numeric, V - V_t - 2 * lam * (u @ u.T - w @ w.T) @ V, rtol=1e-6, atol=1e-7
        )
        with pytest.raises(ValueError, match="mismatch"):
            w @ w @ w.T


def test_e2_the_corrected_cubic_is_the_lagrangian_along_the_linear_update():
    for V, _, _, _, about in active(19, 60):
        A = about.A
        a, b, c = -4 * np.trace(V.T @ A @ A @ A @ V), -2 * ((A @ V) ** 2).sum(), slow.loss(V, about)
        unit = slow.pole(about)
        for lam in unit * np.array([0.1, 0.7, 1.5, -0.4]):
            direct = slow.lagrangian(slow.linear_update(V, about, lam), V, about, lam)
            assert a * lam**3 + b * lam**2 + c * lam == pytest.approx(direct, rel=1e-9, abs=1e-9)
        np.testing.assert_allclose(slow.cubic_by_evaluation(V, about), (a, b, c), rtol=1e-8)


def test_e2_the_printed_coefficients_are_other_numbers():
    # a: the 4 belongs to both terms.  b: with the four inner signs reversed it would be −2‖AV‖²;
    # as printed it is +6‖AV‖².  c: the two equal terms cancel, which leaves Δ for the loss.
    for V, _, _, _, about in active(20, 60):
        a, b, c = slow.cubic_as_printed(V, about)
        right_a, right_b, right_c = slow.cubic_by_evaluation(V, about)
        QA = V.T @ about.A
        wrong_factor = 3 * ((QA @ about.u) ** 2).sum()
        assert a - wrong_factor == pytest.approx(right_a, rel=1e-8, abs=1e-8)
        assert b == pytest.approx(-3 * right_b, rel=1e-8)
        assert c == about.delta
        assert right_c == pytest.approx(about.delta - slow.gain(V, about))


def test_e2_the_steps_printed_and_corrected_differ():
    pairs = [
        [play_round(V, z, y, y_nn, step=s, step_max=1e5)[1].lam for s in ("cubic", "printed")]
        for V, z, y, y_nn, _ in active(21, 50)
    ]
    corrected, printed = np.array(pairs).T
    # They agree only where both have no maximum and end at M.
    both_at_most = (corrected == 1e5) & (printed == 1e5)
    np.testing.assert_array_equal(np.isclose(corrected, printed, rtol=1e-3), both_at_most)
    assert both_at_most.mean() < 0.75


def test_e3_beyond_the_pole_the_inverse_turns_v_round_and_shrinks_it():
    for V, _, _, _, about in active(22, 30):
        top = np.linalg.eigh(about.A)[1][:, -1]
        before = top @ V
        for times, factor in [(0.5, 2.0), (2.0, -1.0), (1e3, -1 / 999)]:
            after = top @ slow.inverse_update(V, about, times * slow.pole(about))
            np.testing.assert_allclose(after, factor * before, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("step", "noise"), [("cubic", 5.0), ("printed", 0.6)])
def test_e3_with_the_papers_bound_v_shrinks_to_nothing(step, noise):
    # Misprinted, on any stream; corrected, where P is as poor as least squares near p = n.
    n, q = 300, 6
    rng = np.random.default_rng(23)
    Y, Y_nn = rng.integers(0, 2, (2, n, q)).astype(np.uint8)
    Z = Y + noise * rng.normal(size=(n, q))
    V_1 = np.random.default_rng(24).normal(size=(q, 3))
    V, beyond = V_1, 0
    for t in range(n):
        V, what = play_round(V, Z[t], Y[t], Y_nn[t], step=step, step_max=1e5)
        beyond += bool(what.lam) and what.lam > slow.pole(slow.pair(Z[t], Y[t], Y_nn[t]))
    assert beyond > n / 2
    assert np.abs(V).max() < 1e-9
    # On the same rounds the exact step, which stays before the pole, keeps V in its size.
    V = V_1
    for t in range(n):
        V, _ = play_round(V, Z[t], Y[t], Y_nn[t], step_max=1e-3)
    assert 0.1 < np.abs(V).max() < 10


def test_e5_the_two_updates_agree_to_first_order_only():
    for V, z, y, y_nn, about in active(25, 20):
        gaps = []
        for lam in (1e-3, 1e-4):
            lam /= 2 * np.abs(np.linalg.eigvalsh(about.A)).max()
            how = {"step": "cubic", "step_min": lam, "step_max": lam}
            inverse, linear = (play_round(V, z, y, y_nn, update=up, **how)[0] for up in UPDATES)
            gaps.append(np.abs(inverse - linear).max() / np.abs(linear - V).max())
        assert gaps[0] < 1e-2
        assert gaps[0] / gaps[1] == pytest.approx(10, rel=0.05)  # (2λA)² against 2λA


def test_e5_the_exact_multiplier_solves_the_problem_with_the_inverse_not_the_linear_update():
    for V, z, y, y_nn, about in active(26, 20):
        inverse, linear = (play_round(V, z, y, y_nn, update=update)[0] for update in UPDATES)
        assert slow.gain(inverse, about) == pytest.approx(about.delta, abs=1e-8)
        assert slow.gain(linear, about) != pytest.approx(about.delta, abs=1e-4)


def bound_constant(A):
    """The theorem's c, word for word: A's negative eigenvalues replaced, square root, smallest."""
    values = np.linalg.eigvalsh(A)
    singular = np.abs(values)
    hat = np.where(values > 0, values, singular.min())
    return np.sqrt(hat.min())


def test_e6_the_constant_of_the_loss_bound_is_zero_beyond_two_labels():
    for q in (2, 3, 5, 9):
        for *_, about in active(27, 20, q=q):
            assert np.linalg.matrix_rank(about.A) == 2
            if q == 2:
                assert bound_constant(about.A) > 1e-4
            else:
                assert bound_constant(about.A) < 1e-6  # √ε of a number that is zero


def test_e6_psi_expands_as_printed_for_the_linear_update_and_only_for_it():
    rng = np.random.default_rng(28)
    for V, z, y, y_nn, about in active(29, 20):
        U, A = rng.normal(size=V.shape), about.A
        for update in UPDATES:
            V_new, what = play_round(V, z, y, y_nn, update=update)
            lam = what.lam
            psi = ((V - U) ** 2).sum() - ((V_new - U) ** 2).sum()
            printed = (
                -4 * lam * (V * (A @ V)).sum()
                + 4 * lam * (U * (A @ V)).sum()
                - 4 * lam**2 * ((A @ V) ** 2).sum()
            )
            assert (psi == pytest.approx(printed, rel=1e-9)) == (update == "linear")


def test_e6_replacing_a_by_its_positive_part_turns_the_inequality_round():
    # The proof goes from Ψ ≥ λ⟨V, AV⟩ + … to Ψ ≥ λ⟨V, ÂV⟩ + …; but ⟨V, ÂV⟩ ≥ ⟨V, AV⟩, and on
    # rounds with a loss ⟨V, AV⟩ is often negative, which no squared norm bounds from below.
    negative = 0
    for V, _, _, _, about in active(30, 100):
        values, vectors = np.linalg.eigh(about.A)
        hat = vectors @ np.diag(np.maximum(values, np.abs(values).min())) @ vectors.T
        plain, replaced = (V * (about.A @ V)).sum(), (V * (hat @ V)).sum()
        assert replaced > plain
        negative += plain < 0 < replaced
    assert negative > 20


def test_e6_the_proofs_norm_inequality_fails():
    # ‖Pᵀx − y‖² ≤ ‖Pᵀx‖² + ‖y‖² needs ⟨Pᵀx, y⟩ ≥ 0.
    z, y = np.array([-1.0, 0.0]), np.array([1.0, 0.0])
    assert ((z - y) ** 2).sum() > (z**2).sum() + (y**2).sum()
