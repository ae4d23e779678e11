"""Servers that run inside a sandbox, and visitors of their previews by the engine's socket."""

import asyncio
import importlib.util
import itertools
import os
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

import atoll

LIB = "/srv/lib"
_ports = itertools.count(20_000 + os.getpid() % 20_000)

RAW = """
import asyncio, sys
answers = {SCRIPT}
async def serve(reader, writer):
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(answers.get(head.split()[1], answers[b"*"]))
    await writer.drain()
    if b"hold" in head.split()[1]:
        await reader.read()
    writer.close()
async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", PORT):
        await asyncio.Event().wait()
asyncio.run(main())
"""


def free_port() -> int:
    """Return a port that nothing on this host has: the fake runtime's sandboxes share them."""
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable")


async def install(sandbox: atoll.Sandbox, *packages: str) -> None:
    """Copy pure Python packages of this environment into the sandbox."""
    for package in packages:
        spec = importlib.util.find_spec(package)
        assert spec
        assert spec.origin
        await sandbox.upload(Path(spec.origin).parent, f"{LIB}/{package}")


async def python(sandbox: atoll.Sandbox, source: str, port: int) -> atoll.Process:
    """Start a Python program that listens on *port*; return when it does."""
    path = f"/tmp/server-{port}.py"
    await sandbox.write_file(path, source.replace("PORT", str(port)))
    process = await sandbox.start_process(["env", f"PYTHONPATH={LIB}", "python3", "-u", path])
    await ready(sandbox, process, port)
    return process


async def ready(sandbox: atoll.Sandbox, process: atoll.Process, port: int) -> None:
    """Wait until *process* listens on *port*; say why where it does not."""
    try:
        await process.wait_for_port(port, mode="tcp", timeout=30)
    except atoll.SandboxError as error:
        raise AssertionError(await process.get_logs()) from error


async def answering(sandbox: atoll.Sandbox, answers: dict[bytes, bytes], port: int) -> None:
    """Start a server that sends exactly these bytes, by the target that is asked for."""
    await python(sandbox, RAW.replace("{SCRIPT}", repr(answers)), port)


class Visitors:
    """Visitors of the previews of one engine.

    Args:
        url: of the engine's unix socket.
    """

    def __init__(self, url: str) -> None:
        self.path = url.removeprefix("unix://")
        transport = httpx2.AsyncHTTPTransport(uds=self.path)
        self.http = httpx2.AsyncClient(transport=transport, timeout=30)
        self._writers: list[asyncio.StreamWriter] = []

    async def get(self, url: str, **options: object) -> httpx2.Response:
        return await self.http.get(url, **options)  # type: ignore[arg-type]

    async def raw(self, url: str, request: str | bytes) -> "Raw":
        """Send bytes as they are; ``HOST`` in a text is the preview's."""
        reader, writer = await asyncio.open_unix_connection(self.path)
        if isinstance(request, str):
            request = request.replace("HOST", urlsplit(url).netloc).encode()
        self._writers.append(writer)
        writer.write(request)
        return Raw(reader, writer)

    async def ask(self, url: str, request: str | bytes) -> bytes:
        """Send bytes and return what comes until the connection ends."""
        connection = await self.raw(url, request)
        async with asyncio.timeout(30):
            return await connection.reader.read()

    async def close(self) -> None:
        await self.http.aclose()
        for writer in self._writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


class Raw:
    """A visitor's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def until(self, end: bytes) -> bytes:
        async with asyncio.timeout(30):
            return await self.reader.readuntil(end)

    async def ended(self) -> bool:
        """Return whether the other side ends the connection."""
        with suppress(ConnectionResetError):
            async with asyncio.timeout(20):
                while await self.reader.read(1 << 16):
                    pass
        return True
