"""The first minutes: the demonstration, its page, and what it proposes next."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tagstream import records as data
from tagstream.cli import demo


def test_the_demo_shows_a_correction_that_sticks(run):
    code, out, err = run("demo", "--out", "page")
    assert code == 0
    assert err == f"see {Path('page', 'index.html')}\n"
    assert re.search(r"you correct it: garden, food, swap", out)
    before, after = re.findall(r"(?:before the correction|after it): +(.*)", out)
    assert "swap" not in before
    assert after.startswith("swap")
    assert "a copy of item n1, corrected by you" in out
    assert "*tomato*" in out
    page = Path("page", "index.html").read_text("utf-8")
    assert 'name="viewport"' in page
    assert "<svg" in page
    assert "<mark>tomato</mark>" in page.lower()
    assert "http" not in page  # nothing is fetched
    for _, command in demo._next_steps("page")[:-1]:  # the last one is about files of your own
        words = shlex.split(command)
        assert words[0] == "tagstream"
        assert run(*words[1:])[0] == 0, command


@pytest.mark.parametrize("width", [360, 390])
def test_the_page_of_the_demo_fits_a_telephone(run, width):
    browser = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    assert run("demo", "--out", "page")[0] == 0
    with browser.sync_playwright() as started:
        phone = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = phone.new_page(viewport={"width": width, "height": 800})
        page.goto(Path("page", "index.html").resolve().as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        phone.close()


def test_what_is_compiled_is_not_counted_as_time_per_post(run, monkeypatch):
    played = []
    play = demo.play

    def noted(*args):
        story, tagger = play(*args)
        played.append(story.seconds)
        return story, tagger

    monkeypatch.setattr(demo, "play", noted)
    out = run("demo")[1]
    assert len(played) == 2
    assert f"{1e3 * played[1]:.1f} ms to suggest and learn one post" in out


def test_the_posts_are_good_records():
    posts = data.posts()
    assert len(posts) >= 120
    assert len({post["id"] for post in posts}) == len({post["text"] for post in posts})
    assert all(post["y"] for post in posts)
