"""``tagstream benchmark`` and ``tagstream leaderboard``: new, late and missing labels."""

from __future__ import annotations

from typing import Annotated

import typer

from tagstream.cli.compare import chosen_learners, present, put_rows
from tagstream.cli.options import QuietOption, SeedOption
from tagstream.cli.output import Bar, Failed, say, show_compiling

FolderOption = Annotated[
    str, typer.Option("--out", metavar="DIR", help="Where records are, or will be.")
]


def benchmark(
    learner: Annotated[
        list[str] | None,
        typer.Option(
            "--learner",
            metavar="NAME|MODULE:CLASS",
            help="What runs: a name (tagstream compare mlhat --learners) or a class of yours; "
            "repeatable.  [default: oml]",
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="STREAM", help="A stream; repeatable.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only one knob is turned at a time: 7 of 27 settings.")
    ] = False,
    out: FolderOption = "results/leaderboard",
    limit: Annotated[
        float, typer.Option("--limit", min=1, help="Seconds of processor time for each cell.")
    ] = 600.0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what has a record.")] = False,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Run a learner on streams whose labels are new, late and missing.

    Half of the labels appear after 0, 1/4 or 1/2 of the stream; labels come 0, 100 or 1,000 items
    late; 0, 30 or 60 % of them are not known. What has a record already is not run again.

    \b
    Examples:
      tagstream benchmark --quick
      tagstream benchmark --learner my_module:MyLearner --out results/leaderboard
      tagstream leaderboard results/leaderboard
    """
    from tagstream.studies import benchmark as bench
    from tagstream.studies.leaderboard import leaderboard_tables

    wrong = sorted(set(only or ()) - set(bench.STREAMS))
    if wrong:
        raise typer.BadParameter(
            f"--only must name one of {', '.join(bench.STREAMS)}, got {wrong[0]!r}"
        )
    chosen = chosen_learners(learner)
    streams = present(only or bench.STREAMS, quiet)
    if not streams:
        raise Failed("no stream of the benchmark is here; see tagstream data list")
    settings = bench.SETTINGS if not quick else bench.one_knob()
    show_compiling(quiet)
    with Bar("cells", quiet) as bar:

        def told(done: int, total: int, what: str) -> None:
            bar(done, total)

        records = bench.run(
            *(out, chosen),
            streams=streams,
            settings=settings,
            seed=seed,
            limit=limit,
            fresh=fresh,
            progress=told,
        )
    say(f"{len(records)} cells; records in {out}", quiet)
    for name, table in leaderboard_tables(records).items():
        put_rows(table, name)


def leaderboard(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Where the records are.")],
    document: Annotated[
        list[str] | None,
        typer.Option("--document", metavar="FILE.md", help="Rewrite its marked regions."),
    ] = None,
) -> None:
    """Print the leaderboard of the benchmark from record files; --document writes it into a page.

    \b
    Examples:
      tagstream leaderboard results/leaderboard
      tagstream leaderboard results/leaderboard --document docs/leaderboard.md
    """
    from tagstream.paper.page import update_markers
    from tagstream.studies.leaderboard import leaderboard_tables, read_leaderboard

    tables = leaderboard_tables(read_leaderboard(folder))
    for path in document or ():
        update_markers(path, tables)
    for name, table in tables.items():
        put_rows(table, name)
