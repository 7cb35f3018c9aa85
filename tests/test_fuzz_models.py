"""Hostile model files: some hundreds of them by default, very many in the slow suite."""

from __future__ import annotations

import os

import pytest

from fuzz_models import put_together, run, seed_files, take_apart

CASES = int(os.environ.get("TAGSTREAM_FUZZ_MODELS", "100000"))

pytest.importorskip("resource")  # a child without limits could take the machine with it


def found_nothing(n: int, first: int = 0, env: dict[str, str] | None = None) -> None:
    counts, failures = run(n, first, env)
    assert not failures, "\n".join(failures)
    # A fuzzer whose files are all refused, or all accepted, tests nothing.
    assert counts["refused"] > n / 10
    assert counts["sound"] > n / 10
    assert sum(counts.values()) == n


def test_a_file_that_is_taken_apart_and_put_together_says_the_same():
    for path in seed_files():
        version, header, arrays = take_apart(path.read_bytes())
        again = take_apart(put_together(version, header, arrays))
        assert again[:2] == (version, header)
        assert all((a == b).all() for a, b in zip(again[2], arrays, strict=True))


def test_a_hostile_model_is_refused_or_works():
    found_nothing(300)


@pytest.mark.slow
def test_very_many_hostile_models_are_refused_or_work():
    for first in range(0, CASES, 5000):
        found_nothing(min(5000, CASES - first), first)


@pytest.mark.slow
def test_no_compiled_loop_leaves_its_arrays(tmp_path):
    env = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    found_nothing(min(2000, CASES), 10**6, env)
