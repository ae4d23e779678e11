import asyncio
import socket

import pytest

from atoll.network.gateway.tunnel import Counts, tunnel


def pair() -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair()
    near.setblocking(False)
    return near, far


async def test_each_side_may_end_while_the_other_goes_on() -> None:
    (client, inside), (server, outside) = pair(), pair()
    counts = Counts()
    running = asyncio.create_task(tunnel(client, server, counts))
    inside.sendall(b"question")
    inside.shutdown(socket.SHUT_WR)
    assert await asyncio.to_thread(outside.recv, 100) == b"question"
    assert await asyncio.to_thread(outside.recv, 100) == b""
    outside.sendall(b"answer")
    outside.close()
    assert await asyncio.to_thread(inside.recv, 100) == b"answer"
    await asyncio.wait_for(running, 10)
    assert (counts.up, counts.down) == (8, 6)
    for one in (client, server, inside):
        one.close()


async def test_a_watch_ends_it() -> None:
    def refuse(_: bytes) -> bytes:
        raise ValueError("no")

    (client, inside), (server, outside) = pair(), pair()
    inside.sendall(b"x")
    with pytest.raises(ValueError, match="no"):
        await tunnel(client, server, Counts(), watch_up=refuse)
    for one in (client, server, inside, outside):
        one.close()
