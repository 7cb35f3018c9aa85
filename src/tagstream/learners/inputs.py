"""Rows as scikit-learn's estimators take them: arrays, sparse matrices, data frames, lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_array

from tagstream.checks import Rows, check_rows, check_sparse

__all__ = ["check_input"]


def check_input(X: Any, estimator: Any) -> Rows:
    """Return ``X`` as :func:`tagstream.checks.check_rows` does, checked as scikit-learn does."""
    if sp.issparse(X) and X.ndim == 2:
        check_sparse(X)
    checked = check_array(
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        order="C",
        input_name="X",
        estimator=estimator,
    )
    return check_rows(checked)
