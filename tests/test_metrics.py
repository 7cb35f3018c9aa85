"""Streaming measures against scikit-learn, and against sums written out as loops."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise, permutations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from tagstream.metrics import MultiLabelScores

KS = (1, 2, 4)
NONE = -1.0  # below every score of these tests: what a label without a score stands for


# ---- reference ----


def pad(blocks, fill):
    q = max(block.shape[1] for block in blocks)
    return np.vstack(
        [np.pad(b, ((0, 0), (0, q - b.shape[1])), constant_values=fill) for b in blocks]
    )


def ratio(a, b):
    return a / b if b else 0.0


def by_four(Y, Z):
    """Precision, recall, F1, Jaccard index of two sets."""
    both = len(Y & Z)
    return {
        "precision": ratio(both, len(Z)),
        "recall": ratio(both, len(Y)),
        "f1": ratio(2 * both, len(Y) + len(Z)),
        "jaccard": ratio(both, len(Y | Z)),
    }


def mean_over_orders(s, value):
    """Mean of value(ranking) over all rankings by falling s."""
    rankings = [r for r in permutations(s) if all(s[i] >= s[j] for i, j in pairwise(r))]
    return float(np.mean([value(ranking) for ranking in rankings]))


def naive_row(Y, s):
    """Measures of one row made of scores; s holds the known labels only, NONE for "no score"."""
    out = {}
    ranked = {j: v for j, v in s.items() if v > NONE}
    for k in KS:
        best = sum(1 / np.log2(r + 2) for r in range(min(k, len(Y))))
        out[f"precision_at_{k}"] = mean_over_orders(
            ranked, lambda r, k=k: sum(j in Y for j in r[:k]) / k
        )
        dcg = mean_over_orders(
            ranked, lambda r, k=k: sum((j in Y) / np.log2(i + 2) for i, j in enumerate(r[:k]))
        )
        out[f"ndcg_at_{k}"] = ratio(dcg, best)
    out["one_error"] = mean_over_orders(ranked, lambda r: float(not r or r[0] not in Y))
    others = set(s) - Y
    wrong = sum(s[i] <= s[j] for i in Y for j in others)
    out["ranking_loss"] = ratio(wrong, len(Y) * len(others))
    out["coverage"] = max((sum(s[j] >= s[i] for j in s) for i in Y), default=0)
    shares = [sum(s[j] >= s[i] for j in Y) / sum(s[j] >= s[i] for j in s) for i in Y]
    out["lrap"] = np.mean(shares) if shares else 1.0
    return out


def naive_calibration(Y, known, p):
    """Log loss and calibration error of lists of labels and probabilities of the same shape."""
    entries = [
        (y, max(s, 0.0))  # a label without a score had no chance
        for row in zip(Y, known, p, strict=True)
        for y, k, s in zip(*row, strict=True)
        if k
    ]
    n = max(len(entries), 1)
    bins = [[(y, s) for y, s in entries if min(int(15 * s), 14) == b] for b in range(15)]
    return {
        "log_loss": sum(-np.log(max(s if y else 1 - s, 1e-6)) for y, s in entries) / n,
        "calibration_error": sum(
            len(some) / n * abs(np.mean([s for _, s in some]) - np.mean([y for y, _ in some]))
            for some in bins
            if some
        ),
    }


def naive(Y_true, Y_pred, scores, known, skip):
    """All measures, from the definitions; rows in ``skip`` are wholly unknown."""
    rows = [i for i in range(len(Y_true)) if i not in skip]
    labels = [j for j in range(Y_true.shape[1]) if any(known[i, j] for i in rows)]
    if not rows:
        return {}
    Y, Z = (
        {(i, j) for i in rows for j in labels if known[i, j] and M[i, j]} for M in (Y_true, Y_pred)
    )
    n_known = sum(known[i, j] for i in rows for j in labels)
    row_sets = [({e for e in Y if e[0] == i}, {e for e in Z if e[0] == i}) for i in rows]
    label_sets = [({e for e in Y if e[1] == j}, {e for e in Z if e[1] == j}) for j in labels]
    out = {
        "hamming_loss": ratio(len(Y ^ Z), n_known),
        "subset_accuracy": np.mean([a == b for a, b in row_sets]),
    }
    out |= {f"micro_{name}": value for name, value in by_four(Y, Z).items()}
    for kind, sets in (("macro", label_sets), ("example", row_sets)):
        values = [by_four(a, b) for a, b in sets]
        for name in ("precision", "recall", "f1", "jaccard"):
            out[f"{kind}_{name}"] = np.mean([v[name] for v in values]) if values else 0.0
    if scores is not None:
        each = [
            naive_row(
                {j for j in labels if known[i, j] and Y_true[i, j]},
                {j: scores[i, j] for j in range(Y_true.shape[1]) if known[i, j]},
            )
            for i in rows
        ]
        out |= {name: np.mean([row[name] for row in each]) for name in each[0]}
        out |= naive_calibration(Y_true[rows], known[rows], scores[rows])
    return out


def oracle(Y_true, Y_pred, scores):
    """What scikit-learn says; it has neither precision at k nor one-error."""
    out = {
        "hamming_loss": sk.hamming_loss(Y_true, Y_pred),
        "subset_accuracy": sk.accuracy_score(Y_true, Y_pred),
        "ranking_loss": sk.label_ranking_loss(Y_true, scores),
        "coverage": sk.coverage_error(Y_true, scores),
        "lrap": sk.label_ranking_average_precision_score(Y_true, scores),
        "log_loss": sk.log_loss(  # scikit-learn clips on both sides
            Y_true.ravel(), np.clip(scores.ravel(), 1e-6, 1 - 1e-6), labels=[0, 1]
        )
        - ((Y_true == 0) & (scores <= 0)).mean() * -np.log(1 - 1e-6)
        - ((Y_true == 1) & (scores >= 1)).mean() * -np.log(1 - 1e-6),
    }
    for name, average in (("micro", "micro"), ("macro", "macro"), ("example", "samples")):
        p, r, f, _ = sk.precision_recall_fscore_support(
            Y_true, Y_pred, average=average, zero_division=0
        )
        jaccard = sk.jaccard_score(Y_true, Y_pred, average=average, zero_division=0)
        out |= {f"{name}_precision": p, f"{name}_recall": r, f"{name}_f1": f}
        out[f"{name}_jaccard"] = jaccard
    if not (Y_true.astype(bool) & (scores == NONE)).any():
        out |= {f"ndcg_at_{k}": sk.ndcg_score(Y_true, scores, k=k) for k in KS}
    return out


def assert_measures(scores, expected):
    got = scores.as_dict()
    assert set(expected) <= set(got)
    for name, value in expected.items():
        assert got[name] == pytest.approx(value, abs=1e-12), name


# ---- streams ----


def block(rng, n, widths, density):
    """Labels, predictions and scores of n rows, each with its own width; many ties."""
    w_true, w_pred, w_score = widths
    Y_true = (rng.random((n, w_true)) < density).astype(int)
    Y_pred = (rng.random((n, w_pred)) < density).astype(int)
    return Y_true, Y_pred, rng.integers(0, 4, (n, w_score)) / 4


@st.composite
def streams(draw, max_width, min_width=0):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    density = draw(st.sampled_from([0.0, 0.2, 0.5, 1.0]))
    width = st.integers(min_width, max_width)
    shapes = draw(
        st.lists(
            st.tuples(st.integers(1, 4), st.tuples(width, width, width)), min_size=1, max_size=5
        )
    )
    return rng, [block(rng, n, widths, density) for n, widths in shapes]


def padded(blocks):
    """Labels, predictions and scores of all rows, filled up to one width."""
    q = max(M.shape[1] for parts in blocks for M in parts)
    columns = list(zip(*blocks, strict=True))
    fills = (0, 0, NONE)
    return tuple(
        pad([*column, np.zeros((0, q))], fill) for column, fill in zip(columns, fills, strict=True)
    )


def random_stream(seed, n=60, q=5):
    rng = np.random.default_rng(seed)
    return block(rng, n, (q, q, q), 0.4)


# ---- equality with scikit-learn and with the definitions ----


@given(streams(max_width=6, min_width=2))
@settings(max_examples=40, deadline=None)
def test_every_prefix_equals_scikit_learn_on_the_padded_matrices(stream):
    _, blocks = stream
    scores = MultiLabelScores(k=KS)
    for t, (Y_true, Y_pred, S) in enumerate(blocks, 1):
        scores.update(Y_true, Y_pred, S)
        assert_measures(scores, oracle(*padded(blocks[:t])))


@given(streams(max_width=4), st.sampled_from([0.0, 0.3, 0.8]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_prefix_equals_the_definitions_also_with_unknown_entries(stream, gaps, as_nan):
    rng, blocks = stream
    scores = MultiLabelScores(k=KS)
    masks = []
    for t, (Y_true, Y_pred, S) in enumerate(blocks, 1):
        known = rng.random(Y_true.shape) >= gaps
        masks.append(known)
        if as_nan:
            scores.update(np.where(known, Y_true, np.nan), Y_pred, S)
        else:
            scores.update(Y_true, Y_pred, S, known=known)
        Y, Z, s = padded(blocks[:t])
        empty = np.concatenate([~m.any(axis=1) if m.shape[1] else m.any(axis=1) for m in masks])
        known = pad([*masks, np.ones((0, Y.shape[1]), bool)], True)
        expected = naive(Y, Z, s, known, set(np.flatnonzero(empty)))
        assert_measures(scores, expected)
        assert set(scores.as_dict()) == set(expected)


def test_a_masked_entry_is_an_unknown_one():
    Y_true, Y_pred, S = random_stream(16)
    known = np.random.default_rng(16).random(Y_true.shape) < 0.6
    masked = np.ma.masked_array(Y_true, mask=~known)
    expected = MultiLabelScores().update(Y_true, Y_pred, S, known=known).to_counts()
    assert MultiLabelScores().update(masked, Y_pred, S).to_counts() == expected


def test_one_error_is_one_minus_precision_at_one():
    scores = MultiLabelScores().update(*random_stream(3))
    assert scores["one_error"] == pytest.approx(1 - scores["precision_at_1"], abs=1e-15)
    assert 0 < scores["one_error"] < 1


def test_measures_by_hand():
    scores = MultiLabelScores(k=2).update(
        [[1, 0, 1], [0, 0, 0]], [[1, 1, 0], [0, 0, 0]], [[0.9, 0.9, 0.1], [0.3, 0.2, 0.1]]
    )
    assert scores["hamming_loss"] == 2 / 6
    assert scores["subset_accuracy"] == 1 / 2
    assert scores["example_f1"] == 0.25  # the empty row is right, yet 0/0 is 0
    assert scores["precision_at_2"] == 0.25  # one of two, and none of two
    assert scores["one_error"] == (0.5 + 1) / 2  # a tie at the top counts half
    assert scores["ranking_loss"] == 0.5  # both pairs of the first row: a tie is an error
    assert scores["coverage"] == 1.5
    assert scores["lrap"] == ((1 / 2 + 2 / 3) / 2 + 1) / 2


# ---- probabilities ----


def test_calibration_by_hand():
    # Bins of fifteenths: 0.62 and 0.65 share the tenth; 1.0 belongs to the last, with 0.95.
    scores = MultiLabelScores().update([[1, 0, 1, 1]], [[1, 1, 1, 1]], [[0.62, 0.65, 1.0, 0.95]])
    assert scores["calibration_error"] == pytest.approx((abs(1.27 - 1) + abs(1.95 - 2)) / 4)
    expected = -np.mean(np.log([0.62, 0.35, 1.0, 0.95]))
    assert scores["log_loss"] == pytest.approx(expected)


def test_what_was_excluded_and_came_true_costs_a_bounded_loss():
    scores = MultiLabelScores().update([[1, 0]], [[0, 0]], [[0.0, 1.0]])
    assert scores["log_loss"] == pytest.approx(-np.log(1e-6))
    assert scores["calibration_error"] == 1


def test_honest_probabilities_are_calibrated_and_shifted_ones_are_not():
    rng = np.random.default_rng(17)
    p = rng.random((4000, 5))
    Y = (rng.random(p.shape) < p).astype(int)
    honest = MultiLabelScores().update(Y, Y, p)
    shifted = MultiLabelScores().update(Y, Y, np.clip(p + 0.2, 0, 1))
    assert honest["calibration_error"] < 0.02 < 0.15 < shifted["calibration_error"] < 0.2
    assert honest["log_loss"] == pytest.approx(0.5, abs=0.01)  # ∫ of the entropy in nats
    assert honest["log_loss"] < shifted["log_loss"]


def test_scores_that_are_no_probabilities_have_no_calibration():
    Y_true, Y_pred, S = random_stream(18)
    scores = MultiLabelScores(window=30).update(Y_true, Y_pred, S)
    assert "log_loss" in scores.as_dict()
    scores.update(Y_true[:10], Y_pred[:10], 3 * S[:10] - 1)
    assert not {"log_loss", "calibration_error"} & set(scores.as_dict())
    assert "lrap" in scores.as_dict()
    scores.update(Y_true[:30], Y_pred[:30], S[:30])  # the window has left them behind
    assert_measures(scores, MultiLabelScores().update(Y_true[:30], Y_pred[:30], S[:30]).as_dict())


def test_a_probability_may_leave_its_range_by_rounding():
    exact = MultiLabelScores().update([[1, 0]], [[1, 0]], [[1.0, 0.0]])
    rounded = MultiLabelScores().update([[1, 0]], [[1, 0]], [[1 + 1e-7, -1e-7]])
    assert rounded["log_loss"] == exact["log_loss"] == 0


# ---- late labels, unknown entries, no scores ----


def test_a_label_that_nobody_mentions_counts_as_in_scikit_learn():
    Y = np.array([[1, 0, 0], [0, 1, 0]])
    assert MultiLabelScores().update(Y, Y)["macro_f1"] == pytest.approx(2 / 3)


def test_a_label_of_which_nothing_is_known_does_not_count():
    Y = np.array([[1, 0, np.nan], [0, 1, np.nan]])
    scores = MultiLabelScores().update(Y, [[1, 0, 1], [0, 1, 0]])
    assert scores["macro_f1"] == 1
    assert scores.per_label()[2]["n_known"] == 0


def test_a_row_of_which_nothing_is_known_changes_nothing():
    Y_true, Y_pred, S = random_stream(1)
    scores = MultiLabelScores().update(Y_true, Y_pred, S)
    before = scores.to_counts()
    scores.update(np.full((2, 5), np.nan), np.ones((2, 5)), np.ones((2, 5)))
    assert scores.to_counts() == before


def test_what_is_predicted_or_scored_at_an_unknown_entry_does_not_matter():
    Y_true, Y_pred, S = random_stream(2)
    known = np.random.default_rng(2).random(Y_true.shape) < 0.6
    other_pred, other_S = np.where(known, Y_pred, 1 - Y_pred), np.where(known, S, 9 - S)
    a = MultiLabelScores().update(Y_true, Y_pred, S, known=known)
    b = MultiLabelScores().update(Y_true, other_pred, other_S, known=known)
    assert a.to_counts() == b.to_counts()


def test_minus_infinity_is_the_same_as_no_column():
    Y_true, Y_pred, S = random_stream(4)
    cut = MultiLabelScores().update(Y_true, Y_pred, S[:, :3])
    S[:, 3:] = -np.inf
    assert MultiLabelScores().update(Y_true, Y_pred, S).to_counts() == cut.to_counts()


def test_a_label_without_a_score_is_never_among_the_best():
    scores = MultiLabelScores(k=3).update([[0, 1]], [[0, 0]], [[0.5]])
    assert scores["precision_at_3"] == scores["ndcg_at_3"] == 0


def test_measures_of_scores_are_over_the_rows_that_have_them():
    Y_true, Y_pred, S = random_stream(5)
    scores = MultiLabelScores().update(Y_true[:20], Y_pred[:20])
    assert "lrap" not in scores.as_dict()
    scores.update(Y_true[20:], Y_pred[20:], S[20:])
    assert scores["lrap"] == pytest.approx(
        sk.label_ranking_average_precision_score(Y_true[20:], S[20:])
    )
    assert scores["hamming_loss"] == pytest.approx(sk.hamming_loss(Y_true, Y_pred))


def test_no_rows_no_measures():
    assert MultiLabelScores().as_dict() == {}
    with pytest.raises(KeyError, match=r"measure must be one of .*none.*, got micro_f1"):
        MultiLabelScores()["micro_f1"]


# ---- counts add up ----


@given(streams(max_width=5), st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_merging_two_parts_is_seeing_both(stream, cut):
    _, blocks = stream
    left, right, whole = (MultiLabelScores(k=KS) for _ in range(3))
    for i, parts in enumerate(blocks):
        (left if i < cut else right).update(*parts)
        whole.update(*parts)
    both = left + right
    assert both.n_rows == whole.n_rows == left.n_rows + right.n_rows
    assert_measures(both, whole.as_dict())
    left += right
    assert_measures(left, whole.as_dict())


def test_adding_leaves_its_terms_alone():
    Y_true, Y_pred, S = random_stream(6)
    a, b = MultiLabelScores().update(Y_true, Y_pred, S), MultiLabelScores().update(Y_pred, Y_true)
    before = a.to_counts(), b.to_counts()
    assert (a + b).n_rows == 120
    assert (a.to_counts(), b.to_counts()) == before


def test_merge_refuses_other_depths_windows_and_types():
    with pytest.raises(ValueError, match=r"other must have k=\(1,\), got \(1, 2\)"):
        MultiLabelScores(k=1).merge(MultiLabelScores(k=(1, 2)))
    with pytest.raises(ValueError, match="window must be None to merge, got 3"):
        MultiLabelScores(window=3).merge(MultiLabelScores())
    with pytest.raises(TypeError, match="other must be MultiLabelScores, got dict"):
        MultiLabelScores().merge({})


@given(streams(max_width=5))
@settings(max_examples=20, deadline=None)
def test_counts_survive_json_bit_by_bit(stream):
    _, blocks = stream
    scores = MultiLabelScores(k=KS)
    for parts in blocks:
        scores.update(*parts)
    back = MultiLabelScores.from_counts(json.loads(json.dumps(scores.to_counts())))
    assert back.as_dict() == scores.as_dict()
    assert back.to_counts() == scores.to_counts()
    assert all(type(value) is float for value in back.as_dict().values())


def test_memory_does_not_grow_with_the_stream():
    Y_true, Y_pred, S = random_stream(7)
    scores = MultiLabelScores().update(Y_true, Y_pred, S)
    size = len(json.dumps(scores.to_counts()))
    for _ in range(50):
        scores.update(Y_true, Y_pred, S)
    assert len(json.dumps(scores.to_counts())) < 1.5 * size


# ---- window ----


@given(streams(max_width=4), st.integers(1, 7))
@settings(max_examples=40, deadline=None)
def test_a_window_measures_its_last_rows_exactly(stream, window):
    _, blocks = stream
    scores = MultiLabelScores(window=window, k=KS)
    for t, parts in enumerate(blocks, 1):
        scores.update(*parts)
        last = [M[-window:] for M in padded(blocks[:t])]
        last[2] = np.where(last[2] == NONE, -np.inf, last[2])
        assert scores.n_rows == len(last[0])
        assert_measures(scores, MultiLabelScores(k=KS).update(*last).as_dict())


def test_a_window_can_be_added_to_a_total():
    Y_true, Y_pred, S = random_stream(8)
    recent = MultiLabelScores(window=10).update(Y_true, Y_pred, S)
    total = MultiLabelScores().update(Y_true[:50], Y_pred[:50], S[:50]).merge(recent)
    assert_measures(total, MultiLabelScores().update(Y_true, Y_pred, S).as_dict())


# ---- forms of input ----


@pytest.mark.parametrize(
    "form", [list, sp.csr_matrix, sp.csr_array, sp.coo_array, np.asfortranarray]
)
def test_lists_and_sparse_matrices_count_like_arrays(form):
    Y_true, Y_pred, S = random_stream(9)
    expected = MultiLabelScores().update(Y_true, Y_pred, S).to_counts()
    assert MultiLabelScores().update(form(Y_true), form(Y_pred), S).to_counts() == expected


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float32, object])
def test_any_type_of_zeros_and_ones_counts_alike(dtype):
    Y_true, Y_pred, S = random_stream(10)
    expected = MultiLabelScores().update(Y_true, Y_pred, S).to_counts()
    got = MultiLabelScores().update(Y_true.astype(dtype), Y_pred.astype(dtype), S)
    assert got.to_counts() == expected


def test_rows_one_by_one_give_the_counts_of_the_block():
    Y_true, Y_pred, S = random_stream(11)
    single = MultiLabelScores()
    for row in zip(Y_true, Y_pred, S, strict=True):
        single.update(*row)
    block_wise = MultiLabelScores().update(Y_true, Y_pred, S)
    assert single.to_counts()["labels"] == block_wise.to_counts()["labels"]
    assert_measures(single, block_wise.as_dict())


def test_blocks_larger_than_the_working_set_are_cut_without_effect(monkeypatch):
    Y_true, Y_pred, S = random_stream(12)
    whole = MultiLabelScores().update(Y_true, Y_pred, S)
    monkeypatch.setattr("tagstream.evaluation.metrics._BLOCK", 17)
    assert_measures(MultiLabelScores().update(Y_true, Y_pred, S), whole.as_dict())


def test_inputs_are_left_alone():
    parts = random_stream(13)
    parts = (np.where(parts[0] == 1, 1.0, np.nan), parts[1].astype(bool), parts[2])
    copies = [M.copy() for M in parts]
    MultiLabelScores(window=5).update(*parts)
    for M, copy in zip(parts, copies, strict=True):
        np.testing.assert_array_equal(M, copy)


# ---- table ----


def test_the_table_has_scikit_learns_numbers():
    Y_true, Y_pred, _ = random_stream(14)
    table = MultiLabelScores().update(Y_true, Y_pred).per_label("abcde")
    p, r, f, support = sk.precision_recall_fscore_support(Y_true, Y_pred, zero_division=0)
    for j, row in enumerate(table):
        assert row["label"] == "abcde"[j]
        assert (row["n_true"], row["n_pred"]) == (support[j], Y_pred[:, j].sum())
        assert (row["precision"], row["recall"], row["f1"]) == pytest.approx((p[j], r[j], f[j]))
    json.dumps(table)


def test_the_table_wants_one_name_per_label():
    with pytest.raises(ValueError, match="labels must have length 2, got 1"):
        MultiLabelScores().update([[1, 0]], [[1, 0]]).per_label(["a"])


# ---- refusals ----

Y2 = [[1, 0], [0, 1]]


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (([[1, 2]], [[1, 0]]), "Y_true must hold only 0, 1 and NaN, got 2"),
        (([[1, 0]], [[1, 0.5]]), "Y_pred must hold only 0 and 1, got 0.5"),
        (([[1, 0]], [[1, np.nan]]), "Y_pred must hold only 0 and 1, got nan"),
        (([[1, 0]], [[1, 0]], [[np.nan, 1]]), "scores must hold no NaN, got NaN"),
        ((Y2, [[1, 0]]), "Y_pred must have 2 rows like Y_true, got 1"),
        ((Y2, Y2, [[0.1, 0.2]]), "scores must have 2 rows like Y_true, got 1"),
        ((np.zeros((0, 2)), np.zeros((0, 2))), "Y_true must have at least one row, got 0"),
        ((np.zeros((1, 2, 2)), Y2), r"Y_true must have shape \(n, q\) or \(q,\), got \(1, 2, 2\)"),
        (([["a", "b"]], [[1, 0]]), "Y_true must be an array of numbers, got dtype <U1"),
        (([[{}, 1]], [[1, 0]]), "Y_true must be an array of numbers, got"),
    ],
)
def test_a_refused_update_says_why_and_counts_nothing(call, message, window):
    scores = MultiLabelScores(window=window).update(*random_stream(15, q=3))
    before = scores.to_counts()
    with pytest.raises(ValueError, match=message):
        scores.update(*call)
    assert scores.to_counts() == before


def test_a_late_bad_row_leaves_no_trace_of_the_rows_before_it(monkeypatch):
    monkeypatch.setattr("tagstream.evaluation.metrics._BLOCK", 1)
    scores = MultiLabelScores()
    with pytest.raises(ValueError, match="Y_true must hold only"):
        scores.update([[1, 0], [3, 0]], Y2)
    assert scores.n_rows == scores.n_labels == 0


def test_known_must_look_like_the_labels():
    with pytest.raises(
        ValueError, match=r"known must have the shape \(2, 2\) of Y_true, got \(2, 1\)"
    ):
        MultiLabelScores().update(Y2, Y2, known=[[True], [True]])


@pytest.mark.parametrize("k", [0, (), (1, -2), 1.5 * np.ones(1), True])
def test_k_must_hold_positive_integers(k):
    with pytest.raises(ValueError, match="k must hold positive integers"):
        MultiLabelScores(k=k)


@pytest.mark.parametrize("window", [0, -1, 2.5, True])
def test_window_must_be_a_positive_integer(window):
    with pytest.raises(ValueError, match="window must be a positive integer or None"):
        MultiLabelScores(window=window)


# ---- counts of other versions ----

# The first record of results/holdout-emotions.jsonl as version 0.1.0 wrote it.
OLD_RECORD = """
{"k": [1, 3, 5], "labels": {"hit": [20, 21, 46, 22, 21, 29], "true": [35, 33, 53, 30, 34, 38],
"pred": [33, 39, 64, 29, 32, 39], "unknown": [0, 0, 0, 0, 0, 0]}, "sums": {"rows": 116.0,
"exact": 40.0, "example_precision": 78.83333333333334, "example_recall": 82.66666666666666,
"example_f1": 77.56666666666665, "example_jaccard": 68.16666666666666, "scored": 0.0,
"one_error": 0.0, "lrap": 0.0, "coverage": 0.0, "open_rows": 0.0, "open_unknown": 0.0,
"hits_at_1": 0.0, "hits_at_3": 0.0, "hits_at_5": 0.0, "ndcg_at_1": 0.0, "ndcg_at_3": 0.0,
"ndcg_at_5": 0.0}, "open": []}
"""
NEW_SUMS = ("probable_rows", "probable_unknown", "log_loss", *(f"bias_{b}" for b in range(15)))


def test_a_record_from_before_calibration_is_read():
    scores = MultiLabelScores.from_counts(json.loads(OLD_RECORD))
    assert scores["micro_f1"] == pytest.approx(2 * 159 / (223 + 236))
    assert scores["example_f1"] == pytest.approx(77.56666666666665 / 116)
    assert "lrap" not in scores.as_dict()
    # No row of it had scores, so rows that have them can be added, and all measures are there.
    Y_true, Y_pred, S = random_stream(19, q=6)
    new = MultiLabelScores().update(Y_true, Y_pred, S)
    both = scores + new
    assert both.n_rows == 176
    assert both["log_loss"] == pytest.approx(new["log_loss"])
    assert both["lrap"] == pytest.approx(new["lrap"])


def test_an_absent_sum_is_an_absent_measure_also_after_merging():
    new = MultiLabelScores().update(*random_stream(20))
    counts = new.to_counts()
    for name in NEW_SUMS:
        del counts["sums"][name]
    old = MultiLabelScores.from_counts(counts)
    expected = new.as_dict()
    assert expected.pop("log_loss") > 0
    assert expected.pop("calibration_error") > 0
    assert old.as_dict() == expected
    assert old.to_counts() == counts
    assert set((old + new).as_dict()) == set((new + old).as_dict()) == set(expected)
    json.dumps((old + new).to_counts(), allow_nan=False)


@pytest.mark.parametrize("name", ["exact", "example_f1", "lrap", "hits_at_3", "coverage"])
def test_any_sum_may_be_absent_but_the_number_of_rows(name):
    whole = MultiLabelScores().update(*random_stream(21))
    counts = whole.to_counts()
    del counts["sums"][name]
    measures = MultiLabelScores.from_counts(counts).as_dict()
    gone = {"exact": "subset_accuracy", "hits_at_3": "precision_at_3"}.get(name, name)
    assert measures == {m: value for m, value in whole.as_dict().items() if m != gone}
    del counts["sums"]["rows"]
    with pytest.raises(ValueError, match="sums must have the key rows, got"):
        MultiLabelScores.from_counts(counts)


def test_a_sum_of_a_later_version_is_passed_over():
    whole = MultiLabelScores().update(*random_stream(22))
    counts = whole.to_counts()
    counts["sums"]["later"] = 3.0
    assert MultiLabelScores.from_counts(counts).to_counts() == whole.to_counts()


def test_importing_the_measures_does_not_import_scikit_learn():
    code = "import sys, tagstream.metrics; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
