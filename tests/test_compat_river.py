"""river at home: our learners under river's checks and evaluation, river's models in ours."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from river import (
    base,
    checks,
    compose,
    datasets,
    evaluate,
    feature_extraction,
    linear_model,
    multioutput,
    preprocessing,
)
from river import metrics as river_metrics

from tagstream import KNN, OLANSGD, OML, OSMLELM, holdout, make_stream, prequential
from tagstream.compat.river import FromRiver, Labels, Probabilities, RiverClassifier
from tagstream.testing import assert_same_state

PARAMS = list(RiverClassifier._unit_test_params())
EACH = pytest.mark.parametrize("params", PARAMS, ids=lambda p: type(p["model"]).__name__)

MOODS = ("amazed", "happy", "relaxing", "quiet", "sad", "angry")


def songs(n: int, seed: int = 0) -> list[tuple[dict[str, Any], dict[str, bool]]]:
    """Return items of the form of river's Music: named numbers, six moods, each True or False."""
    stream = make_stream(n, p=12, q=6, n_factors=3, cardinality=1.5, seed=seed)
    names = stream.feature_names
    assert names is not None
    return [
        (dict(zip(names, x, strict=True)), dict(zip(MOODS, map(bool, y), strict=True)))
        for x, y in zip(stream.X.tolist(), stream.Y.tolist(), strict=True)
    ]


class Songs:
    """Stands in for ``river.datasets.Music``, which is a download."""

    def take(self, n: int) -> Iterator[tuple[dict[str, Any], dict[str, bool]]]:
        return iter(songs(n))


def growing(n: int = 120) -> list[tuple[dict[Any, Any], dict[str, Any]]]:
    """Return items whose features and labels come, go, and are not always known."""
    rng = random.Random(3)
    items: list[tuple[dict[Any, Any], dict[str, Any]]] = []
    for i, (x, y) in enumerate(songs(n)):
        features: dict[Any, Any] = {
            name: value for name, value in x.items() if rng.random() < 0.8 or name == "x0"
        }
        features["sky"] = "clear" if x["x0"] > 0 else "grey"
        if i > 30:
            features[("late", i % 5)] = 1
        labels: dict[str, Any] = {
            name: value
            for j, (name, value) in enumerate(y.items())
            if i >= 20 * j and rng.random() < 0.9
        }
        if i % 7 == 0:
            labels[MOODS[0]] = None
        items.append((features, labels))
    return items


def state(model: RiverClassifier) -> Any:
    assert model.learner is not None
    return [model.learner.to_state(), list(model._columns), list(model._labels)]


# ------------------------------------------------------------------ river's own checks
def check_ids() -> list[str]:
    model = RiverClassifier(KNN())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "Music", Songs)
        return [check.__name__ for check in checks.yield_checks(model)]


@EACH
@pytest.mark.parametrize("name", check_ids())
def test_river_check(name: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "Music", Songs)
    model = RiverClassifier(**params)
    assert not model._unit_test_skips()
    for check in checks.yield_checks(model):
        if check.__name__ == name:
            check(model.clone())


def test_checks_that_do_not_apply_are_those_of_other_kinds_of_model() -> None:
    """What river would add for a mini-batch base, a seed, or a wrapper of river models.

    There is no mini-batch base for multi-label models, so the two ``*_many_matches_*`` checks
    are written out below; the seed is the wrapped learner's ``random_state``; the wrapped learner
    is no river model; ``check_predict_proba_one`` and ``check_classifier_tracks_seen_labels`` are
    for one label per item.
    """
    ran = set(check_ids())
    absent = {
        "check_learn_many_matches_learn_one",
        "check_predict_many_matches_predict_one",
        "check_seeding_is_idempotent",
        "check_wrapper_accepts_kwargs",
        "check_predict_proba_one",
        "check_debug_one",
    }
    assert not ran & absent
    assert {"check_learn_one", "check_emerging_features", "check_pickling"} <= ran


# ------------------------------------------------------------------ one at a time, many at a time
@EACH
def test_learn_many_is_repeated_learn_one(params: dict[str, Any]) -> None:
    items = growing()
    one, many = RiverClassifier(**params), RiverClassifier(**params)
    for x, y in items:
        one.learn_one(x, y)
    for cut in (slice(0, 1), slice(1, 50), slice(50, 51), slice(51, None)):
        many.learn_many([x for x, _ in items[cut]], [y for _, y in items[cut]])
    assert_same_state(state(one), state(many))
    X = [x for x, _ in items]
    assert many.predict_many(X) == [one.predict_one(x) for x in X]
    together, alone = many.predict_proba_many(X), [one.predict_proba_one(x) for x in X]
    for a, b in zip(together, alone, strict=True):
        assert a.keys() == b.keys()
        np.testing.assert_allclose([s[True] for s in a.values()], [s[True] for s in b.values()])


def test_river_check_of_learn_many_holds_too(monkeypatch: pytest.MonkeyPatch) -> None:
    check = getattr(checks.common, "check_learn_many_matches_learn_one", None)
    if check is None:
        pytest.skip("this river has no such check")
    check(RiverClassifier(OML(random_state=0), n_features=64), songs(60))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_are_read_row_by_row(frame: Any) -> None:
    items = songs(40)
    X = [{**x, "x1": None} if i % 3 == 0 else x for i, (x, _) in enumerate(items)]
    Y = [{**y, "sad": None} if i % 4 == 0 else y for i, (_, y) in enumerate(items)]
    dicts, frames = RiverClassifier(KNN()), RiverClassifier(KNN())
    dicts.learn_many(X, Y)
    frames.learn_many(frame(X), frame(Y))
    assert_same_state(state(dicts), state(frames))
    assert frames.predict_many(frame(X)) == dicts.predict_many(X)
    assert frames.learner is not None
    assert frames.learner.to_state()["learner"]["store"]["known"] is not None


# ------------------------------------------------------------------ features
def test_a_feature_never_learnt_changes_nothing() -> None:
    model = RiverClassifier(OML(random_state=0))
    for x, y in songs(60):
        model.learn_one(x, y)
    x = songs(61)[-1][0]
    before = pickle.dumps(model)
    assert model.predict_proba_one({**x, "brand new": 1e6}) == model.predict_proba_one(x)
    assert pickle.dumps(model) == before


def test_features_beyond_the_reserved_columns_share_columns() -> None:
    small, large = RiverClassifier(KNN(), n_features=8), RiverClassifier(KNN(), n_features=64)
    for x, y in songs(40):
        small.learn_one(x, y)
        large.learn_one(x, y)
    assert len(small._columns) == 8
    assert len(large._columns) == 12
    overflow = [n for n in songs(1)[0][0] if n not in small._columns]
    assert overflow
    row = small._rows([{overflow[0]: 2.5}], learning=False)
    assert row.nnz == 1
    assert abs(row.data[0]) == 2.5  # the sign is that of the name's hash
    assert small._rows([{overflow[0]: 2.5}], learning=True).indices == row.indices


def test_missing_values_are_missing_features() -> None:
    model = RiverClassifier(KNN(), n_features=16)
    x = {"a": 1, "b": None, "c": float("nan"), "d": True, "e": "x", "f": np.float32(2), "g": 0}
    model.learn_one(x, {"sea": True})
    assert list(model._columns) == ["a", "d", "e=x", "f"]
    assert model.learner is not None
    stored = model.learner.to_state()["learner"]["store"]["rows"]
    assert stored["data"].tolist() == [1.0, 1.0, 1.0, 2.0]


# ------------------------------------------------------------------ labels
def test_a_label_missing_from_the_dict_is_unknown() -> None:
    model = RiverClassifier(KNN(n_neighbors=2))
    model.learn_one({"a": 1.0}, {"sea": True, "sun": True})
    model.learn_one({"a": 1.1}, {"sea": True})  # of the sun nothing is said
    answer = model.predict_proba_one({"a": 1.0})
    assert answer["sun"][True] == pytest.approx(1, abs=1e-3)  # one voter who knows, for it
    denying = RiverClassifier(KNN(n_neighbors=2))
    denying.learn_one({"a": 1.0}, {"sea": True, "sun": True})
    denying.learn_one({"a": 1.1}, {"sea": True, "sun": False})
    assert denying.predict_proba_one({"a": 1.0})["sun"][True] == pytest.approx(0.5, abs=1e-3)


def test_items_before_a_label_was_heard_of_do_not_have_it() -> None:
    model = RiverClassifier(KNN(n_neighbors=2))
    model.learn_one({"a": 1.0}, {"sea": True})
    model.learn_one({"a": 1.1}, {"sea": True, "snow": True})
    assert model.predict_proba_one({"a": 1.0})["snow"][True] == pytest.approx(0.5, abs=1e-3)


def test_an_item_without_known_labels_is_passed_over() -> None:
    model = RiverClassifier(KNN())
    model.learn_one({"a": 1.0}, {})
    model.learn_one({"a": 1.0}, {"sea": None})
    assert model.learner is None
    assert model.predict_one({"a": 1.0}) == {}
    model.learn_many([{"a": 1.0}, {"b": 2.0}], [{"sea": True}, {"sea": float("nan")}])
    assert model.learner is not None
    assert model.learner.n_seen_ == 1
    assert list(model._columns) == ["a"]


def test_the_order_of_keys_does_not_matter() -> None:
    a, b = RiverClassifier(OML(random_state=0)), RiverClassifier(OML(random_state=0))
    for x, y in growing():
        a.learn_one(x, y)
        b.learn_one(dict(reversed(x.items())), dict(reversed(y.items())))
    assert_same_state(state(a), state(b))


def test_predictions_name_all_labels_seen_and_deny_all_others() -> None:
    model = RiverClassifier(KNN())
    model.learn_one({"a": 1.0}, {"sea": True, 7: False})
    labels, chances = model.predict_one({"a": 1.0}), model.predict_proba_one({"a": 1.0})
    assert labels == {"sea": True, 7: False}
    assert labels["snow"] is False
    assert "snow" not in labels
    assert chances["snow"] == {False: 1.0, True: 0.0}
    assert all(sum(chance.values()) == pytest.approx(1) for chance in chances.values())
    assert pickle.loads(pickle.dumps(labels))["snow"] is False
    assert type(copy.deepcopy(labels)) is Labels
    assert type(chances) is Probabilities


def test_the_threshold_of_the_learner_decides() -> None:
    shy, bold = RiverClassifier(KNN(decide=0.9)), RiverClassifier(KNN(decide=0.1))
    for model in (shy, bold):
        for i in range(4):
            model.learn_one({"a": 1.0}, {"sea": i % 2 == 0})
    assert not shy.predict_one({"a": 1.0})["sea"]
    assert bold.predict_one({"a": 1.0})["sea"]


# ------------------------------------------------------------------ errors, copies, memory
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ({"b": float("inf")}, {"snow": True}, "infinity"),
        ({"b": 1e30}, {"snow": True}, "within"),
        ({"b": [1, 2]}, {"snow": True}, "x must hold numbers"),
        ({"b": 1.0}, {"snow": 2}, "y must hold True, False or None, got 2"),
        ({"b": 1.0}, {"snow": "yes"}, "y must hold True, False or None, got 'yes'"),
        ({"b": 1.0}, True, "y must be a dict of labels, got True"),
        ([1.0], {"snow": True}, "x must be a dict of features"),
    ],
)
def test_a_rejected_item_changes_nothing(x: Any, y: Any, message: str) -> None:
    model = RiverClassifier(KNN())
    model.learn_one({"a": 1.0}, {"sea": True})
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=message):
        model.learn_one(x, y)
    assert pickle.dumps(model) == before
    fresh = RiverClassifier(KNN())
    with pytest.raises(ValueError, match=message):
        fresh.learn_one(x, y)
    assert fresh.learner is None
    assert not fresh._columns


def test_a_batch_is_learnt_whole_or_not_at_all() -> None:
    model = RiverClassifier(KNN())
    model.learn_one({"a": 1.0}, {"sea": True})
    before = pickle.dumps(model)
    labels = [{"sea": True}, {"snow": True}, {"sun": True}]
    with pytest.raises(ValueError, match="infinity"):
        model.learn_many([{"a": 1.0}, {"b": 1.0}, {"c": float("inf")}], labels)
    assert pickle.dumps(model) == before


def test_what_is_no_learner_is_refused() -> None:
    with pytest.raises(ValueError, match="model must be a learner of tagstream, got Logistic"):
        RiverClassifier(linear_model.LogisticRegression())
    with pytest.raises(ValueError, match="n_features must be an integer"):
        RiverClassifier(KNN(), n_features=0)
    with pytest.raises(ValueError, match="as many items as X"):
        RiverClassifier(KNN()).learn_many([{"a": 1}], [])


def test_a_fitted_pattern_is_not_touched() -> None:
    pattern = KNN().fit(np.eye(3), [{"sea"}, {"sun"}, {"sea"}])
    model = RiverClassifier(pattern)
    model.learn_one({"a": 1.0}, {"snow": True})
    assert pattern.n_seen_ == 3
    assert model.predict_one({"a": 1.0}) == {"snow": True}
    assert model.clone().learner is None


def test_memory_is_bounded_by_the_window_and_the_columns() -> None:
    model = RiverClassifier(KNN(window=50), n_features=64)
    rng = random.Random(0)

    def feed(n: int) -> int:
        for _ in range(n):
            words = {f"word{rng.randrange(1000)}": 1.0 for _ in range(5)}
            model.learn_one(words, {"sea": rng.random() < 0.5, "sun": rng.random() < 0.5})
        return model._raw_memory_usage

    first = feed(150)
    assert feed(150) <= 1.1 * first
    assert len(model._columns) == 64


def test_river_is_answered_for_the_next_item() -> None:
    asked = []

    class Asked(KNN):
        def _found(self, located: Any, *, next: bool) -> Any:
            asked.append(next)
            return super()._found(located, next=next)

    model = RiverClassifier(Asked(n_neighbors=1), n_features=4)
    model.learn_one({"wind": 1.0}, {"sail": True})
    model.predict_one({"wind": 1.0})
    model.predict_proba_one({"wind": 1.0})
    model.predict_many([{"wind": 1.0}, {"sun": 1.0}])
    model.predict_proba_many([{"wind": 1.0}, {"sun": 1.0}])
    model.explain_one({"wind": 1.0})
    assert asked == [True] * 5


def test_explanations_name_the_labels() -> None:
    model = RiverClassifier(KNN(n_neighbors=1))
    with pytest.raises(ValueError, match="must have learnt"):
        model.explain_one({"a": 1.0})
    model.learn_one({"a": 1.0}, {"sea": True})
    model.learn_one({"b": 1.0}, {"sun": True})
    why = model.explain_one({"a": 1.0})
    assert why.voters == {"sea": (0,)}
    assert why.neighbors[0].labels == ("sea",)
    other = RiverClassifier(OLANSGD())
    other.learn_one({"a": 1.0}, {"sea": True})
    with pytest.raises(ValueError, match="keep its items"):
        other.explain_one({"a": 1.0})


# ------------------------------------------------------------------ river's evaluation
METRICS = {
    "micro": lambda: river_metrics.multioutput.MicroAverage(river_metrics.F1()),
    "macro": lambda: river_metrics.multioutput.MacroAverage(river_metrics.F1()),
    "sample": lambda: river_metrics.multioutput.SampleAverage(river_metrics.F1()),
    "per output": lambda: river_metrics.multioutput.PerOutput(river_metrics.F1()),
    "exact": river_metrics.multioutput.ExactMatch,
}


def late(n: int = 150) -> list[tuple[dict[str, Any], dict[str, bool]]]:
    """Return items in which the last mood is first heard of in the middle."""
    return [
        (x, y if i >= n // 2 else {m: v for m, v in y.items() if m != "angry"})
        for i, (x, y) in enumerate(songs(n))
    ]


@pytest.mark.parametrize("key", METRICS)
@pytest.mark.parametrize("delay", [None, 5])
def test_progressive_validation_survives_a_new_label(key: str, delay: int | None) -> None:
    model = RiverClassifier(KNN(), n_features=32)
    metric = evaluate.progressive_val_score(late(), model, METRICS[key](), delay=delay)
    value = metric.get()
    if key == "per output":
        assert set(value) == set(MOODS)
    else:
        assert 0 < value <= 1


def test_a_plain_river_model_does_not_survive_it() -> None:
    """The reason for :class:`Labels`; if this fails, river has mended its metrics."""
    chain = multioutput.ClassifierChain(linear_model.LogisticRegression())
    with pytest.raises(KeyError, match="angry"):
        evaluate.progressive_val_score(late(), chain, METRICS["micro"]())


def test_progressive_validation_measures_what_prequential_does() -> None:
    """river leaves out the item before the first learnt one, for which nothing is predicted."""
    items = songs(200)
    model = RiverClassifier(KNN(), n_features=32)
    ours = evaluate.progressive_val_score(items, model, METRICS["micro"]()).get()
    X = sp.csr_matrix([[*x.values()] for x, _ in items])
    Y = np.array([[*y.values()] for _, y in items], np.uint8)
    direct = prequential(KNN(), X, Y, init=1)
    assert ours == pytest.approx(direct.measures["micro_f1"])


def test_it_ends_a_pipeline() -> None:
    scaled = preprocessing.StandardScaler() | RiverClassifier(OML(random_state=0), n_features=32)
    metric = evaluate.progressive_val_score(songs(200), scaled, METRICS["micro"]())
    assert metric.get() > 0.4
    words = compose.Pipeline(
        feature_extraction.BagOfWords(lowercase=True), RiverClassifier(KNN(n_neighbors=1))
    )
    words.learn_one("a walk by the sea", {"sea": True, "snow": False})
    words.learn_one("skiing in deep snow", {"sea": False, "snow": True})
    assert words.predict_one("the deep blue sea and a walk") == {"sea": True, "snow": False}


# ------------------------------------------------------------------ the other direction
def chain() -> Any:
    return preprocessing.StandardScaler() | multioutput.ClassifierChain(
        linear_model.LogisticRegression()
    )


RIVER_MODELS = {
    "chain": chain,
    "per output": lambda: (
        preprocessing.StandardScaler()
        | multioutput.PerOutputClassifier(linear_model.LogisticRegression())
    ),
    "ours": lambda: RiverClassifier(KNN(), n_features=32),
}
if not hasattr(multioutput, "PerOutputClassifier"):  # before river 0.26
    del RIVER_MODELS["per output"]


@pytest.mark.parametrize("key", RIVER_MODELS)
def test_our_evaluation_runs_river_models(key: str) -> None:
    stream = make_stream(200, seed=1, n_late=2)
    model = FromRiver(RIVER_MODELS[key]())
    result = prequential(model, stream.X, stream.Y, every=100)
    assert result.n_learned == 200
    assert "ranking_loss" in result.measures
    assert result.curve[-1].recent["micro_f1"] > 0.3
    assert result.curve[-1].nbytes is not None
    folds = holdout(model, stream.X, stream.Y, folds=2)
    assert folds.mean["micro_f1"] > 0.3
    assert holdout(model, stream.X, stream.Y, folds=2).mean == folds.mean


def test_ours_through_river_and_back_is_ours() -> None:
    stream = make_stream(150, seed=2)
    X = sp.csr_matrix(stream.X)
    there = FromRiver(RiverClassifier(KNN(), n_features=30))
    back = prequential(there, X, stream.Y)
    assert back.counts == prequential(KNN(), X, stream.Y).counts


def test_rows_become_dicts_with_what_is_there() -> None:
    seen: list[tuple[Any, Any]] = []

    class Spy(base.MultiLabelClassifier):
        def learn_one(self, x: Any, y: Any) -> None:
            seen.append((x, y))

        def predict_one(self, x: Any) -> Any:
            return {0: True, 5: True} if len(seen) else None

    X = np.array([[1.0, 0.0], [0.0, 2.0]])
    model = FromRiver(Spy())
    assert not hasattr(model, "predict_proba")
    model.partial_fit(X, np.array([[1, 0], [np.nan, 1]]))
    assert seen == [({0: 1.0, 1: 0.0}, {0: True, 1: False}), ({0: 0.0, 1: 2.0}, {1: True})]
    assert model.predict(X).tolist() == [[1, 0], [1, 0]]
    seen.clear()
    model.fit(sp.csr_matrix(X), np.eye(2, dtype=int))
    assert [x for x, _ in seen] == [{0: 1.0}, {1: 2.0}]
    assert model.predict(sp.csr_matrix(X)).shape == (2, 2)
    seen.clear()
    named = FromRiver(Spy()).fit(
        pd.DataFrame(X, columns=["wind", "sun"]), pd.DataFrame(np.eye(2), columns=["sail", "swim"])
    )
    assert seen[0] == ({"wind": 1.0, "sun": 0.0}, {"sail": True, "swim": False})
    assert named.classes_.tolist() == ["sail", "swim"]
    with pytest.raises(ValueError, match="feature names"):
        named.predict(pd.DataFrame(X, columns=["sun", "wind"]))
    with pytest.raises(ValueError, match="as many rows as X"):
        named.partial_fit(pd.DataFrame(X, columns=["wind", "sun"]), np.eye(2)[:1])


def test_labels_may_grow() -> None:
    stream = make_stream(100, seed=0)
    model = FromRiver(chain()).partial_fit(stream.X[:50], stream.Y[:50, :5])
    model.partial_fit(stream.X[50:], stream.Y[50:])
    assert model.predict_proba(stream.X).shape == (100, 12)
    scores = model.predict_proba(stream.X)
    assert ((scores >= 0) & (scores <= 1)).all()


# ------------------------------------------------------------------ an optional extra
def test_without_river_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['river'] = None\n"
        "import tagstream.compat\n"
        "try:\n    import tagstream.compat.river\n"
        "except ImportError as error:\n    print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "tagstream[river]" in out.stdout


def test_every_learner_is_offered_to_river() -> None:
    assert {type(p["model"]) for p in PARAMS} == {OML, KNN, OSMLELM, OLANSGD}
