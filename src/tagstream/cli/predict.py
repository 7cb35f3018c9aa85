"""Commands that ask a model: ``predict``, ``explain``, ``inspect``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tagstream.cli.options import ChunkOption, DataArgument, JsonOption, ModelOption, reads
from tagstream.cli.output import Failed, new_table, put, put_json, put_table
from tagstream.cli.records import (
    Chunk,
    Reading,
    check_features,
    download,
    is_data_set,
    name_of,
    skip,
    to_chunk,
)

if TYPE_CHECKING:
    from tagstream.base import StreamClassifier
    from tagstream.models import Explanation

MOST_LABELS = 50  # shown by inspect


class _Model(NamedTuple):
    """A learner from a file, what was saved with it, and how to read records for it."""

    learner: StreamClassifier
    extra: dict[str, Any]
    reading: Reading

    @classmethod
    def load(cls, path: str, asked: Reading) -> _Model:
        from tagstream import persist

        learner, extra = persist.load_with_extra(path)
        saved = {**extra.get("reading", {}), "hashing": extra.get("hashing", {})}
        return cls(learner, extra, asked.merged(saved))

    def records(self, data: str, size: int) -> Iterator[Chunk]:
        """Read records to be predicted."""
        download(data)
        for chunk in self.reading.chunks(data, size, self.learner.n_features_in_, optional=True):
            check_features(chunk, self.learner, self.extra, data)
            yield chunk


class _Answer(NamedTuple):
    """What is predicted for one record, highest score first."""

    id: Any
    labels: list[Any]
    scores: dict[Any, float]

    def as_json(self, show: str, top: int | None) -> str:
        record: dict[str, Any] = {"id": self.id, "labels": self.labels}
        if top is not None:
            best = [*self.scores.items()][:top]
            record["top"] = [{"label": name, "score": score} for name, score in best]
        elif show == "scores":
            record["scores"] = {str(name): score for name, score in self.scores.items()}
        return json.dumps(record, ensure_ascii=False) + "\n"

    def as_rows(self, show: str, top: int | None, names: list[Any]) -> list[list[object]]:
        if top is not None:
            best = [*self.scores.items()][:top]
            return [[self.id, rank, *pair] for rank, pair in enumerate(best, 1)]
        if show == "scores":
            return [[self.id, *(self.scores[name] for name in names)]]
        return [[self.id, "|".join(map(str, self.labels))]]


def _answers(
    model: StreamClassifier, chunk: Chunk, first: int, threshold: float | None
) -> Iterator[_Answer]:
    scores = model.predict_proba(chunk.X)
    decided = model.labels_of(scores, threshold)
    if decided.ndim == 1:  # exactly one label each, by its name
        decided = decided[:, None] == model.classes_
    names = model.classes_.tolist()
    for i, best in enumerate((-scores).argsort(axis=1, kind="stable").tolist()):
        name = None if chunk.ids is None else chunk.ids[i]
        yield _Answer(
            first + i if name is None else name,
            [names[j] for j in best if decided[i, j]],
            {names[j]: round(float(scores[i, j]), 6) for j in best},
        )


@reads(hashing=False)
def predict(
    data: DataArgument,
    model: ModelOption,
    reading: Reading,
    show: Annotated[
        str, typer.Option("--show", metavar="labels|scores", help="Labels, or all scores too.")
    ] = "labels",
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="The so many best labels with scores.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="Score from which a label is predicted.")
    ] = None,
    out: Annotated[
        str, typer.Option("--out", metavar="jsonl|csv", help="What to print.")
    ] = "jsonl",
    chunk: ChunkOption = 256,
) -> None:
    """Predict the labels of the records of DATA, one line each on standard output.

    DATA needs no labels; if it has some, they are ignored. A record without identifier gets its
    number, counted from 0.

    \b
    Examples:
      tagstream predict new.jsonl --model m.tgs
      cat new.jsonl | tagstream predict - --model m.tgs --top 3
      tail -f new.jsonl | tagstream predict - --model m.tgs --chunk 1
      tagstream predict new.csv --model m.tgs --show scores --out csv > scores.csv
    """
    for option, value, choices in (
        ("--show", show, ("labels", "scores")),
        ("--out", out, ("jsonl", "csv")),
    ):
        if value not in choices:
            raise typer.BadParameter(f"{option} must be one of {', '.join(choices)}, got {value!r}")
    loaded = _Model.load(model, reading)
    names = loaded.learner.classes_.tolist()
    if out == "csv":
        header = ["labels"] if show == "labels" else names
        put(_csv([["id", *(header if top is None else ["rank", "label", "score"])]]))
    first = 0
    for part in loaded.records(data, chunk):
        answers = _answers(loaded.learner, part, first, threshold)
        if out == "csv":
            put(_csv([row for answer in answers for row in answer.as_rows(show, top, names)]))
        else:
            put("".join(answer.as_json(show, top) for answer in answers))
        first += len(part)


def _csv(rows: list[list[Any]]) -> str:
    page = io.StringIO()
    csv.writer(page, lineterminator="\n").writerows(rows)
    return page.getvalue()


@reads(hashing=False)
def explain(
    item: Annotated[
        str,
        typer.Argument(
            metavar="ITEM",
            help="A JSON record, a plain text, a data file or data set (see --row), or '-' for a "
            "record on standard input.",
        ),
    ],
    model: ModelOption,
    reading: Reading,
    row: Annotated[int, typer.Option("--row", min=0, help="Which record of a file.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Tell why an item gets its labels: the stored items nearest to it, and their votes.

    \b
    Examples:
      tagstream explain "Where to swim in May?" --model m.tgs
      tagstream explain '{"x": [0.5, 1.5, 3]}' --model m.tgs
      tagstream explain new.csv --row 12 --model m.tgs
      head -1 new.jsonl | tagstream explain - --model m.tgs --json
    """
    loaded = _Model.load(model, reading)
    learner = loaded.learner
    if not hasattr(learner, "explain"):
        raise Failed(
            f"{model}: {type(learner).__name__} keeps no items to explain with; use --method oml"
        )
    if item == "-" or is_data_set(item) or Path(item).is_file():
        part = next(skip(loaded.records(item, 1 if item == "-" else 256), row), None)
        if part is None:
            raise Failed(f"{name_of(item)}: must have a record {row}, got fewer")
    else:
        part = _typed_record(item, loaded.reading)
    X = part.X[:1]
    if X.shape[1] != learner.n_features_in_:
        raise Failed(
            f"ITEM must have {learner.n_features_in_} features as the model has learnt, "
            f"got {X.shape[1]}"
        )
    (why,) = learner.explain(X)
    if as_json:
        by_name = {"voters": why.voters, "scores": why.scores}
        texts = {key: {str(k): v for k, v in values.items()} for key, values in by_name.items()}
        put_json(asdict(why) | texts)
    else:
        put_explanation(why)


def put_explanation(why: Explanation) -> None:
    """Print the votes for each label and the items that cast them."""
    votes = new_table("label", "Score", "voted for by")
    for name, score in why.scores.items():
        voters = [str(n.id) for n in why.neighbors if name in n.labels]
        mark = "*" if name in why.voters else ""
        votes.add_row(f"{name}{mark}", f"{score:.2f}", ", ".join(voters))
    put_table(votes, "labels")
    near = new_table("item", "Distance", "labels")
    for n in why.neighbors:
        near.add_row(str(n.id), f"{n.distance:.4g}", ", ".join(map(str, n.labels)))
    put_table(near, "nearest items")
    put("* suggested\n")


def _typed_record(item: str, reading: Reading) -> Chunk:
    """Return a record given on the command line."""
    from tagstream import data

    line = item.strip() if item.lstrip().startswith("{") else json.dumps({"text": item})
    stream = io.BytesIO(line.replace("\n", " ").encode("utf-8", "surrogateescape"))
    stream.name = "ITEM"
    (batch,) = data.iter_jsonl(stream, labels=False)
    return to_chunk(batch, reading.hashing)


def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model file.")],
    as_json: JsonOption = False,
) -> None:
    """Tell what a model knows: labels and how often it keeps them, parameters, size.

    \b
    Examples:
      tagstream inspect m.tgs
      tagstream inspect m.tgs --json | jq .params
    """
    from tagstream import persist

    info = persist.inspect(model)
    learner, extra = persist.load_with_extra(model)
    names, stored = learner.classes_.tolist(), getattr(learner, "label_counts_", None)
    counts = None if stored is None else stored.tolist()  # not every learner stores items
    hashing, sources = extra.get("hashing"), extra.get("sources", {})
    if as_json:
        record = asdict(info)
        del record["arrays"], record["extra"]
        more = {"labels": names, "kept": counts, "hashing": hashing, "sources": sources}
        put_json(record | more)
        return
    rows = {
        "learner": info.learner,
        "learnt": f"{info.n_seen:,} examples",
        "features": f"{info.n_features:,}",
        "labels": f"{info.n_labels:,}",
        "size": f"{info.n_bytes:,} bytes, format {info.format}, tagstream {info.tagstream}",
        **{f"  {key}": str(value) for key, value in info.params.items()},
    }
    if hashing and hashing["n_features"] == info.n_features:
        rows |= {f"  hashing {key}": str(value) for key, value in hashing.items()}
    facts = new_table("what", "value")
    for key, value in rows.items():
        facts.add_row(key, value)
    for name, position in sources.items():
        facts.add_row("read", f"{position['records']:,} records of {name}")
    put_table(facts, model)
    known = new_table("label", "Kept")
    order = [*range(len(names))]
    if counts is not None:
        order.sort(key=lambda j: -counts[j])
    for j in order[:MOST_LABELS]:
        known.add_row(str(names[j]), "" if counts is None else f"{counts[j]:,}")
    put_table(known, "labels")
    if len(names) > MOST_LABELS:
        put(f"and {len(names) - MOST_LABELS:,} more; --json lists all\n")
