"""Commands that measure: ``evaluate``, ``demo``, ``reproduce``, ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tagstream.cli.options import (
    DataArgument,
    JsonOption,
    ParamOption,
    QuietOption,
    SeedOption,
    chosen_methods,
    methods_option,
    new_model,
    params_of,
    reads,
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
from tagstream.cli.predict import put_explanation
from tagstream.cli.records import Reading, download

MEASURES = {
    "Micro-F1": "micro_f1",
    "Macro-F1": "macro_f1",
    "Example-F1": "example_f1",
    "Hamming loss": "hamming_loss",
    "Precision@1": "precision_at_1",
}


@reads(hashing=True)
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
    decide: Annotated[
        str | None,
        typer.Option(
            "--decide",
            metavar="RULE",
            help="What is predicted: a least score, top3, balanced, f1 or hamming.",
        ),
    ] = None,
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
    from tagstream import evaluate as protocols

    params = params_of(param)
    models = {name: new_model(name, params, seed) for name in chosen_methods(method, "oml")}
    download(data, quiet)
    whole = reading.whole(data)
    X, Y = whole.X, whole.Y
    how: dict[str, Any] = {"decide": _rule(decide)}
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
            results[name] = run(model, X, Y, progress=bar, **how)
    (n, p), q, name = X.shape, Y.shape[1], whole.name or data
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


def _rule(text: str | None) -> str | float | None:
    """The rule that was written: a number is a threshold."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


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


def demo(
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Where the page with pictures goes.")
    ] = "demo-report",
    items: Annotated[int, typer.Option("--items", min=100, help="Length of the stream.")] = 2000,
    method: Annotated[list[str] | None, methods_option("oml and knn")] = None,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Show OML at work on a made-up stream, against kNN; takes less than a minute.

    The labels of the stream depend on each other, some appear late, and the nearest items in the
    input are often the wrong ones. Each item is predicted, then learnt.

    \b
    Examples:
      tagstream demo
      tagstream demo --method all --out page
    """
    from tagstream.data import make_stream
    from tagstream.evaluate import prequential
    from tagstream.paper import write_demo

    stream = make_stream(items + 1, n_late=2, seed=seed)
    about = f"a made-up stream of {items:,} items; test, then train"
    models = {name: new_model(name, {}, seed) for name in chosen_methods(method, "oml", "knn")}
    every = max(items // 10, 1)
    show_compiling(quiet)
    results: dict[str, Any] = {}
    for name, model in models.items():
        with Bar(name, quiet) as bar:
            results[name] = prequential(
                model, stream.X[:-1], stream.Y[:-1], every=every, window=every, progress=bar
            )
    _put_results(about, results)
    if "oml" in models:
        _put_curve("oml", results["oml"])
        put("why oml suggests these labels for the next item\n\n")
        put_explanation(models["oml"].explain(stream.X[-1:])[0])
    try:
        page = write_demo(out, {name: result.as_dict() for name, result in results.items()})
        say(f"see {page}", quiet)
    except ImportError as error:
        say(f"no page is written: {error}", quiet)
    put("next: tagstream learn posts.jsonl --model m.tgs (see tagstream learn --help)\n")


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
