"""The command line: the library from a shell, made for pipes.

Data goes to standard output; messages and progress go to standard error.  Exit codes: 0 done,
1 it failed (one line says why), 2 the command was wrong, 130 and 143 stopped by a signal.

Commands are plain functions, put together in :mod:`tagstream.cli.app`.  Heavy imports happen
inside them, so that ``tagstream --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tagstream.cli.light import start_light
from tagstream.cli.stop import STOP, Stopped

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default those of the process, which is then ours alone.
    """
    if argv is None:
        start_light()
    with STOP:
        try:
            _take_closed_streams()
            from tagstream.cli.app import run

            return run(argv)
        except (Stopped, KeyboardInterrupt):
            print("tagstream: stopped", file=sys.stderr)
            return STOP.exit_code


def _take_closed_streams() -> None:
    """Put something in the place of closed streams, lest a file that is opened gets their number.

    Messages to a closed standard error are dropped; whoever needs the other two says so.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        if not _is_open(number):
            os.open(os.devnull, mode)
    if sys.stderr is None:  # print() would turn to standard output
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # as long as we run


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
