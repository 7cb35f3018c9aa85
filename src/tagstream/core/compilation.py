"""How the loops are compiled: by numba, with a cache on disk where one can be written.

The first call of a function compiles it for the types of its arguments.  Arrays that a stream does
not have are handed over as None, and what would be done with them is not compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar, cast

import numba

from tagstream.version import __version__

__all__ = ["compiled", "inlined", "inner", "inner_loosely", "n_compiled", "with_twin"]

F = TypeVar("F", bound=Callable[..., Any])

_COMPILED: list[Any] = []


def compiled(function: F) -> F:
    """Compile a function that Python calls, and keep the machine code on disk."""
    # The name is part of the name of a file in the cache.  Versions must not read each other's
    # files: numba looks up the types of a signature by name, and fails if one is gone.
    function.__qualname__ += f"_{__version__}"
    try:
        made = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no cache directory can be written
        made = numba.njit(nogil=True)(function)
    _COMPILED.append(made)
    return cast(F, made)


def with_twin(function: F) -> F:
    """Compile a function that has a twin of its name in :mod:`tagstream.core.reference`.

    ``TAGSTREAM_CORE=reference`` takes the twin instead.
    """
    if os.environ.get("TAGSTREAM_CORE", "") != "reference":
        return compiled(function)

    @wraps(function)
    def twin(*args: Any) -> Any:
        reference = import_module("tagstream.core.reference")
        return getattr(reference, function.__name__)(*args)

    return cast(F, twin)


def inner(function: F, **options: Any) -> F:
    """Compile a function that only compiled functions call; its code is kept with theirs."""
    return cast(F, numba.njit(nogil=True, **options)(function))


def inner_loosely(function: F) -> F:
    """Compile the same with leave to reorder sums, for numbers that decide nothing."""
    return inner(function, fastmath={"reassoc", "contract", "nsz"})


def inlined(function: F) -> F:
    """Compile as a part of each function that calls it; worth it for small ones, called once."""
    return inner(function, inline="always")


def n_compiled() -> int:
    """Return how many compilations this process has begun; code from the cache does not count."""
    return sum(sum(made.stats.cache_misses.values()) for made in _COMPILED)
