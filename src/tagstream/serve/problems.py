"""What an error looks like: our own few fields, or problem details (RFC 9457) for who asks so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

__all__ = ["PROBLEM", "error_body"]

PROBLEM = "application/problem+json"


def error_body(
    accept: str, status: int, message: str, more: Mapping[str, Any] | None = None
) -> tuple[bytes, str]:
    """Return the body of an error and its type.

    Examples
    --------
    >>> error_body("*/*", 422, "n must be a number", {"field": "n"})
    (b'{"error": "n must be a number", "field": "n"}', 'application/json')
    >>> json.loads(error_body("application/problem+json", 404, "no such tag")[0])
    {'type': 'about:blank', 'title': 'Not Found', 'status': 404, 'detail': 'no such tag'}
    """
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    if PROBLEM not in kinds:
        return _packed({"error": message, **(more or {})}), "application/json"
    title = HTTPStatus(status).phrase
    problem = {"type": "about:blank", "title": title, "status": status, "detail": message}
    return _packed({**problem, **(more or {})}), PROBLEM


def _packed(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()
