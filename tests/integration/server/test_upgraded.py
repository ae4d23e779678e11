"""WebSockets of the bridge on an engine with scripted agents, spoken byte by byte."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from atoll.engine.engine import Engine
from atoll.server.main import Served
from atoll.wire import frames
from atoll.wire.frames import Kind
from integration.engine.scripted import Peer, World
from integration.server.conftest import engine, opener, world

__all__ = ["engine", "opener", "world"]

UPGRADE = (
    b"GET /v1/sandbox/box/pty HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.fixture
async def port(engine: Engine) -> AsyncIterator[int]:
    """The TCP port of an engine whose callers must read within half a second."""
    server = msgspec.structs.replace(engine.settings.server, stall_timeout=0.5)
    engine.settings = msgspec.structs.replace(engine.settings, server=server)
    async with AsyncExitStack() as stack:
        served = Served(engine, stack)
        hello = await served.listen(local=False)
        yield int(hello["url"].rpartition(":")[2])
        await served.stop()


async def connected(port: int, extra: bytes = b"") -> tuple[asyncio.StreamReader, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 12)
    writer.write(UPGRADE + extra + b"\r\n")
    return reader, writer


async def test_a_caller_that_never_reads_is_cut_and_its_terminal_ends(
    port: int, world: World
) -> None:
    ended = asyncio.Event()

    async def shout(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.STARTED, {"pid": 7})
        try:
            for seq in range(1 << 20):
                await peer.raw(frames.encode_output(Kind.STDOUT, seq, seq << 16, bytes(1 << 16)))
        except OSError:
            ended.set()

    world.runtime.scripts["exec"] = shout
    _, writer = await connected(port)
    async with asyncio.timeout(20):
        await ended.wait()
    writer.close()


async def test_a_head_that_is_refused_is_not_upgraded(port: int, world: World) -> None:
    reader, writer = await connected(port, b"Host: other\r\n")
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "VALIDATION_FAILED"
    assert world.runtime.starts == 0
    writer.close()


async def test_a_page_from_elsewhere_opens_no_terminal(port: int, world: World) -> None:
    reader, writer = await connected(port, b"Origin: https://evil.example\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 403 ")
    assert world.runtime.starts == 0
    writer.close()


async def test_what_else_is_asked_for_by_websocket_is_no_route(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(UPGRADE.replace(b"/v1/sandbox/box/pty", b"/v2/nope") + b"\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 404 ")
    writer.close()
