"""The evaluators of two studies: against their definitions, and against river where it is there."""

from __future__ import annotations

import numpy as np
import pytest

from tagstream import prequential
from tagstream.evaluation.evaluators import FadingScores, PlainScores


def draws(n=257, q=5, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.random((n, q)) < 0.3).astype(np.uint8), (rng.random((n, q)) < 0.3).astype(np.uint8)


def faded_by_definition(Y, Z, alpha, every):
    """Micro-F1 of weighted counts, Hamming loss of weighted items; means over the checkpoints."""
    n, q = Y.shape
    looks = sorted({*range(every, n + 1, every), n})
    f1, loss = [], []
    for t in looks:
        w = alpha ** np.arange(t - 1, -1, -1.0)
        tp, fp, fn = (w @ M[:t].sum(axis=1) for M in (Y & Z, Z & ~Y & 1, Y & ~Z & 1))
        f1.append(2 * tp / (2 * tp + fp + fn))
        loss.append((w @ (Y[:t] != Z[:t]).sum(axis=1)) / (w.sum() * q))
    return np.mean(f1), np.mean(loss)


@pytest.mark.parametrize("cut", [1, 7, 257])
def test_fading_counts_are_those_of_the_definition_however_they_are_cut(cut):
    Y, Z = draws()
    scores = FadingScores()
    for i in range(0, len(Y), cut):
        scores.update(Y[i : i + cut], Z[i : i + cut])
    f1, loss = faded_by_definition(Y, Z, 0.995, 100)
    assert scores.measures() == pytest.approx({"micro_f1": f1, "hamming_loss": loss})


@pytest.mark.parametrize("make", [FadingScores, PlainScores])
def test_an_item_without_an_answer_is_not_counted(make):
    Y, Z = draws()
    with_gap, without = make(), make()
    with_gap.update(Y[:1], np.zeros((1, 0)))
    assert with_gap.measures() == {}
    for scores in (with_gap, without):
        scores.update(Y[:60], Z[:60])  # fewer than a checkpoint
    assert with_gap.measures() == without.measures()


def test_the_fading_evaluator_agrees_with_the_fading_measures_of_prequential():
    class Last:
        """Predicts the labels of the item before."""

        def partial_fit(self, X, Y):
            self.labels = Y[-1:]

        def predict(self, X):
            return self.labels

    Y, _ = draws(350)
    scores = FadingScores()
    Last_, X = Last(), np.zeros((350, 1))
    Last_.partial_fit(X[:1], Y[:1])
    result = prequential(
        Last_, X, Y, fading=0.995, every=100, watch=lambda t, p, _: scores.update(t, p)
    )
    assert scores.measures() == pytest.approx(result.fading)


def test_plain_sums_are_rivers():
    metrics = pytest.importorskip("river.metrics")
    wraps = metrics.multioutput
    theirs = {
        "micro_f1": wraps.MicroAverage(metrics.F1()),
        "macro_f1": wraps.MacroAverage(metrics.F1()),
        "example_f1": wraps.SampleAverage(metrics.F1()),
        "subset_accuracy": wraps.ExactMatch(),
    }
    Y, Z = draws(80)
    scores = PlainScores()
    scores.update(Y, Z)
    for y, z in zip(Y.astype(bool).tolist(), Z.astype(bool).tolist(), strict=True):
        for metric in theirs.values():
            metric.update(dict(enumerate(y)), dict(enumerate(z)))
    ours = scores.measures()
    assert {name: ours[name] for name in theirs} == pytest.approx(
        {name: metric.get() for name, metric in theirs.items()}
    )
    assert ours["hamming_loss"] == pytest.approx((Y != Z).mean())


def test_what_is_taught_may_differ_from_what_is_measured():
    seen = []

    class Keeps:
        def partial_fit(self, X, Y):
            seen.append(Y.copy())

        def predict(self, X):
            return np.ones((len(X), 2))

    Y = np.ones((3, 2), np.uint8)
    taught = np.array([[1, np.nan], [np.nan, 1], [1, 1]])
    result = prequential(Keeps(), np.zeros((3, 1)), Y, taught=taught)
    assert result.measures["micro_f1"] == 1.0
    np.testing.assert_array_equal(np.vstack(seen), taught)
    with pytest.raises(ValueError, match="taught must have the shape"):
        prequential(Keeps(), np.zeros((3, 1)), Y, taught=taught[:, :1])
