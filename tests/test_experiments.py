"""The grid as data, and its run: restartable, complete, honest about time."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC

from tagstream import models, paper
from tagstream import records as data
from tagstream.evaluation import evaluate
from tagstream.metric.rounds import play_round
from tagstream.paper import Cell, bound, grid, offline, plan, read_records, run, runner, work
from tagstream.paper.record_files import append_record


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A data home with small stand-ins for two data sets, one dense and one sparse."""
    folder = tmp_path_factory.mktemp("home")
    for name, q, sparse in (("emotions", 6, False), ("medical", 45, True)):
        stream = data.make_stream(90, p=12, q=q, sparse=sparse, seed=1)
        (folder / name).mkdir()
        data.write_arff(stream, folder / name / f"{name}.arff")
        labels = "".join(f'<label name="{label}"/>' for label in stream.label_names)
        (folder / name / f"{name}.xml").write_text(f"<labels>{labels}</labels>")
    return folder


def knn_run(folder, home, **options):
    return run(folder, jobs=0, data_home=home, only=["holdout", "emotions", "knn"], **options)


# ---------------------------------------------------------------------- the grid
def test_the_grid_holds_the_papers_comparison():
    cells = [cell for cell in grid() if cell.part == "holdout"]
    assert {cell.dataset for cell in cells} == {i.name for i in data.DATASETS.values() if i.paper}
    assert {cell.fold for cell in cells} == set(range(5))
    dense = {cell.dataset for cell in cells if cell.method == "fourier"}
    assert dense == {"emotions", "cal500", "image", "scene"}
    methods = {cell.method for cell in cells} - {"fourier"}
    once = [cell for cell in cells if (cell.dataset, cell.method) == ("corel5k", "offline-forest")]
    assert len(once) == 1
    assert len(cells) == 5 * (8 * len(methods) + len(dense)) - 4


def test_oml_is_there_with_each_decision_and_without_its_head():
    made = {name: m.make(0, 0) for name, m in paper.METHODS["holdout"].items()}
    rules = {"": "balanced", "-f1": "f1", "-hamming": "hamming", "-macro": "macro", "-vote": 0.5}
    assert {name: made[f"oml{name}"].decide for name in rules} == rules
    assert (made["oml"].head, made["oml-vote"].head) == (True, False)
    assert made["oml-published"].step == "cubic"
    assert made["oml-printed"].step == "printed"
    assert {"oml", "oml-vote", "oml-window"} <= set(paper.METHODS["prequential"])


def test_streams_are_judged_as_the_published_ones_were():
    cells = [cell for cell in grid() if cell.part == "prequential"]
    assert {cell.dataset for cell in cells} == set(paper.STREAMS)
    assert {"yeast", "emotions", "tmc2007-500", "mediamill"} <= set(paper.STREAMS)
    assert plan.EVERY == 100
    cut = {cell.dataset: dict(cell.setting)["first"] for cell in cells if cell.setting}
    assert cut == {"tmc2007-500": 6000}


def test_keys_tell_all_cells_apart():
    cells = grid()
    assert len({cell.key for cell in cells}) == len(cells) == len(set(cells))


def test_a_changed_definition_has_another_key(monkeypatch):
    cell = Cell("holdout", "emotions", "knn", 0)
    before = cell.key
    changed = dataclasses.replace(paper.METHODS["holdout"]["knn"], params=(("window", 9),))
    monkeypatch.setitem(paper.METHODS["holdout"], "knn", changed)
    assert cell.key != before


def test_a_changed_default_has_another_key(monkeypatch):
    cell = Cell("holdout", "emotions", "knn", 0)
    before = cell.key
    learner = type("Other", (models.KNN,), {"__init__": _other_default})
    monkeypatch.setattr("tagstream.learners.knn.KNN", learner)
    assert cell.params["n_neighbors"] == 7
    assert cell.key != before


def _other_default(self, n_neighbors=7):
    self.n_neighbors = n_neighbors


@pytest.mark.parametrize("part", paper.METHODS)
def test_every_method_can_be_made_and_differs_from_the_others(part):
    made = [str(method.make(50, 0)) + str(method) for method in paper.METHODS[part].values()]
    assert len(set(made)) == len(made)


# ---------------------------------------------------------------------- the run
def test_a_second_run_runs_nothing_and_changes_nothing(home, tmp_path):
    first = knn_run(tmp_path, home)
    before = (tmp_path / "holdout-emotions.jsonl").read_bytes()
    second = knn_run(tmp_path, home)
    assert (first.n_run, first.n_kept) == (5, 0)
    assert (second.n_run, second.n_kept) == (0, 5)
    assert (tmp_path / "holdout-emotions.jsonl").read_bytes() == before


def test_a_half_written_record_is_not_read_and_only_its_cell_is_run_again(home, tmp_path):
    knn_run(tmp_path, home)
    path = tmp_path / "holdout-emotions.jsonl"
    whole = list(read_records(path))
    path.write_bytes(path.read_bytes()[:-40])
    assert len(list(read_records(path))) == 4
    assert knn_run(tmp_path, home).n_run == 1
    again = list(read_records(path))
    assert [r["key"] for r in again] == [r["key"] for r in whole]
    assert [r["result"]["counts"] for r in again] == [r["result"]["counts"] for r in whole]


def test_bytes_that_are_not_text_are_passed_over(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"key": "a"}\n\xff\xfe{"ke\n[1]\n"key"\n{"key": 3}\n{"key": "b"}')
    assert [record["key"] for record in read_records(path)] == ["a", "b"]


def test_a_new_record_does_not_join_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"key": "a"}\n{"key": "b", "resu')
    append_record(path, {"key": "c"})
    assert [record["key"] for record in read_records(path)] == ["a", "c"]


def test_records_of_cells_that_are_no_longer_in_the_grid_are_dropped(home, tmp_path):
    path = tmp_path / "holdout-emotions.jsonl"
    path.write_text(json.dumps({"key": "old", "seconds": 1}) + "\n")
    knn_run(tmp_path, home)
    assert "old" not in {record["key"] for record in read_records(path)}


def test_fresh_runs_again_what_was_selected_and_keeps_the_rest(home, tmp_path):
    run(tmp_path, jobs=0, data_home=home, only=["holdout", "emotions", "knn", "knn-standard"])
    again = knn_run(tmp_path, home, fresh=True)
    assert (again.n_run, again.n_kept) == (5, 0)
    assert len(list(read_records(tmp_path / "holdout-emotions.jsonl"))) == 10


def test_missing_data_sets_are_named_and_the_rest_goes_on(home, tmp_path, caplog):
    summary = run(tmp_path, jobs=0, data_home=home, only=["datasets", "emotions", "cal500"])
    assert summary.n_run == 1
    assert list(summary.missing) == ["cal500"]
    assert "cal500.arff" in summary.missing["cal500"]
    assert "cal500" in caplog.text


def test_a_cell_that_fails_does_not_stop_the_others(home, tmp_path, monkeypatch):
    works = work.RUNNERS["holdout"]

    def fails(cell, where):
        if cell.fold == 2:
            raise RuntimeError("no")
        return works(cell, where)

    monkeypatch.setitem(work.RUNNERS, "holdout", fails)
    summary = knn_run(tmp_path, home)
    assert summary.n_run == 4
    assert list(summary.failed.values()) == ["RuntimeError: no"]
    monkeypatch.undo()
    assert knn_run(tmp_path, home).n_run == 1


def test_an_unknown_name_is_rejected(tmp_path):
    with pytest.raises(ValueError, match="got \\['emotion'\\]"):
        run(tmp_path, only=["emotion"])


def test_progress_counts_to_the_end_and_knows_the_time_after_the_first_cell(home, tmp_path):
    calls = []
    knn_run(tmp_path, home, progress=lambda *call: calls.append(call))
    assert [call[:2] for call in calls] == [(k, 5) for k in range(6)]
    assert math.isnan(calls[0][2])
    assert all(math.isfinite(call[2]) for call in calls[1:])
    assert calls[-1][2] == 0


def test_seconds_left_are_weighted_by_size():
    small, large = Cell("holdout", "emotions", "knn"), Cell("holdout", "corel5k", "knn")
    clock = runner._Clock([large], {small: 2.0}, jobs=1)
    assert clock.seconds_left() == pytest.approx(2.0 * large.size / small.size)


def test_seconds_left_are_not_less_than_those_of_the_longest_cell():
    done = Cell("holdout", "corel5k", "knn", 0)
    left = [Cell("holdout", "corel5k", "knn", 1), Cell("holdout", "emotions", "knn", 1)]
    assert runner._Clock(left, {done: 9.0}, jobs=2).seconds_left() == pytest.approx(9.0)


_SLOW_RUN = """
import sys, time
from tagstream import models, paper
from tagstream.paper import work
works = work.RUNNERS["holdout"]
def slowly(cell, home):
    if cell.fold == 3:
        time.sleep(600)
    return works(cell, home)
work.RUNNERS["holdout"] = slowly
paper.run(sys.argv[1], jobs=0, data_home=sys.argv[2], only=["holdout", "emotions", "knn"])
"""


def test_a_killed_run_goes_on_where_it_was(home, tmp_path):
    path = tmp_path / "holdout-emotions.jsonl"
    process = subprocess.Popen([sys.executable, "-c", _SLOW_RUN, str(tmp_path), str(home)])
    try:
        _wait_for(lambda: len(list(read_records(path))) == 3, process)
    finally:
        process.kill()
        process.wait()
    summary = knn_run(tmp_path, home)
    assert (summary.n_run, summary.n_kept) == (2, 3)
    assert [r["fold"] for r in read_records(path)] == [0, 1, 2, 3, 4]


_PARALLEL_RUN = """
import sys
from tagstream import models, paper
if __name__ == "__main__":
    paper.run(sys.argv[1], jobs=2, data_home=sys.argv[2],
                    only=["holdout", "emotions", *sys.argv[3:]])
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc")
def test_processes_end_with_the_run_that_started_them(home, tmp_path):
    script = tmp_path / "go.py"
    script.write_text(_PARALLEL_RUN)
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path / "r"), str(home)])
    try:
        _wait_for(lambda: len(_children(process.pid)) >= 2, process)
        children = _children(process.pid)
        path = tmp_path / "r" / "holdout-emotions.jsonl"
        _wait_for(lambda: len(list(read_records(path))) >= 1, process)
    finally:
        process.kill()
        process.wait()
    _wait_for(lambda: not any(_alive(pid) for pid in children))


@pytest.mark.slow
def test_processes_give_the_same_results_as_one(home, tmp_path):
    script = tmp_path / "go.py"
    script.write_text(_PARALLEL_RUN)
    where = [str(tmp_path / "r"), str(home)]
    subprocess.run([sys.executable, str(script), *where, "knn"], check=True)
    knn_run(tmp_path / "s", home)
    one, two = (
        [r["result"]["counts"] for r in read_records(tmp_path / name / "holdout-emotions.jsonl")]
        for name in "rs"
    )
    assert one == two
    assert len(one) == 5


def _children(pid):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
                with open(f"/proc/{entry}/cmdline") as file:
                    spawned = "spawn_main" in file.read()
            except OSError:
                continue
            if parent == pid and spawned:
                found.append(int(entry))
    return found


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _wait_for(condition, process=None):
    """Wait as long as it takes, or until the process that is to bring it about has ended."""
    while not condition():
        assert process is None or process.poll() is None or condition()
        time.sleep(0.05)


# ---------------------------------------------------------------------- what the cells do
def test_a_holdout_cell_is_one_fold_of_evaluate_holdout(home):
    found = data.load("emotions", data_home=home)
    whole = evaluate.holdout(models.KNN(), found.X, found.Y, folds=5)
    for fold in range(5):
        result = work._holdout(Cell("holdout", "emotions", "knn", fold), str(home))
        assert result["counts"] == whole.folds[fold].counts


def test_a_repeat_is_one_repeat_of_evaluate_holdout(home):
    found = data.load("emotions", data_home=home)
    whole = evaluate.holdout(models.KNN(), found.X, found.Y, repeats=3, scores=False)
    result = work._repeats(Cell("repeats", "emotions", "knn", 2), str(home))
    expected = [fold.measures for fold in whole.folds if fold.repeat == 2]
    for measure, values in result.items():
        np.testing.assert_allclose(values, [fold[measure] for fold in expected], atol=1e-6)


def test_one_pass_is_scored_by_several_decisions(home):
    found = data.load("emotions", data_home=home)
    result = work._repeats(Cell("repeats", "emotions", "oml-decisions", 1), str(home))
    assert set(result["by_rule"]) == {"f1", "hamming", "macro"}
    train = np.flatnonzero(evaluate.iterative_folds(found.Y, 5, (0, 1)) != 4)
    train = np.random.default_rng((0, 1, 4)).permutation(train)
    test = np.setdiff1d(np.arange(len(found.Y)), train)
    last = models.OML(decide="macro", random_state=4)
    fold = evaluate.train_test(lambda n: last, found.X, found.Y, train, test, init=plan.INIT)
    assert result["by_rule"]["macro"]["macro_f1"][4] == round(fold.measures["macro_f1"], 6)


@pytest.mark.parametrize(
    "part",
    ["datasets", "repeats", "splits", "prequential", "labels", "bound", "delays", "guarantee"],
)
def test_every_part_gives_a_record_that_is_json(home, part):
    name = "medical" if part in ("prequential", "delays") else "emotions"
    cell = next(c for c in grid() if (c.part, c.dataset) == (part, name) and c.method != "ml-knn")
    if part == "splits":  # the stand-in is shorter than the split of the real one
        data_set = work.load(name, str(home))
        object.__setattr__(data_set, "n_train", 60)
    record = work.run_cell(cell, str(home))
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["key"] == cell.key


def test_a_scaling_cell_measures_positive_times(monkeypatch):
    cell = next(c for c in grid() if c.part == "scaling" and c.method == "knn")
    small = dataclasses.replace(
        cell, setting=(("axis", "n"), ("d", 3), ("n", 300), ("p", 10), ("q", 8))
    )
    result = work._scaling(small, None)
    assert 0 < result["learn"] < 1
    assert 0 < result["predict"] < 1


def test_a_stream_may_be_cut_and_is_looked_at_every_hundred_items(home, monkeypatch):
    monkeypatch.setattr(work, "EVERY", 20)
    whole = work._prequential(Cell("prequential", "medical", "knn"), str(home))
    assert whole["curve"]["n_items"] == [20, 40, 60, 80, 90]
    cell = Cell("prequential", "medical", "knn", 0, (("first", 50),))
    cut = work._prequential(cell, str(home))
    assert cut["curve"]["n_items"] == [20, 40, 50]
    assert cut["n_items"] == 50
    same = [curve["curve"]["cumulative"]["micro_f1"][:2] for curve in (whole, cut)]
    assert same[0] == same[1]


def test_a_delay_of_the_grid_is_shorter_than_its_stream():
    cells = [cell for cell in grid() if cell.part == "delays"]
    settings = {(cell.dataset, *(dict(cell.setting)[name] for name in ("delay", "first")))
                for cell in cells}  # fmt: skip
    assert {name for name, _, _ in settings} == set(plan.DELAYED)
    assert all(delay < first <= 2000 for _, delay, first in settings)
    assert ("medical", 100, 978) in settings
    assert len(cells) == 3 * len(settings) == 3 * (4 * 3 - 1)


def test_the_learner_is_told_of_the_delay_or_not(home, monkeypatch):
    lags = []
    make = plan.Method.make

    def remember(method, n_init, seed):
        lags.append((method.name, made := make(method, n_init, seed)))
        return made

    monkeypatch.setattr(plan.Method, "make", remember)
    for method in paper.METHODS["delays"]:
        setting = (("delay", 10), ("first", 60))
        result = work._delays(Cell("delays", "medical", method, 0, setting), str(home))
        assert result["n_items"] == 60
        assert 0 <= result["micro_f1"] <= 1
    assert {name: made.lag for name, made in lags} == {
        "oml": 10, "oml-unaware": 0, "oml-vote": 10
    }  # fmt: skip


# ---------------------------------------------------------------------- offline learners
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", offline.KINDS)
def test_offline_learners_learn_and_set_constant_labels_aside(kind, sparse):
    stream = data.make_stream(260, p=12, q=8, sparse=sparse, seed=2)
    Y = np.hstack([stream.Y, np.zeros((260, 1), np.uint8), np.ones((260, 1), np.uint8)])
    model = offline.Offline(kind).fit(stream.X[:200], Y[:200])
    labels = model.predict(stream.X[200:])
    assert labels.shape == (60, 10)
    assert not labels[:, 8].any()  # a label that was never there, and one that always was
    assert labels[:, 9].all()
    ours = evaluate.MultiLabelScores().update(Y[200:, :8], labels[:, :8])
    assert ours["micro_f1"] > 0.4
    cautious = model.predict(stream.X[200:], best_for="hamming")[:, :8]
    assert (cautious != Y[200:, :8]).mean() < Y[200:, :8].mean()  # better than predicting nothing
    proba = hasattr(model, "predict_proba")
    assert proba == (kind in ("logistic", "forest"))
    if proba:
        assert 0 <= model.predict_proba(stream.X).min() <= model.predict_proba(stream.X).max() <= 1
    again = offline.Offline(kind).fit(stream.X[:200], Y[:200])
    np.testing.assert_array_equal(again.predict(stream.X[200:]), labels)


def test_the_kernel_that_is_shared_is_that_of_the_svm():
    stream = data.make_stream(150, p=8, q=8, seed=3)
    model = offline.Offline("rbf-svm").fit(stream.X[:100], stream.Y[:100])
    X = (stream.X - stream.X[:100].mean(axis=0)) / stream.X[:100].std(axis=0)
    for j in range(3):
        plain = SVC().fit(X[:100], stream.Y[:100, j])
        expected = plain.decision_function(X[100:])
        np.testing.assert_allclose(model.scores(stream.X[100:])[:, j], expected, atol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_thresholds_are_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    Y = (rng.random((12, 3)) < 0.3).astype(int)
    Y[0, 0] = 1
    S = rng.integers(0, 8, size=Y.shape) / 8  # many ties
    found = offline.best_thresholds(Y, S)
    measures = {
        t: evaluate.MultiLabelScores().update(Y, (t <= S).astype(int)).as_dict()
        for t in [*np.unique(S), 2.0]
    }
    at = {
        what: evaluate.MultiLabelScores().update(Y, (t <= S).astype(int)).as_dict()
        for what, t in found.items()
    }
    assert at["f1"]["micro_f1"] == max(m["micro_f1"] for m in measures.values())
    assert at["hamming"]["hamming_loss"] == min(m["hamming_loss"] for m in measures.values())


def test_an_offline_cell_has_counts_for_both_thresholds(home):
    record = work.run_cell(Cell("holdout", "emotions", "offline-logistic", 1), str(home))
    result = json.loads(json.dumps(record, allow_nan=False))["result"]
    assert result["fitted"] == "batch"
    both = [
        evaluate.MultiLabelScores.from_counts(result[key]) for key in ("counts", "hamming_counts")
    ]
    assert both[0].n_rows == both[1].n_rows == result["n_test"]
    assert "log_loss" in both[0].as_dict()
    assert result["thresholds"]["f1"] <= result["thresholds"]["hamming"]


@pytest.mark.parametrize("sparse", [False, True])
def test_standardised_columns_have_deviation_one_over_the_training_rows(sparse):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 4)) * [1, 10, 100, 0]
    train = np.arange(0, 50, 2)
    scaled = work._standardised(sp.csr_matrix(X) if sparse else X, train)
    dense = scaled.toarray() if sparse else scaled
    np.testing.assert_allclose(dense[train].std(axis=0), [1, 1, 1, 0], atol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_nearest_earlier_row_is_that_of_a_plain_search(sparse):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(300, 3)).astype(float)  # many equal rows
    found = bound._nearest_before(sp.csr_matrix(X) if sparse else X, 20)
    for t in range(20, 300):
        gaps = ((X[:t] - X[t]) ** 2).sum(axis=1)
        assert found[t - 20] == np.argmin(gaps)


def test_the_bounds_quantities_are_those_of_the_naive_matrices():
    rng = np.random.default_rng(3)
    q = 5
    rounds = [
        (rng.normal(size=q) / 3, *rng.integers(0, 2, size=(2, q)).astype(np.uint8))
        for _ in range(40)
    ]
    V_1 = rng.standard_normal((q, 2))
    rule = bound._RULES[0]
    played = bound._played(rule, V_1, q, rounds)
    # Naive: every matrix formed, the lemma as the proof uses it, with c = 0.
    path = [V_1]
    steps, loss = [], 0.0
    for z, y, y_nn in rounds:
        V, what = play_round(path[-1], z, y, y_nn, step="cubic", step_min=1e-5, step_max=1e5)
        path.append(V)
        steps.append(what.lam)
        loss += what.loss
    holds = {"first": 0, "last": 0}
    negative = 0
    for (z, y, y_nn), V, lam in zip(rounds, path[:-1], steps, strict=True):
        if lam > 0:
            A = np.outer(z - y_nn, z - y_nn) - np.outer(z - y, z - y)
            negative += np.sum(V * (A @ V)) < 0
            for name, U in (("first", V_1), ("last", path[-1])):
                left = 4 * lam * np.sum(U * (A.T @ V)) - 4 * lam**2 * np.sum((A.T @ V) ** 2)
                holds[name] += left >= 5 * lam * np.sum(V * (A.T @ V))
    assert played["cumulative_loss"] == pytest.approx(loss)
    assert played["n_active"] == np.count_nonzero(steps)
    assert played["n_lemma_first"] == holds["first"]
    assert played["n_lemma_last"] == holds["last"]
    assert played["n_negative"] == negative
    assert played["distance_last"] == pytest.approx(np.sum((path[-1] - V_1) ** 2))


def test_c_is_zero_when_there_are_more_than_two_labels():
    rng = np.random.default_rng(0)

    def rounds(q):
        y = np.eye(q, dtype=np.uint8)
        return [(rng.normal(size=q), y[0], y[1]) for _ in range(5)]

    assert bound._smallest_singular_value(rounds(3))["c"] == 0
    assert bound._smallest_singular_value(rounds(3))["rank_A"] == 2
    assert bound._smallest_singular_value(rounds(2))["c"] > 0
