"""One stream, one state: however calls are cut, whatever is asked, and what is learnt at all."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagstream.decision import Seen, decide
from tagstream.testing.data import N, Q, as_sets, binary_stream, feed, stream
from tagstream.testing.rules import Make, refused, rule
from tagstream.testing.states import assert_same_state

__all__: list[str] = []


@rule("to_state", exact=True)
def check_chunking(make: Make) -> None:
    """The state does not depend on where calls are cut."""
    X, Y = stream()
    whole = make().partial_fit(X, Y).to_state()
    rng = np.random.default_rng(0)
    some = [rng.permutation(np.arange(1, N))[: rng.integers(21)].tolist() for _ in range(15)]
    for cuts in (*some, [*range(N)]):
        assert_same_state(feed(make(), X, Y, cuts).to_state(), whole, f"cut at {cuts}")


@rule("to_state", exact=True)
def check_chunking_of_sparse_rows(make: Make) -> None:
    """The same of sparse rows."""
    X, Y = binary_stream()
    whole = make().partial_fit(sp.csr_matrix(X), Y)
    for cuts in ([7, 8, 30], [1, 2, 3, 59]):
        edges = [0, *cuts, N]
        model = make()
        for start, stop in itertools.pairwise(edges):
            model.partial_fit(sp.csr_matrix(X[start:stop]), Y[start:stop])
        assert_same_state(model.to_state(), whole.to_state())


@rule("to_state", exact=True)
def check_chunking_of_label_sets(make: Make) -> None:
    """New names may turn up within a call or between calls: the state is the same."""
    X, Y = stream()
    Y[:20, 2:] = 0
    Y[20:35, 3] = 0
    sets = as_sets(Y, "cadb")
    first_met: list[str] = []  # in the order of the rows; of one row, in that of the names
    for names in sets:
        first_met += sorted(names - set(first_met))
    whole = make().partial_fit(X, sets)
    assert whole.classes_.tolist() == first_met != sorted(first_met)
    for cuts in ([5, 20, 21, 40], list(range(N))):
        assert_same_state(feed(make(), X, sets, cuts).to_state(), whole.to_state())


DULL_VALUES = (0.0, 1.0, -1.0, 1 / 3, 7.0, 1e6, 1e-20, 1e-44, 1e15)


def _dull_stream(seed: int) -> tuple[Any, Any, list[int]]:
    """Draw rows of one to three kinds, dense or sparse, their labels, and cuts."""
    rng = np.random.default_rng((20261118, seed))
    n, p, q = rng.integers(1, N + 1), rng.integers(1, 4), rng.integers(4)
    kinds = rng.choice([0.0, rng.choice(DULL_VALUES)], size=(rng.integers(1, 4), p))
    labels = rng.choice([0.0, 1.0, np.nan], size=(rng.integers(1, 3), q))
    X, Y = kinds[rng.integers(len(kinds), size=n)], labels[rng.integers(len(labels), size=n)]
    cuts = {0, n, *rng.integers(n, size=rng.integers(4)).tolist()}
    return sp.csr_matrix(X) if rng.random() < 0.5 else X, Y, sorted(cuts)


@rule("to_state", exact=True)
def check_dull_data(make: Make) -> None:
    """Equal rows, rows of zeros, one column, one label or none: all is learnt, saved and loaded."""
    for seed in range(30):
        X, Y, cuts = _dull_stream(seed)
        model = make()
        for start, stop in itertools.pairwise(cuts):
            model.partial_fit(X[start:stop], Y[start:stop])
            state = model.to_state()
            assert_same_state(type(model).from_state(copy.deepcopy(state)).to_state(), state)
        assert_same_state(make().partial_fit(X, Y).to_state(), state, f"stream {seed}")
        scores = model.predict_proba(X)
        assert ((scores >= 0) & (scores <= 1)).all(), f"stream {seed}"


@rule("to_state", exact=True)
def check_seed_reproduces(make: Make) -> None:
    """The same seed gives the same state."""
    X, Y = stream()
    assert_same_state(make().fit(X, Y).to_state(), make().fit(X, Y).to_state())


@rule("to_state", exact=True)
def check_fit_forgets(make: Make) -> None:
    """`fit` begins anew, with other features and labels too."""
    X, Y = stream()
    model = make().fit(X[:, :3], Y[:, :2])
    assert_same_state(model.fit(X, Y).to_state(), make().fit(X, Y).to_state())


@rule("to_state")
def check_prediction_leaves_the_state(make: Make) -> None:
    """Questions of every kind change nothing."""
    X, Y = stream()
    for n in (3, N):
        model = make().partial_fit(X[:n], Y[:n])
        before = copy.deepcopy(model.to_state())
        model.predict(X)
        model.predict_proba(X)
        model.predict_one(X[0])
        model.predict_proba_one(X[0])
        model.predict_sets(X)
        model.view().predict(X)
        for ask in ("explain", "kneighbors", "transform"):
            if hasattr(model, ask):
                getattr(model, ask)(X[:5])
                getattr(model.view(), ask)(X[:5])
        assert_same_state(model.to_state(), before)


@rule("to_state")
def check_learning_leaves_the_input(make: Make) -> None:
    """What is handed over is not changed, and may be used again."""
    X, Y = stream()
    X_before, Y_before = X.copy(), Y.copy()
    model = make().partial_fit(X, Y)
    before = copy.deepcopy(model.to_state())
    np.testing.assert_array_equal(X, X_before)
    np.testing.assert_array_equal(Y, Y_before)
    X[:], Y[:] = 99, 0  # the caller may reuse its memory
    assert_same_state(model.to_state(), before)


@rule("to_state")
def check_one_row_like_many(make: Make) -> None:
    """An item has the same scores alone and among others."""
    X, Y = stream()
    for n in (5, N):
        model = make().partial_fit(X[:n], Y[:n])
        together = model.predict_proba(X, next=True)
        alone = np.array([model.predict_proba_one(x) for x in X])
        np.testing.assert_allclose(alone, together, rtol=1e-9, atol=1e-12)
        labels = np.array([model.predict_one(x) for x in X])
        np.testing.assert_array_equal(labels, model.predict(X, next=True))
        of_any = np.array([model.predict_proba(x[None])[0] for x in X])
        np.testing.assert_allclose(of_any, model.predict_proba(X), rtol=1e-9, atol=1e-12)


@rule("to_state")
def check_scores(make: Make) -> None:
    """Scores are probabilities, and labels follow from them by the decision."""
    X, Y = stream()
    for n in (1, 3, N):
        model = make().partial_fit(X[:n], Y[:n])
        scores = model.predict_proba(X)
        assert scores.shape == (N, Q)
        assert scores.dtype == np.float64
        assert ((scores >= 0) & (scores <= 1)).all()
        seen = Seen(model.n_seen_, model.n_empty_)
        np.testing.assert_array_equal(model.predict(X), decide(scores, model.decide, seen=seen))
        for how in ("f1", "hamming", "top2", 0.3):
            np.testing.assert_array_equal(model.predict(X, decide=how), decide(scores, how))
            np.testing.assert_array_equal(model.labels_of(scores, how), decide(scores, how))
        if getattr(model, "head", False):
            by_label = decide(scores, "macro", model._bars("macro", next=False))
            np.testing.assert_array_equal(model.predict(X, decide="macro"), by_label)
            np.testing.assert_array_equal(model.view().predict(X, decide="macro"), by_label)
        else:
            with refused(ValueError, saying="'macro' for a learner without a head"):
                model.predict(X, decide="macro")
        names = [set(np.flatnonzero(row)) for row in model.predict(X)]
        assert model.predict_sets(X) == names
    single = make().fit(X, np.array(["no", "yes"])[Y[:, 0]])
    np.testing.assert_allclose(single.predict_proba(X).sum(axis=1), 1)
    assert set(single.predict(X)) <= {"no", "yes"}


@rule("to_state")
def check_learns(make: Make) -> None:
    """Far better than the most frequent answer on an easy stream."""
    X, Y = stream(400)
    model = make().partial_fit(X[:300], Y[:300])
    mistakes = (model.predict(X[300:]) != Y[300:]).mean()
    assert mistakes < 0.6 * min(Y.mean(), 1 - Y.mean()), mistakes
