"""How two published studies of stream learners count: the same loop, two ways of summing.

Both studies predict each item, then learn it, in the order of the file.  They differ in what they
make of the predictions.

* :class:`FadingScores`: the AESAKNNS study.  All counts are multiplied by .995 before an item is
  added, the measures are read every 100 items and at the end, and their mean is reported.
* :class:`PlainScores`: the MLHAT study.  Plain sums over the whole stream, read at its end.

Neither counts an item that got no answer, such as the first one, before anything was learnt.  An
answer is missing if it has no columns; an answer that suggests no label is an answer.

Symbols, after an item: c ← α c + new for each of the counts hits h, relevant labels t, predicted
labels u and items b; then micro-F1 = 2h / (t + u) and Hamming loss = (t + u − 2h) / (b q).
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tagstream.checks import check_number
from tagstream.evaluation.metrics import MultiLabelScores

__all__ = ["EVALUATORS", "Evaluator", "FadingScores", "PlainScores"]


class Evaluator(Protocol):
    """What counts predictions, block by block."""

    def update(self, Y_true: npt.NDArray[Any], Y_pred: npt.NDArray[Any]) -> object:
        """Count the rows of a block, both of shape (n, q); ``Y_pred`` may be narrower."""
        ...

    def measures(self) -> dict[str, float]:
        """Return the measures by name; empty before the first item that was answered."""
        ...


class FadingScores:
    """Micro-F1 and Hamming loss of counts that fade, averaged over checkpoints.

    Parameters
    ----------
    fading : float, default=0.995
        What every count is multiplied by before an item is added.
    every : int, default=100
        Items between two checkpoints.  Items without an answer are items too.

    Examples
    --------
    >>> scores = FadingScores(fading=0.5, every=2)
    >>> scores.update(np.array([[1, 0], [1, 1]]), np.array([[1, 0], [0, 1]]))
    >>> {name: round(value, 3) for name, value in scores.measures().items()}
    {'micro_f1': 0.75, 'hamming_loss': 0.333}
    """

    def __init__(self, fading: float = 0.995, every: int = 100) -> None:
        check_number("fading", fading, least=0, most=1)
        check_number("every", every, kind=int, least=1)
        self.fading = fading
        self.every = every
        self.n_items = 0
        self._counts = (0.0, 0.0, 0.0, 0.0)  # hits, relevant, predicted; items
        self._width = 1
        self._sums = [0.0, 0.0]
        self._n_checkpoints = 0

    def update(self, Y_true: npt.NDArray[Any], Y_pred: npt.NDArray[Any]) -> None:
        """Count a block of rows of shape (n, q)."""
        answered = Y_pred.shape[1] > 0
        self._width = max(Y_true.shape[1], 1)
        true, pred = Y_true == 1, _as_wide(Y_pred, Y_true.shape[1])
        rows = np.array([(true & pred).sum(axis=1), true.sum(axis=1), pred.sum(axis=1)]).T
        for hit, relevant, predicted in rows.tolist():
            if answered:
                h, t, u, b = (self.fading * count for count in self._counts)
                self._counts = h + hit, t + relevant, u + predicted, b + 1
            self.n_items += 1
            if self.n_items % self.every == 0:
                self._look()

    def _now(self) -> tuple[float, float]:
        h, t, u, b = self._counts
        f1 = 2 * h / (t + u) if t + u else 0.0
        return f1, (t + u - 2 * h) / (b * self._width)

    def _look(self) -> None:
        if self._counts[3]:
            self._sums = [
                total + value for total, value in zip(self._sums, self._now(), strict=True)
            ]
            self._n_checkpoints += 1

    def measures(self) -> dict[str, float]:
        """Return the means over the checkpoints; the end of the stream is one too."""
        if not self._counts[3]:
            return {}
        sums, n = self._sums, self._n_checkpoints
        if self.n_items % self.every:
            sums, n = [s + v for s, v in zip(sums, self._now(), strict=True)], n + 1
        return {"micro_f1": sums[0] / n, "hamming_loss": sums[1] / n}


class PlainScores:
    """The measures of :class:`tagstream.metrics.MultiLabelScores` over all answered items.

    Examples
    --------
    >>> scores = PlainScores()
    >>> scores.update(np.array([[1, 0]]), np.zeros((1, 0)))  # no answer yet
    >>> scores.update(np.array([[1, 0], [1, 1]]), np.array([[1, 0], [0, 1]]))
    >>> round(scores.measures()["micro_f1"], 3)
    0.8
    """

    def __init__(self) -> None:
        self._scores = MultiLabelScores()
        self._waiting: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []

    def update(self, Y_true: npt.NDArray[Any], Y_pred: npt.NDArray[Any]) -> None:
        """Count a block of rows of shape (n, q)."""
        if Y_pred.shape[1]:
            self._waiting.append((Y_true, _as_wide(Y_pred, Y_true.shape[1])))
            if len(self._waiting) >= 512:  # counting in blocks is cheap
                self._count()

    def _count(self) -> None:
        if self._waiting:
            trues, preds = zip(*self._waiting, strict=True)
            self._scores.update(np.vstack(trues), np.vstack(preds))
            self._waiting = []

    def measures(self) -> dict[str, float]:
        """Return every measure made of labels, by name."""
        self._count()
        return self._scores.as_dict()


EVALUATORS = {"fading": FadingScores, "plain": PlainScores}


def _as_wide(Y_pred: npt.NDArray[Any], q: int) -> npt.NDArray[np.bool_]:
    """Return predictions as bools of width q: a label that is not mentioned is not predicted."""
    wide = np.zeros((len(Y_pred), q), np.bool_)
    wide[:, : Y_pred.shape[1]] = np.asarray(Y_pred) == 1
    return wide
