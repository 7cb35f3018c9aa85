"""Tagger: records in, tags out.  What library, command line and service share.

A record is a mapping ``{"id": …, "text": … or "x": …, "y": [tags]}``.  A featurizer
(:mod:`tagstream.text`) makes rows of records, a learner (:mod:`tagstream.models`) learns and
suggests; the tagger knows the names of items and tags, keeps the texts of items for explanations,
and saves everything in one file.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream import persist
from tagstream.checks import (
    DataError,
    Rows,
    check_choice,
    check_number,
    check_rows,
    expect,
    expect_keys,
)
from tagstream.data.dataset import Batch
from tagstream.data.records import CHANGES, as_batch
from tagstream.text import (
    FEATURIZERS,
    Columns,
    Encoder,
    Featurizer,
    Hashing,
    Named,
    Text,
    featurizer_for,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from tagstream.base import StreamClassifier
    from tagstream.models import Explanation

__all__ = ["Learnt", "Suggestion", "Tagger", "TaggerView"]

CHUNK = 256  # records that are learnt at a time, if they come one after another
HASHED = (Text, Named, Hashing)  # featurizers of which two features may share a column
LARGEST_TEXTS = 1 << 28  # characters of kept texts; beyond, the newest are not kept

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Suggestion:
    """What is suggested for one record.

    Attributes
    ----------
    tags : list
        The suggested tags, highest score first.
    scores : dict
        Tag to score, highest first, for all tags that have one above zero.
    known : bool
        Whether anything in the record was met before, more than chance explains where features
        are hashed.  If not, nothing is suggested and scores are how frequent each tag is.
    """

    tags: list[Any]
    scores: dict[Any, float]
    known: bool = True


class Learnt(NamedTuple):
    """What became of records: new items, corrected ones, unchanged ones, those without tags."""

    new: int = 0
    corrected: int = 0
    unchanged: int = 0
    skipped: int = 0

    def __add__(self, other: Any) -> Learnt:
        return Learnt(*(a + b for a, b in zip(self, other, strict=True)))


class _Reader:
    """The reading half of a tagger, over a learner or a view of one."""

    featurizer: Featurizer | None
    _model: Any  # a learner or a view; None before anything was learnt
    _texts: dict[Hashable, str]
    _seen: npt.NDArray[np.bool_]  # of sparse rows, the columns that were met

    @property
    def tags(self) -> list[Any]:
        """All tags, in the order in which they were met."""
        return [] if self._model is None else self._model.classes_.tolist()

    @property
    def counts(self) -> dict[Any, int]:
        """Tag to the number of stored items that have it; empty if the learner stores none."""
        counts = getattr(self._model, "label_counts_", None)
        return {} if counts is None else dict(zip(self.tags, counts.tolist(), strict=True))

    @property
    def n_items(self) -> int:
        """How many items were learnt, forgotten ones included."""
        return 0 if self._model is None else int(self._model.n_seen_)

    @property
    def loss_and_bound(self) -> tuple[float, float] | None:
        """Σ l² of the metric's rounds, and what it can be at most; None where there is no bound."""
        try:
            return float(self._model.squared_loss_), float(self._model.bound_)
        except AttributeError:
            return None

    def suggest(
        self,
        records: Record | Iterable[Record] | Batch,
        top: int | None = None,
        decide: str | float | None = None,
    ) -> Any:
        """Suggest tags.

        Parameters
        ----------
        records : mapping, iterable of mappings, or Batch
            One or many; their tags, if they have some, are not looked at.
        top : int, optional
            Keep only this many scores, the highest.
        decide : optional
            From scores to tags, as the learner's parameter of that name.

        Returns
        -------
        Suggestion, or list of Suggestion
            One for one record, a list for many.
        """
        check_number("top", top, kind=int, least=1, none=True)
        if isinstance(records, Mapping):
            (one,) = self.suggest([records], top, decide)
            return one
        batch = records if isinstance(records, Batch) else as_batch(_without_tags(records))
        if not len(batch):
            return []
        if self._model is None:
            return [Suggestion([], {}, known=False) for _ in range(len(batch))]
        rows = self._rows(batch)
        known = self._knows(rows)
        scores = self._model.scores_of(rows)
        chosen = self._model.labels_of(scores, decide)
        if chosen.ndim == 1:  # exactly one tag each, by its name
            chosen = chosen[:, None] == self._model.classes_
        if not known.all():
            scores[~known], chosen[~known] = self._priors(), 0
        names = self._names()
        return [
            _suggestion(names, *one, top=top)
            for one in zip(scores, chosen.astype(bool), known.tolist(), strict=True)
        ]

    def explain(self, record: Record | Batch) -> Explanation:
        """Tell why a record gets its tags: the nearest items with their texts, and what spoke.

        The record may come as a batch of one.  If nothing in it was met before, its scores are how
        frequent each tag is, as in :meth:`suggest`.
        """
        if not hasattr(self._model, "explain"):
            if self._model is None:
                raise ValueError("the tagger must have learnt something before it can explain")
            raise ValueError("the learner must keep items to explain with; use OML or KNN")
        one = record if isinstance(record, Batch) else as_batch(_without_tags([record]))
        rows = self._rows(one)
        (why,) = self._model.explain(rows)
        if not self._knows(rows)[0]:  # what is near it is so by chance
            nothing = np.zeros(len(self.tags), np.bool_)
            prior = _suggestion(self._names(), self._priors(), nothing, known=False, top=None)
            why = replace(
                why, scores=prior.scores, voters={}, parts={}, copy_of=None, corrected=False
            )
        near = tuple(replace(n, text=self._texts.get(n.id)) for n in why.neighbors)
        copied = why.copy_of
        if copied is not None:
            copied = replace(copied, text=self._texts.get(copied.id))
        told: Explanation = replace(why, neighbors=near, copy_of=copied)
        return told

    def _names(self) -> npt.NDArray[Any]:
        return np.array([*self.tags, None], object)[:-1]

    def _rows(self, batch: Batch) -> Rows:
        assert self.featurizer is not None
        rows = self.featurizer.rows(batch.items)
        # Hashed texts are valid as they are made; to check them takes longer than to make them.
        return rows if isinstance(self.featurizer, Text) else check_rows(rows)

    def _knows(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Tell for each row whether it has a feature that was met before.

        Of hashed features a share f fall into a column that was met though they were not.  A row
        of m features must have met more of them than mf, by two standard deviations; or all.
        """
        if not sp.issparse(rows):
            return np.ones(rows.shape[0], np.bool_)
        met = np.zeros(len(rows.indices) + 1, np.int64)
        np.cumsum(self._seen[rows.indices], out=met[1:])
        n_met, m = np.diff(met[rows.indptr]), np.diff(rows.indptr)
        by_chance = np.zeros(len(m))
        if isinstance(self.featurizer, HASHED) and len(self._seen):
            f = np.count_nonzero(self._seen) / len(self._seen)
            by_chance = m * f + 2 * np.sqrt(m * f * (1 - f))
        known: npt.NDArray[np.bool_] = (n_met > by_chance) | ((n_met == m) & (m > 0))
        return known

    def _priors(self) -> npt.NDArray[np.float64]:
        counts = getattr(self._model, "label_counts_", None)
        if counts is None:
            return np.zeros(len(self.tags))
        stored = getattr(self._model, "n_stored_", self.n_items)
        return np.asarray(counts / max(stored, 1))


class TaggerView(_Reader):
    """An immutable picture of a tagger: ``suggest``, ``explain``, ``tags``, ``counts``."""

    def __init__(self, tagger: Tagger) -> None:
        self.featurizer = tagger.featurizer
        self._model = None if tagger._model is None else tagger._model.view()
        self._texts = tagger._texts
        self._seen = tagger._seen.copy()


class Tagger(_Reader):
    """Learns tags of records, suggests them, and takes corrections.

    Parameters
    ----------
    learner : optional
        A learner that has learnt nothing; by default ``OML(random_state=0)``.
    featurizer : optional
        Makes rows of records (:mod:`tagstream.text`); by default what suits the first records:
        texts, named values, or numbers.
    keep_text : bool
        Keep the texts of items for explanations, up to 2²⁸ characters in all.

    Examples
    --------
    >>> tagger = Tagger()
    >>> tagger.learn([
    ...     {"id": 1, "text": "How do I sort a list in place?", "y": ["python", "sorting"]},
    ...     {"id": 2, "text": "Where to swim in May?", "y": ["travel"]},
    ... ]).new
    2
    >>> tagger.suggest({"text": "Where to swim in May?"}).tags
    ['travel']
    >>> tagger.relabel(2, ["travel", "sea"])
    >>> tagger.suggest({"text": "Where to swim in May?"}).tags
    ['travel', 'sea']
    """

    def __init__(
        self,
        learner: StreamClassifier | None = None,
        featurizer: Featurizer | None = None,
        *,
        keep_text: bool = True,
    ) -> None:
        if learner is None:
            from tagstream.models import OML

            learner = OML(random_state=0)
        self.learner = learner
        self.featurizer = featurizer
        self.keep_text = keep_text
        self.extra: dict[str, Any] = {}  # what else is to be saved: plain values
        self._texts = {}
        self._n_characters = 0
        self._seen = np.zeros(0, np.bool_)
        self._shared = False  # whether a view looks at the texts

    @property
    def ids(self) -> list[Hashable]:
        """The ids of the stored items, oldest first; empty if the learner stores none."""
        return [] if self._model is None else [*getattr(self.learner, "ids_", ())]

    @property
    def _model(self) -> Any:
        return self.learner if hasattr(self.learner, "n_seen_") else None

    def view(self) -> TaggerView:
        """Return an immutable picture, safe to read beside a thread that learns."""
        self._shared = True
        return TaggerView(self)

    # ------------------------------------------------------------------ learning
    def learn(self, records: Record | Iterable[Record] | Batch) -> Learnt:
        """Learn records that have tags; one whose id is known is a correction.

        If the record of a known id is the same as before, its tags are replaced; otherwise the old
        item is forgotten and the new one learnt.  An item without an id goes by its number in the
        stream, and a record with that number for an id corrects it.  A list is checked as a whole
        before anything changes; an iterator is learnt as it comes.

        A log of a service may hold changes between the records, such as
        ``{"event": "rename", "old": "sea", "new": "ocean"}``: each is made in its place, and what
        stands before one that cannot be made is learnt.

        Parameters
        ----------
        records : mapping, iterable of mappings, or Batch
            Records without ``y`` (or with null) are passed over.

        Returns
        -------
        Learnt
            Counts of new, corrected, unchanged and skipped records.
        """
        if isinstance(records, Mapping):
            records = [records]
        if isinstance(records, Batch):
            return self._learn_batch(records)
        if isinstance(records, Sequence):
            return self._learn_batch(as_batch(records, True)) if len(records) else Learnt()
        total = Learnt()
        for chunk in _chunks(records):
            total += self._learn_batch(as_batch(chunk, True))
        return total

    def change(self, event: str, **what: Any) -> None:
        """Make a change that a log tells of: forget, rename, merge or remove.

        Examples
        --------
        >>> tagger = Tagger()
        >>> tagger.learn({"text": "low tide", "y": ["sea"]}).new
        1
        >>> tagger.change("rename", old="sea", new="ocean")
        >>> tagger.tags
        ['ocean']
        """
        check_choice("event", event, [*CHANGES])
        getattr(self, event)(**what)

    def _learn_batch(self, batch: Batch) -> Learnt:
        if batch.changes is not None:
            return self._learn_log(batch)
        if batch.unknown is not None and batch.label_names is None:
            raise ValueError("label_names must be given where labels are not known")
        some = [i for i, labels in enumerate(batch.label_sets) if labels is not None]
        skipped = len(batch) - len(some)
        if not some:
            return Learnt(skipped=skipped)
        before = self.featurizer
        if before is None:
            self.featurizer = featurizer_for(batch.items)
        try:
            rows = self._rows(batch)
        except ValueError:
            self.featurizer = before
            raise
        names = None if batch.ids is None else [batch.ids[i] for i in some]
        done = Learnt(skipped=skipped)
        start = 0
        while start < len(some):
            stop = start
            if names is None or not hasattr(self.learner, "has_item"):
                stop = len(some)
            met: set[Hashable] = set()
            while stop < len(some) and not self._is_known(names, stop, met):
                name = None if names is None else names[stop]
                met.add(self.n_items + stop - start if name is None else name)
                stop += 1
            if stop > start:
                chosen = some[start:stop]
                part = rows if len(chosen) == len(batch) else rows[chosen]
                self._learn_new(batch, chosen, part)
                done += Learnt(new=stop - start)
            if stop < len(some) and self._is_known(names, stop, set()):  # not lost by the window
                done += self._replace(batch, some[stop], rows[some[stop] : some[stop] + 1])
                stop += 1
            start = stop
        return done

    def _learn_log(self, batch: Batch) -> Learnt:
        assert batch.changes is not None
        done, start = Learnt(), 0
        for i, change in [*batch.changes.items(), (len(batch), None)]:
            if i > start:
                done += self._learn_batch(batch.cut(start, i))
            if change is not None:
                self.change(**change)
            start = i + 1
        return done

    def _is_known(self, names: list[Any] | None, i: int, met: set[Hashable]) -> bool:
        name = None if names is None else names[i]
        return name is not None and (name in met or self.learner.has_item(name))

    def _learn_new(self, batch: Batch, some: list[int], rows: Rows) -> None:
        first = self.n_items
        names = [None if batch.ids is None else batch.ids[i] for i in some]
        ids = [first + k if name is None else name for k, name in enumerate(names)]
        Y, classes = _labels(batch, some)
        self.learner.learn_rows(rows, Y, classes, None if batch.ids is None else ids)
        if sp.issparse(rows):
            if len(self._seen) != rows.shape[1]:
                self._seen = np.zeros(rows.shape[1], np.bool_)
            self._seen[rows.indices] = True
        self._keep_texts(batch, some, ids)

    def _keep_texts(self, batch: Batch, some: list[int], ids: list[Any]) -> None:
        if not self.keep_text or not isinstance(batch.items, list):
            return
        for i, name in zip(some, ids, strict=True):
            text = batch.items[i]
            if name in self._texts:  # of an item that the window has lost
                self._drop_text(name)
            if isinstance(text, str) and self._n_characters + len(text) <= LARGEST_TEXTS:
                self._texts[name] = text
                self._n_characters += len(text)
        window = getattr(self.learner, "window", None)
        if window is not None and len(self._texts) > 2 * window + CHUNK:
            kept = {n: t for n, t in self._texts.items() if self.learner.has_item(n)}
            self._texts, self._shared = kept, False
            self._n_characters = sum(map(len, kept.values()))

    def _drop_text(self, name: Hashable) -> None:
        if self._shared:  # a view may still show it
            self._texts, self._shared = dict(self._texts), False
        self._n_characters -= len(self._texts.pop(name))

    def _replace(self, batch: Batch, i: int, row: Rows) -> Learnt:
        """Take a record whose id is known as a correction."""
        assert batch.ids is not None
        name = batch.ids[i]
        item = self.learner.item(name)
        if (item.row != row.astype(np.float32)).sum() == 0:
            unknown = set() if batch.unknown is None else set(batch.unknown[i])
            if item.labels == set(batch.label_sets[i] or ()) and item.unknown == unknown:
                return Learnt(unchanged=1)
            Y, classes = _labels(batch, [i])
            self.learner.relabel(name, Y[0], classes=classes)
            return Learnt(corrected=1)
        self.forget(name)
        self._learn_new(batch, [i], row)
        return Learnt(corrected=1)

    def relabel(self, id: Hashable, tags: Iterable[str]) -> None:
        """Give a stored item other tags: a correction, which holds at once.

        To undo it, give it its old tags back.
        """
        self._needs("relabel")
        self.learner.relabel(id, set(_checked_tags(tags)))

    def forget(self, id: Hashable) -> None:
        """Take a stored item out, as if it had never been learnt; learning brings it back."""
        self._needs("forget")
        self.learner.forget(id)
        if id in self._texts:
            self._drop_text(id)

    def rename(self, old: str, new: str) -> None:
        """Call a tag by another name; to undo it, rename it back."""
        self._started().rename_label(old, _checked_tags([new])[0])

    def merge(self, tags: Sequence[str], into: str) -> None:
        """Make several tags one: an item has it if it had any of them.  It cannot be undone."""
        self._needs("merge_labels")
        self.learner.merge_labels(_checked_tags(tags), _checked_tags([into])[0])

    def remove(self, tag: str) -> None:
        """Take a tag away from all items, which stay.  It cannot be undone."""
        self._needs("remove_label")
        self.learner.remove_label(tag)

    def refit(self) -> None:
        """Fit what the learner fits now and then, now."""
        self._needs("refit")
        self.learner.refit()

    def _started(self) -> Any:
        if self._model is None:
            raise ValueError("the tagger must have learnt something first")
        return self.learner

    def _needs(self, method: str) -> None:
        if not hasattr(self._started(), method):
            raise ValueError(
                f"{type(self.learner).__name__} keeps no items that could be changed; "
                "use OML or KNN"
            )

    # ------------------------------------------------------------------ files
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tagger to one file, whole or not at all."""
        self._started()
        assert self.featurizer is not None
        saved = {
            "featurizer": {"name": self.featurizer.name, "state": self.featurizer.to_state()},
            "keep_text": self.keep_text,
            "text_ids": list(self._texts),
            "texts": list(self._texts.values()),
            "n_columns": len(self._seen),
            "seen": np.packbits(self._seen),
        }
        persist.save(self.learner, path, extra={**self.extra, "tagger": saved})

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, encoder: Any = None) -> Self:
        """Return the tagger that was saved at ``path``; it goes on as that one would.

        Parameters
        ----------
        path : path
        encoder : str or callable, optional
            In place of the encoder that the file names; needed if that was a function.
        """
        learner, extra = persist.load_with_extra(path)
        try:
            return cls._of(learner, extra, encoder)
        except Exception as error:  # what was saved beside the learner may be anything
            if isinstance(error, DataError):
                raise
            what = " ".join(str(error).split())[:300]
            if not isinstance(error, ValueError):
                what = f"its content does not make sense ({type(error).__name__}: {what})"
            raise DataError(f"{os.fspath(path)}: {what}") from error

    @classmethod
    def _of(cls, learner: StreamClassifier, extra: dict[str, Any], encoder: Any) -> Self:
        saved = extra.pop("tagger", None)
        if saved is None:
            tagger = cls(learner, _featurizer_of_format_1(learner, extra), keep_text=False)
            tagger._seen = np.ones(learner.n_features_in_ if learner._sparse else 0, np.bool_)
            tagger.extra = extra
            return tagger
        keys = ("featurizer", "keep_text", "text_ids", "texts", "n_columns", "seen")
        expect_keys("the tagger", saved, *keys)
        expect_keys("the featurizer", saved["featurizer"], "name", "state")
        kind = FEATURIZERS.get(saved["featurizer"]["name"])
        if kind is None or type(saved["keep_text"]) is not bool:
            raise ValueError(f"the featurizer must be one of {', '.join(FEATURIZERS)}")
        if encoder is not None and kind is not Encoder:
            raise ValueError(f"the features of this model need no encoder, got {encoder!r}")
        state = saved["featurizer"]["state"]
        makes = kind.from_state(state) if encoder is None else Encoder.from_state(state, encoder)
        width = getattr(makes, "n_features", learner.n_features_in_)
        if width != learner.n_features_in_:
            raise ValueError(
                f"the featurizer must make {learner.n_features_in_} features, got {width}"
            )
        tagger = cls(learner, makes, keep_text=saved["keep_text"])
        texts, ids, n = saved["texts"], saved["text_ids"], saved["n_columns"]
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError("texts must be a list of strings")
        if not isinstance(ids, list) or len(ids) != len(texts):
            raise ValueError(f"there must be {len(texts)} names of texts")
        if n not in (0, learner.n_features_in_):
            raise ValueError(f"n_columns must be 0 or {learner.n_features_in_}, got {n!r}")
        bits = expect("seen", saved["seen"], np.uint8, (-(-n // 8),))
        tagger._seen = np.unpackbits(bits, count=n).view(np.bool_)
        tagger._texts = dict(zip(ids, texts, strict=True))
        tagger._n_characters = sum(map(len, texts))
        tagger.extra = extra
        return tagger


def _chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    iterator = iter(records)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def _without_tags(records: Iterable[Record]) -> Iterator[Record]:
    for record in records:
        if not isinstance(record, Mapping):
            raise DataError(f"a record must be a mapping, got {type(record).__name__}")
        yield {key: record[key] for key in ("id", "text", "x") if key in record}


def _checked_tags(tags: Iterable[str]) -> list[str]:
    if isinstance(tags, str):
        raise ValueError(f"tags must be a list of strings, got the string {tags!r}")
    checked = []
    for tag in tags:
        if not isinstance(tag, str) or not tag.strip():
            raise ValueError(f"a tag must be a string that is not empty, got {tag!r}")
        checked.append(tag.strip())
    return checked


def _labels(batch: Batch, some: list[int]) -> tuple[Any, Sequence[str] | None]:
    """Return the labels of some records as a learner takes them, and the names of columns."""
    names = batch.label_names
    if names is None:
        return [batch.label_sets[i] or () for i in some], None
    column = {name: j for j, name in enumerate(names)}
    Y = np.zeros((len(some), len(names)), np.uint8 if batch.unknown is None else np.float64)
    for row, i in enumerate(some):
        Y[row, [column[tag] for tag in batch.label_sets[i] or ()]] = 1
        if batch.unknown is not None:
            Y[row, [column[tag] for tag in batch.unknown[i]]] = np.nan
    return Y, names


def _suggestion(
    names: npt.NDArray[Any], scores: Any, chosen: Any, known: bool, *, top: int | None
) -> Suggestion:
    order = np.argsort(-scores, kind="stable")
    values = [round(value, 6) for value in scores[order].tolist()]
    order = order[: sum(value > 0 for value in values)][:top]  # as shown, so never a zero
    tags = names[order[chosen[order]]].tolist()
    return Suggestion(tags, dict(zip(names[order].tolist(), values, strict=False)), known)


def _featurizer_of_format_1(learner: StreamClassifier, extra: dict[str, Any]) -> Featurizer:
    """Return how records became rows when the featurizer was not saved with the model."""
    hashing = extra.get("hashing") or {}
    if hashing.get("n_features") == learner.n_features_in_ and learner._sparse:
        return Hashing(**hashing)
    names = extra.get("features")
    return Columns(learner.n_features_in_, None if names is None else tuple(names))
