"""What a learner needs of its memory, whichever machine holds it.

A :class:`Store` keeps examples.  It has few members, because a store consists of *pieces*: examples
that follow each other and lie in one process.  Whatever is asked about examples is a function of
pieces (:mod:`tagstream.store.lookup`), and whatever changes all of them is a change of each piece
(:mod:`tagstream.store.changes`).  So a store on other machines only has to send functions there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
)

import numpy as np
import scipy.sparse as sp

from tagstream.checks import Bools, Bytes, Positions, Rows, Singles
from tagstream.labels.read import Labels
from tagstream.limits import Limits
from tagstream.store.sums import Examples

if TYPE_CHECKING:
    from tagstream.store.local import LocalStore

__all__ = [
    "CORRECTED",
    "IDS",
    "LABELS",
    "NUMBERS",
    "ROWS",
    "Column",
    "Facts",
    "Neighbors",
    "Piece",
    "Store",
]

T = TypeVar("T")
P = ParamSpec("P")


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


class Facts(NamedTuple):
    """What there is to say about a store as a whole.

    Attributes
    ----------
    n_features, n_labels : int
        Numbers per row, and labels per example.
    n_seen : int
        Examples that were ever appended: the number of the next.
    code_width : int or None
        Numbers per code; None while there are no codes.
    unknown, gaps, corrected : bool
        Whether a label was ever unknown, an example was ever taken out of the middle, and one was
        ever relabelled.
    in_process : bool
        Whether all examples are in this process.
    limits : Limits
        From which sizes on things are done in another way.
    """

    n_features: int
    n_labels: int
    n_seen: int
    code_width: int | None
    unknown: bool
    gaps: bool
    corrected: bool
    in_process: bool
    limits: Limits


class Piece(NamedTuple):
    """Some consecutive examples of a store, in one process.

    Attributes
    ----------
    store : LocalStore
        It holds them.
    start : int
        Its examples before this position have left the window.
    offset : int
        The position, in the whole store, of the one at ``start``.
    whole : bool
        Whether it is all of the store.
    """

    store: LocalStore
    start: int
    offset: int
    whole: bool = False


class Column(Generic[T]):
    """A column of a store: how to read it, and how to put together what pieces have read.

    Parameters
    ----------
    read : callable
        Returns the values of a :class:`~tagstream.store.local.LocalStore` at some positions.
    join : callable
        Returns the values of n examples, of a list of places below n and of the values there, and
        of the facts of the store.
    """

    def __init__(
        self,
        read: Callable[[LocalStore, Any], T],
        join: Callable[[int, list[tuple[Positions, T]], Facts], T],
    ) -> None:
        self.read, self.join = read, join


class Store(Protocol):
    """What a learner needs of its memory.

    Positions count what is stored, oldest first; numbers count the whole stream, from 0.
    """

    window: int | None

    def __len__(self) -> int: ...

    @property
    def facts(self) -> Facts:
        """What there is to say about all of it."""

    # ---- change
    def append(
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None = None,
        codes: Singles | None = None,
    ) -> None:
        """Add examples; those that no longer fit the window stay until they are dropped."""

    def drop(self, n: int) -> None:
        """Drop the ``n`` oldest examples."""

    def remove(self, position: int) -> Labels:
        """Take one example out, and return its labels."""

    def relabel(self, position: int, labels: Labels) -> Labels:
        """Give one example other labels, mark it as corrected, and return the old ones."""

    def change(
        self, how: Callable[Concatenate[LocalStore, P], None], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Change all examples in the same way; see :mod:`tagstream.store.changes`."""

    # ---- look
    def take(self, column: Column[T], positions: Any = ...) -> T:
        """Return a column's values at some positions, by default of all examples."""

    def neighbors(self, *positions: Positions) -> Neighbors:
        """Return the labels of the examples at arrays of positions, as kernels take them."""

    def ask(
        self, function: Callable[..., T], *shared: Any, among: Positions | slice | None = None
    ) -> list[T]:
        """Return ``function(pieces, *shared)`` of lists of pieces that are all of the store.

        The pieces of a list rise.  Only of those that have examples ``among`` some positions.
        """

    def examples(self) -> Examples:
        """Return what is stored, as a fit sees it."""

    # ---- keep
    def snapshot(self) -> Store:
        """Return an immutable picture, in constant time."""

    def dump(self) -> dict[str, Any]:
        """Return the contents as plain values."""


# ---------------------------------------------------------------------- columns
def _read_rows(store: LocalStore, positions: Any) -> Rows:
    return store.rows.live[positions]


def _join_rows(n: int, parts: list[tuple[Positions, Rows]], facts: Facts) -> Rows:
    order = np.argsort(np.concatenate([places for places, _ in parts]))
    rows = [part for _, part in parts]
    if sp.issparse(rows[0]):
        return sp.vstack(rows, format="csr")[order]
    return np.concatenate(rows)[order]


def _read_labels(store: LocalStore, positions: Any) -> Labels:
    return store.labels.at(positions)


def _join_labels(n: int, parts: list[tuple[Positions, Labels]], facts: Facts) -> Labels:
    Y = np.empty((n, facts.n_labels), np.uint8)
    known = np.ones(Y.shape, np.bool_) if facts.unknown else None
    for places, some in parts:
        Y[places] = some.Y
        if known is not None and some.known is not None:
            known[places] = some.known
    return Labels(Y, known)


def _read_ids(store: LocalStore, positions: Any) -> list[Hashable]:
    return store.names.names(positions)


def _join_ids(n: int, parts: list[tuple[Positions, list[Hashable]]], facts: Facts) -> Any:
    names: list[Hashable] = [None] * n
    for places, some in parts:
        for place, name in zip(places.tolist(), some, strict=True):
            names[place] = name
    return names


def _read_numbers(store: LocalStore, positions: Any) -> Positions:
    return store.names.numbers(positions)


def _read_corrected(store: LocalStore, positions: Any) -> Bools:
    return store.corrections.at(positions)


def _join_arrays(n: int, parts: list[tuple[Positions, Any]], facts: Facts) -> Any:
    out = np.empty(n, parts[0][1].dtype)
    for places, some in parts:
        out[places] = some
    return out


ROWS: Column[Rows] = Column(_read_rows, _join_rows)
LABELS: Column[Labels] = Column(_read_labels, _join_labels)
IDS: Column[list[Hashable]] = Column(_read_ids, _join_ids)
NUMBERS: Column[Positions] = Column(_read_numbers, _join_arrays)
CORRECTED: Column[Bools] = Column(_read_corrected, _join_arrays)
