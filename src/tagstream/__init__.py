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
    from tagstream.evaluation.evaluate import holdout, prequential
    from tagstream.evaluation.metrics import MultiLabelScores
    from tagstream.features import Encoder, TextFeatures
    from tagstream.files.persist import load as load_model
    from tagstream.files.persist import save as save_model
    from tagstream.learners.knn import KNN
    from tagstream.learners.oml import OML
    from tagstream.paper.methods.olansgd import OLANSGD
    from tagstream.paper.methods.osml_elm import OSMLELM
    from tagstream.paper.methods.published import PublishedOML
    from tagstream.records import Dataset, load, make_stream
    from tagstream.tagger import Tagger


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
    "TextFeatures",
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
    "KNN": "learners.knn",
    "OLANSGD": "paper.methods.olansgd",
    "OML": "learners.oml",
    "OSMLELM": "paper.methods.osml_elm",
    "DataError": "checks",
    "Dataset": "records",
    "Encoder": "features",
    "MultiLabelScores": "evaluation.metrics",
    "PublishedOML": "paper.methods.published",
    "Tagger": "tagger",
    "TextFeatures": "features",
    "holdout": "evaluation.evaluate",
    "load": "records",
    "load_model": "files.persist",
    "make_stream": "records",
    "prequential": "evaluation.evaluate",
    "save_model": "files.persist",
}
_CALLED = {"load_model": "load", "save_model": "save"}  # there


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tagstream' has no attribute {name!r}")
    module = importlib.import_module(f"tagstream.{_HOMES[name]}")
    value = getattr(module, _CALLED.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
