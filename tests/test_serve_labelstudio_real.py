"""A real Label Studio: connect, annotate, see the suggestion change, miss some, recover.

It runs where ``label-studio`` (1.23) is installed: on the path, or named by TAGSTREAM_LABEL_STUDIO.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

import httpx

from serving import serving
from tagstream.tagger import Tagger
from test_serve_labelstudio import CONFIG

STUDIO = os.environ.get("TAGSTREAM_LABEL_STUDIO") or shutil.which("label-studio")
TOKEN = "0123456789abcdef0123456789abcdef01234567"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(STUDIO is None, reason="label-studio is not installed"),
]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def until(true: Callable[[], Any], seconds: float = 60) -> Any:
    """Ask again until it is true: Label Studio does its work in the background."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.2)
    return found


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("studio")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "LABEL_STUDIO_BASE_DATA_DIR": str(folder),
        "LABEL_STUDIO_HOST": url,
        "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
        "ML_BLOCK_LOCAL_IP": "false",
        "SSRF_PROTECTION_ENABLED": "false",
        "COLLECT_ANALYTICS": "false",
    }
    command = [
        str(STUDIO), "start", "--no-browser", "--port", str(port), "--username", "a@b.example",
        "--password", "secret-pass-1", "--user-token", TOKEN,
    ]  # fmt: skip
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
    headers = {"Authorization": f"Token {TOKEN}"}

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()[-3000:]
        try:
            return client.get("/api/projects").status_code == 200
        except httpx.HTTPError:
            return False

    try:
        with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
            until(answers, 600)
            yield client
    finally:
        process.terminate()
        process.wait(60)


def ask(studio: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    answer = studio.request(method, path, json=body)
    assert answer.status_code < 300, f"{path}: {answer.status_code} {answer.text[:500]}"
    return answer.json() if answer.content else None


def annotate(studio: httpx.Client, task: int, *tags: str) -> Any:
    result = [{"from_name": "tags", "to_name": "text", "type": "choices",
               "value": {"choices": [*tags]}}]  # fmt: skip
    return ask(studio, "POST", f"/api/tasks/{task}/annotations/", {"result": result})


def known(client: Any) -> dict[str, list[str]]:
    return {found["text"]: found["y"] for found in client.get("/v1/items").json()["items"]}


def test_annotate_suggest_miss_recover(tmp_path: Path, studio: httpx.Client) -> None:
    folder = tmp_path / "folder"
    port = free_port()
    project = ask(studio, "POST", "/api/projects", {"title": "posts", "label_config": CONFIG})["id"]
    texts = [
        "sort a list in place",
        "swim in the sea",
        "sort a list in place!",
        "list of beaches",
        "dive",
    ]
    ask(studio, "POST", f"/api/projects/{project}/import", [{"text": text} for text in texts])
    tasks = until(lambda: ask(studio, "GET", f"/api/tasks?project={project}")["tasks"])
    of = {task["data"]["text"]: task["id"] for task in tasks}

    with serving(folder, tagger=Tagger, port=port) as client:
        backend = ask(
            studio, "POST", "/api/ml", {"url": f"{client.url}/ls", "project": project, "title": "t"}
        )
        assert backend["state"] == "CO"
        first = annotate(studio, of["sort a list in place"], "python", "sorting")
        annotate(studio, of["swim in the sea"], "sea")
        until(lambda: len(known(client)) == 2)
        assert known(client)["sort a list in place"] == ["python", "sorting"]

        # The prediction of the next task follows what was annotated, and changes with it.
        def suggested(text: str) -> list[str]:
            ask(studio, "POST", f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}",
                {"selectedItems": {"all": False, "included": [of[text]]},
                 "project": project})  # fmt: skip
            found = ask(studio, "GET", f"/api/tasks/{of[text]}")["predictions"]
            newest = max(found, key=lambda prediction: prediction["id"], default=None)
            regions = newest["result"] if newest else []
            return regions[0]["value"]["choices"] if regions else []

        assert suggested("sort a list in place!") != ["sorting"]
        ask(studio, "PATCH", f"/api/annotations/{first['id']}",
            {"result": [{"from_name": "tags", "to_name": "text", "type": "choices",
                         "value": {"choices": ["sorting"]}}]})  # fmt: skip
        until(lambda: known(client)["sort a list in place"] == ["sorting"])
        until(lambda: suggested("sort a list in place!") == ["sorting"])

    # While the backend is away, annotations are accepted and never sent again.
    missed = annotate(studio, of["dive"], "sea")
    ask(studio, "DELETE", f"/api/annotations/{first['id']}")
    assert missed["id"]

    with serving(folder, tagger=Tagger, port=port) as client:
        assert set(known(client)) == {"sort a list in place", "swim in the sea"}
        ask(studio, "POST", f"/api/ml/{backend['id']}/train", {})
        until(lambda: set(known(client)) == {"swim in the sea", "dive"})
