"""The command line, as a user meets it: files, pipes, messages, exit codes."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from shell import (
    SMALL,
    WORDS,
    is_one_line,
    posts,
    records_of,
    song_table,
    tagstream,
    without_ids,
    write_csv,
    write_jsonl,
)
from tagstream.cli import output
from tagstream.cli.model import Keeper
from tagstream.files import persist
from tagstream.tagger import Tagger


# ------------------------------------------------------------------ text, end to end
def test_posts_are_learnt_predicted_and_explained_without_a_matrix(run, tmp_path):
    write_jsonl(tmp_path / "posts.jsonl", posts(200))
    code, out, err = run("learn", "posts.jsonl", "--model", "m.tgs")
    assert (code, out) == (0, "")
    assert err == "200 records learnt; m.tgs has seen 200 and knows 3 tags\n"
    new = '{"text": "swim in the wave on the beach, sand and tide"}\n'
    code, out, _ = run("predict", "-", "--model", "m.tgs", stdin=new)
    assert (code, records_of(out)) == (0, [{"id": 0, "labels": ["sea"]}])
    code, out, _ = run("explain", "cook soup, eat bread, salt", "--model", "m.tgs")
    assert code == 0
    assert "food*" in out
    assert "nearest items" in out
    assert "*soup*" in out


def test_named_values_are_learnt_and_predicted(run, tmp_path):
    rng = random.Random(1)
    items = [{"x": {"wet": rng.random(), "where": "sea"}, "y": ["blue"]} for _ in range(40)]
    items += [{"x": {"dry": rng.random(), "where": "land"}, "y": ["green"]} for _ in range(40)]
    rng.shuffle(items)
    write_jsonl(tmp_path / "items.jsonl", items)
    assert run("learn", "items.jsonl", *SMALL, "--model", "m.tgs")[0] == 0
    ask = '{"x": {"wet": 0.5, "where": "sea"}}\n{"x": {"dry": 0.5, "where": "land"}}\n'
    out = run("predict", "-", "--model", "m.tgs", stdin=ask)[1]
    assert [record["labels"] for record in records_of(out)] == [["blue"], ["green"]]


def test_the_features_travel_with_the_model(run, tmp_path, learnt):
    assert Tagger.open(learnt).featurizer.n_features == 1024
    assert run("explain", "swim", "--model", learnt)[0] == 0
    args = ("learn", write_jsonl(tmp_path / "a.jsonl", posts(3)), "--model", learnt)
    code, _, err = run(*args, "--hash-bits", "12")
    assert code == 2
    assert "must stay 1024, got 4096" in err


def test_a_new_label_is_learnt_whenever_it_appears(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(60))
    late = [{"text": "snow ski ice frost", "y": ["winter"]}] * 30
    run("learn", "a.jsonl", *SMALL, "--model", "m.tgs")
    more = "".join(json.dumps(record) + "\n" for record in late)
    _, _, err = run("learn", "-", *SMALL, "--model", "m.tgs", stdin=more)
    assert "knows 4 tags" in err
    out = run("predict", "-", "-m", "m.tgs", stdin='{"text": "ice snow frost ski"}\n')[1]
    assert records_of(out)[0]["labels"] == ["winter"]


def test_records_without_labels_are_passed_over(run, tmp_path):
    known = posts(50)
    unknown = [{**record, "y": None} for record in posts(20, seed=5)]
    write_jsonl(tmp_path / "a.jsonl", known[:25] + unknown + known[25:])
    write_jsonl(tmp_path / "b.jsonl", known)
    _, _, err = run("learn", "a.jsonl", *SMALL, "--model", "a.tgs")
    assert "50 records learnt (20 without labels passed over)" in err
    run("learn", "b.jsonl", *SMALL, "--model", "b.tgs")
    asked = [{"text": record["text"]} for record in posts(20, seed=9)]
    assert Tagger.open("a.tgs").suggest(asked) == Tagger.open("b.tgs").suggest(asked)


# ------------------------------------------------------------------ predict
def test_predictions_come_with_scores_or_the_best_few(run, tmp_path, learnt):
    path = write_jsonl(tmp_path / "new.jsonl", posts(5, seed=3, first=900))
    (first, *_) = records_of(run("predict", path, "-m", learnt, "--show", "scores")[1])
    assert first["id"] == "p900"
    assert set(first["scores"]) == set(WORDS)
    assert list(first["scores"].values()) == sorted(first["scores"].values(), reverse=True)
    assert first["labels"] == [*first["scores"]][: len(first["labels"])]
    (first, *_) = records_of(run("predict", path, "-m", learnt, "--top", "2")[1])
    assert len(first["top"]) == 2
    assert first["top"][0]["score"] >= first["top"][1]["score"]


def test_predictions_come_as_csv_too(run, tmp_path, learnt):
    path = write_jsonl(tmp_path / "new.jsonl", posts(5, seed=3))

    def rows(*args):
        return list(csv.reader(io.StringIO(run("predict", path, "-m", learnt, *args)[1])))

    labels = rows("--out", "csv")
    assert labels[0] == ["id", "text", "labels"]
    assert len(labels) == 6
    assert set(labels[1][2].split("|")) <= set(WORDS)
    assert rows("--out", "csv", "--show", "scores")[0] == ["id", "text", *Tagger.open(learnt).tags]
    best = rows("--out", "csv", "--top", "2")
    assert best[0] == ["id", "rank", "label", "score"]
    assert [row[1] for row in best[1:]] == ["1", "2"] * 5


def test_predictions_are_those_of_the_library(run, tmp_path, learnt):
    fresh = posts(40, seed=4)
    path = write_jsonl(tmp_path / "new.jsonl", fresh)
    out = run("predict", path, "-m", learnt, "--chunk", "7")[1]
    want = Tagger.open(learnt).suggest(fresh)
    assert [record["labels"] for record in records_of(out)] == [one.tags for one in want]


def test_the_threshold_can_be_moved(run, tmp_path, learnt):
    path = write_jsonl(tmp_path / "new.jsonl", posts(5, seed=3))
    out = run("predict", path, "-m", learnt, "--threshold", "0")[1]
    assert all(set(record["labels"]) == set(WORDS) for record in records_of(out))


# ------------------------------------------------------------------ other formats
@pytest.mark.parametrize("labels", ["-2", "calm,loud"])
def test_csv_with_columns_of_labels(run, tmp_path, labels):
    X, Y = song_table(300)
    write_csv(tmp_path / "songs.csv", X, Y, ids=True)
    args = ("learn", "songs.csv", "--labels", labels, "--ids", "song", "-m", "m.tgs")
    args += ("--method", "knn")
    assert run(*args)[0] == 0
    # what is to be predicted has neither labels nor identifiers
    (tmp_path / "new.csv").write_text("a,b,c\n1,-1,0\n-1,1,0\n")
    out = run("predict", "new.csv", "-m", "m.tgs")[1]
    assert [record["labels"] for record in records_of(out)] == [["calm"], ["loud"]]
    out = run("predict", "-", "--format", "csv", "-m", "m.tgs", stdin="a,b,c\n1,-1,0\n")[1]
    assert records_of(out) == [{"id": 0, "labels": ["calm"]}]
    assert " s" in run("explain", "new.csv", "--row", "1", "-m", "m.tgs")[1]


def test_csv_with_text_and_a_column_of_tags(run, tmp_path):
    rows = ["n,body,tags"]
    rows += [f"{r['id']},{r['text']},{'|'.join(r['y'])}" for r in posts(120)]
    (tmp_path / "posts.csv").write_text("\n".join(rows) + "\n")
    args = ("--text", "body", "--labels", "tags", "--sep", "|", "--ids", "n")
    assert run("learn", "posts.csv", *args, "-m", "m.tgs")[0] == 0
    (tmp_path / "new.csv").write_text("n,body\nq1,swim beach wave sand tide\n")
    out = run("predict", "new.csv", "-m", "m.tgs")[1]
    assert records_of(out) == [{"id": "q1", "labels": ["sea"]}]


def test_unknown_cells_of_labels_are_not_negatives(run, tmp_path):
    X, Y = song_table()
    cells = np.where(np.random.default_rng(0).random(Y.shape) < 0.2, "?", Y.astype(str))
    write_csv(tmp_path / "songs.csv", X, cells)
    code, _, err = run("learn", "songs.csv", "--labels", "-2", "-m", "m.tgs")
    assert code == 0
    both = (cells == "?").all(axis=1).sum()
    assert f"{80 - both} records learnt ({both} without labels passed over)" in err


def test_columns_in_another_order_are_refused(run, tmp_path):
    X, Y = song_table()
    write_csv(tmp_path / "songs.csv", X, Y)
    run("learn", "songs.csv", "--labels", "-2", "-m", "m.tgs")
    (tmp_path / "new.csv").write_text("b,a,c\n2,-2,0\n")
    code, _, err = run("predict", "new.csv", "-m", "m.tgs")
    assert code == 1
    assert err == "tagstream: new.csv: feature 0 must be 'a' as the model learnt, got 'b'\n"


@pytest.mark.parametrize("ending", ["arff", "libsvm", "jsonl", "csv"])
def test_every_format_that_convert_writes_can_be_learnt(run, tmp_path, ending):
    X, Y = song_table(200)
    write_csv(tmp_path / "songs.csv", X, Y)
    code, _, err = run("data", "convert", "songs.csv", f"out.{ending}", "--labels", "-2")
    assert (code, err) == (0, "")
    more = ("--labels", "-2") if ending == "csv" else ()
    assert run("learn", f"out.{ending}", *more, "-m", "m.tgs")[0] == 0
    model = persist.load("m.tgs")
    assert model.n_seen_ == 200
    names = ("0", "1") if ending == "libsvm" else ("calm", "loud")
    want = [{names[j] for j in np.flatnonzero(y)} for y in Y]
    assert np.mean([a == b for a, b in zip(model.predict_sets(X), want, strict=True)]) > 0.8


@pytest.mark.parametrize(("pack", "ending"), [(gzip.compress, "gz"), (bz2.compress, "bz2")])
def test_packed_files_are_read(run, tmp_path, pack, ending):
    plain = write_jsonl(tmp_path / "posts.jsonl", posts(50))
    (tmp_path / f"posts.jsonl.{ending}").write_bytes(pack(Path(plain).read_bytes()))
    run("learn", "posts.jsonl", *SMALL, "-m", "a.tgs")
    assert run("learn", f"posts.jsonl.{ending}", *SMALL, "-m", "b.tgs")[0] == 0
    assert persist.inspect("a.tgs").n_seen == persist.inspect("b.tgs").n_seen == 50
    assert "50 records of" in run("learn", f"posts.jsonl.{ending}", *SMALL, "-m", "b.tgs")[2]


def test_a_packed_file_that_is_cut_off_is_told_in_one_line(run, tmp_path):
    lines = "".join(json.dumps(record) + "\n" for record in posts(400)).encode()
    packed = gzip.compress(lines)
    (tmp_path / "a.jsonl.gz").write_bytes(packed)
    assert run("learn", "a.jsonl.gz", *SMALL, "-m", "m.tgs", "--quiet")[0] == 0
    (tmp_path / "a.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    for model in ("m.tgs", "new.tgs"):
        code, _, err = run("learn", "a.jsonl.gz", *SMALL, "-m", model, "--chunk", "10")
        assert code == 1
        assert is_one_line(err)


def test_missing_values_are_refused_or_filled(run, tmp_path):
    X, Y = song_table()
    cells = X.astype(str)
    cells[3, 1] = "?"
    write_csv(tmp_path / "songs.csv", cells, Y)
    args = ("learn", "songs.csv", "--labels", "-2", "-m", "m.tgs", "--method", "knn")
    code, _, err = run(*args)
    assert code == 1
    assert err == (
        "tagstream: songs.csv: must have no missing values, got some; "
        "fill them with --missing VALUE\n"
    )
    assert run(*args, "--missing", "0")[0] == 0


# ------------------------------------------------------------------ going on
def test_a_file_is_learnt_once_and_what_is_added_later_too(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(50))
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    before = Path("m.tgs").read_bytes()
    code, _, err = run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    assert code == 0
    assert "50 records of a.jsonl were learnt before" in err
    assert Path("m.tgs").read_bytes() == before
    write_jsonl(tmp_path / "a.jsonl", posts(50) + posts(7, seed=8, first=50))
    assert (
        "7 records learnt; m.tgs has seen 57" in run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")[2]
    )


def test_several_files_can_be_gone_through_again_after_a_stop(run, tmp_path):
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        write_jsonl(tmp_path / f"{name}.jsonl", posts(20, seed, first=100 * seed))
    for name in "ab":
        run("learn", f"{name}.jsonl", *SMALL, "-m", "m.tgs")
    for name in "abc":
        run("learn", f"{name}.jsonl", *SMALL, "-m", "m.tgs")
    assert persist.inspect("m.tgs").n_seen == 60


def test_a_file_with_another_beginning_is_another_file(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(50))
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    write_jsonl(tmp_path / "a.jsonl", posts(30, seed=7))
    _, _, err = run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    assert "a.jsonl has changed since" in err
    assert "0 records learnt, 30 corrected; m.tgs has seen 80" in err
    assert len(Tagger.open("m.tgs").ids) == 50


def test_an_edited_file_without_ids_is_not_learnt_beside_the_old(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", without_ids(posts(50)))
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    before = Path("m.tgs").read_bytes()
    write_jsonl(tmp_path / "a.jsonl", without_ids(posts(50, seed=7)))
    code, _, err = run("learn", "a.jsonl", *SMALL, "-m", "m.tgs", "--quiet")
    assert code == 1
    assert is_one_line(err)
    assert "has changed since it was learnt" in err
    assert "--again" in err
    assert Path("m.tgs").read_bytes() == before
    assert "has seen 100" in run("learn", "a.jsonl", *SMALL, "-m", "m.tgs", "--again")[2]


def test_again_learns_a_file_once_more(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", without_ids(posts(50)))
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    assert "has seen 100" in run("learn", "a.jsonl", *SMALL, "-m", "m.tgs", "--again")[2]


def test_records_with_ids_are_not_learnt_twice_even_with_again(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(50))
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    err = run("learn", "a.jsonl", *SMALL, "-m", "m.tgs", "--again")[2]
    assert "0 records learnt, 50 unchanged; m.tgs has seen 50" in err


def test_standard_input_always_goes_on(run, tmp_path):
    for n in (20, 40):
        text = "".join(json.dumps(record) + "\n" for record in posts(20, n, first=n))
        assert f"has seen {n}" in run("learn", "-", *SMALL, "-m", "m.tgs", stdin=text)[2]


def test_a_bad_line_stops_after_what_was_learnt_and_can_be_mended(run, tmp_path):
    good = [json.dumps(record) for record in posts(40)]
    (tmp_path / "a.jsonl").write_text("\n".join([*good[:25], "oops", *good[25:]]) + "\n")
    code, _, err = run("learn", "a.jsonl", *SMALL, "-m", "m.tgs", "--chunk", "10")
    assert code == 1
    assert is_one_line(err)
    assert "a.jsonl:26: must be one JSON object per line" in err
    assert persist.inspect("m.tgs").n_seen == 20
    (tmp_path / "a.jsonl").write_text("\n".join(good) + "\n")
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs", "--chunk", "10")
    run("learn", "a.jsonl", *SMALL, "-m", "whole.tgs", "--chunk", "10")
    assert Path("m.tgs").read_bytes() == Path("whole.tgs").read_bytes()


def test_how_often_the_model_is_saved_does_not_change_it(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(100))
    for every in (1, 30, 1000):
        args = (*SMALL, "-m", f"{every}.tgs", "--every", every, "--chunk", "10")
        run("learn", "a.jsonl", *args)
    assert Path("1.tgs").read_bytes() == Path("30.tgs").read_bytes()
    assert Path("1.tgs").read_bytes() == Path("1000.tgs").read_bytes()


def test_the_method_and_its_parameters_are_chosen_once(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(20))
    args = ("learn", "a.jsonl", "-m", "m.tgs", "--method", "knn", "-p", "n_neighbors=3")
    assert run(*args)[0] == 0
    assert run(*args)[0] == 0
    info = persist.inspect("m.tgs")
    assert info.learner == "KNN"
    assert info.params["n_neighbors"] == 3
    for other in (("--method", "oml"), ("-p", "n_neighbors=4"), ("-p", "nonsense=1")):
        code, _, err = run("learn", "a.jsonl", *SMALL, "-m", "m.tgs", *other)
        assert code == 2
        assert is_one_line(err)


def test_a_model_that_another_process_wrote_meanwhile_is_not_overwritten(
    run, tmp_path, monkeypatch
):
    path = write_jsonl(tmp_path / "a.jsonl", posts(30))
    run("learn", path, *SMALL, "-m", "m.tgs")
    run("learn", path, *SMALL, "-m", "other.tgs")
    other = Path("other.tgs").read_bytes()
    learn_chunk = Keeper.learn

    def meanwhile(self, *args):
        Path("m.tgs").unlink()
        Path("m.tgs").write_bytes(other)
        return learn_chunk(self, *args)

    monkeypatch.setattr(Keeper, "learn", meanwhile)
    code, _, err = run("learn", path, *SMALL, "-m", "m.tgs", "--again")
    assert code == 1
    assert "another process has written this model" in err
    assert Path("m.tgs").read_bytes() == other


# ------------------------------------------------------------------ explain and inspect
def test_explain_names_neighbours_and_votes_as_json(run, learnt):
    code, out, _ = run("explain", '{"text": "swim beach"}', "-m", learnt, "--json")
    why = json.loads(out)
    assert code == 0
    assert why["neighbors"][0]["id"].startswith("p")
    assert max(why["scores"], key=why["scores"].get) == "sea"
    distances = [neighbor["distance"] for neighbor in why["neighbors"]]
    assert distances == sorted(distances)


def test_next_asks_another_question(run, learnt, monkeypatch):
    asked = []
    for method in ("suggest", "explain"):
        of_tagger = getattr(Tagger, method)

        def noted(tagger, *args, next=False, method=method, of_tagger=of_tagger, **others):
            asked.append((method, next))
            return of_tagger(tagger, *args, next=next, **others)

        monkeypatch.setattr(Tagger, method, noted)
    line = json.dumps({"text": "swim beach"})
    for options in ([], ["--next"]):
        assert run("predict", "-", "-m", learnt, "--why", *options, stdin=line)[0] == 0
        assert run("explain", line, "-m", learnt, *options)[0] == 0
        assert ("suggest", bool(options)) in asked
        assert [said for method, said in asked if method == "explain"] == [bool(options)] * 2
        asked.clear()


def test_explain_reads_a_record_from_a_pipe_or_a_row_of_a_file(run, tmp_path, learnt):
    path = write_jsonl(tmp_path / "new.jsonl", posts(9, seed=6))
    line = Path(path).read_text().splitlines()[4]
    piped = run("explain", "-", "-m", learnt, stdin=line)[1]
    assert piped == run("explain", path, "--row", "4", "-m", learnt)[1]
    assert piped == run("explain", line, "-m", learnt)[1]
    code, _, err = run("explain", path, "--row", "9", "-m", learnt)
    assert code == 1
    assert "must have a record 9" in err


def test_explain_says_when_a_learner_keeps_no_items(run, tmp_path):
    X, Y = song_table()
    write_csv(tmp_path / "songs.csv", X, Y)
    assert run("learn", "songs.csv", "--labels", "-2", "-m", "m.tgs", "--method", "olansgd")[0] == 0
    code, _, err = run("explain", '{"x": [1, 2, 3]}', "-m", "m.tgs")
    assert code == 1
    assert "OLANSGD keeps no items" in err


def test_explain_refuses_an_item_of_another_kind_or_width(run, tmp_path, learnt):
    code, _, err = run("explain", '{"x": [1, 2]}', "-m", learnt)
    assert code == 1
    assert "ITEM: must hold texts or named values as the model has learnt" in err
    write_csv(tmp_path / "songs.csv", *song_table())
    run("learn", "songs.csv", "--labels", "-2", "-m", "m.tgs", "--method", "knn")
    code, _, err = run("explain", '{"x": [1, 2]}', "-m", "m.tgs")
    assert code == 1
    assert "ITEM: must have 3 features as the model learnt, got 2" in err


def test_inspect_tells_labels_counts_parameters_and_size(run, learnt):
    _, out, _ = run("inspect", learnt)
    for word in ("OML", "300 items", "1,024", "sea", "n_neighbors", "bytes", "300 records of"):
        assert word in out
    record = json.loads(run("inspect", learnt, "--json")[1])
    assert set(record["labels"]) == set(WORDS)
    assert sum(record["kept"]) == sum(len(r["y"]) for r in posts(300))
    assert record["n_bytes"] == learnt.stat().st_size
    assert record["text"]["n_features"] == 1024
    assert "bound" not in record


def test_inspect_tells_the_loss_and_its_bound(run, tmp_path):
    some = posts(200)
    mixed = [post | {"y": other["y"]} for post, other in zip(some, some[::-1], strict=True)]
    write_jsonl(tmp_path / "posts.jsonl", mixed)  # else there is no loss
    path = "convex.tgs"
    assert run("learn", "posts.jsonl", "-m", path, "-p", "step=convex")[0] == 0
    record = json.loads(run("inspect", path, "--json")[1])
    assert 0 < record["squared_loss"] <= record["bound"]
    assert (
        f"{record['squared_loss']:,.1f}, at most {record['bound']:,.1f}" in run("inspect", path)[1]
    )


# ------------------------------------------------------------------ evaluate, demo, data
@pytest.mark.parametrize("protocol", [[], ["--holdout", "--folds", "2"]])
def test_evaluate_compares_methods_in_a_table_and_as_json(run, tmp_path, protocol):
    X, Y = song_table()
    write_csv(tmp_path / "songs.csv", X, Y)
    args = ("evaluate", "songs.csv", "--labels", "-2", "--method", "oml", "--method", "knn")
    code, out, err = run(*args, *protocol)
    assert (code, err) == (0, "")
    assert "80 items, 3 features, 2 labels" in out
    assert all(word in out for word in ("oml", "knn", "Micro-F1", "Hamming loss"))
    record = json.loads(run(*args, *protocol, "--json")[1])
    assert list(record["results"]) == ["oml", "knn"]
    result = record["results"]["oml"]
    measures = result["mean"] if protocol else result["measures"]
    assert f"{measures['micro_f1']:.4f}" in out
    assert measures["micro_f1"] > 0.6


NEXT, ANY = "the next item, in the order of the file", "any item: "


def sorted_posts(n):
    return sorted(posts(n), key=lambda post: sorted(post["y"]))


def test_evaluate_answers_two_questions(run, tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", posts(100))
    args = ("evaluate", path, *SMALL)
    code, out, err = run(*args)
    assert (code, err) == (0, "")
    assert NEXT in out
    assert f"{ANY}80 drawn at random are learnt, then 20 others asked about" in out
    assert "in runs" not in out
    record = json.loads(run(*args, "--json")[1])
    assert not record["label_runs"]["found"]
    of_any = record["any"]["results"]["oml"]
    assert (of_any["n_train"], of_any["n_test"]) == (80, 20)
    assert f"{of_any['measures']['micro_f1']:.4f}" in out.partition(ANY)[2]
    assert f"{record['results']['oml']['measures']['micro_f1']:.4f}" in out.partition(ANY)[0]


def test_any_item_may_be_the_last_fifth_or_left_out(run, tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", posts(100))
    out = run("evaluate", path, *SMALL, "--any", "time")[1]
    assert f"{ANY}the first 80 are learnt, then 20 later ones asked about" in out
    out = run("evaluate", path, *SMALL, "--next-only")[1]
    assert NEXT in out
    assert ANY not in out
    assert "any" not in json.loads(run("evaluate", path, *SMALL, "--next-only", "--json")[1])
    for options in (["--any", "never"], ["--holdout", "--next-only"]):
        code, _, err = run("evaluate", path, *options)
        assert code == 2
        assert is_one_line(err)


def test_evaluate_says_that_labels_come_in_runs(run, tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", sorted_posts(100))
    out = run("evaluate", path, *SMALL)[1]
    assert "Labels come in runs" in out
    assert "does not hold for items out of order" in out
    assert out.endswith("The figure for those is any item.\n")
    assert "that without --next-only" in run("evaluate", path, *SMALL, "--next-only")[1]
    record = json.loads(run("evaluate", path, *SMALL, "--json")[1])
    assert record["label_runs"]["found"]
    assert record["label_runs"]["shared"] > record["label_runs"]["expected"]


def test_any_item_is_what_learn_and_predict_would_say(run, tmp_path):
    records = sorted_posts(100)
    path = write_jsonl(tmp_path / "a.jsonl", records)
    told = json.loads(run("evaluate", path, *SMALL, "--any", "time", "--json")[1])
    write_jsonl(tmp_path / "first.jsonl", records[:80])
    write_jsonl(tmp_path / "last.jsonl", records[80:])
    run("learn", "first.jsonl", *SMALL, "-m", "m.tgs")
    hits = sizes = 0
    for record, said in zip(
        records[80:], records_of(run("predict", "last.jsonl", "-m", "m.tgs")[1]), strict=True
    ):
        hits += len({*record["y"]} & {*said["labels"]})
        sizes += len(record["y"]) + len(said["labels"])
    measured = told["any"]["results"]["oml"]["measures"]["micro_f1"]
    assert measured == pytest.approx(2 * hits / sizes)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_smallest_files_are_evaluated_too(run, tmp_path, n):
    path = write_jsonl(tmp_path / "a.jsonl", posts(n))
    code, out, _ = run("evaluate", path, *SMALL)
    assert code == 0
    assert (ANY in out) == (n > 1)


def test_no_more_than_so_many_items_are_asked_about(run, tmp_path, monkeypatch):
    monkeypatch.setattr("tagstream.cli.evaluate.MOST_ASKED", 7)
    path = write_jsonl(tmp_path / "a.jsonl", posts(100))
    assert f"{ANY}80 drawn at random are learnt, then 7 others" in run("evaluate", path)[1]
    out = run("evaluate", path, "--any", "time")[1]
    assert f"{ANY}the first 80 are learnt, then 7 later ones" in out


def test_evaluate_draws_a_curve_and_reads_standard_input(run):
    text = "".join(json.dumps(record) + "\n" for record in posts(60))
    code, out, _ = run("evaluate", "-", "--curve", "--every", "20", "--batch", "5", stdin=text)
    assert code == 0
    assert out.count("█") > 20


def test_a_terminal_is_told_that_code_is_compiled_and_how_long_it_took(monkeypatch):
    class Terminal(io.StringIO):
        def __init__(self):
            super().__init__()
            self.told = threading.Event()

        def isatty(self):
            return True

        def write(self, text):
            self.told.set()
            return super().write(text)

    begun = iter([0, 0, *[3] * 10_000])
    monkeypatch.setattr("tagstream.core.compilation.n_compiled", lambda: next(begun))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    output.show_compiling()
    assert terminal.told.wait(60)
    output.show_compiling(quiet=True)
    first, last = terminal.getvalue().splitlines()
    assert first.startswith("compiling code, once after an installation")
    assert re.fullmatch(r"compiled 3 functions in \d+ s", last)


@pytest.mark.parametrize("quiet", [False, True])
def test_nothing_but_a_terminal_is_told_about_compilations(monkeypatch, quiet):
    stderr = io.StringIO()
    stderr.isatty = lambda: quiet
    monkeypatch.setattr(sys, "stderr", stderr)
    output.show_compiling(quiet)
    assert not output._WATCHES


def test_warm_up_compiles_ahead(run):
    assert run("warm-up")[0] == 0
    assert run("warm-up")[2] == "everything was compiled before\n"


def test_a_download_is_shown_to_who_waits_at_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with output.Bar("scene", quiet=False) as bar:
        bar.total = 3_000_000  # as pooch tells it
        bar.update(1_500_000)
        assert bar._bar.tasks[0].description == "downloading: 1.5 of 3.0 MB"
        bar.reset()
        bar.update(3_000_000)
        assert bar._bar.tasks[0].percentage == 100
        bar.close()
    with output.Bar("scene", quiet=True) as bar:
        bar.update(1)


def test_oml_as_published_is_seeded_and_stays_so(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(20))
    args = ("learn", "a.jsonl", *SMALL, "--method", "oml-published", "--seed", "3", "-m")
    assert run(*args, "m.tgs")[0] == 0
    params = persist.inspect("m.tgs").params
    assert (params["random_state"], params["step"]) == (3, "cubic")
    assert run(*args, "m.tgs")[0] == 0
    run("learn", "a.jsonl", *SMALL, "-m", "other.tgs")
    code, _, err = run(*args, "other.tgs")
    assert code == 2
    assert is_one_line(err)


def test_reproduce_says_what_it_ran_and_what_is_missing(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TAGSTREAM_DATA", str(tmp_path))
    code, out, err = run("reproduce", "results", "--quick", "--only", "datasets", "--jobs", "0")
    assert (code, out) == (0, "")
    assert "emotions is left out: " in err
    assert "0 cells run, 0 were there; records in results" in err
    code, _, err = run("reproduce", "results", "--only", "nonsense")
    assert code == 1
    assert is_one_line(err)
    code, _, err = run("report", "none")
    assert code == 1
    assert is_one_line(err)


def test_data_lists_what_is_here(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TAGSTREAM_DATA", str(tmp_path))
    (tmp_path / "yeast").mkdir()
    (tmp_path / "yeast" / "yeast.arff").touch()
    (tmp_path / "enron").mkdir()  # left by a download that failed
    here = {r["name"]: r["here"] for r in json.loads(run("data", "list", "--json")[1])}
    assert here["yeast"] is True
    assert here["scene"] is False
    assert here["enron"] is False
    assert "corel5k" in run("data", "list")[1]


def test_a_data_set_that_cannot_be_fetched_says_where_to_put_it(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TAGSTREAM_DATA", str(tmp_path))
    code, _, err = run("data", "fetch", "emotions")
    assert code == 1
    assert is_one_line(err)
    assert "emotions.arff" in err
    assert run("data", "fetch", "nonsense")[0] == 2


def test_a_data_set_is_learnt_by_its_name(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TAGSTREAM_DATA", str(tmp_path))
    X, Y = song_table()
    write_csv(tmp_path / "songs.csv", X, Y)
    (tmp_path / "yeast").mkdir()
    run("data", "convert", "songs.csv", "yeast/yeast.arff", "--labels", "-2")
    (tmp_path / "yeast" / "yeast.xml").write_text(
        '<labels xmlns="http://mulan.sourceforge.net/labels">'
        '<label name="calm"/><label name="loud"/></labels>'
    )
    assert "80 records learnt" in run("learn", "yeast", "-m", "m.tgs")[2]
    assert "80 records of yeast were learnt before" in run("learn", "yeast", "-m", "m.tgs")[2]
    assert len(records_of(run("predict", "yeast", "-m", "m.tgs")[1])) == 80


# ------------------------------------------------------------------ errors and exit codes
@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"],
        ["learn"],
        ["learn", "a.jsonl"],
        ["learn", "a.jsonl", "-m", "m.tgs", "--method", "nonsense"],
        ["learn", "a.jsonl", "-m", "m.tgs", "-p", "nonsense=1"],
        ["learn", "a.jsonl", "-m", "m.tgs", "-p", "nonsense"],
        ["learn", "a.jsonl", "-m", "m.tgs", "--format", "xls"],
        ["learn", "a.jsonl", "-m", "m.tgs", "--chunk", "0"],
        ["predict", "a.jsonl", "-m", "m.tgs", "--show", "nonsense"],
        ["predict", "a.jsonl", "-m", "m.tgs", "--out", "xls"],
        ["data", "convert", "a.jsonl", "-", "--to", "xls"],
    ],
)
def test_a_wrong_command_is_told_in_one_line_with_exit_code_2(run, tmp_path, args):
    write_jsonl(tmp_path / "a.jsonl", posts(5))
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert is_one_line(err)
    assert "--help" in err


@pytest.mark.parametrize(
    "args",
    [
        ["learn", "none.jsonl", "-m", "m.tgs"],
        ["learn", "empty.jsonl", "-m", "m.tgs"],
        ["learn", "a.xyz", "-m", "m.tgs"],
        ["learn", "a.jsonl", "-m", "none/m.tgs"],
        ["learn", "a.jsonl", "-m", "bad.tgs"],
        ["learn", "a.jsonl", "-m", "m.tgs", "-p", "n_neighbors=-1"],
        ["predict", "a.jsonl", "-m", "none.tgs"],
        ["predict", "a.jsonl", "-m", "bad.tgs"],
        ["inspect", "bad.tgs"],
        ["inspect", "."],
        ["explain", "text", "-m", "bad.tgs"],
        ["evaluate", "none.csv"],
        ["evaluate", "bad.csv"],
        ["data", "convert", "none.csv", "out.arff"],
    ],
)
def test_a_failure_is_told_in_one_line_with_exit_code_1(run, tmp_path, args):
    write_jsonl(tmp_path / "a.jsonl", posts(5))
    (tmp_path / "bad.tgs").write_bytes(b"tagstrm\n but not really")
    (tmp_path / "bad.csv").write_text("a,a\n1,2\n")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "a.xyz").touch()
    code, out, err = run(*args)
    assert (code, out) == (1, "")
    assert is_one_line(err)
    assert not Path("m.tgs").exists()


@pytest.mark.parametrize("args", [[], ["learn"], ["predict"], ["explain"], ["evaluate"], ["data"]])
def test_help_teaches_with_examples(run, args):
    code, out, _ = run(*args, "--help")
    assert code == 0
    assert out.count("tagstream ") >= (1 if args == ["data"] else 3)


def test_the_version_is_told(run):
    from tagstream import __version__

    assert run("--version")[:2] == (0, f"tagstream {__version__}\n")


# ------------------------------------------------------------------ as a process
def test_help_answers_without_the_heavy_imports():
    code = """if True:
        import sys
        from tagstream.cli import main
        main(["--help"])
        heavy = {"numpy", "scipy", "sklearn", "numba", "pandas"} & set(sys.modules)
        sys.exit(f"imported {heavy}" if heavy else 0)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pipe_that_closes_early_is_no_error(tmp_path, learnt):
    path = write_jsonl(tmp_path / "new.jsonl", posts(3000))
    process = tagstream("predict", path, "-m", learnt, "--chunk", "1", "--show", "scores")
    assert json.loads(process.stdout.readline())
    process.stdout.close()
    assert process.wait() == 0
    assert process.stderr.read() == ""
    process.stderr.close()


def test_each_record_is_answered_at_once_with_chunk_1(learnt):
    process = tagstream("predict", "-", "-m", learnt, "--chunk", "1", stdin=-1)
    for record in posts(3):
        process.stdin.write(json.dumps(record) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == record["id"]
    assert process.communicate() == ("", "")
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_what_was_learnt(tmp_path, number):
    process = tagstream("learn", "-", "-m", tmp_path / "m.tgs", "--chunk", "5", stdin=-1)
    for record in posts(5):
        process.stdin.write(json.dumps(record) + "\n")
    process.stdin.flush()
    # it now waits for more; the first five are learnt once the file says so, at the signal
    wait_until_it_reads(process)
    process.send_signal(number)
    _, err = process.communicate()
    assert process.returncode == 128 + number
    assert "5 records learnt" in err
    assert "Traceback" not in err
    assert persist.inspect(tmp_path / "m.tgs").n_seen == 5


def wait_until_it_reads(process):
    """Wait until the process sleeps in a read and has learnt: its CPU time stands still."""
    stat = Path(f"/proc/{process.pid}/stat")
    if not stat.exists():
        pytest.skip("needs /proc")
    last, still = "", 0
    while still < 10:
        fields = stat.read_text().rpartition(")")[2].split()
        now = f"{fields[0]}{fields[11]}{fields[12]}"
        still = still + 1 if now == last and fields[0] == "S" else 0
        last = now
        time.sleep(0.05)


def test_no_progress_bar_without_a_terminal(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", posts(20))
    process = tagstream("learn", path, "-m", tmp_path / "m.tgs")
    out, err = process.communicate()
    assert (process.returncode, out) == (0, "")
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_completion_offers_the_methods():
    env = {
        **os.environ,
        "_TAGSTREAM_COMPLETE": "complete_bash",
        "COMP_WORDS": "tagstream learn --method o",
        "COMP_CWORD": "3",
    }
    process = tagstream(env=env)
    out, _ = process.communicate()
    assert out.split() == ["oml", "osml-elm", "olansgd", "oml-published"]


def test_scikit_learn_starts_without_its_heavy_parts():
    program = """
import sys
from tagstream.cli.light import start_light
start_light()
import tagstream.models
print("scipy.stats._stats_py" in sys.modules, "pandas" in sys.modules)
import pandas, scipy.stats
from scipy.stats import rankdata
print(rankdata([3, 1]).tolist(), pandas.Series([1]).sum(), scipy.stats.mode([1, 1, 2]).mode)
"""
    args = [sys.executable, "-c", program]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["False False", "[2.0, 1.0] 1 1"], done.stderr


def test_modules_that_wait_are_run_when_something_of_them_is_asked_for():
    program = """
import gc, sys
from tagstream.cli.light import SELDOM, start_light
start_light()
import sklearn.utils.validation as checks
import asyncio, numpy
parts = "narwhals.functions", "asyncio.events", "numpy.f2py.f2py2e"
print(*(part in sys.modules for part in parts), gc.get_threshold()[0] == SELDOM)
import asyncio.events, numpy.f2py
async def nothing():
    return 1
print(asyncio.run(nothing()), checks._num_samples([1, 2]), callable(numpy.f2py.get_include))
import narwhals.stable.v2 as stable
print(stable.dependencies.is_into_series([1]), hasattr(stable, "no such"))
"""
    args = [sys.executable, "-c", program]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    lines = ["False False False True", "1 2 True", "False False"]
    assert done.stdout.splitlines() == lines, done.stderr


def test_what_waits_works_when_it_is_asked_for():
    program = """
import sys
from tagstream.cli.light import start_light
start_light()
import tagstream.models
parts = "joblib.parallel", "scipy.linalg._basic", "sklearn.utils.extmath", "yaml.loader"
print(*(part in sys.modules for part in parts))
import numpy as np, scipy.linalg, scipy.sparse as sp, sklearn.utils, sklearn.utils.parallel
from sklearn.utils import fixes
print(fixes._sparse_linalg_cg(sp.eye(2), np.ones(2))[0].tolist())
print(fixes.laplacian(np.array([[0, 1], [1, 0]])).tolist(), np.testing.assert_equal(1, 1))
print(len(fixes._get_threadpool_controller().info()) > 0, sklearn.utils.check_array([[1]]).shape)
print(scipy.linalg.lapack.dpotrf(np.eye(1))[0].tolist(), callable(sklearn.show_versions))
print(sklearn.utils.parallel.Parallel(1)([sklearn.utils.parallel.delayed(abs)(-1)]))
"""
    args = [sys.executable, "-c", program]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    lines = [
        "False False False False", "[1.0, 1.0]", "[[1, -1], [-1, 1]] None", "True (1, 1)",
        "[[1.0]] True", "[1]",
    ]  # fmt: skip
    assert done.stdout.splitlines() == lines, done.stderr


def test_values_that_are_what_is_asked_for_are_not_converted():
    program = """
import sys
from tagstream.cli import main
code = main(["predict", "-", "-m", "no such model"])
print(code, "pydantic" in sys.modules)
code = main(["predict", "-", "-m", "no such model", "--top", "2", "--threshold", "0.5"])
print(code, main(["predict", "-", "-m", "no such model", "--top", "0"]))
"""
    args = [sys.executable, "-c", program]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["1 False", "1 2"], done.stderr


def test_a_thread_that_asks_for_a_part_of_a_module_which_another_one_runs_gets_it():
    program = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from tagstream.cli.light import start_light
start_light()
sys.setswitchinterval(1e-5)
import scipy.linalg
barrier = Barrier(8)
def ask(i):
    barrier.wait()
    return callable((scipy.linalg.eigh, scipy.linalg.cho_solve)[i % 2])
with ThreadPoolExecutor(8) as threads:
    print(all(threads.map(ask, range(8))))
"""
    args = [sys.executable, "-c", program]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["True"], done.stderr
