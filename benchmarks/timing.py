"""Clocks, turns, fits: what all benchmarks measure with.

A time is the processor time of this process, which has one thread, so that waiting for other
programs does not count; and it is the best of several turns, in which the contenders follow each
other, so that what others do to caches and memory does not fall on one of them alone.
"""

from __future__ import annotations

import gc
import importlib.metadata
import math
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

Section = dict[str, Any]


def seconds(function: Callable[[], object]) -> float:
    """Return the processor time of one call."""
    gc.collect()
    start = time.process_time()
    function()
    return time.process_time() - start


def race(
    contenders: dict[str, Callable[[], float]], turns: int = 5, budget: float = 60.0
) -> dict[str, float]:
    """Return the best time of each contender, a function that measures itself.

    They take turns; one that has used up its budget of seconds sits out the rest.
    """
    best = dict.fromkeys(contenders, math.inf)
    spent = dict.fromkeys(contenders, 0.0)
    for _ in range(turns):
        for name, contender in contenders.items():
            if spent[name] < budget:
                start = time.perf_counter()
                best[name] = min(best[name], contender())
                spent[name] += time.perf_counter() - start
                tell(".")
    return best


def best_of(function: Callable[[], object], turns: int = 5) -> float:
    """Return the best time of one function, after one call that is not counted."""
    function()
    return min(seconds(function) for _ in range(turns))


def tell(text: str) -> None:
    """Show progress."""
    print(text, end="", file=sys.stderr, flush=True)


def slope(x: Iterable[float], y: Iterable[float]) -> float:
    """Return the exponent b of y ≈ a·xᵇ, by least squares on the logarithms."""
    return float(np.polyfit(np.log(list(x)), np.log(list(y)), 1)[0])


def claim(
    what: str,
    value: float,
    target: float,
    *,
    unit: str = "x",
    at_least: bool = False,
    limit: str,
    limit_value: float | None = None,
    limit_unit: str = "µs",
    distance: float | None = None,
) -> dict[str, Any]:
    """Return a measured number with its target, and what limits it.

    ``limit`` names what cannot be beaten, ``limit_value`` is that limit measured in the same run,
    and ``distance`` how many times the limit's cost is paid.
    """
    return {
        "what": what,
        "value": value,
        "target": target,
        "unit": unit,
        "sense": "at least" if at_least else "at most",
        "met": bool(value >= target if at_least else value <= target),
        "limit": limit,
        "limit_value": limit_value,
        "limit_unit": limit_unit,
        "distance": distance,
    }


def version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def installed(**packages: str) -> tuple[set[str], list[str]]:
    """Split short names of peers into those whose package is installed and those it is not."""
    missing = [name for name, package in packages.items() if version(package) is None]
    return set(packages) - set(missing), missing


def peak() -> float:
    """Return the largest resident size of this process so far, in GB.

    What ``getrusage`` tells on Linux begins with the size of the process that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = [one for one in status.read_text().splitlines() if one.startswith("VmHWM")]
        return int(line.split()[1]) * 1024 / 1e9
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
