"""Hooks of mkdocs: the API and the files of the root as pages, and links that lead there.

The pages are written to be read in the repository, where the README says ``docs/math.md`` and a
page says ``../CONTRIBUTING.md``.  On the site both are pages beside each other.  Formulas become
MathML when the site is built, so a page needs no script and nothing from elsewhere.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import make_api
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
FILES = ("CITATION.cff", "LICENSE")  # linked to, and given out as they are
LINK = re.compile(r"(?<=\]\()(?:\.\./|docs/)?(?P<path>[^)#\s:]+)")
FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">(?P<tex>.*?)</(?P=tag)>', re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the API and the files of the root; leave out what is no page."""
    for name in ("site.py", "make_api.py"):
        found = files.get_file_from_path(name)
        if found is not None:
            files.remove(found)
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "api.md", content=make_api.render()))
    for name in FILES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links between the root and ``docs`` into links between pages."""
    parts = FENCE.split(markdown)
    return "".join(
        part if part.startswith("```") else LINK.sub(lambda m: _page(m["path"]), part)
        for part in parts
    )


def on_page_content(html: str, **_: Any) -> str:
    """Turn formulas into MathML."""
    return FORMULA.sub(_formula, html)


def _page(path: str) -> str:
    return PAGES.get(path, path)


def _formula(match: re.Match[str]) -> str:
    tex = html.unescape(match["tex"]).strip()[2:-2]  # without its brackets
    made = convert(tex, display="block" if match["tag"] == "div" else "inline")
    if unknown := re.findall(r"\\[a-zA-Z]+", made):
        raise PluginError(f"a formula must use commands that MathML has, got {unknown} in {tex!r}")
    return made
