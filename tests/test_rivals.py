"""A tagger beside what people would use instead: what rivals choose by, and the README's tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tagstream.paper import Results, plan
from tagstream.paper.page import update_markers
from tagstream.paper.rivals import _best_decision, _by_rival, _knn
from tagstream.paper.tables.rivals import rival_tables

ROOT = Path(__file__).parents[1]


def test_the_best_decision_is_a_threshold_or_the_best_scores():
    Y = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], np.uint8)
    scores = np.array([[0.9, 0.8, 0.7], [0.2, 0.3, 0.1], [0.02, 0.01, 0.03]])
    (rule, decide), f1 = _best_decision(Y, scores)
    assert (rule, f1) == ("top 1", 1.0)
    assert (decide(scores) == Y).all()
    (rule, decide), f1 = _best_decision(np.array([[1, 1, 0], [0, 0, 0]]), 0.1 + scores[:2] / 2)
    assert rule.startswith("score of 0.5")
    assert f1 == 1.0


def test_a_rival_chooses_on_the_training_part_only():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    Y = (X[:, :2] > 0).astype(np.uint8)
    train, test = np.arange(100), np.arange(100, 120)
    predicted, scores, chosen = _by_rival(_knn, X, Y, train, test)
    assert (predicted == Y[test]).mean() > 0.8
    other = Y.copy()
    other[test] = 1 - other[test]  # what is asked about decides nothing
    again = _by_rival(_knn, X, other, train, test)
    assert again[2] == chosen
    np.testing.assert_array_equal(again[1], scores)


def record(method, value, n=200, fold=0, dataset="packages"):
    return {
        "key": f"{dataset}{method}{n}{fold}",
        "part": "rivals",
        "dataset": dataset,
        "method": method,
        "title": plan.METHODS["rivals"][method].title,
        "fold": fold,
        "setting": {"n": n},
        "versions": {"tagstream": "9.9"},
        "result": {"micro_f1": value, "precision_at_1": value},
    }


def test_cells_that_are_lost_stay_and_are_named():
    rows = [record("tagger", 0.5), record("tagger", 0.7, fold=1), record("encoder-knn", 0.65)]
    rows += [record("tagger", 0.8, 1000), record("encoder-knn", 0.7, 1000)]
    rows += [record("tagger", 0.8, 4000)]  # nobody to compare with yet
    made = rival_tables(Results({"rivals": rows}))
    assert "in 1 of 2 columns" in made["verdict_rivals"]
    assert "packages, 200 learnt (encoder + kNN: +0.050)" in made["verdict_rivals"]
    assert "tagstream 9.9" in made["verdict_rivals"]
    table = made["rivals"].markdown()
    assert "| tagstream | .600 | **.800** | **.800** |" in table.replace("0.", ".")
    assert rival_tables(Results({})) == {}


def test_the_tables_of_the_readme_are_made_of_the_records(tmp_path):
    records = ROOT / "results" / "rivals.jsonl"
    if not records.exists():
        pytest.skip("the records are not part of the source file")
    made = rival_tables(Results.read(ROOT / "results"))
    page = tmp_path / "README.md"
    page.write_text((ROOT / "README.md").read_text("utf-8"), "utf-8")
    assert "begin:rivals " in page.read_text("utf-8")
    assert not update_markers(page, made)
