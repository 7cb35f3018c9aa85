"""``tagstream data``: list, fetch and convert data sets."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tagstream.cli.options import DataArgument, JsonOption, complete, reads
from tagstream.cli.output import Bar, new_table, put, put_json, put_table
from tagstream.cli.records import FORMATS, Reading, download, format_of


def list_all(as_json: JsonOption = False) -> None:
    """List the benchmark data sets and whether they are here.

    \b
    Example:
      tagstream data list
    """
    from tagstream.records import DATASETS, data_home, present

    here = {name: bool(present(name)) for name in DATASETS}
    if as_json:
        keys = ("name", "domain", "n", "p", "q", "cardinality", "source")
        rows = [{key: getattr(info, key) for key in keys} for info in DATASETS.values()]
        put_json([row | {"here": here[row["name"]]} for row in rows])
        return
    table = new_table("name", "domain", "Items", "Features", "Labels", "Per item", "here")
    for name, info in DATASETS.items():
        sizes = (f"{info.n:,}", f"{info.p:,}", f"{info.q:,}", f"{info.cardinality:.2f}")
        how = "yes" if here[name] else "fetch" if info.files else "no"
        table.add_row(name, info.domain, *sizes, how)
    put_table(table)
    put(f"data home: {data_home()} (set TAGSTREAM_DATA to change it)\n")


def _known_sets(incomplete: str) -> list[str]:
    from tagstream.records import DATASETS

    return complete([*DATASETS])(incomplete)


def fetch(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="Data sets.", autocompletion=_known_sets),
    ],
) -> None:
    """Download data sets that are not here; print where their files are.

    \b
    Example:
      tagstream data fetch scene image
    """
    from tagstream import records as data

    for name in names:
        if name not in data.DATASETS:
            known = ", ".join(data.DATASETS)
            raise typer.BadParameter(f"NAME must be one of {known}, got {name!r}")
    for name in names:
        with Bar(name, quiet=False) as bar:
            paths = data.fetch(name, progress=bar)
        put("".join(f"{path}\n" for path in paths))


@reads
def convert(
    data: DataArgument,
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="The file to write; '-' for standard output.")
    ],
    reading: Reading,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="|".join(FORMATS),
            help="The format of OUT.  [default: by its ending; standard output: jsonl]",
            autocompletion=complete(FORMATS),
        ),
    ] = None,
) -> None:
    """Write DATA in another format.

    CSV gets the labels as its last columns (read it with --labels -Q, where Q is their number);
    texts get the columns id, text and tags (--ids id --text text --labels tags --sep "|"; with
    another --sep, that one).
    LIBSVM numbers the labels from 0 in their order.

    \b
    Examples:
      tagstream data convert emotions emotions.csv
      tagstream data convert songs.arff - --to jsonl | head -3
    """
    from tagstream import records as tools

    kind = "jsonl" if out == "-" and to is None else format_of(out, to, "--to")
    write = tools.FORMATS[kind].writer
    if write is None:
        can = ", ".join(name for name, entry in tools.FORMATS.items() if entry.writer)
        raise typer.BadParameter(f"--to must be one of {can}, got {kind!r}")
    download(data)
    whole = reading.records(data)
    if kind in ("csv", "tsv") and reading.sep is not None:
        write = partial(write, sep=reading.sep)
    if out != "-":
        write(whole, out)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out"
        write(whole, path)
        with path.open(encoding="utf-8", newline="") as file:
            while part := file.read(1 << 16):
                put(part)
