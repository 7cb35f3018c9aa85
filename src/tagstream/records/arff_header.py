"""The header of an ARFF file: its attributes, and which of them are labels.

A name or a value may be quoted with ' or " and then escape characters with a backslash.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from tagstream import checks
from tagstream.checks import DataError
from tagstream.records.dataset import stem
from tagstream.records.lines import Lines

__all__ = [
    "Attribute",
    "Header",
    "Labels",
    "find_labels",
    "read_header",
    "read_labels_xml",
    "short",
    "split",
    "to_number",
    "unquote",
]

Labels: TypeAlias = "int | str | os.PathLike[str] | Sequence[str] | None"

_MAX_ATTRIBUTES = 1 << 20  # a packed header may be endless
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_WORDS = [("false", "true"), ("no", "yes"), ("f", "t"), ("n", "y"), ("off", "on")]
_MEKA = re.compile(r"(?:^|\s|:)-[cC]\s+(-?\d{1,9})(?!\d)")
_MEKA_SPLIT = re.compile(r"-split-number\s+(\d{1,18})(?!\d)")
# Weka appends the filters it applied to the relation's name; these may have moved the labels.
_MOVED = re.compile(r"weka\.filters\.\w+\.attribute\.")


def read_labels_xml(path: str | os.PathLike[str]) -> list[str]:
    """Return the label names of a MULAN XML file, outer labels before the ones nested in them.

    A document type declaration is refused, and with it every entity the file could define: such a
    file can name other files or grow without bound, and a list of labels needs neither.
    """
    where = os.fspath(path)
    names: list[str] = []
    parser = expat.ParserCreate(namespace_separator=" ")

    def fail(message: str) -> DataError:
        return DataError(f"{where}:{parser.CurrentLineNumber}: {message}")

    def doctype(*_: object) -> None:
        raise fail("must not contain a document type declaration or entities")

    def element(tag: str, attributes: dict[str, str]) -> None:
        tag = tag.rpartition(" ")[2]
        if tag == "label":
            if "name" not in attributes:
                raise fail("a label must have a name attribute")
            names.append(attributes["name"])
        elif tag != "labels":
            raise fail(f"must consist of labels and label elements, got {tag!r}")

    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler = element
    with open(path, "rb") as file:
        try:
            parser.ParseFile(file)
        except DataError:
            raise
        except (expat.ExpatError, LookupError, ValueError) as error:
            raise fail(f"must be well-formed XML, got {error}") from error
    if not names:
        raise fail("must name at least one label")
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise fail(f"label names must differ, got {twice!r} twice")
    return names


@dataclass(frozen=True)
class Attribute:
    """One declared attribute.

    ``values`` is None when it is numeric. ``codes`` are the numbers that stand for one or two
    values; with more of them there is one column per value and no codes.
    """

    name: str
    values: tuple[str, ...] | None
    codes: tuple[float, ...] = ()

    @property
    def is_one_hot(self) -> bool:
        """Whether it takes one column per value."""
        return self.values is not None and not self.codes

    @property
    def is_plain(self) -> bool:
        """Whether each value, read as a number, is its own code, and silence means 0."""
        return self.values is None or _are_codes(self.values, self.codes)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Where each value stands in the declaration."""
        return {value: i for i, value in enumerate(self.values or ())}

    @cached_property
    def numeric_positions(self) -> dict[float, int]:
        """Where the values that are numbers stand, so that ``1.0`` can stand for ``1``."""
        numbers = {to_number(value): i for value, i in reversed(self.positions.items())}
        return {number: i for number, i in numbers.items() if number is not None}

    @property
    def column_names(self) -> list[str]:
        """The names of its columns."""
        if self.is_one_hot:
            return [f"{self.name}={value}" for value in self.values or ()]
        return [self.name]


# Hundreds of attributes in a row have the same few values: what they mean is found out once.
@lru_cache(maxsize=64)
def _are_codes(values: tuple[str, ...], codes: tuple[float, ...]) -> bool:
    # Both of them: of an attribute that declares {0} alone, bulk reading would take a 1.
    return codes == (0.0, 1.0) and tuple(map(to_number, values)) == codes


@lru_cache(maxsize=64)
def _codes(values: tuple[str, ...]) -> tuple[float, ...]:
    if len(values) > 2:
        return ()
    numbers = [to_number(value) for value in values]
    first, last = numbers[0], numbers[-1]
    if first is not None and last is not None:
        return (
            (float(first == 1),)
            if len(values) == 1
            else (float(first > last), float(first <= last))
        )
    swapped = tuple(value.lower() for value in reversed(values)) in _WORDS
    return (1.0, 0.0) if swapped else (0.0, 1.0)[: len(values)]


@dataclass(frozen=True)
class Header:
    """What stands above ``@data``."""

    relation: str
    attributes: list[Attribute]

    @property
    def n_train(self) -> int | None:
        """The number of training rows, where MEKA wrote ``-split-number`` into the relation."""
        split = _MEKA_SPLIT.search(self.relation)
        return int(split[1]) if split else None


def to_number(text: str) -> float | None:
    """Return the finite number that the text spells, if it does."""
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def read_header(lines: Lines) -> Header:
    """Read up to and including the line ``@data``."""
    relation = ""
    attributes: dict[str, Attribute] = {}
    for line in lines:
        text = lines.decode(line).strip()
        if not text or text.startswith("%"):
            continue
        keyword, _, rest = text.replace("\t", " ", 1).partition(" ")
        match keyword.lower():
            case "@relation":
                relation = _take_name(rest, lines)[0]
            case "@attribute":
                attribute = _read_attribute(rest, lines)
                if attribute.name in attributes:
                    raise lines.error(f"attribute names must differ, got {attribute.name!r} twice")
                attributes[attribute.name] = attribute
                if len(attributes) > _MAX_ATTRIBUTES:
                    raise lines.error(f"must declare at most {_MAX_ATTRIBUTES} attributes")
            case "@data":
                if not attributes:
                    raise lines.error("must declare an attribute before @data")
                return Header(relation, list(attributes.values()))
            case _:
                raise lines.error(
                    f"must be @relation, @attribute, @data or a % comment, got {short(text)!r}"
                )
    if not lines.number:
        raise lines.error("must not be empty")
    raise lines.error("must have a line @data, got the end of the file")


def _read_attribute(rest: str, lines: Lines) -> Attribute:
    name, kind = _take_name(rest, lines)
    if not kind.startswith("{"):
        if kind.partition("%")[0].strip().lower() not in {"numeric", "real", "integer"}:
            raise lines.error(f"attribute {name!r} must be numeric or nominal, got {short(kind)!r}")
        return Attribute(name, None)
    inside, brace, after = kind[1:].rpartition("}")
    if not brace or not (not after.strip() or after.strip().startswith("%")):
        raise lines.error(f"the values of attribute {name!r} must end with }}")
    values = tuple(split(inside, lines, lines.number)) if inside.strip() else ()
    if not values or len(set(values)) < len(values):
        raise lines.error(f"attribute {name!r} must have values, all different, got {{{inside}}}")
    return Attribute(name, values, _codes(values))


def _take_name(rest: str, lines: Lines) -> tuple[str, str]:
    """Split a quoted or plain name off the text; what follows it comes back stripped."""
    rest = rest.strip()
    if rest[:1] in {"'", '"'}:
        quoted = _QUOTED.match(rest)
        if not quoted:
            raise lines.error(f"a quote must be closed, got {short(rest)!r}")
        return unquote(quoted[0]), rest[quoted.end() :].strip()
    name, _, rest = rest.replace("\t", " ").partition(" ")
    if not name:
        raise lines.error("must have a name")
    return name, rest.strip()


def unquote(text: str) -> str:
    """Return what a quoted text says, or a plain one as it is.

    Examples
    --------
    >>> unquote(r"'don\\'t'"), unquote("plain")
    ("don't", 'plain')
    """
    quoted = _QUOTED.fullmatch(text)
    if not quoted:
        return text

    def replace(match: re.Match[str]) -> str:
        what = match[1]
        return chr(int(what[1:], 16)) if len(what) == 5 else _ESCAPED.get(what, what)

    return _ESCAPE.sub(replace, text[1:-1])


def split(text: str, lines: Lines, number: int, separator: str = ",") -> Iterator[str]:
    """Cut a list of plain or quoted values at its separators."""
    at = 0
    while True:
        while text[at : at + 1] == " ":
            at += 1
        if text[at : at + 1] in {"'", '"'}:
            quoted = _QUOTED.match(text, at)
            if not quoted:
                raise lines.error(f"a quote must be closed, got {short(text[at:])!r}", number)
            yield unquote(quoted[0])
            at = quoted.end()
            while text[at : at + 1] == " ":
                at += 1
            if at < len(text) and text[at] != separator:
                raise lines.error(
                    f"a quoted value must end its field, got {short(text[at:])!r}", number
                )
        else:
            end = text.find(separator, at)
            end = len(text) if end < 0 else end
            yield text[at:end].strip()
            at = end
        if at >= len(text):
            return
        at += 1


def short(text: str) -> str:
    """Return the text, cut to a length that suits the error message of a line of a file."""
    return checks.short(text, 40)


def find_labels(header: Header, labels: Labels, lines: Lines) -> NDArray[np.bool_]:
    """Return which attributes are labels."""
    names = [attribute.name for attribute in header.attributes]
    if labels is None:
        xml = stem(lines.path).with_name(stem(lines.path).name + ".xml")
        labels = xml if xml.is_file() else _meka_count(header, lines)
    if isinstance(labels, int):
        if not 0 < abs(labels) <= len(names):
            raise lines.error(
                f"the number of labels must be between 1 and {len(names)}, got {labels}"
            )
        chosen = names[:labels] if labels > 0 else names[labels:]
    elif isinstance(labels, (str, os.PathLike)):
        chosen = read_labels_xml(labels)
    else:
        chosen = list(labels)
    set_of_labels = set(chosen)
    absent = set_of_labels.difference(names)
    if absent:
        raise lines.error(f"the attributes must include the label {min(absent)!r}")
    is_label = np.array([name in set_of_labels for name in names])
    for attribute in (header.attributes[j] for j in np.flatnonzero(is_label)):
        if attribute.values is not None and len(attribute.values) > 2:
            raise lines.error(
                f"label {attribute.name!r} must have two values, got {len(attribute.values)}"
            )
    return is_label


def _meka_count(header: Header, lines: Lines) -> int:
    found = _MEKA.search(header.relation)
    if found is None or _MOVED.search(header.relation):
        raise lines.error(
            "must say which attributes are labels: put a MULAN XML beside the file, "
            "write -C n into the relation's name, or say labels (--labels)"
        )
    return int(found[1])
