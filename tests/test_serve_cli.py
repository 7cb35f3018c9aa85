"""``tagstream serve``, ``token`` and ``log`` as a user runs them, with the real tagger."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import httpx

from tagstream import cli
from tagstream.serve.log import Event, EventLog, event_of_line
from tagstream.serve.writer import Change, Service, apply_events
from tagstream.tagger import Tagger

WORDS = ("sort", "list", "swim", "sea", "salt", "soup", "bike", "tent", "train", "tea", "bread")


def record(i: int) -> dict[str, Any]:
    rng = random.Random(i)
    words = rng.sample(WORDS, 4)
    return {"id": f"{i}", "text": " ".join(words), "y": words[: 1 + i % 2]}


def learn_all(service: Service, records: list[dict[str, Any]], size: int) -> None:
    for start in range(0, len(records), size):
        part = records[start : start + size]
        service.submit(Change("learn", part, [None] * len(part))).result(600)


def test_the_real_tagger_after_restarts_is_that_of_one_run_over_the_exported_log(tmp_path, capfd):
    folder = tmp_path / "folder"
    records = [record(i) for i in range(60)]
    with Service(folder, snapshot_events=17) as service:
        learn_all(service, records[:33], 5)
        service.submit(Change("forget", [{"id": "3"}], [None])).result(600)
    for snapshot in sorted((folder / "snapshots").iterdir())[-1:]:
        snapshot.write_bytes(b"damaged")
    with Service(folder, snapshot_events=10_000) as service:
        assert service.replayed > 0
        learn_all(service, records[33:], 1)
        service.submit(Change("rename", [{"old": "sea", "new": "ocean"}], [None])).result(600)
        relabelled = {**records[40], "y": ["corrected"]}
        service.submit(Change("learn", [relabelled], [None])).result(600)
        service.submit(Change("merge", [{"tags": ["tea"], "into": "bread"}], [None])).result(600)
        service.submit(Change("remove", [{"tag": "tent"}], [None])).result(600)
        assert "ocean" in service.read().view.tags
    assert cli.main(["log", "export", str(folder)]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert len(lines) == 65
    tagger = Tagger()
    for i, line in enumerate(lines):
        apply_events(tagger, [event_of_line(line, f"{i}")])
    tagger.save(tmp_path / "whole.tgs")
    newest = max((folder / "snapshots").glob("*.tgs"))
    assert newest.read_bytes() == (tmp_path / "whole.tgs").read_bytes()


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


def test_export_needs_a_folder_of_the_service(tmp_path, capfd):
    assert cli.main(["log", "export", str(tmp_path)]) == 1
    assert "must be a folder of the service" in capfd.readouterr().err
    with pytest.raises(ValueError, match="event must be one of"):
        event_of_line({"event": "explode"}, "k")


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


def test_other_hosts_without_tokens_are_refused(tmp_path, capfd):
    assert cli.main(["serve", str(tmp_path / "d"), "--host", "0.0.0.0"]) == 1
    told = capfd.readouterr().err
    assert f"tagstream token add {tmp_path}/d NAME" in told
    assert not (tmp_path / "d").exists()
    assert cli.main(["serve", str(tmp_path / "d"), "--model", "nowhere.tgs"]) == 1


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
    assert [path.name for path in (folder / "snapshots").iterdir()] == ["000000000156.tgs"]
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


@pytest.mark.slow
def test_schemathesis_finds_no_failure(tmp_path):
    pytest.importorskip("schemathesis")
    with Running(tmp_path / "folder", "--example") as running:
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{running.url}/openapi.json",
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
