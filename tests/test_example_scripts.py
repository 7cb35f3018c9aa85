"""The examples run, and show what they promise."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOK = EXAMPLES / "tagging.ipynb"
SHOWN = {
    "text_in_ten_lines.py": ["tags: ['sea', 'travel']", "Where to swim in May?"],
    "correct_and_forget.py": [
        "after the correction: ['swap', 'garden']",
        "a copy of a which you corrected: True",
        "'music': 1",
        "the same from the file: True",
    ],
    "helpdesk.py": [
        "a ticket goes to: ['printer']",
        "the best team for a headset: phone",
        "after the correction: ['account', 'printer']",
        "<Tagger: 309 items, 4 tags, OML>",
    ],
    "photo_library.py": ["micro-F1 on 100 new pictures: 0.", "found again: True"],
    "stream_with_drift.py": ["after 1200: keeps 0.", "the window is better in the end: True"],
    "own_embedding.py": ["with the embedding: {'travel'", "the same from the file: True"],
    "own_learner.py": ["frequent   micro-F1 0.", "oml        micro-F1 0."],
}


def test_every_example_is_run_here():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHOWN)
    assert [*EXAMPLES.glob("*.ipynb")] == [NOTEBOOK]


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    out = capsys.readouterr().out
    assert all(text in out for text in SHOWN[name]), out
    assert [*tmp_path.iterdir()] == []


def test_the_cells_of_the_notebook_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    assert not any(
        cell.get("outputs") for cell in notebook["cells"]
    )  # small, and never out of date
    names: dict[str, object] = {}
    for i, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}, cell {i}", "exec"), names)
    assert "swap" not in names["before"].tags
    assert "swap" in names["after"].tags
    assert Path("board.tgs").exists()


def test_the_notebook_runs_in_jupyter(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=None, resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    assert notebook.cells[-1].outputs
