"""Scenarios of learning at once: corrections that must hold, and tags that were never seen.

Not of the paper.  Both learn a stretch of records through a :class:`~tagstream.Tagger`, fit its map
anew, and then look at what single examples do *before the next fit*.  What is promised is in
:mod:`tagstream.paper.results`; the report says what of it is kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tagstream.checks import DataError
from tagstream.tagger import Tagger
from tagstream.text import featurizer_for

__all__ = ["MADE_UP", "TEXTS", "correct", "introduce", "read_text", "text_path"]

TEXTS = {"goemotions-dev": 5426}  # comments with emotions, and how many there are
FOLDER = "TAGSTREAM_TEXT"  # the variable that names the folder of texts

MADE_UP = "made-up phrase"  # a tag that no text has: its phrase is put into comments
PHRASE = "purple narwhal weather"
DROPPED = 5  # one word in so many is dropped from a paraphrase
BETWEEN = 10  # ordinary records between two examples of a new tag

Record = Mapping[str, Any]
Flags = npt.NDArray[np.bool_]


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
    records: Sequence[Record], learner: Any, *, n_learnt: int, n_corrected: int, n_others: int
) -> dict[str, Any]:
    """Accept wrong suggestions, correct them, and look what is suggested then.

    Of the records after the first ``n_learnt`` those whose suggestion is not exactly right are
    learnt with the suggestion as their tags, and at once relabelled with their own.  The last
    ``n_others`` records are never learnt.

    Returns
    -------
    dict
        ``n_shown``, records looked at to find the mistakes; ``before``, micro-F1 of the others;
        ``at_once`` and ``refitted``, each with the shares of corrected items (``same``) and of
        their paraphrases exactly right, and micro-F1 of the others.
    """
    tagger = Tagger(learner)
    tagger.learn(list(records[:n_learnt]))
    tagger.refit()
    others = records[len(records) - n_others :]
    before = _micro_f1(tagger, others)
    wrong: list[Record] = []
    n_shown = 0
    for record in records[n_learnt : len(records) - n_others]:
        if len(wrong) == n_corrected:
            break
        n_shown += 1
        suggested = tagger.suggest(record).tags
        if set(suggested) != set(record["y"]):
            tagger.learn({**record, "y": suggested})
            tagger.relabel(record["id"], record["y"])
            wrong.append(record)
    if len(wrong) < n_corrected:
        raise DataError(f"there must be {n_corrected} wrong suggestions, got {len(wrong)}")
    rng = np.random.default_rng(0)
    similar = [{**record, "text": paraphrase(record["text"], rng)} for record in wrong]

    def look() -> dict[str, float]:
        same, close = (_exactly_right(tagger, some) for some in (wrong, similar))
        return {"same": same, "paraphrase": close, "others": _micro_f1(tagger, others)}

    at_once = look()
    tagger.refit()
    return {"n_shown": n_shown, "before": before, "at_once": at_once, "refitted": look()}


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
    """What learns records and tells which of others have the tag, by decision."""

    def learn(self, records: Sequence[Record]) -> object: ...

    def settle(self) -> None: ...

    def gives(self, records: Sequence[Record]) -> dict[str, Flags]: ...


class _OfTagger:
    """A tagger, asked for one of its tags."""

    def __init__(self, learner: Any, tag: str) -> None:
        self.tagger, self.tag = Tagger(learner, keep_text=False), tag
        rule = learner.decide
        self.rules = (rule, "f1") if isinstance(rule, str) else (rule,)
        self.learn, self.settle = self.tagger.learn, self.tagger.refit

    def gives(self, records: Sequence[Record]) -> dict[str, Flags]:
        return {
            str(rule): np.array([self.tag in said.tags for said in self._suggest(records, rule)])
            for rule in self.rules
        }

    def _suggest(self, records: Sequence[Record], rule: Any) -> Any:
        return self.tagger.suggest(list(records), decide=rule)


class _OfClassifier:
    """A linear classifier for the one tag, on the rows that a tagger would make."""

    def __init__(self, classifier: Any, tag: str) -> None:
        self.classifier, self.tag = classifier, tag
        self.featurizer = featurizer_for(["a text"])

    def learn(self, records: Sequence[Record]) -> None:
        has = np.array([self.tag in record["y"] for record in records])
        self.classifier.partial_fit(self._rows(records), has, classes=[False, True])

    def settle(self) -> None:
        pass

    def gives(self, records: Sequence[Record]) -> dict[str, Flags]:
        return {"0.5": np.asarray(self.classifier.predict(self._rows(records)), np.bool_)}

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
    seed: int,
) -> dict[str, Any]:
    """Bring in a tag that was held back, one example among ten ordinary records.

    Parameters
    ----------
    records : sequence of mappings
    learner : learner, or classifier with ``partial_fit`` of one label
    tag : str
        Records that have it are kept back; of :data:`MADE_UP` they are made by putting a phrase
        into records.
    n_learnt : int
        Ordinary records that are learnt before.
    counts : sequence of int
        After how many examples to look; those are left out for which less than a third of the
        examples would be left to test with.
    n_test : int
        Ordinary records at the end that are looked at, beside the examples not learnt.
    seed : int
        Of the order of the examples.

    Returns
    -------
    dict
        ``counts``, and by decision lists of ``f1`` of the tag and of ``false_alarms``, the share
        of ordinary test records that get it.
    """
    rng = np.random.default_rng(seed)
    with_tag, ordinary = _divided(records, tag, max(counts), rng)
    counts = [count for count in counts if 3 * count <= 2 * len(with_tag)]
    candidate: _Candidate = (
        _OfTagger(learner, tag) if hasattr(learner, "labels_of") else _OfClassifier(learner, tag)
    )
    candidate.learn(ordinary[:n_learnt])
    candidate.settle()
    between = iter(ordinary[n_learnt : len(ordinary) - n_test])
    plain = ordinary[len(ordinary) - n_test :]
    test = [*with_tag[max(counts) :], *plain]
    found: dict[str, dict[str, list[float]]] = {}
    for k, example in enumerate(with_tag[: max(counts)], start=1):
        candidate.learn([*_some(between), example])
        if k in counts:
            for rule, gets in candidate.gives(test).items():
                f1, alarms = _judged(gets, len(test) - len(plain))
                into = found.setdefault(rule, {"f1": [], "false_alarms": []})
                into["f1"].append(f1)
                into["false_alarms"].append(alarms)
    return {"counts": counts, "n_positive": len(test) - len(plain), "rules": found}


def _some(between: Iterator[Record]) -> list[Record]:
    some = [record for record, _ in zip(between, range(BETWEEN), strict=False)]
    if len(some) < BETWEEN:
        raise DataError(f"there must be {BETWEEN} ordinary records between two examples")
    return some


def _judged(gets: Flags, n_positive: int) -> tuple[float, float]:
    """Return F1 of the tag and the share of false alarms; the first items have the tag."""
    hits, alarms = int(gets[:n_positive].sum()), int(gets[n_positive:].sum())
    size = hits + alarms + n_positive
    return 2 * hits / size if size else 0.0, alarms / max(len(gets) - n_positive, 1)


def _divided(
    records: Sequence[Record], tag: str, most: int, rng: np.random.Generator
) -> tuple[list[Record], list[Record]]:
    """Return records with the tag, in random order, and the ordinary ones in theirs."""
    if tag != MADE_UP:
        with_tag = [record for record in records if tag in record["y"]]
        rest = [record for record in records if tag not in record["y"]]
        return [with_tag[i] for i in rng.permutation(len(with_tag))], rest
    chosen = set(rng.choice(len(records), 3 * most, replace=False).tolist())
    made = [_with_phrase(records[i], rng) for i in sorted(chosen)]
    rest = [record for i, record in enumerate(records) if i not in chosen]
    return [made[i] for i in rng.permutation(len(made))], rest


def _with_phrase(record: Record, rng: np.random.Generator) -> Record:
    words = record["text"].split()
    at = int(rng.integers(len(words) + 1))
    text = " ".join([*words[:at], PHRASE, *words[at:]])
    return {**record, "text": text, "y": [*record["y"], MADE_UP]}
