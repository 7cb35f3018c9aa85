"""What all tests share: no network, commands in this process, and patience with busy machines."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings

from shell import posts, write_jsonl
from tagstream import cli
from tagstream.cluster import RayStore
from tagstream.data import DATASETS
from tagstream.learners.estimator import StreamClassifier

# Hypothesis fails an example that takes long, or that is slow to be made.  How long that is says
# more about what else the machine does than about the code.
# In CI the same code meets the same examples.  Elsewhere each run draws new ones.
settings.register_profile(
    "patient",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("patient")


@pytest.fixture(autouse=True, scope="module")
def _no_downloads(request):
    """Take the addresses from the registry, but for its own tests, which have a loopback server."""
    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__ != "test_data_registry":
            for name, info in DATASETS.items():
                patch.setitem(DATASETS, name, replace(info, files=()))
        yield


@pytest.fixture
def limits(monkeypatch):
    """Return a function that gives all learners, and stores on Ray, other limits."""

    def limits(**fields):
        for owner in (StreamClassifier, RayStore):
            monkeypatch.setattr(owner, "_limits", replace(owner._limits, **fields))

    return limits


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run a command in an empty directory; return exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*args, stdin=""):
        text = stdin if isinstance(stdin, bytes) else stdin.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), "utf-8"))
        code = cli.main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A model of 300 posts: the path of its file."""
    folder = tmp_path_factory.mktemp("learnt")
    path = write_jsonl(folder / "posts.jsonl", posts(300))
    args = ["learn", path, "--model", str(folder / "m.tgs"), "--hash-bits", "10", "--quiet"]
    assert cli.main(args) == 0
    return folder / "m.tgs"
