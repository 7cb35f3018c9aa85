"""Names as evidence: how much the row of an item is like the row of a label's name.

A label's name, and what is said about it, become a row by the featurizer that makes rows of items.
The cosine of both rows is evidence for the label (:mod:`tagstream.evidence.head`), the more so the
fewer examples there are.  A label may be *declared* before it has an example: it then has a score.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.checks import Rows, expect, expect_keys
from tagstream.core.products import project_rows

__all__ = ["MOST", "Naming"]

MOST = 4096  # labels whose names are evidence; of more, those that came first
LARGEST_ENTRY = 1.001  # of a row of unit length

Vector = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Naming:
    """The rows of the names of q labels, immutable.

    Attributes
    ----------
    rows : array or CSR matrix of shape (min(q, 4096), p), single precision
        Each of unit length, or zero.
    declared : uint8 array of shape (q,)
        Which labels have a score even if nothing has them.
    """

    rows: Rows
    declared: Bytes

    @classmethod
    def empty(cls, p: int, *, sparse: bool) -> Naming:
        """Return that of no labels, for rows of ``p`` columns."""
        rows = sp.csr_matrix((0, p), dtype=np.float32) if sparse else np.empty((0, p), np.float32)
        return cls(rows, np.empty(0, np.uint8))

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return len(self.declared)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        if sp.issparse(self.rows):
            parts = (self.rows.data, self.rows.indices, self.rows.indptr, self.declared)
            return 2 * sum(int(part.nbytes) for part in parts)
        return int(self.rows.nbytes) + self.declared.nbytes

    def grown(self, rows: Rows, q: int) -> Naming:
        """Return the same with ``q`` labels, of which the new ones have these rows."""
        room = max(MOST - self.rows.shape[0], 0)
        declared = np.pad(self.declared, (0, q - self.n_labels))
        return Naming(_joined([self.rows, unit_length(rows[:room])]), declared)

    def renewed(self, j: int, row: Rows) -> Naming:
        """Return the same with another row of label ``j``."""
        if j >= self.rows.shape[0]:
            return self
        return Naming(_joined([self.rows[:j], unit_length(row), self.rows[j + 1 :]]), self.declared)

    def with_declared(self, labels: list[int]) -> Naming:
        """Return the same with these labels declared."""
        declared = self.declared.copy()
        declared[labels] = 1
        return Naming(self.rows, declared)

    def kept(self, columns: list[list[int]]) -> Naming:
        """Return the same with each label made of old ones: named as the first of them."""
        first = [c[0] for c in columns if c[0] < self.rows.shape[0]]
        declared = np.array([self.declared[c].any() for c in columns], np.uint8)
        return Naming(self.rows[first], declared)

    def cosines(self, rows: Rows) -> Vector:
        """Return the cosine of each item's row and each label's, (m, q); 0 where one is empty.

        Those of an item do not depend on the other items.
        """
        out = np.zeros((rows.shape[0], self.n_labels))
        named = self.rows.shape[0]
        if not named:
            return out
        if sp.issparse(rows):
            out[:, :named] = (rows @ self._transposed).toarray()
            lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        else:
            wide, made = rows.astype(np.float64), np.empty((rows.shape[0], named))
            project_rows(wide, self._transposed, np.zeros(named), made)
            out[:, :named] = made
            lengths = np.sqrt(np.add.accumulate(wide**2, axis=1)[:, -1])
        out /= np.where(lengths > 0, lengths, 1.0)[:, None]
        return out

    @cached_property
    def _transposed(self) -> Any:
        if sp.issparse(self.rows):
            return self.rows.T.tocsr()
        return np.ascontiguousarray(self.rows.T.astype(np.float64))

    # ------------------------------------------------------------------ state as plain values
    def dump(self) -> dict[str, Any]:
        """Return everything as plain values."""
        if not sp.issparse(self.rows):
            return {"rows": self.rows.copy(), "declared": self.declared.copy()}
        parts = {
            "data": self.rows.data.copy(),
            "indices": self.rows.indices.astype(np.int32),
            "indptr": self.rows.indptr.astype(np.int64),
        }
        return {"rows": parts, "declared": self.declared.copy()}

    @classmethod
    def load(cls, state: Any, q: int, p: int, *, sparse: bool) -> Naming:
        """Return what :meth:`dump` described, for ``q`` labels and rows of ``p`` columns."""
        expect_keys("the names", state, "rows", "declared")
        declared = expect("declared", state["declared"], np.uint8, (q,))
        if (declared > 1).any():
            raise ValueError("declared must hold 0 and 1 only")
        rows, n = state["rows"], min(q, MOST)
        within = {"least": -LARGEST_ENTRY, "most": LARGEST_ENTRY}
        if not sparse:
            return cls(expect("rows of names", rows, np.float32, (n, p), **within), declared)
        expect_keys("rows of names", rows, "data", "indices", "indptr")
        data = expect("data of names", rows["data"], np.float32, (None,), **within)
        indices = expect("indices of names", rows["indices"], np.int32, (len(data),))
        indptr = expect("indptr of names", rows["indptr"], np.int64, (n + 1,))
        if indptr[0] or indptr[-1] != len(data) or (np.diff(indptr) < 0).any():
            raise ValueError("indptr of names must rise from 0 to the number of entries")
        if len(indices) and not 0 <= indices.min() <= indices.max() < p:
            raise ValueError(f"indices of names must lie within 0 to {p - 1}")
        made = sp.csr_matrix((data, indices, indptr), (n, p))
        if not made.has_canonical_format:
            raise ValueError("indices of names must rise within a row")
        return cls(made, declared)


def unit_length(rows: Rows) -> Rows:
    """Return rows in single precision, each divided by its length; zero stays zero."""
    if sp.issparse(rows):
        lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        scaled = sp.diags(1.0 / np.where(lengths > 0, lengths, 1.0)) @ rows
        made = sp.csr_matrix(scaled, dtype=np.float32)
        made.sum_duplicates()
        return made
    wide = np.asarray(rows, np.float64)
    lengths = np.sqrt((wide**2).sum(axis=1, keepdims=True))
    return (wide / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def _joined(parts: list[Rows]) -> Rows:
    if sp.issparse(parts[0]):
        made = sp.vstack(parts, format="csr", dtype=np.float32)
        made.sort_indices()
        return made
    return np.concatenate(parts)
