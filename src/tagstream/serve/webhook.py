"""Tell another program that a tag has begun to drift.

An administrator names the address when the service starts; nobody else can.  The name is looked up
at each call, and the connection goes to the address that was found.  Private, local and reserved
addresses are refused unless they are allowed, and redirects are not followed, so that the service
cannot be used to reach what only it can reach.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import logging
import socket
import ssl
import threading
from typing import Any
from urllib.parse import urlsplit

from tagstream.serve.routes.knows import drifting
from tagstream.serve.served import Served

__all__ = ["DriftWatch", "Webhook"]

EVERY = 60.0  # seconds between two looks at the tags
SECONDS = 10.0  # for one call
PORTS = {"http": 80, "https": 443}

logger = logging.getLogger(__name__)


class Webhook:
    """An address that is told of something by POST.

    Parameters
    ----------
    url : str
        ``http://`` or ``https://``, without a user name.
    private : bool
        Whether private, local and reserved addresses are allowed.

    Raises
    ------
    ValueError
        It is no such address.

    Examples
    --------
    >>> Webhook("http://127.0.0.1:9/").send({})
    Traceback (most recent call last):
    ...
    OSError: 127.0.0.1 is a private, local or reserved address; --webhook-private allows it
    """

    def __init__(self, url: str, private: bool = False) -> None:
        parts = urlsplit(url)
        if parts.scheme not in PORTS or not parts.hostname or parts.username is not None:
            raise ValueError(f"the webhook must be an http or https address, got {url!r}")
        self._secure, self._host = parts.scheme == "https", parts.hostname
        self._port = parts.port or PORTS[parts.scheme]
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._private = private

    def send(self, told: dict[str, Any]) -> None:
        """Send a JSON object.

        Raises
        ------
        OSError
            It did not get there: the address is not allowed, or it answered an error or a redirect.
        """
        address = self._address()
        connection = http.client.HTTPConnection(self._host, self._port, timeout=SECONDS)
        connection.sock = socket.create_connection((address, self._port), SECONDS)
        try:
            if self._secure:
                context = ssl.create_default_context()
                connection.sock = context.wrap_socket(connection.sock, server_hostname=self._host)
            body = json.dumps(told, ensure_ascii=False).encode()
            connection.request("POST", self._path, body, {"Content-Type": "application/json"})
            status = connection.getresponse().status
        except http.client.HTTPException as error:
            raise OSError(f"the webhook did not answer: {type(error).__name__}") from error
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise OSError(f"the webhook must answer 200 to 299, got {status}")

    def _address(self) -> str:
        """Return the address of the host, if it may be called."""
        found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        address = str(found[0][4][0])
        if not self._private and not ipaddress.ip_address(address.split("%")[0]).is_global:
            raise OSError(
                f"{address} is a private, local or reserved address; --webhook-private allows it"
            )
        return address


class DriftWatch:
    """Looks at the tags now and then, and tells of those that have begun to drift.

    Parameters
    ----------
    service : Served
    webhook : Webhook
    every : float
        Seconds between two looks.
    """

    def __init__(self, service: Served, webhook: Webhook, every: float = EVERY) -> None:
        self._service, self._webhook, self._every = service, webhook, every
        self._told: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tagstream-webhook", daemon=True)

    def start(self) -> DriftWatch:
        """Begin to look."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Look no more."""
        self._end.set()

    def _run(self) -> None:
        while not self._end.wait(self._every):
            self._try()

    def _try(self) -> None:
        try:
            self.look()
        except Exception as error:  # told again at the next look
            logger.warning("the webhook was not told of a drift: %s", error)

    def look(self) -> None:
        """Tell of tags that drift and were not told of; one that has recovered may come again."""
        published = self._service.published
        if published is None:
            return
        now = {*drifting(published.view)}
        new = sorted(now - self._told)
        self._told &= now
        if new:
            self._webhook.send({"event": "drift", "tags": new, "position": published.position})
            self._told |= {*new}
