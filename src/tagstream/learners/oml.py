"""OML: online metric learning for multi-label classification.

An item is mapped into label space by a projection P (:mod:`tagstream.projection`), measured there
by a metric V (:mod:`tagstream.metric.space`), and takes the vote of its k nearest stored items
(:mod:`tagstream.store.local`).  P is fitted again at geometrically growing times, in steps that are
spread over the examples that follow (:mod:`tagstream.engine.pending_fit`); V learns at every
example; the stored codes, made with a copy of V, are renewed whenever P is.  All of this happens at
fixed counts of examples (:mod:`tagstream.execution.schedule`), so how a stream is cut into calls
does not matter.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, check_random_state

from tagstream import projection
from tagstream.checks import Positions, Rows, check_choice, check_number, expect_keys
from tagstream.core.inputs import inputs_of
from tagstream.engine.embedding import STATE, Embedding, Wanted
from tagstream.engine.pending_fit import Renewal
from tagstream.evidence.scoring import Items
from tagstream.execution.schedule import FIRST_FIT, delay, next_fit
from tagstream.execution.threads import ONE_BLAS_THREAD
from tagstream.labels.read import Labels
from tagstream.learners.estimator import Change
from tagstream.learners.neighbors import Found, Located, NeighborClassifier
from tagstream.metric.space import ConvexSpace, Space
from tagstream.store import changes, lookup
from tagstream.store.protocol import LABELS, ROWS

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["OML"]


SPACES: dict[str, type[Space]] = {"exact": Space, "convex": ConvexSpace}


def _of_space(name: str, doc: str) -> Any:
    """Return an attribute of the metric space as one of the learner."""
    return property(lambda self: getattr(self._embedding.space, name), doc=doc)


class OML(ClassNamePrefixFeaturesOutMixin, TransformerMixin, NeighborClassifier):  # type: ignore[misc]
    """Online metric learning for multi-label streams.

    Parameters
    ----------
    n_components : int, optional
        Dimension d of the metric space.  By default the number of labels q, up to 512 of them; of
        more labels, the 256 directions in which they vary most, and at most these.
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
    decide : {"balanced", "f1", "hamming", "macro"}, "top1", "top2", …, or float
        From scores to labels, see :func:`tagstream.decision.decide`: half-way between the two
        that follow; for the highest F1 of an item; for the lowest Hamming loss; for the highest F1
        of each label, also the rare ones; the one, two, … highest scores; or the score from which a
        label is predicted.
    head : bool
        Weigh votes, regression, priors, recent labels and near copies by an online logistic model
        whose probabilities are the scores (:mod:`tagstream.evidence.scoring`); it learns from every
        example, and a correction holds at once.  Without it the share of the votes is the score.
    lag : int
        How many items late labels come, for the head.
    store : optional
        Where examples are kept: something whose ``open`` makes a
        :class:`~tagstream.store.protocol.Store`; by default this process.
    random_state : int, RandomState or None

    Attributes
    ----------
    P_ : array of shape (p, q), or (D, q) behind a lift of D features
    V_ : array of shape (q, d)
    n_updates_, n_degenerate_, cumulative_loss_, loss_, step_
        Of the rounds: how many moved V, how many could not although labels differed or there was
        a loss; the sum of losses; loss and step of the last one.
    squared_loss_, bound_ : float
        Of ``step="convex"``: Σ l_t², and what it can be at most.

    Examples
    --------
    >>> from tagstream.data import make_stream
    >>> X, Y = (stream := make_stream(600, seed=0)).X, stream.Y
    >>> bool((OML(random_state=0).fit(X[:500], Y[:500]).predict(X[500:]) == Y[500:]).mean() > 0.8)
    True
    """

    _renewal: Renewal | None = None  # the fit of P that is under way
    _n_embedded = 0  # columns that are an embedding

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
        seed = int(check_random_state(self.random_state).randint(2**31))
        self._store, self._belief = self._open_store(), self._new_belief()
        self._embedding = Embedding(SPACES[self.step](self.n_components), seed, self._limits)
        self._renewal = None

    @property
    def _plain(self) -> bool:
        return self._sparse or (self.scale is None and self.lift is None)

    def _grow(self, q: int) -> None:
        changes.grow_labels(self._store, q)
        self._embedding.grow(q)
        changes.widen_codes(self._store, self._embedding.space.d)
        self._grow_belief(q)

    def use_embedding(self, n_embedded: int) -> Self:
        """Say that so many of the first columns are an embedding of the whole item.

        The other columns of sparse rows are its parts, such as words.  Each choice of P then
        decides by left-out votes among all columns, the embedding alone, and the others alone.
        """
        check_number("n_embedded", n_embedded, kind=int, least=0, most=2**31 - 1)
        with self._lock:
            self._n_embedded = n_embedded
        return self

    def _forget_columns(self) -> None:
        super()._forget_columns()
        self._n_embedded = 0

    # ------------------------------------------------------------------ learning
    def _next_stop(self, seen: int) -> int:
        stop = self._embedding.next_fit
        return stop if self._renewal is None else min(stop, self._renewal.at)

    def _learn_block(
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None,
        seen: int,
        found: Found | None,
    ) -> None:
        self._learn_rows(rows, labels, ids, seen, found)
        if self._renewal is not None:
            self._renewal.learnt(seen, rows, labels)
            # Who learns more waits for all of it at the end.
            if rows.shape[0] <= self._limits.few_rows:
                self._renewal.run(rows.shape[0] * self._limits.patience)

    def _learn_rows(
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None,
        seen: int,
        found: Found | None,
    ) -> None:
        store, belief = self._store, self._belief
        if self._embedding.projection is None:
            items = Items(rows, None, None, inputs_of(None))
            store.append(rows, labels, ids)
        else:
            made = None if found is None else found.located.embedded
            if made is None:
                made = self._embedding(rows, store.facts.n_labels)
            positions = np.arange(len(store), len(store) + rows.shape[0])
            store.append(rows, labels, ids, made.codes)
            lo = lookup.first_seen(store, positions)
            k = 1 if belief is None else belief.n_asked(store)
            near = None if belief is None else self._found_before(found, k)
            if near is None:
                near = lookup.nearest_codes(store, made.codes, k, lo, positions)[1]
            nearest = near[:, 0]
            theirs = store.take(LABELS, np.maximum(nearest, 0))
            self._embedding.play(made, labels, theirs, nearest < 0, step_max=self.step_max)
            if belief is not None and belief.lag:
                ends = np.maximum(positions - belief.lag, lo)
                near = lookup.nearest_codes(store, made.codes, k, lo, ends)[1]
            items = Items(rows, near, made.Z, made.inputs)
        if belief is not None:
            looked = None if found is None or rows.shape[0] > 1 else found.looked
            belief.learn(items, labels, store, seen, looked)

    def _stop(self, seen: int) -> None:
        """Have the fit that is under way take effect, or begin the next one."""
        if self._renewal is not None and seen == self._renewal.at:
            self._take_effect()
        if seen == self._embedding.next_fit:
            chooses = self._embedding.chooses(seen)
            window, limits = self._store.window, self._limits
            self._begin_fit(seen, delay(seen, window, chooses=chooses, limits=limits))

    def _begin_fit(self, seen: int, later: int) -> None:
        """Begin to fit P, which takes effect after so many further examples."""
        # From which share of the votes on a label is counted when P is chosen.
        rule = 0.5 if isinstance(self.decide, str) else float(self.decide)
        self._embedding.next_fit = next_fit(seen, self._store.window)
        wanted = Wanted(self.scale, self.lift, self.ridge, self.n_neighbors, rule, self._n_embedded)
        contents, belief = lookup.contents(self._store), self._belief
        store = self._store.snapshot() if later else self._store
        replay = None if belief is None else belief.replay(self._embedding.seed)
        steps = self._embedding.renewing(seen, store, wanted, contents, replay)
        self._renewal = Renewal(seen + later, steps, self._belief)
        if not later:
            self._take_effect()

    def _take_effect(self) -> None:
        renewal, self._renewal = self._renewal, None
        assert renewal is not None
        with ONE_BLAS_THREAD:
            renewal.take_effect(self._embedding, self._belief, self._store)

    # ------------------------------------------------------------------ corrections
    def refit(self) -> Self:
        """Fit P now, on all that is stored, instead of at its next time.

        After much was learnt at once this makes the answers for any item better.  With fewer than
        20 stored items it does nothing.
        """
        with self._lock:
            check_is_fitted(self)
            with Change(self):
                self._end_fit()
        return self

    def _end_fit(self) -> None:
        if len(self._store) >= FIRST_FIT:
            self._begin_fit(self.n_seen_, 0)

    def _relabel(self, position: int, labels: Labels) -> None:
        self._embedding.forget_sums()
        if self._renewal is not None:
            old = self._store.take(LABELS, [position])
            row = self._store.take(ROWS, slice(position, position + 1))
            self._renewal.corrected(row, labels.Y > old.Y)
        super()._relabel(position, labels)

    def _forget(self, position: int) -> None:
        self._embedding.forget_sums()
        if self._renewal is not None:
            self._renewal.forgot()
        super()._forget(position)

    def _renewal_is_void(self) -> None:
        self._renewal = None

    def _change_labels(self, columns: list[list[int]], names: list[Hashable]) -> None:
        self._renewal = None  # a fit of other labels
        super()._change_labels(columns, names)
        self._embedding.keep([c[0] for c in columns], self._store)
        if self._belief is not None:
            self._belief.fast.rebase(self._embedding.basis)
        if self._embedding.projection is not None:
            self._begin_fit(self.n_seen_, 0)

    # ------------------------------------------------------------------ neighbours
    def _locate(
        self, rows: Rows, k: int, lo: Positions | None = None, hi: Positions | None = None
    ) -> Located:
        if self._embedding.projection is None:
            squares, found = lookup.nearest_rows(self._store, rows, k, lo, hi)
            return Located(Items(rows, found, None, inputs_of(None)), squares)
        made = self._embedding(rows, self._store.facts.n_labels)
        squares, found = lookup.nearest_codes(self._store, made.codes, k, lo, hi)
        items = Items(rows, found, made.Z, made.inputs)
        return Located(items, squares, self._embedding.space.scale, made)

    def _distance(self, located: Located, i: int, position: int) -> float:
        if located.embedded is None:
            return super()._distance(located, i, position)
        lo, code = np.array([position]), located.embedded.codes[i : i + 1]
        squares = lookup.nearest_codes(self._store, code, 1, lo, lo + 1)[0]
        return float(located._replace(squares=squares).distances[0, 0])

    def _to_weigh(self, located: Located) -> Items:
        # Before there is a metric the head looks for neighbours in scaled columns.
        there = self._embedding.projection is not None
        return located.items if there else located.items._replace(found=None)

    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the codes of the rows in the metric space, an array of shape (n, d).

        Before the first fit of P there is no metric space, and the codes are zero.
        """
        with self._lock:
            check_is_fitted(self)
            rows = self._check_query(X).astype(np.float32, copy=False)
            return self._embedding.transform(rows, self._store.facts.n_labels)

    # ------------------------------------------------------------------ state
    def _freeze(self, twin: OML) -> None:
        twin._store, twin._embedding = self._store.snapshot(), self._embedding.snapshot()
        twin._belief = None if self._belief is None else self._belief.snapshot()
        twin._renewal = None

    def _dump(self) -> dict[str, Any]:
        return {
            "store": self._store.dump(),
            "belief": None if self._belief is None else self._belief.dump(),
            "renewal": None if self._renewal is None else self._renewal.dump(len(self.classes_)),
            "n_embedded": self._n_embedded,
            **self._embedding.dump(),
        }

    def _load(self, state: dict[str, Any]) -> None:
        if "n_embedded" not in state:  # of an older version
            state = {**state, "n_embedded": 0}
        expect_keys("OML", state, "store", "belief", "renewal", "n_embedded", *STATE)
        self.use_embedding(state["n_embedded"])
        self._store = self._load_store(state["store"])
        of: Any = {
            "lift": self.lift, "p": self.n_features_in_, "q": len(self.classes_),
            "sparse": self._sparse, "limits": self._limits,
        }  # fmt: skip
        self._embedding = Embedding.load(state, SPACES[self.step](self.n_components), **of)
        self._embedding.check_codes(self._store)
        made = self._embedding.projection
        wide = self._sparse and (made is None or made.lift is None)
        self._load_belief(
            state["belief"], wide=wide, width=0 if made is None else made.n_inputs,
            basis=self._embedding.basis,
        )  # fmt: skip
        if self._embedding.next_fit <= self.n_seen_:
            raise ValueError(f"next_fit must lie after {self.n_seen_} examples")
        if state["renewal"] is not None:
            space = SPACES[self.step](self.n_components)
            self._renewal = Renewal.load(
                state["renewal"], space, self._store.snapshot(), self._belief, **of
            )
            if not self.n_seen_ < self._renewal.at < self._embedding.next_fit:
                raise ValueError(f"a fit must take effect after {self.n_seen_} examples")

    # ------------------------------------------------------------------ attributes
    n_updates_ = _of_space("n_updates", "Rounds in which V moved.")
    n_degenerate_ = _of_space("n_degenerate", "Rounds in which V could not move; see the class.")
    cumulative_loss_ = _of_space("cumulative_loss", "Sum of the losses of all rounds.")
    loss_ = _of_space("loss", "Loss of the last round.")
    step_ = _of_space("step", "Step of the last round.")
    squared_loss_ = _of_space("squared_loss", 'Sum of the squared losses; of step="convex" only.')

    @property
    def V_(self) -> npt.NDArray[np.float64]:
        """The metric, (q, d)."""
        return self._embedding.V(len(self.classes_))

    @property
    def P_(self) -> npt.NDArray[np.floating[Any]]:
        """The projection, (p, q), or (D, q) behind a lift; zero before its first fit."""
        return self._embedding.P(self.n_features_in_, len(self.classes_))

    @property
    def n_since_fit_(self) -> int:
        """How many examples came since the fit of P that is in effect began; all if none is."""
        return self.n_seen_ - self._embedding.fitted_at

    @property
    def bound_(self) -> float:
        """What ``squared_loss_`` can be at most, whatever the stream (``docs/math.md``)."""
        return self._embedding.space.bound(self.step_max)

    @property
    def nbytes_(self) -> int:
        """Bytes of the stored examples and of all that was learnt."""
        belief = 0 if self._belief is None else self._belief.nbytes
        return lookup.n_bytes(self._store) + self._embedding.nbytes + belief

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # codes are single precision
        return tags

    _n_features_out = _of_space("d", "Dimension of the metric space.")
