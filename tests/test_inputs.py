"""Python as people write it: texts, frames, pairs, ids of numpy, notebooks, pipelines."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from shell import posts
from tagstream import OML, DataError, Tagger, TextFeatures, load_model, prequential
from tagstream.models import KNN
from tagstream.text import Text

POSTS = posts(80)
TEXTS = [post["text"] for post in POSTS]
ASK = "swim beach wave sand tide"


def small(learner=None):
    return Tagger(learner or KNN(3), Text(n_features=2**10))


def same(one, other):
    assert one.ids == other.ids
    assert one.suggest(TEXTS) == other.suggest(TEXTS)


@pytest.fixture(scope="module")
def learnt():
    tagger = small()
    tagger.learn(POSTS)
    return tagger


def test_a_text_is_asked_about_as_a_record_of_it(learnt):
    assert learnt.suggest(ASK) == learnt.suggest({"text": ASK})
    assert learnt.suggest([ASK, {"text": ASK}]) == [learnt.suggest(ASK)] * 2
    assert learnt.explain(ASK) == learnt.explain({"text": ASK})
    assert learnt.suggest([]) == []


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_are_learnt_and_asked_about_as_records(learnt, library):
    frames = pytest.importorskip(library)
    pytest.importorskip("narwhals")
    columns = {key: [post[key] for post in POSTS] for key in ("id", "text", "y")}
    tagger = small()
    assert tagger.learn(frames.DataFrame(columns)).new == 80
    same(tagger, learnt)
    assert tagger.suggest(frames.DataFrame({"text": TEXTS})) == learnt.suggest(TEXTS)
    single = small()
    single.learn(frames.DataFrame({"text": TEXTS[:5], "y": [post["y"][0] for post in POSTS[:5]]}))
    assert single.item(0).tags == [POSTS[0]["y"][0]]
    with pytest.raises(DataError, match='must have its tags in a column "y", got text'):
        tagger.learn(frames.DataFrame({"text": TEXTS}))


def test_a_frame_of_numbers_has_columns_for_features():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    tags = [["up"] if x > 0 else ["down"] for x in X[:, 0]]
    tagger, other = Tagger(KNN(3)), Tagger(KNN(3))
    tagger.learn(frame.assign(y=tags, id=range(40)))
    other.learn(
        [{"id": i, "x": x.tolist(), "y": y} for i, (x, y) in enumerate(zip(X, tags, strict=True))]
    )
    assert tagger.featurizer.names == ("a", "b", "c")
    asked = [{"x": x.tolist()} for x in X]
    assert tagger.suggest(frame) == other.suggest(asked) == tagger.suggest(asked)
    with pytest.raises(ValueError, match="the columns must be a, b, c as learnt, got c, b, a"):
        tagger.suggest(frame[["c", "b", "a"]])
    with pytest.raises(DataError, match="got 'd' of"):
        tagger.suggest(frame.assign(d="x"))


def test_texts_and_tags_are_learnt_as_records():
    tagger, other = small(), small()
    tagger.learn((np.array(TEXTS), [post["y"] for post in POSTS]))
    other.learn([{"text": post["text"], "y": post["y"]} for post in POSTS])
    same(tagger, other)
    with pytest.raises(DataError, match="equally many, got 80 and 1"):
        tagger.learn((TEXTS, [["sea"]]))
    with pytest.raises(DataError, match="must come with its tags"):
        tagger.learn(ASK)
    assert len(tagger) == 80


def test_numpy_integers_are_ids():
    tagger = small()
    tagger.learn([{"id": np.int64(7), "text": ASK, "y": ["sea"]}])
    assert tagger.ids == [7]
    assert type(tagger.ids[0]) is int
    tagger.relabel(np.int64(7), ["sun"])
    assert tagger.item(np.int32(7)).tags == ["sun"]


def test_a_tagger_is_a_collection_of_its_items(learnt):
    assert len(learnt) == 80
    assert [*learnt] == [post["id"] for post in POSTS]
    assert "p3" in learnt
    assert "p99" not in learnt
    assert learnt.item("p3").text == POSTS[3]["text"]
    assert {*learnt.item("p3").tags} == {*POSTS[3]["y"]}
    with pytest.raises(KeyError, match="'p99'"):
        learnt.item("p99")
    assert bool(Tagger())
    assert len(Tagger()) == 0


def test_representations_hold_no_text_and_are_escaped():
    tagger = small()
    tagger.learn([{"id": "<1>", "text": "<b>swim", "y": ["<i>sea"]}])
    assert repr(tagger) == "<Tagger: 1 items, 1 tags, KNN>"
    for shown in (tagger, tagger.suggest("<b>swim"), tagger.explain("<b>swim")):
        page = shown._repr_html_()
        assert "<table>" in page
        assert "<b>" not in page
        assert "<i>" not in page
    assert "&lt;b&gt;swim" in tagger.explain("<b>swim")._repr_html_()


def test_a_record_without_text_is_told_which_field_was_expected(learnt):
    with pytest.raises(DataError, match='must have either "x" or "text", got the fields title'):
        learnt.suggest({"title": ASK})
    with pytest.raises(DataError, match="must be a text or a mapping, got int"):
        learnt.suggest([3])


def test_a_pipeline_has_the_probabilities_of_a_tagger_to_the_bit():
    tagger = Tagger(OML(random_state=0), names=False)
    tagger.learn(POSTS)
    tagger.refit()
    model = make_pipeline(TextFeatures(), OML(random_state=0))
    model.fit(TEXTS, [post["y"] for post in POSTS])
    expected = tagger.learner.predict_proba(Text().rows(TEXTS))
    np.testing.assert_array_equal(model.predict_proba(np.array(TEXTS)), expected)
    with pytest.raises(ValueError, match="sequence of texts, got the text"):
        model.predict(ASK)


def test_prequential_takes_label_sets_and_single_labels():
    X = np.random.default_rng(0).normal(size=(60, 3))
    Y = (X > 0).astype(np.uint8)
    names = np.array(["a", "b", "c"])
    sets = [{*names[row == 1]} for row in Y]
    wanted = prequential(KNN(3), X, Y).measures
    assert prequential(KNN(3), X, sets).measures["micro_f1"] == wanted["micro_f1"]
    single = prequential(KNN(3), X, names[X.argmax(axis=1)])
    assert (
        single.measures == prequential(KNN(3), X, [{n} for n in names[X.argmax(axis=1)]]).measures
    )
    some = [None if i % 7 == 0 else labels for i, labels in enumerate(sets)]
    assert 0 < prequential(KNN(3), X, some).measures["micro_f1"] < 1


def test_load_model_says_that_a_file_is_a_taggers(learnt, tmp_path, caplog):
    learnt.save(tmp_path / "m.tgs")
    with caplog.at_level(logging.WARNING, "tagstream.files.persist"):
        assert load_model(tmp_path / "m.tgs").n_seen_ == 80
    assert "is the file of a Tagger" in caplog.text
    assert "Tagger.open" in caplog.text
