import asyncio
import socket

import pytest

from atoll.network.gateway.peeking import is_readable, peek, readable


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


async def test_what_is_there_is_told_at_once() -> None:
    near, far = await connected()
    assert not is_readable(near)
    far.sendall(b"abc")
    await readable(near)
    assert is_readable(near, 2)
    assert not is_readable(near, 3)
    far.close()
    await asyncio.wait_for(readable(near, 3), 10)
    assert is_readable(near, 3)
    near.close()
