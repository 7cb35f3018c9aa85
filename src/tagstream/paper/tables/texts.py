"""The table and the sentence on tagging text, beside TF-IDF with logistic regression."""

from __future__ import annotations

from tagstream.paper.results import (
    TEXT_MEASURES,
    TEXT_RIVAL,
    Results,
    as_text,
    spread_of,
    texts_of,
)
from tagstream.paper.table import Table, each, tabulate
from tagstream.paper.verdict import Verdict

__all__ = ["text_tables"]

COMPARED = ("micro_f1", "precision_at_1", "precision_at_3")


def text_tables(results: Results) -> dict[str, Table | str]:
    """Return the table and the sentence, by name."""
    if not results.part("text"):
        return {}
    return {"text": _text_table(results), "verdict_text": _text_verdict(results)}


def _text_table(results: Results) -> Table:
    found = texts_of(results)
    how = {True: "stream", False: "hold-out"}

    def value(at: tuple[str, bool], measure: str) -> str:
        values = found[at][measure]
        spread = "" if len(values) < 2 else f" ± {as_text(spread_of(values))}"
        return as_text(values.mean()) + spread

    columns = (
        ("how", lambda at: how[at[1]]),
        ("method", lambda at: results.titles[at[0]]),
        *each(TEXT_MEASURES, TEXT_MEASURES.__getitem__, value),
    )
    folds = max(len(values["micro_f1"]) for values in found.values())
    return tabulate(
        sorted(found, key=lambda at: how[at[1]]),  # in the order of the grid otherwise
        columns,
        f"Hold-out: mean ± standard deviation over {folds} folds. Stream: each comment is tagged, "
        "then learnt, in file order; the mean over all of them, the first ones included. P@k: how "
        "many of the k best scored tags are right. Log loss: smaller is better.",
    )


def _text_verdict(results: Results) -> str:
    found = texts_of(results)
    ours, theirs = found.get(("tagger", False)), found.get((TEXT_RIVAL, False))
    if ours is None or theirs is None:
        return "The comparison needs the tagger and TF-IDF with logistic regression."
    said, ahead = [], 0
    for measure in COMPARED:
        a, b = ours[measure], theirs[measure]
        n = min(len(a), len(b))
        ahead += bool(a.mean() > b.mean())
        said.append(
            f"{TEXT_MEASURES[measure]} {as_text(a.mean())} against {as_text(b.mean())}, better in "
            f"{int((a[:n] > b[:n]).sum())} of {n} folds"
        )
    verdict = Verdict("The tagger is", ahead, len(COMPARED))
    rival = "TF-IDF with logistic regression"
    words = verdict.said(f"ahead of {rival}", f"not ahead everywhere of {rival}")
    return f"{words}: {'; '.join(said)}."
