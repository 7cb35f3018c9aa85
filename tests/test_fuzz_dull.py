"""Dull data: some hundred streams by default, ten thousand in the slow suite."""

from __future__ import annotations

import os

import pytest

from fuzz_dull import LONGEST, make_case, run
from tagstream.learners.registry import LEARNERS

CASES = int(os.environ.get("TAGSTREAM_FUZZ_DULL", "10000"))

pytestmark = pytest.mark.exact


def found_nothing(n: int, first: int = 0) -> None:
    counts, failures = run(n, first)
    assert not failures, "\n".join(failures)
    assert sum(counts.values()) == n


def test_the_streams_are_dull_and_every_learner_gets_its_share():
    some = [make_case(number) for number in range(300)]
    assert {case.learner for case in some} == {name for name, _ in LEARNERS.values()}
    assert max(len(case.batch) for case in some) > 0.9 * LONGEST
    assert all(len({repr(item) for item in case.batch.items}) <= 3 for case in some)
    assert all(case.cuts == sorted(case.cuts) for case in some)


# In parts, which run beside each other.
@pytest.mark.parametrize("first", range(0, 300, 50))
def test_dull_data_is_learnt_saved_and_loaded_to_the_bit_whatever_the_cuts(first):
    found_nothing(50, first)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_very_much_dull_data_is_learnt_saved_and_loaded_to_the_bit(part):
    size = CASES // 20
    found_nothing(size, 300 + part * size)


def test_a_fit_that_leaves_out_nearly_all_squares_is_no_error():
    """Rows of 1e15 among ones: what remains is less than the rounding of what is taken off."""
    found_nothing(1, first=355)
