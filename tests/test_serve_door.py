"""Slow and many connections: the time for a head, the numbers, and a lack of descriptors."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import logging
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from fake_tagger import FakeTagger
from serving import serving
from tagstream import cli
from tagstream.serve import run
from tagstream.serve.door import Door, DoorLimits, address_of, parse_networks

HEAD = b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\n"
PATIENT = 60.0


@contextlib.contextmanager
def knock(client: Any, data: bytes = b"") -> Iterator[socket.socket]:
    port = int(client.url.rsplit(":")[-1])
    with socket.create_connection(("127.0.0.1", port), PATIENT) as sock:
        sock.settimeout(PATIENT)
        sock.sendall(data)
        yield sock


def rest(sock: socket.socket) -> bytes:
    """What comes until the connection is closed."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := sock.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def is_over(sock: socket.socket) -> bool:
    """Whether the other side has closed the connection; it must not say anything."""
    try:
        return sock.recv(1000) == b""
    except TimeoutError:
        return False


def settled(client: Any) -> None:
    """Wait until the server has seen what was done before: it answers in order."""
    assert client.get("/health/ready").status_code == 200


# ---------------------------------------------------------------------- the time for a head
@pytest.mark.parametrize("sent", [b"", b"G", HEAD, HEAD + b"X-A: b"])
def test_a_head_that_does_not_come_ends_the_connection(tmp_path, sent):
    with (
        serving(tmp_path, limits=DoorLimits(head_seconds=0.1)) as client,
        knock(client, sent) as sock,
    ):
        assert rest(sock) == b""


def test_a_head_that_trickles_ends_the_connection(tmp_path):
    with (
        serving(tmp_path, limits=DoorLimits(head_seconds=0.2)) as client,
        knock(client, HEAD) as sock,
    ):
        sock.settimeout(0.01)
        with contextlib.suppress(ConnectionError):
            while not is_over(sock):
                sock.sendall(b"X-A: b\r\n")


def test_a_second_head_that_trickles_ends_the_connection_too(tmp_path):
    limits = DoorLimits(head_seconds=0.1, keep_alive_seconds=0.1)
    with serving(tmp_path, limits=limits) as client, knock(client, HEAD + b"\r\n" + HEAD) as sock:
        assert rest(sock).startswith(b"HTTP/1.1 200")


def test_a_request_that_takes_long_is_not_cut_off(tmp_path, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    usual = FakeTagger.learn

    def slow(self: FakeTagger, records: Any, **more: Any) -> int:
        begun.set()
        go_on.wait(PATIENT)
        return usual(self, records)

    body = json.dumps({"items": [{"id": "1", "text": "t", "y": []}]}).encode()
    head = (
        b"POST /v1/learn HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    with (
        serving(tmp_path, limits=DoorLimits(head_seconds=0.05)) as client,
        contextlib.ExitStack() as all_open,
    ):
        monkeypatch.setattr(FakeTagger, "learn", slow)  # it is warm now
        sock = all_open.enter_context(knock(client, head + body))
        assert begun.wait(PATIENT)
        waits = all_open.enter_context(knock(client))
        assert rest(waits) == b""  # the time for a head is over
        go_on.set()
        assert rest(sock).startswith(b"HTTP/1.1 200")


# ---------------------------------------------------------------------- how many
def test_at_the_limit_those_without_a_request_make_room(tmp_path, caplog):
    limits = DoorLimits(connections=5, per_address=1000)
    with serving(tmp_path, limits=limits) as client, contextlib.ExitStack() as all_open:
        held = [all_open.enter_context(knock(client, b"GET / HTTP/1.1\r\nX: ")) for _ in range(40)]
        for _ in range(3):
            settled(client)
        assert client.door._n_open <= 5 + 1
        assert rest(held[0]) == b""
    told = [m for m in caplog.messages if "too many connections" in m]
    assert len(told) == 1


def test_an_address_has_a_limit_of_its_own(tmp_path, caplog):
    limits = DoorLimits(connections=1000, per_address=4)
    with serving(tmp_path, limits=limits) as client, contextlib.ExitStack() as all_open:
        held = [all_open.enter_context(knock(client, b"GET / HTTP/1.1\r\nX: ")) for _ in range(20)]
        settled(client)
        assert rest(held[0]) == b""
        assert client.door._of_address["127.0.0.1"] <= 4
        assert "an address has too many connections" in caplog.text


def test_when_all_connections_have_a_request_a_new_one_is_turned_away(tmp_path, monkeypatch):
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(self: Any, records: Any, top: Any = None, decide: Any = None, next: Any = None) -> Any:
        begun.release()
        go_on.wait(PATIENT)
        return []

    body = b'{"items": [{"text": "t"}]}'
    head = (
        b"POST /v1/suggest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    with (
        serving(tmp_path, limits=DoorLimits(connections=2)) as client,
        contextlib.ExitStack() as all_open,
    ):
        monkeypatch.setattr("fake_tagger.FakeView.suggest", slow)  # it is warm now
        one = all_open.enter_context(knock(client, head + body))
        two = all_open.enter_context(knock(client, head + body))
        assert begun.acquire(timeout=PATIENT)
        assert begun.acquire(timeout=PATIENT)
        with knock(client) as third:
            answer = rest(third)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in answer.lower()
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
        go_on.set()
        assert rest(one).startswith(b"HTTP/1.1 200")
        assert rest(two).startswith(b"HTTP/1.1 200")
        settled(client)


def test_connections_that_come_and_go_leave_nothing_behind(tmp_path):
    with serving(tmp_path, limits=DoorLimits(connections=20, per_address=10)) as client:
        for i in range(300):
            with knock(client, HEAD + b"Connection: close\r\n\r\n" if i % 2 else b"GET /") as sock:
                if i % 2:
                    assert rest(sock).startswith(b"HTTP/1.1 200")
        door: Door = client.door
        client.close()
        end = time.monotonic() + PATIENT
        while door._n_open and time.monotonic() < end:
            time.sleep(0.01)
        assert (door._open, door._waiting, door._of_address) == ({}, {}, {})
        assert (door._n_closing, door._requests) == (0, {})


def test_behind_a_trusted_proxy_the_forwarded_address_counts(tmp_path, monkeypatch):
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(self: Any, records: Any, top: Any = None, decide: Any = None, next: Any = None) -> Any:
        begun.release()
        go_on.wait(PATIENT)
        return []

    def head(forwarded: str, path: str = "POST /v1/suggest") -> bytes:
        body = b'{"items": [{"text": "t"}]}'
        lines = (
            f"{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\nX-Forwarded-For: {forwarded}\r\n"
        )
        return lines.encode() + b"\r\n" + body

    with (
        serving(
            tmp_path, limits=DoorLimits(per_address=2), trusted=parse_networks(["127.0.0.0/8"])
        ) as client,
        contextlib.ExitStack() as all_open,
    ):
        monkeypatch.setattr("fake_tagger.FakeView.suggest", slow)  # it is warm now
        # Four connections of the proxy, more than one address may have, for two addresses.
        for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2"):
            all_open.enter_context(knock(client, head(f"198.51.100.7, {address}")))
        for _ in range(4):
            assert begun.acquire(timeout=PATIENT)
        with knock(client, head("192.0.2.1")) as sock:
            answer = rest(sock)
        assert answer.startswith(b"HTTP/1.1 429")
        assert b"retry-after: 1" in answer.lower()
        with knock(client, head("192.0.2.1, 192.0.2.3", "GET /health/live")) as sock:
            assert rest(sock).startswith(b"HTTP/1.1 200")
        go_on.set()


def test_a_forwarded_address_of_a_stranger_is_not_believed(tmp_path):
    limits = DoorLimits(per_address=1)
    with serving(tmp_path, limits=limits, trusted=parse_networks(["192.0.2.0/24"])) as client:
        for i in range(3):
            forwarded = {"X-Forwarded-For": f"203.0.113.{i}"}
            assert client.get("/health/ready", headers=forwarded).status_code == 200
        assert client.door._requests == {}
        with knock(client, b"GET /") as first, knock(client, b"GET /"):
            assert rest(first) == b""


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("192.0.2.1", "192.0.2.1"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"), ("fe80::1%eth0", "fe80::/64"), ("", ""),
    ],
)  # fmt: skip
def test_what_counts_as_one_address(host, wanted):
    assert address_of(host) == wanted


def test_proxies_are_named_by_address_or_network(tmp_path, capfd):
    assert cli.main(["serve", str(tmp_path / "d"), "--trust-proxy", "nginx"]) == 2
    assert "--trust-proxy must be an address or a network" in " ".join(
        capfd.readouterr().err.split()
    )
    assert not (tmp_path / "d").exists()


# ---------------------------------------------------------------------- no descriptor is left
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_without_descriptors_it_goes_on_answering(tmp_path, monkeypatch, caplog, number):
    usual = socket.socket.accept
    left = [0]

    def accept(self: socket.socket) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(number, os.strerror(number))
        return usual(self)

    monkeypatch.setattr(socket.socket, "accept", accept)
    with serving(tmp_path) as client:
        settled(client)
        with knock(client, b"GET /") as waits:
            settled(client)
            left[0] = 500
            with knock(client, HEAD + b"Connection: close\r\n\r\n") as sock:
                assert rest(sock).startswith(b"HTTP/1.1")
            settled(client)
            assert rest(waits) == b""  # it made room
    assert left[0] == 0
    told = [record for record in caplog.records if "no connection can be accepted" in record.msg]
    assert len(told) == 1


def test_limits_fit_the_descriptors_that_there_are(monkeypatch, caplog):
    found = {"now": (100, 150)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: found["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: found.update(now=new))
    limits = run.fit_descriptors(DoorLimits())
    assert limits.connections == 150 - run.OTHER_DESCRIPTORS
    assert found["now"] == (150, 150)
    assert "the limit of open files is 150" in caplog.text
    found["now"] = (256, resource.RLIM_INFINITY)
    assert run.fit_descriptors(DoorLimits()) == DoorLimits()
    assert found["now"] == (1000 + run.OTHER_DESCRIPTORS, resource.RLIM_INFINITY)


def test_whatever_is_logged_is_json(capfd):
    root = logging.getLogger()
    loggers = [root, *map(logging.getLogger, ("tagstream", "uvicorn"))]
    before = [(logger, logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            run.log_to(sys.stderr)
            logging.getLogger("asyncio").error("socket.accept() out of system resource")
            warnings.warn("something\nodd", stacklevel=1)
    finally:
        logging.captureWarnings(False)
        for logger, handlers, level, propagate in before:
            logger.handlers[:] = handlers
            logger.setLevel(level)
            logger.propagate = propagate
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["logger"] for line in lines] == ["asyncio", "py.warnings"]


def test_a_process_with_few_descriptors_answers_under_a_flood(tmp_path):
    folder, log = tmp_path / "folder", tmp_path / "log"
    command = [sys.executable, "-m", "tagstream", "serve", str(folder), "--port", "0"]
    with (
        open(log, "w") as errors,
        subprocess.Popen(
            ["sh", "-c", 'ulimit -n 40; exec "$0" "$@"', *command],
            stdout=subprocess.PIPE, stderr=errors, text=True,
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, log.read_text()
        address = ("127.0.0.1", int(url.strip("/").rsplit(":")[-1]))
        try:
            with contextlib.ExitStack() as all_open:
                for _ in range(80):
                    sock = all_open.enter_context(socket.create_connection(address, PATIENT))
                    sock.sendall(b"GET / HTTP/1.1\r\nX: ")
                for _ in range(20):
                    with socket.create_connection(address, PATIENT) as sock:
                        sock.settimeout(PATIENT)
                        sock.sendall(HEAD + b"Connection: close\r\n\r\n")
                        assert rest(sock).startswith(b"HTTP/1.1 200")
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert any("limit of open files is 40" in line["message"] for line in lines)
    assert len(lines) < 100


# ---------------------------------------------------------------------- for a long time
def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def break_off(client: Any, data: bytes) -> None:
    """Send a part of a request and reset the connection."""
    with knock(client, data) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.slow
def test_very_many_connections_leave_memory_and_descriptors_as_they_were(tmp_path):
    """What a page does: it polls, and it goes away at any moment.  10,000 rounds of each."""
    polled = ["/v1/info", "/v1/progress", "/v1/tags", "/v1/next", "/v1/items", "/health/ready"]
    post = (
        b"POST /v1/suggest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b'Content-Length: 26\r\n\r\n{"items": [{"text": "swim"}]}'
    )
    some = [{"id": f"{i}", "text": f"swim {i}", "y": ["sea"]} for i in range(50)]
    sizes = []
    with serving(tmp_path) as client:
        client.post("/v1/learn", json={"items": some})
        for part in range(10):
            for i in range(1000):
                assert client.get(polled[i % 6]).status_code == 200
                break_off(client, [b"", b"GET /", post[:-9], post][i % 4])
            settled(client)
            gc.collect()
            if part:
                sizes.append((len(os.listdir("/proc/self/fd")), resident_bytes()))
    print([(n, f"{size / 1e6:.1f} MB") for n, size in sizes])
    descriptors = [n for n, _ in sizes]
    assert max(descriptors) - min(descriptors) <= 8  # those that are being closed
    assert sizes[-1][1] - sizes[0][1] < 10_000_000
