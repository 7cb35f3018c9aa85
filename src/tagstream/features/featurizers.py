"""Featurizers: what turns the items of a stream into rows of numbers.

A featurizer learns nothing from the items.  The row of an item depends on the item and on a few
parameters, which are saved with the model, so it never matters which items came together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tagstream.checks import (
    LARGEST_VALUE,
    Rows,
    check_choice,
    check_number,
    expect_keys,
    half_pair,
    is_finite,
    short,
)

__all__ = ["Columns", "Featurizer", "Hashing", "Named", "Text", "featurizer_for"]

_LONGEST = {"full": 5, "light": 3}  # n-grams of a preset


class Featurizer(Protocol):
    """What a tagger needs of a featurizer."""

    name: ClassVar[str]

    def rows(self, items: Any) -> Rows:
        """Return one row per item: a CSR matrix or an array of shape (n, p)."""

    def to_state(self) -> dict[str, Any]:
        """Return what must be saved, as plain values."""

    @classmethod
    def from_state(cls, state: Any) -> Featurizer:
        """Return the featurizer that was saved."""


@dataclass(frozen=True)
class Text:
    """Texts in any language: words and pieces of words, hashed.

    See :mod:`tagstream.features.scanner` for what a word is and how it is counted.

    Parameters
    ----------
    preset : "full" or "light"
        "full" takes pieces of three to five characters, "light" of three only: half the entries,
        nearly the same quality.
    n_features : int
        Number of columns p.  Two features can fall into one column; the more, the rarer.

    Examples
    --------
    >>> X = Text().rows(["A quiet beach", "quiet, QUIET beaches 🏖", ""])
    >>> X.shape, X.getnnz(axis=1).tolist()
    ((3, 262144), [28, 34, 0])
    >>> round(float(X[0].multiply(X[1]).sum()), 2)
    0.62
    """

    name: ClassVar[str] = "text"
    version: ClassVar[int] = 1  # of the rules in `scanner`; other rules need another number

    preset: str = "full"
    n_features: int = 2**18

    def __post_init__(self) -> None:
        check_choice("preset", self.preset, list(_LONGEST))
        check_number("n_features", self.n_features, kind=int, least=1, most=2**31 - 1)

    def rows(self, items: Sequence[str]) -> sparse.csr_matrix:
        """Return one row per text, of unit length; empty if the text has no word or symbol.

        Parameters
        ----------
        items : sequence of n str

        Returns
        -------
        CSR matrix of shape (n, p), float32
        """
        # Only here, so that reading a file needs no compiler.
        from tagstream.features.scanner import hash_texts

        return hash_texts(check_texts(items), int(self.n_features), longest=_LONGEST[self.preset])

    def to_state(self) -> dict[str, Any]:
        """Return the parameters and the version of the rules, as plain values."""
        return {"version": self.version, "preset": self.preset, "n_features": int(self.n_features)}

    @classmethod
    def from_state(cls, state: Any) -> Text:
        """Return the featurizer that was saved."""
        expect_keys("Text", state, "version", "preset", "n_features")
        if state["version"] != cls.version:
            raise ValueError(
                f"the version of the text features must be {cls.version}, "
                f"got {state['version']!r}; open the model with the tagstream that made it"
            )
        return cls(state["preset"], state["n_features"])


@dataclass(frozen=True)
class Named:
    """Mappings of names to numbers or strings, hashed.

    A name with a number is a feature with this value; a name with a string is the feature
    "name=string" with value 1.  By scikit-learn's ``FeatureHasher``: going through the mappings
    takes longer than hashing, so a compiled loop of our own would save nothing.

    Parameters
    ----------
    n_features : int
        Number of columns p.

    Examples
    --------
    >>> X = Named().rows([{"height": 2.5, "colour": "red"}, {"height": 1}])
    >>> X.shape, sorted(abs(X.data).tolist())
    ((2, 262144), [1.0, 1.0, 2.5])
    """

    name: ClassVar[str] = "named"

    n_features: int = 2**18

    def __post_init__(self) -> None:
        check_number("n_features", self.n_features, kind=int, least=1, most=2**31 - 1)

    def rows(self, items: Sequence[Mapping[str, Any]]) -> sparse.csr_matrix:
        """Return one row per mapping.

        Parameters
        ----------
        items : sequence of n mappings

        Returns
        -------
        CSR matrix of shape (n, p), float32
        """
        from sklearn.feature_extraction import FeatureHasher

        items = _listed("named values", items)
        for i, item in enumerate(items):
            _check_mapping(i, item)
        if not items:
            return sparse.csr_matrix((0, self.n_features), dtype=np.float32)
        X = FeatureHasher(int(self.n_features), dtype=np.float32).transform(items)
        X.sum_duplicates()
        X.eliminate_zeros()
        return X

    def to_state(self) -> dict[str, Any]:
        """Return the parameters, as plain values."""
        return {"n_features": int(self.n_features)}

    @classmethod
    def from_state(cls, state: Any) -> Named:
        """Return the featurizer that was saved."""
        expect_keys("Named", state, "n_features")
        return cls(state["n_features"])


@dataclass(frozen=True)
class Columns:
    """Numbers as they are: lists of equal length, an array, or a sparse matrix.

    Parameters
    ----------
    n_features : int
        Number of columns p that every item must have.
    names : sequence of p str, or None
        What the columns are called.

    Examples
    --------
    >>> Columns(2, ["height", "width"]).rows([[1, 2.5], [3, 4]])
    array([[1. , 2.5],
           [3. , 4. ]])
    """

    name: ClassVar[str] = "columns"

    n_features: int
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_number("n_features", self.n_features, kind=int, least=1, most=2**31 - 1)
        if self.names is not None:
            names = tuple(self.names)
            if len(names) != self.n_features or not all(isinstance(name, str) for name in names):
                raise ValueError(
                    f"names must be {self.n_features} strings, one per column, got {self.names!r}"
                )
            object.__setattr__(self, "names", tuple(map(str, names)))

    def rows(self, items: Any) -> Rows:
        """Return the numbers as an array; a sparse matrix stays sparse.

        Parameters
        ----------
        items : array-like or sparse matrix of shape (n, p)

        Returns
        -------
        array of shape (n, p), float32 if the items are and else float64; or CSR matrix
        """
        if sparse.issparse(items):
            X = sparse.csr_matrix(items)
            X = X if X.dtype == np.float32 else X.astype(np.float64)
            if not X.has_canonical_format:
                X = X.copy()
                X.sum_duplicates()
            self._check_width(X.shape[1])
            self._check_values(X.data.reshape(-1, 1))
            return X
        X = self._array(items)
        self._check_values(X)
        return X

    def _array(self, items: Any) -> npt.NDArray[np.floating[Any]]:
        if not isinstance(items, np.ndarray):
            items = _listed("numbers", items)
            for item in items:
                self._check_width(len(item) if isinstance(item, (Sequence, np.ndarray)) else None)
            if not items:
                return np.empty((0, self.n_features))
        try:
            X: npt.NDArray[Any] = np.asarray(items)
            if X.dtype != np.float32:
                X = np.asarray(items, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the values must be numbers, got {error}") from error
        if X.ndim != 2:
            raise ValueError(f"items must be an array of two dimensions, got {X.ndim}")
        self._check_width(X.shape[1])
        return np.ascontiguousarray(X)

    def _check_width(self, width: int | None) -> None:
        if width is None:
            raise ValueError(f"each item must be a list of {self.n_features} numbers")
        if width != self.n_features:
            raise ValueError(f"each item must have {self.n_features} values, got {width}")

    def _check_values(self, X: npt.NDArray[np.floating[Any]]) -> None:
        if X.size and not (np.abs(X).max() <= LARGEST_VALUE):
            i, j = np.argwhere(~(np.abs(X) <= LARGEST_VALUE))[0].tolist()
            where = f" in column {self.names[j]!r}" if self.names and X.shape[1] > 1 else ""
            raise ValueError(
                f"the values must be numbers within ±{LARGEST_VALUE:g}, got {X[i, j]}{where}"
            )

    def to_state(self) -> dict[str, Any]:
        """Return the parameters, as plain values."""
        names = None if self.names is None else list(self.names)
        return {"n_features": int(self.n_features), "names": names}

    @classmethod
    def from_state(cls, state: Any) -> Columns:
        """Return the featurizer that was saved."""
        expect_keys("Columns", state, "n_features", "names")
        return cls(state["n_features"], state["names"])


@dataclass(frozen=True)
class Hashing:
    """How models of file format 1 turn text and mappings into columns.

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

    name: ClassVar[str] = "hashing"

    n_features: int = 2**18
    alternate_sign: bool = True
    ngrams: int = 1
    normalize: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.n_features < 2**31:
            raise ValueError(f"n_features must be from 1 to 2**31 - 1, got {self.n_features}")
        if self.ngrams < 1:
            raise ValueError(f"ngrams must be at least 1, got {self.ngrams}")

    def rows(self, items: Sequence[str] | Sequence[Mapping[str, Any]]) -> sparse.csr_matrix:
        """Return one row per text or mapping; all must be of the kind of the first."""
        items = _listed("items", items)
        if items and isinstance(items[0], Mapping):
            for i, item in enumerate(items):
                _check_mapping(i, item)
            return self.mappings(items)
        return self.texts(check_texts(items))

    def texts(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Return one row per text: counts of its words, by scikit-learn's ``HashingVectorizer``."""
        from sklearn.feature_extraction.text import HashingVectorizer

        return HashingVectorizer(
            n_features=self.n_features,
            alternate_sign=self.alternate_sign,
            ngram_range=(1, self.ngrams),
            norm="l2" if self.normalize else None,
        ).transform(texts)

    def mappings(self, mappings: Sequence[Mapping[str, Any]]) -> sparse.csr_matrix:
        """Return one row per mapping of names to numbers or words, by ``FeatureHasher``."""
        from sklearn.feature_extraction import FeatureHasher

        return FeatureHasher(self.n_features, alternate_sign=self.alternate_sign).transform(
            mappings
        )

    def to_state(self) -> dict[str, Any]:
        """Return the parameters, as plain values."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Any) -> Hashing:
        """Return the featurizer that was saved."""
        expect_keys("Hashing", state, "n_features", "alternate_sign", "ngrams", "normalize")
        return cls(**state)


def featurizer_for(items: Any) -> Featurizer:
    """Return the featurizer that suits these items.

    Parameters
    ----------
    items : sequence of str, of mappings, or of lists of numbers; array; or sparse matrix
        At least one; the first one decides.

    Examples
    --------
    >>> featurizer_for(["some text"])
    Text(preset='full', n_features=262144)
    >>> featurizer_for([[1.0, 2.0]])
    Columns(n_features=2, names=None)
    """
    if sparse.issparse(items) or (isinstance(items, np.ndarray) and items.ndim == 2):
        return Columns(int(items.shape[1]))
    items = _listed("items", items)
    if not items:
        raise ValueError("items must hold at least one item, got none")
    first = items[0]
    if isinstance(first, str):
        return Text()
    if isinstance(first, Mapping):
        return Named()
    if isinstance(first, (Sequence, np.ndarray)):
        return Columns(len(first))
    raise ValueError(f"an item must be a text, a mapping or a list of numbers, got {_short(first)}")


def check_texts(texts: Any) -> list[str]:
    """Return the texts as a list, or raise unless each is a string of valid Unicode."""
    listed: list[str] = _listed("texts", texts)
    for i, text in enumerate(listed):
        if not isinstance(text, str):
            raise ValueError(f"a text must be a string, got {_short(text)} as item {i}")
        _check_encodable("a text", text, i)
    return listed


def _check_mapping(i: int, item: object) -> None:
    if not isinstance(item, Mapping):
        raise ValueError(f"an item must be a mapping of names, got {_short(item)} as item {i}")
    for name, value in item.items():
        if not isinstance(name, str):
            raise ValueError(f"a name must be a string, got {_short(name)} in item {i}")
        _check_encodable("a name", name, i)
        if isinstance(value, str):
            _check_encodable("a value", value, i)
        elif not is_finite(value):
            raise ValueError(
                f"the value of {name!r} must be a finite number or a string, "
                f"got {_short(value)} in item {i}; leave out what is unknown"
            )


def _check_encodable(what: str, text: str, i: int) -> None:
    at = half_pair(text)
    if at is not None:
        raise ValueError(
            f"{what} must be valid Unicode, got {short(ascii(text))} in item {i}, "
            f"with half of a surrogate pair at position {at}"
        )


def _listed(what: str, items: Any) -> list[Any]:
    if isinstance(items, (str, bytes, Mapping)):
        raise ValueError(f"{what} must come as a list, got one {type(items).__name__}")
    return items if isinstance(items, list) else list(items)


def _short(value: object) -> str:
    return short(value if isinstance(value, str) else repr(value))
