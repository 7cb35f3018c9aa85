"""The page in a real browser: the whole loop by hand and by keys, wide and narrow, light and dark.

Pictures of each state are written to the folder that TAGSTREAM_PICTURES names, if it does.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from serving import serving
from tagstream.serve.example import example_changes
from tagstream.serve.tokens import Tokens

# ruff: noqa: E402 - imports that need what is looked for first
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("chromium is not installed", allow_module_level=True)

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]  # fmt: skip
MARKUP = "<b>x</b><script>document.title='broken'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield made
        made.close()


class Watched:
    """A page whose console errors and requests are kept."""

    def __init__(self, browser: Any, url: str, width: int = 1280, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.page.goto(url)
        self.page.wait_for_selector("#facts:not(:empty), dialog[open]")

    def picture(self, name: str) -> None:
        folder = os.environ.get("TAGSTREAM_PICTURES")
        if folder:
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)

    def chips(self) -> dict[str, bool]:
        found = self.page.locator(".chip").all()
        return {
            c.get_attribute("data-tag"): c.get_attribute("aria-checked") == "true" for c in found
        }

    def until(self, text: str) -> None:
        playwright.expect(self.page.locator("#status")).to_have_text(text)


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Any]:
    with serving(tmp_path, start=False) as client:
        client.service.first = example_changes()
        client.service.start()
        yield client


def learnt(client: Any, n: int = 1) -> list[dict[str, Any]]:
    return client.get(f"/v1/items?n={n}").json()["items"]


def test_the_whole_loop(browser, example):
    watched = Watched(browser, example.url)
    page = watched.page
    watched.picture("1-start")
    page.fill("#item", "The rear brake of my bicycle rubs a bit")
    page.wait_for_selector(".chip")
    watched.picture("2-suggested")
    assert watched.chips()["bike"]

    page.click("#why")
    page.wait_for_selector("#neighbours li")
    assert "brake" in page.locator("#neighbours mark").all_inner_texts()
    assert page.locator("#neighbours .pair").count() == 5
    page.click("#neighbours .more button")
    assert page.locator("#neighbours .pair").count() == 7
    watched.picture("3-why")

    page.click('.chip[data-tag="bike"]')
    assert not watched.chips()["bike"]
    page.fill("#new-tag", MARKUP)
    page.press("#new-tag", "Enter")
    page.fill("#new-tag", "repair")
    page.click("#add button")
    assert watched.chips()[MARKUP]
    watched.picture("4-corrected")
    page.click("#learn")
    playwright.expect(page.locator("#undo")).to_be_enabled()
    newest = learnt(example)[0]
    assert newest["text"] == "The rear brake of my bicycle rubs a bit"
    assert set(newest["y"]) == {MARKUP, "repair"}
    assert page.title() == "tagstream"
    note = page.locator("#recent .note").first
    playwright.expect(note).to_have_text(f"{MARKUP}, repair")
    watched.picture("5-learnt")

    page.fill("#item", "The rear brake of my bicycle rubs a bit loudly")
    page.wait_for_selector('.chip[data-tag="repair"]')
    assert watched.chips()["repair"]

    page.click("#undo")
    watched.until("Undone.")
    assert learnt(example)[0]["text"] != "The rear brake of my bicycle rubs a bit"
    assert page.input_value("#item") == "The rear brake of my bicycle rubs a bit"
    assert watched.chips()["repair"]
    assert watched.errors == []
    assert watched.hosts == {example.url.split("/")[2]}


def test_by_keys_alone(browser, example):
    watched = Watched(browser, example.url)
    page = watched.page
    page.wait_for_selector("#next button")
    page.keyboard.press("j")
    page.wait_for_selector(".chip")
    text = page.input_value("#item")
    before = watched.chips()
    first = next(iter(before))
    page.keyboard.press("1")
    assert watched.chips()[first] != before[first]
    page.keyboard.press("a")
    page.keyboard.type("fresh")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    page.keyboard.press("w")
    page.wait_for_selector("#neighbours li")
    page.keyboard.press("Control+Enter")
    playwright.expect(page.locator("#item")).not_to_have_value(text)
    assert learnt(example)[0]["text"] == text
    assert "fresh" in learnt(example)[0]["y"]
    assert example.get("/v1/next").json()["n_pool"] == 29
    page.keyboard.press("u")
    watched.until("Undone.")
    assert example.get("/v1/next").json()["n_pool"] == 30
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.id") == "item"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.wait_for_selector("#help[open]")
    watched.picture("6-keys")
    page.keyboard.press("Escape")
    assert watched.errors == []


def test_a_learnt_item_is_corrected_and_the_correction_undone(browser, example):
    watched = Watched(browser, example.url)
    page = watched.page
    page.wait_for_selector("#recent button")
    before = learnt(example)[0]
    page.click("#recent button >> nth=0")
    page.fill("#new-tag", "corrected")
    page.press("#new-tag", "Enter")
    page.click("#learn")
    playwright.expect(page.locator("#undo")).to_be_enabled()
    assert learnt(example)[0]["y"] == [*before["y"], "corrected"]
    page.click("#undo")
    watched.until("Undone.")
    assert (learnt(example)[0]["id"], learnt(example)[0]["y"]) == (before["id"], before["y"])
    assert watched.errors == []


def test_tags_are_renamed_merged_and_removed(browser, example):
    watched = Watched(browser, example.url)
    page = watched.page
    page.click('button[aria-label="rename bike"]')
    watched.picture("7-rename")
    page.fill("#ask-value", "bicycle")
    page.keyboard.press("Enter")
    watched.until("bike is now bicycle.")
    page.click('button[aria-label="merge school"]')
    page.fill("#ask-value", "family")
    page.click("#ask-yes")
    watched.until("school is part of family now.")
    page.click('button[aria-label="remove money"]')
    watched.picture("8-remove")
    page.click("#ask-yes")
    watched.until("money is removed.")
    page.click('button[aria-label="remove health"]')
    page.keyboard.press("Escape")
    tags = {tag["tag"] for tag in example.get("/v1/tags").json()["tags"]}
    assert "bicycle" in tags
    assert "health" in tags
    assert not tags & {"bike", "school", "money"}
    page.click('button[aria-label="rename bicycle"]')
    page.fill("#ask-value", "travel")
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#alert")).to_contain_text("new must not be a tag")
    assert [error for error in watched.errors if "409" not in error] == []


def test_lines_are_put_into_the_pool(browser, tmp_path):
    with serving(tmp_path) as client:
        watched = Watched(browser, client.url)
        page = watched.page
        playwright.expect(page.locator("#next-hint")).to_contain_text("Nothing waits")
        watched.picture("9-empty")
        page.click("#feed summary")
        page.fill("#lines", f"first line\n\n  second line  \n{MARKUP}\n")
        page.click("#pool button")
        watched.until("3 items put in.")
        assert {found["text"] for found in client.get("/v1/next").json()["items"]} == {
            "first line",
            "second line",
            MARKUP,
        }
        assert watched.errors == []


@pytest.mark.parametrize(("width", "scheme"), [(380, "light"), (380, "dark"), (1600, "dark")])
def test_nothing_is_cut_off(browser, example, width, scheme):
    watched = Watched(browser, example.url, width, color_scheme=scheme)
    page = watched.page
    page.fill("#item", "How do I carry a child seat on my bicycle? " + "long" * 60)
    page.wait_for_selector(".chip")
    page.fill("#new-tag", "a tag with a rather long name " * 4)
    page.press("#new-tag", "Enter")
    page.click("#why")
    page.wait_for_selector("#neighbours li")
    watched.picture(f"10-{width}-{scheme}")
    over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert over <= 0
    assert watched.errors == []


def test_a_service_that_goes_away_is_told_kindly_and_nothing_typed_is_lost(browser, tmp_path):
    with serving(tmp_path) as client:
        watched = Watched(browser, client.url)
        page = watched.page
        page.fill("#item", "something to keep")
        page.fill("#new-tag", "kept")
        page.press("#new-tag", "Enter")
        page.route("**/v1/**", lambda route: route.abort())
        page.route("**/health/**", lambda route: route.abort())
        page.click("#learn")
        playwright.expect(page.locator("#alert")).to_contain_text("does not answer")
        watched.picture("11-away")
        assert page.input_value("#item") == "something to keep"
        assert watched.chips()["kept"]
        page.unroute_all()
        playwright.expect(page.locator("#alert")).to_be_hidden(timeout=10_000)
        page.click("#learn")
        watched.until("Learnt: kept")
        assert [found["y"] for found in learnt(client, 5)] == [["kept"]]


def test_a_token_is_asked_for_and_kept_for_the_session(browser, tmp_path):
    secret = Tokens(tmp_path / "tokens.json").add("anna", "admin")
    with serving(tmp_path, is_open=False) as client:
        watched = Watched(browser, client.url)
        page = watched.page
        page.wait_for_selector("#ask[open]")
        watched.picture("12-token")
        page.fill("#ask-value", secret)
        page.keyboard.press("Enter")
        playwright.expect(page.locator("#facts")).to_contain_text("0 items")
        page.fill("#item", "sort a list")
        page.fill("#new-tag", "python")
        page.press("#new-tag", "Enter")
        page.click("#learn")
        watched.until("Learnt: python")


def test_a_screen_reader_finds_its_way(browser, example):
    watched = Watched(browser, example.url)
    page = watched.page
    page.fill("#item", "The rear brake of my bicycle rubs a bit")
    chip = page.get_by_role("checkbox", name="bike, score")
    playwright.expect(chip.first).to_be_checked()
    for name in ("Item", "Tag next", "How well it suggests", "Learnt last", "All tags"):
        assert page.get_by_role("region", name=name, exact=True).count() == 1
    assert page.get_by_role("img", name="Rolling micro-F1").count() == 1
    unnamed = page.evaluate(
        """[...document.querySelectorAll("input, textarea, button")].filter((e) =>
          !e.labels?.length && !e.textContent.trim() && !e.getAttribute("aria-label")).length"""
    )
    assert unnamed == 0
    assert page.locator("html").get_attribute("lang") == "en"


def test_the_api_page_lists_every_route(browser, example):
    watched = Watched.__new__(Watched)
    context = browser.new_context()
    watched.page = context.new_page()
    watched.page.goto(f"{example.url}/docs")
    watched.page.wait_for_selector("article")
    listed = watched.page.locator(".path").all_inner_texts()
    paths = example.get("/openapi.json").json()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert len(listed) == len(routes)
    assert {*listed} == routes
    assert "Needs the role admin." in watched.page.locator("article .hint").all_inner_texts()
    watched.picture("13-docs")


def test_the_api_page_asks_for_a_token_where_there_are_tokens(browser, tmp_path):
    secret = Tokens(tmp_path / "tokens.json").add("anna", "read")
    with serving(tmp_path, is_open=False) as client:
        page = browser.new_context().new_page()
        page.goto(f"{client.url}/docs")
        page.fill("#token", "tgs_wrong")
        page.click("button")
        playwright.expect(page.locator("#token")).to_have_value("")  # it asks again
        page.fill("#token", secret)
        page.click("button")
        page.wait_for_selector("article")


def test_a_quarantined_change_is_shown(browser, example):
    watched = Watched(browser, example.url)
    page = watched.page
    playwright.expect(page.locator("#warnings")).to_be_hidden()
    example.service.quarantined = [(7, "IndexError")]
    page.reload()
    playwright.expect(page.locator("#warnings")).to_contain_text("quarantined, at position 7")
    page.fill("#item", "The rear brake of my bicycle rubs a bit")
    page.wait_for_selector(".chip")
    page.click("#learn")
    playwright.expect(page.locator("#undo")).to_be_enabled()
    assert learnt(example)[0]["source"] == "page"
    assert watched.errors == []


# ---------------------------------------------------------------------- several people
@pytest.fixture
def two(browser: Any, tmp_path: Path) -> Iterator[tuple[Any, Any, Any]]:
    """Two people with tokens at one service, each in a browser of their own."""
    tokens = Tokens(tmp_path / "tokens.json")
    secrets = {name: tokens.add(name, "admin") for name in ("anna", "ben")}
    with serving(tmp_path) as client:
        client.headers["Authorization"] = f"Bearer {secrets['anna']}"
        items = [{"id": f"{i}", "text": f"words {i} and {i * 7}"} for i in range(6)]
        assert client.post("/v1/pool", json={"items": items}).status_code == 200
        pages = []
        for secret in secrets.values():
            context = browser.new_context()
            context.add_init_script(f"sessionStorage.setItem('token', '{secret}')")
            page = context.new_page()
            page.goto(client.url)
            page.wait_for_selector("#next button")
            pages.append(page)
        yield client, *pages
        for page in pages:
            page.context.close()


def tag_next(page: Any, tag: str) -> None:
    page.fill("#new-tag", tag)
    page.press("#new-tag", "Enter")
    page.click("#learn")


def test_two_people_get_different_items(two):
    client, anna, ben = two
    anna.click("#next button")
    hers = anna.input_value("#item")
    playwright.expect(anna.locator("#learn")).to_be_enabled()
    ben.locator("#next button", has_text=hers).click()  # his list is older than her lease
    playwright.expect(ben.locator("#status")).to_have_text(
        "Somebody else is tagging that item; here is another one."
    )
    playwright.expect(ben.locator("#item")).not_to_have_value(hers)
    assert ben.input_value("#item")
    assert client.service.leases.holder(hers.split()[1]).who == "anna"


def test_a_conflict_is_shown_and_nothing_is_overwritten(two):
    client, anna, ben = two
    anna.click("#next button")
    tag_next(anna, "sea")
    playwright.expect(anna.locator("#undo")).to_be_enabled()
    newest = learnt(client)[0]
    for page in (anna, ben):  # both open the same learnt item
        page.locator("#recent button", has_text=newest["text"]).click(timeout=30_000)
    tag_next(ben, "soup")
    playwright.expect(ben.locator("#undo")).to_be_enabled()
    assert set(learnt(client)[0]["y"]) == {"sea", "soup"}
    tag_next(anna, "salt")
    alert = anna.locator("#alert")
    playwright.expect(alert).to_contain_text("ben has tagged this item meanwhile: sea, soup")
    playwright.expect(alert).to_contain_text("sea, salt")
    assert set(learnt(client)[0]["y"]) == {"sea", "soup"}
    anna.wait_for_timeout(6000)  # longer than the page's refresh: the message must stay
    playwright.expect(alert).to_be_visible()
    anna.click("#learn")
    playwright.expect(alert).to_be_hidden()
    assert set(learnt(client)[0]["y"]) == {"sea", "salt"}


def test_undo_never_undoes_somebody_elses_answer(two):
    client, anna, ben = two
    anna.click("#next button")
    tag_next(anna, "sea")
    playwright.expect(anna.locator("#undo")).to_be_enabled()
    newest = learnt(client)[0]
    body = {"id": newest["id"], "text": newest["text"], "y": ["soup"]}
    token = ben.evaluate("sessionStorage.getItem('token')")
    headers = {"Authorization": f"Bearer {token}"}
    assert client.post("/v1/learn", json={"items": [body]}, headers=headers).status_code == 200
    anna.click("#undo")
    playwright.expect(anna.locator("#alert")).to_contain_text("ben has changed this item since")
    assert learnt(client)[0]["y"] == ["soup"]
