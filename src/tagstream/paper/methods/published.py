"""OML as the paper has it, kept runnable: what it says, step by step, with its errata marked.

P is plain least squares on the first block of the stream and never fitted again; V starts standard
normal with d < q columns; the neighbour of a round is looked up in the input space; the step is the
maximum of the paper's cubic.  ``docs/math.md`` lists the errata (E1 to E6) and the choices that had
to be made where the paper is silent (C1 to C12).  :class:`~tagstream.models.OML` is the method that
works.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_random_state

from tagstream import projection
from tagstream.checks import Positions, Rows, check_choice, check_number, expect_keys
from tagstream.core.inputs import inputs_of
from tagstream.evidence.scoring import Items
from tagstream.execution.threads import ONE_BLAS_THREAD
from tagstream.labels.read import Labels
from tagstream.learners.neighbors import Found, Located, NeighborClassifier
from tagstream.metric import rounds
from tagstream.metric.space import Space
from tagstream.store import changes, lookup
from tagstream.store.protocol import LABELS, ROWS
from tagstream.store.rows import DenseRows

__all__ = ["PublishedOML"]


class _PublishedSpace(Space):
    """V standard normal, (q, d), d settled when the first block is full."""

    settled = False
    seed = 0

    def _dimension(self, q: int) -> int:
        if self.settled and self.d:  # without a label there was nothing to settle yet
            return self.d
        return max(1, q // 2) if self.n_components is None else self.n_components  # Choice C1

    def _start(self, q: int, d: int) -> npt.NDArray[np.float64]:
        # Seeded by label: a longer row only appends numbers.
        rows = [np.random.default_rng([self.seed, j]).standard_normal(d) for j in range(q)]
        return np.stack(rows) if rows else np.zeros((0, d))


class PublishedOML(NeighborClassifier):
    """The method of the paper.

    Parameters
    ----------
    n_components : int, optional
        Dimension d; by default half the labels met when the first block is full.
    n_neighbors : int
        How many stored items vote.
    first_block : int
        Size of the first block, on which P is fitted.
    step : {"cubic", "printed", "exact"}
        How far V moves in a round: to the maximum of the paper's cubic, with correct coefficients;
        with those misprinted in the paper (Erratum E2); or to the root of the round's constraint.
    update : {"inverse", "linear"}
        V ← (I − 2λA)⁻¹V (the paper's Algorithm 1), or V ← (I + 2λA)V (its Eq. 6).
    step_min, step_max : float
        Bounds of the step λ (the paper's m and M); the exact step has no lower bound.
    window : int, optional
        Keep only that many examples.
    decide : {"balanced", "f1", "hamming"}, "top1", "top2", …, or float
        From scores to labels, see :func:`tagstream.decision.decide`.
    random_state : int, RandomState or None

    Examples
    --------
    >>> from tagstream.data import make_stream
    >>> stream = make_stream(600, seed=0)
    >>> model = PublishedOML(random_state=0).partial_fit(stream.X[:500], stream.Y[:500])
    >>> model.V_.shape, model.predict(stream.X[500:]).shape
    ((12, 6), (100, 12))
    """

    def __init__(
        self,
        n_components: int | None = None,
        n_neighbors: int = 10,
        *,
        first_block: int = 200,
        step: str = "cubic",
        update: str = "inverse",
        step_min: float = 1e-5,
        step_max: float = 1e5,
        window: int | None = None,
        decide: str | float = 0.5,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.first_block = first_block
        self.step = step
        self.update = update
        self.step_min = step_min
        self.step_max = step_max
        self.window = window
        self.decide = decide
        self.random_state = random_state

    def _check_params(self) -> None:
        check_number("n_components", self.n_components, kind=int, least=1, most=4096, none=True)
        self._check_neighbors()
        check_number("first_block", self.first_block, kind=int, least=1)
        check_choice("step", self.step, rounds.STEPS)
        check_choice("update", self.update, rounds.UPDATES)
        check_number("step_min", self.step_min, least=0)
        check_number("step_max", self.step_max, least=self.step_min)

    def _start(self) -> None:
        self._seed = int(check_random_state(self.random_state).randint(2**31))
        self._store = self._open_store()
        self._space = self._new_space()
        self._projection: projection.Projection | None = None
        self._coded: tuple[int, Space, DenseRows] | None = None

    def _new_space(self) -> _PublishedSpace:
        space = _PublishedSpace(self.n_components)
        space.seed = self._seed
        return space

    def _grow(self, q: int) -> None:
        changes.grow_labels(self._store, q)
        self._space.grow(q)
        self._coded = None
        if self._projection is not None:
            self._projection = self._projection.grown(q)

    def _next_stop(self, seen: int) -> int:
        return self.first_block if seen < self.first_block else sys.maxsize

    def _stop(self, seen: int) -> None:
        with ONE_BLAS_THREAD:
            self._projection = projection.first_block(self._store.examples())
        self._space.settled = True

    def _learn_block(
        self,
        rows: Rows,
        labels: Labels,
        ids: Sequence[Hashable] | None,
        seen: int,
        found: Found | None,
    ) -> None:
        store = self._store
        positions = len(store) + np.arange(rows.shape[0])
        store.append(rows, labels, ids)
        if self._projection is not None:
            Z, lo = self._projection(rows), lookup.first_seen(store, positions)
            nearest = lookup.nearest_rows(store, rows, 1, lo, positions)[1][:, 0]
            theirs = store.take(LABELS, np.maximum(nearest, 0))
            self._space.play(
                Z, labels, theirs, nearest < 0, step=self.step, linear=self.update == "linear",
                step_min=self.step_min, step_max=self.step_max,
            )  # fmt: skip

    # ------------------------------------------------------------------ corrections
    def _forget(self, position: int) -> None:
        super()._forget(position)
        self._coded = None

    def _check_changeable(self) -> None:
        raise ValueError("labels of the published method must stay as they are; use OML")

    # ------------------------------------------------------------------ neighbours
    def _locate(
        self, rows: Rows, k: int, lo: Positions | None = None, hi: Positions | None = None
    ) -> Located:
        if self._projection is None:
            squares, found = lookup.nearest_rows(self._store, rows, k, lo, hi)
            return Located(Items(rows, found, None, inputs_of(None)), squares)
        space, codes = self._codes()
        squares, found = codes.search(space.encode(self._projection(rows)), k, lo, hi)
        items = Items(rows, found, None, inputs_of(None))
        return Located(items, squares, space.scale)

    def _codes(self) -> tuple[Space, DenseRows]:
        """Return the codes of all stored items with the present V (Choice C12), kept until then."""
        assert self._projection is not None
        if self._coded is None or self._coded[0] != self.n_seen_:
            space = self._space.snapshot()
            space.renew()
            codes = space.encode(self._projection(self._store.take(ROWS, slice(None))))
            rows = DenseRows(codes.shape[1])
            rows.append(codes)
            self._coded = self.n_seen_, space, rows
        return self._coded[1:]

    # ------------------------------------------------------------------ state
    def _freeze(self, twin: PublishedOML) -> None:
        twin._store, twin._space = self._store.snapshot(), self._space.snapshot()
        twin._space.V = self._space.V.copy()  # codes follow V at once

    def _dump(self) -> dict[str, Any]:
        return {
            "store": self._store.dump(),
            "space": self._space.dump(),
            "projection": None if self._projection is None else self._projection.dump(),
            "seed": self._seed,
        }

    def _load(self, state: dict[str, Any]) -> None:
        expect_keys("PublishedOML", state, "store", "space", "projection", "seed")
        check_number("seed", state["seed"], kind=int, least=0, most=2.0**31)
        self._seed, self._coded = state["seed"], None
        self._store = self._load_store(state["store"])
        q, self._projection = len(self.classes_), None
        if (state["projection"] is not None) != (self.n_seen_ >= self.first_block):
            raise ValueError("there must be a projection once the first block is full")
        self._space = self._new_space()
        self._space.load(state["space"], q, encodes=False)
        if state["projection"] is not None:
            self._space.settled = True
            self._projection = projection.Projection.load(
                state["projection"], self.n_features_in_, q, self._sparse
            )
        elif self._space.d != (d := self._space._dimension(q) if q else 0):
            raise ValueError(f"V must have {d} columns")

    # ------------------------------------------------------------------ attributes
    @property
    def V_(self) -> npt.NDArray[np.float64]:
        """The metric, (q, d)."""
        return self._space.V

    @property
    def P_(self) -> npt.NDArray[np.floating[Any]]:
        """The projection, (p, q); zero before the first block is full."""
        if self._projection is None:
            return np.zeros((self.n_features_in_, len(self.classes_)))
        return self._projection.dense

    @property
    def nbytes_(self) -> int:
        """Bytes of the stored examples and of P and V."""
        made = 0 if self._projection is None else self._projection.nbytes
        return lookup.n_bytes(self._store) + self._space.nbytes + made
