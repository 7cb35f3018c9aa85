"""``tagstream serve``, ``token`` and ``log``: the service and what belongs to its folder."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tagstream.cli.options import JsonOption, complete
from tagstream.cli.output import Failed, count, new_table, put, put_json, put_table, say

if TYPE_CHECKING:
    from tagstream.serve.tokens import Tokens

FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder that holds everything of the service.")
]
ROLES = ("read", "write", "admin")


def serve(
    folder: FolderArgument,
    model: Annotated[
        Path | None,
        typer.Option("--model", "-m", metavar="FILE", help="A model file to start from."),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")
    ] = 8080,
    example: Annotated[
        bool, typer.Option("--example", help="Begin a new folder with some short texts.")
    ] = False,
    snapshot_every: Annotated[
        int, typer.Option("--snapshot-every", min=1, help="Snapshot after so many events.")
    ] = 10_000,
    trust_proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--trust-proxy",
            metavar="ADDRESS",
            help="A proxy, or a network of proxies, whose X-Forwarded-For tells the address that "
            "asks. May be given several times.",
        ),
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Go on though events are missing from the log. Without it, the service only "
            "answers questions then.",
        ),
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Only answer, beside the process that serves DIR, and follow what it learns. DIR "
            "may be one of its snapshots, to begin there.",
        ),
    ] = False,
    agree: Annotated[
        int,
        typer.Option(
            "--agree",
            min=0,
            max=100,
            metavar="N",
            help="Ask N people about each item: the majority is learnt, ties are conflicts.",
        ),
    ] = 0,
    webhook: Annotated[
        str | None,
        typer.Option(
            "--webhook",
            metavar="URL",
            help="Told by POST of tags that are no longer used as they were. No redirects.",
        ),
    ] = None,
    webhook_private: Annotated[
        bool, typer.Option("--webhook-private", help="URL may be a private or local address.")
    ] = False,
) -> None:
    """Serve DIR over HTTP: suggest, learn, explain, and a page to do it by hand.

    DIR is made if it is not there. Every change is on the disk before it is answered; after a
    crash the same command goes on where it was. The address goes to standard output once it
    answers; the log goes to standard error, one JSON object on a line. SIGTERM ends it in order.

    \b
    Examples:
      tagstream serve tags --example
      tagstream serve tags --model m.tgs --port 9000
      tagstream token add tags anna --role write && tagstream serve tags --host 0.0.0.0
      tagstream serve tags --follow --port 8081
      tagstream serve tags --trust-proxy 127.0.0.1
    """
    from tagstream.serve.door import parse_networks
    from tagstream.serve.example import example_changes
    from tagstream.serve.follow import Follower
    from tagstream.serve.run import check_host, leave, log_to
    from tagstream.serve.run import serve as run
    from tagstream.serve.served import Served
    from tagstream.serve.tokens import Tokens
    from tagstream.serve.writer import Service

    if follow and (model is not None or example or accept_loss):
        raise typer.BadParameter("--follow must come without --model, --example and --accept-loss")
    try:
        trusted = parse_networks(trust_proxy or ())
    except ValueError as error:
        raise typer.BadParameter(
            f"--trust-proxy must be an address or a network: {error}"
        ) from None
    home = folder.parent.parent if follow and folder.is_file() else folder
    try:
        check_host(host, Tokens(home / "tokens.json"))
    except ValueError as error:
        raise Failed(str(error).replace("DIR", str(home))) from None
    if model is not None and not model.exists():
        raise Failed(f"{model}: No such file or directory")
    log_to()
    service: Served
    if follow:
        service = Follower(folder)
    else:
        service = writer = Service(
            folder,
            model=model,
            snapshot_events=snapshot_every,
            accept_loss=accept_loss,
            agree=agree,
        )
        writer.first = example_changes() if example else []
    hook = None if webhook is None else (webhook, webhook_private)
    code = run(
        service, host, port, on_ready=lambda url: put(f"{url}\n"), trusted=trusted, webhook=hook
    )
    if service.is_cut_off:
        leave(code)
    if code:
        raise typer.Exit(code)


# ---------------------------------------------------------------------- tokens
def add(
    folder: FolderArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who has it; seen in the log.")],
    role: Annotated[
        str,
        typer.Option(
            "--role",
            metavar="|".join(ROLES),
            help="read: ask. write: and learn. admin: and change tags, snapshot.",
            autocompletion=complete(ROLES),
        ),
    ] = "write",
) -> None:
    """Make a token and print it, this once; a running service takes it at once.

    DIR is made if it is not there, so that a service can begin with a token.
    """
    from tagstream.serve.tokens import Tokens

    folder.mkdir(parents=True, exist_ok=True)
    put(Tokens(folder / "tokens.json").add(name, role) + "\n")


def list_tokens(folder: FolderArgument, json: JsonOption = False) -> None:
    """List the tokens of DIR: names and roles, not the tokens themselves."""
    tokens = _tokens(folder).all
    made = [
        datetime.datetime.fromtimestamp(token.made, datetime.timezone.utc).isoformat(" ", "seconds")
        for token in tokens
    ]
    if json:
        put_json(
            [{"name": t.name, "role": t.role, "made": m} for t, m in zip(tokens, made, strict=True)]
        )
        return
    table = new_table("name", "role", "made")
    for token, when in zip(tokens, made, strict=True):
        table.add_row(token.name, token.role, when)
    put_table(table)


def revoke(
    folder: FolderArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose token.")],
) -> None:
    """Take a token back; a running service refuses it at once."""
    tokens = _tokens(folder)
    if not tokens.revoke(name):
        raise Failed(f"NAME must be that of a token of {folder}, got {name!r}")
    say(f"the token of {name} is revoked")
    if not len(tokens):
        say("no token is left: the service is open to everybody on this machine")


def _tokens(folder: Path) -> Tokens:
    from tagstream.serve.tokens import Tokens

    if not folder.is_dir():
        raise Failed(f"DIR must be the folder of a service, got {folder}, which is not there")
    return Tokens(folder / "tokens.json")


# ---------------------------------------------------------------------- the log
def export(
    folder: FolderArgument,
    items: Annotated[
        bool,
        typer.Option("--items", help="Only the items as they are now, with their tags of today."),
    ] = False,
) -> None:
    """Write the event log as JSON lines, which ``tagstream learn`` can learn.

    One line is one event, in order: {"id", "text" or "x", "y"} is an item that was learnt;
    {"event": "rename", ...} and the like are other changes. The service may run meanwhile.
    """
    from tagstream.serve.export import items_now
    from tagstream.serve.log import EventLog

    path = folder / "events.db"
    if not path.exists():
        raise Failed(f"{folder} must be a folder of the service, got no events.db in it")
    n_left_out = 0
    log = EventLog(path, read_only=True)
    try:
        changes = (event.line() for event in log.after(0) if event.does.changes)
        for line in items_now(folder, log) if items else changes:
            if line is None:
                n_left_out += 1
            else:
                put_json(line)
    finally:
        log.close()
    if n_left_out:
        raise Failed(
            f"{count(n_left_out, 'item')} of the model that {folder} began with left out, because "
            "it does not keep what they were made of; to take them along, begin a new DIR with "
            f"--model and the newest file in {folder / 'snapshots'}"
        )


def retry(
    folder: FolderArgument,
    position: Annotated[
        int, typer.Argument(metavar="POSITION", min=1, help="Of the event in the log.")
    ],
) -> None:
    """Append a quarantined event to the log of DIR again; the next start learns it.

    An event is quarantined if the tagger failed on it. /health/ready of the service and its log
    say which ones are. Stop the service first: it holds the log.
    """
    from tagstream.serve.retry import retry as append

    new = append(folder, position)
    say(f"event {position} is appended as event {new}; the next start of the service learns it")
