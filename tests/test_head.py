"""The head against its formulas; chunks, growth, unknown and late labels, windows, parts."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import reference as slow
from tagstream.core import heads as loops
from tagstream.core.inputs import inputs_of
from tagstream.evidence import head as module
from tagstream.evidence.fastmap import FastMap
from tagstream.evidence.head import PARTS, Evidence, Head

NO_BITS, NO_Z, NO_ROWS = np.empty((0, 0), np.uint8), np.empty((0, 0)), np.empty((0, 0), np.int64)


class Case(NamedTuple):
    """A stream with all that is found about it."""

    Y: np.ndarray
    known: np.ndarray | None
    Z: np.ndarray  # (n, q), or (0, 0)
    X: np.ndarray
    found: np.ndarray
    near: np.ndarray
    sparse: bool

    def part(self, items, q=None):
        """Y, known and evidence of some items when ``q`` labels are heard of."""
        q = self.Y.shape[1] if q is None else q
        Y, known = self.Y[:, :q], None if self.known is None else self.known[:, :q]
        bits = NO_BITS
        if known is not None:
            bits = np.packbits(np.pad(known, ((0, 0), (0, -q % 8)), constant_values=True), axis=1)
        rows = sp.csr_matrix(self.X[items]) if self.sparse else self.X[items]
        evidence = Evidence(
            self.found[items],
            self.near[items] if len(self.near) else NO_ROWS,
            np.packbits(Y, axis=1),
            bits,
            np.ascontiguousarray(self.Z[items, :q]) if len(self.Z) else NO_Z,
            inputs_of(rows),
        )
        return np.ascontiguousarray(Y[items]), None if known is None else known[items], evidence


def case(seed, n=60, q=9, p=6, *, sparse=False, unknown=0.0, regress=True, lag=0, window=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)).astype(np.float32)
    if sparse:
        X *= rng.random((n, p)) < 0.5
    Y = (rng.random((n, q)) < np.linspace(0.05, 0.6, q)).astype(np.uint8)
    known = None
    if unknown:
        known = rng.random((n, q)) >= unknown
        known[::7] = False
        Y *= known
    found, near = np.full((n, 30), -1), np.full((n, 10), -1)
    for i in range(n):
        lo, hi = 0 if window is None else max(i - window, 0), max(i - lag, 0)
        some = rng.permutation(np.arange(lo, max(hi, lo)))
        found[i, : min(len(some), 30)] = some[:30]
        near[i, : min(len(some), 10)] = some[::-1][:10]
    Z = 0.4 * Y + rng.normal(0.2, 0.3, (n, q)) if regress else NO_Z
    return Case(Y, known, Z, X, found, NO_ROWS if sparse else near, sparse)


def new(about, q=None, *, lag=0):
    head, fast = Head(near=not about.sparse, lag=lag), FastMap(sparse=about.sparse)
    q = about.Y.shape[1] if q is None else q
    head.grow(q)
    fast.grow(q)
    if len(about.Z):
        fast.reset(np.ones(about.X.shape[1]), 2.0, counts=5 + np.arange(q))
    return head, fast


def kept_from(items, window):
    """First position kept when each item comes, and after the last."""
    if window is None:
        return None
    return np.maximum(np.arange(items.start, items.stop + 1) - window, 0)


def learn(about, cuts=(), *, lag=0, window=None):
    head, fast = new(about, lag=lag)
    out = []
    for start, stop in pairwise([0, *cuts, len(about.Y)]):
        items = slice(start, stop)
        Y, known, evidence = about.part(items)
        out.append(head.learn(evidence, fast, Y, known, kept_from(items, window)))
    return np.concatenate(out), head, fast


def assert_same(one, other):
    """Whether two dumps are equal to the bit."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, dict):
            assert_same(value, other[name])
        else:
            np.testing.assert_array_equal(value, other[name], err_msg=name)


CASES = [
    {},
    {"sparse": True},
    {"unknown": 0.3},
    {"sparse": True, "unknown": 0.3, "regress": False},
    {"lag": 5},
    {"window": 12},
    {"lag": 4, "window": 12, "unknown": 0.3},
]


@pytest.mark.parametrize("how", CASES, ids=str)
def test_the_head_follows_its_formulas(how):
    about = case(1, **how)
    n, q = about.Y.shape
    lag, window = how.get("lag", 0), how.get("window")
    P, head, fast = learn(about, lag=lag, window=window)
    start = module.start_weights((3, 10, 30), not about.sparse, lag)
    naive = slow.SlowHead(start, q, lag=lag, window=window)
    fresh = np.arange(q) < 5 if len(about.Z) else np.ones(q, bool)
    fast_naive = slow.SlowFastMap(np.ones(about.X.shape[1]), 2.0, q, fresh)
    known = np.ones((n, q), bool) if about.known is None else about.known

    def regression(i):
        z = about.Z[i] if len(about.Z) else None
        return z, None if z is None else fast_naive(about.X[i].astype(float), z)

    for i in range(n):
        near = about.near[i] if len(about.near) else None
        p, F = naive.score(about.found[i], near, *regression(i), fresh, late=True)
        np.testing.assert_allclose(P[i], p, rtol=1e-4, atol=1e-6)
        naive.learn(p, F, about.Y[i], known[i])
        if len(about.Z) and known[i].any():
            x = about.X[i].astype(float)
            fast_naive.learn(x, about.Z[i], about.Y[i], known[i])
    np.testing.assert_allclose(head.weights.w, naive.w, rtol=1e-3, atol=1e-5)
    d = head.weights.d[:, : len(naive.w)]
    np.testing.assert_allclose(d, naive.d, rtol=1e-3, atol=1e-5)
    assert np.abs(naive.w - start).max() > 0.01  # something was learnt
    np.testing.assert_allclose(head.bars, [naive.bar(j) for j in range(q)], rtol=1e-3)
    assert np.ptp(head.bars) > 0.01
    # At prediction time all that is learnt is used, late labels or not.
    Y, _, evidence = about.part(slice(n - 3, n))
    scores = head.explain(evidence, fast)
    for i in range(3):
        at = n - 3 + i
        near = about.near[at] if len(about.near) else None
        p, _ = naive.score(about.found[at], near, *regression(at), fresh)
        np.testing.assert_allclose(scores.p[i], p, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(head.score(evidence, fast), scores.p)
    assert Y.shape == scores.p.shape


@given(
    st.integers(0, 10**6), st.sampled_from(CASES), st.sets(st.integers(1, 59), max_size=8)
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_how_a_stream_is_cut_does_not_matter(seed, how, cuts):
    about = case(seed, **how)
    lag, window = how.get("lag", 0), how.get("window")
    whole = learn(about, lag=lag, window=window)
    parts = learn(about, sorted(cuts), lag=lag, window=window)
    np.testing.assert_array_equal(parts[0], whole[0])
    assert_same(parts[1].dump(), whole[1].dump())
    assert_same(parts[2].dump(), whole[2].dump())


@pytest.mark.parametrize("how", [{}, {"sparse": True, "unknown": 0.3}, {"lag": 6, "unknown": 0.3}],
                         ids=str)  # fmt: skip
def test_labels_heard_of_later_are_as_zero_columns_all_along(how):
    about = case(2, **how)
    lag = how.get("lag", 0)
    about.Y[:30, 5:] = 0
    about.Z[:30, 5:] = 0
    if about.known is not None:  # of whom something is known, all of the new labels is
        about.known[:30, 5:] = about.known[:30, :5].any(axis=1)[:, None]
    q = about.Y.shape[1]
    whole, fast = new(about, lag=lag)
    fast.reset(np.ones(6), 2.0, counts=np.zeros(q, int))
    part, fast_part = new(about, 5, lag=lag)
    fast_part.reset(np.ones(6), 2.0, counts=np.zeros(5, int))
    for items in (slice(0, 30), slice(30, 60)):
        Y, known, evidence = about.part(items)
        P = whole.learn(evidence, fast, Y, known)
        heard = 5 if items.start == 0 else q
        part.grow(heard)
        fast_part.grow(heard)
        Y, known, evidence = about.part(items, heard)
        np.testing.assert_array_equal(part.learn(evidence, fast_part, Y, known), P[:, :heard])
    assert_same(part.dump(), whole.dump())
    assert_same(fast_part.dump(), fast.dump())


def test_a_label_without_an_example_has_no_chance_and_teaches_nothing():
    about = case(3)
    about.Y[:, 4] = 0
    P, head, _ = learn(about)
    assert not P[:, 4].any()
    assert not head.weights.d[4].any()
    assert (head.weights.a[4] == 10).all()
    first = np.flatnonzero(about.Y[:, 2])[0]
    assert P[first, 2] == 0
    assert P[first + 1, 2] > 0


def test_an_item_of_which_nothing_is_known_changes_nothing():
    about = case(4)
    head, fast = new(about)
    Y, _, evidence = about.part(slice(0, 40))
    head.learn(evidence, fast, Y)
    before = head.dump(), fast.dump()
    Y, _, evidence = about.part(slice(40, 45))
    head.learn(evidence, fast, 0 * Y, np.zeros(Y.shape, bool))
    assert_same(head.dump(), before[0])
    assert_same(fast.dump(), before[1])


def test_counts_are_those_of_the_window_and_follow_corrections():
    about = case(5, window=12)
    _, head, _ = learn(about, window=12)
    np.testing.assert_array_equal(head.counts, about.Y[-12:].sum(axis=0))
    assert head.now.t[0] == 12
    before = head.dump()
    head.recount(about.Y[-1:], -1)
    head.recount(1 - about.Y[-1:], 1)
    expected = about.Y[-12:-1].sum(axis=0) + (1 - about.Y[-1])
    np.testing.assert_array_equal(head.counts, expected)
    for name in ("w", "A", "d", "a"):
        np.testing.assert_array_equal(head.dump()[name], before[name])
    head.recount(1 - about.Y[-1:], -1)
    assert head.now.t[0] == 11


def test_unknown_labels_are_no_examples_without_the_label():
    head = Head(near=False)
    head.grow(2)
    Y, known = np.array([[1, 0]], np.uint8), np.array([[True, False]])
    head.recount(Y, 1, known)
    head.recount(Y, 1)
    assert head.now.t.tolist() == [2]
    assert head.now.missing.tolist() == [0, 1]
    head.recount(Y, -1, known)
    assert head.now.missing.tolist() == [0, 0]


def test_late_labels_are_learnt_from_evidence_of_the_same_age():
    about = case(6, lag=8, regress=False, sparse=True)
    other = about._replace(Y=about.Y.copy())
    other.Y[40] = 1 - other.Y[40]  # no neighbour of the items before 49
    (one, head, _), (two, unlike, _) = (learn(a, lag=8) for a in (about, other))
    np.testing.assert_array_equal(one[:41], two[:41])
    assert (one[49:] != two[49:]).any()
    # Between, the weights have learnt from item 40, but no evidence has.
    np.testing.assert_array_equal(head.behind.last, about.Y[51])
    np.testing.assert_array_equal(head.now.last, about.Y[59])
    np.testing.assert_array_equal(head.behind.n, about.Y[:52].sum(axis=0))
    np.testing.assert_array_equal(unlike.now.n, other.Y.sum(axis=0))


def test_parts_add_up_to_the_log_odds():
    about = case(7)
    _, head, fast = learn(about)
    about.Y[:, 4] = 0
    evidence = about.part(slice(50, 60))[2]
    p, log_odds, parts = head.explain(evidence, fast)
    assert parts.shape[2] == len(PARTS)
    finite = np.isfinite(log_odds)
    np.testing.assert_allclose(parts.sum(axis=2)[finite], log_odds[finite], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(p[finite], 1 / (1 + np.exp(-log_odds[finite])))
    assert not p[~finite].any()
    # Of a label that had hardly an example at the last fit the regression says nothing.
    assert not parts[:, :5, PARTS.index("regression")].any()
    assert parts[:, 5:, PARTS.index("regression")].any()


def test_scoring_changes_nothing_and_a_snapshot_stays():
    about = case(8, lag=3)
    head, fast = new(about, lag=3)
    Y, _, evidence = about.part(slice(0, 30))
    head.learn(evidence, fast, Y)
    asked = about.part(slice(30, 60))[2]
    before, view, fast_view = head.dump(), head.snapshot(), fast.snapshot()
    scores = head.score(asked, fast)
    assert_same(head.dump(), before)
    np.testing.assert_array_equal(view.score(asked, fast_view), scores)
    Y, _, evidence = about.part(slice(30, 60))
    head.learn(evidence, fast, Y)
    np.testing.assert_array_equal(view.score(asked, fast_view), scores)
    assert (head.score(asked, fast) != scores).any()


@pytest.mark.parametrize("how", [{}, {"sparse": True, "unknown": 0.3, "lag": 5}], ids=str)
def test_a_loaded_head_goes_on_to_the_bit(how):
    about, lag = case(9, **how), how.get("lag", 0)
    head, fast = new(about, lag=lag)
    Y, known, evidence = about.part(slice(0, 30))
    head.learn(evidence, fast, Y, known)
    again = Head.load(head.dump(), 9, near=not about.sparse, lag=lag)
    fast_again = FastMap.load(fast.dump(), 9, sparse=about.sparse, width=len(fast.state.s))
    Y, known, evidence = about.part(slice(30, 60))
    head.learn(evidence, fast, Y, known)
    again.learn(evidence, fast_again, Y, known)
    assert_same(again.dump(), head.dump())
    assert again.nbytes == head.nbytes > 0


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("w", np.zeros(3), "w must be float64"),
        ("A", -np.eye(12), "A must be symmetric"),
        ("a", np.zeros((9, 12)), "a must stay between 9 and"),
        ("w", np.full(12, 1e300), "w must stay between"),
        ("A", 1e-9 * np.eye(12), "A must be symmetric with eigenvalues of at least 1"),
        ("behind", {}, "the history must be kept once"),
        ("queue", np.zeros((1, 9), np.uint8), "queue must be uint8"),
        ("queue_at", np.array([5, 0]), "queue_at"),
        ("now", {}, "the history must have"),
        ("sizes", np.zeros(9), "sizes must stay between 0.9 and"),
        ("hits", np.full(9, 1e9), "hits must stay between"),
    ],
)
def test_a_damaged_state_is_refused(part, value, message):
    state = learn(case(10))[1].dump()
    with pytest.raises(ValueError, match=message):
        Head.load(state | {part: value}, 9, near=True)


def test_a_state_without_aims_starts_them_anew():
    head = learn(case(10))[1]
    state = {name: part for name, part in head.dump().items() if name not in ("hits", "sizes")}
    again = Head.load(state, 9, near=True)
    np.testing.assert_array_equal(again.weights.d, head.weights.d)
    np.testing.assert_array_equal(again.bars, np.full(9, 0.25))


def test_the_bar_of_a_label_is_half_the_best_expected_f1_of_its_suggestions():
    rng = np.random.default_rng(12)
    P = rng.random((4000, 3)) ** np.array([0.5, 3, 12])  # common, rare, and hardly ever likely
    aims = module.Aims(np.full(3, 0.5), np.ones(3))
    for p in P:
        for j in range(3):
            loops.aim.py_func(*aims, j, p[j])
    for j in range(3):
        p = np.sort(P[:, j])[::-1]
        best = (2 * p.cumsum() / (np.arange(1, len(p) + 1) + p.sum())).max()
        assert 0.5 * aims.hits[j] / aims.sizes[j] == pytest.approx(best / 2, rel=0.05)


def test_a_history_out_of_range_is_refused():
    state = learn(case(10))[1].dump()
    state["now"]["fast"][0] = 1.5
    with pytest.raises(ValueError, match="fast must stay between 0 and 1"):
        Head.load(state, 9, near=True)


def test_the_small_solver_is_the_usual_one():
    rng = np.random.default_rng(11)
    B = rng.normal(size=(12, 20))
    A, g = B @ B.T, rng.normal(size=12)
    x = g.copy()
    loops.solve.py_func(A, np.empty((12, 12)), x)
    np.testing.assert_allclose(x, np.linalg.solve(A, g), rtol=1e-8)
