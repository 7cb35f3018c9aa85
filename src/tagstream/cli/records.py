"""Where DATA is and how it is read: files, pipes, standard input, data sets by name."""

from __future__ import annotations

import contextlib
import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tagstream.cli.output import Bar, Failed

if TYPE_CHECKING:
    from tagstream.records import Batch, Dataset, Format, Tally
    from tagstream.tagger import Tagger

FORMATS = ("arff", "csv", "tsv", "jsonl", "libsvm", "lines", "parquet", "xlsx", "folder")
# What is said on the command line, and what a model remembers, about reading.
OPTIONS = {
    "labels": "--labels",
    "sep": "--sep",
    "text": "--text",
    "ids": "--ids",
    "delimiter": "--delimiter",
    "missing": "--missing",
    "n_features": "--features",
    "sheet": "--sheet",
}
OF_THE_FILE = ("n_features", "sheet")  # and of no other that is read later


def name_of(data: str) -> str:
    """Return what DATA is called in messages."""
    return "<stdin>" if data == "-" else data


def is_data_set(data: str) -> bool:
    """Tell whether DATA is the name of a benchmark data set; a file of that name comes first."""
    from tagstream.records import DATASETS

    return data.lower() in DATASETS and not Path(data).is_file()


def is_stream(data: str) -> bool:
    """Tell whether DATA can be read only once: standard input, or a pipe."""
    path = Path(data)
    return data == "-" or (path.exists() and not path.is_file() and not path.is_dir())


def download(data: str, quiet: bool = False) -> None:
    """Get the data set that DATA names, if it does and is not here, with a bar."""
    from tagstream.records import fetch, present

    name = data.lower()
    if is_data_set(data) and not present(name):
        with Bar(name, quiet) as bar:
            fetch(name, progress=bar)


def format_of(path: str, said: str | None, option: str = "--format") -> str:
    """Return the format that ``option`` says or, without it, the ending of the file."""
    from tagstream import records as data

    if not path:  # as of a variable that is not set; it would stand for the folder where one is
        raise Failed("a file must have a name, got an empty one")
    if said is not None and said not in FORMATS:
        hint = "; jsonl is also a JSON array" if said == "json" else ""
        raise typer.BadParameter(
            f"{option} must be one of {', '.join(FORMATS)}, got {said!r}{hint}"
        )
    if option == "--format" and said not in (None, "folder") and Path(path).is_dir():
        raise Failed(f"{path}: must be a file to be read as {said}, got a folder")
    try:
        return said or data.format_of(path)
    except ValueError:
        if option == "--format" and not Path(path).exists():
            raise Failed(
                f"{path}: must be a file or the name of a data set, got neither; "
                "see tagstream data list"
            ) from None
        raise Failed(
            f"{path}: the ending must tell the format, got {Path(path).suffix!r}; "
            f"say it with {option}: {', '.join(FORMATS)}"
        ) from None


def check_columns(batch: Batch, tagger: Tagger, data: str) -> None:
    """Refuse records of another kind than those that were learnt, and columns in another order."""
    makes = tagger.featurizer
    is_table = not isinstance(batch.items, list)
    if makes is None or len(batch.changes or ()) == len(batch):
        return
    if is_table != (makes.name == "columns"):
        kind = "rows of numbers" if is_table else "texts or named values"
        other = "rows of numbers" if not is_table else "texts or named values"
        raise Failed(f"{name_of(data)}: must hold {other} as the model has learnt, got {kind}")
    if not is_table:
        return
    n, width = makes.n_features, batch.items.shape[1]  # type: ignore[attr-defined, union-attr]
    if n != width:
        raise Failed(f"{name_of(data)}: must have {n} features as the model learnt, got {width}")
    names = zip(batch.feature_names or (), getattr(makes, "names", None) or (), strict=False)
    for j, (got, want) in enumerate(names):
        if got != want:
            raise Failed(
                f"{name_of(data)}: feature {j} must be {want!r} as the model learnt, got {got!r}"
            )


def check_saved(saved: Any) -> bool:
    """Tell whether what a model remembers about reading makes sense."""
    if not isinstance(saved, dict):
        return False
    for key, value in saved.items():
        if key == "labels":
            names = value if isinstance(value, list) else [value]
            is_number = type(value) is int
            if not is_number and not all(isinstance(name, str) for name in names):
                return False
        elif key == "missing":
            if type(value) not in (int, float):
                return False
        elif key == "ids" and value is False:
            continue
        elif not isinstance(value, str) or (key == "usual" and value not in FORMATS):
            return False
    return True


@dataclass(frozen=True)
class Reading:
    """How records are read: what was said, and else what the model remembers."""

    format: str | None = None
    labels: Any = None
    sep: str | None = None
    text: str | None = None
    ids: Any = None
    delimiter: str | None = None
    missing: float | None = None
    n_features: int | None = None
    sheet: str | None = None
    encoding: str | None = None
    saved: dict[str, Any] = field(default_factory=dict)

    def after(self, saved: dict[str, Any], **more: Any) -> Reading:
        """Return this with what a model remembers."""
        return replace(self, saved={**saved, **more})

    def of_model(self, tagger: Tagger) -> Reading:
        """Return this with what a model remembers; its features may be all columns of a table."""
        names = getattr(tagger.featurizer, "names", None) or ()
        return self.after(tagger.extra["reading"], **({"ids": False} if "id" in names else {}))

    def open(self, data: str, position: dict[str, Any] | None = None) -> Tally:
        """Open DATA, whose lines are read one after the other."""
        from tagstream.records import Tally

        return Tally(data, position, encoding=self.encoding, arrays=self.kind(data) == "jsonl")

    def kind(self, data: str) -> str:
        """Return the format of DATA."""
        if is_data_set(data):
            return "arff"
        if self.format is None and is_stream(data):
            from tagstream.records import FORMATS

            usual: str = self.saved.get("usual", "jsonl")
            return usual if FORMATS[usual].is_stream else "jsonl"
        return format_of(data, self.format)

    def to_save(self, data: str, batch: Batch) -> dict[str, Any]:
        """Return what a later command must know to read the same kind of data."""
        kind = self.kind(data)
        kept = {"usual": kind}
        if is_data_set(data):
            kept["labels"] = list(batch.label_names or ())  # type: ignore[assignment]
        elif kind not in ("libsvm", "lines", "folder"):
            kept |= self._options(kind)
            if batch.label_names is not None:
                kept["labels"] = list(batch.label_names)  # type: ignore[assignment]
        for name in OF_THE_FILE:
            kept.pop(name, None)
        return kept

    def batches(
        self,
        data: str,
        size: int,
        *,
        tally: Tally | None = None,
        to_predict: bool = False,
        changes: bool = False,
    ) -> Iterator[Batch]:
        """Read DATA, through ``tally`` if there is one.

        To predict, records need no labels and no identifiers, whatever the model remembers.
        ``changes`` takes the changes that stand between the records of a log.
        """
        for part in self._parts(data, size, tally, to_predict, changes):
            batch = part if hasattr(part, "items") else part.as_batch()
            self._check_values(batch, data)
            yield batch

    def _parts(
        self,
        data: str,
        size: int,
        tally: Tally | None = None,
        to_predict: bool = False,
        changes: bool = False,
    ) -> Iterator[Any]:
        from tagstream.records import FORMATS, load

        if is_data_set(data):
            whole = load(data, missing=self.missing).as_batch()
            for first in range(0, len(whole), size):
                yield whole.cut(first, first + size)
            return
        if data == "-" and sys.stdin is None:
            raise Failed("standard input must be open to be read, got it closed")
        kind = self.kind(data)
        entry = FORMATS[kind]
        if not entry.is_stream:
            if is_stream(data):
                raise Failed(f"{name_of(data)}: {kind} must be a file, got a pipe")
            fields = self._fields_of_sheet(data) if kind == "xlsx" and to_predict else None
            options = self._options(kind, fields, to_predict)
            if "encoding" in entry.options:
                options["encoding"] = self.encoding
            elif self.encoding is not None:
                raise typer.BadParameter(f"--encoding must not be given for {kind}")
            yield from entry.reader(data, chunk=size, **options)
            return
        with contextlib.closing(tally or self.open(data)) as source:
            fields = None
            if to_predict and kind in ("csv", "tsv", "jsonl"):
                fields = _fields(entry, source, self.delimiter or self.saved.get("delimiter"))
            options = self._options(kind, fields, to_predict)
            if changes and kind == "jsonl":
                options["changes"] = True
            yield from entry.reader(source, chunk=size, **options)

    def whole(self, data: str, featurizer: Any = None) -> Dataset:
        """Read DATA to its end, as rows of numbers."""
        from tagstream.records import load
        from tagstream.records.dataset import collect, concatenate
        from tagstream.records.formats import FORMATS

        if is_data_set(data):
            return load(data, missing=self.missing)
        parts = self._parts(data, 1024)
        first = next(parts, None)
        parts = parts if first is None else chain([first], parts)
        if hasattr(first, "X"):
            return concatenate(parts, path=name_of(data))
        numeric = FORMATS[self.kind(data)].has_numbered_labels
        name = name_of(data)
        return collect(parts, path=name, name=name, numeric=numeric, featurizer=featurizer)

    def records(self, data: str) -> Dataset | Batch:
        """Read DATA to its end; texts and mappings stay what they are."""
        from tagstream.records.dataset import join

        if self.kind(data) in ("arff", "libsvm"):
            return self.whole(data)
        return join(self._parts(data, 1024), path=name_of(data))

    def width(self, data: str) -> int:
        """Return the number of features of a LIBSVM file."""
        width = 1
        for batch in self.batches(data, 1024):
            width = int(batch.items.shape[1])  # type: ignore[union-attr]
            if batch.label_names is not None:  # there is a header, which says it
                break
        return width

    def _fields_of_sheet(self, data: str) -> list[str]:
        from tagstream.records.sheets import columns_of_sheet

        return columns_of_sheet(data, self.sheet)

    # ------------------------------------------------------------------ options of a reader
    def _options(
        self, kind: str, fields: list[str] | None = None, to_predict: bool = False
    ) -> dict[str, Any]:
        """Return the options for the reader of a format, given the fields of what is predicted."""
        from tagstream.records import FORMATS

        entry = FORMATS[kind]
        found: dict[str, Any] = {}
        for name, option in OPTIONS.items():
            said, usual = getattr(self, name), self.saved.get(name)
            if said is not None and name not in entry.options:
                raise typer.BadParameter(f"{option} must not be given for {kind}: it has no such")
            if name in entry.options and (said is not None or usual is not None):
                found[name] = usual if said is None else said
        has_fields = kind in ("jsonl", "parquet")
        labels = found.get("labels")
        if has_fields and labels is not None and not isinstance(labels, str):
            if self.labels is not None:
                raise typer.BadParameter(
                    f"--labels must be the name of one field for {kind}, got {labels!r}"
                )
            del found["labels"]
        if kind == "arff" and isinstance(labels, str):
            found["labels"] = [labels]
        if fields is not None:
            found = self._present(found, fields)
        if to_predict and (has_fields or found.get("text") is not None):
            found["labels"] = False
            found.pop("sep", None)
        elif to_predict and kind in ("csv", "tsv", "xlsx"):
            found.setdefault("labels", False)
        if found.get("sep") is not None and not isinstance(found.get("labels"), str):
            if self.sep is not None and not (has_fields or to_predict):
                raise typer.BadParameter("--sep must come with --labels, the column of tags")
            if not has_fields:
                del found["sep"]
        return found

    def _present(self, options: dict[str, Any], fields: list[str]) -> dict[str, Any]:
        """Leave out what the model remembers and records to be predicted do not have."""
        found = {**options}
        if self.ids is None and found.get("ids") not in (None, False, *fields):
            del found["ids"]
        is_usual = bool({"text", "x"} & {*fields})  # else the reader says what it looked for
        if is_usual and self.text is None and found.get("text") not in (None, *fields):
            del found["text"]
        if self.labels is None and "labels" in found and not isinstance(found["labels"], int):
            labels = found.pop("labels")
            here = [name for name in ([labels] if isinstance(labels, str) else labels)
                    if name in fields]  # fmt: skip
            if here:
                found["labels"] = labels if isinstance(labels, str) else here
        return found

    def _check_values(self, batch: Batch, data: str) -> None:
        if isinstance(batch.items, list):
            return
        values: Any = batch.items.data if hasattr(batch.items, "indptr") else batch.items
        if (values != values).any():
            raise Failed(
                f"{name_of(data)}: must have no missing values, got some; "
                "fill them with --missing VALUE"
            )


def _fields(entry: Format, source: Tally, delimiter: str | None) -> list[str]:
    """Return the names of the columns, or of the fields of the first record."""
    from tagstream.records.tabular import find_delimiter

    line = source.first_line().decode("utf-8-sig", "replace")
    if entry.name != "jsonl":
        delimiter = "\t" if entry.name == "tsv" else delimiter or find_delimiter(line)
        return [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return []  # the reader will say what is wrong
    return [*record] if isinstance(record, dict) else []
