"""Serve a folder: one process, JSON log lines, an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import math
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from tagstream.serve.door import Door, DoorLimits, Network
from tagstream.serve.gate import is_loopback
from tagstream.serve.served import Served
from tagstream.serve.tokens import Tokens

__all__ = [
    "JsonLines",
    "address",
    "check_host",
    "file_system_of",
    "fit_descriptors",
    "leave",
    "listen",
    "log_to",
    "serve",
    "server_config",
]

# How long requests under way may take after SIGTERM.
DRAIN_SECONDS = 30
# Descriptors for everything but connections: the log, its readers, snapshots, libraries.
OTHER_DESCRIPTORS = 96
FEWEST_CONNECTIONS = 8
# File systems whose locks or shared memory SQLite cannot rely on.  Those of FUSE count, too.
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs")
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


def listen(
    host: str, port: int, limits: DoorLimits | None = None, trusted: Sequence[Network] = ()
) -> Door:
    """Return a socket that listens there; its connections send small packets at once.

    asyncio sees to that only for sockets that it made itself.  Without it the second packet of an
    answer waits for the client's delayed acknowledgement, 40 ms.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.create_server((host, port), family=family, backlog=1024)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # those it accepts inherit it
    return Door(sock, limits or DoorLimits(), trusted)


def fit_descriptors(limits: DoorLimits) -> DoorLimits:
    """Return limits for which there are descriptors, and ask the system for enough of them."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + OTHER_DESCRIPTORS
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft >= wanted:
        return limits
    found = max(soft - OTHER_DESCRIPTORS, FEWEST_CONNECTIONS)
    logging.getLogger("tagstream.serve").warning(
        "only %d connections at once: the limit of open files is %d (ulimit -n)", found, soft
    )
    return replace(limits, connections=min(found, limits.connections))


def server_config(app: Any, limits: DoorLimits) -> Any:
    """Return how uvicorn is run."""
    import uvicorn

    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        loop="asyncio",  # the door needs sockets that are accepted in Python
        http="h11",  # it bounds the size of a head
        ws="none",
        server_header=False,
        proxy_headers=False,  # the door knows connections by their own address
        timeout_keep_alive=math.ceil(limits.keep_alive_seconds),
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )


def serve(
    service: Served,
    host: str,
    port: int,
    on_ready: Callable[[str], None] | None = None,
    trusted: Sequence[Network] = (),
    webhook: tuple[str, bool] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    Parameters
    ----------
    service : Served
        Not started yet.
    host, port
        Where to listen; port 0 takes a free one.
    on_ready : callable, optional
        Called with the address once it answers.
    trusted : sequence of networks
        Proxies whose header ``X-Forwarded-For`` is believed.
    webhook : (str, bool), optional
        An address that is told of tags that drift, and whether it may be a private one.
    """
    try:
        import uvicorn
    except ImportError as error:
        service.close()
        raise ImportError(
            "the service needs uvicorn; install it with: pip install 'tagstream[serve]'"
        ) from error
    from tagstream.serve.app import create_app
    from tagstream.serve.webhook import DriftWatch, Webhook

    try:
        watch = None if webhook is None else DriftWatch(service, Webhook(*webhook))
        is_open = check_host(host, Tokens(service.folder / "tokens.json"))
        door = listen(host, port, fit_descriptors(DoorLimits()), trusted)
    except (OSError, ValueError) as error:
        service.close()
        if isinstance(error, OSError):
            raise OSError(f"port {port} of {host}: {error.strerror or error}") from error
        raise
    warn_of_network(service.folder)
    url = address(host, door.getsockname()[1])
    server = uvicorn.Server(server_config(create_app(service, is_open, door=door), door.limits))

    def stop() -> None:
        server.should_exit = True

    service.on_failure = stop
    if watch is not None:
        watch.start()
    with _own_end(stop):
        asyncio.run(_run(server, service, door, url, is_open, on_ready))
    if watch is not None:
        watch.close()
    service.close()  # a signal that came before the server was up has not closed it
    return 0 if service.failure is None else 1


def leave(code: int) -> NoReturn:
    """End the process at once, for a service that was closed while it was starting.

    Python would take all modules apart first, perhaps beside a thread that still computes with
    them.  That is more than half of the time that such an end takes, and nothing of it is needed.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it
            stream.flush()
    os._exit(code)


def file_system_of(path: Path, mounts: str | None = None) -> str:
    """Return the type of the file system that holds a folder; "" where that is not known.

    Parameters
    ----------
    path : Path
    mounts : str, optional
        What stands in Linux's ``/proc/self/mountinfo``.

    Examples
    --------
    >>> file_system_of(Path("/data/tags"), "36 35 0:50 / /data rw - nfs4 host:/data rw")
    'nfs4'
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
    best, found = -1, ""
    place = str(path.resolve())
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        mount = fields[4].replace("\\040", " ")
        is_above = mount == "/" or place == mount or place.startswith(f"{mount}/")
        if is_above and len(mount) >= best:  # a later one lies over an earlier one
            best, found = len(mount), after.split()[0]
    return found


def warn_of_network(folder: Path) -> None:
    """Say in the log if the folder is not on a local disk."""
    kind = file_system_of(folder)
    if kind in NETWORK or kind.startswith("fuse."):
        logging.getLogger("tagstream.serve").warning(
            "%s is on a network file system (%s), where SQLite can lose or damage the log; "
            "use a folder on a local disk",
            folder,
            kind,
        )


@contextlib.contextmanager
def _own_end(stop: Callable[[], None]) -> Iterator[None]:
    """Let an orderly end be one: uvicorn raises the signal again after it has shut down.

    A signal that comes before uvicorn listens to signals stops the server, too.
    """
    before = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError):  # not in the main thread
            before[number] = signal.signal(number, lambda *_: stop())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _run(
    server: Any,
    service: Served,
    door: Door,
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
    await server.serve(sockets=[door])
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
    # asyncio and others log too, and Python warns: without a handler that is plain text.
    logging.getLogger().handlers[:] = [handler]
    logging.captureWarnings(True)
