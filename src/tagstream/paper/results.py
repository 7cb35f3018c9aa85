"""Records read from files, and what is counted from them before anything is shown."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tagstream.evaluation.metrics import MultiLabelScores

__all__ = ["MEASURES", "Results", "Wins", "count_wins"]

Values = npt.NDArray[np.float64]
# Measures of the folds, or repeats, of each data set and method.
_Numbered = dict[tuple[str, str], dict[int, dict[str, float]]]

MEASURES = {
    "macro_f1": "macro-F1",
    "example_f1": "example-F1",
    "micro_f1": "micro-F1",
    "hamming_loss": "Hamming loss",
}
CALIBRATION = {"log_loss": "log loss", "calibration_error": "calibration error"}
LOWER_IS_BETTER = {"hamming_loss", *CALIBRATION}

# Figures 1 to 4 of the paper show the first four data sets, figures 5 to 8 the others.
GROUPS = (("corel5k", "enron", "medical", "emotions"), ("cal500", "image", "scene", "slashdot"))
PAPER_DATA = GROUPS[0] + GROUPS[1]
KNN = ("knn", "knn-standard")
ELM = ("osml-elm", "osml-elm-stable")
OLANSGD = ("olansgd", "olansgd-top")
ONLINE = ("oml", "oml-f1", "oml-hamming", "oml-macro")  # that stand beside the offline learners
FITTING = "oml-fitting"  # no method: of each measure OML with the decision that is made for it
FITTING_TITLE = "OML, deciding for the measure"
MAIN = (
    *(*ONLINE, "oml-vote", "oml-published", "oml-printed", "published-exact"),
    *(*KNN, "ml-knn", *ELM, *OLANSGD),
)
BARS = ("oml", "oml-published", *KNN, "osml-elm", *OLANSGD)
ABLATION = (*("no-lift", "fourier", "no-scale", "no-learning", "no-cap"),)

OFFLINE = ("offline-logistic", "offline-linear-svm", "offline-rbf-svm", "offline-forest")

AXES = ("n", "p", "q", "d")
PRINTED_FOR = {
    "oml": "OML",
    "oml-linear": "OML",
    "oml-published": "OML",
    "knn": "kNN",
    "osml-elm": "OSML-ELM",
    "olansgd": "OLANSGD",
}
# What learning at once promises: shares at least, a loss of micro-F1 and a share at most.
PROMISED = {"same": 0.95, "paraphrase": 0.75, "others": 0.005, "false_alarms": 0.01}
PROMISED_F1 = {"made-up phrase": 0.8, "gratitude": 0.7, "remorse": 0.7}  # after five examples
VAGUE = ("relief", "realization")  # no worse than the best online SGD
SGD = ("sgd", "sgd-5", "sgd-6")
DELAY_ORDER = ("oml", "oml-unaware", "oml-vote")
TEXT_MEASURES = {
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "precision_at_1": "P@1",
    "precision_at_3": "P@3",
    "log_loss": "log loss",
}
TEXT_RIVAL = "tfidf-logistic"
STREAM_ORDER = ("oml", "oml-vote", "oml-window", "knn", "osml-elm", "olansgd")
CONVEX = ("oml-convex", "convex-vote")  # in a table of their own


@dataclass(frozen=True)
class Run:
    """An evaluation of one's own: what ``as_dict()`` of a hold-out or prequential result gave.

    Attributes
    ----------
    name, data : str
        Of the learner, and of the data; the latter may be empty.
    result : dict
    """

    name: str
    data: str
    result: Mapping[str, Any]

    @property
    def is_holdout(self) -> bool:
        """Whether it is a hold-out; else it is prequential."""
        return "folds" in self.result


def runs_of(record: Any, where: str) -> Iterator[Run]:
    """Yield the runs of a JSON value; nothing if it holds none.

    Parameters
    ----------
    record : dict or list
        ``{"name": …, "data"?: …, **result.as_dict()}``; what ``tagstream evaluate --json`` prints,
        that is ``{"data": …, "results": {name: result.as_dict(), …}}``; or a list of these.
    where : str
        For messages: the file.
    """
    if isinstance(record, list):
        for one in record:
            yield from runs_of(one, where)
    if not isinstance(record, dict) or "part" in record:
        return
    if isinstance(record.get("results"), dict):
        for name, result in record["results"].items():
            yield from runs_of({**result, "name": name, "data": record.get("data", "")}, where)
    elif "name" in record and ("folds" in record or "curve" in record):
        need = ("mean", "std") if "folds" in record else ("measures", "seconds_per_item")
        lacks = [key for key in need if key not in record]
        if lacks:
            raise ValueError(
                f"{where}: the record of {record['name']!r} must have {' and '.join(need)}, "
                f"got none of {', '.join(lacks)}; write result.as_dict() whole"
            )
        yield Run(str(record["name"]), str(record.get("data", "")), record)


@dataclass
class Results:
    """The records of a results directory.

    Attributes
    ----------
    records : dict of str to list of dict
        By part, in the order of the files; of records with the same key the last one counts, and a
        line that was not written whole is passed over.
    runs : list of Run
        Evaluations of one's own, in the order of the files; see :func:`runs_of` for their form.
    """

    records: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Results:
        """Read every ``*.jsonl`` file of a directory, line by line, and every ``*.json`` file."""
        records: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        runs: list[Run] = []
        for path in sorted(Path(folder).glob("*.json*")):
            for record in _values(path):
                if isinstance(record, dict) and {"part", "key"} <= set(record):
                    records[record["part"]][record["key"]] = record
                runs += runs_of(record, str(path))
        if not records and not runs:
            raise FileNotFoundError(
                f"{os.fspath(folder)} must hold records (*.jsonl, *.json), got none; "
                "make some with `tagstream reproduce` or `tagstream evaluate --json`"
            )
        return cls({part: list(some.values()) for part, some in records.items()}, runs)

    def part(self, name: str) -> list[dict[str, Any]]:
        """The records of one part."""
        return self.records.get(name, [])

    @cached_property
    def holdout(self) -> dict[tuple[str, str], dict[str, Values]]:
        """Measures by (data set, method): one value per fold, in the order of the folds.

        An offline learner has a threshold tuned for F1 and one tuned for Hamming loss; each measure
        is the one that its threshold was tuned for.
        """
        folds: _Numbered = defaultdict(dict)
        for record in self.part("holdout"):
            result = record["result"]
            measures = measures_of(result["counts"])
            if "hamming_counts" in result:
                measures["hamming_loss"] = measures_of(result["hamming_counts"])["hamming_loss"]
            folds[record["dataset"], record["method"]][record["fold"]] = measures
        return _with_fitting(_in_order(folds))

    @cached_property
    def repeats(self) -> dict[tuple[str, str], dict[str, Values]]:
        """Means over the folds, of the hold-out and then of each of its repeats.

        A record of OML that has several decisions counts as one of each of them.
        """
        means: _Numbered = defaultdict(dict)
        for record in self.part("repeats"):
            by_rule = record["result"].get("by_rule", {})
            found = {f"oml-{rule}": result for rule, result in by_rule.items()}
            for method, result in (found or {record["method"]: record["result"]}).items():
                cell = record["dataset"], method
                if cell in self.holdout:
                    means[cell][0] = {m: float(v.mean()) for m, v in self.holdout[cell].items()}
                    mean = {m: float(np.mean(values)) for m, values in result.items()}
                    means[cell][record["fold"]] = mean
        return _with_fitting(_in_order(means))

    @cached_property
    def titles(self) -> dict[str, str]:
        """What the methods are called."""
        found = {r["method"]: r["title"] for some in self.records.values() for r in some}
        return {**found, FITTING: FITTING_TITLE}

    @property
    def datasets(self) -> list[str]:
        """Data sets of the paper that were run, in the order of its figures."""
        return [name for name in PAPER_DATA if any(d == name for d, _ in self.holdout)]

    def methods(self, wanted: Iterable[str]) -> list[str]:
        """Those of the wanted methods that were run."""
        there = {method for _, method in self.holdout}
        return [method for method in wanted if method in there]

    def best(self, dataset: str, methods: Sequence[str], measure: str) -> str | None:
        """The method with the best mean, or None if none of them was run on the data set."""
        there = [m for m in methods if (dataset, m) in self.holdout]
        sign = -1 if measure in LOWER_IS_BETTER else 1
        return max(
            there, key=lambda m: sign * self.holdout[dataset, m][measure].mean(), default=None
        )


def _values(path: Path) -> Iterator[Any]:
    """The JSON values of a file: of its lines, or the whole of it."""
    if path.suffix not in (".json", ".jsonl"):
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    for part in text.splitlines() if path.suffix == ".jsonl" else [text]:
        try:
            yield json.loads(part)
        except ValueError:  # noqa: PERF203
            continue


def _with_fitting(
    values: dict[tuple[str, str], dict[str, Values]],
) -> dict[tuple[str, str], dict[str, Values]]:
    """Add OML with the decision that is made for the measure, where all decisions are there."""
    made_for = {"hamming_loss": "oml-hamming", "macro_f1": "oml-macro"}
    for name in {name for name, _ in values}:
        if all((name, method) in values for method in ("oml-f1", *made_for.values())):
            fitting = {m: values[name, method][m] for m, method in made_for.items()}
            values[name, FITTING] = values[name, "oml-f1"] | fitting
    return values


def _in_order(numbered: _Numbered) -> dict[tuple[str, str], dict[str, Values]]:
    """The measures that all numbers of a cell have, by name."""
    return {
        cell: {
            m: np.array([some[number][m] for number in sorted(some)])
            for m in (*MEASURES, *CALIBRATION)
            if all(m in measures for measures in some.values())
        }
        for cell, some in numbered.items()
    }


def measures_of(counts: Mapping[str, Any]) -> dict[str, float]:
    """Every measure of raw counts, by name."""
    return MultiLabelScores.from_counts(counts).as_dict()


def published() -> Any:
    """Numbers of others: ``published.json``."""
    return json.loads((files("tagstream.paper") / "published.json").read_text(encoding="utf-8"))


class Wins(NamedTuple):
    """How often one method is better than the best of some others.

    Attributes
    ----------
    cells, total : int
        Cells (data set and measure) in which its mean is better, and cells in all.
    every_fold : int
        Cells in which it is better in each single fold.
    datasets, n_datasets : int
        Data sets on which it is better in most of the measures, and data sets in all.
    lost : tuple of (data set, measure)
    """

    cells: int
    total: int
    every_fold: int
    datasets: int
    n_datasets: int
    lost: tuple[tuple[str, str], ...]


def count_wins(results: Results, method: str, rivals: Sequence[str], *, slack: float = 0.0) -> Wins:
    """Compare a method with the best of its rivals, cell by cell.

    Parameters
    ----------
    results : Results
    method : str
    rivals : sequence of str
        In each cell the one with the best mean counts.
    slack : float
        A value that is worse by no more than this share of the rival's still counts as better.
    """
    cells = every = majority = 0
    lost: list[tuple[str, str]] = []
    names = [d for d in results.datasets if (d, method) in results.holdout]
    for name in names:
        won = 0
        for measure in MEASURES:
            rival = results.best(name, rivals, measure)
            if rival is None:
                continue
            sign = -1 if measure in LOWER_IS_BETTER else 1
            theirs = results.holdout[name, rival][measure]
            mine = results.holdout[name, method][measure]
            gap = sign * (mine.mean() - theirs.mean()) + slack * abs(theirs.mean())
            if gap > 0:
                won += 1
                n = min(len(mine), len(theirs))
                every += bool((sign * (mine[:n] - theirs[:n]) > 0).all())
            else:
                lost.append((name, measure))
        cells += won
        majority += won > len(MEASURES) / 2
    return Wins(cells, cells + len(lost), every, majority, len(names), tuple(lost))


def as_text(value: float, measure: str = "") -> str:
    """Three decimals without the leading zero; four for small losses."""
    digits = 4 if measure == "hamming_loss" else 3
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


def change(results: Results, name: str, method: str, measure: str) -> float:
    """Relative change of a measure against OML."""
    ours = results.holdout[name, "oml"][measure].mean()
    theirs = results.holdout[name, method][measure].mean()
    return float((theirs - ours) / ours) if ours else 0.0


def scaling_curves(results: Results) -> dict[tuple[str, str], dict[str, list[tuple[int, float]]]]:
    """(size, seconds) by method and growing size, for learning and predicting."""
    curves: dict[tuple[str, str], dict[str, list[tuple[int, float]]]] = defaultdict(
        lambda: {"learn": [], "predict": []}
    )
    for record in results.part("scaling"):
        r = record["result"]
        for what in ("learn", "predict"):
            curves[record["method"], r["axis"]][what].append((r[r["axis"]], r[what]))
    for curve in curves.values():
        for points in curve.values():
            points.sort()
    return curves


def streams_of(results: Results) -> dict[str, dict[str, dict[str, Any]]]:
    """Results of the prequential part: by data set, then method."""
    streams: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for record in results.part("prequential"):
        streams[record["dataset"]][record["method"]] = record["result"]
    return streams


@dataclass(frozen=True)
class NewTag:
    """How a learner with a decision finds a new tag: means over the draws, by examples seen."""

    counts: tuple[int, ...]
    f1: Values
    false_alarms: Values
    refitted: float  # F1 after the second count if P is fitted just then
    average_precision: Values | None = None
    f1_at_same_price: Values | None = None  # with as many false alarms as everyone


def new_tags_of(results: Results) -> dict[tuple[str, str, str], NewTag]:
    """New tags of the scenarios: by tag, method and decision."""
    return {
        (record["setting"]["tag"], record["method"], rule): NewTag(
            tuple(record["result"]["counts"]),
            np.mean(found["f1"], axis=0),
            np.mean(found["false_alarms"], axis=0),
            float(np.mean(found["refitted"])),
            *(
                np.mean(record["result"][name], axis=0) if name in record["result"] else None
                for name in ("average_precision", "f1_at_same_price")
            ),
        )
        for record in results.part("scenarios")
        if "tag" in record["setting"]
        for rule, found in record["result"]["rules"].items()
    }


def corrections_of(results: Results) -> dict[tuple[str, int, str], dict[str, float]]:
    """Corrections of the scenarios: by method, count, and ``at_once`` or ``refitted``.

    Each with the means over the draws: ``same``, ``paraphrase``, ``before`` and ``others``; and of
    all draws the ``least`` and ``most`` that the others' micro-F1 has changed by.
    """
    draws: dict[tuple[str, int, str], list[dict[str, float]]] = defaultdict(list)
    for record in results.part("scenarios"):
        r = record["result"]
        if "tag" not in record["setting"]:
            for count, look in zip(r["counts"], r["looks"], strict=True):
                for stage in ("at_once", "refitted"):
                    found = {**look[stage], "before": r["before"]}
                    draws[record["method"], count, stage].append(found)
    means = {}
    for which, some in draws.items():
        changes = [one["others"] - one["before"] for one in some]
        means[which] = {name: float(np.mean([one[name] for one in some])) for name in some[0]}
        means[which] |= {"least": min(changes), "most": max(changes)}
    return means


def delays_of(results: Results) -> dict[tuple[str, int], dict[str, float]]:
    """Micro-F1 with late labels: by data set and delay, then method."""
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for record in results.part("delays"):
        where = record["dataset"], record["setting"]["delay"]
        found[where][record["method"]] = record["result"]["micro_f1"]
    return found


def texts_of(results: Results) -> dict[tuple[str, bool], dict[str, Values]]:
    """Measures on a text: by method and whether it was a stream; one value per fold."""
    found: dict[tuple[str, bool], dict[int, dict[str, float]]] = defaultdict(dict)
    for record in results.part("text"):
        which = record["method"], bool(record["setting"])
        found[which][record["fold"]] = measures_of(record["result"]["counts"])
    return {
        which: {m: np.array([folds[f][m] for f in sorted(folds)]) for m in TEXT_MEASURES}
        for which, folds in found.items()
    }


def best_published(name: str, measure: str) -> tuple[float, list[str]] | None:
    """The best published value of a measure, and who holds it; None if there is none."""
    values = published()["prequential"]["values"].get(name)
    if values is None:
        return None
    score = {method: pair[measure == "hamming_loss"] for method, pair in values.items()}
    best = max(score.values())
    holders = [method for method, value in score.items() if value == best]
    return (1 - best if measure == "hamming_loss" else best), holders


def spread_of(values: Values) -> float:
    """Standard deviation over the folds; 0 of a single one."""
    return float(values.std(ddof=min(1, len(values) - 1)))
