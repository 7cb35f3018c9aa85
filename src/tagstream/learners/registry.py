"""The learners by name: one entry makes a learner known to files and to the command line.

Nothing is imported before it is asked for: the names must be there at once.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["LEARNERS", "METHODS", "learner"]

# What the command line calls a learner, its class, and the module of the class.
LEARNERS = {
    "oml": ("OML", "tagstream.learners.oml"),
    "knn": ("KNN", "tagstream.learners.knn"),
    "osml-elm": ("OSMLELM", "tagstream.paper.methods.osml_elm"),
    "olansgd": ("OLANSGD", "tagstream.paper.methods.olansgd"),
    "oml-published": ("PublishedOML", "tagstream.paper.methods.published"),
}
METHODS = tuple(LEARNERS)


def learner(name: object) -> Any:
    """Return the class of a learner, by the name of the method or of the class; None if unknown.

    Examples
    --------
    >>> learner("oml") is learner("OML"), learner("os")
    (True, None)
    """
    for method, (cls, module) in LEARNERS.items():
        if name in (method, cls):
            return getattr(importlib.import_module(module), cls)
    return None
