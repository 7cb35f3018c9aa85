"""The numbers of two studies of multi-label stream learners, quoted from their repositories.

``aesaknns``: 31 methods, tables of the README of github.com/canoalberto/AESAKNNS, quoted in
``published.json`` of :mod:`tagstream.paper`.  Its Hamming *score* is given as a loss, 1 − score.
The macro- and example-F1 of that study are harmonic means of averaged precision and recall, which
is another measure: they are left out.

``mlhat``: 17 methods, the tables ``results/per_dataset/*.csv`` of github.com/aestebant/mlhat
(Knowledge-Based Systems 2024, doi 10.1016/j.knosys.2024.112561).  A failed run is 0 there; a
measure of 0 is passed over.  The row "Corel5k" of that study is another data set (13,766 items) and
is left out.

Both predict each item, then learn it, in the order of the file, with labels at once.  They count
differently: see :mod:`tagstream.evaluation.evaluators`.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from tagstream.paper.results import published

__all__ = ["LOWER_IS_BETTER", "MEASURES", "STUDIES", "Best", "Sizes", "Study"]

MEASURES = {
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "example_f1": "example-F1",
    "hamming_loss": "Hamming loss",
}
LOWER_IS_BETTER = frozenset({"hamming_loss"})


class Sizes(NamedTuple):
    """What a study says of a stream: items, features, labels, labels per item."""

    n: int
    p: int
    q: int
    cardinality: float


class Best(NamedTuple):
    """The best published value, and who has it."""

    value: float
    holders: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """A published comparison.

    Attributes
    ----------
    name, title, source : str
    evaluator : str
        How it counts: a name in :data:`tagstream.evaluation.evaluators.EVALUATORS`.
    measures : tuple of str
        Those that are compared.
    sizes : dict of str to Sizes
        What the study says of its streams; empty if it says nothing.
    """

    name: str
    title: str
    source: str
    evaluator: str
    measures: tuple[str, ...]
    sizes: dict[str, Sizes]

    def values(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return the published values: by stream, measure and method."""
        return _values(self.name)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams of the study that this library knows by name."""
        return tuple(self.values())

    def best(self, stream: str, measure: str) -> Best | None:
        """Return the best published value of a measure, or None.

        Examples
        --------
        >>> STUDIES["mlhat"].best("scene", "micro_f1")
        Best(value=0.9364, holders=('MLHAT',))
        """
        found = self.values().get(stream, {}).get(measure)
        if not found:
            return None
        value = (min if measure in LOWER_IS_BETTER else max)(found.values())
        return Best(value, tuple(method for method, v in found.items() if v == value))


STUDIES = {
    study.name: study
    for study in (
        Study(
            "aesaknns",
            "AESAKNNS (31 methods)",
            "README of github.com/canoalberto/AESAKNNS",
            "fading",
            ("micro_f1", "hamming_loss"),
            {},
        ),
        Study(
            "mlhat",
            "MLHAT (17 methods)",
            "github.com/aestebant/mlhat, results/per_dataset (Knowledge-Based Systems 2024)",
            "plain",
            tuple(MEASURES),
            {
                "emotions": Sizes(593, 72, 6, 1.87),
                "yeast": Sizes(2417, 103, 14, 4.24),
                "scene": Sizes(2407, 294, 6, 1.07),
                "medical": Sizes(978, 1449, 45, 1.25),
                "slashdot": Sizes(3782, 1079, 22, 1.18),
                "enron": Sizes(1702, 1001, 53, 4.27),
                "tmc2007-500": Sizes(28596, 500, 22, 2.22),
                "mediamill": Sizes(43907, 120, 101, 4.38),
                "bibtex": Sizes(7395, 1836, 159, 2.40),
            },
        ),
    )
}


@cache
def _values(name: str) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    if name == "aesaknns":
        for stream, methods in published()["prequential"]["values"].items():
            for method, (f1, score) in methods.items():
                found[stream]["micro_f1"][method] = f1
                found[stream]["hamming_loss"][method] = round(1 - score, 3)
        return found
    text = (files("tagstream.studies") / f"{name}.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        if float(row["value"]) != 0:
            found[row["stream"]][row["measure"]][row["method"]] = float(row["value"])
    return found
