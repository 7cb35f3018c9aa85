"""Correct an item, forget another, rename and merge tags, and keep it all in one file."""

from pathlib import Path
from tempfile import TemporaryDirectory

import tagstream as ts

tagger = ts.Tagger()
tagger.learn([
    {"id": "a", "text": "Swap: tomato plants for strawberry jam", "y": ["sale"]},
    {"id": "b", "text": "Selling a wheelbarrow and two spades", "y": ["sale", "garden"]},
    {"id": "c", "text": "The choir looks for basses", "y": ["music"]},
    {"id": "d", "text": "Open stage in the bar on Thursday", "y": ["concerts"]},
])  # fmt: skip
question = {"text": "I swap strawberry jam for tomato plants"}
print("before:", tagger.suggest(question).tags)

# The first item was wrong.  A tag that is new needs no other step.
tagger.relabel("a", ["garden", "swap"])
print("after the correction:", tagger.suggest(question).tags)
why = tagger.explain(question)
print("a copy of", why.copy_of.id, "which you corrected:", why.corrected)

# A record whose id is known is a correction as well.
done = tagger.learn({"id": "c", "text": "The choir looks for basses", "y": ["music", "choir"]})
print("corrected:", done.corrected)

tagger.forget("d")  # as if it had never been learnt
tagger.merge(["music", "concerts"], into="music")
tagger.rename("sale", "for sale")
print("tags:", tagger.counts)

with TemporaryDirectory() as folder:
    path = Path(folder, "board.tgs")
    tagger.save(path)
    again = ts.Tagger.open(path)
    print("the same from the file:", again.suggest(question) == tagger.suggest(question))
