"""``compare``, ``benchmark`` and ``leaderboard`` as a user meets them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tagstream import make_stream
from tagstream.cli import compare as command
from tagstream.studies import benchmark, runner

MADE = make_stream(120, seed=0)


@pytest.fixture
def streams(monkeypatch):
    """Every stream is a small one, and here."""

    def small(name):
        return replace(MADE, name=name)

    monkeypatch.setattr(
        runner.run_streams, "__kwdefaults__", {**runner.run_streams.__kwdefaults__, "load": small}
    )
    monkeypatch.setattr(benchmark, "benchmark_stream", small)
    monkeypatch.setattr(command, "present", lambda names, quiet: list(names))


def test_a_learner_is_printed_beside_the_published_numbers(run, streams, tmp_path):
    args = ("compare", "mlhat", "--only", "scene", "--learner", "knn", "--out", "records")
    code, out, err = run(*args)
    assert code == 0
    assert "MLHAT" in out
    assert ".9364" not in out  # as the other tables of the project: three decimals
    assert ".936" in out
    assert "items: 120 here, 2,407 there" in out
    assert "kNN on scene" in err
    before = (tmp_path / "records" / "scene.jsonl").read_text()
    code, out, _ = run(*args, "--json", "--quiet")
    assert json.loads(out)["records"][0]["learner"] == "knn"
    assert (tmp_path / "records" / "scene.jsonl").read_text() == before


def test_a_report_has_tables(run, streams, tmp_path):
    args = ("compare", "aesaknns", "--only", "scene", "--learner", "knn", "--quiet")
    assert run(*args, "--report", "page")[0] == 0
    assert "| scene | micro-F1 |" in (tmp_path / "page" / "tables" / "aesaknns.md").read_text()
    text = (tmp_path / "page" / "tables" / "aesaknns-ranks-micro_f1.md").read_text()
    assert "Too few streams for the tests: 1" in text


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("compare", "nobody"), "STUDY must be one of aesaknns, mlhat, drift, extreme"),
        (("compare", "mlhat", "--only", "corel5k"), "--only must name one of"),
        (("compare", "mlhat", "--learner", "nobody"), "learner must be MODULE:CLASS or one of"),
        (("compare", "mlhat", "--learner", "no_such_module:Learner"), "No module named"),
        (("compare", "extreme", "--learner", "oml"), "--learner must not come with extreme"),
        (
            ("compare", "drift", "--report", "page"),
            "--document must not come with drift",
        ),
        (("benchmark", "--only", "mediamill"), "--only must name one of yeast, scene, enron"),
    ],
)
def test_a_wrong_command_is_told_in_one_line(run, args, said):
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_the_named_learners_are_listed(run):
    code, out, _ = run("compare", "mlhat", "--learners")
    assert code == 0
    assert {"oml", "moa-amrules", "river-ht", "sklearn-sgd", "meka-rt"} <= set(out.split())


def test_the_benchmark_writes_a_file_and_the_leaderboard_a_page(run, streams, tmp_path):
    code, out, _ = run("benchmark", "--quick", "--only", "yeast", "--learner", "knn")
    assert code == 0
    assert "7 of 81" in out
    folder = tmp_path / "results" / "leaderboard"
    assert len((folder / "knn.jsonl").read_text().splitlines()) == 7
    page = tmp_path / "page.md"
    page.write_text("<!-- begin:leaderboard -->\n<!-- end:leaderboard -->\n")
    code, out, _ = run("leaderboard", str(folder), "--document", str(page))
    assert code == 0
    assert "| kNN | tagstream | 7 of 81, 1 failed |" in page.read_text()


def test_a_folder_without_records_is_told(run, tmp_path):
    code, _, err = run("leaderboard", str(tmp_path))
    assert code == 1
    assert "must hold records of the benchmark" in err
