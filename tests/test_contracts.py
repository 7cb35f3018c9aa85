"""Every learner keeps the contract in ``checks.py``."""

from __future__ import annotations

from typing import Any

import pytest

import checks
from tagstream import models
from tagstream.learners.registry import LEARNERS

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
    "KNN-window": ("KNN", {"window": 25}),
    "KNN-map": ("KNN", {"vote": "map"}),
    "KNN-map-window": ("KNN", {"vote": "map", "window": 25}),
    "KNN-head": ("KNN", {"head": True, "decide": "balanced"}),
    "KNN-head-late": ("KNN", {"head": True, "decide": "f1", "lag": 4, "window": 30}),
    "OML": ("OML", {"random_state": 0}),
    "OML-votes": ("OML", {"head": False, "decide": 0.5, "random_state": 0}),
    "OML-window": ("OML", {"window": 25, "random_state": 0}),
    "OML-late": ("OML", {"lag": 5, "random_state": 0}),
    "OML-late-window": ("OML", {"lag": 5, "window": 30, "n_components": 2, "random_state": 0}),
    "OML-convex": ("OML", {"step": "convex", "random_state": 0}),
    "OML-convex-narrow": ("OML", {"step": "convex", "n_components": 2, "random_state": 0}),
    "PublishedOML": ("PublishedOML", {"first_block": 24, "random_state": 0}),
    "PublishedOML-window": (
        "PublishedOML",
        {"first_block": 24, "window": 25, "step": "exact", "random_state": 0},
    ),
}
# Dense rows may be standardised and lifted, sparse ones are not unless asked.
PLAIN = {"scale": None, "lift": None}
# One of each class for scikit-learn's own checks, which take long, with what users get.
ONCE = ("OSMLELM", "OSMLELM-stable", "OLANSGD", "KNN", "KNN-map", "OML", "PublishedOML")


def factory(key: str) -> checks.Make:
    name, params = VARIANTS[key]
    cls = getattr(models, name)
    return lambda **more: cls(**{**params, **more})


# The paper's V is drawn label by label, its steps are as large as its bounds let them be, and its P
# never hears of a label that comes late.
UNCLAIMED = {
    (checks.check_label_permutation_commutes, "PublishedOML"),
    (checks.check_label_permutation_commutes, "PublishedOML-window"),
    (checks.check_learns, "PublishedOML"),
    (checks.check_scikit_learn, "PublishedOML"),  # which asks for an accuracy of 0.83
    (checks.check_a_new_label_is_learnt, "PublishedOML-window"),
}


def cases() -> list[Any]:
    return [
        pytest.param(
            check,
            key,
            id=f"{check.__name__[6:]}-{key}",
            marks=[pytest.mark.exact] if check in checks.EXACT else [],
        )
        for check in checks.ALL
        for key in VARIANTS
        if (check is not checks.check_scikit_learn or key in ONCE) and (check, key) not in UNCLAIMED
    ]


@pytest.mark.parametrize(("check", "key"), cases())
def test_contract(check: Any, key: str) -> None:
    if check is checks.check_scikit_learn:
        cls, params = getattr(models, VARIANTS[key][0]), VARIANTS[key][1]
        check(lambda: cls(**{k: v for k, v in params.items() if k in ("ridge", "solver", "vote")}))
    elif check is checks.check_sparse_like_dense and "head" in factory(key)().get_params():
        # The head of dense rows looks for neighbours in input space too.
        plain = PLAIN if key.startswith("OML") else {}
        check(lambda: factory(key)(head=False, decide=0.5, **plain))
    elif check in (checks.check_learns, checks.check_a_new_label_is_learnt):
        # Of 25 items nobody learns much.
        wide = {"window": 200} if "window" in VARIANTS[key][1] else {}
        check(lambda: factory(key)(**wide))
    else:
        check(factory(key))


def test_every_learner_keeps_the_contract() -> None:
    named = {name for name, _ in VARIANTS.values()}
    assert named == {cls for cls, _ in LEARNERS.values()}
