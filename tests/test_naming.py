"""Names of tags are evidence: declared, described, learnt from, saved, and switched off."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from tagstream import OML, Tagger
from tagstream.checks import DataError
from tagstream.evidence.naming import MOST, Naming
from tagstream.features import Columns, Text
from tagstream.records.vocabulary import read_vocabulary

TOPICS = {
    "music": ["guitar lessons", "a song for two voices", "the piano is out of tune"],
    "cooking": ["soup for four", "bake bread at home", "which pan for fish"],
    "travel": ["a train to Rome", "cheap hotels", "two weeks by the lake"],
}


def stream(n=60, seed=0):
    rng = np.random.default_rng(seed)
    for i in range(n):
        tag = rng.choice([*TOPICS])
        said = rng.choice(TOPICS[tag])
        word = f" {tag}" if rng.random() < 0.5 else ""
        yield {"id": i, "text": f"{said}{word} {rng.integers(9)}", "y": [str(tag)]}


def same_state(a, b):
    np.testing.assert_equal(a.learner.to_state(), b.learner.to_state())


# ---------------------------------------------------------------------- the rows
def test_cosines_are_those_of_the_rows_and_a_row_knows_nothing_of_others():
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(5, 40)), rng.normal(size=(3, 40))
    want = (X @ T.T) / np.linalg.norm(X, axis=1)[:, None] / np.linalg.norm(T, axis=1)
    for made, rows in ((np.asarray, X), (sp.csr_matrix, sp.csr_matrix(X))):
        naming = Naming.empty(40, sparse=made is sp.csr_matrix).grown(made(T), 3)
        rows = rows.astype(np.float32)
        np.testing.assert_allclose(naming.cosines(rows), want, atol=1e-6)
        for i in range(5):
            one = rows[i : i + 1]
            np.testing.assert_array_equal(naming.cosines(one)[0], naming.cosines(rows)[i])


def test_an_empty_row_has_cosine_zero_and_labels_beyond_the_most_say_nothing():
    naming = Naming.empty(4, sparse=True).grown(sp.csr_matrix(np.eye(4)[:2]), 2)
    assert not naming.cosines(sp.csr_matrix((1, 4), dtype=np.float32)).any()
    many = Naming.empty(4, sparse=True).grown(sp.csr_matrix(np.ones((MOST + 3, 4))), MOST + 3)
    cosines = many.cosines(sp.csr_matrix(np.ones((1, 4), np.float32)))
    assert cosines.shape == (1, MOST + 3)
    assert cosines[0, :MOST].min() > 0.99
    assert not cosines[0, MOST:].any()
    assert many.renewed(MOST + 1, sp.csr_matrix((1, 4))) is many


@pytest.mark.parametrize("sparse", [True, False])
def test_what_was_dumped_is_loaded_and_nothing_else(sparse):
    rows = np.eye(3, 5, dtype=np.float32)
    made = Naming.empty(5, sparse=sparse).grown(sp.csr_matrix(rows) if sparse else rows, 3)
    state = made.with_declared([1]).dump()
    again = Naming.load(state, 3, 5, sparse=sparse)
    np.testing.assert_equal(again.dump(), state)
    with pytest.raises(ValueError, match="declared"):
        Naming.load({**state, "declared": np.full(3, 2, np.uint8)}, 3, 5, sparse=sparse)
    with pytest.raises(ValueError, match="names"):
        Naming.load(state, 3, 2, sparse=sparse)


# ---------------------------------------------------------------------- declared tags
def test_a_tagger_that_has_only_declared_tags_suggests_by_them():
    tagger = Tagger(tags={"cooking": "soup, bread, pan", "music": ""})
    assert tagger.suggest({"text": "a pan of soup and bread"}).tags[:1] == ["cooking"]
    assert tagger.suggest({"text": "music for tonight"}, next=True).tags == ["music"]
    assert tagger.n_items == 0
    assert tagger.tags == ["cooking", "music"]
    assert tagger.descriptions == {"cooking": "soup, bread, pan"}


def test_a_text_is_known_if_it_shares_a_word_with_a_name_or_a_description():
    tagger = Tagger(tags={"travel": "hotel"})
    assert tagger.suggest({"text": "some hotel"}).known
    assert not tagger.suggest({"text": "qwx zzkj"}).known
    tagger.describe("travel", "")
    assert tagger.descriptions == {}


def test_a_declared_tag_without_an_example_has_a_score_beside_learnt_ones():
    tagger = Tagger(tags=["gardening"])
    tagger.learn(list(stream()))
    scores = tagger.suggest({"text": "gardening in May"}).scores
    assert next(iter(scores)) == "gardening"
    assert tagger.counts["gardening"] == 0
    without = Tagger(names=False)
    without.learn(list(stream()))
    assert "gardening" not in without.tags


def test_explain_says_what_the_name_contributed_only_where_names_count():
    tagger, without = Tagger(), Tagger(names=False)
    for one in (tagger, without):
        one.learn(list(stream()))
    parts = tagger.explain({"text": "music in the park"}).parts["music"]
    assert parts["name"] > 0
    assert all("name" not in p for p in without.explain({"text": "music"}).parts.values())


def test_names_help_a_young_tagger():
    items, asked = list(stream(12)), [{"text": f"{tag} club"} for tag in TOPICS]
    right = {}
    for names in (True, False):
        tagger = Tagger(names=names)
        tagger.learn(items)
        said = tagger.suggest(asked)
        right[names] = sum(next(iter(s.scores)) == t for s, t in zip(said, TOPICS, strict=True))
    assert right[True] == 3 > right[False]


# ---------------------------------------------------------------------- events
def test_how_records_are_cut_into_calls_does_not_matter_with_names():
    items = list(stream())
    whole, parts = Tagger(tags=["travel", "sport"]), Tagger(tags=["travel", "sport"])
    whole.learn(items)
    for first, stop in ((0, 1), (1, 14), (14, 15), (15, 60)):
        parts.learn(items[first:stop])
    same_state(whole, parts)


def test_questions_change_nothing():
    tagger = Tagger(tags=["travel"])
    tagger.learn(list(stream(30)))
    before = tagger.learner.to_state()
    tagger.suggest([{"text": "travel"}, {"text": "x"}])
    tagger.explain({"text": "travel"})
    np.testing.assert_equal(tagger.learner.to_state(), before)


def test_a_saved_tagger_goes_on_with_its_names(tmp_path):
    items = list(stream())
    tagger = Tagger(tags={"travel": "train", "sport": "football"})
    tagger.learn(items[:25])
    tagger.save(tmp_path / "m.tgs")
    again = Tagger.open(tmp_path / "m.tgs")
    for one in (tagger, again):
        one.learn(items[25:])
        one.learn({"text": "a new one", "y": ["politics"]})
        one.describe("sport", "tennis")
    same_state(tagger, again)
    assert again.descriptions == {"travel": "train", "sport": "tennis"}
    assert again.names is True


def test_a_log_declares_and_describes_in_its_place():
    items = list(stream(20))
    by_log, by_hand = Tagger(), Tagger()
    by_log.learn(
        [
            {"event": "declare", "tags": {"sport": "football"}},
            *items[:10],
            {"event": "describe", "tag": "sport", "about": "tennis"},
            *items[10:],
        ]
    )
    by_hand.declare({"sport": "football"})
    by_hand.learn(items[:10])
    by_hand.describe("sport", "tennis")
    by_hand.learn(items[10:])
    same_state(by_log, by_hand)


def test_rename_keeps_the_description_and_takes_the_new_name():
    tagger = Tagger(tags={"a1": "football, tennis"})
    tagger.rename("a1", "sport")
    assert tagger.descriptions == {"sport": "football, tennis"}
    assert tagger.suggest({"text": "sport today"}).tags == ["sport"]
    with pytest.raises(ValueError, match="must be one that was learnt"):
        tagger.rename("none", "x")
    assert tagger.descriptions == {"sport": "football, tennis"}


def test_merge_keeps_the_targets_description_or_joins_the_others():
    tagger = Tagger(tags={"a": "one", "b": "two", "c": "", "d": "four"})
    tagger.merge(["a", "b"], "c")
    assert tagger.descriptions == {"c": "one\ntwo", "d": "four"}
    tagger.merge(["c"], "d")
    assert tagger.descriptions == {"d": "four"}
    tagger.remove("d")
    assert tagger.descriptions == {}
    assert tagger.tags == []


def test_a_tag_that_is_declared_again_takes_the_description():
    tagger = Tagger(tags=["music", "travel"])
    tagger.declare({"music": "guitar", "travel": ""})
    assert tagger.tags == ["music", "travel"]
    assert next(iter(tagger.suggest({"text": "my guitar"}).scores)) == "music"


def test_a_view_stays_as_it_was():
    tagger = Tagger(tags=["music"])
    view = tagger.view()
    tagger.declare({"sport": "football"})
    assert view.tags == ["music"]
    assert view.descriptions == {}
    assert view.suggest({"text": "music"}).tags == ["music"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tagger(tags="music"), "tags must be a list of strings"),
        (lambda: Tagger(tags=[]), "at least one tag"),
        (lambda: Tagger(tags=[" "]), "a tag must be a string that is not empty"),
        (lambda: Tagger(tags={"a": 3}), "a description must be a string"),
        (lambda: Tagger(tags=["a"], names=False), "names=False"),
        (lambda: Tagger(tags=["a"], featurizer=Columns(2)), "only be declared for texts"),
        (lambda: Tagger(OML(head=False, decide=0.5), tags=["a"]), "must have a head"),
        (lambda: Tagger(featurizer=Text(), encoder="use"), "beside an encoder"),
        (lambda: Tagger(tags=["a"]).describe("b", "x"), "one that is known"),
    ],
)
def test_what_cannot_be_is_refused_in_words(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_refused_declaration_changes_nothing():
    tagger = Tagger(tags=["music"])
    before = tagger.learner.to_state()
    with pytest.raises(ValueError, match="a tag must be"):
        tagger.declare(["sport", ""])
    assert tagger.tags == ["music"]
    np.testing.assert_equal(tagger.learner.to_state(), before)


def test_names_come_to_a_model_of_the_last_version_when_a_tag_is_declared():
    from pathlib import Path

    tagger = Tagger.open(Path(__file__).parent / "format2" / "tagger.tgs")
    assert not tagger.learner.names_count_
    tagger.declare(["gardening"])
    assert next(iter(tagger.suggest({"text": "gardening"}).scores)) == "gardening"


def test_arrays_have_no_columns_for_names():
    X = np.random.default_rng(0).normal(size=(40, 5))
    model = OML(random_state=0).fit(X, X[:, :2] > 0)
    assert not model.names_count_
    state = model.to_state()["learner"]["belief"]
    assert state["naming"] is None
    assert len(state["head"]["w"]) == 12


# ---------------------------------------------------------------------- files of tags
def test_tags_are_read_from_lines_csv_and_json(tmp_path):
    lines = tmp_path / "tags.txt"
    lines.write_text("# ours\nmusic\n\n travel \n", "utf-8")
    assert read_vocabulary(lines).tags == {"music": "", "travel": ""}
    table = tmp_path / "tags.csv"
    table.write_text('tag,about\nmusic,"songs, bands"\ntravel\n', "utf-8")
    assert read_vocabulary(table).tags == {"music": "songs, bands", "travel": ""}
    for value in ({"a": "x", "b": ""}, ["a"], [{"tag": "a", "about": "x"}, "b"]):
        path = tmp_path / "tags.json"
        path.write_text(json.dumps(value), "utf-8")
        assert "a" in read_vocabulary(path).tags


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "#\n", "at least one tag"),
        ("a.csv", "a,b,c\n", r"a\.csv:1: a line must have a name"),
        ("a.json", "{", "must be JSON"),
        ("a.json", "[3]", "entry 0 must be a string"),
        ("a.json", '{"a": 3}', "must be strings"),
        ("a.ttl", "nonsense", "must be SKOS"),
    ],
)
def test_files_that_name_no_tags_are_refused(tmp_path, name, text, message):
    if name.endswith(".ttl"):
        pytest.importorskip("rdflib")
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(DataError, match=message):
        read_vocabulary(tmp_path / name)


def test_a_thesaurus_gives_labels_of_one_language_and_says_what_it_ignores(tmp_path):
    pytest.importorskip("rdflib")
    path = tmp_path / "t.ttl"
    path.write_text(
        """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
        <http://x/1> skos:prefLabel "sea"@en, "Meer"@de ; skos:altLabel "ocean"@en, "See"@de ;
            skos:definition "Salt water."@en ; skos:broader <http://x/2> .
        <http://x/2> skos:prefLabel "water"@en .""",
        "utf-8",
    )
    found = read_vocabulary(path)
    assert found.tags == {"sea": "ocean; Salt water.", "water": ""}
    assert "hierarchy" in found.notes[0]
    assert read_vocabulary(path, lang="de").tags == {"Meer": "See"}
