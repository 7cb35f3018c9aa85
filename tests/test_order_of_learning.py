"""Answers for any item must not depend on the order in which items were learnt."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from reference import SlowAnyHead
from tagstream import KNN, OML, Tagger
from tagstream.core.inputs import inputs_of
from tagstream.evidence.anyhead import AnyHead
from tagstream.evidence.head import Evidence, History

RNG = np.random.default_rng(7)
CENTRES = RNG.normal(size=(5, 8))
KIND = RNG.integers(0, 5, 700)
X = 1.5 * CENTRES[KIND] + RNG.normal(size=(700, 8))
Y = np.eye(5, dtype=np.uint8)[KIND]
Y[:, 4] |= (X[:, 0] > 1).astype(np.uint8)
SORTED = np.argsort(KIND[:500], kind="stable")


def micro(model, **question):
    return f1_score(Y[500:], model.predict(X[500:], **question), average="micro")


@pytest.mark.parametrize("make", [OML, lambda **kw: KNN(head=True)], ids=["OML", "KNN"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_sorted_data_is_learnt_as_well_as_shuffled_data(make, form):
    shuffled = make(random_state=0).fit(form(X[:500]), Y[:500])
    by_label = make(random_state=0).fit(form(X[:500][SORTED]), Y[:500][SORTED])
    assert micro(by_label) > micro(shuffled) - 0.03
    assert micro(by_label) > 0.8


def test_the_weights_for_the_next_item_are_of_no_use_for_any_item():
    # Why there are two questions: if this were not so, one head would do.
    model = OML(random_state=0).fit(X[:500][SORTED], Y[:500][SORTED])
    assert micro(model, next=True) < micro(model) - 0.2


def test_a_refit_after_sorted_data_in_pieces_is_as_good_as_fit():
    model = OML(random_state=0)
    for part in np.array_split(SORTED, 7):
        model.partial_fit(X[part], Y[part])
    model.refit()
    whole = OML(random_state=0).fit(X[SORTED], Y[SORTED])
    np.testing.assert_array_equal(model.predict_proba(X[500:]), whole.predict_proba(X[500:]))


@pytest.mark.parametrize("load", [load_iris, load_wine, load_digits])
def test_tables_of_scikit_learn_as_they_come(load):
    rows, y = load(return_X_y=True)
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    wanted = cross_val_score(plain, rows, y).mean() - 0.02
    assert cross_val_score(OML(random_state=0), rows, y).mean() >= wanted


@pytest.mark.parametrize("order", ["in a row", "shuffled"])
def test_copies_do_not_ruin_the_answers(order):
    once = OML(random_state=0).fit(X[:300], Y[:300])
    rows = np.repeat(np.arange(300), 3)
    if order == "shuffled":
        rows = RNG.permutation(rows)
    model = OML(random_state=0).fit(X[rows], Y[rows])
    assert micro(model) > micro(once) - 0.03


def test_each_refit_leaves_other_items_out():
    model = OML(random_state=0).fit(X[:300], Y[:300])
    before = model.to_state()["learner"]["belief"]["any"]["w"]
    after = model.refit().to_state()["learner"]["belief"]["any"]["w"]
    assert (before != after).any()


def test_a_refit_of_fewer_than_twenty_items_does_nothing():
    model = OML(random_state=0).partial_fit(X[:19], Y[:19])
    before = model.to_state()
    after = model.refit().to_state()
    assert bits_of_state(after) == bits_of_state(before)


def bits_of_state(state):
    """Return a nested state in a form that can be compared."""
    if isinstance(state, dict):
        return {key: bits_of_state(value) for key, value in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state


def test_a_second_fit_is_like_the_first():
    # A fit that was under way used to survive into the next life of the learner.
    sets = [{f"t{j}" for j in np.flatnonzero(row)} for row in Y]
    for n in (270, 300, 330):
        again = OML(random_state=0).partial_fit(X[:n], sets[:n]).fit(X[:60], sets[:60])
        fresh = OML(random_state=0).fit(X[:60], sets[:60])
        assert bits_of_state(again.to_state()) == bits_of_state(fresh.to_state())


# ---------------------------------------------------------------------- corrections and twins
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_of_equal_items_the_one_corrected_last_answers(form):
    rows = np.concatenate([X[:200], np.repeat(X[:1], 60, axis=0)])
    labels = np.concatenate([Y[:200], np.repeat(Y[:1], 60, axis=0)])
    model = OML(random_state=0).partial_fit(form(rows), labels)
    new = np.array([0, 1, 1, 0, 0], np.uint8)
    assert (model.predict(form(X[:1]))[0] != new).any()
    model.relabel(230, new)  # sixty twins say something else
    np.testing.assert_array_equal(model.predict(form(X[:1]))[0], new)
    model.relabel(0, 1 - new)
    np.testing.assert_array_equal(model.predict(form(X[:1]))[0], 1 - new)
    model.forget(0)
    np.testing.assert_array_equal(model.predict(form(X[:1]))[0], new)
    again = OML.from_state(model.to_state())
    np.testing.assert_array_equal(again.predict(form(X[:1]))[0], new)


@pytest.mark.exact
def test_a_corrected_twin_that_has_left_the_window_gives_way_to_one_that_has_not():
    rows = np.concatenate([X[:44], np.repeat(X[:1], 46, axis=0)])
    labels = np.concatenate([Y[:44], np.repeat(Y[:1], 46, axis=0)])
    new = np.array([0, 1, 1, 0, 0], np.uint8)
    ends = []
    for size in (1, 7, 30):
        model = OML(window=50, random_state=0).partial_fit(rows, labels)
        model.relabel(80, new)
        model.relabel(45, 1 - new)  # later, and gone sooner
        np.testing.assert_array_equal(model.predict(X[:1])[0], 1 - new)
        for first in range(100, 130, size):
            part = slice(first, min(first + size, 130))
            model.partial_fit(X[:1].repeat(part.stop - part.start, axis=0), Y[part])
        assert not model.has_item(45)
        assert model.explain(X[:1])[0].copy_of.id == 80
        ends.append(bits_of_state(model.to_state()))
    assert ends[0] == ends[1] == ends[2]


def test_empty_texts_are_nobodys_twins():
    tagger = Tagger()
    tagger.learn({"id": i, "text": "..." if i % 9 == 0 else f"word{i} other{i % 7}", "y": ["a"]}
                 for i in range(60))  # fmt: skip
    tagger.relabel(9, ["b"])
    assert "b" not in tagger.suggest({"text": "!!!"}).tags


# ---------------------------------------------------------------------- dense and sparse rows
def test_dense_and_sparse_rows_of_the_same_numbers_have_the_same_answers():
    rows = np.where(np.abs(X) > 0.7, X, 0)
    settings = {"scale": None, "lift": None, "random_state": 0}
    for n in (10, 60, 400):
        dense = OML(**settings).fit(rows[:n], Y[:n])
        sparse = OML(**settings).fit(sp.csr_matrix(rows[:n]), Y[:n])
        for question in (False, True):
            a = dense.predict_proba(rows[500:], next=question)
            b = sparse.predict_proba(sp.csr_matrix(rows[500:]), next=question)
            np.testing.assert_allclose(a, b, atol=1e-6)


# ---------------------------------------------------------------------- the any-head itself
def evidence_of(n, q, rng, *, near):
    """Return random evidence for 6 items among n stored ones, and what else a head needs."""
    labels = rng.integers(0, 2, (n, q)).astype(np.uint8)
    found = np.stack([rng.permutation(n)[:30] for _ in range(6)])
    beside = (
        np.stack([rng.permutation(n)[:10] for _ in range(6)]) if near else np.empty((0, 0), int)
    )
    Z = rng.normal(0.3, 0.5, (6, q))
    packed = np.packbits(labels, axis=1)
    evidence = Evidence(found, beside, packed, np.empty((0, 0), np.uint8), Z, inputs_of(None))
    none = np.zeros(q)
    counts = History(labels.sum(axis=0, dtype=np.int64), np.zeros(q, np.int64), np.array([n]),
                     none, none, none)  # fmt: skip
    return evidence, counts, labels


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("q", [1, 8, 13])
def test_the_any_head_scores_and_learns_as_its_formulas_say(near, q):
    rng = np.random.default_rng(q)
    evidence, counts, labels = evidence_of(50, q, rng, near=near)
    fresh = (np.arange(q) % 3 == 1).astype(np.uint8)
    head = AnyHead((3, 10, 30), near=near)
    head.grow(q)
    Y_new = rng.integers(0, 2, (6, q)).astype(np.uint8)
    less = (Y_new.astype(np.int64), np.zeros((6, q), np.int64), np.ones(6, np.int64))
    slow = SlowAnyHead(head.weights, (3, 10, 30))
    for i in range(6):
        slow.learn(evidence, labels, i, counts.n - Y_new[i], 49, fresh, evidence.Z, Y_new[i])
    head.learn(evidence, counts, less, fresh, Y_new)
    np.testing.assert_allclose(head.weights.w, slow.w, rtol=1e-10)
    np.testing.assert_allclose(head.weights.d[:, : len(slow.w)], slow.d, rtol=1e-9, atol=1e-12)
    z_plus = evidence.Z + rng.normal(0, 0.2, evidence.Z.shape)
    p = head.score(evidence, z_plus, counts, fresh)
    for i in range(6):
        expected = slow.score(evidence, labels, i, counts.n, 50, fresh, z_plus)
        np.testing.assert_allclose(p[i], expected, rtol=1e-10)
    told = head.explain(evidence, z_plus, counts, fresh)
    np.testing.assert_allclose(told.p, p, rtol=1e-12)
    np.testing.assert_allclose(told.parts.sum(axis=2), told.log_odds, rtol=1e-9, atol=1e-12)


def test_parts_of_an_explanation_add_up_for_both_questions():
    model = OML(random_state=0, decide="top2").fit(X[:400], Y[:400])
    for question in (False, True):
        scores = model.predict_proba(X[500:505], next=question)
        for why, p in zip(model.explain(X[500:505], next=question), scores, strict=True):
            for label, parts in why.parts.items():
                odds = np.log(p[label] / (1 - p[label]))
                assert sum(parts.values()) == pytest.approx(odds, abs=1e-6)
            if not question:
                assert all(parts["recent labels"] == 0 for parts in why.parts.values())


def test_an_answer_does_not_depend_on_the_other_rows():
    model = OML(random_state=0).fit(X[:400], Y[:400])
    alone = np.concatenate([model.predict_proba(x[None]) for x in X[500:520]])
    np.testing.assert_array_equal(alone, model.predict_proba(X[500:520]))
