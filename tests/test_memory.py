"""The store against a list: exact search, ties by age, exact forgetting, packed labels.

Whatever is a :class:`~tagstream.store.protocol.Store` keeps the same contract: a new one is one
more entry of ``STORES``.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import reference as slow
from tagstream.labels.read import Labels
from tagstream.limits import LIMITS, Limits
from tagstream.store import changes, lookup
from tagstream.store import rows as rows_module
from tagstream.store.local import LocalStore
from tagstream.store.protocol import CORRECTED, IDS, LABELS, NUMBERS, ROWS
from tagstream.store.rows import DenseRows, SparseRows


def as_rows(X, sparse):
    X = np.asarray(X, np.float32)
    return sp.csr_matrix(X) if sparse else X


def dense(rows):
    return rows.toarray() if sp.issparse(rows) else np.asarray(rows)


UNPACKED = None  # dense rows without a copy for the search; the default has one


def empty_rows(p, sparse, limits=LIMITS):
    return SparseRows(p) if sparse else DenseRows(p, packed=sparse is not UNPACKED, limits=limits)


def stored_rows(X, sparse, limits=LIMITS):
    X = np.asarray(X, np.float32)
    rows = empty_rows(X.shape[1], sparse, limits)
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


# Each opens an empty store, as the ``open`` of a learner's ``store`` parameter does.
STORES = {"local": LocalStore}


@pytest.fixture(params=STORES, scope="session")
def opened(request):
    return STORES[request.param]


def filled(opened, X, labels, *, sparse=False, window=None, ids=None, codes=None):
    made = opened(X.shape[1], sparse=sparse, window=window)
    changes.grow_labels(made, labels.Y.shape[1])
    if codes is not None:
        changes.encode(made, lambda rows: codes[:0])
    made.append(as_rows(X, sparse), labels, ids, codes)
    changes.forget(made)
    return made


# ---------------------------------------------------------------------- storage


@pytest.mark.parametrize("sparse", [False, UNPACKED, True])
@settings(max_examples=60, deadline=None)
@given(
    ops=st.lists(st.tuples(st.sampled_from(["append", "drop"]), st.integers(0, 30)), max_size=25)
)
def test_stored_rows_are_a_list_appended_to_and_dropped_from(sparse, ops):
    rng = np.random.default_rng(1)
    rows, expected = empty_rows(4, sparse), np.zeros((0, 4), np.float32)
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


@pytest.mark.parametrize("sparse", [False, UNPACKED])
def test_of_rows_without_numbers_the_oldest_are_nearest(sparse):
    rows = stored_rows(np.empty((30, 0)), sparse)
    distances, found = rows.search(np.empty((20, 0), np.float32), 3)
    assert found.tolist() == [[0, 1, 2]] * 20
    assert not distances.any()
    wider = np.random.default_rng(2).normal(size=(30, 2)).astype(np.float32)
    rows.replace(wider.copy())
    assert rows.search(wider, 1)[1][:, 0].tolist() == list(range(30))


def test_replaced_rows_may_be_wider_and_are_searched_as_they_are():
    rng = np.random.default_rng(2)
    rows = stored_rows(grid(rng, 20, 3), sparse=False)
    rows.drop(5)
    new = rng.normal(size=(15, 6)).astype(np.float32)
    rows.replace(new.copy())
    more = rng.normal(size=(9, 6)).astype(np.float32)
    rows.append(more)
    np.testing.assert_array_equal(rows.live, np.concatenate([new, more]))
    assert rows.search(more, 1)[1][:, 0].tolist() == list(range(15, 24))


# ---------------------------------------------------------------------- search


@pytest.mark.exact
@pytest.mark.parametrize("sparse", [False, UNPACKED, True])
@pytest.mark.parametrize("k", [1, 4, 50])
@pytest.mark.parametrize("tiles", [(64, 4096, 0), (3, 7, 0), (64, 4096, 1 << 13)])
def test_search_equals_the_double_loop_ties_by_age(sparse, k, tiles):
    limits = Limits(scanned=tiles[0], packed=tiles[1], little=tiles[2])
    rng = np.random.default_rng(3)
    X, queries = grid(rng, 40, 3), grid(rng, 20, 3)
    distances, found = stored_rows(X, sparse, limits).search(as_rows(queries, sparse), k)
    for i, query in enumerate(queries):
        best, positions = slow.nearest(X, query, k)
        rest = k - len(positions)
        assert found[i].tolist() == positions + [-1] * rest
        assert distances[i].tolist() == best + [np.inf] * rest


@pytest.mark.parametrize("sparse", [False, UNPACKED, True])
@pytest.mark.parametrize("tiles", [(64, 4096, 0), (3, 7, 0), (64, 4096, 1 << 13)])
def test_each_query_sees_only_its_own_range_of_rows(sparse, tiles):
    limits = Limits(scanned=tiles[0], packed=tiles[1], little=tiles[2])
    rng = np.random.default_rng(4)
    X, queries = grid(rng, 40, 3), grid(rng, 25, 3)
    hi = rng.integers(0, 41, 25)
    lo = np.minimum(rng.integers(0, 41, 25), hi)
    hi[3] = lo[3]  # a query that sees nothing
    _, found = stored_rows(X, sparse, limits).search(as_rows(queries, sparse), 5, lo, hi)
    for i, query in enumerate(queries):
        positions = slow.nearest(X, query, 5, lo[i], hi[i])[1]
        assert found[i].tolist() == positions + [-1] * (5 - len(positions))


@pytest.mark.exact
@pytest.mark.parametrize("sparse", [False, UNPACKED, True])
def test_search_on_reals_equals_the_double_loop(sparse):
    rng = np.random.default_rng(5)
    X, queries = (rng.normal(size=(n, 30)).astype(np.float32) for n in (120, 15))
    distances, found = stored_rows(X, sparse).search(as_rows(queries, sparse), 10)
    for i, query in enumerate(queries):
        best, positions = slow.nearest(X, query, 10)
        assert found[i].tolist() == positions
        np.testing.assert_allclose(distances[i], best, rtol=1e-13)


@pytest.mark.exact
@pytest.mark.parametrize("sparse", [False, UNPACKED, True])
@pytest.mark.parametrize("step", [1.0, 0.125])
def test_search_is_exact_far_from_the_origin(sparse, step):
    # In single precision ‖c‖² − 2 q·c is off by millions here; distances are of order 1.
    rng = np.random.default_rng(6)
    X, queries = ((1e6 + step * rng.integers(-8, 9, (n, 5))).astype(np.float32) for n in (150, 20))
    distances, found = stored_rows(X, sparse).search(as_rows(queries, sparse), 8)
    for i, query in enumerate(queries):
        best, positions = slow.nearest(X, query, 8)
        assert found[i].tolist() == positions
        assert distances[i].tolist() == best


@pytest.mark.exact
@pytest.mark.parametrize("sparse", [False, UNPACKED, True])
def test_search_is_exact_when_one_feature_dwarfs_the_others(sparse):
    rng = np.random.default_rng(7)
    X = np.column_stack([1e7 + rng.integers(0, 3, 200), 1e-3 * rng.normal(size=(200, 3))])
    X = X.astype(np.float32)
    distances, found = stored_rows(X, sparse).search(as_rows(X[:30], sparse), 6)
    for i, query in enumerate(X[:30]):
        best, positions = slow.nearest(X, query, 6)
        assert found[i].tolist() == positions
        assert distances[i].tolist() == best


@pytest.mark.parametrize("sparse", [False, UNPACKED, True])
def test_a_stored_row_finds_itself_at_distance_zero(sparse):
    rng = np.random.default_rng(8)
    X = (10.0 ** rng.uniform(-6, 6, (60, 12)) * (rng.random((60, 12)) < 0.5)).astype(np.float32)
    distances, found = stored_rows(X, sparse).search(as_rows(X, sparse), 1)
    assert not distances.any()
    np.testing.assert_array_equal(X[found[:, 0]], X)


@pytest.mark.exact
def test_sparse_and_dense_search_give_the_same_bits():
    rng = np.random.default_rng(71)
    X = np.where(rng.random((200, 30)) < 0.3, rng.normal(size=(200, 30)), 0)
    answers = [stored_rows(X, s).search(as_rows(X[:50], s), 9) for s in (False, True)]
    for dense_one, sparse_one in zip(*answers, strict=True):
        np.testing.assert_array_equal(sparse_one, dense_one)


@pytest.mark.exact
@pytest.mark.parametrize("sparse", [False, UNPACKED, True])
def test_one_query_is_answered_as_among_many(sparse):
    rng = np.random.default_rng(72)
    X, queries = grid(rng, 300, 5), grid(rng, 40, 5)
    rows = stored_rows(X, sparse)
    together = rows.search(as_rows(queries, sparse), 7)
    for i in range(40):
        alone = rows.search(as_rows(queries[i : i + 1], sparse), 7)
        for one, many in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one[0], many[i])


def test_copies_are_returned_oldest_first():
    X = np.tile(np.array([[1.0, 2.0]], np.float32), (9, 1))
    for sparse in (False, True):
        found = stored_rows(X, sparse).search(as_rows(X[:1], sparse), 4)[1]
        assert found.tolist() == [[0, 1, 2, 3]]


# ---------------------------------------------------------------------- groups


# Groups of 64 rows already, whichever they are.
GROUPED = Limits(grouped=64, in_box=0, in_shadow=0)


def replaced_rows(X, limits=GROUPED):
    """Rows that are searched in groups, if they are enough."""
    rows = DenseRows(X.shape[1], limits=limits)
    rows.replace(np.array(X, np.float32))
    return rows


def assert_finds(rows, X, queries, k, lo=None, hi=None):
    """The nearest rows are those of the double loop, asked for together and one by one."""
    distances, found = rows.search(queries, k, lo, hi)
    for i, query in enumerate(queries):
        part = slice(i, i + 1)
        seen = (0, None) if lo is None else (lo[i], hi[i])
        best, positions = slow.nearest(X, query, k, *seen)
        rest = k - len(positions)
        alone = rows.search(queries[part], k, *(() if lo is None else (lo[part], hi[part])))
        for one, at in ((distances[i], found[i]), (alone[0][0], alone[1][0])):
            assert at.tolist() == positions + [-1] * rest
            assert one.tolist() == best + [np.inf] * rest


@pytest.mark.exact
@pytest.mark.parametrize("k", [1, 7, 100])
@pytest.mark.parametrize("d", [1, 3, 20])
def test_search_in_groups_equals_the_double_loop_ties_by_age(d, k):
    rng = np.random.default_rng(20)
    X, queries = grid(rng, 330, d), grid(rng, 20, d)
    rows = replaced_rows(X[:300])
    assert len(rows.groups.order) == 256
    rows.append(X[300:])
    assert_finds(rows, X, queries, k)
    hi = rng.integers(0, 331, 20)
    assert_finds(rows, X, queries, k, np.minimum(rng.integers(0, 331, 20), hi), hi)


@pytest.mark.exact
@pytest.mark.parametrize("far", [0, 1e6])
@pytest.mark.parametrize("size", [1e-22, 1e-19, 1.0, 1e15])
@pytest.mark.parametrize("d", [4, 40])
def test_search_in_groups_is_exact_far_from_the_origin_and_where_single_precision_ends(
    far, size, d
):
    rng = np.random.default_rng(21)
    shape = 10.0 ** -np.arange(d)  # most directions are not in the shadow
    draw = [far + rng.normal(size=(n, d)) * np.maximum(shape, 1e-4) for n in (500, 12)]
    X, queries = ((size / max(far, 1) * x).astype(np.float32) for x in draw)
    X[::7] *= np.float32(1e-6)  # rows of very different length
    queries[:4] = X[:4]
    assert_finds(replaced_rows(X), X, queries, 6)


@pytest.mark.exact
def test_rows_that_differ_in_no_direction_of_their_shadows_are_told_apart():
    rng = np.random.default_rng(22)
    X = np.zeros((400, 30), np.float32)
    X[:, 0] = 1000 * rng.integers(0, 2, 400)
    X[:, 1:] = 1e-3 * rng.normal(size=(400, 29))
    rows = replaced_rows(X)
    assert rows.groups.axes.shape[1] == 1
    assert_finds(rows, X, X[:12] + np.float32(1e-4), 5)


@pytest.mark.parametrize("spoil", [False, True])
def test_shadows_that_were_longer_than_rows_would_not_do(monkeypatch, spoil):
    rng = np.random.default_rng(23)
    X, queries = (rng.normal(size=(n, 5)).astype(np.float32) for n in (500, 20))
    if spoil:
        axes_of = rows_module.axes_of
        monkeypatch.setattr(rows_module, "axes_of", lambda *given: 1.5 * axes_of(*given))
    found = replaced_rows(X).search(queries, 9)[1].tolist()
    assert (found == [slow.nearest(X, query, 9)[1] for query in queries]) is not spoil


@pytest.mark.exact
def test_a_neighbour_in_the_next_group_is_found_by_the_room_for_errors():
    # Shadows lie at about 2000 and are rounded to 12e-5; neighbours are 6e-5 apart.
    step = np.float32(2.0**-14)
    X = np.concatenate([1000 + step * np.arange(640), np.linspace(-3000, -2990, 640)])
    X = np.random.default_rng(27).permutation(X.astype(np.float32))[:, None]
    queries = (1000 + step * np.arange(100, 540)).astype(np.float32)[:, None]
    assert_finds(replaced_rows(X), X, queries, 2)


def test_a_search_does_not_look_at_groups_that_are_far():
    rng = np.random.default_rng(24)
    X = np.repeat([[0.0, 0], [0, 100], [100, 0], [100, 100]], 64, axis=0)[rng.permutation(256)]
    X = (X + rng.random((256, 2))).astype(np.float32)
    rows = replaced_rows(X)
    groups = rows.groups
    queries = rng.random((15, 2)).astype(np.float32)
    expected = rows.search(queries, 10)
    near = groups.order[:64][:1]
    for g in range(4):  # whoever looked there would find what is not there
        if X[groups.order[64 * g]].max() > 50:
            groups.panels[4 * g : 4 * g + 4, 0] = np.inf
            groups.order[64 * g : 64 * g + 64] = near
    for a, b in zip(rows.search(queries, 10), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(rows.search(queries[:1], 10), expected, strict=True):
        np.testing.assert_array_equal(a[0], b[0])


def test_rows_are_grouped_if_they_vary_in_few_directions():
    n = LIMITS.grouped
    rng = np.random.default_rng(28)
    for scale, there in ((np.ones(30), False), (0.5 ** np.arange(30), True)):
        rows = replaced_rows(rng.normal(size=(n, 30)) * scale, LIMITS)
        assert (rows.groups is not None) is there
        rows.append(rng.normal(size=(n, 30)))
        assert len(rows.groups.order if there else ()) == 2 * there * n
    few = replaced_rows(rng.normal(size=(n - 1, 30)) * 0.5 ** np.arange(30), LIMITS)
    assert few.groups is None


GROUP_OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "drop", "remove", "replace", "snapshot"]),
        st.integers(0, 150),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(operations=GROUP_OPERATIONS, seed=st.integers(0, 2**16))
def test_grouped_rows_are_a_list_and_their_snapshots_never_change(operations, seed):
    rng = np.random.default_rng(seed)
    expected = grid(rng, 150, 3)
    rows, taken = replaced_rows(expected, Limits(grouped=64, in_box=0)), []
    for what, n in operations:
        if what == "append":
            new = grid(rng, n, 3)
            rows.append(new)
            expected = np.concatenate([expected, new])
        elif what == "drop":
            n = min(n, len(expected))
            rows.drop(n)
            expected = expected[n:]
        elif what == "remove" and len(expected):
            rows.remove(n % len(expected))
            expected = np.delete(expected, n % len(expected), axis=0)
        elif what == "replace":
            expected = grid(rng, len(expected), 3, levels=5)
            rows.replace(expected.copy())
        elif what == "snapshot":
            taken.append((rows.snapshot(), expected))
        np.testing.assert_array_equal(rows.live, expected)
        assert_finds(rows, expected, grid(rng, 3, 3), 4)
    for picture, then in taken:
        np.testing.assert_array_equal(picture.live, then)
        assert_finds(picture, then, grid(rng, 3, 3), 4)


def test_rows_in_groups_leave_room_for_little_more_than_themselves_however_many_are_dropped():
    rng = np.random.default_rng(25)
    rows = replaced_rows(grid(rng, 500, 12))
    most = 0
    for _ in range(3000):
        rows.append(grid(rng, 1, 12))
        rows.drop(1)
        most = max(most, rows.nbytes)
    assert most <= 3 * 500 * 4 * (12 + 12 + 2)


# ---------------------------------------------------------------------- the window


def same_answers(one, other, queries, k, shift=0):
    """Both stores give the same votes, labels, distances and, but for a shift, names."""
    assert len(one) == len(other)
    assert one.facts.code_width == other.facts.code_width
    sparse = sp.issparse(one.take(ROWS))
    looks = [(lookup.nearest_rows, as_rows(queries, sparse))]
    if one.facts.code_width is not None:
        looks.append((lookup.nearest_codes, queries))
    for search, look in looks:
        mine, theirs = search(one, look, k), search(other, look, k)
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(lookup.votes(one, mine[1]), lookup.votes(other, mine[1]))
    every = np.arange(len(one))
    assert one.take(IDS, every) == [i + shift if shift else i for i in other.take(IDS, every)]
    np.testing.assert_array_equal(dense(one.take(ROWS)), dense(other.take(ROWS)))
    np.testing.assert_array_equal(one.take(CORRECTED), other.take(CORRECTED))
    for a, b in zip(one.take(LABELS), other.take(LABELS), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.exact
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("cuts", [[], [10], list(range(1, 90)), [3, 50, 51]])
def test_a_windowed_memory_equals_a_fresh_one_with_only_the_windows_rows(
    opened, sparse, unknown, cuts
):
    rng = np.random.default_rng(9)
    n, window = 90, 23
    X, labels, codes = grid(rng, n, 4), draw_labels(rng, n, 11, unknown), grid(rng, n, 4)
    slid = opened(4, sparse=sparse, window=window)
    changes.grow_labels(slid, 11)
    changes.encode(slid, lambda rows: codes[:0])
    for part in np.split(np.arange(n), cuts):
        mine = Labels(labels.Y[part], None if labels.known is None else labels.known[part])
        slid.append(as_rows(X[part], sparse), mine, None, codes[part])
        changes.forget(slid)
    last = slice(n - window, n)
    kept = Labels(labels.Y[last], None if labels.known is None else labels.known[last])
    fresh = filled(opened, X[last], kept, sparse=sparse, codes=codes[last])
    assert len(slid) == window
    assert slid.n_forgotten == n - window
    same_answers(slid, fresh, grid(rng, 30, 4), 6, n - window)


@pytest.mark.parametrize("sparse", [False, True])
def test_no_evicted_example_is_ever_returned_counted_or_voted_for(opened, sparse):
    # Label 0 belongs to exactly the examples that will be gone; the query is a copy of them.
    gone, kept = np.zeros((30, 3), np.float32), np.full((20, 3), 7, np.float32)
    labels = Labels(np.repeat([[1, 0], [0, 1]], [30, 20], axis=0).astype(np.uint8), None)
    made = filled(opened, np.concatenate([gone, kept]), labels, sparse=sparse, window=20)
    _, found = lookup.nearest_rows(made, as_rows(gone[:1], sparse), 25)
    assert sorted(found[0]) == [-1] * 5 + list(range(20))
    votes = lookup.votes(made, found)[0]
    assert votes[0] < 1e-6
    assert votes[1] > 1 - 1e-6
    assert min(made.take(IDS, np.arange(20))) == 30
    np.testing.assert_array_equal(made.take(LABELS).Y[:, 0], 0)
    for part in made.dump()["rows"].values():
        assert len(part) <= 20 * 3 + 1  # nothing of the 30 × 3 old entries is kept on disk


def test_items_of_a_block_see_what_their_window_held_when_they_came(opened):
    made = opened(2, sparse=False, window=5)
    assert lookup.first_seen(made, np.arange(3, 12)).tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 6]
    assert not lookup.first_seen(opened(2, sparse=False), np.arange(4)).any()


# ---------------------------------------------------------------------- size


def raw_bytes(n, p, d, q):
    return n * (4 * p + 8 * d + -(-q // 8))  # codes are held twice


@pytest.mark.parametrize("n", [1000, 1777, 4000])
@pytest.mark.parametrize("batch", [1, 37, 1000])
def test_the_memory_holds_little_more_than_the_raw_numbers(opened, n, batch):
    rng = np.random.default_rng(10)
    p, d, q = 40, 12, 12
    X, codes = rng.normal(size=(n, p)).astype(np.float32), np.zeros((n, d), np.float32)
    made = opened(p, sparse=False)
    changes.grow_labels(made, q)
    changes.encode(made, lambda rows: codes[:0])
    labels = draw_labels(rng, n, q)
    for first in range(0, n, batch):
        part = slice(first, min(first + batch, n))
        made.append(X[part], Labels(labels.Y[part], None), None, codes[part])
    assert raw_bytes(n, p, d, q) <= lookup.n_bytes(made) <= 1.25 * raw_bytes(n, p, d, q)


def test_of_many_codes_little_more_than_a_shadow_is_held_twice(opened):
    rng = np.random.default_rng(26)
    n, p, d, q = 9000, 10, 60, 12
    made = opened(p, sparse=False)
    changes.grow_labels(made, q)
    X = rng.normal(size=(n, p)).astype(np.float32)
    made.append(X, draw_labels(rng, n, q))
    mix = (0.5 ** np.arange(p)[:, None] * rng.normal(size=(p, d))).astype(np.float32)
    changes.encode(made, lambda rows: np.asarray(rows @ mix, np.float32))
    shadow = 10 + 2  # at most as many directions as there are, a square, and which row it is
    assert lookup.n_bytes(made) <= 1.15 * n * (4 * p + 4 * d + 4 * shadow + -(-q // 8))


@pytest.mark.parametrize("batch", [1, 100])
def test_a_windowed_memory_holds_little_more_than_the_window(opened, batch):
    rng = np.random.default_rng(11)
    n, window, p, d, q = 5000, 1000, 40, 12, 12
    made = opened(p, sparse=False, window=window)
    changes.grow_labels(made, q)
    changes.encode(made, lambda rows: np.zeros((0, d), np.float32))
    block = rng.normal(size=(batch, p)).astype(np.float32)
    labels = draw_labels(rng, batch, q)
    for _ in range(0, n, batch):
        made.append(block, labels, None, np.zeros((batch, d), np.float32))
        changes.forget(made)
        assert lookup.n_bytes(made) <= 1.25 * raw_bytes(window + batch, p, d, q)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("pictures", [0, 50])
@pytest.mark.parametrize("named", [False, True])
def test_a_window_has_room_for_little_more_than_itself_however_long_the_stream(
    opened, sparse, pictures, named
):
    rng = np.random.default_rng(18)
    window, p, d, q = 200, 40, 12, 12
    made = opened(p, sparse=sparse, window=window)
    changes.grow_labels(made, q)
    changes.encode(made, lambda rows: np.zeros((0, d), np.float32))
    rows, labels = as_rows(grid(rng, 64, p), sparse), draw_labels(rng, 64, q, unknown=True)
    code = np.zeros((1, d), np.float32)
    most, at_first = 0, 0
    for i in range(5000):
        j = i % 64
        one = Labels(labels.Y[j : j + 1], labels.known[j : j + 1])
        made.append(rows[j : j + 1], one, [f"item {i}"] if named else None, code)
        changes.forget(made)
        if pictures and i % pictures == 0:
            made.snapshot()
        if i % 997 == 0 and i > window:
            made.relabel(17, one)
            made.remove(100)
        most = max(most, lookup.n_bytes(made))
        if i == 2 * window:
            at_first = most
    if sparse:
        entries = rows.nnz / 64
        raw = window * (8 + 8 * entries + 8 + 4 * d + 4 + 2 * 2)
    else:
        raw = window * (4 * p + 4 + 4 * d + 4 + 2 * 2)
    raw += window * (8 * named + 1 + 8 + 8)  # names, marks, numbers
    assert most <= 2 * raw
    assert most <= 1.5 * at_first


# ---------------------------------------------------------------------- labels, votes, ids


@pytest.mark.parametrize("unknown", [False, True])
def test_votes_equal_the_naive_votes(opened, unknown):
    rng = np.random.default_rng(12)
    X, labels = grid(rng, 50, 4), draw_labels(rng, 50, 10, unknown)
    made = filled(opened, X, labels)
    found = lookup.nearest_rows(made, grid(rng, 20, 4), 7)[1]
    for positions, votes in zip(found, lookup.votes(made, found), strict=True):
        expected = slow.votes(positions, labels.Y, labels.known)
        np.testing.assert_allclose(votes, expected, atol=1e-6)


def test_an_unknown_entry_counts_neither_for_nor_against(opened):
    Y = np.array([[1, 1], [0, 0], [0, 0]], np.uint8)
    known = np.array([[1, 1], [1, 0], [1, 0]], bool)
    made = filled(opened, np.zeros((3, 1), np.float32), Labels(Y, known))
    np.testing.assert_allclose(lookup.votes(made, np.array([[0, 1, 2]])), [[1 / 3, 1]], atol=1e-6)


def test_labels_come_back_as_they_went_in(opened):
    rng = np.random.default_rng(13)
    for q in (1, 8, 13):
        for unknown in (False, True):
            labels = draw_labels(rng, 30, q, unknown)
            made = filled(opened, np.zeros((30, 1), np.float32), labels)
            for back, there in zip(made.take(LABELS), labels, strict=True):
                np.testing.assert_array_equal(back, there)
            some = np.array([4, 0, 29])
            np.testing.assert_array_equal(made.take(LABELS, some).Y, labels.Y[some])


def test_the_first_unknown_entry_leaves_earlier_examples_known(opened):
    first, second = Labels(np.ones((3, 2), np.uint8), None), np.zeros((2, 2), np.uint8)
    made = filled(opened, np.zeros((3, 1), np.float32), first)
    made.append(np.zeros((2, 1), np.float32), Labels(second, np.array([[1, 0], [0, 1]], bool)))
    made.append(np.zeros((1, 1), np.float32), Labels(second[:1], None))
    assert made.take(LABELS).known.tolist() == [[1, 1]] * 3 + [[1, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize(("old", "new"), [(3, 5), (7, 8), (8, 9), (5, 20)])
def test_of_a_new_label_stored_examples_have_none_unless_nothing_is_known_of_them(
    opened, old, new, unknown
):
    rng = np.random.default_rng(14)
    X, before = grid(rng, 40, 3), draw_labels(rng, 40, old, unknown)
    made = filled(opened, X, before)
    found = lookup.nearest_rows(made, X[:9], 5)[1]
    votes = lookup.votes(made, found)
    changes.grow_labels(made, new)
    after = made.take(LABELS)
    np.testing.assert_array_equal(after.Y, np.pad(before.Y, ((0, 0), (0, new - old))))
    if unknown:
        something = np.repeat(before.known.any(axis=1)[:, None], new - old, axis=1)
        np.testing.assert_array_equal(after.known, np.hstack([before.known, something]))
    # What was said about the old labels is said again, bit for bit.
    np.testing.assert_array_equal(lookup.votes(made, found)[:, :old], votes)
    assert (lookup.votes(made, found)[:, old:] < 1e-6).all()
    made.append(X[:1], Labels(np.ones((1, new), np.uint8), None))
    assert made.take(LABELS, slice(-1, None)).Y.tolist() == [[1] * new]


def test_ids_are_stream_numbers_until_names_are_given(opened):
    X, labels = np.zeros((4, 1), np.float32), Labels(np.zeros((4, 1), np.uint8), None)
    made = filled(opened, X, labels, window=7)
    assert made.take(IDS, np.arange(4)) == [0, 1, 2, 3]
    made.append(X[:2], Labels(labels.Y[:2], None), ["a", ("b", 2)])
    made.append(X[:2], Labels(labels.Y[:2], None))
    changes.forget(made)
    assert made.n_forgotten == 1
    assert made.take(IDS, np.arange(7)) == [1, 2, 3, "a", ("b", 2), 6, 7]


# ---------------------------------------------------------------------- one by one: a list


class ListStore:
    """The same as a list of examples, by the slowest and shortest way."""

    def __init__(self, window):
        self.items, self.window, self.seen, self.q = [], window, 0, 0

    def grow(self, q):
        for item in self.items:
            sure = bool(item["known"].any()) or self.q == 0
            item["y"] = np.pad(item["y"], (0, q - self.q))
            item["known"] = np.pad(item["known"], (0, q - self.q), constant_values=sure)
        self.q = q

    def append(self, rows, labels, ids, codes):
        known = np.ones(labels.Y.shape, bool) if labels.known is None else labels.known
        for i, row in enumerate(rows):
            self.items.append(
                {
                    "row": row, "code": codes[i], "y": labels.Y[i], "known": known[i],
                    "id": self.seen if ids is None else ids[i], "number": self.seen, "mark": False,
                }
            )  # fmt: skip
            self.seen += 1

    def forget(self):
        if self.window is not None:
            self.items = self.items[-self.window :]

    def remove(self, position):
        del self.items[position]

    def relabel(self, position, labels):
        known = np.ones(labels.Y.shape, bool) if labels.known is None else labels.known
        self.items[position] |= {"y": labels.Y[0], "known": known[0], "mark": True}

    def map_labels(self, columns):
        for item in self.items:
            y, known = item["y"], item["known"]
            parts = [(y[c].any(), known[c].all()) for c in columns]
            item["y"] = np.array([has for has, _ in parts], np.uint8).reshape(len(columns))
            item["known"] = np.array([has or all_known for has, all_known in parts], bool)
        self.q = len(columns)

    def encode(self, encode):
        for item in self.items:
            item["code"] = encode(item["row"][None])[0]

    def column(self, name):
        return [item[name] for item in self.items]


def assert_equals_the_list(made, naive, sparse):
    n = len(naive.items)
    every = np.arange(n)
    assert len(made) == n
    assert made.take(IDS, every) == naive.column("id")
    assert made.take(NUMBERS, every).tolist() == naive.column("number")
    assert made.take(CORRECTED).tolist() == naive.column("mark")
    assert made.facts.n_labels == naive.q
    Y, known = made.take(LABELS)
    assert Y.tolist() == [y.tolist() for y in naive.column("y")]
    sure = [k.tolist() for k in naive.column("known")]
    assert (np.ones(Y.shape, bool) if known is None else known).tolist() == sure
    assert dense(made.take(ROWS)).tolist() == [row.tolist() for row in naive.column("row")]
    for name in {*naive.column("id"), "nobody"}:
        places = [i for i, item in enumerate(naive.items) if item["id"] == name]
        assert lookup.position_of(made, name) == (places[-1] if places else None)
    if n:
        query = naive.items[n // 2]
        for search, what in ((lookup.nearest_rows, "row"), (lookup.nearest_codes, "code")):
            stored = np.array(naive.column(what))
            look = query[what][None]
            found = search(made, as_rows(look, sparse and what == "row"), 3)[1][0].tolist()
            positions = slow.nearest(stored, query[what], 3)[1]
            assert found == positions + [-1] * (3 - len(positions))
    leaves = list(made.examples().leaves())
    assert sum(part.stop - part.start for _, part in leaves) == n


OPERATIONS = st.tuples(
    st.sampled_from(
        ["append", "names", "forget", "remove", "relabel", "grow", "map", "encode", "snapshot"]
    ),
    st.integers(0, 2**16),
)


def change_both(what, seed, stores, sparse, unknown):
    """Do the same to a store and to the list; return whether it was done."""
    made, naive = stores
    rng = np.random.default_rng(seed)
    n = len(naive.items)
    if what in ("append", "names"):
        m = int(rng.integers(0, 6))
        X, codes = grid(rng, m, 3), grid(rng, m, 2)
        labels = draw_labels(rng, m, naive.q, unknown and bool(rng.random() < 0.5))
        ids = [f"n{rng.integers(9)}" for _ in range(m)] if what == "names" else None
        made.append(as_rows(X, sparse), labels, ids, codes)
        naive.append(X, labels, ids, codes)
        changes.forget(made)
        naive.forget()
    elif what == "forget":
        changes.forget(made)
        naive.forget()
    elif what in ("remove", "relabel") and n:
        position = int(rng.integers(n))
        labels = draw_labels(rng, 1, naive.q, unknown)
        for one in stores:
            one.remove(position) if what == "remove" else one.relabel(position, labels)
    elif what == "grow":
        q = naive.q + int(rng.integers(0, 5))
        changes.grow_labels(made, q)
        naive.grow(q)
    elif what == "map" and naive.q:
        order = rng.permutation(naive.q)
        columns = [sorted(part.tolist()) for part in np.array_split(order, rng.integers(1, 4))]
        columns = [c for c in columns if c][: rng.integers(0, 4) + 1]
        changes.map_labels(made, columns)
        naive.map_labels(columns)
    elif what == "encode":
        turn = rng.integers(0, 3, (3, 2)).astype(np.float32)

        def encoder(rows):
            return np.asarray(dense(rows) @ turn, np.float32)

        changes.encode(made, encoder)
        naive.encode(encoder)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("window", [None, 7])
@settings(max_examples=40, deadline=None)
@given(operations=st.lists(OPERATIONS, max_size=20))
def test_a_store_equals_the_naive_list_and_its_snapshots_never_change(
    opened, sparse, unknown, window, operations
):
    made, naive = opened(3, sparse=sparse, window=window), ListStore(window)
    changes.grow_labels(made, 3)
    changes.encode(made, lambda rows: np.zeros((rows.shape[0], 2), np.float32))
    naive.grow(3)
    taken = []
    for what, seed in operations:
        if what == "snapshot":
            taken.append((made.snapshot(), copy.deepcopy(naive)))
        change_both(what, seed, (made, naive), sparse, unknown)
        assert_equals_the_list(made, naive, sparse)
    for picture, then in taken:
        assert_equals_the_list(picture, then, sparse)


@pytest.mark.parametrize("sparse", [False, True])
def test_of_items_of_one_name_an_older_one_comes_to_light_when_the_newer_goes(opened, sparse):
    made = opened(2, sparse=sparse)
    changes.grow_labels(made, 1)
    labels = Labels(np.zeros((3, 1), np.uint8), None)
    made.append(as_rows(np.eye(3, 2), sparse), labels, ["a", "b", "a"])
    assert lookup.position_of(made, "a") == 2
    made.remove(2)
    assert lookup.position_of(made, "a") == 0


def test_a_snapshot_is_taken_in_constant_time(opened):
    """It shares the arrays: nothing is copied until something would move or be rewritten."""
    made = filled(
        opened, np.ones((5000, 4), np.float32), draw_labels(np.random.default_rng(0), 5000, 9)
    )
    picture = made.snapshot()
    assert np.shares_memory(picture.take(ROWS), made.take(ROWS))
    made.append(np.ones((9, 4), np.float32), draw_labels(np.random.default_rng(1), 9, 9))
    assert np.shares_memory(picture.take(ROWS), made.take(ROWS))
    assert len(picture) == 5000


# ---------------------------------------------------------------------- dump and load


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("holes", [False, True])
def test_what_is_dumped_and_loaded_answers_and_goes_on_the_same(
    opened, sparse, unknown, named, holes
):
    rng = np.random.default_rng(15)
    X, labels = grid(rng, 40, 3), draw_labels(rng, 40, 10, unknown)
    ids = [f"item {i}" for i in range(40)] if named else None
    made = filled(opened, X, labels, sparse=sparse, window=30, ids=ids, codes=X)
    if holes:
        made.remove(4)
        made.relabel(11, draw_labels(rng, 1, 10, unknown))
    other = opened.load(made.dump(), sparse=sparse, window=30)
    same_answers(made, other, X[:9], 6)
    more, new = grid(rng, 12, 3), draw_labels(rng, 12, 10, unknown)
    for part in (made, other):
        part.append(as_rows(more, sparse), new, None, more)
        changes.forget(part)
        part.relabel(3, Labels(np.ones((1, 10), np.uint8), None))
        part.remove(5)
    same_answers(made, other, X[:9], 6)
    every = np.arange(29)
    np.testing.assert_array_equal(made.take(NUMBERS, every), other.take(NUMBERS, every))
    assert made.n_forgotten == other.n_forgotten == (21 if holes else 22)
    for name in made.take(IDS, every):
        assert lookup.position_of(made, name) == lookup.position_of(other, name)


def test_a_dump_is_a_copy(opened):
    rng = np.random.default_rng(16)
    made = filled(opened, grid(rng, 5, 3), draw_labels(rng, 5, 4), codes=grid(rng, 5, 3))
    state = made.dump()
    state["rows"]["dense"][:] = 9
    state["codes"][:] = 9
    state["labels"][:] = 255
    assert made.take(ROWS).max() < 9
    assert not lookup.nearest_codes(made, np.zeros((1, 3), np.float32), 5)[0].max() >= 3 * 81
    assert not made.take(LABELS).Y.all()


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
        (False, change(ids=["a", "b"]), "ids must be a list of 5 names"),
        (False, change(n_forgotten=-1), "n_forgotten must be counts"),
        (False, change(n_forgotten=1.5), "n_forgotten must be counts"),
        (False, change(n_seen=4), "at most what was seen and fits, got 5 rows"),
        (False, change(n_seen=6), "must hold 6 rows, got 5"),
        (False, change(labels=np.full((5, 1), 8, np.uint8)), "labels must have 4 bits"),
        (False, change(known=np.full((5, 1), 0, np.uint8)), "0 where they are not known"),
        (False, change(numbers=np.array([0, 1, 2, 2, 4])), "numbers must rise within 0 to 4"),
        (False, change(numbers=np.array([0, 1, 2, 3, 5])), "numbers must rise within 0 to 4"),
        (False, change(corrected=np.array([1, 5])), "corrected must rise within 0 to 4"),
        (False, change(corrected=np.array([2, 1])), "corrected must rise within 0 to 4"),
        (True, change_rows(indptr=np.array([0, 1, 2, 2, 2], np.int64)), "indptr"),
        (True, change_rows(indptr=np.array([0, 2, 1, 2, 2, 3], np.int64)), "indptr"),
        (True, change_rows(data=np.full(3, np.inf, np.float32)), "finite"),
    ],
)
def test_a_state_of_wrong_shape_is_refused(opened, sparse, spoil, message):
    X = np.array([[1, 0, 0], [0, 2, 0], [0, 0, 0], [0, 0, 3], [0, 0, 0]], np.float32)
    labels = Labels(np.eye(5, 4, dtype=np.uint8), None)
    made = filled(opened, X, labels, sparse=sparse, codes=X)
    state = made.dump()
    spoil(state)
    with pytest.raises(ValueError, match=message):
        opened.load(state, sparse=sparse, window=None)


def test_more_rows_than_the_window_are_refused(opened):
    rng = np.random.default_rng(17)
    made = filled(opened, grid(rng, 9, 3), draw_labels(rng, 9, 4))
    with pytest.raises(ValueError, match="at most what was seen and fits, got 9 rows"):
        opened.load(made.dump(), sparse=False, window=8)


@pytest.mark.parametrize("indices", [[0, 1, 3], [0, 1, -1]])
def test_sparse_indices_outside_the_rows_are_refused(opened, indices):
    X = np.diag([1, 2, 3]).astype(np.float32)
    made = filled(opened, X, Labels(np.zeros((3, 1), np.uint8), None), sparse=True)
    state = made.dump()
    state["rows"]["indices"] = np.array(indices, np.int32)
    with pytest.raises(ValueError, match="indices must rise within 0 to 2"):
        opened.load(state, sparse=True, window=None)
