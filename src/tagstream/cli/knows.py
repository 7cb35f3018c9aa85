"""Commands that ask what a model knows: ``check``, ``tags candidates`` and what answers them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagstream.cli.model import changed, find_item, open_tagger
from tagstream.cli.options import (
    DataArgument,
    EncoderOption,
    JsonOption,
    ModelArgument,
    ModelOption,
    QuietOption,
    reads,
)
from tagstream.cli.output import Bar, Failed, count, new_table, put_json, put_table, say
from tagstream.cli.records import Reading
from tagstream.knows import MODES, ORDERS
from tagstream.learners.keeping import keeps_items

if TYPE_CHECKING:
    from tagstream.tagger import Tagger

NumberOption = Annotated[int, typer.Option("-n", "--number", min=1, help="How many at most.")]
TagArgument = Annotated[str, typer.Argument(metavar="TAG", help="A tag.")]
IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of stored items.")]
TagsArgument = Annotated[list[str], typer.Argument(metavar="TAG...", help="Tags.")]
LONGEST = 60  # characters of a text that are shown


def check(
    model: ModelArgument,
    n: NumberOption = 20,
    encoder: EncoderOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List the stored items whose tags look wrong, the most doubtful first.

    Each item is asked about as if it had not been learnt. The doubt is how much better, by expected
    F1, the proposed tags are than those that the item has. To put one right:
    tagstream correct MODEL ID --tags A,B.

    \b
    Examples:
      tagstream check m.tgs
      tagstream check m.tgs -n 200 --json | jq .
    """
    tagger = open_tagger(model, encoder)
    with Bar("asking", quiet) as bar:
        found = _asked(lambda: tagger.review(n, progress=bar), model)
    if as_json:
        put_json([asdict(doubt) for doubt in found])
        return
    table = new_table("item", "Doubt", "has", "should go", "is missing", "like", "text")
    for doubt in found:
        near = ", ".join(str(neighbor.id) for neighbor in doubt.neighbors[:3])
        table.add_row(
            str(doubt.id), f"{doubt.doubt:.2f}", _listed(doubt.tags), _listed(doubt.remove),
            _listed(doubt.add), near, _short(doubt.text),
        )  # fmt: skip
    _put_found(table, "no item looks wrong", quiet)


def candidates(
    model: ModelArgument,
    tag: TagArgument,
    n: NumberOption = 20,
    encoder: EncoderOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List stored items without a tag that most likely should have it.

    Answer with tagstream tags accept and tagstream tags refuse.

    \b
    Examples:
      tagstream tags candidates m.tgs sea
      tagstream tags candidates m.tgs sea -n 500 --json | jq -r '.[]|select(.score>.9).id'
    """
    tagger = open_tagger(model, encoder)
    with Bar("asking", quiet) as bar:
        found = _asked(lambda: tagger.candidates(tag, n, progress=bar), model)
    if as_json:
        put_json([asdict(candidate) for candidate in found])
        return
    table = new_table("item", "Score", "has", "like", "text")
    for candidate in found:
        near = ", ".join(str(neighbor.id) for neighbor in candidate.why[:3])
        table.add_row(
            str(candidate.id), f"{candidate.score:.2f}", _listed(candidate.tags), near,
            _short(candidate.text),
        )  # fmt: skip
    _put_found(table, f"no other item looks as if it should have {tag}", quiet)


@reads
def next_items(
    data: DataArgument,
    model: ModelOption,
    reading: Reading,
    n: NumberOption = 10,
    order: Annotated[
        str,
        typer.Option(
            "--order",
            metavar="|".join([*ORDERS, "tag:NAME"]),
            help="mixed: a fair draw and what the model is unsure of, in turn.",
        ),
    ] = "mixed",
    encoder: EncoderOption = None,
) -> None:
    """Print which records of DATA should be tagged next, one line of JSON each.

    Half of the items are a fair draw by a hash of their id: on these, and only on these, the
    quality of suggestions can be measured. Near copies wait.

    \b
    Examples:
      tagstream next new.jsonl -m m.tgs -n 20
      tagstream next new.jsonl -m m.tgs --order tag:invoice
    """
    tagger = open_tagger(model, encoder)
    records = _records_of(tagger, data, reading)
    chosen = _asked(lambda: tagger.next_items(records, n, order), model) if records else []
    for i in chosen:
        put_json({**records[i], "labels": tagger.suggest(records[i]).tags})


def _records_of(tagger: Tagger, data: str, reading: Reading) -> list[dict[str, Any]]:
    """Return the records of DATA; one without an id goes by its number."""
    how = reading.after(tagger.extra["reading"])
    records: list[dict[str, Any]] = []
    for batch in how.batches(data, 1000, to_predict=True):
        items: Any = batch.items
        if not isinstance(items, list):
            items = (items.toarray() if hasattr(items, "toarray") else items).tolist()
        ids = batch.ids or [None] * len(batch)
        for item, name in zip(items, ids, strict=True):
            field = "text" if isinstance(item, str) else "x"
            number = len(records) if name is None else name
            records.append({"id": number, field: item})
    return records


@reads
def unfamiliar(
    data: DataArgument,
    model: ModelOption,
    reading: Reading,
    n: NumberOption = 10,
    encoder: EncoderOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List records of DATA about which the model knows nothing, in groups that share words.

    No tag has a score of .2 or more for them that is above its share of the stored items. A large
    group may be the beginning of a new tag.

    \b
    Examples:
      tagstream unfamiliar new.jsonl -m m.tgs
      tagstream unfamiliar new.jsonl -m m.tgs --json | jq .[0].ids
    """
    tagger = open_tagger(model, encoder)
    records = _records_of(tagger, data, reading)
    found = _asked(lambda: tagger.unfamiliar(records, n), model) if records else []
    groups = [[records[i] for i in group.places] for group in found]
    if as_json:
        put_json(
            [
                {"ids": [r["id"] for r in some], "words": group.words, "score": group.score}
                for group, some in zip(found, groups, strict=True)
            ]
        )
        return
    table = new_table("Records", "ids", "words", "text")
    for group, some in zip(found, groups, strict=True):
        ids = _listed([r["id"] for r in some[:6]])
        table.add_row(f"{len(some):,}", ids, _listed(group.words), _short(some[0].get("text")))
    _put_found(table, "something is known of each record", quiet)


def accept(
    model: ModelArgument,
    tag: TagArgument,
    items: IdsArgument,
    encoder: EncoderOption = None,
    quiet: QuietOption = False,
) -> None:
    """Give a tag to stored items, beside those that they have: all of them, or none.

    \b
    Example:
      tagstream tags accept m.tgs sea p17 p18
    """
    with changed(model, encoder) as tagger:
        n = tagger.accept(tag, _ids(tagger, model, items))
    say(f"{tag}: {count(n, 'item')} more", quiet)


def refuse(
    model: ModelArgument,
    tag: TagArgument,
    items: IdsArgument,
    encoder: EncoderOption = None,
    quiet: QuietOption = False,
) -> None:
    """Say that stored items do not have a tag: all of them, or none.

    The tag is taken off and is not offered for these items again, until their text changes.

    \b
    Example:
      tagstream tags refuse m.tgs sea p17 p18
    """
    with changed(model, encoder) as tagger:
        n = tagger.refuse(tag, _ids(tagger, model, items))
    say(f"{tag}: refused for {count(n, 'item')} more", quiet)


def similar(
    model: ModelArgument,
    n: NumberOption = 20,
    encoder: EncoderOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List pairs of tags that may be one, by their items and their names. Nothing is merged.

    \b
    Examples:
      tagstream tags similar m.tgs
      tagstream tags merge m.tgs beach sea --into sea
    """
    tagger = open_tagger(model, encoder)
    with Bar("asking", quiet) as bar:
        found = _asked(lambda: tagger.similar_tags(n, progress=bar), model)
    if as_json:
        put_json([{**asdict(pair), "examples": _keyed(pair.examples)} for pair in found])
        return
    table = new_table("tag", "and tag", "Score", "Meaning", "Name", "Items", "Both", "Merged")
    for pair in found:
        numbers = [f"{value:.2f}" for value in (pair.score, pair.meaning, pair.name)]
        sizes = [f"{pair.counts[0]:,} + {pair.counts[1]:,}", f"{pair.n_both:,}"]
        table.add_row(*map(str, pair.pair), *numbers, *sizes, f"{pair.n_merged:,}")
    _put_found(table, "no two tags look like one", quiet)


def duplicates(
    model: ModelArgument,
    n: NumberOption = 20,
    least: Annotated[
        float, typer.Option("--least", min=0.5, max=1.0, help="How alike they are at least.")
    ] = 0.9,
    every: Annotated[
        bool, typer.Option("--all", help="Also those that have the same tags.")
    ] = False,
    encoder: EncoderOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List stored items that are nearly the same and have different tags.

    \b
    Examples:
      tagstream duplicates m.tgs
      tagstream duplicates m.tgs --least 1 --all --json
    """
    tagger = open_tagger(model, encoder)
    with Bar("comparing", quiet) as bar:
        found = _asked(
            lambda: tagger.duplicates(n, least=least, conflicting=not every, progress=bar), model
        )
    if as_json:
        put_json([asdict(group) for group in found])
        return
    table = new_table("items", "Alike", "differ in", "text")
    for group in found:
        cells = _listed(group.ids[:6]), f"{group.similarity:.2f}", _listed(group.differing)
        table.add_row(*cells, _short(group.texts[0]))
    which = "" if every else " and have different tags"
    _put_found(table, f"no items are nearly the same{which}", quiet)


def _put_found(table: Any, nothing: str, quiet: bool) -> None:
    """Write a table, or say that nothing was found."""
    if table.row_count:
        put_table(table)
    else:
        say(nothing, quiet)


def _keyed(examples: Any) -> dict[str, Any]:
    return {str(tag): [list(pair) for pair in some] for tag, some in examples.items()}


def health(
    model: ModelArgument, encoder: EncoderOption = None, as_json: JsonOption = False
) -> None:
    """Tell how well each tag was suggested lately, before its items were learnt, and if it drifts.

    The measures are of the last 200 decisions about the tag, with 95 % intervals. The trend is how
    much F1 rose from their first half to the second.

    \b
    Example:
      tagstream tags health m.tgs
    """
    tagger = open_tagger(model, encoder)
    found = _asked(tagger.tag_health, model)
    if as_json:
        put_json([asdict(one) for one in found])
        return
    table = new_table("tag", "Items", "Decisions", "Precision", "Recall", "Trend", "drift")
    for one in sorted(found, key=lambda one: -one.n):
        shares = [
            "" if share is None else f"{share[0]:.2f} ({share[1]:.2f}–{share[2]:.2f})"
            for share in (one.precision, one.recall)
        ]
        trend = "" if one.trend is None else f"{one.trend:+.2f}"
        drift = "yes" if one.drifting else ""
        table.add_row(str(one.tag), f"{one.n:,}", f"{one.decisions:,}", *shares, trend, drift)
    put_table(table)


def exclusive(
    model: ModelArgument,
    tags: Annotated[list[str] | None, typer.Argument(metavar="TAG...", help="Tags.")] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Items may have these tags beside others again.")
    ] = False,
    encoder: EncoderOption = None,
    quiet: QuietOption = False,
) -> None:
    """Say that an item has at most one of some tags; without TAG, list such groups.

    Only the one with the highest score is then suggested, and a record with two is refused.

    \b
    Examples:
      tagstream tags exclusive m.tgs bug feature question
      tagstream tags exclusive m.tgs bug --undo
      tagstream tags exclusive m.tgs
    """
    if not tags:
        table = new_table("at most one of")
        for group in open_tagger(model, encoder).exclusive_groups:
            table.add_row(_listed(group))
        put_table(table)
        return
    with changed(model, encoder) as tagger:
        if undo:
            tagger.not_exclusive(tags)
        else:
            tagger.exclusive(tags)
        groups = tagger.exclusive_groups
    say(f"{count(len(groups), 'group')} of exclusive tags", quiet)


def promise(
    model: ModelArgument,
    tag: Annotated[str | None, typer.Argument(metavar="TAG", help="A tag.")] = None,
    mode: Annotated[
        str, typer.Option("--mode", metavar="|".join(MODES), help="What may be done with the tag.")
    ] = "auto",
    precision: Annotated[
        float, typer.Option("--precision", metavar="SHARE", help="What is promised of auto.")
    ] = 0.95,
    encoder: EncoderOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Say whether a tag may be applied without asking, and how precisely; without TAG, list.

    auto: predict lists the tag under "auto" where the promised precision is kept, by scores that
    were made before their items were learnt; never before there are 30 of these. suggest: as all
    tags by default. never: it is not even suggested.

    \b
    Examples:
      tagstream tags promise m.tgs invoice --precision 0.98
      tagstream tags promise m.tgs misc --mode never
      tagstream tags promise m.tgs
    """
    if tag is None:
        found = open_tagger(model, encoder).promises
        if as_json:
            put_json([asdict(kept) for kept in found])
            return
        table = new_table("tag", "mode", "Promised", "Kept", "Cases", "From score", "why not now")
        for kept in found:
            numbers = [
                "" if value is None else f"{value:.3f}" for value in (kept.promise, kept.kept)
            ]
            bar = "" if kept.bar is None else f"{kept.bar:.2f}"
            table.add_row(str(kept.tag), kept.mode, *numbers, f"{kept.n:,}", bar, kept.why)
        put_table(table)
        return
    with changed(model, encoder) as tagger:
        tagger.promise(tag, mode, precision)
    say(f"{tag}: {mode}", quiet)


def _asked(ask: Any, model: str) -> Any:
    """Return what is found; tell a refusal as a failure of this model."""
    try:
        return ask()
    except ValueError as error:
        raise Failed(f"{model}: {error}") from error


def _ids(tagger: Tagger, model: str, written: list[str]) -> list[Any]:
    """Return the ids that were written, or say which of them no item has."""
    found = []
    for name in written:
        item = find_item(tagger, name) if keeps_items(tagger.learner) else None
        if item is None:
            raise Failed(f"{model}: ID must be that of a stored item, got {name!r}")
        found.append(item)
    return [*dict.fromkeys(found)]


def _listed(tags: Any) -> str:
    return ", ".join(map(str, tags))


def _short(text: str | None) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
