"""From records to figures, tables and pages: arithmetic, files, and nothing typed by hand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from tagstream import paper
from tagstream import records as data
from tagstream.evaluate import holdout, prequential
from tagstream.metrics import MultiLabelScores
from tagstream.models import KNN
from tagstream.paper import MEASURES, Results, Table, count_wins, plan, update_markers
from tagstream.paper import results as counted


def record(part, dataset, method, result, fold=0, **more):
    title = {"oml": "OML", "knn": "kNN", "olansgd": "OLANSGD"}.get(method, method)
    names = {"part": part, "dataset": dataset, "method": method, "fold": fold}
    key = f"{part}-{dataset}-{method}-{fold}-{sorted(more.items())}"
    rest = {"title": title, "setting": {}, "params": {}, "versions": {"tagstream": "0"}}
    return {"key": key, **names, **rest, "seconds": 1.0, "result": result, **more}


def counts(n_wrong, q=4, n=20):
    """Counts of predictions that miss the first label of the first ``n_wrong`` rows."""
    true = np.tile(np.eye(q, dtype=int)[0] + np.eye(q, dtype=int)[1], (n, 1))
    pred = true.copy()
    pred[:n_wrong, 0] = 0
    return MultiLabelScores().update(true, pred).to_counts()


def fold_of(dataset, method, fold, n_wrong):
    times = {"n_train": 80, "n_test": 20, "learn_seconds": 0.1, "predict_seconds": 0.1}
    result = {"counts": counts(n_wrong), "nbytes": 10, **times}
    return record("holdout", dataset, method, result, fold)


def made_of(*records):
    results = Results()
    for one in records:
        results.records.setdefault(one["part"], []).append(one)
    return results


def write(folder, results):
    for part, records in results.records.items():
        lines = "".join(json.dumps(one) + "\n" for one in records)
        (folder / f"{part}.jsonl").write_text(lines)


def repeat_of(method, again, values):
    result = dict.fromkeys(counted.MEASURES, values) | {"hamming_loss": [1 - v for v in values]}
    return record("repeats", "emotions", method, result, again)


def test_repeats_are_joined_with_the_holdout_and_compared_one_by_one():
    results = made_of(
        *(
            fold_of("emotions", m, f, wrong)
            for m, wrong in (("oml", 1), ("knn", 2))
            for f in (0, 1)
        ),
        repeat_of("oml", 1, [0.4, 0.6]),
        repeat_of("knn", 1, [0.3, 0.8]),  # this time kNN is better
    )
    ours, theirs = (results.repeats["emotions", m]["micro_f1"] for m in ("oml", "knn"))
    np.testing.assert_allclose(ours[1:], 0.5)
    np.testing.assert_allclose(theirs[1:], 0.55)
    assert ours[0] == results.holdout["emotions", "oml"]["micro_f1"].mean()
    late = made_of(*results.part("holdout"), repeat_of("oml", 2, [0.1]), repeat_of("oml", 1, [0.9]))
    assert late.repeats["emotions", "oml"]["micro_f1"][1:].tolist() == [0.9, 0.1]  # as numbered
    table = paper.make_tables(results)["repeats"]
    (row,) = table.rows
    assert row[0] == "emotions"
    assert not any("**" in cell for cell in row)
    assert f"({counted.as_text(theirs.mean())})" in row[table.head.index("micro-F1")]
    always = made_of(
        *results.part("holdout"), repeat_of("oml", 1, [0.9]), repeat_of("knn", 1, [0.1])
    )
    assert "4 cells" in paper.make_tables(always)["repeats"].note


def decisions_of(again, **values):
    by_rule = {rule: repeat_of("oml", again, [v])["result"] for rule, v in values.items()}
    result = repeat_of("oml", again, [0.5])["result"] | {"by_rule": by_rule}
    return record("repeats", "emotions", "oml-decisions", result, again)


def test_one_record_with_several_decisions_counts_for_each_and_for_the_one_that_fits():
    methods = ("oml", "oml-f1", "oml-hamming", "oml-macro", "oml-vote")
    folds = [fold_of("emotions", m, f, 1) for m in methods for f in (0, 1)]
    several = [decisions_of(k, f1=0.7, hamming=0.9, macro=0.8) for k in (1, 2)]
    results = made_of(*folds, *several)
    fitting = results.repeats["emotions", counted.FITTING]
    np.testing.assert_allclose(fitting["micro_f1"][1:], 0.7)
    np.testing.assert_allclose(fitting["macro_f1"][1:], 0.8)
    np.testing.assert_allclose(fitting["hamming_loss"][1:], 0.1)
    assert ("emotions", "oml-decisions") not in results.repeats
    votes = [repeat_of("oml-vote", k, [0.6 + 0.01 * k]) for k in (1, 2)]
    ours = [repeat_of("oml", k, [0.1]) for k in (1, 2)]
    made = paper.make_tables(made_of(*folds, *several, *votes, *ours))
    assert "OML, deciding for the measure minus" in made["repeats_fitting"].note
    assert made["trade"] == ""  # three divisions, the first of them equal: no more than chance
    steady = [
        repeat_of(m, k, [v]) for m, v in (("oml-vote", 0.6), ("oml", 0.1)) for k in range(1, 10)
    ]
    trade = paper.make_tables(made_of(*folds, *several, *steady))["trade"]
    assert trade.rows[0][0] == "emotions macro-F1"


def test_rivals_are_compared_over_the_divisions_that_there_are():
    rivals = (*counted.KNN, *counted.ELM, *counted.OLANSGD)
    ours = ("oml", "oml-f1", "oml-hamming", "oml-macro")
    folds = [fold_of("emotions", m, f, 1) for m in ours for f in (0, 1)]
    folds += [fold_of("emotions", m, f, 3) for m in rivals for f in (0, 1)]
    table = paper.make_tables(
        made_of(*folds, repeat_of("oml", 1, [0.9]), repeat_of("knn", 1, [0.1]))
    )
    rows = table["repeats_rivals"].rows
    assert [row[:2] for row in rows] == [("emotions", title) for title in counted.MEASURES.values()]
    note = table["repeats_rivals"].note
    assert (
        "OML, deciding for the measure (1 division) is better than the better kNN in 4 of 4" in note
    )
    assert (
        paper.make_tables(made_of(*folds[:-2], repeat_of("oml", 1, [0.9])))["repeats_rivals"] == ""
    )


def test_who_gives_everything_is_told_where_that_would_be_best():
    few, many = (fold_of("emotions", "oml", 0, wrong) for wrong in (0, 4))
    assert paper.make_tables(made_of(few))["verdict_everything"] == ""
    many["result"]["counts"]["labels"]["hit"] = [0] * len(many["result"]["counts"]["labels"]["hit"])
    assert (
        "every label to every item has a macro-F1 on emotions"
        in (paper.make_tables(made_of(many))["verdict_everything"])
    )


def test_the_first_fold_is_counted_alone():
    wrong = {("oml", 0): 3, ("knn", 0): 2, ("oml", 1): 0, ("knn", 1): 9}  # worse, then far better
    results = made_of(*(fold_of("emotions", m, f, n) for (m, f), n in wrong.items()))
    made = paper.make_tables(results)
    assert "better than kNN in 4 of 4" in made["verdict_knn"]
    assert "in 0 of 4 cells, not in: emotions macro-F1" in made["verdict_unseen"]


# ---------------------------------------------------------------------- names on both sides
def test_names_of_the_report_are_those_of_the_experiments():
    assert counted.PAPER_DATA == paper.PAPER_DATA
    assert tuple(method.name for method in paper.BASELINES) == counted.MAIN
    assert tuple(method.name for method in paper.ABLATION) == counted.ABLATION
    assert {*counted.STREAM_ORDER, *counted.CONVEX} == set(paper.METHODS["prequential"])
    assert set(counted.CONVEX) <= set(paper.METHODS["repeats"])
    assert set(counted.PRINTED_FOR) == set(paper.METHODS["scaling"])
    assert tuple(method.name for method in paper.OFFLINE) == counted.OFFLINE
    assert set(counted.ONLINE) <= set(paper.METHODS["holdout"])
    assert set(paper.STREAMS) > set(counted.published()["prequential"]["values"])
    assert set(counted.DELAY_ORDER) == set(paper.METHODS["delays"])
    assert counted.TEXT_RIVAL in paper.METHODS["text"]
    assert {*counted.PROMISED_F1, *counted.VAGUE} == set(plan.NEW_TAGS)
    assert {m for m in paper.METHODS["scenarios"] if m.startswith("sgd")} == set(counted.SGD)
    assert plan.EXAMPLES[1] == 5  # what is promised of five examples
    printed = counted.published()["paper"]
    assert set(printed["datasets"]) == set(counted.PAPER_DATA)
    assert set(counted.PRINTED_FOR.values()) == set(printed["complexity"])


def test_the_report_does_not_import_what_it_reports_on():
    code = (
        "import sys; from tagstream.paper import Results, build, make_figures, make_tables; "
        "print([m for m in sys.modules if m.startswith(('tagstream.paper.plan', "
        "'tagstream.paper.runner', 'tagstream.models', 'matplotlib', 'numba'))])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert answer.stdout.strip() == "[]"


def test_every_exported_name_of_the_paper_is_there():
    assert sorted(paper._HOMES) == sorted(paper.__all__)
    assert all(getattr(paper, name) is not None for name in paper.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        paper.nothing  # noqa: B018


# ---------------------------------------------------------------------- the scoreboard
def test_wins_are_counted_by_the_mean_over_the_folds():
    results = made_of(
        *(fold_of("emotions", "oml", f, wrong) for f, wrong in enumerate([2, 6])),
        *(fold_of("emotions", "knn", f, wrong) for f, wrong in enumerate([5, 5])),
    )
    wins = count_wins(results, "oml", ("knn",))
    assert (wins.cells, wins.total) == (4, 4)  # 4 of 20 wrong on average, against 5
    assert wins.every_fold == 0  # the second fold is lost
    assert (wins.datasets, wins.n_datasets) == (1, 1)


def test_the_best_rival_counts_and_equal_is_not_better():
    results = made_of(
        fold_of("emotions", "oml", 0, 3),
        fold_of("emotions", "knn", 0, 9),
        fold_of("emotions", "knn-standard", 0, 3),
        fold_of("scene", "oml", 0, 1),
        fold_of("scene", "knn", 0, 2),
        fold_of("scene", "knn-standard", 0, 5),
    )
    assert count_wins(results, "oml", ("knn",)).cells == 8
    both = count_wins(results, "oml", ("knn", "knn-standard"))
    assert (both.cells, both.total, both.datasets) == (4, 8, 1)
    assert both.lost == tuple(("emotions", measure) for measure in MEASURES)


def test_a_smaller_hamming_loss_is_better():
    results = made_of(fold_of("emotions", "oml", 0, 8), fold_of("emotions", "knn", 0, 2))
    assert results.best("emotions", ("oml", "knn"), "hamming_loss") == "knn"
    assert count_wins(results, "knn", ("oml",)).cells == 4


def test_slack_is_a_share_of_the_rivals_value():
    results = made_of(fold_of("emotions", "knn", 0, 10), fold_of("emotions", "olansgd", 0, 9))
    assert count_wins(results, "knn", ("olansgd",)).cells == 0
    # Hamming loss .125 against .1125: worse by 11 %; the F1 measures are worse by less than 10 %.
    assert count_wins(results, "knn", ("olansgd",), slack=0.1).cells == 3
    assert count_wins(results, "knn", ("olansgd",), slack=0.12).cells == 4


def test_the_best_published_value_and_its_holder():
    assert counted.best_published("scene", "micro_f1") == (0.923, ["AESAKNNS"])
    loss, holders = counted.best_published("scene", "hamming_loss")
    assert loss == pytest.approx(1 - 0.973)
    assert holders == ["AESAKNNS"]
    assert counted.best_published("yeast", "micro_f1") is None


# ---------------------------------------------------------------------- offline, calibration
def test_an_offline_learner_is_judged_by_the_threshold_for_each_measure():
    ours, theirs = fold_of("emotions", "oml", 0, 5), fold_of("emotions", "offline-forest", 0, 4)
    theirs["result"]["hamming_counts"] = counts(2)
    results = made_of(ours, fold_of("emotions", "oml", 1, 5), theirs)
    values = results.holdout["emotions", "offline-forest"]
    assert values["hamming_loss"] == pytest.approx([2 / 80])
    assert values["micro_f1"] == pytest.approx([2 * 36 / (40 + 36)])
    made = paper.make_tables(results)
    losses = next(row for row in made["offline"].rows if row[1] == "Hamming loss")
    assert losses == ("emotions", "Hamming loss", ".0625", "**.0250**")
    assert "Not all folds: offline-forest on emotions (1 fold)" in made["offline"].note
    assert "0 of 4" in next(row for row in made["claims"].rows if "offline" in row[0])[2]
    assert "offline" not in paper.make_tables(made_of(ours))


def test_oml_may_decide_for_the_measure():
    wrong = {"oml": 5, "oml-f1": 2, "oml-hamming": 1, "oml-macro": 3, "knn": 4}
    results = made_of(*(fold_of("emotions", m, 0, n) for m, n in wrong.items()))
    values = results.holdout["emotions", counted.FITTING]
    assert values["hamming_loss"] == pytest.approx([1 / 80])
    for measure, method in (("micro_f1", "oml-f1"), ("macro_f1", "oml-macro")):
        assert values[measure] == results.holdout["emotions", method][measure]
    rows = {row[0]: row[2] for row in paper.make_tables(results)["claims"].rows}
    assert rows["OML better than kNN"] == "**0 of 4**"
    assert rows["OML, deciding for the measure, better than the better kNN"] == "**4 of 4**"


def test_calibration_is_shown_of_those_who_give_probabilities():
    ours, theirs = fold_of("emotions", "oml", 0, 5), fold_of("emotions", "knn", 0, 4)
    assert "calibration" not in paper.make_tables(made_of(ours, theirs))
    true = np.array([[1, 0], [1, 1]])
    scores = MultiLabelScores().update(true, true, np.full((2, 2), 0.8))
    ours["result"]["counts"] = scores.to_counts()
    table = paper.make_tables(made_of(ours, theirs))["calibration"]
    assert table.head == ("data set", "OML")
    expected = -(3 * np.log(0.8) + np.log(0.2)) / 4
    assert table.rows == (("emotions", f"{expected:.4f} (0.0500)"),)


def test_a_stream_without_published_values_is_shown_and_not_counted():
    curve = {"n_items": [100], "recent": {"micro_f1": [0.5]}}
    faded = {"micro_f1": 0.999, "hamming_loss": 0.0}
    result = {"fading": faded, "curve": curve}
    streams = [
        record("prequential", "scene", "oml", result),
        record("prequential", "tmc2007-500", "oml", result, setting={"first": 6000}),
    ]
    made = paper.make_tables(made_of(*streams))
    table = made["prequential"]
    assert [row[2] for row in table.rows] == ["**0.999**", "**0.000**", "0.999", "0.000"]
    assert table.rows[2][-2:] == ("–", "–")
    assert "tmc2007-500: the first 6,000 items" in table.note
    assert "in 2 of 2 cells" in made["verdict_prequential"]


# ---------------------------------------------------------------------- findings are computed
def sized(name, *sizes):
    result = dict(zip("npq", sizes, strict=True))
    result |= {"domain": "made up", "cardinality": 1.0, "distinct_sets": 2, "sparse": False}
    return record("datasets", name, "", result)


def test_whose_sizes_were_printed_is_found_among_the_data():
    image, yeast = sized("image", 2000, 294, 5), sized("yeast", 2417, 103, 14)
    said = paper.make_tables(made_of(image, yeast))["verdict_datasets"]
    assert said.endswith("; image do not: the sizes printed are those of Yeast.")
    alone = paper.make_tables(made_of(image, sized("scene", 2407, 294, 6)))["verdict_datasets"]
    assert alone == (
        "**It does not reproduce.** 1 of 2 data sets have the sizes that are printed; image do not."
    )
    assert "verdict_datasets" not in paper.make_tables(made_of(fold_of("image", "oml", 0, 1)))


def test_a_bound_that_is_finite_somewhere_says_something():
    run = {"name": "paper", "n_active": 4, "n_lemma_first": 4, "n_lemma_last": 3, "n_negative": 0}
    run |= {"cumulative_loss": 5.0, "distance_last": 2.0, "largest_last": 1.0}
    runs = [run, *({**run, "name": name} for name in ("proof", "default step"))]
    result = {
        "T": 9,
        "q": 3,
        "norm_P": 1.0,
        "r": 1.0,
        "rank_A": 2,
        "c": 0.5,
        "m": 0.1,
        "runs": runs,
    }
    finite = record("bound", "scene", "oml", result)
    infinite = record("bound", "yeast", "oml", {**result, "c": 0})
    made = paper.make_tables(made_of(finite, infinite))
    said = made["verdict_bound"]
    assert said.startswith("**The bound says something here.** A has rank 2, so for q > 2 its c is")
    assert "is 0 on 1 of 2 data sets" in said
    assert [row[-1] for row in made["bound"].rows] == ["320", "∞"]
    assert "c²‖V‖², which is larger" in made["lemma"].note
    assert "c²‖V‖² = 0, which" in paper.make_tables(made_of(infinite))["lemma"].note


# ---------------------------------------------------------------------- learning at once
def corrected(method, fold, same, others, refitted=None):
    at_once = {"same": same, "paraphrase": 0.8, "others": others}
    again = {**at_once, "others": others if refitted is None else refitted}
    look = {"n_shown": 300, "at_once": at_once, "refitted": again}
    result = {"before": 0.5, "counts": [200], "looks": [look]}
    return record("scenarios", "goemotions-dev", method, result, fold)


def test_promises_about_corrections_are_judged_by_the_mean_over_the_draws():
    kept = made_of(
        corrected("oml", 0, 1.0, 0.49), corrected("oml", 1, 0.96, 0.51),
        corrected("oml-vote", 0, 0.04, 0.5),
    )  # fmt: skip
    made = paper.make_tables(kept)
    assert made["verdict_corrections"].startswith("**Kept: 6 of 6 promises.**")
    assert "4.0% to 4.0%" in made["verdict_corrections"]
    assert "in 2 of 2 looks the other items lose more" in made["verdict_corrections"]
    assert made["corrections"].rows[0][3:] == (
        *("98.0%", "80.0%", "0.5000 → 0.5000", "-0.0100 … +0.0100"),
    )
    broken = made_of(corrected("oml", 0, 0.9, 0.5, refitted=0.49))
    assert paper.make_tables(broken)["verdict_corrections"] == (
        "**Kept: 3 of 6 promises.** Not: same 90.0% (200 corrections, at once); same 90.0% "
        "(200 corrections, after the next fit); other items −0.0100 (200 corrections, after the "
        "next fit). Means over the orders; in 1 of 2 looks the other items lose more than is "
        "promised in some single order."
    )


def new_tag(tag, method, rule, f1, alarms=0.0):
    found = {"f1": [f1, f1], "false_alarms": [[alarms] * len(f1)] * 2, "refitted": [0.5, 0.7]}
    result = {"counts": [1, 5, 10][: len(f1)], "n_positive": 9, "rules": {rule: found}}
    return record("scenarios", "goemotions-dev", method, result, setting={"tag": tag})


def test_what_is_learnt_of_new_tags_is_judged_apart_from_what_is_decided():
    ours, theirs = (new_tag("relief", m, r, [0.1, 0.1]) for m, r in
                    (("oml", "balanced"), ("sgd", "0.5")))  # fmt: skip
    assert paper.make_tables(made_of(ours, theirs))["new_tags_ranked"] == ""
    for one, values in ((ours, [0.5, 0.2]), (theirs, [0.4, 0.3])):
        one["result"] |= {"average_precision": [values] * 2, "f1_at_same_price": [values] * 2}
    made = paper.make_tables(made_of(ours, theirs))
    assert made["new_tags_ranked"].rows[0][2:] == (".500 / .500", ".200 / .200")
    said = made["verdict_new_tags_ranked"]
    assert said.count("in 1 of 2 cells (not: relief after 5 (.200 against .300))") == 2


def test_promises_about_new_tags_are_judged_after_five_examples():
    made = paper.make_tables(
        made_of(
            new_tag("made-up phrase", "oml", "balanced", [0.1, 0.85, 1.0]),
            new_tag("gratitude", "oml", "balanced", [0.9, 0.645, 0.9], alarms=0.02),
            new_tag("relief", "oml", "balanced", [0.3, 0.2]),
            new_tag("relief", "sgd", "0.5", [0.1, 0.4]),
            new_tag("relief", "sgd-5", "0.5", [0.2, 0.3]),
        )
    )
    assert made["verdict_new_tags"] == (
        "**Kept: 3 of 6 promises.** Not: gratitude after five examples .645, not .700; false "
        "alarms of gratitude 2.0%; relief worse than the best online SGD after 5 (.200 against "
        ".400). A fit of P just after five examples takes much away again: made-up phrase .850 → "
        ".600."
    )
    assert made["new_tags"].rows[2][2:] == (".300", ".200", "–", ".600", "0.00%")
    assert made["new_tags"].rows[3][5] == "–"


def tagged(method, fold, hits, stream=False):
    Y = np.eye(4, dtype=np.uint8)
    said = np.eye(4, dtype=np.uint8)
    said[hits:] = 0
    counts = MultiLabelScores(k=(1, 3)).update(Y, said, 0.5 * said).to_counts()
    setting = {"stream": True} if stream else {}
    return record("text", "goemotions-dev", method, {"counts": counts}, fold, setting=setting)


def test_a_tagger_is_compared_with_tfidf_fold_by_fold():
    ahead = [tagged("tagger", 0, 4), tagged("tagger", 1, 3), tagged("tfidf-logistic", 0, 2)]
    ahead += [tagged("tfidf-logistic", 1, 3), tagged("tagger", 0, 3, stream=True)]
    made = paper.make_tables(made_of(*ahead))
    assert made["verdict_text"].startswith("**The tagger is ahead of TF-IDF")
    assert "micro-F1 .929 against .762, better in 1 of 2 folds" in made["verdict_text"]
    assert [row[0] for row in made["text"].rows] == ["hold-out", "hold-out", "stream"]
    assert made["text"].rows[0][2] == ".929 ± .101"
    behind = made_of(tagged("tagger", 0, 2), tagged("tfidf-logistic", 0, 3))
    assert "is not ahead everywhere" in paper.make_tables(behind)["verdict_text"]
    alone = paper.make_tables(made_of(tagged("tagger", 0, 2)))
    assert "needs the tagger and TF-IDF" in alone["verdict_text"]


def late(method, delay, value):
    return record("delays", "scene", method, {"micro_f1": value}, setting={"delay": delay})


def test_a_head_that_is_worse_than_the_vote_is_named():
    never = made_of(late("oml", 10, 0.6), late("oml-unaware", 10, 0.4), late("oml-vote", 10, 0.5))
    made = paper.make_tables(never)
    assert made["verdict_delays"] == (
        "**Told of the delay, the head is never worse than the plain vote**. Not told, it is "
        "worse in 1 of 1."
    )
    assert made["delays"].rows == (("scene", "10", ".600", ".400", ".500"),)
    once = made_of(*never.part("delays"), late("oml", 100, 0.3), late("oml-vote", 100, 0.5))
    said = paper.make_tables(once)["verdict_delays"]
    assert "in 1 of 2 cells**: scene, delay 100 (.300 against .500)." in said


def test_a_bound_that_is_passed_is_said_to_be():
    curve = {"n_items": [5, 9], "squared_loss": [3.0, 8.0], "identity_loss": [3.0, 10.0]}
    curve |= {"bound": [4.0, 12.0], "best_bound": [9.0, 9.0]}
    result = {"T": 8, "q": 3, "C": 0.1, "largest": 1.0, "squared_loss": 8.0, "bound": 12.0}
    result |= {"identity_loss": 10.0, "curve": curve}
    result["best"] = {"bound": 9.0, "gap": 0.0, "loss": 7.0, "distance": 0.5}
    results = made_of(record("guarantee", "emotions", "oml-convex", result))
    made = paper.make_tables(results)
    assert made["verdict_guarantee"].startswith("**The bound holds**: on 1 data sets")
    assert "50% to 50% above the loss" in made["verdict_guarantee"]
    assert made["guarantee"].rows == (
        ("emotions", "8", "**8**", "10", "12", "1.200", "7", "0.50", "9", "–"),
    )
    curve["bound"][0] = 2.0
    assert "passes 1 of 2 bounds" in paper.make_tables(results)["verdict_guarantee"]


# ---------------------------------------------------------------------- tables
def test_a_table_is_the_same_in_both_languages():
    table = Table(("name", "value"), (("a & b", "**1.5**"), ("c", "2")), "note")
    assert table.markdown().splitlines() == [
        "| name | value |",
        "| --- | ---: |",
        "| a & b | **1.5** |",
        "| c | 2 |",
        "",
        "note",
    ]
    assert "<b>1.5</b>" in table.html()
    assert "a &amp; b" in table.html()


def test_half_written_lines_are_passed_over_and_the_last_record_of_a_key_counts(tmp_path):
    write(tmp_path, made_of(fold_of("emotions", "oml", 0, 8), fold_of("emotions", "oml", 0, 2)))
    with (tmp_path / "holdout.jsonl").open("a") as file:
        file.write('{"key": "x", "part": "holdo')
    results = Results.read(tmp_path)
    assert len(results.part("holdout")) == 1
    expected = 2 / (20 * 4)
    assert results.holdout["emotions", "oml"]["hamming_loss"] == pytest.approx([expected])


def test_an_empty_directory_says_how_to_fill_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="`tagstream reproduce` or `tagstream evaluate"):
        Results.read(tmp_path)


# ---------------------------------------------------------------------- results of one's own
@pytest.fixture(scope="module")
def own():
    """A hold-out and two streams of two learners, as dicts."""
    stream = data.make_stream(120, seed=0)
    return {
        "holdout": holdout(KNN(3), stream.X, stream.Y, folds=2).as_dict(),
        "stream": prequential(KNN(3), stream.X, stream.Y, every=40, window=40).as_dict(),
        "votes": prequential(KNN(9), stream.X, stream.Y, every=40, scores=False).as_dict(),
    }


def test_results_of_ones_own_are_read_in_every_form(own, tmp_path):
    lines = [{"name": "k = 3", "data": "mine", **own["holdout"]}, {"name": "a", **own["stream"]}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines) + "{half")
    (tmp_path / "b.json").write_text(json.dumps([{"name": "b", **own["votes"]}, {"other": 1}]))
    printed = {"data": "posts", "n": 120, "results": {"oml": own["stream"], "knn": own["votes"]}}
    (tmp_path / "c.json").write_text(json.dumps(printed))
    (tmp_path / "d.json.bak").write_text("{}")
    runs = Results.read(tmp_path).runs
    assert [(run.name, run.data, run.is_holdout) for run in runs] == [
        ("k = 3", "mine", True),
        ("a", "", False),
        ("b", "", False),
        ("oml", "posts", False),
        ("knn", "posts", False),
    ]


def test_a_report_of_ones_own_results_says_nothing_about_the_paper(own, tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps({"name": "k <3>", "data": "mine", **own["holdout"]}))
    printed = {"data": "posts", "results": {"oml": own["stream"], "knn": own["votes"]}}
    (folder / "b.json").write_text(json.dumps(printed))
    page = paper.build(folder, tmp_path / "out")
    text = page.read_text(encoding="utf-8")
    names = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert names == {
        f"own-{kind}-0.{end}" for kind in ("holdout", "stream") for end in ("svg", "png")
    }
    assert "k &lt;3&gt;" in text
    assert "reproduce" not in text
    assert "AAAI" not in text
    tables = paper.make_tables(Results.read(folder))
    assert set(tables) == {"run", "own_holdout", "own_stream"}
    (row,) = tables["own_holdout"].rows
    mean, std = (own["holdout"][what]["micro_f1"] for what in ("mean", "std"))
    assert row[tables["own_holdout"].head.index("micro-F1")] == (
        f"{counted.as_text(mean)} ± {counted.as_text(std)}"
    )
    at = tables["own_stream"].head.index("log loss")
    assert [row[at] == "–" for row in tables["own_stream"].rows] == [False, True]


def test_a_run_that_is_not_whole_is_named(own, tmp_path):
    part = {key: value for key, value in own["holdout"].items() if key != "std"}
    (tmp_path / "a.json").write_text(json.dumps({"name": "mine", **part}))
    with pytest.raises(ValueError, match=r"a.json: the record of 'mine' must have mean and std"):
        Results.read(tmp_path)


# ---------------------------------------------------------------------- marked regions
def test_marked_regions_are_rewritten_and_a_second_time_changes_nothing(tmp_path):
    path = tmp_path / "doc.md"
    path.write_text("a\n<!-- begin:x -->\nold\n<!-- end:x -->\nb <!-- begin:y -->\n1<!-- end:y -->")
    assert update_markers(path, {"x": Table(("h",), (("1",),)), "z": "unused"})
    once = path.read_text()
    assert once.startswith("a\n<!-- begin:x -->\n| h |\n| --- |\n| 1 |\n<!-- end:x -->\nb ")
    assert once.endswith("1<!-- end:y -->")
    assert not update_markers(path, {"x": Table(("h",), (("1",),))})
    assert path.read_text() == once


def test_a_region_without_an_end_is_an_error_and_changes_nothing(tmp_path):
    path = tmp_path / "doc.md"
    path.write_text("<!-- begin:x -->\nold\n")
    with pytest.raises(ValueError, match="each begin must have its end"):
        update_markers(path, {"x": "new"})
    assert path.read_text() == "<!-- begin:x -->\nold\n"


# ---------------------------------------------------------------------- files
class _Page(HTMLParser):
    """Collects what a page would load, and its ids."""

    def __init__(self):
        super().__init__()
        self.loads, self.ids, self.images = [], [], 0

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "src" or (name == "href" and tag in ("link", "image", "use")):
                self.loads.append(value)
            if name == "id":
                self.ids.append(value)
        self.images += tag == "svg"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A report made of a few cells that were really run on small stand-ins."""
    folder = tmp_path_factory.mktemp("built")
    stream = data.make_stream(90, p=12, q=45, sparse=True, seed=1)
    (folder / "medical").mkdir()
    data.write_arff(stream, folder / "medical" / "medical.arff")
    labels = "".join(f'<label name="{label}"/>' for label in stream.label_names)
    (folder / "medical" / "medical.xml").write_text(f"<labels>{labels}</labels>")
    parts = ["holdout", "prequential", "labels", "bound", "guarantee"]
    methods = ["oml", "knn", "osml-elm", "no-learning", "oml-convex"]
    for only in (["datasets"], [*parts, *methods]):
        chosen = [*only, "medical"]
        paper.run(folder / "r", jobs=0, data_home=folder, quick=True, only=chosen)
    document = folder / "docs" / "doc.md"
    document.parent.mkdir()
    document.write_text(
        "![](figures/figure-3.png)\n<!-- begin:claims -->\n<!-- end:claims -->\n"
        "<!-- begin:verdict_knn -->\n<!-- end:verdict_knn -->\n"
    )
    return paper.build(folder / "r", folder / "out", documents=[document]), document


def test_every_figure_is_there_as_svg_and_png(built):
    page, _ = built
    names = {path.stem for path in (page.parent / "figures").iterdir()}
    assert names == {
        *(f"figure-{k}" for k in range(1, 5)),
        *("scoreboard", "ablation", "prequential", "bound", "guarantee", "labels-medical"),
    }
    for name in names:
        png = (page.parent / "figures" / f"{name}.png").read_bytes()
        assert png.startswith(b"\x89PNG")
        tree = ElementTree.parse(page.parent / "figures" / f"{name}.svg")
        assert "medical" in "".join(tree.getroot().itertext())


def test_the_page_is_one_file_that_loads_nothing(built):
    page, _ = built
    text = page.read_text(encoding="utf-8")
    parsed = _Page()
    parsed.feed(text)
    assert all(load.startswith(("#", "data:")) for load in parsed.loads)
    assert "@import" not in text
    assert len(parsed.ids) == len(set(parsed.ids))
    assert parsed.images == 10


def test_references_inside_the_page_lead_somewhere(built):
    text = built[0].read_text(encoding="utf-8")
    ids = set(re.findall(r'\bid="([^"]+)"', text))
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= ids
    assert set(re.findall(r'href="#([^"]+)"', text)) <= ids


def test_documents_get_their_tables_and_the_figures_they_show(built):
    page, document = built
    text = document.read_text(encoding="utf-8")
    assert "OML better than kNN" in text
    assert "**`OML()`: it " in text
    copied = [path.name for path in (document.parent / "figures").iterdir()]
    assert copied == ["figure-3.png"]
    assert (page.parent / "tables" / "claims.md").read_text(encoding="utf-8").strip() in text


def test_the_same_results_give_the_same_files(built, tmp_path):
    page, _ = built
    results = Results.read(page.parent.parent / "r")
    only = made_of(*(r for r in results.part("holdout") if r["method"] in ("oml", "knn")))
    paper.make_figures(only, tmp_path / "a")
    paper.make_figures(only, tmp_path / "b")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_without_matplotlib_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"tagstream\[plot\]"):
        paper.make_figures(made_of(fold_of("emotions", "oml", 0, 1)), tmp_path)


def test_two_methods_are_compared_division_by_division():
    folds = [fold_of("emotions", m, f, 1) for m in ("oml", "oml-vote") for f in (0, 1)]
    gains = [
        *(repeat_of("oml", again, [0.5 + 0.001 * again]) for again in range(1, 10)),
        *(repeat_of("oml-vote", again, [0.4]) for again in range(1, 10)),
    ]
    table = paper.make_tables(made_of(*folds, *gains))["repeats_head"]
    (row,) = table.rows
    assert row[table.head.index("micro-F1")].startswith("**+.")
    assert row[table.head.index("Hamming loss")].startswith("**−.")
    assert "better in 4 of 4 cells, beyond chance in 4, and worse beyond chance in 0." in table.note
    swapped = [
        *(repeat_of("oml", again, [0.4]) for again in range(1, 10)),
        *(repeat_of("oml-vote", again, [0.5]) for again in range(1, 10)),
    ]
    note = paper.make_tables(made_of(*folds, *swapped))["repeats_head"].note
    assert "worse beyond chance in 4: emotions macro-F1" in note
    assert paper.make_tables(made_of(*folds, *gains))["repeats_convex"] == ""


# ------------------------------------------------------------------ tests of significance
def folder_of_runs(folder, n_streams, n_learners):
    rng = np.random.default_rng(0)
    folder.mkdir()
    for i in range(n_streams):
        for j in range(n_learners):
            value = 0.5 + 0.05 * j + 0.01 * rng.normal()
            measures = dict.fromkeys(paper.MEASURES, value)
            record = {
                "name": f"m{j}",
                "data": f"s{i}",
                "folds": [],
                "mean": measures,
                "std": measures,
            }
            (folder / f"{i}-{j}.json").write_text(json.dumps(record))
    return folder


def test_learners_of_a_folder_are_ranked_and_tested(tmp_path):
    from tagstream.paper.ranks import rank_table, rankings

    results = paper.Results.read(folder_of_runs(tmp_path / "runs", 8, 3))
    found = {test.name: test for test in rankings(results)}
    assert set(found) == {
        *("ranks-own-macro-f1", "ranks-own-example-f1", "ranks-own-micro-f1"),
        "ranks-own-hamming-loss",
    }
    assert found["ranks-own-micro-f1"].found.learners == ("m2", "m1", "m0")
    assert found["ranks-own-hamming-loss"].found.learners == ("m0", "m1", "m2")
    table = rank_table(*reversed(found["ranks-own-micro-f1"][1:]))
    assert table.rows[0][:2] == ("m2", "1.00")
    assert "Friedman" in table.note


def test_too_few_streams_are_told_and_not_drawn(tmp_path):
    from tagstream.paper.ranks import draw_rankings, draw_ranks, rank_table, rankings

    results = paper.Results.read(folder_of_runs(tmp_path / "runs", 2, 3))
    tests = list(rankings(results))
    assert all("Too few streams" in rank_table(t.found, t.title).note for t in tests)
    assert draw_rankings(tests, tmp_path, []) == {}
    with pytest.raises(ValueError, match="enough learners and streams"):
        draw_ranks(tests[0].found, tmp_path, "x", "x")


def test_ranks_are_drawn_with_ours_marked(tmp_path):
    from tagstream.paper.ranks import draw_ranks, has_diagrams, rankings

    results = paper.Results.read(folder_of_runs(tmp_path / "runs", 8, 3))
    test = next(iter(rankings(results)))
    drawn = draw_ranks(test.found, tmp_path, "ranks", test.title, ["m1"])
    assert drawn == ["ranks", "ranks-cd"][: 1 + has_diagrams()]
    for name in drawn:
        assert "m1" in (tmp_path / f"{name}.svg").read_text()
        assert (tmp_path / f"{name}.png").stat().st_size > 1000


def test_a_diagram_does_not_depend_on_the_order_of_a_set(tmp_path):
    from tagstream.paper.ranks import has_diagrams

    if not has_diagrams():
        pytest.skip("diagrams need scikit-posthocs; install tagstream[plot]")
    folder, drawn = folder_of_runs(tmp_path / "runs", 8, 5), []
    code = (
        "import sys; from pathlib import Path; from tagstream.paper.results import Results; "
        "from tagstream.paper.ranks import draw_rankings, rankings; "
        "draw_rankings([*rankings(Results.read(sys.argv[1]))], Path(sys.argv[2]), ['m1'])"
    )
    for seed in ("1", "2", "3"):
        out = tmp_path / seed
        out.mkdir()
        command = [sys.executable, "-c", code, str(folder), str(out)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        drawn.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert len(drawn[0]) == 8
    assert drawn[0] == drawn[1] == drawn[2]
