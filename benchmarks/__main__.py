"""Run the benchmarks and write their results: ``python -m benchmarks [--quick] [--only NAME …]``.

A full run writes results/bench.json, docs/bench/*.png and the tables of docs/benchmarks.md; a
quick one, of a minute or two, with small sizes and without the file readers, writes the same into
bench-report/.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import tagstream
from benchmarks import report
from benchmarks.timing import tell, version

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = {
    "limits": "limits",
    "one": "bench_one",
    "bulk": "bench_bulk",
    "batch": "bench_batch",
    "products": "bench_products",
    "growth": "bench_growth",
    "refits": "bench_refits",
    "startup": "bench_startup",
    "head": "bench_head",
    "versions": "bench_versions",
    "order": "bench_order",
    "paper": "bench_paper",
    "readers": "bench_files",
    "memory": "bench_memory",
    "cluster": "bench_cluster",
    "serve": "bench_serve",
    "labels": "bench_labels",
    "scanner": "bench_scanner",
    "topics": "bench_encoder",
    "feelings": "bench_feelings",
}
PACKAGES = [
    "tagstream",
    "numpy",
    "scipy",
    "scikit-learn",
    "numba",
    "river",
    "vowpalwabbit",
    "napkinxc",
    "faiss-cpu",
    "ray",
    "fastapi",
    "uvicorn",
    "scikit-multilearn-ng",
    "liac-arff",
    "pandas",
]


def about(quick: bool) -> dict[str, Any]:
    """Return what a reader must know about the machine and the run."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads used": 1,
        "load at start": os.getloadavg()[0],
        "python": platform.python_version(),
        "quick": quick,
        "versions": {name: version(name) for name in PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, into bench-report/")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="renew these sections only")
    parser.add_argument(
        "--tables", action="store_true", help="write the document again, run nothing"
    )
    options = parser.parse_args()

    out = ROOT / "bench-report" if options.quick else ROOT
    path = out / ("bench.json" if options.quick else "results/bench.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {"sections": {}}
    results = {"about": about(options.quick), "sections": {}}
    if options.tables:
        results = known
    elif options.only:
        results["sections"] = known["sections"]
    usual = [name for name in SECTIONS if not (options.quick and name == "readers")]
    wanted = [] if options.tables else options.only or usual
    for i, name in enumerate(wanted, 1):
        tell(f"[{i}/{len(wanted)}] {name} ")
        start, load = time.perf_counter(), os.getloadavg()[0]
        made = importlib.import_module(f"benchmarks.{SECTIONS[name]}").run(options.quick)
        made["took, s"] = time.perf_counter() - start
        made["version"], made["load"] = tagstream.__version__, load
        made["date"] = results["about"]["date"]
        results["sections"][name] = made
        results["sections"] = {
            n: results["sections"][n] for n in SECTIONS if n in results["sections"]
        }
        path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        tell(f" {made['took, s']:.0f} s\n")

    text = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    page = out / ("benchmarks.md" if options.quick else "docs/benchmarks.md")
    page.write_text(report.document(text, results), encoding="utf-8")
    report.plots(results, page.parent / "bench")
    print(report.summary(results))


if __name__ == "__main__":
    main()
