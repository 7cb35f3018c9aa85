"""A fit under way: nothing depends on when its steps are done, and nothing is lost meanwhile."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from tagstream import OML
from tagstream.execution.steps import Slowly
from tagstream.testing import assert_same_state

SETTINGS = {
    "default": {},
    "kernel": {"lift": "kernel"},
    "window": {"window": 60},
    "convex": {"step": "convex"},
    "narrow": {"n_components": 2},
    "no head": {"head": False},
    "late": {"lag": 3},
    "sparse": {},
}


@pytest.fixture(autouse=True)
def early(limits):
    """Have fits of few examples take effect later, keep features, and take small leaves."""
    limits(chosen_at_once=22, fitted_at_once=30, least_delay=2, delay_share=12)
    limits(features_kept=40, dear_leaf=8, leaf=32)


def draw(n, setting, p=5, q=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)).astype(np.float32)
    Y = (X @ rng.normal(size=(p, q)) + 0.5 * rng.normal(size=(n, q)) > 0.3).astype(np.uint8)
    return (sp.csr_matrix(X) if setting == "sparse" else X), Y


def model_of(setting, **more):
    return OML(n_neighbors=3, random_state=0, **SETTINGS[setting], **more)


def under_way(setting="default", n=200):
    """A model with a fit under way, and what comes next."""
    X, Y = draw(n, setting)
    model = model_of(setting)
    for i in range(n):
        model.partial_fit(X[i], Y[i : i + 1]) if setting == "sparse" else model.learn_one(
            X[i], Y[i]
        )
        if i > 100 and model._renewal is not None and model._renewal.at > i + 3:
            return model, X[i + 1 :], Y[i + 1 :]
    raise AssertionError("there was no fit")


KINDS = ["learn"] * 6 + ["relabel", "forget", "tag", "view", "refit"]


def some_events(seed, n=50):
    rng = np.random.default_rng(seed)
    return [("learn", 4)] * 8 + [(KINDS[rng.integers(11)], int(rng.integers(99))) for _ in range(n)]


def play(model, events, X, Y, *, cut, save):
    """Let events happen to a model: examples in blocks of ``cut``, saved and loaded at each."""
    tags, at, waiting = Y.shape[1], 0, 0

    def learn():
        nonlocal at, waiting
        for first in range(at, at + waiting, cut):
            part = slice(first, min(first + cut, at + waiting))
            model.partial_fit(X[part], np.pad(Y[part], ((0, 0), (0, tags - Y.shape[1]))))
        at, waiting = at + waiting, 0

    for kind, number in events:
        if kind == "learn":
            waiting += 1 + number % 5
            continue
        learn()
        if save:
            model = OML.from_state(model.to_state())
        ids = model.ids_ if at else []
        if kind == "tag":  # a label that nobody had; then somebody has it
            tags += 1
            waiting += 1
        elif kind == "relabel" and ids:
            new = np.random.default_rng(number).random(tags) < 0.5
            names = range(tags)
            model.relabel(ids[number % len(ids)], new.astype(np.uint8), classes=[*names])
        elif kind == "forget" and len(ids) > 30:
            model.forget(ids[number % len(ids)])
        elif kind == "view" and at:
            model.view()
        elif kind == "refit" and at > 40 and number % 3 == 0:
            model.refit()
    learn()
    return model


@pytest.mark.exact
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("seed", range(4))
def test_the_state_depends_on_events_alone(setting, seed):
    X, Y = draw(400, setting)
    made = [
        play(model_of(setting), some_events(seed), X, Y, cut=cut, save=save).to_state()
        for cut, save in ((1, False), (7, False), (1000, False), (3, True))
    ]
    for other in made[1:]:
        assert_same_state(made[0], other)


@pytest.mark.exact
@pytest.mark.parametrize("setting", SETTINGS)
def test_steps_may_be_done_in_any_rhythm(setting, limits):
    X, Y = draw(300, setting)
    made = []
    for patience in (0.0, 0.001, 60.0):
        limits(patience=patience)
        model = model_of(setting)
        for i in range(300):
            model.partial_fit(X[i : i + 1], Y[i : i + 1])
        made.append(model.to_state())
    for other in made[1:]:
        assert_same_state(made[0], other)


def test_a_fit_is_that_of_the_examples_at_its_beginning_and_takes_effect_later():
    model, X, Y = under_way()
    old, at, n = model._embedding.projection, model._renewal.at, model.n_seen_
    while model.n_seen_ < at - 1:
        model.learn_one(X[model.n_seen_ - n], Y[model.n_seen_ - n])
        assert model._embedding.projection is old
    model.learn_one(X[model.n_seen_ - n], Y[model.n_seen_ - n])
    assert model._embedding.projection is not old
    assert model._renewal is None


def test_one_example_does_one_step_and_a_block_leaves_them_to_the_end(monkeypatch, limits):
    limits(patience=0.0)
    steps, step = [], Slowly.step

    def spy(self):
        steps.append(self)
        step(self)

    model, X, Y = under_way()
    monkeypatch.setattr(Slowly, "step", spy)
    model.learn_one(X[0], Y[0])
    assert len(steps) == 1
    limits(few_rows=1)
    model.partial_fit(X[1:3], Y[1:3])
    assert len(steps) == 1
    assert model._renewal is not None


@pytest.mark.parametrize("setting", ["default", "kernel", "sparse"])
def test_what_is_learnt_meanwhile_is_known_to_the_new_fast_map(setting):
    # A label that comes after the beginning of the fit: P knows nothing of it.
    model, X, Y = under_way(setting)
    at, row = model._renewal.at, X[:1]
    label = np.zeros((1, Y.shape[1] + 1), np.uint8)
    label[0, -1] = 1
    while model.n_seen_ < at:
        model.partial_fit(row, label)
    assert model._renewal is None
    made = model._embedding(row, Y.shape[1] + 1)
    assert abs(made.Z[0, -1]) < 1e-6
    assert model._belief.fast(made.inputs, made.Z)[0, -1] > 0.5


@pytest.mark.parametrize("setting", ["default", "sparse"])
@pytest.mark.parametrize("cut", [1, 50])
def test_items_of_which_nothing_is_known_teach_nothing_meanwhile(setting, cut):
    model, X, Y = under_way(setting)
    left = model._renewal.at - model.n_seen_
    for first in range(0, left, cut):
        part = slice(first, min(first + cut, left))
        model.partial_fit(X[part], np.full(Y[part].shape, np.nan))
    assert model._renewal is None
    assert not model._belief.fast.state.D.any()
    assert not model._belief.fast.state.added.any()


@pytest.mark.parametrize("setting", ["default", "sparse"])
def test_a_correction_meanwhile_holds_when_the_fit_takes_effect(setting):
    model, X, Y = under_way(setting)
    item = model.ids_[40]
    row = model.item(item).row
    new = np.zeros(Y.shape[1] + 1, np.uint8)
    new[-1] = 1
    model.relabel(item, new, classes=range(len(new)))
    while model._renewal is not None:
        model.partial_fit(X[:1], np.pad(Y[:1], ((0, 0), (0, 1))))
    assert model.predict(row)[0].tolist() == new.tolist()


@pytest.mark.exact
@pytest.mark.parametrize("lift", ["kernel", None])
def test_sums_that_were_kept_are_those_of_all_examples(lift):
    X, Y = draw(300, "default")
    kept, anew = (OML(lift=lift, n_neighbors=3, random_state=0) for _ in range(2))
    n_kept = 0
    for i in range(300):
        kept.learn_one(X[i], Y[i])
        anew.learn_one(X[i], Y[i])
        anew._embedding.forget_sums()
        n_kept = max(n_kept, kept._embedding.nbytes - anew._embedding.nbytes)
    assert n_kept > 0
    assert_same_state(kept.to_state(), anew.to_state())


def test_features_stay_from_one_choice_to_the_next():
    X, Y = draw(300, "default")
    model, rows, choices = OML(lift="kernel", n_neighbors=3, random_state=0), [], []
    for i in range(300):
        model.learn_one(X[i], Y[i])
        if i > 60:
            rows.append(model._embedding.projection.lift.W)
            choices.append(model._embedding.next_choice)
    changed = [not np.array_equal(a, b) for a, b in pairwise(rows)]
    chosen = [a != b for a, b in pairwise(choices)]
    assert changed == chosen
    assert any(chosen)


def test_labels_that_are_merged_end_a_fit_that_is_under_way():
    model, X, _ = under_way()
    twin = copy.deepcopy(model).refit()
    for one in (model, twin):
        one.merge_labels([0, 1], "both")
        assert one._renewal is None
        one.partial_fit(X[:3], [{"both"}, {2}, {3}])
    assert_same_state(model.to_state()["learner"]["store"], twin.to_state()["learner"]["store"])


def test_a_fit_of_nothing_makes_nothing():
    model, X, Y = under_way()
    for item in model.ids_:
        model.forget(item)
    for i in range(30):
        model.learn_one(X[i % len(X)], Y[i % len(Y)])
    assert model.predict(X[:2]).shape == (2, Y.shape[1])


def test_a_view_does_not_see_a_fit_that_is_under_way():
    model, X, Y = under_way()
    view, before = model.view(), model.predict_proba(X)
    while model._renewal is not None:
        model.learn_one(X[0], Y[0])
    np.testing.assert_array_equal(view.predict_proba(X), before)


BAD = {
    "at": [0, 10**6, -1, "soon"],
    "turn": [np.ones((1, 1))],
    "fast": [None],
    "mean": [np.full(5, np.nan), np.zeros(3)],
    "deviation": [np.zeros(2)],
    "embedding": [None, {}],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in BAD.items() for v in values])
def test_a_file_with_a_fit_that_makes_no_sense_is_refused(name, value):
    state = under_way()[0].to_state()
    OML.from_state(state)
    state["learner"]["renewal"][name] = value
    with pytest.raises((ValueError, TypeError)):
        OML.from_state(state)


BAD_MOMENTS = {
    "mean": [np.full(5, np.nan), np.zeros(3), None],
    "deviation": [np.zeros(5), np.full(5, -1.0), np.full(5, np.inf)],
}


@pytest.mark.parametrize(
    ("name", "value"), [(n, v) for n, values in BAD_MOMENTS.items() for v in values]
)
def test_a_file_with_moments_that_make_no_sense_is_refused(name, value):
    state = under_way()[0].to_state()
    OML.from_state(state)
    state["learner"]["moments"][name] = value
    with pytest.raises(ValueError, match=name):
        OML.from_state(state)
