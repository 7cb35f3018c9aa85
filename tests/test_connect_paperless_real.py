"""A real paperless-ngx: the recorded exchanges hold there, and a connector learns and suggests.

It runs where ``PAPERLESS_SOURCE`` names a source tree of version 3.0, ``PAPERLESS_PYTHON`` a Python
that has its packages (by default ``PAPERLESS_SOURCE/venv/bin/python``), and ``redis-server`` is
installed.  No worker is started: documents are put into the database of the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tagstream.connect.documents import Documents
from tagstream.connect.model_file import FileTarget
from tagstream.connect.paperless import ACCEPT, Paperless
from tagstream.connect.state import State
from tagstream.connect.teaching import Report, Teacher
from tagstream.connect.web import Web
from tagstream.serve.fetch import Host
from tagstream.tagger import Tagger
from test_connect_paperless import (
    GARDEN,
    INBOX,
    INSURANCE,
    RECORDED,
    TEXTS,
    full_server,
    recorded_server,
    replay,
)

SOURCE = os.environ.get("PAPERLESS_SOURCE", "")
PYTHON = os.environ.get("PAPERLESS_PYTHON", f"{SOURCE}/venv/bin/python")
REDIS = shutil.which("redis-server")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (SOURCE and Path(PYTHON).exists() and REDIS),
        reason="PAPERLESS_SOURCE names no source of paperless-ngx, or redis-server is missing",
    ),
]

FILL = """
import json, sys
from django.contrib.auth.models import User
from rest_framework.authtoken.models import Token
from documents.models import Document, Tag
told = json.load(open({path!r}))
user, _ = User.objects.get_or_create(username="admin", is_superuser=True, is_staff=True)
token, _ = Token.objects.get_or_create(user=user)
made = {{}}
for tag in told["tags"]:
    parent = made.get(tag["parent"])
    made[tag["id"]] = Tag.objects.create(
        name=tag["name"], tn_parent=parent, is_inbox_tag=tag["is_inbox_tag"],
        matching_algorithm=tag["matching_algorithm"], owner=user)
for one in told["documents"]:
    document = Document.objects.create(
        title=one["title"], content=one["content"], mime_type="text/plain",
        checksum="%032d" % one["id"], owner=user)
    document.tags.set([made[id] for id in one["tags"]])
print("TOKEN", token.key)
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class Real:
    """A server in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.redis_port = folder, free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = ""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PAPERLESS_", "PYTHON"))},
            "PAPERLESS_REDIS": f"redis://127.0.0.1:{self.redis_port}",
            "PAPERLESS_SECRET_KEY": "for this test",
            "PAPERLESS_URL": self.url,
        }
        for name in ("DATA_DIR", "MEDIA_ROOT", "CONSUMPTION_DIR"):
            (folder / name).mkdir()
            self._environment[f"PAPERLESS_{name}"] = str(folder / name)

    def manage(self, *args: str) -> bytes:
        done = subprocess.run(
            [PYTHON, "manage.py", *args],
            check=False,
            cwd=f"{SOURCE}/src",
            env=self._environment,
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        return done.stdout

    def fill(self, server: Any) -> None:
        """Give it the tags and documents of a fake one."""
        told = {"tags": [*server.tags.values()], "documents": [*server.documents.values()]}
        path = self.folder / "fill.json"
        path.write_text(json.dumps(told))
        said = self.manage("shell", "-c", FILL.format(path=str(path))).decode()
        self.token = said.split("TOKEN ")[1].split()[0]

    def start(self) -> None:
        self._run([str(REDIS), "--port", str(self.redis_port), "--save", ""], self.folder)
        self.manage("migrate", "--skip-checks")

    def serve(self) -> None:
        command = [PYTHON, "manage.py", "runserver", "--noreload", "--skip-checks"]
        self._run([*command, f"127.0.0.1:{self.port}"], Path(SOURCE) / "src")
        end = time.monotonic() + 300
        while not self._answers():
            assert time.monotonic() < end, "it did not start"
            time.sleep(0.5)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            Host(self.url).answer("GET", "/api/tags/", {})
            return True
        return False

    def _run(self, command: list[str], where: Path) -> None:
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._processes.append(subprocess.Popen(command, cwd=where, env=self._environment, **quiet))

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            process.wait(60)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        return Web(self.url, self.token, "Token", {"Accept": ACCEPT}).ask(method, path, body)

    def tags_of(self, id: int) -> list[int]:
        tags: list[int] = self.ask("GET", f"/api/documents/{id}/")["tags"]
        return tags


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Real]:
    server = Real(tmp_path)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def test_the_real_server_answers_as_it_was_recorded_to(real: Real) -> None:
    real.fill(recorded_server())
    real.serve()
    replay(real.url, real.token, real.tags_of, lambda answer: answer.headers)
    assert len(RECORDED["exchanges"]) > 20


def test_a_connector_learns_and_suggests_on_the_real_server(real: Real) -> None:
    fake = full_server()
    new = fake.upload("Tulips", TEXTS[GARDEN], [INBOX])
    real.fill(fake)
    real.serve()
    model = real.folder / "docs.tgs"

    def round() -> Report:
        report = Report()
        target = FileTarget(model)
        with State(real.folder / "state.db", real.url, target.name) as state:
            web = Web(real.url, real.token, "Token", {"Accept": ACCEPT})
            Documents(Paperless(web), Teacher(target, state, "paperless", report)).go()
        return report

    assert round().counts["learnt"] == 24
    tagger = Tagger.open(model)
    assert {*tagger.tags} == {"Invoice", "Garden", "Insurance"}

    # A person writes the text again: the document waits for a suggestion, and gets one note.
    real.ask("PATCH", f"/api/documents/{new}/", {"content": f"{TEXTS[GARDEN]} and lilies"})
    assert round().counts["noted"] == 1
    (note,) = real.ask("GET", f"/api/documents/{new}/notes/")
    assert note["note"].startswith("tagstream suggests: Garden ")
    assert not +round().counts

    # A person takes it out of the inbox with another tag: learnt at once, and the note goes.
    real.ask("PATCH", f"/api/documents/{new}/", {"tags": [2, INSURANCE]})
    assert round().counts["learnt"] == 1
    assert Tagger.open(model).item(f"paperless/{new}").tags == ["Insurance"]
    assert real.ask("GET", f"/api/documents/{new}/notes/") == []

    # It goes to the trash: forgotten at the next look at all.
    real.ask("DELETE", f"/api/documents/{new}/")
    target = FileTarget(model)
    with State(real.folder / "state.db", real.url, target.name) as state:
        state.set_facts({"sweep": 0})
    assert round().counts["forgotten"] == 1
    assert f"paperless/{new}" not in Tagger.open(model)

    # We add a tag, and the server adds the one above it.
    web = Web(real.url, real.token, "Token", {"Accept": ACCEPT})
    Paperless(web).add_tags(2, [INSURANCE])
    assert {*real.tags_of(2)} == {2, GARDEN, INSURANCE}
    assert Paperless(web).is_set_by_server(2) is False
