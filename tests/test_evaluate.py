"""Hold-out and prequential evaluation, driven by learners whose every call can be checked."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tagstream.decision import decide
from tagstream.evaluate import HoldoutResult, holdout, iterative_folds, prequential, train_test
from tagstream.metrics import MultiLabelScores
from tagstream.models import KNN, OML


class Frequency:
    """Scores a label by its share so far; logs the items it saw, by their number in column 0."""

    def __init__(self, n_init=None):
        self.n_init = n_init
        self.log = []
        self.Y = None

    def partial_fit(self, X, Y):
        self.log.append(("learn", X[:, 0].astype(int).tolist()))
        assert Y.dtype == np.uint8
        self.Y = Y if self.Y is None else np.vstack([self.Y, Y])

    def predict_proba(self, X):
        self.log.append(("predict", X[:, 0].astype(int).tolist()))
        return np.repeat(self.Y.mean(axis=0, keepdims=True), len(X), axis=0)

    def predict(self, X):
        share = self.Y.mean(axis=0, keepdims=True)
        return np.repeat((share >= 0.5).astype(int), len(X), axis=0)

    @property
    def nbytes_(self):
        return 0 if self.Y is None else self.Y.nbytes

    def learned(self):
        return [i for verb, items in self.log if verb == "learn" for i in items]


class FrequencyByOne(Frequency):
    """The same through rows of shape (p,)."""

    def learn_one(self, x, y):
        assert x.ndim == y.ndim == 1
        self.partial_fit(x[None], y[None])

    def predict_one(self, x):
        return self.predict(x[None])[0]

    def predict_proba_one(self, x):
        assert x.ndim == 1
        return self.predict_proba(x[None])[0]


def stream(seed, n=40, q=3):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.arange(n), rng.normal(size=(n, 2))])
    Y = (rng.random((n, q)) < np.linspace(0.7, 0.2, q)).astype(int)
    return X, Y


def separable(seed, n, q=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    return X, (X[:, :q] > 0).astype(int)


def naive_prequential(X, Y, delay, batch=1):
    """Counts of Frequency on a stream, by the definition of delay."""
    scores, model, waiting = MultiLabelScores(), Frequency(), []
    for i in range(len(X)):
        known = model.Y is not None
        scores.update(
            Y[i],
            model.predict(X[[i]])[0] if known else [],
            model.predict_proba(X[[i]])[0] if known else [],
        )
        waiting.append(i)
        if (i + 1) % batch == 0 or i + 1 == len(X):
            due = sorted((j for j in waiting if j + delay[j] <= i), key=lambda j: (j + delay[j], j))
            for j in due:
                waiting.remove(j)
            if due:
                model.partial_fit(X[due], Y[due].astype(np.uint8))
    return scores, model


class TwoQuestions(Frequency):
    """Has an answer to each of the two questions, and notes which one it was asked."""

    def __init__(self, n_init=None):
        super().__init__(n_init)
        self.asked = set()

    def partial_fit(self, X, Y):
        self.Y = Y

    def predict_proba(self, X, *, next=False):
        self.asked.add(("predict_proba", next))
        return np.repeat(self.Y.mean(axis=0, keepdims=True), X.shape[0], axis=0)

    def predict(self, X, *, next=False):
        self.asked.add(("predict", next))
        return (self.predict_proba(X, next=next) >= 0.5).astype(int)


class ThreeCalls(TwoQuestions):
    """The same, which also makes labels of scores."""

    def labels_of(self, scores, decide=None, *, next=False):
        self.asked.add(("labels_of", next))
        return (scores >= 0.5).astype(int)


class TakesAnything(Frequency):
    """Hands on what it does not know, as pipelines do."""

    def predict_proba(self, X, **others):
        assert not others
        return super().predict_proba(X)

    def predict(self, X, **others):
        assert not others
        return super().predict(X)


# ---- iterative stratification ----


def label_matrices(max_rows=40):
    return st.integers(0, 2**32 - 1).map(
        lambda seed: (
            np.random.default_rng(seed).random((max_rows, 6))
            < np.random.default_rng(seed + 1).random(6) * 0.6
        ).astype(int)
    )


@given(label_matrices(), st.integers(2, 6), st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_folds_are_a_partition_that_the_seed_decides(Y, folds, seed):
    fold_of = iterative_folds(Y, folds, seed)
    assert fold_of.shape == (len(Y),)
    assert set(fold_of) == set(range(folds))
    np.testing.assert_array_equal(fold_of, iterative_folds(Y, folds, seed))
    np.testing.assert_array_equal(fold_of, iterative_folds(sp.csr_array(Y), folds, seed))


@given(st.lists(st.integers(0, 4), min_size=10, max_size=60), st.integers(2, 5))
@settings(max_examples=30, deadline=None)
def test_rows_with_one_label_each_are_dealt_as_evenly_as_possible(label, folds):
    Y = np.eye(5, dtype=int)[label]
    fold_of = iterative_folds(Y, folds, 3)
    per_fold = np.array([Y[fold_of == f].sum(axis=0) for f in range(folds)])
    assert (per_fold.max(axis=0) - per_fold.min(axis=0) <= 1).all()


def test_rare_labels_are_spread_better_than_by_chance():
    rng = np.random.default_rng(5)
    Y = (rng.random((1000, 40)) < np.geomspace(0.3, 0.005, 40)).astype(int)

    def unevenness(fold_of):
        per_fold = np.array([Y[fold_of == f].sum(axis=0) for f in range(5)])
        return np.abs(per_fold - Y.sum(axis=0) / 5).mean()

    fold_of = iterative_folds(Y, 5, 0)
    chance = np.mean([unevenness(rng.permutation(np.arange(1000) % 5)) for _ in range(10)])
    assert unevenness(fold_of) < 0.3 * chance
    sizes = np.bincount(fold_of)
    assert sizes.max() - sizes.min() <= 10


def test_other_seeds_give_other_folds():
    Y = stream(1, n=60)[1]
    assert (iterative_folds(Y, 5, 0) != iterative_folds(Y, 5, 1)).any()


def test_folds_need_a_row_each():
    with pytest.raises(ValueError, match="Y must have at least 5 rows for 5 folds, got 3"):
        iterative_folds(np.eye(3), 5)
    with pytest.raises(ValueError, match="folds must be an integer of at least 2, got 1"):
        iterative_folds(np.eye(3), 1)


# ---- hold-out ----


def test_each_fold_learns_its_training_part_once_and_never_the_test_part():
    X, Y = stream(2)
    models = []

    def factory(n_init):
        models.append(Frequency(n_init))
        return models[-1]

    result = holdout(factory, X, Y, folds=4, init=0.2, seed=3, chunk=7)
    tested = []
    for fold, model in zip(result.folds, models, strict=True):
        (*learning, (_, test)) = model.log
        train = model.learned()
        assert sorted(train + test) == list(range(40))
        assert train != sorted(train)
        sizes = [len(items) for verb, items in learning]
        assert sizes == [6, 7, 7, 7, 3]
        assert (fold.n_init, fold.n_train, fold.n_test) == (6, 30, 10)
        assert model.n_init == 6
        tested += test
    assert sorted(tested) == list(range(40))


def test_measures_of_a_fold_are_those_of_its_test_part():
    X, Y = stream(3)
    train, test = np.arange(30), np.arange(30, 40)
    fold = train_test(Frequency(), X, Y, train, test, init=10)
    model = Frequency()
    model.partial_fit(X[:30], Y[:30].astype(np.uint8))
    expected = MultiLabelScores().update(Y[30:], model.predict(X[30:]), model.predict_proba(X[30:]))
    assert fold.measures == expected.as_dict()
    assert fold.nbytes == 90
    assert fold.learn_seconds > 0
    assert fold.predict_seconds > 0


def test_a_refit_ends_the_training_part_if_it_is_asked_for():
    class Refits(Frequency):
        def refit(self):
            self.log.append(("refit", []))

    X, Y = stream(36)
    made = []

    def new(n_init):
        made.append(Refits(n_init))
        return made[-1]

    for refit in (False, True):
        train_test(new, X, Y, np.arange(30), np.arange(30, 40), refit=refit)
        verbs = [verb for verb, _ in made[-1].log]
        assert verbs.count("refit") == refit
        assert verbs[-2:] == (["refit", "predict"] if refit else ["learn", "predict"])
    train_test(Frequency(), X, Y, np.arange(30), np.arange(30, 40), refit=True)  # has none


def test_a_large_test_part_is_asked_about_in_blocks(monkeypatch):
    X, Y = stream(37)
    whole = train_test(Frequency(), X, Y, np.arange(30), np.arange(30, 40))
    monkeypatch.setattr("tagstream.evaluation.evaluate._CELLS", 4 * Y.shape[1])
    made = []
    parts = train_test(
        lambda n: made.append(Frequency(n)) or made[-1], X, Y, np.arange(30), np.arange(30, 40)
    )
    assert parts.measures == pytest.approx(whole.measures)
    assert [len(items) for verb, items in made[0].log if verb == "predict"] == [4, 4, 2]


def test_single_calls_play_no_part_in_a_hold_out():
    X, Y = stream(3)
    expected = holdout(Frequency(), X, Y, folds=2).mean
    assert holdout(FrequencyByOne(), X, Y, folds=2).mean == expected


def test_mean_and_spread_are_over_folds_and_repeats():
    X, Y = stream(4)
    result = holdout(Frequency(), X, Y, folds=3, repeats=2, seed=1)
    values = [fold.measures["micro_f1"] for fold in result.folds]
    assert [(f.repeat, f.fold) for f in result.folds] == [(r, f) for r in (0, 1) for f in (0, 1, 2)]
    assert len(set(values)) > 1
    assert result.mean["micro_f1"] == pytest.approx(np.mean(values))
    assert result.std["micro_f1"] == pytest.approx(np.std(values, ddof=1))


def test_the_seed_decides_everything():
    X, Y = stream(5)
    a, b = (holdout(Frequency(), X, Y, seed=7).mean for _ in range(2))
    assert a == b
    assert a != holdout(Frequency(), X, Y, seed=8).mean


def test_each_repeat_deals_anew():
    X, Y = stream(5)
    models = []

    def factory(n_init):
        models.append(Frequency())
        return models[-1]

    holdout(factory, X, Y, folds=2, repeats=2)
    tests = [sorted(model.log[-1][1]) for model in models]
    assert tests[0] not in tests[2:]


def test_a_fold_without_a_known_label_does_not_spoil_the_mean():
    X, Y = stream(5)
    Y = Y.astype(float)
    Y[30:] = np.nan
    train, tests = np.arange(20), (np.arange(20, 30), np.arange(30, 40))
    result = HoldoutResult(tuple(train_test(Frequency(), X, Y, train, test) for test in tests))
    assert result.mean == result.folds[0].measures
    assert result.std["micro_f1"] == 0
    assert HoldoutResult(result.folds[1:]).mean == {}


def test_the_given_model_is_left_alone():
    X, Y = stream(6)
    model = Frequency()
    holdout(model, X, Y, folds=2)
    assert model.log == []


def test_without_shuffling_the_training_part_stays_in_file_order():
    X, Y = stream(7)
    models = []

    def factory(n_init):
        models.append(Frequency())
        return models[-1]

    holdout(factory, X, Y, folds=2, shuffle=False)
    assert all(model.learned() == sorted(model.learned()) for model in models)


def test_results_go_to_json_and_back():
    X, Y = stream(8)
    result = holdout(Frequency(), X, Y, folds=2)
    record = json.loads(json.dumps(result.as_dict()))
    again = MultiLabelScores.from_counts(record["folds"][1]["counts"]).as_dict()
    assert again == result.folds[1].measures
    assert record["mean"] == result.mean


def test_progress_is_told_fold_by_fold():
    X, Y = stream(9)
    calls = []
    holdout(Frequency(), X, Y, folds=2, repeats=2, progress=lambda *call: calls.append(call))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


# ---- scikit-learn's learners ----


@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_one_sgd_per_label_is_taken_as_it_is(loss):
    X, Y = separable(10, 300)
    model = MultiOutputClassifier(SGDClassifier(loss=loss, random_state=0))
    result = holdout(model, X, Y, folds=3, seed=0)
    assert result.mean["micro_f1"] > 0.85
    assert ("lrap" in result.mean) == (loss == "log_loss")
    assert not hasattr(model, "estimators_")


def test_a_network_that_wants_the_labels_as_classes_is_told():
    X, Y = separable(11, 200)
    model = MLPClassifier(hidden_layer_sizes=(8,), learning_rate_init=0.05, random_state=0)
    result = holdout(model, X, Y, folds=2, chunk=10)
    assert result.mean["micro_f1"] > 0.75
    assert result.mean["lrap"] > 0.75


def test_scores_of_a_list_of_arrays_become_one_array():
    X, Y = separable(12, 120)
    train, test = np.arange(80), np.arange(80, 120)
    model = MultiOutputClassifier(SGDClassifier(loss="log_loss", random_state=0))
    fold = train_test(model, X, Y, train, test, chunk=80, init=0)
    model.partial_fit(X[:80], Y[:80], classes=[np.array([0, 1])] * 3)
    S = np.column_stack([p[:, 1] for p in model.predict_proba(X[80:])])
    expected = MultiLabelScores().update(Y[80:], model.predict(X[80:]), S)
    assert fold.measures == expected.as_dict()


def test_an_error_of_the_learner_that_is_not_about_classes_comes_through():
    class Broken(Frequency):
        def partial_fit(self, X, Y, classes=None):
            raise ValueError("X must be nicer")

    with pytest.raises(ValueError, match="X must be nicer"):
        holdout(Broken(), *stream(13))


def test_a_list_of_scores_may_lack_the_class_never_seen():
    class Lists(Frequency):
        classes_ = (np.array([0]), np.array([1]), np.array([0, 1]))

        def predict_proba(self, X):
            one = np.ones((len(X), 1))
            return [one, one, np.hstack([0.25 * one, 0.75 * one])]

    X, Y = stream(14)
    Y[:] = [0, 1, 1]
    assert holdout(Lists(), X, Y, folds=2, k=2).mean["precision_at_2"] == 1


# ---- forms of input ----


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csr_array, sp.csc_array, pd.DataFrame, list])
def test_labels_may_come_in_any_form(form):
    X, Y = stream(15)
    expected = holdout(Frequency(), X, Y, folds=3).mean
    assert holdout(Frequency(), X, form(Y), folds=3).mean == expected


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csr_array])
def test_sparse_rows_reach_the_learner_sparse(form):
    class Sparse(BaseEstimator):
        def partial_fit(self, X, Y):
            assert sp.issparse(X)
            self.share_ = Y.mean(axis=0)

        def predict(self, X):
            assert sp.issparse(X)
            return np.tile(self.share_ > 0.5, (X.shape[0], 1))

    X, Y = stream(16)
    result = prequential(Sparse(), form(X), Y, window=5)
    assert result.n_items == 40
    assert "lrap" not in result.measures


def test_a_data_frame_keeps_its_names():
    class Named(Frequency):
        def partial_fit(self, X, Y):
            assert list(X.columns) == list("abc")
            super().partial_fit(X.to_numpy(), Y)

    X, Y = stream(17)
    frame = pd.DataFrame(X, columns=list("abc"))
    expected = holdout(Frequency(), X, Y, folds=2, scores=False).mean
    assert holdout(Named(), frame, Y, folds=2, scores=False).mean == expected


class NoPredict(Frequency):
    def predict(self, X):
        raise AssertionError


def test_a_rule_replaces_predict():
    X, Y = stream(18)
    a = holdout(NoPredict(), X, Y, folds=2, decide=0.5).mean
    assert a == holdout(Frequency(), X, Y, folds=2).mean
    assert a != holdout(NoPredict(), X, Y, folds=2, decide=0.1).mean
    one = holdout(NoPredict(), X, Y, folds=2, decide="top1")
    n_rows = sum(MultiLabelScores.from_counts(fold.counts).n_rows for fold in one.folds)
    assert sum(sum(fold.counts["labels"]["pred"]) for fold in one.folds) == n_rows


def test_a_decision_by_label_is_left_to_the_learner():
    X, Y = stream(18)
    rows = (X, Y, np.arange(30), np.arange(30, 40))
    asked = train_test(OML(random_state=0), *rows, decide="macro")
    assert asked.counts == train_test(OML(random_state=0, decide="macro"), *rows).counts
    with pytest.raises(ValueError, match="'macro' for a learner without a head"):
        train_test(NoPredict(), *rows, decide="macro")


@pytest.mark.parametrize("rule", ["f1", "balanced", "hamming"])
@pytest.mark.parametrize("with_scores", [True, False])
def test_labels_of_a_rule_are_those_of_the_one_decision(rule, with_scores):
    X, Y = stream(18)
    train, test = np.arange(30), np.arange(30, 40)
    fold = train_test(NoPredict(), X, Y, train, test, decide=rule, scores=with_scores)
    p = np.tile(Y[:30].mean(axis=0), (10, 1))
    expected = MultiLabelScores().update(Y[30:], decide(p, rule), p if with_scores else None)
    assert fold.counts == expected.to_counts()


class FromScores(Frequency):
    """Makes its labels of its scores, and must never be asked for both."""

    labels_of_calls = 0

    def predict(self, X):
        raise AssertionError

    def labels_of(self, scores, decide=None):
        assert decide is None
        self.labels_of_calls += 1
        return (scores >= 0.5).astype(int)


class FromScoresByOne(FromScores, FrequencyByOne):
    def predict_one(self, x):
        raise AssertionError


@pytest.mark.parametrize("learner", [FromScores, FromScoresByOne])
def test_a_learner_that_makes_labels_of_scores_is_asked_once_for_each_item(learner):
    X, Y = stream(19, n=20)
    model = learner()
    result = prequential(model, X, Y)
    assert [items for verb, items in model.log if verb == "predict"] == [[i] for i in range(20)]
    assert model.labels_of_calls == 19  # before the first item is learned there are no scores
    assert result.counts == prequential(Frequency(), X, Y).counts
    assert holdout(learner(), X, Y, folds=2).mean == holdout(Frequency(), X, Y, folds=2).mean


# ---- learners that only have fit ----


class AllAtOnce:
    """Frequency as a learner that sees its training part once, and whole."""

    def __init__(self):
        self.log = []

    def fit(self, X, Y):
        self.log.append(X[:, 0].astype(int).tolist())
        self.share_ = Y.mean(axis=0)
        return self

    def predict(self, X):
        return np.tile((self.share_ >= 0.5).astype(int), (len(X), 1))


def test_a_learner_without_partial_fit_is_fitted_on_the_whole_training_part():
    X, Y = stream(41)
    models = []

    def factory(n_init):
        models.append(AllAtOnce())
        return models[-1]

    result = holdout(factory, X, Y, folds=4, chunk=3)
    for fold, model in zip(result.folds, models, strict=True):
        (train,) = model.log
        assert len(set(train)) == fold.n_train == fold.n_init == 30
        assert fold.fitted == "batch"
    streamed = holdout(Frequency(), X, Y, folds=4, chunk=3, scores=False)
    assert {fold.fitted for fold in streamed.folds} == {"stream"}
    assert result.mean == streamed.mean
    assert json.loads(json.dumps(result.as_dict()))["folds"][0]["fitted"] == "batch"


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(20, random_state=0),
        OneVsRestClassifier(LogisticRegression()),
        make_pipeline(StandardScaler(), OneVsRestClassifier(LogisticRegression())),
        make_pipeline(StandardScaler(), MultiOutputClassifier(SGDClassifier(random_state=0))),
    ],
    ids=["forest", "one-vs-rest", "pipeline", "pipeline-sgd"],
)
def test_offline_learners_of_scikit_learn_are_taken_as_they_are(model):
    X, Y = separable(42, 200)
    result = holdout(model, X, Y, folds=2)
    assert {fold.fitted for fold in result.folds} == {"batch"}
    assert result.mean["micro_f1"] > 0.85
    assert ("log_loss" in result.mean) == hasattr(model, "predict_proba")


def test_test_then_train_needs_partial_fit():
    with pytest.raises(ValueError, match="model must have partial_fit, got AllAtOnce"):
        prequential(AllAtOnce(), *stream(43))


# ---- as many columns as labels ----


class Narrow(Frequency):
    """Leaves out the last label of three."""

    def predict_proba(self, X):
        return super().predict_proba(X)[:, :2]

    def predict(self, X):
        return super().predict(X)[:, :2]


@pytest.mark.parametrize("run", [holdout, prequential])
def test_a_learner_that_predicts_other_columns_is_refused(run):
    message = "model must predict 3 columns, one for each label of Y, got 2; a learner"
    with pytest.raises(ValueError, match=message):
        run(Narrow(), *stream(44))
    with pytest.raises(ValueError, match=message):
        run(Narrow(), *stream(44), scores=False)


def test_a_learner_that_names_its_columns_may_have_met_fewer_labels():
    X, Y = stream(44)
    Y[:, 2] = 0  # so that the last label is one it cannot have met
    model = Narrow()
    model.classes_ = ["a", "b"]
    result = prequential(model, X, Y, scores=False)
    assert result.measures == prequential(Frequency(), X, Y, scores=False).measures
    model.classes_ = ["a", "b", "c"]
    with pytest.raises(ValueError, match="model must predict 3 columns"):
        prequential(model, X, Y)


def test_labels_and_scores_must_have_the_same_columns():
    X, Y = stream(45, q=1)
    model = LogisticRegression()  # two columns of scores, for the classes 0 and 1 of one label
    message = "predict and predict_proba of the model must have the same number .*, got 1 and 2"
    with pytest.raises(ValueError, match=message), pytest.warns(match="column-vector"):
        holdout(model, X, Y, folds=2)


# ---- how late labels are ----


class Late(BaseEstimator):
    """Says how late it believes its labels to be."""

    def __init__(self, lag=0):
        self.lag = lag

    def partial_fit(self, X, Y):
        self.width_ = Y.shape[1]
        return self

    def predict(self, X):
        return np.zeros((len(X), self.width_))


@pytest.mark.parametrize(
    ("delay", "lag"),
    [(7, 7), (np.int64(7), 7), ([7] * 40, 7), (0, 3), ([7] * 39 + [8], 3), (np.inf, 3)],
)
def test_a_new_learner_is_told_of_an_even_delay(delay, lag):
    X, Y = stream(46)
    model = Late(lag=3)
    prequential(model, X, Y, delay=delay)
    assert model.lag == lag
    assert type(model.lag) is int
    model = Late(lag=3)
    prequential(model, X, Y, delay=delay, tell_lag=False)
    assert model.lag == 3


def test_a_learner_that_has_learned_keeps_its_lag():
    X, Y = stream(46)
    model = Late(lag=3).partial_fit(X, Y)
    prequential(model, X, Y, delay=7)
    assert model.lag == 3


def test_a_refused_run_leaves_the_lag_alone():
    model = Late(lag=3)
    with pytest.raises(ValueError, match="k must hold"):
        prequential(model, *stream(46), delay=7, k=0)
    assert model.lag == 3


# ---- prequential ----


@pytest.mark.parametrize("learner", [Frequency, FrequencyByOne])
@pytest.mark.parametrize("delay", [0, 1, 7])
def test_items_are_predicted_first_and_learned_after_the_delay(learner, delay):
    X, Y = stream(20, n=12)
    model = learner()
    result = prequential(model, X, Y, delay=delay)
    seen = []
    for i in range(12):
        seen.append(("predict", [i]))
        if i >= delay:
            seen.append(("learn", [i - delay]))
    assert model.log == seen
    assert result.n_learned == 12 - delay


@given(st.lists(st.integers(0, 12), min_size=20, max_size=20), st.sampled_from([1, 3, 50]))
@settings(max_examples=30, deadline=None)
def test_measures_follow_the_definition_of_delay(delay, batch):
    X, Y = stream(21, n=20)
    scores, reference = naive_prequential(X, Y, delay, batch)
    model = Frequency()
    result = prequential(model, X, Y, delay=delay, batch=batch)
    assert model.learned() == reference.learned()
    for name, value in scores.as_dict().items():
        assert result.measures[name] == pytest.approx(value, abs=1e-12), name


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, pd.DataFrame])
@pytest.mark.parametrize("make", [TwoQuestions, ThreeCalls])
def test_a_stream_is_asked_for_its_next_item_in_every_form_and_in_blocks(form, batch, make):
    X, Y = stream(31)
    model = make()
    prequential(model, form(X), Y, batch=batch, init=5)
    assert {asked for _, asked in model.asked} == {True}
    methods = {"predict_proba", "labels_of" if make is ThreeCalls else "predict"}
    assert methods <= {name for name, _ in model.asked}


def test_a_rule_by_label_is_that_of_the_question():
    X, Y = stream(32)
    model = ThreeCalls()
    prequential(model, X, Y, init=5, decide="macro")
    assert model.asked == {("predict_proba", True), ("labels_of", True)}


@pytest.mark.parametrize("make", [TwoQuestions, ThreeCalls])
def test_a_hold_out_asks_for_any_item(make):
    X, Y = stream(33)
    made = []

    def new(n_init):
        made.append(make(n_init))
        return made[-1]

    holdout(new, X, Y, folds=3)
    assert {asked for model in made for _, asked in model.asked} == {False}


def test_a_learner_that_only_passes_keywords_on_is_asked_without_them():
    X, Y = stream(34)
    assert prequential(TakesAnything(), X, Y, init=5, batch=3).n_items == 35


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_our_learner_is_asked_for_the_next_item(form, monkeypatch):
    X, Y = stream(35, n=60)
    asked = []
    found = OML._found

    def noted(model, located, *, next):
        asked.append(next)
        return found(model, located, next=next)

    monkeypatch.setattr(OML, "_found", noted)
    prequential(OML(random_state=0), form(X), Y)
    prequential(OML(random_state=0), form(X), Y, batch=6)
    assert set(asked) == {True}
    asked.clear()
    holdout(OML(random_state=0), form(X), Y, folds=3)
    assert set(asked) == {False}


def test_rows_and_single_calls_give_the_same_measures():
    X, Y = stream(22, n=60)
    a = prequential(Frequency(), X, Y, every=20, window=10)
    b = prequential(FrequencyByOne(), X, Y, every=20, window=10)
    assert a.counts == b.counts
    assert [p.recent for p in a.curve] == [p.recent for p in b.curve]


def test_labels_that_never_arrive_are_never_learned():
    X, Y = stream(23, n=10)
    delay = np.zeros(10)
    delay[[2, 5]] = np.inf
    delay[7] = np.nan
    model = Frequency()
    result = prequential(model, X, Y, delay=delay)
    assert model.learned() == [0, 1, 3, 4, 6, 8, 9]
    assert (result.n_items, result.n_learned) == (10, 7)


def test_an_item_of_which_nothing_is_known_is_neither_learned_nor_measured():
    X, Y = stream(24, n=10)
    Y = Y.astype(float)
    Y[3] = np.nan
    model = Frequency()
    result = prequential(model, X, Y, fading=0.9)
    assert 3 not in model.learned()
    assert result.n_learned == MultiLabelScores.from_counts(result.counts).n_rows == 9
    rest = np.delete(np.arange(10), 3)
    assert prequential(Frequency(), X[rest], Y[rest], fading=0.9).fading == result.fading


def test_a_partly_known_item_reaches_the_learner_with_its_gaps():
    class Gaps(Frequency):
        def partial_fit(self, X, Y):
            if 3 in X[:, 0]:
                np.testing.assert_array_equal(np.isnan(Y), [[True, False, False]])
                Y = np.nan_to_num(Y).astype(np.uint8)
            super().partial_fit(X, Y)

    X, Y = stream(25, n=10)
    Y = np.ma.masked_array(Y, mask=np.zeros(Y.shape, bool))
    Y[3, 0] = np.ma.masked
    model = Gaps()
    result = prequential(model, X, Y)
    assert 3 in model.learned()
    assert sum(result.counts["labels"]["unknown"]) == 1


def test_the_curve_has_recent_and_cumulative_measures():
    X, Y = stream(26, n=50)
    result = prequential(Frequency(), X, Y, every=20, window=10, scores=False)
    assert [point.n_items for point in result.curve] == [20, 40, 50]
    reference, model = MultiLabelScores(), Frequency()
    predictions = np.zeros_like(Y)
    for i in range(50):
        if i:
            predictions[i] = model.predict(X[[i]])[0]
        model.partial_fit(X[[i]], Y[[i]].astype(np.uint8))
    for point in result.curve:
        t = point.n_items
        recent = MultiLabelScores().update(Y[t - 10 : t], predictions[t - 10 : t])
        reference = MultiLabelScores().update(Y[:t], predictions[:t])
        assert point.recent == pytest.approx(recent.as_dict(), abs=1e-12)
        assert point.cumulative == pytest.approx(reference.as_dict(), abs=1e-12)
        assert point.nbytes == 3 * t
    assert result.measures == result.curve[-1].cumulative


def test_fading_counts_lose_a_factor_at_each_item():
    X, Y = stream(27, n=30)
    result = prequential(Frequency(), X, Y, every=10, fading=0.8)
    model, faded, at = Frequency(), np.zeros(4), []
    for i in range(30):
        pred = model.predict(X[[i]])[0] if i else np.zeros(3, int)
        faded = 0.8 * faded + [(Y[i] & pred).sum(), Y[i].sum(), pred.sum(), 3]
        model.partial_fit(X[[i]], Y[[i]].astype(np.uint8))
        if (i + 1) % 10 == 0:
            hit, true, predicted, entries = faded
            at.append((2 * hit / (true + predicted), (true + predicted - 2 * hit) / entries))
    for point, (f1, loss) in zip(result.curve, at, strict=True):
        assert point.fading == pytest.approx({"micro_f1": f1, "hamming_loss": loss}, abs=1e-12)
    assert result.fading["micro_f1"] == pytest.approx(np.mean([f1 for f1, _ in at]))


def test_fading_by_one_is_no_fading():
    X, Y = stream(28)
    result = prequential(Frequency(), X, Y, fading=1.0)
    assert result.fading["micro_f1"] == pytest.approx(result.measures["micro_f1"])
    assert result.fading["hamming_loss"] == pytest.approx(result.measures["hamming_loss"])
    assert prequential(Frequency(), X, Y).fading is None


def test_the_initial_block_is_learned_at_once_and_not_predicted():
    X, Y = stream(29, n=20)
    made = []

    def factory(n_init):
        made.append(Frequency(n_init))
        return made[0]

    result = prequential(factory, X, Y, init=8, delay=2, every=5)
    assert made[0].n_init == 8
    assert made[0].log[0] == ("learn", list(range(8)))
    assert made[0].learned() == list(range(18))
    assert result.n_items == 12
    assert [point.n_items for point in result.curve] == [5, 10, 12]


def test_the_model_goes_on_from_where_it_is():
    X, Y = stream(30)
    whole = prequential(Frequency(), X, Y)
    model = Frequency()
    parts = [prequential(model, X[a:b], Y[a:b]) for a, b in ((0, 15), (15, 40))]
    total = sum((MultiLabelScores.from_counts(p.counts) for p in parts), MultiLabelScores())
    assert total.as_dict() == pytest.approx(whole.measures, abs=1e-12)


def test_a_learner_whose_labels_grow_is_measured_on_all_of_them():
    class Growing(Frequency):
        @property
        def classes_(self):
            return range(self.width)

        def predict_proba(self, X):
            return super().predict_proba(X)[:, : self.width]

        def predict(self, X):
            return super().predict(X)[:, : self.width]

        def partial_fit(self, X, Y):
            super().partial_fit(X, Y)
            self.width = int(np.flatnonzero(self.Y.any(axis=0)).max(initial=-1)) + 1

    X, Y = stream(31)
    Y[:10, 2] = 0
    result = prequential(Growing(), X, Y)
    assert MultiLabelScores.from_counts(result.counts).n_labels == 3
    assert result.measures["hamming_loss"] == pytest.approx(
        prequential(Frequency(), X, Y).measures["hamming_loss"]
    )


def test_scikit_learn_learns_prequentially_item_by_item():
    X, Y = separable(32, 150)
    model = MultiOutputClassifier(SGDClassifier(loss="log_loss", random_state=0))
    result = prequential(model, X, Y, every=50, window=50)
    assert result.n_items == 150
    assert result.curve[-1].recent["micro_f1"] > 0.8 > result.curve[0].recent["example_f1"]
    assert hasattr(model, "estimators_")


def test_a_prequential_result_goes_to_json():
    X, Y = stream(33)
    result = prequential(Frequency(), X, Y, every=15, fading=0.9)
    record = json.loads(json.dumps(result.as_dict()))
    assert record["measures"] == result.measures
    assert len(record["curve"]) == 3
    assert record["seconds_per_item"] == result.seconds_per_item > 0


def test_progress_is_told_at_checkpoints():
    X, Y = stream(34)
    calls = []
    prequential(Frequency(), X, Y, every=16, progress=lambda *call: calls.append(call))
    assert calls == [(16, 40), (32, 40), (40, 40)]


def test_an_error_before_the_first_fit_that_is_not_about_fitting_comes_through():
    class Broken(Frequency):
        def predict(self, X):
            raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        prequential(Broken(), *stream(35), scores=False)


def test_an_attribute_error_after_learning_comes_through():
    class Forgetful(Frequency):
        def predict(self, X):
            raise AttributeError("no such thing")

    with pytest.raises(AttributeError, match="no such thing"):
        prequential(Forgetful(), *stream(35), scores=False)


# ---- refusals ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": -1}, "delay must hold whole numbers of at least 0, inf or NaN, got -1"),
        ({"delay": [0.5] * 40}, "delay must hold whole numbers of at least 0, inf or NaN, got 0.5"),
        ({"delay": [1, 2]}, r"delay must be a number or 40 numbers, got shape \(2,\)"),
        ({"batch": 0}, "batch must be an integer of at least 1, got 0"),
        ({"every": 0}, "every must be an integer of at least 1, got 0"),
        ({"window": 0}, "window must be an integer of at least 1, got 0"),
        ({"init": 40}, "init must be an integer between 0 and 39, got 40"),
        ({"fading": 1.5}, "fading must be a number between 0 and 1 or None, got 1.5"),
        ({"k": 0}, "k must hold positive integers, got 0"),
        ({"decide": "high"}, "decide must be one of 'balanced', .* between 0 and 1, got 'high'"),
        ({"decide": 3}, "decide must be a number between 0 and 1, got 3"),
    ],
)
def test_a_refused_run_says_why_and_teaches_nothing(options, message):
    model = Frequency()
    with pytest.raises(ValueError, match=message):
        prequential(model, *stream(36), **options)
    assert model.log == []


@pytest.mark.parametrize("run", [holdout, prequential])
@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (np.zeros((39, 2)), "Y must have 40 rows like X, got 39"),
        (np.full((40, 2), 2), "Y must hold only 0, 1 and NaN, got 2"),
        (sp.csr_array(np.full((40, 2), 3)), "Y must hold only 0, 1 and NaN, got 3"),
    ],
)
def test_labels_that_cannot_be_read_are_refused(run, Y, message):
    with pytest.raises(ValueError, match=message):
        run(Frequency(), stream(37)[0], Y)


@pytest.mark.parametrize("run", [holdout, prequential])
def test_what_is_no_learner_is_refused(run):
    with pytest.raises(ValueError, match="model must have partial_fit, got dict"):
        run({}, *stream(38))
    with pytest.raises(ValueError, match="model must be a learner, got the class Frequency"):
        run(Frequency, *stream(38))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init": -0.1}, "init must be a number between 0 and 32, got -0.1"),
        ({"chunk": 0}, "chunk must be an integer of at least 1, got 0"),
        ({"repeats": 0}, "repeats must be an integer of at least 1, got 0"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
    ],
)
def test_a_refused_hold_out_says_why(options, message):
    with pytest.raises(ValueError, match=message):
        holdout(Frequency(), *stream(39), **options)


def test_row_numbers_must_be_row_numbers():
    with pytest.raises(ValueError, match=r"test must be row numbers, got shape \(0,\) of float64"):
        train_test(Frequency(), *stream(40), np.arange(3), [])


def test_a_learner_with_answers_of_its_own_is_asked_for_them():
    class Silent(KNN):
        def predict(self, X, *, next=False):
            return np.zeros_like(super().predict(X, next=next))

    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    Y = (X @ rng.normal(size=(3, 4)) > 0).astype(np.uint8)
    runs = [prequential(kind(), X, Y, batch=10, scores=False) for kind in (KNN, Silent)]
    counts = [run.curve[-1].cumulative["micro_f1"] for run in runs]
    assert counts[0] > 0.5
    assert counts[1] == 0
