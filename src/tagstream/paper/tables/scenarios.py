"""Tables and sentences on learning at once: corrections, and tags never seen before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tagstream.paper.results import (
    PROMISED,
    PROMISED_F1,
    SGD,
    VAGUE,
    NewTag,
    Results,
    Values,
    as_text,
    corrections_of,
    new_tags_of,
)
from tagstream.paper.table import Table, each, tabulate
from tagstream.paper.verdict import promises

__all__ = ["scenario_tables"]

STAGES = {"at_once": "at once", "refitted": "after the next fit"}
RULE_WORDS = {"balanced": "", "f1": ", for F1", "macro": ", for macro-F1"}
PROMISED_AFTER = 5  # examples
FORGOTTEN = 0.05  # a fall of F1 that is told

Correction = tuple[str, int, str]  # method, how many, stage
Ranked = tuple[str, str]  # tag, method


def scenario_tables(results: Results) -> dict[str, Table | str]:
    """Return the tables and sentences, by name."""
    made: dict[str, Table | str] = {}
    if corrections_of(results):
        made["corrections"] = _corrections_table(results)
        made["verdict_corrections"] = _corrections_verdict(results)
    if new_tags_of(results):
        made["new_tags"] = _new_tags_table(results)
        made["verdict_new_tags"] = _new_tags_verdict(results)
        made["new_tags_ranked"] = _ranked_table(results)
        made["verdict_new_tags_ranked"] = _ranked_verdict(results)
    return made


# ---------------------------------------------------------------------- corrections
def _corrections_table(results: Results) -> Table:
    found = corrections_of(results)

    def others(at: Correction) -> str:
        return f"{found[at]['before']:.4f} → {found[at]['others']:.4f}"

    columns = (
        ("learner", lambda at: results.titles[at[0]]),
        ("corrections", lambda at: f"{at[1]}"),
        ("looked at", lambda at: STAGES[at[2]]),
        ("same item", lambda at: f"{found[at]['same']:.1%}"),
        ("paraphrase", lambda at: f"{found[at]['paraphrase']:.1%}"),
        ("other items", others),
        (
            "their change, each order",
            lambda at: f"{found[at]['least']:+.4f} … {found[at]['most']:+.4f}",
        ),
    )
    draws = {r["fold"] for r in results.part("scenarios") if "tag" not in r["setting"]}
    return tabulate(
        found,
        columns,
        f"Mean over {len(draws)} orders of the comments. Same item, paraphrase: share whose "
        "suggestion is exactly right, all tags and no other; a paraphrase lacks a fifth of the "
        "words. Before its correction no item was exactly right. Other items: micro-F1 of items "
        "that were never learnt, before and after the corrections; the last column has the least "
        "and the most that it changes by in a single order.",
    )


def _corrections_verdict(results: Results) -> str:
    found = corrections_of(results)
    ours = {at: values for at, values in found.items() if at[0] == "oml"}
    kept = ("same", "paraphrase", "others")
    missed = [text for at, values in ours.items() for text in _broken(at, values)]
    n_worse = sum(values["least"] < -PROMISED["others"] for values in ours.values())
    said = promises(len(kept) * len(ours), missed)
    if n_worse:
        said += (
            f" Means over the orders; in {n_worse} of {len(ours)} looks the other items lose more "
            "than is promised in some single order."
        )
    plain = [v["same"] for at, v in found.items() if at[0] != "oml" and at[2] == "at_once"]
    if plain:
        said += (
            f" Votes alone have {min(plain):.1%} to {max(plain):.1%} of the same items right at "
            "once."
        )
    return said


def _broken(at: Correction, found: Mapping[str, float]) -> Iterator[str]:
    """Yield the promises that are not kept."""
    when = f"({at[1]} corrections, {STAGES[at[2]]})"
    for what in ("same", "paraphrase"):
        if found[what] < PROMISED[what]:
            yield f"{what} {found[what]:.1%} {when}"
    lost = found["before"] - found["others"]
    if lost > PROMISED["others"]:
        yield f"other items −{lost:.4f} {when}"


# ---------------------------------------------------------------------- new tags
def _at(values: Values, counts: tuple[int, ...], count: int) -> str:
    """The value after so many examples, if there were so many."""
    return as_text(values[counts.index(count)]) if count in counts else "–"


def _new_tags_table(results: Results) -> Table:
    found = new_tags_of(results)
    counts = max((one.counts for one in found.values()), key=len)

    def f1(at: tuple[str, str, str], count: int) -> str:
        return _at(found[at].f1, found[at].counts, count)

    columns = (
        ("new tag", lambda at: at[0]),
        ("learner", lambda at: results.titles[at[1]] + RULE_WORDS.get(at[2], "")),
        *each(counts, "F1, {} seen".format, f1),
        (
            f"{counts[min(1, len(counts) - 1)]} seen, then a fit",
            lambda at: "–" if at[1] in SGD else as_text(found[at].refitted),
        ),
        ("false alarms", lambda at: f"{found[at].false_alarms.max():.2%}"),
    )
    draws = len(next(iter(results.part("scenarios")[-1]["result"]["rules"].values()))["f1"])
    return tabulate(
        found,
        columns,
        f"Mean over {draws} orders of the tag's examples, one among ten ordinary items; no fit of "
        "P in between, but for the column that says so. False alarms: share of the ordinary test "
        "items that get the tag, at its worst.",
    )


def _new_tags_verdict(results: Results) -> str:
    found = new_tags_of(results)
    ours = {tag: one for (tag, *how), one in found.items() if how == ["oml", "balanced"]}
    looks = [*_f1_promises(ours), *_alarm_promises(ours), *_vague_promises(found, ours)]
    lost = [
        f"{tag} {as_text(one.f1[1])} → {as_text(one.refitted)}"
        for tag, one in ours.items()
        if len(one.counts) > 1 and one.f1[1] - one.refitted > FORGOTTEN
    ]
    return promises(len(looks), [broken for broken in looks if broken]) + (
        f" A fit of P just after five examples takes much away again: {', '.join(lost)}."
        if lost
        else ""
    )


def _f1_promises(ours: Mapping[str, NewTag]) -> Iterator[str]:
    """Of each promise about F1: what is missing, or nothing."""
    for tag, least in PROMISED_F1.items():
        if tag in ours and PROMISED_AFTER in ours[tag].counts:
            f1 = ours[tag].f1[ours[tag].counts.index(PROMISED_AFTER)]
            said = f"{tag} after five examples {as_text(f1)}, not {as_text(least)}"
            yield said if f1 < least else ""


def _alarm_promises(ours: Mapping[str, NewTag]) -> Iterator[str]:
    for tag, one in ours.items():
        worst = one.false_alarms.max()
        yield f"false alarms of {tag} {worst:.1%}" if worst > PROMISED["false_alarms"] else ""


def _vague_promises(
    found: Mapping[tuple[str, str, str], NewTag], ours: Mapping[str, NewTag]
) -> Iterator[str]:
    for tag in VAGUE:
        theirs = [found[tag, m, "0.5"].f1 for m in SGD if (tag, m, "0.5") in found]
        if tag in ours and theirs:
            best = np.max(theirs, axis=0)
            worse = [
                f"{count} ({as_text(a)} against {as_text(b)})"
                for count, a, b in zip(ours[tag].counts, ours[tag].f1, best, strict=True)
                if a < b
            ]
            said = f"{tag} worse than the best online SGD after {', '.join(worse)}"
            yield said if worse else ""


# ---------------------------------------------------------------------- whatever is decided
def _ranked(results: Results) -> dict[Ranked, tuple[tuple[int, ...], Values, Values]]:
    """Counts, average precision and F1 at the same price, by tag and method.

    The order of scores does not depend on the decision.
    """
    return {
        (tag, method): (one.counts, one.average_precision, one.f1_at_same_price)
        for (tag, method, _), one in new_tags_of(results).items()
        if one.average_precision is not None and one.f1_at_same_price is not None
    }


def _ranked_table(results: Results) -> Table | str:
    found = _ranked(results)
    if not found:
        return ""

    most = max((counts for counts, _, _ in found.values()), key=len)

    def values(at: Ranked, count: int) -> str:
        counts, precision, f1 = found[at]
        if count not in counts:
            return "–"
        return f"{_at(precision, counts, count)} / {_at(f1, counts, count)}"

    columns = (
        ("new tag", lambda at: at[0]),
        ("learner", lambda at: results.titles[at[1]]),
        *each(most, "{} seen".format, values),
    )
    return tabulate(
        found,
        columns,
        "Average precision of the tag among all test items / F1 if the tag is given until 1 % of "
        "the ordinary test items have it, for every learner; means over the same orders as above.",
    )


def _ranked_verdict(results: Results) -> str:
    found = _ranked(results)
    compared = [tag for tag, m in found if m == "oml" and any((tag, s) in found for s in SGD)]
    if not compared:
        return ""

    def told(measure: int) -> str:
        """Say in how many cells ours is at least as good."""
        n, worse = 0, []
        for tag in compared:
            counts, *ours = found[tag, "oml"]
            theirs = [found[tag, s][1:][measure] for s in SGD if (tag, s) in found]
            best = np.max(theirs, axis=0)
            n += len(counts)
            worse += [
                f"{tag} after {count} ({as_text(a)} against {as_text(b)})"
                for count, a, b in zip(counts, ours[measure], best, strict=True)
                if a < b
            ]
        less = f" (not: {'; '.join(worse)})" if worse else ""
        return f"in {n - len(worse)} of {n} cells{less}"

    return (
        "What is learnt, whatever is decided: the tag's average precision is at least that of the "
        f"best online SGD {told(0)}; with 1 % of false alarms for everyone so is its F1 {told(1)}."
    )
