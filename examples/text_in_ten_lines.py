"""Text in ten lines: learn posts with tags, suggest tags for a new one, and see why."""

import tagstream as ts

tagger = ts.Tagger()
tagger.learn([
    {"id": 1, "text": "Where to swim in May? The sea is warm in the south.", "y": ["travel", "sea"]},
    {"id": 2, "text": "How to bake rye bread without yeast", "y": ["food"]},
    {"id": 3, "text": "Quiet beaches where you can swim in the sea", "y": ["travel", "sea"]},
])  # fmt: skip
question = {"text": "Can I swim in the sea in May?"}
print("tags:", tagger.suggest(question).tags)
print("because of:", [near.text for near in tagger.explain(question).neighbors[:2]])
