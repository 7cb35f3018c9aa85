"""What should be tagged next?

Half of the items are the *random half*, by a hash of their id.  They come in random order.  The
other half comes by

    Σ_j H(p_j) / √(1 + n_j),

H the entropy of the tag's probability and n_j the number of stored items that have it: first the
items that the model is unsure of, in tags of which it has seen little.  The two halves take turns.

So every second item is a fair draw, and how well the model does on these is how well it does.
Nobody has to remember what was offered: the hash tells to which half an item belongs.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.knows import ORDERS

__all__ = [
    "NEAR_COPY",
    "ORDERS",
    "TAG",
    "check_order",
    "features_of",
    "hash_of",
    "is_near",
    "is_random",
    "order_items",
    "take_turns",
    "unsureness",
    "without_copies",
]

NEAR_COPY = 0.7  # share of words that two items have in common, from which one of them waits
TAG = "tag:"

Vector = npt.NDArray[np.float64]

_WORDS = re.compile(r"\w+")


def features_of(record: Mapping[str, Any]) -> frozenset[Any]:
    """Return what two items are compared by: words, named values, or numbers in their columns."""
    if record.get("text") is not None:
        return frozenset(_WORDS.findall(record["text"].lower()))
    x = record["x"]
    return frozenset(x.items() if isinstance(x, Mapping) else enumerate(x))


def is_near(a: frozenset[Any], b: frozenset[Any]) -> bool:
    """Return whether two items are nearly the same."""
    return len(a & b) >= NEAR_COPY * len(a | b)


def without_copies(
    order: Iterable[Any], features: Mapping[Any, frozenset[Any]], n: int
) -> list[Any]:
    """Return the first ``n`` items that do not resemble each other; others only if there are few.

    Examples
    --------
    >>> features = {0: frozenset("abcd"), 1: frozenset("abcde"), 2: frozenset("xyz")}
    >>> without_copies([0, 1, 2], features, 2), without_copies([0, 1, 2], features, 3)
    ([0, 2], [0, 2, 1])
    """
    picked: list[Any] = []
    waiting: list[Any] = []
    for name in order:
        if len(picked) == n:
            break
        near = any(is_near(features[name], features[other]) for other in picked)
        (waiting if near else picked).append(name)
    return [*picked, *waiting[: n - len(picked)]]


def hash_of(id: Hashable) -> int:
    """Return a hash of an id that is the same everywhere."""
    return zlib.crc32(str(id).encode("utf-8", "surrogatepass"))


def is_random(id: Hashable) -> bool:
    """Return whether an item belongs to the random half.

    Examples
    --------
    >>> sum(is_random(i) for i in range(1000))
    502
    """
    return bool(hash_of(id) & 1)


def check_order(order: object, tags: Sequence[Any] | None = None) -> None:
    """Raise unless an order is one of ``ORDERS``, or ``tag:`` and a tag, known if ``tags`` say."""
    if isinstance(order, str) and order.startswith(TAG):
        tag = order[len(TAG) :]
        if tag and (tags is None or tag in tags):
            return
        raise ValueError(f"order must name a tag that was learnt, got {order!r}")
    if order not in ORDERS:
        named = ", ".join(ORDERS)
        raise ValueError(f"order must be one of {named} or tag:NAME, got {order!r}")


def unsureness(p: Vector, counts: Any) -> Vector:
    """Return Σ H(p_j)/√(1 + n_j) of items with probabilities (m, q), an array of shape (m,).

    Examples
    --------
    >>> unsureness(np.array([[0.5, 0.0], [0.9, 0.0]]), np.array([3, 0])).round(3).tolist()
    [0.347, 0.163]
    """
    p = np.clip(p, 1e-12, 1 - 1e-12)
    entropy = -(p * np.log(p) + (1 - p) * np.log1p(-p))
    found: Vector = (entropy / np.sqrt(1.0 + np.asarray(counts, np.float64))).sum(axis=1)
    return found


def order_items(
    ids: Sequence[Hashable],
    p: Vector,
    tags: Sequence[Any],
    counts: Any,
    order: str = "mixed",
) -> list[int]:
    """Return the places of items in the order in which they should be tagged.

    Parameters
    ----------
    ids : sequence of m ids
        In the order of arrival.
    p : array of shape (m, q)
        Probabilities of the tags.
    tags : sequence of q tags
    counts : array of shape (q,)
        How many stored items have each.
    order : {"mixed", "arrival", "random", "unsure", "sure"}, or "tag:NAME"
        ``mixed``: both halves in turn.  ``random``: by a hash of the id.  ``unsure`` and ``sure``:
        by how unsure the model is, most and least first.  ``tag:NAME``: those first that most
        likely have that tag.

    Examples
    --------
    >>> p = np.array([[0.9], [0.5], [0.2], [0.4]])
    >>> order_items([0, 1, 2, 3], p, ["sea"], [9], "unsure")
    [1, 3, 2, 0]
    >>> order_items([0, 1, 2, 3], p, ["sea"], [9], "tag:sea")
    [0, 1, 3, 2]
    """
    check_order(order, tags)
    m = len(ids)
    if order == "arrival":
        return [*range(m)]
    if order.startswith(TAG):
        likely: list[int] = np.argsort(-p[:, [*tags].index(order[len(TAG) :])]).tolist()
        return likely
    by_hash = sorted(range(m), key=lambda i: (hash_of(ids[i]), i))
    if order == "random":
        return by_hash
    unsure = unsureness(p, counts) if p.shape[1] else np.zeros(m)
    by_unsureness: list[int] = np.argsort(-unsure, kind="stable").tolist()
    if order != "mixed":
        return by_unsureness[:: 1 if order == "unsure" else -1]
    fair = [i for i in by_hash if is_random(ids[i])]
    return take_turns([i for i in by_unsureness if not is_random(ids[i])], fair)


def take_turns(chosen: Sequence[Any], fair: Sequence[Any]) -> list[Any]:
    """Return one of each in turn, and what is left of the longer one."""
    turns = [name for pair in zip(chosen, fair, strict=False) for name in pair]
    n = min(len(chosen), len(fair))
    return [*turns, *chosen[n:], *fair[n:]]
