"""Files and commands as people have them: workbooks, arrays, folders, encodings, items, quality."""

from __future__ import annotations

import csv
import datetime
import io
import json

import pytest

from shell import SMALL, is_one_line, posts, records_of, write_jsonl
from tagstream import DataError
from tagstream.evaluation.quality import TagQuality, measure, wilson
from tagstream.records import Tally, iter_csv, iter_folder, iter_jsonl, iter_xlsx
from tagstream.tagger import Tagger

ASK = "swim beach wave sand tide"
QUICK = (*SMALL, "--method", "knn", "-p", "n_neighbors=3")


def write_table(path, records, encoding="utf-8", sep="|"):
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file)
        writer.writerow(["id", "body", "tags"])
        writer.writerows([post["id"], post["text"], sep.join(post["y"])] for post in records)
    return str(path)


def write_sheet(path, rows, name="Sheet"):
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    book = openpyxl.Workbook()
    book.active.title = name
    for row in rows:
        book.active.append(row)
    book.create_sheet("other").append(["text"])
    book.save(path)
    return str(path)


# ------------------------------------------------------------------ ids
def test_the_ids_of_a_table_are_kept_whatever_is_said(run, tmp_path):
    write_table(tmp_path / "a.csv", posts(30))
    how = ("--text", "body", "--labels", "tags", "--sep", "|")
    assert run("learn", "a.csv", *how, *QUICK, "-m", "m.tgs")[0] == 0
    assert Tagger.open("m.tgs").ids == [f"p{i}" for i in range(30)]
    assert run("correct", "m.tgs", "p3", "--tags", "winter")[0] == 0
    assert records_of(run("predict", "a.csv", "-m", "m.tgs")[1])[3]["id"] == "p3"
    assert run("learn", "a.csv", *how, *QUICK, "--no-ids", "-m", "n.tgs")[0] == 0
    assert Tagger.open("n.tgs").ids == [*range(30)]
    assert records_of(run("predict", "a.csv", "-m", "n.tgs")[1])[3]["id"] == 3
    code, _, err = run("predict", "a.csv", "--no-ids", "--ids", "id", "-m", "n.tgs")
    assert code == 2
    assert "--ids and --no-ids must not come together" in err
    write_jsonl(tmp_path / "a.jsonl", posts(5))
    assert records_of(run("predict", "a.jsonl", "--no-ids", "-m", "m.tgs")[1])[3]["id"] == 3


# ------------------------------------------------------------------ formats
def test_a_workbook_is_read_as_a_csv_file_with_these_cells(tmp_path):
    day = datetime.date(2024, 5, 1)
    rows = [[], ["id", "height", "when", "tag"], [17, 1.5, day, "sea"], [], [18, 2, day, None]]
    path = write_sheet(tmp_path / "a.xlsx", rows)
    (batch,) = iter_xlsx(path, text="when", labels="tag")
    assert batch.ids == ("17", "18")
    assert batch.items == ["2024-05-01"] * 2
    assert batch.label_sets == [("sea",), None]
    with pytest.raises(DataError, match=r"a\.xlsx:3: column 'when' must be a finite number"):
        list(iter_xlsx(path, labels="tag"))
    with pytest.raises(DataError, match="must have a sheet 'Zwei', got Sheet, other"):
        list(iter_xlsx(path, sheet="Zwei"))
    (tmp_path / "b.xlsx").write_text("no workbook")
    with pytest.raises(DataError, match=r"b\.xlsx: must be a workbook"):
        list(iter_xlsx(tmp_path / "b.xlsx"))
    with pytest.raises(FileNotFoundError):
        list(iter_xlsx(tmp_path / "c.xlsx"))


def test_commands_read_workbooks_and_remember_their_columns(run, tmp_path):
    rows = [["id", "body", "tags"]]
    rows += [[post["id"], post["text"], "; ".join(post["y"])] for post in posts(40)]
    write_sheet(tmp_path / "a.xlsx", rows, "Posts")
    how = ("--text", "body", "--labels", "tags", "--sep", ";", "--sheet", "Posts")
    assert run("learn", "a.xlsx", *how, *QUICK, "-m", "m.tgs")[0] == 0
    write_sheet(tmp_path / "b.xlsx", [["body"], [ASK]])
    out = run("predict", "b.xlsx", "-m", "m.tgs", "--out", "csv")[1]
    assert out == f"id,text,labels\n0,{ASK},sea\n"
    # tags are joined as they were in what was learnt
    both = "swim beach wave sand tide python bug loop array class"
    write_table(tmp_path / "b.csv", [{"id": "x", "text": both, "y": []}])
    out = run("predict", "b.csv", "-m", "m.tgs", "--out", "csv", "--decide", "top2")[1]
    assert out in (f"id,text,labels\nx,{both},{tags}\n" for tags in ("sea;code", "code;sea"))
    code, _, err = run("learn", "a.xlsx", "--encoding", "cp1252", "-m", "m.tgs", "--again")
    assert code == 2
    assert "--encoding must not be given for xlsx" in err


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("chunk", [1, 7, 256])
def test_an_array_is_read_as_its_records_in_lines(indent, chunk):
    records = [*posts(20), {"id": "é\n", "text": 'a "[{,}]" é', "y": []}]
    array = json.dumps(records, indent=indent, ensure_ascii=False).encode()
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    for source in (io.BytesIO(array), Tally(io.BytesIO(array), arrays=True)):
        batches = [*iter_jsonl(source, chunk=chunk)]
        wanted = [*iter_jsonl(io.BytesIO(lines), chunk=chunk)]
        assert [b.items for b in batches] == [b.items for b in wanted]
        assert [b.ids for b in batches] == [b.ids for b in wanted]
        assert [b.label_sets for b in batches] == [b.label_sets for b in wanted]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (b'[{"text": "a"}, {"text": "b"}', "must be readable to its end, got an array that does"),
        (b'[{"text": "a"} {"text": "b"}]', "2: must be one JSON object per line"),
        (b'[{"text": "a"}, {"text": }]', "2: must be one JSON object per line"),
        (b'[{"text": "a"}] more', "2: must be one JSON object per line"),
        (b'[{"text": "a"},]', "2: must be one JSON object per line"),
        (b'[{"text": "a"}, 3]', "2: must be one JSON object per line"),
    ],
)
def test_a_bad_array_is_refused_at_its_record(array, message):
    with pytest.raises(DataError, match=message):
        list(iter_jsonl(io.BytesIO(array)))


def test_an_empty_array_has_no_records():
    assert list(iter_jsonl(io.BytesIO(b" [ ] "))) == []


def test_an_array_is_learnt_from_where_it_was_left(run, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(posts(30), indent=2))
    assert run("learn", "a.json", *QUICK, "-m", "m.tgs")[0] == 0
    (tmp_path / "a.json").write_text(json.dumps(posts(40), indent=2))
    err = run("learn", "a.json", "-m", "m.tgs")[2]
    assert "30 records of a.json were learnt before\n10 records learnt" in err
    asked = json.dumps([{"id": "q", "text": ASK}])
    assert records_of(run("predict", "-", "-m", "m.tgs", stdin=asked)[1])[0]["id"] == "q"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings_are_told_apart(encoding, caplog):
    table = "text,y\nlow tide,sea\ncafé “süß”,food\n"
    (batch,) = iter_csv(io.BytesIO(table.encode(encoding)))
    assert batch.items == ["low tide", "café “süß”"]
    assert ("is read as cp1252" in caplog.text) == (encoding == "cp1252")
    assert "<stream>:3: " in caplog.text or encoding != "cp1252"
    (batch,) = iter_csv(io.BytesIO(table.encode(encoding)), encoding=encoding)
    assert batch.items == ["low tide", "café “süß”"]


def test_a_file_that_began_as_utf8_is_not_taken_for_another_encoding():
    mixed = "é,y\n".encode() + "é,z\n".encode("cp1252")
    with pytest.raises(DataError, match=r"2: must be UTF-8 text, got the byte b'.xe9'"):
        list(iter_csv(io.BytesIO(mixed), text="é"))
    with pytest.raises(ValueError, match="encoding must be one that Python knows"):
        list(iter_csv(io.BytesIO(b"a\n1\n"), encoding="klingon"))
    with pytest.raises(DataError, match="2: must be readable to its end, got 'ascii' codec"):
        list(iter_csv(io.BytesIO("a\né\n".encode()), encoding="ascii"))


def test_a_command_says_which_encoding_it_takes(run, tmp_path):
    post = {"id": "é", "text": ASK, "y": ["sea"]}
    write_table(tmp_path / "a.csv", [*posts(30), post], "cp1252")
    how = ("--text", "body", "--labels", "tags", "--sep", "|")
    code, _, err = run("learn", "a.csv", *how, *QUICK, "-m", "m.tgs")
    assert code == 0
    assert "a.csv:32: is no UTF-8 and is read as cp1252; if letters look wrong, say --enc" in err
    assert "is read" not in run("learn", "a.csv", *how, "--encoding", "cp1252", "-m", "m.tgs")[2]
    code, _, err = run("learn", "a.csv", *how, "--encoding", "klingon", "-m", "m.tgs")
    assert code == 2
    assert "--encoding must be one that Python knows" in err


def test_a_folder_has_a_record_for_each_file_and_tags_for_its_folders(run, tmp_path):
    top = tmp_path / "letters"
    for post in posts(20):
        for folder in (top / post["y"][0], top / post["y"][0] / "deep"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{post['id']}.txt").write_text(post["text"])
    (top / "loose.txt").write_text(ASK)
    (top / ".hidden").write_text("no")
    batches = [*iter_folder(top, chunk=7)]
    ids = [name for batch in batches for name in batch.ids]
    tags = dict(zip(ids, [t for batch in batches for t in batch.label_sets], strict=True))
    assert len(ids) == 41
    assert ids == sorted(ids, key=lambda name: name.split("/"))
    assert tags["loose.txt"] is None
    assert all(tags[name] == tuple(name.split("/")[:-1]) for name in ids if "/" in name)
    assert run("learn", "letters", *QUICK, "-m", "m.tgs")[0] == 0
    err = run("learn", "letters", "-m", "m.tgs")[2]
    assert "41 records of letters were learnt before" in err
    (top / "sea" / "deep" / "new.txt").write_text(ASK)
    assert "1 record learnt, 40 unchanged" not in err
    err = run("learn", "letters", "-m", "m.tgs")[2]
    assert "1 record learnt, 40 unchanged" in err
    assert run("predict", "letters", "-m", "m.tgs")[1].count("\n") == 42
    code, _, err = run("learn", "letters", "--labels", "x", "-m", "m.tgs")
    assert code == 2
    assert "--labels must not be given for folder" in err


def test_several_files_are_learnt_with_one_fit_at_the_end(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(60))
    write_jsonl(tmp_path / "b.jsonl", posts(60, seed=1, first=60))
    write_jsonl(tmp_path / "ab.jsonl", [*posts(60), *posts(60, seed=1, first=60)])
    assert run("learn", "a.jsonl", "b.jsonl", *SMALL, "-m", "m.tgs")[0] == 0
    assert run("learn", "ab.jsonl", *SMALL, "-m", "n.tgs")[0] == 0
    one, other = Tagger.open("m.tgs"), Tagger.open("n.tgs")
    assert one.ids == other.ids
    assert one.suggest([ASK]) == other.suggest([ASK])
    assert one.learner.n_since_fit_ == other.learner.n_since_fit_ == 0
    err = run("learn", "a.jsonl", "b.jsonl", "-m", "m.tgs")[2]
    assert "60 records of a.jsonl were learnt before" in err
    assert "60 records of b.jsonl were learnt before" in err


# ------------------------------------------------------------------ signs of a mistake
def test_tags_most_of_which_occur_once_are_refused(run, tmp_path):
    many = [{**post, "y": [f"a{i}|b{i % 9}"]} for i, post in enumerate(posts(250))]
    write_jsonl(tmp_path / "a.jsonl", many)
    code, _, err = run("learn", "a.jsonl", *QUICK, "-m", "m.tgs")
    assert code == 1
    assert is_one_line(err)
    assert "250 of 250 that occur once, such as 'a2" in err
    assert not (tmp_path / "m.tgs").exists()
    assert run("learn", "a.jsonl", *QUICK, "--many-tags", "-m", "m.tgs")[0] == 0
    write_jsonl(tmp_path / "b.jsonl", many[:199])
    assert run("learn", "b.jsonl", *QUICK, "-m", "n.tgs")[0] == 0


def test_an_error_says_what_was_learnt_and_how_to_go_on(run, tmp_path):
    path = tmp_path / "a.jsonl"
    write_jsonl(path, posts(100))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:90], "oops\n", *lines[91:]]))
    code, _, err = run("learn", "a.jsonl", *QUICK, "--chunk", "20", "-m", "m.tgs")
    assert code == 1
    assert is_one_line(err)
    assert "a.jsonl:91: must be one JSON object per line" in err
    assert "80 records before it are learnt and saved in m.tgs: mend it, and the same" in err
    path.write_text("".join(lines))
    assert "20 records learnt" in run("learn", "a.jsonl", "-m", "m.tgs")[2]
    path.write_text("oops\n")
    assert "learnt" not in run("learn", "a.jsonl", *QUICK, "-m", "n.tgs")[2]


# ------------------------------------------------------------------ texts and items
@pytest.fixture
def model(run, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", posts(60))
    assert run("learn", "a.jsonl", *QUICK, "-m", "m.tgs")[0] == 0
    return "m.tgs"


def test_a_text_can_be_given_itself(run, model):
    wanted = [{"id": 0, "labels": ["sea"]}]
    assert records_of(run("predict", ASK, "-m", model)[1]) == wanted
    assert records_of(run("predict", "--say", ASK, "-m", model)[1]) == wanted
    assert records_of(run("predict", "--say", "swim", "-m", model)[1])[0]["id"] == 0
    code, _, err = run("predict", "swim", "-m", model)
    assert code == 1
    assert "must be a file or the name of a data set" in err
    assert run("predict", ASK, "--say", ASK, "-m", model)[0] == 2
    assert run("predict", "-m", model)[0] == 2


def test_a_stored_item_is_explained_by_its_id(run, model):
    told = json.loads(run("explain", "--id", "p7", "-m", model, "--json")[1])
    assert told["neighbors"][0]["id"] == "p7"
    code, _, err = run("explain", "--id", "p99", "-m", model)
    assert code == 1
    assert "--id must be that of a stored item, got 'p99'" in err
    assert run("explain", "-m", model)[0] == 2


def test_items_are_listed_shown_searched_and_exported(run, model, tmp_path):
    out = run("items", model)[1]
    assert out.index("p59") < out.index("p58")
    assert "and more; --most 100" in out
    found = json.loads(run("items", model, "--tag", "sea", "--most", "99", "--json")[1])
    assert [item["id"] for item in reversed(found)] == [
        post["id"] for post in posts(60) if "sea" in post["y"]
    ]
    found = json.loads(run("items", "search", model, "SWIM", "python", "--json")[1])
    assert {item["id"] for item in found} == {
        post["id"] for post in posts(60) if {"swim", "python"} <= {*post["text"].split()}
    }
    assert found
    shown = run("items", "show", model, "p7")[1]
    assert shown.endswith(posts(60)[7]["text"] + "\n")
    assert run("items", "show", model, "p99")[0] == 1
    assert run("items", model, "--untagged", "--json")[1] == "[]\n"
    assert run("items", model, "--tag", "moon")[0] == 1
    exported = records_of(run("items", "export", model)[1])
    assert [(r["id"], r["text"], {*r["y"]}) for r in exported] == [
        (p["id"], p["text"], {*p["y"]}) for p in posts(60)
    ]
    rows = [*csv.reader(io.StringIO(run("items", "export", model, "--out", "csv")[1]))]
    assert rows[0] == ["id", "text", "y"]
    assert len(rows) == 61


# ------------------------------------------------------------------ quality
def test_a_saved_model_is_measured_on_a_file(run, model, tmp_path):
    write_jsonl(tmp_path / "t.jsonl", [*posts(50, seed=9), {"id": "u", "text": ASK}])
    code, out, err = run("evaluate", "t.jsonl", "-m", model, "--html", "q.html")
    assert code == 0
    assert "50 items" in out
    assert "1 record without labels passed over" in err
    assert "calibration: scores of 0.1 and more" in out
    told = json.loads(run("evaluate", "t.jsonl", "-m", model, "--json")[1])
    tagger = Tagger.open(model)
    found = [(set(post["y"]), set(tagger.suggest(post["text"]).tags)) for post in posts(50, seed=9)]
    hits = sum(len(true & got) for true, got in found)
    f1 = 2 * hits / sum(len(true) + len(got) for true, got in found)
    assert told["micro"]["f1"] == pytest.approx(f1)
    assert told["micro"]["interval"][0] < f1 < told["micro"]["interval"][1]
    assert {*told["tags"]} == {"sea", "food", "code"}
    page = (tmp_path / "q.html").read_text("utf-8")
    assert page.count("<svg") == 2
    assert "http" not in page
    assert "60 items of a.jsonl stored in m.tgs, too" in run("evaluate", "a.jsonl", "-m", model)[2]
    assert run("evaluate", "t.jsonl", "-m", model, "--holdout")[0] == 2
    assert run("evaluate", "t.jsonl", "--html", "q.html")[0] == 2


def test_quality_is_counted_by_hand():
    truth = [["a", "b"], ["a"], ["c"]]
    found = measure(
        truth, [["a"], ["a", "b"], []], [{"a": 0.95, "b": 0.3}, {"b": 0.8, "a": 0.7}, {}]
    )
    assert found.tags["a"] == TagQuality(2, 2, 2)
    assert found.tags["b"] == TagQuality(1, 1, 0)
    assert found.all == TagQuality(4, 3, 2)
    assert found.all.f1 == pytest.approx(4 / 7)
    assert found.macro_f1 == pytest.approx(1 / 3)
    assert found.precision_at == {1: pytest.approx(1 / 3), 3: pytest.approx(3 / 9)}
    assert [(part.n, part.right) for part in found.bins] == [(1, 1), (1, 1), (1, 0), (1, 1)]
    low, high = TagQuality(10, 10, 8).interval
    share_low, share_high = wilson(8, 12)
    assert (low, high) == (2 * share_low / (1 + share_low), 2 * share_high / (1 + share_high))
