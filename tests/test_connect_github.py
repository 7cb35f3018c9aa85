"""The connector to GitHub's issues, with events in GitHub's shape and a server on the loopback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fake_github import REPOSITORY, TOKEN, FakeGitHub, serving_github
from tagstream.connect.github import HEADERS, GitHub
from tagstream.connect.issues import MARK, Issues, IssueSettings
from tagstream.connect.model_file import FileTarget
from tagstream.connect.state import State
from tagstream.connect.target import Suggested
from tagstream.connect.teaching import Report, Teacher
from tagstream.connect.web import Web, WebError
from tagstream.tagger import Tagger

EVENTS = Path(__file__).parent / "github-events"
BUG = "it crashes with a traceback when the file is empty"
DOCS = "the manual page has a typing mistake in the example"


def full_github(n: int = 8) -> FakeGitHub:
    github = FakeGitHub()
    for i in range(n):
        github.open(f"Crash {i}", f"{BUG} {i}", ["bug"])
        github.open(f"Manual {i}", f"{DOCS} {i}", ["docs"])
    return github


class Bench:
    def __init__(self, github: FakeGitHub, url: str, folder: Path) -> None:
        self.github, self.url, self.folder = github, url, folder
        self.model = folder / "labels.tgs"

    def round(
        self, event: Any = None, settings: Any = None, target: Any = None, dry=False
    ) -> Report:
        target = target or FileTarget(self.model, dry)
        web = Web(self.url, TOKEN, "Bearer", HEADERS, wait=lambda _: None)
        with State(self.folder / "state.db", self.url, target.name, dry) as state:
            report = Report()
            teacher = Teacher(target, state, f"github/{REPOSITORY}", report)
            Issues(GitHub(web, REPOSITORY, dry), teacher, settings).go(event)
        return report

    def labels_of(self, number: int) -> set[str]:
        return {*Tagger.open(self.model).item(f"github/{REPOSITORY}/{number}").tags}

    def learnt(self) -> set[int]:
        return {int(str(id).rpartition("/")[2]) for id in Tagger.open(self.model).ids}


@pytest.fixture
def bench(tmp_path):
    github = full_github()
    with serving_github(github) as url:
        yield Bench(github, url, tmp_path)


class Says(FileTarget):
    def __init__(self, path: Path, tags: dict[str, float], auto: Any = ()) -> None:
        super().__init__(path)
        self.told = Suggested([*tags], tags, True, [*auto])

    def suggest(self, items: Any) -> list[Suggested]:
        return [self.told for _ in items]


def test_the_first_round_learns_all_issues_with_labels(bench):
    unlabelled = bench.github.open("Hello", "how do I start")
    pull = bench.github.open("Fix", "a change", ["bug"], pull=True)
    report = bench.round()
    assert report.counts["learnt"] == 16
    assert bench.learnt() == {*range(1, 19)} - {unlabelled, pull}
    assert bench.github.writes() == []


def test_an_opened_issue_gets_one_comment_that_is_edited(bench):
    bench.round()
    new = bench.github.open("It fails", BUG)
    bench.round(bench.github.event("opened", new))
    (text,) = bench.github.texts(new)
    assert text.startswith(f"{MARK}\nSuggested labels: `bug` ")
    assert "similar: `#" in text
    assert bench.github.names(new) == set()
    bench.round()
    assert len(bench.github.texts(new)) == 1
    bench.github.issues[new]["body"] = DOCS
    bench.github.issues[new]["title"] = "Typing mistake"
    bench.round(bench.github.event("edited", new))
    (text,) = bench.github.texts(new)
    assert "`docs` " in text


def test_labels_are_learnt_as_people_set_them(bench):
    bench.round()
    new = bench.github.open("Start", "how do I start this")
    bench.github.label(new, "question")
    bench.round(bench.github.event("labeled", new, label={"name": "question"}))
    assert bench.labels_of(new) == {"question"}
    bench.github.label(1, "docs")
    bench.github.label(1, "bug", event="unlabeled")
    bench.round(bench.github.event("unlabeled", 1, label={"name": "bug"}))
    assert bench.labels_of(1) == {"docs"}


def test_a_label_set_at_the_opening_is_learnt_by_its_own_event(bench):
    bench.round()
    new = bench.github.open("It fails", BUG, ["question"])
    bench.round(bench.github.event("opened", new))
    bench.round(bench.github.event("labeled", new))
    assert bench.labels_of(new) == {"question"}


def test_closing_an_issue_confirms_its_labels(bench):
    bench.round()
    new = bench.github.open("It fails", BUG)
    says = Says(bench.model, {"bug": 0.99}, ["bug"])
    bench.round(bench.github.event("opened", new), target=says)
    assert bench.github.names(new) == {"bug"}
    bench.round()
    assert new not in bench.learnt()  # we set it ourselves
    bench.github.close(new)
    bench.round(bench.github.event("closed", new))
    assert bench.labels_of(new) == {"bug"}


@pytest.mark.parametrize("has_event", [True, False])
def test_a_bot_that_closes_an_issue_confirms_nothing(bench, has_event):
    bench.round()
    new = bench.github.open("It fails", BUG)
    event = bench.github.event("opened", new)
    bench.round(event, target=Says(bench.model, {"bug": 0.99}, ["bug"]))
    bench.github.close(new, "github-actions[bot]")
    event = bench.github.event("closed", new, "github-actions[bot]")
    bench.round(event if has_event else None)
    assert new not in bench.learnt()


def test_a_label_of_ours_that_is_taken_away_is_refused(bench):
    bench.round()
    new = bench.github.open("It fails", BUG)
    bench.round(bench.github.event("opened", new), IssueSettings(set_labels=True))
    assert bench.github.names(new) == {"bug"}
    assert "Labels set: `bug`" in bench.github.texts(new)[0]
    bench.github.label(new, "bug", event="unlabeled")
    bench.round(bench.github.event("unlabeled", new))
    asked = {"id": f"github/{REPOSITORY}/{new}", "text": f"It fails\n{BUG}"}
    assert Tagger.open(bench.model).suggest(asked).tags == []


def test_what_a_bot_labels_is_not_learnt(bench):
    bench.round()
    bench.github.label(1, "question", "github-actions[bot]")
    bench.round(bench.github.event("labeled", 1, "github-actions[bot]"))
    assert bench.labels_of(1) == {"bug"}
    bench.github.label(2, "question", "github-actions[bot]")
    bench.round()  # the run of that event was dropped
    assert bench.labels_of(2) == {"docs"}


def test_events_whose_runs_were_dropped_are_caught_up(bench):
    bench.round()
    first = bench.github.open("It fails", BUG)
    second = bench.github.open("Manual", DOCS)
    bench.github.label(1, "question")
    bench.round(bench.github.event("opened", second))
    assert len(bench.github.texts(first)) == len(bench.github.texts(second)) == 1
    assert bench.labels_of(1) == {"bug", "question"}


def test_state_that_was_lost_is_built_again(bench):
    bench.round()
    new = bench.github.open("It fails", BUG)
    bench.round(bench.github.event("opened", new))
    (bench.folder / "state.db").unlink()
    bench.model.unlink()
    newer = bench.github.open("It fails too", BUG)
    bench.round(bench.github.event("opened", newer))
    assert bench.learnt() == {*range(1, 17)}
    assert len(bench.github.texts(newer)) == 1
    assert len(bench.github.texts(new)) == 1  # old issues are left alone


def test_a_first_round_that_hits_the_limit_goes_on_later(bench):
    bench.github.limit = 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tagstream.connect.github.PAGE", 5)
        with pytest.raises(WebError, match="answered 403: API rate limit exceeded"):
            bench.round()
        bench.github.limit = None
        n = len(bench.learnt())
        assert 0 < n < 16
        assert bench.round().counts["learnt"] == 16 - n
    assert bench.learnt() == {*range(1, 17)}


def test_pages_of_one_second_come_all(bench, monkeypatch):
    monkeypatch.setattr("tagstream.connect.github.PAGE", 3)
    for one in bench.github.issues.values():
        one["updated_at"] = "2026-11-18T09:00:00Z"
    bench.round()
    assert bench.learnt() == {*range(1, 17)}


def test_no_label_is_created_unless_that_is_allowed(bench):
    bench.round()
    new = bench.github.open("It fails", BUG)
    says = Says(bench.model, {"crash": 0.99}, ["crash"])
    bench.round(bench.github.event("opened", new), target=says)
    assert bench.github.writes() == []
    newer = bench.github.open("It fails too", BUG)
    bench.round(bench.github.event("opened", newer), IssueSettings(create_tags=True), target=says)
    assert bench.github.names(newer) == {"crash"}


def test_a_comment_of_somebody_else_is_never_edited(bench):
    bench.round()
    new = bench.github.open("It fails", BUG)
    bench.github.comment(new, f"{MARK} ha", "mallory")
    bench.round(bench.github.event("opened", new))
    assert bench.github.texts(new)[0] == f"{MARK} ha"
    assert len(bench.github.texts(new)) == 2


def test_a_comment_mentions_nobody(bench):
    bench.github.labels.append("@anna <b>`x`")
    bench.round()
    new = bench.github.open("It fails @anna", f"@anna {BUG} #1")
    bench.round(bench.github.event("opened", new), target=Says(bench.model, {"@anna <b>`x`": 0.9}))
    (text,) = bench.github.texts(new)
    outside = "".join(text.split("`")[::2])
    assert "@" not in outside
    assert "#" not in outside
    assert "<b>" not in text


def test_a_label_for_the_inbox_is_not_learnt(bench):
    bench.github.label(1, "triage")
    settings = IssueSettings(inbox=frozenset(["triage"]))
    bench.round(settings=settings)
    assert 1 not in bench.learnt()
    assert "triage" not in Tagger.open(bench.model).tags
    bench.github.label(1, "triage", event="unlabeled")
    bench.round(bench.github.event("unlabeled", 1), settings)
    assert bench.labels_of(1) == {"bug"}


def test_an_issue_that_is_locked_does_not_stop_the_others(bench):
    bench.round()
    first, second = (bench.github.open("It fails", BUG) for _ in range(2))
    bench.github.locked.add(first)
    report = bench.round(bench.github.event("opened", second))
    assert f"#{first} is left alone" in report.warnings[0]
    assert len(bench.github.texts(second)) == 1


def test_an_issue_that_is_gone_is_forgotten(bench):
    bench.round()
    event = bench.github.event("deleted", 1)
    del bench.github.issues[1]
    bench.round(event)
    assert 1 not in bench.learnt()


def test_a_dry_run_changes_nothing(bench):
    new = bench.github.open("It fails", BUG)
    report = bench.round(bench.github.event("opened", new), dry=True)
    assert report.counts["commented"] == 1
    assert bench.github.writes() == []
    assert [*bench.folder.iterdir()] == []


def test_events_of_pull_requests_and_of_others_are_refused(bench):
    bench.round()
    pull = bench.github.open("Fix", BUG, pull=True)
    bench.round(bench.github.event("opened", pull))
    assert bench.github.writes() == []
    event = {**bench.github.event("opened", 1), "repository": {"full_name": "some/other"}}
    with pytest.raises(ValueError, match="must be of tide/tables, got one of some/other"):
        bench.round(event)


@pytest.mark.parametrize("name", sorted(path.name for path in EVENTS.glob("*.json")))
def test_events_in_the_shape_that_github_documents_are_understood(bench, name):
    bench.round()
    event = json.loads((EVENTS / name).read_text("utf-8"))
    number = bench.github.open(event["issue"]["title"], event["issue"]["body"] or "")
    assert number == event["issue"]["number"]
    bench.github.issues[number]["labels"] = event["issue"]["labels"]
    bench.github.issues[number]["state"] = event["issue"]["state"]
    bench.round(event)
    if event["action"] == "opened":
        assert len(bench.github.texts(number)) == 1
    else:
        assert bench.labels_of(number) == {one["name"] for one in event["issue"]["labels"]}


def test_there_are_events_to_understand():
    assert len([*EVENTS.glob("*.json")]) == 4
