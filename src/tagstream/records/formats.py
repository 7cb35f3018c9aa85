"""The formats that can be read and written, in one table: a new one is one entry."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tagstream.records.arff import iter_arff
from tagstream.records.dataset import Batch, Dataset, Rows, collect, concatenate, stem
from tagstream.records.folders import iter_folder
from tagstream.records.libsvm import iter_libsvm
from tagstream.records.lines import Source
from tagstream.records.record import iter_jsonl, iter_parquet
from tagstream.records.sheets import iter_xlsx
from tagstream.records.tabular import iter_csv, iter_lines
from tagstream.records.writers import write_arff, write_csv, write_jsonl, write_libsvm

__all__ = ["FORMATS", "Format", "format_of", "iter_records", "read"]


@dataclass(frozen=True)
class Format:
    """How files of one kind are read and written.

    Attributes
    ----------
    name : str
    endings : tuple of str
        How their names end, before ``.gz`` or ``.bz2``.
    reader : callable (source, *, chunk, **options) -> iterator of Batch or of Dataset
    writer : callable (data, path), or None
        What writes a `Dataset` or a `Batch`; None: it is only read.
    has_text : bool
        Whether records can be texts.
    is_stream : bool
        Whether it can be read from a pipe, line by line.
    has_numbered_labels : bool
        Whether labels are numbers, and are to be sorted as such.
    """

    name: str
    endings: tuple[str, ...]
    reader: Callable[..., Iterator[Any]]
    writer: Callable[..., None] | None
    has_text: bool = False
    is_stream: bool = True
    has_numbered_labels: bool = False

    @cached_property
    def options(self) -> frozenset[str]:
        """The options of its reader, without ``chunk``."""
        parameters = inspect.signature(self.reader).parameters.values()
        fixed = getattr(self.reader, "keywords", {})  # by the entry itself
        named = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        return frozenset(named - {"chunk"} - set(fixed))

    def check(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that were said (not None); refuse those the reader has not."""
        said = {key: value for key, value in options.items() if value is not None}
        for key in sorted(set(said) - self.options):
            has = ", ".join(sorted(self.options)) or "none"
            raise ValueError(f"options of {self.name} must be among {has}, got {key}")
        return said


FORMATS: dict[str, Format] = {
    entry.name: entry
    for entry in [
        Format("arff", (".arff",), iter_arff, write_arff),
        Format("csv", (".csv",), iter_csv, write_csv, has_text=True),
        Format(
            *("tsv", (".tsv", ".tab")),
            partial(iter_csv, delimiter="\t"),
            partial(write_csv, delimiter="\t"),
            has_text=True,
        ),
        Format("jsonl", (".jsonl", ".ndjson", ".json"), iter_jsonl, write_jsonl, has_text=True),
        Format(
            *("libsvm", (".libsvm", ".svm", ".svmlight", ".txt"), iter_libsvm, write_libsvm),
            has_numbered_labels=True,
        ),
        Format("lines", (".lines",), iter_lines, None, has_text=True),
        Format(
            *("parquet", (".parquet", ".pq"), iter_parquet, None), has_text=True, is_stream=False
        ),
        Format(
            *("xlsx", (".xlsx", ".xlsm", ".xls", ".ods"), iter_xlsx, None),
            has_text=True,
            is_stream=False,
        ),
        Format("folder", (), iter_folder, None, has_text=True, is_stream=False),
    ]
}


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the format that a file's ending tells, a key of `FORMATS`; a folder is one itself.

    Examples
    --------
    >>> format_of("posts.jsonl.gz"), format_of("train.svm"), format_of("posts.TSV")
    ('jsonl', 'libsvm', 'tsv')
    """
    path = Path(path)
    if path.is_dir():
        return "folder"
    ending = (path.with_suffix("") if path.suffix in {".gz", ".bz2"} else path).suffix.lower()
    for name, entry in FORMATS.items():
        if ending in entry.endings:
            return name
    raise ValueError(
        f"the ending of {str(path)!r} must tell its format, got {ending!r}; say format (--format)"
    )


def _entry(source: Source, format: str | None) -> Format:
    if format is None:
        if not isinstance(source, (str, os.PathLike)) or os.fspath(source) == "-":
            raise ValueError(f"format must be one of {', '.join(FORMATS)} for a stream, got None")
        format = format_of(source)
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    return FORMATS[format]


def iter_records(
    source: Source, *, format: str | None = None, chunk: int = 256, **options: Any
) -> Iterator[Batch]:
    """Read records of any format in batches.

    Parameters
    ----------
    source : path, file object, or "-" for standard input
    format : str or None
        A key of `FORMATS`. None: as the file's ending says.
    chunk : int
        Records per batch.
    **options
        Those of the format's reader; None is the reader's own default.

    Yields
    ------
    Batch
        At most ``chunk`` records.

    Examples
    --------
    >>> import io
    >>> stream = io.BytesIO(b"body\\ttags\\nLow tide\\tsea\\n")
    >>> batch, = iter_records(stream, format="tsv", text="body", labels="tags", sep=",")
    >>> batch.items, batch.label_sets
    (['Low tide'], [('sea',)])
    """
    entry = _entry(source, format)
    for part in entry.reader(source, chunk=chunk, **entry.check(options)):
        yield part.as_batch() if isinstance(part, Dataset) else part


def read(
    source: Source, *, format: str | None = None, featurizer: Rows | None = None, **options: Any
) -> Dataset:
    """Read a source to its end.

    Parameters
    ----------
    source, format, options
        See `iter_records`.
    featurizer : object with rows(items), or None
        What makes rows of texts and of named values; None is ``Hashing()``.

    Examples
    --------
    >>> import io
    >>> read(io.BytesIO(b"a,tag_x\\n1,1\\n2,0\\n"), format="csv", labels="tag_")
    <Dataset '<stream>': 2 rows, 1 dense features, 1 labels>
    """
    entry = _entry(source, format)
    is_path = isinstance(source, (str, os.PathLike)) and os.fspath(source) != "-"
    path = str(source) if is_path else str(getattr(source, "name", "<stream>"))
    parts = entry.reader(source, chunk=1024, **entry.check(options))
    first = list(islice(parts, 1))
    parts = chain(first, parts)
    if first and isinstance(first[0], Dataset):
        return concatenate(parts, path=path)
    return collect(
        parts,
        path=path,
        name=stem(path).name,
        numeric=entry.has_numbered_labels,
        featurizer=featurizer,
    )
