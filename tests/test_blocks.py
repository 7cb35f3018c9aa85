"""What OSML-ELM and OLANSGD share: cuts, loading, reading beside learning, and scores."""

from __future__ import annotations

import copy
import itertools
import pickle
import threading
import tracemalloc
from typing import Any

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from tagstream.checks import WIDEST_ROWS
from tagstream.labels.read import Labels
from tagstream.paper.methods.blocks import LARGEST_CORE, Block, Scaling, solve_upper, to_unit
from tagstream.paper.methods.olansgd import OLANSGD
from tagstream.paper.methods.osml_elm import OSMLELM
from tagstream.testing import assert_same_state
from tagstream.testing.data import as_sets, binary_stream, feed, stream

# Each starts within the 60 examples of a stream, and has not started after 13.
MAKERS: dict[str, Any] = {
    "recursion": lambda: OSMLELM(8, random_state=0),
    "recursion-ridge": lambda: OSMLELM(8, ridge=0.5, scale=None, random_state=0),
    "qr": lambda: OSMLELM.stable(8, random_state=0),
    "ranking": lambda: OLANSGD(first_block=20),
    "ranking-threshold": lambda: OLANSGD(0.01, rule="threshold", first_block=20, scale=None),
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


# ------------------------------------------------------------------ parts
def test_half_is_clearly_missed_unless_the_margin_is_positive():
    """A score within 1e-6 of the threshold reaches it; one of a margin ≤ 0 is twice as far."""
    margins = np.array([[-np.inf, -1.0, -1e-6, -1e-300, 0.0, 1e-300, 1.0, np.inf]])
    scores = to_unit(margins)
    np.testing.assert_array_equal(scores >= 0.5, margins > 0)
    np.testing.assert_array_equal(scores <= 0.5 - 2e-6, margins <= 0)
    assert (np.diff(scores) >= 0).all()
    assert scores[0, 0] == 0
    assert scores[0, -1] == 1


def test_a_margin_that_is_not_a_number_speaks_for_no_label():
    assert to_unit(np.array([[np.nan]])) == 0.5 - 2e-6


def test_back_substitution_solves_and_treats_each_column_alone():
    rng = np.random.default_rng(0)
    R = np.triu(rng.normal(size=(9, 9))) + 3 * np.eye(9)
    B = rng.normal(size=(9, 21))
    X = B.copy()
    solve_upper(R, X)
    np.testing.assert_allclose(R @ X, B, rtol=0, atol=1e-13)
    for j, width in itertools.product(range(21), (1, 2, 5)):
        part = np.ascontiguousarray(B[:, j : j + width])
        solve_upper(R, part)
        np.testing.assert_array_equal(part, X[:, j : j + width])


def test_scaling_maps_the_range_to_one_and_leaves_binary_columns():
    X = np.array([[0, 10.0, 3, 1], [1, 30, 3, 0.5], [1, 20, 3, 1]])
    scaled = Scaling.of(X, "range")(X)
    np.testing.assert_allclose(
        scaled, [[0, -1, 0, 1], [1, 1, 0, -1], [1, 0, 0, 1]], rtol=0, atol=1e-15
    )
    spread = Scaling.of(X, "spread")(X)
    np.testing.assert_allclose(spread[:, [1, 3]].mean(axis=0), 0, atol=1e-15)
    np.testing.assert_allclose(spread[:, [1, 3]].std(axis=0), 1)
    np.testing.assert_array_equal(spread[:, 0], X[:, 0])
    far = Scaling.of(X, "range")(np.array([[1e15, -1e15, 1e15, 0]]))
    assert np.abs(far).max() == 5


def test_sparse_rows_are_scaled_without_filling_in():
    X = sp.csr_matrix(np.array([[0, 4.0, 0, 0.5], [1, -8, 0, 0], [1, 0, 0, 0.25]]))
    scaled = Scaling.of(X, "range")(X)
    assert scaled.nnz == X.nnz
    np.testing.assert_array_equal(
        scaled.toarray(), [[0, 0.5, 0, 0.5], [1, -1, 0, 0], [1, 0, 0, 0.25]]
    )


def test_an_empty_block_has_no_rows():
    for sparse in (False, True):
        X, Y, sure = Block(3, 4, 2, sparse).rows()
        assert (X.shape, Y.shape, sure.shape) == ((0, 4), (0, 2), (0, 2))


# ------------------------------------------------------------------ one stream, one state
@every
def test_items_of_which_nothing_is_known_may_stand_anywhere(make):
    """Before the first label, alone, first of all: cuts do not matter, and they teach nothing."""
    X, Y = stream()
    Y[:4] = 0
    sets: list[Any] = as_sets(Y)
    for i in (0, 2, 3, 10, 11, 40, 59):
        sets[i] = None
    whole = make().partial_fit(X, sets)
    for cuts in (range(60), [1, 4, 5], [2, 3, 11], [3, 40, 41]):
        assert_same_state(feed(make(), X, sets, list(cuts)).to_state(), whole.to_state())
    some = [i for i in range(60) if sets[i] is not None]
    without = make().partial_fit(X[some], [sets[i] for i in some])
    assert whole.n_seen_ == 60
    assert_same_state(whole.to_state()["learner"], without.to_state()["learner"])


@every
@pytest.mark.parametrize("first", ["learn_one", "partial_fit", "fit"])
def test_a_model_may_see_an_unknown_item_first_of_all(make, first):
    X, Y = stream()
    model = make()
    if first == "learn_one":
        model.learn_one(X[0], None)
    else:
        getattr(model, first)(X[:1], [None])
    assert model.n_seen_ == 1
    assert model.predict_proba(X).shape == (60, 0)
    assert model.predict_sets(X[:2]) == [set(), set()]
    again = type(model).from_state(model.to_state())
    for m in (model, again):
        m.partial_fit(X, as_sets(Y)).learn_one(X[0], None)
        assert m.n_seen_ == 62
    assert_same_state(again.to_state(), model.to_state())


@every
def test_what_was_learnt_from_cannot_be_asked_for_before_there_is_something(make):
    X, _ = stream()
    model = make().learn_one(X[0], None)
    name = "beta_" if isinstance(model, OSMLELM) else "coef_"
    with pytest.raises(NotFittedError, match="known labels"):
        getattr(model, name)


@every
@pytest.mark.parametrize("n_announced", [1, 3, 8, 40])
def test_announced_labels_change_no_bit_of_the_others(make, n_announced):
    """Before and after the start, with unknown entries: products of any width are the same."""
    X, Y = stream()
    mask = np.random.default_rng(1).random(Y.shape) < 0.1
    wide = np.hstack([np.where(mask, np.nan, Y), np.zeros((60, n_announced))])
    for n in (13, 60):
        few = make().partial_fit(X[:n], wide[:n, :4])
        many = make().partial_fit(X[:n], wide[:n])
        np.testing.assert_array_equal(many.predict_proba(X)[:, :4], few.predict_proba(X))
        name = "beta_" if isinstance(few, OSMLELM) else "intercept_"
        np.testing.assert_array_equal(getattr(many, name)[..., :4], getattr(few, name))
        # Told late is as good as told early.
        late = few.partial_fit(X[n - 1 :], wide[n - 1 :])
        many.partial_fit(X[n - 1 :], wide[n - 1 :])
        assert_same_state(late.to_state(), many.to_state())


# ------------------------------------------------------------------ reading beside learning
def frozen(model: Any) -> Any:
    return model.view()._model


@every
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_a_frozen_copy_keeps_its_answers_while_the_learner_goes_on(make, form):
    X, Y = binary_stream()
    X = form(X)
    model, pictures = make(), []
    for i in range(60):
        if i == 40:
            Y = np.hstack([Y, Y[:, :1]])  # a label more
        model.partial_fit(X[i : i + 1], Y[i : i + 1])
        if i % 3 == 0:
            model.predict(X)
        if i % 4 == 0:
            clone = frozen(model)
            pictures.append((clone, clone.predict_proba(X)))
            np.testing.assert_array_equal(model.predict_proba(X), pictures[-1][1])
    plain = make()
    for first in (Y[:40, :4], Y[40:]):
        plain.partial_fit(X[: len(first)] if len(first) == 40 else X[40:], first)
    assert_same_state(model.to_state(), plain.to_state())
    for clone, scores in pictures:
        np.testing.assert_array_equal(clone.predict_proba(X), scores)


@every
def test_a_frozen_copy_shares_the_core_until_something_changes(make):
    X, Y = stream()
    model = make().partial_fit(X, Y)
    clone = frozen(model)
    assert clone._core is model._core
    model.partial_fit(X[:1], Y[:1])
    core = model._core
    assert clone._core is not core
    assert model.partial_fit(X[:1], Y[:1])._core is core


@every
def test_threads_that_predict_at_once_get_the_right_answers(make):
    """Before the start, each prediction may have to make or bring up to date an early core."""
    X, Y = stream()
    for n in (1, 7, 13, 14, 60):
        want = make().partial_fit(X[:n], Y[:n]).predict_proba(X)
        model = make().partial_fit(X[: n - n // 3], Y[: n - n // 3])
        model.predict(X)
        model.partial_fit(X[n - n // 3 : n], Y[n - n // 3 : n]) if n // 3 else None
        gate, answers = threading.Barrier(4), []

        def ask(model=model, gate=gate, answers=answers):
            gate.wait()
            answers.extend(model.predict_proba(X) for _ in range(5))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 20
        for scores in answers:
            np.testing.assert_array_equal(scores, want)


@every
@pytest.mark.parametrize("n", [13, 30])
def test_a_model_in_read_only_memory_learns_in_a_copy(make, n, tmp_path):
    X, Y = stream()
    model = make().partial_fit(X[:n], Y[:n])
    model.predict(X)
    joblib.dump(model, tmp_path / "model")
    for again in (
        joblib.load(tmp_path / "model", mmap_mode="r"),
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
    ):
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        again.partial_fit(X[n:], np.hstack([Y, Y[:, :1]])[n:])
        want = make().partial_fit(X[:n], Y[:n]).partial_fit(X[n:], np.hstack([Y, Y[:, :1]])[n:])
        assert_same_state(again.to_state(), want.to_state())
    assert joblib.load(tmp_path / "model").n_seen_ == n


# ------------------------------------------------------------------ loading
def two_rows() -> dict[str, Any]:
    block = Block(9, 4, 1, sparse=True)
    X = sp.csr_matrix(np.array([[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0]]))
    block.add(X, Labels(np.ones((2, 1), np.uint8), None))
    state = block.dump()
    assert (Block.load(state, 4, 1, True).rows()[0] != X).nnz == 0
    return state


@pytest.mark.parametrize(
    "indptr",
    [
        [0, 2**31, 3],  # asks for 16 GiB, were it believed
        [0, 2**63 - 1, -(2**63) + 9],  # differences wrap around to positive numbers
        [1, 2, 3],
        [0, 4, 3],
        [0, 1, 2],
    ],
)
def test_row_bounds_of_a_loaded_block_are_checked_before_they_are_used(indptr):
    state = two_rows()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="indptr must rise from 0 to 3"):
            Block.load(state | {"indptr": np.array(indptr, np.int64)}, 4, 1, True)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("indices", [[1, 0, 3], [0, 0, 3], [0, 4, 3], [-1, 0, 3]])
def test_rows_of_a_loaded_block_must_be_sorted_and_within_the_features(indices):
    state = two_rows() | {"indices": np.array(indices, np.int64)}
    with pytest.raises(ValueError, match="canonical CSR"):
        Block.load(state, 4, 1, True)


def test_values_of_a_loaded_block_must_be_legal_ones():
    state = two_rows()
    with pytest.raises(ValueError, match=r"data must stay within ±1e\+15, got 1e\+16"):
        Block.load(state | {"data": np.array([1.0, -1e16, 3.0])}, 4, 1, True)
    with pytest.raises(ValueError, match="size must be an integer from 1 to"):
        Block.load(state | {"size": 2**63}, 4, 1, True)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        (("C",), np.zeros((2, 2)), "C must be"),
        (("C",), np.diag([1.0, -1.0]), "C must be"),
        (("S",), np.zeros((5, 6)), "S must be an upper triangle"),
        (("S",), np.eye(5, 6) * 1e200, "S must stay within"),
        (("B",), np.full((7, 2, 4), 1e308), "B must stay within"),
        (("counts",), np.array([2**62, 0, 0]), "counts must be of one stream"),
        (("counts",), np.array([9, 9, 37]), "counts must be of one stream"),
        (("alpha",), np.inf, "alpha must be"),
        (("scaling", "factor"), np.zeros(6), "factor must be positive"),
        (("scaling", "shift"), np.full(6, 1e300), "shift must stay within"),
    ],
)
def test_a_ranker_must_make_sense(part, value, message):
    state = OLANSGD(first_block=20).partial_fit(*stream()).to_state()
    inner = state["learner"]["core"]
    for key in part[:-1]:
        inner = inner[key]
    inner[part[-1]] = value
    with pytest.raises(ValueError, match=message):
        OLANSGD.from_state(state)


@pytest.mark.parametrize(
    ("make", "name", "value", "message"),
    [
        ("qr", "S", np.hstack([np.diag([1e-308, *np.ones(7)]), np.ones((8, 5))]), "condition"),
        ("qr", "S", np.hstack([np.triu(np.full((8, 8), 9e9)), np.ones((8, 5))]) - 8.99e9, "S"),
        ("qr", "S", np.eye(8, 13) * 1e40, "S must stay within"),
        ("qr", "ridge", np.inf, "ridge must be"),
        ("recursion", "M", np.full((8, 8), 1e300), "M must stay within"),
        ("recursion", "beta", np.full((8, 5), -1e300), "beta must stay within"),
    ],
)
def test_a_network_must_make_sense(make, name, value, message):
    state = MAKERS[make]().partial_fit(*stream()).to_state()
    state["learner"]["core"][name] = value
    with pytest.raises(ValueError, match=message):
        OSMLELM.from_state(state)


@pytest.mark.parametrize("make", [lambda: OSMLELM(200, random_state=0), OLANSGD])
def test_a_few_rows_or_bytes_cannot_ask_for_gigabytes(make):
    row = sp.csr_matrix(([1.0], ([0], [7])), shape=(1, WIDEST_ROWS))
    model = make()
    with pytest.raises(ValueError, match=f"hold at most {LARGEST_CORE} numbers, got"):
        model.partial_fit(row, [set("abcd")])
    with pytest.raises(NotFittedError):
        model.predict(row)
    state = model.partial_fit(row[:, :9], [set("abcd")]).to_state()
    state["n_features"] = state["learner"]["block"]["width"] = WIDEST_ROWS
    with pytest.raises(ValueError, match=f"hold at most {LARGEST_CORE} numbers, got"):
        type(model).from_state(state)


def test_a_loaded_hidden_layer_cannot_be_huge():
    state = OSMLELM(8, random_state=0).partial_fit(*(part[:3] for part in stream())).to_state()
    state["learner"]["hidden"]["n_hidden"] = 10**6
    with pytest.raises(ValueError, match="n_hidden must be an integer from 1 to 4096"):
        OSMLELM.from_state(state)


@every
def test_one_label_per_item_needs_a_label(make):
    X, _ = stream()
    state = make().partial_fit(X[:3], [set()] * 3).to_state()
    state["single"] = True
    with pytest.raises(ValueError, match="must have a label"):
        type(make()).from_state(state)


# Numbers that a careless loader would believe.
ODD = (np.inf, -np.inf, np.nan, 1e308, -1e308, 1e-308, 1e30, 1e13, -1.0, 0.0, 0.5, 1.0)
ODD_INTEGERS = (-(2**63), -1, 0, 1, 2, 255, 2**31, 2**40, 2**63 - 2, 2**63 - 1)
ODD_COUNTS = (-1, 0, 1, 5, 1000, 2**31, 2**40, 2**62, 2**63, 10**30, 1.5, True)
OTHER = (None, "x", [], {}, b"", np.zeros(3), np.zeros(0))


def leaves(state: Any, path: tuple[Any, ...] = ()) -> Any:
    for key, value in state.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))


def mutated_array(array: Any, rng: np.random.Generator) -> Any:
    kind = rng.integers(9)
    if kind == 0:
        shape, axis = list(array.shape), rng.integers(array.ndim)
        shape[axis] = max(0, shape[axis] + int(rng.choice([-1, 1, 1000])))
        return np.resize(array, shape).astype(array.dtype) if array.size else np.zeros(shape)
    if kind == 1:
        with np.errstate(all="ignore"):
            return array.astype(rng.choice(["f4", "f8", "i8", "i4", "u1", "?", "m8"]))
    if kind == 2:
        return array.T.copy() if array.ndim > 1 else array[::-1].copy()
    if kind == 3:
        return array[: len(array) // 2].copy()
    array = array.copy()
    odd = ODD if array.dtype.kind == "f" else ODD_INTEGERS
    with np.errstate(all="ignore"):
        value = np.array(odd[rng.integers(len(odd))]).astype(array.dtype)
    if array.size and kind < 7:
        array.flat[rng.integers(array.size, size=1 + kind // 6 * 5)] = value
    elif kind == 7:
        array[...] = value
    elif array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            array *= float(rng.choice([-1, 1e-300, 1e-9, 1e9, 1e14, 1e50, 1e200]))
    return array


def mutated(state: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Return a copy of a state with one to three parts changed."""
    state = copy.deepcopy(state)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        paths = [("n_features",), ("names",), ("single",), ("sparse",)]
        paths += list(leaves(state["learner"], ("learner",))) * 3
        paths += list(leaves(state["params"], ("params",)))
        path = paths[rng.integers(len(paths))]
        inner = state
        for key in path[:-1]:
            inner = inner[key]
        value = inner[path[-1]]
        if isinstance(value, np.ndarray) and rng.random() < 0.95:
            inner[path[-1]] = mutated_array(value, rng)
        elif path == ("names",):
            inner["names"] = list(range(int(rng.choice([0, 1, len(value) + 1, 1000]))))
        elif isinstance(value, bool):
            inner[path[-1]] = not value
        elif rng.random() < 0.3:
            inner[path[-1]] = OTHER[rng.integers(len(OTHER))]
        else:
            odd = ODD if isinstance(value, float) else ODD_COUNTS
            inner[path[-1]] = odd[rng.integers(len(odd))]
    return state


def start_states() -> list[tuple[type, dict[str, Any]]]:
    X, Y = stream(40)
    binary, labels = binary_stream(40)
    partly = np.where(np.random.default_rng(2).random(Y.shape) < 0.2, np.nan, Y)
    names = np.array(["no", "yes"])[Y[:, 0]]
    cases = [(X, Y), (X, partly), (sp.csr_matrix(binary), labels), (X, names)]
    models = [
        make().partial_fit(rows[:n], target[:n])
        for make, (rows, target), n in itertools.product(MAKERS.values(), cases, (13, 40))
    ]
    models += [make().partial_fit(X[:1], [None]) for make in MAKERS.values()]
    return [(type(model), model.to_state()) for model in models]


def check_loaded(model: Any, rng: np.random.Generator) -> None:
    """Whatever was believed, the model predicts within [0, 1], learns, grows and can be saved."""
    p, q = model.n_features_in_, len(model.classes_)
    X = rng.normal(size=(20, p)) * 10.0 ** rng.integers(-3, 14)
    if model._sparse:
        X = sp.csr_matrix(np.where(rng.random(X.shape) < 0.5, X, 0))
    Y: Any = rng.integers(2, size=(20, q)).astype(float)
    Y[rng.random(Y.shape) < 0.2] = np.nan
    if model._single:
        Y = model.classes_[rng.integers(q, size=20)]
    for _ in range(2):
        scores = model.predict_proba(X)
        assert scores.shape[0] == 20
        assert ((scores >= 0) & (scores <= 1)).all()
        model.predict(X)
        model.partial_fit(X, Y, classes=None if model._single else model.classes_)
    if not model._single:
        model.partial_fit(X[:2], [{"never"}, None])
        assert ((model.predict_proba(X) >= 0) & (model.predict_proba(X) <= 1)).all()
    again = type(model).from_state(model.to_state())
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def run_hostile_states(seed: int, n: int) -> tuple[int, int]:
    """Return how many of ``n`` changed states were refused, and how many were loaded."""
    rng = np.random.default_rng(seed)
    states = start_states()
    counts = [0, 0]
    for _ in range(n):
        cls, state = states[rng.integers(len(states))]
        bad = mutated(state, rng)
        try:
            model = cls.from_state(bad)  # type: ignore[attr-defined]
        except (ValueError, TypeError, KeyError, OverflowError):
            counts[0] += 1
            continue
        check_loaded(model, rng)
        counts[1] += 1
    return counts[0], counts[1]


def test_a_changed_state_is_refused_or_gives_a_working_model():
    refused, loaded = run_hostile_states(seed=0, n=600)
    assert refused > 200
    assert loaded > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_many_changed_states_are_refused_or_give_working_models(seed):
    refused, loaded = run_hostile_states(seed, 5000)
    assert min(refused, loaded) > 400
