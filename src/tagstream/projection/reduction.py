"""Many labels as few directions: an item's labels y ≈ m + Bb with b = Bᵀ(y − m).

With q labels, P has (p, q) numbers and the metric (q, d); both are more than a learner can have
when labels go into the thousands.  Ridge regression is linear in its targets: regressing b, (r,),
gives W = PB, (p, r), and P in as far as labels vary along the columns of B (q, r), which are
orthonormal and the r ≤ 512 directions of largest variance of the labels.  The metric is V = BR: a
round needs Bᵀz and Bᵀy only.  So regression, rounds and codes live in r dimensions, and only the
head, which speaks about labels one by one, sees z = m + B(Wᵀx + c).

B is found by a randomised range finder (Halko, Martinsson, Tropp 2011): from random Ω the products
Tᵀ(TΩ), T = Y − 1mᵀ, made twice and orthonormalised each time, turn towards the leading directions,
and the eigenvectors of their small covariance put them in order.  Where Ω are the directions that
were found in half of the examples, or as many as there are examples, once does as well.  Labels are
few per item, so a product costs their number times r; nothing of size q × q is formed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from tagstream.checks import Rows, expect, expect_keys
from tagstream.core.products import add_rows, project_dense, spread_rows
from tagstream.labels.read import Labels
from tagstream.limits import LIMITS
from tagstream.projection.features import Matrix, Singles
from tagstream.store.sums import Examples, count_labels

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Reduction"]

SPARE = 8  # directions that are looked for beyond those that are kept
NOTHING = 1e-10  # of the largest variance: a direction with less has only rounding errors
MASKED = 256  # rows with unknown labels that are made dense at a time
LONGEST = 1.001  # column of B in a file, which is made in double precision and kept in single


@dataclass(frozen=True, eq=False)
class Reduction:
    """Labels in r coordinates, and back.

    Labels that came after B was made have no row in it: b knows nothing of them.

    Attributes
    ----------
    B : float32 array of shape (q, r)
        Orthonormal columns, that of largest variance first.
    middle : array of shape (q,)
        m, the mean of the labels.
    """

    B: Singles
    middle: Matrix

    @classmethod
    def empty(cls) -> Self:
        """Return the reduction before there are examples: no coordinate."""
        return cls(np.zeros((0, 0), np.float32), np.zeros(0))

    @classmethod
    def of(cls, examples: Examples, seed: int, last: Self | None = None) -> Self:
        """Return that to the leading directions of the labels; the seed is that of Ω.

        There are no more directions than examples, nor any without variance, but at least one.
        Those of the ``last`` reduction, of fewer examples and perhaps labels, are where to begin.
        """
        yes, known, _ = examples.sum(count_labels)
        middle = yes / np.maximum(known, 1)
        q = len(middle)
        rank = examples.limits.rank
        n = min(rank + SPARE, len(examples), q)
        Q = np.zeros((q, n))
        begun = 0 if last is None else min(last.r, n)
        if last is not None:
            Q[: len(last.B), :begun] = last.B[:, :begun]
        Q[:, begun:] = np.random.default_rng(seed).standard_normal((q, n - begun))
        for _ in range(1 if begun == rank or n == len(examples) else 2):
            (Q,) = examples.sum(partial(_products, middle, Q))
            Q = scipy.linalg.qr(Q, mode="economic", overwrite_a=True, check_finite=False)[0]
            Q = np.ascontiguousarray(Q)
        (inner,) = examples.sum(partial(_inner, middle, Q))
        variances, U = scipy.linalg.eigh(inner, driver="evd")
        r = max(1, min(rank, int((variances > NOTHING * variances[-1]).sum())))
        B = Q @ U[:, : -r - 1 : -1]
        return cls(np.ascontiguousarray(B, np.float32), middle)

    def centred(self, examples: Examples) -> Self:
        """Return the same with the present mean of the labels."""
        yes, known, _ = examples.sum(count_labels)
        made = replace(self, middle=(yes / np.maximum(known, 1))[: len(self.B)])
        vars(made)["rows"] = self.rows  # of the same B
        return made

    def kept(self, columns: list[int]) -> Self:
        """Return the same with some of the labels only; B is then no longer orthonormal."""
        there = [j for j in columns if j < len(self.B)]
        if there != columns[: len(there)]:  # a label without a row came before one with a row
            rows = np.zeros((len(columns), self.B.shape[1]), np.float32)
            middle = np.zeros(len(columns))
            place = [i for i, j in enumerate(columns) if j < len(self.B)]
            rows[place], middle[place] = self.B[there], self.middle[there]
            return replace(self, B=rows, middle=middle)
        return replace(self, B=self.B[there], middle=self.middle[there])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return 2 * self.B.nbytes + self.middle.nbytes

    @property
    def r(self) -> int:
        """Number of coordinates."""
        return int(self.B.shape[1])

    @cached_property
    def rows(self) -> Singles:
        """Bᵀ, (r, q), in the order in which it is multiplied with."""
        return np.ascontiguousarray(self.B.T)

    @property
    def targets(self) -> partial[Matrix]:
        """The function from labels to coordinates, to be sent to where labels are.

        An entry that is not known counts as the mean.
        """
        return partial(_coordinates, self.B, self.middle, self._origin)

    @cached_property
    def _origin(self) -> Matrix:
        """The coordinates of an item without labels, −Bᵀm."""
        return _origin(self.B, self.middle)

    def pairs(self, Z: Matrix, C: Matrix, mine: Labels, theirs: Labels) -> tuple[Matrix, Matrix]:
        """Return the coordinates of the labels of items, and of those of their neighbours.

        Of labels that are not known of both, each is where the item is: they pull nothing.

        Parameters
        ----------
        Z, C : arrays of shape (n, q) and (n, r)
            The items in label space, and their coordinates.
        mine, theirs : Labels of n items
        """
        if mine.known is None and theirs.known is None:
            return self.targets(mine), self.targets(theirs)
        q = len(self.B)
        known = np.ones(mine.Y.shape, np.bool_) if mine.known is None else mine.known
        known = (known if theirs.known is None else known & theirs.known)[:, :q]
        out = np.empty_like(C), np.empty_like(C)
        for labels, coordinates in zip((mine, theirs), out, strict=True):
            T = np.where(known, labels.Y[:, :q], Z[:, :q]) - self.middle
            project_dense(T, self.B, np.zeros(self.r), coordinates)
        return out

    def labels(self, C: Matrix, q: int) -> Matrix:
        """Return z = m + Bb of coordinates b (n, r), in ``q`` labels; 0 for those without a row."""
        if q == len(self.B):
            Z = np.empty((len(C), q))
            project_dense(C, self.rows, self.middle, Z)
            return Z
        Z = np.zeros((len(C), q))
        Z[:, : len(self.B)] = self.labels(C, len(self.B))
        return Z

    def turn(self, to: Self) -> Matrix:
        """Return the matrix, (r′, r), that takes coordinates here to those of another reduction."""
        # Labels that are new since are zero in all coordinates here.
        old = self.B.astype(np.float64)
        return np.asarray(to.B[: len(old)].astype(np.float64).T @ old)

    # ------------------------------------------------------------------ state
    def dump(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {"B": self.B.copy(), "middle": self.middle.copy()}

    @classmethod
    def load(cls, state: Any, q: int) -> Self:
        """Return what :meth:`dump` described, for ``q`` labels."""
        expect_keys("the reduction", state, "B", "middle")
        B = expect("B", state["B"], np.float32, (None, None), least=-LONGEST, most=LONGEST)
        most = LIMITS.many_labels
        if len(B) > q or B.shape[1] > most:
            raise ValueError(
                f"B must have at most {q} rows and {most} columns, got {B.shape[0]} and "
                f"{B.shape[1]}"
            )
        middle = expect("middle", state["middle"], np.float64, (len(B),), least=0, most=1)
        return cls(B, middle)


# What is summed over leaves: plain functions, which can be sent to where the examples are.


def _masked(middle: Matrix, labels: Labels) -> Matrix:
    assert labels.known is not None
    q = len(middle)
    return np.where(labels.known[:, :q], labels.Y[:, :q] - middle, 0.0)


def _origin(B: Any, middle: Matrix) -> Matrix:
    out = np.empty((1, B.shape[1]))
    project_dense(-middle[None], B, np.zeros(B.shape[1]), out)
    return np.asarray(out[0])


def _coordinates(B: Any, middle: Matrix, origin: Matrix, labels: Labels) -> Matrix:
    """Return TB, (n, r), for B of single or double precision; unknown entries of T are 0."""
    out = np.empty((len(labels.Y), B.shape[1]))
    if labels.known is None:
        add_rows(labels.Y, B, origin, out)
        return out
    for part in _slices(len(out)):
        some = Labels(labels.Y[part], labels.known[part])
        project_dense(_masked(middle, some), B, np.zeros(B.shape[1]), out[part])
    return out


def _products(middle: Matrix, Q: Matrix, rows: Rows, labels: Labels, _: None) -> tuple[Matrix, ...]:
    """Return Tᵀ(TQ), (q, n)."""
    A = _coordinates(Q, middle, _origin(Q, middle), labels)
    out = np.zeros(Q.shape)
    if labels.known is None:
        spread_rows(labels.Y, A, out)
        out -= np.outer(middle, A.sum(axis=0))
        return (out,)
    for part in _slices(len(A)):
        out += _masked(middle, Labels(labels.Y[part], labels.known[part])).T @ A[part]
    return (out,)


def _inner(middle: Matrix, Q: Matrix, rows: Rows, labels: Labels, _: None) -> tuple[Matrix, ...]:
    A = _coordinates(Q, middle, _origin(Q, middle), labels)
    return (A.T @ A,)


def _slices(n: int) -> list[slice]:
    return [slice(i, i + MASKED) for i in range(0, n, MASKED)]
