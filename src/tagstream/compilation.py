"""How the compiled loops are compiled, and loaded from numba's cache on disk.

What numba does for any function is left out where ours do not need it: a first call waits for all
of it, and a short command for what is loaded.
"""

from __future__ import annotations

import gc
import logging
import pickle
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, TypeVar, cast

import numba
from llvmlite import binding
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.environment import Environment, lookup_environment
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.runtime import _nrt_python  # type: ignore[attr-defined]  # not typed

__all__ = ["compiled", "inlined", "inner", "inner_loosely"]

F = TypeVar("F", bound=Callable[..., Any])


# ---------------------------------------------------------------------- loading
@cache
def _know_runtime() -> None:
    """Let machine code find the functions that manage memory."""
    for name, address in _nrt_python.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def _environment(module: str, constants: list[Any], name: str) -> Any:
    """Return what a compiled function knows of its module; it needs no more than its constants."""
    if lookup_environment(name) is None:  # type: ignore[no-untyped-call]
        made = Environment({"__name__": module})
        made.consts[:], made.env_name = constants, name
        Environment._memo[name] = made
    return lookup_environment(name)  # type: ignore[no-untyped-call]


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _environment if name == "_rebuild_env" else super().find_class(module, name)


class _Files(IndexDataCacheFile):
    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:  # type: ignore[no-untyped-call]
            return _Unpickler(file).load()


class _Loading(FunctionCache):
    """Loads compiled functions without all that numba needs to compile others.

    That is done when something is compiled; code that is there wants its memory manager only, and
    not the modules of numba in which parts of it were written.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file.__class__ = _Files

    def save_overload(self, sig: Any, data: Any) -> None:
        if not getattr(data.library, "_is_part", False):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        _know_runtime()
        try:
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except (AttributeError, ImportError):  # another version's, whose types are no longer there
            self._cache_file.flush()  # type: ignore[no-untyped-call]
            return None


class _Cache:
    """The cache of a function, whose place is looked for when it is first called.

    That is to write a file, and most functions are not called.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @cached_property
    def found(self) -> Any:
        try:
            return _Loading(self.function)
        except RuntimeError:  # no cache directory is writable
            return NullCache()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.found, name)


# ---------------------------------------------------------------------- compiling
class _Library(JITCodeLibrary):
    """The code of a function with that of all it calls.

    numba optimises each function alone, with what it calls, and once more in each that calls it,
    and makes machine code of all of them.  Here that is done for those that Python can call, with
    all that they call, and once.
    """

    _is_part = False  # of others only

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        if not self._is_part:
            super()._optimize_final_module()  # type: ignore[no-untyped-call]

    def _finalize_final_module(self) -> None:
        if self._is_part:
            self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
            self._finalized = True
            return
        super()._finalize_final_module()  # type: ignore[no-untyped-call]
        codegen: Any = self._codegen
        for variable in self._final_module.global_variables:  # what its parts know
            known = lookup_environment(variable.name)  # type: ignore[no-untyped-call]
            if known is not None:
                codegen.set_env(variable.name, known)

    def finalize(self) -> None:
        self._is_part = not any(
            function.name.startswith("_ZN7cpython") for function in self._final_module.functions
        )
        super().finalize()  # type: ignore[no-untyped-call]

    def get_pointer_to_function(self, name: str) -> int:
        """Return where the machine code of a function is, 0 if there is none."""
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        if self._is_part:
            defined = (f.name for f in self._final_module.functions if not f.is_declaration)
            if name not in defined:
                return 0
            self._is_part = False
            self._optimize_final_module()
            self._finalize_final_module()
        pointer: int = super().get_pointer_to_function(name)  # type: ignore[no-untyped-call]
        return pointer

    @property
    def codegen(self) -> Any:
        """What makes the code, or a stand-in that is told what a part knows: all will tell it."""
        return _Deaf() if self._is_part else self._codegen


# What it changes, and what it stands on, of numba's own; a version without it compiles as ever.
_CHANGED = (
    "_optimize_functions", "_optimize_final_module", "_finalize_final_module", "_ensure_finalized",
    "_finalize_dynamic_globals", "finalize", "get_pointer_to_function", "codegen",
)  # fmt: skip
_KNOWN = all(hasattr(JITCodeLibrary, name) for name in _CHANGED)


class _Deaf:
    def set_env(self, name: str, known: Any) -> None:
        pass


class _Own(CPUDispatcher):
    """A function that needs none of the extensions of numba which others may have installed."""

    def _compilation_chain_init_hook(self) -> None:
        pass  # to look for them takes as long as to load all that is compiled


def compiled(function: F, **options: Any) -> F:
    """Compile with numba, cached on disk where a cache directory can be written."""
    options |= {"nogil": True, "no_cfunc_wrapper": True}  # by which C would call it
    made: Any = numba.njit(**options)(function)
    if hasattr(made, "_cache"):  # not if numba is told to compile nothing
        made.__class__, made._cache = _Own, _Cache(function)
    return cast(F, made)


class _Inner(_Own):
    """A function that Python cannot call: it lacks the code to do so, and would be lost."""

    def __call__(self, *given: Any) -> Any:
        raise TypeError(
            f"{self.py_func.__name__} is for compiled functions; Python may call its py_func"
        )


def inner(function: F, **options: Any) -> F:
    """Compile what only compiled functions call: without the code by which Python would."""
    made: Any = compiled(function, no_cpython_wrapper=True, **options)
    if hasattr(made, "_cache"):
        made.__class__ = _Inner
    return cast(F, made)


def inner_loosely(function: F) -> F:
    """Compile the same with leave to reorder sums, for numbers that decide nothing."""
    return inner(function, fastmath={"reassoc", "contract", "nsz"})


def inlined(function: F) -> F:
    """Compile as a part of each function that calls it; worth it for small ones, called once."""
    return compiled(function, inline="always")


class _Watcher(event.Listener):
    """Says why the first call takes so long; loading from the cache is no compilation.

    While it lasts no garbage is collected: looking through all of numba's objects again and again
    takes a tenth of the time, and finds next to nothing.
    """

    said = False
    depth = 0  # of functions that wait for others
    collecting = False

    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]  # of anyone's function, made in any way
        module = getattr(getattr(dispatcher, "py_func", None), "__module__", None)
        if not self.said and str(module).startswith("tagstream."):
            self.said = True
            cached = dispatcher.stats.cache_path is not None
            when = "this once" if cached else "in every process, as no cache can be written"
            logging.getLogger(__name__).warning("compiling kernels, %s: some seconds…", when)
        if self.depth == 0:
            self.collecting = gc.isenabled()
            gc.disable()
            if _KNOWN and isinstance(dispatcher, _Own):
                cpu_target.target_context.codegen()._library_class = _Library
        self.depth += 1

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            cpu_target.target_context.codegen()._library_class = JITCodeLibrary
            if self.collecting:
                gc.enable()


_WATCHER = _Watcher()
event.register("numba:compile", _WATCHER)  # type: ignore[no-untyped-call]
