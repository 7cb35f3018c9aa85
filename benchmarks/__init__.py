"""Side-by-side measurements against peers; run by ``python -m benchmarks``, see docs/benchmarks.md.

Each ``bench_*`` module has one function ``run(quick)`` that returns a *section*: plain values that
go into the JSON file as they are.

    title, equal, differs   what is compared, on equal terms in what, and in what not
    rows                    list of dicts, the table
    claims                  list of :func:`benchmarks.timing.claim`: ratios with their targets
    curves                  list of dicts plot, panel, line, x, y, xlabel, ylabel; optional
    skipped                 names of peers that are not installed
"""

import os

# One thread for everybody: this must be said before any of them is imported.
for _name in ("OMP", "OPENBLAS", "MKL", "NUMBA", "BLIS", "VECLIB_MAXIMUM"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"
