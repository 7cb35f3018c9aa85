"""The experiment on the order of the training data, and its tables."""

import json

import numpy as np
import pytest

from tagstream.paper.orders import COPIED, ONCE, arranged, divided, measured
from tagstream.paper.results import Results
from tagstream.paper.tables.order import order_tables

Y = np.array([[0, 1], [1, 1], [0, 0], [1, 0], [0, 1]], np.uint8)


@pytest.mark.parametrize("order", [*ONCE, *COPIED])
def test_an_arrangement_has_every_item_equally_often(order):
    rows = arranged(order, Y, 3)
    assert np.bincount(rows).tolist() == [3 if order in COPIED else 1] * 5
    assert arranged(order, Y, 3).tolist() == rows.tolist()


def test_sorted_items_come_label_by_label_those_without_last():
    assert arranged("sorted", Y, 0).tolist() == [1, 3, 0, 4, 2]


def test_divisions_are_disjoint_and_differ():
    train, test = divided(50, 0)
    assert sorted([*train, *test]) == list(range(50))
    assert len(test) == 10
    assert divided(50, 1)[1].tolist() != test.tolist()


def test_measures_by_hand():
    scores = np.array([[0.9, 0.2], [0.4, 0.8]])
    found = measured(np.array([[1, 0], [0, 1]]), np.array([[1, 0], [1, 1]]), scores)
    assert found["micro_f1"] == pytest.approx(2 * 2 / (2 + 3))
    assert found["log_loss"] == pytest.approx(-np.log([0.9, 0.8, 0.6, 0.8]).sum() / 2)
    assert found["calibration_error"] == pytest.approx((0.1 + 0.2 + 0.4 + 0.2) / 2)


def write(folder, values):
    """Write records of a data set: micro-F1 by method, order and division."""
    lines = []
    for (method, order), per_division in values.items():
        for division, value in per_division.items():
            result = dict.fromkeys(("macro_f1", "example_f1", "hamming_loss"), value)
            result |= {"micro_f1": value, "log_loss": 1.0, "calibration_error": 0.1}
            lines.append({
                "key": f"{method}{order}{division}", "part": "order", "dataset": "scene",
                "method": method, "title": method, "fold": division, "setting": {"order": order},
                "params": {}, "versions": {}, "seconds": 1.0, "result": result,
            })  # fmt: skip
    (folder / "order.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return order_tables(Results.read(folder))


def test_only_whole_divisions_are_compared(tmp_path):
    values = {("oml", order): {0: 0.8, 1: 0.8, 2: 0.8} for order in ONCE}
    values["oml", "sorted"] = {0: 0.78, 1: 0.78, 2: 0.1}
    values |= {("knn", order): {0: 0.5, 1: 0.5} for order in ONCE}  # the third is missing
    tables = write(tmp_path, values)
    assert tables["order"].rows[0][:5] == ("scene", "2", ".800", ".800", ".780")
    assert "In 1 of 2 cells" in tables["verdict_order"]
    assert "the worst is scene, sorted: -0.020" in tables["verdict_order"]
    assert "nowhere worse than the better of votes alone and kNN" in tables["verdict_order"]


def test_a_rival_that_is_ahead_in_every_division_is_named(tmp_path):
    values = {("oml", order): {0: 0.70, 1: 0.71, 2: 0.69} for order in ONCE}
    values |= {("oml-vote", order): {0: 0.75, 1: 0.755, 2: 0.745} for order in ONCE}
    assert (
        "worse than the better of votes alone and kNN beyond chance in 3"
        in (write(tmp_path, values)["verdict_order"])
    )


def test_copies_are_compared_with_the_same_divisions(tmp_path):
    values = {("oml", order): {0: 0.8, 1: 0.6} for order in ONCE}
    values |= {("oml", order): {0: 0.79} for order in COPIED}
    tables = write(tmp_path, values)
    assert tables["order_copies"].rows[0][1:4] == (".800", ".790", ".790")
    assert "In 2 of 2 cells" in tables["verdict_copies"]
