"""Measure the page beside 20,000 stored items: python tools/page_speed.py [stored] [waiting].

Prints the time to the first view and the 50th and 95th percentile of the page's requests while each
view is opened and 50 items are tagged.  The stream, imports and the lists that are made in the
background are left out.  Needs what tools/screenshots.py needs.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from typing import Any

from playwright.sync_api import Page, sync_playwright
from screenshots import URL, call, serving

VIEWS = ("review", "items", "tags", "progress", "data", "people", "tag")
LEFT_OUT = (
    "/v1/events",
    "/v1/import",
    "/v1/review",
    "/v1/candidates",
    "/v1/tags/similar",
    "/v1/duplicates",
)
GROUP = 1000
TAGGED = 50
N_TAGS, N_WORDS = 60, 5000


def texts(n: int, seed: int) -> list[tuple[str, list[str]]]:
    """Return short texts with one to three tags; each tag has words of its own."""
    rng = random.Random(seed)
    made = []
    for _ in range(n):
        tags = rng.sample(range(N_TAGS), rng.choice([1, 1, 2, 3]))
        words = [f"w{rng.choice(tags) * 40 + rng.randrange(40)}" for _ in range(5)]
        words += [f"w{rng.randrange(N_WORDS)}" for _ in range(4)]
        made.append((" ".join(words), [f"tag {tag}" for tag in tags]))
    return made


def load(stored: int, waiting: int) -> None:
    """Put items into the service."""
    for kind, n in (("learn", stored), ("pool", waiting)):
        items = [
            {"id": f"{kind}-{i}", "text": text, **({"y": tags} if kind == "learn" else {})}
            for i, (text, tags) in enumerate(texts(n, seed=len(kind)))
        ]
        for i in range(0, n, GROUP):
            call(f"/v1/{kind}", {"items": items[i : i + GROUP]})


def watch(page: Page) -> dict[str, list[float]]:
    """Return the milliseconds of each route, which grow as the page asks."""
    spent: dict[str, list[float]] = defaultdict(list)

    def done(request: Any) -> None:
        path = request.url.removeprefix(URL).partition("?")[0]
        if path.startswith("/v1/") and not path.startswith(LEFT_OUT):
            route = "/".join(path.split("/")[:3])
            spent[route].append(request.timing["responseEnd"] - request.timing["requestStart"])

    page.on("requestfinished", done)
    return spent


def visit(page: Page) -> float:
    """Open each view and tag some items; return the seconds to the first view."""
    start = time.perf_counter()
    page.goto(URL)
    page.wait_for_selector(".chip")
    first = time.perf_counter() - start
    for view in VIEWS:
        page.goto(f"{URL}/#/{view}")
        page.wait_for_timeout(1500)
    for _ in range(TAGGED):
        text = page.locator("#item").inner_text()
        page.keyboard.press("1")
        page.keyboard.press("Enter" if page.locator('.chip[aria-checked="true"]').count() else "0")
        page.locator("#item").filter(has_not_text=text).wait_for()
        page.wait_for_timeout(500)
    return first


def report(first: float, spent: dict[str, list[float]]) -> None:
    """Print what was measured."""

    def line(name: str, values: list[float]) -> None:
        ordered = sorted(values)
        p50, p95 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.95))
        print(f"{name:24} {len(values):6} {p50:8.1f} {p95:8.1f}")

    print(f"first view: {first:.2f} s\n{'route':24} {'n':>6} {'p50 ms':>8} {'p95 ms':>8}")
    for name, values in sorted(spent.items()):
        line(name, values)
    line("all", [value for values in spent.values() for value in values])


def main() -> None:
    """Start the service, fill it, open the page, print."""
    stored, waiting = (int(arg) for arg in (*sys.argv[1:], 20_000, 2_000)[:2])
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((path for path in map(shutil.which, names) if path), None)
    with tempfile.TemporaryDirectory() as folder, serving(folder), sync_playwright() as web:
        load(stored, waiting)
        browser = web.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        spent = watch(page)
        report(visit(page), spent)
        browser.close()


if __name__ == "__main__":
    main()
