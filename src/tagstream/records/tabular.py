"""Tables with a header line (CSV, TSV, semicolons), and plain lines of text.

The readers take a path, an open file, or ``"-"`` for standard input, and hand out a batch as soon
as it is full: with ``chunk=1`` every record is passed on before the next one is read.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from tagstream.checks import DataError
from tagstream.records.arff_header import short, to_number
from tagstream.records.dataset import Batch, Items, LabelSet
from tagstream.records.lines import Lines, Source
from tagstream.records.record import IdsField, read_tag, split_tags

__all__ = ["Place", "batches_of_table", "find_delimiter", "iter_csv", "iter_lines"]

_DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon"}
_QUOTED = re.compile(
    r'"[^"]*"|(?:^|(?<=[,\t;]))"[^"]*$'
)  # the last cell may go on in the next line
_BETWEEN_TAGS = re.compile(r"[,;|]")
_LIST = re.compile(r"""\[\s*["'\]]""")  # how a list of strings begins in JSON and in Python
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
_UNKNOWN = ("", "?")
Labels: TypeAlias = "Sequence[str] | str | int | Literal[False] | None"

_MAX_BATCH = 1 << 24  # bytes of records after which a batch is handed out
MAX_CELL = 1 << 24  # characters; as long as a line may be


def iter_lines(source: Source, *, encoding: str | None = None, chunk: int = 256) -> Iterator[Batch]:
    """Read plain text, one record per line, without labels.

    An empty line is an empty text, so that the n-th record is the n-th line.

    Parameters
    ----------
    source : path, file object, or "-" for standard input
        Plain, gzip or bzip2.
    encoding : str or None
        See `iter_jsonl`.
    chunk : int
        Records per batch.

    Yields
    ------
    Batch
        At most ``chunk`` records.

    Examples
    --------
    >>> import io
    >>> [batch.items for batch in iter_lines(io.BytesIO(b"Low tide\\nRain"), chunk=1)]
    [['Low tide'], ['Rain']]
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    with Lines(source, encoding, guess=True) as lines:
        while block := lines.take(chunk):
            first = lines.number - len(block) + 1
            texts = [
                lines.decode(line, number).rstrip("\r\n")
                for number, line in enumerate(block, first)
            ]
            yield Batch(texts, [None] * len(texts))


def iter_csv(
    source: Source,
    *,
    labels: Labels = None,
    sep: str | None = None,
    text: str | None = None,
    ids: IdsField = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    chunk: int = 256,
    missing: float = math.nan,
) -> Iterator[Batch]:
    """Read comma-separated values with a header line in batches.

    Blanks around the names of columns and around tags are taken off.

    Parameters
    ----------
    source : path, file object, or "-" for standard input
        Plain, gzip or bzip2.
    labels : sequence of str, str, int, or None
        Which columns are labels. Names; or one prefix that the names share; or a number of columns,
        the first ones if positive, the last ones if negative. Their cells are 0 or 1; an empty cell
        or ``?`` means unknown. The name of one column whose first value is no number: each cell is
        one tag. With ``sep``: the name of the one column that holds the tags. None or False: labels
        are not read.
    sep : str or None
        What separates the tags within the column ``labels``. An empty cell is an empty set.
    text : str or None
        The column whose texts are the items. With one, columns that are neither labels nor
        identifiers are ignored. None: they must be numbers, and are the features; but if the first
        value of a column ``text`` is no number, ``text`` and ``y`` are read as in JSON Lines, where
        nothing else is said.
    ids : str, False or None
        The column with the records' identifiers; an empty cell is none. None: the column that is
        called ``id``, if there is one and it is no label. False: identifiers are not read.
    delimiter : str or None
        What stands between the cells. None: a comma, a tab or a semicolon, as the header line has
        it.
    encoding : str or None
        See `iter_jsonl`.
    chunk : int
        Records per batch.
    missing : float
        What stands for an empty cell or a ``?`` among the features.

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
    >>> batch.items.tolist(), batch.label_sets
    ([[1.5], [2.0]], [('sea', 'sun'), ()])
    >>> batch, = iter_csv(io.StringIO("body;tag\\nLow tide;sea\\n"), text="body", labels="tag")
    >>> batch.items, batch.label_sets
    (['Low tide'], [('sea',)])
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ValueError(f"delimiter must be one character, no quote, got {delimiter!r}")
    # of the whole process, so it is only ever raised: long texts would be refused
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL))
    with Lines(source, encoding, guess=True) as lines:
        rows = csv_rows(lines, delimiter)
        yield from batches_of_table(lines, rows, labels, sep, text, ids, missing, chunk)


class Place(Protocol):
    """Where a table is being read, for messages."""

    number: int

    def error(self, message: str, number: int | None = None) -> DataError:
        """Return an error that names the place."""


def batches_of_table(
    lines: Place,
    rows: Iterator[list[str]],
    labels: Labels,
    sep: str | None,
    text: str | None,
    ids: IdsField,
    missing: float,
    chunk: int,
) -> Iterator[Batch]:
    """Turn the rows of a table, the names of the columns first, into batches; see `iter_csv`."""
    if sep is not None and not (isinstance(labels, str) and sep):
        raise ValueError("sep must come with labels, the name of the column that holds the tags")
    header = next(rows, None)
    if header is None:
        raise lines.error("must not be empty")
    reader = _TableReader(lines, header, labels, sep, text, ids, missing)
    n_bytes = 0
    for row in rows:
        n_bytes += reader.add(row)
        if len(reader.items) == chunk or n_bytes > _MAX_BATCH:
            yield reader.batch()
            n_bytes = 0
    if reader.items:
        yield reader.batch()


def find_delimiter(header: str) -> str:
    """Return what stands between the names of a header line: a comma, a tab or a semicolon.

    Examples
    --------
    >>> find_delimiter('id;"text, plain";tags'), find_delimiter('"x","a;;b')
    (';', ',')
    """
    unquoted = _QUOTED.sub("", header)
    return max(_DELIMITERS, key=unquoted.count)


def csv_rows(lines: Lines, delimiter: str | None) -> Iterator[list[str]]:
    """Yield the rows of a table that are not empty, the names of its columns first."""
    texts = (lines.decode(line) for line in lines)
    first = next((text for text in texts if text.strip()), None)
    if first is None:
        return
    delimiter = find_delimiter(first) if delimiter is None else delimiter
    rows = csv.reader(chain([first], texts), strict=True, delimiter=delimiter)
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            kind = _DELIMITERS.get(delimiter, repr(delimiter))
            raise lines.error(
                f"must be {kind}-separated values, got {error}; is there a lone quote in a cell?"
            ) from error
        if row:
            yield row


class _TableReader:
    """Knows what each column is for, and turns rows into batches."""

    def __init__(
        self,
        lines: Place,
        header: list[str],
        labels: Labels,
        sep: str | None,
        text: str | None,
        ids: IdsField,
        missing: float,
    ) -> None:
        self.lines, self.sep, self.missing = lines, sep, missing
        self.names = header = [name.strip() for name in header]
        self._check_names(may_be_empty=text is not None or "text" in header)
        self.labels = self._find_labels(labels)
        # Whether the labels are the words of one column; None: its first value will tell.
        self.has_words: bool | None = sep is not None
        if sep is None and [header[j] for j in self.labels] == [labels]:
            self.has_words = None
        self.text = None if text is None else self._find(text)
        self.ids = self._find_ids(ids)
        other = {*self.labels, self.text, self.ids}
        self.features = [j for j in range(len(header)) if j not in other]
        if self.text is None and not self.features:
            raise lines.error("must have a column that is a feature")
        if self.sep is None:
            for j in self.labels:
                read_tag(header[j], lines.error, lines.number)
        self._may_have_text = self.text is None and "text" in self._names(self.features)
        self._may_have_y = labels is None
        self._clear()

    def _check_names(self, may_be_empty: bool) -> None:
        """Refuse a name that is there twice; beside texts, columns without a name are ignored."""
        twice = [name for name, n in Counter(self.names).items() if n > 1]
        if may_be_empty and twice[:1] == [""]:
            del twice[0]
        if twice:
            raise self.lines.error(f"column names must differ, got {twice[0]!r} twice")

    def _look_for_text(self, row: list[str]) -> None:
        """Take the columns that are called as in JSON Lines, if ``text`` holds no number."""
        cell = row[self.names.index("text")].strip()
        if cell in _UNKNOWN or to_number(cell) is not None:
            return
        self.text = self._find("text")
        if self._may_have_y and "y" in self.names:
            self.labels, self.has_words = [self._find("y")], None

    def _clear(self) -> None:
        self.items: list[Any] = []
        self.label_sets: list[LabelSet | None] = []
        self.unknown: list[LabelSet] = []
        self.identifiers: list[str | None] = []

    def _find(self, name: str) -> int:
        if name not in self.names:
            raise self.lines.error(
                f"the columns must include {name!r}, got {short(', '.join(self.names))}"
            )
        return self.names.index(name)

    def _find_ids(self, ids: IdsField) -> int | None:
        if isinstance(ids, str):
            return self._find(ids)
        taken = {*self.labels, self.text}
        called = [j for j, name in enumerate(self.names) if name == "id" and j not in taken]
        return called[0] if called and ids is None else None

    def _find_labels(self, labels: Labels) -> list[int]:
        if labels is None or labels is False:
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

    def add(self, row: list[str]) -> int:
        """Take in a row, or refuse it; return its size.

        A row is read to its end before the next one, so that the first bad line is blamed.
        """
        if len(row) != len(self.names):
            raise self.lines.error(f"a row must have {len(self.names)} values, got {len(row)}")
        if self._may_have_text:
            self._may_have_text = False
            self._look_for_text(row)
        labels, unknown = self._read_labels(row)
        item: Any = [self._number(row[j], j) for j in self.features] if self.text is None else None
        self.items.append(item if self.text is None else row[self.text])
        self.label_sets.append(labels)
        self.unknown.append(unknown)
        if self.ids is not None:
            name = row[self.ids]
            self.identifiers.append(name if name.strip() else None)
        return sum(map(len, row))

    def batch(self) -> Batch:
        """Return what was taken in since the last batch."""
        items: Items = self.items
        if self.text is None:
            items = np.array(self.items, dtype=np.float64)
        has_columns = bool(self.labels) and self.has_words is False
        batch = Batch(
            items=items,
            label_sets=self.label_sets,
            unknown=self.unknown if any(self.unknown) else None,
            ids=None if self.ids is None else tuple(self.identifiers),
            feature_names=None if self.text is not None else self._names(self.features),
            label_names=self._names(self.labels) if has_columns else None,
        )
        self._clear()
        return batch

    def _names(self, columns: list[int]) -> tuple[str, ...]:
        return tuple(self.names[j] for j in columns)

    def _number(self, cell: str, j: int) -> float:
        cell = cell.strip()
        if cell in _UNKNOWN:
            return self.missing
        value = to_number(cell)
        if value is None:
            hint = "if it is no feature, say text, ids or labels (--text, --ids or --labels)"
            if _DECIMAL_COMMA.fullmatch(cell):
                hint = "write decimals with a point"
            raise self.lines.error(
                f"column {self.names[j]!r} must be a finite number, got {short(cell)!r}; {hint}"
            )
        return value

    def _read_labels(self, row: list[str]) -> tuple[LabelSet | None, LabelSet]:
        """Return the labels that apply and those of which it is not known."""
        if not self.labels:
            return None, ()
        if self.has_words is not False:
            first = row[self.labels[0]].strip()
            if self.sep is None and first in _UNKNOWN:
                return None, ()
            if self.has_words is None:
                self.has_words = to_number(first) is None
            if self.has_words:
                return self._read_tags(first), ()
        yes, unknown = [], []
        for j in self.labels:
            cell = row[j].strip()
            value = 0.0 if cell == "0" else to_number(cell)
            if cell in _UNKNOWN:
                unknown.append(self.names[j])
            elif value not in {0.0, 1.0}:
                hint = f"if its values are tags, {self._how_to_split(j)}"
                raise self.lines.error(
                    f"label {self.names[j]!r} must be 0 or 1, got {short(cell)!r}; {hint}"
                )
            elif value:
                yes.append(self.names[j])
        if len(unknown) == len(self.labels):
            return None, ()
        return tuple(yes), tuple(unknown)

    def _read_tags(self, cell: str) -> LabelSet:
        """Return the tags of a cell: one of them, unless it was said what separates several."""
        (j,) = self.labels
        if _LIST.match(cell):
            raise self.lines.error(
                f"column {self.names[j]!r} must hold tags as they are, got a list {short(cell)!r}; "
                "write them as sea|sun, or as JSON Lines"
            )
        if self.sep is not None:
            return split_tags(cell, self.sep)
        several = _BETWEEN_TAGS.search(cell)
        if several is not None:
            hint = f"if these are several, {self._how_to_split(j, several.group())}"
            raise self.lines.error(
                f"column {self.names[j]!r} must hold one tag, got {short(cell)!r}; {hint}"
            )
        return (cell,)

    def _how_to_split(self, j: int, sep: str = ",") -> str:
        name = self.names[j]
        return f"say labels={name!r} and sep (--labels {name!r} --sep {sep!r})"
