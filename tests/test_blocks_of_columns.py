"""Rows that are an embedding and words: P is fitted on both, or on one of them alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from tagstream import OML

D = 6  # columns of the embedding


def rows_of(useful, n=90, seed=0):
    """Rows of which one block tells the label and the other one is noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    dense, words = rng.normal(size=(n, D)), np.zeros((n, 60))
    words[np.arange(n), rng.integers(60, size=n)] = 1
    if useful == "embedding":
        dense = np.eye(3, D)[y] * 3 + 0.3 * dense
    else:
        words = np.zeros((n, 60))
        words[np.arange(n), y] = 1
    X = np.hstack([dense / np.linalg.norm(dense, axis=1, keepdims=True), words])
    return sp.csr_matrix(X), np.eye(3, dtype=np.uint8)[y]


@pytest.mark.parametrize(("useful", "not_used"), [("embedding", (D, 0)), ("words", (0, D))])
def test_noise_alone_is_never_chosen(useful, not_used):
    X, Y = rows_of(useful)
    model = OML(random_state=0).use_embedding(D).fit(X[:60], Y[:60])
    choice = model.to_state()["learner"]["choice"]
    assert (choice["low"], choice["high"]) != not_used
    assert (model.predict_proba(X[60:]).argmax(axis=1) == Y[60:].argmax(axis=1)).mean() > 0.9


def test_columns_outside_of_the_block_make_no_difference_to_the_regression():
    X, Y = rows_of("embedding")
    X = X.astype(np.float32)
    made = replace(OML(random_state=0).fit(X, Y)._embedding.projection, low=0, high=D)
    other = X.tolil()
    other[:, D:] = 0
    np.testing.assert_array_equal(made(X), made(sp.csr_matrix(other, dtype=np.float32)))
    assert (made(X) != replace(made, high=0)(X)).any()


def test_without_a_block_there_is_nothing_to_choose_and_a_saved_choice_comes_back():
    X, Y = rows_of("embedding")
    plain = OML(random_state=0).fit(X, Y).to_state()["learner"]
    assert (plain["choice"]["low"], plain["choice"]["high"], plain["n_embedded"]) == (0, 0, 0)
    model = OML(random_state=0).use_embedding(D).fit(X, Y)
    again = OML.from_state(model.to_state())
    np.testing.assert_equal(again.partial_fit(X, Y).to_state(), model.partial_fit(X, Y).to_state())
