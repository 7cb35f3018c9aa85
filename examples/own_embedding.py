"""An embedding function of your own beside the words.

Any function will do that takes a list of texts and returns an array with one row for each: a
language model, a service you call, or the toy below, which counts what a text is about.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import tagstream as ts

TOPICS = [{"swim", "sea", "beach", "ocean", "bathe"}, {"bread", "soup", "bake", "loaf", "cook"}]


def embed(texts):
    """Return how many words of each topic a text has, as an array of shape (n, 2)."""
    words = [set(text.lower().strip("?.!").split()) for text in texts]
    return np.array([[len(found & topic) for topic in TOPICS] for found in words])


tagger = ts.Tagger(featurizer=ts.Encoder(embed))
tagger.learn([
    {"text": "Where to swim in the sea", "y": ["travel"]},
    {"text": "Bake a bread", "y": ["food"]},
    {"text": "A beach for us", "y": ["travel"]},
    {"text": "Soup to cook", "y": ["food"]},
])  # fmt: skip
# Not one of these words was learnt; the embedding knows what they are about.
question = {"text": "bathe ocean"}
print("with the embedding:", tagger.suggest(question, top=1).scores)

with TemporaryDirectory() as folder:
    path = Path(folder, "own.tgs")
    tagger.save(path)
    # A file must not choose which code runs, so the function is given when it is opened.
    again = ts.Tagger.open(path, encoder=embed)
    print("the same from the file:", again.suggest(question) == tagger.suggest(question))
