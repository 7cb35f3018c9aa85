"""The two targets of connectors: a service and a model file answer and learn alike."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from serving import serving
from shell import posts
from tagstream.connect.model_file import FileTarget
from tagstream.connect.service import ServiceTarget
from tagstream.connect.state import Known, State
from tagstream.connect.target import Lesson, Refused
from tagstream.connect.teaching import Report, Teacher
from tagstream.connect.web import Web, WebError
from tagstream.files import locks
from tagstream.serve.tokens import Tokens
from tagstream.tagger import Tagger

LESSONS = [Lesson(p["id"], p["text"], tuple(p["y"])) for p in posts(40)]
KEYS = [f"{one.id}:{one.digest}" for one in LESSONS]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("service") / "tags", tagger=Tagger) as client:
        assert client.service._ready.wait(300)
        target = ServiceTarget(Web(client.url, wait=lambda _: client.service._ready.wait(0.05)))
        target.client = client
        target.learn(LESSONS, KEYS)
        yield target


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    target = FileTarget(tmp_path_factory.mktemp("file") / "m.tgs")
    target.learn(LESSONS, KEYS)
    return target


def test_both_targets_answer_the_same(service, file):
    asked = [{"text": "swim at the beach"}, {"text": "python soup"}]
    assert service.suggest(asked) == file.suggest(asked)
    told, same = service.explain(asked[0]), file.explain(asked[0])
    assert {name: told[name] for name in ("tags", "scores", "known", "neighbours", "words")} == {
        name: same[name] for name in ("tags", "scores", "known", "neighbours", "words")
    }
    assert service.tags() == file.tags()
    assert service.find(["beach"], "sea", 3) == file.find(["beach"], "sea", 3)
    assert service.find([], "sea", 2) == file.find([], "sea", 2)
    assert service.candidates("sea", 3) == file.candidates("sea", 3)
    assert service.review(3) == file.review(3)


def test_a_lesson_that_is_repeated_changes_nothing(service, file):
    marks = service.mark(), file.mark()
    service.learn(LESSONS, KEYS)
    file.learn(LESSONS, KEYS)
    assert (service.mark(), file.mark()) == marks


def test_both_correct_a_stored_item(service, file):
    lesson = LESSONS[0]
    for target in (service, file):
        before = {*lesson.tags}
        missing = next(tag for tag in ("code", "food", "sea") if tag not in before)
        assert {*target.correct(lesson.id, [missing], [])} == before | {missing}
        assert {*target.correct(lesson.id, [], [missing])} == before
        with pytest.raises(Refused, match="'nobody'"):
            target.correct("nobody", ["sea"], [])


def test_both_forget(service, file):
    lesson = Lesson("gone", "low tide and sand", ("sea",))
    for target in (service, file):
        target.learn([lesson], [None])
        assert [one["id"] for one in target.find(["sand", "low"], None, 5)] == ["gone"]
        target.forget(["gone", "never was"])
        assert target.suggest([{"id": "gone", "text": lesson.text}])[0].known
    assert file.find(["sand", "low"], None, 5) == []


def test_a_refused_lesson_does_not_keep_the_others_back(service, file, tmp_path):
    bad = Lesson("bad", "text", ("x" * 300,))
    with State(tmp_path / "s.db", "here", "there") as state:
        report = Report()
        Teacher(service, state, "t", report).teach([LESSONS[1], bad, LESSONS[2]])
        assert report.counts == {"learnt": 2, "refused": 1}
        assert state.item("bad") is None
    assert "t/bad was not learnt: items[0].y[0] must" in report.warnings[0]


def test_a_reader_s_token_cannot_learn_through_a_connector(tmp_path):
    tokens = Tokens(tmp_path / "tokens.json")
    read, write = tokens.add("agent", "read"), tokens.add("robot", "write")
    with serving(tmp_path, is_open=False) as client:
        reader = ServiceTarget(Web(client.url, read))
        with pytest.raises(WebError, match="answered 403"):
            reader.learn(LESSONS[:1], [None])
        with pytest.raises(WebError, match="answered 401"):
            ServiceTarget(Web(client.url)).mark()
        writer = ServiceTarget(Web(client.url, write))
        writer.learn(LESSONS[:1], [None])
        assert writer.refit() is False  # that is for admins
        assert client.service.log.newest(LESSONS[0].id).who == "robot"


def test_a_dry_service_is_only_asked(service):
    dry, before = ServiceTarget(service.web, dry=True), service.mark()
    dry.learn([Lesson("new", "text", ("sea",))], [None])
    dry.forget([LESSONS[3].id])
    dry.correct(LESSONS[3].id, ["food"], [])
    assert dry.mark() == before


# ---------------------------------------------------------------------- the model file
def test_a_file_that_another_process_writes_is_read_again(tmp_path):
    target, other = FileTarget(tmp_path / "m.tgs"), FileTarget(tmp_path / "m.tgs")
    target.learn(LESSONS[:10], KEYS[:10])
    other.learn(LESSONS[10:20], KEYS[10:20])
    assert target.mark() == 20
    target.learn(LESSONS[20:30], KEYS[20:30])
    assert other.mark() == 30


def test_a_file_that_is_held_is_waited_for_and_then_given_up(tmp_path):
    target = FileTarget(tmp_path / "m.tgs", patience=0.0)
    with locks.held(tmp_path / "m.tgs"), pytest.raises(OSError, match="another process is"):
        target.learn(LESSONS[:1], KEYS[:1])
    target.learn(LESSONS[:1], KEYS[:1])
    assert [path.name for path in tmp_path.iterdir()] == ["m.tgs"]


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path):
    target = FileTarget(tmp_path / "m.tgs")
    target.learn(LESSONS[:5], KEYS[:5])
    before = (tmp_path / "m.tgs").read_bytes()
    with pytest.raises(Refused):
        target.learn([Lesson("new", "text", ("",))], [None])
    assert (tmp_path / "m.tgs").read_bytes() == before
    assert target.mark() == 5


def test_the_command_line_goes_on_with_a_file_of_a_connector(tmp_path, run):
    FileTarget(tmp_path / "m.tgs").learn(LESSONS, KEYS)
    assert run("tags", "m.tgs")[0] == 0
    assert run("learn", "-", "-m", "m.tgs", "-q", stdin='{"text": "salt", "y": ["food"]}\n')[0] == 0
    assert FileTarget(tmp_path / "m.tgs").mark() == 41


# ---------------------------------------------------------------------- the state
def test_a_state_belongs_to_one_source_and_one_target(tmp_path):
    State(tmp_path / "s.db", "source", "target").close()
    with pytest.raises(OSError, match="belongs to source, got another; give another file"):
        State(tmp_path / "s.db", "another", "target")
    with pytest.raises(OSError, match="belongs to target, got other"):
        State(tmp_path / "s.db", "source", "other")


def test_a_state_is_open_once(tmp_path):
    with State(tmp_path / "s.db", "source", "target") as state:
        state.set_facts({"since": 1})
        with pytest.raises(OSError, match="another connector has this state open"):
            State(tmp_path / "s.db", "source", "target")


def test_another_file_is_no_state(tmp_path):
    (tmp_path / "text.db").write_text("hello" * 1000)
    with pytest.raises(OSError, match="must be the state of a connector"):
        State(tmp_path / "text.db", "source", "target")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(OSError, match="got another file"):
        State(tmp_path / "other.db", "source", "target")


def test_a_state_remembers(tmp_path):
    known = Known("digest", 2, True, {"tags": [1]})
    with State(tmp_path / "s.db", "source", "target") as state:
        state.put({"7": known}, {"since": "now"})
    with State(tmp_path / "s.db", "source", "target", dry=True) as state:
        assert state.item("7") == known
        assert state.waiting() == {"7": known}
        state.put({"7": dataclasses.replace(known, waits=False)})
        assert state.waiting() == {}
    with State(tmp_path / "s.db", "source", "target") as state:
        assert state.waiting() == {"7": known}
        assert state.fact("since") == "now"
        state.begin_again({})
        assert state.item("7") == dataclasses.replace(known, digest=None)


def test_what_the_target_did_not_take_is_not_remembered(tmp_path):
    class Away(FileTarget):
        def learn(self, lessons: Any, keys: Any) -> None:
            raise OSError("away")

    with State(tmp_path / "s.db", "source", "target") as state:
        teacher = Teacher(Away(tmp_path / "m.tgs"), state, "t", Report())
        with pytest.raises(OSError, match="away"):
            teacher.teach(LESSONS[:1], {LESSONS[0].id: Known(about={"tags": []})}, {"since": 9})
        assert state.item(LESSONS[0].id) is None
        assert state.fact("since") is None


def test_keys_tell_changes_apart(tmp_path):
    class Keeps:
        name = "keeps"

        def __init__(self) -> None:
            self.keys: list[str] = []

        def mark(self) -> int:
            return len(self.keys)

        def learn(self, lessons: Any, keys: Any) -> None:
            self.keys += keys

    target: Any = Keeps()
    one, two = (Lesson("1", "text", (tag,)) for tag in ("a", "b"))
    with State(tmp_path / "s.db", "source", "target") as state:
        teacher = Teacher(target, state, "t", Report())
        for lesson in (one, one, two, one):
            teacher.teach([lesson])
    assert len(target.keys) == len({*target.keys}) == 3
    again: Any = Keeps()
    with State(tmp_path / "lost.db", "source", "target") as state:
        Teacher(again, state, "t", Report()).teach([one])
    assert again.keys == target.keys[:1]


def test_a_path_of_a_state_that_cannot_be_made(tmp_path: Path):
    with pytest.raises(OSError, match="unable to open"):
        State(tmp_path / "no" / "s.db", "source", "target")
