"""Damaged input files: some thousands of them by default, a million in the slow suite."""

from __future__ import annotations

import io
import os

import pytest

from fuzz_inputs import SEEDS, outcome, run
from tagstream.checks import DataError
from tagstream.data import FORMATS, iter_arff, iter_csv

CASES = int(os.environ.get("TAGSTREAM_FUZZ_INPUTS", "1000000"))


def found_nothing(n: int, first: int = 0) -> None:
    counts, failures = run(n, first)
    assert not failures, "\n".join(failures)
    # A fuzzer whose files are all refused, or all accepted, tests nothing.
    assert counts["refused"] > n / 10
    assert counts["read"] > n / 10
    assert sum(counts.values()) == n


def test_what_is_damaged_is_sound_and_of_every_text_format():
    assert {name for name, _, _ in SEEDS} == set(FORMATS) - {"parquet", "xlsx", "folder"}
    for name, options, text in SEEDS:
        assert len(outcome(name, options, text.encode(), 1000)) >= 3
        assert isinstance(outcome(name, options, text.encode(), 1000), list)


def test_a_damaged_file_is_refused_or_read_the_same_whatever_the_chunks():
    found_nothing(3000)


@pytest.mark.slow
def test_very_many_damaged_files_are_refused_or_read():
    for first in range(0, CASES, 10_000):
        found_nothing(min(10_000, CASES - first), first)


def test_a_message_is_one_line_that_can_be_printed_whatever_names_it_quotes():
    with pytest.raises(DataError) as caught:
        list(iter_csv(io.BytesIO(b'"a\nb",\x1b[2J\n1,2\n'), labels="tag"))
    assert str(caught.value).isprintable()
    with pytest.raises(DataError) as caught:
        list(iter_arff(io.BytesIO(b"@attribute " + b"a" * 100_000 + b" strange\n"), labels=1))
    assert len(str(caught.value)) < 500
