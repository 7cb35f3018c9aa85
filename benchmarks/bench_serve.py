"""The service under load: ``python -m benchmarks.bench_serve [--quick] [--items N …]``.

It starts the service on a folder with so many texts, and measures POST /v1/suggest of one text from
several connections: alone, while 100 items a second are learnt, and during a refit; beside a bare
FastAPI endpoint that only takes the same body and answers it.  The client is wrk where it is
installed, else threads of this program.  It prints one table and writes bench-report/serve.json.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONNECTIONS = 4
LEARNT_PER_SECOND = 100
BARE = """
import uvicorn
from fastapi import Body, FastAPI
app = FastAPI()
@app.post("/v1/suggest")
async def suggest(body: dict = Body()) -> dict:
    return {"items": [{"tags": [], "scores": {}} for _ in body["items"]]}
uvicorn.run(app, port=%d, log_level="critical")
"""
# wrk tells quantiles only up to p99; the rest by its script.
SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
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


def post(port: int, path: str, body: Any, timeout: float = 600) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request(
            "POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        told: dict[str, Any] = json.loads(answer.read())
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}: {told}")
        return told


@contextlib.contextmanager
def process(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **os.environ}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as started:
        try:
            yield started
        finally:
            started.send_signal(signal.SIGTERM)
            started.wait(120)


def by_wrk(port: int, bodies: list[str], seconds: float) -> dict[str, float]:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT % ", ".join(f"[==[{body}]==]" for body in bodies))
        script.flush()
        told = subprocess.run(
            ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds:g}s", "-s", script.name,
             f"http://127.0.0.1:{port}/v1/suggest"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", told)
    assert found is not None, told
    n, took, errors, p50, p99, p999 = map(int, found.groups())
    return {
        "requests/s": n / (took / 1e6), "p50, ms": p50 / 1e3, "p99, ms": p99 / 1e3,
        "p99.9, ms": p999 / 1e3, "errors": errors,
    }  # fmt: skip


def by_threads(port: int, bodies: list[str], seconds: float) -> dict[str, float]:
    times: list[float] = []
    errors = 0
    end = time.perf_counter() + seconds

    def ask(first: int) -> None:
        nonlocal errors
        connection = http.client.HTTPConnection("127.0.0.1", port)
        i = first
        while time.perf_counter() < end:
            start = time.perf_counter()
            body = bodies[i % len(bodies)].encode()
            connection.request("POST", "/v1/suggest", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            times.append(time.perf_counter() - start)
            errors += answer.status != 200
            i += 1
        connection.close()

    threads = [threading.Thread(target=ask, args=(i * 97,)) for i in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times.sort()
    at = [times[min(len(times) - 1, int(len(times) * q))] * 1e3 for q in (0.5, 0.99, 0.999)]
    return {
        "requests/s": len(times) / seconds, "p50, ms": at[0], "p99, ms": at[1],
        "p99.9, ms": at[2], "errors": errors,
    }  # fmt: skip


@contextlib.contextmanager
def learning(port: int, items: list[dict[str, Any]]) -> Iterator[list[float]]:
    """Learn items one by one at a steady rate; yield the times of the answers."""
    took: list[float] = []
    stop = threading.Event()

    def work() -> None:
        begun = time.perf_counter()
        for i, item in enumerate(items):
            late = begun + i / LEARNT_PER_SECOND - time.perf_counter()
            if stop.wait(max(0.0, late)):
                return
            start = time.perf_counter()
            post(port, "/v1/learn", {"items": [item]})
            took.append(time.perf_counter() - start)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield took
    finally:
        stop.set()
        thread.join()


def fill(folder: Path, items: list[dict[str, Any]]) -> None:
    """Put items into a folder's log and learn them, so that the service starts with them."""
    from tagstream.serve.writer import Change, Service

    with Service(folder, snapshot_events=1 << 40) as service:
        for start in range(0, len(items), 1000):
            part = items[start : start + 1000]
            service.submit(Change("learn", part, [item["id"] for item in part])).result()


def bare(measure: Callable[..., dict[str, float]], bodies: list[str], seconds: float) -> Any:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with process([sys.executable, "-c", BARE % port]):
        for _ in range(200):
            with contextlib.suppress(OSError):
                post(port, "/v1/suggest", {"items": []})
                break
            time.sleep(0.05)
        return {"what": "bare FastAPI", **measure(port, bodies, seconds)}


def during_refit(
    measure: Callable[..., dict[str, float]], port: int, bodies: list[str], more: Any
) -> dict[str, float]:
    """Measure while a learn call of many items, refits among them, is under way."""
    done = threading.Event()

    def work() -> None:
        try:
            for start in range(0, len(more), 200):
                post(port, "/v1/learn", {"items": more[start : start + 200]})
        finally:
            done.set()

    thread = threading.Thread(target=work)
    thread.start()
    parts = []
    while not done.is_set() or not parts:
        parts.append(measure(port, bodies, 2))
    thread.join()
    n = len(parts)
    mean = {name: sum(part[name] for part in parts) / n for name in parts[0]}
    return {**mean, "p99.9, ms": max(part["p99.9, ms"] for part in parts)}


def run(sizes: list[int], seconds: float) -> list[dict[str, Any]]:
    """Measure; return one row for each case."""
    measure = by_wrk if shutil.which("wrk") else by_threads
    sample = records(400)
    bodies = [json.dumps({"items": [{"text": item["text"]}]}) for item in sample]
    rows = [bare(measure, bodies, seconds)]
    for size in sizes:
        more = max(1000, size // 4) + int(3 * seconds * LEARNT_PER_SECOND)
        items = records(size + more)
        with tempfile.TemporaryDirectory() as folder:
            fill(Path(folder), items[:size])
            command = [sys.executable, "-m", "tagstream", "serve", folder, "--port", "0"]
            with process(command) as started:
                assert started.stdout is not None
                port = int(started.stdout.readline().strip().rstrip("/").rsplit(":", 1)[1])
                measure(port, bodies, 1)  # the first answers warm caches
                alone = measure(port, bodies, seconds)
                rows.append({"what": "suggest alone", "items": size, **alone})
                left = items[size:]
                with learning(port, left) as took:
                    beside = measure(port, bodies, seconds)
                took.sort()
                rows.append(
                    {
                        "what": f"suggest beside learning {LEARNT_PER_SECOND}/s", "items": size,
                        **beside, "learnt/s": len(took) / seconds,
                        "learn p50, ms": took[len(took) // 2] * 1e3 if took else float("nan"),
                    }
                )  # fmt: skip
                refit = during_refit(measure, port, bodies, left[len(took) :])
                rows.append({"what": "suggest beside bulk learning and refits", "items": size,
                             **refit})  # fmt: skip
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table of Markdown."""
    names = ["what", "items", "requests/s", "p50, ms", "p99, ms", "p99.9, ms", "learnt/s",
             "learn p50, ms", "errors"]  # fmt: skip
    lines = ["| " + " | ".join(names) + " |", "| --- " * len(names) + "|"]
    for row in rows:
        cells = [row.get(name, "") for name in names]
        lines.append(
            "| "
            + " | ".join(f"{c:,.1f}" if isinstance(c, float) else f"{c:,}" if isinstance(c, int)
                         else c for c in cells)
            + " |"
        )  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1,000 items, 3 seconds each")
    parser.add_argument("--items", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    sizes, seconds = ([1000], 3.0) if options.quick else (options.items, options.seconds)
    rows = run(sizes, seconds)
    print(table(rows))
    out = ROOT / "bench-report"
    out.mkdir(exist_ok=True)
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "load": os.getloadavg()[0],
        "cores": os.cpu_count(),
        "client": "wrk" if shutil.which("wrk") else "threads",
    }
    text = json.dumps({"about": about, "rows": rows}, indent=1)
    (out / "serve.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
