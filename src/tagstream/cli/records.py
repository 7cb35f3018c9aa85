"""Reading DATA: files, standard input and data sets by name, as chunks of records."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tagstream.cli.output import Bar, Failed

if TYPE_CHECKING:
    from tagstream.data import Batch, Dataset, Tally

FORMATS = ("arff", "csv", "tsv", "jsonl", "libsvm", "lines", "parquet")


@dataclass(frozen=True)
class Chunk:
    """Some consecutive records, whatever file they came from."""

    X: Any
    Y: Any  # label sets (None: nothing known), or an indicator with NaN where not known
    classes: Sequence[str] | None  # the columns of the indicator; names the file declares
    ids: Sequence[Any] | None
    features: Sequence[str] | None

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def take(self, rows: Sequence[int]) -> Chunk:
        """Return some of the records."""
        Y = [self.Y[i] for i in rows] if isinstance(self.Y, list) else self.Y[rows]
        ids = None if self.ids is None else [self.ids[i] for i in rows]
        return replace(self, X=self.X[rows], Y=Y, ids=ids)

    def labelled(self) -> Chunk:
        """Return the records of which at least one label is known."""
        if isinstance(self.Y, list):
            some = [i for i, labels in enumerate(self.Y) if labels is not None]
        else:
            some = (self.Y == self.Y).any(axis=1).nonzero()[0].tolist()
        return self if len(some) == len(self) else self.take(some)


def to_chunk(part: Batch | Dataset, hashing: dict[str, Any] | None = None) -> Chunk:
    """Return what a reader gave as a chunk; texts and mappings are hashed."""
    from tagstream.data import Dataset, Hashing
    from tagstream.data.dataset import collect

    if isinstance(part, Dataset):
        return Chunk(part.X, part.Y, part.label_names, part.ids, part.feature_names)
    if isinstance(part.items, list):
        part = replace(part, items=Hashing(**hashing or {}).rows(part.items))
    if part.unknown:
        return to_chunk(collect([part], path="", name=""))
    return Chunk(part.items, part.label_sets, part.label_names, part.ids, part.feature_names)


def skip(chunks: Iterator[Chunk], n: int) -> Iterator[Chunk]:
    """Leave out the first ``n`` records."""
    for chunk in chunks:
        if n < len(chunk):
            yield chunk if n == 0 else chunk.take(range(n, len(chunk)))
        n = max(n - len(chunk), 0)


def name_of(data: str) -> str:
    """Return what DATA is called in messages."""
    return "<stdin>" if data == "-" else data


def check_features(chunk: Chunk, model: Any, extra: dict[str, Any], data: str) -> None:
    """Refuse columns that are not those the model has learnt."""
    n, width, where = getattr(model, "n_features_in_", None), chunk.X.shape[1], name_of(data)
    if n not in (None, width):
        raise Failed(f"{where}: must have {n} features as the model has learnt, got {width}")
    names = zip(chunk.features or (), extra.get("features") or (), strict=False)
    for j, (got, want) in enumerate(names):
        if got != want:
            raise Failed(f"{where}: feature {j} must be {want!r} as the model learnt, got {got!r}")


def is_data_set(data: str) -> bool:
    """Tell whether DATA is the name of a benchmark data set; a file of that name comes first."""
    from tagstream.data import DATASETS

    return data.lower() in DATASETS and not Path(data).is_file()


def download(data: str, quiet: bool = False) -> None:
    """Get the data set that DATA names, if it does and is not here, with a bar."""
    from tagstream.data import fetch, present

    name = data.lower()
    if is_data_set(data) and not present(name):
        with Bar(name, quiet) as bar:
            fetch(name, progress=bar)


def format_of(path: str, said: str | None, option: str = "--format") -> str:
    """Return the format that ``option`` says or, without it, the ending of the file."""
    from tagstream import data

    if said is not None and said not in FORMATS:
        raise typer.BadParameter(f"{option} must be one of {', '.join(FORMATS)}, got {said!r}")
    try:
        return said or data.format_of(path)
    except ValueError:
        if option == "--format" and not Path(path).exists():
            raise Failed(
                f"{path}: must be a file or the name of a data set, got neither; "
                "see tagstream data list"
            ) from None
        raise Failed(f"{path}: the ending does not tell the format; say it with {option}") from None


@dataclass(frozen=True)
class Reading:
    """How records are read; what is not said is taken from the model or found out."""

    format: str | None = None
    labels: Any = None
    sep: str | None = None
    text: str | None = None
    ids: str | None = None
    missing: float | None = None
    hashing: dict[str, Any] = field(default_factory=dict)
    usual: str | None = None  # the format of what was learnt before, for standard input

    def merged(self, saved: dict[str, Any]) -> Reading:
        """Return this with saved values in the place of what was not said."""
        known = {f.name for f in fields(self)}
        unsaid = {key for key in known & set(saved) if getattr(self, key) in (None, {})}
        return replace(self, **{key: saved[key] for key in unsaid})

    def to_save(self, data: str, part: Chunk) -> dict[str, Any]:
        """Return what a later command must know to read the same kind of data."""
        if is_data_set(data):
            return {"usual": "arff", "labels": list(part.classes or ())}
        kind = self.kind(data)
        if kind in ("libsvm", "lines"):
            return {"usual": kind}
        labels = self.labels if part.classes is None else list(part.classes)
        said = {"sep": self.sep, "text": self.text, "ids": self.ids, "missing": self.missing}
        kept = {"usual": kind, "labels": labels, **said}
        return {key: value for key, value in kept.items() if value is not None}

    def kind(self, data: str) -> str:
        """Return the format of the file DATA."""
        usual = (self.usual or "jsonl") if data == "-" else None
        return format_of(data, self.format or usual)

    def chunks(
        self,
        data: str,
        size: int,
        n_features: int | None = None,
        optional: bool = False,
        tally: Tally | None = None,
    ) -> Iterator[Chunk]:
        """Read DATA, through ``tally`` if there is one.

        With ``optional``, a CSV file may lack the columns of labels and identifiers.
        """
        if is_data_set(data):
            whole = to_chunk(self.whole(data))
            for start in range(0, len(whole), size):
                yield whole.take(range(start, min(start + size, len(whole))))
            return
        from tagstream.data import Tally

        with contextlib.closing(tally or Tally(data)) as source:
            for part in self._parts(source, self.kind(data), data, size, n_features, optional):
                yield to_chunk(part, self.hashing)

    def whole(self, data: str) -> Dataset:
        """Read DATA to its end."""
        from tagstream.data import Hashing, load
        from tagstream.data.dataset import collect, concatenate

        if is_data_set(data):
            return load(data, missing=self._fill)
        kind = self.kind(data)
        name = "stdin" if data == "-" else Path(data).name
        parts = self._opened(data)
        if kind == "arff":
            return concatenate(parts, path=name_of(data))
        return collect(
            parts,
            path=name_of(data),
            name=name,
            numeric=kind == "libsvm",
            featurizer=Hashing(**self.hashing),
        )

    def records(self, data: str) -> Dataset | Batch:
        """Read DATA to its end; texts and mappings stay what they are."""
        from tagstream.data import load
        from tagstream.data.dataset import join

        if is_data_set(data):
            return load(data, missing=self._fill)
        if self.kind(data) in ("arff", "libsvm"):
            return self.whole(data)
        return join(self._opened(data), path=name_of(data))

    def _opened(self, data: str) -> Iterator[Any]:
        from tagstream.data import Tally

        with contextlib.closing(Tally(data)) as source:
            yield from self._parts(source, self.kind(data), data, 1024)

    def width(self, path: str) -> int:
        """Return the number of features of a file."""
        return max((int(chunk.X.shape[1]) for chunk in self.chunks(path, 1024)), default=1)

    @property
    def _fill(self) -> float:
        return float("nan") if self.missing is None else self.missing

    def _parts(
        self,
        source: Tally,
        kind: str,
        path: str,
        size: int,
        n_features: int | None = None,
        optional: bool = False,
    ) -> Iterator[Any]:
        """Read a source as the reader of its format gives it."""
        from tagstream import data

        labels: Any = [self.labels] if isinstance(self.labels, str) else self.labels
        if kind in ("csv", "tsv"):
            columns = {"labels": self.labels, "sep": self.sep, "ids": self.ids}
            columns = self._present(source) if optional else columns
            options = {"text": self.text, "missing": self._fill, **columns}
        elif kind == "arff":
            options = {"labels": labels, "missing": self._fill}
        elif kind == "libsvm":
            options = {"n_features": n_features}
        elif kind == "lines":
            options = {}
        else:
            field = self.labels if isinstance(self.labels, str) else None
            fields = {"labels": field, "sep": self.sep, "ids": self.ids}
            options = {"text": self.text, **({"labels": False} if optional else fields)}
        entry = data.FORMATS[kind]
        return entry.reader(source if entry.is_stream else path, chunk=size, **options)

    def _present(self, source: Tally) -> dict[str, Any]:
        """Return which columns of labels and identifiers a CSV file has."""
        from tagstream.data.tabular import find_delimiter

        line = source.first_line().decode("utf-8-sig", "replace")
        names = next(csv.reader([line], delimiter=find_delimiter(line)), [])
        header = [name.strip() for name in names]
        asked = [self.labels] if isinstance(self.labels, str) else self.labels
        found = [name for name in asked if name in header] if isinstance(asked, list) else []
        ids = self.ids if self.ids in header else None
        if not found:
            return {"ids": ids}
        return {"labels": found[0] if self.sep else found, "sep": self.sep, "ids": ids}
