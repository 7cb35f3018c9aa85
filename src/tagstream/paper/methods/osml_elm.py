"""OSML-ELM: an online sequential multi-label extreme learning machine.

Venkatesan, Er, Dave, Pratama, Wu: *A novel online multi-label classifier for high-speed
streaming data applications*, Evolving Systems 8 (2017), with the settings of the code that its
authors released.

    x ∈ ℝᵖ, y ∈ {0,1}^q      an example; its bipolar target is t = 2y − 1
    L                        hidden neurons
    W ∈ ℝ^{p×L}, b ∈ ℝᴸ      drawn once, never trained: W ~ U(−1, 1), b ~ U(0, 1)
    h(x) = σ(Wᵀx + b)        σ(a) = 1/(1 + e⁻ᵃ); H stacks the rows hᵀ, T the rows tᵀ
    β ∈ ℝ^{L×q}, M ∈ ℝ^{L×L} output weights; M is the inverse of HᵀH, or of HᵀH + ρI

    initial block   M₀ = pinv(H₀ᵀH₀)           β₀ = pinv(H₀) T₀                    (1)
       with ridge   M₀ = (H₀ᵀH₀ + ρI)⁻¹        β₀ = M₀ H₀ᵀ T₀                      (1ρ)
    a chunk         M ← M − M Hᵀ (I + H M Hᵀ)⁻¹ H M                                (2)
                    β ← β + M Hᵀ (T − Hβ)      with the new M                      (3)
    prediction      o = βᵀh(x),  ŷ_j = [o_j > 0]                                   (4)

By (2) and (3) β is the (ridge) least-squares solution on all examples seen, however they were
cut into chunks; here each row is a chunk of its own.  In floating point the plain recursion
loses that: (2) subtracts nearly equal matrices, what it loses is never regained, and M drifts
away from symmetric and positive.  The stable variant carries a triangle instead of an inverse
(:mod:`tagstream.paper.methods.blocks`).

Choices where the paper is silent:

- Features are scaled by the first block (without it, music features in the hundreds saturate
  every neuron).  Its size must clearly exceed L, since H₀ᵀH₀ is nearly singular at N₀ = L; by
  default it is 2L.
- Before the first block is full, predictions are those of (1ρ) with ρ = 1 on what there is,
  features scaled by at least half of it.
- A label that was never seen has had the target −1 all along: one more output learns just that,
  and a new label starts as its copy.  So it does not matter when a label is announced.
- Where it is not known whether an item has a label, the target is the model's own output, so
  that this label's residual is zero; in the first block each label is fitted to the rows where
  it is known.  An item of which nothing is known is passed over.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from sklearn.utils.validation import check_random_state

from tagstream.checks import Rows, check_choice, check_number, expect, expect_keys
from tagstream.core.compilation import compiled
from tagstream.core.products import project_dense, project_sparse
from tagstream.execution.threads import ONE_BLAS_THREAD
from tagstream.paper.methods.blocks import (
    Block,
    BlockClassifier,
    Bools,
    Bytes,
    Matrix,
    Scaling,
    check_size,
    checked_count,
    insert,
    regress,
    solve_upper,
)

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["OSMLELM", "choose_ridge", "least_squares", "recursion"]

RIDGES = tuple(10.0**k for k in range(-3, 4))
SMALLEST_RIDGE, LARGEST_RIDGE = 1e-12, 1e12
LARGEST_HIDDEN = 4096  # a step takes O(L²), a start O(L³)
EARLY_RIDGE = 1.0  # before the first block is full, and where a ridge cannot be chosen

# One step changes no entry of M and β by more, so that no stream makes them infinite; a singular
# value of HᵀH that would is taken for zero.
LARGEST_CHANGE = 1e100
LARGEST_ENTRY = 1e120  # of a saved M or β, after ever so many steps
LARGEST_CONDITION = 1e15  # of a saved triangle: beyond this, solving it gives only noise
LARGEST_TARGET = 1e30  # of a saved z


@compiled
def recursion(M: Matrix, beta: Matrix, H: Matrix, T: Matrix, known: Bools) -> None:
    """Apply Eqs. (2) and (3) to one row after another; ``M`` and ``beta`` change in place.

    For one row h, with g = M h and kᵀ = hᵀM (equal only while M is symmetric),

        M ← M − g kᵀ / (1 + hᵀg),    β ← β + (M h)(t − βᵀh)ᵀ.

    A row is passed over when 1 + hᵀg, at least 1 for a positive M, has fallen below ½: M has
    lost its sign there, and dividing by less would let it grow without bound.  So is a change
    beyond 10¹⁰⁰, which only noise can ask for.

    Parameters
    ----------
    M : array of shape (L, L)
    beta : array of shape (L, q)
    H : array of shape (n, L)
    T : array of shape (n, q)
    known : bool array of shape (n, q)
        Residuals count as zero where it is False.
    """
    L, q = beta.shape
    g, k, residual = np.empty(L), np.empty(L), np.empty(q)
    for n in range(H.shape[0]):
        h = H[n]
        k[:] = 0.0
        for j in range(q):
            residual[j] = T[n, j]
        scale = 1.0
        for i in range(L):
            g[i] = _dot(M[i], h)
            scale += h[i] * g[i]
            for j in range(L):
                k[j] += h[i] * M[i, j]
            for j in range(q):
                residual[j] -= h[i] * beta[i, j]
        if not (scale >= 0.5 and _largest(g) * _largest(k) <= LARGEST_CHANGE * scale):
            continue
        for j in range(q):
            if not known[n, j]:
                residual[j] = 0.0
        for i in range(L):
            step = g[i] / scale
            for j in range(L):
                M[i, j] -= step * k[j]
        for i in range(L):
            g[i] = _dot(M[i], h)
        if not _largest(g) * _largest(residual) <= LARGEST_CHANGE:
            continue
        for i in range(L):
            for j in range(q):
                beta[i, j] += g[i] * residual[j]


@compiled
def _largest(a: Matrix) -> float:
    """Return the largest magnitude, or a NaN if there is one."""
    largest = 0.0
    for j in range(a.shape[0]):
        if not abs(a[j]) <= largest:
            largest = abs(a[j])
    return largest


@compiled
def _dot(a: Matrix, b: Matrix) -> float:
    """Return aᵀb; four sums side by side let the processor overlap them."""
    s0 = s1 = s2 = s3 = 0.0
    n = a.shape[0]
    for i in range(0, n - 3, 4):
        s0 += a[i] * b[i]
        s1 += a[i + 1] * b[i + 1]
        s2 += a[i + 2] * b[i + 2]
        s3 += a[i + 3] * b[i + 3]
    for i in range(n - n % 4, n):
        s0 += a[i] * b[i]
    return (s0 + s1) + (s2 + s3)


@compiled
def _learn_triangle(S: Matrix, H: Matrix, T: Matrix, known: Bools) -> None:
    """Rotate the rows of [H | T] into ``S``; an unknown target is the present output."""
    L, m = S.shape
    row, own = np.empty(m), np.empty(m)
    for n in range(H.shape[0]):
        row[:L] = H[n]
        row[L:] = T[n]
        if not known[n].all():
            own[:L] = H[n]
            own[L:] = 0.0
            regress(S, own)
            for j in range(m - L):
                if not known[n, j]:
                    row[L + j] = -own[L + j]
        insert(S, row)


@compiled
def _regress_all(S: Matrix, rows: Matrix) -> None:
    for n in range(rows.shape[0]):
        regress(S, rows[n])


@compiled
def _sigmoid(A: Matrix) -> None:
    """Apply σ to ``A`` in place."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            A[i, j] = 1.0 / (1.0 + math.exp(-A[i, j]))


def _product(A: Matrix, B: Matrix) -> Matrix:
    """Return A B; the bits of a column do not depend on the columns beside it."""
    out = np.empty((A.shape[0], B.shape[1]))
    left, right = np.ascontiguousarray(A), np.ascontiguousarray(B)
    project_dense(left, right, np.zeros(B.shape[1]), out)
    return out


def _stacked(H: Matrix, ridge: float) -> Matrix:
    """Return H above √ρ I: its triangle is that of HᵀH + ρI, whose condition is a square."""
    return np.vstack([H, math.sqrt(ridge) * np.eye(H.shape[1])])


def least_squares(H: Matrix, T: Matrix, ridge: float | None) -> Matrix:
    """Return β₀ of Eq. (1), or of Eq. (1ρ) when there is a ridge: shape (L, q).

    A column of β₀ depends on its own column of T alone, to the bit.
    """
    if len(H) == 0:
        return np.zeros((H.shape[1], T.shape[1]))
    if ridge is None:
        return _product(scipy.linalg.pinv(H, atol=LARGEST_CHANGE**-0.5), T)
    Q, R = scipy.linalg.qr(_stacked(H, ridge), mode="economic")
    beta = _product(Q[: len(H)].T, T)
    solve_upper(np.ascontiguousarray(R), beta)
    return beta


def choose_ridge(H: Matrix, T: Matrix) -> float:
    """Return the ridge among 10⁻³, …, 10³ whose left-out predictions are best by micro-F1.

    With H = U diag(s) Vᵀ the fitted values are U diag(s²/(s² + ρ)) UᵀT, and leaving row i out
    divides its residual by 1 − Σ_l U_il² s_l²/(s_l² + ρ).  Ties go to the smaller squared error.
    Labels that no row has are left out: it must not matter whether they were announced.
    """
    T = np.ascontiguousarray(T[:, (T > 0).any(axis=0)])
    if len(H) < 2 or T.shape[1] == 0:
        return EARLY_RIDGE
    U, s, _ = scipy.linalg.svd(H, full_matrices=False)
    merits = []
    for ridge in RIDGES:
        shrink = s**2 / (s**2 + ridge)
        residual = (T - (U * shrink) @ (U.T @ T)) / (1 - (U**2) @ shrink)[:, None]
        predicted, true = T - residual > 0, T > 0
        both, either = (predicted & true).sum(), predicted.sum() + true.sum()
        merits.append((2 * both / max(either, 1), -float(np.mean(residual**2))))
    return RIDGES[max(range(len(RIDGES)), key=merits.__getitem__)]


class _Hidden:
    """The random layer h(x) = σ(Wᵀx + b), drawn from a seed when it is first needed."""

    def __init__(self, p: int, L: int, seed: int) -> None:
        self.p, self.L, self.seed = p, L, seed
        self._drawn: tuple[Matrix, Matrix] | None = None

    @property
    def weights(self) -> tuple[Matrix, Matrix]:
        """W of shape (p, L) and b of shape (L,)."""
        if self._drawn is None:
            # RandomState, because its streams are frozen: a saved seed means the same for ever.
            draw = np.random.RandomState(self.seed)
            self._drawn = draw.uniform(-1, 1, (self.p, self.L)), draw.uniform(0, 1, self.L)
        return self._drawn

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_drawn": None}  # the seed says it all

    def __call__(self, X: Rows) -> Matrix:
        """Return H of shape (n, L); a row's values do not depend on the rows beside it."""
        W, b = self.weights
        H = np.empty((X.shape[0], self.L))
        if sp.issparse(X):
            indptr, indices = X.indptr.astype(np.int64), X.indices.astype(np.int32)
            project_sparse(indptr, indices, X.data.astype(np.float64, copy=False), W, b, H)
        else:
            project_dense(np.ascontiguousarray(X, np.float64), W, b, H)
        _sigmoid(H)
        return H

    @property
    def nbytes(self) -> int:
        return 0 if self._drawn is None else sum(array.nbytes for array in self._drawn)


class _Network:
    """A started OSML-ELM: hidden layer, scaling, and the solver's state.

    Columns of β and z: one for the label never seen, then the q labels.
    """

    def __init__(self, hidden: _Hidden, scaling: Scaling | None, ridge: float | None) -> None:
        self.hidden, self.scaling, self.ridge = hidden, scaling, ridge
        self.M: Matrix | None = None  # of the plain recursion, with beta
        self.beta: Matrix = np.empty((hidden.L, 0))
        self.S: Matrix | None = None  # of the stable variant

    @classmethod
    def of(
        cls, block: Block, hidden: _Hidden, scale: str | None, ridge: Any, solver: str
    ) -> _Network:
        """Start from the rows of the first block."""
        X, Y, known = block.rows()
        scaling = Scaling.of(X, "range") if scale == "auto" else None
        H = hidden(X if scaling is None else scaling(X))
        T, known = _targets(Y, known)
        if isinstance(ridge, str):
            sure = known.all(axis=1)
            ridge = choose_ridge(H[sure], T[sure, 1:])
        self = cls(hidden, scaling, None if ridge is None else float(ridge))
        L = hidden.L
        beta = np.empty((L, T.shape[1]))
        masks, which = np.unique(known, axis=1, return_inverse=True)
        for m, rows in enumerate(masks.T):  # labels known on the same rows are solved together
            columns = which.ravel() == m
            beta[:, columns] = least_squares(H[rows], T[np.ix_(rows, columns)], self.ridge)
        if self.ridge is None:
            self.beta = beta
            self.M = np.ascontiguousarray(scipy.linalg.pinv(H.T @ H, atol=1 / LARGEST_CHANGE))
            return self
        R = np.ascontiguousarray(scipy.linalg.qr(_stacked(H, self.ridge), mode="r")[0][:L])
        if solver == "recursion":
            self.beta, inverse = beta, np.eye(L)
            solve_upper(R, inverse)
            self.M = inverse @ inverse.T
        else:
            self.S = np.hstack([R, _product(R, beta)])
        return self

    def learn(self, X: Rows, Y: Bytes, known: Bools) -> None:
        H = self.hidden(X if self.scaling is None else self.scaling(X))
        T, known = _targets(Y, known)
        if self.S is not None:
            _learn_triangle(self.S, H, T, known)
        elif self.M is not None:
            recursion(self.M, self.beta, H, T, known)

    def margins(self, X: Rows) -> Matrix:
        """Return o of Eq. (4), of shape (n, q)."""
        H = self.hidden(X if self.scaling is None else self.scaling(X))
        if self.S is not None:
            rows = np.zeros((len(H), self.S.shape[1]))
            rows[:, : self.hidden.L] = H
            _regress_all(self.S, rows)
            return -rows[:, self.hidden.L + 1 :]
        out = np.empty((len(H), self.beta.shape[1]))
        project_dense(H, self.beta, np.zeros(self.beta.shape[1]), out)
        return out[:, 1:]

    def weights(self) -> Matrix:
        """Return β, of shape (L, q)."""
        if self.S is None:
            return self.beta[:, 1:]
        L = self.hidden.L
        beta = self.S[:, L + 1 :].copy()
        solve_upper(self.S[:, :L], beta)
        return beta

    def grow(self, q: int) -> None:
        """Give new labels what the label never seen has learnt."""
        if self.S is not None:
            L = self.hidden.L
            never = np.repeat(self.S[:, L : L + 1], q + 1 + L - self.S.shape[1], axis=1)
            self.S = np.hstack([self.S, never])
        else:
            never = np.repeat(self.beta[:, :1], q + 1 - self.beta.shape[1], axis=1)
            self.beta = np.hstack([self.beta, never])

    def copy(self) -> _Network:
        other = _Network(self.hidden, self.scaling, self.ridge)
        other.M = None if self.M is None else np.array(self.M)
        other.beta = np.array(self.beta)
        other.S = None if self.S is None else np.array(self.S)
        return other

    @property
    def nbytes(self) -> int:
        solver = self.S.nbytes if self.S is not None else 0
        if self.M is not None:
            solver = self.M.nbytes + self.beta.nbytes
        return solver + (sum(part.nbytes for part in self.scaling) if self.scaling else 0)

    def dump(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "ridge": self.ridge,
            "scaling": None if self.scaling is None else self.scaling.dump(),
        }
        if self.M is not None:
            return state | {"M": self.M.copy(), "beta": self.beta.copy()}
        assert self.S is not None
        return state | {"S": self.S.copy()}

    @classmethod
    def load(cls, state: Any, hidden: _Hidden, q: int) -> _Network:
        plain = isinstance(state, dict) and "S" not in state
        expect_keys("the network", state, "ridge", "scaling", *(("M", "beta") if plain else ("S",)))
        ridge = state["ridge"]
        if ridge is not None or not plain:
            check_number("ridge", ridge, least=SMALLEST_RIDGE, most=LARGEST_RIDGE)
        scaling = state["scaling"]
        self = cls(hidden, None if scaling is None else Scaling.load(scaling, hidden.p), ridge)
        L = hidden.L
        if plain:
            self.M = expect("M", state["M"], np.float64, (L, L))
            self.beta = expect("beta", state["beta"], np.float64, (L, q + 1))
            check_size("M", self.M, LARGEST_ENTRY)
            check_size("beta", self.beta, LARGEST_ENTRY)
        else:
            self.S = expect("S", state["S"], np.float64, (L, L + q + 1))
            check_size("S", self.S, LARGEST_TARGET)
            _check_triangle(self.S[:, :L])
        return self


def _check_triangle(R: Matrix) -> None:
    """Raise unless ``R`` is an upper triangle that can be solved.

    Rotating rows in only adds to RᵀR, so what holds now holds from now on.
    """
    if np.tril(R, -1).any() or not np.diagonal(R).all():
        raise ValueError("S must be an upper triangle with no zero on its diagonal")
    with np.errstate(all="ignore"):
        inverse, _ = scipy.linalg.lapack.dtrtri(R)
        condition = np.abs(R).max() * np.abs(inverse).max()
    if not condition <= LARGEST_CONDITION:
        raise ValueError(f"S must have a condition of at most {LARGEST_CONDITION:g}, got more")


def _targets(Y: Bytes, known: Bools) -> tuple[Matrix, Bools]:
    """Return bipolar targets, and where they are known, with the never seen label in front."""
    n = len(Y)
    T = np.hstack([np.full((n, 1), -1.0), 2.0 * Y - 1.0])
    return T, np.hstack([np.ones((n, 1), np.bool_), known])


class OSMLELM(BlockClassifier):
    """Online sequential multi-label extreme learning machine.

    A random hidden layer whose output weights are the least-squares solution on all examples
    seen, kept up to date by recursive least squares.  ``OSMLELM()`` has the settings that its
    authors released; :meth:`stable` is regularised and keeps its precision on long streams.

    Learning takes O(pL + L² + Lq) per example, predicting O(pL + Lq) (``solver="qr"``:
    O(pL + L² + Lq)); memory is O(pL + L² + Lq) and does not grow with the stream.

    Parameters
    ----------
    n_hidden : int, default 200
        Hidden neurons L, at most 4096.
    first_block : int or None, default None
        Examples N₀ that are gathered before the recursion starts; None means 2 · ``n_hidden``.
        The authors' code has 200, the paper's protocol a fifth of the training part.
    ridge : positive float, "auto" or None, default None
        Strength ρ of the regularisation; "auto" chooses it from 10⁻³, …, 10³ by leave-one-out
        error on the first block; None is the unregularised solution of the paper.
    solver : {"recursion", "qr"}, default "recursion"
        The paper's recursion of an inverse, or rotations into a triangle, which needs a ridge.
    scale : {"auto", None}, default "auto"
        "auto" maps the range of each feature in the first block to [−1, 1]; 0/1 features stay,
        and sparse ones are at most divided by their largest magnitude.
    random_state : int, RandomState instance or None, default None
        Draws the hidden layer.

    Attributes
    ----------
    beta_ : array of shape (L, q)
        Output weights.
    ridge_ : float or None
        The ridge in use.

    Examples
    --------
    >>> import numpy as np
    >>> from tagstream.paper.methods.osml_elm import OSMLELM
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> Y = np.column_stack([X[:, 0] > 0, X[:, 0] * X[:, 1] > 0])
    >>> model = OSMLELM.stable(n_hidden=50, random_state=0).partial_fit(X, Y)
    >>> model.predict([[1, 1], [-1, 1]]).astype(int)
    array([[1, 1],
           [0, 0]])
    >>> float(model.ridge_)
    0.001
    """

    def __init__(
        self,
        n_hidden: int = 200,
        *,
        first_block: int | None = None,
        ridge: float | str | None = None,
        solver: str = "recursion",
        scale: str | None = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_hidden = n_hidden
        self.first_block = first_block
        self.ridge = ridge
        self.solver = solver
        self.scale = scale
        self.random_state = random_state

    @classmethod
    def stable(
        cls,
        n_hidden: int = 200,
        *,
        first_block: int | None = None,
        ridge: float | str = "auto",
        scale: str | None = "auto",
        random_state: Any = None,
    ) -> Self:
        """Return the regularised variant that keeps its precision on long streams."""
        return cls(
            n_hidden,
            first_block=first_block,
            ridge=ridge,
            solver="qr",
            scale=scale,
            random_state=random_state,
        )

    @property
    def beta_(self) -> Matrix:
        """Output weights β of shape (L, q)."""
        beta: Matrix = self._started().weights()
        return beta

    @property
    def ridge_(self) -> float | None:
        """The ridge in use."""
        ridge: float | None = self._started().ridge
        return ridge

    @property
    def nbytes_(self) -> int:
        """Bytes of the state, the hidden layer included."""
        return super().nbytes_ + self._hidden.nbytes

    # ------------------------------------------------------------------ hooks
    def _check_params(self) -> None:
        check_number("n_hidden", self.n_hidden, kind=int, least=1, most=LARGEST_HIDDEN)
        check_number("first_block", self.first_block, kind=int, least=1, none=True)
        check_choice("solver", self.solver, ("recursion", "qr"))
        check_choice("scale", self.scale, ("auto", None))
        if isinstance(self.ridge, str):
            check_choice("ridge", self.ridge, ("auto",))
        else:
            plain = self.solver == "recursion"
            check_number("ridge", self.ridge, least=SMALLEST_RIDGE, most=LARGEST_RIDGE, none=plain)
        check_random_state(self.random_state)

    def _block_size(self) -> int:
        return int(2 * self.n_hidden if self.first_block is None else self.first_block)

    def _core_size(self, p: int, q: int) -> int:
        L = self._hidden.L if hasattr(self, "_hidden") else int(self.n_hidden)
        return L * (p + L + q + 2)

    def _start(self) -> None:
        super()._start()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._hidden = _Hidden(self.n_features_in_, int(self.n_hidden), seed)

    def _make(self, block: Block, early: bool) -> _Network:
        ridge, solver = self.ridge, self.solver
        if early:
            chosen_later = ridge is None or isinstance(ridge, str)
            ridge, solver = EARLY_RIDGE if chosen_later else ridge, "qr"
        with ONE_BLAS_THREAD:
            return _Network.of(block, self._hidden, self.scale, ridge, solver)

    def _dump(self) -> dict[str, Any]:
        hidden = {"seed": self._hidden.seed, "n_hidden": self._hidden.L}
        return {"hidden": hidden, **super()._dump()}

    def _load(self, state: dict[str, Any]) -> None:
        expect_keys("the learner", state, "hidden", "block", "core")
        hidden = state["hidden"]
        expect_keys("the hidden layer", hidden, "seed", "n_hidden")
        seed = checked_count("seed", hidden["seed"], 0, 2**31 - 1)
        L = checked_count("n_hidden", hidden["n_hidden"], 1, LARGEST_HIDDEN)
        p = checked_count("n_features", self.n_features_in_, 1)
        self._hidden = _Hidden(p, L, seed)
        super()._load({"block": state["block"], "core": state["core"]})

    def _load_core(self, state: Any) -> _Network:
        return _Network.load(state, self._hidden, len(self.classes_))
