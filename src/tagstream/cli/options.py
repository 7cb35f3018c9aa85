"""Arguments and options that several commands have, and what they mean."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagstream.cli.records import FORMATS, Reading
from tagstream.learners.registry import METHODS

if TYPE_CHECKING:
    from tagstream.learners.estimator import StreamClassifier
    from tagstream.records import Batch


def complete(choices: Sequence[str]) -> Callable[[str], list[str]]:
    """Return what completes a word to one of the choices."""
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file (JSON Lines, a JSON array, CSV, TSV, Excel, ARFF, LIBSVM, Parquet, plain "
        "lines; also .gz and .bz2), a folder of text files, '-' for standard input, or the name "
        "of a benchmark data set.",
    ),
]
ManyDataArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help="Files (JSON Lines, a JSON array, CSV, TSV, Excel, ARFF, LIBSVM, Parquet; also .gz "
        "and .bz2), folders of text files, '-' for standard input, or the name of a benchmark "
        "data set.",
    ),
]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="The model file.")]
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
DecideOption = Annotated[
    str | None,
    typer.Option(
        "--decide",
        metavar="RULE",
        help="Which tags are suggested: balanced, f1, hamming (the surest only), macro (rare tags "
        "too, each for the best F1 of its own), top3 (the three "
        "highest scores, or any number), or the least score, such as 0.3.  [default: what the "
        "learner is set to]",
    ),
]
ThresholdOption = Annotated[
    float | None,
    typer.Option("--threshold", metavar="SCORE", help="The same as --decide SCORE."),
]
NextOption = Annotated[
    bool,
    typer.Option(
        "--next",
        help="Answer as if each item came next after those that were learnt: the latest tags are "
        "evidence too.",
    ),
]
EncoderOption = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        metavar="NAME",
        help="Text: use, which comes with tagstream[meaning]; a sentence-transformers or model2vec "
        "model by name or path; or module:function, which must be named each time. The words stay.",
    ),
]
BitsOption = Annotated[
    int | None,
    typer.Option(
        "--hash-bits",
        min=1,
        max=30,
        help="Text and named values become 2^BITS features.  [default: 18]",
    ),
]


def methods_option(usual: str) -> Any:
    """Return the option that names the learners to compare."""
    return typer.Option(
        "--method",
        metavar="|".join([*METHODS, "all"]),
        help=f"A learner; give several to compare them.  [default: {usual}]",
        autocompletion=complete([*METHODS, "all"]),
    )


def rule_of(decide: str | None, threshold: float | None = None) -> str | float | None:
    """Return the rule that was asked for; a number is a threshold."""
    from tagstream.decision import check_rule

    if decide is not None and threshold is not None:
        raise typer.BadParameter("--decide and --threshold must not come together")
    rule: str | float | None = threshold if decide is None else decide
    if isinstance(rule, str):
        with contextlib.suppress(ValueError):
            rule = float(rule)
    try:
        check_rule("--decide" if threshold is None else "--threshold", rule, none=True)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return rule


# ---------------------------------------------------------------------- how DATA is read
def _reading(
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(FORMATS),
            help="What DATA is.  [default: by its ending; standard input and pipes: as the model "
            "learnt, else jsonl]",
            autocompletion=complete(FORMATS),
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="WHICH",
            help="The field or column of tags. ARFF and CSV with columns of 0 and 1: names with "
            "commas between, a MULAN .xml file, or a number of columns (6: the first six, -6: the "
            "last); CSV also a common beginning of names.",
        ),
    ] = None,
    sep: Annotated[
        str | None,
        typer.Option("--sep", help="What stands between tags where they are one string."),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="FIELD", help="The field or column of text.")
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option("--ids", "--id", metavar="FIELD", help="The field or column of identifiers."),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            "--delimiter",
            metavar="CHARACTER",
            help="CSV: what stands between columns; \\t is a tab.  [default: comma, tab or "
            "semicolon, by the first line]",
        ),
    ] = None,
    missing: Annotated[
        float | None,
        typer.Option("--missing", help="ARFF and CSV: the value of a missing feature."),
    ] = None,
    n_features: Annotated[
        int | None,
        typer.Option("--features", min=1, help="LIBSVM: how many, if a pipe has no header."),
    ] = None,
    no_ids: Annotated[
        bool,
        typer.Option("--no-ids", help='Do without identifiers, though there is a field "id".'),
    ] = False,
    sheet: Annotated[
        str | None,
        typer.Option("--sheet", metavar="NAME", help="Excel: which sheet.  [default: the first]"),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding",
            metavar="NAME",
            help="Text files: how letters are written, such as cp1252.  [default: UTF-8, UTF-16 if "
            "the file begins with its mark, else cp1252]",
        ),
    ] = None,
) -> Reading:
    which: Any = labels
    if labels is not None and re.fullmatch(r"[+-]?\d+", labels):
        which = int(labels)
    elif labels is not None and labels.endswith(".xml"):
        which = Path(labels)
    elif labels is not None and "," in labels:
        which = labels.split(",")
    if delimiter is not None:
        delimiter = "\t" if delimiter == "\\t" else delimiter
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise typer.BadParameter(f"--delimiter must be one character, got {delimiter!r}")
    if sep == "":
        raise typer.BadParameter("--sep must not be empty")
    if no_ids and ids is not None:
        raise typer.BadParameter("--ids and --no-ids must not come together")
    if encoding is not None:
        from tagstream.records.transcode import check_encoding

        try:
            check_encoding(encoding)
        except ValueError as error:
            raise typer.BadParameter(f"--{error}") from None
    names = False if no_ids else ids
    return Reading(format, which, sep, text, names, delimiter, missing, n_features, sheet, encoding)


def reads(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of how to read, in the place of its parameter ``reading``."""
    options = {**inspect.signature(_reading, eval_str=True).parameters}
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


# ---------------------------------------------------------------------- features and learners
def featurizer_of(batch: Batch, bits: int | None, encoder: str | None) -> Any:
    """Return what makes rows of such records."""
    from dataclasses import replace

    from tagstream.cli.model import new_encoder
    from tagstream.features import Columns, featurizer_for

    if isinstance(batch.items, list):
        if encoder is not None and isinstance(batch.items[0], str):
            if bits is not None:
                raise typer.BadParameter("--hash-bits and --encoder must not come together")
            return new_encoder(encoder)
        if encoder is None:
            suited: Any = featurizer_for(batch.items)
            return suited if bits is None else replace(suited, n_features=2**bits)
    if encoder is not None or bits is not None:
        option = "--hash-bits" if encoder is None else "--encoder"
        raise typer.BadParameter(f"{option} must not be given: the records are not text")
    return Columns(int(batch.items.shape[1]), batch.feature_names)  # type: ignore[union-attr]


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


def new_model(method: str, params: dict[str, Any], seed: int) -> StreamClassifier:
    """Return a learner that has learnt nothing."""
    from tagstream.learners import registry

    if method not in METHODS:
        raise typer.BadParameter(f"--method must be one of {', '.join(METHODS)}, got {method!r}")
    model: StreamClassifier = registry.learner(method)()
    known = model.get_params()
    for name in params:
        if name not in known or name == "store":
            usable = ", ".join(key for key in known if key != "store")
            raise typer.BadParameter(
                f"--param must name one of {usable} for {method}, got {name!r}"
            )
    if "random_state" in known:
        params = {"random_state": seed, **params}
    model.set_params(**params)
    return model
