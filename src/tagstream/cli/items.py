"""``tagstream items``: the stored items of a model, listed, shown, searched and exported."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagstream.cli.model import find_item, open_tagger
from tagstream.cli.options import EncoderOption, JsonOption, ModelArgument
from tagstream.cli.output import Failed, count, new_table, put, put_json, put_table
from tagstream.cli.predict import LONGEST_TEXT
from tagstream.learners.keeping import keeps_items

if TYPE_CHECKING:
    from tagstream.tagger import Stored, Tagger

MostOption = Annotated[int, typer.Option("--most", min=1, metavar="N", help="Show so many.")]
TagOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Only items that have it; several: all of them."),
]
UntaggedOption = Annotated[bool, typer.Option("--untagged", help="Only items without a tag.")]


def list_items(
    model: ModelArgument,
    tag: TagOption = None,
    untagged: UntaggedOption = False,
    most: MostOption = 50,
    encoder: EncoderOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the stored items of a model, the latest first.

    \b
    Examples:
      tagstream items m.tgs
      tagstream items m.tgs --tag sea --tag sun --most 200
    """
    tagger = _open(model, encoder)
    _put(tagger, _chosen(tagger, model, tag, untagged), most, as_json)


def search(
    model: ModelArgument,
    words: Annotated[
        list[str], typer.Argument(metavar="WORD...", help="What the text must contain: all of it.")
    ],
    tag: TagOption = None,
    untagged: UntaggedOption = False,
    most: MostOption = 50,
    encoder: EncoderOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the stored items whose texts contain all the words, in small letters or capitals.

    \b
    Example:
      tagstream items search m.tgs swim may
    """
    tagger = _open(model, encoder)
    wanted = [word.casefold() for word in words]
    found = (
        item
        for item in _chosen(tagger, model, tag, untagged)
        if item.text is not None and all(word in item.text.casefold() for word in wanted)
    )
    _put(tagger, found, most, as_json)


def show(
    model: ModelArgument,
    item: Annotated[str, typer.Argument(metavar="ID", help="The id of a stored item.")],
    encoder: EncoderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a stored item: its tags and its whole text.

    \b
    Example:
      tagstream items show m.tgs p17
    """
    tagger = _open(model, encoder)
    name = find_item(tagger, item)
    if name is None:
        raise Failed(f"{model}: ID must be that of a stored item, got {item!r}")
    found = tagger.item(name)
    if as_json:
        put_json(_record(found))
    else:
        text = "its text is not kept" if found.text is None else found.text
        put(f"{name}: {', '.join(map(str, found.tags)) or 'no tag'}\n{text}\n")


def export(
    model: ModelArgument,
    tag: TagOption = None,
    untagged: UntaggedOption = False,
    out: Annotated[
        str, typer.Option("--out", metavar="jsonl|csv", help="What to print.")
    ] = "jsonl",
    sep: Annotated[str, typer.Option("--sep", help="CSV: what to put between tags.")] = "|",
    encoder: EncoderOption = None,
) -> None:
    """Print the stored items with their texts and tags, the oldest first: tagstream learn takes it.

    \b
    Examples:
      tagstream items export m.tgs > items.jsonl
      tagstream items export m.tgs --tag sea --out csv > sea.csv
    """
    from tagstream.records.writers import join_tags

    if out not in ("jsonl", "csv"):
        raise typer.BadParameter(f"--out must be one of jsonl, csv, got {out!r}")
    if not sep:
        raise typer.BadParameter("--sep must not be empty")
    tagger = _open(model, encoder)
    if not tagger.texts:
        raise Failed(f"{model}: must keep the texts of its items to export them, got none")
    if out == "csv":
        put(_csv([["id", "text", "y"]]))
    for item in _chosen(tagger, model, tag, untagged, oldest_first=True):
        if out == "jsonl":
            put_json(_record(item))
        else:
            put(_csv([[item.id, item.text or "", join_tags(map(str, item.tags), sep)]]))


def _open(model: str, encoder: str | None) -> Tagger:
    tagger = open_tagger(model, encoder)
    if not keeps_items(tagger.learner):
        raise Failed(f"{model}: {type(tagger.learner).__name__} keeps no items")
    return tagger


def _chosen(
    tagger: Tagger,
    model: str,
    tags: list[str] | None,
    untagged: bool,
    *,
    oldest_first: bool = False,
) -> Iterator[Stored]:
    """Yield the items that have all of the tags, or none at all."""
    if tags and untagged:
        raise typer.BadParameter("--tag and --untagged must not come together")
    for tag in tags or ():
        if tag not in tagger.tags:
            raise Failed(f"{model}: --tag must be a tag that was learnt, got {tag!r}")
    wanted = {*(tags or ())}
    for name in tagger.ids if oldest_first else reversed(tagger.ids):
        item = tagger.item(name)
        if wanted <= {*item.tags} and not (untagged and item.tags):
            yield item


def _record(item: Stored) -> dict[str, Any]:
    return {"id": item.id, "text": item.text, "y": [str(tag) for tag in item.tags]}


def _put(tagger: Tagger, found: Iterator[Stored], most: int, as_json: bool) -> None:
    shown = [*islice(found, most + 1)]
    if as_json:
        put_json([_record(item) for item in shown[:most]])
        return
    table = new_table("id", "tags", "text")
    for item in shown[:most]:
        text = " ".join((item.text or "").split())
        cut = text[:LONGEST_TEXT] + "…" * (len(text) > LONGEST_TEXT)
        table.add_row(str(item.id), ", ".join(map(str, item.tags)), cut)
    put_table(table, f"{count(len(tagger), 'item')} stored")
    if len(shown) > most:
        put(f"and more; --most {2 * most} shows more of them\n")


def _csv(rows: list[list[Any]]) -> str:
    page = io.StringIO()
    csv.writer(page, lineterminator="\n").writerows(rows)
    return page.getvalue()
