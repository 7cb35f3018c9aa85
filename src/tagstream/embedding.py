"""From rows to codes: the projection P, fitted at its times, and the metric space behind it.

An item x becomes z = Pᵀφ(x) + c in label space (:mod:`tagstream.projection`) and the code Vᵀz in
the metric space (:mod:`tagstream.space`).  P is chosen and fitted anew at fixed counts of examples
(:mod:`tagstream.schedule`); V moves with every example, and codes are made with a copy of it that
is renewed with P.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream import projection
from tagstream.checks import Rows, bits_of, blas_threads, check_number
from tagstream.fastmap import Inputs, inputs_of
from tagstream.memory import Store
from tagstream.projection.ridge import Spread
from tagstream.schedule import FIRST_FIT, is_full, next_choice, next_fit
from tagstream.space import Space

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["STATE", "Embedded", "Embedding"]

STATE = ("space", "projection", "choice", "seed", "next_fit", "next_choice")
LARGEST_LIFT = 1 << 28  # numbers of a lift of sparse rows, which it fills in


class Embedded(NamedTuple):
    """Items in label space, their codes, and the rows as P takes them."""

    Z: npt.NDArray[np.float64]  # (m, q)
    codes: npt.NDArray[np.float32]  # (m, d)
    inputs: Inputs


@dataclass(frozen=True)
class Encoder:
    """From rows to codes; a store may send it to where its rows are."""

    project: projection.Projection
    space: Space

    def __call__(self, rows: Rows) -> npt.NDArray[np.float32]:
        """Return the codes of rows, (n, d)."""
        return self.space.encode(self.project(rows))


class Embedding:
    """P and V over a stream.

    Parameters
    ----------
    space : Space
    seed : int
        Of random features.

    Attributes
    ----------
    projection : Projection or None
        P; None before its first fit.
    choice : Choice or None
        How P is made.
    next_fit, next_choice : int
        Counts of examples at which P is fitted, and from which it is chosen anew.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self.space, self.seed = space, seed
        self.projection: projection.Projection | None = None
        self.choice: projection.Choice | None = None
        self.next_fit = self.next_choice = FIRST_FIT
        self._last: tuple[Hashable, Embedded] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.space.nbytes + (0 if self.projection is None else self.projection.nbytes)

    def __call__(self, rows: Rows) -> Embedded:
        """Return items in label space and their codes; those of one item do not depend on others.

        The last single item is remembered, since in a stream the item that is asked for is often
        the next to be learnt.
        """
        bits = bits_of(rows) if rows.shape[0] == 1 else None
        last = self._last
        if last is not None and last[0] == bits:
            return last[1]
        assert self.projection is not None
        inputs = self.projection.inputs(rows)
        Z = self.projection.apply(inputs)
        made = Embedded(Z, self.space.encode(Z), inputs_of(inputs))
        if bits is not None:
            self._last = bits, made
        return made

    def grow(self, q: int, store: Store) -> None:
        """Have ``q`` labels from now on; no distance changes."""
        self.space.grow(q)
        store.widen_codes(self.space.d)
        self._last = None
        if self.projection is not None:
            self.projection = self.projection.grown(q)

    def keep(self, columns: Sequence[int], store: Store) -> None:
        """Leave out all other labels."""
        self.space.keep([*columns])
        if self.projection is not None:
            self.projection = self.projection.kept([*columns])
            self._encode(store)
        self._last = None

    def renew(
        self,
        t: int,
        store: Store,
        *,
        scale: str | None,
        lift: str | None,
        ridge: float | str,
        n_neighbors: int,
        rule: float,
    ) -> Spread | None:
        """Fit P after ``t`` examples, choosing first where that is due, and encode all again.

        The parameters are those of :func:`tagstream.projection.choose`.  Return the spread of the
        examples; None if none is stored.
        """
        window = store.window
        self.next_fit = next_fit(t, window)
        if not len(store):  # all was forgotten
            return None
        examples, full = store.examples(), is_full(t, window)
        # In a full window fits must be cheap, and a quarter of it is enough to choose by.
        half, quarter = (window or 0) // 2, (window or 0) // 4
        lift_size = min(projection.LIFT_SIZE, max(100, half)) if full else projection.LIFT_SIZE
        p = min(examples.shape[1], projection.LIFT_SIZE)
        with blas_threads(float(len(store)) * p * p):
            if self.choice is None or t >= self.next_choice:
                sample = min(projection.SAMPLE, max(64, quarter)) if full else projection.SAMPLE
                self.choice = projection.choose(
                    examples, scale=scale, lift=lift, ridge=ridge, n_neighbors=n_neighbors,
                    rule=rule, lift_size=lift_size, sample=sample, seed=self.seed,
                )  # fmt: skip
                self.next_choice = next_choice(t, window)
                self.space.turn(examples)
            self.projection, spread = projection.fit(
                examples, self.choice, lift_size=lift_size, seed=self.seed, start=self.projection
            )
            self._encode(store)
        return spread

    def _encode(self, store: Store) -> None:
        """Make the stored codes anew with the present V."""
        assert self.projection is not None
        self.space.renew()
        store.encode(Encoder(self.projection, self.space.snapshot()))
        self._last = None

    # ------------------------------------------------------------------ state
    def snapshot(self) -> Self:
        """Return a picture that embeds as this one does now."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.space = self.space.snapshot()
        return twin

    def dump(self) -> dict[str, Any]:
        """Return everything as plain values, under the names of ``STATE``."""
        return {
            "space": self.space.dump(),
            "projection": None if self.projection is None else self.projection.dump(),
            "choice": None if self.choice is None else asdict(self.choice),
            "seed": self.seed,
            "next_fit": self.next_fit,
            "next_choice": self.next_choice,
        }

    @classmethod
    def load(
        cls,
        state: dict[str, Any],
        space: Space,
        store: Store,
        *,
        lift: str | None,
        p: int,
        q: int,
        sparse: bool,
    ) -> Self:
        """Return what :meth:`dump` described, for ``p`` features and ``q`` labels.

        ``space`` is an empty one of the right kind, ``lift`` the one that was asked for.
        """
        if sparse and lift in projection.LIFTS[:2] and p * projection.LIFT_SIZE > LARGEST_LIFT:
            raise ValueError(
                f"a lift must hold at most {LARGEST_LIFT} numbers, got {p * projection.LIFT_SIZE}"
            )
        check_number("seed", state["seed"], kind=int, least=0, most=2.0**31)
        for name in ("next_fit", "next_choice"):
            check_number(name, state[name], kind=int, least=1, most=2.0**60)
        made, fitted = cls(space, state["seed"]), state["projection"] is not None
        space.load(state["space"], q, encodes=fitted)
        if fitted:
            made.projection = projection.Projection.load(state["projection"], p, q, sparse)
        if state["choice"] is not None:
            made.choice = projection.Choice.load(state["choice"])
        elif fitted:
            raise ValueError("a projection must come with its choice")
        made.next_fit, made.next_choice = state["next_fit"], state["next_choice"]
        d = space.d if fitted else None
        if store.code_width != d:
            raise ValueError(f"codes must have {d} columns, got {store.code_width}")
        return made
