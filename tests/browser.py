"""A real Chromium for the tests of the page, a service to look at, and what both need.

Pictures of each state are written to the folder that TAGSTREAM_PICTURES names, if it does.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from serving import serving
from tagstream.serve.example import example_changes
from tagstream.serve.writer import Service
from tagstream.tagger import Tagger

# ruff: noqa: E402 - imports that need what is looked for first
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for path in map(shutil.which, NAMES) if path), None)
if CHROMIUM is None:
    pytest.skip("no Chromium is installed; see tools/browser.sh", allow_module_level=True)

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]  # fmt: skip
MARKUP = "<b>x</b><script>document.title='broken'</script>"
VIEWS = ("tag", "review", "items", "tags", "progress", "data", "people")
PATIENCE = int(
    os.environ.get("TAGSTREAM_PATIENCE", "20000")
)  # milliseconds; the machine may be busy

playwright.expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield made
        made.close()


class Watched:
    """A window whose console errors and requests are kept."""

    def __init__(
        self, browser: Any, url: str, view: str = "tag", token: str = "", **options: Any
    ) -> None:
        width, height = options.pop("width", 1280), options.pop("height", 900)
        self.url = url
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", **options
        )
        self.context.set_default_timeout(PATIENCE)
        if token:
            self.context.add_init_script(f"sessionStorage.token ??= '{token}'")
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.open(view)

    def open(self, view: str) -> None:
        """Go to a view by its address."""
        self.page.goto(f"{self.url}/#/{view}")
        self.page.wait_for_selector("h1, dialog[open]")

    def picture(self, name: str) -> None:
        folder = os.environ.get("TAGSTREAM_PICTURES")
        if folder:
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def says(self, text: str | re.Pattern[str]) -> None:
        """Wait until the confirmation says so."""
        playwright.expect(self.page.locator("#toast span").first).to_have_text(text)

    def saved(self) -> None:
        """Wait until everything that was answered is acknowledged."""
        end = time.monotonic() + PATIENCE / 1000
        while self.page.evaluate("sessionStorage['tagstream.outbox'] ?? '[]'") != "[]":
            assert time.monotonic() < end, "an answer was not acknowledged"
            self.page.wait_for_timeout(20)

    def sees(self, selector: str, text: str | re.Pattern[str]) -> None:
        playwright.expect(self.page.locator(selector).first).to_contain_text(text)

    def button(self, name: str, **options: Any) -> Any:
        return self.page.get_by_role("button", name=name, **options)

    def choose(self, label: str, tag: str) -> None:
        """Pick a tag in a field that filters them."""
        field = self.page.get_by_role("combobox", name=label).last
        field.click()
        field.fill(tag)
        self.page.locator(".picker li:visible").first.click()

    # -------------------------------------------------------------- the view "Tag"
    def item(self) -> str:
        """Return the text of the item that is shown, once one is."""
        return str(self.page.locator("#item").inner_text())

    def chips(self) -> dict[str, bool]:
        self.page.wait_for_selector(".chip")
        found = self.page.evaluate(
            """[...document.querySelectorAll(".chip")].map(
                (chip) => [chip.dataset.tag, chip.getAttribute("aria-checked") === "true"])"""
        )
        return dict(found)

    def ticked(self) -> set[str]:
        return {tag for tag, on in self.chips().items() if on}

    def close(self) -> None:
        self.context.close()


@pytest.fixture(scope="module")
def example_folder(tmp_path_factory: Any) -> Path:
    """The folder of a service that has learnt the example; tests copy it."""
    folder: Path = tmp_path_factory.mktemp("example")
    service = Service(folder, Tagger)
    service.first = example_changes()
    service.start()
    service.close()
    return folder


@contextlib.contextmanager
def example_service(example_folder: Path, folder: Path, **options: Any) -> Iterator[Any]:
    shutil.copytree(example_folder, folder, dirs_exist_ok=True)
    with serving(folder, tagger=Tagger, **options) as client:
        yield client


@pytest.fixture
def example(example_folder: Path, tmp_path: Path) -> Iterator[Any]:
    """A service with the example in it: 156 learnt items, 30 that wait."""
    with example_service(example_folder, tmp_path / "example") as client:
        yield client


@pytest.fixture
def watch(browser: Any) -> Iterator[Any]:
    """Open windows that are closed at the end; none may have an error on its console."""
    opened: list[Watched] = []

    def open_window(client: Any, view: str = "tag", **options: Any) -> Watched:
        opened.append(Watched(browser, client.url, view, **options))
        return opened[-1]

    yield open_window
    for window in opened:
        window.close()
    # A refused change is an answer of the service that Chromium writes onto the console, too.
    told = [error for window in opened for error in window.errors]
    expected = r"status of (401|404|409|503)|net::ERR_"  # answers of the service; its end
    wrong = [error for error in told if not re.search(expected, error)]
    assert not wrong, wrong


def learnt(client: Any, n: int = 1) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/items?n={n}").json()["items"]
    return found


def stored(client: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/items/{name}").json()
    return found
