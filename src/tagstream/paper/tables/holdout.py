"""Tables of the paper's protocol: measures, ingredients, calibration, offline learners."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tagstream.paper.results import (
    ABLATION,
    LOWER_IS_BETTER,
    MAIN,
    MEASURES,
    OFFLINE,
    ONLINE,
    Results,
    as_text,
    change,
    count_wins,
    spread_of,
)
from tagstream.paper.table import Table, each, tabulate

__all__ = ["holdout_tables"]


def holdout_tables(results: Results) -> dict[str, Table | str]:
    """Return the tables, by name."""
    if not results.holdout:
        return {}
    made: dict[str, Table | str] = {}
    for measure in MEASURES:
        made[measure] = _measure_table(results, measure, MAIN)
        made[f"ablation_{measure}"] = _measure_table(results, measure, ("oml", *ABLATION))
    made["ablation"] = _ablation_table(results)
    if any("log_loss" in values for values in results.holdout.values()):
        made["calibration"] = _calibration_table(results)
    if results.methods(OFFLINE):
        made["offline"] = _offline_table(results)
    return made


def _measure_table(results: Results, measure: str, wanted: Sequence[str]) -> Table:
    methods = results.methods(wanted)

    def value(name: str, method: str) -> str:
        if (name, method) not in results.holdout:
            return ""
        values = results.holdout[name, method][measure]
        mean = as_text(values.mean(), measure)
        mean = f"**{mean}**" if method == results.best(name, methods, measure) else mean
        return f"{mean} ± {as_text(spread_of(values), measure)}"

    low = measure in LOWER_IS_BETTER
    return tabulate(
        results.datasets,
        (("data set", str), *each(methods, results.titles.__getitem__, value)),
        f"{MEASURES[measure]}, {'smaller' if low else 'larger'} is better: mean ± standard "
        "deviation over the folds; the best mean is bold.",
    )


def _ablation_table(results: Results) -> Table:
    def mean_change(method: str, measure: str) -> str:
        names = [name for name in results.datasets if (name, method) in results.holdout]
        changes = [change(results, name, method, measure) for name in names]
        return f"{100 * np.mean(changes):+.1f} %"

    def better(method: str) -> str:
        wins = count_wins(results, "oml", (method,))
        return f"{wins.cells} of {wins.total}"

    columns = (
        ("without", results.titles.__getitem__),
        *each(MEASURES, MEASURES.__getitem__, mean_change),
        ("OML better in", better),
        ("worse in", lambda method: str(count_wins(results, method, ("oml",)).cells)),
    )
    return tabulate(
        results.methods(ABLATION),
        columns,
        "Mean over the data sets of the relative change of each measure when one ingredient alone "
        "is switched off; for Hamming loss a rise is a loss. The rest of the cells are equal.",
    )


def _calibration_table(results: Results) -> Table:
    """How far probabilities can be trusted; those that give none on a data set are "–"."""
    given = {method for (_, method), values in results.holdout.items() if "log_loss" in values}

    def value(name: str, method: str) -> str:
        values = results.holdout.get((name, method), {})
        if "log_loss" not in values:
            return "–"
        return f"{values['log_loss'].mean():.4f} ({values['calibration_error'].mean():.4f})"

    methods = [method for method in (*MAIN, *OFFLINE) if method in given]
    return tabulate(
        results.datasets,
        (("data set", str), *each(methods, results.titles.__getitem__, value)),
        "Log loss per label in nats, and in brackets the expected calibration error (15 bins, all "
        "labels together); means over the folds of the hold-out, smaller is better. Methods whose "
        "scores are no probabilities are left out.",
    )


def _offline_table(results: Results) -> Table:
    """Online beside offline, all measures; a learner of each kind in its own column."""
    methods = results.methods((*ONLINE, *OFFLINE))

    def value(cell: tuple[str, str], method: str) -> str:
        name, measure = cell
        if (name, method) not in results.holdout:
            return ""
        text = as_text(results.holdout[name, method][measure].mean(), measure)
        return f"**{text}**" if method == results.best(name, methods, measure) else text

    few = sorted(_with_few_folds(results, methods))
    columns = (
        ("data set", lambda cell: cell[0]),
        ("measure", lambda cell: MEASURES[cell[1]]),
        *each(methods, results.titles.__getitem__, value),
    )
    return tabulate(
        ((name, measure) for name in results.datasets for measure in MEASURES),
        columns,
        "Mean over the folds; the best is bold. The last columns are offline: they see the whole "
        "training part at once. Their threshold is tuned on the training part alone, once for F1 "
        "and once for Hamming loss." + (f" Not all folds: {', '.join(few)}." if few else ""),
    )


def _with_few_folds(results: Results, methods: Sequence[str]) -> set[str]:
    """Return the methods that have fewer folds than OML, and where."""

    def n_folds(name: str, method: str) -> int:
        return len(results.holdout.get((name, method), {"micro_f1": ()})["micro_f1"])

    return {
        f"{results.titles[method]} on {name} ({n_folds(name, method)} fold)"
        for method in methods
        for name in results.datasets
        if 0 < n_folds(name, method) < n_folds(name, "oml")
    }
