"""Corrections of stored items and of labels are events of the stream."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagstream.testing.data import N, as_sets, binary_stream, stream
from tagstream.testing.rules import Make, refused, rule
from tagstream.testing.states import assert_same_state

__all__ = ["may_change_labels"]

Event = tuple[Any, ...]


def may_change_labels(make: Make) -> bool:
    """Tell whether labels can be merged and removed; the paper's method refuses that."""
    X, Y = stream()
    model = make().partial_fit(X[:5], as_sets(Y[:5]))
    if not hasattr(model, "remove_label"):
        return False
    try:
        model.remove_label("a")
    except ValueError as error:
        if "must stay as they are" not in str(error):
            raise
        return False
    return True


def _events(names: bool) -> list[Event]:
    """A stream with corrections in it: ("learn", start, stop) or (method, arguments…)."""
    changes: list[Event] = [
        ("merge_labels", ["b", "new"], "b"),
        ("remove_label", "c"),
        ("merge_labels", ["a"], "A"),
    ]
    return [
        ("learn", 0, 12),
        ("relabel", 3, {"a", "d"}),
        ("forget", 7),
        ("learn", 12, 30),
        ("relabel", 28, {"new"}),
        ("relabel", 28, {"new", "a"}),
        ("forget", 29),
        ("learn", 30, 44),
        ("rename_label", "d", "D"),
        *(changes if names else []),
        ("forget", 43),
        ("relabel", 41, np.array([1.0, np.nan, 0.0])) if names else ("relabel", 41, {"a"}),
        ("learn", 44, 50),
        ("forget", 33),
        ("learn", 50, 55),
        ("relabel", 53, {"D"}),
        ("learn", 55, 60),
    ]


def _play(
    model: Any, events: list[Event], X: Any, sets: Any, step: int, *, asks: bool = False
) -> Any:
    """Let a model live through events; ``asks``: it is always asked about the next item before."""
    for what, *how in events:
        if what != "learn":
            getattr(model, what)(*how)
            continue
        start, stop = how
        for first in range(start, stop, step):
            last = min(first + step, stop)
            if step == 1 and not sp.issparse(X):
                model.learn_one(X[first], sets[first])
            else:
                model.partial_fit(X[first:last], sets[first:last])
            if asks and last < X.shape[0]:
                model.predict_proba(X[last : last + 1])
    return model


def _renamed(sets: list[set[str]]) -> list[set[str]]:
    """Labels as they are called when half of the stream is over."""
    names = {"d": "D", "a": "A"}
    late = [{names.get(name, name) for name in one if name != "c"} for one in sets[44:]]
    return [*sets[:44], *late]


@rule("to_state", "relabel", exact=True)
def check_corrections_are_events_of_the_stream(make: Make) -> None:
    """Wherever the calls between them are cut, and though it is saved in between."""
    X, Y = stream()
    binary, Z = binary_stream()
    names = may_change_labels(make)
    for rows, labels in ((X, Y), (sp.csr_matrix(binary), Z)):
        sets = as_sets(labels)
        if names:
            sets = _renamed(sets)
        else:
            sets = [*sets[:44], *({"D" if n == "d" else n for n in one} for one in sets[44:])]
        events = _events(names)
        whole = _play(make(), events, rows, sets, 60)
        for step in (1, 5):
            assert_same_state(_play(make(), events, rows, sets, step).to_state(), whole.to_state())
        # What was found for an answer is used again in learning, unless something came between.
        asked = _play(make(), events, rows, sets, 1, asks=True)
        assert_same_state(asked.to_state(), whole.to_state())
        half = _play(make(), events[:8], rows, sets, 60)
        again = type(half).from_state(copy.deepcopy(half.to_state()))
        assert_same_state(again.to_state(), half.to_state())
        _play(again, events[8:], rows, sets, 60)
        assert_same_state(again.to_state(), whole.to_state())
        final = type(whole).from_state(copy.deepcopy(whole.to_state()))
        np.testing.assert_array_equal(final.predict_proba(rows), whole.predict_proba(rows))


def _bad_corrections(X: Any, last: str) -> list[Callable[[Any], Any]]:
    return [
        lambda m: m.relabel("nobody", {"a"}),
        lambda m: m.relabel(0, {"a"}),  # it has a name
        lambda m: m.relabel([1], {"a"}),
        lambda m: m.relabel(last, None),
        lambda m: m.relabel(last, "a"),
        lambda m: m.relabel(last, np.array([0, 1])),
        lambda m: m.relabel(last, np.array([0, 1, 2, 0])),
        lambda m: m.relabel(last, np.eye(4)),
        lambda m: m.relabel(last, {("x", 1): 2}),
        lambda m: m.forget("nobody"),
        lambda m: m.forget([1]),
        lambda m: m.merge_labels(["a", "nothing"], "a"),
        lambda m: m.merge_labels([], "a"),
        lambda m: m.merge_labels(["a"], ["unhashable"]),
        lambda m: m.merge_labels(["a"], " "),
        lambda m: m.remove_label("nothing"),
        lambda m: m.rename_label("nothing", "b"),
        lambda m: m.rename_label("a", "b"),
        lambda m: m.rename_label("a", " "),
        lambda m: m.rename_label("a", ["unhashable"]),
        lambda m: m.partial_fit(X[:1], [{"a"}], ids=[["unhashable"]]),
            ]  # fmt: skip


@rule("to_state", "relabel")
def check_rejected_corrections_change_nothing(make: Make) -> None:
    """A correction that is refused leaves the model as it was."""
    X, Y = stream()
    for n in (5, N):
        model = make().partial_fit(X[:n], as_sets(Y[:n]), ids=[f"i{i}" for i in range(n)])
        before = copy.deepcopy(model.to_state())
        for i, call in enumerate(_bad_corrections(X, f"i{n - 1}")):
            with refused(ValueError, KeyError, TypeError):
                call(model)
            assert_same_state(model.to_state(), before, f"call {i}")


@rule("to_state", "relabel")
def check_what_is_forgotten_is_gone(make: Make) -> None:
    """A forgotten item is no neighbour, and its labels do not count."""
    X, Y = stream()
    for n in (15, N):
        model = make().partial_fit(X[:n], as_sets(Y[:n]))
        gone = [n - 1, n - 7, n - 12]
        for item in gone:
            assert model.has_item(item)
            model.forget(item)
            assert not model.has_item(item)
            with refused(KeyError, saying="no stored item"):
                model.item(item)
        window = n if model.window is None else min(model.window, n)
        rest = [i for i in range(n - window, n) if i not in gone]
        names = model.classes_.tolist()
        counts = [sum(name in as_sets(Y)[i] for i in rest) for name in names]
        assert model.label_counts_.tolist() == counts
        assert set(model.kneighbors(X, n, return_distance=False).ravel().tolist()) == set(rest)
        for why in model.explain(X[:5]):
            assert not {near.id for near in why.neighbors} & set(gone)


@rule("to_state", "relabel")
def check_all_items_may_go_and_others_come(make: Make) -> None:
    """An empty memory answers, and learns again."""
    X, Y = stream()
    for n in (5, 40):
        model = make().partial_fit(X[:n], as_sets(Y[:n]))
        for item in range(n):
            if model.has_item(item):
                model.forget(item)
        scores = model.predict_proba(X)
        assert np.isfinite(scores).all()
        assert not model.predict(X).any()
        assert model.explain(X[:1])[0].neighbors == ()
        again = type(model).from_state(copy.deepcopy(model.to_state()))
        if may_change_labels(make):
            for one in (model, again):
                one.remove_label("a")
                one.merge_labels(["b", "c"], "d")
        for one in (model, again):
            one.partial_fit(X[n:], [names - set("abc") for names in as_sets(Y[n:])])
        assert_same_state(again.to_state(), model.to_state())
        assert np.isfinite(model.predict_proba(X)).all()


@rule("to_state", "relabel")
def check_a_correction_holds_at_once(make: Make) -> None:
    """Asked for the very item again, its new labels are the answer, though it is learnt no more."""
    X, Y = stream()
    model = make(n_neighbors=1).partial_fit(X, as_sets(Y))
    item = N - 5
    model.relabel(item, {"a", "brand new"})
    row, labels, unknown = model.item(item)
    np.testing.assert_array_equal(np.asarray(row), X[item : item + 1].astype(np.float32))
    assert (labels, unknown) == ({"a", "brand new"}, set())
    if getattr(model, "vote", "majority") == "majority":
        assert model.predict_sets(X[item : item + 1]) == [{"a", "brand new"}]
    assert model.classes_.tolist()[-1] == "brand new"
    assert model.label_counts_[-1] == 1
    assert model.n_seen_ == N


@rule("to_state", "relabel", "merge_labels")
def check_merged_labels_are_their_union(make: Make) -> None:
    """Merged labels are their union; removed ones are gone."""
    if not may_change_labels(make):
        return
    X, Y = stream()
    for into, order in (("b", "bcd"), ("d", "cbd"), ("all", "ball")):
        for n in (10, N):
            model = make().partial_fit(X[:n], as_sets(Y[:n]), classes=list("abcd"))
            before = model.label_counts_
            stored = [model.item(i)[1] for i in range(n) if model.has_item(i)]
            model.merge_labels(["b", "d"], into)
            assert set(model.classes_.tolist()) == {"a", "c", into}, order
            after = [model.item(i)[1] for i in range(n) if model.has_item(i)]
            for old, new in zip(stored, after, strict=True):
                assert new == (old - {"b", "d"}) | ({into} if old & {"b", "d"} else set())
            counts = dict(zip(model.classes_.tolist(), model.label_counts_.tolist(), strict=True))
            assert counts["a"] == before[0]
            assert counts[into] == sum(bool(old & {"b", "d"}) for old in stored)
            assert np.isfinite(model.predict_proba(X)).all()
            model.remove_label(into)
            assert set(model.classes_.tolist()) == {"a", "c"}
            model.remove_label("a").remove_label("c")
            assert model.predict_proba(X).shape == (N, 0)
            assert model.predict_sets(X) == [set()] * N
            again = type(model).from_state(copy.deepcopy(model.to_state()))
            for one in (model, again):
                one.partial_fit(X, as_sets(Y, "wxyz"))
            assert_same_state(again.to_state(), model.to_state())
            assert set(model.classes_.tolist()) == set("wxyz")


@rule("to_state", "explain")
def check_explanations_tell_what_is_predicted(make: Make) -> None:
    """Explanations have the scores and labels of the prediction, and parts that add up."""
    X, Y = stream()
    single = np.array(["no", "yes"])[Y[:, 0]]
    for labels in (as_sets(Y), single):
        for n in (1, 7, N):
            model = make().partial_fit(X[:n], labels[:n])
            names = model.classes_.tolist()
            scores, suggested = model.predict_proba(X[:20]), model.predict_sets(X[:20])
            for i, why in enumerate(model.explain(X[:20])):
                assert set(why.voters) == suggested[i]
                for name, score in why.scores.items():
                    assert score == scores[i, names.index(name)]
                assert list(why.scores.values()) == sorted(why.scores.values(), reverse=True)
                for name, voters in why.voters.items():
                    has = [near.id for near in why.neighbors if name in near.labels]
                    assert list(voters) == has
                assert set(why.parts) in (set(), suggested[i])
                if labels is single:
                    continue
                for name, parts in why.parts.items():  # they add up to the log-odds
                    p = why.scores[name]
                    if 0 < p < 1:
                        assert np.isclose(
                            sum(parts.values()), np.log(p / (1 - p)), rtol=1e-6, atol=1e-6
                        )
