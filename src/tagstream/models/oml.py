"""OML: online metric learning for multi-label classification.

An item is mapped into label space by a projection P (:mod:`tagstream.projection`), measured
there by a metric V (:mod:`tagstream.space`), and takes the vote of its k nearest stored items
(:mod:`tagstream.memory`).  P is fitted again at geometrically growing times; V learns at every
example; the stored codes, made with a copy of V, are renewed whenever P is.  All of this happens
at fixed counts of examples (:mod:`tagstream.schedule`), so how a stream is cut into calls does not
matter.
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

from tagstream import convex, projection
from tagstream.belief import Items
from tagstream.checks import Rows, blas_threads, check_choice, check_number, expect_keys
from tagstream.fastmap import Inputs, inputs_of
from tagstream.labels import Labels, as_array
from tagstream.models.neighbors import BLOCK, Located, NeighborClassifier
from tagstream.schedule import FIRST_FIT, is_full, next_choice, next_fit
from tagstream.space import ConvexSpace, Space

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["OML"]


SPACES: dict[str, type[Space]] = {"exact": Space, "convex": ConvexSpace}

# Numbers of a lift that a few bytes of a file may ask for: it is as wide as sparse rows are.
LARGEST_LIFT = 2**28


class Embedded(NamedTuple):
    """Items in label space and their codes."""

    Z: npt.NDArray[np.float64]  # (m, q)
    codes: npt.NDArray[np.float32]  # (m, d)
    inputs: Inputs  # the rows as P takes them


class OML(ClassNamePrefixFeaturesOutMixin, TransformerMixin, NeighborClassifier):  # type: ignore[misc]
    """Online metric learning for multi-label streams.

    Parameters
    ----------
    n_components : int, optional
        Dimension d of the metric space.  By default the number of labels q, but at most 512.
    n_neighbors : int
        How many stored items vote.
    step : {"exact", "convex"}
        How the metric moves in a round: V by the exact step to where the margin holds, or Q = VVᵀ
        by a step of the convex problem, for whose loss there is a bound (``bound_``).
    step_max : float
        Largest step of a round; small, it makes the learner robust against label noise.
    ridge : "auto" or float
        Strength of P's ridge, by default chosen by leave-one-out error; 0 is least squares.
    scale : {"auto", "standard", "unit", None}
        Standardise the features, divide rows by their length, leave them, or choose by
        leave-one-out error: whether to standardise dense rows, whether sparse ones get unit length.
    lift : {"auto", "kernel", "fourier", None}
        What comes before P: the Gaussian kernel with up to 1,000 stored rows, as many random
        Fourier features of it, nothing, or choose between the kernel and nothing.
    window : int, optional
        Keep only that many examples; P, votes and choices then follow the window.
    decide : {"balanced", "f1", "hamming"}, "top1", "top2", …, or float
        From scores to labels, see :func:`tagstream.decision.decide`: half-way between the two
        that follow; for the highest F1; for the lowest Hamming loss; the one, two, … highest
        scores; or the score from which a label is predicted.
    head : bool
        Weigh votes, regression, priors, recent labels and near copies by an online logistic model
        whose probabilities are the scores (:mod:`tagstream.belief`); it learns from every example,
        and a correction holds at once.  Without it the share of the votes is the score.
    lag : int
        How many items late labels come, for the head.
    store : optional
        Where examples are kept: something whose ``open`` makes a
        :class:`~tagstream.memory.Store`; by default this process.
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
    squared_loss_, bound_ : float
        Of ``step="convex"``: Σ l_t², and what it can be at most.

    Examples
    --------
    >>> from tagstream.data import make_stream
    >>> stream = make_stream(600, seed=0)
    >>> model = OML(random_state=0).partial_fit(stream.X[:500], stream.Y[:500])
    >>> bool((model.predict(stream.X[500:]) == stream.Y[500:]).mean() > 0.8)
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        n_neighbors: int = 10,
        *,
        step: str = "exact",
        step_max: float = 1e-3,
        ridge: float | str = "auto",
        scale: str | None = "auto",
        lift: str | None = "auto",
        window: int | None = None,
        decide: str | float = "balanced",
        head: bool = True,
        lag: int = 0,
        store: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.step = step
        self.step_max = step_max
        self.ridge = ridge
        self.scale = scale
        self.lift = lift
        self.window = window
        self.decide = decide
        self.head = head
        self.lag = lag
        self.store = store
        self.random_state = random_state

    # ------------------------------------------------------------------ hooks
    def _check_params(self) -> None:
        check_number("n_components", self.n_components, kind=int, least=1, none=True)
        self._check_neighbors()
        check_choice("step", self.step, tuple(SPACES))
        check_number("step_max", self.step_max, least=0 if self.step == "exact" else 1e-12)
        if self.ridge != "auto":
            check_number("ridge", self.ridge, least=0, most=1e300)
        check_choice("scale", self.scale, ("auto", *projection.SCALES))
        check_choice("lift", self.lift, ("auto", *projection.LIFTS))

    def _start(self) -> None:
        self._seed = int(check_random_state(self.random_state).randint(2**31))
        self._store, self._belief = self._open_store(), self._new_belief()
        self._space = SPACES[self.step](self.n_components)
        self._projection: projection.Projection | None = None
        self._choice: projection.Choice | None = None
        self._next_fit = self._next_choice = FIRST_FIT
        self._asked: tuple[int, Rows, Embedded] | None = None

    def _grow(self, q: int) -> None:
        self._store.grow(q)
        self._space.grow(q)
        self._store.widen_codes(self._space.d)
        self._asked = None
        if self._belief is not None:
            self._belief.grow(q)
        if self._projection is not None:
            self._projection = self._projection.grown(q)

    # ------------------------------------------------------------------ learning
    def _learn(self, X: Rows, labels: Labels, ids: Sequence[Hashable] | None) -> None:
        rows = X.astype(np.float32, copy=False)
        n, seen, done = rows.shape[0], self.n_seen_, 0
        while done < n:
            size = min(n - done, self._next_fit - seen, self._store.block_size(BLOCK))
            part = slice(done, done + size)
            self._learn_block(
                rows[part],
                Labels(labels.Y[part], None if labels.known is None else labels.known[part]),
                None if ids is None else ids[part],
                seen,
            )
            done, seen = done + size, seen + size
            if seen == self._next_fit:
                self._renew(seen)

    def _learn_block(
        self, rows: Rows, labels: Labels, ids: Sequence[Hashable] | None, seen: int
    ) -> None:
        store, belief = self._store, self._belief
        items = Items(rows, None, None, inputs_of(None))
        if self._projection is None:
            store.append(rows, labels, ids)
        else:
            made = self._embed(rows)
            positions = len(store) + np.arange(rows.shape[0])
            store.append(rows, labels, ids, made.codes)
            lo, k = store.first_seen(positions), 1 if belief is None else belief.n_asked(store)
            found = store.search_codes(made.codes, k, lo, positions)[1]
            nearest = found[:, 0]
            theirs = store.labels(np.maximum(nearest, 0))
            self._space.play(made.Z, labels, theirs, nearest < 0, step_max=self.step_max)
            if belief is not None and self.lag:
                ends = np.maximum(positions - self.lag, lo)
                found = store.search_codes(made.codes, k, lo, ends)[1]
            items = Items(rows, found, made.Z, made.inputs)
        if belief is not None:
            belief.learn(items, labels, store, seen)
        store.forget()

    def _renew(self, t: int) -> None:
        """Fit P again, with what is chosen for it, and make the stored codes anew."""
        self._next_fit = next_fit(t, self.window)
        if not len(self._store):  # all was forgotten
            return
        n, p = len(self._store), min(self.n_features_in_, projection.LIFT_SIZE)
        with blas_threads(float(n) * p * p):
            examples, full = self._store.examples(), is_full(t, self.window)
            # In a full window fits must be cheap, and a quarter of it is enough to choose by.
            half, quarter = (self.window or 0) // 2, (self.window or 0) // 4
            lift_size = min(projection.LIFT_SIZE, max(100, half)) if full else projection.LIFT_SIZE
            if self._choice is None or t >= self._next_choice:
                sample = min(projection.SAMPLE, max(64, quarter)) if full else projection.SAMPLE
                self._choice = projection.choose(
                    examples, scale=self.scale, lift=self.lift, ridge=self.ridge,
                    n_neighbors=self.n_neighbors, rule=self._vote_rule(), lift_size=lift_size,
                    sample=sample, seed=self._seed,
                )  # fmt: skip
                self._next_choice = next_choice(t, self.window)
                self._space.turn(examples)
            self._projection, spread = projection.fit(
                examples, self._choice, lift_size=lift_size, seed=self._seed,
                start=self._projection,
            )  # fmt: skip
            if self._belief is not None:
                self._belief.refit(spread, self._choice.ridge, self._store)
            self._recode()

    def _recode(self) -> None:
        """Make the stored codes anew with the present V."""
        self._space.renew()
        self._asked = None
        self._store.encode(lambda rows: self._embed(rows).codes)
        self._asked = None

    def _vote_rule(self) -> float:
        """Return from which share of the votes on a label is counted when P is chosen."""
        return 0.5 if isinstance(self.decide, str) else float(self.decide)

    def _embed(self, rows: Rows) -> Embedded:
        """Return items in label space and their codes; those of one item do not depend on others.

        The last single item is remembered, since in a stream the item that is asked for is often
        the next to be learnt.
        """
        asked = self._asked
        if asked is not None and asked[0] == self._next_fit and _same(asked[1], rows):
            return asked[2]
        assert self._projection is not None
        inputs = self._projection.inputs(rows)
        Z = self._projection.apply(inputs)
        made = Embedded(Z, self._space.encode(Z), inputs_of(inputs))
        if rows.shape[0] == 1:
            self._asked = self._next_fit, rows.copy(), made
        return made

    # ------------------------------------------------------------------ corrections
    def refit(self) -> Self:
        """Fit P now, on all that is stored, instead of at its next time."""
        with self._lock:
            check_is_fitted(self)
            self._renew(self.n_seen_)
        return self

    def _relabel(self, position: int, labels: Labels) -> None:
        old = self._store.relabel(position, labels)
        if self._belief is not None:
            row = self._store.take(slice(position, position + 1))
            self._belief.relabel(self._locate(row, 1).items, old, labels)

    def _forget(self, position: int) -> None:
        old = self._store.remove(position)
        if self._belief is not None:
            self._belief.forget(position, old, self._store)

    def _change_labels(self, columns: list[list[int]], names: list[Hashable]) -> None:
        self._store.map_labels(columns)
        self._space.keep([c[0] for c in columns])
        self.classes_ = as_array(names)
        if self._belief is not None:
            self._belief.keep(columns, self._store.labels())
        self._asked = None
        if self._projection is not None:
            self._projection = self._projection.kept([c[0] for c in columns])
            self._recode()
            self._renew(self.n_seen_)

    # ------------------------------------------------------------------ neighbours
    def _locate(self, rows: Rows, k: int) -> Located:
        if self._projection is None:
            squares, found = self._store.search_rows(rows, k)
            return Located(Items(rows, found, None, inputs_of(None)), np.sqrt(squares))
        made = self._embed(rows)
        squares, found = self._store.search_codes(made.codes, k)
        items = Items(rows, found, made.Z, made.inputs)
        return Located(items, np.sqrt(squares) * self._space.scale)

    def _to_weigh(self, located: Located) -> Items:
        # Before there is a metric the head looks for neighbours in scaled columns.
        return located.items._replace(found=None) if self._projection is None else located.items

    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the codes of the rows in the metric space, an array of shape (n, d).

        Before the first fit of P there is no metric space, and the codes are zero.
        """
        with self._lock:
            check_is_fitted(self)
            rows = self._check_query(X).astype(np.float32, copy=False)
            if self._projection is None:
                return np.zeros((rows.shape[0], self._space.d), np.float32)
            return self._embed(rows).codes * np.float32(self._space.scale)

    # ------------------------------------------------------------------ state
    def _freeze(self, twin: OML) -> None:
        twin._store, twin._space = self._store.snapshot(), self._space.snapshot()
        twin._belief = None if self._belief is None else self._belief.snapshot()

    def _dump(self) -> dict[str, Any]:
        return {
            "store": self._store.dump(),
            "space": self._space.dump(),
            "belief": None if self._belief is None else self._belief.dump(),
            "projection": None if self._projection is None else self._projection.dump(),
            "choice": None if self._choice is None else asdict(self._choice),
            "seed": self._seed,
            "next_fit": self._next_fit,
            "next_choice": self._next_choice,
        }

    def _load(self, state: dict[str, Any]) -> None:
        expect_keys(
            "OML", state, "store", "space", "belief", "projection", "choice", "seed", "next_fit",
            "next_choice",
        )  # fmt: skip
        if self._sparse and self.lift in projection.LIFTS[:2]:
            size = self.n_features_in_ * projection.LIFT_SIZE
            if size > LARGEST_LIFT:
                raise ValueError(f"a lift must hold at most {LARGEST_LIFT} numbers, got {size}")
        self._asked = None
        self._store = self._load_store(state["store"])
        q, fitted = len(self.classes_), state["projection"] is not None
        self._space = SPACES[self.step](self.n_components)
        self._space.load(state["space"], q, encodes=fitted)
        self._projection = None
        if fitted:
            self._projection = projection.Projection.load(
                state["projection"], self.n_features_in_, q, self._sparse
            )
        d = self._space.d if fitted else None
        if self._store.code_width != d:
            raise ValueError(f"codes must have {d} columns, got {self._store.code_width}")
        lift = None if self._projection is None else self._projection.lift
        width = self.n_features_in_ if lift is None else len(lift.b)
        self._load_belief(
            state["belief"], wide=self._sparse and lift is None, width=width if fitted else 0
        )
        choice = state["choice"]
        self._choice = None if choice is None else projection.Choice.load(choice)
        if fitted and choice is None:
            raise ValueError("a projection must come with its choice")
        check_number("seed", state["seed"], kind=int, least=0, most=2.0**31)
        self._seed = state["seed"]
        for name in ("next_fit", "next_choice"):
            check_number(name, state[name], kind=int, least=1, most=2.0**60)
        self._next_fit, self._next_choice = state["next_fit"], state["next_choice"]
        if self._next_fit <= self.n_seen_:
            raise ValueError(f"next_fit must lie after {self.n_seen_} examples")

    # ------------------------------------------------------------------ attributes
    @property
    def V_(self) -> npt.NDArray[np.float64]:
        """The metric, (q, d)."""
        return self._space.V

    @property
    def P_(self) -> npt.NDArray[np.floating[Any]]:
        """The projection, (p, q), or (D, q) behind a lift; zero before its first fit."""
        if self._projection is None:
            return np.zeros((self.n_features_in_, len(self.classes_)))
        return self._projection.dense

    @property
    def n_updates_(self) -> int:
        """Rounds in which V moved."""
        return self._space.n_updates

    @property
    def n_degenerate_(self) -> int:
        """Rounds in which V could not move although labels differed or the loss was positive."""
        return self._space.n_degenerate

    @property
    def cumulative_loss_(self) -> float:
        """Sum of the losses of all rounds."""
        return self._space.cumulative_loss

    @property
    def loss_(self) -> float:
        """Loss of the last round."""
        return self._space.loss

    @property
    def step_(self) -> float:
        """Step of the last round."""
        return self._space.step

    @property
    def squared_loss_(self) -> float:
        """Sum of the squared losses of all rounds; of ``step="convex"`` only."""
        return float(self._convex().tally[convex.SQUARED])

    @property
    def bound_(self) -> float:
        """What ``squared_loss_`` can be at most, whatever the stream (``docs/math.md``)."""
        return self._convex().bound(self.step_max)

    def _convex(self) -> ConvexSpace:
        if not isinstance(self._space, ConvexSpace):
            raise AttributeError('there is a bound for step="convex" only')
        return self._space

    @property
    def nbytes_(self) -> int:
        """Bytes of the stored examples and of P and V."""
        made = 0 if self._projection is None else self._projection.nbytes
        belief = 0 if self._belief is None else self._belief.nbytes
        return self._store.nbytes + self._space.nbytes + belief + made

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # codes are single precision
        return tags

    @property
    def _n_features_out(self) -> int:
        return self._space.d


def _same(a: Rows, b: Rows) -> bool:
    """Tell whether two single rows are the same to the last bit."""
    if isinstance(a, np.ndarray):
        return bool(a.tobytes() == b.tobytes())
    return bool(a.data.tobytes() == b.data.tobytes() and a.indices.tolist() == b.indices.tolist())
