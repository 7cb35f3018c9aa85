"""Small streams on which the contract is checked."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["N", "P", "Q", "as_sets", "binary_stream", "feed", "forms_of_rows", "stream"]

N, P, Q = 60, 6, 4


def stream(n: int = N, p: int = P, q: int = Q, seed: int = 0) -> tuple[Any, Any]:
    """Return rows of shape (n, p) and labels (n, q) that depend on them; every label occurs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    Y = (X @ rng.normal(size=(p, q)) + 0.3 * rng.normal(size=(n, q)) > 0.3).astype(np.uint8)
    Y[:q][np.eye(q, dtype=bool)] = 1
    return X, Y


def binary_stream(n: int = N) -> tuple[Any, Any]:
    """Return 0/1 features, which no learner scales or centres, and labels."""
    X, Y = stream(n, 12)
    return (X > 0.5).astype(float), Y


def as_sets(Y: Any, names: str = "abcdefgh") -> list[set[str]]:
    """Return the rows of a 0/1 array as sets of names."""
    return [{names[j] for j in np.flatnonzero(row)} for row in Y]


def feed(model: Any, X: Any, Y: Any, cuts: Iterable[int]) -> Any:
    """Learn rows cut at ``cuts``; a piece of one row goes through ``learn_one``."""
    edges = sorted({0, *cuts, len(Y)})
    for start, stop in itertools.pairwise(edges):
        if stop == start + 1:
            model.learn_one(X[start], Y[start])
        else:
            model.partial_fit(X[start:stop], Y[start:stop])
    return model


def forms_of_rows() -> list[tuple[str, Any, Any]]:
    """Dense and sparse rows with labels that appear on the way."""
    X, Y = stream(150)
    binary, Z = binary_stream(150)
    Y[:50, 3] = Z[:70, 2:] = 0
    Y[:2, :3] = Z[:2, :2] = 1
    return [("dense", X, as_sets(Y)), ("sparse", sp.csr_matrix(binary), as_sets(Z))]
