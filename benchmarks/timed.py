"""An OML that keeps the time of its periodic work apart from that of its rounds."""

from __future__ import annotations

import time
from typing import Any

from tagstream import OML
from tagstream.schedule import next_fit


class Timed(OML):
    """OML with a clock around each refit (fit, choice and renewal of the stored codes)."""

    def _start(self) -> None:
        self.refits: list[tuple[int, float]] = []  # examples seen, seconds
        super()._start()

    def _stop(self, t: int) -> None:
        start = time.process_time()
        super()._stop(t)
        self.refits.append((t, time.process_time() - start))

    @property
    def renewing(self) -> float:
        """Seconds of all refits."""
        return sum(seconds for _, seconds in self.refits)

    @classmethod
    def _get_param_names(cls) -> Any:
        return OML._get_param_names()


class FittedOnce(Timed):
    """OML that keeps its first P: the rounds alone."""

    def _stop(self, t: int) -> None:
        if self._embedding.projection is None:
            super()._stop(t)
        else:
            self._embedding.next_fit = next_fit(t, self.window)
