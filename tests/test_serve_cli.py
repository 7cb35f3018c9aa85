"""``tagstream serve``, ``token`` and ``log`` as a user runs them, with the real tagger."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import httpx

from changes import WORDS, change_of
from fake_tagger import FakeTagger
from tagstream import cli
from tagstream.serve import run
from tagstream.serve.log import Event, EventLog
from tagstream.serve.tokens import Tokens
from tagstream.serve.writer import Change, Refused, Service
from tagstream.tagger import Tagger


def record(i: int) -> dict[str, Any]:
    rng = random.Random(i)
    words = rng.sample(WORDS, 4)
    return {"id": f"{i}", "text": " ".join(words), "y": words[: 1 + i % 2]}


def learn_all(service: Service, records: list[dict[str, Any]], size: int) -> None:
    for start in range(0, len(records), size):
        part = records[start : start + size]
        service.submit(Change("learn", part, [None] * len(part))).result(600)


def state_of(path: Path, scratch: Path) -> bytes:
    """The model of a file without what a command notes about the files that it read."""
    tagger = Tagger.open(path)
    tagger.extra = {}
    tagger.save(scratch)
    return scratch.read_bytes()


def test_a_served_model_is_bit_for_bit_what_learn_makes_of_the_exported_log(tmp_path, capfd):
    folder, log, model = tmp_path / "folder", tmp_path / "log.jsonl", tmp_path / "m.tgs"
    refused = 0
    for part in (range(150), range(150, 300)):
        with Service(folder, snapshot_events=70) as service:
            waiting = [service.submit(change_of(i)) for i in part]
            for done in waiting:
                refused += isinstance(done.exception(600), Refused)
            assert part.start == 0 or service.replayed > 0
        newest = max((folder / "snapshots").glob("*.tgs"))
        if part.start == 0:
            newest.write_bytes(b"damaged")
    assert 0 < refused < 40
    assert cli.main(["log", "export", str(folder)]) == 0
    log.write_text(capfd.readouterr().out)
    kinds = Counter(json.loads(line).get("event", "learn") for line in log.read_text().splitlines())
    assert kinds.keys() == {
        *("learn", "forget", "rename", "merge", "remove", "declare", "describe"),
    }, kinds
    argv = ["learn", str(log), "--model", str(model), "--chunk", "37", "--no-refit"]
    assert cli.main(argv) == 0
    assert state_of(model, tmp_path / "scratch") == newest.read_bytes()


def test_a_log_of_a_folder_that_began_with_a_model_is_learnt_on_that_model(tmp_path, capfd):
    folder, log, base = tmp_path / "folder", tmp_path / "log.jsonl", tmp_path / "m.tgs"
    tagger = Tagger()
    tagger.learn([{"id": f"{i}", "x": [i, i % 3], "y": [f"t{i % 2}"]} for i in range(9)])
    tagger.save(base)
    with Service(folder, model=base) as service:
        service.submit(Change("rename", [{"old": "t1", "new": "odd"}], ["a"])).result(600)
        service.submit(Change("learn", [{"id": "a", "x": [1.5, 2], "y": ["odd"]}], ["b"])).result(
            600
        )
    assert cli.main(["log", "export", str(folder)]) == 0
    log.write_text(capfd.readouterr().out)
    assert cli.main(["learn", str(log), "--model", str(base), "--chunk", "1"]) == 0
    newest = max((folder / "snapshots").glob("*.tgs"))
    assert state_of(base, tmp_path / "scratch") == state_of(newest, tmp_path / "other")


def test_items_are_exported_with_their_tags_of_today(tmp_path, capfd):
    log = EventLog(tmp_path / "events.db")
    with log.transaction():
        for i, (kind, body) in enumerate(
            [
                ("learn", {"id": "1", "text": "a", "y": ["x", "y"]}),
                ("learn", {"id": "2", "text": "b", "y": ["x"]}),
                ("rename", {"old": "x", "new": "z"}),
                ("learn", {"id": "2", "text": "b", "y": ["x"]}),
                ("learn", {"id": "3", "text": "c", "y": []}),
                ("forget", {"id": "3"}),
            ]
        ):
            log.append(Event(kind, f"{i}", body))
    assert cli.main(["log", "export", str(tmp_path), "--items"]) == 0  # beside an open log
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert lines == [
        {"id": "1", "text": "a", "y": ["z", "y"]},
        {"id": "2", "text": "b", "y": ["x"]},
    ]
    log.close()


def base_folder(tmp_path: Path, records: list[dict[str, Any]], *changes: Change) -> Path:
    """A folder that began with a model of these records."""
    tagger = Tagger()
    tagger.learn(records)
    tagger.save(tmp_path / "m.tgs")
    folder = tmp_path / "folder"
    with Service(folder, model=tmp_path / "m.tgs") as service:
        for change in changes:
            service.submit(change).result(600)
    return folder


def test_items_of_a_starting_model_are_exported_too(tmp_path, capfd):
    records = [record(i) for i in range(8)]
    tag = records[5]["y"][0]
    folder = base_folder(
        tmp_path,
        records,
        Change("forget", [{"id": "0"}], [None]),
        Change("learn", [{**records[1], "y": ["put right"]}], [None]),
        Change("learn", [record(8)], [None]),
        Change("rename", [{"old": tag, "new": "renamed"}], [None]),
    )
    assert cli.main(["log", "export", str(folder), "--items"]) == 0
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    wanted = [*records[2:], {**records[1], "y": ["put right"]}, record(8)]
    assert [{**item, "y": sorted(item["y"])} for item in told] == [
        {**item, "y": sorted("renamed" if y == tag else y for y in item["y"])} for item in wanted
    ]


def test_numbers_of_a_starting_model_are_exported_as_it_keeps_them(tmp_path, capfd):
    records = [{"id": f"{i}", "x": [i, 0.5], "y": [f"t{i % 2}"]} for i in range(4)]
    assert cli.main(["log", "export", str(base_folder(tmp_path, records)), "--items"]) == 0
    assert [json.loads(line) for line in capfd.readouterr().out.splitlines()] == records


def test_items_that_a_starting_model_does_not_keep_are_told_of(tmp_path, capfd):
    records = [{"id": f"{i}", "x": {"a": i, "b": 1}, "y": ["t"]} for i in range(3)]
    new = {"id": "new", "x": {"a": 7.0}, "y": ["t"]}
    folder = base_folder(tmp_path, records, Change("learn", [new], [None]))
    assert cli.main(["log", "export", str(folder), "--items"]) == 1
    told = capfd.readouterr()
    assert [json.loads(line) for line in told.out.splitlines()] == [new]
    assert "3 items of the model" in told.err
    assert "left out" in told.err


def test_a_forgotten_text_is_in_no_later_snapshot_which_can_begin_a_folder(tmp_path):
    secret = {"id": "s", "text": "my password is swordfish", "y": ["secret"]}
    with Service(tmp_path / "folder") as service:
        learn_all(service, [record(0), secret], 2)
        service.submit(Change("snapshot", [], [])).result(600)
        service.submit(Change("forget", [{"id": "s"}], [None])).result(600)
    with_it, without = sorted((tmp_path / "folder" / "snapshots").glob("*.tgs"))
    assert b"swordfish" in with_it.read_bytes()
    assert b"swordfish" not in without.read_bytes()
    with Service(tmp_path / "new", model=without) as service:
        assert service.read().n_items == 1


def test_export_needs_a_folder_of_the_service(tmp_path, capfd):
    assert cli.main(["log", "export", str(tmp_path)]) == 1
    assert "must be a folder of the service" in capfd.readouterr().err


def test_tokens_are_added_listed_and_revoked(tmp_path, capfd):
    folder = str(tmp_path / "new")
    assert cli.main(["token", "add", folder, "anna", "--role", "admin"]) == 0
    assert capfd.readouterr().out.startswith("tgs_")
    assert cli.main(["token", "list", folder, "--json"]) == 0
    (told,) = json.loads(capfd.readouterr().out)
    assert (told["name"], told["role"]) == ("anna", "admin")
    assert cli.main(["token", "list", folder]) == 0
    assert "anna" in capfd.readouterr().out
    assert cli.main(["token", "revoke", folder, "anna"]) == 0
    assert cli.main(["token", "revoke", folder, "anna"]) == 1
    assert cli.main(["token", "add", folder, "anna", "--role", "king"]) == 1
    assert "role must be one of read, write, admin" in capfd.readouterr().err


def test_revoking_the_last_token_is_told(tmp_path, capfd):
    folder = str(tmp_path)
    for name in ("anna", "bob"):
        assert cli.main(["token", "add", folder, name]) == 0
    assert cli.main(["token", "revoke", folder, "anna"]) == 0
    assert "no token is left" not in capfd.readouterr().err
    assert cli.main(["token", "revoke", folder, "bob"]) == 0
    told = capfd.readouterr().err
    assert "no token is left: the service is open to everybody on this machine" in told


@pytest.mark.parametrize("command", [["list"], ["revoke"]])
def test_tokens_of_a_folder_that_is_not_there_are_refused(tmp_path, capfd, command):
    name = ["bob"] if command == ["revoke"] else []
    assert cli.main(["token", *command, str(tmp_path / "nodir"), *name]) == 1
    assert "DIR must be the folder of a service" in capfd.readouterr().err
    assert not (tmp_path / "nodir").exists()


def test_other_hosts_without_tokens_are_refused(tmp_path, capfd):
    assert cli.main(["serve", str(tmp_path / "d"), "--host", "0.0.0.0"]) == 1
    told = capfd.readouterr().err
    assert f"tagstream token add {tmp_path}/d NAME" in told
    assert not (tmp_path / "d").exists()
    assert cli.main(["serve", str(tmp_path / "d"), "--model", "nowhere.tgs"]) == 1


def test_a_start_that_takes_long_says_what_it_does(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(run, "FIRST_WORD_SECONDS", 0)
    caplog.set_level("INFO", "tagstream.serve")
    service = Service(tmp_path, FakeTagger)
    urls: list[str] = []

    def ready(url: str) -> None:
        urls.append(url)
        service.on_failure()  # ends the server

    assert run.serve(service, "127.0.0.1", 0, ready) == 0
    assert urls
    told = [record.getMessage() for record in caplog.records if record.name == "tagstream.serve"]
    assert any(line.endswith(", 0 s so far") for line in told), told


def test_connections_send_small_packets_at_once():
    with (
        run.listen("127.0.0.1", 0) as sock,
        socket.create_connection(sock.getsockname()),
        socket.socket.accept(sock)[0] as accepted,  # without an event loop
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


MOUNTS = """
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
36 27 0:50 / /mnt/my\\040data rw,relatime shared:1 - nfs4 host:/data rw
37 27 0:51 / /home rw - fuse.sshfs host:/home rw
38 27 0:52 / /home/fast rw - ext4 /dev/vdb rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/mnt/my data/tags", "nfs4"), ("/mnt/my data", "nfs4"), ("/mnt/my database", "ext4"),
        ("/home/anna", "fuse.sshfs"), ("/home/fast/tags", "ext4"), ("/", "ext4"),
    ],
)  # fmt: skip
def test_the_file_system_of_a_folder_is_known(path, kind):
    assert run.file_system_of(Path(path), MOUNTS) == kind


@pytest.mark.parametrize(("kind", "n"), [("nfs4", 1), ("cifs", 1), ("fuse.sshfs", 1), ("ext4", 0)])
def test_a_folder_on_a_network_file_system_is_warned_of(tmp_path, monkeypatch, caplog, kind, n):
    monkeypatch.setattr(run, "file_system_of", lambda _: kind)
    service = Service(tmp_path, FakeTagger)
    assert run.serve(service, "127.0.0.1", 0, lambda _: service.on_failure()) == 0
    assert sum("use a folder on a local disk" in line for line in caplog.messages) == n


def test_a_token_that_is_revoked_stays_so_after_a_loss_of_power(tmp_path, monkeypatch):
    synced: list[str] = []
    usual = os.fsync

    def fsync(number: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{number}"))
        usual(number)

    tokens = Tokens(tmp_path / "tokens.json")
    tokens.add("anna", "read")
    monkeypatch.setattr(os, "fsync", fsync)
    tokens.revoke("anna")
    # First what the file says, then that it has this name.
    assert synced == [str(tmp_path / "tokens.json.new"), str(tmp_path)]


class Running:
    """The command in a process of its own."""

    def __init__(self, folder: Path, *more: str) -> None:
        command = [sys.executable, "-m", "tagstream", "serve", str(folder), "--port", "0", *more]
        self.errors = open(folder.parent / "log.jsonl", "a")  # noqa: SIM115 - closed in end()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip().rstrip("/")
        assert self.url, (folder.parent / "log.jsonl").read_text()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGKILL)

    def end(self, number: int) -> int:
        self.process.send_signal(number)  # nothing if it has ended
        code = self.process.wait(120)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()
        return code


def test_the_command_serves_and_ends_in_order(tmp_path):
    folder = tmp_path / "folder"
    with Running(folder, "--example") as running:
        with httpx.Client(base_url=running.url, trust_env=False, timeout=60) as client:
            assert client.get("/health/ready").status_code == 200
            assert client.get("/v1/info").json()["n_items"] == 156
            body = {"items": [{"text": "the brake of my bike"}]}
            assert client.post("/v1/suggest", json=body).json()["items"][0]["known"]
            why = client.post("/v1/explain", json=body).json()["items"][0]
            assert "bike" in why["neighbours"][0]["tags"]
            assert "tagstream" in client.get("/").text
        again = [sys.executable, "-m", "tagstream", "serve", str(folder), "--port", "0"]
        second = subprocess.run(again, capture_output=True, text=True, check=False)
        assert second.returncode == 1
        assert "must not be served twice" in second.stderr.splitlines()[-1]
        assert running.end(signal.SIGTERM) == 0
    assert [path.name for path in (folder / "snapshots").iterdir()] == ["000000000157.tgs"]
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert any(line["message"].startswith("no tokens") for line in lines)
    assert any(line.get("path") == "/v1/suggest" and line["request_id"] for line in lines)


@pytest.mark.slow
def test_the_command_killed_again_and_again_goes_on(tmp_path):
    folder = tmp_path / "folder"
    rng = random.Random(3)
    n = 0
    for _ in range(8):
        with (
            Running(folder, "--snapshot-every", "20") as running,
            httpx.Client(base_url=running.url, trust_env=False, timeout=60) as client,
        ):
            end = time.monotonic() + rng.random()
            assert client.get("/v1/info").json()["n_items"] >= n
            while time.monotonic() < end:
                answer = client.post("/v1/learn", json={"items": [record(n)]})
                assert answer.status_code == 200
                n += 1
    with Service(folder) as service:
        assert service.read().n_items == n
        service._tagger.save(tmp_path / "killed.tgs")
    tagger = Tagger()
    tagger.learn([record(i) for i in range(n)])
    tagger.save(tmp_path / "whole.tgs")
    assert (tmp_path / "killed.tgs").read_bytes() == (tmp_path / "whole.tgs").read_bytes()


def test_several_people_may_be_asked_about_each_item(tmp_path):
    with Running(tmp_path / "folder", "--agree", "3") as running:
        with httpx.Client(base_url=running.url, trust_env=False, timeout=60) as client:
            assert client.get("/v1/me").json()["agree"] == 3
        assert running.end(signal.SIGTERM) == 0


@pytest.mark.slow
def test_schemathesis_finds_no_failure(tmp_path):
    pytest.importorskip("schemathesis")
    with Running(tmp_path / "folder", "--example") as running:
        with httpx.Client(base_url=running.url, trust_env=False, timeout=60) as client:
            made = client.post("/v1/tokens", json={"name": "root", "role": "admin"}).json()
        held = f"Authorization: Bearer {made['token']}"
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{running.url}/openapi.json",
            "--header", held, "--exclude-path", "/v1/events",  # which does not end
            "--checks", "not_a_server_error,status_code_conformance,content_type_conformance",
            "--max-examples", "30", "--request-timeout", "20", "--seed", "1", "--no-color",
        ]  # fmt: skip
        environment = {**os.environ, "NO_PROXY": "*"}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
        )
        with httpx.Client(base_url=running.url, trust_env=False, timeout=60) as client:
            assert client.get("/health/ready").status_code == 200
        assert running.end(signal.SIGTERM) == 0
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
