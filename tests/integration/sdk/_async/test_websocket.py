import asyncio
from collections.abc import Iterator

import pytest

import atoll
from atoll.errors import ServiceNotRespondingError
from atoll.sdk._websocket import WebSocketRefusedError
from integration.services import Here, running


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    with running(tmp_path_factory.mktemp("websocket") / "state") as found:
        yield found


async def test_both_sides_may_talk_at_once(here: Here) -> None:
    async with atoll.connect(here.url) as env:
        box = atoll.get_sandbox(env.Sandbox, "box")
        async with await box.ws_connect("/", here.port) as socket:
            received = asyncio.create_task(_take(socket, 50))
            await asyncio.gather(*(socket.send(str(number)) for number in range(50)))
            assert sorted(await received, key=int) == [str(number) for number in range(50)]


async def _take(socket: atoll.WebSocket, count: int) -> list[str]:
    found: list[str] = []
    async for message in socket:
        found.append(str(message))
        if len(found) == count:
            break
    return found


async def test_a_close_is_answered_and_its_code_told(here: Here) -> None:
    async with atoll.connect(here.url) as env:
        box = atoll.get_sandbox(env.Sandbox, "box")
        socket = await box.ws_connect("/", here.port)
        await socket.close(4002, "enough")
        await socket.close()
        assert (socket.close_code, await socket.receive()) == (4002, None)
        other = await box.ws_connect("/", here.port)
        await other.send("close")
        assert [message async for message in other] == []
        assert (other.close_code, other.close_reason) == (4001, "as you wish")


async def test_who_iterates_over_it_is_told_of_a_close_by_somebody_else(here: Here) -> None:
    async with atoll.connect(here.url) as env:
        box = atoll.get_sandbox(env.Sandbox, "box")
        socket = await box.ws_connect("/", here.port)
        reading = asyncio.create_task(_take(socket, 1))
        await asyncio.sleep(0)
        await socket.close(4003)
        assert (await reading, socket.close_code) == ([], 4003)


async def test_a_refusal_has_the_answer(here: Here) -> None:
    async with atoll.connect(here.url) as env:
        box = atoll.get_sandbox(env.Sandbox, "box")
        with pytest.raises(WebSocketRefusedError) as refused:
            await box.ws_connect("/refused", here.port)
        assert refused.value.status == 403


async def test_a_service_that_vanishes_is_told_by_its_code(here: Here) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with (
        await asyncio.start_server(serve, "127.0.0.1", 0) as server,
        atoll.connect(here.url) as env,
    ):
        box = atoll.get_sandbox(env.Sandbox, "box")
        with pytest.raises(ServiceNotRespondingError):
            await box.ws_connect("/", server.sockets[0].getsockname()[1])
