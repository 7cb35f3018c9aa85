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
from tagstream.core.compilation import compiled, inlined, inner
from tagstream.core.inputs import Inputs, Maybe, inputs_of
from tagstream.core.products import add_scaled_rows
from tagstream.core.simd import lines

__all__ = [
    "BLIND",
    "FEW",
    "RATE",
    "Basis",
    "FastMap",
    "FastState",
    "sums_of_squares",
    "young_labels",
]

RATE = 8.0  # η
LARGEST_WEIGHT = 1e30  # of D, in single precision
SMALLEST_RIDGE = 1e-12
FEW = 10  # examples at the last fit below which P says nothing about a label
UNSEEN = 0.02  # residual of one of many labels that the head, which clips z⁺, does not see
FRESH, BLIND = 1, 2  # a label with so few, and one of which a reduced P knows nothing at all

Vector = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Table = npt.NDArray[np.int32]

# Of reduced labels, B (q, r) and Bᵀ (r, q).
Basis = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
_NO_BASIS = np.empty((0, 0), np.float32)

# Columns of the counters: rows of D in use, and rows that a snapshot shares.
USED, FROZEN = 0, 1
EMPTY = -1
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


@inner
def _find(keys: Table, feature: Any) -> int:
    """Return the place in the table where ``feature`` is, or belongs."""
    mask = keys.shape[0] - 1
    place = (feature * 2654435761 >> 7) & mask
    while keys[place] != EMPTY and keys[place] != feature:
        place = (place + 1) & mask
    return int(place)


@inner
def add_correction(
    D: Singles,
    keys: Maybe,
    slots: Maybe,
    shift: Maybe,
    factor: Maybe,
    rows: Maybe,
    indptr: Maybe,
    indices: Maybe,
    data: Maybe,
    dense: Maybe,
    i: int,
    coordinates: Maybe,
    own: Maybe,
    gain: Vector,
    z: Vector,
) -> None:
    """Add Dᵀx of input ``i``, or B(Dᵀx), to ``z`` (q,), feature by feature.

    ``coordinates`` (r,) of reduced labels, ``own`` and ``gain`` are scratch space.
    """
    total = z
    if rows is not None:
        total = coordinates
        for k in range(D.shape[1]):
            total[k] = 0.0
    n = D.shape[0]
    if dense is not None:
        for e in range(n):
            gain[e] = (np.float64(dense[i, e]) - shift[e]) * factor[e]
    if indptr is not None:
        n = 0
        for e in range(indptr[i], indptr[i + 1]):
            place = _find(keys, np.int64(indices[e]))
            if keys[place] != EMPTY:
                own[n], gain[n] = slots[place], data[e]
                n += 1
    add_scaled_rows(total, D, own, gain, 0, n)
    if rows is not None:
        add_scaled_rows(z, rows, None, total, 0, D.shape[1])


@inner
def _own_row(
    D: Singles,
    added: Vector,
    keys: Table,
    slots: Table,
    counters: npt.NDArray[np.int64],
    feature: Any,
    place: int,
) -> int:
    """Return a new row for ``feature``, which is, or belongs, at ``place`` in the table.

    It is empty, or a copy of one that is shared.  Most features have a row of their own already.
    """
    new = int(counters[USED])
    if keys[place] == EMPTY:
        keys[place] = feature
        for j in range(D.shape[1]):  # a loop: numba takes seconds over a slice
            D[new, j] = 0.0
        added[new] = 0.0
    else:
        row = int(slots[place])
        for j in range(D.shape[1]):
            D[new, j] = D[row, j]
        added[new] = added[row]
    slots[place] = new
    counters[USED] = new + 1
    return new


@inner
def step(
    D: Singles,
    added: Vector,
    s: Vector,
    keys: Maybe,
    slots: Maybe,
    counters: Maybe,
    shift: Maybe,
    factor: Maybe,
    rho: Vector,
    B: Maybe,
    indptr: Maybe,
    indices: Maybe,
    data: Maybe,
    dense: Maybe,
    i: int,
    coordinates: Maybe,
    seen: Maybe,
    own: Maybe,
    gain: Vector,
    r: Vector,
) -> None:
    """Learn input ``i``, whose residuals are ``r`` (q,), 0 for what is not to be learnt.

    ``r`` is used up; of reduced labels ``coordinates`` (r,) and ``seen`` (q,), and ``own`` and
    ``gain``, with an entry for each feature of the input, or of all
    inputs if they are sparse, are scratch space.
    """
    move = r
    if B is not None:
        move = coordinates
        for k in range(D.shape[1]):
            move[k] = 0.0
        n_seen = 0
        for j in range(B.shape[0]):
            if abs(r[j]) > UNSEEN:
                seen[n_seen], r[n_seen] = j, r[j]
                n_seen += 1
        add_scaled_rows(move, B, seen, r, 0, n_seen)
    n = D.shape[0]
    if indptr is not None:
        n = indptr[i + 1] - indptr[i]
    h = 0.0
    for e in range(n):
        feature: Any = e
        row: Any = e
        x = 0.0
        if dense is not None:
            x = (np.float64(dense[i, e]) - shift[e]) * factor[e]
        if indptr is not None:
            feature, x = np.int64(indices[indptr[i] + e]), np.float64(data[indptr[i] + e])
            place = _find(keys, feature)
            row = np.int64(slots[place])
            if keys[place] == EMPTY or row < counters[FROZEN]:
                row = _own_row(D, added, keys, slots, counters, feature, place)
            own[e] = row
        part = x / (rho[0] + s[feature] + added[row])
        gain[e] = part
        h += x * part
        added[row] += x * x
    share = RATE / (1.0 + RATE * h)
    for j in range(D.shape[1]):
        move[j] *= share
    _move_rows(D, own, gain, n, move)


@inner
def _move_rows(D: Singles, rows: Maybe, gain: Vector, n: int, move: Vector) -> None:
    """Add gain_e ``move`` to the row of D of each of n features, ``rows`` or the first ones."""
    m = D.shape[1]
    for b in range(0, m, 2 * lines.WIDTH):
        n0, n1, b1 = m - b, m - b - lines.WIDTH, b + lines.WIDTH
        move0, move1 = lines.load(move, b, n0), lines.load(move, b1, n1)
        for e in range(n):
            row = np.int64(e)
            if rows is not None:
                row = np.int64(rows[e])
            part, at = lines.spread(gain[e]), row * m
            moved0 = lines.add(lines.load(D, at + b, n0), lines.multiply(part, move0))
            moved1 = lines.add(lines.load(D, at + b1, n1), lines.multiply(part, move1))
            # What is left of a quotient of extremes is no sum.
            lines.store_small(D, at + b, n0, moved0, LARGEST_WEIGHT)
            lines.store_small(D, at + b1, n1, moved1, LARGEST_WEIGHT)


@inlined
def residual(y: int, z: float) -> float:
    """Return y − z, but 0 where z is beyond y already."""
    return 0.0 if (y == 1 and z > 1.0) or (y == 0 and z < 0.0) else y - z


@compiled
def _pass_items(
    D: Singles,
    added: Vector,
    s: Vector,
    keys: Maybe,
    slots: Maybe,
    counters: Maybe,
    shift: Maybe,
    factor: Maybe,
    rho: Vector,
    B: Maybe,
    rows: Maybe,
    indptr: Maybe,
    indices: Maybe,
    data: Maybe,
    dense: Maybe,
    coordinates: Maybe,
    seen: Maybe,
    own: Maybe,
    gain: Vector,
    Z: Vector,
    Y: Maybe,
    known: Maybe,
) -> None:
    """Make Z (m, q) z⁺ and, if there are labels, learn each item; Z is then used up."""
    for i in range(Z.shape[0]):
        z = Z[i]
        add_correction(
            D, keys, slots, shift, factor, rows, indptr, indices, data, dense, i, coordinates, own,
            gain, z,
        )  # fmt: skip
        if Y is not None:
            for j in range(z.shape[0]):
                z[j] = residual(Y[i, j], z[j])
                if known is not None and not known[i, j]:
                    z[j] = 0.0
            step(
                D, added, s, keys, slots, counters, shift, factor, rho, B, indptr, indices, data,
                dense, i, coordinates, seen, own, gain, z,
            )  # fmt: skip


@compiled
def _insert_all(keys: Table, slots: Table, features: Table) -> None:
    for row in range(features.shape[0]):
        place = _find(keys, np.int64(features[row]))
        keys[place] = features[row]
        slots[place] = row


@compiled
def _sum_squares(inputs: Inputs, shift: Vector, factor: Vector, s: Vector) -> None:
    if inputs.indptr.shape[0]:
        for e in range(inputs.indices.shape[0]):
            s[inputs.indices[e]] += np.float64(inputs.data[e]) ** 2
    else:
        for i in range(inputs.dense.shape[0]):
            for k in range(s.shape[0]):
                s[k] += ((np.float64(inputs.dense[i, k]) - shift[k]) * factor[k]) ** 2


def sums_of_squares(
    rows: Rows, shift: Vector | None = None, factor: Vector | None = None
) -> Vector:
    """Return s_i = Σ x_i² over the rows, added one after another, an array of shape (p,)."""
    p = rows.shape[1]
    s = np.zeros(p)
    _sum_squares(
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
            _insert_all(self.state.keys, self.state.slots, features)

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
            arrays: Any = (*self.arrays(inputs), out, None, None)
            _pass_items(*arrays)
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
            arrays: Any = (*self.arrays(some), Z[part].copy(), Y[part], sure)
            _pass_items(*arrays)

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

    def arrays(self, inputs: Inputs) -> tuple[Any, ...]:
        """Return state, inputs and scratch space as the compiled loops take them.

        None stands for what there is not: a table and CSR rows of dense inputs, what dense inputs
        have of sparse ones, and a basis unless labels are reduced.
        """
        D, added, s, keys, slots, shift, factor, counters, rho, _, B, rows = self.state
        basis = (B, rows) if self.reduced else (None, None)
        scratch: tuple[Any, ...] = (None, None)
        if self.reduced:
            scratch = np.empty(D.shape[1]), np.empty(self.n_labels, np.int64)
        if self.sparse:
            n = len(inputs.indices)
            return (
                D, added, s, keys, slots, counters, None, None, rho, *basis, *inputs[:3], None,
                *scratch, np.empty(n, np.int64), np.empty(n),
            )  # fmt: skip
        return (
            D, added, s, None, None, None, shift, factor, rho, *basis, None, None, None,
            inputs.dense, *scratch, None, np.empty(len(D)),
        )  # fmt: skip

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
        _insert_all(self.state.keys, self.state.slots, features)

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
            _insert_all(made.state.keys, made.state.slots, features)
        elif p:
            made.state.D[:], made.state.added[:] = D, added
        made.state.fresh[:] = fresh
        return made


def _features(name: str, array: Any, n: int | None, p: int) -> npt.NDArray[np.int32]:
    features: npt.NDArray[np.int32] = expect(name, array, np.int32, (n,))
    if (np.diff(features, prepend=-1) <= 0).any() or features.max(initial=0) >= max(p, 1):
        raise ValueError(f"{name} must rise within 0 to {p - 1}")
    return features
