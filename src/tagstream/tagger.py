"""Tagger: records in, tags out.  What library, command line and service share.

A record is a mapping ``{"id": …, "text": … or "x": …, "y": [tags]}``.  A featurizer
(:mod:`tagstream.text`) makes rows of records, a learner (:mod:`tagstream.models`) learns and
suggests; the tagger knows the names of items and tags, keeps the texts of items for explanations,
and saves everything in one file.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tagstream.checks import (
    DataError,
    Rows,
    check_choice,
    check_number,
    check_rows,
    expect,
    expect_keys,
)
from tagstream.decision import TagScores, highest_first
from tagstream.engine.asked import Asked, same_rows
from tagstream.execution.signals import HELD
from tagstream.features import (
    FEATURIZERS,
    Columns,
    Encoder,
    Featurizer,
    Hashing,
    Named,
    Text,
    featurizer_for,
)
from tagstream.files import persist
from tagstream.knows.policy import PROMISE, Policy
from tagstream.learners.keeping import keeps_items
from tagstream.notebook import scores_html, summary_html
from tagstream.records.dataset import Batch
from tagstream.records.inputs import to_ask, to_learn
from tagstream.records.record import CHANGES, as_batch

if TYPE_CHECKING:
    from typing_extensions import Self

    from tagstream.knows.candidates import Candidate
    from tagstream.knows.duplicates import Duplicates
    from tagstream.knows.health import TagHealth
    from tagstream.knows.kept import Kept
    from tagstream.knows.review import Doubt
    from tagstream.knows.twins import TagPair
    from tagstream.knows.unfamiliar import Unfamiliar
    from tagstream.learners.estimator import StreamClassifier
    from tagstream.learners.neighbors import Explanation

__all__ = ["AskedRecords", "Learnt", "Stored", "Suggestion", "Tagger", "TaggerView", "warm_up"]

CHUNK = 1000  # records that are learnt at a time, if they come one after another
SPARE = 256  # texts beyond twice the window before those of lost items are looked for
HASHED = (Text, Named, Hashing)  # featurizers of which two features may share a column
LONGEST_ABOUT = 10_000  # characters of a tag's description
_JOINERS = re.compile(r"[_\-/:|]+")  # that stand for a space in the name of a tag
LARGEST_TEXTS = 1 << 28  # characters of kept texts; beyond, the newest are not kept

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Suggestion:
    """What is suggested for one record.

    Attributes
    ----------
    tags : list
        The suggested tags, highest score first.
    scores : mapping
        Tag to score, highest first, for all tags that have one above zero.  They are sorted when
        they are first gone through; ``dict(scores)`` makes a dictionary of them.
    known : bool
        Whether anything in the record was met before, more than chance explains where features
        are hashed.  If not, nothing is suggested and scores are how frequent each tag is.
    auto : list
        Those of the suggested tags that may be applied without asking: the tag is set to do so, and
        the precision that was promised for it is kept at this score (:meth:`Tagger.promise`).
    """

    tags: list[Any]
    scores: Mapping[Any, float]
    known: bool = True
    auto: list[Any] = field(default_factory=list)

    def _repr_html_(self) -> str:
        return scores_html(self.tags, self.scores, self.known)


class Stored(NamedTuple):
    """A stored item: its id, its tags, and its text if that is kept."""

    id: Hashable
    tags: list[Any]
    text: str | None


class Learnt(NamedTuple):
    """What became of records: new items, corrected ones, unchanged ones, those without tags."""

    new: int = 0
    corrected: int = 0
    unchanged: int = 0
    skipped: int = 0

    def __add__(self, other: Any) -> Learnt:
        return Learnt(*(a + b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True, eq=False)
class AskedRecords:
    """Some records that a tagger was asked about, with what it found out about them.

    :meth:`Tagger.suggest` and :meth:`Tagger.explain` take it in the place of the records, and
    :meth:`Tagger.learn` beside them.  It is used only as long as nothing was learnt or changed.
    After that all is computed anew, so no result depends on it.

    Attributes
    ----------
    batch : Batch
        The records.
    next : bool
        Whether they were asked about as the next items of the stream, or as any.
    """

    batch: Batch
    next: bool
    rows: Rows = field(default=None, repr=False)
    known: npt.NDArray[np.bool_] | None = field(default=None, repr=False)
    asked: Asked | None = field(default=None, repr=False)  # None before anything was learnt
    featurizer: Featurizer | None = field(default=None, repr=False)  # that made the rows

    def __len__(self) -> int:
        """Return how many records there are."""
        return len(self.batch)

    def rows_of(self, batch: Batch, featurizer: Featurizer | None) -> Rows:
        """Return the rows of a batch, if that has the same items and features; else None."""
        same = featurizer is self.featurizer and batch.feature_names == self.batch.feature_names
        return self.rows if same and _same_items(batch.items, self.batch.items) else None


class _Reader:
    """The reading half of a tagger, over a learner or a view of one."""

    featurizer: Featurizer | None
    _model: Any  # a learner or a view; None before anything was learnt
    _texts: dict[Hashable, str]
    _seen: npt.NDArray[np.bool_]  # of sparse rows, the columns that were met
    _about: dict[str, str]  # tag to what is said about it, if anything is
    _policy: Policy  # refusals, exclusive tags, promises

    @property
    def tags(self) -> list[Any]:
        """All tags, in the order in which they were met."""
        return [] if self._model is None else self._model.classes_.tolist()

    @property
    def descriptions(self) -> dict[str, str]:
        """Tag to its description, for those that have one."""
        return dict(self._about)

    @property
    def counts(self) -> dict[Any, int]:
        """Tag to the number of stored items that have it; empty if the learner stores none."""
        if not keeps_items(self._model):
            return {}
        return dict(zip(self.tags, self._model.label_counts_.tolist(), strict=True))

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

    def ask(self, records: Any, *, next: bool = False) -> AskedRecords:
        """Return all that is found out about some records, as a value.

        Give it to :meth:`suggest`, :meth:`explain` and ``learn``: then nothing is computed twice.

        Parameters
        ----------
        records, next
            As in :meth:`suggest`.

        Examples
        --------
        >>> tagger = Tagger()
        >>> tagger.learn([{"text": "low tide", "y": ["sea"]}, {"text": "rye", "y": ["bread"]}]).new
        2
        >>> asked = tagger.ask("low tide")
        >>> tagger.suggest(asked)[0].tags, tagger.explain(asked).neighbors[0].id
        (['sea'], 0)
        >>> tagger.learn({"text": "low tide", "y": ["sea"]}, asked=asked).new
        1
        """
        one = isinstance(records, (str, Mapping))
        return self._ask(to_ask([records] if one else records), next=next)

    def _ask(self, batch: Batch, *, next: bool) -> AskedRecords:
        if self._model is None or not len(batch):
            return AskedRecords(batch, next)
        rows = self._rows(batch)
        asked = self._model.ask_rows(rows, next=next, ids=batch.ids)
        return AskedRecords(batch, next, rows, self._knows(rows), asked, self.featurizer)

    def _asked(self, given: AskedRecords) -> AskedRecords:
        """Return what was asked; anew, if the tagger has changed since."""
        there = given.asked is not None and self._model is not None
        if there and self._model.is_as_asked(given.asked):
            return given
        return self._ask(given.batch, next=given.next)

    def suggest(
        self,
        records: Any,
        top: int | None = None,
        decide: str | float | None = None,
        *,
        next: bool = False,
    ) -> Any:
        """Suggest tags.

        Parameters
        ----------
        records : str, mapping, iterable of them, data frame, Batch, or AskedRecords
            One or many; a string is the text of an item, a frame has a column ``text`` or numbers
            only.  Tags, if there are some, are not looked at.  If a record has the ``id`` of a
            stored item and the same content, that item speaks before other stored items with this
            content.  An ``id`` alone decides nothing.  What :meth:`ask` returned is answered by its
            own question, as a list.
        top : int, optional
            Keep only this many scores, the highest.
        decide : optional
            From scores to tags, as the learner's parameter of that name.
        next : bool
            Suggest for the next item of the stream, for which the latest tags are evidence too,
            instead of for any item.

        Returns
        -------
        Suggestion, or list of Suggestion
            One for one record, a list for many.
        """
        check_number("top", top, kind=int, least=1, none=True)
        if isinstance(records, (str, Mapping)):
            (one,) = self.suggest([records], top, decide, next=next)
            return one
        if isinstance(records, AskedRecords):
            told = self._asked(records)
        else:
            told = self._ask(to_ask(records), next=next)
        if told.asked is None or told.known is None:
            return [Suggestion([], {}, known=False) for _ in range(len(told))]
        return self._suggestions(told.batch, told.rows, told.known, told.asked, top, decide)

    def _suggestions(
        self,
        batch: Batch,
        rows: Rows,
        known: npt.NDArray[np.bool_],
        asked: Asked,
        top: int | None,
        decide: str | float | None,
    ) -> list[Suggestion]:
        """Return what is suggested for records that were asked about."""
        scores, next = asked.scores, asked.next
        chosen = self._model.labels_of(scores, decide, next=next)
        if chosen.ndim == 1:  # exactly one tag each, by its name
            chosen = chosen[:, None] == self._model.classes_
        if not known.all():
            scores = scores.copy()
            scores[~known], chosen[~known] = self._priors(), 0
        names, chosen = self._names(), chosen.astype(bool)
        if self._policy:
            chosen = self._policy.limit(self.tags, scores, chosen)
            self._drop_refused(chosen, batch.ids, rows)
        auto = self._auto(scores, chosen & known[:, None], next=next)
        return [
            _suggestion(names, *one, top=top)
            for one in zip(scores, chosen, known.tolist(), auto, strict=True)
        ]

    def _auto(
        self, scores: npt.NDArray[np.float64], chosen: npt.NDArray[np.bool_], *, next: bool
    ) -> npt.NDArray[np.bool_]:
        """Return which of the chosen tags (n, q) may be applied without asking."""
        promises = self._policy.promises
        if not promises:
            return np.zeros(chosen.shape, np.bool_)
        bars = self._model.promised(promises, next=next).bars
        may: npt.NDArray[np.bool_] = chosen & (scores >= bars)
        return may

    @property
    def exclusive_groups(self) -> list[tuple[str, ...]]:
        """The groups of exclusive tags."""
        return [*self._policy.exclusive]

    @property
    def promises(self) -> list[Kept]:
        """How the promises are kept: one entry for each tag that is not simply suggested."""
        from tagstream.knows.kept import kept_promises

        return kept_promises(self._model, self._policy.modes)

    def _drop_refused(
        self, chosen: npt.NDArray[np.bool_], ids: tuple[Any, ...] | None, rows: Rows
    ) -> None:
        """Take tags off that were refused for an item, as long as its content is the same."""
        refused = self._policy.refused
        if ids is None or not refused:
            return
        columns = {name: j for j, name in enumerate(self.tags)}
        for i, name in enumerate(ids):
            if name in refused and self._is_stored_as(name, rows[i : i + 1]):
                chosen[i, [columns[tag] for tag in refused[name] if tag in columns]] = False

    def _is_stored_as(self, name: Hashable, row: Rows) -> bool:
        """Whether an item of that name is stored, with the same content."""
        if not self._model.has_item(name):
            return False
        stored = self._model.item(name).row
        return bool((stored != self._model_row(row)).sum() == 0)

    @staticmethod
    def _model_row(row: Rows) -> Rows:
        return row.astype(np.float32)

    def explain(
        self, record: str | Record | Batch | AskedRecords, *, next: bool = False
    ) -> Explanation:
        """Tell why a record gets its tags: the nearest items with their texts, and what spoke.

        The record may come as its text, as a batch of one, or as what :meth:`ask` returned for it;
        ``id`` and ``next`` are as in :meth:`suggest`.  If nothing in it was met before, its scores
        are how frequent each tag is, too.
        """
        if not keeps_items(self._model):
            if self._model is None:
                raise ValueError("the tagger must have learnt something before it can explain")
            raise ValueError("the learner must keep items to explain with; use OML or KNN")
        if isinstance(record, AskedRecords):
            told = self._asked(record)
        else:
            one = record if isinstance(record, Batch) else to_ask([record])
            told = self._ask(one, next=next)
        if len(told) != 1 or told.known is None:
            raise ValueError(f"one record can be explained at a time, got {len(told)}")
        (why,), is_known = self._model.explain(told.asked), bool(told.known[0])
        if not is_known:  # what is near it is so by chance
            nothing = np.zeros(len(self.tags), np.bool_)
            prior = _suggestion(self._names(), self._priors(), nothing, known=False, top=None)
            why = replace(
                why, scores=dict(prior.scores), voters={}, parts={}, copy_of=None, corrected=False
            )
        near = tuple(replace(n, text=self._texts.get(n.id)) for n in why.neighbors)
        copied = why.copy_of
        if copied is not None:
            copied = replace(copied, text=self._texts.get(copied.id))
        words = self._words(told.batch, why, next=told.next) if is_known else {}
        whole: Explanation = replace(why, neighbors=near, copy_of=copied, words=words)
        return whole

    def _words(self, one: Batch, why: Explanation, *, next: bool) -> dict[Any, dict[str, float]]:
        """Return which words spoke for and against the suggested tags, or the likeliest one."""
        from tagstream.knows.words import spoken

        item = one.items[0] if isinstance(one.items, list) else None
        if item is None:
            return {}
        tags = [*why.voters] or [*why.scores][:1]
        names = self.tags

        def ask(records: list[dict[str, Any]]) -> npt.NDArray[np.float64]:
            scores: npt.NDArray[np.float64] = self._model.scores_of(
                self._rows(as_batch(records)), next=next
            )
            return scores

        record = {"text" if isinstance(item, str) else "x": item}
        return spoken(record, tags, [names.index(tag) for tag in tags], ask)

    # ------------------------------------------------------------------ what is known of items
    def _items(self) -> Any:
        """Return a picture of a learner that keeps items."""
        if self._model is None:
            raise ValueError("the tagger must have learnt something first")
        if not keeps_items(self._model):
            raise ValueError("the learner must keep items to be asked about; use OML or KNN")
        return self._model.view() if hasattr(self._model, "view") else self._model

    def stored(self, id: Hashable) -> dict[str, Any] | None:
        """Return text and tags of a stored item as a record has them, if its text is kept."""
        text = self._texts.get(id)
        if text is None or self._model is None or not self._model.has_item(id):
            return None
        item = self._model.item(id)
        y = [tag for tag in self.tags if tag in item.labels]
        no = [*self._policy.refused.get(id, ())]
        return {"text": text, "y": y, **({"no": no} if no else {})}

    def review(self, n: int = 20, *, progress: Any = None) -> list[Doubt]:
        """Return the stored items whose tags look most wrong, the most doubtful first.

        Each item is asked about without itself.  The doubt is the expected F1 of the best tags
        minus that of the tags that it has (:mod:`tagstream.knows.review`).

        Parameters
        ----------
        n : int
            How many at most.
        progress : callable (done, total), optional

        Examples
        --------
        >>> texts = ["low tide", "high tide", "spring tide", "neap tide", "rising tide"]
        >>> tagger = Tagger()
        >>> tagger.learn([{"id": t, "text": t, "y": ["sea"]} for t in texts]
        ...              + [{"id": "rye", "text": "rye bread", "y": ["bread"]},
        ...                 {"id": "x", "text": "ebb tide", "y": ["bread"]}]).new
        7
        >>> (first, *_) = tagger.review()
        >>> first.id, first.remove, first.add
        ('x', ('bread',), ('sea',))
        """
        from tagstream.knows.review import find_doubts

        check_number("n", n, kind=int, least=1)
        policy = self._policy
        return find_doubts(
            self._items(), n, policy.refused, self._texts, progress, policy.exclusive
        )

    def tag_health(self) -> list[TagHealth]:
        """Return how each tag is suggested lately, whether it gets better, and whether it drifts.

        It is read from what was said of each arriving item before it was learnt
        (:mod:`tagstream.knows.health`).
        """
        from tagstream.knows.health import tag_health

        return tag_health(self._items())

    def similar_tags(self, n: int = 20, *, progress: Any = None) -> list[TagPair]:
        """Return pairs of tags that may be one, the likeliest first, with what a merge would do.

        They are compared by their items and by their names (:mod:`tagstream.knows.twins`).  Nothing
        is merged: call :meth:`merge`.
        """
        from tagstream.knows.twins import find_twins

        check_number("n", n, kind=int, least=1)
        return find_twins(self._items(), n, self._texts, progress)

    def duplicates(
        self, n: int = 20, *, least: float = 0.9, conflicting: bool = True, progress: Any = None
    ) -> list[Duplicates]:
        """Return groups of stored items that are nearly the same and have different tags.

        Parameters
        ----------
        n : int
            How many at most.
        least : float
            How alike two of a group are at least, 1 being equal.
        conflicting : bool
            False: also groups whose items have the same tags.
        progress : callable (done, total), optional
        """
        from tagstream.knows.duplicates import find_duplicates

        check_number("n", n, kind=int, least=1)
        check_number("least", least, least=0.5, most=1)
        return find_duplicates(
            self._items(), n, self._texts, least=least, conflicting=conflicting, progress=progress
        )

    def next_items(self, records: Sequence[Record], n: int = 10, order: str = "mixed") -> list[int]:
        """Return which of some records should be tagged next: their places, the first one first.

        Parameters
        ----------
        records : sequence of mappings
            In the order of their arrival; one without an ``id`` goes by its place.
        n : int
            How many at most.  Near copies of others wait.
        order : {"mixed", "arrival", "random", "unsure", "sure"}, or "tag:NAME"
            See :func:`tagstream.knows.next_items.order_items`.

        Examples
        --------
        >>> tagger = Tagger()
        >>> tagger.learn([{"text": "low tide", "y": ["sea"]}, {"text": "rye bread", "y": []}]).new
        2
        >>> tagger.next_items([{"text": "rye"}, {"text": "tide"}], 1, "tag:sea")
        [1]
        """
        from tagstream.knows.next_items import features_of, order_items, without_copies

        check_number("n", n, kind=int, least=1)
        records = [*records]
        told = self.suggest(records)
        tags, counts = self.tags, self.counts
        p = np.array([[one.scores.get(tag, 0.0) for tag in tags] for one in told])
        ids = [i if r.get("id") is None else r["id"] for i, r in enumerate(records)]
        sizes = [counts.get(tag, 0) for tag in tags]
        places = order_items(ids, p.reshape(len(records), len(tags)), tags, sizes, order)
        return without_copies(places, {i: features_of(r) for i, r in enumerate(records)}, n)

    def unfamiliar(
        self, records: Sequence[Record], n: int = 10, *, least: float = 0.2
    ) -> list[Unfamiliar]:
        """Return groups of records of which nothing is known, the largest first.

        They may be the beginning of a new tag (:mod:`tagstream.knows.unfamiliar`).

        Parameters
        ----------
        records : sequence of mappings
        n : int
            How many groups at most.
        least : float
            The score from which a tag is something that is known of a record.

        Examples
        --------
        >>> tagger = Tagger()
        >>> tagger.learn([{"text": "low tide", "y": ["sea"]}, {"text": "rye bread", "y": []}]).new
        2
        >>> new = ["high tide", "drone battery", "drone repair"]
        >>> [(g.places, g.words) for g in tagger.unfamiliar([{"text": text} for text in new])]
        [((1, 2), ('drone',))]
        """
        from tagstream.knows.next_items import features_of
        from tagstream.knows.unfamiliar import find_unfamiliar

        check_number("n", n, kind=int, least=1)
        check_number("least", least, least=0, most=1)
        counts = self.counts
        stored = max(int(self._model.n_stored_), 1) if counts else 1
        shares = {tag: count / stored for tag, count in counts.items()}
        best = [
            max((p for tag, p in one.scores.items() if p > shares.get(tag, 0.0)), default=0.0)
            if one.known
            else 0.0
            for one in self.suggest([*records])
        ]
        texts = (features_of({"text": text}) for text in self._texts.values())
        return find_unfamiliar([*map(features_of, records)], best, n, least, texts)

    def candidates(self, tag: str, n: int = 20, *, progress: Any = None) -> list[Candidate]:
        """Return the stored items without a tag that most likely should have it.

        Each item is asked about without itself.  Items for which the tag was refused are left out,
        and so are items with a tag that excludes it.
        Answer with :meth:`accept` and :meth:`refuse`.

        Parameters
        ----------
        tag : str
        n : int
            How many at most.
        progress : callable (done, total), optional
        """
        from tagstream.knows.candidates import find_candidates

        check_number("n", n, kind=int, least=1)
        policy = self._policy
        return find_candidates(
            self._items(), tag, n, policy.refused, self._texts, progress, policy.rivals(tag)
        )

    def _names(self) -> npt.NDArray[Any]:
        return np.array([*self.tags, None], object)[:-1]

    def _rows(self, batch: Batch) -> Rows:
        assert self.featurizer is not None
        learnt, got = getattr(self.featurizer, "names", None), batch.feature_names
        if learnt is not None and got is not None and learnt != got:
            raise ValueError(
                f"the columns must be {', '.join(learnt)} as learnt, got {', '.join(got)}"
            )
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
        if not keeps_items(self._model):
            return np.zeros(len(self.tags))
        return np.asarray(self._model.label_counts_ / max(self._model.n_stored_, 1))


class TaggerView(_Reader):
    """An immutable picture of a tagger: ``suggest``, ``explain``, ``tags``, ``counts``."""

    def __init__(self, tagger: Tagger) -> None:
        self.featurizer = tagger.featurizer
        self._model = None if tagger._model is None else tagger._model.view()
        self._texts = tagger._texts
        self._seen = tagger._seen.copy()
        self._about = dict(tagger._about)
        self._policy = tagger._policy


class Tagger(_Reader):
    """Learns tags of records, suggests them, and takes corrections.

    Parameters
    ----------
    learner : optional
        A learner that has learnt nothing; by default ``OML(random_state=0)``.
    featurizer : optional
        Makes rows of records (:mod:`tagstream.text`); by default what suits the first records:
        texts, named values, or numbers.
    encoder : str or callable, optional
        In place of a featurizer: a sentence encoder beside the words, see
        :class:`~tagstream.text.Encoder`.  "use" comes with its weights (extra ``meaning``).
    tags : sequence of str, or mapping of str to str, optional
        Tags to declare before anything is learnt, by name, or by name and description: see
        :meth:`declare`.
    names : bool
        Whether the names and descriptions of tags are evidence for texts.
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
    >>> tagger.suggest("Where to swim in May?").tags
    ['travel', 'sea']
    >>> tagger, tagger.item(2).tags
    (<Tagger: 2 items, 4 tags, OML>, ['travel', 'sea'])

    A tag that is declared is suggested by its name, before it has an example:

    >>> Tagger(tags=["cooking", "music"]).suggest({"text": "Music for the evening"}).tags
    ['music']
    """

    def __init__(
        self,
        learner: StreamClassifier | None = None,
        featurizer: Featurizer | None = None,
        *,
        encoder: Any = None,
        tags: Iterable[str] | Mapping[str, str] | None = None,
        names: bool = True,
        keep_text: bool = True,
    ) -> None:
        if learner is None:
            from tagstream.learners.oml import OML

            learner = OML(random_state=0)
        if encoder is not None:
            if featurizer is not None:
                raise ValueError("featurizer must not be given beside an encoder")
            featurizer = Encoder(encoder)
        self.learner = learner
        self.featurizer = featurizer
        self.keep_text = keep_text
        self.extra: dict[str, Any] = {}  # what else is to be saved: plain values
        self._texts = {}
        self._n_characters = 0
        self._seen = np.zeros(0, np.bool_)
        self._shared = False  # whether a view looks at the texts
        self._policy = Policy()
        self._policy_is_shared = False
        self._id_of: dict[Any, Hashable] | None = None  # of kept texts, if rows are looked up
        check_choice("names", names, (True, False))
        self.names = names
        self._about = {}
        if tags is not None:
            self.declare(tags)

    @property
    def ids(self) -> list[Hashable]:
        """The ids of the stored items, oldest first; empty if the learner stores none."""
        return [*self._model.ids_] if keeps_items(self._model) else []

    @property
    def texts(self) -> Mapping[Hashable, str]:
        """The texts of the stored items by their ids, where they are kept."""
        return MappingProxyType(self._stored_texts())

    def __len__(self) -> int:
        """Return how many items are stored."""
        return self._model.n_stored_ if keeps_items(self._model) else 0

    def __bool__(self) -> bool:
        """Return that there is a tagger, however little it has learnt."""
        return True

    def __iter__(self) -> Iterator[Hashable]:
        """Return the ids of the stored items, oldest first."""
        return iter(self.ids)

    def __contains__(self, id: object) -> bool:
        """Tell whether an item of this id is stored."""
        return keeps_items(self._model) and self._model.has_item(id)

    def item(self, id: Hashable) -> Stored:
        """Return a stored item: its tags, in the order of :attr:`tags`, and its text."""
        self._needs("item")
        if not self.learner.has_item(id):
            raise KeyError(f"the id must be that of a stored item, got {id!r}")
        has = self.learner.item(id).labels
        return Stored(id, [tag for tag in self.tags if tag in has], self._texts.get(id))

    def __repr__(self) -> str:
        facts = ", ".join(f"{value:,} {name}" for name, value in self._facts().items())
        return f"<Tagger: {facts}, {type(self.learner).__name__}>"

    def _repr_html_(self) -> str:
        return summary_html({**self._facts(), "learner": type(self.learner).__name__})

    def _facts(self) -> dict[str, int]:
        return {"items": len(self), "tags": len(self.tags)}

    @property
    def _model(self) -> Any:
        return self.learner if hasattr(self.learner, "n_seen_") else None

    def view(self) -> TaggerView:
        """Return an immutable picture, safe to read beside a thread that learns."""
        self._shared = self._policy_is_shared = True
        return TaggerView(self)

    # ------------------------------------------------------------------ learning
    def learn(self, records: Any, *, asked: AskedRecords | None = None) -> Learnt:
        """Learn records that have tags; one whose id is known is a correction.

        If the record of a known id is the same as before, its tags are replaced; otherwise the old
        item is forgotten and the new one learnt.  An item without an id goes by its number in the
        stream, and a record with that number for an id corrects it.  A list is checked as a whole
        before anything changes; an iterator is learnt as it comes, 1,000 records at a time.

        A list takes effect as a whole or not at all, and so do 1,000 records of an iterator: Ctrl+C
        waits until they are learnt.  A second Ctrl+C does not wait; what was learnt in memory is
        then of no more use.

        A log of a service may hold changes between the records, such as
        ``{"event": "rename", "old": "sea", "new": "ocean"}``: each is made in its place, and what
        stands before one that cannot be made is learnt.

        Parameters
        ----------
        records : mapping, iterable of mappings, data frame, (texts, tags), or Batch
            Records without ``y`` (or with null) are passed over.  A frame has the columns ``text``
            and ``y``, and may have ``id``; without ``text``, its other columns are numbers.  A cell
            of ``y``, or an entry of ``tags``, is a list of tags or one tag.
        asked : AskedRecords, optional
            What :meth:`ask` returned for these records.  Learning is faster with it and comes to
            the same.

        Returns
        -------
        Learnt
            Counts of new, corrected, unchanged and skipped records.
        """
        given = to_learn(records)
        if isinstance(given, Batch):
            return self._learn_batch(given, asked)
        total = Learnt()
        for chunk in _chunks(given):
            total += self._learn_batch(as_batch(chunk, True), asked)
        return total

    def change(self, event: str, **what: Any) -> None:
        """Make a change that a log tells of: its event, and the arguments of that method.

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

    def _learn_batch(self, batch: Batch, asked: AskedRecords | None = None) -> Learnt:
        if batch.changes is not None:
            return self._learn_log(batch)
        if batch.unknown is not None and batch.label_names is None:
            raise ValueError("label_names must be given where labels are not known")
        for i, labels in enumerate(batch.label_sets if self._policy.exclusive else ()):
            self._policy.check(labels or (), _named(batch, i))
        if batch.refused is not None:
            return self._learn_refusals(batch)
        some = [i for i, labels in enumerate(batch.label_sets) if labels is not None]
        skipped = len(batch) - len(some)
        if not some:
            return Learnt(skipped=skipped)
        before = self.featurizer
        if before is None:
            self.featurizer = featurizer_for(batch.items)
            if isinstance(self.featurizer, Columns):
                self.featurizer = replace(self.featurizer, names=batch.feature_names)
        try:
            rows = None if asked is None else asked.rows_of(batch, self.featurizer)
            known = None if asked is None or rows is None else asked.asked
            rows = self._rows(batch) if rows is None else rows
            self._tell_learner()
            with HELD:
                return self._learn_some(batch, some, rows, known) + Learnt(skipped=skipped)
        except BaseException:
            if not self.n_items:
                self.featurizer = before
            raise

    def _learn_some(
        self, batch: Batch, some: list[int], rows: Rows, asked: Asked | None = None
    ) -> Learnt:
        """Learn the records at ``some`` of the places, given the rows of all."""
        names = None if batch.ids is None else [batch.ids[i] for i in some]
        same = self._are_unchanged(batch, some, rows, names)
        done, start = Learnt(unchanged=len(same)), 0
        while start < len(some):
            if start in same:
                start += 1
                continue
            stop = start
            if names is None or not keeps_items(self.learner):
                stop = len(some)
            met: set[Hashable] = set()
            while stop < len(some) and stop not in same and not self._is_known(names, stop, met):
                name = None if names is None else names[stop]
                met.add(self.n_items + stop - start if name is None else name)
                stop += 1
            if stop > start:
                chosen = some[start:stop]
                is_all = len(chosen) == len(batch)
                part = rows if is_all else rows[chosen]
                self._learn_new(batch, chosen, part, asked if is_all else None)
                done += Learnt(new=stop - start)
            here = stop < len(some) and stop not in same
            if here and self._is_known(names, stop, set()):  # not lost by the window
                done += self._replace(batch, some[stop], rows[some[stop] : some[stop] + 1])
                stop += 1
            start = stop
        return done

    def _are_unchanged(
        self, batch: Batch, some: list[int], rows: Rows, names: list[Any] | None
    ) -> set[int]:
        """Return which of the records at ``some`` of the places are stored as they are.

        All are compared together, which is much faster than one by one.  Where that is not safe,
        because an earlier record may change the item or the window may lose it, they are left out.
        """
        if names is None or None in names or batch.unknown is not None:
            return set()
        if not keeps_items(self.learner):
            return set()
        times, refused = Counter(names), self._policy.refused
        once = [i for i, name in enumerate(names) if times[name] == 1 and name not in refused]
        places = [some[i] for i in once]
        found = self.learner.are_stored(
            [names[i] for i in once],
            rows if len(places) == len(batch) else rows[places],
            [batch.label_sets[i] or () for i in places],
        )
        same = [once[i] for i in np.flatnonzero(found).tolist()]
        if self.learner.window is not None:  # up to the first that is learnt
            same = [i for place, i in enumerate(same) if place == i]
        return {*same}

    def _learn_refusals(self, batch: Batch) -> Learnt:
        """Learn records some of which say what they do not have; these one by one."""
        assert batch.refused is not None
        if not self.tags and not any(batch.label_sets[: min(batch.refused)]):
            raise DataError("a tag must be known before it can be refused, got none")
        done, start = Learnt(), 0
        with HELD:
            for i in [*sorted(batch.refused), len(batch)]:
                if i > start:
                    done += self._learn_batch(replace(batch.cut(start, i), refused=None))
                if i < len(batch):
                    done += self._learn_refusal(batch.cut(i, i + 1), batch.refused[i])
                start = i + 1
        return done

    def _learn_refusal(self, one: Batch, refused: tuple[Any, ...]) -> Learnt:
        """Learn one record that says which tags it does not have."""
        self._needs("relabel")
        name = self.n_items if one.ids is None or one.ids[0] is None else one.ids[0]
        stored = self._is_stored_as(name, self._rows(one))
        labels = one.label_sets[0]
        policy = self._own_policy()
        if labels is None and stored:  # what is known of the other tags stays
            item = self.learner.item(name)
            labels = tuple(tag for tag in self.tags if tag in item.labels and tag not in refused)
            unsure = tuple(tag for tag in self.tags if tag in item.unknown and tag not in refused)
        elif labels is None:
            labels = ()
            unsure = tuple(tag for tag in self.tags if tag not in refused)
        else:
            unsure = ()
        if unsure:
            names = tuple(self.tags)
            one = replace(one, label_sets=[labels], unknown=[unsure], label_names=names)
        else:
            one = replace(one, label_sets=[labels])
        done = self._learn_batch(replace(one, refused=None))
        if policy.refuse(name, refused) and done.unchanged:  # it counts as a correction
            self._relabel_as_it_is(name)
            done = Learnt(corrected=1)
        return done

    def _relabel_as_it_is(self, name: Hashable) -> None:
        """Mark a stored item as corrected."""
        item, tags = self.learner.item(name), self.tags
        values = np.array([np.nan if tag in item.unknown else tag in item.labels for tag in tags])
        self.learner.relabel(name, values, classes=tags)

    def _learn_log(self, batch: Batch) -> Learnt:
        assert batch.changes is not None
        done, start = Learnt(), 0
        with HELD:
            for i, change in [*batch.changes.items(), (len(batch), None)]:
                if i > start:
                    done += self._learn_batch(batch.cut(start, i))
                if change is not None:
                    self._change_at((batch.places or {}).get(i), change)
                start = i + 1
        return done

    def _change_at(self, place: str | None, change: dict[str, Any]) -> None:
        """Make a change; the error of one that cannot be made names where it was read."""
        try:
            self.change(**change)
        except (KeyError, ValueError) as error:
            if place is None:
                raise
            said = error.args[0] if isinstance(error, KeyError) and error.args else error
            raise DataError(f"{place}: {said}") from error

    def _is_known(self, names: list[Any] | None, i: int, met: set[Hashable]) -> bool:
        name = None if names is None else names[i]
        return name is not None and (name in met or self.learner.has_item(name))

    def _learn_new(
        self, batch: Batch, some: list[int], rows: Rows, asked: Asked | None = None
    ) -> None:
        first = self.n_items
        names = [None if batch.ids is None else batch.ids[i] for i in some]
        ids = [first + k if name is None else name for k, name in enumerate(names)]
        Y, classes = _labels(batch, some)
        named = None if batch.ids is None else ids
        self.learner.learn_rows(rows, Y, classes, named, asked=asked)
        self._see(rows)
        self._keep_texts(batch, some, ids)

    def _see(self, rows: Rows) -> None:
        """Note which columns were met."""
        if sp.issparse(rows):
            if len(self._seen) != rows.shape[1]:
                self._seen = np.zeros(rows.shape[1], np.bool_)
            self._seen[rows.indices] = True

    def _rows(self, batch: Batch) -> Rows:
        """Return the rows of records; a stored text is not encoded again."""
        if not isinstance(self.featurizer, Encoder) or not self._texts:
            return super()._rows(batch)
        if self._id_of is None:
            self._id_of = {text: name for name, text in self._texts.items()}
        named = [self._id_of.get(text) for text in batch.items]
        stored = [
            name is not None and self._texts.get(name) == text and self.learner.has_item(name)
            for name, text in zip(named, batch.items, strict=True)
        ]
        if not any(stored):
            return super()._rows(batch)
        new = [text for text, known in zip(batch.items, stored, strict=True) if not known]
        made = self.featurizer.rows(new) if new else None
        place, parts = 0, []
        for name, known in zip(named, stored, strict=True):
            if known:
                parts.append(self.learner.item(name).row)
            elif made is not None:
                parts.append(made[place : place + 1])
                place += 1
        rows = sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)
        return check_rows(rows)

    # ------------------------------------------------------------------ names of tags
    def declare(self, tags: Iterable[str] | Mapping[str, str]) -> None:
        """Make tags known before they have an example; they are suggested by their names.

        Parameters
        ----------
        tags : iterable of str, or mapping of str to str
            Names, or names and descriptions: other words for what the tag is about.  A tag that is
            known already stays, and takes the description if there is one.
        """
        about = dict(tags) if isinstance(tags, Mapping) else dict.fromkeys(_listed_tags(tags), "")
        checked = dict(zip(_checked_tags(about), map(_checked_about, about.values()), strict=True))
        if not checked:
            raise ValueError("tags must name at least one tag, got none")
        if not self.names:
            raise ValueError("tags must not be declared where names=False: nothing speaks for them")
        if self.featurizer is None:
            self.featurizer = Text()
        self._check_named()
        with HELD:
            if self._model is None:
                row = self.featurizer.rows([""])
                self._tell_learner()
                self.learner.start_empty(row.shape[1], sparse=bool(sp.issparse(row)))
            elif not self._model.names_count_:  # a model of an older version
                self.learner.use_names(self._rows_of_names)
            known = set(self.tags)
            self._about |= {tag: text for tag, text in checked.items() if text}
            self.learner.declare_labels([*checked])
            for tag, text in checked.items():
                if text and tag in known:
                    self.learner.renew_name(tag)

    def describe(self, tag: str, about: str) -> None:
        """Say what a tag is about, in place of what was said before; "" says nothing any more.

        Its description speaks for it like its name.
        """
        self._started()
        text = _checked_about(about)
        if tag not in self.tags:
            raise ValueError(f"a tag must be one that is known, got {tag!r}")
        if not self.names:
            raise ValueError("a tag must not be described where names=False: it would say nothing")
        self._check_named()
        with HELD:
            self._say_about(tag, text)
            if not self._model.names_count_:
                self.learner.use_names(self._rows_of_names)
            self.learner.renew_name(tag)

    def _say_about(self, tag: str, text: str) -> None:
        self._about = {key: value for key, value in self._about.items() if key != tag}
        if text:
            self._about[tag] = text

    def _check_named(self) -> None:
        """Raise unless names can be evidence: for texts, and for a learner with a head."""
        if not isinstance(self.featurizer, (Text, Encoder)):
            kind = "no" if self.featurizer is None else self.featurizer.name
            raise ValueError(f"tags can only be declared for texts, got {kind} features")
        if not getattr(self.learner, "head", False) or not hasattr(self.learner, "use_names"):
            name = type(self.learner).__name__
            raise ValueError(f"the learner must have a head to declare tags, got {name}; use OML")

    def _tell_learner(self) -> None:
        """Tell a new learner which columns are an embedding, and that names are evidence."""
        n_embedded = getattr(self.featurizer, "n_embedded", 0)
        if self._model is None and n_embedded and hasattr(self.learner, "use_embedding"):
            self.learner.use_embedding(n_embedded)
        texts = isinstance(self.featurizer, (Text, Encoder))
        if self.names and texts and self._model is None and hasattr(self.learner, "use_names"):
            self.learner.use_names(self._rows_of_names)

    def _rows_of_names(self, names: list[Any]) -> Rows:
        """Return one row per tag: that of its name plus that of its description."""
        assert self.featurizer is not None
        rows = self.featurizer.rows([_words_of(name) for name in names])
        about = [self._about.get(name, "") for name in names]
        if any(about):
            rows = rows + self.featurizer.rows(about)
        self._see(rows)
        return rows

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
                if self._id_of is not None:
                    self._id_of[text] = name
        window = self.learner.window if keeps_items(self.learner) else None
        if window is not None and len(self._texts) > 2 * window + SPARE:
            self._texts, self._shared = self._stored_texts(), False
            self._n_characters = sum(map(len, self._texts.values()))

    def _stored_texts(self) -> dict[Hashable, str]:
        """Return the texts without those of items that the window has lost."""
        if not keeps_items(self.learner) or self.learner.window is None:
            return self._texts
        return {n: t for n, t in self._texts.items() if self.learner.has_item(n)}

    def _drop_text(self, name: Hashable) -> None:
        if self._shared:  # a view may still show it
            self._texts, self._shared = dict(self._texts), False
        self._n_characters -= len(self._texts.pop(name))

    def _replace(self, batch: Batch, i: int, row: Rows) -> Learnt:
        """Take a record whose id is known as a correction."""
        assert batch.ids is not None
        name = batch.ids[i]
        item = self.learner.item(name)
        if self._policy.refused:
            self._own_policy().given(name, batch.label_sets[i] or ())
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
        given = _checked_tags(tags)
        self._policy.check(given)
        self.learner.relabel(id, set(given))
        if self._policy.refused:
            self._own_policy().given(id, given)

    def forget(self, id: Hashable) -> None:
        """Take a stored item out, as if it had never been learnt; learning brings it back."""
        self._needs("forget")
        with HELD:
            self.learner.forget(id)
            if id in self._texts:
                self._drop_text(id)
            if id in self._policy.refused:
                self._own_policy().forget(id)

    def rename(self, old: str, new: str) -> None:
        """Call a tag by another name, with its description; to undo it, rename it back."""
        (name,) = _checked_tags([new])
        before = self._about
        if old in before:
            self._about = {(name if tag == old else tag): text for tag, text in before.items()}
        try:
            with HELD:
                self._started().rename_label(old, name)
                if self._policy:
                    self._own_policy().rename(old, name)
        except BaseException:
            self._about = before
            raise

    def merge(self, tags: Sequence[str], into: str) -> None:
        """Make several tags one: an item has it if it had any of them.  It cannot be undone.

        It keeps its description; if it has none, those of the others are joined.
        """
        self._needs("merge_labels")
        merged, (name,) = _checked_tags(tags), _checked_tags([into])
        with HELD:
            self.learner.merge_labels(merged, name)
            others = [self._about[tag] for tag in dict.fromkeys(merged) if tag in self._about]
            about = self._about.get(name) or "\n".join(others)
            gone = {*merged} - {name}
            self._about = {tag: text for tag, text in self._about.items() if tag not in gone}
            self._say_about(name, about)
            self._renew_name(name)
            if self._policy:
                self._own_policy().merge(merged, name)

    def remove(self, tag: str) -> None:
        """Take a tag away from all items, which stay.  It cannot be undone."""
        self._needs("remove_label")
        with HELD:
            self.learner.remove_label(tag)
            self._say_about(tag, "")
            if self._policy:
                self._own_policy().remove(tag)

    def _renew_name(self, tag: str) -> None:
        if getattr(self._model, "names_count_", False):
            self.learner.renew_name(tag)

    def refit(self) -> None:
        """Fit what the learner fits now and then, now."""
        self._needs("refit")
        self.learner.refit()

    # ------------------------------------------------------------------ what is said about tags
    def _own_policy(self) -> Policy:
        """Return the policy to change it; a view may still look at the old one."""
        if self._policy_is_shared:
            self._policy, self._policy_is_shared = self._policy.copy(), False
        return self._policy

    def refuse(self, tag: str, ids: Iterable[Hashable]) -> int:
        """Say that stored items do not have a tag; return of how many that is new.

        A refusal is a correction.  The tag is taken off, and is not offered for the item again
        until its content changes.  In records, ``"no": [tags]`` says the same.

        Examples
        --------
        >>> tagger = Tagger()
        >>> tagger.learn([{"id": 1, "text": "low tide", "y": ["sea"]},
        ...               {"id": 2, "text": "high tide", "y": []}]).new
        2
        >>> tagger.refuse("sea", [2]), tagger.suggest({"id": 2, "text": "high tide"}).tags
        (1, [])
        """
        return self._answer(tag, ids, accepts=False)

    def accept(self, tag: str, ids: Iterable[Hashable]) -> int:
        """Give a tag to stored items that may have others; return to how many it is new."""
        return self._answer(tag, ids, accepts=True)

    def _answer(self, tag: str, ids: Iterable[Hashable], *, accepts: bool) -> int:
        self._needs("relabel")
        (tag,) = _checked_tags([tag])
        items = {name: self.learner.item(name) for name in ids}  # all of them, or an error
        if accepts:
            for item in items.values():
                self._policy.check({*item.labels, tag})
        n = 0
        with HELD:
            for name, item in items.items():
                if accepts:
                    if tag not in item.labels:
                        self._set_tag(name, item, tag, 1.0)
                        n += 1
                    if self._policy.refused:
                        self._own_policy().given(name, [tag])
                elif self._own_policy().refuse(name, [tag]):
                    self._set_tag(name, item, tag, 0.0)
                    n += 1
        return n

    def _set_tag(self, name: Hashable, item: Any, tag: str, value: float) -> None:
        """Change one tag of a stored item and leave the others as they are."""
        tags = self.tags if tag in self.tags or not value else [*self.tags, tag]
        values = [np.nan if t in item.unknown else float(t in item.labels) for t in tags]
        if tag in tags:
            values[tags.index(tag)] = value
        self.learner.relabel(name, np.array(values), classes=tags)

    def exclusive(self, tags: Sequence[str]) -> None:
        """Say that an item has at most one of some tags.

        Only the one with the highest score may then be suggested, and a record with two of them is
        refused.  Items that have two already keep them; :meth:`review` shows them first.
        """
        checked = _checked_tags(tags)
        self._started()
        self._own_policy().add_exclusive(checked)

    def not_exclusive(self, tags: Sequence[str]) -> None:
        """Say that an item may have these tags beside any other."""
        self._own_policy().remove_exclusive(_checked_tags(tags))

    def promise(self, tag: str, mode: str = "auto", promise: float = PROMISE) -> None:
        """Say what may be done with a tag, and which precision is promised where it is applied.

        Parameters
        ----------
        tag : str
        mode : {"auto", "suggest", "never"}
            ``auto``: :attr:`Suggestion.auto` names the tag where it may be applied without asking.
            That is where a bar, tracked on scores that were made before their items were learnt,
            keeps the promise (:mod:`tagstream.evidence.promise`); not before there are 30 of them.
            ``suggest``, the default of all tags: it is suggested.  ``never``: it is not even
            suggested, but keeps its score.
        promise : float
            The promised precision, from .5 to .999.
        """
        if tag not in self._started().classes_.tolist():
            raise ValueError(f"tag must be one that was learnt, got {tag!r}")
        if mode == "auto" and not hasattr(self.learner, "promised"):
            raise ValueError("a promise needs a learner that keeps items; use OML")
        policy = self._policy.copy()
        policy.set_mode(tag, mode, promise)
        if policy.promises:
            self.learner.promised(policy.promises)  # or an error, before anything is changed
            self.learner.watch()
        self._policy, self._policy_is_shared = policy, False

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
        # Texts of lost items go when there are many, which depends on the calls.
        texts = self._stored_texts()
        saved = {
            "featurizer": {"name": self.featurizer.name, "state": self.featurizer.to_state()},
            "keep_text": self.keep_text,
            "text_ids": list(texts),
            "texts": list(texts.values()),
            "names": self.names,
            "described": list(self._about),
            "descriptions": list(self._about.values()),
            "n_columns": len(self._seen),
            "seen": np.packbits(self._seen),
        }
        if self._policy:
            saved["policy"] = self._policy.to_state()
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
        if isinstance(saved, dict) and "names" not in saved:  # of an older version
            saved = {**saved, "names": True, "described": [], "descriptions": []}
        policy = saved.pop("policy", None)
        keys = ("featurizer", "keep_text", "text_ids", "texts", "n_columns", "seen")
        expect_keys("the tagger", saved, *keys, "names", "described", "descriptions")
        expect_keys("the featurizer", saved["featurizer"], "name", "state")
        kind = FEATURIZERS.get(saved["featurizer"]["name"])
        if type(saved["names"]) is not bool:
            raise ValueError(f"names must be true or false, got {saved['names']!r}")
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
        tagger = cls(learner, makes, names=saved["names"], keep_text=saved["keep_text"])
        about = [_strings(key, saved[key]) for key in ("described", "descriptions")]
        tagger._about = dict(zip(*about, strict=True))
        if getattr(learner, "names_count_", False):
            learner.use_names(tagger._rows_of_names)
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
        if policy is not None:
            tagger._policy = Policy.from_state(policy)
        return tagger


def _same_items(a: Any, b: Any) -> bool:
    """Tell whether two batches have the same items: texts, named values, or rows of numbers."""
    if isinstance(a, list) and isinstance(b, list):
        return a == b
    return not isinstance(a, list) and not isinstance(b, list) and same_rows(a, b)


def _chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    iterator = iter(records)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def _strings(what: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{what} must be a list of strings")
    return value


def _listed_tags(tags: Iterable[str]) -> list[str]:
    if isinstance(tags, str):
        raise ValueError(f"tags must be a list of strings, got the string {tags!r}")
    return list(tags)


def _checked_about(about: Any) -> str:
    if not isinstance(about, str) or len(about) > LONGEST_ABOUT:
        rule = f"a description must be a string of at most {LONGEST_ABOUT:,} characters"
        raise ValueError(f"{rule}, got {str(about)[:60]!r}")
    return about.strip()


def _words_of(tag: Any) -> str:
    """Return the name of a tag as words: of a path such as ``field::biology`` the last part."""
    return _JOINERS.sub(" ", str(tag).split("::")[-1])


def _checked_tags(tags: Iterable[str]) -> list[str]:
    if isinstance(tags, str):
        raise ValueError(f"tags must be a list of strings, got the string {tags!r}")
    checked = []
    for tag in tags:
        if not isinstance(tag, str) or not tag.strip():
            raise ValueError(f"a tag must be a string that is not empty, got {tag!r}")
        checked.append(tag.strip())
    return checked


def _named(batch: Batch, i: int) -> str:
    """Return how a message calls a record of a batch: by its id, or by the start of its text."""
    if batch.ids is not None and batch.ids[i] is not None:
        return f"item {batch.ids[i]!r}"
    text = batch.items[i] if isinstance(batch.items, list) else None
    return f"the item {text[:40]!r}" if isinstance(text, str) else "an item"


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
    names: npt.NDArray[Any],
    scores: Any,
    chosen: Any,
    known: bool,
    auto: Any = None,
    *,
    top: int | None,
) -> Suggestion:
    if top is not None:
        best = highest_first(scores)[:top]
        names, scores, chosen = names[best], scores[best], chosen[best]
        auto = None if auto is None else auto[best]
    tags = _by_score(names, scores, chosen)
    surely = [] if auto is None else _by_score(names, scores, auto)
    return Suggestion(tags, TagScores(names, scores.copy()), known, surely)


def _by_score(
    names: npt.NDArray[Any], scores: npt.NDArray[np.float64], chosen: npt.NDArray[np.bool_]
) -> list[Any]:
    """Return the chosen tags, the one with the highest score first."""
    some = np.flatnonzero(chosen)
    tags: list[Any] = names[some[highest_first(scores[some])]].tolist()
    return tags


def _featurizer_of_format_1(learner: StreamClassifier, extra: dict[str, Any]) -> Featurizer:
    """Return how records became rows when the featurizer was not saved with the model."""
    hashing = extra.get("hashing") or {}
    if hashing.get("n_features") == learner.n_features_in_ and learner._sparse:
        return Hashing(**hashing)
    names = extra.get("features")
    return Columns(learner.n_features_in_, None if names is None else tuple(names))


def warm_up(make: Callable[[], Any] = Tagger) -> None:
    """Learn a few texts with a tagger of its own, and ask about one, so that code is compiled.

    Compiled code is kept on disk.  Later processes load it, and this function takes them no time
    worth mentioning.

    Parameters
    ----------
    make : callable
        What makes an empty tagger.
    """
    scratch = make()
    words = ("sort", "list", "sea", "swim", "soup", "salt")
    scratch.learn(
        [
            {"id": f"{i}", "text": f"{words[i % 6]} {words[i // 6 % 6]}", "y": [words[i % 3]]}
            for i in range(64)
        ]
    )
    view = scratch.view()
    view.suggest([{"text": "sort a list"}])
    view.explain({"text": "sort a list"})
