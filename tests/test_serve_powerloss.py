"""Loss of power at random moments, simulated from a record of system calls (needs strace)."""

from __future__ import annotations

import shutil

import pytest

pytest.importorskip("fastapi")

import powerloss

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]


@pytest.mark.parametrize(("n", "is_real"), [(300, False), (30, True)])
def test_a_loss_of_power_loses_nothing_that_was_acknowledged(n, is_real):
    outcomes = powerloss.attack(n, seed=27, is_real=is_real)
    assert sum(outcomes.values()) == n


def test_the_simulated_disk_keeps_what_was_synced_and_only_that_for_certain(tmp_path):
    disk = powerloss.Disk("/d")
    call = powerloss.Call
    for done in (
        call("create", "/d/a"), call("write", "/d/a", b"old", 0), call("sync", "/d/a"),
        call("sync", "/d"), call("write", "/d/a", b"new", 0), call("create", "/d/b"),
        call("write", "/d/b", b"b"), call("sync", "/d/b"),
    ):  # fmt: skip
        disk.do(done)
    rng = powerloss.random.Random(1)
    seen = set()
    for i in range(100):
        disk.after_loss(tmp_path / f"{i}", rng)
        files = sorted((tmp_path / f"{i}").iterdir())
        seen.add(tuple((path.name, path.read_bytes()) for path in files))
    a, b = [("a", b"old")], [("a", b"new")]
    assert seen == {tuple(one + more) for one in (a, b) for more in ([], [("b", b"b")])}
