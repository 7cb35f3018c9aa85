"""What is imported, and what is not."""

from __future__ import annotations

import subprocess
import sys

BELOW_LEARNERS = """
import pkgutil, sys, tagstream
from importlib import import_module
for name in (
    "checks", "core", "decision", "engine", "evidence", "execution", "features", "labels", "metric",
    "notebook", "projection", "records", "store",
):
    module = import_module(f"tagstream.{name}")
    for part in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if (name, part.name) != ("features", "transformer") and part.name != "ray":
            import_module(f"tagstream.{name}.{part.name}")
from tagstream.features import Text
assert Text().rows(["low tide"]).nnz
assert not [name for name in sys.modules if name.partition(".")[0] == "sklearn"], "scikit-learn"
"""


def test_nothing_below_the_learners_imports_scikit_learn():
    subprocess.run([sys.executable, "-c", BELOW_LEARNERS], check=True)
