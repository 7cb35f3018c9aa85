"""What the readers hand out: records in batches, and whole data sets.

Two shapes of the same thing. A `Batch` holds records as they came, texts as texts, with their
label *sets*: for streams in which a new tag can turn up with any record. A `Dataset` holds rows of
numbers and labels as an indicator array ``Y``: for files that declare their labels, and for
anything that has been read to its end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tagstream.checks import DataError
from tagstream.features import Hashing

__all__ = [
    "Batch",
    "Dataset",
    "Items",
    "LabelSet",
    "Matrix",
    "Rows",
    "collect",
    "concatenate",
    "join",
    "stack",
    "stem",
]

Matrix: TypeAlias = "NDArray[np.float64] | sparse.csr_matrix"
Items: TypeAlias = "list[str] | list[dict[str, Any]] | NDArray[np.float64] | sparse.csr_matrix"
LabelSet: TypeAlias = tuple[str, ...]

_MAX_CELLS = 1 << 29  # records times labels of an indicator array: 512 MiB, if all is known


class Rows(Protocol):
    """What makes rows of numbers of texts or of named values."""

    def rows(self, items: Any) -> Any:
        """Return one row per item."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples with their labels as an indicator array.

    Attributes
    ----------
    X : ndarray of shape (n, p), float64, or CSR matrix when the file is sparse
        A missing feature (``?``) is whatever the reader's ``missing`` says, NaN unless told
        otherwise.
    Y : ndarray of shape (n, q), uint8, or float32 where something is not known
        1 where the example has the label, 0 where it has not, NaN where the file does not say.
    feature_names : tuple of str, or None
        None when the features have no names (LIBSVM, hashed text).
    label_names : tuple of str
    name : str
    n_train : int or None
        The first ``n_train`` rows are the training part, where the source ships a split.
    ids : tuple or None
        The records' own identifiers.

    Examples
    --------
    >>> import numpy as np
    >>> d = Dataset(np.eye(2), np.array([[1, 1], [0, 0]], np.uint8), ("a", "b"), ("sun", "sea"))
    >>> d.label_sets
    [('sun', 'sea'), ()]
    >>> float(d.cardinality)
    1.0
    """

    X: Matrix
    Y: NDArray[Any]
    feature_names: tuple[str, ...] | None
    label_names: tuple[str, ...]
    name: str = ""
    n_train: int | None = None
    ids: tuple[Any, ...] | None = None

    def dense_if_full(self) -> Dataset:
        """Return the same with dense rows if most entries are there, however they are written.

        Examples
        --------
        >>> full, thin = (sparse.csr_matrix([[1.0, x], [0.0, x]]) for x in (2.0, 0.0))
        >>> [type(Dataset(X, X, None, ()).dense_if_full().X).__name__ for X in (full, thin)]
        ['ndarray', 'csr_matrix']
        """
        X: Any = self.X
        if sparse.issparse(X) and X.nnz > 0.5 * np.prod(X.shape):
            return replace(self, X=X.toarray())
        return self

    @property
    def known(self) -> NDArray[np.bool_] | None:
        """Where ``Y`` says something, of shape (n, q); None: everywhere."""
        known = None if self.Y.dtype.kind in "biu" else ~np.isnan(self.Y)
        return None if known is None or known.all() else known

    @property
    def label_sets(self) -> list[LabelSet | None]:
        """The names of each row's labels; None for a row of which no label is known."""
        sets: list[LabelSet | None] = [
            tuple(self.label_names[j] for j in np.flatnonzero(row)) for row in self.Y == 1
        ]
        known = self.known
        if known is not None:
            sets = [s if row.any() else None for s, row in zip(sets, known, strict=True)]
        return sets

    @property
    def cardinality(self) -> float:
        """Mean number of labels per example, of those of which something is known."""
        known = self.known
        n = len(self.Y) if known is None else int(known.any(axis=1).sum())
        return float(np.count_nonzero(self.Y == 1) / max(n, 1))

    def as_batch(self) -> Batch:
        """Return the same as records with label sets."""
        known = self.known
        unknown: list[LabelSet] | None = None
        if known is not None:  # of a record without any known label, None says it already
            unknown = [
                tuple(self.label_names[j] for j in np.flatnonzero(~row)) if row.any() else ()
                for row in known
            ]
        return Batch(
            items=self.X,
            label_sets=self.label_sets,
            unknown=unknown if unknown and any(unknown) else None,
            ids=self.ids,
            feature_names=self.feature_names,
            label_names=self.label_names,
        )

    def __repr__(self) -> str:
        (n, p), q = self.X.shape, len(self.label_names)
        kind = "sparse" if sparse.issparse(self.X) else "dense"
        return f"<Dataset {self.name!r}: {n} rows, {p} {kind} features, {q} labels>"


@dataclass(frozen=True, eq=False)
class Batch:
    """Consecutive records of a stream whose labels are not known in advance.

    Attributes
    ----------
    items : list of str, list of dict, ndarray of shape (n, p), float64, or CSR matrix
        Texts, named values, or rows of numbers.
    label_sets : list of (tuple of str, or None)
        Each record's labels without repetition; None when the record carries none (to be
        predicted).
    unknown : list of tuple of str, or None
        For each record the labels of which the file does not say whether they apply.
    ids : tuple or None
        The records' own identifiers.
    feature_names, label_names : tuple of str, or None
        Where the file declares them.
    changes : dict of int to dict, or None
        The records that are none: changes of what was learnt before, in its place.
    places : dict of int to str, or None
        Where each change was read: path and line.
    refused : dict of int to tuple of str, or None
        The tags that some of the records say they do not have.  Where such a record has no labels,
        nothing is known of the others.

    Examples
    --------
    >>> batch = Batch(["a quiet beach", "rain"], [("sea",), None])
    >>> len(batch)
    2
    """

    items: Items
    label_sets: list[LabelSet | None]
    unknown: list[LabelSet] | None = None
    ids: tuple[Any, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    label_names: tuple[str, ...] | None = None
    changes: dict[int, dict[str, Any]] | None = None
    places: dict[int, str] | None = None
    refused: dict[int, LabelSet] | None = None

    def __len__(self) -> int:
        return len(self.label_sets)

    def cut(self, first: int, last: int | None = None) -> Batch:
        """Return the records from ``first`` to before ``last``.

        Examples
        --------
        >>> Batch(["a quiet beach", "rain"], [("sea",), None]).cut(1).items
        ['rain']
        """
        part = slice(first, len(self) if last is None else last)
        changes, places, refused = self.changes or {}, self.places or {}, self.refused or {}
        return replace(
            self,
            items=self.items[part],
            label_sets=self.label_sets[part],
            unknown=None if self.unknown is None else self.unknown[part],
            ids=None if self.ids is None else self.ids[part],
            changes={i - first: changes[i] for i in changes if i in range(first, part.stop)}
            or None,
            places={i - first: places[i] for i in places if i in range(first, part.stop)} or None,
            refused={i - first: refused[i] for i in refused if i in range(first, part.stop)}
            or None,
        )


def stem(path: str | os.PathLike[str]) -> Path:
    """Return the path without its format's and its compression's suffix.

    Examples
    --------
    >>> stem("data/scene.arff.gz").name, stem("tmc2007-500.v2.csv").name
    ('scene', 'tmc2007-500.v2')
    """
    path = Path(path)
    return (path.with_suffix("") if path.suffix in {".gz", ".bz2"} else path).with_suffix("")


def stack(parts: Sequence[Any]) -> Matrix:
    """Return the rows of all parts; sparse parts are widened to the widest."""
    if not sparse.issparse(parts[0]):
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    indptr = [np.zeros(1, dtype=np.int64)]
    for part in parts:
        indptr.append(part.indptr[1:].astype(np.int64) + indptr[-1][-1])
    return sparse.csr_matrix(
        (
            np.concatenate([part.data for part in parts]),
            np.concatenate([part.indices for part in parts]),
            np.concatenate(indptr),
        ),
        shape=(sum(part.shape[0] for part in parts), width),
    )


def _join_ids(parts: Sequence[Dataset | Batch]) -> tuple[Any, ...] | None:
    if all(part.ids is None for part in parts):
        return None
    ids: list[Any] = []
    for part in parts:
        n = len(part) if isinstance(part, Batch) else len(part.Y)
        ids += [None] * n if part.ids is None else part.ids
    return tuple(ids)


def _check_room(n: int, q: int, path: str) -> None:
    if n * q > _MAX_CELLS:
        raise DataError(
            f"{path}: must have at most {_MAX_CELLS:,} records times labels to be read at once, "
            f"got {n:,} records and {q:,} labels so far; read it in chunks"
        )


def concatenate(parts: Iterable[Dataset], *, path: str) -> Dataset:
    """Return one `Dataset` made of all parts, which must agree in their names.

    ``path`` says in an error message where the rows should have been.
    """
    found: list[Dataset] = []
    n = 0
    for part in parts:
        n += len(part.Y)
        _check_room(n, len(part.label_names), path)
        found.append(part)
    if not found:
        raise DataError(f"{path}: must hold at least one record, got none")
    first = found[0]
    for part in found:
        if (part.feature_names, part.label_names) != (first.feature_names, first.label_names):
            raise DataError(f"{path}: all parts must declare the same attributes as the first")
    return Dataset(
        X=stack([part.X for part in found]),
        Y=np.concatenate([part.Y for part in found]),
        feature_names=first.feature_names,
        label_names=first.label_names,
        name=first.name,
        n_train=first.n_train,
        ids=_join_ids(found),
    )


def join(batches: Iterable[Batch], *, path: str) -> Batch:
    """Return all records of a stream as one batch; texts and named values stay what they are."""
    found = list(batches)
    if not found:
        raise DataError(f"{path}: must hold at least one record, got none")
    items: Any = [batch.items for batch in found]
    unknown: list[LabelSet] | None = None
    if any(batch.unknown for batch in found):
        unknown = [labels for batch in found for labels in batch.unknown or [()] * len(batch)]
    return Batch(
        items=list(chain.from_iterable(items)) if isinstance(items[0], list) else stack(items),
        label_sets=[labels for batch in found for labels in batch.label_sets],
        unknown=unknown,
        ids=_join_ids(found),
        feature_names=found[0].feature_names,
        label_names=found[0].label_names,
    )


def collect(
    batches: Iterable[Batch],
    *,
    path: str,
    name: str,
    numeric: bool = False,
    featurizer: Rows | None = None,
) -> Dataset:
    """Return one `Dataset` made of all batches of a stream.

    Labels come in the order in which the file declares them, else sorted (``numeric``: as
    integers). Texts and named values become the rows that ``featurizer`` makes of them; None is
    ``Hashing()``.
    """
    makes = Hashing() if featurizer is None else featurizer
    rows: list[Any] = []
    labelled: list[Batch] = []  # without their items, which may be large
    found: dict[str, None] = {}
    n = 0
    for batch in batches:
        rows.append(makes.rows(batch.items) if isinstance(batch.items, list) else batch.items)
        labelled.append(replace(batch, items=[]))
        found.update(dict.fromkeys(batch.label_names or ()))
        for labels in (*batch.label_sets, *(batch.unknown or ())):
            found.update(dict.fromkeys(labels or ()))
        n += len(batch)
        _check_room(n, len(found), path)
    if not rows:
        raise DataError(f"{path}: must hold at least one record, got none")
    names = labelled[0].label_names
    if names is None:
        names = tuple(sorted(found, key=int) if numeric else sorted(found))
    return Dataset(
        X=stack(rows),
        Y=_indicator(labelled, names, n),
        feature_names=labelled[0].feature_names,
        label_names=names,
        name=name,
        ids=_join_ids(labelled),
    )


def _indicator(batches: list[Batch], names: LabelSet, n: int) -> NDArray[Any]:
    """Return the labels as an array; NaN where they are not known."""
    is_open = any(batch.unknown or None in batch.label_sets for batch in batches)
    Y: NDArray[Any] = np.zeros((n, len(names)), dtype=np.float32 if is_open else np.uint8)
    column = {label: j for j, label in enumerate(names)}
    i = 0
    for batch in batches:
        for labels, unknown in zip(
            batch.label_sets, batch.unknown or [()] * len(batch), strict=True
        ):
            if labels is None:
                Y[i] = np.nan
            else:
                Y[i, [column[label] for label in labels]] = 1
                if unknown:
                    Y[i, [column[label] for label in unknown]] = np.nan
            i += 1
    return Y
