"""Previews beside nginx as a reverse proxy to the same server: uvicorn, one worker, inside.

wrk and curl are the visitors of both. nginx has what people give it for this work: connections to
the server that are kept, and bodies passed on as they come.
"""

import asyncio
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from websockets.asyncio.client import connect

import atoll
from bench.table import Report, Row, Samples

PORT = 8080
PACKAGES = ("uvicorn", "h11", "click", "httptools", "uvloop", "websockets")
ROUNDS = 5
"""Turns that the two take, so that what else the machine does hits both."""

APP = """
import uvicorn
block = b"x" * (1 << 18)
async def app(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})
        return
    left = int(scope["path"][1:] or 12)
    head = [(b"content-length", b"%d" % left), (b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    while left > len(block):
        await send({"type": "http.response.body", "body": block, "more_body": True})
        left -= len(block)
    await send({"type": "http.response.body", "body": block[:left]})
uvicorn.run(app, host="0.0.0.0", port=8080, log_level="error", access_log=False)
"""

NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream app {{ server {address}:{port}; keepalive 64; }}
  map $http_upgrade $hop {{ default upgrade; '' ''; }}
  server {{
    listen 127.0.0.1:{listen}; keepalive_requests 1000000000;
    location / {{
      proxy_pass http://app; proxy_http_version 1.1; proxy_buffering off;
      proxy_set_header Connection $hop; proxy_set_header Upgrade $http_upgrade;
      proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Host $host;
    }}
  }}
}}
"""


async def measure(report: Report, seconds: int, size: int) -> None:
    """Measure all rows: *seconds* of small requests in each turn, a body of *size* bytes."""
    missing = [tool for tool in ("nginx", "wrk", "curl") if not shutil.which(tool)]
    if missing:
        report.skip("previews", f"{', '.join(missing)} is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="atoll-bench-preview-") as folder:
        async with engine(Path(folder)) as (env, port):
            sandbox = atoll.get_sandbox(env.Sandbox, "preview", instance_type="standard-4")
            address = await served(sandbox)
            exposed = await sandbox.expose_port(PORT, hostname=f"localhost:{port}")
            with nginx(Path(folder), address) as listen:
                ours = (f"http://127.0.0.1:{port}", urlsplit(exposed.url).netloc)
                floor = (f"http://127.0.0.1:{listen}", f"localhost:{listen}")
                await small(report, ours, floor, seconds)
                await large(report, ours, floor, size)
                await echo(report, ours, floor)


Place = tuple[str, str]


@asynccontextmanager
async def engine(folder: Path) -> AsyncIterator[tuple[atoll.Environment, int]]:
    reader, writer = os.pipe()
    argv = [sys.executable, "-m", "atoll.cli.main", "serve", "--port", "0"]
    argv += ["--state-dir", str(folder / "state"), "--ready-fd", str(writer)]
    with (folder / "engine.log").open("wb") as log:
        process = subprocess.Popen(argv, pass_fds=[writer], stdout=log, stderr=log)
    os.close(writer)
    with os.fdopen(reader) as lines:
        hello = json.loads(await asyncio.to_thread(lines.readline))
    try:
        async with atoll.connect(f"unix://{hello['socket']}") as env:
            yield env, int(hello["url"].rpartition(":")[2])
            await atoll.get_sandbox(env.Sandbox, "preview").destroy()
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)
        if (layers := folder / "state" / "layers").is_mount():  # kept for the next engine
            subprocess.run(["umount", layers], check=True)


async def served(sandbox: atoll.Sandbox) -> str:
    """Start the server inside; return the sandbox's address."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec
        assert spec.origin
        await sandbox.upload(Path(spec.origin).parent, f"/srv/lib/{package}")
    await sandbox.write_file("/srv/app.py", APP)
    process = await sandbox.start_process("PYTHONPATH=/srv/lib python3 /srv/app.py")
    await process.wait_for_port(PORT, timeout=60)
    names = (await sandbox.read_file("/etc/hosts")).content
    found = re.search(
        r"^(\d+\.\d+\.\d+\.\d+)\s", re.sub(r"(?m)^127\..*$", "", str(names)), re.MULTILINE
    )
    assert found, names
    return found[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def nginx(folder: Path, address: str) -> Iterator[int]:
    listen = free_port()
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, address=address, port=PORT, listen=listen))
    process = subprocess.Popen(["nginx", "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if (
                subprocess.run(["curl", "-sfo/dev/null", f"http://127.0.0.1:{listen}/"]).returncode
                == 0
            ):
                break
            time.sleep(0.05)
        else:
            raise RuntimeError((folder / "log").read_text())
        yield listen
    finally:
        process.terminate()
        process.wait()


async def small(report: Report, ours: Place, floor: Place, seconds: int) -> None:
    def rate(place: Place) -> float:
        argv = ["wrk", "-t1", "-c16", f"-d{seconds}s", "-H", f"Host: {place[1]}", place[0]]
        told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        assert "Non-2xx" not in told, told
        return float(told.partition("Requests/sec:")[2].split()[0])

    found = await in_turns(rate, ours, floor)
    report.add(Row("preview: small requests", found[0], "nginx", found[1], 0.5,
                   at_least=True, unit="/s"))  # fmt: skip


async def large(report: Report, ours: Place, floor: Place, size: int) -> None:
    def rate(place: Place) -> float:
        argv = ["curl", "-sfo/dev/null", "-w", "%{size_download} %{speed_download}"]
        told = subprocess.run([*argv, "-H", f"Host: {place[1]}", f"{place[0]}/{size}"],
                              capture_output=True, text=True, check=True)  # fmt: skip
        got, speed = told.stdout.split()
        assert int(got) == size
        return float(speed) / 1e6

    found = await in_turns(rate, ours, floor)
    report.add(Row("preview: a large body", found[0], "nginx", found[1], 0.7,
                   at_least=True, unit="MB/s"))  # fmt: skip


async def in_turns(rate: object, *places: Place) -> list[Samples]:
    assert callable(rate)
    values: list[list[float]] = [[] for _ in places]
    for turn in range(ROUNDS + 1):
        for place, found in zip(places, values, strict=True):
            measured = await asyncio.to_thread(rate, place)
            if turn:  # the first one warms up
                found.append(measured)
    return [Samples(found) for found in values]


async def echo(report: Report, ours: Place, floor: Place) -> None:
    values: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for place, found in zip((ours, floor), values, strict=True):
            found.extend(await _echoes(place, 200))
    report.add(Row("preview: WebSocket echo", Samples(values[0]), "nginx", Samples(values[1]), 2.0))


async def _echoes(place: Place, count: int) -> list[float]:
    host, port = urlsplit(place[0]).hostname, urlsplit(place[0]).port
    found = []
    async with connect(f"ws://{place[1]}/", host=host, port=port, compression=None) as talk:
        for _ in range(count):
            start = time.perf_counter()
            await talk.send("hello")
            await talk.recv()
            found.append(time.perf_counter() - start)
    return found


if __name__ == "__main__":
    alone = Report()
    asyncio.run(measure(alone, 3, 10**9))
    alone.show()
