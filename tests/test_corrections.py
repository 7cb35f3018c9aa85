"""Twins: of stored rows that equal a question, the one corrected last that is still seen."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tagstream.store.corrections import Corrections

KINDS = np.arange(1.0, 4.0, dtype=np.float32)[:, None]  # of rows


def slow_twin(row, lo, rows, which):
    """The words of the module, one after another."""
    seen = [
        (number, at)
        for at, number in which.items()
        if at >= lo and (rows[at] == row).all() and row.any()
    ]
    return max(seen)[1] if seen else -1


@given(st.lists(st.tuples(st.sampled_from(["add", "mark", "drop", "remove", "save"]),
                          st.integers(0, 99)), max_size=40))  # fmt: skip
def test_twins_are_what_they_are_said_to_be(steps):
    made, rows, which, last = Corrections(), np.zeros((0, 1), np.float32), {}, 0
    for what, number in steps:
        n = len(rows)
        if what == "add":
            rows = np.concatenate([rows, np.vstack([KINDS, 0 * KINDS[:1]])[[number % 4]]])
            made.append(1)
        elif what == "mark" and n:
            last += 1
            which[number % n] = last
            made.mark(number % n, last)
        elif what == "drop" and n:
            gone = number % n
            made.drop(gone)
            rows = rows[gone:]
            which = {at - gone: one for at, one in which.items() if at >= gone}
        elif what == "remove" and n:
            at = number % n
            made.remove(at)
            rows = np.delete(rows, at, axis=0)
            which = {k - (k > at): one for k, one in which.items() if k != at}
        elif what == "save":
            made = Corrections.load(made.dump(), n)
        asked = np.vstack([KINDS, 0 * KINDS[:1]])
        for lo in (0, len(rows) // 2):
            found = made.twins(asked, rows, np.full(4, lo))
            assert found.tolist() == [slow_twin(row, lo, rows, which) for row in asked]
        picture = made.snapshot()
        assert picture.twins(asked, rows, np.zeros(4, np.int64)).tolist() == [
            slow_twin(row, 0, rows, which) for row in asked
        ]
