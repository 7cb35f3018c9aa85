"""What OSML-ELM and OLANSGD share: the first block, its scaling, and triangular least squares.

Both baselines look at a first block of the stream before they start: to scale the features and
to choose a strength of regularisation.  Until the block is full, its rows are the state.

Recursive least squares is kept here as a triangle.  For rows h and targets t, ridge ρ,

    S = [R | z],  RᵀR = ρI + Σ h hᵀ,  Rᵀz = Σ h tᵀ,  so that  β = R⁻¹z  minimises
    ρ‖β‖² + Σ ‖t − βᵀh‖².

A new row is rotated into the triangle (Givens).  No inverse is carried along, RᵀR is symmetric
and positive by construction, and rounding errors do not feed back: they stay those of the last
steps however long the stream (Golub and Van Loan, *Matrix Computations*, section 6.5).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from tagstream.checks import LARGEST_COUNT, LARGEST_VALUE, Rows, expect, expect_indptr, expect_keys
from tagstream.core.compilation import compiled
from tagstream.core.products import PRIOR
from tagstream.labels.read import Batch, Labels
from tagstream.learners.estimator import StreamClassifier

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Block",
    "BlockClassifier",
    "Core",
    "Scaling",
    "check_size",
    "checked_count",
    "insert",
    "regress",
    "solve_upper",
    "to_unit",
]

Matrix = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

# Scaled values beyond this are cut: one outlier must not outweigh the rest of the stream.
LARGEST_SCALED = 5.0

# A column whose spread is not above this is constant.
SMALLEST_SPREAD = 1e-300

# Numbers in a started learner, 1 GiB of them.  A few bytes of a file, or one row, must not ask for
# more memory than a machine has.
LARGEST_CORE = 2**27


@compiled
def insert(S: Matrix, row: Matrix) -> None:
    """Rotate ``row`` = [h | t] into the triangle ``S`` = [R | z]; both change in place."""
    n, m = S.shape
    for i in range(n):
        h = row[i]
        if h == 0.0:
            continue
        r = math.hypot(S[i, i], h)
        c = S[i, i] / r
        s = h / r
        for j in range(i, m):
            old = S[i, j]
            S[i, j] = c * old + s * row[j]
            row[j] = c * row[j] - s * old


@compiled
def regress(S: Matrix, row: Matrix) -> None:
    """Turn ``row`` = [h | 0] into [w | −βᵀh], where Rᵀw = h; ``S`` = [R | z] stays.

    βᵀh = zᵀR⁻ᵀh = zᵀw, so one forward substitution serves all columns of z.
    """
    n, m = S.shape
    for i in range(n):
        if row[i] == 0.0:
            continue
        w = row[i] / S[i, i]
        row[i] = w
        for j in range(i + 1, m):
            row[j] -= w * S[i, j]


@compiled
def solve_upper(R: Matrix, B: Matrix) -> None:
    """Turn ``B`` into R⁻¹B by back substitution, in place; ``R`` is an upper triangle.

    A column of the result has the same bits whatever columns stand beside it, which LAPACK does
    not promise.
    """
    n, m = B.shape
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            r = R[i, k]
            for j in range(m):
                B[i, j] -= r * B[k, j]
        for j in range(m):
            B[i, j] /= R[i, i]


def to_unit(margin: Matrix) -> Matrix:
    """Return 1 / (1 + exp(−2 margin)), at least 0.5 where ``margin`` > 0, else clearly less.

    A score that is within 10⁻⁶ of a threshold reaches it, so the score of a margin that is zero or
    less (or not a number: it says nothing for the label) is at most 0.5 − 2·10⁻⁶.
    """
    with np.errstate(over="ignore"):
        unit: Matrix = 1 / (1 + np.exp(-2 * margin))
    return np.where(margin > 0, unit, np.fmin(unit, 0.5 - 2 * PRIOR))


class Scaling(NamedTuple):
    """x ↦ (x − shift) · factor, cut to ±5; 0/1 columns stay, sparse rows are never shifted.

    Attributes
    ----------
    shift, factor : arrays of shape (p,)
    """

    shift: Matrix
    factor: Matrix

    @classmethod
    def of(cls, X: Rows, how: str) -> Scaling:
        """Look at rows ``X`` of shape (n, p).

        ``how="range"`` maps the range of each dense column to [−1, 1]; ``how="spread"`` gives it
        mean 0 and deviation 1.  A sparse column is divided by its largest magnitude if that is
        above 1.
        """
        p = X.shape[1]
        if sp.issparse(X):
            largest = abs(X).max(axis=0).toarray().ravel() if X.nnz else np.zeros(p)
            return cls(np.zeros(p), 1 / np.maximum(largest, 1.0))
        X = X.astype(np.float64, copy=False)
        low, high = X.min(axis=0), X.max(axis=0)
        if how == "range":
            shift, spread = (low + high) / 2, (high - low) / 2
        else:
            shift, spread = X.mean(axis=0), X.std(axis=0)
        # A column that is constant up to rounding is only shifted.
        flat = spread <= 1e-9 * np.maximum(np.abs(low), np.abs(high)) + SMALLEST_SPREAD
        factor = 1 / np.where(flat, 1.0, spread)
        binary = ((X == 0) | (X == 1)).all(axis=0)
        return cls(np.where(binary, 0.0, shift), np.where(binary, 1.0, factor))

    def __call__(self, X: Rows) -> Rows:
        """Return scaled rows, of the same shape and kind."""
        with np.errstate(over="ignore"):
            if sp.issparse(X):
                scaled = X.astype(np.float64)
                scaled.data *= self.factor[scaled.indices]
                np.clip(scaled.data, -LARGEST_SCALED, LARGEST_SCALED, out=scaled.data)
                return scaled
            return np.clip((X - self.shift) * self.factor, -LARGEST_SCALED, LARGEST_SCALED)

    def dump(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {"shift": np.array(self.shift), "factor": np.array(self.factor)}

    @classmethod
    def load(cls, state: Any, p: int) -> Scaling:
        """Return what :meth:`dump` described, for ``p`` features."""
        expect_keys("the scaling", state, "shift", "factor")
        self = cls(*(expect(name, state[name], np.float64, (p,)) for name in ("shift", "factor")))
        check_size("shift", self.shift, 2 * LARGEST_VALUE)
        check_size("factor", self.factor, 1 / SMALLEST_SPREAD)
        if (self.factor <= 0).any():
            raise ValueError(f"factor must be positive, got {self.factor.min():g}")
        return self


class Block:
    """The first rows of a stream with their labels, until there are ``size`` of them.

    Arrays that were added are never written to again, so that blocks may share them.  ``early`` is
    the owner's: what it has made of the rows for predictions, no part of the state.
    """

    early: _Early | None = None

    def __init__(self, size: int, p: int, q: int, sparse: bool) -> None:
        self.size, self.p, self.q, self.sparse = size, p, q, sparse
        self.n = 0
        self._parts: list[tuple[Rows, Bytes, Bools]] = []

    def add(self, X: Rows, labels: Labels) -> None:
        """Append rows with labels in q columns."""
        known = np.ones(labels.Y.shape, np.bool_) if labels.known is None else labels.known
        # A copy: the caller may reuse the memory of its rows.
        self._parts.append((X.astype(np.float64), labels.Y.copy(), known.copy()))
        self.n += X.shape[0]

    def grow(self, q: int) -> None:
        """Widen the labels: no earlier row had the new ones."""
        new = ((0, 0), (0, q - self.q))
        self._parts = [
            (X, np.pad(Y, new), np.pad(known, new, constant_values=True))
            for X, Y, known in self._parts
        ]
        self.q = q
        self.early = None

    def snapshot(self) -> Block:
        """Return a block that does not see what happens to this one."""
        block = Block(self.size, self.p, self.q, self.sparse)
        block.n, block._parts, block.early = self.n, list(self._parts), self.early
        return block

    def take_early(self) -> _Early | None:
        """Take ``early`` out; of several threads that ask at once, one gets it."""
        early: _Early | None = self.__dict__.pop("early", None)
        return early

    def head(self, n: int) -> Block:
        """Return a block of the first ``n`` rows."""
        X, Y, known = self.rows()
        block = Block(n, self.p, self.q, self.sparse)
        block.add(X[:n], Labels(Y[:n], known[:n]))
        return block

    def rows(self) -> tuple[Rows, Bytes, Bools]:
        """Return X (n, p), Y (n, q) and where Y is known (n, q)."""
        if not self._parts:
            X = sp.csr_matrix((0, self.p)) if self.sparse else np.empty((0, self.p))
            return X, np.empty((0, self.q), np.uint8), np.empty((0, self.q), np.bool_)
        if len(self._parts) > 1:
            X, Y, known = zip(*self._parts, strict=True)
            stacked = sp.vstack(X, format="csr") if self.sparse else np.concatenate(X)
            self._parts = [(stacked, np.concatenate(Y), np.concatenate(known))]
        return self._parts[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the stored rows and labels."""
        return sum(
            Y.nbytes
            + known.nbytes
            + (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if self.sparse else X.nbytes)
            for X, Y, known in self._parts
        )

    def dump(self) -> dict[str, Any]:
        """Return the state as plain values."""
        X, Y, known = self.rows()
        state: dict[str, Any] = {
            "size": self.size,
            "width": self.p,
            "Y": Y.copy(),
            "known": known.copy(),
        }
        if self.sparse:
            state["data"] = X.data.copy()
            state["indices"] = X.indices.astype(np.int64)
            state["indptr"] = X.indptr.astype(np.int64)
        else:
            state["X"] = X.copy()
        return state

    @classmethod
    def load(cls, state: Any, p: int, q: int, sparse: bool) -> Block:
        """Return what :meth:`dump` described."""
        own = ("data", "indices", "indptr") if sparse else ("X",)
        expect_keys("the first block", state, "size", "width", "Y", "known", *own)
        if state["width"] != p:
            raise ValueError(f"the first block must have {p} features, got {state['width']!r}")
        Y = expect("Y", state["Y"], np.uint8, (None, q))
        n = len(Y)
        known = expect("known", state["known"], np.bool_, (n, q))
        if (known < Y).any():
            raise ValueError("Y must hold 0 and 1 only, and 0 where it is not known")
        block = cls(checked_count("size", state["size"], 1, LARGEST_COUNT), p, q, sparse)
        if n >= block.size:
            raise ValueError(f"the first block must have fewer than {block.size} rows, got {n}")
        if sparse:
            data = expect("data", state["data"], np.float64, (None,))
            indices = expect("indices", state["indices"], np.int64, data.shape)
            indptr = expect("indptr", state["indptr"], np.int64, (n + 1,))
            expect_indptr(indptr, len(data))
            row = np.repeat(np.arange(n), np.diff(indptr))
            if ((indices < 0) | (indices >= p)).any() or (
                (np.diff(row) == 0) & (np.diff(indices) <= 0)
            ).any():
                raise ValueError("the rows of the first block must be a canonical CSR matrix")
            check_size("data", data, LARGEST_VALUE)
            X: Rows = sp.csr_matrix((data, indices, indptr), shape=(n, p))
        else:
            X = expect("X", state["X"], np.float64, (n, p))
            check_size("X", X, LARGEST_VALUE)
        if n:
            block.add(X, Labels(Y, known))
        return block


class Core(Protocol):
    """A learner that has started: what it needs from the first block is settled."""

    def learn(self, X: Rows, Y: Bytes, known: Bools) -> None:
        """Learn rows in order."""

    def margins(self, X: Rows) -> Matrix:
        """Return (n, q): positive where the label is predicted, −inf for a label never seen."""

    def grow(self, q: int) -> None:
        """Make room for new labels to the right."""

    def copy(self) -> Self:
        """Return a core of its own, with arrays that may be written to."""

    def dump(self) -> dict[str, Any]:
        """Return the state as plain values."""

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""


class _Early(NamedTuple):
    core: Core
    n_made: int  # rows of which the core was made
    n_learnt: int  # rows that it has learnt, those included
    shared: bool  # with another learner: to be copied before it learns more


class BlockClassifier(StreamClassifier):
    """A learner that gathers a first block, starts from it, and then learns row by row.

    A subclass makes its :class:`Core` from a block, early (before the block is full, for
    predictions only) or for good.  An early core is made of the first 1, 2, 4, … rows and learns
    the others one by one, so that predicting at every step costs little.  Items of which no
    label is known are passed over.
    """

    _block: Block | None
    _core: Core | None
    _shared = False  # the core is also another learner's: to be copied before it changes

    def _block_size(self) -> int:
        raise NotImplementedError

    def _core_size(self, p: int, q: int) -> int:
        """Return how many numbers a core for p features and q labels holds."""
        raise NotImplementedError

    def _make(self, block: Block, early: bool) -> Core:
        raise NotImplementedError

    def _load_core(self, state: Any) -> Core:
        raise NotImplementedError

    @property
    def nbytes_(self) -> int:
        """Bytes of the state."""
        return sum(part.nbytes for part in (self._block, self._core) if part is not None)

    def _read_batch(self, rows: Rows, Y: Any, classes: Any, names: list[Hashable]) -> Batch:
        batch = super()._read_batch(rows, Y, classes, names)
        self._check_core_size(rows.shape[1], len(batch.names))
        return batch

    def _check_core_size(self, p: int, q: int) -> None:
        size = self._core_size(p, q)
        if size > LARGEST_CORE:
            raise ValueError(
                f"a {type(self).__name__} must hold at most {LARGEST_CORE} numbers, got {size} for "
                f"{p} features and {q} labels"
            )

    def _start(self) -> None:
        self._block = Block(self._block_size(), self.n_features_in_, 0, self._sparse)
        self._core, self._shared = None, False

    def _grow(self, q: int) -> None:
        if self._block is not None:
            self._block.grow(q)
        else:
            self._own_core().grow(q)

    def _learn(self, X: Rows, labels: Labels, ids: Sequence[Hashable] | None) -> None:
        Y, known = labels
        if known is None:
            known = np.ones(Y.shape, np.bool_)
        elif not known.any(axis=1).all():
            some = known.any(axis=1)
            X, Y, known = X[some], Y[some], known[some]
        if X.shape[0] and self._block is not None:
            room = self._block.size - self._block.n
            self._block.add(X[:room], Labels(Y[:room], known[:room]))
            if self._block.n < self._block.size:
                return
            self._core, self._shared = self._make(self._block, early=False), False
            self._block = None
            X, Y, known = X[room:], Y[room:], known[room:]
        if X.shape[0]:
            self._own_core().learn(X, Y, known)

    def _own_core(self) -> Core:
        """Return the core, to change it; nobody else has it."""
        assert self._core is not None
        if self._shared:
            self._core, self._shared = self._core.copy(), False
        return self._core

    def _started(self) -> Any:
        """Return the core, to read it; before the first block is full, one made of what there is.

        Threads may ask at once: a core that has learnt all rows is only read, and an older one is
        brought up to date by the one thread that got hold of it, while others make their own.
        """
        if self._block is None:
            return self._core
        block, early = self._block, self._block.early
        if block.n == 0:
            raise NotFittedError(
                f"this {type(self).__name__} must have seen an item with known labels, got none"
            )
        if early is not None and early.n_learnt == block.n:
            return early.core
        early, n_made = block.take_early(), 1 << (block.n.bit_length() - 1)
        if early is None or early.n_made != n_made:
            core, n_learnt = self._make(block.head(n_made), early=True), n_made
        else:
            core, n_learnt = early.core.copy() if early.shared else early.core, early.n_learnt
        if n_learnt < block.n:
            X, Y, known = block.rows()
            core.learn(X[n_learnt:], Y[n_learnt:], known[n_learnt:])
        block.early = _Early(core, n_made, block.n, shared=False)
        return core

    def _freeze(self, clone: BlockClassifier) -> None:
        """Give ``clone``, a shallow copy of this learner, a picture that learning will not change.

        Takes no time that depends on the size of a core: it is copied when this learner next
        changes it.
        """
        self._shared = clone._shared = True
        if self._block is not None:
            if self._block.n:
                self._started()
                assert self._block.early is not None
                self._block.early = self._block.early._replace(shared=True)
            clone._block = self._block.snapshot()

    def _proba(self, X: Rows) -> Matrix:
        if self._block is not None and self._block.n == 0:
            return np.zeros((X.shape[0], len(self.classes_)))
        return to_unit(self._started().margins(X))

    def _dump(self) -> dict[str, Any]:
        return {
            "block": None if self._block is None else self._block.dump(),
            "core": None if self._core is None else self._core.dump(),
        }

    def _load(self, state: dict[str, Any]) -> None:
        expect_keys("the learner", state, "block", "core")
        block, core = state["block"], state["core"]
        if (block is None) == (core is None):
            raise ValueError("the state must have either a first block or a core")
        p, q = checked_count("n_features", self.n_features_in_, 1), len(self.classes_)
        if self._single and q == 0:
            raise ValueError("a model of one label per item must have a label, got none")
        self._check_core_size(p, q)
        self._block = None if block is None else Block.load(block, p, q, self._sparse)
        self._core = None if core is None else self._load_core(core)
        self._shared = False


def checked_count(name: str, value: Any, least: int, most: int = LARGEST_COUNT) -> int:
    """Return ``value`` if it is an integer between ``least`` and ``most``, else raise."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} must be an integer from {least} to {most}, got {value!r}")
    return value


def check_size(name: str, array: Matrix, largest: float) -> None:
    """Raise unless the entries of a stored array stay within ±``largest``."""
    if array.size and max(array.max(), -array.min()) > largest:
        raise ValueError(f"{name} must stay within ±{largest:g}, got {np.abs(array).max():g}")
