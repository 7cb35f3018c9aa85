"""The service under load, with wrk; beside a bare FastAPI endpoint and Annif's suggest.

It starts ``tagstream serve`` on a folder with so many texts and asks POST /v1/suggest for one text
at a time: alone, while 100 items a second are learnt, and while P is refitted over and over (each
removal of a tag does that).  The folder is made once, in .cache/bench-serve, and copied for each
run.  Annif is used if it is installed, or if the environment variable ANNIF names its program: it
pins other versions of common packages, so it likes an environment of its own.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.timing import Section, claim, tell

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "bench-serve"
SIZES = (10_000, 100_000)
CONNECTIONS = (1, 4)
LEARNT_PER_SECOND = 100
LEARNERS = 4  # clients that share it: one waits for its answer before it sends the next
SEED_TAG = "a tag that comes and goes"
BARE = """
import sys
import uvicorn
from fastapi import Body, FastAPI
app = FastAPI()
@app.post("/v1/suggest")
async def suggest(body: dict = Body()) -> dict:
    return {"items": [{"tags": [], "scores": {}} for _ in body["items"]]}
uvicorn.run(app, port=int(sys.argv[1]), log_level="critical")
"""
SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "%s"
local bodies = {%s}
local i = 0
request = function()
  i = i %% #bodies + 1
  return wrk.format(nil, nil, nil, bodies[i])
end
done = function(summary, latency, requests)
  io.write(string.format("\\nRESULT %%d %%d %%d %%d %%d %%d\\n", summary.requests, summary.duration,
    summary.errors.status + summary.errors.timeout + summary.errors.read,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
"""
ANNIF = """
[tags]
name=tags
language=en
backend=tfidf
analyzer=snowball(english)
vocab=tags
"""
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


# ---------------------------------------------------------------------- texts
def texts() -> list[dict[str, Any]]:
    """Return real short texts with tags where they are at hand, made ones otherwise."""
    path = Path(os.environ.get("TAGSTREAM_TEXT", "")) / "goemotions-dev.jsonl"
    if path.is_file():
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rng = random.Random(0)
    tags = [f"tag{j}" for j in range(28)]
    words = {tag: [f"{tag}word{i}" for i in range(40)] for tag in tags}
    found = []
    for _ in range(5000):
        y = rng.sample(tags, rng.choice([1, 1, 2]))
        text = " ".join(rng.choice(words[tag]) for tag in y for _ in range(8))
        found.append({"text": text, "y": y})
    return found


def records(n: int) -> list[dict[str, Any]]:
    """Return so many items; texts that come again get a word of their own."""
    known = texts()
    rng = random.Random(1)
    made = []
    for i in range(n):
        source = known[i % len(known)]
        text = source["text"] if i < len(known) else f"{source['text']} v{rng.randrange(n)}"
        made.append({"id": f"i{i}", "text": text, "y": source["y"]})
    return made


def filled(items: list[dict[str, Any]]) -> Path:
    """Return a folder of the service that has learnt these items; it is made once."""
    from tagstream import __version__
    from tagstream.serve.writer import Change, Service

    real = "real" if os.environ.get("TAGSTREAM_TEXT") else "made"
    folder = CACHE / f"{__version__}-{real}-{len(items)}"
    if not folder.exists():
        new = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        with Service(new, snapshot_events=1 << 40) as service:
            for start in range(0, len(items), 1000):
                part = items[start : start + 1000]
                service.submit(Change("learn", part, [item["id"] for item in part])).result()
        new.rename(folder)
    return folder


# ---------------------------------------------------------------------- programs
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextlib.contextmanager
def started(command: list[str], **settings: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program meanwhile; what it says on standard error is told if this fails."""
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stderr=errors, text=True, **{"stdout": subprocess.DEVNULL, **settings}
        ) as program,
    ):
        try:
            yield program
        except BaseException:
            errors.seek(0)
            sys.stderr.write(errors.read()[-2000:])
            raise
        finally:
            program.terminate()
            try:
                program.wait(60)
            except subprocess.TimeoutExpired:
                program.kill()


_own = threading.local()  # the connection of each thread, kept open as clients do


def post(port: int, path: str, body: Any, kind: str = JSON) -> Any:
    connection = getattr(_own, "connection", None)
    if connection is None or connection.port != port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        _own.connection = connection
    content = body if isinstance(body, str) else json.dumps(body)
    try:
        connection.request("POST", path, content.encode(), {"Content-Type": kind})
        answer = connection.getresponse()
        told = answer.read()
    except OSError:
        _own.connection = None
        raise
    if answer.status != 200:
        raise RuntimeError(f"{path} answered {answer.status}: {told[:300]!r}")
    return json.loads(told)


def answering(port: int, path: str, body: Any, kind: str = JSON) -> None:
    """Wait until a server that was just started answers."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            post(port, path, body, kind)
            return
        time.sleep(0.1)
    raise RuntimeError(f"nothing answers at {path}")


# ---------------------------------------------------------------------- measuring
def wrk(
    port: int, path: str, bodies: list[str], seconds: float, connections: int, kind: str = JSON
) -> dict[str, float]:
    """Return requests per second and quantiles of their times."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT % (kind, ", ".join(f"[==[{body}]==]" for body in bodies)))
        script.flush()
        told = subprocess.run(
            ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "-s", script.name,
             f"http://127.0.0.1:{port}{path}"],
            capture_output=True, text=True, check=True, timeout=seconds + 60,
        ).stdout  # fmt: skip
    tell(".")
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", told)
    if found is None or int(found[3]) or not int(found[1]):
        raise RuntimeError(f"some requests failed: {told[-500:]}")
    n, took, _, p50, p99, p999 = map(int, found.groups())
    return {
        "requests/s": n / (took / 1e6), "p50, ms": p50 / 1e3, "p99, ms": p99 / 1e3,
        "p99.9, ms": p999 / 1e3,
    }  # fmt: skip


@contextlib.contextmanager
def meanwhile(work: Callable[[int], None], per_second: float = 0.0) -> Iterator[list[float]]:
    """Call ``work`` again and again in a thread, at a steady rate if one is given.

    Yield the seconds of each call.
    """
    took: list[float] = []
    stop = threading.Event()

    def repeat() -> None:
        begun = time.perf_counter()
        while not stop.is_set():
            start = time.perf_counter()
            work(len(took))
            took.append(time.perf_counter() - start)
            if per_second:
                stop.wait(max(0.0, begun + len(took) / per_second - time.perf_counter()))

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield took
    finally:
        stop.set()
        thread.join()


def of_bare(bodies: list[str], seconds: float) -> list[dict[str, Any]]:
    port = free_port()
    with started([sys.executable, "-c", BARE, str(port)]):
        answering(port, "/v1/suggest", {"items": []})
        return [
            _row("a bare FastAPI endpoint", None, c, wrk(port, "/v1/suggest", bodies, seconds, c))
            for c in CONNECTIONS
        ]


def of_annif(program: str, items: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """Train Annif's tfidf project on the same texts and ask it the same."""
    from urllib.parse import urlencode

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "projects.cfg").write_text(ANNIF)
        tags = sorted({tag for item in items for tag in item["y"]})
        uri = {tag: f"<http://example.org/{i}>" for i, tag in enumerate(tags)}
        (folder / "tags.tsv").write_text("".join(f"{uri[tag]}\t{tag}\n" for tag in tags))
        lines = [
            f"{' '.join(item['text'].split())}\t{' '.join(uri[tag] for tag in item['y'])}\n"
            for item in items
        ]
        (folder / "train.tsv").write_text("".join(lines))
        # Annif cuts texts into sentences by a model that would be downloaded: an untrained one
        # does for short texts.
        punkt = folder / "nltk" / "tokenizers" / "punkt_tab" / "english"
        punkt.mkdir(parents=True)
        for file in ("collocations.tab", "sent_starters.txt", "abbrev_types.txt",
                     "ortho_context.tab"):  # fmt: skip
            (punkt / file).touch()
        settings: Any = {
            "cwd": folder, "env": {**os.environ, "NLTK_DATA": str(folder / "nltk")}
        }  # fmt: skip
        for command in (["load-vocab", "-L", "en", "tags", "tags.tsv"],
                        ["train", "tags", "train.tsv"]):  # fmt: skip
            subprocess.run([program, *command], check=True, capture_output=True, **settings)
        port = free_port()
        path = "/v1/projects/tags/suggest"
        bodies = [urlencode({"text": item["text"], "limit": 10}) for item in items[:400]]
        with started([program, "run", "--port", str(port), "-v", "ERROR"], **settings):
            answering(port, path, bodies[0], FORM)
            return [
                _row("Annif, tfidf", len(items), c, wrk(port, path, bodies, seconds, c, FORM))
                for c in CONNECTIONS
            ]


def of_service(size: int, bodies: list[str], seconds: float) -> list[dict[str, Any]]:
    items = records(2 * size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "folder"
        shutil.copytree(filled(items[:size]), folder)
        command = [sys.executable, "-m", "tagstream", "serve", str(folder), "--port", "0"]
        with started(command, stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            line = program.stdout.readline()
            if not line:
                raise RuntimeError("the service did not start")
            port = int(line.strip().rstrip("/").rsplit(":", 1)[1])

            def asked(connections: int) -> dict[str, float]:
                return wrk(port, "/v1/suggest", bodies, seconds, connections)

            left = iter(items[size:])

            def learn(_: int) -> None:
                post(port, "/v1/learn", {"items": [next(left)]})

            def refit(i: int) -> None:
                item = {"id": "refit", "text": f"refit {i}", "y": [SEED_TAG]}
                post(port, "/v1/learn", {"items": [item]})
                post(port, "/v1/tags/remove", {"tag": SEED_TAG})

            wrk(port, "/v1/suggest", bodies, 1, 1)  # the first answers warm caches
            rows = []
            for c in CONNECTIONS:
                rows.append(_row("suggest", size, c, asked(c)))
                with contextlib.ExitStack() as learners:
                    each = [
                        learners.enter_context(meanwhile(learn, LEARNT_PER_SECOND / LEARNERS))
                        for _ in range(LEARNERS)
                    ]
                    found = asked(c)
                    beside = f"{sum(map(len, each)) / seconds:.0f} learnt/s"
                rows.append(_row("suggest beside learning", size, c, found, beside))
                with meanwhile(refit) as took:
                    found = asked(c)
                    beside = f"{len(took) / seconds:.1f} refits/s"
                rows.append(_row("suggest beside refits", size, c, found, beside))
            return rows


def _row(
    what: str, stored: int | None, connections: int, found: dict[str, float], beside: str = ""
) -> dict[str, Any]:
    return {"what": what, "stored": stored, "connections": connections, **found, "beside": beside}


# ---------------------------------------------------------------------- the section
def run(quick: bool) -> Section:
    sizes, seconds = ((1000,), 2.0) if quick else (SIZES, 20.0)
    section: Section = {
        "title": "The service",
        "equal": "The same short texts, one per request, from wrk on the same machine; one process "
        "each. A connection sends its next request when it has its answer.",
        "differs": "The bare endpoint only takes the request and answers nothing. Annif has learnt "
        "the same texts in advance and stores none. Refits follow each other without a pause.",
        "rows": [],
        "claims": [],
        "skipped": [],
    }
    if shutil.which("wrk") is None:
        return {**section, "skipped": ["wrk"]}
    sample = records(400)
    bodies = [json.dumps({"items": [{"text": item["text"]}]}) for item in sample]
    rows = of_bare(bodies, seconds)
    bare = rows[0]["p99, ms"]
    annif = os.environ.get("ANNIF") or shutil.which("annif")
    if annif:
        rows += of_annif(annif, records(sizes[0]), seconds)
    claims = []
    for size in sizes:
        found = of_service(size, bodies, seconds)
        rows += found
        alone, learning, refits = (row["p99, ms"] for row in found[:3])
        where = f"{size:,} stored, 1 connection"
        limit = {"limit": "p99 of a bare FastAPI endpoint", "limit_value": bare, "limit_unit": "ms"}
        claims += [
            claim(f"p99 of suggest beside {LEARNT_PER_SECOND} learnt/s, {where}", learning, 10,
                  unit="ms", distance=learning / bare, **limit),
            claim(f"p99 of suggest beside refits over that alone, {where}", refits / alone, 2,
                  limit="p99 alone", limit_value=alone, limit_unit="ms"),
        ]  # fmt: skip
    return {**section, "rows": rows, "claims": claims, "skipped": [] if annif else ["Annif"]}
