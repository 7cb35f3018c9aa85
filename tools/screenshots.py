"""Take pictures of all views for the documentation: python tools/screenshots.py [browser].

Starts the service with its example texts, does some work in it, and writes docs/pictures/*.png:
each view on a desk, some of them dark, and on a phone.  Needs the extra serve, the dependency group
web and a Chromium, whose path may be given.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
PORT = 8931
URL = f"http://127.0.0.1:{PORT}"
PATIENCE = 600  # seconds; a first start compiles
MOST_BYTES = 300_000
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 780}
FULL = {
    "tag": ".chip .why:not(:empty)", "review": ".row-card", "items": ".item-row",
    "tags": "tbody tr", "progress": ".curve .line", "data": ".drop", "people": "tbody tr",
}  # fmt: skip
DARK = ("tag", "progress")


def call(path: str, body: Any = None) -> Any:
    """Ask the service, or tell it something."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@contextlib.contextmanager
def serving(folder: str) -> Iterator[None]:
    """Run the service with its example, until it is no longer needed."""
    command = [sys.executable, "-m", "tagstream", "serve", folder, "--example"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    service = subprocess.Popen([*command, "--port", str(PORT)], **quiet)
    try:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                call("/health/ready")
                break
            time.sleep(0.5)
        yield
    finally:
        service.terminate()
        service.wait()


def work() -> None:
    """Do what makes the views worth a picture."""
    call("/v1/tags/promise", {"tag": "bike", "mode": "auto", "promise": 0.9})
    call("/v1/tags/promise", {"tag": "money", "mode": "never"})


def take(page: Page, view: str, name: str) -> None:
    """Go to a view, wait until it shows what it has, and take the picture."""
    page.goto(f"{URL}/#/{view}")
    page.wait_for_selector(FULL[view], timeout=1000 * PATIENCE)
    page.wait_for_timeout(500)  # what is drawn last
    path = FOLDER / f"{name}.png"
    page.screenshot(path=path)
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} must have at most {MOST_BYTES} bytes, got {path.stat().st_size}")


def pictures(browser: Browser) -> None:
    """Take the pictures of all views."""
    for name, size, scheme in (
        ("desk", DESK, "light"),
        ("dark", DESK, "dark"),
        ("phone", PHONE, "light"),
    ):
        context = browser.new_context(
            viewport=size, color_scheme=scheme, device_scale_factor=1.5, reduced_motion="reduce"
        )
        page = context.new_page()
        for view in FULL if name != "dark" else DARK:
            take(page, view, f"{view}-{name}")
        context.close()


def main() -> None:
    """Start the service, take the pictures, stop the service."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for path in map(shutil.which, names) if path), None)
    path = sys.argv[1] if len(sys.argv) > 1 else found
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, serving(folder), sync_playwright() as web:
        work()
        browser = web.chromium.launch(executable_path=path, args=["--no-sandbox"])
        pictures(browser)
        browser.close()


if __name__ == "__main__":
    main()
