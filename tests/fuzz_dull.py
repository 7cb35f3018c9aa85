"""A fuzzer of dull data: few distinct texts, empty texts, equal numbers, one tag or none.

Each case draws a stream of at most 300 records, a learner with its settings, and cuts.  Some cases
also draw corrections between the records.  The stream must be learnt without an exception.  At a
cut the tagger is saved and opened again, and the opened one must write the same file.  In the end
the tagger that learnt piece by piece, the one that was opened half-way, and the one that learnt
all at once must write the same file, to the last bit.  Case ``n`` is the same whenever it is run::

    python tests/fuzz_dull.py 10000              # cases 0 to 9999
    python tests/fuzz_dull.py 10000 --first 5000
    python tests/fuzz_dull.py --case 1234        # one case, with its traceback
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from tagstream import models
from tagstream.data import Batch
from tagstream.tagger import Tagger
from tagstream.text import Columns, Featurizer, Named, Text

LONGEST = 300  # records of a stream
MANY = 520  # tags of the few streams in which labels are reduced

TEXTS = ["", "...", " \n", "a", "a a", "low tide", "low tide at seven", "\u2600", "b c d e f g"]
VALUES = [0.0, 0.0, 1.0, -1.0, 0.5, 1 / 3, 7.0, 1e-3, 1e6, 1e-20, 1e-40, 1e-44, 1e15, -1e15]
NAMED: list[dict[str, Any]] = [
    {}, {"a": 0}, {"a": 0, "b": 0.0}, {"a": 1}, {"a": 1, "b": 1}, {"a": 1e-30}, {"a": 1e-44},
    {"a": 1e15}, {"a": "x"}, {"a": "x", "b": 0},
]  # fmt: skip
WINDOWS = [None, None, None, 1, 2, 19, 20, 21, 30, 64, 100, 200, 300]


class Case(NamedTuple):
    """What a case does."""

    learner: str
    params: dict[str, Any]
    featurizer: Featurizer
    batch: Batch
    cuts: list[int]  # rising, from 0 to the number of records
    changes: dict[int, list[Any]]  # before the record of that number
    names: bool  # whether they are evidence

    def tagger(self) -> Tagger:
        """Return a tagger that has learnt nothing."""
        learner = getattr(models, self.learner)(**self.params)
        return Tagger(learner, self.featurizer, names=self.names)


# ---------------------------------------------------------------------- what is drawn
def draw_learner(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Return the name of a learner, and its parameters."""
    pick = rng.choice
    name = pick(
        ["OML", "OML", "OML", "OML", "OML", "KNN", "KNN", "PublishedOML", "OSMLELM", "OLANSGD"]
    )
    if name == "OSMLELM":
        ridge = pick([None, "auto", 0.1])
        solver = "recursion" if ridge is None else pick(["recursion", "qr"])
        return name, {
            "n_hidden": pick([1, 3, 12]), "ridge": ridge, "solver": solver,
            "scale": pick(["auto", None]), "random_state": 0,
        }  # fmt: skip
    if name == "OLANSGD":
        return name, {
            "alpha": pick(["cv", 0.01]), "rule": pick(["auto", "threshold"]),
            "first_block": pick([1, 24, 200]), "scale": pick(["auto", None]),
        }  # fmt: skip
    params: dict[str, Any] = {"window": pick(WINDOWS), "n_neighbors": pick([1, 3, 10])}
    if name == "PublishedOML":
        steps = ["cubic", "printed", "exact"]
        params |= {"first_block": pick([1, 24, 200]), "step": pick(steps), "random_state": 0}
        return name, params | {"update": pick(["inverse", "linear"])}
    params |= {"head": pick([True, True, False]), "lag": pick([0, 0, 0, 3])}
    params["decide"] = pick(["balanced", "f1", 0.5, 0.0, "top1", "hamming"])
    if name == "KNN":
        return name, params | {"vote": "majority" if params["head"] else pick(["majority", "map"])}
    return name, params | {
        "n_components": pick([None, None, 1, 2]),
        "step": pick(["exact", "exact", "convex"]),
        "ridge": pick(["auto", "auto", "auto", 0.0, 1.0, 1e-12]),
        "scale": pick(["auto", "auto", "standard", "unit", None]),
        "lift": pick(["auto", "auto", "kernel", "fourier", None]),
        "random_state": 0,
    }


def draw_items(rng: random.Random, n: int) -> tuple[Featurizer, Any]:
    """Return a featurizer, and ``n`` items of few kinds, in runs or mixed."""
    kind = rng.choice(["texts", "texts", "numbers", "numbers", "named"])
    few = rng.choice([1, 1, 1, 2, 2, 3])
    if kind == "texts":
        pool: list[Any] = rng.choices(TEXTS, k=few)
    elif kind == "named":
        pool = rng.choices(NAMED, k=few)
    else:
        p, values = rng.choice([1, 1, 2, 5]), rng.choices(VALUES, k=rng.choice([1, 1, 2]))
        pool = [rng.choices(values, k=p) for _ in range(few)]
    if rng.random() < 0.4:  # the last kind comes late, or in the middle only
        edges = sorted(rng.randrange(n + 1) for _ in range(2))
        chosen = [len(pool) - 1 if edges[0] <= i < edges[1] else 0 for i in range(n)]
    else:
        chosen = rng.choices(range(len(pool)), k=n)
    items = [pool[i] for i in chosen]
    if kind == "numbers":
        return Columns(len(pool[0])), np.array(items, float)
    size = rng.choice([2, 16, 512])
    return (Text(n_features=size) if kind == "texts" else Named(size)), items


def draw_tags(rng: random.Random, n: int, *, many: bool) -> tuple[Any, Any, Any]:
    """Return the tags of each item, those that are not known, and their names if declared."""
    q = MANY if many else rng.choice([1, 1, 1, 2, 3])
    names = tuple(f"t{j}" for j in range(q))
    kind = rng.choice(["one", "none", "all", "mixed", "mixed", "late"])
    chosen: list[Any] = []
    for i in range(n):
        if kind == "one":
            chosen.append(names[:1])
        elif kind == "all":
            chosen.append(names)
        elif kind == "none" or (kind == "late" and i < n // 2):
            chosen.append(())
        else:
            chosen.append(tuple(name for name in names if rng.random() < (0.01 if many else 0.4)))
    unknown = None
    if rng.random() < 0.3:
        share = rng.choice([0.1, 0.5, 1.0])
        unknown = [tuple(name for name in names if rng.random() < share) for _ in range(n)]
        both = zip(chosen, unknown, strict=True)
        chosen = [tuple(name for name in mine if name not in gone) for mine, gone in both]
    declared = names if unknown is not None or many or rng.random() < 0.3 else None
    return chosen, unknown, declared


def draw_changes(rng: random.Random, batch: Batch, name: str) -> dict[int, list[Any]]:
    """Return corrections, by the number of the record that they come before."""
    if name not in ("OML", "KNN") or rng.random() < 0.6:
        return {}
    changes: dict[int, list[Any]] = {}
    for _ in range(rng.choice([1, 3, 10])):
        at, tags = rng.randrange(1, len(batch) + 1), batch.label_sets[rng.randrange(len(batch))]
        kinds = ["relabel", "relabel", "forget", "remove", "merge", "rename"]
        kinds += ["refit"] if name == "OML" else []
        changes.setdefault(at, []).append((rng.choice(kinds), rng.randrange(at), tags))
    return changes


def make_case(number: int) -> Case:
    """Return what a case does."""
    rng = random.Random(number)
    name, params = draw_learner(rng)
    many = rng.random() < 0.03
    n = rng.randrange(1, 41 if many else 301 if rng.random() < 0.3 else 80)
    featurizer, items = draw_items(rng, n)
    tags, unknown, declared = draw_tags(rng, n, many=many)
    batch = Batch(items, tags, unknown, label_names=declared)
    changes = draw_changes(rng, batch, name)
    inner = {rng.randrange(n + 1) for _ in range(rng.choice([1, 2, 5]))}
    if rng.random() < 0.1:
        inner |= set(range(n))  # one by one
    cuts = sorted({0, n, *inner})
    # What is newer is drawn last, so that older cases stay what they were.
    if params.get("head") and rng.random() < 0.3:
        params["decide"] = rng.choice(["macro", "precision95", "recall90"])
    names = rng.random() < 0.8
    if name in ("OML", "KNN") and rng.random() < 0.3:
        draw_answers(rng, n, changes)
    return Case(name, params, featurizer, batch, cuts, changes, names)


def draw_answers(rng: random.Random, n: int, changes: dict[int, list[Any]]) -> None:
    """Add what people say about tags, by the number of the record that it comes before."""
    kinds = ["declare", "describe", "refuse", "accept", "promise", "refit"]
    for _ in range(rng.choice([1, 3, 10])):
        at = rng.randrange(1, n + 1)
        changes.setdefault(at, []).append((rng.choice(kinds), rng.randrange(at), ()))


# ---------------------------------------------------------------------- what is done with it
def change(tagger: Tagger, kind: str, number: int, tags: Any) -> None:
    """Make a correction, if there is something to correct."""
    known, ids = tagger.tags, tagger.ids
    if kind == "refit":
        if tagger.n_items and hasattr(tagger.learner, "refit"):
            tagger.refit()
    elif kind in ("declare", "describe"):
        if isinstance(tagger.featurizer, Text) and tagger.names and tagger.learner.head:
            tide = f"tide {number % 3}"
            tagger.declare([tide])
            tagger.describe(tide, "low tide at seven" if kind == "describe" else "")
    elif kind == "promise" and known:
        mode = ("auto", "suggest", "never")[number % 3]
        if mode != "auto" or tagger.learner.head:
            tagger.promise(known[number % len(known)], mode, 0.8)
    elif kind in ("refuse", "accept") and known and ids:
        getattr(tagger, kind)(known[number % len(known)], [ids[number % len(ids)]])
    elif kind == "relabel" and ids:
        tagger.relabel(ids[number % len(ids)], tags)
    elif kind == "forget" and ids:
        tagger.forget(ids[number % len(ids)])
    elif kind == "remove" and len(known) > 1:
        tagger.remove(known[number % len(known)])
    elif kind == "merge" and len(known) > 1:
        tagger.merge(known[:2], known[1])
    elif kind == "rename" and known:
        tagger.rename(known[0], f"{known[0]}'")


def learn(tagger: Tagger, case: Case, first: int, last: int) -> None:
    """Learn the records from ``first`` to before ``last``, and make the changes among them."""
    stops = sorted({first, last, *(at for at in case.changes if first < at < last)})
    for start, stop in itertools.pairwise(stops):
        tagger.learn(case.batch.cut(start, stop))
        for what in case.changes.get(stop, ()):
            change(tagger, *what)


def saved(tagger: Tagger, folder: Path) -> tuple[Tagger, bytes]:
    """Save a tagger; return the one that the file holds, and the file."""
    path = folder / "model.tgs"
    tagger.save(path)
    return Tagger.open(path), path.read_bytes()


def check_scores(tagger: Tagger, case: Case) -> None:
    """Ask for tags of some records."""
    for suggestion in tagger.suggest(case.batch.cut(0, min(5, len(case.batch)))):
        assert all(0 <= score <= 1 for score in suggestion.scores.values()), suggestion


def check_lists(tagger: Tagger, case: Case) -> None:
    """Ask for what the model knows besides suggestions."""
    if not hasattr(tagger.learner, "ask_stored"):
        return
    for tag in tagger.tags[:2]:
        assert all(0 <= found.score <= 1 for found in tagger.candidates(tag, 3))
    assert len(tagger.review(3)) <= 3
    assert len(tagger.similar_tags(3)) <= 3
    assert all(len(group.ids) > 1 for group in tagger.duplicates())
    assert all(kept.tag in tagger.tags for kept in tagger.promises)
    if tagger.learner.head:
        assert [health.tag for health in tagger.tag_health()] == tagger.tags
        assert str(tagger.explain(case.batch.cut(0, 1)))


def exercise(number: int, folder: Path) -> str:
    """Run one case; return the name of its learner, or raise."""
    case = make_case(number)
    cut, opened = case.tagger(), None
    for k, (first, last) in enumerate(itertools.pairwise(case.cuts)):
        learn(cut, case, first, last)
        if opened is not None:
            learn(opened, case, first, last)
        if k < 3 or last == len(case.batch):
            again, data = saved(cut, folder)
            assert saved(again, folder)[1] == data, f"a loaded model is another, after {last}"
            opened = again if opened is None else opened
            check_scores(cut, case)
    whole = case.tagger()
    learn(whole, case, 0, len(case.batch))
    check_lists(whole, case)
    assert opened is not None
    assert saved(opened, folder)[1] == data, "a model that was saved half-way went another way"
    assert saved(whole, folder)[1] == data, f"cuts at {case.cuts[1:-1]} matter"
    return case.learner


def run(n: int, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Run ``n`` cases; return counts by learner, and a line for each case that failed."""
    counts: Counter[str] = Counter()
    failures = []
    # Files need not outlive the machine, and to see to that takes longer than all the rest.
    unsafe = mock.patch("os.fsync")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), unsafe:
        warnings.simplefilter("error")
        for number in range(first, first + n):
            try:
                counts[exercise(number, Path(folder))] += 1
            except Exception as error:  # noqa: PERF203  # what a case may find is any of them
                counts["failed"] += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                failures.append(
                    f"case {number}: {what} ({Path(where.filename).name}:{where.lineno})"
                )
    return counts, failures


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz learners with dull data.")
    parser.add_argument("n", type=int, nargs="?", default=10_000, help="how many cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run this one case, with its traceback")
    args = parser.parse_args()
    if args.case is not None:
        warnings.simplefilter("error")
        case = make_case(args.case)
        print(case._replace(batch=len(case.batch)), case.batch.items[:3], case.batch.label_sets[:3])
        with tempfile.TemporaryDirectory() as folder:
            print(exercise(args.case, Path(folder)))
        return 0
    counts, failures = run(args.n, args.first)
    print("\n".join([*failures, json.dumps(counts)]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
