"""States, pickles and memory that is only read."""

from __future__ import annotations

import copy
import pickle
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from tagstream.testing.data import N, Q, binary_stream, stream
from tagstream.testing.rules import Make, refused, rule
from tagstream.testing.states import arrays_of, assert_same_state, changed, spoil

__all__: list[str] = []


@rule("to_state", exact=True)
def check_state_round_trip(make: Make) -> None:
    """What is saved and loaded is the same and goes on the same."""
    X, Y = stream()
    binary, labels = binary_stream()
    for rows, Z in ((X, Y), (sp.csr_matrix(binary), labels)):
        for n in (1, 7, 30):
            model = make().partial_fit(rows[:n], Z[:n])
            again = type(model).from_state(copy.deepcopy(model.to_state()))
            assert_same_state(again.to_state(), model.to_state())
            np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
            wide = np.hstack([Z[n:], Z[n:, :1]])
            for m in (model, again):
                m.partial_fit(rows[n:], wide)
            assert_same_state(again.to_state(), model.to_state())
            np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))


@rule("to_state")
def check_state_is_a_copy(make: Make) -> None:
    """What is done to a saved state does not reach the model, nor the other way round."""
    X, Y = stream()
    for n in (5, N):
        model = make().partial_fit(X[:n], Y[:n])
        scores = model.predict_proba(X)
        state = model.to_state()
        kept = copy.deepcopy(state)
        model.partial_fit(X, Y)
        assert_same_state(state, kept)
        again = type(model).from_state(state)
        spoil(state)
        np.testing.assert_array_equal(again.predict_proba(X), scores)


@rule("to_state")
def check_hostile_states_are_refused(make: Make) -> None:
    """Arrays of another shape or type, and missing or added parts, are not loaded."""
    X, Y = stream()
    for rows in (X, sp.csr_matrix(binary_stream()[0])):
        for n in (5, N):
            model = make().partial_fit(rows[:n], Y[:n])
            state = model.to_state()
            spoilt = [
                changed(state, ("learner",), {}),
                changed(state, ("learner", "surplus"), 1),
                changed(state, ("n_features",), rows.shape[1] + 1),
                changed(state, ("names",), [*range(Q + 1)]),
            ]
            for path, array in arrays_of(state["learner"]):
                path = ("learner", *path)
                spoilt += [
                    changed(state, path, array[None]),
                    changed(state, path, array.astype(np.complex128)),
                    changed(state, path, "text"),
                    changed(state, path, None),
                ]
            for bad in spoilt:
                # Whatever is raised, `persist.load` reports it as a damaged file.
                with refused(ValueError, KeyError, TypeError):
                    type(model).from_state(bad)


@rule("to_state")
def check_pickle_and_deepcopy(make: Make) -> None:
    """Copies and pickles are the same model."""
    X, Y = stream()
    for n in (5, N):
        model = make().partial_fit(X[:n], Y[:n])
        for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert_same_state(again.to_state(), model.to_state())
            np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@rule("to_state")
def check_nbytes(make: Make) -> None:
    """`nbytes_` is about what is stored."""
    X, Y = stream()
    for n in (5, N):
        model = make().partial_fit(X[:n], Y[:n])
        stored = sum(array.nbytes for _, array in arrays_of(model.to_state()["learner"]))
        assert isinstance(model.nbytes_, int)
        assert model.nbytes_ >= 0.5 * stored


@rule("to_state", exact=True)
def check_read_only_memory(make: Make) -> None:
    """A model that joblib maps into memory read-only goes on learning."""
    import joblib

    X, Y = stream()
    binary, Z = binary_stream()
    with tempfile.TemporaryDirectory() as home:
        for rows, labels in ((X, Y), (sp.csr_matrix(binary), Z)):
            for n in (7, 40):
                masked = labels.astype(float)
                masked[3, 1] = np.nan
                model = make().partial_fit(rows[:n], masked[:n])
                path = Path(home) / f"{n}.joblib"
                joblib.dump(model, path)
                again = joblib.load(path, mmap_mode="r")
                for one in (model, again):
                    one.partial_fit(rows[n:], np.hstack([labels[n:], labels[n:, :1]]))
                    if hasattr(model, "relabel"):
                        one.relabel(N - 1, np.ones(Q + 1))
                        one.forget(N - 2)
                assert_same_state(again.to_state(), model.to_state())
                del again
