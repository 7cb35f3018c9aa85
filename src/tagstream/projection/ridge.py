"""The fit of P, and the map that it makes.

P and c minimise ‖Y − ΦP − 1cᵀ‖² + ρ‖P‖² over the stored examples (Choice C2: the paper's least
squares has no ρ, and with p near the number of examples sits on the interpolation peak).  The
intercept is what remains of centring both sides, which needs no dense copy of sparse rows.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp

from tagstream.checks import Rows, bounded, expect, expect_counts, expect_keys
from tagstream.core.products import column_products, project_dense, project_sparse
from tagstream.execution.steps import PAUSE, Steps
from tagstream.labels.read import Labels
from tagstream.projection.features import (
    JITTER,
    Features,
    Lift,
    Matrix,
    Singles,
    centre,
    column_gram,
    column_sums,
    in_lines,
    inner_products,
    times_lines,
    transposed_lines,
    transposed_times,
    unit_rows,
    used_columns,
)
from tagstream.projection.gradients import conjugate_gradients, weighted_sum
from tagstream.projection.reduction import Reduction
from tagstream.store.sums import Examples, LocalExamples, Summand, Sums, Tree, count_labels

LIFTED = 4096  # rows that are lifted at a time: their features are wide
KEPT_WIDTH = 1024  # features up to which normal equations are kept
FEW_ROUNDS = 8  # of conjugate gradients from nothing, where some examples are left out
TAKEN_OFF = 0.1  # share of the squares left out by which rounding is judged, if less remains
LARGEST_SINGLE = 1e38  # weight of a sparse feature, kept in single precision
LARGEST_WEIGHT = 1e60  # of P in a file; the inverse of the smallest features there are


@dataclass(frozen=True)
class Projection:
    """The map z = Pᵀφ(x) + c.

    Attributes
    ----------
    P : array of shape (p, q), or (D, q) behind a lift
        For sparse inputs (a + 1, q): a row for each of the ``a`` features that stored examples
        have, and a row of zeros for all others, of which there may be very many.
    c : array of shape (q,)
    lift : Lift or None
    columns : int array of shape (a,), or None
        Of sparse inputs, the features that have a row, in order.
    p : int
        Number of features.
    unit : bool
        Whether rows are divided by their length first.
    low, high : int
        Of sparse inputs, which columns are used: see :class:`Choice`.
    """

    P: npt.NDArray[np.floating[Any]]
    c: Matrix
    lift: Lift | None = None
    columns: npt.NDArray[np.int32] | None = None
    p: int = 0
    unit: bool = False
    low: int = 0
    high: int = 0

    @cached_property
    def _row_of(self) -> npt.NDArray[np.int32]:
        assert self.columns is not None
        row_of = np.full(self.p, len(self.columns), np.int32)
        row_of[self.columns] = np.arange(len(self.columns), dtype=np.int32)
        return row_of

    def rows_of(self, columns: npt.NDArray[np.int32]) -> npt.NDArray[np.floating[Any]]:
        """Return the rows of P that belong to these features of sparse inputs."""
        rows: npt.NDArray[np.floating[Any]] = self.P.take(self._row_of[columns], axis=0)
        return rows

    @property
    def dense(self) -> npt.NDArray[np.floating[Any]]:
        """P with a row for every feature, (p, q), or (D, q) behind a lift."""
        return self.P if self.columns is None else self.P[self._row_of]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        lift = 0 if self.lift is None else self.lift.nbytes
        return self.P.nbytes + self.c.nbytes + lift + 4 * self.p

    def __call__(self, rows: Rows, at_a_time: int = LIFTED) -> Matrix:
        """Return z for each row, (n, q); a row's result does not depend on the other rows."""
        parts = [
            self.apply(self.inputs(rows[first : first + at_a_time]))
            for first in range(0, max(rows.shape[0], 1), at_a_time)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def inputs(self, rows: Rows) -> Rows:
        """Return what P is multiplied with: rows, perhaps of unit length, or their lift."""
        rows = used_columns(rows, self.low, self.high)
        rows = unit_rows(rows) if self.unit else rows
        if self.lift is None:
            return rows
        return self.lift(rows.toarray() if sp.issparse(rows) else rows)

    def apply(self, inputs: Rows) -> Matrix:
        """Return z of :meth:`inputs`."""
        out = np.empty((inputs.shape[0], len(self.c)))
        if self.columns is None:
            project_dense(inputs, self.P, self.c, out)
        else:
            project_sparse(
                inputs.indptr.astype(np.int64), self._row_of.take(inputs.indices),
                inputs.data.astype(np.float32, copy=False), self.P, self.c, out,
            )  # fmt: skip
        # Labels are 0 and 1: what is farther from them than any feature may be says no more.
        return bounded(out)

    @property
    def n_inputs(self) -> int:
        """How many features P is multiplied with."""
        if self.lift is not None:
            return len(self.lift.b)
        return len(self.P) if self.columns is None else self.p

    def dump(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "P": self.P.copy(),
            "c": self.c.copy(),
            "lift": None if self.lift is None else self.lift.dump(),
            "columns": None if self.columns is None else self.columns.copy(),
            "p": self.p,
            "unit": self.unit,
            "low": self.low,
            "high": self.high,
        }

    @classmethod
    def load(cls, state: Any, p: int, q: int, sparse: bool) -> Projection:
        """Return what :meth:`dump` described, for ``p`` features and ``q`` labels."""
        if isinstance(state, dict) and "low" not in state:  # of an older version
            state = {**state, "low": 0, "high": 0}
        keys = ("P", "c", "lift", "columns", "p", "unit", "low", "high")
        expect_keys("the projection", state, *keys)
        expect_counts("low and high", state["low"], state["high"], most=p)
        if type(state["unit"]) is not bool or type(state["p"]) is not int:
            raise ValueError("unit must be true or false, and p a count")
        largest = {"least": -LARGEST_WEIGHT, "most": LARGEST_WEIGHT}
        c = expect("c", state["c"], np.float64, (q,), **largest)
        lift = None if state["lift"] is None else Lift.load(state["lift"], p)
        if not sparse or lift is not None:
            width = p if lift is None else len(lift.b)
            P = expect("P", state["P"], np.float64, (width, q), **largest)
            return cls(P, c, lift, unit=state["unit"])
        columns = expect("columns", state["columns"], np.int32, (None,))
        if (np.diff(columns, prepend=-1) <= 0).any() or columns.max(initial=0) >= p:
            raise ValueError(f"columns must rise within 0 to {p - 1}")
        P = expect("P", state["P"], np.float32, (len(columns) + 1, q))
        if P[-1].any():
            raise ValueError("P must be zero for features that no example has")
        return cls(P, c, None, columns, p, state["unit"], state["low"], state["high"])

    def kept(self, columns: list[int]) -> Projection:
        """Return the same map with some of the labels only."""
        return replace(self, P=np.ascontiguousarray(self.P[:, columns]), c=self.c[columns])

    def turned(self, C: Matrix) -> Projection:
        """Return the map into other coordinates of labels, C (r, q) times these."""
        P = self.P @ C.T.astype(self.P.dtype)  # single where P is
        return replace(self, P=np.ascontiguousarray(P), c=C @ self.c)

    def grown(self, q: int) -> Projection:
        """Return the same map with further labels, of which nothing is known yet: z = 0."""
        more = q - len(self.c)
        return replace(self, P=np.pad(self.P, ((0, 0), (0, more))), c=np.pad(self.c, (0, more)))


def _of_columns(
    P: Matrix, c: Matrix, columns: npt.NDArray[np.int32], p: int, unit: bool = False
) -> Projection:
    """Return the projection of sparse inputs from the rows of P that are not zero."""
    rows = np.zeros((len(P) + 1, P.shape[1]), np.float32)
    # The weights of very small features may leave the range of single precision.
    np.clip(P, -LARGEST_SINGLE, LARGEST_SINGLE, out=rows[:-1], casting="same_kind")
    return Projection(rows, c, None, columns, p, unit)


def _weighted(weights: Matrix, P: npt.NDArray[np.floating[Any]]) -> Matrix:
    """Return weightsᵀP, of single numbers too in double precision, without a copy of them."""
    if P.dtype != np.float32:
        return np.asarray(weights @ P)
    out = np.zeros(P.shape[1])
    weighted_sum(weights, P, out)
    return out


class Equations(NamedTuple):
    """Normal equations, and what else follows from the same pass.

    Attributes
    ----------
    inner, right : arrays of shape (p, p) and (p, q)
        X̃ᵀX̃ and X̃ᵀT, of a kernel's features as they are.
    mid : array of shape (p,)
        Mean of the features.
    variances : array of shape (p,)
        Sums of their squares, centred.
    rounding : float
        About how far below zero rounding leaves the eigenvalues.
    """

    inner: Matrix
    right: Matrix
    mid: Matrix
    variances: Matrix
    rounding: float


class Spread(NamedTuple):
    """How the inputs of a fit are spread, for those who learn on between fits.

    Attributes
    ----------
    squares : array of shape (p,)
        Sums of squares of what P is multiplied with, over all examples: centred, if dense.
    shift, factor : arrays of shape (p,), or None
        Dense inputs are (x − shift)·factor.  None: they are sparse.
    mean, deviation : arrays of shape (p,), or None
        Of dense rows.
    n : int
        How many examples there were.
    """

    squares: Matrix
    shift: Matrix | None
    factor: Matrix | None
    mean: Matrix | None
    deviation: Matrix | None
    n: int = 0

    @property
    def columns(self) -> tuple[Matrix, Matrix] | None:
        """Mean and deviation of dense columns, if rows are dense."""
        return None if self.mean is None or self.deviation is None else (self.mean, self.deviation)

    def as_they_are(self) -> Spread:
        """Return that of the same inputs, neither centred nor scaled."""
        if self.shift is None or self.factor is None:
            return self
        squares = self.squares / self.factor**2 + self.n * self.shift**2
        return self._replace(
            squares=squares, shift=np.zeros(len(squares)), factor=np.ones(len(squares))
        )


class Design:
    """Examples for a regression: features minus their mean, X̃, and targets; neither is formed.

    Sums run over leaves of examples in double precision, so X may be sparse, and the features of a
    lift are made leaf by leaf and never take more room than one.  With a kernel, X̃L⁻ᵀ takes the
    place of X̃ everywhere (:class:`~tagstream.projection.features.Features`).  Targets are labels
    minus their mean, or what a reduction makes of them.

    Whatever passes over the examples does so in steps.

    Parameters
    ----------
    examples : Examples
    features : Features
    counts : tuple of arrays
        What :func:`~tagstream.store.sums.count_labels` says of them.
    reduction : Reduction, optional
    before : Tree, optional
        Equations of the same features and fewer of the examples, to go on from.

    Attributes
    ----------
    n, p : int
        Number of examples and of features.
    primal : bool
        Whether equations of features are shorter than those of examples.
    limits : Limits
        From which sizes on equations are solved in another way.
    """

    _all: Design | None = None  # of a design that leaves some out: the one that does not,
    _left: Examples | None = None  # and what is left out,
    _squares_off: float | None = None  # the squares of whose features are these

    def __init__(
        self,
        examples: Examples,
        features: Features,
        counts: Sums,
        reduction: Reduction | None = None,
        before: Tree | None = None,
    ) -> None:
        self.features, self.limits = features, examples.limits
        self.n, self.p = len(examples), features.n_features
        self.primal = self.p <= self.n
        self.examples, self.reduction = examples, reduction
        self.masked, self._counts = False, counts
        self.targets: Targets
        if reduction is None:
            self.masked = bool(counts[2][0])
            self._centre()
        else:  # what is not known counts as the mean, so that all directions share one matrix
            self.mean = np.zeros(reduction.r)
            self.targets = reduction.targets
        # Wide sparse rows, and labels that are not all known, are passed over many times.
        keep = self.masked or features.columns is not None
        self._X = examples.map(features, keep, dear=features.lift is not None)
        self._plain = reduction is None and not self.masked
        keeps = self._plain and self.primal and self.p <= KEPT_WIDTH
        self._before = before if keeps else None
        self._moments: tuple[Matrix, Matrix] | None = None
        self._sums: Sums | None = None  # what equations are made of
        self._equations: Equations | None = None

    def _centre(self) -> None:
        """Take the mean of the labels for what the targets are centred at."""
        self.n_known = np.maximum(self._counts[1], 1)
        self.mean = self._counts[0] / self.n_known
        self.targets = partial(_targets, self.mean)

    def without(self, left: Examples) -> Design:
        """Return the design of all other examples, of the same features.

        Sums over them are those over all minus those over the ones that are left out, so that
        nothing is passed over twice where the sums are kept.
        """
        made = copy(self)
        made._all, made._left = self, left
        made.n -= len(left)
        made._moments = made._sums = made._equations = made._squares_off = None
        if self._counts:
            less = count_labels(*left.every(), None)
            made._counts = tuple(a - b for a, b in zip(self._counts, less, strict=True))
            made._centre()
        return made

    def _sum(self, summand: Summand, before: Tree | None = None) -> Steps[Sums]:
        """Return the sum of ``summand(features, labels, None)`` over the examples."""
        sums = yield from self._X.summing(summand, before=before)
        if self._left is None:
            return sums
        rows, labels = self._left.every()
        less = summand(self.features(rows), labels, None)
        return tuple(a - b for a, b in zip(sums, less, strict=True))

    @classmethod
    def of(
        cls,
        examples: Examples,
        features: Features,
        reduction: Reduction | None = None,
        before: Tree | None = None,
    ) -> Steps[Design]:
        """Return that of examples and features, in steps."""
        counts: Sums = ()
        if reduction is None:
            counts = yield from examples.summing(count_labels)
        return cls(examples, features, counts, reduction, before)

    @property
    def q(self) -> int:
        """Number of targets."""
        return len(self.mean)

    def middle(self) -> Steps[Matrix]:
        """Return the mean of the features."""
        return (yield from self.moments())[0]

    def moments(self) -> Steps[tuple[Matrix, Matrix]]:
        """Return the mean of the features, and the diagonal of X̃ᵀX̃."""
        if self._moments is None:
            total, squares = yield from self._sum(_moments)
            mid = total / self.n
            self._moments = mid, np.maximum(squares - self.n * mid**2, 0.0)
        return self._moments

    def gram(self) -> tuple[Matrix, float]:
        """Return X̃X̃ᵀ, and about how far below zero rounding leaves its eigenvalues."""
        inner = inner_products(self.features(self.examples.every()[0]))
        return centre(inner), 1e-12 * float(np.trace(inner))

    def equations(self) -> Steps[Equations]:
        """Return X̃ᵀX̃ and X̃ᵀT with what else follows from the same pass; :func:`fit` changes them.

        Where all is known, T may as well be the labels as they are, which do not change when
        others come.
        """
        if self._equations is not None:
            return self._equations
        inner, right, total, sums = yield from self._summed_equations()
        mid, kernel = total / self.n, self.features.kernel
        # What is taken off leaves its own rounding errors, however little remains.
        squares = max(float(np.trace(inner)), TAKEN_OFF * self._taken_off())
        rounding = squares * (1e-12 if kernel is None else 1e-15 / JITTER)
        inner = inner - self.n * np.outer(mid, mid)
        right = right - np.outer(mid, sums)
        variances = np.maximum(np.diag(inner), 0.0)
        self._equations = Equations(inner, right, mid, variances, rounding)
        return self._equations

    def _taken_off(self) -> float:
        """Return the squares of the features that are left out."""
        if self._left is None:
            return 0.0
        if self._squares_off is None:
            self._squares_off = float(column_sums(self.features(self._left.every()[0]))[1].sum())
        return self._squares_off

    def _summed_equations(self) -> Steps[Sums]:
        """Return the sums that :meth:`equations` are made of."""
        if self._sums is not None:
            return self._sums
        before, targets = self._before, _labels if self._plain else self.targets
        if self._all is not None and self._left is not None and self._plain:
            sums = yield from self._all._summed_equations()
            rows, labels = self._left.every()
            less = _equations(targets, self.features(rows), labels, None)
            self._squares_off = float(np.trace(less[0]))
            return tuple(a - b for a, b in zip(sums, less, strict=True))
        if before is not None:  # labels that are new since: nobody had them
            for part in (RIGHT, TARGETS):
                before.widen(part, self.q)
        self._sums = yield from self._sum(partial(_equations, targets), before)
        return self._sums

    def transposed(self, R: Matrix) -> Steps[Matrix]:
        """Return X̃ᵀR for R of shape (n, q)."""
        out, total = yield from self._X.summing(_transposed, along=R)
        mid = yield from self.middle()
        return self.features.turned(out - np.outer(mid, total))

    def times(self, P: Matrix) -> Steps[Matrix]:
        """Return X̃P, (n, q)."""
        P = self.features.original(P)
        out = yield from self._X.gathering(partial(_times, P))
        mid = yield from self.middle()
        return np.asarray(out - mid @ P)

    def masked_right(self) -> Steps[Matrix]:
        """Return X̃ᵀT and below it the sums of T, (p + 1, q)."""
        out, total = yield from self._sum(partial(_masked_right, self.targets))
        mid = yield from self.middle()
        return np.vstack([self.features.turned(out - np.outer(mid, total)), total])

    def masked_normal(self, V: Matrix, ridge: float) -> Steps[Matrix]:
        """Return the normal equations' left side for weights P and shifts s, V = [P; s]."""
        P, s = self.features.original(V[:-1]), V[-1]
        mid = yield from self.middle()
        out, total = yield from self._sum(partial(_masked_normal, P, s - mid @ P))
        out = self.features.turned(out - np.outer(mid, total))
        return np.vstack([out + ridge * V[:-1], total])

    def right(self) -> Steps[Singles]:
        """Return XᵀT in single precision; columns of T sum to zero, so this is X̃ᵀT."""
        return (yield from self._sum(partial(_single_right, self.targets)))[0]

    def residual(self, P: Singles, shift: Singles) -> Steps[Singles]:
        """Return X̃ᵀ(T − X̃P) in single precision."""
        return (yield from self._sum(partial(_single_residual, self.targets, P, shift)))[0]

    def applied(self, D: Singles, shift: Singles) -> Steps[tuple[Singles, Matrix]]:
        """Return X̃ᵀX̃D in single precision, and ‖X̃D‖² of each column."""
        A, squares = yield from self._sum(partial(_single_applied, D, shift))
        return A, squares

    def squares(self, D: Singles, shift: Singles) -> Steps[Matrix]:
        """Return ‖X̃D‖² of each column."""
        return (yield from self._sum(partial(_single_squares, D, shift)))[0]

    def target_squares(self) -> Steps[float]:
        """Return ‖T‖²."""
        (squares,) = yield from self.examples.summing(partial(_target_squares, self.targets))
        total = float(squares.sum())
        if self._left is not None:
            total -= float((self.targets(self._left.every()[1]) ** 2).sum())
        return total


# What is summed over leaves: plain functions, which can be sent to where the examples are.

Targets = Callable[[Labels], Matrix]


def _targets(mean: Matrix, labels: Labels) -> Matrix:
    T = labels.Y - mean
    return T if labels.known is None else np.where(labels.known, T, 0.0)


def _labels(labels: Labels) -> Matrix:
    return labels.Y.astype(np.float64)


def _moments(X: Any, labels: Labels, _: None) -> tuple[Matrix, ...]:
    return column_sums(X)


RIGHT, TARGETS = 1, 3  # which of these have a column for each label


def _equations(targets: Targets, X: Any, labels: Labels, _: None) -> tuple[Matrix, ...]:
    X, T = X.astype(np.float64), targets(labels)
    total = np.asarray(X.sum(axis=0)).ravel()
    return column_gram(X), transposed_times(X, T), total, T.sum(axis=0)


def _target_squares(targets: Targets, X: Any, labels: Labels, _: None) -> tuple[Matrix, ...]:
    return (np.array([(targets(labels) ** 2).sum()]),)


def _transposed(X: Any, labels: Labels, R: Matrix) -> tuple[Matrix, ...]:
    return (transposed_times(X, R), R.sum(axis=0))


def _times(P: Matrix, X: Any) -> Matrix:
    return np.asarray(X @ P)


def _masked_right(targets: Targets, X: Any, labels: Labels, _: None) -> tuple[Matrix, ...]:
    T = targets(labels)
    return (transposed_times(X, T), T.sum(axis=0))


def _masked_normal(P: Matrix, shift: Matrix, X: Any, labels: Labels, _: None) -> tuple[Matrix, ...]:
    R = X @ P + shift
    R = R if labels.known is None else R * labels.known
    return (transposed_times(X, R), R.sum(axis=0))


def _single_right(targets: Targets, X: Any, labels: Labels, _: None) -> tuple[Any, ...]:
    return (transposed_lines(X, in_lines(targets(labels))),)


def _single_residual(
    targets: Targets, P: Singles, shift: Singles, X: Any, labels: Labels, _: None
) -> tuple[Any, ...]:
    R = in_lines(targets(labels))
    R -= times_lines(X, P, shift)
    return (transposed_lines(X, R),)


def _single_applied(D: Singles, shift: Singles, X: Any, labels: Labels, _: None) -> tuple[Any, ...]:
    R = times_lines(X, D, shift)
    return transposed_lines(X, R), _column_squares(R)


def _single_squares(D: Singles, shift: Singles, X: Any, labels: Labels, _: None) -> tuple[Any, ...]:
    return (_column_squares(times_lines(X, D, shift)),)


def _column_squares(R: Singles) -> Matrix:
    out = np.zeros(R.shape[1])
    column_products(R, R, out)
    return out


def fit_without(design: Design, left: Examples, at: Any, ridge: float) -> Steps[Projection]:
    """Return the projection of the examples of a design without some of them.

    The design is not used up: :func:`fit` may follow, and shares what was summed.

    Parameters
    ----------
    design : Design
    left : Examples
        What is left out.
    at : int array
        The positions of these among the examples.
    ridge : float
    """
    features = design.features
    if features.whole and not design.masked:
        kept = np.delete(np.arange(design.n), at)
        labels = design.examples.every()[1]
        known = None if labels.known is None else labels.known[kept]
        T = Labels(labels.Y[kept], known)
        fewer = design.without(left)
        P, shift, mid, variances = yield from _solve_whole(fewer, ridge, fewer.targets(T), kept)
        return _projection(fewer, P, shift, mid, variances)[0]
    if design.primal or design.n - len(left) > design.limits.direct:
        return (yield from fit(design.without(left), ridge, rounds=FEW_ROUNDS))[0]
    kept = np.delete(np.arange(design.n), at)
    others = LocalExamples.of(*design.examples.take(kept), limits=design.limits)
    fewer = yield from Design.of(others, features, design.reduction)
    return (yield from fit(fewer, ridge))[0]


def fit(
    design: Design, ridge: float, *, start: Projection | None = None, rounds: int | None = None
) -> Steps[tuple[Projection, Spread]]:
    """Return the projection of all examples of a design, which is used up, and their spread.

    In steps, as all that passes over the examples.  ``start`` is an earlier projection of the same
    kind, from which an iterative solution sets out; the direct ones do not need it.  ``rounds``
    overrules how many steps such a solution takes.
    """
    P, shift, mid, variances = yield from _solve(design, ridge, start, rounds)
    return _projection(design, P, shift, mid, variances)


def _projection(
    design: Design, P: Any, shift: Matrix, mid: Matrix, variances: Matrix
) -> tuple[Projection, Spread]:
    """Return what was solved for as a projection of rows, and the spread of the examples."""
    features = design.features
    P = np.ascontiguousarray(P)  # in the one order kernels are compiled for
    c = design.mean + shift - _weighted(mid + features.offset, P)
    mean, deviation = features.moments or (None, None)
    if features.lift is not None:
        made = Projection(P, c, features.lift, unit=features.unit)
        return made, Spread(variances, mid, np.ones(len(mid)), mean, deviation, design.n)
    if features.columns is not None:
        p = design.examples.shape[1]
        squares = np.zeros(p)
        squares[features.columns] = variances + design.n * mid**2
        if features.deviation is not None:
            P /= features.deviation[:, None]
            squares[features.columns] *= features.deviation**2
        order = np.argsort(features.columns)
        made = _of_columns(P.take(order, axis=0), c, features.columns[order], p, features.unit)
        made = replace(made, low=features.low, high=features.high)
        return made, Spread(squares, None, None, None, None, design.n)
    assert features.middle is not None
    divisor = np.ones(len(mid)) if features.deviation is None else features.deviation
    P /= divisor[:, None]
    middle = features.middle + mid * divisor
    spread = Spread(variances, middle, 1 / divisor, mean, deviation, design.n)
    return Projection(P, c, unit=features.unit), spread


def _solve(
    X: Design, ridge: float, last: Projection | None, rounds: int | None = None
) -> Steps[tuple[Any, Matrix, Matrix, Matrix]]:
    """Minimise ‖T − X̃P − 1sᵀ‖² + ρ‖P‖² over the known entries of T.

    Return P, s, and the mean and the centred squares of the features.  An iterative solution sets
    out from the ``last`` projection, if that is of the same kind.

    When all is known, s = 0 and P solves (X̃ᵀX̃ + ρI)P = X̃ᵀT.  Otherwise each label has
    equations of its own, solved for all labels at once by conjugate gradients, for which the
    common solution is the preconditioner.
    """
    ridge = max(ridge, 1e-300)
    none = np.zeros(X.q)
    if X.features.whole and not X.masked:
        return (yield from _solve_whole(X, ridge, X.targets(X.examples.every()[1])))
    if X.p <= X.limits.primal if X.primal else X.n <= X.limits.direct:
        if X.primal:
            inner, right, mid, variances, rounding = yield from X.equations()
            yield PAUSE
            if X.features.kernel is not None and not X.masked:
                # ‖L⁻ᵀP‖² = PᵀKP: nothing needs to be turned.
                inner += max(ridge, rounding) * X.features.kernel
                factor = scipy.linalg.cho_factor(inner, overwrite_a=True)
                yield PAUSE
                return np.asarray(scipy.linalg.cho_solve(factor, right)), none, mid, variances
            inner, right = X.features.turned_both(inner), X.features.turned(right)
        else:
            inner, rounding = X.gram()
            mid, variances = yield from X.moments()
            right = X.targets(X.examples.every()[1])
        ridge = max(ridge, rounding)
        inner[np.diag_indices(len(inner))] += ridge
        yield PAUSE
        factor = scipy.linalg.cho_factor(inner, overwrite_a=True)
        P = np.asarray(scipy.linalg.cho_solve(factor, right))
        if not X.primal:
            P = yield from X.transposed(P)
        if not X.masked:
            return X.features.original(P), none, mid, variances
        start, tolerance, rounds = P, 1e-10, 500

        def apply_inverse(B: Matrix) -> Steps[Matrix]:
            if X.primal:
                return np.asarray(scipy.linalg.cho_solve(factor, B))
            products = yield from X.times(B)
            fitted = yield from X.transposed(scipy.linalg.cho_solve(factor, products))
            return np.asarray((B - fitted) / ridge)

    else:
        mid, variances = yield from X.moments()
        ridge = max(ridge, 1e-30)  # in single precision
        # A constant column has nothing but rounding errors to offer.
        flat = variances <= 1e-6 * X.n * mid**2
        diagonal = np.where(flat, np.inf, variances + ridge)
        found = _weights(last, X.features)
        cold, start = found is None, np.zeros((X.p, X.q)) if found is None else found
        start[flat] = 0.0
        tolerance = 1e-3
        if rounds is None:
            rounds = X.limits.rounds if cold or X.masked else X.limits.warm_rounds
        if not X.masked and X.features.kernel is None:  # turned features are made in double
            P = in_lines(start)
            spared = 0.0 if not cold and X.n > X.limits.many_examples else tolerance
            yield from conjugate_gradients(X, P, diagonal, mid, ridge, rounds, spared)
            return P[:, : X.q], none, mid, variances
        diagonal = diagonal[:, None]

        def apply_inverse(B: Matrix) -> Steps[Matrix]:
            return _now(B / diagonal)

    def precondition(V: Matrix) -> Steps[Matrix]:
        inverse = yield from apply_inverse(V[:-1])
        return np.vstack([inverse, V[-1] / X.n_known])

    right = yield from X.masked_right()
    V = yield from _conjugate_gradients(
        lambda V: X.masked_normal(V, ridge), precondition,
        right, np.vstack([start, none]), tolerance, rounds,
    )  # fmt: skip
    return X.features.original(V[:-1]), V[-1], mid, variances


def _weights(last: Projection | None, features: Features) -> npt.NDArray[Any] | None:
    """Return the weights that sparse features have in a projection; None of other kinds."""
    if features.columns is None or last is None or last.columns is None:
        return None
    weights = last.rows_of(features.columns)
    if features.deviation is not None:
        weights *= features.deviation[:, None]
    return weights


def _solve_whole(
    X: Design, ridge: float, T: Matrix, kept: Any = None
) -> Steps[tuple[Matrix, Matrix, Matrix, Matrix]]:
    """Do the same of a kernel with all examples, whose features Φ are K itself, and targets T.

    Or of some of them, whose positions are ``kept``; the others have no weight.

    With K̃ the centred K, P = L⁻ᵀX̃ᵀ(K̃ + ρI)⁻¹T = (K̃ + ρI)⁻¹T, as X̃ᵀ = LᵀC and C, which centres,
    leaves both sides as they are.  So there is nothing to sum.
    """
    K = X.features.kernel
    assert K is not None
    n, inner = len(K), K
    if kept is not None:
        K, inner = K[kept], K[np.ix_(kept, kept)]
    mid, rounding = K.mean(axis=0), 1e-12 * float(np.trace(inner))
    variances = ((K - mid) ** 2).sum(axis=0)
    inner = centre(inner)
    inner[np.diag_indices(len(inner))] += max(ridge, rounding)
    yield PAUSE
    factor = scipy.linalg.cho_factor(inner, overwrite_a=True)
    P = np.asarray(scipy.linalg.cho_solve(factor, T))
    if kept is not None:
        some, P = P, np.zeros((n, X.q))
        P[kept] = some
    return P, np.zeros(X.q), mid, variances


def _now(value: Any) -> Steps[Any]:
    """Return what needs no steps."""
    yield PAUSE
    return value


def _conjugate_gradients(
    apply: Callable[[Matrix], Steps[Matrix]],
    precondition: Callable[[Matrix], Steps[Matrix]],
    right: Matrix,
    start: Matrix,
    tolerance: float,
    rounds: int,
) -> Steps[Matrix]:
    """Solve one positive definite system per column, all columns in step."""

    def products(A: Matrix, B: Matrix) -> Matrix:
        out = np.zeros(A.shape[1])
        column_products(A, B, out)
        return out

    def share(A: Matrix, B: Matrix) -> Matrix:
        return np.divide(A, B, out=np.zeros_like(A), where=B > 0)

    V = start.copy()
    R = right - (yield from apply(V))
    Z = yield from precondition(R)
    D = Z.copy()
    energy = products(R, Z)
    scaled = yield from precondition(right)
    enough = tolerance**2 * np.maximum(products(right, scaled), 1e-300)
    for _ in range(rounds):
        if (energy <= enough).all():
            break
        A = yield from apply(D)
        length = share(energy, products(D, A))
        V += length * D
        A *= length
        R -= A
        Z = yield from precondition(R)
        new = products(R, Z)
        D *= share(new, energy)
        D += Z
        energy = new
    return V


def first_block(examples: Examples) -> Projection:
    """Return the paper's projection: plain least squares, of least norm where p ≥ n."""
    rows, labels = examples.every()
    X, columns = rows, None
    if sp.issparse(rows):  # features that no row has get no weight
        columns = np.flatnonzero(rows.getnnz(axis=0)).astype(np.int32)
        X = rows[:, columns].toarray()
    P = np.zeros((X.shape[1], labels.Y.shape[1]))
    if P.size:  # somebody has named a label
        # Without a cutoff for the rank, copies of a column get weights of 10¹².
        cutoff = max(rows.shape) * float(np.finfo(np.float64).eps)
        P = scipy.linalg.lstsq(X.astype(np.float64), labels.Y.astype(np.float64), cond=cutoff)[0]
    c = np.zeros(P.shape[1])
    if columns is None:
        return Projection(np.ascontiguousarray(P), c)
    return _of_columns(P, c, columns, rows.shape[1])


def leading_directions(examples: Examples, d: int) -> Matrix:
    """Return the d directions of largest variance of the labels, an orthonormal (q, d)."""
    yes, known, _ = examples.sum(count_labels)
    mean = yes / np.maximum(known, 1)
    (covariance,) = examples.sum(partial(_covariance, mean))
    q = len(mean)
    U: Matrix = scipy.linalg.eigh(covariance, subset_by_index=(q - d, q - 1))[1][:, ::-1]
    return np.ascontiguousarray(U)


def _covariance(mean: Matrix, rows: Rows, labels: Labels, _: None) -> tuple[Matrix, ...]:
    T = _targets(mean, labels)
    return (T.T @ T,)
