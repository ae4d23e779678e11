"""Case W07: WebSockets to a service inside, by a preview and by `ws_connect`."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator

import pytest
import websockets
from websockets.asyncio.client import unix_connect

import atoll
import atoll.sync
from atoll.errors import ServiceNotRespondingError
from conformance import servers
from conformance.servers import Visitors, free_port

ECHO = """
import asyncio, websockets
async def echo(ws):
    await ws.send(f"{ws.request.headers['Host']} {ws.request.path}")
    async for message in ws:
        if message == "close":
            await ws.close(4001, "as you wish")
            return
        await ws.send(message)
async def main():
    async with websockets.serve(echo, "127.0.0.1", PORT, subprotocols=["two", "one"],
                                select_subprotocol=lambda ws, offered: offered[-1] if offered else None,
                                max_size=None):
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
async def port(sandbox: atoll.Sandbox) -> int:
    """Port of a server that sends back what it gets."""
    found = free_port()
    await servers.install(sandbox, "websockets")
    await servers.python(sandbox, ECHO, found)
    return found


async def test_w07_every_kind_of_message_comes_back_equal(
    sandbox: atoll.Sandbox, port: int
) -> None:
    async with await sandbox.ws_connect("/a?b", port, subprotocols=["one"]) as socket:
        assert socket.subprotocol == "one"
        assert await socket.receive() == f"localhost:{port} /a?b"
        large = bytes(range(256)) * 20_000
        for message in ("text ü", b"\x00\xff", "", large):
            await socket.send(message)
            assert await socket.receive() == message
        for number in range(1_000):
            await socket.send(str(number))
        assert [await socket.receive() for _ in range(1_000)] == [str(n) for n in range(1_000)]
        await socket.ping(b"p")
        await socket.send("close")
        assert await socket.receive() is None
        assert (socket.close_code, socket.close_reason) == (4001, "as you wish")


async def test_w07_by_the_blocking_sdk(url: str, sandbox: atoll.Sandbox, port: int) -> None:
    def run() -> list[object]:
        with atoll.sync.connect(url) as env:
            box = atoll.sync.get_sandbox(env.Sandbox, sandbox.id)
            with box.ws_connect(f"ws://localhost:{port}/x") as socket:
                socket.send(b"binary")
                return [socket.receive(), socket.receive()]

    assert await asyncio.to_thread(run) == [f"localhost:{port} /x", b"binary"]


async def test_w07_by_a_preview_with_the_same_host_as_http(
    url: str, sandbox: atoll.Sandbox, port: int
) -> None:
    exposed = await sandbox.expose_port(port, hostname="localhost")
    address = exposed.url.replace("http", "ws") + "/live?x"
    path = url.removeprefix("unix://")
    async with unix_connect(path, address, subprotocols=["one", "two"], max_size=None) as socket:
        assert socket.subprotocol == "two"
        assert await socket.recv() == f"localhost:{port} /live?x"
        large = b"\x01" * 5_000_000
        await socket.send(large)
        assert await socket.recv() == large
        pong = await socket.ping()
        await pong
        await socket.send("close")
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "as you wish")


async def test_w07_messages_may_come_with_the_handshake(
    url: str, sandbox: atoll.Sandbox, port: int
) -> None:
    exposed = await sandbox.expose_port(port, hostname="localhost")
    visitors = Visitors(url)
    key = base64.b64encode(b"0" * 16).decode()
    frame = b"\x81\x82\x00\x00\x00\x00hi"
    head = (
        "GET / HTTP/1.1\r\nHost: HOST\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    )
    connection = await visitors.raw(exposed.url, head)
    connection.writer.write(frame)
    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    answer = await connection.until(b"\r\n\r\n")
    assert b"HTTP/1.1 101" in answer
    assert base64.b64encode(digest) in answer
    await connection.until(b"\x81\x02hi")
    connection.writer.close()
    await visitors.close()


async def test_w02_revoking_cuts_a_websocket(url: str, sandbox: atoll.Sandbox, port: int) -> None:
    exposed = await sandbox.expose_port(port, hostname="localhost")
    address = exposed.url.replace("http", "ws")
    async with unix_connect(url.removeprefix("unix://"), address) as socket:
        await socket.recv()
        await sandbox.unexpose_port(port)
        with pytest.raises(websockets.ConnectionClosed):
            await socket.recv()


async def test_a_service_that_wants_none_is_a_typed_error(
    sandbox: atoll.Sandbox, port: int
) -> None:
    plain = free_port()
    await servers.answering(
        sandbox, {b"*": b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"}, plain
    )
    with pytest.raises(ServiceNotRespondingError) as refused:
        await sandbox.ws_connect("/", plain)
    assert refused.value.context["status"] == 403
    with pytest.raises(ServiceNotRespondingError):
        await sandbox.ws_connect("/", free_port(), wait=0)


async def test_an_idle_websocket_does_not_keep_a_sandbox_awake(url: str) -> None:
    async with atoll.connect(url) as env:
        box = atoll.get_sandbox(env.Sandbox, "idle-socket", sleep_after=2)
        try:
            await servers.install(box, "websockets")
            port = free_port()
            await servers.python(box, ECHO, port)
            async with await box.ws_connect("/", port) as socket:
                async for _ in _with_traffic(socket, seconds=4):
                    assert (await box.info()).state == "running"
                async with asyncio.timeout(30):
                    while (await box.info()).state != "stopped":
                        await asyncio.sleep(0.1)
                with pytest.raises(ServiceNotRespondingError):
                    await _drained(socket)
        except ServiceNotRespondingError:
            pass  # the end of the block finds the connection gone
        finally:
            await box.destroy()


async def _with_traffic(socket: atoll.WebSocket, seconds: float) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        await socket.send("x")
        await socket.receive()
        yield
        await asyncio.sleep(0.2)


async def _drained(socket: atoll.WebSocket) -> None:
    async with asyncio.timeout(20):
        while await socket.receive() is not None:
            pass
    raise ServiceNotRespondingError("closed")
