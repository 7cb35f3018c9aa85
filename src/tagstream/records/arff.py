"""ARFF files, dense and sparse, with the label conventions of MULAN and MEKA.

An ARFF file declares its attributes and then lists one row per line, either ``1,0.5,red`` or,
sparse, ``{0 1,2 red}``, where an attribute that is left out has the value 0 or, if nominal, its
*first declared* value. Which attributes are labels is said elsewhere: MULAN ships an XML file that
names them, in any order; MEKA writes ``-C n`` into the relation's name, which means the first n
attributes or, if n is negative, the last −n.

Every attribute becomes one or more columns:

- numeric: its value;
- nominal with two values: 0 or 1. Numbers keep their order, ``no``/``yes`` and their kin their
  meaning; any other pair follows the declaration;
- nominal with more values, as a feature: one column per value, named ``attribute=value``.

``?`` in a feature becomes ``missing`` (NaN, unless told otherwise: the learners refuse NaN, so a
file with gaps asks for a decision). ``?`` in a label is not known: NaN in ``Y``, which then is of
floats.

A chunk that is all plain numbers is read at once by `parse_decimals`. If anything in it is out of
the ordinary, errors included, it is read line by line; the two ways agree where both apply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tagstream.records.arff_header import (
    Header,
    Labels,
    find_labels,
    read_header,
    read_labels_xml,
    short,
    split,
    to_number,
    unquote,
)
from tagstream.records.dataset import Dataset, Matrix, stem
from tagstream.records.lines import Lines, Source
from tagstream.records.numbers import parse_decimals

__all__ = ["iter_arff", "read_labels_xml"]

_MAX_CELLS = 1 << 22  # rows times attributes read at a time
_ENTRY = re.compile(
    r"""\s*(\d{1,9})\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,'"][^\s,]*)\s*(?:(,)|$)""",
    re.ASCII,
)


def iter_arff(
    source: Source, *, labels: Labels = None, chunk: int = 1024, missing: float = math.nan
) -> Iterator[Dataset]:
    """Read an ARFF file in chunks of bounded size.

    Parameters
    ----------
    source : path, file object, or "-" for standard input
        Plain, gzip or bzip2.
    labels : path of a MULAN XML file, sequence of str, int, or None
        The label attributes: their names, or their number as in MEKA's ``-C`` (positive: the
        first, negative: the last). None looks for ``<name>.xml`` beside the file, then for ``-C``
        in the relation's name.
    chunk : int
        Rows per chunk.
    missing : float
        What stands in ``X`` for a ``?``.

    Yields
    ------
    Dataset
        With the file's names and, where MEKA declares one, its split; at most ``chunk`` rows.
        Labels are in the order of the ARFF file.

    Raises
    ------
    DataError
        Naming path and line, when the file breaks a rule of the format.

    Examples
    --------
    >>> import io
    >>> text = io.StringIO('''@relation 'toy: -C 1'
    ... @attribute sunny {0,1}
    ... @attribute degrees numeric
    ... @data
    ... 1,21.5
    ... 0,-3''')
    >>> [(d.X.tolist(), d.label_sets) for d in iter_arff(text, chunk=1)]
    [([[21.5]], [('sunny',)]), ([[-3.0]], [()])]
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    with Lines(source) as lines:
        header = read_header(lines)
        is_label = find_labels(header, labels, lines)
        reader: _RowReader | None = None
        # a short sparse row can stand for many cells
        chunk = min(chunk, max(_MAX_CELLS // len(header.attributes), 1))
        while block := lines.take(chunk):
            numbers: Sequence[int] = range(lines.number - len(block) + 1, lines.number + 1)
            if not _NOT_BLANK.issuperset(line[0] for line in block):
                rows = [row for row in zip(numbers, block, strict=True) if not _is_blank(row[1])]
                numbers, block = [i for i, _ in rows], [line for _, line in rows]
            if block:
                is_sparse = block[0].lstrip().startswith(b"{")
                reader = reader or _RowReader(lines, header, is_label, missing, is_sparse)
                yield reader.read(numbers, block)


_NOT_BLANK = frozenset(range(256)).difference(b"% \t\r\n\v\f")  # how a row surely begins


def _is_blank(line: bytes) -> bool:
    return line.lstrip()[:1] in {b"", b"%"}


class _RowReader:
    """Turns the rows of one file into arrays.

    Parameters
    ----------
    lines : Lines
        For its path, in error messages.
    header : Header
    is_label : ndarray of shape (n_attributes,), bool
    missing : float
    is_sparse : bool
    """

    def __init__(
        self,
        lines: Lines,
        header: Header,
        is_label: NDArray[np.bool_],
        missing: float,
        is_sparse: bool,
    ) -> None:
        self.lines = lines
        self.attributes = header.attributes
        self.is_label = is_label
        self.missing = missing
        self.is_sparse = is_sparse
        self.name = stem(lines.path).name
        self.n_train = header.n_train

        feature_names: list[str] = []
        label_names: list[str] = []
        self.column = np.zeros(
            len(self.attributes), dtype=np.int32
        )  # in X or in Y; the first of several
        for j, attribute in enumerate(self.attributes):
            names = label_names if is_label[j] else feature_names
            self.column[j] = len(names)
            names += attribute.column_names
        self.feature_names, self.label_names = tuple(feature_names), tuple(label_names)
        # what a sparse row says by leaving an attribute out, where that is not 0
        self.silent = [
            j for j, a in enumerate(self.attributes) if a.is_one_hot or 1.0 in a.codes[:1]
        ]
        self.is_plain = all(attribute.is_plain for attribute in self.attributes)
        self.is_binary = is_label | np.array([a.values is not None for a in self.attributes])

    def read(self, numbers: Sequence[int], rows: list[bytes]) -> Dataset:
        """Return the rows, given with their line numbers, as a `Dataset`."""
        arrays = self._read_bulk(rows) if self.is_plain else None
        X, Y = arrays or self._read_carefully(numbers, rows)
        return Dataset(
            X=X,
            Y=Y,
            feature_names=self.feature_names,
            label_names=self.label_names,
            name=self.name,
            n_train=self.n_train,
        )

    def _read_bulk(self, rows: list[bytes]) -> tuple[Matrix, NDArray[np.uint8]] | None:
        if self.is_sparse and {row[0] for row in rows} != {ord("{")}:
            return None
        text = b"".join(rows)
        if not text.endswith(b"\n"):
            text += b"\n"
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        return (self._bulk_sparse if self.is_sparse else self._bulk_dense)(text, len(rows))

    def _bulk_dense(self, text: bytes, n: int) -> tuple[Matrix, NDArray[np.uint8]] | None:
        width = len(self.attributes)
        parsed = parse_decimals(text, b",\n")
        if parsed is None or len(parsed[0]) != n * width:
            return None
        table, ends = parsed[0].reshape(n, width), parsed[1].reshape(n, width)
        if (ends[:, :-1] != ord(",")).any() or (ends[:, -1] != ord("\n")).any():
            return None
        binary = table[:, self.is_binary]
        if ((binary != 0) & (binary != 1)).any():
            return None
        return table[:, ~self.is_label], table[:, self.is_label].astype(np.uint8)

    def _bulk_sparse(self, text: bytes, n: int) -> tuple[Matrix, NDArray[np.uint8]] | None:
        # every row begins with {; these counts say that it also ends with }, and no others occur
        if not n == text.count(b"{") == text.count(b"}") == text.count(b"}\n") or b"{-" in text:
            return None
        if b", " in text:
            text = text.replace(b", ", b",")
        # a row without entries gets one that is dropped again
        text = text.replace(b"{}", b"{-1 0}").translate(None, b"{}")
        # an index, which a space follows, has digits only: 1e0 is a number, but no index
        others = text.translate(None, b"-0123456789")
        indices = others.count(b", ") + others.count(b"\n ") + others.startswith(b" ")
        if others.count(b" ") != indices:
            return None
        parsed = parse_decimals(text, b" ,\n")
        if parsed is None or len(parsed[0]) % 2:
            return None
        after_index, after_value = parsed[1][::2], parsed[1][1::2]
        if (after_index != ord(" ")).any() or (after_value == ord(" ")).any():
            return None
        position, value = parsed[0][::2], parsed[0][1::2]
        if position.max() >= len(self.attributes):
            return None
        index = position.astype(np.int32)
        if (index != position).any():
            return None
        ends_row = after_value == ord("\n")
        if (np.diff(index)[~ends_row[:-1]] <= 0).any():
            return None
        row = np.cumsum(ends_row) - ends_row
        keep = (value != 0) & (index >= 0)
        row, index, value = row[keep], index[keep], value[keep]
        if (value[self.is_binary[index]] != 1).any():
            return None
        label = self.is_label[index]
        Y = np.zeros((n, len(self.label_names)), dtype=np.uint8)
        Y[row[label], self.column[index[label]]] = 1
        feature = ~label
        indptr = np.zeros(n + 1, dtype=np.int32)
        np.cumsum(np.bincount(row[feature], minlength=n), out=indptr[1:])
        X = sparse.csr_matrix(
            (value[feature], self.column[index[feature]], indptr),
            shape=(n, len(self.feature_names)),
        )
        return X, Y

    def _read_carefully(
        self, numbers: Sequence[int], rows: list[bytes]
    ) -> tuple[Matrix, NDArray[np.uint8] | NDArray[np.float32]]:
        X: list[dict[int, float]] = []
        Y = np.zeros((len(rows), len(self.label_names)), dtype=np.float32)
        for i, (number, line) in enumerate(zip(numbers, rows, strict=True)):
            text = self.lines.decode(line, number).strip()
            values = (self._sparse_values if self.is_sparse else self._dense_values)(text, number)
            x: dict[int, float] = {}
            for j, value in values.items():
                if not self.is_label[j]:
                    x.update(self._columns(j, value, number))
                elif value == "?":
                    Y[i, self.column[j]] = np.nan
                else:
                    Y[i, self.column[j]] = self._label(j, value, number)
            X.append(x)
        return self._to_matrix(X), Y if np.isnan(Y).any() else Y.astype(np.uint8)

    def _dense_values(self, text: str, number: int) -> dict[int, str]:
        if text.startswith("{"):
            raise self.lines.error(
                "all rows must be dense like the first, got a sparse one", number
            )
        separator = "\t" if "\t" in text and "," not in text else ","
        values = list(split(text, self.lines, number, separator))
        if len(values) != len(self.attributes):
            raise self.lines.error(
                f"a row must have {len(self.attributes)} values, got {len(values)}", number
            )
        return dict(enumerate(values))

    def _sparse_values(self, text: str, number: int) -> dict[int, str]:
        if not text.startswith("{"):
            raise self.lines.error(
                "all rows must be sparse like the first, got a dense one", number
            )
        if not text.endswith("}"):
            raise self.lines.error(
                f"a sparse row must end with }}, got {short(text[-40:])!r}", number
            )
        values: dict[int, str] = {}
        at, text = 1, text[:-1].replace("\t", " ").rstrip()
        while at < len(text):
            entry = _ENTRY.match(text, at)
            if entry is None or (entry[3] and entry.end() == len(text)):
                raise self.lines.error(
                    f"an entry must be 'index value', got {short(text[at:])!r}", number
                )
            j = int(entry[1])
            if j >= len(self.attributes):
                raise self.lines.error(
                    f"an index must be below {len(self.attributes)}, got {j}", number
                )
            if j in values:
                raise self.lines.error(f"an index must not be repeated, got {j} twice", number)
            values[j] = unquote(entry[2])
            at = entry.end()
        for j in self.silent:
            values.setdefault(j, (self.attributes[j].values or ("",))[0])
        return values

    def _columns(self, j: int, value: str, number: int) -> dict[int, float]:
        """Return what feature ``j`` puts into the columns of its row."""
        attribute, column = self.attributes[j], int(self.column[j])
        if value == "?":
            width = len(attribute.column_names)
            return dict.fromkeys(range(column, column + width), self.missing)
        if attribute.is_one_hot:
            return {column + self._position(j, value, number): 1.0}
        return {column: self._code(j, value, number)}

    def _label(self, j: int, value: str, number: int) -> int:
        code = self._code(j, value, number)
        if code not in {0.0, 1.0}:
            raise self.lines.error(
                f"label {self.attributes[j].name!r} must be 0 or 1, got {value!r}", number
            )
        return int(code)

    def _code(self, j: int, value: str, number: int) -> float:
        attribute = self.attributes[j]
        if attribute.values is not None:
            return attribute.codes[self._position(j, value, number)]
        code = to_number(value)
        if code is None:
            raise self.lines.error(
                f"attribute {attribute.name!r} must be a finite number, got {short(value)!r}",
                number,
            )
        return code

    def _position(self, j: int, value: str, number: int) -> int:
        """Return which of its values attribute ``j`` has; ``1.0`` stands for a declared ``1``."""
        attribute = self.attributes[j]
        position = attribute.positions.get(value)
        if position is None:
            as_number = to_number(value)
            if as_number is not None:
                position = attribute.numeric_positions.get(as_number)
        if position is None:
            declared = short(", ".join(attribute.values or ()))
            raise self.lines.error(
                f"attribute {attribute.name!r} must be one of {declared}, got {short(value)!r}",
                number,
            )
        return position

    def _to_matrix(self, rows: list[dict[int, float]]) -> Matrix:
        shape = (len(rows), len(self.feature_names))
        if not self.is_sparse:
            X = np.zeros(shape)
            for i, row in enumerate(rows):
                X[i, list(row)] = list(row.values())
            return X
        ordered = [sorted((j, value) for j, value in row.items() if value != 0) for row in rows]
        indptr = np.cumsum([0, *map(len, ordered)], dtype=np.int32)
        columns = np.array([j for row in ordered for j, _ in row], dtype=np.int32)
        values = np.array([value for row in ordered for _, value in row], dtype=np.float64)
        return sparse.csr_matrix((values, columns, indptr), shape=shape)
