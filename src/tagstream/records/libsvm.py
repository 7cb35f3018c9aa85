"""Multi-label LIBSVM files, plain and in the dialect of the extreme classification repository.

A line is ``label,label index:value index:value``; a line that starts with a space has no labels.
Indices count from 1, and a trailing ``# comment`` is ignored. The extreme classification
repository (XMLC) adds a first line ``n_points n_features n_labels`` and counts from 0. Labels are
integers; their names are those integers as text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np
from scipy import sparse

from tagstream.checks import DataError
from tagstream.records.arff_header import short
from tagstream.records.dataset import Batch, LabelSet
from tagstream.records.lines import Lines, Source

__all__ = ["iter_libsvm"]

_HEADER = re.compile(rb"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s*", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
# A few bytes can declare billions: what a model makes of them would be gigabytes.
_MAX_FEATURES = 2**24  # unless the caller says more
_MOST_FEATURES = 2**31 - 1  # what a CSR matrix of scipy can hold in its usual integers
_MAX_LABELS = 2**20  # in a header


def iter_libsvm(
    source: Source,
    *,
    chunk: int = 1024,
    n_features: int | None = None,
    zero_based: bool | None = None,
) -> Iterator[Batch]:
    """Read a multi-label LIBSVM file in chunks of bounded size.

    Parameters
    ----------
    source : path, file object, or "-" for standard input
        Plain, gzip or bzip2.
    chunk : int
        Records per batch.
    n_features : int or None
        The number of columns. None: what the header says; without a header, the largest
        index seen so far, so that later batches can be wider. More than 16,777,216 must be said
        here.
    zero_based : bool or None
        Whether indices count from 0. None: yes with a header, no without.

    Yields
    ------
    Batch
        At most ``chunk`` records, ``items`` in CSR form; ``label_names`` is set if there is a
        header.

    Raises
    ------
    DataError
        Naming path and line, when the file breaks a rule of the format.

    Examples
    --------
    >>> import io
    >>> batch, = iter_libsvm(io.BytesIO(b"3,7 1:0.5 4:2\\n 2:1\\n"))
    >>> batch.items.toarray().tolist(), batch.label_sets
    ([[0.5, 0.0, 0.0, 2.0], [0.0, 1.0, 0.0, 0.0]], [('3', '7'), ()])
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    if n_features is not None and not 1 <= n_features <= _MOST_FEATURES:
        raise ValueError(f"n_features must be from 1 to {_MOST_FEATURES}, got {n_features}")
    with Lines(source) as lines:
        block, n_records, n_labels = lines.take(chunk), None, None
        header = _HEADER.fullmatch(block[0]) if block else None
        if header:
            n_records, declared, n_labels = (int(group) for group in header.groups())
            if n_features not in (None, declared):
                raise lines.error(
                    f"must have {n_features} features, got a header with {declared}", 1
                )
            if n_features is None and declared > _MAX_FEATURES:
                raise lines.error(
                    f"must have at most {_MAX_FEATURES} features, got a header with {declared}; "
                    "if it is so, say n_features (--features)",
                    1,
                )
            if n_labels > _MAX_LABELS:
                raise lines.error(
                    f"must have at most {_MAX_LABELS} labels, got a header with {n_labels}; "
                    "without the header, labels are read as they occur",
                    1,
                )
            n_features, block = declared, block[1:] or lines.take(chunk)
        if zero_based is None:
            zero_based = header is not None
        reader = _Reader(lines, n_features, n_labels, zero_based)
        n_read = 0
        while block:
            number = lines.number - len(block) + 1
            rows = [(i, line) for i, line in enumerate(block, number) if line.rstrip(b"\r\n")]
            batch = reader.read(rows)
            n_read += len(batch.label_sets)
            if batch.label_sets:
                yield batch
            block = lines.take(chunk)
        if n_records not in (None, n_read):
            raise lines.error(f"must have {n_records} records as the header says, got {n_read}")


class _Reader:
    """Turns the records of one file into batches.

    Parameters
    ----------
    lines : Lines
        For its path, in error messages.
    n_features, n_labels : int or None
    zero_based : bool
    """

    def __init__(
        self, lines: Lines, n_features: int | None, n_labels: int | None, zero_based: bool
    ) -> None:
        self.lines = lines
        self.n_features = n_features
        self.n_labels = n_labels
        self.base = 0 if zero_based else 1
        self.width = n_features or 0
        self.label_names = None if n_labels is None else tuple(map(str, range(n_labels)))

    def read(self, rows: list[tuple[int, bytes]]) -> Batch:
        """Return the records, given with their line numbers."""
        label_sets: list[LabelSet | None] = []
        indptr, columns, values = [0], [], []
        for number, line in rows:
            text = line.partition(b"#")[0]
            if not text.strip() and b"#" in line:
                continue
            labels, entries = self._split(text, number)
            label_sets.append(self._labels(labels, number))
            row = self._entries(entries, number)
            for j in sorted(row):
                columns.append(j)
                values.append(row[j])
            indptr.append(len(columns))
            if row:
                self.width = max(self.width, columns[-1] + 1)
        X = sparse.csr_matrix(
            (np.array(values, dtype=np.float64), np.array(columns, dtype=np.int32), indptr),
            shape=(len(label_sets), self.width),
        )
        return Batch(X, label_sets, label_names=self.label_names)

    def _split(self, text: bytes, number: int) -> tuple[bytes, list[bytes]]:
        """Return the labels and the entries of a record."""
        if text.translate(None, b"0123456789+-.eE,: \t\r\n"):
            self.lines.decode(text, number)
            raise self._error(text, number)
        fields = text.split()
        if fields and b":" not in fields[0] and text[:1] not in {b" ", b"\t"}:
            return fields[0], fields[1:]
        return b"", fields

    def _labels(self, text: bytes, number: int) -> LabelSet:
        labels = text.decode().split(",") if text else []
        for label in labels:
            if not _INTEGER.fullmatch(label):
                raise self.lines.error(f"a label must be an integer, got {short(label)!r}", number)
            if self.n_labels is not None and not 0 <= int(label) < self.n_labels:
                raise self.lines.error(
                    f"a label must be from 0 to {self.n_labels - 1} (see the header), got {label}",
                    number,
                )
        return tuple(dict.fromkeys(str(int(label)) for label in labels))

    def _entries(self, entries: list[bytes], number: int) -> dict[int, float]:
        """Return the columns and values of a record; zeros are left out."""
        row: dict[int, float] = {}
        for entry in entries:
            index, _, text = entry.partition(b":")
            try:
                j, value = int(index) - self.base, float(text)
            except ValueError:
                raise self._error(entry, number) from None
            if not 0 <= j < (self.n_features or _MAX_FEATURES):
                highest = (self.n_features or _MAX_FEATURES) - 1 + self.base
                raise self.lines.error(
                    f"an index must be from {self.base} to {highest}, got {index.decode()}; "
                    + (
                        "if there are so many features, say n_features (--features)"
                        if j > highest and self.n_features is None
                        else "do indices count from 0 or from 1 (zero_based)?"
                    ),
                    number,
                )
            if j in row:
                raise self.lines.error(
                    f"an index must not be repeated, got {index.decode()} twice", number
                )
            if not math.isfinite(value):
                raise self._error(entry, number)
            row[j] = value
        return {j: value for j, value in row.items() if value}

    def _error(self, text: bytes, number: int) -> DataError:
        found = short(text.decode("utf-8").strip())
        hint = (
            "; if these are texts, say format='lines' (--format lines)"
            if text.strip()[:1].isalpha()
            else ""
        )
        return self.lines.error(
            "a record must be 'label,label index:value ...' in finite numbers, "
            f"got {found!r}{hint}",
            number,
        )
