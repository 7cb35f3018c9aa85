"""Many labels: precision at 1, 3 and 5 on the split of the extreme-classification repository.

The first ``n_train`` rows of a data set are learnt, the others are asked about.  The sizes of both
parts are those of the repository (bibtex 4,880 and 2,515; delicious 12,920 and 3,185; mediamill
30,993 and 12,914); that the rows are the same could not be checked.

Published numbers: CRAFTML, as its Rust implementation's README prints them
(github.com/tomtung/craftml-rs).  napkinXC's label trees are run here, if it is installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream import records as data
from tagstream.evaluation import evaluate
from tagstream.evaluation.metrics import MultiLabelScores
from tagstream.paper.record_files import versions
from tagstream.paper.table import Table
from tagstream.studies.records import add_record, key_of, read_folder
from tagstream.studies.runner import load_stream

__all__ = ["METHODS", "PUBLISHED", "STREAMS", "extreme_table", "run_extreme"]

DEPTHS = (1, 3, 5)
STREAMS = ("bibtex", "delicious", "mediamill")
PUBLISHED = {
    "bibtex": {"CRAFTML": (62.39, 37.93, 27.41)},
    "delicious": {"CRAFTML": (69.02, 63.37, 58.66)},
    "mediamill": {"CRAFTML": (86.67, 71.53, 57.59)},
}


@dataclass(frozen=True)
class Split:
    """A data set cut into what is learnt and what is asked about."""

    X: Any
    Y: npt.NDArray[Any]
    n_train: int


def _oml(split: Split) -> dict[str, float]:
    from tagstream.learners.oml import OML

    n = len(split.Y)
    rows = np.arange(n)
    fold = evaluate.train_test(
        *(OML(random_state=0), split.X, split.Y, rows[: split.n_train], rows[split.n_train :]),
        init=0,
        chunk=1024,
        refit=True,
        k=DEPTHS,
    )
    return fold.measures


def _napkinxc(split: Split) -> dict[str, float]:
    """Probabilistic label trees with their defaults; rows scaled to length 1, as they want it."""
    try:
        from napkinxc.models import PLT
    except ImportError:
        raise ImportError("label trees need napkinxc; pip install napkinxc") from None
    import tempfile

    from sklearn.preprocessing import normalize

    X = normalize(sp.csr_matrix(split.X, dtype=np.float32))
    n, q = split.n_train, split.Y.shape[1]
    labels = [np.flatnonzero(row).tolist() for row in split.Y[:n]]
    with tempfile.TemporaryDirectory() as folder:
        model = PLT(folder, threads=1, seed=0, verbose=0)
        model.fit(X[:n], labels)
        found = model.predict_proba(X[n:], top_k=max(DEPTHS))
    scores = np.full((len(found), q), -np.inf)
    for row, pairs in zip(scores, found, strict=True):
        for label, probability in pairs:
            row[int(label)] = probability
    return MultiLabelScores(k=DEPTHS).update(split.Y[n:], scores > 0.5, scores).as_dict()


METHODS: dict[str, Callable[[Split], dict[str, float]]] = {
    "OML": _oml,
    "napkinXC (label trees)": _napkinxc,
}


def run_extreme(
    folder: str | os.PathLike[str],
    streams: Sequence[str] = STREAMS,
    methods: Sequence[str] = tuple(METHODS),
    *,
    fresh: bool = False,
    load: Callable[[str], Split] | None = None,
    progress: Any = None,
) -> list[dict[str, Any]]:
    """Run methods on data sets with many labels; what has a record already is not run again."""
    kept = {record["key"]: record for record in read_folder(folder)}
    done: list[dict[str, Any]] = []
    for name in streams:
        split = (load or _split)(name)
        for method in methods:
            if progress is not None:
                progress(len(done), len(streams) * len(methods), f"{method} on {name}")
            key = key_of({"stream": name, "method": method, "n_train": split.n_train})
            record = None if fresh else kept.get(key)
            if record is None:
                record = {"key": key, "part": "extreme", "stream": name, "method": method}
                record |= _measured(method, split)
                add_record(Path(folder) / f"{name}.jsonl", record)
            done.append(record)
    return done


def _measured(method: str, split: Split) -> dict[str, Any]:
    start = process_time()
    failed, precision = None, None
    try:
        found = METHODS[method](split)
        precision = [found[f"precision_at_{k}"] for k in DEPTHS]
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"[:200]
    return {
        "n_train": split.n_train,
        "n_test": len(split.Y) - split.n_train,
        "precision": precision,
        "failed": failed,
        "seconds": process_time() - start,
        "versions": versions("napkinxc"),
    }


def _split(name: str) -> Split:
    stream, n_train = load_stream(name), data.DATASETS[name].n_train
    assert n_train is not None
    return Split(stream.X, np.asarray(stream.Y), n_train)


def extreme_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Return precision at 1, 3 and 5 of what was run and of what was published, in per cent."""
    rows = []
    for name in dict.fromkeys(record["stream"] for record in records):
        for record in (r for r in records if r["stream"] == name):
            cells = (
                [f"{100 * value:.1f}" for value in record["precision"]]
                if record["precision"]
                else [str(record["failed"]).split(":")[0], "-", "-"]
            )
            rows.append((name, record["method"], *cells, f"{record['seconds']:.0f}"))
        for method, values in PUBLISHED.get(name, {}).items():
            rows.append((name, f"{method}, published", *(f"{v:.1f}" for v in values), "-"))
    note = (
        "Learnt: the first rows, as many as in the repository's split. That they are the same rows "
        "could not be checked. Seconds of processor time, learning and predicting."
    )
    head = ("data set", "method", *(f"P@{k}" for k in DEPTHS), "seconds")
    return Table(head, tuple(rows), note)
