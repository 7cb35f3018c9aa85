"""The door: label forms, the vocabulary, one label per item, and what errors say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.exceptions import DataConversionWarning, NotFittedError

from tagstream import KNN
from tagstream.checks import check_choice, check_number, check_rows
from tagstream.learners import estimator as base
from tagstream.store.protocol import LABELS
from tagstream.testing import assert_same_state

X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
Y = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1]])
SETS = [{"a"}, {"a", "b"}, {"c"}, {"b", "c"}]


def learnt(labels, **kwargs):
    """The labels a model stores: (Y, known or None, names)."""
    model = KNN(n_neighbors=1).partial_fit(X[: len(labels)], labels, **kwargs)
    stored = model._store.take(LABELS)
    return stored.Y.tolist(), stored.known, model.classes_.tolist()


# ---------------------------------------------------------------------- forms of labels


@pytest.mark.parametrize(
    "labels",
    [
        Y,
        Y.astype(np.uint8),
        Y.astype(bool),
        Y.astype(float),
        Y.tolist(),
        Y.astype(object),
        sp.csr_matrix(Y),
        sp.csc_array(Y),
        sp.coo_matrix(Y.astype(bool)),
        np.ma.masked_array(Y, mask=np.zeros(Y.shape, bool)),
    ],
    ids=lambda labels: f"{type(labels).__name__} {getattr(labels, 'dtype', '')}",
)
def test_every_form_of_an_indicator_matrix_is_read_alike(labels):
    model = KNN().partial_fit(X, labels)
    stored = model._store.take(LABELS)
    assert stored.Y.tolist() == Y.tolist()
    assert stored.known is None or stored.known.all()
    assert model.classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_the_columns_of_a_frame_name_the_labels(frame):
    columns = dict(zip("xyz", Y.T.tolist(), strict=True))
    assert learnt(frame(columns)) == (Y.tolist(), None, ["x", "y", "z"])


@pytest.mark.parametrize(
    "sets",
    [
        SETS,
        [frozenset(s) for s in SETS],
        [sorted(s) for s in SETS],
        [tuple(sorted(s, reverse=True)) for s in SETS],
        tuple(SETS),
    ],
)
def test_label_sets_are_read_whatever_their_type(sets):
    assert learnt(sets) == (Y.tolist(), None, ["a", "b", "c"])


def test_names_are_ordered_by_first_appearance_and_within_an_item_sorted():
    assert learnt([{"z"}, {"c", "b", "a"}, {"y"}])[2] == ["z", "a", "b", "c", "y"]


def test_names_may_be_of_any_hashable_type():
    assert learnt([{10, 9}, {"a"}, {(1, 2)}])[2] == [9, 10, "a", (1, 2)]
    assert learnt([{np.int64(3)}, {3}])[2] == [3]


def test_none_is_an_item_of_unknown_labels_and_an_empty_set_one_without():
    values, known, _ = learnt([{"a"}, {"b"}, None, set()])
    assert values == [[1, 0], [0, 1], [0, 0], [0, 0]]
    assert known.tolist() == [[True, True], [True, True], [False, False], [True, True]]


def test_a_series_of_lists_is_a_list_of_label_sets():
    sets = [["b", "a"], [], None, ["c"]]
    pl = pytest.importorskip("polars")
    as_arrays = [None if one is None else np.array(one, object) for one in sets]
    forms = [pd.Series(sets), pl.Series(sets), pd.Series(as_arrays), pd.Series(sets).to_numpy()]
    forms.append(pd.Series([sets[0], sets[1], np.nan, sets[3]], index=[7, 7, 1, 2]))
    want = KNN().partial_fit(X[:4], sets)
    for form in forms:
        model = KNN().partial_fit(X[:4], form)
        assert model.classes_.tolist() == ["a", "b", "c"]
        for got, expected in zip(model._store.take(LABELS), want._store.take(LABELS), strict=True):
            np.testing.assert_array_equal(got, expected)
        assert KNN().fit(X[:4], form).classes_.tolist() == ["a", "b", "c"]
    single = KNN().fit(X[:4], pd.Series(["u", "v", "u", "w"]))  # one label per item
    assert single.predict(X[:1]).ndim == 1


@pytest.mark.parametrize(
    "labels",
    [
        np.where(Y == 1, np.nan, 0),
        np.ma.masked_array(np.zeros_like(Y), mask=Y == 1),
        pd.DataFrame(np.where(Y == 1, np.nan, 0)),
        [[None if v else 0 for v in row] for row in Y.tolist()],
    ],
)
def test_nan_none_and_masked_entries_are_unknown(labels):
    model = KNN().partial_fit(X, labels)
    stored = model._store.take(LABELS)
    assert not stored.Y.any()
    np.testing.assert_array_equal(stored.known, Y == 0)


def test_values_under_a_mask_do_not_matter():
    labels = np.ma.masked_array(np.where(Y == 1, 7, 0), mask=Y == 1)
    assert not KNN().partial_fit(X, labels)._store.take(LABELS).Y.any()


# ---------------------------------------------------------------------- the vocabulary


def test_classes_name_the_columns_of_an_array_in_any_order():
    model = KNN(n_neighbors=1).partial_fit(X, Y, classes=["a", "b", "c"])
    model.partial_fit(X, Y[:, [2, 0, 1]], classes=["c", "a", "b"])
    assert model.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(model._store.take(LABELS).Y, np.vstack([Y, Y]))


def test_classes_may_leave_labels_out_and_bring_new_ones():
    model = KNN().partial_fit(X, Y, classes=["a", "b", "c"])
    model.partial_fit(X[:1], [[1, 1]], classes=["c", "new"])
    assert model.classes_.tolist() == ["a", "b", "c", "new"]
    assert model._store.take(LABELS).Y[-1].tolist() == [0, 0, 1, 1]
    assert not model._store.take(LABELS).Y[:-1, 3].any()


def test_classes_reserve_names_for_label_sets():
    model = KNN().partial_fit(X[:1], [{"b"}], classes=["a", "b", "c"])
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.predict(X[:1]).tolist() == [[0, 1, 0]]


def test_a_wider_array_adds_numbered_labels():
    model = KNN().partial_fit(X, Y[:, :2])
    model.partial_fit(X, Y)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model._store.take(LABELS).Y[:, 2].tolist() == [0, 0, 0, 0, 0, 0, 1, 1]


def test_named_labels_ask_for_names():
    model = KNN().partial_fit(X, SETS)
    with pytest.raises(ValueError, match=r"Y must have 3 columns, got 2; name .* classes="):
        model.partial_fit(X, Y[:, :2])
    model.partial_fit(X, Y)  # as many columns as there are names: in their order
    assert model.classes_.tolist() == ["a", "b", "c"]


# ---------------------------------------------------------------------- one label per item


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.array(["low", "high", "low", "high"]), ["high", "low"]),
        (np.array([3, 1, 3, 1]), [1, 3]),
        (pd.Series(["b", "a", "b", "a"]), ["a", "b"]),
        (["yes", "no", "yes", "no"], ["no", "yes"]),
        (np.array([True, False, True, False]), [False, True]),
    ],
)
def test_a_one_dimensional_y_makes_an_ordinary_classifier(y, classes):
    model = KNN(n_neighbors=1).fit(X, y)
    assert model.classes_.tolist() == classes
    assert model.predict(X).tolist() == np.asarray(y).tolist()
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    assert model.predict_sets(X[:1]) == [{np.asarray(y).tolist()[0]}]
    assert model.predict_one(X[1]) == np.asarray(y)[1]


def test_one_label_per_item_may_grow_and_keeps_first_appearance():
    model = KNN(n_neighbors=1).partial_fit(X[:2], ["b", "a"])
    assert model.classes_.tolist() == ["b", "a"]
    model.learn_one(X[2], "c")
    assert model.classes_.tolist() == ["b", "a", "c"]
    assert model.predict(X[:3]).tolist() == ["b", "a", "c"]


def test_both_ways_of_giving_labels_do_not_mix():
    with pytest.raises(ValueError, match="Y must be a 1-D y as in earlier calls"):
        KNN().partial_fit(X, ["a", "b", "a", "b"]).partial_fit(X, Y[:, :2])
    with pytest.raises(ValueError, match="Y must be a label matrix or label sets as in earlier"):
        KNN().partial_fit(X, Y).partial_fit(X, [0, 1, 0, 1])


def test_a_column_of_names_is_one_label_per_item_with_a_warning():
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model = KNN(n_neighbors=1).fit(X, np.array([[5], [6], [5], [6]]))
    assert model.predict(X).tolist() == [5, 6, 5, 6]


def test_a_column_of_zeros_and_ones_is_an_indicator_matrix():
    assert KNN(n_neighbors=1).fit(X, Y[:, :1]).predict(X).tolist() == Y[:, :1].tolist()


# ---------------------------------------------------------------------- predictions


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, bool])
def test_predictions_have_the_dtype_of_the_first_labels(dtype):
    assert KNN().fit(X, Y.astype(dtype)).predict(X).dtype == dtype
    assert KNN().fit(X, Y.astype(float)).predict(X).dtype == np.uint8
    assert KNN().fit(X, SETS).predict(X).dtype == np.uint8


def test_one_row_is_asked_and_learnt_without_a_second_dimension():
    model = KNN(n_neighbors=1).learn_one(X[0], Y[0])
    model.learn_one(X[3].astype(np.float32), Y[3].astype(np.uint8), id="third")
    model.learn_one(X[2].tolist(), Y[2].tolist())
    assert model.n_seen_ == 3
    assert model.predict_one(X[3]).tolist() == Y[3].tolist()
    assert model.predict_proba_one(X[3]).shape == (3,)
    assert model.explain(X[3:4])[0].neighbors[0].id == "third"
    model = KNN(n_neighbors=1).learn_one(sp.csr_matrix(X[1:2]), {"a"})
    assert model.predict_sets(X[1:2]) == [{"a"}]


def test_an_unfitted_model_says_so():
    for call in (KNN().predict, KNN().predict_proba, KNN().kneighbors, KNN().explain):
        with pytest.raises(NotFittedError, match="not fitted"):
            call(X)


def test_feature_names_are_kept_and_compared():
    frame = pd.DataFrame(X, columns=["u", "v"])
    model = KNN().fit(frame, Y)
    assert model.feature_names_in_.tolist() == ["u", "v"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"v": "w"}))


# ---------------------------------------------------------------------- what errors say


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (X, Y + 1, "Y must hold 0 and 1 only, got 2"),
        (X, 0.5 * Y, "Y must hold 0 and 1 only, got 0.5"),
        (X, sp.csr_matrix(3 * Y), "Y must hold 0 and 1 only, got 3"),
        (X, [[0, 1], [1, 0], [1], [0, 0]], "Y must have rows of equal length, got a ragged list"),
        (X, np.full((4, 2), "a"), "Y must hold 0, 1 or NaN, got 'a'"),
        (X, np.array([["a", 1]] * 4, object), "Y must hold 0, 1 or NaN, got 'a'"),
        (X, Y[:3], r"Y must have as many rows as X \(4\), got 3"),
        (X, Y[None], "Y must have 2 dimensions, got 3"),
        (X, None, "requires y"),
        (X, [0.5, 1.5, 0.2, 0.1], "continuous"),
        (X, [np.nan, 1, 0, 1], "contains NaN"),
        (np.where(X == 1, np.nan, X), Y, "X contains NaN"),
        (np.where(X == 1, np.inf, X), Y, "X contains infinity"),
        (1e16 * X, Y, r"X must stay within ±1e\+15, got 1e\+16; scale the features"),
        (X[0], Y[:1], "1D array"),
        (X[:0], Y[:0], "0 sample"),
        (X[:, :0], Y, "0 feature"),
        (np.array([["a", "b"]] * 4), Y, "convert|string"),
        (X + 1j, Y, "Complex"),
    ],
)
def test_bad_data_are_named(rows, labels, message):
    model = KNN()
    with pytest.raises(ValueError, match=message):
        model.partial_fit(rows, labels)
    assert not hasattr(model, "classes_")


def test_wrong_counts_are_named():
    model = KNN().fit(X, Y)
    with pytest.raises(ValueError, match="X has 1 features, but KNN is expecting 2"):
        model.predict(X[:, :1])
    with pytest.raises(ValueError, match="ids must have 4 entries, got 2"):
        model.partial_fit(X, Y, ids=["a", "b"])
    with pytest.raises(ValueError, match="classes must name the 3 columns of Y, got 2 names"):
        model.partial_fit(X, Y, classes=["a", "b"])
    with pytest.raises(ValueError, match="x must have 1 dimension, got 2"):
        model.predict_one(X)


@pytest.mark.parametrize(
    ("value", "limits", "message"),
    [
        (0, {"kind": int, "least": 1}, "k must be an integer of at least 1, got 0"),
        (1.0, {"kind": int}, "k must be an integer"),
        (True, {"kind": int}, "k must be an integer"),
        ("2", {}, "k must be a number"),
        (None, {}, "k must be a number"),
        (np.nan, {"least": 0}, "k must be a number of at least 0, got nan"),
        (2, {"least": 0, "most": 1}, "k must be a number between 0 and 1, got 2"),
        (-1, {"least": 0, "none": True}, "k must be a number of at least 0 or None, got -1"),
    ],
)
def test_numbers_are_checked_and_named(value, limits, message):
    with pytest.raises(ValueError, match=message):
        check_number("k", value, **limits)


def test_good_numbers_pass():
    check_number("k", 3, kind=int, least=1)
    check_number("k", np.int32(3), kind=int, least=1)
    check_number("k", np.float32(0.5), least=0, most=1)
    check_number("k", None, none=True)


def test_choices_are_compared_by_value_and_listed():
    check_choice("how", "a", ("a", None))
    check_choice("how", None, ("a", None))
    for bad in ("b", 0, False, ["a"]):
        with pytest.raises(ValueError, match="how must be one of 'a', None, got"):
            check_choice("how", bad, ("a", None))


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, sp.csr_array])
@pytest.mark.parametrize(
    ("indptr", "indices"),
    [
        ([0, 1, 2, 3], [0, 3, 1]),
        ([0, 1, 2, 3], [0, -1, 1]),
        ([0, 1, 2, 3], [0, 2**31 - 1, 1]),
        ([0, 50, 2, 3], [0, 1, 2]),
        ([0, 1, 2, 4], [0, 1, 2]),
        ([1, 1, 2, 3], [0, 1, 2]),
        ([0, 1, 3], [0, 1, 2]),
        ([0, -1, 2, 3], [0, 1, 2]),
        ([0, 1, 2, -1], [0, 1, 2]),
    ],
)
def test_sparse_rows_that_leave_their_shape_are_refused(form, indptr, indices):
    """SciPy checks them when they are made, but not when they are changed."""
    X = form(np.eye(3))
    model = KNN().partial_fit(sp.csr_matrix(np.eye(3)), [{"a"}, {"b"}, set()])
    X.indptr, X.indices = np.array(indptr, np.int32), np.array(indices, np.int32)
    for call in (model.predict, lambda X: model.partial_fit(X, [set()] * 3)):
        with pytest.raises(ValueError, match=r"^ind(ptr|ices) (of X )?must "):
            call(X)
    assert model.n_seen_ == 3


def test_rows_that_would_take_gigabytes_to_search_are_refused():
    for width in (1 << 24) + 1, 2**31 - 1:
        X = sp.csr_matrix(([1.0], ([0], [width - 1])), shape=(1, width))
        with pytest.raises(ValueError, match=f"at most 16777216 columns, got {width}; hash"):
            KNN().partial_fit(X, [{"a"}])


def test_entries_beyond_the_last_row_are_no_harm():
    X = sp.csr_matrix(np.eye(3))
    X.indices = np.array([0, 1, 2, 99], np.int32)
    X.data = np.array([1.0, 1.0, 1.0, 7.0])
    assert check_rows(X).data.tolist() == [1, 1, 1]
    assert len(X.data) == 4
    tail, plain = (KNN().partial_fit(rows, SETS[:3]) for rows in (X, sp.csr_matrix(np.eye(3))))
    for model in (tail, plain):
        model.partial_fit(sp.csr_matrix(np.eye(3)), SETS[1:])
    assert tail.predict_proba(np.eye(3)).tolist() == plain.predict_proba(np.eye(3)).tolist()


def test_rows_are_checked_without_being_changed():
    unsorted = sp.csr_matrix(
        (np.array([1.0, 2.0, 4.0]), np.array([2, 0, 0]), np.array([0, 3])), shape=(1, 3)
    )
    before = unsorted.data.copy(), unsorted.indices.copy()
    rows = check_rows(unsorted)
    assert rows.toarray().tolist() == [[6, 0, 1]]  # entries of one place add up
    assert rows.has_canonical_format
    np.testing.assert_array_equal(unsorted.data, before[0])
    np.testing.assert_array_equal(unsorted.indices, before[1])
    fortran = np.asfortranarray(X)
    assert check_rows(fortran).flags.c_contiguous
    assert check_rows(X.astype(np.float32)).dtype == np.float32
    assert check_rows(X.astype(int)).dtype == np.float64


@pytest.mark.parametrize(
    "names", [[("a", 1), ("b", 2)], [2**63, -1], [-1, 2**63], ["a", 1], [frozenset("a"), 2]]
)
def test_names_of_labels_may_be_anything_hashable(names):
    model = KNN(n_neighbors=1).partial_fit(X[:3], [{names[0]}, {names[1]}, set(names)])
    assert model.classes_.shape == (2,)
    assert set(model.classes_.tolist()) == set(names)
    assert not any(isinstance(name, float) for name in model.classes_.tolist())
    assert model.predict_sets(X[:3]) == [{names[0]}, {names[1]}, set(names)]


NAMED = [
    {"a"}, frozenset({"b", "a"}), ["b"], ("a", "b"), set(), [], {np.str_("b")}, {"new"},
    ["b", "later"], [np.str_("a")], None, {"a", "new"},
]  # fmt: skip


@pytest.mark.exact
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("how", ["learn_one", "learn_rows"])
def test_names_of_one_item_are_read_as_those_of_many(how, sparse):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(len(NAMED) + 5, 4))
    made = []
    for short in (True, False):
        model = KNN(2).partial_fit(
            sp.csr_matrix(X[:5]) if sparse else X[:5], [{"a"}, {"b"}] + [{"a"}] * 3
        )
        if not short:
            model._fast_labels = lambda y: None
        for x, y in zip(X[5:], NAMED, strict=True):
            row = sp.csr_matrix(x[None]) if sparse else x[None]
            if how == "learn_rows":
                model.learn_rows(row, [y], None, [str(y)])
            else:
                model.learn_one(row if sparse else x, y, id=str(y))
        made.append(model)
    assert made[0].classes_.tolist() == ["a", "b", "new", "later"]
    assert_same_state(made[0].to_state(), made[1].to_state())


def test_names_are_looked_up_anew_when_they_change():
    model = KNN(1).partial_fit([[0.0], [1.0]], [{"a"}, {"b"}]).learn_one(np.array([2.0]), {"a"})
    model.rename_label("a", "c")
    model.learn_one(np.array([3.0]), {"a"}).learn_one(np.array([4.0]), {"c"})
    assert model.classes_.tolist() == ["c", "b", "a"]
    assert model.predict_sets([[2.0], [3.0], [4.0]]) == [{"c"}, {"a"}, {"c"}]


def test_names_of_one_item_are_read_without_the_reader_of_many(monkeypatch):
    model = KNN(1).partial_fit([[0.0], [1.0]], [{"a"}, {"b"}])
    monkeypatch.setattr(base, "read_labels", None)
    model.learn_one(np.array([2.0]), {"a"}).learn_rows(np.array([[3.0]]), [{"b"}])
    assert model.predict_sets([[2.0], [3.0]]) == [{"a"}, {"b"}]
    assert model.n_seen_ == 4
