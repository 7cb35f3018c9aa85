"""Studies, rivals and the benchmark: records, tables, and what they must refuse."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from tagstream import make_stream
from tagstream.studies import benchmark, leaderboard
from tagstream.studies.benchmark import Incomplete, Setting
from tagstream.studies.compare import Comparison, differences
from tagstream.studies.learners import LEARNERS, Learner, learner_named
from tagstream.studies.published import STUDIES
from tagstream.studies.records import add_record, read_folder
from tagstream.studies.runner import run_stream

STREAM = make_stream(150, seed=0)


class Shares:
    """Predicts the labels that more than a third of the items had."""

    takes_unknown = True

    def __init__(self):
        self.yes, self.known = 0, 0

    def partial_fit(self, X, Y):
        Y = np.asarray(Y, float)
        self.yes = self.yes + np.nansum(Y, axis=0)
        self.known = self.known + (~np.isnan(Y)).sum(axis=0)
        return self

    def predict(self, X):
        if not np.any(self.known):
            raise AttributeError("nothing learnt yet")
        return np.tile(self.yes > self.known / 3, (X.shape[0], 1)).astype(np.uint8)


class Slow(Shares):
    def predict(self, X):
        raise MemoryError("too large")


SHARES = Learner("shares", "shares", "tests", lambda seed: Shares(), takes_unknown=True)


def test_the_published_numbers_are_there_for_every_stream_and_measure():
    n_methods = {"aesaknns": 31, "mlhat": 17}
    for name, study in STUDIES.items():
        for stream in study.streams:
            for measure in study.measures:
                assert study.best(stream, measure) is not None
                assert len(study.values()[stream][measure]) <= n_methods[name]
    assert STUDIES["aesaknns"].best("scene", "hamming_loss").value == 0.027
    assert set(STUDIES["mlhat"].sizes) == set(STUDIES["mlhat"].streams)


def test_a_run_gives_both_evaluators_and_every_decision():
    record = run_stream(LEARNERS["oml"], STREAM)
    assert record["failed"] is None
    assert record["n_items"] == 150
    assert set(record["result"]) == {"default", "f1", "hamming", "macro"}
    for by_evaluator in record["result"].values():
        assert 0 < by_evaluator["fading"]["micro_f1"] < 1
        assert 0 < by_evaluator["plain"]["macro_f1"] < 1
    assert json.loads(json.dumps(record)) == record
    losses = {rule: r["plain"]["hamming_loss"] for rule, r in record["result"].items()}
    assert losses["hamming"] <= losses["f1"]


def test_a_learner_that_fails_is_a_record_that_says_so():
    record = run_stream(Learner("slow", "slow", "tests", lambda seed: Slow()), STREAM)
    assert record["failed"] == "MemoryError: too large"
    missing = run_stream(Learner("none", "none", "tests", lambda seed: 1 / 0), STREAM)
    assert missing["failed"].startswith("ZeroDivisionError")
    assert missing["n_items"] == 0
    late = run_stream(SHARES, STREAM, limit=0.0)
    assert late["failed"] == "out of time after 0 s"
    assert late["n_items"] == 1


def fake(study, better=0.01, **more):
    """Records that are better than the best published by so much, everywhere."""
    found = []
    for stream in study.streams:
        sizes = study.sizes.get(stream)
        n, p, q, cardinality = sizes or (10, 2, 3, 1.0)
        measures = {}
        for m in study.measures:
            best = study.best(stream, m).value
            measures[m] = best - better if m == "hamming_loss" else best + better
        rules = ("default", "f1", "hamming", "macro")
        found.append(
            {"key": stream, "stream": stream, "n": n, "p": p, "q": q, "cardinality": cardinality}
            | {"learner": "oml", "title": "OML", "family": "tagstream", "failed": None}
            | {"n_items": n, "seconds_per_item": 0.001, "nbytes": 10**6}
            | {"result": {rule: {study.evaluator: measures} for rule in rules}}
            | more
        )
    return found


@pytest.mark.parametrize("name", STUDIES)
def test_cells_are_won_by_who_is_at_least_as_good(name):
    study = STUDIES[name]
    cells = len(study.streams) * len(study.measures)
    for better, won in ((0.01, cells), (0.0, cells), (-0.01, 0)):
        found = Comparison(study, fake(study, better))
        assert found.tally("oml/default") == (won, cells)
    assert found.table().markdown().count("\n") > cells
    assert found.significance("micro_f1").enough


def test_a_stream_that_differs_from_the_study_is_reported():
    study = STUDIES["mlhat"]
    assert differences(
        study, {"stream": "scene", "n": 5, "p": 294, "q": 6, "cardinality": 1.07}
    ) == ["items: 5 here, 2,407 there"]
    found = Comparison(study, fake(study))
    assert "agree" in found.caveat()
    assert "order of the rows could not be checked" in found.caveat()
    assert "does not print the sizes" in Comparison(STUDIES["aesaknns"], []).caveat()


def test_a_stream_that_is_another_one_is_shown_and_not_counted():
    study = STUDIES["mlhat"]
    records = fake(study)
    scene = next(r for r in records if r["stream"] == "scene")
    scene["n"] = 1000
    found = Comparison(study, records)
    assert found.tally("oml/default")[1] == 4 * (len(study.streams) - 1)
    assert found.value("scene", "oml/default", "micro_f1") is not None
    assert "scene" not in found.values("micro_f1")
    assert "Not counted, because it is not the same stream: scene" in found.caveat()


def test_records_of_the_paper_are_records_of_a_study():
    from pathlib import Path

    from tagstream.studies.reproduced import reproduced_records

    results = Path(__file__).parents[1] / "results"
    records = [r for r in reproduced_records(results) if r["learner"] == "oml"]
    found = Comparison(STUDIES["aesaknns"], records)
    assert len(found.streams) == 7
    told = found.value("scene", "oml/default", "micro_f1")
    assert (
        told
        == next(r for r in records if r["stream"] == "scene")["result"]["default"]["fading"][
            "micro_f1"
        ]
    )
    assert not Comparison(STUDIES["mlhat"], records).comparable("tmc2007-500")


def test_a_failed_learner_has_no_value_and_its_row_says_so():
    study = STUDIES["mlhat"]
    found = Comparison(study, fake(study, failed="out of time after 600 s"))
    assert found.tally("oml/default") == (0, 0)
    assert found.value("scene", "oml/default", "micro_f1") is None
    assert "out of time after 600 s" in found.table().rows[0]


def test_learners_are_found_by_name_and_by_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "my_module", sys.modules[__name__])
    found = learner_named("my_module:Shares")
    assert found.takes_unknown
    assert isinstance(found.make(0), Shares)
    for wrong in ("nobody", "my_module:", "my_module:STREAM"):
        with pytest.raises(ValueError, match="learner must be"):
            learner_named(wrong)


def test_a_record_replaces_the_one_with_its_key(tmp_path):
    path = tmp_path / "a.jsonl"
    for value in (1, 2):
        add_record(path, {"key": "x", "value": value})
    add_record(path, {"key": "y", "value": 3})
    path.write_text(path.read_text() + '{"key": "z", "val')
    assert [r["value"] for r in read_folder(tmp_path)] == [2, 3]


# ------------------------------------------------------------------ the benchmark
def test_new_labels_are_absent_before_and_missing_ones_are_nested():
    Y = np.ones((400, 6), np.uint8)
    none, some, more = (Incomplete.of(Y, Setting(0.25, 0, m)) for m in (0.0, 0.3, 0.6))
    assert none.start == 100
    assert len(none.new) == 3
    assert not none.Y[:100, none.new].any()
    assert none.Y[100:].all()
    np.testing.assert_array_equal(none.Y, more.Y)
    assert not np.isnan(none.taught).any()
    hidden = [np.isnan(one.taught) for one in (some, more)]
    assert (hidden[0] <= hidden[1]).all()
    assert [h.mean() for h in hidden] == pytest.approx([0.3, 0.6], abs=0.05)
    assert len(Incomplete.of(Y, Setting()).new) == 0


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(benchmark, "benchmark_stream", lambda name: STREAM)
    monkeypatch.setattr(benchmark, "STREAMS", {"yeast": 150})
    return (Setting(), Setting(0.5, 100, 0.6))


def test_the_benchmark_runs_writes_and_does_not_run_again(small, tmp_path):
    records = benchmark.run(tmp_path, [SHARES], settings=small)
    assert [r["failed"] for r in records] == [None, None]
    assert records[0]["new_f1"] is None
    assert 0 <= records[1]["new_f1"] <= 1
    assert records[1]["micro_f1"] < records[0]["micro_f1"]
    before = (tmp_path / "shares.jsonl").read_text()
    broken = Learner("shares", "shares", "tests", lambda seed: 1 / 0, takes_unknown=True)
    assert benchmark.run(tmp_path, [broken], settings=small) == records
    assert (tmp_path / "shares.jsonl").read_text() == before


def test_who_cannot_be_told_unknown_is_told_absent(small, tmp_path):
    told = []

    class Keeps(Shares):
        def partial_fit(self, X, Y):
            told.append(np.asarray(Y))
            return super().partial_fit(X, Y)

    blind = Learner("keeps", "keeps", "tests", lambda seed: Keeps())
    record = benchmark.run_cell(blind, STREAM, Setting(missing=0.6))
    assert record["failed"] is None
    assert not np.isnan(np.vstack(told)).any()


def test_the_leaderboard_compares_on_shared_cells(tmp_path):
    def record(who, micro_f1, missing=0.0, failed=None):
        return {
            **{"key": f"{who}{missing}", "part": "benchmark", "stream": "yeast", "new": 0.0},
            **{"late": 0, "missing": missing, "learner": who, "title": who, "family": "tests"},
            **{"failed": failed, "micro_f1": micro_f1, "seconds_per_item": 0.001, "new_f1": None},
        }

    some = [record("a", 0.5), record("a", 0.9, 0.3), record("b", 0.6), record("c", None, 0.0, "no")]
    table = leaderboard.leaderboard_tables(some)["leaderboard"]
    rows = {row[0]: row for row in table.rows}
    assert [rows[who][3] for who in "abc"] == [".500", ".600", ".000"]
    assert [rows[who][4] for who in "abc"] == ["2.0", "1.0", "3.0"]
    assert "1 failed" in rows["c"][2]
    for one in some:
        add_record(tmp_path / f"{one['learner']}.jsonl", one)
    assert len(leaderboard.read_leaderboard(tmp_path)) == 4
    add_record(tmp_path / "d.jsonl", record("d", 1.7))
    with pytest.raises(ValueError, match="micro_f1 from 0 to 1"):
        leaderboard.read_leaderboard(tmp_path)
    with pytest.raises(ValueError, match="missing among"):
        leaderboard.check_records([record("e", 0.5, 0.45)])


# ------------------------------------------------------------------ MOA
@pytest.fixture(scope="module")
def moa():
    from tagstream.compat import moa

    try:
        moa.java()
    except ImportError as error:
        pytest.skip(str(error))
    return moa


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["moa-br-nb", "moa-amrules", "meka-br"])
def test_learners_of_moa_learn(moa, name):
    record = run_stream(LEARNERS[name], STREAM)
    assert record["failed"] is None, record["failed"]
    assert 0 < record["result"]["default"]["plain"]["micro_f1"] <= 1
    assert record["nbytes"] is not None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_learner_of_moa_says_what_it_cannot_take(moa):
    model = moa.FromMoa("moa.classifiers.multilabel.MajorityLabelset")
    model.partial_fit(STREAM.X[:9], STREAM.Y[:9])
    with pytest.raises(ValueError, match="rows of 0 and 1"):
        model.partial_fit(STREAM.X[:1], np.full((1, 12), np.nan))
    with pytest.raises(ValueError, match="columns"):
        model.predict(STREAM.X[:2, :3])
    with pytest.raises(ValueError, match="must name an object of MOA"):
        moa.FromMoa("no.such.Learner").partial_fit(STREAM.X[:2], STREAM.Y[:2])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_drifting_streams_are_seeded_and_drift(moa):
    from tagstream.studies.drift import drift_table, drifting_stream, stream_named

    one, same = (drifting_stream("hyperplane", "sudden", 400) for _ in range(2))
    np.testing.assert_array_equal(one.X, same.X)
    np.testing.assert_array_equal(one.Y, same.Y)
    still = drifting_stream("hyperplane", "none", 400)
    np.testing.assert_array_equal(one.Y[:100], still.Y[:100])
    assert (one.Y[100:] != still.Y[100:]).any()
    assert stream_named("rbf-recurring", 50).Y.shape == (50, 25)
    with pytest.raises(ValueError, match="generator must be one of"):
        drifting_stream("circle", "sudden", 10)
    record = run_stream(SHARES, one)
    assert drift_table([record]).rows[0][0] == "shares (tests)"


def test_many_labels_are_judged_at_each_depth_and_a_missing_package_is_a_row(tmp_path, monkeypatch):
    from tagstream.studies import extreme

    stream = make_stream(200, seed=1)
    made = extreme.Split(stream.X, stream.Y, 150)
    monkeypatch.setitem(extreme.METHODS, "broken", lambda split: 1 / 0)
    records = extreme.run_extreme(tmp_path, ["bibtex"], ["OML", "broken"], load=lambda name: made)
    first, *_ = records[0]["precision"]
    assert first > stream.Y[150:].mean(axis=0).max()
    assert records[1]["failed"].startswith("ZeroDivisionError")
    rows = extreme.extreme_table(records).rows
    assert [row[1] for row in rows] == ["OML", "broken", "CRAFTML, published"]
    monkeypatch.setitem(extreme.METHODS, "OML", lambda split: 1 / 0)
    again = extreme.run_extreme(tmp_path, ["bibtex"], ["OML"], load=lambda name: made)
    assert again == records[:1]


def test_label_trees_are_run_beside(tmp_path):
    pytest.importorskip("napkinxc")
    from tagstream.studies import extreme

    stream = make_stream(300, seed=1)
    made = extreme.Split(stream.X, stream.Y, 200)
    name = "napkinXC (label trees)"
    record = extreme.run_extreme(tmp_path, ["bibtex"], [name], load=lambda name: made)[0]
    assert record["failed"] is None, record["failed"]
    assert record["precision"][0] > stream.Y.mean()
