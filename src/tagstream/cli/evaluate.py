"""Commands that measure: ``evaluate``, ``reproduce``, ``report``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tagstream.cli.measure import measure_model
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
ASKED = 5  # one item in so many is asked about as any item, after the others were learnt,
MOST_ASKED = 10_000  # but no more than these: then micro-F1 is known to about half a point
CHUNK = 1024  # items that are learnt at a time before any item is asked about
NEXT, ANY = "the next item, in the order of the file", "any item"
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
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="FILE", help="Measure this model as it is."),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="With --model: write a page with pictures."),
    ] = None,
    method: Annotated[list[str] | None, methods_option("oml")] = None,
    param: ParamOption = None,
    holdout: Annotated[
        bool, typer.Option("--holdout", help="Hold parts out instead of test-then-train.")
    ] = False,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Hold-out: parts.")] = 5,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Hold-out: repetitions.")] = 1,
    any_item: Annotated[
        str,
        typer.Option(
            "--any",
            metavar="random|time",
            help="Any item: ask about a fifth of the items drawn at random, or about the last one.",
        ),
    ] = "random",
    next_only: Annotated[
        bool, typer.Option("--next-only", help="Do not ask about any item: half the time.")
    ] = False,
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
    per_tag: Annotated[
        bool, typer.Option("--per-tag", help="Test-then-train: print a line for each tag too.")
    ] = False,
    decide: DecideOption = None,
    threshold: ThresholdOption = None,
    encoder: EncoderOption = None,
    hash_bits: BitsOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure how well learners do on DATA.

    There are two questions, and by default both are asked. The next item, in the order of the file:
    each item is asked about, then learnt. Any item: four fifths of the items, drawn at random, are
    learnt in the order of the file; then the model is fitted, and asked about the rest, or about
    10,000 of it. If labels come in runs, the first figure is higher and does not hold for items out
    of order; this is tested, and said.

    With --holdout, each of several parts is asked about after the others were learnt in random
    order.

    With --model, nothing is learnt: a saved model is asked about all items of DATA. Then the result
    has a line for each tag: items, precision, recall, F1 with its 95 % interval.

    \b
    Examples:
      tagstream evaluate posts.jsonl
      tagstream evaluate test.jsonl --model m.tgs --html quality.html
      tagstream evaluate posts.jsonl --any time      learn the first 80 %, ask about the last 20 %
      tagstream evaluate emotions --holdout --method oml --method knn
      tagstream evaluate songs.arff --method all --curve
      tagstream evaluate posts.jsonl --decide f1
      tagstream evaluate posts.jsonl --delay 100 --json > result.json
    """
    from sklearn import clone

    from tagstream.evaluation import evaluate as protocols

    if any_item not in ("random", "time"):
        raise typer.BadParameter(f"--any must be random or time, got {any_item!r}")
    if holdout and (next_only or any_item != "random"):
        raise typer.BadParameter("--any and --next-only must not come with --holdout")
    if per_tag and holdout:
        raise typer.BadParameter("--per-tag must not come with --holdout")
    params, rule = params_of(param), rule_of(decide, threshold)
    if html is not None and model is None:
        raise typer.BadParameter("--html must come with --model")
    if model is not None:
        if method or params or holdout or next_only or curve or any_item != "random":
            raise typer.BadParameter("--model must not come with options of how to learn")
        measure_model(
            *(data, model, reading),
            rule=rule, encoder=encoder, html=html, as_json=as_json, quiet=quiet,
        )  # fmt: skip
        return
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
    parts = None if holdout or next_only else _division(len(Y), any_item, seed)
    show_compiling(quiet)
    results: dict[str, Any] = {}
    of_any: dict[str, Any] = {}
    for name, fresh in models.items():  # each learner is a copy: one model is held at a time
        with Bar(name, quiet) as bar:
            # What is compiled first is not a cost of each item.
            protocols.prequential(clone(fresh), X[:N_WARM], Y[:N_WARM])
            results[name] = run(clone(fresh), X, Y, progress=bar, **how)
        if parts is not None:
            with Bar(f"{name}, {ANY}", quiet):
                of_any[name] = protocols.train_test(
                    fresh, X, Y, *parts, init=0, chunk=CHUNK, refit=True, decide=rule
                )
    (n, p), q, name = X.shape, Y.shape[1], name_of(data)
    runs = None if holdout else protocols.label_runs(Y)
    if as_json:
        record: dict[str, Any] = {"data": name, "n": n, "p": p, "q": q}
        record["protocol"] = "holdout" if holdout else "prequential"
        record["results"] = {name: result.as_dict() for name, result in results.items()}
        if per_tag:
            record["tags"] = {
                name: _of_tags(result, whole.label_names) for name, result in results.items()
            }
        put_json(record | _order_record(runs, of_any, any_item))
        return
    title = f"{name}: {n:,} items, {p:,} features, {q:,} labels"
    if runs is None:
        _put_results(f"{title}; {repeats} x {folds}-fold hold-out", results)
        return
    put(f"{title}\n")
    _put_results(f"{NEXT}: each is asked about, then learnt", results)
    if of_any:
        _put_results(f"{ANY}: {_told(next(iter(of_any.values())), any_item)}", of_any)
    if runs.found:
        _put_runs(runs, "any item" if of_any else "that without --next-only")
    if curve:
        for name, result in results.items():
            _put_curve(name, result)
    if per_tag:
        for name, result in results.items():
            _put_tags(name, result, whole.label_names)


def _of_tags(result: Any, names: Any) -> list[dict[str, Any]]:
    """Return counts and measures of each tag, of a run of test-then-train."""
    from tagstream.evaluation.metrics import MultiLabelScores

    return MultiLabelScores.from_counts(result.counts).per_label(names)


def _put_tags(name: str, result: Any, names: Any) -> None:
    table = new_table("tag", "Items", "Suggested", "Right", "Precision", "Recall", "F1")
    for row in sorted(_of_tags(result, names), key=lambda row: -row["n_true"]):
        counts = [f"{row[key]:,}" for key in ("n_true", "n_pred", "n_hit")]
        shares = [f"{row[key]:.3f}" for key in ("precision", "recall", "f1")]
        table.add_row(str(row["label"]), *counts, *shares)
    put_table(table, f"{name}, each tag")


def _order_record(runs: Any, of_any: dict[str, Any], drawn: str) -> dict[str, Any]:
    """Return what a JSON record of test-then-train says about order."""
    if runs is None:
        return {}
    told: dict[str, Any] = {"label_runs": {**asdict(runs), "found": runs.found}}
    if of_any:
        folds = {name: asdict(fold) | {"measures": fold.measures} for name, fold in of_any.items()}
        told["any"] = {"drawn": drawn, "results": folds}
    return told


def _division(n: int, how: str, seed: int) -> tuple[Any, Any] | None:
    """Return the rows to learn, in the order of the file, and those to ask about.

    None if there are too few.
    """
    import numpy as np

    n_asked = max(n // ASKED, 1)
    if n_asked == n:
        return None
    rng = np.random.default_rng(seed)
    drawn = np.arange(n - n_asked, n) if how == "time" else rng.permutation(n)[:n_asked]
    learnt = np.setdiff1d(np.arange(n), drawn, assume_unique=True)
    asked = drawn if n_asked <= MOST_ASKED else rng.choice(drawn, MOST_ASKED, replace=False)
    return learnt, np.sort(asked)


def _told(fold: Any, drawn: str) -> str:
    if drawn == "time":
        return f"the first {fold.n_train:,} are learnt, then {fold.n_test:,} later ones asked about"
    return f"{fold.n_train:,} drawn at random are learnt, then {fold.n_test:,} others asked about"


def _put_runs(runs: Any, instead: str) -> None:
    """Say that labels come in runs, and what follows."""
    put(
        f"Labels come in runs: {runs.shared:.0%} of the labels of an item are also labels of the "
        f"item before it.\nIn random order {runs.expected:.0%} would be. "
        'So the figure for "the next item" does not hold for items out of order.\n'
        f"The figure for those is {instead}.\n"
    )


class _Suited:
    """Makes rows as a new model would: what suits the first records decides."""

    def __init__(self, bits: int | None, encoder: str | None) -> None:
        self._options = (bits, encoder)
        self._makes: Any = None

    def rows(self, items: Any) -> Any:
        from tagstream.records import Batch

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
        if hasattr(result, "fitted"):
            cells = {key: f"{value:.4f}" for key, value in result.measures.items()}
            seconds = result.learn_seconds + result.predict_seconds
            each = seconds / (result.n_train + result.n_test)
        elif hasattr(result, "folds"):
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
