"""The connector to paperless-ngx, against a server that behaves as the real one was recorded to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fake_paperless import TOKEN, FakePaperless, json_server, serving_paperless
from tagstream.connect.documents import Documents, Labels, Settings
from tagstream.connect.model_file import FileTarget
from tagstream.connect.paperless import ACCEPT, Paperless, PaperlessTag
from tagstream.connect.state import State
from tagstream.connect.target import Suggested
from tagstream.connect.teaching import Report, Teacher
from tagstream.connect.web import Web, WebError
from tagstream.tagger import Tagger

RECORDED = json.loads((Path(__file__).parent / "paperless-3.0.5.json").read_text("utf-8"))
INBOX, FINANCE, INVOICE, GARDEN, INSURANCE, LETTER = range(1, 7)
TEXTS = {
    INVOICE: "please pay the amount of this invoice within days",
    GARDEN: "roses and tulips grow in the garden bed",
    INSURANCE: "your car insurance policy covers damage",
}


def recorded_server() -> FakePaperless:
    """Return a server as it was when the exchanges were recorded."""
    server = FakePaperless()
    server.tag("Inbox", is_inbox_tag=True, matching_algorithm=0)
    server.tag("Finance", matching_algorithm=0)
    server.tag("Invoice", FINANCE, matching_algorithm=6)
    server.tag("Garden")
    server.tag("Insurance", matching_algorithm=0)
    server.tag("Letter", matching_algorithm=0)
    server.upload("Invoice 2026-001", TEXTS[INVOICE], [FINANCE, INVOICE])
    server.upload("Roses", TEXTS[GARDEN], [GARDEN])
    server.upload("To the bank", "dear bank", [INBOX])
    return server


def full_server(n: int = 8) -> FakePaperless:
    """Return a server with ``n`` reviewed documents of each of three tags."""
    server = FakePaperless()
    server.tag("Inbox", is_inbox_tag=True)
    for name, parent in (("Finance", None), ("Invoice", FINANCE), ("Garden", None)):
        server.tag(name, parent)
    server.tag("Insurance", FINANCE)
    server.tag("Letter")
    for i in range(n):
        server.upload(f"Invoice {i}", f"{TEXTS[INVOICE]} {i}", [FINANCE, INVOICE])
        server.upload(f"Flowers {i}", f"{TEXTS[GARDEN]} {i}", [GARDEN])
        server.upload(f"Policy {i}", f"{TEXTS[INSURANCE]} {i}", [FINANCE, INSURANCE])
    return server


class Bench:
    """A server, a model file and a state, and rounds of a connector over them."""

    def __init__(self, server: FakePaperless, url: str, folder: Path) -> None:
        self.server, self.url, self.folder = server, url, folder
        self.model = folder / "docs.tgs"
        self.now = 1000.0
        self.waits: list[float] = []

    def web(self, token: str = TOKEN) -> Web:
        return Web(self.url, token, "Token", {"Accept": ACCEPT}, wait=self.waits.append)

    def round(self, settings: Settings | None = None, target: Any = None, **more: Any) -> Report:
        dry = more.pop("dry", False)
        target = target or FileTarget(self.model, dry)
        with State(self.folder / "state.db", self.url, target.name, dry) as state:
            report = Report()
            Documents(
                Paperless(self.web(), dry),
                Teacher(target, state, "paperless", report),
                settings,
                clock=lambda: self.now,
                **more,
            ).go()
        return report

    def tags_of(self, id: int) -> set[str]:
        return {*Tagger.open(self.model).item(f"paperless/{id}").tags}

    def learnt(self) -> set[int]:
        return {int(str(id).partition("/")[2]) for id in Tagger.open(self.model).ids}


@pytest.fixture
def bench(tmp_path):
    server = full_server()
    with serving_paperless(server) as url:
        yield Bench(server, url, tmp_path)


class Says(FileTarget):
    """A target that suggests what a test wants."""

    def __init__(self, path: Path, tags: dict[str, float], auto: Any = ()) -> None:
        super().__init__(path)
        self.told = Suggested([*tags], tags, True, [*auto])

    def suggest(self, items: Any) -> list[Suggested]:
        return [self.told for _ in items]


# ---------------------------------------------------------------------- the contract
def replay(url: str, token: str, tags_of: Any, headers: Any) -> None:
    """Make the recorded exchanges, one after the other, and compare."""
    from tagstream.serve.fetch import Host

    for one in RECORDED["exchanges"]:
        said = {"Accept": one.get("accept", ACCEPT), "Accept-Encoding": "identity"}
        given = one.get("token", token)
        if given:
            said["Authorization"] = f"Token {given}"
        data = None if "body" not in one else json.dumps(one["body"]).encode()
        said |= {"Content-Type": "application/json"} if data else {}
        answer = Host(url).answer(one["method"], one["path"], said, data)
        assert answer.status == one["status"], (one["name"], answer.body)
        told = json.loads(answer.body) if answer.body else None
        assert is_like(told, one["answer"]), (one["name"], told)
        for id, tags in one.get("tags_after", {}).items():
            assert sorted(tags_of(int(id))) == tags, one["name"]
        for name, value in one.get("headers", {}).items():
            assert headers(answer)[name] == value


def is_like(told: Any, wanted: Any) -> bool:
    """Tell whether an answer has what was recorded; null stands for anything of that name."""
    if isinstance(wanted, dict):
        return isinstance(told, dict) and all(
            name in told and is_like(told[name], value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        same = isinstance(told, list) and len(told) == len(wanted)
        if same and wanted and isinstance(wanted[0], int):
            return sorted(told) == sorted(wanted)
        return same and all(map(is_like, told, wanted))
    if isinstance(wanted, str) and wanted.startswith("…"):
        return isinstance(told, str) and all(part in told for part in wanted[1:].split("&"))
    return wanted is None or told == wanted


def test_the_fake_server_answers_as_the_real_one_was_recorded_to():
    server = recorded_server()
    with serving_paperless(server) as url:
        replay(url, TOKEN, lambda id: server.documents[id]["tags"], lambda answer: answer.headers)
    assert (RECORDED["version"], RECORDED["recorded"]) == ("3.0.5", "2026-11-18")


def test_what_was_recorded_is_compared():
    assert is_like({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]})
    assert not is_like({"a": [{"b": 2}]}, {"a": [{"b": 1}]})
    assert not is_like({"a": []}, {"a": [{"b": 1}]})
    assert not is_like({}, {"a": None})


# ---------------------------------------------------------------------- learning
def test_the_first_round_learns_what_was_reviewed(bench):
    waiting = bench.server.upload("Scan 7", TEXTS[GARDEN], [INBOX, GARDEN])
    untagged = bench.server.upload("Old letter", "dear aunt", [])
    report = bench.round()
    assert report.counts["learnt"] == 25
    assert bench.learnt() == {*range(1, 26 + 1)} - {waiting}
    assert bench.tags_of(untagged) == set()  # reviewed: it is not in the inbox
    assert bench.server.writes() == []


def test_without_an_inbox_a_document_without_tags_says_nothing(tmp_path):
    server = FakePaperless()
    server.tag("Garden")
    tagged, _ = server.upload("Roses", TEXTS[GARDEN], [1]), server.upload("Scan", "text", [])
    with serving_paperless(server) as url:
        bench = Bench(server, url, tmp_path)
        bench.round()
        assert bench.learnt() == {tagged}


def test_a_repeated_pull_changes_nothing(bench):
    bench.round()
    before = bench.model.read_bytes()
    report = bench.round()
    assert not +report.counts
    assert bench.model.read_bytes() == before
    (bench.folder / "state.db").unlink()
    bench.round()
    assert Tagger.open(bench.model).n_items == 24


def test_a_first_round_that_is_broken_off_goes_on(bench):
    class Fails(FileTarget):
        def learn(self, lessons: Any, keys: Any) -> None:
            if "paperless/13" in [one.id for one in lessons]:
                raise OSError("the disk is full")
            super().learn(lessons, keys)

    with pytest.MonkeyPatch.context() as patch:
        documents = Paperless.documents
        patch.setattr(Paperless, "documents", lambda self, *a: documents(self, *a, size=4))
        with pytest.raises(OSError, match="disk is full"):
            bench.round(target=Fails(bench.model))
        learnt, n = len(bench.learnt()), len(bench.server.requests)
        assert 0 < learnt < 24
        assert bench.round().counts["learnt"] == 24 - learnt
    assert bench.learnt() == {*range(1, 25)}
    since = bench.server.requests[n + 1][1]
    assert "modified__gte" in since


def test_a_dry_run_changes_nothing_and_tells_what_it_would_do(bench):
    new = bench.server.upload("Tulips", TEXTS[GARDEN], [INBOX])
    report = bench.round(Settings(backlog=True), dry=True)
    assert report.counts["learnt"] == 24
    assert report.counts["noted"] == 1
    (told,) = report.pushed
    assert told["item"] == f"#{new} Tulips"
    assert told["tags"][0].startswith("Garden ")
    assert bench.server.writes() == []
    assert [*bench.folder.iterdir()] == []


def test_a_model_that_was_lost_is_taught_again(bench):
    bench.round()
    bench.model.unlink()
    report = bench.round()
    assert bench.learnt() == {*range(1, 25)}
    assert "knows less than before" in report.warnings[0]


# ---------------------------------------------------------------------- following
def test_a_new_document_gets_one_note(bench):
    bench.round()
    new = bench.server.upload("Tulips", TEXTS[GARDEN], [INBOX])
    bench.round()
    (note,) = bench.server.note_texts(new)
    assert note.startswith("tagstream suggests: Garden ")
    assert "\nlike #" in note
    assert bench.server.names(new) == {"Inbox"}
    n = len(bench.server.writes())
    for _ in range(3):
        bench.round()
    assert len(bench.server.writes()) == n


def test_a_tag_that_a_person_sets_or_removes_is_learnt_at_once(bench):
    bench.round()
    bench.server.set_tags(2, [GARDEN, LETTER])
    report = bench.round()
    assert report.counts["corrected"] == 1
    assert bench.tags_of(2) == {"Garden", "Letter"}
    bench.server.set_tags(2, [LETTER])
    bench.round()
    assert bench.tags_of(2) == {"Letter"}
    bench.server.set_tags(2, [GARDEN, LETTER])  # as it was before
    bench.round()
    assert bench.tags_of(2) == {"Garden", "Letter"}


def test_a_note_goes_when_a_person_has_tagged_the_document(bench):
    bench.round()
    new = bench.server.upload("Tulips", TEXTS[GARDEN], [INBOX])
    bench.round()
    bench.server.set_tags(new, [GARDEN])
    bench.round()
    assert bench.server.note_texts(new) == []
    assert bench.tags_of(new) == {"Garden"}


def test_a_tag_that_keeps_its_promise_is_set(bench):
    bench.round()
    new = bench.server.upload("Car", TEXTS[INSURANCE], [INBOX])
    says = Says(bench.model, {"Insurance": 0.99, "Letter": 0.6}, ["Insurance"])
    report = bench.round(target=says)
    assert bench.server.names(new) == {"Inbox", "Finance", "Insurance"}  # the inbox tag stays
    assert bench.server.note_texts(new)[0].startswith("tagstream suggests: Letter 0.60")
    assert report.counts["tagged"] == 1
    assert new not in bench.learnt()  # nobody has looked at it
    bench.round(target=says)
    assert new not in bench.learnt()
    bench.server.set_tags(new, [FINANCE, INSURANCE])  # a person takes it out of the inbox
    bench.round()
    assert bench.tags_of(new) == {"Insurance"}


def test_a_promise_that_is_kept_sets_the_tag(tmp_path):
    server = full_server(40)
    with serving_paperless(server) as url:
        bench = Bench(server, url, tmp_path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tagstream.connect.paperless.PAGE", 10)
            bench.round()
        tagger = Tagger.open(bench.model)
        tagger.promise("Garden", "auto", 0.6)
        tagger.save(bench.model)
        for i in range(40):  # the evidence: documents that people tag one after another
            server.upload(f"Roses {i}", f"{TEXTS[GARDEN]} {i}", [GARDEN])
            server.upload(f"Letter {i}", f"{TEXTS[INVOICE]} {i}", [FINANCE, INVOICE])
        bench.round()
        new = server.upload("Tulips", TEXTS[GARDEN], [INBOX])
        other = server.upload("Bill", TEXTS[INVOICE], [INBOX])
        bench.round()
        assert server.names(new) == {"Inbox", "Garden"}
        assert server.names(other) == {"Inbox"}  # Invoice is only suggested
        assert server.note_texts(other)[0].startswith("tagstream suggests: Invoice ")


def test_a_service_learns_each_change_once(bench, tmp_path):
    pytest.importorskip("fastapi")
    from serving import serving
    from tagstream.connect.service import ServiceTarget

    with serving(tmp_path / "tags") as client:
        assert client.service._ready.wait(300)
        service = ServiceTarget(Web(client.url))
        bench.round(target=service)
        position = service.mark()
        bench.round(target=service)
        (tmp_path / "state.db").unlink()
        report = bench.round(target=service)
        assert report.counts["learnt"] == 24
        assert service.mark() == position + 1  # the refit after a first round
        bench.server.set_tags(2, [LETTER])
        bench.round(target=service)
        item = service.find([], "Letter", 1)
        assert [one["id"] for one in item] == ["paperless/2"]
        bench.server.delete(2)
        bench.now += 4000
        bench.round(target=service)
        assert service.find([], "Letter", 1) == []


def test_a_tag_of_ours_that_a_person_takes_away_is_a_refusal(bench):
    bench.round()
    new = bench.server.upload("Car", TEXTS[INSURANCE], [INBOX])
    bench.round(target=Says(bench.model, {"Insurance": 0.99}, ["Insurance"]))
    bench.server.set_tags(new, [INBOX, FINANCE])
    bench.round()
    tagger = Tagger.open(bench.model)
    asked = {"id": f"paperless/{new}", "text": f"Car\n{TEXTS[INSURANCE]}"}
    assert "Insurance" not in tagger.suggest(asked).tags
    assert tagger._policy.refused[asked["id"]] == ("Insurance",)


def test_a_document_that_may_only_be_read_does_not_stop_the_others(bench):
    bench.round()
    first, second = (bench.server.upload("Tulips", TEXTS[GARDEN], [INBOX]) for _ in range(2))
    bench.server.forbidden.add(first)
    report = bench.round()
    assert f"#{first} Tulips is left alone" in report.warnings[0]
    assert len(bench.server.note_texts(second)) == 1
    n = len(bench.server.writes())
    bench.round()
    assert len(bench.server.writes()) == n


def test_no_notes_means_no_notes(bench):
    bench.round()
    bench.server.upload("Tulips", TEXTS[GARDEN], [INBOX])
    bench.round(Settings(notes=False))
    assert bench.server.writes() == []


def test_a_tag_is_created_only_where_that_is_allowed(bench):
    bench.round()
    new = bench.server.upload("Tulips", TEXTS[GARDEN], [INBOX])
    says = Says(bench.model, {"Flowers": 0.99}, ["Flowers"])
    bench.round(target=says)
    assert bench.server.writes() == []
    newer = bench.server.upload("Asters", TEXTS[GARDEN], [INBOX])
    bench.round(Settings(create_tags=True), target=says)
    assert bench.server.names(newer) == {"Inbox", "Flowers"}
    assert bench.server.names(new) == {"Inbox"}
    made = bench.server.tags[max(bench.server.tags)]
    assert (made["name"], made["matching_algorithm"]) == ("Flowers", 0)


def test_what_was_not_pushed_is_pushed_later(bench):
    bench.round()
    new = bench.server.upload("Tulips", TEXTS[GARDEN], [INBOX])

    class Fails(FileTarget):
        def suggest(self, items: Any) -> Any:
            raise OSError("away")

    with pytest.raises(OSError, match="away"):
        bench.round(target=Fails(bench.model))
    bench.round()
    assert len(bench.server.note_texts(new)) == 1


def test_a_note_that_was_written_before_a_crash_is_not_written_twice(bench):
    bench.round()
    new = bench.server.upload("Tulips", TEXTS[GARDEN], [INBOX])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Documents, "_remember", lambda *_, **__: (_ for _ in ()).throw(OSError))
        with pytest.raises(OSError, match=r"^$"):
            bench.round()
    assert len(bench.server.note_texts(new)) == 1
    bench.round()
    assert len(bench.server.note_texts(new)) == 1


# ---------------------------------------------------------------------- the ten traps
def test_trap_1_tags_are_added_and_never_replaced(bench):
    bench.round()
    new = bench.server.upload("Car", TEXTS[INSURANCE], [INBOX])
    says = Says(bench.model, {"Insurance": 0.99}, ["Insurance"])

    def meanwhile(*_: Any) -> Any:
        bench.server.set_tags(new, [*bench.server.documents[new]["tags"], LETTER])
        return [says.told]

    says.suggest = meanwhile
    bench.round(target=says)
    assert bench.server.names(new) == {"Inbox", "Finance", "Insurance", "Letter"}
    assert all(method != "PATCH" for method, _, _ in bench.server.requests)


def test_trap_2_a_parent_is_no_label_of_its_own(bench):
    bench.round()
    assert bench.tags_of(1) == {"Invoice"}
    assert {*Tagger.open(bench.model).tags} == {"Invoice", "Garden", "Insurance"}
    alone = bench.server.upload("Bank", "money", [FINANCE])
    bench.round()
    assert bench.tags_of(alone) == {"Finance"}
    new = bench.server.upload("Bill", TEXTS[INVOICE], [INBOX, FINANCE, INVOICE])
    bench.server.set_tags(new, [INBOX, FINANCE, INVOICE], by=None)
    bench.round(target=Says(bench.model, {"Finance": 0.9, "Invoice": 0.8}))
    assert bench.server.note_texts(new) == []  # it has both


def test_trap_3_hidden_tags_stay(bench):
    secret = bench.server.tag("Secret")
    bench.server.hidden.add(secret)
    bench.server.set_tags(2, [GARDEN, secret])
    bench.round()
    assert bench.tags_of(2) == {"Garden"}
    new = bench.server.upload("Car", TEXTS[INSURANCE], [INBOX, secret])
    bench.round(target=Says(bench.model, {"Insurance": 0.99, "Secret": 0.98}, ["Insurance"]))
    assert bench.server.names(new) == {"Inbox", "Secret", "Finance", "Insurance"}
    assert bench.server.note_texts(new) == []


@pytest.mark.parametrize("what", ["ocr", "tag deleted", "tag renamed", "removed", "deleted"])
def test_trap_4_changes_that_move_no_time_are_found(bench, what):
    bench.round()
    old = bench.server.documents[2]["modified"]
    if what == "ocr":
        bench.server.reprocess(2, "lawn and hedge")
        bench.now += 90_000
    elif what == "tag deleted":
        bench.server.delete_tag(GARDEN)
    elif what == "tag renamed":
        bench.server.tags[GARDEN]["name"] = "Plants"
    elif what == "removed":
        bench.server.set_tags(2, [], moves=False)
        bench.now += 4000
    else:
        bench.server.delete(2)
        bench.now += 4000
    bench.round()
    tagger = Tagger.open(bench.model)
    if what == "deleted":
        assert "paperless/2" not in tagger
        return
    assert bench.server.documents[2]["modified"] == old
    wanted = {"ocr": {"Garden"}, "tag renamed": {"Plants"}}.get(what, set())
    assert bench.tags_of(2) == wanted
    assert tagger.texts["paperless/2"].endswith("hedge" if what == "ocr" else " 0")


def test_trap_4_a_time_that_moves_late_is_waited_for(bench):
    bench.round()
    bench.server.works = False
    body = {"documents": [2], "method": "modify_tags"}
    edit = {"add_tags": [LETTER], "remove_tags": []}
    bench.server._bulk_edit({**body, "parameters": edit})
    bench.round()
    assert bench.tags_of(2) == {"Garden"}
    bench.server.run_worker()
    bench.round()
    assert bench.tags_of(2) == {"Garden", "Letter"}


def test_trap_4_a_page_that_moves_hides_no_document(bench, monkeypatch):
    documents = Paperless.documents
    monkeypatch.setattr(Paperless, "documents", lambda self, *a: documents(self, *a, size=3))
    turns = iter([1, 2, 4, 5, 7])

    def move() -> None:
        id = next(turns, None)
        if id is not None:
            bench.server._touch(id)

    bench.server.after_page = move
    bench.round()
    assert bench.learnt() == {*range(1, 25)}


def test_trap_4_many_documents_of_one_time_come_all(bench, monkeypatch):
    for one in bench.server.documents.values():
        one["modified"] = bench.server.documents[1]["modified"]
    documents = Paperless.documents
    monkeypatch.setattr(Paperless, "documents", lambda self, *a: documents(self, *a, size=3))
    bench.round()
    assert bench.learnt() == {*range(1, 25)}


def test_trap_4_a_server_that_ignores_a_filter_is_noticed(bench):
    bench.round()
    bench.server.ignores_filters = True
    with pytest.raises(OSError, match="by the time of their change"):
        bench.round()


def test_trap_5_the_inbox_is_neither_learnt_nor_left(bench):
    waiting = bench.server.upload("Scan", TEXTS[GARDEN], [INBOX, GARDEN])
    bench.round()
    assert waiting not in bench.learnt()
    assert "Inbox" not in Tagger.open(bench.model).tags
    bench.server.set_tags(waiting, [INBOX, GARDEN, LETTER])
    bench.round()
    assert waiting not in bench.learnt()
    bench.server.set_tags(waiting, [GARDEN, LETTER])
    bench.round()
    assert bench.tags_of(waiting) == {"Garden", "Letter"}


def test_trap_6_what_the_server_itself_set_is_not_learnt(bench):
    bench.round()
    new = bench.server.upload("Bill", TEXTS[INVOICE], [FINANCE, INVOICE], by=None)
    bench.server.set_tags(2, [LETTER], by=None)  # its retagger
    bench.round()
    assert new not in bench.learnt()
    assert bench.tags_of(2) == {"Garden"}
    bench.round()
    assert bench.tags_of(2) == {"Garden"}
    bench.server.set_tags(new, [FINANCE, INVOICE, LETTER])  # a person
    bench.round()
    assert bench.tags_of(new) == {"Invoice", "Letter"}


def test_trap_6_a_user_who_may_not_read_the_history_is_told(bench):
    bench.round()
    bench.server.may_read_history = False
    new = bench.server.upload("Bill", TEXTS[INVOICE], [FINANCE, INVOICE], by=None)
    report = bench.round()
    assert "view_logentry" in report.warnings[0]
    assert bench.tags_of(new) == {"Invoice"}


def test_trap_7_two_tags_of_one_name_are_two_labels(bench):
    twin = bench.server.tag("Garden")
    bench.server.upload("Allotment", "weeds", [twin])
    bench.round()
    assert bench.tags_of(2) == {"Garden"}
    assert bench.tags_of(25) == {f"Garden #{twin}"}
    bench.server.delete_tag(GARDEN)
    bench.round()
    assert bench.tags_of(25) == {f"Garden #{twin}"}  # its label stays its own


def test_trap_8_a_new_version_is_asked_about_again(bench):
    bench.round()
    new = bench.server.upload("Scan", "unreadable", [INBOX])
    bench.round()
    assert bench.server.note_texts(new) == []
    bench.server.documents[new]["content"] = TEXTS[GARDEN]
    bench.server._touch(new)
    bench.round()
    (note,) = bench.server.note_texts(new)
    assert "Garden" in note
    bench.server.documents[new]["content"] = TEXTS[INVOICE]
    bench.server._touch(new)
    bench.round()
    (note,) = bench.server.note_texts(new)  # in the place of the other
    assert "Invoice" in note


def test_trap_9_our_own_echo_is_ignored(bench):
    bench.round()
    new = bench.server.upload("Car", TEXTS[INSURANCE], [INBOX])
    says = Says(bench.model, {"Insurance": 0.99, "Letter": 0.6}, ["Insurance"])
    bench.round(target=says)
    n = len(bench.server.writes())
    before = bench.model.read_bytes()
    bench.round(target=says)
    assert len(bench.server.writes()) == n
    assert bench.model.read_bytes() == before
    assert all("/api/token/" not in path for _, path, _ in bench.server.requests)
    assert new not in bench.learnt()


def test_trap_10_a_document_that_comes_back_is_learnt_again(bench):
    bench.round()
    bench.server.delete(2)
    bench.now += 4000
    report = bench.round()
    assert report.counts["forgotten"] == 1
    bench.server.restore(2)
    bench.round()
    assert bench.tags_of(2) == {"Garden"}


# ---------------------------------------------------------------------- trouble
def test_an_older_interface_is_spoken_too(bench):
    bench.server.versions = (9,)
    bench.round()
    assert len(bench.learnt()) == 24


def test_a_server_that_is_busy_is_asked_again(bench):
    bench.server.n_down = 2
    bench.round()
    assert bench.waits == [1.0, 1.0]
    bench.server.n_down = 99
    with pytest.raises(WebError, match="answered 503: down"):
        bench.round()


def test_no_error_holds_the_token():
    def echo(method: str, path: str, headers: Any, body: Any) -> tuple[int, Any]:
        return 400, {"detail": f"I got {headers['Authorization']}"}

    with json_server(echo) as url:
        with pytest.raises(WebError) as error:
            Web(url, "secret-token", "Token").ask("GET", "/api/tags/")
        assert "secret-token" not in str(error.value)
        with pytest.raises(ValueError, match="without blanks") as wrong:
            Web(url, "secret\ntoken")
        assert "secret" not in str(wrong.value)


def test_the_token_goes_to_no_other_host():
    asked: list[str] = []

    def stranger(method: str, path: str, headers: Any, body: Any) -> tuple[int, Any]:
        asked.append(path)
        return 200, {}

    with json_server(stranger) as other:

        def moved(method: str, path: str, headers: Any, body: Any) -> tuple[int, Any, Any]:
            return 302, None, {"Location": f"{other}/steal"}

        with json_server(moved) as url, pytest.raises(OSError, match="not followed"):
            Web(url, "secret", "Token").ask("GET", "/api/tags/")
    assert asked == []


def test_labels_follow_their_tags():
    tags = [PaperlessTag(1, "a", None, False), PaperlessTag(2, "b", 1, False)]
    labels = Labels(tags, {})
    assert labels.of([1, 2]) == ("b",)
    assert labels.of([1, 9]) == ("a",)
    assert labels.changed_since(labels.known) == set()
    moved = Labels([tags[0], PaperlessTag(2, "b", None, False)], labels.known)
    assert moved.changed_since(labels.known) == {2}
    assert moved.of([1, 2]) == ("a", "b")
