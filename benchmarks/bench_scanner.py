"""Texts per second that the text features are made for, beside scikit-learn's hashing of words.

Texts are the comments in the folder that ``TAGSTREAM_TEXT`` names, else the posts that come with
the package.
"""

from __future__ import annotations

import json
import os
import unicodedata
from importlib.resources import files
from pathlib import Path

from sklearn.feature_extraction.text import HashingVectorizer

from benchmarks.timing import Section, claim, race, seconds, tell
from tagstream.text import Text

LEAST = 20_000  # texts of a measurement, repeated if there are fewer
WANTED = 30_000.0  # per second


def texts() -> tuple[str, list[str]]:
    """Return what the texts are, and the texts."""
    folder = os.environ.get("TAGSTREAM_TEXT")
    if folder:
        what, lines = "GoEmotions comments", Path(folder) / "goemotions-dev.jsonl"
    else:
        what, lines = "posts of the demonstration", files("tagstream.records") / "posts.jsonl"
    found = [json.loads(line)["text"] for line in lines.read_text("utf-8").splitlines()]
    return what, found * -(-LEAST // len(found))


def run(quick: bool) -> Section:
    what, every = texts()
    every = every[: LEAST // 10] if quick else every
    words = HashingVectorizer(n_features=2**18)
    ways = {
        "`Text()`: tokens and 3–5-grams": Text().rows,
        '`Text("light")`: tokens and 3-grams': Text("light").rows,
        "scikit-learn's HashingVectorizer: words only": words.transform,
        "NFKC and lower case alone, text by text": lambda some: [
            unicodedata.normalize("NFKC", text).lower() for text in some
        ],
    }
    for way in ways.values():
        way(every[:10])  # compile
    best = race(
        {name: lambda way=way: seconds(lambda: way(every)) for name, way in ways.items()},
        turns=1 if quick else 5,
    )
    tell(".")
    rates = {name: len(every) / best[name] for name in ways}
    rows = [
        {"features": name, "texts per second": rate, "µs per text": 1e6 / rate}
        for name, rate in rates.items()
    ]
    full, _, _, bare = rates.values()
    length = sum(map(len, every)) / len(every)
    return {
        "equal": f"the same {len(every):,} texts ({what}, {length:.0f} characters in the mean), "
        "one after another in one process; 2¹⁸ columns; best of the turns",
        "differs": "what is made of a text, as named",
        "rows": rows,
        "claims": [
            claim(
                "features of short texts, per second of processor time", full, WANTED, unit="",
                at_least=True, limit="normalisation alone, texts per second", limit_value=bare,
                limit_unit="", distance=bare / full,
            )
        ],
    }  # fmt: skip
