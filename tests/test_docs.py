"""What the pages say runs: Python, shell commands, and the files they begin with.

Blocks of a page run in their order, in an empty folder. A fence ``jsonl posts.jsonl`` writes that
file; ``pycon`` is a doctest; ``python`` is run; in ``console`` a line after ``$`` is a command
(tagstream, cat, head and pipes between them) and what follows is its output, ``...`` for any.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tagstream
from tagstream import cli

ROOT = Path(__file__).parents[1]
PAGES = [
    *("docs/tagging.md", "docs/try-out.md", "docs/researchers.md"),
    *("docs/add-a-learner.md", "docs/architecture.md"),
    "CONTRIBUTING.md",
]
DOCS = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
LINKED = [*DOCS, "CONTRIBUTING.md", "README.md", "CHANGELOG.md", "SECURITY.md"]
CITED = re.compile(r"`(test_\w+\.py|…)::(test_\w+)`")
FENCE = re.compile(r"^```(\w+)[ ]?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(page: str) -> list[tuple[int, str, str, str]]:
    """Return line number, language, name and text of each fenced block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start()) + 2, *m.groups()) for m in FENCE.finditer(text)]


def run_pycon(text: str, names: dict[str, Any], where: str, line: int) -> None:
    test = doctest.DocTestParser().get_doctest(text, names, where, where, line)
    test.globs = names  # the parser made a copy
    report = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    runner.run(test, out=report.write, clear_globs=False)
    assert not runner.failures, report.getvalue()


def run_command(command: str) -> str:
    """Run a pipe of commands in this process and return its output."""
    stream, _, target = command.partition(" > ")
    data = b""
    for part in stream.split(" | "):
        words = shlex.split(part)
        if words[0] == "cat":
            data = b"".join(Path(name).read_bytes() for name in words[1:])
        elif words[0] == "echo":
            data = " ".join(words[1:]).encode() + b"\n"
        elif words[0] == "head":
            lines = Path(words[2]).read_bytes() if len(words) > 2 else data
            data = b"".join(lines.splitlines(keepends=True)[: -int(words[1])])
        else:
            assert words[0] == "tagstream", command
            data = run_tagstream(words[1:], data).encode()
    if target:
        Path(target).write_bytes(data)
        return ""
    return data.decode()


def run_tagstream(words: list[str], data: bytes) -> str:
    out, messages = io.StringIO(), io.StringIO()
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(data))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(messages):
            code = cli.main(words)
    finally:
        sys.stdin = before
    assert code == 0, messages.getvalue()
    return messages.getvalue() + out.getvalue()


def run_console(text: str, where: str) -> None:
    checker = doctest.OutputChecker()
    # A command goes on in the next line after a backslash.
    for step in re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, want = step.partition("\n")
        got = run_command(command)
        if want.strip():
            assert checker.check_output(want, got, FLAGS), f"{where}: $ {command}\n{got}"


@pytest.mark.parametrize("page", PAGES)
def test_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for line, language, name, text in blocks(page):
        where = f"{page}:{line}"
        if name:
            Path(name).write_text(text, encoding="utf-8")
        elif language == "pycon":
            run_pycon(text, names, where, line)
        elif language == "python":
            exec(compile("\n" * (line - 1) + text, where, "exec"), names)
        elif language == "console":
            run_console(text, where)
        else:
            assert language in ("text", "sh"), f"{where}: {language} is not run"


def test_the_pages_have_something_to_run() -> None:
    kinds = {(page, block[1]) for page in PAGES for block in blocks(page)}
    assert {("docs/tagging.md", "console"), ("docs/tagging.md", "pycon")} <= kinds
    assert {("docs/researchers.md", "pycon"), ("docs/architecture.md", "pycon")} <= kinds


def test_a_page_that_does_not_hold_fails() -> None:
    with pytest.raises(AssertionError, match="Expected"):
        run_pycon(">>> 1 + 1\n3\n", {}, "page", 1)
    with pytest.raises(AssertionError, match="--version"):
        run_console("$ tagstream --version\ntagstream 99\n", "page")
    with pytest.raises(AssertionError, match="No such option"):
        run_console("$ tagstream inspect m.tgs --neither\n", "page")


@pytest.mark.parametrize("page", LINKED)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    targets = re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
    here = [target for target in targets if "://" not in target]
    missing = [target for target in here if not (path.parent / target).exists()]
    assert not missing, f"{page}: {missing}"


@pytest.mark.parametrize("page", DOCS)
def test_tests_that_a_page_cites_exist(page: str) -> None:
    """``…`` stands for the file that was named before."""
    file, missing = "", []
    for name, test in CITED.findall((ROOT / page).read_text(encoding="utf-8")):
        file = file if name == "…" else name
        path = ROOT / "tests" / file
        if not path.is_file() or f"def {test}(" not in path.read_text(encoding="utf-8"):
            missing.append(f"{file}::{test}")
    assert not missing


def test_the_page_of_mathematics_cites_tests() -> None:
    assert len(CITED.findall((ROOT / "docs/math.md").read_text(encoding="utf-8"))) > 50


def test_every_page_is_on_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in DOCS:
        assert f": {page.removeprefix('docs/')}\n" in site


def test_the_api_reference_is_made_with_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    site = load_site(monkeypatch)
    structure = pytest.importorskip("mkdocs.structure.files")
    plugins = SimpleNamespace(_current_plugin="site")
    config = SimpleNamespace(site_dir="build/site", use_directory_urls=True, plugins=plugins)
    made = site.on_files(structure.Files([]), config).get_file_from_path("api.md")
    assert made is not None
    assert "#### `Tagger.suggest`" in made.content_string


def test_links_of_the_root_become_links_between_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    site = load_site(monkeypatch)
    text = "[a](docs/math.md#1) [b](../CONTRIBUTING.md) [c](https://x.y/docs/z)"
    assert (
        site.on_page_markdown(text) == "[a](math.md#1) [b](contributing.md) [c](https://x.y/docs/z)"
    )
    assert site.on_page_markdown("```\n[a](docs/math.md)\n```") == "```\n[a](docs/math.md)\n```"


def test_the_oldest_versions_are_the_floors() -> None:
    oldest = load("tools/oldest.py")
    project = """
        [project]
        dependencies = ["a>=1.2"]
        [project.optional-dependencies]
        plot = ["b>=3"]
        other = ["c>=4"]
        [dependency-groups]
        test = ["a>=1.2; python_version >= '3.11'", "d-e>=0.5"]
        """
    assert oldest.constraints(project) == ["a==1.2", "b==3", "d-e==0.5"]
    with pytest.raises(ValueError, match="a dependency must read name>=version, got 'b'"):
        oldest.constraints(project.replace("b>=3", "b"))
    with pytest.raises(ValueError, match="a must have one floor"):
        oldest.constraints(project.replace("a>=1.2;", "a>=1.3;"))
    assert len(oldest.constraints((ROOT / "pyproject.toml").read_text(encoding="utf-8"))) > 10


def test_the_pages_have_links_to_follow() -> None:
    pages = [(ROOT / page).read_text(encoding="utf-8") for page in LINKED]
    assert sum(text.count(".md)") + text.count(".png)") for text in pages) >= 10


def test_the_layers_are_those_that_are_checked() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    layers = re.search(r"^layers = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    assert layers is not None
    drawn = next(text for _, kind, _, text in blocks("docs/architecture.md") if kind == "text")
    assert drawn.split("\n")[:-1] == re.findall(r'"(.*)"', layers[1])
    table = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    for name in re.findall(r"\w+", drawn):
        assert re.search(rf"^\|.*`{name}`.*\|.*\|$", table, re.MULTILINE), name


def load(script: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(script).stem, ROOT / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_api_reference_names_all_that_is_public() -> None:
    page = load("docs/make_api.py").render()
    other = {"load_model": "load", "save_model": "save"}
    for name in set(tagstream.__all__) - {"__version__"}:
        assert f"### `{other.get(name, name)}`" in page


def load_site(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Load the hooks as mkdocs does: what lies beside them can be imported."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("latex2mathml")
    monkeypatch.syspath_prepend(ROOT / "docs")
    return load("docs/site.py")


def test_versions_agree() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)(?: \(unreleased\))?$", changes, re.MULTILINE)
    assert newest is not None
    assert newest[1] == tagstream.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {tagstream.__version__}\n" in citation


@pytest.mark.parametrize("name", ["Makefile", ".ci/run"])
def test_the_test_files_that_scripts_name_are_there(name: str) -> None:
    if not (ROOT / name).exists():
        pytest.skip("the source distribution has no scripts of the CI")
    named = re.findall(r"test_\w+\.py", (ROOT / name).read_text(encoding="utf-8"))
    assert named
    assert [one for one in named if not (ROOT / "tests" / one).exists()] == []
