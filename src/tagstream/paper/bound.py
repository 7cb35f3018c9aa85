"""The quantities of the paper's loss bound, computed along runs of its algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream import projection
from tagstream.labels.read import Labels
from tagstream.metric import rounds
from tagstream.paper.plan import INIT, STEP_MAX, STEP_MIN
from tagstream.store.sums import LocalExamples

__all__ = ["bound"]

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Rule:
    """How V moves in a run of the bound: start, step, update, bounds of the step."""

    name: str
    normal: bool
    step: str
    update: str
    most: float


_RULES = (
    _Rule("paper", True, "cubic", "inverse", STEP_MAX),
    _Rule("proof", True, "cubic", "linear", STEP_MAX),
    _Rule("default step", False, "exact", "inverse", 1e-3),
    _Rule("no learning", False, "exact", "inverse", 0.0),
)


def bound(X: Any, Y: npt.NDArray[np.uint8], model: Any) -> dict[str, Any]:
    """Play the paper's rounds: P fixed by the first block, neighbours in the input space.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, p)
    Y : array of shape (n, q)
    model : OML
        A new learner, whose own losses over the same stream are put beside.
    """
    order = np.random.default_rng(0).permutation(len(Y))
    X, Y = X[order].astype(np.float32), Y[order]
    n, q = Y.shape
    n0 = round(INIT * n)
    P = projection.first_block(LocalExamples.of(X[:n0], Labels(Y[:n0], None)))
    Z, near = P(X), _nearest_before(X, n0)
    rounds = [(Z[t], Y[t], Y[near[t - n0]]) for t in range(n0, n)]
    d = max(1, q // 2)
    V_normal = np.random.default_rng(0).standard_normal((q, d))
    squares = X.multiply(X).sum(axis=1) if sp.issparse(X) else (X.astype(np.float64) ** 2).sum(1)
    return {
        "T": len(rounds),
        "q": q,
        "n_init": n0,
        "norm_P": float((P.P.astype(np.float64) ** 2).sum()),
        "r": float(np.max(squares)),
        "m": STEP_MIN,
        **_smallest_singular_value(rounds[:: max(1, len(rounds) // 25)]),
        "runs": [asdict(rule) | _played(rule, V_normal, q, rounds) for rule in _RULES],
        "default": _default_losses(model, X, Y),
    }


def _nearest_before(X: Any, first: int) -> npt.NDArray[np.int64]:
    """Position of the nearest earlier row, the older of equals, of each row from ``first`` on."""
    near = np.empty(X.shape[0] - first, np.int64)
    X = X.astype(np.float64)
    squares = np.asarray(X.multiply(X).sum(axis=1)).ravel() if sp.issparse(X) else (X**2).sum(1)
    for start in range(first, X.shape[0], 256):
        stop = min(start + 256, X.shape[0])
        inner = X[start:stop] @ X[:stop].T
        gap = squares[:stop] - 2 * (inner.toarray() if sp.issparse(inner) else inner)
        gap[np.arange(stop)[None] >= np.arange(start, stop)[:, None]] = np.inf
        near[start - first : stop - first] = np.argmin(gap, axis=1)
    return near


def _smallest_singular_value(rounds: Sequence[Any]) -> dict[str, Any]:
    """Return the theorem's c, the largest found in some rounds, and the rank of A there.

    The paper replaces the eigenvalues of A that are not positive by its smallest non-negative
    singular value, giving Â; c is the smallest singular value of Â^{1/2}.
    """
    c, rank, seen = 0.0, 0, 0
    for z, y, y_nn in rounds:
        u, w = z - y_nn, z - y
        values = np.linalg.eigvalsh(np.outer(u, u) - np.outer(w, w))
        tiny = 1e-10 * (u @ u + w @ w)  # what rounding may leave of the difference
        singular = np.where(np.abs(values) > tiny, np.abs(values), 0.0)
        if not singular.any():
            continue
        repaired = np.where(values > tiny, values, singular.min())
        c = max(c, float(np.sqrt(repaired.min())))
        rank = max(rank, int(np.count_nonzero(singular)))
        seen += 1
    return {"c": c, "rank_A": rank, "rounds_decomposed": seen}


def _played(rule: _Rule, V_normal: Vector, q: int, rounds: Sequence[Any]) -> dict[str, Any]:
    """Play all rounds twice: to the end, and again beside the U that was found there."""
    V_1 = V_normal if rule.normal else np.eye(q)
    losses, V_end = [], V_1
    for z, y, y_nn in rounds:
        V_end, what = _move(rule, V_end, z, y, y_nn)
        losses.append(what.loss)
    n_active = n_negative = 0
    holds = {"first": 0, "last": 0}
    V = V_1
    for z, y, y_nn in rounds:
        V_next, what = _move(rule, V, z, y, y_nn)
        if what.lam > 0:
            n_active += 1
            u, w = z - y_nn, z - y
            Vu, Vw = V.T @ u, V.T @ w
            VAV = Vu @ Vu - Vw @ Vw
            AV = (u @ u) * (Vu @ Vu) - 2 * (u @ w) * (Vu @ Vw) + (w @ w) * (Vw @ Vw)
            n_negative += VAV < 0
            for name, U in (("first", V_1), ("last", V_end)):
                UAV = (U.T @ u) @ Vu - (U.T @ w) @ Vw
                # Lemma 2, divided by λ_t > 0, its last term being 0 with c; the square is in the
                # proof and missing in the statement.
                holds[name] += 4 * UAV - 4 * what.lam * AV >= 5 * VAV
        V = V_next
    total = np.cumsum(losses)
    at = np.unique(np.linspace(0, len(total) - 1, 60).astype(int))
    return {
        "d": V_1.shape[1],
        "cumulative_loss": float(total[-1]),
        "curve": {"t": (at + 1).tolist(), "loss": np.round(total[at], 4).tolist()},
        "n_active": n_active,
        "n_lemma_first": int(holds["first"]),
        "n_lemma_last": int(holds["last"]),
        "n_negative": int(n_negative),
        "distance_last": float(((V_end - V_1) ** 2).sum()),
        "norm_first": float((V_1**2).sum()),
        "largest_last": float(np.abs(V_end).max()),
    }


def _move(rule: _Rule, V: Vector, z: Any, y: Any, y_nn: Any) -> tuple[Vector, rounds.Round]:
    return rounds.play_round(
        *(V, z, y, y_nn),
        step=rule.step,
        update=rule.update,
        step_min=min(STEP_MIN, rule.most),
        step_max=rule.most,
    )


def _default_losses(model: Any, X: Any, Y: Any) -> dict[str, Any]:
    """Cumulative loss of OML() itself, whose P keeps learning, over the same stream."""
    cuts = np.unique(np.linspace(0, len(Y), 61).astype(int))
    curve: dict[str, list[float]] = {"t": [], "loss": []}
    for start, stop in pairwise(cuts):
        model.partial_fit(X[start:stop], Y[start:stop])
        curve["t"].append(int(stop))
        curve["loss"].append(round(model.cumulative_loss_, 4))
    return {
        "curve": curve,
        "cumulative_loss": model.cumulative_loss_,
        "n_updates": model.n_updates_,
        "n_degenerate": model.n_degenerate_,
    }
