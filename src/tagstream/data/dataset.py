"""What the readers hand out, and how they get at the lines of a file.

Two shapes of the same thing. A `Dataset` holds labels as an indicator array ``Y``: for files that
declare their labels, and for anything that has been read to its end. A `Batch` holds label *sets*:
for streams in which a new tag can turn up with any record.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tagstream.checks import DataError

__all__ = [
    "Batch",
    "Dataset",
    "Lines",
    "Matrix",
    "Source",
    "collect",
    "concatenate",
    "open_unpacked",
    "stack",
    "stem",
]

Matrix: TypeAlias = "NDArray[np.float64] | sparse.csr_matrix"
Source: TypeAlias = "str | os.PathLike[str] | IO[bytes] | IO[str]"
LabelSet: TypeAlias = tuple[str, ...]

_MAX_LINE = 1 << 26  # bytes; a longer line is a damaged file or a decompression bomb


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples with their labels as an indicator array.

    Attributes
    ----------
    X : ndarray of shape (n, p), float64, or CSR matrix when the file is sparse
        A missing feature (``?``) is whatever the reader's ``missing`` says, NaN unless told
        otherwise.
    Y : ndarray of shape (n, q), uint8
    feature_names : tuple of str, or None
        None when the features have no names (LIBSVM, hashed text).
    label_names : tuple of str
    name : str
    n_train : int or None
        The first ``n_train`` rows are the training part, where the source ships a split.
    known : ndarray of shape (n, q), bool, or None
        False where the file does not say whether the label applies; ``Y`` is 0 there. None: all is
        known.
    ids : tuple or None
        The records' own identifiers.

    Examples
    --------
    >>> import numpy as np
    >>> d = Dataset(np.eye(2), np.array([[1, 1], [0, 0]], np.uint8), ("a", "b"), ("sun", "sea"))
    >>> d.label_sets
    [('sun', 'sea'), ()]
    >>> float(d.cardinality)
    1.0
    """

    X: Matrix
    Y: NDArray[np.uint8]
    feature_names: tuple[str, ...] | None
    label_names: tuple[str, ...]
    name: str = ""
    n_train: int | None = None
    known: NDArray[np.bool_] | None = None
    ids: tuple[Any, ...] | None = None

    @property
    def label_sets(self) -> list[LabelSet | None]:
        """The names of each row's labels; None for a row of which no label is known."""
        sets: list[LabelSet | None] = [
            tuple(self.label_names[j] for j in np.flatnonzero(row)) for row in self.Y
        ]
        if self.known is not None:
            sets = [s if row.any() else None for s, row in zip(sets, self.known, strict=True)]
        return sets

    @property
    def cardinality(self) -> float:
        """Mean number of labels per example."""
        return float(self.Y.sum(dtype=np.int64) / len(self.Y))

    def __repr__(self) -> str:
        (n, p), q = self.X.shape, len(self.label_names)
        kind = "sparse" if sparse.issparse(self.X) else "dense"
        return f"<Dataset {self.name!r}: {n} rows, {p} {kind} features, {q} labels>"


@dataclass(frozen=True, eq=False)
class Batch:
    """Consecutive records of a stream whose labels are not known in advance.

    Attributes
    ----------
    X : ndarray of shape (n, p), float64, or CSR matrix
    label_sets : list of (tuple of str, or None)
        Each record's labels without repetition; None when the record carries none (to be
        predicted).
    unknown : list of tuple of str, or None
        For each record the labels of which the file does not say whether they apply.
    ids : tuple or None
        The records' own identifiers.
    feature_names, label_names : tuple of str, or None
        Where the file declares them.
    """

    X: Matrix
    label_sets: list[LabelSet | None]
    unknown: list[LabelSet] | None = None
    ids: tuple[Any, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    label_names: tuple[str, ...] | None = None


class Lines:
    """The lines of a source, as bytes, with the number of the line last read.

    Opens plain, gzip and bzip2 files (told apart by their first bytes, not by their name),
    standard input (``"-"``) and file objects, and turns every way in which reading can fail into a
    `DataError`.

    Parameters
    ----------
    source : str, path or file object
    """

    def __init__(self, source: Source) -> None:
        self._close: Callable[[], object] = lambda: None
        self.number = 0
        if isinstance(source, (str, os.PathLike)) and os.fspath(source) != "-":
            self.path = os.fspath(source)
            file: Any = open_unpacked(self.path)
            self._close = file.close
        else:
            file = sys.stdin.buffer if isinstance(source, (str, os.PathLike)) else source
            self.path = str(getattr(file, "name", "<stream>"))
        self._lines = takewhile(bool, iter(partial(file.readline, _MAX_LINE + 1), None))

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):  # a read error has been reported already
            self._close()

    def __iter__(self) -> Iterator[bytes]:
        while lines := self.take(1):
            yield lines[0]

    def take(self, n: int) -> list[bytes]:
        """Return up to ``n`` further lines with their line ends; none at the end of the source."""
        lines: list[Any] = []
        try:
            # without a loop in Python; what was read before an error stays in the list
            lines.extend(islice(self._lines, n))
            if lines and isinstance(lines[0], str):
                lines = [line.encode("utf-8") for line in lines]
        except (OSError, EOFError, zlib.error, UnicodeError) as error:
            self.number += len(lines) + 1
            raise self.error(f"must be readable to its end, got {error}") from error
        if lines and max(map(len, lines)) > _MAX_LINE:
            self.number += next(i for i, line in enumerate(lines, 1) if len(line) > _MAX_LINE)
            raise self.error(f"a line must have at most {_MAX_LINE} bytes; is this a text file?")
        if lines and self.number == 0:
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        self.number += len(lines)
        return lines

    def decode(self, line: bytes, number: int | None = None) -> str:
        """Return the line as text, or say where it is not UTF-8."""
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            bad = line[error.start : error.start + 1]
            raise self.error(f"must be UTF-8 text, got the byte {bad!r}", number) from error
        if "\0" in text:
            raise self.error("must be UTF-8 text, got a NUL byte", number)
        return text

    def error(self, message: str, number: int | None = None) -> DataError:
        """Return a `DataError` that names the path and the line, the last one unless told."""
        return DataError(f"{self.path}:{self.number if number is None else number}: {message}")


def open_unpacked(path: str) -> gzip.GzipFile | bz2.BZ2File | IO[bytes]:
    """Open a file for reading, through gzip or bzip2 if its first bytes say so."""
    file = open(path, "rb")  # noqa: SIM115  # a pipe could not be opened again, and is not packed
    magic = file.peek(3)
    if magic[:2] == b"\x1f\x8b":
        file.close()
        return gzip.open(path, "rb")
    if magic[:3] == b"BZh":
        file.close()
        return bz2.open(path, "rb")
    return file


def stem(path: str | os.PathLike[str]) -> Path:
    """Return the path without its format's and its compression's suffix.

    Examples
    --------
    >>> stem("data/scene.arff.gz").name, stem("tmc2007-500.v2.csv").name
    ('scene', 'tmc2007-500.v2')
    """
    path = Path(path)
    return (path.with_suffix("") if path.suffix in {".gz", ".bz2"} else path).with_suffix("")


def stack(parts: Sequence[Any]) -> Matrix:
    """Return the rows of all parts; sparse parts are widened to the widest."""
    if not sparse.issparse(parts[0]):
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    indptr = [np.zeros(1, dtype=np.int64)]
    for part in parts:
        indptr.append(part.indptr[1:].astype(np.int64) + indptr[-1][-1])
    return sparse.csr_matrix(
        (
            np.concatenate([part.data for part in parts]),
            np.concatenate([part.indices for part in parts]),
            np.concatenate(indptr),
        ),
        shape=(sum(part.shape[0] for part in parts), width),
    )


def _join_ids(parts: Sequence[Dataset | Batch]) -> tuple[Any, ...] | None:
    if all(part.ids is None for part in parts):
        return None
    ids: list[Any] = []
    for part in parts:
        ids += [None] * part.X.shape[0] if part.ids is None else part.ids
    return tuple(ids)


def concatenate(parts: Iterable[Dataset], *, path: str) -> Dataset:
    """Return one `Dataset` made of all parts, which must agree in their names.

    ``path`` says in an error message where the rows should have been.
    """
    parts = list(parts)
    if not parts:
        raise DataError(f"{path}: must hold at least one record, got none")
    first = parts[0]
    for part in parts:
        if (part.feature_names, part.label_names) != (first.feature_names, first.label_names):
            raise DataError(f"{path}: all parts must declare the same attributes as the first")
    known = None
    if any(part.known is not None for part in parts):
        known = np.concatenate(
            [np.ones(p.Y.shape, dtype=bool) if p.known is None else p.known for p in parts]
        )
    return Dataset(
        X=stack([part.X for part in parts]),
        Y=np.concatenate([part.Y for part in parts]),
        feature_names=first.feature_names,
        label_names=first.label_names,
        name=first.name,
        n_train=first.n_train,
        known=known,
        ids=_join_ids(parts),
    )


def collect(batches: Iterable[Batch], *, path: str, name: str, numeric: bool = False) -> Dataset:
    """Return one `Dataset` made of all batches of a stream.

    Labels come in the order in which the file declares them, else sorted (``numeric``: as
    integers).
    """
    batches = list(batches)
    if not batches:
        raise DataError(f"{path}: must hold at least one record, got none")
    sets = [labels for batch in batches for labels in batch.label_sets]
    names = batches[0].label_names
    if names is None:
        found = {label for labels in sets if labels for label in labels}
        names = tuple(sorted(found, key=int) if numeric else sorted(found))
    column = {label: j for j, label in enumerate(names)}
    Y = np.zeros((len(sets), len(names)), dtype=np.uint8)
    known = np.ones(Y.shape, dtype=bool)
    for i, labels in enumerate(sets):
        if labels is None:
            known[i] = False
        else:
            Y[i, [column[label] for label in labels]] = 1
    first_row = 0
    for batch in batches:
        for i, unknown in enumerate(batch.unknown or (), start=first_row):
            known[i, [column[label] for label in unknown]] = False
        first_row += len(batch.label_sets)
    return Dataset(
        X=stack([batch.X for batch in batches]),
        Y=Y,
        feature_names=batches[0].feature_names,
        label_names=names,
        name=name,
        known=None if known.all() else known,
        ids=_join_ids(batches),
    )
