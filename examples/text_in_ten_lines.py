"""Text in ten lines: learn posts with tags, suggest tags for a new one, and see why."""

import tagstream as ts

POSTS = """
sea travel: Where to swim in May? The sea is warm in the south.
food: How to bake rye bread without yeast
travel: Night trains to the south are back
winter: Waxing skis before the first snow
food sea: Fish soup from the harbour by the sea
travel winter: Snow and skis, the best slopes in January
food: A simple bread with rye flour
sea travel: Quiet beaches by the sea where you can swim
winter: How much snow is on the roof?
food: Which flour for a bread that is not heavy?
sea travel: To swim with seals, take the boat to the north
winter travel: By train into the snow
"""

tagger = ts.Tagger()
for number, line in enumerate(POSTS.strip().splitlines()):
    tags, text = line.split(": ")
    tagger.learn({"id": number, "text": text, "y": tags.split()})

question = {"text": "Can I swim in the sea in May?"}
print("tags:", tagger.suggest(question).tags)
for near in tagger.explain(question).neighbors[:3]:
    print("because of:", near.labels, near.text)
