"""Featurizers: texts, named values and plain numbers become rows for a learner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tagstream.features.encoder import Encoder
from tagstream.features.featurizers import Columns, Featurizer, Hashing, Named, Text, featurizer_for

if TYPE_CHECKING:
    from tagstream.features.scanner import shared_words
    from tagstream.features.transformer import TextFeatures

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

# By the name that is saved with a model.
FEATURIZERS: dict[str, type[Featurizer]] = {
    "text": Text,
    "named": Named,
    "columns": Columns,
    "hashing": Hashing,
    "encoder": Encoder,
}


def __getattr__(name: str) -> Any:
    if name == "shared_words":  # compiled, so imported only when asked for
        from tagstream.features.scanner import shared_words

        return shared_words
    if name == "TextFeatures":  # brings scikit-learn
        from tagstream.features.transformer import TextFeatures

        return TextFeatures
    raise AttributeError(f"module 'tagstream.text' has no attribute {name!r}")
