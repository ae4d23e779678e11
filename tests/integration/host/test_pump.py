import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from atoll.host import pump
from atoll.host.pump import HIGH, Channel, Counts, Deadline, tunnel


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Channel, socket.socket]]:
    """Yield a channel and the socket at its other end."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    _, channel = await asyncio.get_running_loop().create_connection(Channel, sock=ours)
    with theirs:
        yield channel, theirs
        channel.abort()
        await asyncio.sleep(0)


async def test_what_comes_is_read_and_put_back() -> None:
    async with pair() as (channel, other):
        other.send(b"one")
        assert await channel.read() == b"one"
        channel.unread(b"again")
        assert await channel.read() == b"again"
        other.shutdown(socket.SHUT_WR)
        assert await channel.read() == b""
        assert channel.ended
        assert not channel.lost


async def test_reading_stops_when_nobody_takes_what_came() -> None:
    async with pair() as (channel, other):
        sent = 0
        while sent < 8 * HIGH:  # what the kernel does not take either ends it
            try:
                sent += other.send(bytes(1 << 16))
            except BlockingIOError:
                break
            await asyncio.sleep(0.01)
        assert sent < 8 * HIGH
        received = 0
        while received < sent:
            received += len(await channel.read())


async def test_a_writer_waits_for_the_reader_and_hears_of_its_end() -> None:
    async with pair() as (channel, other):
        writing = asyncio.create_task(channel.write(bytes(16 * HIGH)))
        await asyncio.sleep(0.05)
        assert not writing.done()
        other.close()
        await writing
        with pytest.raises(ConnectionResetError):
            await channel.write(b"")


async def test_who_reads_nothing_for_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "STALL", 0.1)
    async with pair() as (channel, _):
        with pytest.raises(ConnectionResetError):
            await channel.write(bytes(16 * HIGH))
        assert await channel.read() == b""


async def test_the_end_is_told_once_unless_nobody_wants_to_know() -> None:
    told: list[str] = []
    for half_open in (False, True):
        ours, theirs = socket.socketpair()
        _, channel = await asyncio.get_running_loop().create_connection(
            lambda: Channel(lambda: told.append("gone")), sock=ours
        )
        if half_open:
            channel.half_open()
        theirs.close()
        assert await channel.read() == b""
        channel.abort()
        await asyncio.sleep(0)
    assert told == ["gone"]


async def test_a_tunnel_carries_both_ways_until_both_have_ended() -> None:
    async with pair() as (visitor, browser), pair() as (server, service):
        counts, touches, loop = Counts(), list[int](), asyncio.get_running_loop()
        running = asyncio.create_task(tunnel(visitor, server, lambda: touches.append(1), counts))
        browser.send(b"question")
        assert await loop.sock_recv(service, 100) == b"question"
        browser.shutdown(socket.SHUT_WR)
        assert await loop.sock_recv(service, 100) == b""
        service.send(b"answer")
        assert await loop.sock_recv(browser, 100) == b"answer"
        assert not running.done()
        service.shutdown(socket.SHUT_WR)
        await running
        assert (counts.received, counts.sent, len(touches)) == (8, 6, 2)


async def test_a_tunnel_ends_when_one_side_ended_and_the_other_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pump, "HALF_OPEN", 0.1)
    async with pair() as (visitor, browser), pair() as (server, service):
        browser.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(10):
            await tunnel(visitor, server, lambda: None, Counts())
        assert service.fileno() > 0


async def test_deadlines_are_met_moved_and_missed() -> None:
    missed = asyncio.Event()
    deadline = Deadline(missed.set)
    deadline.set(0.05)
    deadline.set(60)
    await asyncio.sleep(0.15)
    assert not missed.is_set()
    deadline.clear()
    deadline.set(0.01)
    async with asyncio.timeout(10):
        await missed.wait()
    deadline.cancel()


async def test_a_connection_is_given_away_with_what_was_not_read() -> None:
    async with pair() as (channel, other):
        other.send(b"left")
        await asyncio.sleep(0.05)
        transport, left = channel.hand_over()
        assert left == b"left"
        transport.write(b"x")
        assert await asyncio.get_running_loop().sock_recv(other, 10) == b"x"
