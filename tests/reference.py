"""Slow, obvious versions, written from the paper's problem and from the definitions.

Nothing here is shared with the library: q × q matrices are formed and inverted, roots are searched
by a library routine, neighbours by a double loop, left-out predictions by fitting again.  The
letters are the paper's: z = Pᵀx_t, u = z − y, w = z − y_t, A = uuᵀ − wwᵀ, Δ = ‖y_t − y‖₁.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

# ---------------------------------------------------------------------- the round


class Pair(NamedTuple):
    """What the paper's problem (3) says about one example and its neighbour."""

    u: np.ndarray
    w: np.ndarray
    A: np.ndarray
    delta: float


def pair(z, y_t, y_nn, known=None):
    z, y_t, y_nn = (np.asarray(a, float) for a in (z, y_t, y_nn))
    seen = np.ones(len(z)) if known is None else np.asarray(known, float)
    u, w = (z - y_nn) * seen, (z - y_t) * seen
    return Pair(u, w, np.outer(u, u) - np.outer(w, w), float(np.abs((y_t - y_nn) * seen).sum()))


def gain(V, pair):
    """‖Vᵀu‖² − ‖Vᵀw‖², the left side of the constraint."""
    return float(((V.T @ pair.u) ** 2).sum() - ((V.T @ pair.w) ** 2).sum())


def loss(V, pair):
    """Eq. (4)."""
    return max(0.0, pair.delta - gain(V, pair))


def lagrangian(V, V_t, pair, lam):
    """Eq. (5), term by term."""
    return 0.5 * ((V - V_t) ** 2).sum() + lam * (pair.delta - gain(V, pair))


def inverse_update(V_t, pair, lam):
    """Algorithm 1, line 9, transposed: (I − 2λA)⁻¹V_t."""
    return np.linalg.inv(np.eye(len(pair.A)) - 2 * lam * pair.A) @ V_t


def linear_update(V_t, pair, lam):
    """Eq. (6), transposed: (I + 2λA)V_t."""
    return (np.eye(len(pair.A)) + 2 * lam * pair.A) @ V_t


def pole(pair):
    """1/(2μ₊), where I − 2λA stops being positive definite."""
    return 1 / (2 * np.linalg.eigvalsh(pair.A)[-1])


def exact_lambda(V_t, pair):
    """The λ at which the constraint becomes an equality, left of the pole."""

    def gap(lam):
        return gain(inverse_update(V_t, pair, lam), pair) - pair.delta

    end = pole(pair)
    near = next(end * (1 - 2.0**-j) for j in range(1, 50) if gap(end * (1 - 2.0**-j)) > 0)
    return brentq(gap, 0.0, near, xtol=1e-300, rtol=1e-15)


def cubic_by_evaluation(V_t, pair):
    """Coefficients a, b, c of Lagrangian (5) along Eq. (6), read off its values at three λ."""
    unit = abs(pole(pair))
    at = np.array([1.0, -1.0, 2.0])
    values = [lagrangian(linear_update(V_t, pair, s * unit), V_t, pair, s * unit) for s in at]
    return np.linalg.solve(np.stack([at**3, at**2, at], axis=1), values) / unit ** np.array(
        [3, 2, 1]
    )


def cubic_as_printed(V_t, pair):
    """The three coefficients as they stand in the paper, misprints included."""
    (u, w, A, delta), Q = pair, V_t @ V_t.T
    a = 4 * w @ A.T @ Q @ A @ w - u @ A.T @ Q @ A @ u
    b = 2 * (
        ((V_t.T @ A) ** 2).sum() - w @ Q @ A @ w - w @ A.T @ Q @ w + u @ Q @ A @ u + u @ A.T @ Q @ u
    )
    c = u @ Q @ u - u @ Q @ u + delta
    return a, b, c


def cubic_lambda(a, b, c, least, most):
    """Eq. (7): the maximum point β > 0 of aλ³ + bλ² + cλ, kept in [least, most]."""
    roots = np.roots([3 * a, 2 * b, c])
    maxima = [r.real for r in roots if abs(r.imag) < 1e-12 * abs(r) and r.real > 0]
    maxima = [r for r in maxima if 6 * a * r + 2 * b < 0]
    if not maxima:
        return most  # f rises for ever
    return min(max(maxima[0], least), most)


def play(V_t, z, y_t, y_nn, *, step, update, least, most, known=None):
    """One round: V_{t+1}, loss, λ."""
    about = pair(z, y_t, y_nn, known)
    suffered = loss(V_t, about)
    if suffered == 0:
        return V_t, 0.0, 0.0
    if step == "exact":
        lam = min(exact_lambda(V_t, about), most)
    elif step == "cubic":
        lam = cubic_lambda(*cubic_by_evaluation(V_t, about), least, most)
    else:
        lam = cubic_lambda(*cubic_as_printed(V_t, about), least, most)
    move = inverse_update if update == "inverse" else linear_update
    return move(V_t, about, lam), suffered, lam


# ---------------------------------------------------------------------- the round in Q = VVᵀ


def cone(Q):
    """The positive semidefinite matrix nearest to Q, by all its eigenvalues."""
    values, vectors = np.linalg.eigh(Q)
    return (vectors * np.maximum(values, 0)) @ vectors.T


def convex_loss(Q, pair):
    return max(0.0, pair.delta - float((pair.A * Q).sum()))


def convex_play(Q, pair, *, C, kind, project=True):
    """One passive-aggressive round on Q: Q_{t+1}, loss, τ."""
    suffered, square = convex_loss(Q, pair), float((pair.A**2).sum())
    if suffered == 0 or square == 0:
        return Q, suffered, 0.0
    tau = min(C, suffered / square) if kind == "PA-I" else suffered / (square + 1 / (2 * C))
    moved = Q + tau * pair.A
    return cone(moved) if project else moved, suffered, tau


def convex_bound(U, pairs, *, C, kind):
    """The right side of the bound: of Σ τl for PA-I, of Σ l² for PA-II."""
    away = ((np.eye(len(U)) - U) ** 2).sum()
    losses = [convex_loss(U, about) for about in pairs]
    if kind == "PA-I":
        return away + 2 * C * sum(losses)
    R_squared = max((about.A**2).sum() for about in pairs)
    return (R_squared + 1 / (2 * C)) * (away + 2 * C * sum(one**2 for one in losses))


# ---------------------------------------------------------------------- neighbours and votes


def squared_distance(a, b):
    total = 0.0
    for x, y in zip(a, b, strict=True):
        gap = float(x) - float(y)
        total += gap * gap
    return total


def nearest(rows, query, k, lo=0, hi=None):
    """Positions and squared distances of the k nearest rows, ties by age, older first."""
    seen = range(lo, len(rows) if hi is None else hi)
    ranked = sorted((squared_distance(rows[i], query), i) for i in seen)[:k]
    return [d for d, _ in ranked], [i for _, i in ranked]


def halved(rows, points, size):
    """Return groups of ``size`` rows: halves of halves, each in the direction they vary most in."""
    rows = list(rows)
    if len(rows) <= size:
        return {frozenset(rows)}
    widest = int(np.argmax(points[rows].astype(float).var(axis=0)))
    rows.sort(key=lambda row: points[row, widest])
    middle = len(rows) // size // 2 * size
    return halved(rows[:middle], points, size) | halved(rows[middle:], points, size)


def votes(positions, Y, known=None):
    """Share of each label among the voters that know it, 0 where nobody knows."""
    out = np.zeros(Y.shape[1])
    for j in range(Y.shape[1]):
        voters = [i for i in positions if known is None or known[i][j]]
        if voters:
            out[j] = sum(int(Y[i][j]) for i in voters) / len(voters)
    return out


# ---------------------------------------------------------------------- ridge regression


def ridge(X, Y, rho):
    """P and c of min ‖Y − XP − 1cᵀ‖² + ρ‖P‖², as one least-squares problem with more rows."""
    n, p = X.shape
    top = np.hstack([X, np.ones((n, 1))])
    bottom = np.hstack([np.sqrt(rho) * np.eye(p), np.zeros((p, 1))])
    right = np.vstack([Y, np.zeros((p, Y.shape[1]))])
    solution = np.linalg.lstsq(np.vstack([top, bottom]), right, rcond=None)[0]
    return solution[:p], solution[p]


def split_columns(X, place, a, width):
    """Put column k of X at ``place[k]``, leave out −1, and cut in two after ``a`` columns."""
    out = np.zeros((len(X), width), X.dtype)
    for k, where in enumerate(place):
        if where >= 0:
            out[:, where] = X[:, k]
    return out[:, :a], out[:, a:]


def left_out_predictions(X, Y, rho):
    """For each row, the prediction of a ridge regression that never saw it."""
    out = np.empty(Y.shape)
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        P, c = ridge(X[others], Y[others], rho)
        out[i] = X[i] @ P + c
    return out


# ---------------------------------------------------------------------- ML-kNN


def mlknn_tables(X, Y, k):
    """κ[h][r][j]: items with (h = 1) or without label j that have r neighbours with it."""
    n, q = Y.shape
    tables = np.zeros((2, k + 1, q), int)
    for i in range(n):
        others = [j for j in range(n) if j != i]
        near = [others[a] for a in nearest([X[j] for j in others], X[i], k)[1]]
        for j in range(q):
            tables[int(Y[i, j]), sum(int(Y[a, j]) for a in near), j] += 1
    return tables


def mlknn_score(tables, counts, k, s=1):
    """Posterior probability of each label, given how many neighbours have it."""
    out = np.empty(len(counts))
    for j, r in enumerate(counts):
        without, having = tables[0, :, j].sum(), tables[1, :, j].sum()
        prior = (s + having) / (2 * s + having + without)
        yes = prior * (s + tables[1, r, j]) / (s * (k + 1) + having)
        no = (1 - prior) * (s + tables[0, r, j]) / (s * (k + 1) + without)
        out[j] = yes / (yes + no)
    return out


# ---------------------------------------------------------------------- the whole learner


class Run(NamedTuple):
    """What a naive pass over a stream leaves behind."""

    V: np.ndarray
    codec: np.ndarray  # V as it was when the stored codes were made
    project: object  # x ↦ z, or None before the first fit
    losses: list
    steps: list

    def codes(self, X, *, fresh=False):
        V = self.V if fresh else self.codec
        return np.array([self.project(x) @ V for x in X]).astype(np.float32)


def run(X, Y, V_1, *, fit, fit_at, neighbor, window=None, known=None, **rules):
    """Algorithm 1 with P fitted by ``fit(rows, labels)`` after each of the counts ``fit_at``.

    Before the first fit nothing is learnt but the memory; codes are made with the P and V of the
    last fit, whatever has happened to V since.
    """
    made = Run(np.array(V_1, float), np.array(V_1, float), None, [], [])
    for t in range(len(X)):
        lo = 0 if window is None else max(t - window, 0)
        if made.project is not None and t > lo:
            if neighbor == "input":
                near = nearest(X[:t], X[t], 1, lo)[1][0]
            else:
                codes = made.codes(X[lo : t + 1])
                near = lo + nearest(codes[:-1], codes[-1], 1)[1][0]
            both = None if known is None else known[t] & known[near]
            V, loss, lam = play(made.V, made.project(X[t]), Y[t], Y[near], known=both, **rules)
            made = made._replace(V=V)
            made.losses.append(loss)
            made.steps.append(lam)
        if t + 1 in fit_at:
            lo = 0 if window is None else max(t + 1 - window, 0)
            made = made._replace(project=fit(X[lo : t + 1], Y[lo : t + 1]), codec=made.V)
    return made


# ---------------------------------------------------------------------- the head


def expected_f1_cut(p, beta, empty=1.0):
    """The score from which a label is suggested."""
    ranked = sorted(p, reverse=True)
    best = min(np.prod([1 - one for one in ranked]), empty)
    for m in range(1, len(ranked) + 1):
        best = max(best, 2 * sum(ranked[:m]) / (m + sum(ranked)))
    return (1 - beta) / 2 + beta * best / 2


class SlowFastMap:
    """z⁺ = z + Dᵀx with D and s as full matrices; ``x`` is dense and ready."""

    def __init__(self, s, rho, q, fresh):
        self.D, self.s, self.rho, self.fresh = np.zeros((len(s), q)), np.array(s, float), rho, fresh

    def __call__(self, x, z):
        return z + self.D.T @ x

    def learn(self, x, z, y, known):
        z_plus, gain = self(x, z), x / (self.rho + self.s)
        h = x @ gain
        for j in range(len(y)):
            beyond = (y[j] == 1 and z_plus[j] > 1) or (y[j] == 0 and z_plus[j] < 0)
            if known[j] and not beyond:
                self.D[:, j] += gain * 8 * (y[j] - z_plus[j]) / (1 + 8 * h)
        self.s += x**2


class SlowHead:
    """The head by its formulas, one label and one item at a time, from whole lists of labels.

    ``seen`` is the list of (y, known) that were learnt; history and counts are made from it anew
    for each item, so that late labels and windows are plain slices.
    """

    def __init__(self, w, q, *, lag=0, window=None):
        m = len(w)
        self.w, self.A = np.array(w, float), np.eye(m)
        self.d, self.a = np.zeros((q, m)), np.full((q, m), 10.0)
        self.lag, self.window, self.seen = lag, window, []
        self.told = [[] for _ in range(q)]  # of each label: p, and whether it would be suggested

    def bar(self, j):
        """Half the F1 that is expected of the label's suggestions so far; at first ¼."""
        hits, sizes = 0.5, 1.0
        for p, says in self.told[j]:
            hits = 0.999 * hits + 0.001 * 0.5 + 2 * p * says
            sizes = 0.999 * sizes + 0.001 + p + says
        return hits / sizes / 2

    def evidence(self, j, found, near, z, z_plus, fresh, seen, stored, late):
        """f_j, or None for a label that no example has; ``seen`` is what is known by then."""

        def vote(positions, k):
            sure = [i for i in positions[: min(k, most)] if i >= 0 and stored[i][1][j]]
            v = sum(int(stored[i][0][j]) for i in sure)
            return 0.5 * np.log((v + 0.5) / (len(sure) - v + 0.5))

        def logit(x):
            x = min(max(x, 0.02), 0.98)
            return 0.25 * np.log(x / (1 - x))

        kept = seen if self.window is None else seen[max(len(self.seen) - self.window, 0) :]
        items = sum(any(known) for _, known in kept)
        most = 30 if late or items >= 12 else max(items // 3, 1)
        sure = [int(y[j]) for y, known in kept if known[j]]
        n, t = sum(sure), len(sure)
        if n == 0:
            return None
        if z is None:
            z = z_plus = (n + 0.5) / (t + 1)
        last = fast = slow = 0.0
        for y, known in seen:
            if known[j]:
                last = float(y[j])
                fast += 0.2 * (last - fast)
                slow += 0.02 * (last - slow)
        f = [1, *(vote(found, k) for k in (3, 10, 30)), logit(z_plus if fresh else z)]
        mean = self.A[0, 6] / self.A[0, 0]
        wide = 3 * np.sqrt(max(self.A[6, 6] / self.A[0, 0] - mean**2, 0))
        share = 0.25 * np.log((n + 0.5) / (t - n + 0.5))
        f += [logit(z_plus), min(max(share, mean - wide), mean + wide), last]
        f += [0.25 * np.log((fast + 0.02) / (1.02 - fast)), slow]
        return np.array(f if near is None else [*f, vote(near, 3), vote(near, 10)])

    def score(self, found, near, z, z_plus, fresh, *, late=False):
        """Probabilities, and the evidence of each label; ``late``: as it was lag items ago."""
        seen = self.seen[: max(len(self.seen) - self.lag, 0)] if late else self.seen
        p, F = np.zeros(len(self.d)), {}
        for j in range(len(self.d)):
            of_z = (None, None) if z is None else (z[j], z_plus[j])
            f = self.evidence(j, found, near, *of_z, fresh[j], seen, self.seen, late)
            if f is not None:
                F[j] = f
                p[j] = 1 / (1 + np.exp(-(self.w + self.d[j]) @ f))
        return p, F

    def learn(self, p, F, y, known):
        if np.any(known):
            taught = [j for j in F if known[j]]
            for j in taught:
                self.told[j].append((p[j], p[j] >= self.bar(j)))
            h, e = p * (1 - p), np.asarray(y, float) - p
            self.A = 0.999 * self.A + 0.001 * np.eye(len(self.w))
            self.A += sum((h[j] * np.outer(F[j], F[j]) for j in taught), np.zeros_like(self.A))
            for j in taught:
                f, a = F[j], self.a[j]
                self.d[j] += (e[j] * f / a) / (1 + h[j] * (f**2 / a).sum())
                self.a[j] = 0.999 * a + 0.001 * 10 + h[j] * f**2
            if taught:
                self.w = self.w + np.linalg.solve(self.A, sum(e[j] * F[j] for j in taught))
        self.seen.append((y, known))


class SlowAnyHead:
    """The any-head, label by label, in the formulas of ``docs/math.md``."""

    def __init__(self, weights, votes, gamma=0.999, lam=1.0, mu=10.0):
        m, q = len(weights.w), len(weights.d)
        self.votes, self.gamma, self.lam, self.mu = votes, gamma, lam, mu
        self.w, self.A = weights.w.copy(), weights.A.copy()
        self.d, self.a = np.zeros((q, m)), np.full((q, m), mu)

    def features(self, evidence, labels, i, n, t, fresh, z_plus):
        """Return the evidence of each label, (q, m)."""
        out, k = [], 1 + len(self.votes) + 1  # the column of the share
        mean = self.A[0, k] / self.A[0, 0]
        deviation = math.sqrt(max(self.A[k, k] / self.A[0, 0] - mean**2, 0))

        def log_odds(v):
            v = min(max(v, 0.02), 0.98)
            return math.log(v / (1 - v))

        def L(found, k, j):
            voters = [a for a in found[:k] if a >= 0]
            yes = sum(int(labels[a, j]) for a in voters)
            return 0.5 * math.log((yes + 0.5) / (len(voters) - yes + 0.5))

        for j in range(labels.shape[1]):
            n_j = max(int(n[j]), 0)
            others = max(t - n_j, 0) if n_j else 0
            z = z_plus[i, j] if fresh[j] else evidence.Z[i, j]
            share = math.log((n_j + 0.5) / (others + 0.5)) / 4
            share = min(max(share, mean - 3 * deviation), mean + 3 * deviation)
            row = [1.0, *(L(evidence.found[i], k, j) for k in self.votes)]
            row += [(log_odds(z) + log_odds(z_plus[i, j])) / 8, share]
            if len(evidence.near):
                row += [L(evidence.near[i], k, j) for k in (3, 10)]
            out.append(row)
        return np.array(out)

    def score(self, evidence, labels, i, n, t, fresh, z_plus):
        f = self.features(evidence, labels, i, n, t, fresh, z_plus)
        p = 1 / (1 + np.exp(-((self.w + self.d) * f).sum(axis=1)))
        return np.where(np.asarray(n) > 0, p, 0.0)

    def learn(self, evidence, labels, i, n, t, fresh, z_plus, y):
        f = self.features(evidence, labels, i, n, t, fresh, z_plus)
        p = self.score(evidence, labels, i, n, t, fresh, z_plus)
        self.A = self.gamma * self.A + (1 - self.gamma) * self.lam * np.eye(len(self.w))
        total = np.zeros(len(self.w))
        for j in np.flatnonzero(np.asarray(n) > 0):
            e, h = y[j] - p[j], p[j] * (1 - p[j])
            self.A += h * np.outer(f[j], f[j])
            total += e * f[j]
            step = (e * f[j] / self.a[j]) / (1 + h * (f[j] ** 2 / self.a[j]).sum())
            self.d[j] += step
            self.a[j] = self.gamma * self.a[j] + (1 - self.gamma) * self.mu + h * f[j] ** 2
        self.w = self.w + np.linalg.solve(self.A, total)


class SlowCopies:
    """κ of each class and bin, by its definition."""

    def __init__(self):
        start = {0: ((0.1, 0.2, 0.4, 0.5), 10), 1: ((0.6, 0.8, 0.9, 0.97), 20)}
        self.K = {
            (c, b): [kappa * strength, (1 - kappa) * strength]
            for c, (kappas, strength) in start.items()
            for b, kappa in enumerate(kappas)
        }

    @staticmethod
    def bin(similarity):
        return sum(similarity >= low for low in (0.8, 0.9, 0.97, 0.9999)) - 1

    def kappa(self, similarity, corrected):
        b = self.bin(similarity)
        if b < 0:
            return 0.0
        K = self.K[int(corrected), b]
        return K[0] / (K[0] + K[1])

    def learn(self, similarity, corrected, p, y, y_nn, both_known):
        kappa = self.kappa(similarity, corrected)
        if self.bin(similarity) < 0 or not any(both_known):
            return
        sure = [j for j in range(len(y)) if both_known[j]]
        R = 0.0
        if all(y[j] == y_nn[j] for j in sure):
            L = np.prod([p[j] if y[j] else 1 - p[j] for j in sure])
            R = kappa / (kappa + (1 - kappa) * L)
        K = self.K[int(corrected), self.bin(similarity)]
        K[0] += R
        K[1] += 1 - R


# ---------------------------------------------------------------------- text features

_UNSPACED_SCRIPTS = re.compile(
    "CJK |HIRAGANA |(COMBINING )?KATAKANA|HENTAIGANA |BOPOMOFO |THAI |LAO |MYANMAR |KHMER |"
    "(VERTICAL )?(IDEOGRAPHIC|KANA) (?!ANNO|TALLY)|HANGZHOU |MASU "
)


def text_class(character):
    """One letter per class: w letter, d digit, u unspaced, s symbol, x skipped, or itself."""
    if character in "!?.+#'_":
        return {"?": "!", "#": "+", "_": "w"}.get(character, character)
    if character == "’":
        return "'"
    if character == "\u200b":
        return " "
    name = unicodedata.name(character, "")
    category = unicodedata.category(character)
    if category == "Cf" or "VARIATION SELECTOR" in name or name == "COMBINING GRAPHEME JOINER":
        return "x"
    if 0x20000 <= ord(character) < 0x40000:
        return "u"
    if 0xE0000 <= ord(character) < 0xE1000:
        return "x"
    if category[0] in "LMN":
        if _UNSPACED_SCRIPTS.match(name):
            return "u"
        return "d" if category[0] == "N" else "w"
    return "s" if category[0] == "S" and ord(character) > 127 else " "


_TOKEN = re.compile(r"(?:(?<![wd.])\.(?=w))?[wd](?:'?[wd])*(?:\++(?![wd+]))?|[us!]")


def text_tokens(text):
    """Tokens with their classes; the text is normalised and freed of skipped characters."""
    text = unicodedata.normalize("NFKC", text).lower().replace("’", "'")
    text = "".join(c for c in text if text_class(c) != "x")
    classes = "".join(map(text_class, text))
    return [
        (text[m.start() : m.end()], m.group(), classes[m.end() : m.end() + 2], text[m.start() :])
        for m in _TOKEN.finditer(classes)
    ]


def text_features(text, longest=5):
    """Counts of the tokens and of the n-grams."""
    tokens, grams = Counter(), Counter()
    for token, kind, after, rest in text_tokens(text):
        tokens[token] += 1
        if kind == "u":
            for n in (2, 3):
                if after[: n - 1] == "u" * (n - 1):
                    grams[rest[:n]] += 1
        elif kind != "!":
            padded = f" {token} "
            for n in range(3, longest + 1):
                grams.update(padded[i : i + n] for i in range(len(padded) - n + 1))
    return tokens, grams


def text_hash(feature, seed):
    """64 bits of a feature, in Python's whole numbers."""
    h = seed
    for character in feature:
        h = ((h ^ ord(character)) * 0x9E3779B97F4A7C15) % 2**64
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h = ((h ^ h >> 33) * factor) % 2**64
    return h ^ h >> 33


def text_row(text, p, longest=5):
    """The row of a text as a dict of column to value."""
    row = Counter()
    for counts, seed in zip(
        text_features(text, longest), (0x2545F4914F6CDD1D, 0x9FB21C651E98DF25), strict=True
    ):
        values = {feature: 1 + math.log(count) for feature, count in counts.items()}
        length = math.sqrt(sum(value**2 for value in values.values()))
        for feature, value in values.items():
            h = text_hash(feature, seed)
            row[(h >> 32) * p >> 32] += (-1) ** (h & 1) * value / length
    length = math.sqrt(sum(value**2 for value in row.values()))
    return {column: value / length for column, value in row.items() if abs(value) > 1e-12}


# ---------------------------------------------------------------------- many labels


def leading_variance(Y, r):
    """The largest share of the label variance that r directions can carry."""
    values = np.linalg.svd(Y - Y.mean(axis=0), compute_uv=False) ** 2
    return values[:r].sum() / values.sum()


def reduced_pair(B, z, y_t, y_nn, known=None):
    """The problem of a round in the coordinates Bᵀu, Bᵀw, with the margin that they can show."""
    full = pair(z, y_t, y_nn, known)
    u, w = B.T @ full.u, B.T @ full.w
    return Pair(u, w, np.outer(u, u) - np.outer(w, w), float(((u - w) ** 2).sum()))


def play_reduced(R, about, most):
    """One exact round on R, where V = BR: the new R, and the loss."""
    suffered = loss(R, about)
    if suffered == 0:
        return R, 0.0
    return inverse_update(R, about, min(exact_lambda(R, about), most)), suffered


class SlowReducedFastMap(SlowFastMap):
    """The fast map in coordinates: z⁺ = z + B(Dᵀx), with D moved by Bᵀr."""

    def __init__(self, s, rho, B):
        super().__init__(s, rho, B.shape[1], None)
        self.B = B

    def __call__(self, x, z):
        return z + self.B @ (self.D.T @ x)

    def learn(self, x, z, y):
        z_plus, gain = self(x, z), x / (self.rho + self.s)
        r = y - z_plus
        r[(y == 1) & (z_plus > 1) | (y == 0) & (z_plus < 0) | (abs(r) <= 0.02)] = 0
        self.D += np.outer(gain, self.B.T @ r) * 8 / (1 + 8 * (x @ gain))
        self.s += x**2
