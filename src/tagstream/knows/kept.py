"""Which promises are kept, and on how many cases?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tagstream.evidence.promise import ENOUGH
from tagstream.knows.policy import Mode

__all__ = ["Kept", "kept_promises"]


@dataclass(frozen=True)
class Kept:
    """A tag, what may be done with it, and how a promise about it is kept.

    Attributes
    ----------
    tag : hashable
    mode : str
    promise : float or None
        The promised precision; None where none is promised.
    kept : float or None
        The precision at the scores at which the tag would have been applied; None if there were
        none.
    n : int
        How many scores that were.  They were made before their items were learnt.
    bar : float or None
        The score from which the tag is applied now; None: it is not.
    why : str
        Why it is not applied now; empty if it is.
    """

    tag: Any
    mode: str
    promise: float | None = None
    kept: float | None = None
    n: int = 0
    bar: float | None = None
    why: str = ""


def kept_promises(model: Any, modes: Mapping[Any, Mode]) -> list[Kept]:
    """Return how the promises about tags are kept, in the order in which they were made."""
    promises = {tag: mode.promise for tag, mode in modes.items() if mode.mode == "auto"}
    if model is None or not promises:
        return [Kept(tag, mode.mode) for tag, mode in modes.items()]
    found, names = model.promised(promises), model.classes_.tolist()
    made = []
    for tag, mode in modes.items():
        if mode.mode != "auto" or tag not in names:
            made.append(Kept(tag, mode.mode))
            continue
        j = names.index(tag)
        n, trials, bar = int(found.n_applied[j]), int(found.trials[j]), float(found.bars[j])
        why = ""
        if trials < ENOUGH:
            why = f"{trials} of {ENOUGH} scores that are needed"
        elif found.closed[j]:
            why = "too many errors lately"
        made.append(
            Kept(
                tag,
                mode.mode,
                mode.promise,
                float(found.n_right[j]) / n if n else None,
                n,
                bar if np.isfinite(bar) else None,
                why,
            )
        )
    return made
