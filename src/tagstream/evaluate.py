"""Two ways to judge an online learner: hold-out, and prequential (test, then train)."""

from tagstream.evaluation.evaluate import (
    Checkpoint,
    Fold,
    HoldoutResult,
    LabelRuns,
    PrequentialResult,
    holdout,
    iterative_folds,
    label_runs,
    prequential,
    train_test,
)

__all__ = [
    "Checkpoint",
    "Fold",
    "HoldoutResult",
    "LabelRuns",
    "PrequentialResult",
    "holdout",
    "iterative_folds",
    "label_runs",
    "prequential",
    "train_test",
]
