"""The memory against a list: exact search, ties by age, exact forgetting, packed labels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import reference as slow
from tagstream import memory
from tagstream.labels import Labels
from tagstream.memory import DenseRows, Memory, SparseRows


def as_rows(X, sparse):
    X = np.asarray(X, np.float32)
    return sp.csr_matrix(X) if sparse else X


def dense(rows):
    return rows.toarray() if sp.issparse(rows) else np.asarray(rows)


def store(X, sparse):
    X = np.asarray(X, np.float32)
    rows = (SparseRows if sparse else DenseRows)(X.shape[1])
    rows.append(as_rows(X, sparse))
    return rows


def grid(rng, n, p, levels=3):
    """Rows on a small grid, half of it zero: many exact ties."""
    return (rng.integers(0, levels, (n, p)) * (rng.random((n, p)) < 0.6)).astype(np.float32)


def draw_labels(rng, n, q, unknown=False):
    Y = (rng.random((n, q)) < 0.4).astype(np.uint8)
    if not unknown:
        return Labels(Y, None)
    known = rng.random((n, q)) < 0.7
    return Labels(Y * known, known)


def filled(X, labels, *, sparse=False, window=None, ids=None, codes=None):
    made = Memory(X.shape[1], sparse=sparse, window=window)
    made.grow(labels.Y.shape[1])
    if codes is not None:
        made.start_codes(codes[:0])
    made.append(as_rows(X, sparse), labels, ids, codes)
    made.forget()
    return made


# ---------------------------------------------------------------------- storage


@pytest.mark.parametrize("sparse", [False, True])
@settings(max_examples=60, deadline=None)
@given(
    ops=st.lists(st.tuples(st.sampled_from(["append", "drop"]), st.integers(0, 30)), max_size=25)
)
def test_stored_rows_are_a_list_appended_to_and_dropped_from(sparse, ops):
    rng = np.random.default_rng(1)
    rows, expected = (SparseRows if sparse else DenseRows)(4), np.zeros((0, 4), np.float32)
    for what, n in ops:
        if what == "append":
            new = grid(rng, n, 4)
            rows.append(as_rows(new, sparse))
            expected = np.concatenate([expected, new])
        else:
            n = min(n, len(expected))
            rows.drop(n)
            expected = expected[n:]
        assert len(rows) == len(expected)
        np.testing.assert_array_equal(dense(rows.live), expected)
        if len(expected):
            near = rows.search(as_rows(expected[-1:], sparse), 2)[1][0].tolist()
            positions = slow.nearest(expected, expected[-1], 2)[1]
            assert near[: len(positions)] == positions


def test_replaced_rows_may_be_wider_and_are_searched_as_they_are():
    rng = np.random.default_rng(2)
    rows = store(grid(rng, 20, 3), sparse=False)
    rows.drop(5)
    new = rng.normal(size=(15, 6)).astype(np.float32)
    rows.replace(new.copy())
    more = rng.normal(size=(9, 6)).astype(np.float32)
    rows.append(more)
    np.testing.assert_array_equal(rows.live, np.concatenate([new, more]))
    assert rows.search(more, 1)[1][:, 0].tolist() == list(range(15, 24))


# ---------------------------------------------------------------------- search


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("k", [1, 4, 50])
@pytest.mark.parametrize("tiles", [(64, 4096), (3, 7)])
def test_search_equals_the_double_loop_ties_by_age(sparse, k, tiles, monkeypatch):
    monkeypatch.setattr(memory, "TILE", tiles)
    monkeypatch.setattr(memory, "WIDE_TILE", tiles)
    rng = np.random.default_rng(3)
    X, queries = grid(rng, 40, 3), grid(rng, 20, 3)
    distances, found = store(X, sparse).search(as_rows(queries, sparse), k)
    for i, query in enumerate(queries):
        best, positions = slow.nearest(X, query, k)
        rest = k - len(positions)
        assert found[i].tolist() == positions + [-1] * rest
        assert distances[i].tolist() == best + [np.inf] * rest


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("tiles", [(64, 4096), (3, 7)])
def test_each_query_sees_only_its_own_range_of_rows(sparse, tiles, monkeypatch):
    monkeypatch.setattr(memory, "TILE", tiles)
    monkeypatch.setattr(memory, "WIDE_TILE", tiles)
    rng = np.random.default_rng(4)
    X, queries = grid(rng, 40, 3), grid(rng, 25, 3)
    hi = rng.integers(0, 41, 25)
    lo = np.minimum(rng.integers(0, 41, 25), hi)
    hi[3] = lo[3]  # a query that sees nothing
    _, found = store(X, sparse).search(as_rows(queries, sparse), 5, lo, hi)
    for i, query in enumerate(queries):
        positions = slow.nearest(X, query, 5, lo[i], hi[i])[1]
        assert found[i].tolist() == positions + [-1] * (5 - len(positions))


@pytest.mark.parametrize("sparse", [False, True])
def test_search_on_reals_equals_the_double_loop(sparse):
    rng = np.random.default_rng(5)
    X, queries = (rng.normal(size=(n, 30)).astype(np.float32) for n in (120, 15))
    distances, found = store(X, sparse).search(as_rows(queries, sparse), 10)
    for i, query in enumerate(queries):
        best, positions = slow.nearest(X, query, 10)
        assert found[i].tolist() == positions
        np.testing.assert_allclose(distances[i], best, rtol=1e-13)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("step", [1.0, 0.125])
def test_search_is_exact_far_from_the_origin(sparse, step):
    # In single precision ‖c‖² − 2 q·c is off by millions here; distances are of order 1.
    rng = np.random.default_rng(6)
    X, queries = ((1e6 + step * rng.integers(-8, 9, (n, 5))).astype(np.float32) for n in (150, 20))
    distances, found = store(X, sparse).search(as_rows(queries, sparse), 8)
    for i, query in enumerate(queries):
        best, positions = slow.nearest(X, query, 8)
        assert found[i].tolist() == positions
        assert distances[i].tolist() == best


@pytest.mark.parametrize("sparse", [False, True])
def test_search_is_exact_when_one_feature_dwarfs_the_others(sparse):
    rng = np.random.default_rng(7)
    X = np.column_stack([1e7 + rng.integers(0, 3, 200), 1e-3 * rng.normal(size=(200, 3))])
    X = X.astype(np.float32)
    distances, found = store(X, sparse).search(as_rows(X[:30], sparse), 6)
    for i, query in enumerate(X[:30]):
        best, positions = slow.nearest(X, query, 6)
        assert found[i].tolist() == positions
        assert distances[i].tolist() == best


@pytest.mark.parametrize("sparse", [False, True])
def test_a_stored_row_finds_itself_at_distance_zero(sparse):
    rng = np.random.default_rng(8)
    X = (10.0 ** rng.uniform(-6, 6, (60, 12)) * (rng.random((60, 12)) < 0.5)).astype(np.float32)
    distances, found = store(X, sparse).search(as_rows(X, sparse), 1)
    assert not distances.any()
    np.testing.assert_array_equal(X[found[:, 0]], X)


def test_sparse_and_dense_search_give_the_same_bits():
    rng = np.random.default_rng(71)
    X = np.where(rng.random((200, 30)) < 0.3, rng.normal(size=(200, 30)), 0)
    answers = [store(X, s).search(as_rows(X[:50], s), 9) for s in (False, True)]
    for dense_one, sparse_one in zip(*answers, strict=True):
        np.testing.assert_array_equal(sparse_one, dense_one)


@pytest.mark.parametrize("sparse", [False, True])
def test_one_query_is_answered_as_among_many(sparse):
    rng = np.random.default_rng(72)
    X, queries = grid(rng, 300, 5), grid(rng, 40, 5)
    rows = store(X, sparse)
    together = rows.search(as_rows(queries, sparse), 7)
    for i in range(40):
        alone = rows.search(as_rows(queries[i : i + 1], sparse), 7)
        for one, many in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one[0], many[i])


def test_copies_are_returned_oldest_first():
    X = np.tile(np.array([[1.0, 2.0]], np.float32), (9, 1))
    for sparse in (False, True):
        found = store(X, sparse).search(as_rows(X[:1], sparse), 4)[1]
        assert found.tolist() == [[0, 1, 2, 3]]


# ---------------------------------------------------------------------- the window


def same_answers(one, other, queries, k, shift):
    """Both memories give the same votes, labels, distances and, but for a shift, positions."""
    for part in ("rows", "codes"):
        mine, theirs = getattr(one, part), getattr(other, part)
        if mine is None:
            assert theirs is None
            continue
        sparse = isinstance(mine, SparseRows)
        look = as_rows(queries, sparse)
        for a, b in zip(mine.search(look, k), theirs.search(look, k), strict=True):
            np.testing.assert_array_equal(a, b)
        found = mine.search(look, k)[1]
        np.testing.assert_array_equal(one.votes(found), other.votes(found))
        every = np.arange(len(one))
        assert one.ids(every) == [i + shift for i in other.ids(every)]
    for a, b in zip(one.labels(), other.labels(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("cuts", [[], [10], list(range(1, 90)), [3, 50, 51]])
def test_a_windowed_memory_equals_a_fresh_one_with_only_the_windows_rows(sparse, unknown, cuts):
    rng = np.random.default_rng(9)
    n, window = 90, 23
    X, labels, codes = grid(rng, n, 4), draw_labels(rng, n, 11, unknown), grid(rng, n, 4)
    slid = Memory(4, sparse=sparse, window=window)
    slid.grow(11)
    slid.start_codes(codes[:0])
    for part in np.split(np.arange(n), cuts):
        mine = Labels(labels.Y[part], None if labels.known is None else labels.known[part])
        slid.append(as_rows(X[part], sparse), mine, None, codes[part])
        slid.forget()
    last = slice(n - window, n)
    kept = Labels(labels.Y[last], None if labels.known is None else labels.known[last])
    fresh = filled(X[last], kept, sparse=sparse, codes=codes[last])
    assert len(slid) == window
    assert slid.n_forgotten == n - window
    same_answers(slid, fresh, grid(rng, 30, 4), 6, n - window)


@pytest.mark.parametrize("sparse", [False, True])
def test_no_evicted_example_is_ever_returned_counted_or_voted_for(sparse):
    # Label 0 belongs to exactly the examples that will be gone; the query is a copy of them.
    gone, kept = np.zeros((30, 3), np.float32), np.full((20, 3), 7, np.float32)
    labels = Labels(np.repeat([[1, 0], [0, 1]], [30, 20], axis=0).astype(np.uint8), None)
    made = filled(np.concatenate([gone, kept]), labels, sparse=sparse, window=20)
    _, found = made.rows.search(as_rows(gone[:1], sparse), 25)
    assert sorted(found[0]) == [-1] * 5 + list(range(20))
    votes = made.votes(found)[0]
    assert votes[0] < 1e-6
    assert votes[1] > 1 - 1e-6
    assert min(made.ids(np.arange(20))) == 30
    np.testing.assert_array_equal(made.labels().Y[:, 0], 0)
    for part in made.dump()["rows"].values():
        assert len(part) <= 20 * 3 + 1  # nothing of the 30 × 3 old entries is kept on disk


def test_items_of_a_block_see_what_their_window_held_when_they_came():
    made = Memory(2, sparse=False, window=5)
    assert made.first_seen(np.arange(3, 12)).tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 6]
    assert not Memory(2, sparse=False).first_seen(np.arange(4)).any()


# ---------------------------------------------------------------------- size


def raw_bytes(n, p, d, q):
    return n * (4 * p + 4 * d + -(-q // 8))


@pytest.mark.parametrize("n", [1000, 1777, 4000])
@pytest.mark.parametrize("batch", [1, 37, 1000])
def test_the_memory_holds_little_more_than_the_raw_numbers(n, batch):
    rng = np.random.default_rng(10)
    p, d, q = 40, 12, 12
    X, codes = rng.normal(size=(n, p)).astype(np.float32), np.zeros((n, d), np.float32)
    made = Memory(p, sparse=False)
    made.grow(q)
    made.start_codes(codes[:0])
    labels = draw_labels(rng, n, q)
    for first in range(0, n, batch):
        part = slice(first, min(first + batch, n))
        made.append(X[part], Labels(labels.Y[part], None), None, codes[part])
    assert raw_bytes(n, p, d, q) <= made.nbytes <= 1.25 * raw_bytes(n, p, d, q)


@pytest.mark.parametrize("batch", [1, 100])
def test_a_windowed_memory_holds_little_more_than_the_window(batch):
    rng = np.random.default_rng(11)
    n, window, p, d, q = 5000, 1000, 40, 12, 12
    made = Memory(p, sparse=False, window=window)
    made.grow(q)
    made.start_codes(np.zeros((0, d), np.float32))
    block = rng.normal(size=(batch, p)).astype(np.float32)
    labels = draw_labels(rng, batch, q)
    for _ in range(0, n, batch):
        made.append(block, labels, None, np.zeros((batch, d), np.float32))
        made.forget()
        assert made.nbytes <= 1.25 * raw_bytes(window + batch, p, d, q)


# ---------------------------------------------------------------------- labels, votes, ids


@pytest.mark.parametrize("unknown", [False, True])
def test_votes_equal_the_naive_votes(unknown):
    rng = np.random.default_rng(12)
    X, labels = grid(rng, 50, 4), draw_labels(rng, 50, 10, unknown)
    made = filled(X, labels)
    found = made.rows.search(grid(rng, 20, 4), 7)[1]
    for positions, votes in zip(found, made.votes(found), strict=True):
        expected = slow.votes(positions, labels.Y, labels.known)
        np.testing.assert_allclose(votes, expected, atol=1e-6)


def test_an_unknown_entry_counts_neither_for_nor_against():
    Y = np.array([[1, 1], [0, 0], [0, 0]], np.uint8)
    known = np.array([[1, 1], [1, 0], [1, 0]], bool)
    made = filled(np.zeros((3, 1), np.float32), Labels(Y, known))
    np.testing.assert_allclose(made.votes(np.array([[0, 1, 2]])), [[1 / 3, 1]], atol=1e-6)


def test_labels_come_back_as_they_went_in():
    rng = np.random.default_rng(13)
    for q in (1, 8, 13):
        for unknown in (False, True):
            labels = draw_labels(rng, 30, q, unknown)
            made = filled(np.zeros((30, 1), np.float32), labels)
            for back, there in zip(made.labels(), labels, strict=True):
                np.testing.assert_array_equal(back, there)
            some = np.array([4, 0, 29])
            np.testing.assert_array_equal(made.labels(some).Y, labels.Y[some])


def test_the_first_unknown_entry_leaves_earlier_examples_known():
    first, second = Labels(np.ones((3, 2), np.uint8), None), np.zeros((2, 2), np.uint8)
    made = filled(np.zeros((3, 1), np.float32), first)
    made.append(np.zeros((2, 1), np.float32), Labels(second, np.array([[1, 0], [0, 1]], bool)))
    made.append(np.zeros((1, 1), np.float32), Labels(second[:1], None))
    assert made.labels().known.tolist() == [[1, 1]] * 3 + [[1, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize(("old", "new"), [(3, 5), (7, 8), (8, 9), (5, 20)])
def test_of_a_new_label_stored_examples_have_none_unless_nothing_is_known_of_them(
    old, new, unknown
):
    rng = np.random.default_rng(14)
    X, before = grid(rng, 40, 3), draw_labels(rng, 40, old, unknown)
    made = filled(X, before)
    found = made.rows.search(X[:9], 5)[1]
    votes = made.votes(found)
    made.grow(new)
    after = made.labels()
    np.testing.assert_array_equal(after.Y, np.pad(before.Y, ((0, 0), (0, new - old))))
    if unknown:
        something = np.repeat(before.known.any(axis=1)[:, None], new - old, axis=1)
        np.testing.assert_array_equal(after.known, np.hstack([before.known, something]))
    # What was said about the old labels is said again, bit for bit.
    np.testing.assert_array_equal(made.votes(found)[:, :old], votes)
    assert (made.votes(found)[:, old:] < 1e-6).all()
    made.append(X[:1], Labels(np.ones((1, new), np.uint8), None))
    assert made.labels(slice(-1, None)).Y.tolist() == [[1] * new]


def test_ids_are_stream_numbers_until_names_are_given():
    X, labels = np.zeros((4, 1), np.float32), Labels(np.zeros((4, 1), np.uint8), None)
    made = filled(X, labels, window=7)
    assert made.ids(np.arange(4)) == [0, 1, 2, 3]
    made.append(X[:2], Labels(labels.Y[:2], None), ["a", ("b", 2)])
    made.append(X[:2], Labels(labels.Y[:2], None))
    made.forget()
    assert made.n_forgotten == 1
    assert made.ids(np.arange(7)) == [1, 2, 3, "a", ("b", 2), 6, 7]


# ---------------------------------------------------------------------- dump and load


def twin(made, sparse, window, q):
    other = Memory(3, sparse=sparse, window=window)
    other.grow(q)
    return other


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_what_is_dumped_and_loaded_answers_and_goes_on_the_same(sparse, unknown, named):
    rng = np.random.default_rng(15)
    X, labels = grid(rng, 40, 3), draw_labels(rng, 40, 10, unknown)
    ids = [f"item {i}" for i in range(40)] if named else None
    made = filled(X, labels, sparse=sparse, window=30, ids=ids, codes=X)
    other = twin(made, sparse, 30, 10)
    other.load(made.dump())
    more, new = grid(rng, 12, 3), draw_labels(rng, 12, 10, unknown)
    for part in (made, other):
        part.append(as_rows(more, sparse), new, None, more)
        part.forget()
    assert made.ids(np.arange(30)) == other.ids(np.arange(30))
    assert made.n_forgotten == other.n_forgotten == 22
    for look, one, two in [
        (as_rows(X[:9], sparse), made.rows, other.rows),
        (X[:9], made.codes, other.codes),
    ]:
        for a, b in zip(one.search(look, 6), two.search(look, 6), strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in zip(made.labels(), other.labels(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_dump_is_a_copy():
    rng = np.random.default_rng(16)
    made = filled(grid(rng, 5, 3), draw_labels(rng, 5, 4), codes=grid(rng, 5, 3))
    state = made.dump()
    state["rows"]["dense"][:] = 9
    state["codes"][:] = 9
    state["labels"][:] = 255
    assert made.rows.live.max() < 9
    assert made.codes.live.max() < 9
    assert not made.labels().Y.all()


def change(**parts):
    return lambda state: state.update(parts)


def change_rows(**parts):
    return lambda state: state["rows"].update(parts)


@pytest.mark.parametrize(
    ("sparse", "spoil", "message"),
    [
        (False, change_rows(dense=np.zeros((5, 4), np.float32)), "rows"),
        (False, change_rows(dense=np.zeros((5, 3))), "rows must be float32"),
        (False, change_rows(dense=np.full((5, 3), np.nan, np.float32)), "finite"),
        (False, change(labels=np.zeros((4, 1), np.uint8)), "labels"),
        (False, change(labels=np.zeros((5, 2), np.uint8)), "labels"),
        (False, change(known=np.zeros((5, 1), bool)), "known"),
        (False, change(codes=np.zeros((4, 3), np.float32)), "codes"),
        (False, change(ids=["a", "b"]), "ids must have 5 entries, got 2"),
        (False, change(n_forgotten=-1), "n_forgotten must be a count"),
        (False, change(n_forgotten=1.5), "n_forgotten must be a count"),
        (True, change_rows(indptr=np.array([0, 1, 2, 2, 2], np.int64)), "indptr"),
        (True, change_rows(indptr=np.array([0, 2, 1, 2, 2, 3], np.int64)), "indptr"),
        (True, change_rows(data=np.full(3, np.inf, np.float32)), "finite"),
    ],
)
def test_a_state_of_wrong_shape_is_refused(sparse, spoil, message):
    X = np.array([[1, 0, 0], [0, 2, 0], [0, 0, 0], [0, 0, 3], [0, 0, 0]], np.float32)
    labels = Labels(np.eye(5, 4, dtype=np.uint8), None)
    made = filled(X, labels, sparse=sparse, codes=X)
    state = made.dump()
    spoil(state)
    other = twin(made, sparse, None, 4)
    with pytest.raises(ValueError, match=message):
        other.load(state)


def test_more_rows_than_the_window_are_refused():
    rng = np.random.default_rng(17)
    made = filled(grid(rng, 9, 3), draw_labels(rng, 9, 4))
    with pytest.raises(ValueError, match="window of 8, got 9"):
        twin(made, False, 8, 4).load(made.dump())


@pytest.mark.parametrize("indices", [[0, 1, 3], [0, 1, -1]])
def test_sparse_indices_outside_the_rows_are_refused(indices):
    X = np.diag([1, 2, 3]).astype(np.float32)
    made = filled(X, Labels(np.zeros((3, 1), np.uint8), None), sparse=True)
    state = made.dump()
    state["rows"]["indices"] = np.array(indices, np.int32)
    with pytest.raises(ValueError, match="indices must lie in 0 to 2"):
        twin(made, True, None, 1).load(state)
