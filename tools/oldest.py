"""Print constraints that pin every dependency to the oldest version that pyproject.toml allows.

    python tools/oldest.py > oldest.txt
    pip install -c oldest.txt . --group test

Run by ``make oldest`` and by the hosted CI, so that the floors are versions that were tested.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
EXTRAS = ("plot", "fetch", "river", "parquet", "serve")  # those whose packages the tests import
REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)\s*>=\s*(?P<version>[\w.]+)(,\s*<[\w.]+)?\s*(?P<marker>;.*)?"
)


def constraints(text: str) -> list[str]:
    """Return one ``name==version`` per dependency of the package, its extras and its tests.

    Parameters
    ----------
    text : str
        A pyproject.toml in which every dependency reads ``name>=version``, with or without a
        ceiling (``,<version``) and an environment marker.
    """
    table = tomllib.loads(text)
    project = table["project"]
    extras = project.get("optional-dependencies", {})
    lists = [project["dependencies"], *(extras[name] for name in EXTRAS if name in extras)]
    lists.append(table["dependency-groups"]["test"])
    pinned: dict[str, str] = {}
    for requirement in (one for some in lists for one in some):
        match = REQUIREMENT.fullmatch(requirement.strip())
        if match is None:
            raise ValueError(f"a dependency must read name>=version, got {requirement!r}")
        line = f"{match['name']}=={match['version']}{match['marker'] or ''}"
        known = pinned.setdefault(match["name"], line)
        if known.partition(";")[0] != line.partition(";")[0]:
            raise ValueError(f"{match['name']} must have one floor, got {known!r} and {line!r}")
    return sorted(pinned.values())


if __name__ == "__main__":
    print("\n".join(constraints(PROJECT.read_text(encoding="utf-8"))))
