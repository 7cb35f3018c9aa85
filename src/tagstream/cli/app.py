"""The commands put together, and how they end: exit codes, errors in one line."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core

from tagstream.cli.benchmark import benchmark, leaderboard
from tagstream.cli.compare import compare
from tagstream.cli.connect import github, mcp, paperless
from tagstream.cli.data import convert, fetch, list_all
from tagstream.cli.demo import demo
from tagstream.cli.evaluate import evaluate, report, reproduce
from tagstream.cli.items import export as export_items
from tagstream.cli.items import list_items, search, show
from tagstream.cli.knows import (
    accept,
    candidates,
    check,
    duplicates,
    exclusive,
    health,
    next_items,
    promise,
    refuse,
    similar,
    unfamiliar,
)
from tagstream.cli.learn import learn
from tagstream.cli.light import take_plain
from tagstream.cli.output import Failed, for_shell, put, say, show_compiling
from tagstream.cli.predict import explain, inspect, predict
from tagstream.cli.serve import add, export, list_tokens, retry, revoke, serve
from tagstream.cli.tags import (
    ListGroup,
    correct,
    declare,
    describe,
    forget,
    list_tags,
    merge,
    refit,
    remove,
    rename,
)
from tagstream.cli.warmup import warm_up
from tagstream.version import __version__

take_plain(getattr(typer.core, "_TyperParameter", None))
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
commands: list[Any] = [
    *(demo, learn, predict, explain, correct, forget, refit, inspect, check),
    *(serve, mcp, evaluate, compare, benchmark, leaderboard, reproduce, report),
]
for command in commands:
    app.command()(command)
app.command("warm-up")(warm_up)
tags_app = typer.Typer(cls=ListGroup, no_args_is_help=True, rich_markup_mode=None)
tags_app.command("list")(list_tags)
tags_app.command()(declare)
tags_app.command()(describe)
tags_app.command()(rename)
tags_app.command()(merge)
tags_app.command()(remove)
app.command("next")(next_items)
app.command()(unfamiliar)
app.command()(duplicates)
for command in (candidates, accept, refuse, exclusive, promise, similar, health):
    tags_app.command()(command)
app.add_typer(
    tags_app, name="tags", help="List, declare, rename, merge, clean up tags: tags MODEL."
)
items_app = typer.Typer(cls=ListGroup, no_args_is_help=True, rich_markup_mode=None)
items_app.command("list")(list_items)
items_app.command()(show)
items_app.command()(search)
items_app.command("export")(export_items)
app.add_typer(items_app, name="items", help="List, show, search and export stored items.")
connect_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
connect_app.command()(paperless)
connect_app.command()(github)
app.add_typer(connect_app, name="connect", help="Learn from other tools, and suggest there.")
data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
data_app.command("list")(list_all)
data_app.command()(fetch)
data_app.command()(convert)
app.add_typer(data_app, name="data", help="List, fetch and convert data sets.")
token_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
token_app.command()(add)
token_app.command("list")(list_tokens)
token_app.command()(revoke)
app.add_typer(token_app, name="token", help="Who may use a service.")
log_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
log_app.command()(export)
log_app.command()(retry)
app.add_typer(log_app, name="log", help="The event log of a service.")


def _version(wanted: bool) -> None:
    if wanted:
        put(f"tagstream {__version__}\n")
        raise typer.Exit


@app.callback()
def _app(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Suggest tags for a stream of items, and learn from every correction.

    \b
    Begin here:
      tagstream demo                                  see it at work
      tagstream learn posts.jsonl --model m.tgs       learn {"text": ..., "y": [tags]} lines
      cat new.jsonl | tagstream predict - -m m.tgs    suggest tags
      tagstream explain "some text" -m m.tgs          see why
      tagstream correct m.tgs ID --tags a,b           put an item right
      tagstream tags m.tgs                            see its tags, rename and merge them
      tagstream items m.tgs                           see its items, search and export them
      tagstream evaluate test.jsonl --model m.tgs     measure it on items with known tags
      tagstream check m.tgs                           see which stored tags look wrong
      tagstream evaluate emotions --method all        compare the learners
    """
    show_compiling()


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    usage_error: Any = typer.BadParameter.__base__  # of click, or of typer's own copy of it
    try:
        code = app(args=argv, prog_name="tagstream", standalone_mode=False)
    except usage_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            say(error.format_message())
            return 2
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "tagstream"
        message = error.format_message().removeprefix("Invalid value: ")
        return _fail(f"{message} (see {command} --help)", 2)
    except typer.Abort:
        return _fail("stopped", 130)
    except (Failed, ImportError, ValueError, OSError) as error:
        return _fail(_one_line(error), 1)
    return code if isinstance(code, int) else 0


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return for_shell(line)


def _fail(message: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(f"tagstream: {message}", file=sys.stderr)
    return code
