"""Labels of items, whatever form they come in, read against a vocabulary that grows.

One reader for everybody: 0/1 arrays, sparse matrices and data frames (NaN or masked: not known),
lists of label sets, and a 1-D array that names one label per item.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.checks import Bools, Bytes
from tagstream.limits import LIMITS, Limits

__all__ = [
    "Batch",
    "Labels",
    "as_array",
    "is_label_sets",
    "n_dims",
    "plain",
    "read_indicator",
    "read_labels",
    "sorted_names",
]


LARGEST_TABLE = 1 << 22  # letters in an array of names, of four bytes each


class Labels(NamedTuple):
    """Labels of a batch of items, in the columns of the learner's vocabulary.

    Attributes
    ----------
    Y : uint8 array of shape (n, q)
        1 where the item has the label, else 0 (also where that is not known).
    known : bool array of shape (n, q), or None
        False where it is not known whether the item has the label; None when all is known.
    """

    Y: Bytes
    known: Bools | None

    @property
    def n_empty(self) -> int:
        """How many items have no label, although all of their labels are known."""
        if self.known is None:
            return len(self.Y) - int(np.count_nonzero(self.Y.any(axis=1)))
        if not self.Y.shape[1]:  # a mask of no columns: items of which nothing is known
            return 0
        return int(np.count_nonzero(~self.Y.any(axis=1) & self.known.all(axis=1)))


class Batch(NamedTuple):
    """What the label reader found: nothing of the model has changed yet.

    Sets and sparse matrices of very many labels stay sparse, and are made dense part by part.
    """

    labels: Labels  # Y may be a CSR matrix; ``known`` is then None, and ``blank`` tells
    names: list[Hashable]  # the vocabulary after this batch; the old one is a prefix of it
    declared: int  # so many of them are there from the first row on; the rest as they occur
    single: bool  # every item has exactly one label, given as a 1-D y
    dtype: np.dtype[Any]  # of the predictions
    blank: Bools | None = None  # items given as None; Labels.known has no column to say it by
    dense_cells: int = LIMITS.dense_cells  # items times labels that are made dense at a time, × 8

    @property
    def n(self) -> int:
        """Number of items."""
        return int(self.labels.Y.shape[0])

    @property
    def most(self) -> int:
        """How many items may be made dense at a time."""
        whole = not sp.issparse(self.labels.Y)
        return max(self.n, 1) if whole else max(1, self.dense_cells // (8 * len(self.names)))

    def widths(self) -> npt.NDArray[np.int64]:
        """Return one more than the last column that each item has, (n,); 0 without labels."""
        Y: Any = self.labels.Y
        if sp.issparse(Y):
            out = np.zeros(self.n, np.int64)
            some = np.diff(Y.indptr) > 0
            out[some] = Y.indices[Y.indptr[1:][some] - 1] + 1
            return out
        if not Y.shape[1]:
            return np.zeros(self.n, np.int64)
        return np.where(Y.any(axis=1), Y.shape[1] - np.argmax(Y[:, ::-1], axis=1), 0)

    def part(self, first: int, stop: int, q: int) -> Labels:
        """Return the first ``q`` labels of some items."""
        Y, known = self.labels
        if sp.issparse(Y):
            values: Any = Y[first:stop, :q]
            mask = None
            if self.blank is not None:
                mask = np.repeat(~self.blank[first:stop, None], q, axis=1)
            return Labels(values.toarray(), mask)
        return Labels(
            np.ascontiguousarray(Y[first:stop, :q]),
            None if known is None else np.ascontiguousarray(known[first:stop, :q]),
        )


def sorted_names(names: Iterable[Hashable]) -> list[Hashable]:
    """Sort names of any types; the order within one item's label set must not matter."""
    return sorted(
        names, key=lambda s: (str(type(s)), s if isinstance(s, (int, float)) else 0, str(s))
    )


def plain(name: Any) -> Hashable:
    """Return numpy scalars as the Python values they stand for."""
    value: Hashable = name.item() if isinstance(name, np.generic) else name
    return value


def is_label_sets(Y: Any) -> bool:
    """Tell a list, series or array of label sets from indicator rows and single labels."""
    Y = _as_list(Y)
    if not isinstance(Y, (list, tuple)) or not Y:
        return False

    def named(item: Any) -> bool:
        if item is None or isinstance(item, (set, frozenset)):
            return True
        return isinstance(item, (list, tuple)) and (not item or isinstance(item[0], str))

    return all(named(item) for item in Y)


def _as_list(Y: Any) -> Any:
    """Return a series or an array of label sets as a list of them; all else as it came.

    Files and frames have arrays for lists, and NaN for what is not known.
    """
    if hasattr(Y, "to_list"):  # of pandas and polars
        items = Y.to_list()
    elif isinstance(Y, np.ndarray) and Y.dtype == object and Y.ndim == 1:
        items = Y.tolist()
    else:
        return Y
    if not any(isinstance(item, (set, frozenset, list, tuple, np.ndarray)) for item in items):
        return Y
    sets: list[Any] = []
    for item in items:
        if isinstance(item, np.ndarray):
            item = item.tolist()
        sets.append(None if isinstance(item, float) and np.isnan(item) else item)
    return sets


def _read_sets(Y: Sequence[Any], classes: Any, names: list[Hashable], cells: int) -> Batch:
    names = list(names)
    column = {name: j for j, name in enumerate(names)}
    for name in () if classes is None else classes:
        column.setdefault(plain(name), len(column))
    declared = len(column)
    columns: list[list[int] | None] = []
    met: dict[Any, list[int]] = {}  # of label sets, most of which come again and again
    for item in Y:
        if item is None:
            columns.append(None)
            continue
        key = item if type(item) is tuple else frozenset(item)
        if key not in met:
            for name in sorted_names(map(plain, item)):
                column.setdefault(name, len(column))
            met[key] = [column[plain(name)] for name in item]
        columns.append(met[key])
    blank = np.array([c is None for c in columns]) if None in columns else None
    if len(Y) * len(column) > cells:
        rows = [sorted(set(c or [])) for c in columns]
        ends = np.cumsum([0, *map(len, rows)])
        indices = np.concatenate([np.array(c, np.int64) for c in rows])
        data = np.ones(len(indices), np.uint8)
        sparse: Any = sp.csr_matrix((data, indices, ends), (len(Y), len(column)))
        labels = Labels(sparse, None)
        return Batch(labels, list(column), declared, False, np.dtype(np.uint8), blank)
    values = np.zeros((len(Y), len(column)), np.uint8)
    lengths = [len(c or ()) for c in columns]
    flat = np.fromiter(chain.from_iterable(c or () for c in columns), np.int64, sum(lengths))
    values[np.repeat(np.arange(len(Y)), lengths), flat] = 1
    known = None
    if blank is not None:
        known = np.repeat(~blank[:, None], values.shape[1], axis=1)
    return Batch(Labels(values, known), list(column), declared, False, np.dtype(np.uint8), blank)


def _read_single(y: Any, classes: Any, names: list[Hashable]) -> Batch:
    y = np.asarray(y)
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        what = "NaN" if np.isnan(y).any() else "infinity"
        raise ValueError(f"Input y contains {what}; a 1-D y must name one label per item")
    from sklearn.utils.multiclass import check_classification_targets  # not for a tagger

    check_classification_targets(y)
    column = {name: j for j, name in enumerate(names)}
    for name in () if classes is None else classes:
        column.setdefault(plain(name), len(column))
    declared = len(column)
    found, first, inverse = np.unique(y, return_index=True, return_inverse=True)
    for j in np.argsort(first):
        column.setdefault(plain(found[j]), len(column))
    values = np.zeros((len(y), len(column)), np.uint8)
    to_column = np.array([column[plain(name)] for name in found])
    values[np.arange(len(y)), to_column[inverse.ravel()]] = 1
    return Batch(Labels(values, None), list(column), declared, True, y.dtype)


def _as_indicator(Y: Any) -> tuple[npt.NDArray[Any], Bools | None]:
    """Return an indicator matrix as an array, and where its entries are known."""
    if sp.issparse(Y):
        if not np.isin(Y.data, (0, 1)).all():
            raise ValueError(f"Y must hold 0 and 1 only, got {_first_other(Y.data)}")
        return sp.csr_matrix(Y, dtype=np.uint8).toarray(), None
    known = None
    if isinstance(Y, np.ma.MaskedArray):
        known = ~np.ma.getmaskarray(Y)
        Y = Y.filled(0)
    try:
        values = np.asarray(Y.to_numpy() if hasattr(Y, "to_numpy") else Y)
    except ValueError:
        raise ValueError("Y must have rows of equal length, got a ragged list") from None
    if values.dtype.kind == "O":
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"Y must hold 0, 1 or NaN, got {_first_odd(values)!r}") from None
    return values, known


def _first_odd(values: npt.NDArray[Any]) -> object:
    return next((v for v in values.ravel() if not isinstance(v, (int, float))), values.ravel()[0])


def _first_other(values: npt.NDArray[Any]) -> object:
    return values[~np.isin(values, (0, 1))].ravel()[0]


def _place_columns(
    width: int, classes: Any, names: list[Hashable]
) -> tuple[npt.NDArray[np.int64], list[Hashable]]:
    """Return where the columns of a 0/1 matrix go, and the vocabulary with them."""
    old = len(names)
    if classes is None:
        numbered = names == list(range(old))
        if width != old and not (numbered and width > old):
            hint = "" if numbered else "; name the columns with classes="
            raise ValueError(f"Y must have {old} columns, got {width}{hint}")
        return np.arange(width), [*range(width)] if numbered else names
    given = [plain(name) for name in classes]
    if len(given) != width or len(set(given)) != width:
        raise ValueError(f"classes must name the {width} columns of Y, got {len(set(given))} names")
    column = {name: j for j, name in enumerate(names)}
    for name in given:
        column.setdefault(name, len(column))
    return np.array([column[name] for name in given], int), list(column)


def _read_large(Y: Any, classes: Any, names: list[Hashable]) -> Batch:
    """Read a sparse 0/1 matrix that would be too large as an array."""
    rows = sp.csr_matrix(Y, copy=True)
    rows.sum_duplicates()
    if not np.isin(rows.data, (0, 1)).all():
        raise ValueError(f"Y must hold 0 and 1 only, got {_first_other(rows.data)}")
    columns, new = _place_columns(rows.shape[1], classes, names)
    rows.eliminate_zeros()
    data = np.ones(len(rows.indices), np.uint8)
    shape = rows.shape[0], len(new)
    placed: Any = sp.csr_matrix((data, columns[rows.indices], rows.indptr), shape)
    placed.sort_indices()
    dtype = Y.dtype if Y.dtype.kind in "biu" else np.dtype(np.uint8)
    return Batch(Labels(placed, None), new, len(new), False, dtype)


def read_indicator(Y: Any, classes: Any, names: list[Hashable]) -> Batch:
    """Read a 0/1 matrix, array or frame against the vocabulary ``names``."""
    if classes is None and hasattr(Y, "columns"):
        classes = list(Y.columns)
    values, known = _as_indicator(Y)
    if values.ndim != 2:
        raise ValueError(f"Y must have 2 dimensions, got {values.ndim}")
    dtype = values.dtype if values.dtype.kind in "biu" else np.dtype(np.uint8)
    if values.dtype.kind == "f":
        missing = np.isnan(values)
        if missing.any():
            known = ~missing if known is None else known & ~missing
            values = np.where(missing, 0, values)
    elif values.dtype.kind not in "biu":
        raise ValueError(f"Y must hold 0, 1 or NaN, got {values.ravel()[:1].tolist()[0]!r}")
    if not np.isin(values, (0, 1)).all():
        raise ValueError(f"Y must hold 0 and 1 only, got {_first_other(values)}")
    width = values.shape[1]
    columns, new = _place_columns(width, classes, names)
    if len(new) == width and (columns == np.arange(width)).all():
        labels = Labels(np.ascontiguousarray(values, np.uint8), known)
        return Batch(labels, new, len(new), False, dtype)
    placed = np.zeros((len(values), len(new)), np.uint8)
    placed[:, columns] = values
    if known is not None:
        mask = np.ones(placed.shape, np.bool_)
        mask[:, columns] = known
        known = mask
    return Batch(Labels(placed, known), new, len(new), False, dtype)


def read_labels(Y: Any, classes: Any, names: list[Hashable], limits: Limits = LIMITS) -> Batch:
    """Read labels of any accepted form against the vocabulary ``names``."""
    return _read(Y, classes, names, limits.dense_cells)._replace(dense_cells=limits.dense_cells)


def _read(Y: Any, classes: Any, names: list[Hashable], cells: int) -> Batch:
    if Y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None")
    if is_label_sets(Y):
        return _read_sets(_as_list(Y), classes, names, cells)
    if sp.issparse(Y) and Y.shape[0] * max(Y.shape[1], len(names)) > cells:
        return _read_large(Y, classes, names)
    if not sp.issparse(Y) and not isinstance(Y, np.ma.MaskedArray):
        try:
            array = np.asarray(Y)
        except ValueError:
            raise ValueError("Y must have rows of equal length, got a ragged list") from None
        if array.ndim == 1 and not any(isinstance(v, (set, list, tuple)) for v in array[:1]):
            return _read_single(array, classes, names)
        column = array.ndim == 2 and array.shape[1] == 1 and array.dtype.kind in "iuUS"
        if column and not np.isin(array, (0, 1)).all():
            from sklearn.exceptions import DataConversionWarning

            warnings.warn(
                "A column-vector y was passed when a 1d array was expected; "
                "it is read as one label per item",
                DataConversionWarning,
                stacklevel=5,
            )
            return _read_single(array[:, 0], classes, names)
    return read_indicator(Y, classes, names)


def as_array(names: list[Hashable]) -> npt.NDArray[Any]:
    """Return names as a 1-D array, of objects unless they are all texts or all numbers.

    An array of texts gives each the room of the longest: one long name among many makes objects.
    """
    wide = len(names) * max((len(name) for name in names if isinstance(name, str)), default=0)
    alike = len({type(name) for name in names}) == 1 and wide <= LARGEST_TABLE
    if alike and isinstance(names[0], (str, bool, int, float)):
        array = np.array(names)
        kept = array.tolist()
        if kept == names and type(kept[0]) is type(names[0]):  # large integers may become floats
            return array
    array = np.empty(len(names), object)
    array[:] = names
    return array


def n_dims(Y: Any) -> int:
    """Return the number of dimensions; a ragged list has none."""
    try:
        return np.asarray(Y).ndim
    except ValueError:
        return 0
