"""ARFF reading, side by side with liac-arff, scipy.io.arff and, on the same numbers, pandas.

    TAGSTREAM_DATA=… python benchmarks/bench_readers.py [--json PATH] [--repeats 3]

Every reader reads the same uncompressed file in this one run; the time is the best of the repeats,
which take turns. "ratio" is the reader's time over ours. scipy reads no sparse files. Data sets
that are absent are replaced by random tables of the same shape.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse

import tagstream
from tagstream.data import DATASETS, Dataset, data_home, load, write_arff, write_csv

DENSE = ["scene", "yeast"]
SPARSE = ["enron", "bibtex"]
BIG = "mediamill"


def read_tagstream(path: Path) -> int:
    return load(path).Y.size


def read_liac(path: Path) -> int:
    import arff

    with path.open("rb") as file:
        file.seek(-2, 2)
        kind = arff.LOD if b"}" in file.read() else arff.DENSE
    with path.open(encoding="utf-8") as file:
        return len(arff.load(file, return_type=kind)["data"])


def read_scipy(path: Path) -> int:
    from scipy.io import arff

    return len(arff.loadarff(path)[0])


def read_pandas(path: Path) -> int:
    import pandas

    return len(pandas.read_csv(path.with_suffix(".csv")))


def get(name: str) -> Dataset:
    """Return the data set, or random numbers of its shape."""
    try:
        return load(name)
    except OSError:
        info, rng = DATASETS[name], np.random.default_rng(0)
        X = rng.random((info.n, info.p)).round(6)
        return Dataset(
            X=sparse.csr_matrix((X > 0.95) * 1.0) if name in SPARSE else X,
            Y=(rng.random((info.n, info.q)) < info.cardinality / info.q).astype(np.uint8),
            feature_names=tuple(f"x{j}" for j in range(info.p)),
            label_names=tuple(f"tag{j}" for j in range(info.q)),
            name=f"{name} (random)",
        )


def put(data: Dataset, folder: Path) -> Path:
    """Write the data set, in its original text if it has one and is whole; return its path."""
    path = folder / "file.arff"
    xml = folder / "file.xml"
    xml.unlink(missing_ok=True)
    original = data_home() / data.name / f"{data.name}.arff.gz"
    if original.is_file() and data.Y.shape == (DATASETS[data.name].n, DATASETS[data.name].q):
        path.write_bytes(gzip.decompress(original.read_bytes()))
        xml.write_bytes((original.parent / f"{data.name}.xml").read_bytes())
    else:
        write_arff(data, path)
        write_csv(data, path.with_suffix(".csv"))
    return path


def best_times(
    path: Path, readers: dict[str, Callable[[Path], int]], repeats: int
) -> dict[str, float]:
    times: dict[str, float] = {name: float("inf") for name in readers}
    for _ in range(repeats):
        for name, read in readers.items():
            gc.collect()
            start = time.perf_counter()
            read(path)
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()

    arff_readers = {"tagstream": read_tagstream, "liac-arff": read_liac}
    big = get(BIG)
    dense_big = replace(big, X=big.X.toarray() if sparse.issparse(big.X) else big.X)
    no_labels = replace(dense_big, Y=dense_big.Y[:, :1], label_names=dense_big.label_names[:1])
    part = replace(dense_big, X=dense_big.X[:4000], Y=dense_big.Y[:4000])
    cases: list[tuple[str, Dataset, dict[str, Callable[[Path], int]]]] = [
        *((f"{name}, dense", get(name), {**arff_readers, "scipy": read_scipy}) for name in DENSE),
        *((f"{name}, sparse", get(name), arff_readers) for name in SPARSE),
        (f"{BIG}, dense, 4000 rows", part, {**arff_readers, "scipy": read_scipy}),
        (f"{BIG}, sparse, all", big, {"tagstream": read_tagstream}),
        (
            f"{BIG}, dense, 120 columns and a label",
            no_labels,
            {"tagstream": read_tagstream, "pandas": read_pandas},
        ),
    ]
    print(f"{'file':45} {'values':>10} {'reader':>10} {'seconds':>8} {'ratio':>7}")
    records = []
    with tempfile.TemporaryDirectory() as folder:
        for title, data, readers in cases:
            path = put(data, Path(folder))
            times = best_times(path, readers, options.repeats)
            n_values = data.X.shape[0] * (data.X.shape[1] + data.Y.shape[1])
            for reader, seconds in times.items():
                ratio = seconds / times["tagstream"]
                print(f"{title:45} {n_values:10} {reader:>10} {seconds:8.3f} {ratio:7.2f}")
                records.append(
                    {
                        "file": title,
                        "source": data.name,
                        "values": n_values,
                        "reader": reader,
                        "seconds": seconds,
                        "ratio": ratio,
                    }
                )
    if options.json:
        about = {
            "tagstream": tagstream.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "repeats": options.repeats,
        }
        options.json.write_text(json.dumps({"about": about, "records": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
