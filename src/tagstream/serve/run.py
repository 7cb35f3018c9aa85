"""Serve a folder: one process, JSON log lines, an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from tagstream.serve.gate import is_loopback
from tagstream.serve.tokens import Tokens
from tagstream.serve.writer import Service

__all__ = ["JsonLines", "address", "check_host", "listen", "serve"]

# How long requests under way may take after SIGTERM.
DRAIN_SECONDS = 30
# Seconds of a start after which it says what it does, and after which it says so again.
FIRST_WORD_SECONDS, NEXT_WORD_SECONDS = 3, 10
_PLAIN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}


class JsonLines(logging.Formatter):
    """One JSON object on one line for each record.

    Examples
    --------
    >>> record = logging.makeLogRecord({"msg": "ready", "levelname": "INFO", "port": 8080})
    >>> json.loads(JsonLines().format(record))["port"]
    8080
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info and record.exc_info[0] is not None:
            line["trace"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)


def check_host(host: str, tokens: Tokens) -> bool:
    """Return whether the service is open to everyone who reaches it: loopback, no tokens.

    Raises
    ------
    ValueError
        Others could reach it, and there are no tokens.
    """
    if len(tokens):
        return False
    if not is_loopback(host):
        raise ValueError(
            f"host must be 127.0.0.1 without tokens, got {host}; "
            "make one: tagstream token add DIR NAME --role write"
        )
    return True


def address(host: str, port: int) -> str:
    """Return the address of the page.

    Examples
    --------
    >>> address("0.0.0.0", 80), address("::1", 8080)
    ('http://localhost:80/', 'http://[::1]:8080/')
    """
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; its connections send small packets at once.

    asyncio sees to that only for sockets that it made itself.  Without it the second packet of an
    answer waits for the client's delayed acknowledgement, 40 ms.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.create_server((host, port), family=family, backlog=1024)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # those it accepts inherit it
    return sock


def serve(
    service: Service, host: str, port: int, on_ready: Callable[[str], None] | None = None
) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    Parameters
    ----------
    service : Service
        Not started yet.
    host, port
        Where to listen; port 0 takes a free one.
    on_ready : callable, optional
        Called with the address once it answers.
    """
    try:
        import uvicorn
    except ImportError as error:
        service.close()
        raise ImportError(
            "the service needs uvicorn; install it with: pip install 'tagstream[serve]'"
        ) from error
    from tagstream.serve.app import create_app

    try:
        is_open = check_host(host, Tokens(service.folder / "tokens.json"))
        sock = listen(host, port)
    except (OSError, ValueError) as error:
        service.close()
        if isinstance(error, OSError):
            raise OSError(f"port {port} of {host}: {error.strerror or error}") from error
        raise
    url = address(host, sock.getsockname()[1])
    config = uvicorn.Config(
        create_app(service, is_open),
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    server = uvicorn.Server(config)

    def stop() -> None:
        server.should_exit = True

    service.on_failure = stop
    with _own_end():
        asyncio.run(_run(server, service, sock, url, is_open, on_ready))
    return 0 if service.failure is None else 1


@contextlib.contextmanager
def _own_end() -> Iterator[None]:
    """Let an orderly end be one: uvicorn raises the signal again after it has shut down."""
    before = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError):  # not in the main thread
            before[number] = signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _run(
    server: Any,
    service: Service,
    sock: socket.socket,
    url: str,
    is_open: bool,
    on_ready: Callable[[str], None] | None,
) -> None:
    service.start(wait=False)
    logger = logging.getLogger("tagstream.serve")
    if is_open:
        logger.warning("no tokens: whoever can reach this machine's loopback may do everything")

    async def tell() -> None:
        begun = time.monotonic()
        due = FIRST_WORD_SECONDS
        while not (service.ready and server.started):
            if service.failure is not None or server.should_exit:
                return
            if (past := time.monotonic() - begun) >= due:
                due += NEXT_WORD_SECONDS
                logger.info("%s, %.0f s so far", service.doing, past)
            await asyncio.sleep(0.02)
        # What is there now stays: the garbage collector need not look at it again, which takes it
        # a tenth of a second, in which nobody is answered.
        gc.collect()
        gc.freeze()
        logger.info("ready", extra={"url": url, "position": service.read().position})
        if on_ready is not None:
            on_ready(url)

    telling = asyncio.create_task(tell())
    await server.serve(sockets=[sock])
    await telling


def log_to(stream: Any = None) -> None:
    """Send the log of the service, and of what it runs on, to a stream as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("tagstream", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False
