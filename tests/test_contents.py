"""Contents of items, and samples that are drawn by a hash."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.store.contents import EMPTY, digests, draw, left_out, n_left_out, newest_of_each

ROWS = np.random.default_rng(0).integers(-2, 3, size=(40, 5)).astype(np.float32)


def test_equal_rows_have_the_same_digest_and_others_another():
    _, same = np.unique(ROWS, axis=0, return_inverse=True)
    for i, a in enumerate(digests(ROWS)):
        for j, b in enumerate(digests(ROWS)):
            assert (a == b) == (same.ravel()[i] == same.ravel()[j])


def test_dense_and_sparse_rows_have_the_same_digests():
    explicit = sp.csr_matrix(ROWS)
    explicit.data[0] = 0.0  # a stored zero is a zero
    dense = explicit.toarray()
    assert digests(explicit).tolist() == digests(dense).tolist()
    assert (
        digests(np.where(dense == 0, np.float32(-0.0), dense)).tolist() == digests(dense).tolist()
    )


def test_a_row_of_zeros_is_empty():
    assert digests(np.zeros((1, 3), np.float32)).tolist() == [EMPTY]
    assert digests(sp.csr_matrix((1, 3), dtype=np.float32)).tolist() == [EMPTY]


def test_values_in_other_columns_have_other_digests():
    a, b, c = digests(np.array([[1, 2, 0], [2, 1, 0], [0, 1, 2]], np.float32)).tolist()
    assert len({a, b, c}) == 3


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.integers(0, 3), st.integers(0, 3))
def test_what_is_left_out_goes_by_content(values, seed, n_fits):
    contents = np.array(values, np.uint64)
    sample = left_out(contents, seed, n_fits)
    n = len(set(values))
    assert len(sample.newest) == min(n_left_out(n), n - 1)  # something is left to fit
    chosen = contents[sample.newest]
    assert len(set(chosen.tolist())) == len(chosen)
    # All copies, in the order of the contents, the newest last.
    assert sorted(sample.every.tolist()) == np.flatnonzero(np.isin(contents, chosen)).tolist()
    for k, content in enumerate(chosen):
        mine = sample.every[sample.whose == k]
        assert mine.tolist() == np.flatnonzero(contents == content).tolist()
        assert mine[-1] == sample.newest[k]


def test_the_sample_does_not_depend_on_where_items_are_stored():
    contents = digests(np.random.default_rng(1).normal(size=(300, 4)).astype(np.float32))
    chosen = contents[left_out(contents, 5, 2).newest]
    order = np.random.default_rng(2).permutation(300)
    assert contents[order][left_out(contents[order], 5, 2).newest].tolist() == chosen.tolist()


@pytest.mark.parametrize("other", [(1, 0), (0, 1)])
def test_another_seed_or_fit_leaves_others_out(other):
    contents = digests(np.random.default_rng(1).normal(size=(800, 4)).astype(np.float32))
    one, two = left_out(contents, 0, 0), left_out(contents, *other)
    assert len(one.newest) == len(two.newest) == n_left_out(800)
    assert len({*one.newest.tolist()} & {*two.newest.tolist()}) < len(one.newest) / 3


def test_of_many_items_with_few_contents_all_of_a_content_are_left_out():
    contents = np.random.default_rng(3).integers(0, 40, 9000).astype(np.uint64)
    sample = left_out(contents, 0, 0)
    assert len(sample.newest) == 39
    assert len(sample.every) == np.isin(contents, contents[sample.newest]).sum()


def test_the_newest_of_each_content():
    values = np.random.default_rng(4).integers(0, 9, 50)
    expected = sorted(max(np.flatnonzero(values == v)) for v in set(values.tolist()))
    assert newest_of_each(values.astype(np.uint64)).tolist() == expected


def test_drawn_numbers_stay_drawn_when_others_leave():
    numbers = np.arange(1000)
    drawn = numbers[draw(numbers, 100, seed=1)]
    kept = numbers[200:]
    again = kept[draw(kept, 100, seed=1)]
    assert {*drawn[drawn >= 200].tolist()} <= {*again.tolist()}
