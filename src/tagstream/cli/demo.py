"""``tagstream demo``: a message board, a suggestion that is wrong, a correction that sticks."""

from __future__ import annotations

import html
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagstream.cli.options import QuietOption
from tagstream.cli.output import Bar, new_table, put, put_table, say, show_compiling
from tagstream.cli.predict import copy_note, marked, put_explanation

if TYPE_CHECKING:
    from tagstream.learners.neighbors import Explanation
    from tagstream.tagger import Suggestion, Tagger

NEW = {"id": "n1", "text": "Swap: my tomato plants for your strawberry jam"}
TAGS = {  # declared before the first post, with some words of what they are about
    "bikes": "bicycle, cycling, wheel, helmet",
    "children": "kids, baby, school, toys",
    "food": "eat, cook, recipe, bakery, bread",
    "garden": "plants, trees, flowers, leaves",
    "lost": "lost and found, left behind, missing",
    "music": "song, band, choir, instrument",
    "repair": "fix, broken, mend, tools",
    "sale": "selling, for sale",
    "sea": "beach, swim, boat, waves",
}
FIRST = 10  # posts that are told of apart
CORRECTED = ["garden", "food", "swap"]
OTHER = {"id": "n2", "text": "I swap tomato plants for strawberry jam"}
PARTS = 3  # in which the stream is told


@dataclass(frozen=True)
class Story:
    """What happened on the board.

    Attributes
    ----------
    right : list of (str, float)
        Which posts, and for how many of them the first tag was right, as a share.
    n_spoken : int
        For how many of the first ten posts there was a suggestion.
    seconds : float
        To suggest tags for a post and to learn it, on average; nothing is compiled meanwhile.
    first, before, after : Suggestion
        For the new post; for the other one before and after the new one was corrected.
    why : Explanation
        Of the last suggestion.
    n_posts, n_tags : int
        How many there were before the correction.
    """

    right: list[tuple[str, float]]
    n_spoken: int
    seconds: float
    first: Suggestion
    before: Suggestion
    after: Suggestion
    why: Explanation
    n_posts: int
    n_tags: int


def demo(
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Where the page and the model go.")
    ] = "demo-report",
    quiet: QuietOption = False,
) -> None:
    """See it at work on a message board: suggestions, a correction that sticks, and why.

    It reads 124 made-up posts, suggests tags for each, learns it, and is then corrected. It writes
    a page that tells the same, the posts, and the model, for you to go on with.

    \b
    Examples:
      tagstream demo
      tagstream demo --out page
    """
    show_compiling(quiet)
    from tagstream.records import posts as made_up

    posts = made_up()
    with Bar("warming up", quiet) as bar:
        play(posts, bar)  # compiles what is not compiled yet: that is not a cost of each post
    with Bar("posts", quiet) as bar:
        story, tagger = play(posts, bar)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(post, ensure_ascii=False) + "\n" for post in posts]
    (folder / "posts.jsonl").write_text("".join(lines), "utf-8")
    tagger.save(folder / "board.tgs")
    page = folder / "index.html"
    page.write_text(_page(story, out), "utf-8")
    _put_story(story, out)
    say(f"see {page}", quiet)


def play(posts: list[dict[str, Any]], bar: Any) -> tuple[Story, Tagger]:
    """Go through the posts, correct one, and ask again."""
    from tagstream.tagger import Tagger

    tagger = Tagger(tags=TAGS)
    hits, n_spoken = [], 0
    start = time.perf_counter()
    for i, post in enumerate(posts):
        said = tagger.suggest({"text": post["text"]}, next=True)
        hits.append(next(iter(said.scores), None) in post["y"])
        n_spoken += bool(said.tags) and i < FIRST
        tagger.learn(post)
        bar(i + 1, len(posts))
    seconds = (time.perf_counter() - start) / len(posts)
    size = -(-len(posts) // PARTS)
    right = []
    for first in range(0, len(posts), size):
        part = hits[first : first + size]
        right.append((f"{first + 1} to {first + len(part)}", sum(part) / len(part)))
    n_tags = len(tagger.tags)
    first_try, before = tagger.suggest(NEW), tagger.suggest(OTHER)
    tagger.learn({**NEW, "y": first_try.tags})  # taken as it was suggested,
    tagger.relabel(NEW["id"], CORRECTED)  # and then put right
    after, why = tagger.suggest(OTHER), tagger.explain(OTHER)
    return Story(
        right, n_spoken, seconds, first_try, before, after, why, len(posts), n_tags
    ), tagger


def _scored(found: Suggestion) -> str:
    return ", ".join(f"{tag} ({found.scores[tag]:.2f})" for tag in found.tags) or "nothing"


def _next_steps(out: str) -> list[tuple[str, str]]:
    model = f"{out}/board.tgs"
    return [
        ("ask it yourself", f'tagstream explain "Lost a bicycle helmet at the beach" -m {model}'),
        ("put a post right", f"tagstream correct {model} p7 --tags sea,children"),
        ("rename a tag", f"tagstream tags rename {model} sale for-sale"),
        ("see how good it is", f"tagstream evaluate {out}/posts.jsonl"),
        ("learn posts of your own", "tagstream learn yours.jsonl --model yours.tgs"),
    ]


def _put_story(story: Story, out: str) -> None:
    put(
        f"{story.n_posts} made-up posts of a town's message board, {story.n_tags} tags.\n"
        "The tags are declared, with a few words each. For each post, tags are suggested first; "
        "then it is learnt.\n"
        f"{story.n_spoken} of the first {FIRST} posts got a suggestion.\n\n"
    )
    table = new_table("posts", "First tag right", "share")
    for posts, share in story.right:
        table.add_row(posts, f"{share:.0%}", "█" * round(40 * share))
    put_table(table)
    put(
        f"{1e3 * story.seconds:.1f} ms to suggest and learn one post\n\n"
        f"A new post: {NEW['text']}\n"
        f"  suggested: {_scored(story.first)}\n"
        f"  you correct it: {', '.join(CORRECTED)} (swap is a new tag)\n\n"
        f"Another post: {OTHER['text']}\n"
        f"  before the correction: {_scored(story.before)}\n"
        f"  after it:              {_scored(story.after)}\n\n"
        "Why?\n\n"
    )
    put_explanation(story.why, OTHER["text"])
    put("next\n" + "".join(f"  {what}:\n    {how}\n" for what, how in _next_steps(out)))


# ---------------------------------------------------------------------- the page
_STYLE = """
:root { --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --blue: #0072b2; --pale: #f4f7fa; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 44rem; padding: 1.2rem 1rem 3rem; color: var(--ink);
  font: 17px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.post { background: var(--pale); border-left: 4px solid var(--blue); padding: .7rem .9rem;
  margin: .8rem 0; }
.post p { margin: 0 0 .4rem; } .soft { color: var(--soft); font-size: .9rem; }
.tag { display: inline-block; border: 1px solid var(--blue); border-radius: 1rem;
  padding: 0 .6rem; margin: .1rem .1rem .1rem 0; font-size: .9rem; }
.new { background: var(--blue); color: white; }
mark { background: #ffe9a8; } svg { width: 100%; height: auto; }
pre { background: var(--pale); padding: .6rem .8rem; white-space: pre-wrap; font-size: .85rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
td, th { text-align: left; padding: .2rem .4rem .2rem 0; border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
"""


def _tags(tags: list[Any], new: str = "") -> str:
    shown = (f'<span class="tag{" new" * (t == new)}">{html.escape(str(t))}</span>' for t in tags)
    return " ".join(shown) or "nothing"


def _post(text: str, *lines: str) -> str:
    told = "".join(f"<div>{line}</div>" for line in lines)
    return f'<div class="post"><p>{html.escape(text)}</p>{told}</div>'


def _chart(right: list[tuple[str, float]]) -> str:
    """Draw the shares as bars; an SVG needs no package and no network."""
    bars = []
    for i, (posts, share) in enumerate(right):
        y = 26 * i
        bars.append(
            f'<text x="0" y="{y + 15}" font-size="12">{posts}</text>'
            f'<rect x="80" y="{y + 3}" width="{200 * share:.1f}" height="16" fill="#0072b2"/>'
            f'<text x="{86 + 200 * share:.1f}" y="{y + 15}" font-size="12">{share:.0%}</text>'
        )
    told = ", ".join(f"posts {posts}: {share:.0%}" for posts, share in right)
    return (
        f'<svg viewBox="0 0 320 {26 * len(right)}" role="img" aria-label="{told}" '
        f'font-family="system-ui, sans-serif">{"".join(bars)}</svg>'
    )


def _why(why: Explanation) -> str:
    """Tell what spoke for each tag, and show the nearest posts with the words they share."""
    rows = []
    for tag, parts in why.parts.items():
        spoke = sorted(parts.items(), key=lambda part: -abs(part[1]))
        told = ", ".join(f"{name} {value:+.1f}" for name, value in spoke if abs(value) >= 0.05)
        total = sum(parts.values())
        rows.append(f'<tr><td>{html.escape(str(tag))}</td><td>{told}</td><td class="n">'
                    f"{total:+.1f}</td></tr>")  # fmt: skip
    table = (
        '<table><tr><th>tag</th><th>what spoke for it</th><th class="n">sum</th></tr>'
        f"{''.join(rows)}</table>"
    )
    near = []
    for n in why.neighbors[:5]:
        pieces = (
            f"<mark>{html.escape(piece)}</mark>" if shared else html.escape(piece)
            for piece, shared in marked(OTHER["text"], n.text)
        )
        near.append(f'<div class="post"><p>{"".join(pieces)}</p>{_tags([*n.labels])} '
                    f'<span class="soft">{html.escape(str(n.id))}</span></div>')  # fmt: skip
    copied = "" if why.copy_of is None else f"<p>It is {html.escape(copy_note(why))}.</p>"
    return (
        "<p>Each source adds something to the log-odds of a tag: the votes of the nearest posts, "
        "a regression, a fast map that learns at once, how frequent the tag is, the tags of "
        f"recent posts, and a post that is nearly the same.</p>{table}{copied}"
        f"<p>The nearest posts; the words they share are marked:</p>{''.join(near)}"
    )


def _page(story: Story, out: str) -> str:
    steps = "".join(
        f"<p>{html.escape(what[0].upper() + what[1:])}:</p><pre>{html.escape(how)}</pre>"
        for what, how in _next_steps(out)
    )
    new = CORRECTED[-1]
    body = f"""
<h1>A correction that sticks</h1>
<p>tagstream suggests tags for things that come one after another, and learns from every
correction. This page was made on your machine by <code>tagstream demo</code>: it went through
{story.n_posts} made-up posts of a town's message board. Its {
        story.n_tags
    } tags were declared, with a
few words each, so there were suggestions for {story.n_spoken} of the first {FIRST} posts. For each
post it first suggested tags, then saw the right ones and learnt them.</p>
<h2>It learns as it goes</h2>
<p>For how many posts the first suggested tag was right:</p>
{_chart(story.right)}
<p class="soft">{1e3 * story.seconds:.1f} ms to suggest and learn one post, on average.</p>
<h2>It is wrong, and you say so</h2>
{
        _post(
            NEW["text"],
            f"suggested: {_tags(story.first.tags)}",
            f"you correct it: {_tags(CORRECTED, new)}",
        )
    }
<p>The tag <b>{new}</b> was never seen before. There is nothing to set up: it is known from now
on.</p>
<h2>It is right the next time</h2>
{
        _post(
            OTHER["text"],
            f"before the correction: {_tags(story.before.tags)}",
            f"after it: {_tags(story.after.tags, new)}",
        )
    }
<h2>Why?</h2>
{_why(story.why)}
<h2>Next</h2>
{steps}
"""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>tagstream: a correction that sticks</title><style>{_STYLE}</style></head>"
        f"<body>{body}</body></html>\n"
    )
