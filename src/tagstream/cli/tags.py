"""Commands that manage tags and items: ``tags``, ``correct``, ``forget``, ``refit``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tagstream.cli.model import DUE, changed, find_item, locked, new_encoder, open_tagger
from tagstream.cli.options import EncoderOption, JsonOption, ModelArgument, QuietOption
from tagstream.cli.output import Failed, count, put_json, say
from tagstream.cli.predict import put_tags
from tagstream.learners.keeping import keeps_items

if TYPE_CHECKING:
    from tagstream.tagger import Tagger


class ListGroup(TyperGroup):
    """``tags MODEL`` is ``tags list MODEL``, and so with ``items``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``list`` before what is no command of its own."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["list", *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest


def list_tags(
    model: ModelArgument, encoder: EncoderOption = None, as_json: JsonOption = False
) -> None:
    """List the tags of a model and how many items have them.

    \b
    Examples:
      tagstream tags m.tgs
      tagstream tags m.tgs --json | jq .
    """
    tagger = open_tagger(model, encoder)
    counts = tagger.counts
    if as_json:
        names = sorted(tagger.tags, key=lambda name: -counts.get(name, 0))
        said = tagger.descriptions
        put_json(
            [
                {"tag": name, "items": counts.get(name)}
                | ({"about": said[name]} if name in said else {})
                for name in names
            ]
        )
    else:
        put_tags(tagger.tags, counts)


def declare(
    model: ModelArgument,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Names of tags.")
    ] = None,
    about: Annotated[
        str | None, typer.Option("--about", metavar="TEXT", help="What the tag is about.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Names, one per line; .csv or .json, with descriptions; or SKOS (.ttl, .rdf, …).",
        ),
    ] = None,
    lang: Annotated[
        str, typer.Option("--lang", help="SKOS: the language of the labels that become tags.")
    ] = "en",
    encoder: EncoderOption = None,
    quiet: QuietOption = False,
) -> None:
    """Make tags known before they have an example; texts get them by their names.

    A model that is not there yet is made, for texts. A tag that is known already stays, and takes
    the description if there is one.

    \b
    Examples:
      tagstream tags declare m.tgs travel cooking music
      tagstream tags declare m.tgs travel --about "trips, trains, hotels"
      tagstream tags declare m.tgs --file thesaurus.ttl --lang de
    """
    from tagstream.records.vocabulary import Vocabulary, read_vocabulary

    if about is not None and (file is not None or len(names or ()) != 1):
        raise typer.BadParameter("--about must come with exactly one NAME")
    found = Vocabulary({}) if file is None else read_vocabulary(file, lang=lang)
    tags = {**dict.fromkeys(names or (), about or ""), **found.tags}
    if not tags:
        raise typer.BadParameter("there must be a NAME or --file")
    if Path(model).exists():
        with changed(model, encoder) as tagger:
            before = {*tagger.tags}
            tagger.declare(tags)
    else:
        tagger, before = _declared_only(model, tags, encoder), set()
    new = len({*tagger.tags} - before)
    for note in found.notes:
        say(note, quiet)
    say(f"{count(new, 'tag')} declared; {model} knows {count(len(tagger.tags), 'tag')}", quiet)


def _declared_only(model: str, tags: dict[str, str], encoder: str | None) -> Tagger:
    """Make a model file that has tags and no items."""
    from tagstream.tagger import Tagger

    with locked(model):
        featurizer = None if encoder is None else new_encoder(encoder)
        tagger = Tagger(featurizer=featurizer, tags=tags)
        tagger.extra = {"reading": {}, "sources": {}}
        tagger.save(model)
    return tagger


def describe(
    model: ModelArgument,
    tag: Annotated[str, typer.Argument(metavar="TAG", help="A tag.")],
    about: Annotated[str, typer.Argument(metavar="TEXT", help='What it is about; "" for nothing.')],
    encoder: EncoderOption = None,
    quiet: QuietOption = False,
) -> None:
    """Say what a tag is about: it speaks for the tag like its name, most while it has few items.

    \b
    Example:
      tagstream tags describe m.tgs sea "beach, shore, coast, swimming"
    """
    with changed(model, encoder) as tagger:
        _check_tags(tagger, tag)
        tagger.describe(tag, about)
    say(f"{tag}: {about.strip() or 'no description'}", quiet)


def rename(
    model: ModelArgument,
    old: Annotated[str, typer.Argument(metavar="OLD", help="A tag.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
    encoder: EncoderOption = None,
    quiet: QuietOption = False,
) -> None:
    """Call a tag by another name. To undo it, rename it back.

    Records that are learnt later must use the new name, too.

    \b
    Example:
      tagstream tags rename m.tgs sea seaside
    """
    with changed(model, encoder) as tagger:
        _check_tags(tagger, old)
        if new.strip() in tagger.tags and new.strip() != old:
            raise Failed(
                f"{model}: NEW must be a name that is not taken, got {new.strip()!r}; "
                f"to make one of both, tagstream tags merge {model} {old} --into {new.strip()}"
            )
        tagger.rename(old, new)
    say(f"{old} is now {new.strip()}", quiet)


def merge(
    model: ModelArgument,
    tags: Annotated[list[str], typer.Argument(metavar="TAG...", help="Tags to be one.")],
    into: Annotated[
        str, typer.Option("--into", metavar="NAME", help="What they are called: old or new.")
    ],
    encoder: EncoderOption = None,
    quiet: QuietOption = False,
) -> None:
    """Make several tags one: an item has it if it had any of them. It cannot be undone.

    \b
    Examples:
      tagstream tags merge m.tgs beach shore --into sea
      cp m.tgs before.tgs                              a copy is the way back
    """
    with changed(model, encoder) as tagger:
        _check_tags(tagger, *tags)
        tagger.merge(tags, into)
        n = tagger.counts.get(into.strip(), 0)
    verb = "is" if len(tags) == 1 else "are"
    say(f"{', '.join(tags)} {verb} now {into.strip()}: {count(n, 'item')}", quiet)


def remove(
    model: ModelArgument,
    tag: Annotated[str, typer.Argument(metavar="TAG", help="A tag.")],
    encoder: EncoderOption = None,
    quiet: QuietOption = False,
) -> None:
    """Take a tag away from all items; the items stay. It cannot be undone.

    \b
    Example:
      tagstream tags remove m.tgs misc
    """
    with changed(model, encoder) as tagger:
        _check_tags(tagger, tag)
        n = tagger.counts.get(tag, 0)
        tagger.remove(tag)
    say(f"{tag} is gone from {count(n, 'item')}", quiet)


def correct(
    model: ModelArgument,
    item: Annotated[str, typer.Argument(metavar="ID", help="The id of a stored item.")],
    tags: Annotated[
        str,
        typer.Option(
            "--tags", metavar="A,B", help='All the tags that it has; "" for none. Any can be new.'
        ),
    ],
    sep: Annotated[
        str,
        typer.Option(
            "--sep", help="What stands between the tags; say another if a tag has a comma in it."
        ),
    ] = ",",
    encoder: EncoderOption = None,
    quiet: QuietOption = False,
) -> None:
    """Give a stored item other tags: a correction, which holds at once.

    To undo it, give it its old tags back: the message tells them. If the item came from a file,
    correct it there, too: learn --update takes over what the file says.

    \b
    Examples:
      tagstream correct m.tgs p17 --tags travel,sea
      tagstream correct m.tgs 42 --tags ""
      tagstream correct m.tgs 42 --tags "salt, pepper|food" --sep "|"
    """
    from tagstream.records.record import split_tags

    if not sep:
        raise typer.BadParameter("--sep must not be empty")
    names = split_tags(tags, sep)
    with changed(model, encoder) as tagger:
        found = _item(tagger, model, item)
        _check_whole(tagger, names, sep)
        old = tagger.learner.item(found)[1]
        tagger.relabel(found, names)
        n = len(tagger.tags)
    before = ", ".join(sorted(map(str, old))) or "no tag"
    now = ", ".join(dict.fromkeys(names)) or "no tag"
    say(f"{found}: {now} (it had {before}); {model} knows {count(n, 'tag')}", quiet)


def forget(
    model: ModelArgument,
    items: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of stored items.")],
    encoder: EncoderOption = None,
    quiet: QuietOption = False,
) -> None:
    """Take items out of a model, with their texts: all that are named, or none. No way back.

    \b
    Examples:
      tagstream forget m.tgs p17
      tagstream forget m.tgs p18 p19 p20
    """
    with changed(model, encoder) as tagger:
        found = [*dict.fromkeys(_item(tagger, model, name) for name in items)]
        for name in found:
            tagger.forget(name)
        n = len(tagger.ids)
    say(f"{count(len(found), 'item')} forgotten; {model} keeps {n:,}", quiet)


def refit(model: ModelArgument, encoder: EncoderOption = None, quiet: QuietOption = False) -> None:
    """Fit a model to all its items now, instead of when it is next due.

    Worth it after many corrections, after tags were merged, or after many records were learnt from
    standard input. tagstream learn FILE does it by itself.

    \b
    Example:
      tagstream refit m.tgs
    """
    with changed(model, encoder) as tagger:
        tagger.refit()
        tagger.extra.pop(DUE, None)
        n = len(tagger.ids)
    say(f"{model} is fitted to {count(n, 'item')}", quiet)


def _check_tags(tagger: Tagger, *tags: str) -> None:
    known = tagger.tags
    for tag in tags:
        if tag not in known:
            raise ValueError(f"a tag must be one that was learnt, got {tag!r}; see tagstream tags")


def _check_whole(tagger: Tagger, names: Sequence[str], sep: str) -> None:
    """Refuse to take a tag apart that has the separator in it."""
    from tagstream.records.record import split_tags

    for tag in tagger.tags:
        parts = split_tags(tag, sep) if isinstance(tag, str) else ()
        if len(parts) > 1 and {*parts} <= {*names}:
            other = "|" if sep != "|" else ";"
            raise Failed(
                f"--tags must name whole tags, got the parts of {tag!r}; "
                f"put {other!r} between tags and say --sep {other!r}"
            )


def _item(tagger: Tagger, model: str, written: str) -> Any:
    """Return the id that was written, or say that no item has it."""
    if not keeps_items(tagger.learner):
        name = type(tagger.learner).__name__
        raise Failed(f"{model}: {name} keeps no items that could be changed")
    found = find_item(tagger, written)
    if found is None:
        raise Failed(f"{model}: ID must be that of a stored item, got {written!r}")
    return found
