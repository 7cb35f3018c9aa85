"""The label metric V: its loss, its steps, and one round of learning.

Symbols of a round (vectors in label space ℝ^q, as in the paper):

    z          Pᵀx_t, the item in label space
    y_t, y     its labels, and those of its nearest stored neighbour
    u, w       z − y and z − y_t
    A          uuᵀ − wwᵀ, of rank two
    Δ          ‖y_t − y‖₁, the margin
    V          (q, d); distances are measured between Vᵀz
    loss       l_t = max(0, Δ − tr(VᵀAV)),  tr(VᵀAV) = ‖Vᵀu‖² − ‖Vᵀw‖²

The round solves  min ½‖V' − V‖²  subject to  tr(V'ᵀAV') ≥ Δ.  Where the Lagrangian is stationary,
V(λ) = (I − 2λA)⁻¹V.  Since A has only two non-zero eigenvalues, μ₊ > 0 > μ₋ with unit
eigenvectors v₊, v₋ in the span of u and w, everything about the round is in five numbers, μ±,
α± = ‖Vᵀv±‖² and Δ:

    tr(VᵀAV)        = μ₊α₊ + μ₋α₋
    tr(V(λ)ᵀAV(λ))  = μ₊α₊/(1 − 2λμ₊)² + μ₋α₋/(1 − 2λμ₋)²
    V(λ)            = V + Σ± 2λμ±/(1 − 2λμ±) v± v±ᵀV             (update "inverse")
    V̄(λ)            = V + Σ± 2λμ± v± v±ᵀV                        (update "linear", Eq. 6)

so a round costs O(qd) and no q × q matrix is ever formed.  `docs/math.md` has the derivation and
the paper's errata, which the comments below cite as E1 to E6.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.kernels import compiled

__all__ = ["STEPS", "UPDATES", "Round", "cubic_step", "exact_step", "play_round", "run_rounds"]

STEPS = ("exact", "cubic", "printed")
UPDATES = ("inverse", "linear")

# Below this share of its natural size a quantity is taken to be rounding error.
TINY = 1e-12

Vector = npt.NDArray[np.float64]


class Round(NamedTuple):
    """What one round did: its loss before the step, the step λ, and whether V could move."""

    loss: float
    lam: float
    degenerate: bool


@compiled
def exact_step(mu: float, alpha: float, nu: float, beta: float, delta: float, most: float) -> float:
    """Return min(λ*, most), λ* the root of μα/(1 − 2λμ)² − νβ/(1 + 2λν)² = Δ on (0, 1/(2μ)).

    Here μ = μ₊, α = α₊, ν = −μ₋, β = α₋.  The left side rises strictly to infinity, and at λ = 0
    it is below Δ (the loss is positive), so the root exists and is the only one.  In s = 2λμ the
    root lies in (0, s_hi], s_hi = 1 − √(μα/(Δ + νβ)), where the first term alone reaches Δ + νβ.
    """
    ratio = nu / mu
    cap = 2.0 * most * mu
    hi = 1.0 - np.sqrt(mu * alpha / (delta + nu * beta))
    if cap < hi:
        gap = mu * alpha / (1.0 - cap) ** 2 - nu * beta / (1.0 + cap * ratio) ** 2 - delta
        if gap <= 0.0:
            return most
    lo = 0.0
    s = hi
    for _ in range(200):
        near, far = 1.0 - s, 1.0 + s * ratio
        gap = mu * alpha / near**2 - nu * beta / far**2 - delta
        slope = 2.0 * mu * alpha / near**3 + 2.0 * nu * beta * ratio / far**3
        if gap > 0.0:
            hi = s
        else:
            lo = s
        new = s - gap / slope
        if not lo < new < hi:  # Newton left the bracket: bisect
            new = 0.5 * (lo + hi)
        if new == s or hi - lo <= 1e-16 * hi:
            break
        s = new
    return min(s / (2.0 * mu), most)


@compiled
def cubic_step(a: float, b: float, c: float, least: float, most: float) -> float:
    """Return the λ of Eq. (7): the maximum of aλ³ + bλ² + cλ on λ > 0, kept in [least, most].

    Where the cubic rises for ever there is no maximum and λ is ``most``.
    """
    # f'(λ) = 3aλ² + 2bλ + c with c > 0: its first positive root is where f stops rising.
    square = b * b - 3.0 * a * c
    if a == 0.0:
        beta = -c / (2.0 * b) if b < 0.0 else np.inf
    elif square < 0.0:
        beta = np.inf
    else:
        root = np.sqrt(square)
        # c / (−b + √…) is (−b − √…)/(3a) without its cancellation.
        beta = c / (-b + root) if -b + root > 0.0 else np.inf
    return min(max(beta, least), most)


@compiled
def _round(
    z: Vector,
    y: npt.NDArray[np.uint8],
    y_nn: npt.NDArray[np.uint8],
    known: npt.NDArray[np.bool_],
    V: Vector,
    step: int,
    linear: bool,
    step_min: float,
    step_max: float,
    work: Vector,
) -> tuple[float, float, bool]:
    """Play one round in place; return loss, step and whether it was degenerate.

    ``known`` is of length 0, or says which labels are known of both items: the others are left
    out of u, w and Δ, so that they pull nothing.  ``work`` is (4, d) of scratch space.
    """
    q, d = V.shape
    masked = known.shape[0] > 0
    delta = 0.0
    a = b = c = 0.0  # uᵀu, uᵀw, wᵀw
    for i in range(q):
        if masked and not known[i]:
            continue
        u_i = z[i] - y_nn[i]
        w_i = z[i] - y[i]
        a += u_i * u_i
        b += u_i * w_i
        c += w_i * w_i
        if y[i] != y_nn[i]:
            delta += 1.0
    if delta == 0.0:
        return 0.0, 0.0, True
    ru, rw, pp, pm = work[0], work[1], work[2], work[3]
    ru[:] = 0.0
    rw[:] = 0.0
    for i in range(q):
        if masked and not known[i]:
            continue
        u_i = z[i] - y_nn[i]
        for j in range(d):
            ru[j] += u_i * V[i, j]
        if y[i] != y_nn[i]:  # Vᵀw = Vᵀu − Vᵀ(u − w), and u − w is sparse
            e_i = np.float64(y[i]) - np.float64(y_nn[i])
            for j in range(d):
                rw[j] += e_i * V[i, j]
    kuu = kww = 0.0
    for j in range(d):
        rw[j] = ru[j] - rw[j]
        kuu += ru[j] * ru[j]
        kww += rw[j] * rw[j]
    loss = delta - (kuu - kww)
    if not loss > 0.0:
        return 0.0, 0.0, False
    # Eigenvalues of A: μ₊ + μ₋ = a − c, μ₊μ₋ = −(ac − b²); the smaller one by division.
    area = a * c - b * b
    if area <= TINY * a * c:
        return loss, 0.0, True
    trace = a - c
    spread = np.sqrt(trace * trace + 4.0 * area)
    if trace >= 0.0:
        mu = 0.5 * (trace + spread)
        nu = area / mu
    else:
        nu = 0.5 * (spread - trace)
        mu = area / nu
    # v₊ ∝ (c + μ₊)u − b w and v₋ ∝ −b u + (a + ν)w, each from the row of A without cancellation.
    up = c + mu
    wm = a + nu
    np_ = np.sqrt(up * up * a - 2.0 * up * b * b + b * b * c)
    nm = np.sqrt(b * b * a - 2.0 * wm * b * b + wm * wm * c)
    alpha = beta = 0.0
    for j in range(d):
        pp[j] = (up * ru[j] - b * rw[j]) / np_
        pm[j] = (wm * rw[j] - b * ru[j]) / nm
        alpha += pp[j] * pp[j]
        beta += pm[j] * pm[j]
    if not (alpha * mu > TINY * (kuu + kww) and alpha < np.inf):
        return loss, 0.0, True
    if step == 0:
        lam = exact_step(mu, alpha, nu, beta, delta, step_max)
    elif step == 1:
        # Erratum E2: −4 tr(VᵀA³V), −2‖AV‖², l_t.
        cube = mu**3 * alpha - nu**3 * beta
        lam = cubic_step(
            -4.0 * cube, -2.0 * (mu * mu * alpha + nu * nu * beta), loss, step_min, step_max
        )
    else:
        # As printed, with AV = v₊μ₊p₊ᵀ + v₋μ₋p₋ᵀ and the coordinates of u and w on v±.
        u_p, u_m = (up * a - b * b) / np_, (wm * b - b * a) / nm
        w_p, w_m = (up * b - b * c) / np_, (wm * c - b * b) / nm
        uau = uqau = waw = wqaw = 0.0
        for j in range(d):
            ua = u_p * mu * pp[j] - u_m * nu * pm[j]
            wa = w_p * mu * pp[j] - w_m * nu * pm[j]
            uau += ua * ua
            waw += wa * wa
            uqau += ru[j] * ua
            wqaw += rw[j] * wa
        norm = mu * mu * alpha + nu * nu * beta
        lam = cubic_step(
            4.0 * waw - uau, 2.0 * (norm - 2.0 * wqaw + 2.0 * uqau), delta, step_min, step_max
        )
    if linear:
        fp, fm = 2.0 * lam * mu, -2.0 * lam * nu
    else:
        fp, fm = 2.0 * lam * mu / (1.0 - 2.0 * lam * mu), -2.0 * lam * nu / (1.0 + 2.0 * lam * nu)
    # Without the cap of the exact step nothing keeps V finite (Erratum E3).
    if not (abs(fp) < 1e12 and fp * fp * alpha + kuu + kww < 1e200):
        return loss, 0.0, True
    fp /= np_
    fm /= nm
    for i in range(q):
        if masked and not known[i]:
            continue
        u_i = z[i] - y_nn[i]
        w_i = z[i] - y[i]
        left = fp * (up * u_i - b * w_i)
        right = fm * (wm * w_i - b * u_i)
        for j in range(d):
            V[i, j] += left * pp[j] + right * pm[j]
    return loss, lam, False


@compiled
def run_rounds(
    Z: Vector,
    Y: npt.NDArray[np.uint8],
    Y_nn: npt.NDArray[np.uint8],
    known: npt.NDArray[np.bool_],
    lonely: npt.NDArray[np.bool_],
    V: Vector,
    step: int,
    linear: bool,
    step_min: float,
    step_max: float,
    losses: Vector,
    steps: Vector,
    degenerate: npt.NDArray[np.bool_],
) -> None:
    """Play the rounds of a block in order, changing V (q, d) in place.

    Z, Y and Y_nn are (n, q); ``known`` is (n, q), or (0, 0) when all is known; ``lonely`` marks
    items without a neighbour, which have no round.  The last three arrays, (n,), are results.
    """
    work = np.empty((4, V.shape[1]))
    everything = np.empty(0, np.bool_)
    for t in range(Z.shape[0]):
        if lonely[t]:
            losses[t], steps[t], degenerate[t] = 0.0, 0.0, False
            continue
        mask = known[t] if known.shape[0] else everything
        losses[t], steps[t], degenerate[t] = _round(
            Z[t], Y[t], Y_nn[t], mask, V, step, linear, step_min, step_max, work
        )


def play_round(
    V: Vector,
    z: Vector,
    y: npt.NDArray[np.uint8],
    y_nn: npt.NDArray[np.uint8],
    *,
    step: str = "exact",
    update: str = "inverse",
    step_min: float = 1e-5,
    step_max: float = np.inf,
) -> tuple[Vector, Round]:
    """Return the metric after one round, and what happened; V itself is left alone.

    Examples
    --------
    The item lies nearer to its neighbour's labels than to its own; one step mends that.

    >>> import numpy as np
    >>> V, z = np.eye(2), np.array([0.2, 0.7])
    >>> y, y_nn = np.array([1, 0], np.uint8), np.array([0, 1], np.uint8)
    >>> V_new, what = play_round(V, z, y, y_nn)
    >>> round(what.loss, 6), round(what.lam, 6), what.degenerate
    (3.0, 46.9422, False)
    >>> play_round(V_new, z, y, y_nn)[1].loss < 1e-12
    True
    """
    V = np.array(V, np.float64, order="C")
    loss, lam, degenerate = _round(
        np.asarray(z, np.float64),
        np.asarray(y, np.uint8),
        np.asarray(y_nn, np.uint8),
        np.empty(0, np.bool_),
        V,
        STEPS.index(step),
        update == "linear",
        step_min,
        step_max,
        np.empty((4, V.shape[1])),
    )
    return V, Round(loss, lam, degenerate)
