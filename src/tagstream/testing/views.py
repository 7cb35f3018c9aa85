"""Views stay as they were taken, and readers beside a learner see states that were."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np

from tagstream.testing.corrections import may_change_labels
from tagstream.testing.data import forms_of_rows
from tagstream.testing.rules import Make, refused, rule

__all__: list[str] = []


@rule("to_state", exact=True)
def check_a_view_stays_as_it_was(make: Make) -> None:
    """A view does not change, whatever is learnt or corrected afterwards."""
    for _, X, sets in forms_of_rows():
        model = make()
        taken = []
        for start, stop in itertools.pairwise([0, 3, 20, 21, 22, 60, 61, 100, 150]):
            model.partial_fit(X[start:stop], sets[start:stop])
            view = model.view()
            assert view.n_seen_ == stop
            np.testing.assert_array_equal(view.predict_proba(X), model.predict_proba(X))
            taken.append((view, view.predict_proba(X), view.predict_sets(X), view.classes_.copy()))
        if hasattr(model, "relabel"):
            model.relabel(149, {"a", "another"})
            model.forget(148)
        model.rename_label("a", "A")
        if may_change_labels(make):
            model.merge_labels(["b", "c"], "b")
            model.remove_label("d")
        for view, scores, suggested, names in taken:
            np.testing.assert_array_equal(view.predict_proba(X), scores)
            assert view.predict_sets(X) == suggested
            assert view.classes_.tolist() == names.tolist()
        with refused(AttributeError, saying="can only be read"):
            view.partial_fit(X, sets)


def _read_beside(
    model: Any, asked: Any, done: threading.Event, answers: list[Any], failures: list[Any]
) -> None:
    """Ask view after view until the learner is done, and once more."""
    try:
        while True:
            last = done.is_set()
            view = model.view()
            mine = view.n_seen_, view.predict_proba(asked), view.predict_sets(asked)
            told = view.explain(asked[:1]) if hasattr(model, "explain") else None
            answers.append((*mine, view.classes_.tolist(), told))
            if last:
                return
    except BaseException as error:  # shown by the thread that started this one
        failures.append(error)


@rule("to_state", exact=True)
def check_readers_beside_a_learner(make: Make) -> None:
    """Every answer that readers get while a thread learns is that of a replayed state."""
    for form, X, sets in forms_of_rows():
        model = make().partial_fit(X[:5], sets[:5])
        asked = X[::10]
        answers: list[Any] = []
        failures: list[Any] = []
        done = threading.Event()

        everything = model, asked, done, answers, failures
        readers = [threading.Thread(target=_read_beside, args=everything) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            for start, stop in itertools.pairwise([*range(5, 80, 3), *range(80, 150, 10), 150]):
                model.partial_fit(X[start:stop], sets[start:stop])
        finally:
            done.set()
            for reader in readers:
                reader.join()
        assert not failures, (form, failures)
        replayed: dict[int, Any] = {}
        for n, scores, suggested, names, told in answers:
            if n not in replayed:
                replayed[n] = make().partial_fit(X[:n], sets[:n])
            again = replayed[n]
            assert again.classes_.tolist() == names, form
            np.testing.assert_array_equal(again.predict_proba(asked), scores, err_msg=form)
            assert again.predict_sets(asked) == suggested
            if told is not None:
                assert again.explain(asked[:1]) == told
        assert {answer[0] for answer in answers} >= {150}
