"""A real server in a thread, on a free port of the loopback, with a client for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import uvicorn

from fake_tagger import FakeTagger
from tagstream.serve.app import create_app
from tagstream.serve.run import listen
from tagstream.serve.writer import Service


@contextlib.contextmanager
def serving(
    folder: Any,
    is_open: bool = True,
    start: bool = True,
    tagger: Any = FakeTagger,
    port: int = 0,
    **options: Any,
) -> Iterator[Any]:
    """Yield an HTTP client; ``client.service`` is what it talks to."""
    service = Service(folder, tagger)
    if start:
        service.start()
    sock = listen("127.0.0.1", port)
    app = create_app(service, is_open, **options)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            client.service = service
            client.url = url
            yield client
    finally:
        server.should_exit = True
        thread.join()
