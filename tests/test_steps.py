"""Long work in short steps: the same result however they are done."""

from __future__ import annotations

import pytest

from tagstream.execution import threads
from tagstream.execution.steps import PAUSE, Slowly, Work, finish


def total(numbers, seen):
    squares = []
    yield Work(lambda x: x * x, numbers, squares.append, True)
    seen.append("squared")
    yield PAUSE
    halves = yield from halved(squares)
    return sum(halves)


def halved(numbers):
    out = []
    yield Work(lambda x: x / 2, numbers, out.append)
    return out


@pytest.mark.parametrize("several", [1, 3])
def test_at_once_and_step_by_step_the_result_is_the_same(several, monkeypatch):
    monkeypatch.setattr(threads, "n_threads", lambda: several)
    assert finish(total(range(20), [])) == 1235
    slowly, n = Slowly(total(range(20), [])), 0
    while not slowly.done:
        slowly.step()
        n += 1
    assert slowly.finish() == slowly.finish() == 1235
    assert n == 20 + 20 + 4  # each piece alone, and what lies between them


@pytest.mark.parametrize("before", [0, 1, 5, 21, 30, 60])
def test_what_was_begun_in_steps_can_be_finished_at_once(before):
    slowly = Slowly(total(range(20), []))
    for _ in range(before):
        slowly.step()
    assert slowly.finish() == 1235


def test_nothing_is_done_before_it_is_asked_for_and_one_piece_at_least_then():
    seen = []
    slowly = Slowly(total(range(3), seen))
    assert not seen
    for _ in range(5):
        slowly.run(0.0)
    assert seen == ["squared"]
    slowly.run(60.0)
    assert slowly.done


def test_an_error_reaches_who_does_the_step():
    def fail(_):
        raise ValueError("three")

    def work():
        yield Work(fail, [1], print)

    with pytest.raises(ValueError, match="three"):
        finish(work())
    slowly = Slowly(work())
    slowly.step()
    with pytest.raises(ValueError, match="three"):
        slowly.step()
