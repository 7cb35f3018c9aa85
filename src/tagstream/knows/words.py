"""Which words spoke for and against a tag?

Each word of the question is left out, all its occurrences at once, and the model is asked again.
What the log-odds of a tag lose without the word is what the word spoke for it.  Named values are
left out by their names.  Only the first :data:`MOST` different ones are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.features.scanner import token_spans

__all__ = ["MOST", "spoken", "variants"]

MOST = 40  # words that are left out
SHOWN = 5  # words for and against a tag that are told
LEAST = 0.05  # of the log-odds
CLIP = 1e-4  # of scores

Ask = Callable[[list[dict[str, Any]]], npt.NDArray[np.float64]]


def variants(record: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the record without each of its words, or named values; empty for numbers.

    Examples
    --------
    >>> variants({"text": "low tide, low sun"})
    {'low': {'text': ' tide,  sun'}, 'tide': {'text': 'low , low sun'}, \
'sun': {'text': 'low tide, low '}}
    """
    text, x = record.get("text"), record.get("x")
    if isinstance(x, Mapping):
        return {str(name): {"x": {k: v for k, v in x.items() if k != name}} for name in [*x][:MOST]}
    if not isinstance(text, str):
        return {}
    places: dict[str, list[tuple[int, int]]] = {}
    for token, start, stop in token_spans(text):
        if any(c.isalnum() for c in token):
            places.setdefault(token, []).append((start, stop))
    return {
        text[spans[0][0] : spans[0][1]]: {"text": _without(text, spans)}
        for spans in [*places.values()][:MOST]
    }


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    parts, end = [], 0
    for start, stop in spans:
        parts.append(text[end:start])
        end = stop
    return "".join([*parts, text[end:]])


def spoken(
    record: Mapping[str, Any], tags: Sequence[Any], columns: Sequence[int], ask: Ask
) -> dict[Any, dict[str, float]]:
    """Return for each tag the words that spoke for it, and against it, the strongest first.

    Parameters
    ----------
    record : mapping
    tags, columns : sequences
        The tags that are asked about, and where their scores stand.
    ask : callable
        Returns the scores (n, q) of records.
    """
    left_out = variants(record)
    if not left_out or not tags:
        return {}
    field = {key: record[key] for key in ("text", "x") if record.get(key) is not None}
    p = np.clip(ask([field, *left_out.values()]), CLIP, 1 - CLIP)
    log_odds = np.log(p / (1 - p))
    found: dict[Any, dict[str, float]] = {}
    for tag, j in zip(tags, columns, strict=True):
        change = log_odds[0, j] - log_odds[1:, j]
        order = np.argsort(-np.abs(change), kind="stable").tolist()
        words = [*left_out]
        strong = [i for i in order if abs(change[i]) >= LEAST]
        for_it = [i for i in strong if change[i] > 0][:SHOWN]
        against = [i for i in strong if change[i] < 0][:SHOWN]
        found[tag] = {words[i]: round(float(change[i]), 3) for i in (*for_it, *against)}
    return found
