"""A photo library: tags for pictures by their embeddings, which come from any model you like.

Here the embeddings are made up: each tag has a direction, and a picture is the sum of its tags'
directions and noise.  With real pictures, put the output of an image encoder in their place.
"""

import numpy as np

import tagstream as ts

rng = np.random.default_rng(0)
TAGS = ["beach", "dog", "birthday", "mountain", "snow"]
DIRECTIONS = rng.normal(size=(len(TAGS), 64))


def pictures(n):
    has = rng.random((n, len(TAGS))) < 0.3
    noise = 3 * rng.normal(size=(n, 64))
    rows = has @ DIRECTIONS + noise
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), has


rows, has = pictures(600)
tags = [[tag for tag, yes in zip(TAGS, row, strict=True) if yes] for row in has]
library = ts.Tagger()
library.learn((rows[:500].tolist(), tags[:500]))
library.refit()

found = library.suggest([{"x": row} for row in rows[500:]])
right = sum(len({*one.tags} & {*true}) for one, true in zip(found, tags[500:], strict=True))
total = sum(len(one.tags) + len(true) for one, true in zip(found, tags[500:], strict=True))
print(f"micro-F1 on 100 new pictures: {2 * right / total:.2f}")

picture = {"id": "holiday.jpg", "x": rows[500].tolist()}
library.learn({**picture, "y": [*tags[500], "grandma"]})  # a tag for a person, with one picture
print("found again:", "grandma" in library.suggest(picture).tags)
