import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from atoll.host.messages import PIECE, Answers, Incoming
from atoll.host.pump import Channel
from atoll.wire.http1 import Data, End, Event, Malformed, Response

NEXT = b"GET /b HTTP/1.1\r\nHost: h\r\n\r\n"


class HungUpError(Exception):
    """What the tests have raised."""


@asynccontextmanager
async def channel() -> AsyncIterator[tuple[Channel, socket.socket]]:
    """Yield one end of a connection as a channel, and the other."""
    near, far = socket.socketpair()
    _, made = await asyncio.get_running_loop().create_connection(Channel, sock=near)
    try:
        yield made, far
    finally:
        made.abort()
        far.close()
        await asyncio.sleep(0)


async def test_requests_come_head_by_head_and_what_nobody_read_is_passed_over() -> None:
    async with channel() as (near, far):
        incoming = Incoming(near, HungUpError)
        assert not incoming.begun
        far.sendall(b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc")
        far.sendall(b"GET /b HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await incoming.head()).target == b"/a"
        assert (await incoming.head()).target == b"/b"


async def test_requests_are_read_when_it_is_their_turn() -> None:
    """As bytes they take a part of the memory, and a sandbox can send many that wait."""
    async with channel() as (near, far):
        incoming = Incoming(near, HungUpError)
        far.sendall(NEXT * 2_000)
        for _ in range(2_000):
            assert (await incoming.head()).target == b"/b"
            assert len(incoming._events) <= 2 * PIECE // len(NEXT) + 2


async def test_a_body_of_known_length_is_not_cut_into_pieces() -> None:
    async with channel() as (near, far):
        incoming = Incoming(near, HungUpError)
        body = b"b" * (16 * PIECE)
        far.sendall(b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body))
        await incoming.head()
        far.sendall(body + NEXT)
        events = [event async for event in incoming.body()]
        assert sum(len(e.data) for e in events if isinstance(e, Data)) == len(body)
        assert len(events) < 10
        assert (await incoming.head()).target == b"/b"


async def test_a_body_ends_with_its_end() -> None:
    async with channel() as (near, far):
        incoming = Incoming(near, HungUpError)
        far.sendall(b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc" + NEXT)
        await incoming.head()
        events = [event async for event in incoming.body()]
        assert b"".join(e.data for e in events if isinstance(e, Data)) == b"abc"
        assert isinstance(events[-1], End)
        assert incoming.begun


async def test_who_ends_within_a_request_is_told_as_its_owner_wants() -> None:
    async with channel() as (near, far):
        incoming = Incoming(near, HungUpError)
        far.sendall(b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na")
        await incoming.head()
        far.shutdown(socket.SHUT_WR)
        with pytest.raises(HungUpError):
            async for _ in incoming.body():
                pass


async def test_a_request_for_another_protocol_in_vain_is_followed_by_the_next() -> None:
    async with channel() as (near, far):
        incoming = Incoming(near, HungUpError)
        far.sendall(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
        first = await incoming.head()
        assert isinstance(await incoming.event(), End)
        far.sendall(b"GET /b HTTP/1.1\r\nHost: h\r\n\r\n")
        await incoming.go_on(first)
        assert (await incoming.head()).target == b"/b"


async def test_answers_come_until_the_server_ends() -> None:
    async with channel() as (near, far):
        answers = Answers(near)
        answers.expect(b"GET")
        far.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall")
        far.shutdown(socket.SHUT_WR)
        events = await answers.events()
        await _to_the_end(answers, events)
        assert isinstance(events[0], Response)
        assert b"".join(e.data for e in events if isinstance(e, Data)) == b"all"
        assert not answers.usable


async def test_a_server_that_hangs_up_too_early_is_malformed() -> None:
    async with channel() as (near, far):
        answers = Answers(near)
        answers.expect(b"GET")
        far.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
        far.shutdown(socket.SHUT_WR)
        events = await answers.events()
        with pytest.raises(Malformed):
            await _to_the_end(answers, events)


async def _to_the_end(answers: Answers, events: list[Event]) -> None:
    while not isinstance(events[-1], End):
        events += await answers.events()
