"""The choice of scaling, lift and ridge, by predicting each stored example from the others.

With the centred kernel matrix K = ΦΦᵀ = UΛUᵀ of the features, ridge regression is the smoother

    H = U diag(Λ/(Λ + ρ))Uᵀ + 11ᵀ/n

whose fitted values are F = HY.  Without example i, the fit at x_i is
L_i = Y_i − (Y_i − F_i)/(1 − H_ii), and the fit at any other x_j is F_j − H_ji(Y_i − L_i).  So there
is a closed form for what the neighbours of i would vote for had i never been seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.linalg

from tagstream.checks import Positions
from tagstream.core.products import PRIOR
from tagstream.decision import decide
from tagstream.execution.steps import PAUSE, Steps, finish
from tagstream.labels.read import Labels
from tagstream.projection.features import (
    Choice,
    Matrix,
    centre,
    inner_products,
    make_features,
    squared_distances,
)
from tagstream.projection.reduction import Reduction
from tagstream.projection.ridge import Design
from tagstream.store.sums import Examples, Tree

HALVED, FINALISTS = 64, 2  # a sample from which on lifts are ranked on half, and two are kept
THIN = 2  # times as many examples as features, from which on features are the shorter way
BANDWIDTHS = (2.0, 1.2, 0.7, 0.4)  # of a lift, times the median distance
FACTORS = (10**0.5, 10**-0.5, 10.0)  # by which the ridge may be changed
SMALL = 32  # rows of a kernel matrix up to which its eigenvectors cost next to nothing
WEAKEST = 1e-9  # ridge over the trace of a kernel matrix, below which rounding hides it,
SINGLE_WEAKEST = 1e-4  # and from which on single precision is enough to count votes by,
SINGLE_SMALLEST = 1e-30  # unless the ridge itself is near the end of its range
RIDGES = 10.0 ** np.arange(-8, 0.51, 0.25)  # to choose from, times the variance of the features
UNIT = 1e-5  # by which a row of unit length may miss it
SKETCH = 64  # targets by which the ridge is sought: more are added up
INTERPOLATION = 0.05  # share of free residuals below which a fit is not trusted


def choose(
    examples: Examples,
    *,
    scale: str | None,
    lift: str | None,
    ridge: float | str,
    n_neighbors: int,
    rule: float,
    lift_size: int,
    seed: int,
    sample: int | None = None,
    reduction: Reduction | None = None,
    last: Choice | None = None,
    before: Tree | None = None,
    among: Positions | None = None,
    embedded: int = 0,
) -> Steps[tuple[Choice, Design | None]]:
    """Choose scaling and lift on at most ``sample`` evenly spaced examples, and the ridge.

    In steps, from one candidate to the next.  The sample is by default that of the limits.

    Only examples ``among`` some positions are looked at, by default all.  There should be one of
    each content: an example that has a copy is predicted best by the weakest ridge, which tells
    nothing about new ones.  If there are c times as many examples as these, the ridge is c times as
    strong: copies of an error do not cancel out.

    Returned with it is the regression of all the examples, if that was set up on the way: to
    :func:`~tagstream.projection.ridge.fit` it is the larger part of its work.

    A candidate first gets the ridge of least squared error.  The best candidate is that whose
    left-out votes have the highest micro-F1, since what is regressed is not what is wanted in
    the end; and its ridge is then changed if that makes the votes better still.  With every
    doubling beyond the sample a lift takes more time, and luck has had another try: it has to be
    the better by so much more.  With a ``reduction`` all is regressed in its coordinates.

    If the first ``embedded`` columns of sparse rows are an embedding, candidates are all columns,
    the embedding alone, and the others alone.

    ``before`` is given what was summed over all examples, see :class:`Design`.

    Lifts are many.  They are ranked on every second example of the sample, an eighth of the work,
    and the two best are judged on all of it, with the ridges that they had.  Of more than 4,096
    examples the sample has long had its full size, and what was chosen ``last`` is hardly ever
    left: lifts are then looked for near it only (:func:`_nearby`), and one is judged on all.

    At last the ridge of what is not lifted is sought on more than the sample.
    """
    limits = examples.limits
    sample = limits.sample if sample is None else sample
    few = examples.sample(sample, among)
    n = len(examples) if among is None else len(among)
    copies = len(examples) / max(n, 1)
    panel = Panel(few.every()[1], 1, n_neighbors, rule, reduction)
    last = last if n > limits.many_examples else None
    strength = None if ridge == "auto" else float(ridge)
    candidates = [*_candidates(few, scale, lift, lift_size, seed, strength, last)]
    candidates += _blocks(few, scale, lift, lift_size, seed, strength, embedded)
    if len(few) >= HALVED:
        half = Panel(few.every()[1], 2, n_neighbors, rule, reduction)
        n_finalists = FINALISTS if last is None else 1
        candidates = yield from _without_weak_lifts(candidates, half, n_finalists)
    best: dict[bool, Judged] = {}  # without a lift, and with one
    for one in candidates:
        judged, lifted = panel.judge(one), one.choice.lift is not None
        if lifted not in best or judged.votes.rank < best[lifted].votes.rank:  # first of equals
            best[lifted] = judged
        yield PAUSE
    chosen = best[False] if False in best else best[True]
    caution = limits.caution * max(0.0, math.log2(n / sample))
    if len(best) == 2 and best[True].votes.better_than(best[False].votes, caution):
        chosen = best[True]
    found, design = chosen.ridge, None
    if strength is None:
        factor = yield from _change_of_ridge(panel, chosen)
        if n > sample and chosen.choice.lift is None:
            if min(n, examples.shape[1]) > limits.sample or copies > 1:
                some = examples.sample(limits.ridge_sample, among)
                found = yield from _ridge_of_many(some, chosen.choice, lift_size, seed, reduction)
            else:
                found, design = yield from _ridge_of_all(
                    examples, chosen.choice, lift_size, seed, reduction, before
                )
        found *= factor * copies
    return replace(chosen.choice, ridge=found), design


Kernel = Callable[[int], Matrix]  # the kernel matrix of every so many-th example


@dataclass(frozen=True)
class Candidate:
    """What may be chosen.

    Attributes
    ----------
    choice : Choice
        The ridge in it says nothing yet.
    kernel : callable
    X : array of shape (n, p), or None
        The features themselves, where they are dense and not lifted.
    ridge : float or None
        The ridge, if there is one already.
    """

    choice: Choice
    kernel: Kernel
    X: Matrix | None = None
    ridge: float | None = None

    def smoother(self, T: Matrix, step: int) -> Smoother:
        """Return the regression of these targets on every ``step``-th example."""
        if self.X is not None and THIN * self.X.shape[1] <= len(T):
            return Smoother.of_rows(self.X[::step], T)
        return Smoother.of_kernel(centre(self.kernel(step)), T)


@dataclass(frozen=True)
class Judged:
    """A candidate's choice and ridge, the regression with it, and how good its votes are."""

    choice: Choice
    ridge: float
    smoother: Smoother
    votes: Votes


class Panel:
    """The examples that candidates are judged by: every ``step``-th of a sample."""

    def __init__(
        self,
        labels: Labels,
        step: int,
        n_neighbors: int,
        rule: float,
        reduction: Reduction | None,
    ) -> None:
        Y, known = labels.Y[::step], None if labels.known is None else labels.known[::step]
        self._step, self._n_neighbors, self._rule = step, n_neighbors, rule
        self._T = targets(Labels(Y, known), reduction)
        if rule > PRIOR:  # what nobody has gets no vote: of many labels most are so
            some = Y.any(axis=0)
            Y = np.ascontiguousarray(Y[:, some])  # numpy would lay them out by columns
            known = None if known is None else known[:, some]
        self._labels = Labels(Y, known)

    def votes(self, smoother: Smoother, ridge: float) -> Votes:
        """Let the examples' neighbours vote for them, left out one by one."""
        distances = smoother.left_out_distances(ridge)
        return Votes.of(distances, self._labels, self._n_neighbors, self._rule)

    def judge(self, one: Candidate) -> Judged:
        """Judge a candidate, with the ridge it has or that of least validation error."""
        smoother = one.smoother(self._T, self._step)
        ridge = smoother.ridge if one.ridge is None else one.ridge
        return Judged(one.choice, ridge, smoother, self.votes(smoother, ridge))


def _without_weak_lifts(
    candidates: list[Candidate], half: Panel, n_finalists: int
) -> Steps[list[Candidate]]:
    """Return the candidates with the best lifts only, with the ridges they had on half a sample.

    A kernel's ridge is a ratio of noise to signal, which does not depend on how many examples
    there are.  Those of sparse rows and of few features do.
    """
    lifts = [one for one in candidates if one.choice.lift is not None]
    if len(lifts) <= n_finalists:
        return candidates
    judged = []
    for one in lifts:
        judged.append(half.judge(one))
        yield PAUSE
    finalists = sorted(range(len(lifts)), key=lambda i: judged[i].votes.rank)[:n_finalists]
    kept = [one for one in candidates if one.choice.lift is None]
    return kept + [replace(lifts[i], ridge=judged[i].ridge) for i in sorted(finalists)]


def _change_of_ridge(panel: Panel, chosen: Judged) -> Steps[float]:
    """Return the factor by which the ridge is changed, if that makes the votes better."""
    factor, rank = 1.0, chosen.votes.rank
    for other in FACTORS:
        changed = panel.votes(chosen.smoother, other * chosen.ridge).rank
        if changed < rank:
            factor, rank = other, changed
        yield PAUSE
    return factor


def _candidates(
    few: Examples,
    scale: str | None,
    lift: str | None,
    lift_size: int,
    seed: int,
    ridge: float | None,
    last: Choice | None = None,
) -> Iterator[Candidate]:
    """Yield what may be chosen, the simpler ones first; lifts near the ``last``."""
    # Sparse rows are neither standardised nor lifted unless asked: both would fill them in.  Their
    # lengths, which tell long from short texts and little else, may be taken out.
    sparse = few.sparse
    scales = (scale,) if scale != "auto" else (None, "unit") if sparse else (None, "standard")
    kind = lift if lift != "auto" else None if sparse else "kernel"
    plain, inner = _inner_products(few, scales, lift_size, seed)
    squares = [] if kind is None else [squared_distances(K) for K in inner]
    medians = [_median(one) for one in squares]
    if lift in (None, "auto") or not any(medians):
        for one, K, X in zip(scales, inner, plain, strict=False):
            yield Candidate(Choice(one), partial(_thinned, K), X, ridge)
    for one, distance, median in zip(scales, squares, medians, strict=False):
        for factor in _nearby(last, one, median**0.5) if median > 0 else ():
            choice = Choice(one, kind, factor * median**0.5)
            if kind == "kernel":
                yield Candidate(choice, partial(_gaussian, distance, choice.bandwidth), None, ridge)
            else:  # by the features it really has, which are random and may be few
                K = inner_products(_features(few, choice, lift_size, seed))
                yield Candidate(choice, partial(_thinned, K), None, ridge)


def _blocks(
    few: Examples,
    scale: str | None,
    lift: str | None,
    lift_size: int,
    seed: int,
    ridge: float | None,
    embedded: int,
) -> Iterator[Candidate]:
    """Yield the embedding alone and the other columns alone, where rows have both."""
    if not few.sparse or not 0 < embedded < few.shape[1] or lift not in (None, "auto"):
        return
    for low, high in ((0, embedded), (embedded, 0)):
        choice = Choice(None if scale == "auto" else scale, low=low, high=high)
        K = inner_products(_features(few, choice, lift_size, seed))
        yield Candidate(choice, partial(_thinned, K), None, ridge)


def _inner_products(
    few: Examples, scales: tuple[str | None, ...], lift_size: int, seed: int
) -> tuple[list[Matrix | None], list[Matrix]]:
    """Return the features that are dense, else None, and the inner products, for each scaling.

    The last one is left out if it changes nothing.
    """
    if few.sparse and scales == (None, "unit"):  # one product of sparse rows does for both
        K = inner_products(_features(few, Choice(None), lift_size, seed))
        lengths = np.sqrt(np.diag(K))
        lengths[lengths == 0] = 1.0
        if np.abs(lengths - 1.0).max() < UNIT:  # hashed texts are so as they come
            return [None], [K]
        return [None, None], [K, K / lengths / lengths[:, None]]
    made = [_features(few, Choice(one), lift_size, seed) for one in scales]
    return [None if few.sparse else X for X in made], [inner_products(X) for X in made]


def _nearby(last: Choice | None, scale: str | None, distance: float) -> tuple[float, ...]:
    """Return the bandwidths, in median distances, that are tried after the last choice.

    Its own and the two beside it, or the two in the middle if it was without a lift; none of
    another scaling, which is left through a choice without a lift.
    """
    if last is None:
        return BANDWIDTHS
    if last.scale != scale:
        return ()
    if last.lift is None:
        return BANDWIDTHS[1:3]
    gaps = [abs(math.log(factor * distance / last.bandwidth)) for factor in BANDWIDTHS]
    nearest = gaps.index(min(gaps))
    return BANDWIDTHS[max(nearest - 1, 0) : nearest + 2]


def _thinned(K: Matrix, step: int) -> Matrix:
    return K[::step, ::step]


def _gaussian(distances: Matrix, bandwidth: float, step: int) -> Matrix:
    K = distances[::step, ::step] / (-2 * bandwidth**2)
    return np.asarray(np.exp(K, out=K))


def _features(few: Examples, candidate: Choice, lift_size: int, seed: int) -> Any:
    return finish(make_features(few, candidate, lift_size, seed))(few.every()[0])


def targets(labels: Labels, reduction: Reduction | None = None) -> Matrix:
    """Return the labels, or their coordinates, minus their mean, unknown entries as 0."""
    if reduction is not None:
        T = reduction.targets(labels)
        return np.asarray(T - T.mean(axis=0))
    Y = labels.Y.astype(np.float64)
    if labels.known is None:
        return np.asarray(Y - Y.mean(axis=0))
    mean = (Y * labels.known).sum(axis=0) / np.maximum(labels.known.sum(axis=0), 1)
    return np.where(labels.known, Y - mean, 0.0)


def sketched(T: Matrix) -> Matrix:
    """Return no more than 64 sums of targets with random signs.

    Squared lengths of what is linear in them are right in the mean, and the more so since targets
    differ; of hundreds of targets the ridge is sought in a fraction of the time.
    """
    n, q = T.shape
    if q <= SKETCH:
        return T
    signed = np.zeros((n, -(-q // SKETCH) * SKETCH))
    signed[:, :q] = T * np.random.default_rng(0).choice([-1.0, 1.0], q)
    return np.asarray(signed.reshape(n, -1, SKETCH).sum(axis=1))


def _median(distances: Matrix) -> float:
    """Return the median between two examples, of a larger sample between every second ones."""
    if len(distances) >= HALVED:
        distances = distances[::2, ::2]
    pairs = distances[np.triu_indices(len(distances), 1)]
    return float(np.median(pairs)) if len(pairs) else 0.0


class Smoother:
    """Ridge regression of centred targets T (n, q) on centred features.

    Parameters
    ----------
    values, U : arrays of shape (r,) and (n, r)
        Eigenvalues and eigenvectors of the features' kernel matrix, without those of zero.
    T : array of shape (n, q)
    """

    def __init__(self, values: Matrix, U: Matrix, T: Matrix) -> None:
        self._values, self._U = np.maximum(values, 0), U
        self._T, self._C = T, U.T @ T

    @classmethod
    def of_kernel(cls, K: Matrix, T: Matrix) -> Smoother:
        """Return that of features with the centred kernel matrix K (n, n)."""
        return _Direct(K, T) if len(K) >= SMALL else cls.of_eigenvectors(K, T)

    @classmethod
    def of_eigenvectors(cls, K: Matrix, T: Matrix) -> Smoother:
        """Return the same, which does for every ridge."""
        values, U = scipy.linalg.eigh(K, driver="evd")
        return Smoother(values, U, T)

    @classmethod
    def of_rows(cls, X: Matrix, T: Matrix) -> Smoother:
        """Return that of features X (n, p), fewer than there are rows: less work, equal result."""
        X = X - X.mean(axis=0)
        values, Q = scipy.linalg.eigh(X.T @ X, driver="evd")
        some = values > 1e-12 * max(values[-1], 0.0)
        return cls(values[some], (X @ Q[:, some]) / np.sqrt(values[some]), T)

    @cached_property
    def ridge(self) -> float:
        """The strength of least generalised cross-validation error."""
        energy = (self._C**2).sum(axis=1)
        n, r = self._U.shape
        rest = 0.0 if r == n else max(float((self._T**2).sum() - energy.sum()), 0.0)
        return spectral_ridge(self._values, n, _spectral_misfit(self._values, energy, rest))

    def fitted(self, ridge: float) -> tuple[Matrix, Matrix, Matrix]:
        """Return H, the fitted values, and the left-out predictions of all examples."""
        return self._shrunk(ridge, self._U, self._C, self._T)

    def _shrunk(self, ridge: float, U: Any, C: Any, T: Any) -> tuple[Matrix, Matrix, Matrix]:
        """Return what is asked for by H = U diag(Λ/(Λ + ρ))Uᵀ + 11ᵀ/n."""
        shrink = (self._values / (self._values + max(ridge, 1e-300))).astype(U.dtype)
        H = (U * shrink) @ U.T
        H += U.dtype.type(1 / len(T))
        fitted = U @ (shrink[:, None] * C)
        own = np.minimum(np.diag(H), 1 - 1e-6)
        return H, fitted, T - (T - fitted) / (1 - own)[:, None]

    @cached_property
    def _singles(self) -> tuple[Any, ...]:
        return tuple(one.astype(np.float32) for one in (self._U, self._C, self._T))

    def left_out_distances(self, ridge: float) -> Matrix:
        """Return how far example i, left out, is from the others, squared, up to a term of row i.

        ‖F_j − H_jiE_i − L_i‖² with E = T − L, less ‖L_i‖².
        """
        H, F, L = self._fitted_for_votes(ridge)
        E = self._T.astype(L.dtype, copy=False) - L
        out: Matrix = (L * E).sum(axis=1)[:, None] - E @ F.T
        out += 0.5 * (E * E).sum(axis=1)[:, None] * H
        out *= H
        out -= L @ F.T
        out *= 2
        out += (F * F).sum(axis=1)
        np.fill_diagonal(out, np.inf)
        return out

    def _fitted_for_votes(self, ridge: float) -> tuple[Matrix, Matrix, Matrix]:
        """Return the same in single precision, where the ridge is strong enough."""
        if len(self._T) < SMALL or ridge < SINGLE_WEAKEST * float(self._values.sum()):
            return self.fitted(ridge)
        return self._shrunk(ridge, *self._singles)


class _Direct(Smoother):
    """The same by the inverse of K + ρI, which costs half as much as eigenvectors."""

    def __init__(self, K: Matrix, T: Matrix) -> None:
        self._K, self._T = K, T

    @cached_property
    def _exact(self) -> Smoother:
        return Smoother.of_eigenvectors(self._K, self._T)

    @cached_property
    def ridge(self) -> float:
        """The strength of least generalised cross-validation error."""
        T = sketched(self._T)
        rough = self._ridge(self._K.astype(np.float32), T, SINGLE_WEAKEST)
        # It may be even less, where single precision says nothing.
        return rough if rough > 2 * SINGLE_WEAKEST * self._total else self._ridge(self._K, T, 0.0)

    def _ridge(self, K: Any, T: Matrix, least: float) -> float:
        S = Tridiagonal.of(K)
        T = S.turned(T)

        def misfit(rho: float) -> float:  # (I − H)T = ρ(K + ρI)⁻¹T
            return float(rho**2 * (S.solve(rho, T) ** 2).sum())

        def freedom(rho: float) -> float:
            return rho * S.inverse_trace(rho) - 1

        return validated_ridge(self._total, len(T), freedom, misfit, least)

    def fitted(self, ridge: float) -> tuple[Matrix, Matrix, Matrix]:
        """Return H, the fitted values, and the left-out predictions of all examples."""
        if ridge < WEAKEST * self._total or ridge == 0:
            return self._exact.fitted(ridge)
        return self._inverted(ridge, self._K, self._T) or self._exact.fitted(ridge)

    def _fitted_for_votes(self, ridge: float) -> tuple[Matrix, Matrix, Matrix]:
        """Return the same in single precision, where the ridge is strong enough."""
        if ridge < max(SINGLE_WEAKEST * self._total, SINGLE_SMALLEST):
            return self.fitted(ridge)
        K, T = (one.astype(np.float32) for one in (self._K, self._T))
        return self._inverted(ridge, K, T) or self.fitted(ridge)

    @cached_property
    def _total(self) -> float:
        return float(np.trace(self._K))

    @staticmethod
    def _inverted(ridge: float, K: Any, T: Any) -> tuple[Matrix, Matrix, Matrix] | None:
        """Return what is asked for by H = I − ρ(K + ρI)⁻¹ + 11ᵀ/n; None if rounding is too much."""
        n, diagonal = len(T), np.diag_indices(len(T))
        A = K * K.dtype.type(1 / ridge)
        A[diagonal] += 1
        factorise, invert = scipy.linalg.lapack.get_lapack_funcs(("potrf", "potri"), (A,))
        lower, failed = factorise(A.T, lower=1, overwrite_a=1, clean=0)
        if failed:
            return None
        inverse = invert(lower, lower=1, overwrite_c=1)[0].T  # its upper half: the lower is of A
        np.copyto(inverse, inverse.T, where=np.tri(n, k=-1, dtype=np.bool_))
        residuals = inverse @ T
        H = K.dtype.type(1 / n) - inverse
        H[diagonal] += 1
        own = np.minimum(np.diag(H), 1 - 1e-6)
        return H, T - residuals, T - residuals / (1 - own)[:, None]


@dataclass(frozen=True)
class Votes:
    """How good the votes for left-out examples are."""

    f1: float  # micro-F1 of the predictions
    error: int  # k² times the squared error: a whole number, so that equal means equal
    shares: Matrix  # (n,): what each example adds to F1, in the mean nothing

    @classmethod
    def of(cls, distances: Matrix, labels: Labels, n_neighbors: int, rule: float) -> Votes:
        """Let the nearest neighbours of each example vote."""
        k = min(n_neighbors, len(distances) - 1)
        Y, known = labels
        votes = np.zeros(Y.shape, np.min_scalar_type(k))
        for one in _nearest(distances, k).T:
            votes += Y[one]
        if known is not None:
            votes, Y = votes * known, Y * known
        # More votes choose no less: those from a number on; one has nobody to ask.
        least = np.count_nonzero(~decide(np.arange(k + 1) / max(k, 1), rule))
        chosen = votes >= least
        if known is not None:
            chosen &= known
        both = chosen.sum(axis=1, dtype=np.int32) + Y.sum(axis=1, dtype=np.int32)
        right = 2 * (chosen & (Y > 0)).sum(axis=1, dtype=np.int32)
        # Σ(v − ky)² of v votes on a label y.
        met = int((votes * Y).sum(dtype=np.int64))
        error = int(np.square(votes, dtype=np.uint32).sum(dtype=np.int64))
        error += k * (k * int(Y.sum(dtype=np.int64)) - 2 * met)
        f1 = float(right.sum() / max(both.sum(), 1))
        return cls(f1, error, (right - f1 * both) / max(both.sum(), 1))

    @property
    def rank(self) -> tuple[float, int]:
        """Smaller is better."""
        return -self.f1, self.error

    def better_than(self, others: Votes, caution: float) -> bool:
        """Whether F1 is higher by more than so many standard errors of the difference."""
        noise = float(np.sqrt(((self.shares - others.shares) ** 2).sum()))
        return self.f1 - others.f1 > caution * noise


def _nearest(distances: Matrix, k: int) -> Any:
    """Return which k are nearest to each example, (n, k), in no order."""
    farthest = np.partition(distances, k - 1, axis=1)[:, k - 1 : k]
    near = distances <= farthest
    tied = np.flatnonzero(near.sum(axis=1, dtype=np.int32) != k)  # some are equally far
    if len(tied):
        near[tied] = False
        near[tied[:, None], np.argpartition(distances[tied], k - 1, axis=1)[:, :k]] = True
    return (np.flatnonzero(near) % near.shape[1]).reshape(len(near), k)


class Tridiagonal:
    """A symmetric matrix A = QSQᵀ with S tridiagonal: a third of the way to its eigenvectors.

    It is reduced in the precision that it has.

    What is asked about A + ρI for many ρ is answered by S + ρI, one pass over its entries each.
    """

    def __init__(self, d: Matrix, e: Matrix, reflectors: Matrix, tau: Matrix) -> None:
        self._d, self._e, self._reflectors, self._tau = d, e, reflectors, tau

    @classmethod
    def of(cls, A: Matrix) -> Tridiagonal:
        """Turn A into its tridiagonal form."""
        reduce, ask = scipy.linalg.lapack.get_lapack_funcs(("sytrd", "sytrd_lwork"), (A,))
        # The transpose, which is the same, is laid out as it is taken.
        reflectors, d, e, tau, _ = reduce(A.T, lower=1, lwork=int(ask(len(A), lower=1)[0]))
        return cls(d.astype(np.float64), e.astype(np.float64), reflectors, tau)

    @cached_property
    def values(self) -> Matrix:
        """The eigenvalues of A, rising."""
        return np.asarray(scipy.linalg.lapack.dsterf(self._d, self._e)[0])

    def turned(self, B: Matrix) -> Matrix:
        """Return QᵀB."""
        out = np.array(B, self._reflectors.dtype, order="F")
        turn = scipy.linalg.lapack.get_lapack_funcs(("ormqr",), (out,))[0]
        # Below the diagonal the reflectors lie as those of a QR decomposition do.
        reflectors, rest = np.asfortranarray(self._reflectors[1:, :-1]), out[1:]
        size = int(turn("L", "T", reflectors, self._tau, rest, -1)[1][0])
        out[1:] = turn("L", "T", reflectors, self._tau, rest, size)[0]
        return out.astype(np.float64)

    def inverse_trace(self, rho: float) -> float:
        """Return the trace of (A + ρI)⁻¹, if A + ρI is positive definite.

        Each entry of the diagonal of an inverse is that of one elimination from above and one from
        below that meet there.
        """
        d = self._d + rho
        above = scipy.linalg.lapack.dpttrf(d, self._e)[0]
        below = scipy.linalg.lapack.dpttrf(d[::-1], self._e[::-1])[0][::-1]
        return float((1 / (above + below - d)).sum())

    def solve(self, rho: float, B: Matrix) -> Matrix:
        """Return (S + ρI)⁻¹B, if S + ρI is positive definite."""
        d, e, _ = scipy.linalg.lapack.dpttrf(self._d + rho, self._e)
        return np.asarray(scipy.linalg.lapack.dpttrs(d, e, B)[0])


OfRidge = Callable[[float], float]


def validated_ridge(
    total: float, n: int, freedom: OfRidge, misfit: OfRidge, least: float = 0.0
) -> float:
    """Return the ridge of least generalised cross-validation error, n‖(I − H)T‖²/(n − tr H)².

    Every second one of the ridges is tried, and those beside the best of them.

    Parameters
    ----------
    total : the variance of the features, to which strengths are relative
    n : number of examples
    freedom : n − tr H for a ridge
    misfit : ‖(I − H)T‖² for a ridge
    least : the weakest that is tried, over ``total``
    """
    ridges = (total if total > 0 else 1.0) * RIDGES[least <= RIDGES]
    errors: dict[int, float] = {}

    def attempt(i: int) -> bool:
        rho = float(ridges[i])
        free = freedom(rho)
        # Near interpolation both sides of the fraction vanish and it says nothing.
        if free < INTERPOLATION * n:
            return False
        errors[i] = misfit(rho) / max(free, 1e-9 * n) ** 2
        return True

    last = len(ridges) - 1
    for i in range(last, -1, -2):
        if not attempt(i):  # nor have weaker ones
            break
    if not errors:
        return float(ridges[last])
    best = min(sorted(errors), key=errors.__getitem__)
    for i in (best - 1, best + 1):
        if 0 <= i <= last:
            attempt(i)
    return float(ridges[min(sorted(errors), key=errors.__getitem__)])


def spectral_ridge(values: Matrix, n: int, misfit: OfRidge) -> float:
    """Return the same, given the eigenvalues of the centred kernel matrix."""

    def freedom(rho: float) -> float:
        return n - 1 - float((values / (values + rho)).sum())

    return validated_ridge(float(values.sum()), n, freedom, misfit)


def _spectral_misfit(values: Matrix, energy: Matrix, rest: float) -> OfRidge:
    """Return that of energies ‖u_kᵀT‖² of eigenvectors u_k, and of what lies outside of them."""
    return lambda rho: float(rest + (rho / (values + rho)) ** 2 @ energy)


def _ridge_of_many(
    some: Examples, choice: Choice, lift_size: int, seed: int, reduction: Reduction | None
) -> Steps[float]:
    """Return the ridge of least validation error of a sample, which may have many features."""
    K = centre(inner_products(_features(some, choice, lift_size, seed)))
    yield PAUSE
    return Smoother.of_kernel(K, targets(some.every()[1], reduction)).ridge


def _ridge_of_all(
    examples: Examples,
    choice: Choice,
    lift_size: int,
    seed: int,
    reduction: Reduction | None,
    before: Tree | None,
) -> Steps[tuple[float, Design]]:
    """Return the ridge of least validation error, and the regression of all examples."""
    features = yield from make_features(examples, choice, lift_size, seed)
    X = yield from Design.of(examples, features, reduction, before)
    if X.primal:
        inner, right = (yield from X.equations())[:2]
        square = yield from X.target_squares()
        return primal_ridge(inner, right, square, X.n), X
    T = X.targets(examples.every()[1])
    return Smoother.of_kernel(X.gram()[0], T - T.mean(axis=0)).ridge, X


def primal_ridge(inner: Matrix, right: Matrix, square: float, n: int) -> float:
    """Return the validated ridge of normal equations X̃ᵀX̃ and B = X̃ᵀT, given ‖T‖².

    With R = (X̃ᵀX̃ + ρI)⁻¹B, ‖(I − H)T‖² = ‖T‖² − ⟨B, R⟩ − ρ‖R‖².
    """
    if not inner.any():  # no features, or none that varies: the fit is the mean
        return spectral_ridge(np.zeros(0), n, lambda rho: square)
    if len(inner) >= SMALL:
        S = Tridiagonal.of(inner)
        values = np.maximum(S.values, 0.0)
        # Behind a lift rounding may leave more below zero than the smallest ridge lifts again.
        if S.values[0] >= -0.1 * RIDGES[0] * float(values.sum()):
            B = S.turned(right)

            def misfit(rho: float) -> float:
                R = S.solve(rho, B)
                return square - float((B * R).sum()) - rho * float((R * R).sum())

            return spectral_ridge(values, n, misfit)
    values, U = scipy.linalg.eigh(inner, driver="evd")
    values = np.maximum(values, 0.0)
    energy = ((U.T @ right) ** 2).sum(axis=1)
    energy /= np.maximum(values, 1e-12 * values[-1] + 1e-300)
    rest = max(square - float(energy.sum()), 0.0)
    return spectral_ridge(values, n, _spectral_misfit(values, energy, rest))
