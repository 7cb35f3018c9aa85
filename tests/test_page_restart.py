"""The service killed and started again under the page: nothing that was answered is lost.

Run as a script, this file is the service that is killed: python test_page_restart.py FOLDER PORT.
"""

from __future__ import annotations

import contextlib
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serving import serving

if __name__ == "__main__":
    with serving(Path(sys.argv[1]), port=int(sys.argv[2])):
        print("ready", flush=True)
        threading.Event().wait()


import httpx

from browser import browser, playwright, watch

__all__ = ["browser", "watch"]  # fixtures
expect = playwright.expect


class Killed:
    """A service in a process of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder, self.url = folder, f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        command = [sys.executable, __file__, str(self.folder), str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Killed]:
    made = Killed(tmp_path / "served")
    yield made
    with contextlib.suppress(ProcessLookupError):
        made.kill()


def tag(window: Any, name: str) -> None:
    window.press("a")
    window.type(name)
    window.press("Enter", "Control+Enter")


def survive(watch: Any, service: Killed, n: int) -> None:
    items = [{"id": f"{i}", "text": f"words {i} and {i * 7919 % 1013}"} for i in range(2 * n + 2)]
    assert httpx.post(f"{service.url}/v1/pool", json={"items": items}).status_code == 200
    window = watch(SimpleNamespace(url=service.url))
    rng, given = random.Random(n), {}
    for turn in range(n):
        text = window.item()
        given[text] = f"before {turn}"
        is_sent = rng.random() < 0.5  # killed while the answer is under way, or after it
        tag(window, given[text])
        if is_sent:
            window.says(re.compile(given[text]))
        service.kill()
        expect(window.page.locator("#away")).to_contain_text("goes on by itself")
        item = window.page.locator("#item")
        if item.count() and (shown := item.inner_text()) not in given:
            given[shown] = f"while away {turn}"  # answered while nobody listens
            tag(window, given[shown])
        service.start()
        if turn % 3 == 2:
            window.page.reload()
        expect(window.page.locator("#away")).to_have_count(0)
        window.saved()
        expect(item).not_to_have_text(text)
    found = httpx.get(f"{service.url}/v1/items?n=200").json()["items"]
    assert {entry["text"] for entry in found} == given.keys()
    for entry in found:  # and nothing was learnt twice
        assert given[entry["text"]] in entry["y"]
        told = httpx.get(f"{service.url}/v1/items/{entry['id']}/history").json()["items"]
        assert len(told) == 1, told


def test_three_kills_lose_nothing(watch, service):
    survive(watch, service, 3)


@pytest.mark.slow
def test_twenty_kills_lose_nothing(watch, service):
    survive(watch, service, 20)


def test_what_is_typed_stays_while_the_service_is_away(watch, service):
    window = watch(SimpleNamespace(url=service.url))
    window.page.wait_for_selector(".empty")
    window.press("n")
    window.page.fill("#own", "something to keep")
    service.kill()
    expect(window.page.locator("#away")).to_contain_text("does not answer")
    window.choose("Find or add a tag", "kept")
    window.press("Escape", "Control+Enter")
    window.sees("#away", "1 change waits to be sent")
    service.start()
    window.says(re.compile("Saved: kept|answers again"))
    window.saved()
    found = httpx.get(f"{service.url}/v1/items?n=5").json()["items"]
    assert [(entry["text"], entry["y"]) for entry in found] == [("something to keep", ["kept"])]
