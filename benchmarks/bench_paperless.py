"""Beside the classifier of paperless-ngx: ``python -m benchmarks.bench_paperless [--quick]``.

paperless-ngx (3.0) counts words and pairs of words in at least 1 % of the documents and trains one
neural network for all tags: ``CountVectorizer(ngram_range=(1, 2), min_df=0.01)`` and
``MLPClassifier(tol=0.01)`` of scikit-learn.  It trains anew on all documents, once an hour if
something has changed.  That is written again here, from the description of its settings.

The documents are the package descriptions in the folder that ``TAGSTREAM_TEXT`` names.  They are
short, one line each, which does not suit a limit of 1 %: so the network is also run with words of
two documents or more.  The first four fifths are learnt, the rest is tagged.  Each contender runs
in a process of its own, on one thread, and seconds are processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import peak, seconds

CONTENDERS = {
    "tagstream": "tagstream",
    "network": "CountVectorizer + MLPClassifier, words in 1 % of the documents",
    "network, all words": "the same, words in 2 documents or more",
}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def documents(quick: bool) -> list[dict[str, Any]]:
    path = Path(os.environ["TAGSTREAM_TEXT"]) / "packages.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[: 1000 if quick else None]]


def micro_f1(told: list[set[str]], true: list[set[str]]) -> float:
    """Return 2·hits / (suggested + given).

    >>> micro_f1([{"a"}, {"b"}], [{"a"}, {"c"}])
    0.5
    """
    hits = sum(len(a & b) for a, b in zip(told, true, strict=True))
    return 2 * hits / sum(len(a) + len(b) for a, b in zip(told, true, strict=True))


def run_tagstream(learnt: list[Any], asked: list[Any], more: Any) -> dict[str, Any]:
    from tagstream import Tagger
    from tagstream.tagger import warm_up

    warm_up()
    tagger = Tagger()

    def learn() -> None:
        tagger.learn(learnt)
        tagger.refit()

    spent = seconds(learn)
    told: list[set[str]] = []
    ask = seconds(lambda: told.extend({*one.tags} for one in tagger.suggest(asked)))
    again = seconds(lambda: tagger.learn([more]))
    return {"told": told, "learn": spent, "ask": ask, "again": again}


def run_network(learnt: list[Any], asked: list[Any], more: Any, min_df: Any) -> dict[str, Any]:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import MultiLabelBinarizer

    made: dict[str, Any] = {}

    def learn(documents: list[Any]) -> None:
        words = CountVectorizer(analyzer="word", ngram_range=(1, 2), min_df=min_df)
        tags = MultiLabelBinarizer()
        X = words.fit_transform([one["text"].lower() for one in documents])
        Y = tags.fit_transform([one["y"] for one in documents])
        made.update(
            words=words, tags=tags, network=MLPClassifier(tol=0.01, random_state=0).fit(X, Y)
        )

    spent = seconds(lambda: learn(learnt))
    told: list[set[str]] = []

    def ask() -> None:
        X = made["words"].transform([one["text"].lower() for one in asked])
        chosen = made["tags"].inverse_transform(made["network"].predict(X))
        told.extend(map(set, chosen))

    spent_asking = seconds(ask)
    again = seconds(lambda: learn([*learnt, more]))  # there is no other way to learn one more
    return {"told": told, "learn": spent, "ask": spent_asking, "again": again}


def contend(name: str, quick: bool) -> dict[str, Any]:
    """Run one contender in this process."""
    items = documents(quick)
    cut = len(items) * 4 // 5
    learnt, asked = items[:cut], items[cut:]
    questions = [{"text": one["text"]} for one in asked]
    if name == "tagstream":
        found = run_tagstream(learnt, questions, asked[0])
    else:
        found = run_network(learnt, questions, asked[0], 0.01 if name == "network" else 2)
    told, true = found.pop("told"), [{*one["y"]} for one in asked]
    empty = float(np.mean([not tags for tags in told]))
    return {"f1": micro_f1(told, true), "empty": empty, **found, "peak": peak(), "n": len(learnt)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(contend(given.one, given.quick)))
        return
    print("| | micro-F1 | without a tag | learn all, s | one more document, s | peak memory, MB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, title in CONTENDERS.items():
        command = [sys.executable, "-m", "benchmarks.bench_paperless", "--one", name]
        command += ["--quick"] if given.quick else []
        done = subprocess.run(command, check=True, env={**os.environ, **ONE_THREAD}, stdout=-1)
        one = json.loads(done.stdout)
        row = f"{one['f1']:.3f} | {one['empty']:.0%} | {one['learn']:.1f} | {one['again']:.3g}"
        print(f"| {title} | {row} | {1000 * one['peak']:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
