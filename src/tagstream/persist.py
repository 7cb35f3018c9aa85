"""Save a learner to one file and load it again, without pickle."""

from tagstream.files.persist import (
    ModelInfo,
    inspect,
    load,
    load_with_extra,
    remove_leftovers,
    save,
)

__all__ = [
    "ModelInfo",
    "inspect",
    "load",
    "load_with_extra",
    "remove_leftovers",
    "save",
]
