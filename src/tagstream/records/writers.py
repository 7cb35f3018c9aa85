"""Data sets and records back to files: what the readers of this package read again as the same.

Floats are written in the shortest form that reads back exactly. A label that is not known is ``?``
in ARFF and an empty cell in CSV; LIBSVM and JSON Lines cannot say it of a single label, and so
refuse it. A missing feature is treated likewise. Texts stay texts, in CSV and JSON Lines; named
values get a column each.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from tagstream.records.dataset import Batch, Dataset, LabelSet, collect

__all__ = ["join_tags", "write_arff", "write_csv", "write_jsonl", "write_libsvm"]

_PLAIN = re.compile(r"[A-Za-z0-9_.:;/=+*#&~^<>()|\[\]-]+")
_SEPARATORS = "|;/,\t"  # what may stand between tags
_MAX_CELLS = 1 << 25  # cells of a table that sparse rows may grow into: about 130 MB


def write_arff(data: Dataset | Batch, path: str | os.PathLike[str]) -> None:
    """Write ARFF, sparse if the rows are, with MEKA's ``-C`` for the labels, which come first."""
    data = _as_dataset(data, "ARFF")
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


def write_libsvm(data: Dataset | Batch, path: str | os.PathLike[str]) -> None:
    """Write the XMLC dialect of LIBSVM: a header, indices from 0, labels by number."""
    data = _as_dataset(data, "LIBSVM")
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


def write_csv(
    data: Dataset | Batch,
    path: str | os.PathLike[str],
    *,
    delimiter: str = ",",
    sep: str = "|",
) -> None:
    """Write a table under a header line.

    Rows of numbers get one column per feature and then one per label. Texts get the columns ``id``
    (if they have identifiers), ``text`` and ``tags``, in which ``sep`` separates the tags; a tag
    that contains it is refused.
    """
    if isinstance(data, Batch) and _is_text(data):
        table = _text_table(data, sep)
    else:
        table = _number_table(_as_dataset(data, "CSV"))
    header = next(table)  # refuses before the file is touched
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        if set(",\t;") & set("".join(header)):  # a reader finds the delimiter outside of quotes
            csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerow(header)
        else:
            writer.writerow(header)
        writer.writerows(table)


def _number_table(data: Dataset) -> Iterator[list[str]]:
    n, p = data.X.shape
    if sparse.issparse(data.X) and n * p > _MAX_CELLS:
        raise ValueError(
            f"sparse rows must have at most {_MAX_CELLS:,} cells to be written as CSV, "
            f"got {n:,} rows of {p:,}; ARFF, LIBSVM and JSON Lines can hold them"
        )
    yield [*_feature_names(data), *data.label_names]
    empty = ["0.0"] * p
    for labels, x in zip(_label_cells(data, ""), _rows(data), strict=True):
        cells = empty.copy()
        for j, cell in x.items():
            cells[j] = "" if cell == "nan" else cell
        yield [*cells, *labels]


def _text_table(batch: Batch, sep: str) -> Iterator[list[str]]:
    has_labels = any(labels is not None for labels in batch.label_sets)
    if has_labels and (None in batch.label_sets or batch.unknown):
        raise ValueError(
            "all labels must be known to be written as a column of tags, got unknown ones; "
            "JSON Lines can hold records without labels"
        )
    _check_separator(sorted({tag for tags in batch.label_sets for tag in tags or ()}), sep)
    cells = [sep.join(labels or ()) for labels in batch.label_sets]
    yield [*(["id"] if batch.ids else []), "text", *(["tags"] if has_labels else [])]
    for i, text in enumerate(batch.items):
        name = [] if batch.ids is None else ["" if batch.ids[i] is None else str(batch.ids[i])]
        yield [*name, str(text), *([cells[i]] if has_labels else [])]


def join_tags(tags: Iterable[str], sep: str = "|") -> str:
    """Return tags as one string, if it can be taken apart again.

    Examples
    --------
    >>> join_tags(["sea", "sun"])
    'sea|sun'
    >>> join_tags(["sea|lake"])
    Traceback (most recent call last):
    ValueError: a tag must not contain the separator '|', got 'sea|lake'; ';' would do (--sep)
    """
    tags = [*tags]
    _check_separator(tags, sep)
    return sep.join(tags)


def _check_separator(tags: Collection[str], sep: str) -> None:
    for tag in tags:
        if sep in tag:
            other = next((s for s in _SEPARATORS if not any(s in tag for tag in tags)), None)
            hint = "JSON Lines can hold it" if other is None else f"{other!r} would do (--sep)"
            raise ValueError(f"a tag must not contain the separator {sep!r}, got {tag!r}; {hint}")


def write_jsonl(data: Dataset | Batch, path: str | os.PathLike[str]) -> None:
    """Write one record per line.

    Texts are ``text``, named values a mapping ``x``; rows of numbers are a list ``x``, or a mapping
    of names if they are sparse.
    """
    batch = data if isinstance(data, Batch) else data.as_batch()
    if batch.unknown:
        raise ValueError("a row's labels must be known, all or none, to be written as JSON Lines")
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for i, (item, tags) in enumerate(zip(_values(batch), batch.label_sets, strict=True)):
            record: dict[str, Any] = {}
            if batch.ids is not None and batch.ids[i] is not None:
                record["id"] = batch.ids[i]
            record["text" if isinstance(item, str) else "x"] = item
            if tags is not None:
                record["y"] = tags
            file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")


def _values(batch: Batch) -> Iterator[Any]:
    """Yield each record's text or values, as JSON has them."""
    if isinstance(batch.items, list):
        yield from batch.items
    elif sparse.issparse(batch.items):
        names = batch.feature_names or tuple(f"x{j}" for j in range(batch.items.shape[1]))
        for columns, values in _entries(batch.items):
            yield {names[j]: value for j, value in sorted(zip(columns, values, strict=True))}
    else:
        yield from batch.items.tolist()


def _is_text(batch: Batch) -> bool:
    return isinstance(batch.items, list) and isinstance(batch.items[0], str)


def _as_dataset(data: Dataset | Batch, format: str) -> Dataset:
    """Return rows of numbers; named values get a column each, texts are refused."""
    if isinstance(data, Dataset):
        return data
    if _is_text(data):
        raise ValueError(
            f"records must be numbers to be written as {format}, got texts; "
            "CSV, TSV and JSON Lines can hold them"
        )
    if isinstance(data.items, list):
        X, names = _named_columns(data.items)
        data = replace(data, items=X, feature_names=names)
    return collect([data], path="", name="")


def _named_columns(items: list[Any]) -> tuple[sparse.csr_matrix, LabelSet]:
    """Return named values as sparse rows; a word is a column of its own, 0 or 1."""
    rows = [
        {f"{k}={v}" if isinstance(v, str) else k: 1.0 if isinstance(v, str) else v}
        for item in items
        for k, v in item.items()
    ]
    names = tuple(sorted({name for row in rows for name in row}))
    column = {name: j for j, name in enumerate(names)}
    values = [float(value) for row in rows for value in row.values()]
    columns = [column[name] for row in rows for name in row]
    indptr = np.cumsum([0, *map(len, items)])
    X = sparse.csr_matrix((values, columns, indptr), shape=(len(items), len(names)))
    X.sum_duplicates()
    return X, names


def _feature_names(data: Dataset) -> tuple[str, ...]:
    return data.feature_names or tuple(f"x{j}" for j in range(data.X.shape[1]))


def _rows(data: Dataset) -> Iterator[dict[int, str]]:
    """Yield each row's entries as text by column, all of them or, if sparse, the stored ones."""
    if not sparse.issparse(data.X):
        for row in data.X:
            yield dict(enumerate(map(repr, row.tolist())))
        return
    for columns, values in _entries(data.X):
        yield dict(sorted(zip(columns, map(repr, values), strict=True)))


def _entries(X: sparse.csr_matrix) -> Iterator[tuple[list[int], list[float]]]:
    X = sparse.csr_matrix(X)
    for start, stop in zip(X.indptr, X.indptr[1:], strict=False):
        yield X.indices[start:stop].tolist(), X.data[start:stop].tolist()


def _label_cells(data: Dataset, unknown: str) -> Iterator[list[str]]:
    for y in data.Y:
        yield [unknown if value != value else "1" if value else "0" for value in y.tolist()]


def _quote(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    for raw, code in (("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        escaped = escaped.replace(raw, code)
    return f"'{escaped}'"
