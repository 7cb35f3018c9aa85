"""The store of one process: rows, codes, labels and names, with an optional window.

A learner knows a :class:`~tagstream.store.protocol.Store` only.  Each column is kept oldest first
in contiguous arrays (:mod:`tagstream.store.columns`), so a position is an age, a slice is a matrix,
and a window needs no modular arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import scipy.sparse as sp

from tagstream.checks import (
    LARGEST_VALUE,
    Digests,
    Positions,
    Rows,
    Singles,
    expect,
    expect_counts,
    expect_indptr,
    expect_keys,
)
from tagstream.labels.read import Labels
from tagstream.limits import LIMITS, Limits
from tagstream.store.columns import Sliding
from tagstream.store.contents import digests
from tagstream.store.corrections import Corrections
from tagstream.store.names import Names
from tagstream.store.packed import PackedLabels
from tagstream.store.protocol import Column, Facts, Neighbors, Piece
from tagstream.store.rows import DenseRows, SparseRows
from tagstream.store.sums import LocalExamples

if TYPE_CHECKING:
    from typing_extensions import Self

    from tagstream.store.protocol import Store

    def _is_a_store(store: LocalStore) -> Store:
        return store


__all__ = ["LocalStore"]

T = TypeVar("T")
P = ParamSpec("P")

# Numbers whose squares stay in single precision.
_SQUARES = {"least": -LARGEST_VALUE, "most": LARGEST_VALUE}


class LocalStore:
    """The store of one process.

    What its methods do is said by :class:`~tagstream.store.protocol.Store`.  Its columns are for
    the functions of :mod:`~tagstream.store.lookup` and :mod:`~tagstream.store.changes`.

    Parameters
    ----------
    n_features : int
        Width of the rows.
    sparse : bool
        Whether rows are kept as CSR.
    window : int or None
        How many examples are kept; None keeps all.
    first : int
        Number of the first example in the stream.
    limits : Limits, optional
        From which sizes on things are done in another way.

    Attributes
    ----------
    rows : DenseRows or SparseRows
    codes : DenseRows or None
    labels : PackedLabels
    names : Names
    corrections : Corrections
    """

    def __init__(
        self,
        n_features: int,
        *,
        sparse: bool,
        window: int | None = None,
        first: int = 0,
        limits: Limits = LIMITS,
    ) -> None:
        self.window, self.limits = window, limits
        self.n_forgotten = first  # examples that came before those of the window
        self.rows: DenseRows | SparseRows = (
            SparseRows(n_features) if sparse else DenseRows(n_features, packed=False, limits=limits)
        )
        self.codes: DenseRows | None = None
        self.labels, self.names, self.corrections = PackedLabels(), Names(first), Corrections()
        self._n_features = n_features
        self._contents = Sliding(None, np.uint64)  # of the oldest; others are made when asked for

    def __len__(self) -> int:
        return len(self.names)

    @property
    def facts(self) -> Facts:
        """What there is to say about all of it."""
        return Facts(
            self._n_features,
            self.labels.n_labels,
            self.names.n_seen,
            None if self.codes is None else int(self.codes.live.shape[1]),
            not self.labels.all_known,
            self.names.gaps,
            self.corrections.any,
            True,
            self.limits,
        )

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        codes = 0 if self.codes is None else self.codes.nbytes
        parts = (self.rows, self.labels, self.names, self.corrections, self._contents)
        return codes + sum(part.nbytes for part in parts)

    # ------------------------------------------------------------------ change
    def append(
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None = None,
        codes: Singles | None = None,
    ) -> None:
        """Add examples; those that no longer fit the window stay until they are dropped."""
        self.names.append(rows.shape[0], ids)
        self.corrections.append(rows.shape[0])
        self.rows.append(rows)
        self.labels.append(labels)
        if self.codes is not None and codes is not None:
            self.codes.append(codes)

    def drop(self, n: int) -> None:
        """Drop the ``n`` oldest examples."""
        for part in (self.rows, self.labels, self.names, self.corrections):
            part.drop(n)
        if self.codes is not None:
            self.codes.drop(n)
        self._contents.drop(min(n, len(self._contents)))
        self.n_forgotten += n

    def remove(self, position: int) -> Labels:
        """Take one example out, and return its labels."""
        gone = self.labels.at([position])
        for part in (self.rows, self.labels, self.names, self.corrections):
            part.remove(position)
        if self.codes is not None:
            self.codes.remove(position)
        if position < len(self._contents):
            self._contents.remove(position, position + 1)
        return gone

    def relabel(self, position: int, labels: Labels, which: int | None = None) -> Labels:
        """Give one example other labels, mark it as corrected, and return the old ones.

        ``which``: the number of the correction, by default the next.
        """
        old = self.labels.at([position])
        self.labels.write(position, labels)
        self.corrections.mark(position, which)
        return old

    def change(
        self, how: Callable[Concatenate[LocalStore, P], None], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Change all examples in the same way."""
        how(self, *args, **kwargs)

    # ------------------------------------------------------------------ look
    def take(self, column: Column[T], positions: Any = slice(None)) -> T:
        """Return a column's values at some positions, by default of all examples."""
        return column.read(self, positions)

    def neighbors(self, *positions: Positions) -> Neighbors:
        """Return the labels of the examples at arrays of positions; nothing is copied."""
        return Neighbors(positions, self.labels.yes, self.labels.known, self.corrections.marks)

    def ask(
        self, function: Callable[..., T], *shared: Any, among: Positions | slice | None = None
    ) -> list[T]:
        """Return ``function(pieces, *shared)`` of the one piece that is all of the store."""
        return [function([Piece(self, 0, 0, whole=True)], *shared)]

    def examples(self, start: int = 0) -> LocalExamples:
        """Return what is stored, from position ``start`` on, as a fit sees it."""
        first = self.names.first
        if not start:
            return LocalExamples(self.rows.live, self.labels.at, first, self.limits)
        first = first + start if isinstance(first, int) else first[start:]
        labels = self.labels.at(slice(start, None))
        return LocalExamples.of(self.rows.live[start:], labels, first, self.limits)

    def contents(self) -> Digests:
        """Return a digest of each stored row; see :mod:`tagstream.store.contents`."""
        done = len(self._contents)
        if done < len(self):
            self._contents.append(digests(self.rows.live[done:]))
        return np.array(self._contents.live)

    # ------------------------------------------------------------------ keep
    def successor(self) -> LocalStore:
        """Return an empty store for the examples that come after these."""
        sparse = isinstance(self.rows, SparseRows)
        made = LocalStore(
            self._n_features, sparse=sparse, first=self.names.n_seen, limits=self.limits
        )
        made.labels.grow(self.labels.n_labels)
        if self.codes is not None:
            made.codes = DenseRows(self.codes.live.shape[1], limits=self.limits)
        return made

    def snapshot(self) -> LocalStore:
        """Return an immutable picture, in constant time."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.rows, twin.labels = self.rows.snapshot(), self.labels.snapshot()
        twin.names, twin.corrections = self.names.snapshot(), self.corrections.snapshot()
        twin.codes = None if self.codes is None else self.codes.snapshot()
        twin._contents = self._contents.snapshot()
        return twin

    def dump(self) -> dict[str, Any]:
        """Return the contents as plain values."""
        rows: Any = self.rows.live
        stored = (
            {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
            if isinstance(self.rows, SparseRows)
            else {"dense": rows}
        )
        return {
            "rows": {name: np.array(part) for name, part in stored.items()},
            "codes": None if self.codes is None else np.array(self.codes.live),
            **self.labels.dump(),
            **self.names.dump(),
            **self.corrections.dump(),
            "n_seen": self.names.n_seen,
            "n_forgotten": self.n_forgotten,
            "shape": [self._n_features, self.labels.n_labels],
        }

    @classmethod
    def load(cls, state: Any, *, sparse: bool, window: int | None, limits: Limits = LIMITS) -> Self:
        """Return the store that :meth:`dump` described, after checking that it makes sense."""
        expect_keys(
            "the store", state, "rows", "codes", "labels", "known", "ids", "numbers", "corrected",
            "corrections", "n_seen", "n_forgotten", "shape",
        )  # fmt: skip
        p, q = expect_counts("shape", *state["shape"])
        n_seen, n_forgotten = expect_counts(
            "n_seen and n_forgotten", state["n_seen"], state["n_forgotten"]
        )
        rows, n = _read_rows(state["rows"], p, sparse)
        labels = PackedLabels.load(state, n, q)
        if n > (n_seen if window is None else min(n_seen, window)) or n_forgotten > n_seen - n:
            raise ValueError(f"the store must hold at most what was seen and fits, got {n} rows")
        made = cls(p, sparse=sparse, window=window, limits=limits)
        made.n_forgotten, made.labels = n_forgotten, labels
        made.names = Names.load(state, n, n_seen, n_forgotten)
        made.corrections = Corrections.load(state, n)
        made.rows.append(rows)
        if state["codes"] is not None:
            codes = expect("codes", state["codes"], np.float32, (n, None), **_SQUARES)
            made.codes = DenseRows(codes.shape[1], limits=limits)
            made.codes.replace(codes)
        return made


def _read_rows(state: Any, p: int, sparse: bool) -> tuple[Rows, int]:
    expect_keys("rows", state, *(("data", "indices", "indptr") if sparse else ("dense",)))
    if not sparse:
        dense = expect("rows", state["dense"], np.float32, (None, p), **_SQUARES)
        return dense, len(dense)
    indptr = expect("indptr", state["indptr"], np.int64, (None,))
    data = expect("data", state["data"], np.float32, (None,), **_SQUARES)
    indices = expect("indices", state["indices"], np.int32, (len(data),))
    expect_indptr(indptr, len(data))
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    inside = not len(indices) or (indices.min() >= 0 and indices.max() < p)
    if not inside or ((np.diff(row) == 0) & (np.diff(indices) <= 0)).any():
        raise ValueError(f"indices must rise within 0 to {p - 1} in each row")
    rows = sp.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, p))
    return rows, len(indptr) - 1
