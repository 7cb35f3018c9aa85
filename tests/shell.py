"""What the tests of the command line share: posts, tables, and ways to run a command."""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys

import numpy as np

WORDS = {
    "sea": ["swim", "beach", "wave", "sand", "tide"],
    "food": ["bread", "soup", "cook", "eat", "salt"],
    "code": ["python", "bug", "loop", "array", "class"],
}


SMALL = ("--hash-bits", "10")  # few features: quick


def posts(n, seed=0, first=0):
    """Return posts with one or two tags, told by their words."""
    rng = random.Random(seed)
    records = []
    for i in range(first, first + n):
        tags = rng.sample(sorted(WORDS), rng.choice([1, 1, 2]))
        words = [rng.choice(WORDS[tag]) for tag in tags for _ in range(5)]
        rng.shuffle(words)
        records.append({"id": f"p{i}", "text": " ".join(words), "y": tags})
    return records


def write_jsonl(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return str(path)


def without_ids(records):
    return [{key: record[key] for key in ("text", "y")} for record in records]


def records_of(out):
    return [json.loads(line) for line in out.splitlines()]


def is_one_line(err):
    return err.startswith("tagstream: ") and err.count("\n") == 1 and err.endswith("\n")


def song_table(n=80, seed=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).round(3)
    return X, np.column_stack([X[:, 0] > 0, X[:, 1] > 0]).astype(int)


def write_csv(path, X, Y, names=("calm", "loud"), ids=False):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(["song"] if ids else []), "a", "b", "c", *names])
        for i, (x, y) in enumerate(zip(X, Y, strict=True)):
            writer.writerow([*([f"s{i}"] if ids else []), *x, *y])
    return str(path)


def tagstream(*args, **kwargs):
    command = [sys.executable, "-m", "tagstream", *map(str, args)]
    return subprocess.Popen(command, stdout=-1, stderr=-1, text=True, **kwargs)
