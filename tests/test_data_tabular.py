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

import tagstream as ts
from tagstream.checks import DataError
from tagstream.data import (
    FORMATS,
    Dataset,
    Hashing,
    iter_arff,
    iter_csv,
    iter_jsonl,
    iter_lines,
    iter_parquet,
    iter_records,
    load,
    make_stream,
    write_arff,
    write_csv,
    write_jsonl,
    write_libsvm,
)
from tagstream.records.dataset import collect, join
from tagstream.records.record import as_batch

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
    assert batch.items.tolist() == [[1.5, -2000], [0, 1]]
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


def test_csv_text_stays_text_and_other_columns_are_ignored():
    content = 'text,when,tags\n"a,\nb c",noon,x\n'
    (batch,) = read_csv(content, text="text", labels="tags", sep="|")
    assert batch.items == ["a,\nb c"]
    assert batch.feature_names is None


def test_csv_missing_features_and_unknown_labels():
    (batch,) = read_csv("a,b,t,u\n1,,1,\n?,2,0.0,1.0\n3,4,,?\n", labels=["t", "u"], missing=-1)
    assert batch.items.tolist() == [[1, -1], [-1, 2], [3, 4]]
    assert batch.label_sets == [("t",), ("u",), None]
    assert batch.unknown == [("u",), (), ()]
    assert math.isnan(read_csv("a\n?\n")[0].items[0, 0])


def test_csv_unknown_labels_become_nan(tmp_path):
    rows = "a,t,u\n1,1,0\n" * 1 + "2,1,1\n" * 300 + "3,?,1\n4,,\n"
    (tmp_path / "a.csv").write_text(rows)
    data = load(tmp_path / "a.csv", labels=["t", "u"])
    assert data.Y.dtype == np.float32
    assert data.known[:301].all()
    np.testing.assert_array_equal(data.Y[301:], [[math.nan, 1], [math.nan, math.nan]])
    assert data.label_sets[299:] == [("t", "u"), ("t", "u"), ("u",), None]
    assert data.cardinality == (1 + 2 * 300 + 1) / 302


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
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
        (b"a\n\x81\n", {}, "2: must be UTF-8 text"),
        (b"a\n\0\n", {}, "2: must be UTF-8 text, got a NUL"),
    ],
)
def test_bad_csv_is_refused_with_its_line(text, options, message):
    with pytest.raises(DataError) as caught:
        read_csv(text, **options)
    assert str(caught.value).startswith(f"<stream>:{message}")


def test_an_empty_file_is_told_without_a_line():
    for read in (iter_csv, iter_arff):
        with pytest.raises(DataError, match=r"^<stream>: must not be empty$"):
            list(read(io.BytesIO(b"")))


def test_the_words_of_one_column_are_tags():
    content = "a,tag\n1, sea \n2,\n3,?\n4,1\n"
    (batch,) = read_csv(content, labels="tag")
    assert batch.items.tolist() == [[1], [2], [3], [4]]
    assert batch.label_sets == [("sea",), None, None, ("1",)]
    assert (batch.label_names, batch.unknown) == (None, None)


@pytest.mark.parametrize("chunk", [1, 2, 9])
def test_the_first_value_tells_words_from_0_and_1(chunk):
    words = read_csv("a,tag\n1,\n2,sea\n3,0\n", labels="tag", chunk=chunk)
    assert [labels for b in words for labels in b.label_sets] == [None, ("sea",), ("0",)]
    flags = read_csv("a,tag\n1,?\n2,0\n3,1.0\n", labels="tag", chunk=chunk)
    assert [labels for b in flags for labels in b.label_sets] == [None, (), ("tag",)]
    assert flags[-1].label_names == ("tag",)
    with pytest.raises(DataError, match="3: label 'tag' must be 0 or 1, got 'sea'; if its values"):
        read_csv("a,tag\n1,0\n2,sea\n", labels="tag", chunk=chunk)


@pytest.mark.parametrize(
    ("labels", "content", "message", "tags"),
    [
        (["tag"], "a,tag\n1,sea\n", "label 'tag' must be 0 or 1, got 'sea'", ("sea",)),
        (-1, "a,tag\n1,sea\n", "label 'tag' must be 0 or 1, got 'sea'", ("sea",)),
        ("ta", "a,tag\n1,sea\n", "label 'tag' must be 0 or 1, got 'sea'", ("sea",)),
        ("tag", "a,tag,tag_by\n1,sea,me\n", "label 'tag' must be 0 or 1, got 'sea'", ("sea",)),
        ("tag", "a,tag\n1,2019\n", "label 'tag' must be 0 or 1, got '2019'", ("2019",)),
        (
            "tag",
            'a,tag\n1,"sea, sun"\n',
            "column 'tag' must hold one tag, got 'sea, sun'",
            ("sea", "sun"),
        ),
    ],
)
def test_what_is_not_surely_one_tag_is_refused_and_sep_reads_it(labels, content, message, tags):
    with pytest.raises(DataError) as caught:
        read_csv(content, labels=labels)
    assert str(caught.value).startswith(f"<stream>:2: {message}; if ")
    assert str(caught.value).endswith("say labels='tag' and sep (--labels 'tag' --sep ',')")
    (batch,) = read_csv(content, labels="tag", sep=",", text="a")
    assert batch.label_sets == [tags]


@pytest.mark.parametrize("cell", ['["sea", "sun"]', "['sea', 'sun']", "[]"])
@pytest.mark.parametrize("sep", [None, ","])
def test_a_list_in_a_cell_is_not_taken_for_a_tag(cell, sep):
    quoted = cell.replace('"', '""')
    with pytest.raises(DataError, match="2: column 'tags' must hold tags as they are, got a list"):
        read_csv(f'text,tags\nHello,"{quoted}"\n', labels="tags", sep=sep)
    assert read_csv("text,tags\nHello,[draft]\n", labels="tags")[0].label_sets == [("[draft]",)]


def test_csv_has_the_names_of_json_lines_if_its_text_is_text():
    (batch,) = read_csv("id,when,text,y\n7,noon,Low tide,sea\n,,Rain,\n")
    assert batch.items == ["Low tide", "Rain"]
    assert batch.label_sets == [("sea",), None]
    assert batch.ids == ("7", None)
    (batch,) = read_csv("id,text,y,tags\n7,Low tide,0,sea|sun\n", labels="tags", sep="|")
    assert (batch.items, batch.label_sets, batch.ids) == (["Low tide"], [("sea", "sun")], ("7",))
    (batch,) = read_csv("id,text,y\n7,Low tide,0\n", ids="y")
    assert (batch.label_sets, batch.ids) == ([()], ("0",))
    assert read_csv("id,text,y\n7,Low tide,0\n", labels=False)[0].label_sets == [None]


def test_a_column_of_numbers_called_text_is_a_feature():
    (batch,) = read_csv("id,text,y\n7,0.0,1\n8,2,0\n")
    assert batch.items.tolist() == [[0, 1], [2, 0]]
    assert batch.label_sets == [None, None]
    assert batch.ids == ("7", "8")
    (batch,) = read_csv("id,text,y\n7,0.0,1\n8,2,0\n", ids=False)
    assert (batch.items.tolist(), batch.ids) == ([[7, 0, 1], [8, 2, 0]], None)
    with pytest.raises(
        DataError, match=r"3: column 'text' must be .* 'Hello'; if it is no feature"
    ):
        read_csv("id,text,y\n7,0.0,1\n8,Hello,0\n")


def test_columns_without_a_name_are_passed_over_beside_texts():
    content = "id;text;y;;\r\n1;Low tide;sea;;\r\n"
    assert read_csv(content)[0].label_sets == [("sea",)]
    assert read_csv(content, text="text")[0].items == ["Low tide"]
    with pytest.raises(DataError, match="1: column names must differ, got '' twice"):
        read_csv("a,,\n1,2,3\n")


def test_an_empty_cell_is_no_identifier():
    (batch,) = read_csv("id,text\n1,a\n,b\n  ,c\n", text="text", ids="id")
    assert batch.ids == ("1", None, None)


def test_a_decimal_comma_is_told():
    with pytest.raises(DataError, match="got '1,5'; write decimals with a point"):
        read_csv("a;b\n1,5;2\n")


def test_a_cell_may_be_as_long_as_a_text_of_json_lines():
    text = "word " * 50_000
    assert read_csv(f"text,y\n{text},sea\n")[0].items == [text]


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
    assert batch.items.tolist() == [[1, 2.5], [0, 0], [0, 1]]
    assert batch.label_sets == [("sea", "sun"), (), None]
    assert batch.ids == ("a", None, None)


def test_jsonl_texts_and_mappings_come_as_they_are():
    (batch,) = read_jsonl({"text": "to be or not to be"})
    assert batch.items == ["to be or not to be"]
    (batch,) = read_jsonl({"x": {"height": 2.5, "colour": "red"}}, {"x": {}})
    assert batch.items == [{"height": 2.5, "colour": "red"}, {}]


def test_loading_texts_makes_rows_by_the_featurizer(tmp_path):
    hashing = Hashing(n_features=32, normalize=False)
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "to be or not to be"}\n')
    assert np.abs(load(path, featurizer=hashing).X).sum() == 6
    assert load(path).X.shape == (1, 2**18)
    path.write_text('{"x": {"height": 2.5, "colour": "red"}}\n{"x": {}}\n')
    X = load(path, featurizer=hashing).X
    assert sorted(np.abs(X.data)) == [1, 2.5]
    assert X.shape == (2, 32)


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
        ("{", "must be one JSON object per line, got '{', wrong at character 2: Expecting"),
        ('{"x": [1, 2],}', "must be one JSON object per line, got '{\"x\": [1, 2],}', wrong at"),
        ("[1]", "must be one JSON object per line, got an array; jq -c '.[]' FILE writes"),
        ("[" * 100_000, "must be one JSON object per line, got an array"),
        ("7", "must be one JSON object per line, got '7'"),
        (
            "Low tide",
            "must be one JSON object per line, got 'Low tide'; "
            "if it is plain text, say format='lines' (--format lines)",
        ),
        ('{"y": []}', 'a record must have either "x" or "text"'),
        ('{"x": [1, 2], "text": ""}', 'a record must have either "x" or "text"'),
        ('{"x": [1]}', "x must have 2 values, got 1"),
        ('{"x": {"a": 1}}', "all records must have a vector like the first, got a mapping"),
        ('{"x": [1, "a"]}', "x must be a list of finite numbers or a mapping"),
        ('{"x": [1, NaN]}', "must be one JSON object per line, got the number NaN"),
        ('{"x": [1, 1e999]}', "x must be a list of finite numbers"),
        ('{"x": [1, 1' + "0" * 400 + "]}", "x must be a list of finite numbers"),
        ('{"x": {"a": null}}', "x must map names to finite numbers or strings, got None"),
        ('{"x": {"a": 1, "a": 2}}', "must be one JSON object per line, got a key that is repeated"),
        ('{"x": [1, 2], "y": "sea"}', "y must be a list of strings, got 'sea'"),
        ('{"x": [1, 2], "y": [1]}', "y must be a list of strings, got [1]"),
        ('{"x": [1, 2], "y": ["\\ud800"]}', "a string must be valid Unicode"),
        ('{"text": "\\udfff"}', "a string must be valid Unicode"),
        ('{"text": 3}', "text must be a string, got 3"),
        ('{"x": [1, 2], "id": []}', "id must be a string or a number, got []"),
        ('{"x": [1, 2], "y": ["sea", " "]}', "a tag must not be empty, got ' '"),
        (
            '{"x": [1, 2], "tags": ["sea"]}',
            'labels must be in "y", got the fields x, tags; to read "tags", say labels="tags"',
        ),
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
            thread.join()
            assert got
            assert got[0].items.tolist() == [[value]]


def test_standard_input_is_a_dash(monkeypatch):
    class Stdin:
        buffer = io.BytesIO(b'{"x": [4]}\n')

    monkeypatch.setattr("sys.stdin", Stdin)
    assert next(iter_jsonl("-")).items.tolist() == [[4]]


def test_loading_jsonl_sorts_the_labels_it_finds(tmp_path):
    path = tmp_path / "a.jsonl"
    records = [{"id": i, "x": [i], "y": y} for i, y in enumerate((["b", "a"], None, ["c"]))]
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    data = load(path)
    assert data.label_names == ("a", "b", "c")
    np.testing.assert_array_equal(data.Y, [[1, 1, 0], [math.nan] * 3, [0, 0, 1]])
    assert data.known.tolist() == [[True] * 3, [False] * 3, [True] * 3]
    assert data.ids == (0, 1, 2)
    assert data.name == "a"


@settings(fuzz, max_examples=200)
@given(st.binary(max_size=60) | st.text('{}[]":,\\ xytexid1.e-\n', max_size=60).map(str.encode))
def test_garbage_is_refused_or_makes_sense(garbage):
    for read in (
        lambda: list(iter_jsonl(io.BytesIO(garbage))),
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
        assert np.shape(batch.items)[0] == len(batch.label_sets) == len(batch) > 0


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


@pytest.mark.parametrize(
    "names", [("0", ";;"), (";", "a\tb\tc"), ("a", ";;\nb"), ('"', ';"'), ("5", "a,b")]
)
def test_names_with_the_delimiters_of_others_are_read_back(tmp_path, names):
    data = Dataset(np.ones((1, 1)), np.ones((1, 1), np.uint8), names[:1], names[1:], "toy")
    write_csv(data, tmp_path / "toy.csv")
    back = load(tmp_path / "toy.csv", labels=data.label_names)
    assert (back.feature_names, back.label_names) == (names[:1], names[1:])


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
        np.array([[1, math.nan]]),
        ("a", "b"),
        ("t", "u"),
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
        write_libsvm(dataclasses.replace(data, Y=np.array([[1, 0]])), tmp_path / "a.txt")


def test_a_sparse_stream_as_jsonl_maps_names_to_values(tmp_path):
    data = make_stream(20, sparse=True)
    write_jsonl(data, tmp_path / "a.jsonl")
    first = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])
    row = data.X[0]
    assert first["x"] == {f"x{j}": v for j, v in zip(row.indices, row.data, strict=True)}


def test_jsonl_fields_may_have_other_names():
    records = [
        {"key": "a", "body": "Low tide", "tags": ["sea", " sun "], "x": [1], "text": 3},
        {"key": "b", "body": "Rain", "tags": None},
        {"key": "c", "body": "", "tags": "wet | cold||wet "},
    ]
    (batch,) = read_jsonl(*records, text="body", labels="tags", ids="key", sep="|")
    assert batch.items == ["Low tide", "Rain", ""]
    assert batch.label_sets == [("sea", "sun"), None, ("wet", "cold")]
    assert batch.ids == ("a", "b", "c")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "title"}, 'the first record must have "title", got the fields id, body, y'),
        ({"text": "body", "labels": "tags"}, 'the first record must have "tags", got the fields'),
        ({"text": "body", "ids": "key"}, 'the first record must have "key", got the fields id, bo'),
        (
            {},
            'a record must have either "x" or "text", got the fields id, body, y; '
            "if another is the text, say text='FIELD' (--text FIELD)",
        ),
        (
            {"text": "body"},
            "y must be a list of strings, got 'a, b'; to read tags in a string, say",
        ),
    ],
)
def test_a_field_that_is_looked_for_and_not_there_is_named(options, message):
    with pytest.raises(DataError) as caught:
        read_jsonl({"id": 1, "body": "Low tide", "y": "a, b"}, **options)
    assert str(caught.value).startswith(f"<stream>:1: {message}")


def test_options_of_files_are_not_told_to_programs():
    for record in ({"body": "Low tide"}, {"text": "Rain", "tags": ["wet"]}, {"text": "", "y": "a"}):
        with pytest.raises(DataError) as caught:
            as_batch([record])
        assert "--" not in str(caught.value)


def test_labels_are_not_looked_at_when_they_are_not_wanted():
    (batch,) = read_jsonl({"text": "Rain", "tags": 5, "y": 7}, labels=False)
    assert batch.label_sets == [None]
    assert read_csv("a,b\n1,2\n", labels=False)[0].label_sets == [None]


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_the_delimiter_is_found_in_the_header_line(delimiter):
    content = '"a, b; c\t",b,tags\n1,2,"x;y"\n'.replace(",b,tags", f"{delimiter}b{delimiter}tags")
    content = content.replace("1,2,", f"1{delimiter}2{delimiter}")
    (batch,) = read_csv(content, labels="tags", sep=";")
    assert batch.feature_names == ("a, b; c", "b")
    assert batch.items.tolist() == [[1, 2]]
    assert batch.label_sets == [("x", "y")]


def test_the_delimiter_can_be_said():
    (batch,) = read_csv("a,b|c\n1|2\n", delimiter="|")
    assert batch.feature_names == ("a,b", "c")
    for wrong in ("", "||", '"', "\n"):
        with pytest.raises(ValueError, match="delimiter must be one character"):
            read_csv("a\n1\n", delimiter=wrong)
    with pytest.raises(DataError, match="2: must be tab-separated values"):
        read_csv('a\tb\n1\t"2"3\n')


def test_blanks_around_names_of_columns_are_taken_off_and_empty_labels_refused():
    (batch,) = read_csv("a, joy ,b\n1,1,0\n", labels=["joy", "b"])
    assert batch.label_names == ("joy", "b")
    with pytest.raises(DataError, match="1: a tag must not be empty, got ''"):
        read_csv("a,b,\n1,1,0\n", labels=-2)


def test_lines_are_texts_and_an_empty_line_is_an_empty_text():
    stream = io.BytesIO("\ufeffLow tide\r\n\nénd".encode())
    assert [batch.items for batch in iter_lines(stream, chunk=2)] == [["Low tide", ""], ["énd"]]
    with pytest.raises(DataError, match="2: must be UTF-8"):
        list(iter_lines(io.BytesIO(b"a\n\x81\n")))


def test_records_of_any_format_are_batches(tmp_path):
    data = make_stream(30)
    unknown = data.Y.astype(np.float32)
    unknown[3, 1] = unknown[4] = math.nan
    write_arff(dataclasses.replace(data, Y=unknown), tmp_path / "a.arff")
    batches = list(iter_records(tmp_path / "a.arff", chunk=20))
    assert [len(batch) for batch in batches] == [20, 10]
    assert batches[0].label_sets[4] is None
    assert batches[0].unknown[3] == (data.label_names[1],)
    assert batches[0].unknown[4] == ()
    back = collect(batches, path="", name="")
    np.testing.assert_array_equal(back.Y, unknown)
    with pytest.raises(ValueError, match=r"format must be one of .* for a stream"):
        next(iter_records("-"))


def test_texts_are_converted_as_texts(tmp_path):
    records = [
        {"id": "p1", "text": 'Low, "tide"\nand more', "y": ["sea", "low;high"]},
        {"text": "Rain", "y": []},
    ]
    batch = join(iter([*read_jsonl(*records, chunk=1)]), path="")
    for ending in ("csv", "tsv", "jsonl"):
        path = tmp_path / f"t.{ending}"
        FORMATS[ending].writer(batch, path)
        assert path.stat().st_size < 200
        fields = {"labels": "y", "ids": "id"}
        if ending != "jsonl":
            fields = {"labels": "tags", "sep": "|", "ids": "id"}
        back = join(iter_records(path, text="text", **fields), path="")
        assert back.items == batch.items
        assert back.label_sets == [("sea", "low;high"), ()]
        assert back.ids in (("p1", None), ("p1", ""))
    for write in (write_arff, write_libsvm):
        with pytest.raises(ValueError, match=r"must be numbers .*CSV, TSV and JSON Lines can hold"):
            write(batch, tmp_path / "t.any")


def test_tags_that_contain_the_separator_are_refused_before_the_file_is_touched(tmp_path):
    (batch,) = read_jsonl({"text": "Rain", "y": ["a|b", "c"]})
    with pytest.raises(ValueError, match=r"the separator '\|', got 'a\|b'; ';' would do \(--sep\)"):
        write_csv(batch, tmp_path / "t.csv")
    assert not (tmp_path / "t.csv").exists()
    write_csv(batch, tmp_path / "t.csv", sep=";")
    assert "a|b;c" in (tmp_path / "t.csv").read_text()
    (batch,) = read_jsonl({"text": "Rain", "y": ["a|;/,\tb"]})
    with pytest.raises(ValueError, match="JSON Lines can hold it"):
        write_csv(batch, tmp_path / "t.csv")


def test_a_column_of_tags_holds_records_that_are_all_labelled_or_none(tmp_path):
    (some,) = read_jsonl({"text": "Rain", "y": ["wet"]}, {"text": "Sun"})
    with pytest.raises(ValueError, match="all labels must be known to be written as a column"):
        write_csv(some, tmp_path / "t.csv")
    (none,) = read_jsonl({"text": "Rain"}, {"text": "Sun"})
    write_csv(none, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().split() == ["text", "Rain", "Sun"]


def test_named_values_get_a_column_each(tmp_path):
    (batch,) = read_jsonl(
        {"x": {"height": 2.5, "colour": "red"}, "y": ["a"]},
        {"x": {}, "y": []},
        {"x": {"colour": "blue", "colour=blue": 2, "height": 1}, "y": ["b"]},
    )
    write_arff(batch, tmp_path / "a.arff")
    back = load(tmp_path / "a.arff")
    assert back.feature_names == ("colour=blue", "colour=red", "height")
    assert back.X.toarray().tolist() == [[0, 1, 2.5], [0, 0, 0], [3, 0, 1]]
    write_jsonl(batch, tmp_path / "a.jsonl")
    assert next(iter_jsonl(tmp_path / "a.jsonl")).items == batch.items


def test_sparse_rows_that_a_table_cannot_hold_are_refused(tmp_path):
    texts = [f"word{i}" for i in range(200)]
    data = Dataset(Hashing().texts(texts), np.ones((200, 1), np.uint8), None, ("a",))
    with pytest.raises(ValueError, match=r"at most 33,554,432 cells .*200 rows of 262,144; ARFF"):
        write_csv(data, tmp_path / "a.csv")
    assert not (tmp_path / "a.csv").exists()


def test_more_labels_than_fit_an_array_are_refused_before_it_is_made(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"x": [0], "y": ["tag {i}"]}}\n' for i in range(30_000)))
    with pytest.raises(DataError, match=r"at most 536,870,912 records times labels .*in chunks"):
        load(path)


def test_unknown_labels_are_not_counted_as_absent(tmp_path):
    stream = make_stream(300, seed=3)
    records = [
        {"x": x.tolist(), "y": list(labels) if i % 3 == 0 else None}
        for i, (x, labels) in enumerate(zip(stream.X, stream.label_sets, strict=True))
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    data = load(tmp_path / "a.jsonl")
    known = ts.prequential(ts.OML(random_state=0), data.X, data.Y, batch=50).measures
    absent = np.nan_to_num(data.Y).astype(np.uint8)
    wrong = ts.prequential(ts.OML(random_state=0), data.X, absent, batch=50).measures
    assert known["micro_f1"] > wrong["micro_f1"] + 0.1


@settings(fuzz, max_examples=200)
@given(
    st.text('01,\n"?x', max_size=40).map(str.encode) | st.binary(max_size=40),
    st.integers(1, 4),
)
def test_the_first_bad_line_is_blamed_whatever_the_chunk(garbage, chunk):
    def outcome(reader, start, size, **options) -> str:
        try:
            parts = list(reader(io.BytesIO(start + garbage), chunk=size, **options))
        except DataError as error:
            return str(error)
        return repr([labels for part in parts for labels in part.label_sets])

    for reader, start, options in (
        (iter_csv, b"x,t\n", {"labels": ["t"]}),
        (iter_jsonl, b'{"x": [1]}\n', {}),
        (iter_lines, b"", {}),
    ):
        assert outcome(reader, start, chunk, **options) == outcome(reader, start, 1000, **options)


def test_parquet_has_the_fields_of_jsonl(tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    columns = {"key": [1, 2, 3], "body": ["Low tide", "Rain", ""], "other": [None] * 3}
    columns["tags"] = [["sea", " sun"], None, []]
    parquet.write_table(pa.table(columns), path)
    fields = {"text": "body", "labels": "tags", "ids": "key"}
    batches = list(iter_parquet(path, chunk=2, **fields))
    assert [batch.items for batch in batches] == [["Low tide", "Rain"], [""]]
    assert [batch.label_sets for batch in batches] == [[("sea", "sun"), None], [()]]
    assert [batch.ids for batch in batches] == [(1, 2), (3,)]
    with pytest.raises(DataError, match=r'1: labels must be in "y", got the fields key, body, '):
        list(iter_parquet(path, text="body"))
    with pytest.raises(DataError, match=r'1: a record must have either "x" or "text", got the fie'):
        list(iter_parquet(path))
    parquet.write_table(pa.table({"x": [[1.0, 2.0], [3.0, None]]}), path)
    with pytest.raises(DataError, match=r"2: x must be a list of finite numbers"):
        list(iter_parquet(path))
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match=r"a\.parquet: must be a Parquet file"):
        list(iter_parquet(path))
    with pytest.raises(FileNotFoundError):
        list(iter_parquet(tmp_path / "none.parquet"))


def a_parquet_file(texts: list[str]) -> bytes:
    """The bytes of a Parquet file whose texts stand in it as they are."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"id": [*range(len(texts))], "text": texts, "y": [["sea"]] * len(texts)}
    written = io.BytesIO()
    parquet.write_table(
        pa.table(columns), written, compression="NONE", use_dictionary=False, row_group_size=4
    )
    return written.getvalue()


@pytest.mark.parametrize("chunk", [1, 3, 256])
def test_damage_in_a_parquet_file_is_told_with_path_and_row(tmp_path, chunk):
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    texts = [f"text number {i}" for i in range(10)]
    whole = a_parquet_file(texts)
    path.write_bytes(whole.replace(b"number 6", b"number \xff"))
    batches = iter_parquet(path, chunk=chunk)
    for first in range(0, 6 // chunk * chunk, chunk):
        assert next(batches).items == texts[first : first + chunk]
    with pytest.raises(DataError, match=r"a\.parquet:7: must be a whole Parquet file") as error:
        next(batches)
    assert "\n" not in str(error.value)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a\.parquet: must be a Parquet file"):
        list(iter_parquet(path, chunk=chunk))


def test_a_damaged_parquet_file_is_refused_or_read(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    whole = a_parquet_file([f"text é {i} " * (i % 7) for i in range(60)])
    rng = np.random.default_rng(27)
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        for place in rng.integers(len(data), size=rng.integers(1, 8)):
            data[place] = rng.integers(256)
        path.write_bytes(data)
        try:
            assert sum(map(len, iter_parquet(path, chunk=16))) <= 60
        except DataError as error:
            assert str(error).startswith(f"{path}:")  # noqa: PT017 - most files are refused
            refused += 1
    assert refused > 100
