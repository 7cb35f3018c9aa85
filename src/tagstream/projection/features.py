"""What P is fitted on: rows as they are, scaled, or lifted.

A lift makes a linear map of its features a curved one of the rows:

    kernel    φ_j(x) = exp(−½‖(x − l_j)u‖²)      Gaussian kernel with stored rows l_j (Nyström)
    fourier   φ_j(x) = √(2/D) cos(w_jᵀ(x − m)u + b_j)      random features of the same kernel

with u = 1/bandwidth, divided by the deviation of each column if they are standardised.  Of the
kernel, a thousand stored rows say far more than a thousand random directions; the latter need no
rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp

from tagstream.checks import Rows
from tagstream.kernels import dense_squares, project_dense, row_squares
from tagstream.labels import Labels

Matrix = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

SCALES = ("standard", "unit", None)  # divide columns by their deviation, rows by their length
LIFTS = ("kernel", "fourier", None)
LIFT_SIZE = 1000  # features of a lift
BLOCK = 4096  # rows that are lifted at a time
CACHED = 2**21  # random numbers that are kept between fits instead of being drawn again
FARTHEST = 1e3  # from the middle, in bandwidths: beyond, a coordinate is as good as there
JITTER = 1e-6  # on the diagonal of a kernel matrix, of which features have single precision


@dataclass(frozen=True)
class Choice:
    """How rows are scaled and lifted, and the strength of P's ridge."""

    scale: str | None  # one of SCALES
    lift: str | None = None  # one of LIFTS
    bandwidth: float = 1.0  # of the lift
    ridge: float = 0.0


@dataclass(frozen=True)
class Lift:
    """The features of a lift, all in single precision, whose products are cheap.

    ``m`` takes the common part out of the rows before anything can be lost of what tells them
    apart.
    """

    kind: str  # "kernel" or "fourier"
    W: Singles  # (p, D): the stored rows (l_j − m)u, or random directions
    b: Singles  # (D,): −½‖(l_j − m)u‖², or random phases
    m: Singles  # (p,)
    u: Singles  # (p,)

    def __call__(self, rows: Singles) -> Singles:
        """Return the features, (n, D); those of a row do not depend on the other rows."""
        scaled = _scaled(rows, self.m, self.u)
        out = np.empty((len(rows), len(self.b)), np.float32)
        project_dense(scaled, self.W, self.b, out)
        return self._curved(out, scaled)

    def at_once(self, rows: Rows) -> Singles:
        """Return the same up to rounding, which may depend on the other rows, but faster."""
        scaled = _scaled(rows.toarray() if sp.issparse(rows) else rows, self.m, self.u)
        out = scaled @ self.W
        out += self.b
        return self._curved(out, scaled)

    def _curved(self, out: Singles, scaled: Singles) -> Singles:
        if self.kind == "fourier":
            np.cos(out, out=out)
            out *= np.float32(np.sqrt(2 / len(self.b)))
            return out
        out -= _half_squares(scaled)[:, None]
        # No more than 1 where rounding left something of a distance of zero; and nothing so small
        # that processors take long over it.
        np.clip(out, -80, 0, out=out)
        return np.exp(out, out=out)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.W.nbytes + self.b.nbytes + self.m.nbytes + self.u.nbytes

    def dump(self) -> dict[str, Singles]:
        """Return its arrays, copied."""
        return {name: getattr(self, name).copy() for name in ("W", "b", "m", "u")}


def _scaled(rows: Singles, m: Singles, u: Singles) -> Singles:
    scaled = rows - m
    scaled *= u
    return np.clip(scaled, -FARTHEST, FARTHEST, out=scaled)


def _half_squares(scaled: Singles) -> Singles:
    """Return ½‖x‖² of each row; it does not depend on the other rows."""
    squares = np.empty(len(scaled), np.float32)
    dense_squares(scaled, squares)
    squares *= np.float32(0.5)
    return squares


class Centred:
    """Features minus their mean, X̃ = X − 1 midᵀ, never formed: X may be sparse.

    Products are made in double precision, in blocks of rows.  With a lift, X are the rows, and
    their features are made block by block, so that they never take more room than one block.

    The features of a kernel are not at right angles: with K = LLᵀ their kernel matrix, X̃L⁻ᵀ are,
    and take the place of X̃ everywhere.  ``original`` leads from weights of theirs to those of X.
    """

    def __init__(
        self,
        X: Any,
        mid: Matrix,
        offset: Matrix | float = 0.0,
        lift: Lift | None = None,
        factor: Matrix | None = None,
    ) -> None:
        self.X, self.mid, self.lift, self.factor = X, mid, lift, factor
        self.offset = offset  # what has been taken off the features already
        self.shape = (X.shape[0], len(mid))
        self.primal = self.shape[1] <= self.shape[0]
        self.rounding = 0.0

    @property
    def mean(self) -> Matrix:
        """Mean of the features."""
        return np.asarray(self.mid + self.offset)

    def original(self, P: Matrix) -> Matrix:
        """Return the weights L⁻ᵀP of the features themselves."""
        if self.factor is None:
            return P
        return np.asarray(scipy.linalg.solve_triangular(self.factor, P, trans=1, lower=True))

    def _turned(self, R: Matrix) -> Matrix:
        """Return L⁻¹R."""
        if self.factor is None:
            return R
        return np.asarray(scipy.linalg.solve_triangular(self.factor, R, lower=True))

    def _blocks(self) -> Iterator[tuple[slice, Any]]:
        for first in range(0, self.shape[0], BLOCK):
            part = slice(first, first + BLOCK)
            some = self.X[part] if self.lift is None else self.lift.at_once(self.X[part])
            yield part, some.astype(np.float64)

    def __matmul__(self, P: Matrix) -> Matrix:
        P = self.original(P)
        out = np.concatenate([np.asarray(block @ P) for _, block in self._blocks()])
        return np.asarray(out - self.mid @ P)

    def transposed(self, R: Matrix) -> Matrix:
        """Return X̃ᵀR."""
        out = sum(np.asarray(block.T @ R[part]) for part, block in self._blocks())
        return self._turned(np.asarray(out - np.outer(self.mid, R.sum(axis=0))))

    def equations(self, T: Matrix) -> tuple[Matrix, Matrix]:
        """Return X̃ᵀX̃ and X̃ᵀT (primal), or X̃X̃ᵀ and T, whichever is smaller, in one pass.

        Rounding leaves eigenvalues of about ``rounding`` below zero.
        """
        n, p = self.shape
        if not self.primal:
            X = self.X.astype(np.float64)
            inner = X @ X.T
            inner = inner.toarray() if sp.issparse(inner) else inner
            self.rounding = 1e-12 * float(np.trace(inner))
            return centre(inner), T
        inner, right, total = np.zeros((p, p)), np.zeros((p, T.shape[1])), np.zeros(p)
        for part, block in self._blocks():
            square = block.T @ block
            inner += square.toarray() if sp.issparse(square) else square
            right += block.T @ T[part]
            total += np.asarray(block.sum(axis=0)).ravel()
        if self.lift is not None:
            self.mid = total / n
        self.rounding = float(np.trace(inner)) * (1e-12 if self.factor is None else 1e-15 / JITTER)
        inner -= n * np.outer(self.mid, self.mid)
        right -= np.outer(self.mid, T.sum(axis=0))
        return self._turned(self._turned(inner).T), self._turned(right)

    def variances(self) -> Matrix:
        """Return the diagonal of X̃ᵀX̃."""
        squares = self.X.power(2) if sp.issparse(self.X) else self.X**2
        total = np.asarray(squares.sum(axis=0, dtype=np.float64)).ravel()
        return np.asarray(np.maximum(total - self.shape[0] * self.mid**2, 0.0))


def features(
    rows: Rows, choice: Choice, lift_size: int, seed: int, keep: bool = False
) -> tuple[Centred, Matrix, Lift | None]:
    """Return what P is fitted on, the scale of the inputs, and the lift.

    ``keep`` holds the features of a lift, for those who look at them again and again.
    """
    rows = unit_rows(rows) if choice.scale == "unit" else rows
    middle, deviation = moments(rows)
    standard = choice.scale == "standard"
    if not standard:
        deviation = np.ones_like(deviation)
    if choice.lift is None:
        if sp.issparse(rows):
            if not standard:
                return Centred(rows, middle), deviation, None
            X = rows @ sp.diags(1 / deviation, dtype=np.float32)
            mid = moments(X)[0]  # of the rounded numbers, so that centring leaves nothing behind
            return Centred(X, mid, offset=middle / deviation - mid), deviation, None
        X = (rows - middle) / deviation
        return Centred(X, X.mean(axis=0), offset=middle / deviation), deviation, None
    # Rows that differ by next to nothing ask for numbers beyond the range of single precision.
    u = np.minimum(1 / (choice.bandwidth * deviation), 1e30)
    lift, factor = _make_lift(rows, choice.lift, middle, u, lift_size, seed)
    if not keep and rows.shape[0] > BLOCK:
        unseen = np.full(len(lift.b), np.nan)  # the mean is known after the first pass
        return Centred(rows, unseen, lift=lift, factor=factor), deviation, lift
    made = lift.at_once(rows)
    return Centred(made, made.mean(axis=0, dtype=np.float64), factor=factor), deviation, lift


def _make_lift(
    rows: Rows, kind: str, middle: Matrix, u: Any, size: int, seed: int
) -> tuple[Lift, Matrix | None]:
    """Return the lift, and of a kernel the factor L of its matrix."""
    p, u = len(middle), u.astype(np.float32)
    if kind == "fourier":
        draw = _directions if p * size <= CACHED else _directions.__wrapped__
        return Lift(kind, *draw(p, size, seed), middle.astype(np.float32), u), None
    stored = rows[evenly(rows.shape[0], size)]
    stored = stored.toarray() if sp.issparse(stored) else stored
    m = np.median(stored, axis=0).astype(np.float32)  # which no row far off can move
    scaled = _scaled(stored, m, u)
    lift = Lift(kind, np.ascontiguousarray(scaled.T), -_half_squares(scaled), m, u)
    wide = scaled.astype(np.float64)
    K = np.exp(-0.5 * squared_distances(wide @ wide.T))
    K[np.diag_indices(len(K))] += JITTER
    return lift, scipy.linalg.cholesky(K, lower=True, overwrite_a=True)


@lru_cache(maxsize=2)
def _directions(p: int, size: int, seed: int) -> tuple[Singles, Singles]:
    """Draw random features; their directions are orthogonal in blocks, for less variance."""
    generator = np.random.default_rng(seed)
    blocks = []
    width = min(p, size)
    for _ in range(-(-size // width)):
        Q, _ = np.linalg.qr(generator.standard_normal((p, width)))
        # Columns of a normal matrix have chi-distributed lengths; orthogonal ones get the same.
        blocks.append(Q * np.sqrt(generator.chisquare(p, width)))
    W = np.concatenate(blocks, axis=1)[:, :size].astype(np.float32)
    b = generator.uniform(0, 2 * np.pi, size).astype(np.float32)
    W.setflags(write=False)  # they are shared by all that have the same seed
    b.setflags(write=False)
    return W, b


def evenly(n: int, size: int) -> npt.NDArray[np.int64]:
    """Return ``size`` evenly spaced numbers below n, or all of them."""
    return np.arange(min(n, size)) * n // min(n, size) if n else np.arange(0)


def unit_rows(rows: Rows) -> Rows:
    """Return rows divided by their Euclidean length; a row of zeros stays."""
    if sp.issparse(rows):
        squares = np.empty(rows.shape[0])
        row_squares(rows.indptr.astype(np.int64), rows.data, squares)
        lengths = np.repeat(np.sqrt(np.where(squares > 0, squares, 1.0)), np.diff(rows.indptr))
        data = (rows.data / lengths).astype(np.float32)
        return sp.csr_matrix((data, rows.indices, rows.indptr), rows.shape)
    # One by one from the left, so that a row's result does not depend on the other rows.
    squares = np.add.accumulate(rows.astype(np.float64) ** 2, axis=1)[:, -1:]
    return (rows / np.sqrt(np.where(squares > 0, squares, 1.0))).astype(np.float32)


def targets(labels: Labels) -> tuple[Matrix, Matrix]:
    """Return the labels minus their mean, unknown entries as 0, and the mean."""
    Y = labels.Y.astype(np.float64)
    if labels.known is None:
        mean: Matrix = Y.mean(axis=0)
        return Y - mean, mean
    count = np.maximum(labels.known.sum(axis=0), 1)
    mean = (Y * labels.known).sum(axis=0) / count
    return np.where(labels.known, Y - mean, 0.0), mean


def moments(rows: Rows) -> tuple[Matrix, Matrix]:
    """Return the mean and standard deviation of each column; a constant column has 1."""
    if sp.issparse(rows):
        rows = rows.astype(np.float64)  # the mean of scipy's single precision rows is single too
        mean = np.asarray(rows.mean(axis=0)).ravel()
        square = np.asarray(rows.power(2).mean(axis=0)).ravel()
        deviation = np.sqrt(np.maximum(square - mean**2, 0))
    else:
        mean = rows.mean(axis=0, dtype=np.float64)
        deviation = rows.std(axis=0, dtype=np.float64)
    # Below this a column is constant up to the rounding of single precision.
    flat = deviation <= 1e-6 * np.abs(mean)
    return mean, np.where(flat, 1.0, deviation)


def squared_distances(inner: Matrix) -> Matrix:
    """Return those of rows with these inner products."""
    squares = np.diag(inner)
    return np.asarray(np.maximum(squares + squares[:, None] - 2 * inner, 0))


def centre(K: Matrix) -> Matrix:
    """Return the kernel matrix of the same features, centred."""
    mean = K.mean(axis=0)
    return np.asarray(K - mean - mean[:, None] + mean.mean())
