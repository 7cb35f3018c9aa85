"""The page API of the site, made from the docstrings.

``make docs`` makes it whenever it builds the site (``docs/site.py``); ``python docs/make_api.py``
prints it.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

# Which names of a module are shown; None: all that are public.
MODULES = {
    "tagstream.tagger": None,
    "tagstream.models": None,
    "tagstream.learners.neighbors": ["NeighborClassifier"],
    "tagstream.base": None,
    "tagstream.checks": ["DataError"],
    "tagstream.decision": None,
    "tagstream.evidence.promise": None,
    "tagstream.knows.review": ["Doubt"],
    "tagstream.knows.candidates": ["Candidate"],
    "tagstream.knows.twins": ["TagPair", "name_similarity"],
    "tagstream.knows.duplicates": ["Duplicates"],
    "tagstream.knows.kept": ["Kept"],
    "tagstream.knows.health": ["TagHealth"],
    "tagstream.knows.next_items": ["is_random", "order_items", "unsureness"],
    "tagstream.knows.unfamiliar": ["Unfamiliar", "find_unfamiliar"],
    "tagstream.knows.words": ["variants"],
    "tagstream.text": None,
    "tagstream.data": None,
    "tagstream.memory": ["LocalStore", "Store"],
    "tagstream.evaluate": None,
    "tagstream.metrics": None,
    "tagstream.persist": None,
    "tagstream.evaluation.evaluators": None,
    "tagstream.evaluation.significance": ["Significance", "holm", "significance"],
    "tagstream.testing": [
        "BrokenContractError",
        "Rule",
        "assert_same_state",
        "check_learner",
        "rules_for",
    ],
    "tagstream.compat.river": None,
    "tagstream.compat.moa": None,
    "tagstream.cluster": ["RayStore", "ShardLostError", "load", "save"],
}
# Modules that re-export names, and those that say what they are about.
TOLD_IN = {
    "tagstream.base": "tagstream.learners.estimator",
    "tagstream.cluster": "tagstream.store.ray",
    "tagstream.evaluate": "tagstream.evaluation.evaluate",
    "tagstream.memory": "tagstream.store.local",
    "tagstream.metrics": "tagstream.evaluation.metrics",
    "tagstream.persist": "tagstream.files.persist",
}


def render() -> str:
    """Return the whole page."""
    parts = [
        "<!-- fmt: off -->",  # the examples are as in the docstrings
        "# API reference",
        "Made from the docstrings by `make docs`. What all learners "
        "share, `partial_fit`, `predict` and so on, is told once, under `StreamClassifier`. "
        "Names in `tagstream.__all__` can be imported from `tagstream` itself.",
    ]
    shown: list[Any] = []
    for name, chosen in MODULES.items():
        module = importlib.import_module(name)
        told = importlib.import_module(TOLD_IN.get(name, name))
        parts += [f"## {name}", _text(inspect.getdoc(told) or "")]
        for member in sorted(chosen or module.__all__, key=str.lower):
            value = getattr(module, member)
            if not any(value is other for other in shown):  # some names have two homes
                shown.append(value)
                parts += _member(member, value)
    return "\n\n".join(part for part in parts if part) + "\n"


def _member(name: str, value: Any) -> Iterator[str]:
    if not callable(value):
        yield f"### `{name}`"
        if isinstance(value, dict):
            what = "Benchmark data sets by name" if name == "DATASETS" else "By name"
            yield f"{what}: " + ", ".join(f"`{key}`" for key in value) + "."
        return
    yield f"### `{name}`"
    yield f"```python\n{_signature(name, value)}\n```"
    yield _text(inspect.getdoc(value) or "")
    if inspect.isclass(value):
        for key, member in _attributes(value).items():
            if key.startswith("_"):
                continue
            if isinstance(member, property):
                yield f"#### `{name}.{key}`"
                yield _text(inspect.getdoc(member) or "")
                continue
            function = getattr(member, "__func__", getattr(member, "fn", member))
            if inspect.isfunction(function) and function.__doc__:
                yield f"#### `{name}.{key}`"
                yield f"```python\n{_signature(f'{name}.{key}', function)}\n```"
                yield _text(inspect.getdoc(function) or "")


def _attributes(cls: type) -> dict[str, Any]:
    """Return what a class defines, and what it has from bases that are not shown themselves."""
    ours = [base for base in cls.__mro__[1:] if base.__module__.startswith("tagstream")]
    found = dict(vars(cls))
    for base in (base for base in ours if base.__name__.startswith("_")):
        found |= {key: member for key, member in vars(base).items() if key not in found}
    return found


def _signature(name: str, value: Any) -> str:
    own = not inspect.isclass(value) or "__init__" in vars(value) or dataclasses.is_dataclass(value)
    if not own or (inspect.isclass(value) and issubclass(value, Exception)):
        return f"class {name}"
    signature = inspect.signature(value)
    hidden = ("self", "cls")
    shown = [p for key, p in signature.parameters.items() if key not in hidden]
    result = signature.return_annotation
    signature = signature.replace(parameters=shown, return_annotation=inspect.Signature.empty)
    back = "" if result is inspect.Signature.empty or inspect.isclass(value) else f" -> {result}"
    # Annotations are strings; their quotes are of no use to a reader.
    line = re.sub(r": '([^']*)'", r": \1", f"{name}{signature}") + back
    return line if len(line) <= 88 else _folded(line)


def _folded(line: str) -> str:
    """Return a long signature with one parameter per line."""
    start, end = line.index("("), line.rindex(")")
    parts, depth = [""], 0
    for char in line[start + 1 : end]:
        depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    body = "".join(f"    {part.strip()},\n" for part in parts)
    return f"{line[: start + 1]}\n{body}{line[end:]}"


def _text(doc: str) -> str:
    """Return a docstring as Markdown: sections bold, parameters as a list, examples as code."""
    doc = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", doc).replace("``", "`").replace("\\|", "|")
    blocks: list[str] = []
    for paragraph in re.split(r"\n\s*\n", doc):
        lines = paragraph.split("\n")
        if len(lines) > 1 and re.fullmatch(r"-{3,}", lines[1]):
            blocks.append(f"**{lines[0]}**")
            lines = lines[2:]
            if lines and not lines[0].startswith(">>>"):
                blocks.append(_fields(lines))
                continue
        if lines and lines[0].lstrip().startswith(">>>"):
            blocks.append("```pycon\n" + "\n".join(lines) + "\n```")
        elif lines and (lines[0].startswith("    ") or re.match(r"={3,}", lines[0])):
            blocks.append("```text\n" + "\n".join(lines) + "\n```")
        elif lines:
            blocks.append("\n".join(lines).replace("::\n", ":\n").removesuffix("::") or "")
    return "\n\n".join(block for block in blocks if block)


def _fields(lines: list[str]) -> str:
    """Return ``name : type`` lines and their indented explanations as a list."""
    out = []
    for line in lines:
        if line.startswith(" "):
            out.append("  " + line.strip())
        else:
            name, _, kind = line.partition(" : ")
            out.append(f"- `{name}`" + (f" : {kind}" if kind else ""))
    return "\n".join(out)


if __name__ == "__main__":
    print(render(), end="")
