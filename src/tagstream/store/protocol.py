"""What a learner needs of its memory, whichever machine holds it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tagstream.checks import Bools, Bytes, Rows
from tagstream.core.similarity import Nearest
from tagstream.execution.steps import Steps
from tagstream.labels.read import Labels
from tagstream.store.sums import Examples

__all__ = ["Coded", "Neighbors", "Store"]

Positions = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]
Distances = npt.NDArray[np.float64]
Found = tuple[Distances, Positions]
Digests = npt.NDArray[np.uint64]


class Neighbors(NamedTuple):
    """Labels of stored examples in the form that kernels take.

    Attributes
    ----------
    rows : tuple of int arrays
        For each array of positions that was given, where below the labels stand; −1 is none.
        Positions that follow each other stand one below the other.
    labels, known : uint8 arrays of shape (n, ⌈q/8⌉)
        Packed bits, most significant first; ``known`` is of length 0 when all is known.
    corrected : bool array of shape (n,)
        Which were relabelled; of length 0 when none was.
    """

    rows: tuple[Positions, ...]
    labels: Bytes
    known: Bytes
    corrected: Bools


class Coded:
    """Codes that were made ahead of stored examples, and of some that have come since.

    Parameters
    ----------
    numbers : int array of shape (n,)
        The numbers in the stream of the examples that were stored.
    parts : list of arrays
        Their codes, some rows each.
    """

    def __init__(self, numbers: Positions, parts: list[Singles]) -> None:
        self._numbers, self._parts = [numbers], parts

    def add(self, number: int, codes: Singles) -> None:
        """Add the codes of examples that came later, with the number of the first."""
        self._numbers.append(np.arange(number, number + len(codes)))
        self._parts.append(codes)

    def of(self, numbers: Positions) -> Singles:
        """Return the codes of examples by their numbers, which must be among these."""
        width = max(part.shape[1] for part in self._parts)  # labels may have come in between
        parts = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in self._parts]
        codes = np.concatenate(parts) if len(parts) > 1 else parts[0]
        if len(codes) == len(numbers):
            return codes
        kept: Singles = codes[np.searchsorted(np.concatenate(self._numbers), numbers)]
        return kept


class Store(Protocol):
    """What a learner needs of its memory.

    Positions count what is stored, oldest first; numbers count the whole stream, from 0.
    """

    window: int | None
    n_features: int

    def __len__(self) -> int: ...

    @property
    def n_labels(self) -> int:
        """Labels per example."""

    @property
    def n_seen(self) -> int:
        """Examples that were ever appended: the number of the next."""

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""

    @property
    def code_width(self) -> int | None:
        """Numbers per code; None while there are no codes."""

    # ---- change
    def grow(self, q: int) -> None:
        """Keep ``q`` labels per example; of the new ones, the stored examples have none."""

    def append(
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None = None,
        codes: Singles | None = None,
    ) -> None:
        """Add examples; what no longer fits the window stays until :meth:`forget`."""

    def forget(self) -> None:
        """Drop what lies before the window."""

    def remove(self, position: int) -> Labels:
        """Take one example out, and return its labels."""

    def relabel(self, position: int, labels: Labels) -> Labels:
        """Give one example other labels, mark it as corrected, and return the old ones."""

    def corrected_twins(self, rows: Rows) -> Positions | None:
        """Return where the example is that equals each row and was corrected last.

        −1 where there is none; None if no example was corrected.
        """

    def map_labels(self, columns: Sequence[Sequence[int]]) -> None:
        """Make each label anew as the union of old ones, given by their columns."""

    def encode(self, encode: Callable[[Rows], Singles]) -> None:
        """Give every stored example the code that ``encode(rows)`` makes."""

    def encoding(self, encode: Callable[[Rows], Singles], *, dear: bool = False) -> Steps[Coded]:
        """Make such codes in steps, for :meth:`adopt`, of a picture that stays as it is.

        ``dear``: some rows are so much work that they are worth a thread.
        """

    def adopt(self, coded: Coded, encode: Callable[[Rows], Singles]) -> None:
        """Take over codes that were made ahead by ``encode``, of what is still stored."""

    def widen_codes(self, d: int) -> None:
        """Append zeros to all codes, up to ``d`` numbers."""

    # ---- look
    def search_rows(
        self, queries: Rows, k: int, lo: Positions | None = None, hi: Positions | None = None
    ) -> tuple[Distances, Positions]:
        """Return squared distances and positions, (m, k), of the nearest rows of each query.

        Sorted by distance, then by age, older first; infinity and −1 where fewer than ``k`` rows
        are seen.  Query i sees the positions ``lo[i] <= position < hi[i]``.
        """

    def search_codes(
        self, queries: Singles, k: int, lo: Positions | None = None, hi: Positions | None = None
    ) -> tuple[Distances, Positions]:
        """Return the same among the codes."""

    def neighbors(self, *positions: Positions) -> Neighbors:
        """Return the labels of the examples at arrays of positions, as kernels take them."""

    def similar(self, rows: Rows, candidates: Positions, factor: Distances | None) -> Nearest:
        """Return which of its candidates is most similar to each row, the newest of equals.

        See :func:`tagstream.core.similarity.most_similar`.
        """

    def votes(self, found: Positions) -> Distances:
        """Return, for neighbours (m, k), the share of each label among those that know it."""

    def take(self, positions: Any) -> Rows:
        """Return the rows at some positions."""

    def labels(self, positions: Any = slice(None)) -> Labels:
        """Return the labels at some positions, by default of all."""

    def ids(self, positions: Positions) -> list[Hashable]:
        """Return the names at some positions; by default, numbers in the stream."""

    def numbers(self, positions: Positions) -> Positions:
        """Return the numbers in the stream."""

    def corrected(self, positions: Any = slice(None)) -> Bools:
        """Return which of the examples at some positions, by default of all, were relabelled."""

    def position_of(self, id: Hashable) -> int | None:
        """Return where the newest example of that name is stored; None if it is not."""

    def examples(self) -> Examples:
        """Return what is stored, for sums over it."""

    def contents(self) -> Digests:
        """Return a digest of each stored row; see :mod:`tagstream.store.contents`."""

    def positions_of(self, numbers: Positions) -> Positions:
        """Return where examples are stored, given by their numbers; −1 if they are not."""

    def nearest_by(
        self,
        encode: Callable[[Rows], Singles],
        asked: Sequence[tuple[Singles, int]],
        *,
        dear: bool = False,
    ) -> Steps[list[Positions]]:
        """Return the k nearest of queries (m, d) among codes that ``encode(rows)`` makes, (m, k).

        For each pair of queries and k.  The codes are not kept.  In steps; ``dear`` as in
        :meth:`encoding`.
        """

    def block_size(self, most: int) -> int:
        """Return how many examples may be appended at a time: few beside those of the window."""

    def first_seen(self, positions: Positions) -> Positions:
        """Return the first position inside the window of items that come at ``positions``."""

    # ---- keep
    def snapshot(self) -> Store:
        """Return an immutable picture, in constant time."""

    def dump(self) -> dict[str, Any]:
        """Return the contents as plain values."""
