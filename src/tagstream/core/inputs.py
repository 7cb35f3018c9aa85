"""Rows in the form that the compiled loops take: plain arrays, sparse or dense."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.checks import Rows

__all__ = ["Inputs", "Maybe", "inputs_of"]

# An array for the compiled loops, or None.  What they do only "if it is not None" is then not
# compiled; numba sees that by the argument itself, not by "else" or a name for both.
Maybe = Any


class Inputs(NamedTuple):
    """Rows for the compiled loops: CSR, or dense with the other three empty.

    Attributes
    ----------
    indptr : int64 array of shape (m + 1,), or (0,)
    indices : int32 array of shape (nnz,)
    data : float32 array of shape (nnz,)
    dense : float32 array of shape (m, p), or (0, 0)
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    data: npt.NDArray[np.float32]
    dense: npt.NDArray[np.float32]


_NO_INPUTS = Inputs(
    np.empty(0, np.int64),
    np.empty(0, np.int32),
    np.empty(0, np.float32),
    np.empty((0, 0), np.float32),
)


def inputs_of(rows: Rows | None) -> Inputs:
    """Return rows, CSR or dense, in the form of the compiled loops; None stands for no rows."""
    if rows is None:
        return _NO_INPUTS
    if isinstance(rows, np.ndarray):
        return Inputs(*_NO_INPUTS[:3], np.ascontiguousarray(rows, np.float32))
    return Inputs(
        rows.indptr.astype(np.int64),
        rows.indices.astype(np.int32, copy=False),
        rows.data.astype(np.float32, copy=False),
        _NO_INPUTS.dense,
    )
