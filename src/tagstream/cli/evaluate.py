"""Commands that measure: ``evaluate``, ``reproduce``, ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tagstream.cli.options import (
    BitsOption,
    DataArgument,
    DecideOption,
    EncoderOption,
    JsonOption,
    ParamOption,
    QuietOption,
    SeedOption,
    ThresholdOption,
    chosen_methods,
    featurizer_of,
    methods_option,
    new_model,
    params_of,
    reads,
    rule_of,
)
from tagstream.cli.output import (
    Bar,
    Failed,
    new_table,
    put,
    put_json,
    put_table,
    say,
    show_compiling,
)
from tagstream.cli.records import Reading, download, name_of

N_WARM = 64  # items on which a learner is tried before its time is taken
MEASURES = {
    "Micro-F1": "micro_f1",
    "Macro-F1": "macro_f1",
    "Example-F1": "example_f1",
    "Hamming loss": "hamming_loss",
    "Precision@1": "precision_at_1",
}


@reads
def evaluate(
    data: DataArgument,
    reading: Reading,
    method: Annotated[list[str] | None, methods_option("oml")] = None,
    param: ParamOption = None,
    holdout: Annotated[
        bool, typer.Option("--holdout", help="Hold parts out instead of test-then-train.")
    ] = False,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Hold-out: parts.")] = 5,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Hold-out: repetitions.")] = 1,
    delay: Annotated[
        int,
        typer.Option("--delay", min=0, help="Test-then-train: items after which labels come."),
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
    decide: DecideOption = None,
    threshold: ThresholdOption = None,
    encoder: EncoderOption = None,
    hash_bits: BitsOption = None,
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
      tagstream evaluate posts.jsonl --decide f1
      tagstream evaluate posts.jsonl --delay 100 --json > result.json
    """
    from sklearn import clone

    from tagstream import evaluate as protocols

    params, rule = params_of(param), rule_of(decide, threshold)
    models = {name: new_model(name, params, seed) for name in chosen_methods(method, "oml")}
    download(data, quiet)
    whole = reading.whole(data, _Suited(hash_bits, encoder))
    _check_labels(whole, data)
    X, Y = whole.X, whole.Y
    how: dict[str, Any] = {"decide": rule}
    if holdout:
        how |= {"folds": folds, "repeats": repeats, "seed": seed}
    else:
        how |= {"delay": delay, "batch": batch, "window": window or max(len(Y) // 10, 1)}
        how["every"] = every or max(len(Y) // 20, 1)
    run = protocols.holdout if holdout else protocols.prequential
    show_compiling(quiet)
    results: dict[str, Any] = {}
    for name, model in models.items():
        with Bar(name, quiet) as bar:
            # What is compiled first is not a cost of each item.
            protocols.prequential(clone(model), X[:N_WARM], Y[:N_WARM])
            results[name] = run(model, X, Y, progress=bar, **how)
    (n, p), q, name = X.shape, Y.shape[1], name_of(data)
    if as_json:
        record = {"data": name, "n": n, "p": p, "q": q}
        record["protocol"] = "holdout" if holdout else "prequential"
        record["results"] = {name: result.as_dict() for name, result in results.items()}
        put_json(record)
        return
    protocol = f"{repeats} x {folds}-fold hold-out" if holdout else "test, then train"
    _put_results(f"{name}: {n:,} items, {p:,} features, {q:,} labels; {protocol}", results)
    if curve and not holdout:
        for name, result in results.items():
            _put_curve(name, result)


class _Suited:
    """Makes rows as a new model would: what suits the first records decides."""

    def __init__(self, bits: int | None, encoder: str | None) -> None:
        self._options = (bits, encoder)
        self._makes: Any = None

    def rows(self, items: Any) -> Any:
        from tagstream.data import Batch

        if self._makes is None:
            self._makes = featurizer_of(Batch(items, [None] * len(items)), *self._options)
        return self._makes.rows(items)


def _check_labels(whole: Any, data: str) -> None:
    """Refuse a data set without labels: its measures would say nothing."""
    known = whole.known
    if not whole.Y.shape[1] or (known is not None and not known.any()):
        raise Failed(
            f"{name_of(data)}: must have labels to be evaluated, got none; "
            "say where they are with --labels"
        )


def _put_results(title: str, results: dict[str, Any]) -> None:
    table = new_table("method", *MEASURES, "Time per item")
    for name, result in results.items():
        if hasattr(result, "folds"):
            mean, std = result.mean, result.std
            cells = {key: f"{value:.4f} ± {std[key]:.4f}" for key, value in mean.items()}
            seconds = sum(fold.learn_seconds + fold.predict_seconds for fold in result.folds)
            each = seconds / sum(fold.n_train + fold.n_test for fold in result.folds)
        else:
            cells = {key: f"{value:.4f}" for key, value in result.measures.items()}
            each = result.seconds_per_item
        shown = (cells.get(key, "-") for key in MEASURES.values())
        table.add_row(name, *shown, f"{each * 1e3:.3f} ms")
    put_table(table, title)


def _put_curve(name: str, result: Any) -> None:
    """Print the micro-F1 of the recent items along the stream."""
    table = new_table("Items", "Micro-F1", "curve")
    for point in result.curve:
        value = point.recent.get("micro_f1", 0.0)
        table.add_row(f"{point.n_items:,}", f"{value:.4f}", "█" * round(40 * value))
    put_table(table, f"{name}: micro-F1 of the recent items")


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

    from tagstream import paper

    logging.getLogger("tagstream").addHandler(logging.NullHandler())  # told below
    show_compiling(quiet)
    with Bar("cells", quiet) as bar:
        done = paper.run(
            results, quick=quick, jobs=jobs, only=only, fresh=fresh, progress=bar, downloads=bar
        )
    for name, how in done.missing.items():
        say(f"{name} is left out: {how}", quiet)
    say(f"{done.n_run} cells run, {done.n_kept} were there; records in {results}", quiet)
    if done.failed:
        cell, why = next(iter(done.failed.items()))
        raise Failed(f"{len(done.failed)} cells failed, the first: {cell}: {why}")


def report(
    results: Annotated[str, typer.Argument(metavar="DIR", help="Where the records are.")],
    out: Annotated[str, typer.Argument(metavar="OUT", help="Where the page goes.")] = "report",
    document: Annotated[
        list[str] | None,
        typer.Option("--document", metavar="FILE.md", help="Rewrite its marked regions."),
    ] = None,
) -> None:
    """Make figures, tables and one page from the records of experiments.

    DIR holds what tagstream reproduce wrote, or results of your own: files of what tagstream
    evaluate --json printed, or of result.as_dict() with a "name" (and "data") added.

    \b
    Examples:
      tagstream report results report
      tagstream evaluate posts.jsonl --method all --json > runs/posts.json
      tagstream report runs page
    """
    from tagstream.paper import build

    if not Path(results).is_dir():
        raise Failed(f"{results}: must be a directory of records; see tagstream report --help")
    put(f"{build(results, out, documents=document or ())}\n")
