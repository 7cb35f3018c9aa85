"""Text and named values as rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scipy import sparse

__all__ = ["Hashing"]


@dataclass(frozen=True)
class Hashing:
    """How text and mappings become columns.

    All fields are plain JSON values: ``Hashing(**dataclasses.asdict(h)) == h``.

    Parameters
    ----------
    n_features : int
        Number of columns. Two features can fall into one column; the more columns, the rarer.
    alternate_sign : bool
        Add half of the features with a minus sign, so that on average those that share a column
        cancel instead of adding up.
    ngrams : int
        Text only: runs of up to this many words are features too.
    normalize : bool
        Text only: scale every row to unit length.

    Examples
    --------
    >>> X = Hashing(n_features=16).texts(["a quiet beach", "Quiet, quiet!"])
    >>> X.shape, X.nnz
    ((2, 16), 3)
    """

    n_features: int = 2**18
    alternate_sign: bool = True
    ngrams: int = 1
    normalize: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.n_features < 2**31:
            raise ValueError(f"n_features must be from 1 to 2**31 - 1, got {self.n_features}")
        if self.ngrams < 1:
            raise ValueError(f"ngrams must be at least 1, got {self.ngrams}")

    def rows(self, items: Sequence[Any]) -> sparse.csr_matrix:
        """Return one row per item; all items are texts, or all are mappings."""
        return self.texts(items) if isinstance(items[0], str) else self.mappings(items)

    def texts(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Return one row per text: counts of its words, by scikit-learn's ``HashingVectorizer``."""
        from sklearn.feature_extraction.text import HashingVectorizer

        return HashingVectorizer(
            n_features=self.n_features,
            alternate_sign=self.alternate_sign,
            ngram_range=(1, self.ngrams),
            norm="l2" if self.normalize else None,
        ).transform(texts)

    def mappings(self, mappings: Sequence[dict[str, Any]]) -> sparse.csr_matrix:
        """Return one row per mapping of names to numbers or words, by ``FeatureHasher``."""
        from sklearn.feature_extraction import FeatureHasher

        return FeatureHasher(self.n_features, alternate_sign=self.alternate_sign).transform(
            mappings
        )
