"""Every learner keeps the contract in ``checks.py``."""

from __future__ import annotations

from typing import Any

import pytest

import checks
from tagstream import models

# Small settings: what a learner does at fixed times must happen within the checks' 60 examples.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "OSMLELM": ("OSMLELM", {"n_hidden": 12, "random_state": 0}),
    "OSMLELM-stable": (
        "OSMLELM",
        {"n_hidden": 12, "ridge": "auto", "solver": "qr", "random_state": 0},
    ),
    "OLANSGD": ("OLANSGD", {"first_block": 24}),
    "OLANSGD-threshold": (
        "OLANSGD",
        {"alpha": 0.01, "rule": "threshold", "first_block": 1, "scale": None},
    ),
    "KNN": ("KNN", {}),
    "OML": ("OML", {"random_state": 0}),
}
# Dense rows may be standardised and lifted, sparse ones are not unless asked.
PLAIN = {"scale": None, "lift": None}
MODELS = {key: v for key, v in VARIANTS.items() if hasattr(models, v[0])}


def factory(key: str) -> checks.Make:
    name, params = MODELS[key]
    cls = getattr(models, name)
    return lambda **more: cls(**{**params, **more})


@pytest.mark.parametrize("key", MODELS)
@pytest.mark.parametrize("check", checks.ALL, ids=lambda check: check.__name__[6:])
def test_contract(check: Any, key: str) -> None:
    if check is checks.check_scikit_learn:  # with the settings that users get
        cls, params = getattr(models, MODELS[key][0]), MODELS[key][1]
        check(lambda: cls(**{k: v for k, v in params.items() if k in ("ridge", "solver")}))
    elif check is checks.check_sparse_like_dense and key == "OML":
        check(lambda: factory(key)(**PLAIN))
    else:
        check(factory(key))
