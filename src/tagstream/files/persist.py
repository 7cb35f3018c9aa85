"""Save a learner to one file and load it again, without pickle.

A file of format 3, all numbers little-endian::

    8 bytes    b"tagstrm\\n"
    4 + 4      format version; length of the header
    32         SHA-256 of the header
    header     JSON: class, tagstream version, the list of arrays, the state, extra,
               length and SHA-256 of the body
    body       the arrays' raw values, one after another in the order of the list

In the state and in extra, ``{"$array": i}`` stands for the i-th array, ``{"$tuple": [...]}`` for a
tuple, and ``{"$list": ...}`` for a long list of numbers and strings, kept in arrays.

Loading trusts nothing: the size of the file must be what the header implies before anything is
allocated, every byte is covered by one of the two digests, dtypes and classes come from fixed
lists, and what a learner cannot restore is refused.  The digests find damage; they do not prove
who wrote the file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import math
import os
import stat
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from tagstream.checks import WIDEST_ROWS, DataError
from tagstream.files.upgrade import from_format_1, from_format_2, with_counts
from tagstream.learners import registry
from tagstream.learners.estimator import StreamClassifier
from tagstream.version import __version__

logger = logging.getLogger(__name__)

__all__ = ["ModelInfo", "inspect", "load", "load_with_extra", "remove_leftovers", "save"]

Array: TypeAlias = npt.NDArray[Any]
Classes: TypeAlias = Mapping[str, type[StreamClassifier]]

MAGIC = b"tagstrm\n"
FORMAT = 3
OLDEST = 1  # format that can still be read
# Parsed JSON takes up to some twenty times the memory of its text.
LARGEST_HEADER = 4 << 20
# A list of at least this many plain values is kept in arrays rather than in the header.
LONG_LIST = 64
# A dimension of an array without entries, which takes no room in the file; else by its size.
LARGEST_EMPTY = 1 << 22

_PREFIX = struct.Struct("<8sII32s")
_DTYPES = frozenset(
    ("|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8")
)
_HEADER = {"class", "tagstream", "arrays", "state", "extra", "body_bytes", "body_sha256"}
_STATE = {
    "params",
    "n_features",
    "feature_names",
    "names",
    "n_seen",
    "n_empty",
    "sparse",
    "single",
    "dtype",
    "learner",
}
# What an entry of a "$list" is: None, a truth value, a number, a string, a large integer as text.
_NONE, _FALSE, _TRUE, _INT, _FLOAT, _STR, _BIG = range(7)


@dataclass(frozen=True)
class ModelInfo:
    """What the header of a saved model tells, without reading the arrays.

    Attributes
    ----------
    format : int
        Version of the file format.
    tagstream : str
        Version of the library that wrote the file.
    learner : str
        Name of the class.
    params : dict
        Constructor parameters.
    n_seen, n_features, n_labels : int
    extra : dict
        What was given to :func:`save` as ``extra``.
    arrays : list of (dtype, shape)
        The stored arrays.
    n_bytes : int
        Size of the file.
    """

    format: int
    tagstream: str
    learner: str
    params: dict[str, Any]
    n_seen: int
    n_features: int
    n_labels: int
    extra: dict[str, Any]
    arrays: list[tuple[str, tuple[int, ...]]]
    n_bytes: int


# ---------------------------------------------------------------------- values to JSON and arrays
class _Writer:
    """Turns a state into JSON values and collects its arrays."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []

    def encode(self, value: Any, where: str) -> Any:
        """Return ``value`` as JSON values; ``where`` names it in errors."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, str):
            return str(value)
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str) or key.startswith("$"):
                    raise ValueError(f"keys of {where} must be strings without $, got {key!r}")
            return {key: self.encode(v, f"{where}.{key}") for key, v in value.items()}
        if isinstance(value, tuple):
            return {"$tuple": [self.encode(v, where) for v in value]}
        if isinstance(value, list):
            values = [v.item() if isinstance(v, np.generic) else v for v in value]
            plain = all(v is None or isinstance(v, (bool, int, float, str)) for v in values)
            if plain and len(values) >= LONG_LIST:
                return self._list(values, where)
            return [self.encode(v, where) for v in values]
        raise ValueError(
            f"{where} must be made of arrays, numbers, strings, lists and dicts to be saved, "
            f"got {type(value).__name__}"
        )

    def _array(self, value: Array, where: str) -> dict[str, int]:
        little = np.asarray(value, value.dtype.newbyteorder("<"))
        if little.dtype.str not in _DTYPES:
            raise ValueError(f"{where} must be an array of numbers, got dtype {value.dtype}")
        self.arrays.append(little)
        return {"$array": len(self.arrays) - 1}

    def _list(self, values: list[Any], where: str) -> dict[str, Any]:
        kinds = [_kind(v) for v in values]
        of_kind: dict[int, list[Any]] = {kind: [] for kind in range(7)}
        texts = []
        for value, kind in zip(values, kinds, strict=True):
            of_kind[kind].append(value)
            if kind in (_STR, _BIG):
                texts.append(str(value).encode("utf-8", "surrogatepass"))
        columns = {
            "kind": np.array(kinds, np.uint8),
            "int": np.array(of_kind[_INT], np.int64),
            "float": np.array(of_kind[_FLOAT], np.float64),
            "width": np.array([len(t) for t in texts], np.int64),
            "text": np.frombuffer(b"".join(texts), np.uint8),
        }
        return {"$list": {"n": len(values), **self.encode(columns, where)}}


def _kind(value: Any) -> int:
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, int):
        return _INT if -(2**63) <= value < 2**63 else _BIG
    return _FLOAT if isinstance(value, float) else _STR


class _Arrays:
    """The arrays of a file, each of which is handed out once: few bytes must stay few."""

    def __init__(self, arrays: list[Array]) -> None:
        self._arrays: list[Array | None] = [*arrays]

    def take(self, i: Any) -> Array:
        if type(i) is not int or not 0 <= i < len(self._arrays):
            raise ValueError(f"there is no array {i!r}")
        array, self._arrays[i] = self._arrays[i], None
        if array is None:
            raise ValueError(f"array {i} must be used once, got it twice")
        return array


def _decode(value: Any, arrays: _Arrays | None) -> Any:
    """Return what :meth:`_Writer.encode` was given; without ``arrays``, a hint in their place."""
    if isinstance(value, list):
        return [_decode(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key == "$tuple":
            return tuple(_decode(v, arrays) for v in inner)
        if key in ("$array", "$list") and arrays is None:
            return "(not shown)"
        if key == "$array" and arrays is not None:
            return arrays.take(inner)
        if key == "$list":
            return _decode_list({k: _decode(v, arrays) for k, v in inner.items()})
    if any(key.startswith("$") for key in value):
        raise ValueError(f"a dict must have keys without $, got {sorted(value)[0][:20]!r}")
    return {key: _decode(v, arrays) for key, v in value.items()}


def _decode_list(columns: dict[str, Any]) -> list[Any]:
    kinds, width, text = columns["kind"], columns["width"], columns["text"]
    dtypes = "".join(columns[key].dtype.char for key in ("kind", "int", "float", "width", "text"))
    if dtypes.replace("q", "l") != "BldlB":  # int64 is "l" or "q", by platform
        raise ValueError("the parts of a list must have the dtypes of the format")
    ends = np.cumsum(width)
    counts = np.bincount(kinds, minlength=7).tolist()
    if (
        len(kinds) != columns["n"]
        or len(columns["int"]) != counts[_INT]
        or len(columns["float"]) != counts[_FLOAT]
        or len(width) != counts[_STR] + counts[_BIG]
        or (width.size and not 0 <= width.min() <= width.max() <= len(text))
        or (ends[-1] if width.size else 0) != len(text)
    ):
        raise ValueError("a list and its parts must agree in length")
    raw = text.tobytes()
    texts = (
        raw[end - w : end].decode("utf-8", "surrogatepass")
        for end, w in zip(ends.tolist(), width.tolist(), strict=True)
    )
    ints, floats = iter(columns["int"].tolist()), iter(columns["float"].tolist())
    read: dict[int, Callable[[], Any]] = {
        _NONE: lambda: None,
        _FALSE: lambda: False,
        _TRUE: lambda: True,
        _INT: lambda: next(ints),
        _FLOAT: lambda: next(floats),
        _STR: lambda: next(texts),
        _BIG: lambda: int(next(texts)),
    }
    return [read[kind]() for kind in kinds.tolist()]


# ---------------------------------------------------------------------- saving
def save(
    model: StreamClassifier,
    path: str | os.PathLike[str],
    *,
    extra: dict[str, Any] | None = None,
    classes: Classes | None = None,
) -> None:
    """Write ``model`` to the file ``path``, whole or not at all.

    The model goes to a temporary file in the same directory, which takes the place of ``path``
    once it is safely on disk; whatever fails, an older file at ``path`` stays as it was.

    Parameters
    ----------
    model : StreamClassifier
        A learner that has learnt something.
    path : path
        By custom it ends in ``.tgs``.
    extra : dict, optional
        Further values to keep with the model: numbers, strings, lists, dicts and arrays.
    classes : dict of name to class, optional
        Learners of your own, besides those of :mod:`tagstream.models`.

    Raises
    ------
    ValueError
        The model or ``extra`` holds something that a file cannot.
    OSError
        The file cannot be written.
    """
    name = type(model).__name__
    if _learner(name, classes) is not type(model):
        raise ValueError(
            f"model must be one of {_names()} to be saved, got {name}; "
            "give other learners as classes="
        )
    state = model.to_state()
    # What could not be loaded again must not take the place of a good file.
    write_state(path, name, state, extra, check=type(model).from_state)


def write_state(
    path: str | os.PathLike[str],
    name: str,
    state: dict[str, Any],
    extra: dict[str, Any] | None,
    *,
    check: Callable[[dict[str, Any]], object] | None = None,
) -> None:
    """Write the state of a learner of class ``name``, if ``check(state)`` does not fail."""
    writer = _Writer()
    header: dict[str, Any] = {"format": FORMAT, "class": name, "tagstream": __version__}
    header["state"] = writer.encode(state, "the state")
    header["extra"] = writer.encode(extra or {}, "extra")
    header["arrays"] = [[a.dtype.str, _order(a), list(a.shape)] for a in writer.arrays]
    body = [_raw(a) for a in writer.arrays]
    digest = hashlib.sha256()
    for part in body:
        digest.update(part)
    header["body_bytes"] = sum(len(part) for part in body)
    header["body_sha256"] = digest.hexdigest()
    text = json.dumps(header, separators=(",", ":")).encode()
    if len(text) > LARGEST_HEADER:
        raise ValueError(
            f"parameters, names and extra must fit {LARGEST_HEADER} bytes, got {len(text)}"
        )
    prefix = _PREFIX.pack(MAGIC, FORMAT, len(text), hashlib.sha256(text).digest())
    try:
        _check_state(state, len(prefix) + len(text) + header["body_bytes"])
        if check is not None:
            check(state)
    except Exception as error:
        raise ValueError(f"the model could not be loaded again: {_line(error)}") from error
    _write_atomically(os.path.realpath(path), [prefix, text, *body])


def _order(array: Array) -> str:
    """Keep the memory order: sums over the other one may differ in the last bit."""
    return "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"


def _raw(array: Array) -> memoryview:
    flat = array.ravel(order="F" if _order(array) == "F" else "C")
    return flat.view(np.uint8).data


def _write_atomically(path: str, parts: list[bytes | memoryview]) -> None:
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
    try:
        old = os.stat(path) if os.path.exists(path) else None
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, "it is a directory")
        try:
            # Never an existing file.  A new one gets mode 666 less the umask, as open() does; one
            # that takes another's place is nobody else's to read until it has its mode and owner.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            mode = 0o666 if old is None else 0o600
            with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
                if old is not None:
                    _resemble(temporary, old)
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise
        _sync_folder(folder)
    except OSError as error:
        what = f"the model cannot be saved: {error.strerror or error}"
        raise OSError(error.errno, what, path) from error


def _resemble(path: str, old: os.stat_result) -> None:
    """Give a file the owner, group and mode that the one before it had, as far as one may."""
    mode = stat.S_IMODE(old.st_mode)
    if hasattr(os, "chown"):
        for owner, group in ((old.st_uid, -1), (-1, old.st_gid)):
            with contextlib.suppress(PermissionError):
                os.chown(path, owner, group)
        if os.stat(path).st_gid != old.st_gid:
            mode &= ~0o070  # what was another group's to read is not this one's
    os.chmod(path, mode)


def _sync_folder(folder: str) -> None:
    """Make a rename last through a power failure, where directories can be synced."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:  # some network file systems have no such call; the rename itself is done
        pass
    finally:
        os.close(handle)


def remove_leftovers(path: str | os.PathLike[str]) -> int:
    """Remove temporary files that a killed :func:`save` left beside ``path``; return how many."""
    target = Path(os.path.realpath(path))
    left = [
        p
        for p in (target.parent.iterdir() if target.parent.is_dir() else ())
        if p.name.startswith(f".{target.name}.")
        and p.name.endswith(".tmp")
        and len(p.name) == len(target.name) + 38  # two dots, 32 digits, the ending
    ]
    for p in left:
        p.unlink(missing_ok=True)
    return len(left)


# ---------------------------------------------------------------------- loading
def load(path: str | os.PathLike[str], *, classes: Classes | None = None) -> StreamClassifier:
    """Return the model saved at ``path``; it predicts and learns on as the saved one would.

    Of the file of a :class:`~tagstream.Tagger` it returns the learner, and a warning is logged.

    Parameters
    ----------
    path : path
    classes : dict of name to class, optional
        Learners of your own, besides those of :mod:`tagstream.models`.

    Raises
    ------
    DataError
        The file is not a whole and sound model file.
    OSError
        The file cannot be read.
    """
    learner, extra = load_with_extra(path, classes=classes)
    if "tagger" in extra:
        logger.warning(
            "%s is the file of a Tagger; this is its learner, without texts and what makes rows of "
            "them. tagstream.Tagger.open gives the whole",
            os.fspath(path),
        )
    return learner


def load_with_extra(
    path: str | os.PathLike[str], *, classes: Classes | None = None
) -> tuple[StreamClassifier, dict[str, Any]]:
    """Return the model saved at ``path`` and the ``extra`` values saved with it."""
    return load_state(path, lambda state: state, classes=classes)


def load_state(
    path: str | os.PathLike[str],
    prepare: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    classes: Classes | None = None,
) -> tuple[StreamClassifier, dict[str, Any]]:
    """Return the model made of ``prepare(state)``, and the ``extra`` values saved with it."""
    written_by = __version__
    with _open(path) as file:
        try:
            header, version, n_bytes = _read_header(file)
            written_by = str(header["tagstream"])[:30]
            if _learner(header["class"], classes) is None:
                raise ValueError(f"its learner must be one of {_names()}, got {header['class']!r}")
            arrays = _Arrays(_read_body(file, header))
            state, extra = _decode(header["state"], arrays), _decode(header["extra"], arrays)
            state = with_counts(state) if version <= 2 else state
            _check_state(state, n_bytes)
            if type(extra) is not dict:
                raise ValueError(f"extra must be a dict, got {type(extra).__name__}")
            name = header["class"]
            if version == 1:
                name, state = from_format_1(name, state)
            if version <= 2:
                state = from_format_2(name, state)
            learner = _learner(name, classes)
            assert learner is not None
            return learner.from_state(prepare(state)), extra
        except OSError:
            raise
        except Exception as error:  # a hostile state may make a learner fail in any way
            other = f"; tagstream {written_by} wrote it, this is {__version__}"
            note = "" if written_by == __version__ else _line(ValueError(other))
            raise DataError(f"{os.fspath(path)}: {_line(error)}{note}") from error


def inspect(path: str | os.PathLike[str]) -> ModelInfo:
    """Return what the header of the model file ``path`` tells; the arrays are not read."""
    with _open(path) as file:
        try:
            header, version, n_bytes = _read_header(file)
            state, names = header["state"], header["state"]["names"]
            return ModelInfo(
                format=version,
                tagstream=str(header["tagstream"]),
                learner=str(header["class"]),
                params=dict(_decode(state["params"], None)),
                n_seen=int(state["n_seen"]),
                n_features=int(state["n_features"]),
                n_labels=len(names) if isinstance(names, list) else int(names["$list"]["n"]),
                extra=dict(_decode(header["extra"], None)),
                arrays=[(dtype, tuple(shape)) for dtype, _, shape in header["arrays"]],
                n_bytes=n_bytes,
            )
        except OSError:
            raise
        except Exception as error:
            raise DataError(f"{os.fspath(path)}: {_line(error)}") from error


def _open(path: str | os.PathLike[str]) -> BinaryIO:
    if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe or a device might never end
        raise DataError(f"{os.fspath(path)}: a model must be a regular file")
    return open(path, "rb")


def _line(error: Exception) -> str:
    """Return any exception's message as one line of bounded length."""
    text = " ".join(str(error).split())[:300]
    if isinstance(error, DataError) or (type(error) is ValueError and text):
        return text
    return f"its content does not make sense ({type(error).__name__}{': ' * bool(text)}{text})"


def _learner(name: object, classes: Classes | None) -> type[StreamClassifier] | None:
    if classes is not None and isinstance(name, str) and name in classes:
        return classes[name]
    found: type[StreamClassifier] | None = registry.learner(name)
    return found


def _names() -> str:
    return ", ".join(cls for cls, _ in registry.LEARNERS.values())


def _read_header(file: BinaryIO) -> tuple[dict[str, Any], int, int]:
    """Return the checked header, the format version and the size of the file."""
    n_bytes = os.fstat(file.fileno()).st_size
    start = file.read(_PREFIX.size)
    if start[: len(MAGIC)] != MAGIC:
        raise ValueError("this is not a tagstream model")
    if len(start) < _PREFIX.size:
        raise ValueError(f"the file is cut off: {n_bytes} bytes")
    _, version, length, digest = _PREFIX.unpack(start)
    if not OLDEST <= version <= FORMAT:
        raise ValueError(
            f"the file format must be {OLDEST} to {FORMAT}, got {version}; "
            "a newer tagstream may have written it, or the file is damaged"
        )
    if length > LARGEST_HEADER:
        raise ValueError(f"the header must be at most {LARGEST_HEADER} bytes, got {length}")
    if length > n_bytes - _PREFIX.size:
        raise ValueError(f"the file is cut off: {n_bytes} bytes")
    text = file.read(length)
    if hashlib.sha256(text).digest() != digest:
        raise ValueError("the file is damaged: its header does not match its checksum")
    header = json.loads(text)
    # The number before the header is under no checksum; from format 3 on it stands inside too.
    inside = {"format"} if version >= 3 else set()
    if not isinstance(header, dict) or set(header) != _HEADER | inside:
        raise ValueError("the header must hold the fields of its format, got others")
    if header.get("format", version) != version:
        raise ValueError(f"the file is damaged: its format is {header['format']} or {version}")
    body = sum(_array_bytes(entry, n_bytes) for entry in header["arrays"])
    if type(header["body_bytes"]) is not int or header["body_bytes"] != body:
        raise ValueError(f"the arrays must take {header['body_bytes']} bytes, got {body}")
    expected = _PREFIX.size + length + body
    if n_bytes != expected:
        what = "is cut off" if n_bytes < expected else "has a tail"
        raise ValueError(f"the file {what}: {n_bytes} bytes where {expected} are expected")
    return header, version, n_bytes


def _array_bytes(entry: Any, n_bytes: int) -> int:
    dtype, order, shape = entry
    if dtype not in _DTYPES or order not in ("C", "F"):
        raise ValueError(f"an array's dtype must be a plain number, got {str(dtype)[:20]!r}")
    if not isinstance(shape, list) or len(shape) > 8:
        raise ValueError("an array must have at most 8 dimensions")
    if not all(type(n) is int and 0 <= n <= max(n_bytes, LARGEST_EMPTY) for n in shape):
        raise ValueError("an array's dimensions must be counts that fit the file, got others")
    return math.prod(shape) * int(dtype[2:])


def _read_body(file: BinaryIO, header: dict[str, Any]) -> list[Array]:
    digest = hashlib.sha256()
    arrays = []
    for dtype, order, shape in header["arrays"]:
        flat = np.empty(math.prod(shape), dtype)
        octets = flat.view(np.uint8)
        view = octets.data
        if file.readinto(view) != len(view):  # type: ignore[attr-defined]  # BinaryIO lacks it
            raise ValueError("the file is cut off")
        digest.update(view)
        if dtype == "|b1" and flat.size and octets.max() > 1:
            raise ValueError("truth values must be 0 or 1")
        native = flat.astype(flat.dtype.newbyteorder("="), copy=False)
        arrays.append(native.reshape(shape, order=order))
    if digest.hexdigest() != header["body_sha256"]:
        raise ValueError("the file is damaged: its arrays do not match their checksum")
    return arrays


def _check_state(state: Any, n_bytes: int) -> None:
    """Check what all learners share; the rest is up to the learner's ``_load``.

    A file of ``n_bytes`` must not ask for much more room than it takes itself.
    """
    if not isinstance(state, dict) or set(state) != _STATE:
        raise ValueError("the state must hold the fields of its format, got others")
    for key in ("n_features", "n_seen", "n_empty"):
        if type(state[key]) is not int or not 0 <= state[key] < 1 << 48:
            raise ValueError(f"{key} must be a count, got {state[key]!r}")
    for key in ("sparse", "single"):
        if type(state[key]) is not bool:
            raise ValueError(f"{key} must be true or false, got {state[key]!r}")
    for key in ("params", "learner"):
        if type(state[key]) is not dict:
            raise ValueError(f"{key} must be a dict, got {type(state[key]).__name__}")
    names, features = state["names"], state["feature_names"]
    if type(names) is not list or len(set(names)) != len(names):
        raise ValueError("label names must be a list without repetition")
    if state["single"] and not names:
        raise ValueError("a model of one label per item must have a label, got none")
    if not 1 <= state["n_features"] <= max(WIDEST_ROWS, n_bytes):
        raise ValueError(
            f"n_features must be from 1 to {WIDEST_ROWS} or the size of the file, "
            f"got {state['n_features']}"
        )
    if type(features) is not list or len(features) not in (0, state["n_features"]):
        raise ValueError(f"feature names must be a list of {state['n_features']}, or empty")
    if not all(type(name) is str for name in features):
        raise ValueError("feature names must be strings")
    dtype = np.dtype(state["dtype"])
    if not state["single"] and dtype.kind not in "biu":
        raise ValueError(f"the dtype of predictions must be boolean or integer, got {dtype}")
