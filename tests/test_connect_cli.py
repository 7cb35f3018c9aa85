"""``tagstream connect`` as a command, the action of GitHub, and the pipes of the guides."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fake_github import REPOSITORY, serving_github
from fake_github import TOKEN as GITHUB_TOKEN
from fake_paperless import TOKEN, serving_paperless
from shell import is_one_line
from tagstream.cli import connect
from tagstream.tagger import Tagger
from test_connect_github import BUG, full_github
from test_connect_paperless import GARDEN, INBOX, TEXTS, full_server

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch):
    for name in [*os.environ]:
        if name.startswith(("GITHUB_", "TAGSTREAM_TOKEN", "TAGSTREAM_PAPERLESS")):
            monkeypatch.delenv(name)


@pytest.fixture
def paperless():
    server = full_server()
    with serving_paperless(server) as server.url:
        yield server


def test_without_go_nothing_is_done_and_all_is_told(run, paperless, tmp_path, monkeypatch):
    monkeypatch.setenv("TAGSTREAM_PAPERLESS_TOKEN", TOKEN)
    paperless.upload("Tulips", TEXTS[GARDEN], [INBOX])
    command = ["connect", "paperless", paperless.url, "-t", "docs.tgs", "--backlog"]
    code, out, err = run(*command)
    assert code == 0
    assert "what --go would write:" in out
    assert "#25 Tulips" in out
    assert "dry run, nothing was changed: 24 learnt, 1 noted; 3 tags:" in err
    assert "do it with --go" in err
    assert [*tmp_path.iterdir()] == []
    code, out, err = run(*command, "--go")
    assert code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs.tgs", "paperless-state.db"]
    assert len(paperless.note_texts(25)) == 1
    code, out, err = run(*command, "--go", "--json")
    assert json.loads(out) == {"done": True, "counts": {}, "tags": {}, "pushed": [], "warnings": []}


def test_the_token_comes_from_a_file_and_is_never_told(run, paperless, tmp_path):
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    command = ["connect", "paperless", paperless.url, "-t", "docs.tgs", "--token"]
    assert run(*command, "@token", "-q")[0] == 0
    code, out, err = run(*command, "wrong-token")
    assert code == 1
    assert is_one_line(err)
    assert "answered 401: Invalid token.; give it a token that holds" in err
    assert "wrong-token" not in out + err
    (tmp_path / "two").write_text("a\nb-secret")
    code, out, err = run(*command, "@two")
    assert code == 1
    assert "b-secret" not in out + err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["paperless", "http://x", "-t", "m"], "--token must be given"),
        (["paperless", "http://x", "-t", "m", "--token", "t", "--follow"], "must come with --go"),
        (["paperless", "ftp://x", "-t", "m", "--token", "t"], "must be http:// or https://"),
        (["paperless", "http://x", "-t", "m", "--token", "t", "--prefix", ""], "--prefix must be"),
        (["github", "-t", "m", "-r", "owner", "--token", "t"], "must be OWNER/NAME"),
        (["github", "-t", "m", "-r", "a/b", "--token", "t", "--event", "no"], "No such file"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(run, args, said):
    code, out, err = run("connect", *args)
    assert code in (1, 2)
    assert said in err
    assert out == ""


def test_following_goes_on_in_spite_of_trouble(run, paperless, monkeypatch, tmp_path):
    monkeypatch.setenv("TAGSTREAM_PAPERLESS_TOKEN", TOKEN)
    rounds: list[str] = []

    def between(_: float) -> None:
        rounds.append("")
        if len(rounds) == 1:
            paperless.versions = ()  # 406 to everything
        elif len(rounds) == 2:
            paperless.versions = (9, 10)
            paperless.upload("Tulips", TEXTS[GARDEN], [INBOX])
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(connect, "_wait", between)
    command = ["connect", "paperless", paperless.url, "-t", "docs.tgs", "--go", "--follow"]
    code, _, err = run(*command)
    assert code == 130
    assert "answered 406" in err
    assert "trying again" in err
    assert len(paperless.note_texts(25)) == 1


def test_a_token_that_others_could_read_is_told(run):
    args = ["-t", "http://192.0.2.1", "--target-token", "t", "--token", "t"]
    _, _, err = run("connect", "paperless", "ftp://x", *args)
    assert "must be http" in err
    web = connect._web("http://192.0.2.1", "t", "--token", "X", "Token", {})
    assert web.shows_token
    assert not connect._web("http://127.0.0.1", "t", "--token", "X", "Token", {}).shows_token
    assert not connect._web("https://192.0.2.1", "t", "--token", "X", "Token", {}).shows_token


# ---------------------------------------------------------------------- the action
def test_the_command_takes_an_event_from_where_an_action_has_it(run, tmp_path, monkeypatch):
    github = full_github()
    with serving_github(github) as url:
        for name, value in {
            "GITHUB_API_URL": url,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_TOKEN": GITHUB_TOKEN,
        }.items():
            monkeypatch.setenv(name, value)
        new = github.open("It fails", BUG)
        (tmp_path / "event.json").write_text(json.dumps(github.event("opened", new)))
        monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
        code, out, err = run("connect", "github", "-t", "labels.tgs", "--go")
        assert code == 0, err
        assert "#17 It fails" in out
        assert len(github.texts(new)) == 1
        (tmp_path / "event.json").write_text("[]")
        code, _, err = run("connect", "github", "-t", "labels.tgs")
        assert code == 1
        assert "must be an event of GitHub, got list" in err


def test_the_action_runs(tmp_path):
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    steps = action["runs"]["steps"]
    (step,) = [one for one in steps if "connect github" in one.get("run", "")]
    github = full_github()
    new = github.open("It fails", BUG)
    (tmp_path / "event.json").write_text(json.dumps(github.event("opened", new)))
    (tmp_path / "python").symlink_to(sys.executable)
    with serving_github(github) as url:
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "VIRTUAL_ENV": sys.prefix,
            "GITHUB_API_URL": url,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
            "GITHUB_TOKEN": GITHUB_TOKEN,
            **dict.fromkeys(("SET_LABELS", "CREATE_LABELS", "DRY_RUN"), "false"),
            "SET_LABELS": "true",
            "INBOX": "triage $(touch hurt)",
        }
        script = step["run"].replace("python -m", f"'{sys.executable}' -m")
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script],
            check=False, cwd=tmp_path, env=environment, capture_output=True, text=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert github.names(new) == {"bug"}
    assert len(Tagger.open(tmp_path / ".tagstream" / "labels.tgs").ids) == 16
    assert not (tmp_path / "hurt").exists()
    assert {*step["env"]} == {"GITHUB_TOKEN", "SET_LABELS", "CREATE_LABELS", "INBOX", "DRY_RUN"}


def test_the_action_and_its_workflow_are_safe():
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    for step in action["runs"]["steps"]:
        assert "${{" not in step.get("run", "")  # what strangers write is never a command
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step.get("uses", "a@" + "0" * 40))
    workflow = yaml.safe_load((ROOT / "examples" / "label-issues.yml").read_text("utf-8"))
    assert workflow["permissions"] == {"contents": "read", "issues": "write"}
    assert workflow["concurrency"]["cancel-in-progress"] is False
    assert set(workflow[True]) == {"issues", "workflow_dispatch"}
    given = workflow["jobs"]["label"]["steps"][0]["with"]
    assert {*given} <= {*action["inputs"]}
    text = (ROOT / "docs" / "connect-github.md").read_text("utf-8")
    assert (ROOT / "examples" / "label-issues.yml").read_text("utf-8").split("\n", 1)[1] in text


# ---------------------------------------------------------------------- pipes
def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = f'tagstream() {{ "{sys.executable}" -m tagstream "$@"; }}\n{script}'
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", command],
        check=False, cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip


PIPES = (ROOT / "docs" / "pipes.md").read_text("utf-8")


@pytest.mark.parametrize(("begins", "n_commands"), [("jq", 2), ("notmuch", 2), ("An RSS", 1)])
def test_the_pipes_of_the_guide_run(begins, n_commands, tmp_path, monkeypatch):
    """Run the blocks of a section; ``sh`` blocks are commands, named ones files."""
    for tool in ("jq", *(["notmuch"] if begins == "notmuch" else [])):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    sections = re.split(r"^## ", PIPES, flags=re.MULTILINE)
    (section,) = [one for one in sections if one.startswith(begins)]
    monkeypatch.setenv("HOME", str(tmp_path))
    if begins == "notmuch":
        fill_mail(tmp_path)
    found = re.findall(r"^```(\w+)[ ]?([\w.]*)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    n = 0
    for kind, name, text in found:
        if name:
            (tmp_path / name).write_text(text)
        elif kind == "sh":
            done = shell(text, tmp_path)
            assert done.returncode == 0, (text, done.stderr)
            n += 1
    assert n == n_commands
    (model,) = tmp_path.glob("*.tgs")
    assert Tagger.open(model).n_items == {"jq": 4, "notmuch": 10, "An RSS": 2}[begins]
    if begins == "notmuch":
        done = shell("notmuch search --output=tags id:m10@b.example id:m11@b.example", tmp_path)
        assert {*done.stdout.split()} >= {"money", "work"}  # the two that were new


def fill_mail(home: Path) -> None:
    """Make a small store of mail with tags."""
    mail = home / "mail" / "cur"
    for name in ("cur", "new", "tmp"):
        (home / "mail" / name).mkdir(parents=True)
    for i in range(12):
        word = ["invoice payment due", "meeting agenda minutes"][i % 2]
        said = f"From: a@b.example\nTo: me@b.example\nSubject: {word} {i}\n"
        said += f"Message-ID: <m{i}@b.example>\nDate: Wed, 18 Nov 2026 10:00:00 +0000\n\n{word}\n"
        (mail / f"{i}.b.example:2,S").write_text(said)
    config = f"[database]\npath={home / 'mail'}\n[user]\nname=me\nprimary_email=me@b.example\n"
    (home / ".notmuch-config").write_text(config + "[new]\ntags=new\n")
    for command in (
        "notmuch new",
        "notmuch tag +money -- subject:invoice and not subject:10",
        "notmuch tag +work -- subject:meeting and not subject:11",
        "notmuch tag -new -- tag:money or tag:work",
    ):
        done = shell(command, home)
        assert done.returncode == 0, done.stderr
