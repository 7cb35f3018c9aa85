"""What people hand to a tagger: a text, records, a data frame, texts with their tags.

All of it becomes one `Batch`, or an iterator of records that is taken in as it comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tagstream.checks import DataError
from tagstream.records.arff_header import short
from tagstream.records.dataset import Batch
from tagstream.records.record import as_batch

__all__ = ["is_frame", "to_ask", "to_learn"]

FIELDS = ("id", "text", "x")  # of a record whose tags are asked for


def is_frame(given: object) -> bool:
    """Tell whether something is a data frame of any library."""
    return hasattr(given, "columns") and hasattr(given, "shape") and not isinstance(given, Mapping)


def to_ask(given: Any) -> Batch:
    """Return items to be asked about as a batch, without their tags.

    Examples
    --------
    >>> to_ask(["low tide", {"id": 7, "text": "rain", "y": ["weather"]}]).items
    ['low tide', 'rain']
    """
    if isinstance(given, Batch):
        return given
    if is_frame(given):
        return _batch_of_frame(given, with_tags=False)
    if not isinstance(given, Iterable):
        raise DataError(f"records must be a text, a record or many, got {type(given).__name__}")
    return as_batch(_without_tags(given))


def to_learn(given: Any) -> Batch | Iterator[Any]:
    """Return items with their tags as a batch; an iterator is handed on as it is.

    Examples
    --------
    >>> to_learn((["low tide", "rain"], [["sea"], "weather"])).label_sets
    [('sea',), ('weather',)]
    """
    if isinstance(given, Batch):
        return given
    if isinstance(given, str):
        raise DataError(
            "a text must come with its tags to be learnt, got a string; give "
            '{"text": …, "y": [tags]}, or (texts, tags)'
        )
    if isinstance(given, Mapping):
        return as_batch([given], True)
    if is_frame(given):
        return _batch_of_frame(given, with_tags=True)
    if isinstance(given, tuple) and len(given) == 2 and not isinstance(given[0], Mapping):
        return _batch_of_pair(*given)
    return as_batch(given, True) if isinstance(given, Sequence) else iter(given)


def _without_tags(records: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for i, record in enumerate(records):
        if isinstance(record, str):
            yield {"text": record}
        elif isinstance(record, Mapping):
            found = {key: record[key] for key in FIELDS if key in record}
            if "text" not in found and "x" not in found:
                has = short(", ".join(map(str, record))) or "none"
                raise DataError(
                    f'record {i}: a record must have either "x" or "text", got the fields {has}'
                )
            yield found
        else:
            raise DataError(f"record {i}: must be a text or a mapping, got {type(record).__name__}")


def _batch_of_pair(texts: Any, tags: Any) -> Batch:
    """Return texts, or rows of numbers, with their tags; a string is one tag."""
    texts, tags = _listed("texts", texts), _listed("tags", tags)
    if len(texts) != len(tags):
        raise DataError(f"texts and tags must be equally many, got {len(texts)} and {len(tags)}")
    field = "text" if not texts or isinstance(texts[0], str) else "x"
    return as_batch({field: item, "y": _tags(y)} for item, y in zip(texts, tags, strict=True))


def _listed(what: str, column: Any) -> list[Any]:
    if isinstance(column, (str, Mapping)) or not isinstance(column, Iterable):
        raise DataError(f"{what} must be a list or a column, got {type(column).__name__}")
    return [*column]


def _tags(found: Any) -> Any:
    """Return the tags of a cell: a string is one tag, what is missing is not known."""
    if hasattr(found, "to_list"):  # a series inside a cell
        return found.to_list()
    return [found] if isinstance(found, str) else found


def _batch_of_frame(frame: Any, *, with_tags: bool) -> Batch:
    """Return the rows of a data frame that has a column of texts, or else of numbers only."""
    table = _narwhals(frame)
    names = [str(name) for name in table.columns]
    ids = table.get_column("id").to_list() if "id" in names else None
    tags = None
    if with_tags:
        if "y" not in names:
            raise DataError(
                f'a frame must have its tags in a column "y", got {short(", ".join(names))}; '
                "give (frame['text'], frame['tags']) if they are called otherwise"
            )
        tags = [_tags(cell) for cell in table.get_column("y").to_list()]
    if "text" in names or "x" in names:
        field = "text" if "text" in names else "x"
        records: list[dict[str, Any]] = [{field: v} for v in table.get_column(field).to_list()]
        for record, name in zip(records, ids or [], strict=False):
            record["id"] = name
        for record, found in zip(records, tags or [], strict=False):
            record["y"] = found
        return as_batch(records)
    return _batch_of_numbers(table, names, ids, tags)


def _batch_of_numbers(table: Any, names: list[str], ids: Any, tags: Any) -> Batch:
    features = [name for name in names if name not in ("id", "y")]
    if not features:
        raise DataError(
            f'a frame must have a column "text", got {short(", ".join(names)) or "none"}'
        )
    columns = []
    for name in features:
        column = table.get_column(name)
        if not column.dtype.is_numeric():
            raise DataError(
                f'a frame must have a column "text", or numbers in all columns, got {name!r} '
                f"of {column.dtype}; give frame.rename({{{name!r}: 'text'}}) if it is the text"
            )
        columns.append(np.asarray(column.to_numpy(), np.float64))
    n = len(columns[0])
    plain = as_batch(
        {"x": [0.0], "id": None if ids is None else ids[i], "y": None if tags is None else tags[i]}
        for i in range(n)
    )
    return Batch(
        np.column_stack(columns), plain.label_sets, ids=plain.ids, feature_names=tuple(features)
    )


def _narwhals(frame: Any) -> Any:
    """Return a data frame of any library behind one face."""
    try:
        import narwhals.stable.v1 as nw
    except ImportError as error:
        raise ImportError("data frames need narwhals; install tagstream[frames]") from error
    try:
        table = nw.from_native(frame)
    except TypeError as error:
        raise DataError(f"a frame must be one that narwhals knows, got {type(frame)}") from error
    return table.collect() if isinstance(table, nw.LazyFrame) else table
