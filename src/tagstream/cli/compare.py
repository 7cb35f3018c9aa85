"""``tagstream compare``: a learner beside the numbers of a published study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tagstream.cli.options import JsonOption, QuietOption, SeedOption, complete
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

STUDIES = ("aesaknns", "mlhat", "drift", "extreme")


def _streams(incomplete: str) -> list[str]:
    from tagstream.studies.published import STUDIES as known

    names = {name for study in known.values() for name in study.streams}
    return complete(sorted(names))(incomplete)


def compare(
    study: Annotated[
        str,
        typer.Argument(
            metavar="|".join(STUDIES),
            help="A published study; streams that drift; or data sets with many labels.",
            autocompletion=complete(STUDIES),
        ),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="STREAM", help="A stream; repeatable.", autocompletion=_streams
        ),
    ] = None,
    learner: Annotated[
        list[str] | None,
        typer.Option(
            "--learner",
            metavar="NAME|MODULE:CLASS",
            help="What runs: a name (see --learners) or a class of yours; repeatable.  "
            "[default: oml]",
        ),
    ] = None,
    learners: Annotated[
        bool, typer.Option("--learners", help="List the learners that have a name, and stop.")
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Where records are, or will be.  [default: results/studies, results/drift, "
            "results/extreme]",
        ),
    ] = None,
    reproduced: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="Run nothing: take the records of tagstream reproduce in DIR.",
        ),
    ] = None,
    length: Annotated[
        int, typer.Option("--length", min=100, help="drift: items of each stream.")
    ] = 50_000,
    report: Annotated[
        str | None,
        typer.Option("--report", metavar="DIR", help="Also write tables and pictures there."),
    ] = None,
    document: Annotated[
        list[str] | None,
        typer.Option(
            "--document",
            metavar="FILE.md",
            help="Rewrite its marked regions, and draw the pictures that it shows.",
        ),
    ] = None,
    limit: Annotated[
        float,
        typer.Option(
            "--limit", min=1, help="Seconds of processor time for each learner on each stream."
        ),
    ] = 600.0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what has a record.")] = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a learner on the streams of a published study, and print it beside the study's numbers.

    Each item is predicted, then learnt, in the order of the file, and counted exactly as the study
    counts: aesaknns (31 methods) with counts that fade, read every 100 items; mlhat (17 methods)
    with plain sums. Streams that are not here are left out; so are learners whose package is
    missing. Learners that can decide by several rules are also shown with the rule made for the
    measure.

    drift has no published numbers: MOA's generator makes the streams. extreme learns the customary
    training part of data sets with many labels and prints precision at 1, 3 and 5.

    \b
    Examples:
      tagstream compare mlhat
      tagstream compare mlhat --only scene --only yeast --learner oml --learner my_module:MyLearner
      tagstream compare aesaknns --learner moa-amrules --learner river-ht --limit 60
      tagstream compare mlhat --report report
      tagstream compare drift --only tree-sudden --length 5000 --learner oml --learner oml-window
      tagstream compare extreme --only bibtex
    """
    from tagstream.studies.compare import Comparison
    from tagstream.studies.learners import LEARNERS
    from tagstream.studies.published import STUDIES as known
    from tagstream.studies.runner import run_streams

    if learners:
        _put_learners(LEARNERS)
        return
    if study not in STUDIES:
        raise typer.BadParameter(f"STUDY must be one of {', '.join(STUDIES)}, got {study!r}")
    usual = known[study].streams if study in known else _other_streams(study)
    wrong = sorted(set(only or ()) - set(usual))
    if wrong:
        raise typer.BadParameter(f"--only must name one of {', '.join(usual)}, got {wrong[0]!r}")
    if study == "extreme" and learner:
        raise typer.BadParameter("--learner must not come with extreme")
    if reproduced is not None and (study not in known or fresh):
        raise typer.BadParameter("--from must come with aesaknns or mlhat, and without --fresh")
    if study not in known and (report or document):
        raise typer.BadParameter(f"--report and --document must not come with {study}")
    chosen = chosen_learners(learner)
    if reproduced is not None:
        from tagstream.studies.reproduced import reproduced_records

        names = {entry.name for entry in chosen}
        records = [
            r
            for r in reproduced_records(reproduced)
            if r["learner"] in names and r["stream"] in (only or usual)
        ]
        _finish(Comparison(known[study], records), as_json, report, document, quiet)
        return
    streams = list(only or usual) if study == "drift" else present(only or usual, quiet)
    if not streams:
        raise Failed("no stream of the study is here; see tagstream data list")
    out = out or f"results/{study if study not in known else 'studies'}"
    show_compiling(quiet)
    with Bar(study, quiet) as bar:

        def told(done: int, total: int, what: str) -> None:
            bar(done, total)
            say(f"{done + 1} of {total}: {what}", quiet)

        if study not in known:
            how: dict[str, Any] = {"fresh": fresh, "progress": told}
            if study == "drift":
                how |= {"learners": chosen, "seed": seed, "limit": limit, "length": length}
            _put_other(study, out, streams, as_json, how)
            return
        records = run_streams(
            *(out, streams, chosen), seed=seed, limit=limit, fresh=fresh, progress=told
        )
    _finish(Comparison(known[study], records), as_json, report, document, quiet)


def _finish(
    found: Any, as_json: bool, report: str | None, document: list[str] | None, quiet: bool
) -> None:
    """Print a comparison, and write what was asked for."""
    if not found.streams:
        raise Failed("no record is of a stream of the study")
    if as_json:
        put_json({"study": found.study.name, "records": found.records})
    else:
        _put(found)
    if report is not None:
        from tagstream.studies.report import write_comparison

        say(f"tables and pictures in {write_comparison(found, Path(report))}", quiet)
    for path in document or ():
        from tagstream.studies.report import update_document

        update_document(found, Path(path))


def chosen_learners(names: list[str] | None) -> list[Any]:
    """Return the learners that were asked for, each once."""
    from tagstream.studies.learners import learner_named

    try:
        return [learner_named(name) for name in dict.fromkeys(names or ["oml"])]
    except (ValueError, ImportError) as error:
        raise typer.BadParameter(f"--learner: {error}") from error


def _other_streams(study: str) -> tuple[str, ...]:
    from tagstream.studies import drift, extreme

    return drift.STREAMS if study == "drift" else extreme.STREAMS


def _put_other(study: str, out: str, streams: list[str], as_json: bool, how: Any) -> None:
    """Run and print what has no published numbers under a study's evaluator."""
    from functools import partial

    from tagstream.studies import drift, extreme
    from tagstream.studies.runner import run_streams

    if study == "drift":
        load = partial(drift.stream_named, n=how.pop("length"))
        records = run_streams(out, streams, how.pop("learners"), load=load, **how)
        tables = {m: drift.drift_table(records, m) for m in ("micro_f1", "macro_f1")}
    else:
        records = extreme.run_extreme(out, streams, **how)
        tables = {"many labels": extreme.extreme_table(records)}
    if as_json:
        put_json({"study": study, "records": records})
        return
    for title, table in tables.items():
        put_rows(table, title)


def present(names: Any, quiet: bool) -> list[str]:
    """Return the streams that are here, or can be fetched; say which are not."""
    from tagstream import records as data
    from tagstream.checks import DataError

    here = []
    for name in names:
        try:
            data.fetch(name)
        except (OSError, ImportError, DataError) as error:  # noqa: PERF203
            say(f"{name} is left out: {error}", quiet)
        else:
            here.append(name)
    return here


def _put_learners(known: Any) -> None:
    table = new_table("name", "learner", "from")
    for entry in known.values():
        table.add_row(entry.name, entry.title, entry.family)
    put_table(table)


def _put(found: Any) -> None:
    columns = found.columns()
    whole = found.table()
    if len(columns) <= 3:
        put_rows(whole, f"{found.study.title}: each item is predicted, then learnt")
    else:
        for measure in found.study.measures:
            put_rows(found.wide_table(measure), f"{found.study.title}")
    for column, title in columns.items():
        won, total = found.tally(column)
        put(f"{title}: at least as good as the best published in {won} of {total} cells\n")
    put(f"{found.caveat()}\n")
    put_rows(found.cost_table(), "Time and memory")


def put_rows(made: Any, title: str) -> None:
    """Print a table of the report; what is bold there is between stars."""
    words = ("measure", "held by", "failed", "from", "learner", "stream")
    table = new_table(
        *(name if name in words else name[:1].upper() + name[1:] for name in made.head)
    )
    for row in made.rows:
        table.add_row(*(cell.replace("**", "*") for cell in row))
    put_table(table, title)
