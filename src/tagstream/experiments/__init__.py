"""The paper's experiments as data, and one function that runs them.

The grid is a tuple of cells.  A cell is one piece of work, independent of all others: a part, a
data set, a method and a fold.  What it gives is one line of JSON; lines of one kind are in one file
of the results directory, and :mod:`tagstream.report` reads nothing else.

    part         what a cell does                                               file
    datasets     counts what is in a data set                                   datasets.jsonl
    holdout      the paper's protocol: first 20 % of the training part as one   holdout-NAME.jsonl
                 block, the rest streamed, then the test part; one of 5 folds
    splits       the split that ships with a data set, for reference values     splits.jsonl
    prequential  test, then train, in file order, labels at once                prequential.jsonl
    labels       the label metric Q = VVᵀ learned from a whole data set         labels.jsonl
    bound        the quantities of the paper's loss bound along a run           bound.jsonl
    scaling      seconds per round and per prediction, for growing n, p, q, d   scaling.jsonl

A record has the keys ``key``, ``part``, ``dataset``, ``method``, ``title``, ``fold``, ``params``
(what the learner was made with), ``versions``, ``seconds`` and ``result``.  The key is a digest of
everything that defines the cell, parameters by default included: a changed definition is run again,
and its old record is dropped.  Changed code is not seen; then run with ``fresh=True``.
"""

from tagstream.experiments.plan import (
    ABLATION,
    BASELINES,
    METHODS,
    PAPER_DATA,
    PARTS,
    STREAMS,
    Cell,
    Method,
    grid,
)
from tagstream.experiments.runner import Summary, read_records, run

__all__ = [
    "ABLATION",
    "BASELINES",
    "METHODS",
    "PAPER_DATA",
    "PARTS",
    "STREAMS",
    "Cell",
    "Method",
    "Summary",
    "grid",
    "read_records",
    "run",
]
