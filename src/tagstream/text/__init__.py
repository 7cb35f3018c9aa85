"""Featurizers: texts, named values and plain numbers become rows for a learner."""

from __future__ import annotations

from typing import Any

from tagstream.text.features import Columns, Featurizer, Hashing, Named, Text, featurizer_for

__all__ = [
    "FEATURIZERS",
    "Columns",
    "Featurizer",
    "Hashing",
    "Named",
    "Text",
    "featurizer_for",
    "shared_words",
]

FEATURIZERS: dict[str, type[Any]] = {cls.name: cls for cls in (Text, Named, Columns, Hashing)}


def __getattr__(name: str) -> Any:
    if name == "shared_words":  # compiled, so only when asked for
        from tagstream.text.scanner import shared_words

        return shared_words
    raise AttributeError(f"module 'tagstream.text' has no attribute {name!r}")
