"""Tags and items managed from the command line, and explanations with words."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from shell import (
    SMALL,
    WORDS,
    is_one_line,
    posts,
    records_of,
    song_table,
    without_ids,
    write_csv,
    write_jsonl,
)
from tagstream.tagger import Tagger


@pytest.fixture
def model(run, tmp_path):
    """A model of 60 posts in the working directory."""
    write_jsonl(tmp_path / "posts.jsonl", posts(60))
    assert run("learn", "posts.jsonl", *SMALL, "-m", "m.tgs", "--quiet")[0] == 0
    return Path("m.tgs")


def counts(run):
    return {row["tag"]: row["items"] for row in json.loads(run("tags", "m.tgs", "--json")[1])}


# ------------------------------------------------------------------ tags
def test_tags_are_listed_with_counts(run, model):
    want = {tag: sum(tag in post["y"] for post in posts(60)) for tag in WORDS}
    assert counts(run) == want
    out = run("tags", "m.tgs")[1]
    assert all(tag in out and str(n) in out for tag, n in want.items())


def test_a_tag_is_renamed_and_renamed_back(run, model):
    before, asked = counts(run), {"text": "swim beach wave sand tide"}
    scores = Tagger.open(model).suggest(asked).scores
    assert run("tags", "rename", "m.tgs", "sea", "ocean")[0] == 0
    assert counts(run)["ocean"] == before["sea"]
    assert Tagger.open(model).suggest(asked).tags == ["ocean"]
    assert run("tags", "rename", "m.tgs", "ocean", "sea")[0] == 0
    assert counts(run) == before
    assert Tagger.open(model).suggest(asked).scores == scores


def test_tags_are_merged(run, model):
    either = sum(bool({"sea", "food"} & {*post["y"]}) for post in posts(60))
    code, _, err = run("tags", "merge", "m.tgs", "sea", "food", "--into", "harbour")
    assert (code, err) == (0, f"sea, food are now harbour: {either} items\n")
    assert counts(run) == {"harbour": either, "code": sum("code" in p["y"] for p in posts(60))}
    err = run("tags", "merge", "m.tgs", "code", "--into", "harbour")[2]
    assert err == "code is now harbour: 60 items\n"


def test_a_tag_is_removed_from_all_items(run, model):
    n = counts(run)["code"]
    assert run("tags", "remove", "m.tgs", "code")[2] == f"code is gone from {n} items\n"
    assert set(counts(run)) == {"sea", "food"}
    assert len(Tagger.open(model).ids) == 60


@pytest.mark.parametrize(
    "args",
    [
        ["tags", "rename", "m.tgs", "none", "new"],
        ["tags", "rename", "m.tgs", "sea", "food"],
        ["tags", "rename", "m.tgs", "sea", " "],
        ["tags", "merge", "m.tgs", "sea", "none", "--into", "x"],
        ["tags", "remove", "m.tgs", "none"],
        ["correct", "m.tgs", "none", "--tags", "sea"],
        ["forget", "m.tgs", "p1", "none"],
        ["refit", "none.tgs"],
        ["tags", "none.tgs"],
    ],
)
def test_a_change_that_cannot_be_made_changes_nothing(run, model, args):
    before = model.read_bytes()
    code, out, err = run(*args)
    assert (code, out) == (1, "")
    assert is_one_line(err)
    assert model.read_bytes() == before
    assert sorted(os.listdir()) == ["m.tgs", "posts.jsonl"]


def test_a_learner_without_items_says_so(run, tmp_path):
    write_csv(tmp_path / "songs.csv", *song_table())
    run("learn", "songs.csv", "--labels", "-2", "-m", "m.tgs", "--method", "olansgd")
    for args in (
        ("correct", "m.tgs", "1", "--tags", "a"),
        ("forget", "m.tgs", "1"),
        ("learn", "songs.csv", "--update", "-m", "m.tgs"),
    ):
        code, _, err = run(*args)
        assert code == 1
        assert "OLANSGD keeps no items" in err
    assert "calm" in run("tags", "m.tgs")[1]


# ------------------------------------------------------------------ items
def test_a_correction_holds_at_once_and_can_be_taken_back(run, model):
    (post,) = posts(1)
    code, _, err = run("correct", "m.tgs", "p0", "--tags", "code, winter")
    assert code == 0
    assert err.startswith(f"p0: code, winter (it had {', '.join(sorted(post['y']))})")
    tagger = Tagger.open(model)
    assert set(tagger.suggest({"text": post["text"]}).tags) == {"code", "winter"}
    assert tagger.learner.item("p0")[1] == {"code", "winter"}
    run("correct", "m.tgs", "p0", "--tags", ",".join(post["y"]))
    assert Tagger.open(model).learner.item("p0")[1] == set(post["y"])


def test_a_correction_can_take_all_tags_away(run, model):
    assert "p0: no tag (it had" in run("correct", "m.tgs", "p0", "--tags", "")[2]
    assert Tagger.open(model).learner.item("p0")[1] == set()


def test_items_without_an_id_are_called_by_their_number(run, tmp_path):
    records = [{"text": post["text"], "y": post["y"]} for post in posts(20)]
    write_jsonl(tmp_path / "a.jsonl", records)
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    assert run("correct", "m.tgs", "7", "--tags", "winter")[0] == 0
    assert Tagger.open("m.tgs").learner.item(7)[1] == {"winter"}


def test_ids_that_are_numbers_are_written_as_text(run, tmp_path):
    records = [{**post, "id": i} for i, post in enumerate(posts(20), 100)]
    write_jsonl(tmp_path / "a.jsonl", records)
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    assert "107: winter (it had" in run("correct", "m.tgs", "107", "--tags", "winter")[2]
    assert run("forget", "m.tgs", "107", "108")[0] == 0
    assert Tagger.open("m.tgs").ids == [i for i in range(100, 120) if i not in (107, 108)]


def test_a_tag_may_have_a_comma_in_it(run, model):
    args = ("correct", "m.tgs", "p0", "--tags")
    assert "p0: a,b (it had" in run(*args, "a,b", "--sep", "|")[2]
    assert Tagger.open(model).learner.item("p0")[1] == {"a,b"}
    before = model.read_bytes()
    for wrong in ("a,b", "sea,a,b"):
        code, _, err = run(*args, wrong)
        assert code == 1
        assert is_one_line(err)
        assert "--tags must name whole tags, got the parts of 'a,b'; put '|'" in err
        assert model.read_bytes() == before
    assert run(*args, "sea|a,b", "--sep", "|")[0] == 0
    assert run(*args, "a;b", "--sep", ";")[0] == 0  # if two tags are meant
    assert Tagger.open(model).learner.item("p0")[1] == {"a", "b"}
    run(*args, "a,b", "--sep", "|")
    assert run("tags", "rename", "m.tgs", "a,b", "c,d")[2] == "a,b is now c,d\n"
    assert run("tags", "merge", "m.tgs", "c,d", "a", "--into", "e,f")[0] == 0
    assert run("tags", "remove", "m.tgs", "e,f")[2] == "e,f is gone from 1 item\n"
    assert "--sep" in run("correct", "--help")[1]


def test_items_are_forgotten_with_their_texts(run, model):
    assert run("forget", "m.tgs", "p3", "p4", "p3")[2] == "2 items forgotten; m.tgs keeps 58\n"
    assert not {"p3", "p4"} & {*Tagger.open(model).ids}
    assert posts(5)[3]["text"].encode() not in model.read_bytes()


def test_refit_fits_now(run, model):
    assert run("learn", "posts.jsonl", *SMALL, "-m", "other.tgs", "--no-refit")[0] == 0
    assert Tagger.open("other.tgs").learner.n_since_fit_ > 0
    assert run("refit", "other.tgs")[2] == "other.tgs is fitted to 60 items\n"
    assert Tagger.open("other.tgs").learner.n_since_fit_ == 0
    assert Path("other.tgs").read_bytes() == model.read_bytes()  # which learn had fitted


def test_a_number_that_predict_makes_up_is_not_an_id(run, tmp_path):
    text = "swim beach"
    learnt = [{"text": text, "y": ["sea"]}, *without_ids(posts(60)), {"text": text, "y": ["food"]}]
    write_jsonl(tmp_path / "a.jsonl", learnt)
    assert run("learn", "a.jsonl", *SMALL, "-m", "m.tgs", "-q")[0] == 0
    for name, tag in (("61", "food"), ("0", "sea")):
        assert run("correct", "m.tgs", name, "--tags", tag, "-q")[0] == 0
    lines = "".join(json.dumps({"text": text}) + "\n" for _ in range(62))
    said = records_of(run("predict", "-", "-m", "m.tgs", "--show", "scores", stdin=lines)[1])
    assert [one["id"] for one in said] == [*range(62)]
    assert all(one["scores"] == said[0]["scores"] for one in said)
    lines = "".join(json.dumps({"id": i, "text": text}) + "\n" for i in (0, 61))
    said = records_of(run("predict", "-", "-m", "m.tgs", stdin=lines)[1])
    assert [one["labels"] for one in said] == [["sea"], ["food"]]


# ------------------------------------------------------------------ update
def test_an_edited_file_is_taken_over(run, tmp_path, model):
    edited = posts(60)
    edited[3]["y"] = ["winter"]  # other tags
    edited[4]["text"] = "snow ice frost"  # another text
    edited[5:7] = []  # gone
    edited += posts(2, seed=9, first=60)  # new
    write_jsonl(tmp_path / "posts.jsonl", edited)
    code, _, err = run("learn", "posts.jsonl", "--update", "-m", "m.tgs")
    assert code == 0
    assert "2 items of m.tgs not in posts.jsonl: p5, p6; --forget-missing forgets them" in err
    assert "2 records learnt, 2 corrected, 56 unchanged" in err
    tagger = Tagger.open(model)
    assert tagger.learner.item("p3")[1] == {"winter"}
    assert {"p5", "p6", "p60", "p61"} <= {*tagger.ids}
    err = run("learn", "posts.jsonl", "--update", "--forget-missing", "-m", "m.tgs")[2]
    assert "p5, p6; forgotten" in err
    assert "0 records learnt, 60 unchanged" in err
    assert {*Tagger.open(model).ids} == {post["id"] for post in edited}
    # and from here the file goes on as always
    assert (
        "60 records of posts.jsonl were learnt before"
        in run("learn", "posts.jsonl", "-m", "m.tgs")[2]
    )


def test_an_update_needs_ids(run, tmp_path, model):
    write_jsonl(tmp_path / "b.jsonl", [{"text": "swim", "y": ["sea"]}])
    before = model.read_bytes()
    code, _, err = run("learn", "b.jsonl", "--update", "-m", "m.tgs")
    assert code == 1
    assert "b.jsonl: each record must have an id to be updated" in err
    assert model.read_bytes() == before
    assert run("learn", "b.jsonl", "--forget-missing", "-m", "m.tgs")[0] == 2


# ------------------------------------------------------------------ why
def test_explanations_add_up_and_mark_shared_words(run, model):
    ask = '{"text": "swim on the beach, wave and tide"}'
    why = json.loads(run("explain", ask, "-m", "m.tgs", "--json")[1])
    for tag, parts in why["parts"].items():
        odds = why["scores"][tag] / (1 - why["scores"][tag])
        assert sum(parts.values()) == pytest.approx(math.log(odds), abs=1e-6)
    first = why["neighbors"][0]
    assert first["text"] in {post["text"] for post in posts(60)}
    assert {*first["shared"]} == {*first["text"].split()} & {"swim", "beach", "wave", "tide"}
    out = run("explain", ask, "-m", "m.tgs")[1]
    assert "what spoke for each" in out
    assert "*swim*" in out or "*wave*" in out


def test_a_copy_of_a_corrected_item_says_so(run, model):
    (post,) = posts(1)
    assert "corrected by you" not in run("explain", post["text"], "-m", "m.tgs")[1]
    run("correct", "m.tgs", "p0", "--tags", "winter")
    out = run("explain", post["text"], "-m", "m.tgs")[1]
    assert "a copy of item p0, corrected by you: winter" in out


def test_an_id_in_the_place_of_a_text_is_told(run, model):
    (post,) = posts(1)
    code, out, err = run("explain", "p0", "-m", "m.tgs", "--json")
    assert code == 0
    assert json.loads(out)["known"] is False
    tags = ", ".join(sorted(post["y"]))
    assert err == f"'p0' is taken as a text; for the stored item p0 ({tags}), say --id p0\n"
    assert run("explain", post["text"], "-m", "m.tgs")[2] == ""


def test_words_are_bold_on_a_terminal(run, model, monkeypatch):
    from tagstream.cli import output

    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = run("explain", "swim wave beach", "-m", "m.tgs")[1]
    assert "\x1b[1mswim\x1b[0m" in out
    assert "*swim*" not in out


def test_tags_and_texts_are_shown_as_they_are(run, tmp_path):
    records = [{"id": "[bold]", "text": "a [red]swim[/red] :smile:", "y": ["[link]"]}] * 2
    write_jsonl(tmp_path / "a.jsonl", records)
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    out = run("explain", "rivers", "-m", "m.tgs")[1]
    assert "[red]swim[/red] :smile:" in out
    assert "[bold]" in out
    assert "[link]" in run("tags", "m.tgs")[1]


def test_predictions_can_come_with_their_reasons(run, tmp_path, model):
    path = write_jsonl(tmp_path / "new.jsonl", posts(3, seed=5, first=900))
    for record in records_of(run("predict", path, "-m", "m.tgs", "--why")[1]):
        why = record["why"]
        assert set(why["parts"]) == set(record["labels"])
        assert why["neighbors"][0]["shared"]
    assert run("predict", path, "-m", "m.tgs", "--why", "--out", "csv")[0] == 2


def test_texts_are_not_kept_if_not_wanted(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(20))
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs", "--no-keep-text")
    assert posts(1)[0]["text"].encode() not in Path("m.tgs").read_bytes()
    assert "p0" in run("explain", posts(1)[0]["text"], "-m", "m.tgs")[1]
    code, _, err = run("learn", "a.jsonl", "-m", "m.tgs", "--keep-text")
    assert code == 2
    assert "--keep-text of m.tgs must stay False" in err


def test_a_text_of_which_nothing_is_known_gets_no_tag(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(30))
    run("learn", "a.jsonl", "-m", "m.tgs")
    ask = json.dumps({"text": "Ωμέγα"}) + "\n"
    (found,) = records_of(run("predict", "-", "-m", "m.tgs", "--top", "2", stdin=ask)[1])
    assert found["labels"] == []
    assert found["known"] is False
    assert len(found["top"]) == 2
    assert "nothing in it was met before" in run("explain", "Ωμέγα", "-m", "m.tgs")[1]


# ------------------------------------------------------------------ what is suggested
def test_one_rule_decides_everywhere(run, tmp_path, model):
    path = write_jsonl(tmp_path / "new.jsonl", posts(9, seed=3))
    asked = [{"text": post["text"]} for post in posts(9, seed=3)]
    tagger = Tagger.open(model)
    for rule in ("balanced", "f1", "hamming", "macro", "top2", "0.3", "1"):
        number = float(rule) if rule[0].isdigit() else rule
        want = [one.tags for one in tagger.suggest(asked, decide=number)]
        out = run("predict", path, "-m", "m.tgs", "--decide", rule)[1]
        assert [record["labels"] for record in records_of(out)] == want
        why = json.loads(run("explain", path, "-m", "m.tgs", "--decide", rule, "--json")[1])
        assert {*why["voters"]} == {*want[0]}
    same = [run("predict", path, "-m", "m.tgs", *rule)[1] for rule in
            (("--decide", "0.3"), ("--threshold", "0.3"))]  # fmt: skip
    assert same[0] == same[1]


@pytest.mark.parametrize(
    "rule",
    [
        ("--threshold", "3"),
        ("--threshold", "-0.1"),
        ("--threshold", "nan"),
        ("--decide", "1.5"),
        ("--decide", "top0"),
        ("--decide", "nonsense"),
        ("--decide", "f1", "--threshold", "0.5"),
    ],
)
def test_a_rule_that_is_none_is_refused(run, tmp_path, model, rule):
    path = write_jsonl(tmp_path / "new.jsonl", posts(3))
    for command in (("predict", path, "-m", "m.tgs"), ("evaluate", path)):
        code, out, err = run(*command, *rule)
        assert (code, out) == (2, "")
        assert is_one_line(err)
        assert "--" in err


def test_the_best_few_are_never_padded_with_zeros(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(40))
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs", "--method", "knn", "-p", "head=false")
    out = run("predict", "a.jsonl", "-m", "m.tgs", "--top", "3")[1]
    scores = [best["score"] for record in records_of(out) for best in record["top"]]
    assert min(scores) > 0


def test_inspect_says_that_an_older_model_answers_as_before(run, tmp_path):
    old = Path(__file__).parent / "format2" / "tagger.tgs"
    model = tmp_path / "m.tgs"
    model.write_bytes(old.read_bytes())
    assert "as version 0.2 did" in " ".join(run("inspect", model)[1].split())
    run("refit", str(model))
    assert "as version 0.2 did" not in " ".join(run("inspect", model)[1].split())
