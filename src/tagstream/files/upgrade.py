"""States of older model files as the present learners have them.

Format 1 knew no head, no stores and no corrections, called the rule for decisions ``threshold``,
and kept the published variant of OML as parameters of ``OML``.

Format 2 knew one head, for the next item of the stream.  Such a model answers for any item as for
the next one, until its next fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tagstream.checks import expect_keys
from tagstream.execution.schedule import FIRST_FIT

__all__ = ["from_format_1", "from_format_2", "with_counts"]

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


def with_counts(state: Any) -> Any:
    """Return a state of format 1 or 2 with the counts that the present one has.

    How many items had no label is not known: the empty set raises the bar as it did then.
    """
    if not isinstance(state, dict) or "n_seen" not in state or "n_empty" in state:
        return state
    return {**state, "n_empty": state["n_seen"]}


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


def from_format_2(learner: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state that a file of format 2 stands for now."""
    inner = state["learner"]
    if not isinstance(inner, dict) or "store" not in inner:
        return state
    inner = dict(inner)
    store = inner.get("store")
    if isinstance(store, dict) and "corrections" not in store:
        marks = store.get("corrected")
        which = np.ones(len(marks), np.int64) if isinstance(marks, np.ndarray) else None
        inner["store"] = {**store, "corrections": which}
    if isinstance(inner.get("belief"), dict):
        inner["belief"] = {
            **inner["belief"],
            "any": None,
            "drawn": np.empty(0, np.int64),
            "naming": None,
            "honest_next": None,
            "honest_any": None,
            "watched": None,
        }
    if learner == "KNN":
        inner |= {"next_replay": FIRST_FIT, "n_fits": 0, "fitted_at": 0}
    elif learner == "OML":
        # The first files had neither of these three.
        fits = {"n_fits": 0, "fitted_at": 0}
        inner = {"reduction": None, "moments": None, "renewal": None, **fits, **inner}
        renewal = inner["renewal"]
        if isinstance(renewal, dict) and isinstance(renewal.get("embedding"), dict):
            fitted = {**fits, **renewal["embedding"]}
            inner["renewal"] = {**renewal, "embedding": fitted, "any": None, "drawn": None}
            inner["renewal"]["honest"] = None
    return {**state, "learner": inner}


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
