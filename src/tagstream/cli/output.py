"""What a command tells: data on standard output, messages and progress on standard error."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import logging
import os
import re
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

import typer

if TYPE_CHECKING:
    from rich.table import Table


SAY_EVERY = 60.0  # seconds between two lines about the time left, where there is no terminal


class Failed(Exception):
    """Something went wrong; the message is all the user needs."""


def put(text: str) -> None:
    """Write to standard output at once; end quietly when nobody reads on."""
    if sys.stdout is None:
        raise Failed("standard output must be open, got it closed")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):  # what is left must not fail at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


def count(n: int, what: str) -> str:
    """Return so many of something, in English.

    Examples
    --------
    >>> count(1, "tag"), count(1234, "tag")
    ('1 tag', '1,234 tags')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def put_json(value: Any) -> None:
    """Write a value as one line of JSON."""
    put(json.dumps(value, ensure_ascii=False) + "\n")


def new_table(*columns: str) -> Table:
    """Return an empty table; columns whose name begins with a capital are numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        longest = max(map(len, column.split()))
        justify: Literal["left", "right"] = "left" if column[:1].islower() else "right"
        table.add_column(column, justify=justify, min_width=longest, overflow="fold")
    return table


def put_table(table: Table, title: str = "") -> None:
    """Write a table, at most as wide as the terminal, below its title."""
    from rich.console import Console

    page = io.StringIO()
    terminal = is_terminal()
    plain: Any = {"markup": False, "emoji": False, "highlight": False}  # tags are what they are
    width = None if terminal else 120
    Console(file=page, force_terminal=terminal, width=width, **plain).print(table)
    lines = [title, *page.getvalue().splitlines()] if title else page.getvalue().splitlines()
    put("\n".join(line.rstrip() for line in lines) + "\n")


def is_terminal() -> bool:
    """Tell whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def with_marks(parts: list[tuple[str, bool]]) -> Any:
    """Return a text for a table; what is marked is bold on a terminal, between stars elsewhere."""
    from rich.text import Text

    if not is_terminal():
        return Text("".join(f"*{part}*" if mark else part for part, mark in parts))
    return Text.assemble(*((part, "bold" if mark else "") for part, mark in parts))


def say(message: str, quiet: bool = False) -> None:
    """Write a message to standard error."""
    if not quiet:
        print(message, file=sys.stderr)


class _CompilationWatch(threading.Thread):
    """Tells a person at a terminal that code is being compiled, and in the end how long it took."""

    def __init__(self) -> None:
        super().__init__(name="compilation watch", daemon=True)
        self._over = threading.Event()
        self._n, self._began, self._ended = 0, 0.0, 0.0

    def run(self) -> None:
        while not self._over.wait(0.2):
            module = sys.modules.get("tagstream.core.compilation")
            n = 0 if module is None else module.n_compiled()
            if n and not self._n:
                self._began = time.monotonic()
                say("compiling code, once after an installation; this takes some seconds…")
            if n != self._n:
                self._n, self._ended = n, time.monotonic()

    def stop(self) -> None:
        """Stop, and say how long it took if something was compiled."""
        self._over.set()
        if self._n:
            say(f"compiled {self._n} functions in {self._ended - self._began:.0f} s")
            self._n = 0


_WATCHES: list[_CompilationWatch] = []  # at most one


def show_compiling(quiet: bool = False) -> None:
    """Tell a terminal, and nothing else, when code is compiled."""
    wanted = not quiet and sys.stderr.isatty()
    show_warnings(quiet)
    if wanted and not _WATCHES:
        watch = _CompilationWatch()
        _WATCHES.append(watch)
        atexit.register(watch.stop)
        watch.start()
    elif not wanted and _WATCHES:
        watch = _WATCHES.pop()
        atexit.unregister(watch.stop)
        watch.stop()


class _Said(logging.Handler):
    """Says what the library warns of, as a command would."""

    def emit(self, record: logging.LogRecord) -> None:
        say(for_shell(record.getMessage()))


def show_warnings(quiet: bool = False) -> None:
    """Say what reading a file warns of."""
    logger = logging.getLogger("tagstream.records")
    logger.handlers[:] = [logging.NullHandler() if quiet else _Said()]
    logger.propagate = False


_PYTHON = re.compile(r"say [^();]+ \((--[^)]*)\)")  # what a message says to both worlds


def for_shell(message: str) -> str:
    """Return a message without what it says to those who write Python."""
    return _PYTHON.sub(r"say \1", message)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:,.0f} min"


class Bar:
    """Progress on standard error: a bar on a terminal, elsewhere a line a minute.

    The line says the time left, and is written only where that is known.

    It can be given to downloads as well, which tell ``total`` and call ``update``.
    """

    total = 0

    def __init__(self, what: str, quiet: bool) -> None:
        self._bar: Any = None
        self._what = what
        self._bytes = 0
        self._begun = time.perf_counter()
        self._on = not quiet and sys.stderr.isatty()
        self._says = not quiet and not self._on
        self._said = time.monotonic()
        self._start = time.monotonic()

    def __enter__(self) -> Bar:
        if self._on:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=None)
        return self

    def __call__(self, done: int, total: int | None = None, left: float = float("nan")) -> None:
        """Show how much is done, of how much, and the seconds left, where these are known."""
        of = f" of {total:,}" if total else ""
        of += f", {left / 60:,.1f} min left" if left == left else ""
        seconds = time.perf_counter() - self._begun
        of += f", {done / seconds:,.0f} per second" if seconds >= 1 and done >= seconds else ""
        self._show(f"{self._what}: {done:,}{of}", done, total)
        if self._says and left == left and time.monotonic() - self._said >= SAY_EVERY:
            self._said = time.monotonic()
            say(f"{self._what}: {done:,}{of}")

    def share(self, done: int, share: float | None) -> None:
        """Show how many records are done, which share that is, the rate and the time left."""
        spent = time.monotonic() - self._start
        text = f"{self._what}: {done:,}"
        text += f", {done / spent:,.0f} a second" if spent > 0 else ""
        if not share:
            self._show(text, done, None)
            return
        left = spent * (1 - share) / share
        self._show(f"{text}, {share:.0%}, {_time(left)} left", round(1000 * share), 1000)

    def update(self, n: int) -> None:
        """Show that so many more bytes of a download have come."""
        self._bytes += n
        of = f" of {self.total / 1e6:,.1f}" if self.total else ""
        self._show(f"downloading: {self._bytes / 1e6:,.1f}{of} MB", self._bytes, self.total or None)

    def reset(self) -> None:
        """Begin another download."""
        self._bytes = 0

    close = reset

    def _show(self, text: str, done: int, total: int | None) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
