"""The command line: the library from a shell, made for pipes.

Data goes to standard output; messages and progress go to standard error.  Exit codes: 0 done,
1 it failed (one line says why), 2 the command was wrong, 130 and 143 stopped by a signal.

Commands are plain functions, put together in :mod:`tagstream.cli.app`.  Heavy imports happen
inside them, so that ``tagstream --help`` answers at once.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default those of the process.
    """
    from tagstream.cli.app import run

    return run(argv)
