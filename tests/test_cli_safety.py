"""Locks, signals, closed streams, pipes: what can go wrong around a command."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shell import SMALL, is_one_line, posts, tagstream, without_ids, write_jsonl
from tagstream import cli
from tagstream.checks import DataError
from tagstream.cli.model import LONGEST_NAME, locked
from tagstream.data import Tally
from tagstream.files import persist
from tagstream.tagger import Tagger

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")


# ------------------------------------------------------------------ one process at a time
@pytest.mark.parametrize(
    "args",
    [
        ("learn", "b.jsonl", "-m", "m.tgs"),
        ("tags", "remove", "m.tgs", "sea"),
        ("correct", "m.tgs", "p1", "--tags", "sea"),
        ("forget", "m.tgs", "p1"),
        ("refit", "m.tgs"),
    ],
)
def test_a_model_is_changed_by_one_process_at_a_time(run, tmp_path, args):
    write_jsonl(tmp_path / "a.jsonl", posts(9))
    write_jsonl(tmp_path / "b.jsonl", posts(9, first=9))
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    before = Path("m.tgs").read_bytes()
    live = tmp_path / f".m.tgs.{'0' * 32}.tmp"  # what the first process is writing
    with locked("m.tgs"):
        live.touch()
        code, out, err = run(*args)
        assert (code, out) == (1, "")
        assert err == (
            "tagstream: m.tgs: another process is changing this model; try again when it is done\n"
        )
        assert live.exists()
    assert Path("m.tgs").read_bytes() == before
    assert run(*args)[0] == 0
    assert not live.exists()
    assert sorted(os.listdir()) == ["a.jsonl", "b.jsonl", "m.tgs"]


def test_a_model_can_be_asked_while_it_is_changed(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(9))
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    with locked("m.tgs"):
        assert run("predict", "a.jsonl", "-m", "m.tgs")[0] == 0
        assert run("tags", "m.tgs")[0] == 0


def test_a_second_learner_is_refused_while_the_first_waits_for_more(tmp_path):
    model = tmp_path / "m.tgs"
    first = tagstream("learn", "-", "-m", model, "--chunk", "1", "--every", "1", stdin=-1)
    try:
        (post,) = posts(1)
        first.stdin.write(json.dumps(post) + "\n")
        first.stdin.flush()
        while not model.exists():  # it ends, or this never does: no clock decides
            assert first.poll() is None
        path = write_jsonl(tmp_path / "a.jsonl", posts(5, first=1))
        second = tagstream("learn", path, "-m", model)
        _, err = second.communicate()
        assert second.returncode == 1
        assert "another process is changing this model" in err
    finally:
        _, err = first.communicate()
    assert first.returncode == 0, err
    assert persist.inspect(model).n_seen == 1
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "m.tgs"]


def test_the_lock_of_a_killed_process_is_free(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(9))
    (tmp_path / ".m.tgs.lock").touch()
    assert run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")[0] == 0
    assert sorted(os.listdir()) == ["a.jsonl", "m.tgs"]


# ------------------------------------------------------------------ files of a model
def test_a_name_that_is_too_long_is_refused_before_anything_is_learnt(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(9))
    code, _, err = run("learn", "a.jsonl", *SMALL, "-m", "m" * (LONGEST_NAME + 1))
    assert code == 1
    assert is_one_line(err)
    assert "must have at most 217 bytes, got 218" in err
    assert run("learn", "a.jsonl", *SMALL, "-m", "m" * LONGEST_NAME)[0] == 0


def test_a_model_is_never_readable_for_others_than_before(run, tmp_path, monkeypatch):
    write_jsonl(tmp_path / "a.jsonl", posts(9))
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    os.chmod("m.tgs", 0o600)
    modes = []
    fsync = os.fsync
    monkeypatch.setattr(
        persist.os,
        "fsync",
        lambda handle: (modes.append(stat.S_IMODE(os.fstat(handle).st_mode)), fsync(handle)),
    )
    run("correct", "m.tgs", "p1", "--tags", "sea")
    assert modes[0] == 0o600
    assert stat.S_IMODE(os.stat("m.tgs").st_mode) == 0o600


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_a_model_stays_with_its_owner(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(9))
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    os.chown("m.tgs", 1234, 1234)
    run("correct", "m.tgs", "p1", "--tags", "sea")
    assert (os.stat("m.tgs").st_uid, os.stat("m.tgs").st_gid) == (1234, 1234)


# ------------------------------------------------------------------ going on
def test_a_file_without_a_last_line_end_is_learnt_once(run, tmp_path):
    lines = [json.dumps(record) for record in without_ids(posts(12))]
    (tmp_path / "a.jsonl").write_text("\n".join(lines[:5]))
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    err = run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")[2]
    assert "7 records learnt; m.tgs has seen 12" in err


@pytest.mark.parametrize("cut", [1, 5, 6, 7, 9])
def test_a_log_with_changes_goes_on_where_it_was(run, tmp_path, cut):
    some = posts(10)
    first = some[0]["y"][0]
    log = [
        *some[:5],
        {"event": "forget", "id": "p1"},
        {"event": "rename", "old": first, "new": "renamed"},
        *some[5:],
        {"event": "remove", "tag": "renamed"},
    ]
    how = (*SMALL, "--chunk", "3", "-m", "m.tgs")
    write_jsonl(tmp_path / "log.jsonl", log[:cut])
    assert run("learn", "log.jsonl", *how)[0] == 0
    write_jsonl(tmp_path / "log.jsonl", log)
    assert run("learn", "log.jsonl", *how)[0] == 0
    whole = (*SMALL, "--chunk", "256", "-m", "whole.tgs")
    assert run("learn", "log.jsonl", *whole)[0] == 0
    assert (tmp_path / "m.tgs").read_bytes() == (tmp_path / "whole.tgs").read_bytes()


def test_a_change_that_cannot_be_made_is_told_and_keeps_the_model(run, tmp_path):
    run("learn", write_jsonl(tmp_path / "a.jsonl", posts(5)), *SMALL, "-m", "m.tgs")
    kept = (tmp_path / "m.tgs").read_bytes()
    wrong = write_jsonl(tmp_path / "b.jsonl", [*posts(3, first=5), {"event": "remove", "tag": "?"}])
    code, _, err = run("learn", wrong, "-m", "m.tgs")
    assert code == 1
    assert "must be one that was learnt, got '?'" in err
    assert (tmp_path / "m.tgs").read_bytes() == kept


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"event": "forget", "id": "nobody"}, "no stored item is called 'nobody'"),
        ({"event": "forget", "id": ["p1"]}, "id must be a string or a number, got ['p1']"),
        ({"event": "rename", "old": "?", "new": "b"}, "must be one that was learnt, got '?'"),
        ({"event": "merge", "tags": ["a", 3], "into": "b"}, "tags must be a list of strings"),
        ({"event": "remove", "tag": "?"}, "must be one that was learnt, got '?'"),
    ],
)
@pytest.mark.parametrize("chunk", ["1", "4", "256"])
def test_a_change_that_cannot_be_made_is_told_with_file_and_line(
    run, tmp_path, change, message, chunk
):
    some = posts(9)
    write_jsonl(tmp_path / "log.jsonl", [*some[:5], change, *some[5:]])
    code, _, err = run("learn", "log.jsonl", *SMALL, "--chunk", chunk, "-m", "m.tgs", "--quiet")
    assert code == 1
    assert err.startswith("tagstream: log.jsonl:6: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_change_in_a_list_that_cannot_be_made_names_its_record():
    tagger = Tagger()
    with pytest.raises(DataError, match="record 3: no stored item is called 'nobody'"):
        tagger.learn([*posts(3), {"event": "forget", "id": "nobody"}])


def test_a_last_line_that_has_grown_is_an_edited_file(run, tmp_path):
    (tmp_path / "a.csv").write_text("body,tags\nswim,sea\ncook,food")
    how = ("--text", "body", "--labels", "tags", "--sep", "|", *SMALL, "-m", "m.tgs")
    run("learn", "a.csv", *how)
    (tmp_path / "a.csv").write_text("body,tags\nswim,sea\ncook,food|soup\n")
    code, _, err = run("learn", "a.csv", *how, "--quiet")
    assert code == 1
    assert "has changed since it was learnt" in err


def test_going_on_compares_what_was_learnt_before_it_reads_the_file_once(
    run, tmp_path, monkeypatch
):
    path = write_jsonl(tmp_path / "a.jsonl", posts(50))
    learnt_before = Path(path).stat().st_size
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")
    write_jsonl(tmp_path / "a.jsonl", posts(60))
    given = []
    readline = Tally.readline

    def counted(self, limit=-1):
        piece = readline(self, limit)
        given.append(len(piece))
        return piece

    monkeypatch.setattr(Tally, "readline", counted)
    assert "10 records learnt" in run("learn", "a.jsonl", *SMALL, "-m", "m.tgs")[2]
    assert sum(given) == learnt_before + Path(path).stat().st_size


@pytest.mark.parametrize("chunk", [1, 7, 256])
def test_how_much_is_read_at_a_time_does_not_matter_when_going_on(run, tmp_path, chunk):
    write_jsonl(tmp_path / "a.jsonl", posts(23))
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs", "--chunk", "5", "--no-refit")
    write_jsonl(tmp_path / "a.jsonl", posts(40))
    run("learn", "a.jsonl", *SMALL, "-m", "m.tgs", "--chunk", chunk)
    run("learn", "a.jsonl", *SMALL, "-m", "whole.tgs")
    assert Path("m.tgs").read_bytes() == Path("whole.tgs").read_bytes()


# ------------------------------------------------------------------ pipes and closed streams
@needs_proc
def test_a_pipe_is_read_once_and_not_remembered(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", posts(9))
    (tmp_path / "a.svm").write_text("0 1:1 2:1\n1 2:1 3:1\n" * 9)
    script = f"""
        t="{sys.executable} -m tagstream"
        cd {tmp_path}
        $t learn <(cat {path}) -m m.tgs && $t predict <(cat {path}) -m m.tgs &&
        $t learn <(cat a.svm) --format libsvm -m s.tgs
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 9
    assert "9 records learnt" in done.stderr
    assert "18 records learnt" in done.stderr
    assert Tagger.open(tmp_path / "m.tgs").extra["sources"] == {}


@needs_proc
def test_closed_streams_are_told_or_done_without(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", posts(9))
    run = f'exec "{sys.executable}" -m tagstream '

    def shell(command):
        return subprocess.run(
            ["bash", "-c", run + command], capture_output=True, text=True, check=False
        )

    done = shell(f"learn {path} -m {tmp_path}/m.tgs <&- 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = shell(f"predict {path} -m {tmp_path}/m.tgs >&-")
    assert done.returncode == 1
    assert done.stderr == "tagstream: standard output must be open, got it closed\n"
    done = shell(f"predict - -m {tmp_path}/m.tgs <&-")
    assert done.returncode == 1
    assert is_one_line(done.stderr)
    assert "standard input" in done.stderr
    done = shell(f"learn none.jsonl -m {tmp_path}/n.tgs 2>&- >&- <&-")
    assert done.returncode == 1


# ------------------------------------------------------------------ signals
def test_a_signal_in_the_first_moments_is_told_like_any_other():
    """The signal comes while the commands are imported."""
    code = """if True:
        import os, signal, sys
        import tagstream.cli

        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "tagstream.cli.app":
                    os.kill(os.getpid(), signal.SIGTERM)

        sys.meta_path.insert(0, Finder())
        sys.exit(tagstream.cli.main(["learn", "a.jsonl", "-m", "m.tgs"]))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "tagstream: stopped\n")


def test_a_signal_before_anything_is_read_leaves_nothing_behind(run, tmp_path, monkeypatch):
    write_jsonl(tmp_path / "a.jsonl", posts(9))

    def interrupted(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("tagstream.cli.learn.Keeper", interrupted)
    code, out, err = run("learn", "a.jsonl", "-m", "m.tgs")
    assert (code, out, err) == (128 + signal.SIGTERM, "", "tagstream: stopped\n")
    assert os.listdir() == ["a.jsonl"]


def test_handlers_of_signals_are_put_back(run):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    cli.main(["--version"])
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


@pytest.mark.parametrize("command", ["learn", "predict", "evaluate", "next"])
@pytest.mark.parametrize("how", [(), ("--format", "jsonl"), ("--format", "folder")])
def test_an_empty_name_does_not_stand_for_this_folder(run, learnt, tmp_path, command, how):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "secret.txt").write_text("a text")
    (tmp_path / "m.tgs").write_bytes(learnt.read_bytes())
    code, out, err = run(command, "", "-m", "m.tgs", *how)
    assert (code, out) == (1, "")
    assert err == "tagstream: a file must have a name, got an empty one\n"
