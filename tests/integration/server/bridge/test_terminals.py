"""Terminals of scripted agents: what is asked of an agent, and what becomes of its answers."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from atoll import errors
from atoll.engine.engine import Engine
from atoll.server.bridge.terminals import MAX_TERMINALS
from atoll.server.main import Served
from atoll.wire import frames
from atoll.wire.frames import Kind
from integration.engine.scripted import Peer, World


@pytest.fixture
async def path(engine: Engine) -> AsyncIterator[str]:
    """The unix socket of an engine with scripted agents."""
    async with AsyncExitStack() as stack:
        served = Served(engine, stack)
        yield (await served.listen(local=False))["socket"]
        await served.stop()


def terminal(path: str, query: str = "") -> Any:
    return unix_connect(path, uri=f"ws://engine/v1/sandbox/box/pty{query}")


async def refused(path: str, query: str = "") -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as caught:
        await terminal(path, query)
    answer = caught.value.response
    return answer.status_code, json.loads(answer.body)["code"]


async def rest(connection: ClientConnection) -> list[Any]:
    found: list[Any] = []
    with suppress(ConnectionClosedError):
        async for message in connection:
            found += [message if isinstance(message, bytes) else json.loads(message)]
    return found


async def test_a_terminal_of_a_connection_is_asked_to_end_with_it(path: str, world: World) -> None:
    async with terminal(path, "?cols=90&rows=30&shell=/bin/zsh") as connection:
        assert await rest(connection) == [
            {"type": "ready"},
            b"/bin/zsh\n",
            {"type": "exit", "code": 0},
        ]
        assert connection.close_code == 1000
    (asked,) = [header for header in world.runtime.seen if header["op"] == "exec"]
    assert asked["id"].startswith("pty:")
    assert (asked["cols"], asked["rows"], asked["command"]) == (90, 30, ["/bin/zsh"])
    assert (asked["pty"], asked["stdin"], asked["timeout"]) == (True, True, None)
    assert (asked["cancel_on_drop"], asked["detach"]) == (True, False)


async def test_that_of_a_session_is_not(path: str, world: World) -> None:
    async def create(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.REPLY, {"id": header["id"]})

    world.runtime.scripts["session.create"] = create
    async with terminal(path, "?session=s") as connection:
        await rest(connection)
    (asked,) = [header for header in world.runtime.seen if header["op"] == "exec"]
    assert (asked["session"], asked["cancel_on_drop"], asked["detach"]) == ("s", False, True)


async def test_a_sandbox_with_too_many_terminals_opens_no_more(path: str, world: World) -> None:
    async def operations(peer: Peer, header: dict[str, Any]) -> None:
        listed = [{"id": f"pty:{n}", "running": True} for n in range(MAX_TERMINALS)]
        await peer.send(Kind.REPLY, {"operations": listed})

    world.runtime.scripts["operations"] = operations
    assert await refused(path) == (503, "capacity_exceeded")


async def test_a_shell_that_cannot_start_is_an_answer_to_the_upgrade(
    path: str, world: World
) -> None:
    async def exec(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.ERROR, errors.CommandNotFoundError("no such command").to_wire())

    world.runtime.scripts["exec"] = exec
    assert await refused(path) == (502, "exec_transport_error")


@pytest.mark.parametrize("garbage", [b"", b"\xff" * 64], ids=["silence", "garbage"])
async def test_an_agent_that_breaks_off_is_told_as_an_error(
    path: str, world: World, garbage: bytes
) -> None:
    async def exec(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.STARTED, {"pid": 7})
        await peer.raw(frames.encode_output(Kind.STDOUT, 0, 0, b"so far"))
        await peer.raw(garbage)
        peer.writer.close()

    world.runtime.scripts["exec"] = exec
    async with terminal(path) as connection:
        ready, shown, last = await rest(connection)
        assert (ready["type"], shown, last["type"]) == ("ready", b"so far", "error")
        assert connection.close_code == 1011
