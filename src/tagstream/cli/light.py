"""A light start: of what others import, the parts that no command uses wait.

``import sklearn`` brings all of ``scipy.stats``, SciPy's linear algebra, joblib and narwhals for
functions that are not called here, SciPy brings Fortran's tools and masked arrays with NumPy's
names, numba a reader of a file that hardly anybody has, and pandas, if it is installed, is
brought for nothing: together more than half of the time of a short command.  In a process of the
command line, which is ours alone, these are loaded when something of them is first used, and pandas
when something else imports it.  Garbage is looked for seldom: imports leave none, and to look
through all that they bring takes another seventh.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # to import the class would bring temporary files and archives

__all__ = ["start_light", "take_plain"]

NEVER = "pandas"
LATER: dict[str, tuple[str, ...]] = {  # with the functions that are taken, not called, at once
    **dict.fromkeys(("scipy.stats", "scipy.special", "scipy.linalg"), ()),
    **dict.fromkeys(("numpy.f2py", "numpy.polynomial", "numpy.testing"), ()),
    **dict.fromkeys(("narwhals", "narwhals.stable", "narwhals.stable.v2"), ()),
    **dict.fromkeys(("asyncio", "importlib.metadata", "joblib", "pydoc", "yaml"), ()),
    "scipy.sparse.linalg": ("cg",),
    "scipy.sparse.csgraph": ("laplacian",),
    "sklearn.utils.parallel": ("_get_threadpool_controller",),
    "sklearn.utils._show_versions": ("show_versions",),
    "sklearn.utils": (),
}
LOOSE = "sklearn.utils"  # its parts do without what it is itself


SELDOM = 300_000  # new objects after which garbage is looked for among them


class _Waiting(ModuleType):
    """A module that is run when it is first asked for what it has not got yet."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__dict__["_lock"] = RLock()

    def __getattr__(self, name: str) -> Any:
        if "_loader" in self.__dict__ and name in LATER[self.__name__]:
            return partial(_call, self, name)
        if name != "__path__":  # import asks each module whether it is a package
            _run(self)
        return super().__getattribute__(name)


def _call(module: ModuleType, name: str, /, *given: Any, **named: Any) -> Any:
    _run(module)
    return getattr(module, name)(*given, **named)


def _run(module: ModuleType | None) -> None:
    """Run a module that waits, after the packages it is in; other threads stay until it is done."""
    if isinstance(module, _Waiting):
        if "_loader" in module.__dict__:
            _run(sys.modules.get(module.__name__.rpartition(".")[0]))
        with module.__dict__["_lock"]:
            loader = module.__dict__.pop("_loader", None)
            if loader is not None:
                loader.exec_module(module)
                _limit_threads()


def _limit_threads() -> None:
    """Limit the threads of a BLAS library that a module has just brought, if others are limited.

    SciPy's is loaded when a fit first uses it, and that fit is to run on one thread already.
    """
    threads = sys.modules.get("tagstream.execution.threads")
    if threads is not None:
        threads.ONE_BLAS_THREAD.look_again()


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


class _Finder:
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "sklearn" and name not in LATER:
            package = name.rpartition(".")[0]
            if package != LOOSE:
                _run(sys.modules.get(package))
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


class _Plain:
    """What typer asks to convert a value: most are what is wanted, and to others it sees itself."""

    def __init__(self, parameter: Any, convert: Callable[[Any], Any]) -> None:
        self.wanted = parameter.type_descriptor.annotation
        self.convert = convert

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value as the command wants it."""
        single = not param.multiple and param.nargs == 1
        if single and (value is None or (self.wanted in (str, int) and type(value) is self.wanted)):
            return value
        return self.convert(param).coerce(value, param=param, ctx=ctx)


def take_plain(parameters: Any) -> None:
    """Let typer's parameters convert no value that is none, a string or a default.

    Of late typer brings all of pydantic for it, which is a tenth of a short command.
    """
    convert = getattr(parameters, "get_runtime_param", None)
    if convert is not None:
        parameters.get_runtime_param = lambda parameter: _Plain(parameter, convert)
