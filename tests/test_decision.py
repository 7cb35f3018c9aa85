"""From scores to labels: thresholds, the best few, and the three rules for probabilities."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.decision import check_rule, decide

NAMES = {"hamming": 0.0, "balanced": 0.5, "f1": 1.0}
probabilities = st.lists(st.integers(0, 20).map(lambda k: k / 20), min_size=1, max_size=6)


def test_a_score_that_equals_the_threshold_counts_however_it_was_rounded():
    p = np.array([[0.3, 0.1 + 0.2, 0.3 - 5e-7, 0.3 - 2e-6, -np.inf]])
    np.testing.assert_array_equal(decide(p, 0.3), [[True, True, True, False, False]])
    assert decide([[1.0, 0.9]], 1).tolist() == [[True, False]]
    assert decide([[np.float32(1)]], 1.0).all()


def test_the_best_few_are_the_first_of_equals_and_need_a_score():
    p = [[0.5, 0.9, 0.5, 0.1], [0.0, 0.2, 0.0, -np.inf]]
    assert decide(p, "top2").tolist() == [[1, 1, 0, 0], [0, 1, 0, 0]]
    assert decide(p, "top10").tolist() == [[1, 1, 1, 1], [0, 1, 0, 0]]


def expected_f1(p, chosen):
    """Expected F1 of a set of labels over all label sets, which are drawn independently."""
    total = 0.0
    for y in product((0, 1), repeat=len(p)):
        chance = np.prod([p[j] if y[j] else 1 - p[j] for j in range(len(p))])
        hit, size = sum(y[j] for j in chosen), sum(y) + len(chosen)
        total += chance * (2 * hit / size if size else 1.0)
    return total


@given(probabilities)
@settings(max_examples=100, deadline=None)
def test_named_rules_follow_their_formula(p):
    p = np.array(p)
    best = np.prod(1 - p)
    for m in range(1, len(p) + 1):
        best = max(best, 2 * np.sort(p)[::-1][:m].sum() / (m + p.sum()))
    for name, beta in NAMES.items():
        expected = (p >= (1 - beta) / 2 + beta * best / 2 - 1e-6) & (p > 0)
        np.testing.assert_array_equal(decide(p[None], name)[0], expected)


def test_the_f1_rule_is_nearly_as_good_as_the_best_of_all_sets():
    """Nearly: the formula takes a ratio of expectations for the expectation of the ratio."""
    rng = np.random.default_rng(0)
    lost = []
    for _ in range(100):
        p = rng.integers(0, 21, size=5) / 20
        sets = [set(c) for m in range(6) for c in combinations(range(5), m)]
        best = max(expected_f1(p, chosen) for chosen in sets)
        lost.append(best - expected_f1(p, set(np.flatnonzero(decide([p], "f1")[0]))))
    assert np.mean(lost) < 0.005


@given(probabilities)
def test_f1_predicts_what_balanced_does_and_balanced_what_hamming_does(p):
    hamming, balanced, f1 = (decide([p], name) for name in NAMES)
    assert (hamming <= balanced).all()
    assert (balanced <= f1).all()


@given(st.lists(probabilities.map(lambda p: (p * 6)[:6]), min_size=1, max_size=5))
def test_rows_are_decided_alone(P):
    for rule in (*NAMES, "top2", 0.4):
        each = np.vstack([decide([row], rule) for row in P])
        np.testing.assert_array_equal(decide(P, rule), each)


def test_no_labels_no_decision():
    for rule in (*NAMES, "top2", 0.4):
        assert decide(np.zeros((3, 0)), rule).shape == (3, 0)


@pytest.mark.parametrize("rule", ["top0", "top", "top-1", "top1.5", "TOP3", "F1", "", "0.5"])
def test_an_unknown_name_is_refused(rule):
    with pytest.raises(ValueError, match=f"decide must be 'balanced', 'f1', .*, got '{rule}'"):
        check_rule("decide", rule)


@pytest.mark.parametrize("rule", [-0.1, 1.5, True, None, np.nan, [0.5]])
def test_a_threshold_is_a_number_between_0_and_1(rule):
    with pytest.raises(ValueError, match="rule must be a number between 0 and 1, got"):
        decide([[0.5]], rule)


def test_scores_are_rows():
    with pytest.raises(ValueError, match=r"scores must have shape \(n, q\), got \(2,\)"):
        decide([0.5, 0.1], 0.5)
