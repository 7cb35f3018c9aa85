"""Start-up: imports, the command line, the first call after installation, a read-only cache."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tagstream
from benchmarks.timing import Section, claim, tell

FIRST_CALL = """
import logging, time
logging.basicConfig(level=logging.INFO)
import tagstream
stream = tagstream.make_stream(300, seed=0)
start, busy = time.perf_counter(), time.process_time()
model = tagstream.OML(random_state=0).partial_fit(stream.X[:200], stream.Y[:200])
for x, y in zip(stream.X[200:], stream.Y[200:]):
    model.predict_one(x)
    model.learn_one(x, y)
print(time.perf_counter() - start, time.process_time() - busy)
"""


def _run(arguments: list[str], **settings: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, **settings
    )


def _wall(arguments: list[str]) -> float:
    start = time.perf_counter()
    _run(arguments)
    return time.perf_counter() - start


def _first_call(**settings: Any) -> tuple[tuple[float, float], str]:
    """Return wall and processor time of the first calls in a new process, and what was logged."""
    done = _run(["-c", FIRST_CALL], **settings)
    wall, busy = map(float, done.stdout.split())
    return (wall, busy), done.stderr


def _files(folder: str) -> set[tuple[str, float]]:
    return {(str(f), f.stat().st_mtime) for f in Path(folder).rglob("*.nb*")}


def _obey_permissions() -> None:
    """Drop the superuser's right to override permissions, for the program started next."""
    if os.geteuid() == 0 and sys.platform == "linux":
        drop_from_bounding_set, override = 24, 1
        ctypes.CDLL(None).prctl(drop_from_bounding_set, override, 0, 0, 0)


def _read_only(folder: Path) -> tuple[float, float]:
    """Return the times of the first calls where nothing at all can be written.

    The package is copied to a place without write permission; the superuser, whom permissions do
    not stop, gives up that privilege.
    """
    package = folder / "site" / "tagstream"
    shutil.copytree(
        Path(tagstream.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    cache = folder / "cache"
    cache.mkdir()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    environment = {
        **os.environ,
        "PYTHONPATH": str(package.parent),
        "NUMBA_CACHE_DIR": str(cache),
        "HOME": str(folder / "none"),
        "XDG_CACHE_HOME": str(folder / "none"),
    }
    try:
        taken = _first_call(env=environment, cwd=folder, preexec_fn=_obey_permissions)[0]
        assert not list(cache.iterdir())
        return taken
    finally:
        for path in (folder, *folder.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)


def run(quick: bool) -> Section:
    turns = 1 if quick else 7
    program = (
        "from tagstream.cli import main; import sys; sys.argv = ['tagstream', '--help']; main()"
    )
    starts = {
        "python alone": ["-c", "pass"],
        "import tagstream": ["-c", "import tagstream"],
        "import of OML, numba included": ["-c", "from tagstream import OML"],
        "tagstream --help": ["-c", program],
    }
    times = {name: min(_wall(command) for _ in range(turns)) for name, command in starts.items()}
    tell(".")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        first, log = _first_call(env=environment)
        written = _files(folder)
        later = min(_first_call(env=environment)[0] for _ in range(turns))
        again = len(_files(folder) - written)
    tell(".")
    with tempfile.TemporaryDirectory() as folder:
        read_only = _read_only(Path(folder))
    rows = [{"what": name, "wall s": t, "processor s": None} for name, t in times.items()]
    rows += [
        {"what": name, "wall s": wall, "processor s": busy}
        for name, (wall, busy) in {
            "first call after installation": first,
            "later first call, from the cache": later,
            "first call, nothing writable": read_only,
        }.items()
    ]
    bare = times["python alone"]
    announced = "compil" in log.lower()
    limit = {"limit": "start of the interpreter", "limit_value": bare, "limit_unit": "s"}
    compiling = {"limit": "compilation", "limit_value": first[1] - later[1], "limit_unit": "s"}
    claims = [
        claim(
            "import tagstream",
            times["import tagstream"],
            1,
            unit="s",
            distance=times["import tagstream"] / bare,
            **limit,
        ),
        claim(
            "tagstream --help",
            times["tagstream --help"],
            0.5,
            unit="s",
            distance=times["tagstream --help"] / bare,
            **limit,
        ),
        claim("first call after installation, processor", first[1], 10, unit="s", **compiling),
        claim("first call after installation is announced", float(announced), 1, unit="",
              at_least=True, limit="a log message that names the compilation"),
        claim("kernels compiled again by later processes", again, 0, unit="",
              limit="files written to the cache"),
        claim("first call where nothing can be written, processor", read_only[1], 10, unit="s",
              **compiling),
    ]  # fmt: skip
    return {
        "title": "Start-up",
        "equal": f"Each in a new process; best of {turns}, the calls that compile once.",
        "differs": "On a busy machine wall time is longer than the work; compilation is judged by "
        "processor time.",
        "rows": rows,
        "claims": claims,
    }
