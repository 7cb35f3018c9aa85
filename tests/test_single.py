"""One dense item at a time takes another way than a block, and comes to the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from checks import assert_same_state
from tagstream import OML, make_stream, projection
from tagstream.learners import oml, single

pytestmark = pytest.mark.exact


@pytest.fixture(autouse=True)
def small_lifts(monkeypatch):
    monkeypatch.setattr(projection, "LIFT_SIZE", 40)
    monkeypatch.setattr(oml, "FIRST_SINGLES", 0)


def test_the_first_items_go_the_way_of_blocks(monkeypatch):
    looked = count_calls(monkeypatch, "_ask")
    monkeypatch.setattr(oml, "FIRST_SINGLES", 6)
    X, Y = draw()
    model = OML(random_state=0).partial_fit(X[:60], Y[:60])
    for t in range(60, 65):
        assert len(looked) == max(t - 63, 0)  # an item that was asked about is not looked up again
        model.predict_one(X[t])
        model.learn_one(X[t], Y[t])


def count_calls(monkeypatch, name):
    """Return a list that grows whenever that compiled function is called."""
    calls, function = [], getattr(single, name)
    monkeypatch.setattr(single, name, lambda *args: calls.append(1) or function(*args))
    return calls


def draw(n=230, p=9, q=11, seed=0):
    made = make_stream(n, p=p, q=q, seed=seed)
    X, Y = np.asarray(made.X, np.float64), np.asarray(made.Y, np.uint8)
    X[200:220] = X[150:170]  # copies
    return X, Y


def slowly(model):
    """Return the same model without its way for single items."""
    model._plain_case = lambda rows, *, learning: None
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
    taken = count_calls(monkeypatch, "_learn")
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


@pytest.mark.parametrize("first", [0, 1000])  # single items the short way, and the way of blocks
def test_an_item_may_be_asked_about_in_an_array_that_is_used_again(monkeypatch, first):
    monkeypatch.setattr(oml, "FIRST_SINGLES", first)
    X, Y = draw(90)
    X = X.astype(np.float32)
    asked, silent = OML(random_state=0, lift=None), OML(random_state=0, lift=None)
    for model in asked, silent:
        model.partial_fit(X[:60], Y[:60])
    buffer = np.empty(9, np.float32)
    for x, y in zip(X[60:], Y[60:], strict=True):
        buffer[:] = x
        asked.predict_one(buffer)
        buffer[:] = 1.0
        asked.learn_one(x, y)
        silent.learn_one(x, y)
    assert_same_state(asked.to_state(), silent.to_state())


def test_nothing_is_compiled_again_for_rows_of_another_kind():
    X, Y = draw(70)
    X = X.astype(np.float32)
    model = OML(random_state=0).partial_fit(X[:60], Y[:60])
    model.predict_one(X[60])
    model.learn_one(X[60], Y[60])
    before = len(single._ask.signatures), len(single._learn.signatures)
    frozen_x, frozen_y = X[61].copy(), Y[61].copy()
    frozen_x.flags.writeable = frozen_y.flags.writeable = False
    strided_x, strided_y = np.asfortranarray(X)[62], np.asfortranarray(Y)[62]
    for x, y in ((frozen_x, frozen_y), (strided_x, strided_y), (X[63].astype(float), Y[63])):
        model.predict_one(x)
        model.learn_one(x, y)
    assert (len(single._ask.signatures), len(single._learn.signatures)) == before


def test_nothing_is_left_of_an_item_that_was_not_looked_at_to_the_end(monkeypatch):
    X, Y = draw(70)
    model = OML(random_state=0).partial_fit(X[:60], Y[:60])
    expected = model.predict_proba_one(X[60])
    model.predict_one(X[61])

    def stopped(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(single, "_ask", stopped)
        with pytest.raises(KeyboardInterrupt):
            model.predict_one(X[60])
    np.testing.assert_array_equal(model.predict_proba_one(X[60]), expected)
