"""``tagstream learn FILE`` ends with a refit, now or, if it was killed, when it is given again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from shell import SMALL, is_one_line, posts, write_jsonl
from tagstream import OML, Tagger
from tagstream.cli.model import DUE, Keeper
from tagstream.files import persist

N = 60


@pytest.fixture
def learn(run, tmp_path):
    """Learn some records with ``tagstream learn``: a file, or standard input."""

    def learn(records, *options, name="a.jsonl", model="m.tgs", piped=False):
        path = write_jsonl(tmp_path / name, records)
        data, stdin = ("-", Path(path).read_text()) if piped else (name, "")
        return run("learn", data, *SMALL, "-m", model, *options, stdin=stdin)

    return learn


def n_since(model="m.tgs"):
    return Tagger.open(model).learner.n_since_fit_


def is_due(model="m.tgs"):
    return DUE in persist.inspect(model).extra


def killed(monkeypatch):
    """Have a signal come when the last record is saved and the refit is to begin."""
    monkeypatch.setattr(Keeper, "refit", lambda _: os.kill(os.getpid(), signal.SIGTERM))


# ------------------------------------------------------------------ when
def test_a_file_ends_with_a_refit(run, learn):
    assert "60 records learnt" in learn(posts(N))[2]
    assert n_since() == 0
    assert not is_due()
    learn(posts(N), "--no-refit", model="other.tgs")
    assert n_since("other.tgs") > N / 64
    run("refit", "other.tgs")
    assert Path("other.tgs").read_bytes() == Path("m.tgs").read_bytes()


def test_a_refit_is_that_of_the_library(learn):
    learn(posts(N))
    made = Tagger.open("m.tgs")
    tagger = Tagger(OML(random_state=0), made.featurizer)
    tagger.learn(posts(N))
    assert tagger.learner.n_since_fit_ > 0  # learning alone never refits
    tagger.refit()
    assert tagger.suggest(posts(9)) == made.suggest(posts(9))


def test_standard_input_ends_without_a_refit_unless_it_is_asked_for(run, learn):
    learn(posts(N), piped=True)
    assert n_since() > N / 64
    assert not is_due()
    learn(posts(N), "--refit", piped=True, model="other.tgs")
    assert n_since("other.tgs") == 0
    run("refit", "m.tgs")
    assert Path("m.tgs").read_bytes() == Path("other.tgs").read_bytes()


def test_a_few_more_records_are_not_worth_a_refit(run, learn):
    learn(posts(3 * N))
    learn(posts(3 * N + 2))
    assert n_since() == 2  # a 90th
    learn(posts(3 * N + 3))
    assert n_since() == 0  # more than a 64th


def test_nothing_new_is_not_worth_a_refit(run, learn):
    learn(posts(N), "--no-refit")
    before = Path("m.tgs").read_bytes()
    assert "0 records learnt" in learn(posts(N))[2]
    assert Path("m.tgs").read_bytes() == before
    err = learn(posts(N), "--refit")[2]
    assert err.endswith("m.tgs is fitted to 60 items\n")
    assert n_since() == 0


def test_corrections_are_worth_a_refit_if_many_items_came_since(run, learn):
    learn(posts(N))
    edited = posts(N)
    edited[3]["y"] = ["winter"]
    assert "1 corrected" in learn(edited)[2]
    assert n_since() == 0  # no item came since
    learn(posts(2, first=N), piped=True, name="more.jsonl")
    assert n_since() == 2
    edited[4]["y"] = ["winter"]
    assert "1 corrected" in learn(edited)[2]
    assert n_since() == 0


def test_below_twenty_items_there_is_nothing_to_fit(learn):
    learn(posts(19))
    assert n_since() == 19
    assert not is_due()
    learn(posts(20))
    assert n_since() == 0


def test_a_learner_that_fits_nothing_has_no_refit(learn):
    assert learn(posts(N), "--method", "osml-elm")[0] == 0
    assert not is_due()
    code, _, err = learn(posts(N), "--method", "osml-elm", "--refit", model="other.tgs")
    assert code == 1
    assert is_one_line(err)
    assert "OSMLELM has nothing to fit anew" in err
    assert not Path("other.tgs").exists()


# ------------------------------------------------------------------ stopped in between
@pytest.mark.parametrize("every", [10, 25, 1000])
def test_a_run_stopped_before_its_refit_makes_it_when_the_command_is_given_again(
    learn, monkeypatch, every
):
    how = ("--chunk", 10, "--every", every)
    learn(posts(N), *how, model="whole.tgs")
    with monkeypatch.context() as patch:
        killed(patch)
        code, _, err = learn(posts(N), *how)
    assert code == 128 + signal.SIGTERM
    assert err.endswith("stopped; the same command goes on from here\n")
    assert Tagger.open("m.tgs").n_items == N
    assert is_due()
    code, _, err = learn(posts(N), *how)
    assert code == 0
    assert err.endswith("m.tgs is fitted to 60 items\n")
    assert Path("m.tgs").read_bytes() == Path("whole.tgs").read_bytes()


def test_a_refit_that_is_due_waits_for_a_file(learn, monkeypatch):
    with monkeypatch.context() as patch:
        killed(patch)
        learn(posts(N))
    before = n_since()
    learn(posts(1, first=N), name="more.jsonl", piped=True)
    learn(posts(1, first=N + 1), "--no-refit", name="more.jsonl")
    assert is_due()
    assert n_since() == before + 2
    learn(posts(N))
    assert not is_due()
    assert n_since() == 0


def test_the_command_refit_makes_what_is_due(run, learn, monkeypatch):
    with monkeypatch.context() as patch:
        killed(patch)
        learn(posts(N))
    run("refit", "m.tgs")
    assert not is_due()
    fitted = Path("m.tgs").read_bytes()
    learn(posts(N))
    assert Path("m.tgs").read_bytes() == fitted


def test_what_is_due_must_make_sense(run, learn):
    learn(posts(30))
    tagger = Tagger.open("m.tgs")
    tagger.extra[DUE] = 3
    tagger.save("m.tgs")
    code, _, err = run("predict", "a.jsonl", "-m", "m.tgs")
    assert code == 1
    assert is_one_line(err)
