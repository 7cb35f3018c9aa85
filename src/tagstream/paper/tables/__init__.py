"""The report's tables, and its sentences: does it reproduce?

A table is a specification: rows, columns with the text of their cell in a row, and a note
(:func:`tagstream.paper.table.tabulate`).  A sentence that judges rests on a claim, a count and a
threshold (:class:`tagstream.paper.verdict.Verdict`).  Each module here has one topic and one
function, which gives the tables and sentences for which there are records.
"""

from __future__ import annotations

from tagstream.paper.results import Results
from tagstream.paper.table import Table
from tagstream.paper.tables.bounds import bound_tables
from tagstream.paper.tables.claims import claim_tables
from tagstream.paper.tables.data import data_tables
from tagstream.paper.tables.holdout import holdout_tables
from tagstream.paper.tables.knowing import knowing_tables
from tagstream.paper.tables.newtag import newtag_tables
from tagstream.paper.tables.order import order_tables
from tagstream.paper.tables.own import own_tables
from tagstream.paper.tables.repeats import repeat_tables
from tagstream.paper.tables.rivals import rival_tables
from tagstream.paper.tables.scenarios import scenario_tables
from tagstream.paper.tables.streams import stream_tables
from tagstream.paper.tables.texts import text_tables
from tagstream.paper.tables.timing import timing_tables
from tagstream.paper.tables.versions import version_tables
from tagstream.paper.tables.young import young_tables

__all__ = ["Table", "make_tables"]

TOPICS = (
    *(own_tables, data_tables, claim_tables, holdout_tables, repeat_tables, timing_tables),
    *(stream_tables, bound_tables, text_tables, scenario_tables, order_tables, newtag_tables),
    *(version_tables, rival_tables, knowing_tables, young_tables),
)


def make_tables(results: Results) -> dict[str, Table | str]:
    """Return every table and every sentence of the report, by name."""
    return {name: made for topic in TOPICS for name, made in topic(results).items()}
