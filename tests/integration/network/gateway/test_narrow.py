import asyncio
import socket
from typing import Any

import pytest
import uvloop

from atoll.host.pump import HIGH, Channel
from atoll.network.gateway import narrow
from integration.network.gateway.harness import Harness, policy

SIZE = 1 << 20


def test_the_first_connections_of_a_sandbox_are_fast_and_others_small() -> None:
    assert narrow.high(narrow.WIDE - 1) == HIGH
    assert narrow.high(narrow.WIDE) == narrow.NARROW < HIGH


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_small_connection_carries_as_much_as_another(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    monkeypatch.setattr(narrow, "WIDE", 0)
    gateway.put(policy(allowed=("good.test",), intercept=True))
    gateway.name("good.test", "127.0.0.1")
    web = await gateway.web("good.test" if encrypted else "", answer=b"x" * SIZE)
    await gateway.addresses("good.test")
    head = b"PUT / HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    tls: dict[str, Any] = {"ssl": gateway.trusting(), "server_hostname": "good.test"}
    answer = await gateway.exchange(
        "127.0.0.1", web.port, head % SIZE + b"y" * SIZE, **(tls if encrypted else {})
    )
    assert answer.endswith(b"\r\n\r\n" + b"x" * SIZE)
    assert web.bodies == [b"y" * SIZE]


@pytest.mark.parametrize("high", [narrow.NARROW, HIGH])
def test_what_nobody_reads_of_a_small_connection_is_little(high: int) -> None:
    """On the loop that the gateway runs on: its reads are the size of what would be held."""
    near, far = socket.socketpair()

    async def held() -> int:
        loop = asyncio.get_running_loop()
        channel = Channel(high=high)
        await loop.create_connection(lambda: narrow.protocol(channel), sock=near)
        far.setblocking(False)
        sending = asyncio.ensure_future(loop.sock_sendall(far, bytes(2 * SIZE)))
        while channel._reading:
            await asyncio.sleep(0.001)
        sending.cancel()
        channel.abort()
        return channel._size

    with far, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert high < runner.run(held()) <= 2 * high
