"""A clock that jumps while the service runs, and between its starts (needs Debian's faketime)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import httpx

from tagstream.serve.writer import Service
from tagstream.tagger import Tagger
from test_serve_cli import record

FAKETIME = shutil.which("faketime")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(FAKETIME is None, reason="faketime is not installed"),
]

# Back and forth, over the turn of a century, the end of 32-bit seconds, and almost to 1970.
JUMPS = [
    "@2026-11-18 12:00:00", "@2001-01-01 00:00:00", "@2038-01-19 03:14:06", "@1970-01-02 00:00:00",
    "@2099-12-31 23:59:59", "@2026-03-29 01:59:59", "@2026-10-25 03:00:00", "@2026-11-18 11:59:59",
]  # fmt: skip


def environment(clock: Path) -> dict[str, str]:
    shown = subprocess.run(
        [str(FAKETIME), "2001-01-01", "env"], capture_output=True, text=True, check=True
    ).stdout
    preload = next(line for line in shown.splitlines() if line.startswith("LD_PRELOAD="))
    return {
        **os.environ,
        "LD_PRELOAD": preload.partition("=")[2],
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def ask(client: httpx.Client, path: str, body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_clock_that_jumps_changes_nothing(tmp_path):
    folder, clock, log = tmp_path / "folder", tmp_path / "clock", tmp_path / "log"
    command = [sys.executable, "-m", "tagstream", "serve", str(folder), "--port", "0",
               "--snapshot-every", "25"]  # fmt: skip
    n = 0
    for start in range(3):
        clock.write_text(JUMPS[start] + "\n")
        with (
            open(log, "a") as errors,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment(clock)
            ) as process,
        ):
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, log.read_text()
            with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
                for jump in JUMPS:
                    clock.write_text(jump + "\n")
                    for _ in range(4):
                        assert ask(client, "/v1/learn", {"items": [record(n)]})["n"] == 1
                        n += 1
                    ask(client, "/v1/suggest", {"items": [{"text": "sort a list"}]})
                    year = int(client.get("/health/ready").headers["date"].split()[3])
                    assert year >= 1970
            process.send_signal(signal.SIGTERM if start else signal.SIGKILL)
            process.wait(120)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    years = {line["time"][:4] for line in lines}
    assert {"1970", "2001", "2038", "2099"} <= years  # it was really so late
    with Service(folder) as service:
        assert [event.body["id"] for event in service.log.after(0)] == [f"{i}" for i in range(n)]
        service._tagger.save(tmp_path / "served.tgs")
    tagger = Tagger()
    tagger.learn([record(i) for i in range(n)])
    tagger.save(tmp_path / "whole.tgs")
    assert (tmp_path / "served.tgs").read_bytes() == (tmp_path / "whole.tgs").read_bytes()
