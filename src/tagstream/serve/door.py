"""The listening socket: how many connections come in, and how long they may take to ask.

The server (uvicorn) limits neither the time until the head of a request is complete nor the number
of connections of one address.  When there are no descriptors left, asyncio logs thousands of lines
a second and accepts nothing.  Both take the listening socket as it is given to them, so the limits
are here: :meth:`Door.accept` decides who comes in.  That a head is complete is known when the
application is called; :meth:`Door.request` tells the door.

All methods run in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import logging
import os
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["Door", "DoorLimits", "address_of", "parse_networks"]

Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"
Peer: TypeAlias = "tuple[str, int]"

# Connections that were cut off and that the event loop has not closed yet.
MAX_CLOSING = 64
# Seconds between two lines of the log about the same thing.
TELL_SECONDS = 10.0
# How long to wait when nothing can be accepted and nothing can be closed.
PAUSE_SECONDS = 0.01
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DoorLimits:
    """How much the door lets in.

    Attributes
    ----------
    connections : int
        Open connections in all.
    per_address : int
        Open connections of one address; behind a trusted proxy, requests under way.
    head_seconds : float
        From the opening of a connection until the head of its first request is complete.
    keep_alive_seconds : float
        How long the server keeps a connection without a request.  The time for the head of the
        next request begins after it.
    """

    connections: int = 1000
    per_address: int = 100
    head_seconds: float = 10.0
    keep_alive_seconds: float = 5.0


def parse_networks(names: Sequence[str]) -> tuple[Network, ...]:
    """Return addresses and networks.

    Examples
    --------
    >>> parse_networks(["127.0.0.1", "10.0.0.0/8"])
    (IPv4Network('127.0.0.1/32'), IPv4Network('10.0.0.0/8'))
    """
    return tuple(ipaddress.ip_network(name, strict=False) for name in names)


def address_of(host: str) -> str:
    """Return what counts as one address: an IPv4 address, or 64 bits of an IPv6 address.

    One customer usually has a whole /64 network of IPv6.

    Examples
    --------
    >>> address_of("::ffff:192.0.2.7"), address_of("2001:db8::1"), address_of("unknown")
    ('192.0.2.7', '2001:db8::/64', 'unknown')
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.ip_network((address, 64), strict=False))
        return str(address.ipv4_mapped)
    return str(address)


class Door(socket.socket):
    """A listening socket with limits.

    At a limit, the connection that has waited longest for a head makes room for the new one.  If
    none waits, the new one is turned away.

    Parameters
    ----------
    listening : socket
        Taken over.
    limits : DoorLimits
    trusted : sequence of networks
        Proxies whose header ``X-Forwarded-For`` is believed.
    """

    def __init__(
        self, listening: socket.socket, limits: DoorLimits, trusted: Sequence[Network] = ()
    ) -> None:
        family, kind, proto = listening.family, listening.type, listening.proto
        super().__init__(family, kind, proto, fileno=listening.detach())
        self.limits, self.trusted = limits, trusted
        self._open: dict[Peer, _Connection] = {}
        self._waiting: OrderedDict[_Connection, None] = OrderedDict()  # for a head, oldest first
        self._n_open = self._n_closing = 0
        self._of_address: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()  # of forwarded addresses
        self._told: dict[str, tuple[float, int]] = {}
        self.on_close: Callable[[], None] = lambda: None
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        """Stop listening."""
        super().close()
        self._drop_spare()
        self.on_close()

    # ------------------------------------------------------------------ coming in
    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection that may come in.

        Raises
        ------
        BlockingIOError, ConnectionAbortedError
            None for now; the event loop asks again when one waits.
        """
        if self._n_closing >= MAX_CLOSING:
            raise BlockingIOError(errno.EAGAIN, "connections are being closed")
        try:
            plain, peer = super().accept()
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._without_descriptor(error)
            raise BlockingIOError(errno.EAGAIN, "no descriptor is left") from None
        why = self._make_room(peer[0])
        if why is not None:
            _turn_away(plain, why)
            raise ConnectionAbortedError(errno.ECONNABORTED, why)
        connection = _Connection(self, plain, (peer[0], peer[1]))
        self._n_open += 1
        self._of_address[connection.address] += 1
        self._open[connection.peer] = connection
        self._wait(connection, self.limits.head_seconds)
        return connection, peer

    def _make_room(self, host: str) -> str | None:
        """Return why a new connection cannot come in; cut another one off if that helps."""
        address = address_of(host)
        if not self._is_trusted(host) and self._of_address[address] >= self.limits.per_address:
            if not self._cut_oldest(lambda connection: connection.address == address):
                self._tell("an address has too many connections; new ones are turned away")
                return "too many connections of one address"
            self._tell("an address has too many connections; those without a request are closed")
        elif self._n_open - self._n_closing >= self.limits.connections:
            if not self._cut_oldest(lambda _: True):
                self._tell("there are too many connections; new ones are turned away")
                return "too many connections"
            self._tell("there are too many connections; those without a request are closed")
        return None

    def _without_descriptor(self, error: OSError) -> None:
        """Close a connection without a request, or turn the next one away."""
        self._tell(f"no connection can be accepted ({os.strerror(error.errno or 0)})")
        if self._n_closing or self._cut_oldest(lambda _: True):
            return
        # With the spare descriptor the next connection can be accepted, and closed.
        self._drop_spare()
        try:
            plain, _ = super().accept()
            _turn_away(plain, "no descriptor is left")
        except OSError:
            time.sleep(PAUSE_SECONDS)
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _drop_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _is_trusted(self, host: str) -> bool:
        if not self.trusted:
            return False
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self.trusted)

    # ------------------------------------------------------------------ waiting for a head
    def _wait(self, connection: _Connection, seconds: float) -> None:
        self._waiting[connection] = None
        loop = asyncio.get_running_loop()
        connection.timer = loop.call_later(seconds, self._late, connection)

    def _stop_waiting(self, connection: _Connection) -> None:
        self._waiting.pop(connection, None)
        if connection.timer is not None:
            connection.timer.cancel()
            connection.timer = None

    def _late(self, connection: _Connection) -> None:
        self._tell(
            f"a request did not begin within {self.limits.head_seconds:g} s; "
            "the connection is closed"
        )
        self._cut(connection)

    def _cut_oldest(self, is_meant: Callable[[_Connection], bool]) -> bool:
        """Cut off the connection that has waited longest; return whether there was one."""
        found = next(filter(is_meant, self._waiting), None)
        if found is not None:
            self._cut(found)
        return found is not None

    def _cut(self, connection: _Connection) -> None:
        """End a connection: the event loop reads its end and closes it."""
        self._stop_waiting(connection)
        connection.is_closing = True
        self._n_closing += 1
        self._of_address[connection.address] -= 1
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def forget(self, connection: _Connection) -> None:
        """Take note that a connection is closed."""
        self._stop_waiting(connection)
        self._n_open -= 1
        if connection.is_closing:
            self._n_closing -= 1
        else:
            self._of_address[connection.address] -= 1
        if self._of_address[connection.address] <= 0:
            del self._of_address[connection.address]
        if self._open.get(connection.peer) is connection:
            del self._open[connection.peer]

    # ------------------------------------------------------------------ requests
    @contextlib.contextmanager
    def request(self, peer: Any, forwarded: str | None) -> Iterator[bool]:
        """Take note that a request is under way, from its head to the end of its answer.

        Parameters
        ----------
        peer : (host, port) or None
            The connection, as the application is told.
        forwarded : str or None
            The header ``X-Forwarded-For``.  Of several addresses the last one counts: the proxy
            itself wrote it.

        Yields
        ------
        bool
            Whether the address behind a trusted proxy may have one more request under way.
        """
        connection = self._open.get((peer[0], peer[1])) if peer else None
        address = None
        if forwarded and peer and self._is_trusted(peer[0]):
            address = address_of(forwarded.rpartition(",")[2].strip()[:64])
            self._requests[address] += 1
        if connection is not None:
            connection.n_requests += 1
            self._stop_waiting(connection)
        try:
            yield address is None or self._requests[address] <= self.limits.per_address
        finally:
            if address is not None:
                self._requests[address] -= 1
                if self._requests[address] <= 0:
                    del self._requests[address]
            if connection is not None:
                connection.n_requests -= 1
                # A next request may have begun before this one has ended.
                is_over = connection.is_closing or connection.fileno() < 0
                if connection.n_requests == 0 and not is_over:
                    limits = self.limits
                    self._wait(connection, limits.keep_alive_seconds + limits.head_seconds)

    # ------------------------------------------------------------------ the log
    def _tell(self, message: str) -> None:
        """Log a message, but the same one only now and then."""
        now = time.monotonic()
        last, n = self._told.get(message, (-TELL_SECONDS, 0))
        if now - last < TELL_SECONDS:
            self._told[message] = (last, n + 1)
            return
        self._told[message] = (now, 0)
        logger.warning(message, extra={"open": self._n_open, "since_last": n + 1})


class _Connection(socket.socket):
    """A connection that tells its door when it is closed."""

    def __init__(self, door: Door, plain: socket.socket, peer: Peer) -> None:
        family, kind, proto = plain.family, plain.type, plain.proto
        super().__init__(family, kind, proto, fileno=plain.detach())
        self.peer, self.address = peer, address_of(peer[0])
        self.n_requests = 0
        self.is_closing = False
        self.timer: asyncio.TimerHandle | None = None
        self._door: Door | None = door

    def close(self) -> None:
        """Close it."""
        super().close()
        door, self._door = self._door, None
        if door is not None:
            door.forget(self)


def _turn_away(plain: socket.socket, why: str) -> None:
    """Answer 503 and close; what cannot be sent at once is not sent."""
    body = json.dumps({"error": f"{why}; try again later"}).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    )
    with contextlib.closing(plain), contextlib.suppress(OSError):
        plain.setblocking(False)
        plain.send(head.encode() + body)
        plain.shutdown(socket.SHUT_WR)
