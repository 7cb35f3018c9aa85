"""The table of the paper's claims, and the sentence on each: does it reproduce?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tagstream.paper.results import (
    ELM,
    FITTING,
    KNN,
    MAIN,
    MEASURES,
    OFFLINE,
    OLANSGD,
    Results,
    Wins,
    as_text,
    count_wins,
    published,
)
from tagstream.paper.table import Table, tabulate
from tagstream.paper.verdict import Verdict, all_of, wins_most

__all__ = ["claim_tables"]

COMPARABLE = 0.1  # a value that is worse by this share is still comparable
MOST_NAMED = 6  # lost cells; more are only counted
COMPETITORS = {"OSML-ELM": "osml-elm", "OLANSGD": "olansgd"}


def claim_tables(results: Results) -> dict[str, Table | str]:
    """Return the table and the sentences, by name."""
    if not results.holdout:
        return {}
    made: dict[str, Table | str] = {
        "claims": _claims_table(results),
        "verdict_knn": _knn_verdict(results),
        "verdict_unseen": _unseen_verdict(results),
        "verdict_competitors": _competitors_verdict(results),
        "verdict_comparable": _comparable_verdict(results),
        "verdict_everything": _everything_verdict(results),
    }
    if results.methods(["no-learning"]):
        learning = count_wins(results, "oml", ("no-learning",))
        made["verdict_ablation"] = (
            f"Learning V makes `OML()` better in {learning.cells} of {learning.total} cells than "
            f"leaving V = I; which ingredients matter how much is in the table."
        )
    return made


# ---------------------------------------------------------------------- the table
class _Claim(NamedTuple):
    what: str
    said: str  # by the paper
    method: str
    rivals: tuple[str, ...]
    slack: float = 0.0


def _claims(results: Results) -> Iterator[_Claim]:
    printed = published()["paper"]["claims"]
    cells = "{} of {} cells".format(*printed["better than kNN"])
    most = printed["better than its competitors"]
    yield _Claim("OML better than kNN", cells, "oml", ("knn",))
    yield _Claim("OML better than the better kNN, raw or standardised", cells, "oml", KNN)
    yield _Claim("OML as published better than kNN", cells, "oml-published", ("knn",))
    yield _Claim("OML as printed better than kNN", cells, "oml-printed", ("knn",))
    better = {ELM: "OSML-ELM, released or stable", OLANSGD: "OLANSGD, threshold or top k"}
    for (name, rival), (both, words) in zip(COMPETITORS.items(), better.items(), strict=True):
        yield _Claim(f"OML better than {name}", most, "oml", (rival,))
        yield _Claim(f"OML better than the better {words}", most, "oml", both)
    for name, rival in COMPETITORS.items():
        yield _Claim(f"OML as published better than {name}", most, "oml-published", (rival,))
    for both, words in ((KNN, "kNN"), (ELM, "OSML-ELM"), (OLANSGD, "OLANSGD")):
        what = f"OML, deciding for the measure, better than the better {words}"
        yield _Claim(what, most, FITTING, both)
    for method in results.methods(OFFLINE):
        words = f"{results.titles[method]}, offline"
        yield _Claim(f"OML better than {words}", "–", "oml", (method,))
        yield _Claim(f"OML, deciding for the measure, better than {words}", "–", FITTING, (method,))
    for name, rival in COMPETITORS.items():
        what = f"kNN comparable to {name} (better, or within {COMPARABLE:.0%})".replace("%", " %")
        yield _Claim(what, most, "knn", (rival,), COMPARABLE)


def _claims_table(results: Results) -> Table:
    def not_so_in(row: tuple[_Claim, Wins]) -> str:
        claim, wins = row
        if claim.slack or len(wins.lost) > MOST_NAMED:
            return f"{len(wins.lost)} cells"
        return _names(wins)

    rows = [
        (claim, count_wins(results, claim.method, claim.rivals, slack=claim.slack))
        for claim in _claims(results)
        if results.methods([claim.method]) and results.methods(claim.rivals)
    ]
    columns = (
        ("claim", lambda row: row[0].what),
        ("the paper", lambda row: row[0].said),
        ("cells", lambda row: f"**{row[1].cells} of {row[1].total}**"),
        ("in every fold", lambda row: "–" if row[0].slack else str(row[1].every_fold)),
        ("data sets", lambda row: f"{row[1].datasets} of {row[1].n_datasets}"),
        ("not so in", not_so_in),
    )
    return tabulate(
        rows,
        columns,
        "A cell is a data set and a measure. In every fold: cells in which each single fold "
        "agrees. Data sets: those on which at least three of the four measures agree.",
    )


def _names(wins: Wins) -> str:
    return ", ".join(f"{name} {MEASURES[measure]}" for name, measure in wins.lost)


def _not_in(wins: Wins) -> str:
    return f", not in: {_names(wins)}." if wins.lost else "."


# ---------------------------------------------------------------------- the sentences
def _knn_verdict(results: Results) -> str:
    said, of = published()["paper"]["claims"]["better than kNN"]
    old, raw = (count_wins(results, method, ("knn",)) for method in ("oml-published", "oml"))
    both = count_wins(results, "oml", KNN)
    folds = max((len(v["micro_f1"]) for v in results.holdout.values()), default=0)
    about = f"{len(results.datasets)} data sets, four measures, {folds} folds"
    old_verdict, verdict = (
        Verdict(claim, wins.cells, wins.total - (of - said))
        for claim, wins in (("As published", old), ("`OML()`", raw))
    )
    return (
        f"{old_verdict}: it is better than kNN in {old.cells} of {old.total} cells ({about}). "
        f"{verdict}: it is better than kNN in {raw.cells} of "
        f"{raw.total} cells, and better than the better of kNN on raw and on standardised "
        f"features in {both.cells}{_not_in(both)}"
    )


def _unseen_verdict(results: Results) -> str:
    first = Results({"holdout": [r for r in results.part("holdout") if r["fold"] == 0]})
    unseen = count_wins(first, "oml", KNN)
    return (
        "On the test part of the first fold alone `OML()` is better than the better kNN in "
        f"{unseen.cells} of {unseen.total} cells{_not_in(unseen)}"
    )


def _competitors_verdict(results: Results) -> str:
    def wins(method: str, *rivals: Sequence[str]) -> list[Wins]:
        return [count_wins(results, method, some) for some in rivals]

    def verdict(claim: str, some: Sequence[Wins]) -> Verdict:
        return all_of(claim, *(wins_most(claim, one) for one in some))

    single = [(rival,) for rival in COMPETITORS.values()]
    old, ours, best = (
        wins("oml-published", *single),
        wins("oml", *single),
        wins("oml", ELM, OLANSGD),
    )
    (elm, ola), (elm_best, ola_best) = ours, best
    return (
        f"{verdict('As published', old)}: it is better in at least three of the four "
        f"measures than OSML-ELM on {old[0].datasets} of {old[0].n_datasets} data sets, and than "
        f"OLANSGD on {old[1].datasets}. {verdict('`OML()`', ours)}: on {elm.datasets} and "
        f"{ola.datasets}. In cells: {elm.cells} of {elm.total} against OSML-ELM "
        f"({elm_best.cells} against the better of its two variants), {ola.cells} against OLANSGD "
        f"({ola_best.cells} against the better of its two rules)."
    )


def _comparable_verdict(results: Results) -> str:
    same = [
        count_wins(results, "knn", (rival,), slack=COMPARABLE) for rival in COMPETITORS.values()
    ]
    verdict = all_of("", *(wins_most("", wins) for wins in same))
    return (
        f"{verdict} kNN is better than OSML-ELM, or within 10 %, in "
        f"{same[0].cells} of {same[0].total} cells and in most measures on {same[0].datasets} of "
        f"{same[0].n_datasets} data sets; against OLANSGD in {same[1].cells} cells and on "
        f"{same[1].datasets} data sets."
    )


def _everything_verdict(results: Results) -> str:
    """Say on which data sets it would be best for macro-F1 to give every item every label."""
    found: dict[str, list[float]] = defaultdict(list)
    for record in results.part("holdout"):
        if record["method"] == "oml":
            counts = record["result"]["counts"]
            true = np.array(counts["labels"]["true"], np.float64)
            f1 = np.where(true > 0, 2 * true / (true + counts["sums"]["rows"]), 0.0)
            found[record["dataset"]].append(float(f1.mean()))
    told = []
    for name, values in found.items():
        best = results.best(name, (*MAIN, *OFFLINE), "macro_f1")
        assert best is not None
        reached = results.holdout[name, best]["macro_f1"].mean()
        if np.mean(values) > reached:
            told.append(
                f"{name} {as_text(float(np.mean(values)))}, where the best of all methods here, "
                f"{results.titles[best]}, has {as_text(float(reached))}"
            )
    if not told:
        return ""
    return f"Who gives every label to every item has a macro-F1 on {'; on '.join(told)}."
