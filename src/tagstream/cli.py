"""The command line: the library from a shell, made for pipes.

Data goes to standard output; messages and progress go to standard error.  Exit codes: 0 done,
1 it failed (one line says why), 2 the command was wrong, 130 and 143 stopped by a signal.

Heavy imports happen inside the commands, so that ``tagstream --help`` answers at once.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import re
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tagstream import __version__

if TYPE_CHECKING:
    from rich.table import Table

    from tagstream.base import StreamClassifier
    from tagstream.data import Batch, Dataset

__all__ = ["main"]

METHODS = {
    "oml": "OML",
    "knn": "KNN",
    "osml-elm": "OSMLELM",
    "olansgd": "OLANSGD",
    "oml-published": "OML",
}
FORMATS = ("arff", "csv", "jsonl", "libsvm")
# How many sources a model remembers the positions of.
MOST_SOURCES = 1000

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data_app, name="data", help="List, fetch and convert data sets.")


class _Failed(Exception):
    """Something went wrong; the message is all the user needs."""


# ---------------------------------------------------------------------- arguments
def _complete(choices: Sequence[str]) -> Callable[[str], list[str]]:
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file (ARFF, CSV, JSON Lines, LIBSVM; plain, .gz or .bz2), '-' for standard input, "
        "or the name of a benchmark data set.",
    ),
]
ModelOption = Annotated[str, typer.Option("--model", "-m", metavar="FILE", help="The model file.")]
MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="|".join(METHODS),
        help="The learner of a new model.  [default: oml]",
        autocompletion=_complete([*METHODS]),
    ),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter of the learner."),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="|".join(FORMATS),
        help="What DATA is.  [default: by its ending; standard input: jsonl]",
        autocompletion=_complete(FORMATS),
    ),
]
LabelsOption = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="WHICH",
        help="ARFF and CSV: names with commas between, a MULAN .xml file, or a number of columns "
        "(6: the first six, -6: the last). CSV: also a common beginning of names, or, with "
        "--sep, the column of tags.",
    ),
]
SepOption = Annotated[
    str | None, typer.Option("--sep", help="CSV: what stands between tags in one column.")
]
TextOption = Annotated[
    str | None, typer.Option("--text", metavar="COLUMN", help="CSV: the column of text.")
]
IdsOption = Annotated[
    str | None, typer.Option("--ids", metavar="COLUMN", help="CSV: the column of identifiers.")
]
MissingOption = Annotated[
    float | None, typer.Option("--missing", help="ARFF and CSV: the value of a missing feature.")
]
ChunkOption = Annotated[
    int, typer.Option("--chunk", min=1, help="Records read at a time; 1 answers each at once.")
]
BitsOption = Annotated[
    int | None,
    typer.Option(
        "--hash-bits",
        min=1,
        max=30,
        help="Text and mappings are hashed into 2^BITS features.  [default: 18]",
    ),
]
NgramsOption = Annotated[
    int | None,
    typer.Option("--ngrams", min=1, help="Text: runs of up to so many words.  [default: 1]"),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Same seed, same result.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No messages, no progress.")]


def _labels(text: str | None) -> Any:
    """Return what ``--labels`` means to the readers."""
    if text is None:
        return None
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    if text.endswith(".xml"):
        return Path(text)
    return text.split(",") if "," in text else text


def _params(settings: list[str] | None) -> dict[str, Any]:
    """Return ``NAME=VALUE`` settings; a value that is not JSON is a string."""
    params: dict[str, Any] = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or not name.isidentifier():
            raise typer.BadParameter(f"--param must be NAME=VALUE, got {setting!r}")
        try:
            params[name] = json.loads(value)
        except ValueError:
            params[name] = value
    return params


def _new_model(method: str, params: dict[str, Any], seed: int) -> StreamClassifier:
    from tagstream import models

    if method not in METHODS:
        raise typer.BadParameter(f"--method must be one of {', '.join(METHODS)}, got {method!r}")
    learner: type[StreamClassifier] = getattr(models, METHODS[method])
    if method == "oml-published":
        params = models.OML.as_published().get_params() | params
    known = learner._get_param_names()
    for name in params:
        if name not in known:
            raise typer.BadParameter(
                f"--param must name one of {', '.join(known)} for {method}, got {name!r}"
            )
    if "random_state" in known:
        params = {"random_state": seed, **params}
    model = learner(**params)
    model._check_params()
    return model


# ---------------------------------------------------------------------- reading
class _Chunk(NamedTuple):
    """Some consecutive records, whatever file they came from."""

    X: Any
    Y: Any  # label sets (None: nothing known), or an indicator with NaN where not known
    classes: Sequence[str] | None  # the columns of the indicator; names the file declares
    ids: Sequence[Any] | None
    features: Sequence[str] | None

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def take(self, rows: Any) -> _Chunk:
        """Return some of the records."""
        Y = [self.Y[i] for i in rows] if isinstance(self.Y, list) else self.Y[rows]
        ids = None if self.ids is None else [self.ids[i] for i in rows]
        return _Chunk(self.X[rows], Y, self.classes, ids, self.features)

    def labelled(self) -> _Chunk:
        """Return the records of which at least one label is known."""
        import numpy as np

        if isinstance(self.Y, list):
            some = [i for i, labels in enumerate(self.Y) if labels is not None]
        else:
            some = np.flatnonzero((self.Y == self.Y).any(axis=1)).tolist()
        return self if len(some) == len(self) else self.take(some)


def _to_chunk(part: Batch | Dataset) -> _Chunk:
    import numpy as np

    from tagstream.data import Dataset

    if isinstance(part, Dataset):
        Y = part.Y if part.known is None else np.where(part.known, part.Y, np.nan)
        return _Chunk(part.X, Y, part.label_names, part.ids, part.feature_names)
    if not part.unknown:
        sets = [None if labels is None else tuple(labels) for labels in part.label_sets]
        return _Chunk(part.X, sets, part.label_names, part.ids, part.feature_names)
    names = part.label_names or sorted(
        {name for labels in [*part.label_sets, *part.unknown] for name in labels or ()}
    )
    column = {name: j for j, name in enumerate(names)}
    Y = np.zeros((len(part.label_sets), len(names)))
    for row, labels, unknown in zip(Y, part.label_sets, part.unknown, strict=True):
        row[[column[name] for name in labels or ()]] = 1
        row[[column[name] for name in unknown]] = np.nan
        if labels is None:
            row[:] = np.nan
    return _Chunk(part.X, Y, names, part.ids, part.feature_names)


class _Tally:
    """A source of lines that counts and digests the bytes it has given."""

    def __init__(self, source: str) -> None:
        self.name = "<stdin>" if source == "-" else source
        self._packed = sys.stdin.buffer if source == "-" else open(source, "rb")  # noqa: SIM115
        self._file: Any = self._packed if source == "-" else _unpacked(self._packed)
        self._first: bytes | None = None
        self.n_bytes = 0
        self._digest = hashlib.sha256()

    def readline(self, limit: int = -1) -> bytes:
        """Return the next line."""
        line = self._next(limit) if self._first is None else self._first
        self._first = None
        self.n_bytes += len(line)
        self._digest.update(line)
        return line

    def peek(self) -> bytes:
        """Return the first line without using it up."""
        self._first = self._next(-1)
        return self._first

    def _next(self, limit: int) -> bytes:
        try:
            line: bytes = self._file.readline(limit)
        except (EOFError, zlib.error) as error:  # of a damaged packed file
            raise OSError(str(error)) from error
        return line

    def so_far(self) -> dict[str, Any]:
        """Return what tells this source apart from others: length and digest of what was read."""
        return {"bytes": self.n_bytes, "sha256": self._digest.hexdigest()}

    def close(self) -> None:
        """Close the file."""
        if self.name != "<stdin>":
            self._file.close()
            self._packed.close()


def _unpacked(file: Any) -> Any:
    """Return a file that unpacks what it reads, if the first bytes say that it is packed."""
    start = file.peek(3)
    if start[:2] == b"\x1f\x8b":
        import gzip

        return gzip.GzipFile(fileobj=file)
    if start[:3] == b"BZh":
        import bz2

        return bz2.BZ2File(file)
    return file


@dataclass(frozen=True)
class _Reading:
    """How records are read; what is not said is taken from the model or found out."""

    format: str | None = None
    labels: Any = None
    sep: str | None = None
    text: str | None = None
    ids: str | None = None
    missing: float | None = None
    hashing: dict[str, Any] = field(default_factory=dict)
    usual: str | None = None  # the format of what was learnt before, for standard input

    def merged(self, saved: dict[str, Any]) -> _Reading:
        """Return this with saved values in the place of what was not said."""
        known = {f.name for f in fields(self)}
        unsaid = {key for key in known & set(saved) if getattr(self, key) in (None, {})}
        return replace(self, **{key: saved[key] for key in unsaid})

    def chunks(
        self,
        source: _Tally,
        path: str,
        size: int,
        n_features: int | None = None,
        optional: bool = False,
    ) -> Iterator[_Chunk]:
        """Read ``source`` and close it; with ``optional``, a CSV file may lack labels and ids."""
        try:
            yield from map(_to_chunk, self.parts(source, path, size, n_features, optional))
        finally:
            source.close()

    def parts(
        self,
        source: _Tally,
        path: str,
        size: int,
        n_features: int | None = None,
        optional: bool = False,
    ) -> Iterator[Any]:
        """Read ``source`` as its reader gives it."""
        from tagstream import data
        from tagstream.data.dataset import stem

        missing = float("nan") if self.missing is None else self.missing
        hashing = data.Hashing(**self.hashing)
        stream: Any = source
        kind = self.kind(path)
        if kind == "jsonl":
            return data.iter_jsonl(stream, chunk=size, hashing=hashing)
        if kind == "csv":
            labels, sep, ids = self.labels, self.sep, self.ids
            if optional:
                labels, sep, ids = self._present(source)
            return data.iter_csv(
                stream,
                labels=labels,
                sep=sep,
                text=self.text,
                ids=ids,
                chunk=size,
                missing=missing,
                hashing=hashing,
            )
        if kind == "arff":
            labels = self.labels
            if labels is None and path != "-":
                xml = Path(f"{stem(path)}.xml")
                labels = xml if xml.is_file() else None
            labels = [labels] if isinstance(labels, str) else labels
            return data.iter_arff(stream, labels=labels, chunk=size, missing=missing)
        return data.iter_libsvm(stream, chunk=size, n_features=n_features)

    def kind(self, path: str) -> str:
        """Return the format of the file ``path``."""
        from tagstream.data.registry import _format

        kind = self.format or (self.usual or "jsonl" if path == "-" else _format(Path(path)))
        if kind not in FORMATS:
            raise typer.BadParameter(f"--format must be one of {', '.join(FORMATS)}, got {kind!r}")
        return kind

    def _present(self, source: _Tally) -> tuple[Any, str | None, str | None]:
        header = next(csv.reader([source.peek().decode("utf-8", "replace")]), [])
        names = [self.labels] if isinstance(self.labels, str) else self.labels
        there = isinstance(names, list) and all(name in header for name in names)
        if isinstance(names, list) and not there and any(name in header for name in names):
            names, there = [name for name in names if name in header], True
        labels = (names[0] if self.sep else names) if there and isinstance(names, list) else None
        return labels, self.sep if there else None, self.ids if self.ids in header else None


def _reading(
    format: str | None = None,
    labels: str | None = None,
    sep: str | None = None,
    text: str | None = None,
    ids: str | None = None,
    missing: float | None = None,
    bits: int | None = None,
    ngrams: int | None = None,
) -> _Reading:
    hashing: dict[str, Any] = {} if bits is None else {"n_features": 2**bits}
    if ngrams is not None:
        hashing["ngrams"] = ngrams
    return _Reading(format, _labels(labels), sep, text, ids, missing, hashing)


def _is_data_set(data: str) -> bool:
    from tagstream.data import DATASETS

    return data.lower() in DATASETS and not Path(data).is_file()


def _slices(dataset: Dataset, size: int) -> Iterator[_Chunk]:
    whole = _to_chunk(dataset)
    for start in range(0, len(whole), size):
        yield whole.take(range(start, min(start + size, len(whole))))


def _skip(chunks: Iterator[_Chunk], n: int) -> Iterator[_Chunk]:
    """Leave out the first ``n`` records."""
    for chunk in chunks:
        if n >= len(chunk):
            n -= len(chunk)
            continue
        yield chunk if n == 0 else chunk.take(range(n, len(chunk)))
        n = 0


def _check_features(chunk: _Chunk, extra: dict[str, Any], path: str) -> None:
    """Refuse columns that are not those the model has learnt."""
    known, got = extra.get("features"), chunk.features
    if known is None or got is None or list(got) == known:
        return
    if len(got) != len(known):
        raise _Failed(f"{path}: must have {len(known)} features, got {len(got)}")
    j = next(j for j, name in enumerate(got) if name != known[j])
    raise _Failed(f"{path}: feature {j} must be {known[j]!r} as the model learnt, got {got[j]!r}")


# ---------------------------------------------------------------------- output
def _put(text: str) -> None:
    """Write to standard output at once; end quietly when nobody reads on."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):  # what is left must not fail at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


def _put_table(table: Table) -> None:
    from rich.console import Console

    page = io.StringIO()
    terminal = sys.stdout.isatty()
    Console(file=page, force_terminal=terminal, width=None if terminal else 120).print(table)
    _put("\n".join(line.rstrip() for line in page.getvalue().splitlines()) + "\n")


def _table(title: str | None, *columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column[:1].islower() else "right")
    return table


def _say(message: str, quiet: bool = False) -> None:
    if not quiet:
        print(message, file=sys.stderr)


class _Bar:
    """Progress on standard error, if that is a terminal."""

    def __init__(self, what: str, quiet: bool) -> None:
        self._bar: Any = None
        self._what = what
        self._on = not quiet and sys.stderr.isatty()

    def __enter__(self) -> _Bar:
        if self._on:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=None)
        return self

    def __call__(self, done: int, total: int | None = None, left: float = float("nan")) -> None:
        if self._bar is not None:
            of = f" of {total:,}" if total else ""
            of += f", {left / 60:,.1f} min left" if left == left else ""
            text = f"{self._what}: {done:,}{of}"
            self._bar.update(self._task, description=text, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


# ---------------------------------------------------------------------- learn
class _Stopped(BaseException):
    """A signal asked to stop while nothing was being changed."""


class _Stop:
    """Signals that wait while a change of state is under way."""

    def __init__(self) -> None:
        self.asked = 0
        self._busy = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Stop:
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):  # not in the main thread
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        twice, self.asked = self.asked, number
        if twice:
            raise KeyboardInterrupt
        if not self._busy:
            raise _Stopped

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Finish what is inside before a signal is heeded."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        if self.asked:
            raise _Stopped


class _Keeper:
    """Saves a model as it learns, and remembers how far each source was read."""

    def __init__(self, model: StreamClassifier, extra: dict[str, Any], path: str, every: int):
        self.model, self.extra, self.path, self.every = model, extra, path, every
        self.whole = True
        self._n_since = 0
        self._saved_at, self._cost = time.monotonic(), 0.0
        self._stamp = self._look()

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def learn(self, chunk: _Chunk, source: str, position: dict[str, Any] | None) -> int:
        """Learn records and note how far ``source`` was read; save when it is time.

        Records without labels are passed over; return how many were learnt.
        """
        known = chunk.labelled()
        self.whole = False
        if len(known):
            ids = known.ids
            if ids is not None:
                first = getattr(self.model, "n_seen_", 0)
                ids = [first + i if name is None else name for i, name in enumerate(ids)]
            try:
                self.model.partial_fit(known.X, known.Y, classes=known.classes, ids=ids)
            except ValueError:
                self.whole = True  # a rejected call changes nothing
                raise
        sources = self.extra["sources"]
        if position is not None:
            sources.pop(source, None)
            sources[source] = position
        for oldest in [*sources][:-MOST_SOURCES]:
            del sources[oldest]
        self._n_since += len(chunk)
        self.whole = True
        # Saving a large model takes long: it may cost a fifth of the time at most.
        if self._n_since >= self.every and time.monotonic() - self._saved_at >= 4 * self._cost:
            self.save()
        return len(known)

    def save(self) -> None:
        """Save, unless there is nothing new or a learning step was broken off."""
        from tagstream import persist

        if not self.whole or not hasattr(self.model, "n_seen_") or self._n_since == 0:
            return
        if self._look() != self._stamp:
            raise _Failed(
                f"{self.path}: another process has written this model meanwhile; "
                "what was learnt since the last checkpoint is not saved"
            )
        start = time.monotonic()
        persist.save(self.model, self.path, extra=self.extra)
        self._stamp, self._n_since = self._look(), 0
        self._saved_at = time.monotonic()
        self._cost = self._saved_at - start


def _open_model(
    path: str, method: str | None, params: dict[str, Any], seed: int, asked: _Reading
) -> tuple[StreamClassifier, dict[str, Any]]:
    """Return the model to go on with, or a new one, and what is saved with it."""
    from tagstream import persist
    from tagstream.data import Hashing

    folder = Path(os.path.realpath(path)).parent
    if not os.access(folder, os.W_OK):
        raise _Failed(f"{path}: the model cannot be saved: {folder} is no directory to write to")
    persist.remove_leftovers(path)
    extra: dict[str, Any]
    if not Path(path).exists():
        model = _new_model(method or "oml", params, seed)
        extra = {"hashing": asdict(Hashing(**asked.hashing)), "reading": {}, "sources": {}}
        return model, extra
    model, extra = persist.load_with_extra(path)
    extra = {"hashing": asdict(Hashing()), "reading": {}, "sources": {}, **extra}
    has = {**model.get_params(deep=False), **extra["hashing"]}
    if method is not None and METHODS.get(method) != type(model).__name__:
        raise typer.BadParameter(
            f"the learner of {path} must stay {type(model).__name__}, got --method {method}"
        )
    wants = {**params, **asked.hashing}
    for key, value in wants.items():
        if key not in has or has[key] != value:
            raise typer.BadParameter(
                f"{key} of {path} must stay {has.get(key)!r}, got {value!r}; it is for a new model"
            )
    return model, extra


@dataclass
class _Source:
    """Where records come from, and how many of them the model has learnt before."""

    name: str
    chunks: Iterator[_Chunk]
    done: int
    tally: _Tally | None = None

    def position(self, n_records: int) -> dict[str, Any] | None:
        """Return what is remembered after so many records; standard input has no positions."""
        if self.name == "-":
            return None
        return {"records": n_records} | ({} if self.tally is None else self.tally.so_far())


def _open_source(
    data: str,
    reading: _Reading,
    extra: dict[str, Any],
    size: int,
    n_features: int | None,
    again: bool,
    quiet: bool,
) -> _Source:
    by_name = _is_data_set(data)
    name = f"data set {data.lower()}" if by_name else "-" if data == "-" else os.path.realpath(data)
    before, done = extra["sources"].get(name), 0
    if before is not None and not again:
        if by_name or _starts_with(data, before):
            done = int(before["records"])
            _say(f"{done:,} records of {data} were learnt before", quiet)
        else:
            _say(f"{data} is not the file learnt before; it is read from its start", quiet)
    if by_name:
        from tagstream.data import load

        return _Source(name, _slices(load(data, **_missing(reading.missing)), size), done)
    if n_features is None and data != "-" and reading.kind(data) == "libsvm":
        n_features = _widest(reading, data)
    tally = _Tally(data)
    return _Source(name, reading.chunks(tally, data, size, n_features), done, tally)


def _starts_with(path: str, position: dict[str, Any]) -> bool:
    """Tell whether a file begins with what was read of it before."""
    tally = _Tally(path)
    try:
        while tally.n_bytes < position["bytes"] and tally.readline():
            pass
    finally:
        tally.close()
    return {**position, **tally.so_far()} == position


def _missing(value: float | None) -> dict[str, Any]:
    return {} if value is None else {"missing": value}


def _what_was_read(reading: _Reading, part: _Chunk, path: str) -> dict[str, Any]:
    """Return what a later command must know to read the same kind of data."""
    if _is_data_set(path):
        return {"usual": "arff", "labels": list(part.classes or ())}
    kind = reading.kind(path)
    kept: dict[str, Any] = {"usual": kind}
    if kind in ("arff", "csv"):
        labels = reading.labels if part.classes is None else list(part.classes)
        said: dict[str, Any] = {"sep": reading.sep, "text": reading.text, "ids": reading.ids}
        said |= {"labels": labels, "missing": reading.missing}
        kept |= {key: value for key, value in said.items() if value is not None}
    return kept


def _widest(reading: _Reading, path: str) -> int:
    """Return the number of features of a LIBSVM file."""
    chunks = reading.chunks(_Tally(path), path, 1024)
    return max((int(chunk.X.shape[1]) for chunk in chunks), default=1)


@app.command()
def learn(
    data: DataArgument,
    model: ModelOption,
    method: MethodOption = None,
    param: ParamOption = None,
    every: Annotated[
        int, typer.Option("--every", min=1, help="Save after so many records.")
    ] = 1000,
    again: Annotated[
        bool, typer.Option("--again", help="Learn DATA from its start, though it was learnt.")
    ] = False,
    format: FormatOption = None,
    labels: LabelsOption = None,
    sep: SepOption = None,
    text: TextOption = None,
    ids: IdsOption = None,
    missing: MissingOption = None,
    n_features: Annotated[
        int | None, typer.Option("--features", min=1, help="LIBSVM on standard input: how many.")
    ] = None,
    hash_bits: BitsOption = None,
    ngrams: NgramsOption = None,
    chunk: ChunkOption = 256,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Learn from DATA; make the model file, or go on with it.

    The model is saved as it learns. When a run is stopped or killed, the same command goes on
    after the last record saved: no record of a file is learnt twice, and the model in the end is
    the one of an undisturbed run. What was added to a file later is learnt by the same command too.
    Records without labels are passed over.

    \b
    Examples:
      tagstream learn posts.jsonl --model m.tgs
      cat more.jsonl | tagstream learn - --model m.tgs
      tagstream learn songs.csv --labels -6 --method knn -p n_neighbors=5 -m songs.tgs
      tagstream learn posts.csv --text body --labels tags --sep "|" -m posts.tgs

    \b
    A record of posts.jsonl is one line:
      {"id": 7, "text": "Where to swim in May?", "y": ["travel", "sea"]}
    "x" in the place of "text" may hold a list of numbers or an object of named values.
    """
    reading = _reading(format, labels, sep, text, ids, missing, hash_bits, ngrams)
    learner, extra = _open_model(model, method, _params(param), seed, reading)
    reading = replace(reading, hashing=extra["hashing"]).merged(extra["reading"])
    n_features = getattr(learner, "n_features_in_", n_features)
    source = _open_source(data, reading, extra, chunk, n_features, again, quiet)
    keeper = _Keeper(learner, extra, model, every)
    n_read, n_learnt, stopped = source.done, 0, 0
    with _Stop() as stop, _Bar("learning", quiet) as bar:
        try:
            for part in _skip(source.chunks, source.done):
                _check_features(part, extra, data)
                with stop.held():
                    if n_learnt == 0:
                        extra["reading"] |= _what_was_read(reading, part, data)
                        if part.features is not None:
                            extra["features"] = list(part.features)
                    n_read += len(part)
                    n_learnt += keeper.learn(part, source.name, source.position(n_read))
                bar(n_read)
        except (_Stopped, KeyboardInterrupt):
            stopped = stop.asked or signal.SIGINT
        finally:
            with contextlib.suppress(_Stopped), stop.held():
                keeper.save()
    if not hasattr(learner, "n_seen_"):
        raise _Failed(f"{data}: must hold at least one record with labels, got none")
    passed = n_read - source.done - n_learnt
    note = f" ({passed:,} without labels passed over)" if passed else ""
    _say(
        f"{n_learnt:,} records learnt{note}; {model} has seen {learner.n_seen_:,} "
        f"and knows {len(learner.classes_):,} labels",
        quiet,
    )
    if stopped:
        how = "the same command without --again" if again else "the same command"
        _say(f"stopped; {how} goes on from here", quiet)
        raise typer.Exit(128 + stopped)


# ---------------------------------------------------------------------- predict, explain, inspect
def _load(path: str, asked: _Reading) -> tuple[StreamClassifier, dict[str, Any], _Reading]:
    """Return a model, what was saved with it, and how to read records for it."""
    from tagstream import persist

    model, extra = persist.load_with_extra(path)
    saved = {**extra.get("reading", {}), "hashing": extra.get("hashing", {})}
    return model, extra, asked.merged(saved)


def _records(
    data: str, model: StreamClassifier, extra: dict[str, Any], reading: _Reading, size: int
) -> Iterator[_Chunk]:
    """Read records to be predicted."""
    if _is_data_set(data):
        from tagstream.data import load

        chunks = _slices(load(data, **_missing(reading.missing)), size)
    else:
        chunks = reading.chunks(_Tally(data), data, size, model.n_features_in_, optional=True)
    for chunk in chunks:
        _check_features(chunk, extra, data)
        yield chunk


class _Prediction(NamedTuple):
    """One record's answer, highest score first."""

    id: Any
    labels: list[Any]
    ranked: list[tuple[Any, float]]


def _predictions(
    model: StreamClassifier, chunk: _Chunk, first: int, threshold: float | None
) -> Iterator[_Prediction]:
    import numpy as np

    scores = model.predict_proba(chunk.X)
    decided = scores >= (model.threshold if threshold is None else threshold)
    if model._single and threshold is None:
        decided = np.eye(scores.shape[1], dtype=bool)[scores.argmax(axis=1)]
    names = model.classes_.tolist()
    order = np.argsort(-scores, axis=1, kind="stable")
    for i, best in enumerate(order.tolist()):
        name = None if chunk.ids is None else chunk.ids[i]
        yield _Prediction(
            first + i if name is None else name,
            [names[j] for j in best if decided[i, j]],
            [(names[j], round(float(scores[i, j]), 6)) for j in best],
        )


def _as_json(answer: _Prediction, show: str, top: int | None) -> str:
    record: dict[str, Any] = {"id": answer.id, "labels": answer.labels}
    if top is not None:
        record["top"] = [{"label": name, "score": score} for name, score in answer.ranked[:top]]
    elif show == "scores":
        record["scores"] = {str(name): score for name, score in answer.ranked}
    return json.dumps(record, ensure_ascii=False)


def _as_rows(
    answer: _Prediction, show: str, top: int | None, names: list[Any]
) -> list[list[object]]:
    if top is not None:
        best = answer.ranked[:top]
        return [[answer.id, rank, name, score] for rank, (name, score) in enumerate(best, 1)]
    if show == "scores":
        scores = dict(answer.ranked)
        return [[answer.id, *(scores[name] for name in names)]]
    return [[answer.id, "|".join(map(str, answer.labels))]]


@app.command()
def predict(
    data: DataArgument,
    model: ModelOption,
    show: Annotated[
        str, typer.Option("--show", metavar="labels|scores", help="Labels, or all scores too.")
    ] = "labels",
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="The so many best labels with scores.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="Score from which a label is predicted.")
    ] = None,
    out: Annotated[
        str, typer.Option("--out", metavar="jsonl|csv", help="What to print.")
    ] = "jsonl",
    format: FormatOption = None,
    labels: LabelsOption = None,
    sep: SepOption = None,
    text: TextOption = None,
    ids: IdsOption = None,
    missing: MissingOption = None,
    chunk: ChunkOption = 256,
) -> None:
    """Predict the labels of the records of DATA, one line each on standard output.

    DATA needs no labels; if it has some, they are ignored. A record without identifier gets its
    number, counted from 0.

    \b
    Examples:
      tagstream predict new.jsonl --model m.tgs
      cat new.jsonl | tagstream predict - --model m.tgs --top 3
      tail -f new.jsonl | tagstream predict - --model m.tgs --chunk 1
      tagstream predict new.csv --model m.tgs --show scores --out csv > scores.csv
    """
    for name, value, choices in (
        ("--show", show, ("labels", "scores")),
        ("--out", out, ("jsonl", "csv")),
    ):
        if value not in choices:
            raise typer.BadParameter(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    learner, extra, reading = _load(model, _reading(format, labels, sep, text, ids, missing))
    names = learner.classes_.tolist()
    header: list[Any] = ["id", "labels"] if show == "labels" else ["id", *names]
    header = ["id", "rank", "label", "score"] if top is not None else header
    first = 0
    if out == "csv":
        _put(_csv([header]))
    for part in _records(data, learner, extra, reading, chunk):
        answers = _predictions(learner, part, first, threshold)
        if out == "csv":
            _put(_csv([row for a in answers for row in _as_rows(a, show, top, names)]))
        else:
            _put("".join(_as_json(a, show, top) + "\n" for a in answers))
        first += len(part)


def _csv(rows: list[list[Any]]) -> str:
    page = io.StringIO()
    csv.writer(page, lineterminator="\n").writerows(rows)
    return page.getvalue()


@app.command()
def explain(
    item: Annotated[
        str,
        typer.Argument(
            metavar="ITEM",
            help="A JSON record, a plain text, a data file or data set (see --row), or '-' for a "
            "record on standard input.",
        ),
    ],
    model: ModelOption,
    row: Annotated[int, typer.Option("--row", min=0, help="Which record of a file.")] = 0,
    format: FormatOption = None,
    labels: LabelsOption = None,
    sep: SepOption = None,
    text: TextOption = None,
    ids: IdsOption = None,
    missing: MissingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell why an item gets its labels: the stored items nearest to it, and their votes.

    \b
    Examples:
      tagstream explain "Where to swim in May?" --model m.tgs
      tagstream explain '{"x": [0.5, 1.5, 3]}' --model m.tgs
      tagstream explain new.csv --row 12 --model m.tgs
      head -1 new.jsonl | tagstream explain - --model m.tgs --json
    """
    learner, extra, reading = _load(model, _reading(format, labels, sep, text, ids, missing))
    if not hasattr(learner, "explain"):
        raise _Failed(
            f"{model}: {type(learner).__name__} keeps no items to explain with; use --method oml"
        )
    if item == "-" or _is_data_set(item) or Path(item).is_file():
        chunks = _skip(_records(item, learner, extra, reading, 1 if item == "-" else 256), row)
        part = next(chunks, None)
        if part is None:
            raise _Failed(f"{item}: must have a record {row}, got fewer")
    else:
        part = _typed_record(item, reading)
    X = part.X[:1]
    if X.shape[1] != learner.n_features_in_:
        raise _Failed(
            f"ITEM must have {learner.n_features_in_} features as the model has learnt, "
            f"got {X.shape[1]}"
        )
    (why,) = learner.explain(X)
    if as_json:
        _put(json.dumps(asdict(why) | {"voters": _names(why.voters), "scores": _names(why.scores)}))
        _put("\n")
        return
    _put_explanation(why)


def _put_explanation(why: Any) -> None:
    votes = _table("labels", "label", "Score", "voted for by")
    for name, score in why.scores.items():
        voters = [str(n.id) for n in why.neighbors if name in n.labels]
        mark = "*" if name in why.voters else ""
        votes.add_row(f"{name}{mark}", f"{score:.2f}", ", ".join(voters))
    _put_table(votes)
    near = _table("nearest items", "item", "Distance", "labels")
    for n in why.neighbors:
        near.add_row(str(n.id), f"{n.distance:.4g}", ", ".join(map(str, n.labels)))
    _put_table(near)
    _put("* suggested\n")


def _names(by_label: dict[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in by_label.items()}


def _typed_record(item: str, reading: _Reading) -> _Chunk:
    """Return a record given on the command line."""
    from tagstream import data

    line = item.strip() if item.lstrip().startswith("{") else json.dumps({"text": item})
    stream = io.BytesIO(line.replace("\n", " ").encode("utf-8", "surrogateescape"))
    stream.name = "ITEM"
    (batch,) = data.iter_jsonl(stream, hashing=data.Hashing(**reading.hashing))
    return _to_chunk(batch)


@app.command()
def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model file.")],
    as_json: JsonOption = False,
) -> None:
    """Tell what a model knows: labels and how often it keeps them, parameters, size.

    \b
    Examples:
      tagstream inspect m.tgs
      tagstream inspect m.tgs --json | jq .params
    """
    from tagstream import persist

    info = persist.inspect(model)
    learner, extra = persist.load_with_extra(model)
    names = learner.classes_.tolist()
    counts = _kept(learner)
    sources = extra.get("sources", {})
    if as_json:
        record = {
            key: value for key, value in asdict(info).items() if key not in ("arrays", "extra")
        }
        record |= {"labels": names, "kept": counts, "hashing": extra.get("hashing")}
        _put(json.dumps(record | {"sources": sources}, ensure_ascii=False) + "\n")
        return
    facts = _table(model, "what", "value")
    rows = {
        "learner": info.learner,
        "learnt": f"{info.n_seen:,} examples",
        "features": f"{info.n_features:,}",
        "labels": f"{info.n_labels:,}",
        "size": f"{info.n_bytes:,} bytes, format {info.format}, tagstream {info.tagstream}",
        **{f"  {key}": str(value) for key, value in info.params.items()},
    }
    for key, value in rows.items():
        facts.add_row(key, value)
    hashing = extra.get("hashing", {})
    for key, value in hashing.items() if hashing.get("n_features") == info.n_features else ():
        facts.add_row(f"  hashing {key}", str(value))
    for name, position in sources.items():
        facts.add_row("read", f"{position['records']:,} records of {name}")
    _put_table(facts)
    known = _table("labels", "label", "Kept")
    shown = sorted(range(len(names)), key=lambda j: -counts[j]) if counts else range(len(names))
    for j in [*shown][:50]:
        known.add_row(str(names[j]), f"{counts[j]:,}" if counts else "")
    _put_table(known)
    if len(names) > 50:
        _put(f"and {len(names) - 50:,} more; --json lists all\n")


def _kept(model: StreamClassifier) -> list[int] | None:
    """Return how many of the stored items have each label, if the model stores items."""
    memory = getattr(model, "_memory", None)
    if memory is None:
        return None
    counts: list[int] = memory.labels().Y.sum(axis=0, dtype="int64").tolist()
    return counts


# ---------------------------------------------------------------------- evaluate
MEASURES = {
    "Micro-F1": "micro_f1",
    "Macro-F1": "macro_f1",
    "Example-F1": "example_f1",
    "Hamming loss": "hamming_loss",
    "Precision@1": "precision_at_1",
}


def _load_all(data: str, reading: _Reading) -> Dataset:
    """Read DATA to its end."""
    from tagstream import data as readers
    from tagstream.data.dataset import collect, concatenate

    if _is_data_set(data):
        return readers.load(data, **_missing(reading.missing))
    kind = reading.kind(data)
    n_features = _widest(reading, data) if kind == "libsvm" and data != "-" else None
    name = "stdin" if data == "-" else Path(data).name
    tally = _Tally(data)
    parts = reading.parts(tally, data, 1024, n_features)
    try:
        if kind == "arff":
            return concatenate(parts, path=tally.name)
        return collect(parts, path=tally.name, name=name, numeric=kind == "libsvm")
    finally:
        tally.close()


@app.command()
def evaluate(
    data: DataArgument,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="|".join([*METHODS, "all"]),
            help="The learner; give several to compare them.  [default: oml]",
            autocompletion=_complete([*METHODS, "all"]),
        ),
    ] = None,
    param: ParamOption = None,
    holdout: Annotated[
        bool, typer.Option("--holdout", help="Hold parts out instead of test-then-train.")
    ] = False,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Hold-out: parts.")] = 5,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Hold-out: repetitions.")] = 1,
    delay: Annotated[
        int, typer.Option("--delay", min=0, help="Test-then-train: labels come so many items late.")
    ] = 0,
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Test-then-train: items at a time.")
    ] = 1,
    window: Annotated[
        int | None,
        typer.Option("--window", min=1, help="Items of the recent measures.  [default: 1/10]"),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option("--every", min=1, help="Items between points of the curve.  [default: 1/20]"),
    ] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Print the learning curve too.")] = False,
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="Score from which a label is predicted.")
    ] = None,
    format: FormatOption = None,
    labels: LabelsOption = None,
    sep: SepOption = None,
    text: TextOption = None,
    ids: IdsOption = None,
    missing: MissingOption = None,
    hash_bits: BitsOption = None,
    ngrams: NgramsOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure how well learners do on DATA.

    By default prequential: each item is predicted, then learnt, in the order of the file. With
    --holdout, each of several parts is predicted after the others were learnt in random order.

    \b
    Examples:
      tagstream evaluate posts.jsonl
      tagstream evaluate emotions --holdout --method oml --method knn
      tagstream evaluate songs.arff --method all --curve
      tagstream evaluate posts.jsonl --delay 100 --json > result.json
    """
    import numpy as np

    from tagstream.evaluate import holdout as hold_out
    from tagstream.evaluate import prequential

    methods = [*dict.fromkeys(method or ["oml"])]
    methods = [*METHODS] if "all" in methods else methods
    reading = _reading(format, labels, sep, text, ids, missing, hash_bits, ngrams)
    models = {name: _new_model(name, _params(param), seed) for name in methods}
    whole = _load_all(data, reading)
    Y = whole.Y if whole.known is None else np.where(whole.known, whole.Y, np.nan)
    results: dict[str, Any] = {}
    for name, model in models.items():
        how: dict[str, Any] = {"threshold": threshold}
        if holdout:
            how |= {"folds": folds, "repeats": repeats, "seed": seed}
        else:
            how |= {"delay": delay, "batch": batch, "window": window or max(len(Y) // 10, 1)}
            how["every"] = every or max(len(Y) // 20, 1)
        with _Bar(name, quiet) as bar:
            run = hold_out if holdout else prequential
            results[name] = run(model, whole.X, Y, progress=bar, **how)
    n, p = whole.X.shape
    if as_json:
        record = {"data": whole.name or data, "n": n, "p": p, "q": Y.shape[1]}
        record["protocol"] = "holdout" if holdout else "prequential"
        record["results"] = {name: result.as_dict() for name, result in results.items()}
        _put(json.dumps(record) + "\n")
        return
    protocol = f"{repeats} x {folds}-fold hold-out" if holdout else "test, then train"
    title = f"{whole.name or data}: {n:,} items, {p:,} features, {Y.shape[1]:,} labels; {protocol}"
    _put_results(title, results)
    if curve and not holdout:
        _put_curve(results)


def _put_results(title: str, results: dict[str, Any]) -> None:
    table = _table(title, "method", *MEASURES, "Time per item")
    for name, result in results.items():
        held_out = hasattr(result, "folds")
        values = result.mean if held_out else result.measures
        spread = result.std if held_out else {}
        cells = [_cell(values.get(key), spread.get(key)) for key in MEASURES.values()]
        table.add_row(name, *cells, _per_item(result))
    _put_table(table)


def _cell(value: float | None, spread: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if spread is None else f"{value:.4f} ± {spread:.4f}"


def _per_item(result: Any) -> str:
    if hasattr(result, "folds"):
        seconds = sum(fold.learn_seconds + fold.predict_seconds for fold in result.folds)
        each = seconds / sum(fold.n_train + fold.n_test for fold in result.folds)
    else:
        each = result.seconds_per_item
    return f"{each * 1e3:.3f} ms"


def _put_curve(results: dict[str, Any]) -> None:
    """Print the micro-F1 of the recent items along the stream."""
    for name, result in results.items():
        table = _table(f"{name}: micro-F1 of the recent items", "Items", "Micro-F1", "curve")
        for point in result.curve:
            value = point.recent.get("micro_f1", 0.0)
            table.add_row(f"{point.n_items:,}", f"{value:.4f}", "█" * round(40 * value))
        _put_table(table)


@app.command()
def demo(
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="Write a page with pictures there.")
    ] = None,
    items: Annotated[int, typer.Option("--items", min=100, help="Length of the stream.")] = 2000,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Show the learners at work on a made-up stream; takes less than a minute.

    The labels of the stream depend on each other, some appear late, and the nearest items in the
    input are often the wrong ones. Each item is predicted, then learnt.

    \b
    Examples:
      tagstream demo
      tagstream demo --out demo
    """
    from tagstream.data import make_stream
    from tagstream.evaluate import prequential

    stream = make_stream(items + 1, n_late=2, seed=seed)
    results: dict[str, Any] = {}
    models = {name: _new_model(name, {}, seed) for name in METHODS}
    every = max(items // 10, 1)
    for name, model in models.items():
        with _Bar(name, quiet) as bar:
            results[name] = prequential(
                model, stream.X[:-1], stream.Y[:-1], every=every, window=every, progress=bar
            )
    _put_results(f"a made-up stream of {items:,} items; test, then train", results)
    _put_curve({"oml": results["oml"]})
    _put("why oml suggests these labels for the next item\n\n")
    _put_explanation(models["oml"].explain(stream.X[-1:])[0])
    if out is not None:
        from tagstream.report import write_demo

        page = write_demo(out, {name: result.as_dict() for name, result in results.items()})
        _say(f"see {page}", quiet)
    _put("next: tagstream learn posts.jsonl --model m.tgs (see tagstream learn --help)\n")


@app.command()
def reproduce(
    results: Annotated[
        str, typer.Argument(metavar="DIR", help="Where the records are, or will be.")
    ] = "results",
    quick: Annotated[bool, typer.Option("--quick", help="A small part: some minutes.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes.")] = 2,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="A part, data set or method; repeatable."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what has a record.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Run the paper's experiments; what has a record already is not run again.

    It can be stopped at any moment and goes on where it was. Data sets are looked for in the data
    home (see tagstream data list).

    \b
    Examples:
      tagstream reproduce --quick
      tagstream reproduce results --jobs 4 --only holdout --only emotions
      tagstream report results report
    """
    import logging

    from tagstream import experiments

    logging.getLogger("tagstream").addHandler(logging.NullHandler())  # told below
    with _Bar("cells", quiet) as bar:
        done = experiments.run(
            results, quick=quick, jobs=jobs, only=only, fresh=fresh, progress=bar
        )
    for name, how in done.missing.items():
        _say(f"{name} is left out: {how}", quiet)
    _say(f"{done.n_run} cells run, {done.n_kept} were there; records in {results}", quiet)
    if done.failed:
        cell, why = next(iter(done.failed.items()))
        raise _Failed(f"{len(done.failed)} cells failed, the first: {cell}: {why}")


@app.command()
def report(
    results: Annotated[str, typer.Argument(metavar="DIR", help="Where the records are.")],
    out: Annotated[str, typer.Argument(metavar="OUT", help="Where the page goes.")] = "report",
    document: Annotated[
        list[str] | None,
        typer.Option("--document", metavar="FILE.md", help="Rewrite its marked regions."),
    ] = None,
) -> None:
    """Make figures, tables and one page from the records of experiments.

    \b
    Example:
      tagstream report results report
    """
    from tagstream.report import build

    if not Path(results).is_dir():
        raise _Failed(f"{results}: must be a directory of records; see tagstream reproduce --help")
    _put(f"{build(results, out, documents=document or ())}\n")


# ---------------------------------------------------------------------- data
@data_app.command("list")
def data_list(as_json: JsonOption = False) -> None:
    """List the benchmark data sets and whether they are here.

    \b
    Example:
      tagstream data list
    """
    from tagstream.data import DATASETS, data_home

    def here(name: str) -> bool:
        return (data_home() / name).is_dir()

    if as_json:
        keys = ("name", "domain", "n", "p", "q", "cardinality", "source")
        rows = [{key: getattr(info, key) for key in keys} for info in DATASETS.values()]
        _put(json.dumps([row | {"here": here(row["name"])} for row in rows]) + "\n")
        return
    table = _table(None, "name", "domain", "Items", "Features", "Labels", "Per item", "here")
    for info in DATASETS.values():
        sizes = (f"{info.n:,}", f"{info.p:,}", f"{info.q:,}", f"{info.cardinality:.2f}")
        how = "yes" if here(info.name) else "fetch" if info.files else "no"
        table.add_row(info.name, info.domain, *sizes, how)
    _put_table(table)
    _put(f"data home: {data_home()} (set TAGSTREAM_DATA to change it)\n")


def _known_sets(incomplete: str) -> list[str]:
    from tagstream.data import DATASETS

    return [name for name in DATASETS if name.startswith(incomplete)]


@data_app.command("fetch")
def data_fetch(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="Data sets.", autocompletion=_known_sets),
    ],
) -> None:
    """Download data sets that are not here; print where their files are.

    \b
    Example:
      tagstream data fetch scene image
    """
    from tagstream.data import DATASETS, fetch

    for name in names:
        if name not in DATASETS:
            raise typer.BadParameter(f"NAME must be one of {', '.join(DATASETS)}, got {name!r}")
    for name in names:
        for path in fetch(name):
            _put(f"{path}\n")


@data_app.command("convert")
def data_convert(
    data: DataArgument,
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="The file to write; '-' for standard output.")
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="|".join(FORMATS),
            help="The format of OUT.  [default: by its ending]",
            autocompletion=_complete(FORMATS),
        ),
    ] = None,
    format: FormatOption = None,
    labels: LabelsOption = None,
    sep: SepOption = None,
    text: TextOption = None,
    ids: IdsOption = None,
    missing: MissingOption = None,
    hash_bits: BitsOption = None,
    ngrams: NgramsOption = None,
) -> None:
    """Write DATA in another format.

    CSV gets the labels as its last columns (read it with --labels -Q, where Q is their number);
    LIBSVM numbers the labels from 0 in their order.

    \b
    Examples:
      tagstream data convert emotions emotions.csv
      tagstream data convert songs.arff - --to jsonl | head -3
    """
    from tagstream import data as tools

    writers = {
        "arff": tools.write_arff,
        "csv": tools.write_csv,
        "jsonl": tools.write_jsonl,
        "libsvm": tools.write_libsvm,
    }
    write = writers[_Reading(format=to).kind(out)]
    reading = _reading(format, labels, sep, text, ids, missing, hash_bits, ngrams)
    whole = _load_all(data, reading)
    if out != "-":
        write(whole, out)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out"
        write(whole, path)
        with path.open(encoding="utf-8", newline="") as file:
            while part := file.read(1 << 16):
                _put(part)


# ---------------------------------------------------------------------- main
def _version(wanted: bool) -> None:
    if wanted:
        _put(f"tagstream {__version__}\n")
        raise typer.Exit


@app.callback()
def _app(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Suggest tags for a stream of items, and learn from every correction.

    \b
    Begin here:
      tagstream learn posts.jsonl --model m.tgs       learn {"text": ..., "y": [tags]} lines
      cat new.jsonl | tagstream predict - -m m.tgs    suggest tags
      tagstream explain "some text" -m m.tgs          see why
      tagstream evaluate emotions --method all        compare the learners
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default those of the process.
    """
    usage_error: Any = typer.BadParameter.__base__  # of click, or of typer's own copy of it
    try:
        code = app(args=argv, prog_name="tagstream", standalone_mode=False)
    except usage_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            _say(error.format_message())
            return 2
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "tagstream"
        return _fail(f"{error.format_message()} (see {command} --help)", 2)
    except (_Stopped, KeyboardInterrupt, typer.Abort):
        return _fail("stopped", 130)
    except ImportError as error:
        return _fail(str(error), 1)
    except (_Failed, ValueError, OSError) as error:
        return _fail(_one_line(error), 1)
    return code if isinstance(code, int) else 0


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if line.startswith("Input X contains NaN"):
        return "X must have no missing values, got some; fill them with --missing VALUE"
    return line


def _fail(message: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(f"tagstream: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
