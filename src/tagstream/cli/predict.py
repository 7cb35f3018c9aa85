"""Commands that ask a model: ``predict``, ``explain``, ``inspect``."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tagstream.cli.model import find_item, open_tagger
from tagstream.cli.options import (
    ChunkOption,
    DecideOption,
    EncoderOption,
    JsonOption,
    ModelArgument,
    ModelOption,
    NextOption,
    ThresholdOption,
    reads,
    rule_of,
)
from tagstream.cli.output import (
    Bar,
    Failed,
    is_terminal,
    new_table,
    put,
    put_json,
    put_table,
    say,
    with_marks,
)
from tagstream.cli.ray import RayOption, ShardsOption, in_order
from tagstream.cli.records import (
    Reading,
    check_columns,
    download,
    is_data_set,
    is_stream,
    name_of,
)
from tagstream.learners.keeping import keeps_items

if TYPE_CHECKING:
    from tagstream.learners.neighbors import Explanation
    from tagstream.records import Batch, Tally
    from tagstream.tagger import Suggestion, Tagger

MOST_LABELS = 50  # shown by inspect
OLD_ANSWERS = "answered as the next item of the stream, as version 0.2 did, until the next fit"
LONGEST_TEXT = 100  # characters of a neighbour's text that are shown
NOTHING_KNOWN = "nothing in it was met before: the scores are how frequent each tag is"


def _open(path: str, encoder: str | None, rule: str | float | None = None) -> Tagger:
    tagger = open_tagger(path, encoder)
    if rule is not None:  # of this command only: the model is not saved
        tagger.learner.set_params(decide=rule)
    return tagger


def _batches(
    tagger: Tagger, reading: Reading, data: str, size: int, bar: Bar | None = None
) -> Iterator[Batch]:
    """Read records to be predicted; the bar shows how far this is."""
    download(data)
    how = reading.of_model(tagger)
    if how.n_features is None and tagger.featurizer is not None:
        how = how.after(how.saved, n_features=getattr(tagger.featurizer, "n_features", None))
    if is_text(data):
        yield _typed_record(data, tagger)
        return
    tally, done = open_lines(how, data), 0
    for batch in how.batches(data, size, tally=tally, to_predict=True):
        check_columns(batch, tagger, data)
        done += len(batch)
        if bar is not None:
            bar.share(done, None if tally is None else tally.share)
        yield batch


def open_lines(how: Reading, data: str) -> Tally | None:
    """Open a file that is read line by line; None for everything else."""
    from tagstream.records import FORMATS

    if is_data_set(data) or is_stream(data) or not FORMATS[how.kind(data)].is_stream:
        return None
    return how.open(data)


def is_text(data: str) -> bool:
    """Tell whether DATA is a text itself: it is no file, and there is a blank in it."""
    return " " in data.strip() and not os.path.lexists(data)


# ---------------------------------------------------------------------- predict
@reads
def predict(
    model: ModelOption,
    reading: Reading,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="A file, a folder, '-' or a data set as for learn; what is no file and has a "
            "blank in it is the text itself.",
        ),
    ] = None,
    text_itself: Annotated[
        str | None, typer.Option("--say", metavar="TEXT", help="The text itself, instead of DATA.")
    ] = None,
    show: Annotated[
        str,
        typer.Option("--show", metavar="labels|scores", help="Suggested tags, or all scores too."),
    ] = "labels",
    top: Annotated[
        int | None,
        typer.Option("--top", min=1, metavar="K", help="Show the K highest scores too."),
    ] = None,
    decide: DecideOption = None,
    threshold: ThresholdOption = None,
    why: Annotated[
        bool, typer.Option("--why", help="Show the nearest stored items and what they share, too.")
    ] = False,
    out: Annotated[
        str, typer.Option("--out", metavar="jsonl|csv", help="What to print.")
    ] = "jsonl",
    as_next: NextOption = False,
    encoder: EncoderOption = None,
    chunk: ChunkOption = 256,
    ray: RayOption = None,
    shards: ShardsOption = 2,
) -> None:
    """Suggest tags for the records of DATA, one line each on standard output.

    DATA needs no labels; if it has some, they are ignored. A record without identifier gets its
    number, counted from 0. Plain text, one item per line, is read with --format lines. A record in
    which nothing was met before gets no tag and "known": false; its scores are how frequent each
    tag is.

    Each record is answered for on its own, whenever it came. With --next, each is answered for as
    the one that comes right after what the model has learnt last.

    \b
    Examples:
      tagstream predict new.jsonl --model m.tgs
      tagstream predict "Where to swim in May?" --model m.tgs
      tagstream predict new.xlsx --model m.tgs --out csv > tagged.csv
      cat new.jsonl | tagstream predict - --model m.tgs --top 3
      cat titles.txt | tagstream predict - --format lines --model m.tgs --why
      tail -f new.jsonl | tagstream predict - --model m.tgs --chunk 1
      tagstream predict new.csv --model m.tgs --show scores --out csv > scores.csv
      tagstream predict large.jsonl --model m.tgs --ray here > tags.jsonl
    """
    for option, value, choices in (
        ("--show", show, ("labels", "scores")),
        ("--out", out, ("jsonl", "csv")),
    ):
        if value not in choices:
            raise typer.BadParameter(f"{option} must be one of {', '.join(choices)}, got {value!r}")
    if why and out == "csv":
        raise typer.BadParameter("--why must come with --out jsonl")
    if (data is None) == (text_itself is None):
        raise typer.BadParameter("DATA or --say must be given, and not both")
    if ray is not None and (data is None or is_stream(data)):
        raise typer.BadParameter("--ray must come with a file that several processes can read")
    rule = rule_of(decide, threshold)
    tagger = _open(model, encoder, rule)
    sep = reading.sep or tagger.extra["reading"].get("sep") or "|"
    form = _Form(show, top, why, out, sep, as_next)
    if why:
        _check_explains(tagger, model)
    if data is None:
        assert text_itself is not None
        put(form.text(tagger, 0, _typed_record(text_itself, tagger)))
        return
    if ray is None:
        with Bar("predicting", is_terminal()) as bar:  # lines on a terminal are progress enough
            n = 0
            for first, batch in _numbered(tagger, reading, data, chunk, bar):
                put(form.text(tagger, first, batch))
                n += len(batch)
        if n == 0:
            put(form.header(tagger, has_text=False))
        return
    model, data = os.path.abspath(model), data if is_data_set(data) else os.path.abspath(data)

    def read() -> Iterator[tuple[int, Batch]]:
        return _numbered(_open(model, encoder), reading, data, chunk)

    def make() -> Callable[[tuple[int, Batch]], str]:
        own = _open(model, encoder, rule)
        return lambda numbered: form.text(own, *numbered)

    for text in in_order(read, make, ray, shards):
        put(text)


def _numbered(
    tagger: Tagger, reading: Reading, data: str, size: int, bar: Bar | None = None
) -> Iterator[tuple[int, Batch]]:
    """Read batches, each with the number of its first record."""
    first = 0
    for batch in _batches(tagger, reading, data, size, bar):
        yield first, batch
        first += len(batch)


class _Form(NamedTuple):
    """What is printed of suggestions."""

    show: str
    top: int | None
    why: bool
    out: str
    sep: str  # between the tags of a CSV cell
    as_next: bool  # whether each record is answered for as the next one of the stream

    def header(self, tagger: Tagger, *, has_text: bool) -> str:
        """Return what comes before all lines."""
        if self.out == "jsonl":
            return ""
        named = ["labels"] if self.show == "labels" else tagger.tags
        if has_text:
            named = ["text", *named]
        return _csv([["id", *(named if self.top is None else ["rank", "label", "score"])]])

    def text(self, tagger: Tagger, first: int, batch: Batch) -> str:
        """Return the lines of a batch whose first record has the number ``first``."""
        names = [
            first + i if name is None else name
            for i, name in enumerate(batch.ids or [None] * len(batch))
        ]
        pairs = zip(names, tagger.suggest(batch, next=self.as_next), strict=True)
        if self.out == "csv":
            tags = tagger.tags
            texts = [[item] if isinstance(item, str) else [] for item in batch.items]
            head = "" if first else self.header(tagger, has_text=bool(texts[0]))
            rows = (self._rows(*pair, tags, text) for pair, text in zip(pairs, texts, strict=True))
            return head + "".join(map(_csv, rows))
        lines = [_as_json(*pair, self.show, self.top) for pair in pairs]
        if self.why:
            lines = [self._with_why(line, tagger, batch, i) for i, line in enumerate(lines)]
        return "".join(lines)

    def _with_why(self, line: str, tagger: Tagger, batch: Batch, i: int) -> str:
        reasons = _explanation(tagger, batch.cut(i, i + 1), as_next=self.as_next)
        shown = ("parts", "copy_of", "corrected", "neighbors")
        record = {**json.loads(line), "why": {key: reasons[key] for key in shown}}
        return json.dumps(record, ensure_ascii=False) + "\n"

    def _rows(
        self, name: Any, found: Suggestion, tags: list[Any], text: list[str]
    ) -> list[list[object]]:
        if self.top is not None:
            best = islice(found.scores.items(), self.top)
            return [[name, rank, *pair] for rank, pair in enumerate(best, 1)]
        if self.show == "scores":
            return [[name, *text, *(found.scores.get(tag, 0.0) for tag in tags)]]
        from tagstream.records.writers import join_tags

        return [[name, *text, join_tags(map(str, found.tags), self.sep)]]


def _as_json(name: Any, found: Suggestion, show: str, top: int | None) -> str:
    record: dict[str, Any] = {"id": name, "labels": found.tags}
    if found.auto:
        record["auto"] = found.auto
    if top is not None:
        best = islice(found.scores.items(), top)
        record["top"] = [{"label": tag, "score": score} for tag, score in best]
    elif show == "scores":
        record["scores"] = {str(tag): score for tag, score in found.scores.items()}
    if not found.known:
        record["known"] = False
    return json.dumps(record, ensure_ascii=False) + "\n"


def _csv(rows: list[list[Any]]) -> str:
    page = io.StringIO()
    csv.writer(page, lineterminator="\n").writerows(rows)
    return page.getvalue()


# ---------------------------------------------------------------------- explain
def _check_explains(tagger: Tagger, model: str) -> None:
    if not keeps_items(tagger.learner):
        name = type(tagger.learner).__name__
        raise Failed(f"{model}: {name} keeps no items to explain with; use --method oml")


@reads
def explain(
    model: ModelOption,
    reading: Reading,
    item: Annotated[
        str | None,
        typer.Argument(
            metavar="ITEM",
            help="A plain text, a JSON record, a data file or data set (see --row), or '-' for a "
            "record on standard input.",
        ),
    ] = None,
    row: Annotated[int, typer.Option("--row", min=0, help="Which record of a file.")] = 0,
    as_next: NextOption = False,
    decide: DecideOption = None,
    threshold: ThresholdOption = None,
    encoder: EncoderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell why an item gets its tags: what spoke for each, and the stored items nearest to it.

    Words that an item shares with a stored one are bold on a terminal and between *stars*
    elsewhere. Without ITEM, --id ID names a stored item, which then speaks for itself too.

    \b
    Examples:
      tagstream explain "Where to swim in May?" --model m.tgs
      tagstream explain '{"x": [0.5, 1.5, 3]}' --model m.tgs
      tagstream explain --id p17 --model m.tgs
      tagstream explain new.csv --row 12 --model m.tgs
      head -1 new.jsonl | tagstream explain - --model m.tgs --json
    """
    tagger = _open(model, encoder, rule_of(decide, threshold))
    _check_explains(tagger, model)
    if item is None:
        one = _stored_record(tagger, model, reading.ids)
    elif item == "-" or is_data_set(item) or Path(item).is_file():
        left, found = row, None
        for batch in _batches(tagger, reading, item, 1 if item == "-" else 256):
            if left < len(batch):
                found = batch.cut(left, left + 1)
                break
            left -= len(batch)
        if found is None:
            raise Failed(f"{name_of(item)}: must have a record {row}, got fewer")
        one = found
    else:
        _tell_of_id(item, tagger)
        one = _typed_record(item, tagger)
    if as_json:
        put_json(_explanation(tagger, one, as_next=as_next))
    else:
        (answer,) = tagger.suggest(one)
        put_explanation(tagger.explain(one, next=as_next), _text_of(one), known=answer.known)


def _stored_record(tagger: Tagger, model: str, written: Any) -> Batch:
    """Return a stored item as a record with its id."""
    from tagstream.records import Batch

    if not isinstance(written, str):
        raise typer.BadParameter("ITEM or --id must be given")
    name = find_item(tagger, written)
    if name is None:
        raise Failed(f"{model}: --id must be that of a stored item, got {written!r}")
    text = tagger.item(name).text
    if text is None:
        raise Failed(f"{model}: the text of item {name} must be kept to be explained, got none")
    return Batch([text], [None], ids=(name,))


def _tell_of_id(item: str, tagger: Tagger) -> None:
    """Say that a text is not taken for the id of a stored item, if it is one."""
    found = find_item(tagger, item)
    if found is not None:
        tags = ", ".join(sorted(map(str, tagger.learner.item(found)[1]))) or "no tag"
        say(f"{item!r} is taken as a text; for the stored item {found} ({tags}), say --id {found}")


def _typed_record(item: str, tagger: Tagger) -> Batch:
    """Return a record given on the command line."""
    from tagstream import records as data

    line = item.strip() if item.lstrip().startswith("{") else json.dumps({"text": item})
    stream = io.BytesIO(line.replace("\n", " ").encode("utf-8", "surrogateescape"))
    stream.name = "ITEM"
    (batch,) = data.iter_jsonl(stream, labels=False)
    check_columns(batch, tagger, "ITEM")
    return batch


def _text_of(one: Batch) -> str | None:
    first = one.items[0] if isinstance(one.items, list) else None
    return first if isinstance(first, str) else None


def _explanation(tagger: Tagger, one: Batch, *, as_next: bool) -> dict[str, Any]:
    """Return an explanation as plain values; neighbours come with the words they share."""
    why, text = tagger.explain(one, next=as_next), _text_of(one)
    told = asdict(why)
    for key in ("voters", "scores", "parts", "words"):
        told[key] = {str(tag): value for tag, value in told[key].items()}
    for near in [*told["neighbors"], told["copy_of"]]:
        if near is not None:
            near["shared"] = [near["text"][a:b] for a, b in _shared(text, near["text"])]
    told["known"] = tagger.suggest(one)[0].known
    return told


def _shared(text: str | None, other: str | None) -> list[tuple[int, int]]:
    """Return where the words stand in ``other`` that both texts have."""
    if text is None or other is None:
        return []
    from tagstream.features import shared_words

    return shared_words(text, other)


def marked(text: str | None, other: str | None) -> list[tuple[str, bool]]:
    """Return the beginning of ``other`` in parts, and which of them ``text`` has too."""
    parts: list[tuple[str, bool]] = []
    end, other = 0, other or ""
    for start, stop in _shared(text, other):
        if start >= LONGEST_TEXT:
            break
        parts += [(other[end:start], False), (other[start:stop], True)]
        end = stop
    rest = other[end : max(LONGEST_TEXT, end)]
    parts.append((rest + "…" * (end + len(rest) < len(other)), False))
    return [(re.sub(r"\s+", " ", part), mark) for part, mark in parts]


def put_explanation(why: Explanation, text: str | None = None, *, known: bool = True) -> None:
    """Print what spoke for each tag, and the stored items that are near."""
    if not known:
        put(f"{NOTHING_KNOWN}\n\n")
    near = new_table("tag", "Score", "items near that have it")
    for tag, score in why.scores.items():
        voters = [str(n.id) for n in why.neighbors if tag in n.labels]
        star = "*" if known and tag in why.voters else ""
        near.add_row(f"{tag}{star}", f"{score:.2f}", ", ".join(voters))
    put_table(near, "tags (* suggested)")
    if known and why.words:
        spoke = new_table("tag", "words for it", "words against it")
        for tag, words in why.words.items():
            sides = [[w for w, change in words.items() if change * sign > 0] for sign in (1, -1)]
            spoke.add_row(str(tag), *(", ".join(side) for side in sides))
        put_table(spoke, "words, the strongest first")
    if known and why.parts:
        put_table(parts_table(why), "what spoke for each: parts that add up to its log-odds")
    if why.copy_of is not None:
        put(f"{copy_note(why)}\n\n")
    items = new_table("item", "Distance", "tags", "text")
    for n in why.neighbors:
        shown = with_marks(marked(text, n.text))
        items.add_row(str(n.id), f"{n.distance:.4g}", ", ".join(map(str, n.labels)), shown)
    put_table(items, "nearest items")


def parts_table(why: Explanation) -> Any:
    """Return what each source adds to the log-odds of each suggested tag."""
    used = [
        name
        for name in next(iter(why.parts.values()))
        if any(abs(parts[name]) >= 0.005 for parts in why.parts.values())
    ]
    table = new_table("tag", *(name.capitalize() for name in used), "Sum")
    for tag, parts in why.parts.items():
        cells = [f"{parts[name]:+.2f}" for name in used]
        table.add_row(str(tag), *cells, f"{sum(parts.values()):+.2f}")
    return table


def copy_note(why: Explanation) -> str:
    """Tell of which stored item the item is a copy."""
    assert why.copy_of is not None
    by_you = ", corrected by you" if why.corrected else ""
    tags = ", ".join(map(str, why.copy_of.labels)) or "no tag"
    return f"a copy of item {why.copy_of.id}{by_you}: {tags}"


# ---------------------------------------------------------------------- inspect
def inspect(
    model: ModelArgument, encoder: EncoderOption = None, as_json: JsonOption = False
) -> None:
    """Tell what a model knows: tags and how many items have them, parameters, size.

    \b
    Examples:
      tagstream inspect m.tgs
      tagstream inspect m.tgs --json | jq .params
    """
    from tagstream.files import persist

    info = persist.inspect(model)
    tagger = _open(model, encoder)
    names, counts = tagger.tags, tagger.counts
    makes = tagger.featurizer
    features: dict[str, Any] = {}
    if makes is not None and makes.name != "columns":
        features = {"name": makes.name, **makes.to_state()}
        features.pop("probe", None)
    sources = tagger.extra["sources"]
    old = not getattr(tagger.learner, "answers_any_", True)
    loss = dict(zip(("squared_loss", "bound"), tagger.loss_and_bound or (), strict=False))
    if as_json:
        record = asdict(info) | loss | {"answers_any": not old}
        del record["arrays"], record["extra"]
        kept = [counts[name] for name in names] if counts else None
        put_json(record | {"labels": names, "kept": kept, "text": features, "sources": sources})
        return
    rows = {
        "learner": info.learner,
        "learnt": f"{info.n_seen:,} items",
        "features": f"{info.n_features:,}",
        "tags": f"{info.n_labels:,}",
        **({"loss": "{squared_loss:,.1f}, at most {bound:,.1f}".format(**loss)} if loss else {}),
        **({"any item": f"{OLD_ANSWERS}; tagstream refit {model} changes it"} if old else {}),
        "size": f"{info.n_bytes:,} bytes, format {info.format}, tagstream {info.tagstream}",
        **{f"  {key}": str(value) for key, value in info.params.items()},
        **{f"  features: {key}": str(value) for key, value in features.items()},
    }
    facts = new_table("what", "value")
    for key, value in rows.items():
        facts.add_row(key, value)
    for name, position in sources.items():
        facts.add_row("read", f"{position['records']:,} records of {name}")
    put_table(facts, model)
    put_tags(names, counts, MOST_LABELS)


def put_tags(names: list[Any], counts: dict[Any, int], most: int | None = None) -> None:
    """Print tags and how many stored items have them, the most frequent first."""
    known = new_table("tag", *(["Items"] if counts else []))
    order = sorted(names, key=lambda name: -counts.get(name, 0))
    for name in order[:most]:
        known.add_row(str(name), *([f"{counts[name]:,}"] if counts else []))
    put_table(known)
    if most is not None and len(names) > most:
        put(f"and {len(names) - most:,} more; tagstream tags lists all\n")
