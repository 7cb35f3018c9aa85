"""Reading files: :mod:`benchmarks.bench_readers` in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.timing import Section


def run(quick: bool) -> Section:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "readers.json"
        command = [sys.executable, "-m", "benchmarks.bench_readers", "--json", str(path)]
        command += ["--repeats", "1" if quick else "3"]
        subprocess.run(command, check=True, capture_output=True)
        records = json.loads(path.read_text())["records"]
    return {
        "title": "Reading files",
        "equal": "Every reader reads the same uncompressed file; best of the repeats, in turn.",
        "differs": "pandas reads the same numbers as CSV. Data sets that are not at hand are "
        "replaced by random tables of their shape.",
        "rows": [
            {
                "file": f"{r['file']}" + (" (random)" if "random" in r["source"] else ""),
                "reader": r["reader"],
                "s": r["seconds"],
                "million values/s": r["values"] / r["seconds"] / 1e6,
                "time over ours": r["ratio"],
            }
            for r in records
        ],
        "claims": [],
    }
