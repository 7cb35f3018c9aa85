"""Count what one record goes through: the functions of tagstream that are called for it.

    python tools/walk.py            # the counts
    python tools/walk.py --names    # the functions too, in the order of their first calls

A tagger of 300 texts learns one more, and suggests tags for another.  Calls of Python functions of
this package are counted by ``sys.setprofile``; compiled code is not seen.  To count another
version, put it on ``PYTHONPATH``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import tagstream as ts

HOME = str(Path(ts.__file__).parent)
WORDS = ("sort", "list", "sea", "swim", "soup", "salt", "wind", "sail", "rain", "road")


def record(i: int) -> dict[str, Any]:
    """Return the i-th record."""
    words = [WORDS[(i * k + k) % len(WORDS)] for k in (1, 3, 7)]
    return {"text": f"{' '.join(words)} {i}", "y": [words[0]]}


def walked(do: Callable[[], Any]) -> list[CodeType]:
    """Return the functions of the package that are called, once for each call."""
    calls: list[CodeType] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(HOME) and code.co_name[0] != "<":
            calls.append(code)

    sys.setprofile(note)
    try:
        do()
    finally:
        sys.setprofile(None)
    return calls


def counts(calls: list[CodeType]) -> str:
    """Return the counts in words."""
    functions = dict.fromkeys(calls)
    modules = {code.co_filename for code in functions}
    return f"{len(calls)} calls of {len(functions)} functions in {len(modules)} modules"


def main() -> None:
    """Count and print."""
    tagger = ts.Tagger()
    tagger.learn([record(i) for i in range(300)])
    for i in range(300, 306):  # what is only done once
        tagger.suggest(record(i)["text"])
        tagger.learn(record(i))
    steps: dict[str, Callable[[], Any]] = {
        "suggest": lambda: tagger.suggest(record(310)["text"]),
        "learn": lambda: tagger.learn(record(311)),
    }
    if hasattr(tagger, "ask"):
        asked = tagger.ask(record(312)["text"])
        steps["learn what was asked"] = lambda: tagger.learn(record(312), asked=asked)
    for what, do in steps.items():
        calls = walked(do)
        print(f"{what}: {counts(calls)}")
        if "--names" in sys.argv:
            for code in dict.fromkeys(calls):
                print(f"    {code.co_filename[len(HOME) + 1 :]}: {code.co_name}")


if __name__ == "__main__":
    main()
