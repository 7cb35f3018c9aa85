"""A light start: of what others import, the parts that no command uses wait.

``import sklearn`` brings all of ``scipy.stats`` and narwhals for functions that are not
called here, SciPy brings Fortran's tools with NumPy's names, and pandas, if it is installed, is
brought for nothing: together more than half of the time of a short command.  In a process of the
command line, which is ours alone, these are loaded when something of them is first used, and pandas
when something else imports it.  Garbage is looked for seldom: imports leave none, and to look
through all that they bring takes another seventh.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

__all__ = ["start_light"]

NEVER = "pandas"
LATER = {
    *("scipy.stats", "scipy.special", "numpy.f2py", "asyncio"),
    *("narwhals", "narwhals.stable", "narwhals.stable.v2"),
}


SELDOM = 300_000  # new objects after which garbage is looked for among them


class _Waiting(ModuleType):
    """A module that is run when it is first asked for what it has not got yet."""

    def __getattr__(self, name: str) -> Any:
        if "_loader" not in self.__dict__:  # it is being run, or was
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        _run(self)
        return getattr(self, name)


def _run(module: ModuleType | None) -> None:
    """Run a module that waits, after the packages it is in."""
    if isinstance(module, _Waiting) and "_loader" in module.__dict__:
        _run(sys.modules.get(module.__name__.rpartition(".")[0]))
        module.__dict__.pop("_loader").exec_module(module)


class _Later(Loader):
    """Lets a module wait.  Other than with Python's lazy loader, its parts may wait as well."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Waiting(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["_loader"] = self.loader


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
        if name != "sklearn" and name not in LATER:
            _run(sys.modules.get(name.rpartition(".")[0]))  # of which it is a part
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = (_Later if name in LATER else _LightLoader)(spec.loader)
        return spec


def start_light() -> None:
    """Let the imports that come be light; once is enough."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
        gc.set_threshold(SELDOM)
