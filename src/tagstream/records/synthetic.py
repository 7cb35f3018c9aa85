"""A synthetic stream whose labels depend on each other, and on the input, in a known way.

Each item has r hidden factors z ~ N(0, I). They show twice:

- in the labels: the score of label j is a_j·z plus a little noise, and the label applies when the
  score passes a threshold that fixes how frequent it is. With q labels and only r < q factors the
  scores have rank r, so labels come in company;
- in the input: x is a random rotation of (z, u, e), where u are as many nuisance directions, wider
  than the factors, that say nothing about the labels, and e is small noise in the remaining ones.

On top of that the last third of the labels are special cases: label j implies its parent, so a
"beach" is always an "outdoor" too. A nearest neighbour in x is thus misled by u, and a linear map
that finds z back, or a label space that knows the company labels keep, does better.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from tagstream.records.dataset import Dataset, Matrix

__all__ = ["make_stream", "parents", "posts"]

_SCORE_NOISE = 0.25  # standard deviation, against scores of standard deviation 1
_NUISANCE = 1.25  # standard deviation, against factors of standard deviation 1
_INPUT_NOISE = 0.2  # likewise
_KEPT = 0.1  # share of the entries of a sparse input that are not 0


def make_stream(
    n: int = 3000,
    *,
    p: int = 30,
    q: int = 12,
    n_factors: int = 4,
    cardinality: float = 2.5,
    drift: Literal["abrupt", "gradual", "recurring"] | None = None,
    label_noise: float = 0.0,
    sparse: bool = False,
    n_late: int = 0,
    seed: int = 0,
) -> Dataset:
    """Draw a stream of n items with planted label dependencies.

    Parameters
    ----------
    n, p, q : int
        Numbers of items, features and labels.
    n_factors : int
        Number r of hidden factors, at most p and below q.
    cardinality : float
        Mean number of labels per item, roughly: implications add a little. Label j is about
        1/√(j + 1) times as frequent as label 0.
    drift : {"abrupt", "gradual", "recurring"} or None
        How a second concept, which gives the factors another meaning for the labels, takes over:
        at n/2; with a probability that rises from 0 at n/3 to 1 at 2n/3; or in the second and the
        fourth quarter only.
    label_noise : float
        The probability with which a label is exchanged for one drawn at random. This comes last,
        so it also breaks implications.
    sparse : bool
        Give ``X`` as a CSR matrix in which only the largest tenth of the values is kept, measured
        from where it begins.
    n_late : int
        The last ``n_late`` labels do not occur at first; they appear one after the other, evenly
        spread over the middle third of the stream.
    seed : int

    Returns
    -------
    Dataset
        ``X`` of shape (n, p), ``Y`` of shape (n, q). The same arguments give the same stream.

    Examples
    --------
    >>> stream = make_stream(500, seed=3)
    >>> stream
    <Dataset 'synthetic': 500 rows, 30 dense features, 12 labels>
    >>> child = 9
    >>> parent = parents(12)[child]
    >>> bool((stream.Y[:, child] <= stream.Y[:, parent]).all())
    True
    """
    if not 1 <= n_factors <= min(p, q - 1):
        raise ValueError(f"n_factors must be from 1 to {min(p, q - 1)}, got {n_factors}")
    if n < 1 or not 0 < cardinality < q / 2:
        raise ValueError(
            f"n must be positive and cardinality between 0 and {q / 2}, got {n} and {cardinality}"
        )
    if not 0 <= n_late < q or not 0 <= label_noise <= 1:
        raise ValueError(
            f"n_late must be from 0 to {q - 1} and label_noise from 0 to 1, "
            f"got {n_late} and {label_noise}"
        )
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((p, p)))[0]
    meaning = rng.standard_normal((2, n_factors, q))  # one per concept
    meaning *= np.sqrt(1 - _SCORE_NOISE**2) / np.linalg.norm(meaning, axis=1, keepdims=True)

    Z = rng.standard_normal((n, n_factors))
    other = rng.standard_normal((n, p - n_factors))
    other[:, :n_factors] *= _NUISANCE
    other[:, n_factors:] *= _INPUT_NOISE
    X = np.hstack([Z, other]) @ rotation
    concept = _concepts(n, drift, rng)
    scores = np.where(concept[:, None], Z @ meaning[1], Z @ meaning[0])
    scores += _SCORE_NOISE * rng.standard_normal((n, q))

    frequency = 1 / np.sqrt(np.arange(1, q + 1))
    frequency *= cardinality / frequency.sum()
    from scipy.special import ndtri  # a short command does without it

    Y = scores > ndtri(1 - np.minimum(frequency, 0.5))
    first_late = n // 3 + np.arange(n_late) * (n // 3) // max(n_late, 1)
    Y[:, q - n_late :] &= np.arange(n)[:, None] >= first_late
    for child, parent in reversed(parents(q).items()):
        Y[:, parent] |= Y[:, child]
    _exchange(Y, label_noise, rng)
    return Dataset(
        X=_sparsify(X) if sparse else X,
        Y=Y.astype(np.uint8),
        feature_names=tuple(f"x{j}" for j in range(p)),
        label_names=tuple(f"tag{j}" for j in range(q)),
        name="synthetic",
    )


def parents(q: int) -> dict[int, int]:
    """Return which label each of the last third of q labels implies.

    Examples
    --------
    >>> parents(7)
    {5: 0, 6: 1}
    """
    first = q - q // 3
    return {child: child - first for child in range(first, q)}


def _concepts(n: int, drift: str | None, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return for each item whether the second concept holds."""
    t = np.arange(n) / n
    if drift is None:
        return np.zeros(n, dtype=bool)
    if drift == "abrupt":
        return np.asarray(t >= 1 / 2)
    if drift == "gradual":
        return np.asarray(rng.random(n) < 3 * t - 1)
    if drift == "recurring":
        return np.asarray((4 * t).astype(int) % 2 == 1)
    raise ValueError(f"drift must be abrupt, gradual, recurring or None, got {drift!r}")


def _exchange(Y: NDArray[np.bool_], probability: float, rng: np.random.Generator) -> None:
    rows, columns = np.nonzero(Y)
    chosen = rng.random(len(rows)) < probability
    Y[rows[chosen], columns[chosen]] = False
    Y[rows[chosen], rng.integers(Y.shape[1], size=int(chosen.sum()))] = True


def _sparsify(X: NDArray[np.float64]) -> Matrix:
    return sp.csr_matrix(np.maximum(X - np.quantile(X, 1 - _KEPT), 0))


def posts() -> list[dict[str, Any]]:
    """Return 124 made-up posts of a town's message board, with tags, to try things out on.

    Examples
    --------
    >>> posts()[0]
    {'id': 'p1', 'text': 'Selling a workbench with a vice', 'y': ['repair', 'sale']}
    """
    text = resources.files("tagstream.records").joinpath("posts.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]
