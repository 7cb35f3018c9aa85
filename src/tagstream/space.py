"""The metric space: the state of V, how it grows, plays its rounds, and encodes items.

V (q, d) is changed by every round (:mod:`tagstream.metric`).  Stored codes are made with a copy of
it, which is renewed when P is, so that learning an example costs no new codes for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tagstream import metric
from tagstream.checks import check_number, expect, expect_keys
from tagstream.examples import Examples
from tagstream.kernels import project_dense
from tagstream.labels import Labels
from tagstream.projection import leading_directions

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Space"]

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
LARGEST_EXPONENT = 1000  # of a power of two that double precision can hold


class Space:
    """V, and the copy of it with which items are encoded.

    V starts as an isometry: the identity, or, with fewer dimensions than labels, the leading
    directions of the labels.

    Parameters
    ----------
    n_components : int, optional
        Dimension d.  By default the number of labels, but at most 512.

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
        return min(FULL_RANK if self.n_components is None else self.n_components, q)

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

        A narrow V with fewer labels than directions left is turned into as many directions as
        there are labels; no distance changes.
        """
        q, d = self.V.shape
        turn = np.eye(d)[:, columns if q == d else slice(None)]
        if q > d > len(columns):
            turn = np.linalg.qr(self.V[columns].T)[0] if columns else turn[:, :0]
        for name in ("V", "basis", "codec") if self.encodes else ("V", "basis"):
            setattr(self, name, getattr(self, name)[columns] @ turn)

    # ------------------------------------------------------------------ learning
    def turn(self, examples: Examples) -> None:
        """Turn a narrow metric to the present leading directions of the labels.

        What V has learnt is its difference from the old directions B; it is carried over as
        (V − B)BᵀB′, in the coordinates of the new ones.
        """
        q, d = self.V.shape
        if d < q:
            turned = leading_directions(examples, d)
            self.V = turned + (self.V - self.basis) @ (self.basis.T @ turned)
            self.basis = turned

    def play(
        self,
        Z: Matrix,
        mine: Labels,
        theirs: Labels,
        alone: npt.NDArray[np.bool_],
        *,
        step_max: float,
        step: str = "exact",
        linear: bool = False,
        step_min: float = 0.0,
    ) -> None:
        """Play the rounds of items Z (n, q) against their neighbours; ``alone`` have none."""
        known = np.empty((0, 0), np.bool_)
        if mine.known is not None or theirs.known is not None:
            known = np.ones(mine.Y.shape, np.bool_) if mine.known is None else mine.known
            known = known if theirs.known is None else known & theirs.known
        losses, steps = np.empty(len(Z)), np.empty(len(Z))
        degenerate = np.empty(len(Z), np.bool_)
        metric.run_rounds(
            Z, mine.Y, theirs.Y, known, alone, self.V, metric.STEPS.index(step), linear,
            float(step_min), float(step_max), losses, steps, degenerate,
        )  # fmt: skip
        self.n_updates += int((steps > 0).sum())
        self.n_degenerate += int(degenerate.sum())
        # A running sum, so that the order of additions does not depend on the calls.
        self.cumulative_loss = float(np.cumsum(np.append(self.cumulative_loss, losses))[-1])
        self.loss, self.step = float(losses[-1]), float(steps[-1])

    # ------------------------------------------------------------------ codes
    def renew(self) -> None:
        """Encode with the present V from now on."""
        # A power of two keeps the codes in single precision whatever the size of V (Erratum E3).
        largest = float(np.abs(self.V).max(initial=0.0))
        self.exponent = int(np.frexp(largest)[1]) if largest > 0 else 0
        self.codec = self.V * 0.5**self.exponent
        self.encodes = True

    def encode(self, Z: Matrix) -> npt.NDArray[np.float32]:
        """Return the codes of items in label space, (n, d), divided by :attr:`scale`."""
        out = np.empty((len(Z), self.codec.shape[1]))
        project_dense(Z, self.codec, np.zeros(out.shape[1]), out)
        return out.astype(np.float32)

    @property
    def scale(self) -> float:
        """What distances of codes are to be multiplied by."""
        return float(2.0**self.exponent)

    # ------------------------------------------------------------------ state
    def snapshot(self) -> Self:
        """Return an immutable picture: what encodes is never changed in place."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.V = self.V.copy()
        return twin

    def dump(self) -> dict[str, Any]:
        """Return everything as plain values."""
        arrays = {name: getattr(self, name).copy() for name in ("V", "basis", "codec")}
        return {**arrays, **{name: getattr(self, name) for name in COUNTERS}}

    def load(self, state: Any, q: int, encodes: bool) -> None:
        """Take over what :meth:`dump` gave, for ``q`` labels."""
        expect_keys("the space", state, "V", "basis", "codec", *COUNTERS)
        self.V = expect("V", state["V"], np.float64, (q, None))
        shape = (q, self.d)
        if self.d > max(q, self.n_components or 0):
            raise ValueError(f"V must have at most {max(q, self.n_components or 0)} columns")
        self.basis = expect("basis", state["basis"], np.float64, shape)
        self.encodes = encodes
        self.codec = expect("codec", state["codec"], np.float64, shape if encodes else (0, 0))
        for name, kind in COUNTERS.items():
            check_number(name, state[name], kind=kind, least=-np.inf)
            if not np.isfinite(state[name]):
                raise ValueError(f"{name} must be finite, got {state[name]}")
            setattr(self, name, state[name])
        large = max(np.abs(m).max(initial=0.0) for m in (self.V, self.basis, self.codec))
        if abs(self.exponent) > LARGEST_EXPONENT or large > 1e100:
            raise ValueError("V must be of a size that can be computed with")


def _enlarged(start: Matrix, old: Matrix) -> Matrix:
    """Return ``start`` with ``old`` in its upper left corner."""
    out = start.copy()
    out[: old.shape[0], : old.shape[1]] = old
    return out
