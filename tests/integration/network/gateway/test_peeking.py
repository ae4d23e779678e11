import asyncio
import socket

import pytest

from atoll.network.gateway.peeking import peek, readable


async def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    near.setblocking(False)
    return near, far


async def test_what_was_seen_is_still_there() -> None:
    near, far = await connected()
    far.sendall(b"abc")
    await readable(near)
    assert peek(near, 10) == b"abc"
    assert near.recv(10) == b"abc"
    assert peek(near, 10) == b""
    near.close()
    far.close()


async def test_only_more_than_was_seen_wakes() -> None:
    near, far = await connected()
    far.sendall(b"abc")
    await readable(near)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(readable(near, 3), 0.1)
    far.sendall(b"d")
    await asyncio.wait_for(readable(near, 3), 10)
    assert peek(near, 10) == b"abcd"
    far.close()
    await asyncio.wait_for(readable(near, 4), 10)
    near.close()
