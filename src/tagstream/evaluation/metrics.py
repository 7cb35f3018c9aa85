"""Streaming measures of multi-label predictions.

:class:`MultiLabelScores` sees a stream once, keeps counts of size O(q), and gives at any time
what scikit-learn gives on everything seen so far. What scikit-learn does not know is settled here:

* **Labels may appear late.** Rows seen before are taken to be zero in the new columns: not
  relevant, not predicted. Their score there is "none", which ranks below every score.
* **Entries may be unknown** (NaN, or False in ``known``). They enter no measure. A row, or a label,
  of which nothing is known does not count at all.
* **Counts before measures.** Counts add up (chunks, processes, folds) and go to JSON; measures are
  computed when asked for.

Symbols, for one row: Y the relevant labels, Z the predicted ones, both among the m known labels;
s_j the score of label j. 0/0 is 0, as with scikit-learn's ``zero_division=0``.

=====================  ==========================================================================
hamming_loss           wrong known entries / known entries
subset_accuracy        mean of [Y = Z]
example_precision      mean of \\|Y∩Z\\| / \\|Z\\|
example_recall         mean of \\|Y∩Z\\| / \\|Y\\|
example_f1             mean of 2\\|Y∩Z\\| / (\\|Y\\| + \\|Z\\|)
example_jaccard        mean of \\|Y∩Z\\| / \\|Y∪Z\\|
macro_*                the same four per label, over the rows; then the mean over labels
micro_*                the same four over all known entries at once
precision_at_k         mean of \\|Y ∩ k best scored\\| / k
ndcg_at_k              mean of DCG / best DCG, DCG = Σ_{r≤k} [r-th best ∈ Y] / log₂(r + 1)
one_error              mean of [best scored ∉ Y] = 1 − precision_at_1
ranking_loss           mean of \\|{(i, j) ∈ Y × Yᶜ : s_i ≤ s_j}\\| / (\\|Y\\| \\|Yᶜ\\|)
coverage               mean of max_{i∈Y} \\|{j : s_j ≥ s_i}\\|  (scikit-learn's, counted from 1)
lrap                   mean of mean_{i∈Y} \\|{j ∈ Y : s_j ≥ s_i}\\| / \\|{j : s_j ≥ s_i}\\|
log_loss               mean of −ln max(p, 10⁻⁶) over known entries, where p is the probability
                       given to what is true: s_j if j ∈ Y, else 1 − s_j
calibration_error      Σ_b \\|Σ_{entries of bin b} (s_j − [j ∈ Y])\\| / known entries; entries
                       with b/15 ≤ s_j < (b + 1)/15 are in bin b = 0 … 14; s_j = 1 in the last
=====================  ==========================================================================

Ties: the last three count a tie against the learner (``≥``, ``≤`` above), as scikit-learn does; the
measures "at k" and one_error take the mean over all orders of the tied labels, as scikit-learn's
``ndcg_score`` does. A row without relevant labels has lrap 1, ranking_loss 0, coverage 0 and
one_error 1. A label without a score is never among the k best.

The last two are about probabilities, pooled over all entries (rows and labels alike): they are
given if all scores lie between 0 and 1. A label without a score was given the probability 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MultiLabelScores"]

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_BLOCK = 1 << 18  # cells worked on at once: bounds the temporaries, and stays in the cache

_BINS = 15  # of the calibration error
_LEAST = 1e-6  # the smallest probability of the truth that the log loss counts
_SLACK = 1e-6  # by which a probability may leave [0, 1]: float32 sums

# Names of the per-row numbers that are summed; two more per k follow (hits_at_k, ndcg_at_k).
_SUMS = (
    "rows",
    "exact",
    "example_precision",
    "example_recall",
    "example_f1",
    "example_jaccard",
    "scored",
    "one_error",
    "lrap",
    "coverage",
    # Rows with a relevant label without a score: their coverage is q − unknown, whatever q becomes.
    "open_rows",
    "open_unknown",
    # Rows whose scores are probabilities, and their unknown entries; Σ (s − y) by bin of s.
    "probable_rows",
    "probable_unknown",
    "log_loss",
    *(f"bias_{b}" for b in range(_BINS)),
)
_LABEL_COUNTS = ("hit", "true", "pred", "unknown")
_N_EXAMPLE = _SUMS.index("scored")
_PROBABLE = slice(_SUMS.index("probable_rows"), len(_SUMS))


@dataclass
class _Rows:
    """What n rows contribute, row by row: the form a sliding window has to keep.

    ``codes`` (n, q) is true + 2·pred + 4·unknown; ``sums`` (n, S) the columns of ``_SUMS``;
    ``keys`` (n, 2) and ``parts`` (n, 3) the terms of ``_Totals.open``.
    """

    codes: npt.NDArray[np.uint8]
    sums: Floats
    keys: Ints
    parts: Floats

    def total(self) -> _Totals:
        q = self.codes.shape[1]
        true, pred, unknown = ((self.codes & bit).astype(bool) for bit in (1, 2, 4))
        counts = [M.sum(axis=0) for M in (true & pred, true, pred, unknown)]
        lost, unscored, b = self.parts.T
        open_ = np.zeros((3, q + 1))
        if self.parts.any():
            open_[0] = np.bincount(self.keys[:, 0], lost, q + 1)
            open_[1] = np.bincount(self.keys[:, 0], unscored, q + 1)
            open_[2] = np.bincount(self.keys[:, 1], b, q + 1)
        return _Totals(np.array(counts, dtype=np.int64), self.sums.sum(axis=0), open_)


@dataclass
class _Totals:
    """Sums over rows: everything a measure needs, additive, of size O(q).

    ``labels`` (4, q) holds the rows of ``_LABEL_COUNTS``; ``sums`` (S,) the columns of ``_SUMS``.
    ``open`` (3, q + 1) holds what depends on the final number of labels q, by the number of labels
    that do *not* depend on it. With a = \\|Y\\|, e unknown entries and b relevant labels without a
    score, a row adds at a + e its wrongly ordered pairs / a and its b / a, and at e its b; for then

        ranking loss = pairs / (a (q − a − e)) + b / a   (0 if q = a + e),   LRAP = … + b / (q − e).
    """

    labels: Ints
    sums: Floats
    open: Floats

    def __add__(self, other: _Totals) -> _Totals:
        q = max(self.labels.shape[1], other.labels.shape[1])
        return _Totals(
            _widen(self.labels, q) + _widen(other.labels, q),
            self.sums + other.sums,
            _widen(self.open, q + 1) + _widen(other.open, q + 1),
        )


class MultiLabelScores:
    """Measures of a stream of multi-label predictions, in one pass and O(q) memory.

    Parameters
    ----------
    window : int or None, default=None
        Measure only the last ``window`` rows, exactly. Memory is then O(window · q): one byte per
        entry and some 350 bytes per row; asking for the measures costs O(window · q).
    k : int or sequence of int, default=(1, 3, 5)
        Depths of ``precision_at_k`` and ``ndcg_at_k``.

    Examples
    --------
    >>> scores = MultiLabelScores(k=1)
    >>> scores.update([[1, 0], [1, 1]], [[1, 0], [0, 1]])
    MultiLabelScores(n_rows=2, n_labels=2)
    >>> scores["hamming_loss"], round(scores["micro_f1"], 3)
    (0.25, 0.8)

    A third label appears; the learner knows nothing of it yet. Its second label is unknown.

    >>> _ = scores.update([[0, float("nan"), 1]], [[1, 0]], scores=[[0.9, 0.2]])
    >>> scores["hamming_loss"]  # 3 of 8 known entries, those of the earlier rows included
    0.375
    >>> scores["ranking_loss"], scores["coverage"]
    (1.0, 2.0)
    """

    def __init__(self, *, window: int | None = None, k: int | Sequence[int] = (1, 3, 5)) -> None:
        ks = (k,) if isinstance(k, int | np.integer) else tuple(k)
        if not ks or any(not _is_positive_int(depth) for depth in ks):
            raise ValueError(f"k must hold positive integers, got {k!r}")
        if window is not None and not _is_positive_int(window):
            raise ValueError(f"window must be a positive integer or None, got {window!r}")
        self.window = window
        self.k = tuple(sorted({int(depth) for depth in ks}))
        n_sums = len(_SUMS) + 2 * len(self.k)
        self._totals = _Totals(np.zeros((4, 0), np.int64), np.zeros(n_sums), np.zeros((3, 1)))
        self._recent = None if window is None else _Ring(int(window), n_sums)

    @property
    def n_rows(self) -> int:
        """Number of rows measured: at most ``window``; a row wholly unknown does not count."""
        return int(self._totals.sums[0]) if self._recent is None else self._recent.n_rows

    @property
    def n_labels(self) -> int:
        """Number of labels q: the largest width seen."""
        return int(self._totals.labels.shape[1])

    def update(
        self,
        Y_true: Any,
        Y_pred: Any,
        scores: Any = None,
        *,
        known: Any = None,
    ) -> MultiLabelScores:
        """Count a block of rows; cost O(n q), with scores O(n q log q).

        Parameters
        ----------
        Y_true : array-like or sparse of shape (n, q) or (q,)
            Relevant labels as 0/1; NaN, or masked, where unknown.
        Y_pred : array-like or sparse of shape (n, q') or (q',)
            Predicted labels as 0/1.
        scores : array-like of shape (n, q'') or (q'',), optional
            The larger, the more likely; −inf means "no score". Rows without scores do not enter the
            measures made of them. Scores between 0 and 1 are taken for probabilities.
        known : array-like of bool, shape of Y_true, optional
            False where the entry of ``Y_true`` is unknown.

        Returns
        -------
        MultiLabelScores
            This object. Widths may differ: missing columns are zeros, missing scores are −inf.

        Raises
        ------
        ValueError
            If a value is not allowed or row counts differ; nothing has been counted then.
        """
        blocks = _blocks(
            _as_rows(Y_true, "Y_true"),
            _as_rows(Y_pred, "Y_pred"),
            None if scores is None else _as_rows(scores, "scores"),
            None if known is None else _as_rows(known, "known"),
        )
        for rows in [_measure(*block, self.k) for block in blocks]:  # all checked before any counts
            if self._recent is None:
                self._totals = self._totals + rows.total()
            else:
                q = max(self.n_labels, rows.codes.shape[1])
                self._totals.labels = _widen(self._totals.labels, q)
                self._recent.push(rows)
        return self

    def merge(self, other: MultiLabelScores) -> MultiLabelScores:
        """Add the counts of ``other``, as if its rows had been seen here too.

        Examples
        --------
        >>> morning = MultiLabelScores().update([[1, 0]], [[1, 0]])
        >>> evening = MultiLabelScores().update([[0, 1]], [[0, 0]])
        >>> morning.merge(evening)["subset_accuracy"]
        0.5
        """
        if not isinstance(other, MultiLabelScores):
            raise TypeError(f"other must be MultiLabelScores, got {type(other).__name__}")
        if self.window is not None:
            raise ValueError(
                f"window must be None to merge, got {self.window}; the order of the rows is unknown"
            )
        if self.k != other.k:
            raise ValueError(f"other must have k={self.k}, got {other.k}")
        self._totals = self._totals + other._total()
        return self

    def __iadd__(self, other: MultiLabelScores) -> MultiLabelScores:
        return self.merge(other)

    def __add__(self, other: MultiLabelScores) -> MultiLabelScores:
        return MultiLabelScores.from_counts(self.to_counts()).merge(other)

    def as_dict(self) -> dict[str, float]:
        """Every measure that has a row behind it, by name; see the module for the formulas.

        Returns
        -------
        dict of str to float
            Empty before the first row; without the measures made of scores before the first row
            that has them, and without those that need a sum which stored counts did not have.

        Examples
        --------
        >>> scores = MultiLabelScores(k=2).update([[1, 0, 1]], [[1, 1, 0]], [[0.9, 0.6, 0.1]])
        >>> {name: round(value, 3) for name, value in scores.as_dict().items()}
        {'hamming_loss': 0.667, 'subset_accuracy': 0.0, 'micro_precision': 0.5, 'micro_recall': 0.5,
         'micro_f1': 0.5, 'micro_jaccard': 0.333, 'macro_precision': 0.333, 'macro_recall': 0.333,
         'macro_f1': 0.333, 'macro_jaccard': 0.333, 'example_precision': 0.5, 'example_recall': 0.5,
         'example_f1': 0.5, 'example_jaccard': 0.333, 'precision_at_2': 0.5, 'ndcg_at_2': 0.613,
         'one_error': 0.0, 'ranking_loss': 0.5, 'coverage': 3.0, 'lrap': 0.833, 'log_loss': 1.108,
         'calibration_error': 0.533}
        """
        total = self._total()
        if total.sums[0] == 0:
            return {}
        measures = _label_measures(total)
        if total.sums[_N_EXAMPLE] > 0:
            measures |= _score_measures(total, self.k)
        # NaN is a sum that old counts do not have: an absent sum is an absent measure.
        return {name: float(value) for name, value in measures.items() if not np.isnan(value)}

    def __getitem__(self, measure: str) -> float:
        measures = self.as_dict()
        if measure not in measures:
            raise KeyError(
                f"measure must be one of {', '.join(measures) or '(none)'}, got {measure}"
            )
        return measures[measure]

    def per_label(self, labels: Sequence[Any] | None = None) -> list[dict[str, Any]]:
        """One row per label: its counts and its precision, recall, F1 and Jaccard index.

        Parameters
        ----------
        labels : sequence of length q, optional
            Names of the labels; their column numbers by default.

        Returns
        -------
        list of dict
            Keys ``label``, ``n_known``, ``n_true``, ``n_pred``, ``n_hit``, ``precision``,
            ``recall``, ``f1``, ``jaccard``. A data frame takes it as it is.

        Examples
        --------
        >>> scores = MultiLabelScores().update([[1, 0], [1, 1]], [[1, 0], [0, 1]])
        >>> for row in scores.per_label(["sea", "sky"]):
        ...     print(row["label"], row["n_true"], row["n_hit"], round(row["f1"], 2))
        sea 2 1 0.67
        sky 1 1 1.0
        """
        total = self._total()
        names = range(self.n_labels) if labels is None else labels
        if len(names) != self.n_labels:
            raise ValueError(f"labels must have length {self.n_labels}, got {len(names)}")
        hit, true, pred, unknown = total.labels
        columns: dict[str, npt.NDArray[Any]] = {
            "n_known": int(total.sums[0]) - unknown,
            "n_true": true,
            "n_pred": pred,
            "n_hit": hit,
            **_four(hit, true, pred),
        }
        lists = {name: column.tolist() for name, column in columns.items()}
        return [
            {"label": label, **{name: column[j] for name, column in lists.items()}}
            for j, label in enumerate(names)
        ]

    def to_counts(self) -> dict[str, Any]:
        """Return the raw counts as plain lists and numbers, for a JSON record; size O(q).

        Examples
        --------
        >>> counts = MultiLabelScores(k=1).update([[1, 0]], [[1, 1]]).to_counts()
        >>> counts["labels"]
        {'hit': [1, 0], 'true': [1, 0], 'pred': [1, 1], 'unknown': [0, 0]}
        >>> MultiLabelScores.from_counts(counts)["hamming_loss"]
        0.5
        """
        total = self._total()
        filled = np.flatnonzero(total.open.any(axis=0))
        return {
            "k": list(self.k),
            "labels": dict(zip(_LABEL_COUNTS, total.labels.tolist(), strict=True)),
            "sums": {
                name: value
                for name, value in zip(_sum_names(self.k), total.sums.tolist(), strict=True)
                if not np.isnan(value)
            },
            "open": [[int(key), *total.open[:, key].tolist()] for key in filled],
        }

    @classmethod
    def from_counts(cls, counts: Mapping[str, Any]) -> MultiLabelScores:
        """Rebuild from :meth:`to_counts`; the result has no window and can be merged.

        Counts may come from a version that had fewer sums or more: an absent sum is an absent
        measure, here and in everything that these counts are merged into; a sum that is not known
        is passed over.

        Examples
        --------
        >>> counts = MultiLabelScores(k=1).update([[1, 0]], [[1, 1]]).to_counts()
        >>> del counts["sums"]["exact"]
        >>> measures = MultiLabelScores.from_counts(counts).as_dict()
        >>> "subset_accuracy" in measures, measures["hamming_loss"]
        (False, 0.5)
        """
        scores = cls(k=counts["k"])
        if "rows" not in counts["sums"]:
            raise ValueError(f"sums must have the key rows, got {tuple(counts['sums'])}")
        labels = np.array([counts["labels"][name] for name in _LABEL_COUNTS], dtype=np.int64)
        open_ = np.zeros((3, labels.shape[1] + 1))
        for key, *values in counts["open"]:
            open_[:, key] = values
        # Where no row had scores, every sum over scores is 0, also one that was not yet known.
        absent = 0.0 if counts["sums"].get("scored") == 0 else np.nan
        fill = dict.fromkeys(_SUMS[:_N_EXAMPLE], np.nan)
        names = _sum_names(scores.k)
        sums = np.array([counts["sums"].get(name, fill.get(name, absent)) for name in names])
        scores._totals = _Totals(labels, sums, open_)
        return scores

    def __repr__(self) -> str:
        return f"MultiLabelScores(n_rows={self.n_rows}, n_labels={self.n_labels})"

    def _total(self) -> _Totals:
        if self._recent is None:
            return self._totals
        return self._totals + self._recent.rows().total()


class _Ring:
    """The last ``size`` rows, oldest overwritten first."""

    def __init__(self, size: int, n_sums: int) -> None:
        self.size = size
        self.n_seen = 0
        self._kept = _Rows(
            np.zeros((size, 0), np.uint8),
            np.zeros((size, n_sums)),
            np.zeros((size, 2), np.int64),
            np.zeros((size, 3)),
        )

    def push(self, rows: _Rows) -> None:
        kept, (n, q) = self._kept, rows.codes.shape
        kept.codes = _widen(kept.codes, q)
        new = slice(max(n - self.size, 0), n)
        at = (self.n_seen + np.arange(n)[new]) % self.size
        kept.codes[at] = _widen(rows.codes[new], kept.codes.shape[1])
        kept.sums[at] = rows.sums[new]
        kept.keys[at] = rows.keys[new]
        kept.parts[at] = rows.parts[new]
        self.n_seen += n

    @property
    def n_rows(self) -> int:
        return min(self.n_seen, self.size)

    def rows(self) -> _Rows:
        kept, n = self._kept, self.n_rows
        return _Rows(kept.codes[:n], kept.sums[:n], kept.keys[:n], kept.parts[:n])


def _label_measures(total: _Totals) -> dict[str, Any]:
    hit, true, pred, unknown = total.labels
    n = total.sums[0]
    n_known = n * hit.size - unknown.sum()
    n_wrong = (true + pred - 2 * hit).sum()
    seen = unknown < n
    measures = {
        "hamming_loss": n_wrong / max(n_known, 1),
        "subset_accuracy": total.sums[1] / n,
    }
    micro = _four(hit.sum(), true.sum(), pred.sum())
    measures |= {f"micro_{name}": value for name, value in micro.items()}
    for name, values in _four(hit[seen], true[seen], pred[seen]).items():
        measures[f"macro_{name}"] = values.mean() if values.size else 0.0
    measures |= dict(zip(_SUMS[2:_N_EXAMPLE], total.sums[2:_N_EXAMPLE] / n, strict=True))
    return measures


def _score_measures(total: _Totals, ks: tuple[int, ...]) -> dict[str, Any]:
    q = total.labels.shape[1]
    named = dict(zip(_sum_names(ks), total.sums, strict=True))
    n = named["scored"]
    # Terms of _Totals.open, now that q is known.
    n_left = q - np.arange(q)
    lost = (total.open[0, :q] / n_left + total.open[1, :q]).sum()
    late = (total.open[2, :q] / n_left).sum()
    coverage = named["coverage"] + named["open_rows"] * q - named["open_unknown"]
    measures = {
        **{f"precision_at_{k}": named[f"hits_at_{k}"] / n / k for k in ks},
        **{f"ndcg_at_{k}": named[f"ndcg_at_{k}"] / n for k in ks},
        "one_error": named["one_error"] / n,
        "ranking_loss": lost / n,
        "coverage": coverage / n,
        "lrap": (named["lrap"] + late) / n,
    }
    if named["probable_rows"] == n:
        # A label that came later adds an entry with s = 0 and y = 0: nothing but the entry.
        n_known = max(n * q - named["probable_unknown"], 1)
        bias = np.array([named[f"bias_{b}"] for b in range(_BINS)])
        measures["log_loss"] = named["log_loss"] / n_known
        measures["calibration_error"] = np.abs(bias).sum() / n_known
    return measures


def _four(hit: Any, true: Any, pred: Any) -> dict[str, Any]:
    """Precision, recall, F1 and Jaccard index of counts; hit = 0 wherever a denominator is."""
    return {
        "precision": hit / np.maximum(pred, 1),
        "recall": hit / np.maximum(true, 1),
        "f1": 2 * hit / np.maximum(true + pred, 1),
        "jaccard": hit / np.maximum(true + pred - hit, 1),
    }


def _measure(
    true: Bools, pred: Bools, scores: Floats | None, unknown: Bools | None, ks: tuple[int, ...]
) -> _Rows:
    """Contribution of each row; arrays of shape (n, q), unknown entries False and without score."""
    n = len(true)
    n_true, n_pred, n_hit = (M.sum(axis=1) for M in (true, pred, true & pred))
    sums = np.zeros((n, len(_SUMS) + 2 * len(ks)))
    sums[:, 0] = 1
    sums[:, 1] = (n_hit == n_true) & (n_hit == n_pred)
    sums[:, 2:_N_EXAMPLE] = np.array(list(_four(n_hit, n_true, n_pred).values())).T
    codes = true.view(np.uint8) + 2 * pred.view(np.uint8)
    keys, parts = np.zeros((n, 2), np.int64), np.zeros((n, 3))
    n_unknown = np.zeros(n, np.int64)
    if unknown is not None:
        codes += 4 * unknown.view(np.uint8)
        n_unknown = unknown.sum(axis=1)
    if scores is not None:
        sums[:, _N_EXAMPLE:], parts = _rank(
            _widen(true, scores.shape[1]), scores, n_true, n_unknown, ks
        )
        sums[:, _PROBABLE] = _calibration(true, scores, n_unknown)
        keys = np.array([n_true + n_unknown, n_unknown]).T
    return _Rows(codes, sums, keys, parts)


def _rank(
    true: Bools, scores: Floats, n_true: Ints, n_unknown: Ints, ks: tuple[int, ...]
) -> tuple[Floats, Floats]:
    """Columns of ``_SUMS`` from "scored" on, and the ``parts``; see ``_Totals`` for the latter."""
    n, q = scores.shape
    row = np.arange(n)[:, None]
    order = np.argsort(-scores, axis=1)
    s = scores[row, order]
    y = true[row, order] & (s > -np.inf)
    first, last = _tie_groups(s)
    n_above = np.cumsum(y, axis=1)
    hits = n_above[row, last]  # |{j ∈ Y : s_j ≥ s_i}|
    rank = last + 1  # |{j : s_j ≥ s_i}|
    n_late = n_true - n_above[:, -1]
    size = np.maximum(n_true, 1)

    out = np.zeros((n, len(_SUMS) - _N_EXAMPLE + 2 * len(ks)))
    at = {name: j - _N_EXAMPLE for j, name in enumerate(_sum_names(ks))}
    out[:, at["scored"]] = 1
    out[:, at["lrap"]] = np.where(n_true > 0, (y * hits / rank).sum(axis=1) / size, 1.0)
    out[:, at["coverage"]] = np.where(n_late == 0, (y * rank).max(axis=1), 0)
    out[:, at["open_rows"]] = n_late > 0
    out[:, at["open_unknown"]] = np.where(n_late > 0, n_unknown, 0)
    n_wrong = (y * (rank - hits)).sum(axis=1)
    parts = np.array([n_wrong / size, n_late / size, n_late]).T

    # Mean relevance of the tie group at each of the first ranks.
    depth = min(ks[-1], q)
    first, last = first[:, :depth], last[:, :depth]
    before = np.where(first > 0, n_above[row, first - 1], 0)
    gain = (hits[:, :depth] - before) / (last - first + 1)
    discount = 1 / np.log2(np.arange(2, ks[-1] + 2))
    ideal = np.cumsum(discount)
    out[:, at["one_error"]] = 1 - gain[:, 0]
    for k in ks:
        out[:, at[f"hits_at_{k}"]] = gain[:, :k].sum(axis=1)
        best = ideal[np.minimum(size, k) - 1]
        out[:, at[f"ndcg_at_{k}"]] = gain[:, :k] @ discount[: min(k, depth)] / best
    return out, parts


def _calibration(true: Bools, scores: Floats, n_unknown: Ints) -> Floats:
    """Columns of ``_SUMS`` from "probable_rows" on; rows with a score outside [0, 1] are zero."""
    n, q = scores.shape
    true = _widen(true, q)
    given = scores > -np.inf
    odd = given & ((scores < -_SLACK) | (scores > 1 + _SLACK))
    fine: Bools = np.asarray(~odd.any(axis=1))
    p = np.where(given & fine[:, None], np.clip(scores, 0.0, 1.0), 0.0)
    said = np.where(true, p, 1 - p)  # 1 where the entry is unknown: there p = 0 and true is False
    cell = np.arange(n)[:, None] * _BINS + np.minimum((p * _BINS).astype(np.int64), _BINS - 1)
    bias = np.bincount(cell.ravel(), (p - true).ravel(), n * _BINS).reshape(n, _BINS)
    lost = -np.log(np.maximum(said, _LEAST)).sum(axis=1)
    columns = np.column_stack([np.ones(n), n_unknown, lost, bias])
    return np.where(fine[:, None], columns, 0.0)


def _tie_groups(s: Floats) -> tuple[Ints, Ints]:
    """First and last position of the run of equal values each entry of the sorted rows is in."""
    q = s.shape[1]
    position = np.arange(q)
    starts = np.ones(s.shape, bool)
    starts[:, 1:] = s[:, 1:] != s[:, :-1]
    ends = np.ones(s.shape, bool)
    ends[:, :-1] = starts[:, 1:]
    first = np.maximum.accumulate(np.where(starts, position, 0), axis=1)
    last = np.minimum.accumulate(np.where(ends, position, q)[:, ::-1], axis=1)[:, ::-1]
    return first, last


def _blocks(
    Y_true: Any, Y_pred: Any, scores: Any, known: Any
) -> Iterator[tuple[Bools, Bools, Floats | None, Bools | None]]:
    """Checked blocks of rows, of one width, without the rows of which nothing is known."""
    n = Y_true.shape[0]
    given = {"Y_pred": Y_pred, "scores": scores, "known": known}
    for what, rows in given.items():
        if rows is not None and rows.shape[0] != n:
            raise ValueError(f"{what} must have {n} rows like Y_true, got {rows.shape[0]}")
    if n == 0:
        raise ValueError("Y_true must have at least one row, got 0")
    if known is not None and known.shape != Y_true.shape:
        raise ValueError(f"known must have the shape {Y_true.shape} of Y_true, got {known.shape}")
    q = max(rows.shape[1] for rows in (Y_true, Y_pred, scores) if rows is not None)
    step = max(1, _BLOCK // max(q, 1))
    for start in range(0, n, step):
        part = slice(start, start + step)
        true, unknown = _binary(Y_true[part], "Y_true", nan_allowed=True)
        pred, _ = _binary(Y_pred[part], "Y_pred")
        ranked = None if scores is None else _checked_scores(scores[part], max(q, 1))
        if known is not None:
            hidden = ~_binary(known[part], "known")[0]
            unknown = hidden if unknown is None else unknown | hidden
        if unknown is None or not unknown.any():
            yield _widen(true, q), _widen(pred, q), ranked, None
            continue
        keep = ~unknown.all(axis=1)
        unknown = _widen(unknown[keep], q)
        true, pred = (_widen(M[keep], q) & ~unknown for M in (true, pred))
        if ranked is not None:
            ranked = np.where(unknown, -np.inf, ranked[keep])
        yield true, pred, ranked, unknown


def _as_rows(Y: Any, what: str) -> Any:
    """Two-dimensional array, or CSR; one row if ``Y`` is one-dimensional."""
    if hasattr(Y, "tocsr"):
        return Y.tocsr()
    rows = np.ma.filled(Y.astype(float), np.nan) if np.ma.isMaskedArray(Y) else np.asarray(Y)
    if rows.dtype == object:
        try:
            rows = rows.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{what} must be an array of numbers, got {Y!r:.60}") from None
    if rows.ndim == 1:
        rows = rows[None]
    if rows.ndim != 2:
        raise ValueError(f"{what} must have shape (n, q) or (q,), got {rows.shape}")
    if rows.dtype.kind not in "biuf":
        raise ValueError(f"{what} must be an array of numbers, got dtype {rows.dtype}")
    return rows


def _dense(rows: Any) -> npt.NDArray[Any]:
    dense: npt.NDArray[Any] = rows if isinstance(rows, np.ndarray) else rows.toarray()
    return dense


def _binary(rows: Any, what: str, *, nan_allowed: bool = False) -> tuple[Bools, Bools | None]:
    """Entries equal to 1, and, if there are any, entries that are NaN."""
    values = _dense(rows)
    if values.dtype == bool:
        return values, None
    on = values == 1
    wrong = ~(on | (values == 0))
    if not wrong.any():
        return on, None
    if nan_allowed and values.dtype.kind == "f":
        unknown = np.isnan(values)
        wrong &= ~unknown
        if not wrong.any():
            return on, unknown
    rule = "0, 1 and NaN" if nan_allowed else "0 and 1"
    raise ValueError(f"{what} must hold only {rule}, got {values[wrong][0]}")


def _checked_scores(rows: Any, q: int) -> Floats:
    values = _dense(rows).astype(np.float64)
    if np.isnan(values).any():
        raise ValueError("scores must hold no NaN, got NaN; use -inf for a label without a score")
    return _widen(values, q, -np.inf)


def _widen(M: npt.NDArray[Any], q: int, fill: float = 0) -> npt.NDArray[Any]:
    """``M`` with columns of ``fill`` added on the right up to width q."""
    if M.shape[1] >= q:
        return M
    wide = np.full((M.shape[0], q), fill, dtype=M.dtype)
    wide[:, : M.shape[1]] = M
    return wide


def _sum_names(ks: tuple[int, ...]) -> tuple[str, ...]:
    return (*_SUMS, *(f"hits_at_{k}" for k in ks), *(f"ndcg_at_{k}" for k in ks))


def _is_positive_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value > 0)
