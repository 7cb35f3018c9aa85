"""A fit of P under way: begun at one count of examples, in effect at a later one.

A fit of many examples takes long: if all of it fell on one example, who learns that one would
wait.  So it is made in steps (:mod:`tagstream.execution.steps`) of the examples that were there at
its beginning, while learning goes on with the old P.  What is learnt in the meantime is noted, and
learnt once more by the new fast map on top of the new P.  Both counts follow from the number of
examples (:mod:`tagstream.execution.schedule`), and nothing of what is made depends on when its
steps are done: a block of examples does all of them at its end, a single one as many as take a few
milliseconds.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.checks import LARGEST_VALUE, Rows, check_number, expect, expect_keys
from tagstream.engine.embedding import STATE, Embedding, Renewed
from tagstream.evidence.fastmap import FEW, FastMap
from tagstream.evidence.scoring import Belief
from tagstream.execution.steps import Slowly, Steps
from tagstream.labels.read import Labels
from tagstream.limits import LIMITS, Limits
from tagstream.metric.space import Space
from tagstream.projection.ridge import Spread
from tagstream.store.protocol import Store

__all__ = ["Renewal"]


class _Event(NamedTuple):
    """What was learnt in the meantime: examples from a number on, or a correction (None)."""

    number: int | None
    rows: Rows
    labels: Labels


class Renewal:
    """One fit, from its beginning until it takes effect.

    Parameters
    ----------
    at : int
        Count of examples at which it takes effect.
    steps : Steps
        The fit, see :meth:`Embedding.renewing`, of a snapshot.
    belief : Belief or None
        As it is at the beginning; it is looked at only now.
    """

    _fast: FastMap | _AsBefore | None

    def __init__(self, at: int, steps: Steps[Renewed | None], belief: Belief | None) -> None:
        self.at = at
        self._slowly, self._events = Slowly(steps), deque[_Event]()
        self._fast = None
        if belief is not None:
            self._fast = _AsBefore(belief.fast, belief.head.counts, plain=belief.plain)
        self._changed = False  # whether what is fitted was corrected or taken out since

    # ------------------------------------------------------------------ meanwhile
    def learnt(self, number: int, rows: Rows, labels: Labels) -> None:
        """Note examples that were learnt, from that number on."""
        known = None if labels.known is None else labels.known.copy()
        self._events.append(_Event(number, rows.copy(), Labels(labels.Y.copy(), known)))

    def corrected(self, row: Rows, added: npt.NDArray[np.bool_]) -> None:
        """Note that an item, (1, p), was given labels that it did not have, (1, q)."""
        self._changed = True
        self._events.append(_Event(None, row.copy(), Labels(added.astype(np.uint8), added)))

    def forgot(self) -> None:
        """Note that an item was taken out."""
        self._changed = True

    def run(self, seconds: float) -> None:
        """Do a step at least, and more until so much time has passed."""
        end = time.perf_counter() + seconds
        if not self._slowly.done:
            self._slowly.run(seconds)
        while self._slowly.done and self._events and time.perf_counter() < end:
            self._catch_up()

    def finish(self) -> Renewed | None:
        """Do all that is left up to now; return what was made, None if there was nothing to fit."""
        renewed = self._slowly.finish()
        while self._events:
            self._catch_up()
        return renewed

    def _catch_up(self) -> None:
        """Learn the next of what was noted."""
        renewed, event = self._slowly.finish(), self._events.popleft()
        if renewed is None:
            return
        q = event.labels.Y.shape[1]
        fast = self._grow(renewed, q)
        made = renewed.embedding(event.rows, q)
        if event.number is not None:
            renewed.coded.add(event.number, made.codes)
        if fast is None:
            return
        Y, known = event.labels
        if event.number is not None and known is not None and not known.any(axis=1).all():
            some = known.any(axis=1)  # of whom nothing is known, nothing is learnt
            Y, known = Y[some], known[some]
            made = renewed.embedding(event.rows[some], q)
        fast.learn(made.inputs, made.Z, Y, known)

    def _grow(self, renewed: Renewed, q: int) -> FastMap | None:
        """Have ``q`` labels, as the learner came to have; return the new fast map."""
        twin = renewed.embedding
        if twin.reduction is None and q > len(twin.space.V):
            twin.grow(q)
        if isinstance(self._fast, _AsBefore):
            self._fast = self._fast.after(renewed)
        if self._fast is not None:
            self._fast.grow(q)
        return self._fast

    # ------------------------------------------------------------------ at the end
    def take_effect(self, embedding: Embedding, belief: Belief | None, store: Store) -> None:
        """Have the learner go on with what was made."""
        renewed = self.finish()
        if renewed is None:
            return
        fast = self._grow(renewed, store.facts.n_labels)
        embedding.take_over(renewed, store, changed=self._changed)
        if belief is not None and fast is not None:
            belief.take_over(fast, renewed.spread, renewed.replayed, store)

    # ------------------------------------------------------------------ state
    def dump(self, q: int) -> dict[str, Any] | None:
        """Return everything as plain values, for ``q`` labels; what is left to do is done first."""
        renewed = self.finish()
        if renewed is None:
            return None
        fast, twin = self._grow(renewed, q), renewed.embedding
        mean, deviation = renewed.spread.mean, renewed.spread.deviation
        replayed = renewed.replayed
        if replayed is not None:
            replayed.head.grow(q)
        return {
            "at": self.at,
            "embedding": twin.dump(),
            "turn": None if twin.turned is None else twin.turned.copy(),
            "fast": None if fast is None else fast.dump(),
            "mean": None if mean is None else mean.copy(),
            "deviation": None if deviation is None else deviation.copy(),
            "any": None if replayed is None else replayed.head.dump(),
            "drawn": None if replayed is None else replayed.drawn.copy(),
            "honest": None if replayed is None else [e._asdict() for e in replayed.honest],
        }

    @classmethod
    def load(
        cls,
        state: Any,
        space: Space,
        store: Store,
        belief: Belief | None,
        *,
        lift: str | None,
        p: int,
        q: int,
        sparse: bool,
        limits: Limits = LIMITS,
    ) -> Renewal:
        """Return what :meth:`dump` described; parameters as those of :meth:`Embedding.load`."""
        keys = ("at", "embedding", "turn", "fast", "mean", "deviation", "any", "drawn", "honest")
        expect_keys("the fit", state, *keys)
        check_number("at", state["at"], kind=int, least=1, most=2.0**60)
        expect_keys("the fit's embedding", state["embedding"], *STATE)
        twin = Embedding.load(
            state["embedding"], space, lift=lift, p=p, q=q, sparse=sparse, limits=limits
        )
        project = twin.projection
        if project is None:
            raise ValueError("a fit under way must have a projection, got none")
        if state["turn"] is not None:
            shape = (len(space.V), None)
            twin.turned = expect("turn", state["turn"], np.float64, shape, least=-2, most=2)
        if (belief is None) != (state["fast"] is None):
            raise ValueError("a fit under way must have a fast map if there is a head")
        columns: Any = {"mean": None, "deviation": None}
        for name in columns if not sparse else ():
            columns[name] = expect(
                name, state[name], np.float64, (p,), least=-LARGEST_VALUE, most=LARGEST_VALUE
            )
        spread, replayed = Spread(np.empty(0), None, None, **columns), None
        if belief is not None and state["any"] is not None:
            if type(state["honest"]) is not list:
                raise ValueError("a fit under way must have a list of honest scores")
            drawn, honest = state["drawn"], state["honest"]
            replayed = belief.load_replayed(state["any"], drawn, honest, q, store)
        elif state["any"] is not None or state["drawn"] is not None:
            raise ValueError("a fit under way must have an any-head only if there is a head")

        def steps() -> Steps[Renewed | None]:
            return Renewed(
                twin, spread, (yield from store.examples().encoding(twin.encoder())), replayed
            )

        made = cls(state["at"], steps(), None)
        if state["fast"] is not None:
            made._fast = FastMap.load(
                state["fast"], q, sparse=sparse and project.lift is None, width=project.n_inputs,
                basis=twin.basis,
            )  # fmt: skip
        return made


class _AsBefore:
    """The fast map as it is when a fit begins: what it keeps of labels that P does not know yet."""

    def __init__(self, fast: FastMap, counts: npt.NDArray[np.int64], *, plain: bool) -> None:
        keeps = plain and (counts < FEW).any()
        self._fast = fast.snapshot() if keeps else FastMap(sparse=fast.sparse)
        self._counts, self._plain = counts, plain

    def after(self, renewed: Renewed) -> FastMap:
        """Return the fast map as it starts on top of what was fitted."""
        fast, spread, choice = self._fast, renewed.spread, renewed.embedding.choice
        assert choice is not None
        plain = self._plain and choice.lift is None
        spread = spread.as_they_are() if plain else spread
        if fast.sparse != (spread.shift is None):
            fast = FastMap(sparse=spread.shift is None)
        fast.grow(len(self._counts))
        fast.reset(
            spread.squares, max(choice.ridge, 1e-12), shift=spread.shift, factor=spread.factor,
            counts=self._counts, basis=renewed.embedding.basis, plain=plain,
        )  # fmt: skip
        return fast
