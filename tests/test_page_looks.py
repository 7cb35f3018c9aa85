"""Every view, wide and narrow, light and dark: nothing is cut off, axe-core finds nothing."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from browser import VIEWS, browser, example_folder, example_service, watch

__all__ = ["browser", "example_folder", "watch"]  # fixtures

axe = pytest.importorskip("axe_playwright_python")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(scope="module")
def client(example_folder: Path, tmp_path_factory: Any) -> Any:
    """A service whose views have something to show."""
    with example_service(example_folder, tmp_path_factory.mktemp("looks")) as made:
        long = "How do I carry a child seat on my bicycle? " + "long" * 60
        items = [{"id": "long", "text": long, "y": ["a tag with a rather long name " * 4 + "end"]}]
        assert made.post("/v1/learn", json={"items": items}).status_code == 200
        body = {"tag": "bike", "mode": "auto", "promise": 0.9}
        assert made.post("/v1/tags/promise", json=body).status_code == 200
        yield made


def violations(page: Any) -> list[tuple[str, list[str]]]:
    page.evaluate(resources.files(axe).joinpath("axe.min.js").read_text(encoding="utf-8"))
    told = page.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
    return [
        (found["id"], [node["html"] for node in found["nodes"]]) for found in told["violations"]
    ]


def check(window: Any, name: str) -> None:
    window.picture(name)
    over = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert window.page.evaluate(over) <= 0, name
    found = violations(window.page)
    assert not found, (name, found)


def fill(window: Any, view: str) -> None:
    """Wait until a view shows what it has."""
    window.page.wait_for_selector(
        {"tag": ".chip", "review": ".row-card", "items": ".item-row", "tags": "tbody tr",
         "progress": ".curve", "data": ".drop", "people": "tbody tr"}[view]
    )  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_is_whole_and_accessible(watch, client, width, scheme):
    window = watch(client, width=width, color_scheme=scheme, bypass_csp=True)
    for view in VIEWS:
        window.open(view)
        fill(window, view)
        check(window, f"{view}-{width}-{scheme}")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_what_opens_is_whole_and_accessible(watch, client, width, scheme):
    window = watch(client, width=width, color_scheme=scheme, bypass_csp=True)
    fill(window, "tag")
    window.press("w")
    window.page.wait_for_selector(".near li")
    check(window, f"why-{width}-{scheme}")
    window.press("w", "a")
    window.type("a")
    window.page.wait_for_selector(".picker li:visible")
    check(window, f"picker-{width}-{scheme}")
    window.press("Escape", "Escape", "?")
    window.page.wait_for_selector("dialog[open]")
    check(window, f"keys-{width}-{scheme}")
    window.press("Escape")
    window.press("s")
    window.page.wait_for_selector("#toast")
    check(window, f"toast-{width}-{scheme}")
    window.open("items")
    fill(window, "items")
    window.press("x", "o")
    window.page.wait_for_selector(".history")
    check(window, f"history-{width}-{scheme}")
    window.open("tags")
    fill(window, "tags")
    window.press("Enter")
    window.page.wait_for_selector("dialog[open]")
    check(window, f"tag-panel-{width}-{scheme}")


def test_empty_views_say_what_to_do(watch, tmp_path):
    from serving import serving

    with serving(tmp_path) as empty:
        window = watch(empty, bypass_csp=True)
        for view, said in (("tag", "Put items in"), ("items", "Tag some items"),
                           ("tags", "A tag appears"), ("progress", "Tag some items")):  # fmt: skip
            window.open(view)
            window.sees(".empty", said)
            check(window, f"empty-{view}")


def test_a_screen_reader_finds_its_way(watch, client):
    window = watch(client)
    fill(window, "tag")
    page = window.page
    window.press("n")
    page.fill("#own", "The rear brake of my bicycle rubs a bit")
    page.get_by_role("checkbox", name="bike, score").wait_for()
    assert page.get_by_role("navigation", name="Views").count() == 1
    assert page.get_by_role("main").count() == 1
    assert page.locator("html").get_attribute("lang") == "en"
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Skip to the content").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
