"""A fuzzer of input files: sound files of every text format, damaged here and there.

A damaged file must be refused with a :class:`DataError` of one line that says where, or be read as
records that make sense.  And it must not matter how many records are read at a time: the same
records, or the same complaint.  Case ``n`` is the same whenever it is run::

    python tests/fuzz_inputs.py 10000              # cases 0 to 9999
    python tests/fuzz_inputs.py 10000 --first 5000
    python tests/fuzz_inputs.py --case 1234        # one case, with its traceback

Parquet files and workbooks are not among them: pyarrow and calamine read their bytes.  Folders are
not either.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import json
import random
import sys
from collections import Counter
from typing import Any

import numpy as np
from scipy import sparse

from tagstream.checks import DataError
from tagstream.data import FORMATS, Batch, Dataset

MEMORY = 3 << 30  # bytes of address space of a run from the command line
LONGEST = 600  # characters of a message

DENSE = """@relation 'weather: -C -2'
% a comment
@attribute temperature numeric
@attribute 'wind speed' real
@attribute sky {clear, cloudy, "very dark"}
@attribute sea {0,1}
@attribute sun {no,yes}
@data
21.5,3,clear,1,yes
?, 1e1, 'very dark', 0, no

-3.25,0.5,cloudy,0,?
7,7,clear,1,no
"""
SPARSE = """@relation words
@attribute a numeric
@attribute b numeric
@attribute c {0,1}
@attribute d {0,1}
@data
{0 1, 2 1}
{1 -2.5e-3,3 1}
{}
{0 12,1 7,2 1,3 1}
"""
PLAIN = """1,3 1:0.5 7:2 9:-1e-3
2 2:1
 3:4 # nothing applies
1 1:1 2:1 3:1
"""
HEADED = """3 12 5
0,4 0:1.5 11:2
 3:1
2 1:7 2:0.25
"""
POSTS = """{"id": 1, "text": "Low tide at seven", "y": ["sea"]}
{"id": "b", "text": "Sun, and a \\u2600 breeze", "y": ["sun", "sea"]}
{"text": "who knows", "y": null}

{"id": 4, "text": "", "y": []}
"""
ARRAY = """[
{"id": 1, "text": "Low tide at seven", "y": ["sea"]},
{"text": "who knows", "y": null},
{"id": 4, "text": "", "y": []}
]
"""
NUMBERS = """{"x": [0, 1.5, -2e-3], "y": ["a"]}
{"x": [1, 2, 3]}
{"x": [0.0, 0, 1e10], "y": ["b", " a "]}
"""
NAMED = """{"x": {"wind": 3, "sky": "clear"}, "y": ["a"]}
{"x": {}, "y": []}
{"x": {"wind": 1.5}, "y": ["b"]}
"""
TABLE = """id,temperature,wind,tag_sea,tag_sun
1,21.5,3,1,0
2,,1e1,0,1
x,-3,.5,,0
"""
LETTERS = """body\ttags
"Low tide\nat seven"\tsea, sun
plain text\t
"a ""quoted"" word"\tsun
"""
WORDS = """id;text;y;when
1;Low tide;sea;noon
2;"Sun; and a breeze";sun;
;who knows;?;
4;rain;  wet ;7
"""
FLAGS = """a,text,y
1,2,
0,0,1
3,.5,0
"""
LINES = "Low tide\n\nSun and a breeze ☀\nlast\n"
SEEDS: list[tuple[str, dict[str, Any], str]] = [
    ("arff", {}, DENSE),
    ("arff", {"labels": -2}, SPARSE),
    ("arff", {"labels": ["c", "d"], "missing": 0.0}, SPARSE),
    ("csv", {"labels": "tag_", "ids": "id"}, TABLE),
    ("csv", {}, WORDS),
    ("csv", {"labels": "y"}, FLAGS),
    ("jsonl", {}, POSTS),
    ("jsonl", {}, NUMBERS),
    ("jsonl", {}, NAMED),
    ("jsonl", {}, ARRAY),
    ("libsvm", {}, PLAIN),
    ("libsvm", {}, HEADED),
    ("lines", {}, LINES),
    ("tsv", {"text": "body", "labels": "tags", "sep": ","}, LETTERS),
]
PIECES = [
    *("", "0", "1", "-1", "?", "nan", "inf", "-inf", "1e999", "1e-999", "0x1", "1_0", "\u0661"),
    *("9999999999", "-0", "2147483647", "2147483648", "18446744073709551616", "1" * 400, "a" * 70),
    *(",", ",,", ";", ":", "::", " ", "\t", "\n", "\n\n", "\r", "\r\n", "\0", "\\", "\\u", "\x1a"),
    *("'", '"', '""', "{", "}", "[", "]", "{}", "[]", "%", "#", "@", "@data", "@attribute", "-C 1"),
    *("null", "true", "NaN", "Infinity", '"y"', '"x"', '"text"', '"id"', "yes", "no", "\ufeff"),
    *("[" * 2000, '{"x": ' * 500, "\u2028", "\x85", "\U0001f600", " " * 300),
]
BYTES = [b"\xff", b"\xfe\xff", b"\xc3", b"\xed\xa0\x80", b"\x80", b"\x1f\x8b", b"BZh9"]


def damage(rng: random.Random, raw: bytes) -> bytes:
    """Return the bytes with one change."""
    i, j = sorted(rng.randrange(len(raw) + 1) for _ in range(2))
    kind = rng.random()
    if kind < 0.3:  # one byte
        return raw[:i] + bytes([rng.randrange(256)]) + raw[i + 1 :]
    if kind < 0.6:  # a piece that means something, put in or put over
        piece = rng.choice(BYTES) if rng.random() < 0.1 else rng.choice(PIECES).encode()
        return raw[:i] + piece + raw[i + rng.choice([0, 0, 1, len(piece)]) :]
    if kind < 0.7:
        return raw[:i] + raw[i + rng.choice([1, 2, 5, 30]) :]
    if kind < 0.75:
        return raw[:i]
    if kind < 0.85:  # a part once more, here or there
        k = rng.randrange(len(raw) + 1)
        return raw[:k] + raw[i:j] * rng.choice([1, 1, 2, 9]) + raw[k:]
    lines = raw.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    if kind < 0.95:
        lines[a], lines[b] = lines[b], lines[a]
        return b"\n".join(lines)
    other = rng.choice(SEEDS)[2].encode().split(b"\n")
    lines[a] = rng.choice(other)
    return b"\n".join(lines)


def make_case(number: int) -> tuple[str, dict[str, Any], bytes, int]:
    """Return the format, the reader's options, the bytes, and how many records at a time."""
    rng = random.Random(number)
    name, options, text = SEEDS[number % len(SEEDS)]
    raw = text.encode()
    for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
        raw = damage(rng, raw)
    kind = rng.random()
    if kind < 0.04:
        raw = gzip.compress(raw, 1, mtime=0) if kind < 0.02 else bz2.compress(raw, 1)
        if rng.random() < 0.7:
            raw = damage(rng, raw)
    return name, options, raw, rng.choice([1, 2, 3, 7])


def outcome(name: str, options: dict[str, Any], raw: bytes, chunk: int) -> str | list[Any]:
    """Return the message with which a file is refused, or its records."""
    records: list[Any] = []
    try:
        for part in FORMATS[name].reader(io.BytesIO(raw), chunk=chunk, **options):
            batch = part.as_batch() if isinstance(part, Dataset) else part
            assert 0 < len(batch) <= chunk, f"a batch of {len(batch)}"
            records += plain(batch, can_miss=name in ("arff", "csv", "tsv"))
    except DataError as error:
        message = str(error)
        assert message.startswith("<stream>"), message
        assert "\n" not in message, "a message of several lines"
        assert len(message) < LONGEST, "a long message"
        return message
    return records


def plain(batch: Batch, *, can_miss: bool) -> list[Any]:
    """Return the records of a batch as values that can be compared."""
    items: Any = batch.items
    if sparse.issparse(items):
        items.check_format(full_check=True)
        assert np.isfinite(items.data).all() or can_miss
        rows = [items[i : i + 1] for i in range(items.shape[0])]
        items = [(row.indices.tolist(), row.data.tolist()) for row in rows]
    elif not isinstance(items, list):
        assert not np.isinf(items).any()
        assert can_miss or not np.isnan(items).any()
        items = items.tolist()
    labels, ids = batch.label_sets, batch.ids or [None] * len(batch)
    unknown = batch.unknown or [()] * len(batch)
    assert len(items) == len(labels) == len(ids) == len(unknown)
    for some in labels:
        assert some is None or len(set(some)) == len(some), "a tag twice"
    return [repr(record) for record in zip(items, labels, ids, unknown, strict=True)]


def exercise(number: int) -> str:
    """Run one case; return "refused" or "read", or raise."""
    name, options, raw, chunk = make_case(number)
    at_once = outcome(name, options, raw, 1000)
    cut = outcome(name, options, raw, chunk)
    assert cut == at_once, f"{chunk} at a time: {cut!r}, all at once: {at_once!r}"
    return "refused" if isinstance(at_once, str) else "read"


def run(n: int, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Run ``n`` cases; return counts, and a line for each that failed."""
    counts: Counter[str] = Counter()
    failures = []
    for number in range(first, first + n):
        try:
            counts[exercise(number)] += 1
        except Exception as error:  # noqa: PERF203  # what a case may find is any of them
            counts["failed"] += 1
            what = " ".join(str(error).split())[:300]
            failures.append(
                f"case {number} ({SEEDS[number % len(SEEDS)][0]}): {type(error).__name__}: {what}"
            )
    return counts, failures


def limit() -> None:
    """Bound the memory of this process, where that can be done."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz input files.")
    parser.add_argument("n", type=int, nargs="?", default=10_000, help="how many cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run this one case, with its traceback")
    args = parser.parse_args()
    limit()
    if args.case is not None:
        print(make_case(args.case))
        print(exercise(args.case))
        return 0
    counts, failures = run(args.n, args.first)
    print("\n".join([*failures, json.dumps(counts)]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
