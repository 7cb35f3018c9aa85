"""What a learner must keep to be compared: the public contract, as one function.

It is about what a comparison relies on, and no more.  The contract of this library's own learners
is stricter (``tests/checks.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

__all__ = ["BrokenContractError", "check_learner"]


class BrokenContractError(AssertionError):
    """A learner does not do what comparisons rely on."""


def check_learner(make: Callable[[], Any], *, takes_unknown: bool = False) -> None:
    """Check that a learner can be compared with others.

    Parameters
    ----------
    make : callable
        Returns a fresh learner, the same one each time: a class with its defaults will do.
    takes_unknown : bool
        Whether labels may be NaN, "not known".

    Raises
    ------
    BrokenContractError
        If one of these does not hold: answers are 0 and 1, a column for each label; a learner made
        again and taught the same gives the same answers; being asked changes nothing; rows may be
        sparse; rows that are handed over stay as they are; unknown labels, if they are taken, may
        be any.

    Examples
    --------
    >>> from tagstream import KNN
    >>> check_learner(KNN, takes_unknown=True)
    """
    X, Y = _stream()
    first = _taught(make(), X, Y)
    answers = _asked(first, X)
    if answers.shape != Y.shape or not np.isin(answers, (0, 1)).all():
        raise BrokenContractError(
            f"predict must give 0 and 1 of shape {Y.shape}, got shape {answers.shape}"
        )
    if not np.array_equal(_asked(_taught(make(), X, Y), X), answers):
        raise BrokenContractError(
            "a learner made again and taught the same must answer the same; fix its random_state"
        )
    asked = make()
    for start in range(0, len(Y), 10):
        asked.partial_fit(X[start : start + 10], Y[start : start + 10])
        _asked(asked, X)
    if not np.array_equal(_asked(asked, X), answers):
        raise BrokenContractError("predict must not change what is learnt")
    sparse = _asked(_taught(make(), sp.csr_matrix(X), Y), sp.csr_matrix(X))
    if sparse.shape != Y.shape:
        raise BrokenContractError(f"rows may be sparse (CSR), got answers of {sparse.shape}")
    if takes_unknown:
        unknown = Y.astype(np.float64)
        unknown[::3, 1] = np.nan
        if _asked(_taught(make(), X, unknown), X).shape != Y.shape:
            raise BrokenContractError("labels may be NaN; answers must keep their shape")


def _stream() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint8]]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    return X, (X[:, :3] > 0.2).astype(np.uint8)


def _taught(model: Any, X: Any, Y: npt.NDArray[Any]) -> Any:
    """Teach the rows in pieces of ten; they must stay as they are."""
    before, labels = X.copy(), Y.copy()
    for start in range(0, len(Y), 10):
        model.partial_fit(X[start : start + 10], Y[start : start + 10])
    same = (abs(before - X) > 0).sum() == 0 and np.array_equal(labels, Y, equal_nan=True)
    if not same:
        raise BrokenContractError("partial_fit must not change the rows that it is given")
    return model


def _asked(model: Any, X: Any) -> npt.NDArray[Any]:
    answers = model.predict(X)
    return np.asarray(answers.toarray() if sp.issparse(answers) else answers)
