"""From rows to codes: the projection P, fitted at its times, and the metric space behind it.

An item x becomes z = Pᵀφ(x) + c in label space (:mod:`tagstream.projection`) and the code Vᵀz in
the metric space (:mod:`tagstream.metric.space`).  P is chosen and fitted anew at fixed counts of
examples (:mod:`tagstream.execution.schedule`); V moves with every example, and codes are made with
a copy of it that is renewed with P.  A fit is made in steps, by a twin that takes over when all is
done (:mod:`tagstream.engine.pending_fit`).

Of a thousand dense examples or more, the moments of the columns and the stored rows of a kernel
stay what they are from one choice to the next.  So the sums that a fit solves need only those of
the examples that are new; what was summed before is kept, and is not part of the state.

More than 512 labels are reduced to as many directions (:mod:`tagstream.projection.reduction`): P
and V then live in the coordinates of these, and z is made of them for those who ask about labels.
Directions are looked for anew with each choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream import projection
from tagstream.checks import (
    LARGEST_VALUE,
    Digests,
    Rows,
    check_number,
    expect,
    expect_keys,
)
from tagstream.core.inputs import Inputs, inputs_of
from tagstream.evidence.fastmap import Basis
from tagstream.evidence.replay import Left, Replay, Replayed, column_factor
from tagstream.execution.schedule import FIRST_FIT, is_full, next_choice
from tagstream.execution.steps import PAUSE, Steps
from tagstream.execution.threads import ONE_BLAS_THREAD
from tagstream.labels.read import Labels
from tagstream.limits import LIMITS, Limits
from tagstream.metric.space import Coordinates, Space
from tagstream.projection.ridge import Spread
from tagstream.store import changes
from tagstream.store.coded import Coded
from tagstream.store.contents import left_out, newest_of_each
from tagstream.store.protocol import Store
from tagstream.store.sums import Examples, LocalExamples, Tree

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["STATE", "Embedded", "Embedding", "Renewed", "Wanted"]

STATE = (
    "space", "projection", "reduction", "choice", "moments", "seed", "next_fit", "next_choice",
    "n_fits", "fitted_at",
)  # fmt: skip
Moments = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
LARGEST_LIFT = 1 << 28  # numbers of a lift of sparse rows, which it fills in


class Wanted(NamedTuple):
    """What P is to be, as parameters of a learner say; see :func:`tagstream.projection.choose`."""

    scale: str | None
    lift: str | None
    ridge: float | str
    n_neighbors: int
    rule: float
    embedded: int = 0


class Renewed(NamedTuple):
    """What a fit has made.

    Attributes
    ----------
    embedding : Embedding
        A twin to take over from.
    spread : Spread
        How the inputs of the fit are spread.
    coded : Coded
        Codes of what was stored.
    replayed : Replayed or None
        What the any-head has learnt, if there is a head.
    """

    embedding: Embedding
    spread: Spread
    coded: Coded
    replayed: Replayed | None = None


class Embedded(NamedTuple):
    """Items in label space, their codes, the rows as P takes them, and what P makes of them."""

    Z: npt.NDArray[np.float64]  # (m, q)
    codes: npt.NDArray[np.float32]  # (m, d)
    inputs: Inputs
    C: npt.NDArray[np.float64]  # (m, r), coordinates of reduced labels, or Z itself


@dataclass(frozen=True)
class Encoder:
    """From rows to codes; a store may send it to where its rows are.

    ``space`` is None where ``project`` is PV itself.
    """

    project: projection.Projection
    space: Space | None

    def __call__(self, rows: Rows) -> npt.NDArray[np.float32]:
        """Return the codes of rows, (n, d)."""
        made = self.project(rows)
        return made.astype(np.float32) if self.space is None else self.space.encode(made)


class Embedding:
    """P and V over a stream.

    Parameters
    ----------
    space : Space
    seed : int
        Of random features.
    limits : Limits, optional
        From which sizes on things are done in another way.

    Attributes
    ----------
    projection : Projection or None
        P; None before its first fit.
    reduction : Reduction or None
        Of very many labels; P and V are then those of its coordinates.
    choice : Choice or None
        How P is made.
    moments : pair of arrays of shape (p,), or None
        Mean and deviation of the columns, if features are kept until the next choice.
    next_fit, next_choice : int
        Counts of examples at which P is fitted, and from which it is chosen anew.
    n_fits : int
        How many fits have begun: each leaves other examples out.
    fitted_at : int
        After how many examples the fit began that is in effect; 0 before the first.
    """

    def __init__(self, space: Space, seed: int, limits: Limits = LIMITS) -> None:
        self.space, self.seed, self.limits = space, seed, limits
        self.projection: projection.Projection | None = None
        self.reduction: projection.Reduction | None = None
        self.choice: projection.Choice | None = None
        self.moments: Moments | None = None
        self._coder: projection.Projection | None = None  # of reduced labels: P times the codec
        self._sums: Tree | None = None  # of full leaves, for the features that are kept
        self.turned: npt.NDArray[np.float64] | None = None  # of coordinates, in the last fit
        self.next_fit = self.next_choice = FIRST_FIT
        self.n_fits = self.fitted_at = 0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        parts = (self.space, self.projection, self.reduction, self._coder, self._sums)
        return sum(part.nbytes for part in parts if part is not None)

    @property
    def basis(self) -> Basis | None:
        """B and Bᵀ where labels are reduced, once they are."""
        reduction = self.reduction
        return None if reduction is None or not reduction.r else (reduction.B, reduction.rows)

    def V(self, q: int) -> npt.NDArray[np.float64]:
        """Return the metric, (q, d); made for who asks, if labels are reduced."""
        if self.reduction is None:
            return self.space.V
        B = self.reduction.B
        return np.pad(B @ self.space.V, ((0, q - len(B)), (0, 0)))

    def P(self, p: int, q: int) -> npt.NDArray[np.floating[Any]]:
        """Return the projection, (p, q); made for who asks, if labels are reduced."""
        if self.projection is None:
            return np.zeros((p, q))
        P = self.projection.dense
        if self.reduction is None:
            return P
        return np.pad(P @ self.reduction.rows, ((0, 0), (0, q - len(self.reduction.B))))

    def __call__(self, rows: Rows, q: int) -> Embedded:
        """Return items in space of ``q`` labels and codes; those of one do not depend on others."""
        assert self.projection is not None
        inputs = self.projection.inputs(rows)
        if self.reduction is None or self._coder is None:
            Z = self.projection.apply(inputs)
            return Embedded(Z, self.space.encode(Z), inputs_of(inputs), Z)
        C = self.projection.apply(inputs)
        Z = self.reduction.labels(C, q)
        codes = self._coder.apply(inputs).astype(np.float32)
        return Embedded(Z, codes, inputs_of(inputs), C)

    def transform(self, rows: Rows, q: int) -> npt.NDArray[np.float32]:
        """Return the codes of rows as they are in the metric space; zero before the first fit."""
        if self.projection is None:
            return np.zeros((rows.shape[0], self.space.d), np.float32)
        return self(rows, q).codes * np.float32(self.space.scale)

    def play(
        self,
        made: Embedded,
        mine: Labels,
        theirs: Labels,
        alone: npt.NDArray[np.bool_],
        *,
        step_max: float,
    ) -> None:
        """Play the rounds of embedded items against their neighbours, see :class:`Space`."""
        if self.reduction is None:
            self.space.play(made.Z, mine, theirs, alone, step_max=step_max)
        else:
            own, others = self.reduction.pairs(made.Z, made.C, mine, theirs)
            self.space.play(made.C, Coordinates(own), Coordinates(others), alone, step_max=step_max)

    def grow(self, q: int) -> None:
        """Have ``q`` labels from now on; no distance changes."""
        if self.reduction is not None:  # a new label is unseen until its directions are sought
            return
        if q > self.limits.many_labels and self.projection is None:
            self.reduction = projection.Reduction.empty()
            self.space.change(np.zeros((0, len(self.space.V))))
            return
        self.space.grow(q)
        if self.projection is not None:
            self.projection = self.projection.grown(q)

    def keep(self, columns: Sequence[int], store: Store) -> None:
        """Leave out all other labels; where they are reduced, a fit must follow."""
        self.forget_sums()
        if self.reduction is not None:
            self.reduction = self.reduction.kept([*columns])
            self.next_choice = 1  # what is left of the directions is not orthonormal
            return
        self.space.keep([*columns])
        if self.projection is not None:
            self.projection = self.projection.kept([*columns])
            self.space.renew()
            changes.encode(store, self.encoder())

    def forget_sums(self) -> None:
        """Sum all examples again at the next fit: those that were summed have changed."""
        self._sums = None

    def chooses(self, t: int) -> bool:
        """Tell whether a fit of ``t`` examples is to choose first."""
        return self.choice is None or t >= self.next_choice

    def renewing(
        self, t: int, store: Store, wanted: Wanted, contents: Digests, replay: Replay | None
    ) -> Steps[Renewed | None]:
        """Fit P after ``t`` examples, choosing first where that is due, and encode all again.

        In steps, by a twin of what is here now, for :meth:`take_over`; nothing changes here before
        that.  ``store`` must stay as it is meanwhile, and has these ``contents``.  With a
        ``replay`` some examples are left out first, which teach the any-head.  Return None if
        nothing is stored: all was forgotten.
        """
        self.n_fits += 1
        twin = self.snapshot()
        twin.space, twin.turned, twin.fitted_at = self.space.twin(), None, t
        return twin._renew(t, store, wanted, contents, replay)

    def _renew(
        self, t: int, store: Store, wanted: Wanted, contents: Digests, replay: Replay | None
    ) -> Steps[Renewed | None]:
        if not len(store):
            return None
        examples, window = store.examples(), store.window
        out = None
        if replay is not None:
            sample = left_out(contents, self.seed, self.n_fits)
            out = Left.of(sample, contents, store) if len(sample.newest) else None
        left = None if out is None else LocalExamples.of(*examples.take(out.sample.every))
        yield PAUSE
        full = is_full(t, window)
        # In a full window fits must be cheap, and a quarter of it is enough to choose by.
        half, quarter = (window or 0) // 2, (window or 0) // 4
        limits = self.limits
        lift_size = min(limits.lift_size, max(100, half)) if full else limits.lift_size
        keeps = window is None and not examples.sparse and len(examples) >= limits.features_kept
        due, design = self.chooses(t), None
        self._reduce(examples, store.facts.n_labels, due)
        yield PAUSE
        if due or not keeps or self.moments is None:
            self.moments, self._sums = None, None
        if keeps and self._sums is None and store.facts.in_process:
            self._sums = Tree()
        if due:
            size = min(limits.sample, max(64, quarter)) if full else limits.sample
            newest = newest_of_each(contents)
            among = newest if len(newest) < len(contents) else None
            yield PAUSE
            self.choice, design = yield from projection.choose(
                examples, **wanted._asdict(), lift_size=lift_size, sample=size, seed=self.seed,
                reduction=self.reduction, last=self.choice, before=self._sums, among=among,
            )  # fmt: skip
            self.next_choice = next_choice(t, window)
            if self.reduction is None:
                self.space.turn(examples)
        assert self.choice is not None
        if design is None:
            if self.moments is not None and self.projection is not None:
                features = projection.dense_features(
                    self.choice, self.projection.lift, self.moments
                )
            else:
                features = yield from projection.make_features(
                    examples, self.choice, lift_size, self.seed
                )
            design = yield from projection.Design.of(examples, features, self.reduction, self._sums)
        self.moments = design.features.moments if keeps else None
        last, replayed = self.projection, None
        self.space.renew()
        if replay is not None and left is not None and out is not None:
            P = yield from projection.fit_without(design, left, out.sample.every, self.choice.ridge)
            self._set(P)
            replayed = yield from self._replay(replay, out, store, design.features.moments)
        P, spread = yield from projection.fit(design, self.choice.ridge, start=last)
        self._set(P)
        coded = yield from store.examples().encoding(self.encoder(), dear=P.lift is not None)
        return Renewed(self, spread, coded, replayed)

    def _set(self, made: projection.Projection) -> None:
        """Go on with another P."""
        self.projection = made
        self._make_coder()

    def _replay(
        self, replay: Replay, out: Left, store: Store, moments: Moments | None
    ) -> Steps[Replayed]:
        """Teach the any-head what was left out, by P as it is now."""
        assert self.projection is not None
        made, votes = self(out.rows, store.facts.n_labels), replay.n_votes
        groups = out.groups(votes, len(store))
        found = np.empty((len(made.Z), votes), np.int64)
        asked = [(made.codes[part], k) for part, k in groups]
        dear = self.projection.lift is not None
        every = yield from store.examples().nearest_by(self.encoder(), asked, dear=dear)
        for (part, _), near in zip(groups, every, strict=True):
            found[part] = out.others(near, part, votes)
        factor = None if moments is None or not replay.near else column_factor(*moments)
        return (yield from replay.learn(out, store, found, made.Z, factor, self.basis))

    def take_over(self, renewed: Renewed, store: Store, *, changed: bool) -> None:
        """Go on with what a fit has made.

        ``changed``: examples that it was made of have other labels now, or are gone.
        """
        twin = renewed.embedding
        self.space.follow(twin.space, twin.turned)
        for name in (
            "projection", "reduction", "choice", "moments", "next_choice", "fitted_at", "_coder",
        ):  # fmt: skip
            setattr(self, name, getattr(twin, name))
        self._sums = None if changed else twin._sums
        changes.adopt_codes(store, renewed.coded, self.encoder())
        changes.widen_codes(store, self.space.d)

    def _reduce(self, examples: Examples, q: int, due: bool) -> None:
        """Reduce labels if there are so many, and see to the coordinates of P and V.

        Directions are looked for when the choice is ``due``, and where there are none yet; else
        only the mean of the labels is brought up to date.
        """
        old = self.reduction
        if q <= self.limits.many_labels:
            if old is None:
                return
            self.reduction, C = None, np.zeros((q, old.r))
            C[: len(old.B)] = old.B
        elif old is None:  # all labels were their own coordinates
            self.reduction = projection.Reduction.of(examples, self.seed)
            C = self.reduction.B.T.astype(np.float64)
        elif due or not old.r:
            self.reduction = projection.Reduction.of(examples, self.seed, old)
            C = old.turn(self.reduction)
        else:
            self.reduction = old.centred(examples)
            return
        self.turned = C
        self.space.change(C)
        if self.projection is not None:
            self.projection = self.projection.turned(C)

    def encoder(self) -> Encoder:
        """Return what makes codes of rows now."""
        assert self.projection is not None
        if self._coder is not None:
            return Encoder(self._coder, None)
        return Encoder(self.projection, self.space.snapshot())

    def _make_coder(self) -> None:
        """Multiply P with the codec where labels are reduced.

        An item has fewer features than its labels have directions, so this is the shorter way.
        """
        self._coder = None
        if self.reduction is not None and self.projection is not None:
            with ONE_BLAS_THREAD:  # in the same way after a fit and after a file was read
                self._coder = self.projection.turned(self.space.codec.T)

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
            "reduction": None if self.reduction is None else self.reduction.dump(),
            "choice": None if self.choice is None else asdict(self.choice),
            "moments": self._dump_moments(),
            "seed": self.seed,
            "next_fit": self.next_fit,
            "next_choice": self.next_choice,
            "n_fits": self.n_fits,
            "fitted_at": self.fitted_at,
        }

    def _dump_moments(self) -> dict[str, Any] | None:
        if self.moments is None:
            return None
        mean, deviation = self.moments
        return {"mean": mean.copy(), "deviation": deviation.copy()}

    @classmethod
    def load(
        cls,
        state: dict[str, Any],
        space: Space,
        *,
        lift: str | None,
        p: int,
        q: int,
        sparse: bool,
        limits: Limits = LIMITS,
    ) -> Self:
        """Return what :meth:`dump` described, for ``p`` features and ``q`` labels.

        ``space`` is an empty one of the right kind, ``lift`` the one that was asked for.
        """
        if sparse and lift in projection.LIFTS[:2] and p * limits.lift_size > LARGEST_LIFT:
            raise ValueError(
                f"a lift must hold at most {LARGEST_LIFT} numbers, got {p * limits.lift_size}"
            )
        check_number("seed", state["seed"], kind=int, least=0, most=2.0**31)
        for name in ("next_fit", "next_choice"):
            check_number(name, state[name], kind=int, least=1, most=2.0**60)
        for name in ("n_fits", "fitted_at"):
            check_number(name, state[name], kind=int, least=0, most=2.0**60)
        made, fitted = cls(space, state["seed"], limits), state["projection"] is not None
        width = q
        if state["reduction"] is not None:
            made.reduction = projection.Reduction.load(state["reduction"], q)
            width = made.reduction.r
        space.load(state["space"], width, encodes=fitted)
        if fitted:
            made.projection = projection.Projection.load(state["projection"], p, width, sparse)
            made._make_coder()
        if state["choice"] is not None:
            made.choice = projection.Choice.load(state["choice"])
        elif fitted:
            raise ValueError("a projection must come with its choice")
        if state["moments"] is not None:
            expect_keys("moments", state["moments"], "mean", "deviation")
            if sparse or not fitted:
                raise ValueError("moments must be those of dense rows that P was fitted on")
            most, least = LARGEST_VALUE, np.finfo(np.float64).tiny
            mean, deviation = state["moments"]["mean"], state["moments"]["deviation"]
            made.moments = (
                expect("mean", mean, np.float64, (p,), least=-most, most=most),
                expect("deviation", deviation, np.float64, (p,), least=least, most=most),
            )
        made.next_fit, made.next_choice = state["next_fit"], state["next_choice"]
        made.n_fits, made.fitted_at = state["n_fits"], state["fitted_at"]
        return made

    def check_codes(self, store: Store) -> None:
        """Check that the codes of a store are as wide as those that are made here."""
        d = self.space.d if self.projection is not None else None
        if store.facts.code_width != d:
            raise ValueError(f"codes must have {d} columns, got {store.facts.code_width}")
