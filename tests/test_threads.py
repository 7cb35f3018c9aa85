"""Threads: in order, one level deep, and nothing depends on how many there are."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tagstream import KNN, OML, make_stream
from tagstream.execution import threads
from tagstream.execution.threads import in_threads
from tagstream.labels.read import Labels
from tagstream.store.sums import LocalExamples


@pytest.fixture(params=[1, 2, 5])
def several(request, monkeypatch):
    monkeypatch.setattr(threads, "n_threads", lambda: request.param)
    return request.param


def test_results_come_in_the_order_of_the_items(several):
    assert list(in_threads(lambda i: i * i, range(50), worth=True)) == [i * i for i in range(50)]
    assert list(in_threads(abs, [], worth=True)) == []


def test_inside_of_a_thread_nothing_is_shared_out_again(several):
    def who(_):
        return threading.get_ident()

    def inner(i):
        return who(i), set(in_threads(who, range(4), worth=True))

    for own, others in in_threads(inner, range(6), worth=True):
        assert several == 1 or others == {own}


def test_what_is_not_worth_it_is_done_here(several):
    assert set(in_threads(lambda _: threading.get_ident(), range(9), worth=False)) == {
        threading.get_ident()
    }


def test_an_error_reaches_the_caller(several):
    def fail(i):
        if i == 3:
            raise ValueError("three")
        return i

    with pytest.raises(ValueError, match="three"):
        list(in_threads(fail, range(30), worth=True))


@pytest.mark.exact
def test_sums_over_leaves_do_not_depend_on_threads(monkeypatch):
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(1000, 6)), (rng.random((1000, 3)) < 0.4).astype(np.uint8)
    examples = LocalExamples.of(X, Labels(Y, None), 37)
    examples.leaf = 64
    mapped = [examples.map(np.tanh, keep) for keep in (False, True)]
    made = []
    for several in (1, 2, 3):
        monkeypatch.setattr(threads, "n_threads", lambda several=several: several)
        sums = [some.sum(lambda rows, labels, _: (rows.T @ rows,)) for some in (examples, *mapped)]
        made.append([s[0] for s in sums] + [some.gather(lambda rows: rows + 1) for some in mapped])
    for others in made[1:]:
        for a, b in zip(made[0], others, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.exact
@pytest.mark.parametrize("learner", [OML, KNN])
def test_predictions_in_bulk_do_not_depend_on_threads(learner, monkeypatch, limits):
    stream = make_stream(400, p=8, q=8, n_factors=4, seed=4)
    model = learner().fit(stream.X[:200], stream.Y[:200])
    limits(shared=23)
    alone = np.concatenate([model.predict_proba(row[None]) for row in stream.X[200:]])
    for several in (1, 3):
        monkeypatch.setattr(threads, "n_threads", lambda several=several: several)
        np.testing.assert_array_equal(model.predict_proba(stream.X[200:]), alone)
