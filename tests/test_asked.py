"""What was asked about an item can be learnt with it, and comes to the same bits."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream import KNN, OLANSGD, OML, OSMLELM, Tagger, make_stream, prequential
from tagstream.engine.asked import same_rows
from tagstream.engine.embedding import Embedding
from tagstream.store import lookup
from tagstream.testing import assert_same_state

pytestmark = pytest.mark.exact

LEARNERS = {
    "dense": lambda: OML(random_state=0, lift=None),
    "kernel": lambda: OML(random_state=0, lift="kernel", window=70),
    "votes": lambda: OML(random_state=0, lift=None, head=False),
    "late": lambda: OML(random_state=0, lift=None, lag=2),
    "convex": lambda: OML(random_state=0, lift=None, step="convex"),
    "few": lambda: OML(random_state=0, lift=None, n_neighbors=1, window=9),
    "knn": lambda: KNN(5),
    "knn map": lambda: KNN(5, vote="map"),
    "knn head": lambda: KNN(5, head=True, window=60),
    "elm": lambda: OSMLELM(n_hidden=8, random_state=0),
    "olansgd": lambda: OLANSGD(first_block=20),
}


def draw(n=200, p=9, q=11, seed=0, *, sparse=False):
    made = make_stream(n, p=p, q=q, seed=seed)
    X, Y = np.asarray(made.X, np.float64), np.asarray(made.Y, np.uint8)
    X[n // 2 : n // 2 + 9] = X[:9]  # copies
    return (sp.csr_matrix(np.where(X > 0.4, np.round(X, 2), 0)) if sparse else X), Y


def change(model, what, t):
    """Change a model in one of the ways that there are, or not at all."""
    stored = getattr(model, "n_stored_", 0)
    if what == "learn":
        model.partial_fit(np.ones((1, 9)), np.eye(1, 11, dtype=np.uint8))
    elif what == "relabel" and stored:
        model.relabel(model.ids_[-1], np.eye(11, dtype=np.uint8)[t % 11])
    elif what == "forget" and stored > 5:
        model.forget(model.ids_[-3])
    elif what == "refit" and hasattr(model, "refit"):
        model.refit()
    elif what == "ask":
        model.predict(np.ones((2, 9)))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", LEARNERS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_learning_with_what_was_asked_comes_to_the_same_bits(kind, sparse, data):
    X, Y = draw(sparse=sparse)
    told, plain = LEARNERS[kind](), LEARNERS[kind]()
    start = data.draw(st.sampled_from([1, 15, 85]))
    for model in told, plain:
        model.partial_fit(X[:start], Y[:start])
    t = start
    while t < start + 25:
        n = data.draw(st.sampled_from([1, 1, 1, 2, 7]))
        what = data.draw(
            st.sampled_from(["", "", "", "learn", "relabel", "forget", "refit", "ask"])
        )
        how = {"next": data.draw(st.booleans())}
        asked = told.ask(X[t : t + n], **how)
        np.testing.assert_array_equal(asked.scores, plain.predict_proba(X[t : t + n], **how))
        for model in told, plain:
            change(model, what, t)
        told.partial_fit(X[t : t + n], Y[t : t + n], asked=asked)
        plain.partial_fit(X[t : t + n], Y[t : t + n])
        t += n
    assert_same_state(told.to_state(), plain.to_state())


def test_what_was_asked_about_other_rows_is_not_used():
    X, Y = draw()
    told, plain = (OML(random_state=0).partial_fit(X[:60], Y[:60]) for _ in range(2))
    told.learn_one(X[61], Y[61], asked=told.ask(X[60], next=True))
    plain.learn_one(X[61], Y[61])
    assert_same_state(told.to_state(), plain.to_state())
    other = OML(random_state=0).partial_fit(X[:62], Y[:62])
    told.learn_one(X[63], Y[63], asked=other.ask(X[63], next=True))
    plain.learn_one(X[63], Y[63])
    assert_same_state(told.to_state(), plain.to_state())


def test_what_a_view_was_asked_can_be_learnt():
    X, Y = draw()
    told, plain = (OML(random_state=0).partial_fit(X[:60], Y[:60]) for _ in range(2))
    for t in range(60, 100):
        asked = told.view().ask(X[t : t + 1])
        told.partial_fit(X[t : t + 1], Y[t : t + 1], asked=asked)
        plain.learn_one(X[t], Y[t])
    assert_same_state(told.to_state(), plain.to_state())


@pytest.mark.parametrize("next", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_nothing_is_computed_twice_for_an_item_that_was_asked_about(monkeypatch, sparse, next):
    X, Y = draw(sparse=sparse)
    model = OML(random_state=0, lift=None).partial_fit(X[:80], Y[:80])
    model.partial_fit(X[80:85], Y[80:85])
    calls = []
    for cls, name in ((Embedding, "__call__"), (lookup, "nearest_codes")):
        kept = getattr(cls, name)
        count = lambda *args, name=name, kept=kept: calls.append(name) or kept(*args)  # noqa: E731
        monkeypatch.setattr(cls, name, count)
    asked = model.ask(X[85:86], next=next)
    assert sorted(calls) == ["__call__", "nearest_codes"]
    calls.clear()
    (why,) = model.explain(asked)
    assert calls == (["nearest_codes"] if why.copy_of else [])  # for its distance
    calls.clear()
    model.partial_fit(X[85:86], Y[85:86], asked=asked)
    assert not calls
    model.partial_fit(X[86:87], Y[86:87], asked=asked)  # of another item
    assert sorted(calls) == ["__call__", "nearest_codes"]


def test_an_array_that_is_used_again_does_not_change_what_was_asked():
    X, Y = draw()
    X = X.astype(np.float32)
    told, plain = (OML(random_state=0, lift=None).partial_fit(X[:60], Y[:60]) for _ in range(2))
    for make in (lambda x: x.copy(), lambda x: sp.csr_matrix(x[None])):
        for x, y in zip(X[60:90], Y[60:90], strict=True):
            buffer = make(x)
            asked = told.ask(buffer, next=True)
            (buffer.data if sp.issparse(buffer) else buffer)[:] = 1.0
            told.learn_one(buffer, y, asked=asked)
            plain.learn_one(buffer, y)
    assert_same_state(told.to_state(), plain.to_state())


def test_an_answer_that_is_explained_is_not_asked_again_unless_the_learner_has_changed():
    X, Y = draw()
    model = OML(random_state=0).partial_fit(X[:80], Y[:80])
    asked = model.ask(X[80:83], next=True)
    assert model.explain(asked) == model.explain(X[80:83], next=True)
    model.learn_one(X[80], Y[80])
    assert model.explain(asked) == model.explain(X[80:83], next=True)


def test_only_what_was_asked_is_taken():
    X, Y = draw(80)
    model = OML(random_state=0).partial_fit(X, Y)
    for call in (model.learn_one, lambda x, y, asked: model.partial_fit([x], [y], asked=asked)):
        with pytest.raises(ValueError, match=r"asked must be what ask\(\) returned, got ndarray"):
            call(X[0], Y[0], asked=X[0])
    assert model.n_seen_ == 80


@pytest.mark.parametrize("kind", LEARNERS)
@pytest.mark.parametrize("sparse", [False, True])
def test_no_question_writes_anything(kind, sparse):
    X, Y = draw(sparse=sparse)
    model = LEARNERS[kind]().partial_fit(X[:120], Y[:120])
    for one in model, model.view()._model:
        before = snapshot_of(one)
        for how in ({}, {"next": True}):
            one.predict(X[120:123], **how)
            one.ask(X[120:121], **how)
            if hasattr(one, "explain"):
                one.explain(X[121:122], **how)
        one.predict_one(X[120] if not sparse else X[120:121])
        if hasattr(one, "ask_stored"):
            list(one.ask_stored())
            one.kneighbors(X[:3])
        assert snapshot_of(one) == before


def snapshot_of(value, met=None):
    """Return what an object and the parts of this library in it refer to."""
    met = set() if met is None else met
    if id(value) in met or not type(value).__module__.startswith("tagstream"):
        return id(value)
    met.add(id(value))
    names = list(getattr(value, "__dict__", ()))
    for cls in type(value).__mro__:
        names += [name for name in getattr(cls, "__slots__", ()) if hasattr(value, name)]
    return id(value), tuple((name, snapshot_of(getattr(value, name), met)) for name in names)


def test_readers_of_a_view_do_not_wait_for_each_other():
    X, Y = draw()
    view = OML(random_state=0).partial_fit(X[:100], Y[:100]).view()
    inside, together = threading.Barrier(2), []
    kept = view._model._locate

    def locate(*args):
        together.append(inside.wait(timeout=30))  # both are in the middle of a question
        return kept(*args)

    view._model._locate = locate
    threads = [threading.Thread(target=view.predict_proba, args=(X[:1],)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(together) == [0, 1]


def test_rows_are_the_same_to_the_last_bit_or_not_at_all():
    a = np.array([[1.0, 0.0]], np.float32)
    assert same_rows(a, a.copy())
    assert not same_rows(a, -a * 0 + a * np.float32([[1, -1]]))
    assert not same_rows(a, a.astype(np.float64))
    assert not same_rows(a, sp.csr_matrix(a))
    assert same_rows(sp.csr_matrix(a), sp.csr_matrix(a))
    assert not same_rows(sp.csr_matrix(a), sp.csr_matrix(a[:, ::-1]))


# ---------------------------------------------------------------------- who passes it on
TEXTS = [
    f"{a} {b} {c}" for a in ("low", "high") for b in ("tide", "bread", "wind") for c in "abcde"
]


def teach(n=30):
    records = [{"text": text, "y": [text.split()[1]]} for text in TEXTS]
    tagger = Tagger()
    tagger.learn(records[:n])
    return tagger


@pytest.mark.parametrize("next", [False, True])
@pytest.mark.parametrize("n", [1, 4])
def test_a_tagger_learns_the_same_with_what_it_was_asked(next, n):
    told, plain = teach(), teach()
    for t in range(0, 24, n):
        texts = [f"{TEXTS[i]} again {i}" for i in range(t, t + n)]
        asked = told.view().ask([{"text": text} for text in texts], next=next)
        assert told.suggest(asked) == plain.suggest(texts, next=next)
        records = [{"text": text, "y": ["tide", "again"][: 1 + t % 2]} for text in texts]
        assert told.learn(records, asked=asked) == plain.learn(records)
    assert_same_state(told.learner.to_state(), plain.learner.to_state())


def test_a_tagger_takes_what_was_asked_about_other_records_for_nothing():
    told, plain = teach(), teach()
    record = {"text": "low tide z", "y": ["tide"]}
    for asked in told.ask("high bread"), Tagger().ask("low tide z"), told.ask([]):
        told.learn({**record, "text": record["text"] + "!"}, asked=asked)
        plain.learn({**record, "text": record["text"] + "!"})
    assert_same_state(told.learner.to_state(), plain.learner.to_state())


def test_a_tagger_explains_what_it_was_asked_and_anew_after_a_change():
    tagger = teach()
    asked = tagger.ask("low tide q")
    assert tagger.explain(asked) == tagger.explain("low tide q")
    tagger.learn({"text": "low tide q", "y": ["bread"]})
    assert tagger.explain(asked) == tagger.explain("low tide q")
    with pytest.raises(ValueError, match="one record can be explained at a time, got 2"):
        tagger.explain(tagger.ask(["low", "high"]))


def count_searches(monkeypatch):
    """Return a list that grows with every search among codes but those of fits."""
    calls, kept = [], lookup.nearest_codes
    monkeypatch.setattr(lookup, "nearest_codes", lambda *args: calls.append(1) or kept(*args))
    return calls


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("sparse", [False, True])
def test_prequential_looks_once_for_the_neighbours_of_an_item(monkeypatch, batch, sparse):
    X, Y = draw(120, sparse=sparse)
    told, plain, blind = (
        OML(random_state=0, lift=None).partial_fit(X[:60], Y[:60]) for _ in range(3)
    )
    calls = count_searches(monkeypatch)
    result = prequential(told, X[60:], Y[60:], batch=batch)
    assert batch > 1 or len(calls) == 60
    plain.partial_fit(X[60:], Y[60:])
    assert_same_state(told.to_state(), plain.to_state())
    assert prequential(Blind(blind), X[60:], Y[60:], batch=batch).measures == result.measures


class Blind:
    """A learner that cannot be asked for a value."""

    def __init__(self, model):
        self.learn, self.predict_proba = model.partial_fit, model.predict_proba
        self.predict, self.labels_of = model.predict, model.labels_of

    def partial_fit(self, X, Y):
        self.learn(X, Y)


def test_the_river_adapter_looks_once_for_the_neighbours_of_an_item(monkeypatch):
    river = pytest.importorskip("tagstream.compat.river")
    X, Y = draw(90)
    told, plain = (
        river.RiverClassifier(OML(random_state=0, lift=None), n_features=16) for _ in range(2)
    )
    items = [
        ({f"f{j}": v for j, v in enumerate(x)}, dict(enumerate(map(bool, y))))
        for x, y in zip(X.tolist(), Y.tolist(), strict=True)
    ]
    for x, y in items[:60]:
        told.learn_one(x, y)
        plain.learn_one(x, y)
    calls = count_searches(monkeypatch)
    for x, y in items[60:]:
        told.predict_one(x)
        told.learn_one(x, y)
    assert len(calls) == 30
    for x, y in items[60:]:
        plain.learn_one(x, y)
    assert_same_state(told.learner.to_state(), plain.learner.to_state())
