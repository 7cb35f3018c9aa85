"""The learners among scikit-learn's tools: pipelines, searches, frames, files."""

from __future__ import annotations

import io
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import _get_feature_names

from tagstream import KNN, OLANSGD, OML, OSMLELM, make_stream
from tagstream.core.compilation import n_compiled
from tagstream.testing import assert_same_state

LEARNERS: dict[str, type[Any]] = {"OML": OML, "KNN": KNN, "OSMLELM": OSMLELM, "OLANSGD": OLANSGD}
EACH = pytest.mark.parametrize("name", LEARNERS)
# An old scikit-learn cannot read the column names of a new polars.
reads_polars = _get_feature_names(pl.DataFrame({"a": [1.0]})) is not None
polars = pytest.param(pl.DataFrame, marks=pytest.mark.skipif(not reads_polars, reason="too old"))
FRAMES = pytest.mark.parametrize("frame", [pd.DataFrame, polars], ids=["pandas", "polars"])
MICRO_F1 = make_scorer(f1_score, average="micro", zero_division=0)

STREAM = make_stream(240, p=8, q=5, n_factors=3, cardinality=1.5, seed=0)
X: Any = STREAM.X
Y: Any = STREAM.Y
# A parameter of each learner with a poor value and a good one.
CHOICES: dict[str, tuple[str, list[Any]]] = {
    "OML": ("decide", [0.01, 0.5]),
    "KNN": ("decide", [0.01, 0.5]),
    "OSMLELM": ("n_hidden", [1, 20]),
    "OLANSGD": ("first_block", [1, 100]),
}


def learner(name: str) -> Any:
    """Return a learner small and seeded enough for a test."""
    params = {"OML": {"random_state": 0}, "OSMLELM": {"n_hidden": 20, "random_state": 0}}
    return LEARNERS[name](**params.get(name, {}))


def check_counts(name: str) -> dict[str, int]:
    """Return how many of scikit-learn's checks a learner passes.

    One check expects `predict` to round the probabilities, so the decision is "hamming"; all else
    is as by default.  ``python tests/test_sklearn.py`` prints the lines of docs/researchers.md.
    """
    model = LEARNERS[name]()
    if "decide" in model.get_params():
        model.set_params(decide="hamming")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(model, on_fail=None)
    counts = {"passed": 0, "skipped": 0, "xfail": 0, "failed": 0}
    for result in results:
        counts[result["status"]] += 1
    return counts


def count_line(name: str, counts: dict[str, int]) -> str:
    """Return the line of a Markdown table that publishes the counts."""
    return f"| {name} | {counts['passed']} passed, {counts['skipped']} skipped |"


@pytest.mark.slow  # the contract runs the same checks; here they are counted
@EACH
def test_check_estimator_counts_are_those_of_the_page(name: str) -> None:
    counts = check_counts(name)
    assert counts["failed"] == counts["xfail"] == 0
    assert counts["passed"] >= 50
    assert counts["skipped"] <= 2
    page = Path(__file__).parents[1] / "docs" / "researchers.md"
    readme = page.read_text(encoding="utf-8")
    published = re.findall(rf"^\| {name} \| \d+ passed.*", readme, re.MULTILINE)
    assert len(published) == 1
    made_with = re.search(r"scikit-learn (\d+\.\d+)", readme)
    assert made_with is not None
    if sklearn.__version__.startswith(made_with[1] + "."):  # others have other checks
        assert published == [count_line(name, counts)]


@EACH
def test_clone_keeps_parameters_and_forgets_the_rest(name: str) -> None:
    model = learner(name)
    model = model.set_params(**{CHOICES[name][0]: CHOICES[name][1][0]}).fit(X, Y)
    again = clone(model)
    assert again.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        again.predict(X)
    assert_same_state(again.fit(X, Y).to_state(), model.to_state())


@EACH
def test_pipeline_with_a_scaler(name: str) -> None:
    pipe = make_pipeline(StandardScaler(), learner(name)).fit(100 * X[:180] + 7, Y[:180])
    by_hand = learner(name).fit(StandardScaler().fit_transform(100 * X[:180] + 7), Y[:180])
    scaled = pipe[0].transform(100 * X[180:] + 7)
    np.testing.assert_array_equal(pipe.predict(100 * X[180:] + 7), by_hand.predict(scaled))
    assert f1_score(Y[180:], pipe.predict(100 * X[180:] + 7), average="micro") > 0.3
    sparse = make_pipeline(MaxAbsScaler(), learner(name)).fit(sp.csr_matrix(X), Y)
    assert sparse.predict_proba(sp.csr_matrix(X)).shape == Y.shape


def test_pipeline_from_text() -> None:
    texts = ["sun and sea", "snow on skis", "the sea at noon", "deep snow"] * 10
    tags = np.array([[1, 0], [0, 1], [1, 0], [0, 1]] * 10)
    pipe = make_pipeline(HashingVectorizer(n_features=2**10), OML(n_neighbors=3, random_state=0))
    assert pipe.fit(texts, tags).predict(["more snow", "a calm sea"]).tolist() == [[0, 1], [1, 0]]


def test_codes_feed_another_estimator() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multioutput import MultiOutputClassifier

    pipe = make_pipeline(
        OML(random_state=0), MultiOutputClassifier(LogisticRegression(solver="liblinear"))
    )
    codes = pipe.fit(X, Y)[:-1].transform(X)
    assert codes.shape == (240, 5)
    assert f1_score(Y, pipe.predict(X), average="micro") > 0.6


@EACH
def test_grid_search_finds_its_way(name: str) -> None:
    pipe = make_pipeline(StandardScaler(), learner(name))
    parameter, values = CHOICES[name]
    parameter = f"{name.lower()}__{parameter}"
    search = GridSearchCV(pipe, {parameter: values}, scoring=MICRO_F1, cv=2).fit(X, Y)
    assert search.best_params_ == {parameter: values[1]}
    assert search.best_estimator_.predict(X).shape == Y.shape


@EACH
def test_cross_validation(name: str) -> None:
    scores = cross_val_score(learner(name), X, Y, scoring=MICRO_F1, cv=3)
    assert scores.shape == (3,)
    assert scores.min() > 0.3
    predicted = cross_val_predict(learner(name), X, Y, cv=3)
    assert predicted.shape == Y.shape
    chances = cross_val_predict(learner(name), X, Y, cv=3, method="predict_proba")
    assert np.asarray(chances).shape == Y.shape
    accuracy = learner(name).fit(X[:160], Y[:160]).score(X[160:], Y[160:])
    assert 0 < accuracy < 1  # the share of items whose labels are all right


# ------------------------------------------------------------------ frames
KINDS = pytest.mark.parametrize(
    ("kind", "frame"),
    [("pandas", pd.DataFrame), ("polars", pl.DataFrame)],
    ids=["pandas", "polars"],
)


@KINDS
def test_transform_gives_the_frame_that_was_asked_for(kind: str, frame: Any) -> None:
    model = OML(random_state=0).fit(X, Y)
    want = model.transform(X)
    codes = model.set_output(transform=kind).transform(X)
    assert isinstance(codes, frame)
    assert list(codes.columns) == [f"oml{j}" for j in range(5)]
    assert model.get_feature_names_out().tolist() == list(codes.columns)
    np.testing.assert_array_equal(codes.to_numpy(), want)


@KINDS
def test_set_output_survives_fit(kind: str, frame: Any) -> None:
    model = OML(random_state=0).set_output(transform=kind).fit(X, Y)
    assert isinstance(model.transform(X), frame)


def test_transform_keeps_the_index_of_a_frame() -> None:
    names = [f"x{j}" for j in range(8)]
    rows = pd.DataFrame(X, index=[f"item{i}" for i in range(240)], columns=names)
    model = OML(random_state=0).fit(rows, Y).set_output(transform="pandas")
    assert model.transform(rows).index.tolist() == rows.index.tolist()


@EACH
@FRAMES
def test_frames_in(name: str, frame: Any) -> None:
    rows = frame({f"x{j}": X[:, j] for j in range(8)})
    tags = frame({tag: Y[:, j] for j, tag in enumerate("abcde")})
    model = learner(name).fit(rows, tags)
    assert model.feature_names_in_.tolist() == list(rows.columns)
    assert model.classes_.tolist() == list("abcde")
    np.testing.assert_array_equal(model.predict(rows), learner(name).fit(X, Y).predict(X))


@EACH
@FRAMES
def test_feature_names_are_checked(name: str, frame: Any) -> None:
    rows = frame({f"x{j}": X[:, j] for j in range(8)})
    model = learner(name).fit(rows, Y)
    before = model.to_state()
    for columns in (
        [*rows.columns[1:], rows.columns[0]],  # another order
        [*rows.columns[:-1], "other"],  # another name
        [*rows.columns[:-1]],  # one too few
    ):
        wrong = frame({c: X[:, j] for j, c in enumerate(columns)})
        for call in (model.predict, model.predict_proba, lambda F: model.partial_fit(F, Y)):
            with pytest.raises(ValueError, match="feature names"):
                call(wrong)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)
    assert_same_state(model.to_state(), before)


# ------------------------------------------------------------------ files
@EACH
def test_pickle_and_joblib_go_on_as_before(name: str) -> None:
    model = learner(name).fit(X[:150], Y[:150])
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    for again in (pickle.loads(pickle.dumps(model)), joblib.load(file)):
        assert_same_state(again.to_state(), model.to_state())
        ahead = clone(model).fit(X[:150], Y[:150]).partial_fit(X[150:], Y[150:])
        assert_same_state(again.partial_fit(X[150:], Y[150:]).to_state(), ahead.to_state())


if __name__ == "__main__":
    print(f"scikit-learn {sklearn.__version__}\n")
    for key in LEARNERS:
        print(count_line(key, check_counts(key)))


def compiled_and_right(model, X, Y):
    """Scores of GridSearchCV: the micro-F1, and how many functions this process has compiled."""
    return {"f1": MICRO_F1(model, X, Y), "compiled": n_compiled()}


def test_workers_of_a_search_load_what_was_compiled_before():
    rng = np.random.default_rng(8)
    X = rng.random((90, 5)).astype(np.float32)
    Y = (X[:, :3] > 0.6).astype(np.uint8)
    search = GridSearchCV(
        OML(random_state=0), {"n_neighbors": [1, 3]}, scoring=compiled_and_right, refit="f1", cv=2
    )
    search.fit(X, Y)  # in this process, which may compile
    search.n_jobs = 2
    search.fit(X, Y)
    assert (search.cv_results_["mean_test_compiled"] == 0).all()
    assert search.best_score_ > 0.5
