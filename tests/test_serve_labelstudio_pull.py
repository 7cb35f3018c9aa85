"""Fetching from Label Studio: where the token goes, what an answer may cost, what it may change."""

from __future__ import annotations

import http.server
import json
import logging
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from fake_tagger import FakeTagger
from serving import serving
from tagstream.serve import labelstudio
from tagstream.serve.app import create_app
from tagstream.serve.fetch import Host, Limits
from tagstream.serve.follow import Follower
from tagstream.serve.labelstudio import LabelStudio
from tagstream.serve.log import LogFull
from tagstream.serve.projects import Project, Projects
from tagstream.serve.writer import Refused, Service
from test_serve_labelstudio import CONFIG, annotation, task

TOKEN = "secret-token"
HEADERS = {"Authorization": f"Token {TOKEN}"}

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@contextmanager
def host(answer: Answer) -> Iterator[tuple[str, list[Any]]]:
    """A server that answers by a function; yields its address and the requests that came."""
    came: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            came.append((self.path, dict(self.headers)))
            answer(self)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", came
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def say(value: Any, length: int | None = None) -> Answer:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def send_to(location: str, status: int = 302) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Location", location)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


@contextmanager
def backend(folder: Path, root: str, **limits: Any) -> Iterator[LabelStudio]:
    with Service(folder, FakeTagger) as service:
        projects = Projects(folder)
        projects.put("1", Project(CONFIG, root, TOKEN))
        yield LabelStudio(service, projects, Limits(**limits))


def tagged(number: int, *tags: str, at: str = "2026", **more: Any) -> dict[str, Any]:
    text = f"text number {number}"
    return task(number, text) | {"annotations": [annotation(number, number, *tags, at=at, **more)]}


def known(studio: LabelStudio) -> dict[str, list[str]]:
    return {event.body["id"]: event.body["y"] for event in studio.service.log.recent(100)}


def learn(studio: LabelStudio, *numbers: int) -> None:
    for number in numbers:
        body = {"id": f"ls:1:{number}", "text": f"text number {number}", "y": ["sea"]}
        key = f"ls:1:{number}:2026"
        studio.service.submit(labelstudio.Change("learn", [body], [key])).result(60)


# ---------------------------------------------------------------------- where the token goes
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_is_not_followed(tmp_path, status):
    with (
        host(say([])) as (other, came_there),
        host(send_to(f"{other}/api/projects/1/export", status)) as (root, came),
        backend(tmp_path, root) as studio,
    ):
        with pytest.raises(OSError, match="which was not followed") as error:
            studio.pull("1")
        assert came
        assert came_there == []
        assert TOKEN not in str(error.value)


@pytest.mark.parametrize(
    "location",
    [
        "https://127.0.0.1:{port}/", "ftp://127.0.0.1:{port}/", "file:///etc/passwd",
        "//evil.example/", "http://[",
    ],
)  # fmt: skip
def test_a_redirect_to_another_scheme_is_not_followed(location):
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        send_to(location.format(port=root.rsplit(":")[-1]))(handler)

    with host(answer) as (root, came):
        with pytest.raises(OSError, match=r"not followed|no proper answer"):
            Host(root).value("/a", HEADERS)
        assert len(came) == 1


def test_a_redirect_on_the_same_host_is_followed_a_few_times():
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        (say(7) if handler.path == "/there?a=1" else send_to("/there?a=1"))(handler)

    with host(answer) as (root, came):
        assert Host(root).value("/here", HEADERS) == 7
        assert [headers["Authorization"] for _, headers in came] == [f"Token {TOKEN}"] * 2
    with host(send_to("/again")) as (root, came):
        with pytest.raises(OSError, match="redirects more than 5 times"):
            Host(root).value("/here", HEADERS)
        assert len(came) == 5


def test_a_token_that_is_exchanged_is_not_sent_after_a_redirect():
    with (
        host(say({"access": "fresh"})) as (other, came_there),
        host(send_to(other, 307)) as (root, _),
    ):
        with pytest.raises(OSError, match="answered 307"):
            Host(root).value("/api/token/refresh", {}, b'{"refresh": "a.b.c"}')
        assert came_there == []


def test_a_proxy_of_the_environment_gets_nothing(monkeypatch):
    with host(say(8)) as (proxy, came_there), host(say(7)) as (root, came):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert Host(root).value("/a", HEADERS) == 7
        assert (len(came), came_there) == (1, [])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hostname", "file:///etc/passwd"), ("hostname", "localhost:8080"), ("hostname", 7),
        ("hostname", "http://"), ("hostname", "http://user:word@host/"), ("hostname", "http://["),
        ("hostname", "http://a b/"), ("hostname", "http://" + "a" * 3000),
        ("access_token", "a\r\nX-Evil: 1"), ("access_token", "é"), ("access_token", ["t"]),
    ],
)  # fmt: skip
def test_an_address_or_a_token_that_cannot_be_sent_is_refused(tmp_path, field, value):
    body = {"project": 1, "schema": CONFIG, "hostname": "http://localhost", "access_token": "t"}
    with backend(tmp_path, "http://localhost") as studio:
        with pytest.raises(Refused, match=field) as error:
            studio.setup({**body, field: value})
        assert error.value.field == field
        with pytest.raises(Refused, match="at most"):
            studio.setup({**body, "schema": CONFIG + " " * (1 << 20)})


# ---------------------------------------------------------------------- what an answer may cost
def endless(first: bytes, part: bytes) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            handler.wfile.write(first)
            while True:
                handler.wfile.write(part)
        except OSError:
            handler.close_connection = True

    return answer


def test_an_endless_answer_is_cut_off(tmp_path):
    with (
        host(endless(b"[", b" " * 10_000)) as (root, _),
        backend(tmp_path, root, answer_bytes=100_000) as studio,
        pytest.raises(OSError, match="must answer at most 100,000 bytes"),
    ):
        studio.pull("1")


def test_one_endless_task_is_refused_and_stops_the_reading(tmp_path):
    large = b'[{"id": 1, "data": {"text": "' + b"a" * 200_000 + b'"}, "annotations": []}]'
    with (
        host(say(large)) as (root, _),
        backend(tmp_path, root, element_bytes=70_000) as studio,
        pytest.raises(OSError, match="at most 70,000 characters"),
    ):
        studio.pull("1")


def waits(go_on: threading.Event, *parts: bytes) -> Answer:
    """Send one part each time that nothing happened for a while, and never come to an end."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        try:
            for part in parts:
                handler.wfile.write(part)
                handler.wfile.flush()
            while not go_on.wait(0.01):
                handler.wfile.write(parts[-1])
        except OSError:
            pass
        handler.close_connection = True

    return answer


@pytest.mark.parametrize(
    "parts",
    [(b"H",), (b"HTTP/1.1 200 OK\r\nX: ", b"y"), (b"HTTP/1.1 200 OK\r\n\r\n[", b" ")],
    ids=["status line", "header", "body"],
)
def test_an_answer_that_trickles_is_cut_off(parts):
    go_on = threading.Event()
    with host(waits(go_on, *parts)) as (root, _):
        with pytest.raises(OSError, match=r"within 0\.2 s|no proper answer"):
            Host(root, Limits(seconds=0.2)).value("/a", HEADERS)
        go_on.set()


def test_a_host_that_says_nothing_is_given_up():
    go_on = threading.Event()
    with host(lambda handler: go_on.wait(60)) as (root, _):
        with pytest.raises(OSError, match=r"was silent for 0\.1 s"):
            Host(root, Limits(silence=0.1)).value("/a", HEADERS)
        go_on.set()


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"7", b"[", b"[1]", b'[{"id": 1}', b'[{"id": 1},', b'[{"id": 1},]', b"[] []",
     b'[{"id": 1} {"id": 2}]', b"[" * 100_000, b'[{"a":' * 100_000, b"\xff", b'[{"id": 1}]x'],
)  # fmt: skip
def test_what_is_no_whole_list_of_objects_is_refused(body):
    with host(say(body)) as (root, _), pytest.raises(OSError, match="must answer"):
        [*Host(root).elements("/a", HEADERS)]


def test_a_long_list_is_read_in_parts():
    told = [{"id": i, "text": "ä€😀" * (i % 500)} for i in range(2000)]
    for ascii in (True, False):
        body = json.dumps(told, indent=1, ensure_ascii=ascii).encode()
        assert len(body) > 4 * (1 << 16)
        with host(say(body)) as (root, _):
            assert [*Host(root).elements("/a", HEADERS)] == told


# ---------------------------------------------------------------------- what an answer may change
@pytest.mark.parametrize("tasks", [[], [task(9, "t")], [task(9, "t"), task(1, "t"), task(2, "t")]])
def test_an_answer_without_annotations_forgets_nothing(tmp_path, caplog, tasks):
    with host(say(tasks)) as (root, _), backend(tmp_path, root) as studio:
        learn(studio, 1, 2)
        done = studio.start_pull("1").result(60)
        assert (done.forgotten, done.missing) == (0, 2)
        assert known(studio).keys() == {"ls:1:1", "ls:1:2"}
        assert "2 items are kept" in caplog.text
        assert studio.start_pull("1", forget_missing=True).result(60).forgotten == 2
        assert known(studio) == {}


def test_a_task_that_is_missing_is_kept_and_one_without_annotation_is_forgotten(tmp_path):
    tasks = [tagged(1, "sea"), task(2, "text number 2"), task(8, "never tagged")]
    counted = task(3, "text number 3") | {"total_annotations": 1}
    with host(say([*tasks, counted])) as (root, _), backend(tmp_path, root) as studio:
        learn(studio, 1, 2, 3, 4)
        done = studio.pull("1")
        assert (done.n_tasks, done.forgotten, done.missing, done.left_out) == (4, 1, 1, 1)
        assert known(studio).keys() == {"ls:1:1", "ls:1:3", "ls:1:4"}


@pytest.mark.parametrize("cut", [20, 300, 1])
def test_an_answer_that_is_cut_short_forgets_nothing(tmp_path, cut):
    body = json.dumps([tagged(1, "sea"), task(2, "text number 2"), task(3, "t")]).encode()
    with host(say(body[:-cut], len(body))) as (root, _), backend(tmp_path, root) as studio:
        learn(studio, 1, 2, 3)
        with pytest.raises(OSError, match=r"must answer|no proper answer"):
            studio.pull("1", forget_missing=True)
        assert len(known(studio)) == 3


def test_what_was_annotated_while_the_answer_was_on_its_way_is_kept(tmp_path):
    tasks = [tagged(1, "sea"), task(2, "text number 2"), task(3, "text number 3")]

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        body = {"id": "ls:1:2", "text": "text number 2", "y": ["python"]}
        change = labelstudio.Change("learn", [body], ["ls:1:2:2027"])
        studio.service.submit(change).result(60)
        say(tasks)(handler)

    with host(answer) as (root, _), backend(tmp_path, root) as studio:
        learn(studio, 1, 2, 3)
        assert studio.pull("1").forgotten == 1
        assert known(studio) == {"ls:1:1": ["sea"], "ls:1:2": ["python"]}


def test_a_bad_annotation_is_left_out_and_reported(tmp_path, caplog):
    bad = [
        tagged(1, "sea", at="9\ud800"),
        tagged(2, "x" * 300),
        {"id": "3", "annotations": []},
        {"id": 4, "annotations": None},
        {"id": 5, "annotations": ["a"]},
        task(6, "a" * 100_001) | {"annotations": [annotation(6, 6, "sea")]},
        tagged(7, "sea") | {"annotations": [{"id": None, "updated_at": "1"}]},
        {},
    ]
    caplog.set_level(logging.INFO)
    with (
        host(say([tagged(8, "sea"), *bad, tagged(9, "python")])) as (root, _),
        backend(tmp_path, root) as studio,
    ):
        learn(studio, 3)
        done = studio.start_pull("1").result(60)
        assert (done.learnt, done.left_out, done.missing) == (2, len(bad), 1)
        assert known(studio).keys() == {"ls:1:3", "ls:1:8", "ls:1:9"}
    lines = [line for line in caplog.messages if "left out" in line]
    assert len(lines) == labelstudio.MOST_REPORTED + 1  # and one with the numbers
    assert "task 2 is left out" in caplog.text
    assert "10 tasks, 2 learnt, 0 forgotten, 8 left out" in caplog.text


def test_an_annotation_that_the_tagger_refuses_does_not_stop_the_others(tmp_path):
    told = [tagged(i, "sea") for i in (1, 2, 3)]
    told[1]["annotations"] *= 2
    told.append(task(4, "another text") | {"annotations": told[1]["annotations"]})  # the same key
    with host(say(told)) as (root, _), backend(tmp_path, root) as studio:
        done = studio.pull("1")
        assert (done.learnt, done.left_out) == (3, 1)
        assert known(studio).keys() == {"ls:1:1", "ls:1:2", "ls:1:3"}


# ---------------------------------------------------------------------- how many at once
def test_a_few_projects_are_fetched_at_once_and_the_others_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(labelstudio, "PULLS_WAITING", 3)
    go_on, lock = threading.Event(), threading.Lock()
    running: list[str] = []
    most: list[int] = []
    two = threading.Barrier(3)

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        with lock:
            running.append(handler.path)
            most.append(len(running))
        if not go_on.is_set():
            two.wait(60)
            go_on.wait(60)
        with lock:
            running.remove(handler.path)
        say([])(handler)

    with host(answer) as (root, came), backend(tmp_path, root) as studio:
        for i in range(6):
            studio.projects.put(str(i), Project(CONFIG, root, TOKEN))
        waiting = [studio.start_pull("0"), studio.start_pull("1")]
        two.wait(60)
        assert studio.start_pull("0") is waiting[0]  # it runs already
        with pytest.raises(Refused, match="is being fetched"):
            studio.start_pull("0", forget_missing=True)
        waiting += [studio.start_pull(str(i)) for i in (2, 3, 4)]
        with pytest.raises(labelstudio.Busy):
            studio.start_pull("5")
        go_on.set()
        for future in waiting:
            future.result(60)
        assert len(came) == 5
        assert max(most) == labelstudio.PULLS_AT_ONCE


# ---------------------------------------------------------------------- settings
def test_settings_are_in_a_database_that_only_its_owner_reads(tmp_path):
    wanted = Project(CONFIG, "http://localhost:8080", TOKEN)
    Projects(tmp_path).put("1", wanted)
    assert [path.name for path in tmp_path.iterdir()] == ["label-studio.db"]
    kept = tmp_path / "label-studio.db"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.chmod(0o644)
    assert Projects(tmp_path).get("1") == wanted
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_settings_of_version_0_2_are_taken_over(tmp_path):
    entry = {"schema": CONFIG, "hostname": "http://localhost:8080", "access_token": TOKEN}
    (tmp_path / "label-studio.json").write_text(json.dumps({"1": entry, "2": entry}))
    (tmp_path / "label-studio.new").write_text("{")
    for _ in range(2):
        projects = Projects(tmp_path)
        assert projects.get("1") == projects.get("2") == Project(**entry)
        assert [path.name for path in tmp_path.iterdir()] == ["label-studio.db"]


@pytest.mark.parametrize("name", ["label-studio.db", "label-studio.json"])
@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"1": 7}', b"x" * 5000, None])
def test_the_service_starts_with_damaged_settings(tmp_path, caplog, name, damage):
    path = tmp_path / name
    if damage is None:
        Projects(tmp_path).put("1", Project(CONFIG, "http://localhost", TOKEN))
        whole = (tmp_path / "label-studio.db").read_bytes()
        path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    else:
        path.write_bytes(damage)
    with serving(tmp_path) as client:
        body = {"project": 1, "schema": CONFIG, "hostname": "http://localhost", "access_token": "t"}
        assert client.post("/ls/setup", json=body).status_code == 200
    assert Projects(tmp_path).get("1") == Project(CONFIG, "http://localhost", "t")
    if damage is None or len(damage) > 100 or name.endswith("json"):  # SQLite: less is empty
        assert (tmp_path / f"{name}.damaged-1").exists()
        assert "was damaged" in caplog.text


def test_settings_that_are_damaged_while_the_service_runs_are_written_anew(tmp_path):
    projects = Projects(tmp_path)
    one, two = (Project(CONFIG, f"http://localhost:{port}", TOKEN) for port in (1, 2))
    projects.put("1", one)
    (tmp_path / "label-studio.db").write_bytes(b"x" * 9000)
    projects.put("2", two)
    again = Projects(tmp_path)
    assert (again.get("1"), again.get("2")) == (one, two)


def test_settings_that_cannot_be_written_change_nothing(tmp_path):
    projects = Projects(tmp_path)
    projects.put("1", Project(CONFIG, "http://localhost:1", TOKEN))
    with closing(sqlite3.connect(projects.path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.MonkeyPatch.context() as patch:
            connect = sqlite3.connect
            patch.setattr(sqlite3, "connect", lambda path: connect(path, timeout=0))
            with pytest.raises(LogFull, match="cannot be written"):
                projects.put("1", Project(CONFIG, "http://localhost:2", TOKEN))
    assert projects.get("1") == Project(CONFIG, "http://localhost:1", TOKEN)
    assert Projects(tmp_path).get("1") == projects.get("1")


def test_there_are_not_endlessly_many_projects(tmp_path, monkeypatch):
    monkeypatch.setattr("tagstream.serve.projects.MAX_PROJECTS", 2)
    projects = Projects(tmp_path)
    for name in ("1", "2", "1"):
        projects.put(name, Project(CONFIG, "", name))
    with pytest.raises(Refused, match="at most 2 projects"):
        projects.put("3", Project(CONFIG, "", ""))


def contents(folder: Path) -> dict[Path, bytes]:
    """The files of a folder, but for the memory that SQLite shares between processes."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".db-shm")
    return {path: path.read_bytes() for path in files}


def test_a_replica_writes_nothing(tmp_path):
    with Service(tmp_path, FakeTagger) as service:
        body = {"id": "1", "text": "t", "y": ["sea"]}
        service.submit(labelstudio.Change("learn", [body], ["k"])).result(60)
        entry = {"schema": CONFIG, "hostname": "http://localhost", "access_token": "t"}
        (tmp_path / "label-studio.json").write_text(json.dumps({"1": entry}))
        before = contents(tmp_path)
        with serving(tmp_path, service=Follower(tmp_path, FakeTagger)) as client:
            answer = client.post("/ls/setup", json={**entry, "project": 2})
            assert answer.json() == {"model_version": "tagstream-1"}
            told = {"action": "START_TRAINING", "project": {"id": 1}}
            assert client.post("/ls/webhook", json=told).status_code == 403
            pull = client.post("/v1/label-studio/pull", json={"project": 1})
            assert pull.status_code == 403
        assert contents(tmp_path) == before


def test_an_administrator_asks_over_http(tmp_path):
    with (
        host(say([tagged(1, "sea"), tagged(2, "python")])) as (root, _),
        serving(tmp_path) as client,
    ):
        assert client.post("/v1/label-studio/pull", json={"project": 1}).status_code == 422
        Projects(tmp_path)  # made by create_app, too
        body = {"project": 1, "schema": CONFIG, "hostname": root, "access_token": TOKEN}
        assert client.post("/ls/setup", json=body).status_code == 200
        pull = client.post("/v1/label-studio/pull", json={"project": 1})
        assert pull.json() == {
            "n_tasks": 2, "learnt": 2, "forgotten": 0, "left_out": 0, "missing": 0
        }  # fmt: skip
    with serving(tmp_path) as client:
        pull = client.post("/v1/label-studio/pull", json={"project": 1})
        assert (pull.status_code, pull.json()["field"]) == (502, "project")
        assert "cannot be reached" in pull.json()["error"]


def test_the_settings_are_made_by_the_application(tmp_path):
    (tmp_path / "label-studio.json").write_text("{}")
    with Service(tmp_path, FakeTagger) as service:
        create_app(service)
    assert not (tmp_path / "label-studio.json").exists()
