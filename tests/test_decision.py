"""One function turns scores into labels: by hand, by its definition, and at the door."""

from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import reference as slow
from tagstream import OML, decision
from tagstream.decision import RULES, Seen, TagScores, check_rule, decide

scores_of = arrays(np.float64, st.tuples(st.integers(0, 4), st.integers(0, 7)),
                   elements=st.floats(0, 1).map(lambda x: round(x, 3)))  # fmt: skip


def test_a_score_that_equals_the_threshold_counts():
    assert decide(np.array([[0.3, 0.29999, 0.5]]), 0.3).tolist() == [[True, False, True]]
    thirds = np.array([[1 / 3 - 1e-7]])  # a share of votes, less an imaginary neighbour
    assert decide(thirds, 1 / 3).all()


@given(scores_of, st.sampled_from(sorted(RULES)))
@settings(deadline=None)
def test_named_rules_follow_the_best_expected_f1(scores, rule):
    chosen = decide(scores, rule)
    assert chosen.dtype == bool
    for row, got in zip(scores, chosen, strict=True):
        cut = slow.expected_f1_cut(row, RULES[rule])
        assert got.tolist() == [p >= cut - 1e-6 for p in row]


@given(scores_of, st.integers(0, 2000), st.data())
@settings(deadline=None)
def test_balanced_starts_as_f1_and_believes_in_nothing_as_often_as_it_was_seen(scores, n, data):
    n_empty = data.draw(st.integers(0, n))
    beta = 0.5 + 0.5 / (1 + (n / 200) ** 2)
    for row, got in zip(scores, decide(scores, "balanced", seen=Seen(n, n_empty)), strict=True):
        cut = slow.expected_f1_cut(row, beta, (n_empty + 0.5) / (n + 1))
        assert got.tolist() == [p >= cut - 1e-6 for p in row]


@pytest.mark.parametrize("rule", ["f1", "hamming", "top2", 0.3])
def test_other_rules_do_not_look_at_what_was_seen(rule):
    scores = np.random.default_rng(1).random((50, 6)) ** 3
    assert (decide(scores, rule, seen=Seen(5, 0)) == decide(scores, rule)).all()


def test_items_without_labels_are_counted_if_all_is_known_and_never_taken_back():
    Y = np.array([[0, 0], [1, 0], [np.nan, 0], [0, 0], [0, 1]])
    X = np.arange(10.0).reshape(5, 2)
    whole = OML(window=2, random_state=0).partial_fit(X, Y)
    parts = OML(window=2, random_state=0)
    for i in range(5):
        parts.partial_fit(X[i : i + 1], Y[i : i + 1])
    assert whole.forget(4).n_empty_ == parts.n_empty_ == 2
    assert OML.from_state(whole.to_state()).n_empty_ == 2
    sets = OML(random_state=0).partial_fit(X, [None, set(), {"a"}, set(), None])
    assert sets.n_empty_ == 2


def test_a_young_model_suggests_and_a_window_does_not_make_it_young_again():
    rng = np.random.default_rng(0)
    Y = np.eye(6, dtype=np.uint8)[rng.integers(6, size=700)]
    X = Y @ rng.normal(size=(6, 5)) + rng.normal(size=(700, 5)) * 2
    young = OML(random_state=0).fit(X[:30], Y[:30])
    p = young.predict_proba(X[500:])
    assert young.predict(X[500:]).any(axis=1).mean() > decide(p, "balanced").any(axis=1).mean()
    old = OML(window=40, random_state=0).partial_fit(X, Y)
    p = old.predict_proba(X[500:])
    late = decide(p, "balanced", seen=Seen(700, 0))
    assert (old.predict(X[500:]) == late).all()


def test_f1_takes_the_set_of_the_highest_expected_f1():
    rng = np.random.default_rng(0)
    for p in rng.random((50, 5)) ** 2:
        p[0] = 0.95  # suggesting nothing is out of the question
        sets = [np.array(s, bool) for s in product([0, 1], repeat=5)]
        best = max(2 * p[s].sum() / (s.sum() + p.sum()) for s in sets)
        chosen = decide(p[None], "f1")[0]
        assert 2 * p[chosen].sum() / (chosen.sum() + p.sum()) == pytest.approx(best)


def test_a_single_label_is_suggested_for_f1_from_one_third_on():
    scores = np.array([[0.33], [0.34], [0.35]])
    assert decide(scores, "f1").ravel().tolist() == [False, True, True]
    assert not decide(scores, "balanced").any()


@given(scores_of)
@settings(deadline=None)
def test_hamming_is_the_threshold_of_one_half_and_balanced_lies_between(scores):
    few, some, many = (decide(scores, rule) for rule in ("hamming", "balanced", "f1"))
    np.testing.assert_array_equal(few, decide(scores, 0.5))
    assert (few <= some).all()
    assert (some <= many).all()


def test_top_k_takes_the_highest_in_column_order_and_never_a_zero():
    scores = np.array([[0.2, 0.7, 0.2, 0.2], [0.0, 0.1, 0.0, 0.0]])
    assert decide(scores, "top2").tolist() == [[1, 1, 0, 0], [0, 1, 0, 0]]
    assert decide(scores, "top10").tolist() == [[1, 1, 1, 1], [0, 1, 0, 0]]


def test_macro_asks_each_label_for_its_own_bar():
    scores = np.array([[0.2, 0.2, 0.0], [0.4, 0.1, 0.3]])
    bars = np.array([0.3, 0.1, 0.25])
    assert decide(scores, "macro", bars).tolist() == [[0, 1, 0], [1, 1, 1]]
    with pytest.raises(ValueError, match="decide must not be 'macro' for a learner without a head"):
        decide(scores, "macro")


@pytest.mark.parametrize("rule", ["balanced", "f1", "hamming", "macro", "top1", "top12", 0, 1, 0.5])
def test_known_rules_pass(rule):
    check_rule("decide", rule)


@pytest.mark.parametrize("rule", ["best", "top", "top0", "top-1", "top1.5", "F1", -0.1, 1.1, True,
                                  None, float("nan")])  # fmt: skip
def test_other_rules_are_refused_by_name(rule):
    with pytest.raises(ValueError, match="decide must be"):
        check_rule("decide", rule)


def test_scores_by_tag_are_those_of_a_sorted_dictionary():
    rng = np.random.default_rng(3)
    values = rng.random(200).round(2) * rng.choice([0.0, 1e-6, 1.0], 200)
    values[:3] = 5e-7, np.nextafter(5e-7, 1), 4e-7  # what is shown as zero is left out
    names = np.array([f"tag {j}" for j in range(200)], object)
    order = np.argsort(-values, kind="stable").tolist()
    expected = {names[j]: round(float(values[j]), 6) for j in order}
    expected = {name: value for name, value in expected.items() if value > 0}
    scores = TagScores(names, values)
    assert [*scores] == [*expected]
    assert [*scores.values()] == [*expected.values()]
    assert [*scores.items()] == [*expected.items()]
    assert repr(scores) == repr(expected)
    assert scores == expected
    assert expected == scores
    assert len(scores) == len(expected)
    assert all((name in scores) == (name in expected) for name in names)
    assert {name: scores[name] for name in expected} == expected
    with pytest.raises(KeyError):
        scores["tag 0"]
    assert pickle.loads(pickle.dumps(scores)) == scores


def test_scores_are_not_sorted_before_somebody_goes_through_them(monkeypatch):
    sorted_ = []
    whole = decision.highest_first
    monkeypatch.setattr(decision, "highest_first", lambda s: sorted_.append(1) or whole(s))
    scores = TagScores(np.array(["a", "b"], object), np.array([0.2, 0.4]))
    assert (len(scores), scores["a"], "c" in scores, sorted_) == (2, 0.2, False, [])
    assert ([*scores], [*scores.items()], sorted_) == (["b", "a"], [("b", 0.4), ("a", 0.2)], [1])
