"""The fast map: what the regression P learns only at its next fit, learnt at once.

P is fitted at growing intervals.  Between two fits a correction D is added to it,

    z⁺ = z + Dᵀx,        D = 0 at each fit of P,

(but for labels with fewer than 10 examples, of which P still says nothing and sparse rows keep D,)
where x is the item as P sees it.  After each example, with s_i = Σ x_i² over all that P and D have
learnt, ρ the ridge of P and η = 8,

    h = Σ_i x_i²/(ρ + s_i)
    r_j = y_j − z⁺_j, but 0 where z⁺_j is beyond y_j already, or y_j is not known
    D_ij += x_i/(ρ + s_i) · ηr_j/(1 + ηh) ;      then s_i += x_i².

This is recursive least squares with the inverse of XᵀX + ρI replaced by that of its diagonal.  The
step moves z⁺_j of the very same x by r_j·ηh/(1 + ηh), less than all of r_j, so it never overshoots.

Of very many labels, reduced to m + Bb (:mod:`tagstream.projection.reduction`), D maps into the
coordinates b: z⁺ = z + B(Dᵀx), and the residual is Bᵀr.  Labels that B does not see are not
corrected, and nothing of D outlives a fit.

Sparse rows touch few features; only those have a row of D, found by hashing.  A snapshot shares
the rows: afterwards a row is copied before it is written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.checks import LARGEST_VALUE, Rows, check_number, expect, expect_keys
from tagstream.core.fastmap import (
    BLIND,
    EMPTY,
    FROZEN,
    LARGEST_WEIGHT,
    USED,
    insert_features,
    pass_inputs,
    sum_squares,
)
from tagstream.core.inputs import Inputs, inputs_of
from tagstream.core.structs import fast_maps

__all__ = [
    "FEW",
    "Basis",
    "FastMap",
    "FastState",
    "sums_of_squares",
    "young_labels",
]

SMALLEST_RIDGE = 1e-12
FEW = 10  # examples at the last fit below which P says nothing about a label
FRESH = 1  # a label with so few

Vector = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Table = npt.NDArray[np.int32]

# Of reduced labels, B (q, r) and Bᵀ (r, q).
Basis = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
_NO_BASIS = np.empty((0, 0), np.float32)

TOGETHER = 64  # inputs for which room is made at a time


class FastState(NamedTuple):
    """D and s as plain arrays, for the compiled loops.

    ``keys`` and ``slots`` are an open-addressing table: the row of feature ``keys[a]`` is
    ``slots[a]``.  Dense inputs have row i for feature i, and no table.

    Attributes
    ----------
    D : float32 array of shape (rows, q)
    added : float64 array of shape (rows,)
        What s has gained since the fit, per row.
    s : float64 array of shape (p,)
        Sums of squares at the fit; shape (0,) before the first fit, when there is no map.
    keys, slots : int32 arrays of one size, a power of two; shape (0,) for dense inputs
    shift, factor : float64 arrays of shape (p,), or (0,)
        Dense inputs are used as (x − shift)·factor.
    counters : int64 array of shape (2,)
    rho : float64 array of shape (1,)
    fresh : uint8 array of shape (q,)
        1 for a label that had fewer than 10 examples at the last fit, 2 for one that B does not
        see.
    B, rows : float32 arrays of shapes (q, r) and (r, q), or (0, 0)
        Of reduced labels, B and Bᵀ; D then has r columns.  B may have fewer rows than there are
        labels.
    """

    D: npt.NDArray[np.float32]
    added: Vector
    s: Vector
    keys: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]
    shift: Vector
    factor: Vector
    counters: npt.NDArray[np.int64]
    rho: Vector
    fresh: npt.NDArray[np.uint8]
    B: npt.NDArray[np.float32]
    rows: npt.NDArray[np.float32]


def sums_of_squares(
    rows: Rows, shift: Vector | None = None, factor: Vector | None = None
) -> Vector:
    """Return s_i = Σ x_i² over the rows, added one after another, an array of shape (p,)."""
    p = rows.shape[1]
    s = np.zeros(p)
    sum_squares(
        inputs_of(rows),
        np.zeros(p) if shift is None else shift,
        np.ones(p) if factor is None else factor,
        s,
    )
    return s


def young_labels(
    counts: npt.NDArray[np.int64], basis: Basis | None = None
) -> npt.NDArray[np.uint8]:
    """Return which labels P says nothing about, given how many examples each had in the fit.

    1 for a label with too few, 2 for one that the basis of reduced labels does not see, else 0.
    """
    fresh = (counts < FEW).astype(np.uint8)
    if basis is not None:
        B = basis[0]
        fresh[len(B) :] = BLIND
        fresh[: len(B)][~B.any(axis=1)] = BLIND
    return fresh


class FastMap:
    """D and s, which grow with the labels and the features that are touched.

    Parameters
    ----------
    sparse : bool
        Whether inputs are CSR.  (Lifted sparse rows are dense inputs.)

    Examples
    --------
    >>> fast = FastMap(sparse=False)
    >>> fast.grow(1)
    >>> fast.reset(np.array([3.0, 0.0]), rho=1.0)
    >>> x, z = inputs_of(np.array([[1.0, 1.0]])), np.zeros((1, 1))
    >>> fast.learn(x, z, np.array([[1]], np.uint8))  # h = 1/4 + 1/1: 10/11 of the way
    >>> round(float(fast(x, z)[0, 0]), 4)
    0.9091
    """

    def __init__(self, *, sparse: bool) -> None:
        self.sparse = sparse
        self._shared = False  # dense rows, by a snapshot
        self.state = FastState(
            np.empty((0, 0), np.float32),
            np.empty(0),
            np.empty(0),
            np.empty(0, np.int32),
            np.empty(0, np.int32),
            np.empty(0),
            np.empty(0),
            np.zeros(2, np.int64),
            np.zeros(1),
            np.empty(0, np.uint8),
            _NO_BASIS,
            _NO_BASIS,
        )

    @property
    def state(self) -> FastState:
        """D and s as plain arrays."""
        return self._state

    @state.setter
    def state(self, state: FastState) -> None:
        self._state = state
        D, added, s, keys, slots, shift, factor, counters, rho, fresh, B, rows = state
        table, scale = (keys, slots, counters), (shift, factor)
        self.struct = fast_maps(  # as the compiled loops take it
            D, added, s, rho, fresh, table if self.sparse else None,
            None if self.sparse else scale, (B, rows) if self.reduced else None,
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has, too: all but the object that refers to arrays of this map."""
        return {k: v for k, v in self.__dict__.items() if k != "struct"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.state = self._state

    @property
    def active(self) -> bool:
        """Whether P was fitted; before, z⁺ = z."""
        return len(self.state.s) > 0

    @property
    def reduced(self) -> bool:
        """Whether D maps into the coordinates of reduced labels."""
        return bool(self.state.B.shape[1])

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return len(self.state.fresh)

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        return sum(part.nbytes for part in self.state[: -len(("B", "rows"))])  # which are P's

    def grow(self, q: int) -> None:
        """Make room for ``q`` labels; the new ones are as if nobody ever had them."""
        more = q - self.n_labels
        if more and self.reduced:
            fresh = np.pad(self.state.fresh, (0, more), constant_values=BLIND)
            self.state = self.state._replace(fresh=fresh)
        elif more:
            self.state = self.state._replace(
                D=np.pad(self.state.D, ((0, 0), (0, more))),
                fresh=np.pad(self.state.fresh, (0, more), constant_values=FRESH),
                counters=np.array([self.state.counters[USED], 0]),
                added=self.state.added.copy(),
            )
            self._shared = False

    def keep(self, columns: list[int]) -> None:
        """Leave out all labels but those at ``columns``.

        Of reduced labels D stays as it is, and :meth:`rebase` has to follow.
        """
        if self.reduced:
            self.state = self.state._replace(fresh=self.state.fresh[columns])
            return
        self.state = self.state._replace(
            D=np.ascontiguousarray(self.state.D[:, columns]),
            fresh=self.state.fresh[columns],
            counters=np.array([self.state.counters[USED], 0]),
            added=self.state.added.copy(),
        )
        self._shared = False

    def rebase(self, basis: Basis | None) -> None:
        """Have another B, of the same width, if labels are reduced."""
        if self.reduced and basis is not None:
            self.state = self.state._replace(B=basis[0], rows=basis[1])

    def reset(
        self,
        s: Vector,
        rho: float,
        *,
        shift: Vector | None = None,
        factor: Vector | None = None,
        counts: npt.NDArray[np.int64] | None = None,
        basis: Basis | None = None,
        plain: bool = False,
    ) -> None:
        """Start again, after a fit of P.

        Parameters
        ----------
        s : array of shape (p,)
            Sums of squares of the inputs on which P was fitted, see :func:`sums_of_squares`.
        rho : float
            The ridge of P, above 0.  Unless inputs are plain, at least 10⁻³ times the mean of s is
            used: a direction that P hardly constrains must not be moved by a single item.
        shift, factor : arrays of shape (p,), optional
            Dense inputs are used as (x − shift)·factor; P sees them so.
        counts : int array of shape (q,), optional
            How many examples each label had in the fit.
        basis : pair of float32 arrays of shapes (q, r) and (r, q), optional
            Of reduced labels: B and Bᵀ.
        plain : bool
            Whether inputs are the rows as they are, which are the same features after each fit.
        """
        p, q = len(s), self.n_labels
        if not plain:
            rho = max(rho, 1e-3 * float(np.mean(s)))
        check_number("rho", rho, least=np.finfo(float).tiny)
        fresh = young_labels(np.zeros(q, np.int64) if counts is None else counts, basis)
        B, rows = (_NO_BASIS, _NO_BASIS) if basis is None else basis
        young = None
        if basis is None and not self.reduced:
            young = self._young(p, fresh) if plain else None
        elif basis is not None:
            q = B.shape[1]
        self.state = FastState(
            np.zeros((0 if self.sparse else p, q), np.float32),
            np.zeros(0 if self.sparse else p),
            np.array(s, np.float64),
            np.full(4 if self.sparse else 0, EMPTY, np.int32),
            np.zeros(4 if self.sparse else 0, np.int32),
            np.zeros(p if not self.sparse else 0) if shift is None else np.array(shift, np.float64),
            np.ones(p if not self.sparse else 0)
            if factor is None
            else np.array(factor, np.float64),
            np.zeros(2, np.int64),
            np.array([rho]),
            fresh,
            B,
            rows,
        )
        self._shared = False
        if young is not None and not self.sparse:
            self.state.D[:] = young[1]
        elif young is not None:
            features, D = young
            self.make_room(len(features))
            self.state.D[: len(features)] = D
            self.state.counters[USED] = len(features)
            insert_features(self.state.keys, self.state.slots, features)

    def _young(
        self, p: int, fresh: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]] | None:
        """Return what plain rows have taught about labels that P still says nothing about.

        It outlives the fit: P has hardly seen them, and would forget them.  Of other inputs it
        does not, since these may be other features after each fit.
        """
        if len(self.state.s) != p or not fresh.any():
            return None
        if not self.sparse:
            own = np.where(fresh > 0, self.state.D, np.float32(0))
            return np.arange(p, dtype=np.int32), own
        features, rows = self._touched()
        D = np.where(fresh > 0, self.state.D[rows], np.float32(0))
        some = D.any(axis=1)
        return (features[some], D[some]) if some.any() else None

    def __call__(self, inputs: Inputs, Z: Vector) -> Vector:
        """Return z⁺, (m, q), of inputs with regression z = ``Z``."""
        out = Z.copy()
        if self.active:
            pass_inputs(self.struct, self.rows_of(inputs), out, None, None)
        return out

    def learn(
        self,
        inputs: Inputs,
        Z: Vector,
        Y: npt.NDArray[np.uint8],
        known: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Take a step for each of m inputs in order, with regression ``Z`` and labels ``Y`` (m, q).

        Only those that are known, if ``known`` says so (m, q), are learnt.
        """
        if not self.active:
            return
        self.own()
        for first in range(0, len(Z), TOGETHER):
            part = slice(first, min(first + TOGETHER, len(Z)))
            some = inputs._replace(dense=inputs.dense[part])
            if self.sparse:
                some = inputs._replace(indptr=inputs.indptr[part.start : part.stop + 1])
                self.see_to_room(int(some.indptr[-1] - some.indptr[0]))
            sure = None if known is None else known[part]
            pass_inputs(self.struct, self.rows_of(some), Z[part].copy(), Y[part], sure)

    def correct(self, inputs: Inputs, Z: Vector, added: npt.NDArray[np.bool_]) -> None:
        """Take the step of a correction: for the labels that it adds (q,), and for no other.

        Steps for the labels that were there or were taken away, too, do harm to other items: see
        ``docs/math.md``.
        """
        self.learn(inputs, Z, added.astype(np.uint8)[None], added[None])

    def own(self) -> None:
        """Make sure that no snapshot sees what is written next (sparse rows see to themselves)."""
        if self._shared:
            self.state = self.state._replace(D=self.state.D.copy(), added=self.state.added.copy())
            self._shared = False

    def rows_of(self, inputs: Inputs) -> Any:
        """Return inputs as the compiled loops take them: CSR arrays, or a dense array."""
        return tuple(inputs[:3]) if self.sparse else inputs.dense

    def see_to_room(self, n: int) -> None:
        """Make room for ``n`` more rows unless there is."""
        need = int(self.state.counters[USED]) + n
        if need > len(self.state.D) or 2 * need > len(self.state.keys):
            self.make_room(n)

    def make_room(self, n: int) -> None:
        """Make room for at least ``n`` more rows, and leave behind those that were copied."""
        state = self.state
        features, rows = self._touched()
        room = len(rows) + max(n, len(rows) // 2 + 64)
        size = 1 << int(2 * room - 1).bit_length()
        D = np.zeros((room, state.D.shape[1]), np.float32)
        D[: len(rows)] = state.D[rows]
        added = np.zeros(room)
        added[: len(rows)] = state.added[rows]
        self.state = state._replace(
            D=D,
            added=added,
            keys=np.full(size, EMPTY, np.int32),
            slots=np.zeros(size, np.int32),
            counters=np.array([len(rows), 0]),
        )
        insert_features(self.state.keys, self.state.slots, features)

    def _touched(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return the features that have a row, in order, and their rows."""
        places = np.flatnonzero(self.state.keys != EMPTY)
        places = places[np.argsort(self.state.keys[places])]
        return self.state.keys[places], self.state.slots[places]

    def snapshot(self) -> FastMap:
        """Return a map that stays as this one is now; it is to be read only.

        Costs a copy of the table, not of the rows; rows are copied when they are next written.
        """
        other = FastMap(sparse=self.sparse)
        other.state = self.state._replace(
            keys=self.state.keys.copy(),
            slots=self.state.slots.copy(),
            counters=self.state.counters.copy(),
        )
        self.state.counters[FROZEN] = self.state.counters[USED]
        self._shared = not self.sparse
        return other

    def dump(self) -> dict[str, Any]:
        """Return the state as plain values; sparse rows in the order of their features."""
        state = self.state
        features, rows = self._touched()
        seen = np.flatnonzero(state.s).astype(np.int32)
        return {
            "D": (state.D[rows] if self.sparse else state.D).copy(),
            "added": (state.added[rows] if self.sparse else state.added).copy(),
            "features": features,
            "width": len(state.s),
            "seen": seen,
            "s": state.s[seen],
            "shift": state.shift.copy(),
            "factor": state.factor.copy(),
            "rho": float(state.rho[0]),
            "fresh": state.fresh.copy(),
        }

    @classmethod
    def load(
        cls,
        state: Any,
        q: int,
        *,
        sparse: bool,
        width: int,
        basis: Basis | None = None,
    ) -> FastMap:
        """Return what :meth:`dump` described, for ``q`` labels and inputs of ``width`` features.

        ``width`` is 0 before the first fit; for ``basis`` see :meth:`reset`.
        """
        expect_keys(
            "the fast map", state, "D", "added", "features", "width", "seen", "s", "shift",
            "factor", "rho", "fresh",
        )  # fmt: skip
        p = state["width"]
        if type(p) is not int or p != width:
            raise ValueError(f"the fast map must have {width} features, got {p!r}")
        fresh = expect("fresh", state["fresh"], np.uint8, (q,))
        if (fresh > (FRESH if basis is None else BLIND)).any():
            raise ValueError("fresh must hold 0 and 1 only, or 2 of reduced labels")
        seen = _features("seen", state["seen"], None, p)
        s = np.zeros(p)
        s[seen] = expect("s", state["s"], np.float64, (len(seen),), least=0, most=1e200)
        made = cls(sparse=sparse)
        made.grow(q)
        check_number("rho", state["rho"], least=SMALLEST_RIDGE if p else 0, most=1e300 if p else 0)
        most, shape = LARGEST_VALUE, (0 if sparse else p,)
        shift = expect("shift", state["shift"], np.float64, shape, least=-most, most=most)
        factor = expect("factor", state["factor"], np.float64, shape, least=0, most=1e60)
        most, n = LARGEST_WEIGHT, None if sparse and p else p
        r = q if basis is None or not p else basis[0].shape[1]
        D = expect("D", state["D"], np.float32, (n, r), least=-most, most=most)
        added = expect("added", state["added"], np.float64, (len(D),), least=0, most=1e200)
        features = _features("features", state["features"], len(D) if sparse else 0, p)
        if p:
            made.reset(s, state["rho"], shift=shift, factor=factor, basis=basis)
            made.state.rho[0] = state["rho"]
        if p and sparse:
            made.make_room(len(features))
            made.state.D[: len(features)] = D
            made.state.added[: len(features)] = added
            made.state.counters[USED] = len(features)
            insert_features(made.state.keys, made.state.slots, features)
        elif p:
            made.state.D[:], made.state.added[:] = D, added
        made.state.fresh[:] = fresh
        return made


def _features(name: str, array: Any, n: int | None, p: int) -> npt.NDArray[np.int32]:
    features: npt.NDArray[np.int32] = expect(name, array, np.int32, (n,))
    if (np.diff(features, prepend=-1) <= 0).any() or features.max(initial=0) >= max(p, 1):
        raise ValueError(f"{name} must rise within 0 to {p - 1}")
    return features
