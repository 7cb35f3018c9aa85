"""Data sets back to files: what the readers of this package read again as the same data.

Floats are written in the shortest form that reads back exactly. A label that is not known is ``?``
in ARFF and an empty cell in CSV; LIBSVM and JSON Lines cannot say it of a single label, and so
refuse it. A missing feature is treated likewise.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from tagstream.data.dataset import Dataset

__all__ = ["write_arff", "write_csv", "write_jsonl", "write_libsvm"]

_PLAIN = re.compile(r"[A-Za-z0-9_.:;/=+*#&~^<>()|\[\]-]+")


def write_arff(data: Dataset, path: str | os.PathLike[str]) -> None:
    """Write ARFF, sparse if ``data.X`` is, with MEKA's ``-C`` for the labels, which come first."""
    q = len(data.label_names)
    split = "" if data.n_train is None else f" -split-number {data.n_train}"
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(f"@relation {_quote(f'{data.name}: -C {q}{split}')}\n\n")
        file.writelines(f"@attribute {_quote(name)} {{0,1}}\n" for name in data.label_names)
        file.writelines(f"@attribute {_quote(name)} numeric\n" for name in _feature_names(data))
        file.write("\n@data\n")
        for labels, x in zip(_label_cells(data, "?"), _rows(data), strict=True):
            cells = [*labels, *("?" if cell == "nan" else cell for cell in x.values())]
            if sparse.issparse(data.X):
                entries = {j: cell for j, cell in enumerate(labels) if cell != "0"}
                entries |= {q + j: "?" if cell == "nan" else cell for j, cell in x.items()}
                file.write("{" + ",".join(f"{j} {cell}" for j, cell in entries.items()) + "}\n")
            else:
                file.write(",".join(cells) + "\n")


def write_libsvm(data: Dataset, path: str | os.PathLike[str]) -> None:
    """Write the XMLC dialect of LIBSVM: a header, indices from 0, labels by number."""
    if data.known is not None:
        raise ValueError("all labels must be known to be written as LIBSVM, got unknown ones")
    if not np.isfinite(data.X.data if sparse.issparse(data.X) else data.X).all():
        raise ValueError("X must be finite to be written as LIBSVM, got NaN or infinity")
    n, p = data.X.shape
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(f"{n} {p} {len(data.label_names)}\n")
        for y, x in zip(data.Y, _rows(data), strict=True):
            labels = ",".join(map(str, np.flatnonzero(y).tolist()))
            entries = (f"{j}:{cell}" for j, cell in x.items() if float(cell) != 0)
            file.write(f"{labels} {' '.join(entries)}\n")


def write_csv(data: Dataset, path: str | os.PathLike[str]) -> None:
    """Write one column per feature and then one per label, under a header line."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*_feature_names(data), *data.label_names])
        dense = ["0.0"] * data.X.shape[1]
        for labels, x in zip(_label_cells(data, ""), _rows(data), strict=True):
            cells = dense.copy()
            for j, cell in x.items():
                cells[j] = "" if cell == "nan" else cell
            writer.writerow([*cells, *labels])


def write_jsonl(data: Dataset, path: str | os.PathLike[str]) -> None:
    """Write one record per line, ``x`` a list, or a mapping of names if ``data.X`` is sparse."""
    names = _feature_names(data)
    if data.known is not None and (data.known.any(axis=1) != data.known.all(axis=1)).any():
        raise ValueError("a row's labels must be known, all or none, to be written as JSON Lines")
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for i, (tags, x) in enumerate(zip(data.label_sets, _rows(data), strict=True)):
            record: dict[str, Any] = {} if data.ids is None else {"id": data.ids[i]}
            values = {j: float(cell) for j, cell in x.items()}
            is_sparse = sparse.issparse(data.X)
            record["x"] = (
                {names[j]: v for j, v in values.items()} if is_sparse else [*values.values()]
            )
            if tags is not None:
                record["y"] = tags
            file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")


def _feature_names(data: Dataset) -> tuple[str, ...]:
    return data.feature_names or tuple(f"x{j}" for j in range(data.X.shape[1]))


def _rows(data: Dataset) -> Iterator[dict[int, str]]:
    """Yield each row's entries as text by column, all of them or, if sparse, the stored ones."""
    if not sparse.issparse(data.X):
        for row in data.X:
            yield dict(enumerate(map(repr, row.tolist())))
        return
    X = sparse.csr_matrix(data.X)
    for start, stop in zip(X.indptr, X.indptr[1:], strict=False):
        columns, values = X.indices[start:stop].tolist(), X.data[start:stop].tolist()
        yield dict(sorted(zip(columns, map(repr, values), strict=True)))


def _label_cells(data: Dataset, unknown: str) -> Iterator[list[str]]:
    for i, y in enumerate(data.Y):
        cells = list(map(str, y.tolist()))
        if data.known is not None:
            for j in np.flatnonzero(~data.known[i]):
                cells[j] = unknown
        yield cells


def _quote(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    for raw, code in (("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        escaped = escaped.replace(raw, code)
    return f"'{escaped}'"
