"""OLANSGD: label ranking by accelerated nonsmooth stochastic gradient descent.

Park and Choi, *Online multi-label learning with accelerated nonsmooth stochastic gradient
descent*, ICASSP 2013: the primal of the ranking SVM (Elisseeff and Weston, NIPS 2001) minimised
by ANSGD (Ouyang and Gray, ICML 2012).

    φ = (1, x) ∈ ℝ^{p+1}     an example with a constant, W ∈ ℝ^{(p+1)×q}, scores f = Wᵀφ
    Y, Ȳ                     the labels it has, and the others;  a = |Y|, b = |Ȳ|
    λ, θ_t, γ_t, η_t         regularisation, mixing, smoothing, step

    objective    F(W) = λ/2 ‖W‖² + E[ℓ],   ℓ = 1/(ab) Σ_{j∈Y,k∈Ȳ} max(0, z_jk),
                 z_jk = 1 − (f_j − f_k)                                                (1)
    smoothing    ĥ_γ(z) = max_{0≤u≤1} (uz − γu²/2),  reached at u = clip(z/γ, 0, 1)    (2)
    gradient     ∂ℓ̂/∂f_j = −1/(ab) Σ_k u_jk (j ∈ Y),  ∂ℓ̂/∂f_k = 1/(ab) Σ_j u_jk (k ∈ Ȳ)  (3)
                 whose Lipschitz constant in W is  ‖φ‖² (1/a + 1/b) / γ = Λ             (4)
    round        θ = 2/(t+2), γ = θ, 1/η = λ + Λ + λ/(2θ²), t = 0, 1, …
                 U = (1−θ) W_t + θ V_t,  G = φ gᵀ, g the gradient (3) at Uᵀφ            (5)
                 W_{t+1} = U − η (G + λU)                                              (6)
                 V_{t+1} = argmin_V ⟨G + λU, V⟩ + λ/2 ‖V−U‖² + θ/(2η) ‖V−V_t‖²
                         = (θ V_t − ηG) / (θ + λη)                                     (7)

The schedule's constants and the rule that turns a ranking into a label set are not known from
the abstract; the constants are those for which the gap telescopes to O(1/t).  The pair gradients
sum to zero over the labels, so a score of zero means nothing; two rules are at hand:

- ``"threshold"`` (Elisseeff and Weston): t*(x) makes the fewest mistakes
  |{j∈Y: f_j ≤ t}| + |{k∈Ȳ: f_k ≥ t}|, and is regressed on (1, f(x)) by recursive least squares.
- ``"top"``: the k̂ best labels, k̂ the rounded mean number of labels per example so far.

Choices: a label takes part from its first appearance on, with weights of zero (so it does not
matter when it is announced); before that its probability is 0.  Pairs with an entry that is not
known are left out.  An example without pairs only shrinks W; one of which nothing is known is
passed over.

By (5)–(7) W and V are combinations of two matrices that only change where φ is not zero:
(W, V)ᵀ = C (B₀, B₁)ᵀ with C upper triangular, 2×2.  A round costs O(nnz(x)·q + ab).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.checks import LARGEST_COUNT, Rows, check_choice, check_number, expect, expect_keys
from tagstream.core.compilation import compiled
from tagstream.paper.methods.blocks import (
    Block,
    BlockClassifier,
    Bools,
    Bytes,
    Matrix,
    Scaling,
    check_size,
    insert,
    regress,
)

__all__ = ["OLANSGD", "best_threshold", "pair_gradient", "smoothed_hinge"]

Ints = npt.NDArray[np.int64]

ALPHAS = tuple(10.0**k for k in range(-6, 1))
SMALLEST_ALPHA, LARGEST_ALPHA = 1e-12, 1e12
FOLDS = 5
EARLY_ALPHA = 0.01  # before the first block is full
RULES = ("threshold", "top")
SMALLEST_FACTOR = 1e-3  # on C's diagonal, before it is multiplied out

# The factors of features within 10¹⁵ and λ of at least 10⁻¹² stay below 10⁵⁰, see (7).
LARGEST_WEIGHT = 1e60
LARGEST_SCORE = 1e100  # that the threshold is regressed on
LARGEST_ENTRY = 1e120  # of a saved triangle of so many scores


@compiled
def smoothed_hinge(z: float, gamma: float) -> tuple[float, float]:
    """Return ĥ_γ(z) of Eq. (2), and the u at which it is reached."""
    u = min(max(z / gamma, 0.0), 1.0)
    return u * z - gamma * u * u / 2, u


@compiled
def pair_gradient(
    f: Matrix, y: Bytes, part: Bools, gamma: float, g: Matrix
) -> tuple[float, int, int]:
    """Write the gradient (3) of one example with scores ``f`` into ``g``.

    Parameters
    ----------
    f : array of shape (q,)
    y : uint8 array of shape (q,)
    part : bool array of shape (q,)
        Labels that take part: seen before, and known for this example.
    gamma : float
    g : array of shape (q,)

    Returns
    -------
    smoothed loss ℓ̂, |Y|, |Ȳ|
    """
    q = f.shape[0]
    a = b = 0
    for j in range(q):
        g[j] = 0.0
        if part[j]:
            if y[j]:
                a += 1
            else:
                b += 1
    if a == 0 or b == 0:
        return 0.0, a, b
    loss = 0.0
    share = 1.0 / (a * b)
    for j in range(q):
        if part[j] and y[j]:
            for k in range(q):
                if part[k] and not y[k]:
                    h, u = smoothed_hinge(1.0 - (f[j] - f[k]), gamma)
                    loss += share * h
                    g[j] -= share * u
                    g[k] += share * u
    return loss, a, b


@compiled
def best_threshold(f: Matrix, y: Bytes, part: Bools) -> float:
    """Return t*: the middle of the interval of scores with the fewest mistakes.

    Of several such intervals the lowest counts: it misses the fewest labels.  The ends are half
    the margin of a pair beyond the extreme scores.
    """
    at = np.flatnonzero(part)
    if at.size == 0:
        return 0.0
    at = at[np.argsort(f[at])]
    mistakes = 0  # of a threshold below all scores
    for j in at:
        if not y[j]:
            mistakes += 1
    fewest = mistakes
    best = f[at[0]] - 0.5
    for i in range(at.size):
        mistakes += 1 if y[at[i]] else -1
        upper = f[at[i + 1]] if i + 1 < at.size else f[at[i]] + 1.0
        # No threshold fits between equal scores.
        if mistakes < fewest and upper > f[at[i]]:
            fewest = mistakes
            best = (f[at[i]] + upper) / 2
    return float(best)


@compiled
def _scores(data: Matrix, indices: Ints, B: Matrix, c0: float, c1: float, f: Matrix) -> float:
    """Write (c₀B₀ + c₁B₁)ᵀφ into ``f`` and return ‖φ‖²; the constant is row 0 of B."""
    q = f.shape[0]
    square = 1.0
    for j in range(q):
        f[j] = c0 * B[0, 0, j] + c1 * B[0, 1, j]
    for e in range(data.shape[0]):
        x = data[e]
        if x == 0.0:
            continue
        square += x * x
        k = indices[e] + 1
        x0 = x * c0
        x1 = x * c1
        for j in range(q):
            f[j] += x0 * B[k, 0, j] + x1 * B[k, 1, j]
    return square


@compiled
def _step(
    data: Matrix, indices: Ints, B: Matrix, C: Matrix, t: int, alpha: float,
    y: Bytes, part: Bools, f: Matrix, g: Matrix,
) -> None:  # fmt: skip
    """Do round ``t``, Eqs. (5)–(7); leave the new scores W_{t+1}ᵀφ in ``f``."""
    theta = 2.0 / (t + 2)
    q = f.shape[0]
    square = _scores(
        data, indices, B, (1 - theta) * C[0, 0], (1 - theta) * C[0, 1] + theta * C[1, 1], f
    )
    _, a, b = pair_gradient(f, y, part, theta, g)
    lipschitz = square * (1.0 / a + 1.0 / b) / theta if a * b > 0 else 0.0
    eta = 1.0 / (alpha + lipschitz + alpha / (2 * theta * theta))
    keep = 1 - eta * alpha
    shrink = theta / (theta + alpha * eta)
    if t > 0:  # W_0 = V_0 = 0 needs no product, and (1 − θ) = 0 would make C singular
        C[0, 1] = keep * ((1 - theta) * C[0, 1] + theta * C[1, 1])
        C[0, 0] *= keep * (1 - theta)
        C[1, 1] *= shrink
    for j in range(q):
        f[j] = keep * f[j] - eta * square * g[j]
    if a * b == 0:
        return
    # C (d₀, d₁)ᵀ = (−η, −η/(θ + λη))ᵀ: what to add to B₀ and B₁, times φ gᵀ.
    d1 = -eta / (theta + alpha * eta) / C[1, 1]
    d0 = (-eta - C[0, 1] * d1) / C[0, 0]
    for j in range(q):
        B[0, 0, j] += d0 * g[j]
        B[0, 1, j] += d1 * g[j]
    for e in range(data.shape[0]):
        x = data[e]
        if x == 0.0:
            continue
        k = indices[e] + 1
        for j in range(q):
            B[k, 0, j] += d0 * x * g[j]
            B[k, 1, j] += d1 * x * g[j]


@compiled
def _learn(
    data: Matrix, indices: Ints, indptr: Ints, Y: Bytes, known: Bools, alpha: float,
    B: Matrix, C: Matrix, S: Matrix, seen: Bools, counts: Ints,
) -> None:  # fmt: skip
    """Learn rows in order; everything after ``alpha`` is state and changes in place."""
    q = Y.shape[1]
    f, g, part, row = np.empty(q), np.empty(q), np.empty(q, np.bool_), np.empty(q + 2)
    for n in range(Y.shape[0]):
        x = data[indptr[n] : indptr[n + 1]]
        where = indices[indptr[n] : indptr[n + 1]]
        whole = True
        size = 0
        for j in range(q):
            if Y[n, j]:
                seen[j] = True
                size += 1
            part[j] = seen[j] and known[n, j]
            whole = whole and known[n, j]
        _step(x, where, B, C, counts[0], alpha, Y[n], part, f, g)
        counts[0] += 1
        if C[0, 0] < SMALLEST_FACTOR or C[1, 1] < SMALLEST_FACTOR:
            # Before C becomes ill-conditioned, multiply it out: a few times per decade of t.
            for k in range(B.shape[0]):
                for j in range(q):
                    B[k, 0, j] = C[0, 0] * B[k, 0, j] + C[0, 1] * B[k, 1, j]
                    B[k, 1, j] *= C[1, 1]
            C[0, 0] = C[1, 1] = 1.0
            C[0, 1] = 0.0
        if whole:
            counts[1] += 1
            counts[2] += size
        sound = part.any()
        row[0] = 1.0
        for j in range(q):
            row[1 + j] = f[j] if seen[j] else 0.0
            sound = sound and abs(row[1 + j]) <= LARGEST_SCORE
        if sound:
            row[q + 1] = best_threshold(f, Y[n], part)
            insert(S, row)


@compiled
def _margins(
    data: Matrix, indices: Ints, indptr: Ints, B: Matrix, C: Matrix, S: Matrix,
    seen: Bools, k: int, F: Matrix, thresholds: Matrix,
) -> None:  # fmt: skip
    """Write scores into ``F`` (n, q), both rules' thresholds into ``thresholds`` (n, 2)."""
    q = F.shape[1]
    row = np.empty(q + 2)
    for n in range(F.shape[0]):
        x = data[indptr[n] : indptr[n + 1]]
        where = indices[indptr[n] : indptr[n + 1]]
        _scores(x, where, B, C[0, 0], C[0, 1], F[n])
        row[0] = 1.0
        for j in range(q):
            row[1 + j] = F[n, j] if seen[j] else 0.0
        row[q + 1] = 0.0
        regress(S, row)
        thresholds[n, 0] = -row[q + 1]
        ranked = np.sort(F[n][seen])[::-1]
        if ranked.size == 0:
            thresholds[n, 1] = 0.0
        elif k <= 0:
            thresholds[n, 1] = ranked[0] + 0.5
        elif k >= ranked.size:
            thresholds[n, 1] = ranked[-1] - 0.5
        else:
            thresholds[n, 1] = (ranked[k - 1] + ranked[k]) / 2


def _as_csr(X: Rows) -> tuple[Matrix, Ints, Ints]:
    """Return rows of any kind as data, indices, indptr, so that one kernel serves both."""
    if sp.issparse(X):
        return (
            X.data.astype(np.float64, copy=False),
            X.indices.astype(np.int64),
            X.indptr.astype(np.int64),
        )
    n, p = X.shape
    data = np.ascontiguousarray(X, np.float64).ravel()
    return data, np.tile(np.arange(p), n), np.arange(n + 1) * p


class _Ranker:
    """A started OLANSGD: scaling, weights, and the regressed threshold.

    ``B`` has shape (p + 1, 2, q), ``C`` (2, 2), the triangle ``S`` of the threshold regression
    (ridge 1) (q + 1, q + 2); ``counts`` are the rounds, the examples whose labels are all known,
    and the labels of those.
    """

    def __init__(self, p: int, q: int, scaling: Scaling | None, alpha: float, rule: str) -> None:
        self.scaling, self.alpha, self.rule = scaling, alpha, rule
        self.B = np.zeros((p + 1, 2, q))
        self.C = np.eye(2)
        self.S = np.eye(q + 1, q + 2)
        self.seen = np.zeros(q, np.bool_)
        self.counts = np.zeros(3, np.int64)

    @classmethod
    def of(cls, block: Block, scale: str | None, alpha: Any, rule: str) -> _Ranker:
        """Choose what is to be chosen on the first block, then learn its rows."""
        X, Y, known = block.rows()
        scaling = Scaling.of(X, "spread") if scale == "auto" else None
        X = X if scaling is None else scaling(X)
        alphas = ALPHAS if isinstance(alpha, str) else (float(alpha),)
        rules = RULES if rule == "auto" else (rule,)
        if len(alphas) * len(rules) > 1:
            alpha, rule = _cross_validate(X, Y, known, alphas, rules)
        self = cls(block.p, block.q, scaling, float(alpha), rule)
        self._learn_scaled(X, Y, known)
        return self

    def learn(self, X: Rows, Y: Bytes, known: Bools) -> None:
        self._learn_scaled(X if self.scaling is None else self.scaling(X), Y, known)

    def _learn_scaled(self, X: Rows, Y: Bytes, known: Bools) -> None:
        _learn(*_as_csr(X), Y, known, self.alpha, self.B, self.C, self.S, self.seen, self.counts)

    @property
    def top(self) -> int:
        """k̂, the rounded mean number of labels per example."""
        return int(self.counts[2] / max(self.counts[1], 1) + 0.5)

    def scores(self, X: Rows) -> tuple[Matrix, Matrix]:
        """Return scores (n, q) and the thresholds of both rules (n, 2) of scaled rows."""
        F, thresholds = np.empty((X.shape[0], len(self.seen))), np.empty((X.shape[0], 2))
        _margins(*_as_csr(X), self.B, self.C, self.S, self.seen, self.top, F, thresholds)
        return F, thresholds

    def margins(self, X: Rows) -> Matrix:
        F, thresholds = self.scores(X if self.scaling is None else self.scaling(X))
        return np.where(self.seen, F - thresholds[:, [RULES.index(self.rule)]], -np.inf)

    def grow(self, q: int) -> None:
        old = len(self.seen)
        self.B = np.pad(self.B, ((0, 0), (0, 0), (0, q - old)))
        S = np.eye(q + 1, q + 2)
        S[: old + 1, : old + 1] = self.S[:, :-1]
        S[: old + 1, -1] = self.S[:, -1]
        self.S = S
        self.seen = np.pad(self.seen, (0, q - old))

    def copy(self) -> _Ranker:
        other = _Ranker(0, 0, self.scaling, self.alpha, self.rule)
        for name in ("B", "C", "S", "seen", "counts"):
            setattr(other, name, np.array(getattr(self, name)))
        return other

    @property
    def weights(self) -> Matrix:
        W: Matrix = self.C[0, 0] * self.B[:, 0] + self.C[0, 1] * self.B[:, 1]
        return W

    @property
    def nbytes(self) -> int:
        arrays = (self.B, self.C, self.S, self.seen, self.counts, *(self.scaling or ()))
        return sum(array.nbytes for array in arrays)

    def dump(self) -> dict[str, Any]:
        return {
            "alpha": self.alpha,
            "rule": self.rule,
            "scaling": None if self.scaling is None else self.scaling.dump(),
            **{name: getattr(self, name).copy() for name in ("B", "C", "S", "seen", "counts")},
        }

    @classmethod
    def load(cls, state: Any, p: int, q: int) -> _Ranker:
        names = ("alpha", "rule", "scaling", "B", "C", "S", "seen", "counts")
        expect_keys("the ranker", state, *names)
        check_number("alpha", state["alpha"], least=SMALLEST_ALPHA, most=LARGEST_ALPHA)
        check_choice("rule", state["rule"], RULES)
        scaling = state["scaling"]
        arrays = {
            "B": expect("B", state["B"], np.float64, (p + 1, 2, q)),
            "C": expect("C", state["C"], np.float64, (2, 2)),
            "S": expect("S", state["S"], np.float64, (q + 1, q + 2)),
            "seen": expect("seen", state["seen"], np.bool_, (q,)),
            "counts": expect("counts", state["counts"], np.int64, (3,)),
        }
        check_size("B", arrays["B"], LARGEST_WEIGHT)
        check_size("S", arrays["S"], LARGEST_ENTRY)
        C, S, counts = arrays["C"], arrays["S"], arrays["counts"].tolist()
        # Both factors shrink from 1 until they are multiplied out; C01 is between 0 and C11's past.
        sound = np.diagonal(C).min() >= SMALLEST_FACTOR and C.min() >= 0 and C.max() <= 1.001
        if not sound or C[1, 0] != 0:
            raise ValueError("C must be an upper triangle of factors from 0.001 to 1")
        # The ridge is 1, and rows only add to it.
        if np.tril(S[:, :-1], -1).any() or np.abs(np.diagonal(S)).min() < 0.5:
            raise ValueError("S must be an upper triangle with at least 1 on its diagonal")
        if min(counts) < 0 or not (counts[1] <= counts[0] <= LARGEST_COUNT) or (
            counts[2] > counts[1] * q
        ):  # fmt: skip
            raise ValueError(f"counts must be of one stream, got {counts}")
        self = cls(
            0, 0, None if scaling is None else Scaling.load(scaling, p),
            float(state["alpha"]), state["rule"],
        )  # fmt: skip
        for name, array in arrays.items():
            setattr(self, name, array)
        return self


def _cross_validate(
    X: Rows, Y: Bytes, known: Bools, alphas: Sequence[float], rules: Sequence[str]
) -> tuple[float, str]:
    """Return the λ and rule of the best micro-F1 over five interleaved folds.

    Ties go to the larger λ, then to the first rule.
    """
    best = (-1.0, 0.0, "")
    fold = np.arange(len(Y)) % FOLDS
    for alpha in sorted(alphas, reverse=True):
        both, either = np.zeros(len(RULES)), np.zeros(len(RULES))
        for k in range(FOLDS):
            train, test = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
            if len(train) == 0 or len(test) == 0:
                continue
            ranker = _Ranker(X.shape[1], Y.shape[1], None, alpha, "")
            ranker._learn_scaled(X[train], Y[train], known[train])
            F, thresholds = ranker.scores(X[test])
            true = Y[test] == 1  # never where it is not known
            for r in range(len(RULES)):
                predicted = (thresholds[:, [r]] < F) & ranker.seen & known[test]
                both[r] += (predicted & true).sum()
                either[r] += predicted.sum() + true.sum()
        for rule in rules:
            r = RULES.index(rule)
            merit = 2 * both[r] / max(either[r], 1)
            if merit > best[0]:
                best = merit, alpha, rule
    return best[1], best[2]


class OLANSGD(BlockClassifier):
    """Label ranking with a maximal margin, by accelerated stochastic gradient descent.

    A linear model that ranks the labels an example has above those it has not, learnt in one
    pass, and a rule that cuts the ranking into a label set.

    Learning takes O(nnz(x)·q + ab + q²) per example with a of b + a labels, predicting
    O(nnz(x)·q + q²); memory is O(pq + q²) and does not grow with the stream.

    Parameters
    ----------
    alpha : positive float or "cv", default "cv"
        Regularisation λ; "cv" chooses it from 10⁻⁶, …, 1 by five-fold cross-validation on the
        first block (criterion: micro-F1).
    rule : {"auto", "threshold", "top"}, default "auto"
        From scores to label sets: a threshold regressed on the scores; the k̂ best labels, k̂ the
        rounded mean number of labels per example; or the better of both in the
        cross-validation.  Until the first block is full, "auto" is "top".
    first_block : int, default 200
        Examples that are gathered before anything is chosen.  Until then predictions come from
        one pass over what there is, with λ = 0.01 in place of "cv".
    scale : {"auto", None}, default "auto"
        "auto" gives each feature mean 0 and deviation 1 by the first block (cut to ±5); 0/1
        features stay, and sparse ones are at most divided by their largest magnitude.

    Attributes
    ----------
    coef_ : array of shape (q, p)
        Weights of the scaled features.
    intercept_ : array of shape (q,)
    alpha_ : float
        The λ in use.
    rule_ : str
        The rule in use.

    Examples
    --------
    >>> import numpy as np
    >>> from tagstream.paper.methods.olansgd import OLANSGD
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> Y = X + X.mean(axis=1, keepdims=True) > 0
    >>> model = OLANSGD().partial_fit(X, Y)
    >>> model.predict([[1, 1, -3], [-1, 2, 2]]).astype(int)
    array([[1, 1, 0],
           [0, 1, 1]])
    >>> model.predict_proba([[1, 1, -3]]).round(1)
    array([[0.9, 1. , 0. ]])
    """

    def __init__(
        self,
        alpha: float | str = "cv",
        *,
        rule: str = "auto",
        first_block: int = 200,
        scale: str | None = "auto",
    ) -> None:
        self.alpha = alpha
        self.rule = rule
        self.first_block = first_block
        self.scale = scale

    @property
    def coef_(self) -> Matrix:
        """Weights of the scaled features, of shape (q, p)."""
        W: Matrix = self._started().weights
        return W[1:].T

    @property
    def intercept_(self) -> Matrix:
        """Weights of the constant, of shape (q,)."""
        W: Matrix = self._started().weights
        return np.asarray(W[0])

    @property
    def alpha_(self) -> float:
        """The λ in use."""
        return float(self._started().alpha)

    @property
    def rule_(self) -> str:
        """The rule in use."""
        return str(self._started().rule)

    # ------------------------------------------------------------------ hooks
    def _check_params(self) -> None:
        if isinstance(self.alpha, str):
            check_choice("alpha", self.alpha, ("cv",))
        else:
            check_number("alpha", self.alpha, least=SMALLEST_ALPHA, most=LARGEST_ALPHA)
        check_choice("rule", self.rule, ("auto", *RULES))
        check_number("first_block", self.first_block, kind=int, least=1)
        check_choice("scale", self.scale, ("auto", None))

    def _block_size(self) -> int:
        return int(self.first_block)

    def _core_size(self, p: int, q: int) -> int:
        return 2 * (p + 1) * q + (q + 1) * (q + 2) + 2 * p

    def _make(self, block: Block, early: bool) -> _Ranker:
        alpha, rule = self.alpha, self.rule
        if early:
            alpha = EARLY_ALPHA if isinstance(alpha, str) else alpha
            rule = "top" if rule == "auto" else rule
        return _Ranker.of(block, self.scale, alpha, rule)

    def _load_core(self, state: Any) -> _Ranker:
        return _Ranker.load(state, self.n_features_in_, len(self.classes_))
