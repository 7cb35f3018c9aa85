"""``tagstream learn``: a stream into a model file, safe against any interruption."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagstream.cli.guards import TagCounts
from tagstream.cli.model import Keeper, locked, open_tagger
from tagstream.cli.options import (
    BitsOption,
    ChunkOption,
    EncoderOption,
    ManyDataArgument,
    ModelOption,
    ParamOption,
    QuietOption,
    SeedOption,
    complete,
    featurizer_of,
    new_model,
    params_of,
    reads,
)
from tagstream.cli.output import Bar, Failed, count, say, show_compiling
from tagstream.cli.ray import RayOption, ShardsOption, on_shards
from tagstream.cli.records import (
    Reading,
    check_columns,
    download,
    is_data_set,
    is_stream,
    name_of,
)
from tagstream.cli.stop import STOP, Stopped
from tagstream.learners.keeping import keeps_items
from tagstream.learners.registry import METHODS

if TYPE_CHECKING:
    from tagstream.records import Batch, Tally
    from tagstream.tagger import Tagger

MOST_NAMED = 5  # missing items that are named
FEW_ITEMS = 2000  # texts up to which an encoder is worth its time
ADVISED = "encoder_advised"  # under this name a model remembers that this was said


class _Edited(Exception):
    """A file does not begin with the records that were learnt from it."""


class _Source:
    """DATA to be learnt: the records that are new, and how far it has been read.

    Parameters
    ----------
    data : str
    reading : Reading
    before : dict or None
        The position that the model remembers; None: it is read from its start.
    quiet : bool
    """

    def __init__(
        self, data: str, reading: Reading, before: dict[str, Any] | None, quiet: bool
    ) -> None:
        self.data, self.reading, self.before, self.quiet = data, reading, before, quiet
        self.n_read = 0
        self._is_checked = before is None or not before["records"]
        self._tally: Tally | None = None
        self._file: dict[str, Any] | None = None  # of a file that is not read line by line

    @staticmethod
    def key(data: str) -> str:
        """Return under which name positions are remembered."""
        return f"data set {data.lower()}" if is_data_set(data) else os.path.realpath(data)

    @property
    def position(self) -> dict[str, Any] | None:
        """How far it was read; None if it cannot be read again."""
        if is_stream(self.data):
            return None
        told = self._tally.so_far() if self._tally is not None else self._file or {}
        return {"records": self.n_read, **told}

    @property
    def share(self) -> float | None:
        """How much of it was read, where this is known."""
        return None if self._tally is None else self._tally.share

    def batches(self, size: int) -> Iterator[Batch]:
        """Read what was not learnt before; raise `_Edited` if that is no longer there.

        What was learnt is compared by its digest first, so that an edited file is not parsed in
        vain, and then passed over.
        """
        left = 0 if self.before is None else self.before["records"]
        from tagstream.records import FORMATS

        if not is_data_set(self.data) and FORMATS[self.reading.kind(self.data)].is_stream:
            if self.data != "-":
                position = self.before if self.before and "bytes" in self.before else None
                if position is not None and self._is_edited(position):
                    raise _Edited
                self._tally = self.reading.open(self.data, position)
        elif not is_data_set(self.data):
            self._file = _digest_of(self.data)
            if self.before is not None and {**self._file, "records": left} != self.before:
                raise _Edited
        for batch in self.reading.batches(self.data, size, tally=self._tally, changes=True):
            self.n_read += len(batch)
            if left < len(batch):
                self._check_beginning()
                yield batch if left == 0 else batch.cut(left)
            left = max(left - len(batch), 0)
        if left:
            raise _Edited
        self._check_beginning()

    def _is_edited(self, position: dict[str, Any]) -> bool:
        """Tell whether the file no longer begins with what was learnt, by its digest alone."""
        tally = self.reading.open(self.data, position)
        # What cannot be read is told by the reader, with its place.
        unread = contextlib.suppress(OSError, EOFError, zlib.error, UnicodeError)
        with contextlib.closing(tally), unread:
            while tally.n_bytes < position["bytes"] and tally.readline():
                pass
            return not tally.matches
        return False

    def _check_beginning(self) -> None:
        if self._is_checked or self.before is None:
            return
        if self._tally is not None and not self._tally.matches:
            raise _Edited
        say(f"{self.before['records']:,} records of {self.data} were learnt before", self.quiet)
        self._is_checked = True


def _digest_of(path: str) -> dict[str, Any]:
    if Path(path).is_dir():
        from tagstream.records.folders import digest_of_folder

        return digest_of_folder(path)
    digest, n = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
            n += len(part)
    return {"bytes": n, "sha256": digest.hexdigest()}


class _Run:
    """One run of ``learn``: from a source into a model file."""

    def __init__(
        self, keeper: Keeper, *, chunk: int, unlabelled: bool, many_tags: bool, quiet: bool
    ) -> None:
        self.keeper, self.chunk, self.unlabelled, self.quiet = keeper, chunk, unlabelled, quiet
        self.tags = None if many_tags else TagCounts()
        self.source: _Source | None = None  # that is read, or was the last
        self.n_new = 0  # records read that were not learnt before
        self.is_fitted = False  # whether the run has ended with a refit
        self.ids: set[Any] | None = None  # what was met, if that is to be compared

    def go(self, source: _Source, makes: Any, *, by_id: str = "") -> None:
        """Learn what the source has; ``by_id`` says what for each record must have an id."""
        tagger, keeper, key = self.keeper.tagger, self.keeper, _Source.key(source.data)
        self.source = source
        with Bar("learning", self.quiet) as bar:
            for batch in source.batches(self.chunk):
                if by_id:
                    _check_ids(batch, source.data, by_id)
                with STOP.held():
                    if tagger.featurizer is None:
                        tagger.featurizer = makes(batch)
                    check_columns(batch, tagger, source.data)
                    if self.n_new == 0:
                        tagger.extra["reading"] |= source.reading.to_save(source.data, batch)
                    self.n_new += len(batch)
                    if self.tags is not None:
                        self.tags.add(batch)
                    keeper.learn(batch, key, source.position)
                    if self.ids is not None:
                        self.ids.update(batch.ids or ())
                    if keeper.is_due:
                        self.check_labels(source.data)
                        keeper.save()
                bar.share(source.n_read, source.share)

    def end(self) -> None:
        """Fit the model, if that is due after the last record."""
        if not self.keeper.refit_is_due:
            return
        with STOP.held():
            self.keeper.save()
        with Bar("fitting", self.quiet):
            self.keeper.refit()
        self.is_fitted = True

    def check_labels(self, data: str) -> None:
        """Refuse, before anything is saved, labels that were probably not meant so."""
        if self.keeper.has_saved:
            return
        whole, self.keeper.whole = self.keeper.whole, False  # what is refused is not saved
        self._check_labelled(data)
        if self.tags is not None:
            self.tags.check(data)
        self.keeper.whole = whole

    def _check_labelled(self, data: str) -> None:
        """Refuse a source most records of which have no labels: a name may be wrong."""
        n, skipped = self.n_new, self.keeper.done.skipped
        if self.unlabelled or 2 * skipped <= n:
            return
        raise Failed(
            f"{name_of(data)}: most records must have labels, got them in {n - skipped:,} of "
            f"{n:,}; say where they are with --labels, or --skip-unlabelled if it is meant so"
        )


def _check_ids(batch: Batch, data: str, what_for: str) -> None:
    names = batch.ids or [None] * len(batch)
    pairs = zip(names, batch.label_sets, strict=True)
    if any(name is None and labels is not None for name, labels in pairs):
        raise Failed(f"{name_of(data)}: {what_for}")


def _opened(
    path: str,
    method: str | None,
    params: dict[str, Any],
    seed: int,
    bits: int | None,
    encoder: str | None,
    keep_text: bool | None,
) -> Tagger:
    """Return the tagger to go on with, or a new one."""
    from tagstream.learners import registry
    from tagstream.tagger import Tagger

    if not Path(path).exists():
        keep = True if keep_text is None else keep_text
        tagger = Tagger(new_model(method or "oml", params, seed), keep_text=keep)
        tagger.extra = {"reading": {}, "sources": {}}
        return tagger
    tagger = open_tagger(path, encoder)
    learner = tagger.learner
    if method is not None and registry.learner(method) is not type(learner):
        raise typer.BadParameter(
            f"the learner of {path} must stay {type(learner).__name__}, got --method {method}"
        )
    has = {
        **learner.get_params(deep=False),
        "--hash-bits": getattr(tagger.featurizer, "n_features", None),
        "--keep-text": tagger.keep_text,
    }
    asked = {**params, "--keep-text": keep_text, "--hash-bits": None if bits is None else 2**bits}
    for name, value in asked.items():
        if (value is not None or name in params) and (name not in has or has[name] != value):
            stays = f"{name} of {path} must stay {has.get(name)!r}, got {value!r}"
            raise typer.BadParameter(f"{stays}; it is for a new model")
    return tagger


@reads
def learn(
    data: ManyDataArgument,
    model: ModelOption,
    reading: Reading,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Take DATA over as it is now: known ids are corrected, equal ones skipped, "
            "new ones learnt, missing ones reported.",
        ),
    ] = False,
    forget_missing: Annotated[
        bool,
        typer.Option(
            "--forget-missing",
            help="With --update: forget the items of the model that DATA does not have, wherever "
            "they were learnt from. This cannot be undone.",
        ),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Learn DATA from its start, though it was learnt.")
    ] = False,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="|".join(METHODS),
            help="The learner of a new model.  [default: oml]",
            autocompletion=complete([*METHODS]),
        ),
    ] = None,
    param: ParamOption = None,
    encoder: EncoderOption = None,
    hash_bits: BitsOption = None,
    keep_text: Annotated[
        bool | None,
        typer.Option(
            "--keep-text/--no-keep-text",
            help="Keep the texts of a new model's items for explanations, up to 268 million "
            "characters.  [default: keep]",
            show_default=False,
        ),
    ] = None,
    skip_unlabelled: Annotated[
        bool,
        typer.Option("--skip-unlabelled", help="It is meant so that most records have no labels."),
    ] = False,
    many_tags: Annotated[
        bool,
        typer.Option("--many-tags", help="It is meant so that most tags occur only once."),
    ] = False,
    refit: Annotated[
        bool | None,
        typer.Option(
            "--refit/--no-refit",
            help="Fit the model to all its items in the end, or do not.  [default: after a file of "
            "which something was learnt, if more than a 64th of the items came since the last fit]",
            show_default=False,
        ),
    ] = None,
    every: Annotated[int, typer.Option("--every", min=1, help="Records between two saves.")] = 1000,
    chunk: ChunkOption = 256,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    ray: RayOption = None,
    shards: ShardsOption = 2,
) -> None:
    """Learn from DATA; make the model file, or go on with it.

    The model is saved as it learns. When a run is stopped or killed, the same command goes on
    after the last record saved: no record of a file is learnt twice, and the model in the end is
    the one of an undisturbed run. What was added to a file later is learnt by the same command too.
    Records without labels are passed over.

    A record whose id is known is a correction: it replaces the item of that id. So an edited file
    can be learnt again if its records have ids; --update also tells which items it has no more.
    The log of a service (tagstream log export) can be learnt too, with the changes in it.

    After a file, the model is fitted to all its items if many came since the last fit. Then its
    answers do not depend on the order of the file. Standard input may go on for ever: say --refit
    if it ends, or give tagstream refit afterwards. Of several files, the fit comes after the last.

    \b
    Examples:
      tagstream learn posts.jsonl --model m.tgs
      tagstream learn 2023.xlsx 2024.xlsx --text body --labels tag -m m.tgs
      tagstream learn letters/ -m m.tgs             files in folders: letters/complaint/17.txt
      cat more.jsonl | tagstream learn - --model m.tgs
      tagstream learn posts.csv --text body --labels tags --sep "|" --ids key -m m.tgs
      tagstream learn posts.csv --text body --labels tag -m m.tgs      one tag per record
      tagstream learn posts.jsonl --text body --labels tags -m m.tgs
      tagstream learn posts.jsonl --update -m m.tgs
      tagstream learn songs.csv --labels -6 --method knn -p n_neighbors=5 -m songs.tgs

    \b
    A record of posts.jsonl is one line:
      {"id": 7, "text": "Where to swim in May?", "y": ["travel", "sea"]}
    "x" in the place of "text" may hold a list of numbers or an object of named values.
    """
    from tagstream.checks import DataError

    if forget_missing and not update:
        raise typer.BadParameter("--forget-missing must come with --update")
    params = params_of(param)
    with locked(model), contextlib.ExitStack() as ends:
        tagger = _opened(model, method, params, seed, hash_bits, encoder, keep_text)
        if ray is not None:
            tagger.learner, store = on_shards(tagger.learner, ray, shards)
            ends.callback(store.close)
        if refit and not hasattr(tagger.learner, "refit"):
            name = type(tagger.learner).__name__
            raise Failed(f"{model}: --refit must not be given: {name} has nothing to fit anew")
        if update and not keeps_items(tagger.learner):
            raise Failed(f"{model}: {type(tagger.learner).__name__} keeps no items to be updated")
        for name in data:
            download(name, quiet)
        reading = reading.of_model(tagger)
        show_compiling(quiet)
        refits = False if refit is None and any(map(is_stream, data)) else refit
        keeper = Keeper(tagger, model, every, refits=refits)
        run = _Run(
            keeper, chunk=chunk, unlabelled=skip_unlabelled, many_tags=many_tags, quiet=quiet
        )
        stopped, wrong, advice = False, None, ""
        try:
            for name in data:
                known = None if again or update or is_stream(name) else _Source.key(name)
                before = tagger.extra["sources"].get(known)
                how = _with_width(reading, name, tagger)
                _learn(run, name, how, before, update, (hash_bits, encoder))
                run.check_labels(name)
            if update:
                _compare(run, data, model, forget_missing)
            run.end()
            advice = "" if quiet else _advice(tagger)
        except Stopped:
            stopped = True
        except DataError as error:
            wrong = error
        finally:
            with contextlib.suppress(Stopped), STOP.held():
                run.keeper.save()
    if wrong is not None:
        raise Failed(f"{wrong}{_how_to_go_on(run, model)}") from wrong
    _tell(run, data, model, stopped=stopped, again=again)
    if advice:
        say(advice)
    if stopped:
        raise typer.Exit(STOP.exit_code)


def _advice(tagger: Tagger) -> str:
    """Return, once for each model, what may make it better; for a person at a terminal."""
    from tagstream.features import Text

    if not sys.stderr.isatty():
        return ""
    few = 0 < tagger.n_items <= FEW_ITEMS
    if not few or not isinstance(tagger.featurizer, Text) or tagger.extra.get(ADVISED):
        return ""
    tagger.extra[ADVISED] = True
    return (
        "with so few texts a sentence encoder is likely worth it: install tagstream[meaning], and "
        "learn into a new model with --encoder use"
    )


def _how_to_go_on(run: _Run, model: str) -> str:
    """Return what to say beside an error: what was learnt before it, and what to do next."""
    source = run.source
    if source is None or not run.keeper.has_saved or not source.n_read:
        return ""
    learnt = f"{count(source.n_read, 'record')} before it are learnt and saved in {model}"
    if is_stream(source.data):
        return f"; {learnt}: mend it, and send it and what comes after it"
    return f"; {learnt}: mend it, and the same command goes on from there"


def _with_width(reading: Reading, data: str, tagger: Tagger) -> Reading:
    """Return how to read, with the number of features that LIBSVM files do not always tell."""
    if is_data_set(data) or reading.kind(data) != "libsvm" or reading.n_features is not None:
        return reading
    n_features = getattr(tagger.featurizer, "n_features", None)
    if n_features is None and not is_stream(data):
        n_features = reading.width(data)
    return reading.after(reading.saved, n_features=n_features)


def _learn(
    run: _Run,
    data: str,
    reading: Reading,
    before: dict[str, Any] | None,
    update: bool,
    features: tuple[int | None, str | None],
) -> None:
    """Learn DATA from where the model has read it; an edited file from its start, by ids."""

    def makes(batch: Batch) -> Any:
        return featurizer_of(batch, *features)

    if update:
        run.ids = set()
        source = _Source(data, reading, None, run.quiet)
        run.go(source, makes, by_id="each record must have an id to be updated, got one without")
        return
    try:
        run.go(_Source(data, reading, before, run.quiet), makes)
    except _Edited:
        advice = "say --again to learn it from its start beside the old"
        if not keeps_items(run.keeper.tagger.learner):
            raise Failed(f"{data}: has changed since it was learnt; {advice}") from None
        say(f"{data} has changed since; records whose id is known are corrections", run.quiet)
        rule = "has changed since it was learnt, and only records with ids can be told apart"
        source = _Source(data, reading, None, run.quiet)
        run.go(source, makes, by_id=f"{rule}; {advice}")


def _compare(run: _Run, data: list[str], model: str, forget: bool) -> None:
    """Report the items of the model that DATA does not have, and forget them if asked."""
    assert run.ids is not None
    missing = [name for name in run.keeper.tagger.ids if name not in run.ids]
    if not missing:
        return
    named = ", ".join(map(str, missing[:MOST_NAMED])) + (", …" if len(missing) > MOST_NAMED else "")
    what = f"{count(len(missing), 'item')} of {model} not in {_all(data)}: {named}"
    if forget:
        with STOP.held():
            run.keeper.forget(missing)
        say(f"{what}; forgotten", run.quiet)
    else:
        say(f"{what}; --forget-missing forgets them", run.quiet)


def _all(data: list[str]) -> str:
    return ", ".join(map(name_of, data))


def _tell(run: _Run, data: list[str], model: str, *, stopped: bool, again: bool) -> None:
    tagger, done = run.keeper.tagger, run.keeper.done
    if tagger.n_items:
        told = f"{count(done.new, 'record')} learnt"
        told += f", {done.corrected:,} corrected" * bool(done.corrected)
        told += f", {done.unchanged:,} unchanged" * bool(done.unchanged)
        told += f" ({done.skipped:,} without labels passed over)" * bool(done.skipped)
        knows = f"{model} has seen {tagger.n_items:,} and knows {count(len(tagger.tags), 'tag')}"
        say(f"{told}; {knows}", run.quiet)
        if run.is_fitted and not done.new and not done.corrected:
            say(f"{model} is fitted to {count(len(tagger.ids), 'item')}", run.quiet)
    elif not stopped and run.n_new == 0:
        raise Failed(f"{_all(data)}: must hold at least one record, got none")
    elif not stopped:
        raise Failed(
            f"{_all(data)}: must hold at least one record with labels, got none; "
            "say where they are with --labels"
        )
    if stopped:
        how = "the same command without --again" if again else "the same command"
        then = (
            "what was learnt is kept" if any(map(is_stream, data)) else f"{how} goes on from here"
        )
        say(f"stopped; {then}", run.quiet)
