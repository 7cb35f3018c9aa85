"""One dense item at a time takes another way than a block, and comes to the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from checks import assert_same_state
from tagstream import OML, make_stream, projection
from tagstream.models import oml, single

pytestmark = pytest.mark.exact


@pytest.fixture(autouse=True)
def small_lifts(monkeypatch):
    monkeypatch.setattr(projection, "LIFT_SIZE", 40)
    monkeypatch.setattr(oml, "FIRST_SINGLES", 0)


def test_the_first_items_go_the_way_of_blocks(monkeypatch):
    looked, look = [], single.look
    monkeypatch.setattr(oml, "FIRST_SINGLES", 6)
    monkeypatch.setattr(single, "look", lambda *a: looked.append(1) or look(*a))
    X, Y = draw()
    model = OML(random_state=0).partial_fit(X[:60], Y[:60])
    for t in range(60, 65):
        assert len(looked) == 2 * max(t - 63, 0)
        model.predict_one(X[t])
        model.learn_one(X[t], Y[t])


def draw(n=230, p=9, q=11, seed=0):
    made = make_stream(n, p=p, q=q, seed=seed)
    X, Y = np.asarray(made.X, np.float64), np.asarray(made.Y, np.uint8)
    X[200:220] = X[150:170]  # copies
    return X, Y


def slowly(model):
    """Return the same model without its way for single items."""
    model._plain_case = lambda rows: None
    return model


def play(model, X, Y, events, ask):
    """Learn 60 items, then one at a time with events in between; return all scores on the way."""
    model.partial_fit(X[:60], Y[:60])
    scores = []
    for t in range(60, len(X)):
        if ask(t):
            scores.append(model.predict_proba_one(X[t]))
        event = events.get(t)
        if event is not None:
            event(model)
        if ask(t + 1):  # once more, after the event
            scores.append(model.predict_proba_one(X[t]))
        model.learn_one(X[t], Y[t], id=f"item {t}")
    return scores


def some_events(q):
    one = np.eye(q, dtype=np.uint8)
    return {
        80: lambda m: m.relabel("item 79", one[2]),
        95: lambda m: m.forget("item 90"),
        96: lambda m: m.relabel("item 95", one[3] | one[4]),
        110: lambda m: m.refit(),
        120: lambda m: m.view().predict_proba_one(np.ones(9)),
    }


@pytest.mark.parametrize(
    ("window", "lift"), [(None, None), (None, "kernel"), (70, "kernel"), (45, None)]
)
@pytest.mark.parametrize("ask", [lambda t: False, lambda t: True, lambda t: t % 3 > 0])
def test_single_items_are_learnt_and_scored_as_blocks_are(window, lift, ask):
    X, Y = draw()
    events = some_events(Y.shape[1])
    make = {"random_state": 0, "window": window, "lift": lift}
    fast, slow = OML(**make), slowly(OML(**make))
    a, b = play(fast, X, Y, events, ask), play(slow, X, Y, events, ask)
    assert_same_state(fast.to_state(), slow.to_state())
    np.testing.assert_array_equal(a, b)


def test_labels_may_come_and_go_between_single_items():
    X, Y = draw(120)
    fast, slow = OML(random_state=0), slowly(OML(random_state=0))
    for model in fast, slow:
        names = [f"t{j}" for j in range(Y.shape[1])]
        sets = [{n for n, has in zip(names, y, strict=True) if has} for y in Y]
        model.partial_fit(X[:60], sets[:60])
        for t in range(60, 120):
            if t == 70:
                sets[t] = {"late"}
            if t == 80:
                model.merge_labels(["t0", "t1"], "t1")
            if t == 90:
                model.remove_label("t2")
            model.predict_proba_one(X[t])
            model.learn_one(X[t], sets[t])
    assert_same_state(fast.to_state(), slow.to_state())


def test_the_fast_way_is_taken_where_it_can_be(monkeypatch):
    X, Y = draw(80)
    taken = []
    learn = single.learn
    monkeypatch.setattr(single, "learn", lambda *args: taken.append(1) or learn(*args))
    model = OML(random_state=0).partial_fit(X[:60], Y[:60])
    model.learn_one(X[60], Y[60])
    assert taken == [1]
    for other in (
        OML(random_state=0, head=False),
        OML(random_state=0, lag=2),
        OML(random_state=0, step="convex"),
    ):
        other.partial_fit(X[:60], Y[:60]).learn_one(X[60], Y[60])
    assert taken == [1]
    unsure = np.ma.masked_array(Y[61:62].astype(float), mask=np.eye(1, Y.shape[1], dtype=bool))
    model.partial_fit(X[61:62], unsure)  # from here on not all is known
    model.learn_one(X[62], Y[62])
    assert taken == [1]


def test_a_view_answers_as_before_while_single_items_are_learnt():
    X, Y = draw()
    model = OML(random_state=0, window=70).partial_fit(X[:100], Y[:100])
    view = model.view()
    before = view.predict_proba_one(X[200])
    for t in range(100, 200):
        model.learn_one(X[t], Y[t])
        if t % 7 == 0:
            np.testing.assert_array_equal(view.predict_proba_one(X[200]), before)
    assert (model.predict_proba_one(X[200]) != before).any()
