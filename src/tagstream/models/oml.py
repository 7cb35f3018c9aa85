"""OML: online metric learning for multi-label classification.

An item is mapped into label space by a projection P (:mod:`tagstream.projection`), measured
there by a metric V (:mod:`tagstream.metric`), and takes the vote of its k nearest stored items
(:mod:`tagstream.memory`).  P is fitted again at geometrically growing times; V learns at every
example; the stored codes, made with a copy of V, are renewed whenever P is.  All of this happens
at fixed counts of examples, so how a stream is cut into calls does not matter.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from tagstream import metric, projection
from tagstream.checks import Rows, blas_threads, check_choice, check_number, expect, expect_keys
from tagstream.kernels import compiled, dense_squares, embed, project_dense, scan_one
from tagstream.labels import Labels
from tagstream.memory import DenseRows, Memory
from tagstream.models.neighbors import NeighborClassifier

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["OML"]

BLOCK = 4096  # examples whose projections are held at a time
FULL_RANK = 512  # labels up to which the metric is square by default

# Parts of the saved state, and its plain numbers with their types.
STATE = (
    "memory", "seed", "V", "basis", "codec", "P", "c", "lift", "columns", "choice",
    "counters",
)  # fmt: skip
COUNTERS: dict[str, type] = {
    "n_updates_": int,
    "n_degenerate_": int,
    "cumulative_loss_": float,
    "loss_": float,
    "step_": float,
    "_next_fit": int,
    "_next_choice": int,
    "_exponent": int,
    "_stale": bool,
}


class _Asked(NamedTuple):
    """What was found out about one row when ``seen`` examples had been learnt."""

    seen: int
    row: bytes
    z: npt.NDArray[np.float64]  # (1, q)
    code: npt.NDArray[np.float32]  # (1, d)
    nearest: npt.NDArray[np.int64]  # (1, k), positions


class OML(ClassNamePrefixFeaturesOutMixin, TransformerMixin, NeighborClassifier):  # type: ignore[misc]
    """Online metric learning for multi-label streams.

    Parameters
    ----------
    n_components : int, optional
        Dimension d of the metric space.  By default the number of labels q, but at most 512.
    n_neighbors : int
        How many stored items vote.
    step : {"exact", "cubic", "printed"}
        How far V moves in a round: to the root of the round's constraint; to the maximum of the
        paper's cubic, with correct coefficients; or with those misprinted in the paper.
    step_min, step_max : float
        Bounds of the step λ (the paper's m and M); the exact step has no lower bound.  The small
        default cap makes the learner robust against label noise.
    projection : {"recursive", "first"}
        Fit P on all stored examples, again and again, or once on the first ``first_block``.
    ridge : "auto" or float
        Strength of P's ridge, by default chosen by leave-one-out error; 0 is least squares.
    scale : {"auto", "standard", "unit", None}
        Standardise the features, divide rows by their length, leave them, or choose by
        leave-one-out error: whether to standardise dense rows, whether sparse ones get unit length.
    lift : {"auto", "kernel", "fourier", None}
        What comes before P: the Gaussian kernel with up to 1,000 stored rows, as many random
        Fourier features of it, nothing, or choose between the kernel and nothing.
    neighbor : {"embedding", "input"}
        Where the neighbour of a learning round is looked up.
    window : int, optional
        Keep only that many examples; P, votes and choices then follow the window.
    threshold : float
        Share of the votes from which a label is predicted.
    update : {"inverse", "linear"}
        V ← (I − 2λA)⁻¹V (the paper's Algorithm 1), or V ← (I + 2λA)V (its Eq. 6).
    init : {"isometry", "normal"}
        V starts with orthonormal columns (the identity, or the leading directions of the labels
        when d < q), or standard normal as in the paper.
    first_block : int
        Size of the first block, used by ``projection="first"`` only.
    random_state : int, RandomState or None

    Attributes
    ----------
    P_ : array of shape (p, q), or (D, q) behind a lift of D features
    V_ : array of shape (q, d)
    n_updates_, n_degenerate_ : int
        Rounds in which V moved, and in which it could not although labels differed or the loss
        was positive (see ``docs/math.md``).
    cumulative_loss_, loss_, step_ : float
        Sum of all losses; loss and step of the last round.

    Examples
    --------
    >>> from tagstream.data import make_stream
    >>> stream = make_stream(600, seed=0)
    >>> model = OML(random_state=0).partial_fit(stream.X[:500], stream.Y[:500])
    >>> bool((model.predict(stream.X[500:]) == stream.Y[500:]).mean() > 0.8)
    True
    """

    V_: npt.NDArray[np.float64]

    def __init__(
        self,
        n_components: int | None = None,
        n_neighbors: int = 10,
        *,
        step: str = "exact",
        step_min: float = 1e-5,
        step_max: float = 1e-3,
        projection: str = "recursive",
        ridge: float | str = "auto",
        scale: str | None = "auto",
        lift: str | None = "auto",
        neighbor: str = "embedding",
        window: int | None = None,
        threshold: float = 0.5,
        update: str = "inverse",
        init: str = "isometry",
        first_block: int = 200,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.step = step
        self.step_min = step_min
        self.step_max = step_max
        self.projection = projection
        self.ridge = ridge
        self.scale = scale
        self.lift = lift
        self.neighbor = neighbor
        self.window = window
        self.threshold = threshold
        self.update = update
        self.init = init
        self.first_block = first_block
        self.random_state = random_state

    @classmethod
    def as_published(cls, first_block: int = 200, **changes: Any) -> Self:
        """Return the paper's method: cubic step, P by least squares on the first block, V₁ normal.

        Its coefficients are corrected (Erratum E2); ``step="printed"`` takes those printed.
        """
        paper: dict[str, Any] = {
            "step": "cubic",
            "step_max": 1e5,
            "projection": "first",
            "ridge": 0.0,
            "scale": None,
            "lift": None,
            "neighbor": "input",
            "init": "normal",
            "first_block": first_block,
        }
        return cls(**(paper | changes))

    # ------------------------------------------------------------------ hooks
    def _check_params(self) -> None:
        check_number("n_components", self.n_components, kind=int, least=1, none=True)
        check_number("n_neighbors", self.n_neighbors, kind=int, least=1)
        check_choice("step", self.step, metric.STEPS)
        check_number("step_min", self.step_min, least=0)
        check_number("step_max", self.step_max, least=self.step_min)
        check_choice("projection", self.projection, ("recursive", "first"))
        if self.ridge != "auto":
            check_number("ridge", self.ridge, least=0)
        check_choice("scale", self.scale, ("auto", *projection.SCALES))
        check_choice("lift", self.lift, ("auto", *projection.LIFTS))
        check_choice("neighbor", self.neighbor, ("embedding", "input"))
        check_number("window", self.window, kind=int, least=1, none=True)
        check_number("threshold", self.threshold, least=0, most=1)
        check_choice("update", self.update, metric.UPDATES)
        check_choice("init", self.init, ("isometry", "normal"))
        check_number("first_block", self.first_block, kind=int, least=1)

    def _start(self) -> None:
        self._seed = int(check_random_state(self.random_state).randint(2**31))
        self._memory = Memory(self.n_features_in_, sparse=self._sparse, window=self.window)
        self._projection: projection.Projection | None = None
        self._choice: projection.Choice | None = None
        recursive = self.projection == "recursive"
        self._next_fit = projection.FIRST_FIT if recursive else self.first_block
        self._next_choice = self._next_fit
        self.V_ = np.zeros((0, 0))
        self._basis = np.zeros((0, 0))
        self._codec = np.zeros((0, 0))  # the copy of V that made the stored codes, scaled
        self._exponent = 0
        self._stale = False
        self._asked: _Asked | None = None
        self.n_updates_ = self.n_degenerate_ = 0
        self.cumulative_loss_ = self.loss_ = self.step_ = 0.0

    def _grow(self, q: int) -> None:
        self._memory.grow(q)
        self._asked = None
        old, d_old = self.V_.shape
        # The paper's d depends on q, and is settled when its first block is full.
        settled = self.init == "normal" and self._projection is not None
        d = d_old if settled else self._dimension(q)
        if self.init == "isometry":
            # New labels get new directions while there are any; what was learnt stays.
            start = np.zeros((q, d))
            fresh = np.arange(min(q - old, d - d_old))
            start[old + fresh, d_old + fresh] = 1.0
        else:
            # Seeded by label: a longer row only appends numbers.
            rows = [np.random.default_rng([self._seed, j]).standard_normal(d) for j in range(q)]
            start = np.stack(rows) if rows else np.zeros((0, d))
        self._basis = _enlarged(start, self._basis)
        self.V_ = _enlarged(start, self.V_)
        if self._projection is not None:
            self._projection = self._projection.grown(q)
            self._codec = _enlarged(start * 0.5**self._exponent, self._codec)
            codes = self._memory.codes
            if codes is not None and codes.live.shape[1] < d:
                codes.replace(np.pad(codes.live, ((0, 0), (0, d - codes.live.shape[1]))))

    def _dimension(self, q: int) -> int:
        if self.n_components is not None:
            return int(min(self.n_components, q)) if self.init == "isometry" else self.n_components
        if self.init == "normal":
            return max(1, q // 2)  # Choice C1: the paper says d < q
        return min(q, FULL_RANK)

    def _learn(self, X: Rows, labels: Labels, ids: Sequence[Hashable] | None) -> None:
        rows = X.astype(np.float32, copy=False)
        n, seen, done = rows.shape[0], self.n_seen_, 0
        if n == 1 and ids is None and labels.known is None and self._plain:
            self._learn_row(rows, labels.Y[0])
            self._renew_if_due(seen + 1)
            return
        while done < n:
            size = min(n - done, self._next_fit - seen, self._memory.block_size(BLOCK))
            part = slice(done, done + size)
            self._learn_block(
                rows[part],
                Labels(labels.Y[part], None if labels.known is None else labels.known[part]),
                None if ids is None else ids[part],
            )
            done, seen = done + size, seen + size
            self._renew_if_due(seen)

    def _learn_row(self, row: npt.NDArray[np.float32], y: npt.NDArray[np.uint8]) -> None:
        """Do what :meth:`_learn_block` does, for one plain example, in one compiled call."""
        memory, asked = self._memory, self._asked
        assert isinstance(memory.rows, DenseRows)
        assert memory.codes is not None
        if asked is None or asked.seen != self.n_seen_ or asked.row != row.tobytes():
            asked = self._ask(row, 1)
        how = self._how()
        memory.extend()
        loss, lam, degenerate = _one_round(
            row, y, asked.z, asked.code, asked.nearest[0, 0], memory.rows.live, memory.rows.norms,
            memory.codes.live, memory.codes.norms, memory.bits[0], self.V_, *how,
        )  # fmt: skip
        memory.forget()
        self.n_updates_ += lam > 0
        self.n_degenerate_ += degenerate
        self.cumulative_loss_ += loss
        self.loss_, self.step_, self._stale = loss, lam, True

    def _how(self) -> tuple[int, bool, float, float]:
        """Return how a round steps, for the kernels."""
        try:
            step = metric.STEPS.index(self.step)
            return step, self.update == "linear", float(self.step_min), float(self.step_max)
        except (TypeError, ValueError):  # changed since it was last checked
            self._check_params()
            raise

    def _ask(self, row: npt.NDArray[np.float32], k: int) -> _Asked:
        """Embed one row and look up its k nearest stored items."""
        seen, made, memory = self.n_seen_, self._projection, self._memory
        assert made is not None
        assert memory.codes is not None
        q, d = self._codec.shape
        z, code, nearest = np.empty((1, q)), np.empty((1, d), np.float32), np.empty((1, k), int)
        _locate(
            made.features(row), made.P, made.c, self._codec,
            memory.codes.live, memory.codes.norms, z, code, nearest,
        )  # fmt: skip
        return _Asked(seen, row.tobytes(), z, code, nearest)

    @property
    def _plain(self) -> bool:
        """Whether single examples can take the short way."""
        made, memory = self._projection, self._memory
        return (
            made is not None and not self._sparse and self.neighbor == "embedding" and memory.plain
        )

    def _learn_block(self, rows: Rows, labels: Labels, ids: Sequence[Hashable] | None) -> None:
        memory = self._memory
        if self._projection is None:
            memory.append(rows, labels, ids)
            memory.forget()
            return
        Z = self._projection(rows)
        codes = self._encode(Z)
        positions = len(memory) + np.arange(len(Z))
        memory.append(rows, labels, ids, codes)
        lo = memory.first_seen(positions)
        if self.neighbor == "input":
            nearest = memory.rows.search(rows, 1, lo, positions)[1][:, 0]
        else:
            nearest = memory.codes.search(codes, 1, lo, positions)[1][:, 0]  # type: ignore[union-attr]
        theirs = memory.labels(np.maximum(nearest, 0))
        self._play(Z, labels, theirs, nearest < 0)
        memory.forget()

    def _play(self, Z: Any, mine: Labels, theirs: Labels, lonely: npt.NDArray[np.bool_]) -> None:
        known = np.empty((0, 0), np.bool_)
        if mine.known is not None or theirs.known is not None:
            known = np.ones(mine.Y.shape, np.bool_) if mine.known is None else mine.known
            known = known if theirs.known is None else known & theirs.known
        losses, steps = np.empty(len(Z)), np.empty(len(Z))
        degenerate = np.empty(len(Z), np.bool_)
        metric.run_rounds(
            Z, mine.Y, theirs.Y, known, lonely, self.V_, *self._how(), losses, steps, degenerate,
        )  # fmt: skip
        self.n_updates_ += int((steps > 0).sum())
        self.n_degenerate_ += int(degenerate.sum())
        # A running sum, so that the order of additions does not depend on the calls.
        self.cumulative_loss_ = float(np.cumsum(np.append(self.cumulative_loss_, losses))[-1])
        self.loss_, self.step_ = float(losses[-1]), float(steps[-1])
        self._stale = True

    def _renew_if_due(self, t: int) -> None:
        if t == self._next_fit:
            n, p = len(self._memory), min(self.n_features_in_, projection.LIFT_SIZE)
            with blas_threads(float(n) * p * p):
                self._renew(t)

    def _renew(self, t: int) -> None:
        """Fit P again where that is due, and make the stored codes anew."""
        if self._projection is None or self.projection == "recursive":
            rows, labels = self._memory.rows.live, self._memory.labels()
            if self._choice is None or t >= self._next_choice:
                self._choice = self._choose(rows, labels, t)
                # A full window, which grows no more, needs to be looked at more rarely.
                self._next_choice = t * (2 if self._sliding(t) is None else 4)
                self._turn(labels)
            if self._choice == projection.Choice(None):  # plain least squares
                self._projection = projection.first_block(rows, labels)
            else:
                self._projection = projection.fit(
                    rows,
                    labels,
                    self._choice,
                    lift_size=self._lift_size(t),
                    seed=self._seed,
                    start=self._projection,
                )
        self._next_fit = projection.next_fit(t, self.window)
        self._refresh()

    def _sliding(self, t: int) -> int | None:
        """Return the size of the window if it is full; None while what is stored still grows."""
        return self.window if self.window is not None and t > self.window else None

    def _lift_size(self, t: int) -> int:
        """Return how many features a lift has; few enough for the fits of a window to be cheap."""
        window = self._sliding(t)
        most = projection.LIFT_SIZE
        return most if window is None else min(most, max(100, window // 2))

    def _sample(self, t: int) -> int:
        """Return on how many examples to choose: a quarter of a small window is enough."""
        window = self._sliding(t)
        most = projection.SAMPLE
        return most if window is None else min(most, max(64, window // 4))

    def _turn(self, labels: Labels) -> None:
        """Turn a narrow metric to the present leading directions of the labels.

        What V has learnt is its difference from the old directions B; it is carried over as
        (V − B)BᵀB′, in the coordinates of the new ones.
        """
        q, d = self.V_.shape
        if self.init == "isometry" and d < q:
            turned = projection.leading_directions(labels, d)
            self.V_ = turned + (self.V_ - self._basis) @ (self._basis.T @ turned)
            self._basis = turned

    def _choose(self, rows: Rows, labels: Labels, t: int) -> projection.Choice:
        if self.ridge == 0 and self.lift is None and self.scale is None:
            return projection.Choice(None)
        return projection.choose(
            rows,
            labels,
            scale=self.scale,
            lift=self.lift,
            ridge=self.ridge,
            n_neighbors=self.n_neighbors,
            threshold=self.threshold,
            lift_size=self._lift_size(t),
            sample=self._sample(t),
            seed=self._seed,
        )

    def _refresh(self) -> None:
        """Make the codes of all stored items with the present P and V."""
        self._asked = None
        assert self._projection is not None
        # A power of two keeps the codes in single precision whatever the size of V (Erratum E3).
        largest = float(np.abs(self.V_).max(initial=0.0))
        self._exponent = int(np.frexp(largest)[1]) if largest > 0 else 0
        self._codec = self.V_ * 0.5**self._exponent
        codes = self._encode(self._projection(self._memory.rows.live))
        if self._memory.codes is None:
            self._memory.start_codes(codes)
        else:
            self._memory.codes.replace(codes)
        self._stale = False

    def _follow(self) -> None:
        """Bring the codes up to V at once where they take no part in learning."""
        if self._stale and self.neighbor == "input":
            self._refresh()

    def _encode(self, Z: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        out = np.empty((len(Z), self._codec.shape[1]))
        project_dense(Z, self._codec, np.zeros(out.shape[1]), out)
        return out.astype(np.float32)

    # ------------------------------------------------------------------ neighbours and votes
    def _proba(self, X: Rows) -> npt.NDArray[np.float64]:
        if X.shape[0] > 1 or not self._plain or not len(self._memory):
            return super()._proba(X)
        # Kept, since in a stream the item that is asked for is often the next to be learnt.
        self._asked = asked = self._ask(X.astype(np.float32, copy=False), self._voters())
        return self._memory.votes(asked.nearest)

    def _search(self, X: Rows, k: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return distances and positions of the k nearest stored items."""
        rows = X.astype(np.float32, copy=False)
        if self._projection is None:
            squares, found = self._memory.rows.search(rows, k)
            return np.sqrt(squares), found
        self._follow()
        codes = self._encode(self._projection(rows))
        squares, found = self._memory.codes.search(codes, k)  # type: ignore[union-attr]
        return np.sqrt(squares) * 2.0**self._exponent, found

    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the codes of the rows in the metric space, an array of shape (n, d).

        Before the first fit of P there is no metric space, and the codes are zero.
        """
        check_is_fitted(self)
        rows = self._check_query(X).astype(np.float32, copy=False)
        if self._projection is None:
            return np.zeros((rows.shape[0], self.V_.shape[1]), np.float32)
        self._follow()
        return self._encode(self._projection(rows)) * np.float32(2.0**self._exponent)

    # ------------------------------------------------------------------ state
    def _dump(self) -> dict[str, Any]:
        self._follow()  # whether codes were asked for in between must not show
        made, choice = self._projection, self._choice
        return {
            "memory": self._memory.dump(),
            "seed": self._seed,
            "V": self.V_.copy(),
            "basis": self._basis.copy(),
            "codec": self._codec.copy(),
            "P": None if made is None else made.P.copy(),
            "c": None if made is None else made.c.copy(),
            "lift": None if made is None or made.lift is None else made.lift.dump(),
            "columns": None if made is None or made.columns is None else made.columns.copy(),
            "choice": None if choice is None else asdict(choice),
            "counters": {name: getattr(self, name) for name in COUNTERS},
        }

    def _load(self, state: dict[str, Any]) -> None:
        expect_keys("OML", state, *STATE)
        expect_keys("the counters", state["counters"], *COUNTERS)
        q, p = len(self.classes_), self.n_features_in_
        self._memory.load(state["memory"])
        self.V_ = expect("V", state["V"], np.float64, (q, None))
        d = self.V_.shape[1]
        self._basis = expect("basis", state["basis"], np.float64, (q, d))
        if (state["P"] is None) != (self._memory.codes is None):
            raise ValueError("P and codes must be there together")
        shape = (0, 0) if state["P"] is None else (q, d)
        self._codec = expect("codec", state["codec"], np.float64, shape)
        unit = False
        if state["choice"] is not None:
            expect_keys("the choice", state["choice"], *projection.Choice.__dataclass_fields__)
            choice = projection.Choice(**state["choice"])
            check_choice("scale", choice.scale, projection.SCALES)
            check_number("ridge", choice.ridge, least=0)
            check_choice("lift", choice.lift, projection.LIFTS)
            check_number("bandwidth", choice.bandwidth, least=0)
            self._choice, unit = choice, choice.scale == "unit"
        if state["P"] is not None:
            lift = None
            if state["lift"] is not None:
                lift = self._load_lift(state["lift"])
            c = expect("c", state["c"], np.float64, (q,))
            if self._sparse and lift is None:
                columns = expect("columns", state["columns"], np.int32, (None,))
                if (np.diff(columns, prepend=-1) <= 0).any() or columns.max(initial=0) >= p:
                    raise ValueError(f"columns must rise within 0 to {p - 1}")
                P = expect("P", state["P"], np.float32, (len(columns) + 1, q))
                self._projection = projection.Projection(P, c, None, columns, p, unit)
            else:
                P = expect("P", state["P"], np.float64, (p if lift is None else len(lift.b), q))
                self._projection = projection.Projection(P, c, lift, unit=unit)
            if self._memory.codes is None or self._memory.codes.live.shape[1] != d:
                raise ValueError(f"codes must have {d} columns")
        check_number("seed", state["seed"], kind=int, least=0)
        self._seed = state["seed"]
        for name, kind in COUNTERS.items():
            if kind is bool and not isinstance(state["counters"][name], bool):
                raise ValueError(f"{name} must be true or false")
            if kind is not bool:
                check_number(name, state["counters"][name], kind=kind)
            setattr(self, name, state["counters"][name])
        if self._next_fit <= self.n_seen_:
            raise ValueError(f"_next_fit must lie after {self.n_seen_} examples")

    def _load_lift(self, state: dict[str, Any]) -> projection.Lift:
        expect_keys("the lift", state, "W", "b", "m", "u")
        if self._choice is None or self._choice.lift is None:
            raise ValueError("there is a lift that was not chosen")
        p, b = self.n_features_in_, expect("lift b", state["b"], np.float32, (None,))
        return projection.Lift(
            self._choice.lift,
            expect("lift W", state["W"], np.float32, (p, len(b))),
            b,
            expect("lift m", state["m"], np.float32, (p,)),
            expect("lift u", state["u"], np.float32, (p,)),
        )

    # ------------------------------------------------------------------ attributes
    @property
    def P_(self) -> npt.NDArray[np.floating[Any]]:
        """The projection, (p, q), or (D, q) behind a lift; zero before its first fit."""
        if self._projection is None:
            return np.zeros((self.n_features_in_, len(self.classes_)))
        return self._projection.dense

    @property
    def nbytes_(self) -> int:
        """Bytes of the stored examples and of P and V."""
        made = 0 if self._projection is None else self._projection.nbytes
        return self._memory.nbytes + self.V_.nbytes + self._codec.nbytes + made

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # codes are single precision
        return tags

    @property
    def _n_features_out(self) -> int:
        return int(self.V_.shape[1])


@compiled
def _locate(
    X: Any, P: Any, c: Any, codec: Any, codes: Any, norms: Any, z: Any, code: Any, nearest: Any,
) -> None:  # fmt: skip
    """Embed one row and find its nearest stored neighbours, as many as ``nearest`` has room for."""
    embed(X, P, c, codec, z, code)
    best = np.empty(nearest.shape[1])
    for j in range(len(best)):
        best[j], nearest[0, j] = np.inf, -1
    scan_one(codes, norms, code[0], 0, codes.shape[0], best, nearest[0])


@compiled
def _one_round(
    row: Any, y: Any, z: Any, code: Any, nearest: int, rows: Any, row_norms: Any,
    codes: Any, norms: Any, labels: Any,
    V: Any, step: int, linear: bool, step_min: float, step_max: float,
) -> tuple[float, float, bool]:  # fmt: skip
    """Play the round of one row and its nearest neighbour, and write it into the last place."""
    q, d = V.shape
    last = rows.shape[0] - 1
    for j in range(row.shape[1]):
        rows[last, j] = row[0, j]
    for j in range(d):
        codes[last, j] = code[0, j]
    dense_squares(rows[last:], row_norms[last:])
    dense_squares(codes[last:], norms[last:])
    theirs = np.empty(q, np.uint8)
    for b in range(labels.shape[1]):
        labels[last, b] = 0
    for j in range(q):
        labels[last, j >> 3] |= y[j] << (7 - (j & 7))
        theirs[j] = labels[max(nearest, 0), j >> 3] >> (7 - (j & 7)) & 1
    if nearest < 0:
        return 0.0, 0.0, False
    everything = np.empty(0, np.bool_)
    return metric.one_round(
        z[0], y, theirs, everything, V, step, linear, step_min, step_max, np.empty((4, d))
    )


def _enlarged(start: npt.NDArray[np.float64], old: npt.NDArray[np.float64]) -> Any:
    """Return ``start`` with ``old`` in its upper left corner."""
    out = start.copy()
    out[: old.shape[0], : old.shape[1]] = old
    return out
