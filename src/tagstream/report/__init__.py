"""From results to figures, tables and one page.

Everything here is a function of files: the records that :mod:`tagstream.experiments` wrote, and
``published.json``, which quotes the numbers of others.  Records are described in that module; this
package does not import it.  Whatever part of the grid is there is shown.
Figures need matplotlib (``pip install tagstream[plot]``).
"""

from tagstream.report.figures import make_figures
from tagstream.report.page import build, update_markers, write_demo
from tagstream.report.results import MEASURES, Results, Wins, count_wins
from tagstream.report.tables import Table, make_tables

__all__ = [
    "MEASURES",
    "Results",
    "Table",
    "Wins",
    "build",
    "count_wins",
    "make_figures",
    "make_tables",
    "update_markers",
    "write_demo",
]
