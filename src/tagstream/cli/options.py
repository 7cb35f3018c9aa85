"""Arguments and options that several commands have, and what they mean."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagstream.cli.records import FORMATS, Reading

if TYPE_CHECKING:
    from tagstream.base import StreamClassifier

METHODS = {
    "oml": "OML",
    "knn": "KNN",
    "osml-elm": "OSMLELM",
    "olansgd": "OLANSGD",
    "oml-published": "OML",
}


def complete(choices: Sequence[str]) -> Callable[[str], list[str]]:
    """Return what completes a word to one of the choices."""
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
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter of the learner."),
]
ChunkOption = Annotated[
    int, typer.Option("--chunk", min=1, help="Records read at a time; 1 answers each at once.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Same seed, same result.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No messages, no progress.")]


def methods_option(usual: str) -> Any:
    """Return the option that names the learners to compare."""
    return typer.Option(
        "--method",
        metavar="|".join([*METHODS, "all"]),
        help=f"A learner; give several to compare them.  [default: {usual}]",
        autocompletion=complete([*METHODS, "all"]),
    )


# ---------------------------------------------------------------------- how DATA is read
def _reading(
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(FORMATS),
            help="What DATA is.  [default: by its ending; standard input: jsonl]",
            autocompletion=complete(FORMATS),
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="WHICH",
            help="ARFF and CSV: names with commas between, a MULAN .xml file, or a number of "
            "columns (6: the first six, -6: the last). CSV: also a common beginning of names, or, "
            "with --sep, the column of tags.",
        ),
    ] = None,
    sep: Annotated[
        str | None, typer.Option("--sep", help="CSV: what stands between tags in one column.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="COLUMN", help="CSV: the column of text.")
    ] = None,
    ids: Annotated[
        str | None, typer.Option("--ids", metavar="COLUMN", help="CSV: the column of identifiers.")
    ] = None,
    missing: Annotated[
        float | None,
        typer.Option("--missing", help="ARFF and CSV: the value of a missing feature."),
    ] = None,
    hash_bits: Annotated[
        int | None,
        typer.Option(
            "--hash-bits",
            min=1,
            max=30,
            help="Text and mappings are hashed into 2^BITS features.  [default: 18]",
        ),
    ] = None,
    ngrams: Annotated[
        int | None,
        typer.Option("--ngrams", min=1, help="Text: runs of up to so many words.  [default: 1]"),
    ] = None,
) -> Reading:
    which: Any = labels
    if labels is not None and re.fullmatch(r"[+-]?\d+", labels):
        which = int(labels)
    elif labels is not None and labels.endswith(".xml"):
        which = Path(labels)
    elif labels is not None and "," in labels:
        which = labels.split(",")
    said = {"n_features": None if hash_bits is None else 2**hash_bits, "ngrams": ngrams}
    hashing = {key: value for key, value in said.items() if value is not None}
    return Reading(format, which, sep, text, ids, missing, hashing)


def reads(hashing: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of how to read, in the place of its parameter ``reading``.

    Without ``hashing``, text is hashed as the model says.
    """
    options = {**inspect.signature(_reading, eval_str=True).parameters}
    if not hashing:
        del options["hash_bits"], options["ngrams"]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = {**inspect.signature(command, eval_str=True).parameters}
        del own["reading"]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            reading = _reading(**{name: given.pop(name) for name in options})
            command(reading=reading, **given)

        shown = [p.replace(kind=p.KEYWORD_ONLY) for p in (own | options).values()]
        run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # for typer
        run.__annotations__ = {p.name: p.annotation for p in shown}
        return run

    return decorate


# ---------------------------------------------------------------------- learners
def params_of(pairs: list[str] | None) -> dict[str, Any]:
    """Return ``NAME=VALUE`` settings; a value that is not JSON is a string."""
    params: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise typer.BadParameter(f"--param must be NAME=VALUE, got {pair!r}")
        try:
            params[name] = json.loads(value)
        except ValueError:
            params[name] = value
    return params


def chosen_methods(names: list[str] | None, *usual: str) -> list[str]:
    """Return the methods that were asked for, each once."""
    methods = [*dict.fromkeys(names or usual)]
    return [*METHODS] if "all" in methods else methods


def settings(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that a method sets by its name, and those given."""
    from tagstream import models

    if method != "oml-published":
        return params
    published: dict[str, Any] = models.OML.as_published().get_params()
    del published["random_state"]
    return published | params


def new_model(method: str, params: dict[str, Any], seed: int) -> StreamClassifier:
    """Return a learner that has learnt nothing."""
    from tagstream import models

    if method not in METHODS:
        raise typer.BadParameter(f"--method must be one of {', '.join(METHODS)}, got {method!r}")
    model: StreamClassifier = getattr(models, METHODS[method])()
    known = model.get_params()
    for name in params:
        if name not in known:
            raise typer.BadParameter(
                f"--param must name one of {', '.join(known)} for {method}, got {name!r}"
            )
    if "random_state" in known:
        params = {"random_state": seed, **params}
    model.set_params(**settings(method, params))
    return model
