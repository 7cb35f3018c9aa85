"""Tags declared and described from the command line."""

from __future__ import annotations

import json

import pytest

from shell import is_one_line
from tagstream.tagger import Tagger


def test_a_model_is_made_of_declared_tags_and_goes_on(run, tmp_path):
    code, _, err = run("tags", "declare", "m.tgs", "travel", "--about", "trains, hotels")
    assert (code, err) == (0, "1 tag declared; m.tgs knows 1 tag\n")
    assert run("tags", "declare", "m.tgs", "music", "travel")[2].startswith("1 tag declared;")
    assert Tagger.open("m.tgs").suggest({"text": "two hotels and trains"}).tags == ["travel"]
    listed = json.loads(run("tags", "m.tgs", "--json")[1])
    assert {"tag": "travel", "items": 0, "about": "trains, hotels"} in listed
    assert {"tag": "music", "items": 0} in listed
    line = json.dumps({"id": "1", "text": "a guitar for sale", "y": ["music", "sale"]})
    (tmp_path / "p.jsonl").write_text(line + "\n")
    assert run("learn", "p.jsonl", "-m", "m.tgs")[0] == 0
    assert Tagger.open("m.tgs").tags == ["travel", "music", "sale"]


def test_a_tag_is_described(run):
    run("tags", "declare", "m.tgs", "sea")
    assert run("tags", "describe", "m.tgs", "sea", "beach, shore")[2] == "sea: beach, shore\n"
    assert Tagger.open("m.tgs").descriptions == {"sea": "beach, shore"}
    assert run("tags", "describe", "m.tgs", "sea", "")[2] == "sea: no description\n"
    assert Tagger.open("m.tgs").descriptions == {}


def test_tags_come_from_a_file_and_what_it_ignores_is_told(run, tmp_path):
    pytest.importorskip("rdflib")
    (tmp_path / "t.ttl").write_text(
        """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
        <http://x/1> skos:prefLabel "Meer"@de ; skos:broader <http://x/2> .
        <http://x/2> skos:prefLabel "Wasser"@de .""",
        "utf-8",
    )
    err = run("tags", "declare", "m.tgs", "--file", "t.ttl", "--lang", "de")[2]
    assert "tags have no hierarchy" in err
    assert err.endswith("2 tags declared; m.tgs knows 2 tags\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["declare", "m.tgs"], "there must be a NAME or --file"),
        (["declare", "m.tgs", "a", "b", "--about", "x"], "exactly one NAME"),
        (["declare", "m.tgs", "--file", "none.txt"], "none.txt: No such file"),
        (["declare", "m.tgs", " "], "a tag must be a string that is not empty"),
        (["describe", "m.tgs", "a", "x"], "must be a model file"),
    ],
)
def test_mistakes_are_told_in_one_line_and_change_nothing(run, tmp_path, argv, message):
    code, out, err = run("tags", *argv)
    assert code in (1, 2)
    assert message in err
    assert is_one_line(err)
    assert out == ""
    assert not (tmp_path / "m.tgs").exists()


def test_a_person_who_learns_a_few_texts_by_words_is_told_of_the_encoder_once(
    run, tmp_path, monkeypatch
):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    told = []
    for i, how in enumerate([["--quiet"], [], []]):
        line = json.dumps({"id": str(i), "text": f"text {i}", "y": ["a"]})
        (tmp_path / f"{i}.jsonl").write_text(line + "\n")
        told.append("--encoder use" in run("learn", f"{i}.jsonl", "-m", "m.tgs", *how)[2])
    assert told == [False, True, False]


def test_nothing_but_a_terminal_is_told_of_the_encoder(run, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "text", "y": ["a"]}) + "\n")
    assert "--encoder" not in run("learn", "a.jsonl", "-m", "m.tgs")[2]
