import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from atoll.engine.link.checks import MAX_ERROR
from atoll.engine.link.link import Link, LinkError, SilenceError
from atoll.errors import FileNotFoundError, SandboxError
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind
from integration.engine.scripted import Peer

Agent = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def linked(agent: Agent) -> AsyncIterator[Link]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    async def serve() -> None:
        reader, writer = await asyncio.open_connection(sock=theirs)
        try:
            await agent(Peer(reader, writer))
        except OSError:
            pass
        finally:
            writer.close()

    serving = asyncio.create_task(serve())
    async with await Link.open(ours, {"op": "test"}) as link:
        yield link
    serving.cancel()
    await asyncio.wait([serving])


async def flood(link: Link) -> None:
    while True:
        await link.send(Kind.DATA, b"x" * frames.CHUNK)


async def collect(link: Link, **options: float) -> list[Frame]:
    return [frame async for frame in link.frames(**options)]  # type: ignore[arg-type]


async def test_frames_pass_through_until_the_operation_ends() -> None:
    async def agent(peer: Peer) -> None:
        assert json.loads((await peer.next()).payload) == {"op": "test"}
        await peer.send(Kind.STARTED, {"pid": 1})
        await peer.send(Kind.HEARTBEAT)
        await peer.raw(frames.encode_output(Kind.STDOUT, 0, 0, b"\0\xff"))
        await peer.send(Kind.EXITED, {"exit_code": 3})
        await peer.send(Kind.HEARTBEAT)

    async with linked(agent) as link:
        kinds = [frame.kind for frame in await collect(link)]
    assert kinds == [Kind.STARTED, Kind.HEARTBEAT, Kind.STDOUT, Kind.EXITED]


def raw(data: bytes) -> Agent:
    async def agent(peer: Peer) -> None:
        await peer.raw(data)
        await asyncio.sleep(60)

    return agent


HUGE = struct.pack(">BI", Kind.STDOUT, 0xFFFF_FFFF)


@pytest.mark.parametrize(
    "data",
    [
        HUGE,
        b"HTTP/1.1 200 OK\r\n\r\n",
        frames.encode(99),
        frames.encode(Kind.STDIN, b"x"),
        frames.encode(Kind.HEADER, b"{}"),
        frames.encode(Kind.STDOUT, b"short"),
        frames.encode(Kind.STARTED, b"not json"),
        frames.encode(Kind.EXITED, b"{}"),
        frames.encode(Kind.EXITED, b'{"exit_code": "zero"}'),
        frames.encode(Kind.EXITED, b"[" * 100_000),
        frames.encode(Kind.GAP, b'{"from_offset": null}'),
        frames.encode(Kind.ERROR, b"x" * (MAX_ERROR + 1)),
    ],
)
async def test_a_hostile_agent_costs_its_own_operation_only(data: bytes) -> None:
    async with linked(raw(data)) as link:
        with pytest.raises(LinkError):
            await collect(link)


@pytest.mark.parametrize("body", [b"", b"null", b"[1]", b'{"code": 7, "context": 3}', b"\xff"])
async def test_a_malformed_error_is_still_an_error(body: bytes) -> None:
    async with linked(raw(frames.encode(Kind.ERROR, body))) as link:
        with pytest.raises(SandboxError):
            await link.reply()


async def test_a_cut_stream_is_never_an_end() -> None:
    async def agent(peer: Peer) -> None:
        await peer.next()
        await peer.raw(frames.encode_output(Kind.STDOUT, 0, 0, b"x")[:-1])

    async with linked(agent) as link:
        with pytest.raises(LinkError, match="hung up"):
            await collect(link)


async def test_silence_is_noticed() -> None:
    async with linked(raw(b"")) as link:
        with pytest.raises(LinkError, match="nothing"):
            await collect(link, silence=0.02)
        with pytest.raises(LinkError, match="no answer"):
            await link.reply(timeout=0.02)


async def test_a_reply_may_take_any_time_while_the_agent_shows_life() -> None:
    async def agent(peer: Peer) -> None:
        for _ in range(8):
            await peer.send(Kind.HEARTBEAT)
            await asyncio.sleep(0.05)
        await peer.send(Kind.REPLY, {})
        await asyncio.sleep(60)

    async with linked(agent) as link:
        assert await link.reply(timeout=None, silence=0.3) == b"{}"
        with pytest.raises(SilenceError):
            await link.reply(timeout=None, silence=0.05)


async def test_an_agent_that_takes_nothing_is_noticed() -> None:
    async with linked(raw(b"")) as link:
        with pytest.raises(SilenceError):
            await link.send_piece(b"x" * 60_000_000, 0.5)


async def test_heartbeats_do_not_stretch_the_time_of_a_unary_call() -> None:
    async def agent(peer: Peer) -> None:
        while True:
            await peer.send(Kind.HEARTBEAT)
            await asyncio.sleep(0.005)

    async with linked(agent) as link:
        with pytest.raises(LinkError):
            await link.reply(timeout=0.05)


async def test_an_endless_stream_is_read_no_faster_than_it_is_used() -> None:
    sent = 0

    async def agent(peer: Peer) -> None:
        nonlocal sent
        chunk = frames.encode_output(Kind.STDOUT, 0, 0, b"x" * frames.CHUNK)
        while True:
            await peer.raw(chunk)
            sent += len(chunk)

    async with linked(agent) as link:
        stream = link.frames()
        await anext(stream)
        await asyncio.sleep(0.1)
        assert sent < 4 << 20


async def test_typed_errors_of_the_agent_arrive() -> None:
    error = FileNotFoundError("no such file", context={"path": "/x"}).to_wire()
    async with linked(raw(frames.encode(Kind.ERROR, json.dumps(error).encode()))) as link:
        with pytest.raises(FileNotFoundError) as caught:
            await link.reply()
    assert caught.value.context == {"path": "/x"}


async def test_an_answer_of_another_kind_is_refused() -> None:
    async with linked(raw(frames.encode(Kind.EXITED, b'{"exit_code": 0}'))) as link:
        with pytest.raises(LinkError, match="kind"):
            await link.reply()


async def test_a_body_follows_its_reply_and_ends_with_end() -> None:
    async def agent(peer: Peer) -> None:
        parts = [
            frames.encode(Kind.REPLY, b"{}"),
            frames.encode(Kind.DATA, b"a"),
            frames.encode(Kind.DATA, b"b"),
            frames.encode(Kind.END),
        ]
        await peer.raw(b"".join(parts))

    async with linked(agent) as link:
        assert await link.reply() == b"{}"
        assert [chunk async for chunk in link.body()] == [b"a", b"b"]


async def test_a_body_that_fails_half_way_is_not_an_end() -> None:
    error = json.dumps(FileNotFoundError().to_wire()).encode()

    async def agent(peer: Peer) -> None:
        await peer.raw(frames.encode(Kind.REPLY, b"{}") + frames.encode(Kind.DATA, b"a"))
        await peer.send(Kind.ERROR, error)

    async with linked(agent) as link:
        await link.reply()
        with pytest.raises(FileNotFoundError):
            _ = [chunk async for chunk in link.body()]


async def test_sending_waits_for_the_agent_and_notices_its_end() -> None:
    async def agent(peer: Peer) -> None:
        await peer.next()
        await asyncio.sleep(0.05)

    async with linked(agent) as link:
        with pytest.raises(LinkError):
            await flood(link)


async def test_a_body_to_an_agent_that_stops_reading_ends_quietly() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * (3 * frames.CHUNK)

    async def agent(peer: Peer) -> None:
        await peer.next()
        frame = await peer.next()
        assert len(frame.payload) == frames.CHUNK

    async with linked(agent) as link:
        await link.send_all(endless(), Kind.STDIN, Kind.STDIN_CLOSE)


@pytest.mark.parametrize("size", [0, 1, 5_000_000, frames.MAX_FRAME + 3])
async def test_a_piece_of_a_body_arrives_whole(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    got = bytearray()

    async def agent(peer: Peer) -> None:
        await peer.next()
        while (frame := await peer.next()).kind == Kind.DATA:
            got.extend(frame.payload)
        await peer.send(Kind.REPLY, {})

    async with linked(agent) as link:
        await link.send_piece(data[:size])
        await link.send(Kind.END)
        await link.reply()
    assert got == data[:size]


async def test_a_piece_for_an_agent_that_left_is_an_error() -> None:
    async def agent(peer: Peer) -> None:
        await peer.next()

    async with linked(agent) as link:
        await asyncio.sleep(0.02)
        with pytest.raises(LinkError):
            await link.send_piece(b"x" * 10_000_000)


@pytest.mark.parametrize(
    "frame", [frames.encode(Kind.STDOUT, bytes(20)), frames.encode(Kind.REPLY), b"\x63\0\0\0\0"]
)
async def test_a_body_that_is_malformed_is_an_error(frame: bytes) -> None:
    async def agent(peer: Peer) -> None:
        await peer.raw(frames.encode(Kind.REPLY, b"{}") + frames.encode(Kind.DATA, b"a") + frame)

    async with linked(agent) as link:
        await link.reply()
        with pytest.raises(LinkError):
            _ = [chunk async for chunk in link.body()]


async def test_a_refusal_in_the_middle_of_an_upload_is_heard() -> None:
    error = FileNotFoundError("no such directory").to_wire()

    async def agent(peer: Peer) -> None:
        await peer.send(Kind.ERROR, error)

    async with linked(agent) as link:
        await asyncio.sleep(0.02)
        with pytest.raises(LinkError):
            await flood(link)
        with pytest.raises(FileNotFoundError, match="no such directory"):
            await link.reply()


async def test_a_frame_that_drips_is_silence() -> None:
    """Else a byte now and then would keep a call for hours."""

    async def agent(peer: Peer) -> None:
        for byte in frames.encode(Kind.REPLY, b"{}" * 500):
            await peer.raw(bytes([byte]))
            await asyncio.sleep(0.02)

    async with asyncio.timeout(5), linked(agent) as link:
        with pytest.raises(SilenceError):
            await link.reply(timeout=None, silence=0.2)
