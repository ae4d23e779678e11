import asyncio
import socket
from contextlib import suppress

import pytest

from atoll.host.budget import Budget
from atoll.network.gateway.tunnel import LARGEST, PIECE, Counts, tunnel


def pair() -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair()
    near.setblocking(False)
    return near, far


async def test_each_side_may_end_while_the_other_goes_on() -> None:
    (client, inside), (server, outside) = pair(), pair()
    counts = Counts()
    running = asyncio.create_task(tunnel(client, server, counts, Budget(0)))
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
        await tunnel(client, server, Counts(), Budget(0), watch_up=refuse)
    for one in (client, server, inside, outside):
        one.close()


@pytest.mark.parametrize("room", [0, PIECE, LARGEST])
async def test_where_much_comes_pieces_grow_as_far_as_there_is_room(room: int) -> None:
    (client, inside), (server, outside) = pair(), pair()
    outside.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    outside.setblocking(False)
    sent, pieces, budget = 0, list[int](), Budget(room)
    with suppress(BlockingIOError):
        while sent < 4 * PIECE:
            sent += outside.send(bytes(4 * PIECE - sent))
    assert sent > 3 * PIECE
    outside.close()

    def see(data: bytes) -> bytes:
        pieces.append(len(data))
        return data

    running = asyncio.create_task(tunnel(client, server, Counts(), budget, watch_down=see))
    got = 0
    while data := await asyncio.to_thread(inside.recv, PIECE):
        got += len(data)
    assert (got, pieces[0]) == (sent, PIECE)
    assert max(pieces) == (2 * PIECE if room else PIECE)
    assert budget.taken == 0
    inside.close()
    await asyncio.wait_for(running, 10)
    for one in (client, server):
        one.close()
