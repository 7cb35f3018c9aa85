"""Lines: unpacked from anything, in bounded memory, and counted so that reading can go on."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import os
import subprocess
import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tagstream.checks import DataError
from tagstream.data import Tally, iter_csv, iter_jsonl, iter_libsvm, load
from tagstream.records.lines import Lines

# a busy machine is not a failure
fuzz = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

PACKERS = [bytes, gzip.compress, bz2.compress]


def take_all(source, n: int) -> list[bytes]:
    with Lines(source) as lines:
        found: list[bytes] = []
        while block := lines.take(n):
            found += block
        assert lines.number == len(found)
    return found


@fuzz
@given(st.lists(st.binary(max_size=30), max_size=8), st.integers(1, 6), st.integers(1, 9))
def test_lines_are_those_of_the_bytes_however_they_are_read(parts, n, piece):
    content = b"\n".join(parts).removeprefix(b"\xef\xbb\xbf")
    if content[:2] == b"\x1f\x8b" or content[:3] == b"BZh":
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tagstream.records.lines._PIECE", piece)
        patch.setattr("tagstream.records.lines._MAX_PIECES", 3)
        patch.setattr("tagstream.records.lines._MAX_CHUNK", 20)
        tally = Tally(io.BytesIO(content))
        assert take_all(tally, n) == list(io.BytesIO(content))
        assert tally.so_far() == {
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }


@fuzz
@given(st.lists(st.text(max_size=30), max_size=8), st.integers(1, 9))
def test_text_streams_give_the_same_lines(parts, piece):
    content = "\n".join(parts).removeprefix("\ufeff")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tagstream.records.lines._PIECE", piece)
        expected = [line.encode() for line in io.StringIO(content, newline="\n")]
        assert take_all(io.StringIO(content, newline="\n"), 3) == expected


def test_long_lines_are_read_few_at_a_time():
    packed = bz2.compress((b"x" * (1 << 22) + b"\n") * 12)
    assert len(packed) < 5000
    with Lines(io.BytesIO(packed)) as lines:
        sizes = [len(lines.take(1024)) for _ in range(4)]
    assert sizes == [4, 4, 4, 0]


def test_what_stands_before_a_line_that_is_too_long_is_read_first(monkeypatch):
    monkeypatch.setattr("tagstream.records.lines._MAX_LINE", 640)
    monkeypatch.setattr("tagstream.records.lines._PIECE", 10)
    tally = Tally(io.BytesIO(b"one\ntwo\n" + b"x" * 2000 + b"\nfour\n"))
    with Lines(tally) as lines:
        assert lines.take(100) == [b"one\n", b"two\n"]
        assert tally.n_bytes == 8
        with pytest.raises(DataError, match="3: a line must have at most 640 bytes"):
            lines.take(100)
    fits = b"x" * 639 + b"\n"
    assert take_all(io.BytesIO(fits + b"two\n"), 9) == [fits, b"two\n"]


def test_a_read_error_is_told_after_the_rows_before_it():
    whole = b"1 1:1\n" * 3000 + b"2 1:bad\n" + os.urandom(5000).hex().encode()
    packed = gzip.compress(whole)[:-2000]
    for chunk in (1, 7, 100_000):
        with pytest.raises(DataError, match=r"^<stream>:3001: a record must be"):
            list(iter_libsvm(io.BytesIO(packed), chunk=chunk))


@pytest.mark.parametrize("pack", PACKERS)
def test_a_path_is_opened_once_so_that_it_may_be_a_pipe(pack, tmp_path):
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    content = pack(b'{"x": [1], "y": ["a"]}\n' * 5000)
    writer = threading.Thread(target=pipe.write_bytes, args=(content,), daemon=True)
    writer.start()
    assert load(pipe).Y.shape == (5000, 1)
    writer.join()


@pytest.mark.parametrize("pack", PACKERS)
def test_standard_input_is_unpacked(pack):
    code = "from tagstream.data import iter_jsonl; print(sum(map(len, iter_jsonl('-'))))"
    content = pack(b'{"x": [1]}\n' * 1000)
    found = subprocess.run(
        [sys.executable, "-c", code], input=content, capture_output=True, check=True
    )
    assert found.stdout.split() == [b"1000"]


@pytest.mark.parametrize("pack", PACKERS)
def test_file_objects_are_unpacked(pack, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(pack(b"one\ntwo\n"))
    with path.open("rb") as file:
        assert take_all(file, 5) == [b"one\n", b"two\n"]
    assert take_all(io.BytesIO(path.read_bytes()), 5) == [b"one\n", b"two\n"]
    assert take_all(path, 5) == [b"one\n", b"two\n"]


def begins_with(now, position):
    tally = Tally(io.BytesIO(now), position)
    while tally.readline():
        pass
    return tally.matches


CONTENT = b'{"x": [1]}\n\n{"x": [2]}\r\n{"x": [3]}'


@pytest.mark.parametrize("pack", PACKERS)
def test_a_tally_tells_what_the_batches_so_far_were_made_of(pack):
    tally = Tally(io.BytesIO(pack(CONTENT)))
    positions = [tally.so_far() for _ in iter_jsonl(tally, chunk=1)]
    assert [position["bytes"] for position in positions] == [11, 24, 34]
    for position in positions:
        assert position["sha256"] == hashlib.sha256(CONTENT[: position["bytes"]]).hexdigest()
        assert begins_with(pack(CONTENT), position)


def test_a_record_of_several_lines_is_counted_when_it_is_complete():
    tally = Tally(io.BytesIO(b'text\n"a\nb"\nc\n'))
    assert tally.first_line() == b"text\n"
    assert tally.n_bytes == 0
    batches = iter_csv(tally, text="text", chunk=1)
    assert next(batches).items == ["a\nb"]
    assert tally.n_bytes == len(b'text\n"a\nb"\n')


@pytest.mark.parametrize(
    ("now", "begins"),
    [
        (CONTENT, True),
        (CONTENT + b"\n", True),
        (CONTENT + b'\n{"x": [4]}\n', True),
        (CONTENT + b'\r\n{"x": [4]}', True),
        (CONTENT + b" ", False),
        (CONTENT + b'{"x": [4]}\n', False),
        (CONTENT[:-1], False),
        (CONTENT.replace(b"2", b"5"), False),
        (b"", False),
    ],
)
def test_a_file_that_got_its_last_line_end_and_more_is_still_the_same(now, begins):
    tally = Tally(io.BytesIO(CONTENT))
    assert sum(len(batch) for batch in iter_jsonl(tally)) == 3
    assert begins_with(now, tally.so_far()) == begins


def test_nothing_read_is_how_every_file_begins():
    assert begins_with(b"any", Tally(io.BytesIO(b"")).so_far())


HOSTILE = """
import io, os, resource, sys, zlib
from tagstream.checks import DataError
from tagstream.data import iter_arff, iter_csv, iter_jsonl, iter_libsvm, iter_lines, load

os.chdir(sys.argv[1])
limit = 3 << 29  # 1.5 GiB of addresses, of which the libraries take a part
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

def packed(*repeated):
    packer = zlib.compressobj(1, wbits=31)
    return io.BytesIO(
        b"".join(packer.compress(part) for part, n in repeated for _ in range(n)) + packer.flush()
    )

def drain(batches):
    try:
        return sum(len(getattr(batch, "Y", batch)) for batch in batches)
    except DataError as error:
        return str(error)[:60]

long = (b"x" * (1 << 23) + b"\\n", 30)
word = (b"x" * (1 << 20), 30)
nested = (b"[" + b"[]," * (1 << 22) + b"[]]\\n", 3)
numbers = (b'{"x": [' + b"0," * (1 << 20) + b"0]}\\n", 30)
rows = (b"{}\\n" * 1000, 20)
header = "@relation 'a: -C 50000'\\n" + "".join(f"@attribute {i} {{0,1}}\\n" for i in range(60_000))
with open("labels.jsonl", "w") as file:
    file.writelines(f'{{"x": [0], "y": ["{i}"]}}\\n' for i in range(60_000))
print(drain(iter_libsvm(io.BytesIO(b"1 5 30000000\\n1 1:1\\n"))))
print(drain(iter_libsvm(io.BytesIO(b"1 2147483646:1\\n"))))
print(drain(iter_libsvm(packed(long))))
print(drain(iter_lines(packed(long))))
print(drain(iter_lines(packed(word))))
print(drain(iter_csv(packed((b"text\\n", 1), long), text="text")))
print(drain(iter_jsonl(packed(nested))))
print(drain(iter_jsonl(packed(numbers))))
print(drain(iter_jsonl("labels.jsonl")))
try:
    load("labels.jsonl")
except DataError as error:
    print(str(error)[:60])
open("a.arff", "wb").write(packed(((header + "@data\\n").encode(), 1), rows).getvalue())
try:
    load("a.arff")
except DataError as error:
    print(str(error)[:60])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_small_hostile_files_stay_within_the_memory_that_is_said(tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", HOSTILE, tmp_path], capture_output=True, text=True, check=False
    )
    assert found.stderr == ""
    assert found.stdout.splitlines() == [
        "<stream>:1: must have at most 1048576 labels, got a header w",
        "<stream>:1: an index must be from 1 to 16777216, got 2147483",
        "<stream>:1: a record must be 'label,label index:value ...' i",
        "30",
        "<stream>:1: a line must have at most 16777216 bytes; is this",
        "30",
        "<stream>:1: must be one JSON object per line, got an array; ",
        "30",
        "60000",
        "labels.jsonl: must have at most 536,870,912 records times la",
        "a.arff: must have at most 536,870,912 records times labels t",
    ]
