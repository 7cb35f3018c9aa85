"""An item that was asked about, as a value: what was found out about it can be learnt with it.

In a stream the item that is asked about is often learnt next, and learning needs what the answer
needed: its place in the metric space, its neighbours, the evidence.  A learner's ``ask`` returns
all of it, and its ``learn_one`` and ``partial_fit`` take it back.  They use it only if the learner
is as it was and the rows are the same, so what they learn never depends on it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.checks import Rows

__all__ = ["Asked", "same_rows"]


@dataclass(frozen=True, eq=False)
class Asked:
    """Some items that a learner was asked about, and its answers.

    Attributes
    ----------
    rows : array or CSR matrix of shape (n, p)
        The items, in the form that the learner keeps.
    next : bool
        Whether they were asked about as the next item of the stream, or as any.
    scores : array of shape (n, q)
        The score of each label.
    ids : sequence or None
        The names of the items, None where one has none.
    """

    rows: Rows = field(repr=False)
    next: bool
    scores: npt.NDArray[np.float64]
    ids: Sequence[Hashable | None] | None = None
    found: tuple[Any, ...] = field(default=(), repr=False)  # the learner's own, block by block
    state: object = field(default=None, repr=False)  # stands for the state that was asked

    def __len__(self) -> int:
        """Return how many items there are."""
        return int(self.rows.shape[0])

    def holds(self, rows: Rows, state: object) -> bool:
        """Tell whether all that was found holds for these rows in this state of the learner."""
        return self.state is state and same_rows(self.rows, rows)


def same_rows(a: Rows, b: Rows) -> bool:
    """Tell whether two arrays or CSR matrices have the same bits.

    Examples
    --------
    >>> same_rows(np.array([[0.0]]), np.array([[-0.0]]))
    False
    """
    if a is b:
        return True
    if type(a) is not type(b) or a.shape != b.shape or a.dtype != b.dtype:
        return False
    if isinstance(a, np.ndarray):
        return bool(a.tobytes() == b.tobytes())
    alike = np.array_equal(a.indptr, b.indptr) and np.array_equal(a.indices, b.indices)
    return bool(alike and a.data.tobytes() == b.data.tobytes())
