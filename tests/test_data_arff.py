"""ARFF: what files mean, what is refused, and that the bulk reader agrees with the careful one."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from tagstream.checks import DataError
from tagstream.data import Dataset, iter_arff, load, read_labels_xml
from tagstream.records.arff import _RowReader
from tagstream.records.dataset import concatenate
from tagstream.records.numbers import parse_decimals

# a busy machine is not a failure
fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


HEADER = """@relation 'toy: -C 2'
@attribute rain {0,1}
@attribute wind {0,1}
@attribute degrees numeric
@attribute hour integer
@data
"""


def read(text: str | bytes, **options) -> Dataset:
    stream = io.BytesIO(text.encode() if isinstance(text, str) else text)
    return concatenate(iter_arff(stream, **options), path="<stream>")


def read_carefully(text: str | bytes, **options) -> Dataset:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_RowReader, "_read_bulk", lambda self, lines: None)
        return read(text, **options)


def outcome(function, *args, **options) -> Dataset | DataError:
    """Return the result or the `DataError`; anything else that is raised fails the test."""
    try:
        return function(*args, **options)
    except DataError as error:
        return error


def as_lists(data: Dataset) -> tuple:
    X = data.X.toarray() if sparse.issparse(data.X) else data.X
    return X.tolist(), data.Y.tolist()


def same(a: Dataset, b: Dataset) -> None:
    assert sparse.issparse(a.X) == sparse.issparse(b.X)
    np.testing.assert_array_equal(*(d.X.toarray() if sparse.issparse(d.X) else d.X for d in (a, b)))
    if sparse.issparse(a.X):
        assert a.X.nnz == b.X.nnz
        assert a.X.has_canonical_format
        assert b.X.has_canonical_format
    np.testing.assert_array_equal(a.Y, b.Y)
    assert a.Y.dtype == b.Y.dtype == (np.float32 if np.isnan(a.Y).any() else np.uint8)
    assert (a.feature_names, a.label_names) == (b.feature_names, b.label_names)


def test_dense_rows_by_hand():
    data = read(HEADER + "1,0,21.5,7\n0,1,-3,23\n")
    assert as_lists(data) == ([[21.5, 7], [-3, 23]], [[1, 0], [0, 1]])
    assert data.feature_names == ("degrees", "hour")
    assert data.label_names == ("rain", "wind")
    assert data.known is None


def test_sparse_rows_by_hand():
    data = read(HEADER + "{0 1, 2 21.5}\n{}\n{ 1 1 , 3 23 }\n")
    assert sparse.issparse(data.X)
    assert as_lists(data) == ([[21.5, 0], [0, 0], [0, 23]], [[1, 0], [0, 0], [0, 1]])


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_blank_lines_comments_case_and_line_ends_do_not_matter(ending):
    text = (
        "% about this file\n\n@RELATION toy %50\n@Attribute a REAL % in metres\n"
        "@attribute\tb\t{0, 1} % yes or no\n\n@DATA\n% rows\n1.5, 1\n\n2,\t0\n"
    )
    data = read("\ufeff" + text.replace("\n", ending), labels=["b"])
    assert as_lists(data) == ([[1.5], [2]], [[1], [0]])


def test_names_and_values_may_be_quoted_and_escaped():
    text = r"""@relation "it's: -C 1"
@attribute 'don\'t panic' {'y es',"n\"o"}
@attribute "two words" numeric
@attribute 'tab\there \u00e9 100\%' {a,'b,c','d}'}
@data
'y es',1,'b,c'
"n\"o", 2 ,a
"""
    data = read(text)
    assert data.label_names == ("don't panic",)
    assert data.feature_names[0] == "two words"
    assert data.feature_names[1:] == tuple(f"tab\there é 100%={v}" for v in ("a", "b,c", "d}"))
    assert as_lists(data) == ([[1, 0, 1, 0], [2, 1, 0, 0]], [[0], [1]])


def test_nominal_features_become_columns():
    text = """@relation x
@attribute colour {red,green,blue}
@attribute size {small,large}
@attribute tag {0,1}
@data
blue,large,1
red,small,0
"""
    data = read(text, labels=-1)
    assert data.feature_names == ("colour=red", "colour=green", "colour=blue", "size")
    assert as_lists(data) == ([[0, 0, 1, 1], [1, 0, 0, 0]], [[1], [0]])


def test_an_omitted_sparse_nominal_is_its_first_declared_value():
    text = """@relation x
@attribute colour {red,green,blue}
@attribute flag {1,0}
@attribute amount numeric
@attribute tag {yes,no}
@data
{0 green,2 5}
{1 0,3 no}
"""
    data = read(text, labels=["tag"])
    assert as_lists(data) == ([[0, 1, 0, 1, 5], [1, 0, 0, 0, 0]], [[1], [0]])
    assert data.X.has_canonical_format


@pytest.mark.parametrize(
    ("values", "positive"),
    [
        ("{0,1}", "1"),
        ("{1,0}", "1"),
        ("{-1,1}", "1"),
        ("{TRUE,FALSE}", "TRUE"),
        ("{no,yes}", "yes"),
        ("{absent,here}", "here"),
        ("{1}", "1"),
    ],
)
def test_a_label_applies_by_meaning_not_by_order(values, positive):
    text = f"@relation x\n@attribute a numeric\n@attribute tag {values}\n@data\n0,{positive}\n"
    assert read(text, labels=["tag"]).Y.tolist() == [[1]]


def test_a_missing_feature_is_nan_or_what_the_caller_says():
    text = """@relation x
@attribute tag {0,1}
@attribute a numeric
@attribute b {u,v}
@attribute c {r,s,t}
@data
1,?,?,?
"""
    assert np.isnan(read(text, labels=1).X).all()
    assert read(text, labels=1, missing=0.0).X.tolist() == [[0, 0, 0, 0, 0]]
    sparse_text = text.replace("1,?,?,?", "{0 1,1 ?,2 ?,3 ?}")
    assert np.isnan(read(sparse_text, labels=1).X.toarray()).all()


def test_a_missing_label_is_unknown():
    data = read(HEADER + "1,?,0,0\n?,?,0,0\n")
    np.testing.assert_array_equal(data.Y, [[1, math.nan], [math.nan, math.nan]])
    assert data.known.tolist() == [[True, False], [False, False]]
    assert data.label_sets == [("rain",), None]


def test_known_covers_all_chunks_once_any_label_is_unknown():
    data = read(HEADER + "1,1,0,0\n" * 3 + "?,1,0,0\n", chunk=2)
    assert data.known.tolist() == [[True, True]] * 3 + [[False, True]]


def test_meka_counts_labels_from_either_end():
    rows = "1,0,1,0\n"
    assert read(HEADER + rows).label_names == ("rain", "wind")
    assert read(HEADER.replace("-C 2", "-C -2") + rows).label_names == ("degrees", "hour")
    assert read(HEADER.replace("-C 2", "-split-number 17 -C 1") + rows).n_train == 17


def test_a_meka_count_is_not_trusted_after_attributes_were_moved():
    moved = HEADER.replace("-C 2", "-C 2-weka.filters.unsupervised.attribute.Remove-R1-2")
    with pytest.raises(DataError, match="must say which attributes are labels"):
        read(moved + "1,0,1,0\n")


XML = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="linux"><label name="A &amp; B"/></label>
<label name="hour"> </label>
</labels>"""


def test_a_mulan_xml_names_labels_anywhere_in_any_order_nested_and_by_case(tmp_path):
    text = """@relation x
@attribute Linux {0,1}
@attribute hour {0,1}
@attribute x numeric
@attribute 'A & B' {0,1}
@attribute linux {0,1}
@data
1,0,2.5,1,0
"""
    (tmp_path / "toy.arff.bz2").write_bytes(bz2.compress(text.encode()))
    (tmp_path / "toy.xml").write_text(XML)
    data = load(tmp_path / "toy.arff.bz2")
    assert data.label_names == ("hour", "A & B", "linux")
    assert as_lists(data) == ([[1, 2.5]], [[0, 1, 0]])
    assert data.name == "toy"
    assert read_labels_xml(tmp_path / "toy.xml") == ["linux", "A & B", "hour"]
    (tmp_path / "plain.arff").write_text(text)
    same(load(tmp_path / "plain.arff", labels=tmp_path / "toy.xml"), data)


BOMB = '<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><labels><label name="&b;"/></labels>'
EXTERNAL = '<!DOCTYPE l SYSTEM "file:///etc/passwd"><labels><label name="a"/></labels>'


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        (BOMB, r"1: must not contain a document type"),
        (EXTERNAL, r"1: must not contain a document type"),
        ("<labels>\n<label/></labels>", r"2: a label must have a name"),
        ('<labels><label name="a"/>\n<label name="a"/></labels>', r"names must differ, got 'a'"),
        ("<labels>\n</labels>", r"must name at least one label"),
        ("<tags/>", r"1: must consist of labels"),
        ("<labels>\n<label name='a'>", r"2: must be well-formed XML"),
        ("", r"must be well-formed XML"),
        ('<?xml version="1.0" encoding="klingon"?><labels/>', r"1: must be well-formed XML"),
        ("\0\1\2", r"1: must be well-formed XML"),
    ],
)
def test_a_bad_xml_is_refused_with_its_line(tmp_path, xml, message):
    path = tmp_path / "labels.xml"
    path.write_text(xml)
    with pytest.raises(DataError, match=rf"labels\.xml:\d*:? ?.*{message}"):
        read_labels_xml(path)


def test_a_label_of_the_xml_must_be_an_attribute(tmp_path):
    (tmp_path / "toy.xml").write_text(XML)
    with pytest.raises(
        DataError, match=r"<stream>:6: the attributes must include the label 'A & B'"
    ):
        read(HEADER + "1,0,1,0\n", labels=tmp_path / "toy.xml")


DENSE_ERRORS = [
    ("1,0,1\n", "7: a row must have 4 values, got 3"),
    ("1,0,1,2\n1,0,1,2,3\n", "8: a row must have 4 values, got 5"),
    ("1,0,1,2\n\n2,0,1,2\n", "9: attribute 'rain' must be one of 0, 1, got '2'"),
    ("1,0,warm,2\n", "7: attribute 'degrees' must be a finite number, got 'warm'"),
    ("1,0,nan,2\n", "7: attribute 'degrees' must be a finite number, got 'nan'"),
    ("1,0,1e999,2\n", "7: attribute 'degrees' must be a finite number, got '1e999'"),
    ("1,0,1_0,2\n", "7: attribute 'degrees' must be a finite number, got '1_0'"),
    ("1,0,,2\n", "7: attribute 'degrees' must be a finite number, got ''"),
    ("1,0,'1,2\n", "7: a quote must be closed"),
    ("1,0,'1'2,2\n", "7: a quoted value must end its field"),
    ("1,0,1,2\n{0 1}\n", "8: all rows must be dense like the first"),
    ("1,0,1,2\n\xff\n", "8: must be UTF-8 text"),
    ("1,0,1,2\n1,0,1,\0\n", "8: must be UTF-8 text, got a NUL"),
]
SPARSE_ERRORS = [
    ("{0 1}\n{4 1}\n", "8: an index must be below 4, got 4"),
    ("{-1 1}\n", "7: an entry must be 'index value', got '-1 1'"),
    ("{2 1,2 5}\n", "7: an index must not be repeated, got 2 twice"),
    ("{0 1,}\n", "7: an entry must be 'index value'"),
    ("{0 1\n", "7: a sparse row must end with }"),
    ("{0}\n", "7: an entry must be 'index value', got '0'"),
    ("{0 1}\n1,0,1,2\n", "8: all rows must be sparse like the first"),
    ("{0 3}\n", "7: attribute 'rain' must be one of 0, 1, got '3'"),
    ("{0 'a}\n", "7: an entry must be 'index value', got"),
    ("{0 1} {1 1}\n", "7: an entry must be 'index value'"),
]


@pytest.mark.parametrize(("rows", "message"), DENSE_ERRORS + SPARSE_ERRORS)
def test_a_bad_row_is_refused_with_its_line(rows, message):
    with pytest.raises(DataError) as caught:
        read((HEADER + rows).encode("latin-1"))
    assert str(caught.value).startswith(f"<stream>:{message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\n", "2: must have a line @data"),
        ("@relation x\n", "1: must have a line @data"),
        ("@relation x\n@data\n", "2: must declare an attribute"),
        ("@relation x\n1,2,3\n", "2: must be @relation, @attribute, @data"),
        ("@attribute a string\n", "1: attribute 'a' must be numeric or nominal, got 'string'"),
        ("@attribute 'a numeric\n", "1: a quote must be closed"),
        ("@attribute a {0,1\n", "1: the values of attribute 'a' must end with }"),
        ("@attribute a {}\n", "1: attribute 'a' must have values"),
        ("@attribute a {x,x}\n", "1: attribute 'a' must have values, all different"),
        ("@attribute a real\n@attribute a real\n", "2: attribute names must differ, got 'a'"),
        ("@attribute\n", "1: must have a name"),
        ("@attribute a real\n@data\n1\n", "2: must say which attributes are labels"),
        (HEADER.replace("2", "5") + "1,1,1,1", "6: the number of labels must be between 1 and 4"),
        (HEADER.replace("{0,1}", "{0,1,2}", 1), "6: label 'rain' must have two values, got 3"),
        ("PK\x03\x04\x00\x00", "1: must be UTF-8 text, got a NUL"),
    ],
)
def test_a_bad_header_is_refused_with_its_line(text, message):
    with pytest.raises(DataError) as caught:
        read(text)
    assert str(caught.value).startswith(f"<stream>:{message}")


@pytest.mark.parametrize("rows", ["0,1,1\n", "{1 1}\n"])
def test_a_value_that_is_not_declared_is_refused_in_bulk_too(rows):
    text = "@attribute a numeric\n@attribute b {0}\n@attribute t {0,1}\n@data\n" + rows
    for reader in (read, read_carefully):
        with pytest.raises(DataError, match="'b' must be one of 0, got '1'"):
            reader(text, labels=-1)


def test_a_numeric_label_must_be_0_or_1():
    text = "@attribute x real\n@attribute tag numeric\n@data\n5,1\n5,0.5\n"
    with pytest.raises(DataError, match=r"5: label 'tag' must be 0 or 1, got '0.5'"):
        read(text, labels=-1)


def test_a_file_without_rows_is_refused(tmp_path):
    (tmp_path / "a.arff").write_text(HEADER)
    with pytest.raises(DataError, match=r"a\.arff: must hold at least one record"):
        load(tmp_path / "a.arff")


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_a_truncated_or_damaged_archive_is_refused(tmp_path, compress):
    rng = np.random.default_rng(0)
    rows = "".join(f"1,0,{a!r},{b!r}\n" for a, b in rng.random((3000, 2)).tolist())
    packed = compress((HEADER + rows).encode())
    path = tmp_path / "a.arff"
    path.write_bytes(packed)
    assert len(load(path).Y) == 3000
    for damaged in (packed[: len(packed) // 2], packed[:-4], packed[:5], packed[:50] + b"!" * 50):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.arff:\d+: must be readable to its end"):
            load(path)


def test_rows_are_handed_out_before_the_rest_is_read():
    class Endless(io.RawIOBase):
        lines = itertools.chain(HEADER.encode().splitlines(True), itertools.repeat(b"1,0,2,3\n"))

        def readline(self, size=-1):
            return next(self.lines)

    chunks = iter_arff(Endless(), chunk=100)
    assert [next(chunks).X.shape for _ in range(3)] == [(100, 2)] * 3


def test_short_rows_that_stand_for_many_cells_are_read_few_at_a_time(monkeypatch):
    monkeypatch.setattr("tagstream.records.arff._MAX_CELLS", 12)
    chunks = list(iter_arff(io.StringIO(HEADER + "{}\n" * 7)))
    assert [len(part.Y) for part in chunks] == [3, 3, 1]


def test_an_endless_header_is_refused(monkeypatch):
    monkeypatch.setattr("tagstream.records.arff_header._MAX_ATTRIBUTES", 3)
    with pytest.raises(DataError, match="5: must declare at most 3 attributes"):
        read(HEADER + "1,1,1,1\n")


def test_more_cells_of_labels_than_fit_are_refused(monkeypatch):
    monkeypatch.setattr("tagstream.records.dataset._MAX_CELLS", 10)
    assert len(read(HEADER + "{}\n" * 5).Y) == 5
    with pytest.raises(DataError, match=r"at most 10 records times labels .* got 6 records and 2"):
        read(HEADER + "{}\n" * 6)


def test_an_endless_line_is_refused_in_bounded_memory(monkeypatch):
    monkeypatch.setattr("tagstream.records.lines._MAX_LINE", 1000)
    monkeypatch.setattr("tagstream.records.lines._PIECE", 100)
    with pytest.raises(DataError, match=r"7: a line must have at most 1000 bytes"):
        read(HEADER + "1" * 5000)


def test_a_file_of_the_oracle_reads_the_same():
    arff = pytest.importorskip("arff")
    text = """@RELATION x
@ATTRIBUTE a REAL
@ATTRIBUTE 'b c' {u,'v w',x}
@ATTRIBUTE t {0,1}
@DATA
1.5,'v w',1
-2e-3,u,0
"""
    rows = arff.loads(text)["data"]
    data = read(text, labels=["t"])
    assert data.X[:, 0].tolist() == [row[0] for row in rows]
    assert [data.feature_names[1:][j] for j in data.X[:, 1:].argmax(1)] == [
        f"b c={row[1]}" for row in rows
    ]
    assert data.Y[:, 0].tolist() == [int(row[2]) for row in rows]


finite = st.floats(allow_nan=False, allow_infinity=False)
spelled = st.one_of(
    finite.map(repr),
    finite.map("{:.6g}".format),
    st.floats(-1e6, 1e6).map("{:.6f}".format),
    st.floats(-1, 1).map("{:.12f}".format),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["0", "-0", "+1", "1.", ".5", "007", "1e+05", "1E-3", "123456789012345"]),
)


@fuzz
@given(st.lists(spelled, min_size=1, max_size=30))
def test_bulk_numbers_are_exactly_what_float_reads(numbers):
    text = "".join(f"{number}\n" for number in numbers).encode()
    values, ends = parse_decimals(text, b",\n")
    expected = np.array([float(number) for number in numbers])
    assert values.tobytes() == expected.tobytes()
    assert ends.tobytes() == b"\n" * len(numbers)


NOT_NUMBERS = "1,,2|1 2|1-2|--1|-|.|1..2|1e|e1|1e5e5|0x1|nan|inf|1e999|1_0|\u0661|1\r|1;2|1\n"


@pytest.mark.parametrize("text", ["", "1", *(f"{text}\n" for text in NOT_NUMBERS.split("|"))])
def test_bulk_numbers_give_up_on_anything_else(text):
    assert parse_decimals(text.encode(), b",\n") is None


def test_bulk_numbers_are_read_across_blocks():
    numbers = np.random.default_rng(1).normal(size=60_000).round(6)
    text = "".join(f"{x!r}{',' if i % 7 else chr(10)}" for i, x in enumerate(numbers.tolist(), 1))
    values, _ = parse_decimals((text + "0\n").encode(), b",\n")
    np.testing.assert_array_equal(values[:-1], numbers)


@st.composite
def tables(draw):
    """A header of plain attributes and rows for it, mostly regular, in a random spelling."""
    kinds = draw(st.lists(st.sampled_from(["numeric", "{0,1}"]), min_size=2, max_size=6))
    cell = {"numeric": spelled, "{0,1}": st.sampled_from(["0", "1"])}
    lines = [f"@attribute a{j} {kind}" for j, kind in enumerate([*kinds, "{0,1}"])] + ["@data"]
    is_sparse = draw(st.booleans())
    comma = draw(st.sampled_from([",", ", "]))
    for _ in range(draw(st.integers(1, 8))):
        values = [draw(cell[kind]) for kind in [*kinds, "{0,1}"]]
        if is_sparse:
            kept = [f"{j} {value}" for j, value in enumerate(values) if draw(st.booleans())]
            lines.append("{" + comma.join(kept) + "}")
        else:
            lines.append(comma.join(values))
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines) + draw(st.sampled_from(["", "\n"]))


@fuzz
@given(tables(), st.integers(1, 5))
def test_bulk_and_careful_reading_agree_and_chunks_do_not_matter(text, chunk):
    careful = read_carefully(text, labels=-1)
    same(read(text, labels=-1), careful)
    same(read(text, labels=-1, chunk=chunk), careful)


@settings(fuzz, max_examples=200)
@given(
    tables(),
    st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=3)), min_size=1, max_size=3),
)
def test_a_damaged_file_is_refused_or_means_the_same_to_both_readers(text, edits):
    raw = text.encode()
    for position, replacement in edits:
        position %= len(raw) + 1
        raw = raw[:position] + replacement + raw[position + 1 :]
    careful, fast = outcome(read_carefully, raw, labels=-1), outcome(read, raw, labels=-1)
    cut = outcome(read, raw, labels=-1, chunk=2)
    if isinstance(careful, DataError):
        assert str(fast) == str(cut) == str(careful)
    else:
        same(fast, careful)
        X = careful.X.toarray() if sparse.issparse(careful.X) else careful.X
        assert (np.isfinite(X) | (b"?" in raw)).all()


@settings(fuzz, max_examples=200)
@given(st.binary(max_size=200) | st.text("@{}'\",\\%? \n01a.", max_size=80).map(str.encode))
def test_garbage_is_refused(garbage):
    refusal = outcome(read, garbage)
    assert isinstance(refusal, DataError)
    assert str(refusal).startswith("<stream>:")
    data = outcome(read, HEADER.encode() + garbage)
    if not isinstance(data, DataError):
        assert data.X.shape[0] == data.Y.shape[0] > 0


@settings(fuzz, max_examples=200)
@given(st.binary(max_size=100) | st.text('<label s/>="&;\n!DOCTYPE[]', max_size=60).map(str.encode))
def test_garbage_xml_is_refused(tmp_path_factory, garbage):
    path = tmp_path_factory.getbasetemp() / "fuzz.xml"
    path.write_bytes(garbage)
    with pytest.raises(DataError):
        read_labels_xml(path)


def test_chunk_must_be_positive():
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        next(iter_arff(io.StringIO(HEADER), chunk=0))


def test_nan_is_the_default_for_missing():
    assert math.isnan(read(HEADER + "1,0,?,2\n").X[0, 0])


@pytest.mark.parametrize("index", ["1e0", "1.0", "01e-999", "+1"])
def test_an_index_is_written_in_digits_whatever_is_read_with_it(index):
    head = "@relation r\n@attribute a numeric\n@attribute b numeric\n@attribute c {0,1}\n@data\n"
    for rows in ("{0 1}\n{%s 1}\n", "{0 1,%s 2,2 1}\n", "{%s 1}\n{0 1}\n"):
        text = (head + rows % index).encode()
        with pytest.raises(DataError, match="an entry must be 'index value'"):
            list(iter_arff(io.BytesIO(text), labels=-1))
