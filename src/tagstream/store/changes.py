"""Changes of all examples of a store at once, whichever machine holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tagstream.checks import Rows, Singles
from tagstream.execution.steps import finish
from tagstream.store.coded import Coded
from tagstream.store.rows import DenseRows

if TYPE_CHECKING:
    from tagstream.store.local import LocalStore
    from tagstream.store.protocol import Store

__all__ = [
    "adopt_codes",
    "encode",
    "encode_piece",
    "forget",
    "grow_labels",
    "grow_piece",
    "map_labels",
    "widen_codes",
    "widen_piece",
]


def grow_labels(store: Store, q: int) -> None:
    """Keep ``q`` labels per example; of the new ones, the stored examples have none."""
    store.change(grow_piece, q)


def map_labels(store: Store, columns: Sequence[Sequence[int]]) -> None:
    """Make each label anew as the union of old ones, given by their columns."""
    store.change(_map_piece, columns)


def encode(store: Store, encoder: Callable[[Rows], Singles]) -> None:
    """Give every stored example the code that ``encoder(rows)`` makes."""
    store.change(encode_piece, encoder)


def adopt_codes(store: Store, coded: Coded, encoder: Callable[[Rows], Singles]) -> None:
    """Take over codes that were made ahead by ``encoder``, of what is still stored."""
    if coded.ahead:
        store.change(_put_codes, coded)
    else:
        encode(store, encoder)


def widen_codes(store: Store, d: int) -> None:
    """Append zeros to all codes, up to ``d`` numbers."""
    width = store.facts.code_width
    if width is not None and width < d:
        store.change(widen_piece, d)


def forget(store: Store) -> None:
    """Drop what lies before the window."""
    excess = 0 if store.window is None else len(store) - store.window
    if excess > 0:
        store.drop(excess)


# ---------------------------------------------------------------------- of one piece
def grow_piece(piece: LocalStore, q: int) -> None:
    """Keep ``q`` labels per example."""
    piece.labels.grow(q)


def _map_piece(piece: LocalStore, columns: Sequence[Sequence[int]]) -> None:
    piece.labels.map(columns)


def encode_piece(piece: LocalStore, encoder: Callable[[Rows], Singles]) -> None:
    """Give every example the code that ``encoder(rows)`` makes."""
    _put_codes(piece, finish(piece.examples().encoding(encoder)))


def _put_codes(piece: LocalStore, coded: Coded) -> None:
    codes = coded.of(piece.names.numbers(np.arange(len(piece))))
    piece.codes = piece.codes or DenseRows(codes.shape[1], limits=piece.limits)
    piece.codes.replace(codes)


def widen_piece(piece: LocalStore, d: int) -> None:
    """Append zeros to all codes, up to ``d`` numbers."""
    if piece.codes is not None and piece.codes.live.shape[1] < d:
        old = piece.codes.live
        piece.codes.replace(np.pad(old, ((0, 0), (0, d - old.shape[1]))))
