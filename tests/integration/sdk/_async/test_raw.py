import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

import atoll
from atoll.errors import EngineUnreachableError, InvalidPortNumberError, VersionMismatchError
from atoll.sdk._async.raw import RawConnection
from atoll.wire import ops
from atoll.wire.ports import ConnectPort
from integration.services import Here, running

PARAMS = {"namespace": "Sandbox", "id": "box"}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    with running(tmp_path_factory.mktemp("raw") / "state") as found:
        yield found


async def test_bytes_go_both_ways_as_they_are(here: Here) -> None:
    served = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(asyncio.current_task())
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = str(server.sockets[0].getsockname()[1])
        async with atoll.connect(here.url) as env:
            connection = await RawConnection.open(
                env.transport, ops.CONNECT_PORT, PARAMS | {"port": port}, ConnectPort()
            )
            await connection.write(b"\x00\xff")
            assert await connection.read() == b"\x00\xff"
            await connection.aclose()
            await connection.aclose()
        async with asyncio.timeout(10):
            await asyncio.gather(*filter(None, served))


async def test_a_refusal_is_the_engines_own_error(here: Here) -> None:
    async with atoll.connect(here.url) as env:
        with pytest.raises(InvalidPortNumberError):
            await RawConnection.open(
                env.transport, ops.CONNECT_PORT, PARAMS | {"port": "0"}, ConnectPort()
            )


async def test_what_is_no_engine_is_said_to_be_none() -> None:
    served = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for place, error in ((port, VersionMismatchError), (1, EngineUnreachableError)):
        async with atoll.connect(f"http://127.0.0.1:{place}") as env:
            with pytest.raises(error):
                await RawConnection.open(
                    env.transport, ops.CONNECT_PORT, PARAMS | {"port": "80"}, ConnectPort()
                )
    server.close()
    async with asyncio.timeout(10):
        await asyncio.gather(*filter(None, served))
