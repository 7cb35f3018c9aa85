"""Take the picture of the page that the README shows: python tools/screenshot.py [browser].

Starts the service with its example texts, types a text, asks why, and writes docs/page.png.  Needs
the extra serve, the dependency group web and a Chromium, whose path may be given.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

PICTURE = Path(__file__).parents[1] / "docs" / "page.png"
TEXT = "Who helps me cut the hedge in the garden before the first frost?"
PORT = 8931
PATIENCE = 180_000  # milliseconds; a first start compiles


def wait_for(address: str) -> None:
    """Wait until an address answers."""
    end = time.monotonic() + PATIENCE / 1000
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(address, timeout=5).close()
            return
        time.sleep(1)
    raise TimeoutError(address)


def take(browser: Browser) -> None:
    """Type a text, ask why, and take the picture."""
    page = browser.new_page(viewport={"width": 1100, "height": 800}, device_scale_factor=1.5)
    page.goto(f"http://127.0.0.1:{PORT}/")
    page.get_by_text("the service is starting").wait_for(state="hidden", timeout=PATIENCE)
    page.reload()
    page.locator("textarea").first.fill(TEXT)
    page.wait_for_timeout(5000)
    page.get_by_role("button", name="Why?").click()
    page.wait_for_timeout(5000)
    page.screenshot(path=PICTURE)


def main() -> None:
    """Start the service, take the picture, stop the service."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as web:
        serve = [
            sys.executable,
            "-m",
            "tagstream",
            "serve",
            folder,
            "--example",
            "--port",
            str(PORT),
        ]
        service = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(f"http://127.0.0.1:{PORT}/")
            path = sys.argv[1] if len(sys.argv) > 1 else None
            browser = web.chromium.launch(executable_path=path, args=["--no-sandbox"])
            take(browser)
            browser.close()
        finally:
            service.terminate()
            service.wait()


if __name__ == "__main__":
    main()
