"""Online multi-label classification by metric learning.

>>> import tagstream as ts
>>> stream = ts.make_stream(1000, seed=0)
>>> model = ts.OML(random_state=0).fit(stream.X[:800], stream.Y[:800])
>>> model.predict(stream.X[800:]).shape == stream.Y[800:].shape
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tagstream.version import __version__

if TYPE_CHECKING:
    from tagstream.checks import DataError
    from tagstream.data import Dataset, load, make_stream
    from tagstream.evaluate import holdout, prequential
    from tagstream.metrics import MultiLabelScores
    from tagstream.models import KNN, OLANSGD, OML, OSMLELM, PublishedOML
    from tagstream.persist import load as load_model
    from tagstream.persist import save as save_model
    from tagstream.tagger import Tagger
    from tagstream.text import Encoder


__all__ = [
    "KNN",
    "OLANSGD",
    "OML",
    "OSMLELM",
    "DataError",
    "Dataset",
    "Encoder",
    "MultiLabelScores",
    "PublishedOML",
    "Tagger",
    "__version__",
    "holdout",
    "load",
    "load_model",
    "make_stream",
    "prequential",
    "save_model",
]

# Public names are imported when first asked for: the command line must start at once, and
# reading a file needs no compiler.
_HOMES = {
    "KNN": "models.KNN",
    "OLANSGD": "models.OLANSGD",
    "OML": "models.OML",
    "OSMLELM": "models.OSMLELM",
    "DataError": "checks.DataError",
    "Dataset": "data.Dataset",
    "Encoder": "text.Encoder",
    "MultiLabelScores": "metrics.MultiLabelScores",
    "PublishedOML": "models.PublishedOML",
    "Tagger": "tagger.Tagger",
    "holdout": "evaluate.holdout",
    "load": "data.load",
    "load_model": "persist.load",
    "make_stream": "data.make_stream",
    "prequential": "evaluate.prequential",
    "save_model": "persist.save",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tagstream' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(".")
    value = getattr(importlib.import_module(f"tagstream.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
