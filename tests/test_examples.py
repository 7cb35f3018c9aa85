"""Sums over examples: the same bits however the leaves are divided among those who add."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.labels.read import Labels
from tagstream.limits import LIMITS, Limits
from tagstream.store.sums import LocalExamples, add_in_tree, evenly

LEAF = LIMITS.leaf


LEAVES = st.sets(st.integers(0, 70), min_size=1, max_size=25).map(sorted)


def values(leaves, seed=0):
    """Numbers of very different size, whose sum depends on the order of its additions."""
    rng = np.random.default_rng(seed)
    return {leaf: 10.0 ** rng.uniform(-8, 8) * rng.normal(size=3) for leaf in leaves}


def by_definition(of, low, high):
    """The sum of a node: of its left and its right half, or of the one that is there."""
    if high - low == 1:
        return of.get(low)
    middle = (low + high) // 2
    left, right = by_definition(of, low, middle), by_definition(of, middle, high)
    if left is None or right is None:
        return right if left is None else left
    return left + right


def pairs(of):
    return [(leaf, (of[leaf].copy(),)) for leaf in sorted(of)]


@pytest.mark.exact
@settings(max_examples=200, deadline=None)
@given(leaves=LEAVES, seed=st.integers(0, 99))
def test_the_tree_adds_as_it_is_defined(leaves, seed):
    of = values(leaves, seed)
    (total,) = add_in_tree(pairs(of))
    np.testing.assert_array_equal(total, by_definition(of, 0, 128))


@pytest.mark.exact
@settings(max_examples=200, deadline=None)
@given(leaves=LEAVES, height=st.integers(0, 7), seed=st.integers(0, 99))
def test_any_division_into_subtrees_gives_the_same_bits(leaves, height, seed):
    # A shard that holds whole nodes sends one sum for each of them.
    of, width = values(leaves, seed), 1 << height
    nodes = itertools.groupby(pairs(of), key=lambda pair: pair[0] // width)
    sent = [(number, add_in_tree(list(inside))) for number, inside in nodes]
    (together,) = add_in_tree(sent)
    np.testing.assert_array_equal(together, add_in_tree(pairs(of))[0])


@pytest.mark.exact
@settings(max_examples=100, deadline=None)
@given(leaves=LEAVES, n_shards=st.integers(1, 5), seed=st.integers(0, 99))
def test_leaves_summed_by_anybody_and_sent_in_order_give_the_same_bits(leaves, n_shards, seed):
    of = values(leaves, seed)
    owner = np.random.default_rng(seed).integers(0, n_shards, 71)
    held = [{i: of[i] for i in leaves if owner[i] == s} for s in range(n_shards)]
    merged = sorted(pair for shard in held for pair in pairs(shard))
    np.testing.assert_array_equal(add_in_tree(merged)[0], add_in_tree(pairs(of))[0])


def test_the_order_of_additions_matters_so_the_tests_above_say_something():
    of = values(range(40))
    one_by_one = sum(of.values())
    assert (add_in_tree(pairs(of))[0] != one_by_one).any()


def test_there_must_be_something_to_add():
    with pytest.raises(ValueError, match="at least one leaf"):
        add_in_tree([])


def test_several_sums_are_added_at_a_time_and_only_the_first_leafs_arrays_are_changed():
    leaves = [(i, (np.full(2, float(i)), np.full((2, 2), 10.0 * i))) for i in range(1, 4)]
    total, other = add_in_tree(leaves)
    assert total.tolist() == [6, 6]
    assert other.tolist() == [[60, 60]] * 2


# ---------------------------------------------------------------------- leaves of examples


def make(n, numbers, sparse=False, unknown=False, leaf=LEAF):
    rng = np.random.default_rng(n)
    X = (rng.random((n, 3)) * (rng.random((n, 3)) < 0.5)).astype(np.float32)
    Y = rng.integers(0, 2, (n, 2)).astype(np.uint8)
    known = rng.random((n, 2)) < 0.7 if unknown else None

    def labels(part):
        return Labels(Y[part], None if known is None else known[part])

    rows = sp.csr_matrix(X) if sparse else X
    return LocalExamples(rows, labels, numbers, Limits(leaf=leaf)), X, Y


@settings(max_examples=100, deadline=None)
@given(numbers=st.sets(st.integers(0, 10 * LEAF), min_size=1, max_size=40).map(sorted))
def test_an_example_belongs_to_the_leaf_of_its_number_though_numbers_have_holes(numbers):
    made, _, _ = make(len(numbers), np.array(numbers))
    seen = []
    for leaf, part in made.leaves():
        assert {number // LEAF for number in numbers[part]} == {leaf}
        seen += range(part.start, part.stop)
    assert seen == list(range(len(numbers)))
    assert [leaf for leaf, _ in made.leaves()] == sorted({n // LEAF for n in numbers})


@pytest.mark.parametrize("first", [0, 1, LEAF - 1, LEAF, 3 * LEAF + 17])
def test_numbers_without_a_gap_are_given_by_the_first(first):
    n = 2 * LEAF + 5
    short, long = (make(n, numbers)[0] for numbers in (first, first + np.arange(n)))
    assert list(short.leaves()) == list(long.leaves())


@pytest.mark.exact
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("unknown", [False, True])
def test_sums_run_over_leaves_with_rows_labels_and_positions(sparse, unknown):
    numbers = np.flatnonzero(np.random.default_rng(1).random(80) < 0.6)
    made, X, Y = make(len(numbers), numbers, sparse, unknown, leaf=8)

    def summand(rows, labels, part):
        assert (labels.known is not None) == unknown
        dense = rows.toarray() if sparse else rows
        np.testing.assert_array_equal(dense, X[part])
        return dense.astype(float).sum(axis=0), labels.Y.sum(axis=0), np.ones(1)

    total, counts, leaves = made.sum(summand, along=np.arange(len(numbers)))
    of = {}
    for leaf in sorted(set(numbers // 8)):
        of[leaf] = X[numbers // 8 == leaf].astype(float).sum(axis=0)
    np.testing.assert_array_equal(total, by_definition(of, 0, 16))
    assert counts.tolist() == Y.sum(axis=0).tolist()
    assert leaves[0] == len(of)


@pytest.mark.parametrize("keep", [False, True])
def test_mapped_examples_are_made_leaf_by_leaf_and_kept_if_asked(keep):
    made, X, _ = make(30, 5, leaf=8)
    calls = []

    def double(rows):
        calls.append(len(rows))
        return 2 * rows

    mapped = made.map(double, keep)
    for _ in range(2):
        (total,) = mapped.sum(lambda rows, labels, part: (rows.astype(float).sum(axis=0),))
        np.testing.assert_allclose(total, 2 * X.sum(axis=0, dtype=float), rtol=1e-6)
    np.testing.assert_array_equal(mapped.gather(lambda rows: rows + 1), 2 * X + 1)
    assert calls == [3, 8, 8, 8, 3] * (1 if keep else 3)


def test_a_sample_is_evenly_spaced_and_a_stream_of_its_own():
    made, X, Y = make(100, 7)
    few = made.sample(30)
    rows, labels = few.every()
    places = evenly(100, 30)
    np.testing.assert_array_equal(rows, X[places])
    np.testing.assert_array_equal(labels.Y, Y[places])
    assert list(few.leaves()) == [(0, slice(0, 30))]
    assert made.sample(100) is made
    assert np.diff(places).min() >= 3
    assert evenly(5, 10).tolist() == [0, 1, 2, 3, 4]
    assert len(evenly(0, 10)) == 0


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_of_a_leaf_are_those_at_its_positions(sparse):
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((9000, 3)) < 0.3, rng.random((9000, 3)), 0).astype(np.float32)
    rows = sp.csr_matrix(dense) if sparse else dense
    examples = LocalExamples.of(rows, Labels(np.zeros((9000, 1), np.uint8), None), 100)
    for _, part in examples.leaves():
        some = examples.rows_of(part)
        assert np.array_equal(some.toarray() if sparse else some, dense[part])
        stored = some.data if sparse else some
        assert np.shares_memory(stored, rows.data if sparse else rows)
