"""Two runs over one stream, compared block by block; and new tags before and after a fit."""

from __future__ import annotations

import numpy as np
import pytest

from tagstream.evaluation import evaluate
from tagstream.evaluation.paired import blocks_of, micro_f1_difference
from tagstream.models import KNN
from tagstream.paper.results import Results
from tagstream.paper.tables.newtag import newtag_tables
from tagstream.paper.tables.versions import version_tables


def drawn(n_blocks, share, seed):
    """Return blocks of 100 items with one label each, of which this share is hit."""
    hits = np.random.default_rng(seed).binomial(100, share, n_blocks)
    return {"hit": hits.tolist(), "true": [100] * n_blocks, "pred": [100] * n_blocks}


# ---------------------------------------------------------------------- blocks
def test_blocks_are_the_counts_of_each_hundred_items():
    class Recorded(KNN):
        def predict(self, X, *, next=False):
            made = super().predict(X, next=next)
            asked.append(np.array(made))
            return made

    asked = []
    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 3))
    Y = (X @ rng.normal(size=(3, 4)) > 0.5).astype(np.uint8)
    course = evaluate.prequential(Recorded(), X, Y, batch=10, every=100, window=7, scores=False)
    found = blocks_of(course, Y)
    some = np.zeros_like(Y)  # before anything is learnt nobody is asked
    some[len(Y) - sum(map(len, asked)) :] = np.concatenate(asked)
    for k, rows in enumerate(np.split(np.arange(250), [100, 200])):
        assert found["hit"][k] == (some[rows] & Y[rows]).sum()
        assert found["true"][k] == Y[rows].sum()
        assert found["pred"][k] == some[rows].sum()


def test_the_interval_holds_what_it_says():
    """Of 200 pairs without a difference, about one in twenty has an interval without 0."""
    outside = 0
    for k in range(200):
        gap = micro_f1_difference(drawn(40, 0.6, 2 * k), drawn(40, 0.6, 2 * k + 1))
        outside += not gap.least <= 0 <= gap.most
    assert 2 <= outside <= 22


def test_a_real_difference_is_told_from_chance():
    gap = micro_f1_difference(drawn(40, 0.65, 0), drawn(40, 0.6, 1))
    assert 0 < gap.least < gap.value < gap.most < 0.1
    back = micro_f1_difference(drawn(40, 0.6, 1), drawn(40, 0.65, 0))
    assert (back.value, back.least) == pytest.approx((-gap.value, -gap.most), abs=1e-3)


def test_pairs_matter():
    """Blocks that are hard for both do not make a steady difference unsure."""
    hard = np.random.default_rng(0).integers(20, 80, 40)
    theirs = {"hit": hard.tolist(), "true": [100] * 40, "pred": [100] * 40}
    ours = {**theirs, "hit": (hard + 1).tolist()}
    gap = micro_f1_difference(ours, theirs)
    assert gap.least == pytest.approx(gap.most) == pytest.approx(0.01)


def test_other_streams_are_refused():
    with pytest.raises(ValueError, match="same blocks of the same stream"):
        micro_f1_difference(drawn(40, 0.6, 0), drawn(41, 0.6, 0))


# ---------------------------------------------------------------------- tables
def stream(part, method, blocks, labels):
    old = part == "prequential-0.2"
    result = {"labels": labels} if old else {"counts": {"labels": labels}}
    if blocks is not None:
        result["blocks"] = blocks
    return {
        "part": part, "dataset": "d", "method": method, "title": method.upper(), "result": result,
    }  # fmt: skip


def test_the_table_of_versions_leaves_out_what_is_the_same_and_names_what_is_worse():
    same, good, bad = drawn(40, 0.6, 0), drawn(40, 0.9, 1), drawn(40, 0.3, 2)
    old = [stream("prequential-0.2", m, same, {"hit": [1]}) for m in ("b", "c")]
    old += [stream("prequential-0.2", m, None, {"hit": [1]}) for m in ("a", "d", "f")]
    new = [
        stream("prequential", m, blocks, {"hit": [hit]})
        for m, blocks, hit in (
            *(("a", same, 1), ("b", good, 2), ("c", bad, 0), ("d", good, 2)),
            *(("e", same, 1), ("f", None, 1)),  # not of 0.2, and not run by this version
        )
    ]
    made = version_tables(Results({"prequential-0.2": old, "prequential": new}))
    assert [row[1] for row in made["versions"].rows] == ["B", "C"]
    told = made["verdict_versions"]
    assert told.startswith("**Some are worse.** Of 4 streams, 1 have the hits and predictions of")
    assert "1 are better beyond chance, 1 worse: d, c (-0.2" in told
    assert told.endswith("; not compared yet: d, d.")
    assert version_tables(Results({"prequential": new})) == {}


def look(before, after):
    names = ("recall_at_same_price", "recall", "false_alarms")
    return {
        "before": [dict.fromkeys(names, before)],
        "after": [dict.fromkeys(names, after)],
    }


@pytest.mark.parametrize(
    ("pairs", "begins"),
    [
        ([(0.5, 0.6), (0.5, 0.62)], "**A new tag survives the fit**"),
        ([(0.5, 0.3), (0.5, 0.29)], "**A new tag does not survive everywhere**"),
        ([(0.5, 0.3), (0.5, 0.69)], "**A new tag survives the fit**: at equal false alarms recall "
                                    "does not fall in 0 of 1 cells, and nowhere beyond chance."),
    ],
)  # fmt: skip
def test_the_verdict_on_new_tags_follows_from_the_looks(pairs, begins):
    result = {"counts": [10], "looks": [look(*pair) for pair in pairs]}
    record = {"part": "newtag", "dataset": "d", "method": "oml", "title": "OML", "result": result}
    made = newtag_tables(Results({"newtag": [record]}))
    assert made["verdict_newtag"].startswith(begins)
    assert made["newtag"].rows[0][:3] == ("d", "10", "2")
