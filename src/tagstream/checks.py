"""Checks at the door: parameters, rows, and stored arrays; and the error of a bad file."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

__all__ = [
    "DataError",
    "bits_of",
    "bounded",
    "check_choice",
    "check_number",
    "check_rows",
    "check_sparse",
    "cut_rows",
    "expect",
    "expect_counts",
    "expect_indptr",
    "expect_keys",
    "half_pair",
    "is_finite",
    "short",
]

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Bools: TypeAlias = npt.NDArray[np.bool_]
Singles: TypeAlias = npt.NDArray[np.float32]
Positions: TypeAlias = npt.NDArray[np.int64]  # of stored examples, or their numbers in the stream
Distances: TypeAlias = npt.NDArray[np.float64]
Digests: TypeAlias = npt.NDArray[np.uint64]
Rows: TypeAlias = Any  # a C-ordered float array or a canonical CSR matrix, of shape (n, p)

# Rows are stored as float32; squares of larger values would leave its range.
LARGEST_VALUE = 1e15
# A search among sparse rows unfolds one of them: 128 MiB.
WIDEST_ROWS = 1 << 24
# Examples that a counter of a saved model may claim.
LARGEST_COUNT = 1 << 48


class DataError(ValueError):
    """A data file does not say what its format requires.

    The message reads ``path:line: what was expected, what was found``.
    """


def check_number(
    name: str,
    value: object,
    *,
    kind: type = float,
    least: float = -np.inf,
    most: float = np.inf,
    none: bool = False,
) -> None:
    """Raise unless ``value`` is a number of the kind and range that parameter ``name`` needs."""
    allowed = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
    ok = isinstance(value, allowed) and not isinstance(value, bool)
    if (none and value is None) or (ok and least <= float(value) <= most):  # type: ignore[arg-type]
        return
    word = "an integer" if kind is int else "a number"
    span = f" between {least:g} and {most:g}" if most < np.inf else f" of at least {least:g}"
    raise ValueError(f"{name} must be {word}{span}{' or None' if none else ''}, got {value!r}")


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise unless ``value`` is one of the ``choices`` of parameter ``name``."""
    if not any(value is c or (isinstance(value, str) and value == c) for c in choices):
        listed = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")


def expect_keys(what: str, state: Any, *names: str) -> None:
    """Raise unless the loaded ``state`` of ``what`` is a dict with exactly these keys."""
    if not isinstance(state, dict) or set(state) != set(names):
        got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise ValueError(f"the state of {what} must have {sorted(names)}, got {got}")


def expect(
    name: str,
    array: Any,
    dtype: npt.DTypeLike,
    shape: tuple[int | None, ...],
    *,
    least: float = -np.inf,
    most: float = np.inf,
) -> npt.NDArray[Any]:
    """Return a copy of a stored array if it has the dtype and shape it must, and is finite.

    Its entries must also lie between ``least`` and ``most``: numbers that sums and squares can be
    made of.
    """
    ok = isinstance(array, np.ndarray) and array.dtype == dtype and array.ndim == len(shape)
    if not ok or any(want not in (None, got) for want, got in zip(shape, array.shape, strict=True)):
        got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array)
        raise ValueError(f"{name} must be {np.dtype(dtype)} of shape {shape}, got {got}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    if array.size and not (least <= array.min() and array.max() <= most):
        got = array.max() if array.max() > most else array.min()
        raise ValueError(f"{name} must stay between {least:g} and {most:g}, got {got:g}")
    return np.array(array, order="C")


def expect_counts(name: str, *values: Any, most: int = LARGEST_COUNT) -> tuple[int, ...]:
    """Return stored counts if they are integers from 0 to ``most``."""
    if not all(type(value) is int and 0 <= value <= most for value in values):
        raise ValueError(f"{name} must be counts of at most {most}, got {str(values)[:60]}")
    return values


def expect_indptr(indptr: npt.NDArray[np.int64], n_entries: int) -> None:
    """Raise unless the row bounds of a stored CSR matrix rise from 0 to ``n_entries``."""
    # Compared, not subtracted: the difference of two large numbers can wrap around.
    falls = (indptr[1:] < indptr[:-1]).any()
    if not len(indptr) or indptr[0] != 0 or indptr[-1] != n_entries or falls:
        raise ValueError(f"indptr must rise from 0 to {n_entries}")


def bounded(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Bring values, in place, into the range that features may have."""
    np.minimum(values, LARGEST_VALUE, out=values)  # for few numbers much faster than np.clip
    return np.maximum(values, -LARGEST_VALUE, out=values)


def _check_compressed(X: Any) -> None:
    """Raise unless all of a CSR or CSC matrix lies within its shape.

    SciPy lets anybody set ``indices`` and ``indptr``, and its compiled loops believe them, as ours
    do: an index beyond the shape would write into memory of others.
    """
    n_major, n_minor = X.shape if X.format == "csr" else X.shape[::-1]
    indptr, indices = X.indptr, X.indices
    n = indptr[-1] if len(indptr) == n_major + 1 else -1
    if n < 0 or n > min(len(indices), len(X.data)):
        raise ValueError(f"indptr of X must have {n_major + 1} bounds of its entries")
    expect_indptr(indptr, n)
    # A reduction each, in place of two comparisons that make arrays.
    if n and not 0 <= indices[:n].min() <= indices[:n].max() < n_minor:
        raise ValueError(
            f"indices of X must be from 0 to {n_minor - 1}, "
            f"got {indices[:n].min()} to {indices[:n].max()}"
        )


def check_sparse(X: Any) -> None:
    """Raise unless a sparse matrix is narrow enough and all of it lies within its shape."""
    if X.shape[1] > WIDEST_ROWS:
        raise ValueError(
            f"X must have at most {WIDEST_ROWS} columns, got {X.shape[1]}; hash the features"
        )
    if X.format in ("csr", "csc"):
        _check_compressed(X)


def check_rows(X: Any) -> Rows:
    """Return ``X`` as a finite 2-D float array or canonical CSR matrix; never change the input.

    Examples
    --------
    >>> check_rows([[1, 2]])
    array([[1., 2.]])
    """
    if sp.issparse(X) and X.ndim == 2:
        check_sparse(X)
        rows = sp.csr_matrix(X, dtype=_float_of(X.dtype))
        if not len(rows.data) == len(rows.indices) == rows.indptr[-1]:
            rows.prune()  # of a tail that belongs to no row; the arrays of the input stay
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
    else:
        array = np.asarray(X)
        rows = np.ascontiguousarray(array, _float_of(array.dtype))
        if rows.ndim != 2:
            raise ValueError(f"X must have 2 dimensions, got {rows.ndim}")
    values = rows.data if sp.issparse(rows) else rows
    largest = max(values.max(), -values.min()) if values.size else 0.0
    if np.isnan(largest):
        raise ValueError("X must be finite, got NaN")
    if np.isinf(largest):
        raise ValueError("X must be finite, got infinity")
    if largest > LARGEST_VALUE:
        raise ValueError(
            f"X must stay within ±{LARGEST_VALUE:g}, got {float(largest):g}; scale the features"
        )
    return rows


def _float_of(dtype: np.dtype[Any]) -> type:
    """Return the type in which numbers are kept: single where they are, else double precision."""
    return np.float32 if dtype == np.float32 else np.float64


def bits_of(row: Rows) -> Hashable:
    """Return all that a single row is, to the last bit."""
    if isinstance(row, np.ndarray):
        return row.shape, row.dtype.str, row.tobytes()
    indices = row.indices.astype(np.int64).tobytes()
    return row.shape, row.data.dtype.str, row.data.tobytes(), indices


def cut_rows(rows: Rows, first: int, stop: int) -> Rows:
    """Return ``rows[first:stop]``; where that is all of them, the rows themselves.

    To cut a sparse matrix of one row takes as long as to search its neighbours.
    """
    return rows if first == 0 and stop >= rows.shape[0] else rows[first:stop]


# ---------------------------------------------------------------------- values of a record
def is_finite(value: object) -> bool:
    """Tell whether a value is a number, and a finite one.

    Examples
    --------
    >>> [is_finite(value) for value in (1, np.float32(0.5), float("nan"), 10**400, "1")]
    [True, True, False, False, False]
    """
    if not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def half_pair(text: str) -> int | None:
    r"""Return where a text has half of a surrogate pair, which cannot be written; None: nowhere.

    Examples
    --------
    >>> half_pair("sea"), half_pair("sea \ud83c")
    (None, 4)
    """
    try:
        if not text.isascii():
            text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None


def short(text: str, most: int = 60) -> str:
    """Return a text, cut to a length that suits an error message.

    Examples
    --------
    >>> short("a long story", 9)
    'a long...'
    """
    return text if len(text) <= most else text[: most - 3] + "..."
