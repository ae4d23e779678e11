"""Connections that the agent carries behave as those that are made inside."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.engine.link.link import Endpoint
from atoll.engine.ports import carried, forwarding
from atoll.errors import ServiceNotRespondingError
from atoll.runtime.base import ContainerSpec
from atoll.runtime.fake import FakeRuntime

DATA = os.urandom(10 << 20)


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[Endpoint]:
    """The agent of a sandbox that is reached by TCP only."""
    runtime = FakeRuntime(tmp_path / "run", tcp=True)
    run_dir = tmp_path / "run" / "r1" / "container"
    run_dir.mkdir(parents=True)
    (tmp_path / "root").mkdir()
    spec = ContainerSpec(
        host_ref="r1", generation=3, identity="i", hostname="h", rootfs=tmp_path / "root",
        run_dir=run_dir, netns=None, id_base=0, id_count=1, memory=1, cpu=1, pids=1,
    )  # fmt: skip
    await runtime.start(spec)
    found = Endpoint(runtime, run_dir, "r1", 3)
    yield found
    await runtime.remove("r1")
    async with asyncio.timeout(20):
        while found.tasks:
            await asyncio.sleep(0.01)


class Pair:
    """A carried connection, and the server's side of it."""

    def __init__(self, ours: socket.socket, theirs: socket.socket) -> None:
        self.ours, self.theirs = ours, theirs

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


async def _pair(endpoint: Endpoint, address: str) -> Pair:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        server.setblocking(False)
        ours = await forwarding.connect(endpoint, server.getsockname()[1])
        theirs, _ = await asyncio.get_running_loop().sock_accept(server)
    theirs.setblocking(False)
    return Pair(ours, theirs)


@pytest.fixture(params=["127.0.0.1"])
async def pair(endpoint: Endpoint, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    found = await _pair(endpoint, request.param)
    yield found
    found.close()


async def read_all(one: socket.socket) -> bytes:
    loop, parts = asyncio.get_running_loop(), []
    async with asyncio.timeout(30):
        while data := await loop.sock_recv(one, 1 << 16):
            parts.append(data)
    return b"".join(parts)


async def send_all(one: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(one, data)
    one.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("pair", ["127.0.0.1", "::1"], indirect=True)
async def test_the_caller_may_end_first_and_gets_its_answer(pair: Pair) -> None:
    await send_all(pair.ours, b"question")
    assert await read_all(pair.theirs) == b"question"
    await send_all(pair.theirs, b"answer")
    assert await read_all(pair.ours) == b"answer"


async def test_the_server_may_end_first_and_is_still_told(pair: Pair) -> None:
    await send_all(pair.theirs, b"greeting")
    assert await read_all(pair.ours) == b"greeting"
    await send_all(pair.ours, b"farewell")
    assert await read_all(pair.theirs) == b"farewell"


async def test_megabytes_go_both_ways_at_once(pair: Pair) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(send_all(pair.ours, DATA))
        group.create_task(send_all(pair.theirs, DATA[::-1]))
        received = group.create_task(read_all(pair.theirs))
        answered = group.create_task(read_all(pair.ours))
    assert received.result() == DATA
    assert answered.result() == DATA[::-1]


async def test_nobody_there_is_a_typed_error(endpoint: Endpoint) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ServiceNotRespondingError, match=str(port)):
        await forwarding.connect(endpoint, port)
    with pytest.raises(ConnectionRefusedError):
        await carried.connect(endpoint, "::1", port)


@pytest.mark.parametrize("sender", ["ours", "theirs"])
async def test_who_sends_waits_for_a_slow_reader(pair: Pair, sender: str) -> None:
    source, sink = pair.ours, pair.theirs
    if sender == "theirs":
        source, sink = sink, source
    sending = asyncio.create_task(send_all(source, DATA * 4))
    done, _ = await asyncio.wait({sending}, timeout=0.5)
    assert not done
    assert len(await read_all(sink)) == 4 * len(DATA)
    await sending


async def test_what_was_sent_before_a_close_arrives(pair: Pair) -> None:
    sending = asyncio.create_task(send_all(pair.ours, DATA))
    reading = asyncio.create_task(read_all(pair.theirs))
    await sending
    pair.ours.close()
    assert await reading == DATA


@pytest.mark.parametrize("busy", [False, True])
async def test_a_connection_that_is_cut_ends_inside_too(pair: Pair, busy: bool) -> None:
    loop = asyncio.get_running_loop()
    if busy:
        await loop.sock_sendall(pair.theirs, b"x" * 1_000)
    pair.ours.close()
    assert await read_all(pair.theirs) == b""


async def test_a_server_that_breaks_the_connection_ends_it(pair: Pair) -> None:
    pair.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    pair.theirs.close()
    assert await read_all(pair.ours) == b""


async def test_a_sandbox_that_ends_ends_its_connections(endpoint: Endpoint, pair: Pair) -> None:
    await endpoint.runtime.remove("r1")
    assert await read_all(pair.ours) == b""
    assert await read_all(pair.theirs) == b""
