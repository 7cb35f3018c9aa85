"""Tables and sentences on the data: sizes, values of known splits, what V says of labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tagstream.paper.results import (
    MEASURES,
    Results,
    Values,
    as_text,
    measures_of,
    published,
    spread_of,
)
from tagstream.paper.table import Table, each, tabulate
from tagstream.paper.verdict import Verdict

__all__ = ["data_tables"]

Record = dict[str, Any]
SPLIT_METHODS = {"knn": "kNN", "ml-knn": "ML-kNN", "osml-elm": "OSML-ELM"}
STRONG = 0.2  # a rank correlation that is worth counting


def data_tables(results: Results) -> dict[str, Table | str]:
    """Return the tables and sentences, by name."""
    made: dict[str, Table | str] = {}
    if results.part("datasets"):
        made["datasets"] = _sizes_table(results)
        made["verdict_datasets"] = _sizes_verdict(results)
    if results.part("splits"):
        made["splits"] = _splits_table(results)
        made["verdict_splits"] = _splits_verdict(results)
    if results.part("labels"):
        made["labels"] = _labels_table(results)
        made |= _labels_verdict(results)
    return made


# ---------------------------------------------------------------------- sizes
def _found(record: Record) -> tuple[int, ...]:
    return tuple(record["result"][key] for key in "npq")


def _product(sizes: Sequence[int]) -> str:
    return " × ".join(f"{size:,}" for size in sizes)


def _sizes_table(results: Results) -> Table:
    printed = published()["paper"]["datasets"]

    def said(record: Record) -> str:
        sizes = printed.get(record["dataset"])
        return "–" if sizes is None else _product(sizes)

    def found(record: Record) -> str:
        text = _product(_found(record))
        return f"**{text}**" if said(record) not in ("–", text) else text

    columns = (
        ("data set", lambda record: record["dataset"]),
        ("domain", lambda record: record["result"]["domain"]),
        ("printed: n × p × q", said),
        ("found: n × p × q", found),
        ("labels per item", lambda record: f"{record['result']['cardinality']:.3f}"),
        ("label sets", lambda record: f"{record['result']['distinct_sets']:,}"),
        ("rows", lambda record: "sparse" if record["result"]["sparse"] else "dense"),
    )
    return tabulate(results.part("datasets"), columns, "Bold: not as printed.")


def _sizes_verdict(results: Results) -> str:
    printed = {name: tuple(sizes) for name, sizes in published()["paper"]["datasets"].items()}
    found = {record["dataset"]: _found(record) for record in results.part("datasets")}
    known = [name for name in found if name in printed]
    differ = [name for name in known if found[name] != printed[name]]
    verdict = Verdict("", len(known) - len(differ), len(known))
    said = f"{verdict} {verdict.count} of {len(known)} data sets have the sizes that are printed"
    if not differ:
        return f"{said}."
    said += f"; {' and '.join(differ)} do not"
    owners = {
        name
        for name, sizes in found.items()
        if name not in printed and all(sizes[1:] == printed[other][1:] for other in differ)
    }
    return (
        said + "".join(f": the sizes printed are those of {n.capitalize()}" for n in owners) + "."
    )


# ---------------------------------------------------------------------- known splits
def _draws(results: Results) -> dict[tuple[str, str], Values]:
    """Measures (draws, 4) by split and method."""
    columns = published()["splits"]["columns"]
    draws: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for record in results.part("splits"):
        larger = record["setting"].get("larger_first")
        name = record["dataset"] + (", larger part first" if larger else "")
        method = "osml-elm" if record["method"].startswith("osml") else record["method"]
        measures = measures_of(record["result"]["counts"])
        draws[name, method].append([measures[m] for m in columns])
    return {which: np.array(values) for which, values in draws.items()}


def _splits_table(results: Results) -> Table:
    said, draws = published()["splits"], _draws(results)
    literature = said["literature"]["ml-knn hamming_loss"]

    def value(at: tuple[str, str], measure: str) -> str:
        j = said["columns"].index(measure)
        values, theirs = draws[at][:, j], said["values"].get(at[0], {}).get(at[1])
        text = as_text(values.mean(), measure)
        text += f" ± {as_text(spread_of(values), measure)}" if len(values) > 1 else ""
        return text + ("" if theirs is None else f" ({as_text(theirs[j], measure)})")

    def in_literature(at: tuple[str, str]) -> str:
        known = literature.get(at[0]) if at[1] == "ml-knn" else None
        return as_text(known) if known else "–"

    columns = (
        ("split", lambda at: at[0]),
        ("method", lambda at: SPLIT_METHODS[at[1]]),
        *each(said["columns"], MEASURES.__getitem__, value),
        ("Hamming loss in the literature", in_literature),
    )
    return tabulate(
        draws,
        columns,
        f"Ours, and in brackets the reference: {said['source']}. Spread: over five draws. "
        f"Literature: {said['literature']['source']}.",
    )


def _splits_verdict(results: Results) -> str:
    reference = published()["splits"]["values"]
    gaps: dict[str, list[float]] = defaultdict(list)
    inside: list[bool] = []
    for (name, method), values in _draws(results).items():
        theirs = reference.get(name, {}).get(method)
        if theirs is None:
            continue
        gap = np.abs(values.mean(axis=0) - theirs)
        gaps[method] += gap.tolist()
        if len(values) > 1:
            inside += (gap <= 2 * values.std(axis=0, ddof=1)).tolist()
    largest = {method: max(some) for method, some in gaps.items()}
    said = ", ".join(f"{results.titles.get(m, m)} {largest[m]:.4f}" for m in largest)
    return (
        f"Largest difference from the reference values, over all splits and measures: {said}. "
        f"Of OSML-ELM's values {sum(inside)} of {len(inside)} lie within two standard deviations "
        "over its random draws."
    )


# ---------------------------------------------------------------------- labels
def _labels_table(results: Results) -> Table:
    def correlation(record: Record) -> str:
        rho = record["result"]["rank_correlation"]
        return "–" if rho is None else f"{rho:+.2f}"

    def pair(record: Record, which: str) -> str:
        one, other, cosine, phi, *_ = record["result"][which][0]
        return f"{one}, {other} ({cosine:+.3f}; {phi:+.2f})"

    ends = {"nearest": "pulled together most", "farthest": "pushed apart most"}
    columns = (
        ("data set", lambda record: record["dataset"]),
        ("pairs", lambda record: f"{record['result']['n_pairs']:,}"),
        ("rank correlation", correlation),
        *each(ends, ends.__getitem__, pair),
    )
    return tabulate(
        results.part("labels"),
        columns,
        "Rank correlation (Spearman) over all pairs of labels between the cosine of the pair in Q "
        "and the correlation φ of the two labels in the data. In brackets: cosine; φ.",
    )


def _correlations(results: Results) -> Iterator[float]:
    for record in results.part("labels"):
        if record["result"]["rank_correlation"] is not None:
            yield record["result"]["rank_correlation"]


def _labels_verdict(results: Results) -> dict[str, Table | str]:
    found = [*_correlations(results)]
    if not found:
        return {}
    said = (
        "The paper shows no picture or number of the label dependency it speaks of. "
        "Here the rank correlation between the learned Q and the correlation of the labels "
        f"in the data lies between {min(found):+.2f} and {max(found):+.2f}; it "
        f"is above {STRONG} on {sum(c > STRONG for c in found)} and below −{STRONG} on "
        f"{sum(c < -STRONG for c in found)} of {len(found)} data sets."
    )
    if min(found) < 0:
        said += " Where it is negative, labels that go together in the data lie farther apart."
    return {"verdict_labels": said}
