"""Checks at the door, the label vocabulary, and the estimator that all learners share."""

from __future__ import annotations

__all__ = ["DataError"]


class DataError(ValueError):
    """A data file does not say what its format requires.

    The message reads ``path:line: what was expected, what was found``.
    """
