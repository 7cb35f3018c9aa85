"""Labels that are new, unknown, empty or in another order."""

from __future__ import annotations

import copy

import numpy as np

from tagstream.testing.data import N, Q, as_sets, stream
from tagstream.testing.rules import Make, refused, rule
from tagstream.testing.states import assert_same_state

__all__: list[str] = []


@rule("to_state")
def check_growth_by_wider_array(make: Make) -> None:
    """More columns are new labels; the others stay what they were."""
    X, Y = stream()
    for n in (6, 40):
        model = make().partial_fit(X[:n], Y[:n, :3])
        old = model.predict_proba(X)
        grown = copy.deepcopy(model)
        grown._set_names([0, 1, 2, 3, 4])  # the moment of growth, before anything is learnt
        np.testing.assert_allclose(grown.predict_proba(X)[:, :3], old, rtol=0, atol=1e-12)
        assert not grown.predict(X)[:, 3:].any()
        grown.partial_fit(X[n:], np.hstack([Y[n:], Y[n:, :1]]))
        assert grown.predict_proba(X).shape == (N, 5)
        with refused(ValueError, saying="columns"):
            grown.partial_fit(X, Y)


@rule("to_state")
def check_growth_by_names(make: Make) -> None:
    """A new name is a new label, whether it is announced or met."""
    X, Y = stream()
    model = make().partial_fit(X[:30], as_sets(Y[:30, :2]))
    old = model.predict_proba(X)
    announced = copy.deepcopy(model).partial_fit(X[:1], [set()], classes=["new"])
    assert announced.classes_.tolist()[-1] == "new"
    assert announced.n_seen_ == 31
    model.partial_fit(X[30:], [{*names, "c"} for names in as_sets(Y[30:, :2])])
    assert "c" in model.classes_.tolist()
    assert model.predict_proba(X).shape == (N, old.shape[1] + 1)
    assert model.predict_proba(X)[:, -1].max() > 0


@rule("to_state")
def check_a_new_label_is_learnt(make: Make) -> None:
    """A label that appears late is learnt."""
    X, Y = stream(400)
    Y[:100, 3] = 0
    model = make().partial_fit(X[:100], Y[:100, :3])
    model.partial_fit(X[100:300], Y[100:300])
    mistakes = (model.predict(X[300:])[:, 3] != Y[300:, 3]).mean()
    assert mistakes < 0.35, mistakes


@rule("to_state")
def check_unknown_items_teach_nothing(make: Make) -> None:
    """NaN and masked entries are read alike, and an item of unknown labels moves no score."""
    X, Y = stream()
    for n in (6, 40):
        model = make().partial_fit(X[:n], Y[:n])
        scores = model.predict_proba(X)
        none = copy.deepcopy(model).partial_fit(X[40:43], np.full((3, Q), np.nan))
        if not hasattr(model, "n_neighbors"):  # a stored item takes the place of a neighbour
            np.testing.assert_array_equal(none.predict_proba(X), scores)
        assert none.n_seen_ == n + 3
        masked = np.ma.masked_array(Y[40:43], mask=np.ones((3, Q), bool))
        other = copy.deepcopy(model).partial_fit(X[40:43], masked)
        assert_same_state(other.to_state(), none.to_state())


@rule("to_state")
def check_unknown_entries_pull_nothing(make: Make) -> None:
    """What stands under an unknown entry does not matter."""
    X, Y = stream()
    mask = np.random.default_rng(5).random(Y.shape) < 0.3
    zeros = np.ma.masked_array(np.where(mask, 0, Y), mask=mask)
    ones = np.ma.masked_array(np.where(mask, 1, Y), mask=mask)
    a, b = make().partial_fit(X, zeros), make().partial_fit(X, ones)
    assert_same_state(a.to_state(), b.to_state())
    c = make().partial_fit(X, np.where(mask, np.nan, Y))
    np.testing.assert_array_equal(c.predict_proba(X), a.predict_proba(X))
    sets = as_sets(Y)
    nan = np.vstack([Y[:10], np.full((1, Q), np.nan)])
    named = make().partial_fit(X[:11], [*sets[:10], None], classes=list("abcd"))
    np.testing.assert_array_equal(
        named.predict_proba(X), make().partial_fit(X[:11], nan).predict_proba(X)
    )


@rule("to_state")
def check_label_permutation_commutes(make: Make, rtol: float = 1e-6) -> None:
    """The order of the labels does not matter."""
    X, Y = stream()
    order = np.array([2, 0, 3, 1])
    a = make().partial_fit(X, Y).predict_proba(X)
    b = make().partial_fit(X, Y[:, order]).predict_proba(X)
    np.testing.assert_allclose(b, a[:, order], rtol=rtol, atol=rtol)


@rule("to_state")
def check_empty_label_sets(make: Make) -> None:
    """Items without labels, and labels that no item has, are data like any other."""
    X, Y = stream()
    model = make().partial_fit(X, np.zeros_like(Y))
    assert not model.predict(X).any()
    assert np.isfinite(make().partial_fit(X, np.ones_like(Y)).predict_proba(X)).all()
