"""The SDK far from its engine: behind nginx, through a proxy, with an authority of one's own."""

import asyncio
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import atoll
from atoll import errors
from integration.server import certificates
from integration.server.engines import EngineProcess, eventually

KEY = "network-test"

CONFIG = """
daemon off; pid {state}/nginx.pid; error_log {state}/nginx.log; worker_processes 1; {user}
events {{ }}
http {{
  access_log off; client_max_body_size 0; proxy_buffering on;
  client_body_temp_path {state}/body; proxy_temp_path {state}/proxy;
  fastcgi_temp_path {state}/f; uwsgi_temp_path {state}/u; scgi_temp_path {state}/s;
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass {engine}; {more} }}
  }}
}}
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineProcess]:
    monkeypatch.setenv("ATOLL_SERVER_API_KEY", KEY)
    found = EngineProcess(tmp_path / "state", "--port", "0")
    yield found
    with found.client() as client:
        client.delete("/v2/namespaces/Sandbox/sandboxes/box")
    found.end()


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
        return port


def answers(port: int) -> bool:
    with socket.socket() as end:
        return end.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(params=["", "proxy_ignore_headers X-Accel-Buffering;"], ids=["nginx", "buffering"])
def proxied(request: pytest.FixtureRequest, engine: EngineProcess, tmp_path: Path) -> Iterator[str]:
    """The address of an nginx in front of the engine; the second kind holds all answers back."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(program).exists():
        pytest.skip("nginx is not installed")
    port, state = free_port(), tmp_path / "nginx"
    state.mkdir()
    user = "user root;" if Path("/root").owner() == Path(state).owner() else ""
    config = state / "nginx.conf"
    config.write_text(
        CONFIG.format(
            state=state, port=port, engine=engine.hello["url"], more=request.param, user=user
        )
    )
    process = subprocess.Popen([program, "-c", str(config), "-e", str(state / "nginx.log")])
    try:
        eventually((state / "nginx.pid").exists)
        eventually(lambda: answers(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
async def sandbox(proxied: str) -> AsyncIterator[atoll.Sandbox]:
    async with atoll.connect(proxied, api_key=KEY) as env:
        yield atoll.get_sandbox(env.Sandbox, "box")


async def test_commands_and_files_work_behind_a_proxy_that_buffers(sandbox: atoll.Sandbox) -> None:
    result = await sandbox.exec("cat; echo err >&2; (exit 3)", stdin=b"x" * 300_000)
    assert (result.exit_code, len(result.stdout), result.stderr) == (3, 300_000, "err\n")
    large = bytes(range(256)) * 20_000
    await sandbox.write_file("large", large)
    assert (await sandbox.read_file("large", encoding="bytes")).content == large
    with pytest.raises(errors.FileNotFoundError):
        await sandbox.read_file("none")


async def test_output_comes_as_it_is_written_where_the_proxy_lets_it(
    sandbox: atoll.Sandbox, request: pytest.FixtureRequest
) -> None:
    began = time.monotonic()
    stream = sandbox.exec_stream("echo one; sleep 3; echo two")
    seen = [
        (event.text, time.monotonic() - began)
        async for event in stream
        if isinstance(event, atoll.Stdout)
    ]
    assert "".join(text for text, _ in seen) == "one\ntwo\n"
    if "buffering" not in request.node.name:
        assert seen[-1][1] - seen[0][1] > 1


class Proxy:
    """A proxy for HTTP that passes everything to one engine and counts."""

    def __init__(self, engine: str) -> None:
        self._host, self._port = engine.removeprefix("http://").split(":")
        self.first_lines: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        self.first_lines.append(line.decode().strip())
        method, target, version = line.decode().split()
        path = "/" + target.split("/", 3)[3]
        ahead, back = await asyncio.open_connection(self._host, int(self._port))
        back.write(f"{method} {path} {version}\r\nconnection: close\r\n".encode())
        await asyncio.gather(_pass(reader, back), _pass(ahead, writer))


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
        await target.drain()
    target.close()


async def test_the_proxy_of_the_environment_is_used_for_engines_elsewhere(
    engine: EngineProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy(engine.hello["url"])
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with atoll.connect("http://engine.example:8787", api_key=KEY) as env:
        assert (await env.version()).api == 2
    assert proxy.first_lines == ["GET http://engine.example:8787/v2/version HTTP/1.1"]
    async with atoll.connect(engine.hello["url"], api_key=KEY) as env:
        await env.version()
    assert len(proxy.first_lines) == 1
    server.close()


async def test_a_proxy_that_cannot_be_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "gopher://127.0.0.1:1")
    async with atoll.connect("http://engine.example:8787") as env:
        with pytest.raises(errors.InvalidConfigError, match="proxy"):
            await env.version()


async def test_an_authority_of_ones_own_is_trusted_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificates.made(tmp_path)
    flags = ("--port", "0", "--tls-certificate", str(made.certificate), "--tls-key", str(made.key))
    engine = EngineProcess(tmp_path / "state", *flags)
    code = f"""
        import asyncio, atoll
        async def main():
            async with atoll.connect({engine.hello["url"]!r}) as env:
                try:
                    print((await env.version()).api)
                except atoll.EngineUnreachableError as error:
                    print("refused" if "certificate" in str(error).lower() else error)
        asyncio.run(main())
    """
    try:
        told = []
        for authority in ("", str(made.authority)):
            if authority:
                monkeypatch.setenv("SSL_CERT_FILE", authority)
            done = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", textwrap.dedent(code)],
                capture_output=True,
                text=True,
            )
            told.append(done.stdout.strip())
        assert told == ["refused", "2"]
    finally:
        engine.end()
