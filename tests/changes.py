"""A stream of changes of every kind, the same for the same numbers."""

from __future__ import annotations

import random

from tagstream.serve.writer import Change

WORDS = ("sort", "list", "swim", "sea", "salt", "soup", "bike", "chain", "tent", "train", "bread")


def change_of(i: int) -> Change:
    """The i-th change: mostly new items, some corrections, some changes of tags.

    Not all can be done: a tag may be gone, an item never learnt.
    """
    rng = random.Random(i)
    key = [f"k{i}"]
    if i % 17 == 13:
        return Change("forget", [{"id": f"{rng.randrange(i)}"}], key)
    if i % 23 == 19:
        return Change("merge", [{"tags": rng.sample(WORDS, 2), "into": rng.choice(WORDS)}], key)
    if i % 29 == 24:
        return Change("rename", [{"old": rng.choice(WORDS), "new": rng.choice(WORDS)}], key)
    if i % 37 == 30:
        return Change("declare", [{"tags": {rng.choice(WORDS): "", f"new {i}": "a b c"}}], key)
    if i % 41 == 33:
        return Change("describe", [{"tag": rng.choice(WORDS), "about": "d e"}], key)
    if i % 47 == 41:
        return Change("remove", [{"tag": rng.choice(WORDS)}], key)
    name = f"{i if rng.random() < 0.8 else rng.randrange(i + 1)}"
    words = rng.sample(WORDS, 4)
    # Of some known items only the tags change: those are relabelled, others replaced.
    text = " ".join(random.Random(name).sample(WORDS, 4)) if i % 2 else " ".join(words)
    return Change("learn", [{"id": name, "text": text, "y": words[: rng.randrange(3)]}], key)
