"""What a learner offers that keeps the items it has learnt."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["KeepsItems", "keeps_items"]


class KeepsItems(Protocol):
    """A learner that keeps items: they can be looked up, corrected, forgotten, and explain.

    ``OML`` and ``KNN`` do.  Others, such as OLANSGD, keep only what they have made of them.

    Attributes
    ----------
    classes_ : array of shape (q,)
        Label names.
    window : int or None
        How many items are kept; None keeps all.
    """

    classes_: npt.NDArray[Any]
    window: int | None

    @property
    def n_stored_(self) -> int:
        """How many items are stored."""

    @property
    def ids_(self) -> list[Hashable]:
        """The names of the stored items, oldest first."""

    @property
    def label_counts_(self) -> npt.NDArray[np.int64]:
        """How many stored items have each label."""

    def has_item(self, id: Hashable) -> bool:
        """Tell whether an item of that name is stored."""

    def item(self, id: Hashable) -> Any:
        """Return a stored item."""

    def relabel(self, id: Hashable, labels: Any, classes: Any = None) -> Any:
        """Give a stored item other labels."""

    def forget(self, id: Hashable) -> Any:
        """Take a stored item out."""

    def are_stored(self, ids: Sequence[Hashable], X: Any, labels: Sequence[Any]) -> Any:
        """Tell which of some items are stored as they are."""

    def explain(self, X: Any, *, next: bool = False, ids: Any = None) -> Any:
        """Tell which stored items speak for the labels of each row."""


def keeps_items(learner: object) -> TypeGuard[KeepsItems]:
    """Tell whether a learner keeps items.

    Examples
    --------
    >>> from tagstream import KNN
    >>> from tagstream.models import OLANSGD
    >>> keeps_items(KNN()), keeps_items(OLANSGD()), keeps_items(None)
    (True, False, False)
    """
    return callable(getattr(learner, "has_item", None))
