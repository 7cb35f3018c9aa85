"""``tagstream connect`` and ``mcp``: a tagger beside the tools in which people keep their tags."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagstream.cli.options import JsonOption, QuietOption
from tagstream.cli.output import Bar, Failed, count, new_table, put, put_json, put_table, say

if TYPE_CHECKING:
    from tagstream.connect.target import Target
    from tagstream.connect.teaching import Report

TargetOption = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        metavar="TARGET",
        help="Where it learns: a model file, or the address of a service.",
    ),
]
TargetTokenOption = Annotated[
    str | None,
    typer.Option(
        "--target-token",
        envvar="TAGSTREAM_TOKEN",
        metavar="TOKEN",
        help="Of a service; better by the environment. @FILE reads it from a file.",
        show_default=False,
    ),
]
GoOption = Annotated[
    bool, typer.Option("--go", help="Do it.  [default: only report what would be done]")
]
CreateOption = Annotated[
    bool,
    typer.Option("--create-tags", help="Create tags on the other side that it has not got."),
]
LONGEST_SHOWN = 60  # characters of a title


def paperless(
    url: Annotated[str, typer.Argument(metavar="URL", help="The address of paperless-ngx.")],
    target: TargetOption,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="TAGSTREAM_PAPERLESS_TOKEN",
            metavar="TOKEN",
            help="Of a user of paperless-ngx; better by the environment. @FILE reads it from a "
            "file.",
            show_default=False,
        ),
    ] = None,
    target_token: TargetTokenOption = None,
    state: Annotated[
        Path, typer.Option("--state", metavar="FILE", help="What it remembers, in one file.")
    ] = Path("paperless-state.db"),
    go: GoOption = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on, and take in what changes.")
    ] = False,
    every: Annotated[
        float, typer.Option("--every", min=1, help="With --follow: seconds between two rounds.")
    ] = 60,
    sweep: Annotated[
        float,
        typer.Option("--sweep", min=0, help="Seconds between two looks at the tags of all."),
    ] = 3600,
    texts: Annotated[
        float,
        typer.Option("--texts", min=0, help="Seconds between two looks at the texts of all."),
    ] = 86400,
    create_tags: CreateOption = False,
    notes: Annotated[
        bool, typer.Option("--notes/--no-notes", help="Write suggestions as notes.")
    ] = True,
    backlog: Annotated[
        bool,
        typer.Option(
            "--backlog", help="The first time, also suggest for documents that wait for review."
        ),
    ] = False,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="NAME", help="Stands before ids in the target.")
    ] = "paperless",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Learn the tags of paperless-ngx, and suggest tags for new documents.

    The first run learns all documents that have been reviewed; a run that was broken off goes on.
    Later runs take in what has changed. New documents get suggestions in a note. Where a tag is
    set to auto (tagstream serve: POST /v1/tags/promise, or tagstream tags promise) and keeps its
    promise, it is set. Nothing is changed, on either side, before you say --go.

    \b
    Examples:
      tagstream connect paperless http://127.0.0.1:8000 -t docs.tgs --backlog
      tagstream connect paperless http://127.0.0.1:8000 -t docs.tgs --backlog --go
      tagstream connect paperless https://docs.example -t http://127.0.0.1:8080 --go --follow
    """
    from tagstream.connect.documents import Documents, Settings
    from tagstream.connect.paperless import ACCEPT, Paperless
    from tagstream.connect.state import State
    from tagstream.connect.teaching import Report, Teacher

    if follow and not go:
        raise typer.BadParameter("--follow must come with --go")
    web = _web(url, token, "--token", "TAGSTREAM_PAPERLESS_TOKEN", "Token", {"Accept": ACCEPT})
    learner = _opened(target, target_token, dry=not go)
    settings = Settings(create_tags, notes, backlog, sweep, texts)
    with State(state, web.root, learner.name, dry=not go) as kept:

        def round() -> Report:
            report = Report()
            with Bar("reading documents", quiet) as bar:
                teacher = Teacher(learner, kept, _prefix(prefix), report)
                Documents(Paperless(web, dry=not go), teacher, settings, bar).go()
            return report

        _rounds(round, every if follow else None, go, as_json, quiet)


def github(
    target: TargetOption,
    repository: Annotated[
        str,
        typer.Option(
            "--repository",
            "-r",
            envvar="GITHUB_REPOSITORY",
            metavar="OWNER/NAME",
            help="Which.",
            show_default=False,
        ),
    ],
    event: Annotated[
        Path | None,
        typer.Option(
            "--event",
            envvar="GITHUB_EVENT_PATH",
            metavar="FILE",
            help="The event that an action was started by.",
            show_default=False,
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="GITHUB_TOKEN",
            metavar="TOKEN",
            help="With issues: write; better by the environment. @FILE reads it from a file.",
            show_default=False,
        ),
    ] = None,
    target_token: TargetTokenOption = None,
    api: Annotated[
        str, typer.Option("--api", envvar="GITHUB_API_URL", metavar="URL", help="Of GitHub.")
    ] = "https://api.github.com",
    state: Annotated[
        Path, typer.Option("--state", metavar="FILE", help="What it remembers, in one file.")
    ] = Path("github-state.db"),
    go: GoOption = False,
    set_labels: Annotated[
        bool,
        typer.Option(
            "--set-labels",
            help="Set the suggested labels.  [default: only those that keep a promise]",
        ),
    ] = False,
    create_tags: CreateOption = False,
    inbox: Annotated[
        list[str] | None,
        typer.Option(
            "--inbox", metavar="LABEL", help="Means that nobody has looked yet: never learnt."
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Learn the labels of GitHub issues, and suggest labels for new ones.

    It takes the event that an action was started by, and whatever has changed since its last run.
    The first run learns all issues. Suggestions stand in one comment, which is edited and never
    repeated. Nothing is changed, on either side, before you say --go.

    \b
    Examples:
      tagstream connect github -r owner/name -t labels.tgs
      tagstream connect github -r owner/name -t labels.tgs --event event.json --go
    """
    from tagstream.connect.github import HEADERS, GitHub
    from tagstream.connect.issues import Issues, IssueSettings
    from tagstream.connect.state import State
    from tagstream.connect.teaching import Report, Teacher

    if repository.count("/") != 1 or not all(repository.split("/")):
        raise typer.BadParameter(f"--repository must be OWNER/NAME, got {repository!r}")
    happened = None if event is None else _event(event)
    web = _web(api, token, "--token", "GITHUB_TOKEN", "Bearer", HEADERS)
    learner = _opened(target, target_token, dry=not go)
    settings = IssueSettings(set_labels, create_tags, frozenset(inbox or ()))
    with State(state, f"{web.root}/{repository}", learner.name, dry=not go) as kept:

        def round() -> Report:
            report = Report()
            with Bar("reading issues", quiet) as bar:
                teacher = Teacher(learner, kept, f"github/{repository}", report)
                Issues(GitHub(web, repository, dry=not go), teacher, settings, bar).go(happened)
            return report

        _rounds(round, None, go, as_json, quiet)


def mcp(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="A model file, or the address of a service."),
    ],
    target_token: TargetTokenOption = None,
    write: Annotated[
        bool, typer.Option("--write", help="Let agents learn and correct, too.")
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Streamable HTTP instead of standard input and output.")
    ] = False,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="With --http; 0 takes a free one.")
    ] = 8765,
) -> None:
    """Give agents the tools of a tagger, over the Model Context Protocol.

    The tools suggest and explain tags, list tags, and find items, candidates and doubtful tags.
    With --write they also learn and correct. Over HTTP it listens on this machine only.

    \b
    Examples:
      tagstream mcp m.tgs
      tagstream mcp http://127.0.0.1:8080 --write
      tagstream mcp m.tgs --http --port 8765
    """
    from tagstream.connect.agent import create_server, serve_http

    if not _is_address(target) and not Path(target).exists():
        raise Failed(f"{target}: must be a model file, got nothing of that name")
    server = create_server(_opened(target, target_token), write=write)
    if http:
        serve_http(server, port, on_ready=lambda url: put(f"{url}\n"))
    else:
        server.run("stdio")


# ---------------------------------------------------------------------- targets and tokens
def _is_address(target: str) -> bool:
    return target.startswith(("http://", "https://"))


def _opened(target: str, token: str | None, dry: bool = False) -> Target:
    from tagstream.connect.model_file import FileTarget
    from tagstream.connect.service import ServiceTarget

    if not _is_address(target):
        return FileTarget(target, dry)
    web = _web(target, token, "--target-token", "TAGSTREAM_TOKEN", "Bearer", {}, needs_token=False)
    return ServiceTarget(web, dry)


def _web(
    url: str,
    token: str | None,
    option: str,
    variable: str,
    scheme: str,
    headers: dict[str, str],
    needs_token: bool = True,
) -> Any:
    from tagstream.connect.web import Web

    if token is not None and token.startswith("@"):
        token = Path(token[1:]).read_text(encoding="utf-8")
    if not token and needs_token:
        raise typer.BadParameter(f"{option} must be given, or {variable} be set")
    web = Web(url, token or "", scheme, headers)
    if web.shows_token:
        say(f"the token travels to {web.root} in the clear; use https where others can listen")
    return web


def _prefix(prefix: str) -> str:
    if not prefix or not prefix.isprintable() or len(prefix) > 100 or prefix != prefix.strip():
        raise typer.BadParameter(f"--prefix must be a short name, got {prefix!r}")
    return prefix


def _event(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_bytes())
    except ValueError as error:
        raise Failed(f"{path}: must be JSON: {error}") from None
    if not isinstance(told, dict):
        raise Failed(f"{path}: must be an event of GitHub, got {type(told).__name__}")
    return told


# ---------------------------------------------------------------------- rounds and reports
def _rounds(
    round: Callable[[], Report], every: float | None, go: bool, as_json: bool, quiet: bool
) -> None:
    """Do one round; or one after another, in spite of trouble on the way."""
    _tell(round(), go, as_json, quiet)
    while every is not None:
        _wait(every)
        with _told_only():
            report = round()
            if any(report.counts.values()) or report.warnings:
                _tell(report, go, as_json, quiet)


def _wait(seconds: float) -> None:
    time.sleep(seconds)


@contextlib.contextmanager
def _told_only() -> Iterator[None]:
    """Say what went wrong, and let the next round try again."""
    try:
        yield
    except OSError as error:
        say(f"tagstream: {error}; trying again")


def _tell(report: Report, go: bool, as_json: bool, quiet: bool) -> None:
    if as_json:
        counts = {name: n for name, n in report.counts.items() if n}
        told = {"done": go, "counts": counts, "tags": dict(report.tags.most_common())}
        put_json({**told, "pushed": report.pushed, "warnings": report.warnings})
        return
    for warning in report.warnings:
        say(warning, quiet)
    if report.pushed:
        table = new_table("item", "does", "tags", "why")
        for one in report.pushed:
            title = one["item"]
            cut = title[:LONGEST_SHOWN] + "…" * (len(title) > LONGEST_SHOWN)
            table.add_row(cut, one["does"], ", ".join(one["tags"]), one["why"])
        put_table(table, "" if go else "what --go would write:")
    done = [f"{n:,} {name}" for name, n in report.counts.items() if n]
    line = ", ".join(done) or "nothing new"
    if report.tags:
        often = ", ".join(f"{tag} {n:,}" for tag, n in report.tags.most_common(5))
        line += f"; {count(len(report.tags), 'tag')}: {often}"
        line += ", …" if len(report.tags) > 5 else ""
    say(line if go else f"dry run, nothing was changed: {line}; do it with --go", quiet)
