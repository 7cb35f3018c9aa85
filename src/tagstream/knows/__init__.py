"""What a model knows besides suggestions, and what people have said about its tags.

Each module answers one question about stored items and tags.  All of them ask stored items
*without themselves* (:meth:`~tagstream.learners.neighbors.NeighborClassifier.ask_stored`): an item
that may speak for itself always confirms the tags that it has.

Modules are imported when they are needed: a tagger that only learns and suggests needs few.
"""

__all__ = ["MODES", "ORDERS"]

MODES = ("auto", "suggest", "never")  # what becomes of a tag
ORDERS = ("mixed", "arrival", "random", "unsure", "sure")  # in which items are offered
