"""Limits of one sandbox are the packet filter's and the link's: they hold on both ways out."""

import select
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.network.filter import Mode
from e2e.network import internet as nets
from e2e.network.gateway.test_service import GET, World, standing
from e2e.network.internet import PUBLIC

pytestmark = pytest.mark.e2e

MBIT, CONNECTIONS = 40, 30
BYTES = 4_000_000
BURST = 300_000
"""Bytes that are not slowed down."""


@pytest.fixture(params=[pytest.param("direct", marks=pytest.mark.slow), "gated"])
async def limited(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A sandbox with limits, on either way; the gateway's own limit is far above."""
    mode: Mode = request.param
    limits: dict[str, Any] = {"bandwidth_mbit": MBIT, "max_connections": CONNECTIONS}
    with nets.internet(folder) as net:
        async with standing(folder, net, **limits) as world:
            await world.put(allowed=("0.0.0.0/0",) if mode == "gated" else ())
            await world.slots.set_mode("a", mode)
            yield world


def fastest() -> float:
    """Return the seconds in which `BYTES` may have come at best, a tenth less for inexact clocks."""
    return (BYTES - BURST) / (MBIT * 125_000) * 0.9


def test_what_comes_and_what_goes_is_slowed_down(limited: World) -> None:
    path = b"/bytes/%d" % BYTES
    comes = GET.replace(b"/", path, 1) % PUBLIC.encode()
    begun = time.monotonic()
    assert len(limited.say(PUBLIC, 80, comes, timeout=30)) > BYTES
    assert time.monotonic() - begun > fastest()
    head = b"PUT /bytes/1 HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    goes = head % (PUBLIC.encode(), BYTES) + bytes(BYTES)
    begun = time.monotonic()
    assert limited.say(PUBLIC, 80, goes, timeout=30).startswith(b"HTTP/1.1 200")
    assert time.monotonic() - begun > fastest()


def test_more_connections_than_it_may_have_are_not_made(limited: World) -> None:
    def connect() -> int:
        made = [socket.socket() for _ in range(3 * CONNECTIONS)]
        poll = select.poll()
        for one in made:
            one.setblocking(False)
            one.connect_ex((PUBLIC, nets.ECHO))
            poll.register(one, select.POLLOUT)
        connected: set[int] = set()
        until = time.monotonic() + 1
        while (left := until - time.monotonic()) > 0 and poll.poll(left * 1_000):
            for fd, happened in poll.poll(0):
                poll.unregister(fd)
                if happened == select.POLLOUT:
                    connected.add(fd)
        for one in made:
            one.close()
        return len(connected)

    assert CONNECTIONS / 2 < limited.inside(connect) <= CONNECTIONS
