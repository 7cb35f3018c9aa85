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
from tagstream.serve.door import DoorLimits
from tagstream.serve.run import listen, server_config
from tagstream.serve.writer import Service


@contextlib.contextmanager
def serving(
    folder: Any,
    is_open: bool = True,
    start: bool = True,
    tagger: Any = FakeTagger,
    port: int = 0,
    service: Service | None = None,
    limits: DoorLimits | None = None,
    trusted: Any = (),
    **options: Any,
) -> Iterator[Any]:
    """Yield an HTTP client; ``client.service`` is what it talks to."""
    service = service or Service(folder, tagger)
    if start:
        service.start()
    door = listen("127.0.0.1", port, limits, trusted)
    app = create_app(service, is_open, door=door, **options)
    server = uvicorn.Server(server_config(app, door.limits))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [door]}, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{door.getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            client.service = service
            client.url = url
            client.door = door
            yield client
    finally:
        server.should_exit = True
        thread.join()
