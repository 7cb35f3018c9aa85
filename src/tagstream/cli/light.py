"""A light start: of what scikit-learn imports, the parts that no command uses wait.

``import sklearn`` brings all of ``scipy.stats`` for one function that is not called here, and
pandas, if it is installed, for none: together more than half of the time of a short command.  In
a process of the command line, which is ours alone, ``scipy.stats`` is loaded when something of it
is first used, and pandas when something else imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

__all__ = ["start_light"]

LATER, NEVER = "scipy.stats", "pandas"


class _LightLoader(Loader):
    """Runs scikit-learn's own loader with the heavy parts out of the way."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        hidden = NEVER not in sys.modules
        if hidden:
            sys.modules[NEVER] = None  # type: ignore[assignment]  # "not installed"
        try:
            self.loader.exec_module(module)
        finally:
            if hidden:
                del sys.modules[NEVER]


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in ("sklearn", LATER):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            lazy = LazyLoader if name == LATER else _LightLoader
            spec.loader = lazy(spec.loader)
        return spec


def start_light() -> None:
    """Let the imports that come be light; once is enough."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
