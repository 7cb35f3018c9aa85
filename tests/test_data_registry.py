"""The registry: sizes of the real files, downloads from a loopback server, names and paths."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import http.server
import json
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import tagstream.data
from tagstream.checks import DataError
from tagstream.cli.records import FORMATS as NAMES
from tagstream.data import (
    DATASETS,
    FORMATS,
    DatasetInfo,
    RemoteFile,
    data_home,
    fetch,
    format_of,
    load,
)

PAPER = ["corel5k", "emotions", "enron", "medical", "cal500", "image", "scene", "slashdot"]
EXTRA = ["yeast", "bibtex", "delicious", "mediamill", "tmc2007-500"]


def test_the_registry_lists_the_papers_data_sets_and_five_more():
    assert list(DATASETS) == PAPER + EXTRA
    assert [name for name, info in DATASETS.items() if info.paper] == PAPER
    for name, info in DATASETS.items():
        assert info.name == name
        assert abs(info.labels) == info.q


def test_every_data_set_has_files_at_a_fixed_commit_and_their_checksum():
    for info in DATASETS.values():
        assert info.files
        assert len({file.filename for file in info.files}) == len(info.files)
        for file in info.files:
            assert re.fullmatch(r"https://\S+/[0-9a-f]{40}/\S+\.arff", file.url)
            assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)


@pytest.fixture(scope="module")
def home() -> Path:
    if not os.environ.get("TAGSTREAM_DATA"):
        pytest.skip("TAGSTREAM_DATA is not set")
    return Path(os.environ["TAGSTREAM_DATA"])


@pytest.mark.parametrize("name", DATASETS)
def test_a_benchmark_file_has_its_published_size(home, name):
    if not list((home / name).glob("*.arff*")):
        pytest.skip(f"{name} is not in TAGSTREAM_DATA")
    info = DATASETS[name]
    data = load(name, data_home=home)
    assert data.X.shape == (info.n, info.p)
    assert data.Y.shape == (info.n, info.q)
    assert data.Y.dtype == np.uint8
    assert data.Y.max() == 1
    assert data.cardinality == pytest.approx(info.cardinality, abs=5e-7)
    assert (data.name, data.n_train) == (name, info.n_train)
    assert len(data.feature_names) == info.p
    assert len(data.label_names) == info.q
    assert data.known is None
    values = data.X.data if sparse.issparse(data.X) else data.X
    assert np.isfinite(values).all()


def test_the_registry_agrees_with_the_index_beside_the_files(home):
    if not (home / "index.json").is_file():
        pytest.skip("no index.json in TAGSTREAM_DATA")
    for name, entry in json.loads((home / "index.json").read_text()).items():
        info = dataclasses.asdict(DATASETS[name])
        assert {key: info[key] for key in entry if key in info} == {
            key: value for key, value in entry.items() if key in info
        }


def test_labels_are_the_same_with_and_without_the_xml(home, tmp_path):
    for name in ("medical", "slashdot", "yeast"):
        original = home / name / f"{name}.arff.gz"
        if not original.is_file():
            pytest.skip(f"{name} is not in TAGSTREAM_DATA")
        (tmp_path / name).mkdir()
        (tmp_path / name / original.name).write_bytes(original.read_bytes())
        assert load(name, data_home=tmp_path).label_names == load(name, data_home=home).label_names


# Relations of the public files where the packed one has another, and whether they end in a newline.
PUBLIC: dict[str, tuple[list[tuple[str, str]], str]] = {
    "corel5k": ([("", ""), ("-train", "-test")], "\n"),
    "emotions": ([("", "")], ""),
    "enron": ([("", ""), ("", "")], ""),
    "medical": ([("", ""), ("-P66", "-P66-V")], ""),
    "cal500": ([("", "")], ""),
    "scene": ([("scene", "MultiLabelData"), ("scene", "MultiLabelData")], "\n"),
    "slashdot": ([("1891'", "1891' %50")], "\n"),
    "yeast": ([("", ""), ("", "")], "\n"),
    "bibtex": ([("", ""), ("", "")], ""),
    "delicious": ([("", "")], ""),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_the_checksums_are_those_of_the_rows_that_are_here(home, name):
    if not (home / "index.json").is_file():
        pytest.skip("no index.json in TAGSTREAM_DATA")
    text = gzip.decompress((home / name / f"{name}.arff.gz").read_bytes()).decode()
    relation, _, text = text.partition("\n")
    header, rows = text.rstrip("\n").split("@data\n")
    header += "@data\n"
    if name == "slashdot":
        header = header.replace("@attribute class ", "@attribute classXXX ") + "\n"
    info, lines, (relations, end) = DATASETS[name], rows.split("\n"), PUBLIC[name]
    parts = [lines] if len(info.files) == 1 else [lines[: info.n_train], lines[info.n_train :]]
    for file, (here, there), part in zip(info.files, relations, parts, strict=True):
        first = relation.replace(here, there) if here else relation
        public = f"{first}\n{header}" + "\n".join(part) + end
        assert hashlib.sha256(public.encode()).hexdigest() == file.sha256


ROWS = "@relation x\n@attribute a numeric\n@attribute t {0,1}\n@data\n"
PARTS = {"/train.arff": f"{ROWS}1,0\n2,1\n".encode(), "/test.arff": f"{ROWS}3,1\n".encode()}


class Server(http.server.ThreadingHTTPServer):
    """Serves ``PARTS`` on loopback and keeps the paths it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.files = dict(PARTS)
        self.withheld = 0
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        body = self.server.files.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"") + self.server.withheld))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server(monkeypatch):
    pytest.importorskip("pooch")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        files = tuple(
            RemoteFile(address + path, hashlib.sha256(body).hexdigest())
            for path, body in PARTS.items()
        )
        info = DatasetInfo("toy", "toys", 3, 1, 1, 2 / 3, -1, 2, False, "loopback", files)
        monkeypatch.setitem(DATASETS, "toy", info)
        yield server
        server.shutdown()
        thread.join()


def test_a_missing_data_set_is_downloaded_once(server, tmp_path, capfd):
    data = load("toy", data_home=tmp_path)
    assert capfd.readouterr() == ("", "")
    assert data.X.tolist() == [[1], [2], [3]]
    assert data.Y.tolist() == [[0], [1], [1]]
    assert (data.name, data.n_train, data.label_names) == ("toy", 2, ("t",))
    assert server.asked == ["/train.arff", "/test.arff"]
    assert sorted(p.name for p in (tmp_path / "toy").iterdir()) == ["test.arff", "train.arff"]
    server.shutdown()
    server.server_close()
    assert load("TOY", data_home=tmp_path).Y.tolist() == data.Y.tolist()
    assert len(server.asked) == 2


def test_a_wrong_checksum_is_refused_and_leaves_nothing_behind(server, tmp_path):
    server.files["/test.arff"] = b"something else"
    with pytest.raises(DataError, match=r"/test\.arff: must have SHA-256 "):
        load("toy", data_home=tmp_path)
    assert [p.name for p in (tmp_path / "toy").iterdir()] == ["train.arff"]
    server.files.update(PARTS)
    assert len(load("toy", data_home=tmp_path).Y) == 3
    assert server.asked == ["/train.arff", "/test.arff", "/test.arff"]


def test_a_failed_download_leaves_nothing_behind(server, tmp_path):
    server.files.clear()
    with pytest.raises(
        FileNotFoundError, match=r"/train\.arff: must be within reach, got status 404; "
    ) as bad:
        fetch("toy", data_home=tmp_path)
    assert str(bad.value).endswith(f"download train.arff by other means into {tmp_path / 'toy'}")
    assert list((tmp_path / "toy").iterdir()) == []


def test_a_download_that_breaks_off_leaves_nothing_behind_and_can_be_repeated(server, tmp_path):
    server.withheld = 7
    with pytest.raises((FileNotFoundError, DataError), match=r"/train\.arff: must "):
        fetch("toy", data_home=tmp_path)
    assert list((tmp_path / "toy").iterdir()) == []
    server.withheld = 0
    assert len(load("toy", data_home=tmp_path).Y) == 3


def test_an_address_out_of_reach_says_where_to_put_the_file(server, tmp_path):
    server.shutdown()
    server.server_close()
    with pytest.raises(
        FileNotFoundError, match=r"must be within reach, .* train\.arff by other means"
    ):
        load("toy", data_home=tmp_path)


def test_progress_is_reported(server, tmp_path):
    class Bar:
        total = 0
        done = 0

        def update(self, n):
            self.done += n

        def reset(self):
            self.done = 0

        def close(self):
            self.closed = True

    bar = Bar()
    fetch("toy", data_home=tmp_path, progress=bar)
    assert bar.closed
    assert bar.done == bar.total == len(PARTS["/test.arff"])


def test_a_file_of_ones_own_packing_comes_first(server, tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "toy.arff").write_bytes(PARTS["/test.arff"])
    assert load("toy", data_home=tmp_path).X.tolist() == [[3]]
    assert server.asked == []


def test_parts_must_declare_the_same_attributes(server, tmp_path):
    (tmp_path / "toy").mkdir()
    for name, body in PARTS.items():
        changed = body.replace(b"@attribute a", b"@attribute b") if "test" in name else body
        (tmp_path / "toy" / name[1:]).write_bytes(changed)
    with pytest.raises(DataError, match="all parts must declare the same attributes"):
        load("toy", data_home=tmp_path)


def test_without_pooch_the_extra_is_named(server, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    with pytest.raises(ImportError, match=r"install tagstream\[fetch\]"):
        load("toy", data_home=tmp_path)


def test_a_data_set_without_a_known_file_says_where_to_put_it(tmp_path, monkeypatch):
    info = DatasetInfo("toy", "toys", 3, 1, 1, 2 / 3, -1, 2, False, "someone: toys.arff")
    monkeypatch.setitem(DATASETS, "toy", info)
    with pytest.raises(FileNotFoundError, match=r"'toy' must be at .*its source is someone: toys"):
        load("toy", data_home=tmp_path)


def test_an_unknown_name_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"one of corel5k, .* got 'corel6k'"):
        load("corel6k")


def test_the_format_comes_from_the_suffix_or_the_caller(tmp_path):
    path = tmp_path / "records.log"
    path.write_text('{"x": [1], "y": ["a"]}\n')
    with pytest.raises(ValueError, match=r"ending of .*records\.log' must tell its format"):
        load(path)
    assert load(path, format="jsonl").label_names == ("a",)
    with pytest.raises(ValueError, match=r"format must be one of arff, csv, .*, got 'xls'"):
        load(path, format="xls")


def test_an_option_that_the_format_has_not_is_refused(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("1 1:1\n")
    with pytest.raises(ValueError, match=r"options of libsvm must be among .*, got sep"):
        load(path, sep="|")


def test_the_command_line_names_the_formats_of_the_table():
    """It has their names apart, as it must not load their readers to say what they are."""
    assert tuple(FORMATS) == NAMES


def test_every_format_is_one_entry_of_the_table():
    for name, entry in FORMATS.items():
        assert entry.name == name
        assert entry.endings or name == "folder"
        assert {format_of(f"a{ending}.gz") for ending in entry.endings} <= {name}
    endings = [ending for entry in FORMATS.values() for ending in entry.endings]
    assert len(set(endings)) == len(endings)
    assert "delimiter" in FORMATS["csv"].options
    assert "delimiter" not in FORMATS["tsv"].options


def test_the_data_home_is_chosen_by_argument_environment_and_system(monkeypatch, tmp_path):
    monkeypatch.setenv("TAGSTREAM_DATA", str(tmp_path))
    assert data_home() == tmp_path
    assert data_home("here") == Path("here")
    monkeypatch.delenv("TAGSTREAM_DATA")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_home() == tmp_path / "tagstream"
    monkeypatch.setattr("sys.platform", "darwin")
    assert data_home() == Path.home() / "Library" / "Caches" / "tagstream"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert data_home() == tmp_path / "tagstream"


def test_the_public_names_exist():
    names = tagstream.data.__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(tagstream.data, name) for name in names)
