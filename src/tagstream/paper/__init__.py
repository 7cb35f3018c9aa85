"""The paper's experiments, in two halves that meet in files.

One half runs: the grid is a tuple of cells (:mod:`~tagstream.paper.plan`), a cell is one piece of
work, independent of all others (:mod:`~tagstream.paper.work`), and what it gives is one line of
JSON (:mod:`~tagstream.paper.runner`).  The other half reads these lines and ``published.json``,
which quotes the numbers of others, and makes figures, tables and one page
(:mod:`~tagstream.paper.results`, ``figures``, ``tables``, ``page``).  Reading imports no learner
and needs no compiler: a name is imported when it is first asked for.  Whatever part of the grid is
there is shown.  Figures need matplotlib (the extra ``plot``).

    part         what a cell does                                               file
    datasets     counts what is in a data set                                   datasets.jsonl
    holdout      the paper's protocol: first 20 % of the training part as one   holdout-NAME.jsonl
                 block, the rest streamed, then the test part; one of 5 folds
    repeats      the five folds of another division of the data                 repeats.jsonl
    splits       the split that ships with a data set, for reference values     splits.jsonl
    prequential  test, then train, in file order, labels at once                prequential.jsonl
    labels       the label metric Q = VVᵀ learned from a whole data set         labels.jsonl
    bound        the quantities of the paper's loss bound along a run           bound.jsonl
    scaling      seconds per round and per prediction, for growing n, p, q, d   scaling.jsonl
    scenarios    corrections in a row, or a tag never seen before, on a text    scenarios.jsonl
    delays       test, then train, with labels that come late                   delays.jsonl
    guarantee    loss and bounds of the convex metric along a stream            guarantee.jsonl
    text         a tagger on a text, beside TF-IDF with logistic regression     text.jsonl
    order        any item, after a training part in some order or with copies   order.jsonl
    newtag       tags never seen before, before and after the next fit          newtag.jsonl
    rivals       a tagger beside what people would use instead                  rivals.jsonl
    young        taggers and others after 0, 5, 10, … texts                     young.jsonl

A record has the keys ``key``, ``part``, ``dataset``, ``method``, ``title``, ``fold``, ``params``
(what the learner was made with), ``versions``, ``seconds`` and ``result``.  The key is a digest of
everything that defines the cell, parameters by default included: a changed definition is run again,
and its old record is dropped.  Changed code is not seen; then run with ``fresh=True``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tagstream.paper.figures import make_figures
    from tagstream.paper.page import build, update_markers
    from tagstream.paper.plan import (
        ABLATION,
        BASELINES,
        METHODS,
        OFFLINE,
        PAPER_DATA,
        PARTS,
        STREAMS,
        Cell,
        Method,
        grid,
    )
    from tagstream.paper.record_files import read_records
    from tagstream.paper.results import MEASURES, Results, Wins, count_wins
    from tagstream.paper.runner import Summary, run
    from tagstream.paper.tables import Table, make_tables

__all__ = [
    "ABLATION",
    "BASELINES",
    "MEASURES",
    "METHODS",
    "OFFLINE",
    "PAPER_DATA",
    "PARTS",
    "STREAMS",
    "Cell",
    "Method",
    "Results",
    "Summary",
    "Table",
    "Wins",
    "build",
    "count_wins",
    "grid",
    "make_figures",
    "make_tables",
    "read_records",
    "run",
    "update_markers",
]

_NAMES = {
    "figures": ("make_figures",),
    "page": ("build", "update_markers"),
    "plan": (
        *("ABLATION", "BASELINES", "METHODS", "OFFLINE", "PAPER_DATA", "PARTS", "STREAMS"),
        *("Cell", "Method", "grid"),
    ),
    "results": ("MEASURES", "Results", "Wins", "count_wins"),
    "record_files": ("read_records",),
    "runner": ("Summary", "run"),
    "tables": ("Table", "make_tables"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tagstream.paper' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tagstream.paper.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
