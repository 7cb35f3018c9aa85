"""Scenarios of learning at once: corrections that must hold, and tags that were never seen.

Not of the paper.  Both learn a stretch of records through a :class:`~tagstream.Tagger`, fit its map
anew, and then look at what single examples do *before the next fit*.  They ask as a user asks:
about any item, not about the next one of a stream.  What is promised is in
:mod:`tagstream.paper.results`; the report says what of it is kept.

A third one, :func:`survive`, looks at a new tag before and after the next fit, on rows of any kind.
"""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tagstream.checks import DataError
from tagstream.execution.schedule import next_fit
from tagstream.features import featurizer_for
from tagstream.tagger import Tagger

__all__ = [
    "MADE_UP",
    "TEXTS",
    "correct",
    "introduce",
    "read_text",
    "some_labels",
    "survive",
    "text_path",
]

# Comments with emotions, descriptions of packages with topics, and how many there are.
TEXTS = {"goemotions-dev": 5426, "packages": 5987}
FOLDER = "TAGSTREAM_TEXT"  # the variable that names the folder of texts

MADE_UP = "made-up phrase"  # a tag that no text has: its phrase is put into comments
PHRASE = "purple narwhal weather"
DROPPED = 5  # one word in so many is dropped from a paraphrase
BETWEEN = 10  # ordinary records between two examples of a new tag
SAME_PRICE = 0.01  # share of false alarms at which candidates are also compared

Record = Mapping[str, Any]
Flags = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.float64]
Labels = npt.NDArray[np.uint8]

MOST_COMMON = 0.2  # share of the items that a label has at most which stands for a new tag
MOST_TESTED = 300  # items with that label


def text_path(name: str) -> Path:
    """Return the file of a text; an error says where it is looked for."""
    home = os.environ.get(FOLDER)
    path = Path(home or ".") / f"{name}.jsonl"
    if home is None or not path.is_file():
        raise FileNotFoundError(
            f"{FOLDER} must name a folder that holds {name}.jsonl, got {home or 'nothing'}"
        )
    return path


@lru_cache(maxsize=1)
def read_text(name: str) -> tuple[dict[str, Any], ...]:
    """Return the records of a text, in file order."""
    lines = text_path(name).read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines)


def paraphrase(text: str, rng: np.random.Generator) -> str:
    """Leave out a fifth of the words, at least one if there are two.

    Examples
    --------
    >>> paraphrase("one two three four five", np.random.default_rng(0))
    'one two three four'
    """
    words = text.split()
    n = max(round(len(words) / DROPPED), int(len(words) > 1))
    gone = set(rng.choice(len(words), n, replace=False).tolist()) if n else set()
    return " ".join(word for i, word in enumerate(words) if i not in gone)


# ---------------------------------------------------------------------- corrections
def correct(
    records: Sequence[Record],
    learner: Any,
    *,
    n_learnt: int,
    counts: Sequence[int],
    n_others: int,
    seed: int,
) -> dict[str, Any]:
    """Accept wrong suggestions, correct them, and look what is suggested then.

    Of the records after the first ``n_learnt`` those whose suggestion is not exactly right are
    learnt with the suggestion as their tags, and at once relabelled with their own.  The last
    ``n_others`` records are never learnt.

    Parameters
    ----------
    records : sequence of mappings
    learner : learner that has learnt nothing
    n_learnt, n_others : int
    counts : sequence of int
        After how many corrections to look, in rising order.
    seed : int
        0 leaves the records in their order, others shuffle them.

    Returns
    -------
    dict
        ``before``, micro-F1 of the others; and for each count ``looks`` with ``n_shown``, records
        looked at to find the mistakes, and ``at_once`` and ``refitted``: the shares of corrected
        items (``same``) and of their paraphrases exactly right, and micro-F1 of the others.
    """
    if seed:
        records = [records[i] for i in np.random.default_rng(seed).permutation(len(records))]
    tagger = Tagger(learner, keep_text=False)
    tagger.learn(list(records[:n_learnt]))
    tagger.refit()
    others = records[len(records) - n_others :]
    before = _micro_f1(tagger, others)
    rng = np.random.default_rng(seed)
    wrong: list[Record] = []
    similar: list[Record] = []
    looks = []
    for n_shown, record in enumerate(records[n_learnt : len(records) - n_others], start=1):
        suggested = tagger.suggest(record).tags
        if set(suggested) == set(record["y"]):
            continue
        tagger.learn({**record, "y": suggested})
        tagger.relabel(record["id"], record["y"])
        wrong.append(record)
        similar.append({**record, "text": paraphrase(record["text"], rng)})
        if len(wrong) in counts:
            twin = _copy_of(tagger)
            at_once = _look(twin, wrong, similar, others)
            twin.refit()
            refitted = _look(twin, wrong, similar, others)
            looks.append({"n_shown": n_shown, "at_once": at_once, "refitted": refitted})
        if len(looks) == len(counts):
            return {"before": before, "counts": list(counts), "looks": looks}
    raise DataError(f"there must be {max(counts)} wrong suggestions, got {len(wrong)}")


def _copy_of(tagger: Tagger) -> Tagger:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tagger.tgs"
        tagger.save(path)
        return Tagger.open(path)


def _look(
    tagger: Tagger, wrong: Sequence[Record], similar: Sequence[Record], others: Sequence[Record]
) -> dict[str, float]:
    return {
        "same": _exactly_right(tagger, wrong),
        "paraphrase": _exactly_right(tagger, similar),
        "others": _micro_f1(tagger, others),
    }


def _exactly_right(tagger: Tagger, records: Sequence[Record]) -> float:
    pairs = zip(tagger.suggest(list(records)), records, strict=True)
    return float(np.mean([set(said.tags) == set(record["y"]) for said, record in pairs]))


def _micro_f1(tagger: Tagger, records: Sequence[Record]) -> float:
    hits = sizes = 0
    for said, record in zip(tagger.suggest(list(records)), records, strict=True):
        hits += len(set(said.tags) & set(record["y"]))
        sizes += len(said.tags) + len(record["y"])
    return 2 * hits / sizes if sizes else 0.0


# ---------------------------------------------------------------------- new tags
class _Candidate(Protocol):
    """What learns records and tells, by decision, which of others get the tag."""

    def learn(self, records: Sequence[Record]) -> None: ...

    def gives(self, records: Sequence[Record]) -> dict[str, Flags]: ...

    def scores(self, records: Sequence[Record]) -> Scores: ...

    def twin(self) -> _Candidate: ...

    def refit(self) -> None: ...


class _OfTagger:
    """A tagger, asked for one of its tags."""

    def __init__(self, tagger: Tagger, tag: str) -> None:
        self.tagger, self.tag = tagger, tag
        rule: Any = tagger.learner.decide
        self.rules = (rule, "f1", "macro") if isinstance(rule, str) else (rule,)

    def learn(self, records: Sequence[Record]) -> None:
        self.tagger.learn(list(records))

    def gives(self, records: Sequence[Record]) -> dict[str, Flags]:
        return {
            str(rule): np.array(
                [self.tag in said.tags for said in self.tagger.suggest(list(records), decide=rule)]
            )
            for rule in self.rules
        }

    def scores(self, records: Sequence[Record]) -> Scores:
        said = self.tagger.suggest(list(records))
        return np.array([one.scores.get(self.tag, 0.0) for one in said])

    def twin(self) -> _OfTagger:
        return _OfTagger(_copy_of(self.tagger), self.tag)

    def refit(self) -> None:
        self.tagger.refit()


class _OfClassifier:
    """A linear classifier for the one tag, on the rows that a tagger would make."""

    def __init__(self, classifier: Any, tag: str) -> None:
        self.classifier, self.tag = classifier, tag
        self.featurizer = featurizer_for(["a text"])

    def learn(self, records: Sequence[Record]) -> None:
        has = np.array([self.tag in record["y"] for record in records])
        self.classifier.partial_fit(self._rows(records), has, classes=[False, True])

    def gives(self, records: Sequence[Record]) -> dict[str, Flags]:
        return {"0.5": np.asarray(self.classifier.predict(self._rows(records)), np.bool_)}

    def scores(self, records: Sequence[Record]) -> Scores:
        return np.asarray(self.classifier.decision_function(self._rows(records)), np.float64)

    def twin(self) -> _OfClassifier:
        return copy.deepcopy(self)

    def refit(self) -> None:
        """Do nothing: there is nothing that is fitted now and then."""

    def _rows(self, records: Sequence[Record]) -> Any:
        return self.featurizer.rows([record["text"] for record in records])


def introduce(
    records: Sequence[Record],
    learner: Any,
    tag: str,
    *,
    n_learnt: int,
    counts: Sequence[int],
    n_test: int,
    n_draws: int,
) -> dict[str, Any]:
    """Bring in a tag that was held back, one example among ten ordinary records.

    Parameters
    ----------
    records : sequence of mappings
    learner : learner that has learnt nothing, or classifier with ``partial_fit`` of one label
    tag : str
        Records that have it are kept back; of :data:`MADE_UP` they are made by putting a phrase
        into records.
    n_learnt : int
        Ordinary records that are learnt before.
    counts : sequence of int
        After how many examples to look, in rising order; those are left out for which less than a
        third of the examples would be left to test with.
    n_test : int
        Ordinary records at the end that are looked at, beside the examples not learnt.
    n_draws : int
        Orders of the examples.

    Returns
    -------
    dict
        ``counts``, ``n_positive`` (test records with the tag), and by decision: ``f1`` of the tag
        and ``false_alarms``, the share of ordinary test records that get it, one list for each
        draw; ``refitted``, F1 after the second count if P is fitted again just then, by draw.
        Whatever is decided, by draw: ``average_precision`` of the tag's scores, and
        ``f1_at_same_price``, F1 if 1 % of the ordinary test records, those with the highest
        scores, get the tag.
    """
    with_tag, ordinary = _divided(records, tag, max(counts))
    counts = [count for count in counts if 3 * count <= 2 * len(with_tag)]
    ready: _Candidate = (
        _OfTagger(Tagger(learner, keep_text=False), tag)
        if hasattr(learner, "labels_of")
        else _OfClassifier(learner, tag)
    )
    ready.learn(ordinary[:n_learnt])
    ready.refit()
    plain = ordinary[len(ordinary) - n_test :]
    found: dict[str, dict[str, list[Any]]] = {}
    ranked: dict[str, list[list[float]]] = {"average_precision": [], "f1_at_same_price": []}
    for draw in range(n_draws):
        order = np.random.default_rng(draw).permutation(len(with_tag))
        examples = [with_tag[i] for i in order]
        test = [*examples[counts[-1] :], *plain]
        candidate = ready.twin()
        between = iter(ordinary[n_learnt : len(ordinary) - n_test])
        for rule in candidate.gives(plain[:1]):
            into = found.setdefault(rule, {"f1": [], "false_alarms": [], "refitted": []})
            into["f1"].append([])
            into["false_alarms"].append([])
        for by_draw in ranked.values():
            by_draw.append([])
        for k, example in enumerate(examples[: counts[-1]], start=1):
            candidate.learn([*_next_ten(between), example])
            if k not in counts:
                continue
            scores = candidate.scores(test)
            for name, value in _ranked(scores, len(test) - n_test).items():
                ranked[name][-1].append(value)
            for rule, gets in candidate.gives(test).items():
                f1, alarms = _judged(gets, len(test) - n_test)
                found[rule]["f1"][-1].append(f1)
                found[rule]["false_alarms"][-1].append(alarms)
            if k == counts[min(1, len(counts) - 1)]:
                twin = candidate.twin()
                twin.refit()
                for rule, gets in twin.gives(test).items():
                    found[rule]["refitted"].append(_judged(gets, len(test) - n_test)[0])
    return {"counts": counts, "n_positive": len(with_tag) - counts[-1], "rules": found, **ranked}


def _next_ten(between: Iterator[Record]) -> list[Record]:
    some = list(islice(between, BETWEEN))
    if len(some) < BETWEEN:
        raise DataError(f"there must be {BETWEEN} ordinary records before each example")
    return some


def _judged(gets: Flags, n_positive: int) -> tuple[float, float]:
    """Return F1 of the tag and the share of false alarms; the first items have the tag."""
    hits, alarms = int(gets[:n_positive].sum()), int(gets[n_positive:].sum())
    size = hits + alarms + n_positive
    return 2 * hits / size if size else 0.0, alarms / max(len(gets) - n_positive, 1)


def _ranked(scores: Scores, n_positive: int) -> dict[str, float]:
    """Return what the order of the scores is worth; the first items have the tag."""
    from sklearn.metrics import average_precision_score

    has = np.arange(len(scores)) < n_positive
    return {
        "average_precision": float(average_precision_score(has, scores)),
        "f1_at_same_price": _judged(scores > _price(scores, n_positive), n_positive)[0],
    }


def _price(scores: Scores, n_positive: int) -> float:
    """Return the score that 1 % of the ordinary items are above; the first items have the tag."""
    n_alarms = round(SAME_PRICE * (len(scores) - n_positive))
    return float(np.sort(scores[n_positive:])[::-1][n_alarms])


def _divided(records: Sequence[Record], tag: str, most: int) -> tuple[list[Record], list[Record]]:
    """Return the records with the tag and the ordinary ones, in their order."""
    if tag != MADE_UP:
        with_tag = [record for record in records if tag in record["y"]]
        return with_tag, [record for record in records if tag not in record["y"]]
    rng = np.random.default_rng(0)
    chosen = set(rng.choice(len(records), 3 * most, replace=False).tolist())
    made = [_with_phrase(records[i], rng) for i in sorted(chosen)]
    return made, [record for i, record in enumerate(records) if i not in chosen]


def _with_phrase(record: Record, rng: np.random.Generator) -> Record:
    words = record["text"].split()
    at = int(rng.integers(len(words) + 1))
    text = " ".join([*words[:at], PHRASE, *words[at:]])
    return {**record, "text": text, "y": [*record["y"], MADE_UP]}


# ---------------------------------------------------------------------- a new tag and the next fit
def some_labels(Y: Labels, n: int, least: int) -> list[int]:
    """Return at most ``n`` columns, from rare to frequent, which at least ``least`` items have.

    Examples
    --------
    >>> Y = np.array([[1, 1, 0, 0, 1]] + [[0, 1, 1, 0, 0]] + [[0] * 5] * 10, np.uint8)
    >>> some_labels(Y, 2, 1), some_labels(Y, 5, 2)
    ([0, 1], [1])
    """
    sizes = Y.sum(axis=0)
    able = np.flatnonzero((sizes >= least) & (sizes <= MOST_COMMON * len(Y)))
    able = able[np.argsort(sizes[able], kind="stable")]
    if len(able) > n:
        able = able[np.linspace(0, len(able) - 1, n).round().astype(int)]
    return [int(column) for column in able]


def survive(
    X: Any,
    Y: Labels,
    learner: Any,
    label: int,
    *,
    counts: Sequence[int],
    n_learnt: int,
    n_test: int,
    seed: int,
) -> dict[str, list[dict[str, float]]]:
    """Bring in a label that was held back, and look at it before and after the next fit.

    Items without the label are learnt by ``fit``, which ends with a fit of P.  Then come examples
    of the label.

    Parameters
    ----------
    X, Y : rows (n, p) and labels (n, q)
    learner : learner that has learnt nothing
    label : int
        Its column.
    counts : sequence of int
        After how many examples to look, in rising order.  No fit may fall among them.
    n_learnt, n_test : int
        Items without the label that are learnt before, and other ones that are looked at.
    seed : int
        Of the order of the items.

    Returns
    -------
    dict
        ``before`` and ``after`` the fit, for each count: ``recall`` and ``false_alarms`` of the
        default decision, and ``recall_at_same_price`` if 1 % of the items without the label, those
        with the highest scores, get it.
    """
    if n_learnt + counts[-1] >= next_fit(n_learnt, None):
        raise DataError(f"n_learnt must leave {counts[-1]} items to the next fit, got {n_learnt}")
    rng = np.random.default_rng((seed, label))
    has = rng.permutation(np.flatnonzero(Y[:, label]))
    others = rng.permutation(np.flatnonzero(Y[:, label] == 0))
    if len(others) < n_learnt + n_test or len(has) <= counts[-1]:
        raise DataError(f"there must be {n_learnt + n_test} items without label {label}")
    sets = [frozenset(np.flatnonzero(row).tolist()) for row in Y]
    test = np.concatenate([has[counts[-1] :][:MOST_TESTED], others[n_learnt:][:n_test]])
    n_positive = len(test) - n_test

    def learnt(learn: Any, rows: Any) -> None:
        learn(X[rows], [sets[i] for i in rows])

    learnt(learner.fit, others[:n_learnt])
    found: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    for start, stop in pairwise([0, *counts]):
        learnt(learner.partial_fit, has[start:stop])
        twin = copy.deepcopy(learner).refit()
        for when, model in (("before", learner), ("after", twin)):
            found[when].append(_seen(model, X[test], label, n_positive))
    return found


def _seen(model: Any, X: Any, label: int, n_positive: int) -> dict[str, float]:
    """Return what becomes of a label; the first items have it."""
    scores = model.predict_proba(X)
    column = model.classes_.tolist().index(label)
    gets = np.asarray(model.labels_of(scores)[:, column], np.bool_)
    at_price = scores[:, column] > _price(scores[:, column], n_positive)
    return {
        "recall": float(gets[:n_positive].mean()),
        "false_alarms": float(gets[n_positive:].mean()),
        "recall_at_same_price": float(at_price[:n_positive].mean()),
    }
