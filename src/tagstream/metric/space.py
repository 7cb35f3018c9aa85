"""The metric space: the state of V, how it grows, plays its rounds, and encodes items.

V (q, d) is changed by every round (:mod:`tagstream.metric`).  Stored codes are made with a copy of
it, which is renewed when P is, so that learning an example costs no new codes for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.checks import bounded, check_number, expect, expect_counts, expect_keys
from tagstream.core.products import project_dense
from tagstream.labels.read import Labels
from tagstream.metric import convex, rounds
from tagstream.projection import leading_directions
from tagstream.store.sums import Examples

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ConvexSpace", "Coordinates", "Space"]

Matrix = npt.NDArray[np.float64]

FULL_RANK = 512  # labels up to which the metric is square by default

# What a round left behind, with the type it has in files.
COUNTERS: dict[str, type] = {
    "n_updates": int,
    "n_degenerate": int,
    "cumulative_loss": float,
    "loss": float,
    "step": float,
    "exponent": int,
}
EXPONENTS = (-1000, 340)  # of V within 1e±100 and of what is left of it after very many rounds
LARGEST_ENTRY = 1e100  # of V, so that squares of distances stay finite
WIDEST = 4096  # dimensions that a parameter may ask for beyond the number of labels


class Coordinates(NamedTuple):
    """Labels of items in a reduced space, (n, r), in the place of :class:`Labels`."""

    Y: Matrix
    known: None = None


NO_BOUND = 'there is a bound for step="convex" only'


class Space:
    """V, and the copy of it with which items are encoded.

    V starts as an isometry: the identity, or, with fewer dimensions than labels, the leading
    directions of the labels.

    Parameters
    ----------
    n_components : int, optional
        Dimension d.  By default the number of labels, or of their coordinates, but at most 512.

    Attributes
    ----------
    V : array of shape (q, d)
    codec : array of shape (q, d), or (0, 0) before the first renewal
        The copy of V that made the stored codes, divided by 2 to the power of ``exponent``.
    n_updates, n_degenerate : int
        Rounds in which V moved, and in which it could not.
    cumulative_loss, loss, step : float
        Sum of all losses; loss and step of the last round.
    """

    def __init__(self, n_components: int | None = None) -> None:
        self.n_components = n_components
        self.V = np.zeros((0, 0))
        self.basis = np.zeros((0, 0))  # the directions from which V set out
        self.codec = np.zeros((0, 0))
        self.encodes = False  # whether there is a copy, though it may have no rows yet
        self.exponent = 0
        self.n_updates = self.n_degenerate = 0
        self.cumulative_loss = self.loss = self.step = 0.0

    @property
    def d(self) -> int:
        """Dimension."""
        return int(self.V.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.V.nbytes + self.basis.nbytes + self.codec.nbytes

    # ------------------------------------------------------------------ growth
    def _dimension(self, q: int) -> int:
        return max(self.d, min(FULL_RANK if self.n_components is None else self.n_components, q))

    def _start(self, q: int, d: int) -> Matrix:
        """Return where V starts: new labels get new directions while there are any."""
        start = np.zeros((q, d))
        old, d_old = self.V.shape
        fresh = np.arange(min(q - old, d - d_old))
        start[old + fresh, d_old + fresh] = 1.0
        return start

    def grow(self, q: int) -> None:
        """Have ``q`` labels from now on; what was learnt stays, and no distance changes."""
        start = self._start(q, self._dimension(q))
        if self.encodes:
            self.codec = _enlarged(start * 0.5**self.exponent, self.codec)
        self.basis, self.V = _enlarged(start, self.basis), _enlarged(start, self.V)

    def keep(self, columns: list[int]) -> None:
        """Leave out all other labels, and their own directions where V is square.

        A narrow V that comes to have a direction for every label starts anew as a square one:
        what it could not tell apart it would not learn to.
        """
        q, d = self.V.shape
        names = ("V", "basis", "codec") if self.encodes else ("V", "basis")
        for name in names:
            kept = getattr(self, name)[columns]
            if q == d:
                kept = np.ascontiguousarray(kept[:, columns])
            elif len(columns) <= d:
                kept = np.eye(len(columns))
            setattr(self, name, kept)

    # ------------------------------------------------------------------ learning
    def turn(self, examples: Examples) -> None:
        """Turn a narrow metric to the present leading directions of the labels."""
        q, d = self.V.shape
        if d < q:
            self.turn_to(leading_directions(examples, d))

    def turn_to(self, turned: Matrix) -> None:
        """Turn a narrow metric to other directions.

        What V has learnt is its difference from the old directions B; it is carried over as
        (V − B)BᵀB′, in the coordinates of the new ones.
        """
        self.V = turned + (self.V - self.basis) @ (self.basis.T @ turned)
        self.basis = turned

    def change(self, C: Matrix) -> None:
        """Have other coordinates of labels from now on: C (r, q) times the present ones.

        C is a product of matrices with orthonormal columns.  In the new coordinates V starts as
        E, the first columns of the identity; what V has learnt is its difference from the old
        directions B, and is carried over as C(V − B)BᵀCᵀE.
        """
        start = self._new_start(len(C))
        turned = C[: start.shape[1]].T  # CᵀE
        self.V = start + C @ (self.V - self.basis) @ (self.basis.T @ turned)
        self.basis = start
        self.codec, self.encodes = np.zeros((0, 0)), False  # until it is renewed

    def _new_start(self, r: int) -> Matrix:
        return np.eye(r, min(FULL_RANK if self.n_components is None else self.n_components, r))

    def play(
        self,
        Z: Matrix,
        mine: Labels | Coordinates,
        theirs: Labels | Coordinates,
        alone: npt.NDArray[np.bool_],
        *,
        step_max: float,
        step: str = "exact",
        linear: bool = False,
        step_min: float = 0.0,
    ) -> None:
        """Play the rounds of items Z (n, q) against their neighbours; ``alone`` have none.

        Z may hold coordinates (n, r), and labels be given by theirs.
        """
        losses, steps = np.empty(len(Z)), np.empty(len(Z))
        degenerate = np.empty(len(Z), np.bool_)
        rounds.run_rounds(
            Z, mine.Y, theirs.Y, _both_known(mine, theirs), alone, self.V,
            rounds.STEPS.index(step) or None, linear, float(step_min), float(step_max),
            losses, steps, degenerate,
        )  # fmt: skip
        self.note(losses.tolist(), steps.tolist(), degenerate.tolist())

    def note(self, losses: list[float], steps: list[float], degenerate: list[bool]) -> None:
        """Remember what rounds did."""
        # One after another, so that the order of additions does not depend on the calls.
        for self.loss, self.step, stuck in zip(losses, steps, degenerate, strict=True):
            self.cumulative_loss += self.loss
            self.n_updates += self.step > 0
            self.n_degenerate += stuck

    # ------------------------------------------------------------------ codes
    def renew(self) -> None:
        """Encode with the present V from now on."""
        # A power of two keeps the codes in single precision whatever the size of V (Erratum E3).
        largest = float(np.abs(self.V).max(initial=0.0))
        # Of what is left of a V that has all but vanished, two to its power is still a number.
        self.exponent = max(int(np.frexp(largest)[1]), EXPONENTS[0]) if largest > 0 else 0
        self.codec = self.V * 0.5**self.exponent
        self.encodes = True

    def follow(self, other: Self, C: Matrix | None) -> None:
        """Encode as ``other`` does, a twin that was turned and renewed while this one played on.

        ``C``: the change of coordinates that it went through, see :meth:`change`.
        """
        if C is not None:
            self.change(np.pad(C, ((0, 0), (0, len(self.V) - C.shape[1]))))
        elif other.basis.shape == self.basis.shape and (other.basis != self.basis).any():
            self.turn_to(other.basis)
        if len(other.V) > len(self.V):
            self.grow(len(other.V))
        self.codec, self.exponent, self.encodes = other.codec, other.exponent, True

    def encode(self, Z: Matrix) -> npt.NDArray[np.float32]:
        """Return the codes of items in label space, (n, d), divided by :attr:`scale`."""
        out = np.empty((len(Z), self.codec.shape[1]))
        project_dense(Z, self.codec, np.zeros(out.shape[1]), out)
        # Squares of codes must stay in single precision, whatever was asked for.
        return bounded(out).astype(np.float32)

    @property
    def squared_loss(self) -> float:
        """Sum of the squared losses, where there is a bound for it."""
        raise AttributeError(NO_BOUND)

    def bound(self, step_max: float) -> float:
        """Return what the sum of the squared losses can be at most."""
        raise AttributeError(NO_BOUND)

    @property
    def scale(self) -> float:
        """What distances of codes are to be multiplied by."""
        return float(2.0**self.exponent)

    # ------------------------------------------------------------------ state
    def snapshot(self) -> Self:
        """Return a picture that encodes as this one does now, in constant time.

        What encodes is never changed in place.  V is, by every round, and is not for those who
        only read.
        """
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def twin(self) -> Self:
        """Return a copy that goes its own way."""
        twin = self.snapshot()
        twin.V = self.V.copy()
        return twin

    def dump(self) -> dict[str, Any]:
        """Return everything as plain values."""
        arrays = {name: getattr(self, name).copy() for name in ("V", "basis", "codec")}
        return {**arrays, **{name: getattr(self, name) for name in COUNTERS}}

    def load(self, state: Any, q: int, encodes: bool) -> None:
        """Take over what :meth:`dump` gave, for ``q`` labels."""
        expect_keys("the space", state, "V", "basis", "codec", *COUNTERS)
        largest = {"least": -LARGEST_ENTRY, "most": LARGEST_ENTRY}
        self.V = expect("V", state["V"], np.float64, (q, None), **largest)
        shape, most = (q, self.d), max(q, 1, min(self.n_components or 0, WIDEST))
        if not min(q, 1) <= self.d <= most:
            raise ValueError(f"V must have from {min(q, 1)} to {most} columns, got {self.d}")
        self.basis = expect("basis", state["basis"], np.float64, shape, **largest)
        self.encodes = encodes
        shape = shape if encodes else (0, 0)
        self.codec = expect("codec", state["codec"], np.float64, shape, **largest)
        for name, kind in COUNTERS.items():
            if name == "exponent":
                check_number(name, state[name], kind=int, least=EXPONENTS[0], most=EXPONENTS[1])
            elif kind is int:
                expect_counts(name, state[name])
            else:  # a sum of losses may have left the range of numbers
                check_number(name, state[name], least=0)
            setattr(self, name, kind(state[name]))


class ConvexSpace(Space):
    """The metric as a convex problem: Q ⪰ 0 moves by PA-II steps, and its loss has a bound.

    Distances are (z_i − z_j)ᵀBQBᵀ(z_i − z_j) with B the basis (the identity while the metric is
    square); codes are made with V = BF, FFᵀ = Q, when they are renewed.  When a narrow metric is
    turned from B to B′, Q becomes I + C(Q − I)Cᵀ, C = B′ᵀB: positive semidefinite, since CCᵀ ⪯ I,
    and no farther from I than before, so the bound for U = I goes on to hold.

    Attributes
    ----------
    Q : array of shape (d, d)
    tally : array of shape (8,), see :class:`tagstream.metric.convex.Tally`
    """

    def __init__(self, n_components: int | None = None) -> None:
        super().__init__(n_components)
        self.Q, self.tally = np.zeros((0, 0)), convex.new_tally()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return super().nbytes + self.Q.nbytes

    def grow(self, q: int) -> None:
        """Have ``q`` labels from now on; in all rounds so far the new ones were zero."""
        super().grow(q)
        self.Q = convex.grow(self.Q, self.tally, self.d)

    def keep(self, columns: list[int]) -> None:
        """Leave out all other labels, and their own directions where the metric is square."""
        q, d = self.V.shape
        super().keep(columns)
        if q == d:
            self.Q = np.ascontiguousarray(self.Q[columns][:, columns])
        elif len(columns) <= d:  # it starts anew, and no farther from I than before
            self.Q, self.tally[convex.LEAST] = np.eye(len(columns)), 1.0

    def turn_to(self, turned: Matrix) -> None:
        """Turn a narrow metric to other directions."""
        d, C = self.d, turned.T @ self.basis
        Q = C @ (self.Q - np.eye(d)) @ C.T
        self.Q, self.basis = np.eye(d) + (Q + Q.T) / 2, turned
        # An eigenvalue of Q below 1 moves towards 1; rounding may cost some digits.
        self.tally[convex.LEAST] = min(self.tally[convex.LEAST], 1.0) - 1e-12 * d

    def change(self, C: Matrix) -> None:
        """Have other coordinates of labels from now on, see :meth:`Space.change`.

        With K = EᵀCB, Q becomes I + K(Q − I)Kᵀ, as when a narrow metric is turned.
        """
        K = self._new_start(len(C)).T @ C @ self.basis
        Q = K @ (self.Q - np.eye(self.d)) @ K.T
        self.Q = np.eye(len(Q)) + (Q + Q.T) / 2
        # C is made of numbers of single precision: its length is 1 to some digits less.
        self.tally[convex.LEAST] = min(self.tally[convex.LEAST], 1.0) - 1e-6
        super().change(C)

    def play(
        self,
        Z: Matrix,
        mine: Labels | Coordinates,
        theirs: Labels | Coordinates,
        alone: npt.NDArray[np.bool_],
        *,
        step_max: float,
        step: str = "convex",
        linear: bool = False,
        step_min: float = 0.0,
    ) -> None:
        """Play the rounds of items Z (n, q) against their neighbours; ``alone`` have none."""
        losses, steps = np.empty(len(Z)), np.empty(len(Z))
        degenerate, known = np.empty(len(Z), np.bool_), _both_known(mine, theirs)
        patience, C = len(self.Q), float(step_max)
        if self.V.shape[0] == self.d:
            convex.run_rounds_convex(
                Z, mine.Y, theirs.Y, known, alone, self.Q, C, False, patience, self.tally,
                losses, steps, degenerate,
            )  # fmt: skip
        else:
            convex.run_rounds_reduced(
                Z, mine.Y, theirs.Y, known, alone, self.basis, self.Q, C, patience, self.tally,
                losses, steps, degenerate,
            )  # fmt: skip
        self.note(losses.tolist(), steps.tolist(), degenerate.tolist())

    def renew(self) -> None:
        """Encode with the present Q from now on."""
        factor = convex.settle(self.Q, self.tally)
        self.V = self.basis @ factor if self.V.shape[0] > self.d else factor
        super().renew()

    def snapshot(self) -> Self:
        """Return a picture that encodes, and tells its loss, as this one does now."""
        twin = super().snapshot()
        twin.tally = self.tally.copy()
        return twin

    def twin(self) -> Self:
        """Return a copy that goes its own way."""
        twin = super().twin()
        twin.Q = self.Q.copy()
        return twin

    def follow(self, other: Self, C: Matrix | None) -> None:
        """Encode as ``other`` does, see :meth:`Space.follow`."""
        super().follow(other, C)
        self.V = other.V  # which is what encodes

    @property
    def squared_loss(self) -> float:
        """Sum of the squared losses of all rounds."""
        return float(self.tally[convex.SQUARED])

    def bound(self, step_max: float) -> float:
        """Return the bound of Σ l_t² that holds against not learning at all, U = I."""
        return convex.Tally.of(self.tally).bound(float(step_max))

    def dump(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {**super().dump(), "Q": self.Q.copy(), "tally": self.tally.copy()}

    def load(self, state: Any, q: int, encodes: bool) -> None:
        """Take over what :meth:`dump` gave, for ``q`` labels."""
        own = ("Q", "tally")
        if not isinstance(state, dict):
            raise ValueError("the space must be a dict")
        super().load({k: v for k, v in state.items() if k not in own}, q, encodes)
        expect_keys("the space", state, "V", "basis", "codec", *COUNTERS, *own)
        largest = {"least": -LARGEST_ENTRY, "most": LARGEST_ENTRY}
        self.Q = expect("Q", state["Q"], np.float64, (self.d, self.d), **largest)
        self.tally = expect("tally", state["tally"], np.float64, self.tally.shape, most=1e300)
        if (self.Q != self.Q.T).any() or (self.tally[1:] < 0).any():
            raise ValueError("Q must be symmetric, and its tally be made of sums of squares")
        # What the tally promises of the eigenvalues decides whether they are looked at.
        rounding = 1e-6 * (1.0 + np.abs(self.Q).max(initial=0.0))
        if self.d and np.linalg.eigvalsh(self.Q)[0] < self.tally[convex.LEAST] - rounding:
            raise ValueError("Q must have the eigenvalues that its tally promises, got less")


def _both_known(mine: Labels | Coordinates, theirs: Labels | Coordinates) -> npt.NDArray[np.bool_]:
    """Return which labels are known of both items, (n, q); (0, 0) when all are."""
    if mine.known is None and theirs.known is None:
        return np.empty((0, 0), np.bool_)
    known = np.ones(mine.Y.shape, np.bool_) if mine.known is None else mine.known
    return known if theirs.known is None else known & theirs.known


def _enlarged(start: Matrix, old: Matrix) -> Matrix:
    """Return ``start`` with ``old`` in its upper left corner."""
    out = start.copy()
    out[: old.shape[0], : old.shape[1]] = old
    return out
