import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from atoll.host import unix
from atoll.network.gateway import control
from atoll.network.gateway.client import GatewayClient
from atoll.network.gateway.control import Control
from atoll.network.gateway.protocol import (
    MAX_BODY,
    Answered,
    Call,
    Decision,
    Done,
    HandlerAnswer,
    List,
    Listed,
    Noticed,
    Remove,
    ToGateway,
    Unanswered,
    frame,
)
from atoll.network.policy import Handler
from integration.network.gateway.harness import Harness, policy

CALL = Call(
    key="a/b", host_ref="r", handler=Handler("outbound"), method="GET", url="http://a/", headers=[]
)
Connect = Callable[[Callable[[Call], Awaitable[HandlerAnswer]]], Awaitable[GatewayClient]]


async def answering(call: Call) -> HandlerAnswer:
    return Answered(status=200, headers=[], body=call.url.encode())


@pytest.fixture
async def served(gateway: Harness, tmp_path: Path) -> AsyncIterator[tuple[Control, Connect]]:
    served_by, clients = Control(), []
    server = await served_by.serve(gateway.service, unix.listen(tmp_path / "control.sock"))

    async def connect(handle: Callable[[Call], Awaitable[HandlerAnswer]]) -> GatewayClient:
        clients.append(await GatewayClient.connect(tmp_path / "control.sock", handle))
        await clients[-1].ask(List(), Listed)
        return clients[-1]

    yield served_by, connect
    for client in clients:
        await client.close()
    server.close()


async def test_questions_are_answered_in_whatever_order(
    gateway: Harness, served: tuple[Control, Connect]
) -> None:
    gateway.put(policy(version=3))
    client = await served[1](answering)
    found, done = await asyncio.gather(
        client.ask(List(), Listed), client.ask(Remove(host_ref="none"), Done)
    )
    assert found.versions == {"box": 3}
    assert done == Done()


async def test_a_handler_is_called_by_the_engine(served: tuple[Control, Connect]) -> None:
    await served[1](answering)
    assert await served[0].call(CALL) == Answered(status=200, headers=[], body=b"http://a/")


async def test_without_an_engine_there_is_no_answer_of_a_handler(
    served: tuple[Control, Connect],
) -> None:
    assert isinstance(await served[0].call(CALL), Unanswered)


async def test_a_handler_that_raises_is_no_answer(served: tuple[Control, Connect]) -> None:
    async def failing(_: Call) -> HandlerAnswer:
        raise ValueError("a reason")

    await served[1](failing)
    assert await served[0].call(CALL) == Unanswered(reason="a reason")


async def test_a_handler_that_takes_too_long_is_given_up(
    served: tuple[Control, Connect], monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up = asyncio.Event()

    async def endless(_: Call) -> HandlerAnswer:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        raise AssertionError

    monkeypatch.setattr(control, "HANDLER_TIMEOUT", 0.1)
    await served[1](endless)
    assert isinstance(await served[0].call(CALL), Unanswered)
    await asyncio.wait_for(given_up.wait(), 10)


async def test_calls_that_an_engine_does_not_read_wait_where_they_are_counted(
    served: tuple[Control, Connect], tmp_path: Path
) -> None:
    """What was written is nobody's: senders that hang up could have any number of bodies there."""
    reader, writer = await asyncio.open_unix_connection(tmp_path / "control.sock", limit=1)
    writer.write(frame(ToGateway(number=1, message=List())))
    await reader.readexactly(1)
    called = replace(CALL, body=bytes(MAX_BODY))
    calls = [asyncio.create_task(served[0].call(called)) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting = served[0]._writer
    assert waiting
    assert MAX_BODY // 2 < waiting.transport.get_write_buffer_size() < 2 * MAX_BODY
    writer.close()
    for found in await asyncio.gather(*calls):
        assert isinstance(found, Unanswered)


async def test_an_engine_that_goes_leaves_no_call_waiting(served: tuple[Control, Connect]) -> None:
    begun = asyncio.Event()

    async def endless(_: Call) -> HandlerAnswer:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    client = await served[1](endless)
    waiting = asyncio.create_task(served[0].call(CALL))
    await asyncio.wait_for(begun.wait(), 10)
    await client.close()
    assert isinstance(await asyncio.wait_for(waiting, 10), Unanswered)


async def test_the_engine_that_is_there_is_told_of_refusals(
    gateway: Harness, tmp_path: Path
) -> None:
    told: asyncio.Queue[Noticed] = asyncio.Queue()
    served_by = Control()
    server = await served_by.serve(gateway.service, unix.listen(tmp_path / "noticing.sock"))
    decision = Decision(time=1, protocol="dns", verdict="refused", rule="r", host="a.test")
    served_by.notice(Noticed(host_ref="nobody is there", decision=decision))
    path = tmp_path / "noticing.sock"
    client = await GatewayClient.connect(path, answering, told.put_nowait)
    await client.ask(List(), Listed)
    served_by.notice(Noticed(host_ref="r", decision=decision))
    assert await told.get() == Noticed(host_ref="r", decision=decision)
    assert told.empty()
    await client.close()
    server.close()
