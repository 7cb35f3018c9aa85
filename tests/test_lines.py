"""Lines: eight numbers in registers, as compiled loops use them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tagstream.core.compilation import compiled
from tagstream.core.products import WIDE, add_scaled_rows
from tagstream.core.simd import lines


@compiled
def _twice(x, at, n, out):
    line = lines.load(x, at, n)
    lines.store(out, at, n, lines.add(line, line))


@compiled
def _as_single(x, out, limit):
    n = x.shape[0]
    for b in range(0, n, lines.WIDTH):
        lines.store_small(out, b, n - b, lines.load(x, b, n - b), limit)


@compiled
def _logarithms(x, out):
    n = x.shape[0]
    for b in range(0, n, lines.WIDTH):
        lines.store(out, b, n - b, lines.logarithm(lines.load(x, b, n - b)))


@compiled
def _sigmoids(x, out):
    n = x.shape[0]
    for b in range(0, n, lines.WIDTH):
        lines.store(out, b, n - b, lines.sigmoid(lines.load(x, b, n - b)))


@compiled
def _total(x):
    return lines.total(lines.divide(lines.load(x, 0, 8), lines.spread(2.0)))


@compiled
def _add_scaled_rows(total, W, rows, x, first, last):
    add_scaled_rows(total, W, rows, x, first, last)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [-3, 0, 1, 5, 8, 20])
def test_a_line_touches_no_more_numbers_than_there_are(dtype, n):
    x = np.arange(24, dtype=dtype)
    out = np.full(24, -1.0)
    _twice(x, 3, n, out)
    stop = 3 + min(max(n, 0), 8)
    np.testing.assert_array_equal(out[3:stop], 2 * x[3:stop])
    assert (np.delete(out, slice(3, stop)) == -1).all()


def test_a_store_in_single_precision_leaves_out_what_is_beyond_the_limit():
    x = np.array([1.0, -2.0, 1e31, -1e31, np.nan, np.inf, 0.1, 3.0, 1e30, -4.0])
    out = np.full(10, 7, np.float32)
    _as_single(x, out, 1e30)
    expected = [1, -2, 7, 7, 7, 7, np.float32(0.1), 3, np.float32(1e30), -4]
    np.testing.assert_array_equal(out, np.array(expected, np.float32))


def test_logarithms_are_right_to_the_last_place():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0.5, 2, 2003), np.exp(rng.uniform(-600, 600, 2003)), [1.0]])
    out = np.empty_like(x)
    _logarithms(x, out)
    right = np.array([math.log(v) for v in x])
    assert (np.abs(out - right) <= np.spacing(np.abs(right))).all()
    assert out[-1] == 0


def test_sigmoids_are_right_and_bounded():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(-40, 40, 4001), [0.0, 800.0, -800.0, 1e300, -1e300]])
    out = np.empty_like(x)
    _sigmoids(x, out)
    right = np.array([1 / (1 + math.exp(-max(v, -700.0))) for v in x])
    np.testing.assert_allclose(out, right, rtol=2e-15)
    assert out[-5] == 0.5
    assert (out >= 0).all()
    assert (out <= 1).all()


def test_the_sum_of_a_line_is_that_of_its_halves():
    x = np.array([1e16, 1.0, -1e16, 1.0, 3.0, 1.0, 3.0, 1.0]) * 2
    a = [x[i] / 2 + x[i + 4] / 2 for i in range(4)]
    assert _total(x) == (a[0] + a[2]) + (a[1] + a[3])


@pytest.mark.exact
@pytest.mark.parametrize("m", [1, 7, 8, 14, 28, 32, 33, WIDE, WIDE + 1, 101])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_added_one_after_the_other(m, dtype):
    rng = np.random.default_rng(m)
    W = rng.normal(size=(20, m)).astype(dtype)
    x, rows = rng.normal(size=12).astype(np.float32), rng.integers(0, 20, 12).astype(np.int32)
    for places in (rows, None):
        total = np.ones(m + 2)
        _add_scaled_rows(total, W, places, x, 2, 11)
        right = np.ones(m + 2)
        for e in range(2, 11):
            row = e if places is None else places[e]
            right[:m] += np.float64(x[e]) * W[row].astype(np.float64)
        np.testing.assert_array_equal(total, right)
