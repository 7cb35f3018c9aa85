"""Runs of labels: the formulas against all orders of a few items, the test against simulation."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.evaluation.runs import label_runs


def shared(Y):
    """A, by its definition: labels that items share with the one before them."""
    return sum(int((a & b).sum()) for a, b in pairwise(Y))


def some_labels(seed, n, q, share):
    return (np.random.default_rng(seed).random((n, q)) < share).astype(int)


def frequent(rng, n, q=20):
    """Independent labels, some frequent and most rare."""
    return (rng.random((n, q)) < np.geomspace(0.5, 1 / n, q)).astype(int)


def together(rng, n):
    """Labels of which three always come together, so that their runs are the same ones."""
    return np.repeat(frequent(rng, n, 4), 3, axis=1)


def one_each(rng, n, q=7):
    return np.eye(q, dtype=int)[rng.integers(q, size=n)]


def one_rare_item(rng, n):
    """Two items with very many labels, and others with none or one: far from normal."""
    Y = np.zeros((n, 60), int)
    Y[np.arange(n), rng.integers(3, size=n)] = rng.random(n) < 0.2
    Y[:2] = 1
    return Y


KINDS = [frequent, together, one_each, one_rare_item]


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 4), st.floats(0.1, 0.9))
@settings(max_examples=40, deadline=None)
def test_mean_and_variance_are_those_over_all_orders(seed, n, q, share):
    Y = some_labels(seed, n, q, share)
    all_orders = np.array([shared(Y[list(order)]) for order in permutations(range(n))])
    found = label_runs(Y)
    total = max(Y.sum(), 1)
    assert found.shared == pytest.approx(shared(Y) / total)
    assert found.expected == pytest.approx(all_orders.mean() / total)
    spread = all_orders.std()
    wanted = (shared(Y) - all_orders.mean()) / spread if spread > 1e-9 else 0.0
    assert found.deviations == pytest.approx(wanted, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("make", KINDS)
def test_in_random_order_deviations_have_mean_zero_and_variance_one(make):
    rng = np.random.default_rng(3)
    Y = make(rng, 80)
    found = [label_runs(Y[rng.permutation(80)]) for _ in range(2000)]
    deviations = np.array([runs.deviations for runs in found])
    assert abs(deviations.mean()) < 4 / np.sqrt(2000)
    assert deviations.var() == pytest.approx(1, abs=0.25)
    # At most 1/26 for any items at all, by Cantelli's inequality; of three kinds none.
    n_found = sum(runs.found for runs in found)
    assert n_found <= (0 if make is not one_rare_item else 2000 / 26)


@pytest.mark.parametrize("make", [frequent, together, one_each])
def test_items_sorted_by_their_first_label_are_runs(make):
    Y = make(np.random.default_rng(4), 300)
    Y = Y[np.lexsort(Y.T[::-1])]
    runs = label_runs(Y)
    assert runs.found
    assert runs.shared > runs.expected + 0.02


def test_every_second_item_alike_is_no_run():
    Y = np.tile(np.eye(2, dtype=int), (50, 1))
    runs = label_runs(Y)
    assert runs.shared == 0
    assert runs.deviations < -5
    assert not runs.found


def test_what_is_beyond_chance_but_too_little_to_matter_is_no_run():
    rng = np.random.default_rng(5)
    kind = rng.integers(2, size=200_000)
    repeats = rng.random(len(kind)) < 0.03  # as the item before
    for i in np.flatnonzero(repeats[1:]) + 1:
        kind[i] = kind[i - 1]
    runs = label_runs(np.eye(2, dtype=np.uint8)[kind])
    assert runs.deviations > 5
    assert not runs.found


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_array, pd.DataFrame, np.asarray])
def test_labels_may_come_in_any_form(form):
    Y = some_labels(6, 50, 8, 0.2)
    assert label_runs(form(Y)) == label_runs(Y.astype(np.uint8))


def test_unknown_labels_are_not_shared():
    Y = some_labels(7, 60, 5, 0.5).astype(float)
    gaps = np.where(np.random.default_rng(8).random(Y.shape) < 0.3, np.nan, Y)
    assert label_runs(gaps) == label_runs(np.nan_to_num(gaps))


@pytest.mark.parametrize("Y", [np.ones((1, 3)), np.zeros((9, 3)), np.ones((9, 3)), np.eye(9)])
def test_where_all_orders_are_the_same_nothing_is_found(Y):
    runs = label_runs(Y)
    assert runs.deviations == 0
    assert not runs.found
