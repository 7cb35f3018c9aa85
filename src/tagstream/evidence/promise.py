"""A promise instead of a threshold: from which score on a label is right as often as promised.

Wanted is a bar such that of the items whose score reaches it a share of 1 − α has the label.  It is
tracked online on honest scores (:mod:`tagstream.evidence.honest`), one bar λ for each label, in
log-odds.  An honest score that reaches λ is a *trial*.  After each,

    λ ← λ + η(e − α/2),      e = 1 if the item turned out not to have the label, else 0.

Summed up, Σ(e − α/2) over N trials is (λ_end − λ_start)/η.  So the share of errors is within
|λ_end − λ_start|/(ηN) of α/2, in whatever order items come (online conformal risk control;
``docs/math.md``, section "A promise").  It aims at half of the errors that the promise allows.  The
other half is for chance: without it, a run of errors would end the applying, and the run of hits
that makes up for it would come when nothing is applied.

λ must not rise so high that nothing is on trial any more.  So the top fifth of the scores that
would be suggested (p ≥ ½) always is.  There, more errors than promised may come.  A *gate* counts
them, G ← max(0, G + e − α), up to 2g.  It closes when G reaches

    g = max(½, 10·√(α(1 − α)) − ½),

about half of what two standard errors of a hundred decisions allow.  It opens again when G has
fallen to g/2 and the errors at the n scores at which the label was applied are at most
α(n + m/4) + √(α(1 − α)n), m the trials since it closed.  Without the second condition a label that
can never keep its promise would be applied again after each run of hits.  A label is applied at
scores that reach its bar, if the gate is open, after 30 trials at least.

For a promised *recall* of 1 − α, each item that has the label is a trial, e is whether its score
misses λ, and λ ← λ − η(e − α).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.core.compilation import compiled
from tagstream.evidence.honest import Entries

__all__ = ["ENOUGH", "Tracked", "track_precision", "track_recall"]

ENOUGH = 30  # trials
RATE = 0.5  # η
AIM = 0.5  # share of the errors that a promise allows
TOP = 0.2  # share of the suggested scores that always are on trial
TOP_RATE = 0.05
HUNDRED = 100.0
RETURN = 0.25  # what a trial at a closed gate is worth beside a decision
START_RECALL = 0.1  # score from which a label is predicted for its recall, before there are trials

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Tracked(NamedTuple):
    """What came of the honest scores; arrays of shape (q,).

    Attributes
    ----------
    bars : float
        The score from which each label may be applied; infinity: at none.
    trials : int
        Scores that were on trial.
    n_applied, n_right : int
        Those of them at which the label would have been applied, and how many were right.
    closed : bool
        Whether the gate is closed.
    applied : bool array of shape (n,)
        At which of the honest scores the label would have been applied.
    """

    bars: Vector
    trials: Ints
    n_applied: Ints
    n_right: Ints
    closed: Bools
    applied: Bools


@compiled
def _track(
    columns: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
    hits: npt.NDArray[np.uint8],
    alphas: Vector,
    lam: Vector,
    top: Vector,
    G: Vector,
    closed: Bools,
    trials: Ints,
    n_applied: Ints,
    n_right: Ints,
    since: Ints,
    applied: Bools,
) -> None:
    for i in range(columns.shape[0]):
        j, alpha = columns[i], alphas[columns[i]]
        s = min(max(np.float64(scores[i]), 1e-6), 1.0 - 1e-6)
        if s < 0.5 or not alpha > 0.0:
            continue
        at = math.log(s / (1.0 - s))
        on_trial = at >= min(lam[j], top[j])
        top[j] += TOP_RATE * ((1.0 - TOP) if at > top[j] else -TOP)
        if not on_trial:
            continue
        if trials[j] >= ENOUGH and not closed[j]:
            applied[i] = True
            n_applied[j] += 1
            n_right[j] += hits[i]
        trials[j] += 1
        error = 1.0 - np.float64(hits[i])
        lam[j] = max(lam[j] + RATE * (error - AIM * alpha), 0.0)
        g = max(0.5, math.sqrt(alpha * (1.0 - alpha) * HUNDRED) - 0.5)
        G[j] = min(max(G[j] + error - alpha, 0.0), 2.0 * g)
        since[j] += 1
        if G[j] >= g:
            closed[j], since[j] = True, 0
        elif closed[j] and G[j] <= 0.5 * g:
            n = n_applied[j]
            allowed = alpha * (n + RETURN * since[j]) + math.sqrt(alpha * (1.0 - alpha) * n)
            closed[j] = n - n_right[j] > allowed


def track_precision(entries: Entries, promises: Vector) -> Tracked:
    """Return the bars that keep promised precisions, (q,); labels with a promise of 1 have none.

    Examples
    --------
    >>> n = 200
    >>> sure = Entries(np.zeros(n, np.int32), np.full(n, 0.99, np.float32), np.ones(n, np.uint8))
    >>> found = track_precision(sure, np.array([0.95]))
    >>> bool(found.bars[0] < 0.99), found.n_applied.tolist(), found.n_right.tolist()
    (True, [170], [170])
    """
    q, alphas = len(promises), 1.0 - promises
    start = np.log(promises / np.maximum(alphas, 1e-9))
    lam, top, G, closed = start.copy(), start.copy(), np.zeros(q), np.zeros(q, np.bool_)
    trials, n_applied, n_right, since = np.zeros((4, q), np.int64)
    applied = np.zeros(len(entries.columns), np.bool_)
    _track(*entries, alphas, lam, top, G, closed, trials, n_applied, n_right, since, applied)
    bars = 1.0 / (1.0 + np.exp(-np.minimum(lam, top)))
    may = (trials >= ENOUGH) & ~closed & (alphas > 0)
    return Tracked(np.where(may, bars, np.inf), trials, n_applied, n_right, closed, applied)


@compiled
def _track_recall(
    columns: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
    hits: npt.NDArray[np.uint8],
    alpha: float,
    lam: Vector,
) -> None:
    for i in range(columns.shape[0]):
        if hits[i]:
            j = columns[i]
            s = min(max(np.float64(scores[i]), 1e-6), 1.0 - 1e-6)
            missed = 1.0 if math.log(s / (1.0 - s)) < lam[j] else 0.0
            lam[j] -= RATE * (missed - alpha)


def track_recall(entries: Entries, q: int, recall: float) -> Vector:
    """Return the bars that the share ``recall`` of the items of each label reaches, (q,).

    Examples
    --------
    >>> scores = np.tile(np.linspace(0.1, 0.9, 9, dtype=np.float32), 50)
    >>> found = Entries(np.zeros(450, np.int32), scores, np.ones(450, np.uint8))
    >>> bool(0.1 <= track_recall(found, 1, 0.8)[0] <= 0.4)
    True
    """
    lam = np.full(q, math.log(START_RECALL / (1.0 - START_RECALL)))
    _track_recall(*entries, 1.0 - recall, lam)
    return np.asarray(1.0 / (1.0 + np.exp(-lam)))
