"""Ctrl+C at any instruction leaves a whole state: that before the call, or that after it."""

from __future__ import annotations

import contextlib
import copy
import random
import signal
import sys
import threading

import numpy as np
import pytest

from tagstream import KNN, OML, OSMLELM, PublishedOML, make_stream, tagger
from tagstream.execution.signals import HELD
from tagstream.tagger import Tagger
from tagstream.testing import assert_same_state
from tagstream.text import Text


@pytest.fixture(autouse=True)
def _interrupts_are_not_ignored():
    """Have Python's own handler, also where the shell started this process to ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


WORDS = ["sea", "sun", "rain", "snow", "wind"]
TRIES = 12  # interrupts of each call


def records(n, first=0):
    rng = random.Random(first)
    made = []
    for i in range(first, first + n):
        words = rng.sample(WORDS, 3)
        made.append({"id": f"r{i}", "text": " ".join(words), "y": words[:2]})
    return made


def state(tagger):
    """Return all that a file would hold."""
    return {
        "learner": tagger.learner.to_state() if tagger.n_items else None,
        "texts": dict(tagger._stored_texts()),
        "seen": tagger._seen.copy(),
        "featurizer": None if tagger.featurizer is None else tagger.featurizer.to_state(),
    }


def same(a, b):
    try:
        assert_same_state(a, b)
    except AssertionError:
        return False
    return True


class Interrupt:
    """Sends SIGINT before the instruction of that number that is run in the package."""

    def __init__(self, at):
        self.at, self.n = at, 0

    def __call__(self, frame, event, arg):
        if "tagstream" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.n += 1
            if self.n == self.at:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self

    def run(self, call):
        """Make a call; return whether it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False


LEARNERS = {
    "OML": lambda: OML(random_state=0),
    "OML-window": lambda: OML(random_state=0, window=25, lag=3, step="convex"),
    "KNN": lambda: KNN(3, vote="map"),
    "OSMLELM": lambda: OSMLELM(5, random_state=0),
    "PublishedOML": lambda: PublishedOML(first_block=20, random_state=0),
}
CALLS = {
    "learn": lambda tagger: tagger.learn(records(12, 18)),
    "learn again": lambda tagger: tagger.learn([r | {"text": "sea"} for r in records(3, 5)]),
    "learn one": lambda tagger: tagger.learn(records(1, 19)),
    "learn a log": lambda tagger: tagger.learn(
        [*records(3, 18), {"event": "rename", "old": "sea", "new": "ocean"}, *records(2, 40)]
    ),
    "relabel": lambda tagger: tagger.relabel("r4", ["new", "sun"]),
    "forget": lambda tagger: tagger.forget("r4"),
    "rename": lambda tagger: tagger.rename("sea", "ocean"),
    "merge": lambda tagger: tagger.merge(["sea", "sun"], "sun"),
    "remove": lambda tagger: tagger.remove("sea"),
    "refit": lambda tagger: tagger.refit(),
    "save": lambda tagger: tagger.learner.to_state(),
}


def started(learner):
    made = Tagger(LEARNERS[learner](), Text(n_features=64))
    made.learn(records(18))
    return made


def cases():
    for learner in LEARNERS:
        for call in CALLS:
            corrects = call in ("relabel", "forget", "learn again")
            if learner == "OSMLELM" and call not in ("learn", "learn one", "rename", "save"):
                continue
            if learner in ("KNN", "PublishedOML") and call == "refit":
                continue
            if learner == "PublishedOML" and (call in ("merge", "remove") or corrects):
                continue
            yield learner, call


@pytest.mark.parametrize(("learner", "call"), [*cases()])
def test_an_interrupted_call_takes_effect_as_a_whole_or_not_at_all(learner, call, tmp_path):
    CALLS[call](started(learner))  # the first time it may compile code, and load modules
    counted, after = Interrupt(0), started(learner)
    assert not counted.run(lambda: CALLS[call](after))
    before, after = state(started(learner)), state(after)
    rng, interrupted = random.Random(f"{learner} {call}"), 0
    for at in rng.sample(range(1, counted.n + 1), min(TRIES, counted.n)):
        made = started(learner)
        interrupted += Interrupt(at).run(lambda made=made: CALLS[call](made))
        now = state(made)
        assert same(now, after) or same(now, before), at
        made.save(tmp_path / "m.tgs")
        assert_same_state(state(Tagger.open(tmp_path / "m.tgs")), now)
        if same(now, before):  # and it goes on as if nothing had been
            CALLS[call](made)
            assert_same_state(state(made), after)
    assert interrupted == min(TRIES, counted.n)


@pytest.mark.parametrize("fit_under_way", [False, True])
def test_an_interrupted_call_of_a_learner_is_whole(fit_under_way):
    stream = make_stream(420, p=8, q=8, seed=1)
    n = 372 if fit_under_way else 40  # a fit that begins at 365 ends at 381
    start = OML(random_state=0).partial_fit(stream.X[:n], stream.Y[:n])
    first = start.to_state()
    assert (first["learner"]["renewal"] is not None) == fit_under_way

    def one(model):
        return model.learn_one(stream.X[n], stream.Y[n])

    def some(model):
        return model.partial_fit(stream.X[n : n + 12], stream.Y[n : n + 12])

    for call in (one, some):
        call(OML.from_state(copy.deepcopy(first)))
        counted, after = Interrupt(0), OML.from_state(copy.deepcopy(first))
        counted.run(lambda after=after, call=call: call(after))
        before, after = OML.from_state(first).to_state(), after.to_state()
        for at in random.Random(n).sample(range(1, counted.n + 1), TRIES):
            model = OML.from_state(copy.deepcopy(first))
            # How many steps of a fit a call does depends on the time: this one may be done before.
            Interrupt(at).run(lambda model=model, call=call: call(model))
            now = model.to_state()
            assert same(now, after) or same(now, before), at


def test_an_iterator_is_learnt_in_chunks_of_at_most_1000_that_are_whole(monkeypatch):
    assert tagger.CHUNK <= 1000
    monkeypatch.setattr(tagger, "CHUNK", 10)
    some = records(60)
    for at in random.Random(3).sample(range(1, 60_000), TRIES):
        made = Tagger(KNN(), Text(n_features=64))
        Interrupt(at).run(lambda made=made: made.learn(iter(some)))
        assert made.n_items % 10 == 0
        other = Tagger(KNN(), Text(n_features=64))
        if made.n_items:
            other.learn(some[: made.n_items])
        assert_same_state(state(made) | {"featurizer": 0}, state(other) | {"featurizer": 0})


# ---------------------------------------------------------------------- what cannot wait


def test_a_second_signal_does_not_wait_and_the_learner_says_that_it_is_not_whole(monkeypatch):
    made = started("OML")
    learn = OML._learn

    def interrupted(self, *args):
        learn(self, *args)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second one waits")

    monkeypatch.setattr(OML, "_learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.learn(records(5, 18))
    monkeypatch.undo()
    for call in (lambda: made.learn(records(1, 30)), made.refit, made.learner.to_state):
        with pytest.raises(ValueError, match=r"must be whole.*KeyboardInterrupt.*last saved"):
            call()
    assert made.suggest({"text": "sea sun"}).tags  # it can be read
    made.learner.fit(np.eye(3), np.eye(3))  # and start anew, with other columns
    assert made.learner.to_state()["n_seen"] == 3
    assert not made.learner.names_count_  # of which texts say nothing


def test_an_error_within_a_change_is_remembered_and_one_before_it_is_not(monkeypatch):
    model = KNN(1).fit([[0.0], [1.0]], [{"a"}, {"b"}])
    before = model.to_state()
    with pytest.raises(ValueError, match="features"):
        model.partial_fit([[0.0, 1.0]], [{"a"}])
    assert_same_state(model.to_state(), before)

    def fail(self, *args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(type(model._store), "append", fail)
    with pytest.raises(MemoryError):
        model.partial_fit([[2.0]], [{"a"}])
    with pytest.raises(ValueError, match="MemoryError"):
        model.to_state()


# ---------------------------------------------------------------------- the hold


@contextlib.contextmanager
def handling(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_runs_after_the_change_and_is_in_its_place_again():
    seen = []

    def handler(number, frame):
        seen.append(number)

    with handling(handler):
        with HELD:
            with HELD:
                signal.raise_signal(signal.SIGINT)
            assert seen == []
        assert seen == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is handler
        signal.raise_signal(signal.SIGINT)
        assert seen == [signal.SIGINT] * 2


def test_an_error_within_leaves_the_handler_in_its_place():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="within"), HELD:
        raise ValueError("within")
    assert signal.getsignal(signal.SIGINT) is before


def test_signals_without_a_handler_and_other_threads_are_left_alone():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with HELD:
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    own, seen = signal.getsignal(signal.SIGINT), []

    def elsewhere():
        with HELD:
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [own]


def test_the_hold_itself_may_be_interrupted_anywhere():
    def call():
        with HELD:
            pass

    counted = Interrupt(0)
    counted.run(call)
    before = signal.getsignal(signal.SIGINT)
    for at in range(1, counted.n + 1):
        assert Interrupt(at).run(call), at
        with HELD:
            signal.getsignal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is before, at
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
