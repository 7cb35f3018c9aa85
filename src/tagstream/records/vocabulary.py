"""Vocabularies: files that name tags and say what they are about.

Lines of names; CSV with a name and, if there is a second column, a description; JSON; or SKOS, the
web's form of thesauri, read by rdflib (extra ``skos``).
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, NamedTuple

from tagstream.checks import DataError

__all__ = ["SKOS", "Vocabulary", "read_vocabulary"]

# File endings of SKOS, and what rdflib calls their formats.
SKOS = {
    ".ttl": "turtle",
    ".rdf": "xml",
    ".owl": "xml",
    ".xml": "xml",
    ".nt": "nt",
    ".n3": "n3",
    ".jsonld": "json-ld",
}
_NAMES = ("tag", "name", "label")  # of a CSV's first column, and of a JSON object's field
_ABOUT = ("about", "description", "definition")


class Vocabulary(NamedTuple):
    """Tags and what was left out.

    Attributes
    ----------
    tags : dict of str to str
        Tag to its description, "" if it has none, in the order of the file.
    notes : tuple of str
        What of the file was not used, in words for people.
    """

    tags: dict[str, str]
    notes: tuple[str, ...] = ()


def read_vocabulary(path: str | Path, *, lang: str = "en") -> Vocabulary:
    """Return the tags of a file.

    Parameters
    ----------
    path : path
        Its ending says what it is: ``.csv``, ``.tsv``, ``.json``, one of ``SKOS``; any other is
        a text of one name per line, where empty lines and those that begin with # are passed over.
    lang : str
        Of a SKOS file: the language of the labels that become tags.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending in SKOS:
        found = _read_skos(path, SKOS[ending], lang)
    else:
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: must be UTF-8, got {error.reason}") from error
        if ending in (".csv", ".tsv"):
            found = Vocabulary(_read_csv(path, text, "\t" if ending == ".tsv" else ","))
        elif ending == ".json":
            found = Vocabulary(_read_json(path, text))
        else:
            lines = (line.strip() for line in text.splitlines())
            found = Vocabulary({line: "" for line in lines if line and not line.startswith("#")})
    if not found.tags:
        raise DataError(f"{path}: must name at least one tag, got none")
    return found


def _read_csv(path: Path, text: str, delimiter: str) -> dict[str, str]:
    tags: dict[str, str] = {}
    for number, cells in enumerate(csv.reader(text.splitlines(), delimiter=delimiter), 1):
        if number == 1 and cells and cells[0].strip().lower() in _NAMES:
            continue
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) > 2 or not cells[0].strip():
            raise DataError(
                f"{path}:{number}: a line must have a name and at most one description, "
                f"got {len(cells)} cells"
            )
        tags[cells[0].strip()] = cells[1].strip() if len(cells) == 2 else ""
    return tags


def _read_json(path: Path, text: str) -> dict[str, str]:
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise DataError(f"{path}: must be JSON: {error}") from error
    if isinstance(found, dict):
        entries = list(found.items())
    elif isinstance(found, list):
        entries = [_entry(path, i, one) for i, one in enumerate(found)]
    else:
        raise DataError(f"{path}: must be a list or an object, got {type(found).__name__}")
    for name, about in entries:
        if not isinstance(name, str) or not name.strip() or not isinstance(about, str):
            raise DataError(f"{path}: a name and a description must be strings, got {name!r}")
    return {name.strip(): about.strip() for name, about in entries}


def _entry(path: Path, i: int, one: Any) -> tuple[Any, Any]:
    if isinstance(one, str):
        return one, ""
    if isinstance(one, dict):
        for field in _NAMES:
            if field in one:
                return one[field], next((one[key] for key in _ABOUT if key in one), "")
    raise DataError(f'{path}: entry {i} must be a string or have a "tag", got {one!r:.60}')


def _read_skos(path: Path, form: str, lang: str) -> Vocabulary:
    """Take each concept: its preferred label is the tag, what else it is called describes it."""
    try:
        from rdflib import Graph
        from rdflib.namespace import SKOS as NAMES
    except ImportError as error:
        raise ImportError(
            f"{path}: SKOS needs the extra skos; pip install 'tagstream[skos]'"
        ) from error
    if not path.is_file():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    graph = Graph()
    try:
        graph.parse(path, format=form)
    except Exception as error:  # each of its parsers has errors of its own
        what = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: must be SKOS as {form}, got: {what}") from error
    tags: dict[str, str] = {}
    others = 0
    for concept, label in sorted(graph.subject_objects(NAMES.prefLabel), key=str):
        if getattr(label, "language", None) not in (lang, None):
            continue
        name = " ".join(str(label).split())
        about = [
            " ".join(str(text).split())
            for what in (NAMES.altLabel, NAMES.definition)
            for text in sorted(graph.objects(concept, what), key=str)
            if getattr(text, "language", None) in (lang, None)
        ]
        if name in tags:
            others += 1
        else:
            tags[name] = "; ".join(about)
    notes = []
    if any(graph.subject_objects(NAMES.broader)) or any(graph.subject_objects(NAMES.narrower)):
        notes.append("broader and narrower are ignored: tags have no hierarchy")
    if others:
        notes.append(f"{others} concepts share a label with another and are left out")
    return Vocabulary(tags, tuple(notes))
