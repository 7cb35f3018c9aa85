"""What every comparison relies on, of any learner with ``partial_fit`` and ``predict``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.testing.rules import BrokenContractError, Make, rule

__all__: list[str] = []

Matrix = npt.NDArray[Any]
STEP = 10  # rows that are learnt at once


def _stream() -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    return X, (X[:, :3] > 0.2).astype(np.uint8)


def _taught(model: Any, X: Any, Y: Matrix) -> Any:
    for start in range(0, len(Y), STEP):
        model.partial_fit(X[start : start + STEP], Y[start : start + STEP])
    return model


def _asked(model: Any, X: Any) -> Matrix:
    answers = model.predict(X)
    return np.asarray(answers.toarray() if sp.issparse(answers) else answers)


@rule()
def check_answers(make: Make) -> None:
    """Answers are 0 and 1, a column for each label."""
    X, Y = _stream()
    answers = _asked(_taught(make(), X, Y), X)
    if answers.shape != Y.shape or not np.isin(answers, (0, 1)).all():
        raise BrokenContractError(
            f"predict must give 0 and 1 of shape {Y.shape}, got shape {answers.shape}"
        )


@rule()
def check_the_same_lessons_give_the_same_answers(make: Make) -> None:
    """A learner that is made again and taught the same gives the same answers."""
    X, Y = _stream()
    if not np.array_equal(_asked(_taught(make(), X, Y), X), _asked(_taught(make(), X, Y), X)):
        raise BrokenContractError(
            "a learner made again and taught the same must answer the same; fix its random_state"
        )


@rule()
def check_questions_teach_nothing(make: Make) -> None:
    """Being asked changes nothing."""
    X, Y = _stream()
    asked = make()
    for start in range(0, len(Y), STEP):
        _asked(_taught(asked, X[start : start + STEP], Y[start : start + STEP]), X)
    if not np.array_equal(_asked(asked, X), _asked(_taught(make(), X, Y), X)):
        raise BrokenContractError("predict must not change what is learnt")


@rule()
def check_rows_stay_as_they_are(make: Make) -> None:
    """Rows and labels that are handed over are not changed, dense or sparse."""
    X, Y = _stream()
    for rows in (X, sp.csr_matrix(X)):
        before, labels = rows.copy(), Y.copy()
        _taught(make(), rows, Y)
        if abs(before - rows).sum() != 0 or not np.array_equal(labels, Y):
            raise BrokenContractError("partial_fit must not change the rows that it is given")


@rule()
def check_rows_may_be_sparse(make: Make) -> None:
    """Rows may be a CSR matrix."""
    X, Y = _stream()
    answers = _asked(_taught(make(), sp.csr_matrix(X), Y), sp.csr_matrix(X))
    if answers.shape != Y.shape:
        raise BrokenContractError(f"rows may be sparse (CSR), got answers of {answers.shape}")


@rule("takes_unknown")
def check_labels_may_be_unknown(make: Make) -> None:
    """Labels may be NaN, "not known", if the learner says so by ``takes_unknown``."""
    X, Y = _stream()
    unknown = Y.astype(np.float64)
    unknown[::3, 1] = np.nan
    if _asked(_taught(make(), X, unknown), X).shape != Y.shape:
        raise BrokenContractError("labels may be NaN; answers must keep their shape")
