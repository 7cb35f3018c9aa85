"""The times at which learners do what they do now and then: functions of counts alone."""

from __future__ import annotations

import numpy as np
import pytest

from tagstream.execution.schedule import is_full, next_choice, next_fit


def times(window, until):
    t, out = 0, []
    while (t := next_fit(t, window)) <= until:
        out.append(t)
    return out


def test_fits_come_at_geometric_times():
    at = times(None, 10**6)
    assert at[:4] == [20, 22, 24, 27]
    growth, early = np.diff(at) / at[:-1], np.array(at[:-1]) < 4096
    assert (growth[early] <= 0.125).all()
    assert (growth[early] > 0.08).all()
    assert growth[~early] == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize("window", [None, 10, 100, 5000])
def test_the_work_of_all_fits_is_a_constant_per_example(window):
    # A fit of m stored rows costs O(m); all fits together must not exceed a few passes.
    for until in (100, 10**4, 10**6 if window != 10 else 10**4):
        work = sum(t if window is None else min(t, window) for t in times(window, until))
        assert work <= 11 * until


def test_with_a_window_fits_go_on_for_ever():
    at = times(100, 5000)
    assert set(np.diff(at)[20:]) == {25}


@pytest.mark.parametrize("window", [1, 2, 3, 25, 400])
def test_the_next_time_is_always_later(window):
    for t in range(2000):
        assert next_fit(t, window) > t
        assert next_choice(max(t, 1), window) > t


def test_choices_follow_what_is_stored():
    # Doubled while the memory grows; in a full window, when it was filled anew four times.
    assert [next_choice(t, None) for t in (20, 1000, 5000)] == [40, 2000, 10000]
    assert [next_choice(t, 300) for t in (20, 300, 301, 20_000)] == [40, 600, 1501, 21_200]
    assert [is_full(t, 300) for t in (299, 300, 301)] == [False, False, True]
    assert not is_full(10**9, None)
