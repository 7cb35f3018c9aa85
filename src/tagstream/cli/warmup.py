"""Compile ahead, so that no later command has to wait."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tagstream.cli.output import say

__all__ = ["warm_up"]


def warm_up(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing.")] = False,
) -> None:
    """Compile the code now, so that the first command need not wait.

    Compiled code is kept in a cache on disk, and later commands load it. This is useful after an
    installation, and when an image is built.
    """
    from tagstream.core.compilation import n_compiled
    from tagstream.tagger import Tagger
    from tagstream.tagger import warm_up as learn_texts

    began, before = time.monotonic(), n_compiled()
    learn_texts()
    numbers = Tagger()
    numbers.learn({"x": [i % 7, i % 5, i % 3], "y": [f"tag {i % 4}"]} for i in range(64))
    numbers.suggest([{"x": [1, 2, 0]}])
    took, n = time.monotonic() - began, n_compiled() - before
    say(f"compiled {n} functions in {took:.0f} s" if n else "everything was compiled before", quiet)
