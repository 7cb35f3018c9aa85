"""Copies: similarity by definition, newest of equals, κ by its definition."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import reference as slow
from tagstream.core import similarity
from tagstream.core.inputs import inputs_of
from tagstream.core.similarity import Nearest, most_similar
from tagstream.evidence.copies import Copies

NONE = np.empty((0, 0), np.uint8)


def setting(seed, n=30, m=60, q=11, unknown=0.0):
    rng = np.random.default_rng(seed)
    stored = (rng.random((n, q)) < 0.2).astype(np.uint8)
    known = rng.random((n, q)) >= unknown
    nearest = Nearest(rng.integers(-1, n, m), rng.choice([0.5, 0.8, 0.85, 0.95, 0.98, 1.0], m))
    Y = stored[np.maximum(nearest.positions, 0)].copy()
    Y[::3, 0] ^= 1
    mask = rng.random((m, q)) >= unknown
    packed = np.packbits(np.pad(known, ((0, 0), (0, -q % 8)), constant_values=True), axis=1)
    p = rng.random((m, q))
    return stored * known, known, packed, nearest, rng.random(n) < 0.4, p, Y * mask, mask


@pytest.mark.parametrize("unknown", [0.0, 0.4, 0.95])
def test_copies_are_blended_and_learnt_by_their_definition(unknown):
    stored, known, packed, nearest, corrected, p, Y, mask = setting(1, unknown=unknown)
    copies, naive = Copies(), slow.SlowCopies()
    bits = np.packbits(stored, axis=1)
    for i in range(len(p)):
        one = Nearest(nearest.positions[i : i + 1], nearest.similarities[i : i + 1])
        row, similarity = int(one.positions[0]), float(one.similarities[0])
        blended, kappas = copies.blend(p[i : i + 1], one, bits, packed, corrected=corrected)
        kappa = naive.kappa(similarity, corrected[row]) if row >= 0 else 0.0
        assert kappas[0] == pytest.approx(kappa, rel=1e-9)
        expected = np.where(known[row], kappa * stored[row] + (1 - kappa) * p[i], p[i])
        np.testing.assert_allclose(blended[0], expected if row >= 0 else p[i], rtol=1e-9)
        copies.learn(
            p[i : i + 1], one, bits, packed, Y[i : i + 1], mask[i : i + 1], corrected=corrected
        )
        if row >= 0:
            naive.learn(similarity, corrected[row], p[i], Y[i], stored[row], mask[i] & known[row])
    for (c, b), K in naive.K.items():
        np.testing.assert_allclose(copies.K[c, b], K, rtol=1e-9)


def test_how_copies_are_cut_into_calls_does_not_matter():
    stored, _, _, nearest, corrected, p, Y, _ = setting(2)
    bits, whole, parts = np.packbits(stored, axis=1), Copies(), Copies()
    whole.learn(p, nearest, bits, None, Y, corrected=corrected)
    for one in np.array_split(np.arange(len(p)), 7):
        some = Nearest(nearest.positions[one], nearest.similarities[one])
        parts.learn(p[one], some, bits, NONE, Y[one], corrected=corrected)
    np.testing.assert_array_equal(parts.K, whole.K)
    np.testing.assert_array_equal(Copies.load(whole.dump()).K, whole.K)
    np.testing.assert_array_equal(whole.snapshot().K, whole.K)


def test_an_unlikely_item_that_is_a_copy_says_more_than_a_likely_one():
    same, corrected = Nearest(np.array([0]), np.array([0.95])), np.array([False])
    labels, Y = np.array([[128]], np.uint8), np.ones((1, 1), np.uint8)
    kappas = []
    for p in (0.01, 0.99):
        copies = Copies()
        copies.learn(np.array([[p]]), same, labels, None, Y, corrected=corrected)
        kappas.append(copies.K[0, 1, 0])
    assert kappas[0] > kappas[1]


def test_a_corrected_item_is_believed_and_one_that_others_contradict_less_and_less():
    copies, corrected = Copies(), np.array([True])
    same, labels = Nearest(np.array([0]), np.array([1.0])), np.array([[128]], np.uint8)
    kappas = []
    for _ in range(30):
        kappas += copies.blend(np.zeros((1, 1)), same, labels, corrected=corrected)[1].tolist()
        copies.learn(
            np.full((1, 1), 0.5), same, labels, None, np.zeros((1, 1), np.uint8),
            corrected=corrected,
        )  # fmt: skip
    assert kappas[0] == pytest.approx(0.97)
    assert kappas[-1] < 0.5
    assert (np.diff(kappas) < 0).all()


def test_sparse_similarity_is_the_cosine_and_the_newest_of_equals_wins():
    rng = np.random.default_rng(3)
    X = np.where(rng.random((20, 9)) < 0.5, rng.normal(size=(20, 9)), 0).astype(np.float32)
    X[13] = 2 * X[4]
    X[7] = 0
    queries = np.vstack([X[4], X[5], np.zeros(9)]).astype(np.float32)
    candidates = np.array([[4, 13, 2, 7], [1, 5, -1, 3], [7, 8, -1, -1]])
    positions, similarities = most_similar(
        inputs_of(sp.csr_matrix(X)), inputs_of(sp.csr_matrix(queries)), candidates
    )
    assert positions.tolist() == [13, 5, 8]
    assert similarities == pytest.approx([1, 1, 0])
    a, b = X[2].astype(float), X[4].astype(float)
    alone = most_similar(
        inputs_of(sp.csr_matrix(X)), inputs_of(sp.csr_matrix(queries[:1])), np.array([[2]])
    )
    assert alone.similarities[0] == pytest.approx(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_dense_similarity_is_a_distance_in_scaled_columns():
    rng = np.random.default_rng(4)
    X, factor = rng.normal(size=(12, 5)).astype(np.float32), rng.random(5) + 0.5
    queries = rng.normal(size=(3, 5)).astype(np.float32)
    candidates = np.array([np.arange(12)] * 3)
    positions, similarities = most_similar(inputs_of(X), inputs_of(queries), candidates, factor)
    alike = 1 - (((queries[:, None] - X) * factor) ** 2).sum(axis=2) / 10
    assert positions.tolist() == alike.argmax(axis=1).tolist()
    np.testing.assert_allclose(similarities, alike.max(axis=1), rtol=1e-5)


def one_after_the_other(a, b):
    total = 0.0
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        total += x * y
    return total


@pytest.mark.parametrize("width", [60, similarity.WIDEST + 60])
def test_sparse_similarity_is_the_same_number_for_many_items_and_for_few(width):
    rng = np.random.default_rng(8)
    X = np.where(rng.random((90, 60)) < 0.3, rng.normal(size=(90, 60)), 0).astype(np.float32)
    X[40:50], X[7] = X[30:40], 0.0
    candidates = rng.integers(-1, 50, size=(40, 12))
    place = np.sort(rng.choice(width, 60, replace=False))  # the same order in more columns
    place[-1] = width - 1
    wide = sp.csr_matrix(X)
    wide = sp.csr_matrix((wide.data, place[wide.indices], wide.indptr), (90, width))
    stored, queries = inputs_of(wide[:50]), wide[50:]
    assert len(candidates) >= similarity.MANY
    many = most_similar(stored, inputs_of(queries), candidates)
    for i in range(40):
        few = most_similar(stored, inputs_of(queries[i : i + 1]), candidates[i : i + 1])
        assert (few.positions[0], few.similarities[0]) == (
            many.positions[i], many.similarities[i],
        )  # fmt: skip
        x, expected = X[50 + i], (-np.inf, -1)
        for a in candidates[i][candidates[i] >= 0].tolist():
            squares = one_after_the_other(x, x) * one_after_the_other(X[a], X[a])
            alike = one_after_the_other(X[a], x) / np.sqrt(squares) if squares else 0.0
            expected = max(expected, (alike, a))
        assert expected == (many.similarities[i], many.positions[i])


def test_dense_similarity_is_summed_one_after_the_other_for_those_that_are_roughly_nearest():
    rng = np.random.default_rng(9)
    X, queries = (rng.normal(size=(n, 33)).astype(np.float32) for n in (60, 30))
    X[20:40] = X[:20]  # equals
    X[40:60] = X[:20] + np.float32(1e-6)  # and nearly equals
    queries[:10] = X[:10]
    queries[10] = 1e18
    factor, candidates = rng.uniform(0.5, 2, 33), rng.integers(-1, 60, size=(30, 25))
    candidates[11] = -1
    made = most_similar(inputs_of(X), inputs_of(queries), candidates, factor)
    for i in range(30):
        expected = (-np.inf, -1)
        for a in candidates[i][candidates[i] >= 0].tolist():
            gaps = (queries[i].astype(float) - X[a].astype(float)) * factor
            expected = max(expected, (1.0 - one_after_the_other(gaps, gaps) / 66.0, a))
        assert expected == (made.similarities[i], made.positions[i])


def test_nobody_is_similar_when_nothing_was_found():
    nothing = most_similar(inputs_of(np.ones((1, 2))), inputs_of(np.ones((1, 2))), [[-1]])
    assert nothing.positions.tolist() == [-1]
    p = np.full((1, 3), 0.4)
    out, kappas = Copies().blend(p, nothing, np.zeros((1, 1), np.uint8), corrected=np.array([True]))
    np.testing.assert_array_equal(out, p)
    assert kappas.tolist() == [0]


@pytest.mark.parametrize("K", [np.zeros((2, 4, 2)), np.ones((2, 4)), np.full((2, 4, 2), np.nan)])
def test_a_damaged_table_is_refused(K):
    with pytest.raises(ValueError, match="K must be"):
        Copies.load({"K": K})
