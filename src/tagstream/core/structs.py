"""State of the learners as compiled loops take it: one object each, which holds its arrays.

To hand over arrays one by one takes longer than much of the work that is done with them.  An
object is made once and made anew when one of its arrays was replaced; the loops change the arrays
in place.  A field may hold None where a stream does not have something.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy.typing as npt
from numba import types
from numba.experimental import structref

from tagstream.core.compilation import with_twin

__all__ = ["FastMaps", "Found", "HeadModel", "Histories", "fast_maps", "head_model", "histories"]


@structref.register
class _HeadModelType(types.StructRef):
    pass


class HeadModel(structref.StructRefProxy):
    """What a head learns, and how many neighbours vote.

    Weights w (m,), A (m, m), d and a (q, 16); hits and hit_sizes (q,); sizes, near_sizes and
    half_log for the votes.
    """


@structref.register
class _HistoriesType(types.StructRef):
    pass


class Histories(structref.StructRefProxy):
    """The labels of what was learnt: ``now``, and ``behind`` by as many items as labels come late.

    Both are n, missing, t, last, fast and slow, and the same arrays if labels come at once.
    ``queue`` is None then, else the labels in between, and the next place and number of these.
    """


@structref.register
class _FastMapsType(types.StructRef):
    pass


class FastMaps(structref.StructRefProxy):
    """The fast map: D, added, s, rho and fresh.

    ``table`` is keys, slots and counters of sparse inputs, ``scale`` shift and factor of dense
    ones, ``basis`` B and Bᵀ of reduced labels; each is None if there is none.
    """


MODEL = ("w", "A", "d", "a", "hits", "hit_sizes", "sizes", "near_sizes", "half_log")
HISTORIES = ("now", "behind", "queue")
FAST = ("D", "added", "s", "rho", "fresh", "table", "scale", "basis")

for _proxy, _type, _fields in (
    (HeadModel, _HeadModelType, MODEL),
    (Histories, _HistoriesType, HISTORIES),
    (FastMaps, _FastMapsType, FAST),
):
    structref.define_boxing(_type, _proxy)  # type: ignore[no-untyped-call]
    structref.define_constructor(_proxy, _type, _fields)  # type: ignore[no-untyped-call]


@with_twin
def head_model(*fields: Any) -> Any:
    """Return a :class:`HeadModel` of its fields in order."""
    return HeadModel(*fields)  # type: ignore[no-untyped-call]


@with_twin
def histories(*fields: Any) -> Any:
    """Return a :class:`Histories` of its fields in order."""
    return Histories(*fields)  # type: ignore[no-untyped-call]


@with_twin
def fast_maps(*fields: Any) -> Any:
    """Return a :class:`FastMaps` of its fields in order."""
    return FastMaps(*fields)  # type: ignore[no-untyped-call]


class Found(NamedTuple):
    """What was found about m items, None for what there is not.

    Attributes
    ----------
    found : int64 array of shape (m, k)
        Positions of the nearest stored items, −1 where there are no more.
    near : int64 array of shape (m, l), or None
        The same in input space.
    labels, known : uint8 arrays of shape (n, ⌈q/8⌉)
        Packed labels of the stored items, and which are known; None: all are.
    z : float64 array of shape (m, q), or (0, 0)
        The regression, if there is one.
    names : pair of arrays of shapes (m, q) and (q,), or None
        The cosine of each row and each label's name, and which labels are declared.
    """

    found: npt.NDArray[Any]
    near: npt.NDArray[Any] | None
    labels: npt.NDArray[Any]
    known: npt.NDArray[Any] | None
    z: npt.NDArray[Any]
    names: tuple[npt.NDArray[Any], npt.NDArray[Any]] | None
