"""Draw the pictures of the guides to connectors: ``python tools/pictures.py``.

Each command is run, against the servers of the tests, and what it prints is drawn as a terminal.
Needs the extra ``mcp`` and ``jq``.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from fake_github import REPOSITORY, FakeGitHub, serving_github  # noqa: E402
from fake_github import TOKEN as GITHUB_TOKEN  # noqa: E402
from fake_paperless import TOKEN, FakePaperless, serving_paperless  # noqa: E402

WIDTH = 114
LETTERS = {
    "Insurance": "your car insurance policy covers damage and theft for the year {}",
    "Invoice": "invoice number {} please pay the amount within fourteen days",
    "Salary": "payslip of month {} with gross pay, tax and net pay",
    "Garden": "delivery of {} rose bushes, tulips and soil for the garden",
}
AGENT = """
import asyncio, json
from mcp import Client, StdioServerParameters

async def main():
    server = StdioServerParameters(command="tagstream", args=["mcp", "docs.tgs"])
    async with Client(server) as client:
        print("tools:", *(tool.name for tool in (await client.list_tools()).tools))
        for tool, given in [("suggest_tags", {"texts": ["theft of my car in May"]}),
                            ("candidates", {"tag": "Insurence"})]:
            told = await client.call_tool(tool, given)
            said = json.dumps(told.structured_content)
            print(f"{tool}: {told.content[0].text if told.is_error else said}")

asyncio.run(main())
"""


class Terminal:
    """Runs commands in a folder, and draws them with what they print."""

    def __init__(self, folder: Path, environment: dict[str, str], names: dict[str, str]) -> None:
        self.folder, self.names = folder, names
        shim = folder / "bin"
        shim.mkdir(exist_ok=True)
        (shim / "tagstream").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tagstream "$@"\n')
        (shim / "tagstream").chmod(0o755)
        (shim / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (shim / "python").chmod(0o755)
        self.environment = {
            **os.environ, **environment, "PYTHONPATH": str(ROOT / "src"),
            "PATH": f"{shim}:{os.environ['PATH']}",
        }  # fmt: skip
        self.console = Console(
            record=True, width=WIDTH, file=io.StringIO(), color_system="truecolor"
        )

    def run(self, command: str, shows: str | None = None) -> None:
        """Run a command, and show it (or what stands for it) with what it prints."""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            check=True, cwd=self.folder, env=self.environment, capture_output=True, text=True,
        )  # fmt: skip
        self.say(f"$ {shows or command}", "bold green")
        self.say((done.stdout + done.stderr).rstrip())

    def say(self, text: str, style: str = "") -> None:
        """Show a text."""
        for real, shown in self.names.items():
            text = text.replace(real, shown)
        self.console.print(Text(text, style=style))

    def draw(self, name: str, title: str) -> None:
        """Write the picture of that name."""
        drawn = self.console.export_svg(title=title, theme=MONOKAI, unique_id=name)
        drawn = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # nothing is fetched
        (ROOT / "docs" / f"{name}.svg").write_text(
            "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n", encoding="utf-8"
        )


def filled() -> FakePaperless:
    """Return a server with letters of four tags, and two scans."""
    server = FakePaperless()
    server.tag("Inbox", is_inbox_tag=True)
    tags = {name: server.tag(name) for name in LETTERS}
    for i in range(12):
        for name, text in LETTERS.items():
            server.upload(f"{name} {2026 - i}", text.format(i), [tags[name]])
    server.upload("scan_0412", "damage to your car: the insurance policy and theft", [1])
    server.upload("scan_0413", "delivery of tulips and soil", [1])
    return server


def draw_paperless(folder: Path) -> None:
    """Draw the first suggestion in paperless-ngx."""
    server = filled()
    with serving_paperless(server) as url:
        shown = {url: "http://127.0.0.1:8000"}
        terminal = Terminal(folder, {"TAGSTREAM_PAPERLESS_TOKEN": TOKEN}, shown)
        command = f"tagstream connect paperless {url} -t docs.tgs --backlog"
        terminal.run(command)
        terminal.run(f"{command} --go")
        terminal.say("\na note in paperless-ngx, document 49:", "italic")
        terminal.say(server.note_texts(49)[0])
        terminal.draw("connect-paperless", "paperless-ngx")


def draw_agent(folder: Path) -> None:
    """Draw an agent that asks the model of the picture before."""
    (folder / "agent.py").write_text(AGENT)
    code = AGENT.replace('command="tagstream"', f'command="{folder / "bin" / "tagstream"}"')
    code = code.replace('"docs.tgs"])', '"docs.tgs"], env=__import__("os").environ)')
    (folder / "run.py").write_text(code.replace("environ)", "environ.copy())"))
    terminal = Terminal(folder, {}, {})
    terminal.run("python run.py 2>/dev/null", "python agent.py")
    terminal.draw("connect-mcp", "an agent and tagstream mcp")


def draw_github(folder: Path) -> None:
    """Draw the first suggestion for an issue."""
    github = FakeGitHub(["bug", "docs", "question"])
    said: dict[str, Any] = {
        "bug": "it crashes with a traceback when the file is empty",
        "docs": "the manual page has a typing mistake in the example",
    }
    for i in range(10):
        for label, text in said.items():
            github.open(f"{label.title()} {i}", f"{text} {i}", [label])
    with serving_github(github) as url:
        environment = {"GITHUB_TOKEN": GITHUB_TOKEN, "GITHUB_API_URL": url}
        terminal = Terminal(folder, environment, {})
        command = f"tagstream connect github -r {REPOSITORY} -t labels.tgs --go"
        terminal.run(command)
        new = github.open("Crash at start", "a traceback comes when I open an empty file")
        terminal.run(command)
        terminal.say(f"\nthe comment on issue {new}:", "italic")
        terminal.say(github.texts(new)[0])
        terminal.draw("connect-github", "GitHub issues")


def draw_pipes(folder: Path) -> None:
    """Draw the first section of docs/pipes.md."""
    page = (ROOT / "docs" / "pipes.md").read_text(encoding="utf-8")
    (section,) = [one for one in page.split("\n## ") if one.startswith("jq: any JSON")]
    found = re.findall(r"^```(\w+)[ ]?([\w.]*)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    terminal = Terminal(folder, {}, {})
    for _, name, text in found:
        if name:
            (folder / name).write_text(text)
        else:
            terminal.run(text.rstrip())
    terminal.draw("pipes", "pipes")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        for draw in (draw_paperless, draw_agent, draw_github, draw_pipes):
            draw(Path(made))
