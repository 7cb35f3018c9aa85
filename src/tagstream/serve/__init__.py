"""The service: suggest, correct, learn over HTTP; what was acknowledged is never lost.

``log`` is the truth (events in SQLite), ``writer`` the one thread that changes the tagger, ``app``
the routes around it, ``gate`` what every request passes first.  See docs/service.md.
"""

from __future__ import annotations

from tagstream.serve.log import Event, EventLog
from tagstream.serve.tokens import Token, Tokens
from tagstream.serve.writer import Service

__all__ = ["Event", "EventLog", "Service", "Token", "Tokens"]
