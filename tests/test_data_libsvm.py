"""Multi-label LIBSVM files with and without the header of the extreme classification repository."""

from __future__ import annotations

import gzip
import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tagstream.checks import DataError
from tagstream.data import iter_libsvm, load
from tagstream.records.dataset import collect

# a busy machine is not a failure
fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read(text: str | bytes, **options):
    stream = io.BytesIO(text.encode() if isinstance(text, str) else text)
    return collect(iter_libsvm(stream, **options), path="<stream>", name="toy", numeric=True)


def test_plain_records_by_hand():
    data = read("3,10 1:0.5 4:-2 # first\n 2:1\n# only a comment\n\n10 \n")
    assert data.X.toarray().tolist() == [[0.5, 0, 0, -2], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert data.label_names == ("3", "10")
    assert data.Y.tolist() == [[1, 1], [0, 0], [0, 1]]


def test_records_with_a_header_count_from_0():
    data = read("3 5 4\n0,3 0:1.5\n \n2 4:1 1:2\n")
    assert data.X.toarray().tolist() == [[1.5, 0, 0, 0, 0], [0] * 5, [0, 2, 0, 0, 1]]
    assert data.label_names == ("0", "1", "2", "3")
    assert data.label_sets == [("0", "3"), (), ("2",)]


def test_the_base_can_be_chosen():
    assert read("1 0:7\n", zero_based=True).X.toarray().tolist() == [[7]]
    assert read("1 2 9\n1 2:7\n", zero_based=False).X.toarray().tolist() == [[0, 7]]


def test_sklearn_reads_the_same():
    from sklearn.datasets import load_svmlight_file

    text = b"1,3 1:0.25 3:4\n2 2:-1e-3\n 1:1\n"
    X, y = load_svmlight_file(io.BytesIO(text), multilabel=True)
    data = read(text)
    np.testing.assert_array_equal(data.X.toarray(), X.toarray())
    assert data.label_sets == [tuple(str(int(label)) for label in labels) for labels in y]


def test_without_a_declared_width_later_batches_may_be_wider():
    batches = list(iter_libsvm(io.BytesIO(b"1 1:1\n2 5:1\n"), chunk=1))
    assert [batch.items.shape for batch in batches] == [(1, 1), (1, 5)]
    assert read("1 1:1\n2 5:1\n", chunk=1).X.shape == (2, 5)
    assert read("1 1:1\n2 5:1\n", chunk=1, n_features=8).X.shape == (2, 8)


@pytest.mark.parametrize("chunk", [1, 2, 1000])
def test_a_bad_first_line_is_blamed_before_the_damage_behind_it(chunk):
    packed = bytearray(gzip.compress(b"not a record\n"))
    packed[-6] ^= 1  # of the checksum
    with pytest.raises(DataError, match="<stream>:1: a record must be"):
        read(bytes(packed), chunk=chunk)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:1\n1 1:2 1:3\n", "2: an index must not be repeated, got 1 twice"),
        ("1 0:1\n", "1: an index must be from 1 to 16777216, got 0; do indices count"),
        ("1 2147483646:1\n", "1: an index must be from 1 to 16777216, got 2147483646; if there"),
        (
            "1 5 30000000\n1 1:1\n",
            "1: must have at most 1048576 labels, got a header with 3",
        ),
        ("1 30000000 5\n1 1:1\n", "1: must have at most 16777216 features, got a header with 3"),
        ("Low tide in May\n", "1: a record must be 'label,label index:value ...' in finite"),
        ("1 9 2\n1 9:1\n", "2: an index must be from 0 to 8, got 9"),
        ("1 9 2\n2 1:1\n", "2: a label must be from 0 to 1 (see the header), got 2"),
        ("2 9 2\n1 1:1\n", "2: must have 2 records as the header says, got 1"),
        ("1.5 1:1\n", "1: a label must be an integer, got '1.5'"),
        ("1,,2 1:1\n", "1: a label must be an integer, got ''"),
        ("1 1:\n", "1: a record must be 'label,label index:value ...' in finite numbers, got '1:'"),
        ("1 1:nan\n", "1: a record must be"),
        ("1 1:1e999\n", "1: a record must be"),
        ("1 1:1:1\n", "1: a record must be"),
        ("1 1:1 2\n", "1: a record must be"),
        ("1 qid:3 1:1\n", "1: a record must be"),
        ("1 1:1\n\xff\n", "2: must be UTF-8 text"),
        ("1 99999999999999999999:1\n", "1: an index must be from 1"),
    ],
)
def test_a_bad_record_is_refused_with_its_line(text, message):
    with pytest.raises(DataError) as caught:
        read(text.encode("latin-1"))
    assert str(caught.value).startswith(f"<stream>:{message}")


def test_a_wide_file_is_read_if_its_width_is_said():
    assert read("1 2147483646:1\n", n_features=2**31 - 1).X.shape == (1, 2**31 - 1)
    assert read("1 30000000 5\n1 1:1\n", n_features=30_000_000).X.shape == (1, 30_000_000)
    with pytest.raises(ValueError, match="n_features must be from 1 to 2147483647"):
        read("1 1:1\n", n_features=2**31)


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "a.svm").write_text("")
    with pytest.raises(DataError, match=r"a\.svm: must hold at least one record"):
        load(tmp_path / "a.svm")


records = st.lists(
    st.tuples(
        st.lists(st.integers(0, 9), unique=True),
        st.dictionaries(st.integers(0, 7), st.floats(-1e9, 1e9).filter(bool)),
    ),
    min_size=1,
    max_size=12,
)


@fuzz
@given(records, st.integers(1, 5), st.booleans())
def test_what_is_written_is_read_whatever_the_chunks(rows, chunk, has_header):
    base = 0 if has_header else 1
    text = f"{len(rows)} 8 10\n" if has_header else ""
    for labels, x in rows:
        entries = " ".join(f"{j + base}:{value!r}" for j, value in x.items())
        text += f"{','.join(map(str, labels))} {entries}\n"
    data = read(text, chunk=chunk, n_features=8)
    assert data.label_sets == [tuple(map(str, sorted(labels))) for labels, _ in rows]
    assert data.X.has_canonical_format
    assert [dict(zip(r.indices.tolist(), r.data.tolist(), strict=True)) for r in data.X] == [
        dict(sorted(x.items())) for _, x in rows
    ]


@settings(fuzz, max_examples=300)
@given(st.binary(max_size=60) | st.text("0123456789:,. -+e#\n", max_size=60).map(str.encode))
def test_garbage_is_refused_or_makes_sense(garbage):
    try:
        data = read(garbage)
    except DataError:
        return
    assert data.X.shape[0] == len(data.Y) > 0
    assert np.isfinite(data.X.data).all()


@settings(fuzz, max_examples=200)
@given(st.text("0123456789:,. #x\n", max_size=60).map(str.encode), st.integers(1, 4))
def test_the_first_bad_line_is_blamed_whatever_the_chunk(garbage, chunk):
    def outcome(size: int) -> str:
        try:
            return repr(read(garbage, chunk=size).label_sets)
        except DataError as error:
            return str(error)

    assert outcome(chunk) == outcome(1000)
