"""Long work in short steps: all at once, or a step whenever there is time for one.

A computation is a generator.  Wherever it may be interrupted it yields :class:`Work`: some pieces
that do not know each other, after which it goes on.  Who runs it decides when: :func:`finish` does
everything at once, pieces shared out among threads; :class:`Slowly` one piece at a time.  BLAS has
one thread in both, so the results are the same to the last bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from tagstream.execution.threads import ONE_BLAS_THREAD, in_threads

__all__ = ["PAUSE", "Slowly", "Steps", "Work", "finish"]

T = TypeVar("T")


def _nothing(_: Any) -> None:
    pass


class Work(NamedTuple):
    """Pieces of work.

    Attributes
    ----------
    function : callable
        Makes one piece of its item; the pieces may be made in several threads.
    items : iterable
    take : callable
        Takes the pieces over, one after the other, in the order of the items.
    worth : bool
        Whether a piece is worth a thread.
    """

    function: Callable[[Any], Any]
    items: Iterable[Any]
    take: Callable[[Any], None]
    worth: bool = False


PAUSE = Work(_nothing, (), _nothing)  # nothing but a place to stop

Steps = Generator[Work, None, T]


def finish(steps: Steps[T]) -> T:
    """Run a computation to its end.

    Examples
    --------
    >>> def total(numbers):
    ...     squares = []
    ...     yield Work(lambda x: x * x, numbers, squares.append)
    ...     return sum(squares)
    >>> finish(total([1, 2, 3]))
    14
    """
    return Slowly(steps).finish()


class Slowly(Generic[T]):
    """A computation that is done step by step.

    Examples
    --------
    >>> def total(numbers):
    ...     squares = []
    ...     yield Work(lambda x: x * x, numbers, squares.append)
    ...     return sum(squares)
    >>> slowly = Slowly(total([1, 2, 3]))
    >>> slowly.step(); slowly.step(); slowly.done
    False
    >>> slowly.finish()
    14
    """

    def __init__(self, steps: Steps[T]) -> None:
        self._steps, self._work = steps, PAUSE
        self._items: Iterator[Any] = iter(())
        self._value: T | None = None
        self._failed = False
        self.done = False

    def step(self) -> None:
        """Do one piece."""
        if self.done:
            return
        with ONE_BLAS_THREAD:
            for item in self._items:
                self._work.take(self._work.function(item))
                return
            self._go_on()

    def run(self, seconds: float) -> None:
        """Do at least one piece, and more until so much time has passed."""
        start = time.perf_counter()
        self.step()
        while not self.done and time.perf_counter() - start < seconds:
            self.step()

    def finish(self) -> T:
        """Do all that is left, and return the result."""
        with ONE_BLAS_THREAD:
            while not self.done:
                work = self._work
                for piece in in_threads(work.function, self._items, worth=work.worth):
                    work.take(piece)
                self._go_on()
        return self._value  # type: ignore[return-value]

    def _go_on(self) -> None:
        """Go on with what follows on the pieces, up to the next."""
        try:
            self._work = next(self._steps)
        except StopIteration as end:
            if self._failed:  # a generator that has raised ends, as if there were nothing to do
                raise RuntimeError("the computation cannot go on after an error") from None
            self._value, self.done = end.value, True
        except BaseException:
            self._failed = True
            raise
        else:
            self._items = iter(self._work.items)
