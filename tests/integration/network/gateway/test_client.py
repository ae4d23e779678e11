import asyncio
from pathlib import Path

import pytest

from atoll.host import unix
from atoll.network.gateway import client, protocol
from atoll.network.gateway.client import GatewayClient, GatewayGone
from atoll.network.gateway.protocol import Call, Done, HandlerAnswer, List, Listed, ToEngine


async def unused(_: Call) -> HandlerAnswer:
    raise AssertionError


async def talking(path: Path, *said: bytes) -> tuple[GatewayClient, asyncio.Server]:
    """Return a client of a gateway that says *said*, whatever it is asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        for one in said:
            writer.write(one)
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, sock=unix.listen(path / "s"))
    return await GatewayClient.connect(path / "s", unused), server


@pytest.mark.parametrize("said", [b"\xff\xff\xff\xff", b"\0\0\0\x03abc"])
async def test_a_gateway_that_says_nonsense_is_as_good_as_gone(tmp_path: Path, said: bytes) -> None:
    asking, server = await talking(tmp_path, said)
    with pytest.raises(GatewayGone):
        await asking.ask(List(), Listed)
    await asyncio.wait_for(asking.gone(), 10)
    with pytest.raises(GatewayGone):
        await asking.ask(List(), Listed)
    server.close()


async def test_a_gateway_that_is_silent_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_TIMEOUT", 0.1)
    asking, server = await talking(tmp_path)
    with pytest.raises(GatewayGone):
        await asking.ask(List(), Listed)
    await asking.close()
    server.close()


async def test_an_answer_to_something_else_is_none(tmp_path: Path) -> None:
    said = protocol.frame(ToEngine(number=1, message=Done()))
    asking, server = await talking(tmp_path, said)
    with pytest.raises(ValueError, match="Done"):
        await asking.ask(List(), Listed)
    await asking.close()
    server.close()
