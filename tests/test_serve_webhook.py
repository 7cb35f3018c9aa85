"""The webhook: told once of a tag that drifts; no redirects, no private address by itself."""

from __future__ import annotations

import http.server
import json
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi")

from tagstream.knows.health import TagHealth
from tagstream.serve.webhook import DriftWatch, Webhook


@pytest.fixture
def listener():
    """Yield the address of a server that keeps what it is told, and answers ``status``."""
    told = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(server.status)
            if server.status == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    server.status, server.told = 200, told
    server.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_private_address_must_be_allowed(listener):
    with pytest.raises(OSError, match="private, local or reserved"):
        Webhook(listener.url).send({"event": "drift"})
    assert listener.told == []
    Webhook(listener.url, private=True).send({"event": "drift"})
    assert listener.told == [{"event": "drift"}]


@pytest.mark.parametrize("status", [302, 404, 500])
def test_redirects_and_errors_are_failures(listener, status):
    listener.status = status
    with pytest.raises(OSError, match=f"got {status}"):
        Webhook(listener.url, private=True).send({})
    assert len(listener.told) == 1  # it went nowhere else


@pytest.mark.parametrize("url", ["ftp://x.y/", "https://", "http://me@x.y/", "x.y"])
def test_an_address_must_be_one(url):
    with pytest.raises(ValueError, match="must be an http or https address"):
        Webhook(url)


def test_each_drift_is_told_once_and_again_if_it_could_not_be(listener):
    health = [
        TagHealth(tag, 9, 9, None, None, None, drifting)
        for tag, drifting in (("sea", True), ("food", False))
    ]
    view = SimpleNamespace(n_items=9, tag_health=lambda: health)
    service = SimpleNamespace(published=SimpleNamespace(view=view, position=7))
    watch = DriftWatch(service, Webhook(listener.url, private=True))
    listener.status = 500
    with pytest.raises(OSError, match="got 500"):
        watch.look()
    listener.status = 200
    watch.look()
    watch.look()
    assert listener.told[1:] == [{"event": "drift", "tags": ["sea"], "position": 7}]
