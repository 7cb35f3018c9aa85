"""The column of labels: packed bits, and which of them are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.checks import Bytes, expect
from tagstream.labels.read import Labels
from tagstream.store.columns import Sliding, filled

__all__ = ["PackedLabels"]

_NOTHING = np.empty((0, 0), np.uint8)
UNPACKED = 1 << 24  # labels of rows that are unpacked at a time


class PackedLabels:
    """The labels of stored examples, a bit for each, most significant first.

    What is known of them is kept once something is not.  A bit beyond the last label counts as
    known.
    """

    def __init__(self) -> None:
        self.n_labels = 0
        self._yes = Sliding(0, np.uint8)
        self._known: Sliding | None = None

    def __len__(self) -> int:
        return len(self._yes)

    @property
    def yes(self) -> Bytes:
        """Which labels the examples have, (n, ⌈q/8⌉)."""
        return self._yes.live

    @property
    def known(self) -> Bytes:
        """Which of them are known; of length 0 when all are."""
        return _NOTHING if self._known is None else self._known.live

    @property
    def all_known(self) -> bool:
        """Whether no label was ever unknown."""
        return self._known is None

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        return self._yes.nbytes + (0 if self._known is None else self._known.nbytes)

    def at(self, positions: Any) -> Labels:
        """Return the labels at some positions."""
        q = self.n_labels
        Y = np.unpackbits(self._yes.live[positions], axis=1, count=q)
        if self._known is None:
            return Labels(Y, None)
        known = np.unpackbits(self._known.live[positions], axis=1, count=q)
        return Labels(Y, known.view(np.bool_))

    def grow(self, q: int) -> None:
        """Keep ``q`` labels per example; of the new ones, the stored examples have none.

        Examples of which no label is known stay unknown for the new labels too.
        """
        old, self.n_labels = self.n_labels, q
        self._yes.widen(-(-q // 8))
        if self._known is not None:
            bits = np.unpackbits(self._known.live, axis=1, count=old)
            bits = np.pad(bits, ((0, 0), (0, -(-q // 8) * 8 - old)), constant_values=1)
            if old:
                bits[bits[:, :old].sum(axis=1) == 0, old:q] = 0
            self._known.replace(np.packbits(bits, axis=1))

    def map(self, columns: Sequence[Sequence[int]]) -> None:
        """Make each label anew as the union of old ones, given by their columns."""
        size = max(1, UNPACKED // max(self.n_labels, 1))
        parts = [
            _united(self.at(slice(i, i + size)), columns) for i in range(0, max(len(self), 1), size)
        ]
        self.n_labels = len(columns)
        self._yes.replace(np.concatenate([np.packbits(new.Y, axis=1) for new in parts]))
        if self._known is not None:
            self._known.replace(np.concatenate([_packed_known(new) for new in parts]))

    def append(self, labels: Labels) -> None:
        """Add labels at the end."""
        self._watch(labels)
        self._yes.append(np.packbits(labels.Y, axis=1))
        if self._known is not None:
            self._known.append(_packed_known(labels))

    def write(self, position: int, labels: Labels) -> None:
        """Write the labels of one example anew."""
        self._watch(labels)
        self._yes.write(position, np.packbits(labels.Y, axis=1)[0])
        if self._known is not None:
            self._known.write(position, _packed_known(labels)[0])

    def _watch(self, labels: Labels) -> None:
        """Keep from now on what is known, if that is not all."""
        if labels.known is not None and self._known is None:
            self._known = filled(len(self), self._yes.live.shape[1], np.uint8, 255)

    def drop(self, n: int) -> None:
        """Forget the ``n`` oldest examples."""
        self._each(lambda part: part.drop(n))

    def remove(self, position: int) -> None:
        """Take one example out."""
        self._each(lambda part: part.remove(position, position + 1))

    def _each(self, change: Callable[[Sliding], None]) -> None:
        change(self._yes)
        if self._known is not None:
            change(self._known)

    def snapshot(self) -> PackedLabels:
        """Return an immutable picture."""
        twin = object.__new__(PackedLabels)
        twin.n_labels, twin._yes = self.n_labels, self._yes.snapshot()
        twin._known = None if self._known is None else self._known.snapshot()
        return twin

    def dump(self) -> dict[str, Any]:
        """Return the bits as plain values."""
        known = None if self._known is None else np.array(self._known.live)
        return {"labels": np.array(self._yes.live), "known": known}

    @classmethod
    def load(cls, state: Any, n: int, q: int) -> PackedLabels:
        """Return the labels that :meth:`dump` described, after checking that they make sense."""
        width = -(-q // 8)
        labels = expect("labels", state["labels"], np.uint8, (n, width))
        spare = np.uint8((1 << (-q % 8)) - 1)  # bits of the last byte that stand for no label
        if width and (labels[:, -1] & spare).any():
            raise ValueError(f"labels must have {q} bits per example, got more")
        made = cls()
        made.n_labels = q
        made._yes.replace(labels)
        if state["known"] is not None:
            known = expect("known", state["known"], np.uint8, (n, width))
            if (labels & ~known).any():
                raise ValueError("labels must be 0 where they are not known")
            if width:
                known[:, -1] |= spare
            made._known = Sliding(width, np.uint8)
            made._known.replace(known)
        return made


def _united(labels: Labels, columns: Sequence[Sequence[int]]) -> Labels:
    """Return each label anew as the union of old ones, given by their columns."""
    Y, known = labels
    # A union is known where one of its parts is known to be there, or all are known.
    sure: npt.NDArray[np.bool_] = np.ones(Y.shape, np.bool_) if known is None else known
    unions = [Y[:, c].any(axis=1) for c in columns]
    kept = [u | sure[:, c].all(axis=1) for u, c in zip(unions, columns, strict=True)]
    return Labels(
        np.stack(unions, axis=1).astype(np.uint8) if columns else Y[:, :0],
        None if known is None else np.stack(kept, axis=1) if columns else known[:, :0],
    )


def _packed_known(labels: Labels) -> Bytes:
    """Pack what is known; a bit beyond the last label counts as known."""
    known = np.ones(labels.Y.shape, bool) if labels.known is None else labels.known
    spare = -labels.Y.shape[1] % 8
    return np.packbits(np.pad(known, ((0, 0), (0, spare)), constant_values=True), axis=1)
