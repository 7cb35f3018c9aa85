"""An OML that keeps the time of its periodic work apart from that of its rounds."""

from __future__ import annotations

import time
from typing import Any

from tagstream import OML
from tagstream.execution.schedule import next_fit


class Timed(OML):
    """OML with a clock around all work of its fits (choice, fit, codes of what is stored)."""

    def _start(self) -> None:
        self.refits: list[tuple[int, float]] = []  # examples seen, seconds
        super()._start()

    def _take_effect(self) -> None:  # blocks do all of it then
        assert self._renewal is not None
        start, at = time.process_time(), self._renewal.at
        super()._take_effect()
        self.refits.append((at, time.process_time() - start))

    @property
    def renewing(self) -> float:
        """Seconds of all refits."""
        return sum(seconds for _, seconds in self.refits)

    @classmethod
    def _get_param_names(cls) -> Any:
        return OML._get_param_names()


class FittedOnce(Timed):
    """OML that keeps its first P: the rounds alone."""

    def _begin_fit(self, seen: int, later: int) -> None:
        if self._embedding.projection is None:
            super()._begin_fit(seen, later)
        else:
            self._embedding.next_fit = next_fit(seen, self.window)
