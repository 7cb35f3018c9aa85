"""Codes of stored examples that are made ahead, while learning goes on."""

from __future__ import annotations

import numpy as np

from tagstream.checks import Positions, Singles

__all__ = ["Coded"]


class Coded:
    """Codes that were made ahead of stored examples, and of some that have come since.

    Parameters
    ----------
    numbers : int array of shape (n,), optional
        The numbers in the stream of the examples that were stored.  Without them nothing is made
        ahead: examples on other machines get their codes there, when they are to have them.
    parts : list of arrays
        Their codes, some rows each.
    """

    def __init__(
        self, numbers: Positions | None = None, parts: list[Singles] | None = None
    ) -> None:
        self._numbers = None if numbers is None else [numbers]
        self._parts = [] if parts is None else parts

    @property
    def ahead(self) -> bool:
        """Whether codes were made ahead."""
        return self._numbers is not None

    def add(self, number: int, codes: Singles) -> None:
        """Add the codes of examples that came later, with the number of the first."""
        if self._numbers is not None:
            self._numbers.append(np.arange(number, number + len(codes)))
            self._parts.append(codes)

    def of(self, numbers: Positions) -> Singles:
        """Return the codes of examples by their numbers, which must be among these."""
        assert self._numbers is not None
        width = max(part.shape[1] for part in self._parts)  # labels may have come in between
        parts = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in self._parts]
        codes = np.concatenate(parts) if len(parts) > 1 else parts[0]
        if len(codes) == len(numbers):
            return codes
        kept: Singles = codes[np.searchsorted(np.concatenate(self._numbers), numbers)]
        return kept
