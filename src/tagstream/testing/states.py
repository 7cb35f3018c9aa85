"""States of learners: compared to the last bit, changed on purpose."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

__all__ = ["arrays_of", "assert_same_state", "changed", "spoil"]


def assert_same_state(a: Any, b: Any, where: str = "state") -> None:
    """Compare nested states bit for bit."""
    assert type(a) is type(b), where
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_same_state(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, (u, v) in enumerate(zip(a, b, strict=True)):
            assert_same_state(u, v, f"{where}[{i}]")
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, where
        assert a.shape == b.shape, where
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(a, b, err_msg=where, strict=True)
        else:
            assert a.tolist() == b.tolist(), where
    elif isinstance(a, float):
        assert a == b or (a != a and b != b), where
    else:
        assert a == b, where


def arrays_of(state: Any, path: tuple[Any, ...] = ()) -> Any:
    """Yield the arrays of a nested state, each with its path."""
    for key, value in state.items() if isinstance(state, dict) else enumerate(state):
        if isinstance(value, (dict, list)):
            yield from arrays_of(value, (*path, key))
        elif isinstance(value, np.ndarray):
            yield (*path, key), value


def changed(state: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of a state with another value at a path."""
    state = copy.deepcopy(state)
    inner = state
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return state


def spoil(state: Any) -> None:
    """Overwrite all arrays of a state by zeros."""
    for value in state.values() if isinstance(state, dict) else state:
        if isinstance(value, (dict, list)):
            spoil(value)
        elif isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.flags.writeable:
            value[...] = 0
