"""CSV and JSON Lines: the formats a stream of records usually comes in.

Both readers take a path, an open file, or ``"-"`` for standard input, and hand out a batch as soon
as it is full: with ``chunk=1`` every record is passed on before the next one is read. The set of
labels need not be known; each record carries its own.

Text, and features that come as a mapping, are hashed into a fixed number of columns, so a word
never seen before has its place at once and nothing has to be fitted. `Hashing` holds the few
numbers that decide where; a model that is saved must be saved with them.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from tagstream.data.arff_header import short, to_number
from tagstream.data.dataset import Batch, LabelSet, Lines, Matrix, Source

__all__ = ["Hashing", "iter_csv", "iter_jsonl"]


@dataclass(frozen=True)
class Hashing:
    """How text and mappings become columns.

    All fields are plain JSON values: ``Hashing(**dataclasses.asdict(h)) == h``.

    Parameters
    ----------
    n_features : int
        Number of columns. Two features can fall into one column; the more columns, the rarer.
    alternate_sign : bool
        Add half of the features with a minus sign, so that on average those that share a column
        cancel instead of adding up.
    ngrams : int
        Text only: runs of up to this many words are features too.
    normalize : bool
        Text only: scale every row to unit length.

    Examples
    --------
    >>> X = Hashing(n_features=16).texts(["a quiet beach", "Quiet, quiet!"])
    >>> X.shape, X.nnz
    ((2, 16), 3)
    """

    n_features: int = 2**18
    alternate_sign: bool = True
    ngrams: int = 1
    normalize: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.n_features < 2**31:
            raise ValueError(f"n_features must be from 1 to 2**31 - 1, got {self.n_features}")
        if self.ngrams < 1:
            raise ValueError(f"ngrams must be at least 1, got {self.ngrams}")

    def texts(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Return one row per text: counts of its words, by scikit-learn's ``HashingVectorizer``."""
        from sklearn.feature_extraction.text import HashingVectorizer

        return HashingVectorizer(
            n_features=self.n_features,
            alternate_sign=self.alternate_sign,
            ngram_range=(1, self.ngrams),
            norm="l2" if self.normalize else None,
        ).transform(texts)

    def mappings(self, mappings: Sequence[dict[str, Any]]) -> sparse.csr_matrix:
        """Return one row per mapping of names to numbers or words, by ``FeatureHasher``."""
        from sklearn.feature_extraction import FeatureHasher

        return FeatureHasher(self.n_features, alternate_sign=self.alternate_sign).transform(
            mappings
        )


def iter_jsonl(
    source: Source, *, chunk: int = 256, hashing: Hashing | None = None
) -> Iterator[Batch]:
    """Read JSON Lines in batches.

    A record is ``{"id": …, "x": …, "y": ["tag", …]}``, where ``x`` is a list of numbers or a
    mapping, or has ``"text": "…"`` in place of ``x``. ``id`` and ``y`` may be absent, ``y`` may be
    null; other keys are ignored. All records must be of the kind of the first.

    Parameters
    ----------
    source : path, file object, or "-" for standard input
        Plain, gzip or bzip2.
    chunk : int
        Records per batch.
    hashing : Hashing or None
        For text and mappings; None is ``Hashing()``.

    Yields
    ------
    Batch
        At most ``chunk`` records. ``X`` is CSR for text and mappings.

    Raises
    ------
    DataError
        Naming path and line, when a line is not such a record.

    Examples
    --------
    >>> import io
    >>> stream = io.StringIO('{"id": 7, "x": [0, 1.5], "y": ["sea", "sun"]}\\n{"x": [1, 0]}\\n')
    >>> batch, = iter_jsonl(stream)
    >>> batch.X.tolist(), batch.label_sets, batch.ids
    ([[0.0, 1.5], [1.0, 0.0]], [('sea', 'sun'), None], (7, None))
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    with Lines(source) as lines:
        reader = _JsonReader(lines, hashing or Hashing())
        records: list[dict[str, Any]] = []
        for line in lines:
            if line.strip():
                records.append(reader.parse(line))
            if len(records) == chunk:
                yield reader.batch(records)
                records = []
        if records:
            yield reader.batch(records)


class _JsonReader:
    """Checks records and turns them into batches; remembers what the first record was like."""

    def __init__(self, lines: Lines, hashing: Hashing) -> None:
        self.lines = lines
        self.hashing = hashing
        self.kind: str | None = None  # "vector", "mapping" or "text"
        self.width = 0

    def parse(self, line: bytes) -> dict[str, Any]:
        text = self.lines.decode(line)
        try:
            record = json.loads(text, parse_constant=_refuse, object_pairs_hook=_without_repetition)
        except (ValueError, RecursionError) as error:
            raise self.lines.error(f"must be a JSON object, got {error}") from error
        if not isinstance(record, dict):
            raise self.lines.error(f"must be a JSON object, got {short(text.strip())!r}")
        if ("x" in record) == ("text" in record):
            raise self.lines.error('a record must have either "x" or "text"')
        kind = self._check_x(record["x"]) if "x" in record else self._check_text(record["text"])
        self.kind = self.kind or kind
        if kind != self.kind:
            raise self.lines.error(
                f"all records must have a {self.kind} like the first, got a {kind}"
            )
        self._check_y(record.get("y"))
        identifier = record.get("id")
        if isinstance(identifier, (dict, list)):
            raise self.lines.error(f"id must be a string or a number, got {identifier!r}")
        return record

    def _check_text(self, text: object) -> str:
        if not isinstance(text, str):
            raise self.lines.error(f"text must be a string, got {short(repr(text))}")
        self._check_encodable(text)
        return "text"

    def _check_x(self, x: object) -> str:
        if isinstance(x, dict):
            for name, value in x.items():
                self._check_encodable(name)
                if isinstance(value, str):
                    self._check_encodable(value)
                elif not _is_finite(value):
                    raise self.lines.error(
                        f"x must map names to finite numbers or strings, got {short(repr(value))}"
                    )
            return "mapping"
        if not isinstance(x, list) or not all(_is_finite(value) for value in x):
            raise self.lines.error(
                f"x must be a list of finite numbers or a mapping, got {short(repr(x))}"
            )
        if self.kind == "vector" and len(x) != self.width:
            raise self.lines.error(f"x must have {self.width} values, got {len(x)}")
        self.width = len(x)
        return "vector"

    def _check_y(self, y: object) -> None:
        if y is None:
            return
        if not isinstance(y, list) or not all(isinstance(tag, str) for tag in y):
            raise self.lines.error(f"y must be a list of strings, got {short(repr(y))}")
        for tag in y:
            self._check_encodable(tag)

    def _check_encodable(self, text: str) -> None:
        if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            raise self.lines.error(f"a string must be valid Unicode, got {short(ascii(text))}")

    def batch(self, records: list[dict[str, Any]]) -> Batch:
        X: Matrix
        if self.kind == "text":
            X = self.hashing.texts([record["text"] for record in records])
        elif self.kind == "mapping":
            X = self.hashing.mappings([record["x"] for record in records])
        else:
            X = np.array([record["x"] for record in records], dtype=np.float64)
            X = X.reshape(len(records), self.width)
        labels: list[LabelSet | None] = [
            None if record.get("y") is None else tuple(dict.fromkeys(record["y"]))
            for record in records
        ]
        ids = tuple(record.get("id") for record in records)
        return Batch(X, labels, ids=None if all(i is None for i in ids) else ids)


def _refuse(constant: str) -> None:
    raise ValueError(f"the number {constant}")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key that is repeated")
    return mapping


def _is_finite(value: object) -> bool:
    if not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def iter_csv(
    source: Source,
    *,
    labels: Sequence[str] | str | int | None = None,
    sep: str | None = None,
    text: str | None = None,
    ids: str | None = None,
    chunk: int = 256,
    missing: float = math.nan,
    hashing: Hashing | None = None,
) -> Iterator[Batch]:
    """Read comma-separated values with a header line in batches.

    Parameters
    ----------
    source : path, file object, or "-" for standard input
        Plain, gzip or bzip2.
    labels : sequence of str, str, int, or None
        Which columns are labels. Names; or one prefix that the names share; or a number of columns,
        the first ones if positive, the last ones if negative. Their cells are 0 or 1; an empty cell
        or ``?`` means unknown. With ``sep``: the name of the one column that holds the tags. None:
        the records have no labels.
    sep : str or None
        What separates the tags within the column ``labels``. An empty cell is an empty set.
    text : str or None
        The column whose text is hashed into ``X``. None: all columns that are neither labels nor
        identifiers must be numbers, and are the features. With a text column, those are ignored.
    ids : str or None
        The column with the records' identifiers.
    chunk : int
        Records per batch.
    missing : float
        What stands in ``X`` for an empty cell or a ``?``.
    hashing : Hashing or None
        For ``text``; None is ``Hashing()``.

    Yields
    ------
    Batch
        At most ``chunk`` records; ``label_names`` is set if labels have their own columns.

    Raises
    ------
    DataError
        Naming path and line, when the file breaks one of these rules.

    Examples
    --------
    >>> import io
    >>> stream = io.StringIO("height,tags\\n1.5,sea|sun\\n2,\\n")
    >>> batch, = iter_csv(stream, labels="tags", sep="|")
    >>> batch.X.tolist(), batch.label_sets
    ([[1.5], [2.0]], [('sea', 'sun'), ()])
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    if sep is not None and not (isinstance(labels, str) and sep):
        raise ValueError("sep must come with labels, the name of the column that holds the tags")
    with Lines(source) as lines:
        rows = _csv_rows(lines)
        header = next(rows, None)
        if header is None:
            raise lines.error("must not be empty")
        reader = _CsvReader(lines, header, labels, sep, text, ids, missing, hashing or Hashing())
        records: list[tuple[int, list[str]]] = []
        for row in rows:
            if len(row) != len(header):
                raise lines.error(f"a row must have {len(header)} values, got {len(row)}")
            records.append((lines.number, row))
            if len(records) == chunk:
                yield reader.batch(records)
                records = []
        if records:
            yield reader.batch(records)


def _csv_rows(lines: Lines) -> Iterator[list[str]]:
    rows = csv.reader((lines.decode(line) for line in lines), strict=True)
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raise lines.error(f"must be comma-separated values, got {error}") from error
        if row:
            yield row


class _CsvReader:
    """Knows what each column is for, and turns rows into batches."""

    def __init__(
        self,
        lines: Lines,
        header: list[str],
        labels: Sequence[str] | str | int | None,
        sep: str | None,
        text: str | None,
        ids: str | None,
        missing: float,
        hashing: Hashing,
    ) -> None:
        self.lines, self.sep, self.missing, self.hashing = lines, sep, missing, hashing
        if len(set(header)) < len(header):
            twice = Counter(header).most_common(1)[0][0]
            raise lines.error(f"column names must differ, got {twice!r} twice")
        self.names = header
        self.labels = self._find_labels(labels)
        self.text = None if text is None else self._find(text)
        self.ids = None if ids is None else self._find(ids)
        other = {*self.labels, self.text, self.ids}
        self.features = [j for j in range(len(header)) if j not in other]
        if self.text is None and not self.features:
            raise lines.error("must have a column that is a feature")

    def _find(self, name: str) -> int:
        if name not in self.names:
            raise self.lines.error(
                f"the columns must include {name!r}, got {short(', '.join(self.names))}"
            )
        return self.names.index(name)

    def _find_labels(self, labels: Sequence[str] | str | int | None) -> list[int]:
        if labels is None:
            return []
        if isinstance(labels, int):
            if not 0 < abs(labels) < len(self.names):
                raise self.lines.error(
                    f"the number of labels must be from 1 to {len(self.names) - 1}, got {labels}"
                )
            every = range(len(self.names))
            return list(every[:labels] if labels > 0 else every[labels:])
        if not isinstance(labels, str):
            return [self._find(name) for name in labels]
        if self.sep is not None:
            return [self._find(labels)]
        found = [j for j, name in enumerate(self.names) if name.startswith(labels)]
        if not found:
            raise self.lines.error(
                f"a column's name must start with {labels!r}, got {short(', '.join(self.names))}"
            )
        return found

    def batch(self, rows: list[tuple[int, list[str]]]) -> Batch:
        """Return the rows, given with their line numbers."""
        label_sets: list[LabelSet | None] = []
        unknown: list[LabelSet] = []
        for number, row in rows:
            yes, open_ = self._read_labels(row, number)
            label_sets.append(yes)
            unknown.append(open_)
        has_columns = bool(self.labels) and self.sep is None
        return Batch(
            X=self._read_features(rows),
            label_sets=label_sets,
            unknown=unknown if any(unknown) else None,
            ids=None if self.ids is None else tuple(row[self.ids] for _, row in rows),
            feature_names=None if self.text is not None else self._names(self.features),
            label_names=self._names(self.labels) if has_columns else None,
        )

    def _names(self, columns: list[int]) -> tuple[str, ...]:
        return tuple(self.names[j] for j in columns)

    def _read_features(self, rows: list[tuple[int, list[str]]]) -> Matrix:
        if self.text is not None:
            return self.hashing.texts([row[self.text] for _, row in rows])
        return np.array(
            [[self._number(row[j], j, number) for j in self.features] for number, row in rows],
            dtype=np.float64,
        )

    def _number(self, cell: str, j: int, number: int) -> float:
        cell = cell.strip()
        if cell in {"", "?"}:
            return self.missing
        value = to_number(cell)
        if value is None:
            raise self.lines.error(
                f"column {self.names[j]!r} must be a finite number, got {short(cell)!r}", number
            )
        return value

    def _read_labels(self, row: list[str], number: int) -> tuple[LabelSet | None, LabelSet]:
        """Return the labels that apply and those of which it is not known."""
        if not self.labels:
            return None, ()
        if self.sep is not None:
            tags = (tag.strip() for tag in row[self.labels[0]].split(self.sep))
            return tuple(dict.fromkeys(tag for tag in tags if tag)), ()
        yes, unknown = [], []
        for j in self.labels:
            value = 0.0 if row[j] == "0" else self._number(row[j], j, number)
            if row[j].strip() in {"", "?"}:
                unknown.append(self.names[j])
            elif value not in {0.0, 1.0}:
                raise self.lines.error(
                    f"label {self.names[j]!r} must be 0 or 1, got {row[j]!r}", number
                )
            elif value:
                yes.append(self.names[j])
        if len(unknown) == len(self.labels):
            return None, ()
        return tuple(yes), tuple(unknown)
