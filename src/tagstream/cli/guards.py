"""What ``learn`` refuses before it saves: signs that a file is not read as it was meant."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tagstream.cli.output import Failed
from tagstream.cli.records import name_of

if TYPE_CHECKING:
    from tagstream.records import Batch

FEWEST_TAGS = 200  # below, many tags that occur once are no sign of anything
N_EXAMPLES = 3


class TagCounts:
    """Counts the tags of a run, to tell whether they were taken apart at the wrong places."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, batch: Batch) -> None:
        """Count the tags of some records."""
        for tags in batch.label_sets:
            self._counts.update(tags or ())

    def check(self, data: str) -> None:
        """Refuse tags more than half of which occur once, if there are many."""
        once = [tag for tag, n in self._counts.items() if n == 1]
        if len(self._counts) < FEWEST_TAGS or 2 * len(once) <= len(self._counts):
            return
        examples = ", ".join(map(repr, sorted(once, key=len)[-N_EXAMPLES:]))
        raise Failed(
            f"{name_of(data)}: most tags must occur more than once, got {len(once):,} of "
            f"{len(self._counts):,} that occur once, such as {examples}; is the separator right? "
            "Say it with --sep, or --many-tags if it is meant so"
        )
