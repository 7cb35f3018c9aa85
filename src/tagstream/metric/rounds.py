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

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.core.compilation import compiled, inlined

__all__ = [
    "STEPS",
    "UPDATES",
    "Round",
    "cubic_step",
    "exact_step",
    "play_round",
    "run_rounds",
]

STEPS = ("exact", "cubic", "printed")
UPDATES = ("inverse", "linear")

# Below this share of its natural size a quantity is taken to be rounding error.
TINY = 1e-12
# Squared lengths beyond this, or below its inverse, are left alone: they would leave the range
# of double precision within a round.
LARGEST = 1e180

Vector = npt.NDArray[np.float64]


class Round(NamedTuple):
    """What one round did: its loss before the step, the step λ, and whether V could move."""

    loss: float
    lam: float
    degenerate: bool


@inlined
def exact_step(
    mu: float, alpha: float, nu: float, beta: float, delta: float, most: float
) -> tuple[float, float]:
    """Return λ = min(λ*, most) and r = 1 − 2λμ, λ* being the root of the round's constraint,

        μα/(1 − 2λμ)² − νβ/(1 + 2λν)² = Δ   on (0, 1/(2μ)).

    Here μ = μ₊, α = α₊, ν = −μ₋, β = α₋.  The left side rises strictly to infinity, and at λ = 0
    it is below Δ (the loss is positive), so the root exists and is the only one.  It is sought in
    r, from r₀ = √(μα/(Δ + νβ)), where the first term alone reaches Δ + νβ, to 1; so that nothing
    cancels where r is small.
    """
    ratio = nu / mu
    # Where the two sides differ by rounding only, the root is 1 and must not be beyond it.
    lo = min(np.sqrt(mu * alpha / (delta + nu * beta)), 1.0)
    hi = 1.0
    capped = 1.0 - 2.0 * most * mu
    if capped > lo:
        gap = mu * alpha / capped**2 - nu * beta / (1.0 + (1.0 - capped) * ratio) ** 2 - delta
        if gap <= 0.0:
            return most, capped
    r = lo
    for _ in range(200):
        far = 1.0 + (1.0 - r) * ratio
        gap = mu * alpha / r**2 - nu * beta / far**2 - delta
        slope = -2.0 * mu * alpha / r**3 - 2.0 * nu * beta * ratio / far**3
        if gap > 0.0:
            lo = r
        else:
            hi = r
        new = r - gap / slope
        if not lo < new < hi:  # Newton left the bracket: bisect
            new = 0.5 * (lo + hi)
        if new == r or hi - lo <= 2e-16 * hi:
            break
        r = new
    return (1.0 - r) / (2.0 * mu), r


@inlined
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
def run_rounds(
    Z: Vector,
    Y: npt.NDArray[Any],
    Y_nn: npt.NDArray[Any],
    known: npt.NDArray[np.bool_],
    lonely: npt.NDArray[np.bool_],
    V: Vector,
    step: int | None,
    linear: bool,
    step_min: float,
    step_max: float,
    losses: Vector,
    steps: Vector,
    degenerate: npt.NDArray[np.bool_],
) -> None:
    """Play the rounds of a block in order, changing V (q, d) in place.

    Z, Y and Y_nn are (n, q); ``known`` is (n, q), or (0, 0) when all is known, and says which
    labels are known of both items: the others are left out of u, w and Δ, so that they pull
    nothing.  ``lonely`` marks items without a neighbour, which have no round.  The last three
    arrays, (n,), are results.  Z, Y and Y_nn may also be coordinates in a reduced label space, real
    numbers, with Δ = ‖y_t − y‖².  ``step`` is the number of one of ``STEPS``, or None for the exact
    one, so that the others need not be compiled for it.

    Axes: e = u − w = y_t − y, of labels 0 and ±1, has length D = √Δ; with ê = e/D and f
    the direction of the rest of u, u = sê + tf and w = (s − D)ê + tf, so that A, in the basis
    (ê, f), is [[D(2s − D), Dt], [Dt, 0]].
    """
    q, d = V.shape
    whole = q - q % 4
    e, f = np.empty(q), np.empty(q)
    re, rf, pp, pm = np.empty(d), np.empty(d), np.empty(d), np.empty(d)  # Vᵀê, Vᵀf, Vᵀv₊, Vᵀv₋
    masked = known.shape[0] > 0
    for n in range(Z.shape[0]):
        losses[n], steps[n], degenerate[n] = 0.0, 0.0, False
        if lonely[n]:
            continue
        delta = along = 0.0  # Δ = eᵀe and eᵀu
        for i in range(q):
            gap: Any = np.float64(Y[n, i]) - np.float64(Y_nn[n, i])
            if masked and not known[n, i]:
                gap = 0.0
            e[i] = gap
            delta += gap * gap
            along += (Z[n, i] - Y_nn[n, i]) * gap
        if delta == 0.0:
            degenerate[n] = True
            continue
        D = np.sqrt(delta)
        s = along / D
        square = 0.0
        for i in range(q):
            rest: Any = (Z[n, i] - Y_nn[n, i]) - along / delta * e[i]  # of u, orthogonal to e
            if masked and not known[n, i]:
                rest = 0.0
            f[i] = rest
            square += rest * rest
        t = np.sqrt(square)
        for j in range(d):  # loops: numba takes long over slices
            re[j] = rf[j] = 0.0
        for i in range(q):
            e[i] /= D
            f[i] = f[i] / t if t > 0.0 else 0.0
        for i in range(0, whole, 4):
            e0, e1, e2, e3 = e[i], e[i + 1], e[i + 2], e[i + 3]
            f0, f1, f2, f3 = f[i], f[i + 1], f[i + 2], f[i + 3]
            for j in range(d):
                v0, v1, v2, v3 = V[i, j], V[i + 1, j], V[i + 2, j], V[i + 3, j]
                rf[j] = (((rf[j] + f0 * v0) + f1 * v1) + f2 * v2) + f3 * v3
            if e0 != 0.0 or e1 != 0.0 or e2 != 0.0 or e3 != 0.0:
                for j in range(d):
                    v0, v1, v2, v3 = V[i, j], V[i + 1, j], V[i + 2, j], V[i + 3, j]
                    re[j] = (((re[j] + e0 * v0) + e1 * v1) + e2 * v2) + e3 * v3
        for i in range(whole, q):
            for j in range(d):
                rf[j] += f[i] * V[i, j]
                re[j] += e[i] * V[i, j]
        kee = kef = kff = 0.0
        for j in range(d):
            kee += re[j] * re[j]
            kef += re[j] * rf[j]
            kff += rf[j] * rf[j]
        trace = D * (2.0 * s - D)
        loss = delta - (trace * kee + 2.0 * D * t * kef)
        if not loss > 0.0:
            continue
        losses[n] = loss
        degenerate[n] = True  # unless V moves
        if not t > TINY * (abs(s) + D):  # u ∥ w
            continue
        # Eigenvalues: μ₊ + μ₋ = trace, μ₊μ₋ = −(Dt)²; the smaller one by division.
        cross = D * t
        spread = np.sqrt(trace * trace + 4.0 * cross * cross)
        if trace >= 0.0:
            mu = 0.5 * (trace + spread)
            nu = cross * (cross / mu)
        else:
            nu = 0.5 * (spread - trace)
            mu = cross * (cross / nu)
        # Eigenvector of m: (m, Dt).
        lp = np.hypot(mu, cross)
        lm = np.hypot(nu, cross)
        ep, fp, em, fm = mu / lp, cross / lp, -nu / lm, cross / lm
        alpha = beta = 0.0
        for j in range(d):
            pp[j] = ep * re[j] + fp * rf[j]
            pm[j] = em * re[j] + fm * rf[j]
            alpha += pp[j] * pp[j]
            beta += pm[j] * pm[j]
        if not (
            alpha > TINY * TINY * (kee + kff) and mu * alpha * LARGEST > 1.0 and loss < LARGEST
        ):
            continue  # nothing of V to scale along v₊
        if step is None:
            lam, r = exact_step(mu, alpha, nu, beta, delta, step_max)
        else:
            norm = mu * mu * alpha + nu * nu * beta  # ‖AV‖²
            if step == 1:
                # Erratum E2: −4 tr(VᵀA³V), −2‖AV‖², l_t.
                cube = mu**3 * alpha - nu**3 * beta
                a, b, c = -4.0 * cube, -2.0 * norm, loss
            else:
                # As printed; uᵀA and wᵀA by the coordinates of u and w on v₊ and v₋.
                up, um = s * ep + t * fp, s * em + t * fm
                wp, wm = (s - D) * ep + t * fp, (s - D) * em + t * fm
                uau = uqau = waw = wqaw = 0.0
                for j in range(d):
                    ua = up * mu * pp[j] - um * nu * pm[j]
                    wa = wp * mu * pp[j] - wm * nu * pm[j]
                    uau += ua * ua
                    waw += wa * wa
                    uqau += (s * re[j] + t * rf[j]) * ua
                    wqaw += ((s - D) * re[j] + t * rf[j]) * wa
                a, b, c = 4.0 * waw - uau, 2.0 * (norm - 2.0 * wqaw + 2.0 * uqau), delta
            lam = cubic_step(a, b, c, step_min, step_max)
            r = 1.0 - 2.0 * lam * mu
        if linear:
            gain, shrink = 2.0 * lam * mu, -2.0 * lam * nu
        else:
            gain = 2.0 * lam * mu / r if r != 0.0 else np.inf
            shrink = -2.0 * lam * nu / (1.0 + 2.0 * lam * nu)
        # Without the cap nothing keeps V finite (Erratum E3): a step that would throw it out of
        # range is not taken.
        if not gain * gain * alpha + shrink * shrink * beta < LARGEST:
            continue
        for i in range(q):
            if masked and not known[n, i]:
                continue
            left = gain * (ep * e[i] + fp * f[i])
            right = shrink * (em * e[i] + fm * f[i])
            for j in range(d):
                V[i, j] += left * pp[j] + right * pm[j]
        steps[n], degenerate[n] = lam, False


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
    losses, steps, degenerate = np.empty(1), np.empty(1), np.empty(1, np.bool_)
    run_rounds(
        np.array([z], np.float64), np.array([y], np.uint8), np.array([y_nn], np.uint8),
        np.empty((0, 0), np.bool_), np.zeros(1, np.bool_), V, STEPS.index(step) or None,
        update == "linear", float(step_min), float(step_max), losses, steps, degenerate,
    )  # fmt: skip
    return V, Round(float(losses[0]), float(steps[0]), bool(degenerate[0]))
