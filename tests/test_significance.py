"""Tests of significance: against scipy, against printed tables, and where they must be silent."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import friedmanchisquare, wilcoxon

from tagstream.evaluation.significance import _studentized_range, holm, significance


def table(n=12, k=4, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 1)) + rng.normal(size=(n, k)) + np.arange(k)
    return {f"s{i}": {f"m{j}": rows[i, j] for j in range(k)} for i in range(n)}, rows


def test_friedman_and_wilcoxon_are_scipys_and_holm_is_applied():
    values, rows = table()
    found = significance(values)
    assert found.p == friedmanchisquare(*rows.T).pvalue
    pairs = list(found.pairs)
    raw = [wilcoxon(rows[:, int(a[1])] - rows[:, int(b[1])]).pvalue for a, b in pairs]
    np.testing.assert_allclose(list(found.pairs.values()), holm(raw))
    assert len(pairs) == 6


def test_holm_never_lowers_a_p_value_and_keeps_their_order():
    p = np.random.default_rng(1).uniform(size=20)
    adjusted = holm(p)
    assert (adjusted >= p).all()
    assert (np.diff(adjusted[np.argsort(p)]) >= 0).all()
    assert adjusted[np.argmin(p)] == pytest.approx(min(20 * p.min(), 1))


def test_a_lower_loss_has_a_better_rank():
    values, _ = table()
    up, down = significance(values), significance(values, lower_is_better=True)
    assert up.learners == down.learners[::-1]
    assert up.ranks["m3"] + down.ranks["m3"] == pytest.approx(5)


# Demsar (2006), table 5a: q_0.05 for Nemenyi's test, which is the studentized range over √2.
@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_that_of_printed_tables(k, q):
    assert _studentized_range(k, 0.05) / np.sqrt(2) == pytest.approx(q, abs=6e-4)


def test_a_learner_without_a_value_is_left_out_and_named():
    values, _ = table()
    del values["s3"]["m1"]
    found = significance(values)
    assert "m1" not in found.learners
    assert "m1" in found.note


@pytest.mark.parametrize(
    ("n", "k", "what"), [(4, 4, "streams"), (12, 2, "learners"), (0, 0, "learners")]
)
def test_too_few_are_said_to_be_too_few(n, k, what):
    found = significance(table(n, k)[0])
    assert not found.enough
    assert found.pairs == {}
    assert f"Too few {what}" in found.note


def test_it_says_when_no_pair_can_be_told_apart():
    assert "no pair can be told apart" in significance(table(6, 10)[0]).note
    assert significance(table(12, 4)[0]).note == ""


def test_equal_learners_do_not_differ():
    values = {f"s{i}": dict.fromkeys("abc", float(i)) for i in range(8)}
    found = significance(values)
    assert found.p == 1.0
    assert set(found.pairs.values()) == {1.0}
    assert set(found.ranks.values()) == {2.0}
