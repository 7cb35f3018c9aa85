"""The compiled loops against plain loops: equal, and the same whatever stands beside a row."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import reference as slow
from tagstream.core import compilation, search
from tagstream.core import products as kernels


def csr(X):
    rows = sp.csr_matrix(np.asarray(X, np.float32))
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data


def thinned(rng, n, p, kept=0.3):
    return np.where(rng.random((n, p)) < kept, rng.normal(size=(n, p)), 0).astype(np.float32)


def product_in_order(x, W, c):
    """One row times W, the features added one after another."""
    out = c.copy()
    for k in range(len(x)):
        out = out + np.float64(x[k]) * W[k].astype(np.float64)
    return out


@pytest.mark.parametrize("n", [11, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_projected_row_is_the_sum_in_the_order_of_the_features(dtype, n):
    rng = np.random.default_rng(1)
    X, W, c = rng.normal(size=(n, 9)).astype(dtype), rng.normal(size=(9, 5)), rng.normal(size=5)
    X[2, 3] = X[7] = 0
    out = np.empty((n, 5))
    kernels.project_dense(X, W, c, out)
    for i in range(n):
        np.testing.assert_array_equal(out[i], product_in_order(X[i], W, c))
    np.testing.assert_allclose(out, X.astype(float) @ W + c, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [1, 7, 8, 28, 32, 35, 70])
def test_sparse_and_dense_products_are_the_same_bits(m, dtype):
    rng = np.random.default_rng(2)
    X, c = thinned(rng, 13, 20), rng.normal(size=m)
    X[3] = 0
    W = rng.normal(size=(20, m)).astype(dtype)
    dense, sparse = np.empty((13, m)), np.empty((13, m))
    kernels.project_dense(X, W.astype(np.float64), c, dense)
    kernels.project_sparse(*csr(X), W, c, sparse)
    np.testing.assert_array_equal(sparse, dense)


@pytest.mark.parametrize("width", [3, 16, 28, 33, 70])
def test_sparse_rows_times_lines_are_summed_one_entry_after_the_other(width):
    rng = np.random.default_rng(3)
    X = thinned(rng, 9, 12)
    X[4] = X[8] = X[:, 5] = 0
    W, out = kernels.line_zeros(12, width), kernels.line_zeros(9, width)
    spread = kernels.line_zeros(12, width)
    assert W.shape[1] % 16 == 0 <= W.shape[1] - width < 16
    W[:], out[:], spread[:] = (rng.normal(size=A.shape) for A in (W, out, spread))
    rows, columns = out.copy(), spread.copy()
    for i, k in np.argwhere(X):
        rows[i] += X[i, k] * W[k]
    kernels.add_products(*csr(X), W, out)
    np.testing.assert_array_equal(out, rows)
    for i, k in np.argwhere(X):
        columns[k] += X[i, k] * rows[i]
    kernels.add_transposed_products(*csr(X), out, spread)
    np.testing.assert_array_equal(spread, columns)


def test_inner_products_of_sparse_rows_are_summed_one_entry_after_the_other():
    X = thinned(np.random.default_rng(4), 10, 30)
    X[3] = X[:, 7] = 0
    indptr, indices, data = csr(X)
    starts = np.concatenate([[0], np.cumsum((X != 0).sum(axis=0))])
    out, expected = np.zeros((10, 10)), np.zeros((10, 10))
    kernels.add_inner_products(indptr, indices, data, starts, out)
    for k in range(30):
        expected += np.outer(X[:, k].astype(np.float64), X[:, k].astype(np.float64))
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("n", [0, 1, 5, 100, 10_000])
def test_each_row_of_lines_begins_with_a_line(n):
    rows = kernels.line_zeros(n, 20)
    assert rows.shape == (n, 32)
    assert rows.ctypes.data % 64 == 0 or not n
    assert not rows.any()


def test_rows_are_split_into_filled_columns_and_the_others():
    X = thinned(np.random.default_rng(2), 13, 20)
    place = np.full(20, -1, np.int32)
    place[[3, 4, 5, 11]], place[[0, 7, 19]] = [0, 1, 2, 3], [4, 5, 6]
    expected, others = slow.split_columns(X, place, 4, 7)
    dense, indptr = np.zeros((13, 4), np.float32), np.empty(14, np.int64)
    indices, data = np.empty(X.size, np.int32), np.empty(X.size, np.float32)
    kernels.split_columns(*csr(X), place, dense, indptr, indices, data)
    kept = sp.csr_matrix((data[: indptr[-1]], indices[: indptr[-1]], indptr), (13, 3))
    np.testing.assert_array_equal(dense, expected)
    np.testing.assert_array_equal(kept.toarray(), others)


@pytest.mark.exact
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [1, 7, 8, 21, 33])
def test_a_projected_row_does_not_depend_on_the_rows_beside_it(m, dtype):
    rng = np.random.default_rng(3)
    X, W = rng.normal(size=(57, 40)).astype(np.float32), rng.normal(size=(40, m)).astype(dtype)
    c = rng.normal(size=m).astype(dtype)
    whole = np.empty((57, m), dtype)
    kernels.project_dense(X, W, c, whole)
    np.testing.assert_allclose(whole, X @ W + c, rtol=1e-3, atol=1e-4)
    for cuts in ([1], [4, 5], [2, 3, 21, 40], list(range(1, 57))):
        parts = []
        for part in np.split(X, cuts):
            out = np.empty((len(part), m), dtype)
            kernels.project_dense(np.ascontiguousarray(part), W, c, out)
            parts.append(out)
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_pair_distance_keeps_the_digits_that_a_difference_of_squares_loses():
    a = np.array([1e6, 1e6 + 1, 3.0], np.float32)
    b = np.array([1e6 + 2, 1e6, 3.5], np.float32)
    assert search.pair_distance(a, b) == 4 + 1 + 0.25
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(2, 50)).astype(np.float32)
    assert search.pair_distance(a, b) == slow.squared_distance(a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_labels_are_added_and_spread_one_after_another(dtype):
    rng = np.random.default_rng(21)
    Y = (rng.random((12, 11)) < np.linspace(0, 1, 12)[:, None]).astype(np.uint8)  # none to all
    B, c, A = rng.normal(size=(9, 5)).astype(dtype), rng.normal(size=5), rng.normal(size=(12, 5))
    out = np.empty((12, 5))
    kernels.add_rows(Y, B, c, out)
    for i in range(12):
        np.testing.assert_array_equal(out[i], product_in_order(Y[i, :9], B, c))
    spread = np.zeros((11, 5))
    kernels.spread_rows(Y, A, spread)
    for j in range(11):
        np.testing.assert_array_equal(spread[j], product_in_order(Y[:, j], A, np.zeros(5)))


def test_products_of_sparse_columns_are_summed_in_the_order_of_the_rows():
    X = thinned(np.random.default_rng(22), 14, 9).astype(np.float64)
    rows = sp.csr_matrix(X)
    backwards = X[:, ::-1], rows.indptr, 8 - rows.indices, rows.data  # entries in any order will do
    for right, indptr, indices, data in ((X, rows.indptr, rows.indices, rows.data), backwards):
        out = np.zeros((9, 9))
        kernels.multiply_columns(indptr.astype(np.int64), indices, data, out)
        for j in range(9):
            np.testing.assert_array_equal(out[j], product_in_order(right[:, j], right, np.zeros(9)))


def test_row_squares_are_summed_in_order():
    X = thinned(np.random.default_rng(5), 9, 30)
    X[4] = 0
    indptr, _, data = csr(X)
    out = np.empty(9)
    search.row_squares(indptr, data, out)
    np.testing.assert_array_equal(out, [slow.squared_distance(x, 0 * x) for x in X])


def packed(codes, skip=0):
    n, d = codes.shape
    panels = np.zeros((-(-(n + skip) // 16), d + 1, 16), np.float32)
    panels[:, 0] = -np.inf
    search.pack(codes, panels, skip)
    return panels


def scanned(codes, queries, k, *, cuts=(0,), skip=0, lo=None, hi=None):
    """The k nearest by `scan`, given its rows in parts, or if there is one query by `scan_one`."""
    m, n = len(queries), len(codes)
    best, rows = np.full((m, k), np.inf), np.full((m, k), -1, np.int64)
    lo = np.zeros(m, np.int64) if lo is None else lo
    hi = np.full(m, n, np.int64) if hi is None else hi
    for start, stop in zip(cuts, [*cuts[1:], n], strict=True):
        panels = packed(codes[start:stop], skip)
        search.scan(codes, panels, skip - start, queries, lo, hi, best, rows)
    return best, rows


@pytest.mark.parametrize("skip", [0, 5])
def test_panels_hold_the_rows_side_by_side(skip):
    codes = np.random.default_rng(5).normal(size=(40, 3)).astype(np.float32)
    panels = packed(codes, skip)
    lines = panels.transpose(0, 2, 1).reshape(-1, 4)
    np.testing.assert_array_equal(lines[skip : skip + 40, 1:], codes)
    assert np.isneginf(lines[:skip, 0]).all()
    assert np.isneginf(lines[skip + 40 :, 0]).all()
    squares = (codes.astype(float) ** 2).sum(axis=1)
    gap = lines[skip : skip + 40, 0] + squares / 2
    assert (gap >= 0).all()
    assert (gap < 1e-5 * squares).all()


@pytest.mark.parametrize("cuts", [(0,), (0, 1, 17), (0, 8, 16, 24)])
@pytest.mark.parametrize("skip", [0, 3])
def test_scan_finds_the_nearest_rows_ties_by_age(cuts, skip):
    rng = np.random.default_rng(6)
    codes = rng.integers(0, 3, (30, 3)).astype(np.float32)  # many ties
    queries = rng.integers(0, 3, (20, 3)).astype(np.float32)
    best, rows = scanned(codes, queries, 7, cuts=cuts, skip=skip)
    for i, query in enumerate(queries):
        distances, positions = slow.nearest(codes, query, 7)
        assert best[i].tolist() == distances
        assert rows[i].tolist() == positions


def test_scan_respects_each_querys_own_bounds():
    rng = np.random.default_rng(7)
    codes = rng.integers(0, 4, (25, 2)).astype(np.float32)
    queries = rng.integers(0, 4, (25, 2)).astype(np.float32)
    hi = np.arange(25)
    lo = np.maximum(hi - 6, 0)
    best, rows = scanned(codes, queries, 4, lo=lo, hi=hi, cuts=(0, 10))
    for i, query in enumerate(queries):
        distances, positions = slow.nearest(codes, query, 4, lo[i], hi[i])
        found = len(positions)
        assert rows[i].tolist() == positions + [-1] * (4 - found)
        assert best[i].tolist() == distances + [np.inf] * (4 - found)


@pytest.mark.parametrize("skip", [0, 3])
def test_a_first_look_sees_only_what_all_queries_of_a_tile_see(skip):
    rng = np.random.default_rng(11)
    codes = rng.normal(size=(600, 4)).astype(np.float32)
    hi = 300 + np.arange(60)
    lo = hi - 250
    queries = codes[hi]
    codes[500:] = queries[0]  # nobody sees these, nor itself
    codes[:50] = queries[0]
    best, rows = scanned(codes, queries, 5, skip=skip, lo=lo, hi=hi)
    for i, query in enumerate(queries):
        distances, positions = slow.nearest(codes, query, 5, lo[i], hi[i])
        assert rows[i].tolist() == positions
        assert best[i].tolist() == distances


@compilation.compiled
def ask_at_least(values, size, k):
    return search._at_least(values, size, k)


@pytest.mark.parametrize("k", [1, 5, 29, 40])
def test_a_number_that_k_values_do_not_exceed_is_hardly_more_than_the_kth(k):
    rng = np.random.default_rng(12)
    for values in (rng.normal(size=40), rng.integers(0, 3, 40), np.full(40, 7), 1e30 * np.ones(40)):
        values = values.astype(np.float32)
        bound, kth = ask_at_least(values, 40, k), np.sort(values)[k - 1]
        assert kth <= bound <= kth + 2.0**-11 * np.ptp(values)


@pytest.mark.parametrize("n", [64, 192, 256])
def test_groups_are_halves_of_halves_in_the_widest_direction(n):
    rng = np.random.default_rng(13)
    points = (rng.normal(size=(n, 3)) * [1, 5, 2]).astype(np.float32)
    order = np.empty(n, np.int32)
    search.group_rows(points, order)
    groups = {frozenset(group) for group in order.reshape(-1, 64).tolist()}
    assert groups == slow.halved(range(n), points, 64)


def test_rows_that_are_equal_are_grouped_all_the_same():
    order = np.empty(4096, np.int32)
    search.group_rows(np.ones((4096, 2), np.float32), order)
    assert sorted(order) == list(range(4096))


@pytest.mark.parametrize("far", [0, 1e6])
def test_shadows_are_not_farther_apart_than_rows_but_for_their_slack(far):
    rng = np.random.default_rng(14)
    n, d, r = 40, 30, 6
    rows = (far + rng.normal(size=(n, d))).astype(np.float32)
    turn = np.linalg.qr(rng.normal(size=(d, r)))[0]
    axes = np.vstack([turn, -rows.mean(axis=0) @ turn])
    shadows, slack = np.empty((n, r), np.float32), np.empty(n, np.float32)
    search.cast_shadows(rows, axes, shadows, slack)
    np.testing.assert_allclose(shadows, rows @ axes[:d] + axes[d], atol=1e-8 * (far + 1) + 1e-6)
    wide = rows.astype(float)
    expected = 2.0**-20 * ((wide**2).sum(axis=1) + (axes[d] ** 2).sum())
    np.testing.assert_allclose(slack, expected, rtol=1e-6)
    room = (shadows.astype(float) ** 2).sum(axis=1) + slack
    for i in range(n):
        for j in range(i):
            apart = slow.squared_distance(shadows[i], shadows[j])
            error = (r + 8) * 2.0**-22 * (room[i] + room[j])
            assert apart <= slow.squared_distance(rows[i], rows[j]) + error


@pytest.mark.parametrize("n", [1, 16, 60, 200])
@pytest.mark.parametrize("far", [0, 1000])
def test_all_ways_to_scan_find_the_same(n, far):
    rng = np.random.default_rng(8)
    codes, queries = ((far + rng.normal(size=(m, 9))).astype(np.float32) for m in (n, 13))
    panels = packed(codes, 7)
    for lo, hi in ((0, n), (n // 3, n - n // 4)):
        together = scanned(codes, queries, 5, lo=np.full(13, lo), hi=np.full(13, hi))
        for i, query in enumerate(queries):
            alone, plain = ((np.full(5, np.inf), np.full(5, -1, np.int64)) for _ in range(2))
            search.scan_one(codes, panels, 7, query, lo, hi, *alone)
            search.scan_rows(codes, query, lo, hi, *plain)
            expected = slow.nearest(codes, query, 5, lo, hi)
            rest = 5 - len(expected[1])
            for distances, rows in (alone, plain, (together[0][i], together[1][i])):
                assert rows.tolist() == expected[1] + [-1] * rest
                assert distances.tolist() == expected[0] + [np.inf] * rest


def test_scan_is_exact_far_from_the_origin_by_the_room_it_leaves_for_errors():
    rng = np.random.default_rng(9)
    codes, queries = ((1000 + rng.normal(size=(n, 9))).astype(np.float32) for n in (200, 13))
    expected = [slow.nearest(codes, query, 5)[1] for query in queries]
    panels, careless = packed(codes), packed(codes)
    careless[:, 0] *= np.float32(1 + 8 * (9 + 8) * 2.0**-22)  # more than rows and limits leave
    found = []
    for some in (panels, careless):
        best, rows = np.full((13, 5), np.inf), np.full((13, 5), -1, np.int64)
        every = np.zeros(13, int), np.full(13, 200)
        search.scan(codes, some, 0, queries, *every, best, rows)
        found.append(rows.tolist())
    assert found[0] == expected
    assert found[1] != expected  # that room is what makes it exact


@pytest.mark.parametrize("size", [1e-22, 1e-19, 1.0, 1e15])
def test_scan_is_exact_where_single_precision_ends(size):
    rng = np.random.default_rng(8)
    codes, queries = ((size * rng.normal(size=(n, 4))).astype(np.float32) for n in (300, 8))
    codes[::7] *= np.float32(1e-6)  # rows of very different length
    rows = scanned(codes, queries, 5)[1]
    assert rows.tolist() == [slow.nearest(codes, query, 5)[1] for query in queries]


def test_scan_sparse_finds_what_scan_finds():
    rng = np.random.default_rng(9)
    X = rng.integers(0, 3, (30, 6)) * (rng.random((30, 6)) < 0.5)
    queries = rng.integers(0, 3, (9, 6)) * (rng.random((9, 6)) < 0.5)
    X, queries = X.astype(np.float32), queries.astype(np.float32)
    best, rows = np.full((9, 5), np.inf), np.full((9, 5), -1, np.int64)
    norms = (X.astype(float) ** 2).sum(axis=1)
    lo, hi = np.arange(9), np.full(9, 28)
    search.scan_sparse(*csr(X), norms, *csr(queries), 6, lo, hi, best, rows)
    for i, query in enumerate(queries):
        distances, positions = slow.nearest(X, query, 5, lo[i], hi[i])
        assert rows[i].tolist() == positions
        assert best[i].tolist() == distances


@pytest.mark.parametrize("q", [1, 7, 8, 9, 16, 21])
@pytest.mark.parametrize("share_known", [None, 0.6])
def test_votes_are_shares_among_those_that_know(q, share_known):
    rng = np.random.default_rng(10)
    n, m, k = 40, 25, 6
    Y = (rng.random((n, q)) < 0.3).astype(np.uint8)
    rows = rng.integers(0, n, (m, k))
    for i, cut in enumerate(rng.integers(0, k + 1, m)):
        rows[i, cut:] = -1  # fewer than k are stored
    mask, packed = None, np.empty((0, 0), np.uint8)
    if share_known is not None:
        mask = rng.random((n, q)) < share_known
        padded = np.pad(mask, ((0, 0), (0, -q % 8)), constant_values=True)
        packed = np.packbits(padded, axis=1)
        Y = Y * mask
    out = np.full((m, q), np.nan)
    kernels.gather_votes(rows, np.packbits(Y, axis=1), packed, out)
    for i in range(m):
        voters = rows[i][rows[i] >= 0]
        expected = slow.votes(voters, Y, mask)
        np.testing.assert_allclose(out[i], expected, atol=1e-6)  # the imaginary neighbour's weight
        np.testing.assert_array_equal(out[i] >= 0.5, expected >= 0.5)  # an even vote is a yes
        nobody = [j for j in range(q) if not any(mask is None or mask[v, j] for v in voters)]
        assert not out[i][nobody].any()


def test_a_second_process_compiles_nothing(tmp_path):
    program = (
        "import numpy as np; from tagstream.core import compilation, search; "
        "x = np.ones(3, np.float32); search.pair_distance(x, x); "
        "search.dense_squares(x[None], x[:1]); print(compilation.n_compiled())"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONUTF8": "1"}
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program],
            env=environment, capture_output=True, check=True, encoding="utf-8",
        ).stdout
        for _ in range(2)
    )  # fmt: skip
    assert (first, second) == ("2\n", "0\n")


def test_functions_are_compiled_where_no_cache_can_be_written():
    made = {}
    exec("def double(x):\n    return 2 * x\n", made)  # of no file
    assert compilation.compiled(made["double"])(1.5) == 3.0


@pytest.mark.parametrize("n", [1, 15, 16, 40])
@pytest.mark.parametrize("kinds", [("f4", "f8", "f8"), ("f8", "f4", "f8"), ("f4", "f4", "f4")])
def test_products_are_the_same_to_the_bit_however_many_rows_and_whoever_asks(n, kinds):
    rng = np.random.default_rng(4)
    X, W = (rng.normal(size=s).astype(k) for s, k in zip(((n, 11), (11, 19)), kinds, strict=False))
    c = rng.normal(size=19).astype(kinds[2])
    out, alone, inside = (np.full((n, 19), np.nan, kinds[2]) for _ in range(3))
    kernels.project_dense(X, W, c, out)
    for i in range(n):
        kernels.project_dense(X[i : i + 1], W, c, alone[i : i + 1])

    @compilation.compiled
    def ask(X, W, c, out):
        kernels.project_dense(X, W, c, out)

    ask(X, W, c, inside)
    np.testing.assert_array_equal(out, alone)
    np.testing.assert_array_equal(out, inside)
    wide = np.float64 if kinds[2] == "f8" else np.float32
    np.testing.assert_allclose(out, X.astype(wide) @ W.astype(wide) + c, rtol=1e-3, atol=1e-4)


MODULE = """
from typing import NamedTuple
from tagstream.core import compilation

compilation.__version__ = "{version}"

class {name}(NamedTuple):
    x: float

@compilation.compiled
def first(pair):
    return pair.x

def run():
    return first({name}(2.0))
"""


def test_another_version_has_another_cache(tmp_path, monkeypatch):
    # A type of ours is part of its signature, and is looked up by name when the cache is read.
    monkeypatch.setattr(compilation, "__version__", compilation.__version__)
    path = tmp_path / "of_some_version.py"
    for name, version in (("Pair", "1"), ("Couple", "2"), ("Couple", "2")):
        text = MODULE.format(name=name, version=version)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        spec = importlib.util.spec_from_file_location("of_some_version", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "of_some_version", module)
        spec.loader.exec_module(module)
        assert module.run() == 2.0
    assert sum(module.first.stats.cache_hits.values()) == 1
