"""Rows and labels in every form, and the manners of scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_checks
from sklearn.utils.fixes import parse_version

from tagstream.testing.data import P, as_sets, binary_stream, stream
from tagstream.testing.rules import Make, refused, rule
from tagstream.testing.states import assert_same_state

__all__: list[str] = []


@rule("to_state")
def check_sparse_like_dense(make: Make) -> None:
    """Sparse rows are scored as dense ones."""
    X, Y = binary_stream()
    dense = make().partial_fit(X, Y)
    for form in (sp.csr_matrix, sp.csc_matrix, sp.csr_array, sp.coo_matrix):
        model = make().partial_fit(form(X), Y)
        np.testing.assert_allclose(
            model.predict_proba(form(X)), dense.predict_proba(X), rtol=1e-5, atol=1e-6
        )
    np.testing.assert_array_equal(
        make().partial_fit(X, sp.csr_matrix(Y)).predict_proba(X), dense.predict_proba(X)
    )


@rule("to_state")
def check_frames_like_arrays(make: Make) -> None:
    """Frames of pandas and polars, as far as they are installed, are read as arrays."""
    X, Y = stream()
    want = make().partial_fit(X, Y).predict_proba(X)
    columns = [f"x{j}" for j in range(P)]
    names = list("abcd")
    for package, frame in _frames():
        model = make().partial_fit(frame(X, columns), frame(Y, names))
        np.testing.assert_array_equal(model.predict_proba(frame(X, columns)), want)
        assert model.classes_.tolist() == names
        # Older releases of scikit-learn do not see the names of newer polars frames.
        if package == "pandas" or parse_version(sklearn.__version__) >= parse_version("1.8"):
            assert model.feature_names_in_.tolist() == columns


def _frames() -> Iterator[tuple[str, Callable[[Any, list[str]], Any]]]:
    """Yield what makes a frame of an array and names, by package."""
    with suppress(ImportError):
        import pandas as pd

        yield "pandas", lambda values, names: pd.DataFrame(values, columns=names)
    with suppress(ImportError):
        import polars as pl

        yield "polars", lambda values, names: pl.DataFrame(values, schema=names)


@rule("to_state")
def check_lists_like_arrays(make: Make) -> None:
    """Lists, label sets, floats and other layouts are read as arrays."""
    X, Y = stream()
    want = make().partial_fit(X, Y)
    model = make().partial_fit(X.tolist(), Y.tolist())
    np.testing.assert_array_equal(model.predict_proba(X), want.predict_proba(X))
    named = make().partial_fit(X, as_sets(Y), classes=list("abcd"))
    np.testing.assert_array_equal(named.predict_proba(X), want.predict_proba(X))
    assert named.predict_sets(X) == as_sets(want.predict(X))
    floats = make().partial_fit(X, Y.astype(float))
    np.testing.assert_array_equal(floats.predict_proba(X), want.predict_proba(X))
    views = make().partial_fit(np.asfortranarray(X)[::1], np.asfortranarray(Y))
    np.testing.assert_array_equal(views.predict_proba(X), want.predict_proba(X))


@rule("to_state", "get_params")
def check_clone(make: Make) -> None:
    """Parameters are kept by `clone`, the state is not."""
    X, Y = stream()
    model = make()
    params = model.get_params()
    assert clone(model).get_params() == params
    assert type(model)().set_params(**params).get_params() == params
    fresh = clone(model.fit(X, Y))
    with refused(NotFittedError):
        fresh.predict(X)
    assert_same_state(fresh.fit(X, Y).to_state(), model.to_state())


@rule("to_state", "get_params")
def check_scikit_learn(make: Make) -> None:
    """Run scikit-learn's own checks: none may fail, skipped ones are skipped by themselves.

    One of them expects `predict` to round the probabilities, which is the rule "hamming". A learner
    whose default is another rule passes that one with this rule.
    """
    rounds = "check_classifier_multioutput"
    model = make()
    other = "decide" in model.get_params() and model.decide != "hamming"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = estimator_checks.check_estimator(
            model,
            on_fail=None,
            expected_failed_checks={rounds: "the decision is another"} if other else {},
        )
        if other:
            estimator_checks.check_classifier_multioutput(
                type(model).__name__, model.set_params(decide="hamming")
            )
    failed = [
        f"{r['check_name']}: {r['exception']!r}"
        for r in results
        if r["status"] not in ("passed", "skipped")
        and (r["status"], r["check_name"]) != ("xfail", rounds)
    ]
    assert not failed, "\n".join(failed)
    assert sum(r["status"] == "passed" for r in results) > 40
