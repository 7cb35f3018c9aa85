"""The first minutes: the demonstration, its page, and what it proposes next."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

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
    posts = [json.loads(line) for line in demo.POSTS.read_text("utf-8").splitlines()]
    assert len(posts) >= 120
    assert len({post["id"] for post in posts}) == len({post["text"] for post in posts})
    assert all(post["y"] for post in posts)
