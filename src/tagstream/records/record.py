"""JSON Lines and Parquet: records with fields, whatever these are called.

A record has a text or values, and may have labels and an identifier. Both readers hand out a batch
as soon as it is full: with ``chunk=1`` every line is passed on before the next one is read. The set
of labels need not be known; each record carries its own.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, Literal, TypeAlias

import numpy as np

from tagstream.checks import DataError, half_pair, is_finite
from tagstream.records.arff_header import short
from tagstream.records.dataset import Batch, Items, LabelSet
from tagstream.records.lines import Lines, Source

__all__ = [
    "CHANGES",
    "IdsField",
    "LabelsField",
    "as_batch",
    "iter_jsonl",
    "iter_parquet",
    "read_tag",
    "split_tags",
]

LabelsField: TypeAlias = "str | Literal[False] | None"
IdsField: TypeAlias = "str | Literal[False] | None"

# How people call the field of labels; a record that has one of these and no "y" is a mistake.
_LIKE_LABELS = ("tags", "labels", "tag", "label", "categories", "category", "topics", "Y")


# What may stand between records: a change of what was learnt before, and what it must say.
CHANGES: dict[str, dict[str, type]] = {
    "forget": {"id": object},
    "rename": {"old": str, "new": str},
    "merge": {"tags": list, "into": str},
    "remove": {"tag": str},
    "declare": {"tags": dict},
    "describe": {"tag": str, "about": str},
    "refit": {},
    "exclusive": {"tags": list},
    "not_exclusive": {"tags": list},
    "promise": {"tag": str, "mode": str, "promise": float},
}


def iter_jsonl(
    source: Source,
    *,
    text: str | None = None,
    labels: LabelsField = None,
    sep: str | None = None,
    ids: IdsField = None,
    changes: bool = False,
    encoding: str | None = None,
    chunk: int = 256,
) -> Iterator[Batch]:
    """Read JSON Lines, or a JSON array of records, in batches.

    A record is ``{"id": …, "x": …, "y": ["tag", …]}``, where ``x`` is a list of numbers or a
    mapping, or has ``"text": "…"`` in place of ``x``. ``id`` and ``y`` may be absent, ``y`` may be
    null. ``"no": ["tag", …]`` names tags that the item does not have; without ``y`` the others are
    not known. Other fields are ignored. All records must be of the kind of the first. Blanks
    around a tag are taken off. An array is read as a stream, one record after the other.

    Parameters
    ----------
    source : path, file object, or "-" for standard input
        Plain, gzip or bzip2.
    text : str or None
        The field with the text. None: ``"text"``, or ``"x"`` if that is there.
    labels : str, False or None
        The field with the labels. None: ``"y"``, and a record without it that has a field such as
        ``"tags"`` is refused. False: labels are not read.
    sep : str or None
        What separates the tags where the labels are one string and not a list.
    ids : str, False or None
        The field with the identifier. None: ``"id"``. False: identifiers are not read.
    changes : bool
        Take lines such as ``{"event": "rename", "old": "sea", "new": "ocean"}`` too, of the kinds
        in ``CHANGES``. They come as records without labels and stand in the batch's ``changes``.
    encoding : str or None
        That of the file. None: UTF-8, UTF-16 if the file begins with its mark, or else cp1252, and
        then a warning is logged.
    chunk : int
        Records per batch.

    Yields
    ------
    Batch
        At most ``chunk`` records. Texts and mappings come as they are.

    Raises
    ------
    DataError
        Naming path and line (or the number of the record in an array), when a line is not such a
        record. A field that was named must be in
        the first record, so that a wrong name does not pass unnoticed.

    Examples
    --------
    >>> import io
    >>> stream = io.StringIO('{"id": 7, "x": [0, 1.5], "y": ["sea", "sun"]}\\n{"x": [1, 0]}\\n')
    >>> batch, = iter_jsonl(stream)
    >>> batch.items.tolist(), batch.label_sets, batch.ids
    ([[0.0, 1.5], [1.0, 0.0]], [('sea', 'sun'), None], (7, None))
    >>> stream = io.StringIO('{"key": 7, "body": "Low tide", "tags": "sea, sun"}\\n')
    >>> batch, = iter_jsonl(stream, text="body", labels="tags", sep=",", ids="key")
    >>> batch.items, batch.label_sets
    (['Low tide'], [('sea', 'sun')])
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    with Lines(source, encoding, guess=True, arrays=True) as lines:
        reader = _RecordReader(lines.error, text, labels, sep, ids, changes)
        while block := lines.take(chunk):
            for number, line in enumerate(block, lines.number - len(block) + 1):
                if line.strip():
                    reader.add(parse_record(line, lines, number), number)
            if reader.items:
                yield reader.batch()


def iter_parquet(
    source: str | os.PathLike[str] | IO[bytes],
    *,
    text: str | None = None,
    labels: LabelsField = None,
    sep: str | None = None,
    ids: IdsField = None,
    chunk: int = 256,
) -> Iterator[Batch]:
    """Read a Parquet file in batches; needs the extra ``tagstream[parquet]``.

    Columns are what fields are in JSON Lines.

    Parameters
    ----------
    source : path or binary file object
        A file, not a pipe: Parquet is read from its end.
    text, labels, sep, ids, chunk
        See `iter_jsonl`.

    Yields
    ------
    Batch
        At most ``chunk`` records.

    Raises
    ------
    DataError
        Naming path and row, counted from 1, when a row is not such a record.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow; install tagstream[parquet]") from error
    where = str(getattr(source, "name", "<stream>"))
    if isinstance(source, (str, os.PathLike)):
        where = os.fspath(source)

    def fail(message: str, number: int) -> DataError:
        return DataError(f"{where}:{number}: {message}" if number else f"{where}: {message}")

    reader = _RecordReader(fail, text, labels, sep, ids)
    number = first = 0  # rows that were read; the first row, once the file could be opened
    try:
        with parquet.ParquetFile(source) as file:
            names = file.schema_arrow.names
            needed = [name for name in reader.fields if name in names]
            first = 1
            # without any of them, the first row tells which fields are there
            for part in file.iter_batches(chunk, columns=needed or None):
                for record in _rows_of(part):
                    number += 1
                    reader.add({**dict.fromkeys(names), **record}, number)
                if reader.items:
                    yield reader.batch()
    except (FileNotFoundError, DataError):
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        # Arrow raises all of these for damage; a text that is no UTF-8 is found only in Python.
        what = "must be a whole Parquet file from here on" if first else "must be a Parquet file"
        raise fail(f"{what}, got {short(str(error))}", number + first) from error


def _rows_of(part: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch of Arrow; those before a damaged one come too."""
    try:
        yield from part.to_pylist()
    except ValueError:
        for i in range(part.num_rows):
            yield part.slice(i, 1).to_pylist()[0]


def parse_record(line: bytes, lines: Lines, number: int) -> dict[str, Any]:
    text = lines.decode(line, number)
    try:
        record = json.loads(text, parse_constant=_refuse, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise lines.error(_not_a_record(text.strip(), error), number) from error
    if not isinstance(record, dict):
        raise lines.error(_not_a_record(text.strip()), number)
    return record


def _not_a_record(text: str, error: Exception | None = None) -> str:
    """Return what to say of a line that is no JSON object."""
    rule = "must be one JSON object per line, got"
    if text.startswith("["):
        return f"{rule} an array; jq -c '.[]' FILE writes its objects one per line"
    if not text.startswith("{"):
        hint = "if it is plain text, say format='lines' (--format lines)"
        return f"{rule} {short(text)!r}; {hint}"
    if isinstance(error, json.JSONDecodeError):
        return f"{rule} {short(text)!r}, wrong at character {error.pos + 1}: {error.msg}"
    return f"{rule} {error}"


def _refuse(constant: str) -> None:
    raise ValueError(f"the number {constant}")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key that is repeated")
    return mapping


class _RecordReader:
    """Checks records and gathers their columns; remembers what the first record was like.

    Parameters
    ----------
    fail : callable (message, number) -> DataError
    text, labels, sep, ids, changes
        See `iter_jsonl`.
    hints : bool
        Tell how other fields are read: whoever reads a file can say so.
    """

    def __init__(
        self,
        fail: Callable[[str, int], DataError],
        text: str | None,
        labels: LabelsField,
        sep: str | None,
        ids: IdsField,
        changes: bool = False,
        hints: bool = True,
    ) -> None:
        if sep == "":
            raise ValueError("sep must not be empty")
        if not (labels is None or labels is False or isinstance(labels, str)):
            raise ValueError(f"labels must be the name of the field of labels, got {labels!r}")
        self.fail, self.hints = fail, hints
        self.text, self.labels, self.sep, self.ids = text, labels, sep, ids
        self.kind: str | None = None  # "vector", "mapping" or "text"
        self.width = 0
        self.items: list[Any] = []
        self.label_sets: list[LabelSet | None] = []
        self.names: list[Any] = []
        self._met: dict[tuple[str, ...], LabelSet] = {}  # most label sets come again and again
        self.changes: dict[int, dict[str, Any]] | None = {} if changes else None
        self.places: dict[int, str] = {}  # of the changes
        self.refused: dict[int, LabelSet] = {}

    @property
    def fields(self) -> list[str]:
        """The fields that are looked at."""
        items = ["x", "text"] if self.text is None else [self.text]
        labels = [self.labels or "y"] if self.labels is not False else []
        return [*items, *labels, *([self.ids or "id"] if self.ids is not False else [])]

    def add(self, record: dict[str, Any], number: int) -> None:
        """Take in a record, or refuse it."""
        if self.changes is not None and self._is_change(record):
            self.changes[len(self.items)] = self._change(record, number)
            self.places[len(self.items)] = str(self.fail("", number)).removesuffix(": ")
            self._append(None, None, None)
            return
        if self.kind is None:
            for field in (self.text, self.labels, self.ids):
                if field and field not in record:
                    raise self.fail(
                        f'the first record must have "{field}", {_fields_of(record)}', number
                    )
        kind, item = self._item(record, number)
        if self.kind not in (None, kind):
            raise self.fail(
                f"all records must have a {self.kind} like the first, got a {kind}", number
            )
        labels = self._label_set(record, number)
        name = None if self.ids is False else record.get(self.ids or "id")
        if isinstance(name, np.integer):
            name = int(name)
        if not isinstance(name, (str, int, float, type(None))):
            field = self.ids or "id"
            raise self.fail(
                f"{field} must be a string or a number, got {short(repr(name))}", number
            )
        if isinstance(name, str):
            self._check_encodable(name, number)
        self.kind = kind
        refused = self._refused(record, labels, number)
        if refused is not None:
            self.refused[len(self.items)] = refused
        self._append(item, labels, name)

    def _append(self, item: Any, labels: LabelSet | None, name: Any) -> None:
        self.items.append(item)
        self.label_sets.append(labels)
        self.names.append(name)

    def batch(self) -> Batch:
        """Return what was taken in since the last batch."""
        items: Items = self.items
        for i in self.changes or ():  # they have no item: an empty one keeps their place
            self.items[i] = {"vector": [0.0] * self.width, "mapping": {}}.get(self.kind or "", "")
        if self.kind == "vector":
            items = np.array(self.items, dtype=np.float64).reshape(len(self.items), self.width)
        has_names = any(name is not None for name in self.names)
        ids = tuple(self.names) if has_names else None
        batch = Batch(
            items,
            self.label_sets,
            ids=ids,
            changes=self.changes or None,
            places=self.places or None,
            refused=self.refused or None,
        )
        self.refused = {}
        self.items, self.label_sets, self.names, self._met, self.places = [], [], [], {}, {}
        self.changes = None if self.changes is None else {}
        return batch

    def _is_change(self, record: dict[str, Any]) -> bool:
        """Tell whether a record tells of a change; one that has an item has a field ``event``."""
        kind = record.get("event")
        if not isinstance(kind, str) or kind not in CHANGES:
            return False
        items = {"x", "text"} if self.text is None else {self.text}
        return not items & record.keys()

    def _change(self, record: dict[str, Any], number: int) -> dict[str, Any]:
        """Return a change, if it says what it must."""
        needed = CHANGES[record["event"]]
        given = {name: value for name, value in record.items() if name != "event"}
        if set(given) != set(needed):
            what = f"the fields {', '.join(needed)}" if needed else "no other fields"
            rule = f"{record['event']} must have {what}"
            raise self.fail(f"{rule}, {_fields_of(given)}", number)
        words: dict[type, str] = {
            list: "a list of strings",
            dict: "an object of names and descriptions",
            str: "a string",
        }
        for name, kind in needed.items():
            what = words.get(kind, "a string or a number")
            if not _is_of(given[name], kind):
                raise self.fail(f"{name} must be {what}, got {short(repr(given[name]))}", number)
        return record

    def _item(self, record: dict[str, Any], number: int) -> tuple[str, Any]:
        """Return what kind of item the record has, and the item."""
        if self.text is not None:
            if self.text not in record:
                rule = f'a record must have "{self.text}", {_fields_of(record)}'
                raise self.fail(rule, number)
            return "text", self._check_text(record[self.text], self.text, number)
        has_x, has_text = record.get("x") is not None, record.get("text") is not None
        if has_x and not has_text:
            return self._check_x(record["x"], number)
        if has_x or "text" not in record:
            hint = "" if has_x else "if another is the text, say text='FIELD' (--text FIELD)"
            rule = f'a record must have either "x" or "text", {_fields_of(record)}'
            raise self.fail(rule + self._hint(hint), number)
        return "text", self._check_text(record["text"], "text", number)

    def _check_text(self, text: object, field: str, number: int) -> str:
        if not isinstance(text, str):
            raise self.fail(f"{field} must be a string, got {short(repr(text))}", number)
        self._check_encodable(text, number)
        return text

    def _check_x(self, x: object, number: int) -> tuple[str, Any]:
        if isinstance(x, dict):
            for name, value in x.items():
                self._check_encodable(name, number)
                if isinstance(value, str):
                    self._check_encodable(value, number)
                elif not is_finite(value):
                    raise self.fail(
                        f"x must map names to finite numbers or strings, got {short(repr(value))}",
                        number,
                    )
            return "mapping", x
        if not isinstance(x, list) or not all(is_finite(value) for value in x):
            raise self.fail(
                f"x must be a list of finite numbers or a mapping, got {short(repr(x))}", number
            )
        if self.kind == "vector" and len(x) != self.width:
            raise self.fail(f"x must have {self.width} values, got {len(x)}", number)
        if self.kind is None:
            self.width = len(x)
        return "vector", x

    def _label_set(self, record: dict[str, Any], number: int) -> LabelSet | None:
        if self.labels is False:
            return None
        field = self.labels or "y"
        found = _plain_list(record.get(field))
        if isinstance(found, list):
            try:
                return self._met[tuple(found)]
            except (KeyError, TypeError):  # what is no string is refused below
                pass
        if found is None:
            like = [name for name in _LIKE_LABELS if name in record]
            if self.labels is None and field not in record and like:
                hint = f'to read "{like[0]}", say labels="{like[0]}" (--labels {like[0]})'
                rule = f'labels must be in "y", {_fields_of(record)}'
                raise self.fail(rule + self._hint(hint), number)
            return None
        if isinstance(found, str) and self.sep is not None:
            tags = split_tags(found, self.sep)
        elif isinstance(found, list) and all(isinstance(tag, str) for tag in found):
            tags = tuple(dict.fromkeys(read_tag(tag, self.fail, number) for tag in found))
        else:
            hint = "to read tags in a string, say what is between them (--sep ',')"
            rule = f"{field} must be a list of strings, got {short(repr(found))}"
            raise self.fail(rule + self._hint(hint if isinstance(found, str) else ""), number)
        for tag in tags:
            self._check_encodable(tag, number)
        if isinstance(found, list):
            self._met[tuple(found)] = tags
        return tags

    def _refused(
        self, record: dict[str, Any], labels: LabelSet | None, number: int
    ) -> LabelSet | None:
        """Return the tags that a record says it does not have; None if it does not say any."""
        found = _plain_list(record.get("no")) if self.labels is None else None
        if not isinstance(found, list) or not all(isinstance(tag, str) for tag in found):
            if isinstance(found, list) or isinstance(record.get("no"), str):
                raise self.fail(f"no must be a list of strings, got {short(repr(found))}", number)
            return None  # a field of that name that is about something else
        tags = tuple(dict.fromkeys(read_tag(tag, self.fail, number) for tag in found))
        for tag in tags:
            self._check_encodable(tag, number)
            if labels is not None and tag in labels:
                raise self.fail(f"a tag must be in y or in no, got {tag!r} in both", number)
        return tags or None

    def _hint(self, what_to_do: str) -> str:
        return f"; {what_to_do}" if what_to_do and self.hints else ""

    def _check_encodable(self, text: str, number: int) -> None:
        if half_pair(text) is not None:
            raise self.fail(f"a string must be valid Unicode, got {short(ascii(text))}", number)


def _is_of(value: object, kind: type) -> bool:
    """Tell whether a field of a change is what `CHANGES` says; an object is an identifier."""
    if kind is list:
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    if kind is dict:
        return isinstance(value, dict) and all(isinstance(about, str) for about in value.values())
    return isinstance(value, (str, int, float) if kind is object else kind)


def _fields_of(record: dict[str, Any]) -> str:
    return f"got the fields {short(', '.join(record))}" if record else "got no fields"


def read_tag(tag: str, fail: Callable[[str, int], DataError], number: int) -> str:
    """Return the tag without the blanks around it; refuse an empty one."""
    found = tag.strip()
    if not found:
        raise fail(f"a tag must not be empty, got {tag!r}", number)
    return found


def _plain_list(found: Any) -> Any:
    """Return tags as programs and data frames have them, as JSON would; NaN stands for null."""
    if isinstance(found, (set, frozenset)):
        return sorted(found, key=str)
    if isinstance(found, (tuple, np.ndarray)):
        return [*found]
    return None if isinstance(found, float) and math.isnan(found) else found


def split_tags(text: str, sep: str) -> LabelSet:
    """Return the different tags of one string; nothing between two separators is no tag.

    Examples
    --------
    >>> split_tags("sun; sea;;sun", ";")
    ('sun', 'sea')
    """
    tags = (tag.strip() for tag in text.split(sep))
    return tuple(dict.fromkeys(tag for tag in tags if tag))


def as_batch(records: Iterable[Mapping[str, Any]], changes: bool = False) -> Batch:
    """Return records given as mappings as one batch, checked like lines of a file.

    Parameters
    ----------
    records : iterable of mappings
    changes : bool
        Take changes of what was learnt before too, see `iter_jsonl`.

    Examples
    --------
    >>> as_batch([{"text": "low tide", "y": ["sea"]}, {"id": 2, "text": "rain"}]).label_sets
    [('sea',), None]
    """

    def fail(message: str, i: int) -> DataError:
        return DataError(f"record {i}: {message}")

    reader = _RecordReader(fail, None, None, None, None, changes, hints=False)
    for i, record in enumerate(records):
        if not isinstance(record, (dict, Mapping)):  # the former is told at once
            raise DataError(f"record {i}: must be a mapping, got {type(record).__name__}")
        values = record.get("x")
        if isinstance(values, np.ndarray):
            record = {**record, "x": values.tolist()}
        reader.add(record if type(record) is dict else dict(record), i)
    return reader.batch()
