"""A stored item that is asked about without itself is answered as if it had been forgotten."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tagstream import KNN, OML
from tagstream.base import StreamClassifier
from tagstream.data import make_stream


def _copied(model: StreamClassifier) -> StreamClassifier:
    return type(model).from_state(model.to_state())


def _asked(model, positions=None):
    blocks = [*model.ask_stored(positions)]
    return np.concatenate([block.scores for block in blocks]), blocks


@pytest.mark.parametrize("form", ["dense", "sparse", "young"])
def test_it_is_the_answer_after_forgetting(form):
    n = 15 if form == "young" else 220
    stream = make_stream(n, seed=3)
    X = sp.csr_matrix(np.where(stream.X > 0.3, stream.X, 0)) if form == "sparse" else stream.X
    model = OML(random_state=0).partial_fit(X, stream.Y)
    model.refit()
    scores, blocks = _asked(model)
    assert scores.shape == (n, stream.Y.shape[1])
    for i in (0, 7, n // 2, n - 1):
        other = _copied(model)
        other.forget(i)
        expected = other.predict_proba(X[i : i + 1] if form == "sparse" else X[[i]])[0]
        np.testing.assert_allclose(scores[i], expected, atol=1e-12)
        assert i not in blocks[0].found[i]


def test_a_corrected_item_does_not_speak_for_itself():
    stream = make_stream(120, seed=0)
    model = OML(random_state=0).partial_fit(stream.X, stream.Y)
    before = _asked(model, [5])[0][0]
    flipped = 1 - stream.Y[5]
    model.relabel(5, flipped)
    after = _asked(model, [5])[0][0]
    own = model.predict_proba(stream.X[[5]])[0]
    assert np.abs(own - flipped).mean() < 0.1  # asked as usual, it is what it was corrected to
    assert np.abs(after - before).max() < 0.2


def test_votes_alone_leave_the_item_out_too():
    X = np.arange(6.0)[:, None]
    model = KNN(2).partial_fit(X, [{"a"}, {"b"}, {"a"}, {"b"}, {"a"}, {"b"}])
    scores, _ = _asked(model)
    assert scores[0] == pytest.approx([0.5, 0.5], abs=1e-5)
    assert scores[2] == pytest.approx([0.0, 1.0], abs=1e-5)


def test_asking_changes_nothing():
    stream = make_stream(90, seed=1)
    model = OML(random_state=0).partial_fit(stream.X, stream.Y)
    before = model.to_state()
    _asked(model)
    _asked(model.view())
    after = model.to_state()
    assert repr(before) == repr(after)


def test_items_that_are_all_equal_are_answered_too():
    from tagstream import Tagger

    tagger = Tagger(OML(random_state=0))
    tagger.learn([{"id": i, "text": "low tide", "y": ["sea"]} for i in range(40)])
    tagger.refit()
    assert tagger.learner._belief.any is None  # nothing could be left out
    assert tagger.review() == []
