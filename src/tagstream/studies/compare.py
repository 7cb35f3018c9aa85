"""Records beside the numbers of a study: tables, and what must be said before they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tagstream.evaluation.significance import Significance, significance
from tagstream.paper.results import as_text
from tagstream.paper.table import Table
from tagstream.studies.published import LOWER_IS_BETTER, MEASURES, Study

__all__ = ["Comparison", "differences", "fitting_rule"]

Record = Mapping[str, Any]

_FITTING = {"macro_f1": "macro", "hamming_loss": "hamming"}  # others: "f1"


def fitting_rule(measure: str) -> str:
    """Return the decision that is made for a measure."""
    return _FITTING.get(measure, "f1")


def differences(study: Study, record: Record) -> list[str]:
    """Return in what a stream here differs from what the study says of it.

    Examples
    --------
    >>> from tagstream.studies.published import STUDIES
    >>> here = {"stream": "enron", "n": 1702, "p": 1001, "q": 53, "cardinality": 3.378}
    >>> differences(STUDIES["mlhat"], here)
    ['labels per item: 3.38 here, 4.27 there']
    """
    said = study.sizes.get(record["stream"])
    if said is None:
        return []
    found = [
        f"{what}: {record[key]:,} here, {there:,} there"
        for what, key, there in (
            ("items", "n", said.n),
            ("features", "p", said.p),
            ("labels", "q", said.q),
        )
        if record[key] != there
    ]
    if abs(record["cardinality"] - said.cardinality) > 0.01:
        found.append(
            f"labels per item: {record['cardinality']:.2f} here, {said.cardinality:.2f} there"
        )
    return found


@dataclass(frozen=True)
class Comparison:
    """Records of some learners beside the numbers of a study.

    Attributes
    ----------
    study : Study
    records : sequence of dict
        From :func:`tagstream.studies.runner.run_streams`; those of other streams are passed over.
    """

    study: Study
    records: Sequence[Record]

    def comparable(self, stream: str) -> bool:
        """Whether items, features and labels of a stream are as many as in the study."""
        said = self.study.sizes.get(stream)
        sizes = {(r["n"], r["p"], r["q"]) for r in self.records if r["stream"] == stream}
        return said is None or sizes == {said[:3]}

    @property
    def streams(self) -> list[str]:
        """The streams of the study for which there are records."""
        there = {record["stream"] for record in self.records}
        return [name for name in self.study.streams if name in there]

    def columns(self) -> dict[str, str]:
        """Return what is compared: titles by (learner, decision), as "learner/decision"."""
        found: dict[str, str] = {}
        for record in self.records:
            if record["stream"] in self.study.streams:
                found[f"{record['learner']}/default"] = _title(record)
                if "macro" in record["result"]:
                    found[f"{record['learner']}/fitting"] = f"{_title(record)}, for the measure"
        return found

    def value(self, stream: str, column: str, measure: str) -> float | None:
        """Return what a learner has; None if it was not run, or did not get through the stream."""
        learner, decision = column.split("/")
        rule = decision if decision == "default" else fitting_rule(measure)
        for record in self.records:
            if record["stream"] == stream and record["learner"] == learner:
                if record["failed"]:
                    return None
                measures = record["result"].get(rule, {}).get(self.study.evaluator, {})
                value: float | None = measures.get(measure)
                return value
        return None

    def table(self) -> Table:
        """One row for each stream and measure; bold is at least as good as the best published."""
        columns = self.columns()
        rows = []
        for stream in self.streams:
            for measure in self.study.measures:
                best = self.study.best(stream, measure)
                assert best is not None
                cells = [self._cell(stream, column, measure) for column in columns]
                held = ", ".join(best.holders)
                rows.append((stream, MEASURES[measure], *cells, as_text(best.value, measure), held))
        head = ("stream", "measure", *columns.values(), "best published", "held by")
        return Table(head, tuple(rows), f"Published: {self.study.source}. {self.caveat()}")

    def wide_table(self, measure: str) -> Table:
        """One row for each learner and one for the best published, one column for each stream."""
        rows = [
            (title, *(self._cell(stream, column, measure) for stream in self.streams))
            for column, title in self.columns().items()
        ]
        bests = [self.study.best(stream, measure) for stream in self.streams]
        held = (f"{as_text(b.value, measure)} {b.holders[0]}" if b else "-" for b in bests)
        rows.append(("best published", *held))
        note = f"Published: {self.study.source}. {self.caveat()}"
        return Table((MEASURES[measure], *self.streams), tuple(rows), note)

    def _cell(self, stream: str, column: str, measure: str) -> str:
        value = self.value(stream, column, measure)
        if value is None:
            return self._why(stream, column)
        text = as_text(value, measure)
        return f"**{text}**" if self.wins(stream, column, measure) else text

    def _why(self, stream: str, column: str) -> str:
        for record in self.records:
            if record["stream"] == stream and record["learner"] == column.split("/")[0]:
                return str(record["failed"] or "-").split(":")[0]
        return "-"

    def wins(self, stream: str, column: str, measure: str) -> bool | None:
        """Whether a learner is at least as good as the best published; None if it has no value.

        Both are rounded as the study prints its numbers.  None also if the stream is another one.
        """
        if not self.comparable(stream):
            return None
        value, best = self.value(stream, column, measure), self.study.best(stream, measure)
        if value is None or best is None:
            return None
        digits = 3 if self.study.name == "aesaknns" else 4
        here, there = round(value, digits), round(best.value, digits)
        return here <= there if measure in LOWER_IS_BETTER else here >= there

    def tally(self, column: str) -> tuple[int, int]:
        """Return in how many cells a learner is at least as good as the best published, of all."""
        found = [
            self.wins(stream, column, measure)
            for stream in self.streams
            for measure in self.study.measures
        ]
        return sum(bool(won) for won in found), sum(won is not None for won in found)

    def caveat(self) -> str:
        """What must be known about the streams before the numbers are compared."""
        said = [
            f"{record['stream']}: {'; '.join(found)}"
            for record in {r["stream"]: r for r in self.records}.values()
            if record["stream"] in self.streams and (found := differences(self.study, record))
        ]
        sizes = (
            f"Sizes that differ: {'. '.join(said)}." if said else "The sizes of all streams agree."
        )
        others = [name for name in self.streams if not self.comparable(name)]
        if others:
            sizes += f" Not counted, because it is not the same stream: {', '.join(others)}."
        if not self.study.sizes:
            sizes = "The study does not print the sizes of its streams."
        by = sorted({r["versions"]["tagstream"] for r in self.records if "versions" in r})
        return f"{sizes} The order of the rows could not be checked against the study's files." + (
            f" Run by tagstream {', '.join(by)}." if by else ""
        )

    def values(self, measure: str, columns: Sequence[str] = ()) -> dict[str, dict[str, float]]:
        """Return the published values of a measure and those of some columns, by stream.

        Streams that are not those of the study are left out.
        """
        titles = self.columns()
        found: dict[str, dict[str, float]] = {}
        for stream in filter(self.comparable, self.streams):
            row = dict(self.study.values()[stream][measure])
            for column in columns or titles:
                value = self.value(stream, column, measure)
                if value is not None:
                    row[titles[column]] = value
            found[stream] = row
        return found

    def significance(self, measure: str, columns: Sequence[str] = ()) -> Significance:
        """Test whether the published methods and some columns differ."""
        lower = measure in LOWER_IS_BETTER
        return significance(self.values(measure, columns), lower_is_better=lower)

    def cost_table(self) -> Table:
        """Time and memory of each learner that was run here, on each stream."""
        rows = [
            (
                *(record["stream"], record["family"], _title(record)),
                f"{record['n_items']:,} of {record['n']:,}",
                "-"
                if record["seconds_per_item"] is None
                else f"{1e3 * record['seconds_per_item']:.2f}",
                "-" if record["nbytes"] is None else f"{record['nbytes'] / 1e6:.1f}",
                str(record["failed"] or ""),
            )
            for record in self.records
            if record["stream"] in self.study.streams
        ]
        head = ("stream", "from", "learner", "items", "ms per item", "MB", "failed")
        note = (
            "Time: processor time of one process, evaluators included. Memory: what "
            "the learner says of itself; of scikit-learn's the pickle; of Java's the growth of the "
            "heap."
        )
        return Table(head, tuple(rows), note)


def _title(record: Record) -> str:
    if record["family"] == "tagstream":
        return str(record["title"])
    return f"{record['title']} ({record['family']})"
