"""States of older model files as the present learners have them.

Format 1 knew no head, no stores and no corrections, called the rule for decisions ``threshold``,
and kept the published variant of OML as parameters of ``OML``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tagstream.checks import expect_keys

__all__ = ["from_format_1"]

_ONLY_PUBLISHED = (
    "step", "step_min", "projection", "neighbor", "update", "init", "first_block",
)  # fmt: skip
_COUNTERS = {
    "n_updates": "n_updates_",
    "n_degenerate": "n_degenerate_",
    "cumulative_loss": "cumulative_loss_",
    "loss": "loss_",
    "step": "step_",
    "exponent": "_exponent",
}


def from_format_1(learner: str, state: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the class and the state that a file of format 1 stands for now."""
    params, inner = dict(state["params"]), dict(state["learner"])
    if "threshold" in params:
        params["decide"] = params.pop("threshold")
    if "memory" in inner:
        inner["store"] = _store(inner.pop("memory"))
    if learner in ("OML", "KNN"):
        params["head"] = False
    if learner == "KNN":
        inner["belief"] = None
    if learner == "OML":
        learner, params, inner = _oml(params, inner, state["sparse"])
    return learner, {**state, "params": params, "learner": inner}


def _store(memory: Any) -> dict[str, Any]:
    keys = ("rows", "codes", "labels", "known", "ids", "n_forgotten", "shape")
    expect_keys("the memory", memory, *keys)
    seen = memory["n_forgotten"] + len(memory["labels"])
    return {**memory, "numbers": None, "corrected": None, "n_seen": seen}


def _oml(
    params: dict[str, Any], inner: dict[str, Any], sparse: bool
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    published = {name: params.pop(name) for name in _ONLY_PUBLISHED}
    counters, made, choice = inner["counters"], None, inner["choice"]
    unit = choice is not None and choice["scale"] == "unit"
    if inner["P"] is not None:
        lift = inner["lift"]
        columns = inner["columns"]
        made = {
            "P": inner["P"],
            "c": inner["c"],
            "lift": None if lift is None else {"kind": choice["lift"], **lift},
            "columns": columns,
            "p": 0 if columns is None else inner["store"]["shape"][0],
            "unit": unit,
        }
    space = {name: counters[old] for name, old in _COUNTERS.items()}
    space |= {name: inner[name] for name in ("V", "basis", "codec")}
    state = {"store": inner["store"], "projection": made, "seed": inner["seed"], "space": space}
    if published["projection"] == "first":
        state["store"] = {**state["store"], "codes": None}
        space["codec"] = np.zeros((0, 0))
        for name in ("ridge", "scale", "lift", "head"):
            params.pop(name)
        kept = ("step", "step_min", "update", "first_block")
        return "PublishedOML", params | {name: published[name] for name in kept}, state
    state |= {
        "belief": None,
        "choice": choice,
        "next_fit": counters["_next_fit"],
        "next_choice": counters["_next_choice"],
    }
    if published["init"] == "normal":  # narrow, as this metric is now only if it is told to be
        params["n_components"] = int(inner["V"].shape[1])
    return "OML", params, state
