"""The experiments on what the model knows, on small streams, and their tables."""

from __future__ import annotations

import numpy as np
import pytest

from tagstream import OML
from tagstream.data import make_stream
from tagstream.paper import knowing
from tagstream.paper.tables.knowing import knowing_tables


@pytest.fixture(scope="module")
def stream():
    return make_stream(600, seed=0)


def test_spoilt_items_are_found(stream):
    Y = np.asarray(stream.Y, np.uint8)
    made = knowing.review_spoilt(stream.X, Y, OML(random_state=0), seed=0, cleanlab=False)
    assert made["n"] == 600
    assert 0.02 < made["base"] < 0.08
    assert made["doubt"] > 3 * made["base"]


def test_a_stream_under_a_promise(stream):
    Y = np.asarray(stream.Y, np.uint8)
    made = knowing.promised_stream(stream.X, Y, OML(random_state=0), rolled=True)
    for question in ("next", "any"):
        found = made[question]
        assert found["n_applied"] >= 0
        assert found["missed"] == []


def test_kept_counts_what_is_missed():
    good, bad = [1] * 600, [1] * 300 + [0] * 60 + [1] * 240
    made = knowing._kept({0: good, 1: bad, 2: [0] * 99})
    assert made["n_labels"] == 2
    assert [one["label"] for one in made["missed"]] == [1]
    assert made["missed"][0]["worst"] == pytest.approx(0.88)


def test_items_are_tagged_in_an_order(stream, monkeypatch):
    monkeypatch.setattr(knowing, "N_TAGGED", 150)
    Y = np.asarray(stream.Y, np.uint8)
    for order in ("random", "mixed"):
        made = knowing.tag_in_order(
            stream.X, Y, OML(random_state=0), order=order, seed=0, at=(100, 150)
        )
        assert made["150"]["micro_f1"] > 0.3


def test_alarms_of_a_shuffled_stream(stream):
    Y = np.asarray(stream.Y, np.uint8)
    made = knowing.drift_alarms(stream.X, Y, OML(random_state=0), rolled=False, seed=0)
    assert made["false"] <= 1


class Records:
    def __init__(self, records):
        self._records = records

    def part(self, name):
        return [record for record in self._records if record["part"] == name]


def test_tables_are_made_of_records():
    kept = {"n_applied": 9, "kept": 1.0, "n_labels": 0, "missed": []}
    records = [
        {
            "part": "review",
            "dataset": "a",
            "setting": {},
            "result": {"doubt": 0.3, "lowest": 0.2, "base": 0.05, "n": 9, "seconds": 1.0}
            | {"cleanlab": 0.1},
        },
        {
            "part": "promise",
            "dataset": "a",
            "setting": {"rolled": True},
            "result": {"n": 9, "any": kept, "next": {**kept, "kept": None}},
        },
    ]
    made = knowing_tables(Records(records))
    assert {*made} == {"knowing_review", "knowing_promise"}
    assert made["knowing_review"].rows[0][2:5] == ("0.300", "0.200", "0.100")
    assert made["knowing_promise"].rows[0][1] == "rolled"
