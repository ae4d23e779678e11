"""The link's two transports: the same operations by a unix socket and by TCP with a token."""

import http.server
import json
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from atoll.engine.link.link import Endpoint, Link, LinkError
from atoll.errors import NotSupportedByRuntimeError, UnauthorizedError
from atoll.runtime.base import TOKEN_FILE, ContainerSpec
from atoll.runtime.fake import FakeRuntime
from atoll.wire import frames
from atoll.wire.frames import Kind
from integration.server.engines import EngineProcess, eventually

BOX = "/v2/namespaces/N/sandboxes/box"


class Outcome(NamedTuple):
    stdout: bytes
    code: int


@pytest.fixture(params=[False, True], ids=["unix", "tcp"])
async def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Endpoint]:
    """The agent of a fake sandbox."""
    runtime = FakeRuntime(tmp_path / "run", tcp=request.param)
    run_dir = tmp_path / "run" / "r1" / "container"
    run_dir.mkdir(parents=True)
    (tmp_path / "root").mkdir()
    spec = ContainerSpec(
        host_ref="r1", generation=3, identity="i", hostname="h", rootfs=tmp_path / "root",
        run_dir=run_dir, netns=None, id_base=0, id_count=1, memory=1, cpu=1, pids=1,
    )  # fmt: skip
    await runtime.start(spec)
    yield Endpoint(runtime, run_dir, "r1", 3)
    await runtime.remove("r1")


async def outcome(link: Link) -> Outcome:
    out, last = b"", b"{}"
    async for frame in link.frames():
        if frame.kind == Kind.STDOUT:
            out += frames.decode_output(frame.payload).data
        last = frame.payload
    return Outcome(out, int(json.loads(last)["exit_code"]))


def header(command: str, **fields: Any) -> Mapping[str, Any]:
    return {"op": "exec", "id": os.urandom(4).hex(), "command": command, **fields}


async def test_a_command_runs(endpoint: Endpoint) -> None:
    async with await endpoint.open(header("echo out; exit 3")) as link:
        assert await outcome(link) == (b"out\n", 3)


async def test_output_comes_when_it_is_written(endpoint: Endpoint) -> None:
    async with await endpoint.open(header("echo first; read x; echo $x", stdin=True)) as link:
        async for frame in link.frames():
            if frame.kind == Kind.STDOUT:
                break
        await link.send(Kind.STDIN, b"second\n")
        assert await outcome(link) == (b"second\n", 0)


async def test_megabytes_go_in_and_out(endpoint: Endpoint) -> None:
    data = os.urandom(3_000_000)
    async with await endpoint.open(header("cat > f; cat f", stdin=True)) as link:
        await link.send_chunks(Kind.STDIN, data)
        await link.send(Kind.STDIN_CLOSE)
        assert await outcome(link) == (data, 0)


async def test_a_broken_connection_is_attached_to_again(endpoint: Endpoint) -> None:
    async with await endpoint.open(header("echo one; sleep 0.3; echo two", id="kept")) as link:
        async for frame in link.frames():
            if frame.kind == Kind.STDOUT:
                break
    again = {"op": "attach", "id": "kept", "from_offset": 4}
    async with await endpoint.open(again) as link:
        assert await outcome(link) == (b"two\n", 0)


async def test_files_are_written_and_read(endpoint: Endpoint) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100_000

    async with await endpoint.open({"op": "fs.write_file", "path": "file"}) as link:
        await link.send_all(body(), Kind.DATA, Kind.END)
        await link.reply()
    async with await endpoint.open({"op": "fs.read_file", "path": "file"}) as link:
        assert json.loads(await link.reply())["size"] == 2_000_000
        assert b"".join([chunk async for chunk in link.body()]) == b"x" * 2_000_000


async def test_a_log_travels_or_is_a_typed_error(endpoint: Endpoint, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        wanted = header("echo out", detach=True, log_limit=4 << 20)
        if endpoint.runtime.level == "fake":
            async with await endpoint.open(wanted, [log.fileno()]) as link:
                assert (await outcome(link)).code == 0
            assert (tmp_path / "log").stat().st_size
        else:
            with pytest.raises(NotSupportedByRuntimeError):
                await endpoint.open(wanted, [log.fileno()])


async def test_by_tcp_nothing_goes_without_the_token_of_this_start(endpoint: Endpoint) -> None:
    if endpoint.runtime.level == "fake":
        assert not (endpoint.run_dir / TOKEN_FILE).exists()
        return
    token = endpoint.run_dir / TOKEN_FILE
    assert token.stat().st_mode & 0o777 == 0o600
    token.write_text("of the last start")
    with pytest.raises(UnauthorizedError):
        await endpoint.call({"op": "hello"})
    token.unlink()
    with pytest.raises(LinkError, match="token"):
        await endpoint.call({"op": "hello"})


@pytest.fixture(params=["fake", "fake-tcp"])
def level(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield str(request.param)
    last = EngineProcess(tmp_path / "state", "--local", level=request.param)
    with socket.socket(socket.AF_UNIX) as lease:
        lease.connect(str(tmp_path / "state" / "lease.sock"))
        lease.recv(1 << 12)
        with last.client() as client:
            client.post(BOX + "/stop")
    assert last.wait() == 0


def test_a_command_outlives_an_engine_that_is_killed(level: str, tmp_path: Path) -> None:
    first = EngineProcess(tmp_path / "state", level=level)
    command = ["sh", "-c", "echo $$ > started; sleep 1; echo done; exit 5"]
    with first.client() as client:
        started = client.post(BOX + "/exec", json={"command": ["pwd"]}).json()["stdout"].strip()
        mark = Path(started) / "started"
        with client.stream(
            "POST",
            BOX + "/exec",
            json={"command": command},
            headers={"idempotency-key": "k1", "accept": "application/x-ndjson"},
        ):
            eventually(mark.exists)
            first.end(signal.SIGKILL)
    second = EngineProcess(tmp_path / "state", level=level)
    with second.client() as client:
        body = client.get(BOX + "/operations/k1").json()
    assert (body["stdout"], body["exitCode"]) == ("done\n", 5)
    second.end(signal.SIGKILL)


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "1000000")
        self.end_headers()
        self.wfile.write(b"x" * 1_000_000)

    def log_message(self, *_: object) -> None:
        pass


def test_a_preview_reaches_its_server(level: str, tmp_path: Path) -> None:
    engine = EngineProcess(tmp_path / "state", "--port", "0", level=level)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            with engine.client() as client:
                port = server.server_address[1]
                waited = client.post(BOX + "/ports/wait", json={"ports": [port], "wait": 10_000})
                told = client.post(BOX + "/ports", json={"port": port, "hostname": "localhost"})
            assert waited.status_code == told.status_code == 200, waited.text + told.text
            host = httpx2.URL(told.json()["url"]).host
            page = httpx2.get(engine.hello["url"], headers={"host": host})
            assert (page.status_code, len(page.content)) == (200, 1_000_000)
        finally:
            server.shutdown()
            engine.end(signal.SIGKILL)
