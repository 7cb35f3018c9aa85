"""Featurizers: texts, named values and plain numbers become rows for a learner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tagstream import features
from tagstream.features import (
    FEATURIZERS,
    Columns,
    Encoder,
    Featurizer,
    Hashing,
    Named,
    Text,
    featurizer_for,
)

if TYPE_CHECKING:
    from tagstream.features import TextFeatures, shared_words

__all__ = [
    "FEATURIZERS",
    "Columns",
    "Encoder",
    "Featurizer",
    "Hashing",
    "Named",
    "Text",
    "TextFeatures",
    "featurizer_for",
    "shared_words",
]


def __getattr__(name: str) -> Any:
    if name == "shared_words":  # compiled, so imported only when asked for
        return features.shared_words
    if name == "TextFeatures":  # brings scikit-learn
        return features.TextFeatures
    raise AttributeError(f"module 'tagstream.text' has no attribute {name!r}")
