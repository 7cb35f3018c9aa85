"""CSV and JSON Lines, from files and from streams; hashing; and the writers."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import string
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from tagstream.checks import DataError
from tagstream.data import (
    Dataset,
    Hashing,
    iter_csv,
    iter_jsonl,
    load,
    make_stream,
    write_arff,
    write_csv,
    write_jsonl,
    write_libsvm,
)

# a busy machine is not a failure
fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read_csv(content: str | bytes, **options):
    stream = io.BytesIO(content) if isinstance(content, bytes) else io.StringIO(content)
    return list(iter_csv(stream, **options))


def read_jsonl(*records, **options):
    text = "".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in records)
    return list(iter_jsonl(io.BytesIO(text.encode()), **options))


CSV = 'id,height,tag_sea,width,tag_sun\na1,1.5,1,-2e3,0\n"b,2",0,0,1,1\n'


@pytest.mark.parametrize("labels", ["tag_", ["tag_sea", "tag_sun"]])
def test_csv_label_columns_by_prefix_or_name(labels):
    (batch,) = read_csv(CSV, labels=labels, ids="id")
    assert batch.X.tolist() == [[1.5, -2000], [0, 1]]
    assert batch.feature_names == ("height", "width")
    assert batch.label_sets == [("tag_sea",), ("tag_sun",)]
    assert batch.label_names == ("tag_sea", "tag_sun")
    assert batch.ids == ("a1", "b,2")


def test_csv_label_columns_by_number():
    assert read_csv("a,b,c\n1,0,1\n", labels=1)[0].label_names == ("a",)
    assert read_csv("a,b,c\n1,0,1\n", labels=-2)[0].label_names == ("b", "c")


def test_csv_tag_column():
    (batch,) = read_csv('x,tags\n1,"sun; sea;sun"\n2,\n', labels="tags", sep=";")
    assert batch.label_sets == [("sun", "sea"), ()]
    assert batch.label_names is None


def test_csv_text_is_hashed_and_other_columns_are_ignored():
    hashing = Hashing(n_features=64)
    content = 'text,when,tags\n"a,\nb c",noon,x\n'
    (batch,) = read_csv(content, text="text", labels="tags", sep="|", hashing=hashing)
    assert batch.X.shape == (1, 64)
    np.testing.assert_array_equal(batch.X.toarray(), hashing.texts(["a,\nb c"]).toarray())


def test_csv_missing_features_and_unknown_labels():
    (batch,) = read_csv("a,b,t,u\n1,,1,\n?,2,0.0,1.0\n3,4,,?\n", labels=["t", "u"], missing=-1)
    assert batch.X.tolist() == [[1, -1], [-1, 2], [3, 4]]
    assert batch.label_sets == [("t",), ("u",), None]
    assert batch.unknown == [("u",), (), ()]
    assert math.isnan(read_csv("a\n?\n")[0].X[0, 0])


def test_csv_unknown_labels_become_a_mask(tmp_path):
    rows = "a,t,u\n1,1,0\n" * 1 + "2,1,1\n" * 300 + "3,?,1\n4,,\n"
    (tmp_path / "a.csv").write_text(rows)
    data = load(tmp_path / "a.csv", labels=["t", "u"])
    assert data.known[:301].all()
    assert data.known[301:].tolist() == [[False, True], [False, False]]
    assert data.Y[301:].tolist() == [[0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "0: must not be empty"),
        ("a,b\n1\n", {}, "2: a row must have 2 values, got 1"),
        ("a,b\n1,x\n", {}, "2: column 'b' must be a finite number, got 'x'"),
        ("a,b\n1,inf\n", {}, "2: column 'b' must be a finite number, got 'inf'"),
        ("a,b\n1,2\n1,2\n", {"labels": ["b"]}, "2: label 'b' must be 0 or 1, got '2'"),
        ("a,a\n1,2\n", {}, "1: column names must differ, got 'a' twice"),
        ("a,b\n1,2\n", {"labels": ["c"]}, "1: the columns must include 'c', got a, b"),
        ("a,b\n1,2\n", {"labels": "tag_"}, "1: a column's name must start with 'tag_'"),
        ("a,b\n1,2\n", {"labels": 2}, "1: the number of labels must be from 1 to 1, got 2"),
        ("a\n1\n", {"labels": ["a"]}, "1: must have a column that is a feature"),
        ('a,b\n1,"2\n3\n', {}, "3: must be comma-separated values, got unexpected end of data"),
        ('a,b\n1,"2"3\n', {}, "2: must be comma-separated values"),
        (b"a\n\xff\n", {}, "2: must be UTF-8 text"),
        (b"a\n\0\n", {}, "2: must be UTF-8 text, got a NUL"),
    ],
)
def test_bad_csv_is_refused_with_its_line(text, options, message):
    with pytest.raises(DataError) as caught:
        read_csv(text, **options)
    assert str(caught.value).startswith(f"<stream>:{message}")


def test_sep_needs_a_column():
    with pytest.raises(ValueError, match="sep must come with labels"):
        read_csv("a\n1\n", sep=";")


def test_jsonl_vectors():
    (batch,) = read_jsonl(
        {"id": "a", "x": [1, 2.5], "y": ["sea", "sun", "sea"], "t": 3},
        {"x": [0, 0], "y": []},
        "\n",
        {"x": [0, 1], "y": None},
    )
    assert batch.X.tolist() == [[1, 2.5], [0, 0], [0, 1]]
    assert batch.label_sets == [("sea", "sun"), (), None]
    assert batch.ids == ("a", None, None)


def test_jsonl_text_and_mappings_are_hashed():
    hashing = Hashing(n_features=32, normalize=False)
    (batch,) = read_jsonl({"text": "to be or not to be"}, hashing=hashing)
    assert np.abs(batch.X).sum() == 6
    (batch,) = read_jsonl({"x": {"height": 2.5, "colour": "red"}}, {"x": {}}, hashing=hashing)
    assert sorted(np.abs(batch.X.data)) == [1, 2.5]
    assert batch.X.shape == (2, 32)


def test_where_a_word_goes_depends_only_on_the_hashing():
    hashing = Hashing(n_features=128, ngrams=2, alternate_sign=False)
    again = Hashing(**json.loads(json.dumps(dataclasses.asdict(hashing))))
    assert again == hashing
    together = hashing.texts(["red car", "blue car"]).toarray()
    apart = [again.texts([text]).toarray()[0] for text in ("red car", "blue car")]
    np.testing.assert_array_equal(together, apart)


@pytest.mark.parametrize("options", [{"n_features": 0}, {"ngrams": 0}, {"n_features": 2**31}])
def test_hashing_refuses_nonsense(options):
    with pytest.raises(ValueError, match="must be"):
        Hashing(**options)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "must be a JSON object, got"),
        ("[1]", "must be a JSON object, got '[1]'"),
        ("[" * 100_000, "must be a JSON object"),
        ('{"y": []}', 'a record must have either "x" or "text"'),
        ('{"x": [1, 2], "text": ""}', 'a record must have either "x" or "text"'),
        ('{"x": [1]}', "x must have 2 values, got 1"),
        ('{"x": {"a": 1}}', "all records must have a vector like the first, got a mapping"),
        ('{"x": [1, "a"]}', "x must be a list of finite numbers or a mapping"),
        ('{"x": [1, NaN]}', "must be a JSON object, got the number NaN"),
        ('{"x": [1, 1e999]}', "x must be a list of finite numbers"),
        ('{"x": [1, 1' + "0" * 400 + "]}", "x must be a list of finite numbers"),
        ('{"x": {"a": null}}', "x must map names to finite numbers or strings, got None"),
        ('{"x": {"a": 1, "a": 2}}', "must be a JSON object, got a key that is repeated"),
        ('{"x": [1, 2], "y": "sea"}', "y must be a list of strings, got 'sea'"),
        ('{"x": [1, 2], "y": [1]}', "y must be a list of strings, got [1]"),
        ('{"x": [1, 2], "y": ["\\ud800"]}', "a string must be valid Unicode"),
        ('{"text": "\\udfff"}', "a string must be valid Unicode"),
        ('{"text": 3}', "text must be a string, got 3"),
        ('{"x": [1, 2], "id": []}', "id must be a string or a number, got []"),
    ],
)
def test_a_bad_record_is_refused_with_its_line(line, message):
    with pytest.raises(DataError) as caught:
        read_jsonl({"x": [1, 2]}, "\n", line)
    assert str(caught.value).startswith(f"<stream>:3: {message}")


@pytest.mark.parametrize("reader", [iter_csv, iter_jsonl])
def test_a_record_is_passed_on_before_the_next_one_is_written(reader):
    into, out_of = os.pipe()
    lines = {iter_csv: ["x\n1\n", "2\n"], iter_jsonl: ['{"x": [1]}\n', '{"x": [2]}\n']}[reader]
    with os.fdopen(into, "rb") as stream, os.fdopen(out_of, "wb", buffering=0) as pipe:
        batches = reader(stream, chunk=1)
        for value, line in enumerate(lines, 1):
            pipe.write(line.encode())
            got = []
            thread = threading.Thread(target=lambda got=got: got.append(next(batches)), daemon=True)
            thread.start()
            thread.join(timeout=30)
            assert got
            assert got[0].X.tolist() == [[value]]


def test_standard_input_is_a_dash(monkeypatch):
    class Stdin:
        buffer = io.BytesIO(b'{"x": [4]}\n')

    monkeypatch.setattr("sys.stdin", Stdin)
    assert next(iter_jsonl("-")).X.tolist() == [[4]]


def test_loading_jsonl_sorts_the_labels_it_finds(tmp_path):
    path = tmp_path / "a.jsonl"
    records = [{"id": i, "x": [i], "y": y} for i, y in enumerate((["b", "a"], None, ["c"]))]
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    data = load(path)
    assert data.label_names == ("a", "b", "c")
    assert data.Y.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert data.known.tolist() == [[True] * 3, [False] * 3, [True] * 3]
    assert data.ids == (0, 1, 2)
    assert data.name == "a"


@settings(fuzz, max_examples=200)
@given(st.binary(max_size=60) | st.text('{}[]":,\\ xytexid1.e-\n', max_size=60).map(str.encode))
def test_garbage_is_refused_or_makes_sense(garbage):
    for read in (
        lambda: list(iter_jsonl(io.BytesIO(garbage), hashing=Hashing(16))),
        lambda: list(iter_jsonl(io.BytesIO(b'{"x": [1]}\n' + garbage))),
        lambda: read_csv(b"x,t\n" + garbage, labels=["t"]),
        lambda: read_csv(garbage),
    ):
        with_or_without_rows(read)


def with_or_without_rows(read) -> None:
    try:
        batches = read()
    except DataError:
        return
    for batch in batches:
        assert batch.X.shape[0] == len(batch.label_sets) > 0


names = st.text(string.printable + "é€", min_size=1, max_size=6).map(str.strip).filter(bool)


@st.composite
def datasets(draw):
    n, p, q = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    both = draw(st.lists(names, min_size=p + q, max_size=p + q, unique=True))
    value = st.floats(allow_nan=False, allow_infinity=False)
    X = np.array(draw(st.lists(st.lists(value, min_size=p, max_size=p), min_size=n, max_size=n)))
    Y = np.array(
        draw(st.lists(st.lists(st.integers(0, 1), min_size=q, max_size=q), min_size=n, max_size=n)),
        dtype=np.uint8,
    )
    return Dataset(X, Y, tuple(both[:p]), tuple(both[p:]), "toy")


@fuzz
@given(datasets(), st.booleans())
def test_what_is_written_is_read_back(tmp_path_factory, data, is_sparse):
    folder = tmp_path_factory.getbasetemp()
    if is_sparse:
        data = dataclasses.replace(data, X=sparse.csr_matrix(data.X))
    X = data.X.toarray() if is_sparse else data.X

    write_arff(data, folder / "toy.arff")
    back = load(folder / "toy.arff")
    assert sparse.issparse(back.X) == is_sparse
    np.testing.assert_array_equal(back.X.toarray() if is_sparse else back.X, X)
    np.testing.assert_array_equal(back.Y, data.Y)
    assert (back.feature_names, back.label_names) == (data.feature_names, data.label_names)

    write_csv(data, folder / "toy.csv")
    back = load(folder / "toy.csv", labels=data.label_names)
    np.testing.assert_array_equal(back.X, X)
    np.testing.assert_array_equal(back.Y, data.Y)
    assert (back.feature_names, back.label_names) == (data.feature_names, data.label_names)

    write_libsvm(data, folder / "toy.svm")
    back = load(folder / "toy.svm")
    np.testing.assert_array_equal(back.X.toarray(), X)
    np.testing.assert_array_equal(back.Y, data.Y)

    if not is_sparse:
        write_jsonl(data, folder / "toy.jsonl")
        back = load(folder / "toy.jsonl")
        np.testing.assert_array_equal(back.X, X)
        assert [set(s) for s in back.label_sets] == [set(s) for s in data.label_sets]


def test_unknown_labels_and_missing_values_are_written_or_refused(tmp_path):
    data = Dataset(
        np.array([[math.nan, 1.0]]),
        np.array([[1, 0]], dtype=np.uint8),
        ("a", "b"),
        ("t", "u"),
        known=np.array([[True, False]]),
    )
    write_arff(data, tmp_path / "a.arff")
    write_csv(data, tmp_path / "a.csv")
    for back in (load(tmp_path / "a.arff"), load(tmp_path / "a.csv", labels=["t", "u"])):
        np.testing.assert_array_equal(back.X, data.X)
        assert back.known.tolist() == [[True, False]]
    for write in (write_libsvm, write_jsonl):
        with pytest.raises(ValueError, match="must be known"):
            write(data, tmp_path / "a.txt")
    with pytest.raises(ValueError, match="X must be finite"):
        write_libsvm(dataclasses.replace(data, known=None), tmp_path / "a.txt")


def test_a_sparse_stream_as_jsonl_maps_names_to_values(tmp_path):
    data = make_stream(20, sparse=True)
    write_jsonl(data, tmp_path / "a.jsonl")
    first = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])
    row = data.X[0]
    assert first["x"] == {f"x{j}": v for j, v in zip(row.indices, row.data, strict=True)}
